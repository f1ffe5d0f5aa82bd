/* qwen.c: the tensors and settings of Qwen-Image. */
#include <stdio.h>

#include "synth/list.h"

/* ---- settings, as published -------------------------------------------------------------------------------------- */

static const synth_settings settings[] = {
    {"scheduler/scheduler_config.json",
     "{\n  `_class_name`: `FlowMatchEulerDiscreteScheduler`,\n  `_diffusers_version`: `0.36.0.dev0`,\n"
     "  `base_image_seq_len`: 256,\n  `base_shift`: 0.5,\n  `invert_sigmas`: false,\n  `max_image_seq_len`: 8192,\n"
     "  `max_shift`: 0.9,\n  `num_train_timesteps`: 1000,\n  `shift`: 1.0,\n  `shift_terminal`: @terminal,\n"
     "  `stochastic_sampling`: false,\n  `time_shift_type`: `@shift_type`,\n  `use_beta_sigmas`: false,\n"
     "  `use_dynamic_shifting`: true,\n  `use_exponential_sigmas`: false,\n  `use_karras_sigmas`: false\n}\n"},
    {"text_encoder/config.json",
     "{\n  `architectures`: [`Qwen2_5_VLForConditionalGeneration`],\n  `attention_dropout`: 0.0,\n"
     "  `bos_token_id`: 151643,\n  `eos_token_id`: 151645,\n  `hidden_act`: `silu`,\n  `hidden_size`: $h,\n"
     "  `image_token_id`: 151655,\n  `initializer_range`: 0.02,\n  `intermediate_size`: $f,\n"
     "  `max_position_embeddings`: 128000,\n  `model_type`: `qwen2_5_vl`,\n  `num_attention_heads`: $Q,\n"
     "  `num_hidden_layers`: $L,\n  `num_key_value_heads`: $K,\n  `rms_norm_eps`: 1e-06,\n"
     "  `rope_scaling`: {`mrope_section`: [$2m, $3m, $3m], `rope_type`: `default`, `type`: `default`},\n"
     "  `rope_theta`: 1000000.0,\n  `tie_word_embeddings`: false,\n  `torch_dtype`: `bfloat16`,\n"
     "  `transformers_version`: `4.53.1`,\n  `use_cache`: true,\n  `use_sliding_window`: false,\n"
     "  `video_token_id`: 151656,\n"
     "  `vision_config`: {\n    `depth`: $b,\n    `fullatt_block_indexes`: [7, 15, 23, 31],\n"
     "    `hidden_act`: `silu`,\n    `hidden_size`: $v,\n    `in_channels`: 3,\n    `in_chans`: 3,\n"
     "    `intermediate_size`: $w,\n    `model_type`: `qwen2_5_vl`,\n    `num_heads`: $x,\n"
     "    `out_hidden_size`: $h,\n    `patch_size`: 14,\n    `spatial_merge_size`: 2,\n"
     "    `spatial_patch_size`: 14,\n    `temporal_patch_size`: 2,\n    `tokens_per_second`: 2,\n"
     "    `window_size`: 112\n  },\n"
     "  `vision_end_token_id`: 151653,\n  `vision_start_token_id`: 151652,\n  `vision_token_id`: 151654,\n"
     "  `vocab_size`: $V\n}\n"},
    {"transformer/config.json",
     "{\n  `_class_name`: `QwenImageTransformer2DModel`,\n  `_diffusers_version`: `0.36.0.dev0`,\n"
     "  `attention_head_dim`: $d,\n  `axes_dims_rope`: [$2a, $7a, $7a],\n  `guidance_embeds`: false,\n"
     "  `in_channels`: 64,\n  `joint_attention_dim`: $C,\n  `num_attention_heads`: $H,\n  `num_layers`: $N,\n"
     "  `out_channels`: 16,\n  `patch_size`: 2@zero_cond@layered\n}\n"},
    {"vae/config.json",
     "{\n  `_class_name`: `AutoencoderKLQwenImage`,\n  `_diffusers_version`: `0.36.0.dev0`,\n  `attn_scales`: [],\n"
     "  `base_dim`: $c,\n  `dim_mult`: [1, 2, 4, 4],\n  `dropout`: 0.0,\n@input_channels"
     "  `latents_mean`: [-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508, 0.4134, -0.0715, 0.5517,"
     " -0.3632, -0.1922, -0.9497, 0.2503, -0.2921],\n"
     "  `latents_std`: [2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687, 2.1526, 2.8652, 1.5579,"
     " 1.6382, 1.1253, 2.8251, 1.916],\n"
     "  `num_res_blocks`: 2,\n  `temperal_downsample`: [false, true, true],\n  `z_dim`: 16\n}\n"},
    {"processor/preprocessor_config.json",
     "{\n  `do_convert_rgb`: true,\n  `do_normalize`: true,\n  `do_rescale`: true,\n  `do_resize`: true,\n"
     "  `image_mean`: [0.48145466, 0.4578275, 0.40821073],\n  `image_processor_type`: `Qwen2VLImageProcessor`,\n"
     "  `image_std`: [0.26862954, 0.26130258, 0.27577711],\n  `max_pixels`: 12845056,\n  `merge_size`: 2,\n"
     "  `min_pixels`: 3136,\n  `patch_size`: 14,\n  `resample`: 3,\n  `rescale_factor`: 0.00392156862745098,\n"
     "  `temporal_patch_size`: 2\n}\n"},
    {"model_index.json", "{\n  `_class_name`: `@pipeline`,\n  `_diffusers_version`: `0.36.0.dev0`,\n@processor"
                         "  `scheduler`: [`diffusers`, `FlowMatchEulerDiscreteScheduler`],\n"
                         "  `text_encoder`: [`transformers`, `Qwen2_5_VLForConditionalGeneration`],\n"
                         "  `tokenizer`: [`transformers`, `Qwen2Tokenizer`],\n"
                         "  `transformer`: [`diffusers`, `QwenImageTransformer2DModel`],\n"
                         "  `vae`: [`diffusers`, `AutoencoderKLQwenImage`]\n}\n"},
    {NULL, NULL},
};

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

#define LINEAR(name, out, in)                                                                                          \
    {name ".weight", out " " in, USUAL}, { name ".bias", out, USUAL }

static const synth_row text_first[] = {{"model.embed_tokens.weight", "V h", EMBEDDING}};
static const synth_row text_layer[] = {
    {"input_layernorm.weight", "h", USUAL},    LINEAR("self_attn.q_proj", "q", "h"),
    LINEAR("self_attn.k_proj", "k", "h"),      LINEAR("self_attn.v_proj", "k", "h"),
    {"self_attn.o_proj.weight", "h q", USUAL}, {"post_attention_layernorm.weight", "h", USUAL},
    {"mlp.gate_proj.weight", "f h", USUAL},    {"mlp.up_proj.weight", "f h", USUAL},
    {"mlp.down_proj.weight", "h f", USUAL},
};
static const synth_row text_last[] = {{"model.norm.weight", "h", USUAL}, {"lm_head.weight", "V h", USUAL}};

static const synth_row vision_first[] = {{"visual.patch_embed.proj.weight", "v 3 2 14 14", USUAL}};
static const synth_row vision_block[] = {
    {"norm1.weight", "v", USUAL},      {"norm2.weight", "v", USUAL},      LINEAR("attn.qkv", "3v", "v"),
    LINEAR("attn.proj", "v", "v"),     LINEAR("mlp.gate_proj", "w", "v"), LINEAR("mlp.up_proj", "w", "v"),
    LINEAR("mlp.down_proj", "v", "w"),
};
static const synth_row vision_last[] = {
    {"visual.merger.ln_q.weight", "v", USUAL},
    LINEAR("visual.merger.mlp.0", "4v", "4v"),
    LINEAR("visual.merger.mlp.2", "h", "4v"),
};

static const synth_row transformer_first[] = {
    LINEAR("img_in", "D", "64"),
    {"txt_norm.weight", "C", USUAL},
    LINEAR("txt_in", "D", "C"),
    LINEAR("time_text_embed.timestep_embedder.linear_1", "D", "256"),
    LINEAR("time_text_embed.timestep_embedder.linear_2", "D", "D"),
};
static const synth_row transformer_kinds[] = {{"time_text_embed.addition_t_embedding.weight", "2 D", USUAL}};
static const synth_row block[] = {
    LINEAR("img_mod.1", "6D", "D"),
    LINEAR("txt_mod.1", "6D", "D"),
    LINEAR("attn.to_q", "D", "D"),
    LINEAR("attn.to_k", "D", "D"),
    LINEAR("attn.to_v", "D", "D"),
    LINEAR("attn.add_q_proj", "D", "D"),
    LINEAR("attn.add_k_proj", "D", "D"),
    LINEAR("attn.add_v_proj", "D", "D"),
    LINEAR("attn.to_out.0", "D", "D"),
    LINEAR("attn.to_add_out", "D", "D"),
    {"attn.norm_q.weight", "d", USUAL},
    {"attn.norm_k.weight", "d", USUAL},
    {"attn.norm_added_q.weight", "d", USUAL},
    {"attn.norm_added_k.weight", "d", USUAL},
    LINEAR("img_mlp.net.0.proj", "4D", "D"),
    LINEAR("img_mlp.net.2", "D", "4D"),
    LINEAR("txt_mlp.net.0.proj", "4D", "D"),
    LINEAR("txt_mlp.net.2", "D", "4D"),
};
static const synth_row transformer_last[] = {LINEAR("norm_out.linear", "2D", "D"), LINEAR("proj_out", "64", "D")};

static const synth_row causal[] = {{"weight", "o i 3 3 3", USUAL}, {"bias", "o", USUAL}};
static const synth_row pointwise[] = {{"weight", "o i 1 1 1", USUAL}, {"bias", "o", USUAL}};
static const synth_row resample[] = {{"weight", "o i 3 3", USUAL}, {"bias", "o", USUAL}};
static const synth_row in_time[] = {{"weight", "o i 3 1 1", USUAL}, {"bias", "o", USUAL}};
static const synth_row flat[] = {{"weight", "o i 1 1", USUAL}, {"bias", "o", USUAL}};
static const synth_row norm[] = {{"gamma", "o 1 1 1", USUAL}};
static const synth_row flat_norm[] = {{"gamma", "o 1 1", USUAL}};

static void text_encoder(synth_list *l) {
    synth_add(l, "", SYNTH_ROWS(text_first));
    synth_add_numbered(l, "model.layers", l->model.size['L'], SYNTH_ROWS(text_layer));
    synth_add(l, "", SYNTH_ROWS(text_last));
    synth_add(l, "", SYNTH_ROWS(vision_first));
    synth_add_numbered(l, "visual.blocks", l->model.size['b'], SYNTH_ROWS(vision_block));
    synth_add(l, "", SYNTH_ROWS(vision_last));
}

static void transformer(synth_list *l) {
    synth_add(l, "", SYNTH_ROWS(transformer_first));
    if (l->model.layered) synth_add(l, "", SYNTH_ROWS(transformer_kinds));
    synth_add_numbered(l, "transformer_blocks", l->model.size['N'], SYNTH_ROWS(block));
    synth_add(l, "", SYNTH_ROWS(transformer_last));
}

/* ---- the autoencoder --------------------------------------------------------------------------------------------- */

enum { LATENT = 16 };

static int64_t colours(const synth_list *l) { return l->model.layered ? 4 : 3; }

static void resnet(synth_list *l, const char *prefix, int64_t in, int64_t out) {
    synth_layer(l, prefix, "norm1", in, in, SYNTH_ROWS(norm));
    synth_layer(l, prefix, "conv1", in, out, SYNTH_ROWS(causal));
    synth_layer(l, prefix, "norm2", out, out, SYNTH_ROWS(norm));
    synth_layer(l, prefix, "conv2", out, out, SYNTH_ROWS(causal));
    if (in != out) synth_layer(l, prefix, "conv_shortcut", in, out, SYNTH_ROWS(pointwise));
}

static void middle(synth_list *l, const char *side, int64_t width) {
    char name[64];
    snprintf(name, sizeof name, "%smid_block.resnets.0.", side);
    resnet(l, name, width, width);
    snprintf(name, sizeof name, "%smid_block.attentions.0.", side);
    synth_layer(l, name, "norm", width, width, SYNTH_ROWS(flat_norm));
    synth_layer(l, name, "to_qkv", width, 3 * width, SYNTH_ROWS(flat));
    synth_layer(l, name, "proj", width, width, SYNTH_ROWS(flat));
    snprintf(name, sizeof name, "%smid_block.resnets.1.", side);
    resnet(l, name, width, width);
}

/* The second and third level also halve the time axis of films. */
static void encoder(synth_list *l, const int64_t width[4]) {
    char name[64];
    int64_t in = width[0];
    synth_layer(l, "encoder.", "conv_in", colours(l), in, SYNTH_ROWS(causal));
    for (int i = 0, at = 0; i < 4; i++) {
        for (int r = 0; r < 2; r++, in = width[i]) {
            snprintf(name, sizeof name, "encoder.down_blocks.%d.", at++);
            resnet(l, name, in, width[i]);
        }
        snprintf(name, sizeof name, "encoder.down_blocks.%d.", at++);
        if (i < 3) synth_layer(l, name, "resample.1", in, in, SYNTH_ROWS(resample));
        if (i == 1 || i == 2) synth_layer(l, name, "time_conv", in, in, SYNTH_ROWS(in_time));
    }
    middle(l, "encoder.", in);
    synth_layer(l, "encoder.", "norm_out", in, in, SYNTH_ROWS(norm));
    synth_layer(l, "encoder.", "conv_out", in, 2 * LATENT, SYNTH_ROWS(causal));
}

static void decoder(synth_list *l, const int64_t width[4]) {
    char name[64];
    int64_t in = width[3];
    synth_layer(l, "decoder.", "conv_in", LATENT, in, SYNTH_ROWS(causal));
    middle(l, "decoder.", in);
    for (int i = 0; i < 4; i++) {
        int64_t out = width[3 - i];
        for (int r = 0; r < 3; r++, in = out) {
            snprintf(name, sizeof name, "decoder.up_blocks.%d.resnets.%d.", i, r);
            resnet(l, name, in, out);
        }
        snprintf(name, sizeof name, "decoder.up_blocks.%d.upsamplers.0.", i);
        if (i < 3) synth_layer(l, name, "resample.1", out, out / 2, SYNTH_ROWS(resample));
        if (i < 2) synth_layer(l, name, "time_conv", out, 2 * out, SYNTH_ROWS(in_time));
        in = out / 2;
    }
    synth_layer(l, "decoder.", "norm_out", width[0], width[0], SYNTH_ROWS(norm));
    synth_layer(l, "decoder.", "conv_out", width[0], colours(l), SYNTH_ROWS(causal));
}

static void autoencoder(synth_list *l) {
    int64_t c = l->model.size['c'], width[] = {c, 2 * c, 4 * c, 4 * c};
    encoder(l, width);
    synth_layer(l, "", "quant_conv", 2 * LATENT, 2 * LATENT, SYNTH_ROWS(pointwise));
    synth_layer(l, "", "post_quant_conv", LATENT, LATENT, SYNTH_ROWS(pointwise));
    decoder(l, width);
}

const synth_family synth_qwen = {{text_encoder, transformer, autoencoder}, settings, NULL};
