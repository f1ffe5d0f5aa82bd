/* weights_inside.h: shared by weights.c (opening weight files) and weights_read.c (reading them). */
#ifndef LZ_WEIGHTS_INSIDE_H
#define LZ_WEIGHTS_INSIDE_H

#include "io/weights.h"

typedef lz_weights_tensor tensor;

typedef struct shard {
    const char *path;
    lz_mapping *map;
    int64_t first; /* index of its first tensor, while it is read */
} shard;

typedef struct pair {
    const char *key, *text;
    lz_value value; /* type LZ_VALUE_TYPES: there is only the text */
    json_t *json;   /* the parsed text, after the first lz_weights_json; owned */
} pair;

struct lz_weights {
    lz_context *ctx;
    const lz_weights_format *const *formats; /* used while opening */
    int n_formats;
    lz_bump bump;     /* owns names, paths and metadata */
    const char *path; /* as given */
    shard *shards;
    int n_shards, shard_room;
    tensor *tensors; /* sorted by name after all files are read */
    int64_t n_tensors, tensor_room;
    pair *metadata;
    int64_t n_metadata, metadata_room;
    bool has_metadata; /* an earlier shard had metadata; all shards of a model repeat it */
};

int lz_weights_by_name(const void *a, const void *b); /* of two tensors, for qsort and bsearch */

#endif
