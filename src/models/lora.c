/* lora.c: see lora.h. */
#include "models/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "io/weights.h"
#include "models/lora_alpha.h"
#include "models/lora_keys.h"

enum { MODULES_MOST = 1 << 16 };

typedef struct module {
    lz_lora_key key;
    const char *name[LZ_LORA_ROLES]; /* names of its tensors in the file; NULL: none */
    const char *first;               /* any of them, for errors */
    const lz_lora_name *places;      /* its targets; NULL: none */
    int n_places;
    bool text, dropped;
} module;

typedef struct reading {
    lz_context *ctx;
    const char *path;
    lz_weights *weights;
    double strength;
    lz_lora_names names[2]; /* of the transformer, of the text encoder */
    lz_lora_alphas alphas;
    module *modules;
    int n;
    lz_lora_report *report;
    lz_error *err;
} reading;

#define REFUSE(r, ...) refuse(r, __VA_ARGS__)
static lz_status refuse(reading *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static lz_status refuse(reading *r, const char *format, ...) {
    char text[400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return lz_fail(r->err, LZ_BAD_FILE, "LoRA %s: %s", LZ_SHOW_TEXT(r->path), text);
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static int by_module(const void *a, const void *b) {
    const module *x = a, *y = b;
    if (x->key.text != y->key.text) return x->key.text - y->key.text;
    return strcmp(x->key.module, y->key.module);
}

/* Merges the sorted list, with one module per tensor, into one module per name. */
static lz_status join_modules(reading *r) {
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        module *m = &r->modules[i], *last = n ? &r->modules[n - 1] : NULL;
        bool odd = m->key.role >= LZ_LORA_ROLES;
        if (!last || by_module(last, m) != 0 || odd || last->key.role >= LZ_LORA_ROLES)
            r->modules[n++] = *m;
        else if (last->name[m->key.role])
            return REFUSE(r, "'%s' and '%s' are the same for us: a module is given once",
                          LZ_SHOW_TEXT(last->name[m->key.role]), LZ_SHOW_TEXT(m->first));
        else
            last->name[m->key.role] = m->first;
    }
    r->n = n;
    return LZ_OK;
}

static lz_status find_modules(reading *r) {
    int64_t n = lz_weights_count(r->weights);
    if (n > MODULES_MOST) return REFUSE(r, "holds %lld tensors, and a LoRA has thousands at most", (long long)n);
    if (!(r->modules = lz_host_alloc(r->ctx, (size_t)(n + 1) * sizeof *r->modules)))
        return lz_out_of_memory(r->err, n * (int64_t)sizeof *r->modules);
    for (int64_t i = 0; i < n; i++) {
        module *m = &r->modules[r->n++];
        m->first = lz_weights_name(r->weights, i);
        m->key = lz_lora_read_key(m->first);
        if (m->key.role == LZ_LORA_REFUSED)
            return REFUSE(r, "'%s' is of the kind %s, which is not supported", LZ_SHOW_TEXT(m->first), m->key.refused);
        if (m->key.role < LZ_LORA_ROLES) m->name[m->key.role] = m->first;
    }
    if (r->n) qsort(r->modules, (size_t)r->n, sizeof *r->modules, by_module);
    return join_modules(r);
}

static void find_places(reading *r) {
    for (int i = 0; i < r->n; i++) {
        module *m = &r->modules[i];
        if (m->key.role >= LZ_LORA_ROLES) continue;
        if (!m->key.text) m->places = lz_lora_names_find(&r->names[0], m->key.module, &m->n_places);
        if (!m->places) {
            m->places = lz_lora_names_find(&r->names[1], m->key.module, &m->n_places);
            m->text = m->places != NULL;
        }
    }
}

static bool overlap(const lz_lora_name *a, const lz_lora_name *b) {
    return a->target == b->target && a->first < b->first + b->rows && b->first < a->first + a->rows;
}

static bool share_rows(const module *a, const module *b) {
    for (int i = 0; i < a->n_places; i++)
        for (int k = 0; k < b->n_places; k++)
            if (overlap(&a->places[i], &b->places[k])) return true;
    return false;
}

/* Some files have a matrix twice, fused and in parts: the engine's own names have precedence. */
static lz_status drop_doubles(reading *r) {
    for (int i = 0; i < r->n; i++) {
        module *m = &r->modules[i];
        if (!m->places || m->places->own) continue;
        for (int k = 0; k < r->n; k++) {
            const module *other = &r->modules[k];
            if (k == i || !other->places || !share_rows(m, other)) continue;
            if (!other->places->own)
                return REFUSE(r, "'%s' and '%s' are two names of the same rows", LZ_SHOW_TEXT(m->first),
                              LZ_SHOW_TEXT(other->first));
            m->dropped = true;
        }
        r->report->double_given += m->dropped;
    }
    return LZ_OK;
}

/* ---- whom it was made for ---------------------------------------------------------------------------------------- */

/* Is it for FLUX.1? That has the names of FLUX.2, and further ones. */
static bool from_flux1(const reading *r) {
    static const char *const signs[] = {"img_mod_lin",       "txt_mod_lin",
                                        "modulation_lin",    "vector_in",
                                        "norm1_linear",      "norm1_context_linear",
                                        "ff_net_0_proj",     "double_blocks_18_",
                                        "single_blocks_37_", "single_transformer_blocks_37_"};
    for (int i = 0; i < r->n && r->names[0].family == LZ_LORA_FLUX2; i++)
        for (size_t k = 0; k < sizeof signs / sizeof *signs; k++) {
            const char *at = strstr(r->modules[i].key.module, signs[k]);
            if (at && strstr(r->modules[i].key.module, "_stream_modulation_lin") == NULL) return true;
        }
    return false;
}

static const char *model_of_width(int64_t width) {
    return width == 3072   ? " (FLUX.2 [klein] 4B, FLUX.1, Qwen-Image)"
           : width == 4096 ? " (FLUX.2 [klein] 9B)"
           : width == 6144 ? " (FLUX.2 [dev])"
           : width == 3840 ? " (Z-Image)"
                           : "";
}

static lz_status wrong_shape(reading *r, const module *m, const char *tensor, lz_dims is, int64_t rows,
                             int64_t columns) {
    const lz_dims target = m->places->target->dims;
    if (from_flux1(r)) return REFUSE(r, "it was made for FLUX.1, whose modules have the names of FLUX.2's");
    int64_t width = is.n > 1 ? is.at[1] : 0;
    if (m->name[LZ_LORA_DOWN] == tensor && target.n > 1 && width != target.at[1])
        return REFUSE(r, "'%s' reads %lld features%s, and this model has %lld%s there: it was made for another model",
                      LZ_SHOW_TEXT(tensor), (long long)width, model_of_width(width), (long long)target.at[1],
                      model_of_width(target.at[1]));
    return REFUSE(r, "'%s' is %s, and this model needs %lld x %lld there: it was made for another model",
                  LZ_SHOW_TEXT(tensor), LZ_SHOW(is), (long long)rows, (long long)columns);
}

/* ---- terms ------------------------------------------------------------------------------------------------------- */

/* A tensor of the module as a matrix, or as a vector if it has one axis. NULL: *status has the reason. */
static lz_array *take(reading *r, const module *m, lz_lora_role role, lz_status *status) {
    if (!m->name[role]) {
        *status = REFUSE(r, "of the module '%s' a tensor is missing beside '%s'", LZ_SHOW_TEXT(m->key.module),
                         LZ_SHOW_TEXT(m->first));
        return NULL;
    }
    lz_array *a = lz_weights_get(r->weights, m->name[role]);
    if ((*status = lz_check(a, r->err))) return NULL;
    lz_dims d = lz_shape(a);
    while (d.n > 2 && d.at[d.n - 1] == 1) d.n--; /* of convolutions of 1 x 1 */
    if (d.n != lz_shape(a).n) a = lz_reshape(a, d);
    bool fits = d.n == 1 || d.n == 2;
    for (int i = 0; i < d.n; i++) fits = fits && d.at[i] > 0;
    if (!fits || !lz_is_float(lz_type(a))) {
        *status = REFUSE(r, "'%s' is %s %s, which is no matrix of floats", LZ_SHOW_TEXT(m->name[role]),
                         lz_dtype_name(lz_type(a)), LZ_SHOW(d));
        return NULL;
    }
    return a;
}

static bool is_matrix(lz_array *a, int64_t rows, int64_t columns) {
    lz_dims d = lz_shape(a);
    return d.n == 2 && (rows < 0 || d.at[0] == rows) && (columns < 0 || d.at[1] == columns);
}

typedef struct shape { /* of the whole module */
    int64_t rows, columns;
} shape;

static lz_status take_low_rank(reading *r, const module *m, shape s, lz_term *t, int64_t *rank) {
    lz_status status = LZ_OK;
    lz_array *down = take(r, m, LZ_LORA_DOWN, &status), *up = down ? take(r, m, LZ_LORA_UP, &status) : NULL;
    if (status) return status;
    if (!is_matrix(down, -1, s.columns))
        return wrong_shape(r, m, m->name[LZ_LORA_DOWN], lz_shape(down), lz_shape(down).at[0], s.columns);
    *rank = lz_shape(down).at[0];
    if (!is_matrix(up, s.rows, *rank)) return wrong_shape(r, m, m->name[LZ_LORA_UP], lz_shape(up), s.rows, *rank);
    t->kind = LZ_TERM_LOW_RANK;
    t->from[0] = down;
    t->from[1] = up;
    return LZ_OK;
}

static lz_status take_hadamard(reading *r, const module *m, shape s, lz_term *t, int64_t *rank) {
    lz_status status = LZ_OK;
    t->kind = LZ_TERM_HADAMARD;
    for (int i = 0; i < 4 && !status; i++) t->from[i] = take(r, m, LZ_LORA_HADA_W1_A + i, &status);
    for (int i = 0; i < 4 && !status; i += 2) {
        const char *const *names = &m->name[LZ_LORA_HADA_W1_A + i];
        if (!is_matrix(t->from[i + 1], -1, s.columns))
            return wrong_shape(r, m, names[1], lz_shape(t->from[i + 1]), lz_shape(t->from[i + 1]).at[0], s.columns);
        int64_t inner = lz_shape(t->from[i + 1]).at[0];
        if (!is_matrix(t->from[i], s.rows, inner))
            return wrong_shape(r, m, names[0], lz_shape(t->from[i]), s.rows, inner);
    }
    if (!status) *rank = lz_shape(t->from[1]).at[0];
    return status;
}

/* One factor: a matrix, or a product of two. inner: the rank of the product; 0: a matrix. */
static lz_status take_factor(reading *r, const module *m, lz_lora_role whole, lz_array **from, lz_dims *d,
                             int64_t *inner) {
    lz_status status = LZ_OK;
    bool parts = !m->name[whole];
    from[0] = take(r, m, parts ? whole + 1 : whole, &status);
    if (parts && !status) from[1] = take(r, m, whole + 2, &status);
    if (status) return status;
    *d = lz_shape(from[0]);
    if (d->n != 2) return wrong_shape(r, m, m->first, *d, d->at[0], 1);
    *inner = 0;
    if (!parts) return LZ_OK;
    *inner = d->at[1];
    if (!is_matrix(from[1], *inner, -1)) return wrong_shape(r, m, m->name[whole + 2], lz_shape(from[1]), *inner, -1);
    d->at[1] = lz_shape(from[1]).at[1];
    return LZ_OK;
}

static lz_status take_kronecker(reading *r, const module *m, shape s, lz_term *t, int64_t *rank) {
    lz_dims d[2];
    int64_t inner[2] = {0, 0};
    t->kind = LZ_TERM_KRONECKER;
    lz_status status = take_factor(r, m, LZ_LORA_LOKR_W1, &t->from[0], &d[0], &inner[0]);
    if (!status) status = take_factor(r, m, LZ_LORA_LOKR_W2, &t->from[2], &d[1], &inner[1]);
    if (status) return status;
    if (s.rows % d[0].at[0] || s.rows / d[0].at[0] != d[1].at[0] || s.columns % d[0].at[1] ||
        s.columns / d[0].at[1] != d[1].at[1])
        return REFUSE(r, "'%s' is %s x %s, and this model needs %lld x %lld there: it was made for another model",
                      LZ_SHOW_TEXT(m->first), LZ_SHOW(d[0]), LZ_SHOW(d[1]), (long long)s.rows, (long long)s.columns);
    *rank = inner[1] ? inner[1] : inner[0];
    return LZ_OK;
}

/* Lengths of rows [rows, 1] or of columns [1, columns]. */
static lz_status take_magnitude(reading *r, const module *m, shape s, lz_term *t) {
    lz_status status = LZ_OK;
    lz_array *a = take(r, m, LZ_LORA_MAGNITUDE, &status);
    if (status) return status;
    lz_dims d = lz_shape(a);
    bool columns = d.n == 2 && d.at[0] == 1 && d.at[1] == s.columns && s.rows > 1;
    if (!columns && !(d.at[0] == s.rows && (d.n == 1 || d.at[1] == 1)))
        return wrong_shape(r, m, m->name[LZ_LORA_MAGNITUDE], d, s.rows, 1);
    if (columns && (m->n_places > 1 || m->places->rows != m->places->target->dims.at[0]))
        return REFUSE(r, "'%s' sets the lengths of the columns of a fused matrix, which is not supported",
                      LZ_SHOW_TEXT(m->name[LZ_LORA_MAGNITUDE]));
    t->magnitude = columns ? a : lz_reshape(a, LZ_DIMS(s.rows, 1));
    return LZ_OK;
}

/* Adds the term to all targets of the module. */
static lz_status add_term(reading *r, const module *m, lz_term t) {
    lz_status status = LZ_OK;
    t.strength = r->strength;
    for (int i = 0; i < m->n_places && r->strength != 0 && !status; i++) {
        const lz_lora_name *place = &m->places[i];
        t.first = place->first;
        t.rows = place->rows;
        t.source_first = place->source_first;
        t.rotate = place->rotate;
        status = lz_patch_add(place->target, r->ctx, &t, r->err);
    }
    return status;
}

/* A tensor of the shape of the weight itself, or of the bias. */
static lz_status add_tensor(reading *r, const module *m, shape s, lz_lora_role role, lz_term_kind kind, double unit) {
    lz_status status = LZ_OK;
    lz_term t = {.kind = kind, .unit = unit, .from = {take(r, m, role, &status)}};
    if (status) return status;
    lz_dims d = lz_shape(t.from[0]);
    bool vector = kind == LZ_TERM_BIAS || m->places->target->dims.n == 1;
    bool fits = vector ? d.at[0] == s.rows && (d.n == 1 || d.at[1] == 1) : is_matrix(t.from[0], s.rows, s.columns);
    if (!fits) return wrong_shape(r, m, m->name[role], d, s.rows, vector ? 1 : s.columns);
    if (kind == LZ_TERM_BIAS && m->places->target->dims.n == 1)
        return REFUSE(r, "'%s' changes the bias of a norm, and this model has none there", LZ_SHOW_TEXT(m->name[role]));
    return add_term(r, m, t);
}

static lz_status add_factors(reading *r, const module *m, shape s) {
    const char *const *has = m->name;
    bool low = has[LZ_LORA_DOWN] || has[LZ_LORA_UP], hada = false, lokr = false;
    for (int i = 0; i < 4; i++) hada = hada || has[LZ_LORA_HADA_W1_A + i];
    for (int i = LZ_LORA_LOKR_W1; i <= LZ_LORA_LOKR_W2_B; i++) lokr = lokr || has[i];
    if (low + hada + lokr > 1) return REFUSE(r, "'%s' is of several kinds at once", LZ_SHOW_TEXT(m->first));
    if (!low && !hada && !lokr) {
        if (has[LZ_LORA_MAGNITUDE] || has[LZ_LORA_UP_BIAS])
            return REFUSE(r, "'%s' has no LoRA beside it", LZ_SHOW_TEXT(m->first));
        return LZ_OK;
    }
    if (m->places->target->dims.n < 2)
        return REFUSE(r, "'%s' belongs to a norm, which is no matrix", LZ_SHOW_TEXT(m->first));
    lz_term t = {.kind = LZ_TERM_LOW_RANK};
    int64_t rank = 0;
    lz_status status = low    ? take_low_rank(r, m, s, &t, &rank)
                       : hada ? take_hadamard(r, m, s, &t, &rank)
                              : take_kronecker(r, m, s, &t, &rank);
    if (status) return status;
    double alpha = NAN;
    if (lz_lora_alpha(&r->alphas, r->weights, has[LZ_LORA_ALPHA], m->key.module, rank, &t.unit, &alpha))
        return REFUSE(r, "the alpha of '%s' is no number that could be used", LZ_SHOW_TEXT(m->first));
    if (has[LZ_LORA_MAGNITUDE] && (status = take_magnitude(r, m, s, &t))) return status;
    if (rank > r->report->rank) r->report->rank = rank;
    if (!low || rank != 64 || alpha != 8) r->report->all_64_alpha_8 = false;
    status = add_term(r, m, t);
    if (!status && has[LZ_LORA_UP_BIAS]) status = add_tensor(r, m, s, LZ_LORA_UP_BIAS, LZ_TERM_BIAS, t.unit);
    return status;
}

static lz_status add_module(reading *r, const module *m) {
    lz_dims d = m->places->target->dims;
    shape s = {m->places->source_rows, d.n > 1 ? d.at[1] : 1};
    lz_scope *scope = lz_scope_begin(r->ctx, "LoRA");
    lz_status status = add_factors(r, m, s);
    if (!status && m->name[LZ_LORA_DIFF]) status = add_tensor(r, m, s, LZ_LORA_DIFF, LZ_TERM_DIFFERENCE, 1);
    if (!status && m->name[LZ_LORA_SET]) status = add_tensor(r, m, s, LZ_LORA_SET, LZ_TERM_REPLACE, 1);
    if (!status && m->name[LZ_LORA_DIFF_BIAS]) status = add_tensor(r, m, s, LZ_LORA_DIFF_BIAS, LZ_TERM_BIAS, 1);
    lz_scope_end(scope);
    return status;
}

/* ---- the whole file ---------------------------------------------------------------------------------------------- */

static lz_status check_matches(reading *r, bool partial) {
    lz_lora_report *report = r->report;
    int unused = 0;
    for (int i = 0; i < r->n; i++) {
        const module *m = &r->modules[i];
        report->used += m->places != NULL;
        report->in_text += m->text;
        if (m->places) continue;
        if (unused < LZ_LORA_NAMED) snprintf(report->unused[unused], sizeof report->unused[0], "%.120s", m->first);
        unused++;
    }
    report->modules = r->n;
    if (unused && from_flux1(r)) return REFUSE(r, "it was made for FLUX.1, whose modules have the names of FLUX.2's");
    if (!r->n) return REFUSE(r, "it is empty");
    if (report->used && (!unused || partial)) return LZ_OK;
    char names[LZ_LORA_NAMED * 140] = "";
    for (int i = 0; i < LZ_LORA_NAMED && i < unused; i++) {
        size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%s'%.100s'", i ? ", " : "", LZ_SHOW_TEXT(report->unused[i]));
    }
    if (!report->used) return REFUSE(r, "none of its %d modules belongs to this model, such as %s", r->n, names);
    return REFUSE(r,
                  "%d of its %d modules belong to nothing in this model, such as %s; the others are used if a partial "
                  "match is allowed",
                  unused, r->n, names);
}

lz_status lz_lora_read_weights(lz_context *ctx, const char *path, lz_weights *weights, double weight, bool partial,
                               lz_targets *transformer, lz_targets *text, lz_lora_report *report, lz_error *err) {
    reading r = {.ctx = ctx, .path = path, .weights = weights, .strength = weight, .report = report, .err = err};
    *report = (lz_lora_report){.all_64_alpha_8 = true};
    lz_status status = lz_lora_names_make(&r.names[0], ctx, transformer, err);
    if (!status) status = lz_lora_names_make(&r.names[1], ctx, text, err);
    if (!status) status = lz_lora_alphas_open(&r.alphas, ctx, path, weights, err);
    if (!status) status = find_modules(&r);
    if (!status) {
        find_places(&r);
        status = drop_doubles(&r);
    }
    if (!status) status = check_matches(&r, partial);
    for (int i = 0; i < r.n && !status; i++)
        if (r.modules[i].places && !r.modules[i].dropped) status = add_module(&r, &r.modules[i]);
    lz_lora_alphas_close(&r.alphas);
    lz_lora_names_free(&r.names[0]);
    lz_lora_names_free(&r.names[1]);
    lz_host_free(ctx, r.modules);
    return status;
}

lz_status lz_lora_read(lz_context *ctx, const char *path, double weight, bool partial, lz_targets *transformer,
                       lz_targets *text, lz_lora_report *report, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    lz_weights *weights = lz_weights_open(ctx, path, &local);
    lz_status status = local.status;
    if (weights) {
        status = lz_lora_read_weights(ctx, path, weights, weight, partial, transformer, text, report, &local);
        lz_weights_close(weights); /* arrays have their own references to the file */
    }
    if (status && err) *err = local;
    return status;
}
