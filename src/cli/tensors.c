/* tensors.c: `lazuli tensors`: the tensors of a file or folder. */
#include <string.h>

#include "cli.h"

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
    if (list->bytes >= 1024) printf(" (%s)", show_bytes(list->bytes).text);
    putchar('\n');
}

static json_t *tensor_json(lz_weights *weights, const char *name, listing *list) {
    lz_error err;
    lz_array *a = lz_weights_get(weights, name);
    if (lz_check(a, &err) != LZ_OK)
        return json_pack("{s:o, s:o}", "name", json_text(name), "error", json_text(err.text));
    json_t *shape = json_array();
    for (int d = 0; d < lz_shape(a).n; d++) json_array_append_new(shape, json_integer(lz_shape(a).at[d]));
    list->elements += lz_size(a);
    list->bytes += bytes_of(a);
    return json_pack("{s:o, s:s, s:o, s:I}", "name", json_text(name), "type", lz_dtype_name(lz_type(a)), "shape", shape,
                     "bytes", (json_int_t)bytes_of(a));
}

static json_t *listing_json(listing *list, lz_context *ctx) {
    json_t *tensors = json_array();
    for (int64_t i = 0; i < lz_weights_count(list->weights); i++) {
        lz_scope *scope = lz_scope_begin(ctx, NULL);
        json_array_append_new(tensors, tensor_json(list->weights, lz_weights_name(list->weights, i), list));
        lz_scope_end(scope);
    }
    return json_pack("{s:o, s:I, s:I}", "tensors", tensors, "elements", (json_int_t)list->elements, "bytes",
                     (json_int_t)list->bytes);
}

int tensors_command(const arguments *args) {
    lz_error err = {.status = LZ_OK};
    lz_context *ctx = lz_open_with(&(lz_context_options){.threads = 1}, &err);
    listing list = {.weights = ctx ? lz_weights_open(ctx, args->words[0], &err) : NULL};
    int code = DONE;
    if (!list.weights)
        code = fail_with(args, &err);
    else if (args->json)
        code = print_json(args, listing_json(&list, ctx));
    else
        print_table(&list, ctx);
    lz_weights_close(list.weights);
    lz_close(ctx);
    return code;
}
