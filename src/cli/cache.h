/* cache.h: models by name: short names, the Hugging Face cache, and whether a model is complete.
 *
 * The cache is shared by all tools of the hub:
 *
 *     hub/models--OWNER--REPO/blobs/HASH                 the files' bytes; HASH.incomplete while they are downloaded
 *                             snapshots/COMMIT/...       links to blobs, under the files' names
 *                             refs/main                  the commit of a branch
 */
#ifndef LZ_CLI_CACHE_H
#define LZ_CLI_CACHE_H

#include "cli.h"

enum { MAX_REPO = 200 }; /* bytes of OWNER/REPO */

/* A model of several files: the paths of its parts. */
enum { SET_MODEL, SET_TEXT_ENCODER, SET_VISION, SET_VAE, SET_TOKENIZER, SET_VARIANT, SET_KEYS };
struct model_set {
    char *name, *values[SET_KEYS]; /* NULL: not given */
};

/* A file on the hub that is a part of a model. */
typedef struct known_part {
    int key; /* SET_MODEL, ... */
    const char *repo, *file;
} known_part;

typedef struct known_model {
    const char *name, *repo; /* repo: of a model folder; NULL: it has parts */
    int64_t bytes;           /* total size of the files that pull downloads */
    const char *kind;        /* of src/synth; NULL: it cannot be planned before it is downloaded */
    const char *licence;
    const known_part *parts; /* the last one has no repo; or NULL */
} known_model;
extern const known_model known_models[];
extern const size_t n_known_models;

/* Finds a model by its short name, its repository or the last part of that, ignoring case; NULL: not in the list. */
const known_model *known_by(const char *name);
const known_model *nearest_known(const char *name); /* a name that differs by one or two letters; NULL: none */
const known_model *first_known(void);               /* the model to suggest */
const char *known_repo(const known_model *model);   /* its repository, or that of its transformer */
/* The paths of all files of a model of single files. The set is valid until the next call with this model. NULL: some
 * files are not in the cache. */
const model_set *cached_set(const known_model *model);
const known_part *missing_part(const known_model *model); /* the first that is not in the cache; NULL: none */

bool is_repo(const char *name);                    /* OWNER/REPO in characters that the hub allows */
bool is_commit(const char *text);                  /* 40 hexadecimal digits */
const char *repo_of(const char *name);             /* the OWNER/REPO of a name, or NULL */
char *path_of(const char *folder, const char *at); /* folder/at, owned; NULL: out of memory, or folder is NULL */
char *home_path(const char *variable, const char *below, const char *in_cache); /* $variable/below, else in ~/.cache */

char *hub_cache(void);                                   /* the folder of the cache, owned; NULL: unknown */
char *cache_folder(const char *cache, const char *repo); /* cache/models--OWNER--REPO, owned */
/* Calls visit for every OWNER/REPO that has a folder in the cache, whether or not it is a picture model, in any
 * order. */
void each_cached(const char *cache, void (*visit)(void *user, const char *repo), void *user);
char *cached_model(const char *folder); /* the snapshot to use in models--OWNER--REPO, owned; or NULL */
/* Calls visit for every snapshot of a repository, that of refs/main first, until it returns true. */
bool each_snapshot(const char *repo, bool (*visit)(void *user, const char *snapshot), void *user);
bool is_hub_file(const char *name); /* does it look like OWNER/REPO/FILE, with the ending of a weight file? */
/* The path of OWNER/REPO/FILE in the cache, where FILE may be only the last part of its path there; owned. NULL: it is
 * not there. */
char *cached_file(const char *name);
/* A file as it was given, or its path in the cache; kept until the program ends. NULL stays NULL. */
const char *given_file(const char *name);
bool have_file(const char *folder, const char *name);
/* The name of the index of a model folder: that of modular pipelines if it has only that one. */
const char *index_name(const char *folder);
bool have_model(const char *folder); /* it has an index */

/* Makes a folder in $TMPDIR to plan with, instead of the model's own. Returns an exit code; call published_close after
 * an error too. Signals that would end the program are blocked in between. */
int published_open(const arguments *args, const known_model *model, char **folder);
void published_close(char **folder); /* removes the folder; does nothing if *folder is NULL */
void say_published(FILE *to, const known_model *model);
void remove_folder(const char *folder);    /* with everything in it */
lz_context *open_for_files(lz_error *err); /* a context with one thread, to look into files; NULL: see err */

/* ---- models of the settings file (sets.c) ------------------------------------------------------------------------ */

/* each_set finds all sets of the settings file, find_set the set of this name (NULL: there is none). The sets exist
 * until the program ends. Both return an exit code. */
int each_set(const arguments *args, const model_set **first, size_t *n);
int find_set(const arguments *args, const char *name, const model_set **found);

/* The folder of wildcards that the settings file names; NULL: none. Returns an exit code. */
int find_wildcard_folder(const arguments *args, const char **folder);

/* ---- is a model complete? ---------------------------------------------------------------------------------------- */

/* The parts of a model that are used, and the configuration file that each must have. */
typedef struct model_part {
    const char *name, *config, *or_config;
    bool weights;
} model_part;
extern const model_part model_parts[];
extern const size_t n_model_parts;

bool names_part(const json_t *index, const char *part); /* does model_index.json list the part? */
bool ends_in(const char *text, const char *ending);

bool runs_pipeline(const char *class); /* "_class_name" of model_index.json, or NULL */
typedef struct pipeline_list {
    char text[300];
} pipeline_list;
pipeline_list runnable_pipelines(void); /* "Flux2KleinPipeline, QwenImagePipeline and ..." */

typedef struct model_state {
    char class[80]; /* of model_index.json */
    bool runs;      /* the library runs this class */
    int64_t bytes;  /* of the existing files */
    json_t *faults; /* sentences; empty: complete */
} model_state;

/* The names of the complete models of this machine, for -m, the default one first; owned. *code: an exit code. */
json_t *complete_models(const arguments *args, int *code);
void look_at_model(lz_context *ctx, const char *folder, model_state *state); /* json_decref(state->faults) */

#endif
