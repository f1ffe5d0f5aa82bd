/* storage.h: how files store one tensor of a model: as plain numbers, as blocks of GGUF, or as codes with companions: tensors
 * beside it that hold scales, or say how it was quantised. The module X has its matrix in X.weight (X.weight_packed) and its
 * companions in X.weight_scale, X.comfy_quant and so on.
 *
 * What a companion means is never guessed: an unknown format, a companion that is missing and one that nothing uses are errors
 * that name the module, because forgotten scales give a picture of noise, not an error. */
#ifndef LZ_STORAGE_H
#define LZ_STORAGE_H

#include "io/weights.h"
#include "models/packed.h"

enum { LZ_STORED_COMPANIONS = 8 };

/* How scales and offsets lie. */
typedef enum lz_scale_order {
    LZ_SCALES_ROWS,    /* [rows / row_group, columns / group] */
    LZ_SCALES_COLUMNS, /* the transposed of that */
    LZ_SCALES_TILED,   /* the order of tensor cores: tiles of 128 rows and 4 columns, padded to whole tiles */
} lz_scale_order;

typedef struct lz_stored {
    const lz_weights_tensor *tensor; /* that holds the numbers or the codes */
    lz_dims dims;                    /* of the weight; of a packed matrix [rows, columns] */
    bool packed;
    lz_packed_layout layout;
    const lz_weights_tensor *scales, *offsets; /* or NULL */
    const lz_weights_tensor *gains;            /* [columns]: the weight is multiplied by them; or NULL */
    lz_scale_order order;
    int64_t scale_rows, scale_columns; /* as in LZ_SCALES_ROWS; scale_rows 1: the same for all rows */
    int64_t row_bytes;                 /* of codes */
    int padding;                       /* rows and columns may have been filled up to a multiple of this */
    const lz_weights_tensor
        *companions[LZ_STORED_COMPANIONS]; /* all that belong to it, also those that are not needed */
    int n_companions;
} lz_stored;

/* Reads how a tensor is stored. want: the shape that the model asks for, or n = 0: not known. Rows and columns of padding
 * that want does not have are cut off. LZ_NOT_FOUND: the files have no such tensor. */
lz_status lz_stored_find(lz_weights *w, const char *name, lz_dims want, lz_stored *to, lz_error *err);

/* Rows first .. first + rows - 1 of a packed matrix. Arrays belong to the scope. */
lz_status lz_stored_take(lz_weights *w, const lz_stored *stored, int64_t first, int64_t rows, lz_packed *to,
                         lz_error *err);

/* Whether a tensor of this name is a companion that changes a weight: one that nothing used is an error. module: of
 * LZ_STORED_NAME bytes, becomes the name of the module. */
enum { LZ_STORED_NAME = 256 };
bool lz_stored_is_companion(const char *name, char module[LZ_STORED_NAME]);

#endif
