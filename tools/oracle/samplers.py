#!/usr/bin/env python3
"""Golden values for samplers and schedules, by diffusers where it has them, otherwise by formulas in float64.

    python3 tools/oracle/samplers.py           writes tests/data/samplers.json (needs requirements.txt)
    python3 tools/oracle/samplers.py --check   computes all of it again and compares

samplers.json holds
    fields      a sampler over a schedule, on v(x, sigma) = sin(1.3 x + 0.7 sigma) + 0.4 x (1 - sigma) - 0.2 -> the last x
    schedules   a schedule of the table, a shift, the size of the table and steps -> sigmas
    pictures    a sampler, steps and a seed -> latents of FLUX.2 [klein] A, 32 x 32 pixels, in float64; the model is run by
                diffusers, the sampler is that of `fields`
"""

import json
import math

import numpy as np
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler
from diffusers.pipelines.flux2.pipeline_flux2_klein import compute_empirical_mu
from diffusers.schedulers import scheduling_flow_match_euler_discrete
from scipy.stats import beta as beta_distribution

import flux2
from common import TESTS, main

START = [[-2.0, 0.5, 1.7]]
NOISE = 0.5


def field(x, sigma):
    return np.sin(1.3 * x + 0.7 * sigma) + 0.4 * x * (1 - sigma) - 0.2


# ---- samplers ---------------------------------------------------------------------------------------------------------


def euler(v, x, s, noise):
    for a, b in zip(s, s[1:]):
        x = x + (b - a) * v(x, a)
    return x


def heun(v, x, s, noise):
    for a, b in zip(s, s[1:]):
        d = v(x, a)
        y = x + (b - a) * d
        x = y if b == 0 else x + (b - a) * (d + v(y, b)) / 2
    return x


def dpmpp_2m(v, x, s, noise):
    old = None
    for k, (a, b) in enumerate(zip(s, s[1:])):
        clean = mixed = x - a * v(x, a)
        if old is not None and b > 0:
            r = math.log(s[k - 1] / a) / math.log(a / b)
            mixed = (1 + 1 / (2 * r)) * clean - old / (2 * r)
        x, old = b / a * x + (1 - b / a) * mixed, clean
    return x


def res_multistep(v, x, s, noise):
    old = None
    for k, (a, b) in enumerate(zip(s, s[1:])):
        clean = x - a * v(x, a)
        if old is None or b == 0:
            x = b / a * x + (1 - b / a) * clean
        else:
            h = math.log(a / b)
            one = (1 - math.exp(-h)) / h
            two, c = (1 - one) / h, math.log(a / s[k - 1]) / h
            x = math.exp(-h) * x + h * ((one - two / c) * clean + two / c * old)
        old = clean
    return x


def res_2s(v, x, s, noise):
    for a, b in zip(s, s[1:]):
        clean = x - a * v(x, a)
        if b == 0:
            return clean
        h, c = math.log(a / b), 0.5
        one = (1 - math.exp(-h)) / h
        two, m = (1 - one) / h, a * math.exp(-c * h)
        y = x + h * c * (1 - math.exp(-c * h)) / (c * h) * (clean - x)
        second = y - m * v(y, m)
        x = x + h * ((one - two / c) * (clean - x) + two / c * (second - x))
    return x


def euler_a(v, x, s, noise):
    for a, b in zip(s, s[1:]):
        clean = x - a * v(x, a)
        if b == 0:
            return clean
        down = b * (1 + (b / a - 1))
        x = down / a * x + (1 - down / a) * clean
        scale = (1 - b) / (1 - down)
        x = scale * x + math.sqrt(b**2 - down**2 * scale**2) * noise()
    return x


def lcm(v, x, s, noise):
    """stochastic_sampling of diffusers' scheduler."""
    scheduler = FlowMatchEulerDiscreteScheduler(stochastic_sampling=True)
    scheduler.set_timesteps(sigmas=list(s[:-1]))
    scheduler.sigmas = torch.tensor(s, dtype=torch.float64)
    draw = scheduling_flow_match_euler_discrete.randn_tensor
    scheduling_flow_match_euler_discrete.randn_tensor = lambda shape, **_: torch.as_tensor(noise()).expand(shape)
    for k, t in enumerate(scheduler.timesteps):
        x = scheduler.step(torch.as_tensor(v(x, s[k])), t, torch.as_tensor(x)).prev_sample.double().numpy()
    scheduling_flow_match_euler_discrete.randn_tensor = draw
    return x


def unipc(v, x, s, noise):
    """diffusers' scheduler with this list of sigmas."""
    scheduler = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, solver_order=2,
                                        solver_type="bh2")
    scheduler.set_timesteps(len(s) - 1)
    exact = [a - 1e-6 if abs(a - 1) < 1e-6 else a for a in s]
    scheduler.sigmas = torch.tensor(exact, dtype=torch.float64)
    scheduler.timesteps = torch.arange(len(s) - 1, 0, -1)
    scheduler.num_inference_steps = len(s) - 1
    for k, t in enumerate(scheduler.timesteps):
        x = scheduler.step(torch.as_tensor(v(x, s[k]))[None], t, torch.as_tensor(x)[None]).prev_sample[0].numpy()
    return x


SAMPLERS = {"euler": euler, "heun": heun, "dpm++2m": dpmpp_2m, "unipc": unipc, "res_multistep": res_multistep,
            "res_2s": res_2s, "euler_a": euler_a, "lcm": lcm}


def shifted(shift, steps):
    u = 1 - np.arange(steps + 1) / steps
    return [float(np.float32(a)) for a in shift * u / (1 + (shift - 1) * u)]


def make_fields() -> list[dict]:
    rows = []
    for name, sampler in SAMPLERS.items():
        for shift, steps in ((3, 8), (1, 5), (6.93, 16), (3, 1), (3, 2), (3, 3)):
            s = shifted(shift, steps)
            rows.append(dict(sampler=name, sigmas=s, first=0, x=sampler(
                field, np.array(START), s, lambda: np.array(NOISE))[0].tolist()))
        s = shifted(3, 9)  # a picture that starts in the middle of its schedule
        rows.append(dict(sampler=name, sigmas=s, first=3, x=sampler(
            field, np.array(START), s[3:], lambda: np.array(NOISE))[0].tolist()))
    return rows


# ---- schedules --------------------------------------------------------------------------------------------------------


def make_list(name, shift, size, n):
    def g(t):
        return shift * t / (1 + (shift - 1) * t)

    table = [g((i + 1) / size) for i in range(size)]
    if n == 1:
        return [1.0, 0.0]
    i, low = np.arange(n), table[0]
    if name == "simple":
        s = [table[size - 1 - k * size // n] for k in range(n)]
    elif name in ("sgm_uniform", "normal"):
        s = g(np.linspace(1, low, n + 1)[:-1] if name == "sgm_uniform" else np.linspace(1, low, n)).tolist()
    elif name in ("beta", "beta57"):
        at = np.rint(beta_distribution.ppf(1 - np.linspace(0, 1, n, endpoint=False),
                                           *((0.6, 0.6) if name == "beta" else (0.5, 0.7))) * (size - 1)).astype(int)
        s = [table[k] for j, k in enumerate(at) if j == 0 or k != at[j - 1]]
    elif name in ("karras", "exponential"):
        scheduler = FlowMatchEulerDiscreteScheduler()
        convert = scheduler._convert_to_karras if name == "karras" else scheduler._convert_to_exponential
        s = np.asarray(convert(in_sigmas=torch.tensor([1.0, low], dtype=torch.float64), num_inference_steps=n)).tolist()
    elif name == "kl_optimal":
        s = np.tan(i / (n - 1) * np.arctan(low) + (1 - i / (n - 1)) * np.arctan(1)).tolist()
    elif name == "linear_quadratic":
        half = n // 2
        rest, d = n - half, half - 0.025 * n
        q, slope = d / (half * rest**2), 0.025 / half - 2 * d / rest**2
        s = [1 - (0.025 * k / half if k < half else q * k**2 + slope * k + q * half**2) for k in range(n)]
    else:
        m = n + 2
        p, slope = int(0.6 * m), 0.2 * 40 / m

        def arc(k, pivot, start, end):
            a = [(1 + 2 / math.pi * math.atan(-slope * (x - pivot))) / 2 for x in range(k)]
            return [(y - a[-1]) / (a[0] - a[-1]) * (start - end) + end for y in a]

        s = (arc(p, p, 1, 0.5)[:-1] + arc(m - p, 0, 0.5, 0))[:-1]
    return s + [0.0]


def make_schedules() -> list[dict]:
    names = ["simple", "beta", "beta57", "sgm_uniform", "normal", "karras", "exponential", "kl_optimal",
             "linear_quadratic", "bong_tangent"]
    return [dict(schedule=name, shift=shift, dynamic=size > 1000, steps=n,
                 sigmas=[float(f"{a:.9g}") for a in make_list(name, shift, size, n)])
            for name in names for shift, size, n in ((3, 1000, 8), (1, 1000, 1), (6.93, 1000, 2), (3.1, 1000, 3),
                                                      (7.5383, 10000, 4), (2, 10000, 50), (3, 1000, 90))]


# ---- pictures ---------------------------------------------------------------------------------------------------------


@torch.no_grad()
def make_pictures() -> list[dict]:
    return [dict(sampler=name, steps=5, seed=3, latents=run_model(sampler, 5, 3)) for name, sampler in SAMPLERS.items()]


def run_model(sampler, steps, seed):
    pipe, c = flux2.load_model("A", torch.float64), dict(width=32, height=32)
    g = torch.Generator("cpu").manual_seed(seed)
    options = {k: a for k, a in flux2.MODELS["A"].items() if k in ("text_encoder_out_layers", "max_sequence_length")}
    prompt, ids = pipe.encode_prompt(prompt="a red fox", **options)
    latents, places = pipe.prepare_latents(1, pipe.transformer.config.in_channels // 4, 32, 32, torch.float32, "cpu", g)
    scheduler = pipe.scheduler
    scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / steps, steps), mu=compute_empirical_mu(latents.shape[1], steps))
    s = [float(a) for a in scheduler.sigmas]

    def v(x, sigma):
        out = pipe.transformer(hidden_states=torch.as_tensor(x), timestep=torch.tensor([sigma]).double(), guidance=None,
                               encoder_hidden_states=prompt, txt_ids=ids, img_ids=places, return_dict=False)[0]
        return out[:, : latents.shape[1]].double().numpy()

    x = sampler(v, latents.double().numpy(), s, lambda: torch.randn(latents.shape, generator=g).double().numpy())
    return [float(f"{a:.7g}") for a in flux2.unpack(torch.as_tensor(x), c).flatten().tolist()]


def make() -> dict:
    return dict(fields=make_fields(), schedules=make_schedules(), pictures=make_pictures())


def write() -> None:
    lines = [f'"{key}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]" for key, rows in make().items()]
    (TESTS / "samplers.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def verify() -> None:
    def same(a, b):
        if isinstance(a, dict):
            return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
        if isinstance(a, list):
            return len(a) == len(b) and all(same(*both) for both in zip(a, b))
        return abs(a - b) < 1e-6 if isinstance(a, float) else a == b

    assert same(json.loads((TESTS / "samplers.json").read_text()), json.loads(json.dumps(make())))


if __name__ == "__main__":
    main(__doc__, write, verify)
