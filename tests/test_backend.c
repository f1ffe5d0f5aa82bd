/* test_backend.c: an example of a new backend. It has two kernels: the reference's product under another name, and an
 * elementwise sum that uses backend/common. All other ops run on the reference, without any code in the backend. */
#include "array/internal.h"
#include "backend/common/axes.h"
#include "check.h"

static int products, sums;

static bool run_product(const lz_call *call) {
    products++;
    return lz_ref_backend()->kernel(LZ_OP_MATMUL)->run(call);
}

/* out = a + b, f32, along the fewest axes; the last one is the inner loop. */
static bool run_sum(const lz_call *call) {
    const lz_tensor tensors[3] = {call->out, call->in[0], call->in[1]};
    lz_axes axes = lz_axes_of(tensors, 3, 0, call->out.dims.n);
    lz_axes_sort(&axes, 0);
    lz_axes_merge(&axes);
    int64_t inner = axes.dims[axes.rank - 1], rows = lz_axes_size(&axes) / inner;
    for (int64_t row = 0; row < rows; row++) {
        int64_t at[3] = {0, 0, 0}, left = row;
        for (int i = axes.rank - 2; i >= 0; i--) {
            for (int k = 0; k < 3; k++) at[k] += left % axes.dims[i] * axes.strides[k][i];
            left /= axes.dims[i];
        }
        for (int64_t j = 0; j < inner; j++) {
            float *p[3];
            for (int k = 0; k < 3; k++) p[k] = (float *)tensors[k].data + at[k] + j * axes.strides[k][axes.rank - 1];
            *p[0] = *p[1] + *p[2];
        }
    }
    sums++;
    return true;
}

static bool is_f32(const lz_call *call) { return call->out.dtype == LZ_F32; }

static const lz_kernel *find_kernel(lz_op op) {
    static const lz_kernel product = {.name = "third.matmul", .run = run_product},
                           sum = {.name = "third.add", .run = run_sum, .can = is_f32};
    return op == LZ_OP_MATMUL ? &product : op == LZ_OP_ADD ? &sum : NULL;
}

static const lz_backend third = {.name = "third", .kernel = find_kernel};

/* Sums of every kind of operand: dense, transposed, repeated, one element; a product; ops that it has not. */
static lz_array *describe(lz_context *ctx) {
    lz_array *x = lz_randn(ctx, LZ_DIMS(3, 5, 7), 1), *row = lz_randn(ctx, LZ_DIMS(7), 2),
             *turned = lz_permute(lz_randn(ctx, LZ_DIMS(7, 5, 3), 3), LZ_DIMS(2, 1, 0));
    lz_array *all = lz_add(lz_add(lz_add(x, row), turned), lz_randn(ctx, LZ_DIMS(1, 1, 1), 4));
    lz_array *y = lz_matmul(all, lz_randn(ctx, LZ_DIMS(7, 4), 5));
    return lz_softmax(lz_add(y, lz_gelu(y)), -1);
}

static void the_reference_under_another_name(void) {
    lz_context *ref = lz_open(.device = "ref", .threads = 1), *ctx = lz_open(.device = "ref", .threads = 1);
    if (!CHECK(ref && ctx)) return;
    ctx->backend = &third;
    float wanted[60], got[60];
    lz_error err = {0};
    CHECK_OK(lz_copy(describe(ref), wanted, sizeof wanted, &err), &err);
    CHECK_OK(lz_copy(describe(ctx), got, sizeof got, &err), &err);
    for (int i = 0; i < 60; i++)
        CHECK(got[i] == wanted[i], "element %d: %g, not %g", i, (double)got[i], (double)wanted[i]);
    CHECK_I64(products, 1);
    CHECK_I64(sums, 4);

    lz_array *y = describe(ctx);
    char *program = lz_graph_text(&y, 1, LZ_GRAPH_PROGRAM, &err);
    CHECK_TEXT(program, "third.matmul");
    CHECK_TEXT(program, "third.add");
    CHECK_TEXT(program, "ref.softmax");
    lz_free_text(ctx, program);

    lz_array *wide = lz_cast(lz_full(ctx, LZ_DIMS(3), LZ_F32, 2), LZ_F64); /* f64 is the reference's, whoever asks */
    CHECK(lz_item(lz_sum(lz_add(wide, wide), LZ_NONE, false), &err) == 12);
    CHECK_I64(sums, 4);
    lz_close(ref);
    lz_close(ctx);
}

/* Every backend falls back to the reference, so an op without a kernel there would crash. Leaves and views have no
 * kernels, concat becomes copies, and four ops are only made for backends that have a kernel for them. */
static void the_reference_has_every_op(void) {
    for (int op = 0; op < LZ_OP_COUNT; op++) {
        const lz_op_info *info = &lz_op_table[op];
        bool none = info->kind == LZ_KIND_LEAF || info->kind == LZ_KIND_VIEW || op == LZ_OP_CONCAT ||
                    op == LZ_OP_FUSED || op == LZ_OP_MATMUL_PAIR || op == LZ_OP_PACKED_MATMUL ||
                    op == LZ_OP_RMS_NORM_TWICE;
        const lz_kernel *kernel = lz_ref_backend()->kernel((lz_op)op);
        CHECK((kernel && kernel->run) == !none, "%s", info->name);
    }
}

TEST_MAIN({"the_reference_under_another_name", the_reference_under_another_name},
          {"the_reference_has_every_op", the_reference_has_every_op})
