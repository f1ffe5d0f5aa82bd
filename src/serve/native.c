/* native.c: /api/v1, jobs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guard.h"
#include "handlers.h"
#include "repeat.h"
#include "sse.h"
#include "store.h"

static bool may_see(const request *r, const char *owner) { return r->who.admin || strcmp(r->who.owner, owner) == 0; }

/* ---- a job as JSON ----------------------------------------------------------------------------------------------- */

static json_t *time_or_null(double seconds) { return seconds > 0 ? json_integer((json_int_t)seconds) : json_null(); }

json_t *job_json(front *f, const job *j) {
    json_t *pictures = json_array(), *error = json_null();
    for (int i = 0; i < j->made; i++)
        if (!j->pictures[i].removed) json_array_append_new(pictures, picture_json(&j->pictures[i]));
    if (j->code) error = json_pack("{s:s, s:s}", "code", j->code, "message", j->message);
    bool live = j->state == QUEUED || j->state == RUNNING;
    double left = live ? queue_told(f, j) : -1;
    return json_pack(
        "{s:s, s:s, s:o, s:o, s:o, s:i, s:o, s:o, s:i, s:i, s:i, s:s, s:O, s:o, s:o}", "id", j->id, "status",
        state_names[j->state], "created", time_or_null(j->created), "started", time_or_null(j->started), "completed",
        time_or_null(j->completed), "queue_position", live ? queue_position(f, j) : 0, "eta_seconds",
        left < 0 ? json_null() : json_real(round(left * 10) / 10), "stage",
        live && *j->stage ? json_string(j->stage) : json_null(), "step", j->step, "steps", job_steps(f, j), "attempts",
        j->attempts, "source", source_names[j->source], "settings", j->settings, "pictures", pictures, "error", error);
}

/* ---- about ------------------------------------------------------------------------------------------------------- */

void handle_about(request *r) {
    front *f = r->front;
    json_t *models = json_array(), *samplers = json_array(), *schedules = json_array();
    for (int i = 0; i < f->n_models; i++) {
        const model *m = &f->models[i];
        json_t *sizes = json_array();
        for (int k = 0; k < m->n_sizes; k++)
            json_array_append_new(sizes, json_pack("[I, I]", (json_int_t)m->sizes[k][0], (json_int_t)m->sizes[k][1]));
        json_array_append_new(
            models,
            json_pack("{s:s, s:s, s:b, s:b, s:b, s:b, s:b, s:I, s:I, s:I, s:i, s:f, s:i, s:i, s:b, s:b, s:b, s:i, s:o}",
                      "id", m->id, "family", m->family, "loaded", model_is_loaded(f, i), "known", m->known, "distilled",
                      m->distilled, "guidance_built_in", m->guidance_built_in, "transparent", m->transparent, "width",
                      (json_int_t)m->width, "height", (json_int_t)m->height, "token_pixels",
                      (json_int_t)m->token_pixels, "steps", m->steps, "guidance", m->guidance, "least_images",
                      m->least_images, "most_images", m->most_images, "references", m->references, "start_images",
                      m->start_images, "masks", m->masks, "layers", m->layers, "sizes", sizes));
    }
    for (int i = 0; lz_sampler_name(i); i++) json_array_append_new(samplers, json_string(lz_sampler_name(i)));
    for (int i = 0; lz_schedule_name(i); i++) json_array_append_new(schedules, json_string(lz_schedule_name(i)));
    const char *device = f->child.loaded >= 0 ? f->models[f->child.loaded].device : "";
    reply_json(
        r, 200,
        json_pack(
            "{s:s, s:s, s:b, s:b, s:b, s:o, s:o, s:o, s:{s:I, s:I, s:I, s:I, s:I, s:i}, s:[s, s, s], s:[s, s, s]}",
            "version", lz_version(), "device", device, "key_needed", guard_has_keys(f->guard), "admin", r->who.admin,
            "paused", f->paused, "models", models, "samplers", samplers, "schedules", schedules, "limits", "pixels",
            (json_int_t)f->options->max_pixels, "body", (json_int_t)f->options->max_body, "input_pixels",
            (json_int_t)f->options->max_input_pixels, "queue", (json_int_t)f->options->queue, "queue_per_key",
            (json_int_t)f->options->queue_per_key, "pictures", MOST_PICTURES, "previews", "small", "full", "off",
            "features", "generate", "edit", "mask"));
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

static void reply_job(request *r, int status, const job *j) {
    char location[80];
    snprintf(location, sizeof location, "/api/v1/jobs/%s", j->id);
    reply_json(r, status, job_json(r->front, j));
    if (status == 202) add_header(r, "location", location);
}

/* The job of the path, alive or from the store (then *owned is set, and the caller frees it). NULL: the answer is
 * set. */
static job *asked_job(request *r, job **owned) {
    *owned = NULL;
    job *j = is_id(r->item) ? job_find(r->front, r->item) : NULL;
    if (!j && is_id(r->item)) j = *owned = store_find_job(r->front, r->item);
    if (j && may_see(r, j->owner)) return j;
    job_free(*owned);
    *owned = NULL;
    reply_error(r, 404, "not_found", "", "there is no such job");
    return NULL;
}

static void reply_accepted(request *r, job *j) { reply_job(r, 202, j); }

static void queue_job(request *r, json_t *settings, const char *key, const char *body) {
    problem p = {.status = 0};
    const char *site = header_of(r, "sec-fetch-site"); /* browsers send it, and no page can change it */
    bool page = site && strcmp(site, "same-origin") == 0;
    job *j = job_new(r->front, &r->who, page ? FROM_PAGE : FROM_API, settings);
    if (j) {
        memcpy(j->body, body, sizeof j->body);
        j->repeat = key;
    }
    if (!j)
        reply_error(r, 500, "out_of_memory", "", "out of memory");
    else if (!job_admit(r->front, j, r, &p)) {
        reply_problem(r, &p);
        job_free(j);
    } else
        reply_job(r, 202, j);
}

/* The same request may have come again while this one was planned. */
static void queue_new(request *r, json_t *settings) {
    if (repeat_answer(r, reply_accepted, reply_accepted))
        json_decref(settings);
    else
        queue_job(r, settings, header_of(r, "idempotency-key"), r->hash);
}

void handle_jobs_new(request *r) {
    problem p = {.status = 0};
    repeat_hash(r);
    if (repeat_answer(r, reply_accepted, reply_accepted)) return;
    json_t *fields = body_json(r), *settings = fields ? wanted_native(r, fields, &p) : NULL;
    if (settings)
        admit(r, settings, queue_new);
    else if (fields)
        reply_problem(r, &p);
}

static bool is_state(const char *name) {
    for (int i = 0; i <= CANCELLED; i++)
        if (strcmp(name, state_names[i]) == 0) return true;
    return false;
}

void handle_jobs_list(request *r) {
    front *f = r->front;
    job *found[MOST_LISTED + 1]; /* one more than asked for tells whether there are more */
    int limit;
    if (!asked_limit(r, &limit)) return;
    char *state = query_of(r, "state"), *after = query_of(r, "after");
    if (state && !is_state(state)) {
        reply_error(r, 400, "invalid_value", "state",
                    "state: '%.30s' is not one of queued, in_progress, completed, failed and cancelled", state);
        free(state);
        free(after);
        return;
    }
    int n = store_list_jobs(f, r->who.admin ? NULL : r->who.owner, state, after, limit + 1, found);
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        bool ended = found[i]->state != QUEUED && found[i]->state != RUNNING;
        job *live = ended ? NULL : job_find(f, found[i]->id);
        if (i < limit) json_array_append_new(list, job_json(f, live ? live : found[i]));
        job_free(found[i]);
    }
    free(state);
    free(after);
    reply_json(r, 200, json_pack("{s:o, s:b}", "jobs", list, "more", n > limit));
}

void handle_jobs_clear(request *r) {
    char *state = query_of(r, "state");
    bool queued = state && strcmp(state, "queued") == 0;
    int n = 0;
    free(state);
    if (!queued) {
        reply_error(r, 400, "invalid_value", "state", "state: only ?state=queued can be cancelled together");
        return;
    }
    job *found[200];
    int listed = store_list_jobs(r->front, r->who.admin ? NULL : r->who.owner, "queued", NULL, 200, found);
    for (int i = 0; i < listed; i++) {
        job_find(r->front, found[i]->id); /* those of other fronts are in the list then */
        job_free(found[i]);
    }
    for (job *j = r->front->jobs, *next; j; j = next) {
        next = j->next;
        if (j->state != QUEUED || !may_see(r, j->owner)) continue;
        job_cancel(r->front, j, BY_API, "cancelled", "the job was cancelled");
        n++;
    }
    reply_json(r, 200, json_pack("{s:i}", "cancelled", n));
}

void handle_job(request *r) {
    job *owned, *j = asked_job(r, &owned);
    if (j) reply_job(r, 200, j);
    job_free(owned);
}

void handle_job_cancel(request *r) {
    char id[65];
    job *owned, *j = asked_job(r, &owned);
    if (j && !owned) {
        memcpy(id, r->item, sizeof id);
        job_cancel(r->front, j, BY_API, "cancelled", "the job was cancelled");
        j = owned = store_find_job(r->front, id);
    }
    if (j) reply_job(r, 200, j);
    job_free(owned);
}

void handle_job_first(request *r) {
    job *owned, *j = asked_job(r, &owned);
    if (j && !owned && j->state == QUEUED) r->front->store->kind->first(r->front, j);
    if (j) reply_job(r, 200, j);
    job_free(owned);
}

/* A new job with the settings of one that has ended, and its seeds. */
void handle_job_retry(request *r) {
    job *owned, *j = asked_job(r, &owned);
    if (j && !owned)
        reply_error(r, 400, "invalid_value", "", "the job has not ended yet");
    else if (j && j->model < 0)
        reply_error(r, 404, "model_not_found", "model", "the model of this job is not offered any more");
    else if (j)
        queue_job(r, json_deep_copy(j->settings), NULL, j->body);
    job_free(owned);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void replay(request *r, stream *s) {
    const char *last = header_of(r, "last-event-id");
    if (last && *last && strspn(last, "0123456789") == strlen(last) && strlen(last) < 18)
        native_replay(r->front, s, strtoll(last, NULL, 10));
}

void handle_job_events(request *r) {
    job *owned, *j = asked_job(r, &owned);
    stream *s = j ? stream_new(r, owned ? NULL : j, true) : NULL;
    if (s) {
        reply_stream(r, s);
        stream_event(s, "state", job_json(r->front, j), false);
        if (owned)
            stream_end(s);
        else
            replay(r, s);
    } else if (j)
        reply_error(r, 500, "out_of_memory", "", "out of memory");
    job_free(owned);
}

void handle_events(request *r) {
    stream *s = stream_new(r, NULL, true);
    if (!s) {
        reply_error(r, 500, "out_of_memory", "", "out of memory");
        return;
    }
    reply_stream(r, s);
    stream_event(s, "hello", json_pack("{s:s, s:i}", "version", lz_version(), "waiting", queue_waiting(r->front, NULL)),
                 false);
    replay(r, s);
}

/* ---- the queue and sessions -------------------------------------------------------------------------------------- */

static void set_pause(request *r, bool paused) {
    queue_pause(r->front, paused);
    reply_json(r, 200, json_pack("{s:b}", "paused", paused));
}

void handle_pause(request *r) { set_pause(r, true); }
void handle_resume(request *r) { set_pause(r, false); }

void handle_session_new(request *r) {
    char secret[33], cookie[160];
    const char *public = r->front->options->public_url;
    problem p;
    json_t *fields = body_json(r);
    const char *key = json_string_value(json_object_get(fields, "key"));
    if (!fields) return;
    if (!guard_has_keys(r->front->guard))
        reply_json(r, 200, json_pack("{s:b}", "key_needed", false));
    else if (!guard_open_session(r, key ? key : "", secret, &p))
        reply_problem(r, &p);
    else {
        bool secure = r->secure || (public && strncmp(public, "https:", 6) == 0);
        snprintf(cookie, sizeof cookie, "lazuli_session=%s; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict%s", secret,
                 secure ? "; Secure" : "");
        reply_json(r, 200, json_pack("{s:b}", "key_needed", true));
        add_header(r, "set-cookie", cookie);
    }
    json_decref(fields);
}

void handle_session_end(request *r) {
    guard_close_session(r->front->guard, r);
    reply_json(r, 200, json_object());
    add_header(r, "set-cookie", "lazuli_session=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict");
}
