/* sampler.h: a sampler computes the next x from the velocity of the model. It is a row of a table: the number of state
 * arrays that are passed from pass to pass, and a step. It only describes arrays; the loop in denoise.c, planning and
 * previews are the same for all samplers.
 *
 * All samplers here are linear: x and the states after a pass are sums of x, the velocity, the states and noise, each
 * times a number that depends on the schedule alone. These numbers, the weights, are computed on the host in double
 * precision before the loop, so a step only takes a row of a table. A sampler that evaluates the model twice in a step
 * has two passes for it, each with a sigma and weights of its own; its last step has one. */
#ifndef LZ_SAMPLER_H
#define LZ_SAMPLER_H

#include "pipeline/slots.h"

typedef struct lz_sampler lz_sampler;

typedef struct lz_sampler_step lz_sampler_step;
/* The guided velocity of the model at any x and pass, [h w, c]. Each call evaluates the model. */
typedef lz_array *lz_velocity(const lz_sampler_step *s, lz_array *x, lz_array *step_index);

/* The inputs of a step. */
struct lz_sampler_step {
    const lz_sampler *sampler;
    lz_array *x;             /* [h w, c] */
    lz_array *step_index;    /* [1] i64, index of the pass; not 0 in the first step after a start image */
    lz_array *sigma_drops;   /* [passes] sigma after less sigma before a pass: lz_take(sigma_drops, step_index, 0) */
    lz_array *weights;       /* [passes, n] of this sampler; NULL without them */
    lz_array *noise;         /* [r, h w, c] of the last r passes; NULL: the sampler draws none */
    lz_array *const *states; /* n_states of them */
    lz_velocity *velocity;
    const void *user; /* argument of velocity */
};

/* A pass: row 0 is the next x, row 1 + i the next state i. Columns: x, velocity, the states, noise. */
enum { LZ_WEIGHT_ROWS = 3, LZ_WEIGHT_COLUMNS = 5 };
typedef struct lz_weights_of_pass {
    double at[LZ_WEIGHT_ROWS][LZ_WEIGHT_COLUMNS];
} lz_weights_of_pass;

/* A step of a schedule. */
typedef struct lz_schedule_step {
    const double *sigmas; /* [steps + 1] */
    int steps, step;
    int first; /* the first step that is run */
    int pass;  /* in the step: 0 or 1 */
} lz_schedule_step;

struct lz_sampler {
    const char *name;
    int n_states; /* 0 to LZ_MAX_STATES */
    bool noisy;   /* it adds noise in every step but the last */
    /* The sigma of the second pass of a step. NULL: a step is one pass. */
    double (*second_sigma)(double sigma, double next);
    /* Sets the weights of a pass, which are 0 before the call. NULL: the step needs none. */
    void (*weigh)(const lz_schedule_step *at, lz_weights_of_pass *to);
    /* For each row of weights, which columns may be other than 0: letters x, v, 0, 1 (states) and n (noise). */
    const char *uses[LZ_WEIGHT_ROWS];
    /* Sets the states before the first step, at x; NULL: zeros. */
    void (*begin)(lz_array *x, lz_array **states);
    lz_array *(*step)(const lz_sampler_step *s, lz_array **states); /* returns the next x, sets the next states */
};

enum {
    LZ_SAMPLER_EULER,
    LZ_SAMPLER_HEUN,
    LZ_SAMPLER_DPMPP_2M,
    LZ_SAMPLER_UNIPC,
    LZ_SAMPLER_RES_MULTISTEP,
    LZ_SAMPLER_RES_2S,
    LZ_SAMPLER_EULER_A,
    LZ_SAMPLER_LCM,
    LZ_SAMPLERS
};
extern const lz_sampler lz_samplers[LZ_SAMPLERS];
const lz_sampler *lz_sampler_named(const char *name); /* NULL: there is none */

/* Number of passes of the first `steps` steps of a schedule of n steps. */
int lz_sampler_passes(const lz_sampler *s, int steps, int n);
int lz_sampler_weights(const lz_sampler *s); /* number of weights of a pass */
/* Fills sigmas [passes + 1], the last of which is the end of the schedule, and weights [passes, n weights], from the
 * [n + 1] sigmas of a schedule. first: the first step that is run; weights of earlier passes are 0. False: the sampler
 * cannot use this schedule. */
bool lz_sampler_fill(const lz_sampler *s, const float *schedule, int n, int first, float *sigmas, float *weights);
/* The passes of a picture through the model. */
typedef struct lz_passes {
    int n, n_weights; /* n_weights: of a pass */
    float *sigmas;    /* [n + 1], of each pass and of the end */
    float *weights;   /* [n, n_weights]; NULL if n_weights is 0 */
    float *skips;     /* [n, LZ_SKIP_COLUMNS] of cache.h; NULL: every pass evaluates the model for all prompts */
} lz_passes;

/* Is the pass the first of its step? */
bool lz_sampler_begins(const lz_sampler *s, int pass);

#endif
