/* lora_names.c: the names of modules in LoRA files: the names of models/names.h, flattened, and names that only LoRA
 * files use. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/lora_keys.h"
#include "models/names.h"

#define ALIASES(table)                                                                                                 \
    { .name = "", .stem = "", .aliases = table, .n_aliases = (int)(sizeof(table) / sizeof(table)[0]) }
#define BLOCK "transformer_blocks.#.attn."

/* For LoRAs that were trained on a transformer with fused projections (diffusers). */
static const lz_alias fused_aliases[] = {
    {BLOCK "to_q", BLOCK "to_qkv", LZ_ALIAS_ROWS, 0},
    {BLOCK "to_k", BLOCK "to_qkv", LZ_ALIAS_ROWS, 1},
    {BLOCK "to_v", BLOCK "to_qkv", LZ_ALIAS_ROWS, 2},
    {BLOCK "add_q_proj", BLOCK "to_added_qkv", LZ_ALIAS_ROWS, 0},
    {BLOCK "add_k_proj", BLOCK "to_added_qkv", LZ_ALIAS_ROWS, 1},
    {BLOCK "add_v_proj", BLOCK "to_added_qkv", LZ_ALIAS_ROWS, 2},
};
static const lz_component fused = ALIASES(fused_aliases);

/* The opposite: parts of FLUX.2's fused matrix, with the names of FLUX.1's separate ones. It stacks q, k, v, which have
 * as many rows each as the matrix has columns, and the MLP. */
#define SINGLE "single_transformer_blocks.#."
#define WHOLE SINGLE "attn.to_qkv_mlp_proj"
enum { PART_Q = 1, PART_K, PART_V, PART_MLP, PART_QKV };
static const lz_alias part_aliases[] = {
    {WHOLE, SINGLE "attn.to_q", LZ_ALIAS_COPY, 0},
    {WHOLE, SINGLE "attn.to_k", LZ_ALIAS_COPY, 0},
    {WHOLE, SINGLE "attn.to_v", LZ_ALIAS_COPY, 0},
    {WHOLE, SINGLE "proj_mlp", LZ_ALIAS_COPY, 0},
    {WHOLE, "single_blocks.#.linear1_qkv", LZ_ALIAS_COPY, 0},
};
static const lz_component parts = ALIASES(part_aliases);

/* The family, recognised by a target that no other family has. */
static const struct {
    lz_lora_family family;
    const char *sign;
    const lz_component *component;
} families[] = {
    {LZ_LORA_FLUX2, "double_stream_modulation_img.linear.weight", &lz_names_flux2},
    {LZ_LORA_FLUX3, "early_stream_modulations.image.linear.weight", &lz_names_flux3},
    {LZ_LORA_QWEN_IMAGE, "txt_norm.weight", &lz_names_qwen_image},
    {LZ_LORA_QWEN_IMAGE21, "txt_in.text_norm.weight", &lz_names_qwen_image21},
    {LZ_LORA_Z_IMAGE, "cap_embedder.1.weight", &lz_names_z_image},
    {LZ_LORA_TEXT, NULL, &lz_names_qwen3},
};

static bool add(lz_lora_names *names, const char *name, lz_lora_name entry) {
    if (names->n == names->room) {
        int64_t room = names->room ? 2 * names->room : 1024;
        lz_lora_name *list = lz_host_alloc(names->ctx, (size_t)room * sizeof *list);
        if (!list) return false;
        if (names->n) memcpy(list, names->list, (size_t)names->n * sizeof *list);
        lz_host_free(names->ctx, names->list);
        names->list = list;
        names->room = room;
    }
    lz_flatten(name, entry.flat);
    names->list[names->n++] = entry;
    return true;
}

/* Entries of one target under the names of a component, from the i-th on. Of rows of a fused matrix source_first is the
 * number of the part for now. */
static bool add_spellings(lz_lora_names *names, lz_target *target, const char *module, const lz_component *component,
                          int i) {
    int64_t rows = target->dims.at[0];
    bool fine = true;
    for (lz_spelling s; fine && lz_names_spell(component, module, 0, i, &s); i++) {
        lz_lora_name entry = {.target = target, .rows = rows, .source_rows = rows, .own = i == 0};
        if (s.kind == LZ_ALIAS_SWAP) entry.rotate = rows / 2;
        if (s.kind == LZ_ALIAS_ROWS) {
            entry.source_rows = 0;
            entry.source_first = s.at;
        }
        fine = add(names, s.name, entry);
    }
    return fine;
}

static bool add_parts(lz_lora_names *names, lz_target *target, const char *module) {
    int64_t out = target->dims.at[0], in = target->dims.n > 1 ? target->dims.at[1] : 1;
    bool fine = true;
    int i = PART_Q;
    for (lz_spelling s; fine && out > 3 * in && lz_names_spell(&parts, module, 0, i, &s); i++) {
        lz_lora_name entry = {.target = target, .first = (i - PART_Q) * in, .rows = in};
        if (i == PART_MLP) entry.rows = out - 3 * in;
        if (i == PART_QKV) entry.first = 0;
        if (i == PART_QKV) entry.rows = 3 * in;
        entry.source_rows = entry.rows;
        fine = add(names, s.name, entry);
    }
    return fine;
}

/* Adds all names of a target. prefix: the common prefix of all names of this model. */
static bool add_target(lz_lora_names *names, lz_target *target, const char *prefix, const lz_component *component) {
    static const char ending[] = ".weight";
    char module[LZ_NAME_SIZE];
    size_t begin = strlen(prefix), length = strlen(target->name), cut = sizeof ending - 1;
    if (length <= begin + cut || strncmp(target->name, prefix, begin) != 0 ||
        strcmp(target->name + length - cut, ending) != 0 || length - begin - cut >= sizeof module)
        return true; /* a bias is changed through its weight */
    snprintf(module, sizeof module, "%.*s", (int)(length - begin - cut), target->name + begin);
    if (strcmp(module, "embed_tokens") == 0) return true; /* its rows are looked up, it is not a product */
    bool fine = add_spellings(names, target, module, component, 0);
    if (fine && names->family != LZ_LORA_TEXT) fine = add_spellings(names, target, module, &fused, 1);
    return fine && names->family == LZ_LORA_FLUX2 ? add_parts(names, target, module) : fine;
}

/* For fused matrices: the parts are consecutive, and cover the whole matrix. */
static void lay_rows(lz_lora_name *list, int64_t n) {
    int64_t sum = 0;
    if (list->source_rows) return;
    for (int64_t i = 0; i < n; i++) sum += list[i].rows;
    for (int64_t i = 0; i < n; i++) {
        int64_t part = list[i].source_first;
        list[i].source_first = part < 0 ? sum + part * list[i].rows : part * list[i].rows;
        list[i].source_rows = sum;
    }
}

static int by_name(const void *a, const void *b) {
    const lz_lora_name *x = a, *y = b;
    int order = strcmp(x->flat, y->flat);
    if (order) return order;
    return x->source_first < y->source_first ? -1 : x->source_first > y->source_first;
}

lz_status lz_lora_names_make(lz_lora_names *names, lz_context *ctx, const lz_targets *targets, lz_error *err) {
    *names = (lz_lora_names){.ctx = ctx};
    int f = 0;
    while (families[f].sign && !lz_targets_find(targets, families[f].sign)) f++;
    names->family = families[f].family;
    /* Prefixes are stripped from keys, `model.` too, so no name of a text encoder has it here. */
    const char *prefix = "";
    if (names->family == LZ_LORA_TEXT) {
        bool longer = lz_targets_find(targets, "model.language_model.embed_tokens.weight") != NULL;
        prefix = longer ? "model.language_model." : "model.";
    }
    for (int64_t i = 0; i < targets->n; i++)
        if (!add_target(names, targets->list[i], prefix, families[f].component)) {
            lz_lora_names_free(names);
            return lz_out_of_memory(err, names->room * (int64_t)sizeof *names->list);
        }
    if (names->n) qsort(names->list, (size_t)names->n, sizeof *names->list, by_name);
    for (int64_t i = 0, n; i < names->n; i += n) {
        for (n = 1; i + n < names->n && strcmp(names->list[i].flat, names->list[i + n].flat) == 0;) n++;
        lay_rows(&names->list[i], n);
    }
    return LZ_OK;
}

void lz_lora_names_free(lz_lora_names *names) {
    if (names->ctx) lz_host_free(names->ctx, names->list);
    names->list = NULL;
    names->n = 0;
}

const lz_lora_name *lz_lora_names_find(const lz_lora_names *names, const char *flat, int *n) {
    int64_t low = 0, high = names->n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (strcmp(names->list[middle].flat, flat) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *n = 0;
    while (low + *n < names->n && strcmp(names->list[low + *n].flat, flat) == 0) ++*n;
    return *n ? &names->list[low] : NULL;
}
