/* names.c: see cache.h: from a name to a folder. Nothing here uses the network. */
#include <dirent.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache.h"

/* ---- names ------------------------------------------------------------------------------------------------------- */

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
    if (model && model->repo) return model->repo;
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

/* The snapshot of refs/main, if its folder exists. model: and if it is a model. */
static char *snapshot_of_main(const char *folder, bool model) {
    char commit[41] = "", *path = path_of(folder, "refs/main"), *snapshot = NULL;
    FILE *file = path ? fopen(path, "re") : NULL;
    if (file && fread(commit, 1, 40, file) == 40 && is_commit(commit) &&
        asprintf(&snapshot, "%s/snapshots/%s", folder, commit) < 0)
        snapshot = NULL;
    if (file) fclose(file);
    free(path);
    if (snapshot && (model ? have_model(snapshot) : access(snapshot, F_OK) == 0)) return snapshot;
    free(snapshot);
    return NULL;
}

char *cached_model(const char *folder) {
    char *best = snapshot_of_main(folder, true);
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

lz_context *open_for_files(lz_error *err) { return lz_open_with(&LZ_CONTEXT_OPTIONS(.threads = 1), err); }

/* ---- single files ------------------------------------------------------------------------------------------------ */

bool each_snapshot(const char *repo, bool (*visit)(void *user, const char *snapshot), void *user) {
    char *cache = hub_cache(), *folder = cache_folder(cache, repo), *all = path_of(folder, "snapshots"),
         *main = folder ? snapshot_of_main(folder, false) : NULL;
    bool found = main && visit(user, main);
    DIR *dir = all && !found ? opendir(all) : NULL;
    for (struct dirent *e; dir && !found && (e = readdir(dir));) {
        char *one = *e->d_name == '.' ? NULL : path_of(all, e->d_name);
        found = one && !(main && strcmp(one, main) == 0) && visit(user, one);
        free(one);
    }
    if (dir) closedir(dir);
    free(main);
    free(all);
    free(folder);
    free(cache);
    return found;
}

typedef struct search {
    const char *file;
    char *found; /* owned */
} search;

/* The only file whose path ends like this; two are none. */
static bool find_by_end(search *s, const char *snapshot) {
    FTS *walk = fts_open((char *const[]){(char *)snapshot, NULL}, FTS_LOGICAL | FTS_NOCHDIR, NULL);
    size_t m = strlen(s->file);
    int n = 0;
    for (FTSENT *e; walk && (e = fts_read(walk));) {
        size_t length = strlen(e->fts_path);
        if (e->fts_info != FTS_F || length <= m || e->fts_path[length - m - 1] != '/' ||
            strcmp(e->fts_path + length - m, s->file) != 0 || n++)
            continue;
        s->found = strdup(e->fts_path);
    }
    if (walk) fts_close(walk);
    if (n == 1) return s->found;
    free(s->found);
    s->found = NULL;
    return false;
}

static bool find_in(void *user, const char *snapshot) {
    search *s = user;
    if (!have_file(snapshot, s->file)) return find_by_end(s, snapshot);
    s->found = path_of(snapshot, s->file);
    return s->found;
}

/* The slash between OWNER/REPO and FILE; NULL: there is none. */
static const char *file_slash(const char *name, char repo[MAX_REPO + 1]) {
    const char *slash = strchr(name, '/');
    slash = slash ? strchr(slash + 1, '/') : NULL;
    if (!slash || !slash[1] || slash - name > MAX_REPO || strstr(slash, "/../")) return NULL;
    snprintf(repo, MAX_REPO + 1, "%.*s", (int)(slash - name), name);
    return is_repo(repo) ? slash : NULL;
}

bool is_hub_file(const char *name) {
    char repo[MAX_REPO + 1];
    return file_slash(name, repo) && (ends_in(name, ".safetensors") || ends_in(name, ".gguf"));
}

char *cached_file(const char *name) {
    char repo[MAX_REPO + 1];
    const char *slash = file_slash(name, repo);
    search s = {.file = slash ? slash + 1 : NULL};
    if (slash) each_snapshot(repo, find_in, &s);
    return s.found;
}

const char *given_file(const char *name) {
    static struct kept {
        char *path;
        struct kept *next;
    } * all;
    char *path = name && access(name, F_OK) != 0 ? cached_file(name) : NULL;
    if (!path) return name;
    for (struct kept *k = all; k; k = k->next)
        if (strcmp(k->path, path) == 0) return free(path), k->path;
    struct kept *k = malloc(sizeof *k);
    if (!k) return free(path), name;
    *k = (struct kept){path, all};
    return (all = k)->path;
}
