/* plan.c: plans of pictures: /api/v1/plan, and admission. A picture that does not fit into memory is refused before its job
 * is stored. The worker plans it; the front keeps the last plans, because clients ask for the same few sizes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handlers.h"
#include "store.h"

enum { PATIENCE = 3, PLAN_SECONDS = 20 }; /* that admission, and /api/v1/plan, wait for a plan */
enum { MOST_ASKED = 32 };                 /* plans that are waited for */
enum { MOST_UNSENT = 1 << 20 };           /* bytes that the worker has not taken yet */

/* The sizes of the images, which are all that a plan needs of them. */
static json_t *image_sizes(request *r, const json_t *settings) {
    const json_t *names = json_object_get(settings, "images");
    json_t *sizes = json_array();
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i)), *id = strchr(name, ':') + 1;
        picture p = {.facts = NULL};
        int64_t width = 0, height = 0;
        if (*name == 'u')
            store_find_upload(r->front->store, id, &width, &height);
        else if (store_find_picture(r->front->store, id, &p)) {
            width = p.width;
            height = p.height;
            json_decref(p.facts);
        }
        json_array_append_new(sizes, json_pack("[I, I]", (json_int_t)width, (json_int_t)height));
    }
    return sizes;
}

bool plan_may_ask(const front *f) {
    int n = 0;
    for (const request *r = f->requests; r; r = r->next) n += *r->ask != 0;
    return n < MOST_ASKED && f->child.out.size < MOST_UNSENT;
}

bool plan_ask(request *r, json_t *question) {
    front *f = r->front;
    make_id(r->ask, "ask_");
    json_object_set_new(question, "ask", json_string(r->ask));
    bool asked = f->child.ready && f->store->kind->tell(f, json_incref(question));
    json_decref(question);
    if (!asked) *r->ask = 0;
    double due = steady_seconds() + PATIENCE;
    r->asked = due - PATIENCE;
    if (asked && (!(f->plans_due > 0) || due < f->plans_due)) f->plans_due = due;
    return asked;
}

/* Asks the worker for a plan. Releases settings. false: it cannot be asked. */
static bool ask_worker(request *r, int index, json_t *settings) {
    json_object_set_new(settings, "image_sizes", image_sizes(r, settings));
    snprintf(r->item, sizeof r->item, "%d", index);
    return plan_ask(r, json_pack("{s:s, s:i, s:o}", "type", "plan", "model", index, "settings", settings));
}

void plan_forget(request *r) {
    front *f = r->front;
    if (*r->ask && f->store->kind->own_worker) child_tell(f, json_pack("{s:s, s:s}", "type", "forget", "ask", r->ask));
    *r->ask = 0;
}

void handle_plan(request *r) {
    problem p = {.status = 0};
    front *f = r->front;
    json_t *fields = body_json(r);
    if (!fields) return;
    if (!json_object_get(fields, "prompt")) json_object_set_new(fields, "prompt", json_string("a picture"));
    json_t *settings = wanted_native(r, fields, &p);
    if (!settings) {
        reply_problem(r, &p);
        return;
    }
    int index = wanted_model(f, json_string_value(json_object_get(settings, "model")), false);
    const model *m = &f->models[index];
    if (m->pace <= 0 && m->guess <= 0 && !f->child.n_seats) json_object_set_new(settings, "estimate", json_true());
    if (!plan_may_ask(f)) {
        json_decref(settings);
        reply_error(r, 429, "queue_full", "", "too many plans are being made");
        return;
    }
    if (ask_worker(r, index, settings)) return;
    f->child.asleep = false;
    reply_error(r, 503, "not_ready", "", "no model is loaded yet");
}

/* ---- admission --------------------------------------------------------------------------------------------------- */

/* A hash of the settings on which the memory of a picture depends. */
static void plan_key(request *r, const json_t *settings, char key[65]) {
    static const char *const names[] = {"model",   "width",   "height",     "guidance", "strength",
                                        "preview", "sampler", "background", "layers",   "resolution"};
    json_t *all = json_object();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (json_object_get(settings, names[i])) json_object_set(all, names[i], json_object_get(settings, names[i]));
    json_object_set_new(all, "sizes", image_sizes(r, settings));
    json_object_set_new(all, "negative", json_boolean(json_object_get(settings, "negative")));
    char *text = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS);
    hash_hex(text ? text : "", text ? strlen(text) : 0, key);
    free(text);
    json_decref(all);
}

/* Can the worker plan with the model now, without loading it and without waiting for another to be loaded? */
static bool can_plan(const front *f, int index) {
    if (!f->store->kind->own_worker || !f->child.ready || index < 0 || !model_is_loaded(f, index)) return false;
    for (const job *j = f->jobs; j; j = j->next)
        if (j->painting && j->model >= 0 && !model_is_loaded(f, j->model)) return false;
    return true;
}

/* Goes on with a request whose plan is known. */
static void decide(request *r, json_t *settings, int64_t needed, int64_t available,
                   void (*go)(request *r, json_t *settings)) {
    if (!available || needed <= available) {
        go(r, settings);
        return;
    }
    json_decref(settings);
    reply_error(
        r, 400, "picture_too_large", "size",
        "the picture needs %lld MiB of memory, and the server has %lld MiB; ask for a smaller one, or for fewer "
        "and smaller images",
        (long long)(needed >> 20), (long long)(available >> 20));
}

void admit(request *r, json_t *settings, void (*go)(request *r, json_t *settings)) {
    front *f = r->front;
    if (!answers_have_room(f, 0)) { /* before the picture is made */
        json_decref(settings);
        reply_error(r, 429, "queue_full", "", "too many large answers are being sent");
        return;
    }
    int index = wanted_model(f, json_string_value(json_object_get(settings, "model")), false);
    if (!can_plan(f, index)) {
        go(r, settings);
        return;
    }
    plan_key(r, settings, r->plan_key);
    for (int i = 0; i < PLANS; i++)
        if (strcmp(f->plans[i].key, r->plan_key) == 0) {
            decide(r, settings, f->plans[i].needed, f->plans[i].available, go);
            return;
        }
    json_t *question = plan_may_ask(f) ? json_copy(settings) : NULL;
    if (question) json_object_set_new(question, "brief", json_true());
    if (!question || !ask_worker(r, index, question)) {
        go(r, settings);
        return;
    }
    r->settings = settings;
    r->go = go;
}

/* Goes on with a request that waits for admission. plan: borrowed; NULL: there is none. */
static void admit_planned(request *r, const json_t *plan) {
    front *f = r->front;
    void (*go)(request *, json_t *) = r->go;
    json_t *settings = r->settings;
    int64_t needed = json_integer_value(json_object_get(plan, "needed"));
    int64_t available = json_integer_value(json_object_get(plan, "available"));
    r->go = NULL;
    r->settings = NULL;
    *r->ask = 0;
    if (needed) {
        planned *p = &f->plans[f->next_plan++ % PLANS];
        *p = (planned){.needed = needed, .available = available};
        memcpy(p->key, r->plan_key, sizeof p->key);
    }
    decide(r, settings, needed, available, go); /* without a plan the worker decides, later */
    wake(r);
}

void plans_tick(front *f) {
    double now = steady_seconds();
    if (!(f->plans_due > 0) || now < f->plans_due) return;
    f->plans_due = 0;
    for (request *r = f->requests, *next; r; r = next) {
        next = r->next;
        if (!*r->ask) continue;
        double due = r->asked + (r->go ? PATIENCE : PLAN_SECONDS);
        if (now < due) {
            if (!(f->plans_due > 0) || due < f->plans_due) f->plans_due = due;
            continue;
        }
        plan_forget(r);
        if (r->go) {
            admit_planned(r, NULL);
            continue;
        }
        reply_error(r, 503, "not_ready", "", "the worker did not answer within %d seconds", PLAN_SECONDS);
        wake(r);
    }
}

void plan_arrived(front *f, const char *ask, json_t *plan) {
    request *r = f->requests;
    while (r && strcmp(r->ask, ask) != 0) r = r->next;
    if (!r) {
        json_decref(plan);
        return;
    }
    if (r->go) {
        admit_planned(r, plan);
        json_decref(plan);
        return;
    }
    *r->ask = 0;
    const char *code = json_string_value(json_object_get(plan, "code"));
    const char *message = json_string_value(json_object_get(plan, "message"));
    if (!plan || code)
        reply_error(r, plan ? problem_status(code) : 503, plan ? constant_code(code) : "not_ready", "", "%s",
                    message ? message : "the worker ended");
    else {
        int index = atoi(r->item), steps = (int)json_integer_value(json_object_get(plan, "steps"));
        int64_t width = json_integer_value(json_object_get(plan, "width"));
        int64_t height = json_integer_value(json_object_get(plan, "height"));
        double estimated = json_number_value(json_object_get(plan, "seconds"));
        if (estimated > 0) queue_estimate(f, index, width, height, steps, estimated);
        double seconds = queue_guess(f, index, width, height, steps);
        json_object_set_new(plan, "seconds", seconds < 0 ? json_null() : json_real(seconds));
        reply_json(r, 200, json_incref(plan));
    }
    json_decref(plan);
    wake(r);
}
