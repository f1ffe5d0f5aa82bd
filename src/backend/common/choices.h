/* choices.h: remembers which of several implementations of a call was measured to be the fastest. Choices are kept on
 * disk, so that later processes need not measure. The backend does the measuring. */
#ifndef LZ_CHOICES_H
#define LZ_CHOICES_H

#include "backend/common/disk.h"

typedef struct lz_choices lz_choices; /* of one device; used by one thread at a time */

/* Identifies a choice. The key has everything that the candidates' times depend on; library is the version of the
 * library. */
typedef struct lz_choice {
    const char *what; /* must stay valid: a literal */
    size_t library;
    const void *key;
    size_t key_bytes;
    bool measured; /* set by the backend if it has measured now */
} lz_choice;

/* disk and device (the name of the device) must outlive the result. NULL: err has the reason. */
lz_choices *lz_choices_open(const lz_disk *disk, const char *device, lz_error *err);
void lz_choices_close(lz_choices *choices);
/* *chosen: the index that this process or an earlier one chose among n candidates; -1: none works. false: not known. */
bool lz_choices_find(lz_choices *choices, const lz_choice *c, int n, int *chosen);
void lz_choices_note(lz_choices *choices, const lz_choice *c, int chosen);
/* The key of a choice on disk; the caller frees it with lz_host_free. NULL: out of memory. */
char *lz_choice_text(const lz_choices *choices, const lz_choice *c);

#endif
