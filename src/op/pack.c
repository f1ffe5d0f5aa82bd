/* pack.c: see pack.h. Each block packing has a function. The K packings share the fit of a scale (fit_symmetric), or of
 * a scale and a minimum (fit_affine), to a run of weights. */
#include "op/pack.h"

#include <math.h>
#include <string.h>

#include "op/number.h"

enum { RUN = 32, SUPER = 256, TRIALS = 9, MIDDLE = TRIALS / 2 };

static float clean(float v) { return isfinite(v) ? v : 0.0f; }

static int clamp(int v, int low, int high) { return v < low ? low : v > high ? high : v; }

static void put_half(uint8_t *to, float v) {
    uint16_t h = lz_to_f16(v);
    to[0] = (uint8_t)h, to[1] = (uint8_t)(h >> 8);
}
static float rounded_half(float v) { return lz_from_f16(lz_to_f16(v)); }

/* The weight of the largest magnitude, with its sign; the first one if there are several. */
static float extreme_of(const float *x, int n) {
    float most = 0;
    for (int i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(most)) most = x[i];
    return most;
}

static void range_of(const float *x, int n, float *low, float *high) {
    *low = *high = x[0];
    for (int i = 1; i < n; i++) {
        if (x[i] < *low) *low = x[i];
        if (x[i] > *high) *high = x[i];
    }
}

/* ---- blocks of 32, as ggml's reference rounds them --------------------------------------------------------------- */

/* Writes the low four bits of each element, in two halves; the fifth bit, if there is one, to high. */
static void put_nibbles(const uint8_t *code, uint8_t *q, uint8_t *high) {
    for (int i = 0; i < RUN / 2; i++) q[i] = (uint8_t)((code[i] & 15) | (code[i + RUN / 2] & 15) << 4);
    for (int i = 0; high && i < RUN; i++) high[i / 8] |= (uint8_t)((code[i] >> 4) << i % 8);
}

/* The weight of the largest magnitude gets code 0, which means -middle. */
static void pack_symmetric(const float *x, int middle, uint8_t *to, uint8_t *q, uint8_t *high) {
    uint8_t code[RUN];
    float scale = extreme_of(x, RUN) / -(float)middle, inverse = scale != 0 ? 1 / scale : 0;
    for (int i = 0; i < RUN; i++)
        code[i] = (uint8_t)clamp((int)((double)x[i] * inverse + middle + 0.5), 0, 2 * middle - 1);
    put_half(to, scale);
    put_nibbles(code, q, high);
}

static void pack_affine(const float *x, int levels, uint8_t *to, uint8_t *q, uint8_t *high) {
    uint8_t code[RUN];
    float low, most;
    range_of(x, RUN, &low, &most);
    float scale = (most - low) / (float)levels, inverse = scale != 0 ? 1 / scale : 0;
    for (int i = 0; i < RUN; i++) code[i] = (uint8_t)clamp((int)((x[i] - low) * inverse + 0.5f), 0, levels);
    put_half(to, scale);
    put_half(to + 2, low);
    put_nibbles(code, q, high);
}

static void q4_0(const float *x, uint8_t *to) { pack_symmetric(x, 8, to, to + 2, NULL); }
static void q4_1(const float *x, uint8_t *to) { pack_affine(x, 15, to, to + 4, NULL); }
static void q5_0(const float *x, uint8_t *to) { pack_symmetric(x, 16, to, to + 6, to + 2); }
static void q5_1(const float *x, uint8_t *to) { pack_affine(x, 31, to, to + 8, to + 4); }
static void q8_0(const float *x, uint8_t *to) {
    float scale = fabsf(extreme_of(x, RUN)) / 127, inverse = scale != 0 ? 1 / scale : 0;
    put_half(to, scale);
    for (int i = 0; i < RUN; i++) to[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
}

/* ---- runs of the K packings -------------------------------------------------------------------------------------- */

/* The scale s for which s * q, q = -levels .. levels - 1, is nearest to x. Tries several ranges, and computes the best
 * scale for the codes of each. */
static float fit_symmetric(const float *x, int n, int levels) {
    float extreme = extreme_of(x, n), best_score = 0, best = 0;
    if (extreme == 0) return 0;
    for (int t = 0; t < TRIALS; t++) {
        float inverse = -((float)levels + 0.1f * (float)(t - MIDDLE)) / extreme, xq = 0, qq = 0;
        for (int i = 0; i < n; i++) {
            float q = fminf(fmaxf(rintf(x[i] * inverse), -(float)levels), (float)levels - 1);
            xq += x[i] * q, qq += q * q;
        }
        float score = qq > 0 ? xq * xq / qq : 0; /* the explained part of the sum of squares */
        if (score > best_score) best_score = score, best = xq / qq;
    }
    return best;
}

/* The scale s and minimum m >= 0 for which s * q - m, q = 0 .. levels, is nearest to x. */
static void fit_affine(const float *x, int n, int levels, float *scale, float *minimum) {
    float low, high, sum_x = 0, best_error = INFINITY;
    range_of(x, n, &low, &high);
    if (low > 0) low = 0;
    *scale = 0, *minimum = -low;
    if (high <= low) return;
    for (int i = 0; i < n; i++) sum_x += x[i];
    for (int t = 0; t < TRIALS; t++) {
        float inverse = ((float)levels + 0.1f * (float)(t - MIDDLE)) / (high - low), q1 = 0, q2 = 0, xq = 0, error = 0;
        for (int i = 0; i < n; i++) {
            float q = fminf(fmaxf(rintf((x[i] - low) * inverse), 0), (float)levels);
            q1 += q, q2 += q * q, xq += x[i] * q;
        }
        float divisor = (float)n * q2 - q1 * q1;
        if (divisor <= 0) continue;
        float s = ((float)n * xq - sum_x * q1) / divisor, m = (s * q1 - sum_x) / (float)n;
        if (m < 0) m = 0, s = xq / q2;
        if (!(s > 0)) continue;
        for (int i = 0; i < n; i++) {
            float q = fminf(fmaxf(rintf((x[i] + m) / s), 0), (float)levels), e = x[i] - (s * q - m);
            error += e * e;
        }
        if (error < best_error) best_error = error, *scale = s, *minimum = m;
    }
    if (best_error == INFINITY) *scale = (high - low) / (float)levels;
}

/* Scales and minimums of all runs are integers up to `limit`, times two f16 numbers. */
static void fit_runs(const float *x, int run, int levels, int limit, uint8_t *to_scale, uint8_t *to_minimum,
                     uint8_t *scale, uint8_t *minimum, uint8_t *code) {
    float s[SUPER / 16], m[SUPER / 16], most_s = 0, most_m = 0;
    for (int j = 0; j < SUPER / run; j++) {
        fit_affine(x + j * run, run, levels, &s[j], &m[j]);
        most_s = fmaxf(most_s, s[j]), most_m = fmaxf(most_m, m[j]);
    }
    float d = rounded_half(most_s / (float)limit), dm = rounded_half(most_m / (float)limit);
    put_half(to_scale, d);
    put_half(to_minimum, dm);
    for (int j = 0; j < SUPER / run; j++) {
        scale[j] = (uint8_t)(d > 0 ? clamp((int)rintf(s[j] / d), 0, limit) : 0);
        minimum[j] = (uint8_t)(dm > 0 ? clamp((int)rintf(m[j] / dm), 0, limit) : 0);
        float step = d * (float)scale[j], shift = dm * (float)minimum[j], inverse = step > 0 ? 1 / step : 0;
        for (int i = j * run; i < (j + 1) * run; i++)
            code[i] = (uint8_t)fminf(fmaxf(rintf((x[i] + shift) * inverse), 0), (float)levels);
    }
}

/* Scales are signed integers from -limit to limit - 1, times an f16 number; code 0 means -levels. */
static void fit_signed_runs(const float *x, int levels, int limit, uint8_t *to_scale, int *scale, uint8_t *code) {
    float s[SUPER / 16];
    for (int j = 0; j < SUPER / 16; j++) s[j] = fit_symmetric(x + j * 16, 16, levels);
    float d = rounded_half(extreme_of(s, SUPER / 16) / -(float)limit);
    put_half(to_scale, d);
    for (int j = 0; j < SUPER / 16; j++) {
        scale[j] = d != 0 ? clamp((int)rintf(s[j] / d), -limit, limit - 1) : 0;
        float step = d * (float)scale[j], inverse = step != 0 ? 1 / step : 0;
        for (int i = j * 16; i < (j + 1) * 16; i++)
            code[i] = (uint8_t)(fminf(fmaxf(rintf(x[i] * inverse), -(float)levels), (float)levels - 1) + (float)levels);
    }
}

/* ---- blocks of 256 ----------------------------------------------------------------------------------------------- */

static void put_crumbs(const uint8_t *code, uint8_t *q) {
    for (int i = 0; i < SUPER; i++) q[32 * (i / 128) + i % 32] |= (uint8_t)((code[i] & 3) << 2 * (i % 128 / 32));
}

static void q2_k(const float *x, uint8_t *to) {
    uint8_t scale[16], minimum[16], code[SUPER];
    fit_runs(x, 16, 3, 15, to + 80, to + 82, scale, minimum, code);
    for (int j = 0; j < 16; j++) to[j] = (uint8_t)(scale[j] | minimum[j] << 4);
    put_crumbs(code, to + 16);
}

static void q3_k(const float *x, uint8_t *to) {
    int scale[16];
    uint8_t code[SUPER], *s = to + 96;
    fit_signed_runs(x, 4, 32, to + 108, scale, code);
    for (int j = 0; j < 16; j++) {
        int v = scale[j] + 32;
        s[j % 8] |= (uint8_t)((v & 15) << 4 * (j / 8));
        s[8 + j % 4] |= (uint8_t)((v >> 4) << 2 * (j / 4));
    }
    for (int i = 0; i < SUPER; i++) to[i % 32] |= (uint8_t)((code[i] >> 2) << i / 32);
    put_crumbs(code, to + 32);
}

/* Q4_K and Q5_K: eight scales and minimums of six bits. */
static void put_six_bits(const uint8_t *scale, const uint8_t *minimum, uint8_t *s) {
    for (int j = 0; j < 4; j++) {
        s[j] = (uint8_t)(scale[j] | (scale[j + 4] >> 4) << 6);
        s[j + 4] = (uint8_t)(minimum[j] | (minimum[j + 4] >> 4) << 6);
        s[j + 8] = (uint8_t)((scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4);
    }
}
static void put_nibble_pairs(const uint8_t *code, uint8_t *q) {
    for (int i = 0; i < SUPER; i++) q[32 * (i / 64) + i % 32] |= (uint8_t)((code[i] & 15) << 4 * (i / 32 % 2));
}

static void q4_k(const float *x, uint8_t *to) {
    uint8_t scale[8], minimum[8], code[SUPER];
    fit_runs(x, RUN, 15, 63, to, to + 2, scale, minimum, code);
    put_six_bits(scale, minimum, to + 4);
    put_nibble_pairs(code, to + 16);
}

static void q5_k(const float *x, uint8_t *to) {
    uint8_t scale[8], minimum[8], code[SUPER];
    fit_runs(x, RUN, 31, 63, to, to + 2, scale, minimum, code);
    put_six_bits(scale, minimum, to + 4);
    put_nibble_pairs(code, to + 48);
    for (int i = 0; i < SUPER; i++) to[16 + i % 32] |= (uint8_t)((code[i] >> 4) << i / 32);
}

static void q6_k(const float *x, uint8_t *to) {
    int scale[16];
    uint8_t code[SUPER];
    fit_signed_runs(x, 32, 128, to + 208, scale, code);
    for (int j = 0; j < 16; j++) to[192 + j] = (uint8_t)(int8_t)scale[j];
    for (int i = 0; i < SUPER; i++) {
        int g = i / 128, t = i % 128 / 32, r = i % 32;
        to[64 * g + 32 * (t % 2) + r] |= (uint8_t)((code[i] & 15) << 4 * (t / 2));
        to[128 + 32 * g + r] |= (uint8_t)((code[i] >> 4) << 2 * t);
    }
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static void (*const block_packers[LZ_PACKING_COUNT])(const float *x, uint8_t *to) = {
    [LZ_PACKING_Q4_0] = q4_0, [LZ_PACKING_Q4_1] = q4_1, [LZ_PACKING_Q5_0] = q5_0, [LZ_PACKING_Q5_1] = q5_1,
    [LZ_PACKING_Q8_0] = q8_0, [LZ_PACKING_Q2_K] = q2_k, [LZ_PACKING_Q3_K] = q3_k, [LZ_PACKING_Q4_K] = q4_k,
    [LZ_PACKING_Q5_K] = q5_k, [LZ_PACKING_Q6_K] = q6_k,
};

bool lz_can_pack(lz_packing packing) { return packing >= 0 && packing < LZ_PACKING_COUNT && block_packers[packing]; }

void lz_pack_row(lz_packing packing, const float *x, int64_t columns, uint8_t *to) {
    const lz_packing_info *info = &lz_packing_table[packing];
    float block[LZ_PACKING_MAX_ELEMENTS];
    for (int64_t at = 0; at + info->elements <= columns; at += info->elements, to += info->bytes) {
        for (int i = 0; i < info->elements; i++) block[i] = clean(x[at + i]);
        memset(to, 0, (size_t)info->bytes);
        block_packers[packing](block, to);
    }
}

float lz_pack_scale(lz_packing packing, float largest) {
    const float least = 0x1p-120f; /* the inverse of a smaller scale may be infinite; such weights become 0 */
    float scale = largest / (packing == LZ_PACKING_I8 ? 127.0f : 448.0f);
    return scale >= least && isfinite(scale) ? scale : 1.0f;
}

void lz_pack_codes(lz_packing packing, const float *x, int64_t n, float scale, uint8_t *to) {
    const float shift = 0x1.8p23f; /* adding and subtracting it rounds to a whole number, as rintf */
    float inverse = 1 / scale;
    if (packing == LZ_PACKING_I8)
        for (int64_t i = 0; i < n; i++) {
            float v = clean(x[i]) * inverse;
            v = v > -127 ? v : -127; /* NaN too */
            v = v < 127 ? v : 127;
            to[i] = (uint8_t)(int8_t)(v + shift - shift);
        }
    else
        for (int64_t i = 0; i < n; i++) to[i] = lz_to_f8(clean(x[i]) * inverse);
}

/* NaN if one of them is, else the largest magnitude. */
static float largest_magnitude(const float *x, int64_t n) {
    uint32_t largest = 0; /* bits of magnitudes are in the order of the numbers; infinity and NaN come last */
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = lz_float_to_bits(x[i]) & 0x7fffffff;
        largest = bits > largest ? bits : largest;
    }
    return lz_bits_to_float(largest);
}

float lz_quantise_row(lz_dtype dtype, float *x, int64_t n, int64_t rotate, void *codes) {
    uint8_t *to = codes;
    for (int64_t i = 0; rotate && i < n; i += rotate) lz_rotate_group(x + i, rotate);
    float scale = lz_code_scale(dtype, largest_magnitude(x, n)), inverse = scale > 0 ? 1 / scale : 0;
    for (int64_t i = 0; i < n; i++)
        to[i] = !(inverse > 0) ? 0 : dtype == LZ_F8 ? lz_to_f8(x[i] * inverse) : (uint8_t)(int8_t)rintf(x[i] * inverse);
    return scale;
}

/* The sum of squared errors of x * inverse, rounded to f8: to multiples of 2^-9, then to 4 bits. */
static float f8_error(const float *x, int64_t n, float inverse) {
    typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
    const float shift = 0x1.8p14f, cut = 0x1p20f + 1;
    four sums[2] = {{0}, {0}};
    for (int64_t i = 0; i + 8 <= n; i += 8)
        for (int k = 0; k < 2; k++) {
            four v = *(const four *)(x + i + 4 * k) * inverse, multiple = v + shift - shift;
            four wide = multiple * cut, error = v - (wide - (wide - multiple));
            sums[k] += error * error;
        }
    four both = sums[0] + sums[1];
    return (both[0] + both[1]) + (both[2] + both[3]);
}

float lz_fit_f8_scale(const float *x, int64_t n) {
    enum { TRIED = 16 };
    float largest = 0, best = 0, least = INFINITY;
    for (int64_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(clean(x[i])));
    float first = lz_pack_scale(LZ_PACKING_E4M3, largest);
    for (int k = 0; k < TRIED; k++) {
        float scale = first * exp2f((float)k / TRIED), error = f8_error(x, n, 1 / scale) * scale * scale;
        if (k == 0 || error < least) best = scale, least = error;
    }
    return best;
}
