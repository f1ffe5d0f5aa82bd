/* loader.h: loads named tensors into the fields of a model, by tables. A row has the name of a tensor, its field, and
 * its shape in the model's sizes. A tensor that is missing, unexpected or of another shape is an error that names
 * it. */
#ifndef LZ_LOADER_H
#define LZ_LOADER_H

#include <stddef.h>

#include "models/arrange.h"
#include "models/config.h"

typedef struct lz_weight {
    const char *name; /* after the prefix */
    size_t field;     /* offset of an lz_param * */
    uint8_t dims[5];  /* indices into the sizes, ended by 0; sizes[0] is not used */
} lz_weight;

/* The two rows of an lz_affine. The last arguments are the dims of the weight; the bias has the first of them. */
#define LZ_AFFINE(name, type, field, ...)                                                                              \
    {name ".weight", offsetof(type, field.weight), {__VA_ARGS__}}, {                                                   \
        name ".bias", offsetof(type, field.bias), { LZ_FIRST(__VA_ARGS__, 0) }                                         \
    }
#define LZ_FIRST(first, ...) first

typedef struct lz_loader {
    lz_context *ctx;
    lz_weights *weights;
    const char *folder;
    const int64_t *sizes;
    lz_names names;
    bool *seen;          /* for each tensor of the files: it was used or skipped */
    lz_targets *targets; /* set after lz_loader_open: the list to which parameters are added, for LoRAs; or NULL */
    bool lasting;        /* the parameters live as long as the targets */
    bool strict;         /* the folder has a configuration: unused tensors are an error */
    lz_error err;        /* the first error */
} lz_loader;

/* folder: the folder of a component, or a weight file. */
lz_status lz_loader_open(lz_loader *l, lz_context *ctx, const char *folder, const lz_component *component,
                         const int64_t *sizes, lz_error *err);
/* The caller owns the parameters in the fields, and frees them with lz_loader_release. */
void lz_loader_take(lz_loader *l, const char *prefix, const lz_weight *rows, int n, void *into);
/* Marks tensors whose names begin like this (engine's names, or those of the file) as known and not needed. */
void lz_loader_skip(lz_loader *l, const char *prefix);
/* Closes the files and returns the first error. If strict, an unused tensor is an error. */
lz_status lz_loader_close(lz_loader *l, lz_error *err);
void lz_loader_release(const lz_weight *rows, int n, void *from);

/* Loads n blocks of `bytes` bytes each; the tensors of block i are <stem><list>i.* in the files. The caller owns the
 * blocks, even if an error left some incomplete; NULL: an error before the first. */
void *lz_loader_take_blocks(lz_loader *l, const char *stem, const char *list, int64_t n, const lz_weight *rows,
                            int n_rows, size_t bytes);
/* Skips tensors of blocks first to end - 1 that begin with this name. */
void lz_loader_skip_blocks(lz_loader *l, const char *list, int64_t first, int64_t end, const char *name);
void lz_loader_release_blocks(lz_context *ctx, void *blocks, int64_t n, const lz_weight *rows, int n_rows,
                              size_t bytes);

#define LZ_ROWS(table) table, (int)(sizeof(table) / sizeof(table)[0])

#endif
