/* paint.c: the pictures of the jobs in front.jobs, made by the worker process of this machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store.h"

/* ---- painting ---------------------------------------------------------------------------------------------------- */

/* The path of "upload:ID" or "picture:ID"; owned. NULL: it is gone, or the name (or NULL) is neither. */
static char *image_path(front *f, const char *name) {
    const char *id = name ? strchr(name, ':') : NULL;
    if (!id || !is_id(++id)) return NULL;
    if (strncmp(name, "upload:", 7) == 0) return upload_path(f, id);
    picture p = {.facts = NULL};
    if (strncmp(name, "picture:", 8) != 0 || !store_find_picture(f->store, id, &p)) return NULL;
    json_decref(p.facts);
    return picture_path(f, &p);
}

static json_t *image_paths(front *f, const job *j) {
    const json_t *names = json_object_get(j->settings, "images");
    json_t *paths = json_array();
    for (size_t i = 0; i < json_array_size(names); i++) {
        char *path = image_path(f, json_string_value(json_array_get(names, i)));
        json_array_append_new(paths, json_string(path ? path : ""));
        free(path);
    }
    return paths;
}

static const char *format_of(const job *j) {
    const char *format = json_string_value(json_object_get(j->settings, "format"));
    return format ? format : "png";
}

void picture_begin(const job *j, picture *p) {
    *p = (picture){.index = j->made, .seed = j->seeds[j->made]};
    memcpy(p->job, j->id, sizeof p->job);
    memcpy(p->owner, j->owner, sizeof p->owner);
    snprintf(p->format, sizeof p->format, "%s", format_of(j));
}

json_t *paint_message(front *f, const job *j, const picture *p) {
    const char *mask_name = json_string_value(json_object_get(j->settings, "mask"));
    char *mask = mask_name ? image_path(f, mask_name) : NULL;
    char *out = spool_path(f, p->id, format_ending(p->format)), *thumb = spool_path(f, p->id, ".thumb.webp");
    json_t *message = json_pack("{s:s, s:s, s:i, s:I, s:O, s:o, s:s?, s:s?, s:s?, s:f}", "type", "paint", "job", j->id,
                                "model", j->model, "seed", (json_int_t)p->seed, "settings", j->settings, "files",
                                image_paths(f, j), "out", out, "thumb", thumb, "mask", mask, "preview_pause",
                                j->source == FROM_API ? 0.2 : 0.0);
    free(out);
    free(thumb);
    free(mask);
    return message;
}

static bool paint_next(front *f, job *j) {
    picture *p = &j->pictures[j->made];
    picture_begin(j, p);
    make_id(p->id, "pic_");
    json_t *message = paint_message(f, j, p);
    return message && child_tell(f, message);
}

static void start_job(front *f) {
    if (!f->child.ready || f->child.job || f->draining || f->paused) return;
    job *j = queue_next(f);
    if (!j) return;
    bool first = j->state == QUEUED;
    job_started(f, j);
    f->child.job = j;
    if (first) {
        store_save_job(f->store, j);
        job_tell_state(f, j);
    }
    if (!paint_next(f, j)) job_fail(f, j, "out_of_memory", "out of memory");
}

/* Removes what the worker has written of a picture that will not be finished. */
static void clear_spool(front *f, const job *j) {
    const picture *p = &j->pictures[j->made];
    char *paths[] = {spool_path(f, p->id, format_ending(format_of(j))), spool_path(f, p->id, ".thumb.webp")};
    for (int i = 0; i < 2; i++) {
        if (paths[i]) unlink(paths[i]);
        free(paths[i]);
    }
}

/* The worker has answered. Returns false, and frees the job, if the job had ended before. */
static bool take_back(front *f, job *j) {
    f->child.job = NULL;
    f->child.cancel = 0;
    j->painting = false;
    if (!j->over) return true;
    clear_spool(f, j);
    job_free(j);
    return false;
}

static void picture_done(front *f, job *j, json_t *facts) {
    picture *p = &j->pictures[j->made];
    f->child.deaths = 0;
    if (!take_back(f, j)) {
        json_decref(facts);
        return;
    }
    p->width = json_integer_value(json_object_get(facts, "width"));
    p->height = json_integer_value(json_object_get(facts, "height"));
    p->created = wall_seconds();
    json_object_del(facts, "type");
    json_object_del(facts, "job");
    p->facts = facts;
    bool stored = files_take(f, p), last = j->made + 1 == j->n;
    if (stored) p->bytes = file_bytes(f, p);
    if (last) { /* committed together with the picture, so that no restart finds one without the other */
        j->state = COMPLETED;
        j->completed = p->created;
    }
    if (!stored || !store_add_picture(f->store, p, j)) {
        files_remove(f, p);
        clear_spool(f, j);
        json_decref(facts);
        job_fail(f, j, "insufficient_storage", "the picture cannot be stored");
        return;
    }
    job_has_picture(f, j);
    if (last) job_ended(f, j, COMPLETED, NULL, "");
}

static void picture_refused(front *f, job *j, const char *code, const char *message) {
    if (!take_back(f, j)) return;
    clear_spool(f, j);
    if (strcmp(code, "cancelled") == 0) /* it was cancelled for a reason that is over: paint it again */
        return;
    job_fail(f, j, constant_code(code), message);
}

void paint_lost(front *f) {
    job *j = f->child.job;
    f->child.job = NULL;
    f->child.cancel = 0;
    for (request *r = f->requests; r; r = r->next)
        if (*r->ask) plan_arrived(f, r->ask, NULL);
    if (!j) return;
    j->painting = false;
    *j->stage = 0;
    clear_spool(f, j);
    if (j->over) {
        job_free(j);
        return;
    }
    j->attempts++;
    if (j->attempts > MOST_DEATHS) {
        job_fail(f, j, "worker_lost", "the process that paints ended three times while it made this picture");
        return;
    }
    store_save_job(f->store, j);
    job_tell_state(f, j);
}

void paint_heard(front *f, json_t *message, buffer *bytes) {
    const char *type = json_string_value(json_object_get(message, "type"));
    const char *id = json_string_value(json_object_get(message, "job"));
    const char *code = json_string_value(json_object_get(message, "code"));
    const char *text = json_string_value(json_object_get(message, "message"));
    const char *ask = json_string_value(json_object_get(message, "ask"));
    job *j = f->child.job && id && strcmp(f->child.job->id, id) == 0 ? f->child.job : NULL;
    if (strcmp(type, "progress") == 0 && j)
        job_progress(f, j, message);
    else if (strcmp(type, "preview") == 0 && j)
        job_preview(f, j, message, bytes);
    else if (strcmp(type, "done") == 0 && j)
        picture_done(f, j, json_incref(message));
    else if (strcmp(type, "failed") == 0 && j)
        picture_refused(f, j, code ? code : "generation_failed", text ? text : "");
    else if (strcmp(type, "planned") == 0 && ask)
        plan_arrived(f, ask, json_incref(json_object_get(message, "plan")));
}

void paint_tick(front *f) {
    child_tick(f);
    start_job(f);
}

void paint_pause(front *f, bool paused) { f->paused = paused; }
