/* say.c: errors, notes, JSON and numbers with units. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

/* ---- sentences --------------------------------------------------------------------------------------------------- */

/* Does the terminal understand escape sequences? $TERM must be set, and not "dumb". */
static bool has_sequences(void) {
    const char *kind = getenv("TERM");
    return kind && *kind && strcmp(kind, "dumb") != 0;
}

const char *colour(FILE *to, const char *code) {
    const char *none = getenv("NO_COLOR");
    return isatty(fileno(to)) && !(none && *none) && has_sequences() ? code : "";
}

bool lines_move(void) { return isatty(STDERR_FILENO) && has_sequences(); }

static void say_list(FILE *to, const char *format, va_list list) {
    char *text = NULL;
    size_t n = strlen(format);
    if (vasprintf(&text, format, list) < 0) return; /* out of memory */
    bool line = n && format[n - 1] == '\n';
    if (line) text[strlen(text) - 1] = 0;
    fputs(lz_printable(text), to);
    if (line) fputc('\n', to);
    free(text);
}

void say(FILE *to, const char *format, ...) {
    va_list list;
    va_start(list, format);
    say_list(to, format, list);
    va_end(list);
}

static void say_where(const arguments *args) {
    if (args->line) fprintf(stderr, "line %lld: ", (long long)args->line);
    if (args->where) say(stderr, "%s: ", args->where);
}

int fail(const arguments *args, int code, const char *format, ...) {
    char text[1200];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    lz_printable(text);
    fprintf(stderr, "%slazuli:%s ", colour(stderr, "\033[1;31m"), colour(stderr, "\033[0m"));
    say_where(args);
    fprintf(stderr, "%s\n", text);
    if (args->json) {
        bool batch = args->command && args->command->bit == BATCH; /* one line per answer */
        json_t *object = json_pack("{s:o}", "error", json_text(text));
        if (args->where) json_object_set_new(object, "file", json_text(args->where));
        if (args->line) json_object_set_new(object, "line", json_integer(args->line));
        json_dumpf(object, stdout, JSON_ENSURE_ASCII | (batch ? 0 : JSON_INDENT(1)));
        putchar('\n');
        json_decref(object);
    }
    return code;
}

int fail_elsewhere(const arguments *args, const char *name, const char *instead, const lz_error *err) {
    if (is_by_line(args, name)) return fail(args, FAILED, "%s; this line names it", err->text);
    return fail(args, FAILED, "%s; the settings name it, and %s chooses another", err->text, instead);
}

int fail_with(const arguments *args, const lz_error *err) {
    return fail(args, err->status == LZ_CANCELLED ? STOPPED : FAILED, "%s", err->text);
}

void note(const arguments *args, const char *format, ...) {
    char *text = NULL;
    va_list list;
    va_start(list, format);
    bool good = !args->quiet && vasprintf(&text, format, list) >= 0;
    va_end(list);
    if (!good || json_object_get(args->said, text)) {
        if (good) free(text);
        return;
    }
    if (args->said) json_object_set_new(args->said, text, json_true());
    fputs("lazuli: ", stderr);
    say_where(args);
    say(stderr, "%s", text);
    fputc('\n', stderr);
    free(text);
}

void note_once(const arguments *args, const char *text) {
    if (json_object_get(args->once, text)) return;
    if (args->once) json_object_set_new(args->once, text, json_true());
    note(args, "%s", text);
}

void say_remark(void *user, lz_log_level level, const char *text) {
    (void)user;
    if (level == LZ_LOG_REMARK) say(stderr, "lazuli: %s\n", text);
}

/* After a failed write the buffered data is lost, and a later fflush alone would succeed, so the stream's error flag is
 * checked too. */
int flush_output(const arguments *args) {
    struct pollfd reader = {.fd = STDOUT_FILENO};
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return DONE;
    /* The reader is gone, as with `| head -1`: not an error. */
    if (poll(&reader, 1, 0) == 1 && reader.revents & POLLERR) return UNREAD;
    return fail(args, FAILED, "cannot write the output: %s", errno ? strerror(errno) : "an earlier write failed");
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

json_t *json_text(const char *text) {
    if (!text) return json_null();
    json_t *string = json_string(text);
    char *copy = string ? NULL : strdup(text);
    if (!copy) return string;
    for (char *c = copy; *c; c++)
        if ((unsigned char)*c >= 128) *c = '?';
    string = json_string(copy);
    free(copy);
    return string;
}

json_t *json_milliseconds(double seconds) { return json_real(round(seconds * 1e6) / 1e3); }

int print_json(const arguments *args, json_t *object) {
    if (!object) return fail(args, FAILED, "out of memory");
    /* ASCII only, because JSON may contain the control characters U+0080 to U+009F unescaped */
    char *text = json_dumps(object, JSON_ENSURE_ASCII | JSON_INDENT(1) | JSON_REAL_PRECISION(12));
    json_decref(object);
    if (!text) return fail(args, FAILED, "out of memory");
    puts(text);
    free(text);
    return flush_output(args);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static figure scaled(double value, double step, const char *const *units, int n, const char *format) {
    figure f;
    int unit = 0;
    for (; value >= step && unit < n - 1; unit++) value /= step;
    snprintf(f.text, sizeof f.text, unit ? format : "%.0f %s", value, units[unit]);
    return f;
}

figure show_bytes(int64_t bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    return scaled((double)bytes, 1024, units, COUNT(units), "%.1f %s");
}

figure show_flops(double flops) {
    static const char *const units[] = {"flop", "kflop", "Mflop", "Gflop", "Tflop", "Pflop"};
    return scaled(flops, 1000, units, COUNT(units), "%.2f %s");
}

figure show_seconds(double seconds) {
    figure f;
    if (seconds < 1)
        snprintf(f.text, sizeof f.text, "%.0f ms", seconds * 1e3);
    else if (seconds < 60)
        snprintf(f.text, sizeof f.text, "%.1f s", seconds);
    else if (seconds < 3600)
        snprintf(f.text, sizeof f.text, "%.0fm%02.0fs", floor(seconds / 60), floor(fmod(seconds, 60)));
    else
        snprintf(f.text, sizeof f.text, "%.0fh%02.0fm", floor(seconds / 3600), floor(fmod(seconds, 3600) / 60));
    return f;
}

figure show_steps(int run, int all) {
    figure f;
    if (run == all)
        snprintf(f.text, sizeof f.text, "%d step%s", run, run == 1 ? "" : "s");
    else
        snprintf(f.text, sizeof f.text, "%d of %d steps", run, all);
    return f;
}

int64_t bytes_of(const lz_array *a) { return lz_size(a) * lz_dtype_size(lz_type(a)); }

double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void print_masked(const char *text, int width, int most) {
    char *shown = strdup(text);
    int column = 0;
    for (const char *c = lz_printable(shown); c && *c && (column < most || (*c & 0xc0) == 0x80); c++) {
        putchar(*c);
        column += (*c & 0xc0) != 0x80; /* only the first byte of a UTF-8 character takes a column */
    }
    for (; column < width; column++) putchar(' ');
    free(shown);
}

/* The library checks this too, but only after the model is opened. */
int check_text(const arguments *args, const char *what, const char *text) {
    json_t *string = text ? json_string(text) : json_null();
    bool good = string != NULL;
    json_decref(string);
    return good ? DONE : fail(args, FAILED, "the %s is not valid UTF-8; does the terminal use another encoding?", what);
}
