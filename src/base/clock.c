/* clock.c: the clock for measurements. */
#include <time.h>

#include "base/base.h"

double lz_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
