/* list.h: tensors as tables: rows of names and shapes, put together to the list of a part. */
#ifndef LZ_SYNTH_LIST_H
#define LZ_SYNTH_LIST_H

#include "synth/synth.h"

/* How numbers are drawn. Matrices get 1/sqrt(what is summed over), so that values stay of order one through the model; a
 * single row is a scale near 1, or by its name a bias; the latents' statistics are about those of the real autoencoder. */
enum synth_fill { USUAL, EMBEDDING, MEAN, VARIANCE, COUNTER };

typedef struct synth_row {
    const char *name, *shape; /* name: behind a prefix */
    enum synth_fill fill;
} synth_row;

#define SYNTH_ROWS(table) table, (int)(sizeof(table) / sizeof(table)[0])

typedef struct synth_list {
    synth_model model;
    synth_tensor *at; /* NULL: out of memory */
    int n, room;
} synth_list;

void synth_add(synth_list *l, const char *prefix, const synth_row *rows, int n);
void synth_add_numbered(synth_list *l, const char *prefix, int64_t count, const synth_row *rows,
                        int n); /* prefix.0. ... */
/* prefix name. with in and out channels, as i and o */
void synth_layer(synth_list *l, const char *prefix, const char *name, int64_t in, int64_t out, const synth_row *rows,
                 int n);

#endif
