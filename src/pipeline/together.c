/* together.c: jobs that run together. Prompts and images are encoded, and pictures decoded, job by job. The loop between
 * runs once for all: its slots have one more axis (slots.h), and the programs are those of one picture, described for
 * all (lz_describe_many). */
#include <string.h>

#include "pipeline/job.h"

/* ---- which jobs -------------------------------------------------------------------------------------------------- */

/* The shape of the features depends on the shapes of the tokens alone. */
static bool same_text(const lz_prompt *a, const lz_prompt *b) {
    bool same = a->n == b->n;
    for (int i = 0; i < a->n && same; i++) same = lz_dims_equal(lz_shape(a->in[i]), lz_shape(b->in[i]));
    return same;
}

static bool has_start(const lz_job *job) { return job->options.strength > 0 || job->repaint.on; }

bool lz_jobs_alike(lz_job *a, lz_job *b) {
    lz_error err;
    if (!a || !b || a->model != b->model || a->options.layers) return false; /* layers fill a device alone */
    lz_scope *scope = lz_scope_begin(a->model->ctx, "alike");
    bool prepared = !lz_job_prepare(a, &err) && !lz_job_prepare(b, &err);
    lz_scope_end(scope);
    if (!prepared) return false;
    lz_layout x = a->layout, y = b->layout;
    memset(x.text_tokens, 0, sizeof x.text_tokens);
    memset(y.text_tokens, 0, sizeof y.text_tokens);
    return a->sampler == b->sampler && a->first_pass == b->first_pass && a->repaint.on == b->repaint.on &&
           has_start(a) == has_start(b) && lz_passes_equal(&a->passes, &b->passes) &&
           same_text(&a->prompts[0], &b->prompts[0]) && same_text(&a->prompts[1], &b->prompts[1]) &&
           memcmp(&x, &y, sizeof x) == 0;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* A program that was planned for one picture is put back. */
void lz_crew_begin(lz_crew *crew, lz_job *const *jobs, int n) {
    *crew = (lz_crew){.jobs = jobs, .n = n};
    lz_job *first = jobs[0];
    for (int i = 0; i < n; i++) {
        lz_kept_put(jobs[i]->model, LZ_KEPT_LOOP, jobs[i]->loop, false);
        jobs[i]->loop = NULL;
    }
    first->layout.pictures = n;
    first->crew = crew;
    lz_job_watch(first);
}

lz_status lz_crew_stack(lz_crew *crew, lz_error *err) {
    const lz_slots *each[LZ_MAX_TOGETHER];
    lz_array *all[LZ_MAX_SLOTS];
    lz_slots stacked;
    int n = 0;
    for (int i = 0; i < crew->n; i++) each[i] = &crew->jobs[i]->slots;
    lz_slots_stack(each, crew->n, &stacked);
    crew->first = crew->jobs[0]->slots;
    crew->jobs[0]->slots = stacked;
    lz_array *const *from = (lz_array *const *)(const void *)&crew->first, *const *to = (lz_array **)(void *)&stacked;
    for (int i = 0; i < LZ_MAX_SLOTS; i++)
        if (to[i] != from[i]) all[n++] = to[i];
    return lz_eval_all(all, n, err);
}

lz_status lz_crew_end(lz_crew *crew, bool went_well, lz_error *err) {
    lz_job *first = crew->jobs[0];
    lz_array *x = first->slots.x, *own[LZ_MAX_TOGETHER];
    if (crew->first.noise) first->slots = crew->first;
    first->layout.pictures = 0;
    first->crew = NULL;
    lz_job_watch(first);
    if (!went_well) return LZ_OK;
    for (int i = 0; i < crew->n; i++) {
        lz_job *job = crew->jobs[i];
        job->slots.x = own[i] = lz_pick_picture(x, i);
        if (!i) continue;
        job->picture->streamed_bytes = first->picture->streamed_bytes;
        memcpy(job->picture->step_seconds, first->picture->step_seconds, sizeof first->picture->step_seconds);
    }
    for (int i = 0; i < crew->n; i++)
        for (size_t k = 0; k < sizeof first->picture->step_seconds / sizeof first->picture->step_seconds[0]; k++)
            crew->jobs[i]->picture->step_seconds[k] /= crew->n;
    return lz_eval_all(own, crew->n, err);
}

/* ---- progress ---------------------------------------------------------------------------------------------------- */

static bool is_cancelled(lz_job *job) { return atomic_load(&job->cancelled); }

bool lz_crew_listens(const lz_job *job) {
    bool listens = job->options.watch;
    for (int i = 1; job->crew && i < job->crew->n; i++) listens = listens || job->crew->jobs[i]->options.watch;
    return listens;
}

lz_status lz_crew_step(lz_job *job, int step, lz_error *err) {
    if (!job->crew) return lz_job_begin(job, "denoise", step, err);
    lz_error last;
    bool any = false;
    for (int i = 0; i < job->crew->n; i++)
        any = lz_job_begin(job->crew->jobs[i], "denoise", step, &last) == LZ_OK || any;
    if (!any && err) *err = last;
    return any ? LZ_OK : LZ_CANCELLED;
}

bool lz_crew_tell(lz_job *job, double done) {
    if (!job->crew) return lz_job_tell(job, done, NULL);
    bool any = false;
    for (int i = 0; i < job->crew->n; i++) {
        lz_job *one = job->crew->jobs[i];
        if (is_cancelled(one)) continue;
        if (lz_job_tell(one, done, NULL))
            any = true;
        else
            lz_job_cancel(one);
    }
    return any;
}

/* Calls lz_job_preview with the slots of one picture. */
static lz_status preview_one(lz_job *first, int i, int pass, lz_array *before, lz_error *err) {
    lz_crew *crew = first->crew;
    lz_job *job = crew->jobs[i];
    lz_slots kept = job->slots, own = i ? job->slots : crew->first;
    lz_loop *loop = job->loop;
    lz_scope *scope = lz_scope_begin(job->model->ctx, "picture");
    own.x = lz_pick_picture(first->slots.x, i);
    if (first->slots.mask) {
        own.kept = lz_pick_picture(first->slots.kept, i);
        own.kept_noise = lz_pick_picture(first->slots.kept_noise, i);
    }
    lz_array *own_before = lz_pick_picture(before, i);
    job->slots = own;
    job->loop = first->loop;
    lz_status status = lz_job_preview(job, pass, own_before, err);
    job->slots = kept;
    job->loop = loop;
    lz_scope_end(scope);
    return status;
}

lz_status lz_crew_preview(lz_job *job, int pass, lz_array *before, lz_error *err) {
    if (!job->crew) return lz_job_preview(job, pass, before, err);
    for (int i = 0; i < job->crew->n; i++) {
        lz_job *one = job->crew->jobs[i];
        lz_error local = {.status = LZ_OK};
        if (is_cancelled(one) || !one->options.preview || !one->options.watch) continue;
        lz_status status = preview_one(job, i, pass, before, &local);
        if (status == LZ_CANCELLED) {
            lz_job_cancel(one);
        } else if (status) {
            if (err) *err = local;
            return status;
        }
    }
    return LZ_OK;
}
