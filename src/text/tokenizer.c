/* tokenizer.c: text to token ids, in four steps:
 *
 *   1. added tokens ("<|im_start|>") are found in the raw text: the leftmost, and at one position the longest;
 *   2. the text between them is converted to Unicode normal form C;
 *   3. a pattern splits it into words;
 *   4. the bytes of each word are merged into tokens (bpe.c).
 *
 * A text must be tokenized as a whole: the ids of its parts are not those of the whole, because a token may cross the
 * boundary, as in "user\n" and "\n\nA cat". */
#include "text/tokenizer.h"

#include <string.h>

#include "text/tokenizer_parts.h"

#define TEXT_LIMIT (64 << 20) /* bytes; normal form C at most triples them, and bpe.c has 31-bit indices */

typedef struct encoder {
    const lz_tokenizer *t;
    int64_t *ids;
    size_t n, capacity;
    lz_bpe_scratch scratch;
    lz_error *err;
} encoder;

static lz_status reserve_ids(encoder *e, size_t more) {
    if (e->n + more <= e->capacity) return LZ_OK;
    size_t capacity = 2 * (e->n + more) + 64;
    int64_t *ids = lz_host_alloc(e->t->ctx, capacity * sizeof *ids);
    if (!ids) {
        lz_out_of_memory(e->err, (int64_t)(capacity * sizeof *ids));
        return LZ_OUT_OF_MEMORY;
    }
    if (e->n) memcpy(ids, e->ids, e->n * sizeof *ids);
    lz_host_free(e->t->ctx, e->ids);
    e->ids = ids;
    e->capacity = capacity;
    return LZ_OK;
}

static lz_status encode_word(encoder *e, const char *word, size_t bytes) {
    lz_status status = reserve_ids(e, bytes);
    if (status != LZ_OK) return status;
    int64_t count = lz_bpe_word(&e->t->bpe, &e->scratch, word, bytes, e->ids + e->n);
    if (count < 0) return lz_out_of_memory(e->err, (int64_t)bytes);
    e->n += (size_t)count;
    return LZ_OK;
}

static lz_status encode_words(encoder *e, const char *text, size_t bytes) {
    lz_words words;
    lz_status status = lz_words_begin(&words, e->t->splitter, text, bytes, e->err);
    while (status == LZ_OK) {
        const char *word;
        size_t n;
        status = lz_words_next(&words, &word, &n, e->err);
        if (status != LZ_OK || n == 0) break;
        status = encode_word(e, word, n);
    }
    lz_words_end(&words);
    return status;
}

/* Text without added tokens. */
static lz_status encode_stretch(encoder *e, const char *text, size_t bytes) {
    if (bytes == 0) return LZ_OK;
    const char *normal = text;
    size_t n = bytes;
    lz_status status = e->t->nfc ? lz_nfc(e->t->ctx, text, bytes, &normal, &n, e->err) : LZ_OK;
    if (status == LZ_OK) status = encode_words(e, normal, n);
    if (normal != text) lz_host_free(e->t->ctx, (void *)normal);
    return status;
}

/* The longest added token at the start of the text, or NULL. */
static const lz_added_token *added_token_at(const lz_tokenizer *t, const char *text, size_t bytes) {
    unsigned char first = (unsigned char)*text;
    for (size_t i = t->added_from[first]; i < t->added_from[first + 1]; i++) {
        const lz_added_token *token = &t->added[i];
        if (token->bytes <= bytes && memcmp(token->text, text, token->bytes) == 0) return token;
    }
    return NULL;
}

static lz_status encode_text(encoder *e, const char *text, size_t bytes) {
    size_t begin = 0; /* start of the text after the last added token */
    for (size_t at = 0; at < bytes;) {
        const lz_added_token *token = added_token_at(e->t, text + at, bytes - at);
        if (!token) {
            at++;
            continue;
        }
        lz_status status = encode_stretch(e, text + begin, at - begin);
        if (status == LZ_OK) status = reserve_ids(e, 1);
        if (status != LZ_OK) return status;
        e->ids[e->n++] = token->id;
        begin = at += token->bytes;
    }
    return encode_stretch(e, text + begin, bytes - begin);
}

lz_status lz_tokenize(const lz_tokenizer *t, const char *text, size_t bytes, int64_t **ids, int64_t *n, lz_error *err) {
    if (!t || !ids || !n || (!text && bytes)) return lz_fail(err, LZ_BAD_ARGUMENT, "lz_tokenize: an argument is NULL");
    *ids = NULL;
    *n = 0;
    if (bytes > TEXT_LIMIT)
        return lz_fail(err, LZ_BAD_ARGUMENT, "the prompt has %zu bytes, but %d is the most there can be", bytes,
                       TEXT_LIMIT);
    int64_t bad = lz_utf8_error(text, bytes);
    if (bad >= 0) return lz_fail(err, LZ_BAD_ARGUMENT, "the prompt is not valid UTF-8 at byte %lld", (long long)bad);

    encoder e = {.t = t, .err = err};
    lz_status status = reserve_ids(&e, bytes / 4 + 1); /* so that *ids is not NULL even for an empty text */
    if (status == LZ_OK) status = encode_text(&e, text, bytes);
    lz_bpe_scratch_free(&t->bpe, &e.scratch);
    if (status != LZ_OK) {
        lz_host_free(t->ctx, e.ids);
        return status;
    }
    *ids = e.ids;
    *n = (int64_t)e.n;
    return LZ_OK;
}

int64_t lz_tokenizer_id(const lz_tokenizer *t, const char *token) {
    return t && token ? lz_bpe_find(&t->bpe, token, strlen(token), "", 0) : -1;
}

int64_t lz_tokenizer_pad(const lz_tokenizer *t) { return t ? t->pad : -1; }
bool lz_tokenizer_pads_left(const lz_tokenizer *t) { return t && t->pads_left; }

void lz_tokenizer_free(lz_tokenizer *t) {
    if (!t) return;
    lz_bpe_free(&t->bpe);
    lz_splitter_free(t->splitter);
    lz_host_free(t->ctx, t->added);
    lz_host_free(t->ctx, t);
}
