/* plan.c: what a picture will take: the same descriptions as in generate.c, planned and not run. */
#include <string.h>

#include "pipeline/generate.h"

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

/* What the text encoder sees of the images: *seen gets the shape of it, or NULL; one after the other, as in generate.c. */
static lz_status plan_looks(lz_run_state *r, const void *text, lz_stage_plan *all, lz_array **seen, lz_error *err) {
    const lz_family *f = r->model->family;
    int n, rows = 0;
    int64_t width = 0;
    const lz_image *images = lz_references(r, &n);
    *seen = NULL;
    for (int i = 0; i < n && f->look; i++) {
        lz_image view = {0};
        lz_plan_info info = {0};
        lz_status status = f->view(r->model->state, &images[i], &view, err);
        if (!status) {
            lz_array *pixels = lz_from(r->model->ctx, LZ_DIMS(view.height, view.width, 3), LZ_U8, view.pixels);
            lz_array *each = f->look(text, pixels);
            status = lz_plan(&each, 1, &info, err);
            rows += (int)lz_shape(each).at[0];
            width = lz_shape(each).at[1];
        }
        lz_image_free(r->model->ctx, &view);
        if (status) return status;
        if (info.arena_bytes + info.output_bytes > all->bytes) all->bytes = info.arena_bytes + info.output_bytes;
        if (info.device_bytes > all->device_bytes) all->device_bytes = info.device_bytes;
        all->flops += info.flops;
    }
    if (rows) *seen = lz_contiguous(lz_full(r->model->ctx, LZ_DIMS(rows, width), LZ_F32, 0));
    return LZ_OK;
}

static lz_status plan_text(lz_run_state *r, lz_picture_plan *plan, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    const lz_family *f = r->model->family;
    lz_prompt prompts[2];
    lz_stage_plan looks = {.bytes = 0};
    lz_array *seen = NULL;
    int images;
    lz_references(r, &images);
    lz_read_tokens(r, prompts, &local);
    void *text = local.status ? NULL : f->open_text(r->model->state, images, &local);
    if (text) plan_looks(r, text, &looks, &seen, &local);
    for (int i = 0; i < 2 && text && !local.status; i++) {
        if (!prompts[i].n) continue;
        if (seen) prompts[i].in[prompts[i].n++] = seen;
        r->slots.features[i] = f->features(text, prompts[i]);
    }
    if (!local.status) add_stage(plan, "text", r->slots.features, 1, r->slots.features[1] ? 2 : 1, &local);
    if (!local.status) { /* the images count as part of the text */
        lz_stage_plan *s = &plan->stages[plan->n_stages - 1];
        if (looks.bytes > s->bytes) s->bytes = looks.bytes;
        if (looks.device_bytes > s->device_bytes) s->device_bytes = looks.device_bytes;
        if (looks.bytes > plan->peak_bytes) plan->peak_bytes = looks.bytes;
        s->flops += looks.flops;
        plan->flops += looks.flops;
    }
    for (int i = 0; i < 2 && !local.status; i++) /* from here on they are just arrays of that shape */
        if (r->slots.features[i])
            r->slots.features[i] = lz_full(r->model->ctx, lz_shape(r->slots.features[i]), LZ_F32, 0);
    if (text) f->close_text(text);
    if (local.status && err) *err = local;
    return local.status;
}

static lz_array *blank(lz_run_state *r, int64_t h, int64_t w) {
    return lz_full(r->model->ctx, LZ_DIMS(h * w, lz_token_channels(r->model)), LZ_F32, 0);
}

/* Images are encoded one after the other: the largest counts for memory, all for work. */
static lz_status plan_images(lz_run_state *r, lz_picture_plan *plan, lz_error *err) {
    int64_t unit = r->model->family->token_pixels(r->model->state), rows = 0;
    lz_stage_plan all = {.stage = "encode"};
    for (int i = 0; i < r->options->n_images; i++) {
        bool start = i == 0 && r->options->strength > 0;
        lz_reference_size size = lz_size_reference(r->model, &r->options->images[i]);
        int64_t h = start ? r->height : size.height, w = start ? r->width : size.width;
        lz_array *picture = lz_contiguous(lz_full(r->model->ctx, LZ_DIMS(h, w, 3), LZ_F32, 0));
        lz_array *tokens = r->model->family->encode(r->model->state, picture);
        lz_plan_info info;
        lz_status status = lz_plan(&tokens, 1, &info, err);
        if (status) return status;
        if (info.arena_bytes + info.output_bytes > all.bytes) all.bytes = info.arena_bytes + info.output_bytes;
        if (info.device_bytes > all.device_bytes) all.device_bytes = info.device_bytes;
        if (info.streamed_bytes > all.streamed_bytes) all.streamed_bytes = info.streamed_bytes;
        if (info.input_bytes > all.weight_bytes) all.weight_bytes = info.input_bytes;
        all.flops += info.flops;
        if (start) continue;
        int64_t *place = r->layout.reference_sizes[r->layout.n_references++];
        place[0] = h / unit;
        place[1] = w / unit;
        rows += place[0] * place[1];
    }
    if (rows) r->slots.references = blank(r, rows, 1);
    if (r->options->n_images) plan->stages[plan->n_stages++] = all;
    if (all.bytes > plan->peak_bytes) plan->peak_bytes = all.bytes;
    plan->flops += all.flops;
    return LZ_OK;
}

/* Plans the slots of a list, which are described in *made. For what comes later they are inputs without a value. */
static lz_status plan_slots(lz_run_state *r, lz_picture_plan *plan, lz_slot_list list, const lz_slots *made, int times,
                            lz_error *err) {
    lz_array *all[LZ_MAX_SLOTS];
    uint64_t filled;
    int n = lz_slots_pack(list, made, all, &filled);
    lz_status status = add_stage(plan, "denoise", all, n, times, err);
    for (int i = 0; i < n; i++) all[i] = lz_stand_in(all[i]);
    lz_slots_unpack(list, filled, all, &r->slots);
    return status;
}

/* What comes before the loop, then a step of it. */
static lz_status plan_denoise(lz_run_state *r, lz_picture_plan *plan, lz_error *err) {
    lz_slots schedule = {NULL}, begun = {NULL}, next = {NULL};
    lz_describe_schedule(r, &schedule);
    lz_status status = plan_slots(r, plan, lz_schedule_slots, &schedule, 1, err);
    if (status) return status;
    r->slots.noise = lz_stand_in(lz_full(r->model->ctx, lz_latent_dims(r), LZ_F32, 0));
    if (r->options->strength > 0) r->slots.start = lz_stand_in(blank(r, r->layout.h, r->layout.w));
    lz_count_text(r);
    r->model->family->tables(r->model->state, &r->layout, &r->slots);
    lz_traced begin = lz_trace_begin(r), step = lz_trace_step(r);
    lz_fill_begin(r);
    begin.kind->describe(&begin, &r->slots, &begun);
    status = plan_slots(r, plan, begin.kind->out, &begun, 1, err);
    if (status) return status;
    step.kind->describe(&step, &r->slots, &next);
    status = plan_slots(r, plan, step.kind->out, &next, r->steps - r->first_step, err);
    plan->streamed_bytes = plan->stages[plan->n_stages - 1].streamed_bytes;
    return status;
}

static lz_status plan_stages(lz_run_state *r, lz_picture_plan *plan, lz_error *err) {
    lz_status status = lz_settle(r, err);
    plan->steps = r->steps - r->first_step;
    if (!status) status = plan_text(r, plan, err);
    if (!status) status = plan_images(r, plan, err);
    if (!status) status = plan_denoise(r, plan, err);
    if (status) return status;
    int64_t h = r->layout.h, w = r->layout.w, side = lz_choose_tile(r->model, h, w), tiles = 1;
    plan->tile = side * r->model->family->token_pixels(r->model->state);
    if (side) { /* work by area; a quarter of each tile lies under the next */
        tiles = 1 + h * w * 16 / (9 * side * side);
        h = h < side ? h : side;
        w = w < side ? w : side;
    }
    lz_array *pixels = lz_describe_pixels(r->model, lz_contiguous(blank(r, h, w)), h, w);
    return add_stage(plan, "decode", (lz_array *[]){pixels, lz_describe_bytes(pixels)}, 2, (int)tiles, err);
}

lz_status lz_plan_picture(lz_model *model, const lz_picture_options *options, lz_picture_plan *plan, lz_error *err) {
    if (plan) memset(plan, 0, sizeof *plan);
    if (!model || !options || !plan)
        return lz_fail(err, LZ_BAD_ARGUMENT, "plan: needs a model, options and a place for the plan");
    lz_picture_options own;
    lz_status status = lz_read_options(&own, sizeof own, options, "LZ_PICTURE_OPTIONS", err);
    if (status) return status;
    lz_run_state r = lz_new_run(model, &own);
    r.sigmas = lz_host_alloc(model->ctx, (LZ_MAX_STEPS + 1) * sizeof *r.sigmas);
    if (!r.sigmas) return lz_out_of_memory(err, (LZ_MAX_STEPS + 1) * sizeof *r.sigmas);
    lz_scope *scope = lz_scope_begin(model->ctx, "plan");
    status = plan_stages(&r, plan, err);
    for (int i = 0; i < plan->n_stages; i++) {
        const lz_stage_plan *s = &plan->stages[i];
        if (s->weight_bytes > plan->weight_bytes) plan->weight_bytes = s->weight_bytes;
        if (s->device_bytes > plan->device_bytes) plan->device_bytes = s->device_bytes;
    }
    lz_scope_end(scope);
    lz_host_free(model->ctx, r.sigmas);
    return status;
}
