/* ref_unpack.c: packed weights, by the formulas of op/packing.h, and products of codes. */
#include "backend/ref/ref.h"
#include "op/pack.h"

/* Element i of a row of codes; the bytes of its block may be apart. */
static float code_at(lz_packing packing, const lz_tensor *row, int64_t i) {
    const lz_packing_info *info = &lz_packing_table[packing];
    uint8_t block[LZ_PACKING_MAX_ELEMENTS];
    int64_t first = i / info->elements * info->bytes;
    for (int k = 0; k < info->bytes; k++) block[k] = (uint8_t)row->data[(first + k) * row->strides[0]];
    return lz_unpack_element(packing, block, i % info->elements);
}

static float scale_at(const lz_tensor *t, int64_t row, int64_t column) {
    lz_scale_row scales = {t->data + row * t->strides[0] * lz_dtype_size(t->dtype), t->dtype, t->strides[1]};
    return lz_scale_at(&scales, column);
}

/* Weights from .. from + n - 1 of row o. in: codes, scales, offsets of one matrix. */
static void unpack_columns(const lz_call *call, const lz_tensor *in, int64_t o, int64_t from, int64_t n, float *to) {
    lz_tensor row = lz_ref_inner(&in[0], &o, 1);
    int64_t group = call->params->unpack.group, scale_row = o / call->params->unpack.row_group;
    for (int64_t i = 0; i < n; i++) {
        float scale = call->params->unpack.factor;
        if (call->n_core > 1) scale *= scale_at(&in[1], scale_row, (from + i) / group);
        to[i] = scale * code_at((lz_packing)call->params->unpack.packing, &row, from + i);
        if (call->n_core > 2) to[i] += scale_at(&in[2], scale_row, (from + i) / group);
    }
    if (call->params->unpack.rotate) lz_rotate_group(to, n);
}

bool lz_ref_unpack(const lz_call *call) {
    lz_dims batch = lz_ref_leading(call->out.dims, call->out.dims.n - 2);
    int64_t rows = call->out.dims.at[batch.n], columns = call->out.dims.at[batch.n + 1];
    int64_t step = call->params->unpack.rotate ? call->params->unpack.rotate : 1;
    FOR_EACH(b, batch) {
        lz_tensor in[3], out = lz_ref_inner(&call->out, b, batch.n);
        for (int i = 0; i < call->n_core; i++) in[i] = lz_ref_inner(&call->in[i], b, batch.n);
        for (int64_t o = 0; o < rows; o++)
            for (int64_t i = 0; i < columns; i += step) {
                float values[LZ_PACKING_MAX_ROTATE];
                unpack_columns(call, in, o, i, step, values);
                for (int64_t k = 0; k < step; k++) set_real(&out, ((int64_t[]){o, i + k}), (double)values[k]);
            }
    }
    return true;
}

/* ---- int8_matmul ------------------------------------------------------------------------------------------------- */

int64_t lz_ref_int8_scratch(const lz_call *call) { /* a row of a, and its codes */
    int64_t k = call->in[0].dims.at[call->in[0].dims.n - 1];
    return k * (int64_t)(sizeof(float) + sizeof(int8_t));
}

bool lz_ref_int8_matmul(const lz_call *call) {
    const lz_tensor *codes = &call->in[1];
    lz_dims rows = lz_ref_leading(call->out.dims, call->out.dims.n - 1);
    int64_t n = call->out.dims.at[rows.n], k = call->in[0].dims.at[rows.n];
    float *x = (float *)call->scratch;
    int8_t *of_x = (int8_t *)(x + k);
    FOR_EACH(r, rows) {
        lz_tensor row = lz_ref_inner(&call->in[0], r, rows.n), out = lz_ref_inner(&call->out, r, rows.n);
        for (int64_t i = 0; i < k; i++) x[i] = (float)get_real(&row, &i);
        float scale = lz_quantise_row(LZ_I8, x, k, call->params->unpack.rotate, of_x);
        for (int64_t o = 0; o < n; o++) {
            int64_t sum = 0;
            for (int64_t i = 0; i < k; i++)
                sum += of_x[i] * (int64_t)(int8_t)codes->data[o * codes->strides[0] + i * codes->strides[1]];
            float of_weight = call->params->unpack.factor;
            if (call->n_core > 2) of_weight *= scale_at(&call->in[2], o / call->params->unpack.row_group, 0);
            set_real(&out, &o, (double)((float)sum * scale * of_weight));
        }
    }
    return true;
}

/* ---- quantise, codes_matmul -------------------------------------------------------------------------------------- */

int64_t lz_ref_quantise_scratch(const lz_call *call) { /* a row */
    return call->in[0].dims.at[call->in[0].dims.n - 1] * (int64_t)sizeof(float);
}

bool lz_ref_quantise(const lz_call *call) {
    lz_dims rows = lz_ref_leading(call->out.dims, call->out.dims.n - 1);
    int64_t k = call->out.dims.at[rows.n], n = 0;
    float *x = (float *)call->scratch, *scales = (float *)(call->out.data + lz_beside(call->out.dims, call->out.dtype));
    FOR_EACH(r, rows) {
        lz_tensor row = lz_ref_inner(&call->in[0], r, rows.n), out = lz_ref_inner(&call->out, r, rows.n);
        for (int64_t i = 0; i < k; i++) x[i] = (float)get_real(&row, &i);
        scales[n++] = lz_quantise_row(out.dtype, x, k, call->params->quantise.rotate, out.data);
    }
    return true;
}

static double code_value(lz_dtype type, char code) {
    return type == LZ_F8 ? (double)lz_from_f8((uint8_t)code) : (double)(int8_t)code;
}

bool lz_ref_codes_matmul(const lz_call *call) {
    const lz_tensor *weight = &call->in[1];
    lz_dims rows = lz_ref_leading(call->out.dims, call->out.dims.n - 1);
    int64_t n = call->out.dims.at[rows.n], k = call->in[0].dims.at[rows.n];
    FOR_EACH(r, rows) {
        lz_tensor row = lz_ref_inner(&call->in[0], r, rows.n), out = lz_ref_inner(&call->out, r, rows.n);
        lz_tensor of_row = lz_ref_inner(&call->in[2], r, rows.n);
        float scale = (float)get_real(&of_row, (int64_t[]){0});
        for (int64_t o = 0; o < n; o++) {
            double sum = 0; /* exact for i8 */
            for (int64_t i = 0; i < k; i++)
                sum += code_value(row.dtype, row.data[i * row.strides[0]]) *
                       code_value(row.dtype, weight->data[o * weight->strides[0] + i * weight->strides[1]]);
            float of_weight = call->params->unpack.factor;
            if (call->n_core > 3) of_weight *= scale_at(&call->in[3], o / call->params->unpack.row_group, 0);
            set_real(&out, &o, (double)((float)sum * scale * of_weight));
        }
    }
    return true;
}
