/* text.c: from prompts to features: tokens, then the text encoder, unless the features are kept (recall.c). */
#include <string.h>

#include "pipeline/job.h"

/* Makes the tokens of the prompt and, with guidance, of the negative prompt. */
lz_status lz_job_tokens(lz_job *job, lz_error *err) {
    const lz_model *m = job->model;
    const lz_picture_options *o = &job->options;
    const char *texts[2] = {o->prompt, o->negative ? o->negative : m->family->default_negative};
    int n_images;
    const lz_image *images = lz_job_references(job, &n_images);
    for (int i = 0; i < (o->guidance > 1 ? 2 : 1) && !job->has_tokens; i++) {
        const char *text = texts[i] ? texts[i] : "";
        char *read_as = NULL;
        lz_prompt prompt = {.n = 0};
        lz_status status = lz_read_as(m, text, &read_as, err);
        if (!status)
            status = m->family->tokens(m->state, read_as ? read_as : text, images, lz_job_looks(job) ? n_images : 0,
                                       &prompt, err);
        lz_host_free(m->ctx, read_as);
        if (status) return status;
        for (int k = 0; k < prompt.n; k++) lz_retain(prompt.in[k]);
        job->prompts[i] = prompt;
    }
    job->has_tokens = true;
    return LZ_OK;
}

void lz_job_free_tokens(lz_job *job) {
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < job->prompts[i].n; k++) lz_release(job->prompts[i].in[k]);
    memset(job->prompts, 0, sizeof job->prompts);
}

bool lz_job_looks(const lz_job *job) {
    int n;
    lz_job_references(job, &n);
    return job->model->family->look && n && !job->options.layers;
}

/* Opens the text encoder, unless it is open. */
static lz_status open_encoder(lz_job *job, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    if (!job->encoder) job->encoder = lz_encoder_open(job->model, lz_job_looks(job), &local);
    if (local.status && err) *err = local;
    return local.status;
}

/* If the features of all prompts are kept, reports the stage as done and returns true. */
static bool recall_prompts(lz_job *job, lz_error *err) {
    for (int i = 0; i < 2; i++) {
        if (!job->prompts[i].n) continue;
        lz_array *features = lz_recall(job->model, &job->prompts[i]);
        if (!features) return false;
        lz_release(job->recalled[i]);
        job->slots.features[i] = job->recalled[i] = features;
    }
    if (!lz_job_tell(job, 1, NULL)) lz_fail(err, LZ_CANCELLED, "stopped after the text");
    return true;
}

static void describe_look(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx;
    const lz_job *job = user;
    out[0] = job->model->family->look(job->encoder->text, in[0]);
}

lz_status lz_job_readers(lz_job *job, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    lz_context *ctx = job->model->ctx;
    bool looks = lz_job_looks(job);
    open_encoder(job, &local);
    if (!local.status && !job->reader)
        job->reader = lz_reader_take(job->model, job->encoder, job->prompts[0].n + looks, &local);
    if (!local.status && looks && !job->looker)
        job->looker = lz_compile(ctx, describe_look, job, 1, 1, LZ_MAX_IMAGES, &local);
    if (local.status && err) *err = local;
    return local.status;
}

void lz_job_end_text(lz_job *job, bool ran) {
    lz_ahead_wait(job, LZ_AHEAD_TEXT, LZ_AHEAD_TEXT);
    job->text_sent = false;
    lz_compiled_free(job->looker);
    job->looker = NULL;
    lz_kept_put(job->model, LZ_KEPT_READER, job->reader, ran);
    job->reader = NULL;
    lz_encoder_close(job->model, job->encoder, ran);
    job->encoder = NULL;
}

/* The text encoder's rows of all images, evaluated: [p, e]. */
static lz_status look_at_images(lz_job *job, lz_array **seen, lz_error *err) {
    const lz_model *m = job->model;
    lz_array *each[LZ_MAX_IMAGES];
    int n;
    const lz_image *images = lz_job_references(job, &n);
    for (int i = 0; i < n; i++) {
        lz_image view = {0};
        lz_status status = lz_job_begin(job, "text", 0, err);
        if (!status) status = m->family->view(m->state, &images[i], &view, err);
        if (!status) {
            lz_array *pixels = lz_image_bytes(m->ctx, &view);
            status = lz_run_watched(job->looker, &pixels, &each[i], &job->watch, err);
        }
        lz_image_free(m->ctx, &view);
        if (status) return status;
    }
    *seen = n > 1 ? lz_concat(each, n, 0) : each[0];
    return lz_eval(*seen, err);
}

/* Encodes the prompts one after another, which takes half the memory. */
static lz_status read_prompts(lz_job *job, lz_error *err) {
    lz_model *m = job->model;
    lz_array *seen = NULL;
    bool looks = lz_job_looks(job);
    lz_status status = lz_job_readers(job, err);
    if (status) return status;
    lz_kept_clear(m, LZ_KEPT_READER);
    job->reader->ran = true;
    if (looks) status = look_at_images(job, &seen, err);
    for (int i = 0; i < 2 && !status; i++) {
        lz_prompt prompt = job->prompts[i];
        if (!prompt.n || (status = lz_job_begin(job, "text", i, err))) continue;
        if (seen) prompt.in[prompt.n++] = seen;
        status = lz_run_watched(job->reader->program, prompt.in, &job->slots.features[i], &job->watch, err);
        if (!status && !looks) lz_remember(m, &prompt, job->slots.features[i]);
    }
    return status;
}

lz_status lz_job_text(lz_job *job, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    lz_job_begin(job, "text", 0, &local);
    bool reads = !local.status && (lz_job_looks(job) || !recall_prompts(job, &local));
    if (reads) read_prompts(job, &local);
    lz_job_end_text(job, reads);
    if (local.status && err) *err = local;
    return local.status;
}
