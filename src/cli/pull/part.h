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
    int root; /* the folder that the paths below begin in, and its name; the caller's */
    const char *root_name;
    char *growing, *whole; /* owned paths: while it arrives, and then */
    char *link;            /* owned: a name to point at whole; or NULL */
    bool trusted;          /* a whole file of the right size is taken without computing its hash */
    bool unchecked;        /* that is how it was taken */
    int fd;
    struct evp_md_ctx_st *hash;
    int damaged; /* how often */
} part;

extern const sink to_part;              /* get.to is a part */
int64_t part_bytes_there(const part *); /* as far as sizes tell */
bool make_folders(const char *path);    /* all above the last slash; false: errno */

/* The folder of a path below root, made where it is missing. No name in the path may be a link: what is written or
 * removed there stays below root. A descriptor to close, or -1: errno, ELOOP for a link. */
int open_folder_of(int root, const char *path);
const char *why_not_written(void); /* the sentence for errno, after a failure of these */

#endif
