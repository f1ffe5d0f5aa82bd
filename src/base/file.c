/* file.c: see file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define RETRY(result, call)                                                                                            \
    do result = (call);                                                                                                \
    while (result < 0 && errno == EINTR)

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static lz_mapping *new_mapping(lz_context *ctx, lz_error *err) {
    lz_mapping *m = lz_host_alloc(ctx, sizeof *m);
    if (!m) {
        lz_out_of_memory(err, sizeof *m);
        return NULL;
    }
    m->ctx = ctx;
    atomic_init(&m->refs, 1);
    return m;
}

lz_mapping *lz_map_memory(lz_context *ctx, const void *data, int64_t bytes, lz_error *err) {
    lz_mapping *m = new_mapping(ctx, err);
    if (!m) return NULL;
    m->data = data;
    m->bytes = bytes;
    return m;
}

/* Opens regular files only: opening a pipe would wait for its writer, and a device has no size. */
static int open_regular(const char *path, struct stat *found, lz_error *err) {
    struct stat s;
    if (stat(path, &s) != 0) {
        lz_fail(err, errno == ENOENT ? LZ_NOT_FOUND : LZ_IO, "%s: cannot be opened: %s", LZ_SHOW_TEXT(path),
                strerror(errno));
        return -1;
    }
    if (!S_ISREG(s.st_mode)) {
        lz_fail(err, LZ_IO, "%s: is not an ordinary file", LZ_SHOW_TEXT(path));
        return -1;
    }
    int fd;
    RETRY(fd, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd < 0 || fstat(fd, &s) != 0) {
        lz_fail(err, LZ_IO, "%s: cannot be opened: %s", LZ_SHOW_TEXT(path), strerror(errno));
        if (fd >= 0) close(fd);
        return -1;
    }
    *found = s;
    return fd;
}

static bool same_time(struct timespec a, struct timespec b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

/* The mapping of this file, with one more reference; NULL: there is none. The caller holds base.lock. A mapping without
 * references is skipped: another thread is about to unmap it. */
static lz_mapping *find_mapping(lz_context *ctx, const struct stat *s) {
    for (lz_mapping *m = lz_base_of(ctx)->mappings; m; m = m->next) {
        if (m->device != s->st_dev || m->inode != s->st_ino || m->bytes != s->st_size ||
            !same_time(m->modified, s->st_mtim))
            continue;
        int64_t refs = atomic_load(&m->refs);
        while (refs > 0 && !atomic_compare_exchange_weak(&m->refs, &refs, refs + 1)) continue;
        if (refs > 0) return m;
    }
    return NULL;
}

static void add_mapping(lz_mapping *m) {
    m->next = lz_base_of(m->ctx)->mappings;
    if (m->next) m->next->previous = m;
    lz_base_of(m->ctx)->mappings = m;
}

/* Takes ownership of fd, and closes it after an error too. */
static lz_mapping *map_open_file(lz_context *ctx, const char *path, int fd, const struct stat *s, lz_error *err) {
    lz_mapping *m = new_mapping(ctx, err);
    char *copy = m ? lz_host_copy(ctx, path) : NULL;
    if (m && !copy) lz_out_of_memory(err, (int64_t)strlen(path));
    void *data = copy ? mmap(NULL, (size_t)s->st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    if (data == MAP_FAILED) {
        if (copy)
            lz_fail(err, errno == ENOMEM ? LZ_OUT_OF_MEMORY : LZ_IO, "%s: cannot be mapped: %s", LZ_SHOW_TEXT(path),
                    strerror(errno));
        close(fd);
        lz_host_free(ctx, copy);
        lz_host_free(ctx, m);
        return NULL;
    }
    /* A file of holes, such as a model that is only planned: pages read ahead would be filled with zeros for nothing. */
    if (s->st_blocks < s->st_size / 1024) madvise(data, (size_t)s->st_size, MADV_RANDOM);
    m->data = data;
    m->bytes = s->st_size;
    m->path = copy;
    m->fd = fd;
    m->device = s->st_dev;
    m->inode = s->st_ino;
    m->modified = s->st_mtim;
    return m;
}

/* Frees a mapping of a file that is not in the list of the context. */
static void unmap(lz_mapping *m) {
    munmap((void *)m->data, (size_t)m->bytes);
    close(m->fd);
    lz_host_free(m->ctx, m->path);
    lz_host_free(m->ctx, m);
}

lz_mapping *lz_map_file(lz_context *ctx, const char *path, lz_error *err) {
    struct stat s;
    int fd = open_regular(path, &s, err);
    if (fd < 0) return NULL;
    if (s.st_size == 0) { /* mmap refuses an empty file */
        close(fd);
        return lz_map_memory(ctx, "", 0, err);
    }
    lz_mapping *added = map_open_file(ctx, path, fd, &s, err);
    if (!added) return NULL;
    LZ_LOCK(ctx);
    lz_mapping *found = find_mapping(ctx, &s);
    if (!found) add_mapping(added);
    LZ_UNLOCK(ctx);
    if (found) unmap(added);
    return found ? found : added;
}

lz_mapping *lz_mapping_retain(lz_mapping *m) {
    atomic_fetch_add(&m->refs, 1);
    return m;
}

static void remove_mapping(lz_mapping *m) {
    LZ_LOCK(m->ctx);
    if (m->next) m->next->previous = m->previous;
    if (m->previous)
        m->previous->next = m->next;
    else
        lz_base_of(m->ctx)->mappings = m->next;
    LZ_UNLOCK(m->ctx);
}

void lz_mapping_release(void *mapping) {
    lz_mapping *m = mapping;
    if (!m || atomic_fetch_sub(&m->refs, 1) > 1) return;
    if (!m->path) {
        lz_host_free(m->ctx, m);
        return;
    }
    remove_mapping(m);
    unmap(m);
}

/* Checks the open descriptor, not the name: another file may have the name now, which does not affect the mapping. */
lz_status lz_check_mappings(lz_context *ctx, lz_error *err) {
    lz_status status = LZ_OK;
    struct stat s;
    LZ_LOCK(ctx);
    for (const lz_mapping *m = lz_base_of(ctx)->mappings; m && !status; m = m->next) {
        if (fstat(m->fd, &s) != 0)
            status = lz_fail(err, LZ_IO, "%s: cannot be accessed: %s", LZ_SHOW_TEXT(m->path), strerror(errno));
        else if (s.st_size != m->bytes || !same_time(s.st_mtim, m->modified))
            status = lz_fail(err, LZ_IO,
                             "%s: the file was changed after it was opened (%lld bytes then, %lld now); open the model "
                             "again when the file is complete",
                             LZ_SHOW_TEXT(m->path), (long long)m->bytes, (long long)s.st_size);
    }
    LZ_UNLOCK(ctx);
    return status;
}

bool lz_mapping_read(const lz_mapping *m, const char *from, int64_t bytes, char *to, lz_error *err) {
    int64_t offset = from - m->data;
    if (!m->path) {
        memcpy(to, from, (size_t)bytes);
        return true;
    }
    while (bytes > 0) {
        ssize_t n;
        RETRY(n, pread(m->fd, to, (size_t)bytes, (off_t)offset));
        if (n < 0)
            lz_fail(err, LZ_IO, "%s: cannot be read: %s", LZ_SHOW_TEXT(m->path), strerror(errno));
        else if (n == 0)
            lz_fail(err, LZ_IO,
                    "%s: the file was changed after it was opened: it had %lld bytes, and ends before byte %lld now",
                    LZ_SHOW_TEXT(m->path), (long long)m->bytes, (long long)offset + 1);
        if (n <= 0) return false;
        to += n;
        offset += n;
        bytes -= n;
    }
    return true;
}

void lz_mapping_drop(const lz_mapping *m, int64_t begin, int64_t end) {
    /* Only whole pages inside the range: pages shared with neighbours may be in use, and would have to be read
     * again. */
    int64_t page = sysconf(_SC_PAGESIZE);
    begin = (begin + page - 1) / page * page;
    end = end / page * page;
    if (m->path && begin < end) madvise((void *)(m->data + begin), (size_t)(end - begin), MADV_DONTNEED);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

bool lz_make_folders(lz_context *ctx, const char *path) {
    char *part = lz_host_copy(ctx, path);
    struct stat s;
    errno = ENOMEM;
    for (char *slash = part ? strchr(part + 1, '/') : NULL; slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(part, 0700); /* the last call tells whether all of them exist */
        *slash = '/';
    }
    bool good = part && (mkdir(part, 0700) == 0 || errno == EEXIST) && stat(part, &s) == 0;
    if (good && !S_ISDIR(s.st_mode)) good = false, errno = ENOTDIR;
    int why = errno;
    lz_host_free(ctx, part);
    errno = why;
    return good;
}

/* Gives the new file the owner, group and permissions of the file that it replaces. If the group cannot be set, the new
 * file gets no group permissions. */
static void keep_permissions(int fd, const struct stat *s) {
    bool same_group = fchown(fd, s->st_uid, s->st_gid) == 0 || fchown(fd, (uid_t)-1, s->st_gid) == 0;
    fchmod(fd, s->st_mode & (same_group ? 0777 : 0707));
}

lz_status lz_writer_open(lz_writer *w, lz_context *ctx, const char *path, lz_error *err) {
    *w = (lz_writer){.ctx = ctx, .path = path, .fd = -1};
    struct stat s;
    char target[PATH_MAX]; /* target of a link: the link itself is kept */
    bool is_link = lstat(path, &s) == 0 && S_ISLNK(s.st_mode), exists = stat(path, &s) == 0;
    if (exists && S_ISDIR(s.st_mode)) return lz_fail(err, LZ_IO, "%s: is a folder, not a file", LZ_SHOW_TEXT(path));
    if (exists && !S_ISREG(s.st_mode)) /* the rename would replace a device */
        return lz_fail(err, LZ_IO, "%s: is a device or pipe; name a file", LZ_SHOW_TEXT(path));
    if (is_link && !realpath(path, target))
        return lz_fail(err, LZ_IO, "%s: is a broken link: %s", LZ_SHOW_TEXT(path), strerror(errno));

    /* In the same folder, because rename works only within a file system. */
    unsigned counter = 0;
    w->target_bytes = strlen(is_link ? target : path);
    size_t n = w->target_bytes + 48;
    char *temporary = lz_host_alloc(ctx, n);
    if (!temporary) return lz_out_of_memory(err, (int64_t)n);
    do {
        snprintf(temporary, n, "%s.%ld-%u" LZ_PART_ENDING, is_link ? target : path, (long)getpid(), counter++);
        RETRY(w->fd, open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, exists ? s.st_mode & 0777 : 0666));
    } while (w->fd < 0 && errno == EEXIST);
    if (w->fd >= 0 && exists) keep_permissions(w->fd, &s);
    if (w->fd < 0) {
        lz_fail(err, LZ_IO, "%s: cannot be written: %s", LZ_SHOW_TEXT(path), strerror(errno));
        lz_host_free(ctx, temporary);
        return LZ_IO;
    }
    w->temporary = temporary;
    return LZ_OK;
}

lz_status lz_writer_open_memory(lz_writer *w, lz_context *ctx, const char *name, lz_error *err) {
    *w = (lz_writer){.ctx = ctx, .path = name, .fd = memfd_create(name, MFD_CLOEXEC)};
    return w->fd >= 0 ? LZ_OK : lz_fail(err, LZ_IO, "%s: cannot be created in memory: %s", name, strerror(errno));
}

char *lz_writer_bytes(lz_writer *w, lz_error *err) {
    char *bytes = lz_host_alloc(w->ctx, (size_t)w->end + 1);
    if (!bytes) lz_out_of_memory(err, w->end);
    for (int64_t at = 0; bytes && at < w->end;) {
        ssize_t n;
        RETRY(n, pread(w->fd, bytes + at, (size_t)(w->end - at), (off_t)at));
        if (n > 0) {
            at += n;
            continue;
        }
        lz_fail(err, LZ_IO, "%s: cannot be read back: %s", w->path, strerror(errno));
        lz_host_free(w->ctx, bytes);
        bytes = NULL;
    }
    return bytes;
}

lz_status lz_writer_put(lz_writer *w, int64_t offset, const void *data, int64_t bytes, lz_error *err) {
    const char *at = data;
    while (bytes > 0) {
        size_t piece = bytes < (1 << 30) ? (size_t)bytes : (size_t)1 << 30;
        ssize_t n;
        RETRY(n, pwrite(w->fd, at, piece, (off_t)offset));
        if (n < 0) return lz_fail(err, LZ_IO, "%s: cannot be written: %s", LZ_SHOW_TEXT(w->path), strerror(errno));
        at += n;
        offset += n;
        bytes -= n;
    }
    return LZ_OK;
}

lz_status lz_writer_add(lz_writer *w, const void *data, int64_t bytes, lz_error *err) {
    lz_status status = lz_writer_put(w, w->end, data, bytes, err);
    if (!status) w->end += bytes;
    return status;
}

/* A rename is durable after its folder is synced. Some file systems cannot do that; the file is complete in any
 * case. */
static void sync_folder(const char *path) {
    char folder[4096] = ".";
    const char *slash = strrchr(path, '/');
    if (slash) snprintf(folder, sizeof folder, "%.*s", (int)(slash - path) + 1, path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

lz_status lz_writer_commit(lz_writer *w, lz_error *err) {
    bool good = w->unsynced || fsync(w->fd) == 0;
    int fd = w->fd;
    w->fd = -1;
    good = close(fd) == 0 && good;
    char target[PATH_MAX];
    snprintf(target, sizeof target, "%.*s", (int)w->target_bytes, w->temporary);
    good = good && rename(w->temporary, target) == 0;
    if (!good) return lz_fail(err, LZ_IO, "%s: cannot be written: %s", LZ_SHOW_TEXT(w->path), strerror(errno));
    if (!w->unsynced) sync_folder(target);
    lz_host_free(w->ctx, w->temporary);
    w->temporary = NULL;
    return LZ_OK;
}

void lz_writer_discard(lz_writer *w) {
    if (w->fd >= 0) close(w->fd);
    w->fd = -1;
    if (!w->temporary) return;
    unlink(w->temporary);
    lz_host_free(w->ctx, w->temporary);
    w->temporary = NULL;
}
