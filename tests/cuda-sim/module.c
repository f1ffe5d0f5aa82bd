/* module.c: loads modules of the simulated NVRTC, and launches their kernels. */
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sim.h"

struct CUfunc_st {
    const lz_sim_kernel *kernel;
    const lz_sim_module *module;
    int max_dynamic; /* bytes of dynamic shared memory it may be launched with */
};

struct CUmod_st {
    void *library;
    const lz_sim_module *module;
    struct CUfunc_st *functions;
};

/* ---- modules ---------------------------------------------------------------------------------------------------- */

/* The image is a library in memory; the loader wants a file, of a name it has not seen yet. */
static void *load_library(const lz_sim_image *image) {
    char path[256];
    const char *temporary = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/lz-sim-module-XXXXXX", temporary && *temporary ? temporary : "/tmp");
    int file = mkstemp(path);
    if (file < 0) return NULL;
    const char *from = (const char *)(image + 1);
    size_t left = image->bytes;
    for (ssize_t n; left && (n = write(file, from, left)) > 0; left -= (size_t)n) from += n;
    close(file);
    void *library = left ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fprintf(stderr, "GPU simulator: %s\n", left ? "no room for a module" : dlerror());
    unlink(path);
    return library;
}

lz_cu_result cuModuleLoadData(lz_cu_module *module, const void *image) {
    ENTER(NORMAL | NOT_CAPTURING);
    const lz_sim_image *header = image;
    if (!image) return LZ_CUDA_ERROR_INVALID_VALUE;
    if (memcmp(header->magic, LZ_SIM_MAGIC, sizeof header->magic)) return LZ_CUDA_ERROR_INVALID_IMAGE;
    lz_cu_module m = calloc(1, sizeof *m);
    if (m) m->library = load_library(header);
    if (m && m->library) m->module = dlsym(m->library, "lz_sim_here");
    if (m && m->module) m->functions = calloc((size_t)m->module->n_kernels + 1, sizeof *m->functions);
    if (!m || !m->functions) {
        if (m && m->library) dlclose(m->library);
        free(m);
        return LZ_CUDA_ERROR_INVALID_IMAGE;
    }
    for (int i = 0; i < m->module->n_kernels; i++) {
        m->functions[i] = (struct CUfunc_st){
            .kernel = &m->module->kernels[i], .module = m->module, .max_dynamic = 48 * 1024};
    }
    count_live(MODULE, 1);
    *module = m;
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuModuleUnload(lz_cu_module module) {
    ENTER(INITIALISED | CONTEXT);
    if (!module) return LZ_CUDA_ERROR_INVALID_VALUE;
    flush_all();
    dlclose(module->library);
    free(module->functions);
    free(module);
    count_live(MODULE, -1);
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuModuleGetFunction(lz_cu_function *function, lz_cu_module module, const char *name) {
    ENTER(NORMAL);
    if (!module || !name) return LZ_CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < module->module->n_kernels; i++) {
        if (strcmp(module->functions[i].kernel->name, name)) continue;
        *function = &module->functions[i];
        return LZ_CUDA_SUCCESS;
    }
    return LZ_CUDA_ERROR_NOT_FOUND;
}

lz_cu_result cuFuncGetAttribute(int *value, lz_cu_function_attribute attribute, lz_cu_function function) {
    ENTER(NORMAL);
    if (!function) return LZ_CUDA_ERROR_INVALID_HANDLE;
    switch (attribute) {
    case LZ_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = function->kernel->max_threads; break;
    case LZ_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function->max_dynamic; break;
    case LZ_CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
    case LZ_CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 90; break;
    default: *value = 0; break;
    }
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuFuncSetAttribute(lz_cu_function function, lz_cu_function_attribute attribute, int value) {
    ENTER(NORMAL);
    if (!function) return LZ_CUDA_ERROR_INVALID_HANDLE;
    if (attribute == LZ_CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) return LZ_CUDA_SUCCESS;
    bool fits = value >= 0 && value <= LZ_SIM_MAX_SHARED;
    if (attribute != LZ_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || !fits) return LZ_CUDA_ERROR_INVALID_VALUE;
    function->max_dynamic = value;
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, lz_cu_function function, int threads,
                                                         size_t shared_bytes) {
    ENTER(NORMAL);
    if (!function) return LZ_CUDA_ERROR_INVALID_HANDLE;
    if (threads <= 0) return LZ_CUDA_ERROR_INVALID_VALUE;
    int n = 2048 / ((threads + 31) / 32 * 32);
    int by_shared = (int)(228 * 1024 / (shared_bytes + 1024)); /* each block costs 1 KiB more */
    if (n > 32) n = 32;
    if (n > by_shared) n = by_shared;
    *blocks = threads > function->kernel->max_threads ? 0 : n;
    return LZ_CUDA_SUCCESS;
}

/* ---- launches --------------------------------------------------------------------------------------------------- */

enum { MAX_PARAMS = 256, MAX_PARAM_BYTES = 32764 };

/* As it lies in a list of work, there without what is not used of it: the parameters one after the other, each at a
 * multiple of 16. */
typedef struct launch {
    lz_cu_function function;
    unsigned grid[3], block[3], shared_bytes;
    _Alignas(128) char params[MAX_PARAM_BYTES];
} launch;

static size_t params_place(const lz_sim_kernel *kernel, int i) {
    size_t place = 0;
    for (int k = 0; k < i; k++) place += (kernel->sizes[k] + 15u) & ~15u;
    return place;
}

/* A kernel that touches what is not its own, or divides by zero, says where it was before the program ends as usual. */
static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE};
static struct sigaction usual[3];
static const lz_sim_module *running;

static void tell_crash(int signal, siginfo_t *info, void *registers) {
    char what[64];
    (void)registers;
    snprintf(what, sizeof what, signal == SIGFPE ? "division by zero" : "illegal address %p", info->si_addr);
    running->tell(what);
    for (int i = 0; i < 3; i++) sigaction(signals[i], &usual[i], NULL); /* and it happens again */
}

static void launch_watched(const lz_sim_module *module, const lz_sim_launch *l) {
    struct sigaction watch = {.sa_sigaction = tell_crash, .sa_flags = SA_SIGINFO};
    running = module;
    for (int i = 0; i < 3; i++) sigaction(signals[i], &watch, &usual[i]);
    module->launch(l);
    for (int i = 0; i < 3; i++) sigaction(signals[i], &usual[i], NULL);
}

static void run_launch(void *data) {
    static char *stacks;
    static unsigned long serial;
    const size_t stack_bytes = (size_t)LZ_SIM_MAX_THREADS * LZ_SIM_STACK;
    if (!stacks)
        stacks = mmap(NULL, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) abort();
    launch copy; /* the list keeps it at any address, parameters want theirs aligned */
    memcpy(&copy, data, offsetof(launch, params));
    const lz_sim_kernel *kernel = copy.function->kernel;
    memcpy(copy.params, (char *)data + offsetof(launch, params), params_place(kernel, kernel->n_params));
    void *params[MAX_PARAMS];
    for (int i = 0; i < kernel->n_params; i++) params[i] = copy.params + params_place(kernel, i);
    lz_sim_launch l = {
        .kernel = kernel, .shared_bytes = copy.shared_bytes, .params = params, .stacks = stacks, .serial = serial};
    serial++;
    memcpy(l.grid, copy.grid, sizeof l.grid);
    memcpy(l.block, copy.block, sizeof l.block);
    launch_watched(copy.function->module, &l);
}

lz_cu_result cuLaunchKernel(lz_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                            lz_cu_stream stream, void **params, void **extra) {
    ENTER(NORMAL);
    if (!function) return LZ_CUDA_ERROR_INVALID_HANDLE;
    if (extra) return LZ_CUDA_ERROR_NOT_SUPPORTED;
    const lz_sim_kernel *kernel = function->kernel;
    bool grid_fits = grid_x && grid_y && grid_z && grid_x <= 2147483647u && grid_y <= 65535 && grid_z <= 65535;
    size_t threads = (size_t)block_x * block_y * block_z;
    bool block_fits = block_x && block_y && block_z && block_x <= 1024 && block_y <= 1024 && block_z <= 64 &&
                      threads <= (size_t)kernel->max_threads;
    bool cluster_fits = kernel->cluster <= LZ_SIM_MAX_CLUSTER && !(grid_x % (unsigned)kernel->cluster);
    if (!cluster_fits || threads * (size_t)kernel->cluster > LZ_SIM_MAX_THREADS) return LZ_CUDA_ERROR_INVALID_VALUE;
    if (!grid_fits || !block_fits || shared_bytes > (unsigned)function->max_dynamic) return LZ_CUDA_ERROR_INVALID_VALUE;
    if (kernel->n_params > MAX_PARAMS || params_place(kernel, kernel->n_params) > MAX_PARAM_BYTES)
        return LZ_CUDA_ERROR_NOT_SUPPORTED;
    if (kernel->n_params && !params) return LZ_CUDA_ERROR_INVALID_VALUE;
    launch l = {.function = function, .grid = {grid_x, grid_y, grid_z}, .block = {block_x, block_y, block_z}};
    l.shared_bytes = shared_bytes;
    for (int i = 0; i < kernel->n_params; i++) memcpy(l.params + params_place(kernel, i), params[i], kernel->sizes[i]);
    size_t bytes = offsetof(launch, params) + params_place(kernel, kernel->n_params);
    return enqueue(stream, OP_KERNEL, run_launch, &l, bytes);
}

/* ---- tensor maps ------------------------------------------------------------------------------------------------ */

static_assert(sizeof(lz_sim_tensor_map) <= sizeof(lz_cu_tensor_map), "ours must fit into theirs");

lz_cu_result cuTensorMapEncodeTiled(lz_cu_tensor_map *map, lz_cu_tensor_map_type type, uint32_t rank, void *address,
                                    const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                                    const uint32_t *element_strides, lz_cu_tensor_map_interleave interleave,
                                    lz_cu_tensor_map_swizzle swizzle, lz_cu_tensor_map_l2 l2,
                                    lz_cu_tensor_map_fill fill) {
    static const uint32_t sizes[16] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    static const uint32_t swizzles[4] = {1 << 20, 32, 64, 128};
    (void)l2, (void)fill;
    ENTER(INITIALISED | MAY_FAIL);
    bool fine = map && rank >= 1 && rank <= 5 && (unsigned)type < 16 && sizes[type] && (unsigned)swizzle < 4;
    fine = fine && !interleave && address && !((uintptr_t)address % 16);
    for (uint32_t i = 0; fine && i < rank; i++)
        fine = dims[i] && dims[i] <= 1ull << 32 && box[i] && box[i] <= 256 && element_strides[i] &&
               element_strides[i] <= 8;
    for (uint32_t i = 0; fine && i + 1 < rank; i++) fine = !(strides[i] % 16) && strides[i] < 1ull << 40;
    uint32_t inner = fine ? box[0] * sizes[type] : 0;
    if (!fine || inner % 16 || inner > swizzles[swizzle]) return LZ_CUDA_ERROR_INVALID_VALUE;
    memset(map, 0, sizeof *map);
    lz_sim_tensor_map ours = {.address = (uintptr_t)address,
                              .rank = (unsigned char)rank,
                              .size = (unsigned char)sizes[type],
                              .swizzle = (unsigned char)swizzle};
    for (uint32_t i = 0; i < rank; i++) {
        ours.dims[i] = dims[i];
        ours.box[i] = (unsigned short)box[i];
        if (i) ours.strides[i - 1] = strides[i - 1];
    }
    memcpy(map, &ours, sizeof ours);
    return LZ_CUDA_SUCCESS;
}
