/* weights.c: see weights.h. Large models have several files and an index.json that maps each name to its file. Files
 * are untrusted: everything is checked on opening, so that every listed tensor can be read. The one exception is a
 * tensor of an unknown type: it is listed, and only getting it is an error, because the rest of the file is usable. */
#include "io/weights_inside.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INDEX_LIMIT 100000000                  /* bytes */
#define INDEX_PART LZ_WEIGHTS_ENDING ".index." /* also in variants: model.safetensors.index.fp16.json */

static const lz_weights_format *const formats[] = {&lz_format_safetensors, &lz_format_gguf};
enum { FORMATS = sizeof formats / sizeof *formats, MAX_FORMATS = 8 };

/* In the order of preference of diffusers (an index before a single file) and of transformers (the reverse). */
static const char *const usual_names[] = {LZ_WEIGHTS_DIFFUSERS LZ_WEIGHTS_INDEX, LZ_WEIGHTS_DIFFUSERS LZ_WEIGHTS_ENDING,
                                          LZ_WEIGHTS_TRANSFORMERS LZ_WEIGHTS_ENDING,
                                          LZ_WEIGHTS_TRANSFORMERS LZ_WEIGHTS_INDEX};
enum { USUAL = sizeof usual_names / sizeof *usual_names };

const char *lz_weights_file_name(int i) { return i >= 0 && i < USUAL ? usual_names[i] : NULL; }

int64_t lz_weights_head(const void *data, int64_t bytes) {
    if (!data || bytes < 9) return data ? 9 : -1; /* nine bytes tell the format */
    for (int i = FORMATS - 1; i >= 0; i--) {
        int64_t head = formats[i]->head ? formats[i]->head(data, bytes) : -1;
        if (head >= 0) return head;
    }
    return -1;
}

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

/* Makes the table large enough for one more element; it may move. */
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
    if (t->packed) {
        const lz_packing_info *info = &lz_packing_table[t->packing];
        return n % info->elements == 0 && bytes % info->bytes == 0 && n / info->elements == bytes / info->bytes;
    }
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

static bool add_pair(lz_weights *w, pair p, lz_error *err) {
    if (w->has_metadata) return true;
    if (lz_weights_metadata(w, p.key))
        return BAD(err, w->shards[w->n_shards - 1].path, "has the key '%s' twice" LZ_DAMAGED, LZ_SHOW_TEXT(p.key));
    if (!grow(w->ctx, (void **)&w->metadata, sizeof *w->metadata, w->n_metadata, &w->metadata_room, err)) return false;
    p.key = keep_text(w, p.key, err);
    p.text = keep_text(w, p.text, err);
    if (!p.key || !p.text) return false;
    w->metadata[w->n_metadata++] = p;
    return true;
}

bool lz_weights_add_metadata(lz_weights *w, const char *key, const char *value, lz_error *err) {
    const lz_value none = {.type = LZ_VALUE_TYPES};
    return add_pair(w, (pair){key, value, none, NULL}, err);
}

bool lz_weights_add_value(lz_weights *w, const char *key, const lz_value *value, lz_error *err) {
    char *text = lz_value_text(w->ctx, value);
    if (!text) return no_memory(err, 0);
    bool good = add_pair(w, (pair){key, text, *value, NULL}, err);
    lz_host_free(w->ctx, text);
    return good;
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

/* The format of a file; NULL: unknown. */
static const lz_weights_format *recognise(const lz_weights *w, const char *path, const lz_mapping *map) {
    for (int i = 0; i < w->n_formats; i++)
        if (w->formats[i]->recognise && w->formats[i]->recognise(map)) return w->formats[i];
    for (int i = 0; i < w->n_formats; i++)
        if (!w->formats[i]->recognise && ends_with(path, w->formats[i]->ending)) return w->formats[i];
    return NULL;
}

/* Other kinds of files that are mistaken for weights, by their first bytes. */
static const struct {
    const char *bytes, *words;
} strangers[] = {
    {"version https://git-lfs", "is only a Git LFS pointer: fetch the file itself with 'git lfs pull'"},
    {"PK\x03\x04",
     "is a PyTorch file (a zip archive), which may run programs when it is read, and which Lazuli does not "
     "read: take the .safetensors or .gguf file of the model"},
    {"\x89PNG", "is a PNG picture, and no file of weights"},
    {"\xff\xd8\xff", "is a JPEG picture, and no file of weights"},
    {"RIFF", "is a WebP picture or another RIFF file, and no file of weights"},
};

static bool refuse_stranger(const char *path, const lz_mapping *map, lz_error *err) {
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++) {
        size_t n = strlen(strangers[i].bytes);
        if (map->bytes > (int64_t)n && memcmp(map->data, strangers[i].bytes, n) == 0)
            return BAD(err, path, "%s", strangers[i].words);
    }
    return true;
}

/* Takes ownership of map: it is added to the shards before anything can fail, so that closing the weights releases
 * it. */
static bool read_shard(lz_weights *w, const char *path, lz_mapping *map, lz_error *err) {
    int64_t room = w->shard_room;
    if (!grow(w->ctx, (void **)&w->shards, sizeof *w->shards, w->n_shards, &room, err)) {
        lz_mapping_release(map);
        return false;
    }
    w->shard_room = (int)room;
    w->shards[w->n_shards++] = (shard){.path = path, .map = map, .first = w->n_tensors};
    w->has_metadata = w->n_metadata > 0;

    const lz_weights_format *format = recognise(w, path, map);
    if (!format && !refuse_stranger(path, map, err)) return false;
    return (format ? format : w->formats[0])->read(w, path, map, err);
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

static bool sort_names(lz_weights *w, lz_error *err) {
    if (w->n_tensors) qsort(w->tensors, (size_t)w->n_tensors, sizeof *w->tensors, lz_weights_by_name);
    for (int64_t i = 1; i < w->n_tensors; i++) {
        const tensor *t = &w->tensors[i];
        if (lz_weights_by_name(t - 1, t) == 0)
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
        const tensor *t = lz_weights_find(w, name);
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

/* The path of a file with a usual name. NULL: there is none, or out of memory (err then says so). */
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

/* The kind of a file: 0: an index; 1 + i: a file of format i; -1: another file. */
static int kind_of(const lz_weights *w, const char *name) {
    if (*name == '.') return -1;
    if (is_index(name)) return 0;
    int number, of;
    /* Only the first part of a split model counts. */
    if (lz_gguf_split_name(name, &number, &of) && number > 1) return -1;
    for (int i = 0; i < w->n_formats; i++)
        if (ends_with(name, w->formats[i]->ending)) return 1 + i;
    return -1;
}

/* Is it one of the files of a model that need an index: "...-00001-of-00002.safetensors"? */
static bool is_shard(const char *name) {
    static const char form[] = "-00000-of-00000.safetensors";
    size_t n = strlen(name), m = sizeof form - 1;
    if (n <= m) return false;
    for (size_t i = 0; i < m; i++)
        if (form[i] == '0' ? name[n - m + i] < '0' || name[n - m + i] > '9' : name[n - m + i] != form[i]) return false;
    return true;
}

/* The only index; otherwise the only file of the first format that has any. For variants (fp16) and unusual names. */
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
    if (count[k] > 1 && k && is_shard(only[k])) {
        lz_fail(err, LZ_NOT_FOUND,
                "%s: the folder holds %d files *%s of one model, but not their *" LZ_WEIGHTS_INDEX
                ": download that again",
                LZ_SHOW_TEXT(folder), count[k], w->formats[k - 1]->ending);
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

/* Opens all parts of a split GGUF model; path is one of them. */
static bool open_split(lz_weights *w, const char *path, int count, lz_error *err) {
    int stem = (int)(strlen(path) - strlen("-00001-of-00001" LZ_GGUF_ENDING));
    bool good = true;
    for (int i = 1; i <= count && good; i++) {
        lz_text part = {.ctx = w->ctx};
        lz_text_add(&part, "%.*s-%05d-of-%05d" LZ_GGUF_ENDING, stem, path, i, count);
        char *name = lz_text_take(&part, err);
        good = name && open_shard(w, name, err);
        lz_host_free(w->ctx, name);
    }
    return good;
}

static bool open_path(lz_weights *w, const char *path, lz_error *err) {
    int number, count;
    if (ends_with(path, ".json")) return open_index(w, path, err);
    if (lz_gguf_split_name(path, &number, &count)) return open_split(w, path, count, err) && sort_names(w, err);
    return open_shard(w, path, err) && sort_names(w, err);
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
    for (int64_t i = 0; i < w->n_metadata; i++) json_decref(w->metadata[i].json);
    lz_host_free(w->ctx, w->metadata);
    lz_bump_free(&w->bump);
    lz_host_free(w->ctx, w);
}
