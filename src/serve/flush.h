/* flush.h: a thread that brings the commits of the job file to the disk.
 *
 * A flush can take a second on a busy disk, and the front has one thread. So the front commits without a flush
 * (synchronous=NORMAL: SQLite appends to the write-ahead log, and a killed process loses nothing), and this thread
 * flushes the log. One flush serves all commits before it. http.c holds an answer until the commits before it have been
 * flushed, so nothing that a client was told is lost if the power fails.
 *
 * A row tells of a file that was renamed before. So the thread flushes the folders of such files before the log.
 *
 * The thread also moves the log into the database (a checkpoint) and begins the log anew, with a connection of its
 * own, because both wait for the disk. */
#ifndef LZ_SERVE_FLUSH_H
#define LZ_SERVE_FLUSH_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct flusher flusher;

/* Starts the thread for a database in WAL mode, whose file has this path; `db` is the connection of the caller, whose
 * commits are counted from now on. news: a descriptor of eventfd that is written to after each flush; borrowed. NULL:
 * out of memory, or the log cannot be opened. */
flusher *flusher_new(sqlite3 *db, const char *path, int news);
/* Flushes what was committed, and ends the thread. Call it before the connection is closed. NULL: nothing happens. */
void flusher_free(flusher *f);
/* A file of the folder was made or renamed. The folder is flushed before the next commit. false: the folder cannot be
 * opened. By the thread of the caller only. */
bool flusher_changed(flusher *f, const char *folder);
uint64_t flusher_committed(const flusher *f); /* commits so far; by the thread of the caller only */
uint64_t flusher_flushed(const flusher *f);   /* how many of them are on the disk */
/* The disk has refused a flush. What it lost is not known, and no later commit counts as flushed. */
bool flusher_failed(const flusher *f);

#endif
