/* test_together.c: jobs that run together: a picture has the same bytes as alone, in every family, with every sampler,
 * with guidance, references, start images, masks and skipped passes; previews, cancelling and errors belong to one job. */
#include "check.h"
#include "pipeline/job.h"

#define DATA LZ_SOURCE_DIR "/tests/data/"
enum { SIDE = 64, MOST = 4 };

/* An image with a gradient, and a mask of its left half. */
static uint8_t image_pixels[3 * SIDE * SIDE], mask_pixels[3 * SIDE * SIDE];
/* Another image, and a mask of the lower half. */
static uint8_t second_pixels[3 * SIDE * SIDE], lower_pixels[3 * SIDE * SIDE];
static const lz_image image = {.width = SIDE, .height = SIDE, .pixels = image_pixels, .channels = 3},
                      mask = {.width = SIDE, .height = SIDE, .pixels = mask_pixels, .channels = 3},
                      second = {.width = SIDE, .height = SIDE, .pixels = second_pixels, .channels = 3},
                      lower = {.width = SIDE, .height = SIDE, .pixels = lower_pixels, .channels = 3};

static void draw_images(void) {
    for (int i = 0; i < 3 * SIDE * SIDE; i++) {
        image_pixels[i] = (uint8_t)(i / 3 % SIDE * 3 + i / 3 / SIDE + 20 * (i % 3));
        mask_pixels[i] = i / 3 % SIDE < SIDE / 2 ? 255 : 0;
        second_pixels[i] = (uint8_t)(255 - i / 3 / SIDE * 3 - 40 * (i % 3));
        lower_pixels[i] = i / 3 / SIDE < SIDE / 2 ? 0 : 255;
    }
}

typedef struct trial {
    const char *folder;
    lz_picture_options o;
    const char *prompts[MOST];
    int n;      /* of jobs */
    int passes; /* number of jobs that share a pass, at most */
} trial;

/* The jobs differ in guidance, negative prompt, image and mask too. */
static void vary(lz_picture_options *o, int i) {
    if (o->guidance > 1) o->guidance += 0.75 * i;
    if (o->negative && i % 2) o->negative = "a fox red";
    if (o->n_images && i % 2) o->images = &second;
    if (o->mask && i % 2) o->mask = &lower;
}

/* The most jobs that were seen in one crew. */
typedef struct witness {
    lz_job *first;
    int most;
} witness;

static bool watch(void *user, const lz_progress *now) {
    witness *w = user;
    (void)now;
    if (w->first && w->first->crew && w->first->crew->n > w->most) w->most = w->first->crew->n;
    return true;
}

static bool same_arrays(lz_array *a, lz_array *b) {
    lz_error err = {0};
    const void *x = lz_data(a, &err), *y = lz_data(b, &err);
    return x && y && lz_size(a) == lz_size(b) && !memcmp(x, y, (size_t)(lz_size(a) * lz_dtype_size(lz_type(a))));
}

static bool same_picture(const lz_picture *a, const lz_picture *b) {
    return a->image.pixels && b->image.pixels && a->image.width == b->image.width &&
           a->image.height == b->image.height && a->image.channels == b->image.channels &&
           !memcmp(a->image.pixels, b->image.pixels, (size_t)(a->image.channels * a->image.width * a->image.height)) &&
           same_arrays(a->latents, b->latents) && same_arrays(a->noise, b->noise) && same_arrays(a->text, b->text);
}

static void try_models(lz_model *model, const trial *t, bool varies) {
    lz_error err = {0}, errors[MOST] = {{0}};
    lz_job *jobs[MOST];
    lz_picture alone[MOST], all[MOST];
    witness w = {.most = 1};
    int n = 0;
    for (; n < t->n; n++) {
        lz_picture_options o = t->o;
        o.prompt = t->prompts[n] ? t->prompts[n] : t->prompts[0];
        o.seed = (uint64_t)(varies ? 0 : n) + 1;
        if (varies) vary(&o, n);
        if (!CHECK_OK(lz_generate_with(model, &o, &alone[n], &err), &err)) break;
        o.watch = watch;
        o.user = &w;
        if (!CHECK((jobs[n] = lz_job_new(model, &o, &err)) != NULL, "%s: %s", t->folder, err.text)) break;
    }
    if (n < t->n) return;
    w.first = jobs[0];
    int alike = 0;
    for (int i = 0; i < n; i++) alike += lz_jobs_alike(jobs[0], jobs[i]);
    CHECK_I64(alike, t->passes);
    CHECK_OK(lz_jobs_run(jobs, n, all, errors), &errors[0]);
    CHECK_I64(w.most, t->passes);
    for (int i = 0; i < n; i++) {
        CHECK(same_picture(&all[i], &alone[i]), "%s, job %d: %s", t->folder, i, errors[i].text);
        CHECK(all[i].steps == alone[i].steps && all[i].passes == alone[i].passes);
        CHECK(i == 0 || !same_arrays(all[i].latents, all[0].latents), "%s", t->folder);
        CHECK_I64(lz_job_look(jobs[i]).state, LZ_JOB_OVER);
        lz_picture_free(&all[i]);
        lz_picture_free(&alone[i]);
        lz_job_free(jobs[i]);
    }
}

/* Trials of one folder follow each other. */
static void try_all(const trial *trials, size_t n, int threads, bool varies) {
    lz_error err = {0};
    lz_context *ctx = lz_open(.threads = threads);
    lz_model *model = NULL;
    draw_images();
    for (size_t i = 0; i < n; i++) {
        const trial *t = &trials[i];
        char folder[1000];
        snprintf(folder, sizeof folder, DATA "%s", t->folder);
        if (!i || strcmp(t->folder, trials[i - 1].folder) != 0) {
            lz_model_close(model);
            model = lz_model_open(ctx, folder, &err);
        }
        if (!CHECK(model != NULL, "%s: %s", t->folder, err.text)) break;
        try_models(model, t, varies);
    }
    lz_model_close(model);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

#define OPTIONS(n, ...) LZ_PICTURE_OPTIONS(.width = SIDE, .height = SIDE, .steps = n, __VA_ARGS__)
#define TWO {"a red fox", "a blue dog"}, 2, 2
#define THREE {"a red fox"}, 3, 3
#define ONE_OF_TWO {"a red fox"}, 2, 2

/* The second prompts have as many tokens as the first ones. */
static void families(void) {
    const trial trials[] = {
        {"flux2/A", OPTIONS(3, .guidance = 3), TWO},
        {"flux2/A", OPTIONS(3, .images = &image, .n_images = 1), THREE},
        {"flux2/B", OPTIONS(4, .guidance = 1), TWO},
        {"flux2/B", LZ_PICTURE_OPTIONS(.width = 16, .height = 32, .steps = 3),
         THREE}, /* few tokens: another kernel of products */
        {"flux2/C", OPTIONS(3, .images = &image, .n_images = 1, .strength = 0.7), TWO},
        {"flux2/K", OPTIONS(3, .images = &image, .n_images = 1), TWO},
        {"flux3/B", OPTIONS(3, .guidance = 3), THREE},
        {"flux3/D", OPTIONS(2, .guidance = 1), THREE},
        {"zimage/T", OPTIONS(2, .guidance = 1), THREE},
        {"zimage/B", OPTIONS(3, .guidance = 4), THREE},
        {"zimage/N", OPTIONS(3, .guidance = 4), THREE},
        {"qwen/Q", OPTIONS(3, .guidance = 3), THREE},
        {"qwen/L", OPTIONS(2, .guidance = 1), THREE},
        {"qwen/P", OPTIONS(1, .images = &image, .n_images = 1, .guidance = 2), {"a red fox"}, 2, 2},
        {"qwen21/B", OPTIONS(3, .guidance = 3), THREE},
        {"qwen21/T", OPTIONS(3, .guidance = 1), THREE},
    };
    try_all(trials, sizeof trials / sizeof *trials, 2, false);
}

static void ways(void) {
    const trial trials[] = {
        {"flux2/A", OPTIONS(3, .sampler = "heun"), TWO},
        {"flux2/A", OPTIONS(3, .sampler = "dpm++2m"), TWO},
        {"flux2/A", OPTIONS(3, .sampler = "unipc"), TWO},
        {"flux2/A", OPTIONS(3, .sampler = "res_2s"), TWO},
        {"flux2/A", OPTIONS(3, .sampler = "euler_a"), THREE},
        {"flux2/A", OPTIONS(3, .sampler = "lcm", .guidance = 2), TWO},
        {"flux2/A", OPTIONS(10, .cache = 0.4, .guidance = 3), TWO},
        {"flux2/A", OPTIONS(6, .guidance_from = 0.2, .guidance_to = 0.8, .guidance = 3), TWO},
        {"flux2/A", OPTIONS(3, .images = &image, .n_images = 1, .mask = &mask, .strength = 0.9), TWO},
        {"flux2/A", OPTIONS(3, .images = &image, .n_images = 1, .mask = &mask, .sampler = "euler_a"), TWO},
        {"zimage/B", OPTIONS(3, .guidance = 3, .images = &image, .n_images = 1, .mask = &mask), THREE},
        /* Another length: the third prompt has passes of its own. */
        {"zimage/B", OPTIONS(3, .guidance = 1), {"a red fox", "a red fox", "a very long story of a red fox"}, 3, 2},
    };
    try_all(trials, sizeof trials / sizeof *trials, 1, false);
}

/* Each picture is led by its own settings. The seeds are equal, so that pictures differ by nothing else. */
static void varied(void) {
    const trial trials[] = {
        {"flux2/A", OPTIONS(3, .guidance = 2), THREE},
        {"flux2/A", OPTIONS(3, .images = &image, .n_images = 1), TWO},
        {"flux2/A", OPTIONS(3, .images = &image, .n_images = 1, .guidance = 2, .sampler = "heun"), ONE_OF_TWO},
        {"flux2/A", OPTIONS(3, .images = &image, .n_images = 1, .mask = &mask, .strength = 0.9, .guidance = 2),
         ONE_OF_TWO},
        {"flux2/C", OPTIONS(3, .images = &image, .n_images = 1, .strength = 0.7), ONE_OF_TWO},
        {"zimage/B", OPTIONS(3, .guidance = 3, .images = &image, .n_images = 1, .mask = &mask), ONE_OF_TWO},
        {"zimage/B", OPTIONS(3, .guidance = 3, .negative = "a red fox"), THREE},
        {"qwen/Q", OPTIONS(3, .guidance = 2), THREE},
        {"qwen/P", OPTIONS(1, .images = &image, .n_images = 1, .guidance = 2), ONE_OF_TWO},
        {"flux3/B", OPTIONS(2, .guidance = 2), ONE_OF_TWO},
        {"qwen21/B", OPTIONS(2, .guidance = 2), ONE_OF_TWO},
    };
    try_all(trials, sizeof trials / sizeof *trials, 2, true);
}

/* ---- one of several ---------------------------------------------------------------------------------------------- */

typedef struct viewer {
    lz_job *stops; /* is cancelled in its second step */
    int previews, steps;
    bool leave; /* stop by the result of the function */
    uint8_t last[3 * SIDE * SIDE];
} viewer;

static bool look(void *user, const lz_progress *now) {
    viewer *v = user;
    if (!strcmp(now->stage, "denoise") && now->step > v->steps) v->steps = now->step;
    if (now->preview) {
        v->previews++;
        memcpy(v->last, now->preview->pixels, (size_t)(3 * now->preview->width * now->preview->height));
    }
    if (v->stops && v->steps == 1) lz_job_cancel(v->stops);
    return !(v->leave && v->steps == 1);
}

/* One job is cancelled from outside, one by its function; the third is not disturbed, and its previews are those of a
 * job alone. All stop if all are cancelled. */
static void one_leaves(void) {
    lz_error err = {0}, errors[3] = {{0}};
    lz_context *ctx = lz_open();
    lz_model *model = lz_model_open(ctx, DATA "flux2/A", &err);
    lz_job *jobs[3] = {NULL};
    lz_picture alone, all[3];
    static viewer viewers[4];
    if (!CHECK(model != NULL, "%s", err.text)) return;
    for (int preview = LZ_PREVIEW_SMALL; preview <= LZ_PREVIEW_FULL; preview++) {
        memset(viewers, 0, sizeof viewers);
        lz_picture_options o = OPTIONS(4, .prompt = "a red fox", .watch = look, .preview = preview);
        for (int i = 0; i < 3; i++) {
            o.seed = (uint64_t)i + 5;
            o.user = &viewers[i];
            jobs[i] = lz_job_new(model, &o, &err);
        }
        viewers[1].leave = true;
        viewers[2].stops = jobs[0];
        CHECK_STATUS(lz_jobs_run(jobs, 3, all, errors), LZ_CANCELLED, &errors[0]);
        CHECK(errors[1].status == LZ_CANCELLED && errors[2].status == LZ_OK && !all[0].image.pixels);
        CHECK(lz_job_look(jobs[0]).status == LZ_CANCELLED && lz_job_look(jobs[2]).status == LZ_OK);
        o.seed = 7;
        o.user = &viewers[3];
        CHECK_OK(lz_generate_with(model, &o, &alone, &err), &err);
        CHECK(same_picture(&all[2], &alone));
        CHECK(viewers[3].previews == 4 && viewers[2].previews == 4 && viewers[0].previews == 1, "%d %d %d",
              viewers[3].previews, viewers[2].previews, viewers[0].previews);
        CHECK(!memcmp(viewers[2].last, viewers[3].last, sizeof viewers[2].last));
        lz_picture_free(&all[2]);
        lz_picture_free(&alone);
        for (int i = 0; i < 3; i++) { /* renewed, and all cancelled */
            CHECK_OK(lz_job_renew(jobs[i], &LZ_PICTURE_OPTIONS(.seed = 1), &err), &err);
            lz_job_cancel(jobs[i]);
        }
        CHECK_STATUS(lz_jobs_run(jobs, 3, all, errors), LZ_CANCELLED, &errors[0]);
        for (int i = 0; i < 3; i++) lz_job_free(jobs[i]);
    }
    lz_model_close(model);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void wrong_calls(void) {
    lz_error err = {0}, errors[3] = {{0}};
    lz_context *ctx = lz_open();
    lz_model *model = lz_model_open(ctx, DATA "flux2/B", &err), *other = lz_model_open(ctx, DATA "flux2/A", &err);
    const lz_picture_options o = OPTIONS(1, .prompt = "a fox");
    if (!CHECK(model && other, "%s", err.text)) return;
    lz_job *a = lz_job_new(model, &o, &err), *b = lz_job_new(model, &o, &err), *c = lz_job_new(other, &o, &err);
    lz_picture p[3];
    CHECK_STATUS(lz_jobs_run((lz_job *[]){a, a}, 2, p, errors), LZ_BAD_ARGUMENT, &errors[1]);
    CHECK_STATUS(lz_jobs_run((lz_job *[]){a, c}, 2, p, errors), LZ_BAD_ARGUMENT, &errors[0]);
    CHECK_STATUS(lz_jobs_run((lz_job *[]){a, NULL}, 2, p, NULL), LZ_BAD_ARGUMENT, NULL);
    CHECK_STATUS(lz_jobs_run((lz_job *[]){a}, 0, p, errors), LZ_BAD_ARGUMENT, &errors[0]);
    CHECK_STATUS(lz_jobs_run((lz_job *[]){a}, LZ_MAX_TOGETHER + 1, p, errors), LZ_BAD_ARGUMENT, &errors[0]);
    CHECK_OK(lz_job_run(b, &p[0], &err), &err);
    CHECK_STATUS(lz_jobs_run((lz_job *[]){a, b}, 2, &p[1], errors), LZ_BAD_ARGUMENT, &errors[1]);
    CHECK_TEXT(errors[1].text, "job 1 was run");
    CHECK_OK(lz_jobs_run(&a, 1, &p[1], NULL), NULL);
    CHECK(same_picture(&p[0], &p[1]));
    for (int i = 0; i < 2; i++) lz_picture_free(&p[i]);
    lz_job_free(a);
    lz_job_free(b);
    lz_job_free(c);
    lz_model_close(model);
    lz_model_close(other);
    lz_close(ctx);
}

/* The model's files are read by all, and the picture of a job stays in memory while the next ones are made. With memory
 * for that, but not for the passes of four pictures at once, they are made one by one. */
static void count_notes(void *user, lz_log_level level, const char *text) {
    if (level == LZ_LOG_NOTE && strstr(text, "made one by one")) ++*(int *)user;
}

static void short_memory(void) {
    int notes = 0;
    lz_error err = {0}, errors[MOST] = {{0}};
    const lz_picture_options o = LZ_PICTURE_OPTIONS(.prompt = "a fox", .width = 128, .height = 128, .steps = 2);
    lz_picture want[MOST], all[MOST];
    lz_context *ctx = lz_open(.cache_limit = -1, .log = count_notes, .log_user = &notes);
    lz_model *model = lz_model_open(ctx, DATA "flux2/A", &err);
    lz_job *jobs[MOST];
    if (!CHECK(model != NULL, "%s", err.text)) return;
    for (int i = 0; i < MOST; i++) CHECK_OK(lz_generate_with(model, &o, &want[i], &err), &err);
    int64_t peak = lz_memory_info(ctx).peak;
    for (int i = 1; i < MOST; i++) lz_picture_free(&want[i]);
    for (int i = 0; i < MOST; i++) jobs[i] = lz_job_new(model, &o, &err);
    lz_set_memory_limit(ctx, peak + peak / 8);
    CHECK_OK(lz_jobs_run(jobs, MOST, all, errors), &errors[0]);
    CHECK(notes > 0);
    for (int i = 0; i < MOST; i++) {
        CHECK(same_picture(&all[i], &want[0]), "%s", errors[i].text);
        lz_picture_free(&all[i]);
        lz_job_free(jobs[i]);
    }
    lz_picture_free(&want[0]);
    lz_model_close(model);
    lz_close(ctx);
}

TEST_MAIN({"families", families}, {"ways", ways}, {"varied", varied}, {"one_leaves", one_leaves},
          {"wrong_calls", wrong_calls}, {"short_memory", short_memory})
