/* wanted.c: the settings of a job from the fields of a request. The settings have the same keys for every family:
 *
 *     prompt, negative, model, n, seed (a number or a list), width, height, steps, guidance, sampler, schedule, shift,
 *     strength, images ("upload:ID" or "picture:ID"), mask (the same), mask_invert, background, format, quality, preview,
 *     priority, metadata, user, openai, sdapi */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "fields.h"
#include "images.h"
#include "multipart.h"
#include "store.h"

enum { LEAST_SIDE = 64, MOST_SIDE = 4096, MOST_STEPS = 200 };
#define MOST_SEED 9223372036854775807.0

#define FORMATS "png jpeg jpg webp"
#define BACKGROUND "auto opaque transparent"
#define QUALITY "auto low medium high xhigh max standard hd"

const field openai_fields[] = {
    {"prompt", TEXT, TAKEN, 0, 4 * MOST_PROMPT, NULL, NULL},
    {"model", TEXT, LOOKED_AT, 0, 256, NULL, NULL},
    {"n", INTEGER, TAKEN, 1, MOST_PICTURES, NULL, NULL},
    {"size", TEXT, LOOKED_AT, 0, 32, "width", NULL},
    {"quality", TEXT, LOOKED_AT, 0, 0, NULL, QUALITY},
    {"background", TEXT, LOOKED_AT, 0, 0, NULL, BACKGROUND},
    {"output_format", TEXT, LOOKED_AT, 0, 0, NULL, FORMATS},
    {"response_format", TEXT, LOOKED_AT, 0, 0, NULL, "b64_json url file"},
    {"stream", FLAG, LOOKED_AT, 0, 0, NULL, NULL},
    {"partial_images", INTEGER, LOOKED_AT, 0, 3, NULL, NULL},
    {"output_compression", INTEGER, TAKEN, 0, 100, "quality", NULL},
    {"moderation", TEXT, NO_EFFECT, 0, 0, NULL, NULL},
    {"style", TEXT, NO_EFFECT, 0, 0, NULL, NULL},
    {"complexity", ANYTHING, NO_EFFECT, 0, 0, NULL, NULL},
    {"input_fidelity", TEXT, NO_EFFECT, 0, 0, NULL, NULL},
    {"user", TEXT, TAKEN, 0, 256, "user", NULL},
    {"safety_identifier", TEXT, TAKEN, 0, 256, "user", NULL},
    {"frame_count", ANYTHING, UNSUPPORTED, 0, 0, NULL, NULL},
    {"frame_duration_ms", ANYTHING, UNSUPPORTED, 0, 0, NULL, NULL},
    {"svg", ANYTHING, UNSUPPORTED, 0, 0, NULL, NULL},
    {"mask", ANYTHING, LOOKED_AT, 0, 0, NULL, NULL},
    {"markup", ANYTHING, UNSUPPORTED, 0, 0, NULL, NULL},
    {"seed", INTEGER, TAKEN, -1, MOST_SEED, NULL, NULL},
    {"num_inference_steps", INTEGER, TAKEN, 1, MOST_STEPS, "steps", NULL},
    {"steps", INTEGER, TAKEN, 1, MOST_STEPS, "steps", NULL},
    {"step", INTEGER, TAKEN, 1, MOST_STEPS, "steps", NULL},
    {"guidance_scale", NUMBER, TAKEN, 0, 30, "guidance", NULL},
    {"true_cfg_scale", NUMBER, TAKEN, 0, 30, "guidance", NULL},
    {"cfg_scale", NUMBER, TAKEN, 0, 30, "guidance", NULL},
    {"negative_prompt", TEXT, TAKEN, 0, 4 * MOST_PROMPT, "negative", NULL},
    {"width", INTEGER, TAKEN, LEAST_SIDE, MOST_SIDE, NULL, NULL},
    {"height", INTEGER, TAKEN, LEAST_SIDE, MOST_SIDE, NULL, NULL},
    {"strength", NUMBER, TAKEN, 0, 1, NULL, NULL},
    {"layers", INTEGER, TAKEN, 1, MOST_PICTURES - 1, NULL, NULL},
    {"resolution", INTEGER, TAKEN, 640, 1024, NULL, NULL},
    {"metadata", FLAG, TAKEN, 0, 0, NULL, NULL},
    {"image", ANYTHING, LOOKED_AT, 0, 0, NULL, NULL},
    {"images", ANYTHING, LOOKED_AT, 0, 0, NULL, NULL},
    {NULL, TEXT, TAKEN, 0, 0, NULL, NULL},
};

const field native_fields[] = {
    {"prompt", TEXT, TAKEN, 0, 4 * MOST_PROMPT, NULL, NULL},
    {"negative", TEXT, TAKEN, 0, 4 * MOST_PROMPT, NULL, NULL},
    {"model", TEXT, LOOKED_AT, 0, 256, NULL, NULL},
    {"seed", ANYTHING, LOOKED_AT, 0, 0, NULL, NULL},
    {"count", INTEGER, TAKEN, 1, MOST_PICTURES, "n", NULL},
    {"width", INTEGER, TAKEN, LEAST_SIDE, MOST_SIDE, NULL, NULL},
    {"height", INTEGER, TAKEN, LEAST_SIDE, MOST_SIDE, NULL, NULL},
    {"steps", INTEGER, TAKEN, 1, MOST_STEPS, NULL, NULL},
    {"guidance", NUMBER, TAKEN, 0, 30, NULL, NULL},
    {"sampler", TEXT, LOOKED_AT, 0, 32, NULL, NULL},
    {"schedule", TEXT, LOOKED_AT, 0, 32, NULL, NULL},
    {"shift", NUMBER, TAKEN, 0.01, 100, NULL, NULL},
    {"strength", NUMBER, TAKEN, 0, 1, NULL, NULL},
    {"layers", INTEGER, TAKEN, 1, MOST_PICTURES - 1, NULL, NULL},
    {"resolution", INTEGER, TAKEN, 640, 1024, NULL, NULL},
    {"image", ANYTHING, LOOKED_AT, 0, 0, NULL, NULL},
    {"images", ANYTHING, LOOKED_AT, 0, 0, NULL, NULL},
    {"background", TEXT, LOOKED_AT, 0, 0, NULL, BACKGROUND},
    {"format", TEXT, LOOKED_AT, 0, 0, NULL, FORMATS},
    {"quality", INTEGER, TAKEN, 0, 100, NULL, NULL},
    {"preview", TEXT, LOOKED_AT, 0, 0, NULL, "small full off"},
    {"priority", INTEGER, TAKEN, -1, 1, NULL, NULL},
    {"metadata", FLAG, TAKEN, 0, 0, NULL, NULL},
    {"output", ANYTHING, UNSUPPORTED, 0, 0, NULL, NULL},
    {"dump", ANYTHING, UNSUPPORTED, 0, 0, NULL, NULL},
    {"noise", ANYTHING, UNSUPPORTED, 0, 0, NULL, NULL},
    {"lora", ANYTHING, UNSUPPORTED, 0, 0, NULL, NULL},
    {"mask", ANYTHING, LOOKED_AT, 0, 0, NULL, NULL},
    {"text-encoder", ANYTHING, UNSUPPORTED, 0, 0, NULL, NULL},
    {"vae", ANYTHING, UNSUPPORTED, 0, 0, NULL, NULL},
    {"tokenizer", ANYTHING, UNSUPPORTED, 0, 0, NULL, NULL},
    {NULL, TEXT, TAKEN, 0, 0, NULL, NULL},
};

const field sdapi_fields[] = {
    {"prompt", TEXT, TAKEN, 0, 4 * MOST_PROMPT, NULL, NULL},
    {"negative_prompt", TEXT, TAKEN, 0, 4 * MOST_PROMPT, "negative", NULL},
    {"width", INTEGER, TAKEN, LEAST_SIDE, MOST_SIDE, NULL, NULL},
    {"height", INTEGER, TAKEN, LEAST_SIDE, MOST_SIDE, NULL, NULL},
    {"steps", INTEGER, TAKEN, 1, MOST_STEPS, NULL, NULL},
    {"cfg_scale", NUMBER, TAKEN, 0, 30, "guidance", NULL},
    {"seed", INTEGER, TAKEN, -1, MOST_SEED, NULL, NULL},
    {"batch_size", INTEGER, LOOKED_AT, 1, MOST_PICTURES, NULL, NULL},
    {"n_iter", INTEGER, LOOKED_AT, 1, MOST_PICTURES, NULL, NULL},
    {"init_images", ANYTHING, LOOKED_AT, 0, 0, NULL, NULL},
    {"extra_images", ANYTHING, LOOKED_AT, 0, 0, NULL, NULL},
    {"denoising_strength", NUMBER, LOOKED_AT, 0, 1, NULL, NULL},
    {"override_settings", ANYTHING, LOOKED_AT, 0, 0, NULL, NULL},
    {"send_images", FLAG, LOOKED_AT, 0, 0, NULL, NULL},
    {"mask", ANYTHING, LOOKED_AT, 0, 0, NULL, NULL},
    {"inpainting_mask_invert", ANYTHING, LOOKED_AT, 0, 0, NULL, NULL},
    {NULL, TEXT, TAKEN, 0, 0, NULL, NULL},
};

const char *const quality_names[QUALITIES] = {"auto", "low", "medium", "high", "xhigh", "max", "standard", "hd"};

static const char *text_of(const json_t *o, const char *key) {
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static bool take_model(request *r, const char *name, bool edit, json_t *settings, problem *p) {
    front *f = r->front;
    int index = wanted_model(f, name, edit);
    if (index < 0) return set_no_model(f, name, p);
    json_object_set_new(settings, "model", json_string(f->models[index].id));
    return true;
}

/* ---- what all families check ------------------------------------------------------------------------------------ */

static bool is_too_long(const char *text) {
    size_t characters = 0;
    for (const char *c = text; *c; c++) characters += (*c & 0xc0) != 0x80;
    return characters > MOST_PROMPT;
}

static bool check_prompt(const json_t *settings, problem *p) {
    static const char *const keys[] = {"prompt", "negative"};
    if (!json_object_get(settings, "prompt"))
        return set_problem(p, 400, "missing_required_parameter", "prompt", "prompt: is missing");
    if (!*text_of(settings, "prompt")) return set_problem(p, 400, "invalid_value", "prompt", "prompt: is empty");
    for (int i = 0; i < 2; i++)
        if (is_too_long(text_of(settings, keys[i])))
            return set_problem(p, 400, "prompt_too_long", keys[i], "%s: has more than %d characters", keys[i],
                               MOST_PROMPT);
    return true;
}

static bool check_size(const front *f, const model *m, const json_t *settings, problem *p) {
    int64_t width = json_integer_value(json_object_get(settings, "width"));
    int64_t height = json_integer_value(json_object_get(settings, "height"));
    if (!width && height) width = m->width; /* one side was given, the other is the model's */
    if (!height && width) height = m->height;
    if (width * height <= f->options->max_pixels) return true;
    return set_problem(p, 400, "invalid_value", "size",
                       "size: %lldx%lld has more than the %lld pixels that are allowed", (long long)width,
                       (long long)height, (long long)f->options->max_pixels);
}

static bool check_images(const model *m, const json_t *settings, problem *p) {
    int n = (int)json_array_size(json_object_get(settings, "images"));
    bool mask = json_object_get(settings, "mask");
    bool start = mask || json_number_value(json_object_get(settings, "strength")) > 0;
    if (mask && !n) return set_problem(p, 400, "invalid_value", "mask", "mask: needs an image to repaint");
    if (start && !n) return set_problem(p, 400, "invalid_value", "strength", "strength: needs an image to start from");
    if (!m->known) return true;
    if (n && !start && !m->most_images)
        return set_problem(p, 400, "unsupported_value", "model",
                           "the model %s looks at no images; with strength it starts from one", m->id);
    if (n - start > m->most_images)
        return set_problem(p, 400, "invalid_value", "image", "image: the model %s takes at most %d images", m->id,
                           m->most_images + start);
    if (n < m->least_images)
        return set_problem(p, 400, "missing_required_parameter", "image", "image: the model %s needs an image", m->id);
    return true;
}

/* The request, its fields and the table that describes them. */
typedef struct asked {
    request *request;
    const field *table;
    const json_t *fields;
} asked;

/* A setting of the client is not used. */
static void drop_setting(const asked *a, const char *key, json_t *settings) {
    if (!json_object_get(settings, key)) return;
    note_fields(a->request, a->table, a->fields, key);
    json_object_del(settings, key);
}

/* Settings that the operator has pinned are the model's own. */
static void keep_own(const asked *a, unsigned pinned, json_t *settings) {
    static const struct {
        unsigned pin;
        const char *key;
    } all[] = {{PIN_STEPS, "steps"}, {PIN_GUIDANCE, "guidance"}, {PIN_SIZE, "width"}, {PIN_SIZE, "height"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (pinned & all[i].pin) drop_setting(a, all[i].key, settings);
}

static bool check_background(const model *m, const json_t *settings, problem *p) {
    if (strcmp(text_of(settings, "background"), "transparent") != 0) return true;
    if (m->known && !m->transparent)
        return set_problem(p, 400, "unsupported_value", "background",
                           "background: the model %s makes no transparent pictures", m->id);
    if (strcmp(text_of(settings, "format"), "jpeg") != 0) return true;
    return set_problem(p, 400, "invalid_value", "background",
                       "background: a JPEG has no transparency; transparent needs png or webp");
}

/* A job of a model of layers has the picture and its layers, of one seed. */
static bool check_layers(const asked *a, const model *m, const json_t *settings, problem *p) {
    bool given = json_object_get(settings, "layers") || json_object_get(settings, "resolution");
    int64_t n = json_integer_value(json_object_get(settings, "n")),
            side = json_integer_value(json_object_get(settings, "resolution"));
    size_t seeds = json_array_size(json_object_get(settings, "seed"));
    if (!m->known || (!m->layers && !given)) return true;
    if (!m->layers)
        return set_problem(p, 400, "unsupported_parameter", "layers", "layers: the model %s makes no layers", m->id);
    if (a->table == sdapi_fields || !a->request->front->store->kind->own_worker)
        return set_problem(p, 400, "unsupported_value", "model",
                           "the model %s makes layers; /v1/images/edits and /api/v1/jobs of a server with its own "
                           "worker offer that",
                           m->id);
    if (n > 1 || seeds > 1)
        return set_problem(p, 400, "invalid_value", "n", "n: the model %s makes one picture at a time, with its layers",
                           m->id);
    if (side && side != 640 && side != 1024)
        return set_problem(p, 400, "invalid_value", "resolution", "resolution: must be 640 or 1024");
    if (strcmp(text_of(settings, "format"), "jpeg") != 0 || strcmp(text_of(settings, "background"), "opaque") == 0)
        return true;
    return set_problem(p, 400, "invalid_value", "background",
                       "background: a JPEG has no transparency, so layers need png, webp, or background opaque");
}

static bool makes_layers(front *f, const json_t *settings) {
    return f->models[wanted_model(f, text_of(settings, "model"), false)].layers;
}

static bool check_all(const asked *a, json_t *settings, problem *p) {
    front *f = a->request->front;
    const model *m = &f->models[wanted_model(f, text_of(settings, "model"), false)];
    keep_own(a, f->options->pinned, settings);
    json_t *guidance = json_object_get(settings, "guidance"), *seed = json_object_get(settings, "seed");
    if (guidance && m->known && m->guidance_built_in)
        drop_setting(a, "guidance", settings);
    else if (guidance && json_number_value(guidance) < 1)
        json_object_set_new(settings, "guidance", json_real(1)); /* no guidance */
    if (json_is_integer(seed) && json_integer_value(seed) < 0) json_object_del(settings, "seed");
    return check_layers(a, m, settings, p) && check_prompt(settings, p) && check_size(f, m, settings, p) &&
           check_images(m, settings, p) && check_background(m, settings, p);
}

/* png, jpeg or webp. */
static void take_format(const char *given, json_t *settings) {
    const char *format = !*given ? "png" : strcmp(given, "jpg") == 0 ? "jpeg" : given;
    json_object_set_new(settings, "format", json_string(format));
}

/* ---- OpenAI ------------------------------------------------------------------------------------------------------ */

static bool take_size(const char *size, json_t *settings, problem *p) {
    int width = 0, height = 0, end = 0;
    if (!*size || strcmp(size, "auto") == 0) return true;
    if (sscanf(size, "%9dx%9d%n", &width, &height, &end) != 2 || size[end] ||
        strspn(size, "0123456789x") != strlen(size))
        return set_problem(p, 400, "invalid_value", "size", "size: '%.30s' is neither WIDTHxHEIGHT nor auto", size);
    if (width < LEAST_SIDE || height < LEAST_SIDE || width > MOST_SIDE || height > MOST_SIDE)
        return set_problem(p, 400, "invalid_value", "size", "size: %s is too %s; sides are %d to %d, or auto", size,
                           width < LEAST_SIDE || height < LEAST_SIDE ? "small" : "large", LEAST_SIDE, MOST_SIDE);
    json_object_set_new(settings, "width", json_integer(width));
    json_object_set_new(settings, "height", json_integer(height));
    return true;
}

/* auto is the same as nothing. */
static void take_background(const json_t *fields, json_t *settings) {
    const char *given = text_of(fields, "background");
    if (*given && strcmp(given, "auto") != 0) json_object_set_new(settings, "background", json_string(given));
}

static void take_word(const json_t *fields, const char *name, const char *fallback, json_t *to) {
    const char *given = text_of(fields, name);
    json_object_set_new(to, name, json_string(*given ? given : fallback));
}

/* How the answer looks; stored with the job, so that a repeated request gets the same. */
static json_t *take_answer(const json_t *fields, problem *p) {
    json_t *answer = json_object();
    bool streamed = json_is_true(json_object_get(fields, "stream"));
    take_word(fields, "quality", "auto", answer);
    take_word(fields, "response_format", "b64_json", answer);
    json_object_set_new(answer, "stream", json_boolean(streamed));
    json_object_set_new(answer, "partial_images",
                        json_integer(streamed ? json_integer_value(json_object_get(fields, "partial_images")) : 0));
    bool file = strcmp(text_of(answer, "response_format"), "file") == 0;
    int64_t n = json_integer_value(json_object_get(fields, "n"));
    if (!file || (!streamed && n <= 1)) return answer;
    set_problem(p, 400, "invalid_value", "response_format", "response_format: file is for one picture without stream");
    json_decref(answer);
    return NULL;
}

/* The operator may have chosen steps for a quality. Steps of the client are used before them. */
static void take_quality(const serve_options *o, const char *quality, json_t *settings) {
    for (int i = 0; i < QUALITIES; i++)
        if (o->quality_steps[i] && strcmp(quality, quality_names[i]) == 0 && !json_object_get(settings, "steps") &&
            !(o->pinned & PIN_STEPS))
            json_object_set_new(settings, "steps", json_integer(o->quality_steps[i]));
}

/* Fields and images of a form. */
static json_t *read_form(request *r, problem *p) {
    char boundary[BOUNDARY + 1];
    form_part *parts = calloc(PARTS, sizeof *parts);
    const char *why = "out of memory";
    json_t *fields = json_object(), *images = json_array(), *masks = json_array();
    int n = -1;
    if (parts && multipart_boundary(header_of(r, "content-type"), boundary))
        n = multipart_read(r->body.data ? r->body.data : "", r->body.size, boundary, parts, &why);
    else
        why = "the boundary in Content-Type is missing or not allowed";
    bool good = n >= 0 || set_problem(p, 400, "invalid_value", "", "the form cannot be read: %s", why);
    for (int i = 0; good && i < n; i++) {
        const form_part *q = &parts[i];
        if (!is_utf8(q->name, strlen(q->name))) {
            good = set_problem(p, 400, "invalid_value", "", "the form cannot be read: a name is not UTF-8");
            continue;
        }
        bool image = strcmp(q->name, "image") == 0 || strcmp(q->name, "image[]") == 0;
        bool mask = strcmp(q->name, "mask") == 0;
        bool url = !q->is_file && q->size > 5 && strncasecmp(q->data, "data:", 5) == 0;
        if (image && !url) {
            good = images_add(r, images, "image", q->data, q->size, p);
            continue;
        }
        if (mask && q->is_file) {
            good = json_array_size(masks) == 0 ? images_add(r, masks, "mask", q->data, q->size, p)
                                               : set_problem(p, 400, "invalid_value", "mask", "mask: was sent twice");
            continue;
        }
        json_t *value = q->is_file ? json_true() : form_value(openai_fields, q->name, q->data, q->size, p);
        if (value && image)
            good = json_array_append_new(images, value) == 0;
        else if (value && json_object_get(fields, q->name)) {
            good = set_problem(p, 400, "invalid_value", q->name, "%s: was sent twice", q->name);
            json_decref(value);
        } else
            good = value && json_object_set_new(fields, q->name, value) == 0;
    }
    if (good && json_array_size(images)) json_object_set(fields, "image", images);
    if (good && json_array_size(masks)) json_object_set(fields, "mask", json_array_get(masks, 0));
    json_decref(images);
    json_decref(masks);
    free(parts);
    if (good) return fields;
    json_decref(fields);
    return NULL;
}

json_t *wanted_openai(request *r, json_t *fields, bool edit, problem *p) {
    if (!fields) fields = read_form(r, p);
    if (!fields) return NULL;
    json_t *settings = json_object();
    bool good = take_fields(r, openai_fields, fields, settings, r->front->options->strict, p);
    json_t *answer = good ? take_answer(fields, p) : NULL;
    good = answer && take_model(r, text_of(fields, "model"), edit, settings, p) &&
           take_size(text_of(fields, "size"), settings, p);
    take_format(text_of(fields, "output_format"), settings);
    take_background(fields, settings);
    if (good && edit) good = images_take(r, fields, settings, p);
    if (good && !edit && (json_object_get(fields, "image") || json_object_get(fields, "images")))
        good = set_problem(p, 400, "unsupported_parameter", "image", "image: is for /v1/images/edits");
    if (good && !edit && json_object_get(fields, "mask"))
        good = set_problem(p, 400, "unsupported_parameter", "mask", "mask: is for /v1/images/edits");
    if (good && edit && !json_object_get(settings, "images"))
        good = set_problem(p, 400, "missing_required_parameter", "image", "image: is missing");
    if (good) take_quality(r->front->options, text_of(answer, "quality"), settings);
    good = good && check_all(&(asked){r, openai_fields, fields}, settings, p);
    if (good && strcmp(text_of(answer, "response_format"), "file") == 0 && makes_layers(r->front, settings))
        good = set_problem(p, 400, "invalid_value", "response_format",
                           "response_format: file is for one picture, and this model makes layers");
    if (good && json_integer_value(json_object_get(answer, "partial_images")))
        json_object_set_new(settings, "preview", json_string(r->front->options->previews));
    if (good) json_object_set(settings, "openai", answer);
    if (good && edit) json_object_set_new(answer, "edit", json_true());
    json_decref(answer);
    json_decref(fields);
    if (good) return settings;
    json_decref(settings);
    return NULL;
}

/* ---- native ------------------------------------------------------------------------------------------------------ */

static bool take_seeds(const json_t *fields, json_t *settings, problem *p) {
    json_t *seed = json_object_get(fields, "seed");
    size_t n = json_array_size(seed);
    bool good = !seed || json_is_null(seed) || (json_is_integer(seed) && json_integer_value(seed) >= -1) ||
                (json_is_array(seed) && n >= 1 && n <= MOST_PICTURES);
    for (size_t i = 0; i < n && good; i++) {
        const json_t *one = json_array_get(seed, i);
        good = json_is_integer(one) && json_integer_value(one) >= 0;
    }
    if (!good)
        return set_problem(p, 400, "invalid_value", "seed",
                           "seed: must be a whole number from 0 on, or a list of 1 to 10");
    if (n && json_object_get(settings, "n"))
        return set_problem(p, 400, "invalid_value", "count", "count: cannot be used with a list of seeds");
    if (seed && !json_is_null(seed)) json_object_set(settings, "seed", seed);
    return true;
}

static bool take_name(const json_t *fields, const char *key, const char *(*name)(int), json_t *settings, problem *p) {
    const char *given = text_of(fields, key);
    if (!*given) return true;
    for (int i = 0; name(i); i++)
        if (strcmp(name(i), given) == 0) return json_object_set_new(settings, key, json_string(given)) == 0;
    return set_problem(p, 400, "unsupported_value", key, "%s: there is no %s '%.30s'", key, key, given);
}

json_t *wanted_native(request *r, json_t *fields, problem *p) {
    json_t *settings = json_object();
    take_format(text_of(fields, "format"), settings);
    take_background(fields, settings);
    take_word(fields, "preview", "small", settings);
    bool good = take_fields(r, native_fields, fields, settings, true, p) && take_seeds(fields, settings, p) &&
                take_name(fields, "sampler", lz_sampler_name, settings, p) &&
                take_name(fields, "schedule", lz_schedule_name, settings, p) &&
                take_model(r, text_of(fields, "model"),
                           json_object_get(fields, "image") || json_object_get(fields, "images"), settings, p) &&
                images_take(r, fields, settings, p) && check_all(&(asked){r, native_fields, fields}, settings, p);
    if (good && json_integer_value(json_object_get(settings, "priority")) > 0 && !r->who.admin)
        good = set_problem(p, 403, "admin_only", "priority", "priority: 1 needs the key of an administrator");
    json_decref(fields);
    if (good) return settings;
    json_decref(settings);
    return NULL;
}

/* ---- AUTOMATIC1111 ----------------------------------------------------------------------------------------------- */

static int64_t count_of(const json_t *fields, const char *key) {
    const json_t *value = json_object_get(fields, key);
    return json_is_integer(value) ? json_integer_value(value) : 1;
}

json_t *wanted_sdapi(request *r, json_t *fields, bool from_image, problem *p) {
    static const char *const pictures[] = {"init_images", "extra_images", "mask"};
    front *f = r->front;
    const asked all = {r, sdapi_fields, fields};
    json_t *settings = json_object(), *strength = json_object_get(fields, "denoising_strength");
    const char *named = text_of(json_object_get(fields, "override_settings"), "sd_model_checkpoint");
    bool good = take_fields(r, sdapi_fields, fields, settings, f->options->strict, p);
    const json_t *invert = json_object_get(fields, "inpainting_mask_invert");
    if (good && invert && !json_is_boolean(invert) && !json_is_integer(invert))
        good = set_problem(p, 400, "invalid_type", "inpainting_mask_invert", "inpainting_mask_invert: must be 0 or 1");
    int64_t n = good ? count_of(fields, "batch_size") * count_of(fields, "n_iter") : 0; /* each is small then */
    if (good && n > MOST_PICTURES)
        good = set_problem(p, 400, "invalid_value", "batch_size", "batch_size: makes more than %d pictures",
                           MOST_PICTURES);
    good = good && take_model(r, *named ? named : f->models[queue_preferred(f, r->who.owner)].id, false, settings, p) &&
           (!from_image || images_take_bare(r, fields, pictures, settings, p));
    if (good && from_image && !json_object_get(settings, "images"))
        good = set_problem(p, 400, "missing_required_parameter", "init_images", "init_images: is missing");
    double change = json_is_number(strength) ? json_number_value(strength) : 0.75;
    if (good && from_image) json_object_set_new(settings, "strength", json_real(change > 0 ? change : 0.01));
    if (good && json_object_get(settings, "mask") && (json_is_true(invert) || json_integer_value(invert)))
        json_object_set_new(settings, "mask_invert", json_true());
    /* Clients send steps and guidance of other models; a distilled model keeps its own. */
    const model *m = good ? &f->models[wanted_model(f, text_of(settings, "model"), false)] : NULL;
    if (m && m->known && m->distilled && f->options->pinned & PIN_AUTO)
        keep_own(&all, PIN_STEPS | PIN_GUIDANCE, settings);
    good = good && check_all(&all, settings, p);
    for (int i = 0; i < 3; i++) json_object_del(fields, pictures[i]);
    if (good) {
        json_object_set_new(settings, "n", json_integer(n));
        json_object_set_new(settings, "format", json_string("png"));
        json_object_set_new(settings, "preview", json_string(f->options->previews));
        json_object_set_new(settings, "sdapi", short_fields(sdapi_fields, fields)); /* which the answer repeats */
    }
    json_decref(fields);
    if (good) return settings;
    json_decref(settings);
    return NULL;
}
