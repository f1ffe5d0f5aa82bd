/* weights_inside.h: what opening files of weights (weights.c) and reading them (weights_read.c) share. */
#ifndef LZ_WEIGHTS_INSIDE_H
#define LZ_WEIGHTS_INSIDE_H

#include "io/weights.h"

typedef lz_weights_tensor tensor;

typedef struct shard {
    const char *path;
    lz_mapping *map;
    int64_t first; /* of its tensors, while it is read */
} shard;

typedef struct pair {
    const char *key, *text;
    lz_value value; /* type LZ_VALUE_TYPES: there is only the text */
    json_t *json;   /* of the text, once somebody asked for it; owned */
} pair;

struct lz_weights {
    lz_context *ctx;
    const lz_weights_format *const *formats; /* until it is open */
    int n_formats;
    lz_bump bump;     /* names, paths, metadata */
    const char *path; /* as given */
    shard *shards;
    int n_shards, shard_room;
    tensor *tensors; /* sorted by name, once all are there */
    int64_t n_tensors, tensor_room;
    pair *metadata;
    int64_t n_metadata, metadata_room;
    bool has_metadata; /* of an earlier shard: the shards of a model repeat each other */
};

int lz_weights_by_name(const void *a, const void *b); /* of two tensors, for qsort and bsearch */

#endif
