/* convert_plan.c: see convert_inside.h. */
#include "models/convert_inside.h"

#include <stdio.h>
#include <string.h>

#include "models/names.h"

/* ---- types ------------------------------------------------------------------------------------------------------- */

static const type types[] = {
    {"f32", PLAIN, LZ_F32},
    {"f16", PLAIN, LZ_F16},
    {"bf16", PLAIN, LZ_BF16},
    {"fp8", FP8, 0},
    {"int8", INT8, 0},
    {"q8_0", BLOCKS, LZ_PACKING_Q8_0},
    {"q6_k", BLOCKS, LZ_PACKING_Q6_K},
    {"q5_k", BLOCKS, LZ_PACKING_Q5_K},
    {"q4_k", BLOCKS, LZ_PACKING_Q4_K},
    {"q3_k", BLOCKS, LZ_PACKING_Q3_K},
    {"q2_k", BLOCKS, LZ_PACKING_Q2_K},
    {"q5_1", BLOCKS, LZ_PACKING_Q5_1},
    {"q5_0", BLOCKS, LZ_PACKING_Q5_0},
    {"q4_1", BLOCKS, LZ_PACKING_Q4_1},
    {"q4_0", BLOCKS, LZ_PACKING_Q4_0},
};
enum { TYPES = sizeof types / sizeof *types };

const char *lz_convert_type(int i) { return i >= 0 && i < TYPES ? types[i].name : NULL; }

const type *lz_convert_find(const char *name, bool gguf, const char *to, lz_error *err) {
    for (int i = 0; name && i < TYPES; i++) {
        if (strcmp(types[i].name, name)) continue;
        bool fits = types[i].target == PLAIN || gguf == (types[i].target == BLOCKS);
        if (fits) return &types[i];
        lz_fail(err, LZ_BAD_ARGUMENT, "%s: a file with weights of the type %s must end in %s", LZ_SHOW_TEXT(to), name,
                gguf ? LZ_WEIGHTS_ENDING : LZ_GGUF_ENDING);
        return NULL;
    }
    lz_fail(err, LZ_BAD_ARGUMENT,
            "there is no type '%s' to convert to: f32, f16, bf16, fp8, int8, q8_0, q6_k, q5_k, q4_k, ...",
            name ? LZ_SHOW_TEXT(name) : "");
    return NULL;
}

/* ---- which type a tensor gets ------------------------------------------------------------------------------------ */

/* Parts of names of layers that are not quantised: those outside of blocks, and modulation layers. */
static const char *const wide_layers[] = {
    "img_in.",          "txt_in.",        "time_in.",          "vector_in.",           "guidance_in.",
    "final_layer.",     "x_embedder.",    "context_embedder.", "t_embedder.",          "cap_embedder.",
    "proj_out.",        "norm_out.",      "modulation",        "time_guidance_embed.", "time_text_embed.",
    "context_refiner.", "noise_refiner.", "patch_embed.",
};
/* Not quantised to 8-bit formats with separate scales, since their rows are looked up as plain numbers. */
static const char *const tables[] = {"embed_tokens.", "token_embd.", "lm_head."};

/* Weights in layouts that are not read (models/storage.c). */
static const char *const foreign[] = {".qweight", ".absmax"};

#define HAS_ANY(name, list) has_any(name, list, sizeof(list) / sizeof *(list))
static bool has_any(const char *name, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strstr(name, list[i])) return true;
    return false;
}

bool lz_convert_is_wide(const char *name, const char *const *wide) {
    for (; wide && *wide; wide++)
        if (strstr(name, *wide)) return true;
    return HAS_ANY(name, wide_layers);
}

static bool is_float_type(const lz_weights_tensor *t) {
    return t->packed || (t->dtype < LZ_DTYPE_COUNT && lz_is_float((lz_dtype)t->dtype));
}

static void choose_target(const conversion *c, const type *wanted, const lz_weights_tensor *t, item *to) {
    int64_t columns = t->dims.n ? t->dims.at[t->dims.n - 1] : 1;
    size_t length = strlen(t->name);
    bool matrix = t->dims.n == 2 && lz_dims_size(t->dims) > SMALL && length > 7 &&
                  !strcmp(t->name + length - 7, ".weight");
    bool narrow = matrix && !lz_convert_is_wide(t->name, c->wide) && is_float_type(t);
    if (wanted->target != BLOCKS && HAS_ANY(t->name, tables)) narrow = false;
    *to = (item){.from = t, .stored = to->stored, .target = PLAIN, .number = t->dtype};
    if (t->packed) to->number = LZ_BF16;
    if (c->gguf && t->dtype < LZ_DTYPE_COUNT && lz_is_float((lz_dtype)t->dtype) &&
        !lz_weights_can_write(true, (lz_dtype)t->dtype, -1))
        to->number = LZ_BF16; /* f8 */
    if (wanted->target == PLAIN) {
        if (is_float_type(t)) to->number = wanted->number;
        return;
    }
    if (!narrow) return;
    to->target = wanted->target, to->number = wanted->number;
    if (wanted->target != BLOCKS || columns % lz_packing_table[wanted->number].elements == 0) return;
    bool q8 = columns % lz_packing_table[LZ_PACKING_Q8_0].elements == 0;
    to->target = q8 ? BLOCKS : PLAIN, to->number = q8 ? (int)LZ_PACKING_Q8_0 : (int)LZ_F16;
}

/* Adds an output and returns its index; -1: out of memory. ending: replaces ".weight"; or NULL. */
static int64_t add_output(conversion *c, const item *it, const char *ending, lz_dtype dtype, int packing,
                          lz_dims dims) {
    const char *name = it->from->name;
    if (ending) {
        size_t stem = strlen(name) - strlen(".weight"), bytes = stem + strlen(ending) + 1;
        char *text = lz_bump_alloc(&c->names, bytes);
        if (!text) return -1;
        snprintf(text, bytes, "%.*s%s", (int)stem, name, ending);
        name = text;
    }
    c->outputs[c->n_outputs] = (lz_output){
        .name = name, .dtype = dtype, .packing = packing, .dims = dims, .id = c->n_outputs};
    return c->n_outputs++;
}

const char *lz_convert_note(const item *it) {
    if (it->target == FP8) return "{\"format\": \"float8_e4m3fn\"}";
    if (it->target == FP8_ROWS) return "{\"format\": \"float8_e4m3fn_rowwise\"}";
    return it->from->dims.at[1] % ROTATE
               ? "{\"format\": \"int8_tensorwise\"}"
               : "{\"format\": \"int8_tensorwise\", \"convrot\": true, \"convrot_groupsize\": 256}";
}

static lz_status plan_item(conversion *c, item *it) {
    const lz_weights_tensor *t = it->from;
    const lz_dims rows = {2, {t->dims.at[0], 1}};
    switch (it->target) {
    case PLAIN: it->main = add_output(c, it, NULL, (lz_dtype)it->number, -1, t->dims); break;
    case BLOCKS: it->main = add_output(c, it, NULL, LZ_U8, it->number, t->dims); break;
    default:
        it->main = add_output(c, it, NULL, it->target == INT8 ? LZ_I8 : LZ_F8, -1, t->dims);
        it->scale = add_output(c, it, ".weight_scale", LZ_F32, -1, it->target == FP8 ? LZ_NONE : rows);
        it->note = add_output(c, it, ".comfy_quant", LZ_U8, -1, LZ_DIMS((int64_t)strlen(lz_convert_note(it))));
    }
    bool good = it->main >= 0 && it->scale >= 0 && it->note >= 0;
    return good ? LZ_OK : lz_out_of_memory(c->err, 0);
}

/* ---- quantised matrices with companions -------------------------------------------------------------------------- */

static bool has_ending(const char *name, const char *ending) {
    size_t n = strlen(name), m = strlen(ending);
    return n > m && !strcmp(name + n - m, ending);
}

/* A matrix of codes as one tensor: with the name and shape of the weight. */
static lz_status take_stored(conversion *c, const char *weight, const lz_stored *found, item *to) {
    lz_stored *stored = lz_bump_alloc(&c->names, sizeof *stored);
    lz_weights_tensor *t = lz_bump_alloc(&c->names, sizeof *t);
    char *name = lz_bump_alloc(&c->names, strlen(weight) + 1);
    if (!stored || !t || !name) return lz_out_of_memory(c->err, (int64_t)sizeof *stored);
    *stored = *found;
    memcpy(name, weight, strlen(weight) + 1);
    *t = *found->tensor;
    t->name = name;
    t->dims = found->dims;
    t->packed = true;
    t->packing = found->layout.packing;
    t->dtype = LZ_DTYPE_COUNT;
    *to = (item){.from = t, .stored = stored};
    return LZ_OK;
}

/* Is the tensor a companion of a weight that takes it? */
static bool is_consumed(const conversion *c, const char *name) {
    char module[LZ_NAME_SIZE], weight[LZ_NAME_SIZE + 16];
    const char *dot = strrchr(name, '.');
    if (!dot || dot - name >= (int)sizeof module) return !strcmp(name, "scaled_fp8"); /* the marker of a file */
    snprintf(module, sizeof module, "%.*s", (int)(dot - name), name);
    snprintf(weight, sizeof weight, "%s.weight", module);
    lz_stored s;
    if (!strcmp(name, weight) || lz_stored_find(c->weights, weight, LZ_NONE, &s, NULL) != LZ_OK) return false;
    for (int i = 0; i < s.n_companions; i++)
        if (!strcmp(s.companions[i]->name, name)) return true;
    return has_ending(name, ".scaled_fp8");
}

/* to->from stays NULL if the tensor is not written by itself. */
static lz_status take_tensor(conversion *c, const char *name, item *to) {
    char stem[LZ_NAME_SIZE], module[LZ_STORED_NAME];
    const char *weight = name;
    const lz_weights_tensor *t = lz_weights_find(c->weights, name);
    bool packed = has_ending(name, ".weight_packed") && strlen(name) < sizeof stem;
    *to = (item){.from = NULL};
    if (packed) {
        snprintf(stem, sizeof stem, "%.*s", (int)(strlen(name) - strlen("_packed")), name);
        weight = stem;
    }
    if (has_ending(name, ".weight") || packed) {
        lz_stored found;
        lz_status status = lz_stored_find(c->weights, weight, LZ_NONE, &found, c->err);
        if (status) return status;
        if (found.packed && (found.n_companions || packed)) return take_stored(c, weight, &found, to);
    } else if (lz_stored_is_companion(name, module) || HAS_ANY(name, foreign))
        return lz_fail(c->err, LZ_BAD_FILE,
                       "%s: nothing uses '%s': its weight is quantised in a way that Lazuli does not know",
                       LZ_SHOW_TEXT(c->path), LZ_SHOW_TEXT(name));
    if (!t->packed && t->dtype == LZ_DTYPE_COUNT)
        return lz_fail(c->err, LZ_BAD_FILE, "%s: tensor '%s' has the type %s, which cannot be read",
                       LZ_SHOW_TEXT(c->path), LZ_SHOW_TEXT(name), LZ_SHOW_TEXT(t->type));
    to->from = t;
    return LZ_OK;
}

lz_status lz_convert_plan(conversion *c, const type *wanted) {
    c->n = lz_weights_count(c->weights);
    c->items = lz_host_alloc(c->ctx, (size_t)c->n * sizeof *c->items + 1);
    c->outputs = lz_host_alloc(c->ctx, (size_t)c->n * 3 * sizeof *c->outputs + 1);
    c->places = lz_host_alloc(c->ctx, (size_t)c->n * 3 * sizeof *c->places + 1);
    if (!c->items || !c->outputs || !c->places) return lz_out_of_memory(c->err, c->n * (int64_t)sizeof *c->outputs);
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const char *name = lz_weights_name(c->weights, i);
        lz_status status = is_consumed(c, name) ? LZ_OK : take_tensor(c, name, &c->items[n]);
        if (status) return status;
        if (!c->items[n].from) continue; /* it belongs to another one */
        choose_target(c, wanted, c->items[n].from, &c->items[n]);
        status = plan_item(c, &c->items[n]);
        if (status) return status;
        c->total += c->items[n].from->end - c->items[n].from->begin;
        n++;
    }
    c->n = n;
    return LZ_OK;
}
