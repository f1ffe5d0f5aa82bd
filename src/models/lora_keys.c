/* lora_keys.c: see lora_keys.h. */
#include "models/lora_keys.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *text;
    lz_lora_role role;
    const char *refused;
} suffixes[] = {
    {".lora_A.weight", LZ_LORA_DOWN, NULL}, /* PEFT, diffusers, ai-toolkit */
    {".lora_B.weight", LZ_LORA_UP, NULL},
    {".lora_A.default.weight", LZ_LORA_DOWN, NULL}, /* raw PEFT, DiffSynth */
    {".lora_B.default.weight", LZ_LORA_UP, NULL},
    {".lora_A", LZ_LORA_DOWN, NULL},
    {".lora_B", LZ_LORA_UP, NULL},
    {".lora_down.weight", LZ_LORA_DOWN, NULL}, /* kohya, musubi, OneTrainer, LightX2V */
    {".lora_up.weight", LZ_LORA_UP, NULL},
    {".lora.down.weight", LZ_LORA_DOWN, NULL}, /* old diffusers */
    {".lora.up.weight", LZ_LORA_UP, NULL},
    {"_lora.down.weight", LZ_LORA_DOWN, NULL},
    {"_lora.up.weight", LZ_LORA_UP, NULL},
    {".lora_linear_layer.down.weight", LZ_LORA_DOWN, NULL},
    {".lora_linear_layer.up.weight", LZ_LORA_UP, NULL},
    {".lora_B.bias", LZ_LORA_UP_BIAS, NULL},
    {".lora_B.default.bias", LZ_LORA_UP_BIAS, NULL},
    {".lora_up.bias", LZ_LORA_UP_BIAS, NULL},
    {".alpha", LZ_LORA_ALPHA, NULL},
    {".dora_scale", LZ_LORA_MAGNITUDE, NULL},
    {".lora_magnitude_vector", LZ_LORA_MAGNITUDE, NULL},
    {".lora_magnitude_vector.weight", LZ_LORA_MAGNITUDE, NULL},
    {".lora_magnitude_vector.default.weight", LZ_LORA_MAGNITUDE, NULL},
    {".hada_w1_a", LZ_LORA_HADA_W1_A, NULL}, /* LyCORIS */
    {".hada_w1_b", LZ_LORA_HADA_W1_B, NULL},
    {".hada_w2_a", LZ_LORA_HADA_W2_A, NULL},
    {".hada_w2_b", LZ_LORA_HADA_W2_B, NULL},
    {".lokr_w1", LZ_LORA_LOKR_W1, NULL},
    {".lokr_w1_a", LZ_LORA_LOKR_W1_A, NULL},
    {".lokr_w1_b", LZ_LORA_LOKR_W1_B, NULL},
    {".lokr_w2", LZ_LORA_LOKR_W2, NULL},
    {".lokr_w2_a", LZ_LORA_LOKR_W2_A, NULL},
    {".lokr_w2_b", LZ_LORA_LOKR_W2_B, NULL},
    {".diff", LZ_LORA_DIFF, NULL},
    {".diff_b", LZ_LORA_DIFF_BIAS, NULL},
    {".w_norm", LZ_LORA_DIFF, NULL},
    {".b_norm", LZ_LORA_DIFF_BIAS, NULL},
    {".set_weight", LZ_LORA_SET, NULL},
    {".lora_mid.weight", LZ_LORA_REFUSED, "LoCon with a middle matrix"},
    {".hada_t1", LZ_LORA_REFUSED, "LoHa with Tucker factors"},
    {".hada_t2", LZ_LORA_REFUSED, "LoHa with Tucker factors"},
    {".lokr_t2", LZ_LORA_REFUSED, "LoKr with Tucker factors"},
    {".a1.weight", LZ_LORA_REFUSED, "GLoRA"},
    {".a2.weight", LZ_LORA_REFUSED, "GLoRA"},
    {".b1.weight", LZ_LORA_REFUSED, "GLoRA"},
    {".b2.weight", LZ_LORA_REFUSED, "GLoRA"},
    {".oft_blocks", LZ_LORA_REFUSED, "OFT or BOFT"},
    {".oft_diag", LZ_LORA_REFUSED, "OFT or BOFT"},
    {".oft_R.weight", LZ_LORA_REFUSED, "OFT or BOFT"},
    {".boft_R", LZ_LORA_REFUSED, "OFT or BOFT"},
    {".rescale", LZ_LORA_REFUSED, "OFT or BOFT"},
    {".lora_embedding_A", LZ_LORA_REFUSED, "LoRA of embeddings"},
    {".lora_embedding_B", LZ_LORA_REFUSED, "LoRA of embeddings"},
    {".on_input", LZ_LORA_REFUSED, "IA3"},
    {".reshape_weight", LZ_LORA_REFUSED, "LoRA that reshapes weights"},
};

static const struct {
    const char *text;
    bool encoder; /* of the text encoder */
} prefixes[] = {
    {"base_model.model.", false},
    {"transformer.", false},
    {"diffusion_model.", false},
    {"model.diffusion_model.", false},
    {"model.", false},
    {"unet.", false},
    {"lora_unet__", false},
    {"lora_unet_", false},
    {"lora_transformer_", false},
    {"lora_dit_", false},
    {"lycoris_", false},
    {"lora.", false},
    {"text_encoder.", true},
    {"lora_te_", true},
    {"lora_te1_", true},
    {"te.", true},
    {"language_model.", true},
};

#define COUNT(table) ((int)(sizeof(table) / sizeof(table)[0]))

void lz_flatten(const char *name, char to[LZ_FLAT_MAX]) {
    size_t n = 0;
    for (; *name && n + 1 < LZ_FLAT_MAX; name++) {
        bool gap = *name == '.' || *name == '_';
        if (gap && n && to[n - 1] == '_') continue;
        to[n++] = gap ? '_' : *name;
    }
    if (n && to[n - 1] == '_') n--;
    to[n] = 0;
}

/* text_encoders.<name>.transformer. of ComfyUI's checkpoints: its length, or 0. */
static size_t named_encoder(const char *name) {
    static const char before[] = "text_encoders.", behind[] = ".transformer.";
    if (strncmp(name, before, sizeof before - 1) != 0) return 0;
    const char *dot = strchr(name + sizeof before - 1, '.');
    return dot && strncmp(dot, behind, sizeof behind - 1) == 0 ? (size_t)(dot - name) + sizeof behind - 1 : 0;
}

/* The name without the longest prefix that fits, or the same. */
static const char *strip(const char *name, bool *text) {
    size_t longest = named_encoder(name);
    bool encoder = longest > 0;
    for (int i = 0; i < COUNT(prefixes); i++) {
        size_t n = strlen(prefixes[i].text);
        if (n <= longest || strncmp(name, prefixes[i].text, n) != 0 || !name[n]) continue;
        longest = n;
        encoder = prefixes[i].encoder;
    }
    *text = *text || encoder;
    return name + longest;
}

lz_lora_key lz_lora_read_key(const char *name) {
    lz_lora_key key = {.role = LZ_LORA_UNKNOWN};
    size_t length = strlen(name), cut = 0;
    for (int i = 0; i < COUNT(suffixes); i++) {
        size_t n = strlen(suffixes[i].text);
        if (n <= cut || n >= length || strcmp(name + length - n, suffixes[i].text) != 0) continue;
        cut = n;
        key.role = suffixes[i].role;
        key.refused = suffixes[i].refused;
    }
    char stem[2 * LZ_FLAT_MAX];
    if (length - cut >= sizeof stem) { /* no module has such a name */
        key.role = LZ_LORA_UNKNOWN;
        snprintf(key.module, sizeof key.module, "%s", name);
        return key;
    }
    snprintf(stem, sizeof stem, "%.*s", (int)(length - cut), name);
    const char *rest = stem;
    for (const char *next; (next = strip(rest, &key.text)) != rest;) rest = next;
    /* Some exports cut the first letters off. */
    static const char whole[] = "transformer_blocks", cut_off[] = "sformer_blocks";
    char full[2 * LZ_FLAT_MAX + 8];
    bool torn = strncmp(rest, cut_off, sizeof cut_off - 1) == 0;
    snprintf(full, sizeof full, "%s%s", torn ? whole : "", torn ? rest + sizeof cut_off - 1 : rest);
    lz_flatten(full, key.module);
    if (key.text && strncmp(key.module, "model_", 6) == 0) memmove(key.module, key.module + 6, strlen(key.module) - 5);
    return key;
}
