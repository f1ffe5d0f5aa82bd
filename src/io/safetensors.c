/* safetensors.c: weights in files. A safetensors file is
 *
 *     8 bytes    n, little endian
 *     n bytes    a JSON object: name -> {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]},
 *                and maybe "__metadata__" -> {string: string}
 *     the rest   the tensors, row-major, little endian; offsets count from here; no holes, no overlaps
 *
 * Large models come as several such files and an index.json that maps each name to its file. Files come from strangers:
 * nothing in them is believed until it is checked, and all of it is checked on opening, so that what is listed can be
 * read. The one exception is a type we do not know: the tensor is listed, and is an error only when it is asked for,
 * because the rest of the file is good.
 *
 * Tensors are borrowed from the mapping, which lives as long as the last of them. */
#include "io/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "array/internal.h"
#include "io/file.h"

#define HEADER_LIMIT 100000000 /* of the reference implementation */
#define METADATA "__metadata__"
#define INDEX_SUFFIX ".safetensors.index.json"
#define INDEX_PART ".safetensors.index." /* of a variant: model.safetensors.index.fp16.json */
#define DAMAGED ": the file is damaged, download it again"

static const char *const type_names[LZ_DTYPE_COUNT] = {
    [LZ_BOOL] = "BOOL",  [LZ_U8] = "U8",   [LZ_I8] = "I8",     [LZ_I32] = "I32", [LZ_I64] = "I64",
    [LZ_F8] = "F8_E4M3", [LZ_F16] = "F16", [LZ_BF16] = "BF16", [LZ_F32] = "F32", [LZ_F64] = "F64",
};

typedef struct tensor {
    const char *name;
    const char *type; /* as the file has it */
    int dtype;        /* LZ_DTYPE_COUNT: one we do not know */
    lz_dims dims;
    int64_t begin, end; /* from the start of the file */
    int shard;
} tensor;

typedef struct shard {
    const char *path;
    lz_mapping *map;
} shard;

typedef struct pair {
    const char *key, *value;
} pair;

struct lz_weights {
    lz_context *ctx;
    lz_bump bump;     /* names, paths, metadata */
    const char *path; /* as given */
    shard *shards;
    int n_shards, shard_room;
    tensor *tensors; /* sorted by name, once all are there */
    int64_t n_tensors, tensor_room;
    pair *metadata;
    int64_t n_metadata, metadata_room;
};

/* ---- words for errors -------------------------------------------------------------------------------------------- */

/* A BAD_FILE error about the file at path. */
#define BAD(err, path, ...) bad_file(err, path, __VA_ARGS__)
__attribute__((format(printf, 3, 4))) static bool bad_file(lz_error *err, const char *path, const char *format, ...) {
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

/* ---- one header -------------------------------------------------------------------------------------------------- */

static int find_type(const char *name) {
    int i = 0;
    while (i < LZ_DTYPE_COUNT && strcmp(type_names[i], name) != 0) i++;
    return i;
}

/* data: where offsets count from. */
static bool read_tensor(lz_weights *w, const char *path, int64_t data, const char *name, json_t *entry, tensor *t,
                        lz_error *err) {
    int64_t file = w->shards[t->shard].map->bytes;
    json_t *type = json_object_get(entry, "dtype");
    json_t *shape = json_object_get(entry, "shape");
    json_t *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_string(type) || !json_is_array(shape) || !json_is_array(offsets))
        return BAD(err, path, "tensor '%s' lacks a dtype, a shape or data_offsets" DAMAGED, LZ_SHOW_TEXT(name));

    size_t rank = json_array_size(shape);
    if (rank > LZ_MAX_DIMS)
        return BAD(err, path, "tensor '%s' has %zu axes, but %d is the most there can be", LZ_SHOW_TEXT(name), rank,
                   LZ_MAX_DIMS);
    t->dims.n = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return BAD(err, path, "tensor '%s' has a size in its shape that is not an integer from 0 up" DAMAGED,
                       LZ_SHOW_TEXT(name));
        t->dims.at[i] = json_integer_value(size);
    }
    int64_t elements = lz_dims_size(t->dims);
    if (elements < 0)
        return BAD(err, path, "tensor '%s' has the shape %s, larger than any memory" DAMAGED, LZ_SHOW_TEXT(name),
                   LZ_SHOW(t->dims));

    json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return BAD(err, path, "tensor '%s' has data_offsets that are not two integers" DAMAGED, LZ_SHOW_TEXT(name));
    int64_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || begin > end)
        return BAD(err, path, "tensor '%s' has the data_offsets [%lld, %lld], which make no range" DAMAGED,
                   LZ_SHOW_TEXT(name), (long long)begin, (long long)end);
    if (end > file - data) {
        int64_t stop = end > INT64_MAX - data ? INT64_MAX : data + end;
        return BAD(err, path,
                   "tensor '%s' ends at byte %lld but the file holds %lld: the file is truncated, download it again",
                   LZ_SHOW_TEXT(name), (long long)stop, (long long)file);
    }
    t->begin = data + begin;
    t->end = data + end;

    const char *type_name = json_string_value(type);
    t->dtype = find_type(type_name);
    if (t->dtype < LZ_DTYPE_COUNT && elements * lz_dtype_size((lz_dtype)t->dtype) != end - begin)
        return BAD(err, path,
                   "tensor '%s' of type %s and shape %s takes %lld bytes, but its data_offsets hold %lld" DAMAGED,
                   LZ_SHOW_TEXT(name), type_name, LZ_SHOW(t->dims),
                   (long long)(elements * lz_dtype_size((lz_dtype)t->dtype)), (long long)(end - begin));
    t->type = t->dtype < LZ_DTYPE_COUNT ? type_names[t->dtype] : keep_text(w, type_name, err);
    t->name = keep_text(w, name, err);
    return t->type && t->name;
}

static bool read_metadata(lz_weights *w, const char *path, json_t *entries, lz_error *err) {
    bool first = w->n_metadata == 0; /* the shards of a model repeat each other */
    if (!json_is_object(entries)) return BAD(err, path, METADATA " is not an object of strings" DAMAGED);
    const char *key;
    json_t *value;
    json_object_foreach(entries, key, value) {
        if (!json_is_string(value))
            return BAD(err, path, METADATA " holds a value for '%s' that is not a string" DAMAGED, LZ_SHOW_TEXT(key));
        if (!first) continue;
        if (!grow(w->ctx, (void **)&w->metadata, sizeof *w->metadata, w->n_metadata, &w->metadata_room, err))
            return false;
        pair *p = &w->metadata[w->n_metadata];
        p->key = keep_text(w, key, err);
        p->value = keep_text(w, json_string_value(value), err);
        if (!p->key || !p->value) return false;
        w->n_metadata++;
    }
    return true;
}

static int by_place(const void *a, const void *b) {
    const tensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end == y->end ? 0 : x->end < y->end ? -1 : 1;
}

/* Together the tensors must cover the data exactly once. Sorts them by their place. */
static bool check_cover(const char *path, tensor *tensors, int64_t n, int64_t data, int64_t file, lz_error *err) {
    if (n) qsort(tensors, (size_t)n, sizeof *tensors, by_place);
    int64_t at = data;
    for (int64_t i = 0; i < n; i++) {
        const tensor *t = &tensors[i];
        if (t->begin < at)
            return BAD(err, path, "tensors '%s' and '%s' overlap" DAMAGED, LZ_SHOW_TEXT(t[-1].name),
                       LZ_SHOW_TEXT(t->name));
        if (t->begin > at)
            return BAD(err, path, "the %lld bytes before tensor '%s' belong to no tensor" DAMAGED,
                       (long long)(t->begin - at), LZ_SHOW_TEXT(t->name));
        at = t->end;
    }
    if (at < file) return BAD(err, path, "the last %lld bytes belong to no tensor" DAMAGED, (long long)(file - at));
    return true;
}

static bool read_entries(lz_weights *w, const char *path, int number, json_t *header, int64_t data, lz_error *err) {
    if (!json_is_object(header)) return BAD(err, path, "the header is not a JSON object" DAMAGED);
    int64_t before = w->n_tensors;
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry) {
        if (strcmp(name, METADATA) == 0) {
            if (!read_metadata(w, path, entry, err)) return false;
            continue;
        }
        if (!grow(w->ctx, (void **)&w->tensors, sizeof *w->tensors, w->n_tensors, &w->tensor_room, err)) return false;
        tensor t = {.shard = number};
        if (!read_tensor(w, path, data, name, entry, &t, err)) return false;
        w->tensors[w->n_tensors++] = t;
    }
    tensor *added = w->tensors ? w->tensors + before : NULL;
    return check_cover(path, added, w->n_tensors - before, data, w->shards[number].map->bytes, err);
}

static json_t *parse(const char *path, const char *what, const char *text, int64_t bytes, lz_error *err) {
    json_error_t why;
    json_t *json = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, &why);
    if (!json) {
        if (json_error_code(&why) == json_error_out_of_memory)
            lz_out_of_memory(err, bytes);
        else
            BAD(err, path, "%s is not valid JSON (%s, byte %d)" DAMAGED, what, LZ_SHOW_TEXT(why.text), why.position);
    }
    return json;
}

/* Takes over map. Fails after having put it among the shards, so that closing the weights releases it. */
static bool read_shard(lz_weights *w, const char *path, lz_mapping *map, lz_error *err) {
    int64_t room = w->shard_room;
    if (!grow(w->ctx, (void **)&w->shards, sizeof *w->shards, w->n_shards, &room, err)) {
        lz_mapping_release(map);
        return false;
    }
    w->shard_room = (int)room;
    int number = w->n_shards++;
    w->shards[number] = (shard){.path = path, .map = map};

    static const char lfs[] = "version https://git-lfs";
    if (map->bytes >= (int64_t)sizeof lfs && memcmp(map->data, lfs, sizeof lfs - 1) == 0)
        return BAD(err, path, "is only a Git LFS pointer: fetch the file itself with 'git lfs pull'");
    if (map->bytes < 8)
        return BAD(err, path, "holds %lld bytes, too few for a safetensors file: download it again",
                   (long long)map->bytes);
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | (unsigned char)map->data[i];
    if (length > HEADER_LIMIT)
        return BAD(err, path, "claims a header of %llu bytes, more than the %d allowed: is this a safetensors file?",
                   (unsigned long long)length, HEADER_LIMIT);
    if ((int64_t)length > map->bytes - 8)
        return BAD(err, path,
                   "its header ends at byte %lld but the file holds %lld: the file is truncated, download it again",
                   (long long)length + 8, (long long)map->bytes);

    json_t *header = parse(path, "the header", map->data + 8, (int64_t)length, err);
    bool good = header && read_entries(w, path, number, header, 8 + (int64_t)length, err);
    json_decref(header);
    return good;
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
        if (!file) return BAD(err, path, "gives tensor '%s' a file that is not a string" DAMAGED, LZ_SHOW_TEXT(name));
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
    if (map->bytes > HEADER_LIMIT)
        BAD(err, path, "holds %lld bytes, more than the %d allowed for an index", (long long)map->bytes, HEADER_LIMIT);
    else
        index = parse(path, "the index", map->data, map->bytes, err);
    lz_mapping_release(map);
    bool good = index && read_index(w, path, index, err);
    json_decref(index);
    return good;
}

/* ---- what a path means ------------------------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

static bool is_file(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

/* The file with one of the usual names, in the order of diffusers, which takes an index before a single file, and of
 * transformers, which does not. NULL: there is none, or no memory (which *err then says). */
static char *usual_file(lz_context *ctx, const char *folder, lz_error *err) {
    static const char *const names[] = {"diffusion_pytorch_model" INDEX_SUFFIX, "diffusion_pytorch_model.safetensors",
                                        "model.safetensors", "model" INDEX_SUFFIX};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = lz_path_join(ctx, folder, names[i]);
        if (!path) no_memory(err, strlen(folder));
        if (!path || is_file(path)) return path;
        lz_host_free(ctx, path);
    }
    return NULL;
}

static bool is_index(const char *name) { return strstr(name, INDEX_PART) && ends_with(name, ".json"); }

/* The only index, or else the only safetensors file: of a variant (fp16), or with a name of its own. */
static char *only_file(lz_context *ctx, const char *folder, lz_error *err) {
    static const char *const kinds[2] = {INDEX_SUFFIX, ".safetensors"};
    int count[2] = {0};
    char only[2][sizeof((struct dirent *)0)->d_name] = {{0}};
    DIR *dir = opendir(folder);
    if (!dir) {
        lz_fail(err, LZ_IO, "%s: cannot be read: %s", LZ_SHOW_TEXT(folder), strerror(errno));
        return NULL;
    }
    for (struct dirent *e; (e = readdir(dir));)
        for (int k = 0; k < 2; k++)
            if (*e->d_name != '.' && (k ? ends_with(e->d_name, kinds[k]) : is_index(e->d_name)) && count[k]++ == 0)
                snprintf(only[k], sizeof only[k], "%s", e->d_name);
    closedir(dir);

    int k = count[0] ? 0 : 1;
    if (count[k] == 0) {
        lz_fail(err, LZ_NOT_FOUND, "%s: the folder holds no .safetensors file and no *" INDEX_SUFFIX,
                LZ_SHOW_TEXT(folder));
        return NULL;
    }
    if (count[k] > 1) {
        lz_fail(err, LZ_BAD_ARGUMENT, "%s: the folder holds %d files *%s: name the one to open", LZ_SHOW_TEXT(folder),
                count[k], kinds[k]);
        return NULL;
    }
    char *path = lz_path_join(ctx, folder, only[k]);
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
    w->path = keep_text(w, path, err);
    if (w->path) return w;
    lz_weights_close(w);
    return NULL;
}

lz_weights *lz_weights_open(lz_context *ctx, const char *path, lz_error *err) {
    lz_weights *w = new_weights(ctx, path, err);
    if (!w) return NULL;
    struct stat s;
    char *chosen = NULL;
    if (stat(path, &s) == 0 && S_ISDIR(s.st_mode)) {
        lz_error none = {.status = LZ_OK};
        chosen = usual_file(ctx, path, &none);
        if (!chosen && none.status == LZ_OK) chosen = only_file(ctx, path, &none);
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
    if (!t) return no_such_tensor(w, name);
    const shard *s = &w->shards[t->shard];
    if (t->dtype == LZ_DTYPE_COUNT)
        return lz_poison(w->ctx, LZ_BAD_TYPE,
                         "%s: tensor '%s' has the type %s, which Lazuli does not read: convert the file",
                         LZ_SHOW_TEXT(s->path), LZ_SHOW_TEXT(name), LZ_SHOW_TEXT(t->type));
    lz_dtype dtype = (lz_dtype)t->dtype;
    const char *data = s->map->data + t->begin;
    if (dtype == LZ_BOOL && !all_bools(data, t->end - t->begin))
        return lz_poison(w->ctx, LZ_BAD_FILE, "%s: tensor '%s' of type BOOL holds bytes other than 0 and 1" DAMAGED,
                         LZ_SHOW_TEXT(s->path), LZ_SHOW_TEXT(name));
    /* Nothing makes a writer align its tensors, though all known ones do. */
    if ((uintptr_t)data % (uintptr_t)lz_dtype_size(dtype) != 0) return lz_from(w->ctx, t->dims, dtype, data);
    return lz_borrow(w->ctx, t->dims, dtype, data, lz_mapping_release, lz_mapping_retain(s->map));
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

/* ---- saving ------------------------------------------------------------------------------------------------------ */

/* Wide types first, as the reference writer does it: then every tensor is aligned. */
static int by_width(const void *a, const void *b) {
    const lz_named_array *x = a, *y = b;
    int64_t wx = lz_dtype_size(lz_type(x->array)), wy = lz_dtype_size(lz_type(y->array));
    return wx != wy ? (wx > wy ? -1 : 1) : strcmp(x->name, y->name);
}

static lz_status check_arrays(const char *path, const lz_named_array *arrays, int64_t n, lz_error *err) {
    for (int64_t i = 0; i < n; i++) {
        if (!arrays[i].name)
            return lz_fail(err, LZ_BAD_ARGUMENT, "%s: array %lld to be saved has no name", LZ_SHOW_TEXT(path),
                           (long long)i);
        if (strcmp(arrays[i].name, METADATA) == 0)
            return lz_fail(err, LZ_BAD_ARGUMENT, "%s: no tensor can have the name " METADATA, LZ_SHOW_TEXT(path));
        lz_status status = lz_check(arrays[i].array, err);
        if (status != LZ_OK) return status;
    }
    return LZ_OK;
}

/* Adds value, which may be NULL, and is taken over. NULL keys and values are text that is not UTF-8. */
static lz_status add_entry(json_t *object, const char *path, const char *key, json_t *value, lz_error *err) {
    if (json_object_get(object, key)) {
        json_decref(value);
        return lz_fail(err, LZ_BAD_ARGUMENT, "%s: the name '%s' is given twice", LZ_SHOW_TEXT(path), LZ_SHOW_TEXT(key));
    }
    if (json_object_set_new(object, key, value) == 0) return LZ_OK;
    return lz_fail(err, LZ_BAD_ARGUMENT, "%s: '%s' or its value is not valid UTF-8", LZ_SHOW_TEXT(path),
                   LZ_SHOW_TEXT(key));
}

static lz_status describe_metadata(json_t *header, const char *path, const char *const *metadata, lz_error *err) {
    json_t *object = json_object();
    if (json_object_set_new(header, METADATA, object) != 0) return lz_out_of_memory(err, 0);
    for (; metadata[0]; metadata += 2) {
        if (!metadata[1])
            return lz_fail(err, LZ_BAD_ARGUMENT, "%s: metadata '%s' has no value", LZ_SHOW_TEXT(path),
                           LZ_SHOW_TEXT(metadata[0]));
        lz_status status = add_entry(object, path, metadata[0], json_string(metadata[1]), err);
        if (status != LZ_OK) return status;
    }
    return LZ_OK;
}

static lz_status describe_arrays(json_t *header, const char *path, const lz_named_array *arrays, int64_t n,
                                 lz_error *err) {
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        lz_dims dims = lz_shape(arrays[i].array);
        lz_dtype dtype = lz_type(arrays[i].array);
        int64_t end;
        if (__builtin_add_overflow(at, lz_dims_size(dims) * lz_dtype_size(dtype), &end))
            return lz_fail(err, LZ_BAD_ARGUMENT, "%s: the arrays are larger than any file", LZ_SHOW_TEXT(path));
        json_t *shape = json_array();
        for (int d = 0; d < dims.n; d++) json_array_append_new(shape, json_integer(dims.at[d]));
        json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", type_names[dtype], "shape", shape, "data_offsets",
                                  (json_int_t)at, (json_int_t)end);
        if (!entry || (int)json_array_size(shape) != dims.n) {
            json_decref(entry);
            return lz_out_of_memory(err, 0);
        }
        lz_status status = add_entry(header, path, arrays[i].name, entry, err);
        if (status != LZ_OK) return status;
        at = end;
    }
    return LZ_OK;
}

/* Length, JSON, and spaces to a multiple of 8. */
static lz_status write_header(lz_writer *writer, json_t *header, lz_error *err) {
    char *text = json_dumps(header, JSON_COMPACT);
    if (!text) return lz_out_of_memory(err, 0);
    size_t used = strlen(text), padded = (used + 7) / 8 * 8;
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)padded >> 8 * i);
    lz_status status = LZ_OK;
    if (padded > HEADER_LIMIT)
        status = lz_fail(err, LZ_BAD_ARGUMENT, "%s: names and metadata take %zu bytes, more than the %d allowed",
                         LZ_SHOW_TEXT(writer->path), padded, HEADER_LIMIT);
    if (status == LZ_OK) status = lz_writer_add(writer, length, 8, err);
    if (status == LZ_OK) status = lz_writer_add(writer, text, (int64_t)used, err);
    if (status == LZ_OK) status = lz_writer_add(writer, "        ", (int64_t)(padded - used), err);
    free(text);
    return status;
}

lz_status lz_weights_save(lz_context *ctx, const char *path, const lz_named_array *arrays, int64_t n,
                          const char *const *metadata, lz_error *err) {
    if (!ctx || !path || n < 0 || (n && !arrays))
        return lz_fail(err, LZ_BAD_ARGUMENT, "lz_weights_save: an argument is NULL");
    lz_status status = check_arrays(path, arrays, n, err);
    if (status != LZ_OK) return status;

    lz_named_array *sorted = lz_host_alloc(ctx, (size_t)n * sizeof *sorted + 1);
    json_t *header = json_object();
    if (!sorted || !header) {
        lz_host_free(ctx, sorted);
        json_decref(header);
        return lz_out_of_memory(err, n * (int64_t)sizeof *sorted);
    }
    if (n) memcpy(sorted, arrays, (size_t)n * sizeof *sorted);
    if (n) qsort(sorted, (size_t)n, sizeof *sorted, by_width);

    if (metadata) status = describe_metadata(header, path, metadata, err);
    if (status == LZ_OK) status = describe_arrays(header, path, sorted, n, err);
    lz_writer writer = {.fd = -1};
    if (status == LZ_OK) status = lz_writer_open(&writer, ctx, path, err);
    if (status == LZ_OK) status = write_header(&writer, header, err);
    for (int64_t i = 0; i < n && status == LZ_OK; i++) {
        lz_error why = {.status = LZ_OK};
        const void *data = lz_data(sorted[i].array, &why);
        int64_t bytes = lz_size(sorted[i].array) * lz_dtype_size(lz_type(sorted[i].array));
        if (why.status != LZ_OK || (!data && bytes)) {
            status = why.status != LZ_OK ? why.status : LZ_OUT_OF_MEMORY;
            if (err) *err = why;
        } else
            status = lz_writer_add(&writer, data, bytes, err);
    }
    if (status == LZ_OK) status = lz_writer_commit(&writer, err);
    lz_writer_discard(&writer);
    json_decref(header);
    lz_host_free(ctx, sorted);
    return status;
}
