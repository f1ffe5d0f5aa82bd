/* own.h: what the files of our own kernels share: types and expressions as CUDA C++, and walks over operands.
 *
 * A kernel's text is a head made to measure (types, the expression, what lies side by side) and then
 * #include "NAME.cu", which is the same for all; jit.c puts prelude.cu before it. A head depends on the kinds of its
 * operands but never on sizes, so that few texts serve many calls. */
#ifndef LZ_CUDA_OWN_H
#define LZ_CUDA_OWN_H

#include "backend/common/axes.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernels/params.h"

/* ---- texts (expr.c) ---------------------------------------------------------------------------------------------- */

const char *lz_cuda_type_name(lz_dtype dtype); /* its name in prelude.cu; of f64: of its bits */

/* Adds `float name(float r0, ...)`: the expression, or without one its first argument. */
void lz_cuda_add_expression(lz_text *text, const char *name, const lz_expr *expr);
/* By content, down to the sign of a zero; NULL is only like NULL. Bytes between and behind their steps are any. */
bool lz_cuda_same_expressions(const lz_expr *a, const lz_expr *b);

/* Compiles the text, where it is new, and launches it; the text is freed. */
bool lz_cuda_run_text(const lz_call *call, const char *name, lz_text *text, int64_t blocks, int threads,
                      const void *params);

/* How many of a size it takes to cover n. */
static inline int64_t lz_over(int64_t n, int64_t size) { return (n + size - 1) / size; }

/* Several calls in one launch: room in the parameters is for one of few numbers, so that few kernels serve all. Few of
 * gemm90's fit into the 4 KB that parameters may have everywhere. */
enum { LZ_SMALL_GROUP = 4 };
static inline int lz_cuda_room_for(int calls) {
    return calls == 1 ? 1 : calls <= LZ_SMALL_GROUP ? LZ_SMALL_GROUP : LZ_MAX_GROUP;
}

/* ---- walks (walk.c) ---------------------------------------------------------------------------------------------- */

_Static_assert(LZ_AXES == LZ_MAX_DIMS && LZ_OPERANDS == 1 + LZ_MAX_OPERANDS, "kernels/params.h repeats both sizes");

lz_walk lz_walk_of(const lz_axes *axes, const lz_tensor *tensors);

/* How an operand's elements lie along an axis with this step, taken `width` at a time: VECTOR, SCALAR, SAME of
 * prelude.cu. outer: its strides along the other axes. */
typedef enum lz_lie { LZ_VECTOR, LZ_SCALAR, LZ_SAME } lz_lie;
lz_lie lz_cuda_lie(const lz_tensor *t, int64_t step, const int64_t *outer, int n_outer, int width);

/* ---- elementwise (element.c) ------------------------------------------------------------------------------------- */

/* tensors[0] = expression(tensors[1], ...), element by element. `expression` is the text of a function of that name
 * over `number`s: float, i64, or the bits of the elements. */
bool lz_cuda_map(const lz_call *call, const lz_tensor *tensors, int n, const char *number, const char *expression);

/* ---- faults ------------------------------------------------------------------------------------------------------ */

/* Kernels cannot fail, but they can note in memory that the host sees too what was wrong. */
lz_fault *lz_cuda_fault(lz_device *d);

#endif
