/* sdpa90.cu: out = softmax(scale q k^T) v on Hopper, in 16 bits, without a mask.
 *
 * A block is one warpgroup that lets the copy engine bring tiles of q, k and v into shared memory, and some that
 * compute, 64 queries each. A block stays and takes one item after the other: a tile of queries with all keys or, of the
 * last tiles, which would not keep all multiprocessors busy, with some of the keys; what comes of those is put together
 * by sdpa90_merge.cu.
 *
 * Keys come in blocks, the last one first, because only that may have some that are not there. Scores stay in
 * registers: they become shares of a row as they are (a thread's numbers of a product are also what it holds of a left
 * factor), with the running maximum and sum of FlashAttention. The matrix units are kept busy in two ways, both of
 * FlashAttention-3: a warpgroup asks for the scores of the next block before it asks for the product of the shares it
 * has with v, and turns scores into shares while the latter is under way; and IN_TURN warpgroups ask one after the
 * other, so that one's exponentials are another's products.
 *
 * Same bits from run to run: what is added in which order depends on sizes only, and on the number of multiprocessors.
 *
 * Before it, in the head: TYPE; HEAD: numbers of a row, 64 or 128; KEYS of a block; GROUPS: computing warpgroups, 2 or
 * 3; IN_TURN; hopper.cu and matrix.cu; multiply_keys: [64, KEYS] = [64, 16] [KEYS, 16]^T and multiply_values:
 * [64, HEAD] += [64, 16] [16, HEAD], the products of one instruction each.
 *
 * Legend: "group" counts the computing warpgroups, h the two rows of a lane (8 apart), j blocks of 8 columns, e the two
 * columns of a lane in such a block: number 4 j + 2 h + e of its sums. */

#include "sdpa90.h"

enum {
    STAGES = 2,         /* of keys, of values, and of queries: the next item's are loaded early */
    HALVES = HEAD / 64, /* 128 bytes of each row, one below the other */
    QUERIES = 64 * GROUPS,
    GROUP_BYTES = 64 * HEAD * 2, /* of its queries, and of what comes of them */
    HALF_BYTES = KEYS * 128,
    STAGE_BYTES = HALVES * HALF_BYTES, /* of k, and of v */
    GROUP_BARRIER = 1,                 /* their numbers; each group has one of both kinds */
    TURN_BARRIER = GROUP_BARRIER + GROUPS,
};

/* ---- items ------------------------------------------------------------------------------------------------------- */

struct item {
    int batch, head, row; /* its first query */
    int first, end;       /* blocks of keys; the same: there is nothing to do */
    int part;             /* of all parts of tiles; -1: a whole tile */
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

/* Where in a ring of stages one is; the parity changes with every round. */
struct ring {
    u32 stage, parity;
    FN void go_on() {
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        parity ^= stage == 0;
    }
};

/* Stages of k or of v, and the barriers that say which are full and which are empty. */
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
    /* This warp has read it. */
    FN void release(const ring &r) const {
        if (threadIdx.x % 32 == 0) arrive(empty + 8 * r.stage);
    }
    /* When it is empty. */
    FN void load(const ring &r, const lz_gemm_map *map, int row, int head, int batch) const {
        const u32 barrier = full + 8 * r.stage;
        wait_for(empty + 8 * r.stage, r.parity ^ 1);
        arrive_expecting(barrier, STAGE_BYTES);
#pragma unroll
        for (int half = 0; half < HALVES; half++)
            load_tile(stage(r) + half * HALF_BYTES, map, half * 64, row, head, batch, barrier);
    }
};

/* ---- a block of keys --------------------------------------------------------------------------------------------- */

#define SCORE(h, j, e) scores[4 * (j) + 2 * (h) + (e)]

struct softmax {
    float most[2], sum[2]; /* of a row: nearly the maximum; the sum of this lane's columns */
    float shrink[2];       /* what earlier sums are to be multiplied by */
};

/* Scores of keys that are not there. first: of this lane's. */
FN void hide(float (&scores)[KEYS / 2], int first, int m) {
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (first + 8 * j + e >= m) SCORE(0, j, e) = SCORE(1, j, e) = -INFINITE;
}

/* Scores become 2^(scale (score - most)). As long as they are not above 2^SLACK, most stays what it is, and what was
 * summed up too. */
#define SLACK 8.0f
FN void soften(float (&scores)[KEYS / 2], softmax &s, float scale) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = s.most[h];
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) most = fmaxf(fmaxf(most, SCORE(h, j, 0)), SCORE(h, j, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        most = (most - s.most[h]) * scale > SLACK ? most : s.most[h];
        s.shrink[h] = exp2_of((s.most[h] - most) * scale);
        s.most[h] = most;
        const float less = -most * scale;
        float sum[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                SCORE(h, j, e) = exp2_of(fmaf(SCORE(h, j, e), scale, less));
                sum[e] += SCORE(h, j, e);
            }
        s.sum[h] = fmaf(s.sum[h], s.shrink[h], sum[0] + sum[1]);
    }
}

/* As a left factor, 16 keys after the other. */
FN void round_shares(u32 (&shares)[KEYS / 16][4], const float (&scores)[KEYS / 2]) {
#pragma unroll
    for (int i = 0; i < KEYS / 4; i++) shares[i / 4][i % 4] = pair(scores[2 * i], scores[2 * i + 1], TYPE{});
}

FN void shrink_sums(float (&sums)[HEAD / 2], const softmax &s) {
    if (__all_sync(0xffffffffu, s.shrink[0] == 1.0f && s.shrink[1] == 1.0f)) return;
#pragma unroll
    for (int i = 0; i < HEAD / 2; i++) sums[i] *= s.shrink[i / 2 % 2];
}

/* Queries where products find them: in registers, as a left factor, or in shared memory, where three groups leave no
 * registers for them. */
#if GROUPS == 2
struct left {
    u32 at[HEAD / 16][4];
};
FN left queries_at(u32 queries) {
    const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
    left q;
#pragma unroll
    for (int k = 0; k < HEAD / 16; k++)
        load_blocks(q.at[k], queries + k / 4 * (64 * 128) + swizzled<128>(row * 128 + (k % 4 * 2 + lane / 16) * 16));
    return q;
}
#define QUERY(q, k) q.at[k]
#else
typedef u32 left;
FN left queries_at(u32 queries) { return queries; }
#define QUERY(q, k) (matrix_at(q + (k) / 4 * (64 * 128)) + (k) % 4 * K_STEP)
#endif

/* Both only ask the matrix units. */
FN void ask_scores(float (&scores)[KEYS / 2], const left &queries, u32 keys) {
    start_products();
#pragma unroll
    for (int k = 0; k < HEAD / 16; k++)
        multiply_keys(scores, QUERY(queries, k), matrix_at(keys + k / 4 * HALF_BYTES) + k % 4 * K_STEP, k);
    end_products();
}
FN void ask_sums(float (&sums)[HEAD / 2], const u32 (&shares)[KEYS / 16][4], u32 values) {
    start_products();
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++)
        multiply_values(sums, shares[k], turned_matrix_at(values, HALF_BYTES) + k * TURNED_K_STEP, 1);
    end_products();
}

/* ---- finishing --------------------------------------------------------------------------------------------------- */

/* 64 rows, divided and rounded, into shared memory. */
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

/* Of a part, as they are. */
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
    const u32 queries = address_of(shared), first_stage = queries + STAGES * GROUPS * GROUP_BYTES,
              barriers = first_stage + 2 * STAGES * STAGE_BYTES;
    const stages keys = {first_stage, barriers, barriers + 8 * STAGES};
    const stages values = {keys.at + STAGES * STAGE_BYTES, barriers + 16 * STAGES, barriers + 24 * STAGES};
    const u32 queries_full = barriers + 32 * STAGES, queries_empty = queries_full + 8 * STAGES * GROUPS;
    const int first_item = (int)blockIdx.x, next_item = (int)gridDim.x;
    if (threadIdx.x == 0) {
        if (queries % 1024) __trap(); /* the swizzle goes by addresses */
        keys.make();
        values.make();
        for (int i = 0; i < 2 * STAGES * GROUPS; i++) make_barrier(queries_full + 8 * i, 1); /* and queries_empty */
        show_barriers();
        expect_map(&p.q);
        expect_map(&p.k);
        expect_map(&p.v);
        expect_map(&p.out);
    }
    __syncthreads();

    if (threadIdx.x < 128) {
        keep_registers<GROUPS == 2 ? 40 : 32>();
        if (threadIdx.x == 0) {
            ring q = {0, 0}, k = {0, 0}, v = {0, 0};
            for (int number = first_item; number < p.items; number += next_item) {
                const item it = item_of(p, number);
                if (it.first == it.end) continue;
                const int head = it.head / p.heads_per_group;
                keys.load(k, &p.k, (it.end - 1) * KEYS, head, it.batch);
                k.go_on();
                for (int group = 0; group < GROUPS; group++) {
                    const u32 which = q.stage * GROUPS + group;
                    wait_for(queries_empty + 8 * which, q.parity ^ 1);
                    arrive_expecting(queries_full + 8 * which, GROUP_BYTES);
                    for (int half = 0; half < HALVES; half++)
                        load_tile(queries + which * GROUP_BYTES + half * (64 * 128), &p.q, half * 64,
                                  it.row + group * 64, it.head, it.batch, queries_full + 8 * which);
                }
                for (int i = it.end - 1; i >= it.first; i--) {
                    if (i > it.first) {
                        keys.load(k, &p.k, (i - 1) * KEYS, head, it.batch);
                        k.go_on();
                    }
                    values.load(v, &p.v, i * KEYS, head, it.batch);
                    v.go_on();
                }
                q.go_on();
            }
        }
    } else {
        take_registers<GROUPS == 2 ? 232 : 160>();
        const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0) - 1; /* the same for all: so told */
        const int lane = threadIdx.x % 32, next_group = group + 1 == GROUPS ? 0 : group + 1;
        ring q = {0, 0}, k = {0, 0}, v = {0, 0};
        float scores[KEYS / 2], sums[HEAD / 2];
        u32 shares[KEYS / 16][4];
        if (IN_TURN && next_group == 0) pass_threads(TURN_BARRIER, 256);
        for (int number = first_item; number < p.items; number += next_item) {
            const item it = item_of(p, number);
            if (it.first == it.end) continue;
            const u32 which = q.stage * GROUPS + group, mine = queries + which * GROUP_BYTES;
            softmax s = {{-INFINITE, -INFINITE}, {0, 0}, {0, 0}};
#pragma unroll
            for (int i = 0; i < HEAD / 2; i++) sums[i] = 0;
            wait_for(queries_full + 8 * which, q.parity);
            const left rows = queries_at(mine);
            keys.wait(k);
            ask_scores(scores, rows, keys.stage(k));
            wait_for_products<0>();
            keys.release(k);
            k.go_on();
            take_sums(scores);
            hide(scores, (it.end - 1) * KEYS + lane % 4 * 2, p.m);
            soften(scores, s, p.scale);
            round_shares(shares, scores);
            if (it.end - 2 >= it.first) keys.wait(k);
            for (int i = it.end - 2; i >= it.first; i--) {
                if (IN_TURN) meet_threads(TURN_BARRIER + group, 256);
                ask_scores(scores, rows, keys.stage(k));
                values.wait(v);
                ask_sums(sums, shares, values.stage(v));
                if (IN_TURN) pass_threads(TURN_BARRIER + next_group, 256);
                wait_for_products<1>();
                keys.release(k);
                k.go_on();
                take_sums(scores);
                soften(scores, s, p.scale);
                /* The compiler would put most of that behind the next wait; it does not over a branch. */
                take_sums(scores);
                if (i > it.first) keys.wait(k);
                wait_for_products<0>();
                values.release(v);
                v.go_on();
                take_sums(sums);
                shrink_sums(sums, s);
                round_shares(shares, scores);
            }
            values.wait(v);
            ask_sums(sums, shares, values.stage(v));
            wait_for_products<0>();
            values.release(v);
            v.go_on();
            take_sums(sums);
            meet_threads(GROUP_BARRIER + group, 128); /* all have read their queries */
            if (it.part < 0) {
                float inverse[2];
#pragma unroll
                for (int h = 0; h < 2; h++) inverse[h] = 1.0f / sum_lanes<4>(s.sum[h]);
                put_rows(mine, sums, inverse);
                show_copy_engine();
                meet_threads(GROUP_BARRIER + group, 128);
            } else {
                put_part(p, (i64)it.part * QUERIES + group * 64, sums, s);
            }
            if (threadIdx.x % 128 == 0) {
                for (int half = 0; half < HALVES && it.part < 0; half++)
                    store_tile(&p.out, half * 64, it.row + group * 64, it.head, it.batch, mine + half * (64 * 128));
                wait_for_stores<0>();
                arrive(queries_empty + 8 * which);
            }
            q.go_on();
        }
        if (IN_TURN && group == 0) meet_threads(TURN_BARRIER, 256); /* that nobody is left there */
    }
}
