/* sdpa.c: attention. There are four implementations:
 *
 *   cuDNN            16-bit types, no mask or the causal one, large calls
 *   passes           heads that are too wide for cuDNN: a product, a softmax and a product, for some rows at a time
 *   sdpa90.c         on Hopper, instead of cuDNN, if there is no mask. lz_context_options.cuda_sdpa: "library" turns it
 *                    off, "own" uses it for small calls too, without measuring
 *   kernels/sdpa.cu  everything else: masks, f32, calls that are too small for a plan of cuDNN, and f8 where sdpa90.c
 *                    cannot be used
 *
 * For cuDNN, attention is a graph: scores = q k^T, scaled; softmax as maximum, difference, exponential, sum and
 * quotient; the product with v. cuDNN recognises the pattern and runs one kernel that never stores the scores. */
#include <math.h>
#include <string.h>

#include "backend/cuda/dnn.h"
#include "backend/cuda/own.h"
#include "backend/cuda/sdpa90.h"

#include "backend/cuda/kernels/products.h"

/* ---- the call ---------------------------------------------------------------------------------------------------- */

typedef struct attention {
    const lz_tensor *q, *k, *v, *mask, *out; /* q [b, h, n, d], k v [b, g, m, d], mask [b, h, n, m] or NULL */
    int64_t batches, heads, groups, n, m, d;
    lz_dtype type; /* type in which they are multiplied */
    bool causal;
    float scale;
} attention;

static attention look_at(const lz_call *call) {
    attention a = {.q = &call->in[0], .k = &call->in[1], .v = &call->in[2], .out = &call->out};
    a.mask = call->n_core > 3 ? &call->in[3] : NULL;
    a.batches = a.q->dims.at[0], a.heads = a.q->dims.at[1], a.n = a.q->dims.at[2], a.d = a.q->dims.at[3];
    a.groups = a.k->dims.at[1], a.m = a.k->dims.at[2];
    a.type = lz_cuda_common_type(a.q->dtype, lz_cuda_common_type(a.k->dtype, a.v->dtype));
    a.causal = call->params->sdpa.causal;
    a.scale = (float)call->params->sdpa.scale;
    return a;
}

static double work_of(const attention *a) {
    return 4.0 * (double)a->batches * (double)a->heads * (double)a->n * (double)a->m * (double)a->d;
}

/* ---- cuDNN ------------------------------------------------------------------------------------------------------- */

enum { Q = 1, K, V, OUT, SCALE, HIDDEN, TENSORS = HIDDEN }; /* HIDDEN: the constant that replaces masked scores */
#define WORTH_A_PLAN 1e8
#define WIDEST_FOR_DNN 256 /* one head of 512 over 16384 pixels on an H200: cuDNN 6.7 ms, our kernel 3.7 ms */
#define WORTH_PASSES 5e8
#define SCORES_AT_ONCE ((int64_t)1 << 25)
#define WORTH_MEASURING 5e9

/* Are rows contiguous, at multiples of 16 bytes by their strides, and not broadcast? */
static bool dense_rows(const lz_tensor *t, lz_dtype type) {
    bool fine = t->dtype == type && t->strides[3] == 1;
    for (int i = 0; i < 3; i++)
        fine = fine && (t->dims.at[i] == 1 || (t->strides[i] && t->strides[i] * lz_dtype_size(type) % 16 == 0));
    return fine;
}

static bool suits_dnn(const lz_device *d, const attention *a) {
    bool half = a->type == LZ_F16 || a->type == LZ_BF16;
    return d->dnn && half && !a->mask && (!a->causal || a->n == a->m) && a->d % 8 == 0 && a->d <= WIDEST_FOR_DNN &&
           dense_rows(a->q, a->type) && dense_rows(a->k, a->type) && dense_rows(a->v, a->type) &&
           dense_rows(a->out, a->type) && work_of(a) >= WORTH_A_PLAN;
}

static lz_dnn_key key_of(const attention *a) {
    lz_dnn_key key;
    memset(&key, 0, sizeof key);
    memcpy(key.what, "sdpa", 5);
    int64_t *to = key.numbers;
    const int64_t sizes[] = {a->batches, a->heads, a->groups, a->n, a->m, a->d, a->type, a->causal, a->q->dtype};
    memcpy(to, sizes, sizeof sizes);
    to += sizeof sizes / sizeof *sizes;
    const lz_tensor *tensors[] = {a->q, a->k, a->v, a->out};
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < 4; i++) *to++ = tensors[t]->strides[i];
    return key;
}

static lz_dnn_tensor operand(const lz_tensor *t, int64_t number) {
    lz_dnn_tensor made = {.type = lz_dnn_type_of(t->dtype), .number = number};
    memcpy(made.dims, t->dims.at, sizeof made.dims);
    memcpy(made.strides, t->strides, sizeof made.strides);
    for (int i = 2; i >= 0; i--) /* an axis of size 1 may have any stride except 0 */
        if (made.dims[i] == 1) made.strides[i] = made.dims[i + 1] * made.strides[i + 1];
    return made;
}

/* A virtual tensor with the rows of the scores, and m columns or one. */
static lz_dnn_descriptor between(lz_dnn_graph *g, const attention *a, lz_dnn_type type, int64_t columns) {
    lz_dnn_tensor t = {.type = type,
                       .dims = {a->batches, a->heads, a->n, columns},
                       .strides = {a->heads * a->n * columns, a->n * columns, columns, 1}};
    return lz_dnn_add_tensor(g, &t);
}

static lz_dnn_descriptor number(lz_dnn_graph *g, int64_t which) {
    lz_dnn_tensor t = {
        .type = LZ_CUDNN_DATA_FLOAT, .dims = {1, 1, 1, 1}, .strides = {1, 1, 1, 1}, .number = which, .by_value = true};
    return lz_dnn_add_tensor(g, &t);
}

/* Keeps a score if the index of the query is at least that of the key; replaces it by HIDDEN otherwise. */
static lz_dnn_descriptor add_causal_mask(lz_dnn_graph *g, const attention *a, lz_dnn_descriptor scores) {
    lz_dnn_descriptor query = between(g, a, LZ_CUDNN_DATA_INT32, a->m), key = between(g, a, LZ_CUDNN_DATA_INT32, a->m);
    lz_dnn_descriptor seen = between(g, a, LZ_CUDNN_DATA_BOOLEAN, a->m);
    lz_dnn_descriptor masked = between(g, a, LZ_CUDNN_DATA_FLOAT, a->m);
    lz_dnn_add_pointwise(g, LZ_CUDNN_POINTWISE_GEN_INDEX, scores, NULL, NULL, query, 2);
    lz_dnn_add_pointwise(g, LZ_CUDNN_POINTWISE_GEN_INDEX, scores, NULL, NULL, key, 3);
    lz_dnn_add_pointwise(g, LZ_CUDNN_POINTWISE_CMP_GE, query, key, NULL, seen, -1);
    lz_dnn_add_pointwise(g, LZ_CUDNN_POINTWISE_BINARY_SELECT, scores, number(g, HIDDEN), seen, masked, -1);
    return masked;
}

/* The graph also computes the logarithm of the sum, which only training needs: cuDNN recognises the pattern with it. */
static lz_dnn_descriptor add_softmax(lz_dnn_graph *g, const attention *a, lz_dnn_descriptor scores) {
    lz_dnn_descriptor most = between(g, a, LZ_CUDNN_DATA_FLOAT, 1), less = between(g, a, LZ_CUDNN_DATA_FLOAT, a->m),
                      powers = between(g, a, LZ_CUDNN_DATA_FLOAT, a->m), sum = between(g, a, LZ_CUDNN_DATA_FLOAT, 1),
                      log = between(g, a, LZ_CUDNN_DATA_FLOAT, 1), kept = between(g, a, LZ_CUDNN_DATA_FLOAT, 1),
                      shares = between(g, a, lz_dnn_type_of(a->type), a->m);
    lz_dnn_add_reduction(g, LZ_CUDNN_REDUCE_TENSOR_MAX, scores, most);
    lz_dnn_add_pointwise(g, LZ_CUDNN_POINTWISE_SUB, scores, most, NULL, less, -1);
    lz_dnn_add_pointwise(g, LZ_CUDNN_POINTWISE_EXP, less, NULL, NULL, powers, -1);
    lz_dnn_add_reduction(g, LZ_CUDNN_REDUCE_TENSOR_ADD, powers, sum);
    lz_dnn_add_pointwise(g, LZ_CUDNN_POINTWISE_LOG, sum, NULL, NULL, log, -1);
    lz_dnn_add_pointwise(g, LZ_CUDNN_POINTWISE_ADD, most, log, NULL, kept, -1);
    lz_dnn_add_pointwise(g, LZ_CUDNN_POINTWISE_DIV, powers, sum, NULL, shares, -1);
    return shares;
}

static lz_dnn_plan *make_plan(lz_device *d, const attention *a, const lz_dnn_key *key) {
    lz_dnn_graph g = {.d = d};
    lz_dnn_tensor q = operand(a->q, Q), k = operand(a->k, K), v = operand(a->v, V), out = operand(a->out, OUT);
    lz_dnn_tensor transposed = k; /* [b, g, d, m] */
    transposed.dims[2] = k.dims[3], transposed.dims[3] = k.dims[2];
    transposed.strides[2] = k.strides[3], transposed.strides[3] = k.strides[2];
    lz_dnn_descriptor raw = between(&g, a, LZ_CUDNN_DATA_FLOAT, a->m);
    lz_dnn_descriptor scores = between(&g, a, LZ_CUDNN_DATA_FLOAT, a->m);
    lz_dnn_add_matmul(&g, lz_dnn_add_tensor(&g, &q), lz_dnn_add_tensor(&g, &transposed), raw);
    lz_dnn_add_pointwise(&g, LZ_CUDNN_POINTWISE_MUL, raw, number(&g, SCALE), NULL, scores, -1);
    if (a->causal) scores = add_causal_mask(&g, a, scores);
    lz_dnn_descriptor shares = add_softmax(&g, a, scores);
    lz_dnn_add_matmul(&g, shares, lz_dnn_add_tensor(&g, &v), lz_dnn_add_tensor(&g, &out));
    return lz_dnn_make(&g, key, &(lz_dnn_order){.what = "sdpa", .thorough = work_of(a) >= WORTH_MEASURING});
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* For some rows of one head: scores = scale q k^T in f32, shares = softmax(scores) in 16 bits, out = shares v. */
typedef struct passes {
    lz_tensor q, k, v, out, scores, shares;
    lz_tensor first_in[2], last_in[2];
    lz_expr scaled;
    lz_call first, middle, last;
    int64_t rows, bytes; /* most rows at a time; bytes of scratch */
} passes;

static bool suits_passes(const attention *a) {
    bool half = a->type == LZ_F16 || a->type == LZ_BF16;
    return half && !a->mask && !a->causal && a->d % 8 == 0 && a->d > WIDEST_FOR_DNN && dense_rows(a->q, a->type) &&
           dense_rows(a->k, a->type) && dense_rows(a->v, a->type) && dense_rows(a->out, a->type) &&
           work_of(a) / (double)(a->batches * a->heads) >= WORTH_PASSES;
}

/* A view of some rows of one head; of k transposed, as the right operand of a product. */
static lz_tensor rows_of(const lz_tensor *t, int64_t batch, int64_t head, int64_t first, int64_t rows,
                         bool transposed) {
    lz_tensor made = {.dtype = t->dtype, .data = t->data};
    if (t->data)
        made.data += (batch * t->strides[0] + head * t->strides[1] + first * t->strides[2]) * lz_dtype_size(t->dtype);
    made.dims = transposed ? LZ_DIMS(t->dims.at[3], rows) : LZ_DIMS(rows, t->dims.at[3]);
    made.strides[transposed ? 1 : 0] = t->strides[2], made.strides[transposed ? 0 : 1] = 1;
    return made;
}

static lz_tensor packed_rows(lz_scratch *p, int64_t rows, int64_t columns, lz_dtype type) {
    lz_tensor made = {.dtype = type, .dims = LZ_DIMS(rows, columns), .strides = {columns, 1}};
    made.data = lz_scratch_take(p, rows * columns * lz_dtype_size(type));
    return made;
}

static lz_call pass_of(const lz_call *call, lz_op op, const lz_tensor *in, int n, const lz_tensor *out) {
    lz_call made = *call;
    made.op = op, made.in = in, made.n_in = made.n_core = n, made.out = *out, made.expr = NULL;
    return made;
}

/* scratch() and run() call this, and get the same plan. */
static void plan_passes(const lz_call *call, const attention *a, int64_t batch, int64_t head, int64_t first,
                        passes *w) {
    lz_scratch p = lz_scratch_at(call->scratch);
    int64_t group = head / (a->heads / a->groups), left = a->n - first;
    w->rows = SCORES_AT_ONCE / a->m < 128 ? 128 : SCORES_AT_ONCE / a->m / 128 * 128;
    if (w->rows > left) w->rows = left;
    w->q = rows_of(a->q, batch, head, first, w->rows, false), w->k = rows_of(a->k, batch, group, 0, a->m, true);
    w->v = rows_of(a->v, batch, group, 0, a->m, false), w->out = rows_of(a->out, batch, head, first, w->rows, false);
    w->scores = packed_rows(&p, w->rows, a->m, LZ_F32), w->shares = packed_rows(&p, w->rows, a->m, a->type);
    w->first_in[0] = w->q, w->first_in[1] = w->k, w->last_in[0] = w->shares, w->last_in[1] = w->v;
    w->scaled = (lz_expr){.n_args = 1, .n_steps = 1, .n_regs = 1};
    w->scaled.steps[0] = (lz_expr_step){.op = LZ_OP_MUL, .number = true, .k0 = a->scale};
    w->first = pass_of(call, LZ_OP_MATMUL, w->first_in, 2, &w->scores);
    w->first.expr = &w->scaled;
    w->middle = pass_of(call, LZ_OP_SOFTMAX, &w->scores, 1, &w->shares);
    w->last = pass_of(call, LZ_OP_MATMUL, w->last_in, 2, &w->out);
    int64_t one = lz_cuda_matmul.scratch(&w->first), other = lz_cuda_matmul.scratch(&w->last);
    w->first.scratch = w->last.scratch = lz_scratch_take(&p, one > other ? one : other);
    w->bytes = lz_scratch_bytes(&p);
}

static bool run_passes(const lz_call *call, const attention *a) {
    passes w;
    for (int64_t i = 0; i < a->batches * a->heads; i++)
        for (int64_t first = 0; first < a->n; first += w.rows) {
            plan_passes(call, a, i / a->heads, i % a->heads, first, &w);
            if (!lz_cuda_matmul.run(&w.first) || !lz_cuda_softmax.run(&w.middle) || !lz_cuda_matmul.run(&w.last))
                return false;
        }
    return true;
}

/* ---- cuDNN's plan ------------------------------------------------------------------------------------------------ */

static bool addresses_aligned(const attention *a) {
    uintptr_t bits = (uintptr_t)a->q->data | (uintptr_t)a->k->data | (uintptr_t)a->v->data | (uintptr_t)a->out->data;
    return bits % 16 == 0;
}

/* The plan that scratch() made, if it can be used with these addresses. */
static lz_dnn_plan *usable_plan(const lz_call *call, const attention *a) {
    if (!suits_dnn(call->device, a) || !addresses_aligned(a)) return NULL;
    lz_dnn_key key = key_of(a);
    lz_dnn_plan *plan;
    if (!lz_dnn_find(call->device, &key, &plan) || !plan) return NULL;
    return lz_dnn_workspace(plan) && !call->scratch ? NULL : plan;
}

static bool run_plan(const lz_call *call, const attention *a, lz_dnn_plan *plan) {
    float scale = a->scale, hidden = -INFINITY;
    lz_scratch p = lz_scratch_at(call->scratch);
    void *addresses[TENSORS] = {a->q->data, a->k->data, a->v->data, a->out->data, &scale, &hidden};
    const lz_dnn_operands operands = {.addresses = addresses,
                                      .n = a->causal ? HIDDEN : SCALE,
                                      .n_values = a->causal ? 2 : 1,
                                      .workspace = lz_scratch_take(&p, lz_dnn_workspace(plan))};
    return lz_dnn_run(call, plan, &operands);
}

/* ---- sdpa.cu ----------------------------------------------------------------------------------------------------- */

/* The same numbers as in kernels/sdpa.cu. */
typedef struct tiles {
    int head, threads, queries, shared;
} tiles;

static tiles tiles_of(const attention *a) {
    tiles t = {.head = (int)(a->d + 15) / 16 * 16};
    if (a->type == LZ_F32) {
        t.threads = 256, t.queries = 32;
        t.shared = (2 * 32 * (t.head + 4) + 32 * 36 + 2 * 32) * 4;
        return t;
    }
    if (t.head > 256) t.head = (t.head + 31) / 32 * 32;
    int keys = t.head > 128 ? 32 : 64;
    t.threads = t.head > 256 ? 256 : 128, t.queries = 64;
    t.shared = (t.queries + 4 * keys) * (t.head + 8) * 2;
    return t;
}

static lz_strided strided_of(const lz_tensor *t) {
    lz_strided made = {.data = t->data};
    for (int i = 0; i < 4; i++) made.strides[i] = t->strides[i];
    return made;
}

static bool aligned(const attention *a) {
    uintptr_t bits = (uintptr_t)a->q->data | (uintptr_t)a->k->data | (uintptr_t)a->v->data;
    return a->d % 8 == 0 && bits % 16 == 0 && dense_rows(a->q, a->type) && dense_rows(a->k, a->type) &&
           dense_rows(a->v, a->type);
}

static bool aligned_out(const attention *a) {
    return a->d % 8 == 0 && (uintptr_t)a->out->data % 16 == 0 && dense_rows(a->out, a->out->dtype);
}

/* Is the mask boolean and the same for all queries? The kernel then keeps one bit per key in the padding of its rows in
 * shared memory. */
static bool mask_of_keys(const attention *a) {
    return a->type != LZ_F32 && a->mask && a->mask->dtype == LZ_BOOL && (a->mask->strides[2] == 0 || a->n == 1) &&
           a->m <= 128 * 192;
}

static char *kernel_text(const lz_call *call, const attention *a, const tiles *t) {
    lz_text text = {.ctx = call->device->ctx};
    lz_text_add(&text, "#define NUMBER %s\n#define Q_TYPE %s\n#define K_TYPE %s\n#define V_TYPE %s\n",
                lz_cuda_type_name(a->type), lz_cuda_type_name(a->q->dtype), lz_cuda_type_name(a->k->dtype),
                lz_cuda_type_name(a->v->dtype));
    lz_text_add(&text, "#define OUT_TYPE %s\n#define HEAD %d\n#define ALIGNED %d\n", lz_cuda_type_name(a->out->dtype),
                t->head, a->type != LZ_F32 && aligned(a));
    lz_text_add(&text, "#define ALIGNED_OUT %d\n", aligned_out(a));
    if (a->type == LZ_F32) lz_text_add(&text, "#define PLAIN\n");
    if (a->causal) lz_text_add(&text, "#define CAUSAL\n");
    if (a->mask) lz_text_add(&text, "#define MASK_TYPE %s\n", lz_cuda_type_name(a->mask->dtype));
    if (a->mask && a->mask->dtype != LZ_BOOL) lz_text_add(&text, "#define MASK_ADDS\n");
    if (mask_of_keys(a)) lz_text_add(&text, "#define MASK_OF_KEYS\n");
    lz_text_add(&text, "#include \"sdpa.cu\"\n");
    return lz_text_take(&text, call->err);
}

static bool run_own(const lz_call *call, const attention *a) {
    tiles t = tiles_of(a);
    char *text = kernel_text(call, a, &t);
    lz_cu_function f = text ? lz_cuda_function(call->device, "sdpa", text, call->err) : NULL;
    lz_host_free(call->device->ctx, text);
    if (!f) return false;
    lz_sdpa_params p = {.q = strided_of(a->q),
                        .k = strided_of(a->k),
                        .v = strided_of(a->v),
                        .out = strided_of(a->out),
                        .heads = (int)a->heads,
                        .heads_per_group = (int)(a->heads / a->groups),
                        .n = (int)a->n,
                        .m = (int)a->m,
                        .d = (int)a->d,
                        .scale = a->scale};
    if (a->mask) p.mask = strided_of(a->mask);
    int64_t blocks = (a->n + t.queries - 1) / t.queries * a->heads * a->batches;
    return lz_cuda_launch(call, f, blocks, t.threads, t.shared, &p);
}

/* ---- sdpa90.cu --------------------------------------------------------------------------------------------------- */

typedef struct candidates {
    lz_sdpa90 own;
    lz_cu_function functions[LZ_SDPA90_CONFIGS]; /* NULL: not compiled yet */
} candidates;

typedef struct choice_key {
    lz_dnn_key call;
    lz_sdpa90_config configs[LZ_SDPA90_CONFIGS];
} choice_key; /* zeroed before it is filled, since keys are compared byte by byte */

static bool suits_hopper(const lz_call *call, const attention *a, candidates *c) {
    *c = (candidates){.functions = {NULL}};
    lz_sdpa_choice wish = call->device->sdpa;
    return wish != LZ_SDPA_LIBRARY && (work_of(a) >= WORTH_A_PLAN || wish == LZ_SDPA_OWN) &&
           lz_sdpa90_reads(call, &c->own);
}

static bool run_candidate(const lz_call *call, void *arg, int i) {
    candidates *c = arg;
    const lz_sdpa90_config *w = &lz_sdpa90_configs(c->own.narrow)[i];
    lz_sdpa90 own = c->own;
    own.call = call;
    if (!c->functions[i]) c->functions[i] = lz_sdpa90_function(&own, w);
    lz_scratch p = lz_scratch_at(call->scratch);
    return c->functions[i] && lz_sdpa90_run(&own, w, c->functions[i], lz_scratch_take(&p, lz_sdpa90_scratch(&own, w)));
}

/* The index of the fastest candidate; 0 if it is unknown and cannot be measured now. */
static int choose_candidate(const lz_call *call, const attention *a, candidates *c) {
    choice_key k;
    memset(&k, 0, sizeof k);
    k.call = key_of(a);
    const lz_sdpa90_config *configs = lz_sdpa90_configs(c->own.narrow);
    memcpy(k.configs, configs, sizeof k.configs);
    lz_choice choice = {.what = "way of an attention", .key = &k, .key_bytes = sizeof k};
    int found = lz_cuda_choose(call, &choice, LZ_SDPA90_CONFIGS, run_candidate, c), chosen = found < 0 ? 0 : found;
    const lz_sdpa90_config *w = &configs[chosen];
    if (choice.measured)
        lz_cuda_trace(call->device, "sdpa %s heads %lld n %lld m %lld d %lld: %d keys, %d queries, in turn %d",
                      lz_dtype_name(a->q->dtype), (long long)a->heads, (long long)a->n, (long long)a->m,
                      (long long)a->d, w->keys, w->queries, w->pingpong);
    return chosen;
}

static bool run_hopper(const lz_call *call, const attention *a, candidates *c) {
    bool measured = work_of(a) >= WORTH_MEASURING && call->device->sdpa != LZ_SDPA_OWN;
    return run_candidate(call, c, measured ? choose_candidate(call, a, c) : 0);
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

static int64_t sdpa_scratch(const lz_call *call) {
    attention a = look_at(call);
    if (suits_passes(&a)) {
        lz_call measured = *call;
        measured.scratch = NULL;
        passes w;
        plan_passes(&measured, &a, 0, 0, 0, &w);
        return w.bytes;
    }
    candidates c;
    int64_t most = 0;
    if (suits_hopper(call, &a, &c)) {
        for (int i = 0; i < LZ_SDPA90_CONFIGS; i++) {
            int64_t bytes = lz_sdpa90_scratch(&c.own, &lz_sdpa90_configs(c.own.narrow)[i]);
            if (bytes > most) most = bytes;
        }
    } else if (suits_dnn(call->device, &a)) {
        lz_dnn_key key = key_of(&a);
        lz_dnn_plan *plan;
        if (!lz_dnn_find(call->device, &key, &plan)) plan = make_plan(call->device, &a, &key);
        if (plan) most = lz_dnn_workspace(plan);
    }
    if (!most) return 0;
    lz_scratch p = lz_scratch_at(NULL);
    lz_scratch_take(&p, most);
    return lz_scratch_bytes(&p);
}

static bool can_sdpa(const lz_call *call) {
    attention a = look_at(call);
    bool mask = !a.mask || a.mask->dtype == LZ_BOOL || lz_cuda_is_real(a.mask->dtype);
    bool fits = a.n < INT32_MAX / 2 && a.m < INT32_MAX / 2;
    return fits && mask && lz_cuda_is_real(a.q->dtype) && lz_cuda_is_real(a.k->dtype) && lz_cuda_is_real(a.v->dtype);
}

static bool run_sdpa(const lz_call *call) {
    attention a = look_at(call);
    if (suits_passes(&a)) return run_passes(call, &a);
    candidates c;
    if (addresses_aligned(&a) && suits_hopper(call, &a, &c)) return run_hopper(call, &a, &c);
    lz_dnn_plan *plan = usable_plan(call, &a);
    return plan ? run_plan(call, &a, plan) : run_own(call, &a);
}

const lz_kernel lz_cuda_sdpa = {.name = "cuda.sdpa", .run = run_sdpa, .scratch = sdpa_scratch, .can = can_sdpa};
