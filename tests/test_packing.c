/* The formulas of packed weights: the test vectors of blocks, golden values of other readers (tools/oracle/packing.py), and
 * numbers at the edges. */
#include "check.h"
#include "op/packing.h"

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

static void goldens(void) {
    lz_error err;
    lz_context *ctx = lz_open(.error = &err);
    lz_weights *w = lz_weights_open(ctx, test_data("packing.safetensors"), &err);
    if (!CHECK(w != NULL, "%s", err.text)) return;
    unsigned seen = 0;
    for (int64_t t = 0; t < lz_weights_count(w); t++) {
        char name[64], packing[16];
        int n = 0;
        if (sscanf(lz_weights_name(w, t), "%50[^.].codes%n", name, &n) != 1 || !n) continue;
        snprintf(packing, sizeof packing, "%.*s", (int)strcspn(name, "-"), name);
        int p = lz_packing_by_name(packing);
        if (!CHECK(p >= 0, "%s", packing)) continue;
        seen |= 1u << p;
        lz_array *arrays[4] = {0};
        static const char *const parts[] = {"codes", "values", "scales", "offsets"};
        for (int i = 0; i < 4; i++) {
            char full[80];
            snprintf(full, sizeof full, "%s.%s", name, parts[i]);
            if (lz_weights_has(w, full)) arrays[i] = lz_weights_get(w, full);
        }
        lz_dims dims = lz_shape(arrays[1]);
        int64_t bytes = lz_shape(arrays[0]).at[1], columns = dims.at[1];
        int64_t group = arrays[2] ? columns / lz_shape(arrays[2]).at[1] : 0;
        const char *turned = strstr(name, "-rotate");
        CHECK_I64(lz_packing_row_bytes((lz_packing)p, columns), bytes);
        const float *want = lz_data(arrays[1], &err);
        float *got = calloc((size_t)columns, sizeof(float));
        for (int64_t o = 0; o < dims.at[0]; o++) {
            lz_scale_row scales = scale_row(arrays[2], o, dims.at[0]), offsets = scale_row(arrays[3], o, dims.at[0]);
            lz_unpack_row((lz_packing)p, (const uint8_t *)lz_data(arrays[0], &err) + o * bytes, columns, &scales,
                          &offsets, group, 1.0f, turned ? atoi(turned + 7) : 0, got);
            const float *row = want + o * columns;
            for (int64_t i = 0; i < columns; i++)
                CHECK(turned ? fabsf(got[i] - row[i]) <= 1e-4f : ulp_distance(got[i], row[i]) == 0,
                      "%s [%lld, %lld]: %.9g, not %.9g", name, (long long)o, (long long)i, (double)got[i],
                      (double)row[i]);
        }
        free(got);
    }
    CHECK_I64(seen, (1u << LZ_PACKING_COUNT) - 1);
    lz_weights_close(w);
    lz_close(ctx);
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

TEST_MAIN({"test vectors", test_vectors}, {"goldens", goldens}, {"edges", edges})
