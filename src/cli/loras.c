/* loras.c: the LoRAs of a picture: those of --lora FILE[=WEIGHT], and <lora:NAME:WEIGHT> in its prompt, where a folder for
 * LoRAs is named or the model has one. A name that is no file is looked for in these folders, too, and as
 * OWNER/REPO/FILE in the Hugging Face cache. The model gets them when they differ from those of the picture before; nothing else of it is opened again. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"

#define OWN_FOLDER "loras" /* in the folder of a model: the LoRAs that come with it */
#define ENDING ".safetensors"

typedef struct wanted {
    char *paths[MAX_LORAS]; /* owned */
    double weights[MAX_LORAS];
    int n;
} wanted;

static void forget(wanted *w) {
    for (int i = 0; i < w->n; i++) free(w->paths[i]);
}

static const char *lora_folder(const arguments *args) {
    const char *environment = getenv("LAZULI_LORAS");
    if (args->lora_folder) return args->lora_folder;
    return environment && *environment ? environment : NULL;
}

/* The folder of the LoRAs that come with the model, owned; NULL: it has none. The model was chosen before, so
 * choosing it again reports nothing. */
static char *model_folder(const arguments *args) {
    model_choice choice;
    char *folder = NULL;
    if (choose_model(args, &choice) == DONE && choice.folder) folder = file_in(choice.folder, OWN_FOLDER);
    free(choice.owned);
    if (folder && is_folder(folder)) return folder;
    free(folder);
    return NULL;
}

static bool is_weight(const char *text, double *to) {
    char *end = NULL;
    *to = strtod(text, &end);
    return *text && strspn(text, "0123456789.eE+-") == strlen(text) && !*end && isfinite(*to) && fabs(*to) <= 100;
}

/* A file in a folder of LoRAs, with or without the ending. Owned; NULL: there is no such file. */
static char *find_in(const char *folder, const char *name) {
    static const char *const endings[] = {"", ENDING};
    for (size_t i = 0; folder && i < COUNT(endings); i++) {
        char *path = NULL;
        if (asprintf(&path, "%s/%s%s", folder, name, endings[i]) < 0) return NULL;
        if (access(path, R_OK) == 0 && !is_folder(path)) return path;
        free(path);
    }
    return NULL;
}

static int is_lora_file(const struct dirent *entry) {
    return entry->d_name[0] != '.' && ends_in(entry->d_name, ENDING);
}

/* The names of the LoRAs in a folder (or NULL), as a list of texts */
static json_t *list_loras(const char *folder) {
    struct dirent **files = NULL;
    json_t *names = json_array();
    int n = folder ? scandir(folder, &files, is_lora_file, alphasort) : 0;
    for (int i = 0; i < n; i++) {
        files[i]->d_name[strlen(files[i]->d_name) - strlen(ENDING)] = 0;
        char *path = find_in(folder, files[i]->d_name);
        if (path) json_array_append_new(names, json_text(files[i]->d_name));
        free(path);
        free(files[i]);
    }
    free(files);
    return names;
}

json_t *loras_of(const char *model) {
    char *folder = file_in(model, OWN_FOLDER);
    json_t *names = list_loras(folder);
    free(folder);
    return names;
}

static int fail_missing(const arguments *args, const char *name, const char *own) {
    const char *folder = lora_folder(args);
    json_t *list = list_loras(own);
    char *names = join_loras(list);
    int code = fail(args, FAILED, "there is no LoRA %s%s%s%s%s%s", name, folder ? ", nor in " : "",
                    folder ? folder : "", names ? "; LoRAs of the model: " : "", names ? names : "",
                    is_elsewhere(args, "lora") ? "; the settings name it, and --lora FILE chooses another" : "");
    free(names);
    json_decref(list);
    return code;
}

/* The path of a LoRA: a file or a folder of that name, one in the folder for LoRAs or in that of the model, or one in the
 * Hugging Face cache. Owned; NULL: there is none. own: the folder of the model's LoRAs, or NULL. */
static char *find_lora(const arguments *args, const char *name, const char *own) {
    bool there = access(name, R_OK) == 0;
    if (there && !is_folder(name)) return strdup(name);
    char *path = find_in(lora_folder(args), name);
    if (!path) path = find_in(own, name);
    if (!path) path = cached_file(name);
    return path || !there ? path : strdup(name);
}

static int add(const arguments *args, wanted *w, const char *name, double weight) {
    char *own = model_folder(args), *path = find_lora(args, name, own);
    int code = path ? DONE : fail_missing(args, name, own);
    free(own);
    if (code != DONE) return code;
    if (w->n == MAX_LORAS) {
        free(path);
        return fail(args, NOT_UNDERSTOOD, "at most %d LoRAs can be used at once", MAX_LORAS);
    }
    w->paths[w->n] = path;
    w->weights[w->n++] = weight;
    return DONE;
}

/* Reads FILE[=WEIGHT]. The name of the file may contain a '='. */
static int add_given(const arguments *args, wanted *w, const char *text) {
    const char *equals = strrchr(text, '=');
    double weight = 1;
    if (!equals || access(text, R_OK) == 0) return add(args, w, text, 1);
    if (!is_weight(equals + 1, &weight))
        return fail(args, NOT_UNDERSTOOD, "--lora takes FILE or FILE=WEIGHT with a weight from -100 to 100, not '%s'",
                    text);
    char *name = strndup(text, (size_t)(equals - text));
    int code = name ? add(args, w, name, weight) : fail(args, FAILED, "out of memory");
    free(name);
    return code;
}

int check_loras(const arguments *args) {
    wanted w = {.n = 0};
    int code = DONE;
    for (int i = 0; i < args->n_loras && code == DONE; i++) code = add_given(args, &w, args->loras[i]);
    forget(&w);
    return code;
}

/* ---- in prompts -------------------------------------------------------------------------------------------------- */

static const char mark[] = "<lora:";

/* Reads one tag: NAME or NAME:WEIGHT between the mark and '>'. */
static int add_tag(const arguments *args, wanted *w, const char *text, size_t length) {
    char *name = strndup(text, length), *colon = name ? strrchr(name, ':') : NULL;
    double weight = 1;
    int code = DONE;
    if (!name) return fail(args, FAILED, "out of memory");
    if (colon && !is_weight(colon + 1, &weight))
        code = fail(args, NOT_UNDERSTOOD, "<lora:%s> in the prompt: the weight must be a number from -100 to 100",
                    name);
    if (colon) *colon = 0;
    if (code == DONE) code = add(args, w, name, weight);
    free(name);
    return code;
}

/* Removes the tags from the prompt; j->picture.prompt points to the rest. */
static int take_tags(job *j, wanted *w) {
    const char *prompt = j->picture.prompt;
    if (!prompt || !strstr(prompt, mark)) return DONE;
    char *own = model_folder(j->args);
    bool has_folder = lora_folder(j->args) || own;
    free(own);
    if (!has_folder) {
        note(j->args, "<lora:...> in the prompt is read as words: name the folder of the LoRAs with --lora-folder DIR");
        return DONE;
    }
    char *rest = calloc(1, strlen(prompt) + 1), *to = rest;
    if (!rest) return fail(j->args, FAILED, "out of memory");
    int code = DONE;
    while (code == DONE && *prompt) {
        const char *tag = strstr(prompt, mark), *end = tag ? strchr(tag, '>') : NULL;
        size_t plain = end ? (size_t)(tag - prompt) : strlen(prompt);
        to = (char *)memcpy(to, prompt, plain) + plain;
        if (!end) break;
        code = add_tag(j->args, w, tag + sizeof mark - 1, (size_t)(end - tag) - (sizeof mark - 1));
        prompt = end + 1;
        if (to == rest || to[-1] == ' ') prompt += strspn(prompt, " "); /* of the blanks around a tag, one is left */
    }
    while (to > rest && to[-1] == ' ') *--to = 0;
    if (code != DONE) {
        free(rest);
        return code;
    }
    free(j->prompt);
    j->picture.prompt = j->prompt = rest;
    return DONE;
}

/* ---- using ------------------------------------------------------------------------------------------------------- */

/* The LoRAs as lines PATH=WEIGHT, owned; "": there are none; NULL: out of memory. */
static char *list_of(const wanted *w) {
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    for (int i = 0; to && i < w->n; i++) fprintf(to, "%s%s=%.15g", i ? "\n" : "", w->paths[i], w->weights[i]);
    return to && fclose(to) == 0 ? text : NULL;
}

static void tell(const job *j) {
    lz_lora_facts facts[MAX_LORAS];
    int n = lz_model_loras(j->model, facts, MAX_LORAS);
    for (int i = 0; i < n; i++) {
        const lz_lora_facts *f = &facts[i];
        const char *name = base_name(f->path);
        int unused = f->modules - f->used;
        if (unused)
            note(j->args, "LoRA %s: %d of %d modules; not used: %d (%s%s%s%s%s)", name, f->used, f->modules, unused,
                 f->unused[0], unused > 1 ? ", " : "", f->unused[1], unused > 2 ? ", " : "", f->unused[2]);
        else
            note(j->args, "LoRA %s: %d of %d modules", name, f->used, f->modules);
        if (f->given_twice)
            note(j->args, "LoRA %s: %d of its modules are there in parts too, and the parts are used", name,
                 f->given_twice);
        if (f->steps)
            note(j->args,
                 "LoRA %s is for few steps: %d steps, no guidance and a schedule shifted by %g, unless --steps, "
                 "--guidance or --lora-schedule model say otherwise",
                 name, f->steps, f->shift);
    }
}

static int set(job *j, const wanted *w) {
    const arguments *a = j->args;
    lz_error err = {.status = LZ_OK};
    lz_lora loras[MAX_LORAS];
    /* LoRAs that a picture names (--from) were used for that picture, perhaps in part. */
    bool partial = a->lora_partial || (a->from && is_elsewhere(a, "lora"));
    for (int i = 0; i < w->n; i++)
        loras[i] = LZ_LORA(.path = w->paths[i], .weight = w->weights[i], .partial = partial,
                           .ordinary = a->lora_ordinary);
    if (lz_model_set_loras(j->model, loras, w->n, &err) == LZ_OK) return DONE;
    if (!strstr(err.text, "partial match")) return fail_with(a, &err);
    return fail(a, FAILED, "%s: --lora-partial", err.text);
}

static void say_twice(const job *j, const wanted *w) {
    for (int i = 0; i < w->n; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(w->paths[i], w->paths[k]) == 0) {
                note(j->args, "the LoRA %s is given more than once, so its weights are added up", w->paths[i]);
                return;
            }
}

int use_loras(job *j) {
    wanted w = {.n = 0};
    int code = DONE;
    for (int i = 0; i < j->args->n_loras && code == DONE; i++) code = add_given(j->args, &w, j->args->loras[i]);
    if (code == DONE) code = take_tags(j, &w);
    char *list = code == DONE ? list_of(&w) : NULL;
    bool same = list && j->loras && strcmp(list, j->loras) == 0 && j->loras_ordinary == j->args->lora_ordinary;
    if (code == DONE && !list) code = fail(j->args, FAILED, "out of memory");
    if (code == DONE && !same) say_twice(j, &w);
    if (code == DONE && !same) code = set(j, &w);
    if (code == DONE && !same) {
        free(j->loras);
        j->loras = list;
        j->loras_ordinary = j->args->lora_ordinary;
        list = NULL;
        j->facts = lz_model_about(j->model);
        tell(j);
    }
    free(list);
    forget(&w);
    return code;
}

char *join_loras(const json_t *list) {
    char *text = NULL;
    size_t size = 0;
    FILE *to = json_array_size(list) ? open_memstream(&text, &size) : NULL;
    for (size_t i = 0; to && i < json_array_size(list); i++)
        fprintf(to, "%s%s", i ? ", " : "", json_string_value(json_array_get(list, i)));
    if (to) fclose(to);
    return text;
}
