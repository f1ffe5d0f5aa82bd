/* test_ops.c: every op against NumPy and PyTorch.
 *
 * tests/data/ops.txt lists the cases, tests/data/ops.safetensors has their inputs and expected outputs; both are made
 * by tools/oracle/ops.py, which describes the format. Each case runs on the reference and on the CPU backend with each
 * instruction set this machine has, with and without fusion. Type and shape of the result must match exactly, values
 * within the tolerance the case names: tight for the reference, wider for the fast kernels. */
#include "check.h"

#define MAX_WORDS 24
#define MAX_ARRAYS 8

/* One line of ops.txt, cut into words: name, op, then key=value. */
typedef struct golden_case {
    char *text;
    const char *name, *op;
    int n_words;
    char *words[MAX_WORDS];
} golden_case;

static golden_case *cases;
static int n_cases;

static bool read_cases(void) {
    if (cases) return true;
    FILE *f = fopen(test_data("ops.txt"), "r");
    if (!CHECK(f != NULL, "%s", test_data("ops.txt"))) return false;
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, f) > 0) {
        if (line[0] == '#' || line[0] == '\n') continue;
        cases = realloc(cases, sizeof *cases * (size_t)(n_cases + 1));
        golden_case *c = &cases[n_cases++];
        *c = (golden_case){.text = strdup(line)};
        char *rest = NULL;
        for (char *w = strtok_r(c->text, " \n", &rest); w && c->n_words < MAX_WORDS; w = strtok_r(NULL, " \n", &rest))
            c->words[c->n_words++] = w;
        c->name = c->words[0];
        c->op = c->words[1];
    }
    free(line);
    fclose(f);
    return CHECK(n_cases > 1000);
}

static const char *word(const golden_case *c, const char *key) { /* the value behind key=, or NULL */
    size_t n = strlen(key);
    for (int i = 2; i < c->n_words; i++)
        if (strncmp(c->words[i], key, n) == 0 && c->words[i][n] == '=') return c->words[i] + n + 1;
    return NULL;
}

static double number(const golden_case *c, const char *key, double otherwise) {
    const char *text = word(c, key);
    return text ? strtod(text, NULL) : otherwise;
}

static int integer(const golden_case *c, const char *key) { return (int)number(c, key, 0); }

static lz_dims list_of(const char *text) { /* "2,-1,3" */
    lz_dims d = LZ_NONE;
    while (text && *text && d.n < LZ_MAX_DIMS) {
        char *end;
        d.at[d.n++] = strtoll(text, &end, 10);
        text = *end == ',' ? end + 1 : NULL;
    }
    return d;
}
static lz_dims list(const golden_case *c, const char *key) { return list_of(word(c, key)); }

static lz_dtype type_of(const char *name) {
    for (int t = 0; t < LZ_DTYPE_COUNT; t++)
        if (name && strcmp(lz_dtype_name((lz_dtype)t), name) == 0) return (lz_dtype)t;
    CHECK(false, "no type is called %s", name ? name : "(nothing)");
    return LZ_F32;
}

/* A tensor of the fixture through its views: "x3@p1,0@s0,1,9,2". */
static lz_array *tensor(lz_weights *weights, char *text) {
    if (strcmp(text, "-") == 0) return NULL;
    char *view = strchr(text, '@');
    char name[64];
    snprintf(name, sizeof name, "%.*s", view ? (int)(view - text) : 63, text);
    lz_array *a = lz_weights_get(weights, name);
    for (; view; view = strchr(view + 1, '@')) {
        lz_dims d = list_of(view + 2);
        switch (view[1]) {
        case 'p': a = lz_permute(a, d); break;
        case 's': a = lz_slice(a, (int)d.at[0], d.at[1], d.at[2], d.at[3]); break;
        case 'r': a = lz_reshape(a, d); break;
        case 'b': a = lz_broadcast(a, d); break;
        default: CHECK(false, "view %s", view);
        }
    }
    return a;
}

static int tensors(lz_weights *weights, const char *text, lz_array **out) { /* "x3;x4@p1,0" */
    int n = 0;
    char copy[512];
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    char *rest = NULL;
    for (char *t = strtok_r(copy, ";", &rest); t && n < MAX_ARRAYS; t = strtok_r(NULL, ";", &rest))
        out[n++] = tensor(weights, t);
    return n;
}

/* ---- what to call for each op ------------------------------------------------------------------------------------ */

typedef lz_array *(*unary_function)(lz_array *);
typedef lz_array *(*binary_function)(lz_array *, lz_array *);
typedef lz_array *(*number_function)(lz_array *, double);
typedef lz_array *(*reduce_function)(lz_array *, lz_dims, bool);

static const struct {
    const char *name;
    unary_function call;
} unaries[] = {
    {"neg", lz_neg},
    {"abs", lz_abs},
    {"not", lz_not},
    {"square", lz_square},
    {"floor", lz_floor},
    {"exp", lz_exp},
    {"log", lz_log},
    {"sqrt", lz_sqrt},
    {"rsqrt", lz_rsqrt},
    {"sin", lz_sin},
    {"cos", lz_cos},
    {"tanh", lz_tanh},
    {"erf", lz_erf},
    {"sigmoid", lz_sigmoid},
    {"silu", lz_silu},
    {"gelu", lz_gelu},
    {"gelu_tanh", lz_gelu_tanh},
    {"transpose", lz_transpose},
    {"contiguous", lz_contiguous},
};

static const struct {
    const char *name;
    binary_function call;
    number_function with_number;
} binaries[] = {
    {"add", lz_add, lz_add_number},
    {"sub", lz_sub, lz_sub_number},
    {"mul", lz_mul, lz_mul_number},
    {"div", lz_div, lz_div_number},
    {"pow", lz_pow, lz_pow_number},
    {"maximum", lz_maximum, lz_maximum_number},
    {"minimum", lz_minimum, lz_minimum_number},
    {"equal", lz_equal, lz_equal_number},
    {"not_equal", lz_not_equal, lz_not_equal_number},
    {"less", lz_less, lz_less_number},
    {"less_equal", lz_less_equal, lz_less_equal_number},
    {"greater", lz_greater, lz_greater_number},
    {"greater_equal", lz_greater_equal, lz_greater_equal_number},
    {"and", lz_and, NULL},
    {"or", lz_or, NULL},
    {"matmul", lz_matmul, NULL},
};

static const struct {
    const char *name;
    reduce_function call;
} reductions[] = {
    {"sum", lz_sum}, {"mean", lz_mean}, {"var", lz_var}, {"max", lz_max}, {"min", lz_min}, {"logsumexp", lz_logsumexp},
};

#define IS(text) (strcmp(c->op, text) == 0)
#define COUNT(table) (int)(sizeof(table) / sizeof *(table))

/* Describes the outputs of a case; returns how many. */
static int describe(lz_context *ctx, const golden_case *c, lz_array **in, int n_in, lz_array **out) {
    for (int i = 0; i < COUNT(unaries); i++)
        if (IS(unaries[i].name)) return out[0] = unaries[i].call(in[0]), 1;
    for (int i = 0; i < COUNT(binaries); i++) {
        if (!IS(binaries[i].name)) continue;
        const char *weak = word(c, "number");
        return out[0] = weak ? binaries[i].with_number(in[0], strtod(weak, NULL)) : binaries[i].call(in[0], in[1]), 1;
    }
    for (int i = 0; i < COUNT(reductions); i++)
        if (IS(reductions[i].name)) return out[0] = reductions[i].call(in[0], list(c, "axes"), integer(c, "keep")), 1;

    int axis = integer(c, "axis");
    lz_dims d = list(c, "dims");
    if (IS("cast")) return out[0] = lz_cast(in[0], type_of(word(c, "to"))), 1;
    if (IS("where")) return out[0] = lz_where(in[0], in[1], in[2]), 1;
    if (IS("clip")) return out[0] = lz_clip(in[0], number(c, "low", 0), number(c, "high", 0)), 1;
    if (IS("argmax")) return out[0] = lz_argmax(in[0], axis, integer(c, "keep")), 1;
    if (IS("softmax")) return out[0] = lz_softmax(in[0], axis), 1;
    if (IS("linear")) return out[0] = lz_linear(in[0], in[1], in[2]), 1;
    if (IS("addmm"))
        return out[0] = lz_addmm(in[0], in[1], in[2], .alpha = number(c, "alpha", 0), .beta = number(c, "beta", 0)), 1;
    if (IS("sdpa"))
        return out[0] = lz_sdpa(in[0], in[1], in[2], .scale = number(c, "scale", 0), .causal = integer(c, "causal"),
                                .mask = n_in > 3 ? in[3] : NULL),
               1;
    if (IS("rms_norm")) return out[0] = lz_rms_norm(in[0], in[1], number(c, "eps", 0)), 1;
    if (IS("layer_norm")) return out[0] = lz_layer_norm(in[0], in[1], in[2], number(c, "eps", 0)), 1;
    if (IS("modulated_norm")) return out[0] = lz_modulated_norm(in[0], in[1], in[2], number(c, "eps", 0)), 1;
    if (IS("group_norm"))
        return out[0] = lz_group_norm(in[0], integer(c, "groups"), in[1], in[2], number(c, "eps", 0)), 1;
    if (IS("rope")) return out[0] = lz_rope(in[0], in[1], in[2], .half_split = integer(c, "half")), 1;
    if (IS("conv2d")) {
        lz_dims p = list(c, "pad");
        return out[0] = lz_conv2d(in[0], in[1], in[2], .stride = integer(c, "stride"), .top = (int)p.at[0],
                                  .bottom = (int)p.at[1], .left = (int)p.at[2], .right = (int)p.at[3]),
               1;
    }
    if (IS("upsample")) return out[0] = lz_upsample_nearest(in[0], integer(c, "factor")), 1;
    if (IS("pad")) return out[0] = lz_pad(in[0], list(c, "before"), list(c, "after"), number(c, "value", 0)), 1;
    if (IS("reshape")) return out[0] = lz_reshape(in[0], d), 1;
    if (IS("permute")) return out[0] = lz_permute(in[0], list(c, "axes")), 1;
    if (IS("broadcast")) return out[0] = lz_broadcast(in[0], d), 1;
    if (IS("slice")) {
        lz_dims r = list(c, "range");
        return out[0] = lz_slice(in[0], axis, r.at[0], r.at[1], r.at[2]), 1;
    }
    if (IS("split")) return lz_split(in[0], axis, integer(c, "parts"), out), integer(c, "parts");
    if (IS("concat")) return out[0] = lz_concat(in, n_in, axis), 1;
    if (IS("take")) return out[0] = lz_take(in[0], in[1], axis), 1;
    if (IS("gather")) return out[0] = lz_gather(in[0], in[1], axis), 1;
    if (IS("arange"))
        return out[0] = lz_arange(ctx, number(c, "start", 0), number(c, "stop", 0), number(c, "step", 0),
                                  type_of(word(c, "type"))),
               1;
    if (IS("full")) return out[0] = lz_full(ctx, d, type_of(word(c, "type")), number(c, "value", 0)), 1;
    CHECK(false, "%s: no op is called %s", c->name, c->op);
    return 0;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static void compare(const char *where, const golden_case *c, int k, lz_array *got, lz_array *want, double ulp,
                    double room) {
    lz_error err = {0};
    if (!CHECK(lz_check(got, &err) == LZ_OK, "%s: %s: %s", where, c->name, err.text)) return;
    CHECK(lz_type(got) == lz_type(want), "%s: %s: type %s, not %s", where, c->name, lz_dtype_name(lz_type(got)),
          lz_dtype_name(lz_type(want)));
    if (!CHECK(same_dims(lz_shape(got), lz_shape(want)), "%s: %s: shape %s, not %s", where, c->name,
               dims_text(lz_shape(got)), dims_text(lz_shape(want))) ||
        lz_type(got) != lz_type(want))
        return;
    const void *g = lz_data(got, &err), *w = lz_data(want, NULL);
    int64_t n = lz_size(got);
    if (!CHECK(n == 0 || (g && w), "%s: %s: %s", where, c->name, err.text)) return;
    lz_dtype t = lz_type(got);
    int64_t bad = -1;
    double worst = 0.0;
    for (int64_t i = 0; i < n; i++) {
        double x = element_as_double(g, t, i), y = element_as_double(w, t, i), error = value_error(x, y);
        if (t == LZ_I64) error = (double)(((const int64_t *)g)[i] != ((const int64_t *)w)[i]);
        if (x == 0.0 && y == 0.0 && ulp == 0.0 && signbit(x) != signbit(y)) error = INFINITY; /* exact: -0 is not 0 */
        if (isfinite(error)) error -= ulp * type_spacing(t, y) + room;
        if (error > worst) worst = error, bad = i;
    }
    if (bad < 0)
        CHECK(true);
    else
        CHECK(false, "%s: %s: output %d, element %lld of %s: %.9g, not %.9g (ulp %g)", where, c->name, k,
              (long long)bad, dims_text(lz_shape(got)), element_as_double(g, t, bad), element_as_double(w, t, bad),
              fabs(element_as_double(g, t, bad) - element_as_double(w, t, bad)) /
                  type_spacing(t, element_as_double(w, t, bad)));
}

static void run_all(const char *where, lz_context_options options) {
    if (!read_cases()) return;
    lz_error err = {0};
    lz_context *ctx = lz_open_with(&options, &err);
    if (!ctx && options.isa) {
        printf("    %s: not here (%s)\n", where, err.text);
        return;
    }
    if (!CHECK(ctx != NULL, "%s", err.text)) return;
    lz_weights *weights = lz_weights_open(ctx, test_data("ops.safetensors"), &err);
    if (!CHECK(weights != NULL, "%s", err.text)) {
        lz_close(ctx);
        return;
    }
    const char *only = getenv("LZ_TEST_CASE"); /* for debugging: the cases whose name contains this */
    bool is_ref = options.device && strcmp(options.device, "ref") == 0;
    for (int i = 0; i < n_cases; i++) {
        const golden_case *c = &cases[i];
        if (strcmp(c->op, "promote") == 0 || (only && !strstr(c->name, only))) continue;
        lz_scope *scope = lz_scope_begin(ctx, c->name);
        lz_array *in[MAX_ARRAYS] = {0}, *want[MAX_ARRAYS] = {0}, *got[MAX_ARRAYS] = {0};
        int n_in = tensors(weights, word(c, "in"), in);
        int n_want = tensors(weights, word(c, "out"), want);
        int n_got = describe(ctx, c, in, n_in, got);
        CHECK(n_got == n_want, "%s: %d outputs, not %d", c->name, n_got, n_want);
        double ulp = number(c, "ulp", 0), room = number(c, "abs", 0);
        if (is_ref) ulp = number(c, "rulp", ulp > 0 ? 1 : 0), room = number(c, "rabs", 0);
        for (int k = 0; k < n_want && k < n_got; k++) compare(where, c, k, got[k], want[k], ulp, room);
        lz_scope_end(scope);
    }
    lz_weights_close(weights);
    lz_close(ctx);
}

static void promotion_table(void) {
    if (!read_cases()) return;
    int seen = 0;
    for (int i = 0; i < n_cases; i++) {
        const golden_case *c = &cases[i];
        if (strcmp(c->op, "promote") != 0) continue;
        lz_dtype a = type_of(word(c, "a")), b = type_of(word(c, "b")), want = type_of(word(c, "c"));
        CHECK(lz_promote(a, b) == want, "%s: %s", c->name, lz_dtype_name(lz_promote(a, b)));
        seen++;
    }
    CHECK_I64(seen, 81);
    static const int64_t sizes[LZ_DTYPE_COUNT] = {1, 1, 1, 4, 8, 1, 2, 2, 4, 8};
    for (int t = 0; t < LZ_DTYPE_COUNT; t++) {
        CHECK_I64(lz_dtype_size((lz_dtype)t), sizes[t]);
        CHECK_I64(lz_promote((lz_dtype)t, (lz_dtype)t), t);
    }
}

static void on_ref(void) { run_all("ref", LZ_CONTEXT_OPTIONS(.device = "ref")); }
static void on_cpu(void) { run_all("cpu", LZ_CONTEXT_OPTIONS(.threads = 2)); }
static void on_cpu_unfused(void) { run_all("cpu, no fusion", LZ_CONTEXT_OPTIONS(.no_fusion = true, .threads = 1)); }
static void on_baseline(void) { run_all("cpu baseline", LZ_CONTEXT_OPTIONS(.isa = "baseline", .threads = 2)); }
static void on_avx2(void) { run_all("cpu avx2", LZ_CONTEXT_OPTIONS(.isa = "avx2", .threads = 2)); }
static void on_avx512(void) { run_all("cpu avx512", LZ_CONTEXT_OPTIONS(.isa = "avx512", .threads = 2)); }
static void on_baseline_unfused(void) {
    run_all("cpu baseline, no fusion", LZ_CONTEXT_OPTIONS(.isa = "baseline", .no_fusion = true));
}
static void on_avx2_unfused(void) {
    run_all("cpu avx2, no fusion", LZ_CONTEXT_OPTIONS(.isa = "avx2", .no_fusion = true));
}

TEST_MAIN({"promotion_table", promotion_table}, {"ref", on_ref}, {"cpu", on_cpu}, {"cpu_unfused", on_cpu_unfused},
          {"baseline", on_baseline}, {"baseline_unfused", on_baseline_unfused}, {"avx2", on_avx2},
          {"avx2_unfused", on_avx2_unfused}, {"avx512", on_avx512})
