/* fuzz_graph.c: bytes are a program. Each step reads an op, picks its arrays from those made before and pushes the
 * result; a call that the library refuses pushes nothing. The same program is described twice, on a context that fuses
 * and on one that does not. Both must agree on what is an error, and in f32 (and the exact types) on every bit. When the
 * scope ends nothing may be left in memory.
 *
 * 16-bit types take part, but what comes from them is not compared: there fusion may keep more digits. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lazuli.h"

#define ARRAYS 24
#define MAX_SIZE 2048

typedef struct program {
    const uint8_t *at, *end;
    lz_context *ctx;
    lz_array *arrays[ARRAYS];
    bool inexact[ARRAYS]; /* came through a 16-bit type */
    int n;
    bool picked_inexact; /* by the step that is being read */
} program;

static int byte(program *p, int below) { return p->at < p->end ? *p->at++ % below : 0; }
static int axis(program *p) { return byte(p, 6) - 3; }
static double number(program *p) {
    static const double some[] = {0, 1, -1, 0.5, 2, -2.75, 3e38, -3e38, 1e-40, 1e-6, 88, -104, 1e10, 255.5, -0.0, 7};
    return some[byte(p, 16)];
}

static lz_array *pick(program *p) {
    int i = p->n ? byte(p, p->n) : 0;
    p->picked_inexact |= p->inexact[i];
    return p->arrays[i];
}
static lz_array *maybe(program *p) { return byte(p, 2) ? pick(p) : NULL; }

static lz_dims dims(program *p) {
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 8, 17, 0};
    lz_dims d = {.n = byte(p, 5)};
    for (int i = 0; i < d.n; i++) d.at[i] = sizes[byte(p, 8)];
    return d;
}
static lz_dims small(program *p, int n, int below) { /* n numbers, each below a bound */
    lz_dims d = {.n = n < 0 ? 0 : n};
    for (int i = 0; i < d.n; i++) d.at[i] = byte(p, below);
    return d;
}

static lz_array *leaf(program *p) {
    lz_dims d = dims(p);
    int64_t size = 1;
    for (int i = 0; i < d.n; i++) size *= d.at[i];
    if (size > MAX_SIZE) return NULL;
    float values[MAX_SIZE];
    double base = number(p), step = (byte(p, 64) - 32) / 8.0;
    for (int64_t i = 0; i < size; i++) values[i] = (float)(base + step * (double)(i % 13 - 6));
    return lz_from(p->ctx, d, LZ_F32, values);
}
static lz_array *full(program *p) {
    lz_dims d = dims(p);
    return lz_full(p->ctx, d, (lz_dtype)byte(p, LZ_DTYPE_COUNT), number(p));
}
static lz_array *arange(program *p) {
    return lz_arange(p->ctx, number(p), byte(p, 32), 1 + byte(p, 3), LZ_F32 - byte(p, 9));
}
static lz_array *constant(program *p) { return lz_number(p->ctx, number(p)); }
static lz_array *normal(program *p) {
    lz_dims d = dims(p);
    return lz_randn(p->ctx, d, (uint64_t)byte(p, 256));
}

static lz_array *unary(program *p) {
    static lz_array *(*const ops[])(lz_array *) = {
        lz_neg, lz_abs,  lz_not, lz_square,  lz_floor, lz_exp,  lz_log,       lz_sqrt,      lz_rsqrt,     lz_sin,
        lz_cos, lz_tanh, lz_erf, lz_sigmoid, lz_silu,  lz_gelu, lz_gelu_tanh, lz_transpose, lz_contiguous};
    int op = byte(p, sizeof ops / sizeof *ops);
    return ops[op](pick(p));
}
static lz_array *binary(program *p) {
    static lz_array *(*const ops[])(lz_array *, lz_array *) = {
        lz_add,       lz_sub,  lz_mul,        lz_div,     lz_pow,           lz_maximum, lz_minimum, lz_equal,
        lz_not_equal, lz_less, lz_less_equal, lz_greater, lz_greater_equal, lz_and,     lz_or,      lz_matmul};
    int op = byte(p, sizeof ops / sizeof *ops);
    lz_array *a = pick(p);
    return ops[op](a, pick(p));
}
static lz_array *with_number(program *p) {
    static lz_array *(*const ops[])(lz_array *, double) = {lz_add_number,     lz_sub_number,   lz_mul_number,
                                                           lz_div_number,     lz_pow_number,   lz_maximum_number,
                                                           lz_minimum_number, lz_equal_number, lz_less_equal_number};
    int op = byte(p, sizeof ops / sizeof *ops);
    lz_array *a = pick(p);
    return ops[op](a, number(p));
}
static lz_array *where(program *p) {
    lz_array *c = pick(p), *a = pick(p);
    return lz_where(c, a, pick(p));
}
static lz_array *clip(program *p) {
    lz_array *a = pick(p);
    double low = number(p);
    return lz_clip(a, low, number(p));
}
static lz_array *cast(program *p) {
    lz_array *a = pick(p);
    return lz_cast(a, (lz_dtype)byte(p, LZ_DTYPE_COUNT));
}

static lz_array *reduce(program *p) {
    static lz_array *(*const ops[])(lz_array *, lz_dims, bool) = {lz_sum, lz_mean, lz_var,
                                                                  lz_max, lz_min,  lz_logsumexp};
    int op = byte(p, sizeof ops / sizeof *ops);
    lz_array *a = pick(p);
    lz_dims axes = small(p, byte(p, 3), 4);
    return ops[op](a, axes, byte(p, 2));
}
static lz_array *argmax(program *p) {
    lz_array *a = pick(p);
    int at = axis(p);
    return lz_argmax(a, at, byte(p, 2));
}
static lz_array *softmax(program *p) {
    lz_array *a = pick(p);
    return lz_softmax(a, axis(p));
}

static lz_array *linear(program *p) {
    lz_array *x = pick(p), *w = pick(p);
    return lz_linear(x, w, maybe(p));
}
static lz_array *addmm(program *p) {
    lz_array *c = pick(p), *a = pick(p), *b = pick(p);
    double alpha = number(p);
    return lz_addmm(c, a, b, .alpha = alpha, .beta = number(p));
}
static lz_array *sdpa(program *p) {
    lz_array *q = pick(p), *k = pick(p), *v = pick(p), *mask = maybe(p);
    return lz_sdpa(q, k, v, .mask = mask, .causal = byte(p, 2));
}

static lz_array *norm(program *p) {
    int kind = byte(p, 4);
    lz_array *x = pick(p), *weight = maybe(p), *bias = maybe(p);
    switch (kind) {
    case 0: return lz_rms_norm(x, weight, 1e-6);
    case 1: return lz_layer_norm(x, weight, bias, 1e-5);
    case 2: return lz_modulated_norm(x, weight, bias, 1e-6);
    default: return lz_group_norm(x, 1 + byte(p, 4), weight, bias, 1e-6);
    }
}
static lz_array *rope(program *p) {
    lz_array *x = pick(p), *cosines = pick(p), *sines = pick(p);
    return lz_rope(x, cosines, sines, .half_split = byte(p, 2));
}
static lz_array *conv2d(program *p) {
    lz_array *x = pick(p), *w = pick(p), *bias = maybe(p);
    lz_dims at = small(p, 5, 4);
    return lz_conv2d(x, w, bias, .stride = (int)at.at[0], .top = (int)at.at[1], .bottom = (int)at.at[2],
                     .left = (int)at.at[3], .right = (int)at.at[4]);
}
static lz_array *upsample(program *p) {
    lz_array *a = pick(p);
    return lz_upsample_nearest(a, byte(p, 4));
}
static lz_array *pad(program *p) {
    lz_array *a = pick(p);
    lz_dims before = small(p, lz_shape(a).n, 3), after = small(p, lz_shape(a).n, 3);
    return lz_pad(a, before, after, number(p));
}

static lz_array *reshape(program *p) {
    lz_array *a = pick(p);
    lz_dims d = dims(p);
    if (d.n && byte(p, 2)) d.at[byte(p, d.n)] = -1;
    return lz_reshape(a, d);
}
static lz_array *permute(program *p) {
    lz_array *a = pick(p);
    return lz_permute(a, small(p, lz_shape(a).n, 4));
}
static lz_array *slice(program *p) {
    lz_array *a = pick(p);
    int at = axis(p);
    int64_t start = byte(p, 8) - 4, stop = byte(p, 24) - 4;
    return lz_slice(a, at, start, stop, byte(p, 4));
}
static lz_array *split(program *p) {
    lz_array *a = pick(p), *parts[4];
    int n = 1 + byte(p, 4);
    lz_split(a, axis(p), n, parts);
    return parts[byte(p, n)];
}
static lz_array *broadcast(program *p) {
    lz_array *a = pick(p);
    return lz_broadcast(a, dims(p));
}
static lz_array *concat(program *p) {
    lz_array *parts[3];
    int n = 1 + byte(p, 3);
    for (int i = 0; i < n; i++) parts[i] = pick(p);
    return lz_concat(parts, n, axis(p));
}
/* Mostly with indices that fit, because one that does not ends the whole program. */
static lz_array *take(program *p) {
    lz_array *a = pick(p), *indices = pick(p);
    int at = axis(p), kind = byte(p, 8);
    lz_dims d = lz_shape(a);
    int positive = at < 0 ? at + d.n : at;
    if (kind && positive >= 0 && positive < d.n)
        indices = lz_cast(lz_clip(lz_cast(indices, LZ_F32), 0, (double)(d.at[positive] ? d.at[positive] - 1 : 0)),
                          LZ_I64);
    return kind % 2 ? lz_take(a, indices, at) : lz_gather(a, indices, at);
}

static lz_array *(*const steps[])(program *) = {
    leaf,      full,   arange,      constant,    normal,   unary,   unary,   unary,   binary, binary,
    binary,    binary, binary,      where,       clip,     cast,    reduce,  argmax,  linear, addmm,
    sdpa,      norm,   rope,        conv2d,      upsample, pad,     reshape, permute, slice,  split,
    broadcast, concat, with_number, with_number, take,     softmax, reduce,  norm,    leaf};

static void describe(program *p) {
    p->n = 0;
    p->arrays[0] = NULL; /* what pick gives when nothing is there yet: a poisoned array like any other */
    p->inexact[0] = false;
    for (int i = 0; i < 64 && p->at < p->end && p->n < ARRAYS; i++) {
        p->picked_inexact = false;
        lz_array *a = steps[byte(p, sizeof steps / sizeof *steps)](p);
        if (lz_check(a, NULL) != LZ_OK || lz_size(a) > MAX_SIZE) continue;
        lz_dtype t = lz_type(a);
        p->inexact[p->n] = p->picked_inexact || t == LZ_F8 || t == LZ_F16 || t == LZ_BF16;
        p->arrays[p->n++] = a;
    }
}

static void mismatch(const program *p, int i, int64_t element, const char *what) {
    lz_error err;
    char *text = lz_graph_text(&p->arrays[i], 1, LZ_GRAPH_TEXT, &err);
    fprintf(stderr, "array %d (%s), element %lld: %s\n%s\n", i, lz_dtype_name(lz_type(p->arrays[i])),
            (long long)element, what, text ? text : err.text);
    abort();
}

static void compare(const program *p, const program *q, int i) {
    lz_error err;
    const unsigned char *x = lz_data(p->arrays[i], &err), *y = lz_data(q->arrays[i], &err);
    int64_t n = lz_size(p->arrays[i]), size = lz_dtype_size(lz_type(p->arrays[i]));
    if (n == 0 || p->inexact[i]) return;
    if (!x || !y) mismatch(p, i, 0, "has no value");
    for (int64_t k = 0; k < n; k++) {
        if (memcmp(x + k * size, y + k * size, (size_t)size) == 0) continue;
        if (lz_type(p->arrays[i]) == LZ_F32) { /* the sign of a NaN is nobody's promise */
            float a, b;
            memcpy(&a, x + k * size, 4);
            memcpy(&b, y + k * size, 4);
            if (a != a && b != b) continue;
            char what[100];
            snprintf(what, sizeof what, "%.9g fused, %.9g alone", (double)a, (double)b);
            mismatch(p, i, k, what);
        }
        mismatch(p, i, k, "fused and alone differ");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static lz_context *contexts[2];
    if (!contexts[0]) {
        contexts[0] = lz_open(.threads = 1, .cache_limit = -1, .memory_limit = 1 << 28);
        contexts[1] = lz_open(.threads = 2, .cache_limit = -1, .memory_limit = 1 << 28, .no_fusion = true);
    }
    program programs[2];
    lz_scope *scopes[2];
    lz_status status[2];
    lz_error err[2];
    for (int i = 0; i < 2; i++) {
        scopes[i] = lz_scope_begin(contexts[i], "fuzz");
        programs[i] = (program){.at = data, .end = data + size, .ctx = contexts[i]};
        describe(&programs[i]);
        status[i] = programs[i].n ? lz_eval_all(programs[i].arrays, programs[i].n, &err[i]) : LZ_OK;
    }
    if (programs[0].n != programs[1].n) abort();
    if (status[0] != status[1]) {
        fprintf(stderr, "fused: %s, alone: %s\n", status[0] ? err[0].text : "ok", status[1] ? err[1].text : "ok");
        abort();
    }
    for (int i = 0; i < programs[0].n && status[0] == LZ_OK; i++) compare(&programs[0], &programs[1], i);
    for (int i = 0; i < 2; i++) {
        lz_scope_end(scopes[i]);
        if (lz_memory_info(contexts[i]).active != 0) {
            fprintf(stderr, "%lld bytes are left\n", (long long)lz_memory_info(contexts[i]).active);
            abort();
        }
    }
    return 0;
}
