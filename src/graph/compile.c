/* compile.c: compiled functions. The function is called once for each signature (types, shapes and strides) of its
 * inputs, on placeholders. The program planned from its outputs is kept, with its memory, and run again by later calls
 * of that signature. Output arrays of a call are reused by a later call if nobody else has a reference to them, so that
 * a loop in a scope allocates nothing. */
#include <string.h>

#include "graph/eval.h"

enum { MAX_ARRAYS = 65536 }; /* inputs or outputs of a function; documented in lazuli_array.h */

/* One set of output arrays with their buffers; owned by its entry. */
typedef struct outputs {
    struct outputs *next;
    lz_buffer **buffers;
    lz_array **arrays;
} outputs;

typedef struct entry {
    struct entry *next;  /* most recently used first */
    lz_argument *inputs; /* the signature; .buffer is NULL */
    lz_program *program;
    outputs *sets;
} entry;

struct lz_compiled {
    lz_context *ctx;
    lz_function function;
    void *user;
    int n_in, n_out, cache_size;
    entry *entries;
    lz_argument *current;   /* inputs of the call that is running; under lock */
    lz_buffer *arena;       /* shared by all programs of this function; evictable between calls */
    lz_compile_stats stats; /* under base.lock, so that lz_compiled_stats does not wait for a call */
    /* Guards entries, current and arena. Held during a whole call, while the function is traced, planned and run, so calls
     * run one at a time; nothing but calls of this function waits for it. Taken before run_lock and base.lock. */
    pthread_mutex_t lock;
};

lz_compiled *lz_compile(lz_context *ctx, lz_function function, void *user, int n_in, int n_out, int cache_size,
                        lz_error *err) {
    if (!ctx || !function || n_in < 0 || n_out < 1 || n_in > MAX_ARRAYS || n_out > MAX_ARRAYS) {
        lz_fail(err, LZ_BAD_ARGUMENT, "compile: needs a context, a function, 0 to %d inputs and 1 to %d outputs",
                MAX_ARRAYS, MAX_ARRAYS);
        return NULL;
    }
    lz_compiled *c = lz_host_alloc(ctx, sizeof *c);
    lz_argument *current = lz_host_alloc(ctx, (size_t)(n_in + 1) * sizeof *current);
    if (!c || !current) {
        lz_host_free(ctx, c);
        lz_host_free(ctx, current);
        lz_out_of_memory(err, sizeof *c);
        return NULL;
    }
    *c = (lz_compiled){.ctx = ctx,
                       .function = function,
                       .user = user,
                       .current = current,
                       .n_in = n_in,
                       .n_out = n_out,
                       .cache_size = cache_size > 0 ? cache_size : 8};
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

/* ---- freeing ----------------------------------------------------------------------------------------------------- */

static void free_set(lz_compiled *c, const lz_program *p, outputs *set) {
    for (int i = 0; set->buffers && i < p->n_outputs; i++) lz_buffer_release(set->buffers[i]);
    for (int i = 0; set->arrays && i < c->n_out; i++) lz_release(set->arrays[i]);
    lz_host_free(c->ctx, set->buffers);
    lz_host_free(c->ctx, set->arrays);
    lz_host_free(c->ctx, set);
}

static void free_entry(lz_compiled *c, entry *e) {
    while (e->sets) {
        outputs *next = e->sets->next;
        free_set(c, e->program, e->sets);
        e->sets = next;
    }
    lz_program_free(e->program);
    lz_host_free(c->ctx, e->inputs);
    lz_host_free(c->ctx, e);
}

void lz_compiled_free(lz_compiled *c) {
    if (!c) return;
    lz_context *ctx = c->ctx;
    LZ_LOCK(ctx);
    while (c->entries) {
        entry *next = c->entries->next;
        free_entry(c, c->entries);
        c->entries = next;
    }
    lz_buffer_release(c->arena);
    LZ_UNLOCK(ctx);
    pthread_mutex_destroy(&c->lock);
    lz_host_free(ctx, c->current);
    lz_host_free(ctx, c);
}

lz_compile_stats lz_compiled_stats(const lz_compiled *compiled) {
    lz_compile_stats stats = {0};
    if (!compiled) return stats;
    LZ_LOCK(compiled->ctx);
    stats = compiled->stats;
    LZ_UNLOCK(compiled->ctx);
    return stats;
}

/* ---- finding a program ------------------------------------------------------------------------------------------- */

static bool matches(const lz_compiled *c, const entry *e) {
    for (int i = 0; i < c->n_in; i++) {
        const lz_argument *s = &e->inputs[i], *now = &c->current[i];
        if (s->dtype != now->dtype || !lz_dims_equal(s->dims, now->dims)) return false;
        if (memcmp(s->strides, now->strides, (size_t)s->dims.n * sizeof s->strides[0])) return false;
    }
    return true;
}

/* Copies buffer, offset and strides of all inputs under one lock: another thread that reads an input may replace its
 * buffer by a row-major one (make_dense in eval.c). An input without a value, which can only be planned with, is taken to be
 * row-major. */
static void retain_inputs(lz_compiled *c, lz_array *const *in) {
    LZ_LOCK(c->ctx);
    for (int i = 0; i < c->n_in; i++) {
        const lz_array *a = in[i];
        c->current[i] = (lz_argument){.dtype = a->dtype, .dims = a->dims, .offset = a->offset};
        if (a->buffer || a->placeholder)
            memcpy(c->current[i].strides, a->strides, sizeof c->current[i].strides);
        else
            lz_dense_strides(a->dims, c->current[i].strides);
        c->current[i].buffer = a->buffer ? lz_buffer_retain(a->buffer) : NULL;
    }
    LZ_UNLOCK(c->ctx);
}

static void release_inputs(lz_compiled *c) {
    for (int i = 0; i < c->n_in; i++) lz_buffer_release(c->current[i].buffer);
}

/* The entry of the current signature, moved to the front; NULL: there is none yet. */
static entry *find_entry(lz_compiled *c) {
    for (entry **e = &c->entries; *e; e = &(*e)->next)
        if (matches(c, *e)) {
            entry *found = *e;
            *e = found->next;
            found->next = c->entries;
            c->entries = found;
            return found;
        }
    return NULL;
}

/* ---- tracing ----------------------------------------------------------------------------------------------------- */

static lz_array *make_placeholder(lz_context *ctx, int number, lz_dims dims, lz_dtype dtype, const int64_t *strides) {
    lz_array *a = lz_node_new(ctx, LZ_OP_LEAF, dims, dtype, NULL, 0, NULL);
    if (a->error) return a;
    a->placeholder = number;
    memcpy(a->strides, strides, sizeof a->strides);
    return a;
}

static bool make_placeholders(lz_compiled *c, lz_array **to) {
    for (int i = 0; i < c->n_in; i++) {
        to[i] = make_placeholder(c->ctx, i + 1, c->current[i].dims, c->current[i].dtype, c->current[i].strides);
        if (to[i]->error) return false;
    }
    return true;
}

lz_array *lz_stand_in(lz_array *a) {
    if (!a || a->error) return a;
    int64_t strides[LZ_MAX_DIMS] = {0};
    lz_dense_strides(a->dims, strides);
    return make_placeholder(a->ctx, 1, a->dims, a->dtype, strides);
}

typedef struct walk {
    lz_array **nodes; /* inputs before users */
    int n, capacity;
} walk;

static bool push(lz_context *ctx, walk *w, lz_array *a) {
    if (w->n == w->capacity) {
        int capacity = w->capacity * 2 + 256;
        lz_array **nodes = lz_host_alloc(ctx, (size_t)capacity * sizeof *nodes);
        if (!nodes) return false;
        if (w->n) memcpy(nodes, w->nodes, (size_t)w->n * sizeof *nodes);
        lz_host_free(ctx, w->nodes);
        w->nodes = nodes;
        w->capacity = capacity;
    }
    w->nodes[w->n++] = a;
    return true;
}

/* Lists the nodes that do not depend on an input of the function, and are read by nodes that do, or are outputs. They
 * are evaluated once, while tracing. A node's second visit, after its inputs, sets mark_id to 1 if it depends on an
 * input, or is computed again in every run (lz_op_info.again). */
static bool find_constants(lz_context *ctx, lz_array *const *out, int n_out, walk *constants) {
    walk stack = {0};
    bool fine = true;
    uint64_t mark = ++ctx->mark;
    for (int i = 0; i < n_out && fine; i++) fine = push(ctx, &stack, out[i]);
    uint64_t open = ++ctx->mark; /* mark of nodes whose inputs are not all visited */
    while (stack.n && fine) {
        lz_array *a = stack.nodes[stack.n - 1];
        if (a->mark == mark) {
            stack.n--;
        } else if (a->mark != open) {
            a->mark = open;
            for (int i = 0; i < a->n_in && fine && !a->buffer; i++)
                if (a->in[i]->mark != mark) fine = push(ctx, &stack, a->in[i]);
        } else {
            a->mark = mark;
            a->mark_id = a->placeholder > 0 || (lz_op_table[a->op].again && !a->buffer);
            for (int i = 0; i < a->n_in && !a->buffer; i++) a->mark_id |= a->in[i]->mark_id;
            for (int i = 0; i < a->n_in && fine && a->mark_id; i++) {
                lz_array *x = a->in[i];
                if (!x->mark_id && !x->buffer && x->op != LZ_OP_FULL) fine = push(ctx, constants, x);
            }
            stack.n--;
        }
    }
    for (int i = 0; i < n_out && fine; i++)
        if (!out[i]->mark_id && !out[i]->buffer && out[i]->op != LZ_OP_FULL) fine = push(ctx, constants, out[i]);
    lz_host_free(ctx, stack.nodes);
    return fine;
}

static lz_status fold_constants(lz_context *ctx, lz_array *const *out, int n_out, lz_error *err) {
    walk constants = {0};
    LZ_LOCK(ctx);
    bool fine = find_constants(ctx, out, n_out, &constants);
    LZ_UNLOCK(ctx);
    lz_status status = fine ? lz_eval_all(constants.nodes, constants.n, err)
                            : lz_out_of_memory(err, constants.capacity);
    lz_host_free(ctx, constants.nodes);
    return status;
}

static lz_status trace(lz_compiled *c, entry *e, lz_error *err) {
    lz_array **arrays = lz_host_alloc(c->ctx, (size_t)(c->n_in + c->n_out) * sizeof *arrays);
    if (!arrays) return lz_out_of_memory(err, c->n_in + c->n_out);
    lz_array **out = arrays + c->n_in;
    lz_scope *scope = lz_scope_begin(c->ctx, "compile");
    lz_status status = scope && make_placeholders(c, arrays) ? LZ_OK : lz_out_of_memory(err, sizeof(lz_array));
    if (!status) c->function(c->ctx, arrays, out, c->user);
    for (int i = 0; i < c->n_out && !status; i++) {
        if (!out[i])
            status = lz_fail(err, LZ_BAD_ARGUMENT, "compile: the function did not set output %d", i);
        else if (!(status = lz_check(out[i], err)) && out[i]->ctx != c->ctx)
            status = lz_fail(err, LZ_BAD_ARGUMENT, "compile: output %d belongs to another context", i);
    }
    if (!status) status = fold_constants(c->ctx, out, c->n_out, err);
    if (!status) {
        lz_error local = {.status = LZ_OK};
        e->program = lz_program_new(c->ctx, out, c->n_out, true, &local);
        status = local.status;
        if (status && err) *err = local;
    }
    lz_scope_end(scope);
    lz_host_free(c->ctx, arrays);
    return status;
}

/* Makes the arena large enough, and not evictable until lz_run_watched is done. */
static lz_status ensure_arena(lz_compiled *c, int64_t bytes, lz_error *err) {
    lz_buffer_claim(c->ctx, &c->arena);
    if (!bytes || (c->arena && c->arena->bytes >= bytes)) return LZ_OK;
    lz_buffer_release(c->arena);
    lz_error local = {.status = LZ_OK};
    c->arena = lz_buffer_new(c->ctx, bytes, &local);
    if (!c->arena && err) *err = local;
    return local.status;
}

static void evict(lz_compiled *c) {
    entry **last = &c->entries;
    for (int n = 1; *last && n < c->cache_size; n++) last = &(*last)->next;
    while (*last) {
        entry *old = *last;
        *last = old->next;
        LZ_LOCK(c->ctx);
        free_entry(c, old);
        c->stats.evictions++;
        c->stats.cached--;
        LZ_UNLOCK(c->ctx);
    }
}

static entry *make_entry(lz_compiled *c, lz_error *err) {
    entry *e = lz_host_alloc(c->ctx, sizeof *e);
    if (e) e->inputs = lz_host_alloc(c->ctx, (size_t)(c->n_in + 1) * sizeof *e->inputs);
    if (!e || !e->inputs) {
        lz_host_free(c->ctx, e);
        lz_out_of_memory(err, sizeof *e);
        return NULL;
    }
    for (int i = 0; i < c->n_in; i++) {
        e->inputs[i] = c->current[i];
        e->inputs[i].buffer = NULL;
    }
    if (trace(c, e, err)) {
        free_entry(c, e);
        return NULL;
    }
    evict(c);
    e->next = c->entries;
    c->entries = e;
    LZ_LOCK(c->ctx);
    c->stats.compiles++;
    c->stats.cached++;
    LZ_UNLOCK(c->ctx);
    return e;
}

/* The program for the inputs that were noted: known, or made now. */
static entry *ready_entry(lz_compiled *c, lz_error *err) {
    entry *e = find_entry(c);
    return e ? e : make_entry(c, err);
}

lz_status lz_compiled_plan(lz_compiled *c, lz_array *const *in, lz_array **out, lz_plan_info *info, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    memset(info, 0, sizeof *info);
    if (!lz_check_all(in, c->n_in, &local)) {
        pthread_mutex_lock(&c->lock);
        retain_inputs(c, in);
        const entry *e = ready_entry(c, &local);
        if (e && !lz_offload_estimate(e->program)) lz_out_of_memory(&local, 0);
        if (e && !local.status) *info = e->program->info;
        for (int i = 0; i < c->n_out && e; i++) {
            const lz_result *r = &e->program->results[i];
            out[i] = make_placeholder(c->ctx, 1, r->dims, r->dtype, r->strides);
        }
        release_inputs(c);
        pthread_mutex_unlock(&c->lock);
    }
    for (int i = 0; i < c->n_out && local.status; i++) out[i] = lz_poison(c->ctx, local.status, "%s", local.text);
    if (local.status && err) *err = local;
    return local.status;
}

bool lz_compiled_preload(lz_compiled *c) {
    bool all = true;
    if (!c) return true;
    pthread_mutex_lock(&c->lock);
    for (const entry *e = c->entries; e && all; e = e->next) all = lz_preload_program(e->program);
    pthread_mutex_unlock(&c->lock);
    return all;
}

void lz_compiled_drop(lz_compiled *c) {
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    for (const entry *e = c->entries; e; e = e->next) lz_preload_drop(e->program);
    pthread_mutex_unlock(&c->lock);
}

void lz_compiled_prepare(lz_compiled *c) {
    if (!c || !c->ctx->device) return;
    pthread_mutex_lock(&c->lock);
    for (const entry *e = c->entries; e; e = e->next) lz_remote_prepare(e->program, e->inputs, NULL, NULL);
    pthread_mutex_unlock(&c->lock);
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

static bool is_unused(const lz_compiled *c, const lz_program *p, const outputs *set) {
    for (int i = 0; i < c->n_out; i++)
        if (set->arrays[i]->refs > 1) return false;
    for (int i = 0; i < p->n_outputs;
         i++) { /* arrays that are views of an earlier output have references to its buffer */
        int own = 1;
        for (int j = 0; j < p->n_results; j++) own += set->arrays[j]->buffer == set->buffers[i];
        if (set->buffers[i]->refs > own) return false;
    }
    return true;
}

/* Gives output i of a set its planned buffer back: reading it may have replaced the buffer by a row-major copy. */
static void reset_output(const lz_program *p, outputs *set, int i) {
    const lz_result *r = &p->results[i];
    lz_buffer *buffer = set->buffers[p->stores[r->operand.store].output];
    if (set->arrays[i]->buffer != buffer)
        lz_node_set_value(set->arrays[i], buffer, r->operand.offset / lz_dtype_size(r->dtype), r->strides, NULL);
}

static outputs *make_set(lz_compiled *c, const lz_program *p, lz_error *err) {
    outputs *set = lz_host_alloc(c->ctx, sizeof *set);
    if (set) set->buffers = lz_host_alloc(c->ctx, (size_t)(p->n_outputs + 1) * sizeof *set->buffers);
    if (set) set->arrays = lz_host_alloc(c->ctx, (size_t)c->n_out * sizeof *set->arrays);
    bool fine = set && set->buffers && set->arrays;
    if (!fine) lz_out_of_memory(err, sizeof *set);
    for (int i = 0; fine && i < p->n_outputs; i++)
        fine = (set->buffers[i] = lz_buffer_new(c->ctx, p->output_bytes[i], err)) != NULL;
    lz_scope *scope = lz_scope_begin(c->ctx, "outputs");
    for (int i = 0; fine && i < c->n_out; i++) {
        const lz_result *r = &p->results[i];
        lz_array *a = lz_node_new(c->ctx, LZ_OP_LEAF, r->dims, r->dtype, NULL, 0, NULL);
        fine = !a->error;
        if (!fine) {
            lz_out_of_memory(err, sizeof *a);
            break;
        }
        set->arrays[i] = lz_retain(a);
        reset_output(p, set, i);
    }
    lz_scope_end(scope);
    if (fine) return set;
    if (set) free_set(c, p, set);
    return NULL;
}

/* The caller holds c->lock, so nobody else gets references to the arrays of an unused set. */
static outputs *find_set(lz_compiled *c, entry *e, lz_error *err) {
    outputs *set = e->sets;
    LZ_LOCK(c->ctx);
    while (set && !is_unused(c, e->program, set)) set = set->next;
    for (int i = 0; set && i < c->n_out; i++) reset_output(e->program, set, i);
    LZ_UNLOCK(c->ctx);
    if (set || !(set = make_set(c, e->program, err))) return set;
    set->next = e->sets;
    e->sets = set;
    return set;
}

/* ---- calling ----------------------------------------------------------------------------------------------------- */

lz_status lz_run_watched(lz_compiled *c, lz_array *const *in, lz_array **out, const lz_watch *watch, lz_error *err) {
    if (!c || !out)
        return lz_fail(err, LZ_BAD_ARGUMENT, "run: %s NULL", c ? "the place for the outputs is" : "the function is");
    lz_error local = {.status = LZ_OK};
    if (!lz_eval_all(in, c->n_in, &local) && c->n_in && in[0]->ctx != c->ctx)
        lz_fail(&local, LZ_BAD_ARGUMENT, "run: the inputs belong to another context than the function");
    if (!local.status) {
        pthread_mutex_lock(&c->lock);
        retain_inputs(c, in);
        entry *e = ready_entry(c, &local);
        if (e && ensure_arena(c, e->program->arena_bytes, &local)) e = NULL;
        outputs *set = e ? find_set(c, e, &local) : NULL;
        LZ_LOCK(c->ctx);
        c->stats.calls++;
        for (int i = 0; set && i < c->n_out; i++) lz_adopt(out[i] = set->arrays[i]);
        LZ_UNLOCK(c->ctx);
        if (set) lz_program_run(e->program, c->current, c->arena, set->buffers, watch, &local);
        lz_buffer_set_evictable(c->ctx, &c->arena);
        release_inputs(c);
        pthread_mutex_unlock(&c->lock);
    }
    if (local.status && err) *err = local;
    for (int i = 0; i < c->n_out && local.status; i++) out[i] = lz_poison(c->ctx, local.status, "%s", local.text);
    return local.status;
}

lz_status lz_run(lz_compiled *c, lz_array *const *in, lz_array **out, lz_error *err) {
    return lz_run_watched(c, in, out, NULL, err);
}
