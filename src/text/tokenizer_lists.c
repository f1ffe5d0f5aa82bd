/* tokenizer_lists.c: makes a tokenizer from a list of tokens and a list of merges, as in files of llama.cpp. Everything
 * else is as for Qwen. */
#include <string.h>

#include "text/tokenizer_parts.h"

enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 }; /* kinds of tokens in llama.cpp */
enum { MOST_TOKENS = 1 << 22, MOST_BYTES = 4096 };

/* Skips padding tokens, which no text contains. */
static lz_status take_token(lz_tokenizer *t, const char *path, const char *text, size_t n, int kind, int64_t id,
                            lz_error *err) {
    char copy[MOST_BYTES + 1];
    if (n > MOST_BYTES || id >= MOST_TOKENS || memchr(text, 0, n))
        return lz_fail(err, LZ_BAD_FILE, "%s: token %lld is too long, is not text, or is one of too many",
                       LZ_SHOW_TEXT(path), (long long)id);
    memcpy(copy, text, n);
    copy[n] = 0;
    if (kind == CONTROL || kind == USER_DEFINED) return lz_tokenizer_add(t, path, copy, id, err);
    if (kind == UNUSED || !n) return LZ_OK;
    if (lz_bpe_find(&t->bpe, copy, n, "", 0) >= 0)
        return lz_fail(err, LZ_BAD_FILE, "%s: the token '%s' is there twice", LZ_SHOW_TEXT(path), LZ_SHOW_TEXT(copy));
    return lz_bpe_add_token(&t->bpe, copy, n, (int32_t)id) ? LZ_OK : lz_out_of_memory(err, (int64_t)n);
}

lz_tokenizer *lz_tokenizer_from_lists(lz_context *ctx, const lz_tokenizer_lists *lists, lz_error *err) {
    lz_tokenizer *t = lz_tokenizer_begin(ctx, err);
    if (!t) return NULL;
    lz_error why = {.status = LZ_OK};
    const char *text;
    size_t n;
    int kind = NORMAL;
    int64_t id = 0;
    for (; !why.status && lists->token(lists->user, &text, &n, &kind); id++)
        take_token(t, lists->path, text, n, kind, id, &why);
    if (!why.status && (lists->pad < -1 || lists->pad >= id))
        lz_fail(&why, LZ_BAD_FILE, "%s: its token for padding is %lld, and there are %lld", LZ_SHOW_TEXT(lists->path),
                (long long)lists->pad, (long long)id);
    int missing = why.status ? -1 : lz_bpe_find_bytes(&t->bpe);
    if (missing >= 0)
        lz_fail(&why, LZ_BAD_FILE, "%s: the vocabulary lacks the symbol of byte 0x%02x", LZ_SHOW_TEXT(lists->path),
                (unsigned)missing);
    for (int32_t rank = 0; !why.status && lists->merge(lists->user, &text, &n); rank++)
        lz_tokenizer_add_merge(t, lists->path, rank, text, n, &why);
    t->nfc = true;
    t->pad = lists->pad;
    if (!why.status) t->splitter = lz_splitter_new(ctx, LZ_QWEN_PATTERN, lists->path, &why);
    return lz_tokenizer_end(t, lists->path, &why, err);
}
