/* pool.c: a pool of threads for parallel loops, one loop at a time. Threads take the next index from an atomic counter,
 * so a slow thread gets fewer. The calling thread works too. A waiting thread spins briefly before it sleeps, because
 * the kernels of a program follow each other within microseconds. */
#include <sched.h>
#include <stdatomic.h>

#include "base/base.h"

enum { SPINS = 2000, MAX_THREADS = 256 };

struct lz_pool {
    int threads; /* including the caller */
    pthread_t *workers;
    int started;

    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    atomic_uint round; /* number of loops so far; a change wakes the workers */
    bool stop;

    void (*fn)(void *, int64_t, int);
    void *arg;
    int64_t n;
    atomic_int_fast64_t next;
    atomic_int busy; /* workers that have not finished the current loop */
    atomic_int ids;
};

static void run_tasks(lz_pool *pool, int thread) {
    for (int64_t i; (i = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed)) < pool->n;)
        pool->fn(pool->arg, i, thread);
}

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void *work(void *arg) {
    lz_pool *pool = arg;
    int thread = atomic_fetch_add(&pool->ids, 1);
    unsigned seen = 0;
    for (;;) {
        for (int i = 0; i < SPINS && atomic_load(&pool->round) == seen; i++) relax();
        pthread_mutex_lock(&pool->lock);
        while (atomic_load(&pool->round) == seen && !pool->stop) pthread_cond_wait(&pool->wake, &pool->lock);
        bool stop = pool->stop;
        seen = atomic_load(&pool->round);
        pthread_mutex_unlock(&pool->lock);
        if (stop) return NULL;
        run_tasks(pool, thread);
        if (atomic_fetch_sub(&pool->busy, 1) == 1) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->idle);
            pthread_mutex_unlock(&pool->lock);
        }
    }
}

void lz_parallel(lz_pool *pool, int64_t n, void (*fn)(void *, int64_t, int), void *arg) {
    if (n <= 1 || pool->threads == 1) {
        for (int64_t i = 0; i < n; i++) fn(arg, i, 0);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->fn = fn;
    pool->arg = arg;
    pool->n = n;
    atomic_store(&pool->next, 0);
    atomic_store(&pool->busy, pool->started);
    atomic_fetch_add(&pool->round, 1);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    run_tasks(pool, 0);
    for (int i = 0; i < SPINS && atomic_load(&pool->busy); i++) relax();
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->busy)) pthread_cond_wait(&pool->idle, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

int lz_pool_threads(const lz_pool *pool) { return pool->threads; }

static int usable_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    return 1;
}

lz_pool *lz_pool_new(lz_context *ctx, int threads) {
    if (threads <= 0) threads = usable_cores();
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    lz_pool *pool = lz_host_alloc(ctx, sizeof *pool);
    if (!pool) return NULL;
    pool->workers = lz_host_alloc(ctx, (size_t)threads * sizeof *pool->workers);
    if (!pool->workers) {
        lz_host_free(ctx, pool);
        return NULL;
    }
    pool->threads = threads;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->idle, NULL);
    atomic_store(&pool->ids, 1);
    while (pool->started < threads - 1 && pthread_create(&pool->workers[pool->started], NULL, work, pool) == 0)
        pool->started++;
    if (pool->started < threads - 1) { /* fewer threads than planned would change scratch sizes, so this is an error */
        lz_pool_free(ctx, pool);
        return NULL;
    }
    return pool;
}

void lz_pool_free(lz_context *ctx, lz_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->started; i++) pthread_join(pool->workers[i], NULL);
    pthread_cond_destroy(&pool->idle);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    lz_host_free(ctx, pool->workers);
    lz_host_free(ctx, pool);
}
