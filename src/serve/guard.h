/* guard.h: who may ask: Host, Origin, keys and sessions. */
#ifndef LZ_SERVE_GUARD_H
#define LZ_SERVE_GUARD_H

#include "inside.h"

/* Reads the keys. NULL: why has a sentence. */
guard *guard_new(const front *f, char *why, size_t size);
void guard_free(guard *g);
bool guard_read_keys(guard *g, char *why, size_t size); /* also again, on SIGHUP */
bool guard_has_keys(const guard *g);
/* Fills r->who, or p. */
bool guard_check(request *r, problem *p);
bool guard_origin_is_allowed(const guard *g, const char *origin); /* by --allow-origin */
/* A session for the key; writes its secret. false: p says why. */
bool guard_open_session(const request *r, const char *key, char secret[33], problem *p);
void guard_close_session(guard *g, const request *r);

#endif
