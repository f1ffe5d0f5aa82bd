/* plan.c: what a job will take: the same tokens, slots and descriptions as when it is run, planned and not run. */
#include <string.h>

#include "pipeline/job.h"

/* Programs of one stage come one after the other; what is said of being sent is said of the last. */
static lz_status add_stage(lz_picture_plan *plan, const char *stage, lz_array *const *arrays, int n, int times,
                           lz_error *err) {
    lz_plan_info info;
    lz_status status = lz_plan(arrays, n, &info, err);
    if (status) return status;
    if (!plan->n_stages || strcmp(plan->stages[plan->n_stages - 1].stage, stage))
        plan->stages[plan->n_stages++] = (lz_stage_plan){.stage = stage};
    lz_stage_plan *s = &plan->stages[plan->n_stages - 1];
    int64_t bytes = info.arena_bytes + info.output_bytes;
    if (bytes > s->bytes) s->bytes = bytes;
    if (info.device_bytes > s->device_bytes) s->device_bytes = info.device_bytes;
    s->streamed_bytes = info.streamed_bytes;
    s->weight_bytes += info.input_bytes;
    s->flops += info.flops * times;
    if (bytes > plan->peak_bytes) plan->peak_bytes = bytes;
    plan->flops += info.flops * times;
    return LZ_OK;
}

/* The largest of several programs that run one after the other; their operations together. */
static void add_program(lz_stage_plan *all, const lz_plan_info *info) {
    if (info->arena_bytes + info->output_bytes > all->bytes) all->bytes = info->arena_bytes + info->output_bytes;
    if (info->device_bytes > all->device_bytes) all->device_bytes = info->device_bytes;
    if (info->streamed_bytes > all->streamed_bytes) all->streamed_bytes = info->streamed_bytes;
    if (info->input_bytes > all->weight_bytes) all->weight_bytes = info->input_bytes;
    all->flops += info->flops;
}

/* What the text encoder sees of the images, one after the other: *seen gets an array of its shape, or NULL. */
static lz_status plan_looks(lz_job *job, lz_stage_plan *all, lz_array **seen, lz_error *err) {
    const lz_model *m = job->model;
    int n, rows = 0;
    int64_t width = 0;
    const lz_image *images = lz_job_references(job, &n);
    *seen = NULL;
    for (int i = 0; i < n && m->family->look; i++) {
        lz_image view = {0};
        lz_plan_info info = {0};
        lz_status status = m->family->view(m->state, &images[i], &view, err);
        if (!status) {
            lz_array *pixels = lz_from(m->ctx, LZ_DIMS(view.height, view.width, 3), LZ_U8, view.pixels);
            lz_array *each = m->family->look(job->encoder->text, pixels);
            status = lz_plan(&each, 1, &info, err);
            rows += (int)lz_shape(each).at[0];
            width = lz_shape(each).at[1];
        }
        lz_image_free(m->ctx, &view);
        if (status) return status;
        add_program(all, &info);
    }
    if (rows) *seen = lz_contiguous(lz_full(m->ctx, LZ_DIMS(rows, width), LZ_F32, 0));
    return LZ_OK;
}

static lz_status plan_text(lz_job *job, lz_slots *s, lz_picture_plan *plan, lz_error *err) {
    const lz_model *m = job->model;
    lz_stage_plan looks = {.bytes = 0};
    lz_array *seen = NULL;
    lz_status status = lz_job_encoder(job, err);
    if (!status) status = plan_looks(job, &looks, &seen, err);
    for (int i = 0; i < 2 && !status; i++) {
        lz_prompt prompt = job->prompts[i];
        if (!prompt.n) continue;
        if (seen) prompt.in[prompt.n++] = seen;
        s->features[i] = m->family->features(job->encoder->text, prompt);
    }
    if (!status) status = add_stage(plan, "text", s->features, 1, s->features[1] ? 2 : 1, err);
    if (status) return status;
    lz_stage_plan *stage = &plan->stages[plan->n_stages - 1]; /* the images count as part of the text */
    if (looks.bytes > stage->bytes) stage->bytes = looks.bytes;
    if (looks.device_bytes > stage->device_bytes) stage->device_bytes = looks.device_bytes;
    if (looks.bytes > plan->peak_bytes) plan->peak_bytes = looks.bytes;
    stage->flops += looks.flops;
    plan->flops += looks.flops;
    for (int i = 0; i < 2; i++) /* from here on they are just arrays of that shape */
        if (s->features[i]) s->features[i] = lz_full(m->ctx, lz_shape(s->features[i]), LZ_F32, 0);
    return LZ_OK;
}

static lz_array *blank(const lz_model *m, int64_t h, int64_t w) {
    return lz_full(m->ctx, LZ_DIMS(h * w, lz_token_channels(m)), LZ_F32, 0);
}

static lz_status plan_image(const lz_model *m, int64_t height, int64_t width, lz_stage_plan *all, lz_error *err) {
    lz_array *picture = lz_contiguous(lz_full(m->ctx, LZ_DIMS(height, width, 3), LZ_F32, 0));
    lz_array *tokens = m->family->encode(m->state, picture);
    lz_plan_info info;
    lz_status status = lz_plan(&tokens, 1, &info, err);
    if (!status) add_program(all, &info);
    return status;
}

/* Images are encoded one after the other: the largest counts for memory, all for work. */
static lz_status plan_images(const lz_job *job, lz_slots *s, lz_picture_plan *plan, lz_error *err) {
    const lz_model *m = job->model;
    int64_t unit = m->family->token_pixels(m->state), rows = 0;
    lz_stage_plan all = {.stage = "encode"};
    lz_status status = LZ_OK;
    if (job->options.strength > 0) {
        status = plan_image(m, job->options.height, job->options.width, &all, err);
        s->start = lz_stand_in(blank(m, job->layout.h, job->layout.w));
    }
    for (int i = 0; i < job->layout.n_references && !status; i++) {
        const int64_t *size = job->layout.reference_sizes[i];
        status = plan_image(m, size[0] * unit, size[1] * unit, &all, err);
        rows += size[0] * size[1];
    }
    if (status) return status;
    if (rows) s->references = blank(m, rows, 1);
    if (job->options.n_images) plan->stages[plan->n_stages++] = all;
    if (all.bytes > plan->peak_bytes) plan->peak_bytes = all.bytes;
    plan->flops += all.flops;
    return LZ_OK;
}

/* Plans the slots of a list, which are described in *made. For what comes later they are inputs without a value. */
static lz_status plan_slots(lz_slots *s, lz_picture_plan *plan, lz_slot_list list, const lz_slots *made, int times,
                            lz_error *err) {
    lz_array *all[LZ_MAX_SLOTS];
    uint64_t filled;
    int n = lz_slots_pack(list, made, all, &filled);
    lz_status status = add_stage(plan, "denoise", all, n, times, err);
    for (int i = 0; i < n; i++) all[i] = lz_stand_in(all[i]);
    lz_slots_unpack(list, filled, all, s);
    return status;
}

/* What comes before the loop, then a step of it. */
static lz_status plan_denoise(const lz_job *job, lz_slots *s, lz_picture_plan *plan, lz_error *err) {
    const lz_model *m = job->model;
    lz_slots schedule = {NULL}, begun = {NULL}, next = {NULL};
    lz_layout layout = job->layout;
    int steps = job->options.steps;
    lz_describe_schedule(m, job->sigmas, steps, &schedule);
    lz_status status = plan_slots(s, plan, lz_schedule_slots, &schedule, 1, err);
    if (status) return status;
    s->noise = lz_stand_in(lz_full(m->ctx, lz_job_latents(job), LZ_F32, 0));
    lz_count_text(s, &layout);
    m->family->tables(m->state, &layout, s);
    lz_traced begin = lz_trace_begin(m, &layout, job->sampler), step = lz_trace_step(m, &layout, job->sampler);
    lz_fill_begin(job, s);
    begin.kind->describe(&begin, s, &begun);
    status = plan_slots(s, plan, begin.kind->out, &begun, 1, err);
    if (status) return status;
    step.kind->describe(&step, s, &next);
    status = plan_slots(s, plan, step.kind->out, &next, steps - job->first_step, err);
    plan->streamed_bytes = plan->stages[plan->n_stages - 1].streamed_bytes;
    return status;
}

static lz_status plan_decode(const lz_job *job, lz_picture_plan *plan, lz_error *err) {
    const lz_model *m = job->model;
    int64_t h = job->layout.h, w = job->layout.w, side = lz_choose_tile(m, h, w), tiles = 1;
    plan->tile = side * m->family->token_pixels(m->state);
    if (side) { /* work by area; a quarter of each tile lies under the next */
        tiles = 1 + h * w * 16 / (9 * side * side);
        h = h < side ? h : side;
        w = w < side ? w : side;
    }
    lz_array *pixels = lz_describe_pixels(m, lz_contiguous(blank(m, h, w)), h, w);
    return add_stage(plan, "decode", (lz_array *[]){pixels, lz_describe_bytes(pixels)}, 2, (int)tiles, err);
}

static lz_status plan_stages(lz_job *job, lz_picture_plan *plan, lz_error *err) {
    lz_slots slots = {NULL}; /* without values */
    plan->steps = job->options.steps - job->first_step;
    lz_status status = lz_job_prepare(job, err);
    if (!status) status = plan_text(job, &slots, plan, err);
    if (!status) status = plan_images(job, &slots, plan, err);
    if (!status) status = plan_denoise(job, &slots, plan, err);
    if (!status) status = plan_decode(job, plan, err);
    for (int i = 0; i < plan->n_stages; i++) {
        const lz_stage_plan *s = &plan->stages[i];
        if (s->weight_bytes > plan->weight_bytes) plan->weight_bytes = s->weight_bytes;
        if (s->device_bytes > plan->device_bytes) plan->device_bytes = s->device_bytes;
    }
    return status;
}

lz_status lz_job_plan(lz_job *job, lz_picture_plan *plan, lz_error *err) {
    lz_status status = LZ_OK;
    if (!job->has_plan) {
        lz_scope *scope = lz_scope_begin(job->model->ctx, "plan");
        memset(&job->plan, 0, sizeof job->plan);
        status = plan_stages(job, &job->plan, err);
        job->has_plan = !status;
        lz_scope_end(scope);
    }
    *plan = job->plan;
    return status;
}
