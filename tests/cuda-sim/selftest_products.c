/* selftest_products.c: the simulated cuBLASLt against products computed one number at a time. Like selftest.c it also
 * runs on a real GPU. */
#include "selftest.h"

#define LT(call) CHECK_I64((call), LZ_CUBLAS_STATUS_SUCCESS)
#define AT(device) ((void *)(uintptr_t)(device))

typedef struct product {
    lz_cuda_type in, out;
    int m, n, k, batch;
    int trans_a, trans_b, order;
    uint32_t epilogue;
    float alpha, beta;
    bool alpha_vector;
} product;

static double load(lz_cuda_type type, const char *at, size_t i) {
    uint16_t bits;
    float f;
    if (type == LZ_CUDA_R_32F) {
        memcpy(&f, at + 4 * i, 4);
        return f;
    }
    memcpy(&bits, at + 2 * i, 2);
    return type == LZ_CUDA_R_16BF ? lz_from_bf16(bits) : lz_from_f16(bits);
}

static void fill(lz_cuda_type type, char *at, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        float f = (float)(int)(seed >> 24) / 64 - 2;
        uint16_t bits = type == LZ_CUDA_R_16BF ? lz_to_bf16(f) : lz_to_f16(f);
        if (type == LZ_CUDA_R_32F)
            memcpy(at + 4 * i, &f, 4);
        else
            memcpy(at + 2 * i, &bits, 2);
    }
}

static size_t size_of(lz_cuda_type type) { return type == LZ_CUDA_R_32F ? 4 : 2; }

typedef struct matrix {
    lz_cuda_type type;
    int rows, cols, ld, order;
    size_t step, bytes;
    char *host;
    lz_cu_ptr device;
    lz_lt_layout layout;
} matrix;

/* With rows one longer than they must be, and matrices further apart. */
static matrix make_matrix(lz_cuda_type type, int rows, int cols, int order, int batch, unsigned seed) {
    int span = order == LZ_CUBLASLT_ORDER_COL ? rows : cols, lines = order == LZ_CUBLASLT_ORDER_COL ? cols : rows;
    matrix m = {.type = type, .rows = rows, .cols = cols, .order = order, .ld = span + 8};
    m.step = (size_t)m.ld * (size_t)lines + 16;
    m.bytes = m.step * (size_t)batch * size_of(type);
    m.host = malloc(m.bytes);
    fill(type, m.host, m.bytes / size_of(type), seed);
    m.device = device_copy(m.host, m.bytes);
    int32_t order32 = order, batch32 = batch;
    int64_t step = (int64_t)m.step;
    LT(api.lt.MatrixLayoutCreate(&m.layout, type, (uint64_t)rows, (uint64_t)cols, m.ld));
    LT(api.lt.MatrixLayoutSetAttribute(m.layout, LZ_CUBLASLT_MATRIX_LAYOUT_ORDER, &order32, 4));
    LT(api.lt.MatrixLayoutSetAttribute(m.layout, LZ_CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch32, 4));
    LT(api.lt.MatrixLayoutSetAttribute(m.layout, LZ_CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, 8));
    return m;
}

static double at(const matrix *m, int batch, int row, int col) {
    int place = m->order == LZ_CUBLASLT_ORDER_COL ? row + col * m->ld : row * m->ld + col;
    return load(m->type, m->host, (size_t)batch * m->step + (size_t)place);
}

static void free_matrix(matrix *m) {
    LT(api.lt.MatrixLayoutDestroy(m->layout));
    OK(api.cu.MemFree(m->device));
    free(m->host);
}

static double wanted(const product *p, const matrix *a, const matrix *b, const matrix *c, const float *alphas,
                     const char *bias, int batch, int row, int col) {
    double v = 0;
    for (int k = 0; k < p->k; k++)
        v += (p->trans_a ? at(a, batch, k, row) : at(a, batch, row, k)) *
             (p->trans_b ? at(b, batch, col, k) : at(b, batch, k, col));
    v = v * (double)(p->alpha_vector ? alphas[row] : p->alpha) + (double)p->beta * at(c, batch, row, col);
    if (p->epilogue & LZ_CUBLASLT_EPILOGUE_BIAS) v += load(p->out, bias, (size_t)row);
    if (p->epilogue & LZ_CUBLASLT_EPILOGUE_RELU) v = v > 0 ? v : 0;
    if (p->epilogue & LZ_CUBLASLT_EPILOGUE_GELU)
        v = 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    return v;
}

static void multiply(lz_lt_handle handle, const product *p) {
    matrix a = make_matrix(p->in, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, p->order, p->batch, 1);
    matrix b = make_matrix(p->in, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, p->order, p->batch, 2);
    matrix c = make_matrix(p->out, p->m, p->n, p->order, p->batch, 3),
           d = make_matrix(p->out, p->m, p->n, p->order, p->batch, 4);
    char bias[4 * 64];
    float alphas[64];
    fill(p->out, bias, 64, 5);
    fill(LZ_CUDA_R_32F, (char *)alphas, 64, 6);
    lz_cu_ptr device_bias = device_copy(bias, sizeof bias), device_alphas = device_copy(alphas, sizeof alphas),
              workspace = 0;
    uint64_t workspace_bytes = 4 << 20;
    OK(api.cu.MemAlloc(&workspace, workspace_bytes));
    lz_lt_matmul_desc desc = NULL;
    lz_lt_preference preference = NULL;
    lz_lt_heuristic found[4];
    int n = 0;
    int32_t trans_a = p->trans_a, trans_b = p->trans_b;
    int32_t mode = p->alpha_vector ? LZ_CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST
                                   : LZ_CUBLASLT_POINTER_MODE_HOST;
    LT(api.lt.MatmulDescCreate(&desc, LZ_CUBLAS_COMPUTE_32F, LZ_CUDA_R_32F));
    LT(api.lt.MatmulDescSetAttribute(desc, LZ_CUBLASLT_MATMUL_DESC_TRANSA, &trans_a, 4));
    LT(api.lt.MatmulDescSetAttribute(desc, LZ_CUBLASLT_MATMUL_DESC_TRANSB, &trans_b, 4));
    LT(api.lt.MatmulDescSetAttribute(desc, LZ_CUBLASLT_MATMUL_DESC_POINTER_MODE, &mode, 4));
    LT(api.lt.MatmulDescSetAttribute(desc, LZ_CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue, 4));
    LT(api.lt.MatmulDescSetAttribute(desc, LZ_CUBLASLT_MATMUL_DESC_BIAS_POINTER, &device_bias, 8));
    LT(api.lt.MatmulPreferenceCreate(&preference));
    LT(api.lt.MatmulPreferenceSetAttribute(preference, LZ_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                           8));
    LT(api.lt.MatmulAlgoGetHeuristic(handle, desc, a.layout, b.layout, c.layout, d.layout, preference, 4, found, &n));
    CHECK(n >= 1);
    if (simulated) CHECK_I64(n, 3);
    const void *alpha = p->alpha_vector ? (const void *)(uintptr_t)device_alphas : &p->alpha;
    double worst = 0, tolerance = p->out == LZ_CUDA_R_32F ? 1e-4 : p->out == LZ_CUDA_R_16F ? 2e-3 : 1e-2;
    for (int i = 0; i < n; i++) {
        CHECK_I64(found[i].state, 0);
        CHECK(found[i].workspace <= workspace_bytes);
        LT(api.lt.Matmul(handle, desc, alpha, AT(a.device), a.layout, AT(b.device), b.layout, &p->beta, AT(c.device),
                         c.layout, AT(d.device), d.layout, &found[i].algo, AT(workspace), workspace_bytes, stream));
        if (found[i].workspace && simulated)
            CHECK_I64(api.lt.Matmul(handle, desc, alpha, AT(a.device), a.layout, AT(b.device), b.layout, &p->beta,
                                    AT(c.device), c.layout, AT(d.device), d.layout, &found[i].algo, NULL, 0, stream),
                      LZ_CUBLAS_STATUS_INVALID_VALUE);
        read_back(d.host, d.device, d.bytes);
        for (int batch = 0; batch < p->batch; batch++)
            for (int row = 0; row < p->m; row++)
                for (int col = 0; col < p->n; col++) {
                    double want = wanted(p, &a, &b, &c, alphas, bias, batch, row, col), got = at(&d, batch, row, col);
                    double error = fabs(got - want) / (1 + fabs(want));
                    worst = error <= worst ? worst : error; /* a NaN counts */
                }
    }
    CHECK(worst < tolerance, "types %d %d trans %d %d order %d epilogue %u: off by %g", p->in, p->out, p->trans_a,
          p->trans_b, p->order, p->epilogue, worst);
    LT(api.lt.MatmulPreferenceDestroy(preference));
    LT(api.lt.MatmulDescDestroy(desc));
    free_matrix(&a), free_matrix(&b), free_matrix(&c), free_matrix(&d);
    OK(api.cu.MemFree(device_bias));
    OK(api.cu.MemFree(device_alphas));
    OK(api.cu.MemFree(workspace));
}

/* What the library refuses, the heuristic refuses. */
static void refuse(lz_lt_handle handle, lz_cuda_type a_type, lz_cuda_type b_type, lz_cuda_type d_type) {
    lz_lt_layout a = NULL, b = NULL, d = NULL;
    lz_lt_matmul_desc desc = NULL;
    lz_lt_preference preference = NULL;
    lz_lt_heuristic found;
    int n = 0;
    LT(api.lt.MatrixLayoutCreate(&a, a_type, 16, 16, 16));
    LT(api.lt.MatrixLayoutCreate(&b, b_type, 16, 16, 16));
    LT(api.lt.MatrixLayoutCreate(&d, d_type, 16, 16, 16));
    LT(api.lt.MatmulDescCreate(&desc, LZ_CUBLAS_COMPUTE_32F, LZ_CUDA_R_32F));
    LT(api.lt.MatmulPreferenceCreate(&preference));
    CHECK_I64(api.lt.MatmulAlgoGetHeuristic(handle, desc, a, b, d, d, preference, 1, &found, &n),
              LZ_CUBLAS_STATUS_NOT_SUPPORTED);
    CHECK_I64(n, 0);
    LT(api.lt.MatrixLayoutDestroy(a));
    LT(api.lt.MatrixLayoutDestroy(b));
    LT(api.lt.MatrixLayoutDestroy(d));
    LT(api.lt.MatmulDescDestroy(desc));
    LT(api.lt.MatmulPreferenceDestroy(preference));
}

static void products(void) {
    static const lz_cuda_type types[][2] = {{LZ_CUDA_R_32F, LZ_CUDA_R_32F},
                                            {LZ_CUDA_R_16BF, LZ_CUDA_R_16BF},
                                            {LZ_CUDA_R_16BF, LZ_CUDA_R_32F},
                                            {LZ_CUDA_R_16F, LZ_CUDA_R_16F},
                                            {LZ_CUDA_R_16F, LZ_CUDA_R_32F}};
    static const uint32_t epilogues[] = {LZ_CUBLASLT_EPILOGUE_BIAS, LZ_CUBLASLT_EPILOGUE_RELU,
                                         LZ_CUBLASLT_EPILOGUE_GELU, LZ_CUBLASLT_EPILOGUE_RELU_BIAS,
                                         LZ_CUBLASLT_EPILOGUE_GELU_BIAS};
    lz_lt_handle handle = NULL;
    LT(api.lt.Create(&handle));
    CHECK(api.lt.GetVersion() >= 120000);
    CHECK_TEXT(api.lt.GetStatusName(LZ_CUBLAS_STATUS_NOT_SUPPORTED), "NOT_SUPPORTED");
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (int i = 0; i < 8; i++) {
            product p = {.in = types[t][0], .out = types[t][1], .m = 24, .n = 16, .k = 40, .batch = 1 + i % 3};
            p.trans_a = i & 1, p.trans_b = i >> 1 & 1, p.order = i >> 2 & 1;
            p.epilogue = LZ_CUBLASLT_EPILOGUE_DEFAULT, p.alpha = 1.5f, p.beta = i % 2 ? -0.5f : 0;
            multiply(handle, &p);
        }
        for (size_t i = 0; i < sizeof epilogues / sizeof *epilogues; i++) {
            product p = {.in = types[t][0], .out = types[t][1], .m = 32, .n = 24, .k = 64, .batch = 1, .trans_a = 1};
            p.epilogue = epilogues[i], p.alpha = 0.25f, p.beta = 0.5f;
            multiply(handle, &p);
        }
        product p = {.in = types[t][0], .out = types[t][1], .m = 32, .n = 24, .k = 64, .batch = 1, .trans_a = 1};
        p.epilogue = LZ_CUBLASLT_EPILOGUE_DEFAULT, p.beta = 1, p.alpha_vector = true;
        multiply(handle, &p);
    }
    refuse(handle, LZ_CUDA_R_16BF, LZ_CUDA_R_32F, LZ_CUDA_R_32F);
    refuse(handle, LZ_CUDA_R_16BF, LZ_CUDA_R_16F, LZ_CUDA_R_32F);
    refuse(handle, LZ_CUDA_R_16BF, LZ_CUDA_R_16BF, LZ_CUDA_R_16F);
    refuse(handle, LZ_CUDA_R_32F, LZ_CUDA_R_32F, LZ_CUDA_R_16BF);
    LT(api.lt.Destroy(handle));
}

/* ---- products of 8-bit integers ----------------------------------------------------------------------------------- */

typedef struct whole {
    int m, n, k, trans_a;
    int ld; /* more than k */
} whole;

/* The number of algorithms for d [m, n] = a^T b, of which each is compared with exact sums. */
static int multiply_whole(lz_lt_handle handle, whole p) {
    enum { MOST = 64 * 96 };
    static int8_t a[MOST], b[MOST];
    static int32_t d[MOST];
    const int32_t one = 1, zero = 0, trans_a = p.trans_a;
    const int ld = p.k + p.ld;
    unsigned seed = 7;
    for (int i = 0; i < MOST; i++) {
        seed = seed * 1664525u + 1013904223u;
        a[i] = i < ld ? -128 : (int8_t)(seed >> 24), b[i] = i < ld ? 127 : (int8_t)(seed >> 16);
    }
    lz_cu_ptr da = device_copy(a, sizeof a), db = device_copy(b, sizeof b), dd = device_copy(NULL, sizeof d),
              workspace = 0;
    uint64_t bytes = 4 << 20;
    OK(api.cu.MemAlloc(&workspace, bytes));
    lz_lt_matmul_desc desc = NULL;
    lz_lt_preference preference = NULL;
    lz_lt_layout layouts[3] = {NULL};
    lz_lt_heuristic found[4];
    int n = 0;
    LT(api.lt.MatmulDescCreate(&desc, LZ_CUBLAS_COMPUTE_32I, LZ_CUDA_R_32I));
    LT(api.lt.MatmulDescSetAttribute(desc, LZ_CUBLASLT_MATMUL_DESC_TRANSA, &trans_a, 4));
    LT(api.lt.MatrixLayoutCreate(&layouts[0], LZ_CUDA_R_8I, (uint64_t)(trans_a ? p.k : p.m),
                                 (uint64_t)(trans_a ? p.m : p.k), trans_a ? ld : p.m));
    LT(api.lt.MatrixLayoutCreate(&layouts[1], LZ_CUDA_R_8I, (uint64_t)p.k, (uint64_t)p.n, ld));
    LT(api.lt.MatrixLayoutCreate(&layouts[2], LZ_CUDA_R_32I, (uint64_t)p.m, (uint64_t)p.n, p.m));
    LT(api.lt.MatmulPreferenceCreate(&preference));
    LT(api.lt.MatmulPreferenceSetAttribute(preference, LZ_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, 8));
    if (api.lt.MatmulAlgoGetHeuristic(handle, desc, layouts[0], layouts[1], layouts[2], layouts[2], preference, 4,
                                      found, &n) != LZ_CUBLAS_STATUS_SUCCESS)
        n = 0;
    for (int i = 0; i < n; i++) {
        LT(api.lt.Matmul(handle, desc, &one, AT(da), layouts[0], AT(db), layouts[1], &zero, AT(dd), layouts[2], AT(dd),
                         layouts[2], &found[i].algo, AT(workspace), bytes, stream));
        read_back(d, dd, sizeof d);
        for (int row = 0; row < p.m; row++)
            for (int col = 0; col < p.n; col++) {
                int32_t sum = 0;
                for (int k = 0; k < p.k; k++) sum += a[row * ld + k] * b[col * ld + k];
                CHECK_I64(d[col * p.m + row], sum);
            }
    }
    for (int i = 0; i < 3; i++) LT(api.lt.MatrixLayoutDestroy(layouts[i]));
    LT(api.lt.MatmulPreferenceDestroy(preference));
    LT(api.lt.MatmulDescDestroy(desc));
    OK(api.cu.MemFree(da));
    OK(api.cu.MemFree(db));
    OK(api.cu.MemFree(dd));
    OK(api.cu.MemFree(workspace));
    return n;
}

static void whole_products(void) {
    lz_lt_handle handle = NULL;
    LT(api.lt.Create(&handle));
    CHECK(multiply_whole(handle, (whole){32, 24, 64, true, 0}) > 0);
    CHECK(multiply_whole(handle, (whole){48, 33, 80, true, 16}) > 0);
    if (simulated) { /* newer libraries may have more */
        CHECK_I64(multiply_whole(handle, (whole){64, 24, 64, false, 0}), 0);
        CHECK_I64(multiply_whole(handle, (whole){32, 16, 64, true, 0}), 0);
        CHECK_I64(multiply_whole(handle, (whole){30, 24, 64, true, 0}), 0);
        CHECK_I64(multiply_whole(handle, (whole){32, 24, 62, true, 2}), 0);
        CHECK_I64(multiply_whole(handle, (whole){32, 24, 64, true, 2}), 0);
    }
    LT(api.lt.Destroy(handle));
}

/* A product can be captured, and is recorded with the numbers it was given. */
static void captures_products(void) {
    float a[4] = {1, 2, 3, 4}, d[4], alpha = 2, beta = 0;
    lz_cu_ptr da = device_copy(a, sizeof a), dd = device_copy(NULL, sizeof d);
    void *pa = AT(da), *pd = AT(dd);
    lz_lt_handle handle = NULL;
    lz_lt_layout layout = NULL;
    lz_lt_matmul_desc desc = NULL;
    lz_cu_graph graph = NULL;
    lz_cu_graph_exec exec = NULL;
    LT(api.lt.Create(&handle));
    LT(api.lt.MatrixLayoutCreate(&layout, LZ_CUDA_R_32F, 2, 2, 2));
    LT(api.lt.MatmulDescCreate(&desc, LZ_CUBLAS_COMPUTE_32F, LZ_CUDA_R_32F));
    OK(api.cu.StreamBeginCapture(stream, LZ_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    LT(api.lt.Matmul(handle, desc, &alpha, pa, layout, pa, layout, &beta, pd, layout, pd, layout, NULL, NULL, 0,
                     stream));
    OK(api.cu.StreamEndCapture(stream, &graph));
    LT(api.lt.MatmulDescDestroy(desc));
    LT(api.lt.MatrixLayoutDestroy(layout));
    alpha = 100;
    OK(api.cu.GraphInstantiateWithFlags(&exec, graph, 0));
    OK(api.cu.GraphLaunch(exec, stream));
    read_back(d, dd, sizeof d); /* columns (1 2) (3 4): twice its square is (14 20) (30 44) */
    CHECK(d[0] == 14 && d[1] == 20 && d[2] == 30 && d[3] == 44, "%g %g %g %g", (double)d[0], (double)d[1], (double)d[2],
          (double)d[3]);
    OK(api.cu.GraphExecDestroy(exec));
    OK(api.cu.GraphDestroy(graph));
    LT(api.lt.Destroy(handle));
    OK(api.cu.MemFree(da));
    OK(api.cu.MemFree(dd));
}

static bool set_up(void) {
    lz_error err = {0};
    return CHECK(lz_cuda_api_open(&api, getenv("LAZULI_CUDA_PATH"), &err), "%s", err.text) &&
           CHECK_I64(open_context(), LZ_CUDA_SUCCESS);
}

static void closes(void) {
    close_context();
    lz_cuda_api_close(&api);
}

int main(int argc, char **argv) {
    static const test_entry tests[] = {
        {"products", products},
        {"whole_products", whole_products},
        {"captures_products", captures_products},
        {"closes", closes},
    };
    return test_run(tests, set_up() ? sizeof tests / sizeof *tests : 0, argc, argv);
}
