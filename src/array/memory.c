/* memory.c: the data of arrays, in host or device memory. It is counted against the context's limit. Released buffers
 * are kept in a small cache, so that a loop does not allocate in each iteration. If memory runs out, evictable buffers
 * (weights on a device, arenas between two runs) are freed.
 *
 * base.lock is held by the callers of all static functions, except make_piece and make_bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "array/internal.h"

enum { ALIGN = 64, DEVICE_RESERVE = 256 << 20 };

/* ---- array data -------------------------------------------------------------------------------------------------- */

static void note_peak(lz_memory *m) {
    if (m->active + m->cached > m->peak) m->peak = m->active + m->cached;
}

static void free_host_copy(lz_context *ctx, lz_buffer *b) {
    if (b->data) ctx->base.allocator.release(ctx->base.allocator.user, b->data, (size_t)b->bytes);
    b->data = NULL;
}

static void free_data(lz_context *ctx, lz_buffer *b) {
    free_host_copy(ctx, b);
    if (b->remote) ctx->backend->device->release(ctx->device, b->remote);
    lz_host_free(ctx, b);
}

/* Frees cached buffers, the oldest (at the end of the list) first, until at most `keep` bytes are left. */
static void trim_cache(lz_context *ctx, int64_t keep) {
    while (ctx->cache && ctx->memory.cached > keep) {
        lz_buffer **last = &ctx->cache;
        while ((*last)->next) last = &(*last)->next;
        lz_buffer *b = *last;
        *last = NULL;
        ctx->memory.cached -= b->bytes;
        free_data(ctx, b);
    }
}

/* The smallest cached buffer that is large enough and at most a quarter too large. */
static lz_buffer *take_cached(lz_context *ctx, int64_t bytes) {
    lz_buffer **best = NULL;
    for (lz_buffer **b = &ctx->cache; *b; b = &(*b)->next)
        if ((*b)->bytes >= bytes && (*b)->bytes <= bytes + bytes / 4 && (!best || (*b)->bytes < (*best)->bytes))
            best = b;
    if (!best) return NULL;
    lz_buffer *found = *best;
    *best = found->next;
    ctx->memory.cached -= found->bytes;
    lz_buffer_stale(found);
    return found;
}

/* ---- evictable memory -------------------------------------------------------------------------------------------- */

static void add_evictable(lz_buffer *b) {
    lz_context *ctx = b->ctx;
    b->evictable = true;
    b->last_run = ctx->device_runs;
    b->previous = NULL;
    b->next = ctx->evictable;
    if (b->next) b->next->previous = b;
    ctx->evictable = b;
}

static void remove_evictable(lz_buffer *b) {
    if (!b->evictable) return;
    b->evictable = false;
    if (b->next) b->next->previous = b->previous;
    if (b->previous)
        b->previous->next = b->next;
    else
        b->ctx->evictable = b->next;
    b->next = b->previous = NULL;
}

/* Frees an evictable buffer, or the device copy of a borrowed one. Waits if the device still uses it. */
static void evict(lz_buffer *b) {
    lz_context *ctx = b->ctx;
    remove_evictable(b);
    ctx->memory.active -= b->bytes;
    if (!b->borrowed) {
        *b->owner = NULL;
        free_data(ctx, b);
        return;
    }
    ctx->backend->device->release(ctx->device, b->remote);
    b->remote = NULL;
}

static bool may_evict(const lz_buffer *b) { return !(b->ctx->device_running && b->last_run == b->ctx->device_runs); }

static int64_t evictable_bytes(const lz_context *ctx) {
    int64_t bytes = 0;
    for (const lz_buffer *b = ctx->evictable; b; b = b->next)
        if (may_evict(b)) bytes += b->bytes;
    return bytes;
}

/* Evicts at least so many bytes, or all that may be evicted. false: nothing was evicted. */
static bool evict_bytes(lz_context *ctx, int64_t bytes) {
    int64_t gone = 0;
    while (gone < bytes) {
        lz_buffer *oldest = NULL;
        for (lz_buffer *b = ctx->evictable; b; b = b->next)
            if (may_evict(b) && (!oldest || b->last_run <= oldest->last_run)) oldest = b;
        if (!oldest) break;
        gone += oldest->bytes;
        evict(oldest);
    }
    return gone;
}

void lz_device_run_begin(lz_context *ctx) {
    LZ_LOCK(ctx);
    ctx->device_runs++;
    ctx->device_running = true;
    LZ_UNLOCK(ctx);
}

void lz_device_run_end(lz_context *ctx) {
    LZ_LOCK(ctx);
    ctx->device_running = false;
    LZ_UNLOCK(ctx);
}

void lz_buffer_set_evictable(lz_context *ctx, lz_buffer **owner) {
    LZ_LOCK(ctx);
    if (*owner && !(*owner)->evictable) {
        (*owner)->owner = owner;
        add_evictable(*owner);
    }
    LZ_UNLOCK(ctx);
}

void lz_buffer_claim(lz_context *ctx, lz_buffer **owner) {
    LZ_LOCK(ctx);
    if (*owner) remove_evictable(*owner);
    LZ_UNLOCK(ctx);
}

/* Counts memory that is no longer reserved. */
static void end_reserved(lz_context *ctx, int64_t bytes) {
    ctx->reserved -= bytes;
    if (!ctx->reserved) pthread_cond_broadcast(&ctx->arrived);
}

char *lz_buffer_reserve(lz_buffer *b) {
    lz_context *ctx = b->ctx;
    LZ_LOCK(ctx);
    int64_t left = ctx->memory.limit ? ctx->memory.limit - ctx->memory.active - b->bytes : INT64_MAX;
    bool room = !b->remote && !ctx->reserve_nothing && left >= 0;
    if (room) {
        trim_cache(ctx, left);
        ctx->memory.active += b->bytes;
        ctx->reserved += b->bytes;
    }
    LZ_UNLOCK(ctx);
    if (!room) return NULL;
    const lz_device_table *device = ctx->backend->device;
    lz_count_allocation(ctx);
    char *memory = device->allocate(ctx->device, b->bytes, NULL); /* without the lock, because it takes long */
    LZ_LOCK(ctx);
    if (!memory && ctx->cache) {
        trim_cache(ctx, 0);
        memory = device->allocate(ctx->device, b->bytes, NULL);
    }
    if (!memory) {
        ctx->memory.active -= b->bytes;
        end_reserved(ctx, b->bytes);
    }
    note_peak(&ctx->memory);
    LZ_UNLOCK(ctx);
    return memory;
}

void lz_buffer_arrive(lz_buffer *b, char *memory, bool complete) {
    lz_context *ctx = b->ctx;
    LZ_LOCK(ctx);
    if (complete && !b->remote) {
        b->remote = memory;
        add_evictable(b);
        if (ctx->device_running) b->last_run--; /* the current run does not use it, and may evict it */
    } else {
        ctx->backend->device->release(ctx->device, memory);
        ctx->memory.active -= b->bytes;
    }
    end_reserved(ctx, b->bytes);
    LZ_UNLOCK(ctx);
}

/* Called if memory ran out: until the queue of preload.c is empty, nothing more is reserved. Waits until all reserved
 * memory is evictable or free, and drops base.lock meanwhile, which the caller holds once. false: none was reserved. */
static bool stop_reserving(lz_context *ctx) {
    if (!ctx->reserved) return false;
    ctx->reserve_nothing = true;
    while (ctx->reserved) pthread_cond_wait(&ctx->arrived, &ctx->base.lock);
    return true;
}

bool lz_buffer_use(lz_buffer *b) {
    LZ_LOCK(b->ctx);
    b->last_run = b->ctx->device_runs;
    bool there = b->remote;
    LZ_UNLOCK(b->ctx);
    return there;
}

void lz_buffer_evict(lz_buffer *b) {
    LZ_LOCK(b->ctx);
    if (b->evictable) evict(b);
    LZ_UNLOCK(b->ctx);
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

/* Frees cached and evictable memory until `bytes` more stay below the limit. false: that is not possible. */
static bool make_space(lz_context *ctx, int64_t bytes, lz_error *err) {
    lz_memory *m = &ctx->memory;
    if (!m->limit) return true;
    int64_t left = m->limit - m->active - bytes;
    trim_cache(ctx, left > 0 ? left : 0);
    if (left < 0 && evictable_bytes(ctx) >= -left) {
        evict_bytes(ctx, -left);
        return true;
    }
    if (left >= 0) return true;
    lz_fail(err, LZ_OUT_OF_MEMORY, "out of memory: %lld bytes asked for, %lld in use, and the limit is %lld",
            (long long)bytes, (long long)m->active, (long long)m->limit);
    return false;
}

/* Allocates memory that this context's kernels can use: on the device if there is one, else on the host. */
static bool allocate_data(lz_context *ctx, lz_buffer *b, lz_error *err) {
    lz_count_allocation(ctx);
    if (!ctx->device) {
        b->data = ctx->base.allocator.allocate(ctx->base.allocator.user, (size_t)b->bytes);
        if (!b->data) lz_out_of_memory(err, b->bytes);
        return b->data;
    }
    const lz_device_table *device = ctx->backend->device;
    lz_error local = {.status = LZ_OK};
    b->remote = device->allocate(ctx->device, b->bytes, &local);
    if (!b->remote && local.status == LZ_OUT_OF_MEMORY && ctx->cache) { /* free the cache first */
        trim_cache(ctx, 0);
        b->remote = device->allocate(ctx->device, b->bytes, &local);
    }
    while (!b->remote && local.status == LZ_OUT_OF_MEMORY && evict_bytes(ctx, b->bytes))
        b->remote = device->allocate(ctx->device, b->bytes, &local);
    if (!b->remote && err) *err = local;
    return b->remote;
}

int64_t lz_buffer_size(int64_t bytes) { return bytes < ALIGN ? ALIGN : (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static lz_buffer *new_buffer(lz_context *ctx, int64_t bytes, lz_error *err) {
    lz_buffer *b = take_cached(ctx, bytes);
    if (b) return b;
    lz_error local = {.status = LZ_OK};
    b = make_space(ctx, bytes, &local) ? lz_host_alloc(ctx, sizeof *b) : NULL;
    if (!b && !local.status) lz_out_of_memory(&local, bytes);
    if (b) b->bytes = bytes;
    if (b && allocate_data(ctx, b, &local)) return b;
    lz_host_free(ctx, b);
    *err = local;
    return NULL;
}

lz_buffer *lz_buffer_new(lz_context *ctx, int64_t bytes, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    bytes = lz_buffer_size(bytes);
    LZ_LOCK(ctx);
    lz_buffer *b = new_buffer(ctx, bytes, &local);
    while (!b && local.status == LZ_OUT_OF_MEMORY && stop_reserving(ctx)) b = new_buffer(ctx, bytes, &local);
    if (b) {
        b->ctx = ctx;
        b->refs = 1;
        b->next = NULL;
        ctx->memory.active += b->bytes;
        note_peak(&ctx->memory);
    }
    LZ_UNLOCK(ctx);
    if (!b && err) *err = local;
    return b;
}

lz_buffer *lz_buffer_borrow(lz_context *ctx, const void *data, int64_t bytes, void (*release)(void *), void *user) {
    lz_buffer *b = lz_host_alloc(ctx, sizeof *b);
    if (!b) return NULL;
    *b = (lz_buffer){.ctx = ctx,
                     .data = (char *)data,
                     .bytes = bytes,
                     .refs = 1,
                     .release = release,
                     .user = user,
                     .borrowed = true};
    return b;
}

lz_buffer *lz_buffer_made(lz_context *ctx, int64_t bytes, lz_maker make, void (*release)(void *), void *user) {
    lz_buffer *b = lz_buffer_borrow(ctx, NULL, bytes, release, user);
    if (b) b->make = make;
    return b;
}

lz_buffer *lz_buffer_retain(lz_buffer *b) {
    LZ_LOCK(b->ctx);
    b->refs++;
    LZ_UNLOCK(b->ctx);
    return b;
}

/* Frees the host bytes of a made buffer. They count as active only if kernels run on the host. */
static void unmake(lz_buffer *b) {
    if (b->data && !b->ctx->device) b->ctx->memory.active -= b->bytes;
    free_host_copy(b->ctx, b);
}

void lz_buffer_release(lz_buffer *b) {
    if (!b) return;
    lz_context *ctx = b->ctx;
    LZ_LOCK(ctx);
    if (--b->refs == 0) {
        lz_buffer_unshare(b);
        if (b->borrowed) {
            if (b->make) unmake(b);
            if (b->release) b->release(b->user);
            if (b->remote) evict(b);
            lz_host_free(ctx, b);
        } else {
            remove_evictable(b);
            ctx->memory.active -= b->bytes;
            b->next = ctx->cache;
            ctx->cache = b;
            ctx->memory.cached += b->bytes;
            trim_cache(ctx, ctx->cache_limit);
        }
    }
    LZ_UNLOCK(ctx);
}

/* ---- host and device --------------------------------------------------------------------------------------------- */

char *lz_buffer_upload(lz_buffer *b, lz_error *err) {
    lz_context *ctx = b->ctx;
    lz_error local = {.status = LZ_OK};
    bool there, fine;
    if (!ctx->device) return b->data;
    LZ_LOCK(ctx);
    do {
        there = b->remote;
        fine = there || (make_space(ctx, b->bytes, &local) && allocate_data(ctx, b, &local));
    } while (!fine && local.status == LZ_OUT_OF_MEMORY && stop_reserving(ctx));
    b->last_run = ctx->device_runs;
    if (fine && !there) {
        add_evictable(b);
        ctx->memory.active += b->bytes;
        note_peak(&ctx->memory);
    }
    LZ_UNLOCK(ctx);
    if (!fine && err) *err = local;
    if (fine && !there && !ctx->backend->device->write(ctx->device, b->remote, lz_buffer_bytes(b), b->bytes, err)) {
        lz_buffer_evict(b); /* the copy is incomplete */
        fine = false;
    }
    return fine ? b->remote : NULL;
}

enum { PIECE = 1 << 20 };

typedef struct making {
    const lz_buffer *buffer;
    char *to;
} making;

static void make_piece(void *arg, int64_t i, int thread) {
    (void)thread;
    const making *m = arg;
    int64_t start = i * PIECE, left = m->buffer->bytes - start;
    m->buffer->make(m->buffer->user, start, left < PIECE ? left : PIECE, m->to + start);
}

/* Makes the bytes of a made buffer in host memory. The caller holds ctx->run_lock, so the pool is idle, and not
 * base.lock. */
static bool make_bytes(lz_buffer *b, lz_error *err) {
    lz_context *ctx = b->ctx;
    making m = {b, NULL};
    if (b->data || !b->bytes) return true;
    LZ_LOCK(ctx);
    lz_count_allocation(ctx);
    bool allowed = ctx->device || make_space(ctx, b->bytes, err);
    if (allowed && !(m.to = ctx->base.allocator.allocate(ctx->base.allocator.user, (size_t)b->bytes)))
        lz_out_of_memory(err, b->bytes);
    if (m.to && !ctx->device) {
        ctx->memory.active += b->bytes;
        note_peak(&ctx->memory);
    }
    LZ_UNLOCK(ctx);
    if (m.to) lz_parallel(ctx->base.pool, (b->bytes + PIECE - 1) / PIECE, make_piece, &m);
    LZ_LOCK(ctx);
    b->data = m.to;
    LZ_UNLOCK(ctx);
    return m.to;
}

bool lz_buffer_hold(lz_buffer *b, lz_error *err) {
    LZ_LOCK(b->ctx);
    b->holders++; /* from now on lz_buffer_let_go of another holder does not free the bytes */
    LZ_UNLOCK(b->ctx);
    bool fine = make_bytes(b, err);
    if (!fine) lz_buffer_let_go(b);
    return fine;
}

void lz_buffer_let_go(lz_buffer *b) {
    LZ_LOCK(b->ctx);
    if (--b->holders == 0) unmake(b);
    LZ_UNLOCK(b->ctx);
}

const char *lz_buffer_host(lz_buffer *b, lz_error *err) {
    lz_context *ctx = b->ctx;
    if (b->data && !b->make) return b->data;
    pthread_mutex_lock(&ctx->run_lock);
    if (b->make) {
        lz_buffer_hold(b, err); /* never undone: the returned pointer is valid as long as the array */
    } else if (!b->data) {      /* another thread may have downloaded it meanwhile */
        char *copy = ctx->base.allocator.allocate(ctx->base.allocator.user, (size_t)b->bytes);
        lz_count_allocation(ctx);
        if (!copy) lz_out_of_memory(err, b->bytes);
        if (copy && !ctx->backend->device->read(ctx->device, copy, b->remote, b->bytes, err)) {
            ctx->base.allocator.release(ctx->base.allocator.user, copy, (size_t)b->bytes);
            copy = NULL;
        }
        b->data = copy;
    }
    pthread_mutex_unlock(&ctx->run_lock);
    return b->data;
}

bool lz_buffer_read(lz_buffer *b, int64_t offset, void *to, int64_t bytes, lz_error *err) {
    if (b->make) {
        b->make(b->user, offset, bytes, to);
        return true;
    }
    if (b->data) {
        memcpy(to, b->data + offset, (size_t)bytes);
        return true;
    }
    pthread_mutex_lock(&b->ctx->run_lock);
    bool fine = b->ctx->backend->device->read(b->ctx->device, to, b->remote + offset, bytes, err);
    pthread_mutex_unlock(&b->ctx->run_lock);
    return fine;
}

bool lz_buffer_fill(lz_buffer *b, const void *data, int64_t bytes, lz_error *err) {
    if (!b->ctx->device) {
        memcpy(b->data, data, (size_t)bytes);
        return true;
    }
    pthread_mutex_lock(&b->ctx->run_lock);
    bool fine = b->ctx->backend->device->write(b->ctx->device, b->remote, (lz_bytes){.data = data}, bytes, err);
    pthread_mutex_unlock(&b->ctx->run_lock);
    return fine;
}

void lz_buffer_stale(lz_buffer *b) {
    if (b->ctx->device && !b->borrowed) free_host_copy(b->ctx, b);
}

/* ---- public figures ---------------------------------------------------------------------------------------------- */

lz_memory lz_memory_info(lz_context *ctx) {
    if (!ctx) return (lz_memory){0};
    LZ_LOCK(ctx);
    lz_memory m = {.active = ctx->memory.active,
                   .cached = ctx->memory.cached,
                   .peak = ctx->memory.peak,
                   .limit = ctx->memory.limit,
                   .nodes = ctx->memory.nodes,
                   .streamed = ctx->memory.streamed,
                   .allocations = __atomic_load_n(&ctx->base.allocations, __ATOMIC_RELAXED)};
    LZ_UNLOCK(ctx);
    return m;
}

/* Free bytes of the device, minus a reserve for what the driver needs for kernels, graphs and rounding up. */
static int64_t device_available(lz_context *ctx, const lz_memory *m) {
    int64_t free = ctx->backend->device->available(ctx->device) + m->cached, reserve = (free + m->active) / 16;
    return free - (reserve < DEVICE_RESERVE ? reserve : DEVICE_RESERVE);
}

int64_t lz_memory_unused(lz_context *ctx) {
    LZ_LOCK(ctx);
    int64_t unused = lz_memory_available(ctx) - evictable_bytes(ctx);
    LZ_UNLOCK(ctx);
    return unused;
}

int64_t lz_memory_available(lz_context *ctx) {
    LZ_LOCK(ctx);
    lz_memory m = lz_memory_info(ctx);
    int64_t spare = evictable_bytes(ctx) + ctx->reserved;
    int64_t allowed = m.limit ? m.limit - m.active + spare : INT64_MAX;
    LZ_UNLOCK(ctx);
    if (ctx->device) {
        int64_t there = device_available(ctx, &m) + spare;
        return there < allowed ? there : allowed;
    }
    if (m.limit) return allowed;
    int64_t kilobytes = INT64_MAX / 1024;
    FILE *f = fopen("/proc/meminfo", "r");
    char line[128];
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "MemAvailable:", 13)) kilobytes = strtoll(line + 13, NULL, 10);
    if (f) fclose(f);
    struct rlimit limit;
    long long pages = 0;
    f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%lld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    int64_t free = kilobytes * 1024;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        int64_t left = (int64_t)limit.rlim_cur - pages * sysconf(_SC_PAGESIZE);
        free = left < free ? left : free;
    }
    return free;
}

void lz_set_memory_limit(lz_context *ctx, int64_t bytes) {
    if (!ctx) return;
    LZ_LOCK(ctx);
    ctx->memory.limit = bytes > 0 ? bytes : 0;
    if (bytes > 0) trim_cache(ctx, bytes > ctx->memory.active ? bytes - ctx->memory.active : 0);
    do {
        if (bytes > 0) evict_bytes(ctx, ctx->memory.active - bytes);
    } while (bytes > 0 && ctx->memory.active > bytes && stop_reserving(ctx));
    LZ_UNLOCK(ctx);
}

void lz_reset_peak(lz_context *ctx) {
    if (!ctx) return;
    LZ_LOCK(ctx);
    ctx->memory.peak = ctx->memory.active + ctx->memory.cached;
    LZ_UNLOCK(ctx);
}

void lz_clear_cache(lz_context *ctx) {
    if (!ctx) return;
    LZ_LOCK(ctx);
    trim_cache(ctx, 0);
    LZ_UNLOCK(ctx);
}
