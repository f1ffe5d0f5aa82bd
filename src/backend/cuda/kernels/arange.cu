/* arange.cu: out[i] = start + i step, computed in f64 and rounded once.
 *
 * Before it, in the head: OUT_TYPE. */
enum { THREADS = 256 };

/* Round to odd: v itself if it is a float, otherwise the neighbouring float whose last bit is 1. Rounding the result to
 * fewer bits then gives the same as rounding v directly. */
FN float round_to_odd(double v) {
    float nearest = (float)v;
    if (v != v || (double)nearest == v) return nearest;
    bool beyond = v < 0.0 ? (double)nearest < v : (double)nearest > v;
    return __uint_as_float((__float_as_uint(nearest) - (beyond ? 1u : 0u)) | 1u);
}

template <class T> FN void from_double(T &to, double v) { from_float(to, round_to_odd(v)); }
FN void from_double(float &to, double v) { to = (float)v; }
FN void from_double(boolean &to, double v) { to.bits = v != 0.0; }

/* Toward zero, into the range of the type; NaN gives 0. */
FN i64 saturate(double v, i64 low, i64 high) {
    return v != v ? 0 : v <= (double)low ? low : v >= (double)high ? high : (i64)v;
}
FN void from_double(u8 &to, double v) { to = (u8)saturate(v, 0, 255); }
FN void from_double(i8 &to, double v) { to = (i8)saturate(v, -128, 127); }
FN void from_double(i32 &to, double v) { to = (i32)saturate(v, -2147483647LL - 1, 2147483647LL); }
FN void from_double(i64 &to, double v) { to = saturate(v, -9223372036854775807LL - 1, 9223372036854775807LL); }

extern "C" __global__ void __launch_bounds__(THREADS) arange(const __grid_constant__ lz_arange_params p) {
    const i64 i = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (i < p.n) from_double(((OUT_TYPE *)p.out)[i * p.stride], p.start + (double)i * p.step);
}
