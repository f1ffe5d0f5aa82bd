/* split.h: prepares text for BPE: Unicode normal form C, then splitting into words by a pattern. */
#ifndef LZ_SPLIT_H
#define LZ_SPLIT_H

#include "base/base.h"

#define LZ_QWEN_PATTERN                                                                                                \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"  \
    "\\s+(?!\\S)|\\s+"

/* The offset of the first byte that is not valid UTF-8; -1: all of the text is valid. */
int64_t lz_utf8_error(const char *text, size_t bytes);

/* Converts valid UTF-8 to normal form C. *out is `text` itself if nothing can change; otherwise it is new memory, which
 * the caller frees with lz_host_free. */
lz_status lz_nfc(lz_context *ctx, const char *text, size_t bytes, const char **out, size_t *n, lz_error *err);

typedef struct lz_splitter lz_splitter; /* a compiled pattern; any number of threads may use it */

/* path: the file of the pattern, for the error. */
lz_splitter *lz_splitter_new(lz_context *ctx, const char *pattern, const char *path, lz_error *err);
void lz_splitter_free(lz_splitter *s);

/* Iterates over the words of a text: each match of the pattern, and each range between two matches. The text must be
 * valid UTF-8 and outlive the iteration. */
typedef struct lz_words {
    const lz_splitter *splitter;
    const char *text;
    size_t bytes;
    size_t done;      /* end of the words returned so far */
    size_t look;      /* start of the search for the next match */
    size_t match_end; /* if greater than done: the end of a match that begins at done and is not returned yet */
    struct pcre2_real_match_data_8 *match;
} lz_words;

lz_status lz_words_begin(lz_words *words, const lz_splitter *s, const char *text, size_t bytes, lz_error *err);
/* The next word has *n bytes; *n is 0 after the last word. */
lz_status lz_words_next(lz_words *words, const char **word, size_t *n, lz_error *err);
void lz_words_end(lz_words *words);

#endif
