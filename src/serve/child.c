/* child.c: starts the worker, exchanges messages with it, and replaces it if it ends. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "confine.h"
#include "inside.h"
#include "wire.h"

/* Seconds without a message, without an answer to a cancel, and until a model that could not be opened is tried again. */
enum { SILENCE = 60, UNHEEDED = 30, TRIED_AGAIN = 30 };

/* Is the variable a secret, which only the server needs? */
static bool is_secret(const char *variable) {
    static const char *const secrets[] = {
        "AWS_SECRET_ACCESS_KEY=", "AWS_SESSION_TOKEN=", "LAZULI_STORE_PASSWORD=", "LAZULI_KEYS="};
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++)
        if (strncmp(variable, secrets[i], strlen(secrets[i])) == 0) return true;
    return false;
}

/* The variables of the environment but secrets, ended by NULL; the list is owned. NULL: there is no memory. */
static char **worker_environment(void) {
    size_t all = 0, n = 0;
    while (environ[all]) all++;
    char **list = calloc(all + 1, sizeof *list);
    for (size_t i = 0; list && i < all; i++)
        if (!is_secret(environ[i])) list[n++] = environ[i];
    return list;
}

static const char unconfined[] =
    "lazuli: Landlock does not confine this worker, so it can write wherever its user can\n";

/* The new process. Only functions that are safe after fork are called. It keeps the right to write in `folders`. */
static void become_worker(char *const *arguments, char *const *environment, int socket, const char *const *folders) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (socket == WORKER_SOCKET)
        fcntl(socket, F_SETFD, 0);
    else
        dup2(socket, WORKER_SOCKET);
    dup2(STDERR_FILENO, STDOUT_FILENO);
    ssize_t told = confine_writes(folders) ? 0 : write(STDERR_FILENO, unconfined, sizeof unconfined - 1);
    (void)told; /* nothing can be done if stderr is closed */
    execve(arguments[0], arguments, environment);
    _exit(127);
}

static void watch_socket(front *f, int operation, bool writing) {
    struct epoll_event event = {.events = EPOLLIN | (writing ? (uint32_t)EPOLLOUT : 0), .data.ptr = &f->child};
    epoll_ctl(f->epoll, operation, f->child.socket, &event);
}

static void start(front *f) {
    child *c = &f->child;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return;
    int size = 4 << 20;
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    /* GPUs are files in /dev, and their drivers write to /proc. */
    const char *folders[] = {f->spool, "/dev", "/proc", f->options->cache, NULL};
    char **environment = worker_environment();
    pid_t pid = environment ? fork() : -1;
    if (pid == 0) become_worker(f->options->worker, environment, pair[1], folders);
    free(environment);
    close(pair[1]);
    if (pid < 0) {
        close(pair[0]);
        return;
    }
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    c->pid = pid;
    c->socket = pair[0];
    c->heard = steady_seconds();
    c->ready = c->free = false;
    c->loaded = -1;
    watch_socket(f, EPOLL_CTL_ADD, false);
}

static void forget_loaded(front *f) {
    for (int i = 0; i < f->n_models; i++) f->models[i].loaded = false;
}

/* The process has ended, so no model is loaded any more. */
static void forget_loads(front *f) {
    forget_loaded(f);
    for (int i = 0; i < f->n_models; i++) f->models[i].loading = false;
}

/* Ends the process, if it has not ended by itself, and forgets it. Returns its status, as waitpid gives it. */
static int end(front *f) {
    child *c = &f->child;
    int status = 0;
    kill(c->pid, SIGKILL);
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR) continue;
    epoll_ctl(f->epoll, EPOLL_CTL_DEL, c->socket, NULL);
    close(c->socket);
    buffer_free(&c->in);
    buffer_free(&c->out);
    c->pid = 0;
    c->sleepy = false;
    c->thumbs = 0;
    c->socket = -1;
    c->ready = c->free = false;
    c->loaded = -1;
    c->memory_total = c->memory_active = c->memory_cached = c->memory_peak = 0;
    forget_loads(f);
    return status;
}

/* The process has failed. */
static void lose(front *f) {
    child *c = &f->child;
    static const double pauses[] = {0.1, 1, 5, 30};
    int status = end(f);
    c->again = steady_seconds() + pauses[c->deaths < 3 ? c->deaths : 3];
    c->deaths++;
    f->metrics.restarts++;
    if (!f->ended)
        say_line(f, "the worker ended (%s %d)", WIFSIGNALED(status) ? "signal" : "code",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    if (!f->metrics.loads && WIFEXITED(status) && WEXITSTATUS(status) == 1) f->ended = f->no_model = true;
    models_answer(f, true);
    f->child.lost(f);
}

void child_end(front *f) {
    f->ended = true;
    if (f->child.pid) lose(f);
}

bool child_sleep(front *f) {
    if (f->child.n_seats || f->jobs) return false;
    f->child.sleepy = f->child.pid && f->child.thumbs; /* child_tick ends it when they are written */
    if (f->child.sleepy) return true;
    if (f->child.pid) {
        end(f);
        say_line(f, "the model is unloaded; the next picture loads it again");
    }
    f->child.asleep = true;
    for (int i = 0; i < f->n_models; i++) f->models[i].wanted = false;
    models_answer(f, true);
    f->child.lost(f); /* a plan that was asked for will not come */
    return true;
}

void child_load(front *f, int index) {
    child *c = &f->child;
    model *m = &f->models[index];
    c->asleep = c->sleepy = false;
    m->unusable = false; /* until this try has failed, too */
    if (!c->ready)
        m->wanted = true;
    else if (c->loaded != index && !m->loading) /* a worker that makes pictures loads it after them */
        m->loading = child_tell(f, json_pack("{s:s, s:i}", "type", "load", "model", index));
}

/* The worker is ready: tells it which models were asked for meanwhile. */
static void load_wanted(front *f) {
    for (int i = 0; i < f->n_models; i++) {
        model *m = &f->models[i];
        if (m->wanted && !m->unusable && !model_is_loaded(f, i)) child_load(f, i);
        m->wanted = false;
    }
}

static bool is_loading(const front *f) {
    for (int i = 0; i < f->n_models; i++)
        if (f->models[i].loading || f->models[i].wanted) return true;
    return false;
}

/* Has there been nothing to do for --idle-unload seconds? */
static bool is_idle(front *f, double now) {
    child *c = &f->child;
    if (!c->ready || c->n_seats || c->thumbs || f->jobs || is_loading(f) || !(c->used > 0)) c->used = now;
    return f->options->idle_unload > 0 && now - c->used > f->options->idle_unload;
}

void child_tick(front *f) {
    child *c = &f->child;
    double now = steady_seconds();
    if (is_idle(f, now) || (c->sleepy && !c->thumbs)) child_sleep(f);
    if (f->jobs) c->asleep = c->sleepy = false;
    bool silent = c->pid && now - c->heard > SILENCE, deaf = c->pid && c->cancel > 0 && now - c->cancel > UNHEEDED;
    if (silent || deaf) {
        say_line(f, "the worker does not answer");
        lose(f);
    }
    if (now - c->looked > 1) {
        c->looked = now;
        models_answer(f, false);
    }
    if (!c->pid && now >= c->again && !f->draining && !c->asleep) start(f);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

void child_write(front *f) {
    child *c = &f->child;
    while (c->out.size) {
        ssize_t n = send(c->socket, c->out.data, c->out.size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break; /* full, or closed, which child_read will notice */
        buffer_drop(&c->out, (size_t)n);
    }
    watch_socket(f, EPOLL_CTL_MOD, c->out.size);
}

bool child_tell(front *f, json_t *message) {
    if (f->child.pid && wire_add(&f->child.out, message, NULL, 0)) {
        child_write(f);
        return true;
    }
    if (!f->child.pid) json_decref(message);
    return false;
}

void model_learn(model *m, const json_t *facts) {
    const char *family = json_string_value(json_object_get(facts, "family"));
    const char *device = json_string_value(json_object_get(facts, "device"));
    m->known = true;
    m->unusable = false;
    snprintf(m->family, sizeof m->family, "%s", family ? family : "");
    snprintf(m->device, sizeof m->device, "%s", device ? device : "");
    m->distilled = json_is_true(json_object_get(facts, "distilled"));
    m->guidance_built_in = json_is_true(json_object_get(facts, "guidance_built_in"));
    m->width = json_integer_value(json_object_get(facts, "width"));
    m->height = json_integer_value(json_object_get(facts, "height"));
    m->token_pixels = json_integer_value(json_object_get(facts, "token_pixels"));
    m->steps = (int)json_integer_value(json_object_get(facts, "steps"));
    m->least_images = (int)json_integer_value(json_object_get(facts, "least_images"));
    m->most_images = (int)json_integer_value(json_object_get(facts, "most_images"));
    m->references = json_is_true(json_object_get(facts, "references"));
    m->start_images = json_is_true(json_object_get(facts, "start_images"));
    m->masks = json_is_true(json_object_get(facts, "masks"));
    m->guidance = json_number_value(json_object_get(facts, "guidance"));
    m->together = (int)json_integer_value(json_object_get(facts, "together"));
    if (m->together < 1 || m->together > LZ_MAX_TOGETHER) m->together = 1;
    m->layers = (int)json_integer_value(json_object_get(facts, "layers"));
    m->transparent = json_is_true(json_object_get(facts, "transparent"));
    const json_t *sizes = json_object_get(facts, "sizes");
    m->n_sizes = 0;
    for (size_t i = 0; i < json_array_size(sizes) && i < sizeof m->sizes / sizeof *m->sizes; i++, m->n_sizes++)
        for (size_t k = 0; k < 2; k++) m->sizes[i][k] = json_integer_value(json_array_get(json_array_get(sizes, i), k));
}

bool model_is_loaded(const front *f, int index) {
    return !f->child.sleepy && (f->models[index].loaded || f->child.loaded == index);
}

bool model_is_unusable(const front *f, int index) {
    return f->models[index].unusable && steady_seconds() - f->models[index].failed < TRIED_AGAIN;
}

/* The models that the worker has open. */
static void learn_open(front *f, const json_t *open) {
    forget_loaded(f);
    for (size_t i = 0; i < json_array_size(open); i++) {
        json_int_t k = json_integer_value(json_array_get(open, i));
        if (k >= 0 && k < f->n_models) f->models[k].loaded = true;
    }
}

static void learn_facts(front *f, const json_t *message) {
    int index = (int)json_integer_value(json_object_get(message, "index"));
    if (index < 0 || index >= f->n_models) return;
    model_learn(&f->models[index], json_object_get(message, "facts"));
    f->child.loaded = index;
    if (!f->models[index].loaded) f->metrics.loads++;
    f->models[index].loading = false;
    learn_open(f, json_object_get(message, "open"));
}

static void learn_memory(child *c, const json_t *message) {
    c->memory_total = json_integer_value(json_object_get(message, "total"));
    c->memory_active = json_integer_value(json_object_get(message, "active"));
    c->memory_cached = json_integer_value(json_object_get(message, "cached"));
    c->memory_peak = json_integer_value(json_object_get(message, "peak"));
}

static void learn_unusable(front *f, const json_t *message) {
    int index = (int)json_integer_value(json_object_get(message, "index"));
    if (index < 0 || index >= f->n_models) return;
    model *m = &f->models[index];
    m->unusable = true;
    m->failed = steady_seconds();
    m->loading = false;
    f->child.loaded = -1; /* the worker uses none until the next picture */
    learn_open(f, json_object_get(message, "open"));
}

/* Takes the message and the bytes. */
static void receive(front *f, json_t *message, buffer *bytes) {
    const char *type = json_string_value(json_object_get(message, "type"));
    if (!type) type = "";
    if (strcmp(type, "model") == 0)
        learn_facts(f, message);
    else if (strcmp(type, "unusable") == 0)
        learn_unusable(f, message);
    else if (strcmp(type, "memory") == 0)
        learn_memory(&f->child, message);
    else if (strcmp(type, "ready") == 0) {
        f->child.ready = f->child.free = true;
        load_wanted(f);
    } else if (strcmp(type, "free") == 0)
        f->child.free = true;
    models_answer(f, false);
    if (*type) f->child.take(f, message, bytes);
    json_decref(message);
    buffer_free(bytes);
}

void child_read(front *f) {
    child *c = &f->child;
    char piece[65536];
    ssize_t n = 1;
    while (c->pid && (n = recv(c->socket, piece, sizeof piece, MSG_DONTWAIT)) > 0) {
        c->heard = steady_seconds();
        if (!buffer_add(&c->in, piece, (size_t)n)) break;
        json_t *message;
        buffer bytes;
        int got = 0;
        while (c->pid && (got = wire_take(&c->in, &message, &bytes)) > 0) receive(f, message, &bytes);
        if (got < 0) {
            n = 0;
            break;
        }
        if (n < (ssize_t)sizeof piece) break;
    }
    if (c->pid && (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || c->in.failed)) lose(f);
}
