/* worker.c: a worker of a fleet. This process takes jobs from Redis, renews its leases, and puts pictures in their
 * place. A child process (child.c, ../worker.c) holds the model and makes the pictures, as in a server without a fleet.
 *
 * A job is this worker's from script_draw or script_join until Redis says that it is not: because it ended, because it
 * was cancelled, or because the lease was not renewed for 15 seconds and another worker took it over. While Redis is away
 * the worker goes on with its pictures, and tells of them when Redis is back. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../wire.h"
#include "crew.h"

enum { RENEW = 2, TIDY = 60 };

static void publish(front *f, const char *channel, const void *data, size_t size) {
    fleet_store *t = fleet_of(f);
    if (t->link.context) freeReplyObject(redis_do(&t->link, "PUBLISH %s%s %b", t->prefix, channel, data, size));
}

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

void crew_drop(front *f, job *j) {
    job_unlink(f, j);
    if (!j->seats) {
        job_free(j);
        return;
    }
    j->over = true; /* it is freed with its last seat */
    seats_cancel(f, j);
}

/* Ends the job in Redis. While Redis is away, the lease runs out and another worker tries the job. */
static void fail(front *f, job *j, const char *code, const char *message) {
    fleet_store *t = fleet_of(f);
    freeReplyObject(redis_script(&t->link, script_end, t->prefix, "sisssss", j->id, (int)FAILED_JOB, code, message,
                                 f->models[j->model].id, j->entry, t->id));
    crew_drop(f, j);
}

/* The name of a picture depends on the job, the seed and the settings alone, so each attempt writes the same file. */
static void name_picture(const job *j, picture *p) {
    char hash[65], *settings = json_dumps(j->settings, JSON_COMPACT | JSON_SORT_KEYS);
    buffer text = {.data = NULL};
    buffer_print(&text, "%s %d %lld %s", j->id, p->index, (long long)p->seed, settings ? settings : "");
    hash_hex(text.data ? text.data : "", text.size, hash);
    snprintf(p->id, sizeof p->id, "pic_%.32s", hash);
    buffer_free(&text);
    free(settings);
}

/* Gives the child the next picture, and those that can be made together with it, also of jobs that wait in Redis. */
static void give(front *f) {
    bool wanted = f->child.ready && f->child.free && f->child.n_seats < MOST_SEATS && !f->draining;
    job *first = wanted ? crew_next(f) : NULL;
    if (!first) return;
    crew_join(f, first);
    if (!seats_give(f, first)) fail(f, first, "out_of_memory", "out of memory");
}

/* Redis is told of the pictures of a job, again until it answers. The job may have ended, and be freed, when it returns. */
static void report(front *f, job *j) {
    fleet_store *t = fleet_of(f);
    while (j->told < j->made) {
        const picture *p = &j->pictures[j->told];
        json_t *data = picture_data(p);
        char *text = data ? json_dumps(data, JSON_COMPACT) : NULL;
        json_decref(data);
        redisReply *reply = text
                                ? redis_script(&t->link, script_finish, t->prefix, "siss", j->id, p->index, p->id, text)
                                : NULL;
        free(text);
        if (!reply) return;
        long long made = reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;
        freeReplyObject(reply);
        j->told++;
        if (made < 0 || made >= j->n || made < j->told) {
            crew_drop(f, j);
            return;
        }
    }
}

static void report_all(front *f) {
    for (job *j = f->jobs, *next; j; j = next) {
        next = j->next;
        report(f, j);
    }
}

static void picture_begun(front *f, seat *s, int most) {
    s->begun = true;
    if (most > 0) crew_learn(f, s->job, most);
}

static void picture_done(front *f, seat *s, const json_t *facts) {
    job *j = s->job;
    int index = s->index;
    picture *p = &j->pictures[index];
    f->child.deaths = 0;
    if (!seat_take_back(f, s)) return;
    p->width = json_integer_value(json_object_get(facts, "width"));
    p->height = json_integer_value(json_object_get(facts, "height"));
    p->created = wall_seconds();
    p->facts = json_copy((json_t *)facts);
    for (const char *const *key = (const char *const[]){"type", "job", "index", "seconds", NULL}; *key; key++)
        json_object_del(p->facts, *key);
    bool stored = index == j->made && p->facts && files_take_thumb(f, p) && files_take(f, p);
    if (stored) p->bytes = file_bytes(f, p);
    if (!stored || !p->bytes) {
        json_decref(p->facts);
        seat_clear(f, j, index);
        fail(f, j, "insufficient_storage", "the picture cannot be stored");
        return;
    }
    j->made++;
    report(f, j);
}

static void picture_refused(front *f, seat *s, const char *code, const char *message) {
    job *failed = seat_refused(f, s, code);
    if (failed) fail(f, failed, constant_code(code), message);
}

/* The picture could not be made together with those before it. A job that has not begun waits again in Redis, so that
 * other workers can take it. */
static void picture_later(front *f, seat *s) {
    job *j = s->job;
    int index = s->index;
    if (!seat_take_back(f, s)) return;
    if (j->given > index) j->given = index;
    if (!j->seats && !j->made) crew_put_back(f, j);
}

/* ---- the child --------------------------------------------------------------------------------------------------- */

static void announce(front *f, const json_t *message) {
    fleet_store *t = fleet_of(f);
    int index = (int)json_integer_value(json_object_get(message, "index"));
    char *facts = json_dumps(json_object_get(message, "facts"), JSON_COMPACT);
    if (!facts || index < 0 || index >= f->n_models) {
        free(facts);
        return;
    }
    free(f->crew->facts[index]);
    f->crew->facts[index] = facts;
    freeReplyObject(redis_do(&t->link, "HSET %smodels %s %s", t->prefix, f->models[index].id, facts));
}

static void forward(front *f, const json_t *message) {
    char *text = json_dumps(message, JSON_COMPACT | JSON_REAL_PRECISION(6));
    if (text && strlen(text) <= MOST_NEWS) publish(f, "news", text, strlen(text));
    free(text);
}

static void heard(front *f, json_t *message, buffer *bytes) {
    const char *type = json_string_value(json_object_get(message, "type"));
    const char *id = json_string_value(json_object_get(message, "job"));
    const char *code = json_string_value(json_object_get(message, "code"));
    const char *text = json_string_value(json_object_get(message, "message"));
    seat *s = seat_find(f, id, (int)json_integer_value(json_object_get(message, "index")));
    bool shown = s && !s->job->over && s->index == s->job->made; /* of several pictures of a job, the first is told */
    if (strcmp(type, "model") == 0)
        announce(f, message);
    else if (strcmp(type, "planned") == 0 || (strcmp(type, "progress") == 0 && shown))
        forward(f, message);
    else if (strcmp(type, "preview") == 0 && shown && bytes->size <= MOST_PREVIEW) {
        buffer frame = {.data = NULL};
        if (wire_add(&frame, json_incref(message), bytes->data, bytes->size))
            publish(f, "previews", frame.data, frame.size);
        buffer_free(&frame);
    } else if (strcmp(type, "begun") == 0 && s)
        picture_begun(f, s, (int)json_integer_value(json_object_get(message, "most")));
    else if (strcmp(type, "later") == 0 && s)
        picture_later(f, s);
    else if (strcmp(type, "done") == 0 && s)
        picture_done(f, s, message);
    else if (strcmp(type, "failed") == 0 && s)
        picture_refused(f, s, code ? code : "generation_failed", text ? text : "");
}

/* The child has ended. A job that was begun has lost an attempt, and is made alone from then on (queue.c). */
static void job_lost(front *f, job *j) {
    fleet_store *t = fleet_of(f);
    bool begun = seats_lose(f, j);
    if (j->over) {
        job_free(j);
        return;
    }
    if (!begun) return;
    redisReply *reply = redis_script(&t->link, script_lost, t->prefix, "sisss", j->id, (int)MOST_DEATHS,
                                     f->models[j->model].id, j->entry, t->id);
    bool again = reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
    freeReplyObject(reply);
    j->attempts++;
    if (!again && j->told == j->made) crew_drop(f, j);
}

static void lost(front *f) {
    while (f->child.n_seats) job_lost(f, f->child.seats[0].job);
    f->child.cancel = 0;
}

/* ---- control ----------------------------------------------------------------------------------------------------- */

/* A question goes to all workers; the first to claim it answers. */
static void answer_plan(front *f, json_t *message) {
    fleet_store *t = fleet_of(f);
    json_t *settings = json_object_get(message, "settings");
    const char *ask = json_string_value(json_object_get(message, "ask"));
    const char *name = json_string_value(json_object_get(settings, "model"));
    int index = 0;
    while (name && index < f->n_models && strcmp(f->models[index].id, name) != 0) index++;
    if (!ask || !is_id(ask) || !name || index == f->n_models || !f->child.ready) return;
    redisReply *won = redis_do(&t->link, "SET %sask:%s 1 NX EX 60", t->prefix, ask);
    if (won && won->type == REDIS_REPLY_STATUS)
        child_tell(f,
                   json_pack("{s:s, s:s, s:i, s:O}", "type", "plan", "ask", ask, "model", index, "settings", settings));
    freeReplyObject(won);
}

static void take_control(front *f, const redisReply *reply) {
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        strcmp(redis_text(reply->element[0]), "message") != 0 || reply->element[2]->type != REDIS_REPLY_STRING)
        return;
    json_t *message = record_json(reply->element[2]->str, reply->element[2]->len, MOST_NEWS);
    const char *type = json_string_value(json_object_get(message, "type"));
    const char *id = json_string_value(json_object_get(message, "job"));
    job *j = f->jobs;
    while (j && (!id || strcmp(id, j->id) != 0)) j = j->next;
    if (type && strcmp(type, "cancel") == 0 && j)
        crew_drop(f, j);
    else if (type && strcmp(type, "plan") == 0)
        answer_plan(f, message);
    json_decref(message);
}

void crew_read_control(front *f) {
    crew *c = f->crew;
    fleet_store *t = fleet_of(f);
    redisReply *reply;
    if (!c->control.context) {
        char channel[96];
        const char *words[] = {"SUBSCRIBE", channel};
        snprintf(channel, sizeof channel, "%scontrol", t->prefix);
        if (!redis_send(&c->control, 2, words)) return;
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = f};
        epoll_ctl(f->epoll, EPOLL_CTL_ADD, c->control.context->fd, &event);
        c->renewed = 0; /* a cancel may have been missed: ask now */
        c->tidied = 0;  /* Redis may have been restarted */
    }
    while (c->control.context && redis_read(&c->control, &reply) > 0) {
        take_control(f, reply);
        freeReplyObject(reply);
    }
}

/* ---- timers ------------------------------------------------------------------------------------------------------ */

/* Renews the lease of a job. Returns false if Redis says that the job is not this worker's any more. */
static bool renew_lease(front *f, const job *j) {
    fleet_store *t = fleet_of(f);
    redisReply *r = redis_script(&t->link, script_renew, t->prefix, "ssss", f->models[j->model].id, j->entry, t->id,
                                 j->id);
    bool gone = r && r->type == REDIS_REPLY_INTEGER && r->integer == 0;
    freeReplyObject(r);
    return !gone;
}

/* Renews the leases, if it is time. may_drop: jobs that are not this worker's any more are dropped, unless Redis is still
 * to be told of a picture. */
static void renew(front *f, bool may_drop) {
    crew *c = f->crew;
    double now = steady_seconds();
    if (now - c->renewed < RENEW || !redis_connect(&fleet_of(f)->link)) return;
    c->renewed = now;
    for (job *j = f->jobs, *next; j; j = next) {
        next = j->next;
        if (!renew_lease(f, j) && may_drop && j->told == j->made) crew_drop(f, j);
    }
}

static void tell_presence(front *f) {
    crew *c = f->crew;
    fleet_store *t = fleet_of(f);
    double now = steady_seconds();
    if (!f->child.ready || now - c->beaten <= RENEW) return;
    c->beaten = now;
    freeReplyObject(redis_script(&t->link, script_beat, t->prefix, "si", t->id, SILENT_WORKER));
}

/* While a far file is read or written, which may take longer than a lease. Jobs stay in memory here even if another
 * worker has taken them over, because the caller uses one of them. */
static void keep_lease(void *user) {
    renew(user, false);
    tell_presence(user);
}

static void beat(front *f) {
    crew *c = f->crew;
    fleet_store *t = fleet_of(f);
    double now = steady_seconds();
    tell_presence(f);
    if (now - c->touched > TIDY || !(c->touched > 0)) { /* clear_old_spools removes folders that are older than a day */
        c->touched = now;
        utimensat(AT_FDCWD, f->spool, NULL, 0);
    }
    if (now - c->tidied < TIDY && c->tidied > 0) return;
    if (!crew_make_groups(f)) return;
    c->tidied = now;
    files_forget(f);
    for (int i = 0; i < f->n_models; i++) {
        freeReplyObject(redis_script(&t->link, script_tidy, t->prefix, "s", f->models[i].id));
        if (c->facts[i])
            freeReplyObject(redis_do(&t->link, "HSET %smodels %s %s", t->prefix, f->models[i].id, c->facts[i]));
    }
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static void read_signals(front *f) {
    struct signalfd_siginfo info;
    while (read(f->signals, &info, sizeof info) == sizeof info) {
        if (f->draining) f->ended = true; /* the second signal */
        if (!f->draining) say_line(f, f->child.n_seats ? "ending; the running picture is finished first" : "ending");
        f->draining = true;
        f->drain_until = steady_seconds() + f->options->drain_timeout;
    }
}

/* The job goes back to the others, unless Redis is still to be told of a picture. */
static void give_back(front *f, job *j) {
    if (j->told == j->made) crew_give_back(f, j->model, j->entry, j->id);
    crew_drop(f, j);
}

/* While draining: jobs that are between pictures, or late, go back to the others. */
static bool is_drained(front *f) {
    if (!f->draining) return false;
    bool late = steady_seconds() > f->drain_until;
    for (job *j = f->jobs, *next; j; j = next) {
        next = j->next;
        if (late || (!j->seats && j->told == j->made)) give_back(f, j);
    }
    return late || (!f->jobs && !f->child.n_seats && !f->crew->reading);
}

static void turn_once(front *f) {
    struct epoll_event events[16];
    int n = epoll_wait(f->epoll, events, 16, 200);
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr == &f->signals)
            read_signals(f);
        else if (events[i].data.ptr == &f->child) {
            if (events[i].events & EPOLLOUT && f->child.pid) child_write(f);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) child_read(f);
        }
    }
    child_tick(f);
    fleet_is_there(f);
    crew_read_control(f);
    crew_read_tickets(f);
    renew(f, true);
    beat(f);
    report_all(f);
    crew_find_work(f);
    give(f);
}

/* Folders of workers that were killed. */
static void clear_old_spools(const char *spools) {
    DIR *all = opendir(spools);
    struct stat s;
    for (struct dirent *e; all && (e = readdir(all));) {
        if (strncmp(e->d_name, "worker_", 7) != 0 || fstatat(dirfd(all), e->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISDIR(s.st_mode) || s.st_mtime > time(NULL) - 86400)
            continue;
        int folder = openat(dirfd(all), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *inside = folder >= 0 ? fdopendir(folder) : NULL;
        for (struct dirent *i; inside && (i = readdir(inside));)
            if (strncmp(i->d_name, "pic_", 4) == 0) unlinkat(folder, i->d_name, 0);
        if (inside) closedir(inside);
        unlinkat(dirfd(all), e->d_name, AT_REMOVEDIR);
    }
    if (all) closedir(all);
}

static bool start(front *f, char *why, size_t size) {
    if (!files_open(f, why, size)) return false;
    fleet_store *t = fleet_of(f);
    f->crew->take.where = f->crew->control.where = &t->where;
    const far_files *far = f->options->far_files;
    if (far) far->watch(far->user, keep_lease, f);
    clear_old_spools(f->spool);
    char *own = spool_path(f, t->id, "");
    free(f->spool);
    f->spool = own;
    if (!own || mkdir(own, 0700) != 0) {
        snprintf(why, size, "%s: cannot be made: %s", own ? own : f->state, strerror(errno));
        return false;
    }
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    f->epoll = epoll_create1(EPOLL_CLOEXEC);
    f->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    struct epoll_event signals = {.events = EPOLLIN, .data.ptr = &f->signals};
    if (epoll_ctl(f->epoll, EPOLL_CTL_ADD, f->signals, &signals) == 0) return true;
    snprintf(why, size, "the event loop cannot be started: %s", strerror(errno));
    return false;
}

/* Takes its leave of Redis. What is left undone is taken over by others after 15 seconds. */
static void stop(front *f) {
    crew *c = f->crew;
    fleet_store *t = fleet_of(f);
    const far_files *far = f->options->far_files;
    if (far) far->watch(far->user, NULL, NULL);
    while (f->jobs) give_back(f, f->jobs);
    child_end(f); /* and with it the seats of jobs that are over */
    redis_close(&c->take);
    redis_close(&c->control);
    if (t) freeReplyObject(redis_do(&t->link, "ZREM %sworkers %s", t->prefix, t->id));
    if (f->spool) rmdir(f->spool);
    if (f->epoll > 0) close(f->epoll);
    if (f->signals > 0) close(f->signals);
}

int fleet_worker_run(const serve_options *options, char *why, size_t size) {
    front *f = calloc(1, sizeof *f);
    crew *c = calloc(1, sizeof *c);
    snprintf(why, size, "out of memory");
    bool good = f && c;
    if (good) {
        *f = (front){.options = options, .crew = c, .n_models = options->n_models};
        f->jobs_end = &f->jobs;
        f->child = (child){.socket = -1, .loaded = -1, .take = heard, .lost = lost, .name = name_picture};
        for (int i = 0; i < f->n_models; i++) f->models[i].id = options->models[i];
        good = start(f, why, size);
    }
    if (good) fprintf(stderr, "lazuli: %s of the fleet '%s'\n", fleet_of(f)->id, options->fleet);
    while (good && !f->ended && !is_drained(f)) turn_once(f);
    if (f && f->no_model) {
        snprintf(why, size, "no model can be opened, so there is nothing to do");
        good = false;
    }
    if (f && f->store) stop(f);
    for (int i = 0; c && i < SERVE_MODELS; i++) free(c->facts[i]);
    if (f) {
        store_close(f);
        free(f->state);
        free(f->spool);
    }
    free(f);
    free(c);
    return good ? 0 : 1;
}
