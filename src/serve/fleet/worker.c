/* worker.c: a worker of a fleet. This process takes jobs from Redis, renews its leases, and puts pictures in their
 * place. A child process (child.c, ../worker.c) holds the model and makes the pictures, as in a server without a fleet.
 *
 * A job is this worker's from script_draw until Redis says that it is not: because it ended, because it was cancelled,
 * or because the lease was not renewed for 15 seconds and another worker took it over. While Redis is away the worker
 * goes on with its picture, and tells of it when Redis is back. */
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

/* ---- the job ----------------------------------------------------------------------------------------------------- */

void crew_forget(front *f) {
    crew *c = f->crew;
    json_decref(c->picture.facts);
    c->picture.facts = NULL;
    job_free(c->job);
    c->job = NULL;
    c->over = c->made = c->painting = false;
    f->child.cancel = 0;
}

static void clear_spool(front *f) {
    const picture *p = &f->crew->picture;
    char *paths[] = {spool_path(f, p->id, format_ending(p->format)), spool_path(f, p->id, ".thumb.webp")};
    for (int i = 0; i < 2; i++) {
        if (paths[i]) unlink(paths[i]);
        free(paths[i]);
    }
}

/* The job is not this worker's any more. */
static void drop(front *f) {
    crew *c = f->crew;
    if (!c->painting) {
        crew_forget(f);
        return;
    }
    if (!c->over) {
        child_tell(f, json_pack("{s:s, s:s}", "type", "cancel", "job", c->job->id));
        f->child.cancel = steady_seconds();
    }
    c->over = true;
}

/* Ends the job in Redis. While Redis is away, the lease runs out and another worker tries the job. */
static void fail(front *f, const char *code, const char *message) {
    fleet_store *t = fleet_of(f);
    const crew *c = f->crew;
    freeReplyObject(redis_script(&t->link, script_end, t->prefix, "sisssss", c->job->id, (int)FAILED_JOB, code, message,
                                 f->models[c->model].id, c->entry, t->id));
    crew_forget(f);
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

static void paint(front *f) {
    crew *c = f->crew;
    job *j = c->job;
    picture_begin(j, &c->picture);
    name_picture(j, &c->picture);
    json_t *message = paint_message(f, j, &c->picture);
    c->painting = message && child_tell(f, message);
    if (!c->painting) fail(f, "out_of_memory", "out of memory");
}

/* Redis is told of the picture, again until it answers. */
static void report(front *f) {
    crew *c = f->crew;
    fleet_store *t = fleet_of(f);
    json_t *data = picture_data(&c->picture);
    char *text = data ? json_dumps(data, JSON_COMPACT) : NULL;
    json_decref(data);
    redisReply *reply = text ? redis_script(&t->link, script_finish, t->prefix, "siss", c->job->id, c->picture.index,
                                            c->picture.id, text)
                             : NULL;
    free(text);
    if (!reply) return;
    long long made = reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;
    freeReplyObject(reply);
    c->made = false;
    c->job->pictures[c->job->made++] = c->picture;
    c->picture.facts = NULL;
    if (made < 0 || made >= c->job->n || made < c->job->made) crew_forget(f);
}

static void picture_done(front *f, json_t *facts) {
    crew *c = f->crew;
    picture *p = &c->picture;
    c->painting = false;
    f->child.deaths = 0;
    if (c->over) {
        clear_spool(f);
        crew_forget(f);
        return;
    }
    p->width = json_integer_value(json_object_get(facts, "width"));
    p->height = json_integer_value(json_object_get(facts, "height"));
    p->created = wall_seconds();
    p->facts = json_copy(facts);
    json_object_del(p->facts, "type");
    json_object_del(p->facts, "job");
    bool stored = p->facts && files_take(f, p);
    if (stored) p->bytes = file_bytes(f, p);
    if (!stored || !p->bytes) {
        clear_spool(f);
        fail(f, "insufficient_storage", "the picture cannot be stored");
        return;
    }
    c->made = true;
    report(f);
}

static void picture_refused(front *f, const char *code, const char *message) {
    crew *c = f->crew;
    c->painting = false;
    f->child.cancel = 0;
    clear_spool(f);
    if (c->over)
        crew_forget(f);
    else if (strcmp(code, "cancelled") != 0)
        fail(f, constant_code(code), message);
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
    crew *c = f->crew;
    const char *type = json_string_value(json_object_get(message, "type"));
    const char *id = json_string_value(json_object_get(message, "job"));
    const char *code = json_string_value(json_object_get(message, "code"));
    const char *text = json_string_value(json_object_get(message, "message"));
    bool ours = c->painting && id && strcmp(c->job->id, id) == 0;
    if (strcmp(type, "model") == 0)
        announce(f, message);
    else if (strcmp(type, "planned") == 0 || (strcmp(type, "progress") == 0 && ours && !c->over))
        forward(f, message);
    else if (strcmp(type, "preview") == 0 && ours && !c->over && bytes->size <= MOST_PREVIEW) {
        buffer frame = {.data = NULL};
        if (wire_add(&frame, json_incref(message), bytes->data, bytes->size))
            publish(f, "previews", frame.data, frame.size);
        buffer_free(&frame);
    } else if (strcmp(type, "done") == 0 && ours)
        picture_done(f, message);
    else if (strcmp(type, "failed") == 0 && ours)
        picture_refused(f, code ? code : "generation_failed", text ? text : "");
}

/* The child has ended. Its picture counts as an attempt. */
static void lost(front *f) {
    crew *c = f->crew;
    fleet_store *t = fleet_of(f);
    if (!c->painting) return;
    c->painting = false;
    clear_spool(f);
    if (c->over) {
        crew_forget(f);
        return;
    }
    redisReply *reply = redis_script(&t->link, script_lost, t->prefix, "sisss", c->job->id, (int)MOST_DEATHS,
                                     f->models[c->model].id, c->entry, t->id);
    bool again = reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;
    freeReplyObject(reply);
    if (!again) crew_forget(f);
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
    if (type && strcmp(type, "cancel") == 0 && id && f->crew->job && strcmp(id, f->crew->job->id) == 0)
        drop(f);
    else if (type && strcmp(type, "plan") == 0)
        answer_plan(f, message);
    json_decref(message);
}

static void read_control(front *f) {
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

/* Renews the lease, if it is time. Returns true if Redis says that the job is not this worker's any more. */
static bool renew_lease(front *f) {
    crew *c = f->crew;
    fleet_store *t = fleet_of(f);
    double now = steady_seconds();
    if (!c->job || c->over || now - c->renewed < RENEW) return false;
    c->renewed = now;
    redisReply *r = redis_script(&t->link, script_renew, t->prefix, "ssss", f->models[c->model].id, c->entry, t->id,
                                 c->job->id);
    bool gone = r && r->type == REDIS_REPLY_INTEGER && r->integer == 0;
    freeReplyObject(r);
    return gone;
}

static void renew(front *f) {
    if (renew_lease(f) && !f->crew->made) drop(f);
}

static void tell_presence(front *f) {
    crew *c = f->crew;
    fleet_store *t = fleet_of(f);
    double now = steady_seconds();
    if (!f->child.ready || now - c->beaten <= RENEW) return;
    c->beaten = now;
    freeReplyObject(redis_script(&t->link, script_beat, t->prefix, "si", t->id, SILENT_WORKER));
}

/* While a far file is read or written, which may take longer than a lease. The job stays in memory here even if another
 * worker has taken it over, because the caller uses it. */
static void keep_lease(void *user) {
    renew_lease(user);
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
        if (!f->draining) say_line(f, f->crew->job ? "ending; the running picture is finished first" : "ending");
        f->draining = true;
        f->drain_until = steady_seconds() + f->options->drain_timeout;
    }
}

/* While draining: a job that is between pictures, or late, goes back to the others. */
static bool is_drained(front *f) {
    crew *c = f->crew;
    if (!f->draining) return false;
    bool late = steady_seconds() > f->drain_until;
    if (c->job && !c->over && !c->made && (!c->painting || late)) {
        crew_give_back(f, c->model, c->entry, c->job->id);
        c->painting = false;
        crew_forget(f);
    }
    return late || (!c->job && !c->reading);
}

static void turn_once(front *f) {
    struct epoll_event events[16];
    crew *c = f->crew;
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
    read_control(f);
    crew_read_tickets(f);
    renew(f);
    beat(f);
    if (c->made) report(f);
    crew_find_work(f);
    if (c->job && !c->painting && !c->made && !c->over && f->child.ready && !f->draining) paint(f);
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
    if (c->job && !c->over && !c->made) crew_give_back(f, c->model, c->entry, c->job->id);
    c->painting = false;
    crew_forget(f);
    child_end(f);
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
        f->child = (child){.socket = -1, .loaded = -1, .take = heard, .lost = lost};
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
