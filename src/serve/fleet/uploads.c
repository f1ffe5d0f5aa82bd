/* uploads.c: uploads and addresses of pictures in Redis. scripts.h lists the keys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet.h"

enum { MOST_PIXELS = 1 << 28 };

/* An upload is accepted for a day after it was sent, or named by a job, and removed some hours later. So no front removes
 * an upload that another front has just accepted for a job. */
enum { UPLOAD_SECONDS = 86400, UPLOAD_GRACE = 6 * 3600 };

bool fleet_add_upload(store *s, const char *id, int64_t width, int64_t height) {
    fleet_store *t = (fleet_store *)s;
    redisReply *size = redis_do(&t->link, "SET %supload:%s %lldx%lld", t->prefix, id, (long long)width,
                                (long long)height);
    redisReply *time = size ? redis_do(&t->link, "ZADD %suploads %lld %s", t->prefix, (long long)wall_seconds(), id)
                            : NULL;
    freeReplyObject(size);
    freeReplyObject(time);
    return time;
}

bool fleet_find_upload(store *s, const char *id, int64_t *width, int64_t *height) {
    fleet_store *t = (fleet_store *)s;
    redisReply *time = redis_do(&t->link, "ZSCORE %suploads %s", t->prefix, id);
    bool accepted = strtod(redis_text(time), NULL) > wall_seconds() - UPLOAD_SECONDS;
    freeReplyObject(time);
    if (!accepted) return false;
    redisReply *reply = redis_do(&t->link, "GET %supload:%s", t->prefix, id);
    char *end = NULL;
    const char *text = redis_text(reply);
    *width = strtoll(text, &end, 10);
    *height = *end == 'x' ? strtoll(end + 1, NULL, 10) : 0;
    freeReplyObject(reply);
    return *width > 0 && *height > 0 && *width <= MOST_PIXELS / *height;
}

int fleet_old_uploads(store *s, double time, int limit, char (*to)[65]) {
    fleet_store *t = (fleet_store *)s;
    redisReply *ids = redis_do(&t->link, "ZRANGEBYSCORE %suploads -inf (%lld LIMIT 0 %d", t->prefix,
                               (long long)time - UPLOAD_GRACE, limit);
    int n = 0;
    for (size_t i = 0; ids && ids->type == REDIS_REPLY_ARRAY && i < ids->elements && n < limit; i++) {
        snprintf(to[n], sizeof to[n], "%s", redis_text(ids->element[i]));
        if (is_id(to[n])) n++;
    }
    freeReplyObject(ids);
    return n;
}

bool fleet_remove_upload(store *s, const char *id) {
    fleet_store *t = (fleet_store *)s;
    redisReply *reply = redis_do(&t->link, "ZREM %suploads %s", t->prefix, id);
    bool good = reply;
    freeReplyObject(reply);
    if (good) freeReplyObject(redis_do(&t->link, "DEL %supload:%s", t->prefix, id));
    return good;
}

enum { KNOWN_AFTER = 7 * 86400 }; /* seconds for which an expired address is answered with 410 */

bool fleet_add_address(store *s, const char *name, const char *id, double until) {
    fleet_store *t = (fleet_store *)s;
    redisReply *reply = redis_do(&t->link, "SET %saddress:%s %s:%lld EX %d", t->prefix, name, id, (long long)until,
                                 (int)(until - wall_seconds()) + KNOWN_AFTER);
    freeReplyObject(reply);
    return reply;
}

int fleet_find_address(store *s, const char *name, char id[ID_BYTES]) {
    fleet_store *t = (fleet_store *)s;
    redisReply *reply = redis_do(&t->link, "GET %saddress:%s", t->prefix, name);
    const char *text = redis_text(reply), *colon = strchr(text, ':');
    int found = 0;
    if (colon && colon - text < ID_BYTES) {
        snprintf(id, ID_BYTES, "%.*s", (int)(colon - text), text);
        found = !is_id(id) ? 0 : strtod(colon + 1, NULL) < wall_seconds() ? -1 : 1;
    }
    freeReplyObject(reply);
    return found;
}
