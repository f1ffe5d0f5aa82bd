/* axis.c: see axis.h. Values are separated by commas, or by bars: always in texts such as prompts, and elsewhere if there
 * is a bar. Bars inside of braces belong to a template. Numbers may be ranges: 1..5, 10..2:2, 0.2..0.8:0.1. */
#include "axis.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_text(const option *o) { return o->argument && strcmp(o->argument, "TEXT") == 0; }

static bool is_lora(const option *o) { return strcmp(o->name, "lora") == 0; }

/* Is a value such as 0..0.8 one value of the option, and no range of values? */
static bool takes_range(const option *o) { return o->argument && strcmp(o->argument, "A..B") == 0; }

static bool is_path(const option *o) {
    return o->argument && (strncmp(o->argument, "FILE", 4) == 0 || strcmp(o->argument, "DIR") == 0);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

typedef struct list {
    axis *axis;
    const arguments *args;
    const char *name; /* what was typed: "--x", "--y" or "/grid" */
    const char *file; /* for LoRAs: the start of the last value up to its weight, or the only file of --lora */
    size_t file_length;
} list;

static int add(const list *l, const char *start, size_t start_length, const char *value) {
    axis *a = l->axis;
    char *text = NULL, **more;
    if (a->n == MAX_PICTURES) return fail(l->args, NOT_UNDERSTOOD, "%s has more than %d values", l->name, MAX_PICTURES);
    if (asprintf(&text, "%.*s%s", (int)start_length, start, value) < 0) text = NULL;
    more = text ? realloc((void *)a->values, (size_t)(a->n + 1) * sizeof *more) : NULL;
    if (!more) {
        free(text);
        return fail(l->args, FAILED, "out of memory");
    }
    a->values = more;
    a->values[a->n++] = text;
    arguments probe = *l->args;
    return axis_apply(a, a->n - 1, &probe);
}

static int decimals_of(const char *number, const char *end) {
    const char *dot = memchr(number, '.', (size_t)(end - number));
    return dot ? (int)(end - dot) - 1 : 0;
}

static int bad_range(const list *l, const char *text) {
    return fail(l->args, NOT_UNDERSTOOD,
                "%s: '%s' is not a range such as 1..5 or 0.2..0.8:0.1, which goes from a number to another in steps",
                l->name, text);
}

/* Adds the values of FIRST..LAST or FIRST..LAST:STEP. */
static int add_range(const list *l, const char *start, size_t start_length, const char *text) {
    const char *dots = strstr(text, ".."), *colon = strchr(text, ':'), *last = dots + 2;
    char *ends[3], *before = strndup(text, (size_t)(dots - text)), number[64];
    if (!before) return fail(l->args, FAILED, "out of memory");
    double from = strtod(before, &ends[0]), to = strtod(last, &ends[1]), step = colon ? strtod(colon + 1, &ends[2]) : 1;
    int decimals = decimals_of(before, ends[0]), n = decimals_of(last, ends[1]);
    if (n > decimals) decimals = n;
    bool good = *before && !*ends[0] && ends[1] > last && *ends[1] == (colon ? ':' : 0) &&
                strspn(text, "0123456789.:-") == strlen(text) && fabs(from) < 0x1p53 && fabs(to) < 0x1p53;
    if (good && colon) {
        good = ends[2] > colon + 1 && !*ends[2] && step > 0;
        n = decimals_of(colon + 1, ends[2]);
        if (n > decimals) decimals = n;
    }
    free(before);
    if (!good || decimals > 15) return bad_range(l, text);
    if (!colon && decimals)
        return fail(l->args, NOT_UNDERSTOOD, "%s: the range '%s' needs steps, such as %s:0.1", l->name, text, text);
    double count = floor(fabs(to - from) / step + 1e-9) + 1;
    if (count > MAX_PICTURES)
        return fail(l->args, NOT_UNDERSTOOD, "%s: the range '%s' has more than %d values", l->name, text, MAX_PICTURES);
    int code = DONE;
    for (int i = 0; i < (int)count && code == DONE; i++) {
        snprintf(number, sizeof number, "%.*f", decimals, from + (to < from ? -i * step : i * step));
        code = add(l, start, start_length, number);
    }
    return code;
}

/* Does it look like FIRST..LAST? Names of files may contain dots too, but begin with something else. */
static bool is_range(const char *text) { return strstr(text, "..") && strspn(text, "0123456789.:-") == strlen(text); }

static bool is_number(const char *text) { return *text && strspn(text, "0123456789.-") == strlen(text); }

/* A LoRA is FILE=WEIGHT, or only the weight if the file is that of the value before it. */
static int add_lora(list *l, const char *item) {
    const char *equals = strrchr(item, '='), *weight = equals ? equals + 1 : item;
    if (equals) {
        l->file = item;
        l->file_length = (size_t)(weight - item);
    } else if (!is_number(item) && !is_range(item)) {
        l->file_length = 0;
        return add(l, "", 0, item);
    }
    if (!l->file_length)
        return fail(l->args, NOT_UNDERSTOOD, "%s: '%s' is a weight, and names no LoRA; write lora=FILE=%s", l->name,
                    item, item);
    return is_range(weight) ? add_range(l, l->file, l->file_length, weight) : add(l, l->file, l->file_length, weight);
}

static int add_item(list *l, const char *item) {
    const option *o = l->axis->option;
    if (is_lora(o)) return add_lora(l, item);
    return !is_text(o) && !is_path(o) && !takes_range(o) && is_range(item) ? add_range(l, "", 0, item)
                                                                           : add(l, "", 0, item);
}

/* Cuts the next item out of the text, which is changed. A bar after a backslash is part of the item. */
static char *next_item(char **text, char separator) {
    char *begin = *text, *to = begin, *at = begin;
    int depth = 0;
    if (!begin) return NULL;
    for (; *at && (depth || *at != separator); at++) {
        bool escape = *at == '\\' && at[1] && strchr("{}|", at[1]);
        if (escape && separator == '|' && at[1] == '|' && !depth)
            at++;
        else if (escape)
            *to++ = *at++;
        else if (separator == '|')
            depth += *at == '{' ? 1 : *at == '}' && depth ? -1 : 0;
        *to++ = *at;
    }
    *text = *at ? at + 1 : NULL;
    *to = 0;
    return begin;
}

static int read_values(list *l, char *text) {
    const option *o = l->axis->option;
    char separator = is_text(o) || strchr(text, '|') ? '|' : ',', *file = NULL;
    int code = DONE;
    if (is_lora(o) && l->args->n_loras == 1) { /* weights alone are those of the only --lora */
        const char *given = l->args->loras[0], *equals = strrchr(given, '=');
        size_t length = equals && is_number(equals + 1) ? (size_t)(equals - given) : strlen(given);
        if (asprintf(&file, "%.*s=", (int)length, given) < 0) file = NULL;
        l->file = file;
        l->file_length = file ? strlen(file) : 0;
    }
    for (char *item; code == DONE && (item = next_item(&text, separator));) {
        if (!is_text(o)) {
            item += strspn(item, " ");
            for (size_t n = strlen(item); n && item[n - 1] == ' ';) item[--n] = 0;
        }
        if (!*item && !is_text(o))
            code = fail(l->args, NOT_UNDERSTOOD, "%s: a value of %s is empty", l->name, o->name);
        else
            code = add_item(l, item);
    }
    free(file);
    return code;
}

/* ---- the axis ---------------------------------------------------------------------------------------------------- */

static int no_such_axis(const arguments *args, const char *typed, const char *name) {
    const option *nearest = nearest_option(name);
    char known[700] = "";
    if (nearest && is_axis(nearest))
        return fail(args, NOT_UNDERSTOOD, "%s: '%s' cannot be an axis; did you mean %s?", typed, name, nearest->name);
    for (size_t i = 0, n = 0; i < n_options && n < sizeof known; i++)
        if (is_axis(&options[i]))
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", options[i].name);
    return fail(args, NOT_UNDERSTOOD, "%s: '%s' cannot be an axis; an axis is one of %s", typed, name, known);
}

int take_axis(arguments *args, const option *o, const char *value) {
    const char **to = *o->name == 'x' ? &args->x : &args->y;
    if (*to)
        return fail(args, NOT_UNDERSTOOD,
                    "--%s is given twice; columns are --x, rows are --y, and there is one of each", o->name);
    *to = value;
    return DONE;
}

int axis_read(axis *a, const arguments *args, const char *typed, const char *text) {
    const char *equals = text ? strchr(text, '=') : NULL;
    *a = (axis){.n = 0};
    if (!text) {
        a->n = 1;
        return DONE;
    }
    if (!equals || equals == text)
        return fail(args, NOT_UNDERSTOOD, "%s takes NAME=VALUES, such as steps=2,4,8, not '%s'", typed, text);
    char *name = strndup(text, (size_t)(equals - text)), *values = strdup(equals + 1);
    const option *o = name ? find_option(name, strlen(name)) : NULL;
    int code;
    if (!name || !values)
        code = fail(args, FAILED, "out of memory");
    else if (!o || !is_axis(o))
        code = no_such_axis(args, typed, name);
    else {
        a->option = o;
        code = read_values(&(list){.axis = a, .args = args, .name = typed}, values);
        if (code == DONE && is_text(o) && a->n == 1 && strchr(a->values[0], ','))
            note(args, "%s has one %s; bars separate several, as in 'a fox|a dog'", typed, o->name);
    }
    free(name);
    free(values);
    return code;
}

void axis_free(axis *a) {
    for (int i = 0; i < a->n && a->values; i++) free(a->values[i]);
    free((void *)a->values);
    *a = (axis){.n = 0};
}

int axis_apply(const axis *a, int i, arguments *args) {
    return a->option ? set_option(args, a->option, a->values[i]) : DONE;
}

char *axis_label(const axis *a, int i) {
    char *text = NULL;
    if (!a->option) return strdup("");
    const char *value = a->values[i];
    if (is_path(a->option)) value = base_name(value);
    bool alone = is_text(a->option);
    return asprintf(&text, "%s%s%s", alone ? "" : a->option->name, alone ? "" : " ", value) < 0 ? NULL : text;
}

char *axis_text(const axis *a, bool full_paths) {
    char *text = NULL;
    size_t size = 0;
    bool bars = false;
    FILE *to = a->option ? open_memstream(&text, &size) : NULL;
    if (!to) return NULL;
    for (int i = 0; i < a->n; i++) bars = bars || is_text(a->option) || strpbrk(a->values[i], ",|");
    fprintf(to, "%s=", a->option->name);
    for (int i = 0; i < a->n; i++) {
        const char *value = is_path(a->option) && !full_paths ? base_name(a->values[i]) : a->values[i];
        if (i) fputc(bars ? '|' : ',', to);
        int depth = 0;
        for (; *value; value++) { /* bars outside of braces get their backslash back */
            if (*value == '\\' && value[1] && strchr("{}", value[1]))
                fputc(*value++, to);
            else
                depth += *value == '{' ? 1 : *value == '}' && depth ? -1 : 0;
            if (*value == '|' && !depth) fputc('\\', to);
            fputc(*value, to);
        }
    }
    return fclose(to) == 0 ? text : NULL;
}
