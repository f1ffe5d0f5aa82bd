/* gguf.c: reading GGUF, the format of llama.cpp and of most quantised files. All numbers are little endian.
 *
 *     "GGUF", u32 version (2 or 3), u64 tensors, u64 pairs
 *     pairs      text key, u32 type, value; a list is u32 type of its items, u64 their number, the items
 *     tensors    text name, u32 axes (1 to 4), u64 sizes, the fastest axis first, u32 type, u64 offset
 *     data       at the next multiple of general.alignment (default 32); offsets are relative to it
 *
 * A text is its length as u64, and its bytes. Large models are split into <stem>-00001-of-00003.gguf and so on; each is
 * a complete file with the keys split.no, split.count and split.tensors.count. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/weights_write.h"

#define BAD(err, path, ...) lz_weights_bad_file(err, path, __VA_ARGS__)

enum {
    KEY_LIMIT = 65535,  /* bytes; the limit of llama.cpp */
    NAME_LIMIT = 127,   /* bytes; llama.cpp writes 63, others more */
    PAIR_LIMIT = 20000, /* a large model has some thousand tensors, and may have a key for each */
    TENSOR_LIMIT = 1000000,
    MAX_AXES = 4,
    DEPTH_LIMIT = 4,                  /* of lists in lists */
    TENSOR_BYTES = 8 + 4 + 8 + 4 + 8, /* smallest size of a tensor in the header */
    PAIR_BYTES = 8 + 4 + 1,           /* smallest size of a pair */
    HIGHEST_VERSION = 3,
    ALIGNMENT = 32,
    SPLIT_LIMIT = 999,
};

/* ---- types ------------------------------------------------------------------------------------------------------- */

typedef struct gguf_type {
    const char *name;
    int elements, bytes; /* of a block */
    int dtype;           /* of plain numbers */
    int packing;         /* of blocks; if neither is set, the type is known but not supported */
} gguf_type;

#define PLAIN(text, id, size)                                                                                          \
    { text, 1, size, id, LZ_PACKING_COUNT }
#define PACKED(text, id, n, size)                                                                                      \
    { text, n, size, LZ_DTYPE_COUNT, LZ_PACKING_##id }
#define OTHER(text, n, size)                                                                                           \
    { text, n, size, LZ_DTYPE_COUNT, LZ_PACKING_COUNT }

static const gguf_type types[] = {
    [0] = PLAIN("F32", LZ_F32, 4),
    [1] = PLAIN("F16", LZ_F16, 2),
    [2] = PACKED("Q4_0", Q4_0, 32, 18),
    [3] = PACKED("Q4_1", Q4_1, 32, 20),
    [6] = PACKED("Q5_0", Q5_0, 32, 22),
    [7] = PACKED("Q5_1", Q5_1, 32, 24),
    [8] = PACKED("Q8_0", Q8_0, 32, 34),
    [9] = OTHER("Q8_1", 32, 36),
    [10] = PACKED("Q2_K", Q2_K, 256, 84),
    [11] = PACKED("Q3_K", Q3_K, 256, 110),
    [12] = PACKED("Q4_K", Q4_K, 256, 144),
    [13] = PACKED("Q5_K", Q5_K, 256, 176),
    [14] = PACKED("Q6_K", Q6_K, 256, 210),
    [15] = OTHER("Q8_K", 256, 292),
    [16] = OTHER("IQ2_XXS", 256, 66),
    [17] = OTHER("IQ2_XS", 256, 74),
    [18] = OTHER("IQ3_XXS", 256, 98),
    [19] = OTHER("IQ1_S", 256, 50),
    [20] = PACKED("IQ4_NL", IQ4_NL, 32, 18),
    [21] = OTHER("IQ3_S", 256, 110),
    [22] = OTHER("IQ2_S", 256, 82),
    [23] = PACKED("IQ4_XS", IQ4_XS, 256, 136),
    [24] = PLAIN("I8", LZ_I8, 1),
    [25] = OTHER("I16", 1, 2),
    [26] = PLAIN("I32", LZ_I32, 4),
    [27] = PLAIN("I64", LZ_I64, 8),
    [28] = PLAIN("F64", LZ_F64, 8),
    [29] = OTHER("IQ1_M", 256, 56),
    [30] = PLAIN("BF16", LZ_BF16, 2),
    [34] = OTHER("TQ1_0", 256, 54),
    [35] = OTHER("TQ2_0", 256, 66),
    [39] = PACKED("MXFP4", MXFP4, 32, 17),
    [40] = PACKED("NVFP4", NVFP4, 64, 36),
    [41] = OTHER("Q1_0", 128, 18),
};

int lz_gguf_type(lz_dtype dtype, int packing) {
    for (int i = 0; i < (int)(sizeof types / sizeof *types); i++)
        if (types[i].name && (packing >= 0 ? types[i].packing == packing : types[i].dtype == (int)dtype)) return i;
    return -1;
}

/* ---- reading with a limit ---------------------------------------------------------------------------------------- */

typedef struct reader {
    lz_weights *w;
    const char *path;
    const lz_mapping *file;
    int64_t at;
    int64_t tensors, pairs;
    int64_t alignment;
    int64_t split_number, split_count, split_tensors; /* of the whole model; -1: not in the file */
    bool cut;                                         /* the header goes on after the last byte */
    lz_error *err;
} reader;

static bool truncated(reader *r) {
    r->cut = true;
    return BAD(r->err, r->path,
               "its header goes on behind byte %lld, where the file ends: the file is truncated, download it again",
               (long long)r->file->bytes);
}

static bool read_u64(reader *r, int bytes, uint64_t *to) {
    *to = 0;
    if (r->file->bytes - r->at < bytes) return truncated(r);
    for (int i = bytes - 1; i >= 0; i--) *to = *to << 8 | (unsigned char)r->file->data[r->at + i];
    r->at += bytes;
    return true;
}

static bool read_u32(reader *r, uint32_t *to) {
    uint64_t wide = 0;
    bool good = read_u64(r, 4, &wide);
    *to = (uint32_t)wide;
    return good;
}

/* Reads a text of at most limit bytes without zero bytes; `to` has limit + 1 bytes. */
static bool read_text(reader *r, const char *what, int limit, char *to) {
    uint64_t length;
    if (!read_u64(r, 8, &length)) return false;
    if (length > (uint64_t)limit)
        return BAD(r->err, r->path, "has %s of %llu bytes, more than the %d allowed" LZ_DAMAGED, what,
                   (unsigned long long)length, limit);
    if ((int64_t)length > r->file->bytes - r->at) return truncated(r);
    memcpy(to, r->file->data + r->at, (size_t)length);
    to[length] = 0;
    r->at += (int64_t)length;
    if (strlen(to) != length) return BAD(r->err, r->path, "has %s with a 0 in it" LZ_DAMAGED, what);
    return true;
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

/* Skips so many items, and checks that they are inside the file. */
static bool skip_items(reader *r, const char *key, lz_value_type type, uint64_t count, int depth) {
    int size = lz_value_size(type);
    int64_t left = r->file->bytes - r->at;
    if (count > (uint64_t)left / (uint64_t)(size ? size : 8)) return truncated(r);
    if (size) {
        r->at += (int64_t)count * size;
        return true;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint64_t length;
        uint32_t inner;
        if (type == LZ_VALUE_TEXT) {
            if (!read_u64(r, 8, &length)) return false;
            if (length > (uint64_t)(r->file->bytes - r->at)) return truncated(r);
            r->at += (int64_t)length;
            continue;
        }
        if (depth >= DEPTH_LIMIT)
            return BAD(r->err, r->path, "key '%s' has lists in lists, more than %d deep" LZ_DAMAGED, LZ_SHOW_TEXT(key),
                       DEPTH_LIMIT);
        if (!read_u32(r, &inner) || !read_u64(r, 8, &length)) return false;
        if (inner >= LZ_VALUE_TYPES)
            return BAD(r->err, r->path, "key '%s' has a list of the unknown type %u" LZ_DAMAGED, LZ_SHOW_TEXT(key),
                       inner);
        if (!skip_items(r, key, (lz_value_type)inner, length, depth + 1)) return false;
    }
    return true;
}

/* key: KEY_LIMIT + 1 bytes. */
static bool read_pair(reader *r, char *key, lz_value *value) {
    uint32_t type;
    uint64_t count = 1;
    if (!read_text(r, "a key", KEY_LIMIT, key) || !read_u32(r, &type)) return false;
    bool list = type == LZ_VALUE_LIST;
    if (list && (!read_u32(r, &type) || !read_u64(r, 8, &count))) return false;
    if (type >= LZ_VALUE_TYPES)
        return BAD(r->err, r->path, "key '%s' has a value of the unknown type %u" LZ_DAMAGED, LZ_SHOW_TEXT(key), type);
    *value = (lz_value){
        .type = (lz_value_type)type, .list = list, .count = (int64_t)count, .data = r->file->data + r->at};
    return skip_items(r, key, value->type, count, 0);
}

/* Reads the keys that this reader needs. */
static bool note_pair(reader *r, const char *key, const lz_value *value) {
    lz_value_item item = {.integer = -1};
    if (!value->list) lz_value_first(value, &item);
    if (strcmp(key, "general.alignment") == 0) {
        if (item.integer < 1 || item.integer > 1 << 20 || (item.integer & (item.integer - 1)))
            return BAD(r->err, r->path, "has the alignment %lld, which is not a power of two" LZ_DAMAGED,
                       (long long)item.integer);
        r->alignment = item.integer;
    }
    if (strcmp(key, "split.no") == 0) r->split_number = item.integer;
    if (strcmp(key, "split.count") == 0) r->split_count = item.integer;
    if (strcmp(key, "split.tensors.count") == 0) r->split_tensors = item.integer;
    return true;
}

static bool read_pairs(reader *r, char *key) {
    for (int64_t i = 0; i < r->pairs; i++) {
        lz_value value;
        if (!read_pair(r, key, &value) || !note_pair(r, key, &value)) return false;
        if (!lz_weights_add_value(r->w, key, &value, r->err)) return false;
    }
    return true;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static bool read_type(reader *r, const char *name, uint32_t id, lz_weights_tensor *t, int64_t *bytes) {
    const gguf_type *type = id < sizeof types / sizeof *types && types[id].name ? &types[id] : NULL;
    if (!type)
        return BAD(r->err, r->path,
                   "tensor '%s' has the type number %u, which is unknown: the file is damaged, or newer",
                   LZ_SHOW_TEXT(name), id);
    int64_t n = lz_dims_size(t->dims), row = t->dims.at[t->dims.n - 1];
    if (n < 0 || n > INT64_MAX / 8)
        return BAD(r->err, r->path, "tensor '%s' has the shape %s, larger than any memory" LZ_DAMAGED,
                   LZ_SHOW_TEXT(name), LZ_SHOW(t->dims));
    if (row % type->elements != 0)
        return BAD(r->err, r->path, "tensor '%s' of type %s has rows of %lld numbers, not of blocks of %d" LZ_DAMAGED,
                   LZ_SHOW_TEXT(name), type->name, (long long)row, type->elements);
    *bytes = n / type->elements * type->bytes;
    t->type = type->name;
    t->dtype = type->dtype;
    t->packed = type->packing < LZ_PACKING_COUNT;
    if (t->packed) t->packing = (lz_packing)type->packing;
    return true;
}

/* begin and end of the tensor are relative to the start of the data. */
static bool read_tensor(reader *r, char *name, lz_weights_tensor *t) {
    uint32_t axes, type;
    uint64_t sizes[MAX_AXES], offset;
    int64_t bytes = 0;
    if (!read_text(r, "the name of a tensor", NAME_LIMIT, name) || !read_u32(r, &axes)) return false;
    if (axes < 1 || axes > MAX_AXES)
        return BAD(r->err, r->path, "tensor '%s' has %u axes, not 1 to %d" LZ_DAMAGED, LZ_SHOW_TEXT(name), axes,
                   MAX_AXES);
    for (uint32_t i = 0; i < axes; i++) {
        if (!read_u64(r, 8, &sizes[i])) return false;
        if (sizes[i] > INT64_MAX)
            return BAD(r->err, r->path, "tensor '%s' is larger than any memory" LZ_DAMAGED, LZ_SHOW_TEXT(name));
    }
    *t = (lz_weights_tensor){.name = name, .dims = {.n = (int)axes}};
    for (uint32_t i = 0; i < axes; i++) t->dims.at[axes - 1 - i] = (int64_t)sizes[i];
    if (!read_u32(r, &type) || !read_u64(r, 8, &offset) || !read_type(r, name, type, t, &bytes)) return false;
    if (offset > INT64_MAX || (int64_t)offset % r->alignment != 0)
        return BAD(r->err, r->path, "tensor '%s' begins at %llu, which is no multiple of the alignment %lld" LZ_DAMAGED,
                   LZ_SHOW_TEXT(name), (unsigned long long)offset, (long long)r->alignment);
    t->begin = (int64_t)offset;
    if (__builtin_add_overflow(t->begin, bytes, &t->end))
        return BAD(r->err, r->path, "tensor '%s' is larger than any memory" LZ_DAMAGED, LZ_SHOW_TEXT(name));
    return true;
}

/* start: offset of the data. */
static bool add_tensor(reader *r, lz_weights_tensor *t, int64_t start) {
    int64_t size = r->file->bytes;
    if (t->begin == t->end) /* empty: its offset is ignored */
        t->begin = t->end = size;
    else if (t->end > size - start) {
        int64_t stop = t->end > INT64_MAX - start ? INT64_MAX : start + t->end;
        return BAD(r->err, r->path,
                   "tensor '%s' ends at byte %lld but the file holds %lld: the file is truncated, download it again",
                   LZ_SHOW_TEXT(t->name), (long long)stop, (long long)size);
    } else {
        t->begin += start;
        t->end += start;
    }
    return lz_weights_add(r->w, t, r->err);
}

/* Two passes, because the data begins after the last description. */
static bool read_tensors(reader *r, char *name) {
    lz_weights_tensor t;
    int64_t first = r->at;
    for (int64_t i = 0; i < r->tensors; i++)
        if (!read_tensor(r, name, &t)) return false;
    int64_t start = (r->at + r->alignment - 1) / r->alignment * r->alignment;
    r->at = first;
    for (int64_t i = 0; i < r->tensors; i++)
        if (!read_tensor(r, name, &t) || !add_tensor(r, &t, start)) return false;
    return true;
}

/* ---- shapes that a converter has changed ------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const lz_weights_tensor *)a)->name, ((const lz_weights_tensor *)b)->name);
}

/* A tensor whose rows are not whole blocks may have been flattened; then a key has its shape. */
static bool restore_shape(reader *r, const char *name, const lz_value *value) {
    int64_t n;
    lz_weights_tensor *all = lz_weights_added(r->w, &n);
    lz_weights_tensor *t = n ? bsearch(&(lz_weights_tensor){.name = name}, all, (size_t)n, sizeof *all, by_name) : NULL;
    if (!t) return true;
    lz_dims dims = {.n = 0};
    lz_value_place at = {0, 0};
    lz_value_item item;
    bool good = value->list && value->count >= 1 && value->count <= LZ_MAX_DIMS && lz_value_size(value->type) > 0;
    while (good && lz_value_next(value, &at, &item)) {
        good = item.integer >= 0;
        dims.at[dims.n++] = item.integer;
    }
    if (!good || lz_dims_size(dims) != lz_dims_size(t->dims))
        return BAD(r->err, r->path,
                   "the key '" LZ_GGUF_SHAPE "%s' does not tell a shape of its %lld numbers" LZ_DAMAGED,
                   LZ_SHOW_TEXT(name), (long long)lz_dims_size(t->dims));
    t->dims = dims;
    return true;
}

static bool restore_shapes(reader *r, int64_t first_pair, char *key) {
    int64_t n;
    lz_weights_tensor *all = lz_weights_added(r->w, &n);
    if (n) qsort(all, (size_t)n, sizeof *all, by_name);
    r->at = first_pair;
    for (int64_t i = 0; i < r->pairs; i++) {
        lz_value value;
        if (!read_pair(r, key, &value)) return false;
        size_t prefix = strlen(LZ_GGUF_SHAPE);
        if (strncmp(key, LZ_GGUF_SHAPE, prefix) == 0 && !restore_shape(r, key + prefix, &value)) return false;
    }
    return true;
}

/* ---- split models ------------------------------------------------------------------------------------------------ */

static bool five_digits(const char *text, int *number) {
    *number = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *number = *number * 10 + (text[i] - '0');
    }
    return true;
}

bool lz_gguf_split_name(const char *path, int *number, int *count) {
    static const char form[] = "-00001-of-00001" LZ_GGUF_ENDING;
    size_t n = strlen(path), m = sizeof form - 1;
    if (n <= m) return false;
    const char *tail = path + n - m;
    return tail[0] == '-' && five_digits(tail + 1, number) && strncmp(tail + 6, "-of-", 4) == 0 &&
           five_digits(tail + 10, count) && strcmp(tail + 15, LZ_GGUF_ENDING) == 0 && *number >= 1 &&
           *number <= *count && *count <= SPLIT_LIMIT;
}

static bool check_split(reader *r) {
    int number = 1, count = 1;
    bool named = lz_gguf_split_name(r->path, &number, &count);
    if (r->split_count > 1 && (!named || count != r->split_count || number != r->split_number + 1))
        return BAD(r->err, r->path,
                   "is part %lld of %lld of a split model: all parts must lie in one folder with the names they were "
                   "published with, ...-%05lld-of-%05lld.gguf",
                   (long long)r->split_number + 1, (long long)r->split_count, (long long)r->split_number + 1,
                   (long long)r->split_count);
    if (named && count > 1 && r->split_count != count)
        return BAD(r->err, r->path, "is called part %d of %d, but does not say so itself: was it renamed?", number,
                   count);
    int64_t so_far = lz_weights_count(r->w);
    if (named && number == count && r->split_tensors >= 0 && so_far != r->split_tensors)
        return BAD(r->err, r->path,
                   "the %d parts hold %lld tensors, but the model has %lld: the files are of different "
                   "versions",
                   count, (long long)so_far, (long long)r->split_tensors);
    return true;
}

/* ---- a file ------------------------------------------------------------------------------------------------------ */

static bool recognise(const lz_mapping *file) { return file->bytes >= 4 && memcmp(file->data, "GGUF", 4) == 0; }

static bool read_counts(reader *r) {
    uint32_t version;
    uint64_t tensors, pairs;
    r->at = 4;
    if (!recognise(r->file)) return BAD(r->err, r->path, "is not a GGUF file");
    if (!read_u32(r, &version)) return false;
    if (version >= 1u << 24)
        return BAD(r->err, r->path, "is a GGUF file for big-endian machines: take the usual one, or convert it");
    if (version < 2 || version > HIGHEST_VERSION)
        return BAD(r->err, r->path, "is a GGUF file of version %u, and Lazuli reads 2 and %d: %s", version,
                   HIGHEST_VERSION, version < 2 ? "convert it with a newer tool" : "it is newer than this program");
    if (!read_u64(r, 8, &tensors) || !read_u64(r, 8, &pairs)) return false;
    uint64_t left = (uint64_t)(r->file->bytes - r->at);
    bool many = tensors > TENSOR_LIMIT || pairs > PAIR_LIMIT;
    r->cut = !many && tensors * TENSOR_BYTES + pairs * PAIR_BYTES > left;
    if (many || r->cut)
        return BAD(r->err, r->path, "claims %llu tensors and %llu keys, more than its %lld bytes can hold" LZ_DAMAGED,
                   (unsigned long long)tensors, (unsigned long long)pairs, (long long)r->file->bytes);
    r->tensors = (int64_t)tensors;
    r->pairs = (int64_t)pairs;
    return true;
}

static bool read_all(reader *r, char *text) {
    if (!read_counts(r)) return false;
    int64_t first_pair = r->at;
    return read_pairs(r, text) && read_tensors(r, text) && restore_shapes(r, first_pair, text) && check_split(r);
}

static bool read_file(lz_weights *w, const char *path, const lz_mapping *map, lz_error *err) {
    char *text = lz_host_alloc(map->ctx, KEY_LIMIT + 1);
    if (!text) return lz_out_of_memory(err, KEY_LIMIT + 1) == LZ_OK;
    reader r = {.w = w,
                .path = path,
                .file = map,
                .alignment = ALIGNMENT,
                .split_number = 0,
                .split_count = -1,
                .split_tensors = -1,
                .err = err};
    bool good = read_all(&r, text);
    lz_host_free(map->ctx, text);
    return good;
}

static int64_t head(const char *data, int64_t bytes) {
    char text[KEY_LIMIT + 1];
    lz_error err = {.status = LZ_OK};
    const lz_mapping file = {.data = data, .bytes = bytes};
    reader r = {.path = "", .file = &file, .alignment = ALIGNMENT, .err = &err};
    lz_weights_tensor t;
    lz_value value;
    if (!recognise(&file)) return -1;
    bool good = read_counts(&r);
    for (int64_t i = 0; i < r.pairs && good; i++) good = read_pair(&r, text, &value) && note_pair(&r, text, &value);
    for (int64_t i = 0; i < r.tensors && good; i++) good = read_tensor(&r, text, &t);
    if (!good) return r.cut ? bytes + 1 : -1;
    return r.at;
}

const lz_weights_format lz_format_gguf = {LZ_GGUF_ENDING, read_file, recognise, head};
