/* random.h: the normal numbers of torch.randn on a CPU. */
#ifndef LZ_RANDOM_H
#define LZ_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

/* out[n] = torch.randn(n, generator=torch.Generator("cpu").manual_seed(seed)), to 2 ulp, with the same bits on every
 * machine. This is the simple version; backend/cpu/isa/random.c is fast. */
void lz_torch_randn(float *out, int64_t n, uint64_t seed);

/* The sequential part of lz_torch_randn. true: out has uniform numbers; lz_box_muller must make them normal, in whole
 * blocks of 16 (number j with j + 8). If n is not a multiple of 16, `last` must be made normal too, and then replaces
 * the last 16 numbers. false: n is small, and out is complete. */
bool lz_torch_uniform(float *out, int64_t n, float last[16], uint64_t seed);

#endif
