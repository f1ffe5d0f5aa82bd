/* sampler.h: a sampler computes the next x from the velocity of the model. It is a row of a table: the number of state
 * arrays that are passed from step to step, their values before the first step, and a step. It only describes arrays;
 * the loop in denoise.c, planning and previews are the same for all samplers. */
#ifndef LZ_SAMPLER_H
#define LZ_SAMPLER_H

#include "pipeline/slots.h"

/* The inputs of a step. */
typedef struct lz_sampler_step lz_sampler_step;
struct lz_sampler_step {
    lz_array *x;             /* [h w, c] */
    lz_array *step_index;    /* [1] i64, index in the schedule; not 0 in the first step after a start image */
    lz_array *sigma_drops;   /* [steps] sigma after less sigma before a step: lz_take(sigma_drops, step_index, 0) */
    lz_array *const *states; /* n_states of them */
    /* The guided velocity of the model at any x and step, [h w, c]. Each call is another pass through the model. */
    lz_array *(*velocity)(const lz_sampler_step *s, lz_array *x, lz_array *step_index);
    const void *user; /* argument of velocity */
};

typedef struct lz_sampler {
    const char *name;
    int n_states; /* 0 to LZ_MAX_STATES */
    /* Sets the states before the first step, at x; NULL if n_states is 0. */
    void (*begin)(lz_array *x, lz_array **states);
    lz_array *(*step)(const lz_sampler_step *s, lz_array **states); /* returns the next x, sets the next states */
} lz_sampler;

enum { LZ_SAMPLER_EULER, LZ_SAMPLERS };
extern const lz_sampler lz_samplers[LZ_SAMPLERS];

#endif
