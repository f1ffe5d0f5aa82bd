/* group_norm.cu: mean and scale of each group of channels over all pixels of an image. Step 1 computes the statistics
 * of each slab of pixels, step 2 merges those of all slabs in a fixed order. An elementwise kernel applies them.
 *
 * Defined in the head: STEP, 1 or 2; for step 1 also RANK of the walk over pixels; WIDTH, channels of a chunk; X_TYPE;
 * X_KIND. */
#if STEP == 1

/* SPAN: most channels of a tile. PIXELS_AT_ONCE: pixels whose loads are in flight. */
enum { THREADS = 256, SPAN = 1024, PIXELS_AT_ONCE = 4 };

FN i64 pixel_at(const lz_group_params &p, int pixel) {
    u32 at[RANK];
    i64 sum = 0;
    coordinates<RANK>(p.pixels, (u32)pixel, at);
#pragma unroll
    for (int i = 0; i < RANK; i++) sum += at[i] * p.pixels.at[0].strides[i];
    return sum;
}

/* Sums are of differences from the slab's first pixel, for each channel. If the mean is far from zero, these are much
 * smaller than the values, so the sums of squares lose no digits by cancellation. */
extern "C" __global__ void __launch_bounds__(THREADS) group_stats(const __grid_constant__ lz_group_params p) {
    __shared__ float sums[THREADS * WIDTH], squares[THREADS * WIDTH];
    __shared__ float sum_of[SPAN], square_of[SPAN], pivot_of[SPAN];
    const int tile = blockIdx.x % p.tiles, slab = blockIdx.x / p.tiles % p.slabs,
              image = blockIdx.x / p.tiles / p.slabs;
    const int first_group = tile * p.tile_groups, groups = min(p.tile_groups, p.groups - first_group);
    const int first_channel = first_group * p.group_size, channels = groups * p.group_size, chunks = channels / WIDTH;
    const int across = min(chunks, (int)THREADS), lines = THREADS / across;
    const int column = threadIdx.x % across, line = threadIdx.x / across;
    const int begin = slab * p.slab, end = min((i64)begin + p.slab, p.pixels.size);
    const char *data = p.pixels.at[0].data;
    const i64 image_at = image * p.image_stride;

    for (int from = 0; from < chunks; from += across) {
        const int chunk = from + column;
        const bool mine = chunk < chunks && line < lines;
        float sum[WIDTH] = {0}, square[WIDTH] = {0};
        if (mine) {
            const i64 channel_at = image_at + (first_channel + chunk * WIDTH) * p.channel_stride;
            vec<X_TYPE, WIDTH> x[PIXELS_AT_ONCE];
            float pivot[WIDTH];
            load<X_KIND>(x[0], data, channel_at + pixel_at(p, begin), p.channel_stride, WIDTH);
#pragma unroll
            for (int j = 0; j < WIDTH; j++) pivot[j] = as_float(x[0].at[j]);
            if (line == 0)
                for (int j = 0; j < WIDTH; j++) pivot_of[chunk * WIDTH + j] = pivot[j];
            for (int pixel = begin + line; pixel < end; pixel += PIXELS_AT_ONCE * lines) {
#pragma unroll
                for (int t = 0; t < PIXELS_AT_ONCE; t++) {
                    const i64 at = channel_at + pixel_at(p, min(pixel + t * lines, end - 1));
                    load<X_KIND>(x[t], data, at, p.channel_stride, WIDTH);
                }
#pragma unroll
                for (int t = 0; t < PIXELS_AT_ONCE; t++) {
                    if (pixel + t * lines >= end) continue;
#pragma unroll
                    for (int j = 0; j < WIDTH; j++) {
                        float d = as_float(x[t].at[j]) - pivot[j];
                        sum[j] += d;
                        square[j] += d * d;
                    }
                }
            }
        }
        __syncthreads();
        if (mine)
            for (int j = 0; j < WIDTH; j++) {
                sums[(line * across + column) * WIDTH + j] = sum[j];
                squares[(line * across + column) * WIDTH + j] = square[j];
            }
        __syncthreads();
        const int here = min(across, chunks - from) * WIDTH; /* channels of this round */
        for (int c = threadIdx.x; c < here; c += THREADS) {
            float s = 0.0f, q = 0.0f;
            for (int l = 0; l < lines; l++) {
                s += sums[l * across * WIDTH + c];
                q += squares[l * across * WIDTH + c];
            }
            sum_of[from * WIDTH + c] = s;
            square_of[from * WIDTH + c] = q;
        }
    }
    __syncthreads();
    const double pixels = end - begin;
    for (int g = threadIdx.x; g < groups; g += THREADS) {
        double mean = 0.0, spread = 0.0;
        for (int c = g * p.group_size; c < (g + 1) * p.group_size; c++) mean += sum_of[c] + pivot_of[c] * pixels;
        mean /= pixels * p.group_size;
        for (int c = g * p.group_size; c < (g + 1) * p.group_size; c++) { /* sum of (d + e)^2, where e = pivot - mean */
            double e = pivot_of[c] - mean;
            spread += square_of[c] + 2.0 * e * sum_of[c] + e * e * pixels;
        }
        double *to = p.partial + (((i64)image * p.slabs + slab) * p.groups + first_group + g) * 2;
        to[0] = mean;
        to[1] = spread;
    }
}

#else

enum { THREADS = 128 };
__shared__ double of_thread[THREADS];

FN double sum_block(double v) {
    __syncthreads();
    of_thread[threadIdx.x] = v;
    __syncthreads();
    for (int half = THREADS / 2; half; half /= 2) {
        if (threadIdx.x < half) of_thread[threadIdx.x] += of_thread[threadIdx.x + half];
        __syncthreads();
    }
    return of_thread[0];
}

/* One block for each group of each image: computes mean and scale, and writes them for each channel of the group. */
extern "C" __global__ void __launch_bounds__(THREADS) group_finish(const __grid_constant__ lz_group_params p) {
    const int group = blockIdx.x % p.groups, image = blockIdx.x / p.groups;
    const double *partial = p.partial + ((i64)image * p.slabs * p.groups + group) * 2;
    const i64 step = (i64)p.groups * 2;
    double weighted = 0.0, spread = 0.0;
    for (int s = threadIdx.x; s < p.slabs; s += THREADS) {
        double pixels = min((i64)p.slab, p.pixels.size - (i64)s * p.slab);
        weighted += partial[s * step] * pixels;
    }
    const double mean = sum_block(weighted) / (double)p.pixels.size;
    for (int s = threadIdx.x; s < p.slabs; s += THREADS) {
        double pixels = min((i64)p.slab, p.pixels.size - (i64)s * p.slab), e = partial[s * step] - mean;
        spread += partial[s * step + 1] + e * e * (pixels * p.group_size);
    }
    spread = sum_block(spread);
    spread = spread < 0.0 ? 0.0 : spread;
    const float scale = (float)(1.0 / sqrt(spread / ((double)p.pixels.size * p.group_size) + p.eps));
    for (int c = threadIdx.x; c < p.group_size; c += THREADS) {
        i64 at = (i64)image * p.channels + group * p.group_size + c;
        p.mean[at] = (float)mean;
        p.scale[at] = scale;
    }
}
#endif
