/* redis.c: see redis.h. */
#include "redis.h"

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "../text.h"

enum { MOST_WORDS = 80, NUMBER = 40 };

/* ---- the address ------------------------------------------------------------------------------------------------- */

static bool copy_part(char *to, size_t size, const char *from, size_t n) {
    if (n >= size) return false;
    memcpy(to, from, n);
    to[n] = 0;
    return unescape(to);
}

static bool read_number(const char *text, int most, int *to) {
    char *end = NULL;
    long value = strtol(text, &end, 10);
    if (end == text || *end || value < 0 || value > most) return false;
    *to = (int)value;
    return true;
}

bool redis_parse(const char *url, const char *password, redis_address *to, char *why, size_t size) {
    *to = (redis_address){.port = 6379};
    const char *at = strncmp(url, "redis://", 8) == 0 ? url + 8 : NULL;
    bool good = at;
    if (good && strchr(at, '@')) {
        size_t n = strcspn(at, "@"), name = strcspn(at, ":@");
        if (name != n) {
            snprintf(why, size,
                     "--store takes no password, since other users of the machine can read the command "
                     "line: set $LAZULI_STORE_PASSWORD instead");
            return false;
        }
        good = copy_part(to->user, sizeof to->user, at, n);
        at += n + 1;
    }
    if (good) {
        bool brackets = *at == '[';
        size_t n = brackets ? strcspn(at, "]") : strcspn(at, ":/");
        good = n > (size_t)brackets && (!brackets || at[n] == ']') &&
               copy_part(to->host, sizeof to->host, at + brackets, n - brackets);
        at += n + brackets;
    }
    if (good && *at == ':') {
        char port[8];
        size_t n = strcspn(++at, "/");
        good = copy_part(port, sizeof port, at, n) && read_number(port, 65535, &to->port) && to->port > 0;
        at += n;
    }
    if (good && *at == '/' && at[1]) good = read_number(at + 1, 1000000, &to->db);
    /* The address may hold a password, so it is not repeated. */
    if (!good) snprintf(why, size, "--store takes an address such as redis://HOST:6379/0");
    size_t length = password ? strlen(password) : 0;
    if (good && length >= sizeof to->password) {
        snprintf(why, size, "$LAZULI_STORE_PASSWORD has more than %zu bytes", sizeof to->password - 1);
        return false;
    }
    if (good && password) memcpy(to->password, password, length + 1);
    return good;
}

/* ---- connections ------------------------------------------------------------------------------------------------- */

void redis_close(redis *r) {
    if (r->context) redisFree(r->context);
    r->context = NULL;
}

static void note(redis *r, const char *text) {
    if (text != r->error) snprintf(r->error, sizeof r->error, "%s", text);
}

/* The connection is of no use now. */
static bool give_up(redis *r, const char *text) {
    note(r, text);
    redis_close(r);
    r->again = steady_seconds() + 0.5;
    return false;
}

static bool greet(redis *r) {
    const redis_address *a = r->where;
    redisReply *reply = NULL;
    bool good = true;
    if (*a->password) {
        reply = *a->user ? redisCommand(r->context, "AUTH %s %s", a->user, a->password)
                         : redisCommand(r->context, "AUTH %s", a->password);
        good = reply && reply->type != REDIS_REPLY_ERROR;
        if (!good) note(r, reply ? reply->str : "AUTH failed");
        freeReplyObject(reply);
    }
    reply = good ? redisCommand(r->context, "SELECT %d", a->db) : NULL; /* an error while the data are being loaded */
    good = reply && reply->type != REDIS_REPLY_ERROR;
    if (reply && !good) note(r, reply->str);
    freeReplyObject(reply);
    return good;
}

bool redis_connect(redis *r) {
    if (r->context) return true;
    if (steady_seconds() < r->again) return false;
    struct timeval soon = {.tv_usec = 400000}, patience = {.tv_sec = 2};
    r->context = redisConnectWithTimeout(r->where->host, r->where->port, soon);
    if (!r->context || r->context->err) return give_up(r, r->context ? r->context->errstr : "out of memory");
    fcntl(r->context->fd, F_SETFD, FD_CLOEXEC); /* the process that makes pictures must not inherit it */
    redisSetTimeout(r->context, patience);
    redisEnableKeepAlive(r->context);
    return greet(r) || give_up(r, *r->error ? r->error : r->context->errstr);
}

/* ---- commands ---------------------------------------------------------------------------------------------------- */

/* Errors that pass: Redis loads its data, is a replica, or has no room. */
static bool is_passing(const char *error) {
    return strncmp(error, "LOADING", 7) == 0 || strncmp(error, "READONLY", 8) == 0 ||
           strncmp(error, "MASTERDOWN", 10) == 0;
}

static redisReply *run(redis *r, int n, const char **words, const size_t *sizes) {
    for (int attempt = 0; attempt < 2; attempt++) {
        if (!redis_connect(r)) return NULL;
        redisReply *reply = redisCommandArgv(r->context, n, words, sizes);
        if (reply && reply->type != REDIS_REPLY_ERROR) return reply;
        if (reply) {
            note(r, reply->str);
            bool passing = is_passing(reply->str);
            freeReplyObject(reply);
            if (passing) give_up(r, r->error);
            return NULL;
        }
        give_up(r, r->context->errstr);
        r->again = 0; /* the first failure may be that of an old connection */
    }
    r->again = steady_seconds() + 0.5;
    return NULL;
}

redisReply *redis_do(redis *r, const char *format, ...) {
    char *command = NULL, *at;
    const char *words[MOST_WORDS];
    size_t sizes[MOST_WORDS];
    int n = 0;
    va_list list;
    va_start(list, format);
    int size = redisvFormatCommand(&command, format, list);
    va_end(list);
    if (size < 0) return NULL;
    /* "*N\r\n$SIZE\r\nWORD\r\n...": back to words, because the command may have to be sent twice. */
    for (at = strstr(command, "\r\n") + 2; at < command + size && n < MOST_WORDS; n++) {
        sizes[n] = strtoul(at + 1, &at, 10);
        words[n] = at + 2;
        at += 2 + sizes[n] + 2;
    }
    redisReply *reply = run(r, n, words, sizes);
    redisFreeCommand(command);
    return reply;
}

redisReply *redis_script(redis *r, const char *script, const char *prefix, const char *kinds, ...) {
    const char *words[MOST_WORDS] = {"EVAL", script, "1", prefix};
    size_t sizes[MOST_WORDS] = {4, strlen(script), 1, strlen(prefix)};
    char numbers[MOST_WORDS][NUMBER];
    int n = 4;
    va_list list;
    va_start(list, kinds);
    for (const char *kind = kinds; *kind && n < MOST_WORDS; kind++, n++) {
        words[n] = numbers[n];
        switch (*kind) {
        case 'i': snprintf(numbers[n], NUMBER, "%d", va_arg(list, int)); break;
        case 'd': snprintf(numbers[n], NUMBER, "%.6f", va_arg(list, double)); break;
        default: words[n] = va_arg(list, const char *); break;
        }
        if (!words[n]) words[n] = "";
        sizes[n] = *kind == 'b' ? va_arg(list, size_t) : strlen(words[n]);
    }
    va_end(list);
    return run(r, n, words, sizes);
}

/* ---- without waiting --------------------------------------------------------------------------------------------- */

bool redis_send(redis *r, int n, const char **words) {
    int done = 0;
    if (!redis_connect(r)) return false;
    if (redisAppendCommandArgv(r->context, n, words, NULL) != REDIS_OK) return give_up(r, r->context->errstr);
    while (!done)
        if (redisBufferWrite(r->context, &done) != REDIS_OK) return give_up(r, r->context->errstr);
    return true;
}

int redis_read(redis *r, redisReply **reply) {
    *reply = NULL;
    if (!r->context) return -1;
    for (;;) {
        void *found = NULL;
        if (redisGetReplyFromReader(r->context, &found) != REDIS_OK) break;
        if ((*reply = found)) return 1;
        struct pollfd ready = {.fd = r->context->fd, .events = POLLIN};
        if (poll(&ready, 1, 0) <= 0) return 0;
        if (redisBufferRead(r->context) != REDIS_OK) break;
    }
    give_up(r, r->context->errstr);
    return -1;
}

const char *redis_text(const redisReply *reply) {
    return reply && (reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS) ? reply->str : "";
}
