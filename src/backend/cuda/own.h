/* own.h: shared by the files of our own kernels: types and expressions as CUDA C++, and walks over operands.
 *
 * The text of a kernel is a head that is generated for the call (types, the expression, access patterns), followed by
 * #include "NAME.cu", which is the same for all calls; jit.c prepends prelude.cu. A head depends on types and access
 * patterns but never on sizes, so that few texts serve many calls. */
#ifndef LZ_CUDA_OWN_H
#define LZ_CUDA_OWN_H

#include "backend/common/axes.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/params.h"

/* ---- texts (expr.c) ---------------------------------------------------------------------------------------------- */

const char *lz_cuda_type_name(lz_dtype dtype); /* its name in prelude.cu; for f64 the name of an integer of its size */

/* Adds the function `float name(float r0, ...)`: the expression; if expr is NULL, it returns r0. */
void lz_cuda_add_expression(lz_text *text, const char *name, const lz_expr *expr);
/* Compares steps bit by bit, so that 0 and -0 differ. Padding and unused steps are ignored. NULL equals only NULL. */
bool lz_cuda_same_expressions(const lz_expr *a, const lz_expr *b);

/* Compiles the text if it is new, launches the kernel, and frees the text. */
bool lz_cuda_run_text(const lz_call *call, const char *name, lz_text *text, int64_t blocks, int threads,
                      const void *params);

/* n / size, rounded up. */
static inline int64_t lz_over(int64_t n, int64_t size) { return (n + size - 1) / size; }

/* The number of calls that the parameters of a grouped launch have space for: 1, LZ_SMALL_GROUP or LZ_MAX_GROUP, so
 * that few kernels are compiled. LZ_SMALL_GROUP of gemm90's parameters fit into 4 KB, the limit of older drivers. */
enum { LZ_SMALL_GROUP = 4 };
static inline int lz_cuda_group_capacity(int calls) {
    return calls == 1 ? 1 : calls <= LZ_SMALL_GROUP ? LZ_SMALL_GROUP : LZ_MAX_GROUP;
}

/* ---- walks (walk.c) ---------------------------------------------------------------------------------------------- */

_Static_assert(LZ_AXES == LZ_MAX_DIMS && LZ_OPERANDS == 1 + LZ_MAX_OPERANDS, "kernels/params.h repeats both sizes");

lz_walk lz_walk_of(const lz_axes *axes, const lz_tensor *tensors);

/* The access pattern of an operand along an axis with stride `step`, `width` elements at a time; see VECTOR, SCALAR and
 * SAME in prelude.cu. outer: its strides along the other axes. */
typedef enum lz_access { LZ_VECTOR, LZ_SCALAR, LZ_SAME } lz_access;
lz_access lz_cuda_access(const lz_tensor *t, int64_t step, const int64_t *outer, int n_outer, int width);

/* ---- elementwise (element.c) ------------------------------------------------------------------------------------- */

/* tensors[0] = expression(tensors[1], ...), element by element. `expression` is the text of a function of that name
 * over `number`s: float, i64, or the bits of the elements. */
bool lz_cuda_map(const lz_call *call, const lz_tensor *tensors, int n, const char *number, const char *expression);
/* tensors[0] = expression(factor, tensors[1], ...), over floats. The factor is no part of the text, so all factors have one
 * kernel. */
bool lz_cuda_map_with(const lz_call *call, const lz_tensor *tensors, int n, float factor, const char *expression);

/* ---- faults ------------------------------------------------------------------------------------------------------ */

/* The device's lz_fault, in memory that the host can read: kernels store errors there (lz_cuda_check_faults). */
lz_fault *lz_cuda_fault(lz_device *d);

#endif
