/* output.c: names of output files. All errors that can be found before computing are found there. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "progress.h"
#include "shrunk.h"

static const struct {
    const char *ending;
    int64_t side; /* limit of the format */
} kinds[] = {{".png", 65535}, {".jpg", 65535}, {".jpeg", 65535}, {".webp", 16383}};

int64_t picture_side_limit(const char *path) {
    const char *dot = strrchr(base_name(path), '.');
    for (size_t i = 0; dot && i < COUNT(kinds); i++)
        if (strcasecmp(dot, kinds[i].ending) == 0) return kinds[i].side;
    return 0;
}

bool is_tensor_file(const char *path) {
    const char *dot = strrchr(base_name(path), '.');
    return dot && strcasecmp(dot, ".safetensors") == 0;
}

bool is_folder(const char *path) {
    struct stat s;
    return !*base_name(path) || (stat(path, &s) == 0 && S_ISDIR(s.st_mode));
}

char *file_in(const char *folder, const char *name) {
    char *path = NULL;
    bool slash = folder && *base_name(folder);
    return asprintf(&path, "%s%s%s", folder ? folder : "", slash ? "/" : "", name) < 0 ? NULL : path;
}

/* ---- can it be written? ------------------------------------------------------------------------------------------ */

/* Creates the temporary file like the library does, which finds a folder without write permission, a name that is too
 * long, or a disk without free inodes. */
static int try_part(const arguments *args, const char *path) {
    char part[PATH_MAX + 48];
    bool fits = name_part(path, part, sizeof part) > 0;
    int fd = fits ? open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    if (!fits || (fd < 0 && errno == ENAMETOOLONG))
        return fail(args, FAILED, "%.40s...: the name is too long; the limit is about 230 bytes", base_name(path));
    if (fd < 0) return fail(args, FAILED, "%s: cannot be written into this folder: %s", path, strerror(errno));
    close(fd);
    unlink(part);
    return DONE;
}

int check_output(const arguments *args, const char *path) {
    struct stat s;
    bool is_link = lstat(path, &s) == 0 && S_ISLNK(s.st_mode), exists = stat(path, &s) == 0;
    if (is_folder(path)) return fail(args, FAILED, "%s: is a folder; add the name of a file", path);
    if (strrchr(base_name(path), '.') == base_name(path))
        return fail(args, NOT_UNDERSTOOD, "%s: has no name before %s", path, base_name(path));
    if (exists && !S_ISREG(s.st_mode))
        return fail(args, FAILED, "%s: is a device or a pipe; name a file, or use -o - for stdout", path);
    if (exists && access(path, W_OK) != 0)
        return fail(args, FAILED, "%s: exists and cannot be overwritten: %s", path, strerror(errno));
    if (!exists && is_link) return fail(args, FAILED, "%s: is a broken link; remove it, or choose another name", path);
    char *folder = folder_of(path);
    if (!folder) return fail(args, FAILED, "out of memory");
    int code = stat(folder, &s) == 0 || errno == ENAMETOOLONG
                   ? DONE
                   : fail(args, FAILED, "%s: cannot be written: %s: %s; create the folder first", path, folder,
                          strerror(errno));
    free(folder);
    return code == DONE ? try_part(args, path) : code;
}

int check_free(const arguments *args, const char *path, int64_t bytes) {
    struct statvfs disk;
    char *folder = folder_of(path);
    bool known = folder && statvfs(folder, &disk) == 0 && disk.f_blocks;
    free(folder);
    if (!known) return DONE; /* unknown: writing will report it */
    int64_t room = (int64_t)((geteuid() ? disk.f_bavail : disk.f_bfree) * disk.f_frsize);
    if (room >= bytes) return DONE;
    return fail(args, FAILED, "%s: the disk has %s free, and up to %s are needed", path, show_bytes(room).text,
                show_bytes(bytes).text);
}

/* ---- is it read? ------------------------------------------------------------------------------------------------- */

static bool is_same_file(const char *a, const char *b) {
    struct stat s, t;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

static int refuse_read(const arguments *args, const char *path) {
    return fail(args, NOT_UNDERSTOOD,
                "%s is an input of this picture and would be overwritten; choose another name for the output", path);
}

/* FILE[=WEIGHT] */
static bool is_same_lora(const char *lora, const char *path) {
    char *file = strndup(lora, strcspn(lora, "="));
    bool same = is_same_file(lora, path) || (file && is_same_file(file, path));
    free(file);
    return same;
}

int check_unread(const arguments *args, const char *also, const char *path) {
    bool is_read = (also && is_same_file(also, path)) || (args->noise && is_same_file(args->noise, path)) ||
                   (args->mask && is_same_file(args->mask, path));
    for (int i = 0; i < args->n_images; i++) is_read = is_read || is_same_file(args->images[i], path);
    for (int i = 0; i < args->n_loras; i++) is_read = is_read || is_same_lora(args->loras[i], path);
    return is_read ? refuse_read(args, path) : DONE;
}

/* ---- is it written once? ----------------------------------------------------------------------------------------- */

/* The absolute path, with links resolved: of the file if it exists, otherwise of its folder. Owned. */
static char *full_name(const char *path) {
    char *full = realpath(path, NULL), *folder = full ? NULL : folder_of(path),
         *there = folder ? realpath(folder, NULL) : NULL;
    if (there && asprintf(&full, "%s/%s", there[1] ? there : "", base_name(path)) < 0) full = NULL;
    free(folder);
    free(there);
    return full;
}

static const char step_mark[] = "-step-"; /* DIR/SEED-step-NN.png: see keep_step */

/* The line of the batch that claimed the file, 0 outside of a batch; -1: not claimed. */
static int64_t claimed_by(const json_t *claimed, const char *full, const char *inode) {
    const char *mark = strstr(base_name(full), step_mark);
    char *steps = mark ? strndup(full, (size_t)(mark - full) + strlen(step_mark)) : NULL;
    const json_t *line = json_object_get(claimed, full);
    if (!line && *inode) line = json_object_get(claimed, inode);
    if (!line && steps) line = json_object_get(claimed, steps);
    free(steps);
    return line ? json_integer_value(line) : -1;
}

static void show_inode(const char *path, char to[48]) {
    struct stat s;
    *to = 0;
    if (stat(path, &s) == 0) snprintf(to, 48, "%llu:%llu", (unsigned long long)s.st_dev, (unsigned long long)s.st_ino);
}

bool is_claimed(const json_t *claimed, const char *path) {
    char *full = full_name(path), inode[48];
    show_inode(path, inode);
    bool taken = full && claimed_by(claimed, full, inode) >= 0;
    free(full);
    return taken;
}

static int refuse_twice(const arguments *args, const char *path, int64_t line) {
    if (line != args->line)
        return fail(args, FAILED, "%s is already written by line %lld; put {line} or {seed} into the name", path,
                    (long long)line);
    return fail(args, NOT_UNDERSTOOD, "%s would be written twice; give each output another name", path);
}

int claim_output(const arguments *args, json_t *claimed, const char *path) {
    char *full = full_name(path), inode[48];
    if (!full) return fail(args, FAILED, "%s: cannot be written: %s", path, strerror(errno));
    show_inode(path, inode);
    int64_t line = claimed_by(claimed, full, inode);
    if (line < 0) json_object_set_new(claimed, full, json_integer(args->line));
    if (line < 0 && *inode) json_object_set_new(claimed, inode, json_integer(args->line));
    free(full);
    return line < 0 ? DONE : refuse_twice(args, path, line);
}

void claim_inputs(const arguments *args, json_t *inputs) {
    for (int i = -2; i < args->n_images; i++) {
        const char *path = i == -2 ? args->noise : i == -1 ? args->mask : args->images[i];
        char *full = path ? full_name(path) : NULL, inode[48];
        if (!full) continue;
        show_inode(path, inode);
        if (!json_object_get(inputs, full)) json_object_set_new(inputs, full, json_integer(args->line));
        if (*inode && !json_object_get(inputs, inode)) json_object_set_new(inputs, inode, json_integer(args->line));
        free(full);
    }
}

int check_inputs(const arguments *args, const json_t *inputs, const char *path) {
    char *full = full_name(path), inode[48];
    show_inode(path, inode);
    int64_t line = full ? claimed_by(inputs, full, inode) : -1;
    free(full);
    if (line < 0 || line == args->line) return DONE;
    return fail(args, FAILED,
                "%s is an input of line %lld and would be overwritten; choose another name for the output", path,
                (long long)line);
}

int claim_steps(const arguments *args, json_t *claimed, int64_t seed) {
    char *name = strdup(args->steps_dir), *all = NULL, *first = NULL;
    for (size_t n = name ? strlen(name) : 0; n > 1 && name[n - 1] == '/';) name[--n] = 0;
    char *folder = name ? full_name(name) : NULL; /* it may not exist yet */
    const char *other;
    json_t *value;
    int64_t line = -1;
    if (folder && asprintf(&all, "%s/%lld%s", folder, (long long)seed, step_mark) < 0) all = NULL;
    if (asprintf(&first, "%s/%lld%s01.png", args->steps_dir, (long long)seed, step_mark) < 0) first = NULL;
    if (all)
        json_object_foreach(claimed, other, value) if (strncmp(other, all, strlen(all)) == 0)
            line = json_integer_value(value);
    if (all && line < 0) json_object_set_new(claimed, all, json_integer(args->line));
    int code = !all || !first ? fail(args, FAILED, "out of memory") : line < 0 ? DONE : refuse_twice(args, first, line);
    for (int i = args->mask ? -1 : 0; i < args->n_images && code == DONE; i++) {
        const char *path = i < 0 ? args->mask : args->images[i];
        char *image = full_name(path);
        if (image && all && strncmp(image, all, strlen(all)) == 0) code = refuse_read(args, path);
        free(image);
    }
    free(name);
    free(folder);
    free(all);
    free(first);
    return code;
}

/* ---- stdout ------------------------------------------------------------------------------------------------------ */

bool is_stdout(const char *path) { return path && strcmp(path, "-") == 0; }

FILE *result_stream(const arguments *args) { return is_stdout(args->output) ? stderr : stdout; }

int check_stdout(const arguments *args, int pictures) {
    if (args->json) return fail(args, NOT_UNDERSTOOD, "-o - and --json both write to stdout; use one of them");
    if (pictures > 1) return fail(args, NOT_UNDERSTOOD, "-o - writes one picture, but %d were asked for", pictures);
    if (isatty(STDOUT_FILENO))
        return fail(args, NOT_UNDERSTOOD, "-o - writes the picture to stdout, which is a terminal; name a file");
    return DONE;
}

lz_status put_picture(lz_context *ctx, const char *path, const lz_image *image, const char *const *text,
                      lz_error *err) {
    if (!is_stdout(path)) return save_image(ctx, path, image, text, err);
    int64_t bytes = 0;
    char *data = lz_image_encode(ctx, ".png", image, text, 0, &bytes, err);
    if (!data) return err->status;
    errno = 0;
    bool written = fwrite(data, 1, (size_t)bytes, stdout) == (size_t)bytes && fflush(stdout) == 0;
    lz_free_text(ctx, data);
    if (written || errno == EPIPE) return LZ_OK; /* flush_output handles a reader that is gone */
    snprintf(err->text, sizeof err->text, "cannot write the output: %s", strerror(errno));
    return err->status = LZ_IO;
}

/* ---- names and reading ------------------------------------------------------------------------------------------- */

char *numbered_path(const char *path, int number) {
    const char *dot = strrchr(base_name(path), '.');
    size_t stem = dot ? (size_t)(dot - path) : strlen(path);
    char *to = NULL;
    return asprintf(&to, "%.*s-%d%s", (int)stem, path, number, path + stem) < 0 ? NULL : to;
}

int read_file(const arguments *args, const char *path, size_t most, char **text, size_t *bytes) {
    bool is_stdin = strcmp(path, "-") == 0;
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return fail(args, FAILED, "%s: cannot be opened: %s", path, strerror(errno));
    if (is_stdin) path = "stdin";
    size_t room = 0, n = 0;
    ssize_t got = 1;
    int code = DONE;
    *text = NULL;
    while (got > 0 && n <= most) {
        if (n == room) {
            char *more = realloc(*text, room = 2 * room + 4096);
            if (!more) break;
            *text = more;
        }
        if (!await_input(fd)) break;
        got = read(fd, *text + n, room - n);
        if (got > 0) n += (size_t)got;
    }
    if (got > 0 && stop_wanted())
        code = fail(args, STOPPED, "stopped");
    else if (got < 0)
        code = fail(args, FAILED, "%s: cannot be read: %s", path, strerror(errno));
    else if (n > most)
        code = fail(args, FAILED, "%s: is too large; the limit is %s", path, show_bytes((int64_t)most).text);
    else if (got > 0)
        code = fail(args, FAILED, "%s: out of memory", path);
    else
        (*text)[n] = 0; /* fits: the last read had free space and reached the end */
    if (!is_stdin) close(fd);
    *bytes = n;
    return code;
}

/* ---- generated names --------------------------------------------------------------------------------------------- */

void remove_layers(const char *path, int n) {
    for (int i = 1; i <= n; i++) {
        char *name = numbered_path(path, i);
        if (name) unlink(name);
        free(name);
    }
}

/* Creates an empty file. false: errno has the reason, which is EEXIST if another output of this run has the name. */
static bool create_empty(const json_t *claimed, const char *path) {
    if (is_claimed(claimed, path)) {
        errno = EEXIST;
        return false;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* The same for a picture and its layers: all files or none. */
static bool create_all(const json_t *claimed, const char *path, int layers) {
    if (!create_empty(claimed, path)) return false;
    for (int i = 1; i <= layers; i++) {
        char *name = numbered_path(path, i);
        bool created = name && create_empty(claimed, name);
        int reason = errno;
        free(name);
        if (created) continue;
        unlink(path);
        remove_layers(path, i - 1);
        errno = reason;
        return false;
    }
    return true;
}

/* Generated names never overwrite a file. The empty files are created here, so that no other process takes the names.
 */
char *reserve_name(const json_t *claimed, char *first, int layers, lz_error *err) {
    char *path = first ? strdup(first) : NULL;
    bool created = false;
    for (int i = 2; path && !(created = create_all(claimed, path, layers)) && errno == EEXIST; i++) {
        free(path);
        path = numbered_path(first, i);
    }
    if (!created) {
        err->status = LZ_IO;
        snprintf(err->text, sizeof err->text, "%s: cannot be written: %s%s", first ? first : "a name", strerror(errno),
                 errno == ENOENT ? "; create the folder first" : "");
        free(path);
        path = NULL;
    }
    free(first);
    return path;
}

char *reserve_path(const json_t *claimed, const char *folder, int64_t seed, int layers, lz_error *err) {
    char name[64];
    snprintf(name, sizeof name, "lazuli-%lld.png", (long long)seed);
    return reserve_name(claimed, file_in(folder, name), layers, err);
}
