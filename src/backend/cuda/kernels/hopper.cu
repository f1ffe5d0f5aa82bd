/* hopper.cu: Hopper's instructions for large products, as functions: the copy engine (TMA: tiles of a tensor to shared
 * memory and back), barriers in shared memory that count threads and bytes (mbarrier), clusters of thread blocks, and
 * matrix units that read their operands from shared memory (wgmma). Addresses in shared memory are 32-bit numbers, as
 * in PTX.
 *
 * The second half implements them in C++ for the simulator (LZ_SIM), so that kernels that use them run there too. */

/* The descriptor of a matrix in shared memory, for the matrix units: rows of 128 or 64 bytes along k, whose 16-byte chunks
 * are swizzled as the copy engine does it; 8 rows are stored together. A step of one instruction along k (16 numbers of 16
 * bits, or 32 of 8 bits) adds 32 bytes to the address. */
template <int ROW_BYTES = 128> FN u64 matrix_at(u32 address) {
    return (u64)((address & 0x3ffff) >> 4) | 1ull << 16 | (8ull * ROW_BYTES >> 4) << 32 |
           (ROW_BYTES == 128 ? 1ull : 2ull) << 62;
}
#define K_STEP 2 /* 32 bytes, in the unit of a descriptor */
/* The same for a transposed matrix: rows of 128 bytes across k; 8 rows take 1024 bytes; the next 64 elements of a row
 * are `next` bytes further on. A step of 16 along k adds 2048 bytes. */
FN u64 transposed_matrix_at(u32 address, u32 next) {
    return (u64)((address & 0x3ffff) >> 4) | (u64)(next >> 4) << 16 | (1024ull >> 4) << 32 | 1ull << 62;
}
#define TRANSPOSED_K_STEP 128

/* The swizzled offset of a byte in a tile whose rows are 128, 64 or 32 bytes wide. */
template <int ROW_BYTES> FN u32 swizzled(u32 offset) { return offset ^ (offset >> 7 & (ROW_BYTES / 16 - 1)) << 4; }

#ifndef LZ_SIM

FN u32 address_of(const void *shared) { return (u32)__cvta_generic_to_shared(shared); }

/* ---- barriers ---- */

FN void make_barrier(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
FN void fence_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
FN void arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/* Arrives at the barrier at the same address of another block of the cluster. ".release.cluster" is not needed, and
 * would wait for all memory accesses each time: the released stage was only read, by matrix units that are done. */
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
FN void sync_threads(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
/* bar.arrive: is counted at the named barrier, and does not wait. */
FN void arrive_threads(int number, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
FN u32 block_of_cluster() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
/* Orders no memory accesses except the initialisation of barriers (fence_barriers): blocks exchange nothing else by
 * ordinary stores. A warp arrives as one. */
FN void sync_cluster() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

/* ---- the copy engine ---- */

FN void prefetch_map(const void *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
FN void load_tile(u32 to, const void *map, int x, int y, u32 barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
                 "[%4];" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(barrier)
                 : "memory");
}
/* Loads to the same address of every block in the mask. The barrier of each block counts the bytes. */
FN void load_tile_for(u32 to, const void *map, int x, int y, u32 barrier, u16 mask) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(mask)
                 : "memory");
}
/* Loads a tile of a tensor with four axes. The box has size 1 along the two outer axes. */
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
/* Waits until all but the last N stores of this thread have read their shared memory. */
template <int N> FN void wait_for_stores() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
/* After the next barrier, the copy engine sees what this thread wrote to shared memory. */
FN void fence_copy_engine() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* ---- the matrix units; multiply itself is in the head, because its text depends on the width --------------------- */

FN void start_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FN void end_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> FN void wait_for_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
/* A compiler barrier: reads and writes of the sums stay after it. */
template <int N> FN void use_sums(float (&sum)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(sum[i])::"memory");
}

template <int N> FN void decrease_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> FN void increase_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

/* Stores four 8 x 8 blocks of 16-bit numbers to shared memory. Lanes 0-7 have the addresses of the rows of the first
 * block, lanes 8-15 those of the second, and so on. Lane i has row i / 4 of each block, columns i % 4 * 2 and the
 * next. */
FN void store_blocks(u32 row, const u32 (&from)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(from[0]),
                 "r"(from[1]), "r"(from[2]), "r"(from[3])
                 : "memory");
}
/* Loads four blocks, in the same distribution. */
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
FN void fence_barriers() {}
FN u32 block_of_cluster() { return (u32)lz_sim::threads[lz_sim::current].block; }
FN void arrive(u32 barrier) { lz_sim::arrive(barrier, (int)block_of_cluster()); }
FN void arrive_at(u32 barrier, u32 block) { lz_sim::arrive(barrier, (int)block); }
FN void arrive_expecting(u32 barrier, u32 bytes) { lz_sim::arrive(barrier, (int)block_of_cluster(), (int)bytes); }
FN void wait_for(u32 barrier, u32 parity) { lz_sim::wait_for_phase(barrier, parity); }
FN void sync_threads(int number, int threads) { lz_sim::sync_threads(number, threads); }
FN void arrive_threads(int number, int threads) { lz_sim::arrive_threads(number, threads); }
FN void sync_cluster() { lz_sim::sync_cluster(); }

FN void prefetch_map(const void *) {}
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
FN void fence_copy_engine() {}

/* A warp executes these as one. */
FN void start_products() { __syncwarp(); }
FN void end_products() {}
template <int N> FN void wait_for_products() { __syncwarp(); }
template <int N> FN void use_sums(float (&)[N]) {}
template <int N> FN void decrease_registers() {}
template <int N> FN void increase_registers() {}

/* Element (row, k) of a matrix with a descriptor of matrix_at. */
template <class T> FN float described(u64 matrix, int row, int k) {
    const u32 start = (u32)(matrix & 0x3fff) << 4, eight_rows = (u32)(matrix >> 32 & 0x3fff) << 4;
    const u32 mode = (u32)(matrix >> 62), row_bytes = mode == 1 ? 128 : 64;
    if ((mode != 1 && mode != 2) || matrix >> 49 & 7) lz_sim::fail("a matrix that is not swizzled over 128 or 64 bytes");
    const u32 plain = start + row / 8 * eight_rows + row % 8 * row_bytes + k * (u32)sizeof(T);
    T v;
    memcpy(&v, lz_sim::shared_at(mode == 1 ? swizzled<128>(plain) : swizzled<64>(plain)), sizeof v);
    return as_float(v);
}

/* Adds the products of rows and columns to the sums of one thread, four for every eight columns. right_at(k, column) is an
 * element of the right matrix. */
template <int N, int K, class F> FN void add_products(float (&sum)[N / 2], const float (&left)[2][K], int add, F right_at) {
    const int column = threadIdx.x % 4 * 2;
    for (int i = 0; i < N / 4; i++) {
        float right[K];
        for (int k = 0; k < K; k++) right[k] = right_at(k, i / 2 * 8 + column + i % 2);
        for (int h = 0; h < 2; h++) {
            float &to = sum[i / 2 * 4 + h * 2 + i % 2], total = add ? to : 0.0f;
            for (int k = 0; k < K; k++) total += left[h][k] * right[k];
            to = total;
        }
    }
}

/* sum [64, N] (+)= a [64, K] b^T [N, K] with K numbers of 32 bytes: the part of one thread. */
template <class T, int N> FN void multiply_spelled_out(float (&sum)[N / 2], u64 a, u64 b, int add) {
    enum { K = 32 / sizeof(T) };
    const int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    float left[2][K];
    for (int h = 0; h < 2; h++)
        for (int k = 0; k < K; k++) left[h][k] = described<T>(a, row + 8 * h, k);
    add_products<N, K>(sum, left, add, [&](int k, int column) { return described<T>(b, column, k); });
}

/* Element (k, column) of a matrix with a descriptor of transposed_matrix_at. */
template <class T> FN float described_transposed(u64 matrix, int k, int column) {
    const u32 start = (u32)(matrix & 0x3fff) << 4, next = (u32)(matrix >> 16 & 0x3fff) << 4,
              eight_rows = (u32)(matrix >> 32 & 0x3fff) << 4;
    if (matrix >> 62 != 1 || matrix >> 49 & 7) lz_sim::fail("a matrix that is not swizzled over 128 bytes");
    const u32 plain = start + column / 64 * next + column % 64 * 2 + k / 8 * eight_rows + k % 8 * 128;
    T v;
    memcpy(&v, lz_sim::shared_at(swizzled<128>(plain)), sizeof v);
    return as_float(v);
}

/* sum [64, N] (+)= a [64, K] b^T [N, K] or, if b is transposed, b [K, N]. a is in registers: four lanes have a row
 * of it, each lane 4 bytes of each half. */
template <class T, int N, bool TRANSPOSED>
FN void multiply_held_spelled_out(float (&sum)[N / 2], const u32 (&a)[4], u64 b, int add) {
    enum { K = 32 / sizeof(T), WORD = 4 / sizeof(T) };
    const int first = threadIdx.x % 32 / 4 * 4;
    float left[2][K];
    for (int i = 0; i < 4; i++)
        for (int lane = 0; lane < 4; lane++) {
            const u32 word = __shfl_sync(0xffffffffu, a[i], first + lane);
            T numbers[WORD];
            memcpy(numbers, &word, sizeof word);
            for (int e = 0; e < WORD; e++) left[i % 2][(i / 2 * 4 + lane) * WORD + e] = as_float(numbers[e]);
        }
    add_products<N, K>(sum, left, add, [&](int k, int column) {
        return TRANSPOSED ? described_transposed<T>(b, k, column) : described<T>(b, column, k);
    });
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
