/* names.c: see cache.h: from a name to a folder. Nothing here uses the network. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache.h"

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Sizes of the downloaded parts, as listed by the hub in November 2026. */
const known_model known_models[] = {
    {"flux2-klein-4b", "black-forest-labs/FLUX.2-klein-4B", 15964309209, "klein-4b"},
    {"flux2-klein-9b", "black-forest-labs/FLUX.2-klein-9B", 34722772650, "klein-9b"},
    {"flux2-klein-base-4b", "black-forest-labs/FLUX.2-klein-base-4B", 15964309000, "klein-base-4b"},
    {"flux2-klein-base-9b", "black-forest-labs/FLUX.2-klein-base-9B", 34722772000, "klein-base-9b"},
    {"qwen-image", "Qwen/Qwen-Image", 57704000000, "qwen-image"},
    {"qwen-image-2512", "Qwen/Qwen-Image-2512", 57704000000, "qwen-image"},
    {"qwen-image-edit", "Qwen/Qwen-Image-Edit", 57704000000, "qwen-image-edit"},
    {"qwen-image-edit-2509", "Qwen/Qwen-Image-Edit-2509", 57704000000, "qwen-image-edit-2509"},
    {"qwen-image-edit-2511", "Qwen/Qwen-Image-Edit-2511", 57704000000, "qwen-image-edit-2511"},
    {"z-image-turbo", "Tongyi-MAI/Z-Image-Turbo", 32848000000, "z-image-turbo"},
    {"z-image", "Tongyi-MAI/Z-Image", 20538000000, "z-image"},
};
const size_t n_known_models = COUNT(known_models);

const known_model *known_by(const char *name) {
    for (size_t i = 0; i < n_known_models; i++)
        if (!strcasecmp(name, known_models[i].name) || !strcasecmp(name, known_models[i].repo) ||
            !strcasecmp(name, base_name(known_models[i].repo)))
            return &known_models[i];
    return NULL;
}

const known_model *nearest_known(const char *name) {
    const known_model *nearest = NULL;
    int best = 3;
    for (size_t i = 0; i < n_known_models; i++) {
        int d = distance(name, known_models[i].name);
        if (d < best) {
            best = d;
            nearest = &known_models[i];
        }
    }
    return nearest;
}

const known_model *first_known(void) { return &known_models[0]; }

/* The hub's rule: letters, digits, '-', '_' and '.', no "--" or "..", and '-' or '.' neither at the start nor at the
 * end. */
static bool is_name(const char *text, size_t n) {
    if (n < 1 || n > 96 || strchr("-.", text[0]) || strchr("-.", text[n - 1])) return false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && !strchr("-_.", c))
            return false;
        if (i && c == text[i - 1] && strchr("-.", c)) return false;
    }
    return true;
}

bool is_repo(const char *name) {
    size_t owner = strcspn(name, "/");
    return name[owner] && is_name(name, owner) && is_name(name + owner + 1, strlen(name + owner + 1));
}

bool is_commit(const char *text) { return strlen(text) == 40 && strspn(text, "0123456789abcdef") == 40; }

const char *repo_of(const char *name) {
    const known_model *model = known_by(name);
    if (model) return model->repo;
    return is_repo(name) ? name : NULL;
}

/* ---- folders ----------------------------------------------------------------------------------------------------- */

static const char plain_index[] = "model_index.json", modular_index[] = "modular_model_index.json";

char *path_of(const char *folder, const char *at) { return folder ? file_in(folder, at) : NULL; }

bool have_file(const char *folder, const char *name) {
    struct stat s;
    char *path = path_of(folder, name);
    bool there = path && stat(path, &s) == 0 && S_ISREG(s.st_mode);
    free(path);
    return there;
}

const char *index_name(const char *folder) {
    bool modular = !have_file(folder, plain_index) && have_file(folder, modular_index);
    return modular ? modular_index : plain_index;
}

bool have_model(const char *folder) { return have_file(folder, index_name(folder)); }

char *home_path(const char *variable, const char *below, const char *in_cache) {
    const char *value = variable ? getenv(variable) : NULL, *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (value && *value) return *below ? path_of(value, below) : strdup(value);
    if (!in_cache) return NULL;
    if (cache && *cache) return path_of(cache, in_cache);
    char *folder = home && *home ? path_of(home, ".cache") : NULL, *path = path_of(folder, in_cache);
    free(folder);
    return path;
}

char *hub_cache(void) {
    char *path = home_path("HF_HUB_CACHE", "", NULL);
    if (!path) path = home_path("HUGGINGFACE_HUB_CACHE", "", NULL); /* its older name */
    return path ? path : home_path("HF_HOME", "hub", "huggingface/hub");
}

char *cache_folder(const char *cache, const char *repo) {
    char *path = NULL;
    int owner = (int)strcspn(repo, "/");
    return cache && asprintf(&path, "%s/models--%.*s--%s", cache, owner, repo, repo + owner + 1) >= 0 ? path : NULL;
}

void each_cached(const char *cache, void (*visit)(void *user, const char *repo), void *user) {
    static const char prefix[] = "models--";
    DIR *dir = cache ? opendir(cache) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char repo[MAX_REPO + 1];
        const char *owner = e->d_name + strlen(prefix);
        if (strncmp(e->d_name, prefix, strlen(prefix)) != 0) continue;
        const char *dashes = strstr(owner, "--");
        if (!dashes || strlen(owner) > MAX_REPO) continue;
        snprintf(repo, sizeof repo, "%.*s/%s", (int)(dashes - owner), owner, dashes + 2);
        if (is_repo(repo)) visit(user, repo);
    }
    if (dir) closedir(dir);
}

/* The snapshot of refs/main, if its folder exists. */
static char *snapshot_of_main(const char *folder) {
    char commit[41] = "", *path = path_of(folder, "refs/main"), *snapshot = NULL;
    FILE *file = path ? fopen(path, "re") : NULL;
    if (file && fread(commit, 1, 40, file) == 40 && is_commit(commit) &&
        asprintf(&snapshot, "%s/snapshots/%s", folder, commit) < 0)
        snapshot = NULL;
    if (file) fclose(file);
    free(path);
    if (snapshot && have_model(snapshot)) return snapshot;
    free(snapshot);
    return NULL;
}

char *cached_model(const char *folder) {
    char *best = snapshot_of_main(folder);
    if (best) return best;
    time_t newest = 0;
    char *all = path_of(folder, "snapshots");
    DIR *dir = all ? opendir(all) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        struct stat s;
        char *one = *e->d_name == '.' ? NULL : path_of(all, e->d_name);
        if (one && have_model(one) && stat(one, &s) == 0 && (!best || s.st_mtime > newest)) {
            free(best);
            best = one;
            newest = s.st_mtime;
        } else {
            free(one);
        }
    }
    if (dir) closedir(dir);
    free(all);
    return best;
}
