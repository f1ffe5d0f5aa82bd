/* test_jobs.c: jobs, slots and samplers: further samplers, two jobs of one model at the same time, cancelling and
 * querying from another thread. Also built with -DLZ_THREAD_SANITIZE=ON (make test-threads). */
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "pipeline/job.h"

#define SMALL LZ_SOURCE_DIR "/tests/data/flux2/B"
enum { SIDE = 32, STEPS = 3 };

static lz_picture_options small(uint64_t seed) {
    return LZ_PICTURE_OPTIONS(.prompt = "a red fox", .seed = seed, .width = SIDE, .height = SIDE, .steps = STEPS);
}

static bool same_picture(const lz_picture *a, const lz_picture *b) {
    size_t bytes = (size_t)(3 * a->image.width * a->image.height);
    return a->image.pixels && b->image.pixels && a->image.width == b->image.width &&
           memcmp(a->image.pixels, b->image.pixels, bytes) == 0;
}

/* Makes a job, runs it and frees it. */
static lz_status run_job(lz_model *model, const lz_picture_options *o, const lz_sampler *sampler, lz_picture *p) {
    lz_error err = {0};
    lz_job *job = lz_job_make(model, o, sampler, &err);
    if (CHECK(job != NULL, "%s", err.text)) CHECK_OK(lz_job_run(job, p, &err), &err);
    lz_job_free(job);
    return err.status;
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

static void describe_difference(const lz_traced *t, const lz_slots *in, lz_slots *out) {
    (void)t;
    out->x = lz_sub(in->x, in->noise);
    if (in->references) out->x = lz_add(out->x, in->references);
    out->context[1] = in->rows[2];
}

/* A program finds its arrays by name, whatever their order in the list and whichever others are filled. */
static void slots_by_name(void) {
    static const lz_slot one[] = {LZ_SLOT(x), LZ_SLOT(noise), LZ_SLOT(rows), LZ_SLOT(references)};
    static const lz_slot other[] = {LZ_SLOT(references), LZ_SLOT(rows), LZ_SLOT(guidance), LZ_SLOT(noise), LZ_SLOT(x)};
    static const lz_slot made[] = {LZ_SLOT(context), LZ_SLOT(x)};
    const lz_slot_list lists[] = {LZ_SLOT_LIST(one), LZ_SLOT_LIST(other)};
    lz_error err = {0};
    lz_context *ctx = lz_open();
    lz_model model = {.ctx = ctx};
    for (int i = 0; i < 2; i++) {
        const lz_traced_kind kind = {"difference", lists[i], LZ_SLOT_LIST(made), describe_difference, 1};
        lz_traced t = {.kind = &kind, .model = &model};
        lz_slots in = {.x = lz_full(ctx, LZ_DIMS(2), LZ_F32, 5), .noise = lz_full(ctx, LZ_DIMS(2), LZ_F32, 3)};
        in.rows[2] = lz_full(ctx, LZ_DIMS(2), LZ_F32, 11);
        for (int k = 0; k < 2; k++) { /* another slot is filled: the program is compiled again */
            lz_slots out = {.x = in.x, .context = {NULL, in.x}};
            if (CHECK_OK(lz_traced_run(&t, &in, &out, NULL, &err), &err)) {
                CHECK(lz_item(lz_mean(out.x, LZ_NONE, false), &err) == 2 + 100 * k, "%s", err.text);
                CHECK(lz_item(lz_mean(out.context[1], LZ_NONE, false), &err) == 11, "%s", err.text);
                CHECK(!out.context[0] && !out.noise);
            }
            in.references = lz_full(ctx, LZ_DIMS(2), LZ_F32, 100);
        }
        lz_slots out = {.x = in.x, .context = {in.x, NULL}}; /* which it does not make */
        CHECK_STATUS(lz_traced_run(&t, &in, &out, NULL, &err), LZ_BAD_ARGUMENT, &err);
        CHECK_TEXT(err.text, "'difference' does not make 'context'");
        CHECK(lz_check(out.x, NULL) != LZ_OK);
        lz_traced_free(&t);
    }
    lz_close(ctx);
}

/* ---- one object -------------------------------------------------------------------------------------------------- */

/* A job is planned and then run: the plan and the picture are those of the two functions of lazuli.h. */
static void planned_and_run(void) {
    lz_error err = {0};
    lz_context *ctx = lz_open();
    lz_model *model = lz_model_open(ctx, SMALL, &err);
    lz_picture_options o = small(4);
    lz_picture_plan plan, again, want_plan;
    lz_picture p, want;
    lz_job *job = model ? lz_job_make(model, &o, NULL, &err) : NULL;
    if (CHECK(job != NULL, "%s", err.text)) {
        CHECK_I64(lz_job_look(job).state, LZ_JOB_NEW);
        CHECK_OK(lz_job_plan(job, &plan, &err), &err);
        CHECK_OK(lz_job_plan(job, &again, &err), &err);
        CHECK_OK(lz_plan_picture(model, &o, &want_plan, &err), &err);
        CHECK(memcmp(&plan, &again, sizeof plan) == 0 && plan.n_stages == want_plan.n_stages);
        CHECK(plan.peak_bytes == want_plan.peak_bytes && plan.flops == want_plan.flops);
        CHECK_OK(lz_job_run(job, &p, &err), &err);
        CHECK_OK(lz_generate_with(model, &o, &want, &err), &err);
        CHECK(same_picture(&p, &want));
        lz_job_view view = lz_job_look(job);
        CHECK(view.state == LZ_JOB_OVER && view.status == LZ_OK && view.steps == STEPS && view.step == 0);
        CHECK(!strcmp(view.stage, "decode"), "%s", view.stage);
        lz_picture_free(&p);
        lz_picture_free(&want);
        CHECK_STATUS(lz_job_run(job, &p, &err), LZ_BAD_ARGUMENT, &err); /* once */
        lz_job_free(job);
    }
    lz_job *wrong = lz_job_make(model, &LZ_PICTURE_OPTIONS(.steps = -1), NULL, &err);
    CHECK(!wrong && err.status == LZ_BAD_ARGUMENT);
    lz_model_close(model);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

/* ---- each thing once --------------------------------------------------------------------------------------------- */

/* How often a job called the family of its model. A function that describes is called once for each program. */
static struct {
    const lz_family *family;
    int tokens, open_text, features, look, encode, velocity, decode;
} counted;

static lz_status count_tokens(const void *model, const char *prompt, const lz_image *images, int n, lz_prompt *to,
                              lz_error *err) {
    counted.tokens++;
    return counted.family->tokens(model, prompt, images, n, to, err);
}
static void *count_open(const void *model, bool images, lz_error *err) {
    counted.open_text++;
    return counted.family->open_text(model, images, err);
}
static lz_array *count_features(const void *text, lz_prompt prompt) {
    counted.features++;
    return counted.family->features(text, prompt);
}
static lz_array *count_look(const void *text, lz_array *view) {
    counted.look++;
    return counted.family->look(text, view);
}
static lz_array *count_encode(const void *model, lz_array *picture) {
    counted.encode++;
    return counted.family->encode(model, picture);
}
static lz_array *count_velocity(const void *model, const lz_layout *layout, const lz_slots *in, int prompt, lz_array *x,
                                lz_array *const *rows) {
    counted.velocity++;
    return counted.family->velocity(model, layout, in, prompt, x, rows);
}
static lz_array *count_decode(const void *model, lz_array *tokens, int64_t h, int64_t w) {
    counted.decode++;
    return counted.family->decode(model, tokens, h, w);
}

/* As the command line makes pictures: a job is made, planned, renewed and run. prompts: with the negative one; looks:
 * shapes of images that the text encoder sees. */
static void once(const char *folder, const lz_image *images, int n_images, int prompts, int looks) {
    lz_error err = {0};
    lz_context *ctx = lz_open(.threads = 2);
    lz_model *model = lz_model_open(ctx, folder, &err);
    if (!CHECK(model != NULL, "%s", err.text)) return;
    lz_family family = *model->family;
    memset(&counted, 0, sizeof counted);
    counted.family = model->family;
    family.tokens = count_tokens;
    family.open_text = count_open;
    family.features = count_features;
    if (family.look) family.look = count_look;
    family.encode = count_encode;
    family.velocity = count_velocity;
    family.decode = count_decode;
    lz_picture_options o = small(4);
    o.images = images;
    o.n_images = n_images;
    lz_picture_plan plan;
    lz_picture p[2], want;
    lz_job *job = lz_job_new(model, &o, &err);
    if (CHECK(job != NULL, "%s", err.text)) {
        model->family = &family;
        CHECK_OK(lz_job_plan(job, &plan, &err), &err);
        for (int run = 0; run < 2; run++) { /* what was planned is run; the second run traces its programs again */
            o.seed = 5 + (uint64_t)run;
            CHECK_OK(lz_job_renew(job, &o, &err), &err);
            CHECK_OK(lz_job_run(job, &p[run], &err), &err);
            CHECK_I64(counted.tokens, prompts);
            CHECK_I64(counted.open_text,
                      looks && run ? 1 : 0); /* open since lz_model_open, until the prompt was read */
            CHECK_I64(counted.features,
                      prompts * (looks && run ? 2 : 1)); /* each of its own length; recalled without images */
            CHECK_I64(counted.look, looks * (run + 1));
            CHECK_I64(counted.encode, (n_images > 0) * (run + 1));
            CHECK_I64(counted.velocity, prompts * (run + 1));
            CHECK_I64(counted.decode, run + 1);
        }
        CHECK_I64(plan.steps, STEPS);
        model->family = counted.family;
        CHECK_OK(lz_generate_with(model, &o, &want, &err), &err);
        CHECK(same_picture(&p[1], &want) && !same_picture(&p[0], &want));
        lz_picture_free(&p[0]);
        lz_picture_free(&p[1]);
        lz_picture_free(&want);
    }
    lz_job_free(job);
    lz_model_close(model);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

static void each_thing_once(void) {
    lz_error err = {0};
    lz_context *ctx = lz_open();
    lz_image images[2] = {{0}, {0}}; /* twice the same size */
    for (int i = 0; i < 2; i++)
        CHECK_OK(lz_image_read(ctx, LZ_SOURCE_DIR "/tests/data/flux2/ref1.png", &images[i], &err), &err);
    once(SMALL, NULL, 0, 1, 0);
    once(SMALL, images, 2, 1, 0);
    once(LZ_SOURCE_DIR "/tests/data/qwen/Q", NULL, 0, 2, 0);
    once(LZ_SOURCE_DIR "/tests/data/qwen/P", images, 2, 2, 1);
    for (int i = 0; i < 2; i++) lz_image_free(ctx, &images[i]);
    lz_close(ctx);
}

/* ---- a second sampler -------------------------------------------------------------------------------------------- */

static void begin_adams(lz_array *x, lz_array **states) {
    states[0] = lz_contiguous(lz_mul(x, 0.0));
    states[1] = lz_contiguous(lz_mul(lz_sum(x, LZ_NONE, false), 0.0));
}

/* Adams-Bashforth of two steps. Its states are the velocity of the previous step, and 1 if there is a previous step. The
 * first step is Euler's; its index is not 0 if the picture starts from an image. */
static lz_array *step_adams(const lz_sampler_step *s, lz_array **states) {
    lz_array *v = s->velocity(s, s->x, s->step_index), *drop = lz_take(s->sigma_drops, s->step_index, 0);
    lz_array *half = lz_mul(lz_mul(lz_sub(v, s->states[0]), 0.5), s->states[1]);
    states[0] = v;
    states[1] = lz_contiguous(lz_add(lz_mul(s->states[1], 0.0), 1.0));
    return lz_add(s->x, lz_mul(lz_add(v, half), drop));
}
static const lz_sampler adams = {.name = "adams", .n_states = 2, .begin = begin_adams, .step = step_adams};

/* Heun, but for the last step: two passes through the model. */
static lz_array *step_heun(const lz_sampler_step *s, lz_array **states) {
    (void)states;
    int64_t steps = lz_shape(s->sigma_drops).at[0];
    lz_array *v = s->velocity(s, s->x, s->step_index), *drop = lz_take(s->sigma_drops, s->step_index, 0);
    lz_array *more = lz_less(s->step_index, (double)(steps - 1)); /* a step comes after this one */
    lz_array *next = lz_add(s->step_index, lz_cast(more, LZ_I64));
    lz_array *w = s->velocity(s, lz_add(s->x, lz_mul(v, drop)), next);
    lz_array *half = lz_mul(lz_mul(lz_sub(w, v), lz_cast(more, LZ_F32)), 0.5);
    return lz_add(s->x, lz_mul(lz_add(v, half), drop));
}
static const lz_sampler heun = {.name = "heun", .step = step_heun};

static void a_second_sampler(void) {
    lz_error err = {0};
    lz_context *ctx = lz_open();
    lz_model *model = lz_model_open(ctx, SMALL, &err);
    const lz_sampler *samplers[] = {&adams, &heun};
    for (int i = 0; i < 2 && CHECK(model != NULL, "%s", err.text); i++)
        for (int steps = 1; steps <= STEPS; steps += STEPS - 1) {
            lz_picture_options o = small(7);
            lz_picture euler, p, again;
            o.steps = steps;
            run_job(model, &o, NULL, &euler);
            run_job(model, &o, samplers[i], &p);
            run_job(model, &o, samplers[i], &again);
            CHECK(same_picture(&p, &euler) == (steps == 1), "%s, %d steps", samplers[i]->name, steps);
            CHECK(same_picture(&p, &again));
            lz_picture_plan plan, of_euler;
            lz_job *job = lz_job_make(model, &o, samplers[i], &err);
            if (CHECK(job != NULL, "%s", err.text)) {
                CHECK_OK(lz_job_plan(job, &plan, &err), &err);
                CHECK_OK(lz_plan_picture(model, &o, &of_euler, &err), &err);
                CHECK(plan.stages[1].flops > of_euler.stages[1].flops * (samplers[i] == &heun ? 1.3 : 1));
            }
            lz_job_free(job);
            lz_picture_free(&euler);
            lz_picture_free(&p);
            lz_picture_free(&again);
        }
    /* Only the last step is left after a start image, and it is Euler's for both samplers. */
    lz_image start = {0};
    CHECK_OK(lz_image_read(ctx, LZ_SOURCE_DIR "/tests/data/flux2/ref1.png", &start, &err), &err);
    for (int i = 0; i < 2 && model && start.pixels; i++) {
        lz_picture_options o = small(7);
        lz_picture euler = {0}, p = {0};
        o.images = &start, o.n_images = 1, o.strength = 0.3; /* 1 of 3 steps */
        run_job(model, &o, NULL, &euler);
        run_job(model, &o, samplers[i], &p);
        CHECK_I64(p.steps, 1);
        CHECK(same_picture(&p, &euler), "%s from an image", samplers[i]->name);
        lz_picture_free(&euler);
        lz_picture_free(&p);
    }
    lz_image_free(ctx, &start);
    lz_model_close(model);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

/* ---- two jobs at the same time ----------------------------------------------------------------------------------- */

typedef struct painter {
    lz_model *model;
    lz_picture_options options;
    lz_picture picture;
    lz_status status;
    struct painter *other; /* NULL: alone */
    atomic_int step;       /* that was begun last; -1: none */
    bool waited;           /* in vain */
} painter;

/* The user's function of each job waits until the other job has begun the same step. Neither would ever end if a job
 * held something meanwhile that the other one needs. */
static bool wait_for_other(void *user, const lz_progress *now) {
    painter *p = user;
    if (strcmp(now->stage, "denoise") != 0 || atomic_load(&p->step) >= now->step) return true;
    atomic_store(&p->step, now->step);
    for (int i = 0; p->other && i < 60000 && atomic_load(&p->other->step) < now->step; i++) usleep(1000);
    p->waited = p->waited || (p->other && atomic_load(&p->other->step) < now->step);
    return !p->waited;
}

static void *paint(void *user) {
    painter *p = user;
    lz_error err = {0};
    lz_job *job = lz_job_make(p->model, &p->options, NULL, &err);
    if (CHECK(job != NULL, "%s", err.text)) CHECK_OK(lz_job_run(job, &p->picture, &err), &err);
    p->status = err.status;
    lz_job_free(job);
    return NULL;
}

static void interleave(const char *folder, bool same_size) {
    enum { JOBS = 2 };
    lz_error err = {0};
    lz_context *ctx = lz_open(.threads = 2);
    lz_model *model = lz_model_open(ctx, folder, &err);
    painter alone[JOBS], both[JOBS];
    for (int i = 0; i < JOBS && CHECK(model != NULL, "%s", err.text); i++) {
        lz_picture_options o = small((uint64_t)i);
        if (!same_size && i) o.width = 48;
        alone[i] = (painter){.model = model, .options = o, .step = -1};
        both[i] = (painter){.model = model, .options = o, .step = -1, .other = &both[1 - i]};
        alone[i].options.watch = both[i].options.watch = wait_for_other;
        alone[i].options.user = &alone[i];
        both[i].options.user = &both[i];
        paint(&alone[i]);
    }
    pthread_t threads[JOBS];
    for (int i = 0; i < JOBS && model; i++) CHECK(pthread_create(&threads[i], NULL, paint, &both[i]) == 0);
    for (int i = 0; i < JOBS && model; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < JOBS && model; i++) {
        CHECK(!both[i].waited && both[i].status == LZ_OK);
        CHECK(same_picture(&alone[i].picture, &both[i].picture), "job %d", i);
        lz_picture_free(&alone[i].picture);
        lz_picture_free(&both[i].picture);
    }
    lz_model_close(model);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

static void two_jobs_interleave(void) {
    interleave(SMALL, true);
    interleave(SMALL, false);
    interleave(LZ_SOURCE_DIR "/tests/data/qwen/Q", true);
}

/* ---- from another thread ----------------------------------------------------------------------------------------- */

typedef struct running {
    lz_job *job;
    lz_picture picture;
    lz_status status;
} running;

static void *run_long(void *user) {
    running *r = user;
    r->status = lz_job_run(r->job, &r->picture, NULL);
    lz_picture_free(&r->picture);
    return NULL;
}

/* A job of a thousand steps without a user's function: another thread sees it move, and stops it in its third step. */
static void looked_at_and_cancelled(void) {
    lz_error err = {0};
    lz_context *ctx = lz_open(.threads = 2);
    lz_model *model = lz_model_open(ctx, SMALL, &err);
    lz_picture_options o = small(1);
    o.steps = 1000;
    running r = {.job = model ? lz_job_make(model, &o, NULL, &err) : NULL};
    pthread_t thread;
    if (CHECK(r.job != NULL, "%s", err.text) && CHECK(pthread_create(&thread, NULL, run_long, &r) == 0)) {
        lz_job_view view = {0};
        /* A stage that is short may be over before this thread looks. */
        while (view.state != LZ_JOB_OVER && !(view.step >= 2 && view.stage && !strcmp(view.stage, "denoise")))
            view = lz_job_wait(r.job, view.changes);
        lz_job_cancel(r.job);
        while (view.state != LZ_JOB_OVER) view = lz_job_wait(r.job, view.changes);
        pthread_join(thread, NULL);
        CHECK_I64(r.status, LZ_CANCELLED);
        CHECK_I64(view.status, LZ_CANCELLED);
        CHECK(view.steps == 1000 && view.step >= 2 && view.step < 1000);
    }
    lz_job_free(r.job);
    lz_job *never = model ? lz_job_make(model, &o, NULL, &err) : NULL; /* before it runs */
    if (CHECK(never != NULL, "%s", err.text)) {
        lz_job_cancel(never);
        CHECK_STATUS(lz_job_run(never, &r.picture, &err), LZ_CANCELLED, &err);
    }
    lz_job_free(never);
    lz_model_close(model);
    CHECK_I64(lz_memory_info(ctx).active, 0);
    lz_close(ctx);
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

/* A plan counts a weight once, also if several products read parts of it or two passes read all of it: never more than
 * the file has. C is not distilled, so guidance is two passes. */
static void weights_once(void) {
    struct stat file;
    lz_error err = {0};
    lz_context *ctx = lz_open();
    lz_model *model = lz_model_open(ctx, LZ_SOURCE_DIR "/tests/data/flux2/C", &err);
    CHECK(stat(LZ_SOURCE_DIR "/tests/data/flux2/C/transformer/diffusion_pytorch_model.safetensors", &file) == 0);
    for (int guided = 0; guided < 2 && CHECK(model != NULL, "%s", err.text); guided++) {
        lz_picture_options o = small(1);
        o.guidance = guided ? 4 : 1;
        lz_picture_plan plan = {0};
        lz_job *job = lz_job_new(model, &o, &err);
        CHECK_OK(lz_job_plan(job, &plan, &err), &err);
        const lz_stage_plan *s = plan.stages;
        while (s < plan.stages + plan.n_stages - 1 && strcmp(s->stage, "denoise") != 0) s++;
        CHECK(s->weight_bytes > file.st_size / 2 && s->weight_bytes <= file.st_size, "%lld of %lld bytes",
              (long long)s->weight_bytes, (long long)file.st_size);
        lz_job_free(job);
    }
    lz_model_close(model);
    lz_close(ctx);
}

TEST_MAIN({"slots_by_name", slots_by_name}, {"planned_and_run", planned_and_run}, {"each_thing_once", each_thing_once},
          {"a_second_sampler", a_second_sampler}, {"two_jobs_interleave", two_jobs_interleave},
          {"looked_at_and_cancelled", looked_at_and_cancelled}, {"weights_once", weights_once})
