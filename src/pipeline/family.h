/* family.h: the interface of a family of models. The loop in denoise.c is the same for all; a family describes how a
 * prompt becomes features, how a picture becomes latent tokens and back, and the velocity of a step. For functions that
 * may be NULL, the comment says what applies then. */
#ifndef LZ_FAMILY_H
#define LZ_FAMILY_H

#include "models/config.h"
#include "models/patch.h"
#include "pipeline/fair_lock.h"
#include "pipeline/kept.h"
#include "pipeline/parts.h"
#include "pipeline/schedule.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

enum { LZ_DEFAULT_SIZE = 1024, LZ_MAX_SIZE = 1 << 13, LZ_MAX_STEPS = 1000 };

/* How a reference image is prepared: resized to small_width x small_height, then cropped to the middle width x height,
 * or, where these are larger, put into the middle of them, with its reflection or its continued edges around it. */
typedef struct lz_reference_size {
    int64_t small_width, small_height, width, height;
    bool edges; /* the edges are continued, instead of the reflection */
} lz_reference_size;

typedef struct lz_family {
    const char *name;
    const char *pipelines[5]; /* _class_name in model_index.json (or modular_model_index.json); ended by NULL */

    /* A model from files (parts.h): its components; where to get missing parts (a sentence for each part); and
     * objects that replace model_index.json and scheduler_config.json. signature: that of the transformer's file.
     * NULL: out of memory. */
    const lz_component *parts[LZ_PARTS];
    const char *sources[LZ_PART_PATHS];
    json_t *(*index)(const lz_parts *parts, const lz_signature *signature);
    json_t *(*scheduler)(const lz_parts *parts);

    void *(*open)(lz_context *ctx, const lz_parts *parts, lz_config *index, const lz_schedule *schedule, lz_error *err);
    void (*close)(void *model);
    /* The parameters that LoRAs can change: those of the transformer, or of the text encoder. */
    lz_targets *(*targets)(const void *model, bool text);
    /* Builds the patches of transformer parameters that are not always open. NULL: all parameters are always open. */
    lz_status (*build)(const void *model, lz_error *err);
    double few_step_shift; /* of the schedule, with a LoRA for few steps (Lightning); 0: none is known */

    /* Facts of an open model. */
    int64_t (*token_pixels)(const void *model);
    int64_t (*channels)(const void *model);  /* of latents */
    int patch;                               /* a token is patch x patch latents */
    bool (*distilled)(const void *model);    /* few steps, and no guidance by default */
    bool ignores_guidance;                   /* if distilled: requested guidance is ignored */
    int (*default_steps)(const void *model); /* if the folder does not set it */
    double default_guidance;                 /* if not distilled */
    const char *default_negative;            /* NULL: "" */
    int caption_bytes;                       /* it was trained on captions that are longer than this; 0: on any */

    /* Images. NULL: any number of images; each is shrunk to at most a megapixel and cropped to whole tokens; the
     * picture gets the size of the first. If that one was put into a larger size, and no size was asked for, the
     * picture is cropped back to it. */
    void (*count_images)(const void *model, int *least, int *most); /* reference images, without a start image */
    double mask_strength; /* default strength with a mask; 0: the family takes no masks */
    bool mask_by_token;   /* a mask has one number for each token; otherwise one for each latent */
    /* Models of layers: their default number, and the size of the layers of an image. NULL: the family makes none; of a
     * family that has others too, 0 means none. */
    int (*layers)(const void *model);
    lz_status (*layer_size)(const void *model, const lz_image *image, int resolution, int64_t *width, int64_t *height,
                            lz_error *err);
    void (*picture_size)(const void *model, const lz_image *images, int n, int64_t *width, int64_t *height);
    lz_reference_size (*reference_size)(const void *model, const lz_image *image, int n); /* of n references */

    /* tokens() puts the images into the prompt. features() then gets the rows [p, e] of all images, in order, as the
     * last input. */
    lz_status (*tokens)(const void *model, const char *prompt, const lz_image *images, int n_images, lz_prompt *to,
                        lz_error *err);
    void *(*open_text)(const void *model, bool images,
                       lz_error *err); /* opens the text encoder, which is needed only until the prompt is encoded */
    lz_status (*check_text)(const void *model, const void *text, const lz_parts *parts,
                            lz_error *err); /* checks that the text encoder fits the rest of the model */
    lz_array *(*features)(const void *text, lz_prompt prompt);
    void (*close_text)(void *text);
    /* NULL: the text encoder takes no images. view: the image prepared for it, [h, w, 3] u8; look: the rows of such an
     * image. */
    lz_status (*view)(const void *model, const lz_image *image, lz_image *to, lz_error *err);
    lz_array *(*look)(const void *text, lz_array *view); /* -> [p, e] */

    int (*colours)(const void *model);                         /* 4: pictures have opacity; NULL: 3 */
    lz_array *(*encode)(const void *model, lz_array *picture); /* [h, w, 3 or colours] in -1..1 -> [tokens, c] */
    lz_array *(*decode)(const void *model, lz_array *tokens, int64_t h, int64_t w); /* -> [h, w, colours] in -1..1 */
    /* See schedule.h; tokens: of one picture, also if several layers are made. line: NULL means LZ_LINE_NUMPY. */
    double (*mu)(const void *model, const lz_schedule *schedule, int64_t tokens, int steps);
    int (*line)(const void *model);
    bool steps_planes; /* the pipeline of diffusers steps latents [1, c, h, w], not tokens: the layout of noise */
    bool euler_only;   /* if distilled: only Euler's step is defined */
    /* These describe the arrays that are computed before the loop. */
    void (*tables)(const void *model, const lz_layout *layout, lz_slots *to); /* to->tables */
    /* sets to->rows and to->clean_row; times [steps]: sigmas times schedule->time_scale */
    void (*rows)(const void *model, lz_array *times, lz_slots *to);
    lz_array *(*context)(const void *model, lz_array *features);
    /* In the place of context(), for families in which more than the text is the same in every step. It may read
     * features, references, tables and clean_row. */
    lz_array *(*prefix)(const void *model, const lz_layout *layout, const lz_slots *in, int prompt);
    /* Whether steps read, in the place of the tokens of references, an array that is computed from them once; NULL: no.
     * cache() describes that array. It may read references, tables and clean_row. */
    bool (*caches)(const void *model);
    lz_array *(*cache)(const void *model, const lz_layout *layout, const lz_slots *in);
    /* The velocity of a step at x, for prompt 0 or 1. rows: the row of this step of each of in->rows. */
    lz_array *(*velocity)(const void *model, const lz_layout *layout, const lz_slots *in, int prompt, lz_array *x,
                          lz_array *const *rows);
    /* NULL: away + guidance (v - away) */
    lz_array *(*guide)(const void *model, lz_array *v, lz_array *away, lz_array *guidance);
    /* Has a pass guidance? time: sigma times schedule->time_scale. NULL: all have. */
    bool (*guided)(const void *model, float time);
} lz_family;

extern const lz_family lz_family_flux2_klein, lz_family_flux3, lz_family_qwen_image, lz_family_qwen_image21,
    lz_family_z_image;
const lz_family *lz_family_named(lz_config *index, lz_error *err); /* by _class_name */
const lz_family *lz_family_of(const lz_component *transformer);    /* NULL: none */

/* What the model was trained for, from lazuli.json in its folder (trained.c). */
enum { LZ_MAX_SIZES = 16 };
typedef struct lz_trained {
    int64_t sizes[LZ_MAX_SIZES][2]; /* width, height */
    int n_sizes;                    /* 0: any */
    bool no_references, no_start;
    int most_references;  /* 0: any number */
    int most_things;      /* of the list of words, in a picture; 0: any number */
    char version[32];     /* "": none */
    lz_vocabulary *words; /* or NULL */
} lz_trained;

struct lz_model {
    lz_context *ctx;
    const lz_family *family;
    void *state;
    lz_schedule schedule;
    char *folder;
    int64_t width, height; /* default size of a picture, in whole tokens */
    int steps;
    lz_trained trained;

    lz_lora_facts *loras; /* owned, with their paths; they change between pictures only */
    int n_loras;
    /* Number of changes of the LoRAs; a job that was made before the last change is refused. */
    int64_t lora_changes;
    int lora_steps;           /* default number of steps with these LoRAs; 0: none of them is for few steps */
    lz_schedule own_schedule; /* the schedule without LoRAs for few steps */

    lz_kept kept;         /* what jobs leave for later jobs; kept.lock guards it */
    lz_fair_lock running; /* held by a job while one of its programs runs */
    struct lz_job *jobs;  /* list of the running jobs; kept.lock guards it */
};

/* Called when a job, or another use of the model (job is NULL), begins on this thread. An error if a job of the model
 * already runs on this thread (a user's function has called back), or if weight files changed since they were
 * opened. */
lz_status lz_model_enter(lz_model *m, struct lz_job *job, lz_error *err);
void lz_model_leave(lz_model *m, struct lz_job *job);

void lz_loras_free(lz_model *m); /* frees the list of LoRAs; loras.c */
lz_status lz_trained_open(lz_trained *t, lz_context *ctx, const char *folder, int64_t unit, lz_error *err);
void lz_trained_close(lz_trained *t);
/* The nearest of the sizes (width, height) that the model was trained for; NULL: it was trained for any. */
const int64_t *lz_trained_size(const lz_trained *t, int64_t width, int64_t height);
/* *to: the prompt in words that the model knows, which the caller frees with lz_host_free; NULL: unchanged. */
lz_status lz_read_as(const lz_model *m, const char *prompt, char **to, lz_error *err);

/* Do the steps read an array that is made from the references once, and not the references? */
static inline bool lz_caches_references(const lz_model *m) { return m->family->caches && m->family->caches(m->state); }

static inline int lz_layers(const lz_model *m) { return m->family->layers ? m->family->layers(m->state) : 0; }
static inline int lz_colours(const lz_model *m) { return m->family->colours ? m->family->colours(m->state) : 3; }

/* The number of channels of a token. */
static inline int64_t lz_token_channels(const lz_model *m) {
    return m->family->channels(m->state) * m->family->patch * m->family->patch;
}

#endif
