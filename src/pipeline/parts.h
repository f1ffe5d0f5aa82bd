/* parts.h: the files that make up a model.
 *
 *     a folder of diffusers    model_index.json names the pipeline; each part is a subfolder
 *     a folder of mflux        the same subfolders without model_index.json: the family follows from the tensors
 *     a file                   the transformer, or all parts; missing parts are given, or found in the same folder
 *
 * A given part replaces that of the folder. */
#ifndef LZ_PIPELINE_PARTS_H
#define LZ_PIPELINE_PARTS_H

#include "models/signature.h"
#include "text/tokenizer.h"

enum { LZ_PART_TOKENIZER = LZ_PARTS, LZ_PART_PROCESSOR, LZ_PART_PATHS };

struct lz_family;

typedef struct lz_parts {
    lz_context *ctx;
    const char *model;         /* the path that was opened */
    const char *variant;       /* or NULL */
    char *path[LZ_PART_PATHS]; /* owned; NULL: there is none */
    bool folder;               /* a folder of diffusers, whose configurations are used */
    bool lost_index;           /* it looks like a folder of diffusers, but has no model_index.json */
    const struct lz_family *family;
    lz_config index; /* model_index.json, or a generated one */
} lz_parts;

/* After success, the caller calls lz_parts_close. */
lz_status lz_parts_open(lz_parts *parts, lz_context *ctx, const lz_model_options *options, lz_error *err);
void lz_parts_close(lz_parts *parts);
/* Adds to an error about the files of a model that model_index.json is missing, if it is, because what was recognised
 * by the tensors alone may be wrong. */
lz_status lz_parts_explain(const lz_parts *parts, lz_status status, lz_error *err);

/* An error if a part is missing, which says where to get it. */
lz_status lz_parts_need(const lz_parts *parts, int part, lz_error *err);
/* The path of a part for errors, or the folder of the model. */
const char *lz_parts_label(const lz_parts *parts, int part);
/* Checks that parts fit each other, so that a mismatch is an error on opening, not a failed product during a picture:
 * the latent channels of the transformer and of the autoencoder, and the features that the text encoder gives and the
 * transformer reads. needed: the end of the sentence, such as "; Qwen3-4B is needed", or "". */
lz_status lz_parts_check_latents(const lz_parts *parts, int64_t transformer, int64_t vae, lz_error *err);
lz_status lz_parts_check_features(const lz_parts *parts, int64_t gives, int64_t reads, const char *needed,
                                  lz_error *err);
/* For families that fill up prompts: the tokenizer must have a token for that. *pad: its id. */
lz_status lz_parts_check_pad(const lz_parts *parts, const lz_tokenizer *tokenizer, int64_t *pad, lz_error *err);
/* The tokenizer of a folder, of a tokenizer.json, or of a GGUF file. */
lz_tokenizer *lz_parts_tokenizer(const lz_parts *parts, lz_error *err);

/* The tokenizer in a GGUF file (gguf_tokenizer.c). path: for errors. */
lz_tokenizer *lz_gguf_tokenizer(lz_context *ctx, const lz_weights *w, const char *path, lz_error *err);

/* Is this the variant? Given by the user or, by default, if the name of the model's file or folder contains the
 * word. */
bool lz_parts_are(const lz_parts *parts, const char *variant, const char *word);
/* The same for a short word, which the name must contain as a whole word: between '-', '_', '.' and blanks. */
bool lz_parts_have_word(const lz_parts *parts, const char *variant, const char *word);

#endif
