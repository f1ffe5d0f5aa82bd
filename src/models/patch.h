/* patch.h: what LoRA files add to the parameters of a model.
 *
 * A model lists its parameters as targets: a name and a shape each. Targets last as long as the model, also where its
 * parameters do not: a text encoder is closed after each prompt. A parameter points to its target, and lz_apply adds what the
 * target's patch says:
 *
 *     y = (x c) W^T r + sum of terms        c, r: gains of columns and rows (DoRA); 1 elsewhere
 *
 * The base W is only read, so it may be packed. Low ranks are joined, (x down^T) up^T with one `down` and one `up` for all
 * files; Kronecker products stay factors; all others become one dense matrix. Like weights, these are read from the mapped files,
 * or made from them on their way to the kernels (lz_array_made).
 *
 * Patches change between pictures only: no program that reads them is described or run meanwhile. */
#ifndef LZ_PATCH_H
#define LZ_PATCH_H

#include "array/internal.h"

struct lz_param;
typedef struct lz_patch lz_patch;

typedef struct lz_target {
    lz_dims dims;
    struct lz_param *param; /* the parameter, if the model keeps it open; else NULL */
    lz_patch *patch;        /* or NULL */
    char name[];            /* the engine's, as in diffusers and transformers */
} lz_target;

typedef struct lz_targets {
    lz_context *ctx;
    lz_target **list; /* sorted by name */
    int64_t n, room;
} lz_targets;

lz_targets *lz_targets_new(lz_context *ctx); /* NULL: out of memory */
/* The target of this name, which is added if there is none. NULL: out of memory. After a model was opened nothing is
 * added any more, so several threads may call this. */
lz_target *lz_targets_add(lz_targets *t, const char *name, lz_dims dims);
lz_target *lz_targets_find(const lz_targets *t, const char *name); /* or NULL */
void lz_targets_free(lz_targets *t);                               /* frees the targets and their patches */
/* lz_targets_take removes the patches of all targets and returns them as a list; NULL: out of memory, and nothing
 * was removed. lz_targets_put frees the patches that the targets have now, and puts the list back. lz_targets_drop
 * frees the list and its patches. */
lz_patch **lz_targets_take(lz_targets *t);
void lz_targets_put(lz_targets *t, lz_patch **patches);
void lz_targets_drop(lz_targets *t, lz_patch **patches);
bool lz_targets_patched(const lz_targets *t); /* whether any target has a patch */

/* ---- terms ------------------------------------------------------------------------------------------------------- */

typedef enum lz_term_kind {
    LZ_TERM_LOW_RANK,   /* from: A [r, in], B [out, r]; B A */
    LZ_TERM_HADAMARD,   /* from: w1_a [out, r], w1_b [r, in], w2_a, w2_b; (w1_a w1_b) * (w2_a w2_b) by element */
    LZ_TERM_KRONECKER,  /* from: w1 [a, b], w1_b or NULL, w2 [c, d], w2_b or NULL; a factor may be a product */
    LZ_TERM_DIFFERENCE, /* from: D [out, in], or [n] for a target of one axis */
    LZ_TERM_REPLACE,    /* from: D, which is what the rows become */
    LZ_TERM_BIAS,       /* from: [out], added to the result */
} lz_term_kind;

enum { LZ_TERM_SOURCES = 4 };

/* Rows of the term go to rows first .. first + rows - 1 of the target: row first + i is row
 * source_first + (i + rotate) mod rows of the term. */
typedef struct lz_term {
    lz_term_kind kind;
    lz_array *from[LZ_TERM_SOURCES];   /* row-major; retained by lz_patch_add */
    const char *data[LZ_TERM_SOURCES]; /* the numbers of `from` in host memory; set by lz_patch_add */
    double strength;                   /* the weight of the LoRA that the user gave */
    double unit;                       /* alpha / rank */
    int64_t first, rows, source_first, rotate;
    lz_array *magnitude; /* DoRA, f32: [out of the source, 1], or [1, in] for norms of columns; retained. NULL: none */
} lz_term;

/* Shapes must fit: lora.c checks them. */
lz_status lz_patch_add(lz_target *target, lz_context *ctx, const lz_term *term, lz_error *err);

/* Makes the arrays that lz_apply needs from all terms. base: the values of the parameter, which only DoRA needs;
 * otherwise NULL. */
lz_status lz_patch_build(lz_target *target, lz_array *base, lz_error *err);
/* Whether the target has terms that were not built yet. */
bool lz_patch_waits(const lz_target *target);
/* Whether the terms of the target need the values of the base. */
bool lz_patch_needs_base(const lz_target *target);

/* ---- applying ---------------------------------------------------------------------------------------------------- */

/* The input of the base's product, in place of x. */
lz_array *lz_patch_input(const lz_patch *p, lz_array *x);
/* From y, the product of the base's rows first .. first + n - 1, to the patched one. */
lz_array *lz_patch_output(const lz_patch *p, lz_array *x, lz_array *y, int64_t first, int64_t n);
/* The patched value of a target of one axis. */
lz_array *lz_patch_vector(const lz_patch *p, lz_array *value);

/* ---- making (patch_make.c) --------------------------------------------------------------------------------------- */

/* A term, and the gains that DoRA gave it, f32 in the host's memory, or NULL: [rows] and [in]. */
typedef struct lz_made_term {
    lz_term term;
    lz_array *row_array, *column_array;
    const float *row_gain, *column_gain; /* the values of row_array and column_array */
} lz_made_term;

enum { LZ_MADE_DOWN, LZ_MADE_UP, LZ_MADE_DENSE };
/* The matrix [rows, columns] of the terms that belong to it, made when it is needed. The terms' arrays are retained. */
lz_array *lz_patch_matrix(lz_context *ctx, int what, const lz_made_term *terms, int n, int64_t rows, int64_t columns,
                          lz_dtype dtype);
int64_t lz_term_rank(const lz_term *term); /* of LZ_TERM_LOW_RANK */

#endif
