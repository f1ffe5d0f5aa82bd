/* memory.c: where bytes come from. Host objects (nodes, programs, text) are small and freed at once; array data is
 * counted against the limit, and a little of it is kept for reuse, so that a loop does not go to the system every
 * turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "array/internal.h"

enum { ALIGN = 64, HUGE_PAGE = 2 << 20 };

/* Big blocks lie on huge-page bounds, so that a matrix product does not spend its time looking up pages. */
static void *system_allocate(void *user, size_t bytes) {
    (void)user;
    void *memory = NULL;
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : ALIGN;
    if (posix_memalign(&memory, align, bytes)) return NULL;
    if (align == HUGE_PAGE) madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}
static void system_release(void *user, void *memory, size_t bytes) {
    (void)user, (void)bytes;
    free(memory);
}
const lz_allocator lz_system_allocator = {system_allocate, system_release, NULL};

/* ---- host objects ------------------------------------------------------------------------------------------------ */

typedef struct header {
    size_t bytes; /* header included */
    char pad[ALIGN - sizeof(size_t)];
} header;

/* Host objects are made without the lock. */
static void count_allocation(lz_context *ctx) { __atomic_add_fetch(&ctx->memory.allocations, 1, __ATOMIC_RELAXED); }

void *lz_host_alloc(lz_context *ctx, size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t whole = sizeof(header) + bytes;
    count_allocation(ctx);
    header *h = ctx->allocator.allocate(ctx->allocator.user, whole);
    if (!h) return NULL;
    memset(h, 0, whole);
    h->bytes = whole;
    return h + 1;
}

void lz_host_free(lz_context *ctx, void *memory) {
    if (!memory) return;
    header *h = (header *)memory - 1;
    ctx->allocator.release(ctx->allocator.user, h, h->bytes);
}

char *lz_host_copy(lz_context *ctx, const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = lz_host_alloc(ctx, n);
    if (copy) memcpy(copy, text, n);
    return copy;
}

/* ---- array data -------------------------------------------------------------------------------------------------- */

static void note_peak(lz_memory *m) {
    if (m->active + m->cached > m->peak) m->peak = m->active + m->cached;
}

static void free_data(lz_context *ctx, lz_buffer *b) {
    if (b->data) ctx->allocator.release(ctx->allocator.user, b->data, (size_t)b->bytes);
    lz_host_free(ctx, b);
}

/* Drops cached buffers, the oldest (at the end of the list) first, until at most keep bytes are left. */
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
    return found;
}

lz_buffer *lz_buffer_new(lz_context *ctx, int64_t bytes, lz_error *err) {
    bytes = bytes < ALIGN ? ALIGN : (bytes + ALIGN - 1) / ALIGN * ALIGN;
    LZ_LOCK(ctx);
    lz_memory *m = &ctx->memory;
    lz_buffer *b = take_cached(ctx, bytes);
    if (!b) {
        int64_t room = m->limit - m->active - bytes;
        if (m->limit) trim_cache(ctx, room > 0 ? room : 0);
        if (m->limit && room < 0) {
            lz_fail(err, LZ_OUT_OF_MEMORY, "out of memory: %lld bytes asked for, %lld in use, and the limit is %lld",
                    (long long)bytes, (long long)m->active, (long long)m->limit);
            LZ_UNLOCK(ctx);
            return NULL;
        }
        b = lz_host_alloc(ctx, sizeof *b);
        if (b) {
            count_allocation(ctx);
            b->data = ctx->allocator.allocate(ctx->allocator.user, (size_t)bytes);
            b->bytes = bytes;
        }
        if (!b || !b->data) {
            lz_host_free(ctx, b);
            lz_out_of_memory(err, bytes);
            LZ_UNLOCK(ctx);
            return NULL;
        }
    }
    b->ctx = ctx;
    b->refs = 1;
    b->next = NULL;
    m->active += b->bytes;
    note_peak(m);
    LZ_UNLOCK(ctx);
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

lz_buffer *lz_buffer_retain(lz_buffer *b) {
    LZ_LOCK(b->ctx);
    b->refs++;
    LZ_UNLOCK(b->ctx);
    return b;
}

void lz_buffer_release(lz_buffer *b) {
    if (!b) return;
    lz_context *ctx = b->ctx;
    LZ_LOCK(ctx);
    if (--b->refs == 0) {
        if (b->borrowed) {
            if (b->release) b->release(b->user);
            lz_host_free(ctx, b);
        } else {
            ctx->memory.active -= b->bytes;
            b->next = ctx->cache;
            ctx->cache = b;
            ctx->memory.cached += b->bytes;
            trim_cache(ctx, ctx->cache_limit);
        }
    }
    LZ_UNLOCK(ctx);
}

/* ---- public figures ---------------------------------------------------------------------------------------------- */

lz_memory lz_memory_info(lz_context *ctx) {
    LZ_LOCK(ctx);
    lz_memory m = {.active = ctx->memory.active,
                   .cached = ctx->memory.cached,
                   .peak = ctx->memory.peak,
                   .limit = ctx->memory.limit,
                   .nodes = ctx->memory.nodes,
                   .allocations = __atomic_load_n(&ctx->memory.allocations, __ATOMIC_RELAXED)};
    LZ_UNLOCK(ctx);
    return m;
}

void lz_set_memory_limit(lz_context *ctx, int64_t bytes) {
    LZ_LOCK(ctx);
    ctx->memory.limit = bytes > 0 ? bytes : 0;
    if (bytes > 0) trim_cache(ctx, bytes > ctx->memory.active ? bytes - ctx->memory.active : 0);
    LZ_UNLOCK(ctx);
}

void lz_reset_peak(lz_context *ctx) {
    LZ_LOCK(ctx);
    ctx->memory.peak = ctx->memory.active + ctx->memory.cached;
    LZ_UNLOCK(ctx);
}

void lz_clear_cache(lz_context *ctx) {
    LZ_LOCK(ctx);
    trim_cache(ctx, 0);
    LZ_UNLOCK(ctx);
}

/* ---- memory that goes at once ------------------------------------------------------------------------------------ */

struct lz_bump_chunk {
    struct lz_bump_chunk *next;
    char pad[ALIGN - sizeof(void *)];
};

void *lz_bump_alloc(lz_bump *bump, size_t bytes) {
    bytes = (bytes + 15) / 16 * 16;
    if (bytes > bump->left) {
        size_t size = bytes > 16384 ? bytes : 65536;
        struct lz_bump_chunk *chunk = lz_host_alloc(bump->ctx, sizeof *chunk + size);
        if (!chunk) return NULL;
        chunk->next = bump->chunks;
        bump->chunks = chunk;
        if (size == bytes) return chunk + 1; /* a block of its own: the open chunk stays open */
        bump->at = (char *)(chunk + 1);
        bump->left = size;
    }
    void *memory = bump->at;
    bump->at += bytes;
    bump->left -= bytes;
    return memory;
}

void lz_bump_free(lz_bump *bump) {
    while (bump->chunks) {
        struct lz_bump_chunk *next = bump->chunks->next;
        lz_host_free(bump->ctx, bump->chunks);
        bump->chunks = next;
    }
    bump->at = NULL;
    bump->left = 0;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

void lz_text_add(lz_text *text, const char *format, ...) {
    if (text->failed) return;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (text->length + (size_t)n + 1 > text->capacity) {
        size_t capacity = (text->length + (size_t)n + 1) * 2 + 1024;
        char *grown = lz_host_alloc(text->ctx, capacity);
        if (grown) {
            if (text->data) memcpy(grown, text->data, text->length);
            lz_host_free(text->ctx, text->data);
            text->data = grown;
            text->capacity = capacity;
        } else
            text->failed = true;
    }
    if (!text->failed)
        text->length += (size_t)vsnprintf(text->data + text->length, text->capacity - text->length, format, again);
    va_end(again);
    va_end(args);
}

char *lz_text_take(lz_text *text, lz_error *err) {
    if (!text->failed && !text->data) lz_text_add(text, "%s", "");
    if (!text->failed) return text->data;
    lz_host_free(text->ctx, text->data);
    lz_out_of_memory(err, (int64_t)text->capacity);
    return NULL;
}

void lz_free_text(lz_context *ctx, char *text) { lz_host_free(ctx, text); }
void lz_free_ids(lz_context *ctx, int64_t *ids) { lz_host_free(ctx, ids); }
