/* klein_gemm.c: measures the largest matrix product of FLUX.2-klein-4B at 512x512 on this machine, in f32, or with
 * "bf16" or "int8" as the argument in these types; int8 includes rotating and rounding the activations. It prints two rates in Gflop/s, each the best of three runs: with all threads by the clock, and
 * with one thread by processor time, which other programs on the machine hardly change. bench/klein computes its floors
 * from them. */
#include <lazuli.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double rate(lz_dtype dtype, int threads, clockid_t clock, lz_error *err) {
    enum { M = 1536, K = 3072, N = 27648 };
    bool int8 = dtype == LZ_I8;
    lz_context *ctx = lz_open(.threads = threads, .compute = int8 ? LZ_I8 : 0, .error = err);
    if (!ctx) return 0;
    lz_array *a = lz_cast(lz_randn(ctx, LZ_DIMS(M, K), 1), int8 ? LZ_BF16 : dtype),
             *b = lz_randn(ctx, LZ_DIMS(N, K), 2);
    b = lz_cast(int8 ? lz_mul(b, lz_full(ctx, LZ_NONE, LZ_F32, 30)) : b, dtype);
    bool fine = lz_data(a, err) && lz_data(b, err);
    double best = 1e30;
    for (int i = 0; i < 4 && fine; i++) { /* the first run touches the memory, and is not measured */
        lz_scope *scope = lz_scope_begin(ctx, "product");
        double start = seconds(clock);
        lz_array *w = int8 ? lz_unpack(b, NULL, NULL, .packing = "i8", .factor = 0.01, .rotate = 256) : b;
        fine = lz_data(lz_linear(a, w, NULL), err) != NULL;
        if (i && seconds(clock) - start < best) best = seconds(clock) - start;
        lz_scope_end(scope);
    }
    lz_close(ctx);
    return fine ? 2e-9 * M * K * N / best : 0;
}

int main(int argc, char **argv) {
    lz_error err = {.status = LZ_OK};
    mallopt(M_MMAP_MAX,
            0); /* freed memory stays with the process; otherwise the system clears new pages for every result */
    mallopt(M_TRIM_THRESHOLD, -1);
    const char *type = argc > 1 ? argv[1] : "f32";
    lz_dtype dtype = !strcmp(type, "bf16") ? LZ_BF16 : !strcmp(type, "int8") ? LZ_I8 : LZ_F32;
    double all = rate(dtype, 0, CLOCK_MONOTONIC, &err);
    double one = all > 0 ? rate(dtype, 1, CLOCK_PROCESS_CPUTIME_ID, &err) : 0;
    if (one > 0) printf("%.1f %.1f\n", all, one);
    if (err.status) fprintf(stderr, "klein_gemm: %s\n", err.text);
    return err.status != LZ_OK;
}
