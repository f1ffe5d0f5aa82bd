/* synth.h: model folders of random weights in the layout of the published ones: the same names, shapes, types, sizes and settings,
 * other numbers. They measure and test what the real weights would, where those cannot go. */
#ifndef LZ_SYNTH_H
#define LZ_SYNTH_H

#include "lazuli.h"

/* What shapes are made of. IN and OUT change from layer to layer of the autoencoder. */
enum synth_size {
    END, ONE, THREE, IN, OUT,
    LATENT, MOMENTS, CHANNELS, BASE, GROUPS,                       /* autoencoder: BASE channels at full size */
    TIME, HEADS, HEAD, AXIS, WIDTH, WIDTH2, WIDTH3, WIDTH6, MLP,   /* transformer */
    MLP2, QKV_MLP, OUT_MLP, DOUBLES, SINGLES, FEATURES,
    VOCABULARY, HIDDEN, FFN, Q_HEADS, KV_HEADS, TEXT_HEAD, Q_WIDTH, KV_WIDTH, LAYERS, /* text encoder */
    SYNTH_SIZES
};

typedef struct synth_model {
    int64_t size[SYNTH_SIZES];
    bool distilled, tied;                   /* tied: the text encoder has no output matrix of its own */
    int64_t text_shard, transformer_shard;  /* bytes; files are split before they grow beyond */
} synth_model;

/* The kinds and their sizes. blocks of the transformer and layers of the text encoder: 0 for as many as the real one. */
const char *synth_kind(int i, const char **help); /* NULL behind the last */
lz_status synth_model_of(const char *kind, int64_t blocks, int64_t text_layers, synth_model *model, lz_error *err);

typedef enum synth_part { SYNTH_TEXT, SYNTH_TRANSFORMER, SYNTH_VAE, SYNTH_PARTS } synth_part;
extern const char *const synth_part_names[SYNTH_PARTS]; /* the folders */

typedef struct synth_tensor {
    char name[96];
    lz_dims dims;
    bool counter;            /* an I64 zero; all else is BF16 */
    double mean, deviation;
} synth_tensor;

/* Every tensor of one part, in the order of the file. Release with free; NULL: out of memory. */
synth_tensor *synth_tensors(const synth_model *model, synth_part part, int *n);
int64_t synth_bytes(const synth_tensor *tensor);

typedef struct synth_options {
    uint64_t seed;
    const char *tokenizer; /* a folder to copy it from; NULL: one that knows bytes only */
    bool (*watch)(void *user, const char *file, int64_t done, int64_t total); /* in bytes; false stops; may be NULL */
    void *user;
} synth_options;

/* Into a folder that is new or empty. After a failure nothing is left of it; model_index.json comes last. */
lz_status synth_write(lz_context *ctx, const synth_model *model, const char *folder, const synth_options *options, lz_error *err);

#endif
