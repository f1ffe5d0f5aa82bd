/* ref_product.c: sums of products: matmul, attention, convolution, and rope's rotations. All sums are in f64. */
#include "backend/ref/ref.h"

#include <math.h>

#define AT(...) ((const int64_t[]){__VA_ARGS__})

/* ---- matmul ----------------------------------------------------------------------------------------------------- */

/* a [m, k], b [k, n], out [m, n] */
static void matrix_product(const lz_tensor *out, const lz_tensor *a, const lz_tensor *b) {
    FOR_EACH(i, out->dims) {
        double sum = 0;
        for (int64_t k = 0; k < a->dims.at[1]; k++) sum += get_real(a, AT(i[0], k)) * get_real(b, AT(k, i[1]));
        set_real(out, i, sum);
    }
}

static void whole_matrix_product(const lz_tensor *out, const lz_tensor *a, const lz_tensor *b) {
    FOR_EACH(i, out->dims) {
        int64_t sum = 0;
        for (int64_t k = 0; k < a->dims.at[1]; k++) {
            sum = wrapping_add(sum, wrapping_mul(get_whole(a, AT(i[0], k)), get_whole(b, AT(k, i[1]))));
        }
        set_whole(out, i, sum);
    }
}

bool lz_ref_matmul(const lz_call *call) {
    lz_dims batch = lz_ref_leading(call->out.dims, call->out.dims.n - 2);
    FOR_EACH(i, batch) {
        lz_tensor a = lz_ref_inner(&call->in[0], i, batch.n), b = lz_ref_inner(&call->in[1], i, batch.n);
        lz_tensor out = lz_ref_inner(&call->out, i, batch.n);
        (lz_is_float(out.dtype) ? matrix_product : whole_matrix_product)(&out, &a, &b);
    }
    return true;
}

/* ---- attention -------------------------------------------------------------------------------------------------- */

/* One head of one batch entry: q [n, d], k [m, d], v [m, dv], mask [n, m] or none. */
typedef struct head {
    lz_tensor q, k, v, mask;
    bool masked, causal;
    double scale;
} head;

/* The score of query i and key j, before the softmax; -inf: masked. */
static double score(const head *h, int64_t i, int64_t j) {
    int64_t n = h->q.dims.at[0], m = h->k.dims.at[0], d = h->q.dims.at[1];
    bool bool_mask = h->masked && h->mask.dtype == LZ_BOOL;
    if (h->causal && j > i + (m - n)) return -INFINITY;
    if (bool_mask && !get_whole(&h->mask, AT(i, j))) return -INFINITY;
    double dot = 0;
    for (int64_t c = 0; c < d; c++) dot += get_real(&h->q, AT(i, c)) * get_real(&h->k, AT(j, c));
    return dot * h->scale + (h->masked && !bool_mask ? get_real(&h->mask, AT(i, j)) : 0);
}

/* out [n, dv]. Scores are computed again for each pass and each block of columns, so that no row of them is stored. */
static void attend(const head *h, const lz_tensor *out) {
    enum { BLOCK = 512 };
    int64_t n = out->dims.at[0], m = h->k.dims.at[0], columns = out->dims.at[1];
    for (int64_t i = 0; i < n; i++) {
        double most = -INFINITY;
        for (int64_t j = 0; j < m; j++) most = bigger(most, score(h, i, j));
        for (int64_t start = 0; start < columns; start += BLOCK) {
            int64_t width = columns - start < BLOCK ? columns - start : BLOCK;
            double sum = 0, looked[BLOCK] = {0};
            for (int64_t j = 0; j < m; j++) {
                double s = score(h, i, j);
                if (s == -INFINITY) continue; /* masked: the value is ignored, even NaN */
                double weight = exp(s - most);
                sum += weight;
                for (int64_t c = 0; c < width; c++) looked[c] += weight * get_real(&h->v, AT(j, start + c));
            }
            for (int64_t c = 0; c < width; c++) {
                set_real(out, AT(i, start + c), most == -INFINITY ? 0 : looked[c] / sum);
            }
        }
    }
}

bool lz_ref_sdpa(const lz_call *call) { /* q [b, h, n, d], k and v [b, g, m, d], mask [b, h, n, m] */
    const lz_tensor *q = &call->in[0], *k = &call->in[1], *v = &call->in[2];
    int64_t heads_per_group = q->dims.at[1] / k->dims.at[1];
    head h = {
        .masked = call->n_core > 3,
        .causal = call->params->sdpa.causal,
        .scale = call->params->sdpa.scale,
    };
    lz_dims heads = lz_ref_leading(call->out.dims, 2);
    FOR_EACH(i, heads) {
        const int64_t *group = AT(i[0], i[1] / heads_per_group);
        h.q = lz_ref_inner(q, i, 2);
        h.k = lz_ref_inner(k, group, 2);
        h.v = lz_ref_inner(v, group, 2);
        if (h.masked) h.mask = lz_ref_inner(&call->in[3], i, 2);
        lz_tensor out = lz_ref_inner(&call->out, i, 2);
        attend(&h, &out);
    }
    return true;
}

/* ---- convolution ------------------------------------------------------------------------------------------------ */

bool lz_ref_conv2d(const lz_call *call) { /* x [n, h, w, c], weight [o, kh, kw, c], out [n, oh, ow, o] */
    const lz_tensor *x = &call->in[0], *weight = &call->in[1];
    int64_t height = x->dims.at[1], width = x->dims.at[2];
    lz_dims taps = {.n = 3, .at = {weight->dims.at[1], weight->dims.at[2], weight->dims.at[3]}};
    int64_t stride = call->params->conv.stride, top = call->params->conv.top, left = call->params->conv.left;
    FOR_EACH(i, call->out.dims) {
        double sum = 0;
        FOR_EACH(tap, taps) {
            int64_t row = i[1] * stride + tap[0] - top, column = i[2] * stride + tap[1] - left;
            if (row < 0 || row >= height || column < 0 || column >= width) continue; /* padding is zero */
            sum += get_real(x, AT(i[0], row, column, tap[2])) * get_real(weight, AT(i[3], tap[0], tap[1], tap[2]));
        }
        set_real(&call->out, i, sum);
    }
    return true;
}

/* ---- rope ------------------------------------------------------------------------------------------------------- */

/* Rotates pairs of x [..., d], after multiplying by weight [d] if there is one. */
bool lz_ref_rope(const lz_call *call) { /* x [..., n, d], cos and sin [..., n, d/2], weight [..., n, d] */
    bool half_split = call->params->rope.half_split, weighted = call->n_core > 3;
    lz_dims rows = lz_ref_leading(call->out.dims, call->out.dims.n - 1);
    int64_t d = call->out.dims.at[rows.n];
    FOR_EACH(r, rows) {
        lz_tensor x = lz_ref_inner(&call->in[0], r, rows.n), out = lz_ref_inner(&call->out, r, rows.n);
        lz_tensor cosine = lz_ref_inner(&call->in[1], r, rows.n), sine = lz_ref_inner(&call->in[2], r, rows.n);
        lz_tensor weight = weighted ? lz_ref_inner(&call->in[3], r, rows.n) : x;
        double scale = 1;
        if (call->params->rope.norm) {
            double sum = 0;
            for (int64_t i = 0; i < d; i++) sum += get_real(&x, AT(i)) * get_real(&x, AT(i));
            scale = 1 / sqrt(sum / (double)d + call->params->rope.eps);
        }
        for (int64_t i = 0; i < d / 2; i++) {
            int64_t first = half_split ? i : 2 * i, second = half_split ? i + d / 2 : 2 * i + 1;
            double a = get_real(&x, &first) * scale, b = get_real(&x, &second) * scale;
            if (weighted) {
                a *= get_real(&weight, &first);
                b *= get_real(&weight, &second);
            }
            double c = get_real(&cosine, &i), s = get_real(&sine, &i);
            set_real(&out, &first, a * c - b * s);
            set_real(&out, &second, b * c + a * s);
        }
    }
    return true;
}
