/* pull.c: `lazuli pull`: downloads a model, or single files, from a hub into the Hugging Face cache or another folder. A
 * model of several files may need several repositories.
 *
 * It can be interrupted at any point: downloaded bytes stay in HASH.incomplete files, a file gets its name after its
 * hash is verified, and refs of the cache are updated after all files are complete. */
#include <curl/curl.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cache.h"
#include "progress.h"
#include "pull/heads.h"

enum { CONNECTIONS = 4 };

/* Folder of the incomplete files of --to; removed after the last file. */
#define WAITING_ROOM ".lazuli-pull"

/* One repository. */
typedef struct pull {
    const arguments *args;
    hub hub;
    char *root;   /* --to, or models--OWNER--REPO; owned */
    char *folder; /* final folder of the model; owned */
    int lock;
    part *parts;
    get *gets;
} pull;

/* ---- places ------------------------------------------------------------------------------------------------------ */

static bool is_cached(const pull *p) { return !p->args->to; }

static int no_memory(const pull *p) { return fail(p->args, FAILED, "out of memory"); }

static int choose_root(pull *p) {
    if (p->args->to && !*p->args->to) return fail(p->args, NOT_UNDERSTOOD, "--to needs the name of a folder");
    char *cache = is_cached(p) ? hub_cache() : NULL;
    if (is_cached(p) && !cache)
        return fail(p->args, FAILED,
                    "the folder of the Hugging Face cache is unknown; set HF_HOME, or name a folder with --to");
    p->root = is_cached(p) ? cache_folder(cache, p->hub.repo) : strdup(p->args->to);
    free(cache);
    return p->root ? DONE : no_memory(p);
}

/* Locks the folder, so that only one pull runs at a time. The lock ends with the process. */
static int lock_root(pull *p) {
    char *inside = path_of(p->root, "");
    bool made = inside && make_folders(inside);
    free(inside);
    p->lock = made ? open(p->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (p->lock < 0) return fail(p->args, FAILED, "%s: cannot be created: %s", p->root, strerror(errno));
    if (flock(p->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return fail(p->args, FAILED, "%s: another pull is running there", p->root);
    return DONE;
}

/* The path HASH.incomplete. Files with the same contents may be downloaded at the same time, so they get a number. */
static char *growing_path(const pull *p, size_t i) {
    const hub_file *files = p->hub.files;
    char number[24] = "", *path = NULL;
    for (size_t k = 0; k < i && !*number; k++)
        if (strcmp(files[k].hash, files[i].hash) == 0) snprintf(number, sizeof number, "-%zu", i);
    if (asprintf(&path, "%s/%s%s.incomplete", is_cached(p) ? "blobs" : WAITING_ROOM, files[i].hash, number) < 0)
        return NULL;
    return path;
}

static int plan_part(pull *p, size_t i) {
    hub *h = &p->hub;
    part *t = &p->parts[i];
    get *g = &p->gets[i];
    const char *path = h->files[i].path;
    *t = (part){.file = &h->files[i],
                .root = p->lock,
                .root_name = p->root,
                .fd = -1,
                .trusted = is_cached(p) && !p->args->check};
    *g = (get){.what = path, .sink = &to_part, .to = t, .size = h->files[i].size};
    int n = asprintf(&g->url, "%s/%s/resolve/%s/%s", h->web.endpoint, h->repo, h->commit, path);
    if (n < 0) g->url = NULL;
    t->growing = growing_path(p, i);
    t->whole = is_cached(p) ? path_of("blobs", t->file->hash) : strdup(path);
    if (is_cached(p) && asprintf(&t->link, "snapshots/%s/%s", h->commit, path) < 0) t->link = NULL;
    if (!g->url || !t->growing || !t->whole || (is_cached(p) && !t->link)) return no_memory(p);
    g->have = part_bytes_there(t);
    return DONE;
}

static int plan_parts(pull *p) {
    hub *h = &p->hub;
    p->parts = calloc(h->n, sizeof *p->parts);
    p->gets = calloc(h->n, sizeof *p->gets);
    if (is_cached(p)) {
        if (asprintf(&p->folder, "%s/snapshots/%s", p->root, h->commit) < 0) p->folder = NULL;
    } else {
        p->folder = strdup(p->root);
    }
    if (!p->parts || !p->gets || !p->folder) return no_memory(p);
    int code = DONE;
    for (size_t i = 0; i < h->n && code == DONE; i++) code = plan_part(p, i);
    return code;
}

/* ---- is there room? ---------------------------------------------------------------------------------------------- */

/* Every pull of one command. */
typedef struct errand {
    const arguments *args;
    const char *name; /* of a model of several repositories; or NULL */
    pull *pulls;
    size_t n;
} errand;

typedef struct tally {
    size_t files, unchecked;
    int64_t bytes, unchecked_bytes, wanted; /* wanted: not here yet */
} tally;

static void count(const pull *p, tally *t) {
    t->files += p->hub.n;
    t->bytes += p->hub.bytes;
    for (size_t i = 0; i < p->hub.n; i++) {
        t->wanted += p->gets[i].size - p->gets[i].have;
        t->unchecked += p->parts[i].unchecked;
        t->unchecked_bytes += p->parts[i].unchecked ? p->gets[i].size : 0;
    }
}

static tally count_all(const errand *e) {
    tally t = {0};
    for (size_t i = 0; i < e->n; i++) count(&e->pulls[i], &t);
    return t;
}

/* ", licence apache-2.0"; of several repositories each licence once. */
static void tell_licences(const errand *e, char *to, size_t size) {
    *to = 0;
    for (size_t i = 0; i < e->n; i++) {
        const char *licence = e->pulls[i].hub.licence;
        size_t n = strlen(to);
        if (*licence && !strstr(to, licence)) snprintf(to + n, size - n, "%s%s", n ? " and " : ", licence ", licence);
    }
}

static int check_room(const errand *e) {
    const pull *first = &e->pulls[0];
    struct statvfs s;
    char licences[200], many[48] = "";
    tally t = count_all(e);
    tell_licences(e, licences, sizeof licences);
    if (fstatvfs(first->lock, &s) != 0) return DONE; /* unknown: writing will report it */
    double room = (double)s.f_bavail * (double)s.f_frsize;
    if ((double)t.wanted > room)
        return fail(e->args, FAILED, "%s: the disk has %s free, and %s are needed", first->root,
                    show_bytes((int64_t)room).text, show_bytes(t.wanted).text);
    if (e->n > 1) snprintf(many, sizeof many, " of %zu repositories", e->n);
    if (t.wanted)
        note(e->args, "%s: %zu file%s%s, %s%s; %s to download into %s", e->name ? e->name : first->hub.repo, t.files,
             t.files == 1 ? "" : "s", many, show_bytes(t.bytes).text, licences, show_bytes(t.wanted).text,
             e->n > 1 ? "the Hugging Face cache" : first->folder);
    return DONE;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

/* Writes a small file below root, completely or not at all. */
static bool write_text(int root, const char *path, const char *text) {
    char *beside = NULL;
    const char *name = base_name(path);
    int folder = open_folder_of(root, path), fd = -1;
    if (folder >= 0 && asprintf(&beside, "%s.%ld", name, (long)getpid()) >= 0) {
        unlinkat(folder, beside, 0);
        fd = openat(folder, beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    }
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    good = fd >= 0 && close(fd) == 0 && good && renameat(folder, beside, folder, name) == 0;
    int why = errno;
    if (fd >= 0 && !good) unlinkat(folder, beside, 0);
    if (folder >= 0) close(folder);
    free(beside);
    errno = why;
    return good;
}

static int set_ref(const pull *p) {
    if (is_commit(p->hub.revision)) return DONE; /* a commit has no ref */
    char *path = path_of("refs", p->hub.revision);
    if (!path) return no_memory(p);
    int code = DONE;
    if (!write_text(p->lock, path, p->hub.commit))
        code = fail(p->args, FAILED, "%s/%s: cannot be written: %s", p->root, path, why_not_written());
    free(path);
    return code;
}

/* Removes the folder of incomplete files. A link of that name is not touched. */
static void drop_waiting_room(const pull *p) {
    int fd = openat(p->lock, WAITING_ROOM, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (ends_in(e->d_name, ".incomplete")) unlinkat(fd, e->d_name, 0); /* of other revisions */
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
    unlinkat(p->lock, WAITING_ROOM, AT_REMOVEDIR); /* fails for a link */
}

static json_t *repository_json(const pull *p) {
    const hub *h = &p->hub;
    tally t = {0};
    count(p, &t);
    json_t *paths = json_array();
    for (size_t i = 0; i < h->n && h->n_wanted; i++) {
        char *path = path_of(p->folder, h->files[i].path);
        json_array_append_new(paths, json_text(path));
        free(path);
    }
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:o}", "model", h->repo, "revision", h->revision,
                     "commit", h->commit, "licence", h->licence, "folder", json_text(p->folder), "files",
                     (json_int_t)h->n, "bytes", (json_int_t)h->bytes, "received", (json_int_t)h->web.received,
                     "checked", (json_int_t)(h->bytes - t.unchecked_bytes), "paths", paths);
}

static int report_json(const errand *e) {
    if (!e->name) return print_json(e->args, repository_json(&e->pulls[0]));
    json_t *list = json_array();
    for (size_t i = 0; i < e->n; i++) json_array_append_new(list, repository_json(&e->pulls[i]));
    return print_json(e->args, json_pack("{s:s, s:o}", "model", e->name, "repositories", list));
}

/* How to use each single file. */
static void tell_uses(const pull *p) {
    lz_error err = {.status = LZ_OK};
    lz_context *ctx = open_for_files(&err);
    for (size_t i = 0; i < p->hub.n && ctx; i++) {
        const char *name = p->hub.files[i].path;
        char *path = path_of(p->folder, name);
        lz_file_facts facts;
        const char *use = NULL;
        if (path && !is_small_kind(name) && lz_file_about(ctx, path, &facts, &err) == LZ_OK) use = option_for(&facts);
        if (use && is_cached(p))
            say(stdout, "    %s %s/%s  %s\n", use, p->hub.repo, name, facts.lora ? "a LoRA" : facts.what);
        else if (use)
            say(stdout, "    %s %s  %s\n", use, path, facts.lora ? "a LoRA" : facts.what);
        free(path);
    }
    lz_close(ctx);
}

/* Reports the result. "Checked" means that this run has computed the hash. */
static int report(const errand *e) {
    if (e->args->json) return report_json(e);
    if (e->args->quiet) return DONE;
    tally t = count_all(e);
    size_t new = t.files - t.unchecked;
    say(stdout, "%s  ", e->name ? e->name : e->pulls[0].folder);
    if (new)
        printf("%zu file%s, %s, checked%s", new, new == 1 ? "" : "s", show_bytes(t.bytes - t.unchecked_bytes).text,
               t.unchecked ? "; " : "\n");
    if (t.unchecked)
        printf("%zu file%s, %s, were there before and were not checked (--check does)\n", t.unchecked,
               t.unchecked == 1 ? "" : "s", show_bytes(t.unchecked_bytes).text);
    if (e->name)
        say(stdout, "    -m %s\n", e->name);
    else if (e->pulls[0].hub.n_wanted)
        tell_uses(&e->pulls[0]);
    return DONE;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Everything before the download. */
static int prepare(pull *p) {
    int code = choose_root(p);
    if (code == DONE) code = hub_ask(&p->hub);
    if (code == DONE) code = lock_root(p);
    if (code == DONE) code = plan_parts(p);
    return code == DONE && p->hub.n_wanted ? heads_check(&p->hub, p->gets) : code;
}

static int download(pull *p) {
    bool shown = !p->args->quiet && isatty(STDERR_FILENO);
    int code = web_run(&p->hub.web, p->gets, p->hub.n, CONNECTIONS, shown ? p->hub.bytes : 0);
    if (code == DONE && is_cached(p)) code = set_ref(p);
    if (code == DONE && !is_cached(p)) drop_waiting_room(p);
    return code;
}

static void close_pull(pull *p) {
    for (size_t i = 0; i < p->hub.n; i++) {
        if (p->gets) free(p->gets[i].url);
        if (!p->parts) continue;
        free(p->parts[i].growing);
        free(p->parts[i].whole);
        free(p->parts[i].link);
    }
    free(p->parts);
    free(p->gets);
    free(p->root);
    free(p->folder);
    if (p->lock >= 0) close(p->lock);
    hub_close(&p->hub);
}

static int run(errand *e) {
    int code = DONE;
    for (size_t i = 0; i < e->n && code == DONE; i++) code = prepare(&e->pulls[i]);
    if (code == DONE) code = check_room(e);
    for (size_t i = 0; i < e->n && code == DONE; i++) code = download(&e->pulls[i]);
    return code == DONE ? report(e) : code;
}

/* ---- which repositories and files -------------------------------------------------------------------------------- */

static int open_pull(pull *p, const arguments *args, const char *repo, const char *const *files, size_t n) {
    *p = (pull){.args = args, .lock = -1};
    int code = hub_open(&p->hub, args, repo);
    p->hub.wanted = files;
    p->hub.n_wanted = n;
    return code;
}

static int open_repository(errand *e, pull *to) {
    const arguments *args = e->args;
    const char *name = args->words[0], *repo = repo_of(name);
    const known_model *near = repo ? NULL : nearest_known(name);
    if (near) return fail(args, NOT_UNDERSTOOD, "there is no model '%s'; did you mean %s?", name, near->name);
    if (!repo)
        return fail(args, NOT_UNDERSTOOD, "'%s' is neither OWNER/REPO nor a short name like %s", name,
                    first_known()->name);
    e->n = 1;
    return open_pull(to, args, repo, (const char *const *)args->words + 1, (size_t)args->n_words - 1);
}

enum { MOST_PARTS = 8 };

/* The files of a set, by repository. */
typedef struct sources {
    pull pulls[MOST_PARTS];
    const char *files[MOST_PARTS][MOST_PARTS];
} sources;

/* A published model of several files, in the order of its repositories. */
static int open_set(errand *e, sources *s, const known_model *model) {
    const arguments *args = e->args;
    if (args->n_words > 1)
        return fail(args, NOT_UNDERSTOOD, "%s is a model of several files, and files are named after OWNER/REPO",
                    model->name);
    if (args->to || args->revision)
        return fail(args, NOT_UNDERSTOOD, "%s has files of several repositories, so --%s cannot be used", model->name,
                    args->to ? "to" : "revision");
    e->name = model->name;
    int code = DONE;
    for (const known_part *file = model->parts; file->repo && code == DONE; file++) {
        size_t i = 0;
        while (i < e->n && strcmp(s->pulls[i].hub.repo, file->repo) != 0) i++;
        if (i == e->n) {
            e->n++;
            code = open_pull(&s->pulls[i], args, file->repo, s->files[i], 0);
        }
        s->files[i][s->pulls[i].hub.n_wanted++] = file->file;
    }
    return code;
}

int pull_command(const arguments *args) {
    const known_model *known = known_by(args->words[0]);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return fail(args, FAILED, "libcurl cannot be used here");
    sources *s = calloc(1, sizeof *s);
    if (!s) return fail(args, FAILED, "out of memory");
    errand e = {.args = args, .pulls = s->pulls};
    stop_on_signals();
    signal(SIGPIPE, SIG_IGN); /* writing to a broken connection returns an error instead */
    int code = known && known->parts ? open_set(&e, s, known) : open_repository(&e, &s->pulls[0]);
    if (code == DONE) code = run(&e);
    for (size_t i = 0; i < e.n; i++) close_pull(&e.pulls[i]);
    free(s);
    curl_global_cleanup();
    return code;
}
