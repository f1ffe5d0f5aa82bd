/* info.c: `lazuli info`: describes a model folder, or a file of tensors. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache.h"

enum { MOST_TYPES = 64 };

typedef struct component {
    const char *name;
    int64_t tensors, unreadable, elements, bytes;
    int n_types;
    struct {
        const char *name;
        int64_t n;
    } types[MOST_TYPES]; /* those of plain numbers, then others as they were met; n may be 0 */
} component;

static void count_type(component *c, const char *name) {
    int i = 0;
    while (i < c->n_types && strcmp(c->types[i].name, name) != 0) i++;
    if (i == MOST_TYPES) return;
    if (i == c->n_types) c->types[c->n_types++].name = name;
    c->types[i].n++;
}

/* Reads headers only, no tensors. */
static void count_tensors(lz_context *ctx, lz_weights *weights, component *c) {
    lz_scope *scope = lz_scope_begin(ctx, "info");
    c->tensors = lz_weights_count(weights);
    for (c->n_types = 0; c->n_types < LZ_DTYPE_COUNT; c->n_types++)
        c->types[c->n_types].name = lz_dtype_name((lz_dtype)c->n_types);
    for (int64_t i = 0; i < c->tensors; i++) {
        const char *name = lz_weights_name(weights, i), *type = lz_weights_packing(weights, name);
        lz_array *a = type ? NULL : lz_weights_get(weights, name);
        if (a && lz_check(a, NULL) == LZ_OK) type = lz_dtype_name(lz_type(a));
        lz_dims shape = lz_weights_shape(weights, name);
        int64_t elements = 1;
        for (int d = 0; d < shape.n; d++) elements *= shape.at[d];
        c->unreadable += !type;
        c->elements += type ? elements : 0;
        c->bytes += type ? lz_weights_bytes(weights, name) : 0;
        if (type) count_type(c, type);
    }
    lz_scope_end(scope);
}

static lz_status look_into(const job *j, component *c, lz_error *err) {
    char *path = job_part(j, c->name);
    lz_weights *weights = lz_weights_open(j->ctx, path, err);
    free(path);
    if (!weights) return err->status;
    count_tensors(j->ctx, weights, c);
    lz_weights_close(weights);
    return LZ_OK;
}

static json_t *types_json(const component *c) {
    json_t *types = json_object();
    for (int t = 0; t < c->n_types; t++)
        if (c->types[t].n) json_object_set_new(types, c->types[t].name, json_integer(c->types[t].n));
    return types;
}

static void print_types(const component *c) {
    for (int t = 0; t < c->n_types; t++)
        if (c->types[t].n) printf(" %lld %s", (long long)c->types[t].n, c->types[t].name);
    putchar('\n');
}

/* ---- a file ------------------------------------------------------------------------------------------------------ */

enum { SHOWN = 200 }; /* bytes of a value */

static json_t *file_json(const char *path, lz_weights *weights, const component *c, const lz_file_facts *f) {
    json_t *metadata = json_object();
    const char *key;
    for (int64_t i = 0; (key = lz_weights_metadata_key(weights, i)); i++)
        json_object_set_new(metadata, key, json_text(lz_weights_metadata(weights, key)));
    return json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:o, s:o}", "file", json_text(path), "is",
                     json_text(f->what), "needs", json_text(f->needs), "refused", json_text(f->refused), "tensors",
                     (json_int_t)c->tensors, "unreadable", (json_int_t)c->unreadable, "elements",
                     (json_int_t)c->elements, "bytes", (json_int_t)c->bytes, "types", types_json(c), "metadata",
                     metadata);
}

static void print_file(const char *path, lz_weights *weights, const component *c, const lz_file_facts *f) {
    say(stdout, "file       %s\n", path);
    say(stdout, "is         %s%s\n", f->what, f->tokenizer ? ", with its tokenizer" : "");
    if (*f->refused) say(stdout, "not run    %s\n", f->refused);
    if (*f->needs && !*f->refused) say(stdout, "needs      %s\n", f->needs);
    printf("holds      %lld tensor%s, %lld elements, %s\ntypes     ", (long long)c->tensors, c->tensors == 1 ? "" : "s",
           (long long)c->elements, show_bytes(c->bytes).text);
    print_types(c);
    if (c->unreadable) printf("unreadable %lld; 'lazuli tensors' says why\n", (long long)c->unreadable);
    const char *key;
    for (int64_t i = 0; (key = lz_weights_metadata_key(weights, i)); i++) {
        const char *value = lz_weights_metadata(weights, key);
        printf(i ? "           " : "metadata   ");
        print_masked(key, 0, SHOWN);
        printf(": ");
        print_masked(value, 0, SHOWN);
        puts(strlen(value) > SHOWN ? "..." : "");
    }
}

/* Is it a file of tensors, or a folder with one that is not a model? */
static bool is_file(const char *path) {
    struct stat s;
    if (!path || stat(path, &s) != 0) return false;
    return !S_ISDIR(s.st_mode) || !have_model(path);
}

/* Prints the settings of a picture or a sheet. Returns an exit code */
static int inform_of_picture(const arguments *args, lz_context *ctx, const char *path) {
    lz_error err = {.status = LZ_OK};
    char *text = lz_image_read_text(ctx, path, SETTINGS_KEY, &err);
    if (!text && err.status == LZ_NOT_FOUND) text = lz_image_read_text(ctx, path, SHEET_KEY, &err);
    json_t *settings = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL, *value;
    const char *key;
    int code = DONE;
    lz_free_text(ctx, text);
    if (!json_is_object(settings))
        code = err.status != LZ_OK && err.status != LZ_NOT_FOUND
                   ? fail_with(args, &err)
                   : fail(args, FAILED, "%s: is a picture without settings by Lazuli", path);
    else if (args->json)
        code = print_json(args, json_pack("{s:o, s:O}", "file", json_text(path), "settings", settings));
    else {
        say(stdout, "picture       %s\n", path);
        json_object_foreach(settings, key, value) {
            char *shown = json_is_string(value) ? strdup(json_string_value(value)) : json_dumps(value, JSON_ENCODE_ANY);
            say(stdout, "%-13s %s\n", key, shown ? shown : "");
            free(shown);
        }
    }
    json_decref(settings);
    return code;
}

/* Describes a file or folder of tensors; *code: the exit code. false: a folder without tensors, which is not described
 * here. */
static bool inform_of_file(const arguments *args, const char *path, int *code) {
    lz_error err = {.status = LZ_OK};
    struct stat s;
    component c = {.name = path};
    lz_context *ctx = lz_open_with(&LZ_CONTEXT_OPTIONS(.threads = 1), &err);
    if (ctx && picture_side_limit(path) && stat(path, &s) == 0 && S_ISREG(s.st_mode)) {
        *code = inform_of_picture(args, ctx, path);
        lz_close(ctx);
        return true;
    }
    lz_weights *weights = ctx ? lz_weights_open(ctx, path, &err) : NULL;
    bool known = weights || !ctx || (stat(path, &s) == 0 && !S_ISDIR(s.st_mode));
    *code = weights || !known ? DONE : fail_with(args, &err);
    lz_file_facts facts;
    if (weights && lz_file_about(ctx, path, &facts, &err) != LZ_OK)
        *code = fail_with(args, &err);
    else if (weights) {
        count_tensors(ctx, weights, &c);
        if (args->json)
            *code = print_json(args, file_json(path, weights, &c, &facts));
        else
            print_file(path, weights, &c, &facts);
    }
    lz_weights_close(weights);
    lz_close(ctx);
    return known;
}

/* ---- a model ----------------------------------------------------------------------------------------------------- */

static json_t *info_json(const job *j, const component *parts, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:o}", "name", parts[i].name, "tensors",
                                              (json_int_t)parts[i].tensors, "bytes", (json_int_t)parts[i].bytes,
                                              "types", types_json(&parts[i])));
    return json_pack(
        "{s:o, s:o, s:b, s:s, s:b, s:b, s:b, s:i, s:I, s:I, s:i, s:f, s:I, s:I, s:o, s:s, s:o, s:{s:I, s:I, s:I, s:I, "
        "s:o}}",
        "model", json_text(model_told(j)), "version", *j->facts.version ? json_text(j->facts.version) : json_null(),
        "downloaded", !j->published, "family", j->facts.family, "distilled", j->facts.distilled, "references_once",
        j->facts.references_once, "transparent", j->facts.transparent, "layers", j->facts.layers, "width",
        (json_int_t)j->facts.width, "height", (json_int_t)j->facts.height, "steps", j->facts.steps, "guidance",
        j->facts.guidance, "token_pixels", (json_int_t)j->facts.token_pixels, "channels", (json_int_t)j->facts.channels,
        "loras", loras_of(j->folder), "device", lz_device_name(j->ctx), "components", list, "plan", "width",
        (json_int_t)j->facts.width, "height", (json_int_t)j->facts.height, "peak_bytes", (json_int_t)j->plan.peak_bytes,
        "flops", (json_int_t)j->plan.flops, "seconds", json_estimate(j->estimate.seconds));
}

static void print_info(const job *j, const component *parts, size_t n) {
    int64_t tensors = 0, bytes = 0;
    say(stdout, "model      %s\n", model_told(j));
    if (*j->facts.version) say(stdout, "version    %s\n", j->facts.version);
    printf("family     %s%s%s\ndefaults   %lld x %lld pixels, %s, ", j->facts.family,
           j->facts.distilled ? ", distilled" : "", j->facts.references_once ? ", references are computed once" : "",
           (long long)j->facts.width, (long long)j->facts.height, show_steps(j->facts.steps, j->facts.steps).text);
    if (j->facts.layers) printf("%d layers of an image, ", j->facts.layers);
    if (j->facts.guidance <= 1)
        puts(j->facts.guidance_built_in ? "guidance is built in" : "no guidance");
    else
        printf("guidance %g: two passes a step\n", j->facts.guidance);
    printf("latents    %lld channels, one token for %lld x %lld pixels\n", (long long)j->facts.channels,
           (long long)j->facts.token_pixels, (long long)j->facts.token_pixels);
    json_t *loras = loras_of(j->folder);
    char *names = join_loras(loras);
    if (names) say(stdout, "loras      %s: --lora NAME adds one\n", names);
    free(names);
    json_decref(loras);
    putchar('\n');

    printf("%-14s %7s %14s  %s\n", "component", "tensors", "memory", "types");
    for (size_t i = 0; i < n; i++) {
        tensors += parts[i].tensors;
        bytes += parts[i].bytes;
        printf("%-14s %7lld %14s ", parts[i].name, (long long)parts[i].tensors, show_bytes(parts[i].bytes).text);
        print_types(&parts[i]);
    }
    printf("%-14s %7lld %14s\n\n", "together", (long long)tensors, show_bytes(bytes).text);
    printf("A picture of %lld x %lld takes %s besides the weights and %s", (long long)j->facts.width,
           (long long)j->facts.height, show_bytes(j->plan.peak_bytes).text, show_flops(j->plan.flops).text);
    if (j->estimate.seconds > 0) printf(", about %s", show_seconds(j->estimate.seconds).text);
    say(stdout, ", on %s.\n", lz_device_name(j->ctx));
    if (j->published) say_published(stdout, j->published);
}

/* The words without U+FE0F, which keyboards add to emoji and lists do not have; in new memory. */
static char *plain_words(const char *words) {
    static const char sign[] = "\xef\xb8\x8f";
    char *plain = strdup(words), *at;
    while (plain && (at = strstr(plain, sign))) memmove(at, at + strlen(sign), strlen(at + strlen(sign)) + 1);
    return plain;
}

static const char *after_article(const char *words) {
    static const char *const articles[] = {"a ", "an ", "the "};
    for (size_t i = 0; i < COUNT(articles); i++)
        if (strncasecmp(words, articles[i], strlen(articles[i])) == 0) return words + strlen(articles[i]);
    return words;
}

/* Does a line of a list contain these words, as a whole? */
static bool has_words(const char *line, size_t n, const char *words) {
    size_t length = strlen(words);
    for (size_t i = 0; length && i + length <= n; i++) {
        bool whole = (!i || !isalnum((unsigned char)line[i - 1])) &&
                     (i + length == n || !isalnum((unsigned char)line[i + length]));
        if (whole && strncasecmp(line + i, words, length) == 0) return true;
    }
    return false;
}

static char *lines_with(const char *list, const char *words) {
    char *found = malloc(strlen(list) + 2), *to = found;
    for (size_t n; found && *list; list += n + (list[n] == '\n')) {
        n = strcspn(list, "\n");
        if (*list == '#' || !has_words(list, n, words)) continue;
        memcpy(to, list, n);
        to[n] = '\n';
        to += n + 1;
    }
    if (found) *to = 0;
    return found;
}

/* The lines of a list with these words, or else with these words without their article; in new memory. NULL: out of
 * memory. */
static char *find_lines(const char *list, const char *words) {
    char *plain = plain_words(words), *found = plain ? lines_with(list, plain) : NULL;
    if (found && !*found) {
        free(found);
        found = lines_with(list, after_article(plain));
    }
    free(plain);
    return found;
}

static int print_lines(const job *j, const char *text) {
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        say(stdout, "%.*s\n", (int)n, text);
    }
    return flush_output(j->args);
}

/* wanted: print only the lines with these words; NULL: all. */
static int print_words(const job *j, const char *wanted) {
    const char *text = lz_model_words(j->model);
    int code;
    if (!text) return fail(j->args, FAILED, "%s has no list of words; it is not limited to known words", model_told(j));
    char *found = wanted ? find_lines(text, wanted) : NULL;
    if (wanted && !found)
        code = fail(j->args, FAILED, "out of memory");
    else if (found && !*found)
        code = fail(j->args, FAILED, "the list of words has no '%s'; 'lazuli info --words' prints all of it", wanted);
    else if (j->args->json)
        code = print_json(j->args, json_pack("{s:o}", "words", json_text(found ? found : text)));
    else
        code = print_lines(j, found ? found : text);
    free(found);
    return code;
}

/* Is it the name of a model or a file, and no word? "w/o" and "fox" are words, even if there is a folder fox. */
static bool is_path(const char *word) {
    bool slash = strchr(word, '/') && access(word, F_OK) == 0;
    return slash || !strcmp(word, "demo") || names_model(word) || ends_in(word, ".safetensors") ||
           ends_in(word, ".gguf");
}

static int inform_of_model(const arguments *args, const char *word) {
    component parts[] = {{.name = "text_encoder"}, {.name = "transformer"}, {.name = "vae"}};
    lz_error err = {.status = LZ_OK};
    job j;
    int code = job_open(&j, args);
    if (args->list_words) {
        if (code == DONE) code = print_words(&j, word);
        job_close(&j);
        return code;
    }
    for (size_t i = 0; i < COUNT(parts) && code == DONE; i++)
        if (look_into(&j, &parts[i], &err) != LZ_OK) code = fail_with(args, &err);
    if (code == DONE) code = job_ask(&j); /* for a picture of the default size */
    if (code == DONE) estimate_shapes(&j);
    published_close(&j.stand_in);
    if (code == DONE) estimate_time(&j);
    if (code == DONE && args->json) code = print_json(args, info_json(&j, parts, COUNT(parts)));
    if (code == DONE && !args->json) print_info(&j, parts, COUNT(parts));
    job_close(&j);
    return code;
}

int info_command(const arguments *given) {
    arguments args = *given;
    int code = DONE;
    /* With --words a word is looked up, unless it is the model. */
    const char *word = args.list_words && args.n_words ? args.words[0] : NULL;
    if (word && !args.model && is_path(word)) word = NULL;
    if (word) args.n_words = 0;
    if (args.n_words && args.model)
        return fail(given, NOT_UNDERSTOOD, "the model was given twice, by --model and as '%s'", args.words[0]);
    if (args.n_words) args.model = args.words[0];
    args.n_words = 0;
    bool parts = args.text_encoder || args.vae || args.vision || args.tokenizer || args.variant;
    const char *file = given_file(args.model);
    return !parts && is_file(file) && inform_of_file(&args, file, &code) ? code : inform_of_model(&args, word);
}
