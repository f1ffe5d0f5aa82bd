/* hello.c: the whole idea in one page. Build it against an installed library with
 *     cc hello.c $(pkg-config --cflags --libs lazuli) -o hello
 * docs/embedding.md says what to add if the library is in a folder of your own. */
#include <lazuli.h>
#include <stdio.h>

int main(void) {
    lz_error err;
    lz_context *ctx = lz_open(.error = &err); /* the CPU, all its cores */
    if (!ctx) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }

    /* Describe: three rows of two numbers, their squares plus one, the sum of each row. Nothing is computed yet. */
    lz_array *x = lz_reshape(lz_arange(ctx, 0, 6, 1, LZ_F32), LZ_DIMS(3, 2));
    lz_array *y = lz_add(lz_square(x), 1.0);
    lz_array *sums = lz_sum(y, LZ_DIMS(1), false);

    /* Look: now everything that was described is planned as a whole and run as one program. */
    const float *p = lz_data(sums, &err);
    if (!p) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (int i = 0; i < 3; i++) printf("row %d: %g\n", i, (double)p[i]);

    /* Errors stick: a wrong shape poisons what is built on it, and the first look says what was wrong, and where. */
    lz_array *wrong = lz_exp(lz_matmul(x, x));
    if (lz_eval(wrong, &err) != LZ_OK) printf("as expected: %s\n", err.text);

    lz_close(ctx); /* frees every array that is left */
    return 0;
}
