/* log.c: calls the context's log callback. */
#include <stdio.h>

#include "base/base.h"

void lz_tell(lz_context *ctx, lz_log_level level, const char *format, ...) {
    lz_base *base = lz_base_of(ctx);
    if (!base->log) return;
    char text[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pthread_mutex_lock(&base->log_lock);
    base->log(base->log_user, level, text);
    pthread_mutex_unlock(&base->log_lock);
}

/* FNV-1a. */
static uint64_t hash_of(const char *text) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (; *text; text++) hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return hash;
}

void lz_remark_once(lz_context *ctx, const char *format, ...) {
    enum { KEPT = sizeof((lz_base *)0)->remarks / sizeof *((lz_base *)0)->remarks };
    lz_base *base = lz_base_of(ctx);
    if (!base->log) return;
    char text[1200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    uint64_t hash = hash_of(text);
    bool made = false;
    pthread_mutex_lock(&base->log_lock);
    for (unsigned i = 0; i < KEPT && i < base->n_remarks; i++) made = made || base->remarks[i] == hash;
    if (!made) base->remarks[base->n_remarks++ % KEPT] = hash;
    if (!made) base->log(base->log_user, LZ_LOG_REMARK, text);
    pthread_mutex_unlock(&base->log_lock);
}
