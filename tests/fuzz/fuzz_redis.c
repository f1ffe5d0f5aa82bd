/* fuzz_redis.c: whatever Redis replies, fronts and workers of a fleet go on. The first byte selects what is done. The rest is
 * what Redis sends: up to a line "--" on the connection for commands, after it on the one that is subscribed or reads
 * tickets.
 *     j  a job          J  jobs         p  a picture      P  pictures      u  uploads, addresses, repeated requests
 *     n  news           b  the beat     q  the queue      a  a new job
 *     t  tickets        k  work         c  control                         (of a worker)
 * hiredis allocates as many elements as an array says it has, before they come, so arrays of a million are left out. */
#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/fleet/crew.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool has_large_array(const uint8_t *data, size_t size) {
    for (size_t i = 0; i < size; i++) {
        size_t n = 0;
        while (data[i] == '*' && i + 1 + n < size && isdigit(data[i + 1 + n])) n++;
        if (n > 5) return true;
    }
    return false;
}

/* A connection on which these bytes come, and then the end. Returns the other end, or -1. */
static int connect_to(redis *r, const uint8_t *data, size_t size) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) abort();
    if (size && write(pair[1], data, size) != (ssize_t)size) abort();
    shutdown(pair[1], SHUT_WR);
    r->context = redisConnectFd(pair[0]);
    if (!r->context) abort();
    return pair[1];
}

static front *start(bool worker) {
    static char state[] = "/nonexistent", spool[] = "/nonexistent/spool";
    static serve_options options = {.store = "redis://127.0.0.1:1",
                                    .fleet = "f",
                                    .state = state,
                                    .queue = 8,
                                    .queue_per_key = 8,
                                    .max_pixels = 4194304,
                                    .keep_days = 1};
    front *f = calloc(1, sizeof *f);
    char why[200];
    if (!f) abort();
    *f = (front){.options = &options, .n_models = 1, .state = state, .spool = spool};
    f->jobs_end = &f->jobs;
    f->child = (child){.socket = -1, .loaded = 0, .ready = true, .free = true, .name = paint_name};
    f->models[0] = (model){
        .id = "demo", .known = true, .width = 256, .height = 256, .steps = 8, .most_images = 4, .together = 4};
    f->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (worker && !(f->crew = calloc(1, sizeof *f->crew))) abort();
    f->store = fleet_store_open(f, why, sizeof why);
    if (!f->store) abort();
    if (worker) f->crew->take.where = f->crew->control.where = &fleet_of(f)->where;
    return f;
}

static job *add_job(front *f, job_state state) {
    identity who = {.owner = "key:ada"};
    job *j = job_new(f, &who, FROM_API, json_pack("{s:s, s:s, s:i}", "prompt", "a fox", "model", "demo", "n", 2));
    if (!j) abort();
    strcpy(j->id, "job_a");
    j->state = state;
    j->painting = state == RUNNING;
    return j;
}

static void stop(front *f) {
    fleet_store *t = fleet_of(f);
    while (f->jobs) {
        job *j = f->jobs;
        f->jobs = j->next;
        job_free(j);
    }
    for (int i = 0; i < KEPT_EVENTS; i++) free(f->events[i].text);
    if (f->crew) {
        redis_close(&f->crew->take);
        redis_close(&f->crew->control);
    }
    redis_close(&t->link); /* so that nothing more is asked */
    t->link.again = steady_seconds() + 1000;
    store_close(f);
    close(f->epoll);
    free(f->crew);
    free(f);
}

static void look_at(front *f, job *j) {
    json_t *object = j ? job_json(f, j) : NULL;
    if (j && (j->n < 1 || j->n > MOST_PICTURES || j->made < 0 || j->made > j->n || !json_is_object(object))) abort();
    json_decref(object);
    job_free(j);
}

static void read_pictures(front *f) {
    picture list[8];
    char next[65];
    picture_query query = {.owner = "key:ada", .search = "fox", .limit = 8};
    int n = store_list_pictures(f->store, &query, list, next);
    if (*next && !is_id(next)) abort();
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n; i++) {
            if (!is_id(list[i].id)) abort();
            json_decref(picture_json(&list[i]));
            json_decref(list[i].facts);
        }
        n = pass ? 0 : store_old_pictures(f->store, 2e9, 8, list);
    }
}

static void read_picture(front *f) {
    picture p = {.facts = NULL};
    if (store_find_picture(f->store, "pic_a", &p)) {
        json_decref(picture_json(&p));
        free(store_picture_settings(f->store, &p));
        json_decref(p.facts);
    }
}

static void read_names(front *f) {
    char id[ID_BYTES] = "", body[65], uploads[4][65];
    int64_t width, height;
    if (store_find_upload(f->store, "ab", &width, &height) && (width < 1 || height < 1)) abort();
    for (int i = store_old_uploads(f->store, 2e9, 4, uploads); i > 0; i--)
        if (!is_id(uploads[i - 1])) abort();
    if (store_find_address(f->store, "ab", id) && !is_id(id)) abort();
    store_find_repeat(f->store, "key:ada", "ab", id, body);
    if (*id && !is_id(id)) abort();
}

static void read_queue(front *f) {
    job *j = add_job(f, QUEUED);
    if (queue_waiting(f, NULL) < 0 || queue_position(f, j) < 0) abort();
    queue_seconds(f, j);
    job_free(j);
}

/* All that clients are told can be put into JSON. */
static void check_texts(front *f) {
    if (f->n_models < 1 || f->n_models > SERVE_MODELS) abort();
    for (int i = 0; i < f->n_models; i++) {
        const model *m = &f->models[i];
        json_t *about = json_pack("{s:s, s:s, s:s}", "id", m->id, "family", m->family, "device", m->device);
        if (!about) abort();
        json_decref(about);
    }
    json_t *told = f->jobs ? job_json(f, f->jobs) : NULL;
    if (f->jobs && !told) abort();
    json_decref(told);
}

/* The jobs that a worker has got can be given to its child. */
static void begin(front *f) {
    for (const job *j = f->jobs; j; j = j->next)
        if (j->made >= j->n || j->model != 0 || j->given != j->made || !is_id(j->id)) abort();
    job *first = crew_next(f);
    if (!first) return;
    crew_learn(f, first, 4);
    crew_join(f, first);
    f->child.pid = 1; /* the message stays in child.out */
    if (!seats_give(f, first)) abort();
    f->child.pid = 0;
    while (f->child.n_seats) seats_lose(f, f->child.seats[0].job);
    buffer_free(&f->child.out);
}

static void act(front *f, uint8_t what) {
    fleet_store *t = fleet_of(f);
    job *list[8], *j;
    switch (what) {
    case 'j': look_at(f, store_find_job(f, "job_a")); break;
    case 'J':
        for (int i = store_list_jobs(f, "key:ada", "queued", "job_b", 8, list); i > 0; i--) look_at(f, list[i - 1]);
        break;
    case 'p': read_picture(f); break;
    case 'P': read_pictures(f); break;
    case 'u': read_names(f); break;
    case 'q': read_queue(f); break;
    case 'a':
        j = add_job(f, QUEUED);
        store_add_job(f->store, j);
        job_free(j);
        break;
    case 'n':
    case 'b':
        job_append(f, add_job(f, RUNNING));
        t->beat = what == 'b' ? 0 : steady_seconds() + 1000;
        t->was_there = true;
        f->store->kind->tick(f);
        check_texts(f);
        break;
    case 't':
        f->crew->reading = true;
        crew_read_tickets(f);
        begin(f);
        break;
    case 'k':
        crew_find_work(f);
        begin(f);
        break;
    case 'c':
        job_append(f, add_job(f, RUNNING));
        crew_read_control(f);
        break;
    default: break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char mark[] = "\r\n--\r\n";
    if (!size || has_large_array(data, size)) return 0;
    uint8_t what = *data++;
    size--;
    signal(SIGPIPE, SIG_IGN);
    bool worker = strchr("tkc", what);
    const uint8_t *cut = memmem(data, size, mark, sizeof mark - 1), *end = data + size;
    front *f = start(worker);
    redis *second = worker && what != 'c' ? &f->crew->take : worker ? &f->crew->control : &fleet_of(f)->news;
    size_t n = cut ? (size_t)(cut - data) + 2 : size, rest = cut ? (size_t)(end - cut) - (sizeof mark - 1) : 0;
    int ends[] = {connect_to(&fleet_of(f)->link, data, n), connect_to(second, end - rest, rest)};
    act(f, what);
    stop(f);
    close(ends[0]);
    close(ends[1]);
    return 0;
}
