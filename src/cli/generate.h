/* generate.h: pictures of one set of arguments, for `generate` and for every line of a `batch`. */
#ifndef LZ_CLI_GENERATE_H
#define LZ_CLI_GENERATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "progress.h"
#include "see.h"

enum { MAX_FACTS = 64 };

typedef struct facts { /* metadata of a file: key, value, ..., NULL; the values are owned */
    const char *pairs[MAX_FACTS];
    char seed[32], steps[32], guidance[32], strength[32], shift[32], passes[64], size[48], software[48];
    char *model, *parameters, *settings, *loras; /* owned; loras: NULL if there are none */
} facts;

/* Fills in the metadata; with --no-metadata there is none. false: out of memory. The caller frees it with forget_facts,
 * after an error too. */
bool describe_picture(facts *f, const job *j, const lz_picture *p, int64_t seed);
void forget_facts(facts *f);

/* A picture while it is written. It needs nothing of the job and the arguments, which may change meanwhile. */
typedef struct writing {
    lz_context *ctx;
    lz_picture picture;
    facts facts;
    int64_t seed, line; /* line: of a batch, else 0 */
    char *path, *dump;  /* owned; dump: NULL without --dump */
    char *prompt;       /* owned: the prompt that a template gave, or NULL */
    json_t *json;       /* owned: about the picture */
    int schedule_steps, n_images;
    double open_seconds, paint_seconds, write_seconds;
    lz_error err;
    bool reserved; /* path and those of the layers are empty files until they are written */
} writing;

/* The pictures that are written while the next ones are made, one after another, until one cannot be written. */
typedef struct writer {
    writing all[LZ_MAX_TOGETHER];
    int n; /* 0: nothing is written */
    pthread_t thread;
    bool apart; /* written by that thread */
    atomic_bool done;
} writer;

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
    json_t *pictures;         /* owned: JSON about the pictures that were made */
    json_t *claimed;          /* owned: the outputs, see claim_output; in a batch, of all lines */
    json_t *inputs;           /* owned: the inputs of the lines of a batch, see claim_inputs; or NULL */
    const naming *naming;     /* of a batch, where existing pictures are skipped; or NULL */
    const overall *overall;   /* of a batch; or NULL */
    int made, there, painted; /* pictures that were written, that existed, and that were made */
    bool leaves;              /* the last pictures of a line are still written while those of the next line are made */
    int late;                 /* lines whose last picture could not be written, which was known later */
    writer writer;
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
/* Pictures of layers (layers.c). Each layer has a file of its own, numbered after the name of the picture. */
/* Writes the layers, if there are any, and then the picture. text: the metadata. reserved: see reserve_path. After an
 * error the layers that were written are removed. */
lz_status save_picture(lz_context *ctx, const char *path, const lz_picture *p, const char *const *text, bool reserved,
                       lz_error *err);
int check_layers(making *m); /* checks that the files can be written, after job_fill. Returns an exit code */
json_t *layers_json(const char *path, const lz_picture *p); /* names of the files */
void tell_layers(FILE *to, const char *path, const lz_picture *p);

/* writing.c. Adds picture i to those that are written, and takes ownership of it. */
void add_writing(making *m, int i, const lz_picture *p, int together, double paint_seconds);
/* Starts writing. last: these pictures are the last ones, which are written on this thread. Returns an exit code. */
int start_writing(making *m, bool last);
/* Waits for the pictures that are being written, if there are any, and reports the results, up to the first error. They
 * are reported also if the current line has failed: they may be those of an earlier one. Returns an exit code. */
int finish_writing(making *m);

/* Returns an exit code; after the last call, also after an error, call making_end. */
int make_pictures(making *m, const arguments *args);
int finish_pictures(making *m); /* waits for pictures that are still written, and reports them. An exit code */
void making_end(making *m);     /* the process ends after it */

#endif
