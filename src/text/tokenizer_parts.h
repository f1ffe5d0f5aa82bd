/* tokenizer_parts.h: shared by tokenizer.c (encoding) and tokenizer_load.c (reading files). */
#ifndef LZ_TOKENIZER_PARTS_H
#define LZ_TOKENIZER_PARTS_H

#include "text/bpe.h"
#include "text/split.h"
#include "text/tokenizer.h"

typedef struct lz_added_token {
    const char *text;
    size_t bytes;
    int32_t id;
} lz_added_token;

struct lz_tokenizer {
    lz_context *ctx;
    lz_bpe bpe; /* its tokens include the added ones */
    lz_splitter *splitter;
    bool nfc;
    lz_added_token *added; /* sorted by first byte, then the longest first */
    size_t n_added, added_capacity;
    /* Added tokens that begin with byte b have indices added_from[b] .. added_from[b + 1] - 1. */
    size_t added_from[257];
    int64_t pad;
    bool pads_left;
};

/* For forms that are not files of their own: begin, add tokens to the BPE and to these, end. path: for errors. */
lz_tokenizer *lz_tokenizer_begin(lz_context *ctx, lz_error *err);
lz_status lz_tokenizer_add(lz_tokenizer *t, const char *path, const char *text, int64_t id, lz_error *err);
/* line: "left right", both in the BPE already. */
lz_status lz_tokenizer_add_merge(lz_tokenizer *t, const char *path, int32_t rank, const char *line, size_t n,
                                 lz_error *err);
/* Checks it, if *why is no error yet. Otherwise frees it, and hands *why on; NULL. */
lz_tokenizer *lz_tokenizer_end(lz_tokenizer *t, const char *path, lz_error *why, lz_error *err);

#endif
