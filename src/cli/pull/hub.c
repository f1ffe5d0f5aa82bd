/* hub.c: see hub.h. The requests and answers:
 *
 *     GET /api/models/OWNER/REPO/revision/REV               {"sha": COMMIT, "cardData": {"license": "mit"}, ...}
 *     GET /api/models/OWNER/REPO/tree/COMMIT?recursive=true [{"type": "file", "path": "vae/config.json", "size": 821,
 *                                                            "oid": SHA-1, "lfs": {"oid": SHA-256, "size": ...}}, ...]
 *     GET /OWNER/REPO/resolve/COMMIT/PATH                   the file, mostly by a redirect to its storage */
#include "pull/hub.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"

/* Limits of a hub's answers. A page of its list has up to 1000 files, in about 400 KB; only the needed files of each
 * page are kept. In total at most 40 MiB are read, with about 30 MB of memory in use. */
#define LARGEST_FILE ((int64_t)1 << 44) /* bytes */

enum {
    ANSWER_LIMIT = 2 << 20, /* bytes: of a page, and of the description of a commit */
    INDEX_LIMIT = 1 << 20,  /* bytes: of the index of a model */
    TOKEN_LIMIT = 1024,
    MOST_PAGES = 20,
    MOST_FILES = 2000 /* needed files */
};

/* ---- endpoint and token ------------------------------------------------------------------------------------------ */

static char *token_file(const char *path) {
    char text[TOKEN_LIMIT + 1] = "";
    FILE *file = path ? fopen(path, "re") : NULL;
    size_t n = file ? fread(text, 1, TOKEN_LIMIT, file) : 0;
    if (file) fclose(file);
    text[n] = 0;
    return n ? strdup(text) : NULL;
}

/* Searches the token in the same places, and in the same order, as the hub's own tools. */
static char *find_token(void) {
    static const char *const names[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"};
    for (size_t i = 0; i < COUNT(names); i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strdup(value);
    }
    char *path = home_path("HF_TOKEN_PATH", "", NULL);
    if (!path) path = home_path("HF_HOME", "token", "huggingface/token");
    char *token = token_file(path);
    free(path);
    return token;
}

/* The token becomes a header line, so it must not contain line ends. It is never printed. */
static int check_token(const arguments *args, char **token) {
    if (!*token) return DONE;
    char *begin = *token + strspn(*token, " \t\r\n");
    size_t n = strlen(begin);
    while (n && strchr(" \t\r\n", begin[n - 1])) n--;
    memmove(*token, begin, n);
    (*token)[n] = 0;
    for (const char *c = *token; *c; c++)
        if (*c <= 32 || *c >= 127 || n > TOKEN_LIMIT)
            return fail(args, FAILED, "the token for the hub (HF_TOKEN or its file) contains invalid characters");
    if (n) return DONE;
    free(*token);
    *token = NULL;
    return DONE;
}

static bool is_revision(const char *text) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";
    size_t n = strlen(text);
    return n > 0 && n < 200 && strspn(text, letters) == n && !strstr(text, "..") && !strstr(text, "//") &&
           !strchr("./-", text[0]) && text[n - 1] != '/';
}

static double seconds_from(const char *variable, double least, double usual) {
    const char *value = getenv(variable);
    double seconds = value ? strtod(value, NULL) : usual;
    return seconds >= least && seconds < 3600 ? seconds : usual;
}

int hub_open(hub *h, const arguments *args, const char *repo) {
    const char *endpoint = args->endpoint ? args->endpoint : getenv("HF_ENDPOINT");
    *h = (hub){.repo = repo, .revision = args->revision ? args->revision : "main"};
    h->web = (web){.args = args,
                   .pause = seconds_from("LAZULI_PULL_PAUSE", 0, 0.5),
                   .stall = seconds_from("LAZULI_PULL_STALL", 0.01, 60)};
    if (!is_revision(h->revision))
        return fail(args, NOT_UNDERSTOOD, "'%s' is not a branch, tag or commit", h->revision);
    if (!endpoint || !*endpoint) endpoint = "https://huggingface.co";
    if (!web_url(endpoint))
        return fail(args, NOT_UNDERSTOOD, "'%s' is not the address of a hub, such as https://huggingface.co", endpoint);
    h->web.endpoint = strdup(endpoint);
    if (!h->web.endpoint) return fail(args, FAILED, "out of memory");
    for (size_t n = strlen(h->web.endpoint); n && h->web.endpoint[n - 1] == '/'; n--) h->web.endpoint[n - 1] = 0;
    snprintf(h->web.page, sizeof h->web.page, "%s/%s", h->web.endpoint, h->repo);
    h->web.token = find_token();
    return check_token(args, &h->web.token);
}

void hub_close(hub *h) {
    for (size_t i = 0; i < h->n; i++) free(h->files[i].path);
    free(h->files);
    free(h->web.endpoint);
    if (h->web.token) explicit_bzero(h->web.token, strlen(h->web.token));
    free(h->web.token);
}

/* ---- which files ------------------------------------------------------------------------------------------------- */

/* Is the path unsafe? Git cannot store such paths, so a hub that lists one is malicious. */
static bool is_harmful(const char *path) {
    if (*path == '/' || !*path) return true;
    for (const char *at = path; at; at = strchr(at, '/')) {
        if (*at == '/') at++;
        size_t n = strcspn(at, "/");
        if (n == 0 || (n == 1 && *at == '.') || (n == 2 && at[0] == '.' && at[1] == '.')) return true;
    }
    for (const char *c = path; *c; c++)
        if ((unsigned char)*c < 32 || *c == 127) return true;
    return false;
}

static bool is_plain(const char *name) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return *name != '.' && *name != '-' && strlen(name) < 200 && strspn(name, letters) == strlen(name);
}

/* Are all parts of the path plain? They become a part of an address. */
static bool is_plain_path(const char *path) {
    char name[256];
    for (;; path++) {
        size_t n = strcspn(path, "/");
        if (n >= sizeof name) return false;
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        if (!n || !is_plain(name)) return false;
        path += n;
        if (!*path) return true;
    }
}

/* Is it a weight file? Compares the part from the first dot with the names that the library looks for. */
static bool is_weights(const char *name) {
    const char *usual;
    for (int i = 0; (usual = lz_weights_file_name(i)); i++)
        if (ends_in(name, strchr(usual, '.'))) return true;
    return false;
}

bool is_small_kind(const char *name) {
    static const char *const endings[] = {".json", ".txt", ".jinja", ".model"};
    for (size_t i = 0; i < COUNT(endings); i++)
        if (ends_in(name, endings[i])) return true;
    return false;
}

/* Does a file belong to the weights with this usual name? If it is the name of an index, the shards belong to it:
 * "model-00002-of-00005.safetensors" to "model.safetensors.index.json". usual NULL: weights with no usual name; next to
 * usual names, such files (model.fp16.safetensors) are the same weights in other types. */
static bool is_kept_as(const char *name, const char *usual) {
    if (!usual) return is_weights(name);
    if (strcmp(name, usual) == 0) return true;
    size_t stem = strcspn(usual, ".");
    int a = 0, b = 0, end = 0;
    return ends_in(usual, ".json") && is_weights(name) && strncmp(name, usual, stem) == 0 &&
           sscanf(name + stem, "-%5d-of-%5d%n", &a, &b, &end) == 2 && end && name[stem + (size_t)end] == '.' &&
           !strchr(name + stem + (size_t)end + 1, '.');
}

static bool is_hash(const char *text, size_t n) {
    return text && strlen(text) == n && strspn(text, "0123456789abcdef") == n;
}

static int add_file(hub *h, const json_t *entry) {
    const arguments *args = h->web.args;
    const char *path = json_string_value(json_object_get(entry, "path"));
    const json_t *lfs = json_object_get(entry, "lfs");
    hub_file f = {.large = json_is_object(lfs)};
    const json_t *size = json_object_get(f.large ? lfs : entry, "size");
    const char *hash = json_string_value(json_object_get(f.large ? lfs : entry, "oid"));
    f.size = json_integer_value(size);
    if (!is_plain_path(path))
        return fail(args, FAILED, "%s: the hub lists a file with invalid characters in its name; nothing is downloaded",
                    h->repo);
    if (!json_is_integer(size) || f.size < 0 || f.size > LARGEST_FILE || !is_hash(hash, f.large ? 64 : 40))
        return fail(args, FAILED, "%s: the hub lists %s with an invalid size or hash", h->repo, path);
    if (h->n == MOST_FILES)
        return fail(args, FAILED, "%s: the hub lists more than %d files of the model; nothing is downloaded", h->repo,
                    MOST_FILES);
    if (h->n == h->room) {
        size_t room = 2 * h->room + 32;
        hub_file *files = realloc(h->files, room * sizeof *files);
        if (!files) return fail(args, FAILED, "out of memory");
        h->files = files;
        h->room = room;
    }
    snprintf(f.hash, sizeof f.hash, "%s", hash);
    f.path = strdup(path);
    if (!f.path) return fail(args, FAILED, "out of memory");
    h->files[h->n++] = f;
    return DONE;
}

/* The name of a file that is directly in the folder ("": the top folder). NULL: it is not in the folder. */
static const char *name_in(const char *path, const char *folder) {
    size_t n = strlen(folder);
    if (n && (strncmp(path, folder, n) != 0 || path[n] != '/')) return NULL;
    const char *name = n ? path + n + 1 : path;
    return strchr(name, '/') ? NULL : name;
}

/* The indices of a pipeline and of a modular pipeline. The description of the commit lists all files. */
static const char *const index_names[] = {"model_index.json", "modular_model_index.json"};

static bool is_index(const char *path) {
    return strcmp(path, index_names[0]) == 0 || strcmp(path, index_names[1]) == 0;
}

/* Is the file needed? Weights of all types are, at first; see drop_other_weights. */
static bool is_needed(const hub *h, const char *path, const json_t *index) {
    if (strcmp(path, h->index) == 0) return true;
    for (size_t i = 0; i < n_model_parts; i++) {
        const char *name = name_in(path, model_parts[i].name);
        if (name && names_part(index, model_parts[i].name)) return is_weights(name) || is_small_kind(name);
    }
    return false;
}

/* ---- single files ------------------------------------------------------------------------------------------------ */

/* Is it the path, or the last part of it? */
static bool is_named(const char *path, const char *wanted) {
    size_t n = strlen(path), m = strlen(wanted);
    return n >= m && strcmp(path + n - m, wanted) == 0 && (n == m || path[n - m - 1] == '/');
}

/* Are both parts of one split GGUF model, stem-00001-of-00003.gguf? */
static bool is_same_split(const char *a, const char *b) {
    static const char form[] = "-00001-of-00003.gguf";
    size_t n = strlen(a), m = sizeof form - 1, number = sizeof "-00001" - 1;
    if (n != strlen(b) || n <= m || strncmp(a, b, n - m + 1) != 0) return false;
    const char *end = a + n - m + number;
    return strcmp(end, b + n - m + number) == 0 && strncmp(end, "-of-", 4) == 0 && ends_in(a, ".gguf");
}

static bool is_wanted(const hub *h, const char *path) {
    for (size_t i = 0; i < h->n_wanted; i++)
        if (is_named(path, h->wanted[i]) || is_same_split(base_name(path), base_name(h->wanted[i]))) return true;
    return false;
}

static void note_offer(hub *h, const char *path) {
    size_t n = strlen(h->offers), left = sizeof h->offers - n;
    if (!(ends_in(path, ".gguf") || ends_in(path, ".safetensors")) || strlen(path) + 8 > left) return;
    snprintf(h->offers + n, left, "%s%s", n ? ", " : "", path);
}

/* The index of the file that is meant, or an error. */
static int find_wanted(const hub *h, const char *wanted, size_t *at) {
    size_t found = 0;
    for (size_t i = 0; i < h->n; i++) {
        if (!is_named(h->files[i].path, wanted)) continue;
        bool exact = strcmp(h->files[i].path, wanted) == 0;
        if (!found || exact) *at = i;
        found++;
        if (exact) return DONE;
    }
    if (found > 1)
        return fail(h->web.args, FAILED, "%s: has %zu files called %s, such as %s; name one by its whole path", h->repo,
                    found, wanted, h->files[*at].path);
    if (!found)
        return fail(h->web.args, FAILED, "%s: has no file %s%s%s", h->repo, wanted,
                    *h->offers ? "; it has " : ", and no .safetensors or .gguf file", h->offers);
    return DONE;
}

/* Keeps the wanted files, and all parts of those that are split. */
static int choose_wanted(hub *h) {
    bool *keep = calloc(h->n + 1, sizeof *keep);
    int code = keep ? DONE : fail(h->web.args, FAILED, "out of memory");
    size_t at = 0, left = 0;
    for (size_t k = 0; k < h->n_wanted && code == DONE; k++) {
        code = find_wanted(h, h->wanted[k], &at);
        for (size_t i = 0; i < h->n && code == DONE; i++)
            keep[i] = keep[i] || i == at || is_same_split(h->files[i].path, h->files[at].path);
    }
    for (size_t i = 0; i < h->n && code == DONE; i++) {
        if (keep[i])
            h->files[left++] = h->files[i];
        else
            free(h->files[i].path);
    }
    if (code == DONE) h->n = left;
    free(keep);
    return code;
}

/* ---- the list of files ------------------------------------------------------------------------------------------- */

static int take_page(hub *h, const json_t *page, const json_t *index) {
    const json_t *entry;
    size_t i;
    int code = DONE;
    json_array_foreach((json_t *)page, i, entry) {
        const char *type = json_string_value(json_object_get(entry, "type"));
        const char *path = json_string_value(json_object_get(entry, "path"));
        if (!path || is_harmful(path))
            return fail(h->web.args, FAILED, "%s: the hub lists a path outside the model; nothing is downloaded",
                        h->repo);
        bool file = type && strcmp(type, "file") == 0;
        if (file && h->n_wanted) note_offer(h, path);
        if (file && (h->n_wanted ? is_wanted(h, path) : is_needed(h, path, index))) code = add_file(h, entry);
        if (code != DONE) return code;
    }
    return DONE;
}

/* Keeps only those weights of a part that the library would open. */
static void drop_other_weights(hub *h, const char *folder) {
    int kept = INT_MAX; /* index of the usual name that the library would use */
    size_t left = 0;
    for (size_t i = 0; i < h->n; i++) {
        const char *name = name_in(h->files[i].path, folder);
        for (int k = 0; name && k < kept && lz_weights_file_name(k); k++)
            if (is_kept_as(name, lz_weights_file_name(k))) kept = k;
    }
    for (size_t i = 0; i < h->n; i++) {
        const char *name = name_in(h->files[i].path, folder);
        if (name && is_weights(name) && !is_kept_as(name, lz_weights_file_name(kept)))
            free(h->files[i].path);
        else
            h->files[left++] = h->files[i];
    }
    h->n = left;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const hub_file *)a)->path, ((const hub_file *)b)->path);
}

static int by_size(const void *a, const void *b) {
    const hub_file *x = a, *y = b;
    bool first = is_index(x->path), second = is_index(y->path);
    if (first != second) return first ? -1 : 1; /* it is needed to judge the other files */
    return x->size < y->size ? -1 : x->size > y->size ? 1 : strcmp(x->path, y->path);
}

/* Finishes the list after the last page. */
static int choose_files(hub *h) {
    if (h->n) qsort(h->files, h->n, sizeof *h->files, by_path);
    for (size_t i = 1; i < h->n; i++)
        if (strcmp(h->files[i].path, h->files[i - 1].path) == 0)
            return fail(h->web.args, FAILED, "%s: the hub lists %s twice; nothing is downloaded", h->repo,
                        h->files[i].path);
    for (size_t i = 0; i < n_model_parts && !h->n_wanted; i++) drop_other_weights(h, model_parts[i].name);
    int code = h->n_wanted ? choose_wanted(h) : DONE;
    if (code != DONE) return code;
    for (size_t i = 0; i < h->n; i++) h->bytes += h->files[i].size; /* at most MOST_FILES * LARGEST_FILE */
    if (h->n) qsort(h->files, h->n, sizeof *h->files, by_size);
    if (h->n_wanted) return DONE;
    if (h->n < 2 || strcmp(h->files[0].path, h->index) != 0)
        return fail(h->web.args, FAILED, "%s: is not a model for Lazuli: it has no parts beside a model_index.json",
                    h->repo);
    return DONE;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

__attribute__((format(printf, 5, 6))) static int ask(hub *h, int64_t limit, json_t **json, char next[1024],
                                                     const char *format, ...) {
    char url[2048], *text = NULL;
    size_t n = (size_t)snprintf(url, sizeof url, "%s", h->web.endpoint);
    va_list list;
    va_start(list, format);
    vsnprintf(url + n, sizeof url - n, format, list);
    va_end(list);
    int code = web_text(&h->web, h->repo, url, limit, &text, next);
    if (code != DONE) return code;
    *json = json_loads(text, 0, NULL);
    free(text);
    return *json ? DONE : fail(h->web.args, FAILED, "%s: %s does not answer like a hub", h->repo, h->web.endpoint);
}

/* The name of the licence: of the repository's card, where "other" has a name of its own. */
static void read_licence(hub *h, const json_t *json) {
    const json_t *card = json_object_get(json, "cardData");
    const char *licence = json_string_value(json_object_get(card, "license")),
               *name = json_string_value(json_object_get(card, "license_name"));
    if (licence && strcmp(licence, "other") == 0 && name) licence = name;
    if (licence && strlen(licence) < sizeof h->licence && is_plain(licence))
        snprintf(h->licence, sizeof h->licence, "%s", licence);
}

static const char *find_index(const json_t *siblings) {
    for (size_t k = 0; k < COUNT(index_names); k++) {
        const json_t *file;
        size_t i;
        json_array_foreach((json_t *)siblings, i, file) {
            const char *name = json_string_value(json_object_get(file, "rfilename"));
            if (name && strcmp(name, index_names[k]) == 0) return index_names[k];
        }
    }
    return index_names[0];
}

static int ask_commit(hub *h) {
    char revision[640] = "";
    for (const char *c = h->revision; *c; c++) {
        size_t n = strlen(revision);
        snprintf(revision + n, sizeof revision - n, *c == '/' ? "%%2F" : "%c", *c);
    }
    json_t *json = NULL;
    int code = ask(h, ANSWER_LIMIT, &json, NULL, "/api/models/%s/revision/%s", h->repo, revision);
    const char *commit = json_string_value(json_object_get(json, "sha"));
    if (code == DONE && (!commit || !is_commit(commit)))
        code = fail(h->web.args, FAILED, "%s: the hub names no commit for %s", h->repo, h->revision);
    if (code == DONE) snprintf(h->commit, sizeof h->commit, "%s", commit);
    if (code == DONE) read_licence(h, json);
    h->index = find_index(json_object_get(json, "siblings"));
    json_decref(json);
    return code;
}

/* Refuses models that the library cannot run, before anything is downloaded. */
static int ask_index(hub *h, json_t **index) {
    int code = ask(h, INDEX_LIMIT, index, NULL, "/%s/resolve/%s/%s", h->repo, h->commit, h->index);
    if (code != DONE) return code;
    const char *class = json_string_value(json_object_get(*index, "_class_name"));
    if (runs_pipeline(class)) return DONE;
    return fail(h->web.args, FAILED, "%s: is a %s, which Lazuli does not run (it runs %s); nothing was downloaded",
                h->repo, class && is_plain(class) ? class : "pipeline without a name", runnable_pipelines().text);
}

/* Long lists have several pages; each names the next. */
static int ask_files(hub *h, const json_t *index) {
    char next[1024] = "";
    size_t n = strlen(h->web.endpoint);
    int code = DONE;
    for (int page = 0; page < MOST_PAGES && code == DONE; page++) {
        json_t *json = NULL;
        char here[1024];
        if (page && (strncmp(next, h->web.endpoint, n) != 0 || next[n] != '/'))
            return fail(h->web.args, FAILED, "%s: the hub's list of files continues on another host", h->repo);
        snprintf(here, sizeof here, "%s", page ? next + n : "");
        code = page ? ask(h, ANSWER_LIMIT, &json, next, "%s", here)
                    : ask(h, ANSWER_LIMIT, &json, next, "/api/models/%s/tree/%s?recursive=true", h->repo, h->commit);
        if (code == DONE && !json_is_array(json))
            code = fail(h->web.args, FAILED, "%s: the hub lists no files", h->repo);
        if (code == DONE) code = take_page(h, json, index);
        json_decref(json);
        if (code == DONE && !*next) return choose_files(h);
    }
    if (code != DONE) return code;
    return fail(h->web.args, FAILED, "%s: the hub's list of files has more than %d pages; nothing is downloaded",
                h->repo, MOST_PAGES);
}

int hub_ask(hub *h) {
    json_t *index = NULL;
    int code = ask_commit(h);
    if (code == DONE && !h->n_wanted) code = ask_index(h, &index);
    if (code == DONE) code = ask_files(h, index);
    json_decref(index);
    return code;
}
