/* denoise.c: the loop from noise to latents, the same for every family and every sampler. Arrays that depend on the
 * schedule or the size alone are computed before it; a step is one program. */
#include "pipeline/job.h"

/* ---- arrays of the schedule and the size ------------------------------------------------------------------------- */

static const lz_slot schedule_list[] = {LZ_SLOT(sigma_drops), LZ_SLOT(weights), LZ_SLOT(skips), LZ_SLOT(clean_row),
                                        LZ_SLOT(rows)};
static const lz_slot size_list[] = {LZ_SLOT(tables)};
const lz_slot_list lz_schedule_slots = LZ_SLOT_LIST(schedule_list), lz_size_slots = LZ_SLOT_LIST(size_list);

void lz_describe_schedule(const lz_model *m, const lz_passes *p, lz_slots *to) {
    double scale = m->schedule.time_scale;
    lz_array *levels = lz_from(m->ctx, LZ_DIMS(p->n + 1), LZ_F32, p->sigmas);
    lz_array *before = lz_slice(levels, 0, 0, p->n, 1);
    if (p->n_weights) to->weights = lz_from(m->ctx, LZ_DIMS(p->n, p->n_weights), LZ_F32, p->weights);
    if (p->skips) to->skips = lz_from(m->ctx, LZ_DIMS(p->n, LZ_SKIP_COLUMNS), LZ_F32, p->skips);
    m->family->rows(m->state, scale == 1 ? before : lz_mul(before, scale), to);
    to->sigma_drops = lz_sub(lz_slice(levels, 0, 1, p->n + 1, 1), before);
}

void lz_count_text(const lz_slots *s, lz_layout *layout) {
    for (int i = 0; i < 2; i++) layout->text_tokens[i] = s->features[i] ? lz_shape(s->features[i]).at[0] : 0;
}

/* ---- what the loop begins with ----------------------------------------------------------------------------------- */

static const lz_slot begin_in[] = {LZ_SLOT(noise),      LZ_SLOT(guidance), LZ_SLOT(step_index),  LZ_SLOT(features),
                                   LZ_SLOT(references), LZ_SLOT(start),    LZ_SLOT(start_share), LZ_SLOT(noise_share),
                                   LZ_SLOT(clean_row),  LZ_SLOT(tables),   LZ_SLOT(mask),        LZ_SLOT(sigmas_after)};
static const lz_slot begin_out[] = {LZ_SLOT(x),          LZ_SLOT(step_index),   LZ_SLOT(guidance),   LZ_SLOT(context),
                                    LZ_SLOT(states),     LZ_SLOT(references),   LZ_SLOT(mask),       LZ_SLOT(kept),
                                    LZ_SLOT(kept_noise), LZ_SLOT(sigmas_after), LZ_SLOT(velocities), LZ_SLOT(history),
                                    LZ_SLOT(differences)};

/* Guidance, the index and references that are not cached pass through. The program copies them, so their addresses are
 * the same for every picture, and the recorded step can be replayed. */
static void describe_begin(const lz_traced *t, const lz_slots *in, lz_slots *out) {
    const lz_model *m = t->model;
    lz_array *x = lz_to_tokens(in->noise, m->family->patch);
    if (in->mask) {
        out->mask = in->mask;
        out->kept = in->start;
        out->kept_noise = lz_contiguous(x);
        out->sigmas_after = in->sigmas_after;
    }
    for (int i = 0; i < 2; i++)
        if (in->features[i])
            out->context[i] = m->family->prefix ? m->family->prefix(m->state, &t->layout, in, i)
                                                : m->family->context(m->state, in->features[i]);
    if (in->start) x = lz_add(lz_mul(in->start, in->start_share), lz_mul(x, in->noise_share));
    out->x = lz_contiguous(x);
    out->step_index = in->step_index;
    out->guidance = in->guidance;
    bool cache = in->references && lz_caches_references(m);
    out->references = cache ? m->family->cache(m->state, &t->layout, in) : in->references;
    lz_array *zeros = lz_contiguous(lz_mul(out->x, 0.0));
    if (t->sampler->begin) t->sampler->begin(out->x, out->states);
    for (int i = 0; i < t->sampler->n_states && !t->sampler->begin; i++) out->states[i] = zeros;
    for (int i = 0; i < 2; i++) out->velocities[i] = zeros;
    for (int i = 0; i < LZ_HISTORY; i++) out->history[i] = out->differences[i] = zeros;
}

lz_traced lz_trace_begin(const lz_model *m, const lz_layout *layout, const lz_sampler *sampler) {
    static const lz_traced_kind kind = {
        .name = "begin",
        .in = LZ_SLOT_LIST(begin_in),
        .out = LZ_SLOT_LIST(begin_out),
        .describe = describe_begin,
        .cached = 1,
    };
    return (lz_traced){.kind = &kind, .model = m, .sampler = sampler, .layout = *layout};
}

static lz_array *number_array(lz_context *ctx, double value) {
    float number = (float)value;
    return lz_from(ctx, LZ_NONE, LZ_F32, &number);
}

void lz_fill_begin(const lz_job *job, lz_slots *s) {
    lz_context *ctx = job->model->ctx;
    int64_t first = job->first_pass;
    s->guidance = number_array(ctx, job->options.guidance);
    s->step_index = lz_from(ctx, LZ_DIMS(1), LZ_I64, &first);
    if (s->start) { /* the start image mixed with the noise of the first step */
        double noise = (double)job->passes.sigmas[first];
        s->start_share = number_array(ctx, 1 - noise);
        s->noise_share = number_array(ctx, noise);
    }
    if (job->repaint.on) {
        s->mask = lz_repaint_tokens(job);
        s->sigmas_after = lz_from(ctx, LZ_DIMS(job->passes.n), LZ_F32, job->passes.sigmas + 1);
    }
}

lz_dims lz_job_step_noise(const lz_job *job) {
    const lz_layout *l = &job->layout;
    return LZ_DIMS(job->passes.n - job->first_pass, l->frames * l->h * l->w, lz_token_channels(job->model));
}

/* The noise of all passes: what torch.randn gives in further calls, after that of the noise of the picture. A call
 * draws blocks of 16 numbers, so that several calls give the numbers of one. */
static lz_array *draw_step_noise(const lz_job *job) {
    const lz_family *f = job->model->family;
    lz_dims d = lz_job_step_noise(job), latents = lz_job_latents(job);
    int64_t n = d.at[0], each = d.at[1] * d.at[2], skipped = job->options.noise ? 0 : 1, patch = f->patch;
    if (each % 16) return lz_poison(job->model->ctx, LZ_BAD_SHAPE, "noise of %lld numbers", (long long)each);
    lz_array *all = lz_randn(job->model->ctx, LZ_DIMS((n + skipped) * each), job->options.seed);
    all = lz_slice(all, 0, skipped * each, (n + skipped) * each, 1);
    if (!f->steps_planes) return lz_contiguous(lz_reshape(all, d));
    int64_t c = latents.at[1];
    all = lz_reshape(all, LZ_DIMS(n, c, job->layout.h, patch, job->layout.w, patch));
    return lz_contiguous(lz_reshape(lz_permute(all, LZ_DIMS(0, 2, 4, 1, 3, 5)), d));
}

static lz_status make_noise(lz_job *job, lz_error *err) {
    const lz_picture_options *o = &job->options;
    lz_slots *s = &job->slots;
    s->noise = o->noise ? lz_cast(o->noise, LZ_F32) : lz_randn(job->model->ctx, lz_job_latents(job), o->seed);
    if (job->sampler->noisy) s->step_noise = draw_step_noise(job);
    lz_status status = lz_eval(s->noise, err);
    return status || !s->step_noise ? status : lz_eval(s->step_noise, err);
}

lz_status lz_job_loop(lz_job *job, const lz_slots *s, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    lz_count_text(s, &job->layout);
    if (!job->schedule) job->schedule = lz_schedule_take(job->model, &job->passes, &local);
    if (job->schedule && !job->loop) job->loop = lz_loop_take(job->model, &job->layout, job->sampler, &local);
    if (local.status && err) *err = local;
    return local.status;
}

/* Arrays and programs of the schedule and of the size: those of the plan or of an earlier job, or new ones. */
static lz_status ready_loop(lz_job *job, lz_error *err) {
    lz_status status = lz_job_loop(job, &job->slots, err);
    if (status) return status;
    status = lz_schedule_ready(job->schedule, err);
    if (!status) status = lz_loop_ready(job->loop, err);
    lz_slots_copy(lz_schedule_slots, &job->schedule->slots, &job->slots);
    lz_slots_copy(lz_size_slots, &job->loop->slots, &job->slots);
    return status;
}

lz_slots lz_fill_begun(const lz_job *job, const lz_slots *s) {
    lz_slots made = {.x = s->noise,
                     .step_index = s->step_index,
                     .guidance = s->guidance,
                     .context = {s->features[0], s->features[1]},
                     .references = s->references};
    for (int i = 0; i < job->sampler->n_states; i++) made.states[i] = s->noise;
    if (s->mask) {
        made.mask = s->mask;
        made.kept = made.kept_noise = s->noise;
        made.sigmas_after = s->sigmas_after;
    }
    if (!job->passes.skips) return made;
    for (int i = 0; i < 2; i++) made.velocities[i] = s->features[i];
    for (int i = 0; i < LZ_HISTORY; i++) {
        made.history[i] = s->noise;
        made.differences[i] = s->features[1];
    }
    return made;
}

static lz_status begin(lz_job *job, lz_error *err) {
    lz_traced *program = &job->loop->begin;
    const lz_slots *s = &job->slots;
    lz_slots made = lz_fill_begun(job, s);
    lz_status status = lz_traced_run(program, s, &made, NULL, err);
    lz_slots_copy(program->kind->out, &made, &job->slots);
    if (!lz_kept_programs(job->model)) lz_traced_free(program);
    return status;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static const lz_slot step_in[] = {LZ_UPDATE_SLOTS,     LZ_SLOT(guidance),  LZ_SLOT(tables), LZ_SLOT(context),
                                  LZ_SLOT(references), LZ_SLOT(clean_row), LZ_SLOT(rows)};
static const lz_slot step_out[] = {LZ_SLOT(x), LZ_SLOT(step_index), LZ_SLOT(states)};

typedef struct step_inputs {
    const lz_traced *traced;
    const lz_slots *in;
} step_inputs;

void lz_take_rows(const lz_slots *in, lz_array *step_index, lz_array **to) {
    for (int i = 0; i < LZ_MAX_ROWS; i++) to[i] = in->rows[i] ? lz_take(in->rows[i], step_index, 0) : NULL;
}

lz_array *lz_guide(const lz_model *m, lz_array *v, lz_array *away, lz_array *guidance) {
    return m->family->guide ? m->family->guide(m->state, v, away, guidance)
                            : lz_add(away, lz_mul(lz_sub(v, away), guidance));
}

/* The velocity for the prompt, guided away from the velocity for the negative prompt. */
static lz_array *guided_velocity(const lz_sampler_step *s, lz_array *x, lz_array *step_index) {
    const step_inputs *step = s->user;
    const lz_slots *in = step->in;
    const lz_layout *layout = &step->traced->layout;
    const lz_model *m = step->traced->model;
    lz_array *rows[LZ_MAX_ROWS];
    lz_take_rows(in, step_index, rows);
    lz_array *v = m->family->velocity(m->state, layout, in, 0, x, rows);
    if (!in->context[1]) return v;
    return lz_guide(m, v, m->family->velocity(m->state, layout, in, 1, x, rows), in->guidance);
}

void lz_describe_update(const lz_traced *t, const lz_slots *in, lz_velocity *velocity, const void *user,
                        lz_slots *out) {
    const lz_sampler_step step = {.sampler = t->sampler,
                                  .x = in->x,
                                  .step_index = in->step_index,
                                  .sigma_drops = in->sigma_drops,
                                  .weights = in->weights,
                                  .noise = in->step_noise,
                                  .states = in->states,
                                  .velocity = velocity,
                                  .user = user};
    out->x = t->sampler->step(&step, out->states);
    if (in->mask) out->x = lz_keep_start(in, out->x);
    out->step_index = lz_add(in->step_index, 1.0);
}

static void describe_step(const lz_traced *t, const lz_slots *in, lz_slots *out) {
    lz_describe_update(t, in, guided_velocity, &(step_inputs){t, in}, out);
}

lz_traced lz_trace_step(const lz_model *m, const lz_layout *layout, const lz_sampler *sampler) {
    static const lz_traced_kind kind = {
        .name = "step",
        .in = LZ_SLOT_LIST(step_in),
        .out = LZ_SLOT_LIST(step_out),
        .describe = describe_step,
        .cached = 4, /* one for each number of steps */
    };
    return (lz_traced){.kind = &kind, .model = m, .sampler = sampler, .layout = *layout};
}

/* A pass replaces the slots that are passed from pass to pass. Those of the pass before are released, so that two sets
 * of output arrays serve any number of passes. */
static lz_status take_step(lz_job *job, int pass, lz_error *err) {
    lz_context *ctx = job->model->ctx;
    bool skips = job->passes.skips;
    lz_traced *program = skips ? &job->loop->advance : &job->loop->step;
    lz_slots last = job->slots, next = job->slots;
    lz_status status = lz_crew_step(job, pass - job->first_pass, err);
    if (status) return status;
    lz_scope *scope = lz_scope_begin(ctx, "step");
    int64_t streamed = lz_memory_info(ctx).streamed;
    status = skips ? lz_job_skipping_pass(job, pass, &next, err)
                   : lz_traced_run(program, &job->slots, &next, &job->watch, err);
    job->picture->streamed_bytes = lz_memory_info(ctx).streamed - streamed;
    lz_slots_retain(program->kind->out, &next);
    lz_slots_copy(program->kind->out, &next, &job->slots);
    if (!status) status = lz_crew_preview(job, pass, last.x, err);
    lz_slots_release(program->kind->out, &last);
    lz_scope_end(scope);
    return status;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

static const lz_slot passed_on[] = {LZ_SLOT(x),          LZ_SLOT(step_index), LZ_SLOT(states),
                                    LZ_SLOT(velocities), LZ_SLOT(history),    LZ_SLOT(differences)};

static lz_status take_steps(lz_job *job, lz_error *err) {
    enum { TIMES = sizeof job->picture->step_seconds / sizeof job->picture->step_seconds[0] };
    const lz_slot_list handed = LZ_SLOT_LIST(passed_on);
    lz_status status = LZ_OK;
    lz_slots_retain(handed, &job->slots);
    for (int i = job->first_pass; i < job->passes.n && !status; i++) {
        double begun = lz_now();
        status = take_step(job, i, err);
        int run = i - job->first_pass;
        if (run < TIMES) job->picture->step_seconds[run] = lz_now() - begun;
    }
    lz_slots last = job->slots;
    lz_adopt(job->slots.x); /* this scope gets a reference */
    lz_slots_release(handed, &last);
    return status;
}

lz_status lz_jobs_denoise(lz_job *const *jobs, int n, lz_error *err) {
    lz_job *first = jobs[0];
    lz_crew crew;
    lz_status status = LZ_OK;
    lz_ahead_wait(first, LZ_AHEAD_ARRAYS, LZ_AHEAD_STEPS);
    for (int i = 0; i < n && !status; i++) status = make_noise(jobs[i], err);
    if (n > 1) lz_crew_begin(&crew, jobs, n);
    if (!status) status = ready_loop(first, err);
    for (int i = 0; i < n && !status; i++) lz_fill_begin(jobs[i], &jobs[i]->slots);
    if (!status && n > 1) status = lz_crew_stack(&crew, err);
    if (!status) status = begin(first, err);
    if (!status) status = take_steps(first, err);
    lz_job_end_loop(first, true);
    if (n == 1) return status;
    lz_status ended = lz_crew_end(&crew, !status, err);
    return status ? status : ended;
}

void lz_job_end_loop(lz_job *job, bool used) {
    lz_kept_put(job->model, LZ_KEPT_LOOP, job->loop, used);
    lz_kept_put(job->model, LZ_KEPT_SCHEDULE, job->schedule, used);
    job->loop = NULL;
    job->schedule = NULL;
}
