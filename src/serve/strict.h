/* strict.h: is the head of a request one that all readers understand in the same way? */
#ifndef LZ_SERVE_STRICT_H
#define LZ_SERVE_STRICT_H

#include "inside.h"

typedef struct request_line { /* as libmicrohttpd gives it */
    const char *method, *url, *version;
} request_line;

/* Called once for each request, before its body. false: p says why it is refused. */
bool strict_check(request *r, const request_line *line, problem *p);

#endif
