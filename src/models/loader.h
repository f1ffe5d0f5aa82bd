/* loader.h: from named tensors to the fields of a model, by tables. A row says how a tensor is called, where it
 * goes, and its shape in the model's own sizes; what a file lacks, has too much, or has in another shape is one
 * error that names it. */
#ifndef LZ_LOADER_H
#define LZ_LOADER_H

#include "array/internal.h"

typedef struct lz_weight {
    const char *name; /* behind the prefix */
    size_t field;     /* offset of an lz_array * */
    uint8_t dims[5];  /* indices into the sizes, ended by 0; sizes[0] is not used */
} lz_weight;

typedef struct lz_loader {
    lz_context *ctx;
    lz_weights *weights;
    const char *folder;
    const int64_t *sizes;
    bool *seen;   /* of each tensor of the files */
    lz_error err; /* the first one */
} lz_loader;

lz_status lz_loader_open(lz_loader *l, lz_context *ctx, const char *folder, const int64_t *sizes, lz_error *err);
/* Fields get retained arrays, in place in the mapped file. Release them with lz_loader_release. */
void lz_loader_take(lz_loader *l, const char *prefix, const lz_weight *rows, int n, void *into);
void lz_loader_skip(lz_loader *l, const char *prefix);  /* tensors that begin so are known, and not needed */
lz_status lz_loader_close(lz_loader *l, lz_error *err); /* the first error; tensors nobody asked for are one */
void lz_loader_release(const lz_weight *rows, int n, void *from);

#define LZ_ROWS(table) table, (int)(sizeof(table) / sizeof(table)[0])

#endif
