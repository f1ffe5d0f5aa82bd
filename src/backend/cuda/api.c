/* api.c: opens NVIDIA's libraries at run time and looks up the functions that api.h declares. */
#include "backend/cuda/api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

/* A function's symbol, and the offset of its pointer in lz_cuda_api. */
typedef struct entry {
    const char *symbol;
    size_t offset;
} entry;

#define CU(returns, name, version, params) {"cu" #name #version, offsetof(lz_cuda_api, cu.name)},
#define NVRTC(returns, name, version, params) {"nvrtc" #name, offsetof(lz_cuda_api, nvrtc.name)},
#define LT(returns, name, version, params) {"cublasLt" #name, offsetof(lz_cuda_api, lt.name)},
#define DNN(returns, name, version, params) {"cudnn" #name, offsetof(lz_cuda_api, dnn.name)},

static const entry cu_entries[] = {LZ_CU_FUNCTIONS(CU){0}};
static const entry nvrtc_entries[] = {LZ_NVRTC_FUNCTIONS(NVRTC){0}};
static const entry lt_entries[] = {LZ_LT_FUNCTIONS(LT){0}};
static const entry dnn_entries[] = {LZ_DNN_FUNCTIONS(DNN){0}};

/* Names of each library, newest version first. The functions that we call are the same in all of these versions. */
static const struct library {
    const char *names[3];
    const entry *entries;
    const char *absent;
} libraries[4] = {
    {{"libcuda.so.1"}, cu_entries, "no NVIDIA driver (libcuda.so.1) on this machine"},
    {{"libnvrtc.so.13", "libnvrtc.so.12"}, nvrtc_entries, "no CUDA runtime compiler (libnvrtc.so.13) on this machine"},
    {{"libcublasLt.so.13", "libcublasLt.so.12"}, lt_entries, "no cuBLASLt (libcublasLt.so.13) on this machine"},
    {{"libcudnn.so.9"}, dnn_entries, NULL},
};

/* Symbols that CUDA 13 renamed, with the name of the same function before. */
static const char *const older_names[][2] = {{"cuEventElapsedTime_v2", "cuEventElapsedTime"}};

/* RTLD_NODELETE: these libraries start threads and register exit handlers, whose code must stay loaded. */
static void *open_path(const char *directory, size_t length, const char *name) {
    char path[1024];
    int n = snprintf(path, sizeof path, "%.*s%s%s", (int)length, directory, length ? "/" : "", name);
    return n > 0 && (size_t)n < sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : NULL;
}

static void *open_usual(const char *name) {
    static const char *const directories[] = {"", "/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu"};
    void *handle = NULL;
    for (size_t i = 0; !handle && i < sizeof directories / sizeof *directories; i++)
        handle = open_path(directories[i], strlen(directories[i]), name);
    return handle;
}

/* Opens a library by one name, in the directories of path (lz_context_options.cuda_path) if there is one, else in the
 * directories that the dynamic linker searches. */
static void *open_name(const char *path, const char *name) {
    if (!path || !*path) return open_usual(name);
    for (;;) {
        size_t length = strcspn(path, ":");
        void *handle = length ? open_path(path, length, name) : open_usual(name);
        if (handle || !path[length]) return handle;
        path += length + 1;
    }
}

static void *look_up(void *handle, const char *symbol) {
    void *function = dlsym(handle, symbol);
    for (size_t i = 0; !function && i < sizeof older_names / sizeof *older_names; i++)
        if (!strcmp(symbol, older_names[i][0])) function = dlsym(handle, older_names[i][1]);
    return function;
}

/* The driver may be installed on a machine without a GPU. */
static bool finds_gpu(const lz_cuda_api *api) {
    int n = 0;
    return api->handles[0] && !api->cu.Init(0) && !api->cu.DeviceGetCount(&n) && n;
}

/* Returns true if the library is optional and absent too; *handle stays NULL then. */
static bool open_library(lz_cuda_api *api, const struct library *library, const char *path, void **handle,
                         lz_error *err) {
    const char *name = NULL;
    for (int i = 0; !*handle && (name = library->names[i]); i++) *handle = open_name(path, name);
    if (!*handle && library == libraries)
        *handle = open_usual(library->names[0]); /* the driver is not with the others */
    if (!*handle) {
        if (library->absent) lz_fail(err, finds_gpu(api) ? LZ_DEVICE_FAILED : LZ_NOT_FOUND, "%s", library->absent);
        return !library->absent;
    }
    for (const entry *e = library->entries; e->symbol; e++) {
        void *function = look_up(*handle, e->symbol);
        if (!function) {
            lz_fail(err, LZ_DEVICE_FAILED, "%s on this machine has no function %s; is it too old?", name, e->symbol);
            return false;
        }
        memcpy((char *)api + e->offset, &function, sizeof function);
    }
    return true;
}

/* NVRTC opens a second library by its bare name, which fails outside the linker's directories unless it is already
 * loaded. */
static void preload_builtins(const lz_cuda_api *api) {
    int major = 0, minor = 0;
    Dl_info info;
    if (api->nvrtc.Version(&major, &minor) || !dladdr(dlsym(api->handles[1], "nvrtcVersion"), &info)) return;
    const char *slash = strrchr(info.dli_fname, '/');
    char name[64];
    snprintf(name, sizeof name, "libnvrtc-builtins.so.%d.%d", major, minor);
    void *handle = slash ? open_path(info.dli_fname, (size_t)(slash - info.dli_fname), name) : NULL;
    if (handle) dlclose(handle); /* stays loaded: RTLD_NODELETE */
}

bool lz_cuda_api_open(lz_cuda_api *api, const char *path, lz_error *err) {
    *api = (lz_cuda_api){0};
    for (int i = 0; i < 4; i++) {
        if (!open_library(api, &libraries[i], path, &api->handles[i], err)) {
            lz_cuda_api_close(api);
            return false;
        }
    }
    preload_builtins(api);
    api->has_dnn = api->handles[3] != NULL;
    return true;
}

void lz_cuda_api_close(lz_cuda_api *api) {
    for (int i = 0; i < 4; i++)
        if (api->handles[i]) dlclose(api->handles[i]);
    *api = (lz_cuda_api){0};
}
