/* gemm90.cu: out = expression(a b^T, arguments) on Hopper; a [m, k], b [n, k] and out [m, n] with dense rows. A launch
 * does one such product or several, of any sizes: the last tiles of one run beside the first of the next.
 *
 * A block is three warpgroups: one lets the copy engine bring tiles of a and b into a ring of stages in shared memory,
 * two multiply what has come and keep the sums in registers. A block stays and takes one tile of out after the other,
 * so that the next tile is being loaded while the last one is finished and stored. The multiplying warpgroups either
 * share a tile, one half of its rows each (least to load), or take tiles in turn (one finishes its tile while the other
 * multiplies). Two blocks of a cluster take tiles below each other and load one half of b each, for both. A warpgroup
 * whose rows are all beyond m only gives the stages back.
 *
 * Finishing: sums go through the expression as f32, are rounded once, and leave through shared memory in pieces of 64
 * rows that the copy engine stores; it leaves out what lies beyond the edges. Arguments of the expression are fetched
 * two pieces ahead, the first ones before the last product is done.
 *
 * Every sum is added up in the order of k by one warpgroup: same bits from run to run, whatever the number of blocks.
 *
 * Before it, in the head: PROBLEMS: room for that many products; TYPE of a and b; OUT_TYPE; COLUMNS of b in a tile;
 * BLOCKS of 64 rows of a warpgroup; IN_TURN: they take tiles in turn; STAGES; CLUSTER: blocks of one, 1 or 2;
 * STORE_COLUMNS of a piece; PAIRED: one half of a tile's columns are of b, the other half of the other b, and the
 * expression takes the sums of both; EACH_ARGUMENT(X): X(i, type, rows, kind), where rows is 1 if all rows are the same
 * and else 2; VALUES(h, j, e): their numbers, each after a comma; hopper.cu; expression; multiply: the product of one
 * instruction.
 *
 * Legend: "group" counts the multiplying warpgroups, h the two rows of a lane (8 apart), j blocks of 8 columns, e the
 * two columns of a lane in such a block. */

#include "gemm90.h"

struct lz_gemm_params {
    lz_gemm_problem problems[PROBLEMS];
};

enum {
    TILE_ROWS = 64 * BLOCKS * (IN_TURN ? 1 : 2),
    OUT_COLUMNS = PAIRED ? COLUMNS / 2 : COLUMNS,
    A_BYTES = TILE_ROWS * 128, /* 64 along k */
    B_BYTES = COLUMNS * 128,
    STAGE_BYTES = A_BYTES + B_BYTES,
    B_PARTS = PAIRED || CLUSTER == 2 ? 2 : 1,
    ROW_BYTES = STORE_COLUMNS * (int)sizeof(OUT_TYPE),
    PIECE_BYTES = 64 * ROW_BYTES,
    PIECES = OUT_COLUMNS / STORE_COLUMNS,
    BUFFERS = 2, /* pieces of a warpgroup that may be on their way out */
    PAIRS = STORE_COLUMNS / 8,
    RELEASES = CLUSTER * (IN_TURN ? 4 : 8), /* warps that read a stage */
};

/* ---- arguments of the expression --------------------------------------------------------------------------------- */

/* Of one piece, as they lie in memory. */
#define DECLARE(i, type, rows, kind) vec<type, 2> a##i[rows][PAIRS];
struct fetched {
    EACH_ARGUMENT(DECLARE)
};

/* Pairs of neighbours of a row, 8 columns apart. Beyond its end they are any: then nobody looks at what comes of them.
 * VECTOR: n is a multiple of a piece, which then is wholly inside or wholly beyond. */
template <int KIND, class T> FN void fetch_row(vec<T, 2> (&to)[PAIRS], const T *row, i64 step, int column, int n) {
    if (KIND == VECTOR) row += min(column, n - STORE_COLUMNS + column % 8);
#pragma unroll
    for (int j = 0; j < PAIRS; j++) {
        if (KIND == VECTOR) {
            load_words(to[j], row + 8 * j);
        } else if (KIND == SAME) {
            to[j].at[0] = to[j].at[1] = *row;
        } else {
            to[j].at[0] = row[min(column + 8 * j, n - 1) * step];
            to[j].at[1] = row[min(column + 8 * j + 1, n - 1) * step];
        }
    }
}

/* row, column: of this lane's first pair in the piece. */
FN void fetch(fetched &to, const lz_gemm_problem &p, int row, int column) {
#define FETCH(i, type, rows, kind)                                                                                     \
    _Pragma("unroll") for (int h = 0; h < rows; h++) {                                                                 \
        const lz_gemm_argument &x = p.arguments[i];                                                                    \
        const type *from = (const type *)x.data + min(row + 8 * h, p.m - 1) * x.row;                                   \
        fetch_row<kind>(to.a##i[h], from, x.column, column, p.n);                                                      \
    }
    EACH_ARGUMENT(FETCH)
}

/* ---- finishing --------------------------------------------------------------------------------------------------- */

/* Columns of block j of the piece for one row of this lane. */
#define SUM(h, j, e) sum[4 * (first_block + (j)) + 2 * (h) + (e)]
#if PAIRED
#define FINISHED(h, j, e) expression(SUM(h, j, e), SUM(h, (j) + COLUMNS / 16, e) VALUES(h, j, e))
#else
#define FINISHED(h, j, e) expression(SUM(h, j, e) VALUES(h, j, e))
#endif

template <class T> FN u32 rounded(float a, float b) {
    const float both[2] = {a, b};
    vec<T, 2> v;
    u32 bits;
    put_all(v, both);
    memcpy(&bits, &v, 4);
    return bits;
}

/* A piece of 16 rows of each warp into shared memory. first_block: of the sums, in blocks of 8 columns. */
template <class T, int N> struct piece {
    static FN void put(u32 to, const float (&sum)[N], int first_block, const fetched &with) {
        const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
#pragma unroll
        for (int j = 0; j < PAIRS; j += 2) {
            const u32 words[4] = {
                rounded<T>(FINISHED(0, j, 0), FINISHED(0, j, 1)), rounded<T>(FINISHED(1, j, 0), FINISHED(1, j, 1)),
                rounded<T>(FINISHED(0, j + 1, 0), FINISHED(0, j + 1, 1)),
                rounded<T>(FINISHED(1, j + 1, 0), FINISHED(1, j + 1, 1))};
            store_blocks(to + swizzled<ROW_BYTES>(row * ROW_BYTES + (j + lane / 16) * 16), words);
        }
    }
};
template <int N> struct piece<float, N> {
    static FN void put(u32 to, const float (&sum)[N], int first_block, const fetched &with) {
        const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
        for (int j = 0; j < PAIRS; j++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                store_two(to + swizzled<ROW_BYTES>((row + 8 * h) * ROW_BYTES + j * 32 + lane % 4 * 8),
                          FINISHED(h, j, 0), FINISHED(h, j, 1));
    }
};

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

struct place {
    int row, column;
};

/* The product that a tile is of. number: that of an earlier tile. */
FN const lz_gemm_problem &problem_of(const lz_gemm_params &all, int tile, int &number) {
    while (PROBLEMS > 1 && tile >= all.problems[number].end) number++;
    return all.problems[number];
}

/* Where a tile of this block begins. Some rows of tiles are walked together, column by column: what runs at one time
 * then reads few rows of a and of b. */
FN place tile_place(const lz_gemm_problem &p, int tile, int block) {
    if (PROBLEMS > 1) tile -= p.first;
    const int in_group = p.group * p.column_tiles, first = tile / in_group * p.group, at = tile % in_group;
    const int rows = min(p.row_tiles - first, p.group);
    return {((first + at % rows) * CLUSTER + block) * TILE_ROWS, at / rows * OUT_COLUMNS};
}

/* Where in the ring of stages one is; the parity changes with every round. */
struct ring {
    u32 stage, parity;
    FN void go_on() {
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        parity ^= stage == 0;
    }
    FN void skip(u32 steps) {
        const u32 to = stage + steps;
        parity ^= to / STAGES & 1;
        stage = to % STAGES;
    }
};

FN void load_stage(const lz_gemm_problem &p, u32 to, u32 barrier, int k, place at, u32 block) {
    arrive_expecting(barrier, STAGE_BYTES);
    load_tile(to, &p.a, k, at.row, barrier);
    to += A_BYTES;
#pragma unroll
    for (int part = 0; part < B_PARTS; part++) {
        if (CLUSTER == 2 && part != block) continue; /* the other block brings it */
        const u32 here = to + part * (B_BYTES / B_PARTS);
        const lz_gemm_map *b = PAIRED && part ? &p.other : &p.b;
        const int row = at.column + (PAIRED ? 0 : part * (COLUMNS / B_PARTS));
        if (CLUSTER == 2)
            load_tile_for(here, b, k, row, barrier, 3);
        else
            load_tile(here, b, k, row, barrier);
    }
}

/* This warp has read a stage: says so to every block that loads it. */
FN void release(u32 barrier) {
    const u32 lane = threadIdx.x % 32;
    if (lane < CLUSTER) CLUSTER > 1 ? arrive_at(barrier, lane) : arrive(barrier);
}

#if CLUSTER > 1
#define CLUSTERED __cluster_dims__(CLUSTER, 1, 1)
#else
#define CLUSTERED
#endif

extern "C" __global__ void CLUSTERED __launch_bounds__(384, 1) gemm90(const __grid_constant__ lz_gemm_params all) {
    extern __shared__ __align__(1024) char shared[];
    const u32 stages = address_of(shared), pieces = stages + STAGES * STAGE_BYTES,
              full = pieces + 2 * BUFFERS * PIECE_BYTES, empty = full + STAGES * 8;
    const u32 block = CLUSTER > 1 ? block_of_cluster() : 0;
    const int tiles = all.problems[PROBLEMS - 1].end, first_tile = (int)blockIdx.x / CLUSTER,
              next_tile = (int)gridDim.x / CLUSTER;
    if (threadIdx.x == 0) {
        if (stages % 1024) __trap(); /* the swizzle goes by addresses */
        for (int i = 0; i < STAGES; i++) {
            make_barrier(full + 8 * i, 1);
            make_barrier(empty + 8 * i, RELEASES);
        }
        show_barriers();
    }
    if (threadIdx.x < PROBLEMS) {
        const lz_gemm_problem &p = all.problems[PROBLEMS == 1 ? 0 : threadIdx.x];
        if (p.first < p.end) {
            expect_map(&p.a);
            expect_map(&p.b);
            if (PAIRED) expect_map(&p.other);
            expect_map(&p.out);
        }
    }
    if (CLUSTER > 1)
        meet_cluster();
    else
        __syncthreads();

    if (threadIdx.x < 128) {
        keep_registers<40>();
        if (threadIdx.x == 0) {
            ring r = {0, 0};
            int number = 0;
            for (int tile = first_tile; tile < tiles; tile += next_tile) {
                const lz_gemm_problem &p = problem_of(all, tile, number);
                const place at = tile_place(p, tile, block);
                for (int step = 0; step < p.steps; step++, r.go_on()) {
                    wait_for(empty + 8 * r.stage, r.parity ^ 1);
                    load_stage(p, stages + r.stage * STAGE_BYTES, full + 8 * r.stage, step * 64, at, block);
                }
            }
        }
    } else {
        take_registers<232>();
        const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0) - 1; /* the same for all: so told */
        const int lane = threadIdx.x % 32, group_row = IN_TURN ? 0 : group * 64 * BLOCKS;
        const bool leads = threadIdx.x % 128 == 0;
        const u32 group_pieces = pieces + group * BUFFERS * PIECE_BYTES;
        u32 buffer = 0;
        ring r = {0, 0};
        float sum[BLOCKS][COLUMNS / 2];
        int turn = 0, number = 0;
        for (int tile = first_tile; tile < tiles; tile += next_tile, turn ^= 1) {
            const lz_gemm_problem &p = problem_of(all, tile, number);
            if (IN_TURN && turn != group) {
                r.skip(p.steps);
                continue;
            }
            const place at = tile_place(p, tile, block);
            const int row = at.row + group_row;
            if (!IN_TURN && row >= p.m) { /* nothing to multiply, but the other warpgroups need these stages */
                for (int step = 0; step < p.steps; step++, r.go_on()) {
                    wait_for(full + 8 * r.stage, r.parity);
                    __syncwarp(); /* all lanes have seen it: none is left to wait for a round that is long over */
                    release(empty + 8 * r.stage);
                }
                continue;
            }
            u32 last = 0;
            /* A barrier's parity tells one round from the next, not from the one after: nobody may wait further ahead.
             * So a warpgroup begins when the other has seen the last stage of its tile. */
            if (IN_TURN && tile != first_tile) meet_threads(3 + group, 256);
            for (int step = 0; step < p.steps; step++, r.go_on()) {
                const u32 here = stages + r.stage * STAGE_BYTES;
                wait_for(full + 8 * r.stage, r.parity);
                start_products();
#pragma unroll
                for (int k = 0; k < 4; k++)
#pragma unroll
                    for (int b = 0; b < BLOCKS; b++)
                        multiply(sum[b], matrix_at(here + (group_row + 64 * b) * 128) + k * K_STEP,
                                 matrix_at(here + A_BYTES) + k * K_STEP, step | k);
                end_products();
                wait_for_products<1>(); /* those of the step before are done: its stage may be loaded again */
                if (step) release(last);
                last = empty + 8 * r.stage;
            }
            if (IN_TURN && tile + next_tile < tiles) pass_threads(3 + (group ^ 1), 256);
            const int lane_row = row + threadIdx.x % 128 / 32 * 16 + lane / 4, lane_column = at.column + lane % 4 * 2;
            fetched ahead[2];
            fetch(ahead[0], p, lane_row, lane_column);
            if (BLOCKS * PIECES > 1)
                fetch(ahead[1], p, lane_row + 1 / PIECES * 64, lane_column + 1 % PIECES * STORE_COLUMNS);
            wait_for_products<0>();
            release(last);
#pragma unroll
            for (int b = 0; b < BLOCKS; b++) take_sums(sum[b]);
#pragma unroll
            for (int i = 0; i < BLOCKS * PIECES; i++) {
                const int b = i / PIECES, part = i % PIECES, next = i + 2;
                const u32 to = group_pieces + buffer * PIECE_BYTES;
                if (leads) wait_for_stores<BUFFERS - 1>();
                meet_threads(1 + group, 128);
                piece<OUT_TYPE, COLUMNS / 2>::put(to, sum[b], part * PAIRS, ahead[i % 2]);
                show_copy_engine(); /* may wait for loads under way: later ones begin behind it */
                if (next < BLOCKS * PIECES)
                    fetch(ahead[i % 2], p, lane_row + next / PIECES * 64, lane_column + next % PIECES * STORE_COLUMNS);
                meet_threads(1 + group, 128);
                if (leads) store_tile(&p.out, at.column + part * STORE_COLUMNS, row + 64 * b, to);
                buffer ^= 1;
            }
        }
        if (leads) wait_for_stores<0>();
    }
    if (CLUSTER > 1) meet_cluster(); /* nobody leaves while the other block may write to it */
}
