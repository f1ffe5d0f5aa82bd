/* preload.c: sends the weights of programs that will run soon to the device, while other programs are prepared and run.
 * A thread sends the weights of one program after another, in the order in which they were asked for. Before a program
 * runs, it waits for its own weights (lz_preload_wait). Weights are sent ahead only if everything that was asked for fits
 * into memory that nobody uses; otherwise the run uploads or streams them (offload.c). So does it after an error here,
 * and reports the error if it happens again.
 *
 * base.lock guards lz_preload, and on_its_way of the buffers. The thread holds a reference to each buffer of its queue. It
 * ends when the queue is empty; the next request, or lz_preload_free, joins it. */
#include "graph/graph.h"

typedef struct group { /* the weights of a program */
    struct group *next;
    int64_t device_bytes; /* of the program, its weights included */
    int n;
    struct sent {
        lz_buffer *buffer;
        char *memory; /* on the device; NULL: there was no room, or it is there already */
    } weights[];
} group;

struct lz_preload {
    pthread_t thread;
    bool has_thread;       /* must be joined */
    bool running;          /* the thread will look at the queue again */
    bool stop;             /* it only empties the queue */
    group *first, *last;   /* the queue */
    int64_t wanted;        /* bytes of the programs in the queue */
    int64_t underway;      /* bytes on the device of weights that have not arrived */
    pthread_cond_t landed; /* on_its_way of some buffers is false now */
};

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static bool stopped(lz_context *ctx) {
    LZ_LOCK(ctx);
    bool stop = ctx->preload->stop;
    LZ_UNLOCK(ctx);
    return stop;
}

static char *reserve(lz_context *ctx, lz_buffer *b) {
    LZ_LOCK(ctx);
    ctx->preload->underway += b->bytes;
    LZ_UNLOCK(ctx);
    char *memory = lz_buffer_reserve(b);
    if (memory) return memory;
    LZ_LOCK(ctx);
    ctx->preload->underway -= b->bytes;
    LZ_UNLOCK(ctx);
    return NULL;
}

/* Gives a buffer its device copy, or frees that if it is not complete. */
static void arrive(lz_context *ctx, struct sent *w, bool complete) {
    LZ_LOCK(ctx);
    if (w->memory) {
        lz_buffer_arrive(w->buffer, w->memory, complete);
        ctx->preload->underway -= w->buffer->bytes;
    }
    w->memory = NULL;
    LZ_UNLOCK(ctx);
}

/* Allocates while earlier weights are sent. false: some were not sent. */
static bool send_group(lz_context *ctx, group *g) {
    const lz_device_table *device = ctx->backend->device;
    lz_sending *s = device->start_sending(ctx->device, NULL);
    for (int i = 0; s && i < g->n && !stopped(ctx); i++) {
        struct sent *w = &g->weights[i];
        if (!(w->memory = reserve(ctx, w->buffer))) continue;
        if (device->add_sending(s, w->memory, lz_buffer_bytes(w->buffer), w->buffer->bytes)) continue;
        arrive(ctx, w, false);
        break;
    }
    return s && device->end_sending(s, NULL);
}

static void land(lz_context *ctx, group *g, bool complete) {
    LZ_LOCK(ctx);
    for (int i = 0; i < g->n; i++) {
        struct sent *w = &g->weights[i];
        arrive(ctx, w, complete);
        w->buffer->on_its_way = false;
        lz_buffer_release(w->buffer);
    }
    ctx->preload->wanted -= g->device_bytes;
    pthread_cond_broadcast(&ctx->preload->landed);
    LZ_UNLOCK(ctx);
    lz_host_free(ctx, g);
}

/* The next group, which belongs to the caller; NULL: the thread ends. */
static group *take_group(lz_context *ctx) {
    LZ_LOCK(ctx);
    struct lz_preload *p = ctx->preload;
    group *g = p->first;
    if (g) p->first = g->next;
    if (!p->first) p->last = NULL;
    p->running = g;
    LZ_UNLOCK(ctx);
    return g;
}

static void *send_groups(void *arg) {
    lz_context *ctx = arg;
    for (group *g; (g = take_group(ctx));) land(ctx, g, send_group(ctx, g));
    return NULL;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static struct lz_preload *open_preload(lz_context *ctx) {
    LZ_LOCK(ctx);
    if (!ctx->preload && (ctx->preload = lz_host_alloc(ctx, sizeof *ctx->preload)))
        pthread_cond_init(&ctx->preload->landed, NULL);
    LZ_UNLOCK(ctx);
    return ctx->preload;
}

/* The weights of a program that are neither on the device nor on their way, in the order in which steps read them. They
 * are on their way now. */
static void take_weights(const lz_program *p, group *g) {
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->steps[i].call.n_in; k++) {
            const lz_store *s = &p->stores[p->steps[i].in[k].store];
            lz_buffer *b = s->kind == LZ_STORE_INPUT && !s->argument ? s->buffer : NULL;
            if (!b || !b->borrowed || !b->bytes || b->remote || b->on_its_way) continue;
            b->on_its_way = true;
            g->weights[g->n++].buffer = lz_buffer_retain(b);
        }
}

/* Adds a group to the queue, and starts the thread unless it runs. The caller holds base.lock. */
static void add_group(lz_context *ctx, group *g) {
    struct lz_preload *p = ctx->preload;
    if (p->last)
        p->last->next = g;
    else
        p->first = g;
    p->last = g;
    p->wanted += g->device_bytes;
    if (p->running) return;
    if (p->has_thread) pthread_join(p->thread, NULL); /* it took its last look at the queue */
    p->has_thread = p->running = pthread_create(&p->thread, NULL, send_groups, ctx) == 0;
    if (p->running) return;
    p->first = p->last = NULL;
    land(ctx, g, false);
}

bool lz_preload_program(lz_program *p) {
    lz_context *ctx = p->ctx;
    if (!ctx->device || !ctx->backend->device->start_sending || ctx->offload == LZ_OFFLOAD_STREAM || p->remote)
        return false;
    if (!lz_offload_estimate(p) || p->info.streamed_bytes || !open_preload(ctx)) return false;
    group *g = lz_host_alloc(ctx, sizeof *g + (size_t)p->n_stores * sizeof *g->weights);
    if (!g) return false;
    LZ_LOCK(ctx);
    g->device_bytes = p->info.device_bytes;
    bool fits = ctx->preload->wanted + g->device_bytes <= lz_memory_unused(ctx);
    if (fits) take_weights(p, g);
    if (g->n)
        add_group(ctx, g);
    else
        lz_host_free(ctx, g);
    LZ_UNLOCK(ctx);
    return fits;
}

int64_t lz_preload_underway(lz_context *ctx) {
    LZ_LOCK(ctx);
    int64_t bytes = ctx->preload ? ctx->preload->underway : 0;
    LZ_UNLOCK(ctx);
    return bytes;
}

void lz_preload_wait(const lz_program *p, const lz_argument *arguments) {
    lz_context *ctx = p->ctx;
    LZ_LOCK(ctx);
    for (int i = 0; i < p->n_stores && ctx->preload; i++) {
        const lz_store *s = &p->stores[i];
        const lz_buffer *b = s->argument ? arguments[s->argument - 1].buffer : s->buffer;
        while (s->kind == LZ_STORE_INPUT && b && b->on_its_way)
            pthread_cond_wait(&ctx->preload->landed, &ctx->base.lock);
    }
    LZ_UNLOCK(ctx);
}

void lz_preload_free(lz_context *ctx) {
    struct lz_preload *p = ctx->preload;
    if (!p) return;
    LZ_LOCK(ctx);
    p->stop = true;
    LZ_UNLOCK(ctx);
    if (p->has_thread) pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->landed);
    lz_host_free(ctx, p);
    ctx->preload = NULL;
}
