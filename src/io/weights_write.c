/* weights_write.c: see weights_write.h. */
#include "io/weights_write.h"

#include <stdlib.h>
#include <string.h>

#define METADATA LZ_SAFETENSORS_METADATA
#define HEADER_LIMIT LZ_SAFETENSORS_HEADER
enum { ALIGNMENT = 32 }; /* of GGUF */

bool lz_weights_can_write(bool gguf, lz_dtype dtype, int packing) {
    return gguf ? lz_gguf_type(dtype, packing) >= 0 : packing < 0;
}

lz_status lz_weights_write_header(lz_writer *writer, bool gguf, lz_output *outputs, int64_t n, const char *const *pairs,
                                  int64_t *end, lz_error *err) {
    for (int64_t i = 0; i < n; i++) {
        lz_output *o = &outputs[i];
        if (!lz_weights_can_write(gguf, o->dtype, o->packing))
            return lz_fail(err, LZ_BAD_ARGUMENT, "%s: tensor '%s' is %s, which %s files do not hold",
                           LZ_SHOW_TEXT(writer->path), LZ_SHOW_TEXT(o->name),
                           o->packing < 0 ? lz_dtype_name(o->dtype) : lz_packing_table[o->packing].name,
                           gguf ? "GGUF" : "safetensors");
        int64_t columns = o->dims.n ? o->dims.at[o->dims.n - 1] : 1, elements = lz_dims_size(o->dims);
        int64_t row = o->packing < 0 ? columns * lz_dtype_size(o->dtype)
                                     : lz_packing_row_bytes((lz_packing)o->packing, columns);
        if (elements < 0 || row < 0 || __builtin_mul_overflow(columns ? elements / columns : 0, row, &o->bytes))
            return lz_fail(err, LZ_BAD_ARGUMENT, "%s: tensor '%s' is larger than any file", LZ_SHOW_TEXT(writer->path),
                           LZ_SHOW_TEXT(o->name));
    }
    return gguf ? lz_gguf_header(writer, outputs, n, pairs, end, err)
                : lz_safetensors_header(writer, outputs, n, pairs, end, err);
}

static lz_status too_large(const lz_writer *writer, lz_error *err) {
    return lz_fail(err, LZ_BAD_ARGUMENT, "%s: the tensors are larger than any file", LZ_SHOW_TEXT(writer->path));
}

/* ---- safetensors ------------------------------------------------------------------------------------------------- */

/* Wide types first, like the reference writer, so that every tensor is aligned. */
static int by_width(const void *a, const void *b) {
    const lz_output *x = a, *y = b;
    int64_t wx = lz_dtype_size(x->dtype), wy = lz_dtype_size(y->dtype);
    return wx != wy ? (wx > wy ? -1 : 1) : strcmp(x->name, y->name);
}

/* Adds value and takes ownership of it. A NULL key or value is text that is not UTF-8, which is an error. */
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

/* Sets places relative to the end of the header. */
static lz_status describe_outputs(json_t *header, const lz_writer *writer, lz_output *outputs, int64_t n,
                                  lz_error *err) {
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        lz_output *o = &outputs[i];
        o->place = at;
        if (__builtin_add_overflow(at, o->bytes, &at)) return too_large(writer, err);
        json_t *shape = json_array();
        for (int d = 0; d < o->dims.n; d++) json_array_append_new(shape, json_integer(o->dims.at[d]));
        json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", lz_safetensors_type(o->dtype), "shape", shape,
                                  "data_offsets", (json_int_t)o->place, (json_int_t)at);
        if (!entry || (int)json_array_size(shape) != o->dims.n) {
            json_decref(entry);
            return lz_out_of_memory(err, 0);
        }
        lz_status status = add_entry(header, writer->path, o->name, entry, err);
        if (status != LZ_OK) return status;
    }
    return LZ_OK;
}

/* Writes length and JSON, padded with spaces to a multiple of 8. */
static lz_status write_json(lz_writer *writer, json_t *header, lz_error *err) {
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

lz_status lz_safetensors_header(lz_writer *writer, lz_output *outputs, int64_t n, const char *const *pairs,
                                int64_t *end, lz_error *err) {
    if (n) qsort(outputs, (size_t)n, sizeof *outputs, by_width);
    json_t *header = json_object();
    lz_status status = header ? LZ_OK : lz_out_of_memory(err, 0);
    for (int64_t i = 0; i < n && !status; i++)
        if (strcmp(outputs[i].name, METADATA) == 0)
            status = lz_fail(err, LZ_BAD_ARGUMENT, "%s: no tensor can have the name " METADATA,
                             LZ_SHOW_TEXT(writer->path));
    if (!status && pairs) status = describe_metadata(header, writer->path, pairs, err);
    if (!status) status = describe_outputs(header, writer, outputs, n, err);
    if (!status) status = write_json(writer, header, err);
    json_decref(header);
    *end = writer->end;
    for (int64_t i = 0; i < n && !status; i++) {
        outputs[i].place += writer->end;
        if (__builtin_add_overflow(*end, outputs[i].bytes, end)) return too_large(writer, err);
    }
    return status;
}

/* ---- GGUF -------------------------------------------------------------------------------------------------------- */

/* A buffer of bytes to write; status: the first error. */
typedef struct sink {
    lz_writer *writer;
    lz_status status;
    lz_error *err;
} sink;

static void put(sink *s, const void *data, int64_t bytes) {
    if (!s->status) s->status = lz_writer_add(s->writer, data, bytes, s->err);
}
static void put_number(sink *s, uint64_t v, int bytes) {
    unsigned char b[8];
    for (int i = 0; i < bytes; i++) b[i] = (unsigned char)(v >> 8 * i);
    put(s, b, bytes);
}
static void put_text(sink *s, const char *text) {
    put_number(s, strlen(text), 8);
    put(s, text, (int64_t)strlen(text));
}

static int64_t aligned(int64_t n) { return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

enum { GGUF_AXES = 4 }; /* at most */

/* A tensor of more axes is written with its first ones merged, and a key tells its shape, as in files of ComfyUI. */
static lz_dims merged(lz_dims dims) {
    while (dims.n > GGUF_AXES) {
        dims.at[0] *= dims.at[1];
        dims.n--;
        memmove(dims.at + 1, dims.at + 2, (size_t)(dims.n - 1) * sizeof *dims.at);
    }
    return dims;
}

static void put_shape(sink *s, const lz_output *o) {
    static const char prefix[] = LZ_GGUF_SHAPE;
    put_number(s, strlen(prefix) + strlen(o->name), 8);
    put(s, prefix, (int64_t)strlen(prefix));
    put(s, o->name, (int64_t)strlen(o->name));
    put_number(s, LZ_VALUE_LIST, 4);
    put_number(s, LZ_VALUE_I64, 4);
    put_number(s, (uint64_t)o->dims.n, 8);
    for (int d = 0; d < o->dims.n; d++) put_number(s, (uint64_t)o->dims.at[d], 8);
}

lz_status lz_gguf_header(lz_writer *writer, lz_output *outputs, int64_t n, const char *const *pairs, int64_t *end,
                         lz_error *err) {
    enum { VERSION = 3 };
    sink s = {.writer = writer, .err = err};
    int64_t n_pairs = 0, n_shapes = 0, at = 0;
    while (pairs && pairs[2 * n_pairs]) n_pairs++;
    for (int64_t i = 0; i < n; i++) n_shapes += outputs[i].dims.n > GGUF_AXES;
    put(&s, "GGUF", 4);
    put_number(&s, VERSION, 4);
    put_number(&s, (uint64_t)n, 8);
    put_number(&s, (uint64_t)(n_pairs + n_shapes), 8);
    for (int64_t i = 0; i < n_pairs; i++) {
        put_text(&s, pairs[2 * i]);
        put_number(&s, LZ_VALUE_TEXT, 4);
        put_text(&s, pairs[2 * i + 1]);
    }
    for (int64_t i = 0; i < n; i++)
        if (outputs[i].dims.n > GGUF_AXES) put_shape(&s, &outputs[i]);
    for (int64_t i = 0; i < n; i++) {
        lz_output *o = &outputs[i];
        lz_dims dims = merged(o->dims);
        int axes = dims.n ? dims.n : 1;
        put_text(&s, o->name);
        put_number(&s, (uint64_t)axes, 4);
        for (int d = axes - 1; d >= 0; d--) put_number(&s, (uint64_t)(dims.n ? dims.at[d] : 1), 8);
        put_number(&s, (uint64_t)lz_gguf_type(o->dtype, o->packing), 4);
        put_number(&s, (uint64_t)at, 8);
        o->place = at;
        if (o->bytes > INT64_MAX - ALIGNMENT || __builtin_add_overflow(at, aligned(o->bytes), &at))
            return too_large(writer, err);
    }
    static const char zeros[ALIGNMENT];
    put(&s, zeros, aligned(writer->end) - writer->end);
    for (int64_t i = 0; i < n && !s.status; i++) outputs[i].place += writer->end;
    if (__builtin_add_overflow(at, writer->end, end)) return too_large(writer, err);
    return s.status;
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

static lz_status check_arrays(const char *path, const lz_named_array *arrays, int64_t n, lz_error *err) {
    for (int64_t i = 0; i < n; i++) {
        if (!arrays[i].name)
            return lz_fail(err, LZ_BAD_ARGUMENT, "%s: array %lld to be saved has no name", LZ_SHOW_TEXT(path),
                           (long long)i);
        lz_status status = lz_check(arrays[i].array, err);
        if (status != LZ_OK) return status;
    }
    return LZ_OK;
}

static lz_status write_array(lz_writer *writer, const lz_output *o, lz_array *array, lz_error *err) {
    lz_error why = {.status = LZ_OK};
    const void *data = lz_data(array, &why);
    if (why.status == LZ_OK && (data || !o->bytes)) return lz_writer_add(writer, data, o->bytes, err);
    if (err) *err = why;
    return why.status != LZ_OK ? why.status : LZ_OUT_OF_MEMORY;
}

lz_status lz_weights_save(lz_context *ctx, const char *path, const lz_named_array *arrays, int64_t n,
                          const char *const *metadata, lz_error *err) {
    if (!ctx || !path || n < 0 || (n && !arrays))
        return lz_fail(err, LZ_BAD_ARGUMENT, "lz_weights_save: an argument is NULL");
    lz_status status = check_arrays(path, arrays, n, err);
    if (status != LZ_OK) return status;
    lz_output *outputs = lz_host_alloc(ctx, (size_t)n * sizeof *outputs + 1);
    if (!outputs) return lz_out_of_memory(err, n * (int64_t)sizeof *outputs);
    for (int64_t i = 0; i < n; i++)
        outputs[i] = (lz_output){arrays[i].name, lz_type(arrays[i].array), -1, lz_shape(arrays[i].array), i, 0, 0};
    lz_writer writer = {.fd = -1};
    int64_t end;
    status = lz_writer_open(&writer, ctx, path, err);
    if (!status) status = lz_weights_write_header(&writer, false, outputs, n, metadata, &end, err);
    for (int64_t i = 0; i < n && !status; i++)
        status = write_array(&writer, &outputs[i], arrays[outputs[i].id].array, err);
    if (!status) status = lz_writer_commit(&writer, err);
    lz_writer_discard(&writer);
    lz_host_free(ctx, outputs);
    return status;
}
