/* family.h: what the pipeline asks of a family of models. The loop in denoise.c is the same for all; a family says
 * how a prompt becomes features, a picture becomes latent tokens and back, and a step becomes a velocity. Hooks that may
 * be NULL say what then holds. */
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

/* An image to look at: to what it is resized, and the middle part of that which is used. */
typedef struct lz_reference_size {
    int64_t small_width, small_height, width, height;
} lz_reference_size;

typedef struct lz_family {
    const char *name;
    const char *pipelines[4]; /* _class_name in model_index.json; ended by NULL */

    /* A model from files (parts.h): of what it is made, where people get what is missing (by part), and what stands in for
     * model_index.json and scheduler_config.json. signature: of the transformer's file. NULL: no memory. */
    const lz_component *parts[LZ_PARTS];
    const char *sources[LZ_PART_PATHS];
    json_t *(*index)(const lz_parts *parts, const lz_signature *signature);
    json_t *(*scheduler)(const lz_parts *parts);

    void *(*open)(lz_context *ctx, const lz_parts *parts, lz_config *index, const lz_schedule *schedule, lz_error *err);
    void (*close)(void *model);
    /* What LoRAs change: the parameters of the transformer, or of the text encoder. */
    lz_targets *(*targets)(const void *model, bool text);
    /* Builds the transformer's patches that wait for parameters which are not open all the time. NULL: all are. */
    lz_status (*build)(const void *model, lz_error *err);
    double few_step_shift; /* of the schedule, with a LoRA for few steps (Lightning); 0: none is known */

    /* Facts of an open model. */
    int64_t (*token_pixels)(const void *model);
    int64_t (*channels)(const void *model);  /* of latents */
    int patch;                               /* latents of a token, in each direction */
    bool (*distilled)(const void *model);    /* few steps, and no guidance unless it is asked for */
    bool ignores_guidance;                   /* where distilled: guidance that is asked for is not given either */
    int (*default_steps)(const void *model); /* where the folder names none */
    double default_guidance;                 /* not distilled */
    const char *default_negative;            /* NULL: "" */

    /* Images. NULL: any number; shrunk to a megapixel, the middle in whole tokens; the picture is as large as the first. */
    void (*count_images)(const void *model, int *least, int *most); /* to look at, beside one to start from */
    void (*picture_size)(const void *model, const lz_image *images, int n, int64_t *width, int64_t *height);
    lz_reference_size (*reference_size)(const void *model, const lz_image *image);

    /* The images stand in the prompt; features() gets their rows [p, e], all of them in order, behind the prompt's. */
    lz_status (*tokens)(const void *model, const char *prompt, const lz_image *images, int n_images, lz_prompt *to,
                        lz_error *err);
    void *(*open_text)(const void *model, bool images,
                       lz_error *err); /* the text encoder: opened for the prompt, closed before denoising */
    lz_status (*check_text)(const void *model, const void *text, const lz_parts *parts,
                            lz_error *err); /* it fits the rest of the model */
    lz_array *(*features)(const void *text, lz_prompt prompt);
    void (*close_text)(void *text);
    /* NULL: the text encoder sees no images. An image as the text encoder wants it [h, w, 3] u8, and what it sees. */
    lz_status (*view)(const void *model, const lz_image *image, lz_image *to, lz_error *err);
    lz_array *(*look)(const void *text, lz_array *view); /* -> [p, e] */

    lz_array *(*encode)(const void *model, lz_array *picture); /* [h, w, 3] in -1..1 -> [tokens, c] */
    lz_array *(*decode)(const void *model, lz_array *tokens, int64_t h, int64_t w); /* -> [h, w, 3] in -1..1 */
    double (*mu)(const lz_schedule *schedule, int64_t tokens, int steps);           /* see schedule.h */
    /* What comes before the loop: these describe it. */
    void (*tables)(const void *model, const lz_layout *layout, lz_slots *to); /* to->tables */
    /* to->rows, to->clean_row; times [steps]: sigmas, as the transformer is told them */
    void (*rows)(const void *model, lz_array *times, lz_slots *to);
    lz_array *(*context)(const void *model, lz_array *features);
    /* A step: at x, for the context of a prompt, with its row of each of in->rows. */
    lz_array *(*velocity)(const void *model, const lz_layout *layout, const lz_slots *in, int prompt, lz_array *x,
                          lz_array *const *rows);
    lz_array *(*guide)(lz_array *v, lz_array *away, lz_array *guidance); /* NULL: away + guidance (v - away) */
} lz_family;

extern const lz_family lz_family_flux2_klein, lz_family_qwen_image;
const lz_family *lz_family_named(lz_config *index, lz_error *err); /* by _class_name */
const lz_family *lz_family_of(const lz_component *transformer);    /* NULL: none */

/* What the folder says its model was trained for (lazuli.json; see trained.c). */
enum { LZ_MAX_SIZES = 16 };
typedef struct lz_trained {
    int64_t sizes[LZ_MAX_SIZES][2]; /* width, height */
    int n_sizes;                    /* 0: any */
    bool no_references, no_start;
    lz_vocabulary *words; /* or NULL */
} lz_trained;

struct lz_model {
    lz_context *ctx;
    const lz_family *family;
    void *state;
    lz_schedule schedule;
    char *folder;
    int64_t width, height; /* of a picture, where nothing else is asked for; whole tokens */
    int steps;
    lz_trained trained;

    lz_lora_facts *loras; /* owned, with their paths; they change between pictures only */
    int n_loras;
    int64_t lora_changes;     /* how often they were changed: jobs that were made before are refused */
    int lora_steps;           /* by default with these; 0: they are not for few steps */
    lz_schedule own_schedule; /* without LoRAs for few steps */

    lz_kept kept;         /* what jobs leave for later ones; has its own lock */
    lz_fair_lock running; /* held while a program of a job runs */
    struct lz_job *jobs;  /* that run now; protected by the lock of kept */
};

/* A job, or something else (NULL) that uses the model, begins on this thread. Refused if a job of the model runs on it,
 * which means that a user's function called back, and if weights changed on the disk since they were opened. */
lz_status lz_model_enter(lz_model *m, struct lz_job *job, lz_error *err);
void lz_model_leave(lz_model *m, struct lz_job *job);

void lz_loras_free(lz_model *m); /* the list; loras.c */
lz_status lz_trained_open(lz_trained *t, lz_context *ctx, const char *folder, lz_error *err);
void lz_trained_close(lz_trained *t);
/* The prompt in words that the model knows, owned; NULL: as it is. */
lz_status lz_read_as(const lz_model *m, const char *prompt, char **to, lz_error *err);

/* Of a token: all its latents. */
static inline int64_t lz_token_channels(const lz_model *m) {
    return m->family->channels(m->state) * m->family->patch * m->family->patch;
}

#endif
