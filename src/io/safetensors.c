/* safetensors.c: reading the safetensors format. A file is
 *
 *     8 bytes    n, little endian
 *     n bytes    a JSON object: name -> {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]},
 *                and optionally "__metadata__" -> {string: string}
 *     the rest   the tensors, row-major, little endian; offsets count from here; no holes, no overlaps */
#include <stdlib.h>
#include <string.h>

#include "io/weights_write.h"

#define HEADER_LIMIT LZ_SAFETENSORS_HEADER
#define METADATA LZ_SAFETENSORS_METADATA
#define BAD(err, path, ...) lz_weights_bad_file(err, path, __VA_ARGS__)

typedef lz_weights_tensor tensor;

static const char *const type_names[LZ_DTYPE_COUNT] = {
    [LZ_BOOL] = "BOOL",  [LZ_U8] = "U8",   [LZ_I8] = "I8",     [LZ_I32] = "I32", [LZ_I64] = "I64",
    [LZ_F8] = "F8_E4M3", [LZ_F16] = "F16", [LZ_BF16] = "BF16", [LZ_F32] = "F32", [LZ_F64] = "F64",
};

/* Types that have no lz_dtype. Some are codes or scales of quantised weights. */
static const struct {
    const char *name;
    int bytes;
    bool packed;
    const char *codes; /* as in lz_weights_tensor */
    lz_packing packing;
} other_types[] = {{.name = "F8_E5M2", .bytes = 1, .packed = true, .packing = LZ_PACKING_E5M2},
                   {.name = "F8_E8M0", .bytes = 1, .codes = "e8m0"},
                   {.name = "U32", .bytes = 4, .codes = "u32"},
                   {.name = "I16", .bytes = 2},
                   {.name = "U16", .bytes = 2},
                   {.name = "U64", .bytes = 8}};

const char *lz_safetensors_type(lz_dtype dtype) { return type_names[dtype]; }

/* ---- one header -------------------------------------------------------------------------------------------------- */

static int find_type(const char *name) {
    int i = 0;
    while (i < LZ_DTYPE_COUNT && strcmp(type_names[i], name) != 0) i++;
    return i;
}

/* Sets what is known of the type; bytes of an element, or 0 if they are not known. */
static int64_t read_type(tensor *t, const char *name) {
    t->type = name;
    t->dtype = find_type(name);
    if (t->dtype < LZ_DTYPE_COUNT) return lz_dtype_size((lz_dtype)t->dtype);
    for (size_t i = 0; i < sizeof other_types / sizeof *other_types; i++)
        if (strcmp(other_types[i].name, name) == 0) {
            t->packed = other_types[i].packed;
            t->packing = other_types[i].packing;
            t->codes = other_types[i].codes;
            return other_types[i].bytes;
        }
    return 0;
}

/* data: offset of the first tensor byte, to which data_offsets are relative. file: size of the file. */
static bool read_tensor(const char *path, int64_t data, int64_t file, const char *name, json_t *entry, tensor *t,
                        lz_error *err) {
    json_t *type = json_object_get(entry, "dtype");
    json_t *shape = json_object_get(entry, "shape");
    json_t *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_string(type) || !json_is_array(shape) || !json_is_array(offsets))
        return BAD(err, path, "tensor '%s' lacks a dtype, a shape or data_offsets" LZ_DAMAGED, LZ_SHOW_TEXT(name));

    size_t rank = json_array_size(shape);
    if (rank > LZ_MAX_DIMS)
        return BAD(err, path, "tensor '%s' has %zu axes, but %d is the most there can be", LZ_SHOW_TEXT(name), rank,
                   LZ_MAX_DIMS);
    t->dims.n = (int)rank;
    for (size_t i = 0; i < rank; i++) {
        json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return BAD(err, path, "tensor '%s' has a size in its shape that is not an integer from 0 up" LZ_DAMAGED,
                       LZ_SHOW_TEXT(name));
        t->dims.at[i] = json_integer_value(size);
    }
    int64_t elements = lz_dims_size(t->dims);
    if (elements < 0)
        return BAD(err, path, "tensor '%s' has the shape %s, larger than any memory" LZ_DAMAGED, LZ_SHOW_TEXT(name),
                   LZ_SHOW(t->dims));

    json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return BAD(err, path, "tensor '%s' has data_offsets that are not two integers" LZ_DAMAGED, LZ_SHOW_TEXT(name));
    int64_t begin = json_integer_value(first), end = json_integer_value(last);
    if (begin < 0 || begin > end)
        return BAD(err, path, "tensor '%s' has the data_offsets [%lld, %lld], which make no range" LZ_DAMAGED,
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
    int64_t each = read_type(t, type_name), bytes;
    if (__builtin_mul_overflow(elements, each, &bytes)) bytes = -1;
    if (each && bytes != end - begin)
        return BAD(err, path,
                   "tensor '%s' of type %s and shape %s takes %lld bytes, but its data_offsets hold %lld" LZ_DAMAGED,
                   LZ_SHOW_TEXT(name), type_name, LZ_SHOW(t->dims), (long long)bytes, (long long)(end - begin));
    t->name = name;
    return true;
}

static bool read_metadata(lz_weights *w, const char *path, json_t *entries, lz_error *err) {
    if (!json_is_object(entries)) return BAD(err, path, METADATA " is not an object of strings" LZ_DAMAGED);
    const char *key;
    json_t *value;
    json_object_foreach(entries, key, value) {
        if (!json_is_string(value))
            return BAD(err, path, METADATA " holds a value for '%s' that is not a string" LZ_DAMAGED,
                       LZ_SHOW_TEXT(key));
        if (!lz_weights_add_metadata(w, key, json_string_value(value), err)) return false;
    }
    return true;
}

static int by_place(const void *a, const void *b) {
    const tensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end == y->end ? 0 : x->end < y->end ? -1 : 1;
}

/* Checks that the tensors cover the data without holes or overlaps. Sorts them by offset. */
static bool check_cover(const char *path, tensor *tensors, int64_t n, int64_t data, int64_t file, lz_error *err) {
    if (n) qsort(tensors, (size_t)n, sizeof *tensors, by_place);
    int64_t at = data;
    for (int64_t i = 0; i < n; i++) {
        const tensor *t = &tensors[i];
        if (t->begin < at)
            return BAD(err, path, "tensors '%s' and '%s' overlap" LZ_DAMAGED, LZ_SHOW_TEXT(t[-1].name),
                       LZ_SHOW_TEXT(t->name));
        if (t->begin > at)
            return BAD(err, path, "the %lld bytes before tensor '%s' belong to no tensor" LZ_DAMAGED,
                       (long long)(t->begin - at), LZ_SHOW_TEXT(t->name));
        at = t->end;
    }
    if (at < file) return BAD(err, path, "the last %lld bytes belong to no tensor" LZ_DAMAGED, (long long)(file - at));
    return true;
}

static bool read_entries(lz_weights *w, const char *path, json_t *header, int64_t data, int64_t file, lz_error *err) {
    if (!json_is_object(header)) return BAD(err, path, "the header is not a JSON object" LZ_DAMAGED);
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry) {
        tensor t = {.name = name};
        bool metadata = strcmp(name, METADATA) == 0;
        if (metadata ? !read_metadata(w, path, entry, err)
                     : !read_tensor(path, data, file, name, entry, &t, err) || !lz_weights_add(w, &t, err))
            return false;
    }
    int64_t n;
    tensor *added = lz_weights_added(w, &n);
    return check_cover(path, added, n, data, file, err);
}

static uint64_t header_length(const lz_mapping *map) {
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | (unsigned char)map->data[i];
    return length;
}

static bool read_file(lz_weights *w, const char *path, const lz_mapping *map, lz_error *err) {
    if (map->bytes < 8)
        return BAD(err, path, "holds %lld bytes, too few for a safetensors file: download it again",
                   (long long)map->bytes);
    uint64_t length = header_length(map);
    if (length > HEADER_LIMIT)
        return BAD(err, path, "claims a header of %llu bytes, more than the %d allowed: is this a safetensors file?",
                   (unsigned long long)length, HEADER_LIMIT);
    if ((int64_t)length > map->bytes - 8)
        return BAD(err, path,
                   "its header ends at byte %lld but the file holds %lld: the file is truncated, download it again",
                   (long long)length + 8, (long long)map->bytes);

    json_t *header = lz_weights_parse(path, "the header", map->data + 8, (int64_t)length, err);
    bool good = header && read_entries(w, path, header, 8 + (int64_t)length, map->bytes, err);
    json_decref(header);
    return good;
}

static bool recognise(const lz_mapping *map) {
    if (map->bytes < 9 || map->data[8] != '{') return false;
    uint64_t length = header_length(map);
    return length <= HEADER_LIMIT && (int64_t)length <= map->bytes - 8;
}

static int64_t head(const char *data, int64_t bytes) {
    if (bytes < 9) return 9;
    uint64_t length = header_length(&(lz_mapping){.data = data, .bytes = bytes});
    return data[8] == '{' && length <= HEADER_LIMIT ? 8 + (int64_t)length : -1;
}

const lz_weights_format lz_format_safetensors = {LZ_WEIGHTS_ENDING, read_file, recognise, head};
