/* front.c: a front of a fleet. The hash of a job in Redis is the truth; messages only tell that it has changed. So a
 * front that missed messages reads the hashes of its jobs again, and after two seconds without news it does the same.
 *
 * front.jobs has the jobs that this front accepted, and those of other fronts that somebody asked this front for. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "../sse.h"
#include "../wire.h"
#include "fleet.h"

enum { BEAT = 2, MOST_STEPS = 1000000 };

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

static job *listed(front *f, const char *id) {
    job *j = f->jobs;
    while (j && strcmp(j->id, id) != 0) j = j->next;
    return j;
}

job *fleet_find_live(front *f, const char *id) {
    job *j = store_find_job(f, id);
    if (!j || (j->state != QUEUED && j->state != RUNNING)) {
        job_free(j);
        return NULL;
    }
    j->painting = j->state == RUNNING;
    j->painted_at = steady_seconds();
    job_append(f, j); /* not attended: the front that accepted it watches its client */
    return j;
}

/* The mutable fields of a job, in the order of the reply. */
enum { STATE, STARTED, COMPLETED_AT, ATTEMPTS, CODE, MESSAGE, FIRST_PICTURE, MUTABLE = FIRST_PICTURE + MOST_PICTURES };

static bool has_text(const redisReply *r) { return r->type == REDIS_REPLY_STRING && r->len; }

/* The pictures that were made since the last look. */
static void take_pictures(front *f, job *j, redisReply **values) {
    while (j->made < j->n) {
        const redisReply *data = values[FIRST_PICTURE + j->made];
        picture *p = &j->pictures[j->made];
        if (!has_text(data) || !record_picture(data->str, data->len, p)) return;
        if (strcmp(p->job, j->id) != 0) {
            json_decref(p->facts);
            return;
        }
        job_has_picture(f, j, steady_seconds() - j->painted_at);
        j->painted_at = steady_seconds();
    }
}

/* Takes over what Redis says of a job. The job may have ended, and be freed, when it returns. */
static void refresh(front *f, job *j) {
    fleet_store *t = fleet_of(f);
    redisReply *r = redis_do(&t->link,
                             "HMGET %sjob:%s state started completed attempts code message picture0 picture1 picture2 "
                             "picture3 picture4 picture5 picture6 picture7 picture8 picture9",
                             t->prefix, j->id);
    if (!r || r->type != REDIS_REPLY_ARRAY || r->elements != MUTABLE) {
        freeReplyObject(r);
        return;
    }
    j->looked = steady_seconds();
    redisReply **v = r->element;
    int state = has_text(v[STATE]) ? atoi(v[STATE]->str) : -1, attempts = atoi(redis_text(v[ATTEMPTS]));
    bool began = state == RUNNING && j->state == QUEUED, back = state == QUEUED && j->state == RUNNING;
    if (began) job_started(f, j);
    if (back) {
        j->state = QUEUED;
        j->painting = false;
        *j->stage = 0;
    }
    if (has_text(v[STARTED])) j->started = record_time(strtod(v[STARTED]->str, NULL));
    bool again = attempts > j->attempts;
    if (again) *j->stage = 0;
    if (attempts > 0) j->attempts = attempts;
    if (began || back || again) job_tell_state(f, j);
    take_pictures(f, j, v);
    if (has_text(v[COMPLETED_AT])) j->completed = record_time(strtod(v[COMPLETED_AT]->str, NULL));
    const char *code = redis_text(v[CODE]);
    char message[sizeof j->message];
    snprintf(message, sizeof message, "%s", redis_text(v[MESSAGE]));
    lz_printable(message);
    if (state == COMPLETED && j->made < j->n) /* Redis, or a worker, is not what it should be */
        job_ended(f, j, FAILED_JOB, "generation_failed", "the store has a picture that cannot be read");
    else if (state == COMPLETED)
        job_ended(f, j, COMPLETED, NULL, "");
    else if (state == FAILED_JOB || state == CANCELLED)
        job_ended(f, j, (job_state)state, constant_code(code), message);
    else if (state < 0)
        job_ended(f, j, FAILED_JOB, "worker_lost", "the store of the fleet has lost the job");
    freeReplyObject(r);
}

static void refresh_all(front *f, double older_than) {
    for (job *j = f->jobs, *next; j; j = next) {
        next = j->next;
        if (j->looked <= older_than) refresh(f, j);
    }
}

/* ---- news -------------------------------------------------------------------------------------------------------- */

static bool is_followed(const front *f, const char *owner) {
    for (const stream *s = f->streams; s; s = s->next)
        if (s->native && !s->job && !s->ended && (s->request->who.admin || strcmp(s->request->who.owner, owner) == 0))
            return true;
    return false;
}

static void state_changed(front *f, const char *id, const char *owner) {
    job *j = listed(f, id);
    if (j)
        refresh(f, j);
    else if (owner && is_followed(f, owner) && (j = fleet_find_live(f, id)))
        job_tell_state(f, j);
}

static void hear(front *f, const json_t *message, buffer *bytes) {
    const char *type = json_string_value(json_object_get(message, "type"));
    const char *id = json_string_value(json_object_get(message, "job"));
    const char *ask = json_string_value(json_object_get(message, "ask"));
    job *j = id && is_id(id) ? listed(f, id) : NULL;
    json_int_t step = json_integer_value(json_object_get(message, "step"));
    json_int_t steps = json_integer_value(json_object_get(message, "steps"));
    const char *stage = json_string_value(json_object_get(message, "stage"));
    if (!type || step < 0 || step > MOST_STEPS || steps < 0 || steps > MOST_STEPS) return;
    if (stage && strlen(stage) >= sizeof j->stage) return; /* a cut character could not be told */
    if (strcmp(type, "state") == 0 && id && is_id(id))
        state_changed(f, id, json_string_value(json_object_get(message, "owner")));
    else if (strcmp(type, "progress") == 0 && j && j->state == RUNNING)
        job_progress(f, j, message);
    else if (strcmp(type, "preview") == 0 && j && j->state == RUNNING && bytes->size)
        job_preview(f, j, message, bytes);
    else if (strcmp(type, "planned") == 0 && ask && is_id(ask))
        plan_arrived(f, ask, json_incref(json_object_get(message, "plan")));
}

/* "message", the channel, the text */
static void take_news(front *f, const redisReply *reply) {
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        strcmp(redis_text(reply->element[0]), "message") != 0 || reply->element[2]->type != REDIS_REPLY_STRING)
        return;
    const redisReply *text = reply->element[2];
    const char *channel = redis_text(reply->element[1]);
    size_t n = strlen(channel);
    buffer bytes = {.data = NULL}, frame = {.data = NULL};
    json_t *message = NULL;
    if (n > 8 && strcmp(channel + n - 8, "previews") == 0) {
        if (text->len > MOST_PREVIEW + 4096 || !buffer_add(&frame, text->str, text->len) ||
            wire_take(&frame, &message, &bytes) != 1)
            message = NULL;
    } else
        message = record_json(text->str, text->len, MOST_NEWS);
    if (message) hear(f, message, &bytes);
    json_decref(message);
    buffer_free(&bytes);
    buffer_free(&frame);
}

static bool subscribe(front *f) {
    fleet_store *t = fleet_of(f);
    char channels[2][96];
    const char *words[] = {"SUBSCRIBE", channels[0], channels[1]};
    snprintf(channels[0], sizeof channels[0], "%snews", t->prefix);
    snprintf(channels[1], sizeof channels[1], "%spreviews", t->prefix);
    if (!redis_send(&t->news, 3, words)) return false;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = f}; /* wakes the loop, and nothing else */
    epoll_ctl(f->epoll, EPOLL_CTL_ADD, t->news.context->fd, &event);
    return true;
}

static void read_news(front *f) {
    fleet_store *t = fleet_of(f);
    redisReply *reply;
    if (!t->news.context && subscribe(f)) refresh_all(f, steady_seconds()); /* what it missed */
    while (t->news.context && redis_read(&t->news, &reply) > 0) {
        take_news(f, reply);
        freeReplyObject(reply);
    }
}

/* ---- every two seconds ------------------------------------------------------------------------------------------- */

static void learn_models(front *f) {
    fleet_store *t = fleet_of(f);
    redisReply *all = redis_do(&t->link, "HGETALL %smodels", t->prefix);
    for (size_t i = 0; all && all->type == REDIS_REPLY_ARRAY && i + 1 < all->elements; i += 2) {
        const char *id = redis_text(all->element[i]);
        const redisReply *text = all->element[i + 1];
        json_t *facts = has_text(text) ? record_json(text->str, text->len, MOST_FACTS) : NULL;
        int k = 0;
        while (k < f->n_models && strcmp(f->models[k].id, id) != 0) k++;
        bool fits = facts && k < SERVE_MODELS && *id && strlen(id) < 64 && is_utf8(id, strlen(id));
        if (fits && k == f->n_models) {
            char *name = strdup(id);
            t->names[k] = name;
            if (name) f->models[f->n_models++] = (model){.id = name};
            fits = name;
        }
        if (fits) {
            model_learn(&f->models[k], facts);
            lz_printable(f->models[k].family); /* where a character was cut */
            lz_printable(f->models[k].device);
        }
        json_decref(facts);
    }
    freeReplyObject(all);
}

static void beat(front *f) {
    fleet_store *t = fleet_of(f);
    redisReply *reply = redis_script(&t->link, script_beat, t->prefix, "si", "", SILENT_WORKER);
    t->workers = reply && reply->type == REDIS_REPLY_INTEGER ? (int)reply->integer : 0;
    freeReplyObject(reply);
    freeReplyObject(redis_do(&t->link, "SET %sfront:%s 1 EX %d", t->prefix, t->id, SILENT_FRONT));
    reply = redis_do(&t->link, "EXISTS %spaused", t->prefix);
    f->paused = reply && reply->type == REDIS_REPLY_INTEGER && reply->integer;
    freeReplyObject(reply);
    learn_models(f);
    f->child.ready = t->workers > 0 && f->n_models;
    f->child.loaded = f->child.ready ? 0 : -1;
}

bool fleet_is_there(front *f) {
    fleet_store *t = fleet_of(f);
    bool there = redis_connect(&t->link);
    if (there != t->was_there) {
        say_line(f, there ? "Redis answers again" : "Redis does not answer: %s", t->link.error);
        t->was_there = there;
    }
    return there;
}

void fleet_tick(front *f) {
    fleet_store *t = fleet_of(f);
    double now = steady_seconds();
    if (now >= t->beat) {
        t->beat = now + BEAT;
        beat(f);
        refresh_all(f, now - BEAT);
    }
    if (fleet_is_there(f)) read_news(f);
    if (!t->link.context) f->child.ready = false;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

bool fleet_tell(front *f, json_t *message) {
    fleet_store *t = fleet_of(f);
    char *text = json_dumps(message, JSON_COMPACT);
    json_decref(message);
    redisReply *reply = text && strlen(text) <= MOST_NEWS ? redis_do(&t->link, "PUBLISH %scontrol %s", t->prefix, text)
                                                          : NULL;
    bool good = reply && reply->type == REDIS_REPLY_INTEGER && reply->integer > 0;
    free(text);
    freeReplyObject(reply);
    return good;
}

void fleet_pause(front *f, bool paused) {
    fleet_store *t = fleet_of(f);
    f->paused = paused;
    freeReplyObject(paused ? redis_do(&t->link, "SET %spaused 1", t->prefix)
                           : redis_do(&t->link, "DEL %spaused", t->prefix));
}

void fleet_first(front *f, job *j) {
    fleet_store *t = fleet_of(f);
    freeReplyObject(redis_script(&t->link, script_first, t->prefix, "s", j->id));
}

int fleet_waiting(front *f, const char *owner) {
    fleet_store *t = fleet_of(f);
    redisReply *reply = redis_do(&t->link, "HGET %swaiting %s", t->prefix, owner ? owner : "*");
    int n = atoi(redis_text(reply));
    freeReplyObject(reply);
    return n > 0 ? n : 0;
}

int fleet_position(front *f, const job *j) {
    fleet_store *t = fleet_of(f);
    int position = 1; /* also of a job that a worker gave back, which has a rank but is not in wait:MODEL */
    redisReply *member = redis_do(&t->link, "HMGET %sjob:%s model rank", t->prefix, j->id);
    bool found = member && member->type == REDIS_REPLY_ARRAY && member->elements == 2;
    if (found && !has_text(member->element[1]))
        position = fleet_waiting(f, NULL) + 1; /* it is not in Redis yet: after all others */
    else if (found) {
        redisReply *rank = redis_do(&t->link, "ZRANK %swait:%s %s", t->prefix, redis_text(member->element[0]),
                                    redis_text(member->element[1]));
        if (rank && rank->type == REDIS_REPLY_INTEGER && rank->integer < 1000000) position = (int)rank->integer + 1;
        freeReplyObject(rank);
    }
    freeReplyObject(member);
    return position;
}

/* The jobs before it are taken to be as large as this one, and the workers share them. */
double fleet_seconds_before(front *f, const job *j) {
    fleet_store *t = fleet_of(f);
    int rounds = t->workers > 0 ? fleet_position(f, j) / t->workers : -1;
    return rounds < 0 ? -1 : rounds * queue_left(f, j);
}
