/* test_samplers.c: samplers and schedules against tests/data/samplers.json (tools/oracle/samplers.py: diffusers where it
 * has them, otherwise float64): on an analytic field, and with a small model; orders of convergence; options. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "pipeline/job.h"

#define DATA LZ_SOURCE_DIR "/tests/data"

static json_t *table(const char *key) { /* to be freed */
    json_t *all = json_load_file(DATA "/samplers.json", 0, NULL), *rows = json_incref(json_object_get(all, key));
    CHECK(json_array_size(rows) > 3, "%s", key);
    json_decref(all);
    return rows;
}

static const char *text_of(const json_t *row, const char *key) { return json_string_value(json_object_get(row, key)); }
static double real_of(const json_t *row, const char *key) { return json_number_value(json_object_get(row, key)); }
static double at(const json_t *list, size_t i) { return json_number_value(json_array_get(list, i)); }

/* ---- an analytic field ------------------------------------------------------------------------------------------- */

/* v(x, sigma) = sin(1.3 x + 0.7 sigma) + 0.4 x (1 - sigma) - 0.2; user: the sigmas of the passes */
static lz_array *field(const lz_sampler_step *s, lz_array *x, lz_array *step_index) {
    lz_array *sigma = lz_take((lz_array *)s->user, step_index, 0);
    lz_array *wave = lz_sin(lz_add(lz_mul(x, 1.3), lz_mul(sigma, 0.7)));
    lz_array *slope = lz_mul(lz_mul(x, 0.4), lz_add(lz_mul(sigma, -1.0), 1.0));
    return lz_sub(lz_add(wave, slope), 0.2);
}

/* Runs the steps of a sampler from x [n], with a noise of 0.5; the result replaces x. Returns the number of passes. */
static int run_field(lz_context *ctx, const lz_sampler *sampler, const float *schedule, int steps, int first, float *x,
                     int n) {
    enum { MOST = 4096 };
    static float sigmas[MOST + 1], weights[MOST * 20];
    lz_error err = {.status = LZ_OK};
    int passes = lz_sampler_passes(sampler, steps, steps), n_weights = lz_sampler_weights(sampler);
    int begun = lz_sampler_passes(sampler, first, steps);
    lz_scope *scope = lz_scope_begin(ctx, "field");
    CHECK(passes <= MOST && n_weights <= 20);
    CHECK(lz_sampler_fill(sampler, schedule, steps, first, sigmas, weights), "%s", sampler->name);
    lz_array *levels = lz_from(ctx, LZ_DIMS(passes + 1), LZ_F32, sigmas);
    lz_array *now = lz_from(ctx, LZ_DIMS(n, 1), LZ_F32, x), *states[LZ_MAX_STATES] = {NULL};
    lz_sampler_step step = {.sampler = sampler, .velocity = field, .user = levels, .states = states};
    step.sigma_drops = lz_sub(lz_slice(levels, 0, 1, passes + 1, 1), lz_slice(levels, 0, 0, passes, 1));
    if (n_weights) step.weights = lz_from(ctx, LZ_DIMS(passes, n_weights), LZ_F32, weights);
    if (sampler->noisy) step.noise = lz_full(ctx, LZ_DIMS(passes - begun, n, 1), LZ_F32, 0.5);
    for (int i = 0; i < sampler->n_states; i++) states[i] = lz_mul(now, 0.0);
    for (int64_t pass = begun; pass < passes; pass++) {
        lz_array *next[LZ_MAX_STATES] = {NULL};
        step.x = now;
        step.step_index = lz_from(ctx, LZ_DIMS(1), LZ_I64, &pass);
        now = sampler->step(&step, next);
        for (int i = 0; i < sampler->n_states; i++) CHECK_OK(lz_eval(states[i] = next[i], &err), &err);
        CHECK_OK(lz_eval(now, &err), &err);
    }
    CHECK_OK(lz_copy(now, x, (int64_t)sizeof *x * n, &err), &err);
    lz_scope_end(scope);
    return passes - begun;
}

static void fields(void) {
    lz_context *ctx = lz_open();
    json_t *rows = table("fields"), *row;
    size_t i;
    bool seen[LZ_SAMPLERS] = {false};
    json_array_foreach(rows, i, row) {
        const lz_sampler *sampler = lz_sampler_named(text_of(row, "sampler"));
        const json_t *list = json_object_get(row, "sigmas"), *want = json_object_get(row, "x");
        float sigmas[64], x[] = {-2, 0.5F, 1.7F};
        int steps = (int)json_array_size(list) - 1, first = (int)real_of(row, "first");
        if (!CHECK(sampler != NULL, "%s", text_of(row, "sampler"))) continue;
        seen[sampler - lz_samplers] = true;
        for (int k = 0; k <= steps; k++) sigmas[k] = (float)at(list, (size_t)k);
        run_field(ctx, sampler, sigmas, steps, first, x, 3);
        for (size_t k = 0; k < 3; k++)
            CHECK(fabs((double)x[k] - at(want, k)) < 1e-5, "%s, %d steps from %d: %.7f, and %.7f by the oracle",
                  sampler->name, steps, first, (double)x[k], at(want, k));
    }
    for (int k = 0; k < LZ_SAMPLERS; k++) CHECK(seen[k], "%s", lz_samplers[k].name);
    json_decref(rows);
    lz_close(ctx);
}

/* The error at the end of a part of the schedule, from 0.9 to 0.3, with n steps; the last sigma is not 0, where some
 * samplers fall back to Euler. The exact value is that of Heun with many steps, in double precision. */
static double exact_end(double x, double from, double to) {
    enum { N = 20000 };
    for (int i = 0; i < N; i++) {
        double a = from + (to - from) * i / N, b = from + (to - from) * (i + 1) / N, h = b - a;
        double v = sin(1.3 * x + 0.7 * a) + 0.4 * x * (1 - a) - 0.2, y = x + h * v;
        x += h / 2 * (v + sin(1.3 * y + 0.7 * b) + 0.4 * y * (1 - b) - 0.2);
    }
    return x;
}

/* The weights in double precision, applied in double precision: float32 would hide the order. */
static double field_error(const lz_sampler *s, int n) {
    enum { MOST = 256 };
    double sigmas[MOST + 2], x = 0.5, states[LZ_MAX_STATES] = {0};
    for (int i = 0; i <= n; i++) sigmas[i] = 0.9 + (0.3 - 0.9) * i / n;
    sigmas[n + 1] = 0; /* the last step, which is not run */
    for (int step = 0; step < n; step++)
        for (int pass = 0; pass < 1 + (s->second_sigma != NULL); pass++) {
            double a = sigmas[step], sigma = pass ? s->second_sigma(a, sigmas[step + 1]) : a;
            double v = sin(1.3 * x + 0.7 * sigma) + 0.4 * x * (1 - sigma) - 0.2;
            lz_weights_of_pass w = {.at = {{0}}};
            s->weigh(&(lz_schedule_step){sigmas, n + 1, step, 0, pass}, &w);
            double sum[1 + LZ_MAX_STATES] = {0};
            for (int row = 0; row <= s->n_states; row++) {
                sum[row] = w.at[row][0] * x + w.at[row][1] * v;
                for (int i = 0; i < s->n_states; i++) sum[row] += w.at[row][2 + i] * states[i];
            }
            x = sum[0];
            for (int i = 0; i < s->n_states; i++) states[i] = sum[1 + i];
        }
    return fabs(x - exact_end(0.5, 0.9, 0.3));
}

static void orders(void) {
    lz_context *ctx = lz_open();
    for (int i = 0; i < LZ_SAMPLERS; i++) {
        const lz_sampler *s = &lz_samplers[i];
        if (s->noisy || !s->weigh) continue;
        double order = log2(field_error(s, 64) / field_error(s, 128));
        CHECK(order > 1.8 && order < 3.2, "%s is of order %.2f", s->name, order);
        printf("    %-14s order %.2f\n", s->name, order);
    }
    /* Euler, whose step has no weights: errors are large enough for float32. */
    double errors[2];
    for (int k = 0; k < 2; k++) {
        float sigmas[33], x = 0.5F;
        int n = 16 << k;
        for (int i = 0; i <= n; i++) sigmas[i] = (float)(0.9 + (0.3 - 0.9) * i / n);
        run_field(ctx, &lz_samplers[LZ_SAMPLER_EULER], sigmas, n, 0, &x, 1);
        errors[k] = fabs((double)x - exact_end(0.5, 0.9, 0.3));
    }
    double order = log2(errors[0] / errors[1]);
    CHECK(order > 0.85 && order < 1.15, "euler is of order %.2f", order);
    lz_close(ctx);
}

/* ---- schedules --------------------------------------------------------------------------------------------------- */

static void schedules(void) {
    json_t *rows = table("schedules"), *row;
    size_t i;
    json_array_foreach(rows, i, row) {
        float got[LZ_MAX_STEPS + 1];
        double worst = 0, shift = real_of(row, "shift");
        int steps = (int)real_of(row, "steps"), kind = lz_schedule_named(text_of(row, "schedule"));
        lz_schedule s = {.dynamic = json_is_true(json_object_get(row, "dynamic")), .shift = shift};
        const json_t *want = json_object_get(row, "sigmas");
        if (!CHECK(kind > LZ_SCHEDULE_AUTO, "%s", text_of(row, "schedule"))) continue;
        int n = lz_schedule_list(&s, kind, log(shift), steps, got);
        if (!CHECK_I64(n + 1, (int64_t)json_array_size(want))) continue;
        for (int k = 0; k <= n; k++) worst = fmax(worst, fabs((double)got[k] - at(want, (size_t)k)));
        CHECK(worst < 2e-7, "%s, shift %g, %d steps: %g", text_of(row, "schedule"), shift, steps, worst);
    }
    json_decref(rows);
    /* Every schedule of the table with every number of steps falls, and a sampler of two passes can use it. */
    static float got[LZ_MAX_STEPS + 1], sigmas[2 * LZ_MAX_STEPS + 1], weights[2 * LZ_MAX_STEPS * 20];
    for (int kind = 1; lz_schedule_name(kind); kind++)
        for (int steps = 1; steps <= LZ_MAX_STEPS; steps += steps < 12 ? 1 : 247) {
            lz_schedule s = {.shift = 3};
            int n = lz_schedule_list(&s, kind, 0, steps, got);
            if (!CHECK(n > 0 && n <= steps, "%s, %d steps", lz_schedule_name(kind), steps)) continue;
            for (int k = 0; k < LZ_SAMPLERS && steps < 500; k++)
                CHECK(lz_sampler_fill(&lz_samplers[k], got, n, 0, sigmas, weights), "%s over %s, %d steps",
                      lz_samplers[k].name, lz_schedule_name(kind), steps);
        }
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

static void pictures(void) {
    lz_context *ctx = lz_open();
    lz_error err = {.status = LZ_OK};
    json_t *rows = table("pictures"), *row;
    size_t i;
    lz_model *m = lz_model_open(ctx, DATA "/flux2/A", &err);
    if (CHECK(m != NULL, "%s", err.text)) json_array_foreach(rows, i, row) {
            lz_picture p;
            const char *name = text_of(row, "sampler");
            const json_t *want = json_object_get(row, "latents");
            if (!CHECK_OK(lz_generate(m, &p, &err, .prompt = "a red fox", .width = 32, .height = 32,
                                      .steps = (int)real_of(row, "steps"), .seed = (uint64_t)real_of(row, "seed"),
                                      .sampler = name),
                          &err))
                continue;
            const float *got = lz_data(p.latents, &err);
            double worst = 0, largest = 0;
            CHECK_I64(lz_size(p.latents), (int64_t)json_array_size(want));
            for (size_t k = 0; got && k < json_array_size(want); k++) {
                worst = fmax(worst, fabs((double)got[k] - at(want, k)));
                largest = fmax(largest, fabs(at(want, k)));
            }
            CHECK(got && worst < 1e-5 * fmax(1, largest), "%s: latents differ by %g of %g", name, worst, largest);
            printf("    %-14s %.1e of %.1f\n", name, worst, largest);
            lz_picture_free(&p);
        }
    lz_model_close(m);
    json_decref(rows);
    lz_close(ctx);
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

typedef struct seen {
    int passes, steps, previews;
} seen;

static bool look(void *user, const lz_progress *now) {
    seen *s = user;
    if (strcmp(now->stage, "denoise") == 0 && now->step + 1 > s->passes) s->passes = now->step + 1;
    s->steps = now->steps;
    s->previews += now->preview != NULL;
    return true;
}

/* Passes are counted as they are: in the plan, in the operations and in the progress. */
static void passes(void) {
    lz_context *ctx = lz_open();
    lz_error err = {.status = LZ_OK};
    lz_model *m = lz_model_open(ctx, DATA "/flux2/B", &err);
    lz_image start = {0};
    CHECK_OK(lz_image_read(ctx, DATA "/flux2/ref1.png", &start, &err), &err);
    double euler = 0;
    for (int i = 0; CHECK(m != NULL, "%s", err.text) && lz_sampler_name(i); i++)
        for (int from = 0; from < 2; from++) {
            bool twice = lz_samplers[i].second_sigma;
            int steps = from ? 2 : 4, want = twice ? 2 * steps - 1 : steps;
            seen s = {0};
            lz_picture_plan plan;
            lz_picture p;
            lz_picture_options o = LZ_PICTURE_OPTIONS(.prompt = "a red fox", .width = 32, .height = 32, .steps = 4,
                                                      .sampler = lz_sampler_name(i), .watch = look, .user = &s,
                                                      .preview = LZ_PREVIEW_FULL);
            if (from) o.images = &start, o.n_images = 1, o.strength = 0.5;
            CHECK_OK(lz_plan_picture(m, &o, &plan, &err), &err);
            CHECK(plan.steps == steps && plan.passes == want, "%s: %d steps, %d passes", o.sampler, plan.steps,
                  plan.passes);
            double flops = plan.stages[plan.n_stages - 2].flops / (double)want;
            if (!i && !from) euler = flops;
            CHECK(from || fabs(flops / euler - 1) < 0.15, "%s: %g operations a pass, and %g with euler", o.sampler,
                  flops, euler);
            if (!CHECK_OK(lz_generate_with(m, &o, &p, &err), &err)) continue;
            CHECK(s.passes == want && s.steps == want && s.previews == steps, "%s: %d of %d passes, %d previews",
                  o.sampler, s.passes, s.steps, s.previews);
            CHECK_I64(p.steps, steps);
            lz_picture_free(&p);
        }
    lz_image_free(ctx, &start);
    lz_model_close(m);
    lz_close(ctx);
}

/* A preview is the estimate of the clean picture, also after a step that added noise: the first is the same with all
 * samplers, and the last is the picture. */
enum { PIXELS = 3 * 32 * 32 };
typedef struct frames {
    int n;
    uint8_t first[PIXELS], last[PIXELS];
} frames;

static bool keep_previews(void *user, const lz_progress *now) {
    frames *f = user;
    if (!now->preview) return true;
    memcpy(f->n++ ? f->last : f->first, now->preview->pixels, PIXELS);
    return true;
}

static void previews(void) {
    lz_context *ctx = lz_open();
    lz_error err = {.status = LZ_OK};
    lz_model *m = lz_model_open(ctx, DATA "/flux2/B", &err);
    frames euler = {0};
    for (int i = 0; lz_sampler_name(i) && CHECK(m != NULL, "%s", err.text); i++) {
        const char *name = lz_sampler_name(i);
        frames f = {0};
        lz_picture p;
        int most = 0;
        if (!CHECK_OK(lz_generate(m, &p, &err, .prompt = "a red fox", .width = 32, .height = 32, .steps = 3,
                                  .sampler = name, .preview = LZ_PREVIEW_FULL, .watch = keep_previews, .user = &f),
                      &err))
            continue;
        CHECK(memcmp(f.last, p.image.pixels, PIXELS) == 0, "%s", name);
        if (!i) euler = f;
        for (int k = 0; k < PIXELS; k++)
            most = abs(f.first[k] - euler.first[k]) > most ? abs(f.first[k] - euler.first[k]) : most;
        CHECK(f.n == 3 && most <= 1, "%s: the first of %d previews differs by %d", name, f.n, most);
        lz_picture_free(&p);
    }
    lz_model_close(m);
    lz_close(ctx);
}

static void refused(void) {
    static const struct {
        const char *model, *sampler, *schedule;
        double shift;
        const char *words;
    } cases[] = {
        {"flux2/A", "eler", NULL, 0, "no sampler 'eler'; there are euler, heun, dpm++2m"},
        {"flux2/A", NULL, "simpel", 0, "no schedule 'simpel'; there are auto, simple"},
        {"flux2/A", NULL, NULL, -1, "a shift of -1"},
        {"flux2/A", NULL, NULL, 101, "a shift of 101"},
        {"flux3/D", "heun", NULL, 0, "distilled for the sampler euler, and cannot use heun"},
        {"flux3/D", "euler", "simple", 3, NULL},
        {"qwen21/T", "heun", NULL, 0, "has 8 fixed sigmas, one for each step, and heun needs two"},
        {"qwen21/T", "unipc", NULL, 0, NULL},
        {"qwen21/T", NULL, "beta", 0, "so it takes no other schedule or shift"},
        {"qwen21/T", NULL, NULL, 3, "so it takes no other schedule or shift"},
        {"flux2/A", "euler_a", "beta57", 3, NULL},
        {"flux2/A", "dpm++2m", "auto", 0, NULL},
    };
    lz_context *ctx = lz_open();
    lz_error err = {.status = LZ_OK};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char folder[200];
        snprintf(folder, sizeof folder, DATA "/%s", cases[i].model);
        lz_model *m = lz_model_open(ctx, folder, &err);
        if (!CHECK(m != NULL, "%s", err.text)) continue;
        lz_picture_options o = LZ_PICTURE_OPTIONS(.sampler = cases[i].sampler, .schedule = cases[i].schedule,
                                                  .shift = cases[i].shift);
        if (cases[i].words) {
            CHECK_STATUS(lz_fill_options(m, &o, &err), LZ_BAD_ARGUMENT, &err);
            CHECK_TEXT(err.text, cases[i].words);
        } else
            CHECK_OK(lz_fill_options(m, &o, &err), &err);
        lz_model_close(m);
    }
    lz_model *m = lz_model_open(ctx, DATA "/flux2/A", &err);
    if (!CHECK(m != NULL, "%s", err.text)) return;
    lz_picture_options plain = LZ_PICTURE_OPTIONS(.prompt = "a");
    CHECK_OK(lz_fill_options(m, &plain, &err), &err);
    CHECK(!strcmp(plain.sampler, "euler") && !strcmp(plain.schedule, "auto") && plain.shift == 0);
    lz_model_close(m);
    lz_close(ctx);
}

/* The table of docs/quality.md. */
static void fast(void) {
    static const struct {
        const char *model;
        int own, steps; /* without and with fast */
    } cases[] = {
        {DATA "/flux2/A", 4, 4},
        {DATA "/flux2/C", 50, 20},
        {DATA "/flux3/D", 16, 16},
        {DATA "/qwen/Q", 50, 20},
        {DATA "/qwen/P", 40, 20},
        {DATA "/qwen/L", 8, 8},
        {DATA "/qwen21/B", 40, 40},
        {DATA "/qwen21/T", 8, 8},
        {DATA "/zimage/T", 8, 8},
        {DATA "/zimage/B", 50, 28},
        {LZ_SOURCE_DIR "/models/demo", 4, 4},
    };
    lz_context *ctx = lz_open();
    lz_error err = {.status = LZ_OK};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lz_model *m = lz_model_open(ctx, cases[i].model, &err);
        if (!CHECK(m != NULL, "%s", err.text)) continue;
        uint8_t grey[32 * 32 * 3] = {0};
        lz_image image = {.width = 32, .height = 32, .pixels = grey};
        int n = lz_model_about(m).least_images;
        lz_picture_options own = LZ_PICTURE_OPTIONS(.prompt = "a", .images = &image, .n_images = n), quick = own,
                           given = own, other = own;
        quick.fast = given.fast = other.fast = true;
        given.steps = 8;
        CHECK_OK(lz_fill_options(m, &own, &err), &err);
        CHECK_OK(lz_fill_options(m, &quick, &err), &err);
        CHECK_OK(lz_fill_options(m, &given, &err), &err);
        CHECK(own.steps == cases[i].own && !own.fast, "%s: %d steps", cases[i].model, own.steps);
        CHECK(quick.steps == cases[i].steps, "%s: %d steps", cases[i].model, quick.steps);
        CHECK(quick.fast == (cases[i].steps < cases[i].own), "%s: fast is %d", cases[i].model, quick.fast);
        CHECK(!strcmp(quick.sampler, "euler") && !strcmp(quick.schedule, "auto") && quick.shift == 0);
        CHECK(given.steps == 8 && !given.fast, "%s: %d steps", cases[i].model, given.steps);
        bool turbo = strstr(cases[i].model, "qwen21/T"), flow_map = strstr(cases[i].model, "flux3");
        if (!turbo && !flow_map) {
            other.sampler = "unipc";
            other.schedule = "beta";
            CHECK_OK(lz_fill_options(m, &other, &err), &err);
            CHECK(!strcmp(other.sampler, "unipc") && !strcmp(other.schedule, "beta"));
            CHECK(other.steps == cases[i].steps, "%s: %d steps", cases[i].model, other.steps);
        }
        lz_model_close(m);
    }
    lz_close(ctx);
}

TEST_MAIN({"fields", fields}, {"orders", orders}, {"schedules", schedules}, {"pictures", pictures}, {"passes", passes},
          {"previews", previews}, {"refused", refused}, {"fast", fast})
