/* disk.h: what earlier processes left on disk: compiled kernels, measured choices. A file holds the whole key that its data
 * was made from, and is used only if the key is the same, the data is whole and the file is ours. If the folder cannot be
 * written, nobody is told, and nothing is lost. */
#ifndef LZ_DISK_H
#define LZ_DISK_H

#include "base/base.h"

typedef struct lz_disk {
    lz_context *ctx;
    char *folder; /* from lz_host_alloc, freed by lz_disk_close; NULL: nothing is kept or found */
} lz_disk;

void lz_disk_close(lz_disk *disk);
/* What was kept under this key, or NULL. *memory is to be freed in either case. */
const char *lz_disk_find(const lz_disk *disk, const char *key, size_t *bytes, char **memory);
void lz_disk_keep(const lz_disk *disk, const char *key, const char *data, size_t bytes);

/* FNV-1a. Another start gives another hash. */
#define LZ_HASH_START UINT64_C(0xcbf29ce484222325)
uint64_t lz_hash_from(uint64_t start, const void *data, size_t bytes);
static inline uint64_t lz_hash(const void *data, size_t bytes) { return lz_hash_from(LZ_HASH_START, data, bytes); }

#endif
