/* param.h: a parameter of a model: a named tensor of its files, as the model's ops read it.
 *
 *     file --lz_weights_get--> sources, mapped --recipe--> value --lz_apply--> product
 *
 * If the file's type is one that the model computes with, the value is the source itself. A packed matrix stays packed,
 * and a product unpacks it on the way. Otherwise a recipe makes the value from the sources, as often as it is needed.
 * All programs read the same value, so a device holds at most one copy of it, which is streamed and evicted as any
 * weight is (made buffers in array/internal.h, graph/offload.c). */
#ifndef LZ_PARAM_H
#define LZ_PARAM_H

#include "models/packed.h"
#include "models/patch.h"

enum { LZ_PARAM_SOURCES = 3 };

/* Inputs and output of a recipe. */
typedef struct lz_recipe_work {
    lz_tensor from[LZ_PARAM_SOURCES]; /* in host memory, row-major */
    int n;
    lz_dtype dtype; /* of the value */
    lz_dims dims;
} lz_recipe_work;

typedef struct lz_recipe {
    const char *name;
    /* Writes elements first .. first + n - 1 of the value, in row-major order. Several threads may call it at once. */
    void (*make)(const lz_recipe_work *work, int64_t first, int64_t n, char *to);
} lz_recipe;

extern const lz_recipe lz_recipe_cast; /* one source, of any type; the shape stays */

/* What a recipe makes of sources, which are retained: an array whose bytes are made when they are needed. */
lz_array *lz_recipe_value(lz_context *ctx, const lz_recipe *recipe, lz_dims dims, lz_dtype dtype,
                          lz_array *const *sources, int n, lz_error *err);

typedef struct lz_param {
    lz_context *ctx;
    const lz_recipe *recipe; /* NULL: the value is the source */
    lz_array *value;         /* retained; its buffer knows whether it is on the device. NULL: the parameter is packed */
    lz_packed packed;        /* retained; codes NULL: it is not packed */
    lz_dims dims;
    const lz_target *target; /* the patch that LoRAs add; NULL: LoRAs cannot change it */
    char name[];             /* name in the file */
} lz_param;

/* recipe NULL: the value is sources[0], and dtype and dims are ignored. Sources are retained as long as the value. */
lz_param *lz_param_new(lz_context *ctx, const char *name, const lz_recipe *recipe, lz_dims dims, lz_dtype dtype,
                       lz_array *const *sources, int n, lz_error *err);
/* A parameter that stays packed. dims: [rows, columns], or the same with axes of length 1 at the end. */
lz_param *lz_param_new_packed(lz_context *ctx, const char *name, lz_dims dims, const lz_packed *packed, lz_error *err);
void lz_param_free(lz_param *p); /* programs that read the value have their own references */

/* The value as an array, for tensors that are not matrices of a product: norms (with the terms of LoRAs), biases,
 * kernels. */
lz_array *lz_dense(const lz_param *p);
/* The value of a matrix as an array, without the terms of LoRAs. A packed matrix is unpacked as a whole. */
lz_array *lz_param_base(const lz_param *p);
/* The rows of a table with the indices ids: [ids, columns]. */
lz_array *lz_param_take(const lz_param *p, lz_array *ids);

/* A layer with a bias: linear, convolution or norm. */
typedef struct lz_affine {
    lz_param *weight, *bias;
} lz_affine;

/* x [..., in] times weight [out, in] or [out, in, 1, 1], plus bias [out], which may be NULL; with what LoRAs add. */
lz_array *lz_apply(lz_array *x, const lz_param *weight, const lz_param *bias);
lz_array *lz_apply_affine(lz_array *x, lz_affine layer);
/* The same with rows first .. first + n - 1 of the weight. */
lz_array *lz_apply_rows(lz_array *x, const lz_param *weight, int64_t first, int64_t n);
#ifdef LZ_HERE
#define lz_apply(...) LZ_HERE(lz_apply(__VA_ARGS__))
#define lz_apply_affine(...) LZ_HERE(lz_apply_affine(__VA_ARGS__))
#define lz_apply_rows(...) LZ_HERE(lz_apply_rows(__VA_ARGS__))
#endif

#endif
