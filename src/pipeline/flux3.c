/* flux3.c: FLUX.3 [klein] as a family: the Qwen3-VL language model, the FLUX.3 transformer and the FLUX.2 autoencoder.
 *
 * The transformer's sequence is text, the picture, references. The distilled model is a flow map: it is told where a
 * step ends. Otherwise text and references do not depend on the step. */
#include <math.h>
#include <string.h>

#include "models/flux2_vae.h"
#include "models/flux3.h"
#include "models/qwen3.h"
#include "pipeline/generate.h"
#include "text/split.h"

/* WINDOW: the text is padded to a multiple of it. MOST_IMAGES: references, as in the published model. */
enum { WINDOW = 80, MOST_IMAGES = 10 };
/* The canvas of a single reference: area, smallest and largest side, in pixels. */
enum { CANVAS_AREA = 4 * 1024 * 1024, LEAST_SIDE = 64, MOST_SIDE = 4096 };

typedef struct flux3 {
    lz_context *ctx;
    char *text_folder;
    lz_tokenizer *tokenizer;
    lz_flux3 *transformer;
    lz_flux2_vae *vae;
    int64_t layers[LZ_QWEN3_MAX_TAPS], text_length, pad;
    int n_layers;
    lz_targets *text_targets; /* owned; of the text encoder, which is closed after each prompt */
} flux3;

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void close_flux3(void *model) {
    flux3 *m = model;
    if (!m) return;
    lz_flux2_vae_close(m->vae);
    lz_flux3_close(m->transformer);
    lz_tokenizer_free(m->tokenizer);
    lz_targets_free(m->text_targets);
    lz_host_free(m->ctx, m->text_folder);
    lz_host_free(m->ctx, m);
}

/* In diffusers these are arguments of the call, and ignored in the index. Defaults: layers 4, 8, ..., 32 and 8192
 * tokens. */
static lz_status read_index(flux3 *m, lz_config *index, lz_error *err) {
    m->text_length = lz_config_int(index, "max_sequence_length", 8192, 1, 1 << 20);
    m->n_layers = lz_config_ints(index, "text_encoder_out_layers", m->layers, LZ_QWEN3_MAX_TAPS, 0, 4096);
    for (int i = 1; i < m->n_layers; i++)
        if (m->layers[i] < m->layers[i - 1]) lz_config_refuse(index, "'text_encoder_out_layers' must ascend");
    if (!m->n_layers)
        for (m->n_layers = 0; m->n_layers < 8; m->n_layers++) m->layers[m->n_layers] = 4 * (m->n_layers + 1);
    if (index->err.status && err) *err = index->err;
    return index->err.status;
}

static lz_status check_fit(flux3 *m, const lz_parts *parts, lz_error *err) {
    lz_status status = lz_parts_check_pad(parts, m->tokenizer, &m->pad, err);
    if (status) return status;
    return lz_parts_check_latents(parts, lz_flux3_channels(m->transformer), lz_flux2_vae_channels(m->vae), err);
}

static lz_status check_text(const void *model, const void *text, const lz_parts *parts, lz_error *err) {
    const flux3 *m = model;
    int64_t width = lz_qwen3_width(text) * m->n_layers, reads = lz_flux3_text_width(m->transformer);
    lz_status status = lz_parts_check_features(parts, width, reads,
                                               reads == 8 * 2560 ? "; the one of Qwen3-VL-4B is needed" : "", err);
    if (!status && !lz_qwen3_has_places(text))
        return lz_fail(err, LZ_BAD_FILE, "%s: it is Qwen3, and FLUX.3 [klein] reads the features of Qwen3-VL",
                       LZ_SHOW_TEXT(lz_parts_label(parts, LZ_PART_TEXT_ENCODER)));
    return status;
}

static void *open_flux3(lz_context *ctx, const lz_parts *parts, lz_config *index, const lz_schedule *schedule,
                        lz_error *err) {
    (void)schedule;
    lz_error local = {.status = LZ_OK};
    for (int i = 0; i < LZ_PART_PROCESSOR; i++)
        if (i != LZ_PART_VISION && lz_parts_need(parts, i, err)) return NULL;
    flux3 *m = lz_host_alloc(ctx, sizeof *m);
    if (m) m->ctx = ctx; /* close_flux3 needs it */
    bool fine = m && (m->text_folder = lz_host_copy(ctx, parts->path[LZ_PART_TEXT_ENCODER])) &&
                (m->text_targets = lz_targets_new(ctx));
    if (!fine) lz_out_of_memory(&local, sizeof *m);
    fine = fine && !read_index(m, index, &local) && (m->tokenizer = lz_parts_tokenizer(parts, &local)) &&
           (m->transformer = lz_flux3_open(ctx, parts->path[LZ_PART_TRANSFORMER], &local)) &&
           (m->vae = lz_flux2_vae_open(ctx, parts->path[LZ_PART_VAE], &local)) && !check_fit(m, parts, &local);
    if (local.status && err) *err = local;
    if (fine) return m;
    close_flux3(m);
    return NULL;
}

/* ---- from files -------------------------------------------------------------------------------------------------- */

/* The transformer's tensors tell whether it is the distilled model, so there is one index for both. */
static json_t *make_index(const lz_parts *parts, const lz_signature *signature) {
    (void)parts, (void)signature;
    return json_pack("{s:s}", "_class_name", lz_family_flux3.pipelines[0]);
}

static json_t *make_scheduler(const lz_parts *parts) {
    (void)parts;
    return json_pack("{s:f, s:b, s:i}", "shift", 6.93, "use_dynamic_shifting", 0, "num_train_timesteps", 1000);
}

static int64_t token_pixels(const void *model) { return lz_flux2_vae_pixels(((const flux3 *)model)->vae); }
static lz_targets *targets(const void *model, bool text) {
    const flux3 *m = model;
    return text ? m->text_targets : lz_flux3_targets(m->transformer);
}
static int64_t channels(const void *model) { return lz_flux3_channels(((const flux3 *)model)->transformer); }
static bool distilled(const void *model) { return lz_flux3_flow_map(((const flux3 *)model)->transformer); }
static int default_steps(const void *model) { return distilled(model) ? 16 : 50; }
static void count_images(const void *model, int *least, int *most) {
    (void)model;
    *least = 0;
    *most = MOST_IMAGES;
}

/* ---- sizes of images --------------------------------------------------------------------------------------------- */

static int64_t on_canvas(int64_t side, int64_t unit) {
    int64_t up = (side + unit - 1) / unit * unit;
    return up < LEAST_SIDE ? LEAST_SIDE : up > MOST_SIDE ? MOST_SIDE : up;
}

/* A single reference is kept whole: it is shrunk only until its canvas, in whole tokens, has at most 4 megapixels. */
static lz_reference_size fill_canvas(const lz_image *image, int64_t unit) {
    double w = (double)image->width, h = (double)image->height;
    double scale = fmin(1, fmin(sqrt(CANVAS_AREA / (w * h)), MOST_SIDE / fmax(w, h)));
    for (;; scale *= 0.995) {
        lz_reference_size s = {.small_width = (int64_t)fmax(1, rint(w * scale)),
                               .small_height = (int64_t)fmax(1, rint(h * scale))};
        s.width = on_canvas(s.small_width, unit);
        s.height = on_canvas(s.small_height, unit);
        if (s.width * s.height <= CANVAS_AREA) return s;
    }
}

static lz_reference_size reference_size(const void *model, const lz_image *image, int n) {
    return n == 1 ? fill_canvas(image, token_pixels(model)) : lz_middle(image, token_pixels(model));
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* The window of the text: ids, which of them are real, and places. All padding is at place 1, as in the makers' code. */
static lz_status fill_window(const flux3 *m, const int64_t *found, int64_t n, lz_prompt *to, lz_error *err) {
    int64_t real = n < m->text_length ? n : m->text_length, t = (real + WINDOW - 1) / WINDOW * WINDOW;
    if (t > m->text_length) t = m->text_length;
    int64_t *ids = lz_host_alloc(m->ctx, (size_t)t * sizeof *ids);
    bool *is_real = lz_host_alloc(m->ctx, (size_t)t * sizeof *is_real);
    float *places = lz_host_alloc(m->ctx, (size_t)(3 * t) * sizeof *places);
    lz_status status = ids && is_real && places ? LZ_OK : lz_out_of_memory(err, t);
    for (int64_t i = 0; i < t && !status; i++) {
        is_real[i] = i < real;
        ids[i] = i < real ? found[i] : m->pad;
        for (int axis = 0; axis < 3; axis++) places[3 * i + axis] = i < real ? (float)i : 1;
    }
    if (!status) {
        to->cut = n > m->text_length;
        to->in[to->n++] = lz_from(m->ctx, LZ_DIMS(t), LZ_I64, ids);
        to->in[to->n++] = lz_from(m->ctx, LZ_DIMS(t), LZ_BOOL, is_real);
        to->in[to->n++] = lz_from(m->ctx, LZ_DIMS(t, 3), LZ_F32, places);
    }
    lz_host_free(m->ctx, ids);
    lz_host_free(m->ctx, is_real);
    lz_host_free(m->ctx, places);
    return status;
}

/* The chat template with the prompt is tokenized as one text. */
static lz_status tokens(const void *model, const char *prompt, const lz_image *images, int n_images, lz_prompt *to,
                        lz_error *err) {
    (void)images, (void)n_images; /* images are not part of the prompt */
    const flux3 *m = model;
    int64_t bad = lz_utf8_error(prompt, strlen(prompt)); /* an offset in the prompt, not in the chat template */
    if (bad >= 0) return lz_fail(err, LZ_BAD_ARGUMENT, "the prompt is not valid UTF-8 at byte %lld", (long long)bad);
    lz_text text = {.ctx = m->ctx};
    lz_text_add(&text, "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n", prompt);
    char *chat = lz_text_take(&text, err);
    if (!chat) return LZ_OUT_OF_MEMORY;
    int64_t *found = NULL, n = 0;
    lz_status status = lz_tokenize(m->tokenizer, chat, strlen(chat), &found, &n, err);
    lz_host_free(m->ctx, chat);
    if (!status) status = fill_window(m, found, n, to, err);
    lz_host_free(m->ctx, found);
    return status;
}

static void *open_text(const void *model, bool images, lz_error *err) {
    (void)images;
    const flux3 *m = model;
    return lz_qwen3_open(m->ctx, m->text_folder, m->layers, m->n_layers, m->text_targets, err);
}
static lz_array *features(const void *text, lz_prompt prompt) {
    return lz_qwen3_vl_features(text, prompt.in[0], prompt.in[1], prompt.in[2], NULL, NULL);
}
static void close_text(void *text) { lz_qwen3_close(text); }

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

static lz_array *encode(const void *model, lz_array *picture) {
    return lz_flux2_vae_encode(((const flux3 *)model)->vae, picture);
}
static lz_array *decode(const void *model, lz_array *x, int64_t h, int64_t w) {
    return lz_flux2_vae_decode(((const flux3 *)model)->vae, x, h, w);
}

static double mu(const void *model, const lz_schedule *schedule, int64_t n_tokens, int steps) {
    (void)model;
    (void)steps;
    return lz_schedule_line(schedule, n_tokens);
}

/* ---- denoising --------------------------------------------------------------------------------------------------- */

static lz_flux3_tokens count_tokens(const lz_layout *l, int prompt) {
    lz_flux3_tokens n = {.text = l->text_tokens[prompt], .picture = l->h * l->w};
    for (int k = 0; k < l->n_references; k++) n.references += l->reference_sizes[k][0] * l->reference_sizes[k][1];
    return n;
}

/* In half steps: rows and columns are half a step apart. Text tokens have their position on the last axis; there the
 * picture is at 0 and references are at -1, -2, ... */
static void place_tokens(const lz_layout *l, int64_t text, lz_place *to) {
    for (int64_t i = 0; i < text; i++) *to++ = (lz_place){{0, 0, 0, 2 * i}};
    for (int k = 0; k <= l->n_references; k++) {
        int64_t h = k ? l->reference_sizes[k - 1][0] : l->h, w = k ? l->reference_sizes[k - 1][1] : l->w;
        for (int64_t i = 0; i < h * w; i++) *to++ = (lz_place){{0, i / w, i % w, -2 * k}};
    }
}

/* Both prompts have a window of their own. */
static void make_tables(const void *model, const lz_layout *l, lz_slots *to) {
    const flux3 *m = model;
    for (int prompt = 0; prompt < 2; prompt++) {
        lz_flux3_tokens n = count_tokens(l, prompt);
        lz_array **tables = &to->tables[2 * prompt];
        if (!n.text) continue;
        int64_t all = n.text + n.picture + n.references;
        lz_place *places = lz_host_alloc(m->ctx, (size_t)all * sizeof *places);
        if (places) {
            place_tokens(l, n.text, places);
            lz_flux3_rope(m->transformer, places, all, &tables[0], &tables[1]);
        } else
            tables[0] = tables[1] = lz_poison(m->ctx, LZ_OUT_OF_MEMORY, "places");
        lz_host_free(m->ctx, places);
    }
}

enum { IMAGE, OUT, STILL }; /* rows; STILL: only of a flow map, otherwise it is clean_row */

static void make_rows(const void *model, lz_array *times, lz_slots *to) {
    const flux3 *m = model;
    lz_flux3_time time = lz_flux3_modulation(m->transformer, times);
    to->rows[IMAGE] = time.image;
    to->rows[OUT] = time.out;
    if (lz_flux3_flow_map(m->transformer))
        to->rows[STILL] = time.still;
    else
        to->clean_row = time.still;
}

static lz_array *prefix(const void *model, const lz_layout *l, const lz_slots *in, int prompt) {
    const flux3 *m = model;
    return lz_flux3_context(m->transformer, in->features[prompt], in->references, in->clean_row, in->tables[2 * prompt],
                            in->tables[2 * prompt + 1], count_tokens(l, prompt));
}

static lz_array *velocity(const void *model, const lz_layout *l, const lz_slots *in, int prompt, lz_array *x,
                          lz_array *const *rows) {
    const flux3 *m = model;
    lz_flux3_time time = {.image = rows[IMAGE], .out = rows[OUT], .still = rows[STILL] ? rows[STILL] : in->clean_row};
    return lz_flux3_velocity(m->transformer, x, in->context[prompt], time, in->tables[2 * prompt],
                             in->tables[2 * prompt + 1], count_tokens(l, prompt));
}

const lz_family lz_family_flux3 = {
    .name = "FLUX.3 [klein]",
    .pipelines = {"Flux3ModularPipeline", "Flux3DistilledModularPipeline"},
    .parts = {&lz_names_flux3, &lz_names_qwen3, NULL, &lz_names_flux2_vae},
    .sources = {[LZ_PART_TEXT_ENCODER] = "Qwen3-VL-4B: text_encoder/ of black-forest-labs/flux-3-image-klein, a file "
                                         "of black-forest-labs/flux-3-image-klein-comfy, or a GGUF file",
                [LZ_PART_VAE] = "vae/ of black-forest-labs/flux-3-image-klein; it is that of FLUX.2",
                [LZ_PART_TOKENIZER] = "tokenizer/ of black-forest-labs/flux-3-image-klein; a GGUF file of the text "
                                      "encoder has its own"},
    .index = make_index,
    .scheduler = make_scheduler,
    .open = open_flux3,
    .close = close_flux3,
    .targets = targets,
    .token_pixels = token_pixels,
    .channels = channels,
    .patch = 1,
    .distilled = distilled,
    .ignores_guidance = true,
    .euler_only = true,
    .default_steps = default_steps,
    .default_guidance = 3.5,
    .caption_bytes = 200, /* some 35 words */
    .count_images = count_images,
    .reference_size = reference_size,
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
    .prefix = prefix,
    .velocity = velocity,
};
