/* memory.c: host memory: the default allocator, small objects (nodes, programs, text) from the context's allocator, and
 * the bump allocator. The data of arrays is in array/memory.c. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"

enum { ALIGN = 64, HUGE_PAGE = 2 << 20 };

/* Large blocks are aligned to huge pages, so that matrix products have few TLB misses. */
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
    size_t bytes; /* including the header */
    char pad[ALIGN - sizeof(size_t)];
} header;

void lz_count_allocation(lz_context *ctx) { __atomic_add_fetch(&lz_base_of(ctx)->allocations, 1, __ATOMIC_RELAXED); }

void *lz_host_alloc(lz_context *ctx, size_t bytes) {
    if (bytes > SIZE_MAX / 2) return NULL;
    size_t whole = sizeof(header) + bytes;
    lz_count_allocation(ctx);
    const lz_allocator *a = &lz_base_of(ctx)->allocator;
    header *h = a->allocate(a->user, whole);
    if (!h) return NULL;
    memset(h, 0, whole);
    h->bytes = whole;
    return h + 1;
}

void lz_host_free(lz_context *ctx, void *memory) {
    if (!memory) return;
    header *h = (header *)memory - 1;
    const lz_allocator *a = &lz_base_of(ctx)->allocator;
    a->release(a->user, h, h->bytes);
}

char *lz_host_copy(lz_context *ctx, const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = lz_host_alloc(ctx, n);
    if (copy) memcpy(copy, text, n);
    return copy;
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
        if (size == bytes) return chunk + 1; /* a chunk for this block alone: the current chunk stays in use */
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
