"""First-block caching and other caches of diffusers against --cache: quality at equal work, on the demo model.

    python tools/quality_caches.py run OUT --steps 50 --thresholds 0.1 0.2 --prompts 20 --judge judge.safetensors
    python tools/quality_caches.py table OUT --steps 50       # a table for a page, with errors
    python tools/quality_caches.py plot OUT TO.svg --steps 50 # quality over work

All pictures are made with the prompts and seeds of tools/quality.py, by Euler in f32 on the CPU. Caches of diffusers
run in diffusers, and --cache in Lazuli; without a cache both make the same picture. Each row is compared with the
picture of the same program without a cache.

    first-block   computes the first block of each pass. If its residual has changed by less than the threshold since
                  the last computed pass, the other blocks are replaced by what they added then. This is the rule of
                  diffusers' apply_first_block_cache, written here again, because that function fails with FLUX.2: the
                  first block of FLUX.2 has two streams, and its last has one.
    + line        the same, but what the other blocks add follows the line through the last two computed ones
    taylorseer    diffusers' TaylorSeer in its lite mode, of order 1: a line for the whole model, over the number of
                  the step; passes are computed at fixed intervals after the first three
    magcache      diffusers' MagCache, calibrated with the last prompt of the list. It keeps what all blocks added last.
    lazuli        --cache

Work is counted in passes: a pass that is computed is 1, and a pass that is not computed is the share of its operations
that remains, by torch's counter. --cache is run with as much work as each row of first-block caching (`same work`), and
with as many computed passes (`same passes`), as if the first block cost nothing.
"""

import argparse
import contextlib
import io
import json
import math
import pathlib
import subprocess

import numpy as np
import quality
from PIL import Image

KINDS = ("first-block", "first-block + line", "taylorseer", "magcache", "lazuli")


# ---------------------------------------------------------------------------------------------------------------------
# The demo model in diffusers: the pictures of all prompts at once


class Demo:
    def __init__(self, folder: pathlib.Path, lines: list):
        import torch
        from diffusers import Flux2KleinPipeline
        from torch.utils.flop_counter import FlopCounterMode

        torch.set_grad_enabled(False)
        self.torch, self.lines = torch, lines
        self.index = json.loads((folder / "model_index.json").read_text())
        self.pipe = Flux2KleinPipeline.from_pretrained(folder, torch_dtype=torch.float32)
        self.pipe.set_progress_bar_config(disable=True)
        self.model = self.pipe.transformer
        self.noise = torch.stack(
            [torch.randn((64, 16, 16), generator=torch.Generator().manual_seed(line["seed"])) for line in lines]
        )
        told = [self.encode(line["prompt"]) for line in lines]
        self.text, self.text_ids = torch.cat([t[0] for t in told]), told[0][1]
        self.image_ids = self.pipe._prepare_latent_ids(self.noise[:1])
        self.start = self.noise.flatten(2).transpose(1, 2).contiguous()  # [N, 256, 64]

        one, sigma = self.start[:1], 0.5

        def count(run):
            with FlopCounterMode(display=False) as counter:
                run()
            return counter.get_total_flops()

        whole = count(lambda: self.velocity(one, sigma, [0]))
        begun = self.begin(one, sigma, [0])
        self.first_share = count(lambda: self.end(self.begin(one, sigma, [0])[0], begun[2])) / whole
        self.no_share = count(lambda: (self.embed(one, sigma, [0]), self.end(begun[0], begun[2]))) / whole
        both = [self.velocity(one, sigma, [0]), self.end(*self.compute_rest(*begun))]
        assert (both[0] - both[1]).abs().max() < 1e-5, "the parts of a pass are not the pass"

    def encode(self, prompt: str):
        return self.pipe.encode_prompt(
            prompt=prompt, device="cpu", num_images_per_prompt=1,
            max_sequence_length=self.index["max_sequence_length"],
            text_encoder_out_layers=self.index["text_encoder_out_layers"],
        )

    def sigmas(self, steps: int) -> np.ndarray:
        from diffusers.pipelines.flux2.pipeline_flux2_klein import compute_empirical_mu

        mu = compute_empirical_mu(image_seq_len=256, num_steps=steps)
        self.pipe.scheduler.set_timesteps(sigmas=np.linspace(1, 1 / steps, steps), mu=mu)
        return self.pipe.scheduler.sigmas.numpy()

    def velocity(self, x, sigma: float, which):
        """[n, 256, 64] -> the same; which: the indices of the prompts"""
        time = self.torch.full((len(x),), float(sigma))
        return self.model(
            hidden_states=x, timestep=time, guidance=None, encoder_hidden_states=self.text[which],
            txt_ids=self.text_ids, img_ids=self.image_ids, return_dict=False,
        )[0]  # fmt: skip

    # A pass in three parts, as Flux2Transformer2DModel.forward has them

    def embed(self, x, sigma: float, which):
        m, time = self.model, self.torch.full((len(x),), float(sigma)) * 1000
        temb = m.time_guidance_embed(time, None)
        mods = m.double_stream_modulation_img(temb), m.double_stream_modulation_txt(temb)
        image, text = m.pos_embed(self.image_ids[0]), m.pos_embed(self.text_ids[0])
        rope = tuple(self.torch.cat([t, i]) for t, i in zip(text, image))
        single = m.single_stream_modulation(temb)
        return m.x_embedder(x), m.context_embedder(self.text[which]), mods, rope, (temb, single)

    def begin(self, x, sigma: float, which):
        """-> image and text after the first block, its modulations, the residual of the image"""
        image, text, mods, rope, temb = self.embed(x, sigma, which)
        text_1, image_1 = self.model.transformer_blocks[0](
            hidden_states=image, encoder_hidden_states=text, temb_mod_img=mods[0], temb_mod_txt=mods[1],
            image_rotary_emb=rope,
        )  # fmt: skip
        return image_1, text_1, (*temb, rope), image_1 - image

    def compute_rest(self, image, text, told, *_):
        joint, n = self.torch.cat([text, image], 1), text.shape[1]
        for block in self.model.single_transformer_blocks:
            joint = block(hidden_states=joint, encoder_hidden_states=None, temb_mod=told[1], image_rotary_emb=told[2])
        return joint[:, n:], told

    def end(self, image, told):
        return self.model.proj_out(self.model.norm_out(image, told[0]))

    def decode(self, x) -> np.ndarray:
        vae, torch = self.pipe.vae, self.torch
        mean = vae.bn.running_mean.view(1, -1, 1, 1)
        std = torch.sqrt(vae.bn.running_var.view(1, -1, 1, 1) + vae.config.batch_norm_eps)
        z = self.pipe._unpatchify_latents(x.transpose(1, 2).reshape(-1, 64, 16, 16) * std + mean)
        pictures = torch.cat([vae.decode(part, return_dict=False)[0] for part in z.split(4)])
        return (pictures.clamp(-1, 1) / 2 + 0.5).permute(0, 2, 3, 1).mul(255).round().byte().numpy()


def run_plain(demo: Demo, steps: int):
    x, s, every = demo.start, demo.sigmas(steps), np.arange(len(demo.start))
    for k in range(steps):
        x = x + float(s[k + 1] - s[k]) * demo.velocity(x, s[k], every)
    return x


def take(part, which):
    return tuple(take(p, which) for p in part) if isinstance(part, tuple) else part[which]


def run_first_block(demo: Demo, steps: int, threshold: float, line: bool):
    """-> latents, computed passes of each prompt"""
    torch, x, s = demo.torch, demo.start, demo.sigmas(steps)
    n = len(x)
    every, computed = np.arange(n), np.zeros(n, int)
    added, before = None, None  # by the other blocks: [n, 256, width], in the last two computed passes
    at, at_before = np.zeros(n), np.zeros(n)  # their sigmas
    for k in range(steps):
        image, text, (temb, single, rope), residual = demo.begin(x, s[k], every)
        if k == 0:
            compute, last = np.ones(n, bool), residual.clone()
            added, before = torch.zeros_like(image), torch.zeros_like(image)
        else:
            change = (residual - last).abs().mean((1, 2)) / last.abs().mean((1, 2))
            compute = (change > threshold).numpy()
        which = np.flatnonzero(compute)
        if len(which):
            told = (take(temb, which), take(single, which), rope)
            new = demo.compute_rest(image[which], text[which], told)[0] - image[which]
            before[which], at_before[which] = added[which], at[which]
            added[which], at[which], last[which] = new, s[k], residual[which]
            computed[which] += 1
        apart = np.where(at == at_before, 1, at - at_before)
        factor = np.where(~compute & line & (computed > 1), (s[k] - at) / apart, 0)
        forecast = added + torch.tensor(factor, dtype=torch.float32)[:, None, None] * (added - before)
        x = x + float(s[k + 1] - s[k]) * demo.end(image + forecast, (temb,))
    return x, computed


def run_hooked(demo: Demo, steps: int, count):
    """With a cache of diffusers applied to the model, which count() says whether it computed -> latents, passes"""
    x, s, every, computed = demo.start, demo.sigmas(steps), np.arange(len(demo.start)), 0
    with demo.model.cache_context("cond"):
        for k in range(steps):
            before = count["blocks"]
            x = x + float(s[k + 1] - s[k]) * demo.velocity(x, s[k], every)
            computed += count["blocks"] > before
    return x, np.full(len(x), computed)


def counted(demo: Demo):
    """counts evaluations of the last block"""
    count, block = dict(blocks=0), demo.model.single_transformer_blocks[-1]
    block.attn.register_forward_hook(lambda *_: count.__setitem__("blocks", count["blocks"] + 1))
    return count


def run_taylorseer(demo: Demo, steps: int, interval: int):
    from diffusers import TaylorSeerCacheConfig

    config = TaylorSeerCacheConfig(
        cache_interval=interval, max_order=1, taylor_factors_dtype=demo.torch.float32, use_lite_mode=True
    )
    demo.model.enable_cache(config)
    try:
        return run_hooked(demo, steps, demo.count)
    finally:
        demo.model.disable_cache()


def calibrate(demo: Demo, steps: int) -> list:
    from diffusers import MagCacheConfig

    told, start = io.StringIO(), demo.start
    demo.model.enable_cache(MagCacheConfig(calibrate=True, num_inference_steps=steps))
    with contextlib.redirect_stdout(told), demo.model.cache_context("cond"):
        x, s = start[-1:], demo.sigmas(steps)
        for k in range(steps):
            x = x + float(s[k + 1] - s[k]) * demo.velocity(x, s[k], [len(start) - 1])
    demo.model.disable_cache()
    return json.loads(next(line for line in told.getvalue().splitlines() if line.startswith("[1.0")))


def run_magcache(demo: Demo, steps: int, threshold: float, ratios: list):
    from diffusers import MagCacheConfig

    demo.model.enable_cache(
        MagCacheConfig(threshold=threshold, max_skip_steps=6, num_inference_steps=steps, mag_ratios=ratios)
    )
    try:
        return run_hooked(demo, steps, demo.count)
    finally:
        demo.model.disable_cache()


# ---------------------------------------------------------------------------------------------------------------------
# Lazuli


def possible(steps: int, computed: float) -> int:
    """the nearest number of passes that --cache can compute: at least 4, a fifth, one of six (src/pipeline/cache.c)"""
    return min(steps, max(round(computed), 4, steps - 4 * steps // 5, 1 + math.ceil((steps - 1) / 6)))


def run_lazuli(out: pathlib.Path, lines: list, steps: int, computed: int, arguments) -> np.ndarray:
    """pictures with this number of computed passes"""
    folder = out / f"lazuli-{steps}-{computed}"
    folder.mkdir(parents=True, exist_ok=True)
    orders = [
        dict(prompt=line["prompt"], seed=line["seed"], steps=steps, sampler="euler", output=f"{line['seed']}.png")
        | (dict(cache=round((steps - computed) / steps, 6)) if computed < steps else {})
        for line in lines
    ]
    (folder / "list.jsonl").write_text("".join(json.dumps(order) + "\n" for order in orders))
    model, lazuli = (str(pathlib.Path(p).resolve()) for p in (arguments.model, arguments.lazuli))
    subprocess.run([lazuli, "batch", "list.jsonl", "-q", "-m", model, "--device", "cpu"], cwd=folder, check=True)
    plan = [lazuli, "plan", "a", "--json", "-m", model, "-s", str(steps), "--cache", str(orders[0].get("cache", "off"))]
    got = json.loads(subprocess.run(plan, check=True, capture_output=True).stdout)["evaluations"]
    assert got == computed, f"Lazuli computes {got} passes of {steps}, not {computed}"
    return np.stack([quality.read_picture(folder / f"{line['seed']}.png") for line in lines])


# ---------------------------------------------------------------------------------------------------------------------
# Running


def kept_pictures(folder: pathlib.Path, lines: list):
    """of an earlier run; or None"""
    paths = [folder / f"{line['seed']}.png" for line in lines]
    return np.stack([quality.read_picture(p) for p in paths]) if all(p.exists() for p in paths) else None


def run(arguments):
    out, lines = arguments.out, quality.read_prompts(arguments.prompts)
    out.mkdir(parents=True, exist_ok=True)
    measure = quality.Measure(arguments.judge)
    demo = Demo(pathlib.Path(arguments.model), lines)
    demo.count = counted(demo)
    print(f"the first block and the ends are {demo.first_share:.3f} of a pass, the ends {demo.no_share:.3f}", flush=True)
    file = (out / "measures.jsonl").open("a")

    def record(steps, kind, setting, pictures, full, computed, share):
        rows = []
        for i, line in enumerate(lines):
            row = measure(pictures[i], dict(psnr=full[i]), line)
            work = float(computed[i] + share * (steps - computed[i]))
            row |= dict(steps=steps, kind=kind, setting=setting, seed=line["seed"])
            row |= dict(computed=int(computed[i]), work=work)
            file.write(json.dumps(row) + "\n")
            rows.append(row)
        file.flush()
        work, dB = (np.mean([r[k] for r in rows]) for k in ("work", "psnr"))
        print(f"{steps} {kind} {setting}: {np.mean(computed):.1f} computed, work {work:.1f}, {dB:.2f} dB", flush=True)
        return float(np.mean(computed)), float(work)

    def save(name, pictures):
        (out / name).mkdir(exist_ok=True)
        for line, picture in zip(lines, pictures):
            Image.fromarray(picture).save(out / name / f"{line['seed']}.png")

    for steps in arguments.steps:
        full = kept_pictures(out / f"diffusers-{steps}", lines)
        if full is None:
            full = demo.decode(run_plain(demo, steps))
            save(f"diffusers-{steps}", full)
        ours = run_lazuli(out, lines, steps, steps, arguments)
        apart = min(quality.psnr(a, b) for a, b in zip(full, ours))
        print(f"{steps} steps without a cache: Lazuli and diffusers agree to {apart:.1f} dB or more", flush=True)
        assert apart > 60
        every = np.full(len(lines), steps)
        record(steps, "full", 0, full, full, every, 0)
        made = set()
        for threshold in arguments.thresholds:
            for line in (False, True):
                x, computed = run_first_block(demo, steps, threshold, line)
                kind = "first-block + line" if line else "first-block"
                pictures = demo.decode(x)
                save(f"{kind.replace(' ', '')}-{steps}-{threshold}", pictures)
                mean, work = record(steps, kind, threshold, pictures, full, computed, demo.first_share)
                made |= {possible(steps, mean), possible(steps, work)}
        for computed in sorted(made | {possible(steps, p) for p in arguments.passes}):
            pictures = ours if computed >= steps else run_lazuli(out, lines, steps, computed, arguments)
            record(steps, "lazuli", computed, pictures, ours, np.full(len(lines), computed), 0)
        for interval in arguments.intervals:
            x, computed = run_taylorseer(demo, steps, interval)
            record(steps, "taylorseer", interval, demo.decode(x), full, computed, demo.no_share)
        ratios = calibrate(demo, steps) if arguments.mag else []
        for threshold in arguments.mag:
            x, computed = run_magcache(demo, steps, threshold, ratios)
            record(steps, "magcache", threshold, demo.decode(x), full, computed, demo.no_share)


# ---------------------------------------------------------------------------------------------------------------------
# Tables and plots


def read(out: pathlib.Path, steps: int) -> dict:
    """-> (kind, setting) -> seed -> measures"""
    kept = {}
    for line in (out / "measures.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["steps"] == steps:
            kept.setdefault((row["kind"], row["setting"]), {})[row["seed"]] = row
    return kept


def mean_of(rows: dict, key: str) -> float:
    return float(np.mean([row[key] for row in rows.values()]))


def show(rows: dict) -> str:
    values = [row["psnr"] for row in rows.values()]
    return f"{quality.show('psnr', *quality.mean(values))} ({min(values):.1f})"


def difference(rows: dict, others: dict) -> str:
    return quality.show("psnr", *quality.mean([rows[s]["psnr"] - others[s]["psnr"] for s in rows]), sign="+")


def table(arguments):
    kept = read(arguments.out, arguments.steps)
    judged = "sure" in next(iter(next(iter(kept.values())).values()))
    lazuli = {setting: rows for (kind, setting), rows in kept.items() if kind == "lazuli"}
    print("| threshold | passes computed | work | first-block, dB | + line, dB | `--cache`, same work, dB | better by | "
          "`--cache`, same passes, dB | better by |")  # fmt: skip
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for (kind, setting), rows in sorted(kept.items(), key=str):
        if kind != "first-block":
            continue
        computed, work = mean_of(rows, "computed"), mean_of(rows, "work")
        low, high = (f([r["computed"] for r in rows.values()]) for f in (min, max))
        same_work, same_passes = (lazuli[possible(arguments.steps, n)] for n in (work, computed))
        print(f"| {setting:g} | {computed:.1f} ({low} to {high}) | {work:.1f} | {show(rows)} | "
              f"{show(kept['first-block + line', setting])} | {show(same_work)} | {difference(same_work, rows)} | "
              f"{show(same_passes)} | {difference(same_passes, rows)} |")  # fmt: skip
    print("\n| cache | setting | passes computed | work | dB (worst) |" + (" right, % | sure, % |" if judged else ""))
    print("|---|---|---:|---:|---:|" + ("---:|---:|" if judged else ""))
    order = ("full", *KINDS)
    for (kind, setting), rows in sorted(kept.items(), key=lambda k: (order.index(k[0][0]), k[0][1])):
        cells = [f"{mean_of(rows, key):.1f}" for key in ("computed", "work")] + [show(rows) if kind != "full" else ""]
        for value in ("right", "sure") if judged else ():
            cells.append(quality.show(value, *quality.mean([row[value] for row in rows.values()])))
        print(f"| {kind} | {setting:g} | " + " | ".join(cells) + " |")
    print(f"\nN = {len(next(iter(kept.values())))}")


def plot(arguments):
    series = {}
    for (kind, setting), rows in read(arguments.out, arguments.steps).items():
        if kind == "full" or mean_of(rows, "computed") >= arguments.steps:
            continue
        values = [row[arguments.value] for row in rows.values()]
        series.setdefault(kind, []).append((mean_of(rows, "work"), *quality.mean(values)))
    drawn = {kind: sorted(series[kind]) for kind in KINDS if kind in series}
    across = f"work, in passes, of {arguments.steps}"
    arguments.to.write_text(quality.draw_plot(drawn, arguments.value, across))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run_, table_, plot_ = (commands.add_parser(c) for c in ("run", "table", "plot"))
    for command in (run_, table_, plot_):
        command.add_argument("out", type=pathlib.Path)
    run_.add_argument("--steps", type=int, nargs="+", default=[50])
    run_.add_argument("--thresholds", type=float, nargs="*", default=[0.05, 0.1, 0.15, 0.2, 0.3])
    run_.add_argument("--passes", type=int, nargs="*", default=[], help="further numbers of computed passes of --cache")
    run_.add_argument("--intervals", type=int, nargs="*", default=[2, 3, 4, 6], help="of taylorseer")
    run_.add_argument("--mag", type=float, nargs="*", default=[0.06, 0.12, 0.24], help="thresholds of magcache")
    run_.add_argument("--prompts", type=int, default=20)
    run_.add_argument("--judge", help="a file by tools/demo-model/judge.py")
    run_.add_argument("--model", default="models/demo")
    run_.add_argument("--lazuli", default="build/lazuli")
    for command in (table_, plot_):
        command.add_argument("--steps", type=int, default=50)
    plot_.add_argument("to", type=pathlib.Path)
    plot_.add_argument("--value", choices=quality.VALUES, default="psnr")
    arguments = parser.parse_args()
    dict(run=run, table=table, plot=plot)[arguments.command](arguments)


if __name__ == "__main__":
    main()
