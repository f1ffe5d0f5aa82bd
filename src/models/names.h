/* names.h: what the tensors of a model are called in files.
 *
 * Models ask for tensors by the names of diffusers and transformers: the engine's names. Files of other makers (Black Forest
 * Labs, ComfyUI, llama.cpp, mflux) use other names, put several tensors into one, or put halves the other way round. A
 * component (a transformer, a text encoder, an autoencoder) lists these differences as a table of aliases. A tensor is found
 * under the first of its names that the file has, so a file may mix namings, and an engine's name is always tried first. */
#ifndef LZ_NAMES_H
#define LZ_NAMES_H

#include "io/weights.h"
#include "models/components.h"

enum { LZ_NAME_SIZE = 256, LZ_NAME_PIECES = 3, LZ_ANCHORS = 3, LZ_PREFIXES = 8 };

typedef enum lz_alias_kind {
    LZ_ALIAS_COPY,    /* the whole tensor */
    LZ_ALIAS_ROWS,    /* some of its rows: see at */
    LZ_ALIAS_SWAP,    /* its halves change places */
    LZ_ALIAS_QKV,     /* three tensors, one after the other: '@' in the name stands for q, k, v */
    LZ_ALIAS_FRAMES,  /* two tensors, NAME and NAME.1, become axis 2 */
    LZ_ALIAS_IF_FITS, /* the whole tensor, if it has the shape that is asked for */
} lz_alias_kind;

/* A name of a module (a tensor's name without its last part, "weight" or "bias"). In the engine's name '#' is a number and
 * '*' a word without dots. In the file's name they stand for the same, in the same order, and {4a+b} computes with the
 * numbers a, b of the engine's name and z, the number of levels of the file's autoencoder less one. */
typedef struct lz_alias {
    const char *engine, *file;
    lz_alias_kind kind;
    int at; /* of LZ_ALIAS_ROWS: the first row is at times the rows that are asked for; if negative, from the end */
} lz_alias;

struct lz_component {
    const char *name;                  /* the name in messages, such as "FLUX.2 transformer" */
    const char *stem;                  /* the beginning of the engine's names; in a file, a prefix replaces it */
    const char *prefixes[LZ_PREFIXES]; /* prefixes in files, ended by NULL. '*' is a word without dots */
    const char
        *anchors[LZ_ANCHORS]; /* engine's names without the stem: a file that has all of them has the component */
    const lz_alias *aliases;
    int n_aliases;
};

/* The i-th name of a module, from 0: first the engine's own, then its aliases, whether a file has them or not. module and
 * the names have no stem or prefix. levels: see z above. False: there are no more. */
typedef struct lz_spelling {
    char name[LZ_NAME_SIZE];
    lz_alias_kind kind;
    int at;
} lz_spelling;
bool lz_names_spell(const lz_component *component, const char *module, int levels, int i, lz_spelling *to);

/* The names of one component in one file. */
struct lz_names {
    const lz_component *component;
    lz_weights *weights;
    char prefix[LZ_NAME_SIZE];
    int levels;         /* number of levels of an autoencoder */
    bool channels_last; /* kernels of convolutions are [out, kh, kw, in], as MLX keeps them */
};

/* False: the file does not have this component. */
bool lz_names_open(lz_names *names, const lz_component *component, lz_weights *weights);

/* Where a tensor comes from: rows of one tensor, or of several that follow each other along the first axis. */
typedef struct lz_origin {
    struct {
        char name[LZ_NAME_SIZE];
        int64_t first, rows; /* rows -1: all */
    } pieces[LZ_NAME_PIECES];
    int n;
    bool frames; /* the two pieces become axis 2 instead */
} lz_origin;
/* want: the shape that the engine asks for, or n = 0: any, and rows are not looked for. False: the file has no such
 * tensor. */
bool lz_names_find(const lz_names *names, const char *engine, lz_dims want, lz_origin *to);

/* What a file has of a tensor of the engine (name without the stem): its shape, in the order of the file; n = -1: it has
 * none. */
lz_dims lz_names_shape(const lz_names *names, const char *name);

#endif
