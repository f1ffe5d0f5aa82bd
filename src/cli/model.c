/* model.c: which model is meant: the one of -m, else of $LAZULI_MODEL, else the demo model that comes with Lazuli.
 *
 * The demo model is looked for from where this program really lies, so that an installed tree may be moved, and a folder
 * with the program and models/ in it may be handed on; after that where the build was told to install. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

#ifndef LZ_SHARE /* the build says otherwise */
#define LZ_SHARE "/usr/local/share/lazuli"
#define LZ_SHARE_FROM_BIN "../share/lazuli"
#endif

enum { PLACES = 3 };

/* Owned; or NULL where this program's own place is not known, or there is no memory left. */
static void name_places(char *places[PLACES]) {
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    int folder = (int)(base_name(self) - self); /* with its slash */
    if (!folder || asprintf(&places[0], "%.*s" LZ_SHARE_FROM_BIN "/models/demo", folder, self) < 0) places[0] = NULL;
    if (!folder || asprintf(&places[1], "%.*smodels/demo", folder, self) < 0) places[1] = NULL;
    places[2] = strdup(LZ_SHARE "/models/demo");
}

/* The folder without links and dots in its name, if there is a model in it; owned. */
static char *model_at(const char *place) {
    char *index = NULL;
    if (!place || asprintf(&index, "%s/model_index.json", place) < 0) index = NULL;
    bool there = index && access(index, R_OK) == 0;
    free(index);
    return there ? realpath(place, NULL) : NULL;
}

static int say_none(const arguments *args, char *const *places) {
    char list[900] = "";
    for (int i = 0; i < PLACES; i++) {
        size_t used = strlen(list);
        if (places[i]) snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", places[i]);
    }
    return fail(args, NOT_UNDERSTOOD,
                "no model was named, and the demo model is in none of its places (%s): name a folder that holds "
                "model_index.json with -m DIR, or once and for all with 'export LAZULI_MODEL=DIR'",
                list);
}

int choose_model(const arguments *args, model_choice *choice) {
    const char *environment = getenv("LAZULI_MODEL");
    *choice = (model_choice){.folder = args->model};
    if (args->model && !*args->model) return fail(args, NOT_UNDERSTOOD, "--model needs the name of a folder");
    if (args->model) return DONE;
    choice->from_environment = environment && *environment;
    choice->folder = choice->from_environment ? environment : NULL;
    if (choice->folder) return DONE;

    char *places[PLACES];
    name_places(places);
    for (int i = 0; i < PLACES && !choice->demo; i++) choice->demo = model_at(places[i]);
    int code = choice->demo ? DONE : say_none(args, places);
    for (int i = 0; i < PLACES; i++) free(places[i]);
    choice->folder = choice->demo;
    return code;
}

int fail_model(const arguments *args, const model_choice *choice, const lz_error *err) {
    if (!choice->from_environment) return fail_with(args, err);
    return fail(args, FAILED, "%s; $LAZULI_MODEL names it", err->text);
}

void say_model(const arguments *args, const model_choice *choice) {
    if (choice->demo) note(args, "this is the demo model; -m DIR takes another");
}
