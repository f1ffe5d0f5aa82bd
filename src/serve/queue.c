/* queue.c: the order of jobs. A picture is the unit: the owners of waiting jobs take turns, picture by picture, and the
 * jobs of one owner come in the order of their priority and arrival. A job whose model is loaded may go first, for at
 * most 8 pictures or 60 seconds, because loading a model takes time. Pictures that may be made together with the first
 * one join it in the same order; each of them counts as a turn of its owner. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "store.h"

enum { STREAK = 8, STREAK_SECONDS = 60 };

static bool waits(const job *j) { return (j->state == QUEUED || j->state == RUNNING) && !j->over && j->given < j->n; }

static bool has_job(const front *f, const char *owner) {
    for (const job *j = f->jobs; j; j = j->next)
        if (strcmp(j->owner, owner) == 0) return true;
    return false;
}

static turn *find_turn(front *f, const char *owner) {
    for (int i = 0; i < OWNERS; i++)
        if (strcmp(f->turns[i].owner, owner) == 0) return &f->turns[i];
    return NULL;
}

/* The turn of an owner. If the table is full, the owner that was served longest ago and has no job is forgotten. */
static turn *turn_of(front *f, const char *owner) {
    turn *oldest = NULL, *found = find_turn(f, owner);
    if (found) return found;
    for (int i = 0; i < OWNERS; i++) {
        turn *t = &f->turns[i];
        bool is_older = !oldest || !*t->owner || (*oldest->owner && t->served < oldest->served);
        if (is_older && (!*t->owner || !has_job(f, t->owner))) oldest = t;
    }
    if (!oldest) oldest = &f->turns[0]; /* all of them have jobs */
    *oldest = (turn){.served = 0};
    memcpy(oldest->owner, owner, strnlen(owner, OWNER - 1));
    return oldest;
}

int queue_preferred(front *f, const char *owner) {
    const turn *t = find_turn(f, owner);
    return t && t->model ? t->model - 1 : f->preferred;
}

void queue_prefer(front *f, const char *owner, int index) {
    if (owner) {
        turn_of(f, owner)->model = index + 1;
        return;
    }
    f->preferred = index;
    for (int i = 0; i < OWNERS; i++) f->turns[i].model = 0;
}

static int64_t number_of(const job *j, const char *key, int64_t otherwise) {
    int64_t n = json_integer_value(json_object_get(j->settings, key));
    return n ? n : otherwise;
}

void queue_kind(const front *f, const job *j, char to[65]) {
    static const char *const same[] = {"sampler", "schedule", "shift", "strength"};
    const json_t *a = j->settings;
    model none = {.width = 0};
    const model *m = j->model >= 0 ? &f->models[j->model] : &none;
    json_t *kind = json_pack("[I, I, I, I, b]", (json_int_t)number_of(j, "width", m->width),
                             (json_int_t)number_of(j, "height", m->height), (json_int_t)number_of(j, "steps", m->steps),
                             (json_int_t)json_array_size(json_object_get(a, "images")),
                             json_object_get(a, "mask") != NULL);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        json_t *value = json_object_get(a, same[i]);
        json_array_append(kind, value ? value : json_null());
    }
    char *text = kind ? json_dumps(kind, JSON_COMPACT) : NULL;
    hash_hex(text ? text : "", text ? strlen(text) : 0, to);
    free(text);
    json_decref(kind);
}

/* May pictures of both be made together? The worker knows for certain. A job that has lost a worker is made alone. */
static bool look_alike(const front *f, const job *a, const job *b) {
    char kinds[2][65];
    if (a->model != b->model || a->attempts > 1 || b->attempts > 1) return false;
    if (a == b) return true;
    queue_kind(f, a, kinds[0]);
    queue_kind(f, b, kinds[1]);
    return strcmp(kinds[0], kinds[1]) == 0;
}

/* Does a come before b, which is older, or NULL? */
static bool comes_before(front *f, const job *a, const job *b) {
    if (!b) return true;
    if (strcmp(a->owner, b->owner) == 0) return a->priority > b->priority;
    return turn_of(f, a->owner)->served < turn_of(f, b->owner)->served;
}

/* The next job; only of this model, unless it is negative; only one that may join `first`, unless that is NULL. */
static job *choose(front *f, int index, const job *first) {
    job *best = NULL;
    for (job *j = f->jobs; j; j = j->next) { /* the oldest come first */
        if (!waits(j) || (index >= 0 && j->model != index) || !comes_before(f, j, best)) continue;
        if (!first || look_alike(f, first, j)) best = j;
    }
    return best;
}

job *queue_next(front *f) {
    job *due = choose(f, -1, NULL), *loaded = f->child.loaded >= 0 ? choose(f, f->child.loaded, NULL) : NULL;
    double now = steady_seconds();
    bool other = due && loaded && due->model >= 0 && !model_is_loaded(f, due->model);
    if (!other) f->streak = 0;
    if (other && !f->streak) f->streak_since = now;
    if (other && ++f->streak <= STREAK && now - f->streak_since < STREAK_SECONDS)
        due = loaded;
    else if (other)
        f->streak = 0;
    if (due) turn_of(f, due->owner)->served = ++f->clock;
    return due;
}

job *queue_join(front *f, const job *first) {
    if (f->streak >= STREAK) return NULL;
    job *j = choose(f, first->model, first);
    if (!j) return NULL;
    if (f->streak) f->streak++;
    turn_of(f, j->owner)->served = ++f->clock;
    return j;
}

int local_waiting(front *f, const char *owner) {
    int n = 0;
    for (const job *j = f->jobs; j; j = j->next) n += j->state == QUEUED && (!owner || strcmp(j->owner, owner) == 0);
    return n;
}

/* Fills rank, served and place of the jobs that wait: the number of jobs of the same owner before it, when the owner was
 * served last, and the place of the owner's oldest job. */
static void rank_all(front *f) {
    int place = 0;
    for (int i = 0; i < OWNERS; i++) f->turns[i].waiting = f->turns[i].place = 0;
    for (const job *j = f->jobs; j; j = j->next) {
        turn *t = j->state == QUEUED ? turn_of(f, j->owner) : NULL;
        if (t && !t->place) t->place = ++place;
    }
    for (int priority = 1; priority >= -1; priority--)
        for (job *j = f->jobs; j; j = j->next) {
            if (j->state != QUEUED || j->priority != priority) continue;
            turn *t = turn_of(f, j->owner);
            j->rank = t->waiting++;
            j->served = t->served;
            j->place = t->place;
        }
}

/* Owners take turns: the first jobs of all owners come before the second ones. */
static bool is_ahead(const job *k, const job *j) {
    if (k->rank != j->rank) return k->rank < j->rank;
    return k->served != j->served ? k->served < j->served : k->place < j->place;
}

int local_position(front *f, const job *j) {
    int position = 1;
    rank_all(f);
    for (const job *k = f->jobs; k; k = k->next) position += k != j && k->state == QUEUED && is_ahead(k, j);
    return position;
}

void queue_first(front *f, job *j) {
    job **from = &f->jobs, **to = &f->jobs;
    while (*from && *from != j) from = &(*from)->next;
    while (*to && *to != j && ((*to)->state != QUEUED || strcmp((*to)->owner, j->owner) != 0)) to = &(*to)->next;
    if (!*from || *to == j) return;
    *from = j->next;
    if (f->jobs_end == &j->next) f->jobs_end = from;
    j->next = *to;
    *to = j;
}

/* Pixels times steps of a picture; the text and the decoding count as a step. */
static double work(int64_t width, int64_t height, int64_t steps) {
    return (double)width * (double)height * (double)(steps + 1);
}

static double work_of(const front *f, const job *j) {
    const model *m = j->model >= 0 ? &f->models[j->model] : NULL;
    int64_t width = json_integer_value(json_object_get(j->settings, "width"));
    int64_t height = json_integer_value(json_object_get(j->settings, "height"));
    int64_t steps = json_integer_value(json_object_get(j->settings, "steps"));
    if (!width) width = m ? m->width : 1024;
    if (!height) height = m ? m->height : 1024;
    if (!steps) steps = m ? m->steps : 4;
    return work(width, height, steps);
}

/* Seconds for a pixel and step, measured or else estimated. */
static double pace_of(const front *f, int index) {
    if (index < 0) return 0;
    return f->models[index].pace > 0 ? f->models[index].pace : f->models[index].guess;
}

/* A part of a picture's time does not depend on its size and steps, so a picture counts less, the smaller it is compared
 * with those from which the pace is known, or else with a usual one, for which it was estimated. */
void queue_learn(front *f, const job *j, double seconds) {
    if (j->model < 0) return;
    model *m = &f->models[j->model];
    double known = pace_of(f, j->model), now = work_of(f, j), before = m->learned;
    if (!(before > 0) && m->guess > 0) before = work(m->width, m->height, m->steps);
    double share = before > 0 ? fmin((m->measured ? 0.3 : 1) * now / before, 1) : 1;
    m->measured = m->measured || share > 0.3; /* by more than tiny pictures */
    m->pace = known + share * (seconds / now - known);
    m->learned = before + share * (now - before);
}

void queue_estimate(front *f, int index, int64_t width, int64_t height, int steps, double seconds) {
    f->models[index].guess = seconds / work(width, height, steps);
}

double queue_guess(const front *f, int index, int64_t width, int64_t height, int steps) {
    double pace = pace_of(f, index);
    return pace > 0 ? pace * work(width, height, steps) : -1;
}

/* Seconds of one picture of a job whose pace is known. */
static double seconds_of(const front *f, const job *j) { return pace_of(f, j->model) * work_of(f, j); }

/* Steps count as in work(): the text and the decoding are half a step each. */
void queue_progress(front *f, const seat *s, const json_t *facts) {
    const char *stage = json_string_value(json_object_get(facts, "stage"));
    double step = json_number_value(json_object_get(facts, "step"));
    double steps = json_number_value(json_object_get(facts, "steps"));
    double done = json_number_value(json_object_get(facts, "done"));
    bool decodes = stage && strcmp(stage, "decode") == 0, denoises = stage && strcmp(stage, "denoise") == 0;
    if (s->pass != f->child.pass || !(decodes || denoises)) return;
    f->child.share = (0.5 + (decodes ? steps + 0.5 * done : step + done)) / (steps + 1);
}

/* Seconds until the pictures of the worker's last pass are done: by the pace, and after a tenth of them by the time that
 * this took. They are made together, so one of them tells for all. Pictures of earlier passes are only being written. */
static double pass_left(const front *f) {
    const child *c = &f->child;
    double all = 0, spent = steady_seconds() - c->begun;
    for (int i = 0; i < c->n_seats; i++)
        if (c->seats[i].begun && c->seats[i].pass == c->pass) all += seconds_of(f, c->seats[i].job);
    if (!(all > 0)) return 0;
    return c->share > 0.1 ? spent * fmax(1 - c->share, 0) / c->share : fmax(all - spent, 0.05 * all);
}

/* Pictures of the job that the worker is making or writing; in its last pass, or in any. */
static int being_made(const front *f, const job *j, bool last) {
    int n = 0;
    for (int i = 0; i < f->child.n_seats; i++) {
        const seat *s = &f->child.seats[i];
        n += s->begun && s->job == j && (!last || s->pass == f->child.pass);
    }
    return n;
}

double queue_left(front *f, const job *j) {
    int own = being_made(f, j, false);
    double one = seconds_of(f, j);
    if (!(one > 0)) return -1;
    if (own) return (being_made(f, j, true) ? pass_left(f) : 0) + one * (j->n - j->made - own);
    double all = one * (j->n - j->made), spent = j->painting ? steady_seconds() - j->painted_at : 0; /* in a fleet */
    return fmax(all - spent, 0.05 * all);
}

double local_seconds_before(front *f, const job *j) {
    double all = pass_left(f);
    rank_all(f);
    for (const job *k = f->jobs; k; k = k->next) {
        if (k == j || (k->state == QUEUED && !is_ahead(k, j))) continue;
        double one = seconds_of(f, k);
        if (!(one > 0)) return -1;
        all += one * (k->n - k->made - being_made(f, k, false));
    }
    return all;
}

/* ---- of any kind of store ---------------------------------------------------------------------------------------- */

int queue_waiting(front *f, const char *owner) { return f->store->kind->waiting(f, owner); }
int queue_position(front *f, const job *j) { return j->state == QUEUED ? f->store->kind->position(f, j) : 0; }
void queue_pause(front *f, bool paused) { f->store->kind->pause(f, paused); }

double queue_seconds(front *f, const job *j) {
    double all = queue_left(f, j);
    if (all < 0 || j->state != QUEUED) return all;
    double before = f->store->kind->seconds_before(f, j);
    return before < 0 ? -1 : all + before;
}

double queue_told(front *f, const job *j) { return f->paused && j->state == QUEUED ? -1 : queue_seconds(f, j); }
