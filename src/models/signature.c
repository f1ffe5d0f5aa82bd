/* signature.c: see signature.h. */
#include "models/signature.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "models/names.h"

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static int64_t rows(const lz_names *n, const char *name) {
    lz_dims d = lz_names_shape(n, name);
    return d.n > 0 ? d.at[0] : 0;
}

/* Of a matrix. */
static int64_t columns(const lz_names *n, const char *name) {
    lz_dims d = lz_names_shape(n, name);
    return d.n >= 2 ? d.at[d.n - 1] : 0;
}

/* The number of names with %d = 0, 1, ... that exist. */
static int count(const lz_names *n, const char *format) {
    char name[LZ_NAME_SIZE];
    int i = 0;
    for (; i < 4096; i++) {
        const char *at = strstr(format, "%d");
        snprintf(name, sizeof name, "%.*s%d%s", (int)(at - format), format, i, at + 2);
        if (lz_names_shape(n, name).n < 0) break;
    }
    return i;
}

static bool is_fused(const lz_names *n, const char *name, const char *word) {
    lz_origin from;
    return lz_names_find(n, name, (lz_dims){.n = 0}, &from) && strstr(from.pieces[0].name, word);
}

static int64_t over(int64_t a, int64_t b) { return b ? a / b : 0; }

/* ---- configurations ---------------------------------------------------------------------------------------------- */

/* A number for which floor(number * width) gives the original size. */
static double ratio(int64_t part, int64_t width) {
    double r = width ? (double)part / (double)width : 0;
    return (int64_t)((double)width * r) < part ? nextafter(r, INFINITY) : r;
}

static json_t *flux2_config(const lz_names *n, const char *path) {
    (void)path;
    int64_t d = rows(n, "x_embedder.weight"), head = rows(n, "transformer_blocks.0.attn.norm_q.weight"),
            m = rows(n, "transformer_blocks.0.ff.linear_in.weight") / 2, c = columns(n, "x_embedder.weight");
    if (!head) head = rows(n, "single_transformer_blocks.0.attn.norm_q.weight");
    if (!m) m = (rows(n, "single_transformer_blocks.0.attn.to_qkv_mlp_proj.weight") - 3 * d) / 2;
    return json_pack("{s:I, s:I, s:f, s:I, s:I, s:i, s:i, s:I, s:[I, I, I, I]}", "num_attention_heads", over(d, head),
                     "attention_head_dim", head, "mlp_ratio", ratio(m, d), "in_channels", c, "joint_attention_dim",
                     columns(n, "context_embedder.weight"), "num_layers",
                     count(n, "transformer_blocks.%d.attn.norm_q.weight"), "num_single_layers",
                     count(n, "single_transformer_blocks.%d.attn.norm_q.weight"), "timestep_guidance_channels",
                     columns(n, "time_guidance_embed.timestep_embedder.linear_1.weight"), "axes_dims_rope", head / 4,
                     head / 4, head / 4, head / 4);
}

static json_t *z_image_config(const lz_names *n, const char *path) {
    (void)path;
    int64_t d = rows(n, "all_x_embedder.2-1.weight"), head = rows(n, "noise_refiner.0.attention.norm_q.weight");
    return json_pack("{s:I, s:I, s:I, s:I, s:i, s:i, s:[I, I, I]}", "dim", d, "n_heads", over(d, head), "in_channels",
                     columns(n, "all_x_embedder.2-1.weight") / 4, "cap_feat_dim", rows(n, "cap_embedder.0.weight"),
                     "n_layers", count(n, "layers.%d.attention.norm_q.weight"), "n_refiner_layers",
                     count(n, "noise_refiner.%d.attention.norm_q.weight"), "axes_dims", head / 4, head / 8 * 3,
                     head / 8 * 3);
}

static json_t *flux3_config(const lz_names *n, const char *path) {
    (void)path;
    int64_t d = rows(n, "x_embedders.image.weight"), head = rows(n, "single_transformer_blocks.0.attn.norm_q.weight"),
            m = rows(n, "single_transformer_blocks.0.ff.linear_in.weight") / 2,
            c = columns(n, "x_embedders.image.weight");
    bool flow_map = lz_names_shape(n, "target_timestep_embedder.linear_1.weight").n > 0;
    return json_pack("{s:I, s:I, s:f, s:I, s:I, s:i, s:i, s:I, s:b, s:[I, I, I, I]}", "num_attention_heads",
                     over(d, head), "attention_head_dim", head, "mlp_ratio", ratio(m, d), "in_channels", c,
                     "joint_attention_dim", columns(n, "context_embedder.weight"), "num_layers",
                     count(n, "txt_mode_blocks.%d.attn.norm_q.weight"), "num_single_layers",
                     count(n, "single_transformer_blocks.%d.attn.norm_q.weight"), "timestep_channels",
                     columns(n, "timestep_embedder.linear_1.weight"), "flow_map", flow_map, "axes_dims_rope", head / 4,
                     head / 4, head / 4, head / 4);
}

static const char zero_time[] = "__index_timestep_zero__",
                  layer_kinds[] = "time_text_embed.addition_t_embedding.weight";

/* zero_cond_t: the marker of ComfyUI's files. GGUF files cannot have it, so the name counts too. */
static json_t *qwen_image_config(const lz_names *n, const char *path) {
    int64_t d = rows(n, "img_in.weight"), head = rows(n, "transformer_blocks.0.attn.norm_q.weight"),
            c = columns(n, "img_in.weight"), third = (head - head / 8) / 2;
    bool still = lz_names_shape(n, zero_time).n >= 0 || lz_file_name_has(path, "2511");
    bool layered = lz_names_shape(n, layer_kinds).n >= 0;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:i, s:b, s:b, s:b, s:[I, I, I]}", "num_attention_heads", over(d, head),
                     "attention_head_dim", head, "in_channels", c, "out_channels", c / 4, "joint_attention_dim",
                     rows(n, "txt_norm.weight"), "num_layers", count(n, "transformer_blocks.%d.attn.norm_q.weight"),
                     "zero_cond_t", still, "use_additional_t_cond", layered, "use_layer3d_rope", layered,
                     "axes_dims_rope", head / 8, third, third);
}

static json_t *qwen_image21_config(const lz_names *n, const char *path) {
    (void)path;
    int64_t d = rows(n, "img_in.weight"), head = rows(n, "transformer_blocks.0.attn.norm_q.weight"),
            c = columns(n, "img_in.weight"), third = (head - head / 8) / 2;
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:[I, I, I]}", "num_attention_heads", over(d, head), "attention_head_dim",
        head, "in_channels", c, "out_channels", c, "context_in_dim", rows(n, "txt_in.text_norm.weight"), "num_layers",
        count(n, "transformer_blocks.%d.attn.norm_q.weight"), "mlp_ratio",
        over(rows(n, "transformer_blocks.0.img_mlp.proj.weight"), d), "axes_dims_rope", head / 8, third, third);
}

/* Is the language model that of Qwen3-VL? Its file has the vision tower too, or says so (GGUF). */
static bool is_vl(const lz_names *n) {
    lz_names vision;
    return lz_names_open(&vision, &lz_names_qwen3_vision, n->weights) ||
           lz_weights_value(n->weights, "qwen3vl.rope.freq_base");
}

/* GGUF files say it: people use language models of the same shape that were trained for longer texts. */
static double rope_theta(const lz_names *n) {
    static const char *const keys[] = {"qwen3.rope.freq_base", "qwen2vl.rope.freq_base", "qwen2.rope.freq_base",
                                       "qwen3vl.rope.freq_base"};
    lz_value_item item;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const lz_value *value = lz_weights_value(n->weights, keys[i]);
        bool number = value && value->type != LZ_VALUE_TEXT && value->type != LZ_VALUE_LIST;
        if (number && lz_value_first(value, &item) && item.real >= 1 && item.real <= 1e12) return item.real;
    }
    return is_vl(n) ? 5e6 : 1e6;
}

/* Rows of queries and of keys, of feed-forward; layers. */
typedef struct language {
    int64_t hidden, q, k, f, vocabulary;
    int layers;
} language;

static language measure(const lz_names *n) {
    language m = {.hidden = rows(n, "layers.0.input_layernorm.weight"),
                  .q = rows(n, "layers.0.self_attn.q_proj.weight"),
                  .k = rows(n, "layers.0.self_attn.k_proj.weight"),
                  .f = rows(n, "layers.0.mlp.gate_proj.weight"),
                  .vocabulary = rows(n, "embed_tokens.weight"),
                  .layers = count(n, "layers.%d.input_layernorm.weight")};
    if (is_fused(n, "model.layers.0.self_attn.q_proj.weight", "qkv_proj")) {
        m.q = columns(n, "layers.0.self_attn.o_proj.weight");
        m.k = (m.k - m.q) / 2;
    }
    if (is_fused(n, "model.layers.0.mlp.gate_proj.weight", "gate_up_proj")) m.f /= 2;
    return m;
}

/* Some files end after the last layer that a picture model reads; its state is not the normed one of a complete
 * model, and layers are counted from the end of the complete model. */
static json_t *qwen3_config(const lz_names *n, const char *path) {
    (void)path;
    language m = measure(n);
    bool known = m.hidden == 2560 || m.hidden == 4096;                                /* Qwen3-4B and 8B */
    int64_t head = rows(n, "layers.0.self_attn.q_norm.weight"), side = 5 * head / 32; /* rows, columns */
    json_t *config = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:i, s:f, s:b, s:i}", "hidden_size", m.hidden,
                               "num_attention_heads", over(m.q, head), "num_key_value_heads", over(m.k, head),
                               "head_dim", head, "intermediate_size", m.f, "vocab_size", m.vocabulary,
                               "num_hidden_layers", m.layers, "rope_theta", rope_theta(n), "_last_is_normed", 0,
                               "_published_layers", known && m.layers < 36 ? 36 : m.layers);
    if (config && is_vl(n))
        json_object_set_new(
            config, "rope_scaling",
            json_pack("{s:[I, I, I], s:b}", "mrope_section", head / 2 - 2 * side, side, side, "mrope_interleaved", 1));
    return config;
}

static json_t *qwen25_config(const lz_names *n, const char *path) {
    (void)path;
    enum { HEAD = 128 };
    language m = measure(n);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:i, s:f, s:{s:[i, i, i]}}", "hidden_size", m.hidden,
                     "num_attention_heads", m.q / HEAD, "num_key_value_heads", m.k / HEAD, "intermediate_size", m.f,
                     "vocab_size", m.vocabulary, "num_hidden_layers", m.layers, "rope_theta", rope_theta(n),
                     "rope_scaling", "mrope_section", 16, 24, 24);
}

static json_t *vision_config(const lz_names *n, const char *path) {
    (void)path;
    enum { HEAD = 80 };
    int64_t width = rows(n, "blocks.0.norm1.weight");
    return json_pack("{s:{s:I, s:I, s:i, s:I, s:I, s:i, s:[i, i, i, i]}}", "vision_config", "hidden_size", width,
                     "num_heads", width / HEAD, "depth", count(n, "blocks.%d.norm1.weight"), "intermediate_size",
                     rows(n, "blocks.0.mlp.gate_proj.weight"), "out_hidden_size", rows(n, "merger.mlp.2.weight"),
                     "window_size", 112, "fullatt_block_indexes", 7, 15, 23, 31);
}

static json_t *qwen3_vision_config(const lz_names *n, const char *path) {
    (void)path;
    enum { HEAD = 72 };
    int64_t width = rows(n, "blocks.0.norm1.weight");
    return json_pack("{s:{s:I, s:I, s:i, s:I, s:I, s:I, s:[i, i, i]}}", "vision_config", "hidden_size", width,
                     "num_heads", width / HEAD, "depth", count(n, "blocks.%d.norm1.weight"), "intermediate_size",
                     rows(n, "blocks.0.mlp.linear_fc1.weight"), "out_hidden_size", rows(n, "merger.linear_fc2.weight"),
                     "num_position_embeddings", rows(n, "pos_embed.weight"), "deepstack_visual_indexes", 8, 16, 24);
}

static json_t *level_widths(const lz_names *n, const char *list, int levels, bool reversed) {
    json_t *widths = json_array();
    for (int i = 0; i < levels; i++) {
        char name[LZ_NAME_SIZE];
        snprintf(name, sizeof name, "%s.%d.resnets.0.conv1.weight", list, reversed ? levels - 1 - i : i);
        json_array_append_new(widths, json_integer(rows(n, name)));
    }
    return widths;
}

static json_t *flux2_vae_config(const lz_names *n, const char *path) {
    (void)path;
    int levels = count(n, "encoder.down_blocks.%d.resnets.0.conv1.weight");
    return json_pack(
        "{s:o, s:o, s:i, s:I}", "block_out_channels", level_widths(n, "encoder.down_blocks", levels, false),
        "decoder_block_out_channels", level_widths(n, "decoder.up_blocks", levels, true), "layers_per_block",
        count(n, "encoder.down_blocks.0.resnets.%d.conv1.weight"), "latent_channels", rows(n, "bn.running_mean") / 4);
}

static json_t *flux1_vae_config(const lz_names *n, const char *path) {
    (void)path;
    int levels = count(n, "encoder.down_blocks.%d.resnets.0.conv1.weight");
    return json_pack("{s:o, s:i, s:I, s:b, s:b, s:f, s:f}", "block_out_channels",
                     level_widths(n, "encoder.down_blocks", levels, false), "layers_per_block",
                     count(n, "encoder.down_blocks.0.resnets.%d.conv1.weight"), "latent_channels",
                     rows(n, "encoder.conv_out.bias") / 2, "use_quant_conv", 0, "use_post_quant_conv", 0,
                     "scaling_factor", 0.3611, "shift_factor", 0.1159);
}

/* The encoder's blocks are one list: the resnets of a level, then its downsampling, except at the last level. */
static json_t *qwen_vae_config(const lz_names *n, const char *path) {
    (void)path;
    lz_dims in = lz_names_shape(n, "encoder.conv_in.weight");
    int64_t base = rows(n, "encoder.conv_in.weight");
    int resnets = 0, all = 0;
    json_t *times = json_array();
    char name[LZ_NAME_SIZE];
    for (int i = 0, first = 0; i < 64; i++) {
        snprintf(name, sizeof name, "encoder.down_blocks.%d.conv1.weight", i);
        int64_t width = rows(n, name);
        if (width && first == i) json_array_append_new(times, json_integer(over(width, base)));
        snprintf(name, sizeof name, "encoder.down_blocks.%d.resample.1.weight", i);
        bool resamples = lz_names_shape(n, name).n > 0;
        if (!width && !resamples) break;
        if (resamples && !all++) resnets = i;
        if (resamples) first = i + 1;
    }
    return json_pack("{s:I, s:o, s:i, s:I, s:I}", "base_dim", base, "dim_mult", times, "num_res_blocks", resnets,
                     "z_dim", rows(n, "post_quant_conv.weight"), "input_channels", in.n > 1 ? in.at[1] : 3);
}

static json_t *qwen21_vae_config(const lz_names *n, const char *path) {
    (void)path;
    int64_t base = rows(n, "encoder.conv_in.weight");
    int levels = count(n, "encoder.down_blocks.%d.resnets.0.conv1.weight");
    json_t *times = level_widths(n, "encoder.down_blocks", levels, false);
    for (size_t i = 0; i < json_array_size(times); i++)
        json_array_set_new(times, i, json_integer(over(json_integer_value(json_array_get(times, i)), base)));
    return json_pack("{s:I, s:I, s:o, s:i, s:I}", "base_dim", base, "decoder_base_dim",
                     rows(n, "decoder.norm_out.gamma"), "dim_mult", times, "num_res_blocks",
                     count(n, "encoder.down_blocks.0.resnets.%d.conv1.weight"), "z_dim",
                     rows(n, "post_quant_conv.weight"));
}

/* ---- kinds ------------------------------------------------------------------------------------------------------- */

typedef struct size_title { /* of a published model */
    int64_t rows;
    const char *title;
} size_title;

typedef struct kind {
    const lz_component *component;
    lz_part part;
    json_t *(*config)(const lz_names *names, const char *path); /* NULL: it cannot be used */
    const char *measured;                                       /* a tensor whose number of rows determines the size */
    size_title titles[3];                                       /* rows 0: any */
} kind;

/* The order matters: FLUX.1's autoencoder has the same names as FLUX.2's, and Qwen-Image 2.1's those of Qwen-Image's. */
static const kind kinds[] = {
    {&lz_names_flux2,
     LZ_PART_TRANSFORMER,
     flux2_config,
     "x_embedder.weight",
     {{3072, "FLUX.2 [klein] 4B"}, {4096, "FLUX.2 [klein] 9B"}, {0, "FLUX.2 [klein]"}}},
    {&lz_names_flux3, LZ_PART_TRANSFORMER, flux3_config, "x_embedders.image.weight", {{0, "FLUX.3 [klein]"}}},
    {&lz_names_qwen_image, LZ_PART_TRANSFORMER, qwen_image_config, "img_in.weight", {{0, "Qwen-Image"}}},
    {&lz_names_qwen_image21, LZ_PART_TRANSFORMER, qwen_image21_config, "img_in.weight", {{0, "Qwen-Image 2.1"}}},
    {&lz_names_z_image, LZ_PART_TRANSFORMER, z_image_config, "cap_embedder.1.weight", {{0, "Z-Image"}}},
    {&lz_names_qwen3,
     LZ_PART_TEXT_ENCODER,
     qwen3_config,
     "layers.0.input_layernorm.weight",
     {{2560, "Qwen3-4B"}, {4096, "Qwen3-8B"}, {0, "Qwen3"}}},
    {&lz_names_qwen25,
     LZ_PART_TEXT_ENCODER,
     qwen25_config,
     "layers.0.input_layernorm.weight",
     {{3584, "Qwen2.5-VL-7B"}, {2048, "Qwen2.5-VL-3B"}, {0, "Qwen2.5-VL"}}},
    {&lz_names_qwen25_vision, LZ_PART_VISION, vision_config, "blocks.0.norm1.weight", {{0, "Qwen2.5-VL"}}},
    {&lz_names_qwen3_vision, LZ_PART_VISION, qwen3_vision_config, "blocks.0.norm1.weight", {{0, "Qwen3-VL"}}},
    {&lz_names_flux2_vae, LZ_PART_VAE, flux2_vae_config, "decoder.conv_in.weight", {{0, "FLUX.2"}}},
    {&lz_names_flux1_vae, LZ_PART_VAE, flux1_vae_config, "decoder.conv_in.weight", {{0, "FLUX.1"}}},
    {&lz_names_qwen21_vae, LZ_PART_VAE, qwen21_vae_config, "decoder.conv_in.weight", {{0, "Qwen-Image 2.1"}}},
    {&lz_names_qwen_vae, LZ_PART_VAE, qwen_vae_config, "decoder.conv_in.weight", {{0, "Qwen-Image"}}},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Known files that cannot be used. A name that begins with '*' is the end of a tensor's name. */
static const struct {
    const char *name, *sentence;
} refusals[] = {
    {"*.lora_A.weight", "lora"},
    {"*.lora_A.default.weight", "lora"},
    {"*.lora_down.weight", "lora"},
    {"*.lora.down.weight", "lora"},
    {"*_lora.down.weight", "lora"},
    {"*.lora_A", "lora"},
    {"*.lokr_w1", "lora"},
    {"*.lokr_w2", "lora"},
    {"*.lokr_w1_a", "lora"},
    {"*.hada_w1_a", "lora"},
    {"*.wscales", "it is a Nunchaku file, made for other kernels: take the GGUF or the fp8 file of the model"},
    {"*guidance_in.in_layer.weight", "it is FLUX.2 [dev], FLUX.1 or another model with embedded guidance, which is not "
                                     "supported; FLUX.2 [klein] is"},
    {"*double_blocks.0.img_mod.lin.weight", "it is a FLUX.1 model, which is not supported; FLUX.2 [klein] is"},
    {"*siglip_embedder.1.weight", "it is Z-Image-Omni, which is not supported"},
};
static const char is_lora[] =
    "it is a LoRA, which changes a model and is not one: name the model with -m, and give the LoRA "
    "with --lora";

static const char *find_refusal(lz_weights *w) {
    for (int64_t i = 0, all = lz_weights_count(w); i < all; i++) {
        const char *name = lz_weights_name(w, i);
        size_t length = strlen(name);
        for (size_t k = 0; k < sizeof refusals / sizeof *refusals; k++) {
            const char *end = refusals[k].name + 1;
            size_t m = strlen(end);
            if (length < m || strcmp(name + length - m, end) != 0) continue;
            return strcmp(refusals[k].sentence, "lora") ? refusals[k].sentence : is_lora;
        }
    }
    return NULL;
}

static const char *find_title(const kind *k, const lz_names *n) {
    int64_t size = rows(n, k->measured);
    int i = 0;
    for (; i < 2 && k->titles[i].rows && k->titles[i].rows != size;) i++;
    return k->titles[i].title;
}

void lz_signature_read(lz_signature *s, lz_weights *w) {
    *s = (lz_signature){.refused = find_refusal(w)};
    s->lora = s->refused == is_lora;
    lz_names n;
    for (int i = 0; i < KINDS; i++) {
        const kind *k = &kinds[i];
        if (s->parts[k->part] || !lz_names_open(&n, k->component, w)) continue;
        s->parts[k->part] = k->component;
        snprintf(s->title[k->part], sizeof s->title[0], "%s", find_title(k, &n));
        s->zero_time = s->zero_time || lz_names_shape(&n, zero_time).n >= 0;
        s->layered = s->layered || lz_names_shape(&n, layer_kinds).n >= 0;
        bool first = !s->refused;
        if (first && k->component == &lz_names_z_image && rows(&n, k->measured) == 2304)
            s->refused = "it is Lumina 2, which is not supported; Z-Image is";
        if (first && k->component == &lz_names_flux2 && rows(&n, k->measured) == 6144)
            s->refused = "it is FLUX.2 [dev], which is not supported; FLUX.2 [klein] is";
        if (first && k->component == &lz_names_qwen25 && rows(&n, k->measured) == 2048)
            s->refused = "it is Qwen2.5-VL-3B, and Qwen-Image reads the features of Qwen2.5-VL-7B";
    }
}

void lz_signature_unreadable(const lz_weights *w, char *to, size_t size) {
    static const char *const integers[] = {"I16", "U16", "U64"}; /* are no weights */
    for (int64_t i = 0, n = lz_weights_count(w); i < n; i++) {
        const lz_weights_tensor *t = lz_weights_find(w, lz_weights_name(w, i));
        bool weight = t->dtype == LZ_DTYPE_COUNT && !t->packed && !t->codes && lz_dims_size(t->dims) > 0;
        for (size_t k = 0; k < sizeof integers / sizeof *integers; k++)
            weight = weight && strcmp(t->type, integers[k]) != 0;
        if (!weight) continue;
        snprintf(to, size,
                 "its tensor '%.80s' has the type %.20s, which Lazuli does not read: take a file of another type",
                 t->name, t->type);
        return;
    }
}

void lz_signature_describe(const lz_signature *s, char *to, size_t size) {
    static const char *const words[LZ_PARTS] = {"transformer", "text encoder", "vision encoder", "autoencoder"};
    size_t used = 0;
    to[0] = 0;
    for (int i = 0; i < LZ_PARTS; i++)
        if (s->parts[i] && used < size)
            used += (size_t)snprintf(to + used, size - used, "%sa %s %s", used ? " and " : "", s->title[i], words[i]);
    if (!used) snprintf(to, size, "%s", s->lora ? "a LoRA" : "no model that is known here");
}

/* ---- a component's configuration --------------------------------------------------------------------------------- */

bool lz_file_name_has(const char *path, const char *word) {
    const char *slash = strrchr(path, '/');
    for (const char *p = slash ? slash + 1 : path; *p; p++)
        if (!strncasecmp(p, word, strlen(word))) return true;
    return false;
}

/* Is it a component of a diffusers folder? Then it must have a configuration. */
bool lz_is_derived(lz_context *ctx, const char *path) {
    static const char *const files[] = {"config.json", "../model_index.json", "../modular_model_index.json"};
    bool derived = true;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *file = lz_path_join(ctx, path, files[i]);
        derived = derived && file && access(file, F_OK) != 0;
        lz_host_free(ctx, file);
    }
    return derived;
}

static const kind *kind_of(const lz_component *component) {
    for (int i = 0; i < KINDS; i++)
        if (kinds[i].component == component) return &kinds[i];
    return NULL;
}

static lz_status wrong_part(const char *path, const lz_component *component, const char *what, lz_error *err) {
    return lz_fail(err, LZ_BAD_FILE, "%s: a %s is needed, and this is %s", LZ_SHOW_TEXT(path), component->name, what);
}

lz_status lz_component_check(lz_context *ctx, const char *path, const lz_component *component, lz_error *err) {
    lz_signature s;
    char what[300];
    bool known = false;
    const kind *k = kind_of(component);
    lz_weights *w = k ? lz_weights_open(ctx, path, NULL) : NULL;
    if (!w) return LZ_OK;
    lz_signature_read(&s, w);
    lz_signature_describe(&s, what, sizeof what);
    lz_weights_close(w);
    for (int i = 0; i < LZ_PARTS; i++) known |= s.parts[i] != NULL;
    return known && s.parts[k->part] != component ? wrong_part(path, component, what, err) : LZ_OK;
}

static lz_status derive(lz_config *c, lz_context *ctx, lz_weights *w, const char *path, const lz_component *component,
                        lz_error *err) {
    lz_signature s;
    lz_names n;
    char what[300];
    lz_signature_read(&s, w);
    lz_signature_describe(&s, what, sizeof what);
    if (s.refused) return lz_fail(err, LZ_BAD_FILE, "%s: %s", LZ_SHOW_TEXT(path), s.refused);
    const kind *k = kind_of(component);
    /* The names of FLUX.1's autoencoder are also those of FLUX.2's. */
    if (!lz_names_open(&n, component, w) || (k && s.parts[k->part] != component))
        return wrong_part(path, component, what, err);
    /* Names and shapes are the same: only the file's name differs. */
    if (component == &lz_names_qwen_vae && lz_file_name_has(path, "wan"))
        lz_remark_once(ctx,
                       "%s: an autoencoder of Wan has the shape of Qwen-Image's, but gives slightly wrong pictures",
                       LZ_SHOW_TEXT(path));
    json_t *root = k && k->config ? k->config(&n, path) : NULL;
    return lz_config_of(c, ctx, path, root, err);
}

lz_status lz_component_config(lz_config *c, lz_context *ctx, const char *path, const lz_component *component,
                              lz_error *err) {
    if (!lz_is_derived(ctx, path)) return lz_config_open(c, ctx, path, "config.json", err);
    lz_error local = {.status = LZ_OK};
    lz_weights *w = lz_weights_open(ctx, path, &local);
    if (w) derive(c, ctx, w, path, component, &local);
    lz_weights_close(w);
    if (local.status && err) *err = local;
    return local.status;
}
