/* dnn_graph.c: describes graphs of operations to cuDNN. Every object there is a descriptor: it is created, gets attributes
 * one by one, and is finalised. */
#include "backend/cuda/dnn.h"
#include "backend/cuda/own.h"

void lz_dnn_tell_refusal(const lz_device *d, lz_dnn_status status, const char *what) {
    if (!lz_base_of(d->ctx)->log) return;
    char more[1024] = "";
    d->api.dnn.GetLastErrorString(more, sizeof more);
    lz_cuda_trace(d, "cuDNN: %s: %s (%d): %s", what, d->api.dnn.GetErrorString(status), (int)status, more);
}

bool lz_dnn_check(lz_dnn_graph *g, lz_dnn_status status, const char *what) {
    if (!status) return true;
    lz_dnn_tell_refusal(g->d, status, what);
    g->failed = true;
    return false;
}

lz_dnn_descriptor lz_dnn_new(lz_dnn_graph *g, lz_dnn_kind kind, const char *what) {
    lz_dnn_descriptor made = NULL;
    if (g->n_all == LZ_DNN_DESCRIPTORS) g->failed = true;
    if (g->failed || !lz_dnn_check(g, g->d->api.dnn.BackendCreateDescriptor(kind, &made), what)) return NULL;
    g->all[g->n_all++] = made;
    return made;
}

void lz_dnn_set(lz_dnn_graph *g, lz_dnn_descriptor at, lz_dnn_attribute attribute, lz_dnn_attribute_type type,
                int64_t count, const void *elements, const char *what) {
    if (!g->failed) lz_dnn_check(g, g->d->api.dnn.BackendSetAttribute(at, attribute, type, count, elements), what);
}

static void set_number(lz_dnn_graph *g, lz_dnn_descriptor at, lz_dnn_attribute attribute, int64_t value,
                       const char *what) {
    lz_dnn_set(g, at, attribute, LZ_CUDNN_TYPE_INT64, 1, &value, what);
}

static void set_type(lz_dnn_graph *g, lz_dnn_descriptor at, lz_dnn_attribute attribute, lz_dnn_type value,
                     const char *what) {
    lz_dnn_set(g, at, attribute, LZ_CUDNN_TYPE_DATA_TYPE, 1, &value, what);
}

void lz_dnn_set_link(lz_dnn_graph *g, lz_dnn_descriptor at, lz_dnn_attribute attribute, lz_dnn_descriptor to,
                     const char *what) {
    if (to) lz_dnn_set(g, at, attribute, LZ_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &to, what);
}

void lz_dnn_finalise(lz_dnn_graph *g, lz_dnn_descriptor at, const char *what) {
    if (!g->failed) lz_dnn_check(g, g->d->api.dnn.BackendFinalize(at), what);
}

static void add_op(lz_dnn_graph *g, lz_dnn_descriptor op, const char *what) {
    lz_dnn_finalise(g, op, what);
    if (g->n_ops == LZ_DNN_OPS) g->failed = true;
    if (!g->failed) g->ops[g->n_ops++] = op;
}

lz_dnn_type lz_dnn_type_of(lz_dtype t) {
    return t == LZ_BF16 ? LZ_CUDNN_DATA_BFLOAT16 : t == LZ_F16 ? LZ_CUDNN_DATA_HALF : LZ_CUDNN_DATA_FLOAT;
}

lz_dnn_descriptor lz_dnn_add_tensor(lz_dnn_graph *g, const lz_dnn_tensor *t) {
    enum { FIRST_VIRTUAL = 1000 };
    lz_dnn_descriptor made = lz_dnn_new(g, LZ_CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor");
    bool is_virtual = !t->number;
    set_type(g, made, LZ_CUDNN_ATTR_TENSOR_DATA_TYPE, t->type, "TENSOR_DATA_TYPE");
    lz_dnn_set(g, made, LZ_CUDNN_ATTR_TENSOR_DIMENSIONS, LZ_CUDNN_TYPE_INT64, LZ_DNN_DIMS, t->dims,
               "TENSOR_DIMENSIONS");
    lz_dnn_set(g, made, LZ_CUDNN_ATTR_TENSOR_STRIDES, LZ_CUDNN_TYPE_INT64, LZ_DNN_DIMS, t->strides, "TENSOR_STRIDES");
    set_number(g, made, LZ_CUDNN_ATTR_TENSOR_UNIQUE_ID, is_virtual ? FIRST_VIRTUAL + g->virtuals++ : t->number,
               "TENSOR_UNIQUE_ID");
    set_number(g, made, LZ_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16, "TENSOR_BYTE_ALIGNMENT");
    lz_dnn_set(g, made, LZ_CUDNN_ATTR_TENSOR_IS_VIRTUAL, LZ_CUDNN_TYPE_BOOLEAN, 1, &is_virtual, "TENSOR_IS_VIRTUAL");
    lz_dnn_set(g, made, LZ_CUDNN_ATTR_TENSOR_IS_BY_VALUE, LZ_CUDNN_TYPE_BOOLEAN, 1, &t->by_value, "TENSOR_IS_BY_VALUE");
    lz_dnn_finalise(g, made, "a tensor");
    return made;
}

void lz_dnn_add_pointwise(lz_dnn_graph *g, lz_dnn_pointwise op, lz_dnn_descriptor x, lz_dnn_descriptor b,
                          lz_dnn_descriptor t, lz_dnn_descriptor y, int64_t axis) {
    lz_dnn_descriptor how = lz_dnn_new(g, LZ_CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "a pointwise op");
    bool logical = op >= LZ_CUDNN_POINTWISE_CMP_EQ && op <= LZ_CUDNN_POINTWISE_LOGICAL_AND;
    lz_dnn_set(g, how, LZ_CUDNN_ATTR_POINTWISE_MODE, LZ_CUDNN_TYPE_POINTWISE_MODE, 1, &op, "POINTWISE_MODE");
    set_type(g, how, LZ_CUDNN_ATTR_POINTWISE_MATH_PREC, logical ? LZ_CUDNN_DATA_BOOLEAN : LZ_CUDNN_DATA_FLOAT,
             "POINTWISE_MATH_PREC");
    if (axis >= 0) set_number(g, how, LZ_CUDNN_ATTR_POINTWISE_AXIS, axis, "POINTWISE_AXIS");
    lz_dnn_finalise(g, how, "a pointwise op");
    lz_dnn_descriptor made = lz_dnn_new(g, LZ_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "a pointwise node");
    lz_dnn_set_link(g, made, LZ_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how, "POINTWISE_PW_DESCRIPTOR");
    lz_dnn_set_link(g, made, LZ_CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x, "POINTWISE_XDESC");
    lz_dnn_set_link(g, made, LZ_CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b, "POINTWISE_BDESC");
    lz_dnn_set_link(g, made, LZ_CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t, "POINTWISE_TDESC");
    lz_dnn_set_link(g, made, LZ_CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y, "POINTWISE_YDESC");
    add_op(g, made, "a pointwise node");
}

void lz_dnn_add_matmul(lz_dnn_graph *g, lz_dnn_descriptor a, lz_dnn_descriptor b, lz_dnn_descriptor c) {
    lz_dnn_descriptor how = lz_dnn_new(g, LZ_CUDNN_BACKEND_MATMUL_DESCRIPTOR, "a product");
    set_type(g, how, LZ_CUDNN_ATTR_MATMUL_COMP_TYPE, LZ_CUDNN_DATA_FLOAT, "MATMUL_COMP_TYPE");
    lz_dnn_finalise(g, how, "a product");
    lz_dnn_descriptor made = lz_dnn_new(g, LZ_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "a product's node");
    lz_dnn_set_link(g, made, LZ_CUDNN_ATTR_OPERATION_MATMUL_DESC, how, "MATMUL_DESC");
    lz_dnn_set_link(g, made, LZ_CUDNN_ATTR_OPERATION_MATMUL_ADESC, a, "MATMUL_ADESC");
    lz_dnn_set_link(g, made, LZ_CUDNN_ATTR_OPERATION_MATMUL_BDESC, b, "MATMUL_BDESC");
    lz_dnn_set_link(g, made, LZ_CUDNN_ATTR_OPERATION_MATMUL_CDESC, c, "MATMUL_CDESC");
    add_op(g, made, "a product's node");
}

void lz_dnn_add_reduction(lz_dnn_graph *g, lz_dnn_reduce op, lz_dnn_descriptor x, lz_dnn_descriptor y) {
    lz_dnn_descriptor how = lz_dnn_new(g, LZ_CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "a reduction");
    lz_dnn_set(g, how, LZ_CUDNN_ATTR_REDUCTION_OPERATOR, LZ_CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op,
               "REDUCTION_OPERATOR");
    set_type(g, how, LZ_CUDNN_ATTR_REDUCTION_COMP_TYPE, LZ_CUDNN_DATA_FLOAT, "REDUCTION_COMP_TYPE");
    lz_dnn_finalise(g, how, "a reduction");
    lz_dnn_descriptor made = lz_dnn_new(g, LZ_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "a reduction's node");
    lz_dnn_set_link(g, made, LZ_CUDNN_ATTR_OPERATION_REDUCTION_DESC, how, "REDUCTION_DESC");
    lz_dnn_set_link(g, made, LZ_CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x, "REDUCTION_XDESC");
    lz_dnn_set_link(g, made, LZ_CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y, "REDUCTION_YDESC");
    add_op(g, made, "a reduction's node");
}

void lz_dnn_add_convolution(lz_dnn_graph *g, lz_dnn_descriptor x, lz_dnn_descriptor w, lz_dnn_descriptor y,
                            int64_t stride, const int64_t before[2], const int64_t behind[2]) {
    lz_dnn_descriptor how = lz_dnn_new(g, LZ_CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, "a convolution");
    lz_dnn_conv_mode mode = LZ_CUDNN_CROSS_CORRELATION;
    int64_t strides[2] = {stride, stride}, dilations[2] = {1, 1};
    float one = 1, zero = 0;
    set_number(g, how, LZ_CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2, "CONVOLUTION_SPATIAL_DIMS");
    set_type(g, how, LZ_CUDNN_ATTR_CONVOLUTION_COMP_TYPE, LZ_CUDNN_DATA_FLOAT, "CONVOLUTION_COMP_TYPE");
    lz_dnn_set(g, how, LZ_CUDNN_ATTR_CONVOLUTION_CONV_MODE, LZ_CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode,
               "CONVOLUTION_CONV_MODE");
    lz_dnn_set(g, how, LZ_CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, LZ_CUDNN_TYPE_INT64, 2, before,
               "CONVOLUTION_PRE_PADDINGS");
    lz_dnn_set(g, how, LZ_CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, LZ_CUDNN_TYPE_INT64, 2, behind,
               "CONVOLUTION_POST_PADDINGS");
    lz_dnn_set(g, how, LZ_CUDNN_ATTR_CONVOLUTION_DILATIONS, LZ_CUDNN_TYPE_INT64, 2, dilations, "CONVOLUTION_DILATIONS");
    lz_dnn_set(g, how, LZ_CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, LZ_CUDNN_TYPE_INT64, 2, strides,
               "CONVOLUTION_FILTER_STRIDES");
    lz_dnn_finalise(g, how, "a convolution");
    lz_dnn_descriptor made = lz_dnn_new(g, LZ_CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                        "a convolution's node");
    lz_dnn_set_link(g, made, LZ_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x, "CONVOLUTION_FORWARD_X");
    lz_dnn_set_link(g, made, LZ_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w, "CONVOLUTION_FORWARD_W");
    lz_dnn_set_link(g, made, LZ_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y, "CONVOLUTION_FORWARD_Y");
    lz_dnn_set_link(g, made, LZ_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, how,
                    "CONVOLUTION_FORWARD_CONV_DESC");
    lz_dnn_set(g, made, LZ_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, LZ_CUDNN_TYPE_FLOAT, 1, &one,
               "CONVOLUTION_FORWARD_ALPHA");
    lz_dnn_set(g, made, LZ_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, LZ_CUDNN_TYPE_FLOAT, 1, &zero,
               "CONVOLUTION_FORWARD_BETA");
    add_op(g, made, "a convolution's node");
}
