/* cuda_packed.c: measures the products of FLUX.2 [klein] 4B's single blocks on a GPU, with packed weights and in bf16. It
 * prints one line for each packing: the time of BLOCKS blocks, its ratio to the time in bf16, and the bytes of all
 * weights on the device.
 *
 * Usage: cuda_packed [rows]        LZ_DEVICE=cuda:1, LZ_SHRINK=8: as in cuda_products.c */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/environment.h"

enum { BLOCKS = 8, REPEATS = 12 };

static const struct packing {
    const char *name;
    int elements, bytes; /* of a block */
    bool scale;
} packings[] = {{"bf16", 1, 2, false},       {"q8_0", 32, 34, false}, {"q4_k", 256, 144, false},
                {"q6_k", 256, 210, false},   {"q4_0", 32, 18, false}, {"q5_k", 256, 176, false},
                {"iq4_xs", 256, 136, false}, {"e4m3", 1, 1, true},    {"i8", 1, 1, true},
                {"bf16", 1, 2, false}};

typedef struct stack {
    const struct packing *packing;
    int64_t narrow, middle, wide; /* linear1 [wide, narrow], linear2 [narrow, middle] */
    lz_array *weights[BLOCKS][2];
} stack;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "cuda_packed: %s\n", what);
    exit(1);
}

static lz_array *weight(lz_context *ctx, const stack *s, lz_array *stored) {
    if (!strcmp(s->packing->name, "bf16")) return stored;
    lz_array *scale = s->packing->scale ? lz_full(ctx, LZ_NONE, LZ_F32, 0.01) : NULL;
    return lz_unpack(stored, scale, NULL, .packing = s->packing->name, .dtype = LZ_BF16);
}

static void describe(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    const stack *s = user;
    lz_array *x = in[0];
    for (int i = 0; i < BLOCKS; i++) {
        lz_array *h = lz_linear(x, weight(ctx, s, s->weights[i][0]), NULL);
        h = lz_silu(lz_slice(h, 1, 0, s->middle, 1));
        x = lz_add(x, lz_linear(h, weight(ctx, s, s->weights[i][1]), NULL));
    }
    out[0] = lz_sum(x, LZ_NONE, false);
}

static double measure(lz_context *ctx, stack *s, int64_t rows, const void *bytes, int64_t *stored) {
    lz_error err;
    lz_scope *scope = lz_scope_begin(ctx, s->packing->name);
    bool plain = !strcmp(s->packing->name, "bf16");
    *stored = 0;
    for (int i = 0; i < BLOCKS; i++)
        for (int k = 0; k < 2; k++) {
            int64_t out = k ? s->narrow : s->wide, in = k ? s->middle : s->narrow;
            int64_t row = plain ? in : in / s->packing->elements * s->packing->bytes;
            s->weights[i][k] = lz_borrow(ctx, LZ_DIMS(out, row), plain ? LZ_BF16 : LZ_U8, bytes, NULL, NULL);
            *stored += out * row * (plain ? 2 : 1);
        }
    lz_array *x = lz_cast(lz_randn(ctx, LZ_DIMS(rows, s->narrow), 1), LZ_BF16), *y = NULL;
    lz_compiled *f = lz_compile(ctx, describe, s, 1, 1, 1, &err);
    if (!f) die(err.text);
    double best = 1e30;
    for (int i = 0; i < REPEATS; i++) {
        lz_scope *each = lz_scope_begin(ctx, "run");
        double start = now();
        if (lz_run(f, &x, &y, &err) || !lz_data(y, &err)) die(err.text);
        if (i > 2 && now() - start < best) best = now() - start;
        lz_scope_end(each);
    }
    lz_compiled_free(f);
    lz_scope_end(scope);
    return best;
}

int main(int argc, char **argv) {
    int64_t rows = argc > 1 ? strtoll(argv[1], NULL, 10) : 4608;
    const char *smaller = getenv("LZ_SHRINK");
    int64_t shrink = smaller ? strtoll(smaller, NULL, 10) : 1;
    const char *device = getenv("LZ_DEVICE");
    if (rows < 1 || shrink < 1 || shrink > 12) die("rows from 1 on; LZ_SHRINK 1 .. 12");
    stack s = {.narrow = 3072 / shrink / 256 * 256, .middle = 12288 / shrink / 256 * 256, .wide = 27648 / shrink};
    lz_error err;
    lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = device ? device : "cuda"), &err);
    if (!ctx) die(err.text);
    int64_t most = s.wide * s.narrow * 2;
    unsigned char *bytes = malloc((size_t)most);
    if (!bytes) die("out of memory");
    uint32_t u = 1; /* so that no scale of a block and no sum is infinite */
    for (int64_t i = 0; i < most; i++) bytes[i] = (unsigned char)((u = u * 1664525u + 1013904223u) >> 24 & 0x2f);
    double plain = 0;
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++) {
        int64_t stored;
        s.packing = &packings[i];
        double seconds = measure(ctx, &s, rows, bytes, &stored);
        if (!plain) plain = seconds;
        printf("%-8s %9.3f ms  %5.2f of bf16  %8.1f MB\n", s.packing->name, seconds * 1e3, seconds / plain,
               (double)stored * 1e-6);
        fflush(stdout);
    }
    lz_close(ctx);
    free(bytes);
    return 0;
}
