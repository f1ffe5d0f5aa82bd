/* loader.c: see loader.h. */
#define LZ_NO_SUGAR
#include "models/loader.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "models/narrow.h"
#include "models/signature.h"

lz_status lz_loader_open(lz_loader *l, lz_context *ctx, const char *folder, const lz_component *component,
                         const int64_t *sizes, lz_error *err) {
    lz_error local = {.status = LZ_OK};
    *l = (lz_loader){
        .ctx = ctx, .folder = folder, .sizes = sizes, .weights = lz_narrow_weights(ctx, folder, component, &local)};
    if (l->weights) l->seen = lz_host_alloc(ctx, (size_t)lz_weights_count(l->weights) + 1);
    if (l->weights && !l->seen) lz_out_of_memory(&local, lz_weights_count(l->weights));
    if (!local.status) {
        /* If the component is not recognised, the engine's names are used, so that the error names the first missing
         * tensor. */
        l->strict = !lz_is_derived(ctx, folder);
        if (!lz_names_open(&l->names, component, l->weights))
            snprintf(l->names.prefix, sizeof l->names.prefix, "%s", component->stem);
        return LZ_OK;
    }
    lz_weights_close(l->weights);
    if (err) *err = local;
    return local.status;
}

static void mark_seen(lz_loader *l, const char *name) {
    for (int64_t i = 0, n = lz_weights_count(l->weights); i < n; i++)
        if (!strcmp(lz_weights_name(l->weights, i), name)) l->seen[i] = true;
}

/* Lists the parameter as a target. Patches that need its values (DoRA) are built now, since the parameter may be closed
 * soon. */
static void add_target(lz_loader *l, lz_param *param, lz_dims dims) {
    if (!l->targets) return;
    lz_target *target = lz_targets_add(l->targets, param->name, dims);
    if (!target)
        lz_out_of_memory(&l->err, sizeof *target);
    else if (lz_patch_waits(target))
        lz_patch_build(target, lz_param_base(param), &l->err);
    if (target && l->lasting) target->param = param;
    param->target = target;
}

static void mark_stored(lz_loader *l, const lz_stored *s) {
    mark_seen(l, s->tensor->name);
    for (int i = 0; i < s->n_companions; i++) mark_seen(l, s->companions[i]->name);
}

/* Makes a parameter from plain arrays. */
static lz_param *new_plain(lz_loader *l, const char *name, lz_dims want, const lz_arranged *parts) {
    assert(parts->n > 0 && parts->sources[0]);
    lz_dtype compute = lz_compute_type(l->ctx), type = parts->sources[0]->dtype;
    for (int i = 0; i < parts->n; i++)
        if (!lz_is_float(parts->sources[i]->dtype) || parts->sources[i]->dtype != type) {
            lz_fail(&l->err, LZ_BAD_FILE, "%s: tensor '%s' is %s, and weights must be a float type",
                    LZ_SHOW_TEXT(l->folder), LZ_SHOW_TEXT(parts->pieces[i].tensor->name),
                    lz_dtype_name(parts->sources[i]->dtype));
            return NULL;
        }
    bool narrow = lz_dtype_size(type) > lz_dtype_size(compute);
    const lz_recipe *recipe = parts->recipe ? parts->recipe : narrow ? &lz_recipe_cast : NULL;
    return lz_param_new(l->ctx, name, recipe, want, narrow ? compute : type, parts->sources, parts->n, &l->err);
}

static void take_one(lz_loader *l, const char *prefix, const lz_weight *row, void *into) {
    char name[256];
    snprintf(name, sizeof name, "%s%s", prefix, row->name);
    lz_scope *scope = lz_scope_begin(l->ctx, "load");
    lz_dims want = LZ_NONE;
    for (; want.n < (int)sizeof row->dims && row->dims[want.n]; want.n++) want.at[want.n] = l->sizes[row->dims[want.n]];
    lz_origin from;
    lz_arranged parts = {.n = 0};
    if (lz_names_find(&l->names, name, want, &from))
        lz_arrange(&l->names, name, &from, want, &parts, &l->err);
    else
        lz_check(lz_weights_get(l->weights, name), &l->err); /* its error names the most similar tensor */
    if (!l->err.status) {
        lz_param *param = parts.packed.codes ? lz_param_new_packed(l->ctx, name, want, &parts.packed, &l->err)
                                             : new_plain(l, name, want, &parts);
        *(lz_param **)((char *)into + row->field) = param;
        for (int i = 0; i < parts.n; i++) mark_stored(l, &parts.pieces[i]);
        if (!l->err.status) add_target(l, param, want);
    }
    lz_scope_end(scope);
}

void lz_loader_take(lz_loader *l, const char *prefix, const lz_weight *rows, int n, void *into) {
    for (int i = 0; i < n && !l->err.status; i++) take_one(l, prefix, &rows[i], into);
}

static void skip_in_file(lz_loader *l, const char *prefix) {
    for (int64_t i = 0, n = lz_weights_count(l->weights); i < n; i++)
        if (!strncmp(lz_weights_name(l->weights, i), prefix, strlen(prefix))) l->seen[i] = true;
}

void lz_loader_skip(lz_loader *l, const char *prefix) {
    const char *stem = l->names.component->stem;
    char in_file[2 * LZ_NAME_SIZE], module[LZ_NAME_SIZE];
    bool inside = !strncmp(prefix, stem, strlen(stem));
    const char *inner = prefix + (inside ? strlen(stem) : 0), *dot = strrchr(inner, '.');
    skip_in_file(l, prefix);
    snprintf(in_file, sizeof in_file, "%s%s", inside ? l->names.prefix : "", inner);
    skip_in_file(l, in_file);
    if (!inside || !dot) return;
    /* A module, under the other names that it may have in files. */
    snprintf(module, sizeof module, "%.*s", (int)(dot - inner), inner);
    lz_spelling spelled;
    for (int i = 1; lz_names_spell(l->names.component, module, l->names.levels, i, &spelled); i++) {
        snprintf(in_file, sizeof in_file, "%s%s%s", l->names.prefix, spelled.name, dot);
        skip_in_file(l, in_file);
    }
}

static bool is_seen(const lz_loader *l, const char *module, const char *ending) {
    char name[2 * LZ_STORED_NAME];
    snprintf(name, sizeof name, "%s%s", module, ending);
    for (int64_t i = 0, n = lz_weights_count(l->weights); i < n; i++)
        if (!strcmp(lz_weights_name(l->weights, i), name)) return l->seen[i];
    return false;
}

/* Is it a tensor of ComfyUI that says something of the whole file, and is no weight? */
static bool is_marker(const char *name) {
    static const char *const markers[] = {"scaled_fp8", "__index_timestep_zero__"};
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof markers / sizeof *markers; i++) {
        size_t m = strlen(markers[i]);
        if (n >= m && !strcmp(name + n - m, markers[i])) return true;
    }
    return false;
}

/* Handles a tensor that the model did not use. */
static void refuse_unseen(lz_loader *l, const char *name) {
    char module[LZ_STORED_NAME];
    if (is_marker(name)) return;
    if (lz_stored_is_companion(name, module) && (is_seen(l, module, ".weight") || is_seen(l, module, ".weight_packed")))
        lz_fail(
            &l->err, LZ_BAD_FILE,
            "%s: nothing uses '%s', so the weight of '%s' would be wrong: it is quantised in a way that Lazuli does "
            "not know",
            LZ_SHOW_TEXT(l->folder), LZ_SHOW_TEXT(name), LZ_SHOW_TEXT(module));
    else if (l->strict)
        lz_fail(&l->err, LZ_BAD_FILE,
                "%s: tensor '%s' has no place in this model: is it of another kind, or its configuration wrong?",
                LZ_SHOW_TEXT(l->folder), LZ_SHOW_TEXT(name));
}

/* Are the names the same but for numbers? */
static bool is_same_pattern(const char *a, const char *b) {
    for (;; a++, b++) {
        bool digits = *a >= '0' && *a <= '9' && *b >= '0' && *b <= '9';
        if (!digits && *a != *b) return false;
        if (!*a) return true;
        while (digits && a[1] >= '0' && a[1] <= '9') a++;
        while (digits && b[1] >= '0' && b[1] <= '9') b++;
    }
}

/* Does the file have such a tensor in a block that is used? Then it belongs to a block that is not needed. */
static bool is_in_a_block(const lz_loader *l, const char *name) {
    for (int64_t i = 0, n = lz_weights_count(l->weights); i < n; i++)
        if (l->seen[i] && is_same_pattern(lz_weights_name(l->weights, i), name)) return true;
    return false;
}

/* Is the tensor below the prefix of another component of the same file? */
static bool is_elsewhere(const lz_loader *l, const lz_signature *all, const char *name) {
    lz_names other;
    for (int i = 0; i < LZ_PARTS; i++)
        if (all->parts[i] && all->parts[i] != l->names.component && lz_names_open(&other, all->parts[i], l->weights) &&
            strlen(other.prefix) > strlen(l->names.prefix) && !strncmp(name, other.prefix, strlen(other.prefix)))
            return true;
    return false;
}

/* Tensors of a file without a configuration that belong to nothing are ignored, with a remark. */
static void remark_unseen(const lz_loader *l) {
    enum { MOST_LOOKS = 2000 }; /* a look takes time in proportion to the number of tensors */
    int64_t unseen = 0, looks = 0;
    const char *first = NULL;
    lz_signature all;
    size_t prefix = strlen(l->names.prefix);
    lz_signature_read(&all, l->weights);
    for (int64_t i = 0, n = lz_weights_count(l->weights); i < n && looks < MOST_LOOKS; i++) {
        const char *name = lz_weights_name(l->weights, i);
        if (l->seen[i] || strncmp(name, l->names.prefix, prefix) != 0 || is_marker(name)) continue;
        looks++;
        if (is_in_a_block(l, name) || is_elsewhere(l, &all, name)) continue;
        if (!unseen++) first = name;
    }
    if (unseen)
        lz_remark_once(l->ctx, "%s: %s%lld tensor%s no part of the model and %s ignored, such as '%s'",
                       LZ_SHOW_TEXT(l->folder), looks < MOST_LOOKS ? "" : "at least ", (long long)unseen,
                       unseen == 1 ? " is" : "s are", unseen == 1 ? "is" : "are", LZ_SHOW_TEXT(first));
}

lz_status lz_loader_close(lz_loader *l, lz_error *err) {
    for (int64_t i = 0, n = lz_weights_count(l->weights); i < n && !l->err.status; i++)
        if (!l->seen[i]) refuse_unseen(l, lz_weights_name(l->weights, i));
    if (!l->err.status && !l->strict) remark_unseen(l);
    lz_host_free(l->ctx, l->seen);
    lz_weights_close(l->weights);
    if (l->err.status && err) *err = l->err;
    return l->err.status;
}

void lz_loader_release(const lz_weight *rows, int n, void *from) {
    for (int i = 0; i < n; i++) {
        lz_param **field = (lz_param **)((char *)from + rows[i].field);
        lz_param_free(*field);
        *field = NULL;
    }
}

void *lz_loader_take_blocks(lz_loader *l, const char *stem, const char *list, int64_t n, const lz_weight *rows,
                            int n_rows, size_t bytes) {
    char prefix[128];
    char *blocks = l->err.status ? NULL : lz_host_alloc(l->ctx, (size_t)n * bytes);
    if (!blocks && !l->err.status) lz_out_of_memory(&l->err, n * (int64_t)bytes);
    for (int64_t i = 0; i < n && !l->err.status; i++) {
        snprintf(prefix, sizeof prefix, "%s%s%lld.", stem, list, (long long)i);
        lz_loader_take(l, prefix, rows, n_rows, blocks + (size_t)i * bytes);
    }
    return blocks;
}

void lz_loader_skip_blocks(lz_loader *l, const char *list, int64_t first, int64_t end, const char *name) {
    char prefix[128];
    for (int64_t i = first; i < end; i++) {
        snprintf(prefix, sizeof prefix, "%s%lld.%s", list, (long long)i, name);
        lz_loader_skip(l, prefix);
    }
}

void lz_loader_release_blocks(lz_context *ctx, void *blocks, int64_t n, const lz_weight *rows, int n_rows,
                              size_t bytes) {
    for (int64_t i = 0; blocks && i < n; i++) lz_loader_release(rows, n_rows, (char *)blocks + (size_t)i * bytes);
    lz_host_free(ctx, blocks);
}
