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
 * times.
 *
 * Products of codes, f8 or i8 (lz_code_scales), have whole rows. Those of f8 can have scales of the rows of a, and of the
 * columns of b, by which a gate is multiplied. Those of i8 are sums of i32. */
#include <stddef.h>
#include <string.h>

#include "backend/cuda/blas_product.h"
#include "backend/cuda/load.h"
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
    lz_tensor gate;              /* a copy as f32, in scratch */
    const lz_code_scales *codes; /* NULL: no product of codes */
    lz_tensor columns, rows;     /* of codes: space for scales of the columns and of the rows, f32, in scratch */
    const char *column_scales;
    lz_tensor bias; /* of codes: space for gate * bias, in scratch */
    char *workspace;
    int64_t workspace_bytes;
} method;

static bool needs_copy(const lz_tensor *t, lz_dtype type) {
    int last = t->dims.n - 1;
    matrix m;
    return t->dtype != type ||
           !lz_blas_as_matrix(t->dims.at[last - 1], t->dims.at[last], t->strides[last - 1], t->strides[last], &m);
}

/* Can cuBLAS write the type? It writes f32, or the type of its operands; with operands of f8, all of 16 bits; of i8 only
 * i32. */
static bool writes(lz_dtype type, lz_dtype out) {
    if (type == LZ_I8) return out == LZ_I32;
    return out == LZ_F32 || (type == LZ_F8 ? out == LZ_BF16 || out == LZ_F16 : out == type);
}

static bool find_shape(const method *w, const lz_tensor *c, shape *s) {
    return w->codes ? lz_blas_find_dense_shape(&w->a, &w->b, &w->product, c, s)
                    : lz_blas_find_shape(&w->a, &w->b, &w->product, c, s);
}

/* A gate or bias as a tensor of one axis. */
static lz_tensor vector_of(const lz_call *call, int input) {
    lz_tensor vector = call->in[input];
    int last = vector.dims.n - 1;
    vector.strides[0] = vector.strides[last];
    vector.dims = LZ_DIMS(vector.dims.at[last]);
    return vector;
}

static void plan_ending(const lz_call *call, method *w, lz_scratch *p) {
    if (!call->expr || w->indirect || w->type == LZ_F32 || !lz_cuda_read_ending(call, &w->ending)) return;
    if (w->ending.gated_bias && !w->codes) return;
    if (w->ending.gated_bias) w->bias = lz_cuda_packed(p, &w->columns, call->out.dtype, 1);
    const lz_tensor *c = w->ending.residual >= 0 ? &call->in[w->ending.residual] : NULL;
    if (!find_shape(w, c, &w->ending_shape)) return;
    w->ends = true;
    if (w->ending.gate < 0 || w->codes) return;
    const lz_tensor vector = vector_of(call, w->ending.gate);
    w->gate = lz_cuda_packed(p, &vector, LZ_F32, 1);
}

/* scratch() and run() call this, and get the same plan. codes: NULL, or the scales of a product of codes. */
static method plan_method(const lz_call *call, const lz_code_scales *codes) {
    method w;
    memset(&w, 0, sizeof w);
    lz_scratch p = lz_scratch_at(call->scratch);
    w.codes = codes;
    w.type = codes ? call->in[0].dtype : lz_cuda_common_type(call->in[0].dtype, call->in[1].dtype);
    const lz_tensor columns = {.dims = LZ_DIMS(call->out.dims.at[call->out.dims.n - 1]), .strides = {1}};
    if (codes) w.columns = lz_cuda_packed(&p, &columns, LZ_F32, 1);
    lz_dims leading = call->out.dims;
    leading.n--;
    const lz_tensor rows = {.dims = LZ_DIMS(lz_dims_size(leading)), .strides = {1}};
    if (codes) w.rows = lz_cuda_packed(&p, &rows, LZ_F32, 1);
    w.a = call->in[0], w.b = call->in[1], w.product = call->out;
    w.copy_a = needs_copy(&w.a, w.type), w.copy_b = needs_copy(&w.b, w.type);
    if (w.copy_a) w.a = lz_cuda_packed(&p, &w.a, w.type, 2);
    if (w.copy_b) w.b = lz_cuda_packed(&p, &w.b, w.type, 2);
    w.indirect = !writes(w.type, call->out.dtype) || !find_shape(&w, NULL, &w.s);
    if (w.indirect) {
        w.product = lz_cuda_packed(&p, &call->out, LZ_F32, call->out.dims.n);
        find_shape(&w, NULL, &w.s);
    }
    plan_ending(call, &w, &p);
    double work = lz_blas_work(&w.s);
    w.workspace_bytes = work >= LZ_LARGE_WORK ? KEEP_BYTES : work >= SMALL_WORK ? SMALL_BYTES : 0;
    if (w.type == LZ_I8) w.workspace_bytes = 0; /* PyTorch says that products of i8 failed with a workspace */
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

int64_t lz_cuda_blas_scratch_codes(const lz_call *call, const lz_code_scales *codes) {
    lz_call measured = *call;
    measured.scratch = NULL;
    return plan_method(&measured, codes).workspace_bytes;
}

int64_t lz_cuda_blas_scratch(const lz_call *call) {
    lz_call measured = *call;
    measured.scratch = NULL;
    if (lz_cuda_products(call) == 1) return plan_method(&measured, NULL).workspace_bytes;
    lz_tensor products[2], in[2];
    int64_t bytes;
    lz_call one = one_of_pair(&measured, 0, products, in, &bytes);
    return bytes + plan_method(&one, NULL).workspace_bytes;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* Arguments of one launch of cuBLAS. */
typedef struct launch {
    lz_blas_product *p;
    const void *alpha, *a, *b, *c;
    void *d, *workspace;
    float beta;
    lz_cu_stream stream;
} launch;

static bool launch_algorithm(const lz_call *call, void *arg, int i) {
    const launch *l = arg;
    const lz_blas_product *p = l->p;
    lz_device *d = call->device;
    lz_lt_status status = d->api.lt.Matmul(d->blas->handle, p->desc, l->alpha, l->b, p->layout[B], l->a, p->layout[A],
                                           &l->beta, l->c, p->layout[C], l->d, p->layout[D], &p->algorithms[i].algo,
                                           l->workspace, (size_t)p->key.workspace, l->stream);
    return lz_blas_ok(call, status, "a matrix product");
}

static void log_choice(const lz_device *d, const lz_blas_product *p) {
    const lz_blas_key *k = &p->key;
    lz_cuda_trace(d, "matmul %s m %lld n %lld k %lld batch %lld epilogue %d gate %d c %d: algorithm %d of %d",
                  lz_dtype_name((lz_dtype)k->type), (long long)k->m, (long long)k->n, (long long)k->k,
                  (long long)k->batch, k->epilogue, k->gate, k->residual, p->chosen, p->n);
}

static bool worth_measuring(const lz_blas_product *p) {
    const lz_blas_key *k = &p->key;
    double work = 2.0 * (double)k->m * (double)k->n * (double)k->k * (double)k->batch;
    return p->n > 1 && k->type != LZ_F32 && work >= LZ_LARGE_WORK;
}

static lz_choice choice_of(const lz_device *d, const lz_blas_product *p) {
    return (lz_choice){.what = "algorithm of a product",
                       .library = d->api.lt.GetVersion(),
                       .key = &p->key,
                       .key_bytes = sizeof p->key};
}

static void choose_algorithm(const lz_call *call, launch *l) {
    lz_blas_product *p = l->p;
    bool worth = worth_measuring(p);
    lz_choice c = worth ? choice_of(call->device, p) : (lz_choice){.what = NULL};
    int chosen = worth ? lz_cuda_choose(call, &c, p->n, launch_algorithm, l) : 0;
    p->chosen = chosen < 0 ? 0 : chosen;
    /* Otherwise the first algorithm is used, and a later run measures. */
    p->measured = !call->device->recording || chosen >= 0;
    if (worth) log_choice(call->device, p);
}

/* The algorithm that the first launch will use; -1: it will be measured. */
static int known_algorithm(const lz_device *d, const lz_blas_product *p) {
    int chosen = p->chosen;
    if (p->measured || !worth_measuring(p)) return chosen;
    lz_choice c = choice_of(d, p);
    return lz_choices_find(d->choices, &c, p->n, &chosen) ? chosen : -1;
}

/* The first launch of a product, with stand-ins of its addresses. The description is its own, because launches of the
 * product change the vectors in theirs. */
typedef struct product_load {
    lz_cuda_load load;
    launch launch;
    lz_blas_product product;
    lz_blas_vectors vectors;
    int algorithm;
    char alpha[sizeof(float)]; /* a copy, if the product reads it in host memory */
} product_load;

static void load_product(lz_device *d, lz_cuda_load *load, lz_cu_stream stream) {
    product_load *l = (product_load *)load;
    lz_error unused = {.status = LZ_OK};
    const lz_call call = {.device = d, .err = &unused};
    l->launch.stream = stream;
    if (lz_blas_describe(&call, &l->product, &l->vectors)) launch_algorithm(&call, &l->launch, l->algorithm);
    lz_blas_end_description(d, &l->product);
}

static void list_product(lz_device *d, const launch *l, const lz_blas_vectors *v, bool alpha_on_host) {
    int algorithm = l->p->loaded ? -1 : known_algorithm(d, l->p);
    product_load *load = algorithm >= 0 ? lz_host_alloc(d->ctx, sizeof *load) : NULL;
    l->p->loaded = true;
    if (!load) return;
    *load = (product_load){.load = {.launch = load_product},
                           .launch = *l,
                           .product = {.key = l->p->key, .n = l->p->n},
                           .vectors = *v,
                           .algorithm = algorithm};
    memcpy(load->product.algorithms, l->p->algorithms, sizeof l->p->algorithms);
    load->launch.p = &load->product;
    if (alpha_on_host) {
        memcpy(load->alpha, l->alpha, sizeof load->alpha);
        load->launch.alpha = load->alpha;
    }
    lz_cuda_list_load(d, &load->load);
}

typedef enum outcome { DONE, REFUSED, FAILED } outcome;

static int32_t epilogue_code(const lz_ending *e) {
    if (e->bias >= 0) return e->gelu_tanh ? LZ_CUBLASLT_EPILOGUE_GELU_BIAS : LZ_CUBLASLT_EPILOGUE_BIAS;
    return e->gelu_tanh ? LZ_CUBLASLT_EPILOGUE_GELU : LZ_CUBLASLT_EPILOGUE_DEFAULT;
}

static const lz_ending no_ending = {.gate = -1, .bias = -1, .residual = -1};

static int32_t address_alignment(const void *p) {
    uintptr_t bits = (uintptr_t)p | 16;
    return (int32_t)(bits & (~bits + 1));
}

/* Scales of m rows as cuBLAS reads them, which is at multiples of 16 bytes: a copy if they are elsewhere. NULL: err has the
 * reason. */
static const char *align_scales(const lz_call *call, const method *w, const char *scales, int64_t m) {
    if (address_alignment(scales) >= 16) return scales;
    lz_tensor tensors[2] = {w->rows, w->rows};
    tensors[0].dims = tensors[1].dims = LZ_DIMS(m);
    tensors[1].data = (char *)scales;
    return lz_cuda_multiply_all(call, tensors, 2) ? w->rows.data : NULL;
}

/* Multiplies one batch: `batch` matrices along the last axis of s. at[] has the addresses at the current indices of all
 * axes. */
static outcome multiply_batch(const lz_call *call, const method *w, const shape *s, const lz_ending *e,
                              char *const at[OPERANDS], int64_t batch) {
    lz_blas_key k;
    memset(&k, 0, sizeof k);
    k.m = s->m, k.n = s->n, k.k = s->k, k.batch = batch;
    k.type = (int32_t)w->type, k.out_type = (int32_t)w->product.dtype;
    k.flipped_a = s->at[A].flipped, k.flipped_b = s->at[B].flipped;
    bool gated = e->gate >= 0 && !w->codes;
    k.epilogue = epilogue_code(e), k.gate = gated, k.residual = e->residual >= 0;
    k.scaled = w->codes && w->codes->rows;
    k.workspace = w->workspace_bytes;
    for (int t = 0; t < OPERANDS; t++) {
        k.ld[t] = s->at[t].ld;
        k.step[t] = batch > 1 ? s->step[t][s->axes - 1] : 0;
        k.align[t] = address_alignment(at[t]);
    }
    lz_blas_vectors v = {.bias = e->gated_bias ? w->bias.data : e->bias >= 0 ? call->in[e->bias].data : NULL};
    if (k.scaled) { /* rows of codes are k apart */
        v.row_scales = align_scales(call, w, w->codes->rows + (at[A] - w->a.data) / s->k * (int64_t)sizeof(float),
                                    s->m);
        v.column_scales = w->column_scales;
        if (!v.row_scales) return FAILED;
    }
    if (v.bias && address_alignment(v.bias) < k.align[D]) k.align[D] = address_alignment(v.bias);
    lz_blas_product *p = lz_blas_find(call, &k, &v);
    if (!p || !lz_blas_set_vectors(call, p, &v)) return FAILED;
    if (!p->n) return REFUSED;
    const float one = w->codes ? w->codes->factor : 1;
    const int32_t whole =
        1; /* products of i8 have alpha and beta of i32; their beta is 0, whose bits are those of 0.0f */
    launch l = {.p = p,
                .alpha = gated              ? (const void *)w->gate.data
                         : w->type == LZ_I8 ? (const void *)&whole
                                            : &one,
                .a = at[A],
                .b = at[B],
                .c = at[C],
                .d = at[D],
                .workspace = w->workspace,
                .beta = e->residual >= 0 ? 1 : 0,
                .stream = call->device->stream};
    if (call->device->rehearsing) {
        list_product(call->device, &l, &v, !gated);
        return DONE;
    }
    p->loaded = true;
    if (!p->measured) choose_algorithm(call, &l);
    return launch_algorithm(call, &l, p->chosen) ? DONE : FAILED;
}

enum { MAX_BATCH = 65535 }; /* limit of a grid's third axis, which some kernels use for the batch */

/* Multiplies all batches, one after another over the outer axes. */
static outcome multiply(const lz_call *call, const method *w, const shape *s, const lz_ending *e) {
    const lz_tensor *tensors[OPERANDS] = {
        [A] = &w->a, [B] = &w->b, [D] = &w->product, [C] = e->residual >= 0 ? &call->in[e->residual] : &w->product};
    int64_t outer = 1, inner = s->axes ? s->size[s->axes - 1] : 1, most = w->codes ? 1 : MAX_BATCH;
    for (int i = 0; i < s->axes - 1; i++) outer *= s->size[i];
    for (int64_t index = 0; index < outer; index++)
        for (int64_t first = 0; first < inner; first += most) {
            char *at[OPERANDS];
            for (int t = 0; t < OPERANDS; t++) {
                int64_t offset = s->axes ? first * s->step[t][s->axes - 1] : 0, rest = index;
                for (int i = s->axes - 2; i >= 0; i--) {
                    offset += rest % s->size[i] * s->step[t][i];
                    rest /= s->size[i];
                }
                at[t] = tensors[t]->data + offset * lz_dtype_size(tensors[t]->dtype);
            }
            int64_t batch = inner - first < most ? inner - first : most;
            outcome o = multiply_batch(call, w, s, e, at, batch);
            if (o != DONE) return o;
        }
    return DONE;
}

/* For codes_matmul: finds the scales of the columns, times the gate. The factor is cuBLAS's alpha. */
static bool scale_columns(const lz_call *call, method *w, const lz_ending *e) {
    const lz_tensor *scales = &w->codes->columns;
    lz_tensor tensors[3] = {w->columns};
    int n = 1;
    if (!w->codes->rows) return true;
    bool plain = scales->data && scales->dtype == LZ_F32 && (scales->strides[0] == 1 || scales->dims.at[0] == 1) &&
                 address_alignment(scales->data) >= 16;
    w->column_scales = plain && e->gate < 0 ? scales->data : w->columns.data;
    if (plain && e->gate < 0) return true;
    if (e->gated_bias) {
        const lz_tensor gated[3] = {w->bias, vector_of(call, e->bias), vector_of(call, e->gate)};
        if (!lz_cuda_multiply_all(call, gated, 3)) return false;
    }
    if (scales->data) tensors[n++] = *scales;
    if (e->gate >= 0) tensors[n++] = vector_of(call, e->gate);
    return lz_cuda_multiply_all(call, tensors, n);
}

static outcome multiply_with_ending(const lz_call *call, method *w) {
    if (!w->ends || !w->s.k) return REFUSED;
    if (w->codes && !scale_columns(call, w, &w->ending)) return FAILED;
    lz_tensor vector = w->ending.gate >= 0 ? vector_of(call, w->ending.gate) : w->gate;
    if (w->ending.gate >= 0 && !w->codes && !lz_cuda_convert(call, &vector, &w->gate)) return FAILED;
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
    return lz_cuda_products(call) == 2 ? run_pair(call) : lz_cuda_blas_run_codes(call, NULL);
}

bool lz_cuda_blas_run_codes(const lz_call *call, const lz_code_scales *codes) {
    method w = plan_method(call, codes);
    if (w.copy_a && !lz_cuda_convert(call, &call->in[0], &w.a)) return false;
    if (w.copy_b && !lz_cuda_convert(call, &call->in[1], &w.b)) return false;
    outcome o = multiply_with_ending(call, &w);
    if (o != REFUSED) return o == DONE;
    if (codes && !scale_columns(call, &w, &no_ending)) return false;
    o = w.s.k ? multiply(call, &w, &w.s, &no_ending) : REFUSED; /* if k is 0, zeros must still be written */
    if (w.type == LZ_F8 && o == REFUSED) {
        lz_fail(call->err, LZ_DEVICE_FAILED, "cuBLASLt has no product of fp8 for %lld x %lld x %lld; use bf16",
                (long long)w.s.m, (long long)w.s.k, (long long)w.s.n);
        return false;
    }
    if (o == FAILED || (o == REFUSED && !multiply_plainly(call, &w))) return false;
    if (w.indirect) return lz_cuda_finish(call, &w.product);
    return !call->expr || lz_cuda_epilogue(call);
}
