/* test_array.c: arrays: lifetimes in scopes, memory, errors.
 *
 * Values are tested in test_ops.c. Here it is about ownership, errors of wrong calls, and that nothing a caller does
 * with the public header crashes. */
#include <pthread.h>

#include "check.h"

static lz_context *open_context(void) {
    lz_context *ctx = lz_open(.threads = 2, .cache_limit = -1); /* no cache: active bytes tell who holds what */
    CHECK(ctx != NULL);
    return ctx;
}

static int64_t active(lz_context *ctx) { return lz_memory_info(ctx).active; }

static lz_array *counting(lz_context *ctx, lz_dims dims, lz_dtype dtype) { /* 0, 1, 2, ... */
    int64_t n = 1;
    for (int i = 0; i < dims.n; i++) n *= dims.at[i];
    return lz_reshape(lz_arange(ctx, 0, (double)n, 1, dtype), dims);
}

/* ---- contexts and names ------------------------------------------------------------------------------------------ */

static void contexts(void) {
    CHECK(strcmp(lz_version(), LZ_VERSION) == 0);
    for (int s = 0; s < LZ_STATUS_COUNT; s++) CHECK(lz_status_name((lz_status)s) && lz_status_name((lz_status)s)[0]);
    CHECK(lz_status_name((lz_status)99) != NULL);
    for (int t = 0; t < LZ_DTYPE_COUNT; t++) CHECK(lz_dtype_name((lz_dtype)t)[0]);
    CHECK(lz_dtype_name((lz_dtype)99) != NULL);
    CHECK_I64(lz_dtype_size((lz_dtype)99), 0);

    lz_error err = {0};
    CHECK(!lz_open_with(&LZ_CONTEXT_OPTIONS(.device = "abacus"), &err));
    CHECK_I64(err.status, LZ_NOT_FOUND);
    CHECK_TEXT(err.text, "abacus");
    err = (lz_error){0};
    CHECK(!lz_open_with(&LZ_CONTEXT_OPTIONS(.isa = "avx9000"), &err));
    CHECK(err.status != LZ_OK);
    CHECK_TEXT(err.text, "avx9000");
    CHECK(!lz_open(.device = "abacus")); /* without a place for the text */
    err = (lz_error){0};                 /* trap 20: lz_open says why, too */
    CHECK(!lz_open(.device = "abacus", .error = &err));
    CHECK_STATUS(err.status, LZ_NOT_FOUND, &err);
    CHECK_TEXT(err.text, "abacus");

    lz_context *cpu = lz_open_with(NULL, &err), *three = lz_open(.threads = 3), *ref = lz_open(.device = "ref");
    CHECK(cpu && three && ref);
    CHECK_TEXT(lz_device_name(cpu), "cpu");
    CHECK_TEXT(lz_device_name(three), "3 threads");
    CHECK_TEXT(lz_device_name(ref), "ref");

    /* Independent: memory is counted apart, and arrays do not mix. */
    lz_array *a = lz_from(cpu, LZ_DIMS(4), LZ_F32, (float[]){1, 2, 3, 4});
    lz_array *b = lz_from(ref, LZ_DIMS(4), LZ_F32, (float[]){1, 2, 3, 4});
    CHECK(lz_context_of(a) == cpu && lz_context_of(b) == ref);
    CHECK_I64(active(three), 0);
    CHECK_STATUS(lz_check(lz_add(a, b), &err), LZ_BAD_ARGUMENT, &err);
    CHECK_OK(lz_check(lz_add(a, a), &err), &err);
    lz_close(ref);
    CHECK(lz_item(lz_sum(a, LZ_NONE, false), &err) == 10.0);
    lz_close(cpu);
    lz_close(three);
    lz_close(NULL);
}

/* ---- making and looking ------------------------------------------------------------------------------------------ */

static void looking(void) {
    lz_context *ctx = open_context();
    lz_error err = {0};
    float six[] = {0, 1, 2, 3, 4, 5};
    lz_array *x = lz_from(ctx, LZ_DIMS(2, 3), LZ_F32, six);
    six[0] = 100; /* copied: no longer ours */
    CHECK_I64(lz_size(x), 6);
    CHECK(same_dims(lz_shape(x), LZ_DIMS(2, 3)));
    CHECK_I64(lz_type(x), LZ_F32);
    const float *p = lz_data(x, &err);
    CHECK(p && p[0] == 0 && p[5] == 5);

    p = lz_data(lz_transpose(x), &err);
    CHECK(p && p[0] == 0 && p[1] == 3 && p[2] == 1 && p[5] == 5, "data is row-major whatever the strides");
    lz_array *t = lz_transpose(x);
    const void *first = lz_data(t, &err);
    CHECK(first == lz_data(t, &err), "the pointer stays valid as long as the array");

    float out[6];
    CHECK_OK(lz_copy(lz_mul(x, 2.0), out, sizeof out, &err), &err);
    CHECK(out[5] == 10.0f);
    CHECK_STATUS(lz_copy(x, out, sizeof out - 1, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_copy(x, out, 0, &err), LZ_BAD_ARGUMENT, &err);
    CHECK_STATUS(lz_copy(x, out, -24, &err), LZ_BAD_ARGUMENT, &err);
    CHECK(lz_copy(x, NULL, sizeof out, &err) != LZ_OK);

    CHECK(lz_item(lz_slice(lz_reshape(x, LZ_DIMS(6)), 0, 4, 5, 1), &err) == 4.0);
    CHECK(lz_item(lz_full(ctx, LZ_NONE, LZ_I64, 7), &err) == 7.0);
    CHECK(lz_item(lz_full(ctx, LZ_DIMS(1, 1), LZ_BOOL, 1), &err) == 1.0);
    CHECK(lz_item(lz_number(ctx, -2.5), &err) == -2.5);
    static const lz_dtype kinds[] = {LZ_U8, LZ_I8, LZ_I32, LZ_I64, LZ_F8, LZ_F16, LZ_BF16, LZ_F32, LZ_F64};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        CHECK(lz_item(lz_full(ctx, LZ_DIMS(1), kinds[i], 3), &err) == 3.0, "%s", lz_dtype_name(kinds[i]));
    err = (lz_error){0};
    lz_item(x, &err);
    CHECK(err.status == LZ_BAD_SHAPE || err.status == LZ_BAD_ARGUMENT, "six elements are not one");
    err = (lz_error){0};
    lz_item(lz_full(ctx, LZ_DIMS(0), LZ_F32, 0), &err);
    CHECK(err.status != LZ_OK);
    lz_item(x, NULL);

    /* Empty arrays are arrays. */
    lz_array *empty = lz_from(ctx, LZ_DIMS(0, 3), LZ_F32, NULL);
    CHECK_OK(lz_check(empty, &err), &err);
    CHECK_OK(lz_eval(lz_add(empty, 1.0), &err), &err);
    CHECK_OK(lz_copy(lz_add(empty, 1.0), NULL, 0, &err), &err);
    CHECK_I64(lz_size(empty), 0);
    CHECK(same_dims(lz_shape(lz_add(empty, 1.0)), LZ_DIMS(0, 3)));
    CHECK(lz_item(lz_sum(empty, LZ_NONE, false), &err) == 0.0);

    /* One element in memory, any shape. */
    int64_t before = active(ctx);
    lz_array *wide = lz_full(ctx, LZ_DIMS(1 << 20, 1 << 20), LZ_F32, 1.5);
    CHECK_OK(lz_eval(wide, &err), &err);
    CHECK(active(ctx) - before <= 4096, "%lld bytes", (long long)(active(ctx) - before));
    CHECK(lz_item(lz_slice(lz_slice(wide, 0, 7, 8, 1), 1, 9, 10, 1), &err) == 1.5);
    lz_close(ctx);
}

static void weak_numbers(void) {
    lz_context *ctx = open_context();
    lz_error err = {0};
    static const lz_dtype kinds[] = {LZ_U8, LZ_I8, LZ_I32, LZ_I64, LZ_F16, LZ_BF16, LZ_F32, LZ_F64};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        lz_dtype t = kinds[i];
        lz_array *x = lz_full(ctx, LZ_DIMS(2, 2), t, 3);
        CHECK_I64(lz_type(lz_add(x, 2.0)), t);
        CHECK_I64(lz_type(lz_mul(x, 2)), t); /* an int is a number too */
        CHECK_I64(lz_type(lz_sub(x, 2.0f)), t);
        CHECK_I64(lz_type(lz_mul(lz_number(ctx, 2.0), x)), t); /* from the left */
        CHECK_I64(lz_type(lz_maximum(x, 1.0)), t);
        CHECK_I64(lz_type(lz_where(lz_full(ctx, LZ_NONE, LZ_BOOL, 1), x, lz_number(ctx, 1))), t);
        CHECK_I64(lz_type(lz_less(x, 5.0)), LZ_BOOL);
        CHECK_I64(lz_type(lz_div(x, 2.0)), t < LZ_F8 ? LZ_F32 : t);
        double got[4];
        CHECK_OK(lz_copy(lz_cast(lz_sub(lz_number(ctx, 10), x), LZ_F64), got, sizeof got, &err), &err);
        CHECK(got[0] == 7.0 && got[3] == 7.0);
    }
    /* Two numbers make a number: still weak. */
    lz_array *h = lz_full(ctx, LZ_DIMS(3), LZ_BF16, 1);
    lz_array *sum = lz_add(lz_number(ctx, 1.0), lz_number(ctx, 2.0));
    CHECK(lz_item(sum, &err) == 3.0);
    CHECK_I64(lz_type(lz_mul(h, lz_number(ctx, 0.5))), LZ_BF16);
    /* An array of one element is no number: it promotes. */
    CHECK_I64(lz_type(lz_mul(h, lz_full(ctx, LZ_NONE, LZ_F32, 2))), LZ_F32);
    CHECK_I64(lz_type(lz_linear(lz_full(ctx, LZ_DIMS(2, 3), LZ_BF16, 1), lz_full(ctx, LZ_DIMS(4, 3), LZ_F32, 1), NULL)),
              LZ_F32);
    lz_close(ctx);
}

/* ---- scopes and counting ----------------------------------------------------------------------------------------- */

static lz_array *doubled_twice(lz_context *ctx, lz_array *x) {
    lz_scope *s = lz_scope_begin(ctx, "doubled_twice");
    lz_array *y = lz_mul(x, 2.0);
    lz_eval(y, NULL);
    return lz_scope_return(s, lz_mul(y, 2.0));
}

static void scopes(void) {
    lz_context *ctx = open_context();
    lz_error err = {0};
    enum { N = 1024 };
    int64_t bytes = N * 4, start = active(ctx);
    static float data[N];

    lz_scope *outer = lz_scope_begin(ctx, "outer");
    lz_array *x = lz_from(ctx, LZ_DIMS(N), LZ_F32, data);
    CHECK_I64(active(ctx) - start, bytes);
    {
        lz_scope *inner = lz_scope_begin(ctx, "inner");
        lz_array *gone = lz_add(x, 1.0);
        CHECK_OK(lz_eval(gone, &err), &err);
        CHECK_I64(active(ctx) - start, 2 * bytes);
        lz_array *kept = lz_scope_keep(inner, lz_add(x, 2.0));
        CHECK_OK(lz_eval(kept, &err), &err);
        CHECK_I64(active(ctx) - start, 3 * bytes);
        lz_scope_end(inner);
        CHECK_I64(active(ctx) - start, 2 * bytes); /* gone went, kept stayed */
        CHECK(((const float *)lz_data(kept, &err))[0] == 2.0f);
    }
    lz_array *y = doubled_twice(ctx, lz_add(x, 3.0));
    CHECK(((const float *)lz_data(y, &err))[N - 1] == 12.0f);

    lz_array *survivor = lz_retain(lz_add(x, 5.0));
    CHECK_OK(lz_eval(survivor, &err), &err);
    lz_scope_end(outer);
    CHECK_I64(active(ctx) - start, bytes); /* only the survivor */
    CHECK(((const float *)lz_data(survivor, &err))[1] == 5.0f);
    lz_array *built = lz_retain(lz_mul(survivor, 2.0)); /* holds its input */
    lz_release(survivor);
    CHECK(((const float *)lz_data(built, &err))[1] == 10.0f);
    lz_release(built);
    lz_release(NULL);
    CHECK(lz_retain(NULL) == NULL);

    /* What nobody can reach must not keep its buffer: evaluating lets go of the inputs. */
    lz_scope *s = lz_scope_begin(ctx, "chain");
    lz_array *z = lz_full(ctx, LZ_DIMS(N), LZ_F32, 0);
    for (int i = 0; i < 10; i++) {
        lz_scope *step = lz_scope_begin(ctx, "step");
        z = lz_scope_return(step, lz_add(z, 1.0));
        CHECK_OK(lz_eval(z, &err), &err);
    }
    CHECK(((const float *)lz_data(z, &err))[0] == 10.0f);
    lz_scope_end(s);

    /* Keeping is harmless for arrays of other scopes, poisoned ones and NULL. */
    lz_scope *a = lz_scope_begin(ctx, NULL);
    lz_array *mine = lz_full(ctx, LZ_DIMS(3), LZ_F32, 1);
    lz_scope *b = lz_scope_begin(ctx, "b");
    lz_scope_keep(b, mine);
    lz_scope_keep(b, NULL);
    lz_scope_keep(b, lz_add(mine, lz_full(ctx, LZ_DIMS(4), LZ_F32, 1)));
    lz_scope_end(b);
    CHECK_OK(lz_eval(mine, &err), &err);
    lz_scope_end(a);
    lz_scope_end(NULL);
    CHECK(lz_scope_begin(NULL, "nowhere") == NULL);
    lz_close(ctx);
}

static void views_share_memory(void) {
    lz_context *ctx = open_context();
    lz_error err = {0};
    lz_array *x = lz_contiguous(counting(ctx, LZ_DIMS(64, 32, 16), LZ_F32));
    const float *p = lz_data(x, &err);
    if (!CHECK(p != NULL, "%s", err.text)) return;
    lz_clear_cache(ctx);
    lz_reset_peak(ctx);
    int64_t before = active(ctx);
    lz_array *halves[2];
    lz_split(x, 1, 2, halves);
    lz_array *views[] = {
        lz_reshape(x, LZ_DIMS(64 * 32, -1)),
        lz_permute(x, LZ_DIMS(2, 0, 1)),
        lz_transpose(x),
        lz_slice(x, 0, 3, 60, 3),
        lz_broadcast(x, LZ_DIMS(5, 64, 32, 16)),
        halves[0],
        halves[1],
        lz_reshape(lz_permute(lz_reshape(x, LZ_DIMS(64, 32, 4, 4)), LZ_DIMS(1, 0, 2, 3)), LZ_DIMS(32, 64, 16)),
        lz_slice(lz_slice(x, 0, 1, 64, 1), 2, 5, 9, 1),
        lz_cast(x, LZ_F32), /* of its own type: nothing to do */
        lz_contiguous(x),
    };
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) CHECK_OK(lz_eval(views[i], &err), &err);
    CHECK_I64(active(ctx), before);
    CHECK_I64(lz_memory_info(ctx).peak, before);
    CHECK(lz_data(views[0], &err) == p, "a reshape is the same memory");
    lz_array *rows = lz_slice(x, 0, 3, 7, 1);
    CHECK(lz_data(rows, &err) == p + 3 * 32 * 16, "rows of a row-major array are row-major");
    CHECK_I64(active(ctx), before);

    /* A view keeps the memory alive. */
    lz_scope *s = lz_scope_begin(ctx, "s");
    lz_array *y = lz_from(ctx, LZ_DIMS(100), LZ_I32, (int32_t[100]){[42] = 7});
    lz_array *v = lz_retain(lz_slice(y, 0, 42, 43, 1));
    lz_scope_end(s);
    CHECK(lz_item(v, &err) == 7.0);
    lz_release(v);
    lz_close(ctx);
}

static int released;
static void count_release(void *user) {
    CHECK(user == &released);
    released++;
}

static void borrowing(void) {
    lz_context *ctx = open_context();
    lz_error err = {0};
    _Alignas(64) static float data[16] = {3, 1, 4, 1, 5};
    released = 0;
    lz_scope *s = lz_scope_begin(ctx, "s");
    int64_t before = active(ctx);
    lz_array *x = lz_borrow(ctx, LZ_DIMS(16), LZ_F32, data, count_release, &released);
    CHECK(lz_data(x, &err) == data);
    CHECK_I64(active(ctx), before); /* not ours */
    lz_array *view = lz_retain(lz_slice(x, 0, 2, 5, 1));
    lz_array *sum = lz_retain(lz_add(x, 1.0));
    lz_scope_end(s);
    CHECK_I64(released, 0); /* the sum has not been computed yet, the view still looks */
    CHECK(((const float *)lz_data(sum, &err))[4] == 6.0f);
    CHECK_I64(released, 0);
    CHECK(((const float *)lz_data(view, &err))[0] == 4.0f);
    lz_release(view);
    CHECK_I64(released, 1);
    lz_release(sum);
    CHECK_I64(released, 1);

    /* At the latest when the context closes; never for a callback that is NULL. */
    lz_borrow(ctx, LZ_DIMS(16), LZ_F32, data, count_release, &released);
    lz_array *plain = lz_borrow(ctx, LZ_DIMS(4), LZ_F32, data, NULL, NULL);
    CHECK(lz_item(lz_sum(plain, LZ_NONE, false), &err) == 9.0);
    lz_close(ctx);
    CHECK_I64(released, 2);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static void errors_stick(void) {
    lz_context *ctx = open_context();
    lz_error err = {0};
    lz_scope *outer = lz_scope_begin(ctx, "block 7"), *inner = lz_scope_begin(ctx, "attention");
    lz_array *x = lz_full(ctx, LZ_DIMS(2, 3), LZ_F32, 1), *y = lz_full(ctx, LZ_DIMS(4), LZ_F32, 1);
    int line = __LINE__ + 1;
    lz_array *bad = lz_add(x, y);
    char place[64];
    snprintf(place, sizeof place, "test_array.c:%d", line);
    CHECK(bad != NULL);
    CHECK_STATUS(lz_check(bad, &err), LZ_BAD_SHAPE, &err);
    CHECK_TEXT(err.text, "add");
    CHECK_TEXT(err.text, "[2, 3]");
    CHECK_TEXT(err.text, "[4]");
    CHECK_TEXT(err.text, place);
    CHECK_TEXT(err.text, "block 7");
    CHECK_TEXT(err.text, "attention");
    lz_error first = err;
    CHECK_I64(lz_size(bad), 0);

    /* Through anything, from any side, it stays the first error with its first place. */
    lz_array *parts[2], *all[] = {x, bad};
    lz_split(bad, 0, 2, parts);
    lz_array *children[] = {
        lz_mul(bad, 2.0),
        lz_mul(x, bad),
        lz_exp(bad),
        lz_sum(bad, LZ_NONE, false),
        lz_matmul(bad, x),
        lz_reshape(bad, LZ_DIMS(1)),
        lz_concat(all, 2, 0),
        parts[0],
        parts[1],
        lz_rms_norm(x, bad, 1e-6),
        lz_linear(x, lz_full(ctx, LZ_DIMS(4, 3), LZ_F32, 1), bad),
        lz_where(bad, x, x),
        lz_cast(bad, LZ_F16),
        lz_softmax(lz_add(lz_mul(bad, 3.0), 4.0), 0),
        lz_add(lz_sub(x, lz_full(ctx, LZ_DIMS(9), LZ_F32, 0)), bad) /* two */,
        lz_sdpa(x, x, x, .mask = bad),
        lz_take(x, bad, 0),
        lz_clip(bad, 0, 1),
        lz_contiguous(bad),
        lz_retain(bad),
    };
    for (size_t i = 0; i < sizeof children / sizeof *children; i++) {
        err = (lz_error){0};
        CHECK_STATUS(lz_eval(children[i], &err), LZ_BAD_SHAPE, &err);
        if (i != 14 && i != 15) CHECK(strcmp(err.text, first.text) == 0, "child %zu: %s", i, err.text);
        err = (lz_error){0};
        CHECK(lz_data(children[i], &err) == NULL && err.status == LZ_BAD_SHAPE, "child %zu", i);
    }
    lz_release(bad);
    float out[6];
    CHECK_STATUS(lz_copy(bad, out, 0, &err), LZ_BAD_SHAPE, &err);
    err = (lz_error){0};
    lz_item(bad, &err);
    CHECK_I64(err.status, LZ_BAD_SHAPE);
    CHECK_STATUS(lz_eval_all((lz_array *[]){x, bad, y}, 3, &err), LZ_BAD_SHAPE, &err);
    lz_plan_info info;
    CHECK_STATUS(lz_plan(&bad, 1, &info, &err), LZ_BAD_SHAPE, &err);
    CHECK_STATUS(lz_wait(bad, &err), LZ_BAD_SHAPE, &err);
    lz_eval(bad, NULL);

    /* The innocent go on. */
    CHECK(lz_item(lz_sum(x, LZ_NONE, false), &err) == 6.0);
    lz_scope_end(inner);
    lz_scope_end(outer);
    lz_array *again = lz_add(x = lz_full(ctx, LZ_DIMS(2), LZ_F32, 1), lz_full(ctx, LZ_DIMS(3), LZ_F32, 1));
    lz_check(again, &err);
    CHECK(!strstr(err.text, "attention"), "closed scopes are no place: %s", err.text);
    lz_close(ctx);
}

static void null_is_poison(void) {
    lz_context *ctx = open_context();
    lz_error err = {0};
    lz_array *x = lz_full(ctx, LZ_DIMS(2, 2), LZ_F32, 1), *none = NULL, *pair[] = {x, NULL}, *parts[2];
    lz_split(NULL, 0, 2, parts);
    CHECK(lz_check(parts[0], &err) != LZ_OK && lz_check(parts[1], &err) != LZ_OK);
    lz_array *bad[] = {
        lz_add(x, none),
        lz_add(none, x),
        lz_add(none, none),
        lz_add(none, 1.0),
        lz_exp(NULL),
        lz_clip(NULL, 0, 1),
        lz_cast(NULL, LZ_F16),
        lz_where(NULL, x, x),
        lz_where(x, NULL, x),
        lz_where(x, x, NULL),
        lz_sum(NULL, LZ_NONE, true),
        lz_argmax(NULL, 0, true),
        lz_softmax(NULL, 0),
        lz_matmul(x, NULL),
        lz_matmul(NULL, x),
        lz_linear(NULL, x, x),
        lz_linear(x, NULL, NULL),
        lz_addmm(NULL, x, x),
        lz_addmm(x, NULL, x),
        lz_sdpa(NULL, NULL, NULL),
        lz_sdpa(x, NULL, x),
        lz_rms_norm(NULL, x, 1e-6),
        lz_layer_norm(NULL, NULL, NULL, 1e-6),
        lz_modulated_norm(NULL, x, x, 1e-6),
        lz_group_norm(NULL, 1, NULL, NULL, 1e-6),
        lz_rope(NULL, x, x),
        lz_rope(x, NULL, x),
        lz_rope(x, x, NULL),
        lz_unpack(NULL, x, x, .packing = "i8"),
        lz_conv2d(NULL, x, NULL),
        lz_conv2d(x, NULL, NULL),
        lz_upsample_nearest(NULL, 2),
        lz_pad(NULL, LZ_NONE, LZ_NONE, 0),
        lz_reshape(NULL, LZ_NONE),
        lz_permute(NULL, LZ_NONE),
        lz_transpose(NULL),
        lz_slice(NULL, 0, 0, 1, 1),
        lz_broadcast(NULL, LZ_DIMS(2)),
        lz_concat(pair, 2, 0),
        lz_concat(NULL, 1, 0),
        lz_concat(pair, 0, 0),
        lz_take(x, NULL, 0),
        lz_take(NULL, x, 0),
        lz_gather(NULL, x, 0),
        lz_gather(x, NULL, 0),
        lz_contiguous(NULL),
        lz_from(NULL, LZ_DIMS(1), LZ_F32, (float[]){1}),
        lz_full(NULL, LZ_DIMS(1), LZ_F32, 1),
        lz_number(NULL, 1),
        lz_arange(NULL, 0, 1, 1, LZ_F32),
        lz_randn(NULL, LZ_DIMS(1), 1),
        lz_from(ctx, LZ_DIMS(3), LZ_F32, NULL),
        lz_borrow(ctx, LZ_DIMS(3), LZ_F32, NULL, NULL, NULL),
        lz_borrow(NULL, LZ_DIMS(3), LZ_F32, NULL, NULL, NULL),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (lz_error){0};
        CHECK(lz_check(bad[i], &err) == LZ_BAD_ARGUMENT, "case %zu: %s", i, lz_status_name(lz_check(bad[i], NULL)));
        CHECK(err.text[0] != 0, "case %zu", i);
        CHECK(lz_eval(bad[i], NULL) == LZ_BAD_ARGUMENT, "case %zu", i);
    }
    CHECK(lz_data(NULL, &err) == NULL && err.status == LZ_BAD_ARGUMENT);
    CHECK_I64(lz_size(NULL), 0);
    CHECK_I64(lz_shape(NULL).n, 0);
    CHECK(lz_context_of(NULL) == NULL);
    lz_item(NULL, NULL);
    CHECK(lz_eval_all(pair, 2, &err) == LZ_BAD_ARGUMENT);
    CHECK(lz_eval_all(NULL, 1, &err) == LZ_BAD_ARGUMENT);
    CHECK_OK(lz_eval_all(pair, 0, &err), &err);
    CHECK(lz_eval_all(pair, -1, &err) != LZ_OK || true); /* only must not crash */
    CHECK(lz_plan(pair, 2, NULL, &err) != LZ_OK);
    CHECK(lz_graph_text(pair, 2, LZ_GRAPH_TEXT, &err) == NULL && err.status == LZ_BAD_ARGUMENT);
    CHECK(lz_async_eval(NULL, pair, 1, &err) == LZ_BAD_ARGUMENT);
    CHECK(lz_stream_new(NULL, &err) == NULL);
    lz_stream_wait(NULL);
    lz_stream_free(NULL);
    CHECK(lz_compile(NULL, NULL, NULL, 1, 1, 1, &err) == NULL);
    CHECK(lz_compile(ctx, NULL, NULL, 1, 1, 1, &err) == NULL && err.status == LZ_BAD_ARGUMENT);
    CHECK(lz_run(NULL, pair, parts, &err) == LZ_BAD_ARGUMENT);
    lz_compiled_free(NULL);
    CHECK(lz_weights_open(ctx, NULL, &err) == NULL);
    lz_weights_close(NULL);
    lz_close(ctx);
}

/* One row per wrong call: what it is, what it must say. */
static void bad_arguments(void) {
    lz_context *ctx = open_context();
    lz_array *f = lz_full(ctx, LZ_DIMS(2, 3), LZ_F32, 1), *i = lz_full(ctx, LZ_DIMS(2, 3), LZ_I32, 1);
    lz_array *f8 = lz_full(ctx, LZ_DIMS(2, 3), LZ_F8, 1), *s = lz_full(ctx, LZ_NONE, LZ_F32, 1);
    lz_array *v5 = lz_full(ctx, LZ_DIMS(5), LZ_F32, 1), *b = lz_full(ctx, LZ_DIMS(2, 3), LZ_BOOL, 1);
    lz_array *img = lz_full(ctx, LZ_DIMS(1, 8, 8, 4), LZ_F32, 1), *ker = lz_full(ctx, LZ_DIMS(6, 3, 3, 4), LZ_F32, 1);
    lz_array *q = lz_full(ctx, LZ_DIMS(1, 4, 6, 8), LZ_F32, 1), *k3 = lz_full(ctx, LZ_DIMS(1, 3, 6, 8), LZ_F32, 1);
    lz_array *m5 = lz_full(ctx, LZ_DIMS(6, 5), LZ_BOOL, 1), *big = lz_full(ctx, LZ_DIMS(1, 1, 2, 513), LZ_F32, 1);
    lz_array *e = lz_full(ctx, LZ_DIMS(0, 3), LZ_F32, 1), *six = lz_full(ctx, LZ_DIMS(2, 2, 2, 2, 2, 2), LZ_F32, 1);
    lz_array *i3 = lz_full(ctx, LZ_DIMS(1, 1, 1, 1), LZ_I32, 0), *ff[] = {f, v5}, *f2[] = {f, lz_transpose(f)};
    lz_array *parts[3];
    lz_split(f, 1, 2, parts);
    lz_array *split_odd = parts[0];
    lz_split(f, 2, 1, parts);
    lz_array *split_axis = parts[0];
    const lz_dims nine = {.n = 9}, less = {.n = -1};
    const int64_t huge = (int64_t)1 << 40;
#define ANY LZ_STATUS_COUNT /* the header leaves open which one */
    const struct {
        int line;
        const char *op;
        lz_status status;
        lz_array *got;
    } rows[] = {
#define ROW(status, op, call) {__LINE__, op, status, call}
        ROW(LZ_BAD_SHAPE, "add", lz_add(f, v5)),
        ROW(LZ_BAD_SHAPE, "less", lz_less(v5, f)),
        ROW(LZ_BAD_SHAPE, "where", lz_where(b, f, v5)),
        ROW(LZ_BAD_TYPE, "add", lz_add(f8, f8)),
        ROW(LZ_BAD_TYPE, "mul", lz_mul(f8, 2.0)),
        ROW(LZ_BAD_TYPE, "mul", lz_mul(f, f8)),
        ROW(LZ_BAD_TYPE, "equal", lz_equal(f8, f8)),
        ROW(LZ_BAD_TYPE, "neg", lz_neg(f8)),
        ROW(LZ_BAD_TYPE, "exp", lz_exp(f8)),
        ROW(LZ_BAD_TYPE, "sum", lz_sum(f8, LZ_NONE, false)),
        ROW(LZ_BAD_TYPE, "softmax", lz_softmax(f8, 0)),
        ROW(LZ_BAD_TYPE, "rms_norm", lz_rms_norm(f8, NULL, 1e-6)),
        ROW(LZ_BAD_ARGUMENT, "clip", lz_clip(f, 2, 1)),
        ROW(LZ_BAD_ARGUMENT, "clip", lz_clip(f, NAN, 1)),
        ROW(ANY, "cast", lz_cast(f, LZ_DTYPE_COUNT)),
        ROW(ANY, "cast", lz_cast(f, (lz_dtype)-1)),
        ROW(ANY, "full", lz_full(ctx, LZ_DIMS(2), (lz_dtype)77, 1)),
        ROW(ANY, "from", lz_from(ctx, LZ_DIMS(2), (lz_dtype)77, &huge)),
        ROW(LZ_BAD_ARGUMENT, "arange", lz_arange(ctx, 0, 1, 0, LZ_F32)),
        ROW(LZ_BAD_ARGUMENT, "arange", lz_arange(ctx, 0, NAN, 1, LZ_F32)),
        ROW(ANY, "arange", lz_arange(ctx, 0, INFINITY, 1, LZ_F32)),
        ROW(ANY, "arange", lz_arange(ctx, 0, 1e300, 1, LZ_F32)),
        ROW(LZ_BAD_ARGUMENT, "sum", lz_sum(f, LZ_DIMS(2), false)),
        ROW(LZ_BAD_ARGUMENT, "sum", lz_sum(f, LZ_DIMS(-3), false)),
        ROW(LZ_BAD_ARGUMENT, "mean", lz_mean(f, LZ_DIMS(0, 0), false)),
        ROW(LZ_BAD_ARGUMENT, "var", lz_var(f, LZ_DIMS(1, -1), false)),
        ROW(LZ_BAD_ARGUMENT, "sum", lz_sum(f, nine, false)),
        ROW(LZ_BAD_ARGUMENT, "sum", lz_sum(f, less, false)),
        ROW(LZ_BAD_ARGUMENT, "max", lz_max(s, LZ_DIMS(0), false)),
        ROW(LZ_BAD_ARGUMENT, "argmax", lz_argmax(f, 2, false)),
        ROW(LZ_BAD_ARGUMENT, "softmax", lz_softmax(f, -3)),
        ROW(LZ_BAD_ARGUMENT, "softmax", lz_softmax(s, 0)),
        ROW(LZ_BAD_SHAPE, "max", lz_max(e, LZ_DIMS(0), false)),
        ROW(LZ_BAD_SHAPE, "min", lz_min(e, LZ_NONE, false)),
        ROW(LZ_BAD_SHAPE, "argmax", lz_argmax(e, 0, false)),
        ROW(LZ_BAD_SHAPE, "matmul", lz_matmul(f, f)),
        ROW(LZ_BAD_SHAPE, "matmul", lz_matmul(s, f)),
        ROW(LZ_BAD_SHAPE, "matmul",
            lz_matmul(lz_full(ctx, LZ_DIMS(2, 3, 4), LZ_F32, 1), lz_full(ctx, LZ_DIMS(3, 4, 5), LZ_F32, 1))),
        ROW(LZ_BAD_TYPE, "matmul", lz_matmul(i, lz_transpose(f))),
        ROW(LZ_BAD_SHAPE, "linear", lz_linear(f, v5, NULL)),
        ROW(LZ_BAD_SHAPE, "linear", lz_linear(f, f, v5)),
        ROW(LZ_BAD_SHAPE, "linear", lz_linear(s, f, NULL)),
        ROW(LZ_BAD_SHAPE, "", lz_addmm(v5, f, lz_transpose(f))),
        ROW(LZ_BAD_SHAPE, "", lz_addmm(f, f, f)),
        ROW(LZ_BAD_SHAPE, "sdpa", lz_sdpa(f, f, f)),
        ROW(LZ_BAD_SHAPE, "sdpa", lz_sdpa(q, k3, k3)),
        ROW(LZ_BAD_SHAPE, "sdpa", lz_sdpa(q, q, k3)),
        ROW(LZ_BAD_SHAPE, "sdpa", lz_sdpa(q, q, q, .mask = m5)),
        ROW(LZ_BAD_TYPE, "sdpa", lz_sdpa(q, q, q, .mask = lz_full(ctx, LZ_DIMS(6, 6), LZ_I32, 1))),
        ROW(LZ_BAD_SHAPE, "sdpa", lz_sdpa(big, big, big)),
        ROW(LZ_BAD_TYPE, "sdpa", lz_sdpa(lz_cast(q, LZ_I32), q, q)),
        ROW(LZ_BAD_SHAPE, "rms_norm", lz_rms_norm(f, v5, 1e-6)),
        ROW(LZ_BAD_SHAPE, "rms_norm", lz_rms_norm(s, NULL, 1e-6)),
        ROW(LZ_BAD_SHAPE, "layer_norm", lz_layer_norm(f, NULL, v5, 1e-6)),
        ROW(LZ_BAD_SHAPE, "", lz_modulated_norm(f, v5, v5, 1e-6)),
        ROW(LZ_BAD_SHAPE, "group_norm", lz_group_norm(img, 3, NULL, NULL, 1e-6)),
        ROW(ANY, "group_norm", lz_group_norm(img, 0, NULL, NULL, 1e-6)),
        ROW(ANY, "group_norm", lz_group_norm(img, -1, NULL, NULL, 1e-6)),
        ROW(LZ_BAD_SHAPE, "group_norm", lz_group_norm(img, 2, v5, NULL, 1e-6)),
        ROW(LZ_BAD_SHAPE, "rope", lz_rope(f, f, f)),
        ROW(LZ_BAD_SHAPE, "rope", lz_rope(q, f, f)),
        ROW(LZ_BAD_SHAPE, "rope", lz_rope(v5, s, s)),
        ROW(LZ_BAD_SHAPE, "conv2d", lz_conv2d(f, ker, NULL)),
        ROW(LZ_BAD_SHAPE, "conv2d", lz_conv2d(img, img, v5)),
        ROW(LZ_BAD_SHAPE, "conv2d", lz_conv2d(img, ker, v5)),
        ROW(LZ_BAD_SHAPE, "conv2d", lz_conv2d(ker, img, NULL)),
        ROW(LZ_BAD_ARGUMENT, "conv2d", lz_conv2d(img, ker, NULL, .stride = -1)),
        ROW(LZ_BAD_ARGUMENT, "conv2d", lz_conv2d(img, ker, NULL, .top = -1)),
        ROW(ANY, "upsample", lz_upsample_nearest(img, 0)),
        ROW(ANY, "upsample", lz_upsample_nearest(f, 2)),
        ROW(ANY, "pad", lz_pad(f, LZ_DIMS(1), LZ_DIMS(1), 0)),
        ROW(LZ_BAD_ARGUMENT, "pad", lz_pad(f, LZ_DIMS(-1, 0), LZ_DIMS(0, 0), 0)),
        ROW(LZ_BAD_SHAPE, "reshape", lz_reshape(f, LZ_DIMS(5))),
        ROW(LZ_BAD_SHAPE, "reshape", lz_reshape(f, LZ_DIMS(-1, -1))),
        ROW(LZ_BAD_SHAPE, "reshape", lz_reshape(f, LZ_DIMS(-1, 4))),
        ROW(LZ_BAD_SHAPE, "reshape", lz_reshape(f, LZ_DIMS(-2, -3))),
        ROW(LZ_BAD_SHAPE, "reshape", lz_reshape(f, LZ_DIMS(-1, 0))),
        ROW(LZ_BAD_SHAPE, "reshape", lz_reshape(e, LZ_DIMS(-1, 0))),
        ROW(LZ_BAD_SHAPE, "reshape", lz_reshape(f, nine)),
        ROW(LZ_BAD_SHAPE, "reshape", lz_reshape(f, less)),
        ROW(LZ_BAD_ARGUMENT, "permute", lz_permute(f, LZ_DIMS(0))),
        ROW(LZ_BAD_ARGUMENT, "permute", lz_permute(f, LZ_DIMS(0, 0))),
        ROW(LZ_BAD_ARGUMENT, "permute", lz_permute(f, LZ_DIMS(0, 2))),
        ROW(LZ_BAD_ARGUMENT, "permute", lz_permute(f, nine)),
        ROW(LZ_BAD_SHAPE, "transpose", lz_transpose(v5)),
        ROW(LZ_BAD_ARGUMENT, "slice", lz_slice(f, 2, 0, 1, 1)),
        ROW(LZ_BAD_ARGUMENT, "slice", lz_slice(f, 0, 0, 1, 0)),
        ROW(LZ_BAD_ARGUMENT, "slice", lz_slice(f, 0, 0, 1, -1)),
        ROW(LZ_BAD_SHAPE, "split", split_odd),
        ROW(ANY, "split", split_axis),
        ROW(LZ_BAD_SHAPE, "broadcast", lz_broadcast(f, LZ_DIMS(3))),
        ROW(LZ_BAD_SHAPE, "broadcast", lz_broadcast(f, LZ_DIMS(2, 4))),
        ROW(LZ_BAD_SHAPE, "broadcast", lz_broadcast(f, nine)),
        ROW(LZ_BAD_SHAPE, "broadcast", lz_broadcast(v5, LZ_DIMS(-2, 5))),
        ROW(LZ_BAD_SHAPE, "concat", lz_concat(ff, 2, 0)),
        ROW(LZ_BAD_SHAPE, "concat", lz_concat(f2, 2, 0)),
        ROW(LZ_BAD_ARGUMENT, "concat", lz_concat(ff, 1, 2)),
        ROW(ANY, "concat", lz_concat(&s, 1, 0)),
        ROW(LZ_BAD_TYPE, "take", lz_take(f, f, 0)),
        ROW(LZ_BAD_TYPE, "take", lz_take(f, b, 0)),
        ROW(LZ_BAD_ARGUMENT, "take", lz_take(f, i, 2)),
        ROW(LZ_BAD_SHAPE, "take", lz_take(six, i3, 0)), /* 6 + 4 - 1 axes */
        ROW(LZ_BAD_TYPE, "gather", lz_gather(f, f, 0)),
        ROW(LZ_BAD_ARGUMENT, "gather", lz_gather(f, i, 5)),
        ROW(LZ_BAD_SHAPE, "gather", lz_gather(v5, i, 0)),
        /* Ranks and sizes beyond what an array can be. */
        ROW(LZ_BAD_SHAPE, "full", lz_full(ctx, nine, LZ_F32, 1)),
        ROW(LZ_BAD_SHAPE, "full", lz_full(ctx, less, LZ_F32, 1)),
        ROW(LZ_BAD_SHAPE, "from", lz_from(ctx, nine, LZ_F32, &huge)),
        ROW(LZ_BAD_SHAPE, "borrow", lz_borrow(ctx, nine, LZ_F32, &huge, NULL, NULL)),
        ROW(LZ_BAD_SHAPE, "randn", lz_randn(ctx, nine, 1)),
        ROW(LZ_BAD_SHAPE, "full", lz_full(ctx, LZ_DIMS(-1), LZ_F32, 1)),
        ROW(LZ_BAD_SHAPE, "full", lz_full(ctx, LZ_DIMS(huge, huge), LZ_F32, 1)),
        ROW(LZ_BAD_SHAPE, "full", lz_full(ctx, LZ_DIMS(INT64_MAX, 2), LZ_U8, 1)),
        ROW(LZ_BAD_SHAPE, "full", lz_full(ctx, LZ_DIMS(INT64_MAX), LZ_F64, 1)),
        ROW(LZ_BAD_SHAPE, "full", lz_full(ctx, LZ_DIMS(INT64_MIN, INT64_MIN), LZ_F32, 1)),
        ROW(LZ_BAD_SHAPE, "full",
            lz_full(ctx, LZ_DIMS((int64_t)1 << 32, (int64_t)1 << 32), LZ_F32, 1)), /* 2^64 wraps to 0 */
        ROW(LZ_BAD_SHAPE, "from", lz_from(ctx, LZ_DIMS(huge, huge), LZ_F32, &huge)),
        ROW(LZ_BAD_SHAPE, "borrow", lz_borrow(ctx, LZ_DIMS(huge, huge), LZ_F32, &huge, NULL, NULL)),
        ROW(LZ_BAD_SHAPE, "randn", lz_randn(ctx, LZ_DIMS(huge, huge), 1)),
        ROW(LZ_BAD_SHAPE, "broadcast", lz_broadcast(s, LZ_DIMS(huge, huge))),
        ROW(LZ_BAD_SHAPE, "add",
            lz_add(lz_full(ctx, LZ_DIMS(huge, 1), LZ_F32, 1), lz_full(ctx, LZ_DIMS(1, huge), LZ_F32, 1))),
        ROW(LZ_BAD_SHAPE, "matmul",
            lz_matmul(lz_full(ctx, LZ_DIMS(huge, 1), LZ_F32, 1), lz_full(ctx, LZ_DIMS(1, huge), LZ_F32, 1))),
        ROW(LZ_BAD_SHAPE, "concat",
            lz_concat((lz_array *[]){lz_full(ctx, LZ_DIMS(huge, huge >> 22), LZ_U8, 1),
                                     lz_full(ctx, LZ_DIMS(huge, huge >> 22), LZ_U8, 1),
                                     lz_full(ctx, LZ_DIMS(huge, huge >> 22), LZ_U8, 1)},
                      3, 0)),
        ROW(ANY, "pad", lz_pad(f, LZ_DIMS(INT64_MAX, 0), LZ_DIMS(INT64_MAX, 0), 0)),
        ROW(ANY, "pad", lz_pad(f, LZ_DIMS(huge, huge), LZ_DIMS(0, 0), 0)),
        ROW(LZ_BAD_SHAPE, "take",
            lz_take(lz_full(ctx, LZ_DIMS(2, huge), LZ_F32, 1), lz_full(ctx, LZ_DIMS(huge), LZ_I64, 1), 0)),
        ROW(LZ_BAD_SHAPE, "reshape", lz_reshape(f, LZ_DIMS((int64_t)1 << 62, 4, 6))), /* wraps to 0 */
        ROW(LZ_BAD_SHAPE, "reshape", lz_reshape(e, LZ_DIMS(-1, (int64_t)1 << 62, 4))),
        ROW(LZ_BAD_SHAPE, "upsample",
            lz_upsample_nearest(lz_full(ctx, LZ_DIMS(1, huge, huge >> 22, 1), LZ_U8, 1), 2000000000)),
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        lz_error err = {0};
        lz_status got = lz_check(rows[r].got, &err);
        CHECK(rows[r].status == ANY ? got != LZ_OK : got == rows[r].status, "line %d: %s, not %s: %s", rows[r].line,
              lz_status_name(got), rows[r].status == ANY ? "an error" : lz_status_name(rows[r].status), err.text);
        if (got != LZ_OK) {
            CHECK(strstr(err.text, rows[r].op), "line %d names its op: %s", rows[r].line, err.text);
            CHECK(lz_eval(rows[r].got, NULL) == got, "line %d", rows[r].line);
            CHECK(lz_size(rows[r].got) == 0, "line %d", rows[r].line);
        }
    }
    /* What macros call knows its place; so should the rest. */
    lz_error err = {0};
    lz_check(lz_softmax(f, 7), &err);
    CHECK_TEXT(err.text, "test_array.c:");
    lz_check(lz_sdpa(f, f, f), &err);
    CHECK_TEXT(err.text, "test_array.c:");

    /* Strange, but right. */
    CHECK_OK(lz_check(lz_full(ctx, LZ_DIMS(0, 5), LZ_F32, 1), &err), &err);
    CHECK_OK(lz_check(lz_slice(f, 0, 5, 2, 1), &err), &err);
    CHECK_OK(lz_check(lz_slice(f, 0, INT64_MIN, INT64_MAX, INT64_MAX), &err), &err);
    CHECK_OK(lz_eval(lz_slice(f, 1, 0, 3, INT64_MAX), &err), &err);
    CHECK_OK(lz_check(lz_reshape(e, LZ_DIMS(3, 0, 7)), &err), &err);
    CHECK_OK(lz_check(lz_reshape(s, LZ_DIMS(1, 1, 1, 1, 1, 1, 1, 1)), &err), &err);
    CHECK_OK(lz_eval(lz_permute(s, LZ_NONE), &err), &err);
    CHECK_I64(lz_shape(lz_arange(ctx, 3, 0, 1, LZ_F32)).at[0], 0);
    lz_close(ctx);
}

/* ---- memory limits ----------------------------------------------------------------------------------------------- */

static void memory_limit(void) {
    enum { MB = 1 << 20 };
    lz_context *ctx = lz_open(.memory_limit = 4 * MB, .threads = 1);
    lz_error err = {0};
    CHECK_I64(lz_memory_info(ctx).limit, 4 * MB);
    lz_scope *s = lz_scope_begin(ctx, "too much");
    lz_array *small = lz_randn(ctx, LZ_DIMS(1024), 1);
    lz_array *big = lz_randn(ctx, LZ_DIMS(2, MB), 1); /* 8 MB */
    CHECK_STATUS(lz_eval(big, &err), LZ_OUT_OF_MEMORY, &err);
    CHECK_TEXT(err.text, "limit");
    CHECK_OK(lz_eval(small, &err), &err); /* going on */
    static float host[2 * MB];
    CHECK_STATUS(lz_check(lz_from(ctx, LZ_DIMS(2, MB), LZ_F32, host), &err), LZ_OUT_OF_MEMORY, &err);
    /* Intermediates count as well: the sum itself is one number. */
    lz_array *half = lz_randn(ctx, LZ_DIMS(MB / 2), 2);
    lz_array *sum = lz_sum(lz_matmul(lz_reshape(half, LZ_DIMS(2048, 256)), lz_reshape(half, LZ_DIMS(256, 2048))),
                           LZ_NONE, false);
    CHECK_STATUS(lz_eval(sum, &err), LZ_OUT_OF_MEMORY, &err);
    CHECK(lz_memory_info(ctx).peak <= 4 * MB);
    CHECK_STATUS(lz_eval(sum, &err), LZ_OUT_OF_MEMORY, &err); /* and again */

    /* More room, and what failed works: an error of evaluation does not poison. */
    lz_set_memory_limit(ctx, 64 * MB);
    CHECK_OK(lz_eval(sum, &err), &err);
    CHECK_OK(lz_eval(big, &err), &err);
    lz_set_memory_limit(ctx, 1); /* below what is in use: nothing new, nothing lost */
    CHECK_STATUS(lz_eval(lz_add(small, 1.0), &err), LZ_OUT_OF_MEMORY, &err);
    CHECK(lz_data(big, &err) != NULL);
    lz_set_memory_limit(ctx, 0);
    CHECK_OK(lz_eval(lz_add(big, 1.0), &err), &err);
    lz_scope_end(s);
    CHECK_I64(active(ctx), 0);

    /* The cache gives way to the limit, and can be emptied. */
    CHECK(lz_memory_info(ctx).cached > 0);
    lz_set_memory_limit(ctx, 9 * MB);
    CHECK_OK(lz_eval(lz_randn(ctx, LZ_DIMS(2, MB), 1), &err), &err);
    CHECK(lz_memory_info(ctx).active + lz_memory_info(ctx).cached <= 9 * MB);
    lz_clear_cache(ctx);
    CHECK_I64(lz_memory_info(ctx).cached, 0);
    lz_reset_peak(ctx);
    CHECK_I64(lz_memory_info(ctx).peak, active(ctx));
    lz_close(ctx);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

enum { THREADS = 6, ROUNDS = 40 };

typedef struct worker {
    lz_context *ctx;
    lz_array *leaf, *lazy;       /* shared by all: a value, and a graph to build on that nobody has evaluated yet */
    lz_array **looked, **turned; /* [ROUNDS]: all look at them at about the same time */
    pthread_barrier_t *start;
    int id, wrong;
} worker;

static void *work(void *argument) {
    worker *w = argument;
    for (int r = 0; r < ROUNDS; r++) {
        pthread_barrier_wait(w->start);
        const float *seen = lz_data(w->looked[r], NULL); /* whoever comes first computes it */
        if (!seen || seen[3] != 4.0f + (float)r) w->wrong++;
        seen = lz_data(w->turned[r], NULL); /* a transposed view: whoever comes first makes it row-major */
        if (!seen || seen[1] != 32.0f || seen[32] != 1.0f) w->wrong++;

        lz_scope *s = lz_scope_begin(w->ctx, "worker");
        lz_array *x = lz_add(w->leaf, (double)w->id);                           /* [32, 32] of 1 + id */
        lz_array *y = lz_matmul(x, lz_full(w->ctx, LZ_DIMS(32, 4), LZ_F32, 1)); /* 32 (1 + id) */
        lz_array *z = lz_mul(lz_softmax(y, -1), lz_add(w->lazy, (double)r));    /* (2 + r) / 4 */
        lz_error err = {0};
        const float *p = lz_data(z, &err), *q = lz_data(y, &err);
        if (!p || !q || p[0] != 0.25f * (float)(2 + r) || q[5] != 32.0f * (float)(1 + w->id)) w->wrong++;
        if (lz_eval(lz_add(y, x), &err) != LZ_BAD_SHAPE || !strstr(err.text, "worker")) w->wrong++;
        lz_scope_end(s);
    }
    return NULL;
}

static void threads(void) {
    lz_context *ctx = lz_open(.threads = 2);
    lz_scope *mine = lz_scope_begin(ctx, "main");
    static float ones[32 * 32];
    for (int i = 0; i < 32 * 32; i++) ones[i] = 1;
    lz_array *leaf = lz_from(ctx, LZ_DIMS(32, 32), LZ_F32, ones);
    lz_array *lazy = lz_exp(lz_sub(lz_slice(lz_slice(leaf, 0, 0, 32, 1), 1, 0, 4, 1), 1.0));
    lz_array *two = lz_add(lz_mul(lazy, 3.0), -1.0);
    lz_array *looked[ROUNDS], *turned[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        looked[i] = lz_add(lz_sum(lazy, LZ_DIMS(1), false), (double)i); /* [32] of 4 + i */
        turned[i] = lz_transpose(lz_contiguous(counting(ctx, LZ_DIMS(32, 32), LZ_F32)));
        CHECK_OK(lz_eval(turned[i], NULL), NULL);
    }
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, THREADS);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    int64_t before = active(ctx);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){
            .ctx = ctx, .leaf = leaf, .lazy = two, .looked = looked, .turned = turned, .start = &start, .id = i};
        CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < 100; i++) { /* this thread is busy as well, and its scope stays its own */
        lz_scope *s = lz_scope_begin(ctx, "busy");
        CHECK(lz_item(lz_sum(leaf, LZ_NONE, false), NULL) == 1024.0);
        lz_memory_info(ctx);
        lz_scope_end(s);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_I64(workers[i].wrong, 0);
    }
    pthread_barrier_destroy(&start);
    int64_t shared = ROUNDS * (128 + 4096) +
                     1024; /* what all looked at keeps its value, what the threads made is gone */
    CHECK(active(ctx) - before <= shared, "%lld bytes more", (long long)(active(ctx) - before));
    lz_scope_end(mine);
    CHECK_I64(active(ctx), 0);
    lz_close(ctx);
}

/* Contexts have nothing in common, so each may be on a thread of its own. */
static void *own_context(void *argument) {
    int *wrong = argument;
    for (int i = 0; i < 5; i++) {
        lz_context *ctx = lz_open(.threads = 2);
        lz_array *x = lz_randn(ctx, LZ_DIMS(100, 40), 7);
        if (!(fabs(lz_item(lz_mean(lz_matmul(lz_transpose(x), x), LZ_NONE, false), NULL)) < 100)) ++*wrong;
        lz_close(ctx);
    }
    return NULL;
}

static void contexts_on_threads(void) {
    pthread_t threads[4];
    int wrong[4] = {0};
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, own_context, &wrong[i]) == 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK_I64(wrong[i], 0);
    }
}

TEST_MAIN({"contexts", contexts}, {"looking", looking}, {"weak_numbers", weak_numbers}, {"scopes", scopes},
          {"views_share_memory", views_share_memory}, {"borrowing", borrowing}, {"errors_stick", errors_stick},
          {"null_is_poison", null_is_poison}, {"bad_arguments", bad_arguments}, {"memory_limit", memory_limit},
          {"threads", threads}, {"contexts_on_threads", contexts_on_threads})
