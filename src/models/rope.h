/* rope.h: rope tables of tokens whose place has several coordinates: row and column in an image, index of the image,
 * position in the text. */
#ifndef LZ_ROPE_H
#define LZ_ROPE_H

#include "models/config.h"

enum { LZ_ROPE_AXES = 4 };

typedef struct lz_place {
    int64_t at[LZ_ROPE_AXES];
} lz_place;

/* Axis a rotates channels[a] / 2 of a head's pairs, pair k by the angle at[a] * theta^(-2 k / channels[a]). cos and
 * sin: [n, pairs of all axes] f32. channels: ended by 0 if there are fewer than LZ_ROPE_AXES axes. */
void lz_rope_tables(lz_context *ctx, const int64_t channels[LZ_ROPE_AXES], double theta, const lz_place *places,
                    int64_t n, lz_array **cos, lz_array **sin);
/* The same of places in another unit: the angle is at[a] * unit * ..., such as 0.5 for half steps. */
void lz_rope_tables_in(lz_context *ctx, const int64_t channels[LZ_ROPE_AXES], double theta, double unit,
                       const lz_place *places, int64_t n, lz_array **cos, lz_array **sin);

/* The rope base of a text encoder's configuration; theta if it has none. Files of transformers 4 have rope_theta and
 * rope_scaling, those of transformers 5 rope_parameters; scaled ropes (linear, yarn, ...) are refused. sections: number
 * of pairs of each of three axes, for models with several; NULL: one axis. interleaved: whether the pairs of the axes
 * take turns; NULL: they must not. */
double lz_rope_read(lz_config *c, double theta, int64_t sections[3], bool *interleaved);

#endif
