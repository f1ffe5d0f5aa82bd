/* settings.c: options from files. A picture's metadata (--from), a JSON file (--settings) and a line of a batch have
 * the same form: an object whose keys are names of options, and whose values are parsed like typed ones. Typed options
 * have precedence, then --settings, then --from.
 *
 * Settings in a picture are complete, including the model's defaults, so the picture can be made again (on a CPU byte
 * for byte). Files are recorded by name, without their folders, unless --full-paths is given, so that a picture does
 * not reveal the layout of a disk. --from looks for these names in the folder of the picture, then in the current
 * folder. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache.h"
#include "template.h"

enum { MOST_BYTES = 1 << 20 };

/* The settings in a picture, in the order in which they are written. A picture with another key, or with a value of
 * another type, was not written by Lazuli, and is refused. */
enum {
    MODEL,
    MODEL_VERSION,
    TEXT_ENCODER,
    VISION,
    VAE,
    TOKENIZER,
    VARIANT,
    PROMPT,
    TEMPLATE,
    NEGATIVE,
    WIDTH,
    HEIGHT,
    SEED,
    NOISE,
    STEPS,
    GUIDANCE,
    SAMPLER,
    SCHEDULE,
    SHIFT,
    CACHE,
    GUIDANCE_RANGE,
    GUIDANCE_EVERY,
    IMAGE,
    STRENGTH,
    MASK,
    EXTEND,
    CROP_TO_MASK,
    KEEP_OUTSIDE,
    FEATHER,
    BACKGROUND,
    LAYERS,
    RESOLUTION,
    LORA,
    LORA_SCHEDULE,
    DEVICE,
    PRECISION,
    N_RECORDED
};

static const struct {
    const char *key;
    json_type type;
} recorded[N_RECORDED] = {
    [MODEL] = {"model", JSON_STRING},
    [MODEL_VERSION] = {"model-version", JSON_STRING},
    [PROMPT] = {"prompt", JSON_STRING},
    [TEMPLATE] = {"template", JSON_STRING},
    [NEGATIVE] = {"negative", JSON_STRING},
    [WIDTH] = {"width", JSON_INTEGER},
    [HEIGHT] = {"height", JSON_INTEGER},
    [SEED] = {"seed", JSON_INTEGER},
    [NOISE] = {"noise", JSON_STRING},
    [STEPS] = {"steps", JSON_INTEGER},
    [GUIDANCE] = {"guidance", JSON_REAL},
    [SAMPLER] = {"sampler", JSON_STRING},
    [SCHEDULE] = {"schedule", JSON_STRING},
    [SHIFT] = {"shift", JSON_REAL},
    [CACHE] = {"cache", JSON_REAL},
    [GUIDANCE_RANGE] = {"guidance-range", JSON_STRING},
    [GUIDANCE_EVERY] = {"guidance-every", JSON_INTEGER},
    [IMAGE] = {"image", JSON_ARRAY},
    [STRENGTH] = {"strength", JSON_REAL},
    [MASK] = {"mask", JSON_STRING},
    [EXTEND] = {"extend", JSON_STRING},
    [CROP_TO_MASK] = {"crop-to-mask", JSON_INTEGER},
    [KEEP_OUTSIDE] = {"keep-outside", JSON_STRING},
    [FEATHER] = {"feather", JSON_INTEGER},
    [BACKGROUND] = {"background", JSON_STRING},
    [LAYERS] = {"layers", JSON_INTEGER},
    [RESOLUTION] = {"resolution", JSON_INTEGER},
    [LORA] = {"lora", JSON_ARRAY},
    [LORA_SCHEDULE] = {"lora-schedule", JSON_STRING},
    [DEVICE] = {"device", JSON_STRING},
    [PRECISION] = {"precision", JSON_STRING},
    [TEXT_ENCODER] = {"text-encoder", JSON_STRING},
    [VISION] = {"vision", JSON_STRING},
    [VAE] = {"vae", JSON_STRING},
    [TOKENIZER] = {"tokenizer", JSON_STRING},
    [VARIANT] = {"variant", JSON_STRING},
};

/* ---- taking ------------------------------------------------------------------------------------------------------ */

static int no_such_setting(const arguments *args, const char *key) {
    char known[600] = "";
    const option *nearest = nearest_option(key);
    if (nearest && is_setting(nearest))
        return fail(args, NOT_UNDERSTOOD, "there is no setting \"%.60s\"; did you mean \"%s\"?", key, nearest->name);
    for (size_t i = 0, n = 0; i < n_options && n < sizeof known; i++)
        if (is_setting(&options[i]))
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", options[i].name);
    return fail(args, NOT_UNDERSTOOD, "there is no setting \"%.60s\"; there are %s", key, known);
}

static int take_value(arguments *args, const option *o, const json_t *value) {
    char number[40];
    const char *text = json_string_value(value);
    if (!text && keeps_text(o)) return fail(args, NOT_UNDERSTOOD, "\"%s\" takes text in quotes", o->name);
    if (json_is_integer(value)) {
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        text = number;
    } else if (json_is_real(value)) {
        double x = json_real_value(value);
        snprintf(number, sizeof number, "%.15g", x);
        if (strtod(number, NULL) != x) snprintf(number, sizeof number, "%.17g", x);
        text = number;
    } else if (!text)
        return fail(args, NOT_UNDERSTOOD, "the value of \"%s\" is neither text nor a number", o->name);
    return o->take(args, o, text);
}

/* Was the option, or one that excludes it, given? A given seed excludes the noise of a file, words exclude its
 * prompt. */
static bool stays(const arguments *args, const option *o) {
    if (args->given[o - options]) return true;
    if (strcmp(o->name, "noise") == 0) return is_given(args, "seed");
    if (strcmp(o->name, "prompt") != 0 || !args->n_words) return false;
    return args->command && args->command->bit & (GENERATE | PLAN | GRID);
}

/* The template belongs to the prompt, and the version to the model. */
static bool is_no_option(const char *key) {
    return strcmp(key, recorded[TEMPLATE].key) == 0 || strcmp(key, recorded[MODEL_VERSION].key) == 0;
}

static bool is_same_path(const char *a, const char *b) {
    struct stat x, y;
    return strcmp(a, b) == 0 || (!stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

/* Is the version of the settings one of the model that is used? It is, if they name this model, or none. */
static bool is_of_model(const arguments *args, const json_t *settings) {
    const char *name = json_string_value(json_object_get(settings, recorded[MODEL].key));
    return name ? args->model && is_same_path(name, args->model)
                : json_object_get(settings, recorded[MODEL_VERSION].key) != NULL;
}

int apply_settings(arguments *args, json_t *settings, bool overrule) {
    const char *key;
    json_t *value;
    bool taken[MAX_OPTIONS] = {false};
    json_object_foreach(settings, key, value) {
        const option *o = find_option(key, strlen(key));
        if (is_no_option(key) && !json_is_string(value) && !json_is_null(value))
            return fail(args, NOT_UNDERSTOOD, "\"%s\" takes text in quotes", key);
        if (is_no_option(key)) continue;
        bool axis = o && args->command && args->command->bit == GRID && (!strcmp(key, "x") || !strcmp(key, "y"));
        if (!o || (!is_setting(o) && !axis)) return no_such_setting(args, key);
        if (json_is_null(value) || (!overrule && stays(args, o))) continue;
        if (json_is_array(value) && !collects(o))
            return fail(args, NOT_UNDERSTOOD, "\"%s\" takes one value, and a list was given", o->name);
        forget_option(args, o);
        int code = json_is_array(value) ? DONE : take_value(args, o, value);
        for (size_t i = 0; i < json_array_size(value) && code == DONE; i++)
            code = take_value(args, o, json_array_get(value, i));
        if (code != DONE) return code;
        taken[o - options] = true;
    }
    for (size_t i = 0; i < n_options; i++) {
        if (!taken[i]) continue;
        args->given[i] = args->elsewhere[i] = true;
        args->by_line[i] = args->by_line[i] || args->line;
        if (strcmp(options[i].name, "prompt") == 0)
            args->template = json_string_value(json_object_get(settings, recorded[TEMPLATE].key));
    }
    if (is_of_model(args, settings))
        args->model_version = json_string_value(json_object_get(settings, recorded[MODEL_VERSION].key));
    return DONE;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Takes ownership of the object. The output of --json with one picture is accepted too. */
static int take_source(arguments *args, json_t **source, const char *path, json_t *object) {
    *source = object;
    json_t *pictures = json_object_get(object, "pictures"), *settings = object;
    if (pictures) settings = json_object_get(json_array_get(pictures, 0), "settings");
    args->where = path;
    int code;
    if (json_array_size(pictures) > 1)
        code = fail(args, NOT_UNDERSTOOD, "describes %zu pictures; use the \"settings\" of one",
                    json_array_size(pictures));
    else if (!json_is_object(settings))
        code = fail(args, FAILED, "contains no settings such as {\"prompt\": \"a red fox\", \"seed\": 7}");
    else
        code = apply_settings(args, settings, false);
    args->where = NULL;
    return code;
}

static int read_json(arguments *args) {
    char *text = NULL;
    size_t bytes = 0;
    int code = read_file(args, args->settings, MOST_BYTES, &text, &bytes);
    json_error_t why;
    json_t *object = code == DONE ? json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why) : NULL;
    free(text);
    if (code != DONE) return code;
    if (!object) return fail(args, FAILED, "%s: is not JSON: line %d: %s", args->settings, why.line, why.text);
    return take_source(args, &args->sources[0], args->settings, object);
}

/* Pictures are untrusted. Returns the first key that Lazuli does not write, or not with such a value; NULL: none. */
static const char *foreign_key(json_t *settings) {
    const char *key;
    json_t *value;
    json_object_foreach(settings, key, value) {
        size_t i = 0;
        while (i < N_RECORDED && strcmp(recorded[i].key, key) != 0) i++;
        if (i == N_RECORDED || json_typeof(value) != recorded[i].type) return key;
    }
    return NULL;
}

/* Resolves a file name in a picture: in the folder of the picture if it exists there, otherwise in the current
 * folder. */
static json_t *find_named(const char *picture, const json_t *name) {
    const char *text = json_string_value(name);
    char *beside = NULL;
    if (!text || *text == '/' || asprintf(&beside, "%.*s%s", (int)(base_name(picture) - picture), picture, text) < 0)
        return NULL;
    json_t *found = access(beside, F_OK) == 0 ? json_string(beside) : NULL;
    free(beside);
    return found;
}

/* The same for a LoRA, FILE=WEIGHT. */
static json_t *find_lora_named(const char *picture, const json_t *name) {
    const char *text = json_string_value(name), *equals = text ? strrchr(text, '=') : NULL;
    json_t *file = equals ? json_stringn(text, (size_t)(equals - text)) : NULL, *found = find_named(picture, file);
    const char *path = json_string_value(found);
    json_t *whole = path && equals ? json_sprintf("%s%s", path, equals) : NULL;
    json_decref(file);
    json_decref(found);
    return whole;
}

static void find_files(const char *picture, json_t *settings) {
    json_t *images = json_object_get(settings, recorded[IMAGE].key),
           *noise = json_object_get(settings, recorded[NOISE].key), *found;
    for (size_t i = 0; i < json_array_size(images); i++)
        if ((found = find_named(picture, json_array_get(images, i)))) json_array_set_new(images, i, found);
    json_t *loras = json_object_get(settings, recorded[LORA].key);
    for (size_t i = 0; i < json_array_size(loras); i++)
        if ((found = find_lora_named(picture, json_array_get(loras, i)))) json_array_set_new(loras, i, found);
    if ((found = find_named(picture, noise))) json_object_set_new(settings, recorded[NOISE].key, found);
    found = find_named(picture, json_object_get(settings, recorded[MASK].key));
    if (found) json_object_set_new(settings, recorded[MASK].key, found);
}

/* Tells the user which files are read because the picture names them. Strings of args from settings point into the
 * JSON. */
static void say_files(const arguments *args, const char *picture, const json_t *settings) {
    const json_t *images = json_object_get(settings, recorded[IMAGE].key);
    const char *noise = json_string_value(json_object_get(settings, recorded[NOISE].key)),
               *mask = json_string_value(json_object_get(settings, recorded[MASK].key));
    for (int i = 0; i < args->n_images; i++)
        if (args->images[i] == json_string_value(json_array_get(images, (size_t)i)))
            note(args, "%s names the image %s", picture, args->images[i]);
    for (int i = 0; i < args->n_loras && is_elsewhere(args, "lora"); i++)
        note(args, "%s names the LoRA %s", picture, args->loras[i]);
    if (noise && args->noise == noise) note(args, "%s names the noise %s", picture, noise);
    if (mask && args->mask == mask) note(args, "%s names the mask %s", picture, mask);
}

/* With --from PICTURE and a mask or sides that were typed, PICTURE itself is changed: by its prompt and settings, unless
 * others are given, with another seed, and without the images that it was made from. */
static void change_picture(arguments *args, json_t *settings) {
    static const int others[] = {SEED,         NOISE,        IMAGE,   STRENGTH, MASK,  EXTEND,
                                 CROP_TO_MASK, KEEP_OUTSIDE, FEATHER, WIDTH,    HEIGHT};
    if (!repaints(args) || args->n_images) return;
    for (size_t i = 0; i < COUNT(others); i++) json_object_del(settings, recorded[others[i]].key);
    args->images[args->n_images++] = args->from;
    args->given[find_option("image", 5) - options] = true;
}

/* The prompt of a picture is used as it is, even if it looks like a template. */
static void keep_prompt(json_t *settings) {
    json_t *prompt = json_object_get(settings, recorded[PROMPT].key);
    if (prompt && !json_object_get(settings, recorded[TEMPLATE].key) && is_template(json_string_value(prompt), true))
        json_object_set(settings, recorded[TEMPLATE].key, prompt);
}

/* A picture without a version was made by a model that named none. */
static void keep_version(json_t *settings) {
    if (!json_object_get(settings, recorded[MODEL_VERSION].key))
        json_object_set_new(settings, recorded[MODEL_VERSION].key, json_string(""));
}

static int read_picture(arguments *args) {
    lz_error err = {.status = LZ_OK}, other;
    lz_context *ctx = lz_open_with(&LZ_CONTEXT_OPTIONS(.threads = 1), &err);
    if (!ctx) return fail_with(args, &err);
    char *text = lz_image_read_text(ctx, args->from, SETTINGS_KEY, &err);
    char *foreign = text ? NULL : lz_image_read_text(ctx, args->from, "parameters", &other);
    char *sheet = text ? NULL : lz_image_read_text(ctx, args->from, SHEET_KEY, &other);
    json_t *object = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const char *key = foreign_key(object);
    int code = DONE;
    if (foreign)
        code = fail(args, FAILED,
                    "%s: contains no settings by Lazuli; the settings in it ('parameters') are by another program",
                    args->from);
    else if (sheet)
        code = fail(args, FAILED,
                    "%s: is a sheet of several pictures, and --from repeats one; name the file of one of them",
                    args->from);
    else if (!text && err.status == LZ_NOT_FOUND && strstr(err.text, SETTINGS_KEY "'"))
        code = fail(args, FAILED, "%s: contains no settings; only pictures as Lazuli wrote them do", args->from);
    else if (!text)
        code = fail_with(args, &err);
    else if (!object)
        code = fail(args, FAILED, "%s: the settings in it are damaged; they are not JSON", args->from);
    else if (key)
        code = fail(args, FAILED,
                    "%s: the settings in it contain \"%.60s\" in a form that Lazuli never writes; none of them is used",
                    args->from, key);
    lz_free_text(ctx, foreign);
    lz_free_text(ctx, sheet);
    lz_free_text(ctx, text);
    lz_close(ctx);
    if (code != DONE) {
        json_decref(object);
        return code;
    }
    change_picture(args, object);
    find_files(args->from, object);
    keep_prompt(object);
    keep_version(object);
    code = take_source(args, &args->sources[1], args->from, object);
    if (code == DONE) say_files(args, args->from, object);
    return code;
}

int read_settings(arguments *args) {
    int code = args->settings ? read_json(args) : DONE;
    return code == DONE && args->from ? read_picture(args) : code;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* The name of a file, or its full path. */
static json_t *file_text(const char *path, bool full_paths) {
    char full[PATH_MAX];
    if (!path || !full_paths) return json_text(path ? base_name(path) : NULL);
    return json_text(realpath(path, full) ? full : path);
}

/* The same of a part of a model. A file of the Hugging Face cache is recorded as OWNER/REPO/FILE. */
static json_t *part_text(const char *path, bool full_paths) {
    return path && given_file(path) != path ? json_text(path) : file_text(path, full_paths);
}

/* FILE=WEIGHT of each LoRA that the model has; null: none. */
static json_t *loras_text(const job *j, bool full_paths) {
    if (!j->loras || !*j->loras) return json_null();
    json_t *list = json_array();
    for (const char *at = j->loras, *end; list && *at; at = *end ? end + 1 : end) {
        end = strchrnul(at, '\n');
        char *line = strndup(at, (size_t)(end - at)), *equals = line ? strrchr(line, '=') : NULL, *text = NULL;
        if (equals) *equals = 0;
        json_t *file = equals ? file_text(line, full_paths) : NULL;
        if (!file || asprintf(&text, "%s=%s", json_string_value(file), equals + 1) < 0) text = NULL;
        json_array_append_new(list, json_text(text));
        json_decref(file);
        free(text);
        free(line);
    }
    return list;
}

/* The demo model, which comes with Lazuli, and models of the Hugging Face cache are recorded by name. Another folder
 * called demo must not be mistaken for the demo model. */
static json_t *model_text(const job *j, bool full_paths) {
    if (strchr(j->name, '/') || j->is_set) return json_text(j->name);
    char full[PATH_MAX], *demo = find_demo();
    const char *folder = realpath(j->folder, full) ? full : j->folder;
    bool is_demo = demo && strcmp(folder, demo) == 0;
    free(demo);
    if (is_demo) return json_string("demo");
    if (!full_paths && strcmp(base_name(folder), "demo") == 0) return json_string("./demo");
    return file_text(folder, full_paths);
}

json_t *settings_of(const job *j, int64_t seed, bool full_paths) {
    const arguments *a = j->args;
    const lz_picture_options *p = &j->picture;
    json_t *images = a->n_images ? json_array() : json_null();
    for (int i = 0; i < a->n_images; i++) json_array_append_new(images, file_text(a->images[i], full_paths));
    json_t *loras = loras_text(j, full_paths);
    json_t *values[N_RECORDED] = {
        /* null: not recorded */
        [MODEL] = model_text(j, full_paths),
        [MODEL_VERSION] = *j->facts.version ? json_text(j->facts.version) : json_null(),
        [TEXT_ENCODER] = part_text(a->text_encoder, full_paths),
        [VISION] = part_text(a->vision, full_paths),
        [VAE] = part_text(a->vae, full_paths),
        [TOKENIZER] = part_text(a->tokenizer, full_paths),
        [VARIANT] = json_text(a->variant),
        [PROMPT] = json_text(p->prompt),
        [TEMPLATE] = json_text(a->template),
        [NEGATIVE] = json_text(a->negative),
        [WIDTH] = job_sized_by_image(j) ? json_null() : json_integer(p->width), /* it comes from the image again */
        [HEIGHT] = job_sized_by_image(j) ? json_null() : json_integer(p->height),
        [SEED] = a->noise ? json_null() : json_integer(seed),
        [NOISE] = file_text(a->noise, full_paths),
        [STEPS] = json_integer(p->steps),
        [GUIDANCE] = json_real(p->guidance),
        [SAMPLER] = json_text(p->sampler),
        [SCHEDULE] = json_text(p->schedule),
        [SHIFT] = p->shift > 0 ? json_real(p->shift) : json_null(),
        [CACHE] = p->cache > 0 ? json_real(p->cache) : json_null(),
        [GUIDANCE_RANGE] = p->guidance_to > 0 ? json_sprintf("%.15g..%.15g", p->guidance_from, p->guidance_to)
                                              : json_null(),
        [GUIDANCE_EVERY] = p->guidance_every > 1 ? json_integer(p->guidance_every) : json_null(),
        [IMAGE] = images,
        [STRENGTH] = a->strength > 0 ? json_real(a->strength) : json_null(),
        [MASK] = file_text(a->mask, full_paths),
        [EXTEND] = json_text(a->extend),
        [CROP_TO_MASK] = is_given(a, "crop-to-mask") ? json_integer(a->crop) : json_null(),
        [KEEP_OUTSIDE] = a->change_outside ? json_string("off") : json_null(),
        [FEATHER] = is_given(a, "feather") ? json_integer(a->feather) : json_null(),
        [BACKGROUND] = json_text(background_name(p->background)),
        [LAYERS] = p->layers ? json_integer(p->layers) : json_null(),
        [RESOLUTION] = p->resolution ? json_integer(p->resolution) : json_null(),
        [LORA] = loras,
        [LORA_SCHEDULE] = j->loras_ordinary && loras && json_array_size(loras) ? json_string("model") : json_null(),
        [DEVICE] = *j->device ? json_text(j->device) : json_null(),
        [PRECISION] = json_string(lz_precision_name(j->ctx))};
    json_t *settings = json_object();
    bool good = true;
    for (int i = 0; i < N_RECORDED; i++) /* fails if a value is NULL because memory ran out */
        if (!json_is_null(values[i])) good = json_object_set_new(settings, recorded[i].key, values[i]) == 0 && good;
    if (good) return settings;
    json_decref(settings);
    return NULL;
}

/* Numbers have as few digits as are needed to read the same values. */
char *settings_text(json_t *settings) {
    char *text = NULL;
    bool same = false;
    for (size_t digits = 15; settings && digits <= 17 && !same; digits++) {
        free(text);
        text = json_dumps(settings, JSON_ENSURE_ASCII | JSON_REAL_PRECISION(digits));
        json_t *back = text ? json_loads(text, 0, NULL) : NULL;
        same = json_equal(back, settings);
        json_decref(back);
    }
    return text;
}
