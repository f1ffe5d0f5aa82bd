/* velocity.c: measures the error of the velocity in each step, for each precision: velocity MODEL [DEVICE [SIZE]] [OPTIONS]
 *
 * A picture in f32 is made first, and x before and after each step is recorded. Then a picture is made in each precision.
 * After each of its steps x is replaced by that of f32, so a step starts from the same latents as in f32, and its error is
 * its own. A line of JSON is printed for each step: sigma; velocity, ||v - v of f32|| / ||v of f32||; and text, the same for
 * the features of the prompt, which each precision encodes for itself. bench/quality makes tables of these lines.
 *
 *   --precisions bf16,fp8   of f32, bf16, int8 and fp8
 *   --steps N               number of steps; 0: the default of the model
 *   --guidance G            0: the default of the model
 *   --prompt TEXT, --seed N */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/environment.h"
#include "pipeline/job.h"

enum { MOST_STEPS = 128, MOST_PRECISIONS = 8 };

typedef struct wishes {
    const char *model, *device, *prompt;
    int64_t size;
    double steps, guidance, seed;
} wishes;

/* x of f32: before the first step, and after each. Owned by main. */
typedef struct record {
    float *x[MOST_STEPS + 1], *text;
    int64_t values, text_values;
    int steps;
} record;

/* The argument of watch. */
typedef struct run {
    lz_job *job;
    record *of_f32;
    const char *precision; /* NULL: this is the picture in f32, which fills the record */
    double sigma[MOST_STEPS], velocity[MOST_STEPS];
    lz_error err;
} run;

static float *copy_f32(lz_array *a, int64_t *n, lz_error *err) {
    *n = lz_size(a);
    float *to = malloc((size_t)*n * sizeof *to);
    if (!to) lz_out_of_memory(err, *n);
    if (to && !lz_copy(lz_cast(a, LZ_F32), to, *n * (int64_t)sizeof *to, err)) return to;
    free(to);
    return NULL;
}

/* ||a - b|| / ||b - from||; from may be NULL, which means 0. */
static double relative(const float *a, const float *b, const float *from, int64_t n) {
    double apart = 0, length = 0;
    for (int64_t i = 0; i < n; i++) {
        double whole = (double)b[i] - (from ? (double)from[i] : 0), off = (double)a[i] - (double)b[i];
        apart += off * off;
        length += whole * whole;
    }
    return sqrt(apart / length);
}

/* The next step starts from `values`. The loop owns one reference to slots.x, which moves to the new array. */
static bool replace_x(lz_job *job, const float *values, lz_error *err) {
    lz_array *old = job->slots.x;
    lz_array *x = lz_contiguous(lz_cast(lz_from(job->model->ctx, lz_shape(old), LZ_F32, values), lz_type(old)));
    if (lz_eval(x, err)) return false;
    job->slots.x = lz_retain(x);
    lz_release(old);
    return true;
}

/* Called with a preview after each step: slots.x is then the result of the step. */
static bool after_step(void *user, const lz_progress *progress) {
    run *r = user;
    if (!progress->preview || strcmp(progress->stage, "denoise") != 0) return true;
    lz_job *job = r->job;
    record *f32 = r->of_f32;
    int step = progress->step;
    int64_t n;
    if (step >= MOST_STEPS) return false;
    if (!r->precision && step == 0)
        f32->x[0] = copy_f32(lz_contiguous(lz_to_tokens(job->slots.noise, job->model->family->patch)), &n, &r->err);
    float *x = copy_f32(job->slots.x, &n, &r->err);
    if (!x || !f32->x[step]) return false;
    r->sigma[step] = (double)job->passes.sigmas[step];
    if (!r->precision) {
        f32->x[step + 1] = x;
        f32->values = n;
        f32->steps = step + 1;
        return true;
    }
    bool fine = n == f32->values && f32->x[step + 1];
    if (fine) r->velocity[step] = relative(x, f32->x[step + 1], f32->x[step], n);
    free(x);
    return fine && (step + 1 == progress->steps || replace_x(job, f32->x[step + 1], &r->err));
}

/* precision: NULL means f32, whose picture fills the record. */
static bool measure(const wishes *w, const char *precision, int type, record *f32, lz_error *err) {
    run r = {.of_f32 = f32, .precision = precision};
    lz_picture picture = {0};
    lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = w->device, .compute = type), err);
    lz_model *model = ctx ? lz_model_open(ctx, w->model, err) : NULL;
    lz_picture_options o = LZ_PICTURE_OPTIONS(.prompt = w->prompt, .seed = (uint64_t)w->seed, .width = w->size,
                                              .height = w->size, .steps = (int)w->steps, .guidance = w->guidance,
                                              .sampler = "euler", .watch = after_step, .user = &r,
                                              .preview = LZ_PREVIEW_SMALL);
    r.job = model ? lz_job_make(model, &o, NULL, err) : NULL;
    bool fine = r.job && !lz_job_run(r.job, &picture, err);
    if (r.err.status) *err = r.err; /* the reason why the watch function stopped the picture */
    if (fine && !precision) {
        f32->text = copy_f32(picture.text, &f32->text_values, err);
        fine = f32->text != NULL;
    } else if (fine) {
        int64_t n;
        float *text = copy_f32(picture.text, &n, err);
        fine = text && n == f32->text_values;
        for (int i = 0; fine && i < f32->steps; i++)
            printf(
                "{\"precision\": \"%s\", \"size\": %lld, \"step\": %d, \"sigma\": %.5f, \"velocity\": %.6f, \"text\": "
                "%.6f}\n",
                precision, (long long)w->size, i + 1, r.sigma[i], r.velocity[i], relative(text, f32->text, NULL, n));
        fflush(stdout);
        free(text);
    }
    lz_picture_free(&picture);
    lz_job_free(r.job);
    lz_model_close(model);
    lz_close(ctx);
    return fine;
}

/* The type of a precision, a part of a list that ends at a comma; -1: there is none of this name. */
static int type_of(const char *name) {
    static const struct {
        const char *name;
        int type;
    } types[] = {{"f32", LZ_F32}, {"bf16", LZ_BF16}, {"int8", LZ_I8}, {"fp8", LZ_F8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(name, types[i].name)) return types[i].type;
    return -1;
}

int main(int argc, char **argv) {
    wishes w = {.device = "cpu", .prompt = "a red fox in the snow", .size = 256, .seed = 1};
    char names[256] = "bf16";
    const char *list[MOST_PRECISIONS], *words[3];
    int n = 0, n_words = 0;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool known = true;
        if (strncmp(argv[i], "--", 2) != 0) {
            if (n_words < 3) words[n_words++] = argv[i];
            continue;
        }
        if (!value)
            known = false;
        else if (!strcmp(argv[i], "--precisions"))
            snprintf(names, sizeof names, "%s", value);
        else if (!strcmp(argv[i], "--prompt"))
            w.prompt = value;
        else if (!strcmp(argv[i], "--steps"))
            w.steps = strtod(value, NULL);
        else if (!strcmp(argv[i], "--guidance"))
            w.guidance = strtod(value, NULL);
        else if (!strcmp(argv[i], "--seed"))
            w.seed = strtod(value, NULL);
        else
            known = false;
        if (!known) return fprintf(stderr, "velocity: %s: unknown option, or its value is missing\n", argv[i]), 2;
        i++;
    }
    if (!n_words) return fprintf(stderr, "velocity: name a model folder\n"), 2;
    w.model = words[0];
    if (n_words > 1) w.device = words[1];
    if (n_words > 2) w.size = strtoll(words[2], NULL, 10);
    char *rest = names;
    for (char *name; n < MOST_PRECISIONS && (name = strtok_r(rest, ",", &rest));) {
        if (type_of(name) < 0) return fprintf(stderr, "velocity: there is no precision %s\n", name), 2;
        list[n++] = name;
    }
    record f32 = {.steps = 0};
    lz_error err = {0};
    bool fine = measure(&w, NULL, LZ_F32, &f32, &err);
    for (int i = 0; i < n && fine; i++) fine = measure(&w, list[i], type_of(list[i]), &f32, &err);
    if (!fine) fprintf(stderr, "velocity: %s\n", err.text);
    for (int i = 0; i <= f32.steps; i++) free(f32.x[i]);
    free(f32.text);
    return fine ? 0 : 1;
}
