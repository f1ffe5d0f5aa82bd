/* lora.h: LoRA files: small changes to the weights of a model, in the formats of all trainers. A file is a list of modules; each
 * names a matrix of the model and says what is added to it:
 *
 *     LoRA          k B A                             down (A) and up (B)
 *     LoHa          k (w1_a w1_b) * (w2_a w2_b)       by element
 *     LoKr          k (w1 x w2)                       Kronecker; each factor may be a product of two
 *     difference    the tensor itself, also of norms and biases
 *     DoRA          one of the first three; the rows of the sum then get the lengths that the file says
 *
 * k is alpha / rank where the file has an alpha, else 1. */
#ifndef LZ_LORA_H
#define LZ_LORA_H

#include "models/patch.h"

enum { LZ_LORA_NAMED = 3 };

/* What came of a file. */
typedef struct lz_lora_report {
    int modules;                     /* of the file */
    int used, in_text;               /* that the model has; those of the text encoder among them */
    int double_given;                /* fused modules which the file holds in parts as well: the parts are used */
    char unused[LZ_LORA_NAMED][128]; /* the first keys that the model has no place for */
    int64_t rank;                    /* the largest; 0: none has one */
    bool all_64_alpha_8;             /* each module is a LoRA of rank 64 with an alpha of 8 */
} lz_lora_report;

/* Adds the terms of a file to the patches of its targets; a weight of 0 adds none. partial: keys that belong to nothing are
 * left out, otherwise they are an error. A file of which nothing fits is an error in any case, and so are wrong shapes.
 * Patches must be built after that. After an error some terms may have been added. */
lz_status lz_lora_read(lz_context *ctx, const char *path, double weight, bool partial, lz_targets *transformer,
                       lz_targets *text, lz_lora_report *report, lz_error *err);

/* The same of weights that are open. path: as errors call them; adapter_config.json is looked for beside it. */
lz_status lz_lora_read_weights(lz_context *ctx, const char *path, lz_weights *weights, double weight, bool partial,
                               lz_targets *transformer, lz_targets *text, lz_lora_report *report, lz_error *err);

#endif
