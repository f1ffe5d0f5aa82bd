/* test_threads.c: several threads, one context. Results are checked here; missing locks are found by the
 * thread sanitizer: `make test-threads` builds this program with it. */
#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "graph/graph.h"
#include "models/param.h"

enum { THREADS = 3, ROUNDS = 30 };

typedef struct shared {
    lz_context *ctx;
    lz_array *x;           /* [8, 8], 1 everywhere: read by all */
    lz_compiled *compiled; /* x -> x + x */
    lz_model *model;
    atomic_int left;  /* threads that still run programs */
    atomic_bool stop; /* pictures shall stop */
    atomic_int painted, stopped;
    const char *path; /* a file that the threads read or write */
} shared;

static void run_all(void *(*work)(void *), shared *s, void *(*beside)(void *)) {
    pthread_t threads[THREADS + 1];
    atomic_store(&s->left, THREADS);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, work, s) == 0);
    CHECK(pthread_create(&threads[THREADS], NULL, beside, s) == 0);
    for (int i = 0; i <= THREADS; i++) pthread_join(threads[i], NULL);
}

static void twice(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx, (void)user;
    out[0] = lz_add(in[0], in[0]);
}

/* Eager, compiled and in the background. */
static void *run_programs(void *arg) {
    shared *s = arg;
    lz_error err = {.status = LZ_OK};
    lz_stream *stream = lz_stream_new(s->ctx, &err);
    for (int i = 0; i < test_scale(ROUNDS); i++) {
        lz_scope *scope = lz_scope_begin(s->ctx, "round");
        lz_array *sum = lz_sum(lz_matmul(lz_exp(lz_mul(s->x, 0.0)), s->x), LZ_NONE, false);
        CHECK(lz_item(sum, &err) == 512, "%s", err.text);
        lz_array *out[1] = {NULL};
        CHECK_OK(lz_run(s->compiled, &s->x, out, &err), &err);
        CHECK(lz_item(lz_mean(out[0], LZ_NONE, false), &err) == 2, "%s", err.text);
        lz_array *later = lz_transpose(lz_add(s->x, 2.0));
        CHECK_OK(lz_async_eval(stream, &later, 1, &err), &err);
        const float *data = lz_data(later, &err);
        CHECK(data && data[63] == 3, "%s", err.text);
        lz_scope_end(scope);
    }
    lz_stream_free(stream);
    atomic_fetch_sub(&s->left, 1);
    return NULL;
}

/* trap 9: a profile starts, stops and is shown while programs run. */
static void *profile(void *arg) {
    shared *s = arg;
    lz_error err = {.status = LZ_OK};
    do {
        lz_profile_start(s->ctx);
        usleep(500);
        CHECK_OK(lz_profile_trace(s->ctx, s->path, &err), &err);
        lz_profile_start(s->ctx);
        usleep(500);
        char *table = lz_profile_table(s->ctx, &err);
        CHECK(table && strstr(table, "total"), "%s", err.text);
        lz_free_text(s->ctx, table);
        lz_profile_start(s->ctx); /* records that are shown by nobody */
        lz_profile_stop(s->ctx);
        lz_memory_info(s->ctx);
        lz_compiled_stats(s->compiled);
        lz_clear_cache(s->ctx);
        lz_reset_peak(s->ctx);
    } while (atomic_load(&s->left));
    return NULL;
}

static void profile_while_running(void) {
    char folder[] = "/tmp/lazuli-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/trace.json", folder);
    lz_error err = {.status = LZ_OK};
    shared s = {.ctx = lz_open(.threads = 2, .error = &err), .path = path};
    if (!CHECK(s.ctx != NULL, "%s", err.text)) return;
    s.x = lz_full(s.ctx, LZ_DIMS(8, 8), LZ_F32, 1);
    s.compiled = lz_compile(s.ctx, twice, NULL, 1, 1, 0, &err);
    run_all(run_programs, &s, profile);
    lz_compiled_free(s.compiled);
    lz_close(s.ctx);
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

/* A model serves several threads; seeds decide the pictures, not the order. */
static void *paint(void *arg) {
    shared *s = arg;
    lz_error err = {.status = LZ_OK};
    lz_picture picture;
    lz_status status = lz_generate(s->model, &picture, &err, .prompt = "a fox", .width = 32, .height = 32, .steps = 2,
                                   .seed = 1);
    if (CHECK_OK(status, &err)) CHECK_I64(picture.image.width, 32);
    lz_picture_free(&picture);
    atomic_fetch_sub(&s->left, 1);
    return NULL;
}

/* Meanwhile: facts, plans, and a profile. */
static void *look_on(void *arg) {
    shared *s = arg;
    lz_error err = {.status = LZ_OK};
    do {
        lz_picture_plan plan;
        CHECK_I64(lz_model_about(s->model).channels, 128);
        CHECK_OK(
            lz_plan_picture(s->model, &LZ_PICTURE_OPTIONS(.prompt = "a fox", .width = 32, .height = 32), &plan, &err),
            &err);
        lz_profile_start(s->ctx);
        lz_profile_stop(s->ctx);
    } while (atomic_load(&s->left));
    return NULL;
}

static void paint_from_threads(void) {
    lz_error err = {.status = LZ_OK};
    shared s = {.ctx = lz_open(.threads = 2, .error = &err)};
    if (!CHECK(s.ctx != NULL, "%s", err.text)) return;
    s.model = lz_model_open(s.ctx, LZ_SOURCE_DIR "/tests/data/flux2/A", &err);
    if (CHECK(s.model != NULL, "%s", err.text)) run_all(paint, &s, look_on);
    lz_model_close(s.model);
    lz_close(s.ctx);
}

/* ---- compile ----------------------------------------------------------------------------------------------------- */

static void scale_by(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx;
    out[0] = lz_mul(lz_add(in[0], in[0]), *(double *)user);
}

/* A function of its own and one that all share, for inputs of many shapes: more than a function keeps programs for. */
static void *compile_and_run(void *arg) {
    shared *s = arg;
    lz_error err = {.status = LZ_OK};
    for (int i = 0; i < test_scale(ROUNDS); i++) {
        lz_scope *scope = lz_scope_begin(s->ctx, "compile");
        double factor = i + 1;
        lz_array *x = lz_full(s->ctx, LZ_DIMS(3 + i % 20, 4), LZ_F32, 1), *out[1] = {NULL};
        CHECK_OK(lz_eval(x, &err), &err);
        lz_compiled *own = lz_compile(s->ctx, scale_by, &factor, 1, 1, 2, &err);
        for (int turn = 0; turn < 2 && CHECK(own != NULL, "%s", err.text); turn++) {
            CHECK_OK(lz_run(own, &x, out, &err), &err);
            CHECK(lz_item(lz_mean(out[0], LZ_NONE, false), &err) == 2 * factor, "%s", err.text);
        }
        CHECK_OK(lz_run(s->compiled, &x, out, &err), &err);
        CHECK(lz_item(lz_mean(out[0], LZ_NONE, false), &err) == 2, "%s", err.text);
        lz_compiled_free(own);
        lz_scope_end(scope);
    }
    atomic_fetch_sub(&s->left, 1);
    return NULL;
}

/* Meanwhile: what the shared function has done, and contexts that open and close. */
static void *open_and_close(void *arg) {
    shared *s = arg;
    lz_error err = {.status = LZ_OK};
    do {
        CHECK(lz_compiled_stats(s->compiled).cached <= 3);
        lz_context *other = lz_open(.threads = 2, .error = &err);
        if (CHECK(other != NULL, "%s", err.text)) {
            lz_array *sum = lz_sum(lz_exp(lz_full(other, LZ_DIMS(64, 64), LZ_F32, 0)), LZ_NONE, false);
            CHECK(lz_item(sum, &err) == 4096, "%s", err.text);
        }
        lz_close(other);
    } while (atomic_load(&s->left));
    return NULL;
}

static void compile_from_threads(void) {
    lz_error err = {.status = LZ_OK};
    shared s = {.ctx = lz_open(.threads = 2, .error = &err)};
    if (!CHECK(s.ctx != NULL, "%s", err.text)) return;
    s.compiled = lz_compile(s.ctx, twice, NULL, 1, 1, 3, &err);
    if (CHECK(s.compiled != NULL, "%s", err.text)) run_all(compile_and_run, &s, open_and_close);
    lz_compiled_free(s.compiled);
    CHECK_I64(lz_memory_info(s.ctx).active, 0);
    lz_close(s.ctx);
}

/* ---- cancel and close -------------------------------------------------------------------------------------------- */

static bool go_on(void *user, const lz_progress *now) {
    (void)now;
    return !atomic_load(&((shared *)user)->stop);
}

/* Pictures of a model that all share, and of one that this thread opens and closes. Each is whole, or stopped. */
static void *paint_until_stopped(void *arg) {
    shared *s = arg;
    lz_error err = {.status = LZ_OK};
    for (int i = 0; i < test_scale(8); i++) {
        lz_picture picture;
        lz_model *own = i % 2 ? lz_model_open(s->ctx, LZ_SOURCE_DIR "/tests/data/flux2/B", &err) : NULL;
        CHECK(own || i % 2 == 0, "%s", err.text);
        lz_status status = lz_generate(own ? own : s->model, &picture, &err, .prompt = "a fox", .width = 32,
                                       .height = 32, .steps = 3, .seed = (uint64_t)i, .watch = go_on, .user = s);
        CHECK(status == LZ_OK || status == LZ_CANCELLED, "%s", err.text);
        atomic_fetch_add(status ? &s->stopped : &s->painted, 1);
        lz_picture_free(&picture);
        lz_model_close(own);
    }
    atomic_fetch_sub(&s->left, 1);
    return NULL;
}

static void *stop_now_and_then(void *arg) {
    shared *s = arg;
    do {
        int before = atomic_load(&s->painted);
        usleep(2000);
        atomic_store(&s->stop, true);
        usleep(2000);
        atomic_store(&s->stop, false);
        while (atomic_load(&s->left) && atomic_load(&s->painted) == before) usleep(1000); /* one is whole */
    } while (atomic_load(&s->left));
    return NULL;
}

static void cancel_and_close_from_threads(void) {
    lz_error err = {.status = LZ_OK};
    shared s = {.ctx = lz_open(.threads = 2, .error = &err)};
    if (!CHECK(s.ctx != NULL, "%s", err.text)) return;
    s.model = lz_model_open(s.ctx, LZ_SOURCE_DIR "/tests/data/flux2/B", &err);
    if (CHECK(s.model != NULL, "%s", err.text)) run_all(paint_until_stopped, &s, stop_now_and_then);
    printf("    %d pictures painted, %d stopped\n", atomic_load(&s.painted), atomic_load(&s.stopped));
    CHECK_I64(atomic_load(&s.painted) + atomic_load(&s.stopped), THREADS * test_scale(8));
    lz_model_close(s.model);
    CHECK_I64(lz_memory_info(s.ctx).active, 0);
    lz_close(s.ctx);
}

/* ---- weights that several threads open ---------------------------------------------------------------------------- */

/* Opens a file, and makes the same array from it as the other threads do, while they open and close it too. */
static void *open_the_same_file(void *arg) {
    shared *s = arg;
    for (int i = 0; i < 10 * test_scale(ROUNDS); i++) {
        lz_error err = {.status = LZ_OK};
        lz_scope *scope = lz_scope_begin(s->ctx, "file");
        lz_weights *w = lz_weights_open(s->ctx, s->path, &err);
        if (CHECK(w != NULL, "%s", err.text)) {
            lz_array *x = lz_weights_get(w, "x");
            lz_array *narrow = lz_recipe_value(s->ctx, &lz_recipe_cast, LZ_DIMS(8, 8), LZ_BF16, &x, 1, &err);
            CHECK(narrow && lz_item(lz_sum(lz_cast(narrow, LZ_F32), LZ_NONE, false), &err) == 96, "%s", err.text);
        }
        lz_weights_close(w);
        lz_scope_end(scope);
    }
    atomic_fetch_sub(&s->left, 1);
    return NULL;
}

static void share_from_threads(void) {
    char folder[] = "/tmp/lazuli-XXXXXX", path[64];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/x.safetensors", folder);
    lz_error err = {.status = LZ_OK};
    shared s = {.ctx = lz_open(.threads = 2, .error = &err), .path = path};
    if (!CHECK(s.ctx != NULL, "%s", err.text)) return;
    lz_scope *scope = lz_scope_begin(s.ctx, "save");
    const lz_named_array x = {"x", lz_contiguous(lz_full(s.ctx, LZ_DIMS(8, 8), LZ_F32, 1.5))};
    CHECK_OK(lz_weights_save(s.ctx, path, &x, 1, NULL, &err), &err);
    lz_scope_end(scope);
    run_all(open_the_same_file, &s, open_the_same_file);
    CHECK_I64(lz_memory_info(s.ctx).active, 0);
    lz_close(s.ctx);
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
}

/* ---- while one thread plans -------------------------------------------------------------------------------------- */

typedef struct meeting {
    lz_context *ctx;
    lz_compiled *compiled; /* x -> x + x, known for [8, 8] */
    lz_array *x;
    atomic_int planning; /* the planner has begun */
    atomic_int met;      /* the other thread is done with all that it does beside */
    bool waited;         /* in vain */
} meeting;
static meeting *now_planning; /* kernels have no user's pointer; NULL: nobody meets */

/* Asked while a graph is planned: waits until the other thread is done. It never would be if planning held a lock. */
static int64_t meet(const lz_call *call) {
    meeting *m = call->op == LZ_OP_SOFTMAX ? now_planning : NULL;
    if (!m || atomic_exchange(&m->planning, 1)) return 0;
    for (int i = 0; i < 60000 && !atomic_load(&m->met); i++) usleep(1000);
    m->waited = !atomic_load(&m->met);
    return 0;
}

static bool run_softmax(const lz_call *call) { return lz_ref_backend()->kernel(LZ_OP_SOFTMAX)->run(call); }

static const lz_kernel *find_kernel(lz_op op) {
    static const lz_kernel softmax = {.name = "meeting.softmax", .run = run_softmax, .scratch = meet};
    return op == LZ_OP_SOFTMAX ? &softmax : lz_ref_backend()->kernel(op);
}

/* Looks at figures, describes, plans, evaluates here and on a stream, and runs a compiled function. */
static void *do_all_beside(void *arg) {
    meeting *m = arg;
    lz_error err = {.status = LZ_OK};
    while (!atomic_load(&m->planning)) usleep(100);
    CHECK_I64(lz_compiled_stats(m->compiled).cached, 1);
    CHECK(lz_memory_info(m->ctx).active > 0);
    lz_scope *scope = lz_scope_begin(m->ctx, "beside");
    lz_stream *stream = lz_stream_new(m->ctx, &err);
    lz_array *sum = lz_sum(lz_mul(m->x, 3.0), LZ_NONE, false), *later = lz_add(m->x, 1.0), *out[1] = {NULL};
    lz_plan_info info;
    CHECK_OK(lz_plan(&sum, 1, &info, &err), &err);
    CHECK(lz_item(sum, &err) == 192, "%s", err.text);
    CHECK_OK(lz_async_eval(stream, &later, 1, &err), &err);
    CHECK(lz_item(lz_mean(later, LZ_NONE, false), &err) == 2, "%s", err.text);
    CHECK_OK(lz_run(m->compiled, &m->x, out, &err), &err);
    lz_stream_free(stream);
    lz_scope_end(scope);
    atomic_store(&m->met, 1);
    return NULL;
}

static void no_lock_while_planning(void) {
    static const lz_backend backend = {.name = "meeting", .kernel = find_kernel};
    lz_error err = {.status = LZ_OK};
    for (int way = 0; way < 4; way++) { /* evaluated, planned, in the background, printed */
        meeting m = {.ctx = lz_open(.device = "ref", .threads = 1)};
        if (!CHECK(m.ctx != NULL)) return;
        m.ctx->backend = &backend;
        m.compiled = lz_compile(m.ctx, twice, NULL, 1, 1, 1, &err);
        m.x = lz_contiguous(lz_full(m.ctx, LZ_DIMS(8, 8), LZ_F32, 1));
        lz_array *out[1] = {NULL}, *y = lz_softmax(lz_add(m.x, m.x), -1);
        CHECK_OK(lz_run(m.compiled, &m.x, out, &err), &err);
        now_planning = &m;
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, do_all_beside, &m) == 0);
        lz_stream *stream = lz_stream_new(m.ctx, &err);
        lz_plan_info info;
        char *text = NULL;
        if (way == 0) CHECK_OK(lz_eval(y, &err), &err);
        if (way == 1) CHECK_OK(lz_plan(&y, 1, &info, &err), &err);
        if (way == 2) CHECK_OK(lz_async_eval(stream, &y, 1, &err), &err);
        if (way == 3) text = lz_graph_text(&y, 1, LZ_GRAPH_PROGRAM, &err);
        pthread_join(thread, NULL);
        now_planning = NULL;
        CHECK(!m.waited && atomic_load(&m.met), "way %d", way);
        CHECK(lz_item(lz_mean(y, LZ_NONE, false), &err) == 0.125, "%s", err.text);
        lz_free_text(m.ctx, text);
        lz_stream_free(stream);
        lz_compiled_free(m.compiled);
        lz_close(m.ctx);
    }
}

TEST_MAIN({"profile_while_running", profile_while_running}, {"paint_from_threads", paint_from_threads},
          {"compile_from_threads", compile_from_threads},
          {"cancel_and_close_from_threads", cancel_and_close_from_threads}, {"share_from_threads", share_from_threads},
          {"no_lock_while_planning", no_lock_while_planning})
