/* estimate.c: estimates the time of a picture: the operations of each stage divided by the measured rate of this
 * machine. The rate is measured with a matrix product as large as the transformer's largest and a convolution as wide
 * as the autoencoder's widest, for about a quarter of a second in total. The time for sending weights to a device is
 * not included. */
#include <stdlib.h>
#include <string.h>

#include "cache.h"

enum {
    WIDEST = 4096, /* side of a product; larger products are not faster */
    MOST_RUNS = 100
};
#define LONG_ENOUGH 0.02 /* seconds; a run that takes less is not measured */
#define MEASURED 0.05    /* seconds of all runs of a measurement */

/* The first two sizes of the largest matrix, or of the largest square convolution, among the weights of a part. */
static lz_status find_shape(const job *j, const char *part, bool convolution, int64_t shape[2], lz_error *err) {
    char *path = job_part(j, part);
    lz_weights *weights = path ? lz_weights_open(j->ctx, path, err) : NULL;
    free(path);
    if (!weights) return err->status;
    lz_scope *scope = lz_scope_begin(j->ctx, "estimate");
    for (int64_t i = 0; i < lz_weights_count(weights); i++) {
        lz_array *a = lz_weights_get(weights, lz_weights_name(weights, i));
        if (lz_check(a, NULL) != LZ_OK) continue;
        lz_dims d = lz_shape(a);
        bool fits = convolution ? d.n >= 4 && d.at[0] == d.at[1] && d.at[d.n - 1] == 3 : d.n == 2;
        if (!fits || d.at[0] * d.at[1] <= shape[0] * shape[1]) continue;
        shape[0] = d.at[0];
        shape[1] = d.at[1];
    }
    lz_scope_end(scope);
    lz_weights_close(weights);
    return LZ_OK;
}

static lz_array *numbers(lz_context *ctx, lz_dims dims, lz_dtype type) {
    return lz_contiguous(lz_cast(lz_randn(ctx, dims, 1), type));
}

static lz_array *describe(bool convolution, lz_array *x, lz_array *w) {
    if (!convolution) return lz_linear(x, w, NULL);
    return lz_conv2d_with(x, w, NULL, (lz_conv2d_options){.top = 1, .bottom = 1, .left = 1, .right = 1});
}

/* Seconds of the fastest of some runs, which is least disturbed by other programs; 0: error. The first run of a size is
 * ignored, since it may compile kernels. */
static double time_one(lz_context *ctx, bool convolution, lz_array *x, lz_array *w, lz_error *err) {
    double all = 0, shortest = 0;
    int runs = -1;
    while (all < MEASURED && runs < MOST_RUNS) {
        lz_scope *scope = lz_scope_begin(ctx, "estimate");
        lz_array *y = describe(convolution, x, w);
        double begun = seconds_now();
        bool good = lz_eval(y, err) == LZ_OK && lz_wait(y, err) == LZ_OK;
        double passed = seconds_now() - begun;
        lz_scope_end(scope);
        if (!good) return 0;
        if (runs++ < 0) continue;
        all += passed;
        if (shortest == 0 || passed < shortest) shortest = passed;
    }
    return shortest;
}

/* Operations per second, measured with increasing sizes until a run takes LONG_ENOUGH or is as large as in the
 * picture. */
static double measure(const job *j, bool convolution, const int64_t shape[2], int64_t most, lz_error *err) {
    lz_context *ctx = j->ctx;
    lz_dtype type = lz_compute_type(ctx);
    double rate = 0;
    int64_t out = shape[0] < WIDEST ? shape[0] : WIDEST, in = shape[1] < WIDEST ? shape[1] : WIDEST;
    for (int64_t n = convolution ? 32 : 64; n <= most || rate == 0; n *= convolution ? 2 : 4) {
        lz_scope *scope = lz_scope_begin(ctx, "estimate");
        lz_array *w = numbers(ctx, convolution ? LZ_DIMS(out, 3, 3, in) : LZ_DIMS(out, in), LZ_BF16);
        lz_array *x = numbers(ctx, convolution ? LZ_DIMS(1, n, n, in) : LZ_DIMS(n, in), type);
        lz_array *const both[] = {x, w};
        double side = (double)n, took = 0, work = 2.0 * (double)out * (double)in;
        if (lz_eval_all(both, 2, err) == LZ_OK) took = time_one(ctx, convolution, x, w, err);
        lz_scope_end(scope);
        if (took <= 0) return 0;
        rate = work * (convolution ? 9 * side * side : side) / took;
        if (took >= LONG_ENOUGH) break;
    }
    return rate;
}

static void give_up(const job *j, const lz_error *err) { note(j->args, "the time is not estimated: %s", err->text); }

void estimate_shapes(job *j) {
    lz_error err = {.status = LZ_OK};
    if (find_shape(j, "transformer", false, j->estimate.product, &err) != LZ_OK ||
        find_shape(j, "vae", true, j->estimate.convolution, &err) != LZ_OK)
        give_up(j, &err);
}

void estimate_time(job *j) {
    estimate *e = &j->estimate;
    lz_error err = {.status = LZ_OK};
    int64_t unit = j->facts.token_pixels, width = j->picture.width, height = j->picture.height;
    if (!e->product[0] || !e->convolution[0]) return;
    double product = measure(j, false, e->product, width / unit * (height / unit), &err);
    double convolution = product > 0 ? measure(j, true, e->convolution, width < height ? width : height, &err) : 0;
    if (!(convolution > 0)) return give_up(j, &err);
    for (int i = 0; i < j->plan.n_stages; i++) {
        const lz_stage_plan *s = &j->plan.stages[i];
        bool products = strcmp(s->stage, "text") == 0 || strcmp(s->stage, "denoise") == 0;
        e->stages[i] = s->flops / (products ? product : convolution);
        e->seconds += e->stages[i];
    }
}

json_t *json_estimate(double seconds) { return seconds > 0 ? json_real(seconds) : json_null(); }
