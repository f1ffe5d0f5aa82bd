/* log.c: lines on stderr, as text or as JSON. Prompts and keys are private, so no line has them, unless --log-prompts asks
 * for the prompts. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "inside.h"

static void print_time(char to[32]) {
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(to, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

/* Prints an object as a line; releases it. */
static void print_json(json_t *line) {
    char *text = line ? json_dumps(line, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6)) : NULL;
    if (text) fprintf(stderr, "%s\n", text);
    free(text);
    json_decref(line);
}

void say_line(const front *f, const char *format, ...) {
    char text[600], when[32];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    lz_printable(text);
    print_time(when);
    if (f->options->log_json)
        print_json(json_pack("{s:s, s:s}", "time", when, "message", text));
    else
        fprintf(stderr, "%s %s\n", when, text);
}

void log_request(const request *r) {
    const front *f = r->front;
    const char *who = *r->who.owner ? r->who.owner : "-";
    double seconds = steady_seconds() - r->begun;
    char when[32], path[96], work[96] = "", address[80] = "";
    if (f->options->quiet) return;
    print_time(when);
    snprintf(path, sizeof path, "%s%s", r->route ? r->route->path : "-", r->route ? r->route->after : "");
    if (f->options->log_json) {
        json_t *line = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:I, s:f, s:b}", "time", when, "id", r->id, "who",
                                 who, "address", r->address, "method", r->method, "path", path, "status", r->status,
                                 "bytes", (json_int_t)r->received, "seconds", seconds, "gone", r->gone);
        if (r->outcome)
            json_object_update_new(
                line, json_pack("{s:f, s:f, s:s}", "wait", r->waited, "run", r->ran, "outcome", r->outcome));
        print_json(line);
        return;
    }
    if (r->who.by_key || !*r->who.owner) snprintf(address, sizeof address, " %s", r->address);
    if (r->outcome) snprintf(work, sizeof work, " (waited %.3f s, ran %.3f s, %s)", r->waited, r->ran, r->outcome);
    say_line(f, "%s %s%s %s %s %d %lld bytes %.3f s%s%s", r->id, who, address, r->method, path, r->status,
             (long long)r->received, seconds, work, r->gone ? " gone" : "");
}

void log_prompt(const front *f, const job *j) {
    const char *prompt = json_string_value(json_object_get(j->settings, "prompt"));
    if (f->options->log_prompts) say_line(f, "%s %s prompt: %s", j->id, j->owner, prompt ? prompt : "");
}
