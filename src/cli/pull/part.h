/* part.h: a file that is being downloaded: HASH.incomplete, which survives broken connections, Ctrl-C and kill. It gets
 * its final name only if its hash is the one that the hub lists. */
#ifndef LZ_CLI_PART_H
#define LZ_CLI_PART_H

#include "pull/web.h"

typedef struct hub_file {
    char *path;    /* path in the repository, checked */
    char hash[65]; /* hexadecimal: SHA-256 of large files, git's blob hash (SHA-1) of small ones */
    bool large;
    int64_t size;
} hub_file;

typedef struct part {
    const hub_file *file;
    int root; /* descriptor of the folder to which the paths below are relative, and its name; owned by the caller */
    const char *root_name;
    char *growing, *whole; /* owned paths: of the incomplete and of the complete file */
    char *link;            /* owned: path of a link to whole; or NULL */
    bool trusted;          /* an existing file of the right size is accepted without computing its hash */
    bool unchecked;        /* it was accepted that way */
    int fd;
    struct evp_md_ctx_st *hash;
    int damaged; /* number of downloads with a wrong hash */
} part;

extern const sink to_part;              /* get.to is a part */
int64_t part_bytes_there(const part *); /* by sizes only */
bool make_folders(const char *path);    /* makes all folders of the path up to the last slash; false: see errno */

/* Opens the folder of a path below root, and makes missing folders. No component may be a link, so that nothing outside
 * root is written or removed. Returns a descriptor, which the caller closes, or -1: see errno, ELOOP for a link. */
int open_folder_of(int root, const char *path);
const char *why_not_written(void); /* a sentence for errno after an error of these functions */

#endif
