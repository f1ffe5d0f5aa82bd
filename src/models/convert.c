/* convert.c: converts weight files to other types. The list of output tensors is made first (convert_plan.c), so that the
 * header can be written and offsets are known. Then tensors are read one after another, converted some rows at a time on
 * all threads, and written to their offsets. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/convert_inside.h"
#include "models/signature.h"
#include "op/number.h"
#include "op/pack.h"

static lz_status write_header(conversion *c, int64_t *end) {
    lz_signature s;
    lz_signature_read(&s, c->weights);
    const lz_component *part = s.parts[LZ_PART_TRANSFORMER];
    const char *architecture = part == &lz_names_flux2        ? "flux" /* the names that other converters use */
                               : part == &lz_names_qwen_image ? "qwen_image"
                               : part == &lz_names_z_image    ? "lumina2"
                                                              : "unknown";
    const char *const of_gguf[] = {"general.architecture", architecture, NULL};
    const char *const of_safetensors[] = {"format", "pt", c->source ? LZ_CONVERT_SOURCE : NULL, c->source, NULL};
    lz_status status = lz_weights_write_header(&c->writer, c->gguf, c->outputs, c->n_outputs,
                                               c->gguf ? of_gguf : of_safetensors, end, c->err);
    for (int64_t i = 0; i < c->n_outputs && !status; i++) c->places[c->outputs[i].id] = c->outputs[i].place;
    return status;
}

/* ---- a tensor ---------------------------------------------------------------------------------------------------- */

/* The rows of the current tensor. */
typedef struct chunk {
    conversion *c;
    const item *it;
    const uint8_t *data;               /* the tensor in its file */
    int64_t columns, from_row, to_row; /* elements, bytes, bytes of a row */
    int64_t first;
    const float *dense; /* of a quantised matrix: the rows from `first` on */
    float scale;        /* of FP8 */
} chunk;

static void read_row(const chunk *k, int64_t row, float *x) {
    const lz_weights_tensor *t = k->it->from;
    if (k->it->stored) {
        memcpy(x, k->dense + (row - k->first) * k->columns, (size_t)k->columns * sizeof *x);
        return;
    }
    const uint8_t *from = k->data + row * k->from_row;
    if (t->packed) {
        lz_unpack_row(t->packing, from, k->columns, NULL, NULL, 0, 1, 0, x);
        return;
    }
    for (int64_t i = 0; t->dtype == LZ_BF16 && i < k->columns; i++) {
        uint16_t h;
        memcpy(&h, from + 2 * i, 2), x[i] = lz_from_bf16(h);
    }
    for (int64_t i = 0; t->dtype != LZ_BF16 && i < k->columns; i++) {
        uint16_t h;
        double d;
        switch (t->dtype) {
        case LZ_F8: x[i] = lz_from_f8(from[i]); break;
        case LZ_F16: memcpy(&h, from + 2 * i, 2), x[i] = lz_from_f16(h); break;
        case LZ_F64: memcpy(&d, from + 8 * i, 8), x[i] = (float)d; break;
        default: memcpy(&x[i], from + 4 * i, 4);
        }
    }
}

static float largest_of(const float *x, int64_t n) {
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        if (fabsf(x[i]) > most && isfinite(x[i])) most = fabsf(x[i]);
    return most;
}

/* y: the values that will be read back. */
static void write_plain(const float *x, int64_t n, lz_dtype dtype, uint8_t *to, float *y) {
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = dtype == LZ_F16 ? lz_to_f16(x[i]) : lz_to_bf16(x[i]);
        y[i] = dtype == LZ_F32 ? x[i] : dtype == LZ_F16 ? lz_from_f16(h) : lz_from_bf16(h);
        if (dtype == LZ_F32)
            memcpy(to + 4 * i, &x[i], 4);
        else
            memcpy(to + 2 * i, &h, 2);
    }
}

static void write_int8(const chunk *k, int64_t row, const float *x, uint8_t *to, float *y) {
    int64_t n = k->columns, rotate = n % ROTATE ? 0 : ROTATE;
    memcpy(y, x, (size_t)n * sizeof *y);
    for (int64_t i = 0; rotate && i < n; i += rotate) lz_rotate_group(y + i, rotate);
    const float scale = lz_pack_scale(LZ_PACKING_I8, largest_of(y, n));
    k->c->scales[row] = scale;
    lz_pack_codes(LZ_PACKING_I8, y, n, scale, to);
    if (k->c->options->watch) lz_unpack_row(LZ_PACKING_I8, to, n, NULL, NULL, 0, scale, rotate, y);
}

static void write_f8_row(const chunk *k, int64_t row, const float *x, uint8_t *to, float *y) {
    const float scale = lz_fit_f8_scale(x, k->columns);
    k->c->scales[row] = scale;
    lz_pack_codes(LZ_PACKING_E4M3, x, k->columns, scale, to);
    if (k->c->options->watch) lz_unpack_row(LZ_PACKING_E4M3, to, k->columns, NULL, NULL, 0, scale, 0, y);
}

static bool is_finite_row(const float *x, int64_t n) {
    const uint32_t exponent = 0x7f800000; /* all ones: infinite, or not a number */
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad |= (uint32_t)((lz_float_to_bits(x[i]) & exponent) == exponent);
    return !bad;
}

static void convert_row(void *arg, int64_t i, int thread) {
    (void)thread;
    const chunk *k = arg;
    conversion *c = k->c;
    float *x = c->x + i * k->columns, *y = c->y + i * k->columns;
    uint8_t *to = c->bytes + i * k->to_row;
    read_row(k, k->first + i, x);
    switch (k->it->target) {
    case PLAIN: write_plain(x, k->columns, (lz_dtype)k->it->number, to, y); break;
    case BLOCKS:
        lz_pack_row((lz_packing)k->it->number, x, k->columns, to);
        lz_unpack_row((lz_packing)k->it->number, to, k->columns, NULL, NULL, 0, 1, 0, y);
        break;
    case FP8:
        lz_pack_codes(LZ_PACKING_E4M3, x, k->columns, k->scale, to);
        lz_unpack_row(LZ_PACKING_E4M3, to, k->columns, NULL, NULL, 0, k->scale, 0, y);
        break;
    case FP8_ROWS: write_f8_row(k, k->first + i, x, to, y); break;
    case INT8: write_int8(k, k->first + i, x, to, y); break;
    }
    double changed = 0, squares = 0; /* nobody asks for them if nobody watches */
    for (int64_t j = 0; c->options->watch && j < k->columns; j++) {
        double d = (double)x[j] - (double)y[j];
        changed += d * d, squares += (double)x[j] * (double)x[j];
    }
    if (c->source && !is_finite_row(x, k->columns)) changed = NAN; /* for convert_rows, which reports it */
    c->changed[i] = changed, c->squares[i] = squares;
}

static void find_largest(void *arg, int64_t i, int thread) {
    (void)thread;
    const chunk *k = arg;
    float *x = k->c->x + i * k->columns;
    read_row(k, k->first + i, x);
    k->c->y[i] = largest_of(x, k->columns);
}

static lz_status reserve(conversion *c, const chunk *k, int64_t rows, int64_t all_rows) {
    size_t floats = (size_t)(rows * k->columns) * sizeof(float) + 1;
    c->x = lz_host_alloc(c->ctx, floats);
    c->y = lz_host_alloc(c->ctx, floats);
    c->bytes = lz_host_alloc(c->ctx, (size_t)(rows * k->to_row) + 1);
    c->changed = lz_host_alloc(c->ctx, (size_t)rows * 2 * sizeof(double) + 1);
    c->squares = c->changed ? c->changed + rows : NULL;
    c->scales = lz_host_alloc(c->ctx, (size_t)all_rows * sizeof(float) + 1);
    bool good = c->x && c->y && c->bytes && c->changed && c->scales;
    return good ? LZ_OK : lz_out_of_memory(c->err, (int64_t)(2 * floats));
}

static void release(conversion *c) {
    void *all[] = {c->x, c->y, c->bytes, c->changed, c->scales};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) lz_host_free(c->ctx, all[i]);
    c->x = c->y = c->scales = NULL, c->bytes = NULL, c->changed = NULL;
}

/* Writes scales and comfy_quant after all rows are converted. */
static lz_status write_companions(conversion *c, const item *it, float scale, int64_t rows) {
    if (it->target == PLAIN || it->target == BLOCKS) return LZ_OK;
    const char *note = lz_convert_note(it);
    bool one = it->target == FP8;
    lz_status status = lz_writer_put(&c->writer, c->places[it->scale], one ? &scale : c->scales,
                                     (one ? 1 : rows) * (int64_t)sizeof(float), c->err);
    return status ? status : lz_writer_put(&c->writer, c->places[it->note], note, (int64_t)strlen(note), c->err);
}

/* Unpacks the next n rows of a quantised matrix; k->dense is valid until the scope ends. */
static lz_status unpack_rows(conversion *c, chunk *k, int64_t n) {
    lz_packed packed;
    lz_error local = {.status = LZ_OK};
    const lz_dims dims = {2, {n, k->columns}};
    lz_status status = lz_stored_take(c->weights, k->it->stored, k->first, n, &packed, &local);
    lz_array *dense = status ? NULL : lz_packed_dense(c->ctx, &packed, dims, LZ_F32, &local);
    k->dense = dense ? lz_data(dense, &local) : NULL;
    if (local.status && c->err) *c->err = local;
    return local.status;
}

/* Runs a function for n rows from k->first on. */
static lz_status for_rows(conversion *c, chunk *k, int64_t n, void (*run)(void *, int64_t, int)) {
    lz_scope *scope = lz_scope_begin(c->ctx, "rows");
    lz_status status = k->it->stored ? unpack_rows(c, k, n) : LZ_OK;
    if (!status) lz_parallel(c->pool, n, run, k);
    lz_scope_end(scope);
    return status;
}

/* After so many bytes of the source: LZ_OK if the conversion goes on. */
static lz_status tell_quantising(const conversion *c, int64_t done) {
    if (!c->source || !c->ctx->quantising) return LZ_OK; /* lz_convert reports after each tensor */
    double share = c->total ? (double)done / (double)c->total : 1;
    if (c->ctx->quantising(c->ctx->quantising_user, share < 1 ? share : 1)) return LZ_OK;
    return lz_fail(c->err, LZ_CANCELLED, "quantising was cancelled");
}

/* After a part of a tensor: LZ_OK if the conversion goes on. bytes: of the part, in the source. */
static lz_status check_part(const conversion *c, const chunk *k, double changed, int64_t bytes) {
    if (c->source && isnan(changed))
        return lz_fail(c->err, LZ_BAD_FILE, "%s: tensor '%s' has weights that are not finite numbers" LZ_DAMAGED,
                       LZ_SHOW_TEXT(c->path), LZ_SHOW_TEXT(k->it->from->name));
    return tell_quantising(c, c->done + bytes);
}

static lz_status convert_rows(conversion *c, chunk *k, int64_t rows, double *error) {
    int64_t at_once = k->columns > 0 ? CHUNK / k->columns + 1 : 1;
    int64_t group = k->it->stored ? k->it->stored->layout.row_group : 1; /* rows that share scales */
    if (group > 1) at_once = (at_once + group - 1) / group * group;
    if (at_once > rows) at_once = rows;
    lz_status status = reserve(c, k, at_once, rows);
    float largest = 0;
    for (k->first = 0; k->it->target == FP8 && k->first < rows && !status; k->first += at_once) {
        int64_t n = rows - k->first < at_once ? rows - k->first : at_once;
        status = for_rows(c, k, n, find_largest);
        for (int64_t i = 0; i < n && !status; i++) largest = fmaxf(largest, c->y[i]);
    }
    k->scale = lz_pack_scale(LZ_PACKING_E4M3, largest);
    double changed = 0, squares = 0;
    for (k->first = 0; k->first < rows && !status; k->first += at_once) {
        int64_t n = rows - k->first < at_once ? rows - k->first : at_once;
        status = for_rows(c, k, n, convert_row);
        if (status) break;
        for (int64_t i = 0; i < n; i++) changed += c->changed[i], squares += c->squares[i];
        status = check_part(c, k, changed, (k->first + n) * k->from_row);
        if (status) break;
        status = lz_writer_put(&c->writer, c->places[k->it->main] + k->first * k->to_row, c->bytes, n * k->to_row,
                               c->err);
    }
    if (!status) status = write_companions(c, k->it, k->scale, rows);
    release(c);
    *error = squares > 0 ? sqrt(changed / squares) : 0;
    return status;
}

static const char *type_of(const lz_weights_tensor *t) {
    return t->packed ? lz_packing_table[t->packing].name : lz_dtype_name((lz_dtype)t->dtype);
}

static lz_status convert_item(conversion *c, const item *it) {
    const lz_weights_tensor *t = it->from;
    const lz_output wanted = {.dtype = (lz_dtype)it->number};
    int64_t bytes = t->end - t->begin, elements = lz_dims_size(t->dims),
            columns = t->dims.n ? t->dims.at[t->dims.n - 1] : 1;
    if (it->stored) columns = it->stored->layout.columns; /* of a kernel: all numbers of an output */
    lz_scope *scope = lz_scope_begin(c->ctx, "convert");
    lz_error local = {.status = LZ_OK};
    const uint8_t *data = bytes ? lz_data(lz_weights_view(c->weights, t, 0, LZ_DIMS(bytes), LZ_U8), &local)
                                : (const uint8_t *)"";
    lz_status status = local.status;
    if (status && c->err) *c->err = local;
    bool same = it->target == PLAIN && !t->packed && it->number == t->dtype;
    int64_t rows = columns > 0 ? elements / columns : 0, to_bytes = bytes;
    double error = 0;
    if (!status && same)
        status = lz_writer_put(&c->writer, c->places[it->main], data, bytes, c->err);
    else if (!status) {
        chunk k = {.c = c, .it = it, .data = data, .columns = columns, .from_row = rows ? bytes / rows : 0};
        k.to_row = it->target == PLAIN    ? columns * lz_dtype_size(wanted.dtype)
                   : it->target == BLOCKS ? lz_packing_row_bytes((lz_packing)it->number, columns)
                                          : columns;
        to_bytes = rows * k.to_row;
        status = convert_rows(c, &k, rows, &error);
    }
    lz_scope_end(scope);
    c->done += bytes;
    if (!status) status = tell_quantising(c, c->done); /* the last tensors may be copied, without parts */
    if (status || !c->options->watch) return status;
    const lz_converted told = {.name = t->name,
                               .from_type = type_of(t),
                               .to_type = it->target == BLOCKS  ? lz_packing_table[it->number].name
                                          : it->target == PLAIN ? lz_dtype_name(wanted.dtype)
                                          : it->target == INT8  ? "int8"
                                                                : "fp8",
                               .from_bytes = bytes,
                               .to_bytes = to_bytes,
                               .error = error,
                               .done = c->total ? (double)c->done / (double)c->total : 1};
    if (c->options->watch(c->options->user, &told)) return LZ_OK;
    return lz_fail(c->err, LZ_CANCELLED, "converting was cancelled");
}

/* ---- a file ------------------------------------------------------------------------------------------------------ */

static lz_status convert_all(conversion *c, const type *wanted, const char *to) {
    int64_t end = 0;
    lz_status status = lz_convert_plan(c, wanted);
    if (!status) status = lz_writer_open(&c->writer, c->ctx, to, c->err);
    if (!status) status = write_header(c, &end);
    if (!status && c->room) status = c->room(c->ctx, end, c->err);
    /* Sets the full length of the file, including the padding of the last tensor in GGUF. */
    if (!status && end > c->writer.end) status = lz_writer_put(&c->writer, end - 1, "", 1, c->err);
    for (int64_t i = 0; i < c->n && !status; i++) status = convert_item(c, &c->items[i]);
    if (!status) status = lz_check_mappings(c->ctx, c->err);
    return status ? status : lz_writer_commit(&c->writer, c->err);
}

static lz_status convert_to(conversion *c, const type *wanted, const char *to) {
    lz_error local = {.status = LZ_OK}, *err = c->err ? c->err : &local;
    c->names = (lz_bump){.ctx = c->ctx};
    c->writer = (lz_writer){.fd = -1};
    c->weights = lz_weights_open(c->ctx, c->path, err);
    if (!c->weights) return err->status;
    c->pool = lz_pool_new(c->ctx, lz_pool_threads(c->ctx->base.pool));
    lz_status status = c->pool ? convert_all(c, wanted, to) : lz_out_of_memory(err, 0);
    if (c->pool) lz_pool_free(c->ctx, c->pool);
    lz_writer_discard(&c->writer);
    lz_weights_close(c->weights);
    lz_bump_free(&c->names);
    lz_host_free(c->ctx, c->items);
    lz_host_free(c->ctx, c->outputs);
    lz_host_free(c->ctx, c->places);
    return status;
}

static bool ends_in(const char *text, const char *ending) {
    size_t n = strlen(text), m = strlen(ending);
    return n > m && !strcmp(text + n - m, ending);
}

lz_status lz_convert(lz_context *ctx, const char *path, const char *to, const lz_convert_options *options,
                     lz_error *err) {
    if (!ctx || !path || !to || !options)
        return lz_fail(err, LZ_BAD_ARGUMENT, "convert: the %s is NULL",
                       !ctx    ? "context"
                       : !path ? "path"
                       : !to   ? "target"
                               : "options");
    lz_convert_options own;
    lz_status status = lz_read_options(&own, sizeof own, options, "LZ_CONVERT_OPTIONS", err);
    if (status) return status;
    bool gguf = ends_in(to, LZ_GGUF_ENDING);
    if (!gguf && !ends_in(to, LZ_WEIGHTS_ENDING))
        return lz_fail(err, LZ_BAD_ARGUMENT,
                       "%s: the name of a file of weights must end in " LZ_WEIGHTS_ENDING " or " LZ_GGUF_ENDING,
                       LZ_SHOW_TEXT(to));
    const type *wanted = lz_convert_find(own.type, gguf, to, err);
    if (!wanted) return LZ_BAD_ARGUMENT;
    conversion c = {.ctx = ctx, .path = path, .gguf = gguf, .options = &own, .err = err};
    return convert_to(&c, wanted, to);
}

lz_status lz_convert_narrow(lz_context *ctx, const char *path, const char *to, const char *const *wide,
                            const char *source, lz_convert_room *room, lz_error *err) {
    const lz_convert_options options = LZ_CONVERT_OPTIONS(.type = lz_precision_name(ctx));
    const type wanted = {options.type, ctx->int8 ? INT8 : FP8_ROWS, 0};
    conversion c = {
        .ctx = ctx, .path = path, .options = &options, .wide = wide, .source = source, .room = room, .err = err};
    return convert_to(&c, &wanted, to);
}
