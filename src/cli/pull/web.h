/* web.h: GET over http and https, several at once, by our own rules:
 *
 *   - the token goes to the endpoint's own scheme, host and port, and nowhere else;
 *   - redirects are few, stay with http and https, and never lead from https back to http;
 *   - what breaks or nearly stops is tried again after growing pauses, from the byte where it broke, as long as that
 *     brings enough new bytes;
 *   - no answer is longer than was agreed before. */
#ifndef LZ_CLI_WEB_H
#define LZ_CLI_WEB_H

#include "cli.h"

typedef struct web {
    const arguments *args;
    char *endpoint;   /* scheme://host[:port][/path], without a slash at its end */
    char *token;      /* or NULL */
    char page[512];   /* where people read about the model, for messages */
    double pause;     /* seconds before the first retry; each next is twice as long */
    double stall;     /* seconds over which an answer must bring LEAST_RATE, see web.c */
    int64_t received; /* bytes, so far */
} web;

typedef struct get get;

typedef enum verdict { GOOD, AGAIN, BAD } verdict; /* BAD: get.error says why */

/* What is done with the bytes of an answer. */
typedef struct sink {
    verdict (*begin)(get *);                            /* sets have; GOOD with have == size: nothing to ask */
    verdict (*take)(get *, const char *data, size_t n); /* the next bytes */
    verdict (*restart)(get *);                          /* they come from the first again: drop what is there */
    verdict (*finish)(get *);                           /* all are there; AGAIN: but wrong, from the first */
    void (*leave)(get *);                               /* the last call, if begin was called */
} sink;

struct get {
    const char *what; /* its name in messages */
    char *url;        /* owned by the caller */
    const sink *sink;
    void *to;           /* the sink's */
    int64_t have, size; /* bytes there (before begin: a guess); of all, or -1: not known before */
    int64_t limit;      /* where size is not known */
    char error[600];
    char next[1024]; /* the address of the next page of a list, or "" */
};

/* All of them, at_once at a time, with a line that shows how far they are, of so many bytes; 0: without it. DONE; or
 * FAILED or STOPPED, after saying why. */
int web_run(web *w, get *gets, size_t n, int at_once, int64_t shown);

/* A short answer as text, owned, in *text. */
int web_text(web *w, const char *what, const char *url, int64_t limit, char **text, char next[1024]);

bool web_url(const char *text); /* http(s)://host..., without user, question or fragment */

#endif
