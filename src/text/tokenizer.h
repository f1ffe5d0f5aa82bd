/* tokenizer.h: text to token ids, as the byte-level BPE tokenizers of Qwen2 and Qwen3 do it. Opening and tokenizing are in
 * lazuli.h; this is what models ask besides. Any number of threads may use one tokenizer. */
#ifndef LZ_TOKENIZER_H
#define LZ_TOKENIZER_H

#include "lazuli.h"

/* The id of an added token or of a vocabulary entry as the file spells it (a space is "Ġ" there); -1: none. */
int64_t lz_tokenizer_id(const lz_tokenizer *t, const char *token);
int64_t lz_tokenizer_pad(const lz_tokenizer *t);    /* -1: none */
bool lz_tokenizer_pads_left(const lz_tokenizer *t); /* padding goes before the text */

#endif
