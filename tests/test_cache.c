/* test_cache.c: skipping evaluations of the model (pipeline/cache.h): which passes are computed, forecasts of fields that
 * are linear in sigma, pictures against tests/data/skips.json (tools/oracle/skips.py: diffusers in float64, with the
 * forecasts written down there again), and options. */
#include <jansson.h>
#include <math.h>

#include "check.h"
#include "pipeline/job.h"

#define DATA LZ_SOURCE_DIR "/tests/data"
enum { MOST = 1999 };

static float skips[MOST * LZ_SKIP_COLUMNS];
static const float *row_of(int pass) { return skips + (ptrdiff_t)pass * LZ_SKIP_COLUMNS; }

/* Sigmas of n passes, shifted by 3; pairs: two passes at a time have the same sigma, as in heun. */
static void make_sigmas(float *to, int n, bool pairs) {
    for (int i = 0; i < n; i++) {
        double u = 1 - (double)(pairs ? (i + 1) / 2 : i) / n;
        to[i] = (float)(3 * u / (1 + 2 * u));
    }
}

/* ---- which passes ------------------------------------------------------------------------------------------------ */

static void placement(void) {
    static float sigmas[MOST];
    for (int n = 1; n <= 120; n++)
        for (int first = 0; first < n; first += 7)
            for (int tenth = 0; tenth <= 8; tenth++) {
                int runs = n - first, wanted = lz_cache_count(tenth / 10.0, runs), forecast = 0;
                int run = 0, longest = 0, shortest = n;
                make_sigmas(sigmas, n, false);
                lz_skips_fill(&(lz_skip_wish){.n = n, .first = first, .forecast = wanted, .every = 1}, sigmas, skips);
                for (int i = first; i < n; i++) {
                    bool computed = row_of(i)[LZ_SKIP_PROMPT] > 0;
                    if (computed && i > first && run < shortest) shortest = run;
                    run = computed ? 0 : run + 1;
                    forecast += !computed;
                    longest = run > longest ? run : longest;
                }
                CHECK(forecast == wanted && wanted <= lz_cache_most(runs), "%d of %d passes, %d wanted", forecast, runs,
                      wanted);
                CHECK(row_of(first)[LZ_SKIP_PROMPT] > 0 && row_of(n - 1)[LZ_SKIP_PROMPT] > 0, "%d passes", n);
                CHECK(longest <= 5 && (!wanted || longest <= shortest + 1), "%d of %d: runs of %d to %d", wanted, runs,
                      shortest, longest);
                for (int i = 0; i < first * LZ_SKIP_COLUMNS; i++) CHECK(skips[i] == 0);
            }
    CHECK_I64(lz_cache_count(0, 50), 0);
    CHECK_I64(lz_cache_count(0.5, 50), 25);
    CHECK_I64(lz_cache_count(0.8, 4), 0);
    CHECK_I64(lz_cache_count(0.8, 50), 40);
    CHECK(lz_cache_auto(50) == 33 && lz_cache_auto(20) == 8 && lz_cache_auto(9) == 0 && lz_cache_auto(1) == 0);
    for (int n = 1; n < 200; n++) { /* a share that was recorded is valid, and gives the same passes again */
        CHECK(lz_cache_auto(n) <= lz_cache_most(n) && lz_cache_auto(n) <= lz_cache_auto(n + 1));
        for (int k = 0; k <= lz_cache_most(n); k++) CHECK_I64(lz_cache_count((double)k / n, n), k);
        CHECK((double)lz_cache_most(n) / n <= 0.8, "%d of %d passes", lz_cache_most(n), n);
    }
}

/* ---- forecasts --------------------------------------------------------------------------------------------------- */

/* A velocity a + b sigma, or clean latents a + b sigma of a sampler that adds noise, is forecast exactly. */
static void linear_fields(void) {
    enum { N = 40 };
    float sigmas[N];
    for (int noisy = 0; noisy < 2; noisy++)
        for (int pairs = 0; pairs < 2; pairs++) {
            double kept[LZ_HISTORY] = {0}, differences[LZ_HISTORY] = {0}, a = 0.7, b = -1.9, worst = 0;
            bool guided[N];
            int n = 0;
            for (int i = 0; i < N; i++) guided[i] = i >= 3 && i < 33;
            make_sigmas(sigmas, N, pairs);
            lz_skips_fill(&(lz_skip_wish){.n = N, .forecast = 24, .guided = guided, .every = 2, .noisy = noisy}, sigmas,
                          skips);
            for (int i = 0; i < N; i++) {
                const float *row = row_of(i);
                double sigma = (double)sigmas[i], x = sin(i), value = a + b * sigma;
                double v = noisy ? (x - value) / sigma : value, forecast = x * (double)row[LZ_SKIP_X], d = 0;
                for (int k = 0; k < LZ_HISTORY; k++) {
                    forecast += kept[k] * (double)row[LZ_SKIP_HISTORY + k];
                    d += differences[k] * (double)row[LZ_SKIP_DIFFERENCES + k];
                }
                CHECK((row[LZ_SKIP_GUIDED] > 0) == guided[i]);
                if (!(row[LZ_SKIP_PROMPT] > 0) && n > 2) worst = fmax(worst, fabs(forecast - v) * (noisy ? sigma : 1));
                if (guided[i] && i > 16 && !(row[LZ_SKIP_NEGATIVE] > 0)) worst = fmax(worst, fabs(d - value));
                if (row[LZ_SKIP_PROMPT] > 0) {
                    n++;
                    memmove(kept + 1, kept, (LZ_HISTORY - 1) * sizeof *kept);
                    kept[0] = x * (double)row[LZ_SKIP_KEEP_X] + v * (double)row[LZ_SKIP_KEEP_V];
                }
                if (row[LZ_SKIP_NEGATIVE] > 0) {
                    CHECK(row[LZ_SKIP_PROMPT] > 0 && guided[i]);
                    memmove(differences + 1, differences, (LZ_HISTORY - 1) * sizeof *differences);
                    differences[0] = value;
                }
            }
            CHECK(worst < 1e-5, "noisy %d, pairs %d: %g", noisy, pairs, worst);
            CHECK(n == 16 || n == 17, "%d computed", n); /* one more, if guidance begins in a pass that is forecast */
        }
}

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

static const char *text_of(const json_t *row, const char *key) { return json_string_value(json_object_get(row, key)); }
static double real_of(const json_t *row, const char *key) { return json_number_value(json_object_get(row, key)); }

static lz_picture_options options_of(const json_t *row) {
    return LZ_PICTURE_OPTIONS(.prompt = "a red fox", .width = 32, .height = 32, .steps = (int)real_of(row, "steps"),
                              .seed = (uint64_t)real_of(row, "seed"), .sampler = text_of(row, "sampler"),
                              .cache = real_of(row, "cache"), .guidance = real_of(row, "guidance"),
                              .guidance_from = real_of(row, "from"), .guidance_to = real_of(row, "to"),
                              .guidance_every = (int)real_of(row, "every"));
}

static void pictures(void) {
    json_t *rows = json_load_file(DATA "/skips.json", 0, NULL), *row;
    size_t i;
    CHECK(json_array_size(rows) > 10);
    json_array_foreach(rows, i, row) {
        char folder[300];
        float first[256];
        const json_t *want = json_object_get(row, "latents");
        snprintf(folder, sizeof folder, DATA "/flux2/%s", text_of(row, "model"));
        for (int threads = 1; threads <= (i % 4 ? 1 : 2); threads++) { /* the same bits */
            lz_error err = {.status = LZ_OK};
            lz_context *ctx = lz_open(.threads = threads);
            lz_model *m = lz_model_open(ctx, folder, &err);
            lz_picture_options o = options_of(row);
            lz_picture p = {0};
            lz_picture_plan plan = {0};
            if (CHECK(m != NULL, "%s", err.text)) CHECK_OK(lz_plan_picture(m, &o, &plan, &err), &err);
            if (m && CHECK_OK(lz_generate_with(m, &o, &p, &err), &err)) {
                const float *got = lz_data(p.latents, &err);
                double worst = 0, largest = 0;
                CHECK_I64(lz_size(p.latents), (int64_t)json_array_size(want));
                for (size_t k = 0; got && k < json_array_size(want); k++) {
                    double to = json_number_value(json_array_get(want, k));
                    worst = fmax(worst, fabs((double)got[k] - to));
                    largest = fmax(largest, fabs(to));
                }
                CHECK(got && worst < 5e-5 * fmax(1, largest), "case %d, %s: latents differ by %g of %g", (int)i,
                      o.sampler, worst, largest);
                CHECK(p.passes == (int)real_of(row, "passes") && plan.passes == p.passes);
                CHECK(p.evaluations == (int)real_of(row, "evaluations"), "case %d, %s: %d evaluations", (int)i,
                      o.sampler, p.evaluations);
                CHECK(plan.evaluations == p.evaluations && plan.forecast == p.forecast);
                if (threads == 1) printf("    %-14s %.1e of %.1f\n", o.sampler, worst, largest);
                size_t bytes = sizeof first < (size_t)lz_size(p.latents) * sizeof *got
                                   ? sizeof first
                                   : (size_t)lz_size(p.latents) * sizeof *got;
                CHECK(got && (threads == 1 || !memcmp(first, got, bytes)), "case %d: two threads", (int)i);
                if (got) memcpy(first, got, bytes);
            }
            lz_picture_free(&p);
            lz_model_close(m);
            lz_close(ctx);
        }
    }
    json_decref(rows);
}

/* Options that skip nothing give the bits of a picture without them, and the plan shrinks with the evaluations. */
static void nothing_skipped(void) {
    const lz_picture_options wishes[] = {
        LZ_PICTURE_OPTIONS(.cache = 0),          LZ_PICTURE_OPTIONS(.cache = 0.05), /* rounds to no pass */
        LZ_PICTURE_OPTIONS(.guidance_to = 1),    LZ_PICTURE_OPTIONS(.guidance_every = 1),
        LZ_PICTURE_OPTIONS(.cache = 0.5),        LZ_PICTURE_OPTIONS(.guidance_to = 0.5),
        LZ_PICTURE_OPTIONS(.guidance_every = 4),
    };
    enum { SAME = 4, WISHES = sizeof wishes / sizeof *wishes };
    static const int evaluations[WISHES] = {16, 16, 16, 16, 8, 12, 10};
    lz_error err = {.status = LZ_OK};
    lz_context *ctx = lz_open();
    lz_model *m = lz_model_open(ctx, DATA "/flux2/C", &err);
    lz_picture plain = {0};
    double flops = 0;
    for (int i = 0; i < WISHES && CHECK(m != NULL, "%s", err.text); i++) {
        lz_picture_options o = wishes[i];
        lz_picture_plan plan;
        lz_picture p;
        o.prompt = "a red fox", o.width = 32, o.height = 32, o.steps = 8, o.guidance = 4;
        CHECK_OK(lz_plan_picture(m, &o, &plan, &err), &err);
        if (!i) flops = plan.stages[1].flops;
        CHECK_I64(plan.evaluations, evaluations[i]);
        double share = plan.stages[1].flops / flops;
        CHECK(fabs(share - evaluations[i] / 16.0) < 0.1, "wish %d: %g of the operations", i, share);
        if (!CHECK_OK(lz_generate_with(m, &o, &p, &err), &err)) continue;
        bool same = !i || !memcmp(lz_data(p.latents, &err), lz_data(plain.latents, &err),
                                  (size_t)lz_size(p.latents) * sizeof(float));
        CHECK(same == (i < SAME), "wish %d", i);
        CHECK_I64(p.evaluations, evaluations[i]);
        if (!i)
            plain = p;
        else
            lz_picture_free(&p);
    }
    lz_picture_free(&plain);
    lz_model_close(m);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static void refused(void) {
    const struct {
        lz_picture_options options;
        const char *words;
    } cases[] = {
        {LZ_PICTURE_OPTIONS(.cache = -0.5), "a cache of -0.5"},
        {LZ_PICTURE_OPTIONS(.cache = 0.81), "a cache of 0.81"},
        {LZ_PICTURE_OPTIONS(.cache = NAN), "a cache of"},
        {LZ_PICTURE_OPTIONS(.guidance_from = 0.5, .guidance_to = 0.5), "guidance from 0.5 to 0.5"},
        {LZ_PICTURE_OPTIONS(.guidance_from = 0.5), "guidance from 0.5 to 0"},
        {LZ_PICTURE_OPTIONS(.guidance_from = -0.1, .guidance_to = 0.5), "guidance from -0.1 to 0.5"},
        {LZ_PICTURE_OPTIONS(.guidance_to = 1.1), "guidance from 0 to 1.1"},
        {LZ_PICTURE_OPTIONS(.guidance_to = NAN), "guidance from 0 to"},
        {LZ_PICTURE_OPTIONS(.guidance_every = -1), "every -1th pass"},
        {LZ_PICTURE_OPTIONS(.guidance_every = 1001), "every 1001th pass"},
    };
    lz_error err = {.status = LZ_OK};
    lz_context *ctx = lz_open();
    lz_model *m = lz_model_open(ctx, DATA "/flux2/C", &err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases && CHECK(m != NULL, "%s", err.text); i++) {
        lz_picture_options o = cases[i].options;
        CHECK_STATUS(lz_fill_options(m, &o, &err), LZ_BAD_ARGUMENT, &err);
        CHECK_TEXT(err.text, cases[i].words);
    }
    lz_picture_options automatic = LZ_PICTURE_OPTIONS(.steps = 50, .cache = LZ_CACHE_AUTO);
    CHECK_OK(lz_fill_options(m, &automatic, &err), &err);
    CHECK(automatic.cache == lz_cache_auto(50) / 50.0, "%g", automatic.cache);
    lz_model_close(m);
    lz_close(ctx);
}

TEST_MAIN({"placement", placement}, {"linear_fields", linear_fields}, {"pictures", pictures},
          {"nothing_skipped", nothing_skipped}, {"refused", refused})
