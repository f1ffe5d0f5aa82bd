/* generate.c: from a prompt to a picture, in numbered steps that are the same for every family of models.
 *
 *   1 settle the options     2 read the prompt     3 encode the images     4 noise
 *   5 what depends on time, size or prompt alone   6 the loop              7 decode, bytes (decode.c) */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "pipeline/generate.h"

/* ---- watching ---------------------------------------------------------------------------------------------------- */

static bool watch_program(void *user, double done) {
    lz_run_state *r = user;
    r->progress.done = done;
    return !r->options->watch || r->options->watch(r->options->user, &r->progress);
}

static lz_watch watch_stage(lz_run_state *r, const char *stage, int step) {
    r->progress = (lz_progress){.stage = stage, .step = step, .steps = r->steps - r->first_step};
    return (lz_watch){watch_program, r};
}

/* Nobody is asked when nobody watches: a device then goes on without waiting. */
static const lz_watch *asked(const lz_run_state *r, const lz_watch *watch) { return r->options->watch ? watch : NULL; }

lz_run_state lz_new_run(lz_model *model, const lz_picture_options *options) {
    return (lz_run_state){.model = model, .options = options, .sampler = &lz_samplers[LZ_SAMPLER_EULER]};
}

/* ---- 1 settle the options ---------------------------------------------------------------------------------------- */

static int64_t fit(int64_t size, int64_t unit) { return size / unit * unit; }

static lz_status check_images(const lz_picture_options *o, int64_t unit, lz_error *err) {
    if (o->n_images > 0 && !o->images)
        return lz_fail(err, LZ_BAD_ARGUMENT, "%d images were named, but none given", o->n_images);
    if (o->n_images < 0 || o->n_images > LZ_MAX_IMAGES)
        return lz_fail(err, LZ_BAD_ARGUMENT, "%d images were given, and at most %d are taken", o->n_images,
                       LZ_MAX_IMAGES);
    for (int i = 0; i < o->n_images; i++) {
        char what[32];
        snprintf(what, sizeof what, "image %d", i + 1);
        lz_status status = lz_image_check(&o->images[i], what, unit, err);
        if (status) return status;
    }
    return LZ_OK;
}

/* [1, c, h, w], with sides that can be counted in pixels. */
static lz_status check_noise(const lz_run_state *r, int64_t unit, lz_error *err) {
    lz_status status = lz_check(r->options->noise, err);
    if (status) return status;
    if (lz_context_of(r->options->noise) != r->model->ctx)
        return lz_fail(err, LZ_BAD_ARGUMENT, "the noise belongs to another context than the model");
    lz_dims d = lz_shape(r->options->noise);
    int64_t c = r->model->family->channels(r->model->state), patch = r->model->family->patch;
    if (d.n == 4 && d.at[0] == 1 && d.at[1] == c && d.at[2] > 0 && d.at[3] > 0 && d.at[2] <= LZ_MAX_SIZE &&
        d.at[3] <= LZ_MAX_SIZE && d.at[2] % patch == 0 && d.at[3] % patch == 0)
        return LZ_OK;
    return lz_fail(err, LZ_BAD_SHAPE, "the noise is %s, and this model needs [1, %lld, height / %lld, width / %lld]",
                   LZ_SHOW(d), (long long)c, (long long)(unit / patch), (long long)(unit / patch));
}

const lz_image *lz_references(const lz_run_state *r, int *n) {
    int start = r->options->strength > 0;
    *n = r->options->n_images - start;
    return r->options->images + start;
}

static lz_status count_references(const lz_run_state *r, lz_error *err) {
    lz_model_facts facts = lz_model_about(r->model);
    int n, least = facts.least_images, most = facts.most_images;
    lz_references(r, &n);
    if (n > most)
        return lz_fail(err, LZ_BAD_ARGUMENT,
                       most ? "this model looks at no more than %d image%s, and %d were given"
                            : "this model looks at no images, except at one to start from "
                              "(with a strength)",
                       most, most > 1 ? "s" : "", n);
    if (n < least) return lz_fail(err, LZ_BAD_ARGUMENT, "this model changes images: give it one to look at");
    return LZ_OK;
}

lz_dims lz_latent_dims(const lz_run_state *r) {
    const lz_family *f = r->model->family;
    return LZ_DIMS(1, f->channels(r->model->state), f->patch * r->layout.h, f->patch * r->layout.w);
}

/* As asked, else that of the noise, else that of the images, else the model's own. */
static lz_status settle_size(lz_run_state *r, lz_error *err) {
    const lz_picture_options *o = r->options;
    int64_t unit = r->model->family->token_pixels(r->model->state), width = r->model->width, height = r->model->height;
    lz_status status = check_images(o, unit, err);
    if (!status && o->noise) status = check_noise(r, unit, err);
    if (status) return status;
    if (o->n_images > 0) {
        lz_reference_size first = lz_middle(&o->images[0], unit);
        width = first.width;
        height = first.height;
        if (r->model->family->picture_size)
            r->model->family->picture_size(r->model->state, o->images, o->n_images, &width, &height);
    }
    int64_t patch = r->model->family->patch;
    if (o->noise) {
        width = lz_shape(o->noise).at[3] / patch * unit;
        height = lz_shape(o->noise).at[2] / patch * unit;
    }
    if (o->width) width = o->width;
    if (o->height) height = o->height;
    if (width < unit || height < unit || width > LZ_MAX_SIZE || height > LZ_MAX_SIZE)
        return lz_fail(err, LZ_BAD_ARGUMENT,
                       "a picture of %lld x %lld cannot be made: each side must be from %lld to %d", (long long)width,
                       (long long)height, (long long)unit, LZ_MAX_SIZE);
    r->width = fit(width, unit);
    r->height = fit(height, unit);
    r->layout = (lz_layout){.h = r->height / unit, .w = r->width / unit};
    lz_dims want = lz_latent_dims(r);
    if (o->noise && !lz_dims_equal(lz_shape(o->noise), want))
        return lz_fail(err, LZ_BAD_SHAPE, "the noise is %s, and this picture needs %s", LZ_SHOW(lz_shape(o->noise)),
                       LZ_SHOW(want));
    return LZ_OK;
}

lz_status lz_settle(lz_run_state *r, lz_error *err) {
    const lz_picture_options *o = r->options;
    const lz_family *f = r->model->family;
    lz_status status = settle_size(r, err);
    if (status) return status;
    if (o->steps < 0 || o->steps > LZ_MAX_STEPS)
        return lz_fail(err, LZ_BAD_ARGUMENT, "%d steps cannot be made: take 1 to %d", o->steps, LZ_MAX_STEPS);
    if (!(o->guidance >= 0) || o->guidance > 1000)
        return lz_fail(err, LZ_BAD_ARGUMENT, "a guidance of %g cannot be used: take 1 to 1000", o->guidance);
    if (!(o->strength >= 0 && o->strength <= 1))
        return lz_fail(err, LZ_BAD_ARGUMENT, "a strength of %g cannot be used: take more than 0, to 1", o->strength);
    if (o->strength > 0 && !o->n_images)
        return lz_fail(err, LZ_BAD_ARGUMENT, "a strength was given, but no image to start from");
    if (o->preview < LZ_PREVIEW_NONE || o->preview > LZ_PREVIEW_FULL || !(o->preview_pause >= 0))
        return lz_fail(err, LZ_BAD_ARGUMENT, "a preview is none, small or full, and its pause at least 0 seconds");
    r->steps = o->steps ? o->steps : r->model->steps;
    status = count_references(r, err);
    if (status) return status;
    lz_model_facts facts = lz_model_about(r->model);
    r->guidance = o->guidance > 0 && !facts.guidance_built_in ? o->guidance : facts.guidance;
    r->first_step = o->strength > 0 ? (int)(r->steps - r->steps * o->strength) : 0; /* as get_timesteps of diffusers */
    if (r->first_step == r->steps)
        return lz_fail(err, LZ_BAD_ARGUMENT, "a strength of %g leaves nothing to do: take more", o->strength);
    if (r->sigmas &&
        !lz_schedule_sigmas(&r->model->schedule, f->mu(&r->model->schedule, r->layout.h * r->layout.w, r->steps),
                            r->steps, r->sigmas))
        return lz_fail(err, LZ_BAD_FILE,
                       "%s: the numbers in scheduler/scheduler_config.json make no schedule for %lld x %lld",
                       LZ_SHOW_TEXT(r->model->folder), (long long)r->width, (long long)r->height);
    return LZ_OK;
}

lz_status lz_fill_options(lz_model *model, lz_picture_options *options, lz_error *err) {
    if (!model || !options) return lz_fail(err, LZ_BAD_ARGUMENT, "fill_options: needs a model and options");
    lz_picture_options own;
    lz_status status = lz_read_options(&own, sizeof own, options, "LZ_PICTURE_OPTIONS", err);
    if (status) return status;
    lz_run_state r = lz_new_run(model, &own);
    status = lz_settle(&r, err);
    if (status) return status;
    own.size = options->size;
    own.width = r.width;
    own.height = r.height;
    own.steps = r.steps;
    own.guidance = r.guidance;
    memcpy(options, &own, own.size < sizeof own ? own.size : sizeof own);
    return LZ_OK;
}

/* ---- 2 read the prompt ------------------------------------------------------------------------------------------- */

/* Of the prompt and, with guidance, of the negative one. */
lz_status lz_read_tokens(lz_run_state *r, lz_prompt prompts[2], lz_error *err) {
    const lz_family *f = r->model->family;
    const char *texts[2] = {r->options->prompt, r->options->negative ? r->options->negative : f->default_negative};
    int n_images;
    const lz_image *images = lz_references(r, &n_images);
    memset(prompts, 0, 2 * sizeof *prompts);
    for (int i = 0; i < (r->guidance > 1 ? 2 : 1); i++) {
        const char *text = texts[i] ? texts[i] : "";
        char *read_as = NULL;
        lz_status status = lz_read_as(r->model, text, &read_as, err);
        if (!status) status = f->tokens(r->model->state, read_as ? read_as : text, images, n_images, &prompts[i], err);
        lz_host_free(r->model->ctx, read_as);
        if (status) return status;
        r->prompt_cut = r->prompt_cut || prompts[i].cut;
    }
    return LZ_OK;
}

static void describe_text(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx;
    const lz_model *m = user;
    lz_prompt prompt = {.n = m->read_inputs};
    memcpy(prompt.in, in, (size_t)prompt.n * sizeof *in);
    out[0] = m->family->features(m->text, prompt);
}

/* What the text encoder sees of all images, evaluated: [p, e], or NULL */
static lz_status look_at_images(lz_run_state *r, lz_array **seen, lz_error *err) {
    lz_model *m = r->model;
    lz_array *each[LZ_MAX_IMAGES];
    int n;
    const lz_image *images = lz_references(r, &n);
    *seen = NULL;
    if (!m->family->look || !n) return LZ_OK;
    for (int i = 0; i < n; i++) {
        lz_image view = {0};
        lz_status status = m->family->view(m->state, &images[i], &view, err);
        lz_watch watch = watch_stage(r, "text", 0);
        if (!status) {
            lz_array *pixels = lz_from(m->ctx, LZ_DIMS(view.height, view.width, 3), LZ_U8, view.pixels);
            each[i] = m->family->look(m->text, pixels);
            status = lz_eval_watched(&each[i], 1, asked(r, &watch), err);
        }
        lz_image_free(m->ctx, &view);
        if (status) return status;
    }
    *seen = n > 1 ? lz_concat(each, n, 0) : each[0];
    return lz_eval(*seen, err);
}

/* The text encoder and the program that runs it: the last picture's, if it was of the same kind. */
static lz_status ready_text(lz_run_state *r, int inputs, lz_error *err) {
    lz_model *m = r->model;
    lz_error local = {.status = LZ_OK};
    int images;
    lz_references(r, &images);
    if (m->text && images && !m->text_looks) {
        lz_compiled_free(m->read);
        m->family->close_text(m->text);
        m->read = NULL;
        m->text = NULL;
    }
    if (m->read && m->read_inputs != inputs) {
        lz_compiled_free(m->read);
        m->read = NULL;
    }
    if (!m->text) {
        m->text_looks = images;
        m->text = m->family->open_text(m->state, images, &local);
    }
    m->read_inputs = inputs;
    if (!local.status && !m->read) m->read = lz_compile(m->ctx, describe_text, m, inputs, 1, 2, &local);
    if (local.status && err) *err = local;
    return local.status;
}

/* All of them were read before: whoever watches is told that the stage is over. */
static bool recall_prompts(lz_run_state *r, const lz_prompt prompts[2], lz_error *err) {
    if (err->status) return false;
    for (int i = 0; i < 2; i++) {
        r->slots.features[i] = prompts[i].n ? lz_recall(r->model, &prompts[i]) : NULL;
        if (prompts[i].n && !r->slots.features[i]) return false;
    }
    lz_watch watch = watch_stage(r, "text", 0);
    if (!watch.go_on(watch.user, 1)) lz_fail(err, LZ_CANCELLED, "stopped after the text");
    return true;
}

static lz_status read_prompts(lz_run_state *r, lz_error *err) {
    lz_model *m = r->model;
    lz_error local = {.status = LZ_OK};
    lz_prompt prompts[2];
    lz_array *seen = NULL;
    lz_read_tokens(r, prompts, &local);
    int n_images, looks = m->family->look && lz_references(r, &n_images) && n_images;
    bool known = !looks && recall_prompts(r, prompts, &local);
    if (!local.status && !known) ready_text(r, prompts[0].n + looks, &local);
    if (!local.status && !known) look_at_images(r, &seen, &local);
    for (int i = 0; i < 2 && !local.status && !known; i++) { /* one after the other: half the memory */
        lz_watch watch = watch_stage(r, "text", i);
        if (!prompts[i].n) continue;
        if (seen) prompts[i].in[prompts[i].n++] = seen;
        lz_run_watched(m->read, prompts[i].in, &r->slots.features[i], asked(r, &watch), &local);
        if (!local.status && !looks) lz_remember(m, &prompts[i], r->slots.features[i]);
    }
    if (!m->keeps) {
        lz_compiled_free(m->read);
        if (m->text) m->family->close_text(m->text);
        m->read = NULL;
        m->text = NULL;
    }
    if (local.status && err) *err = local;
    return local.status;
}

/* ---- 3 encode the images ----------------------------------------------------------------------------------------- */

enum { REFERENCE_AREA = 1024 * 1024 };

lz_reference_size lz_middle(const lz_image *image, int64_t unit) {
    lz_reference_size s = {.small_width = image->width, .small_height = image->height};
    if (image->width * image->height > REFERENCE_AREA) {
        double scale = sqrt((double)REFERENCE_AREA / (double)(image->width * image->height));
        s.small_width = (int64_t)((double)image->width * scale);
        s.small_height = (int64_t)((double)image->height * scale);
    }
    s.width = fit(s.small_width, unit);
    s.height = fit(s.small_height, unit);
    return s;
}

lz_reference_size lz_size_reference(const lz_model *m, const lz_image *image) {
    return m->family->reference_size ? m->family->reference_size(m->state, image)
                                     : lz_middle(image, m->family->token_pixels(m->state));
}

lz_status lz_crop_image(lz_context *ctx, const lz_image *image, lz_reference_size s, lz_image *to, lz_error *err) {
    lz_image small = *image;
    if (!s.width || !s.height)
        return lz_fail(err, LZ_BAD_ARGUMENT, "an image of %lld x %lld is too narrow to be looked at",
                       (long long)image->width, (long long)image->height);
    lz_status status = LZ_OK;
    if (s.small_width != image->width || s.small_height != image->height)
        status = lz_image_resize(ctx, image, s.small_width, s.small_height, &small, err);
    if (status) return status;
    *to = (lz_image){
        .width = s.width, .height = s.height, .pixels = lz_host_alloc(ctx, (size_t)(3 * s.width * s.height))};
    if (!to->pixels) status = lz_out_of_memory(err, 3 * s.width * s.height);
    int64_t left = (small.width - s.width) / 2, top = (small.height - s.height) / 2;
    for (int64_t y = 0; y < s.height && to->pixels; y++)
        memcpy(to->pixels + 3 * y * s.width, small.pixels + 3 * ((top + y) * small.width + left),
               (size_t)(3 * s.width));
    if (small.pixels != image->pixels) lz_image_free(ctx, &small);
    return status;
}

lz_array *lz_picture_array(lz_context *ctx, const lz_image *image) { /* [h, w, 3] in -1..1 */
    lz_array *bytes = lz_from(ctx, LZ_DIMS(image->height, image->width, 3), LZ_U8, image->pixels);
    return lz_sub(lz_mul(lz_div(lz_cast(bytes, LZ_F32), 255.0), 2.0), 1.0);
}

/* Tokens of one picture, evaluated: [h w, c] */
static lz_status encode_picture(lz_run_state *r, const lz_image *image, lz_array **tokens, lz_error *err) {
    lz_watch watch = watch_stage(r, "encode", 0);
    *tokens = r->model->family->encode(r->model->state, lz_picture_array(r->model->ctx, image));
    return lz_eval_watched(tokens, 1, asked(r, &watch), err);
}

static lz_status encode_images(lz_run_state *r, lz_error *err) {
    int64_t unit = r->model->family->token_pixels(r->model->state);
    lz_array *tokens[LZ_MAX_IMAGES];
    bool start = r->options->strength > 0;
    for (int i = 0; i < r->options->n_images; i++) {
        lz_image image = {0};
        bool is_start = start && i == 0;
        lz_status status = is_start ? lz_image_resize(r->model->ctx, &r->options->images[i], r->width, r->height,
                                                      &image, err)
                                    : lz_crop_image(r->model->ctx, &r->options->images[i],
                                                    lz_size_reference(r->model, &r->options->images[i]), &image, err);
        if (!status)
            status = encode_picture(r, &image, is_start ? &r->slots.start : &tokens[r->layout.n_references], err);
        if (!status && !is_start) {
            int64_t *size = r->layout.reference_sizes[r->layout.n_references++];
            size[0] = image.height / unit;
            size[1] = image.width / unit;
        }
        lz_image_free(r->model->ctx, &image);
        if (status) return status;
    }
    if (r->layout.n_references) r->slots.references = lz_concat(tokens, (int)r->layout.n_references, 0);
    return r->slots.references ? lz_eval(r->slots.references, err) : LZ_OK;
}

/* ---- 4 noise ----------------------------------------------------------------------------------------------------- */

/* [1, c, p h, p w] <-> [h w, c p p] */
lz_array *lz_to_tokens(lz_array *x, int64_t patch) {
    lz_dims d = lz_shape(x);
    int64_t h = d.at[2] / patch, w = d.at[3] / patch;
    x = lz_permute(lz_reshape(x, LZ_DIMS(d.at[1], h, patch, w, patch)), LZ_DIMS(1, 3, 0, 2, 4));
    return lz_reshape(x, LZ_DIMS(h * w, d.at[1] * patch * patch));
}
lz_array *lz_to_planes(lz_array *tokens, int64_t h, int64_t w, int64_t patch) {
    int64_t c = lz_shape(tokens).at[1] / (patch * patch);
    tokens = lz_permute(lz_reshape(tokens, LZ_DIMS(h, w, c, patch, patch)), LZ_DIMS(2, 0, 3, 1, 4));
    return lz_reshape(tokens, LZ_DIMS(1, c, h * patch, w * patch));
}

static lz_status make_noise(lz_run_state *r, lz_error *err) {
    r->slots.noise = r->options->noise ? lz_cast(r->options->noise, LZ_F32)
                                       : lz_randn(r->model->ctx, lz_latent_dims(r), r->options->seed);
    return lz_eval(r->slots.noise, err);
}

/* ---- 5 what depends on time, size or prompt alone ---------------------------------------------------------------- */

static const lz_slot schedule_list[] = {LZ_SLOT(sigma_drops), LZ_SLOT(clean_row), LZ_SLOT(rows)};
static const lz_slot size_list[] = {LZ_SLOT(tables)};
const lz_slot_list lz_schedule_slots = LZ_SLOT_LIST(schedule_list), lz_size_slots = LZ_SLOT_LIST(size_list);

void lz_describe_schedule(const lz_run_state *r, lz_slots *to) {
    double scale = r->model->schedule.time_scale;
    lz_array *levels = lz_from(r->model->ctx, LZ_DIMS(r->steps + 1), LZ_F32, r->sigmas);
    lz_array *sigmas = lz_slice(levels, 0, 0, r->steps, 1);
    r->model->family->rows(r->model->state, scale == 1 ? sigmas : lz_mul(sigmas, scale), to);
    to->sigma_drops = lz_sub(lz_slice(levels, 0, 1, r->steps + 1, 1), sigmas);
}

void lz_count_text(lz_run_state *r) {
    for (int i = 0; i < 2; i++)
        r->layout.text_tokens[i] = r->slots.features[i] ? lz_shape(r->slots.features[i]).at[0] : 0;
}

/* Evaluates the slots of a list and retains them for the model. */
static lz_status keep_slots(lz_slot_list list, const lz_slots *from, lz_slots *kept, lz_error *err) {
    lz_array *all[LZ_MAX_SLOTS];
    uint64_t filled;
    int n = lz_slots_pack(list, from, all, &filled);
    lz_status status = lz_eval_all(all, n, err);
    if (status) return status;
    lz_slots_unpack(list, filled, all, kept);
    lz_slots_retain(list, kept);
    return LZ_OK;
}

/* The arrays of the schedule are the last picture's, if its schedule was the same. */
static lz_status ready_schedule(lz_run_state *r, lz_error *err) {
    lz_model *m = r->model;
    size_t bytes = (size_t)(r->steps + 1) * sizeof *r->sigmas;
    if (m->n_sigmas != r->steps + 1 || memcmp(m->sigmas, r->sigmas, bytes) != 0) {
        lz_slots made = {NULL};
        lz_model_forget_schedule(m);
        lz_describe_schedule(r, &made);
        lz_status status = keep_slots(lz_schedule_slots, &made, &m->schedule_slots, err);
        if (status) return status;
        if (!(m->sigmas = lz_host_alloc(m->ctx, bytes))) return lz_out_of_memory(err, (int64_t)bytes);
        memcpy(m->sigmas, r->sigmas, bytes);
        m->n_sigmas = r->steps + 1;
    }
    lz_slots_copy(lz_schedule_slots, &m->schedule_slots, &r->slots);
    return LZ_OK;
}

/* Tables and programs are the last picture's, if its sizes were the same. */
static lz_status ready_size(lz_run_state *r, lz_error *err) {
    lz_model *m = r->model;
    lz_count_text(r);
    if (!m->size_slots.tables[0] || memcmp(&r->layout, &m->layout, sizeof r->layout) != 0) {
        lz_slots made = {NULL};
        lz_model_forget_size(m);
        m->layout = r->layout;
        m->begin = lz_trace_begin(r);
        m->step = lz_trace_step(r);
        m->family->tables(m->state, &r->layout, &made);
        lz_status status = keep_slots(lz_size_slots, &made, &m->size_slots, err);
        if (status) return status;
    }
    lz_slots_copy(lz_size_slots, &m->size_slots, &r->slots);
    return LZ_OK;
}

static const lz_slot begin_in[] = {LZ_SLOT(noise),      LZ_SLOT(guidance), LZ_SLOT(step_index),  LZ_SLOT(features),
                                   LZ_SLOT(references), LZ_SLOT(start),    LZ_SLOT(start_share), LZ_SLOT(noise_share)};
static const lz_slot begin_out[] = {LZ_SLOT(x),       LZ_SLOT(step_index), LZ_SLOT(guidance),
                                    LZ_SLOT(context), LZ_SLOT(references), LZ_SLOT(states)};

/* Guidance, the index and references pass through: the program copies them, so their addresses are the same for every
 * picture and the recorded step can be replayed. */
static void describe_begin(const lz_traced *t, const lz_slots *in, lz_slots *out) {
    const lz_model *m = t->model;
    lz_array *x = lz_to_tokens(in->noise, m->family->patch);
    for (int i = 0; i < 2; i++)
        if (in->features[i]) out->context[i] = m->family->context(m->state, in->features[i]);
    if (in->start) x = lz_add(lz_mul(in->start, in->start_share), lz_mul(x, in->noise_share));
    out->x = lz_contiguous(x);
    out->step_index = in->step_index;
    out->guidance = in->guidance;
    out->references = in->references;
    if (t->sampler->n_states) t->sampler->begin(out->x, out->states);
}

lz_traced lz_trace_begin(const lz_run_state *r) {
    static const lz_traced_kind kind = {
        .name = "begin",
        .in = LZ_SLOT_LIST(begin_in),
        .out = LZ_SLOT_LIST(begin_out),
        .describe = describe_begin,
        .cached = 1,
    };
    return (lz_traced){.kind = &kind, .model = r->model, .sampler = r->sampler, .layout = r->layout};
}

static lz_array *number_array(lz_context *ctx, double value) {
    float number = (float)value;
    return lz_from(ctx, LZ_NONE, LZ_F32, &number);
}

void lz_fill_begin(lz_run_state *r) {
    lz_context *ctx = r->model->ctx;
    lz_slots *s = &r->slots;
    int64_t first = r->first_step;
    s->guidance = number_array(ctx, r->guidance);
    s->step_index = lz_from(ctx, LZ_DIMS(1), LZ_I64, &first);
    if (s->start) { /* a picture covered by as much noise as the schedule has there */
        double noise = (double)r->sigmas[first];
        s->start_share = number_array(ctx, 1 - noise);
        s->noise_share = number_array(ctx, noise);
    }
}

static lz_status begin(lz_run_state *r, lz_error *err) {
    lz_model *m = r->model;
    const lz_slots *s = &r->slots;
    lz_status status = ready_schedule(r, err);
    if (!status) status = ready_size(r, err);
    if (status) return status;
    lz_fill_begin(r);
    lz_slots made = {.x = s->noise,
                     .step_index = s->step_index,
                     .guidance = s->guidance,
                     .context = {s->features[0], s->features[1]},
                     .references = s->references};
    for (int i = 0; i < r->sampler->n_states; i++) made.states[i] = s->noise;
    status = lz_traced_run(&m->begin, &r->slots, &made, NULL, err);
    lz_slots_copy(m->begin.kind->out, &made, &r->slots);
    if (!m->keeps) lz_traced_free(&m->begin);
    return status;
}

/* ---- 6 the loop -------------------------------------------------------------------------------------------------- */

static const lz_slot step_in[] = {LZ_SLOT(x),         LZ_SLOT(step_index), LZ_SLOT(states),  LZ_SLOT(sigma_drops),
                                  LZ_SLOT(guidance),  LZ_SLOT(tables),     LZ_SLOT(context), LZ_SLOT(references),
                                  LZ_SLOT(clean_row), LZ_SLOT(rows)};
static const lz_slot step_out[] = {LZ_SLOT(x), LZ_SLOT(step_index), LZ_SLOT(states)};

typedef struct step_inputs {
    const lz_traced *traced;
    const lz_slots *in;
} step_inputs;

/* The model's velocity for the prompt, led away from that for the negative prompt. */
static lz_array *guided_velocity(const lz_sampler_step *s, lz_array *x, lz_array *step_index) {
    const step_inputs *step = s->user;
    const lz_slots *in = step->in;
    const lz_layout *layout = &step->traced->layout;
    const lz_model *m = step->traced->model;
    lz_array *rows[LZ_MAX_ROWS] = {NULL};
    for (int i = 0; i < LZ_MAX_ROWS && in->rows[i]; i++) rows[i] = lz_take(in->rows[i], step_index, 0);
    lz_array *v = m->family->velocity(m->state, layout, in, 0, x, rows);
    if (!in->context[1]) return v;
    lz_array *away = m->family->velocity(m->state, layout, in, 1, x, rows);
    return m->family->guide ? m->family->guide(v, away, in->guidance)
                            : lz_add(away, lz_mul(lz_sub(v, away), in->guidance));
}

static void describe_step(const lz_traced *t, const lz_slots *in, lz_slots *out) {
    const step_inputs inputs = {t, in};
    const lz_sampler_step step = {.x = in->x,
                                  .step_index = in->step_index,
                                  .sigma_drops = in->sigma_drops,
                                  .states = in->states,
                                  .velocity = guided_velocity,
                                  .user = &inputs};
    out->x = t->sampler->step(&step, out->states);
    out->step_index = lz_add(in->step_index, 1.0);
}

lz_traced lz_trace_step(const lz_run_state *r) {
    static const lz_traced_kind kind = {
        .name = "step",
        .in = LZ_SLOT_LIST(step_in),
        .out = LZ_SLOT_LIST(step_out),
        .describe = describe_step,
        .cached = 4, /* numbers of steps */
    };
    return (lz_traced){.kind = &kind, .model = r->model, .sampler = r->sampler, .layout = r->layout};
}

/* A step makes the slots again that it was handed. Those of the step before are released, so that two sets of outputs
 * serve any number of steps. */
static lz_status take_step(lz_run_state *r, int step, const lz_watch *watch, lz_error *err) {
    lz_context *ctx = r->model->ctx;
    lz_traced *program = &r->model->step;
    lz_slots last = r->slots, next = r->slots;
    lz_scope *scope = lz_scope_begin(ctx, "step");
    int64_t streamed = lz_memory_info(ctx).streamed;
    lz_status status = lz_traced_run(program, &r->slots, &next, watch, err);
    r->picture->streamed_bytes = lz_memory_info(ctx).streamed - streamed;
    lz_slots_retain(program->kind->out, &next);
    lz_slots_copy(program->kind->out, &next, &r->slots);
    if (!status) status = lz_show_step(r, step, last.x, err);
    lz_slots_release(program->kind->out, &last);
    lz_scope_end(scope);
    return status;
}

static lz_status denoise(lz_run_state *r, lz_error *err) {
    lz_model *m = r->model;
    lz_error local = {.status = LZ_OK};
    lz_slot_list handed = m->step.kind->out;
    lz_slots_retain(handed, &r->slots);
    for (int i = r->first_step; i < r->steps && !local.status; i++) {
        double begun = lz_now();
        lz_watch watch = watch_stage(r, "denoise", i - r->first_step);
        take_step(r, i, asked(r, &watch), &local);
        if (i - r->first_step < (int)(sizeof r->picture->step_seconds / sizeof r->picture->step_seconds[0]))
            r->picture->step_seconds[i - r->first_step] = lz_now() - begun;
    }
    lz_slots last = r->slots;
    lz_adopt(r->slots.x); /* from here on this scope holds it */
    lz_slots_release(handed, &last);
    if (!m->keeps) {
        lz_model_forget_size(m);
        lz_model_forget_schedule(m);
    }
    if (local.status && err) *err = local;
    return local.status;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* What a picture tells about itself. A device works on it while the bytes are waited for. */
static lz_status keep_arrays(lz_run_state *r, lz_array *pixels, lz_error *err) {
    lz_picture *p = r->picture;
    lz_array *text = r->slots.features[0];
    lz_dims t = lz_shape(text);
    p->text = lz_retain(lz_cast(lz_reshape(text, LZ_DIMS(1, t.at[0], t.at[1])), LZ_F32));
    p->noise = lz_retain(r->slots.noise);
    p->latents = lz_retain(lz_contiguous(lz_to_planes(r->slots.x, r->layout.h, r->layout.w, r->model->family->patch)));
    p->pixels = lz_retain(lz_permute(lz_reshape(pixels, LZ_DIMS(1, r->height, r->width, 3)), LZ_DIMS(0, 3, 1, 2)));
    return lz_eval_all((lz_array *[]){p->text, p->latents, p->pixels}, 3, err);
}

static lz_status run_stages(lz_run_state *r, lz_error *err) {
    lz_picture *p = r->picture;
    lz_status status = lz_settle(r, err);
    double begun = lz_now();
    if (!status) status = read_prompts(r, err);
    p->text_seconds = lz_now() - begun;

    begun = lz_now();
    if (!status) status = encode_images(r, err);
    p->encode_seconds = lz_now() - begun;

    begun = lz_now();
    if (!status) status = make_noise(r, err);
    if (!status) status = begin(r, err);
    if (!status) status = denoise(r, err);
    p->denoise_seconds = lz_now() - begun;

    begun = lz_now();
    lz_decoded decoded = {0};
    if (!status) {
        lz_watch watch = watch_stage(r, "decode", 0);
        status = lz_decode_pixels(r->model, r->slots.x, r->layout.h, r->layout.w, asked(r, &watch), &decoded, err);
    }
    if (!status) status = keep_arrays(r, decoded.pixels, err);
    if (!status) status = lz_make_image(r->model->ctx, &decoded, &p->image, err);
    p->decode_seconds = lz_now() - begun;
    p->steps = r->steps - r->first_step;
    p->prompt_cut = r->prompt_cut;
    if (r->prompt_cut && !status)
        lz_tell(r->model->ctx, LZ_LOG_NOTE, "the prompt has more tokens than the model reads: its end was left out");
    p->guidance = r->guidance;
    p->tile = decoded.tile;
    return status;
}

lz_status lz_generate_with(lz_model *model, const lz_picture_options *options, lz_picture *picture, lz_error *err) {
    if (picture) memset(picture, 0, sizeof *picture);
    if (!model || !options || !picture)
        return lz_fail(err, LZ_BAD_ARGUMENT, "generate: needs a model, options and a place for the picture");
    lz_picture_options own;
    lz_status status = lz_read_options(&own, sizeof own, options, "LZ_PICTURE_OPTIONS", err);
    if (status) return status;
    lz_run_state r = lz_new_run(model, &own);
    r.picture = picture;
    r.sigmas = lz_host_alloc(model->ctx, (LZ_MAX_STEPS + 1) * sizeof *r.sigmas);
    if (!r.sigmas) return lz_out_of_memory(err, (LZ_MAX_STEPS + 1) * sizeof *r.sigmas);
    status = lz_model_enter(model, err);
    if (status) {
        lz_host_free(model->ctx, r.sigmas);
        return status;
    }
    picture->ctx = model->ctx;
    lz_scope *scope = lz_scope_begin(model->ctx, "generate");
    status = run_stages(&r, err);
    lz_scope_end(scope);
    if (status == LZ_OUT_OF_MEMORY) lz_model_forget_readings(model);
    if (status == LZ_OUT_OF_MEMORY && model->keeps) { /* perhaps there is room for one stage at a time */
        lz_tell(model->ctx, LZ_LOG_NOTE,
                "memory is short: the picture is begun again, with one stage in memory at a time");
        lz_model_forget(model);
        model->keeps = false;
        lz_picture_free(picture);
        picture->ctx = model->ctx;
        float *sigmas = r.sigmas;
        r = lz_new_run(model, &own);
        r.picture = picture;
        r.sigmas = sigmas;
        scope = lz_scope_begin(model->ctx, "generate");
        status = run_stages(&r, err);
        lz_scope_end(scope);
    }
    if (!model->keeps) lz_model_forget(model); /* what a stage that failed has left */
    lz_model_leave(model);
    lz_host_free(model->ctx, r.sigmas);
    if (status) lz_picture_free(picture);
    return status;
}

void lz_picture_free(lz_picture *p) {
    if (!p || !p->ctx) return;
    lz_image_free(p->ctx, &p->image);
    lz_release(p->text);
    lz_release(p->noise);
    lz_release(p->latents);
    lz_release(p->pixels);
    memset(p, 0, sizeof *p);
}
