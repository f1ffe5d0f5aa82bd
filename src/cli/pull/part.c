/* part.c: see part.h. The hash is computed while bytes arrive; bytes of an earlier run are read once before the
 * download continues. */
#include "pull/part.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "progress.h"

enum { CHUNK = 1 << 20, MOST_DEPTH = 40 }; /* bytes; folders above a file in the repository */

const char *why_not_written(void) {
    return errno == ELOOP ? "a name in it is a link, which could lead anywhere: remove the link" : strerror(errno);
}

static verdict failed(get *g, const char *path) {
    const part *p = g->to;
    snprintf(g->error, sizeof g->error, "%s/%s: cannot be written: %s", p->root_name, path, why_not_written());
    return BAD;
}

static verdict no_hash(get *g) {
    snprintf(g->error, sizeof g->error, "%s: libcrypto cannot compute its hash", g->what);
    return BAD;
}

bool make_folders(const char *path) {
    char *copy = strdup(path);
    bool good = copy;
    for (char *slash = copy ? strchr(copy + 1, '/') : NULL; slash && good; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        good = mkdir(copy, 0777) == 0 || errno == EEXIST;
        *slash = '/';
    }
    free(copy);
    return good;
}

/* Opens a subfolder, and makes it if it does not exist. */
static int open_folder(int in, const char *name) {
    struct stat s;
    if (mkdirat(in, name, 0777) != 0 && errno != EEXIST) return -1;
    int fd = openat(in, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int why = errno;
    if (fd < 0 && fstatat(in, name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(s.st_mode)) why = ELOOP;
    errno = why;
    return fd;
}

int open_folder_of(int root, const char *path) {
    char name[256];
    int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (const char *slash; fd >= 0 && (slash = strchr(path, '/')); path = slash + 1) {
        size_t n = (size_t)(slash - path);
        if (n >= sizeof name) return close(fd), errno = ENAMETOOLONG, -1;
        memcpy(name, path, n);
        name[n] = 0;
        int inner = open_folder(fd, name), why = errno;
        close(fd);
        errno = why;
        fd = inner;
    }
    return fd;
}

/* Both paths are relative to root. */
static bool move(int root, const char *from, const char *to) {
    int a = open_folder_of(root, from), b = a < 0 ? -1 : open_folder_of(root, to);
    bool good = b >= 0 && renameat(a, base_name(from), b, base_name(to)) == 0;
    int why = errno;
    if (a >= 0) close(a);
    if (b >= 0) close(b);
    errno = why;
    return good;
}

/* ---- hashes ------------------------------------------------------------------------------------------------------ */

static bool hash_begin(part *p) {
    char head[40]; /* git hashes "blob SIZE", a zero byte, and the contents */
    int n = snprintf(head, sizeof head, "blob %lld", (long long)p->file->size) + 1;
    if (!p->hash) p->hash = EVP_MD_CTX_new();
    return p->hash && EVP_DigestInit_ex(p->hash, p->file->large ? EVP_sha256() : EVP_sha1(), NULL) == 1 &&
           (p->file->large || EVP_DigestUpdate(p->hash, head, (size_t)n) == 1);
}

static bool hash_agrees(part *p) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    char text[2 * EVP_MAX_MD_SIZE + 1] = "";
    unsigned n = 0;
    if (EVP_DigestFinal_ex(p->hash, digest, &n) != 1) return false;
    for (unsigned i = 0; i < n; i++) snprintf(text + 2 * i, 3, "%02x", digest[i]);
    return strcmp(text, p->file->hash) == 0;
}

/* Hashes the contents of fd from its start. Returns their number, or -1. */
static int64_t hash_file(part *p, int fd) {
    char *buffer = malloc(CHUNK);
    int64_t all = 0;
    ssize_t n = buffer && hash_begin(p) ? 1 : -1;
    while (n > 0 && !stop_wanted()) {
        n = read(fd, buffer, CHUNK);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0 && EVP_DigestUpdate(p->hash, buffer, (size_t)n) != 1)
            n = -1;
        else if (n > 0)
            all += n;
    }
    free(buffer);
    return n < 0 || stop_wanted() ? -1 : all;
}

/* ---- the sink ---------------------------------------------------------------------------------------------------- */

/* The size of a file. Follows links, which is safe for reading. */
static int64_t size_of(int root, const char *path) {
    struct stat s;
    return fstatat(root, path, &s, 0) == 0 && S_ISREG(s.st_mode) ? s.st_size : -1;
}

int64_t part_bytes_there(const part *p) {
    if (size_of(p->root, p->whole) == p->file->size) return p->file->size;
    int64_t growing = size_of(p->root, p->growing);
    return growing > 0 && growing <= p->file->size ? growing : 0;
}

/* Makes the link, or replaces it atomically. */
static verdict put_link(get *g) {
    part *p = g->to;
    if (!p->link) return GOOD;
    char *to = NULL, *beside = NULL;
    const char *name = base_name(p->link);
    char up[3 * MOST_DEPTH + 1] = "";
    size_t depth = 0;
    for (const char *c = p->file->path; *c; c++)
        if (*c == '/' && depth++ < MOST_DEPTH) memcpy(up + 3 * (depth - 1), "../", 4);
    if (depth > MOST_DEPTH) return errno = ENAMETOOLONG, failed(g, p->link);
    int folder = open_folder_of(p->root, p->link);
    bool good = folder >= 0 && asprintf(&to, "%s../../blobs/%s", up, p->file->hash) >= 0 &&
                asprintf(&beside, "%s.%ld", name, (long)getpid()) >= 0 &&
                (unlinkat(folder, beside, 0) == 0 || errno == ENOENT) && symlinkat(to, folder, beside) == 0 &&
                renameat(folder, beside, folder, name) == 0;
    verdict v = good ? GOOD : failed(g, p->link);
    if (folder >= 0) close(folder);
    free(to);
    free(beside);
    return v;
}

/* Is the complete file already here? */
static bool is_whole(part *p) {
    if (size_of(p->root, p->whole) != p->file->size) return false;
    p->unchecked = p->trusted;
    if (p->trusted) return true;
    int fd = openat(p->root, p->whole, O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && hash_file(p, fd) == p->file->size && hash_agrees(p);
    if (fd >= 0) close(fd);
    return good;
}

static verdict part_begin(get *g) {
    part *p = g->to;
    g->have = 0;
    if (is_whole(p)) {
        g->have = g->size;
        return GOOD;
    }
    int folder = open_folder_of(p->root, p->growing);
    if (folder < 0) return failed(g, p->growing);
    p->fd = openat(folder, base_name(p->growing), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    verdict opened = p->fd < 0 ? failed(g, p->growing) : GOOD;
    close(folder);
    if (opened != GOOD) return opened;
    struct stat s;
    if (fstat(p->fd, &s) != 0 || !S_ISREG(s.st_mode)) return errno = EINVAL, failed(g, p->growing);
    if (s.st_size > g->size && ftruncate(p->fd, 0) != 0) return failed(g, p->growing);
    int64_t n = hash_file(p, p->fd);
    if (n < 0 || lseek(p->fd, n, SEEK_SET) != n) return failed(g, p->growing);
    g->have = n;
    return GOOD;
}

static verdict part_take(get *g, const char *data, size_t n) {
    part *p = g->to;
    if (EVP_DigestUpdate(p->hash, data, n) != 1) return no_hash(g);
    while (n > 0) {
        ssize_t written = write(p->fd, data, n);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return failed(g, p->growing);
        data += written;
        n -= (size_t)written;
    }
    return GOOD;
}

static verdict part_restart(get *g) {
    part *p = g->to;
    if (ftruncate(p->fd, 0) != 0 || lseek(p->fd, 0, SEEK_SET) != 0) return failed(g, p->growing);
    return hash_begin(p) ? GOOD : no_hash(g);
}

static verdict part_finish(get *g) {
    part *p = g->to;
    if (p->fd < 0) return put_link(g);
    if (!hash_agrees(p)) {
        if (++p->damaged < 2) return part_restart(g) == BAD ? BAD : AGAIN;
        int folder = open_folder_of(p->root, p->growing);
        if (folder >= 0) unlinkat(folder, base_name(p->growing), 0);
        if (folder >= 0) close(folder);
        snprintf(g->error, sizeof g->error, "%s: the downloaded file differs from the hub's %s, twice; it was deleted",
                 g->what, p->file->large ? "SHA-256" : "SHA-1");
        return BAD;
    }
    if (fsync(p->fd) != 0) return failed(g, p->growing);
    if (!move(p->root, p->growing, p->whole)) return failed(g, p->whole);
    return put_link(g);
}

static void part_leave(get *g) {
    part *p = g->to;
    if (p->fd >= 0) close(p->fd);
    p->fd = -1;
    EVP_MD_CTX_free(p->hash);
    p->hash = NULL;
}

const sink to_part = {part_begin, part_take, part_restart, part_finish, part_leave};
