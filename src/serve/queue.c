/* queue.c: the order of jobs. A picture is the unit: the owners of waiting jobs take turns, picture by picture, and the
 * jobs of one owner come in the order of their priority and arrival. A job whose model is loaded may go first, for at
 * most 8 pictures or 60 seconds, because loading a model takes time. */
#include <math.h>
#include <string.h>

#include "store.h"

enum { STREAK = 8, STREAK_SECONDS = 60 };

static bool waits(const job *j) { return j->state == QUEUED || (j->state == RUNNING && !j->painting && !j->over); }

/* The turn of an owner. If the table is full, the owner that was served longest ago and has no job is forgotten. */
static turn *turn_of(front *f, const char *owner) {
    turn *oldest = &f->turns[0];
    for (int i = 0; i < OWNERS; i++) {
        turn *t = &f->turns[i];
        if (strcmp(t->owner, owner) == 0) return t;
        if (!*t->owner || (*oldest->owner && t->served < oldest->served)) oldest = t;
    }
    *oldest = (turn){.served = 0};
    memcpy(oldest->owner, owner, strnlen(owner, OWNER - 1));
    return oldest;
}

int queue_preferred(front *f, const char *owner) { return turn_of(f, owner)->model; }
void queue_prefer(front *f, const char *owner, int index) { turn_of(f, owner)->model = index; }

/* Does a come before b, of the same owner? */
static bool is_before(const job *a, const job *b) { return !b || a->priority > b->priority; }

/* The next job; only of this model, unless it is negative. */
static job *choose(front *f, int index) {
    job *best = NULL;
    for (job *j = f->jobs; j; j = j->next) { /* the oldest come first */
        if (!waits(j) || (index >= 0 && j->model != index)) continue;
        if (!best) {
            best = j;
            continue;
        }
        uint64_t mine = turn_of(f, j->owner)->served, other = turn_of(f, best->owner)->served;
        bool same = strcmp(j->owner, best->owner) == 0;
        if (same ? is_before(j, best) : mine < other) best = j;
    }
    return best;
}

job *queue_next(front *f) {
    job *due = choose(f, -1), *loaded = f->child.loaded >= 0 ? choose(f, f->child.loaded) : NULL;
    double now = steady_seconds();
    bool other = due && loaded && due->model != f->child.loaded;
    if (!other) f->streak = 0;
    if (other && !f->streak) f->streak_since = now;
    if (other && ++f->streak <= STREAK && now - f->streak_since < STREAK_SECONDS)
        due = loaded;
    else if (other)
        f->streak = 0;
    if (due) turn_of(f, due->owner)->served = ++f->clock;
    return due;
}

int local_waiting(front *f, const char *owner) {
    int n = 0;
    for (const job *j = f->jobs; j; j = j->next) n += j->state == QUEUED && (!owner || strcmp(j->owner, owner) == 0);
    return n;
}

/* Fills rank and served of the jobs that wait: the number of jobs of the same owner before it, and when the owner was
 * served last. */
static void rank_all(front *f) {
    for (int i = 0; i < OWNERS; i++) f->turns[i].waiting = 0;
    for (job *j = f->jobs; j; j = j->next) {
        if (j->state != QUEUED) continue;
        turn *t = turn_of(f, j->owner);
        j->rank = t->waiting++;
        j->served = t->served;
    }
}

/* Owners take turns: the first jobs of all owners come before the second ones. */
static bool is_ahead(const job *k, const job *j) {
    if (k->rank != j->rank) return k->rank < j->rank;
    return k->served != j->served ? k->served < j->served : k->queued_at < j->queued_at;
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

/* Pixels times steps of a picture. */
static double work_of(const front *f, const job *j) {
    const model *m = j->model >= 0 ? &f->models[j->model] : NULL;
    int64_t width = json_integer_value(json_object_get(j->settings, "width"));
    int64_t height = json_integer_value(json_object_get(j->settings, "height"));
    int64_t steps = json_integer_value(json_object_get(j->settings, "steps"));
    if (!width) width = m ? m->width : 1024;
    if (!height) height = m ? m->height : 1024;
    if (!steps) steps = m ? m->steps : 4;
    return (double)width * (double)height * (double)(steps + 1); /* the text and the decoding count as a step */
}

void queue_learn(front *f, const job *j, double seconds) {
    if (j->model < 0) return;
    double pace = seconds / work_of(f, j), *known = &f->models[j->model].pace;
    *known = *known > 0 ? 0.7 * *known + 0.3 * pace : pace;
}

void queue_estimate(front *f, int index, int64_t width, int64_t height, int steps, double seconds) {
    f->models[index].guess = seconds / ((double)width * (double)height * (steps + 1));
}

/* Seconds for a pixel and step, measured or else estimated. */
static double pace_of(const front *f, int index) {
    if (index < 0) return 0;
    return f->models[index].pace > 0 ? f->models[index].pace : f->models[index].guess;
}

double queue_guess(const front *f, int index, int64_t width, int64_t height, int steps) {
    double pace = pace_of(f, index);
    return pace > 0 ? pace * (double)width * (double)height * (steps + 1) : -1;
}

double queue_left(front *f, const job *j) {
    double pace = pace_of(f, j->model), all = pace * work_of(f, j) * (j->n - j->made);
    if (!(pace > 0)) return -1;
    double spent = j->painting ? steady_seconds() - j->painted_at : 0;
    return fmax(all - spent, 0.05 * all);
}

double local_seconds_before(front *f, const job *j) {
    double all = 0;
    rank_all(f);
    for (const job *k = f->jobs; k; k = k->next) {
        if (k == j || (k->state == QUEUED && !is_ahead(k, j))) continue;
        double other = queue_left(f, k);
        if (other < 0) return -1;
        all += other;
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
