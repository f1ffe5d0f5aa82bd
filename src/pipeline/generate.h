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
    const lz_sampler *sampler;
    int64_t width, height;
    int steps, first_step;
    bool prompt_cut;
    double guidance; /* 1: none */
    float *sigmas;   /* [steps + 1] */
    lz_layout layout;
    lz_slots slots; /* of the stages so far */
    lz_progress progress;
    double shown_at; /* when the last preview was */
} lz_run_state;

lz_run_state lz_new_run(lz_model *model, const lz_picture_options *options);

lz_status lz_settle(lz_run_state *r, lz_error *err); /* sigmas too, unless they are NULL */
lz_status lz_read_tokens(lz_run_state *r, lz_prompt prompts[2], lz_error *err);
/* Features of a prompt that was read lately, or NULL; they stay the model's. And that these are worth keeping. */
lz_array *lz_recall(lz_model *m, const lz_prompt *prompt);
void lz_remember(lz_model *m, const lz_prompt *prompt, lz_array *features);
/* The images that are looked at, without one to start from. */
const lz_image *lz_references(const lz_run_state *r, int *n);
lz_dims lz_latent_dims(const lz_run_state *r);
/* Describes from the sigmas of r: sigma_drops, rows, clean_row. */
void lz_describe_schedule(const lz_run_state *r, lz_slots *to);

extern const lz_slot_list lz_schedule_slots, lz_size_slots;
void lz_count_text(lz_run_state *r); /* layout.text_tokens, from the features */

/* The programs of the loop, not compiled yet. The first makes from noise and features what the loop begins with; the
 * second is a step. A step is told nothing by the host: it makes the next x, and adds 1 to its index. */
lz_traced lz_trace_begin(const lz_run_state *r);
lz_traced lz_trace_step(const lz_run_state *r);
/* Fills the slots that the first program reads, beside those of earlier stages. */
void lz_fill_begin(lz_run_state *r);

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
