/* node.c: lifetimes of arrays and scopes. A node is referenced by its scope, by the nodes that have it as an input, and
 * by callers of lz_retain. When the last reference is released, the node and all inputs that only it referenced are
 * freed, without recursion, so that a graph may be as deep as memory allows. */
#include <assert.h>
#include <string.h>

#include "array/internal.h"

/* ---- scopes ------------------------------------------------------------------------------------------------------ */

static lz_scope *innermost(lz_context *ctx) {
    for (lz_scope *s = ctx->scopes; s; s = s->next)
        if (pthread_equal(s->thread, pthread_self())) return s;
    return &ctx->root;
}

static void link_node(lz_scope *scope, lz_array *a) { /* the scope takes over one reference of the caller */
    a->scope = scope;
    a->previous = NULL;
    a->next = scope->nodes;
    if (scope->nodes) scope->nodes->previous = a;
    scope->nodes = a;
}

static void unlink_node(lz_array *a) {
    assert(a->scope);
    if (a->next) a->next->previous = a->previous;
    if (a->previous)
        a->previous->next = a->next;
    else
        a->scope->nodes = a->next;
    a->scope = NULL;
    a->next = a->previous = NULL;
}

lz_scope *lz_scope_begin(lz_context *ctx, const char *name) {
    if (!ctx) return NULL;
    lz_scope *scope = lz_host_alloc(ctx, sizeof *scope);
    char *copy = scope ? lz_host_copy(ctx, name ? name : "scope") : NULL;
    if (!copy) {
        lz_host_free(ctx, scope);
        return NULL; /* arrays will be added to the enclosing scope instead */
    }
    LZ_LOCK(ctx);
    *scope = (lz_scope){
        .ctx = ctx, .thread = pthread_self(), .parent = innermost(ctx), .next = ctx->scopes, .name = copy};
    ctx->scopes = scope;
    LZ_UNLOCK(ctx);
    return scope;
}

lz_array *lz_scope_keep(lz_scope *scope, lz_array *a) {
    if (!scope || !a) return a;
    LZ_LOCK(scope->ctx);
    if (a->scope == scope) {
        unlink_node(a);
        link_node(scope->parent, a);
    }
    LZ_UNLOCK(scope->ctx);
    return a;
}

void lz_scope_clear(lz_scope *scope) {
    while (scope->nodes) {
        lz_array *a = scope->nodes;
        unlink_node(a);
        lz_release(a);
    }
}

void lz_scope_end(lz_scope *scope) {
    if (!scope) return;
    lz_context *ctx = scope->ctx;
    LZ_LOCK(ctx);
    lz_scope_clear(scope);
    for (lz_scope **s = &ctx->scopes; *s;) {
        if ((*s)->parent == scope) (*s)->parent = scope->parent;
        if (*s == scope)
            *s = scope->next;
        else
            s = &(*s)->next;
    }
    LZ_UNLOCK(ctx);
    lz_host_free(ctx, scope->name);
    lz_host_free(ctx, scope);
}

lz_array *lz_scope_return(lz_scope *scope, lz_array *a) {
    lz_scope_keep(scope, a);
    lz_scope_end(scope);
    return a;
}

void lz_adopt(lz_array *a) {
    if (!a) return;
    LZ_LOCK(a->ctx);
    if (!a->scope) {
        a->refs++;
        link_node(innermost(a->ctx), a);
    }
    LZ_UNLOCK(a->ctx);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

lz_array *lz_node_new(lz_context *ctx, lz_op op, lz_dims dims, lz_dtype dtype, lz_array *const *in, int n_in,
                      const lz_params *params) {
    lz_array *a = lz_host_alloc(ctx, sizeof *a);
    lz_array **inputs = NULL;
    if (a && n_in > LZ_INLINE_INPUTS) inputs = lz_host_alloc(ctx, (size_t)n_in * sizeof *inputs);
    if (!a || (n_in > LZ_INLINE_INPUTS && !inputs)) {
        lz_host_free(ctx, a);
        return ctx->no_memory;
    }
    a->ctx = ctx;
    a->refs = 1;
    a->op = op;
    a->dtype = dtype;
    a->dims.n = dims.n; /* sizes after dims.n stay zero, so that shapes compare as bytes */
    for (int i = 0; i < dims.n; i++) a->dims.at[i] = dims.at[i];
    if (params) a->params = *params;
    a->n_in = n_in;
    a->in = inputs ? inputs : a->inline_in;
    LZ_LOCK(ctx);
    for (int i = 0; i < n_in; i++) {
        a->in[i] = in[i];
        in[i]->refs++;
    }
    ctx->memory.nodes++;
    link_node(innermost(ctx), a);
    LZ_UNLOCK(ctx);
    return a;
}

/* Releases the inputs of a node. Inputs without other references are added to the list of the dead. */
static void drop_inputs(lz_array *a, lz_array **dead) {
    for (int i = 0; i < a->n_in; i++)
        if (--a->in[i]->refs == 0) {
            a->in[i]->next = *dead;
            *dead = a->in[i];
        }
    if (a->in != a->inline_in) lz_host_free(a->ctx, a->in);
    a->in = a->inline_in;
    a->n_in = 0;
}

static void bury(lz_array *dead) {
    while (dead) {
        lz_array *a = dead;
        lz_context *ctx = a->ctx;
        dead = a->next;
        drop_inputs(a, &dead);
        lz_buffer_release(a->buffer);
        lz_event_release(ctx, a->event);
        lz_host_free(ctx, a->error);
        lz_host_free(ctx, a);
    }
}

lz_array *lz_retain(lz_array *a) {
    if (!a) return NULL;
    LZ_LOCK(a->ctx);
    a->refs++;
    LZ_UNLOCK(a->ctx);
    return a;
}

void lz_release(lz_array *a) {
    if (!a) return;
    lz_context *ctx = a->ctx;
    LZ_LOCK(ctx);
    if (--a->refs == 0) {
        a->next = NULL;
        bury(a);
    }
    LZ_UNLOCK(ctx);
}

void lz_node_set_value(lz_array *a, lz_buffer *buffer, int64_t offset, const int64_t *strides, lz_event *event) {
    LZ_LOCK(a->ctx);
    lz_buffer *old = a->buffer;
    lz_event *old_event = a->event;
    a->buffer = lz_buffer_retain(buffer);
    a->offset = offset;
    memcpy(a->strides, strides, sizeof a->strides);
    a->event = event;
    if (event) event->refs++;
    lz_buffer_release(old);
    lz_event_release(a->ctx, old_event);
    lz_array *dead = NULL;
    drop_inputs(a, &dead);
    bury(dead);
    LZ_UNLOCK(a->ctx);
}

void lz_event_release(lz_context *ctx, lz_event *event) {
    if (!event) return;
    LZ_LOCK(ctx);
    if (--event->refs == 0) lz_host_free(ctx, event);
    LZ_UNLOCK(ctx);
}

lz_status lz_event_wait(lz_context *ctx, lz_event *event, lz_error *err) {
    if (!event) return LZ_OK;
    LZ_LOCK(ctx);
    event->refs++;
    while (!event->done) pthread_cond_wait(&ctx->event_done, &ctx->base.lock);
    lz_status status = event->err.status;
    if (status && err) *err = event->err;
    lz_event_release(ctx, event);
    LZ_UNLOCK(ctx);
    return status;
}

/* ---- looking at an array ----------------------------------------------------------------------------------------- */

lz_context *lz_context_of(const lz_array *a) { return a ? a->ctx : NULL; }
lz_dims lz_shape(const lz_array *a) { return a ? a->dims : LZ_NONE; }
lz_dtype lz_type(const lz_array *a) { return a ? a->dtype : LZ_F32; }
int64_t lz_size(const lz_array *a) { return a && !a->error ? lz_dims_size(a->dims) : 0; }
