/* reduce.c: reductions over the trailing axes. The device side is kernels/reduce.cu. */
#include "backend/cuda/own.h"

enum { THREADS = 256, V = 8, ENOUGH_BLOCKS = 256, STATE_BYTES = 16 };

typedef struct reduce_job {
    lz_reduce_params p;
    lz_axes kept, reduced;
    int lanes;
    bool across;
} reduce_job;

static int power_of_two(int64_t at_least, int most) {
    int n = 1;
    while (n < at_least && n < most) n *= 2;
    return n;
}

/* If there are too few outputs to fill a GPU, each reduction is cut into segments. The cut depends on the shape alone,
 * so that sums have the same order on every GPU. */
static void cut(reduce_job *j) {
    int64_t count = j->p.reduced.size, outs = THREADS / j->lanes, blocks = (j->p.kept.size + outs - 1) / outs;
    int64_t round = (int64_t)j->lanes * V, segments = (ENOUGH_BLOCKS + blocks - 1) / blocks;
    if (segments > count / (2 * round)) segments = count / (2 * round);
    if (segments < 1) segments = 1;
    if (count == 0) count = 1; /* an empty reduction has one segment too */
    j->p.segment = ((count + segments - 1) / segments + round - 1) / round * round;
    j->p.segments = (count + j->p.segment - 1) / j->p.segment;
}

static reduce_job make_job(const lz_call *call) {
    reduce_job j = {0};
    const lz_tensor *x = &call->in[0];
    lz_tensor both[2] = {*x, call->out};
    int kept = call->out.dims.n;
    j.kept = lz_axes_of(both, 2, 0, kept);
    j.reduced = lz_axes_of(x, 1, kept, x->dims.n);
    lz_axes_sort(&j.kept, 0);
    if (call->op != LZ_OP_ARGMAX) lz_axes_sort(&j.reduced, 0); /* argmax counts elements in the order of the axes */
    lz_axes_merge(&j.kept);
    lz_axes_merge(&j.reduced);
    j.p.kept = lz_walk_of(&j.kept, both);
    j.p.reduced = lz_walk_of(&j.reduced, x);
    /* Neighbouring threads read neighbouring elements: along the reduced axes, or across outputs. */
    int64_t inner = j.reduced.strides[0][j.reduced.rank - 1], outer = j.kept.strides[0][j.kept.rank - 1];
    j.across = outer == 1 && (inner != 1 || j.p.reduced.size < V) && j.p.kept.size >= V;
    j.lanes = power_of_two((j.p.reduced.size + V - 1) / V, j.across ? 8 : THREADS);
    cut(&j);
    return j;
}

static int64_t reduce_scratch(const lz_call *call) {
    reduce_job j = make_job(call);
    return j.p.segments > 1 ? j.p.segments * j.p.kept.size * STATE_BYTES : 0;
}

static const char *number_of(const lz_call *call) {
    return lz_op_table[call->op].whole && !lz_is_float(call->in[0].dtype) ? "i64" : "float";
}

static bool run_pass(const lz_call *call, const reduce_job *j, bool finish) {
    static const char *const names[LZ_OP_COUNT] = {
        [LZ_OP_SUM] = "SUM",
        [LZ_OP_MEAN] = "MEAN",
        [LZ_OP_VAR] = "VAR",
        [LZ_OP_MAX] = "MAX",
        [LZ_OP_MIN] = "MIN",
        [LZ_OP_ARGMAX] = "ARGMAX",
        [LZ_OP_LOGSUMEXP] = "LOGSUMEXP",
    };
    const lz_tensor *x = &call->in[0];
    int lanes = finish ? 32 : j->lanes, outs = THREADS / lanes;
    lz_access access = lz_cuda_access(x, j->reduced.strides[0][j->reduced.rank - 1], j->kept.strides[0], j->kept.rank,
                                      V);
    bool vector = !finish && !j->across && j->reduced.rank == 1 && access == LZ_VECTOR;
    int64_t blocks = (j->p.kept.size + outs - 1) / outs * (finish ? 1 : j->p.segments);
    lz_text text = {.ctx = call->device->ctx};
    lz_text_add(&text, "#define REDUCE_OP %s\ntypedef %s number;\n#define IN_TYPE %s\n#define OUT_TYPE %s\n",
                names[call->op], number_of(call), lz_cuda_type_name(x->dtype), lz_cuda_type_name(call->out.dtype));
    lz_text_add(&text, "#define LANES %d\n#define ACROSS %d\n#define KEPT_RANK %d\n#define REDUCED_RANK %d\n", lanes,
                !finish && j->across, j->kept.rank, j->reduced.rank);
    lz_text_add(&text, "#define KIND %d\n#define FINISH %d\n#define PARTIAL %d\n#include \"reduce.cu\"\n",
                vector ? LZ_VECTOR : LZ_SCALAR, finish, !finish && j->p.segments > 1);
    return lz_cuda_run_text(call, "reduce", &text, blocks, THREADS, &j->p);
}

static bool run_reduce(const lz_call *call) {
    reduce_job j = make_job(call);
    j.p.partial = call->scratch;
    return run_pass(call, &j, false) && (j.p.segments == 1 || run_pass(call, &j, true));
}

static bool can_reduce(const lz_call *call) {
    reduce_job j = make_job(call);
    bool fits = j.p.kept.size <= INT32_MAX && j.p.reduced.size <= INT32_MAX - THREADS * V;
    return fits && call->in[0].dtype != LZ_F64 && call->out.dtype != LZ_F64 && !call->expr;
}

const lz_kernel lz_cuda_reduce = {
    .name = "cuda.reduce", .run = run_reduce, .scratch = reduce_scratch, .can = can_reduce};
