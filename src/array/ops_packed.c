/* ops_packed.c: the rule of packed weights. */
#define LZ_NO_SUGAR
#include <math.h>
#include <string.h>

#include "array/ops.h"
#include "op/packing.h"

static int64_t parts_of(int64_t n, int64_t size) { return n / size + (n % size != 0); }

/* Scales or offsets, seen as the kernels want them. */
static lz_array *as_scales(lz_array *a, const char *what, lz_dims dims) {
    bool power = a->dtype == LZ_U8 && !strcmp(what, "scales");
    if (!power && (!lz_is_float(a->dtype) || a->dtype == LZ_F64))
        return lz_poison(a->ctx, LZ_BAD_TYPE, "unpack: %s of type %s", what, lz_dtype_name(a->dtype));
    lz_dims both;
    if (!lz_broadcast_dims(a->dims, dims, &both) || !lz_dims_equal(both, dims))
        return lz_poison(a->ctx, LZ_BAD_SHAPE, "unpack: %s %s do not broadcast to %s", what, LZ_SHOW(a->dims),
                         LZ_SHOW(dims));
    return lz_as_dims(a, dims);
}

/* Columns of so many bytes of codes, or the poisoned array that says what is wrong. */
static lz_array *check_codes(lz_array *codes, int packing, const lz_unpack_options *o, int64_t *columns) {
    lz_dims d = codes->dims;
    if (codes->dtype != LZ_U8 && codes->dtype != LZ_I8 && codes->dtype != LZ_F8)
        return lz_poison(codes->ctx, LZ_BAD_TYPE, "unpack: codes of type %s: they are numbers of 8 bits",
                         lz_dtype_name(codes->dtype));
    const lz_packing_info *info = &lz_packing_table[packing];
    int64_t bytes = d.n ? d.at[d.n - 1] : 0, all;
    if (d.n < 2 || bytes % info->bytes || __builtin_mul_overflow(bytes / info->bytes, info->elements, &all))
        return lz_poison(codes->ctx, LZ_BAD_SHAPE, "unpack: codes %s are not rows of blocks of %d bytes (%s)",
                         LZ_SHOW(d), info->bytes, info->name);
    *columns = o->columns ? o->columns : all;
    if (*columns < 0 || lz_packing_row_bytes((lz_packing)packing, *columns) != bytes)
        return lz_poison(codes->ctx, LZ_BAD_SHAPE, "unpack: codes %s (%s) do not hold %lld columns", LZ_SHOW(d),
                         info->name, (long long)*columns);
    return NULL;
}

lz_array *lz_unpack_with(lz_array *codes, lz_array *scales, lz_array *offsets, lz_unpack_options o) {
    lz_array *in[3] = {codes, scales, offsets}, *bad = NULL;
    int n = offsets ? 3 : scales ? 2 : 1, packing = lz_packing_by_name(o.packing);
    if (lz_unusable("unpack", in, scales ? n : 1, &bad)) return bad;
    if (offsets && !scales) return lz_poison(codes->ctx, LZ_BAD_ARGUMENT, "unpack: offsets need scales");
    if (packing < 0)
        return lz_poison(codes->ctx, LZ_BAD_ARGUMENT, "unpack: there is no packing '%s'", o.packing ? o.packing : "");
    if (scales && lz_packing_table[packing].whole)
        return lz_poison(codes->ctx, LZ_BAD_ARGUMENT, "unpack: blocks of %s have their own scales", o.packing);
    int64_t columns = 0;
    if ((bad = check_codes(codes, packing, &o, &columns))) return bad;
    lz_dtype type = o.dtype ? o.dtype : codes->ctx->compute;
    if (type != LZ_F16 && type != LZ_BF16 && type != LZ_F32)
        return lz_poison(codes->ctx, LZ_BAD_TYPE, "unpack: weights are f16, bf16 or f32, not %s", lz_dtype_name(type));
    bool turns = o.rotate == 4 || o.rotate == 16 || o.rotate == 64 || o.rotate == 256;
    if (o.group < 0 || o.row_group < 0 || !isfinite(o.factor) || (o.rotate && !turns) ||
        (o.rotate && columns % o.rotate))
        return lz_poison(codes->ctx, LZ_BAD_ARGUMENT,
                         "unpack: groups of %lld columns and %lld rows, a factor of %g, %lld columns rotated by %d",
                         (long long)o.group, (long long)o.row_group, o.factor, (long long)columns, o.rotate);
    lz_params p;
    memset(&p, 0, sizeof p);
    p.unpack.packing = packing;
    p.unpack.rotate = o.rotate;
    p.unpack.group = o.group && o.group < columns ? o.group : columns ? columns : 1;
    p.unpack.row_group = o.row_group ? o.row_group : 1;
    p.unpack.factor = o.factor != 0 ? (float)o.factor : 1.0f;
    p.unpack.type = type;
    lz_dims to = codes->dims, sharing = codes->dims;
    to.at[to.n - 1] = columns;
    sharing.at[to.n - 2] = parts_of(to.at[to.n - 2], p.unpack.row_group);
    sharing.at[to.n - 1] = parts_of(columns, p.unpack.group);
    if (lz_dims_size(to) < 0)
        return lz_poison(codes->ctx, LZ_BAD_SHAPE, "unpack: the result %s would be too large", LZ_SHOW(to));
    for (int i = 1; i < n; i++) {
        in[i] = as_scales(in[i], i == 1 ? "scales" : "offsets", sharing);
        if (in[i]->error) return in[i];
    }
    return lz_node_new(codes->ctx, LZ_OP_UNPACK, to, type, in, n, &p);
}
