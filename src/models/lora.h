/* lora.h: LoRA files, which change the weights of a model, in the formats of all common trainers. A file is a list of
 * modules; each names a matrix of the model and a term to add to it:
 *
 *     LoRA          k B A                             down (A) and up (B)
 *     LoHa          k (w1_a w1_b) * (w2_a w2_b)       by element
 *     LoKr          k (w1 x w2)                       Kronecker; each factor may be a product of two
 *     difference    the tensor itself, also for norms and biases
 *     DoRA          one of the first three; then the rows of the sum are scaled to the lengths in the file
 *
 * k is alpha / rank if the file has an alpha, else 1. */
#ifndef LZ_LORA_H
#define LZ_LORA_H

#include "models/patch.h"

enum { LZ_LORA_NAMED = 3 };

/* The result of reading a file. */
typedef struct lz_lora_report {
    int modules;                     /* modules of the file */
    int used, in_text;               /* modules that the model has; of these, those of the text encoder */
    int double_given;                /* fused modules that the file also has in parts; the parts are used */
    char unused[LZ_LORA_NAMED][128]; /* the first keys that the model does not have */
    int64_t rank;                    /* the largest rank; 0: none */
    bool all_64_alpha_8;             /* each module is a LoRA of rank 64 with an alpha of 8 */
} lz_lora_report;

/* Adds the terms of a file to the patches of its targets; a weight of 0 adds none. partial: unknown keys are ignored,
 * otherwise they are an error. A file without any known key, and wrong shapes, are always errors. Patches must be built
 * afterwards. After an error some terms may have been added. */
lz_status lz_lora_read(lz_context *ctx, const char *path, double weight, bool partial, lz_targets *transformer,
                       lz_targets *text, lz_lora_report *report, lz_error *err);

/* The same for open weights. path: for errors; adapter_config.json is read from its folder. */
lz_status lz_lora_read_weights(lz_context *ctx, const char *path, lz_weights *weights, double weight, bool partial,
                               lz_targets *transformer, lz_targets *text, lz_lora_report *report, lz_error *err);

#endif
