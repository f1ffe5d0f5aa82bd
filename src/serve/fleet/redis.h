/* redis.h: connections to Redis, on hiredis. A connection that breaks is made again when it is used, at most twice a
 * second. Replies are hostile input: callers check their types and lengths. */
#ifndef LZ_SERVE_REDIS_H
#define LZ_SERVE_REDIS_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct redis_address {
    char host[256], user[64], password[128]; /* user, password: "" if there is none */
    int port, db;
} redis_address;
/* redis://[USER@]HOST[:PORT][/DB]. An address with a password is refused. password: NULL if there is none. */
bool redis_parse(const char *url, const char *password, redis_address *to, char *why, size_t size);

typedef struct redis {
    const redis_address *where;
    redisContext *context; /* NULL: not connected */
    double again;          /* steady: when the next attempt to connect is made */
    char error[160];       /* of the last reply that was an error, or why there is no connection */
} redis;

bool redis_connect(redis *r); /* true: there is a connection */
void redis_close(redis *r);

/* Runs a command and waits for the reply, which the caller frees. NULL: there is no connection, or the reply is an
 * error. A command may run twice, so it must be one that may. */
redisReply *redis_do(redis *r, const char *format, ...);
/* Runs a script of scripts.h. kinds has a letter for each argument: s text, i int, d double, b bytes and their size. */
redisReply *redis_script(redis *r, const char *script, const char *prefix, const char *kinds, ...);

/* Sends a command without waiting for its replies. */
bool redis_send(redis *r, int n, const char **words);
/* 1: the next reply, which the caller frees; 0: none has come; -1: the connection was lost. */
int redis_read(redis *r, redisReply **reply);

const char *redis_text(const redisReply *reply); /* "" if it is no text */

#endif
