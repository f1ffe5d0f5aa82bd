/* bpe.h: byte pair encoding: the tokens of a vocabulary, its merge rules, and encoding one word. */
#ifndef LZ_BPE_H
#define LZ_BPE_H

#include "base/base.h"

typedef struct lz_token {
    const char *text; /* NULL: free slot */
    uint32_t hash;
    int32_t id;
} lz_token;

typedef struct lz_merge {
    uint64_t pair; /* left id << 32 | right id */
    int32_t rank;  /* -1: free slot */
    int32_t id;    /* of the merged token */
} lz_merge;

/* Two hash tables with open addressing, at most half full, whose sizes are powers of two. */
typedef struct lz_bpe {
    lz_context *ctx;
    lz_bump text; /* owns the texts of the tokens */
    lz_token *tokens;
    size_t n_tokens, token_slots;
    lz_merge *merges;
    size_t n_merges, merge_slots;
    int32_t bytes[256]; /* the token of each byte */
} lz_bpe;

/* ---- filling. Functions that return bool return false if memory runs out. */

bool lz_bpe_add_token(lz_bpe *bpe, const char *text, size_t n, int32_t id); /* the text must be new */
/* The id of the token whose text is first followed by second (neither contains zero bytes); -1: none. */
int32_t lz_bpe_find(const lz_bpe *bpe, const char *first, size_t n_first, const char *second, size_t n_second);
/* Replaces an earlier rule of the pair. */
bool lz_bpe_add_merge(lz_bpe *bpe, int32_t left, int32_t right, int32_t rank, int32_t id);
/* Fills `bytes`; called after all tokens are added. Returns the first byte that has no token, or -1. */
int lz_bpe_find_bytes(lz_bpe *bpe);
void lz_bpe_free(lz_bpe *bpe);

/* ---- using: the BPE is not written to */

/* Memory for encoding words; grows with the longest word and is reused from word to word. */
typedef struct lz_bpe_scratch {
    struct lz_symbol *symbols;
    struct lz_candidate *heap;
    size_t capacity; /* number of symbols; the heap has three times as many entries */
} lz_bpe_scratch;

/* Writes at most n ids and returns their number; -1: out of memory. n is below 2^28. */
int64_t lz_bpe_word(const lz_bpe *bpe, lz_bpe_scratch *scratch, const char *word, size_t n, int64_t *ids);
void lz_bpe_scratch_free(const lz_bpe *bpe, lz_bpe_scratch *scratch);

#endif
