/* schedule.h: sigma, the share of noise, at each step, from scheduler/scheduler_config.json: the same numbers as
 * FlowMatchEulerDiscreteScheduler of diffusers, in float32. A family only computes mu, the shift of a dynamic schedule,
 * from the size of the picture. */
#ifndef LZ_SCHEDULE_H
#define LZ_SCHEDULE_H

#include "models/config.h"

enum { LZ_MAX_GIVEN = 64 };

typedef struct lz_schedule {
    double shift;                                                     /* if dynamic is false */
    bool dynamic;                                                     /* the shift depends on mu */
    bool linear;                                                      /* the shift is mu, not exp(mu) */
    double base_shift, max_shift, base_tokens, max_tokens;            /* two points of the line of lz_schedule_line */
    double terminal;                                                  /* the last sigma before 0; 0: not set */
    enum { LZ_AS_SHIFTED, LZ_KARRAS, LZ_EXPONENTIAL, LZ_BETA } space; /* between the first and the last sigma */
    bool inverted;                                                    /* sigmas rise from 0 to 1 */
    bool stochastic;                                                  /* the sampler is lcm */
    double time_scale; /* the transformer gets sigma times this: num_train_timesteps / 1000 */
    /* Sigmas before they are shifted, which fix the number of steps; 0 of them: evenly spaced, any number of steps. */
    int n_given;
    double given[LZ_MAX_GIVEN];
    /* Sigmas before the shift, set by the family: numpy.linspace(1, 1 / n, n), torch.linspace(1, 1 / n, n) in float32, or
     * numpy.linspace(1, 0, n + 1) without its last number. */
    enum { LZ_LINE_NUMPY, LZ_LINE_TORCH, LZ_LINE_TO_ZERO } line;
} lz_schedule;

/* Every field of the file is used, or refused by name if its value is not implemented. */
lz_status lz_schedule_read(lz_schedule *s, lz_context *ctx, const char *folder, lz_error *err);
/* The same of an object with the fields of that file, which it takes over. path: for errors. */
lz_status lz_schedule_of(lz_schedule *s, lz_context *ctx, const char *path, json_t *fields, lz_error *err);

/* Reads sample_sigmas of model_index.json, if it has them; errors are in index. */
void lz_schedule_read_given(lz_schedule *s, lz_config *index);

/* mu as a linear function of the number of tokens, also outside the two points. */
double lz_schedule_line(const lz_schedule *s, int64_t tokens);

/* Writes steps + 1 sigmas; the last is 0 (or 1 if inverted). False: the settings give no valid schedule for this mu. */
bool lz_schedule_sigmas(const lz_schedule *s, double mu, int steps, float *to);

/* Value i of n, from the first to the last; space is not LZ_AS_SHIFTED. */
double lz_schedule_spaced(int space, double first, double last, int i, int n);
/* The x at which the regularised incomplete beta function is p; p in 0..1, a and b above 0. */
double lz_beta_quantile(double p, double a, double b);

/* The table of schedules: the model's own, and those of ComfyUI and others by their names there. The others have the
 * model's shift, and none of the other fields of its file. */
int lz_schedule_named(const char *name); /* its index; -1: there is none */
enum { LZ_SCHEDULE_AUTO };
/* Writes the sigmas of a schedule of the table, and returns the number of steps: the last of steps + 1 sigmas is 0 (or 1
 * if inverted). It may be less than what was asked for. 0: the settings give no valid schedule. */
int lz_schedule_list(const lz_schedule *s, int kind, double mu, int steps, float *to);

#endif
