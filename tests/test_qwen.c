/* test_qwen.c: Qwen-Image against diffusers. tests/data/qwen holds tiny random models in the real folder layout and
 * what diffusers made of them in float32; here the same folders, prompts and seeds go through the public API. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#ifndef LZ_SOURCE_DIR
#define LZ_SOURCE_DIR "."
#endif
#define DATA LZ_SOURCE_DIR "/tests/data/qwen"

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static const float *floats(lz_array *a, int64_t *n) {
    lz_error err = {0};
    lz_array *f = lz_cast(a, LZ_F32);
    const float *p = lz_data(f, &err);
    CHECK(p != NULL, "%s", err.text);
    *n = lz_size(f);
    return p;
}

/* |a - b| / |b| */
static double relative_error(lz_array *a, lz_array *b) {
    int64_t n = 0, m = 0;
    const float *x = floats(a, &n), *y = floats(b, &m);
    if (n != m || !x || !y) return INFINITY;
    double d = 0, s = 0;
    for (int64_t i = 0; i < n; i++) {
        d += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        s += (double)y[i] * (double)y[i];
    }
    return sqrt(d / s);
}

static double psnr(lz_array *a, lz_array *b) { /* of values in 0..1 */
    int64_t n = 0, m = 0;
    const float *x = floats(a, &n), *y = floats(b, &m);
    if (n != m || !x || !y) return 0;
    double d = 0;
    for (int64_t i = 0; i < n; i++) d += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return -10 * log10(d / (double)n + 1e-30);
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

typedef struct test_case {
    char name[64], model[64], prompt[4096], negative[256], references[256];
    int width, height, steps;
    double guidance;
    uint64_t seed;
} test_case;

static void percent_decode(const char *from, char *to) {
    while (*from)
        if (*from == '%' && from[1] && from[2]) {
            char hex[3] = {from[1], from[2], 0};
            *to++ = (char)strtol(hex, NULL, 16);
            from += 3;
        } else
            *to++ = *from++;
    *to = 0;
}

static void read_case(char *line, test_case *c) {
    memset(c, 0, sizeof *c);
    for (char *save, *word = strtok_r(line, " \n", &save); word; word = strtok_r(NULL, " \n", &save)) {
        char *value = strchr(word, '=');
        if (!value) continue;
        *value++ = 0;
        if (!strcmp(word, "name")) snprintf(c->name, sizeof c->name, "%s", value);
        if (!strcmp(word, "model")) snprintf(c->model, sizeof c->model, "%s", value);
        if (!strcmp(word, "prompt") && strlen(value) < sizeof c->prompt) percent_decode(value, c->prompt);
        if (!strcmp(word, "negative") && strlen(value) < sizeof c->negative) percent_decode(value, c->negative);
        if (!strcmp(word, "references")) snprintf(c->references, sizeof c->references, "%s", value);
        if (!strcmp(word, "width")) c->width = atoi(value);
        if (!strcmp(word, "height")) c->height = atoi(value);
        if (!strcmp(word, "steps")) c->steps = atoi(value);
        if (!strcmp(word, "guidance")) c->guidance = atof(value);
        if (!strcmp(word, "seed")) c->seed = strtoull(value, NULL, 10);
    }
}

static int read_references(lz_context *ctx, const char *list, lz_image images[4]) {
    char names[256];
    int n = 0;
    snprintf(names, sizeof names, "%s", list);
    for (char *save, *name = strtok_r(names, ",", &save); name && n < 4; name = strtok_r(NULL, ",", &save)) {
        char path[512];
        lz_error err = {0};
        snprintf(path, sizeof path, DATA "/%s", name);
        CHECK_OK(lz_image_read(ctx, path, &images[n++], &err), &err);
    }
    return n;
}

static void run_case(lz_context *ctx, const test_case *c) {
    char path[512];
    lz_error err = {0};
    lz_scope *scope = lz_scope_begin(ctx, c->name);
    snprintf(path, sizeof path, DATA "/%s", c->model);
    lz_model *model = lz_model_open(ctx, path, &err);
    CHECK(model != NULL, "%s: %s", c->name, err.text);
    snprintf(path, sizeof path, DATA "/cases/%s.safetensors", c->name);
    lz_weights *golden = lz_weights_open(ctx, path, &err);
    CHECK(golden != NULL, "%s", err.text);
    if (!model || !golden) return;
    lz_image images[4] = {{0}};
    lz_picture p;
    lz_status status = lz_generate(model, &p, &err, .prompt = c->prompt, .negative = c->negative, .width = c->width,
                                   .height = c->height, .steps = c->steps, .guidance = c->guidance, .seed = c->seed,
                                   .images = images, .n_images = read_references(ctx, c->references, images));
    CHECK_OK(status, &err);
    if (!status) {
        lz_array *end = lz_weights_get(golden, "text"); /* the last tokens, which have seen all others */
        int64_t kept = lz_shape(end).at[1], all = lz_shape(p.text).at[1];
        double text = relative_error(lz_slice(p.text, 1, all - kept, all, 1), end),
               noise = relative_error(p.noise, lz_weights_get(golden, "noise"));
        double latents = relative_error(p.latents, lz_weights_get(golden, "latents")),
               picture = psnr(p.pixels, lz_weights_get(golden, "image"));
        CHECK(noise < 1e-6, "%s: noise %g", c->name, noise);
        CHECK(text < 1e-4, "%s: text %g", c->name, text);
        CHECK(latents < 1e-4, "%s: latents %g", c->name, latents);
        CHECK(picture >= 60, "%s: %g dB", c->name, picture);
        int64_t n = 0, off = 0, plane = (int64_t)c->width * c->height;
        const float *want = floats(lz_weights_get(golden, "image"), &n);
        for (int64_t i = 0; i < plane; i++)
            for (int k = 0; k < 3; k++)
                off += abs((int)p.image.pixels[3 * i + k] - (int)rintf(want[k * plane + i] * 255)) > 1;
        CHECK(off == 0, "%s: %lld levels are off by more than 1", c->name, (long long)off);
        printf("    %-20s text %.1e  latents %.1e  %.1f dB\n", c->name, text, latents, picture);
        lz_picture_free(&p);
    }
    for (int i = 0; i < 4; i++) lz_image_free(ctx, &images[i]);
    lz_weights_close(golden);
    lz_model_close(model);
    lz_scope_end(scope);
}

static void against_diffusers(void) {
    lz_context *ctx = lz_open();
    FILE *f = fopen(DATA "/cases.txt", "r");
    CHECK(f != NULL, "no cases");
    char line[8192];
    test_case c;
    int n = 0;
    while (f && fgets(line, sizeof line, f)) {
        read_case(line, &c);
        run_case(ctx, &c);
        n++;
    }
    CHECK(n == 12, "%d cases", n);
    if (f) fclose(f);
    CHECK(lz_memory_info(ctx).active == 0, "%lld bytes are left", (long long)lz_memory_info(ctx).active);
    lz_close(ctx);
}

/* ---- what is taken and what is not ------------------------------------------------------------------------------- */

static void options(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_image image = {0};
    lz_picture p;
    lz_model *painter = lz_model_open(ctx, DATA "/Q", &err), *editor = lz_model_open(ctx, DATA "/P", &err),
             *lightning = lz_model_open(ctx, DATA "/L", &err);
    if (!CHECK(painter && editor && lightning, "%s", err.text)) return;
    CHECK_OK(lz_image_read(ctx, DATA "/ref1.png", &image, &err), &err);
    lz_model_facts facts = lz_model_about(painter);
    CHECK(!strcmp(facts.family, "Qwen-Image"), "%s", facts.family);
    CHECK_I64(facts.steps, 50);
    CHECK_I64(facts.token_pixels, 16);
    CHECK(!facts.distilled && facts.guidance == 4, "guidance %g", facts.guidance);
    facts = lz_model_about(lightning);
    CHECK(facts.distilled && facts.guidance == 1 && facts.steps == 8, "%d steps", facts.steps);
    facts = lz_model_about(editor);
    CHECK(facts.steps == 40 && facts.least_images == 1 && facts.most_images == LZ_MAX_IMAGES, "%d steps", facts.steps);

    CHECK_STATUS(lz_generate(painter, &p, &err, .images = &image, .n_images = 1), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_generate(editor, &p, &err, .prompt = "nothing to change"), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_generate(painter, &p, &err, .width = 48, .height = 48, .prompt = "bad \xff"), LZ_BAD_ARGUMENT,
                 &err);
    CHECK_STATUS(lz_generate(painter, &p, &err, .width = 48, .height = 48,
                             .noise = lz_full(ctx, LZ_DIMS(1, 4, 3, 3), LZ_F32, 1)),
                 LZ_BAD_SHAPE, &err);

    /* To start from an image is another matter; a single step is allowed. */
    CHECK_OK(lz_generate(painter, &p, &err, .images = &image, .n_images = 1, .strength = 0.5, .steps = 2), &err);
    CHECK_I64(p.image.width, 64);
    lz_picture_free(&p);
    CHECK_OK(lz_generate(painter, &p, &err, .width = 48, .height = 48, .steps = 1, .guidance = 1), &err);
    lz_picture_free(&p);

    /* By default a changed picture has the shape of the last image and an area of a megapixel. */
    lz_picture_options o = {.images = &image, .n_images = 1};
    CHECK_OK(lz_fill_options(editor, &o, &err), &err);
    CHECK(o.width == 1056 && o.height == 992, "%lld x %lld", (long long)o.width, (long long)o.height);
    lz_picture_plan plan;
    o.width = 48;
    o.height = 64;
    CHECK_OK(lz_plan_picture(editor, &o, &plan, &err), &err);
    CHECK_I64(plan.n_stages, 4);

    lz_image_free(ctx, &image);
    lz_model_close(painter);
    lz_model_close(editor);
    lz_model_close(lightning);
    lz_close(ctx);
}

/* A picture to latents and back. */
static void codec(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_image image = {0}, back = {0};
    lz_model *model = lz_model_open(ctx, DATA "/Q", &err);
    CHECK_OK(lz_image_read(ctx, DATA "/ref1.png", &image, &err), &err);
    if (!CHECK(model != NULL, "%s", err.text)) return;
    lz_scope *scope = lz_scope_begin(ctx, "codec");
    lz_array *latents = lz_encode_image(model, &image);
    lz_dims d = lz_shape(latents);
    CHECK(d.n == 4 && d.at[1] == 4 && d.at[2] == 8 && d.at[3] == 8, "%d dims", d.n);
    CHECK_OK(lz_decode_latents(model, latents, &back, &err), &err);
    CHECK(back.width == 64 && back.height == 64);
    lz_image_free(ctx, &back);
    CHECK_STATUS(lz_decode_latents(model, lz_slice(latents, 2, 0, 7, 1), &back, &err), LZ_BAD_SHAPE, &err);
    lz_image_free(ctx, &image);
    lz_scope_end(scope);
    lz_model_close(model);
    lz_close(ctx);
}

TEST_MAIN({"against_diffusers", against_diffusers}, {"options", options}, {"codec", codec})
