/* models.c: `lazuli models`: lists the models on this machine and whether each is complete: the demo model, that of
 * $LAZULI_MODEL, those of the settings file and of the Hugging Face cache. */
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache.h"

typedef struct row {
    char name[MAX_REPO + 300];
    const char *from; /* demo, environment, settings or cache */
    char *folder;     /* owned */
    char what[640];   /* of a single file: what it is and needs; else "" */
    model_state state;
} row;

typedef struct table {
    lz_context *ctx;
    row *rows;
    size_t n, room;
    bool full; /* out of memory */
} table;

/* Adds a row; takes ownership of folder. NULL: nothing is added. */
static void add_row(table *t, const char *name, const char *from, char *folder) {
    if (!folder) return;
    if (t->n == t->room) {
        size_t room = 2 * t->room + 8;
        row *rows = realloc(t->rows, room * sizeof *rows);
        if (!rows) {
            t->full = true;
            free(folder);
            return;
        }
        t->rows = rows;
        t->room = room;
    }
    row *r = &t->rows[t->n++];
    *r = (row){.from = from, .folder = folder};
    snprintf(r->name, sizeof r->name, "%s", name);
    look_at_model(t->ctx, folder, &r->state);
}

/* Adds a fault for each file of the set that does not exist. */
static void look_at_set(const model_set *set, model_state *state) {
    *state = (model_state){.runs = true, .faults = json_array()};
    for (int i = 0; i < SET_VARIANT; i++) {
        struct stat s;
        char text[600];
        if (!set->values[i]) continue;
        if (stat(set->values[i], &s) == 0) {
            state->bytes += S_ISREG(s.st_mode) ? s.st_size : 0;
            continue;
        }
        snprintf(text, sizeof text, "%s is not there", set->values[i]);
        json_array_append_new(state->faults, json_text(text));
    }
}

static int add_sets(table *t, const arguments *args) {
    const model_set *sets;
    size_t n;
    int code = each_set(args, &sets, &n);
    for (size_t i = 0; i < n && code == DONE; i++) {
        size_t before = t->n;
        add_row(t, sets[i].name, "settings", strdup(sets[i].values[SET_MODEL]));
        if (t->n == before) continue;
        json_decref(t->rows[before].state.faults);
        look_at_set(&sets[i], &t->rows[before].state);
    }
    return code;
}

static int by_name(const void *a, const void *b) { return strcmp(((const row *)a)->name, ((const row *)b)->name); }

typedef struct visit {
    table *table;
    const char *cache, *repo;
} visit;

/* ---- single files of the cache ----------------------------------------------------------------------------------- */

static bool is_listed(const table *t, const char *name) {
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->rows[i].name, name) == 0) return true;
    return false;
}

/* Is it in the folder of a part, such as vae/? */
static bool is_in_part(const char *below) {
    for (size_t i = 0; i < n_model_parts; i++) {
        size_t n = strlen(model_parts[i].name);
        if (strncmp(below, model_parts[i].name, n) == 0 && below[n] == '/') return true;
    }
    return false;
}

/* Adds a file if it is a part of a picture model, or looks like one that is not run. Language models are often in
 * the cache too, as shards. */
static void add_file(const visit *v, const char *path, const char *below) {
    table *t = v->table;
    lz_error err = {.status = LZ_OK};
    lz_file_facts f;
    struct stat s;
    char name[sizeof((row *)0)->name];
    if (!(ends_in(path, ".safetensors") || ends_in(path, ".gguf")) || strstr(base_name(path), "-of-")) return;
    snprintf(name, sizeof name, "%s/%s", v->repo, below);
    if (is_listed(t, name) || stat(path, &s) != 0) return;
    if (lz_file_about(t->ctx, path, &f, &err) != LZ_OK) return;
    if (!f.transformer && !f.text_encoder && !f.vision && !f.vae && !f.lora) return;
    size_t before = t->n;
    add_row(t, name, "cache", strdup(path));
    if (t->n == before) return;
    row *r = &t->rows[before];
    json_decref(r->state.faults);
    bool runs = !*f.refused || f.lora;
    r->state = (model_state){.runs = runs, .bytes = s.st_size, .faults = json_array()};
    if (!runs) json_array_append_new(r->state.faults, json_text(f.refused));
    snprintf(r->what, sizeof r->what, "%s%s%s", f.what, *f.needs ? "; needs " : "", f.needs);
}

static bool add_files(void *user, const char *snapshot) {
    const visit *v = user;
    bool model = have_model(snapshot);
    FTS *walk = fts_open((char *const[]){(char *)snapshot, NULL}, FTS_LOGICAL | FTS_NOCHDIR, NULL);
    for (FTSENT *e; walk && (e = fts_read(walk));) {
        if (e->fts_info == FTS_D && e->fts_level > 4) fts_set(walk, e, FTS_SKIP);
        if (e->fts_info != FTS_F) continue;
        const char *below = e->fts_path + strlen(snapshot) + 1;
        if (!(model && is_in_part(below))) add_file(v, e->fts_path, below);
    }
    if (walk) fts_close(walk);
    return false; /* the other snapshots too */
}

/* ---- all of the cache -------------------------------------------------------------------------------------------- */

/* Adds a cached model, which has a model_index.json, and single files. */
static void add_one(void *user, const char *repo) {
    visit *v = user;
    char *folder = cache_folder(v->cache, repo);
    if (folder) add_row(v->table, repo, "cache", cached_model(folder));
    free(folder);
    v->repo = repo;
    each_snapshot(repo, add_files, v);
}

/* Published models of several files of which the transformer is here. */
static void add_known_sets(table *t) {
    for (size_t i = 0; i < n_known_models; i++) {
        const known_model *model = &known_models[i];
        const model_set *set = model->parts ? cached_set(model) : NULL;
        const known_part *missing = model->parts ? missing_part(model) : NULL;
        if (!model->parts || missing == model->parts) continue;
        char *transformer = NULL, text[600];
        if (asprintf(&transformer, "%s/%s", model->parts->repo, model->parts->file) < 0) transformer = NULL;
        char *path = transformer ? cached_file(transformer) : NULL;
        free(transformer);
        size_t before = t->n;
        add_row(t, model->name, "cache", path);
        if (t->n == before) continue;
        model_state *state = &t->rows[before].state;
        json_decref(state->faults);
        if (set)
            look_at_set(set, state);
        else
            *state = (model_state){.runs = true, .faults = json_array()};
        if (!missing) continue;
        snprintf(text, sizeof text, "%s of %s is missing", missing->file, missing->repo);
        json_array_append_new(state->faults, json_text(text));
    }
}

static void add_cached(table *t, const char *cache) {
    add_known_sets(t);
    size_t first = t->n;
    each_cached(cache, add_one, &(visit){t, cache, NULL});
    if (t->n > first) qsort(t->rows + first, t->n - first, sizeof *t->rows, by_name);
}

static json_t *table_json(const table *t, const char *cache) {
    json_t *list = json_array();
    for (size_t i = 0; i < t->n; i++) {
        const row *r = &t->rows[i];
        json_array_append_new(list,
                              json_pack("{s:o, s:s, s:o, s:o, s:o, s:b, s:I, s:b, s:O}", "name", json_text(r->name),
                                        "from", r->from, "folder", json_text(r->folder), "class",
                                        json_text(r->state.class), "is", json_text(*r->what ? r->what : NULL), "runs",
                                        r->state.runs, "bytes", (json_int_t)r->state.bytes, "complete",
                                        json_array_size(r->state.faults) == 0, "faults", r->state.faults));
    }
    return json_pack("{s:o, s:o}", "cache", json_text(cache), "models", list);
}

/* Is its pipeline, or its kind of file, one that the library does not support? */
static bool is_foreign(const row *r) { return !r->state.runs && (*r->state.class || *r->what); }

static void print_fault(const row *r) {
    size_t n = json_array_size(r->state.faults);
    if (!n) return;
    const char *fault = json_string_value(json_array_get(r->state.faults, 0)), *again = "";
    char more[48] = "";
    if (n > 1) snprintf(more, sizeof more, ", and %zu more problem%s", n - 1, n > 2 ? "s" : "");
    if (strcmp(r->from, "cache") == 0 && r->state.runs) again = "; lazuli pull ";
    say(stdout, "    %s%s%s%s%s\n", fault ? fault : "?", more, again, *again ? r->name : "",
        *again ? " continues" : "");
}

static void print_table(const table *t, const char *cache) {
    int width = 4;
    for (size_t i = 0; i < t->n; i++)
        if ((int)strlen(t->rows[i].name) > width) width = (int)strlen(t->rows[i].name);
    for (size_t i = 0; i < t->n; i++) {
        const row *r = &t->rows[i];
        say(stdout, "%-*s  %10s  %-10s  %s\n", width, r->name, show_bytes(r->state.bytes).text,
            is_foreign(r)                       ? "not run"
            : *r->what                          ? "file"
            : !json_array_size(r->state.faults) ? "complete"
                                                : "incomplete",
            r->folder);
        if (*r->what) say(stdout, "    %s\n", r->what);
        print_fault(r);
    }
    if (!t->n)
        say(stdout, "there is no model on this machine (cache: %s); 'lazuli pull %s' downloads %s\n",
            cache ? cache : "none", first_known()->name, show_bytes(first_known()->bytes).text);
}

/* Fills the table; call close_table after an error too. */
static int open_table(table *t, const arguments *args, const char *cache) {
    lz_error err = {.status = LZ_OK};
    *t = (table){.ctx = lz_open_with(&LZ_CONTEXT_OPTIONS(.threads = 1), &err)};
    if (!t->ctx) return fail_with(args, &err);
    const char *environment = getenv("LAZULI_MODEL");
    add_row(t, "demo", "demo", find_demo());
    if (environment && *environment && (access(environment, F_OK) == 0 || !repo_of(environment)))
        add_row(t, "$LAZULI_MODEL", "environment", strdup(environment));
    int code = add_sets(t, args);
    add_cached(t, cache);
    return code == DONE && t->full ? fail(args, FAILED, "out of memory") : code;
}

static void close_table(table *t) {
    for (size_t i = 0; i < t->n; i++) {
        json_decref(t->rows[i].state.faults);
        free(t->rows[i].folder);
    }
    free(t->rows);
    lz_close(t->ctx);
}

int models_command(const arguments *args) {
    table t;
    char *cache = hub_cache();
    int code = open_table(&t, args, cache);
    if (code == DONE && args->json)
        code = print_json(args, table_json(&t, cache));
    else if (code == DONE)
        print_table(&t, cache);
    close_table(&t);
    free(cache);
    return code;
}

json_t *complete_models(const arguments *args, int *code) {
    table t;
    char *cache = hub_cache();
    json_t *names = json_array();
    *code = open_table(&t, args, cache);
    for (size_t i = 0; i < t.n && *code == DONE; i++) {
        const row *r = &t.rows[i];
        bool environment = strcmp(r->from, "environment") == 0;
        if (*r->what || !r->state.runs || json_array_size(r->state.faults)) continue;
        json_t *name = json_text(environment ? r->folder : r->name);
        if (environment) /* the default of all commands */
            json_array_insert_new(names, 0, name);
        else
            json_array_append_new(names, name);
    }
    close_table(&t);
    free(cache);
    return names;
}
