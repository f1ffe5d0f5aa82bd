/* origin.c: see origin.h. */
#include "pull/origin.h"

#include <curl/curl.h>
#include <string.h>
#include <strings.h>

#include "pull/web.h"

enum { ADDRESS_LIMIT = 1 << 14 }; /* bytes */

static bool copy_part(CURLU *url, CURLUPart part, unsigned flags, char *to, size_t size) {
    char *text = NULL;
    bool good = curl_url_get(url, part, &text, flags) == CURLUE_OK && strlen(text) < size;
    if (good) snprintf(to, size, "%s", text);
    curl_free(text);
    return good;
}

bool origin_of(const char *address, origin *o) {
    CURLU *url = curl_url();
    bool good = url && strlen(address) < ADDRESS_LIMIT && curl_url_set(url, CURLUPART_URL, address, 0) == CURLUE_OK &&
                copy_part(url, CURLUPART_SCHEME, 0, o->scheme, sizeof o->scheme) &&
                copy_part(url, CURLUPART_HOST, 0, o->host, sizeof o->host) &&
                copy_part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT, o->port, sizeof o->port);
    curl_url_cleanup(url);
    return good && (strcasecmp(o->scheme, "http") == 0 || strcasecmp(o->scheme, "https") == 0);
}

bool same_origin(const char *a, const char *b) {
    origin x, y;
    return origin_of(a, &x) && origin_of(b, &y) && !strcasecmp(x.scheme, y.scheme) && !strcasecmp(x.host, y.host) &&
           !strcmp(x.port, y.port);
}

bool web_url(const char *text) {
    origin o;
    for (const char *c = text; *c; c++)
        if (*c <= 32 || *c >= 127 || strchr("@?#\\\"<>", *c)) return false;
    return strlen(text) < 400 && strstr(text, "://") && origin_of(text, &o);
}
