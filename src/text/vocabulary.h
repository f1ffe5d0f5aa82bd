/* vocabulary.h: the list of words that a model knows, from a file in its folder, applied to prompts. */
#ifndef LZ_VOCABULARY_H
#define LZ_VOCABULARY_H

#include "base/base.h"

typedef struct lz_vocabulary lz_vocabulary;

lz_vocabulary *lz_vocabulary_open(lz_context *ctx, const char *path, lz_error *err);
void lz_vocabulary_close(lz_vocabulary *w);             /* w may be NULL */
const char *lz_vocabulary_text(const lz_vocabulary *w); /* contents of the file, owned by w */

/* The prompt with synonyms replaced and meaningless words removed; the caller frees it with lz_host_free. NULL: the
 * prompt is unchanged, or an error, which err then has. */
char *lz_vocabulary_read(const lz_vocabulary *w, const char *prompt, lz_error *err);
/* Facts about a prompt. */
typedef struct lz_shown {
    int things;   /* KNOWN with a plural, several of one counted once; -1: the list has none */
    bool negates; /* it has negations, which are removed */
    bool edits;   /* it changes a picture: "make it blue" */
} lz_shown;
lz_status lz_vocabulary_look(const lz_vocabulary *w, const char *prompt, lz_shown *to, lz_error *err);
/* Writes one sentence about the unknown words of a prompt and the nearest known ones; empty if there are none. */
void lz_vocabulary_unknown(const lz_vocabulary *w, const char *prompt, char *to, size_t bytes);

#endif
