/* convert_inside.h: shared by convert.c (reading and writing tensors) and convert_plan.c (which tensors are written, and in
 * which types). */
#ifndef LZ_CONVERT_INSIDE_H
#define LZ_CONVERT_INSIDE_H

#include "io/weights_write.h"
#include "models/storage.h"

enum {
    CHUNK = 1 << 22,
    SMALL = 1024,
    ROTATE = 256
}; /* elements: at a time; of a matrix that is left alone; of ConvRot */

typedef enum target { PLAIN, BLOCKS, FP8, INT8 } target;

typedef struct type {
    const char *name;
    target target;
    int number; /* lz_dtype of PLAIN, lz_packing of BLOCKS */
} type;

typedef struct item {
    const lz_weights_tensor *from; /* of a quantised matrix: with the name and shape of the weight */
    lz_stored *stored;             /* of a quantised matrix with companions; or NULL */
    target target;
    int number;
    int64_t main, scale, note; /* indices of outputs: the weights; for fp8 and int8 also their scales and comfy_quant */
} item;

typedef struct conversion {
    lz_context *ctx;
    lz_weights *weights;
    const char *path;
    bool gguf;
    const lz_convert_options *options;
    item *items;
    lz_output *outputs;
    int64_t *places;                   /* offsets of the outputs, by index */
    int64_t n, n_outputs, total, done; /* bytes of the source */
    lz_bump names;
    lz_writer writer;
    lz_pool *pool; /* owned; the context's pool may be running programs */
    /* Buffers for the chunk that is being converted. */
    float *x, *y, *scales;
    uint8_t *bytes;
    double *changed, *squares; /* by row of a chunk */
    lz_error *err;
} conversion;

/* Fills in items and outputs. */
lz_status lz_convert_plan(conversion *c, const type *wanted);
/* The comfy_quant companion of a matrix of FP8 or INT8, from which ComfyUI reads its format. */
const char *lz_convert_note(const item *it);
/* The type of this name, for a file called `to`; NULL: err has the reason. */
const type *lz_convert_find(const char *name, bool gguf, const char *to, lz_error *err);

#endif
