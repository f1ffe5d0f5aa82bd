/* profile.c: the time that each kernel takes. Records are kept between start and stop. The table sums them by kernel
 * and compares them with the peak rates of this machine, measured with a large matrix product and a large copy.
 *
 * base.lock guards everything in lz_profile, so a thread may start, stop or show a profile while other threads run
 * programs. A program calls lz_profile_on once, when it begins: a program that is already running when the profile
 * starts is not timed. */
#define LZ_NO_SUGAR
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "graph/graph.h"

typedef struct record {
    const char *kernel, *file;
    int line;
    double start, end, flops, bytes;
} record;

typedef struct lz_profile {
    record *records;
    int64_t n, capacity, lost; /* lost: records that were dropped because memory ran out */
    double origin;
    bool on, started;
    double peak_flops, peak_bytes; /* per second; 0: not measured yet */
} lz_profile;

bool lz_profile_new(lz_context *ctx) {
    ctx->profile = lz_host_alloc(ctx, sizeof *ctx->profile);
    return ctx->profile;
}

bool lz_profile_on(lz_context *ctx) {
    LZ_LOCK(ctx);
    bool on = ctx->profile->on;
    LZ_UNLOCK(ctx);
    return on;
}

void lz_profile_start(lz_context *ctx) {
    if (!ctx) return;
    LZ_LOCK(ctx);
    ctx->profile->n = ctx->profile->lost = 0;
    ctx->profile->origin = lz_now();
    ctx->profile->on = ctx->profile->started = true;
    LZ_UNLOCK(ctx);
}

void lz_profile_stop(lz_context *ctx) {
    if (!ctx) return;
    LZ_LOCK(ctx);
    ctx->profile->on = false;
    LZ_UNLOCK(ctx);
}

void lz_profile_free(lz_context *ctx) {
    if (ctx->profile) lz_host_free(ctx, ctx->profile->records);
    lz_host_free(ctx, ctx->profile);
    ctx->profile = NULL;
}

void lz_profile_record(lz_context *ctx, const lz_step *step, double start, double end) {
    LZ_LOCK(ctx);
    lz_profile *p = ctx->profile;
    if (p->on && p->n == p->capacity) {
        int64_t capacity = p->capacity * 2 + 1024;
        record *records = lz_host_alloc(ctx, (size_t)capacity * sizeof *records);
        if (records) {
            if (p->n) memcpy(records, p->records, (size_t)p->n * sizeof *records);
            lz_host_free(ctx, p->records);
            p->records = records;
            p->capacity = capacity;
        }
    }
    if (p->on && p->n < p->capacity)
        p->records[p->n++] = (record){step->kernel->name, step->file, step->line, start, end, step->flops, step->bytes};
    else
        p->lost += p->on;
    LZ_UNLOCK(ctx);
}

/* ---- what the machine can do ------------------------------------------------------------------------------------- */

/* Seconds of the fastest of three runs. */
static double best_time(lz_array *(*describe)(lz_array *), lz_array *x, lz_error *err) {
    double best = 1e30;
    for (int i = 0; i < 3; i++) {
        lz_scope *scope = lz_scope_begin(x->ctx, "peak");
        lz_array *y = describe(x);
        double start = lz_now();
        if (lz_eval(y, err) || lz_wait(y, err)) best = 0;
        double took = lz_now() - start;
        if (took < best) best = took;
        lz_scope_end(scope);
    }
    return best;
}

static lz_array *square_product(lz_array *x) { return lz_matmul(x, x); }
static lz_array *twice(lz_array *x) { return lz_concat((lz_array *[]){x, x}, 2, 0); }

/* Varied values: some machines are faster on constant ones. */
static lz_array *waves(lz_context *ctx, lz_dims dims, lz_dtype type) {
    lz_array *x = lz_sin(lz_arange(ctx, 0, (double)lz_dims_size(dims), 1, LZ_F32));
    return lz_cast(lz_reshape(x, dims), type);
}

/* Operations or bytes per second, at the first size that takes long enough to be measured. */
static double best_rate(lz_context *ctx, lz_array *(*describe)(lz_array *), bool product, lz_error *err) {
    enum { SMALLEST = 192, LARGEST = 12288, ROW = 1024 };
    lz_dtype type = product ? ctx->compute : LZ_F32;
    double rate = 0;
    for (int64_t n = SMALLEST; n <= LARGEST; n *= 2) {
        lz_scope *scope = lz_scope_begin(ctx, "peak");
        lz_array *x = lz_contiguous(waves(ctx, product ? LZ_DIMS(n, n) : LZ_DIMS(4 * n, ROW), type));
        double took = lz_eval(x, err) ? 0 : best_time(describe, x, err), d = (double)n;
        if (took > 0) rate = (product ? 2 * d * d * d : 4 * 4 * d * ROW * (double)lz_dtype_size(type)) / took;
        lz_scope_end(scope);
        if (took <= 0) return 0;
        if (took > 4e-3) break;
    }
    return rate;
}

/* Measures the peak rates, once per context. Runs programs, so the caller must not hold base.lock. */
static lz_status measure_peaks(lz_context *ctx, double *flops, double *bytes, lz_error *err) {
    lz_profile *p = ctx->profile;
    LZ_LOCK(ctx);
    *flops = p->peak_flops;
    *bytes = p->peak_bytes;
    LZ_UNLOCK(ctx);
    if (*flops > 0) return LZ_OK;
    lz_error local = {.status = LZ_OK};
    *flops = best_rate(ctx, square_product, true, &local);
    *bytes = local.status ? 0 : best_rate(ctx, twice, false, &local);
    if (local.status && err) *err = local;
    if (local.status) return local.status;
    LZ_LOCK(ctx);
    p->peak_flops = *flops;
    p->peak_bytes = *bytes;
    LZ_UNLOCK(ctx);
    return LZ_OK;
}

/* ---- showing it -------------------------------------------------------------------------------------------------- */

typedef struct row {
    const char *kernel;
    int64_t calls;
    double seconds, flops, bytes;
} row;

static int slowest_first(const void *a, const void *b) {
    double x = ((const row *)a)->seconds, y = ((const row *)b)->seconds;
    return (x < y) - (x > y);
}

static int sum_by_kernel(const lz_profile *p, row rows[LZ_OP_COUNT * 2]) {
    int n = 0;
    for (int64_t i = 0; i < p->n; i++) {
        const record *r = &p->records[i];
        int at = 0;
        while (at < n && strcmp(rows[at].kernel, r->kernel)) at++;
        if (at == n) rows[n++] = (row){.kernel = r->kernel};
        rows[at].calls++;
        rows[at].seconds += r->end - r->start;
        rows[at].flops += r->flops;
        rows[at].bytes += r->bytes;
    }
    qsort(rows, (size_t)n, sizeof *rows, slowest_first);
    return n;
}

char *lz_profile_table(lz_context *ctx, lz_error *err) {
    if (!ctx) {
        lz_fail(err, LZ_BAD_ARGUMENT, "profile_table: the context is NULL");
        return NULL;
    }
    row rows[LZ_OP_COUNT * 2];
    lz_profile *p = ctx->profile;
    LZ_LOCK(ctx); /* rows, launches and lost must be of one moment: another thread may restart the profile */
    p->on = false;
    bool started = p->started;
    int n = sum_by_kernel(p, rows);
    int64_t launches = p->n, lost = p->lost;
    LZ_UNLOCK(ctx);
    if (!started) {
        lz_fail(err, LZ_BAD_ARGUMENT, "profile_table: nothing was profiled; call lz_profile_start first");
        return NULL;
    }
    double peak_flops, peak_bytes, total = 0;
    if (measure_peaks(ctx, &peak_flops, &peak_bytes, err)) return NULL;
    for (int i = 0; i < n; i++) total += rows[i].seconds;
    lz_text t = {.ctx = ctx};
    lz_text_add(&t, "%s; measured peak %.1f GFLOP/s, %.1f GB/s\n", ctx->device_name, peak_flops / 1e9,
                peak_bytes / 1e9);
    lz_text_add(&t, "%-20s %8s %12s %6s %12s %12s %6s %6s\n", "kernel", "calls", "ms", "time", "GFLOP/s", "GB/s",
                "flops", "bytes");
    for (int i = 0; i < n; i++) {
        const row *r = &rows[i];
        double s = r->seconds > 0 ? r->seconds : 1e-9;
        lz_text_add(&t, "%-20s %8lld %12.3f %5.1f%% %12.2f %12.2f %5.1f%% %5.1f%%\n", r->kernel, (long long)r->calls,
                    r->seconds * 1e3, 100 * r->seconds / (total > 0 ? total : 1), r->flops / s / 1e9,
                    r->bytes / s / 1e9, 100 * r->flops / s / peak_flops, 100 * r->bytes / s / peak_bytes);
    }
    lz_text_add(&t, "%-20s %8lld %12.3f\n", "total", (long long)launches, total * 1e3);
    if (lost) lz_text_add(&t, "%lld launches were not recorded: out of memory\n", (long long)lost);
    return lz_text_take(&t, err);
}

/* Adds a string with JSON escapes; file names may contain any byte. */
static void add_json_text(lz_text *t, const char *text) {
    lz_text_add(t, "\"");
    for (; *text; text++)
        if ((unsigned char)*text >= 0x20) lz_text_add(t, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    lz_text_add(t, "\"");
}

static void add_events(lz_text *t, const lz_profile *p) {
    lz_text_add(t, "{\"traceEvents\":[");
    for (int64_t i = 0; i < p->n; i++) {
        const record *r = &p->records[i];
        lz_text_add(t, "%s\n{\"ph\":\"X\",\"pid\":1,\"tid\":1,\"name\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,", i ? "," : "",
                    r->kernel, (r->start - p->origin) * 1e6, (r->end - r->start) * 1e6);
        lz_text_add(t, "\"args\":{\"flops\":%.0f,\"bytes\":%.0f,\"line\":%d,\"at\":", r->flops, r->bytes, r->line);
        add_json_text(t, r->file ? r->file : "");
        lz_text_add(t, "}}");
    }
    lz_text_add(t, "\n]}\n");
}

lz_status lz_profile_trace(lz_context *ctx, const char *path, lz_error *err) {
    if (!ctx || !path) return lz_fail(err, LZ_BAD_ARGUMENT, "profile_trace: the %s is NULL", ctx ? "path" : "context");
    lz_text t = {.ctx = ctx};
    LZ_LOCK(ctx);
    ctx->profile->on = false;
    bool started = ctx->profile->started;
    if (started) add_events(&t, ctx->profile);
    LZ_UNLOCK(ctx);
    if (!started)
        return lz_fail(err, LZ_BAD_ARGUMENT, "profile_trace: nothing was profiled; call lz_profile_start first");
    size_t length = t.length;
    char *text = lz_text_take(&t, err);
    if (!text) return LZ_OUT_OF_MEMORY;
    lz_writer writer;
    lz_status status = lz_writer_open(&writer, ctx, path, err);
    if (!status) status = lz_writer_add(&writer, text, (int64_t)length, err);
    if (!status) status = lz_writer_commit(&writer, err);
    lz_writer_discard(&writer);
    lz_host_free(ctx, text);
    return status;
}
