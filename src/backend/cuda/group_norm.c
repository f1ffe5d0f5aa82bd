/* group_norm.c: x [n, pixels..., c], normalised over the pixels and channels of each group. Two kernels
 * (kernels/group_norm.cu) compute mean and scale; a third, elementwise kernel applies them and the epilogue. */
#include "backend/cuda/own.h"

/* Most channels of a tile; elements of a block; most slabs. */
enum { SPAN = 1024, BLOCK_WORK = 32768, MOST_SLABS = 1024 };

typedef struct group_job {
    lz_group_params p;
    lz_axes pixels;
    int64_t images;
    int width;
    lz_access access;
    int64_t partial_bytes, channel_bytes; /* of p.partial; of p.mean and of p.scale */
} group_job;

static int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Chooses the channels of a chunk: a chunk must be inside one tile. */
static void pick_width(group_job *j, const lz_tensor *x) {
    int64_t tile = (int64_t)j->p.tile_groups * j->p.group_size, outer[LZ_AXES + 1];
    for (int i = 0; i < j->pixels.rank; i++) outer[i] = j->pixels.strides[0][i];
    outer[j->pixels.rank] = j->p.image_stride;
    for (j->width = 8; j->width > 1; j->width /= 2) {
        bool divides = j->p.channels % j->width == 0 && (j->p.tiles == 1 || tile % j->width == 0);
        j->access = lz_cuda_access(x, j->p.channel_stride, outer, j->pixels.rank + 1, j->width);
        if (divides && j->access == LZ_VECTOR) return;
    }
    j->access = LZ_SCALAR;
}

static group_job make_job(const lz_call *call) {
    const lz_tensor *x = &call->in[0];
    int last = x->dims.n - 1;
    group_job j = {.images = x->dims.at[0], .pixels = lz_axes_of(x, 1, 1, last)};
    lz_axes_sort(&j.pixels, 0);
    lz_axes_merge(&j.pixels);
    lz_group_params *p = &j.p;
    p->pixels = lz_walk_of(&j.pixels, x);
    p->image_stride = x->strides[0];
    p->channel_stride = x->strides[last];
    p->channels = (int)x->dims.at[last];
    p->groups = call->params->norm.groups;
    p->group_size = p->channels / p->groups;
    p->tile_groups = p->group_size < SPAN ? SPAN / p->group_size : 1;
    if (p->tile_groups > p->groups) p->tile_groups = p->groups;
    p->tiles = (p->groups + p->tile_groups - 1) / p->tile_groups;
    p->eps = call->params->norm.eps;
    /* Slabs depend on the shape alone, so that sums have the same order on every GPU. */
    int64_t span = (int64_t)p->tile_groups * p->group_size, pixels = p->pixels.size;
    int64_t slab = (BLOCK_WORK + span - 1) / span, least = (pixels + MOST_SLABS - 1) / MOST_SLABS;
    p->slab = (int)(slab > least ? slab : least);
    p->slabs = (int)((pixels + p->slab - 1) / p->slab);
    j.partial_bytes = aligned(j.images * p->slabs * p->groups * 2 * (int64_t)sizeof(double));
    j.channel_bytes = aligned(j.images * p->channels * (int64_t)sizeof(float));
    return j;
}

static int64_t group_scratch(const lz_call *call) {
    group_job j = make_job(call);
    return j.partial_bytes + 2 * j.channel_bytes;
}

static bool run_stats(const lz_call *call, group_job *j) {
    lz_text text = {.ctx = call->device->ctx};
    pick_width(j, &call->in[0]);
    lz_text_add(&text, "#define STEP 1\n#define RANK %d\n#define WIDTH %d\n#define X_TYPE %s\n#define X_KIND %d\n",
                j->pixels.rank, j->width, lz_cuda_type_name(call->in[0].dtype), j->access);
    lz_text_add(&text, "#include \"group_norm.cu\"\n");
    return lz_cuda_run_text(call, "group_stats", &text, j->images * j->p.slabs * j->p.tiles, 256, &j->p);
}

static bool run_finish(const lz_call *call, const group_job *j) {
    lz_text text = {.ctx = call->device->ctx};
    lz_text_add(&text, "#define STEP 2\n#include \"group_norm.cu\"\n");
    return lz_cuda_run_text(call, "group_finish", &text, j->images * j->p.groups, 128, &j->p);
}

/* One number for each image and channel, broadcast to the dims of x. */
static lz_tensor by_channel(const lz_call *call, float *data) {
    int last = call->out.dims.n - 1;
    lz_tensor t = {.data = (char *)data, .dtype = LZ_F32, .dims = call->out.dims};
    t.strides[0] = call->out.dims.at[last];
    t.strides[last] = 1;
    return t;
}

static bool run_apply(const lz_call *call, const group_job *j) {
    lz_tensor tensors[LZ_OPERANDS] = {call->out, call->in[0], by_channel(call, j->p.mean),
                                      by_channel(call, j->p.scale)};
    int n = 4;
    lz_text text = {.ctx = call->device->ctx};
    lz_cuda_add_expression(&text, "epilogue", call->expr);
    lz_text_add(&text, "FN float expression(float x, float mean, float scale");
    for (int i = call->n_core; i < call->n_in; i++) {
        lz_text_add(&text, ", float a%d", n);
        tensors[n++] = call->in[i];
    }
    lz_text_add(&text, ") {\n    return epilogue((x - mean) * scale");
    for (int i = 4; i < n; i++) lz_text_add(&text, ", a%d", i);
    lz_text_add(&text, ");\n}\n");
    char *expression = lz_text_take(&text, call->err);
    bool fine = expression && lz_cuda_map(call, tensors, n, "float", expression);
    lz_host_free(call->device->ctx, expression);
    return fine;
}

static bool run_group_norm(const lz_call *call) {
    group_job j = make_job(call);
    j.p.partial = (double *)call->scratch;
    j.p.mean = (float *)(call->scratch + j.partial_bytes);
    j.p.scale = (float *)(call->scratch + j.partial_bytes + j.channel_bytes);
    return run_stats(call, &j) && run_finish(call, &j) && run_apply(call, &j);
}

static bool can_group_norm(const lz_call *call) {
    const lz_tensor *x = &call->in[0];
    int last = x->dims.n - 1;
    if (last < 1 || x->dims.at[last] / call->params->norm.groups > SPAN) return false;
    bool f64 = call->out.dtype == LZ_F64;
    for (int i = 0; i < call->n_in; i++) f64 = f64 || call->in[i].dtype == LZ_F64;
    lz_axes pixels = lz_axes_of(x, 1, 1, last);
    return !f64 && lz_axes_size(&pixels) < INT32_MAX / 2 && x->dims.at[last] < INT32_MAX / 2;
}

const lz_kernel lz_cuda_group_norm = {
    .name = "cuda.group_norm", .run = run_group_norm, .scratch = group_scratch, .can = can_group_norm};
