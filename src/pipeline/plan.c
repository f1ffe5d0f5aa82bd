/* plan.c: what a job will take. Its tokens are made and its programs planned, for stand-ins of the arrays that they
 * will read; lz_job_run then runs the same programs. Numbers that depend on nothing but shapes are computed on the
 * way. */
#include <string.h>

#include "base/file.h"
#include "pipeline/job.h"

/* Adds a program that runs `times` times to a stage. streamed_bytes is that of the last program added. */
static void add_stage(lz_picture_plan *plan, const char *stage, const lz_plan_info *info, int times) {
    if (!plan->n_stages || strcmp(plan->stages[plan->n_stages - 1].stage, stage))
        plan->stages[plan->n_stages++] = (lz_stage_plan){.stage = stage};
    lz_stage_plan *s = &plan->stages[plan->n_stages - 1];
    int64_t bytes = info->arena_bytes + info->output_bytes;
    if (bytes > s->bytes) s->bytes = bytes;
    if (info->device_bytes > s->device_bytes) s->device_bytes = info->device_bytes;
    s->streamed_bytes = info->streamed_bytes;
    s->weight_bytes += info->input_bytes;
    s->flops += info->flops * times;
    if (bytes > plan->peak_bytes) plan->peak_bytes = bytes;
    plan->flops += info->flops * times;
}

/* Adds one of several programs that run one after another: memory is the maximum, operations the sum. */
static void add_program(lz_stage_plan *all, const lz_plan_info *info) {
    if (info->arena_bytes + info->output_bytes > all->bytes) all->bytes = info->arena_bytes + info->output_bytes;
    if (info->device_bytes > all->device_bytes) all->device_bytes = info->device_bytes;
    if (info->streamed_bytes > all->streamed_bytes) all->streamed_bytes = info->streamed_bytes;
    if (info->input_bytes > all->weight_bytes) all->weight_bytes = info->input_bytes;
    all->flops += info->flops;
}

/* Plans the text encoder's passes over the images. *seen: an array of the shape of their rows, or NULL. */
static lz_status plan_looks(lz_job *job, lz_stage_plan *all, lz_array **seen, lz_error *err) {
    const lz_model *m = job->model;
    int n, rows = 0;
    int64_t width = 0;
    const lz_image *images = lz_job_references(job, &n);
    *seen = NULL;
    for (int i = 0; i < n && lz_job_looks(job); i++) {
        lz_image view = {0};
        lz_plan_info info = {0};
        lz_status status = m->family->view(m->state, &images[i], &view, err);
        if (!status) {
            lz_array *pixels = lz_image_bytes(m->ctx, &view);
            lz_array *each = NULL;
            status = lz_compiled_plan(job->looker, &pixels, &each, &info, err);
            rows += (int)lz_shape(each).at[0];
            width = lz_shape(each).at[1];
        }
        lz_image_free(m->ctx, &view);
        if (status) return status;
        add_program(all, &info);
    }
    if (rows) *seen = lz_stand_in(lz_full(m->ctx, LZ_DIMS(rows, width), LZ_F32, 0));
    return LZ_OK;
}

static lz_status plan_text(lz_job *job, lz_slots *s, lz_picture_plan *plan, lz_error *err) {
    lz_stage_plan looks = {.bytes = 0};
    lz_array *seen = NULL;
    lz_plan_info infos[2];
    lz_status status = lz_job_readers(job, err);
    if (!status) status = plan_looks(job, &looks, &seen, err);
    for (int i = 0; i < 2 && !status; i++) {
        lz_prompt prompt = job->prompts[i];
        if (!prompt.n) continue;
        if (seen) prompt.in[prompt.n++] = seen;
        status = lz_compiled_plan(job->reader->program, prompt.in, &s->features[i], &infos[i], err);
    }
    if (status) return status;
    add_stage(plan, "text", &infos[0], s->features[1] ? 2 : 1);
    lz_stage_plan *stage = &plan->stages[plan->n_stages - 1]; /* images are part of the stage "text" */
    if (looks.bytes > stage->bytes) stage->bytes = looks.bytes;
    if (looks.device_bytes > stage->device_bytes) stage->device_bytes = looks.device_bytes;
    if (looks.bytes > plan->peak_bytes) plan->peak_bytes = looks.bytes;
    stage->flops += looks.flops;
    plan->flops += looks.flops;
    return LZ_OK;
}

static lz_array *blank(const lz_model *m, int64_t h, int64_t w) {
    return lz_full(m->ctx, LZ_DIMS(h * w, lz_token_channels(m)), LZ_F32, 0);
}

static lz_status plan_image(lz_job *job, const lz_image *image, int64_t height, int64_t width, lz_stage_plan *all,
                            lz_array **tokens, lz_error *err) {
    lz_dims d = LZ_DIMS(height, width, lz_image_channels(image));
    lz_array *pixels = lz_stand_in(lz_full(job->model->ctx, d, LZ_U8, 0));
    lz_plan_info info;
    lz_status status = lz_compiled_plan(job->image_encoder, &pixels, tokens, &info, err);
    if (!status) add_program(all, &info);
    return status;
}

/* Images are encoded one after another: memory is that of the largest, work the sum. */
static lz_status plan_images(lz_job *job, lz_slots *s, lz_picture_plan *plan, lz_error *err) {
    const lz_model *m = job->model;
    int64_t unit = m->family->token_pixels(m->state), rows = 0;
    int n;
    const lz_image *images = lz_job_references(job, &n);
    lz_array *tokens = NULL;
    lz_stage_plan all = {.stage = "encode"};
    if (!job->options.n_images) return LZ_OK;
    lz_status status = lz_job_image_encoder(job, err);
    if (!status && job->options.strength > 0)
        status = plan_image(job, job->images, job->options.height, job->options.width, &all, &s->start, err);
    for (int i = 0; i < job->layout.n_references && !status; i++) {
        const int64_t *size = job->layout.reference_sizes[i];
        if (i || !job->repaint.shown) /* the start is encoded once */
            status = plan_image(job, &images[i], size[0] * unit, size[1] * unit, &all, &tokens, err);
        rows += size[0] * size[1];
    }
    if (status) return status;
    if (rows) s->references = lz_stand_in(blank(m, rows, 1));
    plan->stages[plan->n_stages++] = all;
    if (all.bytes > plan->peak_bytes) plan->peak_bytes = all.bytes;
    plan->flops += all.flops;
    return LZ_OK;
}

/* Bytes of the slots that a program `velocity` reads beside weights and tables. */
static int64_t bytes_read(const lz_slots *s) {
    lz_array *const read[] = {s->x, s->step_index, s->context[0], s->context[1], s->references};
    int64_t bytes = 0;
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        if (read[i]) bytes += lz_size(read[i]) * lz_dtype_size(lz_type(read[i]));
    return bytes;
}

/* Plans the programs of a loop that skips evaluations of the model. All stay in memory from pass to pass, and those that
 * evaluate the model read the same weights. */
static lz_status plan_skipping(lz_job *job, const lz_slots *s, int64_t begun, lz_picture_plan *plan, lz_error *err) {
    lz_skip_counts c = lz_skips_count(&job->passes, job->first_pass, lz_job_guided(job));
    lz_loop *loop = job->loop;
    const struct {
        lz_traced *program;
        int times;
    } programs[] = {
        {&loop->advance, lz_job_passes(job)}, {&loop->velocity[0], c.prompts}, {&loop->velocity[1], c.both}};
    int64_t others = begun;
    bool counted = false; /* the weights */
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        lz_slots in = *s, made = *s;
        lz_plan_info info;
        if (!programs[i].times) continue;
        if (i == 1) in.context[1] = made.velocities[1] = NULL;
        lz_status status = lz_traced_plan(programs[i].program, &in, &made, &info, err);
        if (status) return status;
        int64_t own = info.arena_bytes + info.output_bytes;
        info.arena_bytes += others;
        if (info.device_bytes) info.device_bytes += others;
        info.input_bytes = counted || !i ? 0 : info.input_bytes - bytes_read(&in);
        counted = counted || i > 0;
        others += own;
        add_stage(plan, "denoise", &info, programs[i].times);
    }
    return LZ_OK;
}

/* Plans the programs before the loop, then those of a step. */
static lz_status plan_denoise(lz_job *job, lz_slots *s, lz_picture_plan *plan, lz_error *err) {
    const lz_model *m = job->model;
    lz_plan_info info;
    lz_status status = lz_job_loop(job, s, err);
    if (!status) status = lz_schedule_plan(job->schedule, err);
    if (status) return status;
    add_stage(plan, "denoise", &job->schedule->info, 1);
    s->noise = lz_stand_in(lz_full(m->ctx, lz_job_latents(job), LZ_F32, 0));
    if (job->sampler->noisy) s->step_noise = lz_stand_in(lz_full(m->ctx, lz_job_step_noise(job), LZ_F32, 0));
    lz_slots_stand_in(lz_schedule_slots, &job->schedule->slots, s);
    lz_slots_stand_in(lz_size_slots, &job->loop->slots, s);
    lz_fill_begin(job, s);
    lz_slots made = lz_fill_begun(job, s);
    status = lz_traced_plan(&job->loop->begin, s, &made, &info, err);
    if (status) return status;
    bool blocks = m->family->prefix || (s->references && lz_caches_references(m));
    if (blocks) info.input_bytes = 0; /* it reads the weights that a step reads, which are counted below */
    add_stage(plan, "denoise", &info, 1);
    int64_t begun = info.output_bytes;
    lz_slots_copy(job->loop->begin.kind->out, &made, s);
    made = *s;
    /* Steps read what was made before them, such as a cache of references. It stays in memory, and is no weight. */
    if (job->passes.skips) {
        status = plan_skipping(job, s, begun, plan, err);
    } else if (!(status = lz_traced_plan(&job->loop->step, s, &made, &info, err))) {
        info.arena_bytes += begun;
        info.input_bytes -= begun;
        add_stage(plan, "denoise", &info, lz_job_passes(job));
    }
    if (status) return status;
    plan->streamed_bytes = plan->stages[plan->n_stages - 1].streamed_bytes;
    return LZ_OK;
}

static lz_status plan_decode(lz_job *job, lz_picture_plan *plan, lz_error *err) {
    lz_model *m = job->model;
    int64_t h = job->layout.h, w = job->layout.w, tiles = 1;
    lz_error local = {.status = LZ_OK};
    lz_plan_info info;
    if (!job->decoder) job->decoder = lz_decoder_take(m, h, w, &local);
    if (job->decoder) lz_decoder_plan(job->decoder, &info, &local);
    int64_t side = local.status ? 0 : lz_choose_tile(m, h, w, &info);
    plan->tile = side * m->family->token_pixels(m->state);
    if (side) { /* work in proportion to the area; tiles overlap by a quarter */
        tiles = 1 + h * w * 16 / (9 * side * side);
        h = h < side ? h : side;
        w = w < side ? w : side;
        lz_array *pixels = lz_describe_pixels(m, lz_contiguous(blank(m, h, w)), h, w);
        lz_plan((lz_array *[]){pixels, lz_describe_bytes(pixels)}, 2, &info, &local);
    }
    int pictures = job->options.layers ? job->options.layers : 1;
    if (!local.status) add_stage(plan, "decode", &info, (int)tiles * pictures);
    if (local.status && err) *err = local;
    return local.status;
}

static lz_status plan_stages(lz_job *job, lz_picture_plan *plan, lz_error *err) {
    lz_slots slots = {.x = NULL}; /* placeholders */
    plan->steps = job->steps - job->first_step;
    lz_status status = lz_job_prepare(job, err);
    if (!status) lz_job_count(job, &plan->passes, &plan->forecast, &plan->evaluations);
    if (!status) status = plan_text(job, &slots, plan, err);
    if (!status) lz_ahead_text(job);
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
    if (plan) memset(plan, 0, sizeof *plan);
    if (!job || !plan) return lz_fail(err, LZ_BAD_ARGUMENT, "job_plan: needs a job and a place for the plan");
    lz_status status = lz_job_check_loras(job, err);
    if (!status) status = lz_check_mappings(job->model->ctx, err);
    if (!status && !job->has_plan) {
        lz_scope *scope = lz_scope_begin(job->model->ctx, "plan");
        memset(&job->plan, 0, sizeof job->plan);
        status = plan_stages(job, &job->plan, err);
        job->has_plan = !status;
        lz_scope_end(scope);
    }
    *plan = job->plan;
    return status;
}
