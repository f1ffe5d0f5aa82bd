/* sdpa90.c: our own attention for Hopper, host side: which calls it supports, the division of work, the launch.
 *
 * 24 heads of 768 queries are 144 tiles: one full wave of 132 multiprocessors, and a second wave with only 12 tiles. So
 * tiles of the last wave are split by keys until all multiprocessors have work, and a second kernel merges the
 * parts. */
#include "backend/cuda/sdpa90.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "backend/cuda/gemm90.h"
#include "backend/cuda/kernels/sdpa90.h"
#include "backend/cuda/product.h"

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* Are rows contiguous, at multiples of 16 bytes by their strides, and not broadcast? The copy engine (TMA) needs
 * that. */
static bool suits_copies(const lz_tensor *t, lz_dtype type) {
    bool fine = t->dtype == type && t->strides[3] == 1;
    for (int i = 0; i < 3; i++)
        fine = fine && (t->dims.at[i] == 1 || (t->strides[i] > 0 && t->strides[i] * lz_dtype_size(type) % 16 == 0 &&
                                               t->strides[i] < (INT64_C(1) << 38)));
    return fine;
}

/* Smaller calls are as fast in 16 bits, where v needs no launch of its own. */
#define WORTH_F8 5e9
bool lz_sdpa90_takes_f8(const lz_device *d, lz_dims q, lz_dims k) {
    double work = 4.0 * (double)k.at[2];
    for (int i = 0; i < 4; i++) work *= (double)q.at[i];
    return d->capability == 90 && (q.at[3] == 64 || q.at[3] == 128) &&
           (work >= WORTH_F8 || (work > 0 && d->sdpa == LZ_SDPA_OWN));
}

bool lz_sdpa90_reads(const lz_call *call, lz_sdpa90 *a) {
    const lz_tensor *q = &call->in[0], *k = &call->in[1], *v = &call->in[2];
    lz_dtype type = call->out.dtype, operand = q->dtype;
    *a = (lz_sdpa90){.call = call, .scale = (float)call->params->sdpa.scale, .narrow = operand == LZ_F8};
    a->batches = q->dims.at[0], a->heads = q->dims.at[1], a->n = q->dims.at[2], a->d = q->dims.at[3];
    a->groups = k->dims.at[1], a->m = k->dims.at[2];
    /* The exponents of values of f8, up to 2^8, are divided by the scale, and must stay finite. */
    bool plain = call->n_core == 3 && !call->params->sdpa.causal && isfinite(a->scale) &&
                 a->scale > (a->narrow ? 1e-30f : 0);
    bool fits = a->batches > 0 && a->heads > 0 && a->n > 0 && a->m > 0 && a->n <= INT_MAX / 2 && a->m <= INT_MAX / 2;
    fits = fits && lz_over(a->n, 64) * a->heads * a->batches <= INT_MAX / 64;
    return call->device->capability == 90 && plain && fits && (type == LZ_BF16 || type == LZ_F16) &&
           (operand == type || a->narrow) && (a->d == 64 || a->d == 128) && suits_copies(q, operand) &&
           suits_copies(k, operand) && suits_copies(v, type) && suits_copies(&call->out, type);
}

/* ---- ways -------------------------------------------------------------------------------------------------------- */

/* {keys, queries, pingpong}. With three computing warpgroups (192 queries), a thread has 160 registers, enough for 80
 * keys; with two it has 232, enough for 144 keys and the queries. Other numbers of keys, two warpgroups without queries
 * in registers, and clusters that share their loads of k and v were never the fastest on an H200. */
static const lz_sdpa90_config wide_configs[LZ_SDPA90_CONFIGS] = {
    {80, 192, 1}, {80, 192, 0}, {144, 128, 1}, {128, 128, 1}};
static const lz_sdpa90_config narrow_configs[LZ_SDPA90_CONFIGS] = {
    {128, 128, 1}, {128, 128, 0}, {192, 128, 1}, {192, 128, 0}};

const lz_sdpa90_config *lz_sdpa90_configs(bool narrow) { return narrow ? narrow_configs : wide_configs; }

/* Stages of keys and of values, and bytes of shared memory, as in kernels/sdpa90.cu. At most 209 KB of the 227 KB that a block
 * can have. */
static int stages_of(const lz_sdpa90 *a, const lz_sdpa90_config *w) { return !a->narrow ? 2 : w->keys > 128 ? 3 : 4; }
static int shared_bytes(const lz_sdpa90 *a, const lz_sdpa90_config *w) {
    enum { QUERY_STAGES = 2, BARRIER_BYTES = 8 };
    int stages = stages_of(a, w), size = a->narrow ? 1 : 2, barriers = stages * 4 + QUERY_STAGES * 2 * w->queries / 64;
    return (QUERY_STAGES * w->queries * 2 + stages * 2 * w->keys * size) * (int)a->d + barriers * BARRIER_BYTES;
}

/* How the work is divided. */
typedef struct schedule {
    int64_t row_tiles, tiles, blocks; /* tiles of queries in a head, and in all heads; blocks of keys in a tile */
    int64_t whole;                    /* tiles that are not split */
    int64_t ranges;                   /* number of ranges of the split tiles; 0: no tile is split */
} schedule;

/* Rows of all parts: each range has two parts. */
static int64_t part_rows(int64_t ranges, const lz_sdpa90_config *w) { return 2 * ranges * w->queries; }

/* Estimated cycles: of a block of keys (block_cycles), between two items (ITEM), for storing a part (PART), and of the
 * merging kernel (MERGE), which also reads MERGE_BYTES per cycle. */
static double block_cycles(const lz_sdpa90 *a, const lz_sdpa90_config *w) {
    return 4.0 * (double)a->d * w->queries * w->keys / (a->narrow ? 4500 : w->keys < 96 ? 2700 : 3000) + 100;
}
#define ITEM_CYCLES 2000
#define PART_CYCLES 1000
#define MERGE_CYCLES 4000
#define MERGE_BYTES 2000

static schedule schedule_of(const lz_sdpa90 *a, const lz_sdpa90_config *w) {
    schedule s = {.row_tiles = lz_over(a->n, w->queries), .blocks = lz_over(a->m, w->keys)};
    int64_t sms = a->call->device->sms;
    s.tiles = s.row_tiles * a->heads * a->batches;
    int64_t rounds = s.tiles / sms, rest = s.tiles % sms;
    double each = block_cycles(a, w), all = (double)s.blocks * each + ITEM_CYCLES;
    double least = (double)lz_over(s.tiles, sms) * all; /* of the busiest multiprocessor */
    bool fits = rest * s.blocks * sms <= INT_MAX;       /* the kernels use 32-bit indices */
    for (int64_t length = 1; rest && fits && length < s.blocks; length++) {
        int64_t ranges = rest * lz_over(s.blocks, length);
        int parts = ranges > sms ? 2 : 1; /* parts of a range: it may cross from one tile into the next */
        if (parts == 2) ranges = lz_over(rest * s.blocks, length);
        if (ranges > sms) continue;
        double bytes = (double)part_rows(ranges, w) / 2 * parts * (double)a->d * 4;
        double cycles = (double)rounds * all + (double)length * each + parts * (ITEM_CYCLES + PART_CYCLES) +
                        MERGE_CYCLES + bytes / MERGE_BYTES;
        if (cycles < least) s.ranges = ranges, least = cycles;
    }
    s.whole = s.ranges ? rounds * sms : s.tiles;
    return s;
}

/* Scratch memory: sums of the parts of tiles, the maximum and the sum of each of their rows; with f8 also the codes of the
 * values, and the exponents of their blocks. */
typedef struct memory {
    float *sums, *rows, *exponents;
    char *codes;
    int64_t bytes;
} memory;

static memory memory_of(const lz_sdpa90 *a, const lz_sdpa90_config *w, const schedule *s, char *scratch) {
    lz_scratch p = lz_scratch_at(scratch);
    memory m = {.sums = NULL};
    int64_t blocks = a->narrow ? a->batches * a->groups * s->blocks : 0;
    if (s->ranges) m.sums = (float *)(void *)lz_scratch_take(&p, part_rows(s->ranges, w) * a->d * 4);
    if (s->ranges) m.rows = (float *)(void *)lz_scratch_take(&p, part_rows(s->ranges, w) * 2 * 4);
    if (blocks) m.codes = lz_scratch_take(&p, blocks * w->keys * a->d);
    if (blocks) m.exponents = (float *)(void *)lz_scratch_take(&p, blocks * 4);
    m.bytes = s->ranges || blocks ? lz_scratch_bytes(&p) : 0;
    return m;
}

int64_t lz_sdpa90_scratch(const lz_sdpa90 *a, const lz_sdpa90_config *w) {
    schedule s = schedule_of(a, w);
    return memory_of(a, w, &s, NULL).bytes;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static lz_cu_function function_of(const lz_sdpa90 *a, const char *name, lz_text *text) {
    lz_device *d = a->call->device;
    char *whole = lz_text_take(text, a->call->err);
    lz_cu_function f = whole ? lz_cuda_function(d, name, whole, a->call->err) : NULL;
    lz_host_free(d->ctx, whole);
    return f;
}

static void add_type(const lz_sdpa90 *a, lz_text *text) {
    lz_text_add(text, "#define TYPE %s\n#define HEAD %d\n", lz_cuda_type_name(a->call->out.dtype), (int)a->d);
}

lz_cu_function lz_sdpa90_function(const lz_sdpa90 *a, const lz_sdpa90_config *w) {
    lz_text text = {.ctx = a->call->device->ctx};
    lz_dtype type = a->call->in[0].dtype;
    add_type(a, &text);
    lz_text_add(&text, "#define KEYS %d\n#define GROUPS %d\n#define PINGPONG %d\n", w->keys, w->queries / 64,
                w->pingpong);
    lz_text_add(&text, "#define NARROW %d\n#define OPERAND %s\n#define STAGES %d\n", a->narrow, lz_cuda_type_name(type),
                stages_of(a, w));
    lz_text_add(&text, "#include \"hopper.cu\"\n#include \"matrix.cu\"\n");
    if (w->queries == 128)
        lz_gemm90_add_multiply_held(&text, "multiply_keys", w->keys, type, false);
    else
        lz_gemm90_add_multiply(&text, "multiply_keys", w->keys, type);
    lz_gemm90_add_multiply_held(&text, "multiply_values", (int)a->d, type, !a->narrow);
    lz_text_add(&text, "#include \"sdpa90.cu\"\n");
    return function_of(a, "sdpa90", &text);
}

/* For tiles of box_rows rows of 128 bytes or, if `columns` are no multiple of that, of 64. */
static bool encode(const lz_sdpa90 *a, lz_gemm_map *map, const lz_tensor *t, int box_rows, int64_t columns) {
    lz_device *d = a->call->device;
    int64_t size = lz_dtype_size(t->dtype), row_bytes = columns * size % 128 ? 64 : 128;
    uint64_t dims[4], strides[3];
    uint32_t box[4] = {(uint32_t)(row_bytes / size), (uint32_t)box_rows, 1, 1}, steps[4] = {1, 1, 1, 1};
    for (int i = 0; i < 4; i++) dims[i] = (uint64_t)t->dims.at[3 - i];
    for (int i = 0; i < 3; i++) /* an axis of size 1 may have any stride */
        strides[i] = (uint64_t)((t->dims.at[2 - i] == 1 ? a->d : t->strides[2 - i]) * size);
    lz_cu_tensor_map_type type = t->dtype == LZ_BF16  ? LZ_CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                 : t->dtype == LZ_F16 ? LZ_CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                      : LZ_CU_TENSOR_MAP_DATA_TYPE_UINT8;
    lz_cu_tensor_map made;
    lz_cu_result result = d->api.cu.TensorMapEncodeTiled(
        &made, type, 4, t->data, dims, strides, box, steps, LZ_CU_TENSOR_MAP_INTERLEAVE_NONE,
        row_bytes == 64 ? LZ_CU_TENSOR_MAP_SWIZZLE_64B : LZ_CU_TENSOR_MAP_SWIZZLE_128B,
        LZ_CU_TENSOR_MAP_L2_PROMOTION_L2_256B, LZ_CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (!lz_cuda_ok(d, result, "a tensor map", a->call->err)) return false;
    memcpy(map, &made, sizeof *map);
    return true;
}

static bool merge_parts(const lz_sdpa90 *a, const lz_sdpa90_config *w, const schedule *s, const lz_sdpa90_params *p) {
    const lz_tensor *out = &a->call->out;
    lz_text text = {.ctx = a->call->device->ctx};
    add_type(a, &text);
    lz_text_add(&text, "#include \"sdpa90_merge.cu\"\n");
    lz_cu_function f = function_of(a, "sdpa90_merge", &text);
    lz_sdpa90_merge_params m = {.split = p->split,
                                .out = out->data,
                                .batch = out->strides[0],
                                .head = out->strides[1],
                                .token = out->strides[2],
                                .scale = p->scale,
                                .n = (int)a->n,
                                .tile_rows = w->queries};
    m.total = (int)(s->tiles - s->whole) * m.tile_rows;
    return f && lz_cuda_launch(a->call, f, lz_over(m.total * (a->d / 8), 256), 256, 0, &m);
}

/* Rounds the values to f8 and transposes them; *codes: [batch, head, column, key]. */
static bool narrow_values(const lz_sdpa90 *a, const lz_sdpa90_config *w, const schedule *s, const memory *m,
                          lz_tensor *codes) {
    const lz_tensor *v = &a->call->in[2];
    int64_t row = s->blocks * w->keys;
    lz_text text = {.ctx = a->call->device->ctx};
    add_type(a, &text);
    lz_text_add(&text, "#define KEYS %d\n#include \"sdpa90_values.cu\"\n", w->keys);
    lz_cu_function f = function_of(a, "sdpa90_values", &text);
    lz_sdpa90_values_params p = {.v = v->data,
                                 .codes = (unsigned char *)m->codes,
                                 .exponents = m->exponents,
                                 .batch = v->strides[0],
                                 .head = v->strides[1],
                                 .token = v->strides[2],
                                 .heads = (int)a->groups,
                                 .m = (int)a->m,
                                 .blocks = (int)s->blocks};
    *codes = (lz_tensor){.data = m->codes, .dtype = LZ_F8, .dims = LZ_DIMS(a->batches, a->groups, a->d, row)};
    codes->strides[3] = 1, codes->strides[2] = row;
    codes->strides[1] = a->d * row, codes->strides[0] = a->groups * a->d * row;
    return f && lz_cuda_launch(a->call, f, a->batches * a->groups * s->blocks, 256, 0, &p);
}

bool lz_sdpa90_run(const lz_sdpa90 *a, const lz_sdpa90_config *w, lz_cu_function f, char *scratch) {
    const lz_call *call = a->call;
    schedule s = schedule_of(a, w);
    memory own = memory_of(a, w, &s, scratch);
    lz_tensor codes;
    if (a->narrow && !narrow_values(a, w, &s, &own, &codes)) return false;
    int64_t items = s.whole + 2 * s.ranges, sms = call->device->sms;
    lz_sdpa90_params p = {.exponents = own.exponents,
                          .scale = a->scale * 1.44269504f,
                          .unscale = 1 / (a->scale * 1.44269504f),
                          .groups = (int)a->groups,
                          .heads_per_group = (int)(a->heads / a->groups),
                          .m = (int)a->m,
                          .items = (int)items};
    p.split = (lz_sdpa90_split){.sums = own.sums,
                                .rows = own.rows,
                                .blocks = (int)s.blocks,
                                .row_tiles = (int)s.row_tiles,
                                .heads = (int)a->heads,
                                .whole = (int)s.whole,
                                .ranges = (int)s.ranges,
                                .units = (int)((s.tiles - s.whole) * s.blocks)};
    if (!encode(a, &p.q, &call->in[0], 64, a->d) || !encode(a, &p.k, &call->in[1], w->keys, a->d) ||
        !(a->narrow ? encode(a, &p.v, &codes, (int)a->d, w->keys) : encode(a, &p.v, &call->in[2], w->keys, a->d)) ||
        !encode(a, &p.out, &call->out, 64, a->d))
        return false;
    int threads = 2 * w->queries + 128;
    return lz_cuda_launch(call, f, items < sms ? items : sms, threads, shared_bytes(a, w), &p) &&
           (!s.ranges || merge_parts(a, w, &s, &p));
}
