/* facts.c: the metadata of a picture: what is written into its file beside the pixels. */
#include <stdlib.h>
#include <string.h>

#include "generate.h"

const char *sampler_title(const char *sampler) {
    static const char *const titles[][2] = {
        {"euler", "Euler"},     {"heun", "Heun"}, {"dpm++2m", "DPM++ 2M"}, {"unipc", "UniPC"},
        {"euler_a", "Euler a"}, {"lcm", "LCM"},   {"res_2s", "Res 2S"},    {"res_multistep", "Res Multistep"}};
    for (size_t i = 0; i < COUNT(titles); i++)
        if (strcmp(titles[i][0], sampler) == 0) return titles[i][1];
    return sampler;
}

/* The "parameters" text of AUTOMATIC1111's web UI, which many programs read: prompt, negative prompt, settings. */
static char *parameters_of(const facts *f, const job *j, const char *model) {
    const arguments *a = j->args;
    char *text = NULL;
    bool other = strcmp(j->picture.schedule, "auto") != 0;
    int n = asprintf(
        &text, "%s\n%s%s%sSteps: %d, Sampler: %s%s%s, CFG scale: %s%s%s, Size: %s, Model: %s%s%s, Version: %s",
        j->picture.prompt, a->negative ? "Negative prompt: " : "", a->negative ? a->negative : "",
        a->negative ? "\n" : "", j->picture.steps, sampler_title(j->picture.sampler), other ? ", Schedule type: " : "",
        other ? j->picture.schedule : "", f->guidance, a->noise ? "" : ", Seed: ", a->noise ? "" : f->seed, f->size,
        model, a->strength > 0 ? ", Denoising strength: " : "", a->strength > 0 ? f->strength : "", f->software);
    return n < 0 ? NULL : text;
}

static char *model_name(const job *j) {
    if (strchr(j->name, '/') || j->is_set) return strdup(j->name); /* OWNER/REPO, or of the settings file */
    char *full = realpath(j->folder, NULL), *name = strdup(base_name(full ? full : j->folder));
    free(full);
    return name;
}

bool describe_picture(facts *f, const job *j, const lz_picture *p, int64_t seed) {
    *f = (facts){.pairs = {NULL}};
    if (j->args->no_metadata) return true;
    snprintf(f->seed, sizeof f->seed, "%lld", (long long)seed);
    if (p->steps == j->picture.steps)
        snprintf(f->steps, sizeof f->steps, "%d", p->steps);
    else /* both: the steps that ran, and the option */
        snprintf(f->steps, sizeof f->steps, "%d of %d", p->steps, j->picture.steps);
    snprintf(f->guidance, sizeof f->guidance, "%g", p->guidance);
    snprintf(f->strength, sizeof f->strength, "%g", j->args->strength);
    snprintf(f->shift, sizeof f->shift, "%g", j->picture.shift);
    snprintf(f->passes, sizeof f->passes, "%d computed, %d forecast", p->passes - p->forecast, p->forecast);
    snprintf(f->size, sizeof f->size, "%lldx%lld", (long long)p->image.width, (long long)p->image.height);
    snprintf(f->software, sizeof f->software, "Lazuli %s", lz_version());
    json_t *settings = settings_of(j, seed, j->args->full_paths);
    f->settings = settings_text(settings);
    f->loras = join_loras(json_object_get(settings, "lora"));
    json_decref(settings);
    char *model = model_name(j);
    f->parameters = model ? parameters_of(f, j, model) : NULL;
    f->model = model;
    const char *noise = j->args->noise ? base_name(j->args->noise) : NULL,
               *all[][2] = {
                   {"parameters", f->parameters},
                   {"prompt", j->picture.prompt},
                   {"template", j->args->template},
                   {"negative", j->args->negative},
                   {"seed", noise ? NULL : f->seed},
                   {"noise", noise},
                   {"steps", f->steps},
                   {"strength", j->args->strength > 0 ? f->strength : NULL},
                   {"mask", j->args->mask ? base_name(j->args->mask) : NULL},
                   {"extend", j->args->extend},
                   {"guidance", f->guidance},
                   {"sampler", j->picture.sampler},
                   {"schedule", j->picture.schedule},
                   {"shift", j->picture.shift > 0 ? f->shift : NULL},
                   {"passes", p->forecast ? f->passes : NULL},
                   {"lora", f->loras},
                   {"size", f->size},
                   {"model", f->model},
                   {"software", f->software},
                   {SETTINGS_KEY, f->settings},
               };
    int n = 0;
    bool good = f->settings && f->parameters;
    for (size_t i = 0; i < COUNT(all); i++) {
        if (!all[i][1]) continue;
        f->pairs[n++] = all[i][0];
        good = (f->pairs[n++] = strdup(all[i][1])) && good;
    }
    return good;
}

void forget_facts(facts *f) {
    char *all[] = {f->model, f->parameters, f->settings, f->loras};
    for (size_t i = 0; i < COUNT(all); i++) free(all[i]);
    for (size_t i = 1; i < COUNT(f->pairs); i += 2) free((char *)f->pairs[i]);
    *f = (facts){.pairs = {NULL}};
}
