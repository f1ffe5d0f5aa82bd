/* random_case.h: random cases that run in any context, for test_random_shapes.c and test_random_graphs.c.
 *
 * A case is a number. A describe function turns it into a graph: the same number gives the same graph with the same
 * inputs in any context, so each case can be run on the reference, on every instruction set, with one, two and three
 * threads, without fusion, twice, and compiled, and the results compared:
 *
 *   cpu = ref within a tolerance by type and op; in f64, exactly
 *   1 thread = 2 threads = 3 threads = run again, bit for bit
 *   f32: fused = unfused and compiled = eager, bit for bit
 *
 * A failure prints the case number; LZ_TEST_SEED=number runs that one alone. */
#ifndef LZ_RANDOM_CASE_H
#define LZ_RANDOM_CASE_H

#include "check.h"
#include "cli/environment.h"

/* ---- a case being described -------------------------------------------------------------------------------------- */

enum { MAX_LEAVES = 64, MAX_OUT = 3 };

typedef struct builder {
    lz_context *ctx;
    test_random random;     /* decides shapes and ops */
    uint64_t seed;          /* decides the data of leaves, by number, so that a replay need not make any */
    bool exact;             /* leaves are cast to f64: what the graph would give without rounding */
    lz_array *const *given; /* replay: the leaves of an earlier description */
    lz_array *leaves[MAX_LEAVES];
    int n_leaves;
    lz_array *out[MAX_OUT];
    int n_out;
    /* What the comparison needs to know. */
    double ulp, room, least; /* |cpu - ref| <= ulp * spacing(ref) + room * max |ref| + least */
    bool only_f32;           /* nothing is rounded to 16 bits on the way */
    char what[240];
} builder;

static inline int64_t any(builder *b, int64_t low, int64_t high) { return random_int(&b->random, low, high); }
static inline bool chance(builder *b, int percent) { return random_chance(&b->random, percent); }

static inline int64_t count(lz_dims d) {
    int64_t n = 1;
    for (int i = 0; i < d.n; i++) n *= d.at[i];
    return n;
}

static const double eps_of[LZ_DTYPE_COUNT] = {
    [LZ_F8] = 0.125, [LZ_F16] = 0x1p-10, [LZ_BF16] = 0x1p-7, [LZ_F32] = 0x1p-23, [LZ_F64] = 0x1p-52};
static inline bool is_float(lz_dtype t) { return eps_of[t] != 0.0; }

static inline void store(void *to, lz_dtype t, int64_t i, double v) {
    switch (t) {
    case LZ_BOOL: ((uint8_t *)to)[i] = v > 0; break;
    case LZ_U8: ((uint8_t *)to)[i] = (uint8_t)fabs(v); break;
    case LZ_I8: ((int8_t *)to)[i] = (int8_t)v; break;
    case LZ_I32: ((int32_t *)to)[i] = (int32_t)v; break;
    case LZ_I64: ((int64_t *)to)[i] = (int64_t)v; break;
    case LZ_F8: ((uint8_t *)to)[i] = lz_to_f8((float)v); break;
    case LZ_F16: ((uint16_t *)to)[i] = lz_to_f16((float)v); break;
    case LZ_BF16: ((uint16_t *)to)[i] = lz_to_bf16((float)v); break;
    case LZ_F32: ((float *)to)[i] = (float)v; break;
    default: ((double *)to)[i] = v;
    }
}

/* A row-major array with a value of its own. Integers lie in -9 .. 9; a negative scale asks for positive numbers. */
static inline lz_array *leaf(builder *b, lz_dims dims, lz_dtype t, double scale) {
    int number = b->n_leaves++;
    if (number >= MAX_LEAVES) return NULL;
    lz_array *a;
    if (b->given) {
        a = b->given[number];
    } else {
        int64_t n = count(dims);
        void *data = malloc((size_t)(n * 8 + 8));
        test_random r = {b->seed * 1000 + (uint64_t)number};
        for (int64_t i = 0; i < n; i++) {
            double v = is_float(t) ? random_normal(&r) * scale : (double)random_int(&r, -9, 9);
            store(data, t, i, scale < 0 ? fabs(v) + 1.0 : v);
        }
        a = lz_from(b->ctx, dims, t, data);
        free(data);
    }
    b->leaves[number] = a;
    return b->exact && is_float(t) ? lz_cast(a, LZ_F64) : a;
}

/* An array of these dims that may be a view: permuted, cut out of something larger with a step, or broadcast. */
static inline lz_array *view(builder *b, lz_dims dims, lz_dtype t, double scale) {
    lz_dims axes = {.n = dims.n}, base = {.n = dims.n}, from = {.n = dims.n}, step = {.n = dims.n},
            back = {.n = dims.n};
    for (int i = 0; i < dims.n; i++) axes.at[i] = i;
    if (chance(b, 40))
        for (int i = dims.n - 1; i > 0; i--) {
            int j = (int)any(b, 0, i);
            int64_t swap = axes.at[i];
            axes.at[i] = axes.at[j], axes.at[j] = swap;
        }
    bool cut = chance(b, 35), spread = chance(b, 15);
    bool broadcast[LZ_MAX_DIMS] = {0};
    for (int i = 0; i < dims.n; i++) { /* base axis i is dims axis axes[i] */
        int64_t n = dims.at[axes.at[i]];
        back.at[axes.at[i]] = i;
        step.at[i] = 1;
        broadcast[i] = spread && chance(b, 50);
        if (cut && chance(b, 60)) {
            from.at[i] = any(b, 0, 3);
            step.at[i] = any(b, 1, 3);
        }
        base.at[i] = broadcast[i] ? 1 : from.at[i] + n * step.at[i];
        if (broadcast[i]) from.at[i] = 0, step.at[i] = 1;
    }
    lz_array *a = leaf(b, base, t, scale);
    lz_dims full = base;
    for (int i = 0; i < dims.n; i++) {
        int64_t n = dims.at[axes.at[i]];
        full.at[i] = n;
        if (!broadcast[i] && base.at[i] != n) a = lz_slice(a, i, from.at[i], from.at[i] + n * step.at[i], step.at[i]);
    }
    if (spread) a = lz_broadcast(a, full);
    return lz_permute(a, back);
}

static inline int64_t any_size(builder *b, int64_t most) {
    int64_t kind = any(b, 0, 99), n;
    if (kind < 3)
        n = 0;
    else if (kind < 15)
        n = 1;
    else if (kind < 60)
        n = any(b, 2, 9);
    else if (kind < 85)
        n = any(b, 10, 40);
    else if (kind < 95)
        n = any(b, 1, 8) * 16 + any(b, -1, 1);
    else
        n = any(b, 100, 300);
    return n > most ? any(b, 1, most) : n;
}

static inline lz_dims any_dims(builder *b, int least, int most, int64_t elements) {
    lz_dims d = {.n = (int)any(b, least, most)};
    int64_t left = elements;
    for (int i = d.n - 1; i >= 0; i--) {
        d.at[i] = any_size(b, left < 1 ? 1 : left);
        if (d.at[i] > 1) left /= d.at[i];
    }
    return d;
}

static inline lz_dims broadcastable(builder *b, lz_dims d) { /* some axes 1, some leading ones missing */
    int drop = chance(b, 30) && d.n ? (int)any(b, 0, d.n) : 0;
    lz_dims r = {.n = d.n - drop};
    for (int i = 0; i < r.n; i++) r.at[i] = chance(b, 25) ? 1 : d.at[i + drop];
    return r;
}

static inline lz_dtype any_float(builder *b) {
    return (const lz_dtype[]){LZ_F32, LZ_F32, LZ_F32, LZ_BF16, LZ_BF16, LZ_F16, LZ_F16, LZ_F64}[any(b, 0, 7)];
}
static inline lz_dtype any_type(builder *b) {
    return chance(b, 60) ? any_float(b) : (const lz_dtype[]){LZ_U8, LZ_I8, LZ_I32, LZ_I64}[any(b, 0, 3)];
}
static inline lz_dims any_axes(builder *b, int rank) {
    lz_dims axes = LZ_NONE;
    for (int i = 0; i < rank; i++)
        if (chance(b, 45)) axes.at[axes.n++] = chance(b, 30) ? i - rank : i;
    return axes; /* none: all */
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

typedef void (*describe_function)(builder *b);

/* Values of the outputs of one run, kept beyond their context's scope. */
typedef struct values {
    int n;
    lz_status status;
    lz_dtype type[MAX_OUT];
    lz_dims dims[MAX_OUT];
    int64_t size[MAX_OUT];
    void *data[MAX_OUT];
    char error[600];
} values;

static inline void free_values(values *v) {
    for (int i = 0; i < v->n; i++) free(v->data[i]);
}

static inline void keep_values(values *v, lz_array **out, int n) {
    lz_error err = {0};
    v->n = n;
    v->status = lz_eval_all(out, n, &err);
    for (int i = 0; i < n; i++) {
        v->type[i] = lz_type(out[i]), v->dims[i] = lz_shape(out[i]), v->size[i] = lz_size(out[i]);
        int64_t bytes = v->size[i] * lz_dtype_size(v->type[i]);
        v->data[i] = calloc(1, (size_t)bytes + 8);
        if (v->status == LZ_OK) v->status = lz_copy(out[i], v->data[i], bytes, &err);
    }
    snprintf(v->error, sizeof v->error, "%s", err.text);
}

static inline values run_eager(lz_context *ctx, describe_function describe, uint64_t seed, bool exact, builder *told) {
    lz_scope *scope = lz_scope_begin(ctx, "case");
    builder b = {.ctx = ctx, .random = {seed}, .seed = seed, .exact = exact};
    describe(&b);
    values v = {0};
    b.only_f32 = true;
    for (int i = 0; i < b.n_leaves; i++)
        b.only_f32 &= lz_type(b.leaves[i]) != LZ_F16 && lz_type(b.leaves[i]) != LZ_BF16 &&
                      lz_type(b.leaves[i]) != LZ_F8;
    for (int i = 0; i < b.n_out; i++)
        b.only_f32 &= lz_type(b.out[i]) != LZ_F16 && lz_type(b.out[i]) != LZ_BF16 && lz_type(b.out[i]) != LZ_F8;
    keep_values(&v, b.out, b.n_out);
    if (told) *told = b;
    lz_scope_end(scope);
    return v;
}

typedef struct compiled_case {
    describe_function describe;
    uint64_t seed;
} compiled_case;

static inline void describe_compiled(lz_context *ctx, lz_array *const *in, lz_array **out, void *user) {
    const compiled_case *c = user;
    builder b = {.ctx = ctx, .random = {c->seed}, .seed = c->seed, .given = in};
    c->describe(&b);
    for (int i = 0; i < b.n_out; i++) out[i] = b.out[i];
}

static inline values run_compiled(lz_context *ctx, describe_function describe, uint64_t seed) {
    lz_scope *scope = lz_scope_begin(ctx, "compiled");
    builder b = {.ctx = ctx, .random = {seed}, .seed = seed};
    describe(&b); /* for the leaves */
    lz_error err = {0};
    compiled_case c = {describe, seed};
    values v = {0};
    lz_compiled *f = lz_compile(ctx, describe_compiled, &c, b.n_leaves, b.n_out, 2, &err);
    lz_array *out[MAX_OUT] = {0};
    for (int turn = 0; turn < 2; turn++) { /* the second call is the replay */
        v.status = f ? lz_run(f, b.leaves, out, &err) : err.status;
        snprintf(v.error, sizeof v.error, "%s", err.text);
        if (v.status == LZ_OK && turn == 1) keep_values(&v, out, b.n_out);
    }
    lz_compiled_free(f);
    lz_scope_end(scope);
    return v;
}

/* Equal bits, but that any NaN is as good as any other. */
static inline bool same_values(const values *a, const values *b) {
    if (a->status != b->status || a->n != b->n) return false;
    for (int k = 0; k < a->n; k++) {
        if (a->type[k] != b->type[k] || !same_dims(a->dims[k], b->dims[k])) return false;
        int64_t size = lz_dtype_size(a->type[k]);
        if (same_bits(a->data[k], b->data[k], a->size[k] * size)) continue;
        for (int64_t i = 0; i < a->size[k]; i++) {
            if (same_bits((char *)a->data[k] + i * size, (char *)b->data[k] + i * size, size)) continue;
            double x = element_as_double(a->data[k], a->type[k], i), y = element_as_double(b->data[k], a->type[k], i);
            if (!(x != x && y != y)) return false;
        }
    }
    return true;
}

static inline void near_values(const char *who, uint64_t seed, const builder *b, const values *got,
                               const values *want) {
    if (!CHECK(got->status == want->status && want->status == LZ_OK, "%s, case %llu: %s: %s | ref: %s", who,
               (unsigned long long)seed, b->what, got->status ? got->error : "ok", want->status ? want->error : "ok"))
        return;
    for (int k = 0; k < got->n; k++) {
        if (!CHECK(got->type[k] == want->type[k] && same_dims(got->dims[k], want->dims[k]), "%s, case %llu: %s", who,
                   (unsigned long long)seed, b->what))
            return;
        lz_dtype t = got->type[k];
        double scale = 0, worst = 0;
        int64_t bad = -1;
        for (int64_t i = 0; i < want->size[k]; i++) {
            double w = fabs(element_as_double(want->data[k], t, i));
            if (isfinite(w) && w > scale) scale = w;
        }
        for (int64_t i = 0; i < want->size[k]; i++) {
            double x = element_as_double(got->data[k], t, i), y = element_as_double(want->data[k], t, i),
                   error = value_error(x, y);
            double allowed = b->ulp * type_spacing(t, y) + b->room * scale + b->least;
            if (!is_float(t) || t == LZ_F64) allowed = 0.0; /* f64 runs on the reference kernels everywhere */
            if (isfinite(error)) error -= allowed;
            if (error > worst) worst = error, bad = i;
        }
        if (bad < 0)
            CHECK(true);
        else
            CHECK(false, "%s, case %llu: %s: output %d %s, element %lld: %.9g, not %.9g (largest %.3g, %.3g beyond)",
                  who, (unsigned long long)seed, b->what, k, dims_text(got->dims[k]), (long long)bad,
                  element_as_double(got->data[k], t, bad), element_as_double(want->data[k], t, bad), scale, worst);
    }
}

typedef struct machine { /* the contexts of one instruction set, or of the device that LZ_TEST_DEVICE names */
    const char *isa;
    lz_context *two, *one, *three, *unfused;
} machine;

static int machine_compute; /* .compute of all contexts */
static machine machines[5];
static int n_machines;
static lz_context *ref;

static inline void open_device(const char *device) {
    lz_error err = {0};
    machine m = {
        .isa = device,
        .two = open_as_asked(LZ_CONTEXT_OPTIONS(.device = device, .compute = machine_compute, .threads = 2), &err)};
    if (!CHECK(m.two, "%s", err.text)) return;
    m.one = open_as_asked(LZ_CONTEXT_OPTIONS(.device = device, .compute = machine_compute, .threads = 1), NULL);
    m.three = open_as_asked(LZ_CONTEXT_OPTIONS(.device = device, .compute = machine_compute, .threads = 3), NULL);
    m.unfused = open_as_asked(
        LZ_CONTEXT_OPTIONS(.device = device, .compute = machine_compute, .threads = 2, .no_fusion = true), NULL);
    machines[n_machines++] = m;
}

#ifdef LZ_TEST_TILES
/* The kernels for AMX, with its instructions in C (tiles.h), so that they are tested on every processor. */
#include "array/internal.h"
const lz_kernel *lz_cpu_kernel_tiles_in_c(lz_op op);
static lz_context *open_isa(const char *isa, int threads, bool no_fusion) {
    static const lz_backend tiles = {.name = "cpu (tiles in C)", .fuses = true, .kernel = lz_cpu_kernel_tiles_in_c};
    lz_context *ctx = strcmp(isa, "baseline")
                          ? NULL
                          : lz_open(.threads = threads, .no_fusion = no_fusion, .compute = machine_compute);
    if (ctx) ctx->backend = &tiles;
    return ctx;
}
#else
static lz_context *open_isa(const char *isa, int threads, bool no_fusion) {
    return lz_open(.isa = isa, .threads = threads, .no_fusion = no_fusion, .compute = machine_compute);
}
#endif

static inline void open_all(void) {
    static const char *const names[] = {"amx", "avx512bf16", "avx512", "avx2", "armbf16", "baseline"};
    const char *device = getenv("LZ_TEST_DEVICE");
    ref = lz_open(.device = "ref", .threads = 1, .compute = machine_compute);
    n_machines = 0;
    if (device) open_device(device);
    const char *only = getenv("LZ_TEST_ISA"); /* it must be there then */
    for (size_t i = 0; i < sizeof names / sizeof *names && !device; i++) {
        if (only && strcmp(only, names[i])) continue;
        machine m = {.isa = names[i], .two = open_isa(names[i], 2, false)};
        if (!m.two) continue;
        m.one = open_isa(names[i], 1, false);
        m.three = open_isa(names[i], 3, false);
        m.unfused = open_isa(names[i], 2, true);
        machines[n_machines++] = m;
    }
    CHECK(ref && n_machines > 0);
}

static inline void close_all(void) {
    for (int i = 0; i < n_machines; i++) {
        lz_close(machines[i].two);
        lz_close(machines[i].one);
        lz_close(machines[i].three);
        lz_close(machines[i].unfused);
    }
    lz_close(ref);
}

#define SAME(other, text)                                                                                              \
    CHECK(same_values(&base, &other), "%s, case %llu: %s: %s %s", m->isa, (unsigned long long)seed, b.what, text,      \
          other.status ? other.error : "")

static inline void run_case(describe_function describe, uint64_t seed, const machine *m) {
    builder b;
    values want = run_eager(ref, describe, seed, false, &b);
    values base = run_eager(m->two, describe, seed, false, &b);
    near_values(m->isa, seed, &b, &base, &want);
    values again = run_eager(m->two, describe, seed, false, NULL), one = run_eager(m->one, describe, seed, false, NULL);
    values three = run_eager(m->three, describe, seed, false, NULL),
           unfused = run_eager(m->unfused, describe, seed, false, NULL);
    values compiled = run_compiled(m->two, describe, seed);
    SAME(again, "the same from run to run");
    SAME(one, "the same on one thread");
    SAME(three, "the same on three threads");
    if (b.only_f32) {
        SAME(unfused, "f32: fused = unfused");
        SAME(compiled, "f32: compiled = eager");
    } else {
        near_values("unfused", seed, &b, &unfused, &want);
        near_values("compiled", seed, &b, &compiled, &want);
    }
    values *all[] = {&want, &base, &again, &one, &three, &unfused, &compiled};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free_values(all[i]);
}

static inline void run_many(describe_function describe, int n, uint64_t first) {
    open_all();
    const char *only = getenv("LZ_TEST_SEED");
    for (int i = 0; i < n && n_machines; i++) {
        uint64_t seed = only ? strtoull(only, NULL, 10) : first + (uint64_t)i;
        /* One machine a case. It is scattered, so that it does not go together with what the seed chooses. */
        int chosen = (int)(((uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) >> 33) % (uint64_t)n_machines);
        for (int k = 0; k < n_machines; k++)
            if (only || chosen == k) run_case(describe, seed, &machines[k]);
        if (only) break;
    }
    for (int i = 0; i < n_machines; i++)
        CHECK_I64(lz_memory_info(machines[i].two).active, 0); /* nothing stays behind */
    close_all();
}

#endif
