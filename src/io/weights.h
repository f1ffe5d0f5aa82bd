/* weights.h: named tensors in files of any format.
 *
 * weights.c resolves paths, maps files, and finds tensors by name. Each format has a row in the table of weights.c,
 * whose function lists the tensors of a file. The format of a file is recognised by its first bytes, because file names
 * are often wrong. */
#ifndef LZ_WEIGHTS_H
#define LZ_WEIGHTS_H

#include <jansson.h>

#include "array/internal.h"
#include "base/file.h"
#include "io/value.h"
#include "op/packing.h"

/* Names of weight files: <stem>.safetensors, or <stem>-00001-of-00002.safetensors with an index. Diffusers and
 * transformers each use one stem. */
#define LZ_WEIGHTS_DIFFUSERS "diffusion_pytorch_model"
#define LZ_WEIGHTS_TRANSFORMERS "model"
#define LZ_WEIGHTS_ENDING ".safetensors"
#define LZ_WEIGHTS_INDEX LZ_WEIGHTS_ENDING ".index.json"
#define LZ_GGUF_ENDING ".gguf"

typedef struct lz_weights_tensor {
    const char *name;
    const char *type; /* name of the type in the file */
    int dtype;        /* LZ_DTYPE_COUNT: not an lz_dtype, or packed */
    bool packed;      /* the elements in row-major order are blocks of this packing */
    lz_packing packing;
    const char *codes;  /* neither, but codes or scales of a known quantised format: its name in listings; or NULL */
    lz_dims dims;       /* in elements, the last axis is the fastest */
    int64_t begin, end; /* offsets in the file */
    int shard;          /* index of the file; set by lz_weights_add */
} lz_weights_tensor;

typedef struct lz_weights_format {
    const char *ending; /* of file names, such as ".safetensors" */
    /* Adds all tensors and metadata of a file. path: for errors. */
    bool (*read)(lz_weights *w, const char *path, const lz_mapping *file, lz_error *err);
    /* Does the file begin like this format? NULL: recognised by the ending of its name. */
    bool (*recognise)(const lz_mapping *file);
    int64_t (*head)(const char *data, int64_t bytes); /* see lz_weights_head; NULL: unknown */
} lz_weights_format;

extern const lz_weights_format lz_format_safetensors, lz_format_gguf;

/* The number and the count in a name <stem>-00002-of-00003.gguf; false: another name. */
bool lz_gguf_split_name(const char *path, int *number, int *count);

/* For formats. Strings are copied. A tensor that is not inside the file, or does not have the bytes of its shape, is
 * refused. */
bool lz_weights_add(lz_weights *w, const lz_weights_tensor *tensor, lz_error *err);
bool lz_weights_add_metadata(lz_weights *w, const char *key, const char *value, lz_error *err);
/* The same for any value. It must point into the mapped file. */
bool lz_weights_add_value(lz_weights *w, const char *key, const lz_value *value, lz_error *err);
/* The tensors that the current file has added so far; the caller may reorder them. */
lz_weights_tensor *lz_weights_added(lz_weights *w, int64_t *n);
/* The description of a tensor, valid until the weights are closed. NULL: there is none of this name. */
const lz_weights_tensor *lz_weights_find(const lz_weights *w, const char *name);
const char *lz_weights_path(const lz_weights *w); /* the path that was opened */
/* The i-th file, from 0, valid until the weights are closed; NULL: there are no more. */
const lz_mapping *lz_weights_mapping(const lz_weights *w, int i);
/* lz_weights_get of rows first .. first + rows - 1 (rows -1: all) as an array of shape dims. The rows must exist, and
 * dims must have as many elements. */
lz_array *lz_weights_get_rows(lz_weights *w, const char *name, int64_t first, int64_t rows, lz_dims dims);
/* Sets an LZ_BAD_FILE error about the file at path; returns false. */
bool lz_weights_bad_file(lz_error *err, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* what: its name in errors, such as "the header". NULL: not JSON, or out of memory. */
json_t *lz_weights_parse(const char *path, const char *what, const char *text, int64_t bytes, lz_error *err);
#define LZ_DAMAGED ": the file is damaged, download it again"

/* The bytes of a tensor of any type, from offset on, as an array of this shape and type: borrowed, or copied if they
 * are not aligned for the type. An error if the tensor has too few bytes. */
lz_array *lz_weights_view(lz_weights *w, const lz_weights_tensor *tensor, int64_t offset, lz_dims dims, lz_dtype dtype);
const char *lz_weights_data(const lz_weights *w, const lz_weights_tensor *tensor);    /* its first byte */
const char *lz_weights_path_of(const lz_weights *w, const lz_weights_tensor *tensor); /* of the file with the tensor */
/* The value of a key, such as an array of a GGUF file; NULL: none. Valid until the weights are closed. */
const lz_value *lz_weights_value(const lz_weights *w, const char *key);
/* The value of a key as JSON; NULL: none, or not JSON. Owned by the weights, and valid until they are closed. */
json_t *lz_weights_json(lz_weights *w, const char *key);

/* lz_weights_open with other formats than those of the table. Files with an unknown ending are read as the first
 * format. */
lz_weights *lz_weights_open_as(lz_context *ctx, const char *path, const lz_weights_format *const *formats, int n,
                               lz_error *err);
/* Opens bytes in memory as a safetensors file. label is used as its path in errors. data must outlive the weights and
 * all arrays of them. */
lz_weights *lz_weights_open_memory(lz_context *ctx, const char *label, const void *data, int64_t bytes, lz_error *err);

#endif
