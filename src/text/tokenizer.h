/* tokenizer.h: text to token ids, like the byte-level BPE tokenizers of Qwen2 and Qwen3. Opening and tokenizing are
 * declared in lazuli.h; these functions are for models. Any number of threads may use one tokenizer. */
#ifndef LZ_TOKENIZER_H
#define LZ_TOKENIZER_H

#include "lazuli.h"

/* The id of an added token, or of a vocabulary entry as written in the file (with "Ġ" for a space); -1: none. */
int64_t lz_tokenizer_id(const lz_tokenizer *t, const char *token);
int64_t lz_tokenizer_pad(const lz_tokenizer *t);    /* -1: none */
bool lz_tokenizer_pads_left(const lz_tokenizer *t); /* padding goes before the text */

/* A tokenizer from lists, as GGUF files have them. Texts are read one after the other and need not end in a 0. */
typedef struct lz_tokenizer_lists {
    const char *path; /* for errors */
    int64_t pad;      /* an id; -1: that of <|endoftext|> */
    void *user;
    /* The next token, whose ids are 0, 1, ..., and its kind of llama.cpp; the next merge, "left right". False: no more. */
    bool (*token)(void *user, const char **text, size_t *bytes, int *kind);
    bool (*merge)(void *user, const char **text, size_t *bytes);
} lz_tokenizer_lists;
lz_tokenizer *lz_tokenizer_from_lists(lz_context *ctx, const lz_tokenizer_lists *lists, lz_error *err);

#endif
