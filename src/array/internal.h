/* internal.h: what array, graph, io, models and pipeline share: the context, arrays and scopes, the data of arrays. */
#ifndef LZ_INTERNAL_H
#define LZ_INTERNAL_H

#include "backend/backend.h"
#include "base/base.h"
#include "op/dims.h"
#include "op/op.h"

/* ---- errors (error.c) ------------------------------------------------------------------------------------------- */

/* A poisoned array with this error, to which the names of the thread's open scopes are added. Never NULL. */
lz_array *lz_poison(lz_context *ctx, lz_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- memory (memory.c) ------------------------------------------------------------------------------------------ */

/* The data of arrays, reference-counted. A buffer is either owned (its memory is from the allocator or the cache) or
 * borrowed (it points to memory of the caller or of a mapped file). In a context with a device, the bytes may be in
 * host memory, in device memory, or in both. Borrowed bytes begin in host memory and are uploaded if a kernel needs
 * them.
 *
 * A made buffer is a borrowed buffer whose bytes are computed by `make`, as often as necessary. On a device they are
 * made while they are uploaded, and no host copy is kept. On the host they exist while a program holds them
 * (lz_buffer_hold), in one copy for all programs.
 *
 * Weights are shared buffers: a context has one buffer for the same bytes of a mapped file, and one made buffer for the
 * same computation from the same sources (lz_buffer_share). So models that read one text encoder file hold one copy of
 * it, in host memory and in device memory. */
typedef struct lz_buffer {
    lz_context *ctx;
    char *data;    /* host memory, or NULL */
    char *remote;  /* device memory, or NULL */
    int64_t bytes; /* as allocated: lz_buffer_size of what was requested */
    int64_t refs;
    void (*release)(void *);                           /* borrowed: called after the last reference is released */
    lz_maker make;                                     /* made: writes the bytes; else NULL */
    bool (*same)(const void *user, const void *other); /* made and shared: whether both users make the same bytes */
    void *user;                                        /* argument of release and make */
    int holders;                       /* made: number of lz_buffer_hold calls not yet undone by lz_buffer_let_go */
    struct lz_buffer *next, *previous; /* in ctx->cache or ctx->evictable */
    struct lz_buffer *next_shared;     /* in a list of ctx->shared */
    bool borrowed;
    bool shared;              /* in a list of ctx->shared */
    bool evictable;           /* in ctx->evictable */
    bool on_its_way;          /* a thread sends it to the device (graph/preload.c) */
    struct lz_buffer **owner; /* evictable and owned: the pointer to this buffer, which eviction sets to NULL */
    uint64_t last_run;        /* value of ctx->device_runs at the last run that needed it */
    int list_index;           /* temporary mark while graph/ lists or counts buffers, under base.lock; 0 otherwise */
} lz_buffer;

enum { LZ_SHARED_LISTS = 1024 };

lz_buffer *lz_buffer_new(lz_context *ctx, int64_t bytes, lz_error *err);
lz_buffer *lz_buffer_borrow(lz_context *ctx, const void *data, int64_t bytes, void (*release)(void *), void *user);
lz_buffer *lz_buffer_made(lz_context *ctx, int64_t bytes, lz_maker make, void (*release)(void *), void *user);
/* Takes the caller's reference to b, a new borrowed or made buffer. If the context has a shared buffer of the same
 * bytes, returns a reference to that one and releases b. Otherwise b is shared from now on, until its last reference is
 * released, and is returned. A made buffer without `same` is not shared. (shared.c) */
lz_buffer *lz_buffer_share(lz_buffer *b);
void lz_buffer_unshare(lz_buffer *b); /* the caller holds base.lock */
lz_buffer *lz_buffer_retain(lz_buffer *b);
void lz_buffer_release(lz_buffer *b);

/* lz_buffer_upload returns the address at which this context's kernels read the bytes, and uploads them to the device
 * first if they are not there. lz_buffer_host returns the address of the bytes in host memory, and downloads them
 * first. The caller of any of these does not hold base.lock. The caller of lz_buffer_upload holds ctx->run_lock; the
 * others take it themselves. NULL or false: err has the reason. */
char *lz_buffer_upload(lz_buffer *b, lz_error *err);
const char *lz_buffer_host(lz_buffer *b, lz_error *err);
bool lz_buffer_read(lz_buffer *b, int64_t offset, void *to, int64_t bytes, lz_error *err); /* makes no host copy */
bool lz_buffer_fill(lz_buffer *b, const void *data, int64_t bytes, lz_error *err);
void lz_buffer_stale(lz_buffer *b); /* before kernels overwrite it: frees the host copy of an owned buffer */
/* For a made buffer on the host: hold makes the bytes unless they exist; let_go frees them after the last holder has
 * called it. Each hold is undone by one let_go, or by the release of the buffer. */
bool lz_buffer_hold(lz_buffer *b, lz_error *err); /* the caller holds ctx->run_lock */
void lz_buffer_let_go(lz_buffer *b);
static inline lz_bytes lz_buffer_bytes(const lz_buffer *b) {
    return (lz_bytes){b->data, b->make, b->user, b->release == lz_mapping_release ? b->user : NULL};
}

/* Evictable device memory can be freed without loss if memory is needed elsewhere: copies of borrowed buffers, and
 * owned buffers that are only kept for the next run (arenas, the ring). The least recently used is evicted first.
 * Memory that the current run uses is never evicted; a run lasts from lz_device_run_begin to lz_device_run_end, with
 * ctx->run_lock held. */
void lz_device_run_begin(lz_context *ctx);
void lz_device_run_end(lz_context *ctx);
/* set_evictable: the buffer may be evicted from now on, which sets *owner to NULL. claim: not any more. */
void lz_buffer_set_evictable(lz_context *ctx, lz_buffer **owner);
void lz_buffer_claim(lz_context *ctx, lz_buffer **owner);
/* Device memory for the bytes of a borrowed buffer, if there is room without evicting anything; else NULL. It belongs to
 * the caller, until lz_buffer_arrive makes it the device copy, or frees it if it is not complete or if there is a copy. Any
 * thread may call them. An allocation that finds no room waits until all reserved memory has arrived, which it then may
 * evict. So the thread that reserves must not wait for base.lock's other users beside taking the lock, nor for run_lock,
 * and lz_buffer_new, lz_buffer_upload and lz_set_memory_limit are called without base.lock. */
char *lz_buffer_reserve(lz_buffer *b);
void lz_buffer_arrive(lz_buffer *b, char *memory, bool complete);
bool lz_buffer_use(lz_buffer *b); /* borrowed: marks the device copy as used by the current run. false: there is none */
void lz_buffer_evict(lz_buffer *b); /* borrowed: frees the device copy */

/* Bytes that can still be allocated: at most up to the context's limit, and what the device or the system reports as
 * free. Evictable and reserved memory count as free. */
int64_t lz_memory_available(lz_context *ctx);
int64_t lz_memory_unused(lz_context *ctx); /* the same without evictable memory, but with reserved memory */
/* The size of a buffer for so many bytes, rounded up. */
int64_t lz_buffer_size(int64_t bytes);

/* ---- events: completion of an asynchronous run ------------------------------------------------------------------- */

typedef struct lz_event {
    int refs; /* base.lock guards all members */
    bool done;
    lz_error err; /* valid if done */
} lz_event;

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

#define LZ_INLINE_INPUTS 4

struct lz_array {
    lz_context *ctx;
    int64_t refs; /* one each for the scope, for every array that has it as an input, and for every lz_retain */
    lz_op op;
    lz_dtype dtype;
    bool weak; /* made by lz_number: takes the type of the other operand */
    lz_dims dims;
    lz_params params;

    int n_in;
    lz_array **in; /* inline_in, or allocated */
    lz_array *inline_in[LZ_INLINE_INPUTS];

    /* The value, once evaluated; the inputs are released then. If event is set, a stream has yet to fill it. */
    lz_buffer *buffer;
    int64_t offset; /* in elements */
    int64_t strides[LZ_MAX_DIMS];
    lz_event *event; /* of the asynchronous run that fills the buffer; NULL: filled */
    int placeholder; /* 1 + index of an input of a function being compiled; 0: none */

    lz_error *error; /* owned; set if the array is poisoned */
    const char *file;
    int line;

    lz_scope *scope; /* the scope that has a reference; next and previous link its nodes */
    lz_array *next, *previous;

    uint64_t mark; /* last graph walk that visited this node, and what it stored */
    int mark_id;
};

struct lz_scope {
    lz_context *ctx;
    pthread_t thread;
    lz_scope *parent, *next; /* enclosing scope of this thread; next open scope of the context */
    char *name;
    lz_array *nodes;
};

struct lz_context {
    lz_base base; /* must be the first member: lz_base_of */
    const lz_backend *backend;
    lz_device *device; /* of a backend with its own memory; else NULL */
    bool fusion;
    lz_dtype compute;
    bool
        int8; /* products with weights of 8-bit integers are products of 8-bit integers (LZ_OP_INT8_MATMUL, or LZ_OP_CODES_MATMUL) */
    bool fp8;            /* products with weights of e4m3 are products of e4m3 (LZ_OP_CODES_MATMUL) */
    char *narrow_folder; /* owned; where weights that were quantised are kept (models/narrow.h). NULL: nowhere */
    bool (*quantising)(void *user, double done); /* of lz_context_options; or NULL */
    void *quantising_user;
    lz_offload offload;
    char device_name[160];

    /* Protects the thread pool and the device's queues: programs run one at a time. Held while kernels run or are launched,
     * while data is copied to or from a device, and while algorithms are measured. Not held while something is planned,
     * while the kernels of a rehearsed program are compiled, or while watch functions are called. Taken before base.lock,
     * never while holding it. */
    pthread_mutex_t run_lock;
    pthread_cond_t event_done; /* an event is done; waited for with base.lock */

    /* base.lock guards the members that follow, and all nodes, buffers and events. It is held for moments: to change them, to
     * copy the nodes of a graph that will be planned (graph/lower.c), and to allocate and free memory. The last calls the
     * functions of the allocator and of borrowed memory, and on a device waits for memory that is still in use. It is not
     * held while something is planned, compiled or run. */

    lz_scope root, *scopes;
    lz_array *no_memory; /* poisoned; returned by ops whose node cannot be allocated */
    uint64_t mark;

    lz_memory memory; /* except `allocations`, which base counts */
    int64_t cache_limit;
    lz_buffer *cache;
    lz_buffer *evictable;               /* list of evictable buffers */
    lz_buffer *shared[LZ_SHARED_LISTS]; /* lists of shared buffers, by a hash (shared.c) */
    uint64_t device_runs;               /* number of runs on the device that have begun */
    bool device_running;                /* between lz_device_run_begin and lz_device_run_end */
    int64_t reserved;       /* device bytes that lz_buffer_reserve gave and that have not arrived; part of active */
    bool reserve_nothing;   /* memory ran out, and the queue of graph/preload.c is not empty yet */
    pthread_cond_t arrived; /* reserved is 0; waited for with base.lock */
    lz_buffer *ring; /* device memory through which weights are streamed (graph/offload.c); evictable between runs */

    struct lz_preload *preload; /* weights that are sent ahead (graph/preload.c); NULL before the first */

    struct lz_profile *profile;
};

/* A node in the innermost scope of this thread; its inputs are retained. ctx->no_memory if memory runs out. */
lz_array *lz_node_new(lz_context *ctx, lz_op op, lz_dims dims, lz_dtype dtype, lz_array *const *in, int n_in,
                      const lz_params *params);
/* An array with a made buffer, in row-major order. release(user) is called after the last use, and after an error.
 * same(user, other): whether another user of this `make` makes the same bytes. Then the array gets the buffer that the
 * other made array has, and release(user) is called at once. NULL: the buffer is not shared. */
lz_array *lz_array_made(lz_context *ctx, lz_dims dims, lz_dtype dtype, lz_maker make, void (*release)(void *),
                        bool (*same)(const void *user, const void *other), void *user);
/* lz_borrow. shared: arrays of the same bytes share a buffer; for bytes that do not change, as those of a mapped
 * file. */
lz_array *lz_borrow_as(lz_context *ctx, lz_dims dims, lz_dtype dtype, const void *data, void (*release)(void *),
                       void *user, bool shared);
/* Describes arrays again for n sets of inputs at once (many.c). out: arrays that were described from `one`; all[i] is
 * one[i] with a new first axis of n, which must be more than 1. Each out[i] that depends on one of these inputs is
 * replaced by an array with that axis; the others stay. */
void lz_describe_many(lz_context *ctx, int64_t n, lz_array *const *one, lz_array *const *all, int n_in, lz_array **out,
                      int n_out);
void lz_scope_clear(lz_scope *scope); /* releases its nodes */
void lz_adopt(lz_array *a);           /* retains a for the innermost scope of this thread */
void lz_node_set_value(lz_array *a, lz_buffer *buffer, int64_t offset, const int64_t *strides, lz_event *event);
lz_status lz_event_wait(lz_context *ctx, lz_event *event, lz_error *err); /* NULL event: done */
void lz_event_release(lz_context *ctx, lz_event *event);

#endif
