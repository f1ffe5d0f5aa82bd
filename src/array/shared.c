/* shared.c: finds the shared buffer of the same bytes (lz_buffer_share in internal.h). The table is a hash table of lists.
 * It holds no references: a buffer leaves it when its last reference is released. */
#include "array/internal.h"

/* Bytes of a file are found by their address. A made buffer has no address yet, and is found by its size. */
static lz_buffer **list_of(lz_buffer *b) {
    uint64_t key = b->make ? (uint64_t)b->bytes : (uint64_t)(uintptr_t)b->data;
    return &b->ctx->shared[key * 0x9E3779B97F4A7C15 >> 54]; /* the highest 10 bits of a multiplicative hash */
}

static bool are_same(const lz_buffer *a, const lz_buffer *b) {
    if (a->bytes != b->bytes || a->make != b->make) return false;
    return a->make ? a->same(a->user, b->user) : a->data == b->data;
}

lz_buffer *lz_buffer_share(lz_buffer *b) {
    _Static_assert(LZ_SHARED_LISTS == 1 << (64 - 54), "the hash has as many values as there are lists");
    if (!b || (b->make && !b->same)) return b;
    LZ_LOCK(b->ctx);
    lz_buffer **list = list_of(b), *found = *list;
    while (found && !are_same(found, b)) found = found->next_shared;
    if (found) {
        found->refs++;
    } else {
        b->shared = true;
        b->next_shared = *list;
        *list = b;
    }
    LZ_UNLOCK(b->ctx);
    if (!found) return b;
    lz_buffer_release(b);
    return found;
}

void lz_buffer_unshare(lz_buffer *b) {
    if (!b->shared) return;
    lz_buffer **at = list_of(b);
    while (*at != b) at = &(*at)->next_shared;
    *at = b->next_shared;
    b->shared = false;
}
