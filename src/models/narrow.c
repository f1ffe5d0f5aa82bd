/* narrow.c: see narrow.h.
 *
 * A converted file is called by a hash of what it was made from: the path, size and modification time of each file, and
 * the component. It holds the same hash, is written whole or not at all, and belongs to this user; otherwise it is made
 * again. The folder holds at most MOST_BYTES: files that were not opened for the longest time are removed first. A process
 * that was killed leaves a file of another ending, which is removed when nobody has written to it for STALE_SECONDS. */
#include "models/narrow.h"

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

#include "models/convert_inside.h"
#include "models/names.h"

#define MOST_BYTES (INT64_C(64) << 30)
enum { HASH_TEXT = 40, MOST_FILES = 256, STALE_SECONDS = 600 };

/* Components that are quantised, and layers of them that stay wide, besides those that stay wide in every converted file
 * (convert_plan.c): embedders, modulation, the last norm and projection. Autoencoders and vision towers have no row.
 * fp8 has three times the error of rotated int8, which the text encoders cannot afford: the error of the velocity includes
 * that of the text. In FLUX.2 the feed-forward layers of the first two blocks give most error for their time
 * (docs/quality.md). */
typedef const char *const names[6]; /* parts of names of layers, ended by NULL */
static names none = {NULL}, of_flux3 = {"x_embedders.", "timestep_embedder.", NULL},
             of_qwen = {"img_mod.", "txt_mod.", NULL}, of_text = {"visual.", NULL},
             first_blocks = {"transformer_blocks.0.ff.", "transformer_blocks.1.ff.", "double_blocks.0.img_mlp.",
                             "double_blocks.1.img_mlp.", NULL};
static const struct {
    const lz_component *component;
    names *int8, *fp8; /* layers that stay wide; NULL: all */
} rows[] = {
    {&lz_names_flux2, &none, &first_blocks},    {&lz_names_flux3, &of_flux3, &of_flux3},
    {&lz_names_qwen_image, &of_qwen, &of_qwen}, {&lz_names_qwen_image21, &none, &none},
    {&lz_names_z_image, &none, &none},          {&lz_names_qwen3, &of_text, NULL},
    {&lz_names_qwen25, &of_text, NULL},
};

/* NULL: it is not quantised. */
static const char *const *wide_layers(const lz_context *ctx, const lz_component *component) {
    names *wide = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].component == component) wide = ctx->int8 ? rows[i].int8 : ctx->fp8 ? rows[i].fp8 : NULL;
    return wide ? *wide : NULL;
}

/* Has it matrices of that type? Then it is used as it is. */
static bool is_narrow(const lz_weights *w, lz_dtype dtype) {
    for (int64_t i = 0, n = lz_weights_count(w); i < n; i++) {
        const lz_weights_tensor *t = lz_weights_find(w, lz_weights_name(w, i));
        if (t && t->dtype == (int)dtype && t->dims.n == 2) return true;
    }
    return false;
}

/* ---- what a file was made from ----------------------------------------------------------------------------------- */

static void mix(uint64_t hash[2], const void *data, size_t bytes) {
    for (int i = 0; i < 2; i++) hash[i] = lz_hash_from(hash[i], data, bytes);
}

static void name_source(const lz_weights *w, const lz_component *component, const char *precision, char to[HASH_TEXT]) {
    uint64_t hash[2] = {LZ_HASH_START, LZ_HASH_OTHER_START};
    const lz_mapping *map;
    mix(hash, precision, strlen(precision));
    mix(hash, strcmp(precision, "fp8") ? " 1" : " 2", 2); /* another number for another way of quantising */
    mix(hash, component->name, strlen(component->name) + 1);
    for (int i = 0; (map = lz_weights_mapping(w, i)); i++) {
        char *real = map->path ? realpath(map->path, NULL) : NULL;
        const int64_t numbers[] = {map->bytes, (int64_t)map->modified.tv_sec, (int64_t)map->modified.tv_nsec};
        if (real) mix(hash, real, strlen(real) + 1);
        mix(hash, numbers, sizeof numbers);
        free(real);
    }
    snprintf(to, HASH_TEXT, "%016llx%016llx", (unsigned long long)hash[0], (unsigned long long)hash[1]);
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

typedef struct kept_file {
    char name[HASH_TEXT + 16];
    int64_t bytes;
    struct timespec used;
} kept_file;

static int older_first(const void *a, const void *b) {
    const struct timespec *x = &((const kept_file *)a)->used, *y = &((const kept_file *)b)->used;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

static bool ends_in(const char *name, const char *ending) {
    size_t n = strlen(name), m = strlen(ending);
    return n > m && !strcmp(name + n - m, ending);
}

/* Lists the converted files of the folder, oldest first, removes what killed processes left, and returns the number. Files
 * beyond MOST_FILES are not seen. */
static int list_files(DIR *dir, kept_file files[MOST_FILES]) {
    int n = 0;
    struct stat s;
    for (struct dirent *e; n < MOST_FILES && (e = readdir(dir));) {
        if (fstatat(dirfd(dir), e->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(s.st_mode)) continue;
        if (ends_in(e->d_name, LZ_PART_ENDING) && time(NULL) - s.st_mtim.tv_sec > STALE_SECONDS)
            unlinkat(dirfd(dir), e->d_name, 0);
        if (!ends_in(e->d_name, LZ_WEIGHTS_ENDING) || strlen(e->d_name) >= sizeof files->name) continue;
        files[n] = (kept_file){.bytes = s.st_size, .used = s.st_atim};
        memcpy(files[n++].name, e->d_name, strlen(e->d_name) + 1);
    }
    qsort(files, (size_t)n, sizeof *files, older_first);
    return n;
}

/* Removes the files that were not used for the longest time, until `more` bytes fit into the folder and onto the disk. */
static lz_status make_room(lz_context *ctx, int64_t more, lz_error *err) {
    kept_file files[MOST_FILES];
    DIR *dir = opendir(ctx->narrow_folder);
    int n = dir ? list_files(dir, files) : 0;
    int64_t all = more;
    for (int i = 0; i < n; i++) all += files[i].bytes;
    for (int i = 0; i < n && (all > MOST_BYTES || n - i >= MOST_FILES); i++)
        if (unlinkat(dirfd(dir), files[i].name, 0) == 0) all -= files[i].bytes;
    if (dir) closedir(dir);
    struct statvfs disk;
    if (statvfs(ctx->narrow_folder, &disk) != 0 || (double)disk.f_bavail * (double)disk.f_frsize >= (double)more)
        return LZ_OK; /* a disk that does not tell its size fails when it is full */
    return lz_fail(err, LZ_IO, "%s: the quantised weights need %.1f GB, and the disk has %.1f GB free",
                   LZ_SHOW_TEXT(ctx->narrow_folder), (double)more / 1e9,
                   (double)disk.f_bavail * (double)disk.f_frsize / 1e9);
}

/* Opens a converted file, if it is one of this user, whole, and made from the source. NULL: it is not. */
static lz_weights *open_kept(lz_context *ctx, const char *path, const char *source) {
    struct stat s;
    if (lstat(path, &s) != 0 || !S_ISREG(s.st_mode) || s.st_uid != geteuid()) return NULL;
    lz_weights *w = lz_weights_open(ctx, path, NULL);
    const char *from = w ? lz_weights_metadata(w, LZ_CONVERT_SOURCE) : NULL;
    if (from && !strcmp(from, source)) {
        const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
        utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW); /* for make_room */
        return w;
    }
    lz_weights_close(w);
    return NULL;
}

static lz_weights *quantise(lz_context *ctx, const lz_weights *w, const char *path, const lz_component *component,
                            const char *const *wide, lz_error *err) {
    char source[HASH_TEXT], name[HASH_TEXT + 16];
    const char *precision = lz_precision_name(ctx);
    name_source(w, component, precision, source);
    snprintf(name, sizeof name, "%s" LZ_WEIGHTS_ENDING, source);
    char *to = lz_path_join(ctx, ctx->narrow_folder, name);
    if (!to) {
        lz_out_of_memory(err, (int64_t)strlen(ctx->narrow_folder));
        return NULL;
    }
    lz_weights *kept = open_kept(ctx, to, source);
    if (!kept && !lz_make_folders(ctx, ctx->narrow_folder))
        lz_fail(err, LZ_IO, "%s: the folder for quantised weights cannot be made: %s", LZ_SHOW_TEXT(ctx->narrow_folder),
                strerror(errno));
    else if (!kept) {
        lz_tell(ctx, LZ_LOG_REMARK, "%s: quantising the weights to %s; the result is kept in %s", LZ_SHOW_TEXT(path),
                precision, LZ_SHOW_TEXT(ctx->narrow_folder));
        if (lz_convert_narrow(ctx, path, to, wide, source, make_room, err) == LZ_OK)
            kept = lz_weights_open(ctx, to, err);
    }
    lz_host_free(ctx, to);
    return kept;
}

lz_weights *lz_narrow_weights(lz_context *ctx, const char *path, const lz_component *component, lz_error *err) {
    lz_weights *w = lz_weights_open(ctx, path, err);
    const char *const *wide = wide_layers(ctx, component);
    if (!w || !wide || is_narrow(w, ctx->int8 ? LZ_I8 : LZ_F8)) return w;
    lz_weights *kept = NULL;
    if (ctx->narrow_folder)
        kept = quantise(ctx, w, path, component, wide, err);
    else
        lz_fail(err, LZ_BAD_ARGUMENT,
                "%s: its weights are not %s, and quantising them needs a folder for caches (cache_folder), or a file "
                "that `lazuli convert --type %s` made",
                LZ_SHOW_TEXT(path), lz_precision_name(ctx), lz_precision_name(ctx));
    lz_weights_close(w);
    return kept;
}
