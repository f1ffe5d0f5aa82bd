/* qwen_image.c: Qwen-Image as a family: the Qwen2.5-VL text encoder, the Qwen-Image transformer and autoencoder; for
 * pictures from text, edits of images (Edit; EditPlus, which is 2509 and 2511), or layers of an image (Layered). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "io/image.h"
#include "models/qwen25.h"
#include "models/qwen25_vision.h"
#include "models/qwen_image.h"
#include "models/qwen_vae.h"
#include "pipeline/family.h"
#include "pipeline/image_prompt.h"
#include "text/split.h"

/* The differences between the pipelines. */
typedef struct variant {
    /* picture: the text in the prompt for each image, with or without its number; NULL: images are not in the prompt. */
    const char *pipeline, *system, *picture;
    /* Tokens before the user's prompt: encoded, but not passed to the transformer. */
    int64_t drop;
    int64_t view_area;      /* pixels of an image for the text encoder */
    int least, most, steps; /* number of reference images; default steps */
    int layers;             /* default number of layers; 0: none are made */
} variant;

#define SEEN "<|vision_start|><|image_pad|><|vision_end|>"
static const char painter[] =
    "Describe the image by detailing the color, shape, size, texture, quantity, text, spatial "
    "relationships of the objects and background:",
                  editor[] =
                      "Describe the key features of the input image (color, shape, size, texture, objects, "
                      "background), then explain how the user's text instruction should alter or modify the image. "
                      "Generate a new image that meets the user's requirements while maintaining consistency with "
                      "the original input where appropriate.";
enum { AREA = 1024 * 1024, LAYER_SIDE = 640, LARGE_LAYER_SIDE = 1024, TEXT = 0, EDIT, EDIT_PLUS, LAYERED };
/* In the index of a model from files: the variant depends on whether images are given. */
static const char by_images[] = "_variant_by_images";
static const variant variants[] = {
    {"QwenImagePipeline", painter, NULL, 34, 0, 0, 0, 50, 0},
    {"QwenImageEditPipeline", editor, SEEN, 64, AREA, 1, 1, 50, 0},
    {"QwenImageEditPlusPipeline", editor, "Picture %d: " SEEN, 64, 384 * 384, 1, LZ_MAX_IMAGES, 40, 0},
    {"QwenImageLayeredPipeline", painter, NULL, 34, 0, 1, 1, 50, 4},
};

typedef struct qwen {
    lz_context *ctx;
    /* Of a picture without reference images, and with them. They differ only if neither the tensors nor the name of a
     * file tell the variant. */
    const variant *variant, *looking;
    char *text_folder, *vision_folder;
    lz_qwen25_processor processor; /* of models that take images */
    lz_tokenizer *tokenizer;
    lz_qwen_image *transformer;
    lz_qwen_vae *vae;
    int64_t text_length, image_pad, area; /* area: pixels of an image for the transformer */
    bool distilled;
    bool normalise;           /* guidance keeps the length of each token's velocity */
    lz_targets *text_targets; /* owned; of the text encoder, which is closed after each prompt */
} qwen;

static const variant *variant_for(const qwen *m, int n_images) { return n_images ? m->looking : m->variant; }

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void close_qwen(void *model) {
    qwen *m = model;
    if (!m) return;
    lz_qwen_vae_close(m->vae);
    lz_qwen_image_close(m->transformer);
    lz_tokenizer_free(m->tokenizer);
    lz_targets_free(m->text_targets);
    lz_host_free(m->ctx, m->text_folder);
    lz_host_free(m->ctx, m->vision_folder);
    lz_host_free(m->ctx, m);
}

static lz_status read_index(qwen *m, lz_config *index, lz_error *err) {
    const char *name = lz_config_text(index, "_class_name");
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
        if (name && !strcmp(variants[i].pipeline, name)) m->variant = &variants[i];
    if (!m->variant) lz_config_refuse(index, "'_class_name' is not one of Qwen-Image's");
    m->looking = lz_config_bool(index, by_images, false) ? &variants[EDIT_PLUS] : m->variant;
    m->text_length = lz_config_int(index, "max_sequence_length", 512, 1, 1 << 20);
    bool layered = m->variant && m->variant->layers;
    int64_t area = layered ? LAYER_SIDE * LAYER_SIDE : AREA;
    m->area = lz_config_int(index, "vae_image_size", area, 32 * 32, 64 * AREA); /* a constant in diffusers */
    /* The pipeline of layers in diffusers takes this as an argument; the other pipelines always do it. */
    m->normalise = lz_config_bool(index, "cfg_normalize", !layered);
    if (!m->normalise && !layered) lz_config_refuse(index, "'cfg_normalize' is for QwenImageLayeredPipeline");
    m->distilled = lz_config_bool(index, "is_distilled", false);
    if (index->err.status && err) *err = index->err;
    return index->err.status;
}

/* Lightning models are recognised by their schedule: one shift for all sizes, and no terminal sigma. */
static bool is_lightning(const lz_schedule *s) {
    return s->dynamic && s->terminal == 0 && s->base_shift == s->max_shift;
}

typedef struct reader { /* the text encoder */
    lz_context *ctx;
    lz_qwen25 *language;
    lz_qwen25_vision *vision; /* NULL: opened without images */
    int64_t drop[2];          /* without images, and with them */
} reader;

static void close_text(void *text) {
    reader *t = text;
    if (!t) return;
    lz_qwen25_vision_close(t->vision);
    lz_qwen25_close(t->language);
    lz_host_free(t->ctx, t);
}

static void *open_text(const void *model, bool images, lz_error *err) {
    const qwen *m = model;
    reader *t = lz_host_alloc(m->ctx, sizeof *t);
    if (!t) {
        lz_out_of_memory(err, sizeof *t);
        return NULL;
    }
    t->ctx = m->ctx;
    t->drop[0] = m->variant->drop;
    t->drop[1] = m->looking->drop;
    t->language = lz_qwen25_open(m->ctx, m->text_folder, m->text_targets, err);
    if (t->language && images) t->vision = lz_qwen25_vision_open(m->ctx, m->vision_folder, &m->processor, err);
    if (t->language && (t->vision || !images)) return t;
    close_text(t);
    return NULL;
}

static lz_status check_fit(qwen *m, const lz_parts *parts, lz_error *err) {
    lz_status status = lz_parts_check_latents(parts, lz_qwen_image_channels(m->transformer),
                                              4 * lz_qwen_vae_channels(m->vae), err);
    if (status) return status;
    bool layered = m->variant->layers, has_layers = lz_qwen_image_kinds(m->transformer);
    if (layered != has_layers || lz_qwen_image_layered(m->transformer) != layered)
        return lz_fail(err, LZ_BAD_FILE, "%s: 'use_additional_t_cond' and 'use_layer3d_rope' must both be %s for %s",
                       LZ_SHOW_TEXT(lz_parts_label(parts, LZ_PART_TRANSFORMER)), layered ? "true" : "false",
                       m->variant->pipeline);
    if (layered && lz_qwen_vae_colours(m->vae) != 4)
        return lz_fail(err, LZ_BAD_FILE, "%s: layers have opacity, and this autoencoder has none; use that of %s",
                       LZ_SHOW_TEXT(lz_parts_label(parts, LZ_PART_VAE)), "Qwen/Qwen-Image-Layered");
    if (!layered && lz_qwen_vae_colours(m->vae) == 4)
        return lz_fail(err, LZ_BAD_FILE, "%s: this autoencoder has opacity, and %s has none; use that of %s",
                       LZ_SHOW_TEXT(lz_parts_label(parts, LZ_PART_VAE)), m->variant->pipeline, "Qwen/Qwen-Image");
    if (m->looking->picture && m->image_pad < 0)
        return lz_fail(err, LZ_BAD_FILE, "%s: the tokenizer has no <|image_pad|>, which stands for an image",
                       LZ_SHOW_TEXT(lz_parts_label(parts, LZ_PART_TOKENIZER)));
    return LZ_OK;
}

static lz_status check_text(const void *model, const void *text, const lz_parts *parts, lz_error *err) {
    const qwen *m = model;
    return lz_parts_check_features(parts, lz_qwen25_width(((const reader *)text)->language),
                                   lz_qwen_image_text_width(m->transformer), "", err);
}

static void *open_qwen(lz_context *ctx, const lz_parts *parts, lz_config *index, const lz_schedule *schedule,
                       lz_error *err) {
    lz_error local = {.status = LZ_OK};
    qwen *m = lz_host_alloc(ctx, sizeof *m);
    if (m) m->ctx = ctx; /* close_qwen needs it */
    bool fine = m && (m->text_targets = lz_targets_new(ctx));
    if (!fine) lz_out_of_memory(&local, sizeof *m);
    fine = fine && !read_index(m, index, &local);
    for (int i = 0; i < LZ_PART_PROCESSOR && fine; i++)
        if (i != LZ_PART_VISION || m->looking->picture) fine = !lz_parts_need(parts, i, &local);
    if (fine) {
        m->text_folder = lz_host_copy(ctx, parts->path[LZ_PART_TEXT_ENCODER]);
        if (m->looking->picture) m->vision_folder = lz_host_copy(ctx, parts->path[LZ_PART_VISION]);
        fine = m->text_folder && (m->vision_folder || !m->looking->picture);
        if (!fine) lz_out_of_memory(&local, LZ_SHOWN);
    }
    if (fine && m->looking->picture)
        fine = !lz_qwen25_processor_read(&m->processor, ctx, parts->path[LZ_PART_PROCESSOR], 14, &local);
    if (fine && is_lightning(schedule) && !m->variant->layers) m->distilled = true;
    fine = fine && (m->tokenizer = lz_parts_tokenizer(parts, &local)) &&
           (m->transformer = lz_qwen_image_open(ctx, parts->path[LZ_PART_TRANSFORMER], &local)) &&
           (m->vae = lz_qwen_vae_open(ctx, parts->path[LZ_PART_VAE], &local));
    if (fine) m->image_pad = lz_tokenizer_id(m->tokenizer, "<|image_pad|>");
    fine = fine && !check_fit(m, parts, &local);
    if (local.status && err) *err = local;
    if (fine) return m;
    close_qwen(m);
    return NULL;
}

/* ---- from files -------------------------------------------------------------------------------------------------- */

/* Does the name of the file tell that it makes pictures from text? */
static bool is_named_text(const lz_parts *parts) {
    static const char *const words[] = {"qwen_image", "qwen-image", "qwenimage", "2512", "t2i"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (lz_parts_are(parts, "text", words[i])) return true;
    return false;
}

/* 2509 and 2511 look at several images. Files of ComfyUI have a marker in 2511; otherwise only names tell, or else
 * whether images are given, if there is a vision encoder. */
static json_t *make_index(const lz_parts *parts, const lz_signature *signature) {
    bool marked = !parts->variant && signature->zero_time;
    bool plus = marked || lz_parts_are(parts, "edit-plus", "2509") || lz_parts_are(parts, "edit-plus", "2511");
    bool edit = lz_parts_are(parts, "edit", "edit"), four = lz_parts_are(parts, "", "4step");
    bool either = !parts->variant && !plus && !edit && !is_named_text(parts) && parts->path[LZ_PART_VISION];
    int which = signature->layered ? LAYERED : plus ? EDIT_PLUS : edit ? EDIT : TEXT;
    json_t *index = json_pack("{s:s, s:b}", "_class_name", variants[which].pipeline, by_images,
                              either && !signature->layered);
    if (four) json_object_set_new(index, "num_inference_steps", json_integer(4));
    return index;
}

/* Models with a Lightning LoRA merged into them are shifted by 3 at all sizes. */
static json_t *make_scheduler(const lz_parts *parts) {
    const char *pipeline = json_string_value(json_object_get(parts->index.root, "_class_name"));
    if (pipeline && !strcmp(pipeline, variants[LAYERED].pipeline))
        return json_pack("{s:b, s:s, s:i}", "use_dynamic_shifting", 1, "time_shift_type", "linear",
                         "num_train_timesteps", 1000);
    bool lightning = lz_parts_are(parts, "distilled", "lightning") || lz_parts_are(parts, "distilled", "rapid");
    json_t *fields = json_pack("{s:f, s:b, s:f, s:f, s:i, s:i, s:i}", "shift", 1.0, "use_dynamic_shifting", 1,
                               "base_shift", lightning ? log(3) : 0.5, "max_shift", lightning ? log(3) : 0.9,
                               "base_image_seq_len", 256, "max_image_seq_len", 8192, "num_train_timesteps", 1000);
    if (!lightning) json_object_set_new(fields, "shift_terminal", json_real(0.02));
    return fields;
}

static int64_t token_pixels(const void *model) { return lz_qwen_vae_pixels(((const qwen *)model)->vae); }
static lz_targets *targets(const void *model, bool text) {
    const qwen *m = model;
    return text ? m->text_targets : lz_qwen_image_targets(m->transformer);
}
static lz_status build(const void *model, lz_error *err) {
    return lz_qwen_image_build(((const qwen *)model)->transformer, err);
}
static int64_t channels(const void *model) { return lz_qwen_vae_channels(((const qwen *)model)->vae); }
static bool distilled(const void *model) { return ((const qwen *)model)->distilled; }
static int default_steps(const void *model) {
    const qwen *m = model;
    return m->distilled ? 8 : m->variant->steps;
}
static int layers(const void *model) { return ((const qwen *)model)->variant->layers; }
static int line(const void *model) { return layers(model) ? LZ_LINE_TO_ZERO : LZ_LINE_NUMPY; }
static void count_images(const void *model, int *least, int *most) {
    *least = ((const qwen *)model)->variant->least;
    *most = ((const qwen *)model)->looking->most;
}

/* ---- sizes of images --------------------------------------------------------------------------------------------- */

typedef struct size {
    int64_t width, height;
} size;

/* The size with this area and the aspect ratio of an image, in multiples of 32 pixels. */
static size shape_area(const lz_image *image, double area) {
    double ratio = (double)image->width / (double)image->height, width = sqrt(area * ratio);
    size s = {32 * (int64_t)rint(width / 32), 32 * (int64_t)rint(width / ratio / 32)};
    if (s.width < 32) s.width = 32;
    if (s.height < 32) s.height = 32;
    return s;
}

/* Edit models: a megapixel with the aspect ratio of the last image. Others: the size of the start image. */
static void picture_size(const void *model, const lz_image *images, int n, int64_t *width, int64_t *height) {
    const qwen *m = model;
    size s = {images[0].width, images[0].height};
    if (m->looking->picture) s = shape_area(&images[n - 1], AREA);
    *width = s.width;
    *height = s.height;
}

/* The area is that of a square of the resolution, 640 by default. */
static lz_status layer_size(const void *model, const lz_image *image, int resolution, int64_t *width, int64_t *height,
                            lz_error *err) {
    if (resolution && resolution != LAYER_SIDE && resolution != LARGE_LAYER_SIDE)
        return lz_fail(err, LZ_BAD_ARGUMENT, "a resolution of %d is not possible; layers have %d or %d", resolution,
                       LAYER_SIDE, LARGE_LAYER_SIDE);
    double times = resolution ? (double)resolution / LAYER_SIDE : 1;
    size s = shape_area(image, (double)((const qwen *)model)->area * times * times);
    *width = s.width;
    *height = s.height;
    return LZ_OK;
}

static lz_reference_size reference_size(const void *model, const lz_image *image, int n) {
    (void)n;
    size s = shape_area(image, (double)((const qwen *)model)->area);
    return (lz_reference_size){s.width, s.height, s.width, s.height, false};
}

/* The size of an image for the text encoder: view_area (*before), then multiples of its unit within the processor's
 * limits. */
static size view_size(const qwen *m, const lz_image *image, size *before) {
    size s = *before = shape_area(image, (double)m->looking->view_area);
    lz_qwen25_fit(&m->processor, &s.width, &s.height);
    return s;
}

static lz_status view(const void *model, const lz_image *image, lz_image *to, lz_error *err) {
    const qwen *m = model;
    size before, s = view_size(m, image, &before);
    lz_image middle = {0};
    lz_status status = lz_image_resize(m->ctx, image, before.width, before.height, &middle, err);
    if (!status) status = lz_image_filter(m->ctx, &middle, s.width, s.height, LZ_BICUBIC, to, err);
    lz_image_free(m->ctx, &middle);
    return status;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* The chat template with the prompt, and one <|image_pad|> for each image. */
static char *write_chat(const qwen *m, const char *prompt, int n_images, lz_error *err) {
    lz_text chat = {.ctx = m->ctx};
    const variant *v = variant_for(m, n_images);
    lz_text_add(&chat, "<|im_start|>system\n%s<|im_end|>\n<|im_start|>user\n", v->system);
    for (int i = 0; i < n_images; i++) {
        if (strstr(v->picture, "%d")) lz_text_add(&chat, "Picture %d: ", i + 1);
        lz_text_add(&chat, SEEN);
    }
    lz_text_add(&chat, "%s<|im_end|>\n<|im_start|>assistant\n", prompt);
    return lz_text_take(&chat, err);
}

static lz_status tokens(const void *model, const char *prompt, const lz_image *images, int n_images, lz_prompt *to,
                        lz_error *err) {
    const qwen *m = model;
    int64_t bad = lz_utf8_error(prompt, strlen(prompt)); /* an offset in the prompt, not in the chat template */
    if (bad >= 0) return lz_fail(err, LZ_BAD_ARGUMENT, "the prompt is not valid UTF-8 at byte %lld", (long long)bad);
    char *chat = write_chat(m, prompt, n_images, err);
    if (!chat) return LZ_OUT_OF_MEMORY;
    const variant *v = variant_for(m, n_images);
    int64_t *found = NULL, n = 0;
    lz_units units[LZ_MAX_IMAGES];
    for (int i = 0; i < n_images; i++) {
        size before, s = view_size(m, &images[i], &before);
        units[i] = (lz_units){s.height / LZ_QWEN25_UNIT, s.width / LZ_QWEN25_UNIT};
    }
    lz_status status = lz_tokenize(m->tokenizer, chat, strlen(chat), &found, &n, err);
    lz_host_free(m->ctx, chat);
    if (status) return status;
    /* Prompts with images are never truncated. */
    int64_t most = v->picture ? INT64_MAX : v->drop + m->text_length;
    status = lz_image_prompt(m->ctx, found, n, m->image_pad, units, n_images, most, to, err);
    lz_host_free(m->ctx, found);
    return status;
}

static lz_array *look(const void *text, lz_array *picture) {
    return lz_qwen25_vision_rows(((const reader *)text)->vision, picture);
}

/* Drops the rows of the system prompt; the later tokens have attended to it. */
static lz_array *features(const void *text, lz_prompt prompt) {
    const reader *t = text;
    bool images = prompt.n == 4;
    lz_array *all = lz_qwen25_features(t->language, prompt.in[0], prompt.in[1], images ? prompt.in[2] : NULL,
                                       images ? prompt.in[3] : NULL);
    return lz_slice(all, 0, t->drop[images], lz_shape(all).at[0], 1);
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

static int colours(const void *model) { return lz_qwen_vae_colours(((const qwen *)model)->vae); }
static lz_array *encode(const void *model, lz_array *picture) {
    return lz_qwen_vae_encode(((const qwen *)model)->vae, picture);
}
static lz_array *decode(const void *model, lz_array *x, int64_t h, int64_t w) {
    return lz_qwen_vae_decode(((const qwen *)model)->vae, x, h, w);
}

static double mu(const void *model, const lz_schedule *schedule, int64_t n_tokens, int steps) {
    (void)steps;
    if (layers(model)) return sqrt((double)n_tokens / 256);
    return lz_schedule_line(schedule, n_tokens);
}

/* ---- denoising --------------------------------------------------------------------------------------------------- */

/* The picture is image 0, references are 1, 2, ... The frames of layers are 0, 1, ..., and their reference is -1.
 * Coordinates are centred; an odd row or column is on the negative side. Returns the first position that is beyond the
 * image in both directions; text begins after the largest of them, and of layers after their number too. */
static int64_t place_image(int64_t image, int64_t h, int64_t w, lz_place *to) {
    for (int64_t i = 0; i < h * w; i++) to[i] = (lz_place){{image, i / w - (h - h / 2), i % w - (w - w / 2)}};
    return h > w ? h / 2 : w / 2;
}

static void make_tables(const void *model, const lz_layout *l, lz_slots *to) {
    const qwen *m = model;
    int64_t n = l->frames * l->h * l->w, text = 0, at = 0, begin = l->frames > 1 ? l->frames : 0;
    for (int k = 0; k < l->n_references; k++) n += l->reference_sizes[k][0] * l->reference_sizes[k][1];
    for (int i = 0; i < 2; i++)
        if (l->text_tokens[i] > text) text = l->text_tokens[i];
    lz_place *places = lz_host_alloc(m->ctx, (size_t)(n > text ? n : text) * sizeof *places);
    if (!places) {
        for (int i = 0; i < 4; i++) to->tables[i] = lz_poison(m->ctx, LZ_OUT_OF_MEMORY, "places");
        return;
    }
    for (int64_t k = 0; k < l->frames + l->n_references; k++) {
        int64_t reference = k - l->frames; /* below 0: a frame */
        int64_t h = reference < 0 ? l->h : l->reference_sizes[reference][0],
                w = reference < 0 ? l->w : l->reference_sizes[reference][1];
        int64_t behind = place_image(l->frames > 1 && reference >= 0 ? -1 : k, h, w, places + at);
        if (behind > begin) begin = behind;
        at += h * w;
    }
    lz_qwen_image_rope(m->transformer, places, n, &to->tables[2], &to->tables[3]);
    for (int64_t i = 0; i < text; i++) places[i] = (lz_place){{begin + i, begin + i, begin + i}};
    lz_qwen_image_rope(m->transformer, places, text, &to->tables[0], &to->tables[1]);
    lz_host_free(m->ctx, places);
}

static void make_rows(const void *model, lz_array *times, lz_slots *to) {
    const qwen *m = model;
    lz_qwen_image_time time = lz_qwen_image_modulation(m->transformer, times);
    to->rows[0] = time.image;
    to->rows[1] = time.text;
    to->rows[2] = time.out;
    to->clean_row = time.still;
}

static lz_array *context(const void *model, lz_array *text) {
    return lz_qwen_image_context(((const qwen *)model)->transformer, text);
}

static lz_array *velocity(const void *model, const lz_layout *l, const lz_slots *in, int prompt, lz_array *x,
                          lz_array *const *rows) {
    const qwen *m = model;
    lz_qwen_image_time time = {rows[0], rows[1], rows[2], in->clean_row};
    lz_qwen_image_tables tables = {in->tables[0], in->tables[1], in->tables[2], in->tables[3]};
    if (in->references) x = lz_concat((lz_array *[]){x, in->references}, 2, 0);
    return lz_qwen_image_velocity(m->transformer, x, in->context[prompt], time, tables, l->frames * l->h * l->w);
}

/* Guidance changes the direction of each token, and keeps its length; of layers only if that is asked for. */
static lz_array *guide(const void *model, lz_array *v, lz_array *away, lz_array *guidance) {
    lz_array *led = lz_add(away, lz_mul(lz_sub(v, away), guidance));
    if (!((const qwen *)model)->normalise) return led;
    lz_array *was = lz_sum(lz_square(v), LZ_DIMS(1), true), *is = lz_sum(lz_square(led), LZ_DIMS(1), true);
    return lz_mul(led, lz_sqrt(lz_div(was, lz_add(is, 1e-12))));
}

const lz_family lz_family_qwen_image = {
    .name = "Qwen-Image",
    .pipelines = {"QwenImagePipeline", "QwenImageEditPipeline", "QwenImageEditPlusPipeline",
                  "QwenImageLayeredPipeline"},
    .parts = {&lz_names_qwen_image, &lz_names_qwen25, &lz_names_qwen25_vision, &lz_names_qwen_vae},
    .sources =
        {[LZ_PART_TEXT_ENCODER] = ("Qwen2.5-VL-7B, such as qwen_2.5_vl_7b.safetensors of Comfy-Org/Qwen-Image_ComfyUI, "
                                   "text_encoder/ of Qwen/Qwen-Image, or a GGUF file"),
         [LZ_PART_VISION] = "the file with mmproj in its name, from where the GGUF file of Qwen2.5-VL-7B is",
         [LZ_PART_VAE] = "qwen_image_vae.safetensors of Comfy-Org/Qwen-Image_ComfyUI, or vae/ of Qwen/Qwen-Image",
         [LZ_PART_TOKENIZER] = "tokenizer/ of Qwen/Qwen-Image; a GGUF file of the text encoder has its own"},
    .index = make_index,
    .scheduler = make_scheduler,
    .open = open_qwen,
    .close = close_qwen,
    .targets = targets,
    .build = build,
    .few_step_shift = 3,
    .token_pixels = token_pixels,
    .channels = channels,
    .patch = 2,
    .distilled = distilled,
    .default_steps = default_steps,
    .default_guidance = 4,
    .default_negative = " ",
    .count_images = count_images,
    .mask_strength = 0.6,
    .layers = layers,
    .layer_size = layer_size,
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
    .line = line,
    .tables = make_tables,
    .rows = make_rows,
    .context = context,
    .velocity = velocity,
    .guide = guide,
};
