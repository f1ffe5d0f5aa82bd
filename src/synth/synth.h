/* synth.h: model folders with random weights, in the layout of the published models: the same names, shapes, types,
 * sizes and settings. They serve for measurements and tests on machines that do not have the real weights. */
#ifndef LZ_SYNTH_H
#define LZ_SYNTH_H

#include "lazuli.h"

/* A size is a letter; "9D" in a shape or a setting is nine times size D:
 *   transformer   D width, H heads, d head size, a RoPE axis size, N double blocks, S single blocks, C text features
 *                 of Z-Image N layers, S refiners of each kind, F feed-forward, A time features
 *   text encoder  V vocabulary, h hidden, f feed-forward, Q and K heads (query, key), e head size, q and k all, L layers
 *                 of Qwen2.5-VL also v width, w feed-forward, x heads, b blocks of the vision tower, m of a RoPE axis
 *   autoencoder   c channels at full size, g groups, i and o input and output channels of the current layer */
typedef struct synth_model {
    const struct synth_family *family;
    int64_t size[128];
    bool distilled, tied;                  /* tied: the text encoder has no separate output matrix */
    bool edits;                            /* takes images as input: there is a processor */
    bool zero_cond;                        /* reference images are modulated as at time 0 */
    bool layered;                          /* takes images apart: a vector more, and pictures with opacity */
    bool wide;                             /* the transformer is stored as F32 */
    const char *pipeline;                  /* _class_name of model_index.json */
    int64_t text_shard, transformer_shard; /* bytes; the largest size of a file */
} synth_model;

int64_t synth_size(const synth_model *model, const char **text); /* the value of "9D"; advances *text past it */
const char *synth_kind(int i, const char **help);                /* NULL after the last */
/* blocks: of the transformer; layers: of the text encoder; 0: as many as the real model has. */
lz_status synth_model_of(const char *kind, int64_t blocks, int64_t layers, synth_model *model, lz_error *err);

struct synth_list;
typedef enum synth_part { SYNTH_TEXT, SYNTH_TRANSFORMER, SYNTH_VAE, SYNTH_PARTS } synth_part;
extern const char *const synth_part_names[SYNTH_PARTS]; /* names of the folders */

typedef struct synth_tensor {
    char name[96];
    lz_dims dims;
    bool counter; /* an I64 of value 0 */
    bool wide;    /* F32; all other tensors are BF16 */
    double mean, deviation;
} synth_tensor;

/* The files of a family of models: klein.c, flux3.c, qwen.c, qwen21.c, zimage.c. In text files, ` is written as ", $D
 * as size D, and @name as print_piece does. */
typedef struct synth_settings {
    const char *name, *text;
} synth_settings;
typedef struct synth_family {
    void (*parts[SYNTH_PARTS])(struct synth_list *list); /* see list.h */
    /* Ends with an empty entry; the index of the model is the last file. */
    const synth_settings *settings;
    const char *tokenizer; /* folder of the tokenizer; NULL: tokenizer */
} synth_family;
extern const synth_family synth_klein, synth_flux3, synth_qwen, synth_qwen21, synth_zimage;

/* All tensors of a part, in the order of the file. The caller calls free(). NULL: out of memory. */
synth_tensor *synth_tensors(const synth_model *model, synth_part part, int *n);
int64_t synth_bytes(const synth_tensor *tensor);
const char *synth_type(const synth_tensor *tensor); /* "BF16" */

typedef struct synth_options {
    uint64_t seed;
    const char *tokenizer; /* folder to copy the tokenizer from; NULL: a tokenizer of single bytes */
    bool hollow;           /* weight files are sparse: they have their size but no data, which is enough for planning */
    /* In bytes; returning false stops; may be NULL. */
    bool (*watch)(void *user, const char *file, int64_t done, int64_t total);
    void *user;
} synth_options;

/* Writes to a folder that is new or empty. After an error everything is removed; model_index.json is written last. */
lz_status synth_write(lz_context *ctx, const synth_model *model, const char *folder, const synth_options *options,
                      lz_error *err);

#endif
