/* lora_alpha.h: the factor of a LoRA's module, alpha / rank. Trainers store alpha as a tensor of the module, or once
 * for all modules: in the file's metadata (diffusers: lora_adapter_metadata) or in adapter_config.json in the same
 * folder (PEFT). */
#ifndef LZ_LORA_ALPHA_H
#define LZ_LORA_ALPHA_H

#include <jansson.h>

#include "array/internal.h"

typedef struct lz_lora_alphas {
    json_t *root;       /* PEFT's configuration, or NULL */
    const char *prefix; /* of its keys: "transformer." or "" */
} lz_lora_alphas;

/* The file's own metadata, else adapter_config.json. A configuration that cannot be read is an error. */
lz_status lz_lora_alphas_open(lz_lora_alphas *a, lz_context *ctx, const char *path, lz_weights *weights, lz_error *err);
void lz_lora_alphas_close(lz_lora_alphas *a);

/* tensor: the name of the module's own alpha, or NULL. rank 0: the factors are whole matrices, and there is no factor
 * whatever the file says. *factor: 1 where there is no alpha; *alpha is then left alone. Fails if the tensor holds no
 * number. */
lz_status lz_lora_alpha(const lz_lora_alphas *a, lz_weights *weights, const char *tensor, const char *module,
                        int64_t rank, double *factor, double *alpha);

#endif
