/* hub.h: what a hub says of a model: the commit, its files, and which of them we need. Nothing of it is believed before
 * it is checked. */
#ifndef LZ_CLI_HUB_H
#define LZ_CLI_HUB_H

#include "pull/part.h"

typedef struct hub {
    web web;
    const char *repo, *revision;
    char commit[41];
    hub_file *files; /* those needed, small ones first */
    size_t n, room;
    int64_t bytes; /* of all of them */
} hub;

int hub_open(hub *h, const arguments *args); /* name, endpoint, token. An exit code; hub_close in any case. */
int hub_ask(hub *h);                         /* the commit and the files */
void hub_close(hub *h);

#endif
