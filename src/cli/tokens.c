/* tokens.c: `lazuli tokenize`: text to token ids, as JSON lines for other programs. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cache.h"

/* A model folder has its tokenizer in a subfolder; that of a model from files is in one of its parts. */
static lz_tokenizer *open_tokenizer(lz_context *ctx, const lz_model_options *parts, lz_error *err) {
    struct stat s;
    char *inner = NULL;
    const char *folder = parts->tokenizer ? parts->tokenizer : parts->model;
    bool file = stat(folder, &s) == 0 && !S_ISDIR(s.st_mode) && !ends_in(folder, ".json");
    if (file) return lz_tokenizer_open_with(ctx, parts, err);
    static const char *const names[] = {"tokenizer", "processor"};
    bool model = false;
    for (size_t i = 0; i < COUNT(names) && !model; i++) {
        free(inner);
        if (asprintf(&inner, "%s/%s", folder, names[i]) < 0) inner = NULL;
        model = inner && stat(inner, &s) == 0 && S_ISDIR(s.st_mode);
    }
    lz_tokenizer *tokenizer = lz_tokenizer_open(ctx, model ? inner : folder, err);
    free(inner);
    return tokenizer;
}

static lz_status print_ids(lz_context *ctx, const lz_tokenizer *t, const char *text, size_t bytes, lz_error *err) {
    int64_t *ids = NULL, n = 0;
    lz_status status = lz_tokenize(t, text, bytes, &ids, &n, err);
    if (status != LZ_OK) return status;
    fputs("{\"ids\": [", stdout);
    for (int64_t i = 0; i < n; i++) printf("%s%lld", i ? ", " : "", (long long)ids[i]);
    puts("]}");
    lz_free_ids(ctx, ids);
    return LZ_OK;
}

static int answer_line(const arguments *args, lz_context *ctx, const lz_tokenizer *t, const char *line, size_t length,
                       long number) {
    json_error_t why;
    lz_error err = {.status = LZ_OK};
    json_t *object = json_loadb(line, length, JSON_ALLOW_NUL, &why), *text = json_object_get(object, "text");
    int code = DONE;
    if (!object)
        code = fail(args, FAILED, "line %ld is not JSON: %s", number, why.text);
    else if (!json_is_string(text))
        code = fail(args, FAILED, "line %ld is not an object with a \"text\", such as {\"text\": \"a red fox\"}",
                    number);
    else if (print_ids(ctx, t, json_string_value(text), json_string_length(text), &err) != LZ_OK)
        code = fail(args, FAILED, "line %ld: %s", number, err.text);
    json_decref(object);
    return code == DONE ? flush_output(args) : code; /* a program that sends line by line waits for the answer */
}

enum { MOST_LINE = 16 << 20 };

/* Like getline, but a line longer than MOST_LINE is truncated; its length is then MOST_LINE + 1. */
static size_t next_line(char **line, size_t *size) {
    size_t n = 0;
    for (int c = 0; c != '\n' && n <= MOST_LINE && (c = getc(stdin)) != EOF; (*line)[n++] = (char)c) {
        char *larger = n < *size ? *line : realloc(*line, *size = 2 * *size + 4096);
        if (!larger) return MOST_LINE + 1;
        *line = larger;
    }
    return n;
}

static int answer_lines(const arguments *args, lz_context *ctx, const lz_tokenizer *t) {
    char *line = NULL;
    size_t size = 0, length;
    int code = DONE;
    for (long number = 1; code == DONE && (length = next_line(&line, &size)); number++)
        if (length > MOST_LINE)
            code = fail(args, FAILED, "line %ld is too long; the limit is %s", number, show_bytes(MOST_LINE).text);
        else
            code = answer_line(args, ctx, t, line, length, number);
    if (code == DONE && ferror(stdin)) code = fail(args, FAILED, "stdin cannot be read");
    free(line);
    return code;
}

static int answer_words(const arguments *args, lz_context *ctx, const lz_tokenizer *t) {
    lz_error err = {.status = LZ_OK};
    char *text = NULL;
    size_t size = 0;
    FILE *join = open_memstream(&text, &size);
    for (int i = 0; i < args->n_words && join; i++) fprintf(join, "%s%s", i ? " " : "", args->words[i]);
    int code = DONE;
    if (!join || fclose(join) != 0)
        code = fail(args, FAILED, "out of memory");
    else if (print_ids(ctx, t, text, size, &err) != LZ_OK)
        code = fail_with(args, &err);
    free(text);
    return code;
}

int tokenize_command(const arguments *args) {
    model_choice choice;
    int code = choose_model(args, &choice);
    if (code != DONE) return code;
    lz_error err = {.status = LZ_OK};
    lz_context *ctx = lz_open_with(&LZ_CONTEXT_OPTIONS(.threads = 1), &err);
    lz_model_options parts = parts_of(args, &choice);
    lz_tokenizer *t = ctx ? open_tokenizer(ctx, &parts, &err) : NULL;
    if (t) {
        say_model(args, &choice);
        code = args->n_words ? answer_words(args, ctx, t) : answer_lines(args, ctx, t);
    } else
        code = ctx ? fail_model(args, &choice, &err) : fail_with(args, &err);
    lz_tokenizer_free(t);
    lz_close(ctx);
    free(choice.owned);
    return code;
}
