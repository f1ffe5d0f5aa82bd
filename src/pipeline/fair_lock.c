/* fair_lock.c: see fair_lock.h. */
#include "pipeline/fair_lock.h"

#include <stddef.h>

typedef struct lz_fair_waiter { /* on the stack of the waiting thread; in the list while it waits */
    uint64_t place;
    struct lz_fair_waiter *next;
} waiter;

void lz_fair_init(lz_fair_lock *l) {
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->dropped, NULL);
}

void lz_fair_destroy(lz_fair_lock *l) {
    pthread_cond_destroy(&l->dropped);
    pthread_mutex_destroy(&l->mutex);
}

/* The caller holds the mutex. */
static void wait_for(lz_fair_lock *l, uint64_t place) {
    waiter me = {.place = place}, **at = &l->first;
    while (*at && (*at)->place < place) at = &(*at)->next;
    me.next = *at;
    *at = &me;
    while (l->taken || l->first != &me) pthread_cond_wait(&l->dropped, &l->mutex);
    l->first = me.next;
    l->taken = true;
}

uint64_t lz_fair_take(lz_fair_lock *l) {
    pthread_mutex_lock(&l->mutex);
    uint64_t place = ++l->asked;
    wait_for(l, place);
    pthread_mutex_unlock(&l->mutex);
    return place;
}

void lz_fair_retake(lz_fair_lock *l, uint64_t place) {
    pthread_mutex_lock(&l->mutex);
    wait_for(l, place);
    pthread_mutex_unlock(&l->mutex);
}

void lz_fair_drop(lz_fair_lock *l) {
    pthread_mutex_lock(&l->mutex);
    l->taken = false;
    if (l->first) pthread_cond_broadcast(&l->dropped);
    pthread_mutex_unlock(&l->mutex);
}
