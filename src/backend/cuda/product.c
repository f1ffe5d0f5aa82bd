/* product.c: shared by matmul.c, blas.c, sdpa.c and conv.c: scratch, conversions, epilogues, measured choices. */
#include "backend/cuda/product.h"

#include <math.h>
#include <string.h>

#include "backend/cuda/own.h"

/* ---- scratch memory ---------------------------------------------------------------------------------------------- */

enum { SCRATCH_ALIGN = 256 };

char *lz_scratch_take(lz_scratch *p, int64_t bytes) {
    /* The start of scratch has a smaller alignment. */
    int64_t skew = p->at ? (int64_t)((uintptr_t)p->at % SCRATCH_ALIGN) : 0;
    int64_t start = (p->used + skew + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN - skew;
    p->used = start + bytes;
    return p->at ? p->at + start : NULL;
}

int64_t lz_scratch_bytes(const lz_scratch *p) { return p->used ? p->used + SCRATCH_ALIGN : 0; }

/* ---- operands ---------------------------------------------------------------------------------------------------- */

bool lz_cuda_is_real(lz_dtype t) { return t == LZ_F8 || t == LZ_F16 || t == LZ_BF16 || t == LZ_F32; }

lz_dtype lz_cuda_common_type(lz_dtype a, lz_dtype b) {
    lz_dtype type = lz_promote(a, b);
    return type == LZ_F8 ? LZ_BF16 : type; /* bf16 represents every f8 */
}

lz_tensor lz_cuda_packed(lz_scratch *p, const lz_tensor *t, lz_dtype type, int kept) {
    lz_tensor copy = {.dtype = type, .dims = t->dims};
    int64_t step = 1;
    for (int i = t->dims.n - 1; i >= 0; i--) {
        bool repeats = i < t->dims.n - kept && t->strides[i] == 0;
        copy.strides[i] = repeats ? 0 : step;
        if (!repeats) step *= t->dims.at[i];
    }
    copy.data = lz_scratch_take(p, step * lz_dtype_size(type));
    return copy;
}

bool lz_cuda_convert(const lz_call *call, const lz_tensor *from, const lz_tensor *to) {
    lz_params none;
    memset(&none, 0, sizeof none);
    lz_tensor in = *from, out = *to;
    for (int i = 0; i < to->dims.n; i++) /* an axis that is broadcast in both is written once */
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

/* ---- endings ----------------------------------------------------------------------------------------------------- */

/* Is the tensor a vector along the last axis, broadcast to every row? */
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

/* The symbolic value of a register while lz_cuda_read_ending interprets the expression. */
typedef struct held {
    enum { OTHER, ARGUMENT, RESULT } kind;
    int argument; /* index of an input of the call */
    lz_ending ending;
} held;

static held multiplied(const lz_call *call, held a, held b) {
    if (b.kind == RESULT) return multiplied(call, b, a);
    bool fresh = a.kind == RESULT && a.ending.gate < 0 && a.ending.residual < 0;
    if (!fresh || a.ending.gelu_tanh || b.kind != ARGUMENT || !is_vector(&call->in[b.argument]))
        return (held){.kind = OTHER};
    a.ending.gate = b.argument;
    a.ending.gated_bias = a.ending.bias >= 0;
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

/* A cast to f32, or to the type of the output at the end, has no effect. */
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

/* The steps that an ending may have. */
static reader *const readers[LZ_OP_COUNT + 1] = {
    [LZ_OP_ADD] = read_add,           [LZ_OP_MUL] = read_mul,
    [LZ_OP_CAST] = read_cast,         [LZ_OP_GELU_TANH] = read_gelu_tanh,
    [LZ_EXPR_MUL_ADD] = read_mul_add,
};

static held stepped(const lz_call *call, const lz_expr_step *s, const held *r, bool last) {
    const held other = {.kind = OTHER};
    return s->number || !readers[s->op] ? other : readers[s->op](call, s, r, last);
}

bool lz_cuda_read_ending(const lz_call *call, lz_ending *ending) {
    *ending = (lz_ending){.gate = -1, .bias = -1, .residual = -1};
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

/* ---- measured choices -------------------------------------------------------------------------------------------- */

enum { MAX_CANDIDATES = 16, REPEATS = 5 };
static const double near_enough = 1.01;

typedef struct stopwatch {
    lz_cu_event begin, end;
    /* Memory that is overwritten to empty the L2 cache; NULL: could not be allocated, the cache stays warm. */
    char *other;
} stopwatch;

/* Records the launches of a candidate as one submission, so that host time between launches is not measured. NULL: it
 * cannot be recorded. */
static lz_recording *record_candidate(const lz_call *call, lz_cuda_candidate candidate, void *arg, int i) {
    lz_device *d = call->device;
    if (!lz_cuda_device_table.record(d, NULL)) return NULL;
    bool fine = candidate(call, arg, i);
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

/* Seconds of the fastest of REPEATS runs, after a warm-up run; infinite: the candidate failed. */
static double measure(const lz_call *call, const stopwatch *s, lz_cuda_candidate candidate, void *arg, int i) {
    double best = INFINITY;
    lz_recording *work = candidate(call, arg, i) ? record_candidate(call, candidate, arg, i) : NULL;
    bool fine = work;
    for (int repeat = 0; repeat < REPEATS && fine; repeat++) fine = time_once(call, s, work, &best);
    if (work) lz_cuda_device_table.forget(call->device, work);
    return fine ? best : INFINITY;
}

/* Measures n candidates. Before each run the L2 cache is emptied, as other layers of a model would do. Returns the
 * first candidate whose time is within 1 % of the shortest, so that noise rarely changes the choice. Candidates that
 * return false are ignored; -1: all do. */
static int fastest(const lz_call *call, int n, lz_cuda_candidate candidate, void *arg) {
    lz_device *d = call->device;
    lz_error unused;
    lz_call quiet = *call; /* errors of candidates are ignored */
    quiet.err = &unused;
    stopwatch s = {NULL, NULL, NULL};
    double times[MAX_CANDIDATES], best = INFINITY;
    if (n > MAX_CANDIDATES) n = MAX_CANDIDATES;
    if (d->api.cu.EventCreate(&s.begin, LZ_CU_EVENT_DEFAULT)) return 0;
    if (d->api.cu.EventCreate(&s.end, LZ_CU_EVENT_DEFAULT)) {
        d->api.cu.EventDestroy(s.begin);
        return 0;
    }
    s.other = lz_cuda_device_table.allocate(d, d->cache_bytes, NULL);
    for (int i = 0; i < n; i++) {
        times[i] = measure(&quiet, &s, candidate, arg, i);
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

static void rehearse_all(const lz_call *call, int n, lz_cuda_candidate candidate, void *arg) {
    lz_error unused;
    lz_call quiet = *call;
    quiet.err = &unused;
    for (int i = 0; i < n; i++) candidate(&quiet, arg, i);
}

int lz_cuda_choose(const lz_call *call, lz_choice *c, int n, lz_cuda_candidate candidate, void *arg) {
    lz_device *d = call->device;
    int chosen;
    if (lz_choices_find(d->choices, c, n, &chosen)) return chosen;
    if (d->rehearsing) rehearse_all(call, n, candidate, arg);
    if (d->recording || d->rehearsing) return -1;
    chosen = fastest(call, n, candidate, arg);
    c->measured = true;
    lz_choices_note(d->choices, c, chosen);
    return chosen;
}
