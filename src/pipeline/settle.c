/* settle.c: settles the options of a job: each is checked, and defaults are filled in. */
#include <stdio.h>

#include "base/file.h"
#include "pipeline/job.h"

static int64_t fit(int64_t size, int64_t unit) { return size / unit * unit; }

static lz_status check_images(const lz_picture_options *o, int64_t unit, lz_error *err) {
    if (o->n_images > 0 && !o->images)
        return lz_fail(err, LZ_BAD_ARGUMENT, "n_images is %d, but images is NULL", o->n_images);
    if (o->n_images < 0 || o->n_images > LZ_MAX_IMAGES)
        return lz_fail(err, LZ_BAD_ARGUMENT, "%d images were given, and the limit is %d", o->n_images, LZ_MAX_IMAGES);
    for (int i = 0; i < o->n_images; i++) {
        char what[32];
        snprintf(what, sizeof what, "image %d", i + 1);
        lz_status status = lz_image_check(&o->images[i], what, unit, err);
        if (status) return status;
    }
    return LZ_OK;
}

/* A model that sees no opacity gets images blended with white. */
static lz_status whiten_images(lz_job *job, lz_error *err) {
    lz_picture_options *o = &job->options;
    lz_status status = LZ_OK;
    bool some = false;
    for (int i = 0; i < o->n_images && lz_colours(job->model) == 3; i++)
        some = some || lz_image_channels(&o->images[i]) == 4;
    if (!some) return LZ_OK;
    for (int i = 0; i < o->n_images && !status; i++) {
        job->own_images[i] = o->images[i];
        if (lz_image_channels(&o->images[i]) == 3) continue;
        status = lz_image_whiten(job->model->ctx, &o->images[i], &job->own_images[i], err);
        job->whitened[i] = !status;
    }
    o->images = job->own_images;
    return status;
}

/* The noise must be [1, c, h, w], with sides in the limits of a picture. */
static lz_status check_noise(const lz_job *job, int64_t unit, lz_error *err) {
    lz_status status = lz_check(job->options.noise, err);
    if (status) return status;
    if (lz_context_of(job->options.noise) != job->model->ctx)
        return lz_fail(err, LZ_BAD_ARGUMENT, "the noise belongs to another context than the model");
    lz_dims d = lz_shape(job->options.noise);
    int64_t c = job->model->family->channels(job->model->state), patch = job->model->family->patch;
    int64_t frames = job->options.layers ? job->options.layers + 1 : 1;
    if (d.n == 4 && d.at[0] == frames && d.at[1] == c && d.at[2] > 0 && d.at[3] > 0 && d.at[2] <= LZ_MAX_SIZE &&
        d.at[3] <= LZ_MAX_SIZE && d.at[2] % patch == 0 && d.at[3] % patch == 0)
        return LZ_OK;
    return lz_fail(err, LZ_BAD_SHAPE, "the noise is %s, and this model needs [%lld, %lld, height / %lld, width / %lld]",
                   LZ_SHOW(d), (long long)frames, (long long)c, (long long)(unit / patch), (long long)(unit / patch));
}

const lz_image *lz_job_references(const lz_job *job, int *n) {
    int start = job->options.strength > 0 && !job->repaint.shown;
    *n = job->options.n_images - start;
    return job->images + start;
}

static lz_status settle_references(lz_job *job, lz_error *err) {
    lz_model_facts facts = lz_model_about(job->model);
    int n, least = facts.least_images, most = facts.most_images;
    const lz_image *images = lz_job_references(job, &n);
    if (n > most)
        return lz_fail(err, LZ_BAD_ARGUMENT,
                       most ? "this model looks at no more than %d image%s, and %d were given"
                            : "this model looks at no images, except at one to start from "
                              "(with a strength)",
                       most, most > 1 ? "s" : "", n);
    if (n < least)
        return lz_fail(err, LZ_BAD_ARGUMENT,
                       job->options.layers ? "this model takes an image apart into layers; give it one"
                                           : "this model edits images; give it at least one");
    int64_t unit = facts.token_pixels;
    for (int i = 0; i < n; i++) {
        lz_reference_size size = lz_job_reference_size(job, &images[i], n);
        int64_t *tokens = job->layout.reference_sizes[job->layout.n_references++];
        bool shown = !i && job->repaint.shown; /* as it is: the start of the picture */
        tokens[0] = shown ? job->layout.h : size.height / unit;
        tokens[1] = shown ? job->layout.w : size.width / unit;
    }
    return LZ_OK;
}

lz_dims lz_job_latents(const lz_job *job) {
    const lz_family *f = job->model->family;
    const lz_layout *l = &job->layout;
    return LZ_DIMS(l->frames, f->channels(job->model->state), f->patch * l->h, f->patch * l->w);
}

/* A reference image that was put into a larger size: the picture is cropped back to it. */
static void settle_crop(lz_job *job, lz_reference_size first) {
    int64_t w = first.small_width < first.width ? first.small_width : first.width,
            h = first.small_height < first.height ? first.small_height : first.height;
    if (w < first.width || h < first.height)
        job->crop = (lz_crop){.left = (first.width - w) / 2, .top = (first.height - h) / 2, .width = w, .height = h};
}

/* The size is the requested one, else that of the noise, else that of the images, else the model's default. */
static lz_status settle_size(lz_job *job, lz_error *err) {
    lz_picture_options *o = &job->options;
    int64_t unit = job->model->family->token_pixels(job->model->state), width = job->model->width,
            height = job->model->height;
    lz_status status = check_images(o, unit, err);
    if (!status) status = whiten_images(job, err);
    if (!status) status = lz_settle_layers(job, err);
    if (!status) status = lz_repaint_begin(job, err);
    if (!status && o->noise) status = check_noise(job, unit, err);
    if (status) return status;
    if (o->layers && o->n_images > 0) {
        status = job->model->family->layer_size(job->model->state, o->images, o->resolution, &width, &height, err);
        if (status) return status;
        if ((o->width && o->width != width) || (o->height && o->height != height))
            return lz_fail(err, LZ_BAD_ARGUMENT,
                           "layers of this image are %lld x %lld; its shape and the resolution decide their size",
                           (long long)width, (long long)height);
    } else if (o->n_images > 0) {
        int64_t size[2];
        bool known = lz_job_trained_size(job, &job->images[0], size);
        lz_reference_size first = o->strength > 0 && !known ? lz_middle(&job->images[0], unit)
                                                            : lz_job_reference_size(job, &job->images[0], o->n_images);
        width = first.width;
        height = first.height;
        if (job->model->family->picture_size)
            job->model->family->picture_size(job->model->state, job->images, job->repaint.on ? 1 : o->n_images, &width,
                                             &height);
        else if (!known && !o->noise && !o->width && !o->height)
            settle_crop(job, first);
    }
    int64_t patch = job->model->family->patch;
    if (o->noise) {
        width = lz_shape(o->noise).at[3] / patch * unit;
        height = lz_shape(o->noise).at[2] / patch * unit;
    }
    if (o->width) width = o->width;
    if (o->height) height = o->height;
    if (width < unit || height < unit || width > LZ_MAX_SIZE || height > LZ_MAX_SIZE)
        return lz_fail(err, LZ_BAD_ARGUMENT,
                       "a picture of %lld x %lld cannot be made; each side must be from %lld to %d", (long long)width,
                       (long long)height, (long long)unit, LZ_MAX_SIZE);
    o->width = fit(width, unit);
    o->height = fit(height, unit);
    job->layout = (lz_layout){.h = o->height / unit, .w = o->width / unit, .frames = o->layers ? o->layers + 1 : 1};
    lz_dims want = lz_job_latents(job);
    if (o->noise && !lz_dims_equal(lz_shape(o->noise), want))
        return lz_fail(err, LZ_BAD_SHAPE, "the noise is %s, and this picture needs %s", LZ_SHOW(lz_shape(o->noise)),
                       LZ_SHOW(want));
    return LZ_OK;
}

lz_status lz_check_previews(const lz_picture_options *o, lz_error *err) {
    if (o->preview >= LZ_PREVIEW_NONE && o->preview <= LZ_PREVIEW_FULL && o->preview_pause >= 0) return LZ_OK;
    return lz_fail(err, LZ_BAD_ARGUMENT, "a preview is none, small or full, and its pause at least 0 seconds");
}

/* The names of a table, with commas between them. */
static void list_names(const char *(*name)(int i), char *to, size_t size) {
    size_t n = 0;
    for (int i = 0; name(i) && n < size; i++) n += (size_t)snprintf(to + n, size - n, "%s%s", i ? ", " : "", name(i));
}

static lz_status settle_sampler(lz_job *job, lz_error *err) {
    lz_picture_options *o = &job->options;
    const lz_model *m = job->model;
    const lz_schedule *s = &m->schedule;
    char names[300] = "";
    if (!job->sampler && o->sampler && !(job->sampler = lz_sampler_named(o->sampler))) {
        list_names(lz_sampler_name, names, sizeof names);
        return lz_fail(err, LZ_BAD_ARGUMENT, "there is no sampler '%s'; there are %s", LZ_SHOW_TEXT(o->sampler), names);
    }
    if (!job->sampler) job->sampler = &lz_samplers[s->stochastic ? LZ_SAMPLER_LCM : LZ_SAMPLER_EULER];
    o->sampler = job->sampler->name;
    bool euler = job->sampler == &lz_samplers[LZ_SAMPLER_EULER];
    if (!euler && m->family->euler_only && m->family->distilled(m->state))
        return lz_fail(err, LZ_BAD_ARGUMENT, "this model is distilled for the sampler euler, and cannot use %s",
                       o->sampler);
    if (!euler && s->inverted)
        return lz_fail(err, LZ_BAD_ARGUMENT, "the schedule of this model is inverted, so its only sampler is euler");
    if (s->n_given && job->sampler->second_sigma)
        return lz_fail(err, LZ_BAD_ARGUMENT, "this model has %d fixed sigmas, one for each step, and %s needs two",
                       s->n_given, o->sampler);
    return LZ_OK;
}

/* The schedule that the picture is made with: the model's, or that with the shift of the options. */
static lz_schedule shifted_schedule(const lz_job *job) {
    lz_schedule s = job->model->schedule;
    if (job->options.shift > 0) {
        s.dynamic = false;
        s.shift = job->options.shift;
    }
    return s;
}

/* Sigmas of the steps; returns how many steps they have, which may be less than was asked for. */
static int list_sigmas(const lz_job *job, float *to) {
    int steps = job->options.steps;
    lz_schedule s = shifted_schedule(job);
    double mu = job->model->family->mu(job->model->state, &s, job->layout.h * job->layout.w, steps);
    return lz_schedule_list(&s, job->schedule_kind, mu, steps, to);
}

static lz_status settle_schedule(lz_job *job, lz_error *err) {
    lz_picture_options *o = &job->options;
    const lz_schedule *s = &job->model->schedule;
    char names[300] = "";
    float sigmas[LZ_MAX_STEPS + 1];
    job->schedule_kind = o->schedule ? lz_schedule_named(o->schedule) : LZ_SCHEDULE_AUTO;
    if (job->schedule_kind < 0) {
        list_names(lz_schedule_name, names, sizeof names);
        return lz_fail(err, LZ_BAD_ARGUMENT, "there is no schedule '%s'; there are %s", LZ_SHOW_TEXT(o->schedule),
                       names);
    }
    o->schedule = lz_schedule_name(job->schedule_kind);
    if (!(o->shift >= 0 && o->shift <= 100))
        return lz_fail(err, LZ_BAD_ARGUMENT, "a shift of %g is not possible; use more than 0, up to 100", o->shift);
    bool other = job->schedule_kind != LZ_SCHEDULE_AUTO;
    if (s->n_given && (other || o->shift > 0))
        return lz_fail(err, LZ_BAD_ARGUMENT, "this model has %d fixed sigmas, so it takes no other schedule or shift",
                       s->n_given);
    if (s->inverted && other)
        return lz_fail(err, LZ_BAD_ARGUMENT, "the schedule of this model is inverted, so it takes no other");
    int n = other ? list_sigmas(job, sigmas) : 0;
    job->steps = n ? n : o->steps;
    return LZ_OK;
}

/* The share of the cache becomes that of whole passes, so that it gives the same passes again. */
static lz_status settle_skips(lz_job *job, lz_error *err) {
    lz_picture_options *o = &job->options;
    if (!(o->cache == LZ_CACHE_AUTO || (o->cache >= 0 && o->cache <= 0.8)))
        return lz_fail(err, LZ_BAD_ARGUMENT, "a cache of %g is not possible; use 0 to 0.8, a share of the passes",
                       o->cache);
    if (!(o->guidance_from >= 0 && o->guidance_to <= 1 && (o->guidance_from < o->guidance_to || o->guidance_to == 0)) ||
        (o->guidance_to == 0 && o->guidance_from > 0))
        return lz_fail(
            err, LZ_BAD_ARGUMENT,
            "guidance from %g to %g is not possible; use shares of the steps, 0 to 1, and a smaller one first",
            o->guidance_from, o->guidance_to);
    if (o->guidance_every < 0 || o->guidance_every > LZ_MAX_STEPS)
        return lz_fail(err, LZ_BAD_ARGUMENT, "guidance in every %dth pass is not possible; use 1 to %d",
                       o->guidance_every, LZ_MAX_STEPS);
    int n = lz_job_passes(job), forecast = o->cache < 0 ? lz_cache_auto(n) : lz_cache_count(o->cache, n);
    o->cache = (double)forecast / n;
    return LZ_OK;
}

lz_status lz_job_settle(lz_job *job, lz_error *err) {
    lz_picture_options *o = &job->options;
    lz_status status = settle_size(job, err);
    if (status) return status;
    if (o->steps < 0 || o->steps > LZ_MAX_STEPS)
        return lz_fail(err, LZ_BAD_ARGUMENT, "%d steps are not possible; use 1 to %d", o->steps, LZ_MAX_STEPS);
    if (!(o->guidance >= 0) || o->guidance > 1000)
        return lz_fail(err, LZ_BAD_ARGUMENT, "a guidance of %g is not possible; use 1 to 1000", o->guidance);
    if (!(o->strength >= 0 && o->strength <= 1))
        return lz_fail(err, LZ_BAD_ARGUMENT, "a strength of %g is not possible; use more than 0, up to 1", o->strength);
    if (o->strength > 0 && !o->n_images)
        return lz_fail(err, LZ_BAD_ARGUMENT, "a strength was given, but no image to start from");
    if ((status = lz_check_previews(o, err))) return status;
    lz_model_facts facts = lz_model_about(job->model);
    if (o->background < LZ_BACKGROUND_AUTO || o->background > LZ_BACKGROUND_TRANSPARENT)
        return lz_fail(err, LZ_BAD_ARGUMENT, "a background is auto, opaque or transparent");
    if (o->background == LZ_BACKGROUND_TRANSPARENT && !facts.transparent)
        return lz_fail(err, LZ_BAD_ARGUMENT, "%s makes no transparent pictures; Qwen-Image 2.1 does", facts.family);
    lz_job_fast(job);
    int given = job->model->schedule.n_given;
    if (given || !o->steps) o->steps = given ? given : facts.steps;
    if (!(status = settle_sampler(job, err))) status = settle_schedule(job, err);
    if (!status) status = lz_repaint_prepare(job, err);
    if (!status) status = settle_references(job, err);
    if (status) return status;
    if (!(o->guidance > 0) || facts.guidance_built_in) o->guidance = facts.guidance;
    job->first_step = o->strength > 0 ? (int)(job->steps - job->steps * o->strength)
                                      : 0; /* get_timesteps of diffusers */
    if (job->first_step == job->steps)
        return lz_fail(err, LZ_BAD_ARGUMENT, "a strength of %g leaves no step to run; use a larger one", o->strength);
    job->first_pass = lz_sampler_passes(job->sampler, job->first_step, job->steps);
    return settle_skips(job, err);
}

int lz_job_passes(const lz_job *job) {
    return lz_sampler_passes(job->sampler, job->steps, job->steps) - job->first_pass;
}

void lz_passes_free(lz_context *ctx, lz_passes *p) {
    lz_host_free(ctx, p->sigmas);
    lz_host_free(ctx, p->weights);
    lz_host_free(ctx, p->skips);
    *p = (lz_passes){.n = 0};
}

lz_status lz_job_sigmas(lz_job *job, lz_error *err) {
    const lz_model *m = job->model;
    int steps = job->steps, passes = lz_sampler_passes(job->sampler, steps, steps),
        n_weights = lz_sampler_weights(job->sampler);
    float sigmas[LZ_MAX_STEPS + 1];
    if (job->passes.sigmas) return LZ_OK;
    if (list_sigmas(job, sigmas) != steps)
        return lz_fail(err, LZ_BAD_FILE,
                       "%s: the numbers in scheduler/scheduler_config.json give no valid schedule for %lld x %lld",
                       LZ_SHOW_TEXT(m->folder), (long long)job->options.width, (long long)job->options.height);
    size_t bytes = (size_t)(passes + 1) * sizeof(float), more = (size_t)passes * (size_t)n_weights * sizeof(float);
    job->passes = (lz_passes){.n = passes, .n_weights = n_weights, .sigmas = lz_host_alloc(m->ctx, bytes)};
    if (more) job->passes.weights = lz_host_alloc(m->ctx, more);
    lz_status status = LZ_OK;
    if (!job->passes.sigmas || (more && !job->passes.weights))
        status = lz_out_of_memory(err, (int64_t)(bytes + more));
    else if (!lz_sampler_fill(job->sampler, sigmas, steps, job->first_step, job->passes.sigmas, job->passes.weights))
        status = lz_fail(err, LZ_BAD_ARGUMENT, "the sampler %s cannot use this schedule, in which a sigma is repeated",
                         job->sampler->name);
    else
        status = lz_job_skips(job, err);
    if (status) lz_passes_free(m->ctx, &job->passes);
    return status;
}
