/* web.h: GET requests over http and https, several at a time, with these rules:
 *
 *   - the token is sent only to the endpoint's scheme, host and port;
 *   - redirects are limited in number, to http and https, and never from https to http;
 *   - broken or stalled transfers are continued after increasing pauses, as long as each try brings enough new bytes;
 *   - every answer has a limit on its length. */
#ifndef LZ_CLI_WEB_H
#define LZ_CLI_WEB_H

#include "cli.h"

typedef struct web {
    const arguments *args;
    char *endpoint;   /* scheme://host[:port][/path], without a slash at its end */
    char *token;      /* or NULL */
    char page[512];   /* web page of the model, for messages */
    double pause;     /* seconds before the first retry; doubled each time */
    double stall;     /* seconds over which the rate must be at least LEAST_RATE, see web.c */
    int64_t received; /* bytes, so far */
} web;

typedef struct get get;

typedef enum verdict { GOOD, AGAIN, BAD } verdict; /* BAD: get.error has the reason */

/* The receiver of the bytes of an answer. */
typedef struct sink {
    verdict (*begin)(get *);                            /* sets have; GOOD with have == size: nothing to download */
    verdict (*take)(get *, const char *data, size_t n); /* the next bytes */
    /* The transfer restarts from the first byte: drop what was received. */
    verdict (*restart)(get *);
    verdict (*finish)(get *); /* all bytes were received; AGAIN: they are wrong, restart */
    void (*leave)(get *);     /* the last call, if begin was called */
} sink;

struct get {
    const char *what; /* its name in messages */
    char *url;        /* owned by the caller */
    const sink *sink;
    void *to;           /* data of the sink */
    int64_t have, size; /* bytes received (before begin: an estimate); total bytes, -1: unknown */
    int64_t limit;      /* if size is unknown */
    bool head;          /* size bytes from the start of a longer file are wanted; a range is requested */
    bool no_ranges;     /* of a head: the answer was the whole file; it was left after size bytes */
    char error[600];
    char next[1024]; /* the address of the next page of a list, or "" */
};

/* Runs all gets, at_once at a time, with a progress line for `shown` bytes (0: no line). Returns DONE; or FAILED or
 * STOPPED, after reporting the error. */
int web_run(web *w, get *gets, size_t n, int at_once, int64_t shown);

/* Gets a short answer as text; *text is owned by the caller (memory.c). */
int web_text(web *w, const char *what, const char *url, int64_t limit, char **text, char next[1024]);

/* The first bytes of a file, in memory. web_head continues until `wanted` bytes are there. */
typedef struct first_bytes {
    char *data; /* owned */
    size_t n, room;
    bool no_ranges; /* see get */
} first_bytes;
int web_head(web *w, const char *what, const char *url, int64_t wanted, first_bytes *to);

bool web_url(const char *text); /* is it http(s)://host..., without user, query or fragment? */

#endif
