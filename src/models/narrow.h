/* narrow.h: weights that are quantised to 8 bits when a model is opened, in contexts that compute in LZ_I8 or LZ_F8. */
#ifndef LZ_NARROW_H
#define LZ_NARROW_H

#include "io/weights.h"
#include "models/components.h"

/* lz_weights_open for a component. If the context computes in LZ_I8 or LZ_F8, and the component has a row in the table of
 * narrow.c, and the file has no matrices of that type, the file is converted into the folder for caches, unless it is
 * there, and the result is opened. */
lz_weights *lz_narrow_weights(lz_context *ctx, const char *path, const lz_component *component, lz_error *err);

#endif
