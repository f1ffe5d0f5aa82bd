/* preview.c: a preview of the result after a step: x is extrapolated linearly, with the velocity of the step, to the
 * end of the schedule, and then decoded by the decoder, or by a linear map from latents to colours.
 *
 * The map is fitted to the model's own autoencoder, so it works for every family and folder: a small card of coloured
 * patches is encoded once, and its colours are regressed on the latents. A token becomes 2 x 2 pixels, because in all
 * families a token is 2 x 2 latents, channel by channel. */
#include <math.h>
#include <string.h>

#include "pipeline/job.h"

/* Side of a token in latents; least side of the card in pixels, and in tokens: the card must have enough latents to
 * determine the map. */
enum { SIDE = 2, CARD = 96, CARD_TOKENS = 6 };

/* ---- the map ----------------------------------------------------------------------------------------------------- */

/* A pseudo-random number in 0..1; the sequence is the same in every run. */
static double draw_number(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX */
    return (double)(*state >> 33) / 0x1p31;
}

/* Colours are mostly near grey, as in photos and drawings; one in five is not. */
static void draw_colour(uint64_t *state, double colour[3]) {
    for (int k = 0; k < 3; k++) colour[k] = draw_number(state);
    double grey = draw_number(state), share = draw_number(state) > 0.2 ? 0.7 : 0;
    for (int k = 0; k < 3; k++) colour[k] += share * (grey - colour[k]);
}

/* Patches of two colours: flat, gradient, edge, speckled. Of the cards that were tried with TAEF2's encoder, this kind
 * gave the best fit for photos and drawings, better than other photos and drawings did. */
void lz_paint_card(uint8_t *pixels, int64_t side) {
    enum { PATCH = 32, FLAT = 0, FADE, EDGE, SPECKLED, KINDS };
    uint64_t state = 12;
    for (int64_t top = 0; top < side; top += PATCH)
        for (int64_t left = 0; left < side; left += PATCH) {
            double a[3], b[3];
            int kind = (int)(draw_number(&state) * KINDS);
            draw_colour(&state, a);
            draw_colour(&state, b);
            double angle = 6.283185307179586 * draw_number(&state), spread = draw_number(&state);
            for (int64_t y = top; y < top + PATCH && y < side; y++)
                for (int64_t x = left; x < left + PATCH && x < side; x++) {
                    double along = ((double)(x - left) / PATCH - 0.5) * cos(angle) +
                                   ((double)(y - top) / PATCH - 0.5) * sin(angle);
                    double mix = kind == FLAT   ? 0
                                 : kind == FADE ? along + 0.5
                                 : kind == EDGE ? along > 0
                                                : 0.5 + spread * (2 * draw_number(&state) - 1);
                    mix = fmin(fmax(mix, 0), 1);
                    for (int k = 0; k < 3; k++)
                        pixels[3 * (y * side + x) + k] = (uint8_t)(255 * (a[k] + mix * (b[k] - a[k])) + 0.5);
                }
        }
}

/* The mean colour of the square of each latent: [n, n, 3] in 0..1. */
void lz_shrink_card(const uint8_t *pixels, int64_t side, int64_t n, double *colours) {
    int64_t step = side / n;
    memset(colours, 0, (size_t)(n * n * 3) * sizeof *colours);
    for (int64_t y = 0; y < n * step; y++)
        for (int64_t x = 0; x < n * step; x++)
            for (int k = 0; k < 3; k++)
                colours[3 * (y / step * n + x / step) + k] += pixels[3 * (y * side + x) + k] /
                                                              (255.0 * (double)(step * step));
}

/* Solves a x = b in place by Cholesky decomposition. a [m, m] is positive definite, b [m, 3]. */
static void solve(double *a, double *b, int64_t m) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = a[i * m + j];
            for (int64_t k = 0; k < j; k++) sum -= a[i * m + k] * a[j * m + k];
            a[i * m + j] = i == j ? sqrt(sum) : sum / a[j * m + j];
        }
    for (int k = 0; k < 3; k++) {
        for (int64_t i = 0; i < m; i++) {
            for (int64_t j = 0; j < i; j++) b[3 * i + k] -= a[i * m + j] * b[3 * j + k];
            b[3 * i + k] /= a[i * m + i];
        }
        for (int64_t i = m - 1; i >= 0; i--) {
            for (int64_t j = i + 1; j < m; j++) b[3 * i + k] -= a[j * m + i] * b[3 * j + k];
            b[3 * i + k] /= a[i * m + i];
        }
    }
}

/* Ridge regression of centred values. The ridge is small compared with latents of variance 1, and keeps coefficients
 * that the card does not determine at 0. */
lz_status lz_fit_colours(lz_context *ctx, const float *latents, const double *colours, int64_t n, int64_t c, float *map,
                         lz_error *err) {
    size_t bytes = (size_t)(c * c + 3 * c + c + 3) * sizeof(double);
    double *a = lz_host_alloc(ctx, bytes);
    if (!a) return lz_out_of_memory(err, (int64_t)bytes);
    double *b = a + c * c, *middle = b + 3 * c, *colour = middle + c;
    memset(a, 0, bytes);
    for (int64_t s = 0; s < n; s++) {
        for (int64_t i = 0; i < c; i++) middle[i] += (double)latents[s * c + i] / (double)n;
        for (int k = 0; k < 3; k++) colour[k] += colours[3 * s + k] / (double)n;
    }
    for (int64_t s = 0; s < n; s++)
        for (int64_t i = 0; i < c; i++) {
            double x = (double)latents[s * c + i] - middle[i];
            for (int64_t j = 0; j <= i; j++) a[i * c + j] += x * ((double)latents[s * c + j] - middle[j]);
            for (int k = 0; k < 3; k++) b[3 * i + k] += x * (colours[3 * s + k] - colour[k]);
        }
    for (int64_t i = 0; i < c; i++) a[i * c + i] += 0.01 * (double)n;
    solve(a, b, c);
    for (int k = 0; k < 3; k++) {
        for (int64_t i = 0; i < c; i++) {
            map[k * (c + 1) + i] = (float)b[3 * i + k];
            colour[k] -= b[3 * i + k] * middle[i];
        }
        map[k * (c + 1) + c] = (float)colour[k];
    }
    lz_host_free(ctx, a);
    return LZ_OK;
}

/* [h w, c 2 2] -> [2h 2w, c] */
static lz_array *spread_tokens(lz_array *x, int64_t h, int64_t w) {
    int64_t c = lz_shape(x).at[1] / (SIDE * SIDE);
    x = lz_permute(lz_reshape(x, LZ_DIMS(h, w, c, SIDE, SIDE)), LZ_DIMS(0, 3, 1, 4, 2));
    return lz_reshape(x, LZ_DIMS(h * w * SIDE * SIDE, c));
}

static int64_t card_tokens(int64_t unit) { return CARD / unit > CARD_TOKENS ? CARD / unit : CARD_TOKENS; }

static lz_status fit_card(lz_model *m, uint8_t *pixels, double *colours, float *map, lz_error *err) {
    int64_t unit = m->family->token_pixels(m->state), h = card_tokens(unit), n = h * SIDE;
    int64_t c = lz_token_channels(m) / (SIDE * SIDE);
    lz_image card = {.width = h * unit, .height = h * unit, .pixels = pixels};
    lz_paint_card(pixels, card.width);
    lz_shrink_card(pixels, card.width, n, colours);
    lz_array *tokens = m->family->encode(m->state, lz_picture_array(m->ctx, &card));
    lz_array *latents = lz_contiguous(spread_tokens(lz_cast(tokens, LZ_F32), h, h));
    lz_error local = {.status = LZ_OK};
    const float *data = lz_data(latents, &local);
    if (data) lz_fit_colours(m->ctx, data, colours, n * n, c, map, &local);
    if (local.status && err) *err = local;
    return local.status;
}

/* The map of a model, [3, c + 1]; the last column is the constant. Made once; if two jobs fit it at the same time, the
 * first result is kept. */
static lz_status ready_map(lz_model *m, lz_array **map, lz_error *err) {
    pthread_mutex_lock(&m->kept.lock);
    *map = m->kept.preview_map;
    pthread_mutex_unlock(&m->kept.lock);
    if (*map) return LZ_OK;
    int64_t columns = lz_token_channels(m) / (SIDE * SIDE) + 1, unit = m->family->token_pixels(m->state);
    size_t side = (size_t)(card_tokens(unit) * unit), bytes = (size_t)(3 * columns) * sizeof(float);
    size_t colours = side * side * 3 * sizeof(double);
    char *room = lz_host_alloc(m->ctx, colours + bytes + side * side * 3);
    if (!room) return lz_out_of_memory(err, (int64_t)(colours + bytes));
    float *numbers = (float *)(void *)(room + colours);
    lz_scope *scope = lz_scope_begin(m->ctx, "preview");
    lz_status status = fit_card(m, (uint8_t *)room + colours + bytes, (double *)(void *)room, numbers, err);
    lz_array *made = status ? NULL : lz_retain(lz_from(m->ctx, LZ_DIMS(3, columns), LZ_F32, numbers));
    if (!status) status = lz_check(made, err);
    lz_scope_end(scope);
    lz_host_free(m->ctx, room);
    if (!status) {
        pthread_mutex_lock(&m->kept.lock);
        if (!m->kept.preview_map) {
            m->kept.preview_map = made;
            made = NULL;
        }
        *map = m->kept.preview_map;
        pthread_mutex_unlock(&m->kept.lock);
    }
    lz_release(made);
    return status;
}

/* ---- a step's picture -------------------------------------------------------------------------------------------- */

/* The tokens that the preview shows: those of the first frame. A model of layers makes several frames, and its first is
 * the whole picture. */
static lz_array *first_frame(const lz_layout *l, lz_array *x) { return lz_slice(x, 0, 0, l->h * l->w, 1); }

/* in: x before and after the step, the remaining distance in units of the step, the map */
static void describe_colours(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx;
    const lz_loop *loop = user;
    int64_t c = lz_shape(in[3]).at[1] - 1;
    lz_array *end = lz_add(in[1], lz_mul(lz_sub(in[1], in[0]), in[2]));
    lz_array *latents = spread_tokens(first_frame(&loop->layout, end), loop->layout.h, loop->layout.w);
    lz_array *bias = lz_reshape(lz_slice(in[3], 1, c, c + 1, 1), LZ_DIMS(3));
    lz_array *colours = lz_linear(latents, lz_slice(in[3], 1, 0, c, 1), bias);
    out[0] = lz_cast(lz_add(lz_mul(lz_clip(colours, 0, 1), 255.0), 0.5), LZ_U8);
}

static lz_status map_colours(lz_job *job, lz_array *const *in, lz_image *to, lz_error *err) {
    lz_context *ctx = job->model->ctx;
    lz_loop *loop = job->loop;
    lz_error local = {.status = LZ_OK};
    lz_array *bytes = NULL;
    int64_t w = SIDE * job->layout.w, h = SIDE * job->layout.h;
    if (!loop->preview) loop->preview = lz_compile(ctx, describe_colours, loop, 4, 1, 1, &local);
    if (loop->preview) lz_run(loop->preview, in, &bytes, &local);
    if (!local.status && !(to->pixels = lz_host_alloc(ctx, (size_t)(3 * w * h)))) lz_out_of_memory(&local, 3 * w * h);
    to->width = w;
    to->height = h;
    if (!local.status) lz_copy(bytes, to->pixels, 3 * w * h, &local);
    if (local.status && err) *err = local;
    return local.status;
}

/* A preview that is uniform or NaN is not an error: later steps may change it. */
static lz_status decode_sketch(lz_job *job, lz_array *const *in, lz_image *to, lz_error *err) {
    lz_decoded decoded = {0};
    lz_error local = {.status = LZ_OK};
    lz_array *end = lz_add(in[1], lz_mul(lz_sub(in[1], in[0]), in[2]));
    end = lz_contiguous(first_frame(&job->layout, end));
    lz_status status = lz_eval(end, &local);
    lz_decoder *decoder = status ? NULL : lz_decoder_take(job->model, job->layout.h, job->layout.w, &local);
    if (!status) status = decoder ? lz_decode_pixels(job->model, decoder, end, NULL, &decoded, &local) : local.status;
    if (!status) status = lz_make_image(job->model->ctx, &decoded, to, &local);
    if (status == LZ_BAD_FILE && to->pixels) status = LZ_OK;
    if (job->options.background == LZ_BACKGROUND_OPAQUE) lz_image_apply(to, LZ_ALPHA_OVER_WHITE);
    if (!status) status = lz_repaint_paste(job, to, &local);
    if (status && err) *err = local;
    return status;
}

/* A pass that added noise: x without it, on the line from `before` to the end. *ahead: the remaining distance in units
 * of the pass. */
static lz_array *without_noise(const lz_job *job, int pass, float *ahead) {
    const lz_passes *p = &job->passes;
    const float *w = p->weights + (ptrdiff_t)pass * p->n_weights; /* of x, velocity and noise */
    float share = -w[1] / (w[0] * p->sigmas[pass]);
    lz_array *noise = lz_slice(job->slots.step_noise, 0, pass - job->first_pass, pass - job->first_pass + 1, 1);
    noise = lz_reshape(noise, lz_shape(job->slots.x));
    *ahead = (1 - share) / share;
    return lz_contiguous(lz_mul(lz_sub(job->slots.x, lz_mul(noise, (double)w[2])), 1 / (double)w[0]));
}

/* Where the start is kept, x on the line from `before` to the start, without the noise that the loop added. */
static lz_array *on_line_to_start(const lz_job *job, lz_array *before, lz_array *after, double ahead) {
    lz_array *m = job->slots.mask, *end = lz_add(job->slots.kept, lz_mul(before, ahead));
    lz_array *kept = lz_mul(end, 1 / (1 + ahead)), *keep = lz_add(lz_mul(m, -1.0), 1.0);
    return lz_contiguous(lz_add(lz_mul(keep, kept), lz_mul(m, after)));
}

lz_status lz_job_preview(lz_job *job, int pass, lz_array *before, lz_error *err) {
    const lz_picture_options *o = &job->options;
    bool late = lz_now() - job->shown_at >= o->preview_pause || pass + 1 == job->passes.n;
    if (!o->preview || !o->watch || !late || !lz_sampler_begins(job->sampler, pass)) return LZ_OK;
    lz_context *ctx = job->model->ctx;
    float now = job->passes.sigmas[pass], next = job->passes.sigmas[pass + 1];
    float ahead = now > next ? next / (now - next) : 0;
    lz_image image = {0};
    lz_array *map = NULL;
    lz_scope *scope = lz_scope_begin(ctx, "preview");
    lz_status status = o->preview == LZ_PREVIEW_SMALL ? ready_map(job->model, &map, err) : LZ_OK;
    bool noisy = job->sampler->noisy && next > 0;
    lz_array *after = noisy ? without_noise(job, pass, &ahead) : job->slots.x;
    if (noisy && job->slots.mask) after = on_line_to_start(job, before, after, (double)ahead);
    lz_array *in[4] = {before, after, lz_from(ctx, LZ_NONE, LZ_F32, &ahead), map};
    if (!status)
        status = o->preview == LZ_PREVIEW_SMALL ? map_colours(job, in, &image, err)
                                                : decode_sketch(job, in, &image, err);
    lz_scope_end(scope);
    if (!status) {
        if (!lz_job_tell(job, 1, &image)) status = lz_fail(err, LZ_CANCELLED, "stopped after a step");
        job->shown_at = lz_now();
    }
    lz_image_free(ctx, &image);
    return status;
}
