/* zimage.c: the tensors and settings of Z-Image. */
#include "synth/list.h"

/* ---- settings, as published -------------------------------------------------------------------------------------- */

static const synth_settings settings[] = {
    {"scheduler/scheduler_config.json",
     "{\n  `_class_name`: `FlowMatchEulerDiscreteScheduler`,\n  `_diffusers_version`: `0.36.0.dev0`,\n"
     "  `num_train_timesteps`: 1000,\n  `use_dynamic_shifting`: false,\n  `shift`: @shift\n}\n"},
    {"text_encoder/config.json", synth_qwen3_config},
    {"transformer/config.json",
     "{\n  `_class_name`: `ZImageTransformer2DModel`,\n  `_diffusers_version`: `0.36.0.dev0`,\n"
     "  `all_f_patch_size`: [1],\n  `all_patch_size`: [2],\n  `axes_dims`: [$4a, $6a, $6a],\n"
     "  `axes_lens`: [1536, 512, 512],\n  `cap_feat_dim`: $C,\n  `dim`: $D,\n  `in_channels`: 16,\n  `n_heads`: $H,\n"
     "  `n_kv_heads`: $H,\n  `n_layers`: $N,\n  `n_refiner_layers`: $S,\n  `norm_eps`: 1e-05,\n  `qk_norm`: true,\n"
     "  `rope_theta`: 256.0,\n  `t_scale`: 1000.0\n}\n"},
    {"vae/config.json",
     "{\n  `_class_name`: `AutoencoderKL`,\n  `_diffusers_version`: `0.36.0.dev0`,\n  `act_fn`: `silu`,\n"
     "  `block_out_channels`: [$c, $2c, $4c, $4c],\n"
     "  `down_block_types`: [`DownEncoderBlock2D`, `DownEncoderBlock2D`, `DownEncoderBlock2D`, `DownEncoderBlock2D`],\n"
     "  `force_upcast`: true,\n  `in_channels`: 3,\n  `latent_channels`: 16,\n  `latents_mean`: null,\n"
     "  `latents_std`: null,\n  `layers_per_block`: 2,\n  `mid_block_add_attention`: true,\n  `norm_num_groups`: $g,\n"
     "  `out_channels`: 3,\n  `sample_size`: 1024,\n  `scaling_factor`: 0.3611,\n  `shift_factor`: 0.1159,\n"
     "  `up_block_types`: [`UpDecoderBlock2D`, `UpDecoderBlock2D`, `UpDecoderBlock2D`, `UpDecoderBlock2D`],\n"
     "  `use_post_quant_conv`: false,\n  `use_quant_conv`: false\n}\n"},
    {"model_index.json",
     "{\n  `_class_name`: `@pipeline`,\n  `_diffusers_version`: `0.36.0.dev0`,\n"
     "  `scheduler`: [`diffusers`, `FlowMatchEulerDiscreteScheduler`],\n"
     "  `text_encoder`: [`transformers`, `Qwen3ForCausalLM`],\n  `tokenizer`: [`transformers`, `Qwen2Tokenizer`],\n"
     "  `transformer`: [`diffusers`, `ZImageTransformer2DModel`],\n  `vae`: [`diffusers`, `AutoencoderKL`]\n}\n"},
    {NULL, NULL},
};

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

#define LINEAR(name, out, in)                                                                                          \
    {name ".weight", out " " in, USUAL}, { name ".bias", out, USUAL }

static const synth_row first[] = {
    LINEAR("all_x_embedder.2-1", "D", "64"), LINEAR("t_embedder.mlp.0", "1024", "256"),
    LINEAR("t_embedder.mlp.2", "A", "1024"), {"cap_embedder.0.weight", "C", USUAL},
    LINEAR("cap_embedder.1", "D", "C"),      {"x_pad_token", "1 D", USUAL},
    {"cap_pad_token", "1 D", USUAL},
};
#define BLOCK                                                                                                          \
    {"attention.to_q.weight", "D D", USUAL}, {"attention.to_k.weight", "D D", USUAL},                                  \
        {"attention.to_v.weight", "D D", USUAL}, {"attention.to_out.0.weight", "D D", USUAL},                          \
        {"attention.norm_q.weight", "d", USUAL}, {"attention.norm_k.weight", "d", USUAL},                              \
        {"attention_norm1.weight", "D", USUAL}, {"attention_norm2.weight", "D", USUAL},                                \
        {"ffn_norm1.weight", "D", USUAL}, {"ffn_norm2.weight", "D", USUAL}, {"feed_forward.w1.weight", "F D", USUAL},  \
        {"feed_forward.w2.weight", "D F", USUAL}, {                                                                    \
        "feed_forward.w3.weight", "F D", USUAL                                                                         \
    }
static const synth_row plain[] = {BLOCK};
static const synth_row modulated[] = {BLOCK, LINEAR("adaLN_modulation.0", "4D", "A")};
static const synth_row last[] = {
    LINEAR("all_final_layer.2-1.linear", "64", "D"),
    LINEAR("all_final_layer.2-1.adaLN_modulation.1", "D", "A"),
};

static void transformer(synth_list *l) {
    l->wide = l->model.wide;
    synth_add(l, "", SYNTH_ROWS(first));
    synth_add_numbered(l, "noise_refiner", l->model.size['S'], SYNTH_ROWS(modulated));
    synth_add_numbered(l, "context_refiner", l->model.size['S'], SYNTH_ROWS(plain));
    synth_add_numbered(l, "layers", l->model.size['N'], SYNTH_ROWS(modulated));
    synth_add(l, "", SYNTH_ROWS(last));
}

static void autoencoder(synth_list *l) { synth_flux_vae(l, 16, false); }

const synth_family synth_zimage = {{synth_qwen3, transformer, autoencoder}, settings, NULL};
