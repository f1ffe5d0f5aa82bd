/* device.c: the simulated device, its context, and the checks at the start of every entry point. */
#include <unistd.h>

#include "sim.h"

struct settings settings;

/* Recursive, so that a host function which calls the driver is refused instead of waiting for itself. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static bool initialised;
static long calls, fail_at;
static long live[N_OBJECTS];

static _Thread_local lz_cu_context stack[16];
static _Thread_local int depth;

struct CUctx_st {
    int retained;
};
static struct CUctx_st primary;

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

void count_live(object what, int change) { live[what] += change; }

bool failure_due(void) { return ++calls == fail_at; }

static struct {
    const char *name;
    long n;
} counted[256];

/* The place of this entry point among those that were called; at most one behind the last. */
static int find_counted(const char *name) {
    int i = 0;
    while (i < 255 && counted[i].name && strcmp(counted[i].name, name) != 0) i++;
    return i;
}

lz_cu_result enter(int needs, const char *name) {
    pthread_mutex_lock(&lock);
    int place = find_counted(name);
    counted[place].name = name;
    counted[place].n++;
    if (in_host_function) return LZ_CUDA_ERROR_NOT_PERMITTED;
    if (needs & INITIALISED && !initialised) return LZ_CUDA_ERROR_NOT_INITIALIZED;
    if (needs & MAY_FAIL && failure_due()) return LZ_CUDA_ERROR_OUT_OF_MEMORY;
    if (needs & CONTEXT) {
        if (!depth || !stack[depth - 1]) return LZ_CUDA_ERROR_INVALID_CONTEXT;
        if (!stack[depth - 1]->retained) return LZ_CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    if (needs & NOT_CAPTURING && capture_forbids()) return LZ_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return LZ_CUDA_SUCCESS;
}

void leave(const lz_cu_result *entered) {
    (void)entered;
    pthread_mutex_unlock(&lock);
}

long lz_sim_calls(void) {
    pthread_mutex_lock(&lock);
    long n = calls;
    pthread_mutex_unlock(&lock);
    return n;
}

long lz_sim_count(const char *name) {
    pthread_mutex_lock(&lock);
    long n = counted[find_counted(name)].n;
    pthread_mutex_unlock(&lock);
    return n;
}

long lz_sim_live(void) {
    pthread_mutex_lock(&lock);
    long n = 0;
    for (int i = 0; i < N_OBJECTS; i++) n += live[i];
    pthread_mutex_unlock(&lock);
    return n;
}

__attribute__((destructor)) static void report_leaks(void) {
    static const char *const names[N_OBJECTS] = {
        [MEMORY] = "device allocations",
        [HOST_MEMORY] = "pinned allocations",
        [STREAM] = "streams",
        [EVENT] = "events",
        [MODULE] = "modules",
        [GRAPH] = "graphs",
        [GRAPH_EXEC] = "graph execs",
        [CONTEXT_HELD] = "retained contexts",
    };
    bool any = false;
    for (int i = 0; number("LAZULI_SIM_LEAKS", 0) && i < N_OBJECTS; i++) {
        if (!live[i]) continue;
        fprintf(stderr, "GPU simulator: %ld %s left at exit\n", live[i], names[i]);
        any = true;
    }
    if (any) _exit(1);
}

/* ---- the device ------------------------------------------------------------------------------------------------- */

lz_cu_result cuInit(unsigned flags) {
    pthread_mutex_lock(&lock);
    flush_all(); /* others may be in the middle of something, under other settings */
    protect_device(false);
    calls = 0;
    fail_at = number("LAZULI_SIM_FAIL", 0);
    settings.memory = (size_t)number("LAZULI_SIM_MEMORY", 4L << 30);
    settings.async = number("LAZULI_SIM_ASYNC", 0) != 0;
    settings.eager = number("LAZULI_SIM_ASYNC", 0) == 2;
    settings.strict = number("LAZULI_SIM_STRICT", 0) != 0;
    protect_device(true);
    initialised = true;
    pthread_mutex_unlock(&lock);
    ENTER(MAY_FAIL);
    return flags ? LZ_CUDA_ERROR_INVALID_VALUE : LZ_CUDA_SUCCESS;
}

lz_cu_result cuDriverGetVersion(int *version) {
    *version = 13000;
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuDeviceGetCount(int *count) {
    ENTER(INITIALISED | MAY_FAIL);
    *count = (int)number("LAZULI_SIM_GPUS", 1);
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuDeviceGet(lz_cu_device *device, int ordinal) {
    ENTER(INITIALISED | MAY_FAIL);
    if (ordinal != 0) return LZ_CUDA_ERROR_INVALID_DEVICE;
    *device = 0;
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuDeviceGetName(char *name, int bytes, lz_cu_device device) {
    ENTER(INITIALISED | MAY_FAIL);
    if (device != 0) return LZ_CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)bytes, "Simulated GPU");
    return LZ_CUDA_SUCCESS;
}

/* Those of an H200. */
lz_cu_result cuDeviceGetAttribute(int *value, lz_cu_device_attribute attribute, lz_cu_device device) {
    static const int values[128] = {
        [LZ_CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = LZ_SIM_MAX_THREADS,
        [LZ_CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X] = 1024,
        [LZ_CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X] = 2147483647,
        [LZ_CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y] = 65535,
        [LZ_CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z] = 65535,
        [LZ_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK] = 48 * 1024,
        [LZ_CU_DEVICE_ATTRIBUTE_WARP_SIZE] = 32,
        [LZ_CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK] = 65536,
        [LZ_CU_DEVICE_ATTRIBUTE_CLOCK_RATE] = 1980000,
        [LZ_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = 132,
        [LZ_CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE] = 3201000,
        [LZ_CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH] = 6144,
        [LZ_CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE] = 60 << 20,
        [LZ_CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR] = 2048,
        [LZ_CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT] = 3,
        [LZ_CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING] = 1,
        [LZ_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = 9,
        [LZ_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR] = 0,
        [LZ_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR] = 228 * 1024,
        [LZ_CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR] = 65536,
        [LZ_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN] = LZ_SIM_MAX_SHARED,
    };
    ENTER(INITIALISED | MAY_FAIL);
    if (device != 0) return LZ_CUDA_ERROR_INVALID_DEVICE;
    if ((unsigned)attribute >= sizeof values / sizeof *values) return LZ_CUDA_ERROR_INVALID_VALUE;
    *value = values[attribute];
    const char *other = getenv("LAZULI_SIM_CAPABILITY"); /* such as 86 */
    int capability = other ? atoi(other) : 0;
    if (capability && attribute == LZ_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) *value = capability / 10;
    if (capability && attribute == LZ_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) *value = capability % 10;
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuDeviceTotalMem_v2(size_t *bytes, lz_cu_device device) {
    ENTER(INITIALISED | MAY_FAIL);
    if (device != 0) return LZ_CUDA_ERROR_INVALID_DEVICE;
    *bytes = settings.memory;
    return LZ_CUDA_SUCCESS;
}

/* ---- contexts: the primary one, and which is current in a thread ------------------------------------------------ */

lz_cu_result cuDevicePrimaryCtxRetain(lz_cu_context *context, lz_cu_device device) {
    ENTER(INITIALISED | MAY_FAIL);
    if (device != 0) return LZ_CUDA_ERROR_INVALID_DEVICE;
    primary.retained++;
    count_live(CONTEXT_HELD, 1);
    *context = &primary;
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuDevicePrimaryCtxRelease_v2(lz_cu_device device) {
    ENTER(INITIALISED);
    if (device != 0) return LZ_CUDA_ERROR_INVALID_DEVICE;
    if (!primary.retained) return LZ_CUDA_ERROR_INVALID_CONTEXT;
    primary.retained--;
    count_live(CONTEXT_HELD, -1);
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuCtxPushCurrent_v2(lz_cu_context context) {
    ENTER(INITIALISED | MAY_FAIL);
    if (context != &primary || depth == 16) return LZ_CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuCtxPopCurrent_v2(lz_cu_context *context) {
    ENTER(INITIALISED);
    if (!depth) return LZ_CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (context) *context = stack[depth];
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuCtxSetCurrent(lz_cu_context context) {
    ENTER(INITIALISED | MAY_FAIL);
    if (context && context != &primary) return LZ_CUDA_ERROR_INVALID_CONTEXT;
    if (depth) depth--;
    if (context) stack[depth++] = context;
    return LZ_CUDA_SUCCESS;
}

/* ---- errors in words -------------------------------------------------------------------------------------------- */

static const struct {
    lz_cu_result result;
    const char *name, *text;
} errors[] = {
    {LZ_CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {LZ_CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {LZ_CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {LZ_CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {LZ_CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {LZ_CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {LZ_CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {LZ_CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {LZ_CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {LZ_CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {LZ_CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {LZ_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {LZ_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {LZ_CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {LZ_CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
     "the graph update was not performed because it included changes which violated constraints"},
};

static int find_error(lz_cu_result error) {
    for (int i = 0; i < (int)(sizeof errors / sizeof *errors); i++)
        if (errors[i].result == error) return i;
    return -1;
}

lz_cu_result cuGetErrorName(lz_cu_result error, const char **text) {
    int i = find_error(error);
    *text = i < 0 ? NULL : errors[i].name;
    return i < 0 ? LZ_CUDA_ERROR_INVALID_VALUE : LZ_CUDA_SUCCESS;
}

lz_cu_result cuGetErrorString(lz_cu_result error, const char **text) {
    int i = find_error(error);
    *text = i < 0 ? NULL : errors[i].text;
    return i < 0 ? LZ_CUDA_ERROR_INVALID_VALUE : LZ_CUDA_SUCCESS;
}
