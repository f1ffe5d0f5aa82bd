/* sets.c: the settings file: the folder of wildcards, and models that are made of several files, under a short name:
 *
 *     wildcards = "~/wildcards"
 *
 *     [models.klein]
 *     model = "flux-2-klein-4b-Q4_K_M.gguf"
 *     text-encoder = "Qwen3-4B-Q8_0.gguf"
 *     vae = "~/models/flux2-vae.safetensors"
 *
 * The file is $LAZULI_SETTINGS, else settings.toml in $XDG_CONFIG_HOME/lazuli, else in ~/.config/lazuli. It is the part of TOML
 * that such lists need: tables, and texts in quotes. A path is as seen from the file's folder. The keys are names of options,
 * whose texts are taken as if they had been typed. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"

enum { MOST_SETS = 200, MOST_BYTES = 1 << 20 };

static const char *const keys[SET_KEYS] = {"model", "text-encoder", "vision", "vae", "tokenizer", "variant"};

/* The sets of the settings file, read when they are first needed and kept until the program ends. */
static model_set sets[MOST_SETS];
static size_t n_sets;
static bool is_read;
static char *wildcards; /* folder; NULL: not named */

/* The path of the settings file, to be freed; NULL if no variable of the environment gives one. */
static char *settings_path(void) {
    static const struct {
        const char *variable, *below;
    } places[] = {{"LAZULI_SETTINGS", ""},
                  {"XDG_CONFIG_HOME", "/lazuli/settings.toml"},
                  {"HOME", "/.config/lazuli/settings.toml"}};
    for (size_t i = 0; i < COUNT(places); i++) {
        const char *value = getenv(places[i].variable);
        char *path = NULL;
        if (value && *value) return asprintf(&path, "%s%s", value, places[i].below) < 0 ? NULL : path;
    }
    return NULL;
}

/* The path of a file that is named in the settings file: absolute, below the home folder, or relative to the folder
 * of the settings file. Owned. */
static char *resolve(const char *file, const char *path) {
    const char *home = getenv("HOME");
    char *whole = NULL;
    int n = *path == '/' ? asprintf(&whole, "%s", path)
            : strncmp(path, "~/", 2) == 0 && home
                ? asprintf(&whole, "%s%s", home, path + 1)
                : asprintf(&whole, "%.*s%s", (int)(base_name(file) - file), file, path);
    return n < 0 ? NULL : whole;
}

static char *trim(char *text) {
    text += strspn(text, " \t\r");
    for (size_t n = strlen(text); n && strchr(" \t\r", text[n - 1]);) text[--n] = 0;
    return text;
}

/* The text between quotes; blanks and a comment may follow, as in TOML. NULL: the value is not such a text. */
static char *unquote(char *value) {
    char quote = *value, *to = value;
    if (quote != '"' && quote != '\'') return NULL;
    char *at = value + 1;
    for (; *at && *at != quote; at++) {
        if (quote == '"' && *at == '\\') {
            if (!strchr("\"\\", at[1]) || !at[1]) return NULL;
            at++;
        }
        *to++ = *at;
    }
    if (*at != quote) return NULL;
    at = trim(at + 1);
    if (*at && *at != '#') return NULL;
    *to = 0;
    return value;
}

/* Begins the set of a line [models.NAME]. NULL: the line is something else, or there are too many sets. */
static model_set *begin_set(char *line) {
    static const char head[] = "[models.";
    char *end = strchr(line, ']');
    if (!end || strncmp(line, head, sizeof head - 1) != 0 || n_sets == MOST_SETS) return NULL;
    char *after = trim(end + 1), *name = line + sizeof head - 1;
    if (*after && *after != '#') return NULL;
    *end = 0;
    if (*name == '"' && !(name = unquote(name))) return NULL;
    if (!*name || strpbrk(name, "/\" \t")) return NULL;
    for (size_t i = 0; i < n_sets; i++)
        if (strcmp(sets[i].name, name) == 0) return NULL;
    sets[n_sets] = (model_set){.name = strdup(name)};
    return sets[n_sets].name ? &sets[n_sets++] : NULL;
}

static bool take_pair(model_set *set, const char *file, char *line) {
    char *equals = strchr(line, '=');
    if (!equals) return false;
    *equals = 0;
    char *key = trim(line), *value = unquote(trim(equals + 1));
    if (!set) { /* before the first table */
        if (strcmp(key, "wildcards") != 0 || !value || !*value || wildcards) return false;
        wildcards = resolve(file, value);
        return wildcards != NULL;
    }
    for (int i = 0; value && i < SET_KEYS; i++) {
        if (strcmp(keys[i], key) != 0 || set->values[i]) continue;
        set->values[i] = i == SET_VARIANT ? strdup(value) : resolve(file, value);
        return set->values[i];
    }
    return false;
}

static int read_sets(const arguments *args, const char *path, char *text) {
    model_set *set = NULL;
    int64_t number = 1;
    for (char *line = text, *next; line && *line; line = next, number++) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        line = trim(line);
        if (!*line || *line == '#') continue;
        bool good = *line == '[' ? (set = begin_set(line)) != NULL : take_pair(set, path, line);
        if (!good)
            return fail(args, FAILED,
                        "%s: line %lld is not understood: [models.NAME] is meant, each name once, and below it lines "
                        "such as vae = \"FILE\", of model, text-encoder, vision, vae, tokenizer and variant; "
                        "wildcards = \"DIR\" may stand before them",
                        path, (long long)number);
    }
    for (size_t i = 0; i < n_sets; i++)
        if (!sets[i].values[SET_MODEL])
            return fail(args, FAILED, "%s: [models.%s] names no model: model = \"FILE\" is missing", path,
                        sets[i].name);
    return DONE;
}

int each_set(const arguments *args, const model_set **first, size_t *n) {
    int code = DONE;
    char *path = is_read ? NULL : settings_path(), *text = NULL;
    size_t bytes = 0;
    if (path && (getenv("LAZULI_SETTINGS") || access(path, F_OK) == 0)) {
        code = read_file(args, path, MOST_BYTES, &text, &bytes);
        if (code == DONE && strlen(text) != bytes) code = fail(args, FAILED, "%s: is not text", path);
        if (code == DONE) code = read_sets(args, path, text);
    }
    is_read = code == DONE;
    free(text);
    free(path);
    *first = sets;
    *n = n_sets;
    return code;
}

int find_set(const arguments *args, const char *name, const model_set **found) {
    const model_set *first;
    size_t n;
    int code = each_set(args, &first, &n);
    *found = NULL;
    for (size_t i = 0; i < n && code == DONE; i++)
        if (strcmp(first[i].name, name) == 0) *found = &first[i];
    return code;
}

int find_wildcard_folder(const arguments *args, const char **folder) {
    const model_set *first;
    size_t n;
    int code = each_set(args, &first, &n);
    *folder = wildcards;
    return code;
}
