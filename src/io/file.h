/* file.h: files as the library uses them: mapped whole for reading, written whole or not at all. */
#ifndef LZ_FILE_H
#define LZ_FILE_H

#include "array/internal.h"

/* A file seen as memory, counted, so that arrays which borrow from it may outlive whoever opened it. */
typedef struct lz_mapping {
    lz_context *ctx;
    const char *data;
    int64_t bytes;
    bool mapped; /* false: somebody else's memory */
    _Atomic int64_t refs;
} lz_mapping;

lz_mapping *lz_map_file(lz_context *ctx, const char *path, lz_error *err);
lz_mapping *lz_map_memory(lz_context *ctx, const void *data, int64_t bytes, lz_error *err); /* data must stay */
lz_mapping *lz_mapping_retain(lz_mapping *mapping);
void lz_mapping_release(void *mapping); /* takes void * so that lz_borrow can call it */
void lz_mapping_drop(const lz_mapping *mapping, int64_t begin, int64_t end); /* these pages are not needed soon */

/* Writes go to a new file beside path, which takes its name when everything is on the disk. */
typedef struct lz_writer {
    lz_context *ctx;
    const char *path;
    char *temporary; /* NULL: not writing */
    int fd;
    int64_t end; /* of what was added */
} lz_writer;

lz_status lz_writer_open(lz_writer *writer, lz_context *ctx, const char *path, lz_error *err);
lz_status lz_writer_add(lz_writer *writer, const void *data, int64_t bytes, lz_error *err);
/* At its place, from any thread: for files whose size is known before. */
lz_status lz_writer_put(lz_writer *writer, int64_t place, const void *data, int64_t bytes, lz_error *err);
lz_status lz_writer_commit(lz_writer *writer, lz_error *err);
void lz_writer_discard(lz_writer *writer); /* after a failure; does nothing after a commit */

/* Names and paths in messages come from outside: long ones lose their middle, and bytes that could drive a terminal are
 * masked. */
#define LZ_SHOWN 168
const char *lz_show_text(const char *text, char to[LZ_SHOWN]);
#define LZ_SHOW_TEXT(text) lz_show_text(text, (char[LZ_SHOWN]){0})

char *lz_path_join(lz_context *ctx, const char *folder, const char *name); /* NULL: out of memory */

#endif
