/* disk.c: see disk.h. */
#include "backend/common/disk.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

void lz_disk_close(lz_disk *disk) {
    if (disk->folder) lz_host_free(disk->ctx, disk->folder);
    disk->folder = NULL;
}

/* The start of a file. The data, which code loaders need aligned, and the key follow. */
typedef struct cache_head {
    char magic[8];
    uint64_t key_bytes, data_bytes, data_hash;
} cache_head;
#define CACHE_MAGIC "LZCUDA2"

static char *file_of(const lz_disk *disk, const char *key) {
    char name[64];
    size_t n = strlen(key);
    snprintf(name, sizeof name, "%016llx%016llx.bin", (unsigned long long)lz_hash(key, n),
             (unsigned long long)lz_hash_from(LZ_HASH_OTHER_START, key, n));
    return disk->folder ? lz_path_join(disk->ctx, disk->folder, name) : NULL;
}

static bool read_all(int fd, char *to, size_t bytes) {
    while (bytes > 0) {
        ssize_t n = read(fd, to, bytes);
        if (n <= 0) return false;
        to += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Is this a complete file that lz_disk_keep wrote for the key? */
static bool is_data_of(const char *file, size_t bytes, const char *key) {
    cache_head head;
    size_t key_bytes = strlen(key);
    if (bytes < sizeof head + key_bytes) return false;
    memcpy(&head, file, sizeof head);
    const char *data = file + sizeof head;
    size_t data_bytes = bytes - sizeof head - key_bytes;
    return !memcmp(head.magic, CACHE_MAGIC, sizeof head.magic) && head.key_bytes == key_bytes &&
           head.data_bytes == data_bytes && !memcmp(data + data_bytes, key, key_bytes) &&
           head.data_hash == lz_hash(data, data_bytes);
}

const char *lz_disk_find(const lz_disk *disk, const char *key, size_t *bytes, char **memory) {
    char *path = file_of(disk, key);
    *memory = NULL;
    if (!path) return NULL;
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool ours = fd >= 0 && fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid() && s.st_size > 0 &&
                s.st_size < (1 << 28);
    *memory = ours ? lz_host_alloc(disk->ctx, (size_t)s.st_size) : NULL;
    bool fine = *memory && read_all(fd, *memory, (size_t)s.st_size) && is_data_of(*memory, (size_t)s.st_size, key);
    if (fd >= 0) close(fd);
    lz_host_free(disk->ctx, path);
    if (fine) *bytes = (size_t)s.st_size - sizeof(cache_head) - strlen(key);
    return fine ? *memory + sizeof(cache_head) : NULL;
}

void lz_disk_keep(const lz_disk *disk, const char *key, const char *data, size_t bytes) {
    char *path = file_of(disk, key);
    if (!path) return;
    cache_head head = {.key_bytes = strlen(key), .data_bytes = bytes, .data_hash = lz_hash(data, bytes)};
    memcpy(head.magic, CACHE_MAGIC, sizeof head.magic);
    lz_writer w;
    if (lz_make_folders(disk->ctx, disk->folder) && lz_writer_open(&w, disk->ctx, path, NULL) == LZ_OK) {
        w.unsynced = true; /* is_data_of finds a file that a crash of the machine has damaged */
        if (lz_writer_add(&w, &head, sizeof head, NULL) == LZ_OK &&
            lz_writer_add(&w, data, (int64_t)bytes, NULL) == LZ_OK &&
            lz_writer_add(&w, key, (int64_t)head.key_bytes, NULL) == LZ_OK)
            lz_writer_commit(&w, NULL);
        lz_writer_discard(&w);
    }
    lz_host_free(disk->ctx, path);
}
