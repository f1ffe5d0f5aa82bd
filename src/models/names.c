/* names.c: see names.h. */
#include "models/names.h"
#include "models/storage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 4, WORDS = 4 };

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

/* The texts that '#' and '*' of a pattern stand for. */
typedef struct matched {
    int64_t numbers[NUMBERS];
    struct {
        const char *text;
        size_t n;
    } words[WORDS];
    int n_numbers, n_words;
} matched;

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool match(const char *pattern, const char *text, matched *to) {
    *to = (matched){.n_numbers = 0};
    for (; *pattern; pattern++) {
        if (*pattern == '#') {
            const char *digits = text;
            while (is_digit(*text)) text++;
            if (text == digits || text - digits > 6 || to->n_numbers == NUMBERS) return false;
            to->numbers[to->n_numbers++] = strtoll(digits, NULL, 10);
        } else if (*pattern == '*') {
            size_t n = strcspn(text, ".");
            if (!n || to->n_words == WORDS) return false;
            to->words[to->n_words].text = text;
            to->words[to->n_words++].n = n;
            text += n;
        } else if (*pattern != *text++)
            return false;
    }
    return !*text;
}

/* {4a+b}: a sum of numbers and of the letters' values, each with a factor before it, or divided by what is after it. */
static int64_t compute(const char **at, const matched *m, int levels) {
    int64_t sum = 0, sign = 1;
    const char *p = *at + 1;
    for (; *p && *p != '}';) {
        if (*p == '+' || *p == '-') {
            sign = *p++ == '-' ? -1 : 1;
            continue;
        }
        int64_t value = 1;
        if (is_digit(*p)) value = strtoll(p, (char **)&p, 10);
        if (*p >= 'a' && *p <= 'z') {
            int64_t letter = *p == 'z' ? levels - 1 : m->numbers[(*p - 'a') % NUMBERS];
            char op = p[1];
            p++;
            if (op == '/' || op == '%') {
                int64_t by = strtoll(p + 1, (char **)&p, 10);
                letter = op == '/' ? letter / by : letter % by;
            }
            value *= letter;
        }
        sum += sign * value;
    }
    *at = p;
    return sum;
}

static bool fill_in(const char *pattern, const matched *m, int levels, char to[LZ_NAME_SIZE]) {
    size_t used = 0;
    int number = 0, word = 0;
    for (const char *p = pattern; *p; p++) {
        int n = 1;
        size_t room = LZ_NAME_SIZE - used;
        if (*p == '#' && number < m->n_numbers)
            n = snprintf(to + used, room, "%lld", (long long)m->numbers[number++]);
        else if (*p == '{')
            n = snprintf(to + used, room, "%lld", (long long)compute(&p, m, levels));
        else if (*p == '*' && word < m->n_words) {
            n = snprintf(to + used, room, "%.*s", (int)m->words[word].n, m->words[word].text);
            word++;
        } else
            n = snprintf(to + used, room, "%c", *p);
        if (n < 0 || (size_t)n >= room) return false;
        used += (size_t)n;
    }
    return true;
}

bool lz_names_spell(const lz_component *c, const char *module, int levels, int i, lz_spelling *to) {
    *to = (lz_spelling){.kind = LZ_ALIAS_COPY};
    if (i == 0) return (size_t)snprintf(to->name, sizeof to->name, "%s", module) < sizeof to->name;
    for (int k = 0; k < c->n_aliases; k++) {
        matched m;
        if (!match(c->aliases[k].engine, module, &m) || --i) continue;
        to->kind = c->aliases[k].kind;
        to->at = c->aliases[k].at;
        return fill_in(c->aliases[k].file, &m, levels, to->name);
    }
    return false;
}

/* ---- finding ----------------------------------------------------------------------------------------------------- */

/* Other last parts of a tensor's name: {in the file, the engine's}. */
static const char *const endings[][2] = {{"weight", "scale"}, {"gamma", "weight"}};
/* Endings that are added to the name of a packed matrix, whose companions give its shape (models/storage.c). */
static const char *const packed_endings[] = {"_packed"};

static bool join(char to[LZ_NAME_SIZE], const char *prefix, const char *module, const char *dot, const char *ending) {
    return (size_t)snprintf(to, LZ_NAME_SIZE, "%s%s%s%s", prefix, module, dot, ending) < LZ_NAME_SIZE;
}

static bool is_there(const lz_names *n, const char *name) {
    char packed[LZ_NAME_SIZE];
    if (lz_weights_has(n->weights, name)) return true;
    for (size_t i = 0; i < sizeof packed_endings / sizeof *packed_endings; i++)
        if (join(packed, name, packed_endings[i], "", "") && lz_weights_has(n->weights, packed)) return true;
    return false;
}

static lz_dims file_shape(const lz_names *n, const char *name) {
    lz_stored stored;
    if (lz_stored_find(n->weights, name, LZ_NONE, &stored, NULL) == LZ_OK) return stored.dims;
    return stored.tensor ? stored.tensor->dims : (lz_dims){.n = -1}; /* loading the tensor reports the error */
}

/* Whether two shapes are equal without their axes of length 1. */
static bool fits(lz_dims a, lz_dims b) {
    int i = 0, k = 0;
    for (;; i++, k++) {
        while (i < a.n && a.at[i] == 1) i++;
        while (k < b.n && b.at[k] == 1) k++;
        if (i >= a.n || k >= b.n) return i >= a.n && k >= b.n;
        if (a.at[i] != b.at[k]) return false;
    }
}

static void add_piece(lz_origin *to, const char *name, int64_t first, int64_t rows) {
    memcpy(to->pieces[to->n].name, name, LZ_NAME_SIZE);
    to->pieces[to->n].first = first;
    to->pieces[to->n++].rows = rows;
}

/* whole: the name in the file, with prefix and ending. */
static bool find_as(const lz_names *n, lz_alias_kind kind, int at, char whole[LZ_NAME_SIZE], lz_dims want,
                    lz_origin *to) {
    char other[LZ_NAME_SIZE];
    *to = (lz_origin){.n = 0};
    if (kind == LZ_ALIAS_QKV) {
        char *mark = strchr(whole, '@');
        for (int i = 0; mark && i < 3; i++) {
            *mark = "qkv"[i];
            if (!is_there(n, whole)) return false;
            add_piece(to, whole, 0, -1);
        }
        return mark;
    }
    if (!is_there(n, whole)) return false;
    lz_dims has = file_shape(n, whole);
    switch (kind) {
    case LZ_ALIAS_IF_FITS:
        if (want.n && !fits(has, want)) return false;
        add_piece(to, whole, 0, -1);
        return true;
    case LZ_ALIAS_FRAMES:
        if (!join(other, whole, ".1", "", "") || !is_there(n, other)) return false;
        add_piece(to, whole, 0, -1);
        add_piece(to, other, 0, -1);
        to->frames = true;
        return true;
    case LZ_ALIAS_SWAP:
        if (want.n < 1 || has.n < 1 || has.at[0] % 2) break;
        add_piece(to, whole, has.at[0] / 2, has.at[0] / 2);
        add_piece(to, whole, 0, has.at[0] / 2);
        return true;
    case LZ_ALIAS_ROWS: {
        if (want.n < 1 || has.n < 1) break;
        int64_t first = at < 0 ? has.at[0] + at * want.at[0] : at * want.at[0];
        /* The whole tensor is taken, and the loader refuses its shape. */
        if (first < 0 || first + want.at[0] > has.at[0]) break;
        add_piece(to, whole, first, want.at[0]);
        return true;
    }
    default: break;
    }
    add_piece(to, whole, 0, -1);
    return true;
}

/* name: the engine's name without the stem. */
static bool find_inner(const lz_names *n, const char *name, lz_dims want, lz_origin *to) {
    char module[LZ_NAME_SIZE], whole[LZ_NAME_SIZE];
    const char *dot = strrchr(name, '.'), *ending = dot ? dot + 1 : "";
    size_t length = dot ? (size_t)(dot - name) : strlen(name);
    if (length >= sizeof module) return false;
    memcpy(module, name, length);
    module[length] = 0;
    lz_spelling spelled;
    for (int i = 0; lz_names_spell(n->component, module, n->levels, i, &spelled); i++) {
        if (join(whole, n->prefix, spelled.name, dot ? "." : "", ending) &&
            find_as(n, spelled.kind, spelled.at, whole, want, to))
            return true;
        for (size_t k = 0; k < sizeof endings / sizeof *endings; k++)
            if (!strcmp(ending, endings[k][0]) && join(whole, n->prefix, spelled.name, ".", endings[k][1]) &&
                find_as(n, spelled.kind, spelled.at, whole, want, to))
                return true;
    }
    return false;
}

bool lz_names_find(const lz_names *n, const char *engine, lz_dims want, lz_origin *to) {
    size_t stem = strlen(n->component->stem);
    *to = (lz_origin){.n = 0};
    return !strncmp(engine, n->component->stem, stem) && find_inner(n, engine + stem, want, to);
}

lz_dims lz_names_shape(const lz_names *n, const char *name) {
    lz_origin from;
    return find_inner(n, name, (lz_dims){.n = 0}, &from) ? file_shape(n, from.pieces[0].name) : (lz_dims){.n = -1};
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bool has_anchors(const lz_names *n) {
    for (int i = 0; i < LZ_ANCHORS && n->component->anchors[i]; i++) {
        lz_origin from;
        if (!find_inner(n, n->component->anchors[i], (lz_dims){.n = 0}, &from)) return false;
    }
    return true;
}

/* A prefix with a '*' stands for the prefixes that the file has: text_encoders.*.transformer.model. */
static bool try_prefix(lz_names *n, const char *prefix) {
    const char *star = strchr(prefix, '*');
    if (!star) return join(n->prefix, prefix, "", "", "") && has_anchors(n);
    size_t before = (size_t)(star - prefix), behind = strlen(star + 1);
    char last[LZ_NAME_SIZE] = "";
    for (int64_t i = 0, all = lz_weights_count(n->weights); i < all; i++) {
        const char *name = lz_weights_name(n->weights, i);
        if (strncmp(name, prefix, before) != 0) continue;
        size_t word = strcspn(name + before, "."), length = before + word + behind;
        if (strncmp(name + before + word, star + 1, behind) != 0 || length >= sizeof last) continue;
        /* names are sorted, so this prefix was tried before */
        if (!strncmp(last, name, length) && !last[length]) continue;
        snprintf(last, sizeof last, "%.*s", (int)length, name);
        memcpy(n->prefix, last, sizeof last);
        if (has_anchors(n)) return true;
    }
    return false;
}

/* Kernels are square, so two equal neighbouring sizes are the axes of the kernel. */
static bool is_channels_last(const lz_names *n) {
    int last = 0, first = 0;
    for (int64_t i = 0, all = lz_weights_count(n->weights); i < all; i++) {
        lz_dims d = lz_weights_shape(n->weights, lz_weights_name(n->weights, i));
        if (d.n < 4 || d.n > 5) continue;
        bool at_end = d.at[d.n - 1] == d.at[d.n - 2], before = d.at[d.n - 2] == d.at[d.n - 3];
        first += at_end && !before;
        last += before && !at_end;
    }
    return last > first;
}

static int count_levels(const lz_names *n) {
    char name[LZ_NAME_SIZE];
    int levels = 0;
    for (; levels < 64; levels++) {
        snprintf(name, sizeof name, "%.*sdecoder.up.%d.block.0.conv1.weight", LZ_NAME_SIZE - 64, n->prefix, levels);
        if (!lz_weights_has(n->weights, name)) break;
    }
    return levels;
}

bool lz_names_open(lz_names *n, const lz_component *component, lz_weights *weights) {
    *n = (lz_names){.component = component, .weights = weights};
    for (int i = 0; i < LZ_PREFIXES && component->prefixes[i]; i++) {
        if (!try_prefix(n, component->prefixes[i])) continue;
        n->levels = count_levels(n);
        n->channels_last = is_channels_last(n);
        return true;
    }
    return false;
}
