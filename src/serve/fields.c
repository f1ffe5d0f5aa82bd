/* fields.c: see fields.h. */
#include "fields.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

enum { MOST_DEPTH = 64, MOST_VALUES = 100000 }; /* Jansson takes some 240 bytes for an empty object */

/* Why the JSON is not parsed; NULL: it may be. */
static const char *too_much(const buffer *b) {
    int depth = 0, values = 0;
    bool quoted = false;
    for (size_t i = 0; i < b->size; i++) {
        char c = b->data[i];
        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (quoted)
            continue;
        else if ((c == '[' || c == '{') && ++depth > MOST_DEPTH)
            return "the JSON is nested more than 64 levels deep";
        else if ((c == ',' || c == '[' || c == '{') && ++values > MOST_VALUES)
            return "the JSON has more than 100000 values";
        else if (c == ']' || c == '}')
            depth--;
    }
    return NULL;
}

/* Why the parser refuses a text. */
static const char *json_fault(const json_error_t *why) {
    static const struct {
        enum json_error_code code;
        const char *text;
    } faults[] = {
        {json_error_premature_end_of_input, "it ends too early"},
        {json_error_end_of_input_expected, "there is something after its end"},
        {json_error_invalid_utf8, "it is not UTF-8"},
        {json_error_null_character, "a text must not have \\u0000"},
        {json_error_null_byte_in_key, "a name must not have \\u0000"},
        {json_error_duplicate_key, "a name is there twice"},
        {json_error_numeric_overflow, "a number is too large"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if (json_error_code(why) == faults[i].code) return faults[i].text;
    return "this is not JSON";
}

/* A field that is null is the same as one that is left out. */
static void drop_nulls(json_t *object) {
    const char *name;
    json_t *value;
    void *next;
    json_object_foreach_safe(object, next, name, value) {
        if (json_is_null(value)) json_object_del(object, name);
    }
}

json_t *body_json(request *r) {
    json_error_t why;
    const char *much = too_much(&r->body);
    json_t *body = much ? NULL
                        : json_loadb(r->body.data ? r->body.data : "", r->body.size, JSON_REJECT_DUPLICATES, &why);
    if (json_is_object(body)) {
        drop_nulls(body);
        return body;
    }
    if (much)
        reply_error(r, 400, "invalid_json", "", "%s", much);
    else if (!body)
        reply_error(r, 400, "invalid_json", "", "the body cannot be read: line %d, column %d: %s", why.line, why.column,
                    json_fault(&why));
    else
        reply_error(r, 400, "invalid_json", "", "the body is not a JSON object");
    json_decref(body);
    return NULL;
}

static json_t *whole_number(const char *text) {
    char *end = NULL;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    bool plain = *text && strspn(text, "-0123456789") == strlen(text);
    return plain && !*end && !errno ? json_integer(number) : NULL;
}

bool asked_limit(request *r, int *limit) {
    char *text = query_of(r, "limit");
    json_t *number = text ? whole_number(text) : json_integer(50);
    json_int_t value = json_integer_value(number);
    bool good = number && value >= 1 && value <= MOST_LISTED;
    *limit = (int)value;
    if (!good) reply_error(r, 400, "invalid_value", "limit", "limit: must be a whole number from 1 to %d", MOST_LISTED);
    json_decref(number);
    free(text);
    return good;
}

/* Limits of short_fields: the number of fields, bytes of each, and of all together. */
enum { MOST_OTHERS = 64, MOST_OTHER = 4 << 10, MOST_NAME = 64, MOST_OTHER_BYTES = 64 << 10 };

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static const field *find_field(const field *table, const char *name) {
    for (; table->name; table++)
        if (strcmp(table->name, name) == 0) return table;
    return NULL;
}

void each_choice(const field *f, void (*each)(void *user, const char *word, size_t n), void *user) {
    for (const char *at = f->choices; at && *at;) {
        size_t n = strcspn(at, " ");
        each(user, at, n);
        at += n + strspn(at + n, " ");
    }
}

typedef struct listing { /* the choices of a field as a list, and whether a text is one of them */
    const char *given;
    bool found;
    char list[200];
} listing;

static void add_choice(void *user, const char *word, size_t n) {
    listing *l = user;
    size_t used = strlen(l->list);
    l->found = l->found || (strlen(l->given) == n && strncmp(l->given, word, n) == 0);
    bool last = !word[n];
    snprintf(l->list + used, sizeof l->list - used, "%s%.*s", !used ? "" : last ? " and " : ", ", (int)n, word);
}

/* An empty text is the same as nothing. */
static bool check_choice(const field *f, const json_t *value, problem *p) {
    listing l = {.given = json_string_value(value)};
    each_choice(f, add_choice, &l);
    if (!f->choices || !*l.given || l.found) return true;
    return set_problem(p, 400, "unsupported_value", f->name, "%s: '%.30s' is not one of %s", f->name, l.given, l.list);
}

static bool check_text(const field *f, const json_t *value, problem *p) {
    if (!json_is_string(value)) return set_problem(p, 400, "invalid_type", f->name, "%s: must be text", f->name);
    if (f->high > 0 && (double)json_string_length(value) > f->high)
        return set_problem(p, 400, "invalid_value", f->name, "%s: has more than %.0f bytes", f->name, f->high);
    return check_choice(f, value, p);
}

static bool check_number(const field *f, const json_t *value, problem *p) {
    bool whole = f->kind == INTEGER;
    if (whole ? !json_is_integer(value) : !json_is_number(value))
        return set_problem(p, 400, "invalid_type", f->name, "%s: must be a %s", f->name,
                           whole ? "whole number" : "number");
    double number = json_number_value(value);
    if (!(number >= f->low && number <= f->high))
        return set_problem(p, 400, "invalid_value", f->name, "%s: must be from %.15g to %.15g", f->name, f->low,
                           f->high);
    return true;
}

static bool check_value(const field *f, const json_t *value, problem *p) {
    switch (f->kind) {
    case TEXT: return check_text(f, value, p);
    case INTEGER:
    case NUMBER: return check_number(f, value, p);
    case FLAG:
        return json_is_boolean(value) ||
               set_problem(p, 400, "invalid_type", f->name, "%s: must be true or false", f->name);
    default: return true;
    }
}

bool take_fields(request *r, const field *table, const json_t *fields, json_t *settings, bool strict, problem *p) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)fields, name, value) {
        const field *f = find_field(table, name);
        if (json_is_null(value)) continue;
        if (!f && strict) return set_problem(p, 400, "unknown_parameter", name, "there is no field '%.60s'", name);
        if (f && f->use == UNSUPPORTED)
            return set_problem(p, 400, "unsupported_parameter", name, "%s: is not supported by this server", name);
        if (f && !check_value(f, value, p)) return false;
        if (!f || f->use == NO_EFFECT) note_ignored(r, name);
        if (f && f->use == TAKEN && json_object_set(settings, f->to ? f->to : f->name, value) != 0)
            return set_problem(p, 500, "out_of_memory", "", "out of memory");
    }
    return true;
}

void note_fields(request *r, const field *table, const json_t *fields, const char *setting) {
    for (const field *f = table; f->name; f++)
        if (strcmp(f->to ? f->to : f->name, setting) == 0 && json_object_get(fields, f->name)) note_ignored(r, f->name);
}

json_t *short_fields(const field *table, const json_t *fields) {
    json_t *kept = json_object(), *value;
    const char *name;
    size_t left = MOST_OTHER_BYTES;
    int others = 0;
    json_object_foreach((json_t *)fields, name, value) {
        const field *f = find_field(table, name);
        bool is_checked = f && f->kind != ANYTHING;
        bool is_short = !json_is_object(value) && !json_is_array(value) && json_string_length(value) <= MOST_OTHER &&
                        strlen(name) <= MOST_NAME;
        size_t bytes = strlen(name) + json_string_length(value);
        if (!is_checked && (!is_short || bytes > left || others++ >= MOST_OTHERS)) continue;
        if (!is_checked) left -= bytes;
        json_object_set(kept, name, value);
    }
    return kept;
}

static json_t *any_number(const char *text) {
    char *end = NULL;
    double number = strtod(text, &end);
    bool plain = *text && strspn(text, "-+.eE0123456789") == strlen(text);
    json_t *whole = whole_number(text);
    return whole ? whole : plain && !*end ? json_real(number) : NULL;
}

json_t *form_value(const field *table, const char *name, const char *text, size_t size, problem *p) {
    const field *f = find_field(table, name);
    field_kind kind = f ? f->kind : TEXT;
    char number[64] = "";
    if (size > MOST_FIELD) return set_problem(p, 400, "invalid_value", name, "%s: has more than 128 KiB", name), NULL;
    if (memchr(text, 0, size) || !is_utf8(text, size))
        return set_problem(p, 400, "invalid_value", name, "%s: is not UTF-8 text", name), NULL;
    if (size < sizeof number) memcpy(number, text, size);
    json_t *value = kind == INTEGER                ? whole_number(number)
                    : kind == NUMBER               ? any_number(number)
                    : kind != FLAG                 ? json_stringn(text, size)
                    : strcmp(number, "true") == 0  ? json_true()
                    : strcmp(number, "false") == 0 ? json_false()
                                                   : NULL;
    if (!value)
        set_problem(p, 400, "invalid_type", name, "%s: is not %s", name, kind == FLAG ? "true or false" : "a number");
    return value;
}
