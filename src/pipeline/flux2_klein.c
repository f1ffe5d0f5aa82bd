/* flux2_klein.c: FLUX.2 [klein] as a family: the Qwen3 text encoder, the FLUX.2 transformer and autoencoder. The variant
 * KV (FLUX.2-klein-9b-kv) was trained for references that are computed once, before the steps. Its tensors are those of
 * the others, and its weights serve for nothing else. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "models/flux2.h"
#include "models/flux2_vae.h"
#include "models/qwen3.h"
#include "pipeline/family.h"
#include "text/split.h"

enum { USUAL, KV }; /* in the order of .pipelines */

typedef struct klein {
    lz_context *ctx;
    char *text_folder;
    lz_tokenizer *tokenizer;
    lz_flux2 *transformer;
    lz_flux2_vae *vae;
    int64_t layers[LZ_QWEN3_MAX_TAPS], text_length, pad;
    int n_layers;
    bool distilled, kv;
    lz_targets *text_targets; /* owned; of the text encoder, which is closed after each prompt */
} klein;

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void close_klein(void *model) {
    klein *m = model;
    if (!m) return;
    lz_flux2_vae_close(m->vae);
    lz_flux2_close(m->transformer);
    lz_tokenizer_free(m->tokenizer);
    lz_targets_free(m->text_targets);
    lz_host_free(m->ctx, m->text_folder);
    lz_host_free(m->ctx, m);
}

/* In diffusers these are arguments of the call, and ignored in the index. Defaults: layers 9, 18, 27 and 512 tokens. */
static lz_status read_index(klein *m, lz_config *index, lz_error *err) {
    const char *name = lz_config_text(index, "_class_name");
    m->kv = name && !strcmp(name, lz_family_flux2_klein.pipelines[KV]);
    m->distilled = lz_config_bool(index, "is_distilled", false) || m->kv;
    m->text_length = lz_config_int(index, "max_sequence_length", 512, 1, 1 << 20);
    m->n_layers = lz_config_ints(index, "text_encoder_out_layers", m->layers, LZ_QWEN3_MAX_TAPS, 0, 4096);
    for (int i = 1; i < m->n_layers; i++)
        if (m->layers[i] < m->layers[i - 1]) lz_config_refuse(index, "'text_encoder_out_layers' must ascend");
    if (!m->n_layers)
        for (m->n_layers = 0; m->n_layers < 3; m->n_layers++) m->layers[m->n_layers] = 9 * (m->n_layers + 1);
    if (index->err.status && err) *err = index->err;
    return index->err.status;
}

static lz_status check_fit(klein *m, const lz_parts *parts, lz_error *err) {
    if (lz_tokenizer_pads_left(m->tokenizer))
        return lz_fail(err, LZ_BAD_FILE,
                       "%s: padding_side in tokenizer/tokenizer_config.json is not 'right', which is not supported",
                       LZ_SHOW_TEXT(lz_parts_label(parts, LZ_PART_TOKENIZER)));
    lz_status status = lz_parts_check_pad(parts, m->tokenizer, &m->pad, err);
    if (status) return status;
    return lz_parts_check_latents(parts, lz_flux2_channels(m->transformer), lz_flux2_vae_channels(m->vae), err);
}

static lz_status check_text(const void *model, const void *text, const lz_parts *parts, lz_error *err) {
    const klein *m = model;
    int64_t reads = lz_flux2_text_width(m->transformer);
    const char *needed = reads == 3 * 2560 ? "; Qwen3-4B is needed" : reads == 3 * 4096 ? "; Qwen3-8B is needed" : "";
    return lz_parts_check_features(parts, lz_qwen3_width(text) * m->n_layers, reads, needed, err);
}

static void *open_klein(lz_context *ctx, const lz_parts *parts, lz_config *index, const lz_schedule *schedule,
                        lz_error *err) {
    (void)schedule;
    lz_error local = {.status = LZ_OK};
    for (int i = 0; i < LZ_PART_PROCESSOR; i++)
        if (i != LZ_PART_VISION && lz_parts_need(parts, i, err)) return NULL;
    klein *m = lz_host_alloc(ctx, sizeof *m);
    if (m) m->ctx = ctx; /* close_klein needs it */
    bool fine = m && (m->text_folder = lz_host_copy(ctx, parts->path[LZ_PART_TEXT_ENCODER])) &&
                (m->text_targets = lz_targets_new(ctx));
    if (!fine) lz_out_of_memory(&local, sizeof *m);
    fine = fine && !read_index(m, index, &local) && (m->tokenizer = lz_parts_tokenizer(parts, &local)) &&
           (m->transformer = lz_flux2_open(ctx, parts->path[LZ_PART_TRANSFORMER], &local)) &&
           (m->vae = lz_flux2_vae_open(ctx, parts->path[LZ_PART_VAE], &local)) && !check_fit(m, parts, &local);
    if (local.status && err) *err = local;
    if (fine) return m;
    close_klein(m);
    return NULL;
}

/* ---- from files -------------------------------------------------------------------------------------------------- */

/* No tensor tells which of the three it is. */
static json_t *make_index(const lz_parts *parts, const lz_signature *signature) {
    (void)signature;
    bool base = lz_parts_are(parts, "base", "base"), kv = lz_parts_have_word(parts, "kv", "kv");
    return json_pack("{s:s, s:b}", "_class_name", lz_family_flux2_klein.pipelines[kv ? KV : USUAL], "is_distilled",
                     !base);
}

static json_t *make_scheduler(const lz_parts *parts) {
    (void)parts;
    return json_pack("{s:f, s:b, s:f, s:f, s:i, s:i, s:i}", "shift", 3.0, "use_dynamic_shifting", 1, "base_shift", 0.5,
                     "max_shift", 1.15, "base_image_seq_len", 256, "max_image_seq_len", 4096, "num_train_timesteps",
                     1000);
}

static int64_t token_pixels(const void *model) { return lz_flux2_vae_pixels(((const klein *)model)->vae); }
static lz_targets *targets(const void *model, bool text) {
    const klein *m = model;
    return text ? m->text_targets : lz_flux2_targets(m->transformer);
}
static int64_t channels(const void *model) { return lz_flux2_channels(((const klein *)model)->transformer); }
static bool distilled(const void *model) { return ((const klein *)model)->distilled; }
static int default_steps(const void *model) { return distilled(model) ? 4 : 50; }

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* The chat template with the prompt is tokenized as one text: a line break at the start of the prompt and the one
 * before it are one token. */
static lz_status tokens(const void *model, const char *prompt, const lz_image *images, int n_images, lz_prompt *to,
                        lz_error *err) {
    (void)images, (void)n_images; /* images are not part of the prompt */
    static const char before[] = "<|im_start|>user\n",
                      behind[] = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
    const klein *m = model;
    int64_t bad = lz_utf8_error(prompt, strlen(prompt)); /* an offset in the prompt, not in the chat template */
    if (bad >= 0) return lz_fail(err, LZ_BAD_ARGUMENT, "the prompt is not valid UTF-8 at byte %lld", (long long)bad);
    size_t size = sizeof before + strlen(prompt) + sizeof behind;
    char *chat = lz_host_alloc(m->ctx, size);
    int64_t *ids = lz_host_alloc(m->ctx, (size_t)m->text_length * sizeof *ids), *found = NULL, n = 0;
    bool *real = lz_host_alloc(m->ctx, (size_t)m->text_length * sizeof *real);
    lz_status status = LZ_OUT_OF_MEMORY;
    if (!chat || !ids || !real)
        lz_out_of_memory(err, (int64_t)size);
    else {
        size_t length = (size_t)snprintf(chat, size, "%s%s%s", before, prompt, behind);
        status = lz_tokenize(m->tokenizer, chat, length, &found, &n, err);
    }
    if (!status && ids && real) {
        for (int64_t i = 0; i < m->text_length; i++) {
            real[i] = i < n; /* longer prompts are truncated */
            ids[i] = i < n ? found[i] : m->pad;
        }
        to->cut = n > m->text_length;
        to->in[to->n++] = lz_from(m->ctx, LZ_DIMS(m->text_length), LZ_I64, ids);
        to->in[to->n++] = lz_from(m->ctx, LZ_DIMS(m->text_length), LZ_BOOL, real);
    }
    lz_host_free(m->ctx, found);
    lz_host_free(m->ctx, real);
    lz_host_free(m->ctx, ids);
    lz_host_free(m->ctx, chat);
    return status;
}

static void *open_text(const void *model, bool images, lz_error *err) {
    (void)images;
    const klein *m = model;
    return lz_qwen3_open(m->ctx, m->text_folder, m->layers, m->n_layers, m->text_targets, err);
}
static lz_array *features(const void *text, lz_prompt prompt) {
    return lz_qwen3_features(text, prompt.in[0], prompt.in[1]);
}
static void close_text(void *text) { lz_qwen3_close(text); }

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

static lz_array *encode(const void *model, lz_array *picture) {
    return lz_flux2_vae_encode(((const klein *)model)->vae, picture);
}
static lz_array *decode(const void *model, lz_array *x, int64_t h, int64_t w) {
    return lz_flux2_vae_decode(((const klein *)model)->vae, x, h, w);
}

/* The formula of the model's makers, fitted for 10 and 200 steps; the schedule's own line is not used. It jumps at 4300
 * tokens. */
static double mu(const void *model, const lz_schedule *schedule, int64_t n_tokens, int steps) {
    (void)model;
    (void)schedule;
    double l = (double)n_tokens, m10 = 8.73809524e-05 * l + 1.89833333, m200 = 0.00016927 * l + 0.45666666;
    if (n_tokens > 4300) return m200;
    double slope = (m200 - m10) / 190;
    return slope * steps + (m200 - 200 * slope);
}

/* ---- denoising --------------------------------------------------------------------------------------------------- */

/* Text tokens have their position on the last axis. The picture is image 0, references are images 10, 20, ... */
static void place_tokens(const lz_layout *l, int64_t text, lz_place *to) {
    for (int64_t i = 0; i < text; i++) *to++ = (lz_place){{0, 0, 0, i}};
    for (int k = 0; k <= l->n_references; k++) {
        int64_t h = k ? l->reference_sizes[k - 1][0] : l->h, w = k ? l->reference_sizes[k - 1][1] : l->w;
        for (int64_t i = 0; i < h * w; i++) *to++ = (lz_place){{10 * k, i / w, i % w, 0}};
    }
}

static void make_tables(const void *model, const lz_layout *l, lz_slots *to) {
    const klein *m = model;
    int64_t n = m->text_length + l->h * l->w;
    for (int k = 0; k < l->n_references; k++) n += l->reference_sizes[k][0] * l->reference_sizes[k][1];
    lz_place *places = lz_host_alloc(m->ctx, (size_t)n * sizeof *places);
    if (places) {
        place_tokens(l, m->text_length, places);
        lz_flux2_rope(m->transformer, places, n, &to->tables[0], &to->tables[1]);
    } else
        to->tables[0] = to->tables[1] = lz_poison(m->ctx, LZ_OUT_OF_MEMORY, "places");
    lz_host_free(m->ctx, places);
}

static void make_rows(const void *model, lz_array *times, lz_slots *to) {
    const klein *m = model;
    lz_flux2_time time = lz_flux2_modulation(m->transformer, times);
    to->rows[0] = time.image;
    to->rows[1] = time.text;
    to->rows[2] = time.single;
    to->rows[3] = time.out;
    if (m->kv) to->clean_row = lz_flux2_clean_row(m->transformer);
}

static lz_array *context(const void *model, lz_array *text) {
    return lz_flux2_context(((const klein *)model)->transformer, text);
}

static bool caches(const void *model) { return ((const klein *)model)->kv; }

/* Rows of the rope tables: text and picture, then the references. */
static int64_t first_reference(const klein *m, const lz_layout *l) { return m->text_length + l->h * l->w; }

static lz_array *cache(const void *model, const lz_layout *l, const lz_slots *in) {
    const klein *m = model;
    int64_t first = first_reference(m, l), end = lz_shape(in->tables[0]).at[0];
    return lz_flux2_cache(m->transformer, in->references, in->clean_row, lz_slice(in->tables[0], 0, first, end, 1),
                          lz_slice(in->tables[1], 0, first, end, 1));
}

static lz_array *velocity(const void *model, const lz_layout *l, const lz_slots *in, int prompt, lz_array *x,
                          lz_array *const *rows) {
    const klein *m = model;
    lz_flux2_time time = {rows[0], rows[1], rows[2], rows[3]};
    lz_array *cos = in->tables[0], *sin = in->tables[1], *cached = m->kv ? in->references : NULL;
    if (cached) {
        cos = lz_slice(cos, 0, 0, first_reference(m, l), 1);
        sin = lz_slice(sin, 0, 0, first_reference(m, l), 1);
    } else if (in->references)
        x = lz_concat((lz_array *[]){x, in->references}, 2, 0);
    return lz_flux2_velocity(m->transformer, x, in->context[prompt], time, cos, sin, l->h * l->w, cached);
}

const lz_family lz_family_flux2_klein = {
    .name = "FLUX.2 [klein]",
    .pipelines = {[USUAL] = "Flux2KleinPipeline", [KV] = "Flux2KleinKVPipeline"},
    .parts = {&lz_names_flux2, &lz_names_qwen3, NULL, &lz_names_flux2_vae},
    .sources =
        {[LZ_PART_TEXT_ENCODER] = "Qwen3-4B for klein 4B, Qwen3-8B for klein 9B, such as qwen_3_4b.safetensors of "
                                  "Comfy-Org/Flux-2-Klein-4B, text_encoder/ of black-forest-labs/FLUX.2-klein-4B, "
                                  "or a GGUF file",
         [LZ_PART_VAE] = "flux2-vae.safetensors of Comfy-Org/Flux-2-Klein-4B, or vae/ of "
                         "black-forest-labs/FLUX.2-klein-4B",
         [LZ_PART_TOKENIZER] = "tokenizer/ of black-forest-labs/FLUX.2-klein-4B; a GGUF file of the text encoder "
                               "has its own"},
    .index = make_index,
    .scheduler = make_scheduler,
    .open = open_klein,
    .close = close_klein,
    .targets = targets,
    .token_pixels = token_pixels,
    .channels = channels,
    .patch = 1,
    .distilled = distilled,
    .ignores_guidance = true,
    .default_steps = default_steps,
    .default_guidance = 4,
    .mask_strength = 0.8,
    .mask_by_token = true,
    .tokens = tokens,
    .open_text = open_text,
    .check_text = check_text,
    .features = features,
    .close_text = close_text,
    .encode = encode,
    .decode = decode,
    .mu = mu,
    .tables = make_tables,
    .rows = make_rows,
    .context = context,
    .caches = caches,
    .cache = cache,
    .velocity = velocity,
};
