/* selftest.c: every piece of the simulated driver and NVRTC, through the same table of functions that the backend uses.
 * On a machine with a GPU and without LAZULI_CUDA_PATH it runs on the GPU, except for tests of the simulator's own
 * functions; so it also checks that the two agree. */
#include "selftest.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

static void set_option(const char *name, const char *value) {
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

/* The context is opened again to read the environment. */
static void reopen_with(const char *name, const char *value) {
    close_context();
    set_option(name, value);
    OK(open_context());
}

/* NULL: the log is in *log (freed by the caller). */
static lz_cu_module compile(const char *source, char **log) {
    const char *options[] = {"-arch=sm_90a", "-std=c++17", "-DFOUR=4"};
    lz_nvrtc_program program = NULL;
    lz_cu_module module = NULL;
    CHECK_I64(api.nvrtc.CreateProgram(&program, source, "test.cu", 0, NULL, NULL), LZ_NVRTC_SUCCESS);
    lz_nvrtc_result result = api.nvrtc.CompileProgram(program, 3, options);
    size_t bytes = 0;
    CHECK_I64(api.nvrtc.GetProgramLogSize(program, &bytes), LZ_NVRTC_SUCCESS);
    char *text = calloc(bytes + 1, 1);
    CHECK_I64(api.nvrtc.GetProgramLog(program, text), LZ_NVRTC_SUCCESS);
    if (result == LZ_NVRTC_SUCCESS) {
        CHECK_I64(api.nvrtc.GetCUBINSize(program, &bytes), LZ_NVRTC_SUCCESS);
        char *cubin = malloc(bytes);
        CHECK_I64(api.nvrtc.GetCUBIN(program, cubin), LZ_NVRTC_SUCCESS);
        OK(api.cu.ModuleLoadData(&module, cubin));
        free(cubin);
    } else if (!log) {
        CHECK(false, "%s", text);
    }
    if (log)
        *log = text;
    else
        free(text);
    CHECK_I64(api.nvrtc.DestroyProgram(&program), LZ_NVRTC_SUCCESS);
    return module;
}

static lz_cu_function function_of(lz_cu_module module, const char *name) {
    lz_cu_function function = NULL;
    OK(api.cu.ModuleGetFunction(&function, module, name));
    return function;
}

#define LAUNCH(function, blocks, threads, shared, ...)                                                                 \
    api.cu.LaunchKernel(function, blocks, 1, 1, threads, 1, 1, shared, stream, (void *[]){__VA_ARGS__}, NULL)

/* ---- the device ------------------------------------------------------------------------------------------------- */

static void device(void) {
    int value = 0, count = 0;
    size_t bytes = 0;
    OK(api.cu.DriverGetVersion(&value));
    CHECK(value >= 12000);
    OK(api.cu.DeviceGetCount(&count));
    CHECK(count >= 1);
    OK(api.cu.DeviceGetAttribute(&value, LZ_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    CHECK(value >= 8);
    OK(api.cu.DeviceGetAttribute(&value, LZ_CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    CHECK_I64(value, 32);
    OK(api.cu.DeviceTotalMem(&bytes, 0));
    CHECK(bytes > 1 << 20);
    GIVES(api.cu.DeviceGet(&value, 1000), LZ_CUDA_ERROR_INVALID_DEVICE);
    const char *text = NULL;
    OK(api.cu.GetErrorName(LZ_CUDA_ERROR_OUT_OF_MEMORY, &text));
    CHECK_TEXT(text, "CUDA_ERROR_OUT_OF_MEMORY");
    OK(api.cu.GetErrorString(LZ_CUDA_ERROR_INVALID_VALUE, &text));
    CHECK_TEXT(text, "invalid argument");
    OK(api.cu.CtxPopCurrent(NULL)); /* now nothing is current */
    lz_cu_ptr p;
    GIVES(api.cu.MemAlloc(&p, 64), LZ_CUDA_ERROR_INVALID_CONTEXT);
    OK(api.cu.CtxSetCurrent(context));
}

static void memory(void) {
    size_t before = 0, after = 0, total = 0;
    lz_cu_ptr p = 0, q = 0, none = 0;
    OK(api.cu.MemGetInfo(&before, &total));
    OK(api.cu.MemAlloc(&p, 1 << 20));
    OK(api.cu.MemAlloc(&q, 100));
    CHECK_I64(p % 256, 0);
    CHECK_I64(q % 256, 0);
    OK(api.cu.MemGetInfo(&after, &total));
    CHECK(after < before && before <= total);
    unsigned char bytes[100], *pinned = NULL;
    OK(api.cu.MemHostAlloc((void **)&pinned, 100, 0));
    for (int i = 0; i < 100; i++) pinned[i] = (unsigned char)i;
    OK(api.cu.MemcpyHtoDAsync(p, pinned, 100, stream));
    OK(api.cu.MemsetD8Async(p + 50, 7, 10, stream));
    OK(api.cu.MemcpyDtoDAsync(q, p, 100, stream));
    read_back(bytes, q, 100);
    for (int i = 0; i < 100; i++) CHECK_I64(bytes[i], i >= 50 && i < 60 ? 7 : i);
    GIVES(api.cu.MemAlloc(&none, 0), LZ_CUDA_ERROR_INVALID_VALUE);
    GIVES(api.cu.MemAlloc(&none, (size_t)1 << 50), LZ_CUDA_ERROR_OUT_OF_MEMORY);
    if (simulated) {
        GIVES(api.cu.MemcpyDtoHAsync(bytes, q + 1, 100, stream), LZ_CUDA_ERROR_INVALID_VALUE); /* one too far */
        GIVES(api.cu.MemsetD8Async(q, 0, 101, stream), LZ_CUDA_ERROR_INVALID_VALUE);
        GIVES(api.cu.MemFree(q + 16), LZ_CUDA_ERROR_INVALID_VALUE);
    }
    OK(api.cu.MemFreeHost(pinned));
    OK(api.cu.MemFree(q));
    OK(api.cu.MemFree(p));
    GIVES(api.cu.MemFree(p), LZ_CUDA_ERROR_INVALID_VALUE);
}

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

static const char kernels[] =
    "template <class T> __device__ __forceinline__ T twice(T x) { return x + x; }\n"
    "extern \"C\" __global__ void add(const float *__restrict__ a, const float *b, float *c, int n) {\n"
    "    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)\n"
    "        c[i] = a[i] + twice(b[i]);\n"
    "}\n"
    "/* a (comment) with __global__ void in it */\n"
    "struct pair { long long first; float second[3]; };\n"
    "#define KERNEL(name) extern \"C\" __global__ void __launch_bounds__(32 * FOUR, 2) name\n"
    "KERNEL(by_value)(pair p, char c, double d, double *out) {\n"
    "    if (threadIdx.x == 0) out[blockIdx.x] = p.first + p.second[2] + c + d;\n"
    "}\n"
    /* Sums of rows, one block each: within warps by shuffles, then over warps through shared memory. */
    "template <int N> __device__ float sum_block(float v) {\n"
    "    __shared__ float part[N];\n"
    "    for (int i = 16; i; i >>= 1) v += __shfl_xor_sync(0xffffffffu, v, i);\n"
    "    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;\n"
    "    __syncthreads();\n"
    "    v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0f;\n"
    "    if (threadIdx.x < 32) for (int i = 16; i; i >>= 1) v += __shfl_down_sync(0xffffffffu, v, i);\n"
    "    return v;\n"
    "}\n"
    "extern \"C\" __global__ void sum_rows(const float *x, float *out, int n) {\n"
    "    float v = 0;\n"
    "    for (int i = threadIdx.x; i < n; i += blockDim.x) v += x[(size_t)blockIdx.x * n + i];\n"
    "    v = sum_block<32>(v);\n"
    "    if (threadIdx.x == 0) out[blockIdx.x] = v;\n"
    "}\n"
    /* Turns each block's numbers around, in shared memory whose size comes with the launch. */
    "extern \"C\" __global__ void reverse(int *x) {\n"
    "    extern __shared__ __align__(16) int line[];\n"
    "    int *mine = x + blockIdx.x * blockDim.x;\n"
    "    line[threadIdx.x] = mine[threadIdx.x];\n"
    "    __syncthreads();\n"
    "    mine[threadIdx.x] = line[blockDim.x - 1 - threadIdx.x];\n"
    "}\n"
    "extern \"C\" __global__ void count(int *total, float *sum, int *most, unsigned *order) {\n"
    "    atomicAdd(total, 1);\n"
    "    atomicAdd(sum, 0.5f);\n"
    "    atomicMax(most, (int)(blockIdx.x * 100 + threadIdx.x));\n"
    "    order[atomicInc(&order[1000], 0xffffffffu)] = threadIdx.x;\n"
    "}\n"
    "extern \"C\" __global__ void indices(int *out) {\n"
    "    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;\n"
    "    int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;\n"
    "    out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;\n"
    "}\n";

static lz_cu_module module;

static void adds_vectors(void) {
    enum { N = 1000 };
    float a[N], b[N], c[N];
    for (int i = 0; i < N; i++) a[i] = (float)i, b[i] = (float)(i * i);
    lz_cu_ptr da = device_copy(a, sizeof a), db = device_copy(b, sizeof b), dc = device_copy(NULL, sizeof c);
    int n = N;
    OK(LAUNCH(function_of(module, "add"), 3, 64, 0, &da, &db, &dc, &n));
    read_back(c, dc, sizeof c);
    for (int i = 0; i < N; i++) CHECK(c[i] == a[i] + 2 * b[i], "at %d: %g", i, (double)c[i]);
    OK(api.cu.MemFree(da));
    OK(api.cu.MemFree(db));
    OK(api.cu.MemFree(dc));
}

static void passes_by_value(void) {
    struct {
        long long first;
        float second[3];
    } p = {7, {1, 2, 3}};
    char c = 5;
    double d = 0.5, out[2];
    lz_cu_ptr to = device_copy(NULL, sizeof out);
    lz_cu_function f = function_of(module, "by_value");
    OK(LAUNCH(f, 2, 128, 0, &p, &c, &d, &to));
    read_back(out, to, sizeof out);
    CHECK(out[0] == 15.5 && out[1] == 15.5, "%g", out[0]);
    int bound = 0, blocks = 0;
    OK(api.cu.FuncGetAttribute(&bound, LZ_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f));
    CHECK_I64(bound, 128);
    CHECK(LAUNCH(f, 2, 256, 0, &p, &c, &d, &to) != LZ_CUDA_SUCCESS); /* more than its bound */
    OK(api.cu.OccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 128, 0));
    CHECK(blocks >= 2);
    GIVES(LAUNCH(f, 0, 32, 0, &p, &c, &d, &to), LZ_CUDA_ERROR_INVALID_VALUE);
    GIVES(api.cu.ModuleGetFunction(&f, module, "nowhere"), LZ_CUDA_ERROR_NOT_FOUND);
    OK(api.cu.MemFree(to));
}

static void sums_rows(void) {
    enum { ROWS = 5, N = 777 };
    static float x[ROWS][N];
    float out[ROWS];
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < N; j++) x[i][j] = (float)((i * 31 + j * 7) % 64);
    lz_cu_ptr from = device_copy(x, sizeof x), to = device_copy(NULL, sizeof out);
    int n = N;
    for (unsigned threads = 32; threads <= 1024; threads *= 2) {
        OK(LAUNCH(function_of(module, "sum_rows"), ROWS, threads, 0, &from, &to, &n));
        read_back(out, to, sizeof out);
        for (int i = 0; i < ROWS; i++) {
            float want = 0;
            for (int j = 0; j < N; j++) want += x[i][j];
            CHECK(out[i] == want, "%g, not %g", (double)out[i], (double)want);
        }
    }
    OK(api.cu.MemFree(from));
    OK(api.cu.MemFree(to));
}

static void shares_memory(void) {
    enum { BLOCKS = 3, THREADS = 200, N = BLOCKS * THREADS };
    int x[N];
    for (int i = 0; i < N; i++) x[i] = i;
    lz_cu_ptr p = device_copy(x, sizeof x);
    lz_cu_function f = function_of(module, "reverse");
    OK(LAUNCH(f, BLOCKS, THREADS, THREADS * 4, &p));
    read_back(x, p, sizeof x);
    for (int i = 0; i < N; i++) CHECK_I64(x[i], i / THREADS * THREADS + THREADS - 1 - i % THREADS);
    GIVES(LAUNCH(f, 1, 32, 100000, &p), LZ_CUDA_ERROR_INVALID_VALUE); /* more than 48 KiB must be asked for */
    OK(api.cu.FuncSetAttribute(f, LZ_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100000));
    OK(LAUNCH(f, 1, 32, 100000, &p));
    GIVES(api.cu.FuncSetAttribute(f, LZ_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20),
          LZ_CUDA_ERROR_INVALID_VALUE);
    OK(api.cu.StreamSynchronize(stream));
    OK(api.cu.MemFree(p));
}

static void counts_atomically(void) {
    struct {
        int total;
        float sum;
        int most;
        unsigned order[1001];
    } x = {0, 0, -1, {0}};
    lz_cu_ptr p = device_copy(&x, sizeof x), sum = p + 4, most = p + 8, order = p + 12;
    lz_cu_function f = function_of(module, "count");
    OK(LAUNCH(f, 4, 50, 0, &p, &sum, &most, &order));
    read_back(&x, p, sizeof x);
    CHECK_I64(x.total, 200);
    CHECK(x.sum == 100);
    CHECK_I64(x.most, 349);
    CHECK_I64(x.order[1000], 200);
    if (simulated) CHECK(x.order[0] != x.order[50]); /* blocks take their threads in turn from both ends */
    OK(api.cu.MemFree(p));
}

static void knows_indices(void) {
    enum { N = 2 * 3 * 4 * 5 * 6 * 2 };
    int out[N];
    lz_cu_ptr p = device_copy(NULL, sizeof out);
    OK(api.cu.LaunchKernel(function_of(module, "indices"), 2, 3, 4, 5, 6, 2, 0, stream, (void *[]){&p}, NULL));
    read_back(out, p, sizeof out);
    for (int i = 0; i < N; i++) CHECK_I64(out[i], i / 60 * 1000 + i % 60);
    OK(api.cu.MemFree(p));
}

static void warp_functions(void) {
    static const char source[] = "extern \"C\" __global__ void warp(int *out) {\n"
                                 "    const unsigned all = 0xffffffffu;\n"
                                 "    int t = threadIdx.x, v = t * 10, *o = out + t * 16;\n"
                                 "    o[0] = __shfl_sync(all, v, 5);\n"
                                 "    o[1] = __shfl_sync(all, v, 3, 8);\n"
                                 "    o[2] = __shfl_xor_sync(all, v, 1);\n"
                                 "    o[3] = __shfl_up_sync(all, v, 2);\n"
                                 "    o[4] = __shfl_down_sync(all, v, 3, 16);\n"
                                 "    o[5] = (int)__ballot_sync(all, t % 3 == 0);\n"
                                 "    o[6] = __any_sync(all, t % 32 == 31) * 2 + __all_sync(all, t < 40);\n"
                                 "    o[7] = (int)__match_any_sync(all, t / 4);\n"
                                 "    o[8] = __reduce_add_sync(all, v) + __reduce_max_sync(all, -v);\n"
                                 "    long long wide = __shfl_sync(all, (long long)v << 40, 1);\n"
                                 "    o[9] = (int)(wide >> 40);\n"
                                 "    o[10] = 0;\n"
                                 "    if (t % 32 < 16) o[10] = __shfl_sync(0xffffu, v, 2);\n" /* half a warp alone */
                                 "    __syncwarp();\n"
                                 "    o[11] = __syncthreads_count(t % 2);\n"
                                 "    o[12] = __popc(t) + __clz(t) + __ffs(t);\n"
                                 "    o[13] = __float2int_rn(2.5f) + __float_as_int(1.0f);\n"
                                 "    o[14] = max(min(t, 5), 2) + abs(-3) + (int)rsqrtf(0.25f) + (int)exp2f(3.0f);\n"
                                 "    o[15] = (int)__umulhi(0x80000000u, 6) + __dp4a(0x01020304, 0x01010101, 1);\n"
                                 "}\n";
    lz_cu_module m = compile(source, NULL);
    if (!m) return;
    int out[64][16];
    lz_cu_ptr p = device_copy(NULL, sizeof out);
    OK(LAUNCH(function_of(m, "warp"), 1, 64, 0, &p));
    read_back(out, p, sizeof out);
    for (int t = 0; t < 64; t++) {
        int lane = t % 32, first = t - lane, sum = 0, ballot = 0;
        for (int i = first; i < first + 32; i++) sum += i * 10, ballot |= (int)((unsigned)(i % 3 == 0) << (i - first));
        CHECK_I64(out[t][0], (first + 5) * 10);
        CHECK_I64(out[t][1], (t / 8 * 8 + 3) * 10);
        CHECK_I64(out[t][2], (t ^ 1) * 10);
        CHECK_I64(out[t][3], (lane < 2 ? t : t - 2) * 10);
        CHECK_I64(out[t][4], (t % 16 + 3 < 16 ? t + 3 : t) * 10);
        CHECK_I64(out[t][5], ballot);
        CHECK_I64(out[t][6], 2 + (t < 32));
        CHECK_I64(out[t][7], (int)(0xfu << lane / 4 * 4));
        CHECK_I64(out[t][8], sum - first * 10);
        CHECK_I64(out[t][9], (first + 1) * 10);
        CHECK_I64(out[t][10], lane < 16 ? (first + 2) * 10 : 0);
        CHECK_I64(out[t][11], 32);
        CHECK_I64(out[t][12],
                  __builtin_popcount((unsigned)t) + (t ? __builtin_clz((unsigned)t) : 32) + __builtin_ffs(t));
        CHECK_I64(out[t][13], 2 + 0x3f800000);
        CHECK_I64(out[t][14], (t < 2 ? 2 : t < 5 ? t : 5) + 3 + 2 + 8);
        CHECK_I64(out[t][15], 3 + 11);
    }
    OK(api.cu.MemFree(p));
    OK(api.cu.ModuleUnload(m));
}

static void compile_errors(void) {
    char *log = NULL;
    CHECK(!compile("extern \"C\" __global__ void bad(int *x) {\n    *x = nonsense;\n}\n", &log));
    CHECK_TEXT(log, "test.cu");
    CHECK_TEXT(log, "2");
    CHECK_TEXT(log, "nonsense");
    free(log);
    lz_nvrtc_program program = NULL;
    const char *options[] = {"--no-such-option"};
    CHECK_I64(api.nvrtc.CreateProgram(&program, "", "empty.cu", 0, NULL, NULL), LZ_NVRTC_SUCCESS);
    CHECK_I64(api.nvrtc.CompileProgram(program, 1, options), LZ_NVRTC_ERROR_INVALID_OPTION);
    CHECK_TEXT(api.nvrtc.GetErrorString(LZ_NVRTC_ERROR_COMPILATION), "NVRTC_ERROR_COMPILATION");
    CHECK_I64(api.nvrtc.DestroyProgram(&program), LZ_NVRTC_SUCCESS);
    lz_cu_module m = NULL;
    GIVES(api.cu.ModuleLoadData(&m,
                                "this is no image, whatever it may look like from afar, and it is long enough to tell"),
          LZ_CUDA_ERROR_INVALID_IMAGE);
}

/* ---- graphs ----------------------------------------------------------------------------------------------------- */

static lz_cu_graph capture_adds(lz_cu_ptr a, lz_cu_ptr b, lz_cu_ptr c, int n, int times, bool fill) {
    lz_cu_graph graph = NULL;
    lz_cu_function add = function_of(module, "add");
    OK(api.cu.StreamBeginCapture(stream, LZ_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int i = 0; i < times; i++) OK(LAUNCH(add, 2, 32, 0, &a, &b, &c, &n));
    if (fill)
        OK(api.cu.MemsetD8Async(c, 0, 4, stream));
    else
        OK(api.cu.MemcpyDtoDAsync(a, c, (size_t)n * 4, stream));
    OK(api.cu.StreamEndCapture(stream, &graph));
    return graph;
}

static void replays_graphs(void) {
    enum { N = 100 };
    float a[N], b[N], c[N];
    for (int i = 0; i < N; i++) a[i] = (float)i, b[i] = 1, c[i] = -1;
    lz_cu_ptr da = device_copy(a, sizeof a), db = device_copy(b, sizeof b), dc = device_copy(c, sizeof c);
    lz_cu_graph graph = capture_adds(da, db, dc, N, 1, false);
    read_back(c, dc, sizeof c);
    CHECK(c[3] == -1, "captured work must not run"); /* nothing was done yet */
    size_t n = 0;
    OK(api.cu.GraphGetNodes(graph, NULL, &n));
    CHECK_I64(n, 2);
    lz_cu_graph_exec exec = NULL;
    OK(api.cu.GraphInstantiateWithFlags(&exec, graph, 0));
    OK(api.cu.GraphDestroy(graph));
    for (int i = 0; i < 5; i++) OK(api.cu.GraphLaunch(exec, stream)); /* a += 2 b, five times */
    read_back(c, dc, sizeof c);
    for (int i = 0; i < N; i++) CHECK(c[i] == (float)i + 10);

    /* The same work on other arguments is an update; other work is none. */
    lz_cu_update_info info;
    graph = capture_adds(da, da, dc, N, 1, false);
    OK(api.cu.GraphExecUpdate(exec, graph, &info));
    CHECK_I64(info.result, LZ_CU_GRAPH_EXEC_UPDATE_SUCCESS);
    OK(api.cu.GraphDestroy(graph));
    OK(api.cu.GraphLaunch(exec, stream));
    read_back(a, da, sizeof a);
    for (int i = 0; i < N; i++) CHECK(a[i] == 3 * ((float)i + 10));
    graph = capture_adds(da, db, dc, N, 2, false);
    GIVES(api.cu.GraphExecUpdate(exec, graph, &info), LZ_CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    CHECK_I64(info.result, LZ_CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    OK(api.cu.GraphDestroy(graph));
    graph = capture_adds(da, db, dc, N, 1, true);
    GIVES(api.cu.GraphExecUpdate(exec, graph, &info), LZ_CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    OK(api.cu.GraphDestroy(graph));
    OK(api.cu.GraphExecDestroy(exec));
    OK(api.cu.MemFree(da));
    OK(api.cu.MemFree(db));
    OK(api.cu.MemFree(dc));
}

static void captures_forks(void) {
    lz_cu_stream other = NULL;
    lz_cu_event fork = NULL, join = NULL;
    lz_cu_graph graph = NULL;
    lz_cu_graph_exec exec = NULL;
    unsigned char bytes[8];
    lz_cu_ptr p = device_copy(NULL, 8);
    OK(api.cu.StreamCreate(&other, LZ_CU_STREAM_NON_BLOCKING));
    OK(api.cu.EventCreate(&fork, LZ_CU_EVENT_DISABLE_TIMING));
    OK(api.cu.EventCreate(&join, LZ_CU_EVENT_DISABLE_TIMING));
    for (int joined = 0; joined < 2; joined++) {
        OK(api.cu.StreamBeginCapture(stream, LZ_CU_STREAM_CAPTURE_MODE_GLOBAL));
        OK(api.cu.MemsetD8Async(p, 1, 4, stream));
        OK(api.cu.EventRecord(fork, stream));
        OK(api.cu.StreamWaitEvent(other, fork, 0));
        OK(api.cu.MemsetD8Async(p + 4, 2, 4, other));
        OK(api.cu.EventRecord(join, other));
        if (joined) OK(api.cu.StreamWaitEvent(stream, join, 0));
        GIVES(api.cu.StreamEndCapture(stream, &graph),
              joined ? LZ_CUDA_SUCCESS : LZ_CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    }
    OK(api.cu.GraphInstantiateWithFlags(&exec, graph, 0));
    OK(api.cu.GraphLaunch(exec, stream));
    read_back(bytes, p, 8);
    CHECK_I64(bytes[0], 1);
    CHECK_I64(bytes[7], 2);
    OK(api.cu.GraphExecDestroy(exec));
    OK(api.cu.GraphDestroy(graph));
    OK(api.cu.EventDestroy(fork));
    OK(api.cu.EventDestroy(join));
    OK(api.cu.StreamDestroy(other));
    OK(api.cu.MemFree(p));
}

/* What cannot be captured is refused, spoils the capture, and leaves the stream usable after its end. */
static void refuses_in_captures(void) {
    lz_cu_ptr p = device_copy(NULL, 64), q = 0;
    lz_cu_graph graph = NULL;
    OK(api.cu.StreamBeginCapture(stream, LZ_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(api.cu.MemsetD8Async(p, 0, 64, stream));
    GIVES(api.cu.StreamSynchronize(stream), LZ_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    GIVES(api.cu.MemsetD8Async(p, 0, 64, stream), LZ_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    GIVES(api.cu.StreamEndCapture(stream, &graph), LZ_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK(!graph);

    OK(api.cu.StreamBeginCapture(stream, LZ_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    GIVES(api.cu.StreamBeginCapture(stream, LZ_CU_STREAM_CAPTURE_MODE_RELAXED), LZ_CUDA_ERROR_ILLEGAL_STATE);
    GIVES(api.cu.MemAlloc(&q, 64), LZ_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    GIVES(api.cu.StreamEndCapture(stream, &graph), LZ_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

    OK(api.cu.StreamBeginCapture(stream, LZ_CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(api.cu.MemAlloc(&q, 64));
    OK(api.cu.StreamEndCapture(stream, &graph));
    OK(api.cu.GraphDestroy(graph));
    GIVES(api.cu.StreamEndCapture(stream, &graph), LZ_CUDA_ERROR_ILLEGAL_STATE);
    OK(api.cu.StreamSynchronize(stream));
    OK(api.cu.MemFree(p));
    OK(api.cu.MemFree(q));
}

/* ---- events, host functions ------------------------------------------------------------------------------------- */

static void call_back(void *user) {
    lz_cu_ptr p;
    int *calls = user;
    *calls += api.cu.MemAlloc(&p, 64) == LZ_CUDA_ERROR_NOT_PERMITTED ? 1 : 100;
}

static void events(void) {
    lz_cu_event begin = NULL, end = NULL;
    float milliseconds = -1;
    int calls = 0;
    OK(api.cu.EventCreate(&begin, LZ_CU_EVENT_DEFAULT));
    OK(api.cu.EventCreate(&end, LZ_CU_EVENT_DEFAULT));
    OK(api.cu.EventQuery(begin)); /* nothing to wait for yet */
    OK(api.cu.EventRecord(begin, stream));
    OK(api.cu.LaunchHostFunc(stream, call_back, &calls));
    OK(api.cu.EventRecord(end, stream));
    OK(api.cu.EventSynchronize(end));
    CHECK_I64(calls, 1);
    OK(api.cu.EventQuery(end));
    OK(api.cu.StreamQuery(stream));
    OK(api.cu.EventElapsedTime(&milliseconds, begin, end));
    CHECK(milliseconds >= 0 && milliseconds < 10000, "%g", (double)milliseconds);
    OK(api.cu.StreamWaitEvent(stream, end, 0));
    OK(api.cu.EventDestroy(begin));
    OK(api.cu.EventDestroy(end));
}

/* ---- tensor maps ------------------------------------------------------------------------------------------------ */

static void tensor_maps(void) {
    lz_cu_tensor_map map;
    lz_cu_ptr p = device_copy(NULL, 64 * 64 * 2);
    uint64_t dims[2] = {64, 64}, strides[1] = {128};
    uint32_t box[2] = {64, 32}, steps[2] = {1, 1};
#define ENCODE(address, swizzle)                                                                                       \
    api.cu.TensorMapEncodeTiled(&map, LZ_CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)(uintptr_t)(address), dims,      \
                                strides, box, steps, LZ_CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,                        \
                                LZ_CU_TENSOR_MAP_L2_PROMOTION_L2_128B, LZ_CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
    OK(ENCODE(p, LZ_CU_TENSOR_MAP_SWIZZLE_128B));
    GIVES(ENCODE(p, LZ_CU_TENSOR_MAP_SWIZZLE_64B), LZ_CUDA_ERROR_INVALID_VALUE);
    GIVES(ENCODE(p + 2, LZ_CU_TENSOR_MAP_SWIZZLE_128B), LZ_CUDA_ERROR_INVALID_VALUE);
    OK(api.cu.MemFree(p));
}

/* ---- what only the simulator does ------------------------------------------------------------------------------- */

static long simulator_count(const char *name) {
    long (*count)(void) = NULL;
    *(void **)&count = dlsym(api.handles[0], name);
    return CHECK(count != NULL) ? count() : -1;
}

static void runs_out_of_memory(void) {
    if (!simulated) return;
    reopen_with("LAZULI_SIM_MEMORY", "1000000");
    lz_cu_ptr p = 0, q = 0;
    size_t unused = 0, total = 0;
    OK(api.cu.MemAlloc(&p, 600000));
    GIVES(api.cu.MemAlloc(&q, 600000), LZ_CUDA_ERROR_OUT_OF_MEMORY);
    OK(api.cu.MemGetInfo(&unused, &total));
    CHECK_I64(unused, 400000);
    CHECK_I64(total, 1000000);
    OK(api.cu.MemFree(p));
    OK(api.cu.MemAlloc(&q, 600000));
    OK(api.cu.MemFree(q));
    reopen_with("LAZULI_SIM_MEMORY", NULL);
}

/* Some work whose every call may fail, and that cleans up after itself: 0, or the first error. */
static lz_cu_result try_work(void) {
    lz_cu_ptr p = 0;
    unsigned char byte = 0;
    lz_cu_graph graph = NULL, ended = NULL;
    lz_cu_result result = open_context();
    if (result) return result;
    result = api.cu.MemAlloc(&p, 64);
    if (!result) result = api.cu.StreamBeginCapture(stream, LZ_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    if (!result) {
        result = api.cu.MemsetD8Async(p, 3, 64, stream);
        lz_cu_result end = api.cu.StreamEndCapture(stream, &ended);
        if (!result) result = end;
        graph = ended;
    }
    lz_cu_graph_exec exec = NULL;
    if (!result) result = api.cu.GraphInstantiateWithFlags(&exec, graph, 0);
    if (!result) result = api.cu.GraphLaunch(exec, stream);
    if (!result) result = api.cu.MemcpyDtoHAsync(&byte, p, 1, stream);
    if (!result) result = api.cu.StreamSynchronize(stream);
    if (!result) CHECK_I64(byte, 3);
    if (exec) OK(api.cu.GraphExecDestroy(exec));
    if (graph) OK(api.cu.GraphDestroy(graph));
    if (p) OK(api.cu.MemFree(p));
    close_context();
    return result;
}

static void fails_on_demand(void) {
    if (!simulated) return;
    close_context();
    long before = simulator_count("lz_sim_live");
    OK(try_work());
    long calls = simulator_count("lz_sim_calls");
    CHECK(calls > 10);
    for (long i = 1; i <= calls; i++) {
        char number[24];
        snprintf(number, sizeof number, "%ld", i);
        set_option("LAZULI_SIM_FAIL", number);
        GIVES(try_work(), LZ_CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_I64(simulator_count("lz_sim_live"), before);
    }
    set_option("LAZULI_SIM_FAIL", NULL);
    OK(open_context());
}

/* With LAZULI_SIM_ASYNC, work on pinned memory is not done before somebody waits. */
static void puts_work_off(void) {
    if (!simulated) return;
    reopen_with("LAZULI_SIM_ASYNC", "1");
    unsigned char *pinned = NULL, pageable = 1;
    lz_cu_event event = NULL;
    OK(api.cu.MemHostAlloc((void **)&pinned, 16, 0));
    OK(api.cu.EventCreate(&event, LZ_CU_EVENT_DEFAULT));
    pinned[0] = 9;
    lz_cu_ptr p = device_copy(NULL, 16);
    OK(api.cu.MemsetD8Async(p, 5, 16, stream));
    OK(api.cu.MemcpyDtoHAsync(pinned, p, 16, stream));
    OK(api.cu.EventRecord(event, stream));
    CHECK_I64(pinned[0], 9);
    GIVES(api.cu.EventQuery(event), LZ_CUDA_ERROR_NOT_READY);
    OK(api.cu.EventQuery(event));
    CHECK_I64(pinned[0], 5);
    OK(api.cu.MemcpyDtoHAsync(&pageable, p, 1, stream));
    CHECK_I64(pageable, 5);
    OK(api.cu.EventDestroy(event));
    OK(api.cu.MemFreeHost(pinned));
    OK(api.cu.MemFree(p));
    adds_vectors();
    replays_graphs();
    reopen_with("LAZULI_SIM_ASYNC", NULL);
}

/* Two streams with LAZULI_SIM_ASYNC: each does no more than is waited for, or (2) all it may; an event orders them, as
 * it was recorded when the wait was asked for. */
static void orders_streams(void) {
    for (int eager = 0; eager < 2 && simulated; eager++) {
        reopen_with("LAZULI_SIM_ASYNC", eager ? "2" : "1");
        lz_cu_stream other = NULL;
        lz_cu_event event = NULL;
        unsigned char *pinned = NULL;
        OK(api.cu.StreamCreate(&other, LZ_CU_STREAM_NON_BLOCKING));
        OK(api.cu.EventCreate(&event, LZ_CU_EVENT_DISABLE_TIMING));
        OK(api.cu.MemHostAlloc((void **)&pinned, 16, 0));
        lz_cu_ptr p = device_copy(NULL, 16);
        memset(pinned, 0, 16);
        OK(api.cu.MemsetD8Async(p, 1, 1, other)); /* nobody waits for it, ... */
        OK(api.cu.MemsetD8Async(p + 1, 2, 1, other));
        OK(api.cu.MemcpyDtoHAsync(pinned, p, 1, stream));
        OK(api.cu.StreamSynchronize(stream));
        CHECK_I64(pinned[0], eager ? 1 : 0xff);
        OK(api.cu.EventRecord(event, other)); /* ... now somebody does */
        OK(api.cu.StreamWaitEvent(stream, event, 0));
        OK(api.cu.MemsetD8Async(p + 1, 3, 1, other));
        OK(api.cu.EventRecord(event, other)); /* another moment, that nobody waits for */
        OK(api.cu.MemcpyDtoHAsync(pinned + 1, p, 2, stream));
        OK(api.cu.StreamSynchronize(stream));
        CHECK_I64(pinned[1], 1);
        CHECK_I64(pinned[2], eager ? 3 : 2);
        OK(api.cu.EventSynchronize(event));
        OK(api.cu.MemcpyDtoHAsync(pinned + 3, p + 1, 1, stream));
        OK(api.cu.StreamSynchronize(stream));
        CHECK_I64(pinned[3], 3);
        OK(api.cu.EventDestroy(event));
        OK(api.cu.StreamDestroy(other));
        OK(api.cu.MemFreeHost(pinned));
        OK(api.cu.MemFree(p));
        reopen_with("LAZULI_SIM_ASYNC", NULL);
    }
}

/* Runs fn in a child: the signal that ended it, or minus its exit status; what it printed goes to said. */
static int in_child(void (*fn)(void), char *said, size_t bytes) {
    int ends[2], status = 0;
    if (!CHECK(pipe(ends) == 0)) return 0;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        fn();
        exit(0);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; n + 1 < bytes && (got = read(ends[0], said + n, bytes - 1 - n)) > 0;) n += (size_t)got;
    said[n] = 0;
    close(ends[0]);
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

static const char bugs[] = "extern \"C\" __global__ void diverge(int *x) {\n"
                           "    if (threadIdx.x < 7) return;\n"
                           "    __syncthreads();\n"
                           "    *x = 1;\n"
                           "}\n"
                           "extern \"C\" __global__ void lanes(int *x) {\n"
                           "    if (threadIdx.x != 3) *x = __shfl_sync(0xffffffffu, 1, 0);\n"
                           "    else __syncthreads();\n"
                           "}\n"
                           "extern \"C\" __global__ void overrun(int *x) {\n"
                           "    extern __shared__ int shared[];\n"
                           "    shared[blockDim.x] = 1;\n"
                           "}\n"
                           "extern \"C\" __global__ void beyond(int *x) { x[threadIdx.x + 64] = 1; }\n"
                           "extern \"C\" __global__ void misaligned(int *x) { __ldcs((const int4 *)(x + 1)); }\n"
                           "extern \"C\" __global__ void divides(int *x) { *x = 7 / (threadIdx.x & 0); }\n"
                           "extern \"C\" __global__ void fine(int *x) { *x = 1; }\n";

static lz_cu_module bug_module;
static const char *bug;

static void run_bug(void) {
    lz_cu_ptr p = device_copy(NULL, 256);
    LAUNCH(function_of(bug_module, bug), 1, 64, 256, &p);
    api.cu.MemFree(p);
}

static void touch_device_memory(void) {
    reopen_with("LAZULI_SIM_STRICT", "1");
    lz_cu_ptr p = device_copy("abc", 4);
    char text[4];
    read_back(text, p, 4);
    if (strcmp(text, "abc")) exit(9);
    adds_vectors();
    if (*(volatile char *)(uintptr_t)p) exit(8); /* stops here */
}

static void leak_memory(void) {
    setenv("LAZULI_SIM_LEAKS", "1", 1);
    device_copy(NULL, 100);
}

static void stops_at_bugs(void) {
    if (!simulated) return;
    static const struct {
        const char *name, *text;
    } rows[] = {
        {"diverge", "not all threads of the block come to this barrier"},
        {"lanes", "not all lanes of the mask come to this warp function"},
        {"overrun", "wrote behind its dynamic shared memory"},
        {"misaligned", "misaligned address"},
        {"beyond", "illegal address"},
        {"divides", "division by zero"},
    };
    char said[4096];
    bug_module = compile(bugs, NULL);
    if (!bug_module) return;
    bug = "fine";
    CHECK_I64(in_child(run_bug, said, sizeof said), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bug = rows[i].name;
        CHECK(in_child(run_bug, said, sizeof said) != 0, "%s", rows[i].name);
        CHECK_TEXT(said, rows[i].text);
        CHECK_TEXT(said, rows[i].name);
    }
    OK(api.cu.ModuleUnload(bug_module));
    int ended = in_child(touch_device_memory, said, sizeof said);
    CHECK(ended && ended != -9 && ended != -8, "%d", ended);
    CHECK_I64(in_child(leak_memory, said, sizeof said), -1);
    CHECK_TEXT(said, "1 device allocations left");
}

/* ---- opening the libraries -------------------------------------------------------------------------------------- */

static void absent(void) {
    const char *given = getenv("LAZULI_CUDA_PATH");
    lz_cuda_api other;
    lz_error err;
    /* The driver is not looked for in these folders only, and is loaded here already; the compiler is absent. */
    CHECK(!lz_cuda_api_open(&other, "/nowhere:/neither", &err));
    CHECK_I64(err.status, LZ_DEVICE_FAILED);
    CHECK_TEXT(err.text, "no CUDA runtime compiler");
    CHECK(!other.nvrtc.CompileProgram && !other.handles[1]);
    lz_cuda_api_close(&other);
    if (given) { /* a list of folders: the one that has it counts */
        char list[1024];
        snprintf(list, sizeof list, "/nowhere:%s", given);
        CHECK(lz_cuda_api_open(&other, list, &err), "%s", err.text);
        lz_cuda_api_close(&other);
    }
}

static bool set_up(void) {
    lz_error err = {0};
    if (!CHECK(lz_cuda_api_open(&api, getenv("LAZULI_CUDA_PATH"), &err), "%s", err.text) ||
        !CHECK_I64(open_context(), LZ_CUDA_SUCCESS))
        return false;
    module = compile(kernels, NULL);
    return module != NULL;
}

static void closes(void) {
    OK(api.cu.ModuleUnload(module));
    close_context();
    if (simulated) CHECK_I64(simulator_count("lz_sim_live"), 0);
    lz_cuda_api_close(&api);
}

int main(int argc, char **argv) {
    static const test_entry tests[] = {
        {"device", device},
        {"memory", memory},
        {"adds_vectors", adds_vectors},
        {"passes_by_value", passes_by_value},
        {"sums_rows", sums_rows},
        {"shares_memory", shares_memory},
        {"counts_atomically", counts_atomically},
        {"knows_indices", knows_indices},
        {"warp_functions", warp_functions},
        {"compile_errors", compile_errors},
        {"replays_graphs", replays_graphs},
        {"captures_forks", captures_forks},
        {"refuses_in_captures", refuses_in_captures},
        {"events", events},
        {"tensor_maps", tensor_maps},
        {"runs_out_of_memory", runs_out_of_memory},
        {"fails_on_demand", fails_on_demand},
        {"puts_work_off", puts_work_off},
        {"orders_streams", orders_streams},
        {"stops_at_bugs", stops_at_bugs},
        {"absent", absent},
        {"closes", closes},
    };
    return test_run(tests, set_up() ? sizeof tests / sizeof *tests : 0, argc, argv);
}
