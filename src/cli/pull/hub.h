/* hub.h: asks a hub for the commit and the files of a repository, and selects the needed ones: those of a model folder,
 * or single files. Answers are untrusted and checked. */
#ifndef LZ_CLI_HUB_H
#define LZ_CLI_HUB_H

#include "pull/part.h"

typedef struct hub {
    web web;
    const char *repo, *revision;
    const char *const *wanted; /* paths of single files, or the last parts of paths */
    size_t n_wanted;           /* 0: the files of a model folder */
    char offers[400];          /* some weight files of the repository, for errors */
    char commit[41];
    const char *index; /* of a model folder: name of the file that lists the parts */
    char licence[60];  /* as the repository states it; or "" */
    hub_file *files;   /* needed files, the smallest first */
    size_t n, room;
    int64_t bytes; /* of all needed files */
} hub;

/* Endpoint, token. Returns an exit code; call hub_close after an error too. */
int hub_open(hub *h, const arguments *args, const char *repo);
bool is_small_kind(const char *name); /* a configuration or a text, by the ending of its name */
int hub_ask(hub *h);                  /* the commit and the files */
void hub_close(hub *h);

#endif
