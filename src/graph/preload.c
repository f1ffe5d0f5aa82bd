/* preload.c: sends the weights of programs that will run soon to the device, while other programs are prepared and run.
 * A thread sends the weights of one program after another, in the order in which they were asked for. Before a program
 * runs, it waits for its own weights (lz_preload_wait). Weights are sent ahead only if they, and the arenas of all
 * programs whose weights have not arrived, fit into memory that nobody uses when they are asked for; otherwise the run
 * uploads or streams them (offload.c). So does it after an error here, and reports the error if it happens again. If an
 * allocation finds no room later, lz_buffer_reserve fails until the queue is empty: the thread sends nothing more, and
 * weights that have arrived can be evicted.
 *
 * base.lock guards lz_preload, and on_its_way of the buffers. The thread holds a reference to each buffer of its queue. It
 * takes no lock but base.lock and those of a sending. When the queue is empty, the thread waits for the next request. If
 * none comes for REST_SECONDS, or lz_preload_free ends the wait, it frees the page-locked memory of the sendings and ends;
 * the next request, or lz_preload_free, joins it. It does not free that memory at once, because the driver may wait for
 * all kernels of the device meanwhile, and programs whose weights have just arrived are running. */
#include <time.h>

#include "graph/graph.h"

enum { REST_SECONDS = 2 };

typedef struct group { /* the weights of a program */
    struct group *next;
    const lz_program *program; /* may be freed; only compared */
    bool dropped;              /* weights that are not being sent yet are not sent */
    int64_t bytes;             /* weights that are to be sent, and all other device memory of the program */
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
    bool closing;          /* the thread must end */
    group *first, *last;   /* the queue */
    group *sent;           /* the group that the thread has taken from the queue and that has not landed; or NULL */
    int64_t wanted;        /* bytes of the groups in the queue and of the one that is sent */
    pthread_cond_t landed; /* on_its_way of some buffers is false now; waited for with base.lock */
    pthread_cond_t asked; /* the queue has a group, or closing is true; waited for with base.lock, by CLOCK_MONOTONIC */
};

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static bool stopped(lz_context *ctx, const group *g) {
    LZ_LOCK(ctx);
    bool stop = g->dropped || ctx->reserve_nothing;
    LZ_UNLOCK(ctx);
    return stop;
}

/* Gives a buffer its device copy, or frees that if it is not complete. */
static void arrive(struct sent *w, bool complete) {
    if (w->memory) lz_buffer_arrive(w->buffer, w->memory, complete);
    w->memory = NULL;
}

/* Allocates while earlier weights are sent. false: some were not sent. */
static bool send_group(lz_context *ctx, group *g) {
    const lz_device_table *device = ctx->backend->device;
    lz_sending *s = stopped(ctx, g) ? NULL : device->start_sending(ctx->device, NULL);
    for (int i = 0; s && i < g->n && !stopped(ctx, g); i++) {
        struct sent *w = &g->weights[i];
        if (!(w->memory = lz_buffer_reserve(w->buffer))) continue;
        if (device->add_sending(s, w->memory, lz_buffer_bytes(w->buffer), w->buffer->bytes)) continue;
        arrive(w, false);
        break;
    }
    return s && device->end_sending(s, NULL);
}

/* Nothing of the group is on its way any more. Frees the group. */
static void land(lz_context *ctx, group *g, bool complete) {
    LZ_LOCK(ctx);
    for (int i = 0; i < g->n; i++) {
        struct sent *w = &g->weights[i];
        arrive(w, complete);
        w->buffer->on_its_way = false;
        lz_buffer_release(w->buffer);
    }
    ctx->preload->wanted -= g->bytes;
    if (ctx->preload->sent == g) ctx->preload->sent = NULL;
    pthread_cond_broadcast(&ctx->preload->landed);
    LZ_UNLOCK(ctx);
    lz_host_free(ctx, g);
}

/* The next group, which belongs to the caller; NULL: the queue is empty. */
static group *take_group(lz_context *ctx) {
    LZ_LOCK(ctx);
    struct lz_preload *p = ctx->preload;
    group *g = p->sent = p->first;
    if (g) p->first = g->next;
    if (!p->first) p->last = NULL;
    if (!g) ctx->reserve_nothing = false;
    LZ_UNLOCK(ctx);
    return g;
}

/* Waits for a group. false: the queue is empty, and has been for REST_SECONDS or the context is being closed. */
static bool more_is_asked(lz_context *ctx) {
    struct lz_preload *p = ctx->preload;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += REST_SECONDS;
    LZ_LOCK(ctx);
    int rested = 0;
    while (!p->first && !p->closing && !rested) rested = pthread_cond_timedwait(&p->asked, &ctx->base.lock, &until);
    bool more = p->first;
    LZ_UNLOCK(ctx);
    return more;
}

/* The thread ends, unless the queue has a group again. */
static bool goes_on(lz_context *ctx) {
    LZ_LOCK(ctx);
    bool more = ctx->preload->running = ctx->preload->first;
    LZ_UNLOCK(ctx);
    return more;
}

static void *send_groups(void *arg) {
    lz_context *ctx = arg;
    do {
        do {
            for (group *g; (g = take_group(ctx));) land(ctx, g, send_group(ctx, g));
        } while (more_is_asked(ctx));
        ctx->backend->device->close_sendings(ctx->device);
    } while (goes_on(ctx));
    return NULL;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static struct lz_preload *open_preload(lz_context *ctx) {
    LZ_LOCK(ctx);
    if (!ctx->preload && (ctx->preload = lz_host_alloc(ctx, sizeof *ctx->preload))) {
        pthread_condattr_t monotonic;
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&ctx->preload->asked, &monotonic);
        pthread_condattr_destroy(&monotonic);
        pthread_cond_init(&ctx->preload->landed, NULL);
    }
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
            g->bytes += b->bytes;
            g->weights[g->n++].buffer = lz_buffer_retain(b);
        }
}

/* Adds a group, which `wanted` counts, to the queue, and starts the thread unless it runs. The caller holds
 * base.lock. */
static void add_group(lz_context *ctx, group *g) {
    struct lz_preload *p = ctx->preload;
    if (p->last)
        p->last->next = g;
    else
        p->first = g;
    p->last = g;
    pthread_cond_signal(&p->asked);
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
    g->program = p;
    g->bytes = p->info.device_bytes - p->info.resident_bytes;
    take_weights(p, g);
    ctx->preload->wanted += g->bytes;
    bool fits = ctx->preload->wanted <= lz_memory_unused(ctx);
    if (fits && g->n)
        add_group(ctx, g);
    else
        land(ctx, g, false);
    LZ_UNLOCK(ctx);
    return fits;
}

void lz_preload_drop(const lz_program *p) {
    lz_context *ctx = p->ctx;
    LZ_LOCK(ctx);
    group *sent = ctx->preload ? ctx->preload->sent : NULL;
    if (sent && sent->program == p) sent->dropped = true;
    for (group *g = ctx->preload ? ctx->preload->first : NULL; g; g = g->next)
        if (g->program == p) g->dropped = true;
    LZ_UNLOCK(ctx);
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
    ctx->reserve_nothing = p->closing = true;
    pthread_cond_signal(&p->asked);
    LZ_UNLOCK(ctx);
    if (p->has_thread) pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->asked);
    pthread_cond_destroy(&p->landed);
    lz_host_free(ctx, p);
    ctx->preload = NULL;
}
