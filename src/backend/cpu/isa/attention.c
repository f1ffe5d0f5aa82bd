/* attention.c: softmax(q k^T scale + mask) v; the n x m scores are never stored as a whole. Compile with
 * -ffp-contract=fast.
 *
 * The keys and values of some heads are packed into panels (gemm.h), as f32. Then each task computes one block of
 * queries of one head, in a loop over blocks of keys. The micro-kernel of the matrix product computes a block of scores
 * [QUERIES][KEYS], which become probabilities in place, and the micro-kernel multiplies them by the values. The softmax
 * is the online one (Milakov and Gimelshein 2018; FlashAttention): each row keeps its largest score so far, and if a
 * larger one occurs, the sums so far are scaled down.
 *
 * If the processor multiplies pairs of bf16 (gemm.h) and q, k and v are bf16, keys and queries are packed in pairs
 * along d, values in pairs of keys, and probabilities are rounded to bf16 when they are stored; scores, softmax and all
 * sums stay f32.
 *
 * Sums are always in the order of the keys, so results do not depend on the number of threads. Scratch memory: the
 * packed keys and values of heads_at_once heads (2 m d floats each; at least one head, otherwise at most about
 * PACKED_BYTES), and a block of scores for each thread. */
#include <math.h>

#include "backend/cpu/isa/tiles.h"

#define QUERIES (96 / MR * MR) /* of a block: the scores of a block stay in L2 */
#define KEYS 256               /* of a block; a multiple of NR */
#define PACKED_BYTES 16000000
#define LOG2_E 1.4426950408889634
#define TASKS_PER_THREAD 4

typedef struct attention {
    const lz_call *call;
    const lz_tensor *q, *k, *v, *mask; /* q [b, h, n, d], k v [b, g, m, d], mask [b, h, n, m] or NULL */
    int64_t heads, kv_heads, n, m, d;  /* kv_heads: heads of keys in all batches, b * g */
    int64_t group;                     /* heads of queries per head of keys */
    int64_t padded_m, padded_d;        /* rounded up to whole panels */
    int64_t heads_at_once, first;      /* heads of keys that are packed at a time; the first of them */
    int64_t query_blocks, key_blocks;
    int64_t packed_floats, thread_floats; /* of one packed head; of one thread */
    bool pairs;                           /* d and the keys of a block are counted in words of two bf16 numbers */
    int64_t d_words;                      /* d, or d / 2 */
    float scale;
    float *packed, *own;
} attention;

/* The work of a task: queries first .. first + count - 1 of one head. */
typedef struct query_block {
    int64_t batch, head, first, count;
    const float *keys, *values; /* packed keys and values of this head */
    float *queries;             /* [panel][d][MR]; for tiles [32][d] words */
    float *scores;              /* [QUERIES][KEYS], then probabilities */
    float *sums;                /* [QUERIES][padded_d]: of probability times value */
    float *largest;             /* [QUERIES]: largest score so far */
    float *total;               /* [QUERIES][LANES]: partial sums of the probabilities, relative to the largest score */
    float *shrink;              /* [QUERIES]: factor for the sums so far */
} query_block;

/* Words of so many keys in a column of packed values. */
static int64_t value_words(const attention *a, int64_t keys) {
    if (!a->pairs) return keys;
    return HAS_TILES ? round_up(keys, 2 * LANES) / 2 : parts_of(keys, 2);
}

static attention plan_attention(const lz_call *call) {
    attention a = {.call = call, .q = &call->in[0], .k = &call->in[1], .v = &call->in[2]};
    a.mask = call->n_core > 3 ? &call->in[3] : NULL;
    a.heads = a.q->dims.at[1], a.n = a.q->dims.at[2], a.d = a.q->dims.at[3], a.m = a.k->dims.at[2];
    a.kv_heads = a.k->dims.at[0] * a.k->dims.at[1];
    a.group = a.heads / larger(1, a.k->dims.at[1]);
    a.padded_m = round_up(a.m, NR), a.padded_d = round_up(a.d, NR);
    a.query_blocks = parts_of(a.n, QUERIES), a.key_blocks = parts_of(a.m, KEYS);
    a.pairs = suits_pairs(a.q->dtype, a.q->strides[3], a.k->dtype, a.d, 1) && a.k->strides[3] == 1 &&
              a.v->dtype == LZ_BF16 && a.v->strides[3] == 1;
    a.d_words = a.pairs ? a.d / 2 : a.d;
    a.packed_floats = a.padded_m * a.d_words + value_words(&a, a.m) * a.padded_d;
    a.thread_floats = QUERIES * (a.d_words + KEYS + a.padded_d + LANES + 2);
    a.scale = (float)(call->params->sdpa.scale * LOG2_E); /* times log2(e): see exp2_negative */
    /* Enough heads at once that all threads have work, even if there are few queries. */
    int64_t tasks = (int64_t)lz_pool_threads(call->pool) * TASKS_PER_THREAD;
    int64_t wanted = parts_of(tasks, larger(1, a.group * a.query_blocks));
    int64_t fitting = PACKED_BYTES / (int64_t)sizeof(float) / larger(1, a.packed_floats);
    a.heads_at_once = smaller(a.kv_heads, larger(wanted, fitting));
    return a;
}

static const char *element(const lz_tensor *t, int64_t batch, int64_t head, int64_t row, int64_t column) {
    int64_t offset = batch * t->strides[0] + head * t->strides[1] + row * t->strides[2] + column * t->strides[3];
    return t->data + offset * lz_dtype_size(t->dtype);
}

/* ---- packing keys and values ------------------------------------------------------------------------------------- */

/* to[pair of keys][NR][2]: NR columns of values from column c on; the values of two consecutive keys are neighbours. */
static void pair_values(const attention *a, int64_t batch, int64_t head, int64_t start, int64_t keys, int64_t c,
                        uint16_t *to) {
    static const uint16_t zeros[NR];
    int64_t columns = smaller(NR, a->d - c);
    for (int64_t j = 0; j < 2 * value_words(a, keys); j += 2, to += 2 * NR) {
        const uint16_t *two[2];
        for (int64_t i = 0; i < 2; i++)
            two[i] = j + i < keys ? (const uint16_t *)element(a->v, batch, head, start + j + i, c) : zeros;
        for (int64_t i = 0; i < columns; i++) to[2 * i] = two[0][i], to[2 * i + 1] = two[1][i];
        for (int64_t i = columns; i < NR; i++) to[2 * i] = to[2 * i + 1] = 0;
    }
}

/* Keys: [panel of NR keys][d][NR]. Values: [block of KEYS][panel of NR columns][keys of the block][NR]. */
static void pack_key_block(void *arg, int64_t task, int thread) {
    (void)thread;
    const attention *a = arg;
    int64_t slot = task / a->key_blocks, start = task % a->key_blocks * KEYS, kv_heads = a->k->dims.at[1];
    int64_t batch = (a->first + slot) / kv_heads, head = (a->first + slot) % kv_heads;
    int64_t keys = smaller(KEYS, a->m - start);
    float *packed_keys = a->packed + slot * a->packed_floats, *packed_values = packed_keys + a->padded_m * a->d_words;
    const char *rows[NR];
    for (int64_t j = start; j < start + keys; j += NR) {
        for (int64_t i = 0; i < NR; i++) rows[i] = j + i < a->m ? element(a->k, batch, head, j + i, 0) : NULL;
        pack_panel(packed_keys + j * a->d_words, NR, rows, a->pairs ? LZ_F32 : a->k->dtype, a->k->strides[3],
                   a->d_words);
    }
    for (int64_t c = 0; c < a->d; c += NR) {
        float *to = packed_values + value_words(a, start) * a->padded_d + c * value_words(a, keys);
        if (a->pairs) {
            pair_values(a, batch, head, start, keys, c, (uint16_t *)to);
            continue;
        }
        for (int64_t i = 0; i < NR; i++) rows[i] = c + i < a->d ? element(a->v, batch, head, start, c + i) : NULL;
        pack_panel(to, NR, rows, a->v->dtype, a->v->strides[2], keys);
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* scores[rows][KEYS] (one panel of columns) = queries keys^T. */
typedef void score_kernel(int64_t d, const float *queries, const float *keys, float *scores);
#define SCORE_OF(name, pairs, rows)                                                                                    \
    static void name##_##rows(int64_t d, const float *queries, const float *keys, float *scores) {                     \
        vf acc[MR][NV];                                                                                                \
        clear(rows, acc);                                                                                              \
        add_products(pairs, rows, d, queries, 1, MR, keys, acc);                                                       \
        put(rows, acc, scores, KEYS, false);                                                                           \
    }
#define SCORE(rows) SCORE_OF(score, false, rows) WITH_PAIRS(SCORE_OF(score_pairs, true, rows))
ROW_COUNTS(SCORE)
#define SCORE_NAME(rows) score_##rows,
#define SCORE_PAIRS_NAME(rows) score_pairs_##rows,
static score_kernel *const score_kernels[2][MR] = {{ROW_COUNTS(SCORE_NAME)},
                                                   WITH_PAIRS({ROW_COUNTS(SCORE_PAIRS_NAME)})};

/* sums[rows][ld] (one panel of columns) = sums shrink + probabilities values. */
typedef void blend_kernel(int64_t keys, const float *probabilities, const float *values, const float *shrink,
                          float *sums, int64_t ld);
#define BLEND_OF(name, pairs, rows)                                                                                    \
    static void name##_##rows(int64_t keys, const float *probabilities, const float *values, const float *shrink,      \
                              float *sums, int64_t ld) {                                                               \
        vf acc[MR][NV];                                                                                                \
        clear(rows, acc);                                                                                              \
        add_products(pairs, rows, keys, probabilities, KEYS, 1, values, acc);                                          \
        _Pragma("GCC unroll 16") for (int r = 0; r < (rows); r++) for (int v = 0; v < NV; v++) {                       \
            float *to = sums + r * ld + v * LANES;                                                                     \
            store(to, load(to) * shrink[r] + acc[r][v]);                                                               \
        }                                                                                                              \
    }
#define BLEND(rows) BLEND_OF(blend, false, rows) WITH_PAIRS(BLEND_OF(blend_pairs, true, rows))
ROW_COUNTS(BLEND)
#define BLEND_NAME(rows) blend_##rows,
#define BLEND_PAIRS_NAME(rows) blend_pairs_##rows,
static blend_kernel *const blend_kernels[2][MR] = {{ROW_COUNTS(BLEND_NAME)},
                                                   WITH_PAIRS({ROW_COUNTS(BLEND_PAIRS_NAME)})};

static void score_keys(const attention *a, const query_block *b, int64_t start, int64_t keys) {
#if HAS_TILES
    if (a->pairs) {
        tiles_begin();
        for (int64_t j = 0; j < keys; j += NR)
            for (int64_t i = 0; i < b->count; i += PAIR_ROWS)
                multiply_tiles(a->d_words, b->queries + i * a->d_words, a->d_words, b->keys + (start + j) * a->d_words,
                               b->scores + i * KEYS + j, KEYS, false);
        tiles_end();
        return;
    }
#endif
    for (int64_t j = 0; j < keys; j += NR)
        for (int64_t i = 0; i < b->count; i += MR)
            score_kernels[a->pairs][smaller(MR, b->count - i) - 1](
                a->d_words, b->queries + i * a->d_words, b->keys + (start + j) * a->d_words, b->scores + i * KEYS + j);
}

static void blend_values(const attention *a, const query_block *b, int64_t start, int64_t keys) {
    /* With a causal mask, `keys` may be smaller than the packed block. */
    int64_t packed = value_words(a, smaller(KEYS, a->m - start)), words = value_words(a, keys);
    const float *values = b->values + value_words(a, start) * a->padded_d;
#if HAS_TILES
    if (a->pairs) {
        float block[PAIR_ROWS][NR] __attribute__((aligned(64)));
        tiles_begin();
        for (int64_t c = 0; c < a->d; c += NR)
            for (int64_t i = 0; i < b->count; i += PAIR_ROWS) {
                multiply_tiles(words, b->scores + i * KEYS, KEYS, values + c * packed, block[0], NR, false);
                for (int64_t r = 0; r < smaller(PAIR_ROWS, b->count - i); r++)
                    for (int v = 0; v < NV; v++) {
                        float *to = b->sums + (i + r) * a->padded_d + c + v * LANES;
                        store(to, load(to) * b->shrink[i + r] + load(block[r] + v * LANES));
                    }
            }
        tiles_end();
        return;
    }
#endif
    for (int64_t c = 0; c < a->d; c += NR)
        for (int64_t i = 0; i < b->count; i += MR)
            blend_kernels[a->pairs][smaller(MR, b->count - i) - 1](words, b->scores + i * KEYS, values + c * packed,
                                                                   b->shrink + i, b->sums + i * a->padded_d + c,
                                                                   a->padded_d);
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* 2^x for x <= 0, to about 2 ulp; results below the smallest normal number are 0. NaN stays NaN. Scores are multiplied
 * by log2(e) beforehand, because 2^x is cheaper than e^x. The polynomial is fitted to 2^x on -1/2 .. 1/2 with the least
 * relative error. */
INLINE vf exp2_negative(vf x) {
    const float magic = 0x1.8p23f; /* added to x, leaves the nearest integer in the low bits */
    vf shifted = x + magic, r = x - (shifted - magic);
    vf p = r * 0.00132647273f + 0.00967151299f;
    p = p * r + 0.0555073358f;
    p = p * r + 0.240222424f;
    p = p * r + 0.693147004f;
    p = p * r + 1.0f;
    /* unsigned, because the sum may wrap for an x that the next line masks out. */
    p *= (vf)(((vu)shifted << 23) + 0x3f800000u);
    return (vf)((vi)p & ~(vi)(x < -126.0f));
}

INLINE vf lanewise_larger(vf a, vf b) { /* b in lanes where a is NaN */
    vi take = a > b;
    return (vf)((take & (vi)a) | (~take & (vi)b));
}
INLINE float largest_lane(vf v) {
#if LANES > 8
    v = lanewise_larger(v, EXCHANGE(v, 8));
#endif
#if LANES > 4
    v = lanewise_larger(v, EXCHANGE(v, 4));
#endif
    v = lanewise_larger(v, EXCHANGE(v, 2));
    return v[0] > v[1] ? v[0] : v[1];
}

/* Applies the mask, and -infinity beyond the visible keys, to one row of a block. */
static void mask_row(const attention *a, const query_block *b, int64_t i, int64_t start, int64_t keys,
                     int64_t visible) {
    float *scores = b->scores + i * KEYS;
    if (a->pairs) /* otherwise the queries, which are f32, were scaled */
        for (int64_t j = 0; j < keys; j += LANES) store(scores + j, load(scores + j) * a->scale);
    if (a->mask) {
        float m[KEYS];
        const char *from = element(a->mask, b->batch, b->head, b->first + i, start);
        read_floats(m, from, a->mask->dtype, a->mask->strides[3], keys);
        if (a->mask->dtype == LZ_BOOL)
            for (int64_t j = 0; j < keys; j++) scores[j] = m[j] != 0 ? scores[j] : -INFINITY;
        else
            for (int64_t j = 0; j < keys; j++) scores[j] += m[j] * (float)LOG2_E;
    }
    for (int64_t j = larger(0, visible); j < round_up(keys, NR); j++) scores[j] = -INFINITY;
}

/* 2 LANES numbers at from, rounded to bf16 with ties to even, become LANES words at to; to may be from. */
INLINE void store_pairs(float *to, const float *from) {
#if defined(__AVX512BF16__)
    __m512bh words = _mm512_cvtne2ps_pbh((__m512)load(from + LANES), (__m512)load(from));
    store(to, (vf)words);
#else
    uint16_t words[2 * LANES];
    for (int i = 0; i < 2 * LANES; i++) words[i] = lz_to_bf16(from[i]);
    memcpy(to, words, sizeof words);
#endif
}

/* Replaces the scores of one row by probabilities relative to the largest score so far. pairs: they are rounded to bf16
 * and take half of the space. */
static void update_softmax(const query_block *b, int64_t i, int64_t keys, bool pairs) {
    float *scores = b->scores + i * KEYS, before = b->largest[i];
    /* Two independent chains, because a comparison has more latency than a load. */
    vf most[2] = {before - (vf){0}, before - (vf){0}};
    for (int64_t j = 0; j < keys; j += 2 * LANES)
        for (int v = 0; v < 2; v++) most[v] = lanewise_larger(load(scores + j + v * LANES), most[v]);
    float now = largest_lane(lanewise_larger(most[0], most[1]));
    /* All keys so far are masked: 2^(-inf - 0) is 0, 2^(-inf + inf) would be NaN. */
    float base = now == -INFINITY ? 0 : now;
    vf sum = {0};
    for (int64_t j = 0; j < (pairs ? round_up(keys, 2 * LANES) : keys); j += LANES) {
        vf p = exp2_negative(load(scores + j) - base);
        store(scores + j, p);
        sum += p;
    }
    for (int64_t j = 0; pairs && j < keys; j += 2 * LANES) store_pairs(scores + j / 2, scores + j);
    b->shrink[i] = exp2_negative((vf){0} + (before - base))[0];
    float *total = b->total + i * LANES;
    store(total, load(total) * b->shrink[i] + sum);
    b->largest[i] = now;
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

static void start_block(const attention *a, const query_block *b) {
    int64_t panel = a->pairs ? PAIR_ROWS : MR;
    for (int64_t i = 0; i < b->count; i += panel) {
        const char *rows[PAIR_ROWS > MR ? PAIR_ROWS : MR];
        float *to = b->queries + i * a->d_words;
        for (int64_t r = 0; r < panel; r++)
            rows[r] = i + r < b->count ? element(a->q, b->batch, b->head, b->first + i + r, 0) : NULL;
        if (HAS_TILES && a->pairs)
            for (int64_t r = 0; r < panel; r++, to += a->d_words) {
                if (rows[r])
                    memcpy(to, rows[r], (size_t)a->d_words * sizeof *to);
                else
                    memset(to, 0, (size_t)a->d_words * sizeof *to);
            }
        else
            pack_panel(to, MR, rows, a->pairs ? LZ_F32 : a->q->dtype, a->q->strides[3], a->d_words);
    }
    if (!a->pairs) /* with pairs, the scores are scaled instead */
        for (int64_t i = 0; i < round_up(b->count, MR) * a->d; i++) b->queries[i] *= a->scale;
    for (int64_t i = 0; i < b->count; i++) b->largest[i] = -INFINITY;
    memset(b->total, 0, QUERIES * LANES * sizeof(float));
    memset(b->sums, 0, (size_t)(b->count * a->padded_d) * sizeof(float));
}

static void finish_block(const attention *a, const query_block *b) {
    int64_t row = (b->batch * a->heads + b->head) * a->n + b->first;
    for (int64_t i = 0; i < b->count; i++) {
        float *sums = b->sums + i * a->padded_d;
        float total = sum_of_lanes(load(b->total + i * LANES));
        float inverse = total == 0 ? 0 : 1 / total; /* 0: all keys of the query are masked */
        for (int64_t c = 0; c < a->d; c++) sums[c] *= inverse;
        finish_row(a->call, row + i, 0, sums, a->d);
    }
}

static void attend(void *arg, int64_t task, int thread) {
    const attention *a = arg;
    bool causal = a->call->params->sdpa.causal;
    int64_t slot = task / a->query_blocks / a->group, kv_head = a->first + slot;
    /* The last queries first: with a causal mask they have most keys, and long tasks should not start last. */
    query_block b = {.first = (a->query_blocks - 1 - task % a->query_blocks) * QUERIES};
    b.count = smaller(QUERIES, a->n - b.first);
    b.batch = kv_head / a->k->dims.at[1];
    b.head = kv_head % a->k->dims.at[1] * a->group + task / a->query_blocks % a->group;
    b.keys = a->packed + slot * a->packed_floats, b.values = b.keys + a->padded_m * a->d_words;
    b.queries = a->own + thread * a->thread_floats;
    b.scores = b.queries + QUERIES * a->d_words, b.sums = b.scores + QUERIES * KEYS;
    b.total = b.sums + QUERIES * a->padded_d;
    b.largest = b.total + QUERIES * LANES, b.shrink = b.largest + QUERIES;

    start_block(a, &b);
    int64_t beyond = a->m - a->n + 1; /* with a causal mask, query i attends to keys 0 .. i + beyond - 1 */
    int64_t end = causal ? smaller(a->m, b.first + b.count - 1 + beyond) : a->m;
    for (int64_t start = 0; start < end; start += KEYS) {
        int64_t keys = smaller(KEYS, end - start);
        score_keys(a, &b, start, keys);
        for (int64_t i = 0; i < b.count; i++) {
            int64_t visible = causal ? smaller(keys, b.first + i + beyond - start) : keys;
            mask_row(a, &b, i, start, keys, visible);
            update_softmax(&b, i, keys, a->pairs);
        }
        blend_values(a, &b, start, keys);
    }
    finish_block(a, &b);
}

static int64_t sdpa_scratch(const lz_call *call) {
    attention a = plan_attention(call);
    int64_t floats = a.heads_at_once * a.packed_floats + lz_pool_threads(call->pool) * a.thread_floats;
    return floats * (int64_t)sizeof(float);
}

static bool sdpa(const lz_call *call) {
    attention a = plan_attention(call);
    if (a.kv_heads * a.group * a.n * a.d == 0) return true;
    a.packed = (float *)call->scratch;
    a.own = a.packed + a.heads_at_once * a.packed_floats;
    for (a.first = 0; a.first < a.kv_heads; a.first += a.heads_at_once) {
        int64_t heads = smaller(a.heads_at_once, a.kv_heads - a.first);
        lz_parallel(call->pool, heads * a.key_blocks, pack_key_block, &a);
        lz_parallel(call->pool, heads * a.group * a.query_blocks, attend, &a);
    }
    return true;
}

const lz_kernel ISA(lz_kernel_sdpa) = {.name = "cpu.sdpa", .run = sdpa, .scratch = sdpa_scratch};
