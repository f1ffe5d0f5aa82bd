/* pull.c: `lazuli pull`: downloads a model from a hub into the Hugging Face cache or another folder.
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
#include "pull/hub.h"

enum { CONNECTIONS = 4 };

/* Folder of the incomplete files of --to; removed after the last file. */
#define WAITING_ROOM ".lazuli-pull"

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

static int check_room(const pull *p) {
    struct statvfs s;
    int64_t wanted = 0;
    for (size_t i = 0; i < p->hub.n; i++) wanted += p->gets[i].size - p->gets[i].have;
    if (fstatvfs(p->lock, &s) != 0) return DONE; /* unknown: writing will report it */
    double room = (double)s.f_bavail * (double)s.f_frsize;
    if ((double)wanted > room)
        return fail(p->args, FAILED, "%s: the disk has %s free, and %s are needed", p->root,
                    show_bytes((int64_t)room).text, show_bytes(wanted).text);
    if (wanted)
        note(p->args, "%s: %zu files, %s; %s to download into %s", p->hub.repo, p->hub.n, show_bytes(p->hub.bytes).text,
             show_bytes(wanted).text, p->folder);
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

/* Reports the result. "Checked" means that this run has computed the hash. */
static int report(const pull *p) {
    const hub *h = &p->hub;
    size_t old = 0;
    int64_t old_bytes = 0;
    for (size_t i = 0; i < h->n; i++) {
        old += p->parts[i].unchecked;
        old_bytes += p->parts[i].unchecked ? p->gets[i].size : 0;
    }
    if (p->args->json)
        return print_json(p->args,
                          json_pack("{s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:I}", "model", h->repo, "revision",
                                    h->revision, "commit", h->commit, "folder", json_text(p->folder), "files",
                                    (json_int_t)h->n, "bytes", (json_int_t)h->bytes, "received",
                                    (json_int_t)h->web.received, "checked", (json_int_t)(h->bytes - old_bytes)));
    if (p->args->quiet) return DONE;
    say(stdout, "%s  ", p->folder);
    if (old < h->n)
        printf("%zu file%s, %s, checked%s", h->n - old, h->n - old == 1 ? "" : "s",
               show_bytes(h->bytes - old_bytes).text, old ? "; " : "\n");
    if (old)
        printf("%zu file%s, %s, were there before and were not checked (--check does)\n", old, old == 1 ? "" : "s",
               show_bytes(old_bytes).text);
    return DONE;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static int pull_all(pull *p) {
    int code = hub_open(&p->hub, p->args);
    if (code == DONE) code = choose_root(p);
    if (code == DONE) code = hub_ask(&p->hub);
    if (code == DONE) code = lock_root(p);
    if (code == DONE) code = plan_parts(p);
    if (code == DONE) code = check_room(p);
    bool shown = !p->args->quiet && lines_move();
    if (code == DONE) code = web_run(&p->hub.web, p->gets, p->hub.n, CONNECTIONS, shown ? p->hub.bytes : 0);
    if (code == DONE && is_cached(p)) code = set_ref(p);
    if (code == DONE && !is_cached(p)) drop_waiting_room(p);
    return code == DONE ? report(p) : code;
}

int pull_command(const arguments *args) {
    pull p = {.args = args, .lock = -1};
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) return fail(args, FAILED, "libcurl cannot be used here");
    stop_on_signals();
    signal(SIGPIPE, SIG_IGN); /* writing to a broken connection returns an error instead */
    int code = pull_all(&p);
    for (size_t i = 0; i < p.hub.n; i++) {
        if (p.gets) free(p.gets[i].url);
        if (!p.parts) continue;
        free(p.parts[i].growing);
        free(p.parts[i].whole);
        free(p.parts[i].link);
    }
    free(p.parts);
    free(p.gets);
    free(p.root);
    free(p.folder);
    if (p.lock >= 0) close(p.lock);
    hub_close(&p.hub);
    curl_global_cleanup();
    return code;
}
