/* The formulas of packed weights: the test vectors of blocks, golden values of other readers (tools/oracle/packing.py), and
 * numbers at the edges. */
#include "check.h"
#include "cli/environment.h"
#include "op/pack.h"

/* byte k of a block is (73 k + 29) mod 256, then d = 0.25 and m = 0.125 are written over their fields. */
static void test_vectors(void) {
    static const struct {
        lz_packing packing;
        int d, m, middle;
        double first, second, at_middle, last, sum, weighted;
    } of[] = {
        {LZ_PACKING_Q4_0, 0, -1, 17, 1.75, 0, 1.75, 1.75, 0.75, 41.75},
        {LZ_PACKING_Q4_1, 0, 2, 17, 0.375, 2.625, 2.125, 2.125, 65.25, 1116},
        {LZ_PACKING_Q5_0, 0, -1, 17, 0.75, 3, -3.75, 0.25, -2.25, -198.75},
        {LZ_PACKING_Q5_1, 0, 2, 17, 5.375, 3.625, 6.625, 2.625, 118.25, 2041.5},
        {LZ_PACKING_Q8_0, 0, -1, 17, -20.25, -2, -30, -30.5, -108, -1756},
        {LZ_PACKING_IQ4_NL, 0, -1, 17, 28.25, 0.25, 28.25, 28.25, 27.5, 917.25},
        {LZ_PACKING_Q2_K, 80, 82, 150, 3.125, 6.375, 9.25, 1.25, 479.5, 51209.25},
        {LZ_PACKING_Q3_K, 108, -1, 150, -0.75, 1.5, 5, 0, 145.75, 26587},
        {LZ_PACKING_Q4_K, 0, 2, 150, -1.375, -3.125, 15.75, 11.25, 9750, 1544696},
        {LZ_PACKING_Q5_K, 0, 2, 150, 2.625, -3.125, 115.75, 13.25, 20826, 3242192},
        {LZ_PACKING_Q6_K, 208, -1, 150, 26.25, -52.5, 522.5, 45, 3633, 543518},
        {LZ_PACKING_IQ4_XS, 0, -1, 150, -148.75, 378.25, 253.75, 55.25, -4983, -960461.75},
    };
    for (size_t t = 0; t < sizeof of / sizeof *of; t++) {
        const lz_packing_info *info = &lz_packing_table[of[t].packing];
        uint8_t block[256];
        for (int k = 0; k < info->bytes; k++) block[k] = (uint8_t)(73 * k + 29);
        block[of[t].d] = 0, block[of[t].d + 1] = 0x34;
        if (of[t].m >= 0) block[of[t].m] = 0, block[of[t].m + 1] = 0x30;
        double sum = 0, weighted = 0;
        for (int i = 0; i < info->elements; i++) {
            double y = (double)lz_unpack_element(of[t].packing, block, i);
            sum += y, weighted += (i + 1) * y;
        }
        double got[] = {(double)lz_unpack_element(of[t].packing, block, 0),
                        (double)lz_unpack_element(of[t].packing, block, 1),
                        (double)lz_unpack_element(of[t].packing, block, of[t].middle),
                        (double)lz_unpack_element(of[t].packing, block, info->elements - 1),
                        sum,
                        weighted};
        double want[] = {of[t].first, of[t].second, of[t].at_middle, of[t].last, of[t].sum, of[t].weighted};
        for (int i = 0; i < 6; i++) CHECK(got[i] == want[i], "%s %d: %g, not %g", info->name, i, got[i], want[i]);
    }
}

static lz_scale_row scale_row(lz_array *a, int64_t row, int64_t rows) { /* a row of scales for one of so many rows */
    if (!a) return (lz_scale_row){0};
    lz_dims dims = lz_shape(a);
    int64_t at = row / (rows / dims.at[0]) * dims.at[1] * lz_dtype_size(lz_type(a));
    return (lz_scale_row){(const char *)lz_data(a, NULL) + at, lz_type(a), 1};
}

/* The next case of the golden file, from tensor *t on: codes, values, scales, offsets; false: there is none. */
typedef struct golden {
    char name[64];
    int packing;
    lz_array *codes, *values, *scales, *offsets;
    int64_t rows, columns, group;
    int rotate;
} golden;

static bool next_golden(lz_weights *w, int64_t *t, golden *g) {
    for (; *t < lz_weights_count(w); ++*t) {
        char packing[16];
        int n = 0;
        *g = (golden){.packing = -1};
        if (sscanf(lz_weights_name(w, *t), "%50[^.].codes%n", g->name, &n) != 1 || !n) continue;
        snprintf(packing, sizeof packing, "%.*s", (int)strcspn(g->name, "-"), g->name);
        g->packing = lz_packing_by_name(packing);
        if (!CHECK(g->packing >= 0, "%s", packing)) continue;
        static const char *const parts[] = {"codes", "values", "scales", "offsets"};
        lz_array **to[] = {&g->codes, &g->values, &g->scales, &g->offsets};
        for (int i = 0; i < 4; i++) {
            char full[80];
            snprintf(full, sizeof full, "%s.%s", g->name, parts[i]);
            if (lz_weights_has(w, full)) *to[i] = lz_weights_get(w, full);
        }
        g->rows = lz_shape(g->values).at[0], g->columns = lz_shape(g->values).at[1];
        g->group = g->scales ? g->columns / lz_shape(g->scales).at[1] : 0;
        const char *rotate = strstr(g->name, "-rotate");
        g->rotate = rotate ? atoi(rotate + 7) : 0;
        ++*t;
        return true;
    }
    return false;
}

static void check_golden(const golden *g, const char *who, const float *got, const float *want, int64_t first,
                         int64_t n) {
    for (int64_t i = 0; i < n; i++)
        CHECK(g->rotate ? fabsf(got[i] - want[i]) <= 1e-4f : ulp_distance(got[i], want[i]) == 0,
              "%s: %s, element %lld: %.9g, not %.9g", who, g->name, (long long)(first + i), (double)got[i],
              (double)want[i]);
}

static void goldens(void) {
    lz_error err;
    lz_context *ctx = lz_open(.error = &err);
    lz_weights *w = lz_weights_open(ctx, test_data("packing.safetensors"), &err);
    if (!CHECK(w != NULL, "%s", err.text)) return;
    unsigned seen = 0;
    golden g;
    for (int64_t t = 0; next_golden(w, &t, &g);) {
        seen |= 1u << g.packing;
        int64_t bytes = lz_shape(g.codes).at[1];
        CHECK_I64(lz_packing_row_bytes((lz_packing)g.packing, g.columns), bytes);
        const float *want = lz_data(g.values, &err);
        float *got = calloc((size_t)g.columns, sizeof(float));
        for (int64_t o = 0; o < g.rows; o++) {
            lz_scale_row scales = scale_row(g.scales, o, g.rows), offsets = scale_row(g.offsets, o, g.rows);
            lz_unpack_row((lz_packing)g.packing, (const uint8_t *)lz_data(g.codes, &err) + o * bytes, g.columns,
                          &scales, &offsets, g.group, 1.0f, g.rotate, got);
            check_golden(&g, "formula", got, want + o * g.columns, o * g.columns, g.columns);
        }
        free(got);
    }
    CHECK_I64(seen, (1u << LZ_PACKING_COUNT) - 1);
    lz_weights_close(w);
    lz_close(ctx);
}

/* The op, on every backend that there is. */
static void op_goldens(void) {
    static const char *const names[] = {"ref", "amx", "avx512bf16", "avx512", "avx2", "armbf16", "baseline"};
    const char *device = getenv("LZ_TEST_DEVICE");
    for (size_t i = 0; i < (device ? 1 : sizeof names / sizeof *names); i++) {
        lz_error err = {0};
        const char *who = device ? device : names[i];
        lz_context *ctx = device || !i ? open_as_asked(LZ_CONTEXT_OPTIONS(.device = who, .threads = 2), &err)
                                       : lz_open(.isa = who, .threads = 2);
        if (!ctx && i) continue; /* not on this machine */
        if (!CHECK(ctx != NULL, "%s: %s", who, err.text)) continue;
        lz_weights *w = lz_weights_open(ctx, test_data("packing.safetensors"), &err);
        if (!CHECK(w != NULL, "%s", err.text)) continue;
        golden g;
        for (int64_t t = 0; next_golden(w, &t, &g);) {
            lz_scope *scope = lz_scope_begin(ctx, g.name);
            int64_t shared = g.scales ? g.rows / lz_shape(g.scales).at[0] : 0;
            lz_array *y = lz_unpack(g.codes, g.scales, g.offsets, .packing = lz_packing_table[g.packing].name,
                                    .dtype = LZ_F32, .group = g.group, .row_group = shared, .rotate = g.rotate);
            const float *got = lz_data(y, &err), *want = lz_data(g.values, NULL);
            if (CHECK(got != NULL && same_dims(lz_shape(y), lz_shape(g.values)), "%s: %s: %s", who, g.name, err.text))
                check_golden(&g, who, got, want, 0, g.rows * g.columns);
            lz_scope_end(scope);
        }
        lz_weights_close(w);
        lz_close(ctx);
    }
}

static void edges(void) {
    CHECK_I64(lz_packing_by_name("q4_k"), LZ_PACKING_Q4_K);
    CHECK_I64(lz_packing_by_name("q4"), -1);
    CHECK_I64(lz_packing_by_name(NULL), -1);
    CHECK_I64(lz_packing_row_bytes(LZ_PACKING_Q4_K, 257), 288);
    CHECK_I64(lz_packing_row_bytes(LZ_PACKING_U3, 64), 24);
    CHECK_I64(lz_packing_row_bytes(LZ_PACKING_Q8_0, INT64_MAX), -1);
    CHECK_I64(lz_packing_row_bytes(LZ_PACKING_I8, -1), -1);
    /* Numbers of 8 bits, as the tables of their formats say. */
    uint8_t codes[] = {0x38, 0x01, 0x7e, 0x3c, 0x7b, 0x7c};
    CHECK(lz_unpack_element(LZ_PACKING_E4M3, codes, 0) == 1.0f);
    CHECK(lz_unpack_element(LZ_PACKING_E4M3, codes, 1) == 0x1p-9f);
    CHECK(lz_unpack_element(LZ_PACKING_E4M3, codes, 2) == 448.0f);
    CHECK(lz_unpack_element(LZ_PACKING_E5M2, codes, 3) == 1.0f);
    CHECK(lz_unpack_element(LZ_PACKING_E5M2, codes, 4) == 57344.0f);
    CHECK(isinf(lz_unpack_element(LZ_PACKING_E5M2, codes, 5)));
    uint8_t powers[] = {0, 1, 127, 254, 255};
    lz_scale_row row = {powers, LZ_U8, 1};
    CHECK(lz_scale_at(&row, 0) == 0.0f && lz_scale_at(&row, 1) == 0x1p-126f && lz_scale_at(&row, 2) == 1.0f);
    CHECK(lz_scale_at(&row, 3) == 0x1p127f && isnan(lz_scale_at(&row, 4)));
    uint8_t f6 = 0xf6; /* the high nibble, -6, is the even element */
    CHECK(lz_unpack_element(LZ_PACKING_E2M1, &f6, 0) == -6.0f && lz_unpack_element(LZ_PACKING_E2M1, &f6, 1) == 4.0f);
    CHECK(lz_unpack_element(LZ_PACKING_I4, &f6, 0) == -2.0f && lz_unpack_element(LZ_PACKING_I4, &f6, 1) == 7.0f);
    CHECK(lz_unpack_element(LZ_PACKING_S4, &f6, 0) == 6.0f && lz_unpack_element(LZ_PACKING_S4, &f6, 1) == -1.0f);
    /* H is its own inverse, and exact on small integers. */
    float x[256];
    for (int i = 0; i < 256; i++) x[i] = (float)(i * 37 % 101 - 50);
    lz_rotate_group(x, 256);
    lz_rotate_group(x, 256);
    for (int i = 0; i < 256; i++) CHECK(x[i] == (float)(i * 37 % 101 - 50), "%d: %g", i, (double)x[i]);
}

/* ---- the op: its rule, and what programs make of it ------------------------------------------------------------------ */

static void rules(void) {
    lz_context *ctx = lz_open(.threads = 1);
    lz_array *codes = lz_full(ctx, LZ_DIMS(6, 144), LZ_U8, 1), *bytes = lz_full(ctx, LZ_DIMS(6, 100), LZ_U8, 200);
    lz_array *one = lz_full(ctx, LZ_NONE, LZ_F32, 1), *row = lz_full(ctx, LZ_DIMS(6, 1), LZ_F32, 1);
    lz_array *turned = lz_full(ctx, LZ_DIMS(1, 6), LZ_F32, 1), *power = lz_full(ctx, LZ_DIMS(6, 1), LZ_U8, 127);
    struct {
        lz_status status;
        const char *text;
        lz_array *array;
    } of[] = {
        {LZ_OK, "", lz_unpack(codes, NULL, NULL, .packing = "q4_k")},
        {LZ_OK, "", lz_unpack(codes, NULL, NULL, .packing = "q4_k", .columns = 255, .factor = 2)},
        {LZ_OK, "", lz_unpack(bytes, one, NULL, .packing = "e4m3")},
        {LZ_OK, "", lz_unpack(bytes, row, row, .packing = "i8", .dtype = LZ_F16)},
        {LZ_OK, "", lz_unpack(bytes, power, NULL, .packing = "i8", .rotate = 4)},
        {LZ_OK, "", lz_unpack(lz_reshape(bytes, LZ_DIMS(2, 3, 100)), one, NULL, .packing = "u5")},
        {LZ_OK, "",
         lz_unpack(bytes, lz_full(ctx, LZ_DIMS(3, 4), LZ_BF16, 1), NULL, .packing = "i8", .group = 32, .row_group = 2)},
        {LZ_BAD_ARGUMENT, "no packing 'q9'", lz_unpack(codes, NULL, NULL, .packing = "q9")},
        {LZ_BAD_ARGUMENT, "no packing ''", lz_unpack(codes, NULL, NULL)},
        {LZ_BAD_ARGUMENT, "their own scales", lz_unpack(codes, one, NULL, .packing = "q4_k")},
        {LZ_BAD_ARGUMENT, "offsets need scales", lz_unpack(bytes, NULL, row, .packing = "i8")},
        {LZ_BAD_ARGUMENT, "rotated by 8", lz_unpack(bytes, NULL, NULL, .packing = "i8", .rotate = 8)},
        {LZ_BAD_ARGUMENT, "rotated by 16", lz_unpack(bytes, NULL, NULL, .packing = "i8", .rotate = 16)},
        {LZ_BAD_ARGUMENT, "groups of -1", lz_unpack(bytes, NULL, NULL, .packing = "i8", .group = -1)},
        {LZ_BAD_ARGUMENT, "factor of inf", lz_unpack(bytes, NULL, NULL, .packing = "i8", .factor = INFINITY)},
        {LZ_BAD_SHAPE, "blocks of 144 bytes", lz_unpack(bytes, NULL, NULL, .packing = "q4_k")},
        {LZ_BAD_SHAPE, "256", lz_unpack(codes, NULL, NULL, .packing = "q4_k", .columns = 257)},
        {LZ_BAD_SHAPE, "do not hold", lz_unpack(bytes, NULL, NULL, .packing = "i8", .columns = 99)},
        {LZ_BAD_SHAPE, "do not hold", lz_unpack(bytes, NULL, NULL, .packing = "i8", .columns = INT64_MAX)},
        {LZ_BAD_SHAPE, "do not hold", lz_unpack(bytes, NULL, NULL, .packing = "i8", .columns = -1)},
        {LZ_BAD_SHAPE, "broadcast", lz_unpack(bytes, turned, NULL, .packing = "i8")},
        {LZ_BAD_SHAPE, "broadcast", lz_unpack(bytes, row, row, .packing = "i8", .row_group = 2)},
        {LZ_BAD_SHAPE, "not rows", lz_unpack(lz_full(ctx, LZ_NONE, LZ_U8, 1), NULL, NULL, .packing = "i8")},
        {LZ_BAD_TYPE, "codes of type f32", lz_unpack(row, NULL, NULL, .packing = "i8")},
        {LZ_BAD_TYPE, "offsets of type u8", lz_unpack(bytes, row, power, .packing = "i8")},
        {LZ_BAD_TYPE, "not i32", lz_unpack(bytes, NULL, NULL, .packing = "i8", .dtype = LZ_I32)},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        lz_error err = {0};
        CHECK(lz_check(of[i].array, &err) == of[i].status, "rule %d: %s", (int)i, err.text);
        if (of[i].status && strcmp(of[i].text, "256")) CHECK_TEXT(err.text, of[i].text);
    }
    CHECK(lz_unpack(NULL, NULL, NULL, .packing = "i8") == NULL);
    lz_dims d = lz_shape(of[0].array);
    CHECK(d.n == 2 && d.at[0] == 6 && d.at[1] == 256);
    CHECK_I64(lz_type(of[0].array), lz_compute_type(ctx));
    CHECK(lz_item(lz_slice(lz_slice(of[2].array, 0, 5, 6, 1), 1, 99, 100, 1), NULL) == -4.0); /* 0xc8 in e4m3 */
    lz_close(ctx);
}

enum { ROWS = 96, OUT = 160, IN = 512 };
static uint8_t stored[OUT * IN / 32 * 34]; /* Q8_0 */

static void fill_stored(void) {
    for (size_t i = 0; i < sizeof stored; i++) stored[i] = (uint8_t)(i * 37 % 251);
    for (size_t i = 0; i < sizeof stored; i += 34) stored[i] = 0, stored[i + 1] = 0x1c; /* 2^-8 */
}

static lz_array *layer(lz_array *x, lz_array *codes) {
    return lz_silu(lz_linear(x, lz_unpack(codes, NULL, NULL, .packing = "q8_0"), NULL));
}

static void describe_layer(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx;
    *out = layer(in[0], user);
}

/* The product reads the packed weight: no array of its size is made, neither for a run nor between runs. */
static void stays_packed(void) {
    lz_error err = {0};
    lz_context *ctx = lz_open(.threads = 2, .compute = LZ_F32);
    fill_stored();
    lz_array *codes = lz_borrow(ctx, LZ_DIMS(OUT, IN / 32 * 34), LZ_U8, stored, NULL, NULL);
    lz_array *x = lz_randn(ctx, LZ_DIMS(ROWS, IN), 3), *y = layer(x, codes);
    CHECK_OK(lz_eval(x, &err), &err);
    char *text = lz_graph_text(&y, 1, LZ_GRAPH_PROGRAM, &err);
    CHECK_TEXT(text, "cpu.packed_matmul");
    CHECK(text && !strstr(text, "cpu.unpack") && strstr(text, "# 1 kernels"), "%s", text);
    lz_free_text(ctx, text);
    lz_plan_info info;
    CHECK_OK(lz_plan(&y, 1, &info, &err), &err);
    CHECK_I64(info.input_bytes, (int64_t)sizeof stored + ROWS * IN * 4);
    CHECK(info.flops >= 2.0 * ROWS * OUT * IN && info.flops < 2.1 * ROWS * OUT * IN, "%g", info.flops);
    CHECK(info.bytes < (double)sizeof stored + 4.0 * ROWS * (IN + OUT) + 1, "%g", info.bytes);

    lz_compiled *f = lz_compile(ctx, describe_layer, codes, 1, 1, 1, &err);
    lz_array *out = NULL;
    int64_t before = lz_memory_info(ctx).active;
    lz_scope *scope = lz_scope_begin(ctx, "runs");
    for (int i = 0; i < 2; i++) CHECK_OK(lz_run(f, &x, &out, &err), &err);
    CHECK(same_bits(lz_data(out, &err), lz_data(y, &err), ROWS * OUT * 4));
    lz_scope_end(scope);
    lz_compiled_free(f);
    CHECK(lz_memory_info(ctx).active - before < OUT * IN * 4, "%lld", (long long)(lz_memory_info(ctx).active - before));
    lz_close(ctx);

    ctx = lz_open(.threads = 2, .compute = LZ_F32, .no_fusion = true);
    x = lz_randn(ctx, LZ_DIMS(ROWS, IN), 3);
    y = layer(x, lz_borrow(ctx, LZ_DIMS(OUT, IN / 32 * 34), LZ_U8, stored, NULL, NULL));
    text = lz_graph_text(&y, 1, LZ_GRAPH_PROGRAM, &err);
    CHECK_TEXT(text, "cpu.unpack");
    lz_free_text(ctx, text);
    lz_close(ctx);
}

/* ---- products of 8-bit integers -------------------------------------------------------------------------------------- */

enum { INT8_KINDS = 8, WITH_DEVICE };
static lz_context *open_int8(int i) { /* NULL: this machine has no such kernels */
    static const char *const isas[] = {NULL, "baseline", "avx2", "avx512", "avx512bf16", "amx", "armbf16"};
    const char *device = getenv("LZ_TEST_DEVICE");
    lz_context_options there = LZ_CONTEXT_OPTIONS(.device = device, .compute = LZ_I8);
    if (i == INT8_KINDS) return device ? open_as_asked(there, NULL) : NULL;
    if (i == 0) return lz_open(.device = "ref", .compute = LZ_I8);
    return lz_open(.isa = isas[i - 1], .threads = 1 + i % 3, .compute = LZ_I8);
}

static lz_array *int8_layer(lz_array *x, lz_array *codes, lz_array *scales, int rotate) {
    return lz_linear(x, lz_unpack(codes, scales, NULL, .packing = "i8", .dtype = LZ_F32, .rotate = rotate), NULL);
}

static void int8_goldens(void) {
    for (int i = 0; i < INT8_KINDS; i++) {
        lz_error err = {0};
        lz_context *ctx = open_int8(i);
        if (!ctx) continue;
        lz_weights *w = lz_weights_open(ctx, test_data("int8_product.safetensors"), &err);
        if (!CHECK(w != NULL, "%s", err.text)) return;
        lz_array *x = lz_weights_get(w, "x"), *codes = lz_weights_get(w, "codes"),
                 *scales = lz_weights_get(w, "scales");
        const char *names[] = {"plain", "rotated"};
        for (int k = 0; k < 2; k++) {
            lz_array *y = int8_layer(x, codes, scales, 256 * k), *want = lz_weights_get(w, names[k]);
            char *text = lz_graph_text(&y, 1, LZ_GRAPH_PROGRAM, &err);
            CHECK_TEXT(text, "int8_matmul");
            lz_free_text(ctx, text);
            CHECK(same_bits(lz_data(y, &err), lz_data(want, &err), 4 * 5 * 7), "%s, %s", lz_device_name(ctx), names[k]);
        }
        lz_weights_close(w);
        lz_close(ctx);
    }
}

/* Activations whose largest magnitude is 127 have a scale of 1. */
static void int8_sums_are_exact(void) {
    enum { M = 20, K = 5008, N = 48 }; /* sizes that devices multiply */
    static float x[M][K];
    static int8_t codes[N][K];
    uint32_t random = 1;
    for (int k = 0; k < K; k++) {
        x[0][k] = 127, x[1][k] = -127;
        for (int m = 2; m < M; m++) {
            random = random * 1664525 + 1013904223;
            x[m][k] = k ? (float)((int)(random >> 24) % 255 - 127) : 127;
        }
        for (int n = 0; n < N; n++) {
            random = random * 1664525 + 1013904223;
            codes[n][k] = n == 0 ? -128 : n == 1 ? 127 : (int8_t)(random >> 24);
        }
    }
    for (int i = 0; i < WITH_DEVICE; i++) {
        lz_error err = {0};
        lz_context *ctx = open_int8(i);
        if (!ctx) continue;
        lz_array *a = lz_from(ctx, LZ_DIMS(M, K), LZ_F32, x), *w = lz_from(ctx, LZ_DIMS(N, K), LZ_I8, codes);
        const float *y = lz_data(int8_layer(a, w, NULL, 0), &err);
        for (int m = 0; y && m < M; m++)
            for (int n = 0; n < N; n++) {
                int64_t sum = 0;
                for (int k = 0; k < K; k++) sum += (int64_t)x[m][k] * codes[n][k];
                CHECK(y[m * N + n] == (float)sum, "%s: [%d, %d] is %.1f, not %lld", lz_device_name(ctx), m, n,
                      (double)y[m * N + n], (long long)sum);
            }
        CHECK(y != NULL, "%s", err.text);
        lz_close(ctx);
    }
}

/* The sums of MOST columns at the limits of the codes just fit into 32 bits: with VNNI, 255 * 127 * MOST is 1.2 % less than
 * 2^31. Longer rows are unpacked and multiplied as f32. */
static void int8_longest_rows(void) {
    enum { MOST = 1 << 16, M = 2, N = 3 }; /* MOST is that of graph/lower.c */
    static float x[M * (MOST + 1)];
    static int8_t codes[N * (MOST + 1)];
    static const int8_t limits[N] = {127, -128, -127};
    for (int i = 0; i < 2 * INT8_KINDS; i++) {
        int64_t columns = MOST + i % 2;
        lz_error err = {0};
        lz_context *ctx = open_int8(i / 2);
        if (!ctx) continue;
        for (int64_t k = 0; k < M * columns; k++) x[k] = k < columns ? 127 : -127;
        for (int64_t k = 0; k < N * columns; k++) codes[k] = limits[k / columns];
        lz_array *y = int8_layer(lz_from(ctx, LZ_DIMS(M, columns), LZ_F32, x),
                                 lz_from(ctx, LZ_DIMS(N, columns), LZ_I8, codes), NULL, 0);
        char *text = lz_graph_text(&y, 1, LZ_GRAPH_PROGRAM, &err);
        bool is_int8 = text && strstr(text, "int8_matmul"), is_packed = text && strstr(text, "packed_matmul");
        CHECK(columns > MOST ? !is_int8 && (is_packed || i / 2 == 0) : is_int8, "%s: %s", lz_device_name(ctx),
              text ? text : err.text);
        lz_free_text(ctx, text);
        const float *got = lz_data(y, &err);
        CHECK(got != NULL, "%s", err.text);
        for (int k = 0; got && k < M * N; k++) {
            double want = (double)columns * (k < N ? 127 : -127) * limits[k % N];
            double error = columns > MOST ? 1e-3 * fabs(want) : 0;
            CHECK(fabs((double)got[k] - want) <= error, "%s, %d columns: [%d, %d] is %.1f, not %.1f",
                  lz_device_name(ctx), (int)columns, k / N, k % N, (double)got[k], want);
        }
        lz_close(ctx);
    }
}

/* A row with a number that is not finite becomes NaN, as a whole and alone. Rows of zeros, and of numbers that cannot be told
 * from zero, become zeros. The largest numbers are as exact as others. */
static void int8_edges(void) {
    enum { M = 7, K = 256, N = 16 };
    static float x[M][K];
    static int8_t codes[N][K];
    for (int k = 0; k < K; k++) {
        for (int m = 0; m < M; m++) x[m][k] = (float)(k % 7 - 3);
        x[1][k] = 0, x[4][k] = 1e-40f, x[5][k] = k ? 0 : -3e35f, x[6][k] = k % 2 ? 3.4e38f : -3.4e38f;
        for (int n = 0; n < N; n++) codes[n][k] = (int8_t)(k * 3 + n);
    }
    x[2][100] = NAN, x[3][255] = -INFINITY;
    for (int i = 0; i < 2 * WITH_DEVICE; i++) {
        lz_error err = {0};
        lz_context *ctx = open_int8(i / 2);
        if (!ctx) continue;
        int rotate = i % 2 ? 256 : 0;
        lz_array *a = lz_from(ctx, LZ_DIMS(M, K), LZ_F32, x), *w = lz_from(ctx, LZ_DIMS(N, K), LZ_I8, codes);
        const float *y = lz_data(int8_layer(a, w, lz_full(ctx, LZ_NONE, LZ_F32, 0.01), rotate), &err);
        if (!CHECK(y != NULL, "%s", err.text)) return;
        for (int n = 0; n < N; n++) {
            const char *who = lz_device_name(ctx);
            CHECK(isfinite(y[n]) && fabsf(y[n]) < 1e4f, "%s: %g", who, (double)y[n]);
            CHECK(y[N + n] == 0 && y[4 * N + n] == 0, "%s: %g %g", who, (double)y[N + n], (double)y[4 * N + n]);
            CHECK(isnan(y[2 * N + n]) && isnan(y[3 * N + n]), "%s", who);
            /* -3e35 has the code -127; rotated, all numbers of the row have the same magnitude. */
            float want = -3e35f * (float)codes[n][0] * 0.01f;
            if (!rotate) CHECK(fabsf(y[5 * N + n] - want) <= 1e-5f * fabsf(want), "%s: %g", who, (double)y[5 * N + n]);
            CHECK(isfinite(y[5 * N + n]), "%s", who);
            CHECK(rotate ? isnan(y[6 * N + n]) : !isnan(y[6 * N + n]), "%s: %g", who, (double)y[6 * N + n]);
        }
        lz_close(ctx);
    }
}

/* Weights with other scales than one for each row are unpacked, as in other contexts. */
static void int8_where_it_fits(void) {
    lz_error err = {0};
    lz_context *ctx = lz_open(.compute = LZ_I8);
    lz_array *x = lz_full(ctx, LZ_DIMS(9, 64), LZ_F32, 1), *codes = lz_from(ctx, LZ_DIMS(2, 64), LZ_I8, stored);
    lz_array *of[] = {
        lz_unpack(codes, lz_full(ctx, LZ_DIMS(2, 2), LZ_F32, 1), NULL, .packing = "i8", .group = 32),
        lz_unpack(codes, lz_full(ctx, LZ_DIMS(2, 1), LZ_F32, 1), lz_full(ctx, LZ_DIMS(2, 1), LZ_F32, 1),
                  .packing = "i8"),
        lz_unpack(codes, NULL, NULL, .packing = "u8"),
        lz_unpack(codes, NULL, NULL, .packing = "i8"),
    };
    for (int i = 0; i < 4; i++) {
        lz_array *y = lz_linear(x, of[i], NULL);
        char *text = lz_graph_text(&y, 1, LZ_GRAPH_PROGRAM, &err);
        CHECK_TEXT(text, i < 3 ? "cpu.packed_matmul" : "cpu.int8_matmul");
        lz_free_text(ctx, text);
    }
    lz_close(ctx);
}

/* ---- fp8 ---------------------------------------------------------------------------------------------------------- */

static void f8_rows(void) {
    enum { N = 48 };
    float x[N];
    uint8_t codes[N];
    test_random r = {3};
    for (int i = 0; i < N; i++) x[i] = (float)random_normal(&r);
    x[7] = -5;
    float scale = lz_quantise_row(LZ_F8, x, N, 0, codes);
    CHECK(scale == 5.0f / 448, "%g", (double)scale);
    CHECK(lz_from_f8(codes[7]) == -448, "the largest magnitude is the largest code");
    for (int i = 0; i < N; i++)
        CHECK(fabsf(lz_from_f8(codes[i]) * scale - x[i]) <= fabsf(x[i]) / 15 + scale / 512, "%g", (double)x[i]);
    static const float odd[] = {NAN, INFINITY, -INFINITY, 1e-35f, 0, 3e38f};
    for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
        for (int i = 0; i < N; i++) x[i] = k < 3 ? x[i] : 0;
        x[5] = odd[k];
        scale = lz_quantise_row(LZ_F8, x, N, 0, codes);
        CHECK(k < 3 ? isnan(scale) : k < 5 ? scale == 0 : scale > 0, "%g: %g", (double)odd[k], (double)scale);
        if (k < 5) CHECK(!codes[5] && !codes[6], "%g", (double)odd[k]);
        if (k == 5) CHECK(lz_from_f8(codes[5]) == 448 && !codes[6]);
    }
}

/* The scale of a row of weights has less error than the smallest one, and no code saturates. */
static void f8_scales(void) {
    enum { N = 512 };
    float x[N];
    double sums[2] = {0}; /* of the errors of all rows: with the smallest scale, and with the scale of the search */
    test_random r = {4};
    for (int k = 0; k < 50; k++) {
        float largest = 0;
        double error[2] = {0};
        for (int i = 0; i < N; i++) x[i] = (float)random_normal(&r) * 0.02f;
        for (int i = 0; i < N; i++) largest = fmaxf(largest, fabsf(x[i]));
        const float scale[2] = {largest / 448, lz_fit_f8_scale(x, N)};
        CHECK(scale[1] >= scale[0] && scale[1] < 2 * scale[0], "%g", (double)(scale[1] / scale[0]));
        for (int j = 0; j < 2; j++)
            for (int i = 0; i < N; i++)
                error[j] += pow((double)(lz_from_f8(lz_to_f8(x[i] / scale[j])) * scale[j] - x[i]), 2);
        CHECK(error[1] <= 1.002 * error[0], "%g, not %g", error[1], error[0]);
        sums[0] += error[0], sums[1] += error[1];
    }
    CHECK(sums[1] <= 0.99 * sums[0], "%g of the error of the smallest scale", sums[1] / sums[0]);
    memset(x, 0, sizeof x);
    CHECK(lz_fit_f8_scale(x, N) == 1);
    x[3] = NAN;
    CHECK(lz_fit_f8_scale(x, N) == 1);
}

/* The inverse of a scale that belongs to such a weight would be infinite, and zero times it not a number. */
static void tiny_weights(void) {
    enum { N = 64 };
    float x[N] = {[5] = 1e-37f};
    uint8_t codes[N];
    for (int sign = 0; sign < 2; sign++, x[5] = -x[5]) {
        lz_pack_codes(LZ_PACKING_E4M3, x, N, lz_fit_f8_scale(x, N), codes);
        for (int i = 0; i < N; i++) CHECK((codes[i] & 0x7f) != 0x7f, "f8: %d is NaN", i);
        lz_pack_codes(LZ_PACKING_I8, x, N, lz_pack_scale(LZ_PACKING_I8, fabsf(x[5])), codes);
        for (int i = 0; i < N; i++) CHECK(codes[i] == 0, "int8: %d has the code %d", i, (int8_t)codes[i]);
    }
}

/* Sizes that are no multiples of 16, groups of columns and offsets are unpacked, as in other contexts. */
static void f8_where_it_fits(void) {
    lz_error err = {0};
    lz_context *ctx = lz_open(.device = "ref", .compute = LZ_F8, .error = &err);
    static const uint8_t zeros[48 * 48];
    lz_array *one = lz_full(ctx, LZ_NONE, LZ_F32, 1);
    lz_array *codes = lz_from(ctx, LZ_DIMS(48, 48), LZ_F8, zeros);
    lz_array *of[] = {
        lz_unpack(codes, one, NULL, .packing = "e4m3"),
        lz_unpack(codes, NULL, NULL, .packing = "e4m3"),
        lz_unpack(codes, lz_full(ctx, LZ_DIMS(48, 3), LZ_F32, 1), NULL, .packing = "e4m3", .group = 16),
        lz_unpack(codes, one, one, .packing = "e4m3"),
        lz_unpack(codes, NULL, NULL, .packing = "e5m2"),
        lz_unpack(lz_slice(codes, 0, 0, 40, 1), NULL, NULL, .packing = "e4m3"),
    };
    for (int i = 0; CHECK(ctx, "%s", err.text) && i < 6; i++) {
        lz_array *y = lz_linear(lz_full(ctx, LZ_DIMS(9, 48), LZ_F32, 1), of[i], NULL);
        char *text = lz_graph_text(&y, 1, LZ_GRAPH_PROGRAM, &err);
        CHECK(text && (strstr(text, "ref.codes_matmul") != NULL) == (i < 2), "%d: %s", i, text ? text : err.text);
        lz_free_text(ctx, text);
    }
    lz_close(ctx);
    CHECK(!lz_open(.device = "cpu", .compute = LZ_F8, .error = &err));
    CHECK_TEXT(err.text, "the device 'cpu");
    CHECK_TEXT(err.text, "has no products of fp8; NVIDIA GPUs of compute capability 8.9");
}

TEST_MAIN({"test vectors", test_vectors}, {"goldens", goldens}, {"op_goldens", op_goldens}, {"edges", edges},
          {"rules", rules}, {"stays_packed", stays_packed}, {"int8_goldens", int8_goldens},
          {"int8_sums_are_exact", int8_sums_are_exact}, {"int8_longest_rows", int8_longest_rows},
          {"int8_edges", int8_edges}, {"int8_where_it_fits", int8_where_it_fits}, {"f8_rows", f8_rows},
          {"f8_scales", f8_scales}, {"tiny_weights", tiny_weights}, {"f8_where_it_fits", f8_where_it_fits})
