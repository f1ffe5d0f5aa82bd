/* sim.h: a simulated GPU. tests/cuda-sim builds libraries with the names and entry points of NVIDIA's driver, NVRTC and
 * cuBLASLt that work on the CPU, so that the CUDA backend runs on any machine. Point LAZULI_CUDA_PATH at the folder
 * they are built into.
 *
 *   device.c, memory.c, stream.c, graph.c, module.c   libcuda.so.1
 *   nvrtc.c, cuda_on_cpu.h                            libnvrtc.so.13: kernels as C++
 *   blaslt.c                                          libcublasLt.so.13
 *   dnn.c, dnn_run.c                                  libcudnn.so.9, in the folder dnn below the others
 *
 * Environment, read when cuInit is called:
 *   LAZULI_SIM_GPUS=0     the driver finds no GPU
 *   LAZULI_SIM_MEMORY=N   bytes of device memory (default 4 GiB)
 *   LAZULI_SIM_FAIL=N     the Nth call, counted from cuInit (1), returns out of memory, the others succeed. Calls that
 *                         cannot fail are not counted: frees, destroys, pops, error texts
 *   LAZULI_SIM_ASYNC=1    streams defer their work until the host waits, as real ones may, and then do only what it
 *                         waits for; copies from and to pageable host memory are still done immediately. Finds missing
 *                         waits, and page-locked memory that is reused too soon
 *   LAZULI_SIM_ASYNC=2    the same, but when the host waits for one stream, the others run as far ahead as possible.
 *                         Finds memory that one stream writes while another still reads it
 *   LAZULI_SIM_STRICT=1   device memory is accessible only while a kernel or copy runs: host code that accesses it
 *                         crashes
 *   LAZULI_SIM_LEAKS=1    objects that still exist at exit are listed on stderr, and the status is 1
 *   CXX                   the compiler behind NVRTC (else the C++ compiler that the build found)
 *
 * For tests, found with dlsym in libcuda.so.1: lz_sim_calls, lz_sim_count and lz_sim_live, below; and in
 * libnvrtc.so.13: lz_sim_most_compiling.
 *
 * As on a GPU: calls need a current context; new memory has garbage (all ones: NaN); freed memory and memory after an
 * allocation cannot be accessed; a capture refuses what a real one refuses. Unlike on a GPU, host functions run in the
 * thread that enqueues them, and an error in a kernel ends the program immediately. */
#ifndef LZ_SIM_H
#define LZ_SIM_H

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/api.h"
#include "module.h"

/* The entry points, as api.h declares them; all else is hidden, and cannot be mistaken for a program's own. */
#define EXPORT __attribute__((visibility("default")))
#define DECLARE_CU(returns, name, version, params) EXPORT returns cu##name##version params;
LZ_CU_FUNCTIONS(DECLARE_CU)

EXPORT long lz_sim_calls(void);             /* counted by LAZULI_SIM_FAIL, since cuInit */
EXPORT int lz_sim_most_compiling(void);     /* programs at one time, so far */
EXPORT long lz_sim_count(const char *name); /* how often this entry point was called so far, as "cuMemAlloc_v2" */
EXPORT long lz_sim_live(void); /* allocations, streams, events, modules, graphs, contexts that were not given back */

/* For libcublasLt and libcudnn: has run(data) done by the stream like a kernel, now, later, or with each launch of a graph. data is
 * copied. */
EXPORT lz_cu_result lz_sim_enqueue(lz_cu_stream stream, void (*run)(void *data), const void *data, size_t bytes);

/* ---- entering and leaving (device.c) ---------------------------------------------------------------------------- */

/* Every entry point starts with ENTER(what it needs): takes the one lock until it returns, and returns early when
 * something is not there or a failure is due. */
enum {
    ANY_TIME = 0,
    INITIALISED = 1,   /* cuInit was called */
    CONTEXT = 2,       /* the thread has a current context */
    NOT_CAPTURING = 4, /* no capture forbids it */
    MAY_FAIL = 8,      /* is counted by LAZULI_SIM_FAIL */
    NORMAL = INITIALISED | CONTEXT | MAY_FAIL,
};
lz_cu_result enter(int needs, const char *name);
bool failure_due(void); /* for the entry point that must not fail early; counts */
void leave(const lz_cu_result *entered);
#define ENTER(needs)                                                                                                   \
    __attribute__((cleanup(leave))) const lz_cu_result entered = enter(needs, __func__);                               \
    if (entered) return entered

typedef enum object { MEMORY, HOST_MEMORY, STREAM, EVENT, MODULE, GRAPH, GRAPH_EXEC, CONTEXT_HELD, N_OBJECTS } object;
void count_live(object what, int change);

extern struct settings {
    size_t memory;
    bool async, eager, strict;
} settings;

/* ---- memory (memory.c) ------------------------------------------------------------------------------------------ */

bool on_device(const void *address, size_t bytes); /* the whole range is in one allocation */
bool is_device_address(const void *address);       /* host code has no business there */
bool is_pinned(const void *address, size_t bytes);
void protect_device(bool closed);

/* ---- work, and lists of it (stream.c) --------------------------------------------------------------------------- */

/* Kinds differ where cuGraphExecUpdate must refuse. */
typedef enum op_kind { OP_KERNEL, OP_COPY, OP_SET, OP_HOST, OP_EVENT, OP_WAIT } op_kind;

typedef struct op {
    op_kind kind;
    void (*run)(void *data);
    void *data; /* a copy of ours, free of pointers into itself */
    size_t bytes;
} op;

typedef struct op_list {
    op *ops;
    size_t n;
} op_list;

bool list_add(op_list *list, const op *what); /* copies the data */
bool list_copy(op_list *to, const op_list *from);
void list_clear(op_list *list);

/* A capture: streams that were joined by events record into one list. */
typedef struct capture {
    lz_cu_stream origin;
    lz_cu_capture_mode mode;
    pthread_t thread;
    bool broken; /* by a call that cannot be captured: nothing more is accepted */
    unsigned long serial;
    op_list list;
    struct capture *next;
} capture;

struct CUstream_st {
    unsigned flags;
    capture *capture;
    bool loose;      /* in a capture: has work that its origin does not wait for */
    size_t captured; /* work since it joined the capture */
    op_list pending; /* with LAZULI_SIM_ASYNC ... */
    size_t next_op;  /* ... from this one on */
    struct CUstream_st *next;
};

lz_cu_result enqueue(lz_cu_stream stream, op_kind kind, void (*run)(void *data), const void *data, size_t bytes);
lz_cu_result enqueue_list(lz_cu_stream stream, const op_list *list);
void flush_all(void);
extern bool in_host_function; /* of cuLaunchHostFunc: the driver must not be called from there */
lz_cu_result graph_from(op_list *list, lz_cu_graph *graph); /* takes the list over (graph.c) */
bool capture_forbids(void); /* a call that is unsafe in a capture; breaks the capture if so */

#endif
