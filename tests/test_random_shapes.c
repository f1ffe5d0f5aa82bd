/* test_random_shapes.c: random ops on random shapes, strides and types: the fast kernels against the reference, and
 * which results must have equal bits (random_case.h).
 *
 * Small cases have odd sizes: 0, 1, one off a multiple of the vector width, views with offsets and steps. Large cases
 * have several blocks and tiles of each kernel, several tasks for each thread, and matrices that the kernels pack in
 * several chunks. */
#include "random_case.h"
#include "random_packed.h"

/* ---- single ops -------------------------------------------------------------------------------------------------- */

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

/* GPUs, and processors that multiply bf16, round the probabilities of a 16-bit attention to 16 bits before they are
 * multiplied by the values. */
static double sdpa_room(lz_dtype t) {
    bool rounds = t == LZ_BF16 || (getenv("LZ_TEST_DEVICE") && t == LZ_F16);
    return rounds ? eps_of[t] / 4 : 0;
}

static lz_array *do_sdpa(builder *b) {
    static const int64_t heads[] = {1, 2, 7, 8, 16, 33, 64, 80, 128};
    lz_dtype t = any_float(b);
    int64_t g = any(b, 1, 3), h = g * any(b, 1, 3), batch = any(b, 1, 2), d = heads[any(b, 0, 8)];
    int64_t n = any_size(b, 100), m = any_size(b, 150);
    while (batch * h * n * m * d > 400000) n = (n + 1) / 2, m = (m + 1) / 2;
    bool causal = chance(b, 35);
    b->ulp = 2, b->room = 4e-6 + sdpa_room(t);
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
    b->ulp = 4, b->least = 2e-5, b->room = 2e-5 + (t == LZ_F16 || t == LZ_BF16 ? 3 * eps_of[t] : 0);
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
    b->ulp = 4, b->least = 2e-5, b->room = 2e-5 + (t == LZ_F16 || t == LZ_BF16 ? 3 * eps_of[t] : 0);
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

/* Some kernel whose result has these dims. What only a concat reads is computed straight into its part of the result,
 * so each kernel must be able to write rows that lie apart. */
static lz_array *computed(builder *b, lz_dims d, lz_dtype t) {
    int64_t last = d.at[d.n - 1];
    lz_dims more = d;
    switch (any(b, 0, 13)) {
    case 0: return lz_softmax(view(b, d, t, 1), -1);
    case 1: {
        lz_array *x = view(b, d, t, 1);
        return lz_rms_norm(x, chance(b, 50) ? view(b, LZ_DIMS(last), t, 1) : NULL, 1e-2);
    }
    case 2: return lz_layer_norm(view(b, d, t, 1), NULL, NULL, 1e-2);
    case 3:
        if (d.n < 2) break;
        return lz_group_norm(view(b, d, t, 1), 1, NULL, NULL, 1e-2);
    case 4: {
        if (d.n < 2) break;
        int64_t k = any(b, 1, 20);
        more.at[d.n - 1] = k;
        lz_array *x = view(b, more, t, 1), *w = view(b, LZ_DIMS(last, k), t, 1);
        return lz_linear(x, w, chance(b, 50) ? view(b, LZ_DIMS(last), t, 1) : NULL);
    }
    case 5:
        if (d.n < 2 || last % 2)
            break;
        else {
            lz_dims table = LZ_DIMS(d.at[d.n - 2], last / 2);
            lz_array *x = view(b, d, t, 1), *cosine = view(b, table, t, 1), *sine = view(b, table, t, 1);
            return lz_rope(x, cosine, sine, .half_split = chance(b, 50));
        }
    case 6:
        if (d.n != 4)
            break;
        else {
            lz_dims keys = {.n = 4, .at = {d.at[0], d.at[1], any(b, 1, 9), last}};
            lz_array *q = view(b, d, t, 1), *k = view(b, keys, t, 1), *v = view(b, keys, t, 1);
            return d.at[1] && last ? lz_sdpa(q, k, v) : q;
        }
    case 7:
        if (d.n != 4 || !d.at[1] || !d.at[2])
            break;
        else {
            more.at[3] = any(b, 1, 6);
            lz_array *x = view(b, more, t, 1), *w = view(b, LZ_DIMS(last, 3, 3, more.at[3]), t, 1);
            return lz_conv2d(x, w, NULL, .top = 1, .bottom = 1, .left = 1, .right = 1);
        }
    case 8: more.at[more.n++] = any(b, 1, 5); return lz_mean(view(b, more, t, 1), LZ_DIMS(-1), false);
    case 9: {
        int axis = (int)any(b, 0, d.n - 1);
        more.at[axis] = any(b, 10, 12); /* leaves hold -9 .. 9 */
        lz_array *x = view(b, more, t, 1);
        return lz_take(x, lz_abs(view(b, LZ_DIMS(d.at[axis]), LZ_I32, 1)), axis);
    }
    case 10: {
        lz_dims before = {.n = d.n}, after = {.n = d.n};
        for (int i = 0; i < d.n; i++) before.at[i] = more.at[i] > 1, more.at[i] -= before.at[i];
        return lz_pad(view(b, more, t, 1), before, after, 1.0);
    }
    case 11: return lz_cast(view(b, d, LZ_I32, 1), t);
    case 12: return view(b, d, t, 1);
    default: break;
    }
    return lz_silu(view(b, d, t, 1));
}

static lz_array *do_concat(builder *b) {
    lz_dtype t = any_float(b);
    lz_dims d = any_dims(b, 1, 4, 400);
    int axis = (int)any(b, 0, d.n - 1), n = (int)any(b, 1, 5);
    lz_array *parts[6];
    b->ulp = 4, b->room = 2e-5 + (t == LZ_F16 || t == LZ_BF16 ? 3 * eps_of[t] : 0), b->least = 2e-5;
    snprintf(b->what, sizeof b->what, "concat of %d computed %s %s along %d", n, lz_dtype_name(t), dims_text(d), axis);
    for (int i = 0; i < n; i++) {
        lz_dims part = d;
        part.at[axis] = any_size(b, 20);
        parts[i] = i && chance(b, 15) ? parts[any(b, 0, i - 1)] : computed(b, part, t); /* some twice */
    }
    lz_array *all = lz_concat(parts, n, axis);
    if (chance(b, 20)) all = lz_concat((lz_array *[]){all, parts[0], all}, 3, axis); /* concats in concats */
    b->out[b->n_out++] = all;
    if (chance(b, 30)) b->out[b->n_out++] = lz_neg(all);
    if (chance(b, 30)) b->out[b->n_out++] = parts[any(b, 0, n - 1)]; /* asked for as well */
    return all;
}

static lz_array *(*const single_ops[])(builder *) = {
    do_unary,  do_unary,  do_binary, do_binary, do_binary, do_pow,    do_where,   do_clip,
    do_cast,   do_cast,   do_reduce, do_reduce, do_reduce, do_argmax, do_softmax, do_matmul,
    do_matmul, do_linear, do_addmm,  do_sdpa,   do_sdpa,   do_norm,   do_norm,    do_group_norm,
    do_rope,   do_conv,   do_concat, do_concat, do_concat, do_move,   do_move,    do_move};

static void describe_op(builder *b) {
    b->only_f32 = false; /* decided by the types of leaves and outputs below */
    int i = (int)any(b, 0, (int)(sizeof single_ops / sizeof *single_ops) - 1);
    lz_array *y = single_ops[i](b);
    if (!b->n_out) b->out[b->n_out++] = y;
}

/* ---- large arrays ------------------------------------------------------------------------------------------------ */

/* Enough for several blocks, tiles and turns of each kernel, so that threads have something to share. */

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

/* Layers as models have them: 16 bits, weights along k, rows that begin at multiples of 16 bytes, all kinds of
 * endings. */
static lz_array *large_linear(builder *b) {
    lz_dtype t = chance(b, 70) ? LZ_BF16 : LZ_F16;
    int64_t m = any(b, 1, 300), k = 8 * any(b, 1, 40), n = 8 * any(b, 1, 60);
    b->ulp = 3, b->least = 1e-5, b->room = 8e-6 + 4 * eps_of[t];
    snprintf(b->what, sizeof b->what, "large linear %s %lld x %lld x %lld", lz_dtype_name(t), (long long)m,
             (long long)k, (long long)n);
    lz_array *x = leaf(b, LZ_DIMS(1, m, k), t, 1), *w = leaf(b, LZ_DIMS(n, k), t, 1), *bias = NULL;
    if (chance(b, 30)) bias = leaf(b, LZ_DIMS(n), t, 1);
    lz_array *gate = leaf(b, LZ_DIMS(1, 1, n), t, 1), *residual = leaf(b, LZ_DIMS(1, m, n), t, 1);
    lz_array *y = lz_linear(x, w, bias);
    switch (any(b, 0, 4)) {
    case 0: return lz_add(residual, lz_mul(gate, y));
    case 1: return lz_gelu_tanh(y);
    case 2: return lz_mul(lz_silu(y), residual);
    case 3: return lz_cast(y, LZ_F32);
    default: return y;
    }
}

/* Two products of the same rows that end in one expression. */
static lz_array *large_pair(builder *b) {
    lz_dtype t = chance(b, 70) ? LZ_BF16 : LZ_F16;
    int64_t m = any(b, 1, 300), k = 8 * any(b, 1, 40), n = 8 * any(b, 1, 60);
    b->ulp = 3, b->least = 1e-5, b->room = 8e-6 + 6 * eps_of[t];
    snprintf(b->what, sizeof b->what, "large pair %s %lld x %lld x %lld", lz_dtype_name(t), (long long)m, (long long)k,
             (long long)n);
    lz_array *x = leaf(b, LZ_DIMS(m, k), t, 1), *w = leaf(b, LZ_DIMS(2 * n, k), t, 1);
    lz_array *gate = lz_linear(x, lz_slice(w, 0, 0, n, 1), NULL), *up = lz_linear(x, lz_slice(w, 0, n, 2 * n, 1), NULL);
    lz_array *y = chance(b, 70) ? lz_mul(lz_silu(gate), up) : lz_sub(up, gate);
    return chance(b, 30) ? lz_add(leaf(b, LZ_DIMS(m, n), t, 1), y) : y;
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
    b->ulp = 2, b->room = 5e-6 + sdpa_room(t);
    snprintf(b->what, sizeof b->what, "large sdpa %s h%lld n%lld m%lld d%lld", lz_dtype_name(t), (long long)h,
             (long long)n, (long long)m, (long long)d);
    lz_array *q = view(b, LZ_DIMS(1, h, n, d), t, 1), *k = view(b, LZ_DIMS(1, 1, m, d), t, 1);
    lz_array *v = view(b, LZ_DIMS(1, 1, m, d), t, 1), *mask = NULL;
    if (chance(b, 40)) mask = view(b, broadcastable(b, LZ_DIMS(1, h, n, m)), LZ_BOOL, 1);
    return lz_sdpa(q, k, v, .causal = chance(b, 50), .mask = mask);
}

/* One wide head, as autoencoders have it. */
static lz_array *wide_sdpa(builder *b) {
    int64_t d = 8 * any(b, 33, 64), n = any(b, 500, 800), m = any(b, 600, 800);
    lz_dtype t = chance(b, 70) ? LZ_BF16 : LZ_F16;
    b->ulp = 2, b->room = 5e-6 + sdpa_room(t);
    snprintf(b->what, sizeof b->what, "wide sdpa %s n%lld m%lld d%lld", lz_dtype_name(t), (long long)n, (long long)m,
             (long long)d);
    return lz_sdpa(leaf(b, LZ_DIMS(1, 2, n, d), t, 1), leaf(b, LZ_DIMS(1, 1, m, d), t, 1),
                   leaf(b, LZ_DIMS(1, 1, m, d), t, 1));
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
    large_matmul, large_chain, large_sdpa,     large_norm,   large_group_norm, large_conv,
    large_reduce, large_move,  large_few_rows, large_rope,   large_softmax,    huge_matmul,
    huge_sdpa,    huge_conv,   huge_add,       large_linear, large_pair,       wide_sdpa};

static void describe_large(builder *b) {
    lz_array *y = large_ops[b->seed % (sizeof large_ops / sizeof *large_ops)](b);
    if (!b->n_out) b->out[b->n_out++] = y;
}

/* ---- bf16 ------------------------------------------------------------------------------------------------------- */

/* Both sides bf16, rows along k, as models have them: what instructions for bf16 take (gemm.h, tiles.h), at sizes
 * around those of their blocks. Depths are often multiples of 32, else even or odd. */
static int64_t any_depth(builder *b, int64_t most) {
    if (chance(b, 60)) return 32 * any(b, 1, most / 32);
    return chance(b, 70) ? 2 * any(b, 1, most / 2) : any(b, 1, most);
}

/* A leaf of bf16 in which, in one case of five, one element of 800 is something else: not a number, infinite, too small
 * for a normal number, or a negative zero. Not for keys, values and windows: whether a masked value or a weight over
 * the edge of an image is multiplied by zero or left out is the kernel's choice. */
static lz_array *bf16_leaf(builder *b, lz_dims d) {
    static const double others[] = {NAN, INFINITY, -INFINITY, 1e-40, -0.0};
    lz_array *x = leaf(b, d, LZ_BF16, 1);
    if (!chance(b, 20)) return x;
    double other = others[any(b, 0, 4)];
    return lz_where(lz_greater(leaf(b, d, LZ_F32, 1), 3.0), lz_number(b->ctx, other), x);
}

static lz_array *bf16_linear(builder *b) {
    int64_t m = any(b, 9, 140), k = any_depth(b, 1100), n = any(b, 1, 300);
    while (m * k * n > 12000000) n = (n + 1) / 2;
    b->ulp = 2, b->room = 6e-6, b->least = 5e-7 * sqrt((double)k);
    snprintf(b->what, sizeof b->what, "bf16 linear %lld x %lld x %lld", (long long)m, (long long)k, (long long)n);
    lz_array *x = bf16_leaf(b, LZ_DIMS(m, k)), *w = bf16_leaf(b, LZ_DIMS(n, k));
    if (chance(b, 20)) w = lz_transpose(bf16_leaf(b, LZ_DIMS(k, n)));
    if (chance(b, 20)) w = lz_slice(bf16_leaf(b, LZ_DIMS(n, k + 1)), 1, 1, k + 1, 1);
    if (chance(b, 20)) x = lz_slice(bf16_leaf(b, LZ_DIMS(m, k + 3)), 1, 1, k + 1, 1); /* rows at odd addresses */
    return lz_linear(x, w, NULL);
}

static lz_array *bf16_products(builder *b) { /* many small ones, none of them shared */
    int64_t h = any(b, 2, 5), m = any(b, 9, 70), k = any_depth(b, 200), n = any(b, 1, 90);
    b->ulp = 2, b->room = 6e-6, b->least = 5e-7 * sqrt((double)k);
    snprintf(b->what, sizeof b->what, "bf16 products %lld x %lld x %lld x %lld", (long long)h, (long long)m,
             (long long)k, (long long)n);
    return lz_matmul(bf16_leaf(b, LZ_DIMS(h, m, k)), lz_transpose(bf16_leaf(b, LZ_DIMS(h, n, k))));
}

static lz_array *bf16_sdpa(builder *b) {
    int64_t d = any_depth(b, 160), n = any(b, 1, 130), m = any(b, 1, 300), g = any(b, 1, 2), h = g * any(b, 1, 2);
    b->ulp = 2, b->room = 5e-6 + sdpa_room(LZ_BF16);
    snprintf(b->what, sizeof b->what, "bf16 sdpa h%lld g%lld n%lld m%lld d%lld", (long long)h, (long long)g,
             (long long)n, (long long)m, (long long)d);
    lz_array *q = bf16_leaf(b, LZ_DIMS(1, h, n, d)), *k = leaf(b, LZ_DIMS(1, g, m, d), LZ_BF16, 1);
    lz_array *v = leaf(b, LZ_DIMS(1, g, m, d), LZ_BF16, 1), *mask = NULL;
    if (chance(b, 40)) mask = view(b, broadcastable(b, LZ_DIMS(1, h, n, m)), LZ_BOOL, 1);
    return lz_sdpa(q, k, v, .causal = chance(b, 40), .mask = mask, .scale = chance(b, 30) ? 0.3 : 0);
}

static lz_array *bf16_conv(builder *b) {
    int64_t c = any_depth(b, 100), o = any(b, 1, 80), size = any(b, 3, 30);
    int kernel = (int)any(b, 1, 3), stride = (int)any(b, 1, 2), around = kernel / 2;
    while (size * size * c * o * kernel * kernel > 6000000) size = size * 2 / 3 + 1, o = (o + 1) / 2;
    b->ulp = 2, b->room = 6e-6, b->least = 5e-7 * sqrt((double)(c * kernel * kernel));
    snprintf(b->what, sizeof b->what, "bf16 conv2d %lld -> %lld, %dx%d by %d, %lld pixels", (long long)c, (long long)o,
             kernel, kernel, stride, (long long)size);
    lz_array *w = chance(b, 50) ? leaf(b, LZ_DIMS(o, kernel, kernel, c), LZ_BF16, 1)
                                : lz_permute(leaf(b, LZ_DIMS(o, c, kernel, kernel), LZ_BF16, 1), LZ_DIMS(0, 2, 3, 1));
    return lz_conv2d(bf16_leaf(b, LZ_DIMS(1, size, size + 1, c)), w, NULL, .stride = stride, .top = around,
                     .bottom = around, .left = around, .right = around);
}

static lz_array *(*const bf16_ops[])(builder *) = {bf16_linear, bf16_products, bf16_sdpa, bf16_conv};

static void describe_bf16(builder *b) {
    b->only_f32 = false;
    b->out[b->n_out++] = bf16_ops[any(b, 0, 3)](b);
}

static void single(void) { run_many(describe_op, test_scale(12000), 1); }
static void large(void) { run_many(describe_large, test_scale(54), 18 * 1000); }

static void bf16(void) { run_many(describe_bf16, test_scale(400), 4 * 1000000); }

static void packed(void) { run_many(describe_packed, test_scale(600), 6 * 1000000); }

static void int8(void) {
    machine_compute = LZ_I8;
    run_many(describe_int8, test_scale(300), 7 * 1000000);
    machine_compute = 0;
}

TEST_MAIN({"single", single}, {"large", large}, {"bf16", bf16}, {"packed", packed}, {"packed_bits", packed_bits},
          {"int8", int8})
