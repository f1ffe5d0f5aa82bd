"""Compares three painters of one folder from the same noise: this directory's modules, diffusers and lazuli.

python tools/demo-model/check.py models/demo build/lazuli ["a prompt" ...]      (needs diffusers)
"""

import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from PIL import Image
from diffusers import Flux2KleinPipeline

import data
import export
import model


def psnr(a, b):
    mse = np.mean((a.astype(float) - b.astype(float)) ** 2)
    return 99.0 if mse == 0 else 10 * math.log10(255**2 / mse)


def main():
    folder, lazuli = pathlib.Path(sys.argv[1]), sys.argv[2]
    prompts = sys.argv[3:] or [
        "a fox in 3d style on a blue background",
        "two red apples",
        "A cat left of a dog, flat style",
    ]
    pipe = Flux2KleinPipeline.from_pretrained(folder, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    own = model.TextEncoder(), model.Transformer(), model.Autoencoder()
    for net, (sub, stem) in zip(
        own, [("text_encoder", "model"), ("transformer", "diffusion_pytorch_model"), ("vae", "diffusion_pytorch_model")]
    ):
        net.load_state_dict(
            {k: v.float() if v.is_floating_point() else v for k, v in export.load_parts(folder / sub, stem).items()}
        )
        net.eval()
    tokenizer = data.load_tokenizer(folder / "tokenizer")
    for seed, prompt in enumerate(prompts):
        noise = torch.randn(1, 64, 16, 16, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            image = pipe(
                prompt=prompt,
                width=256,
                height=256,
                num_inference_steps=model.STEPS,
                latents=noise,
                text_encoder_out_layers=model.TAPS,
                max_sequence_length=model.TEXT_LENGTH,
            ).images[0]
            ids, lengths = data.tokenize(tokenizer, [prompt], model.TEXT_LENGTH)
            text = own[0](torch.from_numpy(ids).long(), torch.from_numpy(lengths).long())
            x, s = noise.flatten(2).transpose(1, 2), model.sigmas(model.STEPS)
            for a, b in zip(s, s[1:]):
                x = x + (b - a) * own[1](x, torch.tensor([a]), text)
            mine = own[2].decode(own[2].from_tokens(x))[0].permute(1, 2, 0)
            mine = (mine / 2 + 0.5).clamp(0, 1).mul(255).round().numpy().astype(np.uint8)
        with tempfile.TemporaryDirectory() as place:
            out = f"{place}/out.png"
            done = subprocess.run(
                [
                    lazuli,
                    "generate",
                    "-m",
                    str(folder),
                    "-p",
                    prompt,
                    "-o",
                    out,
                    "-S",
                    str(seed),
                    "-W",
                    "256",
                    "-H",
                    "256",
                    "-s",
                    str(model.STEPS),
                    "-q",
                ],
                capture_output=True,
                text=True,
            )
            other = np.asarray(Image.open(out).convert("RGB")) if done.returncode == 0 else None
        image = np.asarray(image)
        said = f"{psnr(image, other):.1f} dB" if other is not None else done.stderr.strip()
        print(
            f"{prompt!r}: own modules {psnr(image, mine):.1f} dB, lazuli {said} (against diffusers, float32)",
            flush=True,
        )


if __name__ == "__main__":
    main()
