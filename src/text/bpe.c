/* bpe.c: byte pair encoding. A word starts as one symbol per byte. The neighbouring pair whose merge rule has the
 * lowest rank (the leftmost such pair) becomes one symbol, until no rule applies.
 *
 * Searching the whole word after each merge would take quadratic time, and a prompt may contain a "word" of 100 KB. So
 * the symbols are a linked list in an array, and the possible merges are in a heap, ordered by rank and position. A
 * merge makes other entries of the heap stale; a stale entry is recognised when it is popped, because its position no
 * longer has its pair. (It cannot have the same pair again, because symbols only grow.) */
#include "text/bpe.h"

#include <string.h>

/* ---- the tables -------------------------------------------------------------------------------------------------- */

enum { FIRST_SLOTS = 1024 };

static uint32_t hash_bytes(uint32_t hash, const char *text, size_t n) { /* FNV-1a */
    for (size_t i = 0; i < n; i++) hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash;
}
#define HASH_START 2166136261u

static size_t hash_pair(uint64_t pair) { return (size_t)((pair * 0x9e3779b97f4a7c15u) >> 32); }

static uint64_t make_pair(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

static lz_token *free_token_slot(lz_token *tokens, size_t slots, uint32_t hash) {
    size_t i = hash & (slots - 1);
    while (tokens[i].text) i = (i + 1) & (slots - 1);
    return &tokens[i];
}

static bool grow_tokens(lz_bpe *bpe) {
    size_t slots = bpe->token_slots ? 2 * bpe->token_slots : FIRST_SLOTS;
    lz_token *tokens = lz_host_alloc(bpe->ctx, slots * sizeof *tokens);
    if (!tokens) return false;
    for (size_t i = 0; i < bpe->token_slots; i++)
        if (bpe->tokens[i].text) *free_token_slot(tokens, slots, bpe->tokens[i].hash) = bpe->tokens[i];
    lz_host_free(bpe->ctx, bpe->tokens);
    bpe->tokens = tokens;
    bpe->token_slots = slots;
    return true;
}

bool lz_bpe_add_token(lz_bpe *bpe, const char *text, size_t n, int32_t id) {
    if (2 * bpe->n_tokens >= bpe->token_slots && !grow_tokens(bpe)) return false;
    char *copy = lz_bump_alloc(&bpe->text, n + 1); /* zeroed */
    if (!copy) return false;
    memcpy(copy, text, n);
    uint32_t hash = hash_bytes(HASH_START, text, n);
    *free_token_slot(bpe->tokens, bpe->token_slots, hash) = (lz_token){copy, hash, id};
    bpe->n_tokens++;
    return true;
}

int32_t lz_bpe_find(const lz_bpe *bpe, const char *first, size_t n_first, const char *second, size_t n_second) {
    if (!bpe->token_slots) return -1;
    uint32_t hash = hash_bytes(hash_bytes(HASH_START, first, n_first), second, n_second);
    for (size_t i = hash;; i++) {
        const lz_token *t = &bpe->tokens[i & (bpe->token_slots - 1)];
        if (!t->text) return -1;
        if (t->hash == hash && strncmp(t->text, first, n_first) == 0 &&
            strncmp(t->text + n_first, second, n_second) == 0 && !t->text[n_first + n_second])
            return t->id;
    }
}

/* The slot of the pair, or the free slot where it would be inserted. */
static lz_merge *merge_slot(lz_merge *merges, size_t slots, uint64_t pair) {
    size_t i = hash_pair(pair) & (slots - 1);
    while (merges[i].rank >= 0 && merges[i].pair != pair) i = (i + 1) & (slots - 1);
    return &merges[i];
}

static bool grow_merges(lz_bpe *bpe) {
    size_t slots = bpe->merge_slots ? 2 * bpe->merge_slots : FIRST_SLOTS;
    lz_merge *merges = lz_host_alloc(bpe->ctx, slots * sizeof *merges);
    if (!merges) return false;
    for (size_t i = 0; i < slots; i++) merges[i].rank = -1;
    for (size_t i = 0; i < bpe->merge_slots; i++)
        if (bpe->merges[i].rank >= 0) *merge_slot(merges, slots, bpe->merges[i].pair) = bpe->merges[i];
    lz_host_free(bpe->ctx, bpe->merges);
    bpe->merges = merges;
    bpe->merge_slots = slots;
    return true;
}

bool lz_bpe_add_merge(lz_bpe *bpe, int32_t left, int32_t right, int32_t rank, int32_t id) {
    if (2 * bpe->n_merges >= bpe->merge_slots && !grow_merges(bpe)) return false;
    uint64_t pair = make_pair(left, right);
    lz_merge *slot = merge_slot(bpe->merges, bpe->merge_slots, pair);
    bpe->n_merges += slot->rank < 0;
    *slot = (lz_merge){pair, rank, id};
    return true;
}

static const lz_merge *find_merge(const lz_bpe *bpe, int32_t left, int32_t right) {
    if (!bpe->merge_slots) return NULL;
    const lz_merge *slot = merge_slot(bpe->merges, bpe->merge_slots, make_pair(left, right));
    return slot->rank < 0 ? NULL : slot;
}

/* GPT-2's alphabet: a printable byte is its own code point, the other 68 are U+0100, U+0101, ... in order. */
int lz_bpe_find_bytes(lz_bpe *bpe) {
    int unprintable = 0;
    for (int byte = 0; byte < 256; byte++) {
        bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        int point = prints ? byte : 256 + unprintable++;
        char symbol[2] = {(char)point};
        if (point >= 128) {
            symbol[0] = (char)(0xc0 | point >> 6);
            symbol[1] = (char)(0x80 | (point & 0x3f));
        }
        bpe->bytes[byte] = lz_bpe_find(bpe, symbol, point >= 128 ? 2 : 1, "", 0);
        if (bpe->bytes[byte] < 0) return byte;
    }
    return -1;
}

void lz_bpe_free(lz_bpe *bpe) {
    lz_host_free(bpe->ctx, bpe->tokens);
    lz_host_free(bpe->ctx, bpe->merges);
    lz_bump_free(&bpe->text);
}

/* ---- the heap of joins ------------------------------------------------------------------------------------------- */

typedef struct lz_symbol {
    int32_t id;             /* -1: merged into its left neighbour */
    int32_t previous, next; /* -1: none */
} symbol;

typedef struct lz_candidate {
    const lz_merge *merge;
    int32_t at; /* index of the left symbol */
} candidate;

static bool comes_before(candidate a, candidate b) {
    return a.merge->rank != b.merge->rank ? a.merge->rank < b.merge->rank : a.at < b.at;
}

static void heap_push(candidate *heap, size_t *n, candidate c) {
    size_t i = (*n)++;
    for (; i > 0 && comes_before(c, heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = c;
}

static candidate heap_pop(candidate *heap, size_t *n) {
    candidate top = heap[0], last = heap[--*n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < *n; i = child) {
        if (child + 1 < *n && comes_before(heap[child + 1], heap[child])) child++;
        if (!comes_before(heap[child], last)) break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

/* ---- one word ---------------------------------------------------------------------------------------------------- */

static bool reserve(const lz_bpe *bpe, lz_bpe_scratch *scratch, size_t n) {
    if (n <= scratch->capacity) return true;
    lz_bpe_scratch_free(bpe, scratch);
    size_t capacity = n < 64 ? 64 : n + n / 2;
    scratch->symbols = lz_host_alloc(bpe->ctx, capacity * sizeof(symbol));
    /* n - 1 entries at first, and each of at most n - 1 merges adds two. */
    scratch->heap = lz_host_alloc(bpe->ctx, 3 * capacity * sizeof(candidate));
    scratch->capacity = capacity;
    if (scratch->symbols && scratch->heap) return true;
    lz_bpe_scratch_free(bpe, scratch);
    return false;
}

/* Adds the merge of symbol `at` and its right neighbour to the heap, if there is a rule for it. */
static void propose(const lz_bpe *bpe, lz_bpe_scratch *scratch, size_t *n, int32_t at) {
    const symbol *symbols = scratch->symbols;
    if (at < 0 || symbols[at].next < 0) return;
    const lz_merge *merge = find_merge(bpe, symbols[at].id, symbols[symbols[at].next].id);
    if (merge) heap_push(scratch->heap, n, (candidate){merge, at});
}

static bool is_stale(const symbol *symbols, candidate c) {
    const symbol *left = &symbols[c.at];
    return left->id < 0 || left->next < 0 || make_pair(left->id, symbols[left->next].id) != c.merge->pair;
}

static void join(symbol *symbols, candidate c) {
    symbol *left = &symbols[c.at], *right = &symbols[left->next];
    left->id = c.merge->id;
    left->next = right->next;
    right->id = -1;
    if (left->next >= 0) symbols[left->next].previous = c.at;
}

int64_t lz_bpe_word(const lz_bpe *bpe, lz_bpe_scratch *scratch, const char *word, size_t n, int64_t *ids) {
    if (n == 0) return 0;
    if (!reserve(bpe, scratch, n)) return -1;
    symbol *symbols = scratch->symbols;
    for (size_t i = 0; i < n; i++)
        symbols[i] = (symbol){bpe->bytes[(unsigned char)word[i]], (int32_t)i - 1, i + 1 < n ? (int32_t)i + 1 : -1};

    size_t waiting = 0;
    for (size_t i = 0; i + 1 < n; i++) propose(bpe, scratch, &waiting, (int32_t)i);
    while (waiting > 0) {
        candidate c = heap_pop(scratch->heap, &waiting);
        if (is_stale(symbols, c)) continue;
        join(symbols, c);
        propose(bpe, scratch, &waiting, symbols[c.at].previous);
        propose(bpe, scratch, &waiting, c.at);
    }

    int64_t count = 0;
    for (int32_t i = 0; i >= 0; i = symbols[i].next) ids[count++] = symbols[i].id;
    return count;
}

void lz_bpe_scratch_free(const lz_bpe *bpe, lz_bpe_scratch *scratch) {
    lz_host_free(bpe->ctx, scratch->symbols);
    lz_host_free(bpe->ctx, scratch->heap);
    *scratch = (lz_bpe_scratch){.capacity = 0};
}
