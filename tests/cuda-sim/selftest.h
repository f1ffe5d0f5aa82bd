/* selftest.h: shared by the two tests of the simulated GPU. */
#ifndef LZ_SELFTEST_H
#define LZ_SELFTEST_H

#include "backend/cuda/api.h"
#include "check.h"

static lz_cuda_api api;
static lz_cu_context context;
static lz_cu_stream stream;
static bool simulated;

#define OK(call) CHECK_I64((call), LZ_CUDA_SUCCESS)
#define GIVES(call, error) CHECK_I64((call), (error))

/* ---- opening and closing ---------------------------------------------------------------------------------------- */

static inline lz_cu_result open_context(void) {
    lz_cu_device device;
    char name[64] = "";
    lz_cu_result result = api.cu.Init(0);
    if (!result) result = api.cu.DeviceGet(&device, 0);
    if (!result) result = api.cu.DeviceGetName(name, sizeof name, device);
    simulated = !strcmp(name, "Simulated GPU");
    if (!result) result = api.cu.DevicePrimaryCtxRetain(&context, device);
    if (result) return result;
    result = api.cu.CtxPushCurrent(context);
    if (!result) {
        result = api.cu.StreamCreate(&stream, LZ_CU_STREAM_NON_BLOCKING);
        if (!result) return result;
        api.cu.CtxPopCurrent(NULL);
    }
    api.cu.DevicePrimaryCtxRelease(device);
    return result;
}

static inline void close_context(void) {
    OK(api.cu.StreamDestroy(stream));
    OK(api.cu.CtxPopCurrent(NULL));
    OK(api.cu.DevicePrimaryCtxRelease(0));
}

static inline lz_cu_ptr device_copy(const void *from, size_t bytes) {
    lz_cu_ptr to = 0;
    OK(api.cu.MemAlloc(&to, bytes));
    if (from) OK(api.cu.MemcpyHtoDAsync(to, from, bytes, stream));
    return to;
}

static inline void read_back(void *to, lz_cu_ptr from, size_t bytes) {
    OK(api.cu.MemcpyDtoHAsync(to, from, bytes, stream));
    OK(api.cu.StreamSynchronize(stream));
}

#endif
