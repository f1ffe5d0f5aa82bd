/* problem.c: errors as clients see them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "inside.h"

/* Codes that a job can end with, and what a code means for a request. */
static const struct {
    const char *code;
    int status;
    bool again; /* another try may help */
} codes[] = {
    {"invalid_value", 400, false},
    {"invalid_image", 400, false},
    {"picture_too_large", 400, false},
    {"unsupported_value", 400, false},
    {"cancelled", 400, false},
    {"model_not_found", 404, false},
    {"generation_failed", 500, false},
    {"out_of_memory", 500, false},
    {"device_failed", 500, true},
    {"worker_lost", 500, false},
    {"insufficient_storage", 507, false},
    {"queue_timeout", 503, true},
    {"draining", 503, true},
    {"not_ready", 503, true},
    {"paused", 503, true},
    {"too_many_connections", 503, true},
};

static const char *type_of(const problem *p) {
    if (p->code && strcmp(p->code, "cancelled") == 0) return "cancelled_error";
    if (p->status == 403) return "permission_error";
    if (p->status == 429) return "rate_limit_error";
    return p->status >= 500 ? "server_error" : "invalid_request_error";
}

bool set_problem(problem *p, int status, const char *code, const char *param, const char *format, ...) {
    va_list list;
    *p = (problem){.status = status, .code = code};
    va_start(list, format);
    vsnprintf(p->text, sizeof p->text, format, list);
    va_end(list);
    snprintf(p->param, sizeof p->param, "%s", param);
    lz_printable(p->text); /* also where a character was cut */
    lz_printable(p->param);
    return false;
}

json_t *problem_json(const problem *p) {
    bool named = *p->param && p->status != 405;
    return json_pack("{s:{s:s, s:s, s:o, s:o}}", "error", "message", p->text, "type", type_of(p), "param",
                     named ? json_string(p->param) : json_null(), "code", p->code ? json_string(p->code) : json_null());
}

json_t *problem_detail(const problem *p) {
    const char *code = p->code ? p->code : "error";
    if (p->status == 400 && *p->param)
        return json_pack("{s:[{s:[s, s], s:s, s:s}], s:s}", "detail", "loc", "body", p->param, "msg", p->text, "type",
                         "value_error", "error", code);
    return json_pack("{s:s, s:s}", "detail", p->text, "error", code);
}

int problem_status(const char *code) {
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strcmp(codes[i].code, code) == 0) return codes[i].status;
    return 500;
}

bool may_help_again(const char *code) {
    for (size_t i = 0; code && i < sizeof codes / sizeof *codes; i++)
        if (strcmp(codes[i].code, code) == 0) return codes[i].again;
    return false;
}

const char *constant_code(const char *code) {
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strcmp(codes[i].code, code) == 0) return codes[i].code;
    return "generation_failed";
}
