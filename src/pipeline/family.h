/* family.h: what the pipeline asks of a family of models. The loop in generate.c is the same for all; a family says
 * how a prompt becomes features, a picture becomes latent tokens and back, and a step becomes a velocity. */
#ifndef LZ_FAMILY_H
#define LZ_FAMILY_H

#include "graph/eval.h"
#include "models/config.h"
#include "text/tokenizer.h"

#define LZ_MAX_ROWS 8

enum { LZ_DEFAULT_SIZE = 1024, LZ_MAX_SIZE = 1 << 13, LZ_MAX_STEPS = 1000 };

/* One prompt: its tokens, cut or padded to what the model reads. */
typedef struct lz_prompt {
    lz_array *ids, *real; /* [t] i64; [t] bool: false where padded */
    bool cut;             /* it was too long */
} lz_prompt;

/* What a denoising run has before its first step. */
typedef struct lz_denoiser {
    void *model;           /* the family's own */
    lz_array *features[2]; /* [t, e]: of the prompt, and of the negative one (or NULL: no guidance) */
    lz_array *references;  /* [r, c] tokens, or NULL */
    int64_t h, w;          /* of the picture, in tokens */
    int64_t reference_sizes[16][2];
    int n_references;
    bool guided; /* there are two prompts: in the shape of a step */

    /* Made by prepare(); all evaluated. */
    lz_array *context[2];        /* per prompt */
    lz_array *tables[2];         /* per size */
    lz_array *rows[LZ_MAX_ROWS]; /* per step: [steps, ...]; row i is an input of step i */
    int n_rows;
} lz_denoiser;

typedef struct lz_family {
    const char *name;
    const char *pipeline; /* _class_name in model_index.json */

    void *(*open)(lz_context *ctx, const char *folder, lz_config *index, lz_error *err);
    void (*close)(void *model);

    /* Facts of an open model. */
    int64_t (*token_pixels)(const void *model);
    int64_t (*channels)(const void *model);
    bool (*distilled)(const void *model); /* guidance is in its weights */
    int default_steps[2];                 /* not distilled, distilled; where the folder names none */
    double default_guidance;              /* not distilled */

    lz_status (*tokens)(const void *model, const char *prompt, lz_prompt *to, lz_error *err);
    void *(*open_text)(const void *model,
                       lz_error *err); /* the text encoder: opened for the prompt, closed before denoising */
    lz_array *(*features)(const void *text, lz_prompt prompt);
    void (*close_text)(void *text);
    lz_array *(*encode)(const void *model, lz_array *picture); /* [h, w, 3] in -1..1 -> [tokens, c] */
    lz_array *(*decode)(const void *model, lz_array *tokens, int64_t h, int64_t w); /* -> [h, w, 3] in -1..1 */
    void (*sigmas)(int64_t tokens, int steps, float *to);                           /* steps + 1, ending in 0 */
    void (*prepare)(lz_denoiser *d, lz_array *sigmas); /* describes context, tables, rows */
    lz_array *(*velocity)(const lz_denoiser *d, int prompt, lz_array *x, lz_array *const *rows);
} lz_family;

extern const lz_family lz_family_flux2_klein;

struct lz_model {
    lz_context *ctx;
    const lz_family *family;
    void *state;
    char *folder;
    int64_t width, height; /* of a picture, where nothing else is asked for; whole tokens */
    int steps;

    /* Kept from picture to picture where weights were sent to a device: what was sent, and the programs that use it.
     * Elsewhere the text encoder goes before denoising begins, and each program goes after its stage. */
    bool keeps;
    void *text;             /* the text encoder, or NULL */
    lz_compiled *read;      /* ids, real -> features */
    lz_compiled *step;      /* see lz_describe_step */
    lz_denoiser step_shape; /* what it was made for: sizes only */
    lz_compiled *decode;    /* tokens -> pixels */
    int64_t decode_size[2];
};

void lz_model_forget(lz_model *m); /* what is kept */

#endif
