/* models.c: the models that are offered: their names, /v1/models, and loading them. */
#include <stdio.h>
#include <string.h>

#include "handlers.h"
#include "store.h"

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Names that clients have built in, and that mean the default model. */
static bool is_alias(const char *name) {
    static const char *const words[] = {"", "auto", "default", "lazuli"};
    static const char *const begins[] = {"gpt-image-", "dall-e-", "chatgpt-image"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!name || strcmp(name, words[i]) == 0) return true;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0) return true;
    return false;
}

/* The model with just this name; -1: there is none. */
static int find_model(const front *f, const char *name) {
    for (int i = 0; name && i < f->n_models; i++)
        if (strcmp(f->models[i].id, name) == 0) return i;
    return -1;
}

int wanted_model(front *f, const char *name, bool edit) {
    int index = find_model(f, name);
    if (index >= 0) return index;
    if (!is_alias(name) || (f->options->strict && name && *name)) return -1;
    for (int i = 0; edit && i < f->n_models; i++)
        if (f->models[i].known && f->models[i].most_images) return i;
    return 0;
}

bool set_no_model(const front *f, const char *name, problem *p) {
    char list[200] = "";
    for (int i = 0; i < f->n_models; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", f->models[i].id);
    }
    return set_problem(p, 404, "model_not_found", "model", "there is no model '%.80s'; there are %s", name, list);
}

/* The index of the model of the path; -1: the answer is set. */
static int asked_model(request *r) {
    problem p;
    int index = find_model(r->front, r->item);
    if (index >= 0) return index;
    set_no_model(r->front, r->item, &p);
    reply_problem(r, &p);
    return -1;
}

/* ---- /v1/models -------------------------------------------------------------------------------------------------- */

static json_t *model_json(front *f, int index) {
    const model *m = &f->models[index];
    json_t *can = json_pack("[s]", "generate");
    if (m->most_images) json_array_append_new(can, json_string("edit"));
    if (m->masks) json_array_append_new(can, json_string("mask"));
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o, s:b}", "id", m->id, "object", "model", "created",
                     (json_int_t)f->begun, "owned_by", "lazuli", "family", m->family, "capabilities", can, "loaded",
                     model_is_loaded(f, index));
}

void handle_models(request *r) {
    json_t *list = json_array();
    for (int i = 0; i < r->front->n_models; i++) json_array_append_new(list, model_json(r->front, i));
    reply_json(r, 200, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

void handle_model(request *r) {
    int index = asked_model(r);
    if (index >= 0) reply_json(r, 200, model_json(r->front, index));
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* Requests about the worker of this server. false: the answer is set. */
static bool has_own_worker(request *r) {
    if (r->front->store->kind->own_worker) return true;
    reply_error(r, 400, "unsupported_value", "", "a server of a fleet has no worker of its own, so it cannot do this");
    return false;
}

static void reply_loading(request *r, int index, bool loaded, bool loading) {
    reply_json(r, 202,
               json_pack("{s:s, s:b, s:b}", "id", r->front->models[index].id, "loaded", loaded, "loading", loading));
}

static void reply_busy(request *r) {
    reply_error(r, 503, "not_ready", "", "a picture is being made; try again when it is done");
}

void handle_model_load(request *r) {
    front *f = r->front;
    int index = has_own_worker(r) ? asked_model(r) : -1;
    if (index < 0) return;
    if (f->child.n_seats)
        reply_busy(r);
    else {
        child_load(f, index);
        reply_loading(r, index, model_is_loaded(f, index), !model_is_loaded(f, index));
    }
}

void handle_model_unload(request *r) {
    front *f = r->front;
    int index = has_own_worker(r) ? asked_model(r) : -1;
    if (index < 0) return;
    if (model_is_loaded(f, index) && !child_sleep(f))
        reply_busy(r);
    else
        reply_loading(r, index, false, false);
}

/* ---- the same for /sdapi ----------------------------------------------------------------------------------------- */

static void reply_unusable(request *r) {
    reply_error(r, 503, "not_ready", "", "the model was not loaded; the server's log says why");
}

/* The answer is sent when the model is loaded. A worker that makes pictures loads the model when a picture needs it, so
 * nobody waits for that. */
static void reply_loaded(request *r, int index, json_t *answer) {
    front *f = r->front;
    reply_json(r, 200, answer);
    if (!f->store->kind->own_worker || f->child.n_seats || f->draining || model_is_loaded(f, index)) return;
    if (model_is_unusable(f, index)) {
        reply_unusable(r);
        return;
    }
    child_load(f, index);
    r->loading = index + 1;
}

void models_answer(front *f, bool lost) {
    double now = steady_seconds();
    for (request *r = f->requests; r; r = r->next) {
        int index = r->loading - 1;
        bool loaded = index >= 0 && f->child.ready && model_is_loaded(f, index);
        bool failed = index >= 0 && !loaded && (lost || f->models[index].unusable);
        bool late = index >= 0 && now - r->begun > f->options->queue_timeout;
        if (!loaded && !failed && !late) continue;
        if (failed)
            reply_unusable(r);
        else if (!loaded)
            reply_error(r, 503, "not_ready", "", "the model is not loaded yet; ask again later");
        r->loading = 0;
        wake(r);
    }
}

/* Clients post back the whole object. Only the model is used. An administrator's choice is for all. */
void handle_sd_options_set(request *r) {
    front *f = r->front;
    problem p;
    json_t *fields = body_json(r);
    if (!fields) return;
    const json_t *chosen = json_object_get(fields, "sd_model_checkpoint");
    const char *name = json_string_value(chosen);
    int index = name ? wanted_model(f, name, false) : queue_preferred(f, r->who.owner);
    if (chosen && !name)
        reply_error(r, 400, "invalid_type", "sd_model_checkpoint", "sd_model_checkpoint: must be text");
    else if (index < 0) {
        set_no_model(f, name, &p);
        reply_problem(r, &p);
    } else {
        if (name) queue_prefer(f, r->who.by_key && r->who.admin ? NULL : r->who.owner, index);
        reply_loaded(r, index, json_null());
    }
    json_decref(fields);
}

void handle_sd_unload(request *r) {
    if (!has_own_worker(r)) return;
    if (child_sleep(r->front))
        reply_json(r, 200, json_object());
    else
        reply_busy(r);
}

void handle_sd_reload(request *r) {
    if (has_own_worker(r)) reply_loaded(r, queue_preferred(r->front, r->who.owner), json_object());
}
