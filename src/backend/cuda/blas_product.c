/* blas_product.c: see blas_product.h. */
#include "backend/cuda/blas_product.h"

#include <string.h>

enum { MAX_PRODUCTS = 8192 };

bool lz_blas_ok(const lz_call *call, lz_lt_status status, const char *what) {
    if (status == LZ_CUBLAS_STATUS_SUCCESS) return true;
    lz_fail(call->err, LZ_DEVICE_FAILED, "cuBLASLt: %s: %s", what, call->device->api.lt.GetStatusName(status));
    return false;
}

static lz_cuda_type cuda_type(lz_dtype t) {
    static const lz_cuda_type types[LZ_DTYPE_COUNT] = {
        [LZ_I8] = LZ_CUDA_R_8I,   [LZ_I32] = LZ_CUDA_R_32I,   [LZ_F8] = LZ_CUDA_R_8F_E4M3,
        [LZ_F16] = LZ_CUDA_R_16F, [LZ_BF16] = LZ_CUDA_R_16BF, [LZ_F32] = LZ_CUDA_R_32F};
    return types[t];
}

void lz_blas_end_description(lz_device *d, lz_blas_product *p) {
    for (int t = 0; t < OPERANDS; t++)
        if (p->layout[t]) d->api.lt.MatrixLayoutDestroy(p->layout[t]);
    if (p->desc) d->api.lt.MatmulDescDestroy(p->desc);
}

static void free_product(lz_device *d, lz_blas_product *p) {
    lz_blas_end_description(d, p);
    lz_host_free(d->ctx, p);
}

static void forget_products(lz_device *d) {
    for (int i = 0; i < LZ_BLAS_BUCKETS; i++)
        for (lz_blas_product *p; (p = d->blas->buckets[i]);) {
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
static void stored_size(const lz_blas_key *k, int t, uint64_t *rows, uint64_t *columns) {
    int64_t r = t == B ? k->k : k->m, c = t == A ? k->k : k->n;
    bool flipped = t == A ? k->flipped_a : t == B ? k->flipped_b : true;
    *rows = (uint64_t)(flipped ? c : r), *columns = (uint64_t)(flipped ? r : c);
}

static bool make_layout(const lz_call *call, lz_blas_product *p, int t) {
    const lz_cuda_api *api = &call->device->api;
    const lz_blas_key *k = &p->key;
    uint64_t rows, columns;
    int32_t batch = (int32_t)k->batch;
    stored_size(k, t, &rows, &columns);
    lz_cuda_type type = cuda_type((lz_dtype)(t == A || t == B ? k->type : k->out_type));
    return lz_blas_ok(call, api->lt.MatrixLayoutCreate(&p->layout[t], type, rows, columns, k->ld[t]), "a layout") &&
           lz_blas_ok(call,
                      api->lt.MatrixLayoutSetAttribute(p->layout[t], LZ_CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                       sizeof batch),
                      "a batch") &&
           lz_blas_ok(call,
                      api->lt.MatrixLayoutSetAttribute(p->layout[t], LZ_CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                       &k->step[t], sizeof k->step[t]),
                      "the step of a batch");
}

static bool set_desc(const lz_call *call, lz_blas_product *p, lz_lt_matmul_attribute attribute, const void *value,
                     size_t bytes, const char *what) {
    return lz_blas_ok(call, call->device->api.lt.MatmulDescSetAttribute(p->desc, attribute, value, bytes), what);
}

bool lz_blas_set_vectors(const lz_call *call, lz_blas_product *p, const lz_blas_vectors *v) {
    const struct {
        const void *const *at;
        lz_lt_matmul_attribute attribute;
    } all[] = {{&v->bias, LZ_CUBLASLT_MATMUL_DESC_BIAS_POINTER},
               {&v->column_scales, LZ_CUBLASLT_MATMUL_DESC_A_SCALE_POINTER},
               {&v->row_scales, LZ_CUBLASLT_MATMUL_DESC_B_SCALE_POINTER}};
    bool fine = true;
    for (size_t i = 0; fine && i < sizeof all / sizeof *all; i++)
        fine = !*all[i].at || set_desc(call, p, all[i].attribute, all[i].at, sizeof *all[i].at, "a bias or scales");
    return fine;
}

/* Operands of f8. Fast sums stay in the matrix units, with 14 bits. Sums in f32 take up to an eighth longer, and their smaller
 * error is lost in that of rounding to f8 (docs/performance.md). */
static bool set_f8(const lz_call *call, lz_blas_product *p) {
    const int8_t fast = 1;
    const int32_t outer = LZ_CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    return set_desc(call, p, LZ_CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast, "fast sums") &&
           (!p->key.scaled ||
            (set_desc(call, p, LZ_CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &outer, sizeof outer, "scales of columns") &&
             set_desc(call, p, LZ_CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &outer, sizeof outer, "scales of rows")));
}

static bool make_desc(const lz_call *call, lz_blas_product *p) {
    const lz_blas_key *k = &p->key;
    /* cuBLAS's first operand is b^T, which needs no transposition if b is flipped. Its second is a^T, likewise. */
    int32_t first = k->flipped_b ? LZ_CUBLAS_OP_N : LZ_CUBLAS_OP_T;
    int32_t second = k->flipped_a ? LZ_CUBLAS_OP_N : LZ_CUBLAS_OP_T;
    int32_t pointers = LZ_CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST;
    bool whole = k->type == LZ_I8;
    lz_lt_status made = call->device->api.lt.MatmulDescCreate(
        &p->desc, whole ? LZ_CUBLAS_COMPUTE_32I : LZ_CUBLAS_COMPUTE_32F, whole ? LZ_CUDA_R_32I : LZ_CUDA_R_32F);
    return lz_blas_ok(call, made, "a product") &&
           set_desc(call, p, LZ_CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first, "a transposition") &&
           set_desc(call, p, LZ_CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second, "a transposition") &&
           set_desc(call, p, LZ_CUBLASLT_MATMUL_DESC_EPILOGUE, &k->epilogue, sizeof k->epilogue, "an epilogue") &&
           (k->type != LZ_F8 || set_f8(call, p)) &&
           (!k->gate || set_desc(call, p, LZ_CUBLASLT_MATMUL_DESC_POINTER_MODE, &pointers, sizeof pointers,
                                 "a vector to scale by"));
}

bool lz_blas_describe(const lz_call *call, lz_blas_product *p, const lz_blas_vectors *v) {
    bool fine = make_desc(call, p) && lz_blas_set_vectors(call, p, v);
    for (int t = 0; fine && t < OPERANDS; t++) fine = make_layout(call, p, t);
    return fine;
}

/* The key of a product's algorithms on disk. The first question of a kind takes cuBLAS a tenth of a second, so its
 * answers are kept for later processes. */
static char *algorithms_text(const lz_device *d, const lz_blas_key *k) {
    return lz_choice_text(d->choices, &(lz_choice){.what = "algorithms of a product",
                                                   .library = d->api.lt.GetVersion(),
                                                   .key = k,
                                                   .key_bytes = sizeof *k});
}

static void recall_algorithms(const lz_device *d, lz_blas_product *p) {
    char *text = algorithms_text(d, &p->key), *memory = NULL;
    size_t bytes = 0, one = sizeof p->algorithms[0];
    const char *stored = text ? lz_disk_find(&d->disk, text, &bytes, &memory) : NULL;
    if (stored && bytes % one == 0 && bytes <= sizeof p->algorithms) {
        memcpy(p->algorithms, stored, bytes);
        p->n = (int)(bytes / one);
    }
    for (int i = 0; i < p->n; i++)
        if (p->algorithms[i].workspace > (size_t)p->key.workspace) p->n = 0;
    lz_host_free(d->ctx, memory);
    lz_host_free(d->ctx, text);
}

static void store_algorithms(const lz_device *d, const lz_blas_product *p) {
    char *text = algorithms_text(d, &p->key);
    if (text) lz_disk_keep(&d->disk, text, (const char *)p->algorithms, (size_t)p->n * sizeof p->algorithms[0]);
    lz_host_free(d->ctx, text);
}

/* Asks for algorithms that sum in f32 and in a fixed order: no atomics, no 16-bit sums. */
static bool ask_algorithms(const lz_call *call, lz_blas_product *p) {
    const lz_cuda_api *api = &call->device->api;
    const lz_blas_key *k = &p->key;
    lz_lt_preference wish = NULL;
    if (!lz_blas_ok(call, api->lt.MatmulPreferenceCreate(&wish), "a preference")) return false;
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
        fine = lz_blas_ok(
            call, api->lt.MatmulPreferenceSetAttribute(wish, wishes[i].attribute, wishes[i].value, wishes[i].bytes),
            "a preference");
    lz_lt_status found = LZ_CUBLAS_STATUS_NOT_SUPPORTED;
    if (fine)
        found = api->lt.MatmulAlgoGetHeuristic(call->device->blas->handle, p->desc, p->layout[B], p->layout[A],
                                               p->layout[C], p->layout[D], wish, LZ_BLAS_ALGORITHMS, p->algorithms,
                                               &p->n);
    api->lt.MatmulPreferenceDestroy(wish);
    if (found != LZ_CUBLAS_STATUS_SUCCESS) p->n = 0; /* cuBLAS reports that it has no algorithm */
    int kept = 0;
    for (int i = 0; i < p->n; i++)
        if (p->algorithms[i].state == LZ_CUBLAS_STATUS_SUCCESS && (int64_t)p->algorithms[i].workspace <= k->workspace)
            p->algorithms[kept++] = p->algorithms[i];
    p->n = kept;
    if (kept) store_algorithms(call->device, p);
    if (!kept)
        lz_cuda_trace(call->device, "matmul m %lld n %lld k %lld epilogue %d gate %d: no algorithm (%s)",
                      (long long)k->m, (long long)k->n, (long long)k->k, k->epilogue, k->gate,
                      api->lt.GetStatusName(found));
    return fine;
}

lz_blas_product *lz_blas_find(const lz_call *call, const lz_blas_key *k, const lz_blas_vectors *v) {
    lz_device *d = call->device;
    uint64_t bucket = lz_hash(k, sizeof *k) % LZ_BLAS_BUCKETS;
    for (lz_blas_product *p = d->blas->buckets[bucket]; p; p = p->next)
        if (!memcmp(&p->key, k, sizeof *k)) return p;
    if (d->blas->count >= MAX_PRODUCTS) forget_products(d);
    lz_blas_product *p = lz_host_alloc(d->ctx, sizeof *p);
    if (!p) {
        lz_out_of_memory(call->err, sizeof *p);
        return NULL;
    }
    p->key = *k;
    bool fine = lz_blas_describe(call, p, v); /* the algorithms depend on whether there is a bias */
    if (fine) recall_algorithms(d, p);
    if (!fine || (!p->n && !ask_algorithms(call, p))) {
        free_product(d, p);
        return NULL;
    }
    p->next = d->blas->buckets[bucket];
    d->blas->buckets[bucket] = p;
    d->blas->count++;
    return p;
}
