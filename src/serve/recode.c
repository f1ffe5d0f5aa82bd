/* recode.c: GET /api/v1/pictures/ID/file.png, file.jpg and file.webp: a picture in a format of the client's choice, with its
 * settings. The worker decodes and encodes it, because the front has one thread for all clients. */
#include <stdlib.h>
#include <string.h>

#include "handlers.h"
#include "store.h"

/* The format that the end of the route names. */
static const char *route_format(const request *r) {
    const char *dot = strrchr(r->route->after, '.');
    return strcmp(dot, ".png") == 0 ? "png" : strcmp(dot, ".jpg") == 0 ? "jpeg" : "webp";
}

void handle_picture_recode(request *r) {
    front *f = r->front;
    const char *format = route_format(r);
    picture p;
    if (!asked_picture(r, &p)) return;
    bool same = strcmp(p.format, format) == 0;
    char *path = same ? NULL : picture_path(f, &p);
    json_decref(p.facts);
    if (same)
        handle_picture_file(r);
    else if (!f->store->kind->own_worker)
        reply_error(r, 400, "unsupported_value", "",
                    "a server of a fleet does not convert; /file has the picture as it is");
    else if (!path)
        reply_missing(r, path);
    else if (!plan_may_ask(f))
        reply_error(r, 429, "queue_full", "", "too many plans and conversions are being made");
    else if (!plan_ask(r,
                       json_pack("{s:s, s:s, s:s}", "type", "recode", "path", path, "ending", format_ending(format)))) {
        f->child.asleep = false;
        reply_error(r, 503, "not_ready", "", "no model is loaded yet");
    }
    free(path);
}

void recode_arrived(front *f, const json_t *message, buffer *bytes) {
    const char *ask = json_string_value(json_object_get(message, "ask"));
    const char *code = json_string_value(json_object_get(message, "code"));
    request *r = f->requests;
    while (r && ask && strcmp(r->ask, ask) != 0) r = r->next;
    if (!r || !ask) return;
    *r->ask = 0;
    if (code)
        reply_error(r, problem_status(code), constant_code(code), "", "the picture cannot be converted");
    else {
        reply_bytes(r, 200, format_type(route_format(r)), bytes);
        add_header(r, "content-security-policy", "sandbox; default-src 'none'");
        add_header(r, "content-disposition", "inline");
        add_header(r, "cache-control", "private, no-store");
    }
    wake(r);
}
