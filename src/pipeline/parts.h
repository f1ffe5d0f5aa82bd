/* parts.h: of which files a model is made.
 *
 *     a folder of diffusers    model_index.json names the pipeline; each part is a folder in it
 *     a folder of mflux        the same folders, and nothing else: what it is follows from the tensors
 *     a file                   the transformer, or everything in one; what it lacks is given, or lies beside it
 *
 * A part that is given takes the place of the folder's. */
#ifndef LZ_PIPELINE_PARTS_H
#define LZ_PIPELINE_PARTS_H

#include "models/signature.h"
#include "text/tokenizer.h"

enum { LZ_PART_TOKENIZER = LZ_PARTS, LZ_PART_PROCESSOR, LZ_PART_PATHS };

struct lz_family;

typedef struct lz_parts {
    lz_context *ctx;
    const char *model;         /* as it was given */
    const char *variant;       /* or NULL */
    char *path[LZ_PART_PATHS]; /* owned; NULL: there is none */
    bool folder;               /* of diffusers: its configurations count */
    const struct lz_family *family;
    lz_config index; /* model_index.json, or the same made up */
} lz_parts;

/* On success close it. */
lz_status lz_parts_open(lz_parts *parts, lz_context *ctx, const lz_model_options *options, lz_error *err);
void lz_parts_close(lz_parts *parts);

/* A sentence that says that a part is missing, and where people get it. LZ_OK: it is there. */
lz_status lz_parts_need(const lz_parts *parts, int part, lz_error *err);
/* What errors about a part name: its path, or the whole folder. */
const char *lz_parts_label(const lz_parts *parts, int part);
/* The tokenizer of a folder, of a tokenizer.json, or of a GGUF file. */
lz_tokenizer *lz_parts_tokenizer(const lz_parts *parts, lz_error *err);

/* That of a GGUF file (gguf_tokenizer.c). */
lz_tokenizer *lz_gguf_tokenizer(lz_context *ctx, const char *path, lz_error *err);

/* Whether the user said so, or, if nothing was said, the name of the model's file or folder has this word. */
bool lz_parts_are(const lz_parts *parts, const char *variant, const char *word);

#endif
