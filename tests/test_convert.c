/* Weights in other types: rows against the bytes of another program (tools/oracle/packed_rows.py), the error of each packing,
 * and whole files by lz_convert, read back. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "folder.h"
#include "op/pack.h"

static lz_context *open_context(void) {
    lz_error err;
    lz_context *ctx = lz_open(.error = &err);
    CHECK(ctx != NULL, "%s", err.text);
    return ctx;
}

/* ---- rows ---------------------------------------------------------------------------------------------------------- */

static void bytes_of_the_reference(void) {
    lz_error err;
    lz_context *ctx = open_context();
    lz_weights *w = lz_weights_open(ctx, test_data("packed_rows.safetensors"), &err);
    if (!CHECK(w != NULL, "%s", err.text)) return;
    lz_array *rows = lz_weights_get(w, "rows");
    int64_t n = lz_shape(rows).at[0], columns = lz_shape(rows).at[1];
    const float *x = lz_data(rows, &err);
    static const lz_packing of[] = {LZ_PACKING_Q4_0, LZ_PACKING_Q4_1, LZ_PACKING_Q5_0, LZ_PACKING_Q5_1,
                                    LZ_PACKING_Q8_0};
    for (size_t p = 0; p < sizeof of / sizeof *of; p++) {
        const char *name = lz_packing_table[of[p]].name;
        const uint8_t *want = lz_data(lz_weights_get(w, name), &err);
        int64_t bytes = lz_packing_row_bytes(of[p], columns);
        uint8_t got[1024];
        for (int64_t r = 0; r < n; r++) {
            lz_pack_row(of[p], x + r * columns, columns, got);
            CHECK(memcmp(got, want + r * bytes, (size_t)bytes) == 0, "%s: row %d has other bytes", name, (int)r);
        }
    }
    lz_weights_close(w);
    lz_close(ctx);
}

static double error_of(lz_packing packing, const float *x, int64_t n) {
    uint8_t codes[5000];
    double changed = 0, squares = 0;
    lz_pack_row(packing, x, n, codes);
    for (int64_t i = 0; i < n; i++) {
        double d = (double)x[i] - (double)lz_unpack_element(packing, codes, i);
        changed += d * d, squares += (double)x[i] * (double)x[i];
    }
    return squares > 0 ? sqrt(changed / squares) : sqrt(changed);
}

/* Normal numbers have an error that is known for each width; ranges around it find a code that is off by one or a scale in
 * the wrong place. */
static void errors_of_rows(void) {
    static const struct {
        lz_packing packing;
        double low, high;
    } of[] = {{LZ_PACKING_Q8_0, 0.004, 0.006}, {LZ_PACKING_Q6_K, 0.016, 0.020}, {LZ_PACKING_Q5_K, 0.032, 0.040},
              {LZ_PACKING_Q4_K, 0.066, 0.078}, {LZ_PACKING_Q3_K, 0.12, 0.16},   {LZ_PACKING_Q2_K, 0.22, 0.30},
              {LZ_PACKING_Q5_1, 0.034, 0.044}, {LZ_PACKING_Q5_0, 0.040, 0.050}, {LZ_PACKING_Q4_1, 0.07, 0.09},
              {LZ_PACKING_Q4_0, 0.078, 0.095}};
    lz_error err;
    lz_context *ctx = open_context();
    const float *normal = lz_data(lz_randn(ctx, LZ_DIMS(4096), 3), &err);
    float shifted[4096], zeros[256] = {0}, odd[256] = {0};
    for (int i = 0; i < 4096; i++) shifted[i] = normal[i] * 1e-3f - 0.01f;
    odd[3] = INFINITY, odd[4] = NAN, odd[200] = 1;
    for (size_t p = 0; p < sizeof of / sizeof *of; p++) {
        const char *name = lz_packing_table[of[p].packing].name;
        double error = error_of(of[p].packing, normal, 4096);
        CHECK(error > of[p].low && error < of[p].high, "%s: error %g of normal numbers", name, error);
        CHECK(error_of(of[p].packing, shifted, 4096) < 0.3, "%s: error %g of numbers below zero", name,
              error_of(of[p].packing, shifted, 4096));
        CHECK(error_of(of[p].packing, zeros, 256) == 0, "%s: zeros do not stay zeros", name);
        uint8_t codes[512];
        lz_pack_row(of[p].packing, odd, 256, codes);
        for (int i = 0; i < 256; i++)
            CHECK(isfinite(lz_unpack_element(of[p].packing, codes, i)), "%s: %d is not finite", name, i);
        CHECK(lz_can_pack(of[p].packing), "%s", name);
    }
    CHECK(!lz_can_pack(LZ_PACKING_IQ4_NL), "iq4_nl is only read");
    lz_close(ctx);
}

/* ---- files --------------------------------------------------------------------------------------------------------- */

typedef struct told {
    int tensors, narrow;
    double worst, done;
    int stop_after; /* 0: never */
} told;

static bool note(void *user, const lz_converted *t) {
    told *n = user;
    n->tensors++;
    n->narrow += strcmp(t->from_type, t->to_type) != 0;
    if (t->error > n->worst) n->worst = t->error;
    CHECK(t->done >= n->done && t->done <= 1 && t->to_bytes > 0, "%s: done %g after %g", t->name, t->done, n->done);
    n->done = t->done;
    return n->tensors != n->stop_after;
}

static void files(void) {
    static const struct {
        const char *type, *ending;
        double worst;
    } of[] = {{"bf16", ".safetensors", 0},   {"bf16", ".gguf", 0},          {"f32", ".gguf", 0},
              {"f16", ".safetensors", 1e-3}, {"fp8", ".safetensors", 0.03}, {"int8", ".safetensors", 0.01},
              {"q8_0", ".gguf", 0.006},      {"q4_k", ".gguf", 0.08}};
    enter_folder();
    lz_error err;
    lz_context *ctx = open_context();
    const char *from = test_data("flux2/A/transformer");
    lz_weights *before = lz_weights_open(ctx, from, &err);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char file[64];
        snprintf(file, sizeof file, "%s%s", of[i].type, of[i].ending);
        const char *path = in_folder(file);
        told n = {0};
        lz_status status = lz_convert(ctx, from, path,
                                      &LZ_CONVERT_OPTIONS(.type = of[i].type, .watch = note, .user = &n), &err);
        if (!CHECK_OK(status, &err)) continue;
        CHECK(n.tensors == lz_weights_count(before) && n.done == 1, "%s: %d tensors", path, n.tensors);
        CHECK(of[i].worst == 0 ? n.worst == 0 : n.worst > 0 && n.worst < of[i].worst, "%s: error %g", path, n.worst);
        lz_weights *after = lz_weights_open(ctx, path, &err);
        if (!CHECK(after != NULL, "%s", err.text)) continue;
        for (int64_t t = 0; t < lz_weights_count(before); t++) {
            const char *name = lz_weights_name(before, t);
            lz_dims a = lz_weights_shape(before, name), b = lz_weights_shape(after, name);
            CHECK(a.n == b.n && !memcmp(a.at, b.at, sizeof a.at), "%s: %s has another shape", path, name);
        }
        lz_weights_close(after);
        unlink(path);
    }
    lz_weights_close(before);
    lz_close(ctx);
    leave_folder();
}

/* Every quantised format with scales beside the codes, unpacked: the numbers that NumPy computed. A matrix that its
 * format pads keeps the padding, since only a model tells its shape. */
static void scaled(void) {
    enter_folder();
    lz_error err = {0};
    lz_context *ctx = open_context();
    const char *path = in_folder("unpacked.safetensors");
    CHECK_OK(
        lz_convert(ctx, test_data("quantised/formats.safetensors"), path, &LZ_CONVERT_OPTIONS(.type = "f32"), &err),
        &err);
    lz_weights *got = lz_weights_open(ctx, path, &err);
    lz_weights *want = lz_weights_open(ctx, test_data("quantised/want.safetensors"), &err);
    if (!CHECK(got && want, "%s", err.text)) return;
    CHECK_I64(lz_weights_count(want), 34);
    int64_t other = 0;
    for (int64_t i = 0; i < lz_weights_count(want); i++) {
        lz_scope *scope = lz_scope_begin(ctx, "scaled");
        const char *name = lz_weights_name(want, i);
        lz_array *a = lz_weights_get(got, name), *b = lz_weights_get(want, name);
        const float *x = lz_data(a, &err), *y = lz_data(b, &err);
        lz_dims d = lz_shape(a), e = lz_shape(b);
        double worst = 0, largest = 0;
        if (CHECK(x && y && d.n == e.n && d.at[0] >= e.at[0] && d.at[d.n - 1] >= e.at[e.n - 1], "%s: %s", name,
                  err.text)) {
            int64_t columns = e.at[e.n - 1], rows = lz_size(b) / columns, all = d.at[d.n - 1];
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < columns; c++) {
                    float p = x[r * all + c], q = y[r * columns + c];
                    if (isfinite(q)) worst = fmax(worst, fabs((double)p - (double)q));
                    if (isfinite(q)) largest = fmax(largest, fabs((double)q));
                    CHECK(isfinite(p) == isfinite(q));
                }
            CHECK(worst <= 1e-6 * largest, "%s: differs by %g of %g", name, worst, largest);
            other += largest > 0;
        }
        lz_scope_end(scope);
    }
    CHECK_I64(other, 33); /* one of them is zero */
    CHECK(!lz_weights_has(got, "scaled_fp8"), "the marker of fp8");
    for (int64_t i = 0; i < lz_weights_count(got); i++)
        CHECK(!strstr(lz_weights_name(got, i), "scale") && !strstr(lz_weights_name(got, i), "comfy_quant"), "%s",
              lz_weights_name(got, i));
    lz_weights_close(got);
    lz_weights_close(want);
    unlink(path);
    lz_close(ctx);
    leave_folder();
}

/* Names that are longer than the names of any model are kept. Two begin with the same 255 bytes. */
static void long_names(void) {
    enter_folder();
    lz_error err;
    lz_context *ctx = open_context();
    char names[3][320], header[2000];
    memset(names, 'a', sizeof names);
    snprintf(names[0] + 255, 8, "%s", "");
    snprintf(names[1] + 300, 8, ".weight");
    snprintf(names[2] + 290, 16, ".weight_packed");
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
             "\"%s\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]},"
             "\"%s\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[12,24]}}",
             names[0], names[1], names[2]);
    const uint64_t length = strlen(header);
    static const char numbers[24] = "";
    FILE *file = fopen(in_folder("long.safetensors"), "wb");
    CHECK(file && fwrite(&length, 8, 1, file) && fwrite(header, length, 1, file) && fwrite(numbers, 24, 1, file) &&
          fclose(file) == 0);
    const char *path = in_folder("converted.safetensors");
    CHECK_OK(lz_convert(ctx, in_folder("long.safetensors"), path, &LZ_CONVERT_OPTIONS(.type = "bf16"), &err), &err);
    lz_weights *after = lz_weights_open(ctx, path, &err);
    for (int i = 0; i < 3 && CHECK(after != NULL, "%s", err.text); i++) {
        lz_dims d = lz_weights_shape(after, names[i]);
        CHECK(d.n == 1 && d.at[0] == i + 1, "name %d: %d axes", i, d.n);
    }
    lz_weights_close(after);
    lz_close(ctx);
    leave_folder();
}

static void refusals(void) {
    enter_folder();
    lz_error err;
    lz_context *ctx = open_context();
    const char *from = test_data("flux2/A/transformer");
    const char *path = in_folder("converted.gguf");
    told n = {.stop_after = 5};
    CHECK(lz_convert(ctx, from, path, &LZ_CONVERT_OPTIONS(.type = "q8_0", .watch = note, .user = &n), &err) ==
              LZ_CANCELLED,
          "%s", err.text);
    CHECK(files_in_folder() == 0, "a file is left after cancelling");
    CHECK(lz_convert(ctx, from, path, &LZ_CONVERT_OPTIONS(.type = "fp8"), &err) == LZ_BAD_ARGUMENT &&
              strstr(err.text, "must end in .safetensors"),
          "%s", err.text);
    static const char odd[] = "{\"a.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[1,4],\"data_offsets\":[0,4]},"
                              "\"a.weight_codebook\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}";
    const uint64_t length = sizeof odd - 1;
    FILE *file = fopen(in_folder("odd.safetensors"), "wb");
    CHECK(file && fwrite(&length, 8, 1, file) && fwrite(odd, length, 1, file) && fwrite("12345678", 8, 1, file) &&
          fclose(file) == 0);
    CHECK(lz_convert(ctx, in_folder("odd.safetensors"), path, &LZ_CONVERT_OPTIONS(.type = "bf16"), &err) ==
                  LZ_BAD_FILE &&
              strstr(err.text, "nothing uses 'a.weight_codebook'"),
          "%s", err.text);
    unlink(in_folder("odd.safetensors"));
    CHECK(lz_convert(ctx, from, "x.bin", &LZ_CONVERT_OPTIONS(.type = "bf16"), &err) == LZ_BAD_ARGUMENT, "%s", err.text);
    CHECK(lz_convert(ctx, from, path, &LZ_CONVERT_OPTIONS(.type = "q9"), &err) == LZ_BAD_ARGUMENT, "%s", err.text);
    lz_close(ctx);
    leave_folder();
}

/* ---- weights that are quantised when a model is opened ---------------------------------------------------------------- */

static int kept_in(const char *below, char name[300]) { /* name: gets that of one of the files */
    int n = 0;
    DIR *dir = opendir(in_folder(below));
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.') n++, snprintf(name, 300, "%s/%s", below, e->d_name);
    if (dir) closedir(dir);
    return n;
}

static void remove_kept(const char *below) {
    char name[300] = "";
    while (kept_in(below, name)) unlink(in_folder(name));
    rmdir(in_folder(below));
}

static int kept_files(char name[300]) { return kept_in("int8", name); }

enum { PIXELS = 32 * 32 * 3 };
typedef struct pixels {
    bool made;
    uint8_t at[PIXELS];
} pixels;

/* A picture by the model A; not made: err has the reason. */
static pixels picture_of(const char *device, int compute, int threads, bool kept, lz_error *err) {
    pixels to = {.made = false};
    lz_picture picture = {0};
    lz_context *ctx = lz_open(.device = device, .compute = compute, .threads = threads,
                              .cache_folder = kept ? folder : NULL, .error = err);
    lz_model *model = ctx ? lz_model_open(ctx, test_data("flux2/A"), err) : NULL;
    to.made = model && lz_generate(model, &picture, err, .prompt = "a red fox", .width = 32, .height = 32, .steps = 1,
                                   .seed = 5) == LZ_OK;
    if (to.made) memcpy(to.at, picture.image.pixels, PIXELS);
    lz_picture_free(&picture);
    lz_model_close(model);
    lz_close(ctx);
    return to;
}

static double difference(const pixels *a, const pixels *b) { /* the mean over all bytes */
    double sum = 0;
    for (int i = 0; i < PIXELS; i++) sum += abs(a->at[i] - b->at[i]);
    return a->made && b->made ? sum / PIXELS : 255;
}

/* The reference multiplies the same codes by its own loops. The picture in f32 is near, but another one. */
static void quantised_when_opened(void) {
    lz_error err = {0};
    char name[300] = "";
    enter_folder();
    pixels none = picture_of("cpu", LZ_I8, 2, false, &err);
    CHECK(!none.made && strstr(err.text, "a folder for caches"), "%s", err.text);
    err = (lz_error){0};
    pixels first = picture_of("cpu", LZ_I8, 2, true, &err);
    CHECK(first.made, "%s", err.text);
    CHECK_I64(kept_files(name), 2); /* the transformer and the text encoder */
    struct stat before, after;
    CHECK(stat(in_folder(name), &before) == 0);
    pixels again = picture_of("cpu", LZ_I8, 1, true, &err), ref = picture_of("ref", LZ_I8, 1, true, &err),
           exact = picture_of("cpu", LZ_F32, 2, false, &err);
    CHECK(stat(in_folder(name), &after) == 0 && after.st_ino == before.st_ino && kept_files(name) == 2,
          "a file that is there is not made again");
    CHECK(difference(&first, &again) == 0, "another number of threads: %g", difference(&first, &again));
    CHECK(difference(&first, &ref) < 1, "the reference: %g", difference(&first, &ref));
    CHECK(difference(&first, &exact) > 0 && difference(&first, &exact) < 6, "f32: %g", difference(&first, &exact));

    /* A file that is damaged is made again, and old files make room. */
    CHECK(truncate(in_folder(name), 1000) == 0);
    const char *old = in_folder("int8/old.safetensors");
    FILE *file = fopen(old, "wb");
    const struct timespec long_ago[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    CHECK(file && fclose(file) == 0);
    if (truncate(old, INT64_C(70) << 30) == 0) CHECK(utimensat(AT_FDCWD, old, long_ago, 0) == 0);
    pixels mended = picture_of("cpu", LZ_I8, 2, true, &err);
    CHECK(mended.made && difference(&first, &mended) == 0, "%s", err.text);
    CHECK_I64(kept_files(name), 2);
    remove_kept("int8");
    leave_folder();
}

/* With fp8 the transformer is quantised, with a scale for each row, and the text encoder is not. */
static void fp8_when_opened(void) {
    lz_error err = {0};
    char name[300] = "";
    enter_folder();
    pixels first = picture_of("ref", LZ_F8, 1, true, &err), exact = picture_of("cpu", LZ_F32, 2, false, &err);
    CHECK(first.made, "%s", err.text);
    CHECK_I64(kept_in("fp8", name), 1);
    CHECK(difference(&first, &exact) > 0 && difference(&first, &exact) < 12, "f32: %g", difference(&first, &exact));
    lz_context *ctx = lz_open(.error = &err);
    lz_weights *w = lz_weights_open(ctx, in_folder(name), &err);
    if (CHECK(w, "%s", err.text)) {
        lz_array *codes = lz_weights_get(w, "single_transformer_blocks.0.attn.to_out.weight"),
                 *scales = lz_weights_get(w, "single_transformer_blocks.0.attn.to_out.weight_scale"),
                 *wide = lz_weights_get(w, "x_embedder.weight"),
                 *early = lz_weights_get(w, "transformer_blocks.0.ff.linear_in.weight"),
                 *text = lz_weights_get(w, "transformer_blocks.0.ff_context.linear_in.weight");
        CHECK(lz_type(codes) == LZ_F8 && lz_type(wide) != LZ_F8);
        CHECK(lz_type(early) != LZ_F8 && lz_type(text) == LZ_F8); /* models/narrow.c: first_blocks */
        CHECK_I64(lz_shape(scales).at[0], lz_shape(codes).at[0]);
    }
    lz_weights_close(w);
    lz_close(ctx);
    remove_kept("fp8");
    leave_folder();
}

/* Writes the transformer of model A to single.safetensors in the folder. bad: NULL, or a weight whose third number becomes
 * this. */
static void write_transformer(const char *bad, float number) {
    enum { MOST = 200 };
    lz_named_array arrays[MOST];
    lz_error err = {0};
    lz_context *ctx = open_context();
    lz_weights *w = lz_weights_open(ctx, test_data("flux2/A/transformer"), &err);
    int n = w ? (int)lz_weights_count(w) : 0;
    if (!CHECK(n > 0 && n <= MOST && (!bad || lz_weights_has(w, bad)), "%d tensors: %s", n, err.text)) n = 0;
    for (int i = 0; i < n; i++) {
        arrays[i].name = lz_weights_name(w, i);
        arrays[i].array = lz_weights_get(w, arrays[i].name);
        if (!bad || strcmp(arrays[i].name, bad)) continue;
        lz_array *numbers = lz_cast(arrays[i].array, LZ_F32);
        size_t bytes = (size_t)lz_size(numbers) * sizeof(float);
        float *changed = malloc(bytes);
        memcpy(changed, lz_data(numbers, &err), bytes);
        changed[2] = number;
        arrays[i].array = lz_from(ctx, lz_shape(numbers), LZ_F32, changed);
        free(changed);
    }
    CHECK_OK(lz_weights_save(ctx, in_folder("single.safetensors"), arrays, n, NULL, &err), &err);
    lz_weights_close(w);
    lz_close(ctx);
}

/* The calls of lz_context_options.quantising. */
typedef struct shares {
    int calls, files, stop_at; /* files: that were completed; stop_at: the number of the call that stops; 0: none */
    double done;
} shares;

static bool count_share(void *user, double done) {
    shares *s = user;
    CHECK(done >= s->done && done <= 1, "%g after %g", done, s->done);
    s->files += done == 1;
    s->done = done < 1 ? done : 0;
    return ++s->calls != s->stop_at;
}

/* Opens a model of single.safetensors, which quantises it into `int8` or `fp8` of the cache folder. With LZ_I8 the text
 * encoder follows. */
static lz_status open_single(int compute, const char *cache, shares *s, lz_error *err) {
    static const char *const names[] = {"flux2/A/text_encoder/config.json", "flux2/A/vae/config.json",
                                        "flux2/A/tokenizer/vocab.json"};
    char parts[3][1024];
    for (int i = 0; i < 3; i++) {
        snprintf(parts[i], sizeof parts[i], "%s", test_data(names[i]));
        *strrchr(parts[i], '/') = 0;
    }
    *err = (lz_error){0};
    lz_context *ctx = lz_open(.device = compute == LZ_F8 ? "ref" : "cpu", .compute = compute, .threads = 2,
                              .cache_folder = cache, .quantising = s ? count_share : NULL, .quantising_user = s,
                              .error = err);
    const lz_model_options options = LZ_MODEL_OPTIONS(.model = in_folder("single.safetensors"),
                                                      .text_encoder = parts[0], .vae = parts[1], .tokenizer = parts[2]);
    lz_model *model = ctx ? lz_model_open_with(ctx, &options, err) : NULL;
    CHECK((model != NULL) == (err->status == LZ_OK), "%s", err->text);
    lz_model_close(model);
    lz_close(ctx);
    return err->status;
}

/* Changes a digit of the source in the metadata of a kept file, which is also the file's name. */
static void name_other_source(const char *path) {
    static char bytes[1 << 16];
    const char *source = strrchr(path, '/') + 1;
    FILE *file = fopen(path, "r+b");
    size_t n = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    const char *at = memmem(bytes, n, source, strcspn(source, "."));
    if (!CHECK(n > 0 && at, "%s does not name its source", path)) return;
    CHECK(fseek(file, at - bytes, SEEK_SET) == 0 && fputc(*at == '0' ? '1' : '0', file) != EOF);
    CHECK(fclose(file) == 0);
}

/* A kept file is used if its metadata names the source by its path, size and modification time. */
static void kept_files_are_checked(void) {
    lz_error err;
    char name[300] = "", other[300] = "";
    struct stat before, after;
    enter_folder();
    write_transformer(NULL, 0);
    CHECK_OK(open_single(LZ_F8, folder, NULL, &err), &err);
    CHECK_I64(kept_in("fp8", name), 1);
    CHECK(stat(in_folder(name), &before) == 0);
    CHECK_OK(open_single(LZ_F8, folder, NULL, &err), &err);
    CHECK(stat(in_folder(name), &after) == 0 && after.st_ino == before.st_ino,
          "a file that is there is not made again");

    /* The file says that it was made from something else. */
    name_other_source(in_folder(name));
    CHECK_OK(open_single(LZ_F8, folder, NULL, &err), &err);
    CHECK_I64(kept_in("fp8", other), 1);
    CHECK(!strcmp(name, other) && stat(in_folder(name), &after) == 0 && after.st_ino != before.st_ino,
          "a file that was made from something else is made again");

    /* The source changes. */
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000000}};
    CHECK(utimensat(AT_FDCWD, in_folder("single.safetensors"), times, 0) == 0);
    CHECK_OK(open_single(LZ_F8, folder, NULL, &err), &err);
    CHECK_I64(kept_in("fp8", name), 2);
    remove_kept("fp8");
    leave_folder();
}

static void quantising_is_stopped(void) {
    lz_error err;
    char name[300] = "";
    enter_folder();
    write_transformer(NULL, 0);
    shares all = {0}, both = {0};
    CHECK_OK(open_single(LZ_F8, folder, &all, &err), &err);
    CHECK(all.calls > 2 && all.files == 1 && all.done == 0, "%d calls, %d files, %g", all.calls, all.files, all.done);
    remove_kept("fp8");
    CHECK_OK(open_single(LZ_I8, folder, &both, &err), &err);
    CHECK_I64(both.files, 2);
    remove_kept("int8");
    const int stops[] = {1, all.calls / 2, all.calls}; /* the last one is told that all is done */
    for (int i = 0; i < 3; i++) {
        shares some = {.stop_at = stops[i]};
        CHECK_STATUS(open_single(LZ_F8, folder, &some, &err), LZ_CANCELLED, &err);
        CHECK_I64(some.calls, stops[i]);
        CHECK_I64(kept_in("fp8", name), 0);
    }
    remove_kept("fp8");
    leave_folder();
}

static void weights_that_are_not_finite(void) {
    static const char bad[] = "single_transformer_blocks.0.attn.to_out.weight";
    static const float numbers[] = {NAN, INFINITY, -INFINITY};
    lz_error err;
    char name[300] = "";
    enter_folder();
    for (int i = 0; i < 6; i++) {
        bool int8 = i % 2;
        write_transformer(bad, numbers[i / 2]);
        CHECK_STATUS(open_single(int8 ? LZ_I8 : LZ_F8, folder, NULL, &err), LZ_BAD_FILE, &err);
        CHECK_TEXT(err.text, bad);
        CHECK_TEXT(err.text, "not finite");
        CHECK_I64(kept_in(int8 ? "int8" : "fp8", name), 0);
    }
    remove_kept("int8");
    remove_kept("fp8");
    leave_folder();
}

static void folder_that_cannot_be_made(void) {
    lz_error err;
    enter_folder();
    write_transformer(NULL, 0);
    FILE *file = fopen(in_folder("fp8"), "wb");
    CHECK(file && fclose(file) == 0);
    const char *const caches[] = {folder, in_folder("fp8/cache")};
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(open_single(LZ_F8, caches[i], NULL, &err), LZ_IO, &err);
        CHECK_TEXT(err.text, "fp8: the folder for quantised weights cannot be made: Not a directory");
    }
    leave_folder();
}

/* A process that was killed leaves such a file. One that was written to lately may belong to a process that runs. */
static void parts_that_were_left(void) {
    static const char *const names[] = {"fp8/0.safetensors.1-0.part", "fp8/1.safetensors.1-0.part"};
    lz_error err;
    char name[300] = "";
    enter_folder();
    write_transformer(NULL, 0);
    CHECK(mkdir(in_folder("fp8"), 0700) == 0);
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(in_folder(names[i]), "wb");
        CHECK(file && fclose(file) == 0);
    }
    const struct timespec hour_ago[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = time(NULL) - 3600}};
    CHECK(utimensat(AT_FDCWD, in_folder(names[0]), hour_ago, 0) == 0);
    CHECK_OK(open_single(LZ_F8, folder, NULL, &err), &err);
    CHECK(access(in_folder(names[0]), F_OK) != 0, "a file that was left an hour ago is removed");
    CHECK(access(in_folder(names[1]), F_OK) == 0, "a file that is being written is not removed");
    CHECK_I64(kept_in("fp8", name), 2);
    remove_kept("fp8");
    leave_folder();
}

TEST_MAIN({"bytes of the reference", bytes_of_the_reference}, {"errors of rows", errors_of_rows}, {"files", files},
          {"scaled", scaled}, {"long names", long_names}, {"refusals", refusals},
          {"quantised when opened", quantised_when_opened}, {"fp8 when opened", fp8_when_opened},
          {"kept files when opened", kept_files_are_checked}, {"stopped when opened", quantising_is_stopped},
          {"not finite when opened", weights_that_are_not_finite},
          {"no folder when opened", folder_that_cannot_be_made}, {"parts when opened", parts_that_were_left})
