/* matrix.cu: the matrix units of Ampere and later as functions (mma, ldmatrix, cp.async). A warp loads 8 x 8 blocks of
 * 16-bit numbers from shared memory, and multiplies a 16 x 16 by a 16 x 8 matrix. Lane i has row i / 4 of a block,
 * columns i % 4 * 2 and the next, as in PTX.
 *
 * The second half implements them in C++ for the simulator (LZ_SIM), so that kernels that use them run there too. */

#ifndef LZ_SIM

FN u32 shared_address(const void *at) { return (u32)__cvta_generic_to_shared(at); }

/* Loads four blocks. Lanes 0-7 have the addresses of the rows of the first, lanes 8-15 those of the second, and so
 * on. */
FN void load_blocks(u32 (&to)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row)));
}
/* The same, each block transposed. */
FN void load_transposed(u32 (&to)[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row)));
}

/* sum [16, 8] += a [16, 16] b [16, 8]. The last argument only selects the type of a and b. */
FN void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1, bf16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
FN void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1, f16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Rounds two numbers and packs them into one register. */
FN u32 pair(float low, float high, bf16) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
FN u32 pair(float low, float high, f16) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

/* Starts an asynchronous copy of 16 bytes to shared memory; of zeros if there is false. */
FN void start_copy(void *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(there ? 16 : 0));
}
FN void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

#else

/* Values that the lanes of each warp exchange. */
struct shown {
    const u16 *row;
    u32 values[6];
};
FN shown *show(const shown &mine) {
    __shared__ shown all[1024];
    __syncwarp(); /* all lanes have read the previous values */
    all[threadIdx.x] = mine;
    __syncwarp();
    return all + threadIdx.x / 32 * 32;
}

FN void load_blocks(u32 (&to)[4], const void *row) {
    const shown *warp = show({(const u16 *)row, {}});
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        const u16 *from = warp[i * 8 + lane / 4].row + lane % 4 * 2;
        to[i] = (u32)from[1] << 16 | from[0];
    }
}
FN void load_transposed(u32 (&to)[4], const void *row) {
    const shown *warp = show({(const u16 *)row, {}});
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        const shown *from = warp + i * 8 + lane % 4 * 2;
        to[i] = (u32)from[1].row[lane / 4] << 16 | from[0].row[lane / 4];
    }
}

template <class T> FN float half_of(u32 both, int which) {
    const T v = {(u16)(both >> 16 * which)};
    return as_float(v);
}
template <class T> FN void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1, T) {
    const shown *warp = show({0, {a[0], a[1], a[2], a[3], b0, b1}});
    const int lane = threadIdx.x % 32;
    for (int e = 0; e < 4; e++) {
        const int column = lane % 4 * 2 + e % 2;
        for (int k = 0; k < 16; k++) {
            const shown &left = warp[lane / 4 * 4 + k % 8 / 2], &right = warp[column * 4 + k % 8 / 2];
            sum[e] += half_of<T>(left.values[e / 2 + k / 8 * 2], k % 2) * half_of<T>(right.values[4 + k / 8], k % 2);
        }
    }
}

template <class T> FN u32 pair(float low, float high, T) {
    T a, b;
    from_float(a, low);
    from_float(b, high);
    return (u32)b.bits << 16 | a.bits;
}

FN void start_copy(void *to, const void *from, bool there) {
    for (int i = 0; i < 4; i++) ((u32 *)to)[i] = there ? ((const u32 *)from)[i] : 0;
}
FN void wait_for_copies() {}

#endif
