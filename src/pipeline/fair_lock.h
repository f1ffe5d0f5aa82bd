/* fair_lock.h: a lock that is given to those who wait in the order in which they asked. Jobs of one model hold it while a
 * program runs (a prompt, an image, a step, the decoder), so that jobs that run at the same time interleave step by step.
 * A job drops it while it calls a user's function, and asks for it again as if it had been first: no job waits for the
 * user of another one. */
#ifndef LZ_FAIR_LOCK_H
#define LZ_FAIR_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct lz_fair_lock {
    pthread_mutex_t mutex; /* protects the members below; held for moments */
    pthread_cond_t dropped;
    bool taken;
    uint64_t asked; /* how often, so far */
    struct lz_fair_waiter *first;
} lz_fair_lock;

void lz_fair_init(lz_fair_lock *l);
void lz_fair_destroy(lz_fair_lock *l);
uint64_t lz_fair_take(lz_fair_lock *l); /* waits; returns its place in the order */
void lz_fair_drop(lz_fair_lock *l);
void lz_fair_retake(lz_fair_lock *l, uint64_t place); /* before all whose place is later */

#endif
