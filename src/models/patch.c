/* patch.c: see patch.h. */
#include "models/patch.h"

#include <math.h>
#include <string.h>

typedef struct kronecker { /* y += rows of (w1 x w2) x */
    lz_array *w1, *w2;     /* [a, b], [c, d]; retained. The factor is in w1 */
    lz_array *row_gain, *column_gain;
    int64_t first, rows, source_first, rotate; /* as in lz_term */
} kronecker;

struct lz_patch {
    lz_context *ctx;
    lz_term *terms;
    int n, room;
    bool built;
    lz_array *down, *up, *dense, *bias; /* retained; NULL: none */
    double scale;                       /* factor of the product with down */
    lz_array *row_gain, *column_gain;   /* of the base, f32 [out] and [in]; NULL: 1 */
    kronecker *products;
    int n_products;
};

/* ---- targets ----------------------------------------------------------------------------------------------------- */

/* The index of the name in the sorted list, or the index at which it would be inserted. */
static int64_t place_of(const lz_targets *t, const char *name, bool *found) {
    int64_t low = 0, high = t->n;
    *found = false;
    while (low < high && !*found) {
        int64_t middle = low + (high - low) / 2;
        int order = strcmp(t->list[middle]->name, name);
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
        *found = order == 0;
    }
    return *found ? high : low;
}

lz_target *lz_targets_find(const lz_targets *t, const char *name) {
    bool found;
    int64_t at = place_of(t, name, &found);
    return found ? t->list[at] : NULL;
}

lz_targets *lz_targets_new(lz_context *ctx) {
    lz_targets *t = lz_host_alloc(ctx, sizeof *t);
    if (t) t->ctx = ctx;
    return t;
}

lz_target *lz_targets_add(lz_targets *t, const char *name, lz_dims dims) {
    lz_context *ctx = t->ctx;
    bool found;
    int64_t at = place_of(t, name, &found);
    if (found) return t->list[at];
    size_t length = strlen(name) + 1;
    lz_target *target = lz_host_alloc(ctx, sizeof *target + length);
    if (!target) return NULL;
    if (t->n == t->room) {
        int64_t room = t->room ? 2 * t->room : 256;
        lz_target **list = lz_host_alloc(ctx, (size_t)room * sizeof *list);
        if (!list) {
            lz_host_free(ctx, target);
            return NULL;
        }
        if (t->n) memcpy(list, t->list, (size_t)t->n * sizeof *list);
        lz_host_free(ctx, t->list);
        t->list = list;
        t->room = room;
    }
    target->dims = dims;
    memcpy(target->name, name, length);
    memmove(t->list + at + 1, t->list + at, (size_t)(t->n - at) * sizeof *t->list);
    t->list[at] = target;
    t->n++;
    return target;
}

static void release_built(lz_patch *p) {
    lz_array *all[] = {p->down, p->up, p->dense, p->bias, p->row_gain, p->column_gain};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) lz_release(all[i]);
    p->down = p->up = p->dense = p->bias = p->row_gain = p->column_gain = NULL;
    for (int i = 0; i < p->n_products; i++) {
        lz_release(p->products[i].w1);
        lz_release(p->products[i].w2);
        lz_release(p->products[i].row_gain);
        lz_release(p->products[i].column_gain);
    }
    lz_host_free(p->ctx, p->products);
    p->products = NULL;
    p->n_products = 0;
    p->built = false;
}

static void free_patch(lz_patch *p) {
    if (!p) return;
    release_built(p);
    for (int k = 0; k < p->n; k++) {
        for (int i = 0; i < LZ_TERM_SOURCES; i++) lz_release(p->terms[k].from[i]);
        lz_release(p->terms[k].magnitude);
    }
    lz_host_free(p->ctx, p->terms);
    lz_host_free(p->ctx, p);
}

lz_patch **lz_targets_take(lz_targets *t) {
    lz_patch **patches = lz_host_alloc(t->ctx, (size_t)(t->n + 1) * sizeof *patches);
    for (int64_t i = 0; patches && i < t->n; i++) {
        patches[i] = t->list[i]->patch;
        t->list[i]->patch = NULL;
    }
    return patches;
}

void lz_targets_put(lz_targets *t, lz_patch **patches) {
    for (int64_t i = 0; patches && i < t->n; i++) {
        free_patch(t->list[i]->patch);
        t->list[i]->patch = patches[i];
    }
    lz_host_free(t->ctx, patches);
}

void lz_targets_drop(lz_targets *t, lz_patch **patches) {
    for (int64_t i = 0; patches && i < t->n; i++) free_patch(patches[i]);
    lz_host_free(t->ctx, patches);
}

bool lz_targets_patched(const lz_targets *t) {
    for (int64_t i = 0; i < t->n; i++)
        if (t->list[i]->patch) return true;
    return false;
}

void lz_targets_free(lz_targets *t) {
    if (!t) return;
    for (int64_t i = 0; i < t->n; i++) {
        free_patch(t->list[i]->patch);
        lz_host_free(t->ctx, t->list[i]);
    }
    lz_host_free(t->ctx, t->list);
    lz_host_free(t->ctx, t);
}

/* ---- terms ------------------------------------------------------------------------------------------------------- */

lz_status lz_patch_add(lz_target *target, lz_context *ctx, const lz_term *term, lz_error *err) {
    if (!target->patch) {
        if (!(target->patch = lz_host_alloc(ctx, sizeof *target->patch)))
            return lz_out_of_memory(err, sizeof *target->patch);
        target->patch->ctx = ctx;
    }
    lz_patch *p = target->patch;
    if (p->n == p->room) {
        int room = p->room ? 2 * p->room : 2;
        lz_term *terms = lz_host_alloc(ctx, (size_t)room * sizeof *terms);
        if (!terms) return lz_out_of_memory(err, (int64_t)((size_t)room * sizeof *terms));
        if (p->n) memcpy(terms, p->terms, (size_t)p->n * sizeof *terms);
        lz_host_free(ctx, p->terms);
        p->terms = terms;
        p->room = room;
    }
    lz_term added = *term;
    for (int i = 0; i < LZ_TERM_SOURCES; i++) {
        lz_error local = {.status = LZ_OK};
        if (added.from[i]) added.data[i] = lz_data(added.from[i], &local);
        if (local.status) {
            if (err) *err = local;
            return local.status;
        }
    }
    for (int i = 0; i < LZ_TERM_SOURCES; i++) lz_retain(added.from[i]);
    lz_retain(added.magnitude);
    p->terms[p->n++] = added;
    return LZ_OK;
}

bool lz_patch_waits(const lz_target *target) { return target->patch && !target->patch->built; }

bool lz_patch_needs_base(const lz_target *target) {
    for (int k = 0; target->patch && k < target->patch->n; k++)
        if (target->patch->terms[k].magnitude) return true;
    return false;
}

/* ---- DoRA: V = W + k D; rows (or columns) of V get the lengths that the file says --------------------------------- */

static lz_array *f32(lz_array *a) { return lz_cast(a, LZ_F32); }

static lz_array *factor(const lz_term *t, int k) {
    return t->from[k + 1] ? lz_matmul(f32(t->from[k]), f32(t->from[k + 1])) : f32(t->from[k]);
}

/* Rows first .. first + n - 1 of the term's own matrix, f32 [n, in]. */
static lz_array *rows_of_term(const lz_term *t, int64_t first, int64_t n) {
    if (t->kind == LZ_TERM_LOW_RANK)
        return lz_matmul(lz_slice(f32(t->from[1]), 0, first, first + n, 1), f32(t->from[0]));
    if (t->kind == LZ_TERM_HADAMARD)
        return lz_mul(lz_matmul(lz_slice(f32(t->from[0]), 0, first, first + n, 1), f32(t->from[1])),
                      lz_matmul(lz_slice(f32(t->from[2]), 0, first, first + n, 1), f32(t->from[3])));
    if (t->kind == LZ_TERM_KRONECKER) {
        lz_array *w1 = factor(t, 0), *w2 = factor(t, 2);
        lz_dims d = lz_shape(w1), e = lz_shape(w2);
        lz_array *all = lz_mul(lz_reshape(w1, LZ_DIMS(d.at[0], 1, d.at[1], 1)),
                               lz_reshape(w2, LZ_DIMS(1, e.at[0], 1, e.at[1])));
        return lz_slice(lz_reshape(all, LZ_DIMS(d.at[0] * e.at[0], d.at[1] * e.at[1])), 0, first, first + n, 1);
    }
    return lz_slice(f32(t->from[0]), 0, first, first + n, 1);
}

enum { NORM_ROWS = 1024 }; /* rows of V that are computed at a time */

/* The gain of each row of the target that the term has, or of each column: to[i]. */
static lz_status find_gains(const lz_patch *p, const lz_term *t, lz_array *base, bool columns, float *to,
                            lz_error *err) {
    lz_status status = LZ_OK;
    int64_t width = lz_shape(base).at[1];
    if (columns) memset(to, 0, (size_t)width * sizeof *to);
    for (int64_t done = 0, n; done < t->rows && !status; done += n) {
        int64_t source = (done + t->rotate) % t->rows;
        n = t->rows - (done > source ? done : source); /* up to the end of the rows of the target or of the source */
        if (n > NORM_ROWS) n = NORM_ROWS;
        lz_scope *scope = lz_scope_begin(p->ctx, "DoRA");
        lz_array *w = f32(lz_slice(base, 0, t->first + done, t->first + done + n, 1));
        lz_array *v = lz_add(w, lz_mul(rows_of_term(t, t->source_first + source, n), t->unit));
        lz_array *squares = lz_contiguous(lz_sum(lz_square(v), LZ_DIMS(columns ? 0 : 1), false));
        lz_array *magnitude = f32(lz_reshape(t->magnitude, LZ_DIMS(-1)));
        if (!columns)
            magnitude = lz_contiguous(
                lz_slice(magnitude, 0, t->source_first + source, t->source_first + source + n, 1));
        const float *s = lz_data(squares, err), *m = s ? lz_data(magnitude, err) : NULL;
        if (!m) status = lz_check(squares, NULL) ? lz_check(squares, NULL) : LZ_OUT_OF_MEMORY;
        for (int64_t i = 0; m && !columns && i < n; i++) to[done + i] = (float)(m[i] / sqrt((double)s[i]));
        for (int64_t i = 0; m && columns && i < width; i++) to[i] += s[i];
        if (m && columns && done + n == t->rows)
            for (int64_t i = 0; i < width; i++) to[i] = (float)(m[i] / sqrt((double)to[i]));
        lz_scope_end(scope);
    }
    return status;
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

typedef struct builder {
    lz_patch *p;
    const lz_target *target;
    lz_dtype type;
    int64_t out, in;
    lz_made_term *low, *dense;
    int n_low, n_dense;
    int64_t rank;
    /* Gains of rows and columns of the base, and the numbers added to the result; NULL: none. */
    float *rows, *columns, *bias;
    float *gains;
} builder;

static float *numbers(const builder *b, int64_t n, float value, lz_error *err) {
    float *to = lz_host_alloc(b->p->ctx, (size_t)n * sizeof *to);
    if (!to) lz_out_of_memory(err, n * 4);
    for (int64_t i = 0; to && i < n; i++) to[i] = value;
    return to;
}

/* Computes the gains of a DoRA term, and adds its changes to the gains of the base. */
static lz_status add_gains(builder *b, const lz_term *t, lz_array *base, lz_made_term *made, lz_error *err) {
    lz_context *ctx = b->p->ctx;
    bool columns = lz_shape(t->magnitude).at[0] == 1 && lz_shape(t->magnitude).at[1] == b->in;
    if ((columns && b->rows) || (!columns && b->columns))
        return lz_fail(err, LZ_BAD_FILE, "two LoRAs set the lengths of the rows and of the columns of '%s'",
                       b->target->name);
    float **gains = columns ? &b->columns : &b->rows;
    int64_t n = columns ? b->in : t->rows, first = columns ? 0 : t->first;
    if (!*gains && !(*gains = numbers(b, columns ? b->in : b->out, 1, err))) return LZ_OUT_OF_MEMORY;
    lz_status status = find_gains(b->p, t, base, columns, b->gains, err);
    if (status) return status;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(b->gains[i])) b->gains[i] = 1; /* a row of zeros has no direction */
        (*gains)[first + i] += (float)t->strength * (b->gains[i] - 1);
    }
    lz_array *array = lz_from(ctx, LZ_DIMS(n), LZ_F32, b->gains);
    const float *values = lz_data(array, err);
    if (!values) return LZ_OUT_OF_MEMORY;
    if (columns) {
        made->column_array = array;
        made->column_gain = values;
    } else {
        made->row_array = array;
        made->row_gain = values;
    }
    return LZ_OK;
}

static lz_status add_product(builder *b, const lz_made_term *made, lz_error *err) {
    const lz_term *t = &made->term;
    lz_array *w1 = lz_cast(lz_mul(factor(t, 0), t->strength * t->unit), b->type), *w2 = lz_cast(factor(t, 2), b->type);
    lz_status status = lz_eval_all((lz_array *[]){w1, w2}, 2, err);
    if (status) return status;
    b->p->products[b->p->n_products++] = (kronecker){
        .w1 = lz_retain(w1),
        .w2 = lz_retain(w2),
        .row_gain = lz_retain(made->row_array),
        .column_gain = lz_retain(made->column_array),
        .first = t->first,
        .rows = t->rows,
        .source_first = t->source_first,
        .rotate = t->rotate,
    };
    return LZ_OK;
}

static lz_status add_bias(builder *b, const lz_term *t, lz_error *err) {
    if (!b->bias && !(b->bias = numbers(b, b->out, 0, err))) return LZ_OUT_OF_MEMORY;
    const float *from = lz_data(lz_contiguous(f32(t->from[0])), err);
    if (!from) return LZ_OUT_OF_MEMORY;
    for (int64_t i = 0; i < t->rows; i++)
        b->bias[t->first + i] += (float)(t->strength * t->unit) * from[t->source_first + (i + t->rotate) % t->rows];
    return LZ_OK;
}

static lz_status add_term(builder *b, const lz_term *t, lz_array *base, lz_error *err) {
    lz_made_term made = {.term = *t};
    lz_status status = t->magnitude ? add_gains(b, t, base, &made, err) : LZ_OK;
    if (status) return status;
    if (t->kind == LZ_TERM_BIAS) return add_bias(b, t, err);
    if (t->kind == LZ_TERM_KRONECKER) return add_product(b, &made, err);
    if (t->kind == LZ_TERM_REPLACE) { /* the rows of the base are replaced */
        if (!b->rows && !(b->rows = numbers(b, b->out, 1, err))) return LZ_OUT_OF_MEMORY;
        for (int64_t i = 0; i < t->rows; i++) b->rows[t->first + i] = 0;
    }
    if (t->kind == LZ_TERM_LOW_RANK) {
        b->low[b->n_low++] = made;
        b->rank += lz_term_rank(t);
    } else
        b->dense[b->n_dense++] = made;
    return LZ_OK;
}

/* Whether products can read a tensor of a file as it is. */
static bool is_ready(const builder *b, const lz_array *a) {
    return a->dtype == b->type || (b->type == LZ_F32 && (a->dtype == LZ_BF16 || a->dtype == LZ_F16));
}

/* The branch of low ranks. One LoRA alone for the whole matrix is read from its mapped file, with its factor between the two
 * products. Several are joined, with their factors in `up`. */
static void join_low_ranks(builder *b) {
    lz_patch *p = b->p;
    const lz_made_term *made = &b->low[0];
    const lz_term *t = &made->term;
    bool alone = b->n_low == 1 && t->rows == b->out && !t->rotate && !made->row_gain && !made->column_gain;
    p->scale = 1;
    if (alone && is_ready(b, t->from[0]) && is_ready(b, t->from[1])) {
        p->scale = t->strength * t->unit;
        p->down = t->from[0];
        p->up = lz_slice(t->from[1], 0, t->source_first, t->source_first + t->rows, 1);
        return;
    }
    p->down = lz_patch_matrix(p->ctx, LZ_MADE_DOWN, b->low, b->n_low, b->rank, b->in, b->type);
    p->up = lz_patch_matrix(p->ctx, LZ_MADE_UP, b->low, b->n_low, b->out, b->rank, b->type);
}

/* Finishes the patch. Its arrays are evaluated or made, so programs only read them. */
static lz_status finish(builder *b, lz_error *err) {
    lz_patch *p = b->p;
    if (b->n_low) join_low_ranks(b);
    bool vector = b->target->dims.n == 1;
    if (b->n_dense)
        p->dense = lz_patch_matrix(p->ctx, LZ_MADE_DENSE, b->dense, b->n_dense, b->out, b->in,
                                   vector ? LZ_F32 : b->type);
    if (b->rows) p->row_gain = lz_from(p->ctx, LZ_DIMS(b->out), LZ_F32, b->rows);
    if (b->columns) p->column_gain = lz_from(p->ctx, LZ_DIMS(b->in), LZ_F32, b->columns);
    if (b->bias) p->bias = lz_from(p->ctx, LZ_DIMS(b->out), LZ_F32, b->bias);
    lz_array *all[] = {p->down, p->up, p->dense, p->bias, p->row_gain, p->column_gain};
    lz_status status = LZ_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        lz_retain(all[i]);
        if (all[i] && !status) status = lz_check(all[i], err);
    }
    p->built = !status;
    return status;
}

lz_status lz_patch_build(lz_target *target, lz_array *base, lz_error *err) {
    lz_patch *p = target->patch;
    lz_dims d = target->dims;
    if (!p) return LZ_OK;
    release_built(p);
    lz_scope *scope = lz_scope_begin(p->ctx, "LoRA");
    builder b = {
        .p = p, .target = target, .type = lz_compute_type(p->ctx), .out = d.at[0], .in = d.n > 1 ? d.at[1] : 1};
    if (base && lz_shape(base).n > 2) base = lz_reshape(base, LZ_DIMS(b.out, b.in));
    size_t n = (size_t)p->n;
    b.low = lz_host_alloc(p->ctx, n * sizeof *b.low);
    b.dense = lz_host_alloc(p->ctx, n * sizeof *b.dense);
    b.gains = lz_host_alloc(p->ctx, (size_t)(b.out > b.in ? b.out : b.in) * sizeof *b.gains);
    p->products = lz_host_alloc(p->ctx, n * sizeof *p->products);
    /* DoRA reads the base piece by piece; a packed base is unpacked once. */
    lz_status status = base && lz_patch_needs_base(target) ? lz_eval(base, err) : LZ_OK;
    if (!b.low || !b.dense || !b.gains || !p->products) status = lz_out_of_memory(err, (int64_t)(n * sizeof *b.low));
    for (int k = 0; k < p->n && !status; k++) status = add_term(&b, &p->terms[k], base, err);
    if (!status) status = finish(&b, err);
    lz_host_free(p->ctx, b.low);
    lz_host_free(p->ctx, b.dense);
    lz_host_free(p->ctx, b.gains);
    lz_host_free(p->ctx, b.rows);
    lz_host_free(p->ctx, b.columns);
    lz_host_free(p->ctx, b.bias);
    lz_scope_end(scope);
    return status;
}

/* ---- applying ---------------------------------------------------------------------------------------------------- */

/* Gains stay f32: rounded to bf16 they would be wrong for whole rows of the base. */
static lz_array *times(lz_array *x, lz_array *gains) { return lz_cast(lz_mul(x, gains), lz_type(x)); }

lz_array *lz_patch_input(const lz_patch *p, lz_array *x) { return p->column_gain ? times(x, p->column_gain) : x; }

/* Rows first .. first + n - 1 of the target, of y [..., rows of the term]. NULL: the term has none of them. */
static lz_array *place_rows(const kronecker *k, lz_array *y, int64_t first, int64_t n) {
    int last = lz_shape(y).n - 1;
    y = lz_slice(y, last, k->source_first, k->source_first + k->rows, 1);
    if (k->rotate)
        y = lz_concat((lz_array *[]){lz_slice(y, last, k->rotate, k->rows, 1), lz_slice(y, last, 0, k->rotate, 1)}, 2,
                      last);
    if (k->row_gain) y = times(y, k->row_gain);
    int64_t low = first > k->first ? first : k->first,
            high = first + n < k->first + k->rows ? first + n : k->first + k->rows;
    if (low >= high) return NULL;
    y = lz_slice(y, last, low - k->first, high - k->first, 1);
    lz_dims before = {.n = last + 1}, after = {.n = last + 1};
    before.at[last] = low - first;
    after.at[last] = first + n - high;
    return before.at[last] || after.at[last] ? lz_pad(y, before, after, 0) : y;
}

/* (w1 x w2) x: x as [b, d], times w2 from the right, times w1 from the left. */
static lz_array *apply_product(const kronecker *k, lz_array *x, int64_t first, int64_t n) {
    lz_dims d = lz_shape(x), w1 = lz_shape(k->w1), w2 = lz_shape(k->w2);
    if (k->column_gain) x = times(x, k->column_gain);
    lz_array *y = lz_linear(lz_reshape(x, LZ_DIMS(-1, w1.at[1], w2.at[1])), k->w2, NULL); /* [.., b, c] */
    y = lz_matmul(k->w1, y);                                                              /* [.., a, c] */
    d.at[d.n - 1] = w1.at[0] * w2.at[0];
    return place_rows(k, lz_reshape(y, d), first, n);
}

static lz_array *rows(lz_array *a, int64_t first, int64_t n) {
    return lz_shape(a).at[0] == n ? a : lz_slice(a, 0, first, first + n, 1);
}

lz_array *lz_patch_output(const lz_patch *p, lz_array *x, lz_array *y, int64_t first, int64_t n) {
    if (p->row_gain) y = times(y, rows(p->row_gain, first, n));
    if (p->down) {
        lz_array *middle = lz_linear(x, p->down, NULL);
        if (p->scale != 1) middle = lz_mul(middle, p->scale);
        y = lz_add(y, lz_linear(middle, rows(p->up, first, n), NULL));
    }
    if (p->dense) y = lz_add(y, lz_linear(x, rows(p->dense, first, n), NULL));
    for (int i = 0; i < p->n_products; i++) {
        lz_array *part = apply_product(&p->products[i], x, first, n);
        if (part) y = lz_add(y, part);
    }
    return p->bias ? lz_cast(lz_add(y, rows(p->bias, first, n)), lz_type(y)) : y;
}

lz_array *lz_patch_vector(const lz_patch *p, lz_array *value) {
    if (!p->dense) return value;
    if (p->row_gain) value = times(value, p->row_gain);
    return lz_cast(lz_add(f32(value), lz_reshape(p->dense, LZ_DIMS(-1))), lz_compute_type(p->ctx));
}
