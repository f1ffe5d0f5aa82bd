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

typedef enum target { PLAIN, BLOCKS, FP8, FP8_ROWS, INT8 } target;

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

/* Asked before the first weights are written: is there room for a file of so many bytes? */
typedef lz_status lz_convert_room(lz_context *ctx, int64_t bytes, lz_error *err);

typedef struct conversion {
    lz_context *ctx;
    lz_weights *weights;
    const char *path;
    bool gguf;
    const lz_convert_options *options;
    const char *const *wide; /* parts of names of more layers that are not quantised, ended by NULL; or NULL */
    const char *source;      /* kept in the metadata of the file, under LZ_CONVERT_SOURCE; or NULL */
    lz_convert_room *room;   /* or NULL */
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

/* lz_convert to the type that the context computes in, LZ_I8 or LZ_F8 with a scale for each row, with the members above of
 * these names. to: a name of a safetensors file. The context's `quantising` is called, and weights that are not finite are
 * an error. */
#define LZ_CONVERT_SOURCE "lazuli.source"
lz_status lz_convert_narrow(lz_context *ctx, const char *path, const char *to, const char *const *wide,
                            const char *source, lz_convert_room *room, lz_error *err);

/* Would a matrix of this name stay as it is? */
bool lz_convert_is_wide(const char *name, const char *const *wide);

/* Fills in items and outputs. */
lz_status lz_convert_plan(conversion *c, const type *wanted);
/* The comfy_quant companion of a matrix of FP8 or INT8, from which ComfyUI reads its format. */
const char *lz_convert_note(const item *it);
/* The type of this name, for a file called `to`; NULL: err has the reason. */
const type *lz_convert_find(const char *name, bool gguf, const char *to, lz_error *err);

#endif
