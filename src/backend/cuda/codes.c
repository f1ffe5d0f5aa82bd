/* codes.c: products of codes, f8 (e4m3) or i8, with a scale for each row and column, by cuBLASLt. The codes of activations come
 * from QUANTISE (rows.c).
 *
 * On Hopper the library multiplies products of f8 by the scales itself. Otherwise it stores sums of products of codes, f32 or
 * i32, in scratch, and another launch multiplies them by the scales and computes the epilogue. That is done for some columns
 * after others, so that scratch stays small. */
#include "backend/cuda/own.h"
#include "backend/cuda/product.h"

enum { HOPPER = 90, MOST_IN = 2 + LZ_EXPR_ARGS };
enum { COLUMNS = 64 }; /* computed at a time, or a multiple of it */

/* The call as a MATMUL of codes; in gets its inputs. */
static lz_call as_matmul(const lz_call *call, lz_tensor in[MOST_IN]) {
    const lz_tensor *codes = &call->in[1];
    int last = call->out.dims.n - 1, n = 2;
    lz_call product = *call;
    in[0] = in[1] = call->in[0];
    in[1].data = codes->data;
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

static lz_code_scales scales_of(const lz_call *call) {
    lz_code_scales s = {.rows = call->in[2].data, .factor = call->params->unpack.factor};
    if (call->n_core > 3) { /* one for each column, or one for all */
        s.columns = call->in[3];
        int64_t rows = s.columns.dims.at[0];
        if (rows == 1) s.columns.strides[0] = 0;
        s.columns.dims = LZ_DIMS(call->out.dims.at[call->out.dims.n - 1]);
    }
    return s;
}

/* ---- without scales inside the product --------------------------------------------------------------------------- */

static lz_tensor some_of(lz_tensor t, int axis, int64_t first, int64_t count) {
    if (t.data) t.data += first * t.strides[axis] * lz_dtype_size(t.dtype);
    t.dims.at[axis] = count;
    return t;
}

/* The same product for some columns of the result; in gets its inputs. */
static lz_call some_columns(const lz_call *call, int64_t first, int64_t count, lz_tensor in[LZ_MAX_OPERANDS]) {
    int last = call->out.dims.n - 1;
    lz_call some = *call;
    for (int i = 0; i < call->n_in; i++)
        in[i] = i >= call->n_core ? some_of(call->in[i], last, first, count) : call->in[i];
    in[1] = some_of(in[1], 0, first, count);
    if (call->n_core > 3 && in[3].dims.at[0] > 1) in[3] = some_of(in[3], 0, first, count);
    some.in = in;
    some.out = some_of(call->out, last, first, count);
    return some;
}

static int64_t columns_at_once(const lz_call *call) {
    lz_dims rows = call->out.dims;
    int64_t columns = rows.at[--rows.n], most = call->device->most_sums / (lz_dims_size(rows) + 1) / COLUMNS * COLUMNS;
    most = most ? most : COLUMNS;
    return columns < most ? columns : most;
}

/* The product of codes alone, as a call that stores it in scratch. */
static lz_call plain_product(const lz_call *call, lz_tensor in[MOST_IN]) {
    lz_scratch p = lz_scratch_at(call->scratch);
    lz_call plain = as_matmul(call, in);
    plain.out = lz_cuda_packed(&p, &call->out, in[0].dtype == LZ_I8 ? LZ_I32 : LZ_F32, call->out.dims.n);
    plain.expr = NULL;
    plain.n_in = 2;
    plain.scratch = call->scratch ? call->scratch + lz_scratch_bytes(&p) : NULL;
    return plain;
}

/* out = epilogue(sums * scale of the row * (factor * scale of the column), ...) */
static bool scale_sums(const lz_call *call, const lz_tensor *sums) {
    lz_code_scales s = scales_of(call);
    int last = sums->dims.n - 1, n = 4;
    lz_tensor tensors[4 + LZ_EXPR_ARGS] = {call->out, *sums, call->in[2], {.data = NULL}};
    tensors[2].dims = tensors[3].dims = sums->dims;
    tensors[2].strides[last] = 0;
    if (s.columns.data) {
        tensors[3].data = s.columns.data, tensors[3].dtype = s.columns.dtype;
        tensors[3].strides[last] = s.columns.strides[0];
    } else
        n = 3;
    lz_text text = {.ctx = call->device->ctx};
    lz_cuda_add_expression(&text, "epilogue", call->expr);
    lz_text_add(&text, "FN float expression(float factor, float sum, float row");
    if (s.columns.data) lz_text_add(&text, ", float column");
    for (int i = call->n_core; i < call->n_in; i++) {
        lz_text_add(&text, ", float r%d", i);
        tensors[n++] = call->in[i];
    }
    lz_text_add(&text, ") {\n    return epilogue(sum * row * %s", s.columns.data ? "(factor * column)" : "factor");
    for (int i = call->n_core; i < call->n_in; i++) lz_text_add(&text, ", r%d", i);
    lz_text_add(&text, ");\n}\n");
    char *expression = lz_text_take(&text, call->err);
    bool fine = expression && lz_cuda_map_with(call, tensors, n, s.factor, expression);
    lz_host_free(call->device->ctx, expression);
    return fine;
}

static bool run_plainly(const lz_call *call) {
    const lz_code_scales none = {.factor = 1};
    int64_t columns = call->out.dims.at[call->out.dims.n - 1], step = columns_at_once(call);
    for (int64_t first = 0; first < columns; first += step) {
        lz_tensor of_columns[LZ_MAX_OPERANDS], in[MOST_IN];
        lz_call some = some_columns(call, first, columns - first < step ? columns - first : step, of_columns);
        lz_call plain = plain_product(&some, in);
        if (!lz_cuda_blas_run_codes(&plain, &none) || !scale_sums(&some, &plain.out)) return false;
    }
    return true;
}

static int64_t scratch_plainly(const lz_call *call) {
    const lz_code_scales none = {.factor = 1};
    lz_tensor of_columns[LZ_MAX_OPERANDS], in[MOST_IN];
    lz_call some = some_columns(call, 0, columns_at_once(call), of_columns), plain = plain_product(&some, in);
    lz_scratch p = lz_scratch_at(NULL);
    lz_cuda_packed(&p, &plain.out, plain.out.dtype, plain.out.dims.n);
    return lz_scratch_bytes(&p) + lz_cuda_blas_scratch_codes(&plain, &none);
}

/* ---- the kernel -------------------------------------------------------------------------------------------------- */

static bool scales_inside(const lz_call *call) {
    return call->in[0].dtype == LZ_F8 && call->device->capability == HOPPER;
}

static bool run_codes(const lz_call *call) {
    if (!scales_inside(call)) return run_plainly(call);
    lz_tensor in[MOST_IN];
    lz_call product = as_matmul(call, in);
    lz_code_scales s = scales_of(call);
    return lz_cuda_blas_run_codes(&product, &s);
}

static int64_t scratch_codes(const lz_call *call) {
    lz_call measured = *call;
    measured.scratch = NULL;
    if (!scales_inside(call)) return scratch_plainly(&measured);
    lz_tensor in[MOST_IN];
    lz_call product = as_matmul(&measured, in);
    lz_code_scales s = scales_of(&measured);
    return lz_cuda_blas_scratch_codes(&product, &s);
}

static bool can_codes(const lz_call *call) {
    lz_tensor in[MOST_IN];
    lz_call product = as_matmul(call, in);
    return lz_cuda_multiplies(call->device, call->in[0].dtype) && lz_cuda_can_finish(&product);
}

const lz_kernel lz_cuda_codes_matmul = {
    .name = "cuda.codes_matmul", .run = run_codes, .scratch = scratch_codes, .can = can_codes};
