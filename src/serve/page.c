/* page.c: the page for browsers: / and /page/NAME. Its files are a table in the program, so no name becomes a path. */
#include "page.h"

#include <stdio.h>
#include <string.h>

#include "handlers.h"

/* The page loads nothing from elsewhere, runs no script that is not a file of the table, and cannot be framed. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; font-src "
    "'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static void reply_page(request *r, const char *name) {
    const page_file *f = page_files;
    while (f->name && strcmp(f->name, name) != 0) f++;
    if (!f->name) {
        reply_error(r, 404, "not_found", "", "the page has no such file");
        return;
    }
    const char *codings = header_of(r, "accept-encoding"), *known = header_of(r, "if-none-match");
    bool gzip = codings && strstr(codings, "gzip") && !strstr(codings, "gzip;q=0");
    char tag[40];
    snprintf(tag, sizeof tag, "\"%s%s\"", f->hash, gzip ? "-gzip" : "");
    if (known && strstr(known, tag))
        reply_empty(r, 304);
    else
        reply_constant(r, 200, f->type, gzip ? f->gzip : f->plain, gzip ? f->gzip_bytes : f->plain_bytes);
    if (gzip && r->status == 200) add_header(r, "content-encoding", "gzip");
    add_header(r, "etag", tag);
    add_header(r, "vary", "accept-encoding");
    add_header(r, "cache-control", "no-cache"); /* kept by the browser, and asked for by its tag */
    add_header(r, "content-security-policy", policy);
}

void handle_page(request *r) { reply_page(r, "index.html"); }
void handle_page_file(request *r) { reply_page(r, r->item); }
