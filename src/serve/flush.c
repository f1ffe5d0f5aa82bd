/* flush.c: see flush.h. */
#include "flush.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Pages of the log (of 4 KiB) after which a checkpoint is made: in a pause of the commits, and at the latest. A
 * commit during a checkpoint's last part waits for it. */
enum { FOLDERS = 4 };
enum { PAGES = 1000, MOST_PAGES = 16384, PAUSE_MILLISECONDS = 250 };

typedef struct flushed_folder {
    char *path; /* owned */
    int file;
    bool changed; /* since it was flushed */
} flushed_folder;

struct flusher {
    sqlite3 *db; /* the thread's own connection */
    int log, news;
    pthread_t thread;
    pthread_mutex_t lock; /* protects `committed`, `pages`, `ending` and the folders */
    pthread_cond_t changed;
    uint64_t committed;
    int pages; /* in the log */
    bool ending;
    flushed_folder folders[FOLDERS];
    int n_folders; /* only grows, so that a folder's file can be used without the lock */
    atomic_uint_fast64_t flushed;
    atomic_bool failed;
};

/* SQLite calls it after each commit of the caller's connection. */
static int on_commit(void *user, sqlite3 *db, const char *name, int pages) {
    flusher *f = user;
    (void)db, (void)name;
    pthread_mutex_lock(&f->lock);
    f->committed++;
    f->pages = pages;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return SQLITE_OK;
}

/* Moves the log into the database, and begins the log anew: otherwise the next commit would do so, and wait for the disk.
 * If commits came meanwhile, this must wait for a pause, unless `now`. Returns whether the log is nearly empty. */
static bool checkpoint(flusher *f, bool now) {
    int all = 0, done = -1;
    if (sqlite3_wal_checkpoint_v2(f->db, NULL, SQLITE_CHECKPOINT_PASSIVE, &all, &done) != SQLITE_OK) return false;
    if (all != done &&
        (!now || sqlite3_wal_checkpoint_v2(f->db, NULL, SQLITE_CHECKPOINT_RESTART, NULL, NULL) != SQLITE_OK))
        return false;
    return sqlite3_exec(f->db, "PRAGMA user_version=1", NULL, NULL, NULL) == SQLITE_OK; /* the smallest commit */
}

/* Waits for a commit, or for a pause of the commits if a checkpoint is due. Holds the lock. */
static void wait_for_work(flusher *f) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PAUSE_MILLISECONDS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    if (f->pages < PAGES)
        pthread_cond_wait(&f->changed, &f->lock);
    else
        pthread_cond_timedwait(&f->changed, &f->lock, &until);
}

/* Tells the loop of the front that a flush failed. The thread ends with it, because a later fdatasync may succeed
 * although the pages of this one are lost. So `flushed` stays, and no answer that waits for these commits is sent. */
static void *give_up(flusher *f) {
    const uint64_t one = 1;
    atomic_store(&f->failed, true);
    ssize_t told = write(f->news, &one, sizeof one);
    (void)told; /* an eventfd that is full has been told */
    return NULL;
}

/* Takes the folders that have changed. Holds the lock. */
static int take_changed(flusher *f, int files[FOLDERS]) {
    int n = 0;
    for (int i = 0; i < f->n_folders; i++) {
        if (f->folders[i].changed) files[n++] = f->folders[i].file;
        f->folders[i].changed = false;
    }
    return n;
}

/* The folders, then the log, so that no row on the disk tells of a file that is not there. */
static bool flush_files(const flusher *f, const int *folders, int n) {
    bool good = true;
    for (int i = 0; i < n && good; i++) good = fsync(folders[i]) == 0;
    return good && fdatasync(f->log) == 0;
}

static void *flush_all(void *user) {
    flusher *f = user;
    const uint64_t one = 1;
    uint64_t flushed = 0;
    pthread_mutex_lock(&f->lock);
    while (!f->ending || flushed < f->committed) {
        if (flushed == f->committed) wait_for_work(f);
        uint64_t committed = f->committed;
        bool is_new = committed > flushed;
        int folders[FOLDERS], n_folders = is_new ? take_changed(f, folders) : 0;
        bool now = f->pages >= MOST_PAGES, due = now || (f->pages >= PAGES && !is_new);
        pthread_mutex_unlock(&f->lock);
        if (is_new) {
            if (!flush_files(f, folders, n_folders)) return give_up(f);
            atomic_store(&f->flushed, committed);
            if (write(f->news, &one, sizeof one) < 0) atomic_store(&f->failed, true);
        }
        flushed = committed;
        bool empty = due && checkpoint(f, now);
        pthread_mutex_lock(&f->lock);
        if (empty) f->pages = 0;
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static void release(flusher *f) {
    sqlite3_close(f->db);
    if (f->log >= 0) close(f->log);
    for (int i = 0; i < f->n_folders; i++) {
        close(f->folders[i].file);
        free(f->folders[i].path);
    }
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

flusher *flusher_new(sqlite3 *db, const char *path, int news) {
    flusher *f = calloc(1, sizeof *f);
    char *log = NULL;
    pthread_condattr_t steady;
    if (!f) return NULL;
    f->news = news;
    f->log = asprintf(&log, "%s-wal", path) < 0 ? -1 : open(log, O_RDONLY | O_CLOEXEC);
    free(log);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&f->changed, &steady);
    pthread_condattr_destroy(&steady);
    pthread_mutex_init(&f->lock, NULL);
    bool good = f->log >= 0 && sqlite3_open_v2(path, &f->db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK;
    good = good && sqlite3_busy_timeout(f->db, 2000) == SQLITE_OK && fdatasync(f->log) == 0;
    good = good && sqlite3_exec(f->db, "PRAGMA synchronous=NORMAL", NULL, NULL, NULL) == SQLITE_OK;
    good = good && sqlite3_wal_autocheckpoint(f->db, 0) == SQLITE_OK;
    if (good) sqlite3_wal_hook(db, on_commit, f); /* which also ends the checkpoints of this connection */
    if (good && pthread_create(&f->thread, NULL, flush_all, f) == 0) return f;
    if (good) sqlite3_wal_hook(db, NULL, NULL);
    release(f);
    return NULL;
}

void flusher_free(flusher *f) {
    if (!f) return;
    pthread_mutex_lock(&f->lock);
    f->ending = true;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
    pthread_join(f->thread, NULL);
    release(f);
}

/* Adds a folder to those that are flushed. false: it cannot be opened. */
static bool add_folder(flusher *f, const char *path) {
    flushed_folder *to = &f->folders[f->n_folders];
    if (f->n_folders == FOLDERS || !(to->path = strdup(path))) return false;
    to->file = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (to->file >= 0) {
        f->n_folders++;
        return true;
    }
    free(to->path);
    return false;
}

bool flusher_changed(flusher *f, const char *folder) {
    int i = 0;
    pthread_mutex_lock(&f->lock);
    while (i < f->n_folders && strcmp(f->folders[i].path, folder) != 0) i++;
    bool good = i < f->n_folders || add_folder(f, folder);
    if (good) f->folders[i].changed = true;
    pthread_mutex_unlock(&f->lock);
    return good;
}

uint64_t flusher_committed(const flusher *f) { return f->committed; }
uint64_t flusher_flushed(const flusher *f) { return atomic_load(&f->flushed); }
bool flusher_failed(const flusher *f) { return atomic_load(&f->failed); }
