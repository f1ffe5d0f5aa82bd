/* lora_keys.h: names in LoRA files. A key is prefixes, a module's name, and a suffix that says what the tensor is;
 * programs differ in all three, and some replace dots by underscores. So names are compared flattened, and each target
 * is listed under all its names. */
#ifndef LZ_LORA_KEYS_H
#define LZ_LORA_KEYS_H

#include "models/patch.h"

typedef enum lz_lora_role {
    LZ_LORA_DOWN,
    LZ_LORA_UP,
    LZ_LORA_UP_BIAS,
    LZ_LORA_ALPHA,
    LZ_LORA_MAGNITUDE,
    LZ_LORA_HADA_W1_A, /* four in the order of LZ_TERM_HADAMARD */
    LZ_LORA_HADA_W1_B,
    LZ_LORA_HADA_W2_A,
    LZ_LORA_HADA_W2_B,
    LZ_LORA_LOKR_W1,
    LZ_LORA_LOKR_W1_A,
    LZ_LORA_LOKR_W1_B,
    LZ_LORA_LOKR_W2,
    LZ_LORA_LOKR_W2_A,
    LZ_LORA_LOKR_W2_B,
    LZ_LORA_DIFF,
    LZ_LORA_DIFF_BIAS,
    LZ_LORA_SET,
    LZ_LORA_ROLES,
    LZ_LORA_REFUSED = LZ_LORA_ROLES, /* a known kind that is not supported */
    LZ_LORA_UNKNOWN,
} lz_lora_role;

enum { LZ_FLAT_MAX = 256 };

typedef struct lz_lora_key {
    lz_lora_role role;
    bool text;                /* a prefix says that it belongs to the text encoder */
    const char *refused;      /* LZ_LORA_REFUSED: the kind's name */
    char module[LZ_FLAT_MAX]; /* flat */
} lz_lora_key;

/* LZ_LORA_UNKNOWN: no suffix fits; module is then the whole name. */
lz_lora_key lz_lora_read_key(const char *name);
/* Each run of '.' and '_' becomes one '_'; none is left at the end. */
void lz_flatten(const char *name, char to[LZ_FLAT_MAX]);

/* ---- names of modules (lora_names.c) ----------------------------------------------------------------------------- */

typedef enum lz_lora_family {
    LZ_LORA_TEXT,
    LZ_LORA_FLUX2,
    LZ_LORA_FLUX3,
    LZ_LORA_QWEN_IMAGE,
    LZ_LORA_Z_IMAGE,
    LZ_LORA_QWEN_IMAGE21
} lz_lora_family;

/* A name, and the rows of a target that it means (see lz_term). The name of a fused matrix has several entries. */
typedef struct lz_lora_name {
    lz_target *target;
    int64_t first, rows, source_first, rotate;
    int64_t source_rows; /* number of rows that the module must have */
    bool own;            /* the engine's own name */
    char flat[LZ_FLAT_MAX];
} lz_lora_name;

typedef struct lz_lora_names {
    lz_context *ctx;
    lz_lora_family family;
    lz_lora_name *list; /* sorted by flattened name */
    int64_t n, room;
} lz_lora_names;

lz_status lz_lora_names_make(lz_lora_names *names, lz_context *ctx, const lz_targets *targets, lz_error *err);
void lz_lora_names_free(lz_lora_names *names);
/* The first of *n entries. NULL: no such name. */
const lz_lora_name *lz_lora_names_find(const lz_lora_names *names, const char *flat, int *n);

#endif
