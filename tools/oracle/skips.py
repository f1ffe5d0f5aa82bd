#!/usr/bin/env python3
"""Golden values for pictures in which evaluations of the model are skipped: passes that are forecast, and guidance in a part of
the steps or in every nth pass. The model is run by diffusers in float64; what is skipped is written down here again, as a
velocity that remembers earlier ones, so the samplers are those of samplers.py, unchanged.

    python3 tools/oracle/skips.py           writes tests/data/skips.json (needs requirements.txt)
    python3 tools/oracle/skips.py --check   computes all of it again and compares
"""

import json
import math

import numpy as np
import torch
from diffusers.pipelines.flux2.pipeline_flux2_klein import compute_empirical_mu

import flux2
import samplers
from common import TESTS, main

NOISY = ("euler_a", "lcm")


def computed(n: int, forecast: int) -> list[bool]:
    """Evenly spaced, from the first to the last; a half is rounded up."""
    m = n - forecast
    at = {math.floor(i * (n - 1) / (m - 1) + 0.5) for i in range(m)}
    return [k in at for k in range(n)]


def line(points, sigma):
    """The value at sigma of the line through the newest two points (sigma, value) that are apart; newest first."""
    (a, u), others = points[0], [p for p in points[1:] if abs(p[0] - points[0][0]) > 1e-6]
    if not others:
        return u
    b, w = others[0]
    return u + (w - u) * (sigma - a) / (b - a)


class Skipping:
    """A velocity v(x, sigma) for the samplers: evaluates `prompt` and `negative`, or forecasts them."""

    def __init__(self, case, prompt, negative, passes):
        self.case, self.prompt, self.negative = case, prompt, negative
        self.passes, self.k, self.evaluations = computed(passes, math.floor(case["cache"] * passes + 0.5)), 0, 0
        self.kept, self.differences, self.since = [], [], 0

    def __call__(self, x, sigma):
        c, k = self.case, self.k
        self.k += 1
        step = k // 2 if c["sampler"] in ("heun", "res_2s") else k
        guided = c["guidance"] > 1 and c["from"] <= step / c["steps"] < c["to"]
        fresh = guided and not self.differences
        if self.passes[k] or fresh:
            v = self.prompt(x, sigma)
            self.evaluations += 1
            self.kept = [(sigma, x - sigma * v if c["sampler"] in NOISY else v)] + self.kept[:2]
            if guided:
                self.since += 1
            if fresh or (guided and self.since == c["every"]):
                away, self.since = self.negative(x, sigma), 0
                self.evaluations += 1
                self.differences = [(sigma, v - away)] + self.differences[:2]
                return away + c["guidance"] * (v - away)
        else:
            v = line(self.kept, sigma)
            if c["sampler"] in NOISY:
                v = (x - v) / sigma
        if not guided:
            return v
        away = v - line(self.differences, sigma)
        return away + c["guidance"] * (v - away)


def case(model, sampler="euler", steps=12, cache=0.0, guidance=1.0, range=(0, 1), every=1):
    return dict(model=model, sampler=sampler, steps=steps, seed=3, cache=cache, guidance=guidance, every=every,
                **{"from": range[0], "to": range[1]})


CASES = [case("A", name, cache=0.5) for name in samplers.SAMPLERS] + [
    case("A", steps=20, cache=0.65),
    case("C", steps=6, guidance=4.0, range=(0, 0.5)),
    case("C", steps=6, guidance=4.0, range=(0.3, 0.8)),
    case("C", steps=6, guidance=4.0, every=2),
    case("C", "dpm++2m", steps=10, guidance=4.0, cache=0.5),
    case("C", "heun", steps=8, guidance=4.0, cache=0.4, range=(0.2, 0.9), every=2),
]


@torch.no_grad()
def run(c):
    pipe, size = flux2.load_model(c["model"], torch.float64), dict(width=32, height=32)
    g = torch.Generator("cpu").manual_seed(c["seed"])
    spec = flux2.MODELS[c["model"]]
    options = {k: a for k, a in spec.items() if k in ("text_encoder_out_layers", "max_sequence_length")}
    texts = [pipe.encode_prompt(prompt=text, **options) for text in ("a red fox", "")]
    latents, places = pipe.prepare_latents(1, pipe.transformer.config.in_channels // 4, 32, 32, torch.float32, "cpu", g)
    mu = compute_empirical_mu(latents.shape[1], c["steps"])
    pipe.scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / c["steps"], c["steps"]), mu=mu)
    s = [float(a) for a in pipe.scheduler.sigmas]

    def velocity(prompt, ids):
        def v(x, sigma):
            out = pipe.transformer(hidden_states=torch.as_tensor(x), timestep=torch.tensor([sigma]).double(),
                                   guidance=None, encoder_hidden_states=prompt, txt_ids=ids, img_ids=places,
                                   return_dict=False)[0]
            return out[:, : latents.shape[1]].double().numpy()
        return v

    passes = 2 * c["steps"] - 1 if c["sampler"] in ("heun", "res_2s") else c["steps"]
    v = Skipping(c, velocity(*texts[0]), velocity(*texts[1]), passes)
    x = samplers.SAMPLERS[c["sampler"]](v, latents.double().numpy(), s,
                                        lambda: torch.randn(latents.shape, generator=g).double().numpy())
    assert v.k == passes
    numbers = [float(f"{a:.7g}") for a in flux2.unpack(torch.as_tensor(x), size).flatten().tolist()]
    return dict(c, passes=passes, evaluations=v.evaluations, latents=numbers)


def make() -> list[dict]:
    return [run(c) for c in CASES]


def write() -> None:
    (TESTS / "skips.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in make()) + "\n]\n")


def verify() -> None:
    for row, again in zip(json.loads((TESTS / "skips.json").read_text()), make(), strict=True):
        assert row.keys() == again.keys() and all(row[k] == again[k] for k in row if k != "latents"), row["sampler"]
        assert np.allclose(row["latents"], again["latents"], atol=1e-6)


if __name__ == "__main__":
    main(__doc__, write, verify)
