/* fuzz_http.c: bytes of a client are answered or refused, and leave nothing open. It reaches the readers of paths, queries,
 * Host, Origin, keys, cookies, ranges, boundaries and bodies, and what the endpoints do with them. */
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "serve/guard.h"
#include "serve/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_TURNS = 40, INPUTS_KEPT = 64 };

static front *start(void) {
    static char folder[] = "/tmp/lazuli-fuzz-XXXXXX";
    static serve_options options = {.max_pixels = 4194304,
                                    .max_input_pixels = 1 << 20,
                                    .max_body = 1 << 20,
                                    .queue = 4,
                                    .queue_per_key = 4,
                                    .queue_timeout = 600,
                                    .n_models = 1,
                                    .models = {"demo"},
                                    .keys = "ada secret-one admin\nbob secret-two",
                                    .quiet = true,
                                    .origins = {"https://other.example"},
                                    .hosts = {"pictures.example"},
                                    .previews = "small",
                                    .pinned = PIN_AUTO};
    static front f = {.options = &options, .n_models = 1, .loopback = true, .most_connections = 100};
    char why[300];
    if (f.state) return &f;
    signal(SIGPIPE, SIG_IGN);
    f.jobs_end = &f.jobs;
    f.child = (child){
        .socket = -1, .loaded = 0, .ready = true, .take = paint_heard, .lost = paint_lost, .name = paint_name};
    f.models[0] = (model){.id = "demo",
                          .known = true,
                          .width = 256,
                          .height = 256,
                          .steps = 8,
                          .most_images = 4,
                          .references = true,
                          .start_images = true,
                          .masks = true};
    f.epoll = epoll_create1(EPOLL_CLOEXEC);
    options.state = mkdtemp(folder);
    if (!options.state || !(f.guard = guard_new(&f, why, sizeof why)) || !http_start(&f, why, sizeof why) ||
        !files_open(&f, why, sizeof why))
        abort();
    return &f;
}

/* A picture pic_a of the key ada, unless the last input has left it. */
static void put_picture(front *f) {
    picture p = {.facts = NULL};
    bool found = store_find_picture(f->store, "pic_a", &p);
    json_decref(p.facts);
    if (found && !p.removed && !p.pinned) return;
    job *j = job_new(f, &(identity){.owner = "key:ada"}, FROM_API,
                     json_pack("{s:s, s:s, s:i}", "prompt", "a fox", "model", "demo", "seed", 7));
    picture fresh = {.id = "pic_a",
                     .owner = "key:ada",
                     .format = "png",
                     .width = 64,
                     .height = 64,
                     .bytes = 100,
                     .facts = json_object(),
                     .created = 1e9};
    if (!j || !fresh.facts) abort();
    memcpy(fresh.job, j->id, sizeof fresh.job);
    j->state = COMPLETED;
    if (found)
        store_change_picture(f->store, &fresh);
    else if (store_add_job(f->store, j) != ADDED || !store_add_picture(f->store, &fresh, j))
        abort();
    char bytes[100] = "picture",
         *paths[] = {file_path(f, "pictures", "pic_a", ".png"), file_path(f, "thumbs", "pic_a", ".webp")};
    for (int i = 0; i < 2; i++) {
        if (!paths[i] || !write_whole(paths[i], bytes, sizeof bytes)) abort();
        free(paths[i]);
    }
    json_decref(fresh.facts);
    job_free(j);
}

static void clear_uploads(front *f) {
    char *path = file_path(f, "uploads", "", "");
    DIR *folder = path ? opendir(path) : NULL;
    for (struct dirent *e; folder && (e = readdir(folder));)
        if (*e->d_name != '.') unlinkat(dirfd(folder), e->d_name, 0);
    if (folder) closedir(folder);
    free(path);
}

/* As front.c does it. */
static void turn_once(front *f) {
    struct epoll_event events[16];
    int n = epoll_wait(f->epoll, events, 16, f->requests && f->requests->held ? 20 : 0);
    for (int i = 0; i < n; i++) {
        request *r = events[i].data.ptr;
        if (events[i].data.ptr == &f->flushed) http_flushed(f);
        if (events[i].data.ptr == f || events[i].data.ptr == &f->flushed) continue;
        r->gone = true;
        job_leave(r);
        *r->ask = 0;
        wake(r);
    }
    http_turn(f);
}

/* Reads what has come; aborts if the first bytes are no answer. */
static void read_answer(int socket, bool *begun) {
    char bytes[4096];
    ssize_t n;
    while ((n = recv(socket, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
        if (!*begun && n >= 9 && memcmp(bytes, "HTTP/1.1 ", 9) != 0 && memcmp(bytes, "HTTP/1.0 ", 9) != 0) abort();
        *begun = true;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static unsigned inputs;
    front *f = start();
    int pair[2];
    bool begun = false;
    put_picture(f);
    if (++inputs % INPUTS_KEPT == 0) clear_uploads(f);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) abort();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    static const listener plain = {.socket = -1};
    http_take(f, pair[0], (struct sockaddr *)&address, sizeof address, &plain);
    if (size && write(pair[1], data, size) < 0) abort();
    for (int i = 0; i < 4; i++) turn_once(f);
    read_answer(pair[1], &begun);
    shutdown(pair[1], SHUT_WR);
    for (int i = 0; i < MOST_TURNS && f->n_connections; i++) {
        if (i == MOST_TURNS / 2) shutdown(pair[1], SHUT_RDWR);
        turn_once(f);
        read_answer(pair[1], &begun);
    }
    close(pair[1]);
    for (int i = 0; i < MOST_TURNS && f->n_connections; i++) turn_once(f);
    if (f->n_connections || f->requests || f->streams || f->bodies) abort();
    while (f->jobs) job_cancel(f, f->jobs, BY_API, "cancelled", "the job was cancelled");
    f->paused = f->draining = false;
    f->child.ready = true;
    f->child.loaded = 0;
    f->child.asleep = false;
    return 0;
}
