/* ref.c: the reference backend: how elements are read and written, and the table of its kernels. */
#include "backend/ref/ref.h"

/* ---- elements --------------------------------------------------------------------------------------------------- */

double lz_ref_load_real(lz_dtype dtype, const char *data, int64_t offset) {
    switch (dtype) {
    case LZ_F8: return lz_from_f8(((const uint8_t *)data)[offset]);
    case LZ_F16: return lz_from_f16(((const uint16_t *)data)[offset]);
    case LZ_BF16: return lz_from_bf16(((const uint16_t *)data)[offset]);
    case LZ_F32: return ((const float *)data)[offset];
    case LZ_F64: return ((const double *)data)[offset];
    default: return (double)lz_ref_load_whole(dtype, data, offset);
    }
}

int64_t lz_ref_load_whole(lz_dtype dtype, const char *data, int64_t offset) {
    switch (dtype) {
    case LZ_BOOL: return ((const uint8_t *)data)[offset] != 0;
    case LZ_U8: return ((const uint8_t *)data)[offset];
    case LZ_I8: return ((const int8_t *)data)[offset];
    case LZ_I32: return ((const int32_t *)data)[offset];
    case LZ_I64: return ((const int64_t *)data)[offset];
    default: return lz_saturate(lz_ref_load_real(dtype, data, offset), INT64_MIN, INT64_MAX);
    }
}

/* Round to odd: value itself if it is a float, otherwise the neighbouring float whose last bit is 1. Rounding the
 * result to a type with at least two bits less then gives the same as rounding value directly; rounding to nearest
 * twice does not. */
static float round_to_odd(double value) {
    float nearest = (float)value;
    if (value != value || (double)nearest == value) return nearest;
    uint32_t bits = lz_float_to_bits(nearest);
    bool beyond = value < 0 ? (double)nearest < value : (double)nearest > value;
    return lz_bits_to_float((bits - (beyond ? 1 : 0)) | 1);
}

int64_t lz_ref_to_whole(lz_dtype dtype, double value) {
    static const struct {
        int64_t low, high;
    } range[LZ_DTYPE_COUNT] = {
        [LZ_BOOL] = {0, 1},
        [LZ_U8] = {0, UINT8_MAX},
        [LZ_I8] = {INT8_MIN, INT8_MAX},
        [LZ_I32] = {INT32_MIN, INT32_MAX},
        [LZ_I64] = {INT64_MIN, INT64_MAX},
    };
    return lz_saturate(value, range[dtype].low, range[dtype].high);
}

void lz_ref_store_real(lz_dtype dtype, char *data, int64_t offset, double value) {
    switch (dtype) {
    case LZ_BOOL: ((uint8_t *)data)[offset] = value != 0; break;
    case LZ_F8: ((uint8_t *)data)[offset] = lz_to_f8(round_to_odd(value)); break;
    case LZ_F16: ((uint16_t *)data)[offset] = lz_to_f16(round_to_odd(value)); break;
    case LZ_BF16: ((uint16_t *)data)[offset] = lz_to_bf16(round_to_odd(value)); break;
    case LZ_F32: ((float *)data)[offset] = (float)value; break;
    case LZ_F64: ((double *)data)[offset] = value; break;
    default: lz_ref_store_whole(dtype, data, offset, lz_ref_to_whole(dtype, value)); break;
    }
}

/* A double has 53 bits. The bits of a larger integer beyond them are folded into the last bit, as in round_to_odd, so
 * that only the next rounding counts. */
static double fold_to_odd(int64_t value) {
    uint64_t size = value < 0 ? -(uint64_t)value : (uint64_t)value;
    if (size >> 53) size = (size & ~UINT64_C(0x7ff)) | (size & 0x7ff ? 0x800 : 0);
    return value < 0 ? -(double)size : (double)size;
}

void lz_ref_store_whole(lz_dtype dtype, char *data, int64_t offset, int64_t value) {
    switch (dtype) {
    case LZ_BOOL: ((uint8_t *)data)[offset] = value != 0; break;
    case LZ_U8: ((uint8_t *)data)[offset] = (uint8_t)value; break;
    case LZ_I8: ((int8_t *)data)[offset] = (int8_t)(uint8_t)value; break;
    case LZ_I32: ((int32_t *)data)[offset] = (int32_t)(uint32_t)value; break;
    case LZ_I64: ((int64_t *)data)[offset] = value; break;
    case LZ_F64: ((double *)data)[offset] = (double)value; break;
    default: lz_ref_store_real(dtype, data, offset, fold_to_odd(value)); break;
    }
}

void lz_ref_move(const lz_tensor *to, const int64_t *to_index, const lz_tensor *from, const int64_t *from_index) {
    if (to->dtype == from->dtype) {
        int64_t size = lz_dtype_size(to->dtype);
        const char *source = from->data + offset_of(from, from_index) * size;
        /* memmove: they may be the same memory. */
        memmove(to->data + offset_of(to, to_index) * size, source, (size_t)size);
    } else if (lz_is_float(from->dtype)) {
        set_real(to, to_index, get_real(from, from_index));
    } else {
        set_whole(to, to_index, get_whole(from, from_index));
    }
}

/* ---- parts of tensors ------------------------------------------------------------------------------------------- */

lz_dims lz_ref_leading(lz_dims dims, int n) {
    dims.n = n;
    return dims;
}

lz_tensor lz_ref_inner(const lz_tensor *t, const int64_t *index, int n) {
    lz_tensor inner = {.data = t->data, .dtype = t->dtype, .dims = {.n = t->dims.n - n}};
    for (int i = 0; i < n; i++) inner.data += index[i] * t->strides[i] * lz_dtype_size(t->dtype);
    for (int i = n; i < t->dims.n; i++) {
        inner.dims.at[i - n] = t->dims.at[i];
        inner.strides[i - n] = t->strides[i];
    }
    return inner;
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

static bool without_epilogue(const lz_call *call) { return !call->expr; }

#define KERNEL(id, text, function)                                                                                     \
    [LZ_OP_##id] = {.name = "ref." text, .run = lz_ref_##function, .can = without_epilogue}

static const lz_kernel kernels[LZ_OP_COUNT] = {
    KERNEL(FULL, "full", full),
    KERNEL(ARANGE, "arange", arange),
    KERNEL(RANDN, "randn", randn),
    KERNEL(COPY, "copy", copy),
    KERNEL(CAST, "cast", copy),
    KERNEL(NEG, "neg", unary),
    KERNEL(ABS, "abs", unary),
    KERNEL(NOT, "not", unary),
    KERNEL(SQUARE, "square", unary),
    KERNEL(FLOOR, "floor", unary),
    KERNEL(EXP, "exp", unary),
    KERNEL(LOG, "log", unary),
    KERNEL(SQRT, "sqrt", unary),
    KERNEL(RSQRT, "rsqrt", unary),
    KERNEL(SIN, "sin", unary),
    KERNEL(COS, "cos", unary),
    KERNEL(TANH, "tanh", unary),
    KERNEL(ERF, "erf", unary),
    KERNEL(SIGMOID, "sigmoid", unary),
    KERNEL(SILU, "silu", unary),
    KERNEL(GELU, "gelu", unary),
    KERNEL(GELU_TANH, "gelu_tanh", unary),
    KERNEL(CLIP, "clip", clip),
    KERNEL(ADD, "add", binary),
    KERNEL(SUB, "sub", binary),
    KERNEL(MUL, "mul", binary),
    KERNEL(DIV, "div", binary),
    KERNEL(POW, "pow", binary),
    KERNEL(MAXIMUM, "maximum", binary),
    KERNEL(MINIMUM, "minimum", binary),
    KERNEL(EQUAL, "equal", binary),
    KERNEL(NOT_EQUAL, "not_equal", binary),
    KERNEL(LESS, "less", binary),
    KERNEL(LESS_EQUAL, "less_equal", binary),
    KERNEL(GREATER, "greater", binary),
    KERNEL(GREATER_EQUAL, "greater_equal", binary),
    KERNEL(AND, "and", binary),
    KERNEL(OR, "or", binary),
    KERNEL(WHERE, "where", where),
    KERNEL(SUM, "sum", reduce),
    KERNEL(MEAN, "mean", reduce),
    KERNEL(VAR, "var", reduce),
    KERNEL(MAX, "max", reduce),
    KERNEL(MIN, "min", reduce),
    KERNEL(ARGMAX, "argmax", argmax),
    KERNEL(LOGSUMEXP, "logsumexp", reduce),
    KERNEL(SOFTMAX, "softmax", softmax),
    KERNEL(RMS_NORM, "rms_norm", rms_norm),
    KERNEL(LAYER_NORM, "layer_norm", layer_norm),
    KERNEL(GROUP_NORM, "group_norm", group_norm),
    KERNEL(ROPE, "rope", rope),
    KERNEL(MATMUL, "matmul", matmul),
    KERNEL(SDPA, "sdpa", sdpa),
    KERNEL(CONV2D, "conv2d", conv2d),
    KERNEL(PAD, "pad", pad),
    KERNEL(TAKE, "take", take),
    KERNEL(GATHER, "gather", gather),
    KERNEL(UNPACK, "unpack", unpack),
    [LZ_OP_INT8_MATMUL] = {.name = "ref.int8_matmul",
                           .run = lz_ref_int8_matmul,
                           .scratch = lz_ref_int8_scratch,
                           .can = without_epilogue},
    [LZ_OP_QUANTISE] = {.name = "ref.quantise",
                        .run = lz_ref_quantise,
                        .scratch = lz_ref_quantise_scratch,
                        .can = without_epilogue},
    KERNEL(CODES_MATMUL, "codes_matmul", codes_matmul),
};

static const lz_kernel *kernel(lz_op op) { return &kernels[op]; }

static const lz_backend backend = {.name = "ref", .fuses = false, .kernel = kernel};

const lz_backend *lz_ref_backend(void) { return &backend; }
