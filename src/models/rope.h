/* rope.h: rotary tables of tokens that have a place along several axes: a picture's rows and columns, which image it is,
 * how far into the text. */
#ifndef LZ_ROPE_H
#define LZ_ROPE_H

#include "models/config.h"

enum { LZ_ROPE_AXES = 4 };

typedef struct lz_place {
    int64_t at[LZ_ROPE_AXES];
} lz_place;

/* Axis a turns channels[a] / 2 of a head's pairs, pair k by at[a] * theta^(-2 k / channels[a]). cos and sin:
 * [n, pairs of all axes] f32. channels: ended by 0 where there are fewer axes. */
void lz_rope_tables(lz_context *ctx, const int64_t channels[LZ_ROPE_AXES], double theta, const lz_place *places,
                    int64_t n, lz_array **cos, lz_array **sin);

/* The base of the rotation that a text encoder's configuration names, or theta. Files of transformers 4 have rope_theta and
 * rope_scaling, those of transformers 5 rope_parameters; rotations that stretch (linear, yarn, ...) are refused. sections:
 * how many pairs turn with each of three axes, for models with several; NULL: one axis. */
double lz_rope_read(lz_config *c, double theta, int64_t sections[3]);

#endif
