/* gemm90.cu: out = expression(a b^T, arguments) on Hopper; a [m, k], b [n, k] and out [m, n] have contiguous rows. A
 * launch computes one product or several, of any sizes: the last tiles of one product run at the same time as the first
 * of the next.
 *
 * A thread block is persistent: it computes one tile of out after another, so that the next tile is loaded while the
 * last one is finished and stored. It has three warpgroups. The first, the producer, makes the copy engine (TMA) load
 * tiles of a and b into a ring of stages in shared memory. The other two multiply the loaded stages and keep the sums
 * in registers. They either share a tile, with one half of its rows each (fewest loads), or compute alternate tiles
 * (PINGPONG: one finishes its tile while the other multiplies). The two blocks of a cluster compute tiles below each
 * other, and each loads one half of b for both. A warpgroup whose rows are all beyond m only releases the stages.
 *
 * Finishing a tile: the expression is applied to the sums in f32, the result is rounded once, written to shared memory
 * in pieces of 64 rows, and stored by the copy engine, which ignores elements beyond the edges of out. Arguments of the
 * expression are loaded two pieces ahead, the first ones before the last product is done.
 *
 * Every sum is computed in the order of k by one warpgroup, so results do not depend on the number of blocks.
 *
 * Defined in the head: PROBLEMS, the number of products that lz_gemm_params has space for; TYPE of a and b; OUT_TYPE;
 * COLUMNS of b in a tile; BLOCKS of 64 rows of a warpgroup; PINGPONG; STAGES; CLUSTER: thread blocks of a cluster, 1 or
 * 2; STORE_COLUMNS of a piece; PAIRED: one half of a tile's columns is of b, the other half of the second b, and the
 * expression takes the sums of both; EACH_ARGUMENT(X): X(i, type, rows, kind), where rows is 1 if all rows are the
 * same, else 2; VALUES(h, j, e): the values of the arguments, each after a comma; hopper.cu; expression; multiply: the
 * product of one instruction.
 *
 * Legend: "group" is the index of a multiplying warpgroup, h of the two rows of a lane (8 apart), j of a block of 8
 * columns, e of the two columns of a lane in such a block. */

#include "gemm90.h"

struct lz_gemm_params {
    lz_gemm_problem problems[PROBLEMS];
};

enum {
    TILE_ROWS = 64 * BLOCKS * (PINGPONG ? 1 : 2),
    OUT_COLUMNS = PAIRED ? COLUMNS / 2 : COLUMNS,
    A_BYTES = TILE_ROWS * 128, /* 64 elements along k */
    B_BYTES = COLUMNS * 128,
    STAGE_BYTES = A_BYTES + B_BYTES,
    B_PARTS = PAIRED || CLUSTER == 2 ? 2 : 1,
    ROW_BYTES = STORE_COLUMNS * (int)sizeof(OUT_TYPE),
    PIECE_BYTES = 64 * ROW_BYTES,
    PIECES = OUT_COLUMNS / STORE_COLUMNS,
    BUFFERS = 2, /* pieces of a warpgroup that the copy engine may be storing */
    PAIRS = STORE_COLUMNS / 8,
    RELEASES = CLUSTER * (PINGPONG ? 4 : 8), /* warps that read a stage */
};

/* ---- arguments of the expression --------------------------------------------------------------------------------- */

/* The arguments of one piece, in their stored types. */
#define DECLARE(i, type, rows, kind) vec<type, 2> a##i[rows][PAIRS];
struct fetched {
    EACH_ARGUMENT(DECLARE)
};

/* Loads pairs of neighbouring elements of a row, 8 columns apart. Beyond the end of the row, other elements are loaded,
 * whose results are not stored. VECTOR: n is a multiple of STORE_COLUMNS, so a piece is entirely inside or entirely
 * outside. */
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

/* row, column: position in out of this lane's first pair in the piece. */
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

/* The finished value in row h, block j of the piece, column e of this lane. */
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

/* Writes a piece to shared memory, 16 rows for each warp. first_block: index of the piece's first block of 8
 * columns. */
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

struct origin {
    int row, column;
};

/* The product that a tile belongs to. number: the product of an earlier tile; updated. */
FN const lz_gemm_problem &problem_of(const lz_gemm_params &all, int tile, int &number) {
    while (PROBLEMS > 1 && tile >= all.problems[number].end) number++;
    return all.problems[number];
}

/* The first row and column of this block's tile. Tiles are processed in groups of p.group rows of tiles, column by
 * column, so that tiles that run at the same time read few rows of a and b. */
FN origin tile_origin(const lz_gemm_problem &p, int tile, int block) {
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

FN void load_stage(const lz_gemm_problem &p, u32 to, u32 barrier, int k, origin at, u32 block) {
    arrive_expecting(barrier, STAGE_BYTES);
    load_tile(to, &p.a, k, at.row, barrier);
    to += A_BYTES;
#pragma unroll
    for (int part = 0; part < B_PARTS; part++) {
        if (CLUSTER == 2 && part != block) continue; /* the other block of the cluster loads it */
        const u32 here = to + part * (B_BYTES / B_PARTS);
        const lz_gemm_map *b = PAIRED && part ? &p.other : &p.b;
        const int row = at.column + (PAIRED ? 0 : part * (COLUMNS / B_PARTS));
        if (CLUSTER == 2)
            load_tile_for(here, b, k, row, barrier, 3);
        else
            load_tile(here, b, k, row, barrier);
    }
}

/* This warp has read a stage: arrives at the `empty` barrier of every block that loads it. */
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
        if (stages % 1024) __trap(); /* the swizzle depends on address bits */
        for (int i = 0; i < STAGES; i++) {
            make_barrier(full + 8 * i, 1);
            make_barrier(empty + 8 * i, RELEASES);
        }
        fence_barriers();
    }
    if (threadIdx.x < PROBLEMS) {
        const lz_gemm_problem &p = all.problems[PROBLEMS == 1 ? 0 : threadIdx.x];
        if (p.first < p.end) {
            prefetch_map(&p.a);
            prefetch_map(&p.b);
            if (PAIRED) prefetch_map(&p.other);
            prefetch_map(&p.out);
        }
    }
    if (CLUSTER > 1)
        sync_cluster();
    else
        __syncthreads();

    if (threadIdx.x < 128) {
        decrease_registers<40>();
        if (threadIdx.x == 0) {
            ring r = {0, 0};
            int number = 0;
            for (int tile = first_tile; tile < tiles; tile += next_tile) {
                const lz_gemm_problem &p = problem_of(all, tile, number);
                const origin at = tile_origin(p, tile, block);
                for (int step = 0; step < p.steps; step++, r.go_on()) {
                    wait_for(empty + 8 * r.stage, r.parity ^ 1);
                    load_stage(p, stages + r.stage * STAGE_BYTES, full + 8 * r.stage, step * 64, at, block);
                }
            }
        }
    } else {
        increase_registers<232>();
        /* The shuffle tells the compiler that `group` is uniform. */
        const int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128, 0) - 1;
        const int lane = threadIdx.x % 32, group_row = PINGPONG ? 0 : group * 64 * BLOCKS;
        const bool leads = threadIdx.x % 128 == 0;
        const u32 group_pieces = pieces + group * BUFFERS * PIECE_BYTES;
        u32 buffer = 0;
        ring r = {0, 0};
        float sum[BLOCKS][COLUMNS / 2];
        int tile_parity = 0, number = 0;
        for (int tile = first_tile; tile < tiles; tile += next_tile, tile_parity ^= 1) {
            const lz_gemm_problem &p = problem_of(all, tile, number);
            if (PINGPONG && tile_parity != group) {
                r.skip(p.steps);
                continue;
            }
            const origin at = tile_origin(p, tile, block);
            const int row = at.row + group_row;
            if (!PINGPONG && row >= p.m) { /* no rows to multiply, but the stages must be released */
                for (int step = 0; step < p.steps; step++, r.go_on()) {
                    wait_for(full + 8 * r.stage, r.parity);
                    __syncwarp(); /* all lanes have passed the wait before the stage can be reused */
                    release(empty + 8 * r.stage);
                }
                continue;
            }
            u32 last = 0;
            /* The parity of a barrier only distinguishes a round from the next one, so a warpgroup must not be two
             * rounds ahead. It begins its tile after the other warpgroup has waited for the last stage of the previous
             * tile. */
            if (PINGPONG && tile != first_tile) sync_threads(3 + group, 256);
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
                wait_for_products<1>(); /* products of the previous step are done: its stage can be released */
                if (step) release(last);
                last = empty + 8 * r.stage;
            }
            if (PINGPONG && tile + next_tile < tiles) arrive_threads(3 + (group ^ 1), 256);
            const int lane_row = row + threadIdx.x % 128 / 32 * 16 + lane / 4, lane_column = at.column + lane % 4 * 2;
            fetched ahead[2];
            fetch(ahead[0], p, lane_row, lane_column);
            if (BLOCKS * PIECES > 1)
                fetch(ahead[1], p, lane_row + 1 / PIECES * 64, lane_column + 1 % PIECES * STORE_COLUMNS);
            wait_for_products<0>();
            release(last);
#pragma unroll
            for (int b = 0; b < BLOCKS; b++) use_sums(sum[b]);
#pragma unroll
            for (int i = 0; i < BLOCKS * PIECES; i++) {
                const int b = i / PIECES, part = i % PIECES, next = i + 2;
                const u32 to = group_pieces + buffer * PIECE_BYTES;
                if (leads) wait_for_stores<BUFFERS - 1>();
                sync_threads(1 + group, 128);
                piece<OUT_TYPE, COLUMNS / 2>::put(to, sum[b], part * PAIRS, ahead[i % 2]);
                fence_copy_engine(); /* may wait for outstanding loads, so the next arguments are fetched after it */
                if (next < BLOCKS * PIECES)
                    fetch(ahead[i % 2], p, lane_row + next / PIECES * 64, lane_column + next % PIECES * STORE_COLUMNS);
                sync_threads(1 + group, 128);
                if (leads) store_tile(&p.out, at.column + part * STORE_COLUMNS, row + 64 * b, to);
                buffer ^= 1;
            }
        }
        if (leads) wait_for_stores<0>();
    }
    if (CLUSTER > 1) sync_cluster(); /* a block must not exit while the other may write to its shared memory */
}
