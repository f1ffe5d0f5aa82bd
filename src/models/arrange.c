/* arrange.c: see arrange.h. */
#define LZ_NO_SUGAR
#include "models/arrange.h"

#include <assert.h>
#include <string.h>

/* ---- recipes ----------------------------------------------------------------------------------------------------- */

/* Where an element of the value is: the number of the source, and the element of that source. */
typedef struct spot {
    int source;
    int64_t element;
} spot;

enum { CHUNK = 1024 };

static void copy_element(const lz_tensor *from, int64_t element, char *to, int64_t i) {
    switch (lz_dtype_size(from->dtype)) {
    case 1: to[i] = from->data[element]; break;
    case 2: memcpy(to + 2 * i, from->data + 2 * element, 2); break;
    case 4: memcpy(to + 4 * i, from->data + 4 * element, 4); break;
    default: memcpy(to + 8 * i, from->data + 8 * element, 8); break;
    }
}

/* Gathers some elements in their own type, then casts them. */
static void gather(const lz_recipe_work *work, int64_t first, int64_t n, char *to,
                   spot (*locate)(const lz_recipe_work *work, int64_t element)) {
    double room[CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t some = n - at < CHUNK ? n - at : CHUNK;
        for (int64_t i = 0; i < some; i++) {
            spot s = locate(work, first + at + i);
            copy_element(&work->from[s.source], s.element, (char *)room, i);
        }
        lz_recipe_work cast = {.from = {{.data = (char *)room, .dtype = work->from[0].dtype, .dims = {1, {some}}}},
                               .n = 1,
                               .dtype = work->dtype,
                               .dims = {1, {some}}};
        cast.from[0].strides[0] = 1;
        lz_recipe_cast.make(&cast, 0, some, to + at * lz_dtype_size(work->dtype));
    }
}

/* One source after the other. */
static spot in_turn(const lz_recipe_work *work, int64_t element) {
    int i = 0;
    for (; i < work->n - 1 && element >= lz_dims_size(work->from[i].dims); i++)
        element -= lz_dims_size(work->from[i].dims);
    return (spot){i, element};
}

/* [out, in, frames, h, w], where each source is a frame. */
static spot by_frame(const lz_recipe_work *work, int64_t element) {
    int64_t area = work->dims.at[3] * work->dims.at[4], frames = work->dims.at[2];
    return (spot){(int)(element / area % frames), element / (area * frames) * area + element % area};
}

/* [out, in, k...] from [out, k..., in] */
static spot channels_first(const lz_recipe_work *work, int64_t element) {
    int64_t in = work->dims.at[1], kernel = 1;
    for (int i = 2; i < work->dims.n; i++) kernel *= work->dims.at[i];
    int64_t out = element / (in * kernel), channel = element / kernel % in;
    return (spot){0, (out * kernel + element % kernel) * in + channel};
}

static void make_joined(const lz_recipe_work *work, int64_t first, int64_t n, char *to) {
    gather(work, first, n, to, in_turn);
}
static void make_frames(const lz_recipe_work *work, int64_t first, int64_t n, char *to) {
    gather(work, first, n, to, by_frame);
}
static void make_channels_first(const lz_recipe_work *work, int64_t first, int64_t n, char *to) {
    gather(work, first, n, to, channels_first);
}

static const lz_recipe joined = {"join", make_joined}, frames = {"frames", make_frames},
                       first_channels = {"channels first", make_channels_first};

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* A shape without its axes of length 1: writers add and drop them. */
static lz_dims squeezed(lz_dims d) {
    lz_dims s = {.n = 0};
    for (int i = 0; i < d.n; i++)
        if (d.at[i] != 1) s.at[s.n++] = d.at[i];
    return s;
}

static bool fits(lz_dims a, lz_dims b) { return lz_dims_equal(squeezed(a), squeezed(b)); }

static lz_dims with_channels_last(lz_dims d) {
    int64_t in = d.at[1];
    for (int i = 1; i < d.n - 1; i++) d.at[i] = d.at[i + 1];
    d.at[d.n - 1] = in;
    return d;
}

static lz_dims file_dims(const lz_origin *from, const lz_arranged *to, int i) {
    lz_dims d = to->pieces[i].dims;
    if (from->pieces[i].rows >= 0 && d.n) d.at[0] = from->pieces[i].rows;
    return d;
}

/* The shape that the pieces have together. */
static lz_dims whole_dims(const lz_origin *from, const lz_arranged *to) {
    lz_dims d = file_dims(from, to, 0);
    if (from->frames && d.n == 4) return (lz_dims){5, {d.at[0], d.at[1], from->n, d.at[2], d.at[3]}};
    for (int i = 1; i < from->n && d.n; i++) {
        lz_dims next = file_dims(from, to, i);
        if (next.n) d.at[0] += next.at[0];
    }
    return d;
}

/* ---- taking pieces ----------------------------------------------------------------------------------------------- */

/* Small tensors are made dense: what they would save is not worth a kernel. */
enum { SMALL = 1024 };

static bool stays_packed(const lz_packed *p, lz_dims want) {
    return want.n >= 2 && want.at[0] == p->layout.rows && want.at[1] == p->layout.columns &&
           lz_dims_size(want) == p->layout.rows * p->layout.columns && lz_dims_size(want) > SMALL && lz_packed_exact(p);
}

/* The rows of a piece that is packed. */
static lz_status take_packed(lz_weights *w, const lz_origin *from, const lz_stored *s, int i, lz_packed *to,
                             lz_error *err) {
    int64_t rows = s->layout.rows, first = 0;
    if (from->pieces[i].rows >= 0 && s->dims.at[0]) { /* a row of a tensor with more axes is several of the matrix */
        int64_t each = rows / s->dims.at[0];
        first = from->pieces[i].first * each;
        rows = from->pieces[i].rows * each;
    }
    return lz_stored_take(w, s, first, rows, to, err);
}

/* Packed pieces that differ in their rows only stay packed as one matrix. False: they cannot. */
static bool join_packed(const lz_packed *pieces, int n, lz_dims want, lz_packed *to, lz_error *err) {
    assert(n > 0);
    lz_array *codes[LZ_NAME_PIECES];
    lz_packed all = pieces[0];
    for (int i = 0; i < n; i++) {
        if (!pieces[i].codes || !lz_packed_alike(&pieces[i].layout, &all.layout) || pieces[i].scales ||
            pieces[i].offsets || pieces[i].gains)
            return false;
        codes[i] = pieces[i].codes;
        if (i) all.layout.rows += pieces[i].layout.rows;
    }
    if (!stays_packed(&all, want)) return false;
    lz_dims dims = {2, {all.layout.rows, lz_shape(codes[0]).at[1]}};
    all.codes = lz_recipe_value(codes[0]->ctx, &joined, dims, LZ_U8, codes, n, err);
    if (all.codes) *to = all;
    return all.codes;
}

/* Pieces that do not stay packed become arrays of the type that models compute in; so do plain ones beside them. */
static lz_status make_dense(const lz_origin *from, lz_dims want, const lz_packed *packed, lz_arranged *to,
                            lz_error *err) {
    bool any = false;
    for (int i = 0; i < to->n; i++) any |= to->pieces[i].packed;
    for (int i = 0; any && i < to->n; i++) {
        assert(!to->pieces[i].packed || packed[i].codes);
        lz_context *ctx = to->pieces[i].packed ? packed[i].codes->ctx : to->sources[i]->ctx;
        lz_dtype compute = lz_compute_type(ctx);
        lz_dims dims = to->recipe ? file_dims(from, to, i) : want;
        if (to->pieces[i].packed)
            to->sources[i] = lz_packed_dense(ctx, &packed[i], dims, compute, err);
        else if (to->sources[i]->dtype != compute)
            to->sources[i] = lz_recipe_value(ctx, &lz_recipe_cast, dims, compute, &to->sources[i], 1, err);
        if (!to->sources[i]) return LZ_OUT_OF_MEMORY;
    }
    return LZ_OK;
}

static lz_status take_pieces(lz_weights *w, const lz_origin *from, lz_dims want, lz_arranged *to, lz_error *err) {
    lz_packed packed[LZ_NAME_PIECES] = {{.codes = NULL}};
    lz_error local = {.status = LZ_OK};
    for (int i = 0; i < from->n && !local.status; i++) {
        if (to->pieces[i].packed) {
            take_packed(w, from, &to->pieces[i], i, &packed[i], &local);
            continue;
        }
        to->sources[i] = lz_weights_get_rows(w, to->pieces[i].tensor->name, from->pieces[i].first, from->pieces[i].rows,
                                             to->recipe ? file_dims(from, to, i) : want);
        lz_check(to->sources[i], &local);
    }
    if (!local.status && !to->recipe && packed[0].codes && stays_packed(&packed[0], want))
        to->packed = packed[0];
    else if (!local.status && (to->recipe != &joined || !join_packed(packed, from->n, want, &to->packed, &local)) &&
             !local.status)
        make_dense(from, want, packed, to, &local);
    if (local.status && err) *err = local;
    return local.status;
}

lz_status lz_arrange(const lz_names *names, const char *name, const lz_origin *from, lz_dims want, lz_arranged *to,
                     lz_error *err) {
    lz_weights *w = names->weights;
    *to = (lz_arranged){.n = from->n};
    for (int i = 0; i < from->n; i++) {
        lz_status status = lz_stored_find(w, from->pieces[i].name, want, &to->pieces[i], err);
        if (status) return status;
    }
    lz_dims all = whole_dims(from, to);
    bool last = names->channels_last && want.n >= 4 && all.n == want.n;
    if (!fits(all, last ? with_channels_last(want) : want))
        return lz_fail(err, LZ_BAD_FILE, "%s: tensor '%s' is %s, but the configuration asks for %s",
                       LZ_SHOW_TEXT(lz_weights_path(w)), LZ_SHOW_TEXT(from->n > 1 ? name : from->pieces[0].name),
                       LZ_SHOW(all), LZ_SHOW(want));
    to->recipe = from->frames ? &frames : from->n > 1 ? &joined : last ? &first_channels : NULL;
    return take_pieces(w, from, want, to, err);
}
