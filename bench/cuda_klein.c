/* cuda_klein.c: how long the stages of a picture take on a GPU: cuda_klein MODEL [DEVICE]
 *
 * For each size, after two pictures to warm up: medians of five watched pictures by stage (somebody who watches is asked
 * after every step, so each stage is waited for), then of five unwatched ones as a whole, prompt to pixels. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "lazuli.h"

enum { RUNS = 5 };

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

static bool go_on(void *user, const lz_progress *progress) {
    (void)user, (void)progress;
    return true;
}

static bool paint(lz_model *model, int64_t size, bool watched, int seed, lz_picture *p, lz_error *err) {
    return lz_generate(model, p, err, .prompt = "a red fox in the snow", .seed = (uint64_t)seed, .width = size,
                       .height = size, .steps = 4, .watch = watched ? go_on : NULL) == LZ_OK;
}

int main(int argc, char **argv) {
    static const int64_t sizes[] = {256, 512, 1024};
    lz_error err = {0};
    double start = now();
    lz_context *ctx = lz_open_with(&(lz_context_options){.device = argc > 2 ? argv[2] : "cuda"}, &err);
    double opened = now();
    lz_model *model = ctx && argc > 1 ? lz_model_open(ctx, argv[1], &err) : NULL;
    if (!model) return fprintf(stderr, "cuda_klein: %s\n", argc > 1 ? err.text : "which model?"), 1;
    printf("%s; opened in %.2f s, model in %.2f s\n", lz_device_name(ctx), opened - start, now() - opened);
    printf("%6s %10s %10s %10s %10s %12s %12s\n", "size", "first s", "text ms", "step ms", "decode ms", "watched ms",
           "whole ms");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        double first = 0, text[RUNS], step[3 * RUNS], decode[RUNS], watched[RUNS], whole[RUNS];
        for (int k = -2; k < 2 * RUNS; k++) {
            lz_picture p;
            double begun = now();
            bool watch = k < RUNS;
            if (!paint(model, sizes[i], watch, k + 3, &p, &err))
                return fprintf(stderr, "cuda_klein: %s\n", err.text), 1;
            double took = now() - begun;
            if (k == -2) first = took;
            if (k >= 0 && watch) {
                text[k] = p.text_seconds;
                decode[k] = p.decode_seconds;
                watched[k] = took;
                for (int s = 1; s < 4; s++) step[3 * k + s - 1] = p.step_seconds[s];
            }
            if (!watch) whole[k - RUNS] = took;
            lz_picture_free(&p);
        }
        printf("%6lld %10.2f %10.2f %10.2f %10.2f %12.1f %12.1f\n", (long long)sizes[i], first,
               1e3 * median(text, RUNS), 1e3 * median(step, 3 * RUNS), 1e3 * median(decode, RUNS),
               1e3 * median(watched, RUNS), 1e3 * median(whole, RUNS));
        fflush(stdout);
    }
    lz_model_close(model);
    lz_close(ctx);
    return 0;
}
