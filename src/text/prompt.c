/* prompt.c: reads a prompt by a list of words (vocabulary.c has its format). The prompt is split into pieces, phrases and
 * unknown words; each of the passes below decides something about them; then they are written, in lower case (ASCII).
 *
 * If unknown words are removed, things that would be drawn as one are told apart: "a cat, a dog" becomes "a cat and a
 * dog", and of "a school bus" only the bus stays. A plural without a number gets one, or becomes "a dog" if the prompt has
 * other things. Brackets, weights and quotation marks are removed: "((a cat:1.2))" becomes "a cat". "a" becomes "an" if the
 * word after it changes, and the reverse.
 *
 * Each emoji is a word of its own, also without spaces around it (words.h). Emoji that follow each other and are replaced
 * become "fox and dog", and equal ones "two foxes", at most six. */
#include <string.h>

#include "text/phrases.h"
#include "text/words.h"

typedef struct piece {
    const char *begin, *end;
    const lz_phrase *phrase;
    int same;           /* how many equal emoji it is, without those that are written between them */
    const char *number; /* a number or an article that is written before it; NULL: none */
    bool one;           /* a plural that is written as its singular */
    bool negated;       /* removed, whatever comes before and after it */
    bool removed;       /* this, or removed for another reason */
    bool found;         /* it begins a run that ends with a phrase */
    bool other;         /* another thing than the one before it: "and" is written between them */
} piece;

/* A prompt that is read. */
typedef struct reading {
    char *text; /* without brackets and weights (words.h) */
    piece *p;
    int n;
    bool omits; /* unknown words are removed */
} reading;

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

/* Is it such a phrase itself: "two", "add one more", not "make the"? */
static bool is_number(const lz_vocabulary *w, const piece *p) {
    const lz_phrase *k = known(w, p);
    return k && k->counts;
}

/* Does it change a picture: "make it", "add one more"? */
static bool edits(const lz_vocabulary *w, const piece *p) {
    const lz_phrase *k = known(w, p);
    return k && k->edits;
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
static void remove_negated(const lz_vocabulary *w, piece *p, int n) {
    for (int i = 0; i < n; i++) {
        int k = i + 1;
        bool found = false;
        if (!drops(&p[i])) continue;
        bool inside = i && k < n && counts(w, &p[i - 1]) && only_spaces_before(&p[i]) && !counts(w, &p[k]) &&
                      !number_of(w, &p[k]); /* "a not red cat" */
        for (; k < n && only_spaces_before(&p[k]) && !drops(&p[k]) && !found; k++) {
            if (joins(&p[k]) && k > i + 1) break; /* but "not in a house" */
            found = p[k].phrase && !is_filler(&p[k]) && !needs_after(&p[k]) && !edits(w, &p[k]);
            if (found && inside) break;
        }
        while (k < n && is_sign(&p[k - 1]) && is_sign(&p[k]) && only_spaces_before(&p[k])) k++;
        bool more = k < n && only_spaces_before(&p[k]) && p[k].phrase && p[k].phrase->extends;
        for (int j = i; j < k + more; j++) p[j].negated = true;
        if (more && !drops(&p[k])) p[k].phrase = p[i].phrase;
        if (found || more) i = k - 1;
    }
}

/* A word that is read as a number ("several") is one only before a plural; before another number it is removed. Edits that
 * are read as other edits ("add seven more") are left alone. */
static void check_numbers(const lz_vocabulary *w, piece *p, int n) {
    for (int i = 0; i < n; i++) {
        int k = i + 1;
        if (!replaced(&p[i]) || !counts(w, &p[i]) || edits(w, &p[i])) continue;
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
 * another piece that joins. If all lost words have no meaning, what describes stays: "make it blue [please]". */
static int read_run(const lz_vocabulary *w, piece *p, int n, bool omits) {
    bool lost = false, unknown = false, found = false;
    int k = 1, last = 0;
    for (; k < n && only_spaces_before(&p[k]); k++) {
        bool gone = is_lost(&p[k], omits) || (lost && ends_phrase(&p[k]));
        found = !gone && !needs_after(&p[k]);
        if (found || (lost && !gone && joins(&p[k]))) break;
        if (!gone) last = k;
        lost = lost || gone;
        unknown = unknown || (gone && !p[k].phrase);
    }
    p->found = found;
    bool dangles = lost && (unknown || !describes(w, &p[last]));
    for (int i = 0; i < k && !found && dangles && omits; i++) p[i].removed = true;
    return k;
}

/* Decides what is removed. omits: also unknown words, and what refers to them. Returns whether a phrase stays that refers
 * to no other. */
static bool remove_pieces(const lz_vocabulary *w, piece *p, int n, bool omits) {
    int run_ends = 0, kept = 0;
    bool any = false;
    for (int i = 0; i < n; i++) p[i].removed = p[i].found = false;
    for (int i = 0; i < n; i++) {
        if (needs_after(&p[i]) && i >= run_ends && !p[i].negated) run_ends = i + read_run(w, p + i, n - i, omits);
        bool after_gap = omits && i && p[i - 1].removed;
        p[i].removed = p[i].removed || is_lost(&p[i], omits);
        if (after_gap && ends_phrase(&p[i]) && only_spaces_before(&p[i])) p[i].removed = true; /* "[quiet] style" */
        if (after_gap && joins(&p[i]) && !kept) p[i].removed = true;                           /* "[quiet] and a dog" */
        kept += !p[i].removed;
        any = any || (!p[i].removed && p[i].phrase && !needs_after(&p[i]) && !needs_before(&p[i]));
    }
    return any;
}

/* Removes an article or number before another one, which removed words kept apart ("a [icon of] a cat"), or which is read as
 * a number ("a hundred cats"). */
static void remove_double_counts(const lz_vocabulary *w, piece *p, int n) {
    for (int i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && p[k].removed && only_spaces_before(&p[k]);) k++;
        if (p[i].removed || k == n || !only_spaces_before(&p[k]) || edits(w, &p[i])) continue;
        if (counts(w, &p[i]) && counts(w, &p[k])) p[i].removed = k > i + 1 || replaced(&p[k]);
    }
}

/* The first of the pieces that describe piece i: "big" of "two big red dogs". *before: the one before that, if it may belong
 * to it ("two", but also "dog's" of "a dog's cats"); -1: there is none. */
static int first_of(const lz_vocabulary *w, const piece *p, int i, int *before) {
    int first = i, k;
    for (;; first = k) {
        const char *at = p[first].begin;
        for (k = first - 1; k >= 0 && p[k].removed && lz_only_spaces(p[k].end, at); k--) at = p[k].begin;
        if (k >= 0 && !lz_only_apostrophes(p[k].end, at)) k = -1;
        if (k < 0 || !describes(w, &p[k])) break;
    }
    *before = k;
    return first;
}

/* Equal emoji get their number, instead of an article or number before them. */
static void count_emoji(const lz_vocabulary *w, piece *p, int i) {
    static const char *const numbers[] = {"two", "three", "four", "five", "six"};
    enum { MOST = sizeof numbers / sizeof *numbers + 1 };
    int before, first = first_of(w, p, i, &before);
    bool counted = before >= 0 && is_number(w, &p[before]);
    if (counted && edits(w, &p[before])) return; /* "add one more 🦊🦊" */
    if (counted) p[before].removed = true;
    p[first].number = numbers[(p[i].same < MOST ? p[i].same : MOST) - 2];
}

/* Is it an article that removed words keep apart from piece k: "a [plate of] cookies"? */
static bool lost_its_noun(const piece *p, int before, int k) {
    const char *text = before >= 0 && p[before].phrase ? p[before].phrase->text : "";
    return k > before + 1 && (!strcmp(text, "a") || !strcmp(text, "an") || !strcmp(text, "one"));
}

/* A plural without a number or article, or whose article has lost its noun, gets the usual number; with `one` it becomes its
 * singular. Nothing is written after a word that may belong to it ("a dog's cats"). */
static void count_plural(const lz_vocabulary *w, piece *p, int i, bool one) {
    int before, first = first_of(w, p, i, &before);
    bool lost = lost_its_noun(p, before, first);
    if (before >= 0 && !lost && !leads_to(w, &p[before])) return;
    if (lost) p[before].removed = true;
    p[i].one = one;
    p[first].number = one ? "a" : w->usual_number;
}

static int count_things(const lz_vocabulary *w, const piece *p, int n) {
    int found = 0;
    for (int i = 0; i < n; i++) found += !p[i].removed && number_of(w, &p[i]);
    return found;
}

/* Writes numbers before things. Models that were trained with two things have seen one of each. */
static void write_numbers(const lz_vocabulary *w, piece *p, int n) {
    bool several = count_things(w, p, n) > 1 && lz_phrase_find(w, "a");
    for (int i = 0; i < n; i++) {
        bool owns = i + 1 < n && lz_inner_bytes(p[i].end, p[i + 1].begin); /* "cats' eyes" */
        if (!p[i].removed && p[i].same > 1)
            count_emoji(w, p, i);
        else if (!p[i].removed && w->usual_number && !is_sign(&p[i]) && number_of(w, &p[i]) == LZ_MANY)
            count_plural(w, p, i, several && !owns);
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

/* The second meaning of a known phrase, which holds in some places only: a thing, or something else. NULL: it has none. */
static const lz_phrase *read_elsewhere(const lz_vocabulary *w, const piece *p, bool as_thing) {
    const lz_phrase *now = known(w, p), *next = now ? now + 1 : NULL;
    if (!now || now->meaning != LZ_KNOWN || next == w->phrases + w->n || next->meaning != LZ_READ_AS) return NULL;
    if (!*next->target || strcmp(next->text, now->text) != 0) return NULL;
    const lz_phrase *is = lz_phrase_find(w, next->target);
    return as_thing == (is && is->number) ? next : NULL;
}

/* Replaces what is read as a thing if it describes none: the last word of "an orange", but not of "an orange and white
 * cat". */
static void read_alone(const lz_vocabulary *w, piece *p, int n) {
    for (int i = 1; i < n; i++) {
        const lz_phrase *thing = read_elsewhere(w, &p[i], true);
        int k = i + 1;
        if (!thing || !is_number(w, &p[i - 1]) || !only_spaces_before(&p[i])) continue;
        while (k < n && only_spaces_before(&p[k]) && is_filler(&p[k])) k++;
        bool last = k == n || !only_spaces_before(&p[k]) || joins(&p[k]);
        bool shared = k + 2 < n && describes(w, &p[k + 1]) && only_spaces_before(&p[k + 2]) && !joins(&p[k + 2]);
        if (last && !shared) p[i].phrase = thing;
    }
}

/* Replaces what is known but is read as something else before a thing. What joins is replaced only after a thing ("a cat on
 * a chair", but not "an emoji of a cat"), and not in edits ("turn the cat into a dog"). */
static void read_before_things(const lz_vocabulary *w, piece *p, int n) {
    bool after_thing = false, edit = false;
    for (int i = 0; i < n; i++) {
        if (p[i].removed) continue;
        const lz_phrase *other = read_elsewhere(w, &p[i], false);
        bool stays = joins(&p[i]) && (!after_thing || edit);
        if (other && !stays && thing_after(w, p, i, n)) p[i].phrase = other;
        after_thing = number_of(w, &p[i]) != 0;
        edit = edit || edits(w, &p[i]);
    }
}

/* Is there only this between pieces i and k, and what was removed? *mark: it has other signs than blanks. */
static bool only_marks(const piece *p, int i, int k, bool *mark) {
    *mark = false;
    for (; i < k; i++)
        for (const char *c = p[i].end; c < p[i + 1].begin;) {
            int space = lz_space_bytes(c, p[i + 1].begin), n = space ? space : lz_divider_bytes(c, p[i + 1].begin);
            if (!n) return false;
            *mark = *mark || !space;
            c += n;
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
        if (!thing || !only_marks(p, i, k, &mark) || (is_sign(&p[i]) && is_sign(&p[k]))) continue;
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
    bool no_quotes;
} output;

/* In lower case, as the list is, and what the model was trained with */
static void put(output *o, const char *at, const char *end) {
    for (; at < end; at++, o->n++)
        if (o->to) o->to[o->n] = lz_ascii_lower(*at);
}

static void put_text(output *o, const char *text) { put(o, text, text + strlen(text)); }

/* Writes what is between pieces. Quotation marks and the blanks beside them become one blank, or none. */
static void put_between(output *o, const char *at, const char *end) {
    for (const char *stop; at < end; at = stop) {
        bool quotes = false;
        stop = at;
        for (int n; o->no_quotes && (n = lz_space_bytes(stop, end)); stop += n) quotes = quotes || !lz_is_blank(*stop);
        if (quotes) {
            bool needed = o->n && *stop && !strchr(",.;:!?", *stop);
            put_text(o, needed ? " " : "");
        } else {
            stop = at + 1;
            put(o, at, stop);
        }
    }
}

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
static lz_span words_of(const lz_vocabulary *w, const piece *p) {
    const char *text = replaced(p) ? p->same > 1 ? p->phrase->plural : p->phrase->target : NULL;
    if (p->one) text = known(w, p)->target;
    return text ? (lz_span){text, text + strlen(text)} : (lz_span){p->begin, p->end};
}

/* Writes "a" or "an", or another number. */
static void put_number(output *o, const char *number, lz_span next) {
    bool an = !strcmp(number, "a") && strchr("aeiou", lz_ascii_lower(*next.begin));
    put_text(o, an ? "an" : number);
}

static void put_piece(output *o, const lz_vocabulary *w, const piece *p) {
    lz_span s = words_of(w, p);
    if (p->number) {
        put_number(o, p->number, s);
        put_text(o, " ");
    }
    put(o, s.begin, s.end);
}

/* Writes the article at k if what follows it has changed. false: it is none, or that has not changed. */
static bool put_article(output *o, const lz_vocabulary *w, const piece *p, int k, int n) {
    const char *text = p[k].phrase && !p[k].number ? p[k].phrase->text : "";
    const char *other = !strcmp(text, "a") ? "an" : !strcmp(text, "an") ? "a" : "";
    int next = k + 1;
    while (next < n && p[next].removed) next++;
    if (!lz_phrase_find(w, other) || next == n || (next == k + 1 && !replaced(&p[next]))) return false;
    put_number(o, "a", words_of(w, &p[next]));
    return true;
}

static size_t write_pieces(const lz_vocabulary *w, const reading *r, char *to) {
    output o = {.to = to, .no_quotes = r->omits};
    int last = -1;
    for (int k = 0; k < r->n; k++) {
        if (r->p[k].removed) continue;
        if (last >= 0)
            put_separator(&o, r->p, last, k, r->omits);
        else if (!k)
            put_between(&o, r->text, r->p->begin);
        if (!put_article(&o, w, r->p, k, r->n)) put_piece(&o, w, &r->p[k]);
        last = k;
    }
    const char *rest = r->n ? r->p[r->n - 1].end : r->text;
    put_between(&o, rest, rest + strlen(rest));
    if (to) to[o.n] = 0;
    return last < 0 ? 0 : o.n;
}

static void free_reading(const lz_vocabulary *w, reading *r) {
    lz_host_free(w->ctx, r->p);
    lz_host_free(w->ctx, r->text);
}

/* Splits a prompt and decides what is written. The caller frees the reading, also if an error is returned. */
static lz_status read_pieces(const lz_vocabulary *w, const char *prompt, reading *r, lz_error *err) {
    *r = (reading){.text = lz_vocabulary_plain(w, prompt, err)};
    if (!r->text) return LZ_OUT_OF_MEMORY;
    int n = r->n = split(w, r->text, NULL);
    piece *p = r->p = lz_host_alloc(w->ctx, ((size_t)n + 1) * sizeof *p);
    if (!p) return lz_out_of_memory(err, (int64_t)(((size_t)n + 1) * sizeof *p));
    split(w, r->text, p);
    remove_negated(w, p, n);
    check_numbers(w, p, n);
    read_alone(w, p, n);
    r->omits = w->omits && remove_pieces(w, p, n, true);
    if (!r->omits) remove_pieces(w, p, n, false); /* unknown words are better than none */
    if (r->omits) {
        remove_double_counts(w, p, n);
        part_things(w, p, n);
    }
    read_before_things(w, p, n);
    write_numbers(w, p, n);
    return LZ_OK;
}

char *lz_vocabulary_read(const lz_vocabulary *w, const char *prompt, lz_error *err) {
    reading r;
    char *to = NULL;
    lz_status status = read_pieces(w, prompt, &r, err);
    size_t bytes = status ? 0 : write_pieces(w, &r, NULL); /* 0: all words would be removed, so the prompt stays */
    if (bytes && !(to = lz_host_alloc(w->ctx, bytes + 1))) lz_out_of_memory(err, (int64_t)bytes + 1);
    if (to) write_pieces(w, &r, to);
    free_reading(w, &r);
    if (!to || strcmp(to, prompt) != 0) return to;
    lz_host_free(w->ctx, to);
    return NULL;
}

lz_status lz_vocabulary_look(const lz_vocabulary *w, const char *prompt, lz_shown *to, lz_error *err) {
    reading r;
    lz_status status = read_pieces(w, prompt, &r, err);
    bool named = false; /* "two cats, one of them black" is no edit */
    *to = (lz_shown){.things = -1};
    if (!status && w->has_things) to->things = count_things(w, r.p, r.n);
    for (int i = 0; !status && i < r.n; i++) {
        to->negates = to->negates || (r.p[i].negated && drops(&r.p[i]));
        named = named || (!r.p[i].removed && number_of(w, &r.p[i]));
        to->edits = to->edits || (!named && !r.p[i].removed && edits(w, &r.p[i]));
    }
    free_reading(w, &r);
    return status;
}
