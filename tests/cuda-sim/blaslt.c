/* blaslt.c: cuBLASLt's matrix products, one number at a time, with the real library's rules about valid combinations: D
 * = epilogue(alpha op(A) op(B) + beta C + bias), sums in f32 (f64 in f64, i32 in i32).
 *
 * It offers three algorithms. They give the same result, but need different workspaces, and fill them with garbage, so
 * that a workspace that is too small or shared is detected. */
#include <math.h>
#include <stdatomic.h>

#include "op/number.h"
#include "sim.h"

#define DECLARE(returns, name, version, params) EXPORT returns cublasLt##name params;
LZ_LT_FUNCTIONS(DECLARE)

struct cublasLtContext {
    int unused;
};

struct lz_lt_matmul_desc_t {
    int32_t compute, scale, pointer_mode, trans_a, trans_b, trans_c;
    uint32_t epilogue;
    const void *bias;
    int64_t bias_batch_stride;
    int32_t bias_type; /* -1: D's */
    const float *scale_a, *scale_b, *scale_c, *scale_d;
    int32_t sm_target;
    int8_t fast_accum;
    int32_t scale_mode_a, scale_mode_b;
};

struct lz_lt_layout_t {
    uint32_t type;
    int32_t order;
    uint64_t rows, cols;
    int64_t ld;
    int32_t batch;
    int64_t step; /* from one matrix of the batch to the next, in elements */
};

struct lz_lt_preference_t {
    uint32_t search_mode;
    uint64_t workspace;
    uint32_t reductions, align_a, align_b, align_c, align_d;
};

/* ---- descriptions: attributes are fields ------------------------------------------------------------------------ */

typedef struct field {
    size_t place, bytes;
} field;
#define FIELD(type, name)                                                                                              \
    { offsetof(struct type, name), sizeof(((struct type *)0)->name) }

static lz_lt_status set_field(void *what, const field *fields, size_t n, unsigned attribute, const void *value,
                              size_t bytes) {
    if (!what || !value || attribute >= n || !fields[attribute].bytes || fields[attribute].bytes != bytes)
        return LZ_CUBLAS_STATUS_INVALID_VALUE;
    memcpy((char *)what + fields[attribute].place, value, bytes);
    return LZ_CUBLAS_STATUS_SUCCESS;
}

lz_lt_status cublasLtMatmulDescSetAttribute(lz_lt_matmul_desc desc, lz_lt_matmul_attribute attribute, const void *value,
                                            size_t bytes) {
    static const field fields[] = {
        [LZ_CUBLASLT_MATMUL_DESC_COMPUTE_TYPE] = FIELD(lz_lt_matmul_desc_t, compute),
        [LZ_CUBLASLT_MATMUL_DESC_SCALE_TYPE] = FIELD(lz_lt_matmul_desc_t, scale),
        [LZ_CUBLASLT_MATMUL_DESC_POINTER_MODE] = FIELD(lz_lt_matmul_desc_t, pointer_mode),
        [LZ_CUBLASLT_MATMUL_DESC_TRANSA] = FIELD(lz_lt_matmul_desc_t, trans_a),
        [LZ_CUBLASLT_MATMUL_DESC_TRANSB] = FIELD(lz_lt_matmul_desc_t, trans_b),
        [LZ_CUBLASLT_MATMUL_DESC_TRANSC] = FIELD(lz_lt_matmul_desc_t, trans_c),
        [LZ_CUBLASLT_MATMUL_DESC_EPILOGUE] = FIELD(lz_lt_matmul_desc_t, epilogue),
        [LZ_CUBLASLT_MATMUL_DESC_BIAS_POINTER] = FIELD(lz_lt_matmul_desc_t, bias),
        [LZ_CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE] = FIELD(lz_lt_matmul_desc_t, bias_batch_stride),
        [LZ_CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET] = FIELD(lz_lt_matmul_desc_t, sm_target),
        [LZ_CUBLASLT_MATMUL_DESC_A_SCALE_POINTER] = FIELD(lz_lt_matmul_desc_t, scale_a),
        [LZ_CUBLASLT_MATMUL_DESC_B_SCALE_POINTER] = FIELD(lz_lt_matmul_desc_t, scale_b),
        [LZ_CUBLASLT_MATMUL_DESC_C_SCALE_POINTER] = FIELD(lz_lt_matmul_desc_t, scale_c),
        [LZ_CUBLASLT_MATMUL_DESC_D_SCALE_POINTER] = FIELD(lz_lt_matmul_desc_t, scale_d),
        [LZ_CUBLASLT_MATMUL_DESC_FAST_ACCUM] = FIELD(lz_lt_matmul_desc_t, fast_accum),
        [LZ_CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE] = FIELD(lz_lt_matmul_desc_t, bias_type),
        [LZ_CUBLASLT_MATMUL_DESC_A_SCALE_MODE] = FIELD(lz_lt_matmul_desc_t, scale_mode_a),
        [LZ_CUBLASLT_MATMUL_DESC_B_SCALE_MODE] = FIELD(lz_lt_matmul_desc_t, scale_mode_b),
    };
    return set_field(desc, fields, sizeof fields / sizeof *fields, attribute, value, bytes);
}

lz_lt_status cublasLtMatrixLayoutSetAttribute(lz_lt_layout layout, lz_lt_layout_attribute attribute, const void *value,
                                              size_t bytes) {
    static const field fields[] = {
        [LZ_CUBLASLT_MATRIX_LAYOUT_TYPE] = FIELD(lz_lt_layout_t, type),
        [LZ_CUBLASLT_MATRIX_LAYOUT_ORDER] = FIELD(lz_lt_layout_t, order),
        [LZ_CUBLASLT_MATRIX_LAYOUT_ROWS] = FIELD(lz_lt_layout_t, rows),
        [LZ_CUBLASLT_MATRIX_LAYOUT_COLS] = FIELD(lz_lt_layout_t, cols),
        [LZ_CUBLASLT_MATRIX_LAYOUT_LD] = FIELD(lz_lt_layout_t, ld),
        [LZ_CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT] = FIELD(lz_lt_layout_t, batch),
        [LZ_CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET] = FIELD(lz_lt_layout_t, step),
    };
    return set_field(layout, fields, sizeof fields / sizeof *fields, attribute, value, bytes);
}

lz_lt_status cublasLtMatmulPreferenceSetAttribute(lz_lt_preference preference, lz_lt_preference_attribute attribute,
                                                  const void *value, size_t bytes) {
    static const field fields[] = {
        [LZ_CUBLASLT_MATMUL_PREF_SEARCH_MODE] = FIELD(lz_lt_preference_t, search_mode),
        [LZ_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES] = FIELD(lz_lt_preference_t, workspace),
        [LZ_CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK] = FIELD(lz_lt_preference_t, reductions),
        [LZ_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES] = FIELD(lz_lt_preference_t, align_a),
        [LZ_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES] = FIELD(lz_lt_preference_t, align_b),
        [LZ_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES] = FIELD(lz_lt_preference_t, align_c),
        [LZ_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES] = FIELD(lz_lt_preference_t, align_d),
    };
    return set_field(preference, fields, sizeof fields / sizeof *fields, attribute, value, bytes);
}

#define CREATE(made, ...)                                                                                              \
    do {                                                                                                               \
        if (!(made) || !(*(made) = malloc(sizeof **(made)))) return LZ_CUBLAS_STATUS_ALLOC_FAILED;                     \
        **(made) = (__typeof__(**(made)))__VA_ARGS__;                                                                  \
        return LZ_CUBLAS_STATUS_SUCCESS;                                                                               \
    } while (0)

static lz_lt_status destroy(void *what) {
    free(what);
    return what ? LZ_CUBLAS_STATUS_SUCCESS : LZ_CUBLAS_STATUS_INVALID_VALUE;
}

lz_lt_status cublasLtCreate(lz_lt_handle *handle) { CREATE(handle, {0}); }
lz_lt_status cublasLtMatmulDescCreate(lz_lt_matmul_desc *desc, lz_lt_compute compute, lz_cuda_type scale) {
    CREATE(desc, {.compute = (int32_t)compute,
                  .scale = (int32_t)scale,
                  .epilogue = LZ_CUBLASLT_EPILOGUE_DEFAULT,
                  .bias_type = -1});
}
lz_lt_status cublasLtMatrixLayoutCreate(lz_lt_layout *layout, lz_cuda_type type, uint64_t rows, uint64_t cols,
                                        int64_t ld) {
    CREATE(layout, {.type = (uint32_t)type, .rows = rows, .cols = cols, .ld = ld, .batch = 1});
}
lz_lt_status cublasLtMatmulPreferenceCreate(lz_lt_preference *preference) {
    CREATE(preference, {.reductions = 7, .align_a = 256, .align_b = 256, .align_c = 256, .align_d = 256});
}
lz_lt_status cublasLtDestroy(lz_lt_handle handle) { return destroy(handle); }
lz_lt_status cublasLtMatmulDescDestroy(lz_lt_matmul_desc desc) { return destroy(desc); }
lz_lt_status cublasLtMatrixLayoutDestroy(lz_lt_layout layout) { return destroy(layout); }
lz_lt_status cublasLtMatmulPreferenceDestroy(lz_lt_preference preference) { return destroy(preference); }

size_t cublasLtGetVersion(void) { return 130000; }

const char *cublasLtGetStatusName(lz_lt_status status) {
    switch (status) {
    case LZ_CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case LZ_CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case LZ_CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case LZ_CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case LZ_CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    default: return "CUBLAS_STATUS_UNKNOWN";
    }
}

/* ---- what goes together ----------------------------------------------------------------------------------------- */

typedef struct problem {
    struct lz_lt_matmul_desc_t desc;
    struct lz_lt_layout_t a, b, c, d;
} problem;

static size_t size_of(uint32_t type) {
    switch (type) {
    case LZ_CUDA_R_64F: return 8;
    case LZ_CUDA_R_32F:
    case LZ_CUDA_R_32I: return 4;
    case LZ_CUDA_R_16F:
    case LZ_CUDA_R_16BF: return 2;
    default: return 1;
    }
}

/* compute, scale, A and B, C and D. FAST_TF32 takes what 32F takes. */
static const struct {
    int32_t compute, scale;
    uint32_t in, out;
} known[] = {
    {LZ_CUBLAS_COMPUTE_32F, LZ_CUDA_R_32F, LZ_CUDA_R_32F, LZ_CUDA_R_32F},
    {LZ_CUBLAS_COMPUTE_32F, LZ_CUDA_R_32F, LZ_CUDA_R_16BF, LZ_CUDA_R_16BF},
    {LZ_CUBLAS_COMPUTE_32F, LZ_CUDA_R_32F, LZ_CUDA_R_16BF, LZ_CUDA_R_32F},
    {LZ_CUBLAS_COMPUTE_32F, LZ_CUDA_R_32F, LZ_CUDA_R_16F, LZ_CUDA_R_16F},
    {LZ_CUBLAS_COMPUTE_32F, LZ_CUDA_R_32F, LZ_CUDA_R_16F, LZ_CUDA_R_32F},
    {LZ_CUBLAS_COMPUTE_32F, LZ_CUDA_R_32F, LZ_CUDA_R_8I, LZ_CUDA_R_32F},
    {LZ_CUBLAS_COMPUTE_32F, LZ_CUDA_R_32F, LZ_CUDA_R_8F_E4M3, LZ_CUDA_R_16BF},
    {LZ_CUBLAS_COMPUTE_32F, LZ_CUDA_R_32F, LZ_CUDA_R_8F_E4M3, LZ_CUDA_R_16F},
    {LZ_CUBLAS_COMPUTE_32F, LZ_CUDA_R_32F, LZ_CUDA_R_8F_E4M3, LZ_CUDA_R_32F},
    {LZ_CUBLAS_COMPUTE_64F, LZ_CUDA_R_64F, LZ_CUDA_R_64F, LZ_CUDA_R_64F},
    {LZ_CUBLAS_COMPUTE_32I, LZ_CUDA_R_32I, LZ_CUDA_R_8I, LZ_CUDA_R_32I},
};

static bool types_fit(const problem *p) {
    int32_t compute = p->desc.compute;
    if (compute == LZ_CUBLAS_COMPUTE_32F_FAST_TF32 || compute == LZ_CUBLAS_COMPUTE_32F_PEDANTIC)
        compute = LZ_CUBLAS_COMPUTE_32F;
    if (p->a.type != p->b.type || p->c.type != p->d.type) return false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (compute == known[i].compute && p->desc.scale == known[i].scale && p->a.type == known[i].in &&
            p->d.type == known[i].out)
            return true;
    return false;
}

/* Operands of 8 bits have sizes along k that are multiples of so many elements, and addresses that are multiples of so many bytes. */
static uint32_t group_of(const problem *p) { return p->a.type == LZ_CUDA_R_8I ? 4 : 16; }

/* A leading dimension spans a column (ORDER_COL) or a row; a batch of strided matrices does not overlap in D. */
static bool layout_fits(const struct lz_lt_layout_t *l) {
    uint64_t span = l->order == LZ_CUBLASLT_ORDER_COL ? l->rows : l->cols;
    return l->rows && l->cols && l->ld >= 0 && (uint64_t)l->ld >= span && l->batch >= 1 && (unsigned)l->order <= 1;
}

static lz_lt_status check(const problem *p) {
    const struct lz_lt_matmul_desc_t *d = &p->desc;
    if (!layout_fits(&p->a) || !layout_fits(&p->b) || !layout_fits(&p->c) || !layout_fits(&p->d))
        return LZ_CUBLAS_STATUS_INVALID_VALUE;
    uint64_t m = d->trans_a ? p->a.cols : p->a.rows, k = d->trans_a ? p->a.rows : p->a.cols;
    uint64_t n = d->trans_b ? p->b.rows : p->b.cols, k_of_b = d->trans_b ? p->b.cols : p->b.rows;
    bool shapes = k == k_of_b && p->d.rows == m && p->d.cols == n && p->c.rows == m && p->c.cols == n;
    bool batches = p->a.batch == p->d.batch && p->b.batch == p->d.batch && p->c.batch == p->d.batch;
    bool orders = p->c.order == p->d.order && !d->trans_c;
    if (!shapes || !batches || !orders) return LZ_CUBLAS_STATUS_INVALID_VALUE;
    if (!types_fit(p)) return LZ_CUBLAS_STATUS_NOT_SUPPORTED;

    bool eight_bits = size_of(p->a.type) == 1;
    if (eight_bits) { /* rows of both along k, in whole groups */
        uint64_t group = group_of(p);
        bool tn = d->trans_a && !d->trans_b && !p->a.order && !p->b.order && !p->d.order;
        if (!tn || k % group || m % group || (uint64_t)p->a.ld % group || (uint64_t)p->b.ld % group)
            return LZ_CUBLAS_STATUS_NOT_SUPPORTED;
    }
    /* PyTorch asks for more than 16 rows in _int_mm, since the library has no algorithm for fewer. */
    if (p->a.type == LZ_CUDA_R_8I && (n <= 16 || p->c.ld % 4 || p->d.ld % 4)) return LZ_CUBLAS_STATUS_NOT_SUPPORTED;
    uint32_t plain = d->epilogue & ~(uint32_t)LZ_CUBLASLT_EPILOGUE_BIAS;
    bool known_epilogue = !plain || plain == LZ_CUBLASLT_EPILOGUE_DEFAULT || plain == LZ_CUBLASLT_EPILOGUE_RELU ||
                          plain == LZ_CUBLASLT_EPILOGUE_GELU;
    bool floats = d->scale == LZ_CUDA_R_32F;
    if (!known_epilogue || (d->epilogue != LZ_CUBLASLT_EPILOGUE_DEFAULT && !floats))
        return LZ_CUBLAS_STATUS_NOT_SUPPORTED;
    if (d->epilogue & LZ_CUBLASLT_EPILOGUE_BIAS) {
        bool own_type = d->bias_type < 0 || (uint32_t)d->bias_type == p->d.type;
        bool of_eight = eight_bits && p->d.type == LZ_CUDA_R_32F && d->bias_type == LZ_CUDA_R_16BF;
        if (p->d.order != LZ_CUBLASLT_ORDER_COL || (!own_type && !of_eight)) return LZ_CUBLAS_STATUS_NOT_SUPPORTED;
    }
    bool known_mode = d->pointer_mode == LZ_CUBLASLT_POINTER_MODE_HOST ||
                      d->pointer_mode == LZ_CUBLASLT_POINTER_MODE_DEVICE ||
                      d->pointer_mode == LZ_CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST;
    return known_mode ? LZ_CUBLAS_STATUS_SUCCESS : LZ_CUBLAS_STATUS_NOT_SUPPORTED;
}

/* ---- algorithms ------------------------------------------------------------------------------------------------- */

static const size_t workspaces[3] = {64 << 10, 0, 1 << 20};

/* How often algorithms were asked for. */
static atomic_long asked;
EXPORT long lz_sim_lt_asked(void);
long lz_sim_lt_asked(void) { return atomic_load(&asked); }

lz_lt_status cublasLtMatmulAlgoGetHeuristic(lz_lt_handle handle, lz_lt_matmul_desc desc, lz_lt_layout a, lz_lt_layout b,
                                            lz_lt_layout c, lz_lt_layout d, lz_lt_preference preference, int wanted,
                                            lz_lt_heuristic *results, int *found) {
    if (!handle || !desc || !a || !b || !c || !d || !preference || wanted < 1) return LZ_CUBLAS_STATUS_INVALID_VALUE;
    problem p = {*desc, *a, *b, *c, *d};
    atomic_fetch_add(&asked, 1);
    *found = 0;
    lz_lt_status status = check(&p);
    if (status) return status;
    if (size_of(p.a.type) == 1 && (preference->align_a % group_of(&p) || preference->align_b % group_of(&p)))
        return LZ_CUBLAS_STATUS_NOT_SUPPORTED;
    for (uint64_t i = 0; i < 3 && *found < wanted; i++) {
        if (workspaces[i] > preference->workspace) continue;
        results[(*found)++] = (lz_lt_heuristic){.algo = {{i + 1}}, .workspace = workspaces[i], .waves = 1};
    }
    return LZ_CUBLAS_STATUS_SUCCESS;
}

lz_lt_status cublasLtMatmulAlgoConfigGetAttribute(const lz_lt_algo *algo, lz_lt_config_attribute attribute, void *value,
                                                  size_t bytes, size_t *written) {
    int32_t number = attribute == LZ_CUBLASLT_ALGO_CONFIG_ID           ? (int32_t)algo->data[0]
                     : attribute == LZ_CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? 1
                                                                       : 0;
    if (written) *written = sizeof number;
    if (bytes < sizeof number) return LZ_CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &number, sizeof number);
    return LZ_CUBLAS_STATUS_SUCCESS;
}

/* ---- products --------------------------------------------------------------------------------------------------- */

typedef struct job {
    problem p;
    const char *a, *b, *c;
    char *d, *workspace;
    size_t workspace_bytes;
    const void *alpha_at, *beta_at; /* on the device, or NULL: */
    double alpha, beta;
} job;

static double read_number(uint32_t type, const char *at) {
    union {
        double f64;
        float f32;
        int32_t i32;
        uint16_t bits;
        int8_t i8;
        uint8_t u8;
    } u;
    memcpy(&u, at, size_of(type));
    switch (type) {
    case LZ_CUDA_R_64F: return u.f64;
    case LZ_CUDA_R_32F: return u.f32;
    case LZ_CUDA_R_32I: return u.i32;
    case LZ_CUDA_R_16F: return lz_from_f16(u.bits);
    case LZ_CUDA_R_16BF: return lz_from_bf16(u.bits);
    case LZ_CUDA_R_8I: return u.i8;
    default: return lz_from_f8(u.u8);
    }
}

static void write_number(uint32_t type, char *at, double value) {
    union {
        double f64;
        float f32;
        int32_t i32;
        uint16_t bits;
    } u = {0};
    switch (type) {
    case LZ_CUDA_R_64F: u.f64 = value; break;
    case LZ_CUDA_R_32F: u.f32 = (float)value; break;
    case LZ_CUDA_R_32I: u.i32 = (int32_t)value; break;
    case LZ_CUDA_R_16F: u.bits = lz_to_f16((float)value); break;
    default: u.bits = lz_to_bf16((float)value); break;
    }
    memcpy(at, &u, size_of(type));
}

/* Where element (row, column) of matrix number `batch` lies. */
static size_t place(const struct lz_lt_layout_t *l, int64_t batch, uint64_t row, uint64_t column) {
    int64_t in_matrix = l->order == LZ_CUBLASLT_ORDER_COL ? (int64_t)row + (int64_t)column * l->ld
                                                          : (int64_t)row * l->ld + (int64_t)column;
    return (size_t)(batch * l->step + in_matrix) * size_of(l->type);
}

/* op(A) as rows of k numbers, op(B) as k rows: f32, or f64 where sums are not in f32. TF32 keeps 10 bits of each. */
static void *unpack(const job *j, bool is_b, int64_t batch, uint64_t lines, uint64_t k, bool single) {
    const struct lz_lt_layout_t *l = is_b ? &j->p.b : &j->p.a;
    const char *from = is_b ? j->b : j->a;
    bool k_is_row = is_b ? !j->p.desc.trans_b : j->p.desc.trans_a;
    const float *scale = is_b ? j->p.desc.scale_b : j->p.desc.scale_a;
    int32_t mode = is_b ? j->p.desc.scale_mode_b : j->p.desc.scale_mode_a;
    bool tf32 = j->p.desc.compute == LZ_CUBLAS_COMPUTE_32F_FAST_TF32 && l->type == LZ_CUDA_R_32F;
    void *numbers = malloc((single ? sizeof(float) : sizeof(double)) * lines * k);
    if (!numbers) abort();
    for (uint64_t i = 0; i < lines; i++) {
        double factor = !scale ? 1 : mode == LZ_CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F ? scale[i] : scale[0];
        for (uint64_t x = 0; x < k; x++) {
            double v = read_number(l->type, from + (k_is_row ? place(l, batch, x, i) : place(l, batch, i, x)));
            if (tf32) v = lz_bits_to_float((lz_float_to_bits((float)v) + 0x1000u) & ~0x1fffu);
            uint64_t to = is_b ? x * lines + i : i * k + x;
            if (single)
                ((float *)numbers)[to] = (float)(v * factor);
            else
                ((double *)numbers)[to] = v * factor;
        }
    }
    return numbers;
}

/* One row of the product: sums over k, in order, side by side. */
#define ROW(name, type)                                                                                                \
    static void name(const type *a, const type *b, type *restrict sums, uint64_t n, uint64_t k) {                      \
        memset(sums, 0, sizeof *sums *n);                                                                              \
        for (uint64_t x = 0; x < k; x++)                                                                               \
            for (uint64_t i = 0; i < n; i++) sums[i] += a[x] * b[x * n + i];                                           \
    }
ROW(row_f32, float)
ROW(row_f64, double)

static double finish(const job *j, int64_t batch, uint64_t row, uint64_t column, double sum) {
    const struct lz_lt_matmul_desc_t *d = &j->p.desc;
    bool vector = d->pointer_mode == LZ_CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST;
    uint32_t scale = (uint32_t)d->scale;
    double alpha = j->alpha_at ? read_number(scale, (const char *)j->alpha_at + (vector ? row * size_of(scale) : 0))
                               : j->alpha;
    double beta = j->beta_at ? read_number(scale, j->beta_at) : j->beta;
    double v = alpha * sum;
    /* With beta 0, C is not even read: it may be NaN. */
    if (beta != 0) v += beta * read_number(j->p.c.type, j->c + place(&j->p.c, batch, row, column));
    if (d->epilogue & LZ_CUBLASLT_EPILOGUE_BIAS) {
        uint32_t type = d->bias_type < 0 ? j->p.d.type : (uint32_t)d->bias_type;
        v += read_number(type,
                         (const char *)d->bias + ((uint64_t)(batch * d->bias_batch_stride) + row) * size_of(type));
    }
    if (d->epilogue & LZ_CUBLASLT_EPILOGUE_RELU) v = v > 0 ? v : 0;
    if (d->epilogue & LZ_CUBLASLT_EPILOGUE_GELU)
        v = 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    return d->scale_d ? v * *d->scale_d : v;
}

static void run_job(void *data) {
    const job *j = data;
    const problem *p = &j->p;
    uint64_t m = p->d.rows, n = p->d.cols, k = p->desc.trans_a ? p->a.rows : p->a.cols;
    if (j->workspace_bytes) memset(j->workspace, 0xee, j->workspace_bytes);
    bool single = p->desc.scale == LZ_CUDA_R_32F;
    void *sums = malloc(sizeof(double) * n);
    if (!sums) abort();
    for (int64_t batch = 0; batch < p->d.batch; batch++) {
        void *a = unpack(j, false, batch, m, k, single), *b = unpack(j, true, batch, n, k, single);
        for (uint64_t row = 0; row < m; row++) {
            if (single)
                row_f32((float *)a + row * k, b, sums, n, k);
            else
                row_f64((double *)a + row * k, b, sums, n, k);
            for (uint64_t column = 0; column < n; column++) {
                double sum = single ? ((float *)sums)[column] : ((double *)sums)[column];
                write_number(p->d.type, j->d + place(&p->d, batch, row, column), finish(j, batch, row, column, sum));
            }
        }
        free(a);
        free(b);
    }
    free(sums);
}

lz_lt_status cublasLtMatmul(lz_lt_handle handle, lz_lt_matmul_desc desc, const void *alpha, const void *a,
                            lz_lt_layout a_layout, const void *b, lz_lt_layout b_layout, const void *beta,
                            const void *c, lz_lt_layout c_layout, void *d, lz_lt_layout d_layout,
                            const lz_lt_algo *algo, void *workspace, size_t workspace_bytes, lz_cu_stream stream) {
    if (!handle || !desc || !alpha || !beta || !a || !b || !d || !a_layout || !b_layout || !c_layout || !d_layout)
        return LZ_CUBLAS_STATUS_INVALID_VALUE;
    job j = {.p = {*desc, *a_layout, *b_layout, *c_layout, *d_layout}, .a = a, .b = b, .c = c, .d = d};
    lz_lt_status status = check(&j.p);
    if (status) return status;
    if (size_of(j.p.a.type) == 1 && ((uintptr_t)a | (uintptr_t)b) % group_of(&j.p))
        return LZ_CUBLAS_STATUS_NOT_SUPPORTED;
    const struct lz_lt_matmul_desc_t *m = &j.p.desc;
    if (m->epilogue & LZ_CUBLASLT_EPILOGUE_BIAS && !m->bias) return LZ_CUBLAS_STATUS_INVALID_VALUE;
    if (m->scale_mode_a == LZ_CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F) { /* seen on an H200 with 13.0 */
        if (!m->scale_a || !m->scale_b) return LZ_CUBLAS_STATUS_INVALID_VALUE;
        if (((uintptr_t)m->scale_a | (uintptr_t)m->scale_b) % 16) return LZ_CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (algo) { /* none: the library finds one that needs no more than there is */
        if (algo->data[0] < 1 || algo->data[0] > 3) return LZ_CUBLAS_STATUS_INVALID_VALUE;
        j.workspace = workspace;
        j.workspace_bytes = workspaces[algo->data[0] - 1];
        if (j.workspace_bytes > workspace_bytes || (j.workspace_bytes && !workspace))
            return LZ_CUBLAS_STATUS_INVALID_VALUE;
    }
    if (m->pointer_mode == LZ_CUBLASLT_POINTER_MODE_HOST)
        j.alpha = read_number((uint32_t)m->scale, alpha);
    else
        j.alpha_at = alpha;
    if (m->pointer_mode == LZ_CUBLASLT_POINTER_MODE_DEVICE)
        j.beta_at = beta;
    else
        j.beta = read_number((uint32_t)m->scale, beta);
    lz_cu_result result = lz_sim_enqueue(stream, run_job, &j, sizeof j);
    if (result == LZ_CUDA_ERROR_OUT_OF_MEMORY) return LZ_CUBLAS_STATUS_ALLOC_FAILED;
    return result ? LZ_CUBLAS_STATUS_EXECUTION_FAILED : LZ_CUBLAS_STATUS_SUCCESS;
}
