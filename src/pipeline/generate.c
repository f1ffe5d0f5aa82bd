/* generate.c: the functions of lazuli.h that make and plan pictures; each makes a job. */
#include <string.h>

#include "pipeline/job.h"

lz_status lz_generate_with(lz_model *model, const lz_picture_options *options, lz_picture *picture, lz_error *err) {
    if (picture) memset(picture, 0, sizeof *picture);
    if (!model || !options || !picture)
        return lz_fail(err, LZ_BAD_ARGUMENT, "generate: needs a model, options and a place for the picture");
    lz_error local = {.status = LZ_OK};
    lz_job *job = lz_job_make(model, options, NULL, &local);
    lz_status status = job ? lz_job_run(job, picture, &local) : local.status;
    lz_job_free(job);
    if (status && err) *err = local;
    return status;
}

lz_status lz_plan_picture(lz_model *model, const lz_picture_options *options, lz_picture_plan *plan, lz_error *err) {
    if (plan) memset(plan, 0, sizeof *plan);
    if (!model || !options || !plan)
        return lz_fail(err, LZ_BAD_ARGUMENT, "plan: needs a model, options and a place for the plan");
    lz_error local = {.status = LZ_OK};
    lz_job *job = lz_job_make(model, options, NULL, &local);
    lz_status status = job ? lz_job_plan(job, plan, &local) : local.status;
    lz_job_free(job);
    if (status && err) *err = local;
    return status;
}

lz_status lz_fill_options(lz_model *model, lz_picture_options *options, lz_error *err) {
    if (!model || !options) return lz_fail(err, LZ_BAD_ARGUMENT, "fill_options: needs a model and options");
    lz_error local = {.status = LZ_OK};
    lz_job *job = lz_job_make(model, options, NULL, &local);
    if (job) {
        lz_picture_options filled = job->options;
        filled.size = options->size; /* the caller's struct may be of an older version, and shorter */
        filled.prompt = options->prompt;
        filled.negative = options->negative;
        filled.images = options->images;
        memcpy(options, &filled, filled.size < sizeof filled ? filled.size : sizeof filled);
    }
    lz_job_free(job);
    if (local.status && err) *err = local;
    return local.status;
}

void lz_picture_free(lz_picture *p) {
    if (!p || !p->ctx) return;
    lz_image_free(p->ctx, &p->image);
    for (int i = 0; i < p->n_layers; i++) lz_image_free(p->ctx, &p->layers[i]);
    lz_host_free(p->ctx, p->layers);
    lz_release(p->text);
    lz_release(p->noise);
    lz_release(p->latents);
    lz_release(p->pixels);
    memset(p, 0, sizeof *p);
}
