/* tickets.c: how a worker gets a job. It reads a ticket of one of its models, or takes over one whose worker did not renew
 * it, and draws a job with it. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "crew.h"

enum { CLAIM = 3, IDLE_MS = 15000, BLOCK_MS = 2000, STREAK = 8 };

void crew_give_back(front *f, int index, const char *entry, const char *id) {
    fleet_store *t = fleet_of(f);
    freeReplyObject(redis_script(&t->link, script_give_back, t->prefix, "ssss", f->models[index].id, entry, t->id, id));
}

/* Has this worker the job, or does the child still have a picture of it? */
static bool is_held(const front *f, const char *id) {
    const job *j = f->jobs;
    while (j && strcmp(j->id, id) != 0) j = j->next;
    for (int i = 0; !j && i < f->child.n_seats; i++)
        if (strcmp(f->child.seats[i].job->id, id) == 0) j = f->child.seats[i].job;
    return j;
}

/* The id of the job that a script has returned; "": none. */
static const char *id_of(const redisReply *fields) {
    size_t n = fields && fields->type == REDIS_REPLY_ARRAY ? fields->elements : 0;
    const char *id = n > 1 ? redis_text(fields->element[n - 1]) : "";
    return is_id(id) ? id : "";
}

/* The job that a script has returned is this worker's now. NULL: it cannot be read, or is held already. */
static job *hold(front *f, int index, const redisReply *fields) {
    const char *id = id_of(fields);
    job *j = *id && !is_held(f, id) ? record_job(f, id, fields) : NULL;
    if (!j) return NULL;
    j->model = index;
    job_append(f, j);
    if (j->made < j->n) return j;
    crew_drop(f, j);
    return NULL;
}

static void draw(front *f, int index, const char *entry) {
    crew *c = f->crew;
    fleet_store *t = fleet_of(f);
    redisReply *fields = redis_script(&t->link, script_draw, t->prefix, "sssi", f->models[index].id, entry, t->id,
                                      (int)MOST_DEATHS);
    const char *id = id_of(fields);
    bool unreadable = *id && !is_held(f, id);
    job *j = hold(f, index, fields);
    if (j) snprintf(j->entry, sizeof j->entry, "%s", entry);
    c->streak = index == f->child.loaded ? c->streak + 1 : 0;
    if (unreadable && !j) /* not a job that this version can read */
        freeReplyObject(redis_script(&t->link, script_end, t->prefix, "sisssss", id, (int)FAILED_JOB,
                                     "generation_failed", "the worker cannot read the job", f->models[index].id, entry,
                                     t->id));
    freeReplyObject(fields);
}

static struct crew_kind *find_kind(crew *c, const job *j) {
    for (int i = 0; i < KINDS && i < c->n_kinds; i++)
        if (c->kinds[i].model == j->model && strcmp(c->kinds[i].kind, j->kind) == 0) return &c->kinds[i];
    return NULL;
}

void crew_learn(front *f, const job *j, int most) {
    crew *c = f->crew;
    struct crew_kind *k = find_kind(c, j);
    if (!k) k = &c->kinds[c->n_kinds++ % KINDS];
    *k = (struct crew_kind){.model = j->model, .most = most};
    memcpy(k->kind, j->kind, sizeof k->kind);
}

/* The first picture of a kind is made alone, because the child plans it and tells how many fit. */
void crew_join(front *f, const job *first) {
    crew *c = f->crew;
    fleet_store *t = fleet_of(f);
    char apart[APART * (ID_BYTES + 1) + 1] = "";
    const struct crew_kind *known = find_kind(c, first);
    int room = known ? known->most : 1;
    for (const job *j = f->jobs; j; j = j->next)
        if (j->model == first->model) room -= j->n - j->given;
    for (int i = 0; i < APART && i < c->n_apart; i++)
        snprintf(apart + strlen(apart), sizeof apart - strlen(apart), "%s ", c->apart[i]);
    while (room > 0 && first->attempts <= 1 && *first->kind) {
        redisReply *fields = redis_script(&t->link, script_join, t->prefix, "ssiss", f->models[first->model].id, t->id,
                                          (int)MOST_DEATHS, first->kind, apart);
        const job *j = hold(f, first->model, fields);
        freeReplyObject(fields);
        if (!j) return;
        room -= j->n - j->given;
    }
}

void crew_put_back(front *f, job *j) {
    crew *c = f->crew;
    fleet_store *t = fleet_of(f);
    redisReply *reply = redis_script(&t->link, script_put_back, t->prefix, "ssss", f->models[j->model].id, j->entry,
                                     t->id, j->id);
    if (!reply) return; /* Redis is away: it is made here */
    freeReplyObject(reply);
    memcpy(c->apart[c->n_apart++ % APART], j->id, ID_BYTES);
    crew_drop(f, j);
}

job *crew_next(front *f) {
    job *j = f->jobs;
    while (j && (j->given >= j->n || j->told < j->made)) j = j->next;
    return j;
}

static int model_of_stream(front *f, const char *key) {
    fleet_store *t = fleet_of(f);
    for (int i = 0; i < f->n_models; i++) {
        char name[200];
        snprintf(name, sizeof name, "%sjobs:%s", t->prefix, f->models[i].id);
        if (strcmp(key, name) == 0) return i;
    }
    return -1;
}

/* Has this worker the ticket already? Redis was away for longer than a lease then. */
static bool has_ticket(const front *f, int index, const char *entry) {
    const job *j = f->jobs;
    while (j && (j->model != index || strcmp(j->entry, entry) != 0)) j = j->next;
    return j;
}

/* The entries of a stream: each is an id and its fields. The first is drawn with, unless there is a job; others, and all
 * while draining, go back. */
static void take_entries(front *f, int index, const redisReply *entries) {
    if (index < 0 || !entries || entries->type != REDIS_REPLY_ARRAY) return;
    for (size_t i = 0; i < entries->elements; i++) {
        const redisReply *entry = entries->element[i];
        if (entry->type != REDIS_REPLY_ARRAY || !entry->elements) continue;
        const char *id = redis_text(entry->element[0]);
        if (!*id || strlen(id) >= ENTRY || has_ticket(f, index, id)) continue;
        if (crew_next(f) || f->draining)
            crew_give_back(f, index, id, "");
        else
            draw(f, index, id);
    }
}

bool crew_make_groups(front *f) {
    fleet_store *t = fleet_of(f);
    bool good = true;
    for (int i = 0; i < f->n_models; i++) {
        redisReply *reply = redis_do(&t->link, "XGROUP CREATE %sjobs:%s workers 0 MKSTREAM", t->prefix,
                                     f->models[i].id);
        good = good && (reply || strncmp(t->link.error, "BUSYGROUP", 9) == 0);
        freeReplyObject(reply);
    }
    return good;
}

/* Tickets whose worker did not renew them. */
static void claim(front *f) {
    fleet_store *t = fleet_of(f);
    for (int i = 0; i < f->n_models && !crew_next(f); i++) {
        redisReply *r = redis_do(&t->link, "XAUTOCLAIM %sjobs:%s workers %s %d 0 COUNT 1", t->prefix, f->models[i].id,
                                 t->id, IDLE_MS);
        if (r && r->type == REDIS_REPLY_ARRAY && r->elements > 1) take_entries(f, i, r->element[1]);
        freeReplyObject(r);
    }
}

/* Asks for a ticket: of the loaded model, unless it had eight jobs in a row; then of any. */
static void ask_for_ticket(front *f) {
    crew *c = f->crew;
    fleet_store *t = fleet_of(f);
    char keys[SERVE_MODELS][200], block[16];
    const char *words[10 + 2 * SERVE_MODELS] = {"XREADGROUP", "GROUP", "workers", t->id, "COUNT", "1"};
    int n = 6, loaded = f->child.loaded, first = loaded >= 0 ? loaded + (c->streak >= STREAK) : 0;
    if (f->n_models > 1 && c->streak < STREAK && loaded >= 0) { /* one that waits for the loaded model */
        redisReply *r = redis_do(&t->link, "XREADGROUP GROUP workers %s COUNT 1 STREAMS %sjobs:%s >", t->id, t->prefix,
                                 f->models[loaded].id);
        if (r && r->type == REDIS_REPLY_ARRAY && r->elements == 1 && r->element[0]->type == REDIS_REPLY_ARRAY &&
            r->element[0]->elements == 2)
            take_entries(f, loaded, r->element[0]->element[1]);
        freeReplyObject(r);
        if (crew_next(f)) return;
    }
    snprintf(block, sizeof block, "%d", BLOCK_MS);
    words[n++] = "BLOCK";
    words[n++] = block;
    words[n++] = "STREAMS";
    for (int i = 0; i < f->n_models; i++) {
        snprintf(keys[i], sizeof keys[i], "%sjobs:%s", t->prefix, f->models[(first + i) % f->n_models].id);
        words[n + i] = keys[i];
        words[n + f->n_models + i] = ">";
    }
    c->reading = redis_send(&c->take, n + 2 * f->n_models, words);
    if (!c->reading) return;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = f};
    epoll_ctl(f->epoll, EPOLL_CTL_ADD, c->take.context->fd, &event); /* fails if it is there already */
}

void crew_read_tickets(front *f) {
    crew *c = f->crew;
    redisReply *r;
    int got = c->reading ? redis_read(&c->take, &r) : 0;
    if (got < 0) c->reading = false;
    if (got <= 0) return;
    c->reading = false;
    if (r->type == REDIS_REPLY_ERROR) { /* the group is gone: Redis lost its data */
        crew_make_groups(f);
        c->take.again = steady_seconds() + 0.5;
    }
    for (size_t i = 0; r->type == REDIS_REPLY_ARRAY && i < r->elements; i++) {
        const redisReply *one = r->element[i]; /* the name of a stream, and its entries */
        if (one->type == REDIS_REPLY_ARRAY && one->elements == 2)
            take_entries(f, model_of_stream(f, redis_text(one->element[0])), one->element[1]);
    }
    freeReplyObject(r);
}

/* Is there a picture that Redis does not know of yet? */
static bool has_untold(const front *f) {
    const job *j = f->jobs;
    while (j && j->told == j->made) j = j->next;
    return j;
}

void crew_find_work(front *f) {
    crew *c = f->crew;
    fleet_store *t = fleet_of(f);
    double now = steady_seconds();
    bool wanted = f->child.ready && f->child.free && !f->draining && f->child.n_seats < MOST_SEATS;
    if (!wanted || c->reading || has_untold(f) || crew_next(f) || !redis_connect(&t->link)) return;
    redisReply *r = redis_do(&t->link, "EXISTS %spaused", t->prefix);
    bool paused = !r || r->type != REDIS_REPLY_INTEGER || r->integer;
    freeReplyObject(r);
    if (paused) return;
    if (now - c->claimed > CLAIM) {
        c->claimed = now;
        claim(f);
    }
    if (!crew_next(f)) ask_for_ticket(f);
}
