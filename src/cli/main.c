/* main.c: the command line. It calls lazuli.h like any other program would, and is the only place that prints.
 *
 * Commands and options are two tables, and the help is printed from them. Exit codes: 0 done, 1 failed (one sentence on
 * stderr says why), 2 not understood. */
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lazuli.h"

enum { DONE = 0, FAILED = 1, NOT_UNDERSTOOD = 2 };

typedef struct arguments {
    const char *command, *path;
    bool help, version, json;
} arguments;

__attribute__((format(printf, 2, 3))) static int fail(int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fputs("lazuli: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return code;
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static int devices(const arguments *args) {
    (void)args;
    static const struct {
        const char *device, *isa;
    } all[] = {{"cpu", "avx512"}, {"cpu", "avx2"}, {"cpu", "baseline"}, {"ref", NULL}};

    lz_context *best = lz_open();
    if (!best) return fail(FAILED, "no context can be opened on this machine");
    printf("default   %s\n", lz_device_name(best));
    lz_close(best);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        lz_error err = {.status = LZ_OK};
        lz_context *ctx = lz_open_with(&(lz_context_options){.device = all[i].device, .isa = all[i].isa}, &err);
        printf("%-4s %-9s %s\n", all[i].device, all[i].isa ? all[i].isa : "", ctx ? lz_device_name(ctx) : err.text);
        lz_close(ctx);
    }
    return DONE;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

typedef struct listing {
    lz_weights *weights;
    int64_t elements, bytes;
} listing;

/* A name from a file may hold anything; a terminal must not obey it. */
static void print_name(const char *name, int width) {
    int column = 0;
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        putchar(c < 32 || c == 127 ? '?' : c);
        column += (c & 0xc0) != 0x80; /* the later bytes of a UTF-8 character take no room */
    }
    for (; column < width; column++) putchar(' ');
}

static void format_shape(char *to, size_t size, lz_dims dims) {
    size_t n = (size_t)snprintf(to, size, "[");
    for (int i = 0; i < dims.n && n < size; i++)
        n += (size_t)snprintf(to + n, size - n, "%s%lld", i ? ", " : "", (long long)dims.at[i]);
    if (n < size) snprintf(to + n, size - n, "]");
}

static int64_t bytes_of(const lz_array *a) { return lz_size(a) * lz_dtype_size(lz_type(a)); }

static void print_table(listing *list, lz_context *ctx) {
    int64_t n = lz_weights_count(list->weights);
    int width = 0;
    for (int64_t i = 0; i < n; i++) {
        int length = (int)strlen(lz_weights_name(list->weights, i));
        if (length > width) width = length;
    }
    if (width > 80) width = 80;
    for (int64_t i = 0; i < n; i++) {
        const char *name = lz_weights_name(list->weights, i);
        lz_scope *scope = lz_scope_begin(ctx, NULL);
        lz_array *a = lz_weights_get(list->weights, name);
        lz_error err;
        print_name(name, width);
        if (lz_check(a, &err) == LZ_OK) {
            char shape[200];
            format_shape(shape, sizeof shape, lz_shape(a));
            printf("  %-4s  %-20s  %12lld\n", lz_dtype_name(lz_type(a)), shape, (long long)bytes_of(a));
            list->elements += lz_size(a);
            list->bytes += bytes_of(a);
        } else {
            fputs("  unreadable: ", stdout);
            print_name(err.text, 0);
            putchar('\n');
        }
        lz_scope_end(scope);
    }
    printf("%lld tensor%s, %lld elements, %lld bytes", (long long)n, n == 1 ? "" : "s", (long long)list->elements,
           (long long)list->bytes);
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double size = (double)list->bytes / 1024;
    int unit = 0;
    for (; size >= 1024 && unit < 3; unit++) size /= 1024;
    if (size >= 1) printf(" (%.1f %s)", size, units[unit]);
    putchar('\n');
}

static bool print_json(listing *list, lz_context *ctx) {
    json_t *tensors = json_array();
    for (int64_t i = 0; i < lz_weights_count(list->weights); i++) {
        const char *name = lz_weights_name(list->weights, i);
        lz_scope *scope = lz_scope_begin(ctx, NULL);
        lz_array *a = lz_weights_get(list->weights, name);
        lz_error err;
        if (lz_check(a, &err) == LZ_OK) {
            json_t *shape = json_array();
            for (int d = 0; d < lz_shape(a).n; d++) json_array_append_new(shape, json_integer(lz_shape(a).at[d]));
            json_array_append_new(tensors,
                                  json_pack("{s:s, s:s, s:o, s:I}", "name", name, "type", lz_dtype_name(lz_type(a)),
                                            "shape", shape, "bytes", (json_int_t)bytes_of(a)));
            list->elements += lz_size(a);
            list->bytes += bytes_of(a);
        } else
            json_array_append_new(tensors, json_pack("{s:s, s:s}", "name", name, "error", err.text));
        lz_scope_end(scope);
    }
    json_t *all = json_pack("{s:o, s:I, s:I}", "tensors", tensors, "elements", (json_int_t)list->elements, "bytes",
                            (json_int_t)list->bytes);
    bool good = all && json_dumpf(all, stdout, JSON_INDENT(1)) == 0;
    json_decref(all);
    putchar('\n');
    return good;
}

static int tensors(const arguments *args) {
    lz_error err = {.status = LZ_OK};
    lz_context *ctx = lz_open_with(&(lz_context_options){.threads = 1}, &err);
    listing list = {.weights = ctx ? lz_weights_open(ctx, args->path, &err) : NULL};
    int code = DONE;
    if (!list.weights)
        code = fail(FAILED, "%s", err.text);
    else if (!args->json)
        print_table(&list, ctx);
    else if (!print_json(&list, ctx))
        code = fail(FAILED, "the list cannot be written");
    lz_weights_close(list.weights);
    lz_close(ctx);
    return code;
}

/* ---- commands and options ---------------------------------------------------------------------------------------- */

static const struct command {
    const char *name, *takes, *help;
    int (*run)(const arguments *);
} commands[] = {
    {"devices", "", "what this machine can compute on", devices},
    {"tensors", "PATH", "what a .safetensors file, a model's index.json or its folder holds", tensors},
};

static const struct option {
    const char *name, *help;
    size_t flag; /* where in arguments */
} options[] = {
    {"--json", "tensors: print JSON instead of a table", offsetof(arguments, json)},
    {"--help", "print this", offsetof(arguments, help)},
    {"--version", "print the version", offsetof(arguments, version)},
};

#define COUNT(table) (sizeof(table) / sizeof *(table))

static void print_help(void) {
    puts("Lazuli: lazy arrays in C. Nothing is computed until somebody looks; then all of it is, as one program.\n\n"
         "usage: lazuli COMMAND [OPTIONS]\n\ncommands:");
    for (size_t i = 0; i < COUNT(commands); i++)
        printf("  %s %-*s %s\n", commands[i].name, 13 - (int)strlen(commands[i].name), commands[i].takes,
               commands[i].help);
    puts("\noptions:");
    for (size_t i = 0; i < COUNT(options); i++) printf("  %-14s %s\n", options[i].name, options[i].help);
    puts("\nexamples:\n"
         "  lazuli devices                          which instruction sets and how many threads\n"
         "  lazuli tensors model.safetensors        names, types, shapes and bytes; reads the header only\n"
         "  lazuli tensors --json models/x | jq .bytes");
}

static const struct command *find_command(const char *name) {
    for (size_t i = 0; i < COUNT(commands); i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static int parse(int argc, char **argv, arguments *args) {
    bool only_paths = false;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (!only_paths && word[0] == '-' && word[1]) {
            only_paths = strcmp(word, "--") == 0;
            size_t k = 0;
            while (k < COUNT(options) && strcmp(options[k].name, word) != 0) k++;
            if (k < COUNT(options))
                *(bool *)((char *)args + options[k].flag) = true;
            else if (!only_paths)
                return fail(NOT_UNDERSTOOD, "there is no option %s; 'lazuli --help' lists them", word);
        } else if (!args->command) {
            args->command = word;
        } else if (!args->path) {
            args->path = word;
        } else {
            return fail(NOT_UNDERSTOOD, "'%s' is one word too many; 'lazuli --help' shows how commands are used", word);
        }
    }
    return DONE;
}

static int run(const arguments *args) {
    if (args->version) return printf("lazuli %s\n", lz_version()) < 0 ? FAILED : DONE;
    if (args->help) {
        print_help();
        return DONE;
    }
    if (!args->command) return fail(NOT_UNDERSTOOD, "what shall be done? 'lazuli --help' lists the commands");
    const struct command *command = find_command(args->command);
    if (!command) return fail(NOT_UNDERSTOOD, "there is no command '%s'; 'lazuli --help' lists them", args->command);
    if (*command->takes && !args->path) return fail(NOT_UNDERSTOOD, "%s needs a %s", command->name, command->takes);
    if (!*command->takes && args->path)
        return fail(NOT_UNDERSTOOD, "%s takes no '%s'; 'lazuli --help' shows how it is used", command->name,
                    args->path);
    return command->run(args);
}

int main(int argc, char **argv) {
    arguments args = {0};
    int code = parse(argc, argv, &args);
    if (code == DONE) code = run(&args);
    if (fflush(stdout) != 0 && code == DONE) code = fail(FAILED, "cannot write the output: %s", strerror(errno));
    return code;
}
