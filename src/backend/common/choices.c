/* choices.c: see choices.h. */
#include "backend/common/choices.h"

#include <string.h>

/* A choice that this process has made or read from disk, by its key. */
typedef struct known {
    struct known *next;
    const char *what;
    int chosen;
    size_t bytes;
    char key[];
} known;

enum { BUCKETS = 256, MOST_KNOWN = 8192 };
struct lz_choices {
    const lz_disk *disk;
    const char *device;
    known *buckets[BUCKETS];
    int n;
};

/* ---- on disk ----------------------------------------------------------------------------------------------------- */

char *lz_choice_text(const lz_choices *all, const lz_choice *c) {
    lz_text text = {.ctx = all->disk->ctx};
    const unsigned char *bytes = c->key;
    lz_text_add(&text, "%s, version %zu, on %s\n", c->what, c->library, all->device);
    for (size_t i = 0; i < c->key_bytes; i++) lz_text_add(&text, "%02x", bytes[i]);
    return lz_text_take(&text, NULL);
}

static int recall(const lz_choices *all, const lz_choice *c) {
    char *text = lz_choice_text(all, c), *memory = NULL;
    size_t bytes = 0;
    const char *stored = text ? lz_disk_find(all->disk, text, &bytes, &memory) : NULL;
    int32_t chosen = -1;
    if (stored && bytes == sizeof chosen) memcpy(&chosen, stored, sizeof chosen);
    lz_host_free(all->disk->ctx, memory);
    lz_host_free(all->disk->ctx, text);
    return chosen;
}

static void keep(const lz_choices *all, const lz_choice *c, int chosen) {
    char *text = lz_choice_text(all, c);
    int32_t value = chosen;
    if (text) lz_disk_keep(all->disk, text, (const char *)&value, sizeof value);
    lz_host_free(all->disk->ctx, text);
}

/* ---- in memory --------------------------------------------------------------------------------------------------- */

static void forget_all(lz_choices *all) {
    for (int i = 0; i < BUCKETS; i++)
        for (known *k; (k = all->buckets[i]);) {
            all->buckets[i] = k->next;
            lz_host_free(all->disk->ctx, k);
        }
    all->n = 0;
}

lz_choices *lz_choices_open(const lz_disk *disk, const char *device, lz_error *err) {
    lz_choices *all = lz_host_alloc(disk->ctx, sizeof *all);
    if (!all) {
        lz_out_of_memory(err, sizeof *all);
        return NULL;
    }
    all->disk = disk;
    all->device = device;
    return all;
}

void lz_choices_close(lz_choices *all) {
    if (!all) return;
    forget_all(all);
    lz_host_free(all->disk->ctx, all);
}

static known **bucket_of(lz_choices *all, const lz_choice *c) {
    return &all->buckets[lz_hash(c->key, c->key_bytes) % BUCKETS];
}

/* If memory runs out, the choice is read from disk again the next time. */
static void remember(lz_choices *all, const lz_choice *c, int chosen) {
    if (all->n >= MOST_KNOWN) forget_all(all);
    known *k = lz_host_alloc(all->disk->ctx, sizeof *k + c->key_bytes);
    if (!k) return;
    known **bucket = bucket_of(all, c);
    *k = (known){.next = *bucket, .what = c->what, .chosen = chosen, .bytes = c->key_bytes};
    memcpy(k->key, c->key, c->key_bytes);
    *bucket = k;
    all->n++;
}

bool lz_choices_find(lz_choices *all, const lz_choice *c, int n, int *chosen) {
    for (const known *k = *bucket_of(all, c); k; k = k->next)
        if (!strcmp(k->what, c->what) && k->bytes == c->key_bytes && !memcmp(k->key, c->key, k->bytes)) {
            *chosen = k->chosen;
            return true;
        }
    *chosen = recall(all, c);
    if (*chosen < 0 || *chosen >= n) return false;
    remember(all, c, *chosen);
    return true;
}

void lz_choices_note(lz_choices *all, const lz_choice *c, int chosen) {
    if (chosen >= 0) keep(all, c, chosen);
    remember(all, c, chosen);
}
