/* test_random_graphs.c: random graphs of 5 to 30 steps, made of the patterns of diffusion transformers: fusing,
 * merging, planning and compiling must not change the result (random_case.h has the exact conditions).
 *
 * In 16 bits a fused chain may keep f32 between its steps. So there the comparison is with the exact value (the same
 * graph in f64): the fused result must be at least as near to it as the unfused one. */
#include "array/internal.h"
#include "random_case.h"

static lz_array *soft(lz_array *x) { return lz_mul(lz_tanh(lz_mul(x, 0.3)), 3.0); } /* keeps values within +-3 */

/* One step: x [n, c] -> [n, c], c a multiple of 4. */
static lz_array *graph_step(builder *b, lz_array *x, lz_array *earlier, int64_t n, int64_t c, lz_dtype t) {
    switch (any(b, 0, 19)) {
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
    case 17: { /* a value and another view of it: must not be overwritten while it is still read */
        lz_array *y = lz_tanh(x);
        return lz_sub(y, lz_slice(y, 0, n / 2, n / 2 + 1, 1));
    }
    case 18: {
        lz_array *y = lz_silu(x);
        return soft(lz_mul(y, lz_slice(y, 1, c - 1, c, 1)));
    }
    default:
        return lz_layer_norm(lz_take(x, lz_arange(b->ctx, (double)(n - 1), -1, -1, LZ_I64), 0), NULL,
                             leaf(b, LZ_DIMS(c), t, 1), 0.1);
    }
}

/* What blocks with a norm before and after each part, and attention in one stream, have besides. */
static lz_array *block_step(builder *b, lz_array *x, lz_array *earlier, int64_t n, int64_t c, lz_dtype t) {
    if (chance(b, 50)) { /* a norm after a part, and the norm before the next one */
        lz_array *y = lz_add(earlier, lz_mul(lz_rms_norm(x, NULL, 0.1), leaf(b, LZ_DIMS(1, c), t, 0.5)));
        lz_array *z = lz_rms_norm(y, chance(b, 70) ? leaf(b, LZ_DIMS(c), t, 1) : NULL, 0.2);
        return lz_add(y, soft(lz_linear(z, leaf(b, LZ_DIMS(c, c), t, 1 / sqrt((double)c)), NULL)));
    }
    /* Queries and keys that only attention reads: turned in place, or beside others. */
    int64_t heads = c % 8 ? 1 : any(b, 1, 2), d = c / heads;
    lz_array *four = lz_permute(lz_reshape(lz_silu(x), LZ_DIMS(1, n, heads, d)), LZ_DIMS(0, 2, 1, 3)), *two[2];
    for (int i = 0; i < 2; i++) {
        lz_array *cosine = leaf(b, LZ_DIMS(n, d / 2), t, 1), *sine = leaf(b, LZ_DIMS(n, d / 2), t, 1);
        two[i] = lz_rope(lz_rms_norm(four, leaf(b, LZ_DIMS(d), t, 1), 0.1), cosine, sine, .half_split = chance(b, 50));
    }
    lz_array *other = lz_permute(lz_reshape(earlier, LZ_DIMS(1, n, heads, d)), LZ_DIMS(0, 2, 1, 3));
    bool more = chance(b, 50);
    lz_array *k = more ? lz_concat((lz_array *[]){other, two[1]}, 2, 2) : two[1],
             *v = more ? lz_concat((lz_array *[]){four, other}, 2, 2) : four;
    return lz_reshape(lz_permute(lz_sdpa(two[0], k, v), LZ_DIMS(0, 2, 1, 3)), LZ_DIMS(n, c));
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
    b->ulp = 4, b->room = 3e-4, b->least = 1e-5; /* differences of values of about 1 may cancel */
    snprintf(b->what, sizeof b->what, "graph of %d %s steps on [%lld, %lld]", steps, lz_dtype_name(t), (long long)n,
             (long long)c);
}

/* Steps of blocks between others. */
static void describe_blocks(builder *b) {
    int64_t n = any(b, 1, 40), c = 4 * any(b, 1, 70);
    lz_array *x = leaf(b, LZ_DIMS(n, c), LZ_F32, 1), *earlier = x;
    for (int i = 0; i < 5; i++) {
        lz_array *y = block_step(b, x, earlier, n, c, LZ_F32);
        earlier = x;
        x = chance(b, 40) ? graph_step(b, y, earlier, n, c, LZ_F32) : y;
    }
    b->out[b->n_out++] = x;
    b->ulp = 4, b->room = 3e-4, b->least = 1e-5;
    snprintf(b->what, sizeof b->what, "blocks on [%lld, %lld]", (long long)n, (long long)c);
}

static void describe_graph(builder *b) { describe_graph_of(b, LZ_F32); }
static void describe_graph_16(builder *b) { describe_graph_of(b, chance(b, 70) ? LZ_BF16 : LZ_F16); }

static void graphs(void) { run_many(describe_graph, test_scale(1000), 1000001); }
static void blocks(void) { run_many(describe_blocks, test_scale(100), 3000001); }

/* Mean error against the graph without rounding, as a share of the largest value. */
static double mean_error(const values *got, const values *exact) {
    double sum = 0, scale = 0.1; /* values are of about 1, unless they cancel */
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
    int n = test_scale(600), worse = 0;
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

/* ---- several sets of inputs at once ------------------------------------------------------------------------------ */

enum { SETS = 3 };

/* Leaves of set i: some of their own, the others those of set 0. `own` tells which. */
static void replace_shared(const builder *sets, int i, const bool *own, lz_array **to) {
    for (int k = 0; k < sets[0].n_leaves; k++) to[k] = sets[own[k] ? i : 0].leaves[k];
}

static void describe_given(lz_context *ctx, describe_function describe, uint64_t seed, lz_array *const *leaves,
                           builder *b) {
    *b = (builder){.ctx = ctx, .random = {seed}, .seed = seed, .given = leaves};
    describe(b);
}

/* The graph described for all sets at once has the bits of the graph of each set; on a device, nearly. percent: of the
 * other leaves, such as weights, that differ between sets. */
static void compare_sets(lz_context *ctx, const char *who, describe_function describe, int percent, uint64_t seed) {
    lz_scope *scope = lz_scope_begin(ctx, "sets");
    lz_array *leaves[MAX_LEAVES], *one[MAX_LEAVES], *all[MAX_LEAVES];
    builder sets[SETS], b;
    test_random random = {seed};
    bool own[MAX_LEAVES] = {true};
    int n_own = 0;
    for (int i = 0; i < SETS; i++) {
        sets[i] = (builder){.ctx = ctx, .random = {seed}, .seed = seed + 17 * (uint64_t)i};
        describe(&sets[i]);
    }
    for (int k = 0; k < sets[0].n_leaves; k++) {
        lz_array *rows[SETS];
        if (!(own[k] = k < 2 || random_chance(&random, percent))) continue; /* all steps begin with the first two */
        for (int i = 0; i < SETS; i++) {
            lz_dims d = lz_shape(sets[i].leaves[k]), more = {.n = d.n + 1, .at = {1}};
            for (int j = 0; j < d.n; j++) more.at[j + 1] = d.at[j];
            rows[i] = lz_reshape(sets[i].leaves[k], more);
        }
        one[n_own] = sets[0].leaves[k];
        all[n_own++] = lz_concat(rows, SETS, 0);
    }
    describe_given(ctx, describe, seed, sets[0].leaves, &b);
    lz_array *out[MAX_OUT];
    bool rounds = lz_type(b.out[0]) != LZ_F32 && lz_shape(b.out[0]).at[0] <= 8;
    if (rounds) b.n_out = 0; /* products of few rows are rounded before a chain reads them */
    for (int k = 0; k < b.n_out; k++) out[k] = b.out[k];
    lz_describe_many(ctx, SETS, one, all, n_own, out, b.n_out);
    lz_eval_all(out, b.n_out, NULL);
    for (int i = 0; i < SETS; i++) {
        builder alone;
        lz_array *own_out[MAX_OUT];
        replace_shared(sets, i, own, leaves);
        describe_given(ctx, describe, seed, leaves, &alone);
        alone.n_out = b.n_out;
        for (int k = 0; k < b.n_out; k++) {
            bool depends = out[k] != b.out[k];
            own_out[k] = depends ? lz_reshape(lz_slice(out[k], 0, i, i + 1, 1), lz_shape(alone.out[k])) : out[k];
        }
        values got = {0}, want = {0};
        keep_values(&got, own_out, b.n_out);
        keep_values(&want, alone.out, alone.n_out);
        if (getenv("LZ_TEST_DEVICE")) /* another kernel may compute more rows */
            near_values(who, seed, &alone, &got, &want);
        else
            CHECK(want.status == LZ_OK && same_values(&got, &want), "%s, case %llu, set %d: %s: %s", who,
                  (unsigned long long)seed, i, alone.what, got.error);
        free_values(&got), free_values(&want);
    }
    lz_scope_end(scope);
}

static void several_sets(void) {
    /* In 16 bits, a vector that differs between sets may be rounded before a fused chain reads it. */
    const struct {
        describe_function describe;
        int percent;
    } all[] = {{describe_graph, 30}, {describe_blocks, 30}, {describe_graph_16, 0}};
    open_all();
    for (int i = 0; i < test_scale(300) && n_machines; i++) {
        const machine *m = &machines[i % n_machines];
        uint64_t seed = 4000001 + (uint64_t)i;
        int kind = i / 2 % (getenv("LZ_TEST_DEVICE") ? 2 : 3);
        compare_sets(i % 2 ? m->two : m->unfused, m->isa, all[kind].describe, all[kind].percent, seed);
    }
    close_all();
}

TEST_MAIN({"graphs", graphs}, {"blocks", blocks}, {"several_sets", several_sets},
          {"fused_16_bit_is_no_worse", fused_16_bit_is_no_worse})
