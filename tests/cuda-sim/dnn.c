/* dnn.c: cuDNN's graph interface, one number at a time. Descriptors keep the attributes that they are given, with the
 * rules of the real library: an attribute has one type, a finalised descriptor does not change, and an incomplete one is
 * not finalised. A finalised graph becomes a program, which plans share and which runs on a stream.
 *
 * The library offers several engines, of which the backend must refuse some: an engine whose notes it does not accept, or
 * whose workspace is too large, computes NaN. Graphs are accepted as by a library that knows few kernels:
 *
 *   convolutions of up to 3 x 3   an engine of each kind, best first; with a stride, only an engine of the fallback list
 *   larger convolutions           refused
 *   attention                     an engine that compiles at run time, whose plan can be written and read
 *
 * The folder of this library (<build>/cuda-sim/dnn) is not that of the others: only test_dnn.c names it. */
#include <stdatomic.h>

#include "dnn.h"

#define DECLARE(returns, name, version, params) EXPORT returns cudnn##name params;
LZ_DNN_FUNCTIONS(DECLARE)

/* For tests, found with dlsym: how often something happened, or how many descriptors exist. -1: unknown name. */
EXPORT long lz_sim_dnn_count(const char *name);

struct cudnnContext {
    lz_cu_stream stream;
};

static struct {
    const char *name;
    atomic_long n;
} counts[] = {{"descriptors", 0}, {"plans", 0},    {"written", 0}, {"read", 0},
              {"refused", 0},     {"launches", 0}, {"runs", 0}};
enum { DESCRIPTORS, PLANS, WRITTEN, READ, REFUSED, LAUNCHES, RUNS, COUNTS };

long lz_sim_dnn_count(const char *name) {
    for (int i = 0; i < COUNTS; i++)
        if (!strcmp(counts[i].name, name)) return atomic_load(&counts[i].n);
    return -1;
}

static void count(int what, long change) { atomic_fetch_add(&counts[what].n, change); }

/* ---- engines ---------------------------------------------------------------------------------------------------- */

/* Engines by their number. */
static const struct {
    int64_t workspace;
    int numerical, behavior; /* a note, or -1 */
    bool right, right_in_f32;
} engines[] = {
    {.workspace = (int64_t)1 << 40, .numerical = -1, .behavior = -1},
    {.numerical = LZ_CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, .behavior = -1},
    {.numerical = LZ_CUDNN_NUMERICAL_NOTE_WINOGRAD, .behavior = -1},
    {.numerical = LZ_CUDNN_NUMERICAL_NOTE_TENSOR_CORE, .behavior = -1, .workspace = 4096, .right = true},
    {.numerical = -1, .behavior = -1, .workspace = 64 << 10, .right = true, .right_in_f32 = true},
    {.numerical = -1,
     .behavior = LZ_CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION,
     .workspace = 8192,
     .right = true,
     .right_in_f32 = true},
};
enum { COMPILED = 5, FALLBACK = 4, ENGINES = 6 };

static bool has_op(const program *p, lz_dnn_kind kind) {
    for (int i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == kind) return true;
    return false;
}

/* The engines for a program: their numbers, best first. */
static int find_engines(const program *p, lz_dnn_heuristic_mode mode, int to[ENGINES]) {
    int n = 0;
    bool fallback = mode == LZ_CUDNN_HEUR_MODE_FALLBACK, strided = p->ops[0].strides[0] > 1;
    if (has_op(p, LZ_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)) {
        if (!fallback) to[n++] = COMPILED;
    } else if (strided || fallback) {
        if (fallback) to[n++] = FALLBACK;
    } else
        for (; n < ENGINES; n++) to[n] = n;
    return n;
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

enum { MAX_ATTRIBUTES = 16 };

typedef struct attribute {
    lz_dnn_attribute name;
    int64_t count;
    void *elements; /* owned */
} attribute;

typedef struct descriptor {
    lz_dnn_kind kind;
    bool finalised;
    attribute all[MAX_ATTRIBUTES];
    int n;
    program *p; /* of a finalised graph, a configuration, an engine and a plan; owned */
} descriptor;

static _Thread_local char last_error[128];

static lz_dnn_status refuse(lz_dnn_status status, const char *why) {
    snprintf(last_error, sizeof last_error, "%s", why);
    if (status == LZ_CUDNN_STATUS_NOT_SUPPORTED) count(REFUSED, 1);
    return status;
}
#define BAD(why) refuse(LZ_CUDNN_STATUS_BAD_PARAM, why)

/* Bytes of an element; 0: no attribute that is set here has this type. */
static size_t bytes_of(lz_dnn_attribute_type type) {
    switch (type) {
    case LZ_CUDNN_TYPE_HANDLE:
    case LZ_CUDNN_TYPE_VOID_PTR:
    case LZ_CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void *);
    case LZ_CUDNN_TYPE_INT64: return 8;
    case LZ_CUDNN_TYPE_BOOLEAN:
    case LZ_CUDNN_TYPE_CHAR: return 1;
    case LZ_CUDNN_TYPE_FLOAT:
    case LZ_CUDNN_TYPE_DATA_TYPE:
    case LZ_CUDNN_TYPE_CONVOLUTION_MODE:
    case LZ_CUDNN_TYPE_HEUR_MODE:
    case LZ_CUDNN_TYPE_POINTWISE_MODE:
    case LZ_CUDNN_TYPE_REDUCTION_OPERATOR_TYPE: return 4;
    default: return 0;
    }
}

/* The attributes of each kind, with their types and the number of elements (0: any). */
static const struct {
    lz_dnn_kind kind;
    lz_dnn_attribute name;
    lz_dnn_attribute_type type;
    int64_t count;
    bool optional;
} known[] = {
#define ROW(kind, name, type, n, optional)                                                                             \
    { LZ_CUDNN_BACKEND_##kind##_DESCRIPTOR, LZ_CUDNN_ATTR_##name, LZ_CUDNN_TYPE_##type, n, optional }
    ROW(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, false),
    ROW(TENSOR, TENSOR_DIMENSIONS, INT64, DIMS, false),
    ROW(TENSOR, TENSOR_STRIDES, INT64, DIMS, false),
    ROW(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, false),
    ROW(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, false),
    ROW(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 1, false),
    ROW(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, 1, false),
    ROW(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, 1, false),
    ROW(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1, false),
    ROW(POINTWISE, POINTWISE_AXIS, INT64, 1, true),
    ROW(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, 1, false),
    ROW(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, 1, false),
    ROW(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, 1, true),
    ROW(OPERATION_POINTWISE, OPERATION_POINTWISE_TDESC, BACKEND_DESCRIPTOR, 1, true),
    ROW(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, 1, false),
    ROW(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE, 1, false),
    ROW(OPERATION_MATMUL, OPERATION_MATMUL_DESC, BACKEND_DESCRIPTOR, 1, false),
    ROW(OPERATION_MATMUL, OPERATION_MATMUL_ADESC, BACKEND_DESCRIPTOR, 1, false),
    ROW(OPERATION_MATMUL, OPERATION_MATMUL_BDESC, BACKEND_DESCRIPTOR, 1, false),
    ROW(OPERATION_MATMUL, OPERATION_MATMUL_CDESC, BACKEND_DESCRIPTOR, 1, false),
    ROW(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1, false),
    ROW(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE, 1, false),
    ROW(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC, BACKEND_DESCRIPTOR, 1, false),
    ROW(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC, BACKEND_DESCRIPTOR, 1, false),
    ROW(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC, BACKEND_DESCRIPTOR, 1, false),
    ROW(CONVOLUTION, CONVOLUTION_SPATIAL_DIMS, INT64, 1, false),
    ROW(CONVOLUTION, CONVOLUTION_COMP_TYPE, DATA_TYPE, 1, false),
    ROW(CONVOLUTION, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, false),
    ROW(CONVOLUTION, CONVOLUTION_PRE_PADDINGS, INT64, 2, false),
    ROW(CONVOLUTION, CONVOLUTION_POST_PADDINGS, INT64, 2, false),
    ROW(CONVOLUTION, CONVOLUTION_DILATIONS, INT64, 2, false),
    ROW(CONVOLUTION, CONVOLUTION_FILTER_STRIDES, INT64, 2, false),
    ROW(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_X, BACKEND_DESCRIPTOR, 1, false),
    ROW(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_W, BACKEND_DESCRIPTOR, 1, false),
    ROW(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_Y, BACKEND_DESCRIPTOR, 1, false),
    ROW(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_CONV_DESC, BACKEND_DESCRIPTOR, 1, false),
    ROW(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_ALPHA, FLOAT, 1, false),
    ROW(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD_BETA, FLOAT, 1, false),
    ROW(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, 1, false),
    ROW(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, 0, false),
    ROW(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, false),
    ROW(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, false),
    ROW(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, 1, false),
    ROW(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1, true),
    ROW(EXECUTION_PLAN, EXECUTION_PLAN_JSON_REPRESENTATION, CHAR, 0, true),
    ROW(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, 0, false),
    ROW(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, 0, false),
    ROW(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, false),
#undef ROW
};

static const attribute *find(const descriptor *d, lz_dnn_attribute name) {
    for (int i = 0; i < d->n; i++)
        if (d->all[i].name == name) return &d->all[i];
    return NULL;
}

static const void *elements_of(const descriptor *d, lz_dnn_attribute name) {
    const attribute *a = find(d, name);
    return a ? a->elements : NULL;
}

static const descriptor *link_of(const descriptor *d, lz_dnn_attribute name) {
    descriptor *const *to = elements_of(d, name);
    return to ? *to : NULL;
}

lz_dnn_status cudnnBackendCreateDescriptor(lz_dnn_kind kind, lz_dnn_descriptor *made) {
    descriptor *d = calloc(1, sizeof *d);
    if (!d) return LZ_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    d->kind = kind;
    count(DESCRIPTORS, 1);
    *made = d;
    return LZ_CUDNN_STATUS_SUCCESS;
}

lz_dnn_status cudnnBackendDestroyDescriptor(lz_dnn_descriptor which) {
    descriptor *d = which;
    if (!d) return BAD("no descriptor");
    for (int i = 0; i < d->n; i++) free(d->all[i].elements);
    free(d->p);
    free(d);
    count(DESCRIPTORS, -1);
    return LZ_CUDNN_STATUS_SUCCESS;
}

lz_dnn_status cudnnBackendSetAttribute(lz_dnn_descriptor which, lz_dnn_attribute name, lz_dnn_attribute_type type,
                                       int64_t n, const void *elements) {
    descriptor *d = which;
    if (!d || !elements || n < 1) return BAD("no descriptor, or no elements");
    if (d->finalised) return BAD("the descriptor is finalised");
    bool fits = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        fits |= known[i].kind == d->kind && known[i].name == name && known[i].type == type &&
                (!known[i].count || known[i].count == n);
    if (!fits || find(d, name) || d->n == MAX_ATTRIBUTES) return BAD("the descriptor does not take this attribute");
    size_t bytes = bytes_of(type) * (size_t)n;
    void *copy = malloc(bytes);
    if (!copy) return LZ_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    memcpy(copy, elements, bytes);
    d->all[d->n++] = (attribute){name, n, copy};
    return LZ_CUDNN_STATUS_SUCCESS;
}

/* ---- from descriptors to a program ------------------------------------------------------------------------------- */

/* The index of a tensor, added if it is new; -1: no tensor, or too many. */
static int add_tensor(program *p, const descriptor *d) {
    if (!d || d->kind != LZ_CUDNN_BACKEND_TENSOR_DESCRIPTOR || !d->finalised) return -1;
    tensor t = {.type = *(const lz_dnn_type *)elements_of(d, LZ_CUDNN_ATTR_TENSOR_DATA_TYPE),
                .id = *(const int64_t *)elements_of(d, LZ_CUDNN_ATTR_TENSOR_UNIQUE_ID),
                .alignment = *(const int64_t *)elements_of(d, LZ_CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
                .is_virtual = *(const bool *)elements_of(d, LZ_CUDNN_ATTR_TENSOR_IS_VIRTUAL),
                .by_value = *(const bool *)elements_of(d, LZ_CUDNN_ATTR_TENSOR_IS_BY_VALUE)};
    memcpy(t.dims, elements_of(d, LZ_CUDNN_ATTR_TENSOR_DIMENSIONS), sizeof t.dims);
    memcpy(t.strides, elements_of(d, LZ_CUDNN_ATTR_TENSOR_STRIDES), sizeof t.strides);
    for (int i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].id == t.id) return i;
    if (p->n_tensors == MAX_TENSORS) return -1;
    p->tensors[p->n_tensors] = t;
    return p->n_tensors++;
}

/* Links of the kinds of operations, in the order of operation.in; the last is the result. */
static const struct {
    lz_dnn_kind kind;
    lz_dnn_attribute how, links[4];
} shapes[] = {
    {LZ_CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
     LZ_CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
     {LZ_CUDNN_ATTR_OPERATION_POINTWISE_XDESC, LZ_CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
      LZ_CUDNN_ATTR_OPERATION_POINTWISE_TDESC, LZ_CUDNN_ATTR_OPERATION_POINTWISE_YDESC}},
    {LZ_CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
     LZ_CUDNN_ATTR_OPERATION_MATMUL_DESC,
     {LZ_CUDNN_ATTR_OPERATION_MATMUL_ADESC, LZ_CUDNN_ATTR_OPERATION_MATMUL_BDESC, 0,
      LZ_CUDNN_ATTR_OPERATION_MATMUL_CDESC}},
    {LZ_CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
     LZ_CUDNN_ATTR_OPERATION_REDUCTION_DESC,
     {LZ_CUDNN_ATTR_OPERATION_REDUCTION_XDESC, 0, 0, LZ_CUDNN_ATTR_OPERATION_REDUCTION_YDESC}},
    {LZ_CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     LZ_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     {LZ_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, LZ_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, 0,
      LZ_CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y}},
};

static void read_details(operation *o, const descriptor *how) {
    const int *mode = elements_of(how, how->kind == LZ_CUDNN_BACKEND_POINTWISE_DESCRIPTOR
                                           ? LZ_CUDNN_ATTR_POINTWISE_MODE
                                           : LZ_CUDNN_ATTR_REDUCTION_OPERATOR);
    const int64_t *axis = elements_of(how, LZ_CUDNN_ATTR_POINTWISE_AXIS);
    o->mode = mode ? *mode : 0;
    o->axis = axis ? *axis : 0;
    if (how->kind != LZ_CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR) return;
    memcpy(o->before, elements_of(how, LZ_CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS), sizeof o->before);
    memcpy(o->behind, elements_of(how, LZ_CUDNN_ATTR_CONVOLUTION_POST_PADDINGS), sizeof o->behind);
    memcpy(o->strides, elements_of(how, LZ_CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES), sizeof o->strides);
}

static bool add_op(program *p, const descriptor *d) {
    size_t i = 0, n = sizeof shapes / sizeof *shapes;
    while (i < n && shapes[i].kind != d->kind) i++;
    const descriptor *how = i < n ? link_of(d, shapes[i].how) : NULL;
    if (!how || !how->finalised || p->n_ops == MAX_OPS) return false;
    operation made = {.kind = d->kind};
    for (int k = 0; k < 4; k++) {
        const descriptor *to = shapes[i].links[k] ? link_of(d, shapes[i].links[k]) : NULL;
        int t = add_tensor(p, to);
        if (to && t < 0) return false;
        if (k < 3)
            made.in[k] = t;
        else
            made.out = t;
    }
    read_details(&made, how);
    p->ops[p->n_ops++] = made;
    return made.in[0] >= 0 && made.out >= 0;
}

/* The result of a convolution has the size that its padding and strides give. */
static bool convolution_fits(const program *p, const operation *o) {
    const tensor *x = &p->tensors[o->in[0]], *w = &p->tensors[o->in[1]], *y = &p->tensors[o->out];
    bool fits = x->type == w->type && x->dims[1] == w->dims[1] && y->dims[1] == w->dims[0] && y->dims[0] == x->dims[0];
    for (int i = 0; i < 2; i++)
        fits = fits &&
               (x->dims[2 + i] + o->before[i] + o->behind[i] - w->dims[2 + i]) / o->strides[i] + 1 == y->dims[2 + i];
    return fits;
}

static lz_dnn_status make_program(descriptor *d) {
    const attribute *ops = find(d, LZ_CUDNN_ATTR_OPERATIONGRAPH_OPS);
    program *p = d->p = calloc(1, sizeof *p);
    if (!p) return LZ_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    for (int64_t i = 0; i < ops->count; i++) {
        const descriptor *each = ((descriptor *const *)ops->elements)[i];
        if (!each || !each->finalised || !add_op(p, each)) return BAD("an operation is not complete");
        const operation *made = &p->ops[p->n_ops - 1];
        if (made->kind != LZ_CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) continue;
        if (!convolution_fits(p, made)) return BAD("the shapes of a convolution do not fit");
        if (p->tensors[made->in[1]].dims[2] > 3)
            return refuse(LZ_CUDNN_STATUS_NOT_SUPPORTED, "no kernel for so large a window");
    }
    return LZ_CUDNN_STATUS_SUCCESS;
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

static const char heading[] = "{\"simulated plan\": "; /* of a written plan; the bytes of the program follow */
enum { HEADING = sizeof heading - 1, WRITTEN_BYTES = HEADING + sizeof(program) };

static lz_dnn_status make_plan(descriptor *d) {
    const descriptor *config = link_of(d, LZ_CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    const attribute *written = find(d, LZ_CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
    if (written && (written->count != WRITTEN_BYTES || memcmp(written->elements, heading, HEADING)))
        return BAD("the plan was not written by this library");
    if (!written && (!config || !config->p)) return BAD("a plan needs a configuration");
    if (!(d->p = malloc(sizeof *d->p))) return LZ_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    if (written)
        memcpy(d->p, (const char *)written->elements + HEADING, sizeof *d->p);
    else
        *d->p = *config->p;
    count(written ? READ : PLANS, 1);
    return LZ_CUDNN_STATUS_SUCCESS;
}

lz_dnn_status cudnnBackendFinalize(lz_dnn_descriptor which) {
    descriptor *d = which;
    if (!d || d->finalised) return BAD("no descriptor, or a finalised one");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].kind == d->kind && !known[i].optional && !find(d, known[i].name))
            return BAD("an attribute is missing");
    lz_dnn_status status = LZ_CUDNN_STATUS_SUCCESS;
    if (d->kind == LZ_CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) status = make_program(d);
    if (d->kind == LZ_CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) status = make_plan(d);
    d->finalised = !status;
    return status;
}

/* Fills the configurations that the caller made. */
static lz_dnn_status get_configs(const descriptor *d, int64_t wanted, int64_t *n, descriptor *const *to) {
    const descriptor *graph = link_of(d, LZ_CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    int found[ENGINES];
    if (!graph || !graph->finalised) return BAD("the graph is not finalised");
    int all = find_engines(graph->p, *(const lz_dnn_heuristic_mode *)elements_of(d, LZ_CUDNN_ATTR_ENGINEHEUR_MODE),
                           found);
    for (*n = 0; *n < all && *n < wanted; ++*n) {
        descriptor *config = to[*n];
        if (!(config->p = malloc(sizeof *config->p))) return LZ_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
        *config->p = *graph->p;
        config->p->engine = found[*n];
        config->finalised = true;
    }
    return LZ_CUDNN_STATUS_SUCCESS;
}

static lz_dnn_status get_engine(const descriptor *config, int64_t *n, descriptor *to) {
    if (!config->p || to->p || !(to->p = malloc(sizeof *to->p))) return BAD("no configuration");
    *n = 1;
    *to->p = *config->p;
    to->finalised = true;
    return LZ_CUDNN_STATUS_SUCCESS;
}

static lz_dnn_status get_note(int note, int64_t *n, void *to) {
    *n = note >= 0;
    if (note >= 0) memcpy(to, &note, sizeof note);
    return LZ_CUDNN_STATUS_SUCCESS;
}

static lz_dnn_status get_written(const descriptor *d, int64_t wanted, int64_t *n, char *to) {
    *n = WRITTEN_BYTES;
    if (!to) return LZ_CUDNN_STATUS_SUCCESS;
    if (wanted < *n) return BAD("too little room");
    memcpy(to, heading, HEADING);
    memcpy(to + HEADING, d->p, sizeof *d->p);
    count(WRITTEN, 1);
    return LZ_CUDNN_STATUS_SUCCESS;
}

lz_dnn_status cudnnBackendGetAttribute(lz_dnn_descriptor const which, lz_dnn_attribute name, lz_dnn_attribute_type type,
                                       int64_t wanted, int64_t *n, void *elements) {
    const descriptor *d = which;
    if (!d || !d->finalised || !n) return refuse(LZ_CUDNN_STATUS_NOT_INITIALIZED, "the descriptor is not finalised");
    if (name == LZ_CUDNN_ATTR_ENGINEHEUR_RESULTS && type == LZ_CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return get_configs(d, wanted, n, elements);
    if (!d->p) return BAD("the descriptor does not have this attribute");
    if (name == LZ_CUDNN_ATTR_ENGINECFG_ENGINE && type == LZ_CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return get_engine(d, n, *(descriptor **)elements);
    if (name == LZ_CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == LZ_CUDNN_TYPE_NUMERICAL_NOTE)
        return get_note(engines[d->p->engine].numerical, n, elements);
    if (name == LZ_CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE && type == LZ_CUDNN_TYPE_BEHAVIOR_NOTE)
        return get_note(engines[d->p->engine].behavior, n, elements);
    if (name == LZ_CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION && type == LZ_CUDNN_TYPE_CHAR)
        return get_written(d, wanted, n, elements);
    if (type != LZ_CUDNN_TYPE_INT64 || wanted < 1) return BAD("the descriptor does not have this attribute");
    *n = 1;
    *(int64_t *)elements = name == LZ_CUDNN_ATTR_ENGINE_GLOBAL_INDEX ? d->p->engine : engines[d->p->engine].workspace;
    return LZ_CUDNN_STATUS_SUCCESS;
}

/* A launch that is only recorded does not count as a run. */
static void run_counted(void *data) {
    count(RUNS, 1);
    lz_sim_run_program(data);
}

lz_dnn_status cudnnBackendExecute(lz_dnn_handle handle, lz_dnn_descriptor which, lz_dnn_descriptor operands) {
    const descriptor *plan = which, *pack = operands;
    if (!handle || !plan || !pack || !plan->p || !plan->finalised || !pack->finalised) return BAD("nothing to run");
    const attribute *ids = find(pack, LZ_CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                    *pointers = find(pack, LZ_CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    dnn_run r = {.p = *plan->p,
                 .workspace = *(char *const *)elements_of(pack, LZ_CUDNN_ATTR_VARIANT_PACK_WORKSPACE),
                 .workspace_bytes = engines[plan->p->engine].workspace};
    bool f32 = r.p.tensors[r.p.ops[0].in[0]].type == LZ_CUDNN_DATA_FLOAT;
    r.right = f32 ? engines[r.p.engine].right_in_f32 : engines[r.p.engine].right;
    if (ids->count != pointers->count || (r.workspace_bytes && !r.workspace))
        return BAD("addresses or workspace are missing");
    for (int i = 0; i < r.p.n_tensors; i++) {
        const tensor *t = &r.p.tensors[i];
        char *at = NULL;
        for (int64_t k = 0; k < ids->count; k++)
            if (((const int64_t *)ids->elements)[k] == t->id) at = ((char *const *)pointers->elements)[k];
        if (t->is_virtual) continue;
        if (!at || (!t->by_value && (uintptr_t)at % (uintptr_t)t->alignment)) return BAD("an address is wrong");
        if (t->by_value)
            r.numbers[i] = lz_sim_read_number(t->type, at);
        else
            r.addresses[i] = at;
    }
    count(LAUNCHES, 1);
    return lz_sim_enqueue(handle->stream, run_counted, &r, sizeof r) ? LZ_CUDNN_STATUS_EXECUTION_FAILED
                                                                     : LZ_CUDNN_STATUS_SUCCESS;
}

/* ---- the library ------------------------------------------------------------------------------------------------- */

size_t cudnnGetVersion(void) { return 91300; }

const char *cudnnGetErrorString(lz_dnn_status status) {
    return status == LZ_CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_BAD_PARAM";
}

void cudnnGetLastErrorString(char *text, size_t bytes) { snprintf(text, bytes, "%s", last_error); }

lz_dnn_status cudnnCreate(lz_dnn_handle *handle) {
    *handle = calloc(1, sizeof **handle);
    return *handle ? LZ_CUDNN_STATUS_SUCCESS : LZ_CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

lz_dnn_status cudnnDestroy(lz_dnn_handle handle) {
    free(handle);
    return LZ_CUDNN_STATUS_SUCCESS;
}

lz_dnn_status cudnnSetStream(lz_dnn_handle handle, lz_cu_stream stream) {
    handle->stream = stream;
    return LZ_CUDNN_STATUS_SUCCESS;
}
