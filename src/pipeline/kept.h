/* kept.h: what jobs leave with their model for later jobs. On a device these are the text encoder, compiled programs,
 * and arrays that are the same for the next picture of this size or schedule. On the CPU the text encoder is closed
 * after the prompt is encoded, and programs are freed after their stage. The features of the last prompts and the
 * colour map of previews are kept on both.
 *
 * kept.lock guards the members of lz_kept. It is held briefly: never while something is opened, planned, compiled,
 * evaluated or freed, and never while a user's function runs. Programs are not shared: a job takes one out, owns it
 * while it uses it, and puts it back. Two jobs of one kind that run at the same time have one each. */
#ifndef LZ_KEPT_H
#define LZ_KEPT_H

#include <pthread.h>

#include "pipeline/sampler.h"

#define LZ_PROMPT_INPUTS 4

/* A prompt as arrays, the input of features(). All that differs between prompts of one length is in the values, so one
 * program serves all of them. */
typedef struct lz_prompt {
    lz_array *in[LZ_PROMPT_INPUTS];
    int n;    /* 0: there is no such prompt */
    bool cut; /* it was too long, and is truncated */
} lz_prompt;

/* An open text encoder, which jobs share; it does not change. */
typedef struct lz_text_encoder {
    void *text; /* of the family */
    bool sees_images, ran;
    int users; /* references: by jobs, by readers, and by kept.encoder; kept.lock guards it */
} lz_text_encoder;

/* The program from a prompt to features. */
typedef struct lz_reader {
    const lz_model *model;
    lz_text_encoder *encoder; /* counted in its users */
    int inputs;
    bool ran;
    lz_compiled *program;
} lz_reader;

/* The programs of the denoising loop for one size, and their tables. */
typedef struct lz_loop {
    lz_layout layout;
    const lz_sampler *sampler;
    lz_slots slots; /* tables; retained. Described, and computed by lz_loop_ready */
    lz_traced begin, step;
    lz_traced velocity[2],
        advance;          /* in the place of step, if evaluations are skipped; velocity: of the prompt, of both */
    lz_compiled *preview; /* NULL: not compiled yet; see preview.c */
} lz_loop;

/* Arrays that depend on the schedule alone. */
typedef struct lz_schedule_arrays {
    lz_passes passes;       /* owned */
    lz_slots slots;         /* lz_schedule_slots; retained. Described, and computed by lz_schedule_ready */
    lz_evaluation *planned; /* the planned evaluation, until it is run; else NULL */
    bool has_info;
    lz_plan_info info; /* the plan of computing the arrays */
} lz_schedule_arrays;

/* The program from tokens to pixels and bytes, for a picture that is decoded without tiles. */
typedef struct lz_decoder {
    const lz_model *model;
    int64_t h, w; /* in tokens */
    bool ran;     /* the program ran, so a picture of this size fits into memory */
    lz_compiled *program;
} lz_decoder;

/* An encoded prompt; see recall.c. */
typedef struct lz_reading {
    char *key; /* types, shapes and values of its arrays; owned */
    size_t bytes;
    lz_array *features;
    int64_t used; /* kept.clock at its last use */
} lz_reading;
enum { LZ_READINGS = 4 };

enum { LZ_KEPT_READER, LZ_KEPT_LOOP, LZ_KEPT_SCHEDULE, LZ_KEPT_DECODER, LZ_KEPT_ITEMS };

/* Loops and decoders of as many sizes and numbers of pictures are kept. On a device their arenas are evictable. */
enum { LZ_KEPT_MOST = 6 };
typedef struct lz_kept_item {
    void *item;   /* an lz_reader, an lz_loop, ...; or NULL; owned */
    int64_t used; /* kept.clock when it was put here */
} lz_kept_item;

typedef struct lz_kept {
    pthread_mutex_t lock;
    bool programs; /* programs are kept; false on the CPU, and after memory ran out */
    lz_text_encoder *encoder;
    lz_kept_item items[LZ_KEPT_ITEMS][LZ_KEPT_MOST];
    lz_reading readings[LZ_READINGS];
    int64_t clock;
    lz_array *preview_map; /* NULL: not computed yet */
} lz_kept;

void lz_kept_init(lz_model *m);
void lz_kept_free(lz_model *m);
bool lz_kept_programs(lz_model *m);
/* Memory ran out: frees all kept programs and the arrays they read, and keeps none from now on. Those that running jobs
 * have taken are freed when they are put back. False: there was nothing to free. */
bool lz_kept_give_up(lz_model *m);
void lz_kept_forget_readings(lz_model *m);
/* Frees the programs and arrays that were made with the transformer's weights, or with the text encoder's. */
void lz_kept_forget_transformer(lz_model *m);
void lz_kept_forget_text(lz_model *m);

/* The open text encoder, or a newly opened one. NULL: err has the reason. */
lz_text_encoder *lz_encoder_open(lz_model *m, bool images, lz_error *err);
/* ran: its weights were used; then it stays open only if programs are kept. */
void lz_encoder_close(lz_model *m, lz_text_encoder *e, bool ran);

/* Each takes out the kept object if it suits, or else makes one (NULL: err has the reason). Nothing is computed. A
 * kept object that does not suit stays kept, so that a picture that is only planned does not take anything from
 * others. */
lz_reader *lz_reader_take(lz_model *m, lz_text_encoder *encoder, int inputs, lz_error *err);
lz_loop *lz_loop_take(lz_model *m, const lz_layout *layout, const lz_sampler *sampler, lz_error *err);
lz_schedule_arrays *lz_schedule_take(lz_model *m, const lz_passes *passes, lz_error *err);
bool lz_passes_equal(const lz_passes *a, const lz_passes *b);
lz_decoder *lz_decoder_take(lz_model *m, int64_t h, int64_t w, lz_error *err);
void lz_kept_clear(lz_model *m, int kind); /* frees the kept objects of a kind */
/* Both compute the arrays of the object, unless they were computed before. */
lz_status lz_loop_ready(lz_loop *loop, lz_error *err);
lz_status lz_schedule_ready(lz_schedule_arrays *schedule, lz_error *err);
lz_status lz_schedule_plan(lz_schedule_arrays *schedule, lz_error *err); /* fills info */
/* Puts back an object that was taken; NULL is ignored. used: if there is no room, it replaces the kept object that was
 * used longest ago; otherwise it is kept only if there is room. If programs are not kept, it is freed. */
void lz_kept_put(lz_model *m, int kind, void *item, bool used);

#endif
