/* generate.h: pictures of one set of arguments, for `generate` and for every line of a `batch`. */
#ifndef LZ_CLI_GENERATE_H
#define LZ_CLI_GENERATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "progress.h"
#include "see.h"

enum { MAX_FACTS = 32 };

typedef struct facts { /* what is written into the file: key, value, ..., NULL */
    const char *pairs[MAX_FACTS];
    char seed[32], steps[32], guidance[32], strength[32], size[48], software[48];
    char *model, *parameters, *settings, *loras; /* owned; loras: NULL where there are none */
} facts;

/* A picture on its way into its files. */
typedef struct writing {
    const job *job;
    lz_picture picture;
    int64_t seed;
    char *path, *dump; /* owned; dump: NULL where none is asked for */
    double paint_seconds, write_seconds;
    lz_error err;
    pthread_t thread;
    bool begun, apart; /* apart: by a thread of its own */
    bool reserved;     /* path is an empty file until it is written */
    atomic_bool done;
} writing;

/* How pictures of a batch are named: {file}, {line}, {n} and {seed} in a pattern. */
typedef struct naming {
    const char *file, *list; /* list: the file that holds the lines */
    int64_t line, n;         /* n: which of the lines that ask for something */
} naming;

typedef struct making {
    job job;
    int64_t seeds[MAX_PICTURES];
    char *paths[MAX_PICTURES], *dumps[MAX_PICTURES]; /* owned; NULL: named when it is written, or there is none */
    int n;
    double open_seconds;
    json_t *pictures;       /* owned: what is told of those that were made */
    json_t *claimed;        /* owned: files that are outputs, see claim_output; of a batch: of all lines */
    const naming *naming;   /* of a batch: what is there already is left alone; or NULL */
    const overall *overall; /* the same */
    int made, there;
    writing writing;
    progress line;
    seeing see;
    int code; /* an exit code: how writing went */
} making;

/* fields of a pattern filled in; number: of the picture, where a pattern without {seed} has to name several, or 0 */
int expand_name(const arguments *args, const naming *names, const char *pattern, int64_t seed, int number, char **to);

int check_pictures(making *m, const arguments *args); /* its beginning: seeds and names. An exit code */
int make_pictures(making *m, const arguments *args);  /* an exit code; making_end in any case, after the last */
void making_end(making *m);

#endif
