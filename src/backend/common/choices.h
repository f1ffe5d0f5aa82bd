/* choices.h: which of several ways to do a call was measured to be the fastest. Choices are kept on disk, so that later
 * processes choose the same, at once. Measuring is the backend's. */
#ifndef LZ_CHOICES_H
#define LZ_CHOICES_H

#include "backend/common/disk.h"

typedef struct lz_choices lz_choices; /* of one device; one thread at a time */

/* What a choice is about. The key is everything the ways depend on; library is its version. */
typedef struct lz_choice {
    const char *what; /* one that stays */
    size_t library;
    const void *key;
    size_t key_bytes;
    bool measured; /* set by the backend when it was measured now */
} lz_choice;

/* disk and device, which names the device, must outlive it. NULL: err says why. */
lz_choices *lz_choices_open(const lz_disk *disk, const char *device, lz_error *err);
void lz_choices_close(lz_choices *choices);
/* What was chosen before among n ways, by this process or an earlier one; -1: none of them works. false: not known. */
bool lz_choices_find(lz_choices *choices, const lz_choice *c, int n, int *chosen);
void lz_choices_note(lz_choices *choices, const lz_choice *c, int chosen);
/* The name of a choice on disk; to be freed with lz_host_free; NULL: no memory. */
char *lz_choice_text(const lz_choices *choices, const lz_choice *c);

#endif
