/* model.c: finds the model: that of -m, else that of $LAZULI_MODEL, else the demo model that comes with Lazuli. The
 * name 'demo' means the demo model in settings, and also for -m unless a folder has this name.
 *
 * -m and $LAZULI_MODEL name a folder or a file, an entry of the settings file (sets.c), or a model in the Hugging Face
 * cache by its short name or OWNER/REPO, or a single file in it as OWNER/REPO/FILE; the first that exists is used. A
 * model with a short name can be planned with even if it is not on this machine.
 *
 * The demo model is looked for relative to the program file, so that an installed tree can be moved and a folder with
 * the program and models/ can be copied; then in the folder to which the build installs. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"

#ifndef LZ_SHARE /* set by the build */
#define LZ_SHARE "/usr/local/share/lazuli"
#define LZ_SHARE_FROM_BIN "../share/lazuli"
#endif

enum { PLACES = 3 };

/* The folders in which the demo model is looked for, owned. NULL: the path of this program is not known, or out of
 * memory. */
static void name_places(char *places[PLACES]) {
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    int folder = (int)(base_name(self) - self); /* length, with the slash */
    if (!folder || asprintf(&places[0], "%.*s" LZ_SHARE_FROM_BIN "/models/demo", folder, self) < 0) places[0] = NULL;
    if (!folder || asprintf(&places[1], "%.*smodels/demo", folder, self) < 0) places[1] = NULL;
    places[2] = strdup(LZ_SHARE "/models/demo");
}

/* The absolute path of the folder if it contains a model, owned; otherwise NULL. */
static char *model_at(const char *place) { return have_model(place) ? realpath(place, NULL) : NULL; }

char *find_demo(void) {
    char *places[PLACES], *demo = NULL;
    name_places(places);
    for (int i = 0; i < PLACES; i++) {
        if (!demo) demo = model_at(places[i]);
        free(places[i]);
    }
    return demo;
}

static int say_none(const arguments *args) {
    char list[900] = "", *places[PLACES];
    name_places(places);
    for (int i = 0; i < PLACES; i++) {
        size_t used = strlen(list);
        if (places[i]) snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", places[i]);
        free(places[i]);
    }
    return fail(args, NOT_UNDERSTOOD,
                "no model was named, and the demo model was not found (%s); name a model folder by -m DIR or by "
                "'export LAZULI_MODEL=DIR', or download %s with 'lazuli pull %s'",
                list, show_bytes(first_known()->bytes).text, first_known()->name);
}

static void use_set(model_choice *choice, const model_set *set) {
    choice->set = set;
    choice->folder = set->values[SET_MODEL];
    choice->name = set->name;
}

/* A published model of several files. */
static int choose_known_set(const arguments *args, model_choice *choice, const known_model *known, const char *whose) {
    const model_set *set = cached_set(known);
    const known_part *missing = missing_part(known);
    if (set) return use_set(choice, set), DONE;
    return fail(args, FAILED, "no model at %s: %s of %s is missing; 'lazuli pull %s' downloads %s%s", known->name,
                missing ? missing->file : "a file", missing ? missing->repo : "it", known->name,
                show_bytes(known->bytes).text, whose);
}

/* The nearest name of a set of the settings file, or of a published model. NULL: none is near. */
static const char *nearest_name(const arguments *args, const char *name) {
    const known_model *known = nearest_known(name);
    const char *nearest = known ? known->name : NULL;
    int best = known ? distance(name, known->name) : 3;
    const model_set *sets;
    size_t n;
    if (each_set(args, &sets, &n) != DONE) return nearest;
    for (size_t i = 0; i < n; i++) {
        int d = distance(name, sets[i].name);
        if (d > best || d >= 3 || 2 * d >= (int)strlen(sets[i].name)) continue;
        best = d;
        nearest = sets[i].name;
    }
    return nearest;
}

/* No folder has this name: searches the cache. If it is not there, a name that can be pulled gets a hint; for any
 * other, the library reports the error. */
static int choose_cached(const arguments *args, model_choice *choice, const char *name) {
    const char *repo = repo_of(name), *whose = choice->from_environment ? "; $LAZULI_MODEL names it"
                                               : is_elsewhere(args, "model")
                                                   ? "; the settings name it, and -m DIR chooses another"
                                                   : "";
    const known_model *known = known_by(name);
    const char *near = known ? NULL : nearest_name(args, name);
    if ((choice->owned = cached_file(name))) {
        choice->folder = choice->owned;
        choice->name = name;
        return DONE;
    }
    if (is_hub_file(name)) {
        int owner = (int)strcspn(name, "/") + 1, repo_length = owner + (int)strcspn(name + owner, "/");
        return fail(args, FAILED,
                    "no file at %s, and none in the Hugging Face cache; 'lazuli pull %.*s %s' would look for it on the "
                    "hub%s",
                    name, repo_length, name, name + repo_length + 1, whose);
    }
    if (near) return fail(args, FAILED, "no model at %s; did you mean %s?%s", name, near, whose);
    if (known && known->parts) return choose_known_set(args, choice, known, whose);
    if (!repo) return DONE;
    char *cache = hub_cache(), *folder = cache_folder(cache, repo);
    choice->owned = folder ? cached_model(folder) : NULL;
    free(folder);
    free(cache);
    if (choice->owned) {
        choice->folder = choice->owned;
        choice->name = repo;
        return DONE;
    }
    if (known && args->command->bit & (PLAN | INFO)) {
        choice->published = known;
        choice->name = known->name;
        return DONE;
    }
    if (known)
        return fail(args, FAILED, "no model at %s; 'lazuli pull %s' downloads %s%s", name, known->name,
                    show_bytes(known->bytes).text, whose);
    return fail(args, FAILED,
                "no model at %s: it is not a model folder, and not in the Hugging Face cache; 'lazuli pull %s' would "
                "look for it on the hub%s",
                name, name, whose);
}

/* Does 'demo' mean the demo model? Settings use this name if no model was named. */
static bool means_demo(const arguments *args, const char *given) {
    return strcmp(given, "demo") == 0 && (is_elsewhere(args, "model") || access(given, F_OK) != 0);
}

/* A picture records the folder of its model without the path: is $LAZULI_MODEL that folder? */
static bool means_environment(const arguments *args, const char *given, const char *environment) {
    if (!environment || !is_elsewhere(args, "model") || strchr(given, '/') || access(given, F_OK) == 0) return false;
    char *full = realpath(environment, NULL);
    bool same = full && strcmp(base_name(full), given) == 0;
    free(full);
    return same;
}

int choose_model(const arguments *args, model_choice *choice) {
    const char *environment = getenv("LAZULI_MODEL"), *given = args->model;
    *choice = (model_choice){.folder = NULL};
    if (given && !*given) return fail(args, NOT_UNDERSTOOD, "--model needs the name of a folder");
    choice->from_environment = environment && *environment && (!given || means_environment(args, given, environment));
    if (choice->from_environment) given = environment;
    if (!given || means_demo(args, given)) {
        choice->demo = true;
        choice->from_environment = false;
        given = choice->owned = find_demo();
        if (!given) return say_none(args);
    }
    choice->folder = given;
    choice->name = base_name(given);
    if (access(given, F_OK) == 0) return DONE;
    int code = strchr(given, '/') ? DONE : find_set(args, given, &choice->set);
    if (code != DONE || !choice->set) return code == DONE ? choose_cached(args, choice, given) : code;
    return use_set(choice, choice->set), DONE;
}

int fail_model(const arguments *args, const model_choice *choice, const lz_error *err) {
    if (is_elsewhere(args, "model")) return fail_elsewhere(args, "model", "-m DIR", err);
    if (choice->owned && !choice->demo && is_folder(choice->folder))
        return fail(args, FAILED, "%s; 'lazuli models' lists missing files, 'lazuli pull %s' downloads them", err->text,
                    choice->name);
    if (choice->from_environment) return fail(args, FAILED, "%s; $LAZULI_MODEL names it", err->text);
    if (access(choice->folder, F_OK) == 0) return fail_with(args, err);
    return fail(args, FAILED, "%s; 'lazuli models' lists the models on this machine, 'lazuli pull %s' downloads %s",
                err->text, first_known()->name, show_bytes(first_known()->bytes).text);
}

void say_model(const arguments *args, const model_choice *choice) {
    if (choice->demo && !args->model) note(args, "using the demo model; -m DIR chooses another");
}
