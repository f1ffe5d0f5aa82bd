/* z_image.c: Z-Image as a family, Turbo and base: the Qwen3 text encoder, the Z-Image transformer, and the autoencoder of
 * FLUX.1. */
#include <string.h>

#include "base/file.h"
#include "models/flux2_vae.h"
#include "models/qwen3.h"
#include "models/z_image.h"
#include "pipeline/family.h"
#include "text/split.h"

typedef struct z_image {
    lz_context *ctx;
    char *text_folder;
    lz_tokenizer *tokenizer;
    lz_z_image *transformer;
    lz_flux2_vae *vae;
    int64_t text_length;
    bool distilled;
    double truncation;        /* guidance is off in steps whose 1 - sigma is above this; 1: in none */
    double longest;           /* of a guided velocity, as a multiple of the length of the unguided one; 0: any */
    lz_targets *text_targets; /* owned; of the text encoder, which is closed after each prompt */
} z_image;

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void close_z_image(void *model) {
    z_image *m = model;
    if (!m) return;
    lz_flux2_vae_close(m->vae);
    lz_z_image_close(m->transformer);
    lz_tokenizer_free(m->tokenizer);
    lz_targets_free(m->text_targets);
    lz_host_free(m->ctx, m->text_folder);
    lz_host_free(m->ctx, m);
}

static bool is_turbo(const lz_parts *parts) { return lz_parts_are(parts, "distilled", "turbo"); }

/* No tensor tells Turbo from base, but the user or the published schedules do: Turbo's is shifted by 3, that of base by
 * 6. In diffusers the other three are arguments of the call, and ignored in the index. */
static lz_status read_index(z_image *m, const lz_parts *parts, lz_config *index, const lz_schedule *schedule,
                            lz_error *err) {
    bool turbo = parts->variant ? is_turbo(parts) : !schedule->dynamic && schedule->shift < 4.5;
    m->distilled = lz_config_bool(index, "is_distilled", turbo);
    m->text_length = lz_config_int(index, "max_sequence_length", 512, 1, 1 << 20);
    m->truncation = lz_config_real(index, "cfg_truncation", 1);
    if (json_is_boolean(json_object_get(index->root, "cfg_normalization")))
        m->longest = lz_config_bool(index, "cfg_normalization", false) ? 1 : 0;
    else
        m->longest = lz_config_real(index, "cfg_normalization", 0);
    if (!(m->truncation >= 0 && m->longest >= 0 && m->longest < 1e6))
        lz_config_refuse(index, "'cfg_truncation' and 'cfg_normalization' must not be below 0, and 'cfg_normalization' "
                                "must be below 1000000");
    if (index->err.status && err) *err = index->err;
    return index->err.status;
}

static lz_status check_text(const void *model, const void *text, const lz_parts *parts, lz_error *err) {
    int64_t reads = lz_z_image_text_width(((const z_image *)model)->transformer);
    return lz_parts_check_features(parts, lz_qwen3_width(text), reads, reads == 2560 ? "; Qwen3-4B is needed" : "",
                                   err);
}

static void *open_z_image(lz_context *ctx, const lz_parts *parts, lz_config *index, const lz_schedule *schedule,
                          lz_error *err) {
    lz_error local = {.status = LZ_OK};
    for (int i = 0; i < LZ_PART_PROCESSOR; i++)
        if (i != LZ_PART_VISION && lz_parts_need(parts, i, err)) return NULL;
    z_image *m = lz_host_alloc(ctx, sizeof *m);
    if (m) m->ctx = ctx; /* close_z_image needs it */
    bool fine = m && (m->text_folder = lz_host_copy(ctx, parts->path[LZ_PART_TEXT_ENCODER])) &&
                (m->text_targets = lz_targets_new(ctx));
    if (!fine) lz_out_of_memory(&local, sizeof *m);
    fine = fine && !read_index(m, parts, index, schedule, &local) &&
           (m->tokenizer = lz_parts_tokenizer(parts, &local)) &&
           (m->transformer = lz_z_image_open(ctx, parts->path[LZ_PART_TRANSFORMER], &local)) &&
           (m->vae = lz_flux1_vae_open(ctx, parts->path[LZ_PART_VAE], &local)) &&
           !lz_parts_check_latents(parts, lz_z_image_channels(m->transformer), lz_flux2_vae_channels(m->vae) / 4,
                                   &local);
    if (local.status && err) *err = local;
    if (fine) return m;
    close_z_image(m);
    return NULL;
}

/* ---- from files -------------------------------------------------------------------------------------------------- */

static json_t *make_index(const lz_parts *parts, const lz_signature *signature) {
    (void)signature;
    return json_pack("{s:s, s:b}", "_class_name", lz_family_z_image.pipelines[0], "is_distilled", is_turbo(parts));
}

static json_t *make_scheduler(const lz_parts *parts) {
    return json_pack("{s:f, s:b, s:i}", "shift", is_turbo(parts) ? 3.0 : 6.0, "use_dynamic_shifting", 0,
                     "num_train_timesteps", 1000);
}

static int64_t token_pixels(const void *model) { return lz_flux2_vae_pixels(((const z_image *)model)->vae); }
static lz_targets *targets(const void *model, bool text) {
    const z_image *m = model;
    return text ? m->text_targets : lz_z_image_targets(m->transformer);
}
static int64_t channels(const void *model) { return lz_z_image_channels(((const z_image *)model)->transformer); }
static bool distilled(const void *model) { return ((const z_image *)model)->distilled; }
static int default_steps(const void *model) { return distilled(model) ? 8 : 50; }

/* No reference images; only one to start from. */
static void count_images(const void *model, int *least, int *most) {
    (void)model;
    *least = *most = 0;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* The chat template with the prompt is tokenized as one text. There is no padding. */
static lz_status tokens(const void *model, const char *prompt, const lz_image *images, int n_images, lz_prompt *to,
                        lz_error *err) {
    (void)images, (void)n_images;
    const z_image *m = model;
    int64_t bad = lz_utf8_error(prompt, strlen(prompt)); /* an offset in the prompt, not in the chat template */
    if (bad >= 0) return lz_fail(err, LZ_BAD_ARGUMENT, "the prompt is not valid UTF-8 at byte %lld", (long long)bad);
    lz_text text = {.ctx = m->ctx};
    lz_text_add(&text, "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n", prompt);
    char *chat = lz_text_take(&text, err);
    if (!chat) return LZ_OUT_OF_MEMORY;
    int64_t *found = NULL, n = 0;
    lz_status status = lz_tokenize(m->tokenizer, chat, strlen(chat), &found, &n, err);
    lz_host_free(m->ctx, chat);
    if (status) return status;
    to->cut = n > m->text_length; /* longer prompts are truncated */
    to->in[to->n++] = lz_from(m->ctx, LZ_DIMS(to->cut ? m->text_length : n), LZ_I64, found);
    lz_host_free(m->ctx, found);
    return LZ_OK;
}

static void *open_text(const void *model, bool images, lz_error *err) {
    (void)images;
    static const int64_t taps[] = {LZ_QWEN3_BEFORE_LAST};
    const z_image *m = model;
    return lz_qwen3_open(m->ctx, m->text_folder, taps, 1, m->text_targets, err);
}
static lz_array *features(const void *text, lz_prompt prompt) { return lz_qwen3_features(text, prompt.in[0], NULL); }
static void close_text(void *text) { lz_qwen3_close(text); }

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

static lz_array *encode(const void *model, lz_array *picture) {
    return lz_flux2_vae_encode(((const z_image *)model)->vae, picture);
}
static lz_array *decode(const void *model, lz_array *x, int64_t h, int64_t w) {
    return lz_flux2_vae_decode(((const z_image *)model)->vae, x, h, w);
}

static int line(const void *model) {
    (void)model;
    return LZ_LINE_TORCH;
}
static double mu(const void *model, const lz_schedule *schedule, int64_t n_tokens, int steps) {
    (void)model;
    (void)steps;
    return lz_schedule_line(schedule, n_tokens);
}

/* ---- denoising --------------------------------------------------------------------------------------------------- */

/* The places of the picture depend on the length of the caption. */
static void make_tables(const void *model, const lz_layout *l, lz_slots *to) {
    const z_image *m = model;
    for (int i = 0; i < 2; i++)
        if (l->text_tokens[i])
            lz_z_image_rope(m->transformer, l->h, l->w, l->text_tokens[i], &to->tables[2 * i], &to->tables[2 * i + 1]);
}

enum { NORMS, OUT }; /* rows */

static void make_rows(const void *model, lz_array *times, lz_slots *to) {
    const z_image *m = model;
    lz_z_image_time time = lz_z_image_modulation(m->transformer, times);
    to->rows[NORMS] = time.norms;
    to->rows[OUT] = time.out;
}

static lz_array *context(const void *model, lz_array *text) {
    return lz_z_image_context(((const z_image *)model)->transformer, text);
}

static lz_array *velocity(const void *model, const lz_layout *l, const lz_slots *in, int prompt, lz_array *x,
                          lz_array *const *rows) {
    (void)l;
    lz_z_image_time time = {rows[NORMS], rows[OUT]};
    return lz_z_image_velocity(((const z_image *)model)->transformer, x, in->context[prompt], time,
                               in->tables[2 * prompt], in->tables[2 * prompt + 1]);
}

static lz_array *length(lz_array *v) { return lz_sqrt(lz_sum(lz_square(v), LZ_DIMS(0, 1), true)); }

/* In float32, as diffusers computes it. */
static bool guided(const void *model, float time) {
    float timestep = time * 1000, left = 1000 - timestep;
    return (double)(left / 1000) <= ((const z_image *)model)->truncation;
}

/* v + (guidance - 1) (v - away), not longer than a multiple of v */
static lz_array *guide(const void *model, lz_array *v, lz_array *away, lz_array *guidance) {
    const z_image *m = model;
    lz_array *led = lz_add(v, lz_mul(lz_sub(v, away), lz_sub(guidance, 1.0)));
    if (!(m->longest > 0)) return led;
    lz_array *most = lz_mul(length(v), m->longest), *is = length(led);
    return lz_mul(led, lz_where(lz_greater(is, most), lz_div(most, is), lz_full(m->ctx, LZ_DIMS(1, 1), LZ_F32, 1)));
}

static const char text_source[] =
    "Qwen3-4B, such as qwen_3_4b.safetensors of Comfy-Org/z_image_turbo, text_encoder/ of "
    "Tongyi-MAI/Z-Image-Turbo, or a GGUF file";

const lz_family lz_family_z_image = {
    .name = "Z-Image",
    .pipelines = {"ZImagePipeline"},
    .parts = {&lz_names_z_image, &lz_names_qwen3, NULL, &lz_names_flux1_vae},
    .sources = {[LZ_PART_TEXT_ENCODER] = text_source,
                [LZ_PART_VAE] = "ae.safetensors of Comfy-Org/z_image_turbo, or vae/ of Tongyi-MAI/Z-Image-Turbo",
                [LZ_PART_TOKENIZER] =
                    "tokenizer/ of Tongyi-MAI/Z-Image-Turbo; a GGUF file of the text encoder has its own"},
    .index = make_index,
    .scheduler = make_scheduler,
    .open = open_z_image,
    .close = close_z_image,
    .targets = targets,
    .token_pixels = token_pixels,
    .channels = channels,
    .patch = 2,
    .steps_planes = true,
    .distilled = distilled,
    .default_steps = default_steps,
    .default_guidance = 5,
    .count_images = count_images,
    .mask_strength = 1,
    .tokens = tokens,
    .open_text = open_text,
    .check_text = check_text,
    .features = features,
    .close_text = close_text,
    .encode = encode,
    .decode = decode,
    .mu = mu,
    .line = line,
    .tables = make_tables,
    .rows = make_rows,
    .context = context,
    .velocity = velocity,
    .guide = guide,
    .guided = guided,
};
