/* synth.h: model folders of random weights in the layout of the published ones: the same names, shapes, types, sizes and
 * settings, other numbers. They measure and test what the real weights would, where those cannot go. */
#ifndef LZ_SYNTH_H
#define LZ_SYNTH_H

#include "lazuli.h"

/* Sizes are letters, and "9D" in a shape or a setting is nine times the width:
 *   transformer   D width, H heads, d size of one, a of one RoPE axis, N double blocks, S single blocks, C text features
 *   text encoder  V vocabulary, h hidden, f feed-forward, Q and K heads (query, key), e size of one, q and k all, L layers
 *                 of Qwen2.5-VL also v width, w feed-forward, x heads, b blocks of the vision tower, m of one RoPE axis
 *   autoencoder   c channels at full size, g groups, i and o channels into and out of the layer at hand */
typedef struct synth_model {
    const struct synth_family *family;
    int64_t size[128];
    bool distilled, tied;                  /* tied: the text encoder has no output matrix of its own */
    bool edits;                            /* looks at images: there is a processor */
    bool zero_cond;                        /* references are modulated as at time 0 */
    const char *pipeline;                  /* _class_name of model_index.json */
    int64_t text_shard, transformer_shard; /* bytes; files are split before they grow beyond */
} synth_model;

int64_t synth_size(const synth_model *model, const char **text); /* "9D" as a number; text moves behind it */
const char *synth_kind(int i, const char **help);                /* NULL behind the last */
/* blocks of the transformer, layers of the text encoder: 0 for as many as the real one has. */
lz_status synth_model_of(const char *kind, int64_t blocks, int64_t layers, synth_model *model, lz_error *err);

struct synth_list;
typedef enum synth_part { SYNTH_TEXT, SYNTH_TRANSFORMER, SYNTH_VAE, SYNTH_PARTS } synth_part;
extern const char *const synth_part_names[SYNTH_PARTS]; /* the folders */

typedef struct synth_tensor {
    char name[96];
    lz_dims dims;
    bool counter; /* an I64 zero; all else is BF16 */
    double mean, deviation;
} synth_tensor;

/* What a family of models consists of: klein.c, qwen.c. Text files have ` for ", $D for a size and @name for a piece of text. */
typedef struct synth_settings {
    const char *name, *text;
} synth_settings;
typedef struct synth_family {
    void (*parts[SYNTH_PARTS])(struct synth_list *list); /* see list.h */
    const synth_settings *settings;                      /* ended by an empty one; model_index.json is the last */
} synth_family;
extern const synth_family synth_klein, synth_qwen;

/* Every tensor of one part, in the order of the file. Release with free; NULL: out of memory. */
synth_tensor *synth_tensors(const synth_model *model, synth_part part, int *n);
int64_t synth_bytes(const synth_tensor *tensor);

typedef struct synth_options {
    uint64_t seed;
    const char *tokenizer; /* a folder to copy it from; NULL: one that knows bytes only */
    bool hollow;           /* files of weights have their size and no content, and take no room: enough to plan with */
    bool (*watch)(void *user, const char *file, int64_t done, int64_t total); /* in bytes; false stops; may be NULL */
    void *user;
} synth_options;

/* Into a folder that is new or empty. After a failure nothing of it is left; model_index.json comes last. */
lz_status synth_write(lz_context *ctx, const synth_model *model, const char *folder, const synth_options *options,
                      lz_error *err);

#endif
