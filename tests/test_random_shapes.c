/* test_random_shapes.c: random ops on random shapes, strides and types; the fast kernels against the reference, and the
 * promises about bits.
 *
 * A case is a number. `describe` turns it into a graph: the same number gives the same graph with the same inputs in any
 * context, so each case can be run on the reference, on every instruction set, with one, two and three threads, without
 * fusion, twice, and compiled, and the results compared:
 *
 *   cpu = ref within a tolerance by type and op
 *   1 thread = 2 threads = 3 threads = run again, bit for bit
 *   f32: fused = unfused and compiled = eager, bit for bit
 *   16 bit: fused is as near to the exact value (the same graph in f64) as unfused, or nearer
 *
 * A failure prints the case number; LZ_TEST_SEED=number runs that one alone. */
#include "check.h"

/* ---- a case being described ---------------------------------------------------------------------------------------- */

enum { MAX_LEAVES = 64, MAX_OUT = 3 };

typedef struct builder {
    lz_context *ctx;
    test_random random;     /* decides shapes and ops */
    uint64_t seed;          /* decides the data of leaves, by number, so that a replay need not make any */
    bool exact;             /* leaves are cast to f64: what the graph would give without rounding */
    lz_array *const *given; /* replay: the leaves of an earlier description */
    lz_array *leaves[MAX_LEAVES];
    int n_leaves;
    lz_array *out[MAX_OUT];
    int n_out;
    /* What the comparison needs to know. */
    double ulp, room, least; /* |cpu - ref| <= ulp * spacing(ref) + room * max |ref| + least */
    bool only_f32;           /* nothing is rounded to 16 bits on the way */
    char what[240];
} builder;

static int64_t any(builder *b, int64_t low, int64_t high) { return random_int(&b->random, low, high); }
static bool chance(builder *b, int percent) { return random_chance(&b->random, percent); }

static int64_t count(lz_dims d) {
    int64_t n = 1;
    for (int i = 0; i < d.n; i++) n *= d.at[i];
    return n;
}

static const double eps_of[LZ_DTYPE_COUNT] = {
    [LZ_F8] = 0.125, [LZ_F16] = 0x1p-10, [LZ_BF16] = 0x1p-7, [LZ_F32] = 0x1p-23, [LZ_F64] = 0x1p-52};
static bool is_float(lz_dtype t) { return eps_of[t] != 0.0; }

static void store(void *to, lz_dtype t, int64_t i, double v) {
    switch (t) {
    case LZ_BOOL: ((uint8_t *)to)[i] = v > 0; break;
    case LZ_U8: ((uint8_t *)to)[i] = (uint8_t)fabs(v); break;
    case LZ_I8: ((int8_t *)to)[i] = (int8_t)v; break;
    case LZ_I32: ((int32_t *)to)[i] = (int32_t)v; break;
    case LZ_I64: ((int64_t *)to)[i] = (int64_t)v; break;
    case LZ_F8: ((uint8_t *)to)[i] = lz_to_f8((float)v); break;
    case LZ_F16: ((uint16_t *)to)[i] = lz_to_f16((float)v); break;
    case LZ_BF16: ((uint16_t *)to)[i] = lz_to_bf16((float)v); break;
    case LZ_F32: ((float *)to)[i] = (float)v; break;
    default: ((double *)to)[i] = v;
    }
}

/* A row-major array with a value of its own. Integers lie in -9 .. 9; a negative scale asks for positive numbers. */
static lz_array *leaf(builder *b, lz_dims dims, lz_dtype t, double scale) {
    int number = b->n_leaves++;
    if (number >= MAX_LEAVES) return NULL;
    lz_array *a;
    if (b->given) {
        a = b->given[number];
    } else {
        int64_t n = count(dims);
        void *data = malloc((size_t)(n * 8 + 8));
        test_random r = {b->seed * 1000 + (uint64_t)number};
        for (int64_t i = 0; i < n; i++) {
            double v = is_float(t) ? random_normal(&r) * scale : (double)random_int(&r, -9, 9);
            store(data, t, i, scale < 0 ? fabs(v) + 1.0 : v);
        }
        a = lz_from(b->ctx, dims, t, data);
        free(data);
    }
    b->leaves[number] = a;
    return b->exact && is_float(t) ? lz_cast(a, LZ_F64) : a;
}

/* An array of these dims that may be a view: permuted, cut out of something larger with a step, or broadcast. */
static lz_array *view(builder *b, lz_dims dims, lz_dtype t, double scale) {
    lz_dims axes = {.n = dims.n}, base = {.n = dims.n}, from = {.n = dims.n}, step = {.n = dims.n},
            back = {.n = dims.n};
    for (int i = 0; i < dims.n; i++) axes.at[i] = i;
    if (chance(b, 40))
        for (int i = dims.n - 1; i > 0; i--) {
            int j = (int)any(b, 0, i);
            int64_t swap = axes.at[i];
            axes.at[i] = axes.at[j], axes.at[j] = swap;
        }
    bool cut = chance(b, 35), spread = chance(b, 15);
    bool broadcast[LZ_MAX_DIMS] = {0};
    for (int i = 0; i < dims.n; i++) { /* base axis i is dims axis axes[i] */
        int64_t n = dims.at[axes.at[i]];
        back.at[axes.at[i]] = i;
        step.at[i] = 1;
        broadcast[i] = spread && chance(b, 50);
        if (cut && chance(b, 60)) {
            from.at[i] = any(b, 0, 3);
            step.at[i] = any(b, 1, 3);
        }
        base.at[i] = broadcast[i] ? 1 : from.at[i] + n * step.at[i];
        if (broadcast[i]) from.at[i] = 0, step.at[i] = 1;
    }
    lz_array *a = leaf(b, base, t, scale);
    lz_dims full = base;
    for (int i = 0; i < dims.n; i++) {
        int64_t n = dims.at[axes.at[i]];
        full.at[i] = n;
        if (!broadcast[i] && base.at[i] != n) a = lz_slice(a, i, from.at[i], from.at[i] + n * step.at[i], step.at[i]);
    }
    if (spread) a = lz_broadcast(a, full);
    return lz_permute(a, back);
}

static int64_t any_size(builder *b, int64_t most) {
    int64_t kind = any(b, 0, 99), n;
    if (kind < 3)
        n = 0;
    else if (kind < 15)
        n = 1;
    else if (kind < 60)
        n = any(b, 2, 9);
    else if (kind < 85)
        n = any(b, 10, 40);
    else if (kind < 95)
        n = any(b, 1, 8) * 16 + any(b, -1, 1);
    else
        n = any(b, 100, 300);
    return n > most ? any(b, 1, most) : n;
}

static lz_dims any_dims(builder *b, int least, int most, int64_t elements) {
    lz_dims d = {.n = (int)any(b, least, most)};
    int64_t left = elements;
    for (int i = d.n - 1; i >= 0; i--) {
        d.at[i] = any_size(b, left < 1 ? 1 : left);
        if (d.at[i] > 1) left /= d.at[i];
    }
    return d;
}

static lz_dims broadcastable(builder *b, lz_dims d) { /* some axes 1, some leading ones missing */
    int drop = chance(b, 30) && d.n ? (int)any(b, 0, d.n) : 0;
    lz_dims r = {.n = d.n - drop};
    for (int i = 0; i < r.n; i++) r.at[i] = chance(b, 25) ? 1 : d.at[i + drop];
    return r;
}

static lz_dtype any_float(builder *b) {
    return (const lz_dtype[]){LZ_F32, LZ_F32, LZ_F32, LZ_BF16, LZ_BF16, LZ_F16, LZ_F16, LZ_F64}[any(b, 0, 7)];
}
static lz_dtype any_type(builder *b) {
    return chance(b, 60) ? any_float(b) : (const lz_dtype[]){LZ_U8, LZ_I8, LZ_I32, LZ_I64}[any(b, 0, 3)];
}

/* ---- single ops ---------------------------------------------------------------------------------------------------- */

static lz_array *do_unary(builder *b) {
    static const struct {
        const char *name;
        lz_array *(*call)(lz_array *);
        bool positive;
    } ops[] = {
        {"neg", lz_neg, 0},         {"abs", lz_abs, 0},   {"square", lz_square, 0}, {"floor", lz_floor, 0},
        {"exp", lz_exp, 0},         {"log", lz_log, 1},   {"sqrt", lz_sqrt, 1},     {"rsqrt", lz_rsqrt, 1},
        {"sin", lz_sin, 0},         {"cos", lz_cos, 0},   {"tanh", lz_tanh, 0},     {"erf", lz_erf, 0},
        {"sigmoid", lz_sigmoid, 0}, {"silu", lz_silu, 0}, {"gelu", lz_gelu, 0},     {"gelu_tanh", lz_gelu_tanh, 0},
        {"not", lz_not, 0}};
    int i = (int)any(b, 0, (int)(sizeof ops / sizeof *ops) - 1);
    lz_dtype t = any_type(b);
    if (t == LZ_U8) t = LZ_I32; /* what -3 is in u8, the header leaves open */
    lz_array *x = view(b, any_dims(b, 0, 5, 3000), t, ops[i].positive ? -2 : 2);
    b->ulp = 8, b->room = 4e-7, b->least = 3e-7;
    if (t == LZ_F16 || t == LZ_BF16) b->ulp = 1;
    snprintf(b->what, sizeof b->what, "%s", ops[i].name);
    return ops[i].call(x);
}

static lz_array *do_binary(builder *b) {
    static const struct {
        const char *name;
        lz_array *(*call)(lz_array *, lz_array *);
    } ops[] = {{"add", lz_add},         {"sub", lz_sub},
               {"mul", lz_mul},         {"div", lz_div},
               {"maximum", lz_maximum}, {"minimum", lz_minimum},
               {"equal", lz_equal},     {"not_equal", lz_not_equal},
               {"less", lz_less},       {"less_equal", lz_less_equal},
               {"greater", lz_greater}, {"greater_equal", lz_greater_equal},
               {"and", lz_and},         {"or", lz_or}};
    int i = (int)any(b, 0, (int)(sizeof ops / sizeof *ops) - 1);
    lz_dims d = any_dims(b, 0, 5, 3000);
    lz_dtype t = any_type(b), u = chance(b, 60) ? t : any_type(b);
    lz_array *x = view(b, broadcastable(b, d), t, 2), *y = view(b, broadcastable(b, d), u, 2);
    if (i == 1 && lz_promote(t, u) == LZ_U8) x = lz_add(x, 20.0);
    if (i == 3) y = lz_where(lz_equal(y, 0.0), lz_full(b->ctx, LZ_NONE, lz_type(y), 1), y);
    b->ulp = 1;
    snprintf(b->what, sizeof b->what, "%s %s %s", ops[i].name, lz_dtype_name(t), lz_dtype_name(u));
    return chance(b, 50) ? ops[i].call(x, y) : ops[i].call(y, i == 1 || i == 3 ? y : x);
}

static lz_array *do_pow(builder *b) {
    lz_dims d = any_dims(b, 0, 4, 1000);
    lz_dtype t = any_float(b);
    lz_array *x = view(b, d, t, -1);
    b->ulp = t == LZ_F32 ? 32 : 2;
    snprintf(b->what, sizeof b->what, "pow");
    return chance(b, 50) ? lz_pow(x, view(b, broadcastable(b, d), t, 2)) : lz_pow(x, (double)any(b, -3, 3) * 0.5);
}

static lz_array *do_where(builder *b) {
    lz_dims d = any_dims(b, 0, 5, 3000);
    lz_dtype t = any_type(b);
    lz_array *c = view(b, broadcastable(b, d), LZ_BOOL, 1), *x = view(b, broadcastable(b, d), t, 1);
    snprintf(b->what, sizeof b->what, "where");
    return lz_where(
        c, x, chance(b, 30) ? lz_number(b->ctx, 3) : view(b, broadcastable(b, d), chance(b, 70) ? t : any_type(b), 1));
}

static lz_array *do_clip(builder *b) {
    snprintf(b->what, sizeof b->what, "clip");
    lz_dtype t = any_type(b);
    return lz_clip(view(b, any_dims(b, 0, 5, 3000), t, 2), t == LZ_U8 ? 1.0 : -2.0, 3.0);
}

static lz_array *do_cast(builder *b) {
    lz_dtype from = (lz_dtype)any(b, 0, LZ_DTYPE_COUNT - 1), to = (lz_dtype)any(b, 0, LZ_DTYPE_COUNT - 1);
    snprintf(b->what, sizeof b->what, "cast %s %s", lz_dtype_name(from), lz_dtype_name(to));
    return lz_cast(view(b, any_dims(b, 0, 5, 3000), from, chance(b, 50) ? 2 : 200), to);
}

static lz_dims any_axes(builder *b, int rank) {
    lz_dims axes = LZ_NONE;
    for (int i = 0; i < rank; i++)
        if (chance(b, 45)) axes.at[axes.n++] = chance(b, 30) ? i - rank : i;
    return axes; /* none: all */
}

static lz_array *do_reduce(builder *b) {
    static const struct {
        const char *name;
        lz_array *(*call)(lz_array *, lz_dims, bool);
    } ops[] = {{"sum", lz_sum}, {"mean", lz_mean}, {"var", lz_var}, {"logsumexp", lz_logsumexp},
               {"max", lz_max}, {"min", lz_min}};
    int i = (int)any(b, 0, 5);
    lz_dims d = any_dims(b, 0, 5, 4000);
    if (i >= 4)
        for (int k = 0; k < d.n; k++) d.at[k] += d.at[k] == 0;
    lz_dtype t = any_type(b);
    b->ulp = i >= 4 ? 0 : 2, b->room = i >= 4 ? 0 : 2e-6;
    lz_array *x = view(b, d, t, 1);
    lz_dims axes = any_axes(b, d.n);
    snprintf(b->what, sizeof b->what, "%s %s %s", ops[i].name, lz_dtype_name(t), dims_text(axes));
    if (i == 0 && is_float(t)) x = lz_abs(x); /* cancellation says nothing about a kernel */
    return ops[i].call(x, axes, chance(b, 50));
}

static lz_array *do_argmax(builder *b) {
    lz_dims d = any_dims(b, 1, 5, 3000);
    for (int k = 0; k < d.n; k++) d.at[k] += d.at[k] == 0;
    snprintf(b->what, sizeof b->what, "argmax");
    return lz_argmax(view(b, d, any_type(b), 1), (int)any(b, -d.n, d.n - 1), chance(b, 50));
}

static lz_array *do_softmax(builder *b) {
    lz_dims d = any_dims(b, 1, 5, 4000);
    lz_dtype t = any_float(b);
    b->ulp = 2, b->room = 2e-6;
    snprintf(b->what, sizeof b->what, "softmax %s", lz_dtype_name(t));
    return lz_softmax(view(b, d, t, 3), (int)any(b, -d.n, d.n - 1));
}

static lz_array *do_matmul(builder *b) {
    lz_dtype t = any_float(b), u = chance(b, 60) ? t : any_float(b);
    if (chance(b, 10) && t != LZ_F64) u = LZ_F8;
    int64_t m = any_size(b, 150), k = any_size(b, 300), n = any_size(b, 150);
    while (m * k * n > 200000) m = (m + 1) / 2, n = (n + 1) / 2;
    lz_dims batch = any_dims(b, 0, 3, 6), x = broadcastable(b, batch), y = broadcastable(b, batch);
    if (chance(b, 50)) x = y = LZ_NONE;
    x.at[x.n++] = m, x.at[x.n++] = k;
    y.at[y.n++] = k, y.at[y.n++] = n;
    b->ulp = 2, b->room = 3e-6, b->least = 5e-7 * sqrt((double)k);
    snprintf(b->what, sizeof b->what, "matmul %s %s %s %s", lz_dtype_name(t), dims_text(x), lz_dtype_name(u),
             dims_text(y));
    lz_array *p = view(b, x, t, 1), *q = view(b, y, u, 1);
    return lz_matmul(p, q);
}

static lz_array *do_linear(builder *b) {
    lz_dtype t = any_float(b), u = chance(b, 70) ? t : any_float(b);
    lz_dims x = any_dims(b, 1, 4, 2000);
    int64_t k = x.at[x.n - 1], n = any_size(b, 80);
    b->ulp = 3, b->least = 5e-7 * sqrt((double)k), b->room = 3e-6 + (t == LZ_F16 || t == LZ_BF16 ? eps_of[t] : 0);
    if (u == LZ_F16 || u == LZ_BF16) b->room += eps_of[u];
    snprintf(b->what, sizeof b->what, "linear %s %s %s -> %lld", lz_dtype_name(t), dims_text(x), lz_dtype_name(u),
             (long long)n);
    lz_array *p = view(b, x, t, 1), *w = view(b, LZ_DIMS(n, k), u, 1),
             *bias = chance(b, 50) ? view(b, LZ_DIMS(n), u, 1) : NULL;
    lz_array *y = lz_linear(p, w, bias);
    switch (any(b, 0, 4)) {
    case 0: return lz_gelu(y);
    case 1: return lz_silu(y);
    case 2: return lz_gelu_tanh(y);
    default: return y;
    }
}

static lz_array *do_addmm(builder *b) {
    int64_t m = any_size(b, 60), k = any_size(b, 60), n = any_size(b, 60);
    lz_dtype t = chance(b, 80) ? LZ_F32 : any_float(b);
    b->ulp = 3, b->least = 5e-7 * sqrt((double)k), b->room = 4e-6 + (t == LZ_F16 || t == LZ_BF16 ? 3 * eps_of[t] : 0);
    snprintf(b->what, sizeof b->what, "addmm %s", lz_dtype_name(t));
    lz_array *c = view(b, broadcastable(b, LZ_DIMS(m, n)), t, 1), *x = view(b, LZ_DIMS(m, k), t, 1),
             *y = view(b, LZ_DIMS(k, n), t, 1);
    return lz_addmm(c, x, y, .alpha = chance(b, 50) ? 0.5 : 0, .beta = chance(b, 50) ? -2 : 0);
}

static lz_array *do_sdpa(builder *b) {
    static const int64_t heads[] = {1, 2, 7, 8, 16, 33, 64, 80, 128};
    lz_dtype t = any_float(b);
    int64_t g = any(b, 1, 3), h = g * any(b, 1, 3), batch = any(b, 1, 2), d = heads[any(b, 0, 8)];
    int64_t n = any_size(b, 100), m = any_size(b, 150);
    while (batch * h * n * m * d > 400000) n = (n + 1) / 2, m = (m + 1) / 2;
    bool causal = chance(b, 35);
    b->ulp = 2, b->room = 4e-6;
    snprintf(b->what, sizeof b->what, "sdpa %s b%lld h%lld g%lld n%lld m%lld d%lld%s", lz_dtype_name(t),
             (long long)batch, (long long)h, (long long)g, (long long)n, (long long)m, (long long)d,
             causal ? " causal" : "");
    lz_array *q = view(b, LZ_DIMS(batch, h, n, d), t, 1), *k = view(b, LZ_DIMS(batch, g, m, d), t, 1),
             *v = view(b, LZ_DIMS(batch, g, m, d), t, 1), *mask = NULL;
    if (chance(b, 50)) mask = view(b, broadcastable(b, LZ_DIMS(batch, h, n, m)), chance(b, 60) ? LZ_BOOL : LZ_F32, 1);
    return lz_sdpa(q, k, v, .causal = causal, .mask = mask, .scale = chance(b, 30) ? 0.3 : 0);
}

static lz_array *do_norm(builder *b) {
    lz_dims d = any_dims(b, 1, 4, 4000);
    lz_dtype t = any_float(b);
    int64_t c = d.at[d.n - 1];
    int which = (int)any(b, 0, 2);
    b->ulp = 4, b->room = 2e-5 + (t == LZ_F16 || t == LZ_BF16 ? 3 * eps_of[t] : 0);
    snprintf(b->what, sizeof b->what, "%s %s %s", (const char *[]){"rms_norm", "layer_norm", "modulated_norm"}[which],
             lz_dtype_name(t), dims_text(d));
    lz_array *x = view(b, d, t, 1), *w = chance(b, 60) ? view(b, LZ_DIMS(c), t, 1) : NULL;
    if (which == 0) return lz_rms_norm(x, w, 1e-3);
    if (which == 1) return lz_layer_norm(x, w, chance(b, 60) ? view(b, LZ_DIMS(c), t, 1) : NULL, 1e-3);
    lz_dims s = broadcastable(b, d);
    lz_array *scale = view(b, s, t, 1), *shift = view(b, s, t, 1);
    return lz_modulated_norm(x, scale, shift, 1e-3);
}

static lz_array *do_group_norm(builder *b) {
    int64_t groups = any(b, 1, 5), c = groups * any(b, 1, 9);
    lz_dims d = any_dims(b, 1, 4, 200);
    d.at[d.n++] = c;
    lz_dtype t = any_float(b);
    b->ulp = 4, b->room = 2e-5 + (t == LZ_F16 || t == LZ_BF16 ? 3 * eps_of[t] : 0);
    snprintf(b->what, sizeof b->what, "group_norm %s %s / %lld", lz_dtype_name(t), dims_text(d), (long long)groups);
    bool affine = chance(b, 60);
    lz_array *x = view(b, d, t, 1), *w = affine ? view(b, LZ_DIMS(c), t, 1) : NULL,
             *bias = affine ? view(b, LZ_DIMS(c), t, 1) : NULL;
    lz_array *y = lz_group_norm(x, (int)groups, w, bias, 1e-3);
    return chance(b, 50) ? lz_silu(y) : y;
}

static lz_array *do_rope(builder *b) {
    lz_dims d = any_dims(b, 2, 4, 1500);
    d.at[d.n - 1] = 2 * any(b, 1, 40);
    lz_dtype t = any_float(b);
    lz_dims table = d;
    table.at[d.n - 1] /= 2;
    if (chance(b, 60))
        table = LZ_DIMS(d.at[d.n - 2], d.at[d.n - 1] / 2);
    else
        for (int i = 0; i < d.n - 2; i++) table.at[i] = chance(b, 50) ? 1 : table.at[i];
    b->ulp = 4, b->room = 1e-6 + (t == LZ_F16 || t == LZ_BF16 ? 2 * eps_of[t] : 0);
    snprintf(b->what, sizeof b->what, "rope %s %s", lz_dtype_name(t), dims_text(d));
    lz_array *x = view(b, d, t, 1), *cosine = view(b, table, t, 1), *sine = view(b, table, t, 1);
    if (chance(b, 50)) x = lz_rms_norm(x, chance(b, 50) ? view(b, LZ_DIMS(d.at[d.n - 1]), t, 1) : NULL, 1e-3);
    return lz_rope(x, cosine, sine, .half_split = chance(b, 50));
}

static lz_array *do_conv(builder *b) {
    int64_t n = chance(b, 5) ? 0 : any(b, 1, 2), h = any(b, 1, 14), w = any(b, 1, 14), c = any(b, 1, 20),
            o = any(b, 1, 20), kh = any(b, 1, 4), kw = any(b, 1, 4);
    lz_conv2d_options p = {.stride = (int)any(b, 0, 3),
                           .top = (int)any(b, 0, 2),
                           .bottom = (int)any(b, 0, 2),
                           .left = (int)any(b, 0, 2),
                           .right = (int)any(b, 0, 2)};
    if (h + p.top + p.bottom < kh) kh = 1;
    if (w + p.left + p.right < kw) kw = 1;
    lz_dtype t = any_float(b);
    b->ulp = 3, b->room = 4e-6 + (t == LZ_F16 || t == LZ_BF16 ? eps_of[t] : 0);
    snprintf(b->what, sizeof b->what, "conv2d %s %s * %s stride %d", lz_dtype_name(t), dims_text(LZ_DIMS(n, h, w, c)),
             dims_text(LZ_DIMS(o, kh, kw, c)), p.stride);
    lz_array *x = view(b, LZ_DIMS(n, h, w, c), t, 1), *k = view(b, LZ_DIMS(o, kh, kw, c), t, 1),
             *bias = chance(b, 50) ? view(b, LZ_DIMS(o), t, 1) : NULL;
    return lz_conv2d_with(x, k, bias, p);
}

static lz_array *do_move(builder *b) { /* whatever only moves elements: exact for all types */
    lz_dtype t = (lz_dtype)any(b, 0, LZ_DTYPE_COUNT - 1);
    lz_dims d = any_dims(b, 1, 5, 2000);
    int axis = (int)any(b, 0, d.n - 1), which = (int)any(b, 0, 8);
    lz_array *x = view(b, d, t, 2);
    snprintf(b->what, sizeof b->what, "%s %s %s",
             (const char *[]){"upsample", "pad", "reshape", "concat", "take", "gather", "slice", "contiguous",
                              "split"}[which],
             lz_dtype_name(t), dims_text(d));
    switch (which) {
    case 0: {
        lz_dims image = {.n = 4, .at = {any(b, 0, 2), any(b, 1, 8), any(b, 1, 8), any(b, 1, 9)}};
        return lz_upsample_nearest(view(b, image, t, 2), (int)any(b, 1, 3));
    }
    case 1: {
        lz_dims before = {.n = d.n}, after = {.n = d.n};
        for (int i = 0; i < d.n; i++) before.at[i] = any(b, 0, 2), after.at[i] = any(b, 0, 2);
        return lz_pad(x, before, after, t == LZ_F8 ? 0.0 : 1.0);
    }
    case 2: {
        lz_dims flat = {.n = 0};
        for (int i = 0; i < d.n; i++) { /* merge some neighbours, split some axes */
            if (flat.n && chance(b, 40))
                flat.at[flat.n - 1] *= d.at[i];
            else if (d.at[i] % 2 == 0 && d.at[i] && flat.n < 6 && chance(b, 40))
                flat.at[flat.n++] = 2, flat.at[flat.n++] = d.at[i] / 2;
            else
                flat.at[flat.n++] = d.at[i];
        }
        return lz_reshape(x, flat);
    }
    case 3: {
        lz_array *parts[4] = {x};
        int n = (int)any(b, 1, 4);
        for (int i = 1; i < n; i++) {
            lz_dims other = d;
            other.at[axis] = any_size(b, 20);
            parts[i] = view(b, other, t, 2);
        }
        return lz_concat(parts, n, axis);
    }
    case 4:
    case 5: {
        if (d.at[axis] == 0) return x;
        lz_dims shape = which == 4 ? any_dims(b, 0, 2, 30) : d;
        if (which == 5)
            for (int i = 0; i < d.n; i++) shape.at[i] = i == axis ? any(b, 0, 12) : d.at[i] ? any(b, 1, d.at[i]) : 0;
        lz_dtype ti = chance(b, 50) ? LZ_I64 : LZ_I32; /* leaves hold -9 .. 9: fold into the axis */
        lz_array *i = lz_minimum(lz_abs(view(b, shape, ti, 1)), (double)(d.at[axis] - 1));
        return which == 4 ? lz_take(x, i, axis) : lz_gather(x, i, axis);
    }
    case 6:
        return lz_slice(lz_slice(x, axis, any(b, -5, 5), any(b, -5, 50), any(b, 1, 4)), 0, any(b, 0, 2), 100,
                        any(b, 1, 2));
    case 7: return lz_contiguous(x);
    default: {
        lz_array *parts[8];
        int n = d.at[axis] % 3 == 0 ? 3 : d.at[axis] % 2 == 0 ? 2 : 1;
        lz_split(x, axis, n, parts);
        for (int i = 0; i < n && i < MAX_OUT; i++) b->out[i] = parts[i];
        b->n_out = n;
        return parts[0];
    }
    }
}

static lz_array *(*const single_ops[])(builder *) = {
    do_unary,  do_unary,  do_binary, do_binary,     do_binary,  do_pow,    do_where,  do_clip,   do_cast,  do_cast,
    do_reduce, do_reduce, do_reduce, do_argmax,     do_softmax, do_matmul, do_matmul, do_linear, do_addmm, do_sdpa,
    do_sdpa,   do_norm,   do_norm,   do_group_norm, do_rope,    do_conv,   do_move,   do_move,   do_move};

static void describe_op(builder *b) {
    b->only_f32 = false; /* decided by the types of leaves and outputs below */
    int i = (int)any(b, 0, (int)(sizeof single_ops / sizeof *single_ops) - 1);
    lz_array *y = single_ops[i](b);
    if (!b->n_out) b->out[b->n_out++] = y;
}

/* ---- large arrays: enough for several blocks, tiles and turns of each kernel, so that threads have something to share - */

static lz_array *large_matmul(builder *b) {
    lz_dtype t = any_float(b), u = chance(b, 60) ? t : any_float(b);
    if (t == LZ_F64 || u == LZ_F64) t = u = LZ_F32;
    int64_t m = any(b, 20, 200), k = any(b, 385, 800), n = any(b, 257, 600);
    while (m * k * n > 25000000) m /= 2;
    b->ulp = 2, b->room = 5e-6;
    snprintf(b->what, sizeof b->what, "large matmul %s %s %lld x %lld x %lld", lz_dtype_name(t), lz_dtype_name(u),
             (long long)m, (long long)k, (long long)n);
    lz_array *x = view(b, LZ_DIMS(m, k), t, 1), *y = view(b, LZ_DIMS(k, n), u, 1);
    return lz_matmul(x, y);
}

static lz_array *large_chain(builder *b) {
    lz_dims d = LZ_DIMS(any(b, 1, 3), any(b, 100, 300), any(b, 100, 300));
    lz_dtype t = any_float(b);
    b->ulp = 4, b->room = 1e-6 + (t == LZ_F16 || t == LZ_BF16 ? 4 * eps_of[t] : 0);
    snprintf(b->what, sizeof b->what, "large chain %s %s", lz_dtype_name(t), dims_text(d));
    lz_array *x = view(b, d, t, 1), *gate = view(b, broadcastable(b, d), t, 1), *y = view(b, d, t, 1);
    return lz_add(x, lz_mul(lz_tanh(gate), lz_silu(y)));
}

static lz_array *large_sdpa(builder *b) {
    int64_t d = (const int64_t[]){40, 64, 80, 128}[any(b, 0, 3)], n = any(b, 97, 220), m = any(b, 257, 600),
            h = any(b, 1, 2);
    lz_dtype t = (const lz_dtype[]){LZ_F32, LZ_BF16, LZ_F16}[any(b, 0, 2)];
    b->ulp = 2, b->room = 5e-6;
    snprintf(b->what, sizeof b->what, "large sdpa %s h%lld n%lld m%lld d%lld", lz_dtype_name(t), (long long)h,
             (long long)n, (long long)m, (long long)d);
    lz_array *q = view(b, LZ_DIMS(1, h, n, d), t, 1), *k = view(b, LZ_DIMS(1, 1, m, d), t, 1);
    lz_array *v = view(b, LZ_DIMS(1, 1, m, d), t, 1), *mask = NULL;
    if (chance(b, 40)) mask = view(b, broadcastable(b, LZ_DIMS(1, h, n, m)), LZ_BOOL, 1);
    return lz_sdpa(q, k, v, .causal = chance(b, 50), .mask = mask);
}

static lz_array *large_norm(builder *b) {
    lz_dims d = LZ_DIMS(any(b, 2, 4), any(b, 100, 400), any(b, 100, 700));
    lz_dtype t = any_float(b);
    b->ulp = 4, b->room = 1e-5 + (t == LZ_F16 || t == LZ_BF16 ? 3 * eps_of[t] : 0);
    snprintf(b->what, sizeof b->what, "large modulated_norm %s %s", lz_dtype_name(t), dims_text(d));
    lz_dims m = LZ_DIMS(d.at[0], 1, d.at[2]);
    lz_array *x = view(b, d, t, 1), *scale = view(b, m, t, 1), *shift = view(b, m, t, 1);
    return lz_modulated_norm(x, scale, shift, 1e-3);
}

static lz_array *large_group_norm(builder *b) {
    int64_t groups = any(b, 1, 8), c = groups * any(b, 3, 12);
    lz_dims d = LZ_DIMS(any(b, 1, 2), any(b, 33, 60), any(b, 33, 60), c);
    lz_dtype t = any_float(b);
    b->ulp = 4, b->room = 1e-5 + (t == LZ_F16 || t == LZ_BF16 ? 3 * eps_of[t] : 0);
    snprintf(b->what, sizeof b->what, "large group_norm %s %s", lz_dtype_name(t), dims_text(d));
    lz_array *x = view(b, d, t, 1), *w = view(b, LZ_DIMS(c), t, 1);
    return lz_silu(lz_group_norm(x, (int)groups, w, w, 1e-3));
}

static lz_array *large_conv(builder *b) {
    lz_dtype t = (const lz_dtype[]){LZ_F32, LZ_F32, LZ_BF16, LZ_F16}[any(b, 0, 3)];
    bool deep = chance(b, 50); /* many channels, or a wide image */
    int64_t c = deep ? any(b, 65, 90) : any(b, 3, 8), o = any(b, 9, 40);
    lz_dims d = deep ? LZ_DIMS(2, any(b, 7, 12), any(b, 7, 12), c) : LZ_DIMS(1, any(b, 17, 33), any(b, 81, 170), c);
    b->ulp = 3, b->room = 8e-6 + (t == LZ_F32 ? 0 : eps_of[t]);
    snprintf(b->what, sizeof b->what, "large conv2d %s %s -> %lld", lz_dtype_name(t), dims_text(d), (long long)o);
    lz_array *x = view(b, d, t, 1), *w = view(b, LZ_DIMS(o, 3, 3, c), t, 1), *bias = view(b, LZ_DIMS(o), t, 1);
    return lz_conv2d(x, w, bias, .stride = (int)any(b, 1, 2), .top = 1, .bottom = 1, .left = 1,
                     .right = (int)any(b, 0, 1));
}

static lz_array *large_reduce(builder *b) {
    lz_dims d = LZ_DIMS(any(b, 2, 40), any(b, 50, 100), any(b, 50, 100));
    lz_dtype t = any_type(b);
    lz_dims axes = any_axes(b, 3);
    b->ulp = 2, b->room = 1e-5;
    snprintf(b->what, sizeof b->what, "large reductions %s %s over %s", lz_dtype_name(t), dims_text(d),
             dims_text(axes));
    lz_array *x = view(b, d, t, -1); /* positive: cancellation says nothing about a kernel */
    b->out[0] = lz_sum(x, axes, false), b->out[1] = lz_var(x, axes, true), b->out[2] = lz_max(x, axes, false);
    b->n_out = 3;
    return x;
}

static lz_array *large_move(builder *b) {
    lz_dims d = LZ_DIMS(any(b, 30, 60), any(b, 30, 60), any(b, 30, 60)), e = d;
    lz_dtype t = (lz_dtype)any(b, 0, LZ_DTYPE_COUNT - 1);
    int axis = (int)any(b, 0, 2);
    e.at[axis] = any(b, 1, 60);
    snprintf(b->what, sizeof b->what, "large moves %s %s", lz_dtype_name(t), dims_text(d));
    lz_array *x = view(b, d, t, 2), *both[] = {x, view(b, e, t, 2)};
    lz_array *index = lz_abs(view(b, LZ_DIMS(any(b, 20, 80)), LZ_I32, 1));
    b->out[0] = lz_contiguous(lz_permute(x, LZ_DIMS(2, 0, 1)));
    b->out[1] = lz_concat(both, 2, axis);
    b->out[2] = lz_take(x, index, axis);
    b->n_out = 3;
    return x;
}

static lz_array *large_few_rows(builder *b) {
    lz_dtype t = any_float(b), u = (const lz_dtype[]){LZ_F32, LZ_BF16, LZ_F16, LZ_F8}[any(b, 0, 3)];
    if (t == LZ_F64) t = LZ_F32;
    int64_t m = any(b, 1, 10), k = any(b, 257, 2000), n = any(b, 65, 500);
    b->ulp = 3, b->room = 8e-6 + (t == LZ_F32 ? 0 : 2 * eps_of[t]);
    snprintf(b->what, sizeof b->what, "few rows %s %s %lld x %lld x %lld", lz_dtype_name(t), lz_dtype_name(u),
             (long long)m, (long long)k, (long long)n);
    lz_array *x = view(b, LZ_DIMS(m, k), t, 1), *w = leaf(b, LZ_DIMS(n, k), u, 1), *bias = view(b, LZ_DIMS(n), t, 1);
    return lz_linear(x, w, bias);
}

static lz_array *large_rope(builder *b) {
    int64_t n = any(b, 100, 300), d = 2 * any(b, 16, 64);
    lz_dtype t = any_float(b);
    b->ulp = 4, b->room = 1e-5 + (t == LZ_F16 || t == LZ_BF16 ? 3 * eps_of[t] : 0);
    snprintf(b->what, sizeof b->what, "large rope %s n%lld d%lld", lz_dtype_name(t), (long long)n, (long long)d);
    lz_array *x = lz_permute(view(b, LZ_DIMS(2, n, 4, d), t, 1), LZ_DIMS(0, 2, 1, 3)), *w = view(b, LZ_DIMS(d), t, 1);
    lz_array *cosine = view(b, LZ_DIMS(n, d / 2), t, 1), *sine = view(b, LZ_DIMS(n, d / 2), t, 1);
    return lz_rope(lz_rms_norm(x, w, 1e-3), cosine, sine, .half_split = chance(b, 50));
}

static lz_array *large_softmax(builder *b) {
    lz_dims d = LZ_DIMS(any(b, 20, 90), any(b, 1000, 3000));
    lz_dtype t = any_float(b);
    b->ulp = 2, b->room = 5e-6;
    snprintf(b->what, sizeof b->what, "large softmax %s %s", lz_dtype_name(t), dims_text(d));
    return lz_softmax(view(b, d, t, 3), (int)any(b, 0, 1));
}

/* Beyond what the kernels pack or keep in caches at once. */
static lz_array *huge_matmul(builder *b) {
    int64_t m = any(b, 9, 14), k = any(b, 3600, 3700), n = any(b, 3600, 3700); /* the right side is over 48 MB */
    b->ulp = 2, b->room = 1e-5;
    snprintf(b->what, sizeof b->what, "huge matmul %lld x %lld x %lld", (long long)m, (long long)k, (long long)n);
    lz_array *x = leaf(b, LZ_DIMS(m, k), LZ_F32, 1), *y = leaf(b, LZ_DIMS(n, k), LZ_BF16, 1);
    return lz_matmul(x, lz_transpose(y));
}

static lz_array *huge_sdpa(builder *b) {
    int64_t n = any(b, 2, 5), m = any(b, 17000, 18000);
    b->ulp = 2, b->room = 1e-5;
    snprintf(b->what, sizeof b->what, "huge sdpa n%lld m%lld", (long long)n, (long long)m);
    lz_array *q = leaf(b, LZ_DIMS(1, 2, n, 128), LZ_F32, 1), *k = leaf(b, LZ_DIMS(1, 2, m, 128), LZ_F32, 1);
    return lz_sdpa(q, k, k, .causal = chance(b, 50));
}

static lz_array *huge_conv(builder *b) {
    int64_t c = any(b, 1160, 1200), o = any(b, 1160, 1200);
    b->ulp = 3, b->room = 1e-5;
    snprintf(b->what, sizeof b->what, "huge conv2d %lld -> %lld", (long long)c, (long long)o);
    lz_array *x = leaf(b, LZ_DIMS(1, 3, 4, c), LZ_F32, 1), *w = leaf(b, LZ_DIMS(o, 3, 3, c), LZ_F32, 1);
    return lz_conv2d(x, w, NULL);
}

static lz_array *huge_add(builder *b) {
    int64_t n = any(b, 8500000, 9000000); /* over 32 MB */
    snprintf(b->what, sizeof b->what, "huge add %lld", (long long)n);
    lz_array *x = leaf(b, LZ_DIMS(n), LZ_F32, 1);
    return lz_add(x, lz_mul(x, 0.5));
}

static lz_array *(*const large_ops[])(builder *) = {
    large_matmul,   large_chain, large_sdpa,    large_norm,  large_group_norm, large_conv, large_reduce, large_move,
    large_few_rows, large_rope,  large_softmax, huge_matmul, huge_sdpa,        huge_conv,  huge_add};

static void describe_large(builder *b) {
    lz_array *y = large_ops[b->seed % (sizeof large_ops / sizeof *large_ops)](b);
    if (!b->n_out) b->out[b->n_out++] = y;
}

/* ---- random graphs: the patterns of diffusion transformers, in any order ------------------------------------------- */

static lz_array *soft(lz_array *x) { return lz_mul(lz_tanh(lz_mul(x, 0.3)), 3.0); } /* keeps values within +-3 */

/* One step: x [n, c] -> [n, c], c a multiple of 4. */
static lz_array *graph_step(builder *b, lz_array *x, lz_array *earlier, int64_t n, int64_t c, lz_dtype t) {
    switch (any(b, 0, 17)) {
    case 0: return lz_silu(x);
    case 1: return lz_gelu(lz_add(x, view(b, LZ_DIMS(c), t, 1)));
    case 2: return lz_add(lz_mul(x, 0.5), lz_mul(earlier, -0.25));
    case 3: return soft(lz_mul(x, earlier));
    case 4: return lz_div(x, lz_add(lz_abs(earlier), 1.0));
    case 5: { /* norm + modulate */
        lz_dims d = chance(b, 50) ? LZ_DIMS(c) : LZ_DIMS(1, c);
        lz_array *scale = leaf(b, d, t, 0.3), *shift = leaf(b, d, t, 0.3);
        return lz_modulated_norm(x, scale, shift, 0.1);
    }
    case 6: return lz_add(earlier, lz_mul(leaf(b, LZ_DIMS(c), t, 0.5), x)); /* gate + residual */
    case 7: {                                                               /* silu(a) * b of a wider product */
        lz_array *wide = lz_linear(x, leaf(b, LZ_DIMS(2 * c, c), t, 1 / sqrt((double)c)), NULL), *half[2];
        lz_split(wide, -1, 2, half);
        return soft(lz_mul(lz_silu(half[0]), half[1]));
    }
    case 8: { /* heads, qk-norm + rope, attention */
        int64_t d = c / 2;
        lz_array *h = lz_permute(lz_reshape(x, LZ_DIMS(n, 2, d)), LZ_DIMS(1, 0, 2));
        lz_array *w = leaf(b, LZ_DIMS(d), t, 1), *cosine = leaf(b, LZ_DIMS(n, d / 2), t, 1),
                 *sine = leaf(b, LZ_DIMS(n, d / 2), t, 1);
        lz_array *q = lz_rope(lz_rms_norm(h, w, 0.1), cosine, sine, .half_split = chance(b, 50));
        if (chance(b, 50)) return soft(lz_reshape(lz_permute(q, LZ_DIMS(1, 0, 2)), LZ_DIMS(n, c)));
        lz_array *four[] = {q, h};
        for (int i = 0; i < 2; i++) four[i] = lz_reshape(four[i], LZ_DIMS(1, 2, n, d));
        lz_array *y = lz_sdpa(four[0], four[0], four[1], .causal = chance(b, 30));
        return lz_reshape(lz_permute(y, LZ_DIMS(0, 2, 1, 3)), LZ_DIMS(n, c));
    }
    case 9:
        return lz_gelu_tanh(lz_linear(x, leaf(b, LZ_DIMS(c, c), t, 1 / sqrt((double)c)), leaf(b, LZ_DIMS(c), t, 0.3)));
    case 10: return lz_sub(x, lz_mean(x, LZ_DIMS(chance(b, 50) ? 0 : 1), true));
    case 11: return lz_mul(lz_softmax(x, chance(b, 50) ? 0 : 1), 4.0);
    case 12: return lz_where(view(b, LZ_DIMS(n, c), LZ_BOOL, 1), x, earlier);
    case 13: return lz_clip(lz_sub(lz_sigmoid(x), lz_number(b->ctx, 0.5)), -0.4, 0.4);
    case 14: {
        lz_array *two[] = {x, earlier};
        return lz_slice(lz_concat(two, 2, 1), 1, c / 2, c / 2 + c, 1);
    }
    case 15: return lz_transpose(lz_sin(lz_transpose(x)));
    case 16: return lz_add(lz_rms_norm(x, leaf(b, LZ_DIMS(c), t, 1), 0.1), lz_maximum(earlier, lz_neg(x)));
    default:
        return lz_layer_norm(lz_take(x, lz_arange(b->ctx, (double)(n - 1), -1, -1, LZ_I64), 0), NULL,
                             leaf(b, LZ_DIMS(c), t, 1), 0.1);
    }
}

static void describe_graph_of(builder *b, lz_dtype t) {
    int64_t n = any(b, 1, 30), c = 4 * any(b, 1, 20);
    int steps = (int)any(b, 5, 30);
    lz_array *made[40] = {leaf(b, LZ_DIMS(n, c), t, 1), view(b, LZ_DIMS(n, c), t, 1)};
    int k = 2;
    for (int i = 0; i < steps && b->n_leaves < MAX_LEAVES - 5; i++, k++)
        made[k] = graph_step(b, made[k - 1], made[any(b, 0, k - 1)], n, c, t);
    b->out[b->n_out++] = made[k - 1];
    while (b->n_out < MAX_OUT && chance(b, 30)) b->out[b->n_out++] = made[any(b, 2, k - 1)];
    b->ulp = 4, b->room = 3e-4;
    snprintf(b->what, sizeof b->what, "graph of %d %s steps on [%lld, %lld]", steps, lz_dtype_name(t), (long long)n,
             (long long)c);
}

static void describe_graph(builder *b) { describe_graph_of(b, LZ_F32); }
static void describe_graph_16(builder *b) { describe_graph_of(b, chance(b, 70) ? LZ_BF16 : LZ_F16); }

/* ---- running ------------------------------------------------------------------------------------------------------- */

typedef void (*describe_function)(builder *b);

/* Values of the outputs of one run, kept beyond their context's scope. */
typedef struct values {
    int n;
    lz_status status;
    lz_dtype type[MAX_OUT];
    lz_dims dims[MAX_OUT];
    int64_t size[MAX_OUT];
    void *data[MAX_OUT];
    char error[600];
} values;

static void free_values(values *v) {
    for (int i = 0; i < v->n; i++) free(v->data[i]);
}

static void keep_values(values *v, lz_array **out, int n) {
    lz_error err = {0};
    v->n = n;
    v->status = lz_eval_all(out, n, &err);
    for (int i = 0; i < n; i++) {
        v->type[i] = lz_type(out[i]), v->dims[i] = lz_shape(out[i]), v->size[i] = lz_size(out[i]);
        int64_t bytes = v->size[i] * lz_dtype_size(v->type[i]);
        v->data[i] = calloc(1, (size_t)bytes + 8);
        if (v->status == LZ_OK) v->status = lz_copy(out[i], v->data[i], bytes, &err);
    }
    snprintf(v->error, sizeof v->error, "%s", err.text);
}

static values run_eager(lz_context *ctx, describe_function describe, uint64_t seed, bool exact, builder *told) {
    lz_scope *scope = lz_scope_begin(ctx, "case");
    builder b = {.ctx = ctx, .random = {seed}, .seed = seed, .exact = exact};
    describe(&b);
    values v = {0};
    b.only_f32 = true;
    for (int i = 0; i < b.n_leaves; i++)
        b.only_f32 &= lz_type(b.leaves[i]) != LZ_F16 && lz_type(b.leaves[i]) != LZ_BF16 &&
                      lz_type(b.leaves[i]) != LZ_F8;
    for (int i = 0; i < b.n_out; i++)
        b.only_f32 &= lz_type(b.out[i]) != LZ_F16 && lz_type(b.out[i]) != LZ_BF16 && lz_type(b.out[i]) != LZ_F8;
    keep_values(&v, b.out, b.n_out);
    if (told) *told = b;
    lz_scope_end(scope);
    return v;
}

typedef struct compiled_case {
    describe_function describe;
    uint64_t seed;
} compiled_case;

static void describe_compiled(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    const compiled_case *c = user;
    builder b = {.ctx = ctx, .random = {c->seed}, .seed = c->seed, .given = in};
    c->describe(&b);
    for (int i = 0; i < b.n_out; i++) out[i] = b.out[i];
}

static values run_compiled(lz_context *ctx, describe_function describe, uint64_t seed) {
    lz_scope *scope = lz_scope_begin(ctx, "compiled");
    builder b = {.ctx = ctx, .random = {seed}, .seed = seed};
    describe(&b); /* for the leaves */
    lz_error err = {0};
    compiled_case c = {describe, seed};
    values v = {0};
    lz_compiled *f = lz_compile(ctx, describe_compiled, &c, b.n_leaves, b.n_out, 2, &err);
    lz_array *out[MAX_OUT] = {0};
    for (int turn = 0; turn < 2; turn++) { /* the second call is the replay */
        v.status = f ? lz_run(f, b.leaves, out, &err) : err.status;
        snprintf(v.error, sizeof v.error, "%s", err.text);
        if (v.status == LZ_OK && turn == 1) keep_values(&v, out, b.n_out);
    }
    lz_compiled_free(f);
    lz_scope_end(scope);
    return v;
}

/* Equal bits, but that any NaN is as good as any other. */
static bool same_values(const values *a, const values *b) {
    if (a->status != b->status || a->n != b->n) return false;
    for (int k = 0; k < a->n; k++) {
        if (a->type[k] != b->type[k] || !same_dims(a->dims[k], b->dims[k])) return false;
        int64_t size = lz_dtype_size(a->type[k]);
        if (same_bits(a->data[k], b->data[k], a->size[k] * size)) continue;
        for (int64_t i = 0; i < a->size[k]; i++) {
            if (same_bits((char *)a->data[k] + i * size, (char *)b->data[k] + i * size, size)) continue;
            double x = element_as_double(a->data[k], a->type[k], i), y = element_as_double(b->data[k], a->type[k], i);
            if (!(x != x && y != y)) return false;
        }
    }
    return true;
}

static void near_values(const char *who, uint64_t seed, const builder *b, const values *got, const values *want) {
    if (!CHECK(got->status == want->status && want->status == LZ_OK, "%s, case %llu: %s: %s | ref: %s", who,
               (unsigned long long)seed, b->what, got->status ? got->error : "ok", want->status ? want->error : "ok"))
        return;
    for (int k = 0; k < got->n; k++) {
        if (!CHECK(got->type[k] == want->type[k] && same_dims(got->dims[k], want->dims[k]), "%s, case %llu: %s", who,
                   (unsigned long long)seed, b->what))
            return;
        lz_dtype t = got->type[k];
        double scale = 0, worst = 0;
        int64_t bad = -1;
        for (int64_t i = 0; i < want->size[k]; i++) {
            double w = fabs(element_as_double(want->data[k], t, i));
            if (isfinite(w) && w > scale) scale = w;
        }
        for (int64_t i = 0; i < want->size[k]; i++) {
            double x = element_as_double(got->data[k], t, i), y = element_as_double(want->data[k], t, i),
                   error = value_error(x, y);
            double allowed = b->ulp * type_spacing(t, y) + b->room * scale + b->least;
            if (!is_float(t) || t == LZ_F64) allowed = 0.0; /* f64 runs on the reference kernels everywhere */
            if (isfinite(error)) error -= allowed;
            if (error > worst) worst = error, bad = i;
        }
        if (bad < 0)
            CHECK(true);
        else
            CHECK(false, "%s, case %llu: %s: output %d %s, element %lld: %.9g, not %.9g (largest %.3g, %.3g beyond)",
                  who, (unsigned long long)seed, b->what, k, dims_text(got->dims[k]), (long long)bad,
                  element_as_double(got->data[k], t, bad), element_as_double(want->data[k], t, bad), scale, worst);
    }
}

typedef struct machine { /* the contexts of one instruction set */
    const char *isa;
    lz_context *two, *one, *three, *unfused;
} machine;

static machine machines[3];
static int n_machines;
static lz_context *ref;

static void open_all(void) {
    static const char *const names[] = {"avx512", "avx2", "baseline"};
    ref = lz_open(.device = "ref", .threads = 1);
    n_machines = 0;
    for (int i = 0; i < 3; i++) {
        machine m = {.isa = names[i], .two = lz_open(.isa = names[i], .threads = 2)};
        if (!m.two) continue;
        m.one = lz_open(.isa = names[i], .threads = 1);
        m.three = lz_open(.isa = names[i], .threads = 3);
        m.unfused = lz_open(.isa = names[i], .threads = 2, .no_fusion = true);
        machines[n_machines++] = m;
    }
    CHECK(ref && n_machines > 0);
}

static void close_all(void) {
    for (int i = 0; i < n_machines; i++) {
        lz_close(machines[i].two);
        lz_close(machines[i].one);
        lz_close(machines[i].three);
        lz_close(machines[i].unfused);
    }
    lz_close(ref);
}

#define SAME(other, text)                                                                                              \
    CHECK(same_values(&base, &other), "%s, case %llu: %s: %s %s", m->isa, (unsigned long long)seed, b.what, text,      \
          other.status ? other.error : "")

static void run_case(describe_function describe, uint64_t seed, const machine *m) {
    builder b;
    values want = run_eager(ref, describe, seed, false, &b);
    values base = run_eager(m->two, describe, seed, false, &b);
    near_values(m->isa, seed, &b, &base, &want);
    values again = run_eager(m->two, describe, seed, false, NULL), one = run_eager(m->one, describe, seed, false, NULL);
    values three = run_eager(m->three, describe, seed, false, NULL),
           unfused = run_eager(m->unfused, describe, seed, false, NULL);
    values compiled = run_compiled(m->two, describe, seed);
    SAME(again, "the same from run to run");
    SAME(one, "the same on one thread");
    SAME(three, "the same on three threads");
    if (b.only_f32) {
        SAME(unfused, "f32: fused = unfused");
        SAME(compiled, "f32: compiled = eager");
    } else {
        near_values("unfused", seed, &b, &unfused, &want);
        near_values("compiled", seed, &b, &compiled, &want);
    }
    values *all[] = {&want, &base, &again, &one, &three, &unfused, &compiled};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free_values(all[i]);
}

static void run_many(describe_function describe, int n, uint64_t first) {
    open_all();
    const char *only = getenv("LZ_TEST_SEED");
    for (int i = 0; i < n && n_machines; i++) {
        uint64_t seed = only ? strtoull(only, NULL, 10) : first + (uint64_t)i;
        for (int k = 0; k < n_machines; k++)
            if (only || i % n_machines == k) run_case(describe, seed, &machines[k]);
        if (only) break;
    }
    for (int i = 0; i < n_machines; i++)
        CHECK_I64(lz_memory_info(machines[i].two).active, 0); /* nothing stays behind */
    close_all();
}

static void single(void) { run_many(describe_op, test_scale(6000), 1); }
static void large(void) { run_many(describe_large, test_scale(60), 15 * 1000); }
static void graphs(void) { run_many(describe_graph, test_scale(400), 1000001); }

/* Mean error against the graph without rounding, as a share of the largest value. */
static double mean_error(const values *got, const values *exact) {
    double sum = 0, scale = 1e-30;
    int64_t n = 0;
    for (int k = 0; k < got->n; k++)
        for (int64_t i = 0; i < got->size[k]; i++, n++) {
            double y = element_as_double(exact->data[k], exact->type[k], i);
            sum += value_error(element_as_double(got->data[k], got->type[k], i), y);
            scale = fmax(scale, fabs(y));
        }
    return n ? sum / (double)n / scale : 0.0;
}

static void fused_16_bit_is_no_worse(void) {
    open_all();
    double fused_sum = 0, unfused_sum = 0;
    int n = test_scale(300), worse = 0;
    for (int i = 0; i < n && n_machines; i++) {
        const machine *m = &machines[i % n_machines];
        uint64_t seed = 2000001 + (uint64_t)i;
        builder b;
        values exact = run_eager(ref, describe_graph_16, seed, true, NULL);
        values base = run_eager(m->two, describe_graph_16, seed, false, &b),
               again = run_eager(m->one, describe_graph_16, seed, false, NULL);
        values unfused = run_eager(m->unfused, describe_graph_16, seed, false, NULL);
        if (CHECK(exact.status == LZ_OK && base.status == LZ_OK && unfused.status == LZ_OK, "case %llu: %s: %s %s %s",
                  (unsigned long long)seed, b.what, exact.error, base.error, unfused.error)) {
            double fused_error = mean_error(&base, &exact), unfused_error = mean_error(&unfused, &exact);
            CHECK(fused_error < 0.15, "case %llu: %s: %g", (unsigned long long)seed, b.what, fused_error);
            /* One case may be unlucky by a little; on the whole fusing must not lose. */
            CHECK(fused_error <= 1.3 * unfused_error + 1e-4, "case %llu: %s: fused %g, unfused %g",
                  (unsigned long long)seed, b.what, fused_error, unfused_error);
            worse += fused_error > unfused_error * 1.02 + 1e-6;
            fused_sum += fused_error, unfused_sum += unfused_error;
            SAME(again, "16 bit: the same on one thread");
        }
        free_values(&exact), free_values(&base), free_values(&again), free_values(&unfused);
    }
    CHECK(fused_sum <= unfused_sum * (n >= 30 ? 1.0 : 1.1), "fused %g, unfused %g in all", fused_sum, unfused_sum);
    CHECK(worse <= n / 4 + 1, "fused was worse in %d of %d cases", worse, n);
    printf("    mean error fused %.3g, unfused %.3g, worse in %d of %d\n", fused_sum / n, unfused_sum / n, worse, n);
    close_all();
}

TEST_MAIN({"single", single}, {"large", large}, {"graphs", graphs},
          {"fused_16_bit_is_no_worse", fused_16_bit_is_no_worse})
