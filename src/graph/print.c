/* print.c: graphs and programs as text. */
#include "graph/eval.h"

static void add_node_text(lz_text *t, const lz_value *v, int id) {
    lz_text_add(t, "%%%d = %s %s %s", id, lz_op_table[v->op].name, lz_dtype_name(v->dtype), LZ_SHOW(v->dims));
    if (v->op == LZ_OP_FULL) lz_text_add(t, " value %g", v->params.full.value);
    for (int i = 0; i < v->n_in; i++) lz_text_add(t, "%s%%%d", i ? ", " : " of ", v->in[i]);
    if (v->from && v->from->file) lz_text_add(t, "  # %s:%d", v->from->file, v->from->line);
    lz_text_add(t, "%s\n", v->output ? "  (output)" : "");
}

static void add_node_dot(lz_text *t, const lz_value *v, int id) {
    lz_text_add(t, "  n%d [label=\"%s\\n%s %s\"%s];\n", id, lz_op_table[v->op].name, lz_dtype_name(v->dtype),
                LZ_SHOW(v->dims), v->output ? ", penwidth=2" : "");
    for (int i = 0; i < v->n_in; i++) lz_text_add(t, "  n%d -> n%d;\n", v->in[i], id);
}

static void add_operand(lz_text *t, const lz_program *p, lz_operand o) {
    static const char *const kinds[] = {"input", "const", "arena", "output"};
    const lz_store *s = &p->stores[o.store];
    int64_t at = s->kind == LZ_STORE_ARENA ? s->arena_offset : s->kind == LZ_STORE_OUTPUT ? s->output : o.store;
    lz_text_add(t, "%s@%lld", kinds[s->kind], (long long)at);
    if (o.offset) lz_text_add(t, "+%lld", (long long)o.offset);
}

static void add_expr(lz_text *t, const lz_expr *e) {
    lz_text_add(t, " {");
    for (int i = 0; i < e->n_steps; i++) {
        const lz_expr_step *s = &e->steps[i];
        bool mul_add = s->op == LZ_EXPR_MUL_ADD;
        lz_text_add(t, "%s r%d=%s", i ? ";" : "", s->dst, mul_add ? "mul_add" : lz_op_table[s->op].name);
        if (mul_add)
            lz_text_add(t, " r%d r%d r%d", s->a, s->b, s->c);
        else if (s->number)
            lz_text_add(t, " r%d %g", s->a, (double)s->k0);
        else if (s->op == LZ_OP_FULL)
            lz_text_add(t, " %g", (double)s->k0);
        else if (s->op == LZ_OP_CAST)
            lz_text_add(t, " r%d to %s", s->a, lz_dtype_name((lz_dtype)s->b));
        else
            for (int j = 0; j < lz_op_table[s->op].inputs; j++)
                lz_text_add(t, " r%d", j == 0 ? s->a : j == 1 ? s->b : s->c);
    }
    lz_text_add(t, " }");
}

static void add_program(lz_text *t, const lz_program *p) {
    lz_text_add(t, "# %lld kernels, arena %lld bytes, outputs %lld bytes, %.3g flop, %.3g bytes moved\n",
                (long long)p->info.kernels, (long long)p->arena_bytes, (long long)p->info.output_bytes, p->info.flops,
                p->info.bytes);
    for (int i = 0; i < p->n_steps; i++) {
        const lz_step *s = &p->steps[i];
        lz_text_add(t, "%3d%s%s %s %s -> ", i, s->group_size ? "  " : "+ ", s->kernel->name,
                    lz_dtype_name(s->call.out.dtype), LZ_SHOW(s->call.out.dims));
        add_operand(t, p, s->out);
        for (int j = 0; j < s->call.n_in; j++) {
            lz_text_add(t, "%s", j ? ", " : " of ");
            add_operand(t, p, s->in[j]);
        }
        if (s->call.expr) add_expr(t, s->call.expr);
        lz_text_add(t, "\n");
    }
}

char *lz_graph_text(lz_array *const *arrays, int n, lz_graph_format format, lz_error *err) {
    if (lz_check_all(arrays, n, err)) return NULL;
    if (n < 1 || format < LZ_GRAPH_TEXT || format > LZ_GRAPH_PROGRAM) {
        lz_fail(err, LZ_BAD_ARGUMENT, "graph_text: needs at least one array, and text, DOT or program as the format");
        return NULL;
    }
    lz_context *ctx = arrays[0]->ctx;
    lz_text text = {.ctx = ctx};
    if (format == LZ_GRAPH_PROGRAM) {
        lz_program *p = lz_program_new(ctx, arrays, n, false, err);
        if (p)
            add_program(&text, p);
        else
            text.failed = true;
        lz_program_free(p);
    } else {
        lz_graph g = {.ctx = ctx, .memory.ctx = ctx};
        bool dot = format == LZ_GRAPH_DOT;
        text.failed = !lz_lower(&g, arrays, n);
        if (dot) lz_text_add(&text, "digraph lazuli {\n  node [shape=box, fontname=monospace];\n");
        for (int i = 0; i < g.n && !text.failed; i++) (dot ? add_node_dot : add_node_text)(&text, &g.values[i], i);
        if (dot) lz_text_add(&text, "}\n");
        lz_graph_free(&g);
    }
    return lz_text_take(&text, err);
}
