/* serve.c: `lazuli serve`, and the worker process that it starts. */
#include "serve/serve.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../album.h"
#include "../cache.h"
#include "../environment.h"
#include "s3.h"

enum { ID = 64, WORKER_WORDS = 64 };

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* The arguments with one of the models of -m. */
static arguments with_model(const arguments *args, int index) {
    arguments one = *args;
    if (args->serve.models.n) one.model = args->serve.models.all[index];
    return one;
}

/* The id by which clients name a model: the name of -m if that is no path, else the last part of the path. */
static int name_model(const arguments *args, char id[ID]) {
    model_choice choice;
    int code = choose_model(args, &choice);
    const char *given = args->model;
    bool path = !given || strchr(given, '/') || access(given, F_OK) == 0;
    char *name = code == DONE ? strdup(choice.demo ? "demo" : path ? choice.name : given) : NULL;
    free(choice.owned);
    if (code != DONE) return code;
    if (!name) return fail(args, FAILED, "out of memory");
    for (size_t n = strlen(name); n > 1 && name[n - 1] == '/'; n--) name[n - 1] = 0;
    snprintf(id, ID, "%s", base_name(name));
    free(name);
    for (char *c = id; *c; c++)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", *c)) *c = '-';
    return DONE;
}

static int name_models(const arguments *args, char ids[SERVE_MODELS][ID], serve_options *to) {
    int code = DONE, n = args->serve.models.n;
    if (n > SERVE_MODELS) return fail(args, NOT_UNDERSTOOD, "at most %d models can be served", SERVE_MODELS);
    to->n_models = n ? n : 1;
    for (int i = 0; i < to->n_models && code == DONE; i++) {
        arguments one = with_model(args, i);
        code = job_check(&one, NULL);
        if (code == DONE) code = name_model(&one, ids[i]);
        for (int k = 0; k < i && code == DONE; k++)
            if (strcmp(ids[k], ids[i]) == 0)
                code = fail(args, NOT_UNDERSTOOD, "two models would have the name '%s'", ids[i]);
        to->models[i] = ids[i];
    }
    return code;
}

/* ---- the server -------------------------------------------------------------------------------------------------- */

/* The command line of a worker: this program, with the same models on the same device. */
static void list_words(const arguments *args, const char *threads, char *words[WORKER_WORDS]) {
    static const char *const offloads[] = {"auto", "none", "stream"};
    int n = 0;
    words[n++] = (char *)"/proc/self/exe";
    words[n++] = (char *)"worker";
    for (int i = 0; i < args->serve.models.n; i++) {
        words[n++] = (char *)"-m";
        words[n++] = (char *)args->serve.models.all[i];
    }
    const char *pairs[][2] = {{"--device", args->device},
                              {"--precision", args->precision ? lz_dtype_name((lz_dtype)args->precision) : NULL},
                              {"--offload", args->offload ? offloads[args->offload] : NULL},
                              {"--threads", args->threads ? threads : NULL}};
    for (size_t i = 0; i < COUNT(pairs); i++) {
        if (!pairs[i][1]) continue;
        words[n++] = (char *)pairs[i][0];
        words[n++] = (char *)pairs[i][1];
    }
    words[n] = NULL;
}

/* Is it SCHEME://HOST, perhaps with a port and, if a path is allowed, more? */
static bool is_address(const char *text, bool path) {
    const char *host = strstr(text, "://");
    if (!host || host == text || strpbrk(text, " \t")) return false;
    host += 3;
    return *host && *host != '/' && *host != ':' && (path || !strchr(host, '/'));
}

/* Checks the values of --listen, --public-url and --allow-origin. */
static int check_addresses(const arguments *args) {
    const char *url = args->serve.public_url;
    if (!args->serve.cert != !args->serve.cert_key)
        return fail(args, NOT_UNDERSTOOD, "--cert and --cert-key are given together");
    for (int i = 0; args->serve.listen.all[i]; i++) {
        const char *listen = args->serve.listen.all[i], *colon = strrchr(listen, ':');
        int64_t port;
        if (strncmp(listen, "unix:", 5) != 0 &&
            (!colon || !whole_number(colon + 1, strlen(colon + 1), 0, 65535, &port)))
            return fail(args, NOT_UNDERSTOOD,
                        "--listen takes ADDRESS:PORT, with a port up to 65535, or unix:PATH, not '%s'", listen);
    }
    if (url && ((strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) || !is_address(url, true)))
        return fail(args, NOT_UNDERSTOOD, "--public-url takes an address such as https://pictures.example, not '%s'",
                    url);
    for (int i = 0; i < args->serve.origins.n; i++)
        if (!is_address(args->serve.origins.all[i], false))
            return fail(args, NOT_UNDERSTOOD,
                        "--allow-origin takes an address such as https://pictures.example, without a path, not '%s'",
                        args->serve.origins.all[i]);
    return DONE;
}

/* Reads --pin: auto, none, or a list of steps, guidance and size. */
static int read_pins(const arguments *args, unsigned *to) {
    static const char *const names[] = {"steps", "guidance", "size"};
    const char *list = args->serve.pin ? args->serve.pin : "auto";
    *to = strcmp(list, "auto") == 0 ? PIN_AUTO : 0;
    if (*to || strcmp(list, "none") == 0) return DONE;
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ","), i = 0;
        while (i < COUNT(names) && (strlen(names[i]) != n || strncmp(at, names[i], n) != 0)) i++;
        if (i == COUNT(names))
            return fail(args, NOT_UNDERSTOOD, "--pin takes auto, none or a list of steps, guidance and size, not '%s'",
                        list);
        *to |= 1U << i;
        at += n + (at[n] == ',');
    }
    return DONE;
}

/* The value must be one of three words. */
static int check_word(const arguments *args, const char *name, const char *value, const char *const words[3]) {
    for (int i = 0; i < 3; i++)
        if (!value || (words[i] && strcmp(words[i], value) == 0)) return DONE;
    return fail(args, NOT_UNDERSTOOD, "--%s takes %s%s%s or %s, not '%s'", name, words[0], words[2] ? ", " : "",
                words[2] ? words[2] : "", words[1], value);
}

static int read_words(const arguments *args, serve_options *to) {
    static const char *const previews[] = {"small", "off", "full"}, *const logs[] = {"text", "json", NULL};
    int code = check_word(args, "previews", args->serve.previews, previews);
    if (code == DONE) code = check_word(args, "log", args->serve.log, logs);
    to->previews = args->serve.previews ? args->serve.previews : "small";
    to->log_json = args->serve.log && strcmp(args->serve.log, "json") == 0;
    return code == DONE ? read_pins(args, &to->pinned) : code;
}

/* Sockets that systemd has opened for this process (sd_listen_fds). */
static int count_inherited(void) {
    const char *process = environment_value("LISTEN_PID"), *count = environment_value("LISTEN_FDS");
    int64_t pid = 0, n = 0;
    bool ours = process && whole_number(process, strlen(process), 1, INT32_MAX, &pid) && pid == getpid();
    return ours && count && whole_number(count, strlen(count), 1, MOST_INHERITED, &n) ? (int)n : 0;
}

#define OR(value, otherwise) ((value) ? (value) : (otherwise))

static bool is_bucket(const char *where) { return strncmp(where, "s3://", 5) == 0; }

/* Checks --store, --fleet and --pictures. */
static int check_fleet(const arguments *args) {
    const char *fleet = args->serve.fleet, *store = args->serve.store;
    if (!store && (fleet || args->serve.pictures || args->serve.s3_endpoint))
        return fail(args, NOT_UNDERSTOOD, "--fleet, --pictures and --s3-endpoint need --store redis://HOST:PORT/DB");
    if (!store) return DONE;
    if (strncmp(store, "redis://", 8) != 0) /* the address may hold a password, so it is not repeated */
        return fail(args, NOT_UNDERSTOOD, "--store takes an address such as redis://HOST:6379/0");
    if (fleet && (!*fleet || strlen(fleet) > 32 ||
                  strspn(fleet, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != strlen(fleet)))
        return fail(args, NOT_UNDERSTOOD, "--fleet takes a name of at most 32 letters, digits, - and _");
    if (!args->serve.pictures)
        return fail(
            args, NOT_UNDERSTOOD,
            "--store needs --pictures, a folder that all servers and workers of the fleet share, or s3://BUCKET");
    if (args->serve.state && !is_bucket(args->serve.pictures))
        return fail(args, NOT_UNDERSTOOD,
                    "with --store there is no --state: jobs are in Redis, and files in --pictures");
    return DONE;
}

/* The files of a fleet: a shared folder, or a bucket with copies in the state folder. */
static int open_files(const arguments *args, serve_options *o, s3 **bucket, far_files *far) {
    const char *where = args->serve.pictures;
    if (!o->store) return DONE;
    if (!is_bucket(where)) {
        o->state = where;
        return DONE;
    }
    int code = s3_open(args, where, args->serve.s3_endpoint, bucket);
    if (code != DONE) return code;
    *far = s3_files(*bucket);
    o->far_files = far;
    return DONE;
}

/* In a fleet the workers know the models. -m only says which comes first. */
static int name_fleet_models(const arguments *args, serve_options *to) {
    to->n_models = args->serve.models.n;
    if (to->n_models > SERVE_MODELS) return fail(args, NOT_UNDERSTOOD, "at most %d models can be served", SERVE_MODELS);
    for (int i = 0; i < to->n_models; i++) to->models[i] = args->serve.models.all[i];
    return DONE;
}

int serve_command(const arguments *args) {
    char ids[SERVE_MODELS][ID], why[600] = "", threads[24], cache[ENVIRONMENT_PATH];
    char *words[WORKER_WORDS], *state = args->serve.state ? strdup(args->serve.state) : state_path("serve");
    s3 *bucket = NULL;
    far_files far;
    serve_options o = {.inherited = count_inherited(),
                       .state = state,
                       .key_file = args->serve.key_file,
                       .public_url = args->serve.public_url,
                       .keys = environment_value("LAZULI_KEYS"),
                       .cert = args->serve.cert,
                       .cert_key = args->serve.cert_key,
                       .no_auth = args->serve.no_auth,
                       .queue = OR(args->serve.queue, 64),
                       .queue_per_key = OR(args->serve.queue_per_key, 16),
                       .max_pixels = OR(args->serve.max_pixels, 4194304),
                       .max_input_pixels = OR(args->serve.max_input_pixels, 50000000),
                       .max_body = OR(args->serve.max_body, 64 << 20),
                       .queue_timeout = (double)OR(args->serve.queue_timeout, 600),
                       .drain_timeout = (double)OR(args->serve.drain_timeout, 60),
                       .idle_unload = (double)args->serve.idle_unload,
                       .keep_days = OR(args->serve.keep_days, 30),
                       .store = args->serve.store,
                       .store_password = environment_value("LAZULI_STORE_PASSWORD"),
                       .fleet = OR(args->serve.fleet, "lazuli"),
                       .quiet = args->quiet,
                       .log_prompts = args->serve.log_prompts,
                       .strict = args->serve.strict,
                       .cache = environment_cache(cache),
                       .worker = words};
    if (!state) return fail(args, FAILED, "there is no folder for the state; name one with --state DIR");
    for (int i = 0; i < args->serve.hosts.n && i < SERVE_NAMES; i++) o.hosts[i] = args->serve.hosts.all[i];
    for (int i = 0; i < args->serve.origins.n && i < SERVE_NAMES; i++) o.origins[i] = args->serve.origins.all[i];
    for (int i = 0; i < args->serve.listen.n; i++) o.listen[i] = args->serve.listen.all[i];
    if (!o.listen[0] && !o.inherited) o.listen[0] = "127.0.0.1:7860";
    int code = check_addresses(args);
    if (code == DONE) code = read_words(args, &o);
    if (code == DONE) code = check_fleet(args);
    if (code == DONE) code = o.store ? name_fleet_models(args, &o) : name_models(args, ids, &o);
    if (code == DONE) code = open_files(args, &o, &bucket, &far);
    snprintf(threads, sizeof threads, "%lld", (long long)args->threads);
    list_words(args, threads, words);
    if (code == DONE && serve_run(&o, why, sizeof why) != 0) code = fail(args, FAILED, "%s", why);
    s3_close(bucket);
    free(state);
    return code;
}

/* ---- the worker -------------------------------------------------------------------------------------------------- */

typedef struct studio {
    const arguments *args;
    arguments one; /* with the model that is open */
    job job;
    lz_tokenizer *tokenizer; /* opened when it is needed; NULL: not yet, or it cannot be opened */
    bool no_tokenizer;
    char *name; /* of the model, as pictures record it */
} studio;

static bool open_model(void *user, int index, lz_context **ctx, lz_model **model) {
    studio *s = user;
    lz_tokenizer_free(s->tokenizer);
    s->tokenizer = NULL;
    s->no_tokenizer = false;
    job_close(&s->job);
    s->one = with_model(s->args, index);
    if (job_open(&s->job, &s->one) != DONE) {
        job_close(&s->job);
        s->job = (job){.args = s->args};
        return false;
    }
    json_t *settings = settings_of(&s->job, 0, false);
    const char *name = json_string_value(json_object_get(settings, "model"));
    free(s->name);
    s->name = name ? strdup(name) : NULL;
    json_decref(settings);
    *ctx = s->job.ctx;
    *model = s->job.model;
    return true;
}

static int64_t count_tokens(void *user, const char *text) {
    studio *s = user;
    int64_t *ids = NULL, n = 0;
    if (!s->tokenizer && !s->no_tokenizer) s->tokenizer = lz_tokenizer_open_with(s->job.ctx, &s->job.parts, NULL);
    s->no_tokenizer = !s->tokenizer;
    if (!s->tokenizer || lz_tokenize(s->tokenizer, text, strlen(text), &ids, &n, NULL) != LZ_OK) return 0;
    lz_free_ids(s->job.ctx, ids);
    return n;
}

static const char *model_name(void *user) {
    const studio *s = user;
    return s->name ? s->name : "";
}

static const char *device(void *user) { return ((studio *)user)->job.device; }

/* A worker of a fleet, which starts a worker process as serve does. */
static int run_for_fleet(const arguments *args) {
    char ids[SERVE_MODELS][ID], why[600] = "", threads[24], *words[WORKER_WORDS], cache[ENVIRONMENT_PATH];
    char *state = args->serve.state ? strdup(args->serve.state) : state_path("worker");
    s3 *bucket = NULL;
    far_files far;
    serve_options o = {.state = state,
                       .store = args->serve.store,
                       .store_password = environment_value("LAZULI_STORE_PASSWORD"),
                       .fleet = OR(args->serve.fleet, "lazuli"),
                       .drain_timeout = (double)OR(args->serve.drain_timeout, 60),
                       .cache = environment_cache(cache),
                       .worker = words};
    int code = state ? check_fleet(args)
                     : fail(args, FAILED, "there is no folder for the state; name one with --state DIR");
    if (code == DONE) code = name_models(args, ids, &o);
    if (code == DONE) code = open_files(args, &o, &bucket, &far);
    snprintf(threads, sizeof threads, "%lld", (long long)args->threads);
    list_words(args, threads, words);
    if (code == DONE && fleet_worker_run(&o, why, sizeof why) != 0) code = fail(args, FAILED, "%s", why);
    s3_close(bucket);
    free(state);
    return code;
}

static double seconds(void *user, const lz_picture_plan *plan, int64_t width, int64_t height) {
    job *j = &((studio *)user)->job;
    if (!j->estimate.product[0]) estimate_shapes(j);
    j->plan = *plan;
    j->picture.width = width;
    j->picture.height = height;
    j->estimate.seconds = 0;
    estimate_time(j);
    return j->estimate.seconds;
}

int worker_command(const arguments *args) {
    struct stat socket;
    if (args->serve.store) return run_for_fleet(args);
    studio s = {.args = args, .job = {.args = args}};
    worker_engine engine = {.user = &s,
                            .n_models = args->serve.models.n ? args->serve.models.n : 1,
                            .open = open_model,
                            .count_tokens = count_tokens,
                            .model_name = model_name,
                            .device = device,
                            .sampler_title = sampler_title,
                            .memory = memory_here,
                            .seconds = seconds};
    if (fstat(WORKER_SOCKET, &socket) != 0 || !S_ISSOCK(socket.st_mode))
        return fail(args, NOT_UNDERSTOOD, "worker needs --store redis://HOST:PORT/DB, unless 'lazuli serve' starts it");
    return worker_run(WORKER_SOCKET, &engine);
}
