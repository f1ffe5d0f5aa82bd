/* product.c: what matmul.c, sdpa.c and conv.c share. */
#include "backend/cuda/product.h"

#include <math.h>
#include <string.h>

#include "backend/cuda/own.h"

/* ---- pieces of scratch -------------------------------------------------------------------------------------------- */

enum { PIECE_ALIGN = 256 };

char *lz_take_piece(lz_pieces *p, int64_t bytes) {
    int64_t skew = p->at ? (int64_t)((uintptr_t)p->at % PIECE_ALIGN) : 0; /* scratch itself is aligned to less */
    int64_t start = (p->used + skew + PIECE_ALIGN - 1) / PIECE_ALIGN * PIECE_ALIGN - skew;
    p->used = start + bytes;
    return p->at ? p->at + start : NULL;
}

int64_t lz_pieces_bytes(const lz_pieces *p) { return p->used ? p->used + PIECE_ALIGN : 0; }

/* ---- operands ----------------------------------------------------------------------------------------------------- */

bool lz_cuda_is_real(lz_dtype t) { return t == LZ_F8 || t == LZ_F16 || t == LZ_BF16 || t == LZ_F32; }

lz_dtype lz_cuda_common_type(lz_dtype a, lz_dtype b) {
    lz_dtype type = lz_promote(a, b);
    return type == LZ_F8 ? LZ_BF16 : type; /* every f8 is a bf16 */
}

lz_tensor lz_cuda_packed(lz_pieces *p, const lz_tensor *t, lz_dtype type, int kept) {
    lz_tensor copy = {.dtype = type, .dims = t->dims};
    int64_t step = 1;
    for (int i = t->dims.n - 1; i >= 0; i--) {
        bool repeats = i < t->dims.n - kept && t->strides[i] == 0;
        copy.strides[i] = repeats ? 0 : step;
        if (!repeats) step *= t->dims.at[i];
    }
    copy.data = lz_take_piece(p, step * lz_dtype_size(type));
    return copy;
}

bool lz_cuda_convert(const lz_call *call, const lz_tensor *from, const lz_tensor *to) {
    lz_params none;
    memset(&none, 0, sizeof none);
    lz_tensor in = *from, out = *to;
    for (int i = 0; i < to->dims.n; i++) /* what repeats in both is written once */
        if (to->strides[i] == 0 && from->strides[i] == 0) in.dims.at[i] = out.dims.at[i] = 1;
    lz_call copy = {.op = from->dtype == to->dtype ? LZ_OP_COPY : LZ_OP_CAST,
                    .params = &none,
                    .out = out,
                    .in = &in,
                    .n_core = 1,
                    .n_in = 1,
                    .pool = call->pool,
                    .device = call->device,
                    .err = call->err};
    return lz_cuda_element.run(&copy);
}

/* ---- endings ------------------------------------------------------------------------------------------------------ */

/* A vector along the last axis, the same for every row. */
static bool is_vector(const lz_tensor *t) {
    int last = t->dims.n - 1;
    for (int i = 0; i < last; i++)
        if (t->strides[i] && t->dims.at[i] != 1) return false;
    return t->strides[last] == 1 || t->dims.at[last] == 1;
}

static bool is_matrix(const lz_tensor *t) {
    int last = t->dims.n - 1;
    for (int i = 0; i < last; i++)
        if (!t->strides[i] && t->dims.at[i] != 1) return false;
    return t->strides[last] == 1 || t->dims.at[last] == 1;
}

/* What a register holds while the expression is read. */
typedef struct held {
    enum { OTHER, ARGUMENT, RESULT } kind;
    int argument; /* number of an input of the call */
    lz_ending ending;
} held;

static held multiplied(const lz_call *call, held a, held b) {
    if (b.kind == RESULT) return multiplied(call, b, a);
    bool fresh = a.kind == RESULT && a.ending.gate < 0 && a.ending.bias < 0 && a.ending.residual < 0;
    if (!fresh || a.ending.gelu_tanh || b.kind != ARGUMENT || !is_vector(&call->in[b.argument]))
        return (held){.kind = OTHER};
    a.ending.gate = b.argument;
    return a;
}

static held added(const lz_call *call, held a, held b) {
    if (a.kind != RESULT && b.kind == RESULT) return added(call, b, a);
    if (a.kind != RESULT || a.ending.gelu_tanh || b.kind != ARGUMENT) return (held){.kind = OTHER};
    const lz_tensor *t = &call->in[b.argument];
    if (t->dtype != call->out.dtype) return (held){.kind = OTHER};
    if (is_vector(t) && a.ending.bias < 0)
        a.ending.bias = b.argument;
    else if (is_matrix(t) && a.ending.residual < 0)
        a.ending.residual = b.argument;
    else
        a.kind = OTHER;
    return a;
}

typedef held reader(const lz_call *call, const lz_expr_step *s, const held *r, bool last);

static held read_add(const lz_call *call, const lz_expr_step *s, const held *r, bool last) {
    (void)last;
    return added(call, r[s->a], r[s->b]);
}

static held read_mul(const lz_call *call, const lz_expr_step *s, const held *r, bool last) {
    (void)last;
    return multiplied(call, r[s->a], r[s->b]);
}

static held read_mul_add(const lz_call *call, const lz_expr_step *s, const held *r, bool last) {
    (void)last;
    return added(call, multiplied(call, r[s->a], r[s->b]), r[s->c]);
}

/* Rounding that happens anyway. */
static held read_cast(const lz_call *call, const lz_expr_step *s, const held *r, bool last) {
    return s->b == LZ_F32 || (last && s->b == call->out.dtype) ? r[s->a] : (held){.kind = OTHER};
}

static held read_gelu_tanh(const lz_call *call, const lz_expr_step *s, const held *r, bool last) {
    (void)call, (void)last;
    held x = r[s->a];
    if (x.kind != RESULT || x.ending.gate >= 0 || x.ending.residual >= 0 || x.ending.gelu_tanh) x.kind = OTHER;
    x.ending.gelu_tanh = true;
    return x;
}

/* Steps that an ending may consist of. */
static reader *const readers[LZ_OP_COUNT + 1] = {
    [LZ_OP_ADD] = read_add,           [LZ_OP_MUL] = read_mul,
    [LZ_OP_CAST] = read_cast,         [LZ_OP_GELU_TANH] = read_gelu_tanh,
    [LZ_EXPR_MUL_ADD] = read_mul_add,
};

static held stepped(const lz_call *call, const lz_expr_step *s, const held *r, bool last) {
    return s->number || !readers[s->op] ? (held){.kind = OTHER} : readers[s->op](call, s, r, last);
}

bool lz_cuda_read_ending(const lz_call *call, lz_ending *ending) {
    *ending = (lz_ending){-1, -1, -1, false};
    const lz_expr *e = call->expr;
    if (!e) return true;
    if (lz_cuda_products(call) > 1) return false;
    held r[LZ_EXPR_REGS] = {{.kind = RESULT, .ending = *ending}};
    for (int i = 1; i < e->n_args; i++) r[i] = (held){.kind = ARGUMENT, .argument = call->n_core + i - 1};
    for (int i = 0; i < e->n_steps; i++) r[e->steps[i].dst] = stepped(call, &e->steps[i], r, i == e->n_steps - 1);
    *ending = r[e->result].ending;
    return r[e->result].kind == RESULT;
}

enum { MAX_IN = LZ_EXPR_ARGS + 1 };

static lz_call finishing_call(const lz_call *call, const lz_tensor *products, lz_tensor in[MAX_IN]) {
    lz_call finish = *call;
    int n = lz_cuda_products(call);
    for (int i = 0; i < n; i++) in[i] = products[i];
    for (int i = call->n_core; i < call->n_in && n < MAX_IN; i++) in[n++] = call->in[i];
    finish.op = LZ_OP_FUSED;
    finish.in = in;
    finish.n_core = finish.n_in = n;
    return finish;
}

bool lz_cuda_finish(const lz_call *call, const lz_tensor *products) {
    if (!call->expr) return lz_cuda_convert(call, products, &call->out);
    lz_tensor in[MAX_IN];
    lz_call finish = finishing_call(call, products, in);
    return lz_cuda_element.run(&finish);
}

bool lz_cuda_can_finish(const lz_call *call) {
    if (!call->expr) return lz_cuda_is_real(call->out.dtype);
    lz_tensor in[MAX_IN], products[2] = {call->out, call->out};
    products[0].dtype = products[1].dtype = LZ_F32;
    lz_call finish = finishing_call(call, products, in);
    return !lz_cuda_element.can || lz_cuda_element.can(&finish);
}

/* ---- the fastest -------------------------------------------------------------------------------------------------- */

enum { MAX_WAYS = 16, TURNS = 5 };
static const double near_enough = 1.01;

typedef struct stopwatch {
    lz_cu_event begin, end;
    char *other; /* memory that fills the cache; NULL: there is none, and the cache stays as it is */
} stopwatch;

/* What a way puts into the stream, as one submission: what the host does in between is not measured. NULL: it cannot be
 * recorded. */
static lz_recording *record_way(const lz_call *call, lz_cuda_way way, void *arg, int i) {
    lz_device *d = call->device;
    if (!lz_cuda_device_table.record(d, NULL)) return NULL;
    bool fine = way(call, arg, i);
    lz_recording *made = lz_cuda_device_table.end_record(d, NULL);
    if (made && !fine) lz_cuda_device_table.forget(d, made);
    return fine ? made : NULL;
}

static bool time_once(const lz_call *call, const stopwatch *s, lz_recording *work, double *best) {
    lz_device *d = call->device;
    float milliseconds = 0;
    if ((s->other && d->api.cu.MemsetD8Async((lz_cu_ptr)(uintptr_t)s->other, 0, (size_t)d->cache_bytes, d->stream)) ||
        d->api.cu.EventRecord(s->begin, d->stream) || !lz_cuda_device_table.replay(d, work, NULL) ||
        d->api.cu.EventRecord(s->end, d->stream) || d->api.cu.EventSynchronize(s->end) ||
        d->api.cu.EventElapsedTime(&milliseconds, s->begin, s->end))
        return false;
    if (milliseconds * 1e-3 < *best) *best = milliseconds * 1e-3;
    return true;
}

/* Seconds of the shortest of some runs, after one to warm up; infinite: it does not work. */
static double measure(const lz_call *call, const stopwatch *s, lz_cuda_way way, void *arg, int i) {
    double best = INFINITY;
    lz_recording *work = way(call, arg, i) ? record_way(call, way, arg, i) : NULL;
    bool fine = work;
    for (int turn = 0; turn < TURNS && fine; turn++) fine = time_once(call, s, work, &best);
    if (work) lz_cuda_device_table.forget(call->device, work);
    return fine ? best : INFINITY;
}

/* Puts each of n ways into the stream a few times, after something that empties the cache, as in a model the work of
 * other layers does; and waits. Returns the first whose time is nearly the shortest, so that noise seldom changes the
 * choice from one machine to the next. A way that returns false is out; -1: all are. */
static int fastest(const lz_call *call, int n, lz_cuda_way way, void *arg) {
    lz_device *d = call->device;
    lz_error unused;
    lz_call quiet = *call; /* what a way that fails says does not matter */
    quiet.err = &unused;
    stopwatch s = {NULL, NULL, NULL};
    double times[MAX_WAYS], best = INFINITY;
    if (n > MAX_WAYS) n = MAX_WAYS;
    if (d->api.cu.EventCreate(&s.begin, LZ_CU_EVENT_DEFAULT)) return 0;
    if (d->api.cu.EventCreate(&s.end, LZ_CU_EVENT_DEFAULT)) {
        d->api.cu.EventDestroy(s.begin);
        return 0;
    }
    s.other = lz_cuda_device_table.allocate(d, d->cache_bytes, NULL);
    for (int i = 0; i < n; i++) {
        times[i] = measure(&quiet, &s, way, arg, i);
        if (times[i] < best) best = times[i];
        lz_cuda_trace(d, "  way %d: %.1f us", i, times[i] * 1e6);
    }
    if (s.other) lz_cuda_device_table.release(d, s.other);
    d->api.cu.EventDestroy(s.begin);
    d->api.cu.EventDestroy(s.end);
    for (int i = 0; i < n; i++)
        if (isfinite(times[i]) && times[i] <= best * near_enough) return i;
    return -1;
}

static void rehearse_all(const lz_call *call, int n, lz_cuda_way way, void *arg) {
    lz_error unused;
    lz_call quiet = *call;
    quiet.err = &unused;
    for (int i = 0; i < n; i++) way(&quiet, arg, i);
}

int lz_cuda_choose(const lz_call *call, lz_choice *c, int n, lz_cuda_way way, void *arg) {
    lz_device *d = call->device;
    int chosen;
    if (lz_choices_find(d->choices, c, n, &chosen)) return chosen;
    if (d->rehearsing) rehearse_all(call, n, way, arg);
    if (d->recording || d->rehearsing) return -1;
    chosen = fastest(call, n, way, arg);
    c->measured = true;
    lz_choices_note(d->choices, c, chosen);
    return chosen;
}
