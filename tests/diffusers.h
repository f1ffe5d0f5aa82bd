/* diffusers.h: tiny random models in the real folder layout, with the results of diffusers in float32; each line of
 * cases.txt is a case. The tests run the same folders, prompts and seeds through the public API. */
#ifndef LZ_TEST_DIFFUSERS_H
#define LZ_TEST_DIFFUSERS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#ifndef LZ_SOURCE_DIR
#define LZ_SOURCE_DIR "."
#endif

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static inline const float *floats(lz_array *a, int64_t *n) {
    lz_error err = {0};
    lz_array *f = lz_cast(a, LZ_F32);
    const float *p = lz_data(f, &err);
    CHECK(p != NULL, "%s", err.text);
    *n = lz_size(f);
    return p;
}

/* |a - b| / |b| */
static inline double relative_error(lz_array *a, lz_array *b) {
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

static inline double psnr(lz_array *a, lz_array *b) { /* of values in 0..1 */
    int64_t n = 0, m = 0;
    const float *x = floats(a, &n), *y = floats(b, &m);
    if (n != m || !x || !y) return 0;
    double d = 0;
    for (int64_t i = 0; i < n; i++) d += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return -10 * log10(d / (double)n + 1e-30);
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

typedef struct test_case {
    char name[64], model[64], prompt[4096], references[256], words[1024], mask[64];
    const char *negative; /* words, or NULL: not said */
    int width, height, steps;
    double guidance, strength;
    uint64_t seed;
    int crop; /* padding around the mask; -1: not cropped */
    int layers;
} test_case;

static inline void percent_decode(const char *from, char *to) {
    while (*from)
        if (*from == '%' && from[1] && from[2]) {
            char hex[3] = {from[1], from[2], 0};
            *to++ = (char)strtol(hex, NULL, 16);
            from += 3;
        } else
            *to++ = *from++;
    *to = 0;
}

static inline void read_case(char *line, test_case *c) {
    memset(c, 0, sizeof *c);
    for (char *save, *word = strtok_r(line, " \n", &save); word; word = strtok_r(NULL, " \n", &save)) {
        char *value = strchr(word, '=');
        if (!value) continue;
        *value++ = 0;
        if (!strcmp(word, "name")) snprintf(c->name, sizeof c->name, "%s", value);
        if (!strcmp(word, "model")) snprintf(c->model, sizeof c->model, "%s", value);
        if (!strcmp(word, "prompt") && strlen(value) < sizeof c->prompt) percent_decode(value, c->prompt);
        if (!strcmp(word, "negative") && strlen(value) < sizeof c->words) {
            percent_decode(value, c->words);
            c->negative = c->words;
        }
        if (!strcmp(word, "references")) snprintf(c->references, sizeof c->references, "%s", value);
        if (!strcmp(word, "mask")) snprintf(c->mask, sizeof c->mask, "%s", value);
        if (!strcmp(word, "crop")) c->crop = atoi(value);
        if (!strcmp(word, "n_layers")) c->layers = atoi(value);
        if (!strcmp(word, "width")) c->width = atoi(value);
        if (!strcmp(word, "height")) c->height = atoi(value);
        if (!strcmp(word, "steps")) c->steps = atoi(value);
        if (!strcmp(word, "guidance")) c->guidance = atof(value);
        if (!strcmp(word, "strength")) c->strength = atof(value);
        if (!strcmp(word, "seed")) c->seed = strtoull(value, NULL, 10);
    }
}

static inline int read_references(lz_context *ctx, const char *data, const char *list, lz_image images[4]) {
    char names[256];
    int n = 0;
    snprintf(names, sizeof names, "%s", list);
    for (char *save, *name = strtok_r(names, ",", &save); name && n < 4; name = strtok_r(NULL, ",", &save)) {
        char path[512];
        lz_error err = {0};
        snprintf(path, sizeof path, "%s/%s", data, name);
        CHECK_OK(lz_image_read_alpha(ctx, path, &images[n++], &err), &err);
    }
    return n;
}

static inline void run_case(lz_context *ctx, const char *data, const test_case *c) {
    char path[512];
    lz_error err = {0};
    lz_scope *scope = lz_scope_begin(ctx, c->name);
    snprintf(path, sizeof path, "%s/%s", data, c->model);
    lz_model *model = lz_model_open(ctx, path, &err);
    CHECK(model != NULL, "%s: %s", c->name, err.text);
    snprintf(path, sizeof path, "%s/cases/%s.safetensors", data, c->name);
    lz_weights *golden = lz_weights_open(ctx, path, &err);
    CHECK(golden != NULL, "%s", err.text);
    if (!model || !golden) return;
    lz_image images[4] = {{0}};
    lz_picture p;
    lz_status status = lz_generate(model, &p, &err, .prompt = c->prompt, .negative = c->negative, .width = c->width,
                                   .height = c->height, .steps = c->steps, .guidance = c->guidance, .seed = c->seed,
                                   .strength = c->strength, .layers = c->layers, .images = images,
                                   .n_images = read_references(ctx, data, c->references, images));
    CHECK_OK(status, &err);
    if (!status) {
        lz_array *end = lz_weights_get(golden, "text"); /* of Qwen the last 100 tokens, which have seen all others */
        int64_t kept = lz_shape(end).at[1], all = lz_shape(p.text).at[1];
        CHECK(kept == all || kept == 100, "%s: %lld tokens", c->name, (long long)all);
        double text = relative_error(lz_slice(p.text, 1, all - kept, all, 1), end),
               noise = relative_error(p.noise, lz_weights_get(golden, "noise"));
        double latents = relative_error(p.latents, lz_weights_get(golden, "latents")),
               picture = psnr(p.pixels, lz_weights_get(golden, "image"));
        CHECK(noise < 1e-6, "%s: noise %g", c->name, noise);
        CHECK(text < 1e-4, "%s: text %g", c->name, text);
        CHECK(latents < 1e-4, "%s: latents %g", c->name, latents);
        CHECK(picture >= 60, "%s: %g dB", c->name, picture);
        int64_t n = 0, off = 0, plane = p.image.width * p.image.height;
        const float *want = floats(lz_weights_get(golden, "image"), &n);
        int pictures = c->layers ? c->layers : 1;
        CHECK_I64(p.n_layers, c->layers);
        for (int l = 0; l < pictures; l++, want += n / pictures) {
            const lz_image *image = c->layers ? &p.layers[l] : &p.image;
            int channels = image->channels;
            if (!CHECK(n == pictures * channels * plane, "%s: %d channels", c->name, channels)) break;
            for (int64_t i = 0; i < plane; i++)
                for (int k = 0; k < channels; k++)
                    off += abs((int)image->pixels[channels * i + k] - (int)rintf(want[k * plane + i] * 255)) > 1;
        }
        CHECK(off == 0, "%s: %lld levels are off by more than 1", c->name, (long long)off);
        printf("    %-20s text %.1e  latents %.1e  %.1f dB\n", c->name, text, latents, picture);
        lz_picture_free(&p);
    }
    for (int i = 0; i < 4; i++) lz_image_free(ctx, &images[i]);
    lz_weights_close(golden);
    lz_model_close(model);
    lz_scope_end(scope);
}

/* Calls `run` with each case of data/cases.txt, of which there must be so many. */
static inline void each_case(const char *data, int cases,
                             void (*run)(lz_context *ctx, const char *data, const test_case *c)) {
    lz_context *ctx = lz_open();
    char line[8192];
    snprintf(line, sizeof line, "%s/cases.txt", data);
    FILE *f = fopen(line, "r");
    CHECK(f != NULL, "no cases");
    test_case c;
    int n = 0;
    while (f && fgets(line, sizeof line, f)) {
        read_case(line, &c);
        run(ctx, data, &c);
        n++;
    }
    CHECK(n == cases, "%d cases", n);
    if (f) fclose(f);
    CHECK(lz_memory_info(ctx).active == 0, "%lld bytes are left", (long long)lz_memory_info(ctx).active);
    lz_close(ctx);
}

static inline void check_cases(const char *data, int cases) { each_case(data, cases, run_case); }

#endif
