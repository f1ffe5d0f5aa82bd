/* generate.h: pictures of one set of arguments, for `generate` and for every line of a `batch`. */
#ifndef LZ_CLI_GENERATE_H
#define LZ_CLI_GENERATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "progress.h"
#include "see.h"

enum { MAX_FACTS = 64 };

typedef struct facts { /* metadata of a file: key, value, ..., NULL */
    const char *pairs[MAX_FACTS];
    char seed[32], steps[32], guidance[32], strength[32], shift[32], passes[64], size[48], software[48];
    char *model, *parameters, *settings, *loras; /* owned; loras: NULL if there are none */
} facts;

/* A picture while it is written. */
typedef struct writing {
    const job *job;
    lz_picture picture;
    int64_t seed;
    char *path, *dump; /* owned; dump: NULL without --dump */
    double paint_seconds, write_seconds;
    lz_error err;
    pthread_t thread;
    bool begun, apart; /* apart: written by another thread */
    bool reserved;     /* path is an empty file until it is written */
    atomic_bool done;
} writing;

/* How pictures of a batch are named: {file}, {line}, {n} and {seed} in a pattern. */
typedef struct naming {
    const char *file, *list; /* list: the file with the lines */
    int64_t line, n;         /* n: number of the line, without skipped lines */
} naming;

typedef struct making {
    arguments args;              /* with the prompt of the current picture; the job uses them */
    char *text;                  /* owned: the prompt that was given, if it was allocated; or NULL */
    char *prompts[MAX_PICTURES]; /* owned: the prompts that a template gives; NULL: the prompt is no template */
    int n_combinations;          /* prompts that --combinations gives; 0: without it */
    job job;
    int64_t seeds[MAX_PICTURES];
    char *paths[MAX_PICTURES], *dumps[MAX_PICTURES]; /* owned; NULL: named when it is written, or no output */
    int n;
    double open_seconds;
    json_t *pictures;       /* owned: JSON about the pictures that were made */
    json_t *claimed;        /* owned: the outputs, see claim_output; in a batch, of all lines */
    json_t *inputs;         /* owned: the inputs of the lines of a batch, see claim_inputs; or NULL */
    const naming *naming;   /* of a batch, where existing pictures are skipped; or NULL */
    const overall *overall; /* of a batch; or NULL */
    int made, there;
    writing writing;
    progress line;
    seeing see;
    int code; /* an exit code of writing */
} making;

/* Fills in the fields of a pattern. number: added to the name if a pattern without {seed} names several pictures; or
 * 0. */
int expand_name(const arguments *args, const naming *names, const char *pattern, int64_t seed, int number, char **to);

int check_pictures(making *m, const arguments *args); /* chooses seeds, prompts and names. Returns an exit code */
void forget_prompts(making *m);
/* The folder of -o DIR, in which pictures get generated names. NULL: -o names a file, or was not given. */
const char *output_folder(const arguments *args);
/* Returns an exit code; after the last call, also after an error, call making_end. */
int make_pictures(making *m, const arguments *args);
void making_end(making *m);

#endif
