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
    double shown_at; /* when the last preview was */

    /* The loop. A step is told nothing by the host: it makes the next x, and counts on. */
    lz_array *x;              /* [h w, c] */
    lz_array *at;             /* [1] i64: which step this is */
    lz_array *falls;          /* [steps]: how far sigma falls in each */
    lz_array *guidance_array; /* [] */
} lz_run_state;

lz_status lz_settle(lz_run_state *r, lz_error *err); /* sigmas too, unless they are NULL */
lz_status lz_read_tokens(lz_run_state *r, lz_prompt prompts[2], lz_error *err);
/* Features of a prompt that was read lately, or NULL; they stay the model's. And that these are worth keeping. */
lz_array *lz_recall(lz_model *m, const lz_prompt *prompt);
void lz_remember(lz_model *m, const lz_prompt *prompt, lz_array *features);
/* The images that are looked at, without one to start from. */
const lz_image *lz_references(const lz_run_state *r, int *n);
lz_dims lz_latent_dims(const lz_run_state *r);
/* Described from the sigmas of r: d->rows, d->still, r->falls. */
void lz_describe_schedule(lz_run_state *r);

/* What comes before the loop, and one turn of it, as functions to be compiled; user: a model whose shape is set. The
 * run state knows what goes in, and where what comes out belongs; its lists return how many that are. */
enum {
    LZ_BEGIN_INPUTS = 9,
    LZ_BEGIN_OUTPUTS = 6,
    LZ_STEP_INPUTS = 8 + LZ_MAX_TABLES + LZ_MAX_ROWS,
    LZ_STEP_OUTPUTS = 2,
};
void lz_describe_begin(lz_context *ctx, lz_array *const *in, lz_array **out, void *user);
int lz_begin_inputs(const lz_run_state *r, lz_array *in[LZ_BEGIN_INPUTS]);
int lz_begin_outputs(lz_run_state *r, lz_array **out[LZ_BEGIN_OUTPUTS]);
void lz_describe_step(lz_context *ctx, lz_array *const *in, lz_array **out, void *user);
int lz_step_inputs(const lz_run_state *r, lz_array *in[LZ_STEP_INPUTS]);
lz_denoiser lz_shape_of(const lz_run_state *r); /* without arrays, and without tables */

/* [h, w, 3] in 0..1 */
lz_array *lz_describe_pixels(const lz_model *model, lz_array *x, int64_t h, int64_t w);
/* What lz_make_image reads: [h w 3] bytes, then six that tell about the pixels: whether each colour lies in 0..1, and
 * whether it is the same everywhere. */
lz_array *lz_describe_bytes(lz_array *pixels);
/* The side of the tiles, in tokens, in which a picture must be decoded for lack of memory; 0: none. */
int64_t lz_choose_tile(const lz_model *model, int64_t h, int64_t w);
/* Evaluated. */
typedef struct lz_decoded {
    lz_array *pixels, *bytes;
    int64_t tile; /* side of the tiles in pixels, or 0 when it was done at once */
} lz_decoded;
lz_status lz_decode_pixels(lz_model *model, lz_array *x, int64_t h, int64_t w, const lz_watch *watch, lz_decoded *to,
                           lz_error *err);
lz_status lz_make_image(lz_context *ctx, const lz_decoded *decoded, lz_image *image, lz_error *err);

/* Tells whoever watches what the picture will be like, if they ask; before: the x that this step began with. */
lz_status lz_show_step(lz_run_state *r, int step, lz_array *before, lz_error *err);
/* The card whose latents the colours of previews are fitted to: [side, side, 3]; and it in n x n means, in 0..1. */
void lz_paint_card(uint8_t *pixels, int64_t side);
void lz_shrink_card(const uint8_t *pixels, int64_t side, int64_t n, double *colours);
/* The linear map [3, c + 1] that takes latents [n, c], and a 1, closest to colours [n, 3]. */
lz_status lz_fit_colours(lz_context *ctx, const float *latents, const double *colours, int64_t n, int64_t c, float *map,
                         lz_error *err);

lz_reference_size lz_size_reference(const lz_model *model, const lz_image *image);
lz_reference_size lz_middle(const lz_image *image, int64_t unit); /* of a megapixel at most, in whole tokens */
lz_status lz_crop_image(lz_context *ctx, const lz_image *image, lz_reference_size size, lz_image *to, lz_error *err);
lz_array *lz_picture_array(lz_context *ctx, const lz_image *image);
/* [1, c, p h, p w] -> [h w, c p p], channel by channel, of each its rows; and back */
lz_array *lz_to_tokens(lz_array *planes, int64_t patch);
lz_array *lz_to_planes(lz_array *tokens, int64_t h, int64_t w, int64_t patch);

#endif
