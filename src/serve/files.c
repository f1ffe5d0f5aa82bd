/* files.c: the state folder.
 *
 *     jobs.sqlite      jobs, and what is known of the files
 *     spool/           pictures that the worker is writing
 *     pictures/        ID.png, ID.jpg or ID.webp; appear by renaming, before their row is committed
 *     thumbs/          ID.webp
 *     uploads/         images for jobs, named by the SHA-256 of their bytes */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"
#include "store.h"

static const struct {
    const char *format, *type, *ending;
} formats[] = {{"png", "image/png", ".png"}, {"jpeg", "image/jpeg", ".jpg"}, {"webp", "image/webp", ".webp"}};

const char *format_type(const char *format) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(format, formats[i].format) == 0) return formats[i].type;
    return "application/octet-stream";
}

const char *format_ending(const char *format) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(format, formats[i].format) == 0) return formats[i].ending;
    return ".bin";
}

static bool make_folder(const char *path, char *why, size_t size) {
    char *copy = strdup(path);
    bool good = copy;
    for (char *slash = copy ? strchr(copy + 1, '/') : NULL; good && slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        good = mkdir(copy, 0700) == 0 || errno == EEXIST;
        *slash = '/';
    }
    good = good && (mkdir(path, 0700) == 0 || errno == EEXIST);
    if (!good) snprintf(why, size, "%s: cannot be made: %s", path, strerror(errno));
    free(copy);
    return good;
}

char *file_path(const front *f, const char *folder, const char *name, const char *ending) {
    char *path = NULL;
    return asprintf(&path, "%s/%s/%s%s", f->state, folder, name, ending) < 0 ? NULL : path;
}

/* The path of a file, which is fetched if it is far away and there is no copy here; NULL: it cannot be fetched now. */
static char *near_path(const front *f, const char *folder, const char *name, const char *ending) {
    const far_files *far = f->options->far_files;
    char *path = file_path(f, folder, name, ending), far_name[128];
    if (path && far && access(path, R_OK) != 0) {
        snprintf(far_name, sizeof far_name, "%s/%s%s", folder, name, ending);
        if (far->get(far->user, far_name, path) == FAR_AWAY) {
            free(path);
            return NULL;
        }
    }
    return path;
}

char *picture_path(const front *f, const picture *p) {
    return near_path(f, "pictures", p->id, format_ending(p->format));
}

char *thumb_path(const front *f, const picture *p) { return near_path(f, "thumbs", p->id, ".webp"); }
char *upload_path(const front *f, const char *id) { return near_path(f, "uploads", id, ""); }

char *spool_path(const front *f, const char *name, const char *ending) {
    char *path = NULL;
    return asprintf(&path, "%s/%s%s", f->spool, name, ending) < 0 ? NULL : path;
}

int64_t file_bytes(const front *f, const picture *p) {
    struct stat s;
    char *path = picture_path(f, p);
    bool found = path && stat(path, &s) == 0;
    free(path);
    return found ? s.st_size : 0;
}

/* The folder must belong to this user, and others must not be able to put links into it. */
static bool take_folder(const char *path, char *why, size_t size) {
    struct stat s;
    bool found = stat(path, &s) == 0, ours = found && (s.st_uid == geteuid() || geteuid() == 0);
    bool folder = found && S_ISDIR(s.st_mode), open = found && s.st_mode & S_IWOTH;
    if (folder && ours && !open && chmod(path, 0700) == 0) return true;
    snprintf(why, size, "%s: cannot be used: %s", path,
             !found    ? strerror(errno)
             : !folder ? "it is not a folder"
             : !ours   ? "it belongs to another user; --state names another folder"
             : open    ? "everybody may write there; --state names another folder"
                       : strerror(errno));
    return false;
}

/* Removes what a worker was writing when it was killed. */
void files_clear_spool(const front *f) {
    DIR *folder = opendir(f->spool);
    for (struct dirent *e; folder && (e = readdir(folder));)
        if (strncmp(e->d_name, "pic_", 4) == 0) unlinkat(dirfd(folder), e->d_name, 0);
    if (folder) closedir(folder);
}

/* A link, unlike a rename, leaves a file that another worker made first. Some file systems have no links. */
static bool put_in_place(const char *from, const char *to) {
    if (link(from, to) != 0 && errno != EEXIST) return rename(from, to) == 0;
    unlink(from);
    return true;
}

/* The worker has flushed the file to the disk. */
static bool move(char *from, char *to) {
    bool good = from && to && put_in_place(from, to);
    free(from);
    free(to);
    return good;
}

static bool send_far(front *f, const char *folder, const char *name, const char *ending) {
    const far_files *far = f->options->far_files;
    if (!far) return true;
    char *path = file_path(f, folder, name, ending), far_name[128];
    snprintf(far_name, sizeof far_name, "%s/%s%s", folder, name, ending);
    bool good = path && far->put(far->user, far_name, path);
    free(path);
    return good;
}

bool files_take(front *f, const picture *p) {
    const char *ending = format_ending(p->format);
    return move(spool_path(f, p->id, ending), file_path(f, "pictures", p->id, ending)) &&
           store_files_changed(f, "pictures") && send_far(f, "pictures", p->id, ending);
}

bool files_take_thumb(front *f, const picture *p) {
    return move(spool_path(f, p->id, ".thumb.webp"), file_path(f, "thumbs", p->id, ".webp")) &&
           send_far(f, "thumbs", p->id, ".webp");
}

static void remove_file(front *f, const char *folder, const char *name, const char *ending) {
    const far_files *far = f->options->far_files;
    char *path = file_path(f, folder, name, ending), far_name[128];
    snprintf(far_name, sizeof far_name, "%s/%s%s", folder, name, ending);
    if (path) unlink(path);
    if (far) far->remove(far->user, far_name);
    free(path);
}

void files_remove(front *f, const picture *p) {
    remove_file(f, "pictures", p->id, format_ending(p->format));
    remove_file(f, "thumbs", p->id, ".webp");
}

/* Bytes of a file; 0 if there is none. path: owned, or NULL. */
static int64_t take_size(char *path) {
    struct stat s;
    int64_t bytes = path && lstat(path, &s) == 0 && S_ISREG(s.st_mode) ? (int64_t)s.st_size : 0;
    free(path);
    return bytes;
}

void files_remove_upload(front *f, const char *id) {
    f->upload_bytes -= take_size(file_path(f, "uploads", id, ""));
    remove_file(f, "uploads", id, "");
}

/* Adds up the uploads that are there when the server starts. */
static void count_uploads(front *f) {
    char *path = file_path(f, "uploads", "", "");
    DIR *folder = path ? opendir(path) : NULL;
    struct stat s;
    for (struct dirent *e; folder && (e = readdir(folder));)
        if (fstatat(dirfd(folder), e->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(s.st_mode))
            f->upload_bytes += s.st_size;
    if (folder) closedir(folder);
    free(path);
}

bool files_open(front *f, char *why, size_t size) {
    static const char *const folders[] = {"/spool", "/pictures", "/thumbs", "/uploads"};
    char *path = NULL;
    f->state = strdup(f->options->state);
    bool good = f->state && make_folder(f->state, why, size) && take_folder(f->state, why, size);
    for (size_t i = 0; i < sizeof folders / sizeof *folders && good; i++) {
        good = asprintf(&path, "%s%s", f->state, folders[i]) >= 0 && make_folder(path, why, size);
        free(path);
        path = NULL;
    }
    /* The worker may write into the folder for caches (child.c), but could not make it. It runs without one, too. */
    char unused[200];
    if (good && f->options->cache) make_folder(f->options->cache, unused, sizeof unused);
    char *resolved = good ? realpath(f->state, NULL) : NULL;
    if (!resolved) return false;
    free(f->state);
    f->state = resolved;
    f->spool = file_path(f, "spool", "", "");
    if (!f->spool || !store_open(f, why, size)) return false;
    count_uploads(f);
    bool kept = store_files_changed(f, ""); /* the folders that were made */
    if (!kept) snprintf(why, size, "%s: cannot be opened: %s", f->state, strerror(errno));
    return kept;
}

/* Removes the files of a folder that were last written before the time. */
static void remove_before(const front *f, const char *name, time_t before) {
    char *path = file_path(f, name, "", "");
    DIR *folder = path ? opendir(path) : NULL;
    struct stat s;
    for (struct dirent *e; folder && (e = readdir(folder));)
        if (fstatat(dirfd(folder), e->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(s.st_mode) &&
            s.st_mtime < before)
            unlinkat(dirfd(folder), e->d_name, 0);
    if (folder) closedir(folder);
    free(path);
}

void files_forget(front *f) {
    static const char *const folders[] = {"pictures", "thumbs", "uploads"};
    double now = steady_seconds();
    if (!f->options->far_files || (f->forgot > 0 && now - f->forgot < 600)) return;
    f->forgot = now;
    for (int i = 0; i < 3; i++) remove_before(f, folders[i], (time_t)wall_seconds() - 86400);
}

/* Is a file of the folder that was last written before the time without a row in the store? */
static bool is_left(front *f, DIR *folder, const char *name, const char *file, time_t before) {
    struct stat s;
    char id[65] = "";
    int64_t width, height;
    if (fstatat(dirfd(folder), file, &s, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(s.st_mode) || s.st_mtime >= before)
        return false;
    size_t n = strcspn(file, ".");
    if (n < sizeof id) memcpy(id, file, n);
    if (n >= sizeof id || !is_id(id) || strstr(file, ".part")) return true;
    if (strcmp(name, "uploads") == 0) return !store_find_upload(f->store, id, &width, &height);
    picture p = {.facts = NULL};
    if (!store_find_picture(f->store, id, &p)) return true;
    json_decref(p.facts);
    return p.removed;
}

void files_check(front *f) {
    enum { AT_ONCE = 64 }; /* so that no request waits for it */
    static const char *const folders[] = {"pictures", "thumbs", "uploads"};
    if (!f->store->kind->own_worker) return; /* another server may be about to store its row */
    for (int i = 0; i < AT_ONCE; i++) {
        const char *name = folders[f->checked_folder];
        char *path = f->checked ? NULL : file_path(f, name, "", "");
        if (path) f->checked = opendir(path);
        free(path);
        struct dirent *e = f->checked ? readdir(f->checked) : NULL;
        if (!e) { /* the next one, next time */
            files_check_end(f);
            f->checked_folder = (f->checked_folder + 1) % 3;
            return;
        }
        if (!is_left(f, f->checked, name, e->d_name, (time_t)wall_seconds() - 86400)) continue;
        if (strcmp(name, "uploads") == 0) f->upload_bytes -= take_size(file_path(f, name, e->d_name, ""));
        unlinkat(dirfd(f->checked), e->d_name, 0);
    }
}

void files_check_end(front *f) {
    if (f->checked) closedir(f->checked);
    f->checked = NULL;
}

/* The part has a name of its own, because several servers may get the same file at once. */
static bool write_file(const char *path, const void *data, size_t size) {
    char *part = NULL, id[ID_BYTES];
    make_id(id, "");
    if (asprintf(&part, "%s.%s.part", path, id) < 0) return false;
    bool good = write_whole(part, data, size) && rename(part, path) == 0;
    if (!good) unlink(part);
    free(part);
    return good;
}

bool upload_keep(front *f, const char *name, const void *data, size_t size, char id[65], int64_t *width,
                 int64_t *height, problem *p) {
    if (size > MOST_UPLOAD)
        return set_problem(p, 400, "invalid_image", name, "%s: an image may have 50 MB at most", name);
    if (!measure_image(data, size, width, height))
        return set_problem(p, 400, "invalid_image", name, "%s: it is neither a PNG nor a JPEG nor a WebP picture",
                           name);
    if (!image_is_whole(data, size))
        return set_problem(p, 400, "invalid_image", name, "%s: the picture is damaged: it ends too early", name);
    if (*width > f->options->max_input_pixels / *height)
        return set_problem(p, 400, "invalid_image", name, "%s: %lld x %lld is too large; the most is %lld pixels", name,
                           (long long)*width, (long long)*height, (long long)f->options->max_input_pixels);
    if (disk_is_full(f))
        return set_problem(p, 507, "insufficient_storage", "", "there is too little space on the disk of the server");
    hash_hex(data, size, id);
    char *path = file_path(f, "uploads", id, "");
    int64_t more = (int64_t)size - take_size(file_path(f, "uploads", id, ""));
    if (!uploads_have_room(f, more)) {
        free(path);
        return set_problem(p, 507, "insufficient_storage", name,
                           "%s: the images that clients have sent take too much space; try again in a minute", name);
    }
    bool good = path && write_file(path, data, size) && store_files_changed(f, "uploads") &&
                send_far(f, "uploads", id, "") && store_add_upload(f->store, id, *width, *height);
    free(path);
    if (good) f->upload_bytes += more;
    return good || set_problem(p, 507, "insufficient_storage", "", "the image cannot be stored");
}

char *file_text(const char *path, char *why, size_t size) {
    enum { MOST = 1 << 20 };
    FILE *file = fopen(path, "re");
    char *text = file ? calloc(1, MOST + 1) : NULL;
    size_t n = text ? fread(text, 1, MOST + 1, file) : 0;
    bool good = text && !ferror(file) && n <= MOST;
    if (!good) snprintf(why, size, "%s: cannot be read: %s", path, n > MOST ? "it is too large" : strerror(errno));
    if (file) fclose(file);
    if (good) return text;
    free(text);
    return NULL;
}

/* Less than 1 GiB free, or 5 %, whichever is less. */
bool disk_is_full(front *f) {
    struct statvfs disk;
    if (statvfs(f->state, &disk) != 0) return false;
    double left = (double)disk.f_bavail * (double)disk.f_frsize, all = (double)disk.f_blocks * (double)disk.f_frsize;
    f->no_disk = left < (double)(1 << 30) && left < 0.05 * all;
    return f->no_disk;
}
