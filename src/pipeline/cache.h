/* cache.h: passes in which the model is not evaluated, or only for one of the two prompts.
 *
 * A velocity along the way from noise to a picture is nearly a polynomial in sigma, so that of a pass can be forecast
 * from the velocities that were computed before. Which passes are forecast depends on their number and sigmas alone:
 * it is settled before the loop, like the weights of a sampler. So a picture depends on nothing but its options, a plan
 * is exact, and on a device no step waits for a number.
 *
 * A loop that skips something has two programs for a pass: `velocity` evaluates the model, and is left out if the
 * pass is forecast; `advance` takes the sampler's step with the computed velocity or with the forecast. Both are the
 * same for every pass: they read a row of a table, the skips. Each prompt has a history of its own. That of the negative
 * prompt holds differences, the velocity for the prompt less that for the negative prompt, which change slowly. */
#ifndef LZ_CACHE_H
#define LZ_CACHE_H

#include "pipeline/sampler.h"

/* Columns of the skips. A forecast is x times X plus the history times HISTORY. The history keeps x times KEEP_X plus the
 * velocity times KEEP_V: the velocity itself, or, if the sampler adds noise in every step, which the velocity contains,
 * the estimate of the clean latents. */
enum {
    LZ_SKIP_PROMPT,   /* 1: the model is evaluated for the prompt; 0: its velocity is forecast */
    LZ_SKIP_NEGATIVE, /* 1: the model is evaluated for the negative prompt; 0: the difference is forecast */
    LZ_SKIP_GUIDED,   /* 1: the pass has guidance */
    LZ_SKIP_KEEP_X,
    LZ_SKIP_KEEP_V,
    LZ_SKIP_X,
    LZ_SKIP_HISTORY,
    LZ_SKIP_DIFFERENCES = LZ_SKIP_HISTORY + LZ_HISTORY,
    LZ_SKIP_COLUMNS = LZ_SKIP_DIFFERENCES + LZ_HISTORY
};

/* Which passes are to be skipped, of n. */
typedef struct lz_skip_wish {
    int n, first;       /* passes of the schedule, and the first that is run */
    int forecast;       /* number of passes that are forecast, at most lz_cache_most */
    const bool *guided; /* [n] has the pass guidance? NULL: none has */
    int every;          /* the negative prompt is computed in one of so many computed passes; at least 1 */
    bool noisy;         /* the sampler adds noise */
} lz_skip_wish;

/* Fills the skips [n, LZ_SKIP_COLUMNS] from sigmas [n]; rows before the first pass are 0. The first pass, the last one
 * and the first with guidance are always computed. */
void lz_skips_fill(const lz_skip_wish *wish, const float *sigmas, float *to);
/* The number of passes that are forecast, of n: for a share, or for the automatic one. */
int lz_cache_most(int n);
int lz_cache_count(double share, int n);
int lz_cache_auto(int n);

/* Evaluations of the model in the rows of the skips. */
typedef struct lz_skip_counts {
    int forecast;      /* passes that are forecast */
    int prompts, both; /* passes that evaluate the model for the prompt alone, and for both prompts */
} lz_skip_counts;
lz_skip_counts lz_skips_count(const lz_passes *passes, int first, bool guided);

#endif
