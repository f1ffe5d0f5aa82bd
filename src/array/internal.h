/* internal.h: what the rooms above base share: the node, the context, the data of arrays. */
#ifndef LZ_INTERNAL_H
#define LZ_INTERNAL_H

#include "backend/backend.h"
#include "base/base.h"
#include "op/dims.h"
#include "op/op.h"

/* ---- errors (error.c) ------------------------------------------------------------------------------------------- */

/* A poisoned array with this error; never NULL while ctx is not. Names the open scopes. */
lz_array *lz_poison(lz_context *ctx, lz_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- memory (memory.c) ------------------------------------------------------------------------------------------ */

/* Array data, counted. Either owned (from the allocator or the cache) or borrowed. On a device with memory of its own
 * it may be there, here, or in both places; what is borrowed is here first, and goes there when a kernel needs it.
 *
 * A made buffer is a borrowed one whose bytes are nowhere until they are needed: make writes them, as often as it is asked
 * to. On a device they are made on their way there, and no copy is kept here. On the host they are here as long as a program
 * reads them (lz_buffer_hold), in one copy for all programs. */
typedef struct lz_buffer {
    lz_context *ctx;
    char *data;    /* in the host's memory, or NULL */
    char *remote;  /* in the device's memory, or NULL */
    int64_t bytes; /* as allocated */
    int64_t refs;
    void (*release)(void *);           /* borrowed: called when the last reference goes */
    lz_maker make;                     /* made: see above; else NULL */
    void *user;                        /* of release and make */
    int holders;                       /* made: programs of the host that read it */
    struct lz_buffer *next, *previous; /* in the cache, or in the list of what is spare */
    bool borrowed;
    bool spare;                /* in that list */
    struct lz_buffer **holder; /* spare, and not borrowed: who keeps it. NULL there when it has gone */
    uint64_t used;             /* spare: the run that needed it last */
    int number;                /* for whoever lists buffers, under the lock; 0 in between */
} lz_buffer;

lz_buffer *lz_buffer_new(lz_context *ctx, int64_t bytes, lz_error *err);
lz_buffer *lz_buffer_borrow(lz_context *ctx, const void *data, int64_t bytes, void (*release)(void *), void *user);
lz_buffer *lz_buffer_made(lz_context *ctx, int64_t bytes, lz_maker make, void (*release)(void *), void *user);
lz_buffer *lz_buffer_retain(lz_buffer *b);
void lz_buffer_release(lz_buffer *b);

/* Where this context's kernels find it, and where the host does; each brings it there first. Not to be called with
 * base.lock. lz_buffer_place wants ctx->run, the others take it. NULL or false: err says why. */
char *lz_buffer_place(lz_buffer *b, lz_error *err);
const char *lz_buffer_host(lz_buffer *b, lz_error *err);
bool lz_buffer_read(lz_buffer *b, int64_t offset, void *to, int64_t bytes, lz_error *err); /* keeps no copy here */
bool lz_buffer_fill(lz_buffer *b, const void *data, int64_t bytes, lz_error *err);
void lz_buffer_stale(lz_buffer *b); /* kernels are about to write it: the host's copy goes */
/* Of a made buffer, on the host: hold makes its bytes, if no one else has; let_go frees them, if no one else holds them. */
bool lz_buffer_hold(lz_buffer *b, lz_error *err); /* wants ctx->run */
void lz_buffer_let_go(lz_buffer *b);
static inline lz_bytes lz_buffer_bytes(const lz_buffer *b) { return (lz_bytes){b->data, b->make, b->user}; }

/* Spare is what can go without loss when memory is needed elsewhere: on a device the copies of what is borrowed, and
 * buffers that are only kept for the next run. They go the longest unused first, but never those of the run that is
 * under way (between lz_turn_begin and lz_turn_end, with ctx->run). */
void lz_turn_begin(lz_context *ctx);
void lz_turn_end(lz_context *ctx);
void lz_buffer_keep(lz_context *ctx, lz_buffer **holder);  /* *holder may go from now on: it is NULL then */
void lz_buffer_claim(lz_context *ctx, lz_buffer **holder); /* it stays again, if it has not gone */
bool lz_buffer_use(lz_buffer *b);     /* borrowed: its copy is needed by the run under way. false: there is none */
void lz_buffer_unplace(lz_buffer *b); /* borrowed: its copy goes */

/* Bytes that may still be had: up to the context's limit, and what the device or the system says is available. What is
 * spare counts as available. */
int64_t lz_memory_room(lz_context *ctx);
/* What a buffer for so many bytes takes. */
int64_t lz_buffer_size(int64_t bytes);

/* ---- events: something that will have happened ------------------------------------------------------------------- */

typedef struct lz_event {
    int refs;
    bool done;
    lz_error err; /* valid when done */
} lz_event;

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

#define LZ_INLINE_INPUTS 4

struct lz_array {
    lz_context *ctx;
    int64_t refs; /* the scope's, the consumers', the retainers' */
    lz_op op;
    lz_dtype dtype;
    bool weak; /* a number: takes the type of its partner */
    lz_dims dims;
    lz_params params;

    int n_in;
    lz_array **in; /* inline_in, or allocated */
    lz_array *inline_in[LZ_INLINE_INPUTS];

    lz_buffer *buffer; /* once evaluated: the inputs are gone, and this is where the value is (or will be: event) */
    int64_t offset;    /* in elements */
    int64_t strides[LZ_MAX_DIMS];
    lz_event *event; /* of the asynchronous run that fills the buffer; NULL: filled */
    int placeholder; /* 1 + index of an input of a function being compiled; 0: none */

    lz_error *error; /* poisoned */
    const char *file;
    int line;

    lz_scope *scope; /* that holds a reference; the list of its nodes */
    lz_array *next, *previous;

    uint64_t mark; /* last graph walk that met this node, and what it noted */
    int mark_id;
};

struct lz_scope {
    lz_context *ctx;
    pthread_t thread;
    lz_scope *parent, *next; /* enclosing one of this thread; list of all open ones of the context */
    char *name;
    lz_array *nodes;
};

struct lz_context {
    lz_base base; /* first: lz_base_of */
    const lz_backend *backend;
    lz_device *device; /* of a backend with memory of its own */
    bool fusion;
    lz_dtype compute;
    lz_offload offload;
    char device_name[160];

    pthread_mutex_t run;  /* one program at a time; taken before base.lock, never after */
    pthread_cond_t event; /* some event is done */

    /* base.lock guards what follows, and all nodes and buffers. */

    lz_scope root, *scopes;
    lz_array *no_memory; /* what an op returns when even its node cannot be had */
    uint64_t mark;

    lz_memory memory; /* but for allocations, which base counts */
    int64_t cache_limit;
    lz_buffer *cache;
    lz_buffer *spare; /* what can go */
    uint64_t turn;    /* counts runs on a device */
    bool running;     /* that one is under way */
    lz_buffer *ring;  /* where weights pass through that do not stay on the device (graph/offload.c); spare */

    struct lz_profile *profile;
};

/* A node in the innermost scope of this thread; its inputs are retained. Poisoned when memory runs out. */
lz_array *lz_node_new(lz_context *ctx, lz_op op, lz_dims dims, lz_dtype dtype, lz_array *const *in, int n_in,
                      const lz_params *params);
/* An array whose bytes are made when they are needed, in row-major order; release(user) is called in any case. */
lz_array *lz_array_made(lz_context *ctx, lz_dims dims, lz_dtype dtype, lz_maker make, void (*release)(void *),
                        void *user);
void lz_scope_clear(lz_scope *scope); /* releases its nodes */
void lz_adopt(lz_array *a);           /* gives a reference to the innermost scope of this thread */
void lz_node_set_value(lz_array *a, lz_buffer *buffer, int64_t offset, const int64_t *strides, lz_event *event);
lz_status lz_event_wait(lz_context *ctx, lz_event *event, lz_error *err); /* NULL event: done */
void lz_event_release(lz_context *ctx, lz_event *event);

#endif
