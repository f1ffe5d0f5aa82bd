/* cuda_klein.c: how long the stages of a picture take on a GPU: cuda_klein MODEL [DEVICE [SIZE...]]
 *   LZ_PROFILE=1   after each size: one more picture, kernel by kernel
 *
 * For each size, after two pictures to warm up: medians of five watched pictures by stage (somebody who watches is asked
 * after every step, so each stage is waited for), then of five unwatched ones as a whole, prompt to pixels. `first` is
 * the first picture of a size, from nothing; `vae` is the decoder alone, `decode` also brings the pixels here as bytes;
 * `step` leaves the first out. bench/cuda reads the table by the names in its first line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lazuli.h"

enum { RUNS = 5, STEPS = 4, SIZES = 16 };

typedef struct moments { /* when the device was last done with a stage */
    double denoise, decode;
} moments;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
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

static bool profile(lz_context *ctx, lz_model *model, int64_t size, lz_error *err) {
    lz_picture p;
    lz_profile_start(ctx);
    lz_status status = lz_generate(model, &p, err, .prompt = "a red fox in the snow", .seed = 1, .width = size,
                                   .height = size, .steps = STEPS);
    lz_profile_stop(ctx);
    if (status) return false;
    lz_picture_free(&p);
    char *table = lz_profile_table(ctx, err);
    if (!table) return false;
    puts(table);
    lz_free_text(ctx, table);
    return true;
}

static bool measure(lz_context *ctx, lz_model *model, int64_t size, lz_error *err) {
    double first = 0, text[RUNS], step[(STEPS - 1) * RUNS], vae[RUNS], decode[RUNS], watched[RUNS], whole[RUNS];
    lz_reset_peak(ctx);
    for (int k = -2; k < 2 * RUNS; k++) {
        lz_picture p;
        moments m = {0, 0};
        bool watch = k < RUNS;
        double begun = now();
        if (lz_generate(model, &p, err, .prompt = "a red fox in the snow", .seed = (uint64_t)(k + 3), .width = size,
                        .height = size, .steps = STEPS, .watch = watch ? note_time : NULL, .user = &m))
            return false;
        double took = now() - begun;
        if (k == -2) first = took;
        if (k >= 0 && watch) {
            text[k] = p.text_seconds;
            vae[k] = m.decode - m.denoise;
            decode[k] = p.decode_seconds;
            watched[k] = took;
            memcpy(step + (STEPS - 1) * k, p.step_seconds + 1, (STEPS - 1) * sizeof *step);
        }
        if (!watch) whole[k - RUNS] = took;
        lz_picture_free(&p);
    }
    if (getenv("LZ_PROFILE") && !profile(ctx, model, size, err)) return false;
    printf("%6lld %9.2f %9.2f %9.2f %9.2f %9.2f %10.2f %9.2f %9.2f\n", (long long)size, first, 1e3 * median(text, RUNS),
           1e3 * median(step, (STEPS - 1) * RUNS), 1e3 * median(vae, RUNS), 1e3 * median(decode, RUNS),
           1e3 * median(watched, RUNS), 1e3 * median(whole, RUNS),
           (double)lz_memory_info(ctx).peak / (double)(1 << 30));
    fflush(stdout);
    return true;
}

int main(int argc, char **argv) {
    int64_t sizes[SIZES] = {256, 512, 1024};
    int n = argc > 3 ? argc - 3 : 3;
    if (n > SIZES) return fprintf(stderr, "cuda_klein: at most %d sizes\n", SIZES), 2;
    for (int i = 3; i < argc; i++) sizes[i - 3] = strtoll(argv[i], NULL, 10);
    lz_error err = {0};
    double start = now();
    lz_context *ctx = lz_open_with(&(lz_context_options){.device = argc > 2 ? argv[2] : "cuda"}, &err);
    double opened = now();
    lz_model *model = ctx && argc > 1 ? lz_model_open(ctx, argv[1], &err) : NULL;
    if (!model) return fprintf(stderr, "cuda_klein: %s\n", argc > 1 ? err.text : "which model?"), 1;
    printf("%s; opened in %.2f s, model in %.2f s\n", lz_device_name(ctx), opened - start, now() - opened);
    printf("%6s %9s %9s %9s %9s %9s %10s %9s %9s\n", "size", "first_s", "text_ms", "step_ms", "vae_ms", "decode_ms",
           "watched_ms", "whole_ms", "peak_gib");
    bool fine = true;
    for (int i = 0; i < n && fine; i++) fine = measure(ctx, model, sizes[i], &err);
    if (!fine) fprintf(stderr, "cuda_klein: %s\n", err.text);
    lz_model_close(model);
    lz_close(ctx);
    return fine ? 0 : 1;
}
