/* weights.h: named tensors in files, whatever the format of the files.
 *
 * weights.c knows what a path means, maps files, finds tensors by their names and hands them out. What a file of one format
 * says of its tensors is read by that format's row in the table of weights.c. The format of a file is recognised by its first
 * bytes, because names of files are often wrong. */
#ifndef LZ_WEIGHTS_H
#define LZ_WEIGHTS_H

#include <jansson.h>

#include "array/internal.h"
#include "base/file.h"
#include "io/value.h"
#include "op/packing.h"

/* How files of weights are called: <stem>.safetensors, or <stem>-00001-of-00002.safetensors beside an index. Diffusers and
 * transformers use one stem each. */
#define LZ_WEIGHTS_DIFFUSERS "diffusion_pytorch_model"
#define LZ_WEIGHTS_TRANSFORMERS "model"
#define LZ_WEIGHTS_ENDING ".safetensors"
#define LZ_WEIGHTS_INDEX LZ_WEIGHTS_ENDING ".index.json"
#define LZ_GGUF_ENDING ".gguf"

typedef struct lz_weights_tensor {
    const char *name;
    const char *type; /* as the file has it */
    int dtype;        /* LZ_DTYPE_COUNT: one that has no lz_dtype, or a packed tensor */
    bool packed;      /* the elements in row-major order are blocks of this packing */
    lz_packing packing;
    const char *codes;  /* neither, but codes or scales of a known quantised format: how listings call it; or NULL */
    lz_dims dims;       /* in elements, the last axis is the fastest */
    int64_t begin, end; /* from the start of the file */
    int shard;          /* number of the file; set by lz_weights_add */
} lz_weights_tensor;

typedef struct lz_weights_format {
    const char *ending; /* of its files' names */
    /* Adds all tensors and metadata of a file. path: for errors. */
    bool (*read)(lz_weights *w, const char *path, const lz_mapping *file, lz_error *err);
    /* Whether these are the first bytes of such a file; NULL: by the ending of its name. */
    bool (*recognise)(const lz_mapping *file);
} lz_weights_format;

extern const lz_weights_format lz_format_safetensors, lz_format_gguf;

/* The number and the count of a file <stem>-00002-of-00003.gguf; false: it is not called so. */
bool lz_gguf_split_name(const char *path, int *number, int *count);

/* For formats. Texts are copied. A tensor that does not lie in the file, or has not the bytes of its shape, is refused. */
bool lz_weights_add(lz_weights *w, const lz_weights_tensor *tensor, lz_error *err);
bool lz_weights_add_metadata(lz_weights *w, const char *key, const char *value, lz_error *err);
/* The same for any value. What it points to must lie in the file. */
bool lz_weights_add_value(lz_weights *w, const char *key, const lz_value *value, lz_error *err);
/* The tensors that this file has added so far; their order may be changed. */
lz_weights_tensor *lz_weights_added(lz_weights *w, int64_t *n);
/* What the files say of a tensor, until they are closed. NULL: they have none of this name. */
const lz_weights_tensor *lz_weights_find(const lz_weights *w, const char *name);
const char *lz_weights_path(const lz_weights *w); /* as it was given */
/* lz_weights_get of rows first .. first + rows - 1 (rows -1: all), which are in the tensor, as an array of shape dims, which
 * has as many elements. */
lz_array *lz_weights_get_rows(lz_weights *w, const char *name, int64_t first, int64_t rows, lz_dims dims);
/* A BAD_FILE error about the file at path; returns false. */
bool lz_weights_bad_file(lz_error *err, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* what: as errors call it, such as "the header". NULL: it is not JSON, or memory ran out. */
json_t *lz_weights_parse(const char *path, const char *what, const char *text, int64_t bytes, lz_error *err);
#define LZ_DAMAGED ": the file is damaged, download it again"

/* Bytes of a tensor of any type, from this one on, seen as an array of this shape and type: in place, or copied if they are
 * not aligned for the type. An error if the tensor does not have so many. */
lz_array *lz_weights_view(lz_weights *w, const lz_weights_tensor *tensor, int64_t offset, lz_dims dims, lz_dtype dtype);
const char *lz_weights_data(const lz_weights *w, const lz_weights_tensor *tensor);    /* its first byte */
const char *lz_weights_path_of(const lz_weights *w, const lz_weights_tensor *tensor); /* of the file that holds it */
/* What the files say under this key, such as an array of a GGUF file; NULL: nothing. It lives as long as the weights. */
const lz_value *lz_weights_value(const lz_weights *w, const char *key);
/* What they say under this key, if it is JSON; NULL: nothing, or it is not. Borrowed, and lives as long as the weights. */
json_t *lz_weights_json(lz_weights *w, const char *key);

/* lz_weights_open with other formats than the table's; the first one is tried for files that end in none of their endings. */
lz_weights *lz_weights_open_as(lz_context *ctx, const char *path, const lz_weights_format *const *formats, int n,
                               lz_error *err);
/* The same as opening a safetensors file with these bytes. label stands for its path in errors. data must stay until the
 * weights and all arrays taken from them are gone. */
lz_weights *lz_weights_open_memory(lz_context *ctx, const char *label, const void *data, int64_t bytes, lz_error *err);

#endif
