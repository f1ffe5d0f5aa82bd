/* job.c: making a job, running its stages, and the functions for other threads. */
#include "pipeline/job.h"

#include <string.h>

/* ---- watching ---------------------------------------------------------------------------------------------------- */

static void update_view(lz_job *job, const lz_job_view *to) {
    pthread_mutex_lock(&job->lock);
    uint64_t changes = job->view.changes + 1;
    job->view = *to;
    job->view.changes = changes;
    pthread_cond_broadcast(&job->changed);
    pthread_mutex_unlock(&job->lock);
}

lz_job_view lz_job_look(lz_job *job) {
    if (!job) return (lz_job_view){.state = LZ_JOB_OVER, .status = LZ_BAD_ARGUMENT};
    pthread_mutex_lock(&job->lock);
    lz_job_view view = job->view;
    pthread_mutex_unlock(&job->lock);
    return view;
}

lz_job_view lz_job_wait(lz_job *job, uint64_t changes) {
    if (!job) return lz_job_look(job);
    pthread_mutex_lock(&job->lock);
    while (job->view.changes <= changes && job->view.state != LZ_JOB_OVER) pthread_cond_wait(&job->changed, &job->lock);
    lz_job_view view = job->view;
    pthread_mutex_unlock(&job->lock);
    return view;
}

void lz_job_cancel(lz_job *job) {
    if (job) atomic_store(&job->cancelled, true);
}

/* Only the thread that runs the job writes its view, so this thread reads it without the lock. */
lz_status lz_job_begin(lz_job *job, const char *stage, int step, lz_error *err) {
    lz_job_view view = {.state = LZ_JOB_RUNNING, .stage = stage, .step = step, .steps = lz_job_passes(job)};
    update_view(job, &view);
    return atomic_load(&job->cancelled) ? lz_fail(err, LZ_CANCELLED, "stopped before a stage or a step") : LZ_OK;
}

bool lz_job_tell(lz_job *job, double done, const lz_image *preview) {
    lz_job_view view = job->view;
    view.done = done;
    update_view(job, &view);
    if (atomic_load(&job->cancelled)) return false;
    if (!job->options.watch) return true;
    lz_progress progress = {
        .stage = view.stage, .step = view.step, .steps = view.steps, .done = done, .preview = preview};
    return job->options.watch(job->options.user, &progress);
}

/* Called between the kernels of a program, with model->running held: drops it while the user's function runs. On a
 * device it is not held any more. */
static bool ask(void *user, double done) {
    lz_job *job = user;
    bool lends = lz_crew_listens(job) && !job->model->ctx->device;
    if (lends) lz_fair_drop(&job->model->running);
    bool go_on = lz_crew_tell(job, done);
    if (lends) lz_fair_retake(&job->model->running, job->place);
    return go_on;
}

static void begin_program(void *user) {
    lz_job *job = user;
    job->place = lz_fair_take(&job->model->running);
}

static void end_program(void *user) { lz_fair_drop(&((lz_job *)user)->model->running); }

/* ---- making one -------------------------------------------------------------------------------------------------- */

static char *copy_text(lz_context *ctx, const char *text, bool *fine) {
    char *copy = text ? lz_host_copy(ctx, text) : NULL;
    if (text && !copy) *fine = false;
    return copy;
}

/* A device runs a program as one submission. The host waits for it only if there is a user's function to call. */
void lz_job_watch(lz_job *job) {
    bool asks = lz_crew_listens(job) || !job->model->ctx->device;
    job->watch = (lz_watch){.go_on = asks ? ask : NULL, .begin = begin_program, .end = end_program, .user = job};
}

lz_job *lz_job_make(lz_model *model, const lz_picture_options *options, const lz_sampler *sampler, lz_error *err) {
    lz_context *ctx = model->ctx;
    lz_job *job = lz_host_alloc(ctx, sizeof *job);
    if (!job) {
        lz_out_of_memory(err, sizeof *job);
        return NULL;
    }
    job->model = model;
    job->lora_changes = model->lora_changes;
    job->sampler = sampler;
    if (lz_read_options(&job->options, sizeof job->options, options, "LZ_PICTURE_OPTIONS", err)) {
        lz_host_free(ctx, job);
        return NULL;
    }
    options = &job->options;
    pthread_mutex_init(&job->lock, NULL);
    pthread_cond_init(&job->changed, NULL);
    lz_job_watch(job);
    bool fine = true;
    job->options.prompt = copy_text(ctx, options->prompt, &fine);
    job->options.negative = copy_text(ctx, options->negative, &fine);
    if (!fine) lz_out_of_memory(err, sizeof *job);
    if (fine && !lz_job_settle(job, err)) return job;
    lz_job_free(job);
    return NULL;
}

lz_job *lz_job_new(lz_model *model, const lz_picture_options *options, lz_error *err) {
    if (model && options) return lz_job_make(model, options, NULL, err);
    lz_fail(err, LZ_BAD_ARGUMENT, "job_new: needs a model and options");
    return NULL;
}

void lz_job_expect(lz_job *job) {
    if (job) job->expected = true;
}

const lz_picture_options *lz_job_settled(const lz_job *job) { return job ? &job->options : NULL; }

lz_status lz_job_renew(lz_job *job, const lz_picture_options *given, lz_error *err) {
    lz_picture_options o;
    if (!job || !given) return lz_fail(err, LZ_BAD_ARGUMENT, "job_renew: needs a job and options");
    if (lz_job_look(job).state == LZ_JOB_RUNNING) return lz_fail(err, LZ_BAD_ARGUMENT, "job_renew: the job is running");
    lz_status status = lz_read_options(&o, sizeof o, given, "LZ_PICTURE_OPTIONS", err);
    if (!status) status = lz_check_previews(&o, err);
    if (status) return status;
    job->options.seed = o.seed;
    job->options.watch = o.watch;
    job->options.user = o.user;
    job->options.preview = o.preview;
    job->options.preview_pause = o.preview_pause;
    lz_job_watch(job);
    job->shown_at = 0;
    if (lz_job_look(job).state == LZ_JOB_NEW) return LZ_OK; /* a job that was cancelled stays cancelled */
    atomic_store(&job->cancelled, false);
    update_view(job, &(lz_job_view){.state = LZ_JOB_NEW});
    return LZ_OK;
}

/* Frees what was left by a plan that was not run, or by a run that ended early. */
static void end_stages(lz_job *job) {
    lz_ahead_end(job);
    lz_job_end_text(job, false);
    lz_job_end_loop(job, false);
    lz_compiled_free(job->image_encoder);
    lz_kept_put(job->model, LZ_KEPT_DECODER, job->decoder, false);
    job->image_encoder = NULL;
    job->decoder = NULL;
    for (int i = 0; i < 2; i++) {
        lz_release(job->recalled[i]);
        job->recalled[i] = NULL;
    }
    memset(&job->slots, 0, sizeof job->slots);
}

void lz_job_free(lz_job *job) {
    if (!job) return;
    lz_context *ctx = job->model->ctx;
    end_stages(job);
    lz_job_free_tokens(job);
    lz_repaint_free(job);
    for (int i = 0; i < LZ_MAX_IMAGES; i++)
        if (job->whitened[i]) lz_image_free(ctx, &job->own_images[i]);
    lz_passes_free(ctx, &job->passes);
    lz_host_free(ctx, (char *)job->options.prompt);
    lz_host_free(ctx, (char *)job->options.negative);
    pthread_cond_destroy(&job->changed);
    pthread_mutex_destroy(&job->lock);
    lz_host_free(ctx, job);
}

lz_status lz_job_prepare(lz_job *job, lz_error *err) {
    lz_status status = lz_job_sigmas(job, err);
    return status ? status : lz_job_tokens(job, err);
}

lz_status lz_job_check_loras(const lz_job *job, lz_error *err) {
    if (job->lora_changes == job->model->lora_changes) return LZ_OK;
    return lz_fail(err, LZ_BAD_ARGUMENT, "the LoRAs of the model were changed after this job was made: make it again");
}

/* ---- running it -------------------------------------------------------------------------------------------------- */

/* Fills the arrays of lz_picture. A device computes them while the host waits for the bytes. pixels: [n, h, w, k] */
static lz_status keep_arrays(lz_job *job, lz_array *pixels, lz_error *err) {
    const lz_slots *s = &job->slots;
    lz_picture *p = job->picture;
    lz_dims t = lz_shape(s->features[0]);
    p->text = lz_retain(lz_cast(lz_reshape(s->features[0], LZ_DIMS(1, t.at[0], t.at[1])), LZ_F32));
    p->noise = lz_retain(s->noise);
    p->latents = lz_retain(lz_contiguous(lz_to_planes(s->x, job->layout.h, job->layout.w, job->model->family->patch)));
    p->pixels = lz_retain(lz_permute(pixels, LZ_DIMS(0, 3, 1, 2)));
    return lz_eval_all((lz_array *[]){p->text, p->latents, p->pixels}, 3, err);
}

static lz_status crop(const lz_crop *c, lz_decoded *decoded, lz_error *err) {
    if (!c->width) return LZ_OK;
    lz_array *rows = lz_slice(decoded->pixels, 0, c->top, c->top + c->height, 1);
    decoded->pixels = lz_contiguous(lz_slice(rows, 1, c->left, c->left + c->width, 1));
    decoded->bytes = lz_describe_bytes(decoded->pixels);
    return lz_eval_all((lz_array *[]){decoded->pixels, decoded->bytes}, 2, err);
}

static lz_status decode_all_layers(lz_job *job, lz_error *err) {
    lz_array *pixels = NULL;
    lz_status status = lz_decode_layers(job, &pixels, err);
    return status ? status : keep_arrays(job, pixels, err);
}

static lz_status decode(lz_job *job, lz_error *err) {
    lz_model *m = job->model;
    lz_decoded decoded = {0};
    lz_error local = {.status = LZ_OK};
    lz_ahead_wait(job, LZ_AHEAD_DECODER, LZ_AHEAD_DECODER);
    if (job->options.layers) return decode_all_layers(job, err);
    lz_status status = lz_job_begin(job, "decode", 0, err);
    if (status) return status;
    lz_decoder *decoder = job->decoder ? job->decoder : lz_decoder_take(m, job->layout.h, job->layout.w, &local);
    job->decoder = NULL;
    status = decoder ? lz_decode_pixels(m, decoder, job->slots.x, &job->watch, &decoded, &local) : local.status;
    if (status && err) *err = local;
    if (!status) status = crop(&job->crop, &decoded, err);
    lz_dims d = lz_shape(decoded.pixels);
    if (!status) status = keep_arrays(job, lz_reshape(decoded.pixels, LZ_DIMS(1, d.at[0], d.at[1], d.at[2])), err);
    if (!status) status = lz_make_image(m->ctx, &decoded, &job->picture->image, err);
    if (job->options.background == LZ_BACKGROUND_OPAQUE) lz_image_apply(&job->picture->image, LZ_ALPHA_OVER_WHITE);
    if (!status) status = lz_repaint_paste(job, &job->picture->image, err);
    job->picture->tile = decoded.tile;
    return status;
}

/* Runs a stage and counts its time, unless the job has failed. */
static void run_stage(lz_job *job, lz_status (*run)(lz_job *job, lz_error *err), double *seconds, lz_error *err) {
    double begun = lz_now();
    if (err->status) return;
    run(job, err);
    if (seconds) *seconds = lz_now() - begun;
}

/* Denoises the job `first` and those after it that can run together with it, then decodes them. done: whether a job is
 * done; errors: of each job. */
static void denoise_alike(lz_job *const *jobs, int n, int first, bool *done, lz_error *errors) {
    lz_job *group[LZ_MAX_TOGETHER];
    int members[LZ_MAX_TOGETHER], n_members = 0;
    lz_error err = {.status = LZ_OK};
    for (int i = first; i < n; i++) {
        if (done[i] || errors[i].status || (i > first && !lz_jobs_alike(jobs[first], jobs[i]))) continue;
        done[i] = true;
        group[n_members] = jobs[i];
        members[n_members++] = i;
    }
    double begun = lz_now();
    lz_status status = lz_jobs_denoise(group, n_members, &err);
    double seconds = (lz_now() - begun) / n_members;
    for (int i = 0; i < n_members; i++) {
        lz_job *job = group[i];
        lz_error *own = &errors[members[i]];
        job->picture->denoise_seconds = seconds;
        if (status)
            *own = err;
        else if (n_members > 1 && atomic_load(&job->cancelled))
            lz_fail(own, LZ_CANCELLED, "stopped before a stage or a step");
        run_stage(job, decode, &job->picture->decode_seconds, own);
    }
}

/* Fills in what lz_picture says about a job that ended. */
static void tell_facts(lz_job *job, lz_status status) {
    lz_picture *p = job->picture;
    p->ctx = job->model->ctx;
    p->steps = job->steps - job->first_step;
    p->prompt_cut = job->prompts[0].cut || job->prompts[1].cut;
    if (p->prompt_cut && !status)
        lz_tell(p->ctx, LZ_LOG_NOTE, "the prompt has more tokens than the model reads, so its end was ignored");
    p->guidance = job->options.guidance;
    lz_job_count(job, &p->passes, &p->forecast, &p->evaluations);
}

static void run_stages(lz_job *const *jobs, int n, lz_error *errors) {
    bool done[LZ_MAX_TOGETHER] = {false};
    if (n == 1 && !errors[0].status) lz_ahead_begin(jobs[0]);
    lz_scope *scope = lz_scope_begin(jobs[0]->model->ctx, "generate");
    for (int i = 0; i < n; i++) {
        run_stage(jobs[i], lz_job_prepare, NULL, &errors[i]);
        run_stage(jobs[i], lz_job_text, &jobs[i]->picture->text_seconds, &errors[i]);
        run_stage(jobs[i], lz_job_images, &jobs[i]->picture->encode_seconds, &errors[i]);
    }
    for (int i = 0; i < n; i++)
        if (!done[i] && !errors[i].status) denoise_alike(jobs, n, i, done, errors);
    for (int i = 0; i < n; i++) tell_facts(jobs[i], errors[i].status);
    lz_scope_end(scope);
    for (int i = 0; i < n; i++) end_stages(jobs[i]);
}

/* Runs one job, and again with less in memory if memory ran out. */
static void run_alone(lz_job *job, lz_error *err) {
    lz_model *m = job->model;
    run_stages(&job, 1, err);
    if (err->status == LZ_OUT_OF_MEMORY) lz_kept_forget_readings(m);
    if (err->status != LZ_OUT_OF_MEMORY || !lz_kept_give_up(m)) return;
    lz_tell(m->ctx, LZ_LOG_NOTE, /* one stage at a time may fit */
            "memory is short, so the picture is started again, with one stage in memory at a time");
    lz_picture_free(job->picture);
    err->status = LZ_OK;
    run_stages(&job, 1, err);
}

static void run_together(lz_job *const *jobs, int n, lz_error *errors) {
    run_stages(jobs, n, errors);
    for (int i = 0; i < n; i++) {
        if (errors[i].status != LZ_OUT_OF_MEMORY) continue;
        lz_tell(jobs[i]->model->ctx, LZ_LOG_NOTE,
                "memory is short for several pictures at once, so they are made one by one");
        lz_picture_free(jobs[i]->picture);
        errors[i].status = LZ_OK;
        run_alone(jobs[i], &errors[i]);
    }
}

static void end_job(lz_job *job, lz_status status) {
    if (status) lz_picture_free(job->picture);
    lz_job_view view = job->view;
    view.state = LZ_JOB_OVER;
    view.status = status;
    update_view(job, &view);
}

/* Jobs of one model that were checked. errors: of each. */
static lz_status run_jobs(lz_job *const *jobs, int n, lz_picture *pictures, lz_error *errors) {
    lz_model *m = jobs[0]->model;
    lz_error all = {.status = LZ_OK};
    lz_status first = LZ_OK;
    lz_model_enter(m, jobs[0], &all);
    for (int i = 0; i < n; i++) {
        jobs[i]->picture = &pictures[i];
        errors[i] = all;
        if (!all.status) lz_job_check_loras(jobs[i], &errors[i]);
        if (!errors[i].status && jobs[i]->options.layers) lz_check_layers_prompt(jobs[i], &errors[i]);
    }
    if (!all.status) {
        if (n == 1)
            run_alone(jobs[0], errors);
        else
            run_together(jobs, n, errors);
        lz_model_leave(m, jobs[0]);
    }
    for (int i = 0; i < n; i++) {
        end_job(jobs[i], errors[i].status);
        if (!first) first = errors[i].status;
    }
    return first;
}

lz_status lz_job_run(lz_job *job, lz_picture *picture, lz_error *err) {
    lz_error local;
    if (picture) memset(picture, 0, sizeof *picture);
    if (!job || !picture) return lz_fail(err, LZ_BAD_ARGUMENT, "job_run: needs a job and a place for the picture");
    if (lz_job_look(job).state != LZ_JOB_NEW)
        return lz_fail(err, LZ_BAD_ARGUMENT, "job_run: a job is run once, and again after lz_job_renew");
    lz_status status = run_jobs(&job, 1, picture, &local);
    if (status && err) *err = local;
    return status;
}

static lz_status check_jobs(lz_job *const *jobs, int n, lz_error *err) {
    for (int i = 0; i < n; i++) {
        bool again = false;
        for (int k = 0; k < i; k++) again = again || jobs[k] == jobs[i];
        if (!jobs[i] || again || jobs[i]->model != jobs[0]->model)
            return lz_fail(err, LZ_BAD_ARGUMENT, "jobs_run: job %d is none, is there twice, or is of another model", i);
        if (lz_job_look(jobs[i]).state != LZ_JOB_NEW)
            return lz_fail(err, LZ_BAD_ARGUMENT, "jobs_run: job %d was run; call lz_job_renew before it runs again", i);
    }
    return LZ_OK;
}

lz_status lz_jobs_run(lz_job *const *jobs, int n, lz_picture *pictures, lz_error *errors) {
    lz_error local[LZ_MAX_TOGETHER] = {{.status = LZ_OK}};
    if (!jobs || !pictures || n < 1 || n > LZ_MAX_TOGETHER)
        return lz_fail(errors, LZ_BAD_ARGUMENT, "jobs_run: needs 1 to %d jobs and places for their pictures",
                       LZ_MAX_TOGETHER);
    memset(pictures, 0, (size_t)n * sizeof *pictures);
    lz_status status = check_jobs(jobs, n, &local[0]);
    for (int i = 1; i < n && status; i++) local[i] = local[0];
    if (!status) status = run_jobs(jobs, n, pictures, local);
    for (int i = 0; i < n && errors; i++) errors[i] = local[i];
    return status;
}
