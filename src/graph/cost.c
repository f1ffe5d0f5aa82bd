/* cost.c: floating point operations of a step, and bytes that it moves. */
#include "graph/graph.h"

static double dims_product(lz_dims d, int from, int to) {
    double n = 1;
    for (int i = from; i < to; i++) n *= (double)d.at[i];
    return n;
}

double lz_count_terms(const lz_op_info *op, lz_dims summed, int axes) {
    int end = summed.n - op->sum.after;
    return dims_product(summed, end - axes, end);
}

/* The number of terms that are summed for one element of the output; 1: no sum. */
static double terms_of(const lz_call *c) {
    const lz_op_info *op = &lz_op_table[c->op];
    if (c->n_core == 0) return 1;
    int axes = op->kind == LZ_KIND_REDUCE ? c->params->reduce.count : op->sum.axes;
    double n = lz_count_terms(op, c->in[op->sum.input].dims, axes);
    return c->op == LZ_OP_SDPA && c->params->sdpa.causal ? n / 2 : n;
}

/* Floating point operations. A step of an expression counts as one per element. */
static double count_flops(const lz_call *c) {
    double each = lz_op_table[c->op].flops * terms_of(c);
    if (c->expr) each += c->expr->n_steps;
    return dims_product(c->out.dims, 0, c->out.dims.n) * each;
}

/* Bytes that reading or writing the tensor once moves. Broadcast axes count as one element. */
static double count_bytes(const lz_tensor *t) {
    double n = (double)lz_dtype_size(t->dtype);
    for (int i = 0; i < t->dims.n; i++)
        if (t->strides[i]) n *= (double)t->dims.at[i];
    return n;
}

void lz_step_cost(lz_step *step) {
    step->flops = count_flops(&step->call);
    step->bytes = count_bytes(&step->call.out) * (lz_op_table[step->call.op].beside ? 2 : 1);
    for (int i = 0; i < step->call.n_in; i++) step->bytes += count_bytes(&step->call.in[i]);
}
