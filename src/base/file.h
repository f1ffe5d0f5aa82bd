/* file.h: files: mapped as a whole for reading; written completely or not at all. */
#ifndef LZ_FILE_H
#define LZ_FILE_H

#include <sys/types.h>
#include <time.h>

#include "base/base.h"

/* A file mapped into memory, reference-counted: each array that borrows from it has a reference. A context maps a file
 * once: mapping it again returns the same mapping, also if the path is another name of the file. If a mapped file
 * becomes shorter, reading the missing pages raises SIGBUS. The library checks the files before each picture
 * (lz_check_mappings); a program that wants to report such a change during a picture needs a signal handler. */
typedef struct lz_mapping {
    lz_context *ctx;
    const char *data;
    int64_t bytes;
    _Atomic int64_t refs;
    char *path; /* of a mapped file, owned; NULL: memory of the caller, and the members below are not set */
    int fd;
    dev_t device; /* device and inode identify the file while fd is open */
    ino_t inode;
    struct timespec modified;           /* modification time when it was mapped */
    struct lz_mapping *next, *previous; /* list of the context's mapped files; base.lock guards it */
} lz_mapping;

lz_mapping *lz_map_file(lz_context *ctx, const char *path, lz_error *err);
lz_mapping *lz_map_memory(lz_context *ctx, const void *data, int64_t bytes, lz_error *err); /* data must outlive it */
lz_mapping *lz_mapping_retain(lz_mapping *mapping);
void lz_mapping_release(void *mapping); /* takes void * so that lz_borrow can call it */
/* LZ_OK if every mapped file of the context still has the size and modification time that it had when it was mapped. A
 * file that was replaced by a new one of the same name stays mapped and unchanged. */
lz_status lz_check_mappings(lz_context *ctx, lz_error *err);
/* Copies bytes of a mapping from the address `from`. Bytes of a file are read through its descriptor: the pages are not
 * mapped, which would take time for each page now and when the file is unmapped, and a file that became shorter is an
 * error instead of a signal. Any thread may call it. */
bool lz_mapping_read(const lz_mapping *mapping, const char *from, int64_t bytes, char *to, lz_error *err);
/* Tells the system that these pages are not needed soon. */
void lz_mapping_drop(const lz_mapping *mapping, int64_t begin, int64_t end);

/* Makes the missing folders of a path, for this user only. false: errno has the reason. */
bool lz_make_folders(lz_context *ctx, const char *path);

/* Writes a temporary file in the folder of path, which lz_writer_commit renames to path after everything is on the
 * disk. The permissions of a replaced file are kept. If path is a link, its target is replaced. */
#define LZ_PART_ENDING ".part" /* of temporary files */
typedef struct lz_writer {
    lz_context *ctx;
    const char *path;
    char *temporary;     /* path of the target plus a unique ending; NULL: not writing a file */
    size_t target_bytes; /* length of the target's path in temporary */
    int fd;
    int64_t end;   /* bytes added so far */
    bool unsynced; /* lz_writer_commit does not wait for the disk: readers of the file notice if it is damaged */
    int quality;   /* of a picture in a format with loss, 1 to 100; 0: the format's own */
} lz_writer;

lz_status lz_writer_open(lz_writer *writer, lz_context *ctx, const char *path, lz_error *err);
lz_status lz_writer_add(lz_writer *writer, const void *data, int64_t bytes, lz_error *err);
/* Writes at an offset; any thread may call it. For files whose size is known in advance. */
lz_status lz_writer_put(lz_writer *writer, int64_t offset, const void *data, int64_t bytes, lz_error *err);
lz_status lz_writer_commit(lz_writer *writer, lz_error *err);
/* Writes to memory instead; name is for errors only. lz_writer_bytes returns all added bytes, which the caller frees
 * with lz_host_free; NULL: err has the reason. Then call lz_writer_discard. */
lz_status lz_writer_open_memory(lz_writer *writer, lz_context *ctx, const char *name, lz_error *err);
char *lz_writer_bytes(lz_writer *writer, lz_error *err);
void lz_writer_discard(lz_writer *writer); /* after an error; does nothing after a commit */

#endif
