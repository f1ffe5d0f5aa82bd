/* whole.c: see cache.h: checks whether a model is complete, by its index, its configurations, the indices of shards and
 * the headers of weights; no tensor is read. */
#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cache.h"

const model_part model_parts[] = {
    {"scheduler", "scheduler_config.json", NULL, false},
    {"tokenizer", "tokenizer.json", "vocab.json", false},
    {"processor", "preprocessor_config.json", "processor_config.json", false},
    {"text_encoder", "config.json", NULL, true},
    {"transformer", "config.json", NULL, true},
    {"vae", "config.json", NULL, true},
};
const size_t n_model_parts = COUNT(model_parts);

enum { JSON_FILE_LIMIT = 16 << 20 };

bool ends_in(const char *text, const char *ending) {
    size_t n = strlen(text), m = strlen(ending);
    return n > m && strcmp(text + n - m, ending) == 0;
}

/* "vae": ["diffusers", "AutoencoderKL"]; an optional part that the model does not have is [null, null]. Of a modular
 * pipeline "vae": [null, null, {where it is}]. */
bool names_part(const json_t *index, const char *part) {
    const json_t *value = json_object_get(index, part);
    if (json_array_size(value) == 3) return json_is_object(json_array_get(value, 2));
    return json_array_size(value) == 2 && json_is_string(json_array_get(value, 0)) &&
           json_is_string(json_array_get(value, 1));
}

bool runs_pipeline(const char *class) {
    const char *name;
    for (int i = 0; class && (name = lz_pipeline_name(i)); i++)
        if (strcmp(class, name) == 0) return true;
    return false;
}

pipeline_list runnable_pipelines(void) {
    pipeline_list list = {""};
    const char *name;
    for (int i = 0; (name = lz_pipeline_name(i)); i++) {
        size_t n = strlen(list.text);
        const char *between = !i ? "" : lz_pipeline_name(i + 1) ? ", " : " and ";
        snprintf(list.text + n, sizeof list.text - n, "%s%s", between, name);
    }
    return list;
}

__attribute__((format(printf, 2, 3))) static void add_fault(model_state *state, const char *format, ...) {
    char text[600];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127)
            *c = '?'; /* names come from files: no control characters for the terminal */
    json_array_append_new(state->faults, json_text(text));
}

static json_t *read_json(const char *folder, const char *name) {
    struct stat s;
    char *path = path_of(folder, name);
    bool good = path && stat(path, &s) == 0 && S_ISREG(s.st_mode) && s.st_size <= JSON_FILE_LIMIT;
    json_t *json = good ? json_load_file(path, 0, NULL) : NULL;
    free(path);
    return json;
}

static void add_bytes(model_state *state, const char *folder) {
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        struct stat s;
        char *path = *e->d_name == '.' ? NULL : path_of(folder, e->d_name);
        if (path && stat(path, &s) == 0 && S_ISREG(s.st_mode)) state->bytes += s.st_size;
        free(path);
    }
    if (dir) closedir(dir);
}

/* Does the file have all bytes that its header lists? */
static void look_at_file(lz_context *ctx, const char *folder, const char *part, const char *name, model_state *state) {
    lz_error err = {.status = LZ_OK};
    char *path = path_of(folder, name);
    lz_weights *weights = path && have_file(folder, name) ? lz_weights_open(ctx, path, &err) : NULL;
    if (!have_file(folder, name))
        add_fault(state, "%s/%s is missing", part, name);
    else if (!weights)
        add_fault(state, "%s/%s is damaged", part, name);
    lz_weights_close(weights);
    free(path);
}

static void look_at_shards(lz_context *ctx, const char *folder, const char *part, const json_t *map,
                           model_state *state) {
    json_t *seen = json_object(), *file;
    const char *tensor;
    json_object_foreach((json_t *)map, tensor, file) {
        const char *name = json_string_value(file);
        if (!name || strchr(name, '/') || json_object_get(seen, name)) continue;
        json_object_set_new(seen, name, json_true());
        look_at_file(ctx, folder, part, name, state);
    }
    json_decref(seen);
}

/* Checks the file, or the files of the index, that the library would open in this folder. */
static void look_at_weights(lz_context *ctx, const char *folder, const char *part, model_state *state) {
    const char *name;
    for (int i = 0; (name = lz_weights_file_name(i)); i++) {
        if (!have_file(folder, name)) continue;
        if (!ends_in(name, ".json")) return look_at_file(ctx, folder, part, name, state);
        json_t *index = read_json(folder, name), *map = json_object_get(index, "weight_map");
        if (json_object_size(map))
            look_at_shards(ctx, folder, part, map, state);
        else
            add_fault(state, "%s/%s is damaged", part, name);
        json_decref(index);
        return;
    }
    lz_error err = {.status = LZ_OK}; /* a file with an unusual name? */
    lz_weights *weights = lz_weights_open(ctx, folder, &err);
    if (!weights) add_fault(state, "the weights of %s are missing", part);
    lz_weights_close(weights);
}

/* Is the file there, and JSON? Vocabularies of megabytes are not parsed, because that takes long. */
static void look_at_config(const char *folder, const model_part *part, model_state *state) {
    enum { PARSED = 1 << 20 };
    struct stat s;
    bool other = part->or_config && !have_file(folder, part->config) && have_file(folder, part->or_config);
    const char *name = other ? part->or_config : part->config;
    char *path = path_of(folder, name);
    bool large = path && stat(path, &s) == 0 && s.st_size > PARSED;
    json_t *json = large ? NULL : read_json(folder, name);
    if (!have_file(folder, name))
        add_fault(state, "%s/%s is missing", part->name, name);
    else if (!large && !json)
        add_fault(state, "%s/%s is damaged", part->name, name);
    json_decref(json);
    free(path);
}

/* lazuli.json, which is optional, and the list of words that it names. */
static void look_at_training(const char *folder, model_state *state) {
    static const char name[] = "lazuli.json";
    json_t *json = read_json(folder, name);
    const char *words = json_string_value(json_object_get(json, "words"));
    if (!json && have_file(folder, name)) add_fault(state, "%s is damaged", name);
    if (words && !have_file(folder, words)) add_fault(state, "%s is missing; %s names it", words, name);
    json_decref(json);
}

void look_at_model(lz_context *ctx, const char *folder, model_state *state) {
    *state = (model_state){.faults = json_array()};
    json_t *index = read_json(folder, index_name(folder));
    const char *class = json_string_value(json_object_get(index, "_class_name"));
    snprintf(state->class, sizeof state->class, "%s", class ? class : "");
    state->runs = runs_pipeline(class);
    if (!json_is_object(index))
        add_fault(state, "model_index.json is missing or damaged");
    else if (!state->runs)
        add_fault(state, "Lazuli does not run a %s; it runs %s", class ? state->class : "pipeline without a name",
                  runnable_pipelines().text);
    add_bytes(state, folder);
    look_at_training(folder, state);
    for (size_t i = 0; i < n_model_parts; i++) {
        const model_part *part = &model_parts[i];
        char *inner = names_part(index, part->name) ? path_of(folder, part->name) : NULL;
        if (!inner) continue;
        add_bytes(state, inner);
        look_at_config(inner, part, state);
        if (part->weights) look_at_weights(ctx, inner, part->name, state);
        free(inner);
    }
    /* A model without a tokenizer/ has its tokenizer in processor/. */
    char *processor = names_part(index, "processor") && !names_part(index, "tokenizer") ? path_of(folder, "processor")
                                                                                        : NULL;
    if (processor && !have_file(processor, "tokenizer.json") && !have_file(processor, "vocab.json"))
        add_fault(state, "processor/tokenizer.json is missing");
    free(processor);
    json_decref(index);
}
