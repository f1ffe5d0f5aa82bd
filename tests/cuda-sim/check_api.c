/* check_api.c: compares the declarations of src/backend/cuda/api.h with NVIDIA's headers. Built only on machines that
 * have them; if it compiles, they agree, and there is nothing to run. The build makes constants.inc, which has
 * SAME(name) for each constant of api.h and api_dnn.h. */
#include "backend/cuda/api.h"

#include <cublasLt.h>
#include <cuda.h>
#include <cudnn.h>
#include <nvrtc.h>

#pragma GCC diagnostic ignored "-Wenum-compare"
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define SAME(name) static_assert((long)LZ_##name == (long)name, #name);
#include "constants.inc"

#define SAME_LAYOUT(ours, theirs)                                                                                      \
    static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs), #theirs)
#define SAME_FIELD(ours, field, theirs, their_field)                                                                   \
    static_assert(offsetof(ours, field) == offsetof(theirs, their_field) &&                                            \
                      sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->their_field),                                \
                  #theirs "." #their_field)

SAME_LAYOUT(lz_cu_update_info, CUgraphExecUpdateResultInfo);
SAME_FIELD(lz_cu_update_info, result, CUgraphExecUpdateResultInfo, result);
SAME_FIELD(lz_cu_update_info, node, CUgraphExecUpdateResultInfo, errorNode);
SAME_FIELD(lz_cu_update_info, from, CUgraphExecUpdateResultInfo, errorFromNode);
SAME_LAYOUT(lz_cu_tensor_map, CUtensorMap);
SAME_LAYOUT(lz_lt_algo, cublasLtMatmulAlgo_t);
SAME_LAYOUT(lz_lt_heuristic, cublasLtMatmulHeuristicResult_t);
SAME_FIELD(lz_lt_heuristic, algo, cublasLtMatmulHeuristicResult_t, algo);
SAME_FIELD(lz_lt_heuristic, workspace, cublasLtMatmulHeuristicResult_t, workspaceSize);
SAME_FIELD(lz_lt_heuristic, state, cublasLtMatmulHeuristicResult_t, state);
SAME_FIELD(lz_lt_heuristic, waves, cublasLtMatmulHeuristicResult_t, wavesCount);
SAME_FIELD(lz_lt_heuristic, reserved, cublasLtMatmulHeuristicResult_t, reserved);

/* Types that the attributes of cuDNN and cuBLASLt are set to. */
SAME_LAYOUT(lz_cuda_type, cudaDataType_t);
SAME_LAYOUT(lz_lt_compute, cublasComputeType_t);
SAME_LAYOUT(lz_lt_operation, cublasOperation_t);
SAME_LAYOUT(lz_lt_epilogue, cublasLtEpilogue_t);
SAME_LAYOUT(lz_lt_pointer_mode, cublasLtPointerMode_t);
SAME_LAYOUT(lz_dnn_type, cudnnDataType_t);
SAME_LAYOUT(lz_dnn_conv_mode, cudnnConvolutionMode_t);
SAME_LAYOUT(lz_dnn_reduce, cudnnReduceTensorOp_t);
SAME_LAYOUT(lz_dnn_pointwise, cudnnPointwiseMode_t);
SAME_LAYOUT(lz_dnn_heuristic_mode, cudnnBackendHeurMode_t);
SAME_LAYOUT(lz_dnn_numerical_note, cudnnBackendNumericalNote_t);
SAME_LAYOUT(lz_dnn_behavior_note, cudnnBackendBehaviorNote_t);

/* Signatures: each function of api.h, written with their types in the place of ours, must be theirs. */
#define lz_cu_device CUdevice
#define lz_cu_ptr CUdeviceptr
#define lz_cu_context CUcontext
#define lz_cu_stream CUstream
#define lz_cu_event CUevent
#define lz_cu_module CUmodule
#define lz_cu_function CUfunction
#define lz_cu_graph CUgraph
#define lz_cu_graph_node CUgraphNode
#define lz_cu_graph_exec CUgraphExec
#define lz_cu_host_fn CUhostFn
#define lz_cu_result CUresult
#define lz_cu_device_attribute CUdevice_attribute
#define lz_cu_function_attribute CUfunction_attribute
#define lz_cu_capture_mode CUstreamCaptureMode
#define lz_cu_update_info CUgraphExecUpdateResultInfo
#define lz_cu_tensor_map CUtensorMap
#define lz_cu_tensor_map_type CUtensorMapDataType
#define lz_cu_tensor_map_interleave CUtensorMapInterleave
#define lz_cu_tensor_map_swizzle CUtensorMapSwizzle
#define lz_cu_tensor_map_l2 CUtensorMapL2promotion
#define lz_cu_tensor_map_fill CUtensorMapFloatOOBfill
#define lz_nvrtc_program nvrtcProgram
#define lz_nvrtc_result nvrtcResult
#define lz_cuda_type cudaDataType_t
#define lz_lt_handle cublasLtHandle_t
#define lz_lt_status cublasStatus_t
#define lz_lt_compute cublasComputeType_t
#define lz_lt_matmul_desc cublasLtMatmulDesc_t
#define lz_lt_matmul_attribute cublasLtMatmulDescAttributes_t
#define lz_lt_layout cublasLtMatrixLayout_t
#define lz_lt_layout_attribute cublasLtMatrixLayoutAttribute_t
#define lz_lt_preference cublasLtMatmulPreference_t
#define lz_lt_preference_attribute cublasLtMatmulPreferenceAttributes_t
#define lz_lt_config_attribute cublasLtMatmulAlgoConfigAttributes_t
#define lz_lt_algo cublasLtMatmulAlgo_t
#define lz_lt_heuristic cublasLtMatmulHeuristicResult_t
#define lz_dnn_handle cudnnHandle_t
#define lz_dnn_descriptor cudnnBackendDescriptor_t
#define lz_dnn_status cudnnStatus_t
#define lz_dnn_kind cudnnBackendDescriptorType_t
#define lz_dnn_attribute cudnnBackendAttributeName_t
#define lz_dnn_attribute_type cudnnBackendAttributeType_t

/* cuda.h renames a function to its newest version; if that is not the one we look up, the names differ here. */
#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define SAME_SIGNATURE(prefix, returns, name, params)                                                                  \
    static_assert(__builtin_types_compatible_p(returns(*) params, __typeof__(&prefix##name)), #prefix #name);
#define CU(returns, name, version, params)                                                                             \
    SAME_SIGNATURE(cu, returns, name, params)                                                                          \
    static_assert(__builtin_strcmp(TEXT(cu##name), "cu" #name #version) == 0, #name " has another version");
#define NVRTC(returns, name, version, params) SAME_SIGNATURE(nvrtc, returns, name, params)
#define LT(returns, name, version, params) SAME_SIGNATURE(cublasLt, returns, name, params)
#define DNN(returns, name, version, params) SAME_SIGNATURE(cudnn, returns, name, params)

LZ_CU_FUNCTIONS(CU)
LZ_NVRTC_FUNCTIONS(NVRTC)
LZ_LT_FUNCTIONS(LT)
LZ_DNN_FUNCTIONS(DNN)

/* Not only the newest: 12.x has these under the names we fall back to. */
static_assert(CUDA_VERSION >= 12000 && CUDNN_MAJOR == 9, "older than what we support");
