/* weights.c: see weights.h. Large models come as several files and an index.json that maps each name to its file. Files come
 * from strangers: nothing in them is believed until it is checked, and all of it is checked on opening, so that what is listed
 * can be read. The one exception is a type we do not know: the tensor is listed, and is an error only when it is asked for,
 * because the rest of the file is good.
 *
 * Tensors are borrowed from the mapping, which lives as long as the last of them. */
#include "io/weights.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INDEX_LIMIT 100000000                  /* bytes */
#define INDEX_PART LZ_WEIGHTS_ENDING ".index." /* of a variant: model.safetensors.index.fp16.json */

typedef lz_weights_tensor tensor;

static const lz_weights_format *const formats[] = {&lz_format_safetensors};
enum { FORMATS = sizeof formats / sizeof *formats, MAX_FORMATS = 8 };

/* In the order of diffusers, which takes an index before a single file, and of transformers, which does not. */
static const char *const usual_names[] = {LZ_WEIGHTS_DIFFUSERS LZ_WEIGHTS_INDEX, LZ_WEIGHTS_DIFFUSERS LZ_WEIGHTS_ENDING,
                                          LZ_WEIGHTS_TRANSFORMERS LZ_WEIGHTS_ENDING,
                                          LZ_WEIGHTS_TRANSFORMERS LZ_WEIGHTS_INDEX};
enum { USUAL = sizeof usual_names / sizeof *usual_names };

const char *lz_weights_file_name(int i) { return i >= 0 && i < USUAL ? usual_names[i] : NULL; }

typedef struct shard {
    const char *path;
    lz_mapping *map;
    int64_t first; /* of its tensors, while it is read */
} shard;

typedef struct pair {
    const char *key, *value;
} pair;

struct lz_weights {
    lz_context *ctx;
    const lz_weights_format *const *formats; /* until it is open */
    int n_formats;
    lz_bump bump;     /* names, paths, metadata */
    const char *path; /* as given */
    shard *shards;
    int n_shards, shard_room;
    tensor *tensors; /* sorted by name, once all are there */
    int64_t n_tensors, tensor_room;
    pair *metadata;
    int64_t n_metadata, metadata_room;
    bool has_metadata; /* of an earlier shard: the shards of a model repeat each other */
};

/* ---- words for errors -------------------------------------------------------------------------------------------- */

#define BAD(err, path, ...) lz_weights_bad_file(err, path, __VA_ARGS__)

bool lz_weights_bad_file(lz_error *err, const char *path, const char *format, ...) {
    char text[sizeof err->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    lz_fail(err, LZ_BAD_FILE, "%s: %s", LZ_SHOW_TEXT(path), text);
    return false;
}

static bool no_memory(lz_error *err, size_t bytes) {
    lz_out_of_memory(err, (int64_t)bytes);
    return false;
}

json_t *lz_weights_parse(const char *path, const char *what, const char *text, int64_t bytes, lz_error *err) {
    json_error_t why;
    json_t *json = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, &why);
    if (!json) {
        if (json_error_code(&why) == json_error_out_of_memory)
            lz_out_of_memory(err, bytes);
        else
            BAD(err, path, "%s is not valid JSON (%s, byte %d)" LZ_DAMAGED, what, LZ_SHOW_TEXT(why.text), why.position);
    }
    return json;
}

/* ---- growing tables ---------------------------------------------------------------------------------------------- */

/* Makes room for one more element; the table may move. */
static bool grow(lz_context *ctx, void **table, size_t size, int64_t n, int64_t *room, lz_error *err) {
    if (n < *room) return true;
    int64_t wanted = *room ? 2 * *room : 16;
    void *bigger = lz_host_alloc(ctx, (size_t)wanted * size);
    if (!bigger) return no_memory(err, (size_t)wanted * size);
    if (n) memcpy(bigger, *table, (size_t)n * size);
    lz_host_free(ctx, *table);
    *table = bigger;
    *room = wanted;
    return true;
}

static const char *keep_text(lz_weights *w, const char *text, lz_error *err) {
    size_t n = strlen(text) + 1;
    char *copy = lz_bump_alloc(&w->bump, n);
    if (!copy) {
        no_memory(err, n);
        return NULL;
    }
    return memcpy(copy, text, n);
}

/* ---- what formats add -------------------------------------------------------------------------------------------- */

static bool lies_in_file(const tensor *t, const lz_mapping *map) {
    int64_t n = lz_dims_size(t->dims), bytes = t->end - t->begin;
    if (n < 0 || t->begin < 0 || t->end < t->begin || t->end > map->bytes) return false;
    return t->dtype == LZ_DTYPE_COUNT || n * lz_dtype_size((lz_dtype)t->dtype) == bytes;
}

bool lz_weights_add(lz_weights *w, const lz_weights_tensor *t, lz_error *err) {
    const shard *s = &w->shards[w->n_shards - 1];
    if (!lies_in_file(t, s->map))
        return BAD(err, s->path, "tensor '%s' does not lie in the file" LZ_DAMAGED, LZ_SHOW_TEXT(t->name));
    if (!grow(w->ctx, (void **)&w->tensors, sizeof *w->tensors, w->n_tensors, &w->tensor_room, err)) return false;
    tensor copy = *t;
    copy.shard = w->n_shards - 1;
    copy.name = keep_text(w, t->name, err);
    copy.type = copy.name ? keep_text(w, t->type, err) : NULL;
    if (!copy.type) return false;
    w->tensors[w->n_tensors++] = copy;
    return true;
}

bool lz_weights_add_metadata(lz_weights *w, const char *key, const char *value, lz_error *err) {
    if (w->has_metadata) return true;
    if (!grow(w->ctx, (void **)&w->metadata, sizeof *w->metadata, w->n_metadata, &w->metadata_room, err)) return false;
    pair *p = &w->metadata[w->n_metadata];
    p->key = keep_text(w, key, err);
    p->value = keep_text(w, value, err);
    if (!p->key || !p->value) return false;
    w->n_metadata++;
    return true;
}

lz_weights_tensor *lz_weights_added(lz_weights *w, int64_t *n) {
    int64_t first = w->shards[w->n_shards - 1].first;
    *n = w->n_tensors - first;
    return w->tensors ? w->tensors + first : NULL;
}

/* ---- one file ---------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

static const lz_weights_format *format_of(const lz_weights *w, const char *path) {
    for (int i = 0; i < w->n_formats; i++)
        if (ends_with(path, w->formats[i]->ending)) return w->formats[i];
    return w->formats[0];
}

/* Takes over map. Fails after having put it among the shards, so that closing the weights releases it. */
static bool read_shard(lz_weights *w, const char *path, lz_mapping *map, lz_error *err) {
    int64_t room = w->shard_room;
    if (!grow(w->ctx, (void **)&w->shards, sizeof *w->shards, w->n_shards, &room, err)) {
        lz_mapping_release(map);
        return false;
    }
    w->shard_room = (int)room;
    w->shards[w->n_shards++] = (shard){.path = path, .map = map, .first = w->n_tensors};
    w->has_metadata = w->n_metadata > 0;

    static const char lfs[] = "version https://git-lfs";
    if (map->bytes >= (int64_t)sizeof lfs && memcmp(map->data, lfs, sizeof lfs - 1) == 0)
        return BAD(err, path, "is only a Git LFS pointer: fetch the file itself with 'git lfs pull'");
    return format_of(w, path)->read(w, path, map, err);
}

static bool open_shard(lz_weights *w, const char *path, lz_error *err) {
    lz_mapping *map = lz_map_file(w->ctx, path, err);
    const char *kept = map ? keep_text(w, path, err) : NULL;
    if (!kept) {
        lz_mapping_release(map);
        return false;
    }
    return read_shard(w, kept, map, err);
}

/* ---- looking up -------------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const tensor *)a)->name, ((const tensor *)b)->name);
}

static const tensor *find(const lz_weights *w, const char *name) {
    if (!w || !name || !w->n_tensors) return NULL;
    return bsearch(&(tensor){.name = name}, w->tensors, (size_t)w->n_tensors, sizeof *w->tensors, by_name);
}

const lz_weights_tensor *lz_weights_find(const lz_weights *w, const char *name) { return find(w, name); }
const char *lz_weights_path(const lz_weights *w) { return w->path; }

static bool sort_names(lz_weights *w, lz_error *err) {
    if (w->n_tensors) qsort(w->tensors, (size_t)w->n_tensors, sizeof *w->tensors, by_name);
    for (int64_t i = 1; i < w->n_tensors; i++) {
        const tensor *t = &w->tensors[i];
        if (by_name(t - 1, t) == 0)
            return BAD(err, w->shards[t->shard].path, "tensor '%s' is also in %s: a model has each name once",
                       LZ_SHOW_TEXT(t->name), LZ_SHOW_TEXT(w->shards[t[-1].shard].path));
    }
    return true;
}

/* ---- an index and its shards ------------------------------------------------------------------------------------- */

static int find_shard(const lz_weights *w, const char *file) {
    for (int i = w->n_shards - 1; i >= 0; i--) {
        const char *slash = strrchr(w->shards[i].path, '/');
        if (strcmp(slash ? slash + 1 : w->shards[i].path, file) == 0) return i;
    }
    return -1;
}

static bool read_index(lz_weights *w, const char *path, json_t *index, lz_error *err) {
    json_t *map = json_object_get(index, "weight_map");
    if (!json_is_object(map)) return BAD(err, path, "has no weight_map: is this the index of a safetensors model?");
    const char *name;
    json_t *value;
    json_object_foreach(map, name, value) {
        const char *file = json_string_value(value);
        if (!file)
            return BAD(err, path, "gives tensor '%s' a file that is not a string" LZ_DAMAGED, LZ_SHOW_TEXT(name));
        if (!*file || strchr(file, '/') || strcmp(file, ".") == 0 || strcmp(file, "..") == 0)
            return BAD(err, path, "puts tensor '%s' into '%s', which is not a plain file name", LZ_SHOW_TEXT(name),
                       LZ_SHOW_TEXT(file));
        if (find_shard(w, file) >= 0) continue;
        const char *slash = strrchr(path, '/');
        char *folder = lz_host_copy(w->ctx, path);
        if (folder) folder[slash ? slash + 1 - path : 0] = 0;
        char *shard_path = folder ? lz_path_join(w->ctx, folder, file) : NULL;
        bool good = shard_path ? open_shard(w, shard_path, err) : no_memory(err, strlen(path));
        lz_host_free(w->ctx, folder);
        lz_host_free(w->ctx, shard_path);
        if (!good) return false;
    }
    if (!sort_names(w, err)) return false;
    json_object_foreach(map, name, value) {
        const tensor *t = find(w, name);
        if (!t || t->shard != find_shard(w, json_string_value(value)))
            return BAD(err, path,
                       "puts tensor '%s' into '%s', which does not hold it: the files are of different versions",
                       LZ_SHOW_TEXT(name), LZ_SHOW_TEXT(json_string_value(value)));
    }
    return true;
}

static bool open_index(lz_weights *w, const char *path, lz_error *err) {
    lz_mapping *map = lz_map_file(w->ctx, path, err);
    if (!map) return false;
    json_t *index = NULL;
    if (map->bytes > INDEX_LIMIT)
        BAD(err, path, "holds %lld bytes, more than the %d allowed for an index", (long long)map->bytes, INDEX_LIMIT);
    else
        index = lz_weights_parse(path, "the index", map->data, map->bytes, err);
    lz_mapping_release(map);
    bool good = index && read_index(w, path, index, err);
    json_decref(index);
    return good;
}

/* ---- what a path means ------------------------------------------------------------------------------------------- */

static bool is_file(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

/* NULL: there is none with a usual name, or no memory (which *err then says). */
static char *usual_file(lz_context *ctx, const char *folder, lz_error *err) {
    for (int i = 0; i < USUAL; i++) {
        char *path = lz_path_join(ctx, folder, usual_names[i]);
        if (!path) no_memory(err, strlen(folder));
        if (!path || is_file(path)) return path;
        lz_host_free(ctx, path);
    }
    return NULL;
}

static bool is_index(const char *name) { return strstr(name, INDEX_PART) && ends_with(name, ".json"); }

/* The kind of a file: 0 an index, 1 + i one of format i; -1 another. */
static int kind_of(const lz_weights *w, const char *name) {
    if (*name == '.') return -1;
    if (is_index(name)) return 0;
    for (int i = 0; i < w->n_formats; i++)
        if (ends_with(name, w->formats[i]->ending)) return 1 + i;
    return -1;
}

/* The only index, or else the only file of the first format that has any: of a variant (fp16), or with a name of its own. */
static char *only_file(const lz_weights *w, const char *folder, lz_error *err) {
    int count[1 + MAX_FORMATS] = {0}, k = 0;
    char only[1 + MAX_FORMATS][sizeof((struct dirent *)0)->d_name] = {{0}};
    DIR *dir = opendir(folder);
    if (!dir) {
        lz_fail(err, LZ_IO, "%s: cannot be read: %s", LZ_SHOW_TEXT(folder), strerror(errno));
        return NULL;
    }
    for (struct dirent *e; (e = readdir(dir));) {
        int kind = kind_of(w, e->d_name);
        if (kind >= 0 && count[kind]++ == 0) snprintf(only[kind], sizeof only[kind], "%s", e->d_name);
    }
    closedir(dir);
    while (k < w->n_formats && !count[k]) k++;
    if (count[k] == 0) {
        lz_fail(err, LZ_NOT_FOUND, "%s: the folder holds no %s file and no *" LZ_WEIGHTS_INDEX, LZ_SHOW_TEXT(folder),
                w->formats[0]->ending);
        return NULL;
    }
    if (count[k] > 1) {
        lz_fail(err, LZ_BAD_ARGUMENT, "%s: the folder holds %d files *%s: name the one to open", LZ_SHOW_TEXT(folder),
                count[k], k ? w->formats[k - 1]->ending : LZ_WEIGHTS_INDEX);
        return NULL;
    }
    char *path = lz_path_join(w->ctx, folder, only[k]);
    if (!path) no_memory(err, strlen(folder));
    return path;
}

static bool open_path(lz_weights *w, const char *path, lz_error *err) {
    return ends_with(path, ".json") ? open_index(w, path, err) : open_shard(w, path, err) && sort_names(w, err);
}

static lz_weights *new_weights(lz_context *ctx, const char *path, lz_error *err) {
    if (!ctx || !path) {
        lz_fail(err, LZ_BAD_ARGUMENT, "lz_weights_open: the %s is NULL", ctx ? "path" : "context");
        return NULL;
    }
    lz_weights *w = lz_host_alloc(ctx, sizeof *w);
    if (!w) {
        no_memory(err, sizeof *w);
        return NULL;
    }
    w->ctx = ctx;
    w->bump.ctx = ctx;
    w->formats = formats;
    w->n_formats = FORMATS;
    w->path = keep_text(w, path, err);
    if (w->path) return w;
    lz_weights_close(w);
    return NULL;
}

lz_weights *lz_weights_open(lz_context *ctx, const char *path, lz_error *err) {
    return lz_weights_open_as(ctx, path, formats, FORMATS, err);
}

lz_weights *lz_weights_open_as(lz_context *ctx, const char *path, const lz_weights_format *const *table, int n,
                               lz_error *err) {
    if (n < 1 || n > MAX_FORMATS) {
        lz_fail(err, LZ_BAD_ARGUMENT, "weights are opened by 1 to %d formats, not %d", MAX_FORMATS, n);
        return NULL;
    }
    lz_weights *w = new_weights(ctx, path, err);
    if (!w) return NULL;
    w->formats = table;
    w->n_formats = n;
    struct stat s;
    char *chosen = NULL;
    if (stat(path, &s) == 0 && S_ISDIR(s.st_mode)) {
        lz_error none = {.status = LZ_OK};
        chosen = usual_file(ctx, path, &none);
        if (!chosen && none.status == LZ_OK) chosen = only_file(w, path, &none);
        if (!chosen && err) *err = none;
        path = chosen;
    }
    bool good = path && open_path(w, path, err);
    lz_host_free(ctx, chosen);
    if (good) return w;
    lz_weights_close(w);
    return NULL;
}

lz_weights *lz_weights_open_memory(lz_context *ctx, const char *label, const void *data, int64_t bytes, lz_error *err) {
    lz_weights *w = new_weights(ctx, label, err);
    if (!w) return NULL;
    lz_mapping *map = lz_map_memory(ctx, data, bytes, err);
    if (map && read_shard(w, w->path, map, err) && sort_names(w, err)) return w;
    lz_weights_close(w);
    return NULL;
}

void lz_weights_close(lz_weights *w) {
    if (!w) return;
    for (int i = 0; i < w->n_shards; i++) lz_mapping_release(w->shards[i].map);
    lz_host_free(w->ctx, w->shards);
    lz_host_free(w->ctx, w->tensors);
    lz_host_free(w->ctx, w->metadata);
    lz_bump_free(&w->bump);
    lz_host_free(w->ctx, w);
}

/* ---- what is in it ----------------------------------------------------------------------------------------------- */

int64_t lz_weights_count(const lz_weights *w) { return w ? w->n_tensors : 0; }

const char *lz_weights_name(const lz_weights *w, int64_t i) {
    return w && i >= 0 && i < w->n_tensors ? w->tensors[i].name : NULL;
}

bool lz_weights_has(const lz_weights *w, const char *name) { return find(w, name) != NULL; }

const char *lz_weights_metadata_key(const lz_weights *w, int64_t i) {
    return w && i >= 0 && i < w->n_metadata ? w->metadata[i].key : NULL;
}

const char *lz_weights_metadata(const lz_weights *w, const char *key) {
    for (int64_t i = 0; w && key && i < w->n_metadata; i++)
        if (strcmp(w->metadata[i].key, key) == 0) return w->metadata[i].value;
    return NULL;
}

/* ---- taking tensors ---------------------------------------------------------------------------------------------- */

#define DISTANCE_LIMIT 128

/* How many characters must be added, removed or changed to make one name of the other. */
static int distance(const char *a, size_t n, const char *b, size_t m) {
    int row[DISTANCE_LIMIT + 1];
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]);
            int other = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);
            diagonal = row[j];
            row[j] = change < other ? change : other;
        }
    }
    return row[m];
}

/* The name most like this one, if any is like it at all. A model has some thousand names: a few milliseconds. */
static const char *nearest_name(const lz_weights *w, const char *name) {
    size_t n = strlen(name);
    if (n > DISTANCE_LIMIT || w->n_tensors > 20000) return NULL;
    const char *best = NULL;
    int least = (int)n / 3 + 1;
    for (int64_t i = 0; i < w->n_tensors; i++) {
        const char *other = w->tensors[i].name;
        size_t m = strlen(other);
        if (m > DISTANCE_LIMIT) continue;
        int d = distance(name, n, other, m);
        if (d < least) {
            least = d;
            best = other;
        }
    }
    return best;
}

static lz_array *no_such_tensor(lz_weights *w, const char *name) {
    if (!name)
        return lz_poison(w->ctx, LZ_BAD_ARGUMENT, "%s: a tensor was asked for without a name", LZ_SHOW_TEXT(w->path));
    const char *nearest = nearest_name(w, name);
    return lz_poison(w->ctx, LZ_NOT_FOUND, "%s: there is no tensor '%s'%s%s%s", LZ_SHOW_TEXT(w->path),
                     LZ_SHOW_TEXT(name), nearest ? "; the nearest name is '" : "", nearest ? LZ_SHOW_TEXT(nearest) : "",
                     nearest ? "'" : "");
}

/* A bool is one byte that is 0 or 1, and the kernels rely on it. */
static bool all_bools(const char *data, int64_t n) {
    unsigned char any = 0;
    for (int64_t i = 0; i < n; i++) any |= (unsigned char)data[i];
    return any <= 1;
}

lz_array *(lz_weights_get)(lz_weights *w, const char *name) {
    if (!w) return NULL;
    const tensor *t = find(w, name);
    return t ? lz_weights_get_rows(w, name, 0, -1, t->dims) : no_such_tensor(w, name);
}

lz_array *lz_weights_get_rows(lz_weights *w, const char *name, int64_t first, int64_t rows, lz_dims dims) {
    const tensor *t = find(w, name);
    if (!t) return no_such_tensor(w, name);
    const shard *s = &w->shards[t->shard];
    if (t->dtype == LZ_DTYPE_COUNT)
        return lz_poison(w->ctx, LZ_BAD_TYPE,
                         "%s: tensor '%s' has the type %s, which Lazuli does not read: convert the file",
                         LZ_SHOW_TEXT(s->path), LZ_SHOW_TEXT(name), LZ_SHOW_TEXT(t->type));
    lz_dtype dtype = (lz_dtype)t->dtype;
    int64_t row = t->dims.n && t->dims.at[0] ? (t->end - t->begin) / t->dims.at[0] : 0; /* bytes */
    const char *data = s->map->data + t->begin + (rows < 0 ? 0 : first * row);
    if (dtype == LZ_BOOL && !all_bools(data, t->end - t->begin))
        return lz_poison(w->ctx, LZ_BAD_FILE, "%s: tensor '%s' of type BOOL holds bytes other than 0 and 1" LZ_DAMAGED,
                         LZ_SHOW_TEXT(s->path), LZ_SHOW_TEXT(name));
    /* Nothing makes a writer align its tensors, though all known ones do. */
    if ((uintptr_t)data % (uintptr_t)lz_dtype_size(dtype) != 0) return lz_from(w->ctx, dims, dtype, data);
    return lz_borrow(w->ctx, dims, dtype, data, lz_mapping_release, lz_mapping_retain(s->map));
}

lz_array *(lz_weights_cast)(lz_weights *w, const char *name, lz_dtype dtype) {
    const tensor *t = find(w, name);
    if (!t || t->dtype == (int)dtype) return (lz_weights_get)(w, name);
    lz_scope *scope = lz_scope_begin(w->ctx, "lz_weights_cast");
    lz_array *result = (lz_cast)((lz_weights_get)(w, name), dtype);
    lz_error err;
    lz_status status = lz_eval(result, &err);
    if (status != LZ_OK && lz_check(result, NULL) == LZ_OK) result = lz_poison(w->ctx, status, "%s", err.text);
    result = lz_scope_return(scope, result);
    lz_mapping_drop(w->shards[t->shard].map, t->begin, t->end);
    return result;
}
