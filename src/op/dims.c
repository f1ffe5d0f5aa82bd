/* dims.c: see dims.h. */
#include "op/dims.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int64_t size;
} dtypes[LZ_DTYPE_COUNT] = {
    [LZ_BOOL] = {"bool", 1}, [LZ_U8] = {"u8", 1},   [LZ_I8] = {"i8", 1},   [LZ_I32] = {"i32", 4},
    [LZ_I64] = {"i64", 8},   [LZ_F8] = {"f8", 1},   [LZ_F16] = {"f16", 2}, [LZ_BF16] = {"bf16", 2},
    [LZ_F32] = {"f32", 4},   [LZ_F64] = {"f64", 8},
};

static bool known(lz_dtype dtype) { return dtype >= 0 && dtype < LZ_DTYPE_COUNT; }
const char *lz_dtype_name(lz_dtype dtype) { return known(dtype) ? dtypes[dtype].name : "unknown type"; }
int64_t lz_dtype_size(lz_dtype dtype) { return known(dtype) ? dtypes[dtype].size : 0; }
bool lz_is_float(lz_dtype dtype) { return dtype >= LZ_F8 && dtype <= LZ_F64; }

/* Torch's promotion table, except that u8 with i8 gives i32 (there is no i16 here), and fp8 is below every other
 * float. */
lz_dtype lz_promote(lz_dtype a, lz_dtype b) {
    enum {
        B = LZ_BOOL,
        U = LZ_U8,
        I = LZ_I8,
        W = LZ_I32,
        L = LZ_I64,
        E = LZ_F8,
        H = LZ_F16,
        G = LZ_BF16,
        F = LZ_F32,
        D = LZ_F64
    };
    static const uint8_t table[LZ_DTYPE_COUNT][LZ_DTYPE_COUNT] = {
        /*            B  U  I  W  L  E  H  G  F  D */
        [LZ_BOOL] = {B, U, I, W, L, E, H, G, F, D}, [LZ_U8] = {U, U, W, W, L, E, H, G, F, D},
        [LZ_I8] = {I, W, I, W, L, E, H, G, F, D},   [LZ_I32] = {W, W, W, W, L, E, H, G, F, D},
        [LZ_I64] = {L, L, L, L, L, E, H, G, F, D},  [LZ_F8] = {E, E, E, E, E, E, H, G, F, D},
        [LZ_F16] = {H, H, H, H, H, H, H, F, F, D},  [LZ_BF16] = {G, G, G, G, G, G, F, G, F, D},
        [LZ_F32] = {F, F, F, F, F, F, F, F, F, D},  [LZ_F64] = {D, D, D, D, D, D, D, D, D, D},
    };
    return known(a) && known(b) ? (lz_dtype)table[a][b] : LZ_F32;
}

const char *lz_dims_text(lz_dims dims, char to[LZ_DIMS_TEXT]) {
    size_t used = (size_t)snprintf(to, LZ_DIMS_TEXT, "[");
    for (int i = 0; i < dims.n && i < LZ_MAX_DIMS && used < LZ_DIMS_TEXT; i++)
        used += (size_t)snprintf(to + used, LZ_DIMS_TEXT - used, i ? ", %lld" : "%lld", (long long)dims.at[i]);
    if (used < LZ_DIMS_TEXT) snprintf(to + used, LZ_DIMS_TEXT - used, "]");
    return to;
}

int64_t lz_dims_size(lz_dims dims) {
    if (dims.n < 0 || dims.n > LZ_MAX_DIMS) return -1;
    int64_t size = 1, span = 1; /* span: the size with zeros replaced by 1, so that strides cannot overflow either */
    for (int i = 0; i < dims.n; i++) {
        int64_t d = dims.at[i];
        if (d < 0 || __builtin_mul_overflow(span, d ? d : 1, &span) || span > INT64_MAX / 16) return -1;
        size *= d;
    }
    return size;
}

bool lz_dims_equal(lz_dims a, lz_dims b) { return a.n == b.n && memcmp(a.at, b.at, (size_t)a.n * sizeof a.at[0]) == 0; }

void lz_dense_strides(lz_dims dims, int64_t strides[LZ_MAX_DIMS]) {
    int64_t step = 1;
    for (int i = dims.n - 1; i >= 0; i--) {
        strides[i] = step;
        step *= dims.at[i] ? dims.at[i] : 1;
    }
}

int64_t lz_beside(lz_dims dims, lz_dtype dtype) {
    int64_t size = lz_dtype_size(dtype), align = size > 0 ? 256 / size : 1;
    return (lz_dims_size(dims) + align - 1) / align * align;
}

void lz_ordered_strides(lz_dims dims, const int64_t *like, int64_t strides[LZ_MAX_DIMS]) {
    bool done[LZ_MAX_DIMS] = {false};
    int64_t step = 1;
    for (int n = 0; n < dims.n; n++) {
        int next = n ? -1 : dims.n - 1;
        for (int i = dims.n - 1; n && i >= 0; i--)
            if (!done[i] && (next < 0 || like[i] < like[next])) next = i;
        done[next] = true;
        strides[next] = step;
        step *= dims.at[next] ? dims.at[next] : 1;
    }
}

bool lz_is_dense(lz_dims dims, const int64_t *strides) {
    int64_t step = 1;
    for (int i = dims.n - 1; i >= 0; i--) {
        if (dims.at[i] == 0) return true;
        if (dims.at[i] != 1 && strides[i] != step) return false;
        step *= dims.at[i];
    }
    return true;
}

/* Goes through both shapes from the last axis: a run of old axes that is evenly strided in memory can be divided into
 * any new axes. */
bool lz_reshape_strides(lz_dims from, const int64_t *strides, lz_dims to, int64_t *out) {
    if (lz_dims_size(from) == 0 || from.n == 0) {
        lz_dense_strides(to, out);
        return true;
    }
    int j = to.n - 1;
    int64_t run = 1, taken = 1,
            /* Elements of the run, elements already assigned to new axes, stride of the run. */
        step = strides[from.n - 1];
    for (int i = from.n - 1; i >= 0; i--) {
        run *= from.at[i];
        bool ends = i == 0 || (from.at[i - 1] != 1 && strides[i - 1] != run * step);
        if (!ends) continue;
        while (j >= 0 && (taken < run || to.at[j] == 1)) {
            out[j] = taken * step;
            taken *= to.at[j--];
        }
        if (taken != run) return false;
        if (i > 0) {
            step = strides[i - 1];
            run = taken = 1;
        }
    }
    return j < 0;
}
