/* stream.c: streams, events and captures. Work is done immediately, deferred with LAZULI_SIM_ASYNC, or recorded while
 * its stream captures. */
#include <time.h>

#include "sim.h"

bool in_host_function;

static struct CUstream_st legacy; /* the NULL stream */
static struct CUstream_st *streams;
static capture *captures;

struct CUevent_st {
    unsigned flags;
    unsigned long recorded, done; /* how often; done comes behind with LAZULI_SIM_ASYNC */
    struct timespec time;
    lz_cu_stream stream;   /* the last time, on this stream; ... */
    unsigned long capture; /* if in the capture with this serial number, ... */
    size_t position;       /* behind this much of the stream's work there */
};

/* ---- lists of work ---------------------------------------------------------------------------------------------- */

bool list_add(op_list *list, const op *what) {
    if (!(list->n & (list->n + 1))) { /* 0, 1, 3, 7, ...: time to grow */
        op *ops = realloc(list->ops, sizeof *ops * (2 * list->n + 1));
        if (!ops) return false;
        list->ops = ops;
    }
    op *added = &list->ops[list->n];
    *added = *what;
    added->data = malloc(what->bytes + 1);
    if (!added->data) return false;
    memcpy(added->data, what->data, what->bytes);
    list->n++;
    return true;
}

bool list_copy(op_list *to, const op_list *from) {
    bool fine = true;
    for (size_t i = 0; fine && i < from->n; i++) fine = list_add(to, &from->ops[i]);
    if (!fine) list_clear(to);
    return fine;
}

void list_clear(op_list *list) {
    for (size_t i = 0; i < list->n; i++) free(list->ops[i].data);
    free(list->ops);
    *list = (op_list){0};
}

static void run_op(const op *what) {
    bool device = what->kind != OP_HOST;
    if (device) protect_device(false);
    in_host_function = !device;
    what->run(what->data);
    in_host_function = false;
    if (device) protect_device(true);
}

/* A stream's wait for a moment in another. The event may be recorded again later: that is another moment. */
typedef struct moment {
    lz_cu_event event;
    unsigned long time;  /* which of its recordings */
    lz_cu_stream stream; /* where it was recorded; not looked at once it is done */
} moment;

static bool has_work(lz_cu_stream s) { return s->next_op < s->pending.n; }

static bool is_waiting(lz_cu_stream s) {
    const op *next = &s->pending.ops[s->next_op];
    const moment *m = next->data;
    return next->kind == OP_WAIT && m->event->done < m->time;
}

static void run_one(lz_cu_stream stream);

/* Until the moment has come. */
static void reach(void *data) {
    const moment *m = data;
    while (m->event->done < m->time && has_work(m->stream)) run_one(m->stream);
}

/* The next piece of a stream's work, and before it what that waits for. */
static void run_one(lz_cu_stream stream) {
    op what = stream->pending.ops[stream->next_op];
    if (is_waiting(stream)) reach(what.data);
    stream->next_op++; /* no sooner: it is looked at from the other streams */
    if (what.kind != OP_WAIT) run_op(&what);
    if (stream->next_op < stream->pending.n) return;
    list_clear(&stream->pending);
    stream->next_op = 0;
}

/* With LAZULI_SIM_ASYNC=2 all the others run as far ahead as they may. */
static void run_others(lz_cu_stream stream) {
    bool any = settings.eager;
    while (any) {
        any = false;
        for (lz_cu_stream s = streams; s; s = s->next)
            for (; s != stream && has_work(s) && !is_waiting(s); any = true) run_one(s);
    }
}

static void flush(lz_cu_stream stream) {
    for (run_others(stream); has_work(stream); run_others(stream)) run_one(stream);
}

void flush_all(void) {
    for (lz_cu_stream s = streams; s; s = s->next) flush(s);
}

static bool any_pending(void) {
    for (lz_cu_stream s = streams; s; s = s->next)
        if (has_work(s)) return true;
    return false;
}

/* ---- enqueueing ------------------------------------------------------------------------------------------------- */

static lz_cu_result broken(capture *c, lz_cu_result why) {
    c->broken = true;
    return why;
}

/* The NULL stream waits for all streams that did not opt out, so it cannot be used while one of those captures. */
static lz_cu_result check_legacy(void) {
    for (capture *c = captures; c; c = c->next)
        if (!(c->origin->flags & LZ_CU_STREAM_NON_BLOCKING)) return broken(c, LZ_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    return LZ_CUDA_SUCCESS;
}

lz_cu_result enqueue(lz_cu_stream stream, op_kind kind, void (*run)(void *data), const void *data, size_t bytes) {
    op what = {kind, run, (void *)data, bytes};
    if (!stream) {
        lz_cu_result result = check_legacy();
        if (result) return result;
        flush_all();
        stream = &legacy;
    }
    if (stream->capture) {
        if (stream->capture->broken) return LZ_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        if (!list_add(&stream->capture->list, &what)) return LZ_CUDA_ERROR_OUT_OF_MEMORY;
        stream->captured++;
        stream->loose = stream != stream->capture->origin;
    } else if (settings.async && stream != &legacy) {
        if (!list_add(&stream->pending, &what)) return LZ_CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        run_op(&what);
    }
    return LZ_CUDA_SUCCESS;
}

lz_cu_result enqueue_list(lz_cu_stream stream, const op_list *list) {
    lz_cu_result result = LZ_CUDA_SUCCESS;
    for (size_t i = 0; !result && i < list->n; i++) {
        const op *what = &list->ops[i];
        result = enqueue(stream, what->kind, what->run, what->data, what->bytes);
    }
    return result;
}

lz_cu_result lz_sim_enqueue(lz_cu_stream stream, void (*run)(void *data), const void *data, size_t bytes) {
    ENTER(NORMAL);
    return enqueue(stream, OP_KERNEL, run, data, bytes);
}

typedef struct host_call {
    lz_cu_host_fn fn;
    void *user;
} host_call;

static void run_host_call(void *data) {
    const host_call *call = data;
    call->fn(call->user);
}

lz_cu_result cuLaunchHostFunc(lz_cu_stream stream, lz_cu_host_fn fn, void *user) {
    ENTER(NORMAL);
    host_call call = {fn, user};
    return enqueue(stream, OP_HOST, run_host_call, &call, sizeof call);
}

/* ---- streams ---------------------------------------------------------------------------------------------------- */

lz_cu_result cuStreamCreate(lz_cu_stream *stream, unsigned flags) {
    ENTER(NORMAL);
    if (flags & ~1u) return LZ_CUDA_ERROR_INVALID_VALUE;
    lz_cu_stream s = calloc(1, sizeof *s);
    if (!s) return LZ_CUDA_ERROR_OUT_OF_MEMORY;
    s->flags = flags;
    s->next = streams;
    streams = s;
    count_live(STREAM, 1);
    *stream = s;
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuStreamDestroy_v2(lz_cu_stream stream) {
    ENTER(INITIALISED | CONTEXT);
    if (!stream) return LZ_CUDA_ERROR_INVALID_HANDLE;
    if (stream->capture) return broken(stream->capture, LZ_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    flush(stream);
    for (lz_cu_stream *s = &streams; *s; s = &(*s)->next) {
        if (*s != stream) continue;
        *s = stream->next;
        break;
    }
    free(stream);
    count_live(STREAM, -1);
    return LZ_CUDA_SUCCESS;
}

static lz_cu_result wait_for(lz_cu_stream stream) {
    if (!stream) {
        lz_cu_result result = check_legacy();
        if (result) return result;
        flush_all();
        return LZ_CUDA_SUCCESS;
    }
    if (stream->capture) return broken(stream->capture, LZ_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    flush(stream);
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuStreamSynchronize(lz_cu_stream stream) {
    ENTER(NORMAL);
    return wait_for(stream);
}

lz_cu_result cuStreamQuery(lz_cu_stream stream) {
    ENTER(NORMAL);
    bool busy = stream ? has_work(stream) : any_pending();
    lz_cu_result result = wait_for(stream); /* so whoever polls gets there */
    return result ? result : busy ? LZ_CUDA_ERROR_NOT_READY : LZ_CUDA_SUCCESS;
}

/* ---- captures --------------------------------------------------------------------------------------------------- */

bool capture_forbids(void) {
    for (capture *c = captures; c; c = c->next) {
        bool forbids = c->mode == LZ_CU_STREAM_CAPTURE_MODE_GLOBAL ||
                       (c->mode == LZ_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && pthread_equal(c->thread, pthread_self()));
        if (!forbids) continue;
        c->broken = true;
        return true;
    }
    return false;
}

static capture *find_capture(unsigned long serial) {
    capture *c = captures;
    while (c && c->serial != serial) c = c->next;
    return c;
}

static void join_capture(lz_cu_stream stream, capture *c) {
    stream->capture = c;
    stream->captured = 0;
    stream->loose = stream != c->origin;
}

lz_cu_result cuStreamBeginCapture_v2(lz_cu_stream stream, lz_cu_capture_mode mode) {
    static unsigned long serial;
    ENTER(NORMAL);
    if (!stream) return LZ_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture) return LZ_CUDA_ERROR_ILLEGAL_STATE;
    capture *c = calloc(1, sizeof *c);
    if (!c) return LZ_CUDA_ERROR_OUT_OF_MEMORY;
    serial++;
    *c = (capture){.origin = stream, .mode = mode, .thread = pthread_self(), .serial = serial, .next = captures};
    captures = c;
    join_capture(stream, c);
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuStreamEndCapture(lz_cu_stream stream, lz_cu_graph *graph) {
    ENTER(INITIALISED | CONTEXT);
    *graph = NULL;
    capture *c = stream ? stream->capture : NULL;
    if (!c) return LZ_CUDA_ERROR_ILLEGAL_STATE;
    if (c->origin != stream) return broken(c, LZ_CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    if (c->mode != LZ_CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
        return LZ_CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    lz_cu_result result = c->broken ? LZ_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : LZ_CUDA_SUCCESS;
    for (lz_cu_stream s = streams; s; s = s->next) {
        if (s->capture != c) continue;
        if (s->loose && !result) result = LZ_CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        s->capture = NULL;
        s->loose = false;
    }
    if (failure_due()) result = LZ_CUDA_ERROR_OUT_OF_MEMORY; /* the capture ends all the same */
    if (!result) result = graph_from(&c->list, graph);
    list_clear(&c->list);
    capture **link = &captures;
    while (*link != c) link = &(*link)->next;
    *link = c->next;
    free(c);
    return result;
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

static void mark(void *data) {
    lz_cu_event event = *(lz_cu_event *)data;
    clock_gettime(CLOCK_MONOTONIC, &event->time);
    event->done++;
}

lz_cu_result cuEventCreate(lz_cu_event *event, unsigned flags) {
    ENTER(NORMAL);
    lz_cu_event e = calloc(1, sizeof *e);
    if (!e) return LZ_CUDA_ERROR_OUT_OF_MEMORY;
    e->flags = flags;
    count_live(EVENT, 1);
    *event = e;
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuEventDestroy_v2(lz_cu_event event) {
    ENTER(INITIALISED | CONTEXT);
    if (!event) return LZ_CUDA_ERROR_INVALID_HANDLE;
    flush_all(); /* somebody may still have to mark it */
    free(event);
    count_live(EVENT, -1);
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuEventRecord(lz_cu_event event, lz_cu_stream stream) {
    ENTER(NORMAL);
    if (!event) return LZ_CUDA_ERROR_INVALID_HANDLE;
    event->capture = 0;
    if (stream && stream->capture && stream->capture->broken) return LZ_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    event->stream = stream;
    if (stream && stream->capture) {
        event->capture = stream->capture->serial;
        event->position = stream->captured;
        return LZ_CUDA_SUCCESS;
    }
    event->recorded++;
    return enqueue(stream, OP_EVENT, mark, &event, sizeof(lz_cu_event));
}

/* The stream goes on when the moment has come; the NULL stream waits for it at once. */
static lz_cu_result wait_in(lz_cu_stream stream, lz_cu_event event) {
    moment m = {event, event->recorded, event->stream};
    if (event->done == event->recorded) return LZ_CUDA_SUCCESS;
    if (stream) return enqueue(stream, OP_WAIT, reach, &m, sizeof m);
    flush_all();
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuStreamWaitEvent(lz_cu_stream stream, lz_cu_event event, unsigned flags) {
    (void)flags;
    ENTER(NORMAL);
    if (!event) return LZ_CUDA_ERROR_INVALID_HANDLE;
    if (!event->capture) {
        if (stream && stream->capture) return broken(stream->capture, LZ_CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        return wait_in(stream, event);
    }
    capture *c = find_capture(event->capture);
    if (!c) return LZ_CUDA_ERROR_CAPTURED_EVENT;
    if (!stream) return broken(c, LZ_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (stream->capture && stream->capture != c) return broken(c, LZ_CUDA_ERROR_STREAM_CAPTURE_MERGE);
    if (!stream->capture) join_capture(stream, c);
    if (event->stream != stream && event->position == event->stream->captured) event->stream->loose = false;
    stream->loose = stream != c->origin;
    return LZ_CUDA_SUCCESS;
}

static lz_cu_result check_event(lz_cu_event event) {
    if (!event) return LZ_CUDA_ERROR_INVALID_HANDLE;
    if (event->capture) return LZ_CUDA_ERROR_CAPTURED_EVENT;
    return LZ_CUDA_SUCCESS;
}

static void wait_here(lz_cu_event event) {
    if (event->done == event->recorded) return;
    run_others(event->stream);
    reach(&(moment){event, event->recorded, event->stream});
}

lz_cu_result cuEventSynchronize(lz_cu_event event) {
    ENTER(NORMAL);
    lz_cu_result result = check_event(event);
    if (!result) wait_here(event);
    return result;
}

lz_cu_result cuEventQuery(lz_cu_event event) {
    ENTER(NORMAL);
    lz_cu_result result = check_event(event);
    bool busy = !result && event->done < event->recorded;
    if (busy) wait_here(event); /* so whoever polls gets there */
    return busy ? LZ_CUDA_ERROR_NOT_READY : result;
}

lz_cu_result cuEventElapsedTime_v2(float *milliseconds, lz_cu_event start, lz_cu_event end) {
    ENTER(NORMAL);
    lz_cu_result result = check_event(start);
    if (!result) result = check_event(end);
    if (result) return result;
    bool timed = !((start->flags | end->flags) & LZ_CU_EVENT_DISABLE_TIMING);
    if (!timed || !start->recorded || !end->recorded) return LZ_CUDA_ERROR_INVALID_HANDLE;
    if (start->done < start->recorded || end->done < end->recorded) return LZ_CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)(end->time.tv_sec - start->time.tv_sec) * 1e3 +
                            (double)(end->time.tv_nsec - start->time.tv_nsec) * 1e-6);
    return LZ_CUDA_SUCCESS;
}
