/* test_failing_alloc.c: every allocation may fail, and each failure is reported as an error.
 *
 * The method is SQLite's: a scenario that uses everything runs with an allocator whose 1st allocation fails, then the
 * 2nd, 3rd, ..., until the scenario succeeds. This is done twice: with one failing allocation, and with all allocations
 * failing from there on. Each call must return LZ_OK or LZ_OUT_OF_MEMORY, results must be right, and after lz_close
 * every byte must have been released with the size of its allocation. (Allocations of jansson are not included.) */
#include <pthread.h>
#include <unistd.h>

#include "check.h"

/* ---- the allocator ----------------------------------------------------------------------------------------------- */

enum { ALIGN = 64, MAGIC = 0x1a2b3c4d };

typedef struct failing {
    atomic_llong asked, failed, outstanding, wrong_sizes;
    long long fail_at; /* the number of the allocation that fails; 0: none */
    bool and_all_after;
} failing;

typedef struct block_header {
    size_t bytes;
    uint64_t magic;
} block_header;

static void *failing_allocate(void *user, size_t bytes) {
    failing *f = user;
    long long number = atomic_fetch_add(&f->asked, 1) + 1;
    if (f->fail_at && (number == f->fail_at || (f->and_all_after && number > f->fail_at))) {
        atomic_fetch_add(&f->failed, 1);
        return NULL;
    }
    char *memory = aligned_alloc(ALIGN, (bytes + 2 * ALIGN - 1) / ALIGN * ALIGN);
    if (!memory) abort();
    *(block_header *)memory = (block_header){bytes, MAGIC};
    memset(memory + ALIGN, 0xa5, bytes); /* whoever relies on zeros will notice */
    atomic_fetch_add(&f->outstanding, (long long)bytes);
    return memory + ALIGN;
}

static void failing_release(void *user, void *memory, size_t bytes) {
    failing *f = user;
    if (!memory) return;
    block_header *h = (block_header *)((char *)memory - ALIGN);
    if (h->bytes != bytes || h->magic != MAGIC) atomic_fetch_add(&f->wrong_sizes, 1);
    atomic_fetch_sub(&f->outstanding, (long long)h->bytes);
    h->magic = 0;
    free(h);
}

/* ---- the scenario ------------------------------------------------------------------------------------------------ */

typedef struct scenario {
    lz_context *ctx;
    const char *name; /* for messages */
    long long number;
    int memory_errors, other_errors;
} scenario;

/* Notes what a step gave. True when it worked. */
static bool step(scenario *s, lz_status status, const lz_error *err, int line) {
    if (status == LZ_OK) return true;
    if (status == LZ_OUT_OF_MEMORY && err->text[0])
        s->memory_errors++;
    else {
        s->other_errors++;
        CHECK(false, "%s, allocation %lld, line %d: %s: %s", s->name, s->number, line, lz_status_name(status),
              err->text);
    }
    return false;
}
#define STEP(call) (err = (lz_error){0}, step(s, (call), &err, __LINE__))
#define MADE(pointer) step(s, (pointer) ? LZ_OK : err.status ? err.status : LZ_BAD_ARGUMENT, &err, __LINE__)

/* A graph with every kind of op. */
static lz_array *describe(lz_context *ctx, lz_array *x) { /* x [6, 8] -> one number */
    lz_scope *scope = lz_scope_begin(ctx, "every op");
    lz_array *half[2],
        *y = lz_modulated_norm(x, lz_full(ctx, LZ_DIMS(8), LZ_F32, 0.5), lz_full(ctx, LZ_DIMS(8), LZ_F32, 0.1), 1e-6);
    lz_split(lz_linear(y, lz_randn(ctx, LZ_DIMS(16, 8), 1), lz_randn(ctx, LZ_DIMS(16), 2)), -1, 2, half);
    y = lz_add(x, lz_mul(lz_silu(half[0]), half[1]));
    lz_array *q = lz_reshape(lz_permute(lz_reshape(y, LZ_DIMS(6, 2, 4)), LZ_DIMS(1, 0, 2)), LZ_DIMS(1, 2, 6, 4));
    lz_array *angle = lz_reshape(lz_arange(ctx, 0, 12, 1, LZ_F32), LZ_DIMS(6, 2));
    q = lz_rope(lz_rms_norm(q, NULL, 1e-6), lz_cos(angle), lz_sin(angle));
    q = lz_sdpa(q, q, q, .causal = true, .mask = lz_greater(lz_full(ctx, LZ_DIMS(6, 6), LZ_F32, 1), 0.0));
    y = lz_reshape(lz_permute(q, LZ_DIMS(0, 2, 1, 3)), LZ_DIMS(6, 8));
    lz_array *image = lz_reshape(y, LZ_DIMS(1, 4, 4, 3));
    image = lz_silu(lz_group_norm(image, 3, NULL, NULL, 1e-6));
    image = lz_conv2d(lz_upsample_nearest(image, 2), lz_randn(ctx, LZ_DIMS(3, 3, 3, 3), 3),
                      lz_full(ctx, LZ_DIMS(3), LZ_F32, 1), .top = 1, .left = 1, .stride = 2);
    image = lz_pad(image, LZ_DIMS(0, 1, 0, 0), LZ_DIMS(0, 0, 1, 0), 0.5);
    lz_array *flat = lz_reshape(image, LZ_DIMS(-1));
    lz_array *parts[6] = {flat,
                          lz_reshape(y, LZ_DIMS(-1)),
                          lz_take(flat, lz_from(ctx, LZ_DIMS(2), LZ_I64, (int64_t[]){1, 3}), 0),
                          lz_gather(flat, lz_from(ctx, LZ_DIMS(2), LZ_I64, (int64_t[]){0, 2}), 0),
                          lz_max(y, LZ_DIMS(0), false),
                          lz_softmax(flat, 0)};
    flat = lz_concat(parts, 6, 0); /* more inputs than a node holds by itself */
    flat = lz_where(lz_less(flat, 0.5), lz_tanh(flat), lz_cast(lz_cast(flat, LZ_BF16), LZ_F32));
    flat = lz_add(lz_sub(flat, lz_logsumexp(flat, LZ_NONE, true)), lz_cast(lz_argmax(flat, 0, false), LZ_F32));
    lz_array *codes = lz_from(ctx, LZ_DIMS(4, 8), LZ_U8, "32 codes of 8 bits, of any kind.");
    lz_array *packed = lz_linear(x, lz_unpack(codes, lz_full(ctx, LZ_NONE, LZ_F32, 0.01), NULL, .packing = "i8"), NULL);
    flat = lz_add(flat, lz_mean(packed, LZ_NONE, false));
    lz_array *f16 = lz_matmul(lz_cast(x, LZ_F16), lz_cast(lz_transpose(x), LZ_F16));
    return lz_scope_return(
        scope,
        lz_add(lz_sum(flat, LZ_NONE, false),
               lz_mean(lz_var(lz_addmm(f16, x, lz_transpose(x), .alpha = 0.5), LZ_DIMS(1), false), LZ_NONE, false)));
}

static void compiled_function(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)user;
    out[0] = lz_add(lz_mul(in[0], in[1]), lz_exp(lz_arange(ctx, 0, 8, 1, LZ_F32)));
    out[1] = describe(ctx, in[0]);
}

static double right_answer; /* of the scenario without failures */
static char folder[600];

static void run_scenario(scenario *s, const lz_allocator *allocator) {
    lz_error err = {0};
    s->ctx = lz_open_with(&LZ_CONTEXT_OPTIONS(.threads = 2, .allocator = allocator), &err);
    if (!MADE(s->ctx)) return;
    lz_context *ctx = s->ctx;
    float data[48];
    for (int i = 0; i < 48; i++) data[i] = (float)(i % 7) - 3.0f;

    lz_scope *scope = lz_scope_begin(ctx, "scenario"); /* may be NULL: then its arrays go with the context */
    lz_array *x = lz_retain(lz_from(ctx, LZ_DIMS(6, 8), LZ_F32, data));
    lz_array *y = describe(ctx, x);
    if (STEP(lz_eval(y, &err))) {
        double value = lz_item(y, &err);
        if (step(s, err.status, &err, __LINE__)) {
            if (!right_answer) right_answer = value;
            CHECK(value == right_answer, "%s, allocation %lld: %.9g, not %.9g", s->name, s->number, value,
                  right_answer);
            CHECK(isfinite(value));
        }
    }

    lz_array *again = describe(ctx, x);
    lz_plan_info info;
    STEP(lz_plan(&again, 1, &info, &err));
    for (int format = LZ_GRAPH_TEXT; format <= LZ_GRAPH_PROGRAM; format++) {
        err = (lz_error){0};
        char *text = lz_graph_text(&again, 1, (lz_graph_format)format, &err);
        MADE(text);
        lz_free_text(ctx, text);
    }

    err = (lz_error){0};
    lz_stream *stream = lz_stream_new(ctx, &err);
    if (MADE(stream)) {
        if (STEP(lz_async_eval(stream, &again, 1, &err)) && STEP(lz_wait(again, &err)) && STEP(lz_check(again, &err)))
            CHECK(lz_item(again, &err) == right_answer || err.status == LZ_OUT_OF_MEMORY, "%s, allocation %lld: stream",
                  s->name, s->number);
        lz_stream_wait(stream);
        lz_stream_free(stream);
    }

    err = (lz_error){0};
    lz_compiled *f = lz_compile(ctx, compiled_function, NULL, 2, 2, 1, &err);
    if (MADE(f)) {
        for (int i = 0; i < 4; i++) { /* new, replay, another signature that evicts, and the first again */
            lz_array *in[] = {x, lz_full(ctx, i == 2 ? LZ_DIMS(8) : LZ_DIMS(1), LZ_F32, 2)}, *out[2] = {0};
            if (STEP(lz_run(f, in, out, &err)) && STEP(lz_eval_all(out, 2, &err))) {
                err = (lz_error){0};
                double got = lz_item(out[1], &err);
                CHECK(got == right_answer || err.status == LZ_OUT_OF_MEMORY, "%s, allocation %lld: compiled %.9g",
                      s->name, s->number, got);
            }
        }
        lz_compiled_free(f);
    }

    lz_profile_start(ctx);
    STEP(lz_eval(lz_matmul(x, lz_transpose(x)), &err));
    lz_profile_stop(ctx);
    char path[700];
    snprintf(path, sizeof path, "%s/trace.json", folder);
    STEP(lz_profile_trace(ctx, path, &err));

    snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    unlink(path);
    lz_named_array named[] = {{"x", x}, {"half", lz_cast(lz_transpose(x), LZ_BF16)}};
    const char *metadata[] = {"format", "pt", NULL};
    if (STEP(lz_weights_save(ctx, path, named, 2, metadata, &err))) {
        err = (lz_error){0};
        lz_weights *w = lz_weights_open(ctx, path, &err);
        if (MADE(w)) {
            CHECK_I64(lz_weights_count(w), 2);
            lz_array *stored = lz_weights_get(w, "x"), *cast = lz_weights_cast(w, "half", LZ_F32);
            lz_weights_close(w);
            lz_array *difference = lz_sum(lz_abs(lz_sub(stored, lz_transpose(cast))), LZ_NONE, false);
            err = (lz_error){0};
            double largest = lz_item(difference, &err);
            if (step(s, err.status, &err, __LINE__)) CHECK(largest == 0.0);
        }
    } else {
        CHECK(access(path, F_OK) != 0, "%s, allocation %lld: written whole or not at all", s->name, s->number);
    }
    lz_release(x);
    lz_scope_end(scope);
    lz_close(ctx);
}

/* The table of a profile measures the machine first, which takes its time: a scenario of its own, run less often. */
static void run_table(scenario *s, const lz_allocator *allocator) {
    lz_error err = {0};
    s->ctx = lz_open_with(&LZ_CONTEXT_OPTIONS(.threads = 2, .allocator = allocator), &err);
    if (!MADE(s->ctx)) return;
    lz_profile_start(s->ctx);
    STEP(lz_eval(lz_exp(lz_arange(s->ctx, 0, 100, 1, LZ_F32)), &err));
    lz_profile_stop(s->ctx);
    err = (lz_error){0};
    char *table = lz_profile_table(s->ctx, &err);
    if (MADE(table)) CHECK_TEXT(table, "total");
    lz_free_text(s->ctx, table);
    lz_close(s->ctx);
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

typedef void (*scenario_function)(scenario *s, const lz_allocator *allocator);

/* Returns how many allocations were asked for, negative when one failed. */
static long long run_one(scenario_function run, const char *name, long long fail_at, bool and_all_after) {
    failing f = {.fail_at = fail_at, .and_all_after = and_all_after};
    lz_allocator allocator = {failing_allocate, failing_release, &f};
    scenario s = {.name = name, .number = fail_at};
    run(&s, &allocator);
    CHECK(f.outstanding == 0, "%s, allocation %lld: %lld bytes leak", name, fail_at, (long long)f.outstanding);
    CHECK(f.wrong_sizes == 0, "%s, allocation %lld: %lld blocks given back with another size", name, fail_at,
          (long long)f.wrong_sizes);
    if (!fail_at)
        CHECK(s.memory_errors == 0 && s.other_errors == 0, "without failures: %d errors",
              s.memory_errors + s.other_errors);
    if (and_all_after && f.failed) CHECK(s.memory_errors > 0, "%s, allocation %lld: nobody noticed", name, fail_at);
    return f.failed ? -f.asked : f.asked;
}

static void make_folder(void) {
    snprintf(folder, sizeof folder, "%s/lazuli-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    CHECK(mkdtemp(folder) != NULL);
}
static void remove_folder(void) {
    static const char *const files[] = {"trace.json", "weights.safetensors"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[700];
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    CHECK(rmdir(folder) == 0, "something was left in %s", folder);
}

static void fail_each(const char *name, bool and_all_after) {
    make_folder();
    right_answer = 0;
    CHECK(run_one(run_scenario, "no failure", 0, false) > 0);
    int every = 100 / test_scale(100); /* at a small scale, every tenth */
    if (every < 1) every = 1;
    long long n = 1;
    while (run_one(run_scenario, name, n, and_all_after) < 0 && n < 1000000) n += every;
    CHECK(n > 100, "%lld allocations", n);
    printf("    %s: went through at allocation %lld\n", name, n);
    remove_folder();
}

static void fail_one(void) { fail_each("only this", false); }
static void fail_all_after(void) { fail_each("this and all after", true); }

static void fail_table(void) {
    make_folder();
    long long n = run_one(run_table, "table, no failure", 0, false);
    CHECK(n > 0);
    for (long long back = 1; back < n; back *= 2) run_one(run_table, "table", n - back, true);
    remove_folder();
}

TEST_MAIN({"fail_one", fail_one}, {"fail_all_after", fail_all_after}, {"fail_table", fail_table})
