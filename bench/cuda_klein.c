/* cuda_klein.c: measures the stages of a picture on a GPU: cuda_klein MODEL [DEVICE [SIZE...]] [OPTIONS]
 *
 * For each size it makes two pictures to warm up. Then it prints the median time of each stage of five pictures with a
 * watch function, which is called after every step, so the host waits for each stage; and the median time from prompt
 * to pixels of five pictures without one. `png` is the time of encoding these pixels. `first` is the first picture of a size, when nothing is prepared; `vae` is the
 * decoder alone; `decode` includes copying the pixels to the host as bytes; `step` excludes the first step. bench/cuda
 * reads the table by the names in its first line.
 *
 *   --steps 4        number of steps of each picture
 *   --guidance G     above 1, a step of a model that is not distilled is two passes; 0: the default of the model
 *   --negative TEXT  the negative prompt
 *   --cache SHARE    of the passes that are forecast; -1: automatic. --guidance-from A, --guidance-to B, --guidance-every N:
 *                    as in lz_picture_options. With any of them, one more picture of each size is made without them, and
 *                    a line tells the evaluations of the model, and how far the latents of the two are apart
 *   --together N     after that, rounds of 1, 2, 4, ... up to N pictures by lz_jobs_run: the median time of a round, and how
 *                    far its last picture is from the same one made alone
 *   --warm 2         number of pictures to warm up
 *   --runs 5         number of pictures that are measured
 *   --rest SECONDS   pause before each picture: after a pause the clock of the GPU is higher
 *   --precision P    f32, bf16, int8 or fp8; by default as on the command line
 *   --limit GB       limit of device memory; weights that do not fit are streamed
 *   --text-encoder FILE, --vae FILE, --tokenizer DIR: the other parts, if MODEL is a single file
 *   --picture FILE   writes the last picture as PPM. It depends on size, steps and guidance, not on warm, runs and limit
 *   LZ_PROFILE=1 in the environment: makes one more picture of each size and prints the time of each kernel */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/environment.h"

#define PROMPT "a red fox in the snow"
enum { MOST_RUNS = 16, MOST_STEPS = 128, SIZES = 16 };

typedef struct wishes {
    double steps, guidance, warm, runs, rest, limit, cache, from, to, every, together;
    const char *negative, *picture, *precision;
    lz_model_options model;
} wishes;

typedef struct moments { /* when the device finished each stage */
    double denoise, decode;
} moments;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_for(double seconds) {
    struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&t, NULL);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_size);
    return values[n / 2];
}

static bool note_time(void *user, const lz_progress *progress) {
    moments *m = user;
    if (!strcmp(progress->stage, "denoise")) m->denoise = now();
    if (!strcmp(progress->stage, "decode")) m->decode = now();
    return true;
}

static lz_picture_options options_of(int64_t size, const wishes *w, uint64_t seed) {
    return LZ_PICTURE_OPTIONS(.prompt = PROMPT, .negative = w->negative, .seed = seed, .width = size, .height = size,
                              .steps = (int)w->steps, .guidance = w->guidance, .cache = w->cache,
                              .guidance_from = w->from, .guidance_to = w->to, .guidance_every = (int)w->every);
}

static bool skips(const wishes *w) { return w->cache != 0 || w->to > 0 || w->every > 1; }

/* How far two pictures are apart: their latents as a share of the length of b's, and their pixels in dB. */
static bool compare(const lz_picture *a, const lz_picture *b, double *latents, double *dB, lz_error *err) {
    const float *x = lz_data(a->latents, err), *y = lz_data(b->latents, err);
    double apart = 0, length = 0, sum = 0;
    int64_t n = 3 * a->image.width * a->image.height;
    if (!x || !y) return false;
    for (int64_t i = 0; i < lz_size(a->latents); i++) {
        apart += pow((double)x[i] - (double)y[i], 2);
        length += pow((double)y[i], 2);
    }
    for (int64_t i = 0; i < n; i++) sum += pow((double)a->image.pixels[i] - (double)b->image.pixels[i], 2);
    *latents = sqrt(apart / length);
    *dB = sum > 0 ? 10 * log10(255.0 * 255.0 * (double)n / sum) : 99;
    return true;
}

/* Makes a picture with and without skipping work, and prints what it takes and changes. */
static bool compare_skips(lz_model *model, int64_t size, const wishes *w, lz_error *err) {
    lz_picture all = {0}, some = {0};
    wishes without = *w;
    double latents, dB;
    without.cache = without.from = without.to = without.every = 0;
    lz_picture_options o = options_of(size, w, 1), plain = options_of(size, &without, 1);
    bool fine = !lz_generate_with(model, &o, &some, err) && !lz_generate_with(model, &plain, &all, err) &&
                compare(&some, &all, &latents, &dB, err);
    if (fine)
        printf(
            "skipped: %d of %d passes forecast, %d evaluations instead of %d; latents differ by %.5f of their length, "
            "the picture by %.2f dB\n",
            some.forecast, some.passes, some.evaluations, all.evaluations, latents, dB);
    lz_picture_free(&all);
    lz_picture_free(&some);
    return fine;
}

static bool profile(lz_context *ctx, lz_model *model, int64_t size, const wishes *w, lz_error *err) {
    lz_picture p;
    lz_profile_start(ctx);
    lz_picture_options o = options_of(size, w, 1);
    lz_status status = lz_generate_with(model, &o, &p, err);
    lz_profile_stop(ctx);
    if (status) return false;
    lz_picture_free(&p);
    char *table = lz_profile_table(ctx, err);
    if (!table) return false;
    puts(table);
    lz_free_text(ctx, table);
    return true;
}

static bool write_ppm(const char *path, const lz_image *image, lz_error *err) {
    FILE *f = fopen(path, "wb");
    size_t bytes = 3 * (size_t)(image->width * image->height);
    bool fine = f && fprintf(f, "P6\n%lld %lld\n255\n", (long long)image->width, (long long)image->height) > 0 &&
                fwrite(image->pixels, 1, bytes, f) == bytes;
    fine = f && fclose(f) == 0 && fine;
    if (!fine) snprintf(err->text, sizeof err->text, "%s: cannot be written", path);
    return fine;
}

static bool measure(lz_context *ctx, lz_model *model, int64_t size, const wishes *w, lz_error *err) {
    static double text[MOST_RUNS], step[MOST_STEPS * MOST_RUNS], vae[MOST_RUNS], decode[MOST_RUNS], watched[MOST_RUNS],
        whole[MOST_RUNS], png[MOST_RUNS];
    int steps = (int)w->steps, warm = (int)w->warm, runs = (int)w->runs, n_steps = 0;
    double first = 0;
    long long tokens = 0, tile = 0, streamed = 0;
    lz_reset_peak(ctx);
    for (int k = -warm; k < 2 * runs; k++) {
        lz_picture p;
        moments m = {0, 0};
        bool watch = k < runs;
        sleep_for(w->rest);
        double begun = now();
        lz_picture_options o = options_of(size, w, (uint64_t)(2 * runs - k));
        o.watch = watch ? note_time : NULL;
        o.user = &m;
        if (lz_generate_with(model, &o, &p, err)) return false;
        double took = now() - begun;
        if (k == -warm) first = took;
        if (k >= 0 && watch) {
            text[k] = p.text_seconds;
            vae[k] = m.decode - m.denoise;
            decode[k] = p.decode_seconds;
            watched[k] = took;
            for (int i = steps > 1; i < steps; i++) step[n_steps++] = p.step_seconds[i];
        }
        if (!watch) {
            int64_t bytes;
            whole[k - runs] = took;
            begun = now();
            char *file = lz_image_encode(ctx, ".png", &p.image, NULL, 0, &bytes, err);
            png[k - runs] = now() - begun;
            lz_free_text(ctx, file);
        }
        fprintf(stderr, "picture %d of %d: %.2f s, its last step %.3f s\n", k + warm + 1, 2 * runs + warm, took,
                p.step_seconds[steps -
                               1]); /* so that there are numbers if the program is stopped before it prints the table */
        tokens = (long long)lz_shape(p.text).at[1];
        tile = (long long)p.tile;
        streamed = (long long)p.streamed_bytes;
        bool fine = k < 2 * runs - 1 || !w->picture || write_ppm(w->picture, &p.image, err);
        lz_picture_free(&p);
        if (!fine) return false;
    }
    if (getenv("LZ_PROFILE") && !profile(ctx, model, size, w, err)) return false;
    printf("%6lld %9.2f %9.2f %9.2f %9.2f %9.2f %10.2f %9.2f %7.2f %9.5f %6lld %12.5f %5lld\n", (long long)size, first,
           1e3 * median(text, runs), 1e3 * median(step, n_steps), 1e3 * median(vae, runs), 1e3 * median(decode, runs),
           1e3 * median(watched, runs), 1e3 * median(whole, runs), 1e3 * median(png, runs),
           (double)lz_memory_info(ctx).peak / (double)(1 << 30), tokens, (double)streamed / (double)(1 << 30), tile);
    bool fine = !skips(w) || compare_skips(model, size, w, err);
    fflush(stdout);
    return fine;
}

/* Makes n pictures in the same passes, once. The last one is kept in `last`, unless it is NULL. */
static bool run_together(lz_model *model, int64_t size, const wishes *w, int n, lz_picture *last, lz_error *err) {
    lz_job *jobs[LZ_MAX_TOGETHER];
    lz_picture pictures[LZ_MAX_TOGETHER];
    lz_error errors[LZ_MAX_TOGETHER];
    bool fine = true;
    int made = 0;
    memset(pictures, 0, sizeof pictures);
    for (; made < n && fine; made += fine) {
        lz_picture_options o = options_of(size, w, (uint64_t)made + 1);
        fine = (jobs[made] = lz_job_new(model, &o, err)) != NULL;
    }
    if (fine) fine = !lz_jobs_run(jobs, n, pictures, errors);
    for (int i = 0; i < made && made == n && !fine; i++)
        if (errors[i].status) *err = errors[i];
    for (int i = 0; i < made; i++) {
        if (last && i == n - 1)
            *last = pictures[i];
        else
            lz_picture_free(&pictures[i]);
        lz_job_free(jobs[i]);
    }
    return fine;
}

static bool measure_together(lz_context *ctx, lz_model *model, int64_t size, const wishes *w, lz_error *err) {
    static double took[MOST_RUNS];
    for (int n = 1; n <= (int)w->together; n *= 2) {
        lz_picture alone = {0}, shared = {0};
        lz_picture_options o = options_of(size, w, (uint64_t)n);
        double latents = 0, dB = 0;
        lz_reset_peak(ctx);
        bool fine = !lz_generate_with(model, &o, &alone, err) && run_together(model, size, w, n, &shared, err) &&
                    compare(&shared, &alone, &latents, &dB, err);
        lz_picture_free(&alone);
        lz_picture_free(&shared);
        for (int k = 0; k < (int)w->runs && fine; k++) {
            double begun = now();
            fine = run_together(model, size, w, n, NULL, err);
            took[k] = now() - begun;
        }
        if (!fine) return false;
        double round = median(took, (int)w->runs);
        printf(
            "together: size %lld, %2d pictures, a round %.2f ms, %.3f pictures a second, peak %.2f GiB, latents differ "
            "by %.5f, the picture by %.2f dB\n",
            (long long)size, n, 1e3 * round, n / round, (double)lz_memory_info(ctx).peak / (double)(1 << 30), latents,
            dB);
        fflush(stdout);
    }
    return true;
}

static bool read_number(const char *text, double least, double most, double *to) {
    char *end;
    *to = strtod(text, &end);
    return end != text && !*end && *to >= least && *to <= most;
}

/* Takes the options out of argv. false: one was not understood. */
static bool take_options(int *argc, char **argv, wishes *w) {
    const struct option {
        const char *name;
        double *number, least, most;
        const char **text;
    } known[] = {{"--steps", &w->steps, 1, MOST_STEPS, NULL},
                 {"--guidance", &w->guidance, 0, 100, NULL},
                 {"--warm", &w->warm, 0, 100, NULL},
                 {"--runs", &w->runs, 1, MOST_RUNS, NULL},
                 {"--rest", &w->rest, 0, 60, NULL},
                 {"--limit", &w->limit, 0, 1e6, NULL},
                 {"--together", &w->together, 0, LZ_MAX_TOGETHER, NULL},
                 {"--cache", &w->cache, -1, 0.8, NULL},
                 {"--guidance-from", &w->from, 0, 1, NULL},
                 {"--guidance-to", &w->to, 0, 1, NULL},
                 {"--guidance-every", &w->every, 0, 1000, NULL},
                 {"--negative", NULL, 0, 0, &w->negative},
                 {"--picture", NULL, 0, 0, &w->picture},
                 {"--precision", NULL, 0, 0, &w->precision},
                 {"--text-encoder", NULL, 0, 0, &w->model.text_encoder},
                 {"--vae", NULL, 0, 0, &w->model.vae},
                 {"--tokenizer", NULL, 0, 0, &w->model.tokenizer}};
    int n = 0;
    for (int i = 0; i < *argc; i++) {
        const struct option *o = NULL;
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
            if (!strcmp(argv[i], known[k].name)) o = &known[k];
        if (!o && !strncmp(argv[i], "--", 2)) return false;
        if (!o) argv[n++] = argv[i];
        if (!o) continue;
        if (++i == *argc || (o->number && !read_number(argv[i], o->least, o->most, o->number))) return false;
        if (o->text) *o->text = argv[i];
    }
    *argc = n;
    return true;
}

/* The type of a name; 0: the default. -2: there is none of this name. */
static int type_of(const char *name) {
    static const struct {
        const char *name;
        int type;
    } types[] = {{"f32", LZ_F32}, {"bf16", LZ_BF16}, {"int8", LZ_I8}, {"fp8", LZ_F8}};
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (!strcmp(name, types[i].name)) return types[i].type;
    return name ? -2 : 0;
}

int main(int argc, char **argv) {
    wishes w = {.steps = 4, .warm = 2, .runs = 5, .model = LZ_MODEL_OPTIONS()};
    int64_t sizes[SIZES] = {256, 512, 1024};
    if (!take_options(&argc, argv, &w))
        return fprintf(stderr, "cuda_klein: unknown option; the comment at the top of bench/cuda_klein.c lists all\n"),
               2;
    int n = argc > 3 ? argc - 3 : 3;
    if (n > SIZES) return fprintf(stderr, "cuda_klein: at most %d sizes\n", SIZES), 2;
    for (int i = 3; i < argc; i++) sizes[i - 3] = strtoll(argv[i], NULL, 10);
    lz_error err = {0};
    double start = now();
    lz_context_options options = LZ_CONTEXT_OPTIONS(.device = argc > 2 ? argv[2] : "cuda",
                                                    .memory_limit = (int64_t)(1e9 * w.limit),
                                                    .compute = type_of(w.precision));
    lz_context *ctx = open_as_asked(options, &err);
    double opened = now();
    w.model.model = argc > 1 ? argv[1] : NULL;
    lz_model *model = ctx && argc > 1 ? lz_model_open_with(ctx, &w.model, &err) : NULL;
    if (!model) return fprintf(stderr, "cuda_klein: %s\n", argc > 1 ? err.text : "name a model folder"), 1;
    printf("%s; opened in %.2f s, model in %.2f s\n", lz_device_name(ctx), opened - start, now() - opened);
    printf("%6s %9s %9s %9s %9s %9s %10s %9s %7s %9s %6s %12s %5s\n", "size", "first_s", "text_ms", "step_ms", "vae_ms",
           "decode_ms", "watched_ms", "whole_ms", "png_ms", "peak_gib", "tokens", "streamed_gib", "tile");
    bool fine = true;
    for (int i = 0; i < n && fine; i++) fine = measure(ctx, model, sizes[i], &w, &err);
    for (int i = 0; i < n && fine; i++) fine = measure_together(ctx, model, sizes[i], &w, &err);
    if (!fine) fprintf(stderr, "cuda_klein: %s\n", err.text);
    lz_model_close(model);
    lz_close(ctx);
    return fine ? 0 : 1;
}
