/* random.c: the numbers of torch.randn on a CPU, so that a seed gives the same picture as in other programs.
 *
 * Torch draws 32-bit words from a Mersenne twister and turns pairs of uniform numbers into pairs of normal ones
 * (Box-Muller: a radius sqrt(-2 log u) and an angle 2 pi v). It has two algorithms, both reproduced here:
 *
 *   n < 16    in f64, one pair after the other, 53-bit uniforms (at::normal_distribution<double>).
 *   n >= 16   in f32, blocks of 16: number j pairs with j + 8; uniforms have 24 bits. If n is not a multiple of 16, the
 *             last 16 numbers are drawn again and replaced (NormalFill16 in ATen's DistributionTemplates.h).
 *
 * In f32 the roundings on the way are part of the answer: an angle near pi rounded to f32 moves its sine by far more
 * than 2 ulp. So the f32 algorithm does the same operations as torch's AVX2 kernel, including its polynomials
 * (box_muller.h). (Torch without AVX2 rounds differently, and differs by 10^5 ulp from torch with AVX2.)
 *
 * The bits are the same on every machine: log, sin and cos use only + - * / and sqrt, which IEEE 754 defines exactly;
 * libm's functions are not. The compiler must not fuse a * b + c: build with -ffp-contract=off. */
#include "op/random.h"

#include <math.h>
#include <string.h>

#include "op/box_muller.h"

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

static uint32_t twist(uint32_t word, uint32_t next, uint32_t far) {
    return far ^ (((word & 0x80000000u) | (next & 0x7fffffffu)) >> 1) ^ (-(next & 1) & 0x9908b0dfu);
}

static void twister_refill(twister *t) {
    enum { LEFT = TWISTER_N - TWISTER_M };
    uint32_t *s = t->state;
    for (int i = 0; i < LEFT; i++) s[i] = twist(s[i], s[i + 1], s[i + TWISTER_M]);
    for (int i = LEFT; i < TWISTER_N - 1; i++) s[i] = twist(s[i], s[i + 1], s[i - LEFT]);
    s[TWISTER_N - 1] = twist(s[TWISTER_N - 1], s[0], s[TWISTER_M - 1]);
    t->next = 0;
}

static uint32_t temper(uint32_t y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

static uint32_t draw(twister *t) {
    if (t->next == TWISTER_N) twister_refill(t);
    return temper(t->state[t->next++]);
}

static void draw_uniform24(twister *t, float *out, int64_t n) { /* [0, 1) */
    for (int64_t done = 0; done < n;) {
        if (t->next == TWISTER_N) twister_refill(t);
        int64_t left = TWISTER_N - t->next, now = n - done < left ? n - done : left;
        const uint32_t *words = t->state + t->next;
        for (int64_t i = 0; i < now; i++) out[done + i] = (float)(int32_t)(temper(words[i]) & 0xffffffu) * 0x1p-24f;
        t->next += (int)now;
        done += now;
    }
}

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

/* 0 <= x < 7. x = q pi/2 + r with |r| <= pi/4 and the Taylor series of r; the quadrant q selects sine or cosine and the
 * sign. */
static void sin_cos_f64(double x, double *sine, double *cosine) {
    int q = (int)(x * 0.6366197723675814 + 0.5);
    double r = x - q * 0x1.921fb544p+0; /* pi/2 as a sum of two numbers: q times the first is exact */
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

bool lz_torch_uniform(float *out, int64_t n, float last[16], uint64_t seed) {
    twister t;
    twister_seed(&t, seed);
    if (n < 16) {
        fill_few(out, n, &t);
        return false;
    }
    draw_uniform24(&t, out, n); /* torch draws all n, and then the last 16 again */
    if (n % 16) draw_uniform24(&t, last, 16);
    return true;
}

/* 16 uniform numbers become normal ones: number j pairs with j + 8. */
static void make_normal(float x[16]) {
    for (int j = 0; j < 8; j++) lz_box_muller(x[j], x[j + 8], &x[j], &x[j + 8]);
}

void lz_torch_randn(float *out, int64_t n, uint64_t seed) {
    float last[16];
    if (!lz_torch_uniform(out, n, last, seed)) return;
    for (int64_t i = 0; i + 16 <= n; i += 16) make_normal(out + i);
    if (n % 16 == 0) return;
    make_normal(last);
    memcpy(out + n - 16, last, sizeof last);
}
