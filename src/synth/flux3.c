/* flux3.c: the tensors and settings of FLUX.3 [klein]. */
#include "synth/list.h"

/* ---- settings, with the defaults of diffusers -------------------------------------------------------------------- */

#define REPO "`pretrained_model_name_or_path`: `black-forest-labs/flux-3-image-klein`, `revision`: null"

static const synth_settings settings[] = {
    {"scheduler/scheduler_config.json",
     "{\n  `_class_name`: `FlowMatchEulerDiscreteScheduler`,\n  `_diffusers_version`: `0.42.0`,\n"
     "  `num_train_timesteps`: 1000,\n  `shift`: 6.93,\n  `use_dynamic_shifting`: false\n}\n"},
    {"text_encoder/config.json", synth_qwen3_vl_config},
    {"transformer/config.json",
     "{\n  `_class_name`: `Flux3Transformer2DModel`,\n  `_diffusers_version`: `0.42.0`,\n"
     "  `attention_head_dim`: $d,\n  `axes_dims_rope`: [$a, $a, $a, $a],\n  `cond_in_channels`: 128,\n"
     "  `eps`: 1e-06,\n  `flow_map`: @flow_map,\n  `in_channels`: 128,\n  `joint_attention_dim`: $C,\n"
     "  `mlp_ratio`: 3.0,\n  `num_attention_heads`: $H,\n  `num_layers`: $N,\n  `num_single_layers`: $S,\n"
     "  `rope_theta`: 10000,\n  `timestep_channels`: 256\n}\n"},
    {"vae/config.json", synth_flux2_vae_config},
    {"modular_model_index.json",
     "{\n  `_blocks_class_name`: `@blocks`,\n  `_class_name`: `@pipeline`,\n  `_diffusers_version`: `0.42.0`,\n"
     "@eight_layers"
     "  `scheduler`: [null, null, {" REPO ", `subfolder`: `scheduler`,\n"
     "    `type_hint`: [`diffusers`, `FlowMatchEulerDiscreteScheduler`]}],\n"
     "  `text_encoder`: [null, null, {" REPO ", `subfolder`: `text_encoder`,\n"
     "    `type_hint`: [`transformers`, `Qwen3VLForConditionalGeneration`]}],\n"
     "  `tokenizer`: [null, null, {" REPO ", `subfolder`: `tokenizer`,\n"
     "    `type_hint`: [`transformers`, `Qwen3VLProcessor`]}],\n"
     "  `transformer`: [null, null, {" REPO ", `subfolder`: `transformer`,\n"
     "    `type_hint`: [`diffusers`, `Flux3Transformer2DModel`]}],\n"
     "  `vae`: [null, null, {" REPO ", `subfolder`: `vae`,\n"
     "    `type_hint`: [`diffusers`, `AutoencoderKLFlux2`]}]\n}\n"},
    {NULL, NULL},
};

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static const synth_row time[] = {{"timestep_embedder.linear_1.weight", "D 256", USUAL},
                                 {"timestep_embedder.linear_2.weight", "D D", USUAL}};
static const synth_row target[] = {{"target_timestep_embedder.linear_1.weight", "D 256", USUAL},
                                   {"target_timestep_embedder.linear_2.weight", "D D", USUAL}};
static const synth_row modulations[] = {{"image.linear.weight", "3D D", USUAL},
                                        {"image_cond.linear.weight", "3D D", USUAL},
                                        {"txt.linear.weight", "3D D", USUAL}};
static const synth_row first[] = {{"x_embedders.image.weight", "D 128", USUAL},
                                  {"x_embedders.image_cond.weight", "D 128", USUAL},
                                  {"context_embedder.weight", "D C", USUAL}};
static const synth_row block[] = {
    {"attn.to_q.weight", "D D", USUAL},     {"attn.to_k.weight", "D D", USUAL},
    {"attn.to_v.weight", "D D", USUAL},     {"attn.norm_q.weight", "d", USUAL},
    {"attn.norm_k.weight", "d", USUAL},     {"attn.to_out.0.weight", "D D", USUAL},
    {"ff.linear_in.weight", "6D D", USUAL}, {"ff.linear_out.weight", "D 3D", USUAL},
};
static const synth_row last[] = {{"norm_out.linear.weight", "2D D", USUAL}, {"proj_out.weight", "128 D", USUAL}};

static void transformer(synth_list *l) {
    static const char *const own[] = {"mode_blocks.image", "mode_blocks.image_cond", "txt_mode_blocks"};
    synth_add(l, "", SYNTH_ROWS(time));
    if (l->model.distilled) synth_add(l, "", SYNTH_ROWS(target));
    synth_add(l, "early_stream_modulations.", SYNTH_ROWS(modulations));
    synth_add(l, "single_stream_modulations.", SYNTH_ROWS(modulations));
    synth_add(l, "", SYNTH_ROWS(first));
    for (int i = 0; i < 3; i++) synth_add_numbered(l, own[i], l->model.size['N'], SYNTH_ROWS(block));
    synth_add_numbered(l, "single_transformer_blocks", l->model.size['S'], SYNTH_ROWS(block));
    synth_add(l, "", SYNTH_ROWS(last));
}

static void autoencoder(synth_list *l) { synth_flux_vae(l, 32, true); }

const synth_family synth_flux3 = {{synth_qwen3_vl, transformer, autoencoder}, settings, NULL};
