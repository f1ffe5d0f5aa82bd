/* album.c: see album.h. */
#include "album.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- folders of sessions ----------------------------------------------------------------------------------------- */

/* $XDG_STATE_HOME, else ~/.local/state. */
char *state_path(const char *below) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char *path = NULL;
    bool own = state && *state == '/';
    if (!own && (!home || *home != '/')) {
        errno = ENOENT;
        return NULL;
    }
    if (asprintf(&path, "%s%s/lazuli/%s", own ? state : home, own ? "" : "/.local/state", below) < 0) return NULL;
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        bool there = mkdir(path, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (there) continue;
        free(path);
        return NULL;
    }
    return path;
}

/* DATE-TIME or DATE-TIME-PID */
static int read_session(const char *name, long *pid) {
    int date, time, end = 0, n = sscanf(name, "%8d-%6d%n-%ld%n", &date, &time, &end, pid, &end);
    return end && !name[end] ? n : 0;
}

static int is_session(const struct dirent *e) {
    long pid;
    return read_session(e->d_name, &pid) >= 2;
}

static bool is_running(const char *session) {
    long pid;
    return read_session(session, &pid) == 3 && (kill((pid_t)pid, 0) == 0 || errno != ESRCH);
}

/* Number of pictures in a session's folder: N.png. removing: deletes them, unfinished ones too, and the folder. */
static int count_pictures(const char *unsaved, const char *session, bool removing) {
    char *folder = file_in(unsaved, session);
    DIR *dir = folder ? opendir(folder) : NULL;
    int n = 0;
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        const char *ending = e->d_name + strspn(e->d_name, "0123456789");
        pid_t pid;
        if (ending == e->d_name || strncmp(ending, ".png", 4) != 0) continue;
        if (ending[4] && !is_part_ending(ending + 4, &pid)) continue;
        n += !ending[4];
        if (removing) unlinkat(dirfd(dir), e->d_name, 0);
    }
    if (dir) closedir(dir);
    if (dir && removing) rmdir(folder); /* fails if other files are in it */
    free(folder);
    return n;
}

/* Renames the folder of a session to its name without the PID, which means that its pictures were reported. Returns the
 * folder's path after that, owned. */
static char *mark_told(const char *unsaved, const char *session) {
    char told[64];
    snprintf(told, sizeof told, "%.*s", (int)(strrchr(session, '-') - session), session);
    char *from = file_in(unsaved, session), *to = file_in(unsaved, told);
    if (from && to && access(to, F_OK) != 0 && rename(from, to) == 0) {
        free(from);
        return to;
    }
    free(to);
    return from;
}

static void tell_folder(const job *j, const char *unsaved, const char *session, int n, const char *which) {
    char *folder = mark_told(unsaved, session);
    if (folder) note(j->args, "%d picture%s %s %s in %s", n, n == 1 ? "" : "s", which, n == 1 ? "is" : "are", folder);
    free(folder);
}

void album_open(album *a, const job *j) {
    struct dirent **sessions = NULL;
    char stamp[32], *unsaved = state_path("unsaved");
    time_t now = time(NULL);
    struct tm parts;
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", localtime_r(&now, &parts));
    snprintf(a->session, sizeof a->session, "%s-%ld", stamp, (long)getpid());
    int n = unsaved ? scandir(unsaved, &sessions, is_session, alphasort) : 0, all = 0;
    for (int i = n - 1; i >= 0; i--) { /* newest first: these are kept */
        const char *session = sessions[i]->d_name;
        bool running = is_running(session);
        int here = count_pictures(unsaved, session, false);
        all += here;
        if (!running && (all > MOST_UNSAVED || !here))
            count_pictures(unsaved, session, true);
        else if (!running && read_session(session, &(long){0}) == 3)
            tell_folder(j, unsaved, session, here, "of a session that was cut off");
        free(sessions[i]);
    }
    free((void *)sessions);
    free(unsaved);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Writes a grid with its settings, as `lazuli grid` does. */
static lz_status write_sheet(const job *j, const kept *k, const char *path, lz_error *err) {
    char software[48];
    snprintf(software, sizeof software, "Lazuli %s", lz_version());
    const char *pairs[] = {"software", software, SHEET_KEY, k->sheet, NULL};
    return save_image(j->ctx, path, &k->image, j->args->no_metadata ? NULL : pairs, err);
}

/* Writes a picture with the settings it was made with. files: paths of its references. with_layers: its layers too */
static lz_status write_kept(const job *session, const kept *k, char *const *files, const char *path, bool with_layers,
                            lz_error *err) {
    arguments args = *session->args;
    job j = *session;
    if (k->sheet) return write_sheet(&j, k, path, err);
    if (!k->wish.prompt) return save_image(j.ctx, path, &k->image, NULL, err);
    j.args = &args;
    j.picture.prompt = k->prompt ? k->prompt : k->wish.prompt;
    args.template = template_of(&args, k->wish.prompt);
    j.loras = k->loras;
    j.loras_ordinary = k->loras_ordinary;
    j.picture.width = k->image.width;
    j.picture.height = k->image.height;
    j.picture.steps = k->schedule_steps;
    j.picture.guidance = k->guidance;
    j.picture.sampler = k->sampler;
    j.picture.schedule = k->schedule;
    j.picture.shift = k->shift;
    j.picture.cache = k->cache;
    j.picture.guidance_from = k->guidance_range[0];
    j.picture.guidance_to = k->guidance_range[1];
    j.picture.guidance_every = k->guidance_every;
    args.strength = k->strength;
    args.mask = k->mask;
    args.extend = k->extend;
    if (repaints(&args)) {
        j.picture.width = k->width;
        j.picture.height = k->height;
        args.width = args.height = k->by_image ? 0 : k->width;
    }
    args.n_images = k->wish.n_references;
    for (int i = 0; i < args.n_images; i++) args.images[i] = files[i];
    lz_picture p = {
        .image = k->image, .steps = k->steps, .passes = k->passes, .forecast = k->forecast, .guidance = k->guidance};
    if (with_layers) {
        p.layers = k->layers.layers;
        p.n_layers = k->layers.n_layers;
    }
    j.picture.layers = k->layers.n_layers;
    return write_picture(&j, &p, k->wish.seed, path, err);
}

/* Writes the copies of a picture's references, then its own, below the state folder. False: err has the reason. */
static bool write_copy(album *a, const job *j, kept *k, lz_error *err) {
    char name[96], *files[LZ_MAX_IMAGES];
    if (k->copy) return true;
    for (int i = 0; i < k->wish.n_references; i++) {
        kept *reference = &a->pictures[k->wish.references[i]];
        if (!write_copy(a, j, reference, err)) return false;
        files[i] = reference->copy;
    }
    snprintf(name, sizeof name, "unsaved/%s/%d.png", a->session, (int)(k - a->pictures) + 1);
    k->copy = state_path(name);
    if (k->copy && write_kept(j, k, files, k->copy, false, err) == LZ_OK) return true;
    if (!k->copy) snprintf(err->text, sizeof err->text, "no folder could be made for them: %s", strerror(errno));
    free(k->copy);
    k->copy = NULL;
    return false;
}

/* Writes the copy of a picture, so that it is not lost. If that fails, the user is told once. */
static void protect(album *a, const job *j, kept *k) {
    lz_error err = {.status = LZ_OK};
    if (a->homeless || write_copy(a, j, k, &err)) return;
    a->homeless = true;
    note(j->args, "pictures that are not saved will be lost at the end: %s", err.text);
}

/* Is there a file with exactly these pixels that a picture saved as `path` can refer to? It must be in the same folder,
 * because settings record only the names of files. */
static bool is_beside(const job *j, const kept *k, const char *path) {
    if (!k->path || !k->exact || access(k->path, R_OK) != 0) return false;
    if (j->args->full_paths) return true;
    char *folder = folder_of(path), *full = folder ? realpath(folder, NULL) : NULL;
    size_t length = (size_t)(base_name(k->path) - k->path);
    bool same = full && strlen(full) + 1 == length && memcmp(full, k->path, length - 1) == 0;
    free(folder);
    free(full);
    return same;
}

static int save_as(album *a, const job *j, kept *k, const char *path, const char *stem);

/* Saves references that are not in the same folder as STEM-from-N.png. */
static int save_references(album *a, const job *j, const kept *k, const char *path, const char *stem) {
    int code = DONE;
    for (int i = 0; i < k->wish.n_references && code == DONE; i++) {
        int number = k->wish.references[i];
        kept *reference = &a->pictures[number];
        if (is_beside(j, reference, path)) continue;
        char *first = NULL, *name = NULL;
        lz_error err = {.text = "out of memory"};
        if (asprintf(&first, "%s-from-%d.png", stem, number + 1) >= 0) name = reserve_name(NULL, first, 0, &err);
        code = name ? save_as(a, j, reference, name, stem) : fail(j->args, FAILED, "%s", err.text);
        if (code == DONE)
            say(stdout, "%s  is $%d, from which %s was made\n", name, number + 1, path);
        else if (name)
            unlink(name);
        free(name);
    }
    return code;
}

static int save_as(album *a, const job *j, kept *k, const char *path, const char *stem) {
    char *files[LZ_MAX_IMAGES], *full = realpath(path, NULL);
    for (int i = 0; i < a->n && full; i++) { /* a picture whose file is overwritten is no longer saved */
        kept *other = &a->pictures[i];
        if (other == k || !other->path || strcmp(other->path, full) != 0) continue;
        free(other->path);
        other->path = NULL;
        protect(a, j, other);
    }
    free(full);
    lz_error err = {.status = LZ_OK};
    int code = save_references(a, j, k, path, stem);
    if (code != DONE) return code;
    for (int i = 0; i < k->wish.n_references; i++) files[i] = a->pictures[k->wish.references[i]].path;
    if (write_kept(j, k, files, path, true, &err) != LZ_OK) return fail_with(j->args, &err);
    say_on_white(j->args, path, &k->image);
    free(k->path);
    k->path = realpath(path, NULL);
    const char *dot = strrchr(base_name(path), '.');
    k->exact = dot && strcasecmp(dot, ".png") == 0;
    return DONE;
}

int album_save(album *a, const job *j, kept *k, const char *path) {
    if (!picture_side_limit(path))
        return fail(j->args, NOT_UNDERSTOOD, "%s: the name of a picture must end in .png, .jpg or .webp", path);
    int code = check_output(j->args, path);
    if (code != DONE) return code;
    const char *dot = strrchr(base_name(path), '.');
    char *stem = strndup(path, (size_t)(dot - path));
    code = stem ? save_as(a, j, k, path, stem) : fail(j->args, FAILED, "out of memory");
    if (code == DONE) say(stdout, "%s\n", path);
    free(stem);
    return code;
}

/* ---- the pictures ------------------------------------------------------------------------------------------------ */

bool album_has_place(album *a, const job *j) {
    if (a->n < MAX_KEPT) return true;
    fail(j->args, FAILED, "a session keeps at most %d pictures; /undo drops the last one", a->n);
    return false;
}

void album_add(album *a, const job *j, const kept *k) {
    kept *added = &a->pictures[a->n++];
    *added = *k;
    if (!added->path) protect(a, j, added);
}

int album_load(album *a, const job *j, const char *path) {
    lz_error err = {.status = LZ_OK};
    kept k = {.exact = true};
    if (!album_has_place(a, j)) return FAILED;
    if (lz_image_read_alpha(j->ctx, path, &k.image, &err) != LZ_OK) return fail_with(j->args, &err);
    k.path = realpath(path, NULL);
    album_add(a, j, &k);
    say(stdout, "$%d  %lld x %lld, %s\n", a->n, (long long)k.image.width, (long long)k.image.height, path);
    return DONE;
}

static void forget_copy(kept *k) {
    if (k->copy) unlink(k->copy);
    free(k->copy);
    k->copy = NULL;
}

static void forget(const job *j, kept *k) {
    if (k->sheet)
        free(k->image.pixels);
    else
        lz_image_free(j->ctx, &k->image);
    free(k->sheet);
    lz_picture_free(&k->layers);
    free(k->wish.prompt);
    free(k->prompt);
    free(k->loras);
    free(k->mask);
    free(k->extend);
    free(k->path);
    free(k->copy);
}

void album_drop_last(album *a, const job *j) {
    kept *k = &a->pictures[--a->n];
    forget_copy(k);
    forget(j, k);
}

void album_list(const album *a) {
    for (int i = 0; i < a->n; i++) {
        const kept *k = &a->pictures[i];
        printf("$%-3d %lld x %lld, ", i + 1, (long long)k->image.width, (long long)k->image.height);
        if (k->wish.prompt) printf("seed %lld, \"", (long long)k->wish.seed);
        for (int r = 0; r < k->wish.n_references; r++) printf("$%d ", k->wish.references[r] + 1);
        if (k->wish.prompt) say(stdout, "%s\", ", k->wish.prompt);
        if (k->sheet) printf("a grid, ");
        say(stdout, "%s%s\n", k->path ? (k->wish.prompt || k->sheet ? "saved: " : "loaded: ") : "not saved",
            k->path ? k->path : "");
    }
}

/* Removes the copies of saved pictures, unless a copy that is kept refers to them. Returns the number of unsaved
 * pictures. */
static int forget_saved(album *a) {
    int unsaved = 0;
    bool needed[MAX_KEPT] = {false};
    for (int i = a->n - 1; i >= 0; i--) { /* backwards, because references are earlier pictures */
        kept *k = &a->pictures[i];
        unsaved += !k->path && k->copy;
        if (k->path && !needed[i])
            forget_copy(k);
        else
            for (int r = 0; r < k->wish.n_references; r++) needed[k->wish.references[r]] = true;
    }
    return unsaved;
}

void album_close(album *a, const job *j, bool tell) {
    char *unsaved = a->n ? state_path("unsaved") : NULL;
    int lost = 0, n = forget_saved(a);
    for (int i = 0; i < a->n; i++) lost += !a->pictures[i].path && !a->pictures[i].copy;
    if (lost) note(j->args, "%d picture%s not saved, and lost", lost, lost == 1 ? " was" : "s were");
    if (n && unsaved && tell)
        tell_folder(j, unsaved, a->session, n, n == 1 ? "that was not saved" : "that were not saved");
    if (!n && unsaved) count_pictures(unsaved, a->session, true); /* the empty folder */
    free(unsaved);
    while (a->n) forget(j, &a->pictures[--a->n]);
}
