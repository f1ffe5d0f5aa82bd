/* part.h: a file that arrives: HASH.incomplete, which outlives breaks, Ctrl-C and kill, and takes its own name only when
 * its bytes are those that the hub lists. */
#ifndef LZ_CLI_PART_H
#define LZ_CLI_PART_H

#include "pull/web.h"

typedef struct hub_file {
    char *path;    /* in the repository, checked: FOLDER/NAME or NAME */
    char hash[65]; /* hexadecimal: SHA-256 of large files, what git calls a blob of small ones (SHA-1) */
    bool large;
    int64_t size;
} hub_file;

typedef struct part {
    const hub_file *file;
    char *growing, *whole; /* owned paths: while it arrives, and then */
    char *link;            /* owned: a name to point at whole; or NULL */
    bool trusted;          /* whole is named by its hash, so its size tells enough */
    int fd;
    struct evp_md_ctx_st *hash;
    int damaged; /* how often */
} part;

extern const sink to_part;              /* get.to is a part */
int64_t part_bytes_there(const part *); /* as far as sizes tell */
bool make_folders(const char *path);    /* all above the last slash; false: errno */

#endif
