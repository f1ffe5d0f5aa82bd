/* tokenizer.h: text to token ids, as the byte-level BPE tokenizers of Qwen2 and Qwen3 do it. */
#ifndef LZ_TOKENIZER_H
#define LZ_TOKENIZER_H

#include "lazuli.h"

typedef struct lz_tokenizer lz_tokenizer;

/* From tokenizer.json, or else from vocab.json and merges.txt (and added_tokens.json, where there is one); in both cases
 * tokenizer_config.json, where there is one, adds tokens and names the one for padding. */
lz_tokenizer *lz_tokenizer_open(lz_context *ctx, const char *folder, lz_error *err);
void lz_tokenizer_free(lz_tokenizer *t);

/* *ids is from lz_host_alloc, also when *n is 0. Any number of threads may use one tokenizer. */
lz_status lz_tokenize(const lz_tokenizer *t, const char *text, size_t bytes, int64_t **ids, int64_t *n, lz_error *err);

/* The id of an added token or of a vocabulary entry as the file spells it (a space is "Ġ" there); -1: none. */
int64_t lz_tokenizer_id(const lz_tokenizer *t, const char *token);
int64_t lz_tokenizer_pad(const lz_tokenizer *t); /* -1: none */

#endif
