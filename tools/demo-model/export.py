"""Writes a folder in the diffusers layout of Flux2KleinPipeline from the parts that train.py leaves.

python tools/demo-model/export.py .demo-cache/final .demo-cache/tokenizer models/demo
python tools/demo-model/export.py --random ... ...      random weights, to check the layout before training
python tools/demo-model/export.py --second ...          the second edition, from the parts of train2.py; also --random --second
"""

import json
import os
import pathlib
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file

import model

SHARD = 15_000_000  # bytes


def write_json(path: pathlib.Path, data: dict):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=2) + "\n")


def save(state: dict, path: pathlib.Path):
    """Whoever copies the folder meanwhile gets the whole old file or the whole new one."""
    part = path.with_suffix(".part")
    save_file(state, part, {"format": "pt"})
    os.replace(part, path)


def save_parts(state: dict, folder: pathlib.Path, stem: str):
    """One file, or shards with an index, in bf16."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {
        k: v.detach().cpu().contiguous().to(torch.bfloat16 if v.is_floating_point() else v.dtype)
        for k, v in state.items()
    }
    shards, room = [{}], SHARD
    for name in sorted(state):
        size = state[name].numel() * state[name].element_size()
        if size > room and shards[-1]:
            shards.append({})
            room = SHARD
        shards[-1][name] = state[name]
        room -= size
    total = sum(v.numel() * v.element_size() for v in state.values())
    if len(shards) == 1:
        save(state, folder / f"{stem}.safetensors")
        return
    where = {}
    for i, shard in enumerate(shards):
        name = f"{stem}-{i + 1:05}-of-{len(shards):05}.safetensors"
        save(shard, folder / name)
        where.update({k: name for k in shard})
    write_json(folder / f"{stem}.safetensors.index.json", dict(metadata=dict(total_size=total), weight_map=where))


def load_parts(folder: pathlib.Path, stem: str) -> dict:
    state = {}
    for path in sorted(folder.glob(f"{stem}*.safetensors")):
        state.update(load_file(path))
    return state


def write_folder(text: dict, transformer: dict, vae: dict, tokenizer: pathlib.Path, to: pathlib.Path, second: bool = False):
    version = dict(_diffusers_version="0.42.1")
    write_json(
        to / "model_index.json",
        dict(
            _class_name="Flux2KleinPipeline",
            **version,
            is_distilled=True,
            scheduler=["diffusers", "FlowMatchEulerDiscreteScheduler"],
            text_encoder=["transformers", "Qwen3ForCausalLM"],
            tokenizer=["transformers", "Qwen2TokenizerFast"],
            transformer=["diffusers", "Flux2Transformer2DModel"],
            vae=["diffusers", "AutoencoderKLFlux2"],
            text_encoder_out_layers=model.TAPS,
            max_sequence_length=model.SECOND_LENGTH if second else model.TEXT_LENGTH,
            num_inference_steps=model.SECOND_STEPS if second else model.STEPS,
            width=256,
            height=256,
        ),
    )
    write_json(
        to / "scheduler/scheduler_config.json",
        dict(
            _class_name="FlowMatchEulerDiscreteScheduler",
            **version,
            base_image_seq_len=256,
            base_shift=0.5,
            invert_sigmas=False,
            max_image_seq_len=4096,
            max_shift=1.15,
            num_train_timesteps=1000,
            shift=model.SECOND_SHIFT if second else 3.0,
            shift_terminal=None,
            stochastic_sampling=False,
            time_shift_type="exponential",
            use_beta_sigmas=False,
            use_dynamic_shifting=not second,
            use_exponential_sigmas=False,
            use_karras_sigmas=False,
        ),
    )
    vocabulary = json.loads((tokenizer / "tokenizer.json").read_text())
    added = {t["content"]: t["id"] for t in vocabulary["added_tokens"]}
    c = model.TEXT
    write_json(
        to / "text_encoder/config.json",
        dict(
            architectures=["Qwen3ForCausalLM"],
            attention_bias=False,
            attention_dropout=0.0,
            bos_token_id=added["<|endoftext|>"],
            dtype="bfloat16",
            eos_token_id=added["<|im_end|>"],
            hidden_act="silu",
            initializer_range=0.02,
            layer_types=["full_attention"] * c["num_hidden_layers"],
            max_position_embeddings=4096,
            max_window_layers=c["num_hidden_layers"],
            model_type="qwen3",
            rms_norm_eps=1e-06,
            rope_scaling=None,
            sliding_window=None,
            tie_word_embeddings=True,
            use_cache=True,
            use_sliding_window=False,
            **c,
        ),
    )
    write_json(
        to / "transformer/config.json",
        dict(
            _class_name="Flux2Transformer2DModel",
            **version,
            eps=1e-06,
            guidance_embeds=False,
            out_channels=None,
            patch_size=1,
            **(model.SECOND if second else model.TRANSFORMER),
        ),
    )
    write_json(
        to / "vae/config.json",
        dict(
            _class_name="AutoencoderKLFlux2",
            **version,
            act_fn="silu",
            batch_norm_eps=0.0001,
            batch_norm_momentum=0.1,
            down_block_types=["DownEncoderBlock2D"] * 4,
            in_channels=3,
            mid_block_add_attention=True,
            out_channels=3,
            patch_size=[2, 2],
            sample_size=256,
            up_block_types=["UpDecoderBlock2D"] * 4,
            use_post_quant_conv=True,
            use_quant_conv=True,
            **model.VAE,
        ),
    )
    (to / "tokenizer").mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(tokenizer / name, to / "tokenizer" / name)
    save_parts(text, to / "text_encoder", "model")
    save_parts(transformer, to / "transformer", "diffusion_pytorch_model")
    save_parts(vae, to / "vae", "diffusion_pytorch_model")


def main():
    second, random = "--second" in sys.argv, "--random" in sys.argv
    *parts, tokenizer, to = (pathlib.Path(a) for a in sys.argv[1:] if not a.startswith("--"))
    if random:
        torch.manual_seed(0)
        states = []
        for net in (model.TextEncoder(), model.Transformer(model.SECOND if second else model.TRANSFORMER), model.Autoencoder()):
            for name, p in net.named_parameters():
                if name.endswith("bias"):
                    p.data = 0.1 * torch.randn_like(p)
                elif p.ndim > 1:
                    p.data = torch.randn_like(p) * (1.0 if "embed_tokens" in name else p[0].numel() ** -0.5)
                else:
                    p.data = 1 + 0.2 * torch.randn_like(p)
            states.append(net.state_dict())
        states[2]["bn.running_mean"] = 0.1 * torch.randn(64)
        states[2]["bn.running_var"] = 1 + torch.rand(64)
    else:
        stems = "text", "student" if second else "transformer", "vae"
        states = [load_parts(parts[0], stem) for stem in stems]
        if missing := [stem for stem, state in zip(stems, states) if not state]:
            sys.exit(f"export.py: {parts[0]} has no {' and no '.join(missing)}")
    write_folder(*states, tokenizer, to, second)
    if second:
        import scenes

        sizes = [[16 * w, 16 * h] for h, w in scenes.BUCKETS]  # sixteen, the most that Lazuli reads
        trained = dict(version="4", sizes=sizes, references=1, things=2, start_images=True, words="words.txt")
        lines = [f'  "{key}": {json.dumps(value)}' for key, value in trained.items()]
        (to / "lazuli.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    size = sum(f.stat().st_size for f in to.rglob("*") if f.is_file())
    print(f"{to}: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
