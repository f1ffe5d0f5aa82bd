/* hopper.cu: what Hopper has for large products, as functions: the copy engine (tiles of a tensor into shared memory
 * and back), barriers in shared memory that count threads and bytes, clusters of blocks, and matrix units that read
 * their operands from shared memory. Addresses in shared memory are numbers, as in PTX.
 *
 * In the simulator they are spelled out, so that kernels built on them run there too. */

/* A matrix in shared memory as the matrix units want it described: rows of 128 bytes along k, their 16-byte chunks
 * swizzled as the copy engine does it, 1024 bytes from eight rows to the next. A step of 16 along k adds 32 bytes. */
FN u64 matrix_at(u32 address) {
    return (u64)((address & 0x3ffff) >> 4) | 1ull << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}
#define K_STEP 2 /* those 32 bytes, as matrix_at counts them */
/* The same turned: rows of 128 bytes across k, eight of them 1024 bytes; `next` bytes from 64 numbers of a row to the
 * 64 behind them. A step of 16 along k adds 2048 bytes. */
FN u64 turned_matrix_at(u32 address, u32 next) {
    return (u64)((address & 0x3ffff) >> 4) | (u64)(next >> 4) << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}
#define TURNED_K_STEP 128

/* Where a byte of a tile lies whose rows are 128, 64 or 32 bytes wide and swizzled that far. */
template <int ROW_BYTES> FN u32 swizzled(u32 offset) { return offset ^ (offset >> 7 & (ROW_BYTES / 16 - 1)) << 4; }

#ifndef LZ_SIM

FN u32 address_of(const void *shared) { return (u32)__cvta_generic_to_shared(shared); }

/* ---- barriers ---- */

FN void make_barrier(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
FN void show_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
FN void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* At the barrier in the same place of another block of the cluster. Without ".release.cluster", which would wait for
 * all of memory each time: what is given back here was only read, by matrix units that are done. */
FN void arrive_at(u32 barrier, u32 block) {
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                 "}" ::"r"(barrier),
                 "r"(block)
                 : "memory");
}
FN void arrive_expecting(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
FN void wait_for(u32 barrier, u32 parity) {
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}
FN void meet_threads(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
/* Is counted there, and goes on. */
FN void pass_threads(int number, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
FN u32 block_of_cluster() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
/* Orders no memory but barriers that were shown: nothing else goes from block to block by ordinary stores. A warp
 * arrives as one. */
FN void meet_cluster() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/* ---- the copy engine ---- */

FN void expect_map(const void *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
FN void load_tile(u32 to, const void *map, int x, int y, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
                 "[%4];" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(barrier)
                 : "memory");
}
/* Into the same place of every block of the mask; each one's barrier counts the bytes. */
FN void load_tile_for(u32 to, const void *map, int x, int y, u32 barrier, u16 mask) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(mask)
                 : "memory");
}
/* Of a tensor with four axes; its box has one of each of the outer two. */
FN void load_tile(u32 to, const void *map, int x, int y, int z, int w, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%2, %3, %4, %5}], [%6];" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
                 : "memory");
}
FN void store_tile(const void *map, int x, int y, u32 from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];\n"
                 "cp.async.bulk.commit_group;" ::"l"(map),
                 "r"(x), "r"(y), "r"(from)
                 : "memory");
}
FN void store_tile(const void *map, int x, int y, int z, int w, u32 from) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];\n"
                 "cp.async.bulk.commit_group;" ::"l"(map),
                 "r"(x), "r"(y), "r"(z), "r"(w), "r"(from)
                 : "memory");
}
/* All but the last N of this thread's stores have read what they store. */
template <int N> FN void wait_for_stores() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
/* What this thread wrote to shared memory may be read by the copy engine, after the next barrier. */
FN void show_copy_engine() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* ---- the matrix units; multiply itself is in the head, because its text depends on the width ---- */

FN void start_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FN void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> FN void wait_for_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
/* From here on the compiler may touch the sums. */
template <int N> FN void take_sums(float (&sum)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(sum[i])::"memory");
}

template <int N> FN void keep_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> FN void take_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

/* Four 8 x 8 blocks of 16-bit numbers to shared memory: lanes 0-7 say where the rows of the first begin, and so on.
 * Lane i holds row i / 4 of each block, columns i % 4 * 2 and the next. */
FN void store_blocks(u32 row, const u32 (&from)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(from[0]),
                 "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
}
/* And from there. */
FN void load_blocks(u32 (&to)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}
FN void store_two(u32 to, float a, float b) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(a), "f"(b) : "memory");
}

#else

FN u32 address_of(const void *shared) { return lz_sim::offset_of(shared); }

FN void make_barrier(u32 barrier, u32 arrivals) { lz_sim::make_mbarrier(barrier, arrivals); }
FN void show_barriers() {}
FN u32 block_of_cluster() { return (u32)lz_sim::threads[lz_sim::current].block; }
FN void arrive(u32 barrier) { lz_sim::arrive(barrier, (int)block_of_cluster()); }
FN void arrive_at(u32 barrier, u32 block) { lz_sim::arrive(barrier, (int)block); }
FN void arrive_expecting(u32 barrier, u32 bytes) { lz_sim::arrive(barrier, (int)block_of_cluster(), (int)bytes); }
FN void wait_for(u32 barrier, u32 parity) { lz_sim::wait_for_phase(barrier, parity); }
FN void meet_threads(int number, int threads) { lz_sim::meet_threads(number, threads); }
FN void pass_threads(int number, int threads) { lz_sim::pass_threads(number, threads); }
FN void meet_cluster() { lz_sim::meet_cluster(); }

FN void expect_map(const void *) {}
FN void load_tile(u32 to, const void *map, int x, int y, u32 barrier) {
    lz_sim::copy_in(to, map, {x, y}, barrier, 0);
}
FN void load_tile_for(u32 to, const void *map, int x, int y, u32 barrier, u16 mask) {
    lz_sim::copy_in(to, map, {x, y}, barrier, mask);
}
FN void load_tile(u32 to, const void *map, int x, int y, int z, int w, u32 barrier) {
    lz_sim::copy_in(to, map, {x, y, z, w}, barrier, 0);
}
FN void store_tile(const void *map, int x, int y, u32 from) {
    lz_sim::copy_out(map, {x, y}, from);
    lz_sim::close_group();
}
FN void store_tile(const void *map, int x, int y, int z, int w, u32 from) {
    lz_sim::copy_out(map, {x, y, z, w}, from);
    lz_sim::close_group();
}
template <int N> FN void wait_for_stores() { lz_sim::wait_for_groups(N); }
FN void show_copy_engine() {}

/* A warp does these as one: none of its lanes is ahead. */
FN void start_products() { __syncwarp(); }
FN void end_products() {}
template <int N> FN void wait_for_products() { __syncwarp(); }
template <int N> FN void take_sums(float (&)[N]) {}
template <int N> FN void keep_registers() {}
template <int N> FN void take_registers() {}

/* Element (row, k) of a matrix that is described as by matrix_at. */
template <class T> FN float described(u64 matrix, int row, int k) {
    const u32 start = (u32)(matrix & 0x3fff) << 4, eight_rows = (u32)(matrix >> 32 & 0x3fff) << 4;
    if (matrix >> 62 != 1 || matrix >> 49 & 7) lz_sim::fail("a matrix that is not swizzled over 128 bytes");
    const u32 plain = start + row / 8 * eight_rows + row % 8 * 128 + k * 2;
    T v;
    memcpy(&v, lz_sim::shared_at(swizzled<128>(plain)), sizeof v);
    return as_float(v);
}

/* sum [64, N] (+)= a [64, 16] b^T [N, 16]: a thread's share, four numbers for every eight columns. */
template <class T, int N> FN void multiply_spelled_out(float (&sum)[N / 2], u64 a, u64 b, int add) {
    const int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    float left[2][16], right[16];
    for (int h = 0; h < 2; h++)
        for (int k = 0; k < 16; k++) left[h][k] = described<T>(a, row + 8 * h, k);
    for (int i = 0; i < N / 4; i++) {
        for (int k = 0; k < 16; k++) right[k] = described<T>(b, i / 2 * 8 + column + i % 2, k);
        for (int h = 0; h < 2; h++) {
            float &to = sum[i / 2 * 4 + h * 2 + i % 2], total = add ? to : 0.0f;
            for (int k = 0; k < 16; k++) total += left[h][k] * right[k];
            to = total;
        }
    }
}

/* Element (k, column) of a matrix that is described as by turned_matrix_at. */
template <class T> FN float described_turned(u64 matrix, int k, int column) {
    const u32 start = (u32)(matrix & 0x3fff) << 4, next = (u32)(matrix >> 16 & 0x3fff) << 4,
              eight_rows = (u32)(matrix >> 32 & 0x3fff) << 4;
    if (matrix >> 62 != 1 || matrix >> 49 & 7) lz_sim::fail("a matrix that is not swizzled over 128 bytes");
    const u32 plain = start + column / 64 * next + column % 64 * 2 + k / 8 * eight_rows + k % 8 * 128;
    T v;
    memcpy(&v, lz_sim::shared_at(swizzled<128>(plain)), sizeof v);
    return as_float(v);
}

/* sum [64, N] (+)= a [64, 16] b^T [N, 16] or, where b is turned, b [16, N]; a from registers: four lanes have a row of
 * it, two neighbours of each half. */
template <class T, int N, bool TURNED>
FN void multiply_held_spelled_out(float (&sum)[N / 2], const u32 (&a)[4], u64 b, int add) {
    const int column = threadIdx.x % 4 * 2, first = threadIdx.x % 32 / 4 * 4;
    float left[2][16], right[16];
    for (int i = 0; i < 4; i++)
        for (int lane = 0; lane < 4; lane++) {
            const u32 both = __shfl_sync(0xffffffffu, a[i], first + lane);
            for (int e = 0; e < 2; e++) left[i % 2][i / 2 * 8 + lane * 2 + e] = as_float(T{(u16)(both >> 16 * e)});
        }
    for (int i = 0; i < N / 4; i++) {
        const int at = i / 2 * 8 + column + i % 2;
        for (int k = 0; k < 16; k++) right[k] = TURNED ? described_turned<T>(b, k, at) : described<T>(b, at, k);
        for (int h = 0; h < 2; h++) {
            float &to = sum[i / 2 * 4 + h * 2 + i % 2], total = add ? to : 0.0f;
            for (int k = 0; k < 16; k++) total += left[h][k] * right[k];
            to = total;
        }
    }
}

FN void store_blocks(u32 row, const u32 (&from)[4]) {
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        const u32 to = __shfl_sync(0xffffffffu, row, i * 8 + lane / 4) + lane % 4 * 4;
        memcpy(lz_sim::shared_at(to), &from[i], 4);
    }
}
FN void load_blocks(u32 (&to)[4], u32 row) {
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        const u32 from = __shfl_sync(0xffffffffu, row, i * 8 + lane / 4) + lane % 4 * 4;
        memcpy(&to[i], lz_sim::shared_at(from), 4);
    }
}
FN void store_two(u32 to, float a, float b) {
    memcpy(lz_sim::shared_at(to), &a, 4);
    memcpy(lz_sim::shared_at(to + 4), &b, 4);
}

#endif
