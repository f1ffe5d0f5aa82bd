"""The autoencoder of the second edition: from the weights of the first, for all sizes."""

import math
import random

import torch

import model
import piece
import scenes
from piece import cast, chunk_of, clock, keep, log, pixels, rate, rounded
from train import Ema, to_bytes


def vae_pictures(pool, painter, deck, n: int, kind: str, seed: int) -> dict:
    found = {}
    for job in pool.map(scenes.make, scenes.jobs(deck, seed, n, kind, 1, piece.A.tokenizer, model.SECOND_LENGTH, 200)):
        found.setdefault(job["bucket"], []).append(painter.paint(job["rows"], job["colours"], job["bucket"]))
    return {b: torch.cat(parts) for b, parts in found.items()}


def train_vae(pool, painter, deck, vae):
    pictures = vae_pictures(pool, painter, deck, 16 if piece.A.smoke else 2000 if piece.A.quick else 24000, "plain", 1)
    test = vae_pictures(pool, painter, deck, 16 if piece.A.smoke else 400, "held out", 2)
    vae = vae.train().requires_grad_(True).to(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(
        vae.parameters(), lr=6e-4, betas=(0.9, 0.98), weight_decay=1e-4, fused=piece.DEVICE == "cuda"
    )
    average, time_, progress, seen = Ema(vae, 0.998), clock(piece.A.vae), 0.0, []
    buckets = list(pictures)
    odds = [len(pictures[b]) * b[0] * b[1] for b in buckets]
    log(stage="vae", pictures=sum(map(len, pictures.values())), before=vae_dB(vae, test))
    while progress < 1:
        b = random.choices(buckets, odds)[0]
        batch = 2 if piece.A.smoke else max(16, 64 * 256 // (b[0] * b[1]))
        x = pixels(pictures[b][torch.randint(len(pictures[b]), (batch,), device=piece.DEVICE)])
        x = x.contiguous(memory_format=torch.channels_last)
        with cast():
            mean, logvar = vae.moments(x)
            logvar = logvar.clamp(-20, 10)
            y = vae.decode(mean + torch.randn_like(mean) * (0.5 * logvar).exp())
        d = y - x.float()
        kl = 0.5 * (mean**2 + logvar.exp() - 1 - logvar).mean()
        edges = (d[..., 1:] - d[..., :-1]).abs().mean() + (d[..., 1:, :] - d[..., :-1, :]).abs().mean()
        mse = (d**2).mean()
        optimiser.zero_grad(set_to_none=True)
        (d.abs().mean() + 3 * mse + 0.5 * edges + 1e-3 * kl).backward()
        torch.nn.utils.clip_grad_norm_(vae.parameters(), 1.0)
        optimiser.param_groups[0]["lr"] = 6e-4 * rate(progress, time_.step, 200, 0.4)
        optimiser.step()
        average.update()
        progress = time_.tick()
        if time_.step % 20 == 0:
            seen.append(mse.detach())
        if time_.step % 300 == 0:
            log(
                stage="vae",
                step=time_.step,
                progress=round(progress, 3),
                dB=10 * math.log10(4 / torch.stack(seen).mean().item()),
            )
            seen = []
    vae = rounded(average.average)
    with torch.no_grad(), cast():  # statistics of the latents, each size by its tokens
        means = [
            model.patchify(vae.moments(pixels(p))[0]).transpose(0, 1).flatten(1)
            for b in buckets
            for p in pictures[b][: 2000 if not piece.A.smoke else 4].split(chunk_of(b))
        ]
        means = torch.cat(means, 1).float()
        vae.bn.running_mean.copy_(means.mean(1).bfloat16().float())
        vae.bn.running_var.copy_(means.var(1).bfloat16().float())
    log(stage="vae", done=time_.step, each=time_.each(), held_out_dB=vae_dB(vae, test))
    keep(vae, "vae")
    return vae


@torch.no_grad()
def vae_dB(vae, test: dict) -> dict:
    found = {}
    for b, pictures in test.items():
        with cast():
            again = torch.cat([to_bytes(vae.decode(vae.moments(pixels(p))[0])) for p in pictures.split(chunk_of(b))])
        error = ((again.float() - pictures.float()) ** 2).mean((1, 2, 3)).clamp_min(1e-3)
        found[f"{16 * b[1]}x{16 * b[0]}"] = round((10 * torch.log10(255**2 / error)).mean().item(), 2)
    return found
