/* loader.h: from named tensors to the fields of a model, by tables. A row says how a tensor is called, where it
 * goes, and its shape in the model's own sizes; what a file lacks, has too much, or has in another shape is one
 * error that names it. */
#ifndef LZ_LOADER_H
#define LZ_LOADER_H

#include <stddef.h>

#include "models/arrange.h"
#include "models/config.h"

typedef struct lz_weight {
    const char *name; /* behind the prefix */
    size_t field;     /* offset of an lz_param * */
    uint8_t dims[5];  /* indices into the sizes, ended by 0; sizes[0] is not used */
} lz_weight;

/* The two rows of an lz_affine; dims: those of the weight, the bias has the first. */
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
    bool *seen;          /* of each tensor of the files */
    lz_targets *targets; /* set after lz_loader_open: the parameters are listed there, for LoRAs. NULL: they are not */
    bool lasting;        /* the parameters stay open as long as the targets */
    bool strict;         /* the folder has a configuration: tensors that nobody asked for are an error */
    lz_error err;        /* the first one */
} lz_loader;

/* folder: of a component, or a file. */
lz_status lz_loader_open(lz_loader *l, lz_context *ctx, const char *folder, const lz_component *component,
                         const int64_t *sizes, lz_error *err);
/* Fields get parameters that are the caller's: free them with lz_loader_release. */
void lz_loader_take(lz_loader *l, const char *prefix, const lz_weight *rows, int n, void *into);
/* Tensors that begin so (engine's names, or the file's) are known, and not needed. */
void lz_loader_skip(lz_loader *l, const char *prefix);
/* The first error; of a folder with a configuration, tensors that nobody asked for are one. */
lz_status lz_loader_close(lz_loader *l, lz_error *err);
void lz_loader_release(const lz_weight *rows, int n, void *from);

/* A list of n blocks of some bytes each; block i is called <stem><list>i. in the files. The blocks are the caller's from
 * then on, also those that an error left half empty; NULL: an error before the first. */
void *lz_loader_take_blocks(lz_loader *l, const char *stem, const char *list, int64_t n, const lz_weight *rows,
                            int n_rows, size_t bytes);
/* Of blocks first to end - 1, tensors that begin with this name. */
void lz_loader_skip_blocks(lz_loader *l, const char *list, int64_t first, int64_t end, const char *name);
void lz_loader_release_blocks(lz_context *ctx, void *blocks, int64_t n, const lz_weight *rows, int n_rows,
                              size_t bytes);

#define LZ_ROWS(table) table, (int)(sizeof(table) / sizeof(table)[0])

#endif
