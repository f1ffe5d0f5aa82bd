"""Trains the demonstration model on one GPU: autoencoder, then text encoder and transformer together, then a student
that needs no guidance and few steps. Every stage runs for the minutes it is given and leaves its weights in bf16 under
<work>; a stage whose weights lie there (or in <cache>) already is skipped or, with --more, carried on.

    python tools/demo-model/train.py --cache .demo-cache --work /tmp/demo --vae 5 --base 12 --distil 3.7
"""

import argparse
import copy
import json
import math
import pathlib
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F

import data
import export
import model

PROMPTS = [
    "a fox in 3d style on a blue background",
    "a red apple",
    "two red apples",
    "a cat left of a dog, flat style",
    "a rocket in flat style on a dark blue background",
    "an octopus in cartoon style on yellow",
    "a pizza, line style",
    "a small penguin on a light blue background",
    "three bananas in 3d style on pink",
    "a guitar in classic style",
    "a castle in 3d style on a purple background",
    "a big strawberry on a white background",
    "a teapot in white line style on teal",
    "a snowman above a pine tree in cartoon style on navy",
    "a bicycle in the top left corner in flat style on beige",
    "a tiger and an elephant, 3d style, green background",
    "four mushrooms in cartoon style",
    "a sailboat on an orange background",
]


def log(work, **row):
    row["at"] = round(time.time() - START, 1)
    print(json.dumps(row), flush=True)
    with open(work / "log.jsonl", "a") as file:
        file.write(json.dumps(row) + "\n")


class Clock:
    """Progress through a stage by the time spent; starts when the first steps (and their compiling) are over."""

    def __init__(self, minutes: float, most: int):
        self.seconds, self.most, self.step, self.start = 60 * minutes, most, 0, None

    def tick(self) -> float:
        self.step += 1
        if self.step == 4 and not self.start:
            torch.cuda.is_available() and torch.cuda.synchronize()
            self.start = time.time()
        spent = (time.time() - self.start) / self.seconds if self.start else 0.0
        return 1.0 if self.step >= self.most else min(spent, 1.0)

    def each(self) -> float:
        """Seconds a step"""
        torch.cuda.is_available() and torch.cuda.synchronize()
        return (time.time() - self.start) / max(self.step - 4, 1) if self.start else 0.0


def rate(progress: float, step: int, warm: int = 100, hold: float = 0.5) -> float:
    """Warm up, hold, fall to nearly nothing."""
    fall = min(1.0, (1 - progress) / (1 - hold))
    return min(1.0, (step + 1) / warm) * (0.02 + 0.98 * fall)


class Ema:
    def __init__(self, net, decay: float):
        self.net, self.average, self.decay, self.n = net, copy.deepcopy(net).requires_grad_(False), decay, 0

    @torch.no_grad()
    def update(self):
        self.n += 1
        d = min(self.decay, (1 + self.n) / (20 + self.n))
        torch._foreach_lerp_(list(self.average.parameters()), list(self.net.parameters()), 1 - d)


class Muon(torch.optim.Optimizer):
    """Momentum made orthogonal, for the matrices inside the blocks; equal shapes are handled together."""

    def __init__(self, matrices, lr: float, momentum: float = 0.95, decay: float = 0.01):
        super().__init__(matrices, dict(lr=lr, momentum=momentum, decay=decay))
        self.shapes = {}
        for p in self.param_groups[0]["params"]:
            self.shapes.setdefault(tuple(p.shape), []).append(p)
        self.held = {shape: [torch.zeros_like(p) for p in ps] for shape, ps in self.shapes.items()}

    @torch.no_grad()
    def step(self):
        group = self.param_groups[0]
        for shape, ps in self.shapes.items():
            held, grads = self.held[shape], [p.grad for p in ps]
            torch._foreach_lerp_(held, grads, 1 - group["momentum"])
            x = torch.stack(torch._foreach_lerp(grads, held, group["momentum"])).bfloat16()
            if shape[0] > shape[1]:
                x = x.mT
            x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
            for _ in range(5):
                a = x @ x.mT
                x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
            if shape[0] > shape[1]:
                x = x.mT
            torch._foreach_mul_(ps, 1 - group["lr"] * group["decay"])
            torch._foreach_add_(
                ps, list(x.to(ps[0].dtype).unbind()), alpha=-group["lr"] * max(1, shape[0] / shape[1]) ** 0.5
            )


def optimisers(nets, lr: float, muon: float):
    inside, rest = [], []
    for net in nets:
        for name, p in net.named_parameters():
            blocks = "layers." in name or "transformer_blocks." in name
            (
                inside if blocks and p.ndim == 2 and not name.startswith(f"model.layers.{model.TAPS[-1]}.") else rest
            ).append(p)
    adam = torch.optim.AdamW(rest, lr=lr, betas=(0.9, 0.98), weight_decay=0.0, fused=DEVICE == "cuda")
    both = [adam, Muon(inside, muon)]
    for o in both:
        for g in o.param_groups:
            g["full"] = g["lr"]
    return both


def cast():
    return torch.autocast(DEVICE, torch.bfloat16)


def compiled(f):
    return f if A.smoke else torch.compile(f)


def sheet(pictures, path, columns=6):
    from PIL import Image

    p = pictures.permute(0, 2, 3, 1).cpu().numpy()
    rows = [np.concatenate(list(p[i : i + columns]), 1) for i in range(0, len(p) // columns * columns, columns)]
    Image.fromarray(np.concatenate(rows, 0)).save(path, quality=90)


def to_bytes(x):
    return (x / 2 + 0.5).clamp(0, 1).mul(255).round().to(torch.uint8)


# ---------------------------------------------------------------------------------------------------------------------
# 1. Autoencoder


def train_vae(pool, things, painter):
    n, batch = (64, 2) if A.smoke else (2000 if A.quick else 40000, 64)
    rows, colours, _, _, shown = data.many_scenes(pool, things, 1, n, False, 1, A.tokenizer, model.TEXT_LENGTH)
    pictures = torch.cat([painter.paint(rows[i : i + 500], colours[i : i + 500]) for i in range(0, n, 500)])
    rows, colours, *_ = data.many_scenes(
        pool, things, 2, 8 if A.smoke else 512, True, 1, A.tokenizer, model.TEXT_LENGTH
    )
    test = painter.paint(rows, colours)
    sheet(pictures[:24], WORK / "sheet-data.jpg")
    log(WORK, said=shown, pictures=len(pictures))
    vae = model.Autoencoder().to(DEVICE).to(memory_format=torch.channels_last)
    ema = Ema(vae, 0.999)
    optimiser = torch.optim.AdamW(
        vae.parameters(), lr=1.5e-3, betas=(0.9, 0.98), weight_decay=1e-4, fused=DEVICE == "cuda"
    )

    def loss_of(x):
        with cast():
            mean, logvar = vae.moments(x)
            logvar = logvar.clamp(-20, 10)
            z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
            y = vae.decode(z)
        x = x.float()
        kl = 0.5 * (mean**2 + logvar.exp() - 1 - logvar).mean()
        d = y - x
        edges = (d[..., 1:] - d[..., :-1]).abs().mean() + (d[..., 1:, :] - d[..., :-1, :]).abs().mean()
        mse = (d**2).mean()
        return d.abs().mean() + 3 * mse + 0.5 * edges + A.kl * kl, mse, kl

    step_loss, clock, progress, seen = (
        compiled(loss_of),
        Clock(A.vae, 3 if A.smoke else 60 if A.quick else 10**9),
        0.0,
        [],
    )
    while progress < 1:
        x = pictures[torch.randint(len(pictures), (batch,), device=DEVICE)].to(torch.bfloat16) / 127.5 - 1
        loss, mse, kl = step_loss(x.contiguous(memory_format=torch.channels_last))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(vae.parameters(), 1.0)
        for g in optimiser.param_groups:
            g["lr"] = 1.5e-3 * rate(progress, clock.step, 300)
        optimiser.step()
        ema.update()
        progress = clock.tick()
        if clock.step % 100 == 0:
            seen.append(mse.detach())
        if clock.step % 500 == 0:
            log(
                WORK,
                stage="vae",
                step=clock.step,
                progress=round(progress, 3),
                loss=loss.item(),
                kl=kl.item(),
                dB=10 * math.log10(4 / torch.stack(seen).mean().item()),
            )
            seen = []
    vae = ema.average.eval()
    # Statistics of the latents, and how well it does on pairs it never saw, with the weights as they will be stored.
    for p in vae.parameters():
        p.data = p.data.bfloat16().float()
    with torch.no_grad(), cast():
        means = torch.cat(
            [
                model.patchify(vae.moments(pictures[i : i + 250].to(torch.bfloat16) / 127.5 - 1)[0])
                for i in range(0, min(n, 10000), 250)
            ]
        )
        vae.bn.running_mean.copy_(means.mean((0, 2, 3)))
        vae.bn.running_var.copy_(means.var((0, 2, 3)))
        for b in (vae.bn.running_mean, vae.bn.running_var):
            b.copy_(b.bfloat16().float())
        again = torch.cat(
            [to_bytes(vae.decode(vae.moments(t.to(torch.bfloat16) / 127.5 - 1)[0])) for t in test.split(64)]
        )
    error = ((again.float() - test.float()) ** 2).mean((1, 2, 3))
    log(
        WORK,
        stage="vae",
        done=clock.step,
        each=clock.each(),
        held_out_dB=(10 * torch.log10(255**2 / error.clamp_min(1e-3))).mean().item(),
        pooled_dB=10 * math.log10(255**2 / error.mean().item()),
        deviation=vae.bn.running_var.sqrt().mean().item(),
    )
    sheet(torch.stack([test[:12], again[:12]], 1).flatten(0, 1) if len(test) >= 12 else test, WORK / "sheet-vae.jpg")
    export.save_parts(vae.state_dict(), WORK, "vae")
    return vae


# ---------------------------------------------------------------------------------------------------------------------
# 2. Text encoder and transformer


def latent_pool(pool, things, painter, vae):
    """Scenes as latents, with their captions: made once, kept on the GPU."""
    n = 128 if A.smoke else 2000 if A.quick else A.pool
    rows, colours, ids, lengths, _ = data.many_scenes(pool, things, 3, n, False, 3, A.tokenizer, model.TEXT_LENGTH)
    vae = copy.deepcopy(vae).to(torch.bfloat16).to(memory_format=torch.channels_last)
    vae.bn.float()
    encode = compiled(lambda x: vae.to_tokens(vae.moments(x)[0]).bfloat16())
    z = torch.empty(n, 256, model.TRANSFORMER["in_channels"], dtype=torch.bfloat16, device=DEVICE)
    with torch.no_grad():
        for i in range(0, n, 500):
            x = painter.paint(rows[i : i + 500], colours[i : i + 500]).to(torch.bfloat16) / 127.5 - 1
            z[i : i + 500] = encode(x.contiguous(memory_format=torch.channels_last))
    log(WORK, stage="latents", n=n, mean=z[:4000].float().mean().item(), deviation=z[:4000].float().std().item())
    return z, torch.from_numpy(ids).to(DEVICE), torch.from_numpy(lengths).to(DEVICE)


def captions_only(pool, things):
    """For the last stage, which needs no pictures."""
    n = 128 if A.smoke else A.pool
    _, _, ids, lengths, _ = data.many_scenes(pool, things, 5, n, False, 1, A.tokenizer, model.TEXT_LENGTH)
    return None, torch.from_numpy(ids).to(DEVICE), torch.from_numpy(lengths).to(DEVICE)


def tokens_of(captions):
    ids, lengths = data.tokenize(data.load_tokenizer(A.tokenizer), captions, model.TEXT_LENGTH)
    return torch.from_numpy(ids).to(DEVICE).long(), torch.from_numpy(lengths).to(DEVICE).long()


def train_base(text, transformer, latents, prompts, vae, minutes, first):
    z, ids, lengths = latents
    batch = 4 if A.smoke else A.batch
    empty_ids, empty_length = tokens_of([""])
    averages = Ema(text, 0.9995), Ema(transformer, 0.9995)
    both = optimisers((text, transformer), A.lr, A.muon)

    def loss_of(x, target, t, i, n):
        with cast():
            v = transformer(x, t, text(i, n))
        return (v - target).square().mean((1, 2))

    step_loss, clock, progress, seen = (
        compiled(loss_of),
        Clock(minutes, 3 if A.smoke else 60 if A.quick else 10**9),
        0.0,
        [],
    )
    saved = time.time()
    while progress < 1:
        k = torch.randint(len(z), (batch,), device=DEVICE)
        which = torch.randint(ids.shape[1], (batch,), device=DEVICE)
        drop = torch.rand(batch, device=DEVICE) < 0.1
        i = torch.where(drop[:, None], empty_ids, ids[k, which].long())
        n = torch.where(drop, empty_length, lengths[k, which].long())
        x0 = z[k].float()
        noise = torch.randn_like(x0)
        u = torch.sigmoid(torch.randn(batch, device=DEVICE))
        u = torch.where(torch.rand(batch, device=DEVICE) < 0.1, torch.rand(batch, device=DEVICE), u)
        t = 2.5 * u / (1 + 1.5 * u)
        s = t[:, None, None]
        loss = step_loss((1 - s) * x0 + s * noise, noise - x0, t, i, n).mean()
        for o in both:
            o.zero_grad(set_to_none=False)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for o in both for p in o.param_groups[0]["params"]], 1.0)
        for o in both:
            o.param_groups[0]["lr"] = o.param_groups[0]["full"] * rate(progress, clock.step, 200, 0.45)
            o.step()
        for a in averages:
            a.update()
        progress = clock.tick()
        if clock.step % 50 == 0:
            seen.append(loss.detach())
        if clock.step % 500 == 0:
            log(WORK, stage="base", step=clock.step, progress=round(progress, 3), loss=torch.stack(seen).mean().item())
            seen = []
        if time.time() - saved > 150:
            saved = time.time()
            save_base(averages)
            show(
                averages[0].average,
                guided(averages[1].average),
                vae,
                prompts,
                f"sheet-base-{int(100 * progress)}.jpg",
                24,
            )
    save_base(averages)
    log(WORK, stage="base", done=clock.step, each=clock.each())
    return averages[0].average.eval(), averages[1].average.eval()


def save_base(averages):
    export.save_parts(averages[0].average.state_dict(), WORK, "base-text")
    export.save_parts(averages[1].average.state_dict(), WORK, "base-transformer")


# ---------------------------------------------------------------------------------------------------------------------
# Sampling


def guided(transformer):
    def velocity(x, t, text, empty):
        both = transformer(torch.cat([x, x]), torch.cat([t, t]), torch.cat([text, empty.expand(len(x), -1, -1)]))
        a, b = both.chunk(2)
        return b + A.guidance * (a - b)

    return velocity


def plain(transformer):
    return lambda x, t, text, empty: transformer(x, t, text)


@torch.no_grad()
def walk(velocity, x, text, empty, stops):
    with cast():
        for a, b in zip(stops, stops[1:]):
            x = x + (b - a) * velocity(x, torch.full((len(x),), a, device=x.device), text, empty)
    return x


def even(n):
    """A finer walk for the guided teacher"""
    return [2.5 * u / (1 + 1.5 * u) for u in np.linspace(1, 0, n + 1).tolist()]


@torch.no_grad()
def show(text_encoder, velocity, vae, prompts, name, n, stops=None):
    with cast():
        text, empty = text_encoder(*tokens_of(prompts)), text_encoder(*tokens_of([""]))
        noise = torch.cat(
            [torch.randn(1, 64, 16, 16, generator=torch.Generator().manual_seed(i)) for i in range(len(prompts))]
        )
        x = walk(velocity, noise.to(DEVICE).flatten(2).transpose(1, 2), text, empty, stops or even(n))
        pictures = torch.cat([to_bytes(vae.decode(z)) for z in vae.from_tokens(x).split(32)])
    sheet(pictures, WORK / name)


# ---------------------------------------------------------------------------------------------------------------------
# 3. Student: the same in STEPS steps and without guidance

SUBSTEPS = [1, 1, 1, 2, 2, 3, 4, 6]  # of the teacher, in every step of the student


def distil(text_encoder, teacher, latents, minutes):
    _, ids, lengths = latents
    stops = model.sigmas(model.STEPS)
    batch, n = (4, 8) if A.smoke else (512, 512 * (2 if A.quick else A.walks))
    with torch.no_grad(), cast():
        empty = text_encoder(*tokens_of([""]))
    velocity = compiled(guided(teacher))
    bank = torch.empty(n, model.STEPS + 1, 256, model.TRANSFORMER["in_channels"], dtype=torch.bfloat16, device=DEVICE)
    which = torch.randint(len(ids), (n,), device=DEVICE)
    ids, lengths = ids[which, 0].long(), lengths[which, 0].long()
    start = time.time()
    for i in range(0, n, batch):
        with torch.no_grad(), cast():
            text = text_encoder(ids[i : i + batch], lengths[i : i + batch])
        x = torch.randn(batch, 256, model.TRANSFORMER["in_channels"], device=DEVICE)
        bank[i : i + batch, 0] = x
        for k, parts in enumerate(SUBSTEPS):
            x = walk(velocity, x, text, empty, np.linspace(stops[k], stops[k + 1], parts + 1).tolist())
            bank[i : i + batch, k + 1] = x
        if time.time() - start > 0.45 * 60 * minutes:
            n = i + batch
            break
    torch.cuda.is_available() and torch.cuda.synchronize()
    log(WORK, stage="walks", n=n, seconds=time.time() - start, end_deviation=bank[:n, -1].float().std().item())
    minutes -= (time.time() - start) / 60
    student = copy.deepcopy(teacher).requires_grad_(True)
    ema = Ema(student, 0.998)
    both = optimisers((student,), 0.5 * A.lr, 0.5 * A.muon)
    sigma = torch.tensor(stops, device=DEVICE)
    fall = sigma[:-1] - sigma[1:]
    odds = 0.5 / model.STEPS + 0.5 * fall

    def loss_of(x, target, t, text):
        with cast():
            v = student(x, t, text)
        return (v - target).square().mean((1, 2))

    step_loss, clock, progress, seen = (
        compiled(loss_of),
        Clock(minutes, 3 if A.smoke else 60 if A.quick else 10**9),
        0.0,
        [],
    )
    while progress < 1:
        i = torch.randint(n, (batch,), device=DEVICE)
        k = torch.multinomial(odds, batch, replacement=True)
        with torch.no_grad(), cast():
            text = text_encoder(ids[i], lengths[i])
        x, y = bank[i, k].float(), bank[i, k + 1].float()
        loss = step_loss(x, (x - y) / fall[k][:, None, None], sigma[k], text).mean()
        for o in both:
            o.zero_grad(set_to_none=False)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        for o in both:
            o.param_groups[0]["lr"] = o.param_groups[0]["full"] * rate(progress, clock.step, 50, 0.3)
            o.step()
        ema.update()
        progress = clock.tick()
        if clock.step % 20 == 0:
            seen.append(loss.detach())
        if clock.step % 600 == 0:
            export.save_parts(ema.average.state_dict(), WORK / "final", "transformer")
        if clock.step % 200 == 0:
            log(
                WORK, stage="distil", step=clock.step, progress=round(progress, 3), loss=torch.stack(seen).mean().item()
            )
            seen = []
    log(WORK, stage="distil", done=clock.step, each=clock.each())
    return ema.average.eval()


# ---------------------------------------------------------------------------------------------------------------------


def stored(stem):
    for folder in (WORK, A.cache):
        state = export.load_parts(folder, stem)
        if state:
            return {k: v.float() if v.is_floating_point() else v for k, v in state.items()}
    return None


def main():
    torch.manual_seed(A.seed)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    only_student = A.base == 0 and bool(stored("vae")) and bool(stored("base-text"))
    things = data.Things(A.cache / "emoji.tar", pixels=not A.smoke and not only_student)
    if A.smoke and not only_student:
        things.pixels = np.random.default_rng(0).integers(0, 255, ((things.index.max() + 1), 1, 1, 4), np.uint8)
        things.pixels = np.broadcast_to(things.pixels, (len(things.pixels), 256, 256, 4))[:200]
        things.index = np.where(things.index < 200, things.index, -1)
    with ProcessPoolExecutor(2 if A.smoke else 16) as pool:
        painter = None if only_student else data.Painter(things.pixels, DEVICE)
        log(WORK, on_gpu=torch.cuda.memory_allocated() / 1e9 if DEVICE == "cuda" else 0)
        held = [(i, s) for i, s in np.argwhere(things.out) if things.weights[i] > 1.3]
        held = [held[k] for k in np.random.default_rng(4).permutation(len(held))[:6]]
        prompts = PROMPTS + [
            f"a {things.names[i]} in {data.STYLES[data.NAMES[s]][1][0]} style on a {c} background"
            for (i, s), c in zip(held, ["yellow", "blue", "white", "pink", "green", "light blue"])
        ]
        (WORK / "prompts.json").write_text(json.dumps(prompts, indent=1))
        vae = model.Autoencoder().to(DEVICE)
        state = stored("vae")
        if state:
            vae.load_state_dict(state)
        else:
            vae = train_vae(pool, things, painter)
        vae = vae.eval().requires_grad_(False)
        torch.cuda.empty_cache()
        latents = captions_only(pool, things) if only_student else latent_pool(pool, things, painter, vae)
    text, transformer = model.TextEncoder().to(DEVICE), model.Transformer().to(DEVICE)
    log(WORK, parameters=[model.count(m) for m in (text, transformer, vae)])
    done = stored("base-text")
    if done:
        text.load_state_dict(done)
        transformer.load_state_dict(stored("base-transformer"))
    if A.base > 0:
        text, transformer = train_base(text, transformer, latents, prompts, vae, A.base, not done)
    text, transformer = text.eval().requires_grad_(False), transformer.eval().requires_grad_(False)
    for p in text.parameters():
        p.data = p.data.bfloat16().float()
    show(text, guided(transformer), vae, prompts, "sheet-teacher.jpg", 24)
    if A.distil > 0:
        student = distil(text, transformer, latents, A.distil)
        for p in student.parameters():
            p.data = p.data.bfloat16().float()
        export.save_parts(text.state_dict(), WORK / "final", "text")
        export.save_parts(student.state_dict(), WORK / "final", "transformer")
        export.save_parts(vae.state_dict(), WORK / "final", "vae")
        show(text, plain(student), vae, prompts, "sheet-final.jpg", 0, model.sigmas(model.STEPS))
    log(WORK, finished=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=pathlib.Path, default=".demo-cache")
    parser.add_argument("--work", type=pathlib.Path, default="/tmp/demo")
    for name, default in dict(vae=5.0, base=12.0, distil=3.7, kl=1e-3, lr=1e-3, muon=0.01, guidance=3.0).items():
        parser.add_argument(f"--{name}", type=float, default=default)
    for name, default in dict(pool=300000, batch=768, walks=100, seed=1).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--smoke", action="store_true", help="a few steps of everything on the CPU")
    parser.add_argument("--quick", action="store_true", help="60 steps of everything: does it run, and how fast?")
    A = parser.parse_args()
    DEVICE, WORK, START = "cpu" if A.smoke else "cuda", A.work, time.time()
    A.tokenizer = str(A.cache / "tokenizer")
    WORK.mkdir(parents=True, exist_ok=True)
    (WORK / "final").mkdir(exist_ok=True)
    main()
