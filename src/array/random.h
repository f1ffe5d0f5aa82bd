/* random.h: normal numbers, the ones torch gives on a CPU. */
#ifndef LZ_RANDOM_H
#define LZ_RANDOM_H

#include <stdint.h>

/* out[n] = torch.randn(n, generator=torch.Generator("cpu").manual_seed(seed)), to 2 ulp; the same bits everywhere. */
void lz_torch_randn(float *out, int64_t n, uint64_t seed);

#endif
