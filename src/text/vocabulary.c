/* vocabulary.c: the list of words that a model knows. A line of the file is
 *
 *     KNOWN, KNOWN, ... = WORD, WORD, ... ~ WORD, WORD, ...        (and # begins a comment)
 *
 * A WORD after = is replaced by the first KNOWN, or removed if the line has no KNOWN. A WORD after ~ is not replaced,
 * but KNOWN is suggested if a prompt contains it. Each entry may be a phrase of several words. A prompt is split into
 * phrases, from left to right the longest that begins at a word, so "hot dog" is not hot, and words that are in no line.
 * These lines have a meaning of their own, which prompt.c gives them:
 *
 *   "fox, foxes"      If the second KNOWN has no "...", it is the plural of the first; both may be the same word.
 *   "big ..."         This refers to what comes after it, "... style" to what comes directly before it, and
 *                     "... in ..." joins two.
 *   "= *"             Removes the words that are in no line, and what refers to them: "a fox in the big harbour on red"
 *                     becomes "a fox on red". If only words remain that refer to others, the unknown words stay.
 *   "= without ..."   Removes the phrase after it, too: "a cat without a big hat" becomes "a cat". After "= ... or ..." more
 *                     is removed: "without a hat or a ball".
 *   "three ..., a ..., two ... = ..."   These say how many. A plural without one of them gets the first: models that
 *                     were trained with "two dogs" do not know "dogs" alone. Words that are read as one of them, such
 *                     as "several ...", are read so only before a plural, and removed before another number.
 *   "make it, make the ... = $"         These change a picture, and are said with a reference picture.
 *   "orange ...", and in another line "tangerine, tangerines = orange"      After a number or an article, and without
 *                     what it refers to, it is replaced: "an orange" becomes "a tangerine"; "an orange cat" stays.
 *   "... on ...", and in another line "... above ... = ... on ..."      Between two things, which are KNOWN that
 *                     have a plural, it is replaced: "a cat on a chair" becomes "a cat above a chair"; "on red" stays.
 *   "light blue ...", and in another line "blue ... = light blue ..."      The same before a thing: "a blue chair".
 *
 * All phrases are in one sorted array. Limits: a file of 1 MiB; phrases of 8 words and 127 bytes (longer ones are
 * ignored); an unknown word is reported with its first 39 bytes. */
#include "text/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "text/phrases.h"
#include "text/split.h"
#include "text/words.h"

enum { MOST_BYTES = 1 << 20, NEAREST = 3, TOLD = 3 };

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
    lz_meaning meaning = LZ_KNOWN;
    size_t begin = w->n;
    if (comment) end = comment;
    while (at < end) {
        const char *stop = at;
        while (stop < end && !strchr(",=~", *stop)) stop++;
        char *text = normal;
        for (lz_span word = lz_next_word(at, stop); word.begin < word.end; word = lz_next_word(word.end, stop)) {
            if (normal > text) *normal++ = ' ';
            normal = lz_normal_word(word, normal);
        }
        const char *first = at, *last = stop; /* without the blanks */
        while (first < last && strchr(" \t\r", *first)) first++;
        while (last > first && strchr(" \t\r", last[-1])) last--;
        bool named = meaning == LZ_KNOWN || *target, nothing = !named && meaning == LZ_READ_AS;
        bool dots_after = last - first > 3 && memcmp(last - 3, "...", 3) == 0;
        bool dots_before = last - first > 3 && memcmp(first, "...", 3) == 0;
        bool single = last - first == 1 && meaning == LZ_READ_AS;
        if (nothing && single && *first == '*') w->omits = true;
        if (*target && single && *first == '$')
            for (size_t i = begin; i < w->n; i++) w->phrases[i].edits = true;
        if (meaning == LZ_READ_AS && *target && last - first == 3 && memcmp(first, "...", 3) == 0) {
            for (size_t i = begin; i < w->n; i++) w->phrases[i].counts = true;
            w->usual_number = target;
        }
        if (normal - text >= LZ_PHRASE_BYTES)
            normal = text;
        else if (normal > text) {
            *normal++ = 0;
            bool second = meaning == LZ_KNOWN && w->n == begin + 1 && !dots_after && !dots_before;
            if (second) {
                w->phrases[begin].plural = plural = text;
                w->phrases[begin].number = LZ_ONE;
                w->has_things = true;
            }
            if (meaning == LZ_KNOWN && !*target) target = plural = text;
            w->phrases[w->n++] = (lz_phrase){.text = text,
                                             .target = target,
                                             .plural = plural,
                                             .meaning = meaning,
                                             .number = second ? LZ_MANY : 0,
                                             .needs_after = named && dots_after,
                                             .needs_before = named && dots_before,
                                             .drops = nothing && dots_after && !dots_before,
                                             .extends = nothing && dots_after && dots_before};
        }
        if (stop < end && *stop != ',') meaning = *stop == '=' ? LZ_READ_AS : LZ_NEAR;
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
            last->edits = last->edits || p->edits;
            last->extends = last->extends || p->extends;
        }
        if (!same || p->meaning == LZ_NEAR || p->meaning != last->meaning) w->phrases[n++] = *p;
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

char *lz_vocabulary_plain(const lz_vocabulary *w, const char *prompt, lz_error *err) {
    size_t bytes = strlen(prompt) + 1;
    char *text = lz_host_alloc(w->ctx, bytes);
    if (!text)
        lz_out_of_memory(err, (int64_t)bytes);
    else if (w->omits)
        *lz_plain_prompt(prompt, text) = 0;
    else
        memcpy(text, prompt, bytes);
    return text;
}

/* ---- phrases ----------------------------------------------------------------------------------------------------- */

const lz_phrase *lz_phrase_find(const lz_vocabulary *w, const char *text) {
    size_t low = 0, high = w->n;
    while (low < high) { /* finds the first entry, which has the lowest meaning */
        size_t middle = low + (high - low) / 2;
        if (strcmp(w->phrases[middle].text, text) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const lz_phrase *p = &w->phrases[low];
    return low < w->n && p->meaning != LZ_NEAR && strcmp(p->text, text) == 0 ? p : NULL;
}

/* The phrase of a word that is not in the list: of "fox's" and "ice-cream" those of "fox" and "ice cream"; NULL: none */
static const lz_phrase *find_similar(const lz_vocabulary *w, lz_span word) {
    char key[LZ_PHRASE_BYTES];
    if ((size_t)(word.end - word.begin) >= sizeof key) return NULL;
    char *last = lz_normal_word(word, key);
    *last = 0;
    for (char *c = key; *c; c++)
        if (*c == '-') *c = ' ';
    if (last - key > 2 && memcmp(last - 2, "'s", 2) == 0) last[-2] = 0;
    return lz_phrase_find(w, key);
}

lz_said lz_next_said(const lz_vocabulary *w, const char *at, const char *end) {
    char key[LZ_PHRASE_BYTES];
    size_t used = 0;
    lz_span word = lz_next_word(at, end), first = word;
    lz_said p = {word.begin, word.end, NULL};
    for (int n = 0; n < LZ_PHRASE_WORDS && word.begin < word.end; n++) {
        size_t length = (size_t)(word.end - word.begin);
        if (used + (n > 0) + length + 1 > sizeof key) break;
        if (n) key[used++] = ' ';
        used = (size_t)(lz_normal_word(word, key + used) - key);
        key[used] = 0;
        const lz_phrase *found = lz_phrase_find(w, key);
        if (found) {
            p.end = word.end;
            p.phrase = found;
        }
        lz_span next = lz_next_word(word.end, end);
        if (!lz_only_spaces(word.end, next.begin)) break;
        word = next;
    }
    if (!p.phrase) p.phrase = find_similar(w, first);
    return p;
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
    if (p->meaning == LZ_NEAR) return strcmp(p->text, word) == 0 ? 1 : FAR;
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
    char *text = lz_vocabulary_plain(w, prompt, NULL); /* without memory nothing is said */
    const char *end = text ? text + strlen(text) : NULL;
    int n = 0;
    to[0] = 0;
    if (!text) return;
    for (lz_said p = lz_next_said(w, text, end); p.begin < p.end; p = lz_next_said(w, p.end, end)) {
        char word[40] = "", normal[LZ_PHRASE_BYTES];
        if (p.phrase || n++ >= TOLD) continue;
        lz_span first = {p.begin, p.end - p.begin < LZ_PHRASE_BYTES ? p.end : p.begin + LZ_PHRASE_BYTES - 1};
        *lz_normal_word(first, normal) = 0;
        say(word, sizeof word, "%s", normal);
        nearest best = look_around(w, word);
        say(to, bytes, "%s\"%s\"", n == 1 ? "this model does not know " : ", ", word);
        for (int i = 0; i < best.n; i++) say(to, bytes, "%s\"%s\"", i ? ", " : " (it knows ", best.targets[i]);
        if (best.n) say(to, bytes, ")");
    }
    if (n > TOLD) say(to, bytes, " and %d more", n - TOLD);
    lz_host_free(w->ctx, text);
}
