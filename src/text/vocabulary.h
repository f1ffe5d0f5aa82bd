/* vocabulary.h: the words that a model knows, from a file in its folder, and prompts read by them. */
#ifndef LZ_VOCABULARY_H
#define LZ_VOCABULARY_H

#include "base/base.h"

typedef struct lz_vocabulary lz_vocabulary;

lz_vocabulary *lz_vocabulary_open(lz_context *ctx, const char *path, lz_error *err);
void lz_vocabulary_close(lz_vocabulary *w);             /* NULL is fine */
const char *lz_vocabulary_text(const lz_vocabulary *w); /* the file; the words' own */

/* The prompt with the words that stand for others replaced and those that stand for nothing left out, owned; NULL where it
 * stays as it is, or err is filled. */
char *lz_vocabulary_read(const lz_vocabulary *w, const char *prompt, lz_error *err);
/* One sentence on the words of a prompt that are unknown, and the nearest known ones. Empty: there are none. */
void lz_vocabulary_unknown(const lz_vocabulary *w, const char *prompt, char *to, size_t room);

#endif
