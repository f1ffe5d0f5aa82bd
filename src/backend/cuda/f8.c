/* f8.c: products of codes of f8 (e4m3) with a scale for each row and column, by cuBLASLt. The codes of activations come from
 * QUANTISE (rows.c).
 *
 * On Hopper the library multiplies by the scales itself. Other GPUs get the product of the codes as f32, and another launch
 * multiplies it by the scales. */
#include "backend/cuda/product.h"

enum { HOPPER = 90, MOST_IN = 2 + LZ_EXPR_ARGS };

/* The call as a MATMUL of codes; in gets its inputs. */
static lz_call as_matmul(const lz_call *call, lz_tensor in[MOST_IN]) {
    const lz_tensor *codes = &call->in[1];
    int last = call->out.dims.n - 1, n = 2;
    lz_call product = *call;
    in[0] = in[1] = call->in[0];
    in[1].data = codes->data;
    in[1].dtype = LZ_F8;
    for (int i = 0; i < last - 1; i++) in[1].strides[i] = 0;
    in[1].dims.at[last - 1] = codes->dims.at[1], in[1].strides[last - 1] = codes->strides[1];
    in[1].dims.at[last] = codes->dims.at[0], in[1].strides[last] = codes->strides[0];
    for (int i = call->n_core; i < call->n_in && n < MOST_IN; i++) in[n++] = call->in[i];
    product.op = LZ_OP_MATMUL;
    product.in = in;
    product.n_core = 2;
    product.n_in = n;
    return product;
}

static lz_f8_scales scales_of(const lz_call *call) {
    lz_f8_scales s = {.rows = call->in[2].data, .factor = call->params->unpack.factor};
    if (call->n_core > 3) { /* one for each column, or one for all */
        s.columns = call->in[3];
        int64_t rows = s.columns.dims.at[0];
        if (rows == 1) s.columns.strides[0] = 0;
        s.columns.dims = LZ_DIMS(call->out.dims.at[call->out.dims.n - 1]);
    }
    return s;
}

/* ---- without scales inside the product --------------------------------------------------------------------------- */

static lz_call plain_product(const lz_call *call, lz_tensor in[MOST_IN], lz_tensor *to) {
    lz_scratch p = lz_scratch_at(call->scratch);
    lz_call plain = as_matmul(call, in);
    *to = lz_cuda_packed(&p, &call->out, LZ_F32, call->out.dims.n);
    plain.expr = NULL;
    plain.n_in = 2;
    plain.out = *to;
    plain.scratch = call->scratch ? call->scratch + lz_scratch_bytes(&p) : NULL;
    return plain;
}

static bool run_plainly(const lz_call *call) {
    lz_tensor in[MOST_IN], product;
    lz_call plain = plain_product(call, in, &product);
    lz_f8_scales s = scales_of(call), none = {.factor = s.factor};
    if (!lz_cuda_blas_run_f8(&plain, &none)) return false;
    int last = product.dims.n - 1, n = 3;
    lz_tensor tensors[4] = {product, product, call->in[2], product};
    tensors[2].dims = product.dims, tensors[2].strides[last] = 0;
    if (s.columns.data) {
        for (int i = 0; i < last; i++) tensors[3].strides[i] = 0;
        tensors[3].data = s.columns.data, tensors[3].dtype = s.columns.dtype;
        tensors[3].strides[last] = s.columns.strides[0];
        n = 4;
    }
    lz_tensor arguments[MOST_IN];
    lz_call whole = as_matmul(call, arguments);
    return lz_cuda_multiply_all(call, tensors, n) && lz_cuda_finish(&whole, &product);
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

static bool run_f8(const lz_call *call) {
    if (call->device->capability != HOPPER) return run_plainly(call);
    lz_tensor in[MOST_IN];
    lz_call product = as_matmul(call, in);
    lz_f8_scales s = scales_of(call);
    return lz_cuda_blas_run_f8(&product, &s);
}

static int64_t scratch_f8(const lz_call *call) {
    lz_call measured = *call;
    measured.scratch = NULL;
    lz_f8_scales s = scales_of(&measured);
    lz_tensor in[MOST_IN], to;
    if (call->device->capability != HOPPER) {
        lz_scratch p = lz_scratch_at(NULL);
        lz_call plain = plain_product(&measured, in, &to);
        lz_cuda_packed(&p, &call->out, LZ_F32, call->out.dims.n);
        return lz_scratch_bytes(&p) + lz_cuda_blas_scratch_f8(&plain, &s);
    }
    lz_call product = as_matmul(&measured, in);
    return lz_cuda_blas_scratch_f8(&product, &s);
}

static bool can_f8(const lz_call *call) {
    lz_tensor in[MOST_IN];
    lz_call product = as_matmul(call, in);
    return call->device->capability >= LZ_CUDA_F8_CAPABILITY && lz_cuda_can_finish(&product);
}

const lz_kernel lz_cuda_f8_matmul = {.name = "cuda.f8_matmul", .run = run_f8, .scratch = scratch_f8, .can = can_f8};
