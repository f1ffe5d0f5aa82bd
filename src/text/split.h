/* split.h: what happens to text before its words are looked up: Unicode normal form, then cutting by a pattern. */
#ifndef LZ_SPLIT_H
#define LZ_SPLIT_H

#include "base/base.h"

#define LZ_QWEN_PATTERN                                                                                                \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"  \
    "\\s+(?!\\S)|\\s+"

/* Where the text stops being UTF-8, in bytes from its start; -1: nowhere. */
int64_t lz_utf8_error(const char *text, size_t bytes);

/* The text in normal form C. *out is the text itself where nothing can change, else from lz_host_alloc; the caller frees it
 * when it is not the text. The text must be valid UTF-8. */
lz_status lz_nfc(lz_context *ctx, const char *text, size_t bytes, const char **out, size_t *n, lz_error *err);

typedef struct lz_splitter lz_splitter; /* a compiled pattern; any number of threads may use it */

/* path: the file the pattern is from, for the error. */
lz_splitter *lz_splitter_new(lz_context *ctx, const char *pattern, const char *path, lz_error *err);
void lz_splitter_free(lz_splitter *s);

/* The words of a text, which must stay and be valid UTF-8: each match of the pattern, and each stretch between two. */
typedef struct lz_words {
    const lz_splitter *splitter;
    const char *text;
    size_t bytes;
    size_t done;      /* all before is handed out */
    size_t look;      /* where to look for the next match */
    size_t match_end; /* beyond done: a match begins at done, found but not handed out */
    struct pcre2_real_match_data_8 *match;
} lz_words;

lz_status lz_words_begin(lz_words *words, const lz_splitter *s, const char *text, size_t bytes, lz_error *err);
/* The next word, of *n bytes; *n is 0 after the last. */
lz_status lz_words_next(lz_words *words, const char **word, size_t *n, lz_error *err);
void lz_words_end(lz_words *words);

#endif
