/* blas.c: matrix products by cuBLASLt.
 *
 * cuBLAS matrices are column-major, ours are row-major, so out = a b is computed as out^T = b^T a^T. An operand is not
 * copied if one of its last two strides is 1: cuBLAS takes it with a transposition flag and a distance between rows
 * (blas_shape.h).
 *
 * Sums are in f32, and f32 is multiplied as f32 (no TF32). Operands of two types are converted to a type that
 * represents both; results of types that cuBLAS does not write are stored as f32 in scratch first. An epilogue that
 * cuBLAS supports becomes part of the product, except in f32, where fused and unfused programs must give the same bits.
 *
 * cuBLAS offers several algorithms for a product. For large 16-bit products they are measured once per shape, and the
 * choice is kept on disk. Other products use its first suggestion, so that f32 results never depend on measured
 * times. */
#include <stddef.h>
#include <string.h>

#include "backend/cuda/blas_shape.h"
#include "backend/cuda/product.h"

#define KEEP_BYTES ((int64_t)64 << 20) /* workspace of large products; cuBLAS wants up to 32 MB on Hopper */
#define SMALL_BYTES ((int64_t)4 << 20)
#define SMALL_WORK 1e7

/* ---- the plan of a call ------------------------------------------------------------------------------------------ */

typedef struct method {
    lz_dtype type;                 /* type in which a and b are multiplied */
    lz_tensor a, b, product;       /* tensors of the call, or copies in scratch */
    bool copy_a, copy_b, indirect; /* indirect: the product is stored in scratch, and the epilogue writes out */
    shape s;
    bool ends; /* cuBLAS can do the epilogue, with the three members below: */
    lz_ending ending;
    shape ending_shape;
    lz_tensor gate; /* a copy as f32, in scratch */
    char *workspace;
    int64_t workspace_bytes;
} method;

static bool needs_copy(const lz_tensor *t, lz_dtype type) {
    int last = t->dims.n - 1;
    matrix m;
    return t->dtype != type ||
           !lz_blas_as_matrix(t->dims.at[last - 1], t->dims.at[last], t->strides[last - 1], t->strides[last], &m);
}

/* Can cuBLAS write the type? It writes f32, or the type of its operands. */
static bool writes(lz_dtype type, lz_dtype out) { return out == LZ_F32 || out == type; }

static void plan_ending(const lz_call *call, method *w, lz_scratch *p) {
    if (!call->expr || w->indirect || w->type == LZ_F32 || !lz_cuda_read_ending(call, &w->ending)) return;
    const lz_tensor *c = w->ending.residual >= 0 ? &call->in[w->ending.residual] : NULL;
    if (!lz_blas_find_shape(&w->a, &w->b, &w->product, c, &w->ending_shape)) return;
    w->ends = true;
    if (w->ending.gate < 0) return;
    lz_tensor vector = call->in[w->ending.gate];
    int last = vector.dims.n - 1;
    vector.dims = LZ_DIMS(vector.dims.at[last]);
    vector.strides[0] = vector.strides[last];
    w->gate = lz_cuda_packed(p, &vector, LZ_F32, 1);
}

/* scratch() and run() call this, and get the same plan. */
static method plan_method(const lz_call *call) {
    method w;
    memset(&w, 0, sizeof w);
    lz_scratch p = lz_scratch_at(call->scratch);
    w.type = lz_cuda_common_type(call->in[0].dtype, call->in[1].dtype);
    w.a = call->in[0], w.b = call->in[1], w.product = call->out;
    w.copy_a = needs_copy(&w.a, w.type), w.copy_b = needs_copy(&w.b, w.type);
    if (w.copy_a) w.a = lz_cuda_packed(&p, &w.a, w.type, 2);
    if (w.copy_b) w.b = lz_cuda_packed(&p, &w.b, w.type, 2);
    w.indirect = !writes(w.type, call->out.dtype) || !lz_blas_find_shape(&w.a, &w.b, &w.product, NULL, &w.s);
    if (w.indirect) {
        w.product = lz_cuda_packed(&p, &call->out, LZ_F32, call->out.dims.n);
        lz_blas_find_shape(&w.a, &w.b, &w.product, NULL, &w.s);
    }
    plan_ending(call, &w, &p);
    double work = lz_blas_work(&w.s);
    w.workspace_bytes = work >= LZ_LARGE_WORK ? KEEP_BYTES : work >= SMALL_WORK ? SMALL_BYTES : 0;
    w.workspace = lz_scratch_take(&p, w.workspace_bytes);
    /* When scratch() calls: all bytes of scratch. */
    w.workspace_bytes = p.at ? w.workspace_bytes : lz_scratch_bytes(&p);
    return w;
}

/* One product of a pair as a call of its own, into scratch, without the epilogue. Both products are stored at the start
 * of scratch, in *bytes bytes; the scratch of the single calls comes after them. */
static lz_call one_of_pair(const lz_call *call, int i, lz_tensor products[2], lz_tensor in[2], int64_t *bytes) {
    lz_scratch p = lz_scratch_at(call->scratch);
    lz_call one = *call;
    for (int j = 0; j < 2; j++) products[j] = lz_cuda_packed(&p, &call->out, call->in[0].dtype, call->out.dims.n);
    in[0] = call->in[0], in[1] = call->in[1 + i];
    one.op = LZ_OP_MATMUL, one.in = in, one.n_in = one.n_core = 2, one.expr = NULL;
    one.out = products[i];
    *bytes = lz_scratch_bytes(&p);
    if (call->scratch) one.scratch = call->scratch + *bytes;
    return one;
}

int64_t lz_cuda_blas_scratch(const lz_call *call) {
    lz_call measured = *call;
    measured.scratch = NULL;
    if (lz_cuda_products(call) == 1) return plan_method(&measured).workspace_bytes;
    lz_tensor products[2], in[2];
    int64_t bytes;
    lz_call one = one_of_pair(&measured, 0, products, in, &bytes);
    return bytes + plan_method(&one).workspace_bytes;
}

/* ---- descriptors and algorithms ---------------------------------------------------------------------------------- */

/* All that the choice of an algorithm depends on. Zeroed before it is filled, since keys are compared byte by byte. */
typedef struct key {
    int64_t m, n, k, batch;
    int64_t ld[OPERANDS], step[OPERANDS];
    int64_t workspace;
    int32_t align[OPERANDS];
    int32_t flipped_a, flipped_b;
    int32_t type, out_type;
    int32_t epilogue, gate, residual;
} key;

enum { MAX_ALGORITHMS = 8, BUCKETS = 256, MAX_PRODUCTS = 8192 };

typedef struct product {
    struct product *next;
    key key;
    lz_lt_matmul_desc desc;
    lz_lt_layout layout[OPERANDS];
    lz_lt_heuristic algorithms[MAX_ALGORITHMS];
    int n, chosen; /* n is 0 if cuBLAS has no algorithm */
    bool measured; /* chosen is final: measured, or too small to be measured */
} product;

struct lz_cuda_blas {
    lz_lt_handle handle;
    product *buckets[BUCKETS];
    int count;
};

static bool lt_ok(const lz_call *call, lz_lt_status status, const char *what) {
    if (status == LZ_CUBLAS_STATUS_SUCCESS) return true;
    lz_fail(call->err, LZ_DEVICE_FAILED, "cuBLASLt: %s: %s", what, call->device->api.lt.GetStatusName(status));
    return false;
}

static lz_cuda_type cuda_type(lz_dtype t) {
    return t == LZ_BF16 ? LZ_CUDA_R_16BF : t == LZ_F16 ? LZ_CUDA_R_16F : LZ_CUDA_R_32F;
}

static void free_product(lz_device *d, product *p) {
    for (int t = 0; t < OPERANDS; t++)
        if (p->layout[t]) d->api.lt.MatrixLayoutDestroy(p->layout[t]);
    if (p->desc) d->api.lt.MatmulDescDestroy(p->desc);
    lz_host_free(d->ctx, p);
}

static void forget_products(lz_device *d) {
    for (int i = 0; i < BUCKETS; i++)
        for (product *p; (p = d->blas->buckets[i]);) {
            d->blas->buckets[i] = p->next;
            free_product(d, p);
        }
    d->blas->count = 0;
}

bool lz_cuda_blas_open(lz_device *d, lz_error *err) {
    d->blas = lz_host_alloc(d->ctx, sizeof *d->blas);
    if (!d->blas) {
        lz_out_of_memory(err, sizeof *d->blas);
        return false;
    }
    lz_lt_status status = d->api.lt.Create(&d->blas->handle);
    if (status == LZ_CUBLAS_STATUS_SUCCESS) return true;
    d->blas->handle = NULL;
    lz_fail(err, LZ_DEVICE_FAILED, "cuBLASLt does not start: %s", d->api.lt.GetStatusName(status));
    return false;
}

void lz_cuda_blas_close(lz_device *d) {
    if (!d->blas) return;
    forget_products(d);
    if (d->blas->handle) d->api.lt.Destroy(d->blas->handle);
    lz_host_free(d->ctx, d->blas);
    d->blas = NULL;
}

/* Rows and columns of a stored matrix, in cuBLAS's column-major terms. */
static void stored_size(const key *k, int t, uint64_t *rows, uint64_t *columns) {
    int64_t r = t == B ? k->k : k->m, c = t == A ? k->k : k->n;
    bool flipped = t == A ? k->flipped_a : t == B ? k->flipped_b : true;
    *rows = (uint64_t)(flipped ? c : r), *columns = (uint64_t)(flipped ? r : c);
}

static bool make_layout(const lz_call *call, product *p, int t) {
    const lz_cuda_api *api = &call->device->api;
    const key *k = &p->key;
    uint64_t rows, columns;
    int32_t batch = (int32_t)k->batch;
    stored_size(k, t, &rows, &columns);
    lz_cuda_type type = cuda_type((lz_dtype)(t == A || t == B ? k->type : k->out_type));
    return lt_ok(call, api->lt.MatrixLayoutCreate(&p->layout[t], type, rows, columns, k->ld[t]), "a layout") &&
           lt_ok(call,
                 api->lt.MatrixLayoutSetAttribute(p->layout[t], LZ_CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                  sizeof batch),
                 "a batch") &&
           lt_ok(call,
                 api->lt.MatrixLayoutSetAttribute(p->layout[t], LZ_CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                  &k->step[t], sizeof k->step[t]),
                 "the step of a batch");
}

static bool set_desc(const lz_call *call, product *p, lz_lt_matmul_attribute attribute, const void *value, size_t bytes,
                     const char *what) {
    return lt_ok(call, call->device->api.lt.MatmulDescSetAttribute(p->desc, attribute, value, bytes), what);
}

static bool set_bias(const lz_call *call, product *p, const void *bias) {
    return !bias || set_desc(call, p, LZ_CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias, "a bias");
}

static bool make_desc(const lz_call *call, product *p) {
    const key *k = &p->key;
    /* cuBLAS's first operand is b^T, which needs no transposition if b is flipped. Its second is a^T, likewise. */
    int32_t first = k->flipped_b ? LZ_CUBLAS_OP_N : LZ_CUBLAS_OP_T;
    int32_t second = k->flipped_a ? LZ_CUBLAS_OP_N : LZ_CUBLAS_OP_T;
    int32_t pointers = LZ_CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST;
    lz_lt_status made = call->device->api.lt.MatmulDescCreate(&p->desc, LZ_CUBLAS_COMPUTE_32F, LZ_CUDA_R_32F);
    return lt_ok(call, made, "a product") &&
           set_desc(call, p, LZ_CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first, "a transposition") &&
           set_desc(call, p, LZ_CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second, "a transposition") &&
           set_desc(call, p, LZ_CUBLASLT_MATMUL_DESC_EPILOGUE, &k->epilogue, sizeof k->epilogue, "an epilogue") &&
           (!k->gate || set_desc(call, p, LZ_CUBLASLT_MATMUL_DESC_POINTER_MODE, &pointers, sizeof pointers,
                                 "a vector to scale by"));
}

/* Asks for algorithms that sum in f32 and in a fixed order: no atomics, no 16-bit sums. */
static bool ask_algorithms(const lz_call *call, product *p) {
    const lz_cuda_api *api = &call->device->api;
    const key *k = &p->key;
    lz_lt_preference wish = NULL;
    if (!lt_ok(call, api->lt.MatmulPreferenceCreate(&wish), "a preference")) return false;
    uint64_t workspace = (uint64_t)k->workspace;
    uint32_t scheme = LZ_CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t first = (uint32_t)k->align[B], second = (uint32_t)k->align[A], c = (uint32_t)k->align[C],
             d = (uint32_t)k->align[D];
    const struct {
        lz_lt_preference_attribute attribute;
        const void *value;
        size_t bytes;
    } wishes[] = {
        {LZ_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {LZ_CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme, sizeof scheme},
        {LZ_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &first, sizeof first},
        {LZ_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &second, sizeof second},
        {LZ_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c},
        {LZ_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &d, sizeof d},
    };
    bool fine = true;
    for (size_t i = 0; fine && i < sizeof wishes / sizeof *wishes; i++)
        fine = lt_ok(call,
                     api->lt.MatmulPreferenceSetAttribute(wish, wishes[i].attribute, wishes[i].value, wishes[i].bytes),
                     "a preference");
    lz_lt_status found = LZ_CUBLAS_STATUS_NOT_SUPPORTED;
    if (fine)
        found = api->lt.MatmulAlgoGetHeuristic(call->device->blas->handle, p->desc, p->layout[B], p->layout[A],
                                               p->layout[C], p->layout[D], wish, MAX_ALGORITHMS, p->algorithms, &p->n);
    api->lt.MatmulPreferenceDestroy(wish);
    if (found != LZ_CUBLAS_STATUS_SUCCESS) p->n = 0; /* cuBLAS reports that it has no algorithm */
    int kept = 0;
    for (int i = 0; i < p->n; i++)
        if (p->algorithms[i].state == LZ_CUBLAS_STATUS_SUCCESS && (int64_t)p->algorithms[i].workspace <= k->workspace)
            p->algorithms[kept++] = p->algorithms[i];
    p->n = kept;
    if (!kept)
        lz_cuda_trace(call->device, "matmul m %lld n %lld k %lld epilogue %d gate %d: no algorithm (%s)",
                      (long long)k->m, (long long)k->n, (long long)k->k, k->epilogue, k->gate,
                      api->lt.GetStatusName(found));
    return fine;
}

/* The product of a key, made if it is new. NULL: call->err has the reason. */
static product *find_product(const lz_call *call, const key *k, const void *bias) {
    lz_device *d = call->device;
    uint64_t bucket = lz_hash(k, sizeof *k) % BUCKETS;
    for (product *p = d->blas->buckets[bucket]; p; p = p->next)
        if (!memcmp(&p->key, k, sizeof *k)) return p;
    if (d->blas->count >= MAX_PRODUCTS) forget_products(d);
    product *p = lz_host_alloc(d->ctx, sizeof *p);
    if (!p) {
        lz_out_of_memory(call->err, sizeof *p);
        return NULL;
    }
    p->key = *k;
    bool fine = make_desc(call, p) && set_bias(call, p, bias); /* the algorithms depend on whether there is a bias */
    for (int t = 0; fine && t < OPERANDS; t++) fine = make_layout(call, p, t);
    if (!fine || !ask_algorithms(call, p)) {
        free_product(d, p);
        return NULL;
    }
    p->next = d->blas->buckets[bucket];
    d->blas->buckets[bucket] = p;
    d->blas->count++;
    return p;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* Arguments of one launch of cuBLAS. */
typedef struct launch {
    product *p;
    const void *alpha, *a, *b, *c;
    void *d, *workspace;
    float beta;
} launch;

static bool launch_algorithm(const lz_call *call, void *arg, int i) {
    const launch *l = arg;
    const product *p = l->p;
    lz_device *d = call->device;
    lz_lt_status status = d->api.lt.Matmul(d->blas->handle, p->desc, l->alpha, l->b, p->layout[B], l->a, p->layout[A],
                                           &l->beta, l->c, p->layout[C], l->d, p->layout[D], &p->algorithms[i].algo,
                                           l->workspace, (size_t)p->key.workspace, d->stream);
    return lt_ok(call, status, "a matrix product");
}

static void log_choice(const lz_device *d, const product *p) {
    const key *k = &p->key;
    lz_cuda_trace(d, "matmul %s m %lld n %lld k %lld batch %lld epilogue %d gate %d c %d: algorithm %d of %d",
                  lz_dtype_name((lz_dtype)k->type), (long long)k->m, (long long)k->n, (long long)k->k,
                  (long long)k->batch, k->epilogue, k->gate, k->residual, p->chosen, p->n);
}

static void choose_algorithm(const lz_call *call, launch *l) {
    product *p = l->p;
    const key *k = &p->key;
    double work = 2.0 * (double)k->m * (double)k->n * (double)k->k * (double)k->batch;
    bool worth = p->n > 1 && k->type != LZ_F32 && work >= LZ_LARGE_WORK;
    lz_choice c = {.what = "algorithm of a product",
                   .library = worth ? call->device->api.lt.GetVersion() : 0,
                   .key = k,
                   .key_bytes = sizeof *k};
    int chosen = worth ? lz_cuda_choose(call, &c, p->n, launch_algorithm, l) : 0;
    p->chosen = chosen < 0 ? 0 : chosen;
    /* Otherwise the first algorithm is used, and a later run measures. */
    p->measured = !call->device->recording || chosen >= 0;
    if (worth) log_choice(call->device, p);
}

typedef enum outcome { DONE, REFUSED, FAILED } outcome;

static int32_t epilogue_code(const lz_ending *e) {
    if (e->bias >= 0) return e->gelu_tanh ? LZ_CUBLASLT_EPILOGUE_GELU_BIAS : LZ_CUBLASLT_EPILOGUE_BIAS;
    return e->gelu_tanh ? LZ_CUBLASLT_EPILOGUE_GELU : LZ_CUBLASLT_EPILOGUE_DEFAULT;
}

static const lz_ending no_ending = {-1, -1, -1, false};

static int32_t address_alignment(const void *p) {
    uintptr_t bits = (uintptr_t)p | 16;
    return (int32_t)(bits & (~bits + 1));
}

/* Multiplies one batch: `batch` matrices along the last axis of s. at[] has the addresses at the current indices of all
 * axes. */
static outcome multiply_batch(const lz_call *call, const method *w, const shape *s, const lz_ending *e,
                              char *const at[OPERANDS], int64_t batch) {
    key k;
    memset(&k, 0, sizeof k);
    k.m = s->m, k.n = s->n, k.k = s->k, k.batch = batch;
    k.type = (int32_t)w->type, k.out_type = (int32_t)w->product.dtype;
    k.flipped_a = s->at[A].flipped, k.flipped_b = s->at[B].flipped;
    k.epilogue = epilogue_code(e), k.gate = e->gate >= 0, k.residual = e->residual >= 0;
    k.workspace = w->workspace_bytes;
    for (int t = 0; t < OPERANDS; t++) {
        k.ld[t] = s->at[t].ld;
        k.step[t] = batch > 1 ? s->step[t][s->axes - 1] : 0;
        k.align[t] = address_alignment(at[t]);
    }
    const void *bias = e->bias >= 0 ? call->in[e->bias].data : NULL;
    if (bias && address_alignment(bias) < k.align[D]) k.align[D] = address_alignment(bias);
    product *p = find_product(call, &k, bias);
    if (!p || !set_bias(call, p, bias)) return FAILED;
    if (!p->n) return REFUSED;
    if (call->device->rehearsing) return DONE;
    static const float one = 1;
    launch l = {.p = p,
                .alpha = e->gate >= 0 ? (const void *)w->gate.data : &one,
                .a = at[A],
                .b = at[B],
                .c = at[C],
                .d = at[D],
                .workspace = w->workspace,
                .beta = e->residual >= 0 ? 1 : 0};
    if (!p->measured) choose_algorithm(call, &l);
    return launch_algorithm(call, &l, p->chosen) ? DONE : FAILED;
}

enum { MAX_BATCH = 65535 }; /* limit of a grid's third axis, which some kernels use for the batch */

/* Multiplies all batches, one after another over the outer axes. */
static outcome multiply(const lz_call *call, const method *w, const shape *s, const lz_ending *e) {
    const lz_tensor *tensors[OPERANDS] = {
        [A] = &w->a, [B] = &w->b, [D] = &w->product, [C] = e->residual >= 0 ? &call->in[e->residual] : &w->product};
    int64_t outer = 1, inner = s->axes ? s->size[s->axes - 1] : 1;
    for (int i = 0; i < s->axes - 1; i++) outer *= s->size[i];
    for (int64_t index = 0; index < outer; index++)
        for (int64_t first = 0; first < inner; first += MAX_BATCH) {
            char *at[OPERANDS];
            for (int t = 0; t < OPERANDS; t++) {
                int64_t offset = s->axes ? first * s->step[t][s->axes - 1] : 0, rest = index;
                for (int i = s->axes - 2; i >= 0; i--) {
                    offset += rest % s->size[i] * s->step[t][i];
                    rest /= s->size[i];
                }
                at[t] = tensors[t]->data + offset * lz_dtype_size(tensors[t]->dtype);
            }
            int64_t batch = inner - first < MAX_BATCH ? inner - first : MAX_BATCH;
            outcome o = multiply_batch(call, w, s, e, at, batch);
            if (o != DONE) return o;
        }
    return DONE;
}

static outcome multiply_with_ending(const lz_call *call, const method *w) {
    if (!w->ends || !w->s.k) return REFUSED;
    if (w->ending.gate >= 0) {
        lz_tensor vector = call->in[w->ending.gate];
        vector.strides[0] = vector.strides[vector.dims.n - 1];
        vector.dims = w->gate.dims;
        if (!lz_cuda_convert(call, &vector, &w->gate)) return FAILED;
    }
    return multiply(call, w, &w->ending_shape, &w->ending);
}

/* Multiplies with kernels/conv.cu, one matrix after another. */
static bool multiply_plainly(const lz_call *call, const method *w) {
    int leading = w->product.dims.n - 2;
    int64_t matrices = 1;
    for (int i = 0; i < leading; i++) matrices *= w->product.dims.at[i];
    lz_cuda_trace(call->device, "matmul %s: by our own kernel", lz_dtype_name(w->type));
    for (int64_t index = 0; index < matrices; index++) {
        lz_tensor t[3] = {w->a, w->b, w->product};
        for (int j = 0; j < 3; j++) {
            int64_t offset = 0, rest = index;
            for (int i = leading - 1; i >= 0; i--) {
                offset += rest % w->product.dims.at[i] * t[j].strides[i];
                rest /= w->product.dims.at[i];
            }
            t[j].data += offset * lz_dtype_size(t[j].dtype);
            t[j].strides[0] = t[j].strides[leading], t[j].strides[1] = t[j].strides[leading + 1];
            t[j].dims = LZ_DIMS(t[j].dims.at[leading], t[j].dims.at[leading + 1]);
        }
        if (!lz_cuda_multiply_plainly(call, &t[0], &t[1], &t[2])) return false;
    }
    return true;
}

static bool run_pair(const lz_call *call) {
    lz_tensor products[2], in[2];
    int64_t bytes;
    for (int i = 0; i < 2; i++) {
        lz_call one = one_of_pair(call, i, products, in, &bytes);
        if (!lz_cuda_blas_run(&one)) return false;
    }
    return lz_cuda_finish(call, products);
}

bool lz_cuda_blas_run(const lz_call *call) {
    if (lz_cuda_products(call) == 2) return run_pair(call);
    method w = plan_method(call);
    if (w.copy_a && !lz_cuda_convert(call, &call->in[0], &w.a)) return false;
    if (w.copy_b && !lz_cuda_convert(call, &call->in[1], &w.b)) return false;
    outcome o = multiply_with_ending(call, &w);
    if (o != REFUSED) return o == DONE;
    o = w.s.k ? multiply(call, &w, &w.s, &no_ending) : REFUSED; /* if k is 0, zeros must still be written */
    if (o == FAILED || (o == REFUSED && !multiply_plainly(call, &w))) return false;
    if (w.indirect) return lz_cuda_finish(call, &w.product);
    return !call->expr || lz_cuda_epilogue(call);
}
