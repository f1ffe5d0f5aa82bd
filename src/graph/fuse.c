/* fuse.c: elementwise chains become expressions. Starting from each elementwise value that is in no chain yet, the
 * chain takes in the values that only the chain uses. If an input of the chain is computed by a kernel that takes an
 * epilogue (a product, a norm, ...) and only the chain reads it, the chain becomes the epilogue of that kernel, the
 * producer, and the producer's result is never stored. Two products of the same rows that a chain combines (silu(x
 * gate) * (x up)) become one MATMUL_PAIR, if the backend has a kernel for it.
 *
 * In f32 an expression rounds exactly as the single ops do; in 16-bit types it keeps f32 between its steps. */
#include <string.h>

#include "graph/graph.h"

/* ---- what may be in an expression -------------------------------------------------------------------------------- */

static bool is_real(lz_dtype t) { return t == LZ_F16 || t == LZ_BF16 || t == LZ_F32; }

/* Registers are f32, so an integer operand is fusable only if the op asks whether it is zero, or casts it to a
 * float. */
static bool fusable(const lz_graph *g, const lz_value *v) {
    const lz_op_info *op = &lz_op_table[v->op];
    if (op->kind != LZ_KIND_ELEMENT || v->op == LZ_OP_FUSED) return false;
    for (int i = 0; i < v->n_in; i++) {
        lz_dtype t = g->values[v->in[i]].dtype;
        if (t == LZ_F64) return false;
        if (is_real(t) || op->truth >> i & 1) continue;
        if (v->op == LZ_OP_CAST && is_real(v->dtype)) continue;
        return false;
    }
    return is_real(v->dtype) || v->dtype == LZ_BOOL || (v->op == LZ_OP_CAST && v->dtype != LZ_F64);
}

static bool takes_epilogue(const lz_value *v) {
    return lz_op_table[v->op].epilogue && is_real(v->dtype) && !v->expr && v->dims.n >= 1;
}

/* ---- the chain --------------------------------------------------------------------------------------------------- */

typedef struct chain {
    lz_graph *g;
    int root;
    int members[LZ_EXPR_STEPS]; /* descending indices: users before their inputs */
    int n;
    int args[LZ_EXPR_ARGS]; /* inputs that are not members; [0] is the producer and [1] its partner, if there are any */
    int n_args;
    int producer;   /* value whose kernel gets the chain as its epilogue; -1: none */
    int partner;    /* second product of a MATMUL_PAIR; -1: none */
    bool quantised; /* only a QUANTISE reads the root, which will compute the chain (quantise.c) */
} chain;

static bool has(const int *list, int n, int id) {
    for (int i = 0; i < n; i++)
        if (list[i] == id) return true;
    return false;
}

static int uses_inside(const chain *c, int id) {
    int count = 0;
    for (int i = 0; i < c->n; i++)
        for (int j = 0; j < c->g->values[c->members[i]].n_in; j++) count += c->g->values[c->members[i]].in[j] == id;
    return count;
}

static bool only_used_inside(const chain *c, int id) {
    const lz_value *v = &c->g->values[id];
    return !v->output && v->uses == uses_inside(c, id);
}

/* Is v elementwise over constants and broadcast operands alone, such as 1 + scale for every row? Each chain that reads
 * such a value computes it again, which is cheaper than storing it. */
static bool is_repeated(const lz_graph *g, const lz_value *v) {
    for (int i = 0; i < v->n_in; i++) {
        const lz_value *x = &g->values[v->in[i]];
        bool repeats = x->op == LZ_OP_FULL || x->op == LZ_OP_BROADCAST;
        for (int k = 0; x->op == LZ_OP_LEAF && !x->from->placeholder && k < x->dims.n; k++)
            repeats = repeats || (x->dims.at[k] > 1 && x->from->strides[k] == 0);
        if (!repeats) return false;
    }
    return !v->output;
}

/* Distinct constants that the members read. Each may need a step and a register. */
static int count_numbers(const chain *c) {
    int seen[3 * LZ_EXPR_STEPS], n = 0;
    for (int i = 0; i < c->n; i++)
        for (int j = 0; j < c->g->values[c->members[i]].n_in; j++) {
            int id = c->g->values[c->members[i]].in[j];
            if (c->g->values[id].op == LZ_OP_FULL && !has(seen, n, id)) seen[n++] = id;
        }
    return n;
}

/* Lists the arguments in the order in which the members read them. false: more than an expression can have. */
static bool find_args(chain *c) {
    c->n_args = 0;
    for (int i = 0; i < c->n; i++) {
        const lz_value *v = &c->g->values[c->members[i]];
        for (int j = 0; j < v->n_in; j++) {
            int id = v->in[j];
            if (c->g->values[id].op == LZ_OP_FULL || has(c->members, c->n, id) || has(c->args, c->n_args, id)) continue;
            if (c->n_args == LZ_EXPR_ARGS) return false;
            c->args[c->n_args++] = id;
        }
    }
    return c->n + count_numbers(c) <= LZ_EXPR_STEPS && c->n_args + count_numbers(c) < LZ_EXPR_REGS;
}

/* Adds arguments that only the chain uses to its members, the latest first, until no more fit. */
static void grow_chain(chain *c) {
    int refused[LZ_EXPR_ARGS], n_refused = 0;
    const lz_dims dims = c->g->values[c->root].dims;
    while (c->n < LZ_EXPR_STEPS) {
        int best = -1;
        for (int i = 0; i < c->n_args; i++) {
            const lz_value *v = &c->g->values[c->args[i]];
            if (c->args[i] > best && !has(refused, n_refused, c->args[i]) && fusable(c->g, v) &&
                (is_real(v->dtype) || v->dtype == LZ_BOOL) && lz_dims_equal(v->dims, dims) &&
                (only_used_inside(c, c->args[i]) || is_repeated(c->g, v)))
                best = c->args[i];
        }
        if (best < 0) return;
        c->members[c->n++] = best;
        if (find_args(c)) continue;
        c->n--;
        if (n_refused == LZ_EXPR_ARGS) return;
        refused[n_refused++] = best;
        find_args(c);
    }
}

static void put_first(chain *c, int place, int id) {
    for (int i = place; i < c->n_args; i++)
        if (c->args[i] == id) {
            c->args[i] = c->args[place];
            c->args[place] = id;
        }
}

static bool is_half(lz_dtype t) { return t == LZ_F16 || t == LZ_BF16; }

/* Finds a second product with the producer's left operand. Only for 16-bit types, where a pair is faster. */
static void find_partner(chain *c) {
    c->partner = -1;
    const lz_value *producer = &c->g->values[c->producer], *all = c->g->values;
    const lz_kernel *pair = c->g->ctx->backend->kernel(LZ_OP_MATMUL_PAIR);
    if (!pair || !pair->run || producer->op != LZ_OP_MATMUL || !is_half(producer->dtype)) return;
    for (int i = 0; i < c->n_args && c->partner < 0; i++) {
        const lz_value *v = &all[c->args[i]];
        if (v == producer || v->op != LZ_OP_MATMUL || !takes_epilogue(v) || v->in[0] != producer->in[0] ||
            !lz_dims_equal(v->dims, producer->dims) || !only_used_inside(c, c->args[i]))
            continue;
        bool same = all[v->in[0]].dtype == producer->dtype && all[v->in[1]].dtype == producer->dtype &&
                    all[producer->in[1]].dtype == producer->dtype && v->dtype == producer->dtype;
        if (same && v->dims.at[v->dims.n - 1] <= INT32_MAX) c->partner = c->args[i];
    }
    if (c->partner >= 0) put_first(c, 1, c->partner);
}

/* The number of terms in each sum of a product; 0: no product. */
static double product_terms(const lz_graph *g, const lz_value *v) {
    const lz_op_info *op = &lz_op_table[v->op];
    return op->product ? lz_count_terms(op, g->values[v->in[op->sum.input]].dims, op->sum.axes) : 0;
}

/* Chooses the kernel that gets the chain as its epilogue: the one with most work. That is a product before a norm, and the
 * product with a weight before the product of low rank that a LoRA adds to it. */
static void find_producer(chain *c) {
    c->producer = c->partner = -1;
    const lz_dims dims = c->g->values[c->root].dims;
    double most = 0;
    for (int i = 0; i < c->n_args; i++) {
        const lz_value *v = &c->g->values[c->args[i]];
        if (!takes_epilogue(v) || !lz_dims_equal(v->dims, dims) || !only_used_inside(c, c->args[i])) continue;
        double terms = product_terms(c->g, v);
        if (terms > 0 && c->quantised) continue;
        if (c->producer >= 0 && (terms == 0 || terms < most)) continue;
        c->producer = c->args[i];
        most = terms;
    }
    if (c->producer < 0) return;
    put_first(c, 0, c->producer);
    find_partner(c);
}

/* ---- from chain to expression ------------------------------------------------------------------------------------ */

typedef struct registers {
    int holds[LZ_EXPR_REGS]; /* index of the value; -1: free */
    int n;                   /* registers used so far, at most */
} registers;

static int find_register(const registers *r, int id) {
    for (int i = 0; i < LZ_EXPR_REGS; i++)
        if (r->holds[i] == id) return i;
    return -1;
}

static int take_register(registers *r, int id) {
    int i = find_register(r, -1);
    if (i < 0) return -1;
    r->holds[i] = id;
    if (i + 1 > r->n) r->n = i + 1;
    return i;
}

/* Is value id read by a member that is computed after member `at` (that is, listed before it)? */
static bool needed_later(const chain *c, int at, int id) {
    for (int i = 0; i < at; i++) {
        const lz_value *v = &c->g->values[c->members[i]];
        if (has(v->in, v->n_in, id)) return true;
    }
    return false;
}

/* The register of an operand. The first read of a constant adds a step that loads it. -1: no register or step left. */
static int operand_register(const chain *c, lz_expr *e, registers *r, int id) {
    int at = find_register(r, id);
    if (at >= 0) return at;
    at = take_register(r, id);
    if (at < 0 || e->n_steps == LZ_EXPR_STEPS) return -1;
    float number = (float)c->g->values[id].params.full.value;
    e->steps[e->n_steps++] = (lz_expr_step){.op = LZ_OP_FULL, .dst = (uint8_t)at, .k0 = number};
    return at;
}

/* Adds the step of a member. false: too few registers or steps. */
static bool write_step(const chain *c, lz_expr *e, registers *r, int m) {
    const lz_value *v = &c->g->values[c->members[m]];
    int in[3] = {-1, -1, -1};
    for (int j = 0; j < v->n_in; j++) in[j] = v->in[j];
    if (lz_op_table[v->op].commutes && c->g->values[in[0]].op == LZ_OP_FULL) {
        in[0] = v->in[1];
        in[1] = v->in[0];
    }
    lz_expr_step step = {.op = (uint8_t)v->op};
    uint8_t *place[3] = {&step.a, &step.b, &step.c};
    for (int j = 0; j < v->n_in; j++) {
        if (j == 1 && lz_op_table[v->op].number && c->g->values[in[j]].op == LZ_OP_FULL) {
            step.number = true;
            step.k0 = (float)c->g->values[in[j]].params.full.value;
            in[j] = -1;
            continue;
        }
        int at = operand_register(c, e, r, in[j]);
        if (at < 0) return false;
        *place[j] = (uint8_t)at;
    }
    for (int j = 0; j < v->n_in; j++) /* the result may use the register of an operand that is not read again */
        if (in[j] >= 0 && !needed_later(c, m, in[j])) r->holds[*place[j]] = -1;
    int dst = take_register(r, c->members[m]);
    if (dst < 0 || e->n_steps == LZ_EXPR_STEPS) return false;
    step.dst = (uint8_t)dst;
    if (v->op == LZ_OP_CLIP) step.k0 = (float)v->params.clip.low, step.k1 = (float)v->params.clip.high;
    if (v->op == LZ_OP_CAST) step.b = (uint8_t)v->dtype;
    e->steps[e->n_steps++] = step;
    return true;
}

/* Joins a MUL and the ADD right after it into MUL_ADD if no other step reads the product: one pass over the registers
 * instead of two. */
static void join_products(lz_expr *e) {
    int kept = 0;
    for (int i = 0; i < e->n_steps; i++) {
        lz_expr_step *add = &e->steps[i], *mul = kept ? &e->steps[kept - 1] : NULL;
        bool joins = mul && mul->op == LZ_OP_MUL && !mul->number && add->op == LZ_OP_ADD && !add->number &&
                     add->a != add->b && (add->a == mul->dst || add->b == mul->dst);
        /* Does a later step read the product before its register is overwritten? */
        for (int j = i + 1; joins && add->dst != mul->dst && j < e->n_steps; j++) {
            const lz_expr_step *s = &e->steps[j];
            int reads = s->op == LZ_OP_CAST || s->number ? 1 : lz_op_table[s->op].inputs;
            if ((reads > 0 && s->a == mul->dst) || (reads > 1 && s->b == mul->dst) || (reads > 2 && s->c == mul->dst))
                joins = false;
            if (s->dst == mul->dst) break;
        }
        lz_expr_step step = *add;
        if (joins) {
            step = (lz_expr_step){.op = LZ_EXPR_MUL_ADD,
                                  .dst = add->dst,
                                  .a = mul->a,
                                  .b = mul->b,
                                  .c = add->a == mul->dst ? add->b : add->a};
            kept--;
        }
        e->steps[kept++] = step;
    }
    e->n_steps = kept;
}

/* false: too few registers. */
static bool write_expr(const chain *c, lz_expr *e) {
    registers r;
    memset(e, 0, sizeof *e);
    for (int i = 0; i < LZ_EXPR_REGS; i++) r.holds[i] = -1;
    r.n = 0;
    e->n_args = c->n_args;
    for (int i = 0; i < c->n_args; i++) take_register(&r, c->args[i]);
    for (int m = c->n - 1; m >= 0; m--)
        if (!write_step(c, e, &r, m)) return false;
    e->result = find_register(&r, c->root);
    e->n_regs = r.n;
    if (c->n > 1) join_products(e);
    return true;
}

/* The root becomes the fused value: an expression, or the producer with its epilogue. */
static bool replace_root(chain *c) {
    lz_graph *g = c->g;
    lz_expr *e = lz_bump_alloc(&g->memory, sizeof *e);
    if (!e) return false;
    while (!write_expr(c, e)) { /* too few registers: remove the earliest member from the chain */
        c->n--;
        find_args(c);
        find_producer(c);
    }
    for (int m = 1; m < c->n; m++)
        g->values[c->members[m]].uses -= uses_inside(c, c->members[m]); /* computed inside the root from now on */
    const lz_value *producer = c->producer >= 0 ? &g->values[c->producer] : NULL;
    int pair = c->partner >= 0, own = producer ? producer->n_in + pair : 0, skip = producer ? 1 + pair : 0;
    int *in = lz_bump_alloc(&g->memory, (size_t)(own + c->n_args + 1) * sizeof *in);
    if (!in) return false;
    for (int i = 0; i < own - pair; i++) in[i] = producer->in[i];
    if (pair) in[own - 1] = g->values[c->partner].in[1];
    for (int i = skip; i < c->n_args; i++) in[own + i - skip] = c->args[i];
    lz_value *root = &g->values[c->root];
    root->op = pair ? LZ_OP_MATMUL_PAIR : producer ? producer->op : LZ_OP_FUSED;
    if (producer)
        root->params = producer->params;
    else
        memset(&root->params, 0, sizeof root->params);
    root->expr = e;
    root->in = in;
    root->n_core = own;
    root->n_in = own + c->n_args - skip;
    return true;
}

bool lz_fuse(lz_graph *g) {
    lz_count_uses(g);
    if (!g->ctx->backend->fuses) return true;
    const bool *quantised = lz_find_quantised(g);
    if (!quantised) return false;
    for (int i = g->n - 1; i >= 0; i--) {
        lz_value *v = &g->values[i];
        if (!v->uses || !fusable(g, v)) continue;
        chain c = {.g = g, .root = i, .members = {i}, .n = 1, .producer = -1, .partner = -1};
        c.quantised = v->uses == 1 && !v->output && quantised[i];
        find_args(&c);
        if (g->ctx->fusion) {
            grow_chain(&c);
            find_producer(&c);
        }
        if (c.n == 1 && c.producer < 0 && v->op == LZ_OP_COPY) continue; /* the copy kernel is faster */
        if (!replace_root(&c)) return false;
    }
    lz_count_uses(g);
    return true;
}
