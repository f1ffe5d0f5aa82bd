/* narrow.c: see narrow.h.
 *
 * A converted file is called by a hash of what it was made from: the path, size and modification time of each file, and
 * the component. It holds the same hash, is written whole or not at all, and belongs to this user; otherwise it is made
 * again. The folder holds at most MOST_BYTES: files that were not opened for the longest time are removed first. */
#include "models/narrow.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "models/convert_inside.h"
#include "models/names.h"

#define MOST_BYTES (INT64_C(64) << 30)
enum { HASH_TEXT = 40, MOST_FILES = 256 };

/* Components that are quantised, and layers of them that stay wide, besides those that stay wide in every converted file
 * (convert_plan.c): embedders, modulation, the last norm and projection. Autoencoders and vision towers have no row.
 * fp8 has three times the error of rotated int8, which the text encoders cannot afford: the error of the velocity includes
 * that of the text (docs/quality.md). */
static const struct {
    const lz_component *component;
    bool fp8; /* is it quantised to fp8 too? */
    const char *wide[6];
} rows[] = {
    {&lz_names_flux2, true, {NULL}},
    {&lz_names_flux3, true, {"x_embedders.", "timestep_embedder.", NULL}},
    {&lz_names_qwen_image, true, {"img_mod.", "txt_mod.", NULL}},
    {&lz_names_qwen_image21, true, {NULL}},
    {&lz_names_z_image, true, {NULL}},
    {&lz_names_qwen3, false, {"visual.", NULL}},
    {&lz_names_qwen25, false, {"visual.", NULL}},
};

/* NULL: it is not quantised. */
static const char *const *wide_layers(const lz_context *ctx, const lz_component *component) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].component == component && (ctx->int8 || (ctx->fp8 && rows[i].fp8))) return rows[i].wide;
    return NULL;
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

static void mix(uint64_t hash[2], const void *data, size_t bytes) { /* FNV-1a, from two start values */
    for (const unsigned char *p = data, *end = p + bytes; p < end; p++)
        for (int i = 0; i < 2; i++) hash[i] = (hash[i] ^ *p) * UINT64_C(0x100000001b3);
}

static void name_source(const lz_weights *w, const lz_component *component, const char *precision, char to[HASH_TEXT]) {
    uint64_t hash[2] = {UINT64_C(0xcbf29ce484222325), UINT64_C(0x84222325cbf29ce4)};
    const lz_mapping *map;
    mix(hash, precision, strlen(precision));
    mix(hash, " 1", 2); /* another number for another way of quantising */
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

/* Removes the files that were not used for the longest time, until `more` bytes fit. */
static void make_room(const char *folder, int64_t more) {
    kept_file files[MOST_FILES];
    int n = 0;
    int64_t all = more;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && n < MOST_FILES && (e = readdir(dir));) {
        struct stat s;
        size_t length = strlen(e->d_name), ending = strlen(LZ_WEIGHTS_ENDING);
        if (length <= ending || length >= sizeof files->name ||
            strcmp(e->d_name + length - ending, LZ_WEIGHTS_ENDING) ||
            fstatat(dirfd(dir), e->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(s.st_mode))
            continue;
        files[n] = (kept_file){.bytes = s.st_size, .used = s.st_atim};
        memcpy(files[n++].name, e->d_name, length + 1);
        all += s.st_size;
    }
    qsort(files, (size_t)n, sizeof *files, older_first);
    for (int i = 0; dir && i < n && (all > MOST_BYTES || n - i >= MOST_FILES); i++)
        if (unlinkat(dirfd(dir), files[i].name, 0) == 0) all -= files[i].bytes;
    if (dir) closedir(dir);
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

static void make_folder(const char *folder) {
    char path[4096];
    int n = snprintf(path, sizeof path, "%s", folder);
    for (int i = 1; i < n && n < (int)sizeof path; i++) {
        if (path[i] != '/') continue;
        path[i] = 0;
        mkdir(path, 0700);
        path[i] = '/';
    }
    mkdir(folder, 0700);
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
    if (!kept) {
        int64_t bytes = 0;
        const lz_mapping *map;
        for (int i = 0; (map = lz_weights_mapping(w, i)); i++) bytes += map->bytes;
        make_folder(ctx->narrow_folder);
        make_room(ctx->narrow_folder, bytes);
        lz_tell(ctx, LZ_LOG_REMARK, "%s: quantising the weights to %s; the result is kept in %s", LZ_SHOW_TEXT(path),
                precision, LZ_SHOW_TEXT(ctx->narrow_folder));
        if (lz_convert_narrow(ctx, path, to, wide, source, err) == LZ_OK) kept = lz_weights_open(ctx, to, err);
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
