/* sampler.c: the table of samplers. */
#include "pipeline/sampler.h"

/* FlowMatchEulerDiscreteScheduler.step of diffusers. */
static lz_array *step_euler(const lz_sampler_step *s, lz_array **states) {
    (void)states;
    lz_array *drop = lz_take(s->sigma_drops, s->step_index, 0);
    return lz_add(s->x, lz_mul(s->velocity(s, s->x, s->step_index), drop));
}

const lz_sampler lz_samplers[LZ_SAMPLERS] = {
    [LZ_SAMPLER_EULER] = {.name = "euler", .step = step_euler},
};
