/* test_demo.c: the demo model gives the same pictures as diffusers (tools/demo-model/goldens.py), and the defaults in a
 * model's index are used. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "folder.h"

#ifndef LZ_SOURCE_DIR
#define LZ_SOURCE_DIR "."
#endif
#define DEMO LZ_SOURCE_DIR "/models/demo"
#define GOLDEN LZ_SOURCE_DIR "/tests/data/demo"
#define SMALL LZ_SOURCE_DIR "/tests/data/flux2/A" /* 128 channels, 4 steps, no defaults in its index */

/* ---- the goldens ------------------------------------------------------------------------------------------------- */

static bool read_golden(lz_context *ctx, const char *name, lz_image *image) {
    char path[512];
    lz_error err = {0};
    snprintf(path, sizeof path, GOLDEN "/%s.png", name);
    return CHECK_OK(lz_image_read(ctx, path, image, &err), &err);
}

/* The number of steps is the model's own. reference: the name of a golden, or "-". */
static void compare(lz_context *ctx, lz_model *model, const char *name, const char *reference, lz_picture_options o) {
    lz_error err = {0};
    lz_image want = {0}, image = {0};
    lz_picture p;
    if (!read_golden(ctx, name, &want)) return;
    if (strcmp(reference, "-") != 0 && read_golden(ctx, reference, &image)) {
        o.images = &image;
        o.n_images = 1;
    }
    if (CHECK_OK(lz_generate_with(model, &o, &p, &err), &err)) {
        bool same = CHECK_I64(p.image.width, want.width) && CHECK_I64(p.image.height, want.height);
        int64_t other = 0, off = 0, n = 3 * want.width * want.height;
        for (int64_t i = 0; same && i < n; i++) {
            int levels = abs((int)p.image.pixels[i] - (int)want.pixels[i]);
            other += levels > 0;
            off += levels > 1;
        }
        CHECK(off == 0, "%s: %lld values differ from the golden by more than 1 level", name, (long long)off);
        printf("    %-8s %lld of %lld values differ by a level\n", name, (long long)other, (long long)n);
        lz_picture_free(&p);
    }
    lz_image_free(ctx, &want);
    lz_image_free(ctx, &image);
}

/* A line of cases.txt is a name, a seed, width, height, a reference or -, and the prompt. */
static void goldens(void) {
    lz_error err = {0};
    lz_context *ctx = lz_open();
    lz_model *model = lz_model_open(ctx, DEMO, &err);
    FILE *cases = fopen(GOLDEN "/cases.txt", "r");
    CHECK(model != NULL, "%s", err.text);
    CHECK(cases != NULL, "no cases");
    char line[512], name[64], reference[64];
    int n = 0;
    while (model && cases && fgets(line, sizeof line, cases)) {
        unsigned long long seed;
        int64_t width, height;
        int prompt = 0;
        if (line[0] == '#') continue;
        line[strcspn(line, "\n")] = 0;
        int found = sscanf(line, "%63s %llu %" SCNd64 " %" SCNd64 " %63s %n", name, &seed, &width, &height, reference,
                           &prompt);
        if (!CHECK(found == 5 && prompt, "%s", line)) continue;
        compare(ctx, model, name, reference,
                LZ_PICTURE_OPTIONS(.prompt = line + prompt, .seed = seed, .width = width, .height = height));
        n++;
    }
    CHECK_I64(n, 7);
    if (cases) fclose(cases);
    lz_model_close(model);
    lz_close(ctx);
}

/* ---- the defaults of a folder ------------------------------------------------------------------------------------ */

/* The small model with these words in its index. */
static lz_model *open_with(lz_context *ctx, const char *words, lz_error *err) {
    static const char *const parts[] = {"tokenizer", "text_encoder", "transformer", "vae", "scheduler"};
    char path[512];
    empty_folder();
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, SMALL "/%s", parts[i]);
        CHECK(symlink(path, in_folder(parts[i])) == 0);
    }
    FILE *f = fopen(in_folder("model_index.json"), "w");
    CHECK(f != NULL);
    if (f) fprintf(f, "{\"_class_name\": \"Flux2KleinPipeline\", \"is_distilled\": true%s}", words);
    if (f) fclose(f);
    *err = (lz_error){0};
    return lz_model_open(ctx, folder, err);
}

static void check_defaults(lz_context *ctx, const char *words, int64_t width, int64_t height, int steps) {
    lz_error err;
    lz_model *model = open_with(ctx, words, &err);
    lz_picture_options o = LZ_PICTURE_OPTIONS(.prompt = "fox"), some = LZ_PICTURE_OPTIONS(.height = 70, .steps = 3),
                       quick = LZ_PICTURE_OPTIONS(.fast = true);
    lz_picture_plan plan;
    if (!CHECK(model != NULL, "%s: %s", words, err.text)) return;
    lz_model_facts facts = lz_model_about(model);
    CHECK_I64(facts.width, width);
    CHECK_I64(facts.height, height);
    CHECK_I64(facts.steps, steps);
    CHECK_OK(lz_fill_options(model, &o, &err), &err);
    CHECK_I64(o.width, width);
    CHECK_I64(o.height, height);
    CHECK_I64(o.steps, steps);
    CHECK(o.guidance == 1);
    CHECK_OK(lz_fill_options(model, &some, &err), &err);
    CHECK_I64(some.width, width);
    CHECK_I64(some.height, 64);
    CHECK_I64(some.steps, 3);
    CHECK_OK(lz_fill_options(model, &quick, &err), &err);
    CHECK_I64(quick.steps, 4); /* of all that are distilled: fast.c */
    CHECK(quick.fast == (steps > 4));
    CHECK_OK(lz_plan_picture(model, &LZ_PICTURE_OPTIONS(.height = 64), &plan, &err), &err);
    CHECK_I64(plan.steps, steps);
    lz_model_close(model);
}

static void defaults(void) {
    lz_context *ctx = lz_open();
    enter_folder();
    check_defaults(ctx, "", 1024, 1024, 4); /* as published */
    check_defaults(ctx, ", \"num_inference_steps\": 7, \"width\": 96, \"height\": 80", 96, 80, 7);
    check_defaults(ctx, ", \"width\": 100, \"num_inference_steps\": null", 96, 1024, 4);
    lz_error err;
    lz_picture p;
    lz_model *model = open_with(ctx, ", \"num_inference_steps\": 2, \"width\": 48, \"height\": 32", &err);
    if (CHECK(model != NULL, "%s", err.text) && CHECK_OK(lz_generate(model, &p, &err, .prompt = "fox"), &err)) {
        CHECK_I64(p.image.width, 48);
        CHECK_I64(p.image.height, 32);
        CHECK_I64(p.steps, 2);
        lz_picture_free(&p);
    }
    lz_model_close(model);
    CHECK_STATUS(lz_fill_options(NULL, NULL, &err), LZ_BAD_ARGUMENT, &err);
    leave_folder();
    lz_close(ctx);
}

static void hostile_defaults(void) {
    static const char *const keys[] = {"num_inference_steps", "width", "height"};
    static const char *const values[] = {"0",     "-1",    "1000000", "9223372036854775807", "-9223372036854775808",
                                         "1.5e9", "256.0", "\"8\"",   "[256, 256]",          "true"};
    lz_context *ctx = lz_open();
    enter_folder();
    for (int k = 0; k < 3; k++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            char words[128], name[64];
            lz_error err;
            snprintf(words, sizeof words, ", \"%s\": %s", keys[k], values[v]);
            snprintf(name, sizeof name, "'%s'", keys[k]);
            lz_model *model = open_with(ctx, words, &err);
            CHECK(model == NULL, "%s was taken", words);
            CHECK_I64(err.status, LZ_BAD_FILE);
            CHECK_TEXT(err.text, "model_index.json: ");
            CHECK_TEXT(err.text, name);
            lz_model_close(model);
        }
    leave_folder();
    CHECK(lz_memory_info(ctx).active == 0, "%lld bytes are left", (long long)lz_memory_info(ctx).active);
    lz_close(ctx);
}

/* ---- what else gives the size, and the number of steps ----------------------------------------------------------- */

static void noise_gives_the_size(void) {
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_model *model = lz_model_open(ctx, SMALL, &err);
    lz_array *noise = lz_randn(ctx, LZ_DIMS(1, 128, 3, 5), 7);
    uint8_t bytes[3 * 32 * 32] = {0};
    lz_image image = {.width = 32, .height = 32, .pixels = bytes};
    lz_picture p;
    CHECK_OK(lz_generate(model, &p, &err, .noise = noise, .steps = 1), &err);
    CHECK_I64(p.image.width, 80);
    CHECK_I64(p.image.height, 48);
    lz_picture_free(&p);
    lz_picture_options both = LZ_PICTURE_OPTIONS(.noise = noise, .images = &image, .n_images = 1);
    CHECK_OK(lz_fill_options(model, &both, &err), &err); /* before the image: no other size would do */
    CHECK_I64(both.width, 80);
    CHECK_STATUS(lz_generate(model, &p, &err, .noise = noise, .width = 64), LZ_BAD_SHAPE, &err);
    CHECK_TEXT(err.text, "this picture needs [1, 128, 3, 4]");
    const lz_dims wrong[] = {LZ_NONE,
                             LZ_DIMS(128, 3, 5),
                             LZ_DIMS(2, 128, 3, 5),
                             LZ_DIMS(1, 64, 3, 5),
                             LZ_DIMS(1, 128, 0, 5),
                             LZ_DIMS(1, 128, INT64_MAX / 1024, 1),
                             LZ_DIMS(1, 128, 1, 1 << 14)};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        lz_array *bad = lz_full(ctx, wrong[i], LZ_F32, 1);
        lz_picture_options o = LZ_PICTURE_OPTIONS(.noise = bad);
        if (lz_check(bad, &err) != LZ_OK) continue; /* larger than an array may be */
        CHECK_STATUS(lz_fill_options(model, &o, &err), LZ_BAD_SHAPE, &err);
    }
    lz_picture_options large = LZ_PICTURE_OPTIONS(.noise = lz_full(ctx, LZ_DIMS(1, 128, 1, 513), LZ_F32, 1));
    CHECK_STATUS(lz_fill_options(model, &large, &err), LZ_BAD_ARGUMENT, &err); /* 8208 pixels */
    lz_picture_options poisoned = LZ_PICTURE_OPTIONS(.noise = lz_reshape(noise, LZ_DIMS(7)));
    CHECK_STATUS(lz_fill_options(model, &poisoned, &err), LZ_BAD_SHAPE, &err);
    lz_model_close(model);
    lz_close(ctx);
}

typedef struct watched {
    int steps, last, calls;
} watched;

static bool watch(void *user, const lz_progress *now) {
    watched *w = user;
    if (strcmp(now->stage, "denoise") != 0) return true;
    w->calls += now->step != w->last;
    w->last = now->step;
    w->steps = now->steps;
    return true;
}

/* A strength leaves out the first steps of the schedule: what is told counts those that are left. */
static void strength_counts_the_steps_it_runs(void) {
    static const struct {
        double strength;
        int steps, run;
    } cases[] = {{0.5, 4, 2}, {0.3, 4, 2}, {1, 4, 4}, {0.001, 4, 1}, {0, 3, 3}};
    lz_context *ctx = lz_open();
    lz_error err = {0};
    lz_model *model = lz_model_open(ctx, SMALL, &err);
    lz_picture first, p;
    lz_picture_plan plan, whole;
    CHECK_OK(lz_generate(model, &first, &err, .width = 64, .height = 64, .steps = 1), &err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        watched w = {.last = -1};
        lz_picture_options o = LZ_PICTURE_OPTIONS(.images = &first.image, .n_images = 1, .steps = cases[i].steps,
                                                  .strength = cases[i].strength, .watch = watch, .user = &w);
        if (!CHECK_OK(lz_generate_with(model, &o, &p, &err), &err)) continue;
        CHECK_I64(p.steps, cases[i].run);
        CHECK_I64(w.calls, cases[i].run);
        CHECK_I64(w.last, cases[i].run - 1);
        CHECK_I64(w.steps, cases[i].run);
        CHECK(p.step_seconds[cases[i].run - 1] > 0 && p.step_seconds[cases[i].run] == 0);
        CHECK_OK(lz_plan_picture(model, &o, &plan, &err), &err);
        CHECK_I64(plan.steps, cases[i].run);
        lz_picture_free(&p);
    }
    lz_picture_options o = LZ_PICTURE_OPTIONS(.images = &first.image, .n_images = 1, .strength = 1);
    CHECK_OK(lz_plan_picture(model, &o, &whole, &err), &err);
    o.strength = 0.5;
    CHECK_OK(lz_plan_picture(model, &o, &plan, &err), &err);
    double half = plan.stages[2].flops / whole.stages[2].flops; /* what comes before the loop is the same */
    CHECK(plan.n_stages == 4 && half > 0.5 && half < 0.55, "%g", half);
    lz_picture_free(&first);
    lz_model_close(model);
    lz_close(ctx);
}

TEST_MAIN({"goldens", goldens}, {"defaults", defaults}, {"hostile_defaults", hostile_defaults},
          {"noise_gives_the_size", noise_gives_the_size},
          {"strength_counts_the_steps_it_runs", strength_counts_the_steps_it_runs})
