/* origin.h: the origin of an address: its scheme, host and port. */
#ifndef LZ_CLI_ORIGIN_H
#define LZ_CLI_ORIGIN_H

#include <stdbool.h>

typedef struct origin {
    char scheme[8], host[256], port[8];
} origin;

bool origin_of(const char *address, origin *o); /* false: not an address that we accept */
bool same_origin(const char *a, const char *b);

#endif
