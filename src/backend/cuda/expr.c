/* expr.c: types and expressions as CUDA C++. Each step of an expression becomes a statement with one call of a
 * function of prelude.cu, so an op rounds the same whether it is alone, in a chain, or in an epilogue. */
#include <string.h>

#include "backend/cuda/own.h"
#include "op/number.h"

const char *lz_cuda_type_name(lz_dtype dtype) {
    static const char *const names[LZ_DTYPE_COUNT] = {
        [LZ_BOOL] = "boolean", [LZ_U8] = "u8",   [LZ_I8] = "i8",     [LZ_I32] = "i32",   [LZ_I64] = "i64",
        [LZ_F8] = "f8",        [LZ_F16] = "f16", [LZ_BF16] = "bf16", [LZ_F32] = "float", [LZ_F64] = "u64",
    };
    return names[dtype];
}

/* A constant is written as its bits: no digits are lost, and infinities and NaN work too. */
static void add_number(lz_text *text, float number) {
    lz_text_add(text, "__uint_as_float(0x%08xu)", (unsigned)lz_float_to_bits(number));
}

static int operands_of(const lz_expr_step *s) {
    if (s->op == LZ_EXPR_MUL_ADD) return 3;
    if (s->op == LZ_OP_CAST || s->number) return 1;
    return lz_op_table[s->op].inputs;
}

/* Adds the name of the function. A cast to an integer adds none, since the store converts. */
static void add_function(lz_text *text, const lz_expr_step *s) {
    if (s->op == LZ_EXPR_MUL_ADD)
        lz_text_add(text, "op_mul_add(");
    else if (s->op == LZ_OP_CAST && (lz_is_float((lz_dtype)s->b) || s->b == LZ_BOOL))
        lz_text_add(text, s->b == LZ_BOOL ? "op_not_equal(0.0f, " : "round_to<%s>(", lz_cuda_type_name((lz_dtype)s->b));
    else
        lz_text_add(text, "op_%s(", s->op == LZ_OP_CAST ? "copy" : lz_op_table[s->op].name);
}

static void add_step(lz_text *text, const lz_expr_step *s) {
    lz_text_add(text, "    r%d = ", s->dst);
    if (s->op == LZ_OP_FULL) {
        add_number(text, s->k0);
    } else {
        const int registers[3] = {s->a, s->b, s->c};
        add_function(text, s);
        for (int i = 0; i < 3 && i < operands_of(s); i++) lz_text_add(text, i ? ", r%d" : "r%d", registers[i]);
        if (s->number || s->op == LZ_OP_CLIP) {
            lz_text_add(text, ", ");
            add_number(text, s->k0);
        }
        if (s->op == LZ_OP_CLIP) {
            lz_text_add(text, ", ");
            add_number(text, s->k1);
        }
        lz_text_add(text, ")");
    }
    lz_text_add(text, ";\n");
}

void lz_cuda_add_expression(lz_text *text, const char *name, const lz_expr *e) {
    int n_args = e ? e->n_args : 1;
    lz_text_add(text, "FN float %s(", name);
    for (int i = 0; i < n_args; i++) lz_text_add(text, i ? ", float r%d" : "float r%d", i);
    lz_text_add(text, ") {\n");
    for (int i = n_args; e && i < e->n_regs; i++) lz_text_add(text, "    float r%d;\n", i);
    for (int i = 0; e && i < e->n_steps; i++) add_step(text, &e->steps[i]);
    lz_text_add(text, "    return r%d;\n}\n", e ? e->result : 0);
}

bool lz_cuda_run_text(const lz_call *call, const char *name, lz_text *text, int64_t blocks, int threads,
                      const void *params) {
    char *whole = lz_text_take(text, call->err);
    if (!whole) return false;
    lz_cu_function f = lz_cuda_function(call->device, name, whole, call->err);
    lz_host_free(text->ctx, whole);
    return f && lz_cuda_launch(call, f, blocks, threads, 0, params);
}

static bool same_steps(const lz_expr_step *a, const lz_expr_step *b) {
    return a->op == b->op && a->dst == b->dst && a->a == b->a && a->b == b->b && a->c == b->c &&
           a->number == b->number && !memcmp(&a->k0, &b->k0, sizeof a->k0) && !memcmp(&a->k1, &b->k1, sizeof a->k1);
}

bool lz_cuda_same_expressions(const lz_expr *a, const lz_expr *b) {
    if (a == b || !a || !b) return a == b;
    bool same = a->n_args == b->n_args && a->n_steps == b->n_steps && a->n_regs == b->n_regs && a->result == b->result;
    for (int i = 0; i < a->n_steps && same; i++) same = same_steps(&a->steps[i], &b->steps[i]);
    return same;
}
