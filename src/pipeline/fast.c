/* fast.c: the settings for few passes through the model that are recommended for each family (docs/quality.md). */
#include "pipeline/job.h"

typedef struct recommended {
    const lz_family *family;
    bool distilled;
    int steps;                      /* used if they are less than the model's own */
    const char *sampler, *schedule; /* NULL: the model's own */
} recommended;

/* Without a row, the model's own settings are recommended. */
static const recommended table[] = {
    /* Measured with the demo model. 4 is also the published number of FLUX.2 [klein]. */
    {.family = &lz_family_flux2_klein, .distilled = true, .steps = 4},
    /* Not measured. The workflows that ComfyUI publishes for these models have 20 steps of Euler. */
    {.family = &lz_family_flux2_klein, .distilled = false, .steps = 20},
    {.family = &lz_family_qwen_image, .distilled = false, .steps = 20},
    /* Not measured. Its makers recommend 28 to 50 steps. */
    {.family = &lz_family_z_image, .distilled = false, .steps = 28},
};

static const recommended *find(const lz_model *m) {
    if (m->lora_steps || m->schedule.n_given) return NULL; /* a LoRA for few steps, or the model, sets the steps */
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].family == m->family && table[i].distilled == m->family->distilled(m->state)) return &table[i];
    return NULL;
}

void lz_job_fast(lz_job *job) {
    lz_picture_options *o = &job->options;
    const recommended *r = o->fast ? find(job->model) : NULL;
    o->fast = false;
    if (!r) return;
    if (!o->steps && r->steps < job->model->steps) {
        o->steps = r->steps;
        o->fast = true;
    }
    if (!o->sampler && r->sampler) {
        o->sampler = r->sampler;
        o->fast = true;
    }
    if (!o->schedule && r->schedule) {
        o->schedule = r->schedule;
        o->fast = true;
    }
}
