/* fields.c: see fields.h. */
#include "fields.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static bool is_too_deep(const buffer *b) {
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < b->size; i++) {
        char c = b->data[i];
        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '[' || c == '{') && ++depth > 64)
            return true;
        else if (!quoted && (c == ']' || c == '}'))
            depth--;
    }
    return false;
}

json_t *body_json(request *r) {
    json_error_t why;
    bool deep = is_too_deep(&r->body);
    json_t *body = deep ? NULL
                        : json_loadb(r->body.data ? r->body.data : "", r->body.size, JSON_REJECT_DUPLICATES, &why);
    if (json_is_object(body)) return body;
    if (deep)
        reply_error(r, 400, "invalid_json", "", "the JSON is nested more than 64 levels deep");
    else if (!body)
        reply_error(r, 400, "invalid_json", "", "the body is not JSON: line %d: %.200s", why.line, why.text);
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

/* ---- fields ------------------------------------------------------------------------------------------------------ */

static const field *find_field(const field *table, const char *name) {
    for (; table->name; table++)
        if (strcmp(table->name, name) == 0) return table;
    return NULL;
}

static bool check_text(const field *f, const json_t *value, problem *p) {
    if (!json_is_string(value)) return set_problem(p, 400, "invalid_type", f->name, "%s: must be text", f->name);
    if (f->high > 0 && (double)json_string_length(value) > f->high)
        return set_problem(p, 400, "invalid_value", f->name, "%s: has more than %.0f bytes", f->name, f->high);
    return true;
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
