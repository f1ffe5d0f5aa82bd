/* disk.h: a cache on disk for later processes: compiled kernels, measured choices. A file contains the whole key that
 * its data was made from. It is used only if the key is the same, the data is complete and the file belongs to this
 * user. If the folder cannot be written, nothing is kept, and no error is reported. */
#ifndef LZ_DISK_H
#define LZ_DISK_H

#include "base/base.h"

typedef struct lz_disk {
    lz_context *ctx;
    char *folder; /* from lz_host_alloc, freed by lz_disk_close; NULL: nothing is kept or found */
} lz_disk;

void lz_disk_close(lz_disk *disk);
/* The data of a key, or NULL. The caller frees *memory with lz_host_free in both cases. */
const char *lz_disk_find(const lz_disk *disk, const char *key, size_t *bytes, char **memory);
void lz_disk_keep(const lz_disk *disk, const char *key, const char *data, size_t bytes);

#endif
