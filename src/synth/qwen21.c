/* qwen21.c: the tensors and settings of Qwen-Image 2.1. */
#include <stdio.h>

#include "synth/list.h"

/* ---- settings, as published -------------------------------------------------------------------------------------- */

const char synth_qwen3_vl_config[] =
    "{\n  `architectures`: [`Qwen3VLForConditionalGeneration`],\n  `image_token_id`: 151655,\n"
    "  `model_type`: `qwen3_vl`,\n"
    "  `text_config`: {\n    `attention_bias`: false,\n    `attention_dropout`: 0.0,\n    `bos_token_id`: 151643,\n"
    "    `dtype`: `bfloat16`,\n    `eos_token_id`: 151645,\n    `head_dim`: $e,\n    `hidden_act`: `silu`,\n"
    "    `hidden_size`: $h,\n    `initializer_range`: 0.02,\n    `intermediate_size`: $f,\n"
    "    `max_position_embeddings`: 262144,\n    `model_type`: `qwen3_vl_text`,\n    `num_attention_heads`: $Q,\n"
    "    `num_hidden_layers`: $L,\n    `num_key_value_heads`: $K,\n    `rms_norm_eps`: 1e-06,\n"
    "    `rope_scaling`: {`mrope_interleaved`: true, `mrope_section`: [$6m, $5m, $5m], `rope_type`: `default`},\n"
    "    `rope_theta`: 5000000,\n    `use_cache`: true,\n    `vocab_size`: $V\n  },\n"
    "  `tie_word_embeddings`: @tied,\n  `transformers_version`: `4.57.0`,\n  `video_token_id`: 151656,\n"
    "  `vision_config`: {\n    `deepstack_visual_indexes`: [@deep],\n    `depth`: $b,\n"
    "    `hidden_act`: `gelu_pytorch_tanh`,\n    `hidden_size`: $v,\n    `in_channels`: 3,\n"
    "    `initializer_range`: 0.02,\n    `intermediate_size`: $w,\n    `model_type`: `qwen3_vl`,\n"
    "    `num_heads`: $x,\n    `num_position_embeddings`: 2304,\n    `out_hidden_size`: $h,\n    `patch_size`: 16,\n"
    "    `spatial_merge_size`: 2,\n    `temporal_patch_size`: 2\n  },\n"
    "  `vision_end_token_id`: 151653,\n  `vision_start_token_id`: 151652\n}\n";

static const synth_settings settings[] = {
    {"scheduler/scheduler_config.json",
     "{\n  `_class_name`: `FlowMatchEulerDiscreteScheduler`,\n  `_diffusers_version`: `0.42.0`,\n"
     "  `base_image_seq_len`: 256,\n  `base_shift`: 0.5,\n  `invert_sigmas`: false,\n  `max_image_seq_len`: 8192,\n"
     "  `max_shift`: 0.9,\n  `num_train_timesteps`: 1000,\n  `shift`: 1.0,\n  `shift_terminal`: @terminal,\n"
     "  `stochastic_sampling`: false,\n  `time_shift_type`: `exponential`,\n  `use_beta_sigmas`: false,\n"
     "  `use_dynamic_shifting`: @dynamic,\n  `use_exponential_sigmas`: false,\n  `use_karras_sigmas`: false\n}\n"},
    {"text_encoder/config.json", synth_qwen3_vl_config},
    {"transformer/config.json",
     "{\n  `_class_name`: `QwenImage21Transformer2DModel`,\n  `_diffusers_version`: `0.42.0`,\n"
     "  `attention_head_dim`: $d,\n  `axes_dims_rope`: [$2a, $7a, $7a],\n  `causal_condition`: true,\n"
     "  `context_in_dim`: $C,\n  `eps`: 1e-06,\n  `in_channels`: 64,\n  `mlp_ratio`: 3,\n"
     "  `num_attention_heads`: $H,\n  `num_layers`: $N,\n  `out_channels`: 64,\n  `patch_size`: 1\n}\n"},
    {"vae/config.json",
     "{\n  `_class_name`: `AutoencoderKLQwenImage21`,\n  `_diffusers_version`: `0.42.0`,\n  `attn_scales`: [],\n"
     "  `base_dim`: $c,\n  `decoder_base_dim`: $g,\n  `dim_mult`: [1, 2, 4, 8, 8],\n  `dropout`: 0.0,\n"
     "  `in_channels`: 4,\n  `is_residual`: true,\n"
     "  `latents_mean`: [0.5126, 0.7721, -0.0631, 1.3506, -0.7855, -2.1025, -0.3458, 1.3722, 1.8873, -1.7177, -0.651,"
     " 0.2732, 0.7562, -0.6163, -1.0277, 3.8363, 2.021, 0.0472, 0.932, 2.0087, 2.4954, -0.1391, -1.4249, 1.8464,"
     " -0.5236, 1.2826, 3.7046, -1.3035, 2.7286, -1.4518, -1.9036, -1.9955, -0.0342, -1.0265, -0.7636, 3.0555, 0.0746,"
     " -3.0751, -0.1076, 1.7376, -1.0914, -1.9435, -0.2784, -1.368, 0.4809, -0.4433, 0.3764, 0.5729, -2.0595, 1.096,"
     " -1.326, -2.0211, -5.0179, 0.5275, 4.0162, 1.8505, 0.3026, 1.9373, 1.4937, 0.2632, 0.5547, -1.7121, -0.1562,"
     " 0.0304],\n"
     "  `latents_std`: [3.2001, 3.2936, 3.4321, 3.0091, 3.1061, 4.0379, 4.0705, 3.791, 3.0785, 3.65, 3.9308, 3.0904,"
     " 2.8778, 3.7675, 3.732, 5.0756, 3.2864, 4.0397, 3.1317, 4.0443, 2.9249, 3.9454, 3.0988, 4.2489, 3.4896, 3.8513,"
     " 3.9323, 3.4719, 3.7498, 4.283, 3.5694, 4.2467, 3.9037, 3.2947, 5.077, 3.5075, 3.27, 3.4767, 2.8063, 5.1125,"
     " 3.5327, 4.7833, 3.1286, 4.1819, 3.8527, 3.8312, 3.5605, 4.3875, 3.9624, 4.0168, 3.5643, 4.055, 5.5614, 4.2963,"
     " 4.408, 3.4959, 3.8747, 3.7608, 3.5735, 3.149, 3.7662, 3.6746, 3.4563, 3.8161],\n"
     "  `num_res_blocks`: 2,\n  `out_channels`: 4,\n  `patch_size`: null,\n  `scale_factor_spatial`: 16,\n"
     "  `scale_factor_temporal`: 8,\n  `temperal_downsample`: [false, true, true, true],\n  `z_dim`: 64\n}\n"},
    {"processor/preprocessor_config.json",
     "{\n  `image_mean`: [0.5, 0.5, 0.5],\n  `image_processor_type`: `Qwen2VLImageProcessorFast`,\n"
     "  `image_std`: [0.5, 0.5, 0.5],\n  `merge_size`: 2,\n  `patch_size`: 16,\n"
     "  `processor_class`: `Qwen3VLProcessor`,\n  `size`: {`longest_edge`: 16777216, `shortest_edge`: 65536},\n"
     "  `temporal_patch_size`: 2\n}\n"},
    {"model_index.json", "{\n  `_class_name`: `@pipeline`,\n  `_diffusers_version`: `0.42.0`,\n"
                         "  `processor`: [`transformers`, `Qwen3VLProcessor`],\n@sigmas"
                         "  `scheduler`: [`diffusers`, `FlowMatchEulerDiscreteScheduler`],\n"
                         "  `text_encoder`: [`transformers`, `Qwen3VLForConditionalGeneration`],\n"
                         "  `transformer`: [`diffusers`, `QwenImage21Transformer2DModel`],\n"
                         "  `vae`: [`diffusers`, `AutoencoderKLQwenImage21`]\n}\n"},
    {NULL, NULL},
};

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

#define LINEAR(name, out, in)                                                                                          \
    {name ".weight", out " " in, USUAL}, { name ".bias", out, USUAL }
#define NORM(name, size)                                                                                               \
    {name ".weight", size, USUAL}, { name ".bias", size, USUAL }

static const synth_row text_first[] = {{"model.language_model.embed_tokens.weight", "V h", EMBEDDING}};
static const synth_row text_layer[] = {
    {"input_layernorm.weight", "h", USUAL},    {"self_attn.q_proj.weight", "q h", USUAL},
    {"self_attn.k_proj.weight", "k h", USUAL}, {"self_attn.v_proj.weight", "k h", USUAL},
    {"self_attn.q_norm.weight", "e", USUAL},   {"self_attn.k_norm.weight", "e", USUAL},
    {"self_attn.o_proj.weight", "h q", USUAL}, {"post_attention_layernorm.weight", "h", USUAL},
    {"mlp.gate_proj.weight", "f h", USUAL},    {"mlp.up_proj.weight", "f h", USUAL},
    {"mlp.down_proj.weight", "h f", USUAL},
};
static const synth_row text_last[] = {{"model.language_model.norm.weight", "h", USUAL}};
static const synth_row text_head[] = {{"lm_head.weight", "V h", USUAL}};

static const synth_row vision_first[] = {
    {"model.visual.patch_embed.proj.weight", "v 3 2 16 16", USUAL},
    {"model.visual.patch_embed.proj.bias", "v", USUAL},
    {"model.visual.pos_embed.weight", "2304 v", EMBEDDING},
};
static const synth_row vision_block[] = {
    NORM("norm1", "v"),
    NORM("norm2", "v"),
    LINEAR("attn.qkv", "3v", "v"),
    LINEAR("attn.proj", "v", "v"),
    LINEAR("mlp.linear_fc1", "w", "v"),
    LINEAR("mlp.linear_fc2", "v", "w"),
};
static const synth_row vision_last[] = {
    NORM("model.visual.merger.norm", "v"),
    LINEAR("model.visual.merger.linear_fc1", "4v", "4v"),
    LINEAR("model.visual.merger.linear_fc2", "h", "4v"),
};
static const synth_row vision_deep[] = {
    NORM("norm", "4v"),
    LINEAR("linear_fc1", "4v", "4v"),
    LINEAR("linear_fc2", "h", "4v"),
};

static const synth_row transformer_first[] = {
    {"time_text_embed.timestep_embedder.linear_1.weight", "D 256", USUAL},
    {"time_text_embed.timestep_embedder.linear_2.weight", "D D", USUAL},
    {"txt_in.text_norm.weight", "C", MEAN}, /* the weight minus 1 */
    {"txt_in.in_layer.weight", "D C", USUAL},
    {"txt_in.out_layer.weight", "D D", USUAL},
    {"img_in.weight", "D 64", USUAL},
    {"modulation.1.weight", "4D D", USUAL},
};
static const synth_row block[] = {
    {"attn.to_q.weight", "D D", USUAL},           {"attn.to_k.weight", "D D", USUAL},
    {"attn.to_v.weight", "D D", USUAL},           {"attn.to_out.0.weight", "D D", USUAL},
    {"attn.norm_q.weight", "d", USUAL},           {"attn.norm_k.weight", "d", USUAL},
    {"img_mlp.proj.weight", "3D D", USUAL},       {"img_mlp.out.weight", "D 3D", USUAL},
    {"img_mlp.gate_layer.weight", "3D D", USUAL},
};
static const synth_row transformer_last[] = {{"norm_out.linear.weight", "D D", USUAL},
                                             {"proj_out.weight", "64 D", USUAL}};

static const synth_row conv3[] = {{"weight", "o i 3 3", USUAL}, {"bias", "o", USUAL}};
static const synth_row conv1[] = {{"weight", "o i 1 1", USUAL}, {"bias", "o", USUAL}};
static const synth_row norm[] = {{"gamma", "o 1 1 1", USUAL}};
static const synth_row flat_norm[] = {{"gamma", "o 1 1", USUAL}};

void synth_qwen3_vl(synth_list *l) {
    synth_add(l, "", SYNTH_ROWS(text_first));
    synth_add_numbered(l, "model.language_model.layers", l->model.size['L'], SYNTH_ROWS(text_layer));
    synth_add(l, "", SYNTH_ROWS(text_last));
    if (!l->model.tied) synth_add(l, "", SYNTH_ROWS(text_head));
    synth_add(l, "", SYNTH_ROWS(vision_first));
    synth_add_numbered(l, "model.visual.blocks", l->model.size['b'], SYNTH_ROWS(vision_block));
    synth_add(l, "", SYNTH_ROWS(vision_last));
    synth_add_numbered(l, "model.visual.deepstack_merger_list", 3, SYNTH_ROWS(vision_deep));
}

static void transformer(synth_list *l) {
    synth_add(l, "", SYNTH_ROWS(transformer_first));
    synth_add_numbered(l, "transformer_blocks", l->model.size['N'], SYNTH_ROWS(block));
    synth_add(l, "", SYNTH_ROWS(transformer_last));
}

/* ---- the autoencoder --------------------------------------------------------------------------------------------- */

enum { LATENT = 64, COLOURS = 4, LEVELS = 5 };

static void resnet(synth_list *l, const char *prefix, int64_t in, int64_t out) {
    synth_layer(l, prefix, "norm1", in, in, SYNTH_ROWS(norm));
    synth_layer(l, prefix, "conv1", in, out, SYNTH_ROWS(conv3));
    synth_layer(l, prefix, "norm2", out, out, SYNTH_ROWS(norm));
    synth_layer(l, prefix, "conv2", out, out, SYNTH_ROWS(conv3));
    if (in != out) synth_layer(l, prefix, "conv_shortcut", in, out, SYNTH_ROWS(conv1));
}

static void middle(synth_list *l, const char *side, int64_t width) {
    char name[64];
    snprintf(name, sizeof name, "%smid_block.resnets.0.", side);
    resnet(l, name, width, width);
    snprintf(name, sizeof name, "%smid_block.attentions.0.", side);
    synth_layer(l, name, "norm", width, width, SYNTH_ROWS(flat_norm));
    synth_layer(l, name, "to_qkv", width, 3 * width, SYNTH_ROWS(conv1));
    synth_layer(l, name, "proj", width, width, SYNTH_ROWS(conv1));
    snprintf(name, sizeof name, "%smid_block.resnets.1.", side);
    resnet(l, name, width, width);
}

/* Of the encoder the first level, and of the decoder the last that resizes, does not resize the time of films. */
static void levels(synth_list *l, const char *list, const char *resize, const int64_t width[LEVELS], int resnets,
                   int flat, int64_t times) {
    char name[64];
    int64_t in = width[0];
    for (int i = 0; i < LEVELS; i++) {
        for (int r = 0; r < resnets; r++, in = width[i]) {
            snprintf(name, sizeof name, "%s.%d.resnets.%d.", list, i, r);
            resnet(l, name, in, width[i]);
        }
        if (i == LEVELS - 1) break;
        snprintf(name, sizeof name, "%s.%d.%s.", list, i, resize);
        synth_layer(l, name, "resample.1", in, in, SYNTH_ROWS(conv3));
        if (i != flat) synth_layer(l, name, "time_conv", in, times * in, SYNTH_ROWS(conv1));
    }
}

static void autoencoder(synth_list *l) {
    int64_t c = l->model.size['c'], g = l->model.size['g'];
    const int64_t down[LEVELS] = {c, 2 * c, 4 * c, 8 * c, 8 * c}, up[LEVELS] = {8 * g, 8 * g, 4 * g, 2 * g, g};
    l->wide = true;
    synth_layer(l, "encoder.", "conv_in", COLOURS, c, SYNTH_ROWS(conv3));
    levels(l, "encoder.down_blocks", "downsampler", down, 2, 0, 1);
    middle(l, "encoder.", 8 * c);
    synth_layer(l, "encoder.", "norm_out", 8 * c, 8 * c, SYNTH_ROWS(norm));
    synth_layer(l, "encoder.", "conv_out", 8 * c, 2 * LATENT, SYNTH_ROWS(conv3));
    synth_layer(l, "", "quant_conv", 2 * LATENT, 2 * LATENT, SYNTH_ROWS(conv1));
    synth_layer(l, "", "post_quant_conv", LATENT, LATENT, SYNTH_ROWS(conv1));
    synth_layer(l, "decoder.", "conv_in", LATENT, 8 * g, SYNTH_ROWS(conv3));
    middle(l, "decoder.", 8 * g);
    levels(l, "decoder.up_blocks", "upsampler", up, 3, 3, 2);
    synth_layer(l, "decoder.", "norm_out", g, g, SYNTH_ROWS(norm));
    synth_layer(l, "decoder.", "conv_out", g, COLOURS, SYNTH_ROWS(conv3));
}

const synth_family synth_qwen21 = {{synth_qwen3_vl, transformer, autoencoder}, settings, "processor"};
