/* random.h: normal numbers, the ones torch gives on a CPU. */
#ifndef LZ_RANDOM_H
#define LZ_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

/* out[n] = torch.randn(n, generator=torch.Generator("cpu").manual_seed(seed)), to 2 ulp; the same bits everywhere. One
 * number after the other: backend/cpu/isa/random.c is the fast one. */
void lz_torch_randn(float *out, int64_t n, uint64_t seed);

/* What has to be done in order: true: out holds uniform numbers, which lz_box_muller makes normal in whole blocks of 16
 * (j with j + 8); then, where n is no multiple of 16, last does too, and replaces the last 16. false: out is done. */
bool lz_torch_uniform(float *out, int64_t n, float last[16], uint64_t seed);

#endif
