/* tensors.c: `lazuli tensors`: lists the tensors of a file or folder; for a model folder those of all parts, with the
 * name of the part as a prefix. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"

enum { MOST_SOURCES = 8, WIDEST_NAME = 80 };

typedef struct source {
    lz_weights *weights;
    const char *part; /* name of the part; NULL: not a model folder */
} source;

typedef struct listing {
    lz_context *ctx;
    source sources[MOST_SOURCES];
    int n;
    int64_t tensors, elements, bytes;
} listing;

static void format_shape(char *to, size_t size, lz_dims dims) {
    size_t n = (size_t)snprintf(to, size, "[");
    for (int i = 0; i < dims.n && n < size; i++)
        n += (size_t)snprintf(to + n, size - n, "%s%lld", i ? ", " : "", (long long)dims.at[i]);
    if (n < size) snprintf(to + n, size - n, "]");
}

/* Owned; NULL: out of memory. */
static char *full_name(const source *s, int64_t i) {
    const char *name = lz_weights_name(s->weights, i);
    return s->part ? path_of(s->part, name) : strdup(name);
}

/* One line of the list: the properties of a tensor. */
typedef struct entry {
    const char *type; /* NULL: the type cannot be read, and err has the reason */
    lz_dims shape;
    int64_t bytes;
    lz_error err;
} entry;

static entry look_at(listing *list, lz_weights *weights, const char *name) {
    entry e = {
        lz_weights_packing(weights, name), lz_weights_shape(weights, name), lz_weights_bytes(weights, name), {0}};
    if (!e.type) {
        lz_array *a = lz_weights_get(weights, name);
        if (lz_check(a, &e.err) == LZ_OK) e.type = lz_dtype_name(lz_type(a));
    }
    int64_t elements = 1;
    for (int d = 0; d < e.shape.n; d++) elements *= e.shape.at[d];
    list->tensors++;
    list->elements += e.type ? elements : 0;
    list->bytes += e.type ? e.bytes : 0;
    return e;
}

static void print_tensor(const char *name, const entry *e, int width, int type_width) {
    print_masked(name, width, INT32_MAX);
    if (e->type) {
        char shape[200];
        format_shape(shape, sizeof shape, e->shape);
        printf("  %-*s  %-20s  %12lld\n", type_width, e->type, shape, (long long)e->bytes);
    } else
        say(stdout, "  unreadable: %s\n", e->err.text);
}

static int widest_name(const listing *list) {
    size_t width = 0;
    for (const source *s = list->sources; s < list->sources + list->n; s++)
        for (int64_t i = 0; i < lz_weights_count(s->weights); i++) {
            size_t length = strlen(lz_weights_name(s->weights, i)) + (s->part ? strlen(s->part) + 1 : 0);
            if (length > width) width = length;
        }
    return width < WIDEST_NAME ? (int)width : WIDEST_NAME;
}

static int widest_type(const listing *list) {
    size_t width = 4;
    for (const source *s = list->sources; s < list->sources + list->n; s++)
        for (int64_t i = 0; i < lz_weights_count(s->weights); i++) {
            const char *packing = lz_weights_packing(s->weights, lz_weights_name(s->weights, i));
            if (packing && strlen(packing) > width) width = strlen(packing);
        }
    return (int)width;
}

static json_t *tensor_json(const char *name, const entry *e) {
    if (!e->type) return json_pack("{s:o, s:o}", "name", json_text(name), "error", json_text(e->err.text));
    json_t *shape = json_array();
    for (int d = 0; d < e->shape.n; d++) json_array_append_new(shape, json_integer(e->shape.at[d]));
    return json_pack("{s:o, s:s, s:o, s:I}", "name", json_text(name), "type", e->type, "shape", shape, "bytes",
                     (json_int_t)e->bytes);
}

/* to: a JSON array for the tensors; NULL: prints a line for each. */
static void list_tensors(listing *list, json_t *to) {
    int width = to ? 0 : widest_name(list), type_width = to ? 0 : widest_type(list);
    for (const source *s = list->sources; s < list->sources + list->n; s++)
        for (int64_t i = 0; i < lz_weights_count(s->weights); i++) {
            lz_scope *scope = lz_scope_begin(list->ctx, NULL);
            entry e = look_at(list, s->weights, lz_weights_name(s->weights, i));
            char *name = full_name(s, i);
            if (to)
                json_array_append_new(to, tensor_json(name ? name : "?", &e));
            else
                print_tensor(name ? name : "?", &e, width, type_width);
            free(name);
            lz_scope_end(scope);
        }
}

static int show(const arguments *args, listing *list) {
    json_t *all = args->json ? json_array() : NULL;
    list_tensors(list, all);
    if (args->json)
        return print_json(args, json_pack("{s:o, s:I, s:I}", "tensors", all, "elements", (json_int_t)list->elements,
                                          "bytes", (json_int_t)list->bytes));
    printf("%lld tensor%s, %lld elements, %lld bytes", (long long)list->tensors, list->tensors == 1 ? "" : "s",
           (long long)list->elements, (long long)list->bytes);
    if (list->bytes >= 1024) printf(" (%s)", show_bytes(list->bytes).text);
    putchar('\n');
    return DONE;
}

static lz_status add_source(listing *list, const char *path, const char *part, lz_error *err) {
    lz_weights *weights = lz_weights_open(list->ctx, path, err);
    if (weights) list->sources[list->n++] = (source){weights, part};
    return weights ? LZ_OK : err->status;
}

static lz_status open_sources(listing *list, const char *path, lz_error *err) {
    if (!have_model(path)) return add_source(list, path, NULL, err);
    lz_status status = LZ_OK;
    for (size_t i = 0; i < n_model_parts && list->n < MOST_SOURCES && !status; i++) {
        char *part = model_parts[i].weights ? path_of(path, model_parts[i].name) : NULL;
        if (part && access(part, F_OK) == 0) status = add_source(list, part, model_parts[i].name, err);
        free(part);
    }
    return status || list->n ? status : add_source(list, path, NULL, err);
}

/* The folder of a model, or a single file, in the Hugging Face cache, unless a file or folder has this name; owned.
 * NULL: none. */
static char *find_cached(const char *name) {
    const char *repo = access(name, F_OK) == 0 ? NULL : repo_of(name);
    char *cache = repo ? hub_cache() : NULL, *folder = cache ? cache_folder(cache, repo) : NULL;
    char *model = folder ? cached_model(folder) : NULL;
    free(folder);
    free(cache);
    return model || access(name, F_OK) == 0 ? model : cached_file(name);
}

int tensors_command(const arguments *args) {
    lz_error err = {.status = LZ_OK};
    listing list = {.ctx = lz_open_with(&LZ_CONTEXT_OPTIONS(.threads = 1), &err)};
    char *cached = find_cached(args->words[0]);
    bool good = list.ctx && open_sources(&list, cached ? cached : args->words[0], &err) == LZ_OK;
    int code = good ? show(args, &list) : fail_with(args, &err);
    for (int i = 0; i < list.n; i++) lz_weights_close(list.sources[i].weights);
    free(cached);
    lz_close(list.ctx);
    return code;
}
