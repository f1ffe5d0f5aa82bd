/* settings.c: options from elsewhere. A picture's metadata (--from), a JSON file (--settings) and a line of a batch hold
 * the same: one object whose keys are the names of options, and whose values are taken by the option table as if they had
 * been typed. What was typed wins, then --settings, then --from.
 *
 * What is written into a picture is complete (nothing is left to a model's defaults) and absolute (paths), so that it can
 * be made again from any folder, byte for byte. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { MOST_BYTES = 1 << 20 };

/* ---- taking ------------------------------------------------------------------------------------------------------ */

static int no_such_setting(const arguments *args, const char *key) {
    char known[600] = "";
    for (size_t i = 0, n = 0; i < n_options && n < sizeof known; i++)
        if (is_setting(&options[i]))
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", options[i].name);
    const option *nearest = nearest_option(key);
    if (nearest && is_setting(nearest))
        return fail(args, NOT_UNDERSTOOD, "there is no setting \"%s\"; is \"%s\" meant? There are %s", key,
                    nearest->name, known);
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

/* A seed that is given is not to be overruled by the noise of a file, nor are bare words by its prompt. */
static bool stays(const arguments *args, const option *o) {
    if (args->given >> (o - options) & 1) return true;
    if (strcmp(o->name, "noise") == 0) return is_given(args, "seed");
    return strcmp(o->name, "prompt") == 0 && args->n_words && args->command->bit & (GENERATE | PLAN);
}

int apply_settings(arguments *args, json_t *settings, bool overrule) {
    const char *key;
    json_t *value;
    uint64_t taken = 0;
    json_object_foreach(settings, key, value) {
        const option *o = find_option(key, strlen(key));
        if (!o || !is_setting(o)) return no_such_setting(args, key);
        if (json_is_null(value) || (!overrule && stays(args, o))) continue;
        forget_option(args, o);
        int code = json_is_array(value) ? DONE : take_value(args, o, value);
        for (size_t i = 0; i < json_array_size(value) && code == DONE; i++)
            code = take_value(args, o, json_array_get(value, i));
        if (code != DONE) return code;
        taken |= UINT64_C(1) << (o - options);
    }
    args->given |= taken;
    args->elsewhere |= taken;
    return DONE;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Takes the object. A file of --json with one picture in it is understood too. */
static int take_source(arguments *args, json_t **source, const char *path, json_t *object) {
    *source = object;
    json_t *pictures = json_object_get(object, "pictures"), *settings = object;
    if (pictures) settings = json_object_get(json_array_get(pictures, 0), "settings");
    args->where = path;
    int code;
    if (json_array_size(pictures) > 1)
        code = fail(args, NOT_UNDERSTOOD, "tells of %zu pictures: choose the \"settings\" of one",
                    json_array_size(pictures));
    else if (!json_is_object(settings))
        code = fail(args, FAILED, "does not hold settings: {\"prompt\": \"a red fox\", \"seed\": 7} is meant");
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

/* Pictures come from strangers, and ours never say where to write. */
static bool names_output(const json_t *settings) {
    return json_object_get(settings, "output") || json_object_get(settings, "dump");
}

static int read_picture(arguments *args) {
    lz_error err = {.status = LZ_OK}, other;
    lz_context *ctx = lz_open_with(&(lz_context_options){.threads = 1}, &err);
    if (!ctx) return fail_with(args, &err);
    char *text = lz_image_read_text(ctx, args->from, SETTINGS_KEY, &err);
    char *foreign = text ? NULL : lz_image_read_text(ctx, args->from, "parameters", &other);
    json_t *object = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    int code = DONE;
    if (foreign)
        code = fail(args, FAILED,
                    "%s: holds no settings of Lazuli; another program wrote its own into it ('parameters'), which mean "
                    "other things there",
                    args->from);
    else if (!text && err.status == LZ_NOT_FOUND && strstr(err.text, SETTINGS_KEY "'"))
        code = fail(args, FAILED, "%s: holds no settings: only PNG and JPEG files by Lazuli do, as it wrote them",
                    args->from);
    else if (!text)
        code = fail_with(args, &err);
    else if (!object)
        code = fail(args, FAILED, "%s: its settings are damaged: they are not JSON", args->from);
    else if (names_output(object))
        code = fail(args, FAILED, "%s: its settings name a file to write, which those of Lazuli never do", args->from);
    lz_free_text(ctx, foreign);
    lz_free_text(ctx, text);
    lz_close(ctx);
    if (code != DONE) json_decref(object);
    return code == DONE ? take_source(args, &args->sources[1], args->from, object) : code;
}

int read_settings(arguments *args) {
    int code = args->settings ? read_json(args) : DONE;
    return code == DONE && args->from ? read_picture(args) : code;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static json_t *absolute(const char *path) {
    char full[PATH_MAX];
    return path ? json_text(realpath(path, full) ? full : path) : NULL;
}

/* The demo model goes by its name, it is there wherever Lazuli is; and so do those of the Hugging Face cache. */
static json_t *model_of(const job *j) {
    if (strchr(j->name, '/')) return json_text(j->name);
    char full[PATH_MAX], *demo = find_demo();
    bool is_demo = demo && realpath(j->folder, full) && strcmp(full, demo) == 0;
    free(demo);
    return is_demo ? json_string("demo") : absolute(j->folder);
}

json_t *settings_of(const job *j, int64_t seed) {
    const arguments *a = j->args;
    const lz_picture_options *p = &j->picture;
    json_t *images = a->n_images ? json_array() : NULL;
    for (int i = 0; i < a->n_images; i++) json_array_append_new(images, absolute(a->images[i]));
    /* o*: left out where it is NULL */
    return json_pack("{s:o*, s:o, s:o*, s:I, s:I, s:o*, s:o*, s:I, s:f, s:o*, s:o*, s:o*, s:s}", "model", model_of(j),
                     "prompt", json_text(p->prompt), "negative", a->negative ? json_text(a->negative) : NULL, "width",
                     (json_int_t)p->width, "height", (json_int_t)p->height, "seed",
                     a->noise ? NULL : json_integer(seed), "noise", absolute(a->noise), "steps", (json_int_t)p->steps,
                     "guidance", p->guidance, "image", images, "strength",
                     a->strength > 0 ? json_real(a->strength) : NULL, "device",
                     *j->device ? json_text(j->device) : NULL, "precision", lz_dtype_name(lz_compute_type(j->ctx)));
}

/* With as few digits as give the same numbers back. */
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
