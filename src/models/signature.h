/* signature.h: recognises the model in a weight file by the names of its tensors, and its configuration by their
 * shapes. The file's name is used only where tensors do not differ. */
#ifndef LZ_SIGNATURE_H
#define LZ_SIGNATURE_H

#include "models/components.h"
#include "models/config.h"
#include "models/part.h"

typedef struct lz_signature {
    const lz_component *parts[LZ_PARTS]; /* the parts in the file; NULL: not in it */
    char title[LZ_PARTS][48];            /* of each part, with the size of a published model: "FLUX.2 [klein] 4B" */
    bool zero_time;                      /* it has the marker of Qwen-Image-Edit-2511 in files of ComfyUI */
    bool layered;                        /* it is Qwen-Image-Layered */
    bool lora;                           /* it is refused because it is a LoRA */
    const char *refused;                 /* the reason why it cannot be used, for an error after "<path>: "; or NULL */
} lz_signature;

void lz_signature_read(lz_signature *signature, lz_weights *weights);
/* Why a tensor cannot be read, because of its type; unchanged: all can be read. */
void lz_signature_unreadable(const lz_weights *weights, char *to, size_t size);
/* A short description: "a FLUX.2 transformer", "a LoRA", "no model that is known here". */
void lz_signature_describe(const lz_signature *signature, char *to, size_t size);

/* The configuration of a component: config.json of a folder if it has one; otherwise derived from the shapes of its
 * tensors, with the same keys and the constants of the published models. path: a folder or a file. */
lz_status lz_component_config(lz_config *c, lz_context *ctx, const char *path, const lz_component *component,
                              lz_error *err);
/* An error if the tensors of a folder or file are those of another known component. Its other faults are not found. */
lz_status lz_component_check(lz_context *ctx, const char *path, const lz_component *component, lz_error *err);
bool lz_is_derived(lz_context *ctx, const char *path); /* the configuration is derived */

/* Does the last part of a path contain a word, ignoring case? */
bool lz_file_name_has(const char *path, const char *word);

#endif
