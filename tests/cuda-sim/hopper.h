/* hopper.h: a context on a Hopper GPU, for tests of the kernels that only those have. */
#ifndef LZ_TEST_HOPPER_H
#define LZ_TEST_HOPPER_H

#include "array/internal.h"
#include "backend/cuda/cuda.h"
#include "check.h"
#include "cli/environment.h"

/* NULL: there is another GPU, or none, which is a failure. */
static lz_context *open_hopper(void) {
    lz_error err = {0};
    lz_context *ctx = open_as_asked(LZ_CONTEXT_OPTIONS(.device = "cuda"), &err);
    if (!CHECK(ctx, "%s", err.text)) return NULL;
    if (ctx->device->capability == 90) {
        lz_cuda_device_table.enter(ctx->device);
        return ctx;
    }
    lz_close(ctx);
    return NULL;
}

#endif
