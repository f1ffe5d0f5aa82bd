/* prompt.c: reads a prompt by a list of words (vocabulary.c has its format). The prompt is split into pieces, phrases and
 * unknown words; each of the passes below decides something about them; then they are written, in lower case (ASCII).
 *
 * If unknown words are removed, things that would be drawn as one are told apart: "a cat, a dog" becomes "a cat and a
 * dog", and of "a school bus" only the bus stays. Brackets and weights are removed: "((a cat:1.2))" becomes "a cat". "a"
 * becomes "an" if the word after it changes, and the reverse.
 *
 * Each emoji is a word of its own, also without spaces around it (words.h). Emoji that follow each other and are replaced
 * become "fox and dog", and equal ones "two foxes", at most six. */
#include <string.h>

#include "text/phrases.h"
#include "text/words.h"

typedef struct piece {
    const char *begin, *end;
    const lz_phrase *phrase;
    int same;       /* how many equal emoji it is, without those that are written between them */
    bool negated;   /* removed, whatever comes before and after it */
    bool removed;   /* this, or removed for another reason */
    bool found;     /* it begins a run that ends with a phrase */
    bool uncounted; /* it begins a plural without a number, and gets the usual one */
    bool other;     /* another thing than the one before it: "and" is written between them */
} piece;

/* What the list says of a piece. */
static bool replaced(const piece *p) { return p->phrase && p->phrase->meaning == LZ_READ_AS; }
static bool is_filler(const piece *p) { return p->phrase && p->phrase->meaning == LZ_READ_AS && !*p->phrase->target; }
static bool needs_after(const piece *p) { return p->phrase && p->phrase->needs_after; }
static bool needs_before(const piece *p) { return p->phrase && p->phrase->needs_before; }
static bool drops(const piece *p) { return p->phrase && p->phrase->drops; }
static bool joins(const piece *p) { return needs_after(p) && needs_before(p); }
static bool ends_phrase(const piece *p) { return needs_before(p) && !needs_after(p); } /* "style" */
static bool is_sign(const piece *p) { return lz_sign_bytes(p->begin, p->end) > 0; }
static bool is_replaced_sign(const piece *p) { return replaced(p) && !is_filler(p) && is_sign(p); }
static bool only_spaces_before(const piece *p) { return lz_only_spaces(p[-1].end, p->begin); }

/* The phrase that the model knows it by; NULL: none. */
static const lz_phrase *known(const lz_vocabulary *w, const piece *p) {
    return is_filler(p) || !replaced(p) ? p->phrase : lz_phrase_find(w, p->phrase->target);
}

static int number_of(const lz_vocabulary *w, const piece *p) {
    const lz_phrase *k = known(w, p);
    return k ? k->number : 0;
}

/* The last word of what the model knows the piece by, if that is in the list: "the" of "make the"; NULL: it is not. */
static const lz_phrase *last_word(const lz_vocabulary *w, const piece *p) {
    const lz_phrase *k = known(w, p);
    const char *blank = k ? strrchr(k->text, ' ') : NULL;
    return blank ? lz_phrase_find(w, blank + 1) : k;
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
    for (lz_said said = lz_next_said(w, prompt, end); said.begin < said.end; said = lz_next_said(w, said.end, end)) {
        piece p = {.begin = said.begin, .end = said.end, .phrase = said.phrase, .same = 1};
        if (n && is_replaced_sign(&p) && p.phrase == last.phrase && lz_only_spaces(last.end, p.begin)) {
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
        bool inside = i && needs_after(&p[i - 1]) && !joins(&p[i - 1]) &&
                      only_spaces_before(&p[i]); /* "a not red cat" */
        for (; k < n && only_spaces_before(&p[k]) && !drops(&p[k]) && !found; k++) {
            if (joins(&p[k]) && k > i + 1) break; /* but "not in a house" */
            found = p[k].phrase && !is_filler(&p[k]) && !needs_after(&p[k]);
            if (found && inside) break;
        }
        while (k < n && is_sign(&p[k - 1]) && is_sign(&p[k]) && only_spaces_before(&p[k])) k++;
        bool more = k < n && only_spaces_before(&p[k]) && p[k].phrase && p[k].phrase->extends;
        for (int j = i; j < k + more; j++) p[j].negated = true;
        if (more && !drops(&p[k])) p[k].phrase = p[i].phrase;
        if (found || more) i = k - 1;
    }
}

/* A word that is read as a number ("several") is one only before a plural; before another number it is removed. Edits that are read
 * as other edits ("a few of them") are none. */
static void check_numbers(const lz_vocabulary *w, piece *p, int n) {
    for (int i = 0; i < n; i++) {
        int k = i + 1;
        if (!replaced(&p[i]) || !counts(w, &p[i]) || strchr(p[i].phrase->target, ' ')) continue;
        while (k < n && only_spaces_before(&p[k]) &&
               (p[k].negated || is_filler(&p[k]) || !p[k].phrase || describes(w, &p[k])))
            k++;
        bool near = k < n && only_spaces_before(&p[k]);
        if (near && counts(w, &p[k]))
            p[i].negated = true;
        else if (!near || !(is_replaced_sign(&p[k]) || number_of(w, &p[k]) & LZ_MANY))
            p[i].phrase = NULL;
    }
}

static bool is_lost(const piece *p, bool omits) { return p->negated || is_filler(p) || (!p->phrase && omits); }

/* A run is a sequence of pieces from one that needs a phrase after it to that phrase: "in the [quiet] big" of
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

/* Removes an article or number before another one, which removed words kept apart ("a [icon of] a cat"), which is read as a
 * number ("a hundred cats"), or which equal emoji are. */
static void remove_double_counts(const lz_vocabulary *w, piece *p, int n) {
    for (int i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && p[k].removed && only_spaces_before(&p[k]);) k++;
        if (p[i].removed || k == n || !only_spaces_before(&p[k]) || !counts(w, &p[i])) continue;
        if (counts(w, &p[k])) p[i].removed = k > i + 1 || replaced(&p[k]);
        if (p[k].same > 1) p[i].removed = true;
    }
}

/* Is it an article that removed words keep apart from the plural k: "a [plate of] cookies"? */
static bool lost_its_noun(const piece *p, int before, int k) {
    const char *text = p[before].phrase ? p[before].phrase->text : "";
    return k > before + 1 && (!strcmp(text, "a") || !strcmp(text, "an"));
}

/* Marks the begin of each "big red dogs" that has no number or article, or has lost the noun of its article. Nothing is
 * marked after a word that may belong to it ("a dog's cats"). */
static void mark_plurals(const lz_vocabulary *w, piece *p, int n) {
    for (int i = 0; i < n && w->usual_number; i++) {
        int first = i, before;
        if (p[i].removed || is_sign(&p[i]) || number_of(w, &p[i]) != LZ_MANY) continue;
        for (;; first = before) {
            const char *at = p[first].begin;
            for (before = first - 1; before >= 0 && p[before].removed && lz_only_spaces(p[before].end, at); before--)
                at = p[before].begin;
            if (before >= 0 && !lz_only_apostrophes(p[before].end, at)) before = -1;
            if (before < 0 || !describes(w, &p[before])) break;
        }
        bool lost = before >= 0 && lost_its_noun(p, before, first);
        p[first].uncounted = before < 0 || lost || leads_to(w, &p[before]);
        if (lost) p[before].removed = true;
    }
}

/* The piece of a thing that follows k after words that describe or count it; 0: none of the next ones. */
static int thing_after(const lz_vocabulary *w, const piece *p, int k, int n) {
    enum { FEW = 16 }; /* so that a long prompt takes a time in proportion */
    int i = k + 1;
    while (i < n && i < k + FEW && only_spaces_before(&p[i]) &&
           (p[i].removed || describes(w, &p[i]) || counts(w, &p[i])))
        i++;
    return i < n && only_spaces_before(&p[i]) && number_of(w, &p[i]) ? i : 0;
}

/* Replaces what is known but is read as something else before a thing. */
static void read_before_things(const lz_vocabulary *w, piece *p, int n) {
    for (int i = 0; i < n; i++) {
        const lz_phrase *now = known(w, &p[i]), *next = now ? now + 1 : NULL;
        if (p[i].removed || !now || now->meaning != LZ_KNOWN || next == w->phrases + w->n || !*next->target) continue;
        if (next->meaning == LZ_READ_AS && !strcmp(next->text, now->text) && thing_after(w, p, i, n))
            p[i].phrase = next;
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
        if (lz_inner_bytes(c, p->end) && *c != '-') return true;
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
            p[i].removed = number_of(w, &p[i]) & LZ_ONE && !has_apostrophe(&p[i]); /* "school bus" */
        else if (number_of(w, &p[k]) || (begins && thing_after(w, p, k, n)))
            p[k].other = true;
    }
}

/* Writes to a buffer; if `to` is NULL, only counts. */
typedef struct output {
    char *to;
    size_t n;
    bool no_brackets;
} output;

/* In lower case, as the list is, and what the model was trained with */
static void put(output *o, const char *at, const char *end) {
    for (; at < end; at++, o->n++)
        if (o->to) o->to[o->n] = lz_ascii_lower(*at);
}

/* Writes what is between pieces. */
static void put_between(output *o, const char *at, const char *end) {
    while (at < end) {
        int skipped = !o->no_brackets ? 0 : strchr("()[]", *at) ? 1 : lz_weight_bytes(at, end);
        if (!skipped) put(o, at, at + 1);
        at += skipped ? skipped : 1;
    }
}

static void put_text(output *o, const char *text) { put(o, text, text + strlen(text)); }

/* Writes what is between piece k and the one before it that stays, which is `last`. Of the separators of removed pieces
 * the last one stays, or an earlier one with a comma. */
static void put_separator(output *o, const piece *p, int last, int k, bool omits) {
    const char *at = p[k - 1].end, *end = p[k].begin;
    bool blank = lz_only_spaces(at, end), gap = last < k - 1,
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
    put_between(o, at, end);
}

/* What is written for a piece without a number before it. */
static lz_span words_of(const piece *p) {
    const char *text = replaced(p) ? p->same > 1 ? p->phrase->plural : p->phrase->target : NULL;
    return text ? (lz_span){text, text + strlen(text)} : (lz_span){p->begin, p->end};
}

static void put_piece(output *o, const lz_vocabulary *w, const piece *p) {
    static const char *const numbers[] = {"two ", "three ", "four ", "five ", "six "};
    enum { MOST = sizeof numbers / sizeof *numbers + 1 };
    if (p->uncounted) {
        put_text(o, w->usual_number);
        put_text(o, " ");
    }
    if (p->same > 1) put_text(o, numbers[(p->same < MOST ? p->same : MOST) - 2]);
    lz_span s = words_of(p);
    put(o, s.begin, s.end);
}

/* Writes the article at k if what follows it has changed. false: it is none, or that has not changed. */
static bool put_article(output *o, const lz_vocabulary *w, const piece *p, int k, int n) {
    const char *text = p[k].phrase && !p[k].uncounted ? p[k].phrase->text : "";
    const char *other = !strcmp(text, "a") ? "an" : !strcmp(text, "an") ? "a" : "";
    int next = k + 1;
    while (next < n && p[next].removed) next++;
    if (!lz_phrase_find(w, other) || next == n || (next == k + 1 && !replaced(&p[next]))) return false;
    put_text(o, strchr("aeiou", lz_ascii_lower(*words_of(&p[next]).begin)) ? "an" : "a");
    return true;
}

static size_t write_pieces(const lz_vocabulary *w, const char *prompt, const piece *p, int n, bool omits, char *to) {
    output o = {.to = to, .no_brackets = omits};
    int last = -1;
    for (int k = 0; k < n; k++) {
        if (p[k].removed) continue;
        if (last >= 0)
            put_separator(&o, p, last, k, omits);
        else if (!k)
            put_between(&o, prompt, p->begin);
        if (!put_article(&o, w, p, k, n)) put_piece(&o, w, &p[k]);
        last = k;
    }
    const char *rest = n ? p[n - 1].end : prompt;
    put_between(&o, rest, rest + strlen(rest));
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
