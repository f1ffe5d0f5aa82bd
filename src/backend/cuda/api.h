/* api.h: the part of NVIDIA's libraries that we call, declared here so that the backend is built everywhere, with or
 * without the CUDA toolkit. Nothing is linked: lz_cuda_api_open looks the libraries up when a context asks for a GPU.
 *
 * How to read the names: api->cu.MemAlloc is cuMemAlloc, api->nvrtc.CompileProgram is nvrtcCompileProgram,
 * api->lt.Matmul is cublasLtMatmul, api->dnn.BackendExecute is cudnnBackendExecute; a constant is LZ_ and its name in
 * NVIDIA's documentation. The values are part of those libraries' binary interface and never change;
 * tests/cuda-sim/check_api.c compares all of them with the real headers, on machines that have them. */
#ifndef LZ_CUDA_API_H
#define LZ_CUDA_API_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lazuli.h"

/* ---- the driver ------------------------------------------------------------------------------------------------- */

typedef int lz_cu_device;
typedef unsigned long long lz_cu_ptr; /* an address on the device */
typedef struct CUctx_st *lz_cu_context;
typedef struct CUstream_st *lz_cu_stream;
typedef struct CUevent_st *lz_cu_event;
typedef struct CUmod_st *lz_cu_module;
typedef struct CUfunc_st *lz_cu_function;
typedef struct CUgraph_st *lz_cu_graph;
typedef struct CUgraphNode_st *lz_cu_graph_node;
typedef struct CUgraphExec_st *lz_cu_graph_exec;
typedef void (*lz_cu_host_fn)(void *user);

typedef enum lz_cu_result {
    LZ_CUDA_SUCCESS = 0,
    LZ_CUDA_ERROR_INVALID_VALUE = 1,
    LZ_CUDA_ERROR_OUT_OF_MEMORY = 2,
    LZ_CUDA_ERROR_NOT_INITIALIZED = 3,
    LZ_CUDA_ERROR_DEINITIALIZED = 4,
    LZ_CUDA_ERROR_STUB_LIBRARY = 34,
    LZ_CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
    LZ_CUDA_ERROR_NO_DEVICE = 100,
    LZ_CUDA_ERROR_INVALID_DEVICE = 101,
    LZ_CUDA_ERROR_INVALID_IMAGE = 200,
    LZ_CUDA_ERROR_INVALID_CONTEXT = 201,
    LZ_CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    LZ_CUDA_ERROR_ECC_UNCORRECTABLE = 214,
    LZ_CUDA_ERROR_INVALID_PTX = 218,
    LZ_CUDA_ERROR_INVALID_SOURCE = 300,
    LZ_CUDA_ERROR_FILE_NOT_FOUND = 301,
    LZ_CUDA_ERROR_OPERATING_SYSTEM = 304,
    LZ_CUDA_ERROR_INVALID_HANDLE = 400,
    LZ_CUDA_ERROR_ILLEGAL_STATE = 401,
    LZ_CUDA_ERROR_NOT_FOUND = 500,
    LZ_CUDA_ERROR_NOT_READY = 600,
    LZ_CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    LZ_CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    LZ_CUDA_ERROR_LAUNCH_TIMEOUT = 702,
    LZ_CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
    LZ_CUDA_ERROR_ASSERT = 710,
    LZ_CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
    LZ_CUDA_ERROR_MISALIGNED_ADDRESS = 716,
    LZ_CUDA_ERROR_LAUNCH_FAILED = 719,
    LZ_CUDA_ERROR_NOT_PERMITTED = 800,
    LZ_CUDA_ERROR_NOT_SUPPORTED = 801,
    LZ_CUDA_ERROR_SYSTEM_NOT_READY = 802,
    LZ_CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
    LZ_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    LZ_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    LZ_CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
    LZ_CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
    LZ_CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
    LZ_CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
    LZ_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    LZ_CUDA_ERROR_CAPTURED_EVENT = 907,
    LZ_CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
    LZ_CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910,
    LZ_CUDA_ERROR_UNKNOWN = 999,
} lz_cu_result;

typedef enum lz_cu_device_attribute {
    LZ_CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
    LZ_CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
    LZ_CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
    LZ_CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6,
    LZ_CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7,
    LZ_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
    LZ_CU_DEVICE_ATTRIBUTE_WARP_SIZE = 10,
    LZ_CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK = 12,
    LZ_CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13, /* kHz */
    LZ_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
    LZ_CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
    LZ_CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,       /* kHz */
    LZ_CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37, /* bits */
    LZ_CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
    LZ_CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    LZ_CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40,
    LZ_CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
    LZ_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
    LZ_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
    LZ_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR = 81,
    LZ_CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR = 82,
    LZ_CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
} lz_cu_device_attribute;

typedef enum lz_cu_function_attribute {
    LZ_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    LZ_CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1, /* static */
    LZ_CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,  /* spilled registers, per thread */
    LZ_CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
    LZ_CU_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
    LZ_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    LZ_CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9,
} lz_cu_function_attribute;

typedef enum lz_cu_capture_mode {
    LZ_CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
    LZ_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    LZ_CU_STREAM_CAPTURE_MODE_RELAXED = 2,
} lz_cu_capture_mode;

typedef enum lz_cu_update_result {
    LZ_CU_GRAPH_EXEC_UPDATE_SUCCESS = 0,
    LZ_CU_GRAPH_EXEC_UPDATE_ERROR = 1,
    LZ_CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED = 2,
    LZ_CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED = 3,
    LZ_CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED = 5,
    LZ_CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED = 6,
    LZ_CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE = 7,
} lz_cu_update_result;

typedef struct lz_cu_update_info {
    lz_cu_update_result result;
    lz_cu_graph_node node; /* the first that does not fit, or NULL */
    lz_cu_graph_node from;
} lz_cu_update_info;
static_assert(sizeof(lz_cu_update_info) == 24, "CUgraphExecUpdateResultInfo");

/* Flags of cuStreamCreate, cuEventCreate, cuMemHostAlloc. */
enum {
    LZ_CU_STREAM_DEFAULT = 0,
    LZ_CU_STREAM_NON_BLOCKING = 1,
    LZ_CU_EVENT_DEFAULT = 0,
    LZ_CU_EVENT_BLOCKING_SYNC = 1,
    LZ_CU_EVENT_DISABLE_TIMING = 2,
    LZ_CU_MEMHOSTALLOC_PORTABLE = 1,
    LZ_CU_MEMHOSTALLOC_DEVICEMAP = 2,
    LZ_CU_MEMHOSTALLOC_WRITECOMBINED = 4,
};

/* Describes a tensor in global memory for the copy engine (TMA) of Hopper; passed to kernels by value. */
typedef struct lz_cu_tensor_map {
    _Alignas(128) uint64_t opaque[16];
} lz_cu_tensor_map;
static_assert(sizeof(lz_cu_tensor_map) == 128, "CUtensorMap");

typedef enum lz_cu_tensor_map_type {
    LZ_CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
    LZ_CU_TENSOR_MAP_DATA_TYPE_UINT16 = 1,
    LZ_CU_TENSOR_MAP_DATA_TYPE_UINT32 = 2,
    LZ_CU_TENSOR_MAP_DATA_TYPE_INT32 = 3,
    LZ_CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
    LZ_CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
    LZ_CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9,
    LZ_CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 = 11,
} lz_cu_tensor_map_type;

typedef enum lz_cu_tensor_map_interleave {
    LZ_CU_TENSOR_MAP_INTERLEAVE_NONE = 0,
} lz_cu_tensor_map_interleave;

typedef enum lz_cu_tensor_map_swizzle {
    LZ_CU_TENSOR_MAP_SWIZZLE_NONE = 0,
    LZ_CU_TENSOR_MAP_SWIZZLE_32B = 1,
    LZ_CU_TENSOR_MAP_SWIZZLE_64B = 2,
    LZ_CU_TENSOR_MAP_SWIZZLE_128B = 3,
} lz_cu_tensor_map_swizzle;

typedef enum lz_cu_tensor_map_l2 {
    LZ_CU_TENSOR_MAP_L2_PROMOTION_NONE = 0,
    LZ_CU_TENSOR_MAP_L2_PROMOTION_L2_64B = 1,
    LZ_CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2,
    LZ_CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3,
} lz_cu_tensor_map_l2;

typedef enum lz_cu_tensor_map_fill {
    LZ_CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0, /* zeros beyond the edges */
    LZ_CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA = 1,
} lz_cu_tensor_map_fill;

/* X(return type, name, version, parameters). The symbol is cu<name><version>. */
#define LZ_CU_FUNCTIONS(X)                                                                                             \
    X(lz_cu_result, Init, , (unsigned flags))                                                                          \
    X(lz_cu_result, DriverGetVersion, , (int *version))                                                                \
    X(lz_cu_result, GetErrorName, , (lz_cu_result error, const char **text))                                           \
    X(lz_cu_result, GetErrorString, , (lz_cu_result error, const char **text))                                         \
    X(lz_cu_result, DeviceGetCount, , (int *count))                                                                    \
    X(lz_cu_result, DeviceGet, , (lz_cu_device * device, int ordinal))                                                 \
    X(lz_cu_result, DeviceGetName, , (char *name, int bytes, lz_cu_device device))                                     \
    X(lz_cu_result, DeviceGetAttribute, , (int *value, lz_cu_device_attribute attribute, lz_cu_device device))         \
    X(lz_cu_result, DeviceTotalMem, _v2, (size_t * bytes, lz_cu_device device))                                        \
    X(lz_cu_result, DevicePrimaryCtxRetain, , (lz_cu_context * context, lz_cu_device device))                          \
    X(lz_cu_result, DevicePrimaryCtxRelease, _v2, (lz_cu_device device))                                               \
    X(lz_cu_result, CtxPushCurrent, _v2, (lz_cu_context context))                                                      \
    X(lz_cu_result, CtxPopCurrent, _v2, (lz_cu_context * context))                                                     \
    X(lz_cu_result, CtxSetCurrent, , (lz_cu_context context))                                                          \
    X(lz_cu_result, MemAlloc, _v2, (lz_cu_ptr * address, size_t bytes))                                                \
    X(lz_cu_result, MemFree, _v2, (lz_cu_ptr address))                                                                 \
    X(lz_cu_result, MemGetInfo, _v2, (size_t * unused, size_t * total))                                                \
    X(lz_cu_result, MemHostAlloc, , (void **memory, size_t bytes, unsigned flags))                                     \
    X(lz_cu_result, MemFreeHost, , (void *memory))                                                                     \
    X(lz_cu_result, MemcpyHtoDAsync, _v2, (lz_cu_ptr to, const void *from, size_t bytes, lz_cu_stream stream))         \
    X(lz_cu_result, MemcpyDtoHAsync, _v2, (void *to, lz_cu_ptr from, size_t bytes, lz_cu_stream stream))               \
    X(lz_cu_result, MemcpyDtoDAsync, _v2, (lz_cu_ptr to, lz_cu_ptr from, size_t bytes, lz_cu_stream stream))           \
    X(lz_cu_result, MemsetD8Async, , (lz_cu_ptr to, unsigned char value, size_t bytes, lz_cu_stream stream))           \
    X(lz_cu_result, StreamCreate, , (lz_cu_stream * stream, unsigned flags))                                           \
    X(lz_cu_result, StreamDestroy, _v2, (lz_cu_stream stream))                                                         \
    X(lz_cu_result, StreamSynchronize, , (lz_cu_stream stream))                                                        \
    X(lz_cu_result, StreamQuery, , (lz_cu_stream stream))                                                              \
    X(lz_cu_result, StreamWaitEvent, , (lz_cu_stream stream, lz_cu_event event, unsigned flags))                       \
    X(lz_cu_result, StreamBeginCapture, _v2, (lz_cu_stream stream, lz_cu_capture_mode mode))                           \
    X(lz_cu_result, StreamEndCapture, , (lz_cu_stream stream, lz_cu_graph * graph))                                    \
    X(lz_cu_result, EventCreate, , (lz_cu_event * event, unsigned flags))                                              \
    X(lz_cu_result, EventDestroy, _v2, (lz_cu_event event))                                                            \
    X(lz_cu_result, EventRecord, , (lz_cu_event event, lz_cu_stream stream))                                           \
    X(lz_cu_result, EventSynchronize, , (lz_cu_event event))                                                           \
    X(lz_cu_result, EventQuery, , (lz_cu_event event))                                                                 \
    X(lz_cu_result, EventElapsedTime, _v2, (float *milliseconds, lz_cu_event start, lz_cu_event end))                  \
    X(lz_cu_result, ModuleLoadData, , (lz_cu_module * module, const void *image))                                      \
    X(lz_cu_result, ModuleUnload, , (lz_cu_module module))                                                             \
    X(lz_cu_result, ModuleGetFunction, , (lz_cu_function * function, lz_cu_module module, const char *name))           \
    X(lz_cu_result, FuncGetAttribute, , (int *value, lz_cu_function_attribute attribute, lz_cu_function function))     \
    X(lz_cu_result, FuncSetAttribute, , (lz_cu_function function, lz_cu_function_attribute attribute, int value))      \
    X(lz_cu_result, OccupancyMaxActiveBlocksPerMultiprocessor, ,                                                       \
      (int *blocks, lz_cu_function function, int threads, size_t shared_bytes))                                        \
    X(lz_cu_result, LaunchKernel, ,                                                                                    \
      (lz_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
       unsigned block_z, unsigned shared_bytes, lz_cu_stream stream, void **params, void **extra))                     \
    X(lz_cu_result, LaunchHostFunc, , (lz_cu_stream stream, lz_cu_host_fn fn, void *user))                             \
    X(lz_cu_result, GraphGetNodes, , (lz_cu_graph graph, lz_cu_graph_node * nodes, size_t * count))                    \
    X(lz_cu_result, GraphInstantiateWithFlags, ,                                                                       \
      (lz_cu_graph_exec * exec, lz_cu_graph graph, unsigned long long flags))                                          \
    X(lz_cu_result, GraphExecUpdate, _v2, (lz_cu_graph_exec exec, lz_cu_graph graph, lz_cu_update_info * info))        \
    X(lz_cu_result, GraphLaunch, , (lz_cu_graph_exec exec, lz_cu_stream stream))                                       \
    X(lz_cu_result, GraphExecDestroy, , (lz_cu_graph_exec exec))                                                       \
    X(lz_cu_result, GraphDestroy, , (lz_cu_graph graph))                                                               \
    X(lz_cu_result, TensorMapEncodeTiled, ,                                                                            \
      (lz_cu_tensor_map * map, lz_cu_tensor_map_type type, uint32_t rank, void *address, const uint64_t *dims,         \
       const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,                                  \
       lz_cu_tensor_map_interleave interleave, lz_cu_tensor_map_swizzle swizzle, lz_cu_tensor_map_l2 l2,               \
       lz_cu_tensor_map_fill fill))

/* ---- NVRTC: CUDA C++ to machine code, at run time ---------------------------------------------------------------- */

typedef struct lz_nvrtc_program_t *lz_nvrtc_program;

typedef enum lz_nvrtc_result {
    LZ_NVRTC_SUCCESS = 0,
    LZ_NVRTC_ERROR_OUT_OF_MEMORY = 1,
    LZ_NVRTC_ERROR_PROGRAM_CREATION_FAILURE = 2,
    LZ_NVRTC_ERROR_INVALID_INPUT = 3,
    LZ_NVRTC_ERROR_INVALID_PROGRAM = 4,
    LZ_NVRTC_ERROR_INVALID_OPTION = 5,
    LZ_NVRTC_ERROR_COMPILATION = 6,
    LZ_NVRTC_ERROR_BUILTIN_OPERATION_FAILURE = 7,
    LZ_NVRTC_ERROR_INTERNAL_ERROR = 11,
} lz_nvrtc_result;

#define LZ_NVRTC_FUNCTIONS(X)                                                                                          \
    X(lz_nvrtc_result, Version, , (int *major, int *minor))                                                            \
    X(const char *, GetErrorString, , (lz_nvrtc_result result))                                                        \
    X(lz_nvrtc_result, CreateProgram, ,                                                                                \
      (lz_nvrtc_program * program, const char *source, const char *name, int n_headers, const char *const *headers,    \
       const char *const *header_names))                                                                               \
    X(lz_nvrtc_result, DestroyProgram, , (lz_nvrtc_program * program))                                                 \
    X(lz_nvrtc_result, CompileProgram, , (lz_nvrtc_program program, int n_options, const char *const *options))        \
    X(lz_nvrtc_result, GetCUBINSize, , (lz_nvrtc_program program, size_t * bytes))                                     \
    X(lz_nvrtc_result, GetCUBIN, , (lz_nvrtc_program program, char *cubin))                                            \
    X(lz_nvrtc_result, GetProgramLogSize, , (lz_nvrtc_program program, size_t * bytes))                                \
    X(lz_nvrtc_result, GetProgramLog, , (lz_nvrtc_program program, char *log))

/* ---- cuBLASLt: matrix products ----------------------------------------------------------------------------------- */

typedef struct cublasLtContext *lz_lt_handle;
typedef struct lz_lt_matmul_desc_t *lz_lt_matmul_desc;
typedef struct lz_lt_layout_t *lz_lt_layout;
typedef struct lz_lt_preference_t *lz_lt_preference;

typedef enum lz_lt_status {
    LZ_CUBLAS_STATUS_SUCCESS = 0,
    LZ_CUBLAS_STATUS_NOT_INITIALIZED = 1,
    LZ_CUBLAS_STATUS_ALLOC_FAILED = 3,
    LZ_CUBLAS_STATUS_INVALID_VALUE = 7,
    LZ_CUBLAS_STATUS_ARCH_MISMATCH = 8,
    LZ_CUBLAS_STATUS_MAPPING_ERROR = 11,
    LZ_CUBLAS_STATUS_EXECUTION_FAILED = 13,
    LZ_CUBLAS_STATUS_INTERNAL_ERROR = 14,
    LZ_CUBLAS_STATUS_NOT_SUPPORTED = 15,
    LZ_CUBLAS_STATUS_LICENSE_ERROR = 16,
} lz_lt_status;

typedef enum lz_cuda_type {
    LZ_CUDA_R_32F = 0,
    LZ_CUDA_R_64F = 1,
    LZ_CUDA_R_16F = 2,
    LZ_CUDA_R_8I = 3,
    LZ_CUDA_R_8U = 8,
    LZ_CUDA_R_32I = 10,
    LZ_CUDA_R_16BF = 14,
    LZ_CUDA_R_8F_E4M3 = 28,
    LZ_CUDA_R_8F_E5M2 = 29,
} lz_cuda_type;

/* How products are summed. 32F keeps f32 inputs whole; FAST_TF32 rounds them to 10 bits of mantissa. */
typedef enum lz_lt_compute {
    LZ_CUBLAS_COMPUTE_32F = 68,
    LZ_CUBLAS_COMPUTE_32F_PEDANTIC = 69,
    LZ_CUBLAS_COMPUTE_64F = 70,
    LZ_CUBLAS_COMPUTE_32I = 72,
    LZ_CUBLAS_COMPUTE_32F_FAST_16BF = 75,
    LZ_CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
} lz_lt_compute;

typedef enum lz_lt_operation { LZ_CUBLAS_OP_N = 0, LZ_CUBLAS_OP_T = 1, LZ_CUBLAS_OP_C = 2 } lz_lt_operation;
typedef enum lz_lt_order { LZ_CUBLASLT_ORDER_COL = 0, LZ_CUBLASLT_ORDER_ROW = 1 } lz_lt_order;
typedef enum lz_lt_pointer_mode {
    LZ_CUBLASLT_POINTER_MODE_HOST = 0,
    LZ_CUBLASLT_POINTER_MODE_DEVICE = 1,
    LZ_CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST = 4, /* alpha: one f32 for each row of D */
} lz_lt_pointer_mode;

/* GELU is the tanh approximation. A bias is a vector over the rows of D. */
typedef enum lz_lt_epilogue {
    LZ_CUBLASLT_EPILOGUE_DEFAULT = 1,
    LZ_CUBLASLT_EPILOGUE_RELU = 2,
    LZ_CUBLASLT_EPILOGUE_BIAS = 4,
    LZ_CUBLASLT_EPILOGUE_RELU_BIAS = 6,
    LZ_CUBLASLT_EPILOGUE_GELU = 32,
    LZ_CUBLASLT_EPILOGUE_GELU_BIAS = 36,
} lz_lt_epilogue;

typedef enum lz_lt_matmul_attribute {
    LZ_CUBLASLT_MATMUL_DESC_COMPUTE_TYPE = 0,
    LZ_CUBLASLT_MATMUL_DESC_SCALE_TYPE = 1,
    LZ_CUBLASLT_MATMUL_DESC_POINTER_MODE = 2,
    LZ_CUBLASLT_MATMUL_DESC_TRANSA = 3,
    LZ_CUBLASLT_MATMUL_DESC_TRANSB = 4,
    LZ_CUBLASLT_MATMUL_DESC_TRANSC = 5,
    LZ_CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
    LZ_CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
    LZ_CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE = 10,
    LZ_CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET = 15,
    LZ_CUBLASLT_MATMUL_DESC_A_SCALE_POINTER = 17,
    LZ_CUBLASLT_MATMUL_DESC_B_SCALE_POINTER = 18,
    LZ_CUBLASLT_MATMUL_DESC_C_SCALE_POINTER = 19,
    LZ_CUBLASLT_MATMUL_DESC_D_SCALE_POINTER = 20,
    LZ_CUBLASLT_MATMUL_DESC_FAST_ACCUM = 25,
    LZ_CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26,
    LZ_CUBLASLT_MATMUL_DESC_A_SCALE_MODE = 31,
    LZ_CUBLASLT_MATMUL_DESC_B_SCALE_MODE = 32,
} lz_lt_matmul_attribute;

typedef enum lz_lt_scale_mode {
    LZ_CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F = 0,
    LZ_CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F = 3, /* one scale per row of A and per column of B */
    LZ_CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F = 4,
} lz_lt_scale_mode;

typedef enum lz_lt_layout_attribute {
    LZ_CUBLASLT_MATRIX_LAYOUT_TYPE = 0,                 /* uint32_t */
    LZ_CUBLASLT_MATRIX_LAYOUT_ORDER = 1,                /* int32_t */
    LZ_CUBLASLT_MATRIX_LAYOUT_ROWS = 2,                 /* uint64_t */
    LZ_CUBLASLT_MATRIX_LAYOUT_COLS = 3,                 /* uint64_t */
    LZ_CUBLASLT_MATRIX_LAYOUT_LD = 4,                   /* int64_t, in elements */
    LZ_CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,          /* int32_t */
    LZ_CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6, /* int64_t, in elements */
} lz_lt_layout_attribute;

typedef enum lz_lt_preference_attribute {
    LZ_CUBLASLT_MATMUL_PREF_SEARCH_MODE = 0,           /* uint32_t */
    LZ_CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,   /* uint64_t */
    LZ_CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3, /* uint32_t */
    LZ_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5, /* uint32_t, as the other alignments */
    LZ_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
    LZ_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
    LZ_CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
} lz_lt_preference_attribute;

typedef enum lz_lt_reduction {
    LZ_CUBLASLT_REDUCTION_SCHEME_NONE = 0,
    LZ_CUBLASLT_REDUCTION_SCHEME_INPLACE = 1, /* with atomics: the one whose sums change from run to run */
    LZ_CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2,
    LZ_CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE = 4,
    LZ_CUBLASLT_REDUCTION_SCHEME_MASK = 7,
} lz_lt_reduction;

typedef enum lz_lt_config_attribute {
    LZ_CUBLASLT_ALGO_CONFIG_ID = 0,
    LZ_CUBLASLT_ALGO_CONFIG_TILE_ID = 1,
    LZ_CUBLASLT_ALGO_CONFIG_SPLITK_NUM = 2,
    LZ_CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME = 3,
    LZ_CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING = 4,
    LZ_CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION = 5,
    LZ_CUBLASLT_ALGO_CONFIG_STAGES_ID = 6,
    LZ_CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID = 7,
    LZ_CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID = 8,
} lz_lt_config_attribute;

typedef struct lz_lt_algo {
    uint64_t data[8];
} lz_lt_algo;

typedef struct lz_lt_heuristic {
    lz_lt_algo algo;
    size_t workspace;
    lz_lt_status state; /* the other fields are valid if this is success */
    float waves;
    int reserved[4];
} lz_lt_heuristic;
static_assert(sizeof(lz_lt_algo) == 64 && sizeof(lz_lt_heuristic) == 96, "cublasLtMatmulHeuristicResult_t");

#define LZ_LT_FUNCTIONS(X)                                                                                             \
    X(size_t, GetVersion, , (void))                                                                                    \
    X(const char *, GetStatusName, , (lz_lt_status status))                                                            \
    X(lz_lt_status, Create, , (lz_lt_handle * handle))                                                                 \
    X(lz_lt_status, Destroy, , (lz_lt_handle handle))                                                                  \
    X(lz_lt_status, MatmulDescCreate, , (lz_lt_matmul_desc * desc, lz_lt_compute compute, lz_cuda_type scale))         \
    X(lz_lt_status, MatmulDescDestroy, , (lz_lt_matmul_desc desc))                                                     \
    X(lz_lt_status, MatmulDescSetAttribute, ,                                                                          \
      (lz_lt_matmul_desc desc, lz_lt_matmul_attribute attribute, const void *value, size_t bytes))                     \
    X(lz_lt_status, MatrixLayoutCreate, ,                                                                              \
      (lz_lt_layout * layout, lz_cuda_type type, uint64_t rows, uint64_t cols, int64_t ld))                            \
    X(lz_lt_status, MatrixLayoutDestroy, , (lz_lt_layout layout))                                                      \
    X(lz_lt_status, MatrixLayoutSetAttribute, ,                                                                        \
      (lz_lt_layout layout, lz_lt_layout_attribute attribute, const void *value, size_t bytes))                        \
    X(lz_lt_status, MatmulPreferenceCreate, , (lz_lt_preference * preference))                                         \
    X(lz_lt_status, MatmulPreferenceDestroy, , (lz_lt_preference preference))                                          \
    X(lz_lt_status, MatmulPreferenceSetAttribute, ,                                                                    \
      (lz_lt_preference preference, lz_lt_preference_attribute attribute, const void *value, size_t bytes))            \
    X(lz_lt_status, MatmulAlgoGetHeuristic, ,                                                                          \
      (lz_lt_handle handle, lz_lt_matmul_desc desc, lz_lt_layout a, lz_lt_layout b, lz_lt_layout c, lz_lt_layout d,    \
       lz_lt_preference preference, int wanted, lz_lt_heuristic *results, int *found))                                 \
    X(lz_lt_status, MatmulAlgoConfigGetAttribute, ,                                                                    \
      (const lz_lt_algo *algo, lz_lt_config_attribute attribute, void *value, size_t bytes, size_t *written))          \
    X(lz_lt_status, Matmul, ,                                                                                          \
      (lz_lt_handle handle, lz_lt_matmul_desc desc, const void *alpha, const void *a, lz_lt_layout a_layout,           \
       const void *b, lz_lt_layout b_layout, const void *beta, const void *c, lz_lt_layout c_layout, void *d,          \
       lz_lt_layout d_layout, const lz_lt_algo *algo, void *workspace, size_t workspace_bytes, lz_cu_stream stream))

/* ---- cuDNN: convolution and attention, as graphs ----------------------------------------------------------------- */

#include "backend/cuda/api_dnn.h"

/* ---- all functions ----------------------------------------------------------------------------------------------- */

#define LZ_API_FIELD(returns, name, version, params) returns(*name) params;

typedef struct lz_cuda_api {
    struct {
        LZ_CU_FUNCTIONS(LZ_API_FIELD)
    } cu;
    struct {
        LZ_NVRTC_FUNCTIONS(LZ_API_FIELD)
    } nvrtc;
    struct {
        LZ_LT_FUNCTIONS(LZ_API_FIELD)
    } lt;
    struct {
        LZ_DNN_FUNCTIONS(LZ_API_FIELD)
    } dnn;            /* all NULL unless has_dnn */
    bool has_dnn;     /* cuDNN is optional: without it our own kernels are used */
    void *handles[4]; /* of the libraries, in the order above */
} lz_cuda_api;

#undef LZ_API_FIELD

/* Fills *api. false: err says what is missing (LZ_NOT_FOUND: no driver, no library, or one without a function that we
 * need), and *api is zeroed. path (lz_context_options.cuda_path) is a list of directories, separated by ':', to search
 * instead of the dynamic linker's; an empty entry stands for the linker's, so "dir:" means dir first. NULL: only
 * those. */
bool lz_cuda_api_open(lz_cuda_api *api, const char *path, lz_error *err);
void lz_cuda_api_close(lz_cuda_api *api); /* accepts a zeroed one */

#endif
