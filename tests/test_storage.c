/* test_storage.c: quantised tensors of safetensors files become the weights that the formulas of their formats give
 * (tools/oracle/quantised.py), and what cannot be read is an error that names the module. */
#include "check.h"
#include "cli/environment.h"
#include "models/param.h"
#include "models/storage.h"

static lz_context *ctx;
static lz_error err;

static const char *data_path(const char *name) {
    char path[80];
    snprintf(path, sizeof path, "quantised/%s", name);
    return test_data(path);
}

/* ---- formats ----------------------------------------------------------------------------------------------------- */

/* The weights of some rows; owned by the scope. */
static const float *weights_of(lz_weights *w, const lz_stored *s, int64_t first, int64_t rows, lz_packed *p) {
    err = (lz_error){.status = LZ_OK};
    if (lz_stored_take(w, s, first, rows, p, &err)) return NULL;
    lz_array *a = lz_packed_dense(ctx, p, LZ_DIMS(rows, s->layout.columns), LZ_F32, &err);
    return a ? lz_data(a, &err) : NULL;
}

static bool agree(const char *name, const float *got, const float *want, int64_t n, bool rotated) {
    if (!CHECK(got, "%s: %s", name, err.text)) return false;
    if (rotated)
        return CHECK(max_relative_error(got, want, n) < 1e-6, "%s: %g", name, max_relative_error(got, want, n));
    for (int64_t i = 0; i < n; i++)
        if (ulp_distance(got[i], want[i]))
            return CHECK(false, "%s: element %lld is %.9g, not %.9g", name, (long long)i, (double)got[i],
                         (double)want[i]);
    return CHECK(true, "%s", name);
}

/* Every format in one file (trap 18); also some rows of each (trap 15). */
static void formats(void) {
    ctx = lz_open(.threads = 1);
    lz_weights *w = lz_weights_open(ctx, data_path("formats.safetensors"), &err);
    lz_weights *golden = lz_weights_open(ctx, data_path("want.safetensors"), &err);
    if (!CHECK(w && golden, "%s", err.text)) return;
    CHECK_I64(lz_weights_count(golden), 34);
    for (int64_t i = 0; i < lz_weights_count(golden); i++) {
        lz_scope *scope = lz_scope_begin(ctx, "format");
        const char *name = lz_weights_name(golden, i);
        lz_array *a = lz_weights_get(golden, name);
        const float *want = lz_data(a, &err);
        lz_dims d = lz_shape(a);
        lz_stored s;
        lz_packed p;
        if (CHECK_OK(lz_stored_find(w, name, d, &s, &err), &err) && CHECK(s.packed, "%s", name)) {
            CHECK(same_dims(s.dims, d), "%s is %s", name, dims_text(s.dims));
            int64_t rows = s.layout.rows, columns = s.layout.columns;
            agree(name, weights_of(w, &s, 0, rows, &p), want, rows * columns, s.layout.rotate);
            /* A cut that all block sizes of the file allow. */
            int64_t first = s.layout.row_group > 1 ? s.layout.row_group : rows / 3, n = rows - first;
            agree(name, weights_of(w, &s, first, n, &p), want + first * columns, n * columns, s.layout.rotate);
        }
        lz_scope_end(scope);
    }
    lz_weights_close(w);
    lz_weights_close(golden);
    lz_close(ctx);
}

/* All tensors of the file belong to a weight, but for the marker of the file and plain biases. */
static void companions(void) {
    ctx = lz_open(.threads = 1);
    lz_weights *w = lz_weights_open(ctx, data_path("formats.safetensors"), &err);
    if (!CHECK(w, "%s", err.text)) return;
    int64_t n = lz_weights_count(w), used = 0, plain = 0;
    for (int64_t i = 0; i < n; i++) {
        const char *name = lz_weights_name(w, i);
        char weight[300];
        size_t length = strlen(name);
        snprintf(weight, sizeof weight, "%s", name);
        if (length > 14 && !strcmp(name + length - 14, ".weight_packed")) weight[length - 7] = 0;
        plain += !strcmp(name, "scaled_fp8") || (length > 5 && !strcmp(name + length - 5, ".bias"));
        if (strlen(weight) < 7 || strcmp(weight + strlen(weight) - 7, ".weight")) continue;
        lz_stored s;
        CHECK_OK(lz_stored_find(w, weight, LZ_NONE, &s, &err), &err);
        used += 1 + s.n_companions;
    }
    CHECK_I64(used + plain, n);
    lz_stored s;
    CHECK(lz_stored_find(w, "nothing.weight", LZ_NONE, &s, &err) == LZ_NOT_FOUND);
    char module[LZ_STORED_NAME];
    CHECK(lz_stored_is_companion("a.b.weight_scale", module) && !strcmp(module, "a.b"));
    CHECK(lz_stored_is_companion("a.biases", module) && !lz_stored_is_companion("a.bias", module));
    CHECK(!lz_stored_is_companion(".weight_scale", module) && !lz_stored_is_companion("a.input_scale", module));
    lz_weights_close(w);
    lz_close(ctx);
}

/* Dense values in other types are the f32 ones rounded once, wherever a piece begins. */
static void types(void) {
    ctx = lz_open(.threads = 1);
    lz_weights *w = lz_weights_open(ctx, data_path("formats.safetensors"), &err);
    static const char *const names[] = {"nvfp4.weight", "int8_turned_256.weight", "mlx3.weight", "nvfp4_padded.weight"};
    for (int i = 0; i < 4; i++) {
        lz_scope *scope = lz_scope_begin(ctx, "types");
        lz_stored s;
        lz_packed p;
        lz_dims want = i == 3 ? LZ_DIMS(20, 40) : LZ_NONE;
        CHECK_OK(lz_stored_find(w, names[i], want, &s, &err), &err);
        CHECK_OK(lz_stored_take(w, &s, 0, s.layout.rows, &p, &err), &err);
        lz_dims d = LZ_DIMS(s.layout.rows, s.layout.columns);
        lz_array *exact = lz_packed_dense(ctx, &p, d, LZ_F32, &err);
        for (int k = 0; k < 2; k++) {
            lz_dtype type = k ? LZ_BF16 : LZ_F16;
            lz_array *a = lz_packed_dense(ctx, &p, d, type, &err), *b = lz_cast(exact, type);
            CHECK(same_bits(lz_data(a, &err), lz_data(b, &err), 2 * lz_size(a)), "%s", names[i]);
        }
        lz_scope_end(scope);
    }
    lz_weights_close(w);
    lz_close(ctx);
}

/* ---- parameters that stay packed --------------------------------------------------------------------------------- */

/* Whether two ways to the same numbers agree: bit for bit, but for a rotation and gains, which are rounded elsewhere. */
static void both_ways(const char *what, const char *name, lz_array *packed, lz_array *dense, bool rounded) {
    const float *x = lz_data(packed, &err), *y = lz_data(dense, &err);
    if (!CHECK(x && y && lz_size(packed) == lz_size(dense), "%s of %s: %s", what, name, err.text)) return;
    int64_t n = lz_size(dense);
    if (rounded)
        CHECK(max_relative_error(x, y, n) < 1e-5, "%s of %s: %g", what, name, max_relative_error(x, y, n));
    else
        CHECK(same_bits(x, y, 4 * n), "%s of %s: %g", what, name, max_relative_error(x, y, n));
}

/* A parameter that stays packed gives the products, rows and values of one that was made dense. */
static void parameters(void) {
    const char *device = getenv("LZ_TEST_DEVICE");
    ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = device, .threads = 2, .compute = LZ_F32), &err);
    lz_weights *w = lz_weights_open(ctx, data_path("formats.safetensors"), &err);
    lz_weights *golden = lz_weights_open(ctx, data_path("want.safetensors"), &err);
    if (!CHECK(w && golden, "%s", err.text)) return;
    int packed = 0;
    for (int64_t i = 0; i < lz_weights_count(golden); i++) {
        lz_scope *scope = lz_scope_begin(ctx, "parameter");
        const char *name = lz_weights_name(golden, i);
        lz_dims d = lz_shape(lz_weights_get(golden, name));
        lz_stored s;
        lz_packed codes;
        err = (lz_error){.status = LZ_OK};
        lz_stored_find(w, name, d, &s, &err);
        lz_stored_take(w, &s, 0, s.layout.rows, &codes, &err);
        /* NaN and infinities have no product to compare; a kernel is no matrix; padding needs a recipe. */
        bool other = !strncmp(name, "plain_", 6) || d.n != 2 || !lz_packed_exact(&codes);
        lz_array *value = lz_packed_dense(ctx, &codes, d, LZ_F32, &err);
        lz_param *p = other ? NULL : lz_param_new_packed(ctx, name, d, &codes, &err);
        lz_param *q = other ? NULL : lz_param_new(ctx, name, NULL, d, LZ_F32, &value, 1, &err);
        if (!other && CHECK(p && q, "%s: %s", name, err.text)) {
            packed++;
            bool rounded = s.layout.rotate || s.gains;
            float numbers[3 * 512];
            test_random random = {7};
            for (int k = 0; k < 3 * 512; k++) numbers[k] = (float)random_normal(&random);
            lz_array *x = lz_from(ctx, LZ_DIMS(3, d.at[1]), LZ_F32, numbers);
            int64_t first = d.at[0] / 3, n = d.at[0] / 2;
            const int64_t ids[4] = {d.at[0] - 1, 0, 1, 0};
            lz_array *rows = lz_from(ctx, LZ_DIMS(4), LZ_I64, ids);
            both_ways("the product", name, lz_apply(x, p, NULL), lz_apply(x, q, NULL), rounded);
            both_ways("rows", name, lz_apply_rows(x, p, first, n), lz_apply_rows(x, q, first, n), rounded);
            both_ways("the value", name, lz_param_base(p), lz_param_base(q), rounded);
            both_ways("taken rows", name, lz_param_take(p, rows), lz_param_take(q, rows), rounded);
        }
        lz_param_free(p);
        lz_param_free(q);
        lz_scope_end(scope);
    }
    CHECK_I64(packed, 30);
    lz_weights_close(w);
    lz_weights_close(golden);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

/* ---- traps ------------------------------------------------------------------------------------------------------- */

static lz_stored stored(lz_weights *w, const char *name) {
    lz_stored s = {.packed = false};
    CHECK_OK(lz_stored_find(w, name, LZ_NONE, &s, &err), &err);
    return s;
}

static bool owns(const lz_stored *s, const char *name) {
    for (int i = 0; i < s->n_companions; i++)
        if (!strcmp(s->companions[i]->name, name)) return true;
    return false;
}

/* What goes wrong without an error elsewhere, by the numbers of the list of formats. The numbers themselves are compared in
 * `formats`. */
static void traps(void) {
    ctx = lz_open(.threads = 1);
    lz_weights *w = lz_weights_open(ctx, data_path("formats.safetensors"), &err);
    if (!CHECK(w, "%s", err.text)) return;
    lz_stored s = stored(w, "old.weight");
    CHECK(s.layout.factor == 0.0021f && owns(&s, "old.scale_input"),
          "trap 1: the scale of inputs is no scale of weights");
    s = stored(w, "nvfp4.weight");
    CHECK(s.layout.packing == LZ_PACKING_E2M1 && s.order == LZ_SCALES_TILED, "trap 3: nibbles and tiles");
    const uint8_t pair[1] = {0x2f};
    CHECK(lz_unpack_element(LZ_PACKING_E2M1, pair, 0) == 1 && lz_unpack_element(LZ_PACKING_E2M1, pair, 1) == -6,
          "trap 3");
    s = stored(w, "mlx4_bf16.weight");
    CHECK(owns(&s, "mlx4_bf16.biases") && !owns(&s, "mlx4_bf16.bias") && s.scales->dtype == LZ_BF16, "trap 10: MLX");
    s = stored(w, "mlx3.weight");
    CHECK(s.layout.group == 64 && s.dims.at[1] == 128, "trap 10: bits and groups");
    s = stored(w, "int8_turned_256.weight");
    CHECK_I64(s.layout.rotate, 256); /* trap 19: nested in params */
    s = stored(w, "int8_rows.weight");
    CHECK_I64(s.layout.rotate, 0);
    int unaligned = 0; /* trap 21 */
    for (int64_t i = 0; i < lz_weights_count(w); i++) {
        const lz_weights_tensor *t = lz_weights_find(w, lz_weights_name(w, i));
        unaligned += t->dtype == LZ_F32 && t->begin % 4;
    }
    CHECK(unaligned > 5, "trap 21: %d", unaligned);
    const uint8_t codes[3] = {0x7c, 0x7f, 0xfc};
    CHECK(isinf(lz_unpack_element(LZ_PACKING_E5M2, codes, 0)) &&
              lz_unpack_element(LZ_PACKING_E5M2, codes, 2) == -INFINITY,
          "trap 22: E5M2 has infinities");
    CHECK(lz_unpack_element(LZ_PACKING_E4M3, codes, 0) == 384 && isnan(lz_unpack_element(LZ_PACKING_E4M3, codes, 1)),
          "trap 22: E4M3 has none");
    uint8_t block[144] = {0, 0x3c, 0, 0x3c, 1, 1, 1, 1, 1, 1, 1, 1}; /* d = m = 1, and scales of 1; codes 0 */
    CHECK(lz_unpack_element(LZ_PACKING_Q4_K, block, 0) == -1, "trap 23: the minimum of K blocks is subtracted");
    CHECK(lz_unpack_element(LZ_PACKING_Q4_1, (uint8_t[20]){0, 0x3c, 0, 0x3c}, 0) == 1,
          "trap 23: that of Q4_1 is added");
    lz_weights_close(w);
    lz_close(ctx);
}

/* ---- what cannot be read ----------------------------------------------------------------------------------------- */

/* A file whose tensors are given as "name:TYPE:shape:fill", ended by NULL; all bytes are fill. */
static lz_weights *made_file(const char *const *tensors, const char *metadata, char *file, size_t size) {
    static const struct {
        const char *name;
        int bytes;
    } widths[] = {{"F8_E4M3", 1}, {"F8_E5M2", 1}, {"U8", 1},  {"I8", 1}, {"BF16", 2},
                  {"F32", 4},     {"I32", 4},     {"U32", 4}, {"I64", 8}};
    char header[4096] = "{", data[8192];
    size_t at = 0;
    snprintf(header + 1, sizeof header - 1, "%s", metadata ? metadata : "");
    for (int i = 0; tensors[i]; i++) {
        char name[64], type[16], shape[32];
        const char *text = strchr(strchr(strchr(tensors[i], ':') + 1, ':') + 1, ':') + 1;
        sscanf(tensors[i], "%63[^:]:%15[^:]:%31[^:]", name, type, shape);
        size_t n = 0;
        for (size_t k = 0; k < sizeof widths / sizeof *widths; k++)
            if (!strcmp(widths[k].name, type)) n = (size_t)widths[k].bytes;
        for (char *c = shape + 1; *c && *c != ']'; c = *c == ',' ? c + 1 : c) n *= (size_t)strtol(c, &c, 10);
        if (*text == '{')
            memcpy(data + at, text, n);
        else
            memset(data + at, atoi(text), n);
        snprintf(header + strlen(header), sizeof header - strlen(header),
                 "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}", strlen(header) > 1 ? "," : "",
                 name, type, shape, at, at + n);
        at += n;
    }
    snprintf(header + strlen(header), sizeof header - strlen(header), "}");
    size_t n = strlen(header);
    if (8 + n + at > size) abort();
    memset(file, 0, 8);
    file[0] = (char)n;
    file[1] = (char)(n >> 8);
    memcpy(file + 8, header, n);
    memcpy(file + 8 + n, data, at);
    err = (lz_error){.status = LZ_OK};
    lz_weights *w = lz_weights_open_memory(ctx, "memory", file, (int64_t)(8 + n + at), &err);
    CHECK(w, "%s: %s", tensors[0], err.text);
    return w;
}

#define TENSORS(...)                                                                                                   \
    (const char *const[]) { __VA_ARGS__, NULL }

static void refused(const char *words, const char *const *tensors, const char *metadata) {
    static char file[16384];
    lz_weights *w = made_file(tensors, metadata, file, sizeof file);
    lz_stored s;
    err = (lz_error){.status = LZ_OK};
    CHECK_I64(lz_stored_find(w, "deep.x.weight", LZ_NONE, &s, &err), LZ_BAD_FILE);
    CHECK_TEXT(err.text, words);
    CHECK_TEXT(err.text, "'deep.x'");
    lz_weights_close(w);
}

static void refusals(void) {
    ctx = lz_open(.threads = 1);
    refused("in the format 'float3_e1m1', which Lazuli does not read",
            TENSORS("deep.x.weight:U8:[4,4]:1", "deep.x.comfy_quant:U8:[24]:{\"format\":\"float3_e1m1\"}"), NULL);
    refused("in the format 'asym_w4a8_int8', which Lazuli does not read",
            TENSORS("deep.x.weight:I8:[4,4]:1", "deep.x.comfy_quant:U8:[27]:{\"format\":\"asym_w4a8_int8\"}"), NULL);
    refused("in the format 'new_kind'", TENSORS("deep.x.weight:U8:[4,4]:1"),
            "\"__metadata__\":{\"_quantization_metadata\":\"{\\\"layers\\\":{\\\"deep.x\\\":\\\"new_kind\\\"}}\"}");
    refused("has a comfy_quant that is not JSON",
            TENSORS("deep.x.weight:U8:[4,4]:1", "deep.x.comfy_quant:U8:[9]:{\"format\""), NULL);
    refused("options without a format", TENSORS("deep.x.weight:U8:[4,4]:1", "deep.x.comfy_quant:U8:[2]:{}"), NULL);
    refused("is stored as nvfp4, but its 'weight_scale' is missing",
            TENSORS("deep.x.weight:U8:[4,8]:1", "deep.x.comfy_quant:U8:[18]:{\"format\":\"nvfp4\"}"), NULL);
    refused("is stored as nvfp4, but its 'weight_scale_2' is missing",
            TENSORS("deep.x.weight:U8:[4,8]:1", "deep.x.weight_scale:U8:[128,4]:56",
                    "deep.x.comfy_quant:U8:[18]:{\"format\":\"nvfp4\"}"),
            NULL);
    refused(
        "not in tiles of 128 x 4", /* as other tools store it */
        TENSORS("deep.x.weight:U8:[4,8]:1", "deep.x.weight_scale:F8_E4M3:[4,1]:56", "deep.x.weight_scale_2:F32:[1]:0"),
        NULL);
    refused("is stored as float8_e5m2, but its type is F8_E4M3 and not F8_E5M2",
            TENSORS("deep.x.weight:F8_E4M3:[4,8]:1", "deep.x.weight_scale:F32:[1]:0",
                    "deep.x.comfy_quant:U8:[24]:{\"format\":\"float8_e5m2\"}"),
            NULL);
    refused("cannot be rotated in groups of 256",
            TENSORS("deep.x.weight:I8:[4,8]:1", "deep.x.weight_scale:F32:[1]:0",
                    "deep.x.comfy_quant:U8:[43]:{\"format\":\"int8_tensorwise\",\"convrot\":true}"),
            NULL);
    refused("scales are [3], which do not fit",
            TENSORS("deep.x.weight:F8_E4M3:[4,8]:1", "deep.x.weight_scale:F32:[3]:0"), NULL);
    refused("a scale that is not a finite number",
            TENSORS("deep.x.weight:F8_E4M3:[4,8]:1", "deep.x.weight_scale:F32:[1]:255"), NULL);
    refused("which is not one number", TENSORS("deep.x.weight:F8_E4M3:[4,8]:1", "deep.x.weight_scale:I32:[1]:1"), NULL);
    refused("zero points",
            TENSORS("deep.x.weight:I8:[4,8]:1", "deep.x.weight_scale:F32:[4]:0", "deep.x.weight_zero_point:I8:[4]:1"),
            NULL);
    refused("is u32, and nothing beside it says how", TENSORS("deep.x.weight:U32:[4,8]:1"), NULL);
    refused("is U8, and nothing beside it says how", TENSORS("deep.x.weight:U8:[4,8]:1"), NULL);
    refused("is stored as MLX, but its 'biases' is missing",
            TENSORS("deep.x.weight:U32:[4,8]:1", "deep.x.scales:BF16:[4,1]:1"), NULL);
    refused("no number of bits of MLX",
            TENSORS("deep.x.weight:U32:[4,7]:1", "deep.x.scales:BF16:[4,1]:1", "deep.x.biases:BF16:[4,1]:1"), NULL);
    refused("packed by compressed-tensors in another way",
            TENSORS("deep.x.weight_packed:U8:[4,8]:1", "deep.x.weight_scale:F8_E4M3:[4,1]:1",
                    "deep.x.weight_global_scale:F32:[1]:0"),
            NULL);
    refused("packed by compressed-tensors in another way than 4 bits",
            TENSORS("deep.x.weight_packed:I32:[4,8]:1", "deep.x.weight_scale:BF16:[4,1]:1",
                    "deep.x.weight_shape:I64:[2]:1"),
            NULL);
    refused("a Nunchaku file",
            TENSORS("deep.x.weight:U8:[4,8]:1", "deep.x.qweight:I8:[4,8]:1", "deep.x.wscales:BF16:[4,1]:1"), NULL);
    refused("packed by bitsandbytes", TENSORS("deep.x.weight:U8:[16,1]:1", "deep.x.weight.absmax:F32:[1]:1"), NULL);
    lz_close(ctx);
}

/* A row range that cuts a block of scales is an error, not wrong numbers (trap 15). */
static void cuts(void) {
    ctx = lz_open(.threads = 1);
    lz_weights *w = lz_weights_open(ctx, data_path("formats.safetensors"), &err);
    lz_scope *scope = lz_scope_begin(ctx, "cuts");
    lz_stored s;
    lz_packed p;
    CHECK_OK(lz_stored_find(w, "blocks.weight", LZ_NONE, &s, &err), &err);
    CHECK_I64(s.layout.row_group, 4);
    CHECK_STATUS(lz_stored_take(w, &s, 3, 4, &p, &err), LZ_BAD_FILE, &err);
    CHECK_TEXT(err.text, "'blocks.weight' has scales for blocks of 4 rows, and cannot be cut at row 3");
    lz_scope_end(scope);
    lz_weights_close(w);
    lz_close(ctx);
}

TEST_MAIN({"formats", formats}, {"parameters", parameters}, {"traps", traps}, {"companions", companions},
          {"types", types}, {"refusals", refusals}, {"cuts", cuts})
