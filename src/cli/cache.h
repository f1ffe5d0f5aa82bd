/* cache.h: models by name: short names, the Hugging Face cache, and whether a folder holds all of a model.
 *
 * The cache is the one every tool around the hub shares:
 *
 *     hub/models--OWNER--REPO/blobs/HASH                 the bytes, once; HASH.incomplete while they arrive
 *                             snapshots/COMMIT/...       links to them, under their names
 *                             refs/main                  the commit that a branch's name stands for
 */
#ifndef LZ_CLI_CACHE_H
#define LZ_CLI_CACHE_H

#include "cli.h"

enum { MAX_REPO = 200 }; /* letters of OWNER/REPO */

typedef struct known_model {
    const char *name, *repo;
    int64_t bytes;    /* of what pull fetches */
    const char *kind; /* of src/synth */
} known_model;
extern const known_model known_models[];
extern const size_t n_known_models;

/* By its short name, its repository or the last part of that, whatever the case; NULL: none of ours. */
const known_model *known_by(const char *name);
const known_model *nearest_known(const char *name); /* a slip of one or two letters; NULL: no */
const known_model *first_known(void);               /* the one to propose */

bool is_repo(const char *name);                    /* OWNER/REPO in letters the hub allows */
bool is_commit(const char *text);                  /* 40 hexadecimal digits */
const char *repo_of(const char *name);             /* OWNER/REPO that is meant, or NULL */
char *path_of(const char *folder, const char *at); /* folder/at, owned; NULL: no memory. folder may be NULL: NULL */
char *home_path(const char *variable, const char *below, const char *in_cache); /* $variable/below, else in ~/.cache */

char *hub_cache(void);                                   /* its folder, owned; NULL: nobody knows where */
char *cache_folder(const char *cache, const char *repo); /* cache/models--OWNER--REPO, owned */
/* Every OWNER/REPO that has a folder there, picture model or not, in no order. */
void each_cached(const char *cache, void (*visit)(void *user, const char *repo), void *user);
char *cached_model(const char *folder); /* the snapshot to use in models--OWNER--REPO, owned; or NULL */
bool have_file(const char *folder, const char *name);

/* A folder in $TMPDIR to plan with, instead of the model's own. An exit code; published_close in any case. Between the two
 * signals that would end the program wait. */
int published_open(const arguments *args, const known_model *model, char **folder);
void published_close(char **folder); /* removes it; NULL: does nothing */
void say_published(FILE *to, const known_model *model);

/* ---- models of the settings file (sets.c) ------------------------------------------------------------------------ */

enum { SET_MODEL, SET_TEXT_ENCODER, SET_VISION, SET_VAE, SET_TOKENIZER, SET_VARIANT, SET_KEYS };
struct model_set {
    char *name, *values[SET_KEYS]; /* NULL: not given */
};
/* All of them, or the one of this name (NULL: none). They stay until the program ends. An exit code. */
int each_set(const arguments *args, const model_set **first, size_t *n);
int find_set(const arguments *args, const char *name, const model_set **found);

/* ---- is all of it there? ----------------------------------------------------------------------------------------- */

/* The parts of a model that we use, and the file without which each is nothing. */
typedef struct model_part {
    const char *name, *config, *or_config;
    bool weights;
} model_part;
extern const model_part model_parts[];
extern const size_t n_model_parts;

bool names_part(const json_t *index, const char *part); /* does model_index.json say that it is there? */
bool ends_in(const char *text, const char *ending);

bool runs_pipeline(const char *class); /* "_class_name" of model_index.json, or NULL */
typedef struct pipeline_list {
    char text[300];
} pipeline_list;
pipeline_list runnable_pipelines(void); /* "Flux2KleinPipeline, QwenImagePipeline and ..." */

typedef struct model_state {
    char class[80]; /* of model_index.json */
    bool runs;      /* the library runs this class */
    int64_t bytes;  /* of the files there */
    json_t *faults; /* sentences; empty: complete */
} model_state;

void look_at_model(lz_context *ctx, const char *folder, model_state *state); /* json_decref(state->faults) */

#endif
