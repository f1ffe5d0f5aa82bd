/* part.c: see part.h. The hash is computed while the bytes pass; what an earlier run left is read once, before going on. */
#include "pull/part.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "progress.h"

enum { CHUNK = 1 << 20 };

static verdict failed(get *g, const char *path) {
    snprintf(g->error, sizeof g->error, "%s: cannot be written: %s", path, strerror(errno));
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

/* ---- hashes ------------------------------------------------------------------------------------------------------ */

static bool hash_begin(part *p) {
    char head[40]; /* git hashes "blob SIZE", a zero, and the bytes */
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

/* The bytes of fd from its start; how many there were, or -1. */
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

static int64_t size_of(const char *path) {
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode) ? s.st_size : -1;
}

int64_t part_bytes_there(const part *p) {
    if (size_of(p->whole) == p->file->size) return p->file->size;
    int64_t growing = size_of(p->growing);
    return growing > 0 && growing <= p->file->size ? growing : 0;
}

/* A new name for what is there, or for what the name pointed at before, in one step. */
static verdict put_link(get *g) {
    part *p = g->to;
    if (!p->link) return GOOD;
    char *to = NULL, *beside = NULL;
    bool inner = strchr(p->file->path, '/');
    bool good = asprintf(&to, "%s../../blobs/%s", inner ? "../" : "", p->file->hash) >= 0 &&
                asprintf(&beside, "%s.%ld", p->link, (long)getpid()) >= 0 && make_folders(p->link) &&
                (unlink(beside) == 0 || errno == ENOENT) && symlink(to, beside) == 0 && rename(beside, p->link) == 0;
    free(to);
    free(beside);
    return good ? GOOD : failed(g, p->link);
}

/* Is it here already? */
static bool is_whole(part *p) {
    if (size_of(p->whole) != p->file->size) return false;
    if (p->trusted) return true;
    int fd = open(p->whole, O_RDONLY | O_CLOEXEC);
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
    if (!make_folders(p->growing)) return failed(g, p->growing);
    p->fd = open(p->growing, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (p->fd < 0) return failed(g, p->growing);
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
        unlink(p->growing);
        snprintf(g->error, sizeof g->error,
                 "%s: what arrived is not what the hub lists (%s differs), twice; it is dropped", g->what,
                 p->file->large ? "SHA-256" : "SHA-1");
        return BAD;
    }
    if (fsync(p->fd) != 0) return failed(g, p->growing);
    if (!make_folders(p->whole) || rename(p->growing, p->whole) != 0) return failed(g, p->whole);
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
