/* serve.c: `lazuli serve`, and the worker process that it starts. */
#include "serve/serve.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../album.h"
#include "../cache.h"
#include "../environment.h"
#include "../take.h"
#include "s3.h"
#include "studio.h"

enum { ID = 64, WORKER_WORDS = 64 };

/* ---- models ------------------------------------------------------------------------------------------------------ */

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

/* Adds the models of --all-models to those of -m. names: the owner of their names. */
static int list_models(const arguments *args, arguments *to, json_t **names) {
    int code = DONE;
    *to = *args;
    *names = args->serve.all_models ? complete_models(args, &code) : NULL;
    name_list *list = &to->serve.models;
    for (size_t i = 0; i < json_array_size(*names); i++) {
        const char *name = json_string_value(json_array_get(*names, i));
        bool there = list->n == SERVE_MODELS;
        for (int k = 0; k < list->n; k++) there = there || strcmp(base_name(list->all[k]), base_name(name)) == 0;
        if (!there) list->all[list->n++] = name;
    }
    return code;
}

/* ---- the server -------------------------------------------------------------------------------------------------- */

/* The command line of a worker: this program, with the same models on the same device. */
static void list_words(const arguments *args, char numbers[3][24], char *words[WORKER_WORDS]) {
    static const char *const offloads[] = {"auto", "none", "stream"};
    int n = 0;
    words[n++] = (char *)"/proc/self/exe";
    words[n++] = (char *)"worker";
    for (int i = 0; i < args->serve.models.n; i++) {
        words[n++] = (char *)"-m";
        words[n++] = (char *)args->serve.models.all[i];
    }
    const char *pairs[][2] = {{"--device", args->device},
                              {"--precision", args->precision ? precision_word(args->precision) : NULL},
                              {"--offload", args->offload ? offloads[args->offload] : NULL},
                              {"--threads", args->threads ? numbers[0] : NULL},
                              {"--batch", args->batch ? numbers[1] : NULL},
                              {"--models-loaded", args->serve.models_loaded ? numbers[2] : NULL}};
    snprintf(numbers[0], sizeof numbers[0], "%lld", (long long)args->threads);
    snprintf(numbers[1], sizeof numbers[1], "%lld", (long long)args->batch);
    snprintf(numbers[2], sizeof numbers[2], "%lld", (long long)args->serve.models_loaded);
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

/* Checks the values of --listen, --public-url, --allow-origin and --allow-host. */
static int check_addresses(const arguments *args) {
    const char *url = args->serve.public_url;
    if (!args->serve.cert != !args->serve.cert_key)
        return fail(args, NOT_UNDERSTOOD, "--cert and --cert-key are given together");
    for (int i = -1; i < 0 || args->serve.listen.all[i]; i++) {
        const char *listen = i < 0 ? args->serve.metrics_listen : args->serve.listen.all[i];
        const char *colon = listen ? strrchr(listen, ':') : NULL;
        int64_t port;
        if (listen && strncmp(listen, "unix:", 5) != 0 &&
            (!colon || !whole_number(colon + 1, strlen(colon + 1), 0, 65535, &port)))
            return fail(args, NOT_UNDERSTOOD,
                        "--%slisten takes ADDRESS:PORT, with a port up to 65535, or unix:PATH, not '%s'",
                        i < 0 ? "metrics-" : "", listen);
    }
    if (url && ((strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) || !is_address(url, true)))
        return fail(args, NOT_UNDERSTOOD, "--public-url takes an address such as https://pictures.example, not '%s'",
                    url);
    for (int i = 0; i < args->serve.origins.n; i++)
        if (!is_address(args->serve.origins.all[i], false))
            return fail(args, NOT_UNDERSTOOD,
                        "--allow-origin takes an address such as https://pictures.example, without a path, not '%s'",
                        args->serve.origins.all[i]);
    for (int i = 0; i < args->serve.hosts.n; i++)
        if (!*args->serve.hosts.all[i] || strpbrk(args->serve.hosts.all[i], "/ \t"))
            return fail(args, NOT_UNDERSTOOD,
                        "--allow-host takes a name such as pictures.example, without http://, not '%s'",
                        args->serve.hosts.all[i]);
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

/* Reads --quality: a list such as low=2,high=8. */
static int read_quality(const arguments *args, int to[QUALITIES]) {
    for (const char *at = args->serve.quality; at && *at;) {
        size_t n = strcspn(at, "=,"), i = 0, digits = at[n] == '=' ? strcspn(at + n + 1, ",") : 0;
        int64_t steps = 0;
        while (i < QUALITIES && (strlen(quality_names[i]) != n || strncmp(at, quality_names[i], n) != 0)) i++;
        if (i == QUALITIES || !whole_number(at + n + 1, digits, 1, 200, &steps))
            return fail(args, NOT_UNDERSTOOD,
                        "--quality takes a list such as low=2,high=8, of auto, low, medium, high, xhigh, max, standard "
                        "and hd with 1 to 200 steps, not '%s'",
                        args->serve.quality);
        to[i] = (int)steps;
        at += n + 1 + digits;
        at += *at == ',';
    }
    return DONE;
}

/* Reads a number of bytes, such as 500MB or 10GiB. */
static bool read_bytes(const char *text, int64_t *to) {
    static const struct {
        const char *unit;
        int64_t bytes;
    } units[] = {{"", 1},          {"KB", 1000},     {"MB", 1000000},  {"GB", 1000000000},       {"TB", 1000000000000},
                 {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", (int64_t)1 << 40}};
    size_t n = strspn(text, "0123456789");
    for (size_t i = 0; i < COUNT(units); i++)
        if (strcmp(units[i].unit, text + n) == 0 && whole_number(text, n, 1, INT64_MAX / units[i].bytes, to)) {
            *to *= units[i].bytes;
            return true;
        }
    return false;
}

/* Reads --keep-pictures: DAYS, or DAYS,SIZE; 0 keeps none. */
static int read_keep(const arguments *args, serve_options *to) {
    const char *given = args->serve.keep_pictures, *size = given ? strchr(given, ',') : NULL;
    to->keep_days = 30;
    to->keep_bytes = args->serve.store ? 0 : (int64_t)10 << 30;
    if (!given) return DONE;
    if (!whole_number(given, size ? (size_t)(size - given) : strlen(given), 0, 36500, &to->keep_days) ||
        (size && (!read_bytes(size + 1, &to->keep_bytes) || !to->keep_days)))
        return fail(args, NOT_UNDERSTOOD,
                    "--keep-pictures takes a number of days, perhaps with a size such as 30,10GiB, or 0, not '%s'",
                    given);
    if ((size || !to->keep_days) && args->serve.store)
        return fail(args, NOT_UNDERSTOOD,
                    "with --store, --keep-pictures takes a number of days from 1 on, and no size");
    return DONE;
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

static int serve_models(const arguments *args) {
    char ids[SERVE_MODELS][ID], why[600] = "", numbers[3][24], cache[ENVIRONMENT_PATH];
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
                       .metrics = args->serve.metrics_listen,
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
    if (code == DONE) code = read_quality(args, o.quality_steps);
    if (code == DONE) code = read_keep(args, &o);
    if (code == DONE) code = check_fleet(args);
    if (code == DONE) code = o.store ? name_fleet_models(args, &o) : name_models(args, ids, &o);
    if (code == DONE) code = open_files(args, &o, &bucket, &far);
    list_words(args, numbers, words);
    if (code == DONE && serve_run(&o, why, sizeof why) != 0) code = fail(args, FAILED, "%s", why);
    s3_close(bucket);
    free(state);
    return code;
}

int serve_command(const arguments *args) {
    arguments all;
    json_t *names;
    int code = list_models(args, &all, &names);
    if (code == DONE) code = serve_models(&all);
    json_decref(names);
    return code;
}

/* ---- the worker -------------------------------------------------------------------------------------------------- */

/* A worker of a fleet, which starts a worker process as serve does. */
static int run_for_fleet(const arguments *args) {
    char ids[SERVE_MODELS][ID], why[600] = "", numbers[3][24], *words[WORKER_WORDS], cache[ENVIRONMENT_PATH];
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
    list_words(args, numbers, words);
    if (code == DONE && fleet_worker_run(&o, why, sizeof why) != 0) code = fail(args, FAILED, "%s", why);
    s3_close(bucket);
    free(state);
    return code;
}

int worker_command(const arguments *args) {
    struct stat socket;
    if (args->serve.store) {
        arguments all;
        json_t *names;
        int code = list_models(args, &all, &names);
        if (code == DONE) code = run_for_fleet(&all);
        json_decref(names);
        return code;
    }
    if (fstat(WORKER_SOCKET, &socket) != 0 || !S_ISSOCK(socket.st_mode))
        return fail(args, NOT_UNDERSTOOD, "worker needs --store redis://HOST:PORT/DB, unless 'lazuli serve' starts it");
    return studio_run(args, WORKER_SOCKET);
}
