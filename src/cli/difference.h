/* difference.h: how much two pictures of one size differ. */
#ifndef LZ_CLI_DIFFERENCE_H
#define LZ_CLI_DIFFERENCE_H

#include "lazuli.h"

/* If one of the pictures has opacity, it is a channel like the colours, and the other picture is opaque. */
typedef struct difference {
    int64_t pixels, differing; /* differing: pixels with a difference in any channel */
    int largest;               /* of all channels, 0 to 255 */
    int64_t x, y;              /* the first pixel with that difference, row by row from the top; -1: none differs */
    double psnr;               /* dB, of all channels together, for a peak of 255; INFINITY: equal */
    /* The mean structural similarity of the channels (Wang, Bovik, Sheikh, Simoncelli 2004): a gaussian window of
     * 11 x 11 with sigma 1.5, variances divided by the weights' sum, K1 = 0.01, K2 = 0.03, and only windows that lie
     * inside the picture. NAN: the picture is smaller than the window. */
    double ssim;
} difference;

/* Both pictures must have the same size. false: out of memory. */
bool measure_difference(const lz_image *a, const lz_image *b, difference *d);

/* Fills `to`, an image of the same size and three channels with pixels that the caller allocated, with the absolute
 * differences, times a whole number that makes the largest one at most 255. A difference in opacity is drawn as one in
 * all colours. Returns that number. */
int draw_difference(const lz_image *a, const lz_image *b, int largest, const lz_image *to);

#endif
