/* ref.h: shared by the reference kernels: loops over indices, and elements as numbers.
 *
 * The reference is what the fast kernels are tested against, so it should be obviously right: one element at a time,
 * any strides, any types. A float is read exactly as a double, computed with as a double, and rounded once when it is
 * stored. Integers stay integers: int64_t, wrapping around. */
#ifndef LZ_REF_H
#define LZ_REF_H

#include "backend/backend.h"
#include "op/dims.h"
#include "op/number.h"

/* ---- indices ---------------------------------------------------------------------------------------------------- */

/* A loop over all indices of dims, the last axis fastest. The body uses int64_t index[LZ_MAX_DIMS]. */
#define FOR_EACH(index, dims)                                                                                          \
    for (int64_t index[LZ_MAX_DIMS] = {0}, *index##_ = first_index(&(dims), index); index##_;                          \
         index##_ = next_index(&(dims), index))

static inline int64_t *first_index(const lz_dims *dims, int64_t *index) {
    for (int i = 0; i < dims->n; i++) {
        if (dims->at[i] == 0) return NULL;
    }
    return index;
}

static inline int64_t *next_index(const lz_dims *dims, int64_t *index) {
    for (int i = dims->n - 1; i >= 0; i--) {
        if (++index[i] < dims->at[i]) return index;
        index[i] = 0;
    }
    return NULL;
}

static inline int64_t offset_of(const lz_tensor *t, const int64_t *index) { /* in elements */
    int64_t offset = 0;
    for (int i = 0; i < t->dims.n; i++) offset += index[i] * t->strides[i];
    return offset;
}

/* ---- elements --------------------------------------------------------------------------------------------------- */

int64_t lz_ref_to_whole(lz_dtype dtype, double value); /* toward zero, into the range of an integer type; NaN gives 0 */

double lz_ref_load_real(lz_dtype dtype, const char *data, int64_t offset);
int64_t lz_ref_load_whole(lz_dtype dtype, const char *data, int64_t offset);        /* floats: as lz_cast to i64 does */
void lz_ref_store_real(lz_dtype dtype, char *data, int64_t offset, double value);   /* as lz_cast does */
void lz_ref_store_whole(lz_dtype dtype, char *data, int64_t offset, int64_t value); /* integers wrap around */

static inline double get_real(const lz_tensor *t, const int64_t *index) {
    return lz_ref_load_real(t->dtype, t->data, offset_of(t, index));
}
static inline int64_t get_whole(const lz_tensor *t, const int64_t *index) {
    return lz_ref_load_whole(t->dtype, t->data, offset_of(t, index));
}
static inline void set_real(const lz_tensor *t, const int64_t *index, double value) {
    lz_ref_store_real(t->dtype, t->data, offset_of(t, index), value);
}
static inline void set_whole(const lz_tensor *t, const int64_t *index, int64_t value) {
    lz_ref_store_whole(t->dtype, t->data, offset_of(t, index), value);
}

/* to[to_index] = from[from_index]: the same bits if the types are equal, otherwise converted as lz_cast does. */
void lz_ref_move(const lz_tensor *to, const int64_t *to_index, const lz_tensor *from, const int64_t *from_index);

static inline double bigger(double a, double b) { return a != a || a > b ? a : b; } /* NaN if either is */
static inline double smaller(double a, double b) { return a != a || a < b ? a : b; }

static inline int64_t wrapping_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static inline int64_t wrapping_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

/* ---- parts of tensors ------------------------------------------------------------------------------------------- */

lz_dims lz_ref_leading(lz_dims dims, int n);                             /* the first n sizes */
lz_tensor lz_ref_inner(const lz_tensor *t, const int64_t *index, int n); /* t[index[0], ..., index[n-1]] */

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

bool lz_ref_copy(const lz_call *call); /* ref_element.c; also cast */
bool lz_ref_unary(const lz_call *call);
bool lz_ref_binary(const lz_call *call);
bool lz_ref_clip(const lz_call *call);
bool lz_ref_where(const lz_call *call);

bool lz_ref_reduce(const lz_call *call); /* ref_reduce.c */
bool lz_ref_argmax(const lz_call *call);
bool lz_ref_softmax(const lz_call *call);
bool lz_ref_rms_norm(const lz_call *call);
bool lz_ref_layer_norm(const lz_call *call);
bool lz_ref_group_norm(const lz_call *call);

bool lz_ref_matmul(const lz_call *call); /* ref_product.c */
bool lz_ref_sdpa(const lz_call *call);
bool lz_ref_conv2d(const lz_call *call);
bool lz_ref_rope(const lz_call *call);

bool lz_ref_full(const lz_call *call); /* ref_move.c */
bool lz_ref_arange(const lz_call *call);
bool lz_ref_randn(const lz_call *call);
bool lz_ref_pad(const lz_call *call);
bool lz_ref_take(const lz_call *call);
bool lz_ref_gather(const lz_call *call);

bool lz_ref_unpack(const lz_call *call); /* ref_unpack.c */
bool lz_ref_int8_matmul(const lz_call *call);
int64_t lz_ref_int8_scratch(const lz_call *call);
bool lz_ref_quantise(const lz_call *call);
int64_t lz_ref_quantise_scratch(const lz_call *call);
bool lz_ref_codes_matmul(const lz_call *call);

#endif
