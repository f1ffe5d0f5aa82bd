/* hello.c: lazy arrays. Build it against an installed library with
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

    /* Describe three rows of two numbers, their squares plus one, and the sum of each row. Nothing is computed yet. */
    lz_array *x = lz_reshape(lz_arange(ctx, 0, 6, 1, LZ_F32), LZ_DIMS(3, 2));
    lz_array *y = lz_add(lz_square(x), 1.0);
    lz_array *sums = lz_sum(y, LZ_DIMS(1), false);

    /* lz_data plans everything that was described as a whole, and runs it as one program. */
    const float *p = lz_data(sums, &err);
    if (!p) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (int i = 0; i < 3; i++) printf("row %d: %g\n", i, (double)p[i]);

    /* Errors are kept. A wrong shape poisons the array and all arrays made from it. lz_eval returns the first error. */
    lz_array *wrong = lz_exp(lz_matmul(x, x));
    if (lz_eval(wrong, &err) != LZ_OK) printf("as expected: %s\n", err.text);

    lz_close(ctx); /* frees all arrays */
    return 0;
}
