/* storage.h: how a file stores one tensor of a model: as plain numbers, as blocks of GGUF, or as codes with companions,
 * which are further tensors with scales or with the format of the quantisation. The module X has its matrix in X.weight
 * (X.weight_packed) and its companions in X.weight_scale, X.comfy_quant and so on.
 *
 * The meaning of a companion is never guessed: an unknown format, a missing companion and an unused one are errors that
 * name the module, because ignoring a scale would silently give a picture of noise. */
#ifndef LZ_STORAGE_H
#define LZ_STORAGE_H

#include "io/weights.h"
#include "models/packed.h"

enum { LZ_STORED_COMPANIONS = 8 };

/* The memory layout of scales and offsets. */
typedef enum lz_scale_order {
    LZ_SCALES_ROWS,    /* [rows / row_group, columns / group] */
    LZ_SCALES_COLUMNS, /* transposed */
    LZ_SCALES_TILED,   /* the order of tensor cores: tiles of 128 rows and 4 columns, padded to whole tiles */
} lz_scale_order;

typedef struct lz_stored {
    const lz_weights_tensor *tensor; /* the tensor with the numbers or the codes */
    lz_dims dims;                    /* of the weight; of a packed matrix [rows, columns] */
    bool packed;
    lz_packed_layout layout;
    const lz_weights_tensor *scales, *offsets; /* or NULL */
    const lz_weights_tensor *gains;            /* [columns]: the weight is multiplied by them; or NULL */
    lz_scale_order order;
    int64_t scale_rows, scale_columns; /* as in LZ_SCALES_ROWS; scale_rows 1: the same for all rows */
    int64_t row_bytes;                 /* of codes */
    int padding;                       /* rows and columns may be padded to a multiple of this */
    const lz_weights_tensor *companions[LZ_STORED_COMPANIONS]; /* all companions, also those that are not needed */
    int n_companions;
} lz_stored;

/* Finds out how a tensor is stored. want: the shape that the model needs; n = 0: unknown. Padding rows and columns
 * beyond want are removed. LZ_NOT_FOUND: the files have no such tensor. */
lz_status lz_stored_find(lz_weights *w, const char *name, lz_dims want, lz_stored *to, lz_error *err);

/* Gets rows first .. first + rows - 1 of a packed matrix. The arrays belong to the current scope. */
lz_status lz_stored_take(lz_weights *w, const lz_stored *stored, int64_t first, int64_t rows, lz_packed *to,
                         lz_error *err);

/* Is a tensor of this name a companion that changes a weight? If it is not used, that is an error. module: gets the
 * name of the module. */
enum { LZ_STORED_NAME = 256 };
bool lz_stored_is_companion(const char *name, char module[LZ_STORED_NAME]);

#endif
