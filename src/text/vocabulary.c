/* vocabulary.c: the list of words that a model knows. A line of the file is
 *
 *     KNOWN, KNOWN, ... = WORD, WORD, ... ~ WORD, WORD, ...        (and # begins a comment)
 *
 * A WORD after = is replaced by the first KNOWN, or removed if the line has no KNOWN. A WORD after ~ is not replaced,
 * but KNOWN is suggested if a prompt contains it. Each entry may be a phrase of several words. A prompt is split into
 * pieces: from left to right the longest phrase that begins at a word, so "hot dog" is not hot, or a word that is in no
 * line. The result is in lower case (ASCII). These lines have a meaning of their own:
 *
 *   "fox, foxes"      The second KNOWN without "..." is the plural, which may be the same word.
 *   "big ..."         This refers to what comes after it, "... style" to what comes directly before it, and
 *                     "... in ..." joins two.
 *   "= *"             Removes the words that are in no line, and what refers to them: "a fox in the big harbour on red"
 *                     becomes "a fox on red". If only words remain that refer to others, the unknown words stay.
 *   "= without ..."   Removes the phrase after it, too: "a cat without a big hat" becomes "a cat". After "= ... or ..." more
 *                     is removed: "without a hat or a ball".
 *   "three ..., a ..., two ... = ..."   These say how many. A plural without one of them gets the first: models that
 *                     were trained with "two dogs" do not know "dogs" alone. Words that are read as one of them, such
 *                     as "several ...", are read so only before a plural, and removed before another number.
 *   "... on ...", and in another line "... above ... = ... on ..."      Before a thing, which is a KNOWN that has a
 *                     plural, it is replaced: "a cat on a chair" becomes "a cat above a chair"; "on red" stays.
 *
 * If unknown words are removed, things that would be drawn as one are told apart: "a cat, a dog" becomes "a cat and a
 * dog", and of "a school bus" only the bus stays. "a" becomes "an" if the word after it changes, and the reverse.
 *
 * Each emoji is a word of its own, also without spaces around it. Marks that only change how it looks (U+FE0F and U+FE0E
 * ask for its coloured or plain form, U+1F3FB to U+1F3FF for a tone of the skin) are ignored. Emoji that follow each
 * other and are replaced become "fox and dog", and equal ones "two foxes", at most six.
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
enum { ONE = 1, MANY = 2 }; /* of a KNOWN that has a plural, and of that plural */

typedef struct lz_phrase {
    const char *text;   /* in lower case, words separated by one space */
    const char *target; /* the first KNOWN of its line, or "" */
    const char *plural; /* the second one; if there is none, the first */
    lz_meaning meaning;
    int number;        /* ONE, MANY or both */
    bool needs_after;  /* it refers to a phrase after it: "big ..." */
    bool needs_before; /* it refers to a phrase before it: "... style"; both: it joins two, "... in ..." */
    bool counts;       /* it says how many: "two ..." */
    bool drops;        /* it is removed with the phrase after it: "without ..." */
    bool extends;      /* after something that was removed so, the same is done here: "... or ..." */
} lz_phrase;

struct lz_vocabulary {
    lz_context *ctx;
    char *text;   /* contents of the file */
    char *normal; /* the phrases, each ended by a zero byte */
    lz_phrase *phrases;
    size_t n;
    bool omits;       /* unknown words are removed from prompts */
    bool has_things;  /* some KNOWN have plurals */
    const char *some; /* what is written before a plural without a number; NULL: nothing */
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

/* Blanks and apostrophes: "cats' eyes" */
static bool only_apostrophes(const char *at, const char *end) {
    while (at < end && strchr(" \t\n\r'", *at)) at++;
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
    size_t begin = w->n;
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
        bool named = meaning == KNOWN || *target, nothing = !named && meaning == READ_AS;
        bool dots_after = last - first > 3 && memcmp(last - 3, "...", 3) == 0;
        bool dots_before = last - first > 3 && memcmp(first, "...", 3) == 0;
        if (nothing && last - first == 1 && *first == '*') w->omits = true;
        if (meaning == READ_AS && *target && last - first == 3 && memcmp(first, "...", 3) == 0) {
            for (size_t i = begin; i < w->n; i++) w->phrases[i].counts = true;
            w->some = target;
        }
        if (normal - text >= PHRASE)
            normal = text;
        else if (normal > text) {
            *normal++ = 0;
            bool second = meaning == KNOWN && w->n == begin + 1 && !dots_after && !dots_before;
            if (second) {
                w->phrases[begin].plural = plural = text;
                w->phrases[begin].number = ONE;
                w->has_things = true;
            }
            if (meaning == KNOWN && !*target) target = plural = text;
            w->phrases[w->n++] = (lz_phrase){.text = text,
                                             .target = target,
                                             .plural = plural,
                                             .meaning = meaning,
                                             .number = second ? MANY : 0,
                                             .needs_after = named && dots_after,
                                             .needs_before = named && dots_before,
                                             .drops = nothing && dots_after && !dots_before,
                                             .extends = nothing && dots_after && dots_before};
        }
        if (stop < end && *stop != ',') meaning = *stop == '=' ? READ_AS : NEAR;
        at = stop < end ? stop + 1 : end;
    }
    return normal;
}

/* Phrases that stand in the list more than once with the same meaning are one, unless they only lead to others. */
static void merge_equal(lz_vocabulary *w) {
    size_t n = 0;
    for (size_t i = 0; i < w->n; i++) {
        lz_phrase *p = &w->phrases[i], *last = n ? &w->phrases[n - 1] : NULL;
        bool same = last && strcmp(last->text, p->text) == 0;
        if (same) {
            last->number |= p->meaning == last->meaning ? p->number : 0;
            last->counts = last->counts || p->counts;
            last->extends = last->extends || p->extends;
        }
        if (!same || p->meaning == NEAR || p->meaning != last->meaning) w->phrases[n++] = *p;
    }
    w->n = n;
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
    merge_equal(w);
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

/* The first phrase with this text that is KNOWN or READ_AS; NULL: none. */
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
    int same;     /* how many equal emoji it is, without those that are written between them */
    bool negated; /* removed, whatever comes before and after it */
    bool removed; /* this, or removed for another reason */
    bool found;   /* it begins a run that ends with a phrase */
    bool some;    /* the number of plurals without a number is written before it */
    bool other;   /* another thing than the one before it: "and" is written between them */
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
    piece p = {.begin = word.begin, .end = word.end, .same = 1};
    for (int n = 0; n < MOST_WORDS && word.begin < word.end; n++) {
        size_t length = (size_t)(word.end - word.begin);
        if (used + (n > 0) + length + 1 > sizeof key) break;
        if (n) key[used++] = ' ';
        used = (size_t)(write_normal(word, key + used) - key);
        key[used] = 0;
        const lz_phrase *found = find(w, key);
        if (found) {
            p.end = word.end;
            p.phrase = found;
        }
        span next = next_word(word.end, end);
        if (!only_quotes(word.end, next.begin)) break;
        word = next;
    }
    if (!p.phrase) p.phrase = find_similar(w, first);
    return p;
}

/* What the list says of a piece. */
static bool replaced(const piece *p) { return p->phrase && p->phrase->meaning == READ_AS; }
static bool is_filler(const piece *p) { return p->phrase && p->phrase->meaning == READ_AS && !*p->phrase->target; }
static bool needs_after(const piece *p) { return p->phrase && p->phrase->needs_after; }
static bool needs_before(const piece *p) { return p->phrase && p->phrase->needs_before; }
static bool drops(const piece *p) { return p->phrase && p->phrase->drops; }
static bool joins(const piece *p) { return needs_after(p) && needs_before(p); }
static bool ends_phrase(const piece *p) { return needs_before(p) && !needs_after(p); } /* "style" */
static bool is_sign(const piece *p) { return sign_bytes(p->begin, p->end) > 0; }
static bool is_replaced_sign(const piece *p) { return replaced(p) && !is_filler(p) && is_sign(p); }
static bool only_spaces_before(const piece *p) { return only_spaces(p[-1].end, p->begin); }

/* The phrase that the model knows it by; NULL: none. */
static const lz_phrase *known(const lz_vocabulary *w, const piece *p) {
    return is_filler(p) || !replaced(p) ? p->phrase : find(w, p->phrase->target);
}

static int number_of(const lz_vocabulary *w, const piece *p) {
    const lz_phrase *k = known(w, p);
    return k ? k->number : 0;
}

/* The last word of what the model knows the piece by, if that is in the list: "the" of "make the"; NULL: it is not. */
static const lz_phrase *last_word(const lz_vocabulary *w, const piece *p) {
    const lz_phrase *k = known(w, p);
    const char *blank = k ? strrchr(k->text, ' ') : NULL;
    return blank ? find(w, blank + 1) : k;
}

/* Does it say how many: "two", "make the"? */
static bool counts(const lz_vocabulary *w, const piece *p) {
    const lz_phrase *last = last_word(w, p), *k = known(w, p);
    return needs_after(p) && !joins(p) && ((k && k->counts) || (last && last->counts));
}

/* "in", "picture of" */
static bool leads_to(const lz_vocabulary *w, const piece *p) {
    const lz_phrase *last = last_word(w, p);
    return joins(p) || (last && last->needs_before && last->needs_after && !counts(w, p));
}

/* "big", "red" */
static bool describes(const lz_vocabulary *w, const piece *p) {
    return needs_after(p) && !leads_to(w, p) && !counts(w, p);
}

/* Splits a prompt into pieces; to NULL: only counts them. The same emoji several times is one piece. */
static int split(const lz_vocabulary *w, const char *prompt, piece *to) {
    const char *end = prompt + strlen(prompt);
    piece last = {.same = 0};
    int n = 0;
    for (piece p = next_piece(w, prompt, end); p.begin < p.end; p = next_piece(w, p.end, end)) {
        if (n && is_replaced_sign(&p) && p.phrase == last.phrase && only_spaces(last.end, p.begin)) {
            last.end = p.end;
            last.same++;
        } else {
            last = p;
            n++;
        }
        if (to) to[n - 1] = last;
    }
    return n;
}

/* Removes negations and what they negate: from "without a big hat on red" all but "on red". It ends with a phrase, and
 * before punctuation and words that join, and goes on after "or". */
static void remove_negated(piece *p, int n) {
    for (int i = 0; i < n; i++) {
        int k = i + 1;
        bool found = false;
        if (!drops(&p[i])) continue;
        for (; k < n && only_spaces_before(&p[k]) && !drops(&p[k]) && !found; k++) {
            if (joins(&p[k]) && k > i + 1) break; /* but "not in a house" */
            found = p[k].phrase && !is_filler(&p[k]) && !needs_after(&p[k]);
        }
        while (k < n && is_sign(&p[k - 1]) && is_sign(&p[k]) && only_spaces_before(&p[k])) k++;
        bool more = k < n && only_spaces_before(&p[k]) && p[k].phrase && p[k].phrase->extends;
        for (int j = i; j < k + more; j++) p[j].negated = true;
        if (more && !drops(&p[k])) p[k].phrase = p[i].phrase;
        if (found || more) i = k - 1;
    }
}

/* A word that is read as a number ("several") is one only before a plural; before another number it is removed. */
static void check_numbers(const lz_vocabulary *w, piece *p, int n) {
    for (int i = 0; i < n; i++) {
        int k = i + 1;
        if (!replaced(&p[i]) || !counts(w, &p[i])) continue;
        while (k < n && only_spaces_before(&p[k]) &&
               (p[k].negated || is_filler(&p[k]) || !p[k].phrase || describes(w, &p[k])))
            k++;
        bool near = k < n && only_spaces_before(&p[k]);
        if (near && counts(w, &p[k]))
            p[i].negated = true;
        else if (!near || !(is_replaced_sign(&p[k]) || number_of(w, &p[k]) & MANY))
            p[i].phrase = NULL;
    }
}

static bool is_lost(const piece *p, bool omits) { return p->negated || is_filler(p) || (!p->phrase && omits); }

/* A run are pieces that follow each other, from one that needs a phrase after it to that phrase: "in the [quiet] big" of
 * "in the quiet big house". Those of them that are not lost all stay, or none does. Returns the number of its pieces, and
 * removes them if it has lost words and no phrase follows: it is followed by the end of the prompt, by punctuation, or by
 * another piece that joins. */
static int read_run(piece *p, int n, bool omits) {
    bool lost = false, found = false;
    int k = 1;
    for (; k < n && only_spaces_before(&p[k]); k++) {
        bool gone = is_lost(&p[k], omits) || (lost && ends_phrase(&p[k]));
        found = !gone && !needs_after(&p[k]);
        if (found || (lost && !gone && joins(&p[k]))) break;
        lost = lost || gone;
    }
    p->found = found;
    for (int i = 0; i < k && !found && lost && omits; i++) p[i].removed = true;
    return k;
}

/* Decides what is removed. omits: also unknown words, and what refers to them. Returns whether a phrase stays that refers
 * to no other. */
static bool remove_pieces(piece *p, int n, bool omits) {
    int run_ends = 0, kept = 0;
    bool any = false;
    for (int i = 0; i < n; i++) p[i].removed = p[i].found = false;
    for (int i = 0; i < n; i++) {
        if (needs_after(&p[i]) && i >= run_ends && !p[i].negated) run_ends = i + read_run(p + i, n - i, omits);
        bool after_gap = omits && i && p[i - 1].removed;
        p[i].removed = p[i].removed || is_lost(&p[i], omits);
        if (after_gap && ends_phrase(&p[i]) && only_spaces_before(&p[i])) p[i].removed = true; /* "[quiet] style" */
        if (after_gap && joins(&p[i]) && !kept) p[i].removed = true;                           /* "[quiet] and a dog" */
        kept += !p[i].removed;
        any = any || (!p[i].removed && p[i].phrase && !needs_after(&p[i]) && !needs_before(&p[i]));
    }
    return any;
}

/* Removes an article or number before another one, which removed words kept apart ("a [icon of] a cat"), or which is read
 * as a number ("a hundred cats"). */
static void remove_double_counts(const lz_vocabulary *w, piece *p, int n) {
    for (int i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && p[k].removed && only_spaces_before(&p[k]);) k++;
        if (p[i].removed || k == n || !only_spaces_before(&p[k]) || !counts(w, &p[i]) || !counts(w, &p[k])) continue;
        p[i].removed = k > i + 1 || replaced(&p[k]);
    }
}

/* Marks the begin of each "big red dogs" that has no number or article. Nothing is marked after a word that may belong to it
 * ("a dog's cats"). */
static void mark_plurals(const lz_vocabulary *w, piece *p, int n) {
    for (int i = 0; i < n && w->some; i++) {
        int first = i, before;
        if (p[i].removed || is_sign(&p[i]) || number_of(w, &p[i]) != MANY) continue;
        for (;; first = before) {
            const char *at = p[first].begin;
            for (before = first - 1; before >= 0 && p[before].removed && only_spaces(p[before].end, at); before--)
                at = p[before].begin;
            if (before >= 0 && !only_apostrophes(p[before].end, at)) before = -1;
            if (before < 0 || !describes(w, &p[before])) break;
        }
        p[first].some = before < 0 || leads_to(w, &p[before]);
    }
}

/* The piece of a thing that follows k after words that describe or count it; 0: none. */
static int thing_after(const lz_vocabulary *w, const piece *p, int k, int n) {
    int i = k + 1;
    while (i < n && only_spaces_before(&p[i]) && (p[i].removed || describes(w, &p[i]) || counts(w, &p[i]))) i++;
    return i < n && only_spaces_before(&p[i]) && number_of(w, &p[i]) ? i : 0;
}

/* Replaces what is known but is read as something else before a thing. */
static void read_before_things(const lz_vocabulary *w, piece *p, int n) {
    for (int i = 0; i < n; i++) {
        const lz_phrase *now = known(w, &p[i]), *next = now ? now + 1 : NULL;
        if (p[i].removed || !now || now->meaning != KNOWN || next == w->phrases + w->n || !*next->target) continue;
        if (next->meaning == READ_AS && !strcmp(next->text, now->text) && thing_after(w, p, i, n)) p[i].phrase = next;
    }
}

/* Is there only this between pieces i and k, and what was removed? *mark: it has other signs than blanks. */
static bool only_commas(const piece *p, int i, int k, bool *mark) {
    *mark = false;
    for (; i < k; i++)
        for (const char *c = p[i].end; c < p[i + 1].begin; c++) {
            if (!strchr(" \t\r\n,&+", *c)) return false;
            *mark = *mark || strchr(",&+", *c);
        }
    return true;
}

static bool has_apostrophe(const piece *p) {
    for (const char *c = p->begin; c < p->end; c++)
        if (inner_bytes(c, p->end) && *c != '-') return true;
    return false;
}

/* Tells things apart that follow each other without a word between them. */
static void part_things(const lz_vocabulary *w, piece *p, int n) {
    for (int i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && p[k].removed;) k++;
        bool mark, thing = !p[i].removed && number_of(w, &p[i]) && k < n;
        if (!thing || !only_commas(p, i, k, &mark) || (is_sign(&p[i]) && is_sign(&p[k]))) continue;
        bool begins = needs_after(&p[k]) && !leads_to(w, &p[k]);
        if (number_of(w, &p[k]) && !mark && k == i + 1)
            p[i].removed = number_of(w, &p[i]) & ONE && !has_apostrophe(&p[i]); /* "school bus" */
        else if (number_of(w, &p[k]) || (begins && thing_after(w, p, k, n)))
            p[k].other = true;
    }
}

/* Writes to a buffer; if `to` is NULL, only counts. */
typedef struct output {
    char *to;
    size_t n;
} output;

/* In lower case, as the list is, and what the model was trained with */
static void put(output *o, const char *at, const char *end) {
    for (; at < end; at++, o->n++)
        if (o->to) o->to[o->n] = lower(*at);
}

static void put_text(output *o, const char *text) { put(o, text, text + strlen(text)); }

/* Writes what is between piece k and the one before it that stays, which is `last`. Of the separators of removed pieces
 * the last one stays, or an earlier one with a comma. */
static void put_separator(output *o, const piece *p, int last, int k, bool omits) {
    const char *at = p[k - 1].end, *end = p[k].begin;
    bool blank = only_spaces(at, end), gap = last < k - 1,
         glued = gap || is_replaced_sign(&p[k]) || is_replaced_sign(&p[last]);
    if (p[k].other || (blank && is_replaced_sign(&p[last]) && is_replaced_sign(&p[k]))) {
        put_text(o, " and ");
        return;
    }
    for (int i = last + 1; i < k && blank; i++)
        if (memchr(p[i - 1].end, ',', (size_t)(p[i].begin - p[i - 1].end))) {
            at = p[i - 1].end;
            end = p[i].begin;
            blank = false;
        }
    if (gap && blank && omits && !needs_after(&p[last]) && p[k].found && !joins(&p[k]))
        put_text(o, " and"); /* "a dog [chasing] a cat" */
    put_text(o, at == end && glued ? " " : "");
    put(o, at, end);
}

/* What is written for a piece without a number before it. */
static span words_of(const piece *p) {
    const char *text = replaced(p) ? p->same > 1 ? p->phrase->plural : p->phrase->target : NULL;
    return text ? (span){text, text + strlen(text)} : (span){p->begin, p->end};
}

static void put_piece(output *o, const lz_vocabulary *w, const piece *p) {
    static const char *const numbers[] = {"two ", "three ", "four ", "five ", "six "};
    enum { MOST = sizeof numbers / sizeof *numbers + 1 };
    if (p->some) {
        put_text(o, w->some);
        put_text(o, " ");
    }
    if (p->same > 1) put_text(o, numbers[(p->same < MOST ? p->same : MOST) - 2]);
    span s = words_of(p);
    put(o, s.begin, s.end);
}

/* Writes the article at k if what follows it has changed. false: it is none, or that has not changed. */
static bool put_article(output *o, const lz_vocabulary *w, const piece *p, int k, int n) {
    const char *text = p[k].phrase && !p[k].some ? p[k].phrase->text : "";
    const char *other = !strcmp(text, "a") ? "an" : !strcmp(text, "an") ? "a" : "";
    int next = k + 1;
    while (next < n && p[next].removed) next++;
    if (!find(w, other) || next == n || (next == k + 1 && !replaced(&p[next]))) return false;
    put_text(o, strchr("aeiou", lower(*words_of(&p[next]).begin)) ? "an" : "a");
    return true;
}

static size_t write_pieces(const lz_vocabulary *w, const char *prompt, const piece *p, int n, bool omits, char *to) {
    output o = {.to = to};
    int last = -1;
    for (int k = 0; k < n; k++) {
        if (p[k].removed) continue;
        if (last >= 0)
            put_separator(&o, p, last, k, omits);
        else if (!k)
            put(&o, prompt, p->begin);
        if (!put_article(&o, w, p, k, n)) put_piece(&o, w, &p[k]);
        last = k;
    }
    put_text(&o, n ? p[n - 1].end : prompt);
    if (to) to[o.n] = 0;
    return last < 0 ? 0 : o.n;
}

/* Splits a prompt and decides what is written. *omits: unknown words are removed. The caller frees the pieces; NULL: an
 * error. */
static piece *read_pieces(const lz_vocabulary *w, const char *prompt, int *n, bool *omits, lz_error *err) {
    int count = *n = split(w, prompt, NULL);
    piece *p = lz_host_alloc(w->ctx, ((size_t)count + 1) * sizeof *p);
    if (!p) {
        lz_out_of_memory(err, (int64_t)(((size_t)count + 1) * sizeof *p));
        return NULL;
    }
    split(w, prompt, p);
    remove_negated(p, count);
    check_numbers(w, p, count);
    *omits = w->omits && remove_pieces(p, count, true);
    if (!*omits) remove_pieces(p, count, false); /* unknown words are better than none */
    if (*omits) {
        remove_double_counts(w, p, count);
        part_things(w, p, count);
    }
    read_before_things(w, p, count);
    mark_plurals(w, p, count);
    return p;
}

char *lz_vocabulary_read(const lz_vocabulary *w, const char *prompt, lz_error *err) {
    int n;
    bool omits;
    char *to = NULL;
    piece *p = read_pieces(w, prompt, &n, &omits, err);
    if (!p) return NULL;
    size_t bytes = write_pieces(w, prompt, p, n, omits, NULL); /* 0: all words would be removed, so the prompt stays */
    if (bytes && !(to = lz_host_alloc(w->ctx, bytes + 1))) lz_out_of_memory(err, (int64_t)bytes + 1);
    if (to) write_pieces(w, prompt, p, n, omits, to);
    lz_host_free(w->ctx, p);
    if (!to || strcmp(to, prompt) != 0) return to;
    lz_host_free(w->ctx, to);
    return NULL;
}

int lz_vocabulary_things(const lz_vocabulary *w, const char *prompt, lz_error *err) {
    int n, found = 0;
    bool omits;
    if (!w->has_things) return -1;
    piece *p = read_pieces(w, prompt, &n, &omits, err);
    for (int i = 0; p && i < n; i++) found += !p[i].removed && number_of(w, &p[i]);
    lz_host_free(w->ctx, p);
    return p ? found : -1;
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
