/* names_tables.c: the names of each component, maker by maker (names.h). The engine's own names are not listed. */
#include "models/names.h"

#define COPY LZ_ALIAS_COPY, 0
#define ROWS(at) LZ_ALIAS_ROWS, at
#define N_ALIASES(table) .aliases = table, .n_aliases = (int)(sizeof(table) / sizeof(table)[0])

/* ---- transformers ------------------------------------------------------------------------------------------------ */

#define OF_TRANSFORMERS "", "model.diffusion_model.", "diffusion_model.", "net.", "model."

static const lz_alias flux2[] = {
    /* Black Forest Labs and ComfyUI */
    {"x_embedder", "img_in", COPY},
    {"context_embedder", "txt_in", COPY},
    {"time_guidance_embed.timestep_embedder.linear_1", "time_in.in_layer", COPY},
    {"time_guidance_embed.timestep_embedder.linear_2", "time_in.out_layer", COPY},
    {"double_stream_modulation_img.linear", "double_stream_modulation_img.lin", COPY},
    {"double_stream_modulation_txt.linear", "double_stream_modulation_txt.lin", COPY},
    {"single_stream_modulation.linear", "single_stream_modulation.lin", COPY},
    {"proj_out", "final_layer.linear", COPY},
    {"norm_out.linear", "final_layer.adaLN_modulation.1", LZ_ALIAS_SWAP, 0},
    {"transformer_blocks.#.attn.to_q", "double_blocks.#.img_attn.qkv", ROWS(0)},
    {"transformer_blocks.#.attn.to_k", "double_blocks.#.img_attn.qkv", ROWS(1)},
    {"transformer_blocks.#.attn.to_v", "double_blocks.#.img_attn.qkv", ROWS(2)},
    {"transformer_blocks.#.attn.add_q_proj", "double_blocks.#.txt_attn.qkv", ROWS(0)},
    {"transformer_blocks.#.attn.add_k_proj", "double_blocks.#.txt_attn.qkv", ROWS(1)},
    {"transformer_blocks.#.attn.add_v_proj", "double_blocks.#.txt_attn.qkv", ROWS(2)},
    {"transformer_blocks.#.attn.to_out.0", "double_blocks.#.img_attn.proj", COPY},
    {"transformer_blocks.#.attn.to_add_out", "double_blocks.#.txt_attn.proj", COPY},
    {"transformer_blocks.#.attn.norm_q", "double_blocks.#.img_attn.norm.query_norm", COPY},
    {"transformer_blocks.#.attn.norm_k", "double_blocks.#.img_attn.norm.key_norm", COPY},
    {"transformer_blocks.#.attn.norm_added_q", "double_blocks.#.txt_attn.norm.query_norm", COPY},
    {"transformer_blocks.#.attn.norm_added_k", "double_blocks.#.txt_attn.norm.key_norm", COPY},
    {"transformer_blocks.#.ff.linear_in", "double_blocks.#.img_mlp.0", COPY},
    {"transformer_blocks.#.ff.linear_out", "double_blocks.#.img_mlp.2", COPY},
    {"transformer_blocks.#.ff_context.linear_in", "double_blocks.#.txt_mlp.0", COPY},
    {"transformer_blocks.#.ff_context.linear_out", "double_blocks.#.txt_mlp.2", COPY},
    {"single_transformer_blocks.#.attn.to_qkv_mlp_proj", "single_blocks.#.linear1", COPY},
    {"single_transformer_blocks.#.attn.to_out", "single_blocks.#.linear2", COPY},
    {"single_transformer_blocks.#.attn.norm_q", "single_blocks.#.norm.query_norm", COPY},
    {"single_transformer_blocks.#.attn.norm_k", "single_blocks.#.norm.key_norm", COPY},
    /* mflux */
    {"time_guidance_embed.timestep_embedder.linear_#", "time_guidance_embed.linear_#", COPY},
    {"transformer_blocks.#.attn.to_out.0", "transformer_blocks.#.attn.to_out", COPY},
};

const lz_component lz_names_flux2 = {
    .name = "FLUX.2 transformer",
    .stem = "",
    .prefixes = {OF_TRANSFORMERS},
    .anchors = {"double_stream_modulation_img.linear.weight", "x_embedder.weight"},
    N_ALIASES(flux2),
};

/* '*': image, image_cond, txt. In a block's list it is image, image_cond. */
#define FLUX3_BLOCK(engine, file)                                                                                      \
    {engine "attn.to_q", file "q_proj", COPY}, {engine "attn.to_k", file "k_proj", COPY},                              \
        {engine "attn.to_v", file "v_proj", COPY}, {engine "attn.to_out.0", file "attn_out", COPY},                    \
        {engine "ff.linear_in", file "mlp_in", COPY}, {engine "ff.linear_out", file "mlp_out", COPY},                  \
        {engine "attn.norm_q", file "norm.query_norm", COPY}, {                                                        \
        engine "attn.norm_k", file "norm.key_norm", COPY                                                               \
    }

static const lz_alias flux3[] = {
    /* Black Forest Labs and ComfyUI */
    {"x_embedders.*", "emb_in.*", COPY},
    {"context_embedder", "txt_in", COPY},
    {"timestep_embedder.linear_1", "time_in.in_layer", COPY},
    {"timestep_embedder.linear_2", "time_in.out_layer", COPY},
    {"target_timestep_embedder.linear_1", "ref_time_in.in_layer", COPY},
    {"target_timestep_embedder.linear_2", "ref_time_in.out_layer", COPY},
    {"early_stream_modulations.*.linear", "early_stream_modulations.*.lin", COPY},
    {"single_stream_modulations.*.linear", "single_stream_modulations.*.lin", COPY},
    {"proj_out", "final_layer.image.linear", COPY},
    {"norm_out.linear", "final_layer.image.adaLN_modulation.1", LZ_ALIAS_SWAP, 0},
    FLUX3_BLOCK("txt_mode_blocks.#.", "txt_mode_blocks.#."),
    FLUX3_BLOCK("mode_blocks.*.#.", "content_mode_blocks.*.#."),
    FLUX3_BLOCK("single_transformer_blocks.#.", "single_blocks.#."),
};

const lz_component lz_names_flux3 = {
    .name = "FLUX.3 transformer",
    .stem = "",
    .prefixes = {OF_TRANSFORMERS},
    .anchors = {"early_stream_modulations.image.linear.weight", "x_embedders.image.weight"},
    N_ALIASES(flux3),
};

/* Every maker but mflux has the names of diffusers. */
static const lz_alias qwen_image[] = {
    {"transformer_blocks.#.attn.to_out.0", "transformer_blocks.#.attn.attn_to_out.0", COPY},
    {"transformer_blocks.#.img_mod.1", "transformer_blocks.#.img_mod_linear", COPY},
    {"transformer_blocks.#.txt_mod.1", "transformer_blocks.#.txt_mod_linear", COPY},
    {"transformer_blocks.#.img_mlp.net.0.proj", "transformer_blocks.#.img_ff.mlp_in", COPY},
    {"transformer_blocks.#.img_mlp.net.2", "transformer_blocks.#.img_ff.mlp_out", COPY},
    {"transformer_blocks.#.txt_mlp.net.0.proj", "transformer_blocks.#.txt_ff.mlp_in", COPY},
    {"transformer_blocks.#.txt_mlp.net.2", "transformer_blocks.#.txt_ff.mlp_out", COPY},
};

const lz_component lz_names_qwen_image = {
    .name = "Qwen-Image transformer",
    .stem = "",
    .prefixes = {OF_TRANSFORMERS},
    .anchors = {"txt_norm.weight", "img_in.weight", "transformer_blocks.0.attn.add_k_proj.weight"},
    N_ALIASES(qwen_image),
};

/* Every maker has the names of diffusers. */
const lz_component lz_names_qwen_image21 = {
    .name = "Qwen-Image 2.1 transformer",
    .stem = "",
    .prefixes = {OF_TRANSFORMERS},
    .anchors = {"txt_in.text_norm.weight", "img_in.weight", "transformer_blocks.0.img_mlp.gate_layer.weight"},
};

/* '*': layers, noise_refiner, context_refiner */
static const lz_alias z_image[] = {
    /* ComfyUI */
    {"all_x_embedder.2-1", "x_embedder", COPY},
    {"all_final_layer.2-1.linear", "final_layer.linear", COPY},
    {"all_final_layer.2-1.adaLN_modulation.1", "final_layer.adaLN_modulation.1", COPY},
    {"*.#.attention.to_q", "*.#.attention.qkv", ROWS(0)},
    {"*.#.attention.to_k", "*.#.attention.qkv", ROWS(1)},
    {"*.#.attention.to_v", "*.#.attention.qkv", ROWS(2)},
    {"*.#.attention.to_out.0", "*.#.attention.out", COPY},
    {"*.#.attention.norm_q", "*.#.attention.q_norm", COPY},
    {"*.#.attention.norm_k", "*.#.attention.k_norm", COPY},
    /* mflux */
    {"t_embedder.mlp.0", "t_embedder.linear1", COPY},
    {"t_embedder.mlp.2", "t_embedder.linear2", COPY},
    {"all_final_layer.2-1.adaLN_modulation.1", "all_final_layer.2-1.adaLN_modulation.0", COPY},
};

const lz_component lz_names_z_image = {
    .name = "Z-Image transformer",
    .stem = "",
    .prefixes = {OF_TRANSFORMERS},
    .anchors = {"cap_embedder.1.weight", "noise_refiner.0.attention.norm_k.weight"},
    N_ALIASES(z_image),
};

/* ---- text encoders ----------------------------------------------------------------------------------------------- */

/* llama.cpp has no stem, nor has mflux. ComfyUI can save q, k, v as one matrix, and gate and up as one. */
static const lz_alias language[] = {
    {"embed_tokens", "token_embd", COPY},
    {"norm", "output_norm", COPY},
    {"layers.#.input_layernorm", "blk.#.attn_norm", COPY},
    {"layers.#.post_attention_layernorm", "blk.#.ffn_norm", COPY},
    {"layers.#.self_attn.q_proj", "blk.#.attn_q", COPY},
    {"layers.#.self_attn.k_proj", "blk.#.attn_k", COPY},
    {"layers.#.self_attn.v_proj", "blk.#.attn_v", COPY},
    {"layers.#.self_attn.o_proj", "blk.#.attn_output", COPY},
    {"layers.#.self_attn.q_norm", "blk.#.attn_q_norm", COPY},
    {"layers.#.self_attn.k_norm", "blk.#.attn_k_norm", COPY},
    {"layers.#.mlp.gate_proj", "blk.#.ffn_gate", COPY},
    {"layers.#.mlp.up_proj", "blk.#.ffn_up", COPY},
    {"layers.#.mlp.down_proj", "blk.#.ffn_down", COPY},
    {"layers.#.self_attn.q_proj", "layers.#.self_attn.qkv_proj", ROWS(0)},
    {"layers.#.self_attn.k_proj", "layers.#.self_attn.qkv_proj", ROWS(-2)},
    {"layers.#.self_attn.v_proj", "layers.#.self_attn.qkv_proj", ROWS(-1)},
    {"layers.#.mlp.gate_proj", "layers.#.mlp.gate_up_proj", ROWS(0)},
    {"layers.#.mlp.up_proj", "layers.#.mlp.gate_up_proj", ROWS(1)},
};

#define OF_LANGUAGE                                                                                                    \
    "model.", "model.language_model.", "language_model.model.", "", "encoder.", "text_encoders.*.transformer.model."

const lz_component lz_names_qwen3 = {
    .name = "Qwen3 text encoder",
    .stem = "model.",
    .prefixes = {OF_LANGUAGE},
    .anchors = {"layers.0.self_attn.q_norm.weight", "embed_tokens.weight"},
    N_ALIASES(language),
};

const lz_component lz_names_qwen25 = {
    .name = "Qwen2.5-VL text encoder",
    .stem = "model.",
    .prefixes = {OF_LANGUAGE},
    .anchors = {"layers.0.self_attn.k_proj.bias", "embed_tokens.weight"},
    N_ALIASES(language),
};

static const lz_alias vision[] = {
    /* llama.cpp's mmproj files; older ones have up and down exchanged, which their shapes tell */
    {"patch_embed.proj", "v.patch_embd", LZ_ALIAS_FRAMES, 0},
    {"blocks.#.norm1", "v.blk.#.ln1", COPY},
    {"blocks.#.norm2", "v.blk.#.ln2", COPY},
    {"blocks.#.attn.qkv", "v.blk.#.attn_@", LZ_ALIAS_QKV, 0},
    {"blocks.#.attn.qkv", "v.blk.#.attn_qkv", COPY},
    {"blocks.#.attn.proj", "v.blk.#.attn_out", COPY},
    {"blocks.#.mlp.gate_proj", "v.blk.#.ffn_gate", COPY},
    {"blocks.#.mlp.up_proj", "v.blk.#.ffn_up", LZ_ALIAS_IF_FITS, 0},
    {"blocks.#.mlp.up_proj", "v.blk.#.ffn_down", COPY},
    {"blocks.#.mlp.down_proj", "v.blk.#.ffn_down", LZ_ALIAS_IF_FITS, 0},
    {"blocks.#.mlp.down_proj", "v.blk.#.ffn_up", COPY},
    {"merger.ln_q", "v.post_ln", COPY},
    {"merger.mlp.0", "mm.0", COPY},
    {"merger.mlp.2", "mm.2", COPY},
    /* mflux */
    {"merger.mlp.0", "merger.mlp_0", COPY},
    {"merger.mlp.2", "merger.mlp_1", COPY},
};

const lz_component lz_names_qwen25_vision = {
    .name = "Qwen2.5-VL vision encoder",
    .stem = "visual.",
    .prefixes = {"visual.", "model.visual.", "encoder.visual.", "", "text_encoders.*.transformer.visual."},
    .anchors = {"merger.ln_q.weight", "blocks.0.norm1.weight"},
    N_ALIASES(vision),
};

const lz_component lz_names_qwen3_vision = {
    .name = "Qwen3-VL vision encoder",
    .stem = "visual.",
    .prefixes = {"visual.", "model.visual.", "encoder.visual.", "text_encoders.*.transformer.visual.",
                 "text_encoders.*.transformer.model.visual."},
    .anchors = {"merger.linear_fc1.weight", "blocks.0.norm1.weight", "pos_embed.weight"},
};

/* ---- autoencoders ------------------------------------------------------------------------------------------------ */

#define OF_AUTOENCODERS "", "vae.", "first_stage_model."

/* '*' at the beginning: encoder, decoder. The first table is for FLUX.1 too. */
static const lz_alias flux_vae[] = {
    /* Black Forest Labs: up blocks are counted from the last one */
    {"quant_conv", "encoder.quant_conv", COPY},
    {"post_quant_conv", "decoder.post_quant_conv", COPY},
    {"*.conv_norm_out", "*.norm_out", COPY},
    {"*.mid_block.resnets.#.*", "*.mid.block_{a+1}.*", COPY},
    {"*.mid_block.attentions.0.group_norm", "*.mid.attn_1.norm", COPY},
    {"*.mid_block.attentions.0.to_q", "*.mid.attn_1.q", COPY},
    {"*.mid_block.attentions.0.to_k", "*.mid.attn_1.k", COPY},
    {"*.mid_block.attentions.0.to_v", "*.mid.attn_1.v", COPY},
    {"*.mid_block.attentions.0.to_out.0", "*.mid.attn_1.proj_out", COPY},
    {"encoder.down_blocks.#.resnets.#.conv_shortcut", "encoder.down.#.block.#.nin_shortcut", COPY},
    {"encoder.down_blocks.#.resnets.#.*", "encoder.down.#.block.#.*", COPY},
    {"encoder.down_blocks.#.downsamplers.0.conv", "encoder.down.#.downsample.conv", COPY},
    {"decoder.up_blocks.#.resnets.#.conv_shortcut", "decoder.up.{z-a}.block.{b}.nin_shortcut", COPY},
    {"decoder.up_blocks.#.resnets.#.*", "decoder.up.{z-a}.block.{b}.*", COPY},
    {"decoder.up_blocks.#.upsamplers.0.conv", "decoder.up.{z-a}.upsample.conv", COPY},
    /* mflux */
    {"*.mid_block.attentions.0.to_out.0", "*.mid_block.attentions.0.to_out", COPY},
    {"*.conv_in", "*.conv_in.conv2d", COPY},
    {"*.conv_in", "*.conv_in.conv", COPY},
    {"*.conv_out", "*.conv_out.conv2d", COPY},
    {"*.conv_out", "*.conv_out.conv", COPY},
    {"*.conv_norm_out", "*.conv_norm_out.norm", COPY},
};

const lz_component lz_names_flux2_vae = {
    .name = "FLUX.2 autoencoder",
    .stem = "",
    .prefixes = {OF_AUTOENCODERS},
    .anchors = {"bn.running_mean", "decoder.mid_block.attentions.0.group_norm.weight", "encoder.conv_in.weight"},
    N_ALIASES(flux_vae),
};

/* A FLUX.2 autoencoder has these names too: ask for that first. */
const lz_component lz_names_flux1_vae = {
    .name = "FLUX.1 autoencoder",
    .stem = "",
    .prefixes = {OF_AUTOENCODERS},
    .anchors = {"decoder.mid_block.attentions.0.group_norm.weight", "encoder.conv_in.weight"},
    N_ALIASES(flux_vae),
};

static const lz_alias qwen_vae[] = {
    /* Wan: flat lists of blocks, each with two resnets (the encoder) or three, and what resizes */
    {"quant_conv", "conv1", COPY},
    {"post_quant_conv", "conv2", COPY},
    {"*.conv_in", "*.conv1", COPY},
    {"*.norm_out", "*.head.0", COPY},
    {"*.conv_out", "*.head.2", COPY},
    {"*.mid_block.attentions.0.*", "*.middle.1.*", COPY},
    {"*.mid_block.resnets.#.norm1", "*.middle.{2a}.residual.0", COPY},
    {"*.mid_block.resnets.#.conv1", "*.middle.{2a}.residual.2", COPY},
    {"*.mid_block.resnets.#.norm2", "*.middle.{2a}.residual.3", COPY},
    {"*.mid_block.resnets.#.conv2", "*.middle.{2a}.residual.6", COPY},
    {"encoder.down_blocks.#.norm1", "encoder.downsamples.#.residual.0", COPY},
    {"encoder.down_blocks.#.conv1", "encoder.downsamples.#.residual.2", COPY},
    {"encoder.down_blocks.#.norm2", "encoder.downsamples.#.residual.3", COPY},
    {"encoder.down_blocks.#.conv2", "encoder.downsamples.#.residual.6", COPY},
    {"encoder.down_blocks.#.conv_shortcut", "encoder.downsamples.#.shortcut", COPY},
    {"encoder.down_blocks.#.resample.1", "encoder.downsamples.#.resample.1", COPY},
    {"encoder.down_blocks.#.time_conv", "encoder.downsamples.#.time_conv", COPY},
    {"decoder.up_blocks.#.resnets.#.norm1", "decoder.upsamples.{4a+b}.residual.0", COPY},
    {"decoder.up_blocks.#.resnets.#.conv1", "decoder.upsamples.{4a+b}.residual.2", COPY},
    {"decoder.up_blocks.#.resnets.#.norm2", "decoder.upsamples.{4a+b}.residual.3", COPY},
    {"decoder.up_blocks.#.resnets.#.conv2", "decoder.upsamples.{4a+b}.residual.6", COPY},
    {"decoder.up_blocks.#.resnets.#.conv_shortcut", "decoder.upsamples.{4a+b}.shortcut", COPY},
    {"decoder.up_blocks.#.upsamplers.0.resample.1", "decoder.upsamples.{4a+3}.resample.1", COPY},
    {"decoder.up_blocks.#.upsamplers.0.time_conv", "decoder.upsamples.{4a+3}.time_conv", COPY},
    /* mflux: kernels for films have a part of their own, blocks of the encoder are in levels */
    {"quant_conv", "quant_conv.conv3d", COPY},
    {"post_quant_conv", "post_quant_conv.conv3d", COPY},
    {"*.conv_in", "*.conv_in.conv3d", COPY},
    {"*.conv_out", "*.conv_out.conv3d", COPY},
    {"*.mid_block.resnets.#.*", "*.mid_block.resnets.#.*.conv3d", COPY},
    {"encoder.down_blocks.#.conv_shortcut", "encoder.down_blocks.{a/3}.resnets.{a%3}.skip_conv.conv3d", COPY},
    {"encoder.down_blocks.#.resample.1", "encoder.down_blocks.{a/3}.downsamplers.0.resample_conv", COPY},
    {"encoder.down_blocks.#.*", "encoder.down_blocks.{a/3}.resnets.{a%3}.*.conv3d", COPY},
    {"encoder.down_blocks.#.*", "encoder.down_blocks.{a/3}.resnets.{a%3}.*", COPY},
    {"decoder.up_blocks.#.resnets.#.conv_shortcut", "decoder.up_block#.resnets.#.skip_conv.conv3d", COPY},
    {"decoder.up_blocks.#.resnets.#.*", "decoder.up_block#.resnets.#.*.conv3d", COPY},
    {"decoder.up_blocks.#.resnets.#.*", "decoder.up_block#.resnets.#.*", COPY},
    {"decoder.up_blocks.#.upsamplers.0.resample.1", "decoder.up_block#.upsamplers.0.resample_conv", COPY},
};

const lz_component lz_names_qwen_vae = {
    .name = "Qwen-Image autoencoder",
    .stem = "",
    .prefixes = {OF_AUTOENCODERS},
    .anchors = {"decoder.mid_block.resnets.0.norm1.gamma", "decoder.mid_block.attentions.0.to_qkv.weight",
                "decoder.norm_out.gamma"},
    N_ALIASES(qwen_vae),
};

/* Before Qwen-Image's, whose names it has too. */
const lz_component lz_names_qwen21_vae = {
    .name = "Qwen-Image 2.1 autoencoder",
    .stem = "",
    .prefixes = {OF_AUTOENCODERS},
    .anchors = {"decoder.mid_block.resnets.0.norm1.gamma", "decoder.up_blocks.0.upsampler.resample.1.weight",
                "encoder.down_blocks.0.resnets.0.conv1.weight"},
};
