/* arrange.h: a tensor whose numbers a file has in another order than the model: in several tensors, with its halves swapped,
 * or with the channels of a kernel last (lz_origin in names.h). */
#ifndef LZ_ARRANGE_H
#define LZ_ARRANGE_H

#include "models/names.h"
#include "models/param.h"

/* Takes the pieces of a tensor from the file as arrays, in sources, of which *n are set. *recipe becomes what makes the
 * tensor of shape want from them; NULL: it is sources[0] as it is. Fails if the pieces do not have that shape; name is the
 * engine's, for the error. */
lz_status lz_arrange(const lz_names *names, const char *name, const lz_origin *from, lz_dims want, lz_array **sources,
                     int *n, const lz_recipe **recipe, lz_error *err);

#endif
