/* test_weights.c: parameters that are made from the tensors of a file by a recipe, and a second format of weight files;
 * both are small examples of quantised types and other containers. tests/cuda-sim/test_params.c does the same on a
 * device. */
#include "check.h"
#include "folder.h"
#include "io/weights.h"
#include "models/param.h"
#include "op/number.h"

/* ---- a second format --------------------------------------------------------------------------------------------- */

/* A file of matrices: their number, a record for each, and their numbers one after the other. */
typedef struct toy_record {
    char name[32];
    int64_t rows, columns;
} toy_record;

static bool read_toy(lz_weights *w, const char *path, const lz_mapping *file, lz_error *err) {
    int64_t n = 0;
    if (file->bytes >= (int64_t)sizeof n) memcpy(&n, file->data, sizeof n);
    if (n < 1 || n > 100 || file->bytes < (int64_t)sizeof n + n * (int64_t)sizeof(toy_record))
        return lz_weights_bad_file(err, path, "holds no matrices" LZ_DAMAGED);
    int64_t at = (int64_t)sizeof n + n * (int64_t)sizeof(toy_record);
    for (int64_t i = 0; i < n; i++) {
        toy_record r;
        memcpy(&r, file->data + sizeof n + (size_t)i * sizeof r, sizeof r);
        lz_weights_tensor t = {
            .name = r.name, .type = "TOY", .dtype = LZ_F32, .dims = LZ_DIMS(r.rows, r.columns), .begin = at};
        t.end = at += r.rows * r.columns * 4;
        if (at > file->bytes) return lz_weights_bad_file(err, path, "ends in the middle of '%s'" LZ_DAMAGED, r.name);
        if (!lz_weights_add(w, &t, err)) return false;
    }
    return lz_weights_add_metadata(w, "made by", "a toy", err);
}

static const lz_weights_format toy = {".toy", read_toy, NULL, NULL};
static const lz_weights_format *const formats[] = {&lz_format_safetensors, &toy};

static void write_toy(const char *name, const char *first) {
    toy_record r[2] = {{.rows = 2, .columns = 3}, {.name = "other", .rows = 1, .columns = 2}};
    snprintf(r[0].name, sizeof r[0].name, "%s", first);
    const int64_t n = 2;
    const float numbers[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    FILE *f = fopen(in_folder(name), "wb");
    bool fine = f && fwrite(&n, sizeof n, 1, f) && fwrite(r, sizeof r, 1, f) && fwrite(numbers, sizeof numbers, 1, f);
    CHECK(fine && fclose(f) == 0);
}

/* Everything that weights can do works with a format that the library does not know. */
static void second_format(void) {
    lz_error err = {0};
    enter_folder();
    write_toy("a.toy", "matrix");
    lz_context *ctx = lz_open(.threads = 1);
    lz_scope *scope = lz_scope_begin(ctx, "toy");
    lz_weights *w = lz_weights_open_as(ctx, folder, formats, 2, &err);
    if (CHECK(w, "%s", err.text)) {
        CHECK_I64(lz_weights_count(w), 2);
        CHECK_TEXT(lz_weights_name(w, 0), "matrix");
        CHECK(lz_weights_has(w, "other") && !lz_weights_has(w, "another"));
        CHECK_TEXT(lz_weights_metadata(w, "made by"), "a toy");
        lz_array *a = lz_weights_get(w, "matrix"), *b = lz_weights_cast(w, "other", LZ_F64);
        const float *x = lz_data(a, &err);
        const double *y = lz_data(b, &err);
        CHECK(x && x[0] == 1 && x[5] == 6 && y && y[0] == 7 && y[1] == 8, "%s", err.text);
        CHECK_STATUS(lz_check(lz_weights_get(w, "matrux"), &err), LZ_NOT_FOUND, &err);
        CHECK_TEXT(err.text, "the nearest name is 'matrix'");
        lz_weights_close(w);
    }
    CHECK(!lz_weights_open(ctx, folder, &err)); /* the library itself has one format */
    CHECK_TEXT(err.text, "holds no .safetensors file");
    CHECK(!lz_weights_open_as(ctx, folder, formats, 0, &err) && err.status == LZ_BAD_ARGUMENT);

    write_toy("b.toy", "third");
    CHECK(!lz_weights_open_as(ctx, folder, formats, 2, &err));
    CHECK_TEXT(err.text, "2 files *.toy");
    lz_named_array one = {"plain", lz_full(ctx, LZ_DIMS(2), LZ_F32, 1)};
    CHECK_OK(lz_weights_save(ctx, in_folder("c.safetensors"), &one, 1, NULL, &err), &err);
    w = lz_weights_open_as(ctx, folder, formats, 2, &err); /* the first format that the folder has */
    CHECK(lz_weights_has(w, "plain"), "%s", err.text);
    lz_weights_close(w);
    CHECK_I64(truncate(in_folder("a.toy"), 110), 0);
    CHECK(!lz_weights_open_as(ctx, in_folder("a.toy"), formats, 2, &err));
    CHECK_TEXT(err.text, "ends in the middle of 'matrix'");
    lz_scope_end(scope);
    lz_close(ctx);
    leave_folder();
}

static void file_names(void) {
    int n = 0;
    for (; lz_weights_file_name(n); n++) CHECK(strstr(lz_weights_file_name(n), LZ_WEIGHTS_ENDING));
    CHECK_I64(n, 4);
    CHECK(!lz_weights_file_name(-1) && !lz_weights_file_name(INT32_MAX));
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

enum { OUT = 300, IN = 4000, ROWS = 3, BYTES = OUT * IN * 2 };

static float *wide_numbers(void) {
    static float numbers[OUT * IN];
    test_random random = {5};
    if (!numbers[0])
        for (int i = 0; i < OUT * IN; i++) numbers[i] = (float)random_normal(&random) / 60;
    numbers[7] = NAN;
    numbers[8] = -INFINITY;
    return numbers;
}

static lz_param *wide_param(lz_context *ctx, lz_error *err) {
    lz_dims dims = LZ_DIMS(OUT, IN);
    lz_scope *scope = lz_scope_begin(ctx, "load");
    lz_array *a = lz_borrow(ctx, dims, LZ_F32, wide_numbers(), NULL, NULL);
    lz_param *p = lz_check(a, err) ? NULL : lz_param_new(ctx, "wide", &lz_recipe_cast, dims, LZ_BF16, &a, 1, err);
    lz_scope_end(scope);
    return p;
}

/* A recipe gives the bits of the op, for every pair of types. */
static void recipe_is_cast(void) {
    static const lz_dtype types[] = {LZ_F16, LZ_BF16, LZ_F32, LZ_F64};
    lz_error err = {0};
    lz_context *ctx = lz_open(.threads = 2);
    for (int i = 0; i < 16; i++) {
        lz_scope *scope = lz_scope_begin(ctx, "cast");
        lz_array *a = lz_cast(lz_borrow(ctx, LZ_DIMS(OUT, IN), LZ_F32, wide_numbers(), NULL, NULL), types[i / 4]);
        lz_param *p = lz_param_new(ctx, "any", &lz_recipe_cast, lz_shape(a), types[i % 4], &a, 1, &err);
        if (CHECK(p, "%s", err.text)) {
            const void *want = lz_data(lz_cast(a, types[i % 4]), &err), *got = lz_data(p->value, &err);
            CHECK(same_bits(got, want, (int64_t)OUT * IN * lz_dtype_size(types[i % 4])), "%d", i);
            lz_param_free(p);
        }
        lz_scope_end(scope);
    }
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_array *no_sources[1] = {NULL};
    CHECK(!lz_param_new(ctx, "none", &lz_recipe_cast, LZ_NONE, LZ_F32, no_sources, 0, &err));
    CHECK_TEXT(err.text, "'none'");
    lz_close(ctx);
}

static void describe(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx;
    out[0] = lz_apply(in[0], user, NULL);
    out[1] = lz_apply_rows(in[0], user, 1, 2);
}

/* Programs share one copy. It goes with the last of them; a graph that is evaluated once lets it go at once. */
static void one_copy(void) {
    lz_error err = {0};
    lz_context *ctx = lz_open(.threads = 2, .compute = LZ_BF16, .cache_limit = -1);
    lz_param *p = wide_param(ctx, &err);
    if (!CHECK(p, "%s", err.text)) return;
    lz_compiled *f[2];
    for (int k = 0; k < 2; k++) f[k] = lz_compile(ctx, describe, p, 1, 2, 3, &err);
    for (int i = 0; i < 6; i++) { /* three sizes, by two functions */
        lz_scope *scope = lz_scope_begin(ctx, "turn");
        lz_array *x = lz_full(ctx, LZ_DIMS(ROWS + i / 2, IN), LZ_BF16, 1), *y[2];
        CHECK_OK(lz_run(f[i % 2], &x, y, &err), &err);
        int64_t active = lz_memory_info(ctx).active;
        CHECK(active >= BYTES && active < BYTES + BYTES / 2, "%lld", (long long)active);
        lz_scope_end(scope);
    }
    lz_compiled_free(f[0]);
    CHECK(lz_memory_info(ctx).active >= BYTES);
    lz_compiled_free(f[1]);
    CHECK_I64(lz_memory_info(ctx).active, 0);

    lz_scope *scope = lz_scope_begin(ctx, "once");
    lz_array *x = lz_full(ctx, LZ_DIMS(ROWS, IN), LZ_BF16, 1), *y = lz_apply(x, p, NULL);
    lz_plan_info plan;
    CHECK_OK(lz_plan(&y, 1, &plan, &err), &err);
    lz_reset_peak(ctx);
    int64_t before = lz_memory_info(ctx).active;
    CHECK_OK(lz_eval(y, &err), &err);
    CHECK(lz_memory_info(ctx).active < BYTES);
    int64_t most = lz_memory_info(ctx).peak - before, planned = plan.arena_bytes + plan.output_bytes;
    CHECK(most >= planned && most < planned + 1024, "%lld, planned %lld", (long long)most, (long long)planned);
    lz_scope_end(scope);
    lz_param_free(p);
    lz_close(ctx);
}

/* Without room there is an error, and with room the same context goes on. */
static void no_room(void) {
    lz_error err = {0};
    lz_context *ctx = lz_open(.threads = 1, .compute = LZ_BF16, .memory_limit = BYTES / 2);
    lz_param *p = wide_param(ctx, &err);
    lz_scope *scope = lz_scope_begin(ctx, "room");
    lz_array *y = lz_apply(lz_full(ctx, LZ_DIMS(ROWS, IN), LZ_BF16, 1), p, NULL);
    CHECK_STATUS(lz_eval(y, &err), LZ_OUT_OF_MEMORY, &err);
    lz_set_memory_limit(ctx, 2 * BYTES);
    CHECK_OK(lz_eval(y, &err), &err);
    lz_scope_end(scope);
    lz_param_free(p);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

/* Each allocation fails once: there is an error, or none, and nothing is left. */
static void run_param(lz_context *ctx, long long number) {
    lz_error err = {0};
    lz_param *p = wide_param(ctx, &err);
    lz_compiled *c = p ? lz_compile(ctx, describe, p, 1, 2, 1, &err) : NULL;
    lz_scope *scope = lz_scope_begin(ctx, "turn");
    lz_array *x = lz_full(ctx, LZ_DIMS(ROWS, IN), LZ_BF16, 1), *y[2] = {NULL};
    bool fine = c && !lz_run(c, &x, y, &err) && lz_data(y[0], &err);
    CHECK(fine || err.text[0], "allocation %lld", number);
    lz_scope_end(scope);
    lz_compiled_free(c);
    lz_param_free(p);
}

static void failing_allocations(void) { fail_each_allocation(run_param, LZ_BF16); }

TEST_MAIN({"second_format", second_format}, {"file_names", file_names}, {"recipe_is_cast", recipe_is_cast},
          {"one_copy", one_copy}, {"no_room", no_room}, {"failing_allocations", failing_allocations})
