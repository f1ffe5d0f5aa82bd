/* split.c: see split.h. utf8proc has the Unicode data, PCRE2 matches patterns. Pitfalls:
 *
 *   - utf8proc's normaliser sorts combining marks by insertion, which takes quadratic time for a long run of marks. So
 *     utf8proc decomposes character by character, runs are sorted here, and utf8proc composes again.
 *   - PCRE2 counts U+180E among \s; Unicode (since 6.3) and the library these patterns were written for do not. So \s
 *     is replaced by \p{White_Space} before compiling.
 *   - A pattern from a file may have an empty match, or take too long. After an empty match, the search goes on one
 *     character later; exceeding the limits is an error. */
#include "text/split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/file.h"

/* ---- UTF-8 and normal forms -------------------------------------------------------------------------------------- */

static const utf8proc_uint8_t *as_utf8(const char *text) { return (const utf8proc_uint8_t *)text; }

int64_t lz_utf8_error(const char *text, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
        if ((unsigned char)text[at] < 0x80) {
            at++;
            continue;
        }
        utf8proc_int32_t point;
        utf8proc_ssize_t n = utf8proc_iterate(as_utf8(text) + at, (utf8proc_ssize_t)(bytes - at), &point);
        if (n <= 0) return (int64_t)at;
        at += (size_t)n;
    }
    return -1;
}

static int combining_class(int32_t point) { return utf8proc_get_property(point)->combining_class; }

static int by_key(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Sorts a run of marks by class; the sort is stable. Keys: class, position, code point. */
static void sort_marks(int32_t *points, size_t n, uint64_t *keys) {
    for (size_t i = 0; i < n; i++)
        keys[i] = (uint64_t)combining_class(points[i]) << 56 | (uint64_t)i << 21 | (uint64_t)points[i];
    qsort(keys, n, sizeof *keys, by_key);
    for (size_t i = 0; i < n; i++) points[i] = (int32_t)(keys[i] & 0x1fffff);
}

static void order_marks(int32_t *points, size_t n, uint64_t *keys) {
    for (size_t begin = 0; begin < n;) {
        size_t end = begin;
        while (end < n && combining_class(points[end]) != 0) end++;
        if (end - begin > 1) sort_marks(points + begin, end - begin, keys);
        begin = end + 1;
    }
}

lz_status lz_nfc(lz_context *ctx, const char *text, size_t bytes, const char **out, size_t *n, lz_error *err) {
    *out = text;
    *n = bytes;
    size_t ascii = 0;
    while (ascii < bytes && (unsigned char)text[ascii] < 0x80) ascii++;
    if (ascii == bytes) return LZ_OK;

    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    utf8proc_ssize_t count = utf8proc_decompose(as_utf8(text), (utf8proc_ssize_t)bytes, NULL, 0, options);
    /* For each code point: a key, or the code point, or its UTF-8; and a zero byte. */
    size_t memory = (size_t)count * sizeof(uint64_t) + 1;
    int32_t *points = count < 0 ? NULL : lz_host_alloc(ctx, memory);
    uint64_t *keys = points ? lz_host_alloc(ctx, memory) : NULL;
    if (!keys) {
        lz_host_free(ctx, points);
        return lz_out_of_memory(err, (int64_t)memory);
    }
    size_t filled = 0;
    int boundary = 0; /* of grapheme clusters; not used, but the function requires it */
    for (size_t at = 0; at < bytes;) {
        utf8proc_int32_t point;
        at += (size_t)utf8proc_iterate(as_utf8(text) + at, (utf8proc_ssize_t)(bytes - at), &point);
        filled += (size_t)utf8proc_decompose_char(point, points + filled, count - (utf8proc_ssize_t)filled, options,
                                                  &boundary);
    }
    order_marks(points, filled, keys);
    lz_host_free(ctx, keys);
    *n = (size_t)utf8proc_reencode(points, (utf8proc_ssize_t)filled, options); /* in place, as UTF-8 */
    *out = (const char *)points;
    return LZ_OK;
}

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

struct lz_splitter {
    lz_context *ctx;
    pcre2_code *code;
    pcre2_match_context *limits;
};

enum { PATTERN_LIMIT = 65536, HEAP_LIMIT_KIB = 65536 };

static void *pcre_allocate(size_t bytes, void *ctx) { return lz_host_alloc(ctx, bytes); }
static void pcre_release(void *memory, void *ctx) { lz_host_free(ctx, memory); }

static char *spell_white_space(lz_context *ctx, const char *pattern) {
    lz_text text = {.ctx = ctx};
    for (const char *c = pattern; *c; c++) {
        if (*c != '\\' || !c[1])
            lz_text_add(&text, "%c", *c);
        else if (*++c == 's' || *c == 'S')
            lz_text_add(&text, "\\%c{White_Space}", *c == 's' ? 'p' : 'P');
        else
            lz_text_add(&text, "\\%c", *c);
    }
    return lz_text_take(&text, NULL);
}

static bool compile(lz_splitter *s, const char *pattern, const char *path, lz_error *err) {
    pcre2_general_context *memory = pcre2_general_context_create(pcre_allocate, pcre_release, s->ctx);
    pcre2_compile_context *settings = memory ? pcre2_compile_context_create(memory) : NULL;
    s->limits = memory ? pcre2_match_context_create(memory) : NULL;
    char *spelled = spell_white_space(s->ctx, pattern);
    int why = PCRE2_ERROR_NOMEMORY;
    size_t place = 0;
    if (settings && s->limits && spelled) {
        pcre2_set_max_pattern_length(settings, PATTERN_LIMIT);
        pcre2_set_heap_limit(s->limits, HEAP_LIMIT_KIB);
        /* \C would split characters. */
        s->code = pcre2_compile((PCRE2_SPTR)spelled, PCRE2_ZERO_TERMINATED,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &why, &place, settings);
    }
    if (s->code) {
        pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE); /* if it fails, matching is slower */
    } else if (why == PCRE2_ERROR_NOMEMORY || why == PCRE2_ERROR_HEAP_FAILED) {
        lz_out_of_memory(err, 0);
    } else {
        char text[128];
        pcre2_get_error_message(why, (PCRE2_UCHAR *)text, sizeof text);
        lz_fail(err, LZ_BAD_FILE, "%s: the pattern that splits words cannot be used: %s", LZ_SHOW_TEXT(path), text);
    }
    lz_host_free(s->ctx, spelled);
    pcre2_compile_context_free(settings);
    pcre2_general_context_free(memory);
    return s->code;
}

lz_splitter *lz_splitter_new(lz_context *ctx, const char *pattern, const char *path, lz_error *err) {
    lz_splitter *s = lz_host_alloc(ctx, sizeof *s);
    if (!s) {
        lz_out_of_memory(err, sizeof *s);
        return NULL;
    }
    s->ctx = ctx;
    if (compile(s, pattern, path, err)) return s;
    lz_splitter_free(s);
    return NULL;
}

void lz_splitter_free(lz_splitter *s) {
    if (!s) return;
    pcre2_code_free(s->code);
    pcre2_match_context_free(s->limits);
    lz_host_free(s->ctx, s);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

lz_status lz_words_begin(lz_words *words, const lz_splitter *s, const char *text, size_t bytes, lz_error *err) {
    *words = (lz_words){.splitter = s, .text = text, .bytes = bytes};
    words->match = pcre2_match_data_create_from_pattern(s->code, NULL);
    return words->match ? LZ_OK : lz_out_of_memory(err, 0);
}

void lz_words_end(lz_words *words) { pcre2_match_data_free(words->match); }

/* Finds the next match at or after w->look; *begin is the end of the text if there is none. */
static lz_status find_match(lz_words *w, size_t *begin, size_t *end, lz_error *err) {
    *begin = *end = w->bytes;
    if (w->look >= w->bytes) return LZ_OK;
    const lz_splitter *s = w->splitter;
    PCRE2_SPTR text = (PCRE2_SPTR)w->text;
    int got = pcre2_match(s->code, text, w->bytes, w->look, PCRE2_NO_UTF_CHECK, w->match, s->limits);
    if (got == PCRE2_ERROR_JIT_STACKLIMIT)
        got = pcre2_match(s->code, text, w->bytes, w->look, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, w->match, s->limits);
    if (got == PCRE2_ERROR_NOMATCH) return LZ_OK;
    if (got == PCRE2_ERROR_NOMEMORY) return lz_out_of_memory(err, 0);
    const size_t *found = pcre2_get_ovector_pointer(w->match);
    if (got < 0 || found[0] < w->look || found[1] < found[0])
        return lz_fail(err, LZ_BAD_FILE, "the tokenizer's pattern cannot split this prompt (PCRE2 error %d)", got);
    *begin = found[0];
    *end = found[1];
    return LZ_OK;
}

static size_t next_character(const lz_words *w, size_t at) {
    do at++;
    while (at < w->bytes && ((unsigned char)w->text[at] & 0xc0) == 0x80);
    return at;
}

lz_status lz_words_next(lz_words *w, const char **word, size_t *n, lz_error *err) {
    size_t begin = w->done, end = w->match_end;
    while (end <= w->done && w->done < w->bytes) {
        size_t match_begin, match_end;
        lz_status status = find_match(w, &match_begin, &match_end, err);
        if (status != LZ_OK) return status;
        bool empty = match_end == match_begin;
        w->look = empty ? next_character(w, match_end) : match_end;
        w->match_end = match_end;
        end = match_begin > w->done ? match_begin : match_end;
    }
    *word = w->text + begin;
    *n = w->done < w->bytes ? end - begin : 0;
    w->done += *n;
    return LZ_OK;
}
