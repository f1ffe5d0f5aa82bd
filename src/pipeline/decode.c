/* decode.c: latents to pixels: without tiles if the plan fits into memory, otherwise in overlapping tiles that are
 * blended. Norms and attention of the autoencoder then see only one tile, so the result differs slightly; lz_picture
 * reports the tile size. */
#include "pipeline/generate.h"

lz_array *lz_describe_pixels(const lz_model *model, lz_array *x, int64_t h, int64_t w) {
    lz_array *picture = model->family->decode(model->state, x, h, w);
    return lz_clip(lz_add(lz_mul(picture, 0.5), 0.5), 0, 1);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Maximum or minimum of each colour. Reduces over rows first, where memory access is contiguous. */
static lz_array *extreme(lz_array *(*reduce)(lz_array *, lz_dims, bool), lz_array *pixels) {
    lz_dims d = lz_shape(pixels);
    lz_array *row = reduce(lz_reshape(pixels, LZ_DIMS(d.at[0], d.at[1] * d.at[2])), LZ_DIMS(0), false);
    return reduce(lz_reshape(row, LZ_DIMS(d.at[1], d.at[2])), LZ_DIMS(0), false); /* [colours] */
}

lz_array *lz_describe_bytes(lz_array *pixels) {
    /* An f32 near 2^23 has no fractional bits, so adding 2^23 rounds to nearest even, like rintf. */
    lz_array *levels = lz_mul(lz_reshape(pixels, LZ_DIMS(-1)), 255.0);
    lz_array *rounded = lz_sub(lz_add(levels, 0x1p23), 0x1p23);
    lz_array *least = extreme((lz_min), pixels), *most = extreme((lz_max), pixels);
    lz_array *good = lz_and(lz_greater_equal(least, 0.0), lz_less_equal(most, 1.0)), *flat = lz_equal(least, most);
    return lz_concat((lz_array *[]){lz_cast(rounded, LZ_U8), lz_cast(good, LZ_U8), lz_cast(flat, LZ_U8)}, 3, 0);
}

static lz_status make_image(lz_context *ctx, const lz_decoded *decoded, bool *flat, lz_image *image, lz_error *err) {
    lz_dims d = lz_shape(decoded->pixels);
    int64_t n = lz_size(decoded->bytes);
    int colours = (int)d.at[2];
    bool good = *flat = true;
    *image = (lz_image){.width = d.at[1], .height = d.at[0], .channels = colours};
    image->pixels = lz_host_alloc(ctx, (size_t)n);
    if (!image->pixels) return lz_out_of_memory(err, n);
    lz_status status = lz_copy(decoded->bytes, image->pixels, n, err);
    if (status) return status;
    const uint8_t *facts = image->pixels + n - 2 * colours;
    for (int k = 0; k < colours; k++) {
        good = good && facts[k];
        *flat = *flat && facts[colours + k];
    }
    if (colours == 4 && facts[colours + 3] && image->pixels[3] == 0) *flat = true; /* invisible */
    if (good) return LZ_OK;
    return lz_fail(err, LZ_BAD_FILE,
                   "the picture came out as not a number: the model's weights or the noise are damaged");
}

lz_status lz_make_layer(lz_context *ctx, const lz_decoded *decoded, lz_image *image, lz_error *err) {
    bool flat;
    return make_image(ctx, decoded, &flat, image, err);
}

lz_status lz_make_image(lz_context *ctx, const lz_decoded *decoded, lz_image *image, lz_error *err) {
    bool flat = false;
    lz_status status = make_image(ctx, decoded, &flat, image, err);
    lz_image_apply(image, LZ_ALPHA_KEEP);
    if (!status && flat)
        return lz_fail(
            err, LZ_BAD_FILE,
            "the picture came out in one flat colour or invisible: the model's weights or the noise are damaged");
    return status;
}

/* ---- what fits --------------------------------------------------------------------------------------------------- */

/* The bytes that a program needs: on the device if there is one, else on the host. */
static int64_t bytes_of(const lz_plan_info *info) {
    return info->device_bytes ? info->device_bytes : info->arena_bytes + info->output_bytes;
}

static bool tile_fits(const lz_model *model, int64_t side, int64_t room) {
    lz_scope *scope = lz_scope_begin(model->ctx, "fits");
    lz_array *x = lz_contiguous(lz_full(model->ctx, LZ_DIMS(side * side, lz_token_channels(model)), LZ_F32, 0));
    lz_array *pixels = lz_describe_pixels(model, x, side, side), *both[2] = {pixels, lz_describe_bytes(pixels)};
    lz_plan_info info;
    bool good = lz_plan(both, 2, &info, NULL) || bytes_of(&info) <= room; /* an error will be reported when it runs */
    lz_scope_end(scope);
    return good;
}

static const int64_t sides[] = {64, 48, 32, 24, 16}; /* sides of tiles, in tokens */
enum { SIDES = sizeof sides / sizeof sides[0] };

lz_status lz_decoder_plan(lz_decoder *d, lz_plan_info *info, lz_error *err) {
    lz_context *ctx = d->model->ctx;
    lz_scope *scope = lz_scope_begin(ctx, "fits");
    lz_array *x = lz_stand_in(lz_full(ctx, LZ_DIMS(d->h * d->w, lz_token_channels(d->model)), LZ_F32, 0)), *out[2];
    lz_status status = lz_compiled_plan(d->program, &x, out, info, err);
    lz_scope_end(scope);
    return status;
}

int64_t lz_choose_tile(const lz_model *model, int64_t h, int64_t w, const lz_plan_info *whole) {
    int64_t room = lz_memory_available(model->ctx);
    if (bytes_of(whole) <= room) return 0;
    int i = 0;
    while (i < SIDES - 1 && !tile_fits(model, sides[i], room)) i++;
    return sides[i] < h || sides[i] < w ? sides[i] : 0;
}

/* The next smaller side, after memory ran out; 0: there is none. */
static int64_t smaller_tile(int64_t side, int64_t h, int64_t w) {
    int64_t now = side ? side : h > w ? h : w;
    for (int i = 0; i < SIDES; i++)
        if (sides[i] < now) return sides[i];
    return 0;
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

typedef struct canvas {
    int64_t height, width; /* pixels */
    int colours;
    float *sum, *weight; /* [height, width, colours], [height, width] */
} canvas;

/* The weight of a pixel: decreases towards an edge at which another tile continues. */
static float fade(int64_t at, int64_t size, int64_t overlap, bool open_before, bool open_behind) {
    float before = open_before ? ((float)at + 0.5f) / (float)overlap : 1;
    float behind = open_behind ? ((float)(size - at) - 0.5f) / (float)overlap : 1;
    float least = before < behind ? before : behind;
    return least < 1 ? least : 1;
}

static void paint(canvas *c, const float *tile, int64_t top, int64_t left, int64_t h, int64_t w, int64_t overlap) {
    for (int64_t y = 0; y < h; y++) {
        float down = fade(y, h, overlap, top > 0, top + h < c->height);
        for (int64_t x = 0; x < w; x++) {
            float count = down * fade(x, w, overlap, left > 0, left + w < c->width);
            int64_t at = (top + y) * c->width + left + x;
            for (int k = 0; k < c->colours; k++)
                c->sum[c->colours * at + k] += count * tile[c->colours * (y * w + x) + k];
            c->weight[at] += count;
        }
    }
}

/* Decodes one tile: side x side tokens (less at the edges) of x [h w, c] from row, column on. */
static lz_status decode_tile(const lz_model *model, lz_array *x, int64_t h, int64_t w, int64_t row, int64_t column,
                             int64_t side, const lz_watch *watch, canvas *c, lz_error *err) {
    lz_scope *scope = lz_scope_begin(model->ctx, "tile");
    int64_t unit = model->family->token_pixels(model->state);
    int64_t th = h - row < side ? h - row : side, tw = w - column < side ? w - column : side;
    lz_array *grid = lz_reshape(x, LZ_DIMS(h, w, -1));
    lz_array *part = lz_slice(lz_slice(grid, 0, row, row + th, 1), 1, column, column + tw, 1);
    lz_array *pixels = lz_describe_pixels(model, lz_reshape(part, LZ_DIMS(th * tw, -1)), th, tw);
    lz_status status = lz_eval_watched(&pixels, 1, watch, err);
    const float *data = status ? NULL : lz_data(pixels, err);
    if (data) paint(c, data, row * unit, column * unit, th * unit, tw * unit, side / 4 * unit);
    lz_scope_end(scope);
    return status ? status : data ? LZ_OK : LZ_OUT_OF_MEMORY;
}

/* The start of the next tile along a side: tiles overlap by a quarter; the last one ends at the edge. */
static int64_t next_start(int64_t at, int64_t size, int64_t side) {
    if (at + side >= size) return size;
    int64_t next = at + side - side / 4;
    return next + side > size ? (size - side > at ? size - side : size) : next;
}

static lz_status decode_tiles(const lz_model *model, lz_array *x, int64_t h, int64_t w, int64_t side,
                              const lz_watch *watch, lz_decoded *to, lz_error *err) {
    int64_t unit = model->family->token_pixels(model->state);
    canvas c = {.height = h * unit, .width = w * unit, .colours = lz_colours(model)};
    c.sum = lz_host_alloc(model->ctx, (size_t)(c.height * c.width * c.colours) * sizeof *c.sum);
    c.weight = lz_host_alloc(model->ctx, (size_t)(c.height * c.width) * sizeof *c.weight);
    bool room = c.sum && c.weight;
    lz_status status = room ? LZ_OK : lz_out_of_memory(err, c.height * c.width * 4 * (c.colours + 1));
    for (int64_t row = 0; room && row < h && !status; row = next_start(row, h, side))
        for (int64_t column = 0; column < w && !status; column = next_start(column, w, side))
            status = decode_tile(model, x, h, w, row, column, side, watch, &c, err);
    for (int64_t i = 0; room && i < c.height * c.width; i++)
        for (int k = 0; k < c.colours; k++) c.sum[c.colours * i + k] /= c.weight[i];
    if (!status) {
        to->pixels = lz_from(model->ctx, LZ_DIMS(c.height, c.width, c.colours), LZ_F32, c.sum);
        to->bytes = lz_describe_bytes(to->pixels);
        status = lz_eval(to->bytes, err);
    }
    lz_host_free(model->ctx, c.sum);
    lz_host_free(model->ctx, c.weight);
    return status;
}

/* ---- at once ----------------------------------------------------------------------------------------------------- */

void lz_describe_whole(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    (void)ctx;
    const lz_decoder *d = user;
    out[0] = lz_describe_pixels(d->model, in[0], d->h, d->w);
    out[1] = lz_describe_bytes(out[0]);
}

static lz_status decode_whole(lz_decoder *d, lz_array *x, const lz_watch *watch, lz_decoded *to, lz_error *err) {
    lz_array *out[2] = {NULL, NULL};
    lz_status status = lz_run_watched(d->program, &x, out, watch, err);
    d->ran = d->ran || !status;
    to->pixels = out[0];
    to->bytes = out[1];
    return status;
}

static lz_status decode_once(lz_model *model, lz_decoder *d, lz_array *x, int64_t side, const lz_watch *watch,
                             lz_decoded *to, lz_error *err) {
    to->tile = side * model->family->token_pixels(model->state);
    if (!side) return decode_whole(d, x, watch, to, err);
    lz_tell(model->ctx, LZ_LOG_NOTE, "memory is short: the picture is decoded in tiles of %lld pixels",
            (long long)to->tile);
    return decode_tiles(model, x, d->h, d->w, side, watch, to, err);
}

lz_status lz_decode_pixels(lz_model *model, lz_decoder *d, lz_array *x, const lz_watch *watch, lz_decoded *to,
                           lz_error *err) {
    lz_error local = {.status = LZ_OK}; /* of one attempt: a smaller tile may succeed */
    lz_plan_info info;
    int64_t side = 0;
    if (!d->ran && !lz_decoder_plan(d, &info, NULL)) side = lz_choose_tile(model, d->h, d->w, &info);
    bool whole = !side;
    lz_status status = decode_once(model, d, x, side, watch, to, &local);
    while (status == LZ_OUT_OF_MEMORY && (side = smaller_tile(side, d->h, d->w)) > 0)
        status = decode_once(model, d, x, side, watch, to, &local);
    lz_kept_put(model, LZ_KEPT_DECODER, d, whole);
    if (status && err) *err = local;
    return status;
}
