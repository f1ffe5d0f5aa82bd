/* signature.h: what a file of weights is, by the names of its tensors, and its configuration, by their shapes. Nothing is
 * told by a file's name but what tensors cannot tell. */
#ifndef LZ_SIGNATURE_H
#define LZ_SIGNATURE_H

#include "models/components.h"
#include "models/config.h"
#include "models/part.h"

typedef struct lz_signature {
    const lz_component *parts[LZ_PARTS]; /* that the file has; NULL: none */
    char title[LZ_PARTS][48]; /* each with its size, where it is one that is published: "FLUX.2 [klein] 4B" */
    bool zero_time;           /* it has the marker of Qwen-Image-Edit-2511 in files of ComfyUI */
    const char *refused;      /* why it cannot be used, or NULL; the sentence goes on after "<path>: " */
} lz_signature;

void lz_signature_read(lz_signature *signature, lz_weights *weights);
/* What it is, in some words: "a FLUX.2 transformer", "no model that is known here". */
void lz_signature_describe(const lz_signature *signature, char *to, size_t size);

/* The configuration of a component: config.json of a folder that has one; otherwise made from the shapes of its tensors, with
 * the same keys, and constants as they are published. path: a folder or a file. */
lz_status lz_component_config(lz_config *c, lz_context *ctx, const char *path, const lz_component *component,
                              lz_error *err);
bool lz_is_derived(lz_context *ctx, const char *path); /* the latter */

/* Whether the last part of a path contains a word, whatever its case. */
bool lz_file_name_has(const char *path, const char *word);

#endif
