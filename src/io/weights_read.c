/* weights_read.c: names, metadata and arrays of open weight files. Tensors borrow from the mapping; each has a
 * reference to it. */
#include <stdlib.h>
#include <string.h>

#include "io/weights_inside.h"

/* ---- what is in it ----------------------------------------------------------------------------------------------- */

int lz_weights_by_name(const void *a, const void *b) {
    return strcmp(((const tensor *)a)->name, ((const tensor *)b)->name);
}

const lz_weights_tensor *lz_weights_find(const lz_weights *w, const char *name) {
    if (!w || !name || !w->n_tensors) return NULL;
    return bsearch(&(tensor){.name = name}, w->tensors, (size_t)w->n_tensors, sizeof *w->tensors, lz_weights_by_name);
}

const char *lz_weights_path(const lz_weights *w) { return w->path; }
const char *lz_weights_path_of(const lz_weights *w, const lz_weights_tensor *t) { return w->shards[t->shard].path; }

int64_t lz_weights_count(const lz_weights *w) { return w ? w->n_tensors : 0; }

const char *lz_weights_name(const lz_weights *w, int64_t i) {
    return w && i >= 0 && i < w->n_tensors ? w->tensors[i].name : NULL;
}

bool lz_weights_has(const lz_weights *w, const char *name) { return lz_weights_find(w, name) != NULL; }

const char *lz_weights_packing(const lz_weights *w, const char *name) {
    const tensor *t = lz_weights_find(w, name);
    return !t ? NULL : t->packed ? lz_packing_table[t->packing].name : t->codes;
}

lz_dims lz_weights_shape(const lz_weights *w, const char *name) {
    const tensor *t = lz_weights_find(w, name);
    return t ? t->dims : LZ_NONE;
}

int64_t lz_weights_bytes(const lz_weights *w, const char *name) {
    const tensor *t = lz_weights_find(w, name);
    return t ? t->end - t->begin : 0;
}

const lz_mapping *lz_weights_mapping(const lz_weights *w, int i) {
    return i >= 0 && i < w->n_shards ? w->shards[i].map : NULL;
}

const char *lz_weights_metadata_key(const lz_weights *w, int64_t i) {
    return w && i >= 0 && i < w->n_metadata ? w->metadata[i].key : NULL;
}

const char *lz_weights_metadata(const lz_weights *w, const char *key) {
    for (int64_t i = 0; w && key && i < w->n_metadata; i++)
        if (strcmp(w->metadata[i].key, key) == 0) return w->metadata[i].text;
    return NULL;
}

const lz_value *lz_weights_value(const lz_weights *w, const char *key) {
    for (int64_t i = 0; w && key && i < w->n_metadata; i++)
        if (strcmp(w->metadata[i].key, key) == 0 && w->metadata[i].value.type != LZ_VALUE_TYPES)
            return &w->metadata[i].value;
    return NULL;
}

json_t *lz_weights_json(lz_weights *w, const char *key) {
    for (int64_t i = 0; w && i < w->n_metadata; i++) {
        pair *p = &w->metadata[i];
        if (strcmp(p->key, key) != 0) continue;
        if (!p->json) p->json = json_loads(p->text, JSON_REJECT_DUPLICATES, NULL);
        return p->json;
    }
    return NULL;
}

/* ---- taking tensors ---------------------------------------------------------------------------------------------- */

#define DISTANCE_LIMIT 128

/* The number of characters to add, remove or change to get one name from the other. */
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

/* The most similar name, or NULL if none is similar. For some thousand names this takes a few milliseconds. */
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

/* Kernels rely on the bytes of a bool being 0 or 1. */
static bool all_bools(const char *data, int64_t n) {
    unsigned char any = 0;
    for (int64_t i = 0; i < n; i++) any |= (unsigned char)data[i];
    return any <= 1;
}

const char *lz_weights_data(const lz_weights *w, const lz_weights_tensor *t) {
    return w->shards[t->shard].map->data + t->begin;
}

lz_array *lz_weights_view(lz_weights *w, const lz_weights_tensor *t, int64_t offset, lz_dims dims, lz_dtype dtype) {
    const shard *s = &w->shards[t->shard];
    int64_t bytes = lz_dims_size(dims), has = t->end - t->begin;
    if (bytes >= 0 && __builtin_mul_overflow(bytes, lz_dtype_size(dtype), &bytes)) bytes = -1;
    if (bytes < 0 || offset < 0 || offset > has || bytes > has - offset)
        return lz_poison(w->ctx, LZ_BAD_FILE, "%s: tensor '%s' holds %lld bytes, too few for %s", LZ_SHOW_TEXT(s->path),
                         LZ_SHOW_TEXT(t->name), (long long)has, LZ_SHOW(dims));
    const char *data = s->map->data + t->begin + offset;
    /* Tensors may be unaligned, for example in files with 8-bit types. */
    if ((uintptr_t)data % (uintptr_t)lz_dtype_size(dtype) != 0) return lz_from(w->ctx, dims, dtype, data);
    bool in_file = s->map->path;
    return lz_borrow_as(w->ctx, dims, dtype, data, lz_mapping_release, lz_mapping_retain(s->map), in_file);
}

lz_array *(lz_weights_get)(lz_weights *w, const char *name) {
    if (!w) return NULL;
    const tensor *t = lz_weights_find(w, name);
    return t ? lz_weights_get_rows(w, name, 0, -1, t->dims) : no_such_tensor(w, name);
}

lz_array *lz_weights_get_rows(lz_weights *w, const char *name, int64_t first, int64_t rows, lz_dims dims) {
    const tensor *t = lz_weights_find(w, name);
    if (!t) return no_such_tensor(w, name);
    const shard *s = &w->shards[t->shard];
    if (t->packed || t->codes)
        return lz_poison(w->ctx, LZ_BAD_TYPE, "%s: tensor '%s' is not plain numbers but packed (%s)",
                         LZ_SHOW_TEXT(s->path), LZ_SHOW_TEXT(name), lz_weights_packing(w, name));
    if (t->dtype == LZ_DTYPE_COUNT)
        return lz_poison(w->ctx, LZ_BAD_TYPE,
                         "%s: tensor '%s' has the type %s, which Lazuli does not read: convert the file",
                         LZ_SHOW_TEXT(s->path), LZ_SHOW_TEXT(name), LZ_SHOW_TEXT(t->type));
    lz_dtype dtype = (lz_dtype)t->dtype;
    int64_t row = t->dims.n && t->dims.at[0] ? (t->end - t->begin) / t->dims.at[0] : 0; /* bytes */
    int64_t offset = rows < 0 ? 0 : first * row;
    if (dtype == LZ_BOOL && !all_bools(lz_weights_data(w, t) + offset, rows < 0 ? t->end - t->begin : rows * row))
        return lz_poison(w->ctx, LZ_BAD_FILE, "%s: tensor '%s' of type BOOL holds bytes other than 0 and 1" LZ_DAMAGED,
                         LZ_SHOW_TEXT(s->path), LZ_SHOW_TEXT(name));
    return lz_weights_view(w, t, offset, dims, dtype);
}

lz_array *(lz_weights_cast)(lz_weights *w, const char *name, lz_dtype dtype) {
    const tensor *t = lz_weights_find(w, name);
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
