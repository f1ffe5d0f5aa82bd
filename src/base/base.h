/* base.h: used by every other folder of src, and depends on none of them: errors, the log, option structs, host memory,
 * text, the clock, threads. Files are in base/file.h. */
#ifndef LZ_BASE_H
#define LZ_BASE_H

#include <pthread.h>
#include <stdarg.h>

#include "lazuli.h"

typedef struct lz_pool lz_pool;

/* The part of a context that base uses. It is the first member of lz_context (array/internal.h), so a pointer to one is
 * a pointer to the other. */
typedef struct lz_base {
    lz_allocator allocator;
    int64_t allocations;  /* number of calls of the allocator; atomic */
    pthread_mutex_t lock; /* recursive; guards the context, its nodes and its buffers: array/internal.h */
    lz_pool *pool;
    void (*log)(void *user, lz_log_level level, const char *text); /* NULL: no log */
    void *log_user;
    pthread_mutex_t log_lock; /* held while log is called; no other lock is taken while it is held */
    uint64_t remarks[32];     /* hashes of the last remarks, so that each is made once; log_lock guards them */
    unsigned n_remarks;
    struct lz_mapping *mappings; /* list of the mapped files (file.c); lock guards it */
} lz_base;

static inline lz_base *lz_base_of(lz_context *ctx) { return (lz_base *)ctx; }

#define LZ_LOCK(ctx) pthread_mutex_lock(&lz_base_of(ctx)->lock)
#define LZ_UNLOCK(ctx) pthread_mutex_unlock(&lz_base_of(ctx)->lock)

/* ---- errors (error.c) -------------------------------------------------------------------------------------------- */

/* Fills err (which may be NULL) and returns status, for `return lz_fail(err, ...)`. */
lz_status lz_fail(lz_error *err, lz_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
static inline lz_status lz_out_of_memory(lz_error *err, int64_t bytes) {
    lz_fail(err, LZ_OUT_OF_MEMORY, "out of memory: %lld more bytes could not be allocated", (long long)bytes);
    return LZ_OUT_OF_MEMORY;
}

/* Sends one line to the context's log callback. Does nothing if there is none. (log.c) */
void lz_tell(lz_context *ctx, lz_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same with LZ_LOG_REMARK, unless the context has made this remark before. */
void lz_remark_once(lz_context *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- options (options.c) ----------------------------------------------------------------------------------------- */

/* Copies an option struct, whose first member is its size, to *to, which has `size` bytes. If the caller was built with
 * an older header, the members that it does not have become zero; if with a newer one, the members that this library
 * does not have must be zero. macro: the name of the macro that makes such options, for the error. */
lz_status lz_read_options(void *to, size_t size, const void *options, const char *macro, lz_error *err);

/* ---- host memory (memory.c) -------------------------------------------------------------------------------------- */

extern const lz_allocator lz_system_allocator;

/* Small host objects: aligned to 64 bytes, zeroed. NULL: out of memory. */
void *lz_host_alloc(lz_context *ctx, size_t bytes);
void lz_host_free(lz_context *ctx, void *memory);
char *lz_host_copy(lz_context *ctx, const char *text); /* strdup */
void lz_count_allocation(lz_context *ctx);             /* for code that calls the allocator directly; takes no lock */

/* A bump allocator: all its memory is freed at once. Graphs and programs are allocated in it. */
typedef struct lz_bump {
    lz_context *ctx;
    struct lz_bump_chunk *chunks;
    char *at;
    size_t left;
} lz_bump;
void *lz_bump_alloc(lz_bump *bump, size_t bytes); /* zeroed; NULL: out of memory */
void lz_bump_free(lz_bump *bump);

/* ---- text (text.c) ----------------------------------------------------------------------------------------------- */

/* Text that grows. */
typedef struct lz_text {
    lz_context *ctx;
    char *data;
    size_t length, capacity;
    bool failed; /* memory ran out: the text is incomplete */
} lz_text;
void lz_text_add(lz_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The text, which the caller frees with lz_host_free; NULL if it failed. */
char *lz_text_take(lz_text *text, lz_error *err);

/* For names and paths in messages, which are untrusted: replaces the middle of long ones, and bytes that could control
 * a terminal. */
#define LZ_SHOWN 168
const char *lz_show_text(const char *text, char to[LZ_SHOWN]);
#define LZ_SHOW_TEXT(text) lz_show_text(text, (char[LZ_SHOWN]){0})

char *lz_path_join(lz_context *ctx, const char *folder, const char *name); /* NULL: out of memory */

/* FNV-1a. Another start value gives another hash function. */
#define LZ_HASH_START UINT64_C(0xcbf29ce484222325)
#define LZ_HASH_OTHER_START UINT64_C(0x84222325cbf29ce4)
uint64_t lz_hash_from(uint64_t start, const void *data, size_t bytes);
static inline uint64_t lz_hash(const void *data, size_t bytes) { return lz_hash_from(LZ_HASH_START, data, bytes); }

/* ---- the clock (clock.c) ----------------------------------------------------------------------------------------- */

double lz_now(void); /* seconds of a monotonic clock */

/* ---- threads (pool.c) -------------------------------------------------------------------------------------------- */

lz_pool *lz_pool_new(lz_context *ctx, int threads); /* threads < 1: one per usable core */
void lz_pool_free(lz_context *ctx, lz_pool *pool);

/* Calls fn(arg, i, thread) once for each i in 0 .. n-1, on all threads, and returns after all calls. thread is in 0 ..
 * lz_pool_threads()-1. The result of fn for i must not depend on thread or on the order. One thread at a time may call
 * this for a pool; in a context, that is the thread that holds ctx->run_lock. */
void lz_parallel(lz_pool *pool, int64_t n, void (*fn)(void *arg, int64_t i, int thread), void *arg);
int lz_pool_threads(const lz_pool *pool);

#endif
