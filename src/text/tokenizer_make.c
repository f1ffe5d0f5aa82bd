/* tokenizer_make.c: the first and last steps of making a tokenizer, common to all forms of files. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_parts.h"

lz_tokenizer *lz_tokenizer_begin(lz_context *ctx, lz_error *err) {
    lz_tokenizer *t = lz_host_alloc(ctx, sizeof *t);
    if (!t) {
        lz_out_of_memory(err, sizeof *t);
        return NULL;
    }
    t->ctx = t->bpe.ctx = t->bpe.text.ctx = ctx;
    t->pad = -1;
    return t;
}

static int by_id(const void *a, const void *b) {
    int32_t x = ((const lz_token *)a)->id, y = ((const lz_token *)b)->id;
    return x < y ? -1 : x > y;
}

static int32_t greatest_id(const lz_bpe *bpe) {
    int32_t id = 0;
    for (size_t i = 0; i < bpe->token_slots; i++)
        if (bpe->tokens[i].text && bpe->tokens[i].id > id) id = bpe->tokens[i].id;
    return id;
}

/* seen: a zero bit for each id */
static bool ids_differ(const lz_bpe *bpe, uint64_t *seen) {
    for (size_t i = 0; i < bpe->token_slots; i++) {
        int32_t id = bpe->tokens[i].id;
        uint64_t bit = UINT64_C(1) << (id % 64);
        if (!bpe->tokens[i].text) continue;
        if (seen[id / 64] & bit) return false;
        seen[id / 64] |= bit;
    }
    return true;
}

/* Checks that no two tokens, from all files, have the same id. */
static lz_status check_ids_differ(lz_tokenizer *t, const char *folder, lz_error *err) {
    const lz_bpe *bpe = &t->bpe;
    size_t words = (size_t)greatest_id(bpe) / 64 + 1;
    if (words <= bpe->n_tokens) { /* usually; then nothing needs sorting */
        uint64_t *seen = lz_host_alloc(t->ctx, words * sizeof *seen);
        if (!seen) return lz_out_of_memory(err, (int64_t)(words * sizeof *seen));
        bool differ = ids_differ(bpe, seen);
        lz_host_free(t->ctx, seen);
        if (differ) return LZ_OK;
    }
    lz_token *sorted = lz_host_alloc(t->ctx, bpe->n_tokens * sizeof *sorted);
    if (!sorted) return lz_out_of_memory(err, (int64_t)(bpe->n_tokens * sizeof *sorted));
    size_t n = 0;
    for (size_t i = 0; i < bpe->token_slots; i++)
        if (bpe->tokens[i].text) sorted[n++] = bpe->tokens[i];
    qsort(sorted, n, sizeof *sorted, by_id);
    lz_status status = LZ_OK;
    for (size_t i = 1; i < n && status == LZ_OK; i++)
        if (sorted[i].id == sorted[i - 1].id)
            status = lz_fail(err, LZ_BAD_FILE, "%s: the tokens '%s' and '%s' of this tokenizer have the same id, %d",
                             LZ_SHOW_TEXT(folder), LZ_SHOW_TEXT(sorted[i - 1].text), LZ_SHOW_TEXT(sorted[i].text),
                             sorted[i].id);
    lz_host_free(t->ctx, sorted);
    return status;
}

static int by_first_byte_then_longest(const void *a, const void *b) {
    const lz_added_token *x = a, *y = b;
    int first = (unsigned char)x->text[0] - (unsigned char)y->text[0];
    return first ? first : x->bytes > y->bytes ? -1 : x->bytes < y->bytes;
}

static void index_added_tokens(lz_tokenizer *t) {
    if (t->n_added) qsort(t->added, t->n_added, sizeof *t->added, by_first_byte_then_longest);
    for (size_t i = 0; i < t->n_added; i++) t->added_from[(unsigned char)t->added[i].text[0] + 1]++;
    for (size_t b = 0; b < 256; b++) t->added_from[b + 1] += t->added_from[b];
}

lz_tokenizer *lz_tokenizer_end(lz_tokenizer *t, const char *path, lz_error *why, lz_error *err) {
    if (why->status == LZ_OK) check_ids_differ(t, path, why);
    if (why->status != LZ_OK) {
        if (err) *err = *why;
        lz_tokenizer_free(t);
        return NULL;
    }
    index_added_tokens(t);
    if (t->pad < 0) t->pad = lz_tokenizer_id(t, "<|endoftext|>");
    return t;
}
