/* image_prompt.c: see image_prompt.h. */
#include "pipeline/image_prompt.h"

/* The tokens of a prompt, their places, and the row that each has: its own embedding, or a row of an image. */
typedef struct line {
    int64_t *ids, *rows;
    float *places; /* [n, 3] */
    int64_t n;
} line;

static void add_token(line *l, int64_t id, int64_t row, int64_t time, int64_t y, int64_t x) {
    const int64_t place[3] = {time, y, x};
    for (int i = 0; i < 3; i++) l->places[3 * l->n + i] = (float)place[i];
    l->ids[l->n] = id;
    l->rows[l->n++] = row;
}

/* total: number of tokens afterwards. */
static void lay_out(const int64_t *ids, int64_t n, int64_t image_pad, const lz_units *images, int n_images,
                    int64_t total, line *l) {
    int64_t place = 0, seen = 0;
    int image = 0;
    for (int64_t i = 0; i < n && l->n < total; i++) {
        /* An image_pad in the user's text, which comes after the images, is an ordinary token. */
        if (ids[i] != image_pad || image == n_images) {
            add_token(l, ids[i], l->n, place, place, place);
            place++;
            continue;
        }
        int64_t h = images[image].h, w = images[image].w;
        for (int64_t k = 0; k < h * w && l->n < total; k++)
            add_token(l, ids[i], total + seen++, place, place + k / w, place + k % w);
        place += h > w ? h : w;
        image++;
    }
}

lz_status lz_image_prompt(lz_context *ctx, const int64_t *ids, int64_t n, int64_t image_pad, const lz_units *images,
                          int n_images, int64_t most, lz_prompt *to, lz_error *err) {
    int64_t total = n - n_images;
    for (int i = 0; i < n_images; i++) total += images[i].h * images[i].w;
    to->cut = total > most;
    if (to->cut) total = most;
    line l = {.ids = lz_host_alloc(ctx, (size_t)total * sizeof *l.ids),
              .rows = lz_host_alloc(ctx, (size_t)total * sizeof *l.rows),
              .places = lz_host_alloc(ctx, (size_t)(3 * total) * sizeof *l.places)};
    lz_status status = l.ids && l.rows && l.places ? LZ_OK : lz_out_of_memory(err, total);
    if (!status) {
        lay_out(ids, n, image_pad, images, n_images, total, &l);
        to->in[to->n++] = lz_from(ctx, LZ_DIMS(total), LZ_I64, l.ids);
        to->in[to->n++] = lz_from(ctx, LZ_DIMS(total, 3), LZ_F32, l.places);
        if (n_images) to->in[to->n++] = lz_from(ctx, LZ_DIMS(total), LZ_I64, l.rows);
    }
    lz_host_free(ctx, l.ids);
    lz_host_free(ctx, l.rows);
    lz_host_free(ctx, l.places);
    return status;
}
