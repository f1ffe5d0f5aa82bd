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
