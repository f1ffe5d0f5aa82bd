/* klein.c: the tensors and settings of FLUX.2 [klein]. */
#include <stdio.h>

#include "synth/list.h"

/* ---- settings, as published -------------------------------------------------------------------------------------- */

const char synth_qwen3_config[] =
    "{\n  `architectures`: [`Qwen3ForCausalLM`],\n  `attention_bias`: false,\n  `attention_dropout`: 0.0,\n  "
    "`bos_token_id`: 151643,\n"
    "  `dtype`: `bfloat16`,\n  `eos_token_id`: 151645,\n  `head_dim`: $e,\n  `hidden_act`: `silu`,\n  `hidden_size`: "
    "$h,\n"
    "  `initializer_range`: 0.02,\n  `intermediate_size`: $f,\n  `layer_types`: [@layer_types],\n  "
    "`max_position_embeddings`: 40960,\n"
    "  `max_window_layers`: $L,\n  `model_type`: `qwen3`,\n  `num_attention_heads`: $Q,\n  `num_hidden_layers`: $L,\n"
    "  `num_key_value_heads`: $K,\n  `rms_norm_eps`: 1e-06,\n  `rope_scaling`: null,\n  `rope_theta`: 1000000,\n"
    "  `sliding_window`: null,\n  `tie_word_embeddings`: @tied,\n  `transformers_version`: `4.56.1`,\n  `use_cache`: "
    "true,\n"
    "  `use_sliding_window`: false,\n  `vocab_size`: $V\n}\n";

const char synth_flux2_vae_config[] =
    "{\n  `_class_name`: `AutoencoderKLFlux2`,\n  `_diffusers_version`: `0.37.0.dev0`,\n  `act_fn`: `silu`,\n  "
    "`batch_norm_eps`: 0.0001,\n"
    "  `batch_norm_momentum`: 0.1,\n  `block_out_channels`: [$c, $2c, $4c, $4c],\n"
    "  `down_block_types`: [`DownEncoderBlock2D`, `DownEncoderBlock2D`, `DownEncoderBlock2D`, `DownEncoderBlock2D`],\n"
    "  `force_upcast`: true,\n  `in_channels`: 3,\n  `latent_channels`: 32,\n  `layers_per_block`: 2,\n"
    "  `mid_block_add_attention`: true,\n  `norm_num_groups`: $g,\n  `out_channels`: 3,\n  `patch_size`: [2, 2],\n"
    "  `sample_size`: 1024,\n  `up_block_types`: [`UpDecoderBlock2D`, `UpDecoderBlock2D`, `UpDecoderBlock2D`, "
    "`UpDecoderBlock2D`],\n"
    "  `use_post_quant_conv`: true,\n  `use_quant_conv`: true\n}\n";

static const synth_settings settings[] = {
    {"scheduler/scheduler_config.json",
     "{\n  `_class_name`: `FlowMatchEulerDiscreteScheduler`,\n  `_diffusers_version`: `0.37.0.dev0`,\n  "
     "`base_image_seq_len`: 256,\n"
     "  `base_shift`: 0.5,\n  `invert_sigmas`: false,\n  `max_image_seq_len`: 4096,\n  `max_shift`: 1.15,\n"
     "  `num_train_timesteps`: 1000,\n  `shift`: 3.0,\n  `shift_terminal`: null,\n  `stochastic_sampling`: false,\n"
     "  `time_shift_type`: `exponential`,\n  `use_beta_sigmas`: false,\n  `use_dynamic_shifting`: true,\n"
     "  `use_exponential_sigmas`: false,\n  `use_karras_sigmas`: false\n}\n"},
    {"text_encoder/config.json", synth_qwen3_config},
    {"transformer/config.json",
     "{\n  `_class_name`: `Flux2Transformer2DModel`,\n  `_diffusers_version`: `0.37.0.dev0`,\n  `attention_head_dim`: "
     "$d,\n"
     "  `axes_dims_rope`: [$a, $a, $a, $a],\n  `eps`: 1e-06,\n  `guidance_embeds`: false,\n  `in_channels`: 128,\n"
     "  `joint_attention_dim`: $C,\n  `mlp_ratio`: 3.0,\n  `num_attention_heads`: $H,\n  `num_layers`: $N,\n"
     "  `num_single_layers`: $S,\n  `out_channels`: null,\n  `patch_size`: 1,\n  `rope_theta`: 2000,\n"
     "  `timestep_guidance_channels`: 256\n}\n"},
    {"vae/config.json", synth_flux2_vae_config},
    {"model_index.json", "{\n  `_class_name`: `@pipeline`,\n  `_diffusers_version`: `0.37.0.dev0`,\n@distilled"
                         "  `scheduler`: [`diffusers`, `FlowMatchEulerDiscreteScheduler`],\n  `text_encoder`: "
                         "[`transformers`, `Qwen3ForCausalLM`],\n"
                         "  `tokenizer`: [`transformers`, `Qwen2TokenizerFast`],\n  `transformer`: [`diffusers`, "
                         "`Flux2Transformer2DModel`],\n@out_layers"
                         "  `vae`: [`diffusers`, `AutoencoderKLFlux2`]\n}\n"},
    {NULL, NULL},
};

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static const synth_row text_first[] = {{"model.embed_tokens.weight", "V h", EMBEDDING}};
static const synth_row text_layer[] = {
    {"self_attn.q_proj.weight", "q h", USUAL},      {"self_attn.k_proj.weight", "k h", USUAL},
    {"self_attn.v_proj.weight", "k h", USUAL},      {"self_attn.o_proj.weight", "h q", USUAL},
    {"self_attn.q_norm.weight", "e", USUAL},        {"self_attn.k_norm.weight", "e", USUAL},
    {"mlp.gate_proj.weight", "f h", USUAL},         {"mlp.up_proj.weight", "f h", USUAL},
    {"mlp.down_proj.weight", "h f", USUAL},         {"input_layernorm.weight", "h", USUAL},
    {"post_attention_layernorm.weight", "h", USUAL}};
static const synth_row text_last[] = {{"model.norm.weight", "h", USUAL}};
static const synth_row text_head[] = {{"lm_head.weight", "V h", USUAL}};

static const synth_row transformer_first[] = {{"time_guidance_embed.timestep_embedder.linear_1.weight", "D 256", USUAL},
                                              {"time_guidance_embed.timestep_embedder.linear_2.weight", "D D", USUAL},
                                              {"double_stream_modulation_img.linear.weight", "6D D", USUAL},
                                              {"double_stream_modulation_txt.linear.weight", "6D D", USUAL},
                                              {"single_stream_modulation.linear.weight", "3D D", USUAL},
                                              {"x_embedder.weight", "D 128", USUAL},
                                              {"context_embedder.weight", "D C", USUAL}};
static const synth_row double_block[] = {{"attn.norm_q.weight", "d", USUAL},
                                         {"attn.norm_k.weight", "d", USUAL},
                                         {"attn.to_q.weight", "D D", USUAL},
                                         {"attn.to_k.weight", "D D", USUAL},
                                         {"attn.to_v.weight", "D D", USUAL},
                                         {"attn.to_out.0.weight", "D D", USUAL},
                                         {"attn.norm_added_q.weight", "d", USUAL},
                                         {"attn.norm_added_k.weight", "d", USUAL},
                                         {"attn.add_q_proj.weight", "D D", USUAL},
                                         {"attn.add_k_proj.weight", "D D", USUAL},
                                         {"attn.add_v_proj.weight", "D D", USUAL},
                                         {"attn.to_add_out.weight", "D D", USUAL},
                                         {"ff.linear_in.weight", "6D D", USUAL},
                                         {"ff.linear_out.weight", "D 3D", USUAL},
                                         {"ff_context.linear_in.weight", "6D D", USUAL},
                                         {"ff_context.linear_out.weight", "D 3D", USUAL}};
static const synth_row single_block[] = {{"attn.to_qkv_mlp_proj.weight", "9D D", USUAL},
                                         {"attn.norm_q.weight", "d", USUAL},
                                         {"attn.norm_k.weight", "d", USUAL},
                                         {"attn.to_out.weight", "D 4D", USUAL}};
static const synth_row transformer_last[] = {{"norm_out.linear.weight", "2D D", USUAL},
                                             {"proj_out.weight", "128 D", USUAL}};

/* The counter comes first: it is the only tensor whose offset must be a multiple of 8. */
static const synth_row statistics[] = {
    {"bn.num_batches_tracked", "", COUNTER}, {"bn.running_mean", "128", MEAN}, {"bn.running_var", "128", VARIANCE}};
static const synth_row convolution[] = {{"weight", "o i 3 3", USUAL}, {"bias", "o", USUAL}};
static const synth_row pointwise[] = {{"weight", "o i 1 1", USUAL}, {"bias", "o", USUAL}};
static const synth_row linear[] = {{"weight", "o i", USUAL}, {"bias", "o", USUAL}};
static const synth_row norm[] = {{"weight", "o", USUAL}, {"bias", "o", USUAL}};

void synth_qwen3(synth_list *l) {
    synth_add(l, "", SYNTH_ROWS(text_first));
    synth_add_numbered(l, "model.layers", l->model.size['L'], SYNTH_ROWS(text_layer));
    synth_add(l, "", SYNTH_ROWS(text_last));
    if (!l->model.tied) synth_add(l, "", SYNTH_ROWS(text_head));
}

static void transformer(synth_list *l) {
    synth_add(l, "", SYNTH_ROWS(transformer_first));
    synth_add_numbered(l, "transformer_blocks", l->model.size['N'], SYNTH_ROWS(double_block));
    synth_add_numbered(l, "single_transformer_blocks", l->model.size['S'], SYNTH_ROWS(single_block));
    synth_add(l, "", SYNTH_ROWS(transformer_last));
}

/* ---- the autoencoder --------------------------------------------------------------------------------------------- */

static void resnet(synth_list *l, const char *prefix, int i, int64_t in, int64_t out) {
    char name[64];
    snprintf(name, sizeof name, "%sresnets.%d.", prefix, i);
    synth_layer(l, name, "norm1", in, in, SYNTH_ROWS(norm));
    synth_layer(l, name, "conv1", in, out, SYNTH_ROWS(convolution));
    synth_layer(l, name, "norm2", out, out, SYNTH_ROWS(norm));
    synth_layer(l, name, "conv2", out, out, SYNTH_ROWS(convolution));
    if (in != out) synth_layer(l, name, "conv_shortcut", in, out, SYNTH_ROWS(pointwise));
}

static void level(synth_list *l, const char *prefix, int i, int resnets, int64_t in, int64_t out,
                  const char *resample) {
    char name[64];
    snprintf(name, sizeof name, "%s.%d.", prefix, i);
    for (int r = 0; r < resnets; r++) resnet(l, name, r, r ? out : in, out);
    if (i < 3) synth_layer(l, name, resample, out, out, SYNTH_ROWS(convolution));
}

static void middle(synth_list *l, const char *prefix, int64_t width) {
    static const char *const products[] = {"to_q", "to_k", "to_v", "to_out.0"};
    char name[64];
    resnet(l, prefix, 0, width, width);
    snprintf(name, sizeof name, "%sattentions.0.", prefix);
    synth_layer(l, name, "group_norm", width, width, SYNTH_ROWS(norm));
    for (int i = 0; i < 4; i++) synth_layer(l, name, products[i], width, width, SYNTH_ROWS(linear));
    resnet(l, prefix, 1, width, width);
}

void synth_flux_vae(synth_list *l, int64_t latent, bool flux2) {
    int64_t c = l->model.size['c'], width[] = {c, 2 * c, 4 * c, 4 * c};
    if (flux2) synth_add(l, "", SYNTH_ROWS(statistics));
    synth_layer(l, "encoder.", "conv_in", 3, c, SYNTH_ROWS(convolution));
    for (int i = 0; i < 4; i++)
        level(l, "encoder.down_blocks", i, 2, width[i ? i - 1 : 0], width[i], "downsamplers.0.conv");
    middle(l, "encoder.mid_block.", 4 * c);
    synth_layer(l, "encoder.", "conv_norm_out", 4 * c, 4 * c, SYNTH_ROWS(norm));
    synth_layer(l, "encoder.", "conv_out", 4 * c, 2 * latent, SYNTH_ROWS(convolution));
    if (flux2) synth_layer(l, "", "quant_conv", 2 * latent, 2 * latent, SYNTH_ROWS(pointwise));
    if (flux2) synth_layer(l, "", "post_quant_conv", latent, latent, SYNTH_ROWS(pointwise));
    synth_layer(l, "decoder.", "conv_in", latent, 4 * c, SYNTH_ROWS(convolution));
    middle(l, "decoder.mid_block.", 4 * c);
    for (int i = 0; i < 4; i++)
        level(l, "decoder.up_blocks", i, 3, width[i ? 4 - i : 3], width[3 - i], "upsamplers.0.conv");
    synth_layer(l, "decoder.", "conv_norm_out", c, c, SYNTH_ROWS(norm));
    synth_layer(l, "decoder.", "conv_out", c, 3, SYNTH_ROWS(convolution));
}

static void autoencoder(synth_list *l) { synth_flux_vae(l, 32, true); }

const synth_family synth_klein = {{synth_qwen3, transformer, autoencoder}, settings, NULL};
