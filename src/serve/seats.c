/* seats.c: the pictures that the worker process of this machine has. A seat is one of them. paint.c gives it the jobs of a
 * server, and fleet/worker.c those that it drew for its fleet. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store.h"

/* ---- messages ---------------------------------------------------------------------------------------------------- */

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

/* A picture of the job, without an id. */
static void picture_begin(const job *j, int index, picture *p) {
    *p = (picture){.index = index, .seed = j->seeds[index]};
    memcpy(p->job, j->id, sizeof p->job);
    memcpy(p->owner, j->owner, sizeof p->owner);
    snprintf(p->format, sizeof p->format, "%s", format_of(j));
}

/* The settings of a job that the worker needs. What only the answer repeats may be long. */
static json_t *painted_settings(const job *j) {
    json_t *settings = json_copy(j->settings);
    if (settings) json_object_del(settings, "sdapi");
    if (settings) json_object_del(settings, "openai");
    return settings;
}

/* A picture as the worker is told of it. */
static json_t *seat_message(front *f, const job *j, const picture *p) {
    const char *mask_name = json_string_value(json_object_get(j->settings, "mask"));
    char *mask = mask_name ? image_path(f, mask_name) : NULL;
    char *out = spool_path(f, p->id, format_ending(p->format)), *thumb = spool_path(f, p->id, ".thumb.webp");
    json_t *message = json_pack("{s:s, s:i, s:I, s:o, s:o, s:s?, s:s?, s:s?, s:f}", "job", j->id, "index", p->index,
                                "seed", (json_int_t)p->seed, "settings", painted_settings(j), "files",
                                image_paths(f, j), "out", out, "thumb", thumb, "mask", mask, "preview_pause",
                                job_is_native(j) ? 0.2 : 0.0);
    free(out);
    free(thumb);
    free(mask);
    return message;
}

/* ---- seats ------------------------------------------------------------------------------------------------------- */

seat *seat_find(front *f, const char *id, int index) {
    child *c = &f->child;
    for (int i = 0; id && i < c->n_seats; i++)
        if (c->seats[i].index == index && strcmp(c->seats[i].job->id, id) == 0) return &c->seats[i];
    return NULL;
}

/* Is a picture of the job being made? When was the oldest cancel sent? */
static void look_at_seats(front *f, job *j) {
    child *c = &f->child;
    j->painting = false;
    c->cancel = 0;
    for (int i = 0; i < c->n_seats; i++) {
        const seat *s = &c->seats[i];
        if (s->job == j && s->begun) j->painting = true;
        if (s->cancel > 0 && (!(c->cancel > 0) || s->cancel < c->cancel)) c->cancel = s->cancel;
    }
}

void seat_clear(front *f, const job *j, int index) {
    const picture *p = &j->pictures[index];
    char *paths[] = {spool_path(f, p->id, format_ending(format_of(j))), spool_path(f, p->id, ".thumb.webp")};
    for (int i = 0; i < 2; i++) {
        if (paths[i]) unlink(paths[i]);
        free(paths[i]);
    }
}

/* Adds the next picture of the job to those of a pass. */
static bool add_seat(front *f, job *j, json_t *pictures) {
    child *c = &f->child;
    picture *p = &j->pictures[j->given];
    picture_begin(j, j->given, p);
    c->name(j, p);
    json_t *message = seat_message(f, j, p);
    /* A worker of a fleet puts both files in their place at once. */
    if (!f->crew) json_object_set_new(message, "picture", json_string(p->id));
    if (!message || json_array_append_new(pictures, message) != 0) return false;
    c->seats[c->n_seats++] = (seat){.job = j, .index = p->index};
    j->given++;
    j->seats++;
    return true;
}

bool seat_take_back(front *f, seat *s) {
    child *c = &f->child;
    job *j = s->job;
    int index = s->index;
    c->n_seats--;
    memmove(s, s + 1, (size_t)(c->seats + c->n_seats - s) * sizeof *s);
    j->seats--;
    look_at_seats(f, j);
    if (!j->over) return true;
    seat_clear(f, j, index);
    if (!j->seats) job_free(j);
    return false;
}

job *seat_refused(front *f, seat *s, const char *code) {
    job *j = s->job;
    int index = s->index;
    if (!seat_take_back(f, s)) return NULL;
    seat_clear(f, j, index);
    if (strcmp(code, "cancelled") != 0) return j;
    if (j->given > index) j->given = index; /* it was cancelled for a reason that is over: make it again */
    return NULL;
}

void seats_cancel(front *f, job *j) {
    child *c = &f->child;
    double now = steady_seconds();
    child_tell(f, json_pack("{s:s, s:s}", "type", "cancel", "job", j->id));
    for (int i = 0; i < c->n_seats; i++)
        if (c->seats[i].job == j && !(c->seats[i].cancel > 0)) c->seats[i].cancel = now;
    look_at_seats(f, j);
}

bool seats_give(front *f, job *first) {
    child *c = &f->child;
    json_t *pictures = json_array();
    int before = c->n_seats, most = f->models[first->model].together;
    bool good = pictures && add_seat(f, first, pictures), layers = f->models[first->model].layers;
    while (layers && good && first->given < first->n && c->n_seats < MOST_SEATS) good = add_seat(f, first, pictures);
    for (job *j;
         good && !layers && c->n_seats - before < most && c->n_seats < MOST_SEATS && (j = queue_join(f, first));)
        good = add_seat(f, j, pictures);
    c->free = false;
    if (!good)
        json_decref(pictures);
    else if (child_tell(f, json_pack("{s:s, s:i, s:o}", "type", "paint", "model", first->model, "pictures", pictures)))
        return true;
    c->free = true;
    while (c->n_seats > before) {
        job *j = c->seats[--c->n_seats].job;
        j->seats--;
        j->given--;
    }
    return false;
}

bool seats_lose(front *f, job *j) {
    child *c = &f->child;
    bool begun = false;
    int n = 0;
    for (int i = 0; i < c->n_seats; i++) {
        const seat *s = &c->seats[i];
        if (s->job != j) {
            c->seats[n++] = *s;
            continue;
        }
        begun = begun || s->begun;
        seat_clear(f, j, s->index);
    }
    c->n_seats = n;
    j->seats = 0;
    j->given = j->made;
    look_at_seats(f, j);
    return begun;
}
