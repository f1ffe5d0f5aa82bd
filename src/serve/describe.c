/* describe.c: see describe.h. */
#include "describe.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *asked_text(const json_t *asked, const char *key) {
    const char *text = json_string_value(json_object_get(asked, key));
    return text && *text ? text : NULL;
}

static json_t *text_or_null(const char *text) { return text && *text ? json_string(text) : json_null(); }

static char *settings_of(const json_t *asked, const lz_picture_options *s, const char *model, const char *device,
                         const char *version, const char *precision) {
    json_t *images = json_object_get(asked, "images");
    json_t *all = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:i, s:o, s:o, s:f, s:s, s:s, s:o, s:O?, s:o, s:o, s:s}",
        "model", text_or_null(model), "model-version", text_or_null(version), "background",
        text_or_null(asked_text(asked, "background")), "mask", text_or_null(asked_text(asked, "mask")), "prompt",
        json_string(s->prompt ? s->prompt : ""), "negative", text_or_null(asked_text(asked, "negative")), "width",
        (json_int_t)s->width, "height", (json_int_t)s->height, "seed", (json_int_t)s->seed, "steps", s->steps, "layers",
        s->layers ? json_integer(s->layers) : json_null(), "resolution",
        s->layers && s->resolution ? json_integer(s->resolution) : json_null(), "guidance", s->guidance, "sampler",
        s->sampler, "schedule", s->schedule, "shift", s->shift > 0 ? json_real(s->shift) : json_null(), "image", images,
        "strength", s->strength > 0 ? json_real(s->strength) : json_null(), "device", text_or_null(device), "precision",
        precision);
    const char *key;
    json_t *value;
    void *next;
    json_object_foreach_safe(all, next, key, value) {
        if (json_is_null(value)) json_object_del(all, key);
    }
    char *text = all ? json_dumps(all, JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(all);
    return text;
}

__attribute__((format(printf, 1, 2))) static char *printed(const char *format, ...) {
    va_list list;
    char *text = NULL;
    va_start(list, format);
    int n = vasprintf(&text, format, list);
    va_end(list);
    return n < 0 ? NULL : text;
}

bool description_make(description *d, const json_t *asked, const lz_picture_options *s, const lz_picture *picture,
                      int layer, const worker_engine *engine, const char *version, const char *precision) {
    const char *model = engine->model_name(engine->user), *device = engine->device(engine->user);
    bool scheduled = strcmp(s->schedule, "auto") != 0;
    const char *negative = asked_text(asked, "negative"), *prompt = s->prompt ? s->prompt : "";
    long long width = (long long)picture->image.width, height = (long long)picture->image.height;
    enum { SEED, STEPS, GUIDANCE, STRENGTH, SHIFT, SIZE, SOFTWARE, LAYER };
    *d = (description){.settings = settings_of(asked, s, model, device, version, precision)};
    char **n = d->numbers;
    n[SEED] = printed("%llu", (unsigned long long)s->seed);
    n[STEPS] = picture->steps == s->steps ? printed("%d", s->steps) : printed("%d of %d", picture->steps, s->steps);
    n[GUIDANCE] = printed("%g", picture->guidance);
    n[STRENGTH] = printed("%g", s->strength);
    n[SHIFT] = printed("%g", s->shift);
    n[SIZE] = printed("%lldx%lld", width, height);
    n[SOFTWARE] = printed("Lazuli %s", lz_version());
    n[LAYER] = printed("%d of %d", layer, picture->n_layers);
    bool good = d->settings;
    for (int i = 0; i <= LAYER; i++) good = good && n[i];
    if (!good) return false;
    d->parameters = printed("%s\n%s%s%sSteps: %d, Sampler: %s%s%s, CFG scale: %s, Seed: %s, Size: %s, Model: %s%s%s, "
                            "Version: %s",
                            prompt, negative ? "Negative prompt: " : "", negative ? negative : "", negative ? "\n" : "",
                            s->steps, engine->sampler_title(s->sampler), scheduled ? ", Schedule type: " : "",
                            scheduled ? s->schedule : "", n[GUIDANCE], n[SEED], n[SIZE], model,
                            s->strength > 0 ? ", Denoising strength: " : "", s->strength > 0 ? n[STRENGTH] : "",
                            n[SOFTWARE]);
    const char *all[][2] = {{"parameters", d->parameters},
                            {"prompt", prompt},
                            {"negative", negative},
                            {"seed", n[SEED]},
                            {"steps", n[STEPS]},
                            {"strength", s->strength > 0 ? n[STRENGTH] : NULL},
                            {"guidance", n[GUIDANCE]},
                            {"sampler", s->sampler},
                            {"schedule", s->schedule},
                            {"shift", s->shift > 0 ? n[SHIFT] : NULL},
                            {"size", n[SIZE]},
                            {"model", model},
                            {"software", n[SOFTWARE]},
                            {"layer", layer ? n[LAYER] : NULL},
                            {"lazuli", d->settings}};
    int count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i][1]) continue;
        d->pairs[count++] = all[i][0];
        d->pairs[count++] = all[i][1];
    }
    return d->parameters;
}

void description_free(description *d) {
    free(d->settings);
    free(d->parameters);
    for (size_t i = 0; i < sizeof d->numbers / sizeof *d->numbers; i++) free(d->numbers[i]);
    *d = (description){.settings = NULL};
}
