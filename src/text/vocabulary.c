/* vocabulary.c: the list of words that a model knows. A line of the file is
 *
 *     KNOWN, KNOWN, ... = WORD, WORD, ... ~ WORD, WORD, ...        (and # begins a comment)
 *
 * A WORD after = is replaced by the first KNOWN, or removed if the line has no KNOWN. A WORD after ~ is not replaced,
 * but KNOWN is suggested if a prompt contains it. Each entry may be a phrase of several words. A prompt is split into
 * words, and from left to right the longest phrase that begins at a word is used, so "hot dog" is not hot. A prompt of
 * known words is unchanged. A line "= *" removes the words that are in no line, and with them what refers to them: "big ..."
 * refers to what comes after it, "... style" to what comes directly before it, and "... in ..." joins two. So "a fox in the
 * big harbour on red" becomes "a fox on red". If only words remain that refer to others, the unknown words stay. A line
 * A plural without a number, article or "some" gets "some" if that is in the list: models that were trained with "two dogs" and
 * "some dogs" do not know "dogs" alone. The result is in lower case (ASCII). A line
 * "= without ..." removes the word and the phrase after it: "a cat without a hat" becomes "a cat". Each emoji
 * is a word of its own, also without spaces around it. Marks that only change how
 * it looks (U+FE0F and U+FE0E ask for its coloured or plain form, U+1F3FB to U+1F3FF for a tone of the skin) are ignored. Emoji that follow
 * each other and are replaced become "fox and dog", and equal ones "two foxes", with the second KNOWN of the line.
 *
 * All phrases are in one sorted array. Limits: a file of 1 MiB; phrases of 8 words and 127 bytes (longer ones are
 * ignored); an unknown word is reported with its first 39 bytes. */
#include "text/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "text/split.h"

enum { MOST_BYTES = 1 << 20, MOST_WORDS = 8, PHRASE = 128, NEAREST = 3, TOLD = 3 };

typedef enum lz_meaning { KNOWN, READ_AS, NEAR } lz_meaning;

typedef struct lz_phrase {
    const char *text;   /* in lower case, words separated by one space */
    const char *target; /* the first KNOWN of its line, or "" */
    const char *plural; /* the second one; if there is none, the first */
    lz_meaning meaning;
    bool needs_after;  /* it refers to a phrase after it: "big ..." */
    bool needs_before; /* it refers to a phrase before it: "... style"; both: it joins two, "... in ..." */
    bool drops;        /* it is removed with the phrase after it: "without ..." */
} lz_phrase;

struct lz_vocabulary {
    lz_context *ctx;
    char *text;   /* contents of the file */
    char *normal; /* the phrases, each ended by a zero byte */
    lz_phrase *phrases;
    size_t n;
    bool omits; /* unknown words are removed from prompts */
};

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* Only ASCII is converted to lower case. */
static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static bool in_word(char c) {
    return (unsigned char)c >= 0x80 || (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z') || c == '-' ||
           c == '\'';
}

/* A range of text; begin == end: empty. */
typedef struct span {
    const char *begin, *end;
} span;

static bool begins_with(const char *at, const char *end, const char *bytes) {
    size_t n = strlen(bytes);
    return (size_t)(end - at) >= n && memcmp(at, bytes, n) == 0;
}

/* Bytes of a mark that only changes how the emoji before it looks; 0: there is none. */
static int mark_bytes(const char *at, const char *end) {
    if (begins_with(at, end, "\xef\xb8\x8f") || begins_with(at, end, "\xef\xb8\x8e")) return 3; /* U+FE0F, U+FE0E */
    return begins_with(at, end, "\xf0\x9f\x8f") && end - at > 3 && (unsigned char)at[3] >= 0xbb ? 4 : 0; /* a tone */
}

/* Bytes of a character that is an emoji or another sign, U+2190 to U+2BFF or U+1F000 to U+1FFFF; 0: it is none. */
static int sign_bytes(const char *at, const char *end) {
    if (begins_with(at, end, "\xf0\x9f") && end - at > 3) return 4;
    return end - at > 2 && at[0] == '\xe2' && (unsigned char)at[1] >= 0x86 && (unsigned char)at[1] <= 0xaf ? 3 : 0;
}

/* The end of the emoji that begins with a sign of n bytes: marks, U+20E3, and signs that U+200D joins to it. */
static const char *end_of_sign(const char *at, int n, const char *end) {
    for (at += n;; at += n) {
        static const char joiner[] = "\xe2\x80\x8d", key[] = "\xe2\x83\xa3";
        n = begins_with(at, end, key) ? 3 : mark_bytes(at, end);
        if (!n && begins_with(at, end, joiner) && (n = sign_bytes(at + 3, end))) n += 3;
        if (!n) return at;
    }
}

/* Bytes of a blank or a sign of punctuation that is not ASCII: U+00A0, U+2010 to U+2027 (dashes, quotes); 0: it is none. */
static int dash_bytes(const char *at, const char *end) {
    if (begins_with(at, end, "\xc2\xa0")) return 2;
    return begins_with(at, end, "\xe2\x80") && end - at > 2 && (unsigned char)at[2] >= 0x90 &&
                   (unsigned char)at[2] <= 0xa7
               ? 3
               : 0;
}

/* Bytes of an apostrophe or a hyphen, which belong to a word only inside of it; 0: it is none. */
static int inner_bytes(const char *at, const char *end) {
    if (at < end && (*at == '\'' || *at == '-')) return 1;
    return begins_with(at, end, "\xe2\x80\x99") ? 3 : 0; /* U+2019 */
}

/* The next emoji or run of letters, digits, apostrophes and hyphens. A word does not begin with a mark. */
static span next_word(const char *at, const char *end) {
    for (int n; at < end && ((n = mark_bytes(at, end)) || (n = dash_bytes(at, end)) || (n = inner_bytes(at, end)) ||
                             !in_word(*at));)
        at += n ? n : 1;
    int sign = sign_bytes(at, end);
    span w = {at, sign ? end_of_sign(at, sign, end) : at};
    for (const char *c = at; !sign && c < end && in_word(*c) && !sign_bytes(c, end);) {
        int inner = inner_bytes(c, end);
        if (!inner && dash_bytes(c, end)) break;
        c += inner ? inner : 1;
        if (!inner) w.end = c; /* so that it does not end with an apostrophe */
    }
    return w;
}

/* Writes a word as phrases have it: in lower case, and without marks. Returns the end of what is written. */
static char *write_normal(span word, char *to) {
    for (const char *c = word.begin; c < word.end;) {
        int mark = mark_bytes(c, word.end);
        if (!mark) *to++ = lower(*c);
        c += mark ? mark : 1;
    }
    return to;
}

static bool only_spaces(const char *at, const char *end) {
    while (at < end && strchr(" \t\n\r", *at)) at++;
    return at == end;
}

/* Blanks, and quotation marks, which some names have: japanese “here” button */
static bool only_quotes(const char *at, const char *end) {
    while (at < end &&
           (strchr(" \t\n\r", *at) || begins_with(at, end, "\xe2\x80\x9c") || begins_with(at, end, "\xe2\x80\x9d")))
        at += (unsigned char)*at >= 0x80 ? 3 : 1;
    return at == end;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b) {
    const lz_phrase *p = a, *q = b;
    int order = strcmp(p->text, q->text);
    if (!order) order = (int)p->meaning - (int)q->meaning;
    if (!order) order = p->text < q->text ? -1 : p->text > q->text; /* the order of the file */
    return order;
}

/* Adds the phrases of a line. normal: memory for twice the bytes of the line, since emoji without spaces between them get
 * some; returns the end of what is used. */
static char *add_line(lz_vocabulary *w, const char *at, const char *end, char *normal) {
    const char *target = "", *plural = "", *comment = memchr(at, '#', (size_t)(end - at));
    lz_meaning meaning = KNOWN;
    if (comment) end = comment;
    while (at < end) {
        const char *stop = at;
        while (stop < end && !strchr(",=~", *stop)) stop++;
        char *text = normal;
        for (span word = next_word(at, stop); word.begin < word.end; word = next_word(word.end, stop)) {
            if (normal > text) *normal++ = ' ';
            normal = write_normal(word, normal);
        }
        const char *first = at, *last = stop; /* without the blanks */
        while (first < last && strchr(" \t\r", *first)) first++;
        while (last > first && strchr(" \t\r", last[-1])) last--;
        bool named = meaning == KNOWN || *target;
        bool dots_after = last - first > 3 && memcmp(last - 3, "...", 3) == 0;
        bool needs_after = named && dots_after;
        bool needs_before = named && last - first > 3 && memcmp(first, "...", 3) == 0;
        bool drops = !named && dots_after && meaning == READ_AS;
        if (!named && meaning == READ_AS && last - first == 1 && *first == '*') w->omits = true;
        if (normal - text >= PHRASE)
            normal = text;
        else if (normal > text) {
            *normal++ = 0;
            if (meaning == KNOWN && *target && plural == target) plural = text;
            if (meaning == KNOWN && !*target) target = plural = text;
            w->phrases[w->n++] = (lz_phrase){text, target, plural, meaning, needs_after, needs_before, drops};
        }
        if (stop < end && *stop != ',') meaning = *stop == '=' ? READ_AS : NEAR;
        at = stop < end ? stop + 1 : end;
    }
    return normal;
}

static lz_status check_bytes(const char *path, const lz_mapping *map, lz_error *err) {
    if (map->bytes > MOST_BYTES)
        return lz_fail(err, LZ_BAD_FILE, "%s: a list of words has at most %d bytes, and this has %lld",
                       LZ_SHOW_TEXT(path), MOST_BYTES, (long long)map->bytes);
    bool plain = lz_utf8_error(map->data, (size_t)map->bytes) < 0;
    for (int64_t i = 0; plain && i < map->bytes; i++)
        plain = memchr("\n\r\t", map->data[i], 3) || ((unsigned char)map->data[i] >= 32 && map->data[i] != 127);
    return plain ? LZ_OK
                 : lz_fail(err, LZ_BAD_FILE, "%s: a list of words must be plain UTF-8 text", LZ_SHOW_TEXT(path));
}

static lz_vocabulary *read_words(lz_context *ctx, const lz_mapping *map, lz_error *err) {
    size_t bytes = (size_t)map->bytes, phrases = 1;
    for (size_t i = 0; i < bytes; i++) phrases += strchr(",=~\n", map->data[i]) != NULL;
    lz_vocabulary *w = lz_host_alloc(ctx, sizeof *w);
    if (w) {
        w->ctx = ctx;
        w->text = lz_host_alloc(ctx, bytes + 1);
        w->normal = lz_host_alloc(ctx, 2 * bytes + 1);
        w->phrases = lz_host_alloc(ctx, phrases * sizeof *w->phrases);
    }
    if (!w || !w->text || !w->normal || !w->phrases) {
        lz_vocabulary_close(w);
        lz_out_of_memory(err, (int64_t)(phrases * sizeof *w->phrases));
        return NULL;
    }
    memcpy(w->text, map->data, bytes);
    char *normal = w->normal;
    for (const char *at = w->text, *end = at + bytes, *stop; at < end; at = stop < end ? stop + 1 : end) {
        stop = memchr(at, '\n', (size_t)(end - at));
        if (!stop) stop = end;
        normal = add_line(w, at, stop, normal);
    }
    qsort(w->phrases, w->n, sizeof *w->phrases, compare);
    return w;
}

lz_vocabulary *lz_vocabulary_open(lz_context *ctx, const char *path, lz_error *err) {
    lz_mapping *map = lz_map_file(ctx, path, err);
    if (!map) return NULL;
    lz_vocabulary *w = check_bytes(path, map, err) == LZ_OK ? read_words(ctx, map, err) : NULL;
    lz_mapping_release(map);
    return w;
}

void lz_vocabulary_close(lz_vocabulary *w) {
    if (!w) return;
    lz_host_free(w->ctx, w->text);
    lz_host_free(w->ctx, w->normal);
    lz_host_free(w->ctx, w->phrases);
    lz_host_free(w->ctx, w);
}

const char *lz_vocabulary_text(const lz_vocabulary *w) { return w->text; }

/* ---- reading a prompt -------------------------------------------------------------------------------------------- */

/* The phrase with this text that is KNOWN or READ_AS; NULL: none. */
static const lz_phrase *find(const lz_vocabulary *w, const char *text) {
    size_t low = 0, high = w->n;
    while (low < high) { /* finds the first entry, which has the lowest meaning */
        size_t middle = low + (high - low) / 2;
        if (strcmp(w->phrases[middle].text, text) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const lz_phrase *p = &w->phrases[low];
    return low < w->n && p->meaning != NEAR && strcmp(p->text, text) == 0 ? p : NULL;
}

/* A part of a prompt: a phrase, or one unknown word (phrase is NULL). begin == end: the end of the prompt. */
typedef struct piece {
    const char *begin, *end;
    const lz_phrase *phrase;
} piece;

/* The phrase of a word that is not in the list: of "fox's" and "ice-cream" those of "fox" and "ice cream"; NULL: none */
static const lz_phrase *find_similar(const lz_vocabulary *w, span word) {
    static const char *const endings[] = {"'s", "\xe2\x80\x99s"};
    char key[PHRASE];
    if ((size_t)(word.end - word.begin) >= sizeof key) return NULL;
    char *last = write_normal(word, key);
    *last = 0;
    for (char *c = key; *c; c++)
        if (*c == '-') *c = ' ';
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(endings[i]);
        if ((size_t)(last - key) > n && memcmp(last - n, endings[i], n) == 0) *(last -= n) = 0;
    }
    return find(w, key);
}

static piece next_piece(const lz_vocabulary *w, const char *at, const char *end) {
    char key[PHRASE];
    size_t used = 0;
    span word = next_word(at, end), first = word;
    piece p = {word.begin, word.end, NULL};
    for (int n = 0; n < MOST_WORDS && word.begin < word.end; n++) {
        size_t length = (size_t)(word.end - word.begin);
        if (used + (n > 0) + length + 1 > sizeof key) break;
        if (n) key[used++] = ' ';
        used = (size_t)(write_normal(word, key + used) - key);
        key[used] = 0;
        const lz_phrase *found = find(w, key);
        if (found) p = (piece){p.begin, word.end, found};
        span next = next_word(word.end, end);
        if (!only_quotes(word.end, next.begin)) break;
        word = next;
    }
    if (!p.phrase) p.phrase = find_similar(w, first);
    return p;
}

/* Writes to a buffer; if `to` is NULL, only counts. */
typedef struct output {
    char *to;
    size_t n;
    bool has_words;
    bool has_phrase; /* some of its words refer to no others */
} output;

static void put(output *o, const char *at, const char *end) {
    o->has_words = o->has_words || next_word(at, end).begin < end;
    for (; at < end; at++, o->n++)
        if (o->to) o->to[o->n] = lower(*at); /* the list is in lower case, and so is what the model was trained with */
}

static void put_text(output *o, const char *text) { put(o, text, text + strlen(text)); }

/* Writes the words for an emoji and the equal ones after it. Returns the last of them. */
static piece put_signs(output *o, const lz_vocabulary *w, piece p, const char *end) {
    static const char *const numbers[] = {"two ", "three ", "four ", "five ", "six "};
    enum { MOST = sizeof numbers / sizeof *numbers + 1 };
    int n = 1;
    for (piece next = next_piece(w, p.end, end); next.phrase == p.phrase && only_spaces(p.end, next.begin);
         next = next_piece(w, p.end, end), n++)
        p = next;
    if (n > 1 && n <= MOST) put_text(o, numbers[n - 2]);
    put_text(o, n > 1 ? p.phrase->plural : p.phrase->target);
    return p;
}

/* Is the piece removed, whatever comes before and after it? */
static bool is_lost(const lz_vocabulary *w, piece p) {
    return p.phrase ? p.phrase->meaning == READ_AS && !*p.phrase->target : w->omits;
}

static bool needs_after(piece p) { return p.phrase && p.phrase->needs_after; }
static bool drops(piece p) { return p.phrase && p.phrase->drops; }
static bool joins(piece p) { return needs_after(p) && p.phrase->needs_before; }
static bool ends_phrase(piece p) { return p.phrase && p.phrase->needs_before && !p.phrase->needs_after; } /* "style" */

/* Pieces that follow each other, from one that needs a phrase after it to that phrase: "in the [quiet] big" of "in the
 * quiet big house". Those of them that are not lost anyway all stay, or none does. */
typedef struct run {
    const char *end; /* the search ended here */
    bool stays;
    bool found; /* the phrase */
} run;

/* Reads the run that begins at p. The run is removed if it contains lost words and no phrase follows it: it is followed by
 * the end of the prompt, by punctuation, or by another piece that joins. */
static run read_run(const lz_vocabulary *w, piece p, const char *end) {
    run r = {.end = p.end};
    bool lost = false;
    for (piece next;; p = next) {
        next = next_piece(w, p.end, end);
        r.end = p.end;
        if (next.begin == next.end || !only_spaces(p.end, next.begin)) break;
        lost = lost || drops(next);
        if (drops(next)) break;
        bool gone = is_lost(w, next) || (lost && ends_phrase(next));
        if (!gone && !needs_after(next)) r.found = true;
        if (r.found || (lost && !gone && joins(next))) break;
        lost = lost || gone;
    }
    r.stays = r.found || !lost || !w->omits;
    return r;
}

/* Is it a plural of the list, the second KNOWN of a line, or a word that is read as one? */
static bool is_plural(const lz_vocabulary *w, piece p) {
    if (!p.phrase || p.phrase->meaning == NEAR) return false;
    const lz_phrase *known = find(w, p.phrase->meaning == READ_AS ? p.phrase->target : p.phrase->text);
    return known && known->plural != known->target && strcmp(known->plural, known->text) == 0;
}

/* Is p the first of the words that end in a plural, none of which says how many? */
static bool lacks_number(const lz_vocabulary *w, piece p, const char *end) {
    static const char *const counts[] = {"a",     "an",   "the",  "some",      "one",         "two",
                                         "three", "four", "five", "six",       "2",           "3",
                                         "4",     "5",    "6",    "a pair of", "a couple of", "half a dozen"};
    for (int n = 0; n < MOST_WORDS && p.begin < p.end; n++) {
        if (is_plural(w, p)) return true;
        if (p.phrase && !needs_after(p) && !is_lost(w, p)) return false;
        if (joins(p)) return false;
        for (size_t i = 0; p.phrase && i < sizeof counts / sizeof *counts; i++)
            if (strcmp(p.phrase->meaning == READ_AS ? p.phrase->target : p.phrase->text, counts[i]) == 0) return false;
        piece next = next_piece(w, p.end, end);
        if (!only_spaces(p.end, next.begin)) return false;
        p = next;
    }
    return false;
}

/* The end of what a piece removes after it: "a big hat" of "without a big hat on red". */
static const char *end_of_dropped(const lz_vocabulary *w, piece p, const char *end) {
    run r = read_run(w, p, end);
    return r.found ? next_piece(w, r.end, end).end : r.end;
}

/* The state of rewrite. A removed word is removed with the separator before it; at the start of the prompt, with the one
 * after it. */
typedef struct rewriting {
    output o;
    const char *copied; /* the prompt up to here is written or removed */
    span comma;  /* a removed separator with a comma, which is written if only blanks precede the next word; or empty */
    bool sign;   /* the last piece that stays is an emoji, and is replaced */
    bool phrase; /* the last piece that stays needs nothing after it */
    bool gap;    /* pieces were removed after it */
} rewriting;

static void remove_piece(rewriting *r, const char *before, piece p, const char *end) {
    put(&r->o, r->copied, before);
    if (r->o.has_words && !r->comma.begin && memchr(before, ',', (size_t)(p.begin - before)))
        r->comma = (span){before, p.begin};
    /* Words that only the removed sign kept apart, as in "fox[sign]dog", get a blank. */
    bool glued = before == p.begin && p.end < end && in_word(*p.end) && !sign_bytes(p.end, end) && r->o.n;
    if (glued) put_text(&r->o, " ");
    r->copied = r->o.has_words ? p.end : next_word(p.end, end).begin;
    r->gap = true;
}

/* Writes what belongs between the last piece that stays and this one, if words between them were removed. */
static void join_pieces(rewriting *r, piece p, bool starts_run) {
    if (r->comma.begin && only_spaces(r->copied, p.begin)) {
        put(&r->o, r->comma.begin, r->comma.end);
        r->copied = p.begin;
    } else if (r->phrase && starts_run && only_spaces(r->copied, p.begin)) /* "a dog [chasing] a cat" */
        put_text(&r->o, " and");
}

static output rewrite(const lz_vocabulary *w, const char *prompt, char *to) {
    const char *end = prompt + strlen(prompt), *before = prompt;
    rewriting r = {.o = {.to = to}, .copied = prompt};
    const lz_phrase *said = find(w, "some");
    bool some = said && said->meaning == KNOWN && said->needs_after;
    bool counted = false;         /* the last piece that stays says something of the next ones */
    const char *dropped = prompt; /* pieces that begin before it are removed */
    run needed = {prompt, true, true};
    for (piece p = next_piece(w, prompt, end); p.begin < p.end; p = next_piece(w, p.end, end)) {
        if (drops(p) && p.begin >= dropped) dropped = end_of_dropped(w, p, end);
        bool starts = needs_after(p) && p.begin >= needed.end && p.begin >= dropped;
        if (starts) needed = read_run(w, p, end);
        bool lost = is_lost(w, p) || p.begin < dropped || (needs_after(p) && !needed.stays);
        /* "style" is removed after a removed word, and "and" if all words before it were removed. */
        lost = lost || (w->omits && r.gap && ends_phrase(p) && only_spaces(r.copied, p.begin));
        lost = lost || (w->omits && r.gap && joins(p) && !r.o.has_words);
        bool replaced = p.phrase && p.phrase->meaning == READ_AS;
        if (lost) {
            remove_piece(&r, before, p, end);
        } else {
            bool sign = replaced && sign_bytes(p.begin, end), after_sign = r.sign && only_spaces(before, p.begin);
            bool number = some && !counted && !sign && lacks_number(w, p, end);
            counted = needs_after(p) && !joins(p); /* the next words belong to these */
            if (r.gap && w->omits && !(after_sign && sign)) join_pieces(&r, p, starts && needed.found && !joins(p));
            if (after_sign && sign)
                put_text(&r.o, " and ");
            else if (replaced || number) {
                put(&r.o, r.copied, p.begin);
                r.copied = p.begin;
            }
            if (number) put_text(&r.o, "some ");
            if (sign && !after_sign && r.o.n && in_word(p.begin[-1])) put_text(&r.o, " ");
            if (sign)
                p = put_signs(&r.o, w, p, end);
            else if (replaced)
                put_text(&r.o, p.phrase->target);
            if (sign && p.end < end && in_word(*p.end) && !sign_bytes(p.end, end)) put_text(&r.o, " ");
            if (replaced) r.copied = p.end;
            r.sign = sign;
            r.phrase = !needs_after(p);
            r.o.has_phrase = r.o.has_phrase || (p.phrase && !p.phrase->needs_after && !p.phrase->needs_before);
            r.gap = false;
            r.comma = (span){NULL, NULL};
        }
        before = r.copied > p.end ? r.copied : p.end;
    }
    put(&r.o, r.copied, end);
    return r.o;
}

char *lz_vocabulary_read(const lz_vocabulary *w, const char *prompt, lz_error *err) {
    lz_vocabulary plain = *w;
    plain.omits = false;
    output o = rewrite(w, prompt, NULL);
    if (!o.has_phrase && w->omits) o = rewrite(w = &plain, prompt, NULL); /* unknown words are better than none */
    if (!o.has_words) return NULL; /* all words would be removed: keep the prompt */
    char *to = lz_host_alloc(w->ctx, o.n + 1);
    if (!to) {
        lz_out_of_memory(err, (int64_t)o.n);
        return NULL;
    }
    rewrite(w, prompt, to);
    if (strcmp(to, prompt) != 0) return to;
    lz_host_free(w->ctx, to);
    return NULL;
}

/* ---- what is unknown --------------------------------------------------------------------------------------------- */

static bool is_ascii(const char *text) {
    while (*text && (unsigned char)*text < 0x80) text++;
    return !*text;
}

/* Do the words differ by one letter that is changed, added or missing, or by two swapped letters? For ASCII: other
 * characters have several bytes, and those that differ by one of these are not similar. */
static bool one_slip(const char *a, const char *b) {
    size_t same = 0, n = strlen(a), m = strlen(b);
    while (a[same] && a[same] == b[same]) same++;
    a += same;
    b += same;
    if (n == m) return *a && (!strcmp(a + 1, b + 1) || (a[0] == b[1] && a[1] == b[0] && !strcmp(a + 2, b + 2)));
    return n == m + 1 ? !strcmp(a + 1, b) : m == n + 1 && !strcmp(a, b + 1);
}

static bool has_word(const char *phrase, const char *word) {
    size_t length = strlen(word);
    for (const char *at = phrase; (at = strstr(at, word)); at++)
        if ((at == phrase || at[-1] == ' ') && (!at[length] || at[length] == ' ')) return true;
    return false;
}

/* The distance of a phrase from a word: 0 is the smallest; FAR: not similar. */
enum { FAR = 3 };
static int how_far(const lz_phrase *p, const char *word) {
    if (!*p->target || !*word) return FAR;
    if (p->meaning == NEAR) return strcmp(p->text, word) == 0 ? 1 : FAR;
    if (has_word(p->text, word)) return 0;
    return strlen(word) > 3 && is_ascii(word) && one_slip(p->text, word) ? 2 : FAR;
}

typedef struct nearest {
    const char *targets[NEAREST];
    int far[NEAREST], n;
} nearest;

/* Keeps the nearest targets; of equally near ones the shortest; each once. */
static void consider(nearest *best, const char *target, int far) {
    int position = best->n;
    for (int i = 0; i < best->n; i++)
        if (strcmp(best->targets[i], target) == 0) return;
    while (position > 0 && (far < best->far[position - 1] ||
                            (far == best->far[position - 1] && strlen(target) < strlen(best->targets[position - 1]))))
        position--;
    if (position == NEAREST) return;
    if (best->n < NEAREST) best->n++;
    for (int i = best->n - 1; i > position; i--) {
        best->targets[i] = best->targets[i - 1];
        best->far[i] = best->far[i - 1];
    }
    best->targets[position] = target;
    best->far[position] = far;
}

static nearest look_around(const lz_vocabulary *w, char *word) {
    nearest best = {.n = 0};
    for (int far = 0; far < FAR; far++) /* the smallest distance of a target comes first */
        for (size_t i = 0; i < w->n; i++)
            if (how_far(&w->phrases[i], word) == far) consider(&best, w->phrases[i].target, far);
    size_t length = strlen(word);
    if (best.n || length < 4 || word[length - 1] != 's') return best;
    word[length - 1] = 0;
    best = look_around(w, word);
    word[length - 1] = 's';
    return best;
}

__attribute__((format(printf, 3, 4))) static void say(char *to, size_t bytes, const char *format, ...) {
    size_t used = strlen(to);
    va_list args;
    va_start(args, format);
    vsnprintf(to + used, bytes - used, format, args);
    va_end(args);
    int64_t good = lz_utf8_error(to, strlen(to)); /* start of a character that was cut off */
    if (good >= 0) to[good] = 0;
}

void lz_vocabulary_unknown(const lz_vocabulary *w, const char *prompt, char *to, size_t bytes) {
    const char *end = prompt + strlen(prompt);
    int n = 0;
    to[0] = 0;
    for (piece p = next_piece(w, prompt, end); p.begin < p.end; p = next_piece(w, p.end, end)) {
        char word[40] = "", normal[PHRASE];
        if (p.phrase || n++ >= TOLD) continue;
        span first = {p.begin, p.end - p.begin < PHRASE ? p.end : p.begin + PHRASE - 1};
        *write_normal(first, normal) = 0;
        say(word, sizeof word, "%s", normal);
        nearest best = look_around(w, word);
        say(to, bytes, "%s\"%s\"", n == 1 ? "this model does not know " : ", ", word);
        for (int i = 0; i < best.n; i++) say(to, bytes, "%s\"%s\"", i ? ", " : " (it knows ", best.targets[i]);
        if (best.n) say(to, bytes, ")");
    }
    if (n > TOLD) say(to, bytes, " and %d more", n - TOLD);
}
