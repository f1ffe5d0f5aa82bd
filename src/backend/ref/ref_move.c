/* ref_move.c: ops that make arrays from numbers (full, arange, randn) or move elements (pad, take, gather). */
#include "backend/ref/ref.h"

#include "op/random.h"

/* ---- from numbers ----------------------------------------------------------------------------------------------- */

bool lz_ref_full(const lz_call *call) {
    FOR_EACH(i, call->out.dims) set_real(&call->out, i, call->params->full.value);
    return true;
}

bool lz_ref_arange(const lz_call *call) { /* out [n] */
    FOR_EACH(i, call->out.dims) {
        set_real(&call->out, i, call->params->arange.start + (double)i[0] * call->params->arange.step);
    }
    return true;
}

bool lz_ref_randn(const lz_call *call) { /* out f32, row-major */
    lz_torch_randn((float *)call->out.data, lz_dims_size(call->out.dims), call->params->randn.seed);
    return true;
}

/* ---- moving elements -------------------------------------------------------------------------------------------- */

bool lz_ref_pad(const lz_call *call) {
    const lz_tensor *x = call->in;
    FOR_EACH(i, call->out.dims) {
        int64_t from[LZ_MAX_DIMS];
        bool inside = true;
        for (int axis = 0; axis < x->dims.n; axis++) {
            from[axis] = i[axis] - call->params->pad.before.at[axis];
            inside = inside && from[axis] >= 0 && from[axis] < x->dims.at[axis];
        }
        if (inside) {
            lz_ref_move(&call->out, i, x, from);
        } else {
            set_real(&call->out, i, call->params->pad.value);
        }
    }
    return true;
}

/* Reads the index at a position of in[1]. false, with an error: it is outside the axis. */
static bool read_index(const lz_call *call, const int64_t *at, int64_t size, int64_t *index) {
    int64_t stored = get_whole(&call->in[1], at);
    *index = stored;
    if (*index >= 0 && *index < size) return true;
    lz_fail(call->err, LZ_BAD_INDEX, "%s: index %lld is outside an axis of %lld", lz_op_table[call->op].name,
            (long long)stored, (long long)size);
    return false;
}

/* a [left..., size, right...], indices [middle...], out [left..., middle..., right...] */
bool lz_ref_take(const lz_call *call) {
    const lz_tensor *a = &call->in[0];
    int axis = call->params->along.axis, middle = call->in[1].dims.n;
    FOR_EACH(i, call->out.dims) {
        int64_t from[LZ_MAX_DIMS];
        for (int k = 0; k < axis; k++) from[k] = i[k];
        if (!read_index(call, i + axis, a->dims.at[axis], &from[axis])) return false;
        for (int k = axis + 1; k < a->dims.n; k++) from[k] = i[k - 1 + middle];
        lz_ref_move(&call->out, i, a, from);
    }
    return true;
}

/* out and indices of one shape, with the rank of a: out[i, j, k] = a[i, indices[i, j, k], k] */
bool lz_ref_gather(const lz_call *call) {
    const lz_tensor *a = &call->in[0];
    int axis = call->params->along.axis;
    FOR_EACH(i, call->out.dims) {
        int64_t from[LZ_MAX_DIMS];
        memcpy(from, i, sizeof from);
        if (!read_index(call, i, a->dims.at[axis], &from[axis])) return false;
        lz_ref_move(&call->out, i, a, from);
    }
    return true;
}
