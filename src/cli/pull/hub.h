/* hub.h: asks a hub for the commit and the files of a model, and selects the needed ones. Answers are untrusted and
 * checked. */
#ifndef LZ_CLI_HUB_H
#define LZ_CLI_HUB_H

#include "pull/part.h"

typedef struct hub {
    web web;
    const char *repo, *revision;
    char commit[41];
    hub_file *files; /* needed files, the smallest first */
    size_t n, room;
    int64_t bytes; /* of all needed files */
} hub;

/* name, endpoint, token. Returns an exit code; call hub_close after an error too. */
int hub_open(hub *h, const arguments *args);
int hub_ask(hub *h); /* the commit and the files */
void hub_close(hub *h);

#endif
