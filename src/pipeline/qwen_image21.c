/* qwen_image21.c: Qwen-Image 2.1 as a family, and its Turbo: the Qwen3-VL text encoder, the Qwen-Image 2.1 transformer
 * and autoencoder; for pictures from text, with reference images or without.
 *
 * The transformer reads single latents, but sizes are multiples of 2 x 2 latents, of which one is also a row of the text
 * encoder. So a token of the pipeline is 2 x 2 latents. The transformer's sequence is
 *
 *     text, image 1, text, image 2, ..., text | the picture
 *
 * What is before the picture, the prefix, does not depend on the step. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "io/image.h"
#include "models/flux2_vae.h"
#include "models/qwen21_vae.h"
#include "models/qwen3.h"
#include "models/qwen3_vision.h"
#include "models/qwen_image21.h"
#include "pipeline/family.h"
#include "pipeline/image_prompt.h"
#include "text/split.h"

/* MOST_IMAGES: references, as in the published model. POSITIONS: the positions that its rope tables have. */
enum { MOST_IMAGES = 10, POSITIONS = 8192, SIDE = 2, PER_TOKEN = SIDE * SIDE };
static const char system_text[] = "<|im_start|>system\nComprehend and analyze the provided prompt.<|im_end|>\n";

typedef struct qwen21 {
    lz_context *ctx;
    char *text_folder, *vision_folder;
    lz_qwen25_processor processor;
    lz_tokenizer *tokenizer;
    lz_qwen_image21 *transformer;
    lz_qwen21_vae *vae;
    int64_t drop;               /* tokens of the system prompt: encoded, but not passed to the transformer */
    int64_t leads[MOST_IMAGES]; /* text tokens before each image, from the end of the image before it */
    int64_t image_pad;
    double area;              /* pixels of an image */
    bool turbo;               /* it has sigmas of its own */
    lz_targets *text_targets; /* owned; of the text encoder, which is closed after each prompt */
} qwen21;

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void close_qwen21(void *model) {
    qwen21 *m = model;
    if (!m) return;
    lz_qwen21_vae_close(m->vae);
    lz_qwen_image21_close(m->transformer);
    lz_tokenizer_free(m->tokenizer);
    lz_targets_free(m->text_targets);
    lz_host_free(m->ctx, m->text_folder);
    lz_host_free(m->ctx, m->vision_folder);
    lz_host_free(m->ctx, m);
}

static lz_status read_index(qwen21 *m, lz_config *index, lz_error *err) {
    /* An argument in diffusers. */
    int64_t side = lz_config_int(index, "output_resolution", LZ_DEFAULT_SIZE, LZ_QWEN3_UNIT, LZ_MAX_SIZE);
    m->area = (double)(side * side);
    m->turbo = json_array_size(json_object_get(index->root, "sample_sigmas"));
    if (index->err.status && err) *err = index->err;
    return index->err.status;
}

typedef struct reader { /* the text encoder */
    lz_context *ctx;
    lz_qwen3 *language;
    lz_qwen3_vision *vision; /* NULL: opened without images */
    int64_t drop;
} reader;

static void close_text(void *text) {
    reader *t = text;
    if (!t) return;
    lz_qwen3_vision_close(t->vision);
    lz_qwen3_close(t->language);
    lz_host_free(t->ctx, t);
}

static void *open_text(const void *model, bool images, lz_error *err) {
    static const int64_t taps[] = {LZ_QWEN3_LAST};
    const qwen21 *m = model;
    reader *t = lz_host_alloc(m->ctx, sizeof *t);
    if (!t) {
        lz_out_of_memory(err, sizeof *t);
        return NULL;
    }
    t->ctx = m->ctx;
    t->drop = m->drop;
    t->language = lz_qwen3_open(m->ctx, m->text_folder, taps, 1, m->text_targets, err);
    if (t->language && images && m->vision_folder)
        t->vision = lz_qwen3_vision_open(m->ctx, m->vision_folder, &m->processor, err);
    if (t->language && (t->vision || !images || !m->vision_folder)) return t;
    close_text(t);
    return NULL;
}

static lz_status check_fit(qwen21 *m, const lz_parts *parts, lz_error *err) {
    lz_status status = lz_parts_check_latents(parts, lz_qwen_image21_channels(m->transformer),
                                              lz_qwen21_vae_channels(m->vae), err);
    if (status) return status;
    if (lz_qwen21_vae_pixels(m->vae) != LZ_QWEN3_UNIT)
        return lz_fail(err, LZ_BAD_FILE, "%s: 2 x 2 latents must be %d x %d pixels, as a row of the text encoder is",
                       LZ_SHOW_TEXT(lz_parts_label(parts, LZ_PART_VAE)), LZ_QWEN3_UNIT, LZ_QWEN3_UNIT);
    if (m->image_pad < 0)
        return lz_fail(err, LZ_BAD_FILE, "%s: the tokenizer has no <|image_pad|>, which stands for an image",
                       LZ_SHOW_TEXT(lz_parts_label(parts, LZ_PART_TOKENIZER)));
    return LZ_OK;
}

static lz_status check_text(const void *model, const void *text, const lz_parts *parts, lz_error *err) {
    const qwen21 *m = model;
    const lz_qwen3 *language = ((const reader *)text)->language;
    lz_status status = lz_parts_check_features(parts, lz_qwen3_width(language),
                                               lz_qwen_image21_text_width(m->transformer), "", err);
    if (!status && !lz_qwen3_has_places(language))
        return lz_fail(err, LZ_BAD_FILE, "%s: it is Qwen3, and Qwen-Image 2.1 reads the features of Qwen3-VL",
                       LZ_SHOW_TEXT(lz_parts_label(parts, LZ_PART_TEXT_ENCODER)));
    return status;
}

/* The chat template with the prompt, and one <|image_pad|> for each image. */
static char *write_chat(const qwen21 *m, const char *prompt, int n_images, lz_error *err) {
    lz_text chat = {.ctx = m->ctx};
    lz_text_add(&chat, "%s<|im_start|>user\n", system_text);
    for (int i = 1; i <= n_images; i++)
        lz_text_add(&chat, "%s<image%d><|vision_start|><|image_pad|><|vision_end|>", i > 1 ? " " : "", i);
    lz_text_add(&chat, "%s<|im_end|>\n<|im_start|>assistant\n", *prompt ? prompt : " ");
    return lz_text_take(&chat, err);
}

/* Counts the tokens before and between the images, which do not depend on the prompt. */
static lz_status measure_chat(qwen21 *m, lz_error *err) {
    int64_t *ids = NULL, n = 0, last = 0;
    lz_status status = lz_tokenize(m->tokenizer, system_text, sizeof system_text - 1, &ids, &m->drop, err);
    lz_host_free(m->ctx, ids);
    ids = NULL;
    char *chat = status ? NULL : write_chat(m, "", MOST_IMAGES, err);
    if (!status) status = chat ? lz_tokenize(m->tokenizer, chat, strlen(chat), &ids, &n, err) : LZ_OUT_OF_MEMORY;
    lz_host_free(m->ctx, chat);
    last = m->drop;
    for (int64_t i = m->drop, image = 0; i < n && image < MOST_IMAGES && !status; i++)
        if (ids[i] == m->image_pad) {
            m->leads[image++] = i - last;
            last = i + 1;
        }
    lz_host_free(m->ctx, ids);
    return status;
}

static lz_status open_parts(qwen21 *m, const lz_parts *parts, lz_error *err) {
    lz_status status = LZ_OK;
    for (int i = 0; i < LZ_PART_PROCESSOR && !status; i++)
        if (i != LZ_PART_VISION) status = lz_parts_need(parts, i, err);
    if (status) return status;
    const char *vision = parts->path[LZ_PART_VISION]; /* NULL: the model takes no images */
    m->text_folder = lz_host_copy(m->ctx, parts->path[LZ_PART_TEXT_ENCODER]);
    if (vision) m->vision_folder = lz_host_copy(m->ctx, vision);
    if (!m->text_folder || (vision && !m->vision_folder)) return lz_out_of_memory(err, LZ_SHOWN);
    status = lz_qwen25_processor_read(&m->processor, m->ctx, parts->path[LZ_PART_PROCESSOR], LZ_QWEN3_PATCH, err);
    if (!status && !(m->tokenizer = lz_parts_tokenizer(parts, err))) status = err->status;
    if (!status && !(m->transformer = lz_qwen_image21_open(m->ctx, parts->path[LZ_PART_TRANSFORMER], err)))
        status = err->status;
    if (!status && !(m->vae = lz_qwen21_vae_open(m->ctx, parts->path[LZ_PART_VAE], err))) status = err->status;
    if (status) return status;
    m->image_pad = lz_tokenizer_id(m->tokenizer, "<|image_pad|>");
    status = check_fit(m, parts, err);
    return status ? status : measure_chat(m, err);
}

static void *open_qwen21(lz_context *ctx, const lz_parts *parts, lz_config *index, const lz_schedule *schedule,
                         lz_error *err) {
    (void)schedule;
    lz_error local = {.status = LZ_OK};
    qwen21 *m = lz_host_alloc(ctx, sizeof *m);
    if (!m) {
        lz_out_of_memory(err, sizeof *m);
        return NULL;
    }
    m->ctx = ctx; /* close_qwen21 needs it */
    if (!(m->text_targets = lz_targets_new(ctx))) lz_out_of_memory(&local, LZ_SHOWN);
    if (!local.status && !read_index(m, index, &local)) open_parts(m, parts, &local);
    if (!local.status) return m;
    if (err) *err = local;
    close_qwen21(m);
    return NULL;
}

/* ---- from files -------------------------------------------------------------------------------------------------- */

/* The sigmas of Turbo, as published in its model_index.json. */
static json_t *make_index(const lz_parts *parts, const lz_signature *signature) {
    (void)signature;
    json_t *index = json_pack("{s:s}", "_class_name", "QwenImage21Pipeline");
    if (lz_parts_are(parts, "distilled", "turbo"))
        json_object_set_new(index, "sample_sigmas",
                            json_pack("[f, f, f, f, f, f, f, f]", 1.0, 0.978453, 0.95418, 0.926626, 0.89508, 0.845148,
                                      0.704534, 0.414568));
    return index;
}

static json_t *make_scheduler(const lz_parts *parts) {
    if (lz_parts_are(parts, "distilled", "turbo")) return json_pack("{s:f}", "shift", 1.0);
    return json_pack("{s:f, s:b, s:f, s:f, s:i, s:i, s:i, s:f}", "shift", 1.0, "use_dynamic_shifting", 1, "base_shift",
                     0.5, "max_shift", 0.9, "base_image_seq_len", 256, "max_image_seq_len", 8192, "num_train_timesteps",
                     1000, "shift_terminal", 0.02);
}

static int64_t token_pixels(const void *model) { return lz_qwen21_vae_pixels(((const qwen21 *)model)->vae); }
static lz_targets *targets(const void *model, bool text) {
    const qwen21 *m = model;
    return text ? m->text_targets : lz_qwen_image21_targets(m->transformer);
}
static int64_t channels(const void *model) { return lz_qwen21_vae_channels(((const qwen21 *)model)->vae); }
static bool distilled(const void *model) { return ((const qwen21 *)model)->turbo; }
static int default_steps(const void *model) {
    (void)model;
    return 40;
}
static void count_images(const void *model, int *least, int *most) {
    *least = 0;
    *most = ((const qwen21 *)model)->vision_folder ? MOST_IMAGES : 0;
}

/* ---- sizes of images --------------------------------------------------------------------------------------------- */

/* The size with the area of the model and the aspect ratio of an image, in whole tokens. */
static lz_units shape_image(const qwen21 *m, const lz_image *image) {
    double ratio = (double)image->width / (double)image->height, width = sqrt(m->area * ratio);
    int64_t w = (int64_t)rint(width / LZ_QWEN3_UNIT), h = (int64_t)rint(width / ratio / LZ_QWEN3_UNIT);
    return (lz_units){h > 0 ? h : 1, w > 0 ? w : 1};
}

static void picture_size(const void *model, const lz_image *images, int n, int64_t *width, int64_t *height) {
    lz_units s = shape_image(model, &images[n - 1]);
    *width = s.w * LZ_QWEN3_UNIT;
    *height = s.h * LZ_QWEN3_UNIT;
}

static lz_reference_size reference_size(const void *model, const lz_image *image, int n) {
    (void)n;
    lz_units s = shape_image(model, image);
    int64_t width = s.w * LZ_QWEN3_UNIT, height = s.h * LZ_QWEN3_UNIT;
    return (lz_reference_size){width, height, width, height, false};
}

/* The text encoder and the transformer see the same pixels: a row for each token. The text encoder sees them blended with
 * white. */
static lz_status view(const void *model, const lz_image *image, lz_image *to, lz_error *err) {
    const qwen21 *m = model;
    lz_reference_size s = reference_size(model, image, 1);
    lz_status status = lz_image_resize(m->ctx, image, s.width, s.height, to, err);
    if (!status) lz_image_apply(to, LZ_ALPHA_OVER_WHITE);
    return status;
}

/* The limits of the processor would resize an image once more, for the text encoder alone. */
static lz_status check_view(const qwen21 *m, lz_units s, lz_error *err) {
    int64_t width = s.w * LZ_QWEN3_UNIT, height = s.h * LZ_QWEN3_UNIT, w = width, h = height;
    lz_qwen25_fit(&m->processor, &w, &h);
    if (w == width && h == height) return LZ_OK;
    return lz_fail(err, LZ_BAD_FILE,
                   "an image of %lld x %lld pixels is outside the limits of processor/preprocessor_config.json",
                   (long long)width, (long long)height);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* Are the images where measure_chat found them, and is there text after the last one? split_prefix relies on both. */
static bool is_measured(const qwen21 *m, const int64_t *ids, int64_t n, int n_images) {
    int64_t next = m->drop; /* the token after the last image */
    int image = 0;
    for (int64_t i = 0; i < n && image < n_images; i++) {
        if (ids[i] != m->image_pad) continue;
        if (i != next + m->leads[image++]) return false;
        next = i + 1;
    }
    return image == n_images && next < n;
}

static lz_status tokens(const void *model, const char *prompt, const lz_image *images, int n_images, lz_prompt *to,
                        lz_error *err) {
    const qwen21 *m = model;
    lz_units units[LZ_MAX_IMAGES];
    lz_status status = LZ_OK;
    int64_t bad = lz_utf8_error(prompt, strlen(prompt)); /* an offset in the prompt, not in the chat template */
    if (bad >= 0) return lz_fail(err, LZ_BAD_ARGUMENT, "the prompt is not valid UTF-8 at byte %lld", (long long)bad);
    for (int i = 0; i < n_images && !status; i++) status = check_view(m, units[i] = shape_image(m, &images[i]), err);
    if (status) return status;
    char *chat = write_chat(m, prompt, n_images, err);
    if (!chat) return LZ_OUT_OF_MEMORY;
    int64_t *found = NULL, n = 0;
    status = lz_tokenize(m->tokenizer, chat, strlen(chat), &found, &n, err);
    lz_host_free(m->ctx, chat);
    if (!status && n > POSITIONS)
        status = lz_fail(err, LZ_BAD_ARGUMENT, "the prompt has %lld tokens, more than the %d that this model can place",
                         (long long)n, POSITIONS);
    if (!status && !is_measured(m, found, n, n_images))
        status = lz_fail(err, LZ_BAD_FILE,
                         "the tokenizer splits the chat template in another way than that of Qwen-Image 2.1; use the "
                         "tokenizer in processor/ of Qwen/Qwen-Image-2.1");
    if (!status) status = lz_image_prompt(m->ctx, found, n, m->image_pad, units, n_images, INT64_MAX, to, err);
    lz_host_free(m->ctx, found);
    return status;
}

static lz_array *look(const void *text, lz_array *picture) {
    return lz_qwen3_vision_rows(((const reader *)text)->vision, picture);
}

/* Drops the rows of the system prompt; the later tokens have attended to it. */
static lz_array *features(const void *text, lz_prompt prompt) {
    const reader *t = text;
    bool images = prompt.n == 4;
    lz_array *all = lz_qwen3_vl_features(t->language, prompt.in[0], NULL, prompt.in[1], images ? prompt.in[2] : NULL,
                                         images ? prompt.in[3] : NULL);
    return lz_slice(all, 0, t->drop, lz_shape(all).at[0], 1);
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

static int colours(const void *model) {
    (void)model;
    return 4;
}
static lz_array *encode(const void *model, lz_array *picture) {
    return lz_qwen21_vae_encode(((const qwen21 *)model)->vae, picture);
}
static lz_array *decode(const void *model, lz_array *x, int64_t h, int64_t w) {
    return lz_qwen21_vae_decode(((const qwen21 *)model)->vae, x, h, w);
}

static double mu(const void *model, const lz_schedule *schedule, int64_t n_tokens, int steps) {
    (void)model;
    (void)steps;
    return lz_schedule_line(schedule, PER_TOKEN * n_tokens);
}

/* ---- denoising --------------------------------------------------------------------------------------------------- */

enum { MAX_RUNS = 2 * MOST_IMAGES + 1 };

/* The runs of a prompt's prefix; returns their number. Image k is run 2 k + 1. */
static int split_prefix(const qwen21 *m, const lz_layout *l, int prompt, lz_qwen_image21_run runs[MAX_RUNS]) {
    int64_t rest = l->text_tokens[prompt]; /* with a row for each token of an image */
    int n = 0;
    for (int k = 0; k < l->n_references; k++) {
        int64_t size = l->reference_sizes[k][0] * l->reference_sizes[k][1];
        runs[n++] = (lz_qwen_image21_run){.tokens = m->leads[k]};
        runs[n++] = (lz_qwen_image21_run){.tokens = PER_TOKEN * size, .image = true};
        rest -= m->leads[k] + size;
    }
    runs[n++] = (lz_qwen_image21_run){.tokens = rest};
    return n;
}

/* Places the latents of an image, [h, w] tokens, whose coordinates are centred; an odd row or column is on the negative
 * side. Returns the position after it. */
static int64_t place_image(int64_t position, int64_t h, int64_t w, lz_place *to) {
    h *= SIDE;
    w *= SIDE;
    for (int64_t i = 0; i < h * w; i++) to[i] = (lz_place){{position, i / w - (h - h / 2), i % w - (w - w / 2)}};
    return position + (h > w ? h : w);
}

static void place_prompt(const qwen21 *m, const lz_layout *l, int prompt, lz_slots *to) {
    lz_qwen_image21_run runs[MAX_RUNS];
    int n = split_prefix(m, l, prompt, runs);
    int64_t all = PER_TOKEN * l->h * l->w, at = 0, position = 0;
    for (int i = 0; i < n; i++) all += runs[i].tokens;
    lz_place *places = lz_host_alloc(m->ctx, (size_t)all * sizeof *places);
    if (!places) {
        to->tables[2 * prompt] = to->tables[2 * prompt + 1] = lz_poison(m->ctx, LZ_OUT_OF_MEMORY, "places");
        return;
    }
    for (int i = 0; i < n; at += runs[i++].tokens)
        if (runs[i].image)
            position = place_image(position, l->reference_sizes[i / 2][0], l->reference_sizes[i / 2][1], places + at);
        else
            for (int64_t k = 0; k < runs[i].tokens; k++, position++)
                places[at + k] = (lz_place){{position, position, position}};
    place_image(position, l->h, l->w, places + at);
    lz_qwen_image21_rope(m->transformer, places, all, &to->tables[2 * prompt], &to->tables[2 * prompt + 1]);
    lz_host_free(m->ctx, places);
}

static void make_tables(const void *model, const lz_layout *l, lz_slots *to) {
    for (int i = 0; i < 2; i++)
        if (l->text_tokens[i]) place_prompt(model, l, i, to);
}

static void make_rows(const void *model, lz_array *times, lz_slots *to) {
    const qwen21 *m = model;
    lz_array *unused;
    lz_qwen_image21_modulation(m->transformer, times, &to->rows[0], &to->rows[1]);
    lz_qwen_image21_modulation(m->transformer, lz_full(m->ctx, LZ_DIMS(1), LZ_F32, 0), &to->clean_row, &unused);
}

/* Tokens [h w, 4c] -> latents [2h 2w, c] */
static lz_array *to_latents(lz_array *x, int64_t h, int64_t w) {
    x = lz_flux2_unpatch(x, h, w);
    return lz_reshape(x, LZ_DIMS(PER_TOKEN * h * w, lz_shape(x).at[3]));
}

static lz_array *prefix(const void *model, const lz_layout *l, const lz_slots *in, int prompt) {
    const qwen21 *m = model;
    lz_qwen_image21_run runs[MAX_RUNS];
    lz_array *parts[MAX_RUNS], *text = lz_qwen_image21_text(m->transformer, in->features[prompt]);
    int n = split_prefix(m, l, prompt, runs);
    int64_t row = 0, token = 0; /* next row of the text, next token of the references */
    for (int i = 0; i < n; i++) {
        int64_t rows = runs[i].image ? runs[i].tokens / PER_TOKEN : runs[i].tokens;
        if (runs[i].image) {
            lz_array *image = lz_slice(in->references, 0, token, token + rows, 1);
            const int64_t *size = l->reference_sizes[i / 2];
            parts[i] = lz_qwen_image21_image(m->transformer, to_latents(image, size[0], size[1]));
            token += rows;
        } else
            parts[i] = lz_slice(text, 0, row, row + rows, 1);
        row += rows;
    }
    lz_array *x = n > 1 ? lz_concat(parts, n, 0) : parts[0];
    return lz_qwen_image21_prefix(m->transformer, x, runs, n, in->clean_row, in->tables[2 * prompt],
                                  in->tables[2 * prompt + 1]);
}

static lz_array *velocity(const void *model, const lz_layout *l, const lz_slots *in, int prompt, lz_array *x,
                          lz_array *const *rows) {
    const qwen21 *m = model;
    lz_array *v = lz_qwen_image21_velocity(m->transformer, to_latents(x, l->h, l->w), in->context[prompt], rows[0],
                                           rows[1], in->tables[2 * prompt], in->tables[2 * prompt + 1]);
    return lz_flux2_patch(lz_reshape(v, LZ_DIMS(1, SIDE * l->h, SIDE * l->w, lz_shape(v).at[1])));
}

const lz_family lz_family_qwen_image21 = {
    .name = "Qwen-Image 2.1",
    .pipelines = {"QwenImage21Pipeline"},
    .parts = {&lz_names_qwen_image21, &lz_names_qwen3, &lz_names_qwen3_vision, &lz_names_qwen21_vae},
    .sources = {[LZ_PART_TEXT_ENCODER] = "Qwen3-VL-8B: text_encoder/ of Qwen/Qwen-Image-2.1",
                [LZ_PART_VISION] = "text_encoder/ of Qwen/Qwen-Image-2.1",
                [LZ_PART_VAE] = "vae/ of Qwen/Qwen-Image-2.1",
                [LZ_PART_TOKENIZER] = "processor/ of Qwen/Qwen-Image-2.1; a GGUF file of the text encoder has its own"},
    .index = make_index,
    .scheduler = make_scheduler,
    .open = open_qwen21,
    .close = close_qwen21,
    .targets = targets,
    .token_pixels = token_pixels,
    .channels = channels,
    .patch = SIDE,
    .distilled = distilled,
    .default_steps = default_steps,
    .default_guidance = 1,
    .default_negative = "",
    .count_images = count_images,
    .picture_size = picture_size,
    .reference_size = reference_size,
    .tokens = tokens,
    .open_text = open_text,
    .check_text = check_text,
    .features = features,
    .close_text = close_text,
    .view = view,
    .look = look,
    .colours = colours,
    .encode = encode,
    .decode = decode,
    .mu = mu,
    .tables = make_tables,
    .rows = make_rows,
    .prefix = prefix,
    .velocity = velocity,
};
