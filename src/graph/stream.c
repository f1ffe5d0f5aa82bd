/* stream.c: evaluating in the background. A stream is a thread with a queue. lz_async_eval plans and allocates on the
 * calling thread, so it returns those errors itself; the arrays then have a buffer, and an event that the stream's
 * thread sets to done. */
#include "graph/eval.h"

struct lz_stream {
    lz_context *ctx;
    pthread_t thread;
    lz_evaluation *first, *last; /* the queue, which owns its evaluations; base.lock guards it and the members below */
    bool busy, stop;
    pthread_cond_t changed; /* queue, busy or stop; waited for with base.lock */
};

static void finish(lz_stream *s, lz_evaluation *e, const lz_error *err) {
    lz_context *ctx = s->ctx;
    LZ_LOCK(ctx);
    e->event->err = *err;
    e->event->done = true;
    pthread_cond_broadcast(&ctx->event_done);
    lz_event_release(ctx, e->event);
    lz_evaluation_free(e);
    s->busy = false;
    pthread_cond_broadcast(&s->changed);
    LZ_UNLOCK(ctx);
}

static void *serve(void *arg) {
    lz_stream *s = arg;
    for (;;) {
        LZ_LOCK(s->ctx);
        while (!s->first && !s->stop) pthread_cond_wait(&s->changed, &s->ctx->base.lock);
        lz_evaluation *e = s->first;
        if (e) {
            s->first = e->next;
            if (!s->first) s->last = NULL;
            s->busy = true;
        }
        LZ_UNLOCK(s->ctx);
        if (!e) return NULL;
        lz_error err = {.status = LZ_OK};
        lz_evaluation_run(e, NULL, &err);
        finish(s, e, &err);
    }
}

lz_stream *lz_stream_new(lz_context *ctx, lz_error *err) {
    if (!ctx) {
        lz_fail(err, LZ_BAD_ARGUMENT, "stream_new: the context is NULL");
        return NULL;
    }
    lz_stream *s = lz_host_alloc(ctx, sizeof *s);
    if (s) {
        s->ctx = ctx;
        pthread_cond_init(&s->changed, NULL);
        if (pthread_create(&s->thread, NULL, serve, s) == 0) return s;
        pthread_cond_destroy(&s->changed);
        lz_host_free(ctx, s);
    }
    lz_fail(err, LZ_OUT_OF_MEMORY, "out of memory: a stream could not be made");
    return NULL;
}

lz_status lz_async_eval(lz_stream *s, lz_array *const *arrays, int n, lz_error *err) {
    if (!s) return lz_fail(err, LZ_BAD_ARGUMENT, "async_eval: the stream is NULL");
    lz_error local = {.status = LZ_OK};
    lz_status status = lz_check_all(arrays, n, err);
    if (status || n == 0) return status;
    if (arrays[0]->ctx != s->ctx)
        return lz_fail(err, LZ_BAD_ARGUMENT, "async_eval: the arrays belong to another context than the stream");
    lz_event *event = lz_host_alloc(s->ctx, sizeof *event);
    lz_evaluation *e = event ? lz_evaluation_new(s->ctx, arrays, n, &local) : NULL;
    if (e && lz_evaluation_allocate(e, &local)) {
        LZ_LOCK(s->ctx);
        event->refs = 1;
        e->event = event;
        lz_evaluation_commit(e, arrays, event);
        if (s->last)
            s->last->next = e;
        else
            s->first = e;
        s->last = e;
        pthread_cond_broadcast(&s->changed);
        LZ_UNLOCK(s->ctx);
    } else {
        if (!event) lz_out_of_memory(&local, sizeof *event);
        lz_evaluation_free(e);
        lz_host_free(s->ctx, event);
    }
    if (local.status && err) *err = local;
    return local.status;
}

void lz_stream_wait(lz_stream *s) {
    if (!s) return;
    LZ_LOCK(s->ctx);
    while (s->first || s->busy) pthread_cond_wait(&s->changed, &s->ctx->base.lock);
    LZ_UNLOCK(s->ctx);
}

void lz_stream_free(lz_stream *s) {
    if (!s) return;
    lz_context *ctx = s->ctx;
    LZ_LOCK(ctx);
    s->stop = true; /* the thread runs what is in its queue before it ends */
    pthread_cond_broadcast(&s->changed);
    LZ_UNLOCK(ctx);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    lz_host_free(ctx, s);
}
