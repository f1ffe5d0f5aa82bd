/* fair_lock.h: a lock that threads get in the order in which they asked for it (first come, first served). A job holds
 * the lock of its model while one of its programs runs (a prompt, an image, a step, the decoder), so that jobs that run
 * at the same time interleave step by step. A job drops it while it calls a user's function, and then retakes it with
 * its earlier place in the order, so no job waits for the user of another one. */
#ifndef LZ_FAIR_LOCK_H
#define LZ_FAIR_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct lz_fair_lock {
    pthread_mutex_t mutex; /* guards the members below; held briefly */
    pthread_cond_t dropped;
    bool taken;
    uint64_t asked; /* number of lz_fair_take calls so far */
    struct lz_fair_waiter *first;
} lz_fair_lock;

void lz_fair_init(lz_fair_lock *l);
void lz_fair_destroy(lz_fair_lock *l);
uint64_t lz_fair_take(lz_fair_lock *l); /* waits; returns the caller's place in the order */
void lz_fair_drop(lz_fair_lock *l);
void lz_fair_retake(lz_fair_lock *l, uint64_t place); /* waits; goes before all waiters with a later place */

#endif
