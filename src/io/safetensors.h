/* safetensors.h: what tests and fuzzers see of safetensors.c beyond the lz_weights_* functions of lazuli.h. */
#ifndef LZ_SAFETENSORS_H
#define LZ_SAFETENSORS_H

#include "lazuli.h"

/* The same as opening a file with these bytes. label stands for its path in errors. data must stay until the weights
 * and all arrays taken from them are gone. */
lz_weights *lz_weights_open_memory(lz_context *ctx, const char *label, const void *data, int64_t bytes, lz_error *err);

#endif
