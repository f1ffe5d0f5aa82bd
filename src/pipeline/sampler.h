/* sampler.h: how a step moves x along the velocity that the model gives. A sampler is a row of a table: how many arrays
 * it hands from step to step, what they are before the first step, and a step. It only describes arrays; the loop in
 * denoise.c, planning and previews are the same for all samplers. */
#ifndef LZ_SAMPLER_H
#define LZ_SAMPLER_H

#include "pipeline/slots.h"

/* What a step is described from. */
typedef struct lz_sampler_step lz_sampler_step;
struct lz_sampler_step {
    lz_array *x;             /* [h w, c] */
    lz_array *step_index;    /* [1] i64, in the schedule */
    lz_array *sigma_drops;   /* [steps]; lz_take with an index gives a step's */
    lz_array *const *states; /* n_states of them */
    /* The velocity of the model, guided, at any x and step: [h w, c]. Each call is another pass through the model. */
    lz_array *(*velocity)(const lz_sampler_step *s, lz_array *x, lz_array *step_index);
    const void *user; /* of velocity */
};

typedef struct lz_sampler {
    const char *name;
    int n_states;                                                   /* 0 to LZ_MAX_STATES */
    void (*begin)(lz_array *x, lz_array **states);                  /* where n_states is not 0; x of the first step */
    lz_array *(*step)(const lz_sampler_step *s, lz_array **states); /* the next x; sets the next states */
} lz_sampler;

enum { LZ_SAMPLER_EULER, LZ_SAMPLERS };
extern const lz_sampler lz_samplers[LZ_SAMPLERS];

#endif
