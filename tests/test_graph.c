/* test_graph.c: from described arrays to programs: planning, fusion, compiling, streams, printing, profiling.
 *
 * The numbers of kernels and bytes checked here are design goals: memory is known before anything runs, and each
 * pattern of diffusion transformers takes one kernel. */
#include <jansson.h>
#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "graph/eval.h"

static lz_context *open_plain(void) { /* no cache, so that bytes can be counted */
    lz_context *ctx = lz_open(.threads = 2, .cache_limit = -1);
    CHECK(ctx != NULL);
    return ctx;
}

static lz_array *input(lz_context *ctx, lz_dims dims) { /* a leaf with a value */
    lz_array *a = lz_randn(ctx, dims, 7);
    lz_error err = {0};
    CHECK_OK(lz_eval(a, &err), &err);
    return a;
}

static lz_array *typed(lz_context *ctx, lz_dims dims, lz_dtype t) {
    lz_array *a = lz_cast(lz_randn(ctx, dims, 7), t);
    CHECK(lz_eval(a, NULL) == LZ_OK);
    return a;
}

static lz_plan_info plan(lz_array *a) {
    lz_plan_info info = {0};
    lz_error err = {0};
    CHECK_OK(lz_plan(&a, 1, &info, &err), &err);
    return info;
}

static int64_t kernels(lz_array *a) { return plan(a).kernels; }

/* ---- planning ---------------------------------------------------------------------------------------------------- */

/* Evaluates, and checks that the memory taken is the memory announced. */
static void check_bytes(const char *what, lz_context *ctx, lz_array **arrays, int n) {
    lz_plan_info info = {0};
    lz_error err = {0};
    lz_clear_cache(ctx);
    CHECK_OK(lz_plan(arrays, n, &info, &err), &err);
    lz_reset_peak(ctx);
    int64_t before = lz_memory_info(ctx).active;
    CHECK_I64(lz_memory_info(ctx).peak, before);
    CHECK_OK(lz_eval_all(arrays, n, &err), &err);
    lz_memory m = lz_memory_info(ctx);
    CHECK(m.peak - before == info.arena_bytes + info.output_bytes, "%s: peak %lld, planned %lld + %lld", what,
          (long long)(m.peak - before), (long long)info.arena_bytes, (long long)info.output_bytes);
    CHECK(m.active - before == info.output_bytes, "%s: %lld stay, planned %lld", what, (long long)(m.active - before),
          (long long)info.output_bytes);
    CHECK_OK(lz_plan(arrays, n, &info, &err), &err); /* evaluated: nothing left to do */
    CHECK_I64(info.kernels, 0);
    CHECK_I64(info.arena_bytes, 0);
    CHECK_I64(info.output_bytes, 0);
}

static lz_array *block(lz_context *ctx, lz_array *x, int64_t c) { /* a transformer block in small: x [n, c] */
    lz_array *y = lz_modulated_norm(x, lz_randn(ctx, LZ_DIMS(c), 1), lz_randn(ctx, LZ_DIMS(c), 2), 1e-6), *half[2];
    lz_split(lz_linear(y, lz_randn(ctx, LZ_DIMS(8 * c, c), 3), NULL), -1, 2, half);
    y = lz_linear(lz_mul(lz_silu(half[0]), half[1]), lz_randn(ctx, LZ_DIMS(c, 4 * c), 4), NULL);
    return lz_add(x, lz_mul(lz_randn(ctx, LZ_DIMS(c), 5), y));
}

static void planned_bytes(void) {
    for (int fusion = 0; fusion < 2; fusion++) {
        lz_context *ctx = lz_open(.threads = 2, .cache_limit = -1, .no_fusion = !fusion);
        lz_array *x = input(ctx, LZ_DIMS(64, 32));
        lz_array *chain = x;
        for (int i = 0; i < 12; i++)
            chain = lz_tanh(lz_add(lz_matmul(chain, lz_full(ctx, LZ_DIMS(32, 32), LZ_F32, 0.1)), x));
        lz_array *one[] = {chain};
        check_bytes("chain", ctx, one, 1);
        lz_array *b[] = {block(ctx, block(ctx, x, 32), 32)};
        check_bytes("block", ctx, b, 1);
        lz_array *several[] = {lz_exp(x), lz_sum(lz_exp(x), LZ_DIMS(1), true), lz_transpose(lz_mul(x, 3.0)),
                               lz_softmax(lz_matmul(x, lz_transpose(x)), 1)};
        check_bytes("several", ctx, several, 4);
        lz_array *q = lz_randn(ctx, LZ_DIMS(1, 2, 128, 16), 3), *a[] = {lz_sdpa(q, q, q, .causal = true)};
        check_bytes("sdpa", ctx, a, 1);
        lz_array *image = lz_randn(ctx, LZ_DIMS(1, 16, 16, 8), 3),
                 *c[] = {lz_conv2d(lz_silu(lz_group_norm(image, 4, NULL, NULL, 1e-6)),
                                   lz_randn(ctx, LZ_DIMS(8, 3, 3, 8), 1), NULL, .top = 1, .bottom = 1, .left = 1,
                                   .right = 1)};
        check_bytes("conv", ctx, c, 1);
        lz_close(ctx);
    }
    /* Intermediates that do not live at the same time share their place: a chain of any length needs two. */
    lz_context *ctx = lz_open(.threads = 1, .cache_limit = -1, .no_fusion = true);
    lz_array *x = input(ctx, LZ_DIMS(1 << 14)), *y = x;
    for (int i = 0; i < 40; i++) y = lz_sin(y);
    lz_plan_info info = plan(y);
    CHECK_I64(info.kernels, 40);
    CHECK(info.arena_bytes <= 2 * 4 * (1 << 14), "%lld bytes for two live values", (long long)info.arena_bytes);
    CHECK_I64(info.output_bytes, 4 * (1 << 14));
    CHECK_I64(info.input_bytes, 4 * (1 << 14));
    lz_close(ctx);

    /* Work: a product of m, k, n takes 2 m k n operations. */
    ctx = open_plain();
    info = plan(lz_matmul(input(ctx, LZ_DIMS(64, 128)), input(ctx, LZ_DIMS(128, 32))));
    CHECK(info.flops == 2.0 * 64 * 128 * 32, "%g", info.flops);
    CHECK(info.bytes == 4.0 * (64 * 128 + 128 * 32 + 64 * 32), "%g", info.bytes);
    CHECK(info.nodes >= 3);
    lz_close(ctx);
}

/* 2 for a multiply-add, 1 for each element that an elementwise op or a reduction reads. */
static void counted_operations(void) {
    lz_context *ctx = open_plain();
    lz_array *x = input(ctx, LZ_DIMS(6, 32)), *w = input(ctx, LZ_DIMS(32, 10)), *q = input(ctx, LZ_DIMS(1, 2, 5, 8)),
             *k = input(ctx, LZ_DIMS(1, 2, 7, 8)), *image = input(ctx, LZ_DIMS(1, 6, 6, 4)),
             *filter = input(ctx, LZ_DIMS(8, 3, 3, 4));
    const struct {
        const char *what;
        lz_array *of;
        double operations;
    } cases[] = {
        {"matmul", lz_matmul(x, w), 2.0 * 6 * 10 * 32},
        {"matmul and an epilogue", lz_silu(lz_matmul(x, w)), 2.0 * 6 * 10 * 32 + 60},
        {"conv2d", lz_conv2d(image, filter, NULL, .stride = 1), 2.0 * 4 * 4 * 8 * 3 * 3 * 4},
        {"sdpa", lz_sdpa(q, k, k), 4.0 * 2 * 5 * 8 * 7},
        {"causal sdpa", lz_sdpa(q, q, q, .causal = true), 2.0 * 2 * 5 * 8 * 5},
        {"sum", lz_sum(x, LZ_DIMS(1), false), 6 * 32},
        {"softmax", lz_softmax(x, -1), 5.0 * 6 * 32},
        {"rms_norm", lz_rms_norm(x, NULL, 1e-6), 3.0 * 6 * 32},
        {"add", lz_add(x, x), 6 * 32},
        {"copy", lz_contiguous(lz_transpose(x)), 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK(plan(cases[i].of).flops == cases[i].operations, "%s: %g, not %g", cases[i].what, plan(cases[i].of).flops,
              cases[i].operations);
    lz_close(ctx);
}

/* A fact stands only where the passes that read it can use it. */
static void facts_of_ops(void) {
    for (int i = 0; i < LZ_OP_COUNT; i++) {
        const lz_op_info *op = &lz_op_table[i];
        bool element = op->number || op->commutes || op->cheap || op->truth;
        CHECK(op->name && op->name[0], "op %d has no name", i);
        CHECK(!element || op->kind == LZ_KIND_ELEMENT, "%s", op->name);
        CHECK(!op->epilogue || op->kind == LZ_KIND_KERNEL, "%s", op->name);
        CHECK(!op->commutes || op->inputs == 2, "%s", op->name);
        bool two = op->inputs > 1 || op->inputs < 0; /* below 0: any number */
        CHECK(!op->product || (two && op->sum.axes > 0), "%s: its weight is input 1", op->name);
        CHECK(!op->moves || op->flops == 0, "%s", op->name);
        CHECK(op->inputs < 0 || op->sum.input < op->inputs || op->inputs == 0, "%s", op->name);
        CHECK(op->truth >> (op->inputs < 0 ? 0 : op->inputs) == 0, "%s", op->name);
    }
}

static void attention_memory_is_linear(void) {
    lz_context *ctx = open_plain();
    int64_t bytes[4];
    for (int i = 0; i < 4; i++) {
        int64_t length = 512 << i;
        lz_dims d = LZ_DIMS(1, 4, length, 64);
        lz_array *y = lz_sdpa(lz_randn(ctx, d, 1), lz_randn(ctx, d, 2), lz_randn(ctx, d, 3), .causal = i % 2,
                              .mask = lz_full(ctx, LZ_DIMS(1, 1, 1, length), LZ_BOOL, 1));
        lz_plan_info info = plan(y);
        bytes[i] = info.arena_bytes + info.output_bytes;
        CHECK(bytes[i] >= 4 * 4 * length * 64 * 4 && bytes[i] < 2 * 4 * 4 * length * 64 * 4 + (4 << 20),
              "%lld bytes at %lld", (long long)bytes[i], (long long)length);
    }
    for (int i = 0; i < 3; i++)
        CHECK((double)bytes[i + 1] <= 2.05 * (double)bytes[i], "%lld then %lld", (long long)bytes[i],
              (long long)bytes[i + 1]);
    lz_close(ctx);
}

/* ---- fusing and folding ------------------------------------------------------------------------------------------ */

static void patterns_are_one_kernel(void) {
    static const lz_dtype types[] = {LZ_F32, LZ_BF16, LZ_F16};
    for (int k = 0; k < 3; k++) {
        lz_context *ctx = open_plain();
        lz_dtype t = types[k];
        const char *name = lz_dtype_name(t);
        lz_array *x = typed(ctx, LZ_DIMS(2, 24, 64), t), *y = typed(ctx, LZ_DIMS(2, 24, 64), t),
                 *v = typed(ctx, LZ_DIMS(64), t);
        lz_array *per = typed(ctx, LZ_DIMS(2, 1, 64), t), *w = typed(ctx, LZ_DIMS(48, 64), t),
                 *bias = typed(ctx, LZ_DIMS(48), t), *half[2];
        CHECK(kernels(lz_modulated_norm(x, per, per, 1e-6)) == 1, "%s: norm + modulate", name);
        CHECK(kernels(lz_add(lz_mul(lz_layer_norm(x, NULL, NULL, 1e-6), lz_add(per, 1.0)), per)) <= 2,
              "%s: the same by hand", name);
        CHECK(kernels(lz_add(x, lz_mul(per, y))) == 1, "%s: gate + residual", name);
        lz_split(x, -1, 2, half);
        CHECK(kernels(lz_mul(lz_silu(half[0]), half[1])) == 1, "%s: silu(a) * b of a split", name);
        CHECK(kernels(lz_rms_norm(x, v, 1e-6)) == 1, "%s: rms_norm * w", name);
        CHECK(kernels(lz_layer_norm(x, v, v, 1e-6)) == 1, "%s: layer_norm with weight and bias", name);
        lz_array *c = input(ctx, LZ_DIMS(24, 32)), *s = input(ctx, LZ_DIMS(24, 32));
        CHECK(kernels(lz_rope(lz_rms_norm(x, v, 1e-6), c, s)) == 1, "%s: qk-norm + rope", name);
        CHECK(kernels(lz_rope(lz_rms_norm(x, v, 1e-6), c, s, .half_split = true)) == 1, "%s: qk-norm + rope, halves",
              name);
        CHECK(kernels(lz_linear(x, w, NULL)) == 1, "%s: linear", name);
        CHECK(kernels(lz_linear(x, w, bias)) == 1, "%s: linear + bias", name);
        CHECK(kernels(lz_gelu(lz_linear(x, w, bias))) == 1, "%s: gelu(linear + bias)", name);
        CHECK(kernels(lz_add(y, lz_mul(per, lz_linear(x, typed(ctx, LZ_DIMS(64, 64), t), NULL)))) == 1,
              "%s: residual + gate * linear", name);
        lz_array *image = typed(ctx, LZ_DIMS(1, 8, 8, 16), t), *ker = typed(ctx, LZ_DIMS(16, 3, 3, 16), t),
                 *b16 = typed(ctx, LZ_DIMS(16), t);
        CHECK(kernels(lz_silu(lz_group_norm(image, 4, b16, b16, 1e-6))) == 1, "%s: silu(group_norm)", name);
        CHECK(kernels(lz_add(image, lz_conv2d(image, ker, b16, .top = 1, .bottom = 1, .left = 1, .right = 1))) == 1,
              "%s: residual + conv + bias", name);
        lz_array *z = x;
        for (int i = 0; i < 10; i++) z = lz_add(lz_tanh(z), 0.5);
        CHECK(kernels(z) == 1, "%s: ten elementwise pairs take %lld", name, (long long)kernels(z));
        z = x;
        for (int i = 0; i < 100; i++) z = lz_add(lz_tanh(z), y);
        CHECK(kernels(z) < 40, "%s: two hundred take %lld", name, (long long)kernels(z));
        lz_close(ctx);
    }
    /* Without fusion each op is a kernel. */
    lz_context *ctx = lz_open(.no_fusion = true, .threads = 1);
    lz_array *x = input(ctx, LZ_DIMS(4, 8));
    CHECK_I64(kernels(lz_add(lz_mul(lz_silu(x), x), 1.0)), 3);
    CHECK(kernels(lz_modulated_norm(x, x, x, 1e-6)) >= 3);
    /* A value that is asked for, or read twice, is made once and stays. */
    lz_close(ctx);
    ctx = open_plain();
    x = input(ctx, LZ_DIMS(64, 64));
    lz_array *m = lz_matmul(x, x), *both[] = {m, lz_add(m, 1.0)};
    lz_plan_info info;
    CHECK(lz_plan(both, 2, &info, NULL) == LZ_OK);
    CHECK(info.kernels <= 2, "%lld", (long long)info.kernels);
    lz_array *e = lz_exp(x), *sums = lz_add(lz_sum(e, LZ_DIMS(0), true), lz_sum(e, LZ_DIMS(1), true));
    CHECK(kernels(sums) <= 4, "%lld", (long long)kernels(sums));
    /* But not 1 + scale for every row, which two norms have in common. */
    lz_array *scale = input(ctx, LZ_DIMS(1, 64)), *shift = input(ctx, LZ_DIMS(1, 64));
    lz_array *norms[] = {lz_modulated_norm(x, scale, shift, 1e-6), lz_modulated_norm(lz_exp(x), scale, shift, 1e-6)};
    CHECK(lz_plan(norms, 2, &info, NULL) == LZ_OK);
    CHECK(info.kernels <= 3, "%lld", (long long)info.kernels);
    lz_close(ctx);
}

/* A result may take the place of an input that nobody reads later, but not while another view of it is still read. */
static lz_array *read_twice(lz_context *ctx, int which, int64_t n) {
    lz_array *y = lz_neg(input(ctx, LZ_DIMS(n, n))), *turned = lz_transpose(y);
    switch (which) {
    case 0: return lz_add(y, turned);
    case 1: return lz_sub(turned, y);
    case 2: return lz_sub(y, lz_slice(y, 0, 0, 1, 1));
    case 3: return lz_sub(y, lz_slice(y, 1, 0, 1, 1));
    case 4: return lz_sub(y, lz_slice(y, 0, n / 2, n / 2 + 1, 1));
    case 5:
        return lz_mul(lz_reshape(lz_permute(lz_reshape(y, LZ_DIMS(n, 4, n / 4)), LZ_DIMS(0, 2, 1)), LZ_DIMS(n, n)), y);
    default: return lz_neg(lz_transpose(lz_neg(lz_transpose(lz_add(y, turned)))));
    }
}

static void computing_in_place(void) {
    enum { N = 160 }; /* enough for several turns of two threads */
    lz_context *ref = lz_open(.device = "ref");
    for (int fusion = 0; fusion < 2; fusion++) {
        lz_context *ctx = lz_open(.threads = 2, .no_fusion = !fusion);
        for (int which = 0; which < 7; which++) {
            lz_error err = {0};
            const void *got = lz_data(read_twice(ctx, which, N), &err),
                       *want = lz_data(read_twice(ref, which, N), &err);
            CHECK(got && want && same_bits(got, want, N * N * 4), "case %d, fusion %d: %s", which, fusion, err.text);
        }
        lz_close(ctx);
    }
    lz_close(ref);
}

static void merging_and_folding(void) {
    lz_context *ctx = lz_open(.no_fusion = true, .threads = 1, .cache_limit = -1);
    lz_error err = {0};
    lz_array *x = input(ctx, LZ_DIMS(16, 16)), *y = input(ctx, LZ_DIMS(16, 16));
    /* The same said twice is done once; what differs in a number or an axis is not the same. */
    CHECK(kernels(lz_mul(lz_add(x, y), lz_add(x, y))) <= 2);
    CHECK(kernels(lz_sub(lz_exp(lz_matmul(x, y)), lz_sin(lz_matmul(x, y)))) <= 4);
    CHECK(kernels(lz_add(lz_sum(x, LZ_DIMS(1), true), lz_sum(x, LZ_DIMS(1), true))) <= 2);
    CHECK(kernels(lz_add(lz_sum(x, LZ_DIMS(1), true), lz_sum(x, LZ_DIMS(0), true))) > 2);
    CHECK(kernels(lz_mul(lz_clip(x, 0, 1), lz_clip(x, 0, 2))) > 2);
    CHECK(kernels(lz_mul(lz_randn(ctx, LZ_DIMS(4), 1), lz_randn(ctx, LZ_DIMS(4), 1))) <= 2);
    CHECK(kernels(lz_mul(lz_randn(ctx, LZ_DIMS(4), 1), lz_randn(ctx, LZ_DIMS(4), 2))) > 2);
    lz_array *twins[] = {lz_exp(x), lz_exp(x)};
    lz_plan_info info;
    CHECK_OK(lz_plan(twins, 2, &info, &err), &err);
    CHECK_I64(info.kernels, 1);
    CHECK_OK(lz_eval_all(twins, 2, &err), &err);
    CHECK(same_bits(lz_data(twins[0], &err), lz_data(twins[1], &err), 1024));
    lz_array *same[] = {twins[0], twins[0], twins[0]};
    CHECK_OK(lz_eval_all(same, 3, &err), &err);

    /* Nothing that is not asked for is done. */
    lz_array *out_of_range = lz_take(x, lz_full(ctx, LZ_DIMS(1), LZ_I64, 99), 0);
    lz_array *used = lz_exp(y);
    (void)lz_add(out_of_range, used);
    CHECK_OK(lz_eval(used, &err), &err);
    CHECK_STATUS(lz_eval(out_of_range, &err), LZ_BAD_INDEX, &err);

    /* Constants are computed while planning, no-ops vanish. */
    lz_array *k = lz_add(lz_mul(lz_full(ctx, LZ_DIMS(16), LZ_F32, 2), 3.0), lz_full(ctx, LZ_NONE, LZ_F32, 1));
    CHECK_I64(kernels(lz_mul(x, k)), 1);
    CHECK_I64(kernels(lz_mul(x, lz_exp(lz_sqrt(lz_full(ctx, LZ_DIMS(16), LZ_F32, 4))))), 1);
    CHECK(lz_item(lz_slice(lz_reshape(lz_mul(lz_sub(x, x), k), LZ_DIMS(-1)), 0, 0, 1, 1), &err) == 0.0);
    float seven = ((const float *)lz_data(lz_add(lz_sub(x, x), k), &err))[0];
    CHECK(seven == 7.0f, "%g", (double)seven);
    CHECK_I64(kernels(lz_mul(x, 1.0)), 0);
    CHECK_I64(kernels(lz_div(x, 1.0)), 0);
    CHECK_I64(kernels(lz_cast(x, LZ_F32)), 0);
    CHECK_I64(kernels(lz_permute(lz_permute(x, LZ_DIMS(1, 0)), LZ_DIMS(1, 0))), 0);
    CHECK_I64(kernels(lz_reshape(lz_reshape(x, LZ_DIMS(256)), LZ_DIMS(4, 64))), 0);
    CHECK_I64(kernels(lz_broadcast(x, LZ_DIMS(3, 16, 16))), 0);
    CHECK_I64(kernels(lz_contiguous(x)), 0);
    CHECK_I64(kernels(lz_add(lz_contiguous(lz_transpose(x)), 1.0)) <= 2, 1);
    /* But what only looks like one stays: -0 + 0 is 0, and NaN survives a product with 0. */
    lz_array *special = lz_from(ctx, LZ_DIMS(3), LZ_F32, (float[]){-0.0f, NAN, INFINITY});
    const float *p = lz_data(lz_add(special, 0.0), &err);
    CHECK(p && !signbit(p[0]) && p[1] != p[1]);
    p = lz_data(lz_sub(special, 0.0), &err);
    CHECK(p && signbit(p[0]));
    p = lz_data(lz_mul(special, 0.0), &err);
    CHECK(p && p[1] != p[1] && p[2] != p[2] && signbit(p[0]));
    p = lz_data(lz_sub(special, special), &err);
    CHECK(p && p[2] != p[2]);
    /* A cast there and back loses bits and must be kept. */
    lz_array *third = lz_from(ctx, LZ_DIMS(1), LZ_F32, (float[]){1.0f / 3});
    CHECK(lz_item(lz_cast(lz_cast(third, LZ_BF16), LZ_F32), &err) == 0.333984375);
    CHECK(lz_item(lz_cast(lz_cast(lz_mul(third, 10.0), LZ_I32), LZ_F32), &err) == 3.0);
    lz_close(ctx);
    ctx = open_plain(); /* fused too */
    third = lz_from(ctx, LZ_DIMS(1), LZ_F32, (float[]){1.0f / 3});
    CHECK(lz_item(lz_add(lz_cast(lz_cast(lz_mul(third, 1.0), LZ_BF16), LZ_F32), 0.0), &err) == 0.333984375);
    CHECK(lz_item(lz_mul(lz_cast(lz_cast(lz_mul(third, 10.0), LZ_I32), LZ_F32), 2.0), &err) == 6.0);
    CHECK(lz_item(lz_add(lz_cast(lz_cast(lz_mul(third, 1000.0), LZ_U8), LZ_F32), 1.0), &err) == 256.0);
    CHECK(lz_item(lz_add(lz_cast(lz_cast(third, LZ_BOOL), LZ_F32), 1.0), &err) == 2.0);
    lz_close(ctx);
}

/* ---- compiling --------------------------------------------------------------------------------------------------- */

typedef struct counter {
    int described;
    lz_array *constant;
} counter;

static void step_function(lz_context *ctx, lz_array *const *in, lz_array **out,
                          void *user) { /* x + t (tanh(x w) - x) */
    counter *c = user;
    c->described++;
    lz_scope *s = lz_scope_begin(ctx, "step");
    lz_array *w = lz_exp(lz_mul(lz_sub(lz_arange(ctx, 0, 16, 1, LZ_F32), 8.0), 0.125)); /* touches no input */
    lz_array *v = lz_sub(lz_tanh(lz_mul(in[0], w)), in[0]);
    if (c->constant) v = lz_add(v, c->constant);
    out[0] = lz_scope_return(s, lz_add(in[0], lz_mul(in[1], v)));
    out[1] = lz_sum(v, LZ_NONE, false);
}

static void compiled_loop(void) {
    lz_context *ctx = open_plain(), *plain = open_plain();
    lz_error err = {0};
    counter c = {0}, d = {0};
    lz_compiled *f = lz_compile(ctx, step_function, &c, 2, 2, 4, &err);
    if (!CHECK(f != NULL, "%s", err.text)) return;
    CHECK_I64(c.described, 0);
    lz_array *x = lz_retain(input(ctx, LZ_DIMS(8, 16))), *y = lz_retain(input(plain, LZ_DIMS(8, 16)));
    for (int step = 0; step < 12; step++) {
        float t = 0.1f * (float)step; /* varies, and is an array: no new program */
        lz_scope *s = lz_scope_begin(ctx, "loop"), *r = lz_scope_begin(plain, "loop");
        lz_array *in[] = {x, lz_from(ctx, LZ_NONE, LZ_F32, &t)}, *out[2] = {0};
        lz_array *in2[] = {y, lz_from(plain, LZ_NONE, LZ_F32, &t)}, *out2[2] = {0};
        CHECK_OK(lz_run(f, in, out, &err), &err);
        step_function(plain, in2, out2, &d);
        CHECK_OK(lz_eval_all(out2, 2, &err), &err);
        const void *p = lz_data(out[0], &err), *q = lz_data(out2[0], &err);
        CHECK(p && q && same_bits(p, q, 8 * 16 * 4), "step %d: compiled = eager", step);
        CHECK(lz_item(out[1], &err) == lz_item(out2[1], &err));
        lz_retain(out[0]), lz_retain(out2[0]);
        lz_release(x), lz_release(y);
        x = out[0], y = out2[0];
        lz_scope_end(s), lz_scope_end(r);
    }
    CHECK_I64(c.described, 1);
    lz_compile_stats stats = lz_compiled_stats(f);
    CHECK_I64(stats.calls, 12);
    CHECK_I64(stats.compiles, 1);
    CHECK_I64(stats.evictions, 0);
    CHECK_I64(stats.cached, 1);
    lz_release(x), lz_release(y);
    lz_compiled_free(f);
    lz_close(ctx), lz_close(plain);
}

static void replay_allocates_nothing(void) {
    for (int cache = -1; cache < 1; cache++) { /* without a cache of freed memory, and with the usual one */
        lz_context *ctx = lz_open(.threads = 2, .cache_limit = cache);
        lz_error err = {0};
        counter c = {0};
        lz_compiled *f = lz_compile(ctx, step_function, &c, 2, 2, 4, &err);
        lz_array *in[] = {lz_retain(input(ctx, LZ_DIMS(8, 16))), lz_retain(lz_full(ctx, LZ_NONE, LZ_F32, 0.5))};
        CHECK_OK(lz_eval(in[1], &err), &err);
        lz_memory before = {0};
        for (int i = 0; i < 20; i++) {
            lz_scope *s = lz_scope_begin(ctx, "replay");
            lz_memory start = lz_memory_info(ctx); /* opening a scope is no part of the replay */
            lz_array *out[2];
            CHECK_OK(lz_run(f, in, out, &err), &err);
            lz_memory end = lz_memory_info(ctx);
            if (i >= 2) {
                CHECK_I64(end.allocations - start.allocations, 0);
                CHECK_I64(end.nodes - start.nodes, 0);
                CHECK_I64(end.active, before.active);
            }
            before = end;
            CHECK(lz_data(out[0], &err) != NULL);
            lz_scope_end(s);
        }
        CHECK_I64(c.described, 1);
        lz_release(in[0]), lz_release(in[1]);
        lz_compiled_free(f);
        lz_clear_cache(ctx);
        lz_close(ctx);
    }
}

/* Outputs of earlier calls stay what they were, while they are held. */
static void replay_keeps_results(void) {
    lz_context *ctx = open_plain();
    lz_error err = {0};
    counter c = {0};
    lz_compiled *f = lz_compile(ctx, step_function, &c, 2, 2, 4, &err);
    lz_array *kept[6], *views[6];
    for (int i = 0; i < 6; i++) {
        lz_scope *s = lz_scope_begin(ctx, "call");
        lz_array *in[] = {lz_full(ctx, LZ_DIMS(1, 16), LZ_F32, i), lz_full(ctx, LZ_NONE, LZ_F32, 0)}, *out[2];
        CHECK_OK(lz_run(f, in, out, &err), &err);
        kept[i] = lz_retain(out[0]);
        lz_scope_end(s);
    }
    for (int i = 0; i < 6; i++) { /* a view holds the memory of an output whose handle is gone */
        lz_scope *s = lz_scope_begin(ctx, "view");
        lz_array *in[] = {lz_full(ctx, LZ_DIMS(1, 16), LZ_F32, 10 + i), lz_full(ctx, LZ_NONE, LZ_F32, 0)}, *out[2];
        CHECK_OK(lz_run(f, in, out, &err), &err);
        views[i] = lz_retain(lz_slice(out[0], 1, 4, 9, 2));
        CHECK_OK(lz_eval(views[i], &err), &err);
        lz_scope_end(s);
    }
    for (int i = 0; i < 6; i++) {
        CHECK(((const float *)lz_data(views[i], &err))[1] == (float)(10 + i), "view %d", i);
        lz_release(views[i]);
    }
    for (int i = 0; i < 6; i++) CHECK(((const float *)lz_data(kept[i], &err))[3] == (float)i, "result %d", i);
    lz_compiled_free(f);
    for (int i = 0; i < 6; i++) {
        CHECK(((const float *)lz_data(kept[i], &err))[3] == (float)i, "result %d after the function is gone", i);
        lz_release(kept[i]);
    }
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

static void compile_cache(void) {
    lz_context *ctx = open_plain();
    lz_error err = {0};
    counter c = {0};
    lz_compiled *f = lz_compile(ctx, step_function, &c, 2, 2, 3, &err);
    lz_array *t = lz_full(ctx, LZ_NONE, LZ_F32, 0.5), *out[2];
    for (int round = 0; round < 3; round++)
        for (int n = 1; n <= 3; n++) {
            lz_array *in[] = {input(ctx, LZ_DIMS(n, 16)), t};
            CHECK_OK(lz_run(f, in, out, &err), &err);
            CHECK(same_dims(lz_shape(out[0]), LZ_DIMS(n, 16)));
        }
    lz_compile_stats s = lz_compiled_stats(f);
    CHECK_I64(s.calls, 9);
    CHECK_I64(s.compiles, 3);
    CHECK_I64(s.evictions, 0);
    CHECK_I64(s.cached, 3);
    for (int n = 4; n <= 10; n++) {
        lz_array *in[] = {input(ctx, LZ_DIMS(n, 16)), t};
        CHECK_OK(lz_run(f, in, out, &err), &err);
    }
    s = lz_compiled_stats(f);
    CHECK_I64(s.compiles, 10);
    CHECK_I64(s.evictions, 7);
    CHECK_I64(s.cached, 3);
    CHECK_I64(c.described, 10);
    /* The last used stays longest. */
    lz_array *ten[] = {input(ctx, LZ_DIMS(10, 16)), t};
    CHECK_OK(lz_run(f, ten, out, &err), &err);
    CHECK_I64(lz_compiled_stats(f).compiles, 10);
    /* Another type or other strides are another signature; the same ones are not. */
    lz_array *half[] = {lz_cast(input(ctx, LZ_DIMS(10, 16)), LZ_BF16), t};
    CHECK_OK(lz_run(f, half, out, &err), &err);
    CHECK_I64(lz_compiled_stats(f).compiles, 11);
    lz_array *strided[] = {lz_transpose(input(ctx, LZ_DIMS(16, 10))), t};
    CHECK_OK(lz_run(f, strided, out, &err), &err);
    lz_array *eager[2];
    step_function(ctx, strided, eager, &c);
    CHECK(lz_item(lz_max(lz_abs(lz_sub(eager[0], out[0])), LZ_NONE, false), &err) == 0.0);
    /* Lazy inputs are computed first. */
    lz_array *lazy[] = {lz_add(ten[0], 1.0), lz_mul(t, 2.0)}, *want[2];
    CHECK_OK(lz_run(f, lazy, out, &err), &err);
    step_function(ctx, lazy, want, &c);
    CHECK(lz_item(lz_max(lz_abs(lz_sub(want[0], out[0])), LZ_NONE, false), &err) == 0.0);

    /* Wrong calls. */
    lz_array *wrong[] = {input(ctx, LZ_DIMS(3, 5)), t};
    CHECK_STATUS(lz_run(f, wrong, out, &err), LZ_BAD_SHAPE, &err);
    lz_array *null[] = {NULL, t};
    CHECK_STATUS(lz_run(f, null, out, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_OK(lz_run(f, ten, out, &err), &err); /* going on */
    lz_compiled_free(f);

    /* Arrays from outside that stay the same. */
    counter k = {.constant = lz_retain(lz_full(ctx, LZ_DIMS(16), LZ_F32, 100))};
    f = lz_compile(ctx, step_function, &k, 2, 2, 3, &err);
    CHECK_OK(lz_run(f, ten, out, &err), &err);
    CHECK(((const float *)lz_data(out[0], &err))[0] > 10);
    lz_compiled_free(f);
    lz_release(k.constant);
    lz_close(ctx);
}

static void pass_through(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)user;
    out[0] = in[0];                               /* an input as it is */
    out[1] = lz_transpose(in[0]);                 /* a view of one */
    out[2] = lz_full(ctx, LZ_DIMS(2), LZ_F32, 3); /* nothing to do with it */
    out[3] = lz_add(in[0], 1.0);
    out[4] = out[3]; /* the same again */
}

static void odd_functions(void) {
    lz_context *ctx = open_plain();
    lz_error err = {0};
    lz_compiled *f = lz_compile(ctx, pass_through, NULL, 1, 5, 2, &err);
    for (int i = 0; i < 3; i++) {
        lz_scope *s = lz_scope_begin(ctx, "call");
        float data[6] = {(float)i, 1, 2, 3, 4, 5};
        lz_array *in[] = {lz_from(ctx, LZ_DIMS(2, 3), LZ_F32, data)}, *out[5] = {0};
        if (CHECK_OK(lz_run(f, in, out, &err), &err)) {
            CHECK(((const float *)lz_data(out[0], &err))[0] == (float)i);
            const float *p = lz_data(out[1], &err);
            CHECK(p && p[0] == (float)i && p[1] == 3);
            CHECK(lz_item(lz_sum(out[2], LZ_NONE, false), &err) == 6.0);
            CHECK(((const float *)lz_data(out[3], &err))[0] == (float)i + 1);
            CHECK(((const float *)lz_data(out[4], &err))[5] == 6.0f);
        }
        lz_scope_end(s);
    }
    lz_compiled_free(f);
    CHECK(lz_compile(ctx, pass_through, NULL, -1, 5, 2, &err) == NULL);
    CHECK(lz_compile(ctx, pass_through, NULL, 1, -1, 2, &err) == NULL);
    lz_close(ctx);
}

/* What the function describes without its inputs is computed once: randn over 4 million numbers 50 times would show. */
static void heavy_constant(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)user;
    out[0] = lz_mul(in[0], lz_sum(lz_randn(ctx, LZ_DIMS(1 << 22), 3), LZ_NONE, false));
}

static void constants_once(void) {
    lz_context *ctx = open_plain();
    lz_error err = {0};
    lz_compiled *f = lz_compile(ctx, heavy_constant, NULL, 1, 1, 2, &err);
    lz_array *in[] = {input(ctx, LZ_DIMS(4))}, *out[1];
    double start = test_seconds();
    CHECK_OK(lz_run(f, in, out, &err), &err);
    double first = test_seconds() - start;
    lz_reset_peak(ctx);
    int64_t held = lz_memory_info(ctx).active;
    start = test_seconds();
    for (int i = 0; i < 50; i++) CHECK_OK(lz_run(f, in, out, &err), &err);
    CHECK(test_seconds() - start < 10 * first + 0.2, "50 replays took %g s, the first call %g s",
          test_seconds() - start, first);
    CHECK(lz_memory_info(ctx).peak - held < 1 << 20, "replays need no room for it");
    lz_compiled_free(f);
    lz_close(ctx);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static void streams(void) {
    lz_context *ctx = open_plain();
    lz_error err = {0};
    lz_stream *s = lz_stream_new(ctx, &err), *r = lz_stream_new(ctx, &err);
    if (!CHECK(s && r, "%s", err.text)) return;
    lz_array *x = input(ctx, LZ_DIMS(128, 128));
    /* Used at once, on the same stream, on another, and without one. */
    lz_array *a = lz_matmul(x, x);
    CHECK_OK(lz_async_eval(s, &a, 1, &err), &err);
    lz_array *b = lz_matmul(a, x);
    CHECK_OK(lz_async_eval(s, &b, 1, &err), &err);
    lz_array *c = lz_matmul(a, b);
    CHECK_OK(lz_async_eval(r, &c, 1, &err), &err);
    lz_array *d = lz_sum(lz_add(c, b), LZ_NONE, false);
    double got = lz_item(d, &err);
    CHECK_OK(lz_wait(c, &err), &err);
    CHECK_OK(lz_wait(c, &err), &err); /* twice is fine */
    lz_context *plain = open_plain();
    lz_array *y = input(plain, LZ_DIMS(128, 128)), *a2 = lz_matmul(y, y), *b2 = lz_matmul(a2, y),
             *c2 = lz_matmul(a2, b2);
    CHECK_OK(lz_eval_all((lz_array *[]){a2, b2, c2}, 3, &err), &err);
    CHECK(same_bits(lz_data(c, &err), lz_data(c2, &err), 128 * 128 * 4), "asynchronous = synchronous");
    CHECK(got == lz_item(lz_sum(lz_add(c2, b2), LZ_NONE, false), &err));
    lz_close(plain);

    /* A long alternating chain over two streams. */
    lz_array *z = lz_full(ctx, LZ_DIMS(64), LZ_F32, 0);
    for (int i = 0; i < 200; i++) {
        lz_scope *scope = lz_scope_begin(ctx, "turn");
        z = lz_scope_return(scope, lz_add(z, 1.0));
        CHECK_OK(lz_async_eval(i % 2 ? s : r, &z, 1, &err), &err);
    }
    CHECK(((const float *)lz_data(z, &err))[63] == 200.0f);

    /* Several at once; nothing at all; what is there already; arrays let go before they are done. */
    lz_array *two[] = {lz_exp(x), lz_sin(x)};
    CHECK_OK(lz_async_eval(s, two, 2, &err), &err);
    CHECK_OK(lz_async_eval(s, two, 0, &err), &err);
    CHECK_OK(lz_async_eval(r, two, 2, &err), &err);
    CHECK_OK(lz_async_eval(s, &x, 1, &err), &err);
    lz_scope *scope = lz_scope_begin(ctx, "gone");
    for (int i = 0; i < 20; i++) {
        lz_array *m = lz_matmul(lz_add(x, (double)i), x);
        CHECK_OK(lz_async_eval(s, &m, 1, &err), &err);
    }
    lz_scope_end(scope);
    lz_stream_wait(s);
    CHECK_OK(lz_wait(two[1], &err), &err);
    CHECK_OK(lz_wait(x, &err), &err); /* never asynchronous */

    /* Errors come out where somebody waits. */
    lz_array *index = lz_from(ctx, LZ_DIMS(2), LZ_I64, (int64_t[]){3, 128});
    lz_array *bad = lz_take(x, index, 0);
    CHECK_OK(lz_async_eval(s, &bad, 1, &err), &err);
    lz_array *on_bad = lz_add(bad, 1.0);
    lz_async_eval(s, &on_bad, 1, &err);
    err = (lz_error){0};
    CHECK_STATUS(lz_wait(bad, &err), LZ_BAD_INDEX, &err);
    CHECK_TEXT(err.text, "128");
    CHECK_TEXT(err.text, "take");
    CHECK_STATUS(lz_wait(on_bad, &err), LZ_BAD_INDEX, &err);
    err = (lz_error){0};
    CHECK(lz_data(on_bad, &err) == NULL && err.status == LZ_BAD_INDEX);
    CHECK_STATUS(lz_eval(lz_mul(bad, 2.0), &err), LZ_BAD_INDEX, &err);
    lz_array *fine = lz_add(x, 1.0);
    CHECK_OK(lz_async_eval(s, &fine, 1, &err), &err); /* the stream goes on */
    CHECK_OK(lz_wait(fine, &err), &err);
    lz_array *poisoned = lz_add(x, index);
    CHECK_STATUS(lz_async_eval(s, &poisoned, 1, &err), LZ_BAD_SHAPE, &err);
    lz_array *late = lz_matmul(x, x);
    CHECK_OK(lz_async_eval(r, &late, 1, &err), &err);
    lz_stream_free(r); /* waits first */
    lz_stream_free(s);
    CHECK(lz_data(late, &err) != NULL);
    lz_close(ctx);
}

/* Index errors, in order and of both kinds. */
static void bad_indices(void) {
    static const char *const devices[] = {"cpu", "ref"};
    for (int i = 0; i < 2; i++) {
        lz_context *ctx = lz_open(.device = devices[i]);
        lz_error err = {0};
        lz_array *x = input(ctx, LZ_DIMS(5, 4));
        static const int64_t wrong[] = {5, 99, -1, -6, INT64_MAX, INT64_MIN};
        for (int k = 0; k < 6; k++) {
            lz_array *index = lz_from(ctx, LZ_DIMS(3), LZ_I64, (int64_t[]){0, wrong[k], 4});
            CHECK_STATUS(lz_eval(lz_take(x, index, 0), &err), LZ_BAD_INDEX, &err);
            lz_array *like = lz_from(ctx, LZ_DIMS(1, 4), LZ_I64, (int64_t[]){0, wrong[k], 0, 0});
            CHECK_STATUS(lz_eval(lz_gather(x, like, 0), &err), LZ_BAD_INDEX, &err);
        }
        CHECK_OK(lz_eval(lz_take(x, lz_full(ctx, LZ_DIMS(2), LZ_U8, 4), 0), &err), &err);
        CHECK_STATUS(
            lz_eval(lz_take(lz_full(ctx, LZ_DIMS(0, 4), LZ_F32, 1), lz_full(ctx, LZ_DIMS(1), LZ_I64, 0), 0), &err),
            LZ_BAD_INDEX, &err);
        CHECK_OK(lz_eval(lz_take(lz_full(ctx, LZ_DIMS(0, 4), LZ_F32, 1), lz_full(ctx, LZ_DIMS(0), LZ_I64, 0), 0), &err),
                 &err);
        lz_close(ctx);
    }
}

/* ---- watching: what the pipeline shows progress with, and stops -------------------------------------------------- */

typedef struct watcher {
    int asked, stop_at;
    double last;
    bool backwards;
} watcher;

static bool go_on(void *user, double done) {
    watcher *w = user;
    w->backwards |= done < w->last || done > 1.0;
    w->last = done;
    return ++w->asked != w->stop_at;
}

static void watching(void) {
    lz_context *ctx = open_plain();
    lz_error err = {0};
    lz_array *x = input(ctx, LZ_DIMS(32, 32)), *y = x;
    for (int i = 0; i < 10; i++) y = lz_tanh(lz_matmul(y, x));
    int64_t before = lz_memory_info(ctx).active;
    watcher w = {.stop_at = 4};
    lz_watch watch = {.go_on = go_on, .user = &w};
    CHECK_STATUS(lz_eval_watched(&y, 1, &watch, &err), LZ_CANCELLED, &err);
    CHECK_I64(w.asked, 4);
    CHECK_I64(lz_memory_info(ctx).active, before); /* nothing stays of a run that was stopped */
    w = (watcher){0};
    CHECK_OK(lz_eval_watched(&y, 1, &watch, &err), &err); /* and it can be run again */
    CHECK(w.asked >= 10 && !w.backwards && w.last > 0.5, "asked %d times, last at %g", w.asked, w.last);

    counter c = {0};
    lz_compiled *f = lz_compile(ctx, step_function, &c, 2, 2, 2, &err);
    lz_array *in[] = {input(ctx, LZ_DIMS(8, 16)), lz_full(ctx, LZ_NONE, LZ_F32, 1)}, *out[2];
    for (int turn = 0; turn < 2; turn++) {
        w = (watcher){.stop_at = 1};
        CHECK_STATUS(lz_run_watched(f, in, out, &watch, &err), LZ_CANCELLED, &err);
        CHECK_OK(lz_run(f, in, out, &err), &err);
        w = (watcher){0};
        CHECK_OK(lz_run_watched(f, in, out, &watch, &err), &err);
        CHECK(w.asked > 0 && !w.backwards);
    }
    lz_compiled_free(f);
    lz_close(ctx);
}

/* ---- looking inside ---------------------------------------------------------------------------------------------- */

static void printing(void) {
    lz_context *ctx = open_plain();
    lz_error err = {0};
    lz_array *x = input(ctx, LZ_DIMS(6, 8)), *w = input(ctx, LZ_DIMS(8, 5));
    lz_scope *s = lz_scope_begin(ctx, "head"), *inner = lz_scope_begin(ctx, "logits");
    lz_array *m = lz_matmul(x, w);
    lz_scope_keep(inner, m);
    lz_scope_end(inner);
    lz_array *y = lz_softmax(lz_tanh(lz_add(m, 1.0)), -1);
    static const lz_graph_format formats[] = {LZ_GRAPH_TEXT, LZ_GRAPH_DOT, LZ_GRAPH_PROGRAM};
    for (int i = 0; i < 3; i++) {
        char *text = lz_graph_text(&y, 1, formats[i], &err);
        if (!CHECK(text != NULL, "%s", err.text)) continue;
        CHECK_TEXT(text, "matmul");
        CHECK_TEXT(text, "softmax");
        if (formats[i] != LZ_GRAPH_PROGRAM) {
            CHECK_TEXT(text, "[6, 5]");
            CHECK_TEXT(text, "f32");
            CHECK_TEXT(text, "tanh");
            CHECK_TEXT(text, "add");
            CHECK_TEXT(text, "leaf");
        }
        if (formats[i] == LZ_GRAPH_TEXT) CHECK_TEXT(text, "test_graph.c:"); /* each op with its place */
        if (formats[i] == LZ_GRAPH_DOT) {
            CHECK_TEXT(text, "digraph");
            CHECK_TEXT(text, "->");
            CHECK_TEXT(text, "}");
        }
        lz_free_text(ctx, text);
    }
    char *text = lz_graph_text((lz_array *[]){lz_exp(x), lz_exp(x), x}, 3, LZ_GRAPH_PROGRAM,
                               &err); /* outputs, twins, a leaf */
    CHECK(text != NULL, "%s", err.text);
    lz_free_text(ctx, text);
    lz_free_text(ctx, NULL);
    CHECK(lz_graph_text(&y, 1, (lz_graph_format)9, &err) == NULL);
    lz_scope_end(s);
    lz_close(ctx);
}

static void profiling(void) {
    lz_context *ctx = open_plain();
    lz_error err = {0};
    lz_array *x = input(ctx, LZ_DIMS(64, 64));
    CHECK_OK(lz_eval(lz_sin(x), &err), &err); /* before: not in the table */
    lz_profile_start(ctx);
    lz_scope *s = lz_scope_begin(ctx, "measured \"block\"");
    for (int i = 0; i < 3; i++) CHECK_OK(lz_eval(lz_softmax(lz_matmul(lz_add(x, (double)i), x), -1), &err), &err);
    lz_scope_end(s);
    lz_profile_stop(ctx);
    CHECK_OK(lz_eval(lz_argmax(x, 0, false), &err), &err); /* after */
    char *table = lz_profile_table(ctx, &err);
    CHECK_TEXT(table, "matmul");
    CHECK_TEXT(table, "softmax");
    CHECK(table && !strstr(table, "argmax"));
    lz_free_text(ctx, table);

    const char *folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    char path[600];
    snprintf(path, sizeof path, "%s/lazuli-trace-%d.json", folder, (int)getpid());
    CHECK_OK(lz_profile_trace(ctx, path, &err), &err);
    json_error_t where;
    json_t *trace = json_load_file(path, 0, &where);
    if (CHECK(trace != NULL, "%s at line %d", where.text, where.line)) {
        json_t *events = json_is_array(trace) ? trace : json_object_get(trace, "traceEvents");
        size_t i, seen = 0;
        json_t *e;
        CHECK(json_is_array(events));
        json_array_foreach(events, i, e) {
            const char *phase = json_string_value(json_object_get(e, "ph"));
            if (!phase || strcmp(phase, "X") != 0) continue;
            CHECK(json_is_string(json_object_get(e, "name")));
            CHECK(json_is_number(json_object_get(e, "ts")) && json_number_value(json_object_get(e, "dur")) >= 0);
            const char *name = json_string_value(json_object_get(e, "name"));
            seen += name && strstr(name, "matmul") != NULL;
        }
        CHECK_I64(seen, 3);
        json_decref(trace);
    }
    unlink(path);
    CHECK_STATUS(lz_profile_trace(ctx, "/nonexistent-folder/trace.json", &err), LZ_IO, &err);
    lz_profile_start(ctx); /* again: a new measurement */
    lz_profile_stop(ctx);
    table = lz_profile_table(ctx, &err);
    CHECK(table && !strstr(table, "softmax"), "a new start forgets the old: %s", table ? table : err.text);
    lz_free_text(ctx, table);
    lz_close(ctx);
}

/* ---- depth ------------------------------------------------------------------------------------------------------- */

enum { DEEP = 100000 };

static lz_array *deep(lz_array *x, int n) {
    lz_array *y = x;
    for (int i = 0; i < n; i++) y = lz_add(y, x);
    return y;
}

/* In a thread with little stack: whatever walks a graph must not recurse. */
static void *deep_work(void *unused) {
    (void)unused;
    lz_error err = {0};
    lz_context *ctx = lz_open(.threads = 1);
    lz_array *one = lz_full(ctx, LZ_DIMS(2), LZ_F32, 1);
    CHECK_OK(lz_eval(one, &err), &err);
    lz_scope *s = lz_scope_begin(ctx, "never evaluated");
    lz_array *y = lz_retain(deep(one, DEEP));
    lz_scope_end(s);
    lz_release(y); /* the whole chain goes at once */

    s = lz_scope_begin(ctx, "evaluated");
    y = deep(one, DEEP);
    CHECK_OK(lz_eval(y, &err), &err);
    CHECK(((const float *)lz_data(y, &err))[0] == (float)(DEEP + 1));
    lz_scope_end(s);

    s = lz_scope_begin(ctx, "views");
    y = one;
    for (int i = 0; i < DEEP / 4; i++) y = lz_reshape(y, i % 2 ? LZ_DIMS(2) : LZ_DIMS(1, 2));
    CHECK_OK(lz_eval(y, &err), &err);
    lz_scope_end(s);

    s = lz_scope_begin(ctx, "poisoned");
    y = lz_add(one, lz_full(ctx, LZ_DIMS(3), LZ_F32, 1));
    for (int i = 0; i < DEEP / 4; i++) y = lz_add(y, one);
    CHECK_STATUS(lz_eval(y, &err), LZ_BAD_SHAPE, &err);
    lz_scope_end(s);

    s = lz_scope_begin(ctx, "diamonds"); /* 2^1000 paths, 1000 nodes */
    y = one;
    for (int i = 0; i < 1000; i++) y = lz_mul(lz_add(y, y), 0.5);
    CHECK_OK(lz_eval(y, &err), &err);
    CHECK(((const float *)lz_data(y, &err))[1] == 1.0f);
    lz_plan_info info;
    y = deep(one, 5000);
    CHECK_OK(lz_plan(&y, 1, &info, &err), &err);
    char *text = lz_graph_text(&y, 1, LZ_GRAPH_TEXT, &err);
    CHECK(text && strlen(text) > 5000);
    lz_free_text(ctx, text);
    lz_scope_end(s);

    s = lz_scope_begin(ctx, "wide");
    lz_array *many[2000];
    for (int i = 0; i < 2000; i++) many[i] = lz_full(ctx, LZ_DIMS(1), LZ_F32, i);
    CHECK(lz_item(lz_sum(lz_concat(many, 2000, 0), LZ_NONE, false), &err) == 1999000.0);
    CHECK_OK(lz_eval_all(many, 2000, &err), &err);
    lz_scope_end(s);
    CHECK_I64(lz_memory_info(ctx).active, 64); /* the one */
    lz_close(ctx);
    return NULL;
}

static void deep_graphs(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 1 << 20);
    pthread_t thread;
    CHECK(pthread_create(&thread, &attributes, deep_work, NULL) == 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}

/* Found by reading: a part of a concat must not take over an operand of the same size as the whole. */
static void concat_parts_keep_to_themselves(void) {
    double sums[2];
    for (int ref = 0; ref < 2; ref++) {
        lz_context *ctx = lz_open(.device = ref ? "ref" : "cpu");
        lz_error err = {0};
        lz_array *a = lz_randn(ctx, LZ_DIMS(4, 4), 1), *b = lz_randn(ctx, LZ_DIMS(4, 4), 2), *x = lz_matmul(a, b);
        lz_array *parts[2] = {lz_exp(lz_randn(ctx, LZ_DIMS(1, 4), 3)), lz_softmax(lz_slice(x, 0, 0, 3, 1), 1)};
        lz_array *y = lz_square(lz_matmul(lz_concat(parts, 2, 0), b));
        sums[ref] = lz_item(lz_sum(y, LZ_NONE, false), &err);
        CHECK(err.status == LZ_OK, "%s", err.text);
        lz_close(ctx);
    }
    CHECK(fabs(sums[0] - sums[1]) < 1e-4 * fabs(sums[1]), "%g, not %g", sums[0], sums[1]);
}

/* Heads are put together where a concat wants them: attention, and what lies beside it, write there. */
static void heads_are_put_together_in_place(void) {
    double sums[2];
    for (int ref = 0; ref < 2; ref++) {
        lz_context *ctx = lz_open(.device = ref ? "ref" : "cpu");
        lz_error err = {0};
        lz_array *q = lz_randn(ctx, LZ_DIMS(1, 3, 5, 8), 1), *k = lz_randn(ctx, LZ_DIMS(1, 3, 7, 8), 2);
        lz_array *heads = lz_permute(lz_sdpa(q, k, lz_randn(ctx, LZ_DIMS(1, 3, 7, 8), 3)), LZ_DIMS(0, 2, 1, 3));
        lz_array *other = lz_randn(ctx, LZ_DIMS(5, 6), 4);
        CHECK_OK(lz_eval_all((lz_array *[]){q, k, other}, 3, &err), &err);
        lz_array *parts[2] = {lz_reshape(heads, LZ_DIMS(5, 24)), lz_exp(other)}, *whole = lz_concat(parts, 2, 1);
        lz_plan_info info;
        CHECK_OK(lz_plan(&whole, 1, &info, &err), &err);
        /* Random numbers, attention, exp. */
        CHECK(ref || info.kernels <= 3, "%lld", (long long)info.kernels);
        const float *x = lz_data(whole, &err);
        sums[ref] = 0;
        for (int i = 0; x && i < 150; i++) sums[ref] += (double)x[i] * (i + 1);
        lz_close(ctx);
    }
    CHECK(fabs(sums[0] - sums[1]) < 1e-4 * fabs(sums[1]), "%g, not %g", sums[0], sums[1]);
}

/* Queries or keys of attention: heads of a product, normed and turned. */
static lz_array *turned(lz_context *ctx, lz_array *x, uint64_t seed) {
    enum { ROWS = 64, HEADS = 6, SIZE = 32, WIDTH = HEADS * SIZE };
    lz_array *y = lz_linear(x, lz_randn(ctx, LZ_DIMS(WIDTH, 16), seed), NULL);
    lz_array *angle = lz_randn(ctx, LZ_DIMS(ROWS, SIZE / 2), seed + 1), *norm = lz_randn(ctx, LZ_DIMS(SIZE), seed + 2);
    y = lz_rms_norm(lz_reshape(y, LZ_DIMS(1, ROWS, HEADS, SIZE)), norm, 1e-6);
    return lz_rope(lz_permute(y, LZ_DIMS(0, 2, 1, 3)), lz_cos(angle), lz_sin(angle));
}

/* Attention reads heads wherever they are, so they are turned where the product has written them. */
static void heads_are_turned_in_place(void) {
    double sums[2];
    for (int ref = 0; ref < 2; ref++) {
        lz_context *ctx = lz_open(.device = ref ? "ref" : "cpu");
        lz_error err = {0};
        lz_array *x = lz_randn(ctx, LZ_DIMS(64, 16), 1), *v = lz_randn(ctx, LZ_DIMS(1, 6, 64, 32), 2);
        lz_array *a = lz_sdpa(turned(ctx, x, 10), turned(ctx, x, 20), v);
        char *text = lz_graph_text(&a, 1, LZ_GRAPH_PROGRAM, &err);
        int ropes = 0;
        for (const char *at = text; !ref && at && (at = strstr(at, "cpu.rope")); at++, ropes++) {
            char to[64] = "", from[64] = " ";
            int read = sscanf(at, "cpu.rope f32 [1, 6, 64, 32] -> %63s of %63[^,]", to, from);
            CHECK(read == 2 && !strcmp(to, from), "%.100s", at);
        }
        CHECK_I64(ropes, ref ? 0 : 2);
        lz_free_text(ctx, text);
        const float *found = lz_data(a, &err);
        sums[ref] = 0;
        for (int i = 0; found && i < 6 * 64 * 32; i++) sums[ref] += (double)found[i] * (i + 1);
        lz_close(ctx);
    }
    CHECK(fabs(sums[0] - sums[1]) < 1e-4 * fabs(sums[1]), "%g, not %g", sums[0], sums[1]);
}

static void transposed_double(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx, (void)user;
    out[0] = lz_transpose(lz_mul(in[0], 2.0));
}

/* Looking at an output puts it in order elsewhere; the next call must show its own numbers all the same. */
static void looked_at_outputs_are_used_again(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_compiled *f = lz_compile(ctx, transposed_double, NULL, 1, 1, 2, &err);
    for (int i = 1; i <= 4; i++) {
        lz_scope *scope = lz_scope_begin(ctx, "call");
        lz_array *x = lz_contiguous(lz_full(ctx, LZ_DIMS(2, 3), LZ_F32, i)), *y = NULL;
        CHECK_OK(lz_run(f, &x, &y, &err), &err);
        const float *p = lz_data(y, &err);
        CHECK(p && p[5] == 2.0f * (float)i, "call %d: %g", i, p ? (double)p[5] : 0.0);
        lz_scope_end(scope);
    }
    lz_compiled_free(f);
    lz_close(ctx);
}

static void square_product(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx, (void)user;
    out[0] = lz_exp(lz_matmul(lz_matmul(in[0], in[0]), in[0]));
}

/* A program that no longer fits leaves the others as they were. */
static void compiled_under_a_limit(void) {
    lz_context *ctx = lz_open(.memory_limit = 8 << 20, .cache_limit = -1);
    lz_error err = {0};
    lz_compiled *f = lz_compile(ctx, square_product, NULL, 1, 1, 4, &err);
    static const int sizes[] = {32, 1024, 32};
    for (int i = 0; i < 3; i++) {
        lz_scope *scope = lz_scope_begin(ctx, "call");
        lz_array *x = lz_full(ctx, LZ_DIMS(sizes[i], sizes[i]), LZ_F32, 0.01), *y = NULL;
        CHECK_STATUS(lz_run(f, &x, &y, &err), i == 1 ? LZ_OUT_OF_MEMORY : LZ_OK, &err);
        lz_scope_end(scope);
    }
    lz_compiled_free(f);
    lz_close(ctx);
}

static void looks_at_its_input(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx;
    lz_error err = {0};
    lz_item(lz_sum(in[0], LZ_NONE, false), &err);
    *(lz_status *)user = err.status;
    out[0] = lz_neg(in[0]);
}

static void functions_cannot_look(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_status seen = LZ_OK;
    lz_compiled *f = lz_compile(ctx, looks_at_its_input, &seen, 1, 1, 1, &err);
    lz_array *x = lz_full(ctx, LZ_DIMS(3), LZ_F32, 1), *y = NULL;
    CHECK_OK(lz_run(f, &x, &y, &err), &err);
    CHECK_I64(seen, LZ_BAD_ARGUMENT);
    lz_compiled_free(f);
    CHECK(lz_check(lz_arange(ctx, 0, 0x1p59, 1, LZ_U8), &err) != LZ_OK);
    lz_array *many[18];
    for (int i = 0; i < 18; i++) many[i] = lz_full(ctx, LZ_DIMS(i < 17 ? INT64_MAX / 16 : 5), LZ_F32, 0);
    CHECK_STATUS(lz_check(lz_concat(many, 18, 0), &err), LZ_BAD_SHAPE, &err);
    CHECK_OK(lz_eval(lz_slice(lz_randn(ctx, LZ_DIMS(4, 3), 1), 0, 1, 4, INT64_MAX / 2), &err), &err);
    lz_close(ctx);
}

TEST_MAIN({"concat_parts_keep_to_themselves", concat_parts_keep_to_themselves},
          {"heads_are_put_together_in_place", heads_are_put_together_in_place},
          {"heads_are_turned_in_place", heads_are_turned_in_place},
          {"looked_at_outputs_are_used_again", looked_at_outputs_are_used_again},
          {"compiled_under_a_limit", compiled_under_a_limit}, {"functions_cannot_look", functions_cannot_look},
          {"planned_bytes", planned_bytes}, {"counted_operations", counted_operations}, {"facts_of_ops", facts_of_ops},
          {"attention_memory_is_linear", attention_memory_is_linear},
          {"patterns_are_one_kernel", patterns_are_one_kernel}, {"computing_in_place", computing_in_place},
          {"merging_and_folding", merging_and_folding}, {"compiled_loop", compiled_loop},
          {"replay_allocates_nothing", replay_allocates_nothing}, {"replay_keeps_results", replay_keeps_results},
          {"compile_cache", compile_cache}, {"odd_functions", odd_functions}, {"constants_once", constants_once},
          {"streams", streams}, {"bad_indices", bad_indices}, {"watching", watching}, {"printing", printing},
          {"profiling", profiling}, {"deep_graphs", deep_graphs})
