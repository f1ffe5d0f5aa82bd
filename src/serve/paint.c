/* paint.c: the pictures of the jobs in front.jobs, made by the worker process of this machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store.h"

/* ---- giving ------------------------------------------------------------------------------------------------------ */

void paint_name(const job *j, picture *p) {
    (void)j;
    make_id(p->id, "pic_");
}

/* Gives the worker the next picture, and those that wait and can be made together with it. */
static void give(front *f) {
    bool wanted = f->child.free && f->child.n_seats < MOST_SEATS && !f->draining && !f->paused;
    job *first = wanted ? queue_next(f) : NULL;
    if (first && !seats_give(f, first)) job_fail(f, first, "out_of_memory", "out of memory");
}

/* ---- news of the worker ------------------------------------------------------------------------------------------ */

static void picture_begun(front *f, seat *s, int together) {
    job *j = s->job;
    bool first = j->state == QUEUED;
    if (together) { /* the first picture of a pass */
        f->child.pass++;
        f->child.begun = steady_seconds();
        f->child.share = 0;
        pictures_counted(f, together);
    }
    s->begun = true;
    s->pass = f->child.pass;
    if (j->over) return;
    job_started(f, j);
    if (!first) return;
    store_save_job(f->store, j);
    job_tell_state(f, j);
}

/* The picture could not be made together with those before it. */
static void picture_later(front *f, seat *s) {
    job *j = s->job;
    int index = s->index;
    if (seat_take_back(f, s) && j->given > index) j->given = index;
}

static void picture_done(front *f, seat *s, json_t *facts) {
    job *j = s->job;
    int index = s->index;
    picture *p = &j->pictures[index];
    f->child.deaths = 0;
    if (!seat_take_back(f, s)) {
        json_decref(facts);
        return;
    }
    double seconds = json_number_value(json_object_get(facts, "seconds"));
    p->width = json_integer_value(json_object_get(facts, "width"));
    p->height = json_integer_value(json_object_get(facts, "height"));
    p->created = wall_seconds();
    for (const char *const *key = (const char *const[]){"type", "job", "index", "seconds", NULL}; *key; key++)
        json_object_del(facts, *key);
    p->facts = facts;
    bool stored = index == j->made && files_take(f, p), last = j->made + 1 == j->n;
    if (stored) p->bytes = file_bytes(f, p);
    /* Committed together with the picture, so that no restart finds one without the other. */
    if (last) {
        j->state = COMPLETED;
        j->completed = p->created;
    } else if (!f->models[j->model].layers) /* layers are made together, and tried together */
        j->attempts = 1;
    if (!stored || !store_add_picture(f->store, p, j)) {
        files_remove(f, p);
        seat_clear(f, j, index);
        json_decref(facts);
        job_fail(f, j, "insufficient_storage", "the picture cannot be stored");
        return;
    }
    job_has_picture(f, j, seconds);
    if (last) job_ended(f, j, COMPLETED, NULL, "");
}

/* The small picture of a picture that was told of before, and that may be gone by now. */
static void thumb_arrived(front *f, const char *id) {
    picture p = {.facts = NULL};
    f->child.thumbs--;
    if (!id || !is_id(id)) return;
    bool there = store_find_picture(f->store, id, &p) && !p.removed;
    if (there) files_take_thumb(f, &p);
    json_decref(p.facts);
    char *left = spool_path(f, id, ".thumb.webp");
    if (left && !there) unlink(left);
    free(left);
}

static void picture_refused(front *f, seat *s, const char *code, const char *message) {
    job *failed = seat_refused(f, s, code);
    if (failed) job_fail(f, failed, constant_code(code), message);
}

/* A job that was begun has lost an attempt. From then on it is made alone (queue.c), so that a job that ends the worker
 * each time costs the others one attempt only. */
static void job_lost(front *f, job *j) {
    bool begun = seats_lose(f, j);
    *j->stage = 0;
    if (j->over) {
        job_free(j);
        return;
    }
    if (!begun) return;
    j->attempts++;
    if (j->attempts > MOST_DEATHS) {
        job_fail(f, j, "worker_lost", "the process that paints ended three times while it made this picture");
        return;
    }
    store_save_job(f->store, j);
    job_tell_state(f, j);
}

void paint_lost(front *f) {
    for (request *r = f->requests; r; r = r->next)
        if (*r->ask) plan_arrived(f, r->ask, NULL);
    while (f->child.n_seats) job_lost(f, f->child.seats[0].job);
    f->child.cancel = 0;
}

/* A job that is not done is continued by the next server, and has not lost an attempt. */
void paint_stop(front *f) {
    while (f->child.n_seats) {
        job *j = f->child.seats[0].job;
        seats_lose(f, j);
        if (j->over) job_free(j);
    }
    if (!f->store || !f->store->kind->own_worker) return;
    for (job *j = f->jobs; j; j = j->next) {
        if (j->state != RUNNING) continue;
        j->state = QUEUED;
        store_save_job(f->store, j);
    }
}

void paint_heard(front *f, json_t *message, buffer *bytes) {
    const char *type = json_string_value(json_object_get(message, "type"));
    const char *id = json_string_value(json_object_get(message, "job"));
    const char *code = json_string_value(json_object_get(message, "code"));
    const char *text = json_string_value(json_object_get(message, "message"));
    const char *ask = json_string_value(json_object_get(message, "ask"));
    seat *s = seat_find(f, id, (int)json_integer_value(json_object_get(message, "index")));
    f->child.thumbs += strcmp(type, "done") == 0;
    bool shown = s && s->index == s->job->made; /* of several pictures of a job, the progress of the first is told */
    if (strcmp(type, "progress") == 0 && s) queue_progress(f, s, message);
    if (strcmp(type, "progress") == 0 && shown)
        job_progress(f, s->job, message);
    else if (strcmp(type, "preview") == 0 && shown)
        job_preview(f, s->job, message, bytes);
    else if (strcmp(type, "begun") == 0 && s)
        picture_begun(f, s, (int)json_integer_value(json_object_get(message, "together")));
    else if (strcmp(type, "later") == 0 && s)
        picture_later(f, s);
    else if (strcmp(type, "done") == 0 && s)
        picture_done(f, s, json_incref(message));
    else if (strcmp(type, "thumb") == 0)
        thumb_arrived(f, json_string_value(json_object_get(message, "picture")));
    else if (strcmp(type, "failed") == 0 && s)
        picture_refused(f, s, code ? code : "generation_failed", text ? text : "");
    else if (strcmp(type, "recoded") == 0)
        recode_arrived(f, message, bytes);
    else if (strcmp(type, "planned") == 0 && ask)
        plan_arrived(f, ask, json_incref(json_object_get(message, "plan")));
}

void paint_tick(front *f) {
    child_tick(f);
    give(f);
}

void paint_pause(front *f, bool paused) { f->paused = paused; }
