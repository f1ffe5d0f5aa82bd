/* random_packed.h: random cases of packed weights, for test_random_shapes.c: every packing, with and without scales, offsets and
 * rotation, by itself and as the weight of a layer. */
#ifndef LZ_RANDOM_PACKED_H
#define LZ_RANDOM_PACKED_H

#include "op/packing.h"
#include "random_case.h"

/* Where blocks hold numbers of f16; random bytes would often be infinite there. */
static const struct {
    int n, at[2];
} half_fields[LZ_PACKING_COUNT] = {
    [LZ_PACKING_Q4_0] = {1, {0}},    [LZ_PACKING_Q4_1] = {2, {0, 2}}, [LZ_PACKING_Q5_0] = {1, {0}},
    [LZ_PACKING_Q5_1] = {2, {0, 2}}, [LZ_PACKING_Q8_0] = {1, {0}},    [LZ_PACKING_Q2_K] = {2, {80, 82}},
    [LZ_PACKING_Q3_K] = {1, {108}},  [LZ_PACKING_Q4_K] = {2, {0, 2}}, [LZ_PACKING_Q5_K] = {2, {0, 2}},
    [LZ_PACKING_Q6_K] = {1, {208}},  [LZ_PACKING_IQ4_NL] = {1, {0}},  [LZ_PACKING_IQ4_XS] = {1, {0}},
};

static inline void random_codes(test_random *r, lz_packing p, uint8_t *to, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)random_bits(r);
        if (p == LZ_PACKING_E4M3 && (to[i] & 0x7f) == 0x7f) to[i] ^= 1;
        if (p == LZ_PACKING_E5M2) to[i] &= 0xbf; /* below 2 */
    }
    for (int64_t b = 0; b + lz_packing_table[p].bytes <= bytes; b += lz_packing_table[p].bytes) {
        for (int i = 0; i < half_fields[p].n; i++) {
            uint16_t h = lz_to_f16((float)(random_normal(r) * 0.01));
            memcpy(to + b + half_fields[p].at[i], &h, 2);
        }
        if (p == LZ_PACKING_MXFP4) to[b] = (uint8_t)random_int(r, 120, 126);
        for (int i = 0; p == LZ_PACKING_NVFP4 && i < 4; i++) to[b + i] = (uint8_t)random_int(r, 0x10, 0x38);
    }
}

static inline lz_array *bytes_leaf(builder *b, lz_dims dims, lz_packing p) { /* p COUNT: powers of two around 1 */
    int number = b->n_leaves++;
    if (b->given) return b->leaves[number] = b->given[number];
    int64_t n = count(dims);
    uint8_t *data = malloc((size_t)n + 1);
    test_random r = {b->seed * 1000 + (uint64_t)number};
    if (p != LZ_PACKING_COUNT) random_codes(&r, p, data, n);
    for (int64_t i = 0; p == LZ_PACKING_COUNT && i < n; i++) data[i] = (uint8_t)random_int(&r, 122, 130);
    b->leaves[number] = lz_from(b->ctx, dims, LZ_U8, data);
    free(data);
    return b->leaves[number];
}

static inline lz_array *scales_leaf(builder *b, lz_dims dims, bool power) {
    static const lz_dtype types[] = {LZ_F32, LZ_F32, LZ_BF16, LZ_F16, LZ_F8};
    if (power) return bytes_leaf(b, dims, LZ_PACKING_COUNT);
    return view(b, dims, types[any(b, 0, 4)], 0.1);
}

/* Weights [rows, columns] of any packing, and what they are called. columns 0: any, up to most. */
static inline lz_array *any_packed(builder *b, int64_t rows, int64_t columns, int64_t most, lz_dtype type) {
    lz_packing p = (lz_packing)any(b, 0, LZ_PACKING_COUNT - 1);
    const lz_packing_info *info = &lz_packing_table[p];
    int64_t rotate = !columns && chance(b, 15) ? (const int64_t[]){4, 16, 64, 256}[any(b, 0, 3)] : 0;
    int64_t unit = rotate ? rotate : chance(b, 60) ? (info->elements > 32 ? info->elements : 32) : 1;
    if (!columns) columns = unit * any(b, 1, most / unit > 1 ? most / unit : 1);
    lz_unpack_options o = {.packing = info->name, .dtype = type, .rotate = (int)rotate, .columns = columns};
    if (chance(b, 30)) o.factor = 0.37;
    int64_t bytes = lz_packing_row_bytes(p, columns), before = chance(b, 30) ? any(b, 1, 5) : 0;
    lz_array *codes = bytes_leaf(b, LZ_DIMS(rows + before, bytes), p), *scales = NULL, *offsets = NULL;
    if (before) codes = lz_slice(codes, 0, before, before + rows, 1);
    if (chance(b, 10)) codes = lz_transpose(lz_contiguous(lz_transpose(codes))); /* bytes of a row apart */
    if (!info->whole && chance(b, 80)) {
        o.group = (const int64_t[]){0, 16, 32, 64, 7, columns}[any(b, 0, 5)];
        o.row_group = (const int64_t[]){0, 1, 3, 128}[any(b, 0, 3)];
        int64_t group = o.group ? o.group : columns, row_group = o.row_group ? o.row_group : 1;
        lz_dims d = LZ_DIMS((rows + row_group - 1) / row_group, (columns + group - 1) / group);
        scales = scales_leaf(b, chance(b, 20) ? broadcastable(b, d) : d, chance(b, 15));
        if (chance(b, 30)) offsets = scales_leaf(b, d, false);
    }
    snprintf(b->what, sizeof b->what, "%s %s %lld x %lld, groups %lld x %lld%s%s, rotated by %lld", info->name,
             lz_dtype_name(type), (long long)rows, (long long)columns, (long long)o.row_group, (long long)o.group,
             scales ? ", scales" : "", offsets ? ", offsets" : "", (long long)rotate);
    return lz_unpack_with(codes, scales, offsets, o);
}

static inline void describe_packed(builder *b) {
    static const lz_dtype types[] = {LZ_F32, LZ_BF16, LZ_BF16, LZ_F16};
    lz_dtype type = types[any(b, 0, 3)];
    int64_t n = any(b, 1, chance(b, 20) ? 300 : 70);
    lz_array *w = any_packed(b, n, 0, chance(b, 30) ? 1100 : 300, type);
    int64_t k = lz_shape(w).at[1], m = chance(b, 30) ? any(b, 1, 8) : any(b, 9, 100);
    b->only_f32 = false;
    if (chance(b, 25)) { /* by itself: the same bits everywhere */
        b->out[b->n_out++] = w;
        return;
    }
    lz_dtype t = chance(b, 70) ? type : types[any(b, 0, 3)];
    b->ulp = 3, b->least = 2e-6 * sqrt((double)k), b->room = 8e-6 + (t == LZ_F32 ? 0 : 4 * eps_of[t]);
    lz_array *x = chance(b, 50) ? leaf(b, LZ_DIMS(m, k), t, 1) : view(b, LZ_DIMS(1, m, k), t, 1);
    lz_array *y = lz_linear(x, w, chance(b, 30) ? leaf(b, LZ_DIMS(n), t, 1) : NULL);
    switch (any(b, 0, 5)) {
    case 0: y = lz_gelu_tanh(y); break;
    case 1: y = lz_add(leaf(b, lz_shape(y), t, 1), y); break;
    case 2: y = lz_mul(lz_silu(y), lz_linear(x, any_packed(b, n, k, 0, type), NULL)); break;
    default: break;
    }
    b->out[b->n_out++] = y;
}

/* A layer in contexts that compute in LZ_I8. Sums are of whole numbers, so every processor has the bits of the reference. */
static inline void describe_int8(builder *b) {
    static const lz_dtype types[] = {LZ_F32, LZ_F32, LZ_BF16, LZ_F16};
    int64_t rotate = chance(b, 60) ? (const int64_t[]){4, 16, 64, 256, 256}[any(b, 0, 4)] : 0;
    int64_t k = rotate ? rotate * any(b, 1, chance(b, 30) ? 8 : 3) : any(b, 1, chance(b, 30) ? 2000 : 300);
    int64_t n = any(b, 1, chance(b, 20) ? 400 : 70), m = any(b, 1, chance(b, 20) ? 300 : 50);
    int64_t row_group = chance(b, 20) ? 3 : 1, before = chance(b, 30) ? any(b, 1, 5) : 0;
    lz_dtype t = types[any(b, 0, 3)];
    bool device = getenv("LZ_TEST_DEVICE"); /* its kernels take codes in multiples of 16 (graph/lower.c) */
    if (device) k = (k + 15) / 16 * 16, n = (n + 15) / 16 * 16, row_group = 1;
    lz_unpack_options o = {.packing = "i8", .dtype = LZ_F32, .rotate = (int)rotate, .row_group = row_group};
    if (chance(b, 20)) o.factor = 0.37;
    lz_array *codes = bytes_leaf(b, LZ_DIMS(n + before, k), LZ_PACKING_I8), *scales = NULL;
    if (before) codes = lz_slice(codes, 0, before, before + n, 1);
    lz_dims d = LZ_DIMS((n + row_group - 1) / row_group, 1);
    if (chance(b, 85)) scales = scales_leaf(b, chance(b, 15) ? LZ_NONE : d, chance(b, 15) && !device);
    lz_array *x = chance(b, 50) ? leaf(b, LZ_DIMS(m, k), t, 1) : view(b, LZ_DIMS(2, m, k), t, 1);
    lz_array *y = lz_linear(x, lz_unpack_with(codes, scales, NULL, o), NULL);
    if (chance(b, 40)) y = lz_add(y, leaf(b, LZ_DIMS(n), LZ_F32, 1));
    b->only_f32 = true;
    b->ulp = b->least = b->room = 0;
    snprintf(b->what, sizeof b->what, "int8 %s %lld x %lld -> %lld, rotated by %lld, rows of %lld%s", lz_dtype_name(t),
             (long long)m, (long long)k, (long long)n, (long long)rotate, (long long)row_group,
             scales ? ", scales" : "");
    b->out[b->n_out++] = y;
}

/* linear(x, unpack(...)) has the bits of linear(x, w) with w unpacked before, in all types; and unpack has those of the
 * reference. */
static inline void packed_bits(void) {
    open_all();
    for (int i = 0; i < test_scale(500) && n_machines; i++) {
        const machine *m = &machines[i % n_machines];
        uint64_t seed = 5 * 1000000 + (uint64_t)i;
        lz_scope *scope = lz_scope_begin(m->two, "packed"), *other = lz_scope_begin(ref, "packed");
        builder b = {.ctx = m->two, .random = {seed}, .seed = seed}, c = {.ctx = ref, .random = {seed}, .seed = seed};
        lz_dtype type = (const lz_dtype[]){LZ_F32, LZ_BF16, LZ_F16}[any(&b, 0, 2)];
        any(&c, 0, 2);
        int64_t n = any(&b, 1, 90), rows = any(&b, 1, chance(&b, 40) ? 8 : 60);
        any(&c, 1, 90), any(&c, 1, chance(&c, 40) ? 8 : 60);
        lz_array *w = any_packed(&b, n, 0, 1300, type), *want = any_packed(&c, n, 0, 1300, type);
        lz_array *x = leaf(&b, LZ_DIMS(rows, lz_shape(w).at[1]), chance(&b, 80) ? type : LZ_F32, 1);
        values fused = {0}, plain = {0}, here = {0}, there = {0};
        keep_values(&fused, (lz_array *[]){lz_linear(x, w, NULL)}, 1);
        keep_values(&here, &w, 1); /* from here on w is an array with a value */
        keep_values(&plain, (lz_array *[]){lz_linear(x, w, NULL)}, 1);
        keep_values(&there, &want, 1);
        CHECK(fused.status == LZ_OK && same_values(&fused, &plain), "%s, case %llu: %s: product: %s", m->isa,
              (unsigned long long)seed, b.what, fused.error);
        CHECK(here.status == LZ_OK && same_values(&here, &there), "%s, case %llu: %s: weights: %s", m->isa,
              (unsigned long long)seed, b.what, here.error);
        values *all[] = {&fused, &plain, &here, &there};
        for (size_t k = 0; k < 4; k++) free_values(all[k]);
        lz_scope_end(other);
        lz_scope_end(scope);
    }
    close_all();
}

#endif
