/* param.c: see param.h. */
#define LZ_NO_SUGAR
#include "models/param.h"

#include <string.h>

#include "op/number.h"

/* ---- recipes ----------------------------------------------------------------------------------------------------- */

/* The usual narrowing is a loop that becomes vector code; the reference kernel does the others. */
static void make_cast(const lz_recipe_work *work, int64_t first, int64_t n, char *to) {
    const lz_tensor *source = &work->from[0];
    const char *from = source->data + first * lz_dtype_size(source->dtype);
    if (source->dtype == LZ_F32 && work->dtype == LZ_BF16) {
        for (int64_t i = 0; i < n; i++) ((uint16_t *)to)[i] = lz_to_bf16(((const float *)from)[i]);
        return;
    }
    const lz_params none = {.full.value = 0};
    const lz_tensor in = {.data = (char *)from, .dtype = source->dtype, .dims = {1, {n}}, .strides = {1}};
    const lz_tensor out = {.data = to, .dtype = work->dtype, .dims = {1, {n}}, .strides = {1}};
    const lz_call call = {.op = LZ_OP_CAST, .params = &none, .in = &in, .n_in = 1, .n_core = 1, .out = out};
    lz_ref_backend()->kernel(LZ_OP_CAST)->run(&call);
}

const lz_recipe lz_recipe_cast = {"cast", make_cast};

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Belongs to the value's buffer. */
typedef struct made {
    lz_context *ctx;
    const lz_recipe *recipe;
    lz_recipe_work work;
    lz_array *sources[LZ_PARAM_SOURCES]; /* retained */
} made;

static void make_bytes(const void *user, int64_t offset, int64_t bytes, char *to) {
    const made *m = user;
    int64_t size = lz_dtype_size(m->work.dtype);
    m->recipe->make(&m->work, offset / size, bytes / size, to);
}

static bool same_made(const void *user, const void *other) {
    const made *a = user, *b = other;
    bool same = a->recipe == b->recipe && a->work.dtype == b->work.dtype && a->work.n == b->work.n &&
                lz_dims_equal(a->work.dims, b->work.dims);
    for (int i = 0; same && i < a->work.n; i++) {
        const lz_tensor *x = &a->work.from[i], *y = &b->work.from[i];
        same = x->data == y->data && x->dtype == y->dtype && lz_dims_equal(x->dims, y->dims);
    }
    return same;
}

static void free_made(void *user) {
    made *m = user;
    for (int i = 0; i < m->work.n; i++) lz_release(m->sources[i]);
    lz_host_free(m->ctx, m);
}

lz_array *lz_recipe_value(lz_context *ctx, const lz_recipe *recipe, lz_dims dims, lz_dtype dtype,
                          lz_array *const *sources, int n, lz_error *err) {
    made *m = lz_host_alloc(ctx, sizeof *m);
    if (!m) {
        lz_out_of_memory(err, sizeof *m);
        return NULL;
    }
    *m = (made){.ctx = ctx, .recipe = recipe, .work = {.dtype = dtype, .dims = dims}};
    for (int i = 0; i < n; i++) {
        lz_error local = {.status = LZ_OK};
        lz_tensor *from = &m->work.from[i];
        *from = (lz_tensor){.data = (char *)lz_data(sources[i], &local), .dtype = lz_type(sources[i])};
        if (local.status) {
            if (err) *err = local;
            free_made(m);
            return NULL;
        }
        from->dims = lz_shape(sources[i]);
        lz_dense_strides(from->dims, from->strides);
        m->sources[m->work.n++] = lz_retain(sources[i]);
    }
    lz_array *value = lz_array_made(ctx, dims, dtype, make_bytes, free_made, same_made, m);
    return lz_check(value, err) ? NULL : value;
}

static lz_param *new_param(lz_context *ctx, const char *name, lz_error *err) {
    size_t length = strlen(name) + 1;
    lz_param *p = lz_host_alloc(ctx, sizeof *p + length);
    if (!p) {
        lz_out_of_memory(err, (int64_t)(sizeof *p + length));
        return NULL;
    }
    p->ctx = ctx;
    memcpy(p->name, name, length);
    return p;
}

lz_param *lz_param_new(lz_context *ctx, const char *name, const lz_recipe *recipe, lz_dims dims, lz_dtype dtype,
                       lz_array *const *sources, int n, lz_error *err) {
    if (n < 1 || n > LZ_PARAM_SOURCES) {
        lz_fail(err, LZ_BAD_ARGUMENT, "parameter '%s': has %d sources, not 1 to %d", name, n, LZ_PARAM_SOURCES);
        return NULL;
    }
    lz_param *p = new_param(ctx, name, err);
    if (!p) return NULL;
    p->recipe = recipe;
    lz_scope *scope = lz_scope_begin(ctx, "parameter");
    p->value = lz_retain(recipe ? lz_recipe_value(ctx, recipe, dims, dtype, sources, n, err) : sources[0]);
    lz_scope_end(scope);
    p->dims = lz_shape(p->value);
    if (p->value) return p;
    lz_param_free(p);
    return NULL;
}

lz_param *lz_param_new_packed(lz_context *ctx, const char *name, lz_dims dims, const lz_packed *packed, lz_error *err) {
    lz_param *p = new_param(ctx, name, err);
    if (!p) return NULL;
    p->packed = *packed;
    p->dims = dims;
    lz_packed_retain(&p->packed);
    return p;
}

void lz_param_free(lz_param *p) {
    if (!p) return;
    lz_release(p->value);
    lz_packed_release(&p->packed);
    lz_host_free(p->ctx, p);
}

/* ---- applying ---------------------------------------------------------------------------------------------------- */

lz_array *lz_param_base(const lz_param *p) {
    if (!p->packed.codes) return p->value;
    lz_array *rows = lz_packed_input(&p->packed, lz_packed_rows(&p->packed, 0, p->packed.layout.rows));
    return p->dims.n == 2 ? rows : lz_reshape(rows, p->dims);
}

lz_array *lz_dense(const lz_param *p) {
    const lz_patch *patch = p->target ? p->target->patch : NULL;
    return patch ? lz_patch_vector(patch, lz_param_base(p)) : lz_param_base(p);
}

lz_array *lz_param_take(const lz_param *p, lz_array *ids) {
    return p->packed.codes ? lz_packed_take(&p->packed, ids) : lz_take(p->value, ids, 0);
}

/* x times rows first .. first + n - 1 of the base, without what LoRAs add. A convolution of 1 x 1 is a linear layer. */
static lz_array *multiply(lz_array *x, const lz_param *weight, int64_t first, int64_t n, const lz_param *bias) {
    lz_array *b = bias ? lz_dense(bias) : NULL;
    if (weight->packed.codes)
        return lz_linear(lz_packed_input(&weight->packed, x), lz_packed_rows(&weight->packed, first, n), b);
    lz_dims d = weight->dims;
    lz_array *w = d.n > 2 ? lz_reshape(weight->value, (lz_dims){2, {d.at[0], d.at[1]}}) : weight->value;
    if (n != d.at[0]) w = lz_slice(w, 0, first, first + n, 1);
    return lz_linear(x, w, b);
}

static lz_array *apply(lz_array *x, const lz_param *weight, int64_t first, int64_t n, const lz_param *bias) {
    const lz_patch *patch = weight->target ? weight->target->patch : NULL;
    if (!patch) return multiply(x, weight, first, n, bias);
    lz_array *y = multiply(lz_patch_input(patch, x), weight, first, n, NULL);
    y = lz_patch_output(patch, x, y, first, n);
    return bias ? lz_add(y, lz_dense(bias)) : y;
}

lz_array *lz_apply(lz_array *x, const lz_param *weight, const lz_param *bias) {
    return apply(x, weight, 0, weight->dims.at[0], bias);
}

lz_array *lz_apply_affine(lz_array *x, lz_affine layer) { return lz_apply(x, layer.weight, layer.bias); }

lz_array *lz_apply_rows(lz_array *x, const lz_param *weight, int64_t first, int64_t n) {
    return apply(x, weight, first, n, NULL);
}
