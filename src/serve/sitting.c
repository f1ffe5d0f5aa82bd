/* sitting.c: one picture in the worker process: its options, its progress, its file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "describe.h"
#include "worker.h"

enum { THUMB_SIDE = 320, THUMB_QUALITY = 80 };

bool sitting_failed(sitting *s, const char *code, lz_status status, const char *text) {
    s->code = code;
    if (status) s->err.status = status;
    if (text) snprintf(s->err.text, sizeof s->err.text, "%s", text);
    return false;
}

const char *code_of(lz_status status) {
    switch (status) {
    case LZ_BAD_ARGUMENT:
    case LZ_BAD_SHAPE: return "invalid_value";
    case LZ_OUT_OF_MEMORY: return "out_of_memory";
    case LZ_DEVICE_FAILED: return "device_failed";
    case LZ_CANCELLED: return "cancelled";
    default: return "generation_failed";
    }
}

static bool failed_with(sitting *s) { return sitting_failed(s, code_of(s->err.status), LZ_OK, NULL); }

/* ---- before ------------------------------------------------------------------------------------------------------ */

static void invert(lz_image *image) {
    int64_t n = image->width * image->height * (image->channels ? image->channels : 3);
    for (int64_t i = 0; i < n; i++) image->pixels[i] = (uint8_t)(255 - image->pixels[i]);
}

/* Says which image cannot be used, and why. The library's text begins with the path, which is not for clients. */
static bool image_failed(sitting *s, const char *which, const char *path) {
    char text[sizeof s->err.text];
    bool memory = s->err.status == LZ_OUT_OF_MEMORY, named = strncmp(s->err.text, path, strlen(path)) == 0;
    const char *why = !*path ? ": is gone" : named ? s->err.text + strlen(path) : ": cannot be decoded";
    snprintf(text, sizeof text, "%s%s", which, why);
    return sitting_failed(s, memory ? "out_of_memory" : "invalid_image", LZ_OK, memory ? NULL : text);
}

static bool read_images(sitting *s) {
    lz_context *ctx = s->painter->ctx;
    const json_t *files = json_object_get(s->message, "files");
    size_t n = json_array_size(files);
    if (n > LZ_MAX_IMAGES) return sitting_failed(s, "invalid_value", LZ_BAD_ARGUMENT, "there are too many images");
    for (size_t i = 0; i < n; i++) {
        const char *path = json_string_value(json_array_get(files, i));
        char which[24];
        snprintf(which, sizeof which, "image %zu", i + 1);
        if (lz_image_read_alpha(ctx, path, &s->images[i], &s->err) != LZ_OK) return image_failed(s, which, path);
        s->n_images++;
    }
    const char *mask = json_string_value(json_object_get(s->message, "mask"));
    if (!mask) return true;
    if (lz_image_read_mask(ctx, mask, &s->mask, &s->err) != LZ_OK) return image_failed(s, "mask", mask);
    if (json_is_true(json_object_get(s->settings, "mask_invert"))) invert(&s->mask);
    return true;
}

static bool watch(void *user, const lz_progress *now);

void sitting_options(sitting *s) {
    const json_t *a = s->settings;
    const char *preview = text_of(a, "preview"), *background = text_of(a, "background");
    s->options = LZ_PICTURE_OPTIONS(.prompt = text_of(a, "prompt"), .width = integer_of(a, "width"),
                                    .height = integer_of(a, "height"), .steps = (int)integer_of(a, "steps"),
                                    .guidance = json_number_value(json_object_get(a, "guidance")),
                                    .seed = (uint64_t)integer_of(s->message, "seed"), .images = s->images,
                                    .n_images = s->n_images,
                                    .strength = json_number_value(json_object_get(a, "strength")),
                                    .shift = json_number_value(json_object_get(a, "shift")),
                                    .layers = (int)integer_of(a, "layers"),
                                    .resolution = (int)integer_of(a, "resolution"), .watch = watch, .user = s);
    if (s->mask.pixels) s->options.mask = &s->mask;
    s->options.negative = json_string_value(json_object_get(a, "negative"));
    s->options.sampler = json_string_value(json_object_get(a, "sampler"));
    s->options.schedule = json_string_value(json_object_get(a, "schedule"));
    s->options.preview = strcmp(preview, "small") == 0  ? LZ_PREVIEW_SMALL
                         : strcmp(preview, "full") == 0 ? LZ_PREVIEW_FULL
                                                        : LZ_PREVIEW_NONE;
    s->options.background = strcmp(background, "opaque") == 0        ? LZ_BACKGROUND_OPAQUE
                            : strcmp(background, "transparent") == 0 ? LZ_BACKGROUND_TRANSPARENT
                                                                     : LZ_BACKGROUND_AUTO;
    s->options.preview_pause = json_number_value(json_object_get(s->message, "preview_pause"));
}

bool sitting_begin(sitting *s) {
    if (!read_images(s)) return false;
    sitting_options(s);
    s->work = lz_job_new(s->painter->model, &s->options, &s->err);
    if (!s->work) return failed_with(s);
    s->options.width = lz_job_settled(s->work)->width;
    s->options.height = lz_job_settled(s->work)->height;
    return true;
}

memory_need need_of(const painter *p, const lz_picture_plan *plan) {
    bool own = plan->device_bytes; /* the device has memory of its own, and weights that do not fit are streamed */
    return (memory_need){own ? plan->device_bytes : plan->peak_bytes, p->engine->memory(p->engine->user)};
}

/* A picture that would not fit into memory is refused before it is made. */
bool sitting_plan(sitting *s, lz_picture_plan *plan) {
    painter *p = s->painter;
    int64_t have = p->engine->memory(p->engine->user), least = s->options.width * s->options.height * 24;
    if (have && least > have)
        return sitting_failed(s, "picture_too_large", LZ_OUT_OF_MEMORY, "the picture does not fit into memory");
    if (lz_job_plan(s->work, plan, &s->err) != LZ_OK) return failed_with(s);
    memory_need need = need_of(p, plan);
    if (!need.have || need.bytes <= need.have) return true;
    char text[160];
    snprintf(text, sizeof text, "the picture needs %lld MiB of memory, and there are %lld MiB; ask for a smaller one",
             (long long)(need.bytes >> 20), (long long)(need.have >> 20));
    return sitting_failed(s, "picture_too_large", LZ_OUT_OF_MEMORY, text);
}

/* ---- meanwhile --------------------------------------------------------------------------------------------------- */

/* The front is told of every stage and step, and ten times a second in between. */
static bool watch(void *user, const lz_progress *now) {
    sitting *s = user;
    painter *p = s->painter;
    double seconds = steady_seconds();
    bool news = now->step != s->step || strcmp(s->stage, now->stage) != 0;
    pass_watch(s->pass, now);
    if (s->answered) return false;
    if (news || seconds - s->told > 0.1) {
        s->told = seconds;
        s->step = now->step;
        snprintf(s->stage, sizeof s->stage, "%s", now->stage);
        tell(p,
             json_pack("{s:s, s:s, s:i, s:s, s:i, s:i, s:f}", "type", "progress", "job", s->job, "index", s->index,
                       "stage", now->stage, "step", now->step, "steps", now->steps, "done", now->done),
             NULL, 0);
    }
    int64_t bytes = 0;
    char *data = now->preview ? lz_image_encode(p->ctx, ".jpg", now->preview, NULL, 0, &bytes, NULL) : NULL;
    if (data)
        tell(p,
             json_pack("{s:s, s:s, s:i, s:i, s:i, s:I, s:I}", "type", "preview", "job", s->job, "index", s->index,
                       "step", now->step + 1, "steps", now->steps, "width", (json_int_t)now->preview->width, "height",
                       (json_int_t)now->preview->height),
             data, (size_t)bytes);
    lz_free_text(p->ctx, data);
    return true;
}

/* ---- afterwards -------------------------------------------------------------------------------------------------- */

/* The picture that was made for it, of which it may be a layer. */
static const sitting *whole_of(const sitting *s) { return s->whole ? s->whole : s; }

/* A model of layers makes the whole picture, which has the index 0, and its layers, the lowest first. */
static bool is_layer(const sitting *s) { return whole_of(s)->picture.n_layers >= s->index && s->index > 0; }

static const lz_image *image_of(const sitting *s) {
    const lz_picture *made = &whole_of(s)->picture;
    return made->n_layers && is_layer(s) ? &made->layers[s->index - 1] : &made->image;
}

/* A colour of a pixel; one that is not opaque is blended with white. */
static int colour_of(const lz_image *image, int64_t x, int64_t y, int k) {
    bool four = image->channels == 4;
    const uint8_t *p = image->pixels + (four ? 4 : 3) * (y * image->width + x);
    return four ? (p[k] * p[3] + 255 * (255 - p[3]) + 127) / 255 : p[k];
}

/* quality: 0 to 100, as clients give it; 100 is ours, 95. seconds: for encoding. */
static bool write_image(sitting *s, const char *path, const lz_image *image, const char *const *texts, int64_t quality,
                        double *seconds) {
    int64_t bytes = 0;
    double begun = steady_seconds();
    char *data = lz_image_encode(s->painter->ctx, strrchr(path, '.'), image, texts,
                                 quality > 99  ? 0
                                 : quality < 1 ? 1
                                               : (int)quality,
                                 &bytes, &s->err);
    *seconds = steady_seconds() - begun;
    bool encoded = data, good = data && write_whole(path, data, (size_t)bytes);
    bool memory = !data && s->err.status == LZ_OUT_OF_MEMORY;
    lz_free_text(s->painter->ctx, data);
    return good || sitting_failed(s, memory ? "out_of_memory" : "insufficient_storage", encoded ? LZ_IO : LZ_OK,
                                  "the picture cannot be written");
}

/* Averages blocks of pixels, to at most THUMB_SIDE a side. */
static bool write_thumb(sitting *s) {
    const lz_image *in = image_of(s);
    int64_t side = in->width > in->height ? in->width : in->height, step = (side + THUMB_SIDE - 1) / THUMB_SIDE;
    lz_image out = {.width = in->width / step, .height = in->height / step, .channels = 3};
    out.width += !out.width;
    out.height += !out.height;
    out.pixels = malloc((size_t)(out.width * out.height * 3));
    if (!out.pixels) return sitting_failed(s, "out_of_memory", LZ_OUT_OF_MEMORY, "out of memory");
    uint8_t *to = out.pixels;
    for (int64_t y = 0; y < out.height; y++)
        for (int64_t x = 0; x < out.width; x++)
            for (int c = 0; c < 3; c++) {
                int64_t sum = 0, n = 0;
                for (int64_t v = y * step; v < (y + 1) * step && v < in->height; v++)
                    for (int64_t u = x * step; u < (x + 1) * step && u < in->width; u++, n++)
                        sum += colour_of(in, u, v, c);
                *to++ = (uint8_t)(n > 0 ? (sum + n / 2) / n : 0);
            }
    double unused;
    bool good = write_image(s, text_of(s->message, "thumb"), &out, NULL, THUMB_QUALITY, &unused);
    free(out.pixels);
    return good;
}

/* A front that gave the picture's id takes the small picture when it is told of it, after the picture itself. */
static const char *thumb_follows(const sitting *s) { return json_string_value(json_object_get(s->message, "picture")); }

bool sitting_save(sitting *s) {
    painter *p = s->painter;
    description d = {.settings = NULL};
    const char *out = text_of(s->message, "out");
    const char *precision = lz_precision_name(p->ctx);
    const lz_model_facts about = lz_model_about(p->model);
    bool with_texts = !json_is_false(json_object_get(s->settings, "metadata"));
    bool good = !with_texts ||
                description_make(&d, s->settings, lz_job_settled(whole_of(s)->work), &whole_of(s)->picture,
                                 is_layer(s) ? s->index : 0, p->engine, about.version, precision);
    if (!good) sitting_failed(s, "out_of_memory", LZ_OUT_OF_MEMORY, "out of memory");
    const json_t *quality = json_object_get(s->settings, "quality");
    good = good && write_image(s, out, image_of(s), with_texts ? d.pairs : NULL,
                               json_is_integer(quality) ? json_integer_value(quality) : 100, &s->file_seconds);
    good = good && (thumb_follows(s) || write_thumb(s));
    if (good && d.parameters) s->parameters = strdup(d.parameters);
    description_free(&d);
    return good;
}

/* Has the file of the picture transparency? A JPEG has none. */
static bool keeps_alpha(const sitting *s) {
    return image_of(s)->channels == 4 && strcmp(text_of(s->settings, "format"), "jpeg") != 0;
}

static json_t *result_json(sitting *s) {
    painter *p = s->painter;
    const sitting *whole = whole_of(s);
    const lz_picture *made = &whole->picture;
    const lz_image *image = image_of(s);
    int64_t side = 16, image_tokens = 0, tokens = (image->width / side) * (image->height / side);
    for (int i = 0; i < whole->n_images; i++)
        image_tokens += (whole->images[i].width / side) * (whole->images[i].height / side);
    json_t *result = json_pack(
        "{s:s, s:s, s:i, s:i, s:f, s:s?, s:b, s:f, s:I, s:I, s:i, s:I, s:I, s:I, s:b, s:{s:f, s:f, s:f, s:f, s:f}}",
        "type", "done", "job", s->job, "index", s->index, "together", s->pass->together, "seconds", s->pass->seconds,
        "parameters", s->parameters, "transparent", keeps_alpha(s), "guidance", made->guidance, "width",
        (json_int_t)image->width, "height", (json_int_t)image->height, "steps", made->steps, "text_tokens",
        (json_int_t)p->engine->count_tokens(p->engine->user, text_of(s->settings, "prompt")), "image_tokens",
        (json_int_t)image_tokens, "output_tokens", (json_int_t)tokens, "prompt_cut", made->prompt_cut, "milliseconds",
        "text", made->text_seconds * 1e3, "encode", made->encode_seconds * 1e3, "denoise", made->denoise_seconds * 1e3,
        "decode", made->decode_seconds * 1e3, "file", s->file_seconds * 1e3);
    if (made->n_layers) json_object_set_new(result, "layer", json_integer(s->index));
    return result;
}

void sitting_answer(sitting *s) {
    if (s->answered) return;
    s->answered = true;
    bool names_file = s->code && strcmp(s->code, "generation_failed") == 0 &&
                      (s->err.status == LZ_IO || s->err.status == LZ_BAD_FILE);
    if (s->code) lz_printable(s->err.text);
    if (names_file) fprintf(stderr, "lazuli worker: %s\n", s->err.text); /* paths are not for clients */
    const char *why = names_file ? "a file of the model or of the server cannot be used; the server's log says why"
                                 : s->err.text;
    json_t *answer = s->code ? json_pack("{s:s, s:s, s:i, s:s, s:s}", "type", "failed", "job", s->job, "index",
                                         s->index, "code", s->code, "message", why)
                             : result_json(s);
    tell(s->painter, answer, NULL, 0);
}

/* If the small picture cannot be written, the front finds no file. */
void sitting_follow(sitting *s) {
    const char *id = thumb_follows(s);
    if (!id) return;
    write_thumb(s);
    tell(s->painter, json_pack("{s:s, s:s}", "type", "thumb", "picture", id), NULL, 0);
}

void sitting_end(sitting *s) {
    lz_context *ctx = s->painter->ctx;
    free(s->parameters);
    lz_picture_free(&s->picture);
    lz_job_free(s->work);
    for (int i = 0; i < s->n_images; i++) lz_image_free(ctx, &s->images[i]);
    if (s->mask.pixels) lz_image_free(ctx, &s->mask);
}
