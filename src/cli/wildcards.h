/* wildcards.h: what a template (template.h) chooses from: the options of a choice, and the lines of files of
 * wildcards. */
#ifndef LZ_CLI_WILDCARDS_H
#define LZ_CLI_WILDCARDS_H

#include "template.h"

typedef struct alternative { /* one that can be chosen: a part of a text */
    const char *text;
    size_t length;
    double weight;
} alternative;

typedef struct wildcard { /* a file, in memory until the prompt is done */
    char *name, *text;    /* owned */
    alternative *lines;   /* owned */
    size_t n;
    struct wildcard *next;
} wildcard;

/* Removes blanks around the text, and reads the weight before "::". */
alternative alternative_read(const char *text, size_t length);

/* The file NAME.txt of the folder, read the first time that it is asked for; name has length bytes. *files: those that
 * were read before, which the caller frees, after an error too. NULL: error has one sentence. */
const wildcard *wildcard_find(wildcard **files, const char *folder, const char *name, size_t length,
                              char error[TEMPLATE_ERROR]);
void wildcards_free(wildcard *files);

#endif
