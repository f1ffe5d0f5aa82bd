/* weights_write.h: files of weights whose tensors are written one after another or a piece at a time, in either format. */
#ifndef LZ_WEIGHTS_WRITE_H
#define LZ_WEIGHTS_WRITE_H

#include "io/weights.h"

#define LZ_SAFETENSORS_METADATA "__metadata__"
#define LZ_SAFETENSORS_HEADER 100000000 /* bytes: the limit of the reference implementation */

/* A tensor of a file that is written: of plain numbers, or packed. */
typedef struct lz_output {
    const char *name;
    lz_dtype dtype;
    int packing;          /* lz_packing: then dtype is not looked at; -1: none */
    lz_dims dims;         /* in elements */
    int64_t id;           /* the caller's */
    int64_t bytes, place; /* in the file; set by lz_weights_write_header */
} lz_output;

/* Can a file of this ending (".gguf"; any other: safetensors) hold such a tensor? */
bool lz_weights_can_write(bool gguf, lz_dtype dtype, int packing);

/* Writes what comes before the tensors, and tells where each of them goes; lz_writer_put brings them there. pairs: keys and
 * values, ended by NULL; may be NULL. Outputs may be sorted. *end: bytes of the whole file. */
lz_status lz_weights_write_header(lz_writer *writer, bool gguf, lz_output *outputs, int64_t n, const char *const *pairs,
                                  int64_t *end, lz_error *err);

/* One of each format; called by the above. */
lz_status lz_safetensors_header(lz_writer *writer, lz_output *outputs, int64_t n, const char *const *pairs,
                                int64_t *end, lz_error *err);
lz_status lz_gguf_header(lz_writer *writer, lz_output *outputs, int64_t n, const char *const *pairs, int64_t *end,
                         lz_error *err);
const char *lz_safetensors_type(lz_dtype dtype);
int lz_gguf_type(lz_dtype dtype, int packing); /* -1: it has none */

#endif
