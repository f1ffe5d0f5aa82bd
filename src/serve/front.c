/* front.c: the event loop of the server. One thread does everything: HTTP, messages of the worker, signals, timers. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "guard.h"
#include "sse.h"
#include "store.h"

/* ---- signals ----------------------------------------------------------------------------------------------------- */

static void read_again(front *f) {
    char why[300];
    if (f->options->cert && http_renew(f, why, sizeof why))
        say_line(f, "the certificate was read again");
    else if (f->options->cert)
        say_line(f, "the certificate stays as it was: %s", why);
    if (!f->options->key_file) return;
    if (guard_read_keys(f->guard, why, sizeof why))
        say_line(f, "the keys were read again");
    else
        say_line(f, "the keys stay as they were: %s", why);
}

/* Is a picture being made that a drain waits for? */
static bool is_painting(const front *f) {
    const job *j = f->jobs;
    while (j && !(j->painting && j->attended)) j = j->next;
    return j || f->child.n_seats || f->child.thumbs;
}

/* Takes no more jobs, answers those who wait, and lets the running picture end. */
static void drain(front *f) {
    f->draining = true;
    f->drain_until = steady_seconds() + f->options->drain_timeout;
    say_line(f, is_painting(f) ? "ending; the running picture is finished first" : "ending");
    listen_stop(f);
    for (job *j = f->jobs, *next; j; j = next) {
        next = j->next;
        if (j->attended && !j->painting)
            job_cancel(f, j, BY_DRAIN, "draining", "the server is ending");
        else if (j->seats && !j->painting)
            seats_cancel(f, j); /* it waits in the worker, and stays in the store */
    }
    for (stream *s = f->streams; s; s = s->next)
        if (s->native) stream_end(s);
    models_answer(f, true);
}

static void read_signals(front *f) {
    struct signalfd_siginfo info;
    while (read(f->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGHUP)
            read_again(f);
        else if (f->draining)
            f->ended = true; /* the second signal */
        else
            drain(f);
    }
}

/* Is everything done that a drain waits for? */
static bool is_drained(front *f) {
    if (!f->draining) return false;
    double now = steady_seconds();
    if (is_painting(f) && now < f->drain_until) return false;
    for (job *j = f->jobs, *next; j; j = next) { /* the picture was not finished in time, or was one of several */
        next = j->next;
        if (j->attended) job_cancel(f, j, BY_DRAIN, "draining", "the server is ending");
    }
    bool answering = false; /* a request that has not come whole will get no answer */
    for (const request *r = f->requests; r; r = r->next) answering = answering || r->called;
    return !answering || now > f->drain_until + 2;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* A client whose request is suspended has gone. */
static void client_gone(request *r) {
    r->gone = true;
    job_leave(r);
    plan_forget(r);
    r->go = NULL;
    wake(r);
}

static void turn_once(front *f) {
    struct epoll_event events[64];
    int timeout = f->woken ? 0 : http_timeout(f);
    double streams = ceil((f->streams_due - steady_seconds()) * 1e3);
    if (timeout < 0 || timeout > 500) timeout = 500;
    if (streams < timeout) timeout = streams > 0 ? (int)streams : 0;
    int n = epoll_wait(f->epoll, events, 64, timeout);
    /* Requests are freed by http_turn only, so every pointer in events is valid until then. */
    for (int i = 0; i < n; i++) {
        void *what = events[i].data.ptr;
        if (what == &f->signals)
            read_signals(f);
        else if (what == &f->child) {
            if (events[i].events & EPOLLOUT && f->child.pid) child_write(f);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) child_read(f);
        } else if (listen_is_ours(f, what))
            listen_accept(f, what);
        else if (what == &f->flushed)
            http_flushed(f);
        else if (what != f)
            client_gone(what);
    }
    jobs_sweep(f);
    plans_tick(f);
    streams_tick(f);
    slow_tick(f);
    listen_tick(f);
    f->woken = false;
    http_turn(f);
    f->store->kind->tick(f);
}

static bool start_loop(front *f, char *why, size_t size) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    f->epoll = epoll_create1(EPOLL_CLOEXEC);
    f->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (!http_start(f, why, size)) return false;
    struct epoll_event signals = {.events = EPOLLIN, .data.ptr = &f->signals};
    if (epoll_ctl(f->epoll, EPOLL_CTL_ADD, f->signals, &signals) == 0 && listen_start(f)) return true;
    snprintf(why, size, "the event loop cannot be started: %s", strerror(errno));
    return false;
}

static void stop(front *f) {
    paint_stop(f);
    child_end(f);
    http_stop(f);
    if (f->store) jobs_save(f);
    for (job *j; (j = f->unsaved);) {
        f->unsaved = j->next;
        job_free(j);
    }
    for (job *j; (j = f->jobs);) { /* those that wait are in the store */
        f->jobs = j->next;
        job_free(j);
    }
    for (int i = 0; i < KEPT_EVENTS; i++) free(f->events[i].text);
    listen_stop(f);
    files_check_end(f);
    if (f->epoll > 0) close(f->epoll);
    if (f->signals > 0) close(f->signals);
    guard_free(f->guard);
    store_close(f);
    free(f->state);
    free(f->spool);
    free(f);
}

int serve_run(const serve_options *options, char *why, size_t size) {
    front *f = calloc(1, sizeof *f);
    if (!f) return 1;
    snprintf(why, size, "out of memory");
    *f = (front){.options = options, .n_models = options->n_models, .begun = wall_seconds()};
    f->jobs_end = &f->jobs;
    f->child.socket = f->child.loaded = -1;
    for (int i = 0; i < f->n_models; i++) f->models[i].id = options->models[i];
    bool good = listen_open(f, why, size) && (f->guard = guard_new(f, why, size)) && start_loop(f, why, size) &&
                files_open(f, why, size);
    if (good && !jobs_load(f)) {
        snprintf(why, size, "%s: the jobs cannot be read", options->state);
        good = false;
    }
    if (good) {
        if (options->no_auth && !f->loopback)
            fprintf(stderr, "lazuli: --no-auth: everybody who reaches this address can use the server\n");
        for (int i = 0; i < f->n_listeners; i++) fprintf(stderr, "lazuli: listening on %s\n", f->listeners[i].where);
    }
    while (good && !f->ended && !is_drained(f)) turn_once(f);
    if (f->no_model) {
        snprintf(why, size, "no model can be opened, so there is nothing to serve");
        good = false;
    }
    if (f->broken) {
        snprintf(why, size, "%s: cannot be flushed to the disk", options->state);
        good = false;
    }
    stop(f);
    return good ? 0 : 1;
}
