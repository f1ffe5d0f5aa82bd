/* schedule.h: how much noise is left at each step, as scheduler/scheduler_config.json says it: what
 * FlowMatchEulerDiscreteScheduler of diffusers makes of the same file, in float32. A family only says how mu, the shift
 * of a dynamic schedule, follows from the size of the picture. */
#ifndef LZ_SCHEDULE_H
#define LZ_SCHEDULE_H

#include <jansson.h>

#include "base/base.h"

typedef struct lz_schedule {
    double shift;                                            /* of every picture, where dynamic is false */
    bool dynamic;                                            /* shifted by mu */
    bool linear;                                             /* mu itself is the shift, not exp(mu) */
    double base_shift, max_shift, base_tokens, max_tokens;   /* the ends of the line of lz_schedule_line */
    double terminal;                                         /* the last sigma before 0; 0: as it comes */
    enum { LZ_AS_SHIFTED, LZ_KARRAS, LZ_EXPONENTIAL } space; /* between the first and the last sigma */
    double time_scale; /* the transformer is told sigma times this: num_train_timesteps / 1000 */
} lz_schedule;

/* Every field of the file is used, or refused by name where it has a value that is not implemented. */
lz_status lz_schedule_read(lz_schedule *s, lz_context *ctx, const char *folder, lz_error *err);
/* The same of an object with the fields of that file, which it takes over. path: for errors. */
lz_status lz_schedule_of(lz_schedule *s, lz_context *ctx, const char *path, json_t *fields, lz_error *err);

/* mu by a straight line through the number of tokens, beyond its ends too. */
double lz_schedule_line(const lz_schedule *s, int64_t tokens);

/* steps + 1 values that end in 0. False: the numbers of the file make no schedule for this mu. */
bool lz_schedule_sigmas(const lz_schedule *s, double mu, int steps, float *to);

#endif
