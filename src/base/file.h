/* file.h: files as the library uses them: mapped whole for reading, written whole or not at all. */
#ifndef LZ_FILE_H
#define LZ_FILE_H

#include <time.h>

#include "base/base.h"

/* A file seen as memory, counted, so that arrays which borrow from it may outlive whoever opened it. A file that becomes
 * shorter while it is mapped takes its pages along: reading them raises SIGBUS. The library looks before each picture
 * (lz_check_mappings); a program that wants to end with a sentence in the middle of one needs a handler. */
typedef struct lz_mapping {
    lz_context *ctx;
    const char *data;
    int64_t bytes;
    _Atomic int64_t refs;
    char *path; /* of a mapped file, owned; NULL: somebody else's memory, and nothing below is set */
    int fd;
    struct timespec modified;           /* when it was mapped */
    struct lz_mapping *next, *previous; /* among the files of the context, under its lock */
} lz_mapping;

lz_mapping *lz_map_file(lz_context *ctx, const char *path, lz_error *err);
lz_mapping *lz_map_memory(lz_context *ctx, const void *data, int64_t bytes, lz_error *err); /* data must stay */
lz_mapping *lz_mapping_retain(lz_mapping *mapping);
void lz_mapping_release(void *mapping); /* takes void * so that lz_borrow can call it */
/* LZ_OK if every file that this context has mapped has the size and the time it had then. A file that was replaced by
 * another of its name is still there for us, and unchanged. */
lz_status lz_check_mappings(lz_context *ctx, lz_error *err);
void lz_mapping_drop(const lz_mapping *mapping, int64_t begin, int64_t end); /* these pages are not needed soon */

/* Writes go to a new file beside path, which takes its name when everything is on the disk. A file that was there leaves its
 * permissions to the new one; a link stays, and the file that it leads to is replaced. */
typedef struct lz_writer {
    lz_context *ctx;
    const char *path;
    char *temporary;     /* the target's name with an ending of its own; NULL: not writing a file */
    size_t target_bytes; /* of temporary: the target's name */
    int fd;
    int64_t end; /* of what was added */
} lz_writer;

lz_status lz_writer_open(lz_writer *writer, lz_context *ctx, const char *path, lz_error *err);
lz_status lz_writer_add(lz_writer *writer, const void *data, int64_t bytes, lz_error *err);
/* At its place, from any thread: for files whose size is known before. */
lz_status lz_writer_put(lz_writer *writer, int64_t place, const void *data, int64_t bytes, lz_error *err);
lz_status lz_writer_commit(lz_writer *writer, lz_error *err);
/* Into memory, where name stands in errors only; all bytes that were added, from lz_host_alloc, or NULL; then discard it. */
lz_status lz_writer_open_memory(lz_writer *writer, lz_context *ctx, const char *name, lz_error *err);
char *lz_writer_bytes(lz_writer *writer, lz_error *err);
void lz_writer_discard(lz_writer *writer); /* after a failure; does nothing after a commit */

#endif
