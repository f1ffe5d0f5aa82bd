/* unpack.c: packed weights (op/packing.h) are unpacked into the arena, where products read them. */
#include "backend/cuda/own.h"
#include "op/packing.h"

enum { THREADS = 256, WIDTH = 16 }; /* as in kernels/unpack.cu */

/* The function of each packing in op/packing_blocks.h. */
static const char *const functions[LZ_PACKING_COUNT] = {
#define X(id, ...) [LZ_PACKING_##id] = "element_" #id,
    LZ_PACKINGS(X)
#undef X
};

static bool run_unpack(const lz_call *call) {
    const lz_tensor *out = &call->out, *codes = &call->in[0];
    const lz_tensor *scales = call->n_core > 1 ? &call->in[1] : NULL, *offsets = call->n_core > 2 ? &call->in[2] : NULL;
    lz_packing packing = (lz_packing)call->params->unpack.packing;
    int64_t rows = out->dims.at[0], columns = out->dims.at[1];
    lz_unpack_params p = {.out = out->data,
                          .codes = codes->data,
                          .columns = columns,
                          .out_row = out->strides[0],
                          .out_column = out->strides[1],
                          .code_row = codes->strides[0],
                          .group = call->params->unpack.group,
                          .row_group = call->params->unpack.row_group < rows ? call->params->unpack.row_group : rows,
                          .factor = call->params->unpack.factor};
    if (scales) p.scales = scales->data, p.scale_row = scales->strides[0], p.scale_column = scales->strides[1];
    if (offsets) p.offsets = offsets->data, p.offset_row = offsets->strides[0], p.offset_column = offsets->strides[1];
    lz_axes axes = {.rank = 2, .n = 0, .dims = {rows, lz_over(columns, WIDTH)}};
    bool narrow = lz_axes_size(&axes) <= INT32_MAX;
    p.walk = lz_walk_of(&axes, NULL);
    lz_access access = lz_cuda_access(out, out->strides[1], out->strides, 1, WIDTH);
    lz_text text = {.ctx = call->device->ctx};
    lz_text_add(&text, "#define PACKING %s\n#define ELEMENTS %d\n#define BYTES %d\n", functions[packing],
                lz_packing_table[packing].elements, lz_packing_table[packing].bytes);
    bool even = (intptr_t)codes->data % 2 == 0 && p.code_row % 2 == 0 && lz_packing_table[packing].bytes % 2 == 0;
    lz_text_add(&text, "#define EVEN %d\n", even);
    lz_text_add(&text, "#define OUT_TYPE %s\n#define OUT_KIND %d\n#define ROTATE %d\n", lz_cuda_type_name(out->dtype),
                access == LZ_VECTOR ? LZ_VECTOR : LZ_SCALAR, call->params->unpack.rotate);
    lz_text_add(&text, "#define ROW_GROUPED %d\n#define GROUPED %d\n", p.row_group > 1,
                p.group >= columns     ? 0
                : p.group % WIDTH == 0 ? 1
                                       : 2);
    lz_text_add(&text, "#define HAS_SCALES %d\n#define SCALE_TYPE %s\n#define HAS_OFFSETS %d\n#define OFFSET_TYPE %s\n",
                scales != NULL, scales ? lz_cuda_type_name(scales->dtype) : "void", offsets != NULL,
                offsets ? lz_cuda_type_name(offsets->dtype) : "void");
    lz_text_add(&text, "typedef %s index_type;\n#include \"unpack.cu\"\n", narrow ? "u32" : "i64");
    return lz_cuda_run_text(call, "unpack", &text, lz_over(p.walk.size, THREADS), THREADS, &p);
}

static bool can_unpack(const lz_call *call) {
    const lz_tensor *codes = &call->in[0];
    const lz_dims *out = &call->out.dims;
    return out->n == 2 && out->at[0] <= INT32_MAX && out->at[1] <= INT32_MAX - WIDTH &&
           (codes->strides[1] == 1 || codes->dims.at[1] == 1);
}

const lz_kernel lz_cuda_unpack = {.name = "cuda.unpack", .run = run_unpack, .can = can_unpack};
