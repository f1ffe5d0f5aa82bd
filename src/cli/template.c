/* template.c: see template.h. A text is scanned once for its pairs of braces; expanding it then walks over the text and
 * writes the prompt. Templates come from strangers, so every size is limited. */
#include "template.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wildcards.h"

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* A text with its braces. For the index of an opening brace, close has the index of the closing one, or 0, and bar says
 * whether a bar stands directly between them. */
typedef struct source {
    const char *text;
    size_t length;
    uint32_t *close; /* owned */
    bool *bar;       /* owned */
} source;

static bool is_escape(const char *text, size_t left) { return left > 1 && *text == '\\' && strchr("{}|", text[1]); }
static bool is_escaped_mark(const char *text, size_t left) { return left > 2 && strncmp(text, "\\__", 3) == 0; }

static void source_free(source *s) {
    free(s->close);
    free(s->bar);
    *s = (source){.length = 0};
}

/* false: out of memory. */
static bool source_scan(source *s, const char *text, size_t length) {
    *s = (source){.text = text, .length = length};
    s->close = calloc(length + 1, sizeof *s->close);
    s->bar = calloc(length + 1, sizeof *s->bar);
    uint32_t *open = calloc(length + 1, sizeof *open); /* the braces that are open, from the outermost */
    size_t n = 0;
    bool good = s->close && s->bar && open && length < UINT32_MAX;
    for (size_t i = 0; i < length && good; i++) {
        if (is_escape(text + i, length - i))
            i++;
        else if (text[i] == '{')
            open[n++] = (uint32_t)i;
        else if (text[i] == '}' && n)
            s->close[open[--n]] = (uint32_t)i;
        else if (text[i] == '|' && n)
            s->bar[open[n - 1]] = true;
    }
    free(open);
    if (!good) source_free(s);
    return good;
}

static bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-_./", c) ||
           (unsigned char)c >= 128;
}

/* The length of the name in "__name__" at the start of the text; 0: there is none. */
static size_t name_length(const char *text, size_t left) {
    if (left < 5 || text[0] != '_' || text[1] != '_') return 0;
    for (size_t i = 2; i + 1 < left && text[i] && is_name_byte(text[i]); i++)
        if (text[i] == '_' && text[i + 1] == '_') return i - 2;
    return 0;
}

/* FLUX is given JSON as a prompt, whose braces and bars are no choices. */
static bool is_json(const char *text) {
    if (text[strspn(text, " \t\r\n")] != '{') return false;
    json_t *object = json_loads(text, 0, NULL);
    bool good = object != NULL;
    json_decref(object);
    return good;
}

bool is_template(const char *text, bool wildcards) {
    source s;
    size_t length = strlen(text);
    bool found = false;
    if (!strchr(text, '{') && !(wildcards && strstr(text, "__"))) return false;
    if (is_json(text) || !source_scan(&s, text, length)) return false;
    for (size_t i = 0; i < length && !found; i++) {
        found = (text[i] == '{' && s.bar[i]) || is_escape(text + i, length - i) ||
                (wildcards && (name_length(text + i, length - i) || is_escaped_mark(text + i, length - i)));
    }
    source_free(&s);
    return found;
}

/* ---- expanding --------------------------------------------------------------------------------------------------- */

typedef struct expansion {
    const char *folder;
    uint64_t state;     /* of the random numbers */
    combinations *walk; /* decides instead of random numbers; or NULL */
    int depth, choices;
    wildcard *files; /* owned */
    char *out;       /* owned */
    size_t bytes, room;
    char *error;
} expansion;

__attribute__((format(printf, 2, 3))) static bool refuse(expansion *e, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(e->error, TEMPLATE_ERROR, format, list);
    va_end(list);
    return false;
}

static bool no_memory(expansion *e) { return refuse(e, "out of memory"); }

static bool put(expansion *e, const char *text, size_t length) {
    if (length > TEMPLATE_BYTES - e->bytes)
        return refuse(e, "the prompt has more than %d bytes when its choices are made", TEMPLATE_BYTES);
    if (e->bytes + length + 1 > e->room) {
        size_t room = 2 * e->room + length + 256;
        char *more = realloc(e->out, room);
        if (!more) return no_memory(e);
        e->out = more;
        e->room = room;
    }
    memcpy(e->out + e->bytes, text, length);
    e->bytes += length;
    e->out[e->bytes] = 0;
    return true;
}

/* splitmix64 (Steele, Lea, Flood 2014), as a number from 0 to 1, without 1. */
static double random_share(expansion *e) {
    uint64_t z = e->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* The next choice of a walk: the same as the last time, or the first option. -1: out of memory. */
static int walk_choice(expansion *e, int options) {
    combinations *c = e->walk;
    int at = e->choices - 1;
    if (at >= c->room) {
        int room = 2 * at + 16;
        int *chosen = realloc(c->chosen, (size_t)room * sizeof *chosen);
        if (chosen) c->chosen = chosen;
        int *of = realloc(c->of, (size_t)room * sizeof *of);
        if (of) c->of = of;
        if (!chosen || !of) {
            no_memory(e);
            return -1;
        }
        c->room = room;
    }
    if (at >= c->n) {
        c->chosen[at] = 0;
        c->n = at + 1;
    }
    c->of[at] = options;
    return c->chosen[at];
}

static double weight_of(const alternative *all, size_t i) { return all ? all[i].weight : 1; }

/* Chooses one of those that have a weight. all: NULL for n that weigh the same. false: there is none, or another
 * error. */
static bool choose(expansion *e, const alternative *all, size_t n, size_t *chosen) {
    double sum = 0;
    int options = 0;
    if (++e->choices > TEMPLATE_CHOICES) return refuse(e, "the prompt makes more than %d choices", TEMPLATE_CHOICES);
    for (size_t i = 0; i < n; i++) {
        sum += weight_of(all, i);
        options += weight_of(all, i) > 0;
    }
    if (!options) return refuse(e, "a choice in the prompt has no option with a weight above 0");
    int walked = e->walk ? walk_choice(e, options) : 0;
    if (walked < 0) return false;
    double left = e->walk ? 0 : random_share(e) * sum;
    for (size_t i = 0; i < n; i++) {
        if (weight_of(all, i) <= 0) continue;
        *chosen = i; /* the last one stays, if rounding leaves a rest */
        if (e->walk ? walked-- == 0 : (left -= weight_of(all, i)) < 0) break;
    }
    return true;
}

static bool expand_range(expansion *e, const source *s, size_t from, size_t to);

/* Expands an alternative, which is a text of its own. */
static bool expand_alternative(expansion *e, const alternative *a) {
    source s;
    if (++e->depth > TEMPLATE_DEPTH)
        return refuse(e, "choices or wildcards of the prompt are nested more than %d deep; does a file name itself?",
                      TEMPLATE_DEPTH);
    if (!source_scan(&s, a->text, a->length)) return no_memory(e);
    bool good = expand_range(e, &s, 0, a->length);
    source_free(&s);
    e->depth--;
    return good;
}

/* ---- choices ----------------------------------------------------------------------------------------------------- */

typedef struct pick { /* how many, and how they are joined: "2$$", "1-3$$ and $$" */
    size_t low, high;
    const char *joiner;
    size_t joiner_length;
} pick;

static size_t read_count(const char **text, const char *end) {
    size_t n = 0;
    for (; *text < end && **text >= '0' && **text <= '9'; ++*text)
        if (n < TEMPLATE_OPTIONS) n = 10 * n + (size_t)(**text - '0');
    return n;
}

/* Reads the pick at the start of a choice, and returns where its alternatives begin. */
static const char *read_pick(const char *text, const char *end, pick *p) {
    const char *at = text;
    *p = (pick){1, 1, ", ", 2};
    size_t low = read_count(&at, end), high = low;
    if (at == text) return text;
    if (at < end && *at == '-') {
        const char *digits = ++at;
        high = read_count(&at, end);
        if (at == digits) return text;
    }
    if (end - at < 2 || strncmp(at, "$$", 2) != 0) return text;
    const char *after = at + 2;
    p->low = low < high ? low : high;
    p->high = low < high ? high : low;
    for (at = after; at + 1 < end && !strchr("|{}", *at); at++) {
        if (strncmp(at, "$$", 2) != 0) continue;
        p->joiner = after;
        p->joiner_length = (size_t)(at - after);
        return at + 2;
    }
    return after;
}

/* Splits at the bars that stand directly between the braces. Returns the number; 0: an error. */
static size_t split(expansion *e, const source *s, size_t from, size_t to, alternative **list) {
    size_t n = 0, room = 0, begin = from;
    *list = NULL;
    for (size_t i = from; i <= to; i++) {
        if (i < to && is_escape(s->text + i, to - i)) {
            i++;
            continue;
        }
        if (i < to && s->text[i] == '{' && s->close[i]) i = s->close[i];
        if (i < to && s->text[i] != '|') continue;
        if (n == room) {
            if (n > TEMPLATE_OPTIONS)
                return refuse(e, "a choice in the prompt has more than %d options", TEMPLATE_OPTIONS);
            alternative *more = realloc(*list, (room = 2 * room + 8) * sizeof *more);
            if (!more) return no_memory(e);
            *list = more;
        }
        (*list)[n++] = alternative_read(s->text + begin, i - begin);
        begin = i + 1;
    }
    return n;
}

static bool expand_choice(expansion *e, const source *s, size_t open) {
    pick p;
    const char *end = s->text + s->close[open], *begin = read_pick(s->text + open + 1, end, &p);
    alternative *list;
    size_t n = split(e, s, (size_t)(begin - s->text), s->close[open], &list), chosen;
    bool good = n > 0;
    size_t most = 0; /* that can be chosen */
    for (size_t i = 0; i < n; i++) most += list[i].weight > 0;
    if (good && !most) good = refuse(e, "a choice in the prompt has no option with a weight above 0");
    if (p.high > most) p.high = most;
    if (p.low > most) p.low = most;
    size_t count = p.low;
    if (good && p.high > p.low) { /* the number is a choice too */
        good = choose(e, NULL, p.high - p.low + 1, &chosen);
        if (good) count += chosen;
    }
    for (size_t i = 0; i < count && good; i++) {
        good = choose(e, list, n, &chosen);
        if (good && i) good = put(e, p.joiner, p.joiner_length);
        if (good) good = expand_alternative(e, &list[chosen]);
        if (good) list[chosen].weight = 0; /* it is not chosen twice */
    }
    free(list);
    return good;
}

static bool expand_wildcard(expansion *e, const char *name, size_t length) {
    size_t chosen;
    const wildcard *w = wildcard_find(&e->files, e->folder, name, length, e->error);
    return w && choose(e, w->lines, w->n, &chosen) && expand_alternative(e, &w->lines[chosen]);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static bool expand_range(expansion *e, const source *s, size_t from, size_t to) {
    bool good = true;
    for (size_t i = from; i < to && good;) {
        const char *at = s->text + i;
        size_t name = e->folder ? name_length(at, to - i) : 0;
        if (is_escape(at, to - i)) {
            good = put(e, at + 1, 1);
            i += 2;
        } else if (is_escaped_mark(at, to - i)) {
            good = put(e, "__", 2);
            i += 3;
        } else if (name) {
            good = expand_wildcard(e, at + 2, name);
            i += name + 4;
        } else if (*at == '{' && s->bar[i] && s->close[i]) {
            good = expand_choice(e, s, i);
            i = s->close[i] + 1;
        } else if (*at == '{' && s->bar[i]) {
            good = refuse(e,
                          "the prompt has choices after a { that is never closed: '%.40s'; write } after them, or "
                          "\\{ for the character itself",
                          at);
        } else {
            good = put(e, at, 1);
            i++;
        }
    }
    return good;
}

static char *expand(expansion *e, const char *text) {
    source s = {.length = 0};
    e->error[0] = 0;
    bool good = put(e, "", 0);
    if (good && !is_template(text, e->folder)) /* it stays as it is, byte for byte */
        good = put(e, text, strlen(text));
    else if (good)
        good = source_scan(&s, text, strlen(text)) ? expand_range(e, &s, 0, s.length) : no_memory(e);
    source_free(&s);
    wildcards_free(e->files);
    if (good) return e->out;
    free(e->out);
    return NULL;
}

char *template_expand(const char *text, const char *folder, uint64_t seed, char error[TEMPLATE_ERROR]) {
    expansion e = {.folder = folder, .state = seed, .error = error};
    return expand(&e, text);
}

char *template_next(combinations *c, const char *text, const char *folder, char error[TEMPLATE_ERROR]) {
    error[0] = 0;
    if (c->begun) { /* the last choice that has another option takes it; those after it begin again */
        while (c->n && c->chosen[c->n - 1] + 1 >= c->of[c->n - 1]) c->n--;
        if (!c->n) return NULL;
        c->chosen[c->n - 1]++;
    }
    c->begun = true;
    expansion e = {.folder = folder, .walk = c, .error = error};
    return expand(&e, text);
}

void combinations_free(combinations *c) {
    free(c->chosen);
    free(c->of);
    *c = (combinations){.n = 0};
}
