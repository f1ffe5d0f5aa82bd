/* arrange.h: tensors that a file stores differently than the model needs them: in several tensors, with swapped halves,
 * or with the channels of a kernel last (lz_origin in names.h). */
#ifndef LZ_ARRANGE_H
#define LZ_ARRANGE_H

#include "models/names.h"
#include "models/param.h"
#include "models/storage.h"

/* The sources of a parameter. */
typedef struct lz_arranged {
    lz_stored pieces[LZ_NAME_PIECES]; /* how the file stores each */
    int n;
    lz_packed packed;                  /* the parameter stays packed; codes NULL: it does not */
    lz_array *sources[LZ_NAME_PIECES]; /* else: of one type each, which may be any */
    const lz_recipe *recipe;           /* makes the tensor from the sources; NULL: it is sources[0] */
} lz_arranged;

/* Gets the pieces of a tensor from the file. An error if together they do not have the shape want. name: the engine's
 * name, for the error. */
lz_status lz_arrange(const lz_names *names, const char *name, const lz_origin *from, lz_dims want, lz_arranged *to,
                     lz_error *err);

#endif
