/* ref_reduce.c: reductions, softmax and norms. Each reduction is a function from a tensor to a number; the kernels call
 * it for each row. */
#include "backend/ref/ref.h"

#include <math.h>

/* ---- a tensor to a number --------------------------------------------------------------------------------------- */

static int64_t count(const lz_tensor *x) {
    int64_t n = 1;
    for (int i = 0; i < x->dims.n; i++) n *= x->dims.at[i];
    return n;
}

static double sum_real(const lz_tensor *x) {
    double sum = 0;
    FOR_EACH(i, x->dims) sum += get_real(x, i);
    return sum;
}

static double mean_real(const lz_tensor *x) { return sum_real(x) / (double)count(x); }

static double mean_square(const lz_tensor *x, double centre) { /* of x - centre */
    double sum = 0;
    FOR_EACH(i, x->dims) {
        double d = get_real(x, i) - centre;
        sum += d * d;
    }
    return sum / (double)count(x);
}

static double var_real(const lz_tensor *x) { return mean_square(x, mean_real(x)); }

static double max_real(const lz_tensor *x) {
    double most = -INFINITY;
    FOR_EACH(i, x->dims) most = bigger(most, get_real(x, i));
    return most;
}

static double min_real(const lz_tensor *x) {
    double least = INFINITY;
    FOR_EACH(i, x->dims) least = smaller(least, get_real(x, i));
    return least;
}

static double sum_exp(const lz_tensor *x, double less) { /* of exp(x - less) */
    double sum = 0;
    FOR_EACH(i, x->dims) sum += exp(get_real(x, i) - less);
    return sum;
}

static double logsumexp_real(const lz_tensor *x) {
    double most = max_real(x);
    if (isinf(most)) return most; /* inf - inf would be NaN */
    return most + log(sum_exp(x, most));
}

static int64_t sum_whole(const lz_tensor *x) {
    int64_t sum = 0;
    FOR_EACH(i, x->dims) sum = wrapping_add(sum, get_whole(x, i));
    return sum;
}

static int64_t max_whole(const lz_tensor *x) {
    int64_t most = INT64_MIN;
    FOR_EACH(i, x->dims) {
        int64_t v = get_whole(x, i);
        if (v > most) most = v;
    }
    return most;
}

static int64_t min_whole(const lz_tensor *x) {
    int64_t least = INT64_MAX;
    FOR_EACH(i, x->dims) {
        int64_t v = get_whole(x, i);
        if (v < least) least = v;
    }
    return least;
}

/* The index of the first maximum; a NaN counts as the maximum. */
static int64_t argmax(const lz_tensor *x) {
    bool real = lz_is_float(x->dtype);
    double most_real = real ? max_real(x) : 0;
    int64_t most_whole = real ? 0 : max_whole(x);
    int64_t index = 0;
    FOR_EACH(i, x->dims) {
        double v = get_real(x, i);
        if (real ? v == most_real || v != v : get_whole(x, i) == most_whole) break;
        index++;
    }
    return index;
}

/* ---- in [kept..., reduced...] -> out [kept...] ------------------------------------------------------------------ */

static const struct {
    double (*real)(const lz_tensor *);
    int64_t (*whole)(const lz_tensor *);
} reduction[LZ_OP_COUNT] = {
    [LZ_OP_SUM] = {sum_real, sum_whole}, [LZ_OP_MEAN] = {mean_real, NULL},
    [LZ_OP_VAR] = {var_real, NULL},      [LZ_OP_MAX] = {max_real, max_whole},
    [LZ_OP_MIN] = {min_real, min_whole}, [LZ_OP_LOGSUMEXP] = {logsumexp_real, NULL},
};

bool lz_ref_reduce(const lz_call *call) {
    bool whole = reduction[call->op].whole && !lz_is_float(call->in->dtype);
    FOR_EACH(i, call->out.dims) {
        lz_tensor row = lz_ref_inner(call->in, i, call->out.dims.n);
        if (whole) {
            set_whole(&call->out, i, reduction[call->op].whole(&row));
        } else {
            set_real(&call->out, i, reduction[call->op].real(&row));
        }
    }
    return true;
}

bool lz_ref_argmax(const lz_call *call) {
    FOR_EACH(i, call->out.dims) {
        lz_tensor row = lz_ref_inner(call->in, i, call->out.dims.n);
        set_whole(&call->out, i, argmax(&row));
    }
    return true;
}

/* ---- rows to rows ----------------------------------------------------------------------------------------------- */

bool lz_ref_softmax(const lz_call *call) {
    lz_dims rows = lz_ref_leading(call->out.dims, call->out.dims.n - 1);
    FOR_EACH(r, rows) {
        lz_tensor x = lz_ref_inner(call->in, r, rows.n), y = lz_ref_inner(&call->out, r, rows.n);
        double most = max_real(&x), sum = sum_exp(&x, most);
        FOR_EACH(i, x.dims) set_real(&y, i, exp(get_real(&x, i) - most) / sum);
    }
    return true;
}

static void scale_to(const lz_tensor *y, const lz_tensor *x, double centre, double scale) { /* y = (x - centre) scale */
    FOR_EACH(i, x->dims) set_real(y, i, (get_real(x, i) - centre) * scale);
}

static void normalise(const lz_tensor *y, const lz_tensor *x, double eps) { /* mean 0, variance 1 */
    double centre = mean_real(x);
    scale_to(y, x, centre, 1 / sqrt(mean_square(x, centre) + eps));
}

bool lz_ref_rms_norm(const lz_call *call) {
    lz_dims rows = lz_ref_leading(call->out.dims, call->out.dims.n - 1);
    FOR_EACH(r, rows) {
        lz_tensor x = lz_ref_inner(call->in, r, rows.n), y = lz_ref_inner(&call->out, r, rows.n);
        scale_to(&y, &x, 0, 1 / sqrt(mean_square(&x, 0) + call->params->norm.eps));
    }
    return true;
}

bool lz_ref_layer_norm(const lz_call *call) {
    lz_dims rows = lz_ref_leading(call->out.dims, call->out.dims.n - 1);
    FOR_EACH(r, rows) {
        lz_tensor x = lz_ref_inner(call->in, r, rows.n), y = lz_ref_inner(&call->out, r, rows.n);
        normalise(&y, &x, call->params->norm.eps);
    }
    return true;
}

/* [..., c] -> [..., c / groups]: the channels of one group. */
static lz_tensor group_of(lz_tensor x, int groups, int group) {
    int last = x.dims.n - 1;
    x.dims.at[last] /= groups;
    x.data += group * x.dims.at[last] * x.strides[last] * lz_dtype_size(x.dtype);
    return x;
}

bool lz_ref_group_norm(const lz_call *call) { /* x [n, ..., c] */
    int groups = call->params->norm.groups;
    for (int64_t n = 0; n < call->out.dims.at[0]; n++) {
        for (int g = 0; g < groups; g++) {
            lz_tensor x = group_of(lz_ref_inner(call->in, &n, 1), groups, g);
            lz_tensor y = group_of(lz_ref_inner(&call->out, &n, 1), groups, g);
            normalise(&y, &x, call->params->norm.eps);
        }
    }
    return true;
}
