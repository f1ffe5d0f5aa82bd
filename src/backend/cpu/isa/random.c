/* random.c: normal numbers, with the bits of the reference (op/random.c) for every vector width and number of threads.
 * Uniform numbers are drawn in order, which is fast; then blocks of 16 are independent. */
#include "op/random.h"

#include <string.h>

#include "backend/cpu/isa/isa.h"
#include "op/box_muller.h"

enum { BLOCK = 16, SOME = 16, TASK = 256 }; /* numbers of a block; blocks in a loop; blocks of a task */

/* Converts several blocks at once: with their numbers in one array, a long loop becomes vector code. */
static void make_normal(float *x, int64_t blocks) {
    enum { HALF = BLOCK / 2 };
    float u[SOME * HALF], v[SOME * HALF];
    for (int64_t done = 0; done < blocks; done += SOME, x += SOME * BLOCK) {
        int n = (int)(blocks - done < SOME ? blocks - done : SOME);
        for (int i = 0; i < n; i++) {
            memcpy(u + i * HALF, x + i * BLOCK, sizeof(float[HALF]));
            memcpy(v + i * HALF, x + i * BLOCK + HALF, sizeof(float[HALF]));
        }
        for (int i = 0; i < n * HALF; i++) lz_box_muller(u[i], v[i], &u[i], &v[i]);
        for (int i = 0; i < n; i++) {
            memcpy(x + i * BLOCK, u + i * HALF, sizeof(float[HALF]));
            memcpy(x + i * BLOCK + HALF, v + i * HALF, sizeof(float[HALF]));
        }
    }
}

typedef struct normal_job {
    float *x;
    int64_t blocks;
} normal_job;

static void normal_task(void *arg, int64_t task, int thread) {
    (void)thread;
    const normal_job *job = arg;
    int64_t first = task * TASK, left = job->blocks - first;
    make_normal(job->x + first * BLOCK, left < TASK ? left : TASK);
}

static bool run_randn(const lz_call *call) { /* out f32, row-major */
    float *out = (float *)call->out.data, last[BLOCK];
    int64_t n = 1;
    for (int i = 0; i < call->out.dims.n; i++) n *= call->out.dims.at[i];
    if (!lz_torch_uniform(out, n, last, call->params->randn.seed)) return true;
    normal_job job = {out, n / BLOCK};
    lz_parallel(call->pool, (job.blocks + TASK - 1) / TASK, normal_task, &job);
    if (n % BLOCK == 0) return true;
    make_normal(last, 1);
    memcpy(out + n - BLOCK, last, sizeof last);
    return true;
}

const lz_kernel ISA(lz_kernel_randn) = {.name = "cpu.randn", .run = run_randn};
