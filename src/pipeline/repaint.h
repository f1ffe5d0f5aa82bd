/* repaint.h: a picture of which a part is repainted: inpainting and outpainting (lazuli.h, section 6). The rules are
 * those of the inpainting pipelines of diffusers 0.42. The images of a job that does this are prepared when its options
 * are settled:
 *
 *     first image, with the sides that are added  ->  canvas ---- box ---->  start  -> the loop ->  painted picture
 *     mask                                        ->  area   (crop_to_mask)  mask
 *                                                     canvas  <--------- pasted, by share ----------+
 *
 * canvas and area have the size of the result; start and mask have the size of the options, which the model paints. */
#ifndef LZ_REPAINT_H
#define LZ_REPAINT_H

#include "io/image.h"
#include "pipeline/slots.h"

/* A part of a picture, in pixels. */
typedef struct lz_crop {
    int64_t left, top, width, height;
} lz_crop;

typedef struct lz_repaint {
    bool on;                        /* a part is repainted; otherwise nothing below is used */
    bool shown;                     /* start is also the first reference image */
    bool sized;                     /* the options ask for a size; the canvas gets it */
    bool owns_canvas;               /* false: the canvas is the first image of the options */
    bool full;                      /* everything is repainted */
    bool faint;                     /* no pixel of the result is painted by half or more */
    int64_t feather;                /* pixels */
    lz_image images[LZ_MAX_IMAGES]; /* those of the options; the first one has the added sides */
    lz_image canvas, area, start;   /* area and start are owned; area is grey */
    lz_crop box;                    /* the part of the canvas that start shows */
    uint8_t *mask;                  /* [height, width] of start: 1 is repainted, 0 is kept; owned */
    uint8_t *share;                 /* [height, width] of the canvas: 0 to 255 of the painted picture; owned. NULL: it
                                       is not pasted */
} lz_repaint;

struct lz_job;
/* Checks the mask and the added sides, adds the sides and sets the default strength; before the size is settled. */
lz_status lz_repaint_begin(struct lz_job *job, lz_error *err);
/* Prepares the images; after the size is settled. */
lz_status lz_repaint_prepare(struct lz_job *job, lz_error *err);
void lz_repaint_free(struct lz_job *job);
/* One sentence for the user, or "". */
void lz_repaint_remark(const struct lz_job *job, char *to, size_t size);

/* The slot mask, from the mask in pixels. */
lz_array *lz_repaint_tokens(const struct lz_job *job);
/* x after a step, with the noisy start where the mask is 0. */
lz_array *lz_keep_start(const lz_slots *in, lz_array *x);
/* Replaces the painted picture by the canvas with the picture pasted into it. Does nothing if nothing is pasted. */
lz_status lz_repaint_paste(const struct lz_job *job, lz_image *painted, lz_error *err);

/* ---- pixels (paste.c) -------------------------------------------------------------------------------------------- */

void lz_make_grey(lz_image *image); /* with the weights of Pillow */
/* The image with its outermost pixels repeated at each side. */
lz_status lz_extend_image(lz_context *ctx, const lz_image *image, lz_sides sides, lz_image *to, lz_error *err);
/* The pixels that are not black, with padding around them, enlarged to the aspect ratio of width x height as far as the
 * image goes. There must be such pixels. */
lz_crop lz_mask_box(const lz_image *mask, int64_t width, int64_t height, int64_t padding);
/* The box of an image, as large as it fits into width x height, in the middle. The bars that are left repeat its edge. */
lz_status lz_fit_box(lz_context *ctx, const lz_image *image, lz_crop box, int64_t width, int64_t height, lz_image *to,
                     lz_error *err);
/* The inverse: the middle of an image, as large as it covers width x height. */
lz_status lz_cover(lz_context *ctx, const lz_image *image, int64_t width, int64_t height, lz_image *to, lz_error *err);
/* For each pixel of a grey mask 0 to 255: 0 where it is below 128, rising over `feather` pixels from there. */
lz_status lz_feather(lz_context *ctx, const lz_image *mask, int64_t feather, uint8_t *share, lz_error *err);
/* Blends a picture of the size of the box into the canvas. share: of the canvas. */
void lz_blend(lz_image *canvas, const lz_image *picture, lz_crop box, const uint8_t *share);

#endif
