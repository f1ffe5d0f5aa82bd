/* job.h: one picture, from its options to its pixels, as an object (lazuli.h, section 8). A job owns its settled
 * options, tokens, plan, programs and progress, and is planned and run as the same object. The model under it is shared
 * by jobs and does not change, beside what jobs leave there for later ones (kept.h). */
#ifndef LZ_JOB_H
#define LZ_JOB_H

#include <stdatomic.h>

#include "pipeline/cache.h"
#include "pipeline/generate.h"
#include "pipeline/repaint.h"

enum { LZ_AHEAD_TEXT, LZ_AHEAD_ARRAYS, LZ_AHEAD_STEPS, LZ_AHEAD_DECODER, LZ_AHEAD };

struct lz_job {
    lz_model *model;
    int64_t lora_changes; /* of the model, when the job was made */
    const lz_sampler *sampler;
    lz_picture_options options; /* settled: size, steps and guidance are filled in; prompts are owned copies */
    const lz_image *images;     /* those of the options; with extend, the first one has the added sides */
    /* The images of the options, if some of them had to be blended with white; the pixels of these are owned. */
    lz_image own_images[LZ_MAX_IMAGES];
    bool whitened[LZ_MAX_IMAGES];
    lz_repaint repaint;
    lz_crop crop;               /* what becomes the picture; width 0: all. options has the size before it */
    int schedule_kind;          /* of lz_schedule_list */
    int steps;                  /* of the schedule */
    int first_step, first_pass; /* above 0 with a start image, which replaces the first steps */
    lz_passes passes;           /* owned; sigmas is NULL until lz_job_sigmas */
    lz_layout layout;           /* text_tokens are 0 until the prompt is encoded */

    bool has_tokens;
    lz_prompt prompts[2]; /* of the prompt and the negative prompt; retained */

    bool has_plan;
    lz_picture_plan plan;

    /* Programs and their arrays. They exist from planning, or from their first use, to the end of their stage;
     * otherwise NULL. */
    lz_text_encoder *encoder;
    lz_reader *reader;
    lz_compiled *looker;        /* from an image [h, w, 3] u8 to rows of the text encoder */
    lz_compiled *image_encoder; /* from an image to latent tokens */
    lz_schedule_arrays *schedule;
    lz_loop *loop;
    lz_decoder *decoder;

    lz_slots slots;        /* results of the stages so far; the scope of lz_job_run has references to them */
    struct lz_crew *crew;  /* while this job and others run together, and this one is the first; otherwise NULL */
    lz_array *recalled[2]; /* features of prompts that were encoded before; retained */
    lz_picture *picture;
    double shown_at; /* time of the last preview */
    lz_watch watch;  /* for the programs of this job: takes model->running, and stops them if the job is cancelled */
    uint64_t place;  /* of this job in model->running, while it is held */

    pthread_t ahead[LZ_AHEAD]; /* threads that do work of later stages (ahead.c) */
    bool is_ahead[LZ_AHEAD];   /* the thread must be joined */
    atomic_bool ahead_ends;    /* the threads begin no further program */
    bool expected;             /* it will run (lz_job_expect) */
    bool text_sent;            /* the weights of reader were asked for */

    pthread_mutex_t lock; /* guards view */
    pthread_cond_t changed;
    lz_job_view view;
    atomic_bool cancelled;

    pthread_t thread;    /* the thread that runs it; model->kept.lock guards this and next */
    struct lz_job *next; /* in model->jobs */
};

/* lz_job_new with a sampler; NULL: that of the options. */
lz_job *lz_job_make(lz_model *model, const lz_picture_options *options, const lz_sampler *sampler, lz_error *err);

/* ---- stages ------------------------------------------------------------------------------------------------------ */

/* Called when a stage, or a step of it, begins. LZ_CANCELLED: the job was cancelled. */
lz_status lz_job_begin(lz_job *job, const char *stage, int step, lz_error *err);
/* Updates the view, and calls the user's function if there is one. False: stop. */
bool lz_job_tell(lz_job *job, double done, const lz_image *preview);

lz_status lz_job_settle(lz_job *job, lz_error *err); /* settle.c: options, first_step, layout */
/* fast.c: with the option fast, sets the recommended values of options that are not set. */
void lz_job_fast(lz_job *job);
/* An error if the LoRAs of the model were changed after the job was made. */
lz_status lz_job_check_loras(const lz_job *job, lz_error *err);
lz_status lz_check_previews(const lz_picture_options *options, lz_error *err);
lz_status lz_job_sigmas(lz_job *job, lz_error *err);  /* makes passes, unless they are there */
lz_status lz_job_tokens(lz_job *job, lz_error *err);  /* text.c: makes the tokens of prompts, unless they exist */
lz_status lz_job_prepare(lz_job *job, lz_error *err); /* job.c: sigmas and tokens */
/* ahead.c: lz_ahead_begin begins work of later stages, if the job was planned and not cancelled, and a device has room
 * for all of it. lz_ahead_text does so for the text alone, when that is planned, if the job is expected to run. A stage
 * waits for the threads, of these numbers, that use its objects. lz_ahead_end waits for all threads, which begin nothing
 * more, and takes the requests to send weights back. */
void lz_ahead_text(lz_job *job);
void lz_ahead_begin(lz_job *job);
void lz_ahead_wait(lz_job *job, int first, int last);
void lz_ahead_end(lz_job *job);
void lz_job_free_tokens(lz_job *job);
bool lz_job_looks(const lz_job *job);                       /* the text encoder sees images */
lz_status lz_job_readers(lz_job *job, lz_error *err);       /* makes encoder, reader and looker, unless they exist */
lz_status lz_job_text(lz_job *job, lz_error *err);          /* makes the features, then closes the text encoder */
void lz_job_end_text(lz_job *job, bool ran);                /* puts the programs of the text back */
lz_status lz_job_image_encoder(lz_job *job, lz_error *err); /* images.c: makes image_encoder, unless it exists */
lz_status lz_job_images(lz_job *job, lz_error *err);        /* makes the slots start and references */
/* denoise.c: makes loop and schedule, unless they exist. Counts the rows of the features, which may be stand-ins. */
lz_status lz_job_loop(lz_job *job, const lz_slots *slots, lz_error *err);
/* Makes the slots noise and x of n jobs, which are alike if there are several. */
lz_status lz_jobs_denoise(lz_job *const *jobs, int n, lz_error *err);
void lz_job_end_loop(lz_job *job, bool used); /* puts loop and schedule back into model->kept */
/* cache.c: makes passes.skips, if the options or the family skip evaluations of the model. */
lz_status lz_job_skips(lz_job *job, lz_error *err);
/* A pass of a loop that skips some: `velocity`, unless it is forecast, then `advance`, whose results are *next. */
lz_status lz_job_skipping_pass(lz_job *job, int pass, lz_slots *next, lz_error *err);
bool lz_job_guided(const lz_job *job); /* there is a negative prompt */
/* preview.c: calls the user's function with a preview. pass: its index; before: x before it. */
lz_status lz_job_preview(lz_job *job, int pass, lz_array *before, lz_error *err);

/* The reference images, without a start image, unless that is shown too (repaint.h). */
const lz_image *lz_job_references(const lz_job *job, int *n);
lz_dims lz_job_latents(const lz_job *job); /* their shape */
/* How one of n reference images is prepared. The image that is taken apart has the size of its layers. */
lz_reference_size lz_job_reference_size(const lz_job *job, const lz_image *image, int n);
/* If the model names the sizes that it was trained for: the size (width, height) of references, which is that of the
 * picture: the requested one, else that of the training which is nearest to the image. false: it does not, or repaints
 * the image in its own size, or takes it apart. */
bool lz_job_trained_size(const lz_job *job, const lz_image *image, int64_t size[2]);
/* layers.c: checks the options about layers, and fills in the defaults. */
lz_status lz_settle_layers(lz_job *job, lz_error *err);
lz_status lz_check_layers_prompt(const lz_job *job, lz_error *err);        /* an error if there is none */
lz_status lz_decode_layers(lz_job *job, lz_array **pixels, lz_error *err); /* [n, h, w, 4], and layers and image */
int lz_job_passes(const lz_job *job); /* number of passes through the model that are run */
/* The same, those of them that are forecast, and evaluations of the model; known after lz_job_sigmas. */
void lz_job_count(const lz_job *job, int *passes, int *forecast, int *evaluations);
void lz_passes_free(lz_context *ctx, lz_passes *passes);

/* Jobs that run together (together.c). The first one has the programs of the loop and, while it runs, the slots of all
 * pictures. A job that is cancelled stays in the loop, and its picture is dropped at the end. */
typedef struct lz_crew {
    lz_job *const *jobs;
    int n;
    lz_slots first; /* the slots of the first job itself */
} lz_crew;
void lz_crew_begin(lz_crew *crew, lz_job *const *jobs, int n);
lz_status lz_crew_stack(lz_crew *crew, lz_error *err); /* after the slots of each are filled: makes those of all */
/* Gives each job its x, if the loop went well, and the first one its own slots. */
lz_status lz_crew_end(lz_crew *crew, bool went_well, lz_error *err);
/* As lz_job_begin, lz_job_tell and lz_job_preview, for a job alone or for all of its crew. Only if no job of the crew
 * goes on, the result is LZ_CANCELLED or false. */
lz_status lz_crew_step(lz_job *job, int step, lz_error *err);
bool lz_crew_tell(lz_job *job, double done);
lz_status lz_crew_preview(lz_job *job, int pass, lz_array *before, lz_error *err);
bool lz_crew_listens(const lz_job *job); /* a job has a user's function */
void lz_job_watch(lz_job *job);          /* job.c: sets watch */

/* recall.c: lz_recall returns the features of a recently encoded prompt, retained, or NULL; lz_remember keeps features
 * for it. */
lz_array *lz_recall(lz_model *m, const lz_prompt *prompt);
void lz_remember(lz_model *m, const lz_prompt *prompt, lz_array *features);

/* ---- the programs of the loop (denoise.c) ------------------------------------------------------------------------ */

extern const lz_slot_list lz_schedule_slots, lz_size_slots;
/* Describes sigma_drops, weights, skips, rows and clean_row. */
void lz_describe_schedule(const lz_model *m, const lz_passes *passes, lz_slots *to);
lz_dims lz_job_step_noise(const lz_job *job); /* shape of the noise of all steps */
/* The two programs of the loop, not compiled yet. `begin` makes the inputs of the first step from noise and features;
 * `step` makes the next x, and adds 1 to step_index, which is on the device: a step has no input from the host. */
lz_traced lz_trace_begin(const lz_model *m, const lz_layout *layout, const lz_sampler *sampler);
lz_traced lz_trace_step(const lz_model *m, const lz_layout *layout, const lz_sampler *sampler);
/* The programs of a loop that skips evaluations of the model; see cache.h. */
lz_traced lz_trace_velocity(const lz_model *m, const lz_layout *layout);
lz_traced lz_trace_advance(const lz_model *m, const lz_layout *layout, const lz_sampler *sampler);
/* The slots that lz_describe_update reads. It describes the sampler's step from a velocity, and what follows it; `step`
 * and `advance` have it in common. */
#define LZ_UPDATE_SLOTS                                                                                                \
    LZ_SLOT(x), LZ_SLOT(step_index), LZ_SLOT(states), LZ_SLOT(sigma_drops), LZ_SLOT(weights), LZ_SLOT(step_noise),     \
        LZ_SLOT(mask), LZ_SLOT(kept), LZ_SLOT(kept_noise), LZ_SLOT(sigmas_after)
void lz_describe_update(const lz_traced *t, const lz_slots *in, lz_velocity *velocity, const void *user, lz_slots *out);
/* The row of a pass of each of in->rows. */
void lz_take_rows(const lz_slots *in, lz_array *step_index, lz_array **to);
lz_array *lz_guide(const lz_model *m, lz_array *v, lz_array *away, lz_array *guidance);
/* Fills the slots that `begin` reads, except those of earlier stages. */
void lz_fill_begin(const lz_job *job, lz_slots *slots);
/* The same, and fills the slots that `begin` makes with stand-ins. */
lz_slots lz_fill_begun(const lz_job *job, const lz_slots *slots);
void lz_count_text(const lz_slots *slots, lz_layout *layout); /* sets text_tokens from the features */

#endif
