/* generate.h: the state of one picture while it is being made, shared by making it (generate.c) and planning it
 * (plan.c). */
#ifndef LZ_GENERATE_H
#define LZ_GENERATE_H

#include "io/image.h"
#include "pipeline/family.h"

typedef struct lz_run_state {
    lz_model *model;
    const lz_picture_options *options;
    lz_picture *picture;
    int64_t width, height;
    int steps, first_step;
    bool prompt_cut;
    double guidance; /* 1: none */
    float *sigmas;   /* [steps + 1] */
    lz_array *noise; /* [1, c, h, w] */
    lz_array *start; /* [h w, c] tokens of the image to start from, or NULL */
    lz_denoiser denoiser;
    lz_progress progress;
} lz_run_state;

lz_status lz_settle(lz_run_state *r, lz_error *err);
lz_status lz_read_tokens(lz_run_state *r, lz_prompt prompts[2], lz_error *err);
/* The images that are looked at, without one to start from. */
const lz_image *lz_references(const lz_run_state *r, int *n);
void lz_prepare(lz_run_state *r);
#define LZ_PREPARED (2 + LZ_MAX_TABLES + LZ_MAX_ROWS)
int lz_list_prepared(lz_denoiser *d, lz_array **to[LZ_PREPARED]); /* where the arrays stand; returns how many */
/* One step: x to the next x. Its inputs are listed by lz_step_inputs, which returns how many; user: a model whose
 * step_shape is set. */
#define LZ_STEP_INPUTS (6 + LZ_MAX_TABLES + LZ_MAX_ROWS)
void lz_describe_step(lz_context *ctx, lz_array *const *in, lz_array **out, void *user);
int lz_step_inputs(lz_run_state *r, int step, lz_array *x, lz_array *in[LZ_STEP_INPUTS]);
lz_denoiser lz_step_shape(const lz_denoiser *d); /* without its arrays */
lz_array *lz_describe_pixels(const lz_model *model, lz_array *x, int64_t h, int64_t w);
/* The side of the tiles, in tokens, in which a picture must be decoded for lack of memory; 0: none. */
int64_t lz_choose_tile(const lz_model *model, int64_t h, int64_t w);
/* Evaluated. *tile: side of the tiles in pixels, or 0 when it was done at once. */
lz_status lz_decode_pixels(lz_model *model, lz_array *x, int64_t h, int64_t w, const lz_watch *watch, lz_array **pixels,
                           int64_t *tile, lz_error *err);

lz_reference_size lz_size_reference(const lz_model *model, const lz_image *image);
lz_reference_size lz_middle(const lz_image *image, int64_t unit); /* of a megapixel at most, in whole tokens */
lz_status lz_crop_image(lz_context *ctx, const lz_image *image, lz_reference_size size, lz_image *to, lz_error *err);
lz_array *lz_picture_array(lz_context *ctx, const lz_image *image);
lz_status lz_make_image(lz_context *ctx, lz_array *pixels, lz_image *image,
                        lz_error *err); /* pixels [h, w, 3] in 0..1 */
/* [1, c, p h, p w] -> [h w, c p p], channel by channel, of each its rows; and back */
lz_array *lz_to_tokens(lz_array *planes, int64_t patch);
lz_array *lz_to_planes(lz_array *tokens, int64_t h, int64_t w, int64_t patch);

#endif
