/* random.c: torch.randn on a CPU, number for number, so that a seed gives the picture it gives elsewhere.
 *
 * Torch draws 32-bit words from a Mersenne twister and turns pairs of uniform numbers into pairs of normal ones
 * (Box-Muller: a radius sqrt(-2 log u) and an angle 2 pi v). It has two ways, both followed here step by step:
 *
 *   n < 16    in f64, one pair after the other, 53-bit uniforms (at::normal_distribution<double>).
 *   n >= 16   in f32, blocks of 16: number j pairs with j + 8; uniforms have 24 bits. Where n is no multiple of 16, the
 *             last 16 numbers are drawn again, over what is there (NormalFill16 in ATen's DistributionTemplates.h).
 *
 * In f32 the roundings on the way are part of the answer: an angle near pi rounded to f32 moves its sine by far more
 * than 2 ulp. So the f32 way repeats torch's AVX2 kernel operation for operation, its polynomials included. (Torch
 * without AVX2 rounds elsewhere, and differs from itself by 10^5 ulp.)
 *
 * The same bits on every machine: log, sin and cos are polynomials below, made of + - * / and sqrt only, which IEEE 754
 * defines to the last bit; libm's are not. A compiler must not fuse a * b + c either: build with -ffp-contract=off. */
#include "array/random.h"

#include <math.h>
#include <string.h>

#include "array/number.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

/* ---- Mersenne twister mt19937 (Matsumoto and Nishimura) --------------------------------------------------------- */

enum { TWISTER_N = 624, TWISTER_M = 397 };

typedef struct twister {
    uint32_t state[TWISTER_N];
    int next;
} twister;

static void twister_seed(twister *t, uint64_t seed) {
    t->state[0] = (uint32_t)seed; /* torch uses the low 32 bits only */
    for (uint32_t i = 1; i < TWISTER_N; i++) {
        uint32_t last = t->state[i - 1];
        t->state[i] = 1812433253u * (last ^ (last >> 30)) + i;
    }
    t->next = TWISTER_N;
}

static void twister_turn(twister *t) {
    for (int i = 0; i < TWISTER_N; i++) {
        uint32_t high = t->state[i] & 0x80000000u, low = t->state[(i + 1) % TWISTER_N] & 0x7fffffffu;
        uint32_t twist = ((high | low) >> 1) ^ (low & 1 ? 0x9908b0dfu : 0);
        t->state[i] = t->state[(i + TWISTER_M) % TWISTER_N] ^ twist;
    }
    t->next = 0;
}

static uint32_t draw(twister *t) {
    if (t->next == TWISTER_N) twister_turn(t);
    uint32_t y = t->state[t->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

static float uniform24(twister *t) { return (float)(draw(t) & 0xffffffu) * 0x1p-24f; } /* [0, 1) */

static double uniform53(twister *t) { /* [0, 1) */
    uint64_t high = draw(t), low = draw(t);
    return (double)((high << 32 | low) & 0x1fffffffffffffu) * 0x1p-53;
}

/* ---- log, sin and cos in f64 ------------------------------------------------------------------------------------ */

/* Normal x > 0. x = m 2^e with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172. */
static double log_f64(double x) {
    uint64_t bits;
    memcpy(&bits, &x, 8);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
    double m;
    memcpy(&m, &bits, 8);
    if (m > 1.4142135623730951) {
        m = m * 0.5;
        e = e + 1;
    }
    double s = (m - 1) / (m + 1), s2 = s * s, sum = 0;
    for (int k = 23; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k; /* the next term is below 2^-62 of the first */
    return e * 0.6931471805599453 + 2 * s * sum;
}

/* 0 <= x < 7. x = q pi/2 + r with |r| <= pi/4 and the Taylor series of r; the quarter q says which goes where. */
static void sin_cos_f64(double x, double *sine, double *cosine) {
    int q = (int)(x * 0.6366197723675814 + 0.5);
    double r = x - q * 0x1.921fb544p+0; /* pi/2 in two parts: q times the first is exact */
    r = r - q * 0x1.0b4611a626331p-34;
    double r2 = r * r, s = 1, c = 1;
    for (int k = 18; k >= 2; k -= 2) { /* s = 1 - r2/(2 3) (1 - r2/(4 5) ...), c = 1 - r2/(1 2) (1 - r2/(3 4) ...) */
        s = 1 - r2 / (k * (k + 1)) * s;
        c = 1 - r2 / (k * (k - 1)) * c;
    }
    s = s * r;
    *sine = q == 1 ? c : q == 2 ? -s : q == 3 ? -c : s;
    *cosine = q == 1 ? -s : q == 2 ? -c : q == 3 ? s : c;
}

/* ---- log, sin and cos in f32: Cephes by S. Moshier, as in ATen's avx_mathfun.h ----------------------------------- */

/* a b + c. Torch's compiler made FMAs; in f64 the product is exact, so this has the bits of one nearly always. */
static float fused(float a, float b, float c) { return (float)((double)a * b + c); }

static float log_f32(float x) { /* normal x > 0 */
    static const float p[9] = {7.0376836292E-2f,  -1.1514610310E-1f, 1.1676998740E-1f,
                               -1.2420140846E-1f, 1.4249322787E-1f,  -1.6668057665E-1f,
                               2.0000714765E-1f,  -2.4999993993E-1f, 3.3333331174E-1f};
    uint32_t bits = lz_float_to_bits(x);
    float e = (float)((int)(bits >> 23) - 126);
    x = lz_bits_to_float((bits & 0x7fffffu) | 0x3f000000u); /* [0.5, 1) */
    if (x < 0.707106781f) {
        e -= 1;
        x += x;
    }
    x -= 1;
    float z = x * x, y = p[0];
    for (int i = 1; i < 9; i++) y = fused(y, x, p[i]);
    y = fused(y * x, z, e * -2.12194440e-4f); /* log 2 in two parts */
    y = y - z * 0.5f;
    return fused(e, 0.693359375f, x + y);
}

static void sin_cos_f32(float x, float *sine, float *cosine) { /* 0 <= x < 7 */
    int octant = ((int)(x * 1.27323954473516f) + 1) & ~1;
    float q = (float)octant; /* x - q pi/4, in three parts */
    x = fused(q, -0.78515625f, x);
    x = fused(q, -2.4187564849853515625e-4f, x);
    x = fused(q, -3.77489497744594108e-8f, x);
    float z = x * x;
    float c = fused(fused(2.443315711809948E-005f, z, -1.388731625493765E-003f), z, 4.166664568298827E-002f);
    c = fused(c * z, z, -0.5f * z) + 1;
    float s = fused(fused(-1.9515295891E-4f, z, 8.3321608736E-3f), z, -1.6666654611E-1f);
    s = fused(s * z, x, x);
    switch (octant & 6) {
    case 0: *sine = s, *cosine = c; break;
    case 2: *sine = c, *cosine = -s; break;
    case 4: *sine = -s, *cosine = -c; break;
    default: *sine = -c, *cosine = s; break;
    }
}

/* ---- normal numbers --------------------------------------------------------------------------------------------- */

static void fill_few(float *out, int64_t n, twister *t) {
    for (int64_t i = 0; i < n; i += 2) {
        double u = uniform53(t), v = uniform53(t), sine, cosine;
        double radius = sqrt(-2 * log_f64(1 - v));
        sin_cos_f64(2 * 3.141592653589793 * u, &sine, &cosine);
        out[i] = (float)(radius * cosine);
        if (i + 1 < n) out[i + 1] = (float)(radius * sine);
    }
}

static void fill_16(float *out, twister *t) {
    float uniform[16];
    for (int j = 0; j < 16; j++) uniform[j] = uniform24(t);
    for (int j = 0; j < 8; j++) {
        float radius = (float)sqrt((double)(-2 * log_f32(1 - uniform[j]))); /* exact: as sqrtf would round */
        float sine, cosine;
        sin_cos_f32(6.2831855f * uniform[j + 8], &sine, &cosine);
        out[j] = radius * cosine;
        out[j + 8] = radius * sine;
    }
}

void lz_torch_randn(float *out, int64_t n, uint64_t seed) {
    twister t;
    twister_seed(&t, seed);
    if (n < 16) {
        fill_few(out, n, &t);
        return;
    }
    for (int64_t i = 0; i + 16 <= n; i += 16) fill_16(out + i, &t);
    if (n % 16 == 0) return;
    for (int64_t i = 0; i < n % 16; i++) draw(&t); /* torch has drawn the tail too, before it draws the last 16 again */
    fill_16(out + n - 16, &t);
}
