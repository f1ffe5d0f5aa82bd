/* storage.c: see storage.h. The rules are those of the programs that write such files: ComfyUI and its converters, LightX2V,
 * compressed-tensors, transformers' fine-grained fp8, MLX. */
#include "models/storage.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "op/number.h"

enum {
    OPTIONS_LIMIT = 1 << 16,
    OPTION_LIMIT = 1 << 20,
    NVFP4_GROUP = 16,
    MXFP8_GROUP = 32,
    MLX_GROUP = 64,
    BLOCK = 128,
    ROTATE = 256
};

/* A tensor whose storage is being determined. */
typedef struct finder {
    lz_weights *w;
    lz_stored *to;
    lz_dims want;
    char module[LZ_STORED_NAME]; /* "" if the tensor is not X.weight: then it has no companions */
    lz_error *err;
} finder;

/* ---- words ------------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static bool bad(finder *f, const char *format, ...) {
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    lz_fail(f->err, LZ_BAD_FILE, "%s: the weight of '%s' %s", LZ_SHOW_TEXT(lz_weights_path_of(f->w, f->to->tensor)),
            LZ_SHOW_TEXT(*f->module ? f->module : f->to->tensor->name), text);
    return false;
}

/* ---- companions -------------------------------------------------------------------------------------------------- */

/* The tensor X.name, which belongs to the weight from then on; NULL: there is none. */
static const lz_weights_tensor *companion(finder *f, const char *name) {
    char whole[2 * LZ_STORED_NAME];
    if (!*f->module) return NULL;
    snprintf(whole, sizeof whole, "%s.%s", f->module, name);
    const lz_weights_tensor *t = lz_weights_find(f->w, whole);
    for (int i = 0; t && i < f->to->n_companions; i++)
        if (f->to->companions[i] == t) return t;
    if (t && f->to->n_companions < LZ_STORED_COMPANIONS) f->to->companions[f->to->n_companions++] = t;
    return t;
}

static bool has(const finder *f, const char *name) {
    char whole[2 * LZ_STORED_NAME];
    snprintf(whole, sizeof whole, "%s.%s", f->module, name);
    return *f->module && lz_weights_has(f->w, whole);
}

static const lz_weights_tensor *needed(finder *f, const char *name, const char *format) {
    const lz_weights_tensor *t = companion(f, name);
    if (!t) bad(f, "is stored as %s, but its '%s' is missing" LZ_DAMAGED, format, name);
    return t;
}

static int64_t size_of(const lz_weights_tensor *t) { return lz_dims_size(t->dims); }

/* Reads a number at any address; it may be unaligned. */
static float number_at(const char *data, int dtype, int64_t i) {
    uint16_t half;
    float single;
    double wide;
    switch (dtype) {
    case LZ_F32: memcpy(&single, data + 4 * i, 4); return single;
    case LZ_F64: memcpy(&wide, data + 8 * i, 8); return (float)wide;
    case LZ_F16: memcpy(&half, data + 2 * i, 2); return lz_from_f16(half);
    case LZ_BF16: memcpy(&half, data + 2 * i, 2); return lz_from_bf16(half);
    default: return lz_from_f8((uint8_t)data[i]);
    }
}

static bool is_scale(const lz_weights_tensor *t) {
    return t->dtype < LZ_DTYPE_COUNT && lz_is_float((lz_dtype)t->dtype);
}

static bool read_factor(finder *f, const lz_weights_tensor *t) {
    if (!is_scale(t) || size_of(t) != 1)
        return bad(f, "has the scale '%s' of type %s and shape %s, which is not one number" LZ_DAMAGED,
                   LZ_SHOW_TEXT(t->name), LZ_SHOW_TEXT(t->type), LZ_SHOW(t->dims));
    f->to->layout.factor = number_at(lz_weights_data(f->w, t), t->dtype, 0);
    if (!isfinite(f->to->layout.factor)) return bad(f, "has a scale that is not a finite number" LZ_DAMAGED);
    return true;
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

/* The tensor is a matrix of codes, so many columns wide. */
static bool codes(finder *f, lz_packing packing, int64_t columns) {
    const lz_weights_tensor *t = f->to->tensor;
    if (t->dims.n < 2) return bad(f, "is %s, which is no matrix" LZ_DAMAGED, LZ_SHOW(t->dims));
    int64_t rows = t->dims.at[0], bytes = t->end - t->begin;
    if (rows < 1 || columns < 1) return bad(f, "is %s, which holds no numbers" LZ_DAMAGED, LZ_SHOW(t->dims));
    f->to->packed = true;
    f->to->layout = (lz_packed_layout){.packing = packing, .rows = rows, .columns = columns, .factor = 1};
    f->to->row_bytes = bytes / rows;
    f->to->dims = (lz_dims){2, {rows, columns}};
    int64_t least = lz_packing_row_bytes(packing, columns);
    if (least < 0 || bytes % rows || f->to->row_bytes < least)
        return bad(f, "holds %lld bytes, which are not %lld rows of %lld columns (%s)" LZ_DAMAGED, (long long)bytes,
                   (long long)rows, (long long)columns, lz_packing_table[packing].name);
    for (int i = 2; i < t->dims.n; i++) /* a kernel [out, in, kh, kw]: codes of its shape, a row for each output */
        if (t->dims.at[i] != 1 && packing != LZ_PACKING_E4M3 && packing != LZ_PACKING_E5M2 && packing != LZ_PACKING_I8)
            return bad(f, "is %s, which is no matrix" LZ_DAMAGED, LZ_SHOW(t->dims));
    if (t->dims.n > 2 && lz_dims_size(t->dims) == rows * columns) f->to->dims = t->dims;
    return true;
}

/* The number of elements of a row in the file; -1: it overflows. */
static int64_t row_size(const lz_weights_tensor *t) {
    int64_t n = 1;
    for (int i = 1; i < t->dims.n; i++)
        if (__builtin_mul_overflow(n, t->dims.at[i], &n)) return -1;
    return n > INT64_MAX / 4 ? -1 : n;
}

static bool bytes_of_type(finder *f, const char *format, const char *type, const char *other) {
    const char *has_type = f->to->tensor->type;
    if (!strcmp(has_type, type) || (other && !strcmp(has_type, other))) return true;
    return bad(f, "is stored as %s, but its type is %s and not %s" LZ_DAMAGED, format, LZ_SHOW_TEXT(has_type), type);
}

/* A tensor without companions: blocks of GGUF, fp8 without scales, or plain numbers, which may have any shape. */
static bool no_companions(finder *f) {
    const lz_weights_tensor *t = f->to->tensor;
    lz_stored *to = f->to;
    to->dims = t->dims;
    if (t->codes) return bad(f, "is %s, and nothing beside it says how it is packed" LZ_DAMAGED, t->codes);
    to->packed = t->packed || t->dtype == LZ_F8;
    if (!to->packed) return true;
    lz_packing packing = t->packed ? t->packing : LZ_PACKING_E4M3;
    int64_t n = size_of(t), columns = t->dims.n ? t->dims.at[t->dims.n - 1] : 1;
    /* A tensor that was flattened to make whole blocks is one long row. */
    if (!columns || columns % lz_packing_table[packing].elements) columns = n;
    to->layout = (lz_packed_layout){
        .packing = packing, .rows = columns ? n / columns : 0, .columns = columns, .factor = 1};
    to->row_bytes = lz_packing_row_bytes(packing, columns);
    const lz_weights_tensor *scale = packing == LZ_PACKING_NVFP4 ? companion(f, "scale") : NULL;
    return !scale || read_factor(f, scale);
}

/* ---- scales ------------------------------------------------------------------------------------------------------ */

/* The number of rows or columns, of n, that share one of `parts` scales; 0: n is not a multiple of it. */
static int64_t shared(int64_t n, int64_t parts, int64_t told) {
    if (told > 0 && (n + told - 1) / told == parts) return told;
    return parts > 0 && n % parts == 0 ? n / parts : 0;
}

/* Scales for the whole matrix, for each row, or for blocks of it: their number tells. told: the size of a block, or 0. */
static bool scaled(finder *f, const lz_weights_tensor *s, int64_t told) {
    lz_stored *to = f->to;
    int64_t n = size_of(s), rows = to->layout.rows, columns = to->layout.columns;
    if (n == 1) return read_factor(f, s);
    if (!is_scale(s) || s->dtype == LZ_F64)
        return bad(f, "has scales of type %s, which Lazuli does not read", LZ_SHOW_TEXT(s->type));
    to->scales = s;
    lz_dims d = s->dims;
    while (d.n > 2 && d.at[d.n - 1] == 1) d.n--;
    int64_t down = d.n ? d.at[0] : 1, across = d.n == 2 ? d.at[1] : 1;
    if (n == rows && (d.n == 1 || across == 1 || down == 1)) {
        down = rows;
        across = 1;
    }
    if (d.n > 2 || down * across != n)
        return bad(f, "is %s and its scales are %s, which do not fit" LZ_DAMAGED, LZ_SHOW(to->dims), LZ_SHOW(s->dims));
    if (!told && down == (rows + BLOCK - 1) / BLOCK && across == (columns + BLOCK - 1) / BLOCK) told = BLOCK;
    to->layout.row_group = shared(rows, down, down == rows ? 1 : told);
    to->layout.group = shared(columns, across, across == 1 ? columns : told);
    if (!to->layout.row_group || !to->layout.group)
        return bad(f, "is %s and its scales are %s, which do not fit" LZ_DAMAGED, LZ_SHOW(to->dims), LZ_SHOW(s->dims));
    to->scale_rows = down;
    to->scale_columns = across;
    return true;
}

/* Scales in the order of tensor cores, one for `group` columns. */
static bool tiled(finder *f, const lz_weights_tensor *s, int64_t group, bool powers) {
    lz_stored *to = f->to;
    int64_t columns = (to->layout.columns + group - 1) / group,
            tiles = (to->layout.rows + 127) / 128 * ((columns + 3) / 4);
    bool type = !strcmp(s->type, "U8") || !strcmp(s->type, powers ? "F8_E8M0" : "F8_E4M3");
    if (!type || s->end - s->begin != tiles * 512)
        return bad(
            f,
            "is %s and its scales are %s %s, not in tiles of 128 x 4: they are of another tool, whose order Lazuli "
            "does not read",
            LZ_SHOW(to->dims), LZ_SHOW_TEXT(s->type), LZ_SHOW(s->dims));
    to->scales = s;
    to->order = LZ_SCALES_TILED;
    to->layout.group = group;
    to->layout.row_group = 1;
    to->scale_rows = to->layout.rows;
    to->scale_columns = columns;
    return true;
}

/* ---- formats that a file names ----------------------------------------------------------------------------------- */

/* Older converters nest options in "params". */
static json_t *option(json_t *options, const char *name) {
    json_t *value = json_object_get(options, name);
    return value ? value : json_object_get(json_object_get(options, "params"), name);
}

static int64_t integer_option(json_t *options, const char *name) {
    json_t *value = option(options, name);
    int64_t n = json_is_integer(value) ? json_integer_value(value) : 0;
    return n > 0 && n <= OPTION_LIMIT ? n : 0;
}

/* For all formats: the matrix may be rotated, and the input scaled. */
static bool read_rotation(finder *f, json_t *options, bool always) {
    lz_packed_layout *l = &f->to->layout;
    if (always || json_is_true(option(options, "convrot"))) {
        int64_t g = integer_option(options, "convrot_groupsize"), power = 4;
        if (!g) g = ROTATE;
        while (power < g) power *= 4;
        if (power != g || g > LZ_ROTATE_LIMIT || l->columns % g)
            return bad(f, "has %lld columns, which cannot be rotated in groups of %lld" LZ_DAMAGED,
                       (long long)l->columns, (long long)g);
        l->rotate = (int)g;
    }
    return true;
}

static bool float8(finder *f, json_t *options, const char *format) {
    bool e5m2 = strstr(format, "e5m2") != NULL;
    if (!bytes_of_type(f, format, e5m2 ? "F8_E5M2" : "F8_E4M3", NULL)) return false;
    const lz_weights_tensor *s = needed(f, "weight_scale", format);
    return s && codes(f, e5m2 ? LZ_PACKING_E5M2 : LZ_PACKING_E4M3, row_size(f->to->tensor)) &&
           scaled(f, s, integer_option(options, "group_size"));
}

static bool nvfp4(finder *f, json_t *options, const char *format) {
    (void)options;
    if (!bytes_of_type(f, format, "U8", NULL)) return false;
    const lz_weights_tensor *s = needed(f, "weight_scale", format),
                            *whole = s ? needed(f, "weight_scale_2", format) : NULL;
    f->to->padding = NVFP4_GROUP;
    if (!whole || !codes(f, LZ_PACKING_E2M1, 2 * row_size(f->to->tensor)) || !tiled(f, s, NVFP4_GROUP, false))
        return false;
    f->to->gains = companion(f, "pre_quant_scale");
    return read_factor(f, whole);
}

static bool mxfp8(finder *f, json_t *options, const char *format) {
    (void)options;
    if (!bytes_of_type(f, format, "F8_E4M3", NULL)) return false;
    const lz_weights_tensor *s = needed(f, "weight_scale", format);
    f->to->padding = MXFP8_GROUP;
    return s && codes(f, LZ_PACKING_E4M3, row_size(f->to->tensor)) && tiled(f, s, MXFP8_GROUP, true);
}

static bool int8(finder *f, json_t *options, const char *format) {
    if (!bytes_of_type(f, format, "I8", NULL)) return false;
    const lz_weights_tensor *s = needed(f, "weight_scale", format);
    return s && codes(f, LZ_PACKING_I8, row_size(f->to->tensor)) && scaled(f, s, integer_option(options, "group_size"));
}

static bool convrot_w4a4(finder *f, json_t *options, const char *format) {
    if (!bytes_of_type(f, format, "I8", "U8")) return false;
    const lz_weights_tensor *s = needed(f, "weight_scale", format);
    return s && codes(f, LZ_PACKING_S4, 2 * row_size(f->to->tensor)) && scaled(f, s, 0) &&
           read_rotation(f, options, true);
}

/* Scales and offsets are [columns / 64, rows]. */
static bool awq_w4a16(finder *f, json_t *options, const char *format) {
    (void)options;
    if (!bytes_of_type(f, format, "I8", "U8")) return false;
    const lz_weights_tensor *s = needed(f, "weight_scale", format), *z = s ? needed(f, "weight_zeros", format) : NULL;
    if (!z || !codes(f, LZ_PACKING_I4, 2 * row_size(f->to->tensor))) return false;
    lz_stored *to = f->to;
    int64_t across = s->dims.n == 2 ? s->dims.at[0] : 0;
    if (across < 1 || s->dims.at[1] != to->layout.rows || !lz_dims_equal(s->dims, z->dims) || !is_scale(s) ||
        s->dtype == LZ_F64 || z->dtype != s->dtype || to->layout.columns % across)
        return bad(f, "is %s and its scales are %s, which do not fit" LZ_DAMAGED, LZ_SHOW(to->dims), LZ_SHOW(s->dims));
    to->scales = s;
    to->offsets = z;
    to->order = LZ_SCALES_COLUMNS;
    to->layout.group = to->layout.columns / across;
    to->layout.row_group = 1;
    to->scale_rows = to->layout.rows;
    to->scale_columns = across;
    return true;
}

static const struct {
    const char *name;
    bool (*read)(finder *f, json_t *options, const char *format); /* NULL: known, and not read */
} formats[] = {
    {"float8_e4m3fn", float8},
    {"float8_e5m2", float8},
    {"float8_e4m3fn_rowwise", float8},
    {"float8_e4m3fn_blockwise", float8},
    {"nvfp4", nvfp4},
    {"mxfp8", mxfp8},
    {"int8_tensorwise", int8},
    {"int8_blockwise", int8},
    {"convrot_w4a4", convrot_w4a4},
    {"awq_w4a16", awq_w4a16},
    {"asym_w4a8_int8", NULL},
};

static bool named_format(finder *f, json_t *options) {
    json_t *value = json_is_string(options) ? options : option(options, "format");
    const char *name = json_string_value(value);
    if (!name) return bad(f, "has quantisation options without a format" LZ_DAMAGED);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(name, formats[i].name) && formats[i].read)
            return formats[i].read(f, options, name) && read_rotation(f, options, false);
    return bad(f,
               "is stored in the format '%s', which Lazuli does not read: take the fp8 or the GGUF file of the model",
               LZ_SHOW_TEXT(name));
}

/* ---- formats that companions tell -------------------------------------------------------------------------------- */

static bool is_fp8(const lz_weights_tensor *t) {
    return t->dtype == LZ_F8 || (t->packed && t->packing == LZ_PACKING_E5M2);
}

static bool scaled_bytes(finder *f, const lz_weights_tensor *s, int64_t told) {
    const lz_weights_tensor *t = f->to->tensor;
    lz_packing packing = t->dtype == LZ_F8 ? LZ_PACKING_E4M3 : t->dtype == LZ_I8 ? LZ_PACKING_I8 : LZ_PACKING_E5M2;
    return codes(f, packing, row_size(t)) && scaled(f, s, told);
}

/* [out, in / 8] words of eight numbers. */
static bool compressed(finder *f) {
    lz_stored *to = f->to;
    if (has(f, "weight_global_scale") || strcmp(to->tensor->type, "I32") || has(f, "weight_zero_point") ||
        has(f, "weight_g_idx"))
        return bad(
            f, "is packed by compressed-tensors in another way than 4 bits around 8, which Lazuli does not read: take "
               "the fp8 or the GGUF file of the model");
    const lz_weights_tensor *s = needed(f, "weight_scale", "pack-quantized"), *shape = companion(f, "weight_shape");
    int64_t columns = row_size(to->tensor) < 0 ? -1 : 4 * row_size(to->tensor);
    columns = columns > INT64_MAX / 16 ? -1 : 2 * columns;
    if (shape && shape->dtype == LZ_I64 && size_of(shape) == 2) memcpy(&columns, lz_weights_data(f->w, shape) + 8, 8);
    if (columns > INT64_MAX / 16) columns = -1;
    if (s && (to->tensor->dims.n != 2 || columns < 0 || (columns + 7) / 8 != to->tensor->dims.at[1]))
        return bad(f, "is packed by compressed-tensors in another way than 4 bits, which Lazuli does not read");
    return s && codes(f, LZ_PACKING_I4, columns) && scaled(f, s, 0);
}

/* [out, in * bits / 32] words of a stream of bits, with scales and offsets for groups of columns. */
static bool mlx(finder *f) {
    static const struct {
        int bits;
        lz_packing packing;
    } widths[] = {{2, LZ_PACKING_U2}, {3, LZ_PACKING_U3}, {4, LZ_PACKING_U4},
                  {5, LZ_PACKING_U5}, {6, LZ_PACKING_U6}, {8, LZ_PACKING_U8}};
    lz_stored *to = f->to;
    const lz_weights_tensor *s = needed(f, "scales", "MLX"), *z = s ? needed(f, "biases", "MLX") : NULL;
    if (!z) return false;
    lz_dims d = to->tensor->dims;
    int64_t groups = s->dims.n == 2 && s->dims.at[1] < INT32_MAX ? s->dims.at[1] : 0;
    int64_t columns = f->want.n == 2 ? f->want.at[1] : MLX_GROUP * groups;
    if (d.n != 2 || groups < 1 || columns < 1 || columns % groups || s->dims.at[0] != d.at[0] ||
        !lz_dims_equal(s->dims, z->dims) || !is_scale(s) || s->dtype == LZ_F64 || z->dtype != s->dtype)
        return bad(f, "is %s and its scales are %s, which do not fit" LZ_DAMAGED, LZ_SHOW(d), LZ_SHOW(s->dims));
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        if (d.at[1] > INT64_MAX / 32 || columns > INT64_MAX / 8 || 32 * d.at[1] != columns * widths[i].bits) continue;
        if (!codes(f, widths[i].packing, columns)) return false;
        to->scales = s;
        to->offsets = z;
        to->layout.group = columns / groups;
        to->layout.row_group = 1;
        to->scale_rows = d.at[0];
        to->scale_columns = groups;
        return true;
    }
    return bad(f, "has %lld words for %lld columns, which is no number of bits of MLX" LZ_DAMAGED, (long long)d.at[1],
               (long long)columns);
}

static bool refuse_others(finder *f) {
    if (has(f, "qweight"))
        return bad(f, "is in %s, which Lazuli does not read: take the GGUF or the fp8 file of the model",
                   has(f, "wscales") ? "a Nunchaku file" : "the layout of GPTQ or AWQ");
    if (has(f, "weight.absmax"))
        return bad(f,
                   "is packed by bitsandbytes, which Lazuli does not read: take the GGUF or the fp8 file of the model");
    return true;
}

/* Finds the format of one matrix: by the format that comfy_quant names, else by its companions; otherwise it is not
 * quantised. */
static bool with_companions(finder *f) {
    const lz_weights_tensor *t = f->to->tensor, *told = companion(f, "comfy_quant"), *s;
    companion(f, "input_scale"); /* of activations: not needed for products in float */
    companion(f, "scale_input");
    if (told) {
        int64_t bytes = told->end - told->begin;
        json_t *options = bytes > OPTIONS_LIMIT
                              ? NULL
                              : json_loadb(lz_weights_data(f->w, told), (size_t)bytes, JSON_REJECT_DUPLICATES, NULL);
        bool good = json_is_object(options) ? named_format(f, options)
                                            : bad(f, "has a comfy_quant that is not JSON" LZ_DAMAGED);
        json_decref(options);
        return good;
    }
    json_t *layers = json_object_get(lz_weights_json(f->w, "_quantization_metadata"), "layers");
    json_t *options = json_object_get(layers, f->module);
    if (options) return named_format(f, options);
    if (!refuse_others(f)) return false;
    if (t->packed && t->packing != LZ_PACKING_E5M2) return no_companions(f);
    if ((is_fp8(t) || t->dtype == LZ_I8) && (has(f, "weight_zero_point") || has(f, "weight_zeros")))
        return bad(f, "has zero points, which Lazuli does not read with this type");
    if ((is_fp8(t) || t->dtype == LZ_I8) && ((s = companion(f, "weight_scale")) || (s = companion(f, "scale_weight"))))
        return scaled_bytes(f, s, 0);
    if (is_fp8(t) && (s = companion(f, "weight_scale_inv"))) return scaled_bytes(f, s, BLOCK);
    if (t->dtype == LZ_U8 && has(f, "weight_scale_2")) return nvfp4(f, NULL, "nvfp4");
    if (t->codes && has(f, "scales")) return mlx(f);
    if (t->dtype == LZ_U8 || t->dtype == LZ_I8)
        return bad(f, "is %s, and nothing beside it says how it is packed" LZ_DAMAGED, t->type);
    return no_companions(f);
}

/* ---- a tensor ---------------------------------------------------------------------------------------------------- */

/* Rows and columns of padding that the model does not have. */
static void cut_padding(lz_stored *to, lz_dims want) {
    if (!to->padding || want.n != 2) return;
    int64_t rows = to->layout.rows - want.at[0], columns = to->layout.columns - want.at[1];
    if (rows > 0 && rows < to->padding) to->layout.rows = want.at[0];
    if (columns > 0 && columns < to->padding) to->layout.columns = want.at[1];
    to->dims = (lz_dims){2, {to->layout.rows, to->layout.columns}};
}

lz_status lz_stored_find(lz_weights *w, const char *name, lz_dims want, lz_stored *to, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    finder f = {.w = w, .to = to, .want = want, .err = &local};
    static const char ending[] = ".weight";
    size_t n = strlen(name), m = sizeof ending - 1;
    char packed[2 * LZ_STORED_NAME];
    bool weight = n > m && n - m < sizeof f.module && strcmp(name + n - m, ending) == 0;
    if (weight) snprintf(f.module, sizeof f.module, "%.*s", (int)(n - m), name);
    snprintf(packed, sizeof packed, "%s_packed", name);
    *to = (lz_stored){.tensor = lz_weights_find(w, name)};
    bool is_compressed = weight && !to->tensor && (to->tensor = lz_weights_find(w, packed));
    if (!to->tensor)
        return lz_fail(err, LZ_NOT_FOUND, "%s: there is no tensor '%s'", LZ_SHOW_TEXT(lz_weights_path(w)),
                       LZ_SHOW_TEXT(name));
    if (is_compressed ? compressed(&f) : weight ? with_companions(&f) : no_companions(&f)) cut_padding(to, want);
    if (local.status && err) *err = local;
    return local.status;
}

bool lz_stored_is_companion(const char *name, char module[LZ_STORED_NAME]) {
    static const char *const names[] = {
        ".weight_scale",    ".weight_scale_2", ".weight_scale_inv",  ".scale_weight",        ".scales",
        ".biases",          ".weight_zeros",   ".weight_zero_point", ".weight_global_scale", ".comfy_quant",
        ".pre_quant_scale", ".weight_s_rel",   ".weight_s_channel",  ".weight_codebook",     ".weight_correction"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t m = strlen(names[i]);
        if (n <= m || n - m >= LZ_STORED_NAME || strcmp(name + n - m, names[i]) != 0) continue;
        snprintf(module, LZ_STORED_NAME, "%.*s", (int)(n - m), name);
        return true;
    }
    return false;
}
