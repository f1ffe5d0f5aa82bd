/* part.h: what a picture model is made of. */
#ifndef LZ_PART_H
#define LZ_PART_H

typedef enum lz_part { LZ_PART_TRANSFORMER, LZ_PART_TEXT_ENCODER, LZ_PART_VISION, LZ_PART_VAE, LZ_PARTS } lz_part;

#endif
