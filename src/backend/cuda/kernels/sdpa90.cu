/* sdpa90.cu: out = softmax(scale q k^T) v on Hopper, in 16-bit types or with products of f8, without a mask.
 *
 * A thread block has a producer warpgroup, which makes the copy engine (TMA) load tiles of q, k and v into shared
 * memory, and GROUPS computing warpgroups with 64 queries each. A block is persistent: it computes one item after
 * another. An item is a tile of queries with all keys or, for the last tiles, which are too few to keep all
 * multiprocessors busy, a tile with some of the keys; sdpa90_merge.cu merges these parts.
 *
 * Keys are loaded in blocks, the last block first, because only that one may be incomplete. Scores stay in registers
 * and become probabilities in place, with the running maximum and sum of FlashAttention; a thread's elements of the
 * scores are also its elements of the left operand of the product with v. The matrix units are kept busy in two ways,
 * both from FlashAttention-3: a warpgroup issues the scores of the next block before the product of the current
 * probabilities with v, and computes the softmax while the latter runs; and with PINGPONG, warpgroups issue products
 * alternately, so that the exponentials of one overlap with the products of another.
 *
 * The order of every sum depends only on sizes and on the number of multiprocessors, so results are the same from run
 * to run.
 *
 * With NARROW, q and k are f8, and sdpa90_values.cu has rounded v to f8 and transposed it, because the matrix units read
 * f8 along the summed axis only. The values of a block of keys share a power of two, 2^exponent. It is a factor of the
 * probabilities of that block, so its exponent is added to their exponents, at no cost, and it is divided out of their
 * sum. The probabilities are rounded to f8 as well, after a factor of 2^TOP that uses most of its range.
 *
 * Defined in the head: TYPE; NARROW; OPERAND, which is f8 with NARROW and TYPE otherwise; HEAD, the head size, 64 or 128;
 * KEYS of a block, with NARROW a multiple of 64; STAGES of keys and of values, as many as fit: a load takes as long as the
 * products of f8 with a block; GROUPS, 2 or 3; PINGPONG; hopper.cu and matrix.cu; the products of one instruction, with STEP = 16 or 32 numbers: multiply_keys, [64, KEYS] = [64, STEP] [KEYS, STEP]^T, and multiply_values,
 * [64, HEAD] += [64, STEP] [STEP, HEAD].
 *
 * Legend: "group" is the index of a computing warpgroup, h of the two rows of a lane (8 apart), j of a block of 8
 * columns, e of the two columns of a lane in such a block. A lane has them in element 4 j + 2 h + e of its sums. */

#include "sdpa90.h"

enum {
    QUERY_STAGES = 2,            /* the next item is loaded early */
    SIZE = sizeof(OPERAND),      /* bytes */
    STEP = 32 / SIZE,            /* numbers that one instruction multiplies for a sum */
    QUERIES = 64 * GROUPS,
    GROUP_BYTES = 64 * HEAD * 2, /* queries of a group, later its output */
    /* Rows of 128 or 64 bytes. A part of a matrix has so many bytes of all its rows. */
    KEY_ROW = HEAD * SIZE < 128 ? HEAD * SIZE : 128, /* of queries and keys */
    KEY_PARTS = HEAD * SIZE / KEY_ROW,
    KEY_STEPS = KEY_ROW / 32, /* steps of a part */
    QUERY_BYTES = 64 * KEY_ROW,
    KEY_BYTES = KEYS * KEY_ROW,
    VALUE_ROW = NARROW && KEYS % 128 ? 64 : 128,
    VALUE_PARTS = (NARROW ? KEYS : HEAD * SIZE) / VALUE_ROW,
    VALUE_STEPS = VALUE_ROW / 32,
    STAGE_BYTES = KEY_PARTS * KEY_BYTES, /* a stage of k or of v */
    VALUE_BYTES = STAGE_BYTES / VALUE_PARTS,
    GROUP_BARRIER = 1,                 /* first number of the named barriers; each group has one of both kinds */
    ORDER_BARRIER = GROUP_BARRIER + GROUPS,
};

/* ---- items ------------------------------------------------------------------------------------------------------- */

struct item {
    int batch, head, row; /* row: first query */
    int first, end;       /* range of blocks of keys; equal: no work */
    int part;             /* index of the part; -1: a whole tile */
};

FN item item_of(const lz_sdpa90_params &p, int number) {
    const lz_sdpa90_split &s = p.split;
    int tile = number, first = 0, end = s.blocks, part = -1;
    if (number >= s.whole) {
        const int second = number - s.whole >= s.ranges, range = number - s.whole - second * s.ranges;
        const int begin = range_start(s, range), behind = range_start(s, range + 1),
                  cut = (begin / s.blocks + 1) * s.blocks;
        tile = s.whole + begin / s.blocks + second;
        first = second ? 0 : begin % s.blocks;
        end = second ? max(behind - cut, 0) : min(behind, cut) - (cut - s.blocks);
        part = 2 * range + second;
    }
    const int head = tile / s.row_tiles;
    return {head / s.heads, head % s.heads, tile % s.row_tiles * QUERIES, first, end, part};
}

/* A position in a ring of N stages. The parity changes with every round. */
template <int N> struct ring_of {
    u32 stage, parity;
    FN void go_on() {
        stage = stage + 1 == N ? 0 : stage + 1;
        parity ^= stage == 0;
    }
};

typedef ring_of<STAGES> ring;

/* The stages of k or of v, with their `full` and `empty` barriers. */
struct stages {
    u32 at, full, empty;
    FN void make() const {
        for (int i = 0; i < STAGES; i++) {
            make_barrier(full + 8 * i, 1);
            make_barrier(empty + 8 * i, GROUPS * 4);
        }
    }
    FN u32 stage(const ring &r) const { return at + r.stage * STAGE_BYTES; }
    FN void wait(const ring &r) const { wait_for(full + 8 * r.stage, r.parity); }
    /* This warp has read the stage. */
    FN void release(const ring &r) const {
        if (threadIdx.x % 32 == 0) arrive(empty + 8 * r.stage);
    }
    /* Waits until the stage is empty, and starts loading its PARTS. Rows are keys or, of transposed values, columns are
     * keys. */
    template <int PARTS, int ROW_BYTES, bool TRANSPOSED>
    FN void load(const ring &r, const lz_gemm_map *map, int key, int head, int batch) const {
        const u32 barrier = full + 8 * r.stage;
        wait_for(empty + 8 * r.stage, r.parity ^ 1);
        arrive_expecting(barrier, STAGE_BYTES);
#pragma unroll
        for (int i = 0; i < PARTS; i++)
            load_tile(stage(r) + i * (STAGE_BYTES / PARTS), map, i * (ROW_BYTES / SIZE) + (TRANSPOSED ? key : 0),
                      TRANSPOSED ? 0 : key, head, batch, barrier);
    }
    FN void load_keys(const ring &r, const lz_sdpa90_params &p, int key, int head, int batch) const {
        load<KEY_PARTS, KEY_ROW, false>(r, &p.k, key, head, batch);
    }
    FN void load_values(const ring &r, const lz_sdpa90_params &p, int key, int head, int batch) const {
        load<VALUE_PARTS, VALUE_ROW, NARROW>(r, &p.v, key, head, batch);
    }
};

/* ---- a block of keys --------------------------------------------------------------------------------------------- */

#define SCORE(h, j, e) scores[4 * (j) + 2 * (h) + (e)]

struct softmax {
    float most[2], sum[2]; /* of each row: the reference maximum (see SLACK); the sum of this lane's columns */
    float shrink[2];       /* factor for the sums so far */
};

/* Sets the scores of keys beyond m to minus infinity. first: this lane's first key. */
FN void hide(float (&scores)[KEYS / 2], int first, int m) {
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (first + 8 * j + e >= m) SCORE(0, j, e) = SCORE(1, j, e) = -INFINITE;
}

/* Replaces scores by 2^(scale (score - most) + exponent + TOP), and adds them, times 2^-exponent, to the sum. `most` is the
 * largest score plus exponent / scale. As long as no result is above 2^(TOP + SLACK), it is not updated, so that the sums
 * need not be rescaled. f8 ends at 448, which is 2^8.8. */
#if NARROW
#define TOP 7.0f
#define SLACK 1.75f
#else
#define TOP 0.0f
#define SLACK 8.0f
#endif
FN void update_softmax(float (&scores)[KEYS / 2], softmax &s, const lz_sdpa90_params &p, float exponent) {
    const float scale = p.scale, offset = exponent * p.unscale, without = NARROW ? exp2_of(-exponent) : 1.0f;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = -INFINITE;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) most = fmaxf(fmaxf(most, SCORE(h, j, 0)), SCORE(h, j, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2)) + offset;
        most = (most - s.most[h]) * scale > SLACK ? most : s.most[h];
        s.shrink[h] = exp2_of((s.most[h] - most) * scale);
        s.most[h] = most;
        const float less = fmaf(-most, scale, exponent + TOP);
        float sum[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                SCORE(h, j, e) = exp2_of(fmaf(SCORE(h, j, e), scale, less));
                sum[e] += SCORE(h, j, e);
            }
        s.sum[h] = fmaf(s.sum[h], s.shrink[h], (sum[0] + sum[1]) * without);
    }
}

/* Rounds the probabilities and arranges them as a left operand, STEP keys at a time. With NARROW a lane has 4 neighbouring
 * keys of 16 in a register, and its scores are those of 2 and 2 neighbours; so each 16 keys are in another order, and
 * sdpa90_values.cu stores the values in that order. */
FN void round_probs(u32 (&probs)[KEYS / STEP][4], const float (&scores)[KEYS / 2]) {
#if NARROW
#pragma unroll
    for (int i = 0; i < KEYS / 8; i++) { /* words of 16 keys: row 0, row 1 */
        const int j = i / 2 * 2, h = i % 2;
        probs[i / 4][i % 4] = (u32)two_codes(SCORE(h, j, 0), SCORE(h, j, 1)) |
                              (u32)two_codes(SCORE(h, j + 1, 0), SCORE(h, j + 1, 1)) << 16;
    }
#else
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++) probs[i / 4][i % 4] = pair(scores[2 * i], scores[2 * i + 1], TYPE{});
#endif
}

FN void shrink_sums(float (&sums)[HEAD / 2], const softmax &s) {
    if (__all_sync(0xffffffffu, s.shrink[0] == 1.0f && s.shrink[1] == 1.0f)) return;
#pragma unroll
    for (int i = 0; i < HEAD / 2; i++) sums[i] *= s.shrink[i / 2 % 2];
}

/* The queries as the left operand of products: with two groups in registers; three groups leave no registers for them,
 * so they stay in shared memory. */
#if GROUPS == 2
struct left {
    u32 at[HEAD / STEP][4];
};
FN left queries_at(u32 queries) {
    const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
    left q;
#pragma unroll
    for (int k = 0; k < HEAD / STEP; k++)
        load_blocks(q.at[k], queries + k / KEY_STEPS * QUERY_BYTES +
                                 swizzled<KEY_ROW>(row * KEY_ROW + (k % KEY_STEPS * 2 + lane / 16) * 16));
    return q;
}
#define QUERY(q, k) q.at[k]
#else
typedef u32 left;
FN left queries_at(u32 queries) { return queries; }
#define QUERY(q, k) (matrix_at<KEY_ROW>(q + (k) / KEY_STEPS * QUERY_BYTES) + (k) % KEY_STEPS * K_STEP)
#endif

/* Both only issue the products, and do not wait for them. */
FN void issue_scores(float (&scores)[KEYS / 2], const left &queries, u32 keys) {
    start_products();
#pragma unroll
    for (int k = 0; k < HEAD / STEP; k++)
        multiply_keys(scores, QUERY(queries, k),
                      matrix_at<KEY_ROW>(keys + k / KEY_STEPS * KEY_BYTES) + k % KEY_STEPS * K_STEP, k);
    end_products();
}
FN void issue_sums(float (&sums)[HEAD / 2], const u32 (&probs)[KEYS / STEP][4], u32 values) {
    start_products();
#pragma unroll
    for (int k = 0; k < KEYS / STEP; k++) {
#if NARROW
        const u64 right = matrix_at<VALUE_ROW>(values + k / VALUE_STEPS * VALUE_BYTES) + k % VALUE_STEPS * K_STEP;
#else
        const u64 right = transposed_matrix_at(values, VALUE_BYTES) + k * TRANSPOSED_K_STEP;
#endif
        multiply_values(sums, probs[k], right, 1);
    }
    end_products();
}

/* The exponent of the values of a block of keys. head: of the keys. */
FN float exponent_of(const lz_sdpa90_params &p, const item &it, int head, int block) {
    return NARROW ? p.exponents[(it.batch * p.groups + head) * p.split.blocks + block] : 0.0f;
}

/* ---- finishing --------------------------------------------------------------------------------------------------- */

/* Writes 64 rows, divided and rounded, to shared memory. */
FN void put_rows(u32 to, const float (&sums)[HEAD / 2], const float (&inverse)[2]) {
    const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
    for (int j = 0; j < HEAD / 8; j += 2) {
        u32 words[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float by = inverse[i % 2];
            words[i] = pair(sums[4 * j + 2 * i] * by, sums[4 * j + 2 * i + 1] * by, TYPE{});
        }
        store_blocks(to + j / 8 * (64 * 128) + swizzled<128>(row * 128 + (j % 8 + lane / 16) * 16), words);
    }
}

/* Stores the undivided sums of a part, with maximum and sum of each row. */
FN void put_part(const lz_sdpa90_params &p, i64 first_row, const float (&sums)[HEAD / 2], const softmax &s) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const i64 row = first_row + threadIdx.x % 128 / 32 * 16 + lane / 4 + 8 * h;
        const float sum = sum_lanes<4>(s.sum[h]);
        if (lane % 4 == 0) ((float2 *)p.split.rows)[row] = make_float2(s.most[h], sum);
#pragma unroll
        for (int j = 0; j < HEAD / 8; j++)
            ((float2 *)p.split.sums)[row * (HEAD / 2) + 4 * j + lane % 4] = make_float2(sums[4 * j + 2 * h],
                                                                                        sums[4 * j + 2 * h + 1]);
    }
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

extern "C" __global__ void __launch_bounds__(128 * (GROUPS + 1), 1) sdpa90(const __grid_constant__ lz_sdpa90_params p) {
    extern __shared__ __align__(1024) char shared[];
    const u32 queries = address_of(shared), first_stage = queries + QUERY_STAGES * GROUPS * GROUP_BYTES,
              barriers = first_stage + 2 * STAGES * STAGE_BYTES;
    const stages keys = {first_stage, barriers, barriers + 8 * STAGES};
    const stages values = {keys.at + STAGES * STAGE_BYTES, barriers + 16 * STAGES, barriers + 24 * STAGES};
    const u32 queries_full = barriers + 32 * STAGES, queries_empty = queries_full + 8 * QUERY_STAGES * GROUPS;
    const int first_item = (int)blockIdx.x, next_item = (int)gridDim.x;
    if (threadIdx.x == 0) {
        if (queries % 1024) __trap(); /* the swizzle depends on address bits */
        keys.make();
        values.make();
        /* queries_full, and queries_empty after them */
        for (int i = 0; i < 2 * QUERY_STAGES * GROUPS; i++) make_barrier(queries_full + 8 * i, 1);
        fence_barriers();
        prefetch_map(&p.q);
        prefetch_map(&p.k);
        prefetch_map(&p.v);
        prefetch_map(&p.out);
    }
    __syncthreads();

    if (threadIdx.x < 128) {
        decrease_registers<GROUPS == 2 ? 40 : 32>();
        if (threadIdx.x == 0) {
            ring_of<QUERY_STAGES> q = {0, 0};
            ring k = {0, 0}, v = {0, 0};
            for (int number = first_item; number < p.items; number += next_item) {
                const item it = item_of(p, number);
                if (it.first == it.end) continue;
                const int head = it.head / p.heads_per_group;
                keys.load_keys(k, p, (it.end - 1) * KEYS, head, it.batch);
                k.go_on();
                for (int group = 0; group < GROUPS; group++) {
                    const u32 which = q.stage * GROUPS + group;
                    wait_for(queries_empty + 8 * which, q.parity ^ 1);
                    arrive_expecting(queries_full + 8 * which, KEY_PARTS * QUERY_BYTES);
                    for (int part = 0; part < KEY_PARTS; part++)
                        load_tile(queries + which * GROUP_BYTES + part * QUERY_BYTES, &p.q, part * (KEY_ROW / SIZE),
                                  it.row + group * 64, it.head, it.batch, queries_full + 8 * which);
                }
                for (int i = it.end - 1; i >= it.first; i--) {
                    if (i > it.first) {
                        keys.load_keys(k, p, (i - 1) * KEYS, head, it.batch);
                        k.go_on();
                    }
                    values.load_values(v, p, i * KEYS, head, it.batch);
                    v.go_on();
                }
                q.go_on();
            }
        }
    } else {
        increase_registers<GROUPS == 2 ? 232 : 160>();
        /* The shuffle tells the compiler that `group` is uniform. */
        const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0) - 1;
        const int lane = threadIdx.x % 32, next_group = group + 1 == GROUPS ? 0 : group + 1;
        ring_of<QUERY_STAGES> q = {0, 0};
        ring k = {0, 0}, v = {0, 0};
        float scores[KEYS / 2], sums[HEAD / 2];
        u32 probs[KEYS / STEP][4];
        if (PINGPONG && next_group == 0) arrive_threads(ORDER_BARRIER, 256);
        for (int number = first_item; number < p.items; number += next_item) {
            const item it = item_of(p, number);
            if (it.first == it.end) continue;
            const u32 which = q.stage * GROUPS + group, mine = queries + which * GROUP_BYTES;
            const int head = it.head / p.heads_per_group;
            const float last_exponent = exponent_of(p, it, head, it.end - 1);
            float next_exponent = exponent_of(p, it, head, max(it.end - 2, it.first));
            softmax s = {{-INFINITE, -INFINITE}, {0, 0}, {0, 0}};
#pragma unroll
            for (int i = 0; i < HEAD / 2; i++) sums[i] = 0;
            wait_for(queries_full + 8 * which, q.parity);
            const left rows = queries_at(mine);
            keys.wait(k);
            issue_scores(scores, rows, keys.stage(k));
            wait_for_products<0>();
            keys.release(k);
            k.go_on();
            use_sums(scores);
            hide(scores, (it.end - 1) * KEYS + lane % 4 * 2, p.m);
            update_softmax(scores, s, p, last_exponent);
            round_probs(probs, scores);
            if (it.end - 2 >= it.first) keys.wait(k);
            for (int i = it.end - 2; i >= it.first; i--) {
                const float exponent = next_exponent;
                next_exponent = exponent_of(p, it, head, max(i - 1, it.first)); /* read a block ahead */
                if (PINGPONG) sync_threads(ORDER_BARRIER + group, 256);
                issue_scores(scores, rows, keys.stage(k));
                values.wait(v);
                issue_sums(sums, probs, values.stage(v));
                if (PINGPONG) arrive_threads(ORDER_BARRIER + next_group, 256);
                wait_for_products<1>();
                keys.release(k);
                k.go_on();
                use_sums(scores);
                update_softmax(scores, s, p, exponent);
                /* Keeps the softmax before the next wait: the compiler would move most of it after that. */
                use_sums(scores);
                if (i > it.first) keys.wait(k);
                wait_for_products<0>();
                values.release(v);
                v.go_on();
                use_sums(sums);
                shrink_sums(sums, s);
                round_probs(probs, scores);
            }
            values.wait(v);
            issue_sums(sums, probs, values.stage(v));
            wait_for_products<0>();
            values.release(v);
            v.go_on();
            use_sums(sums);
            sync_threads(GROUP_BARRIER + group, 128); /* all threads of the group have read their queries */
            if (it.part < 0) {
                float inverse[2];
#pragma unroll
                for (int h = 0; h < 2; h++) inverse[h] = 1.0f / sum_lanes<4>(s.sum[h]);
                put_rows(mine, sums, inverse);
                fence_copy_engine();
                sync_threads(GROUP_BARRIER + group, 128);
            } else {
                put_part(p, (i64)it.part * QUERIES + group * 64, sums, s);
            }
            if (threadIdx.x % 128 == 0) {
                for (int part = 0; part < HEAD / 64 && it.part < 0; part++)
                    store_tile(&p.out, part * 64, it.row + group * 64, it.head, it.batch, mine + part * (64 * 128));
                wait_for_stores<0>();
                arrive(queries_empty + 8 * which);
            }
            q.go_on();
        }
        if (PINGPONG && group == 0) sync_threads(ORDER_BARRIER, 256); /* matches the last arrive_threads */
    }
}
