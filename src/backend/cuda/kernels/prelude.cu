/* prelude.cu: prepended to each of our kernels: element types, conversions, the ops of expressions, walks. Compiled
 * without contraction (a * b + c rounds twice, only fmaf rounds once), so that fused and unfused expressions give the
 * same bits. */

/* ---- types ------------------------------------------------------------------------------------------------------- */

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned u32;
typedef int i32;
typedef unsigned long long u64;
typedef long long i64;

struct boolean {
    u8 bits;
};
struct f8 {
    u8 bits;
}; /* 1-4-3, bias 7, no infinities, 0x7f is NaN */
struct f16 {
    u16 bits;
};
struct bf16 {
    u16 bits;
};

#define FN __device__ __forceinline__

#define INFINITE __uint_as_float(0x7f800000u)
#define NOT_A_NUMBER __uint_as_float(0x7fffffffu)

/* ---- floats of 16 and 8 bits ------------------------------------------------------------------------------------- */

FN float as_float(bf16 v) { return __uint_as_float((u32)v.bits << 16); }
FN float as_float(f16 v) {
#ifndef LZ_SIM
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
    return f;
#else
    u32 magnitude = (u32)(v.bits & 0x7fffu) << 13;
    u32 bits = __float_as_uint(__uint_as_float(magnitude) * 0x1p112f);
    bits = magnitude >= 0x0f800000u ? (magnitude | 0x7f800000u) : bits;
    return __uint_as_float(bits | (u32)(v.bits & 0x8000u) << 16);
#endif
}
FN float as_float(f8 v) {
    u32 magnitude = (u32)(v.bits & 0x7fu) << 20;
    u32 bits = __float_as_uint(__uint_as_float(magnitude) * 0x1p120f);
    bits = (v.bits & 0x7fu) == 0x7fu ? 0x7fc00000u : bits;
    return __uint_as_float(bits | (u32)(v.bits & 0x80u) << 24);
}
FN float as_float(boolean v) { return v.bits ? 1.0f : 0.0f; }
FN float as_float(u8 v) { return (float)v; }
FN float as_float(i8 v) { return (float)v; }
FN float as_float(i32 v) { return (float)v; }
FN float as_float(i64 v) { return (float)v; }
FN float as_float(float v) { return v; }

/* Round to nearest even; overflow gives infinity, in f8 448. */
FN void from_float(bf16 &to, float v) {
#ifndef LZ_SIM
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(v));
#else
    u32 u = __float_as_uint(v);
    to.bits = (u16)((u & 0x7fffffffu) > 0x7f800000u ? 0x7fffu : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
#endif
}
FN void from_float(f16 &to, float v) {
#ifndef LZ_SIM
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(v));
#else
    u32 u = __float_as_uint(v), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    u32 normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
    u32 small = __float_as_uint(__uint_as_float(a) + 0.5f) - 0x3f000000u;
    u32 r = a < 0x38800000u ? small : normal;
    r = a >= 0x477ff000u ? 0x7c00u : r;
    to.bits = (u16)(a > 0x7f800000u ? 0x7fffu : r | sign);
#endif
}
FN void from_float(f8 &to, float v) {
    u32 u = __float_as_uint(v), sign = (u >> 24) & 0x80u, a = u & 0x7fffffffu;
    u32 normal = (a - 0x3c000000u + 0x7ffffu + ((a >> 20) & 1u)) >> 20;
    u32 small = __float_as_uint(__uint_as_float(a) + 0x1p14f) - 0x46800000u;
    u32 r = a < 0x3c800000u ? small : normal;
    r = a > 0x43e00000u ? 0x7eu : r;
    r = a > 0x7f800000u ? 0x7fu : r;
    to.bits = (u8)(r | sign);
}
/* Two codes of f8, the first in the low byte. Ada and later have an instruction for it. */
FN u16 two_codes(float low, float high) {
#if !defined LZ_SIM && __CUDA_ARCH__ >= 890
    u16 both;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
    return both;
#else
    f8 codes[2];
    from_float(codes[0], low);
    from_float(codes[1], high);
    return (u16)(codes[0].bits | codes[1].bits << 8);
#endif
}
/* Toward zero, into the range of the type; NaN gives 0. */
FN void from_float(u8 &to, float v) { to = (u8)(i32)(v >= 255.0f ? 255.0f : v > 0.0f ? v : 0.0f); }
FN void from_float(i8 &to, float v) {
    to = (i8)(i32)(v >= 127.0f ? 127.0f : v > -128.0f ? v : v != v ? 0.0f : -128.0f);
}
FN void from_float(i32 &to, float v) {
    to = v >= 2147483648.0f ? 2147483647 : v > -2147483648.0f ? (i32)v : v != v ? 0 : -2147483647 - 1;
}
FN void from_float(i64 &to, float v) {
    to = v >= 0x1p63f ? 9223372036854775807LL : v > -0x1p63f ? (i64)v : v != v ? 0 : -9223372036854775807LL - 1;
}
FN void from_float(boolean &to, float v) { to.bits = v != 0.0f; }
FN void from_float(float &to, float v) { to = v; }

/* ---- integers: computed as i64, wrapping around when stored ------------------------------------------------------ */

FN i64 as_whole(boolean v) { return v.bits != 0; }
FN i64 as_whole(u8 v) { return v; }
FN i64 as_whole(i8 v) { return v; }
FN i64 as_whole(i32 v) { return v; }
FN i64 as_whole(i64 v) { return v; }
template <class T> FN i64 as_whole(T v) {
    i64 to;
    from_float(to, as_float(v));
    return to;
}

FN void from_whole(boolean &to, i64 v) { to.bits = v != 0; }
FN void from_whole(u8 &to, i64 v) { to = (u8)v; }
FN void from_whole(i8 &to, i64 v) { to = (i8)(u8)v; }
FN void from_whole(i32 &to, i64 v) { to = (i32)(u32)v; }
FN void from_whole(i64 &to, i64 v) { to = v; }
template <class T> FN void from_whole(T &to, i64 v) { from_float(to, (float)v); }

/* Conversion of a stored element to the type that an expression computes in (float, i64, or the same bits), and
 * back. */
template <class T> FN void get(float &to, T v) { to = as_float(v); }
template <class T> FN void get(i64 &to, T v) { to = as_whole(v); }
template <class T> FN void get(T &to, T v) { to = v; }
FN void get(float &to, float v) { to = v; }
FN void get(i64 &to, i64 v) { to = v; }
template <class T> FN void put(T &to, float v) { from_float(to, v); }
template <class T> FN void put(T &to, i64 v) { from_whole(to, v); }
template <class T> FN void put(T &to, T v) { to = v; }
FN void put(float &to, float v) { to = v; }
FN void put(i64 &to, i64 v) { to = v; }

template <class T, class N> FN N number_of(T v) {
    N n;
    get(n, v);
    return n;
}

/* ---- vectors of elements ----------------------------------------------------------------------------------------- */

template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) vec { T at[N]; };

/* The type of a single load or store of so many bytes. */
template <int BYTES> struct word_of { typedef uint4 type; };
template <> struct word_of<8> { typedef uint2 type; };
template <> struct word_of<4> { typedef u32 type; };
template <> struct word_of<2> { typedef u16 type; };
template <> struct word_of<1> { typedef u8 type; };

/* The compiler could split a plain store; these are single instructions. */
template <class W> FN void store_word(W *to, W w) { *to = w; }
#ifndef LZ_SIM
FN void store_word(uint4 *to, uint4 w) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w)
                 : "memory");
}
FN void store_word(uint2 *to, uint2 w) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(w.x), "r"(w.y) : "memory");
}
#endif

template <class T, int N> FN void load_words(vec<T, N> &to, const T *from) {
    typedef typename word_of<alignof(vec<T, N>)>::type word;
#pragma unroll
    for (int i = 0; i < (int)(sizeof to / sizeof(word)); i++) {
        word w = ((const word *)from)[i];
        memcpy((char *)&to + i * sizeof w, &w, sizeof w);
    }
}
template <class T, int N> FN void store_words(const vec<T, N> &from, T *to) {
    typedef typename word_of<alignof(vec<T, N>)>::type word;
#pragma unroll
    for (int i = 0; i < (int)(sizeof from / sizeof(word)); i++) {
        word w;
        memcpy(&w, (const char *)&from + i * sizeof w, sizeof w);
        store_word((word *)to + i, w);
    }
}

/* The access pattern of an operand along the last axis. VECTOR: contiguous and aligned; SCALAR: any stride; SAME:
 * stride 0, one element for all. */
#define VECTOR 0
#define SCALAR 1
#define SAME 2

/* Loads n <= N elements from index `at` on; the others are unchanged. */
template <int KIND, class T, int N> FN void load(vec<T, N> &to, const char *data, i64 at, i64 step, int n) {
    const T *from = (const T *)data + at;
    if (KIND == VECTOR && n == N) {
        load_words(to, from);
    } else if (KIND == SAME) {
        T v = *from;
#pragma unroll
        for (int j = 0; j < N; j++) to.at[j] = v;
    } else {
#pragma unroll
        for (int j = 0; j < N; j++)
            if (j < n) to.at[j] = from[KIND == VECTOR ? j : j * step];
    }
}

template <int KIND, class T, int N> FN void store(const vec<T, N> &from, char *data, i64 at, i64 step, int n) {
    T *to = (T *)data + at;
    if (KIND == VECTOR && n == N) {
        store_words(from, to);
    } else {
#pragma unroll
        for (int j = 0; j < N; j++)
            if (j < n) to[KIND == VECTOR ? j : j * step] = from.at[j];
    }
}

/* Conversions, two at a time if there is an instruction for it. */
template <class T, class V, int N> FN void put_all(vec<T, N> &to, const V (&from)[N]) {
#pragma unroll
    for (int j = 0; j < N; j++) put(to.at[j], from[j]);
}
#ifndef LZ_SIM
FN void put_pair(bf16 *to, float a, float b) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(b), "f"(a));
    memcpy(to, &both, 4);
}
FN void put_pair(f16 *to, float a, float b) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(b), "f"(a));
    memcpy(to, &both, 4);
}
template <int N> FN void put_all(vec<bf16, N> &to, const float (&from)[N]) {
#pragma unroll
    for (int j = 0; j + 1 < N; j += 2) put_pair(to.at + j, from[j], from[j + 1]);
    if (N % 2) put(to.at[N - 1], from[N - 1]);
}
template <int N> FN void put_all(vec<f16, N> &to, const float (&from)[N]) {
#pragma unroll
    for (int j = 0; j + 1 < N; j += 2) put_pair(to.at + j, from[j], from[j + 1]);
    if (N % 2) put(to.at[N - 1], from[N - 1]);
}
#endif

template <int N> FN void put_all(vec<f8, N> &to, const float (&from)[N]) {
#pragma unroll
    for (int j = 0; j + 1 < N; j += 2) {
        const u16 both = two_codes(from[j], from[j + 1]);
        memcpy(to.at + j, &both, 2);
    }
    if (N % 2) put(to.at[N - 1], from[N - 1]);
}

/* Elements as floats. Two bf16 numbers of a word take one instruction each. */
template <class T, int N> FN void get_all(float (&to)[N], const vec<T, N> &from) {
#pragma unroll
    for (int j = 0; j < N; j++) to[j] = as_float(from.at[j]);
}
template <int N> FN void get_all(float (&to)[N], const vec<bf16, N> &from) {
#pragma unroll
    for (int j = 0; j + 1 < N; j += 2) {
        u32 both;
        memcpy(&both, from.at + j, 4);
        to[j] = __uint_as_float(both << 16);
        to[j + 1] = __uint_as_float(both & 0xffff0000u);
    }
    if (N % 2) to[N - 1] = as_float(from.at[N - 1]);
}

/* ---- walks ------------------------------------------------------------------------------------------------------- */

FN u32 quotient(u32 n, lz_divisor by) { return (__umulhi(n, by.multiply) + n) >> by.shift; }

/* The index along each axis. The host chooses u32 if it is large enough. */
template <int RANK> FN void coordinates(const lz_walk &w, u32 index, u32 *at) {
#pragma unroll
    for (int i = RANK - 1; i > 0; i--) {
        u32 q = quotient(index, w.divisors[i]);
        at[i] = index - q * w.divisors[i].of;
        index = q;
    }
    at[0] = index;
}
template <int RANK> FN void coordinates(const lz_walk &w, i64 index, i64 *at) {
#pragma unroll
    for (int i = RANK - 1; i > 0; i--) {
        i64 q = (i64)((u64)index / (u64)w.dims[i]);
        at[i] = index - q * w.dims[i];
        index = q;
    }
    at[0] = index;
}
template <int RANK, class I> FN I offset(const lz_strided &operand, const I *at) {
    I sum = 0;
#pragma unroll
    for (int i = 0; i < RANK; i++) sum += at[i] * (I)operand.strides[i];
    return sum;
}

/* ---- the ops of expressions: op_NAME, as op.h names them --------------------------------------------------------- */

FN float op_copy(float a) { return a; }
FN float op_neg(float a) { return -a; }
FN float op_abs(float a) { return fabsf(a); }
FN float op_not(float a) { return a == 0.0f ? 1.0f : 0.0f; }
FN float op_square(float a) { return a * a; }
FN float op_floor(float a) { return floorf(a); }
FN float op_exp(float a) { return expf(a); }
FN float op_log(float a) { return logf(a); }
FN float op_sqrt(float a) { return sqrtf(a); }
FN float op_rsqrt(float a) { return 1.0f / sqrtf(a); }
FN float op_sin(float a) { return sinf(a); }
FN float op_cos(float a) { return cosf(a); }
FN float op_tanh(float a) { return tanhf(a); }
FN float op_erf(float a) { return erff(a); }
/* 2^a and 1 / a with one instruction each, within 2 ulp; results below 2^-126 become 0. */
#ifndef LZ_SIM
FN float exp2_of(float a) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
}
FN float one_over(float a) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
}
#else
FN float exp2_of(float a) { return exp2f(a); }
FN float one_over(float a) { return 1.0f / a; }
#endif
/* These are common epilogues, during which no product runs, so they use few instructions. e^x is 2^(x log2 e), with a
 * relative error of 6e-8 |x|. */
FN float op_sigmoid(float a) { return one_over(1.0f + exp2_of(-1.44269504f * a)); }
FN float op_silu(float a) { return a * op_sigmoid(a); }
FN float op_gelu(float a) { return 0.5f * a * (1.0f + erff(a * 0.707106781f)); }
/* a (1 + tanh t) / 2 with t = sqrt(2 / pi) (a + 0.044715 a^3), and (1 + tanh t) / 2 = sigmoid(2 t), which loses no
 * digits if tanh is near -1. */
FN float op_gelu_tanh(float a) {
    const float t = a * fmaf(a * a, -0.102943240f, -2.30220820f); /* -2 t log2 e */
    return a * one_over(1.0f + exp2_of(t));
}
FN float op_clip(float a, float low, float high) {
    a = a < low ? low : a;
    return a > high ? high : a;
}
FN float op_add(float a, float b) { return a + b; }
FN float op_sub(float a, float b) { return a - b; }
FN float op_mul(float a, float b) { return a * b; }
FN float op_div(float a, float b) { return a / b; }
FN float op_pow(float a, float b) { return powf(a, b); }
FN float op_maximum(float a, float b) { return a > b || a != a ? a : b; }
FN float op_minimum(float a, float b) { return a < b || a != a ? a : b; }
FN float op_mul_add(float a, float b, float c) { return a * b + c; }

FN i64 op_copy(i64 a) { return a; }
FN i64 op_neg(i64 a) { return (i64)(0 - (u64)a); }
FN i64 op_abs(i64 a) { return a < 0 ? op_neg(a) : a; }
FN i64 op_not(i64 a) { return a == 0; }
FN i64 op_square(i64 a) { return (i64)((u64)a * (u64)a); }
FN i64 op_clip(i64 a, i64 low, i64 high) {
    a = a < low ? low : a;
    return a > high ? high : a;
}
FN i64 op_add(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
FN i64 op_sub(i64 a, i64 b) { return (i64)((u64)a - (u64)b); }
FN i64 op_mul(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
FN i64 op_maximum(i64 a, i64 b) { return a > b ? a : b; }
FN i64 op_minimum(i64 a, i64 b) { return a < b ? a : b; }
FN i64 op_pow(i64 a, i64 b) { /* a negative power of anything but 1 and -1 is 0, as in torch */
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    u64 power = 1, base = (u64)a;
    for (; b; b >>= 1, base *= base)
        if (b & 1) power *= base;
    return (i64)power;
}

template <class N> FN N op_equal(N a, N b) { return a == b ? 1 : 0; }
template <class N> FN N op_not_equal(N a, N b) { return a != b ? 1 : 0; }
template <class N> FN N op_less(N a, N b) { return a < b ? 1 : 0; }
template <class N> FN N op_less_equal(N a, N b) { return a <= b ? 1 : 0; }
template <class N> FN N op_greater(N a, N b) { return a > b ? 1 : 0; }
template <class N> FN N op_greater_equal(N a, N b) { return a >= b ? 1 : 0; }
template <class N> FN N op_and(N a, N b) { return a != 0 && b != 0 ? 1 : 0; }
template <class N> FN N op_or(N a, N b) { return a != 0 || b != 0 ? 1 : 0; }
template <class N> FN N op_where(N a, N b, N c) { return a != 0 ? b : c; }

/* v rounded to T. */
template <class T> FN float round_to(float v) {
    T stored;
    from_float(stored, v);
    return as_float(stored);
}

/* ---- sums over lanes --------------------------------------------------------------------------------------------- */

/* Sum over LANES neighbouring lanes in a fixed order. Every lane gets the same bits, because a + b = b + a. */
template <int LANES> FN float sum_lanes(float v) {
#pragma unroll
    for (int i = 1; i < LANES; i *= 2) v += __shfl_xor_sync(0xffffffffu, v, i);
    return v;
}
template <int LANES> FN float max_lanes(float v) {
#pragma unroll
    for (int i = 1; i < LANES; i *= 2) v = op_maximum(v, __shfl_xor_sync(0xffffffffu, v, i));
    return v;
}
