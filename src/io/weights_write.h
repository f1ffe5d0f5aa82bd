/* weights_write.h: writing weight files in either format, tensor by tensor or piece by piece. */
#ifndef LZ_WEIGHTS_WRITE_H
#define LZ_WEIGHTS_WRITE_H

#include "io/weights.h"

#define LZ_SAFETENSORS_METADATA "__metadata__"
#define LZ_SAFETENSORS_HEADER 100000000        /* bytes: the limit of the reference implementation */
#define LZ_GGUF_SHAPE "comfy.gguf.orig_shape." /* before the name of a tensor: a key with its shape, outermost first */

/* A tensor to write: plain numbers, or packed. */
typedef struct lz_output {
    const char *name;
    lz_dtype dtype;
    int packing;          /* lz_packing, then dtype is ignored; -1: none */
    lz_dims dims;         /* in elements */
    int64_t id;           /* for the caller */
    int64_t bytes, place; /* size, and offset in the file; set by lz_weights_write_header */
} lz_output;

/* Can such a tensor be written to a GGUF file or (gguf false) to a safetensors file? */
bool lz_weights_can_write(bool gguf, lz_dtype dtype, int packing);

/* Writes the header, and sets the offset of each tensor, to which the caller writes it with lz_writer_put. pairs: keys
 * and values, ended by NULL; may be NULL. Reorders outputs. *end: size of the whole file. */
lz_status lz_weights_write_header(lz_writer *writer, bool gguf, lz_output *outputs, int64_t n, const char *const *pairs,
                                  int64_t *end, lz_error *err);

/* The functions of the two formats. */
lz_status lz_safetensors_header(lz_writer *writer, lz_output *outputs, int64_t n, const char *const *pairs,
                                int64_t *end, lz_error *err);
lz_status lz_gguf_header(lz_writer *writer, lz_output *outputs, int64_t n, const char *const *pairs, int64_t *end,
                         lz_error *err);
const char *lz_safetensors_type(lz_dtype dtype);
int lz_gguf_type(lz_dtype dtype, int packing); /* -1: GGUF has no such type */

#endif
