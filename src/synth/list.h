/* list.h: tables of tensor names and shapes, from which the list of a part's tensors is made. */
#ifndef LZ_SYNTH_LIST_H
#define LZ_SYNTH_LIST_H

#include "synth/synth.h"

/* The distribution of a tensor's numbers. USUAL: a matrix has deviation 1/sqrt(number of summed elements), so that
 * values stay of order one through the model; a vector is a scale near 1 or, if its name says so, a bias. MEAN and
 * VARIANCE: statistics of latents, about those of the real autoencoder. */
enum synth_fill { USUAL, EMBEDDING, MEAN, VARIANCE, COUNTER };

typedef struct synth_row {
    const char *name, *shape; /* name: after the prefix */
    enum synth_fill fill;
} synth_row;

#define SYNTH_ROWS(table) table, (int)(sizeof(table) / sizeof(table)[0])

typedef struct synth_list {
    synth_model model;
    synth_tensor *at; /* NULL: out of memory */
    int n, capacity;
    bool wide; /* the tensors that are added are F32 */
} synth_list;

void synth_add(synth_list *l, const char *prefix, const synth_row *rows, int n);
void synth_add_numbered(synth_list *l, const char *prefix, int64_t count, const synth_row *rows,
                        int n); /* prefix.0. ... */
/* The tensors <prefix><name>.*; in and out are the channels i and o of their shapes. */
void synth_layer(synth_list *l, const char *prefix, const char *name, int64_t in, int64_t out, const synth_row *rows,
                 int n);

/* Parts that several families have: Qwen3 and the autoencoder of FLUX.2 or FLUX.1 (klein.c), and Qwen3-VL (qwen21.c),
 * with their config.json. */
extern const char synth_qwen3_config[], synth_flux2_vae_config[], synth_qwen3_vl_config[];
void synth_qwen3_vl(synth_list *l);
void synth_qwen3(synth_list *l);
void synth_flux_vae(synth_list *l, int64_t latent, bool flux2);

#endif
