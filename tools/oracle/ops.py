#!/usr/bin/env python3
"""Golden values for every op, from NumPy and PyTorch alone: tests/data/ops.safetensors and tests/data/ops.txt.

    python tools/oracle/ops.py            (needs numpy, torch, safetensors; never needed at run time)

ops.safetensors holds the inputs and the expected outputs. ops.txt says what to do with them, one case per line, so that
a C test can read it with nothing but strtok:

    name  op  in=x3,x4@p0,2,1  out=y17  axis=1  ulp=4  abs=1e-07  rabs=0

  in    input tensors. Behind a name may stand views, applied from left to right: @p0,2,1 permute, @s1,0,9,2 slice
        (axis, start, stop, step), @r2,3 reshape, @b4,2,3 broadcast. The C test applies them with Lazuli's own view
        ops, so the op under test meets strided inputs. A lone "-" is an absent (NULL) input.
  out   expected outputs; their shapes and types must match exactly.
  ulp, abs   how far a fast backend may be off: |got - want| <= ulp * spacing(want) + abs, in the type of the output.
  rulp, rabs the same for the reference backend (default 1 and 0: it computes in f64 and rounds once per op).
  all other keys are parameters of the op. Lists are comma separated.

Expected values are computed in float64 from the stored inputs, then rounded once to the output type.
"""

import itertools
import math
import os

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

torch.set_num_threads(1)
rng = np.random.default_rng(20240607)

TYPES = {
    "bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i32": torch.int32, "i64": torch.int64,
    "f8": torch.float8_e4m3fn, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64
}
NAMES = {t: n for n, t in TYPES.items()}
ARITHMETIC = [n for n in TYPES if n != "f8"]
EPS = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7, "f64": 2.0**-52}

tensors = {}  # name -> tensor
known = {}  # (type, shape, bytes) -> name
lines = []


def raw(t):
    flat = torch.empty(t.numel(), dtype=t.dtype)
    return flat.copy_(t.reshape(-1)).view(torch.uint8).numpy().tobytes()


def put(t, prefix):
    """Stores a tensor once, and returns its name."""
    t = t.detach().contiguous()
    key = (t.dtype, tuple(t.shape), raw(t))
    if key not in known:
        known[key] = f"{prefix}{len(tensors)}"
        tensors[known[key]] = t.clone()
    return known[key]


class View:
    """A stored tensor seen through views: .t is what the op gets, .text is what ops.txt says."""

    def __init__(self, t, views=""):
        self.t, self.text = t, put(t, "x")
        for v in [v for v in views.split("@") if v]:
            n = [int(i) for i in v[1:].split(",")]
            if v[0] == "p":
                self.t = self.t.permute(n)
            elif v[0] == "s":
                axis, start, stop, step = n
                self.t = self.t[(slice(None),) * axis + (slice(start, stop, step),)]
            elif v[0] == "r":
                self.t = self.t.reshape(n)
            elif v[0] == "b":
                self.t = self.t.broadcast_to(n)
            self.text += "@" + v


def case(name, op, inputs, want, ulp=0, abs=0.0, rulp=None, rabs=None, **params):
    ins = []
    for x in inputs:
        ins.append("-" if x is None else x.text if isinstance(x, View) else put(x, "x"))
    want = want if isinstance(want, (list, tuple)) else [want]
    words = [name, op]
    if ins:
        words.append("in=" + ";".join(ins))
    words.append("out=" + ";".join(put(w, "y") for w in want))
    for k, v in params.items():
        if isinstance(v, (list, tuple)):
            v = ",".join(str(i) for i in v)
        elif isinstance(v, bool):
            v = int(v)
        words.append(f"{k}={v}")
    for k, v in (("ulp", ulp), ("abs", abs), ("rulp", rulp), ("rabs", rabs)):
        if v:
            words.append(f"{k}={v:.3g}")
    lines.append(" ".join(words))


def val(x):
    return x.t if isinstance(x, View) else x


def d(x):
    return None if x is None else val(x).to(torch.float64)


def rnd(*shape, dtype="f32", scale=1.0):
    return torch.tensor(rng.standard_normal(shape) * scale).to(TYPES[dtype])


def ints(*shape, dtype="i32", low=-9, high=10):
    if dtype == "bool":
        return torch.tensor(rng.integers(0, 2, shape)).to(torch.bool)
    if dtype == "u8":
        low = max(low, 0)
    return torch.tensor(rng.integers(low, high, shape)).to(TYPES[dtype])


def some(*shape, dtype="f32"):
    return rnd(*shape, dtype=dtype) if dtype in ("f16", "bf16", "f32", "f64") else ints(*shape, dtype=dtype)


def top(t):
    """Largest finite magnitude, for absolute tolerances."""
    t = t.to(torch.float64)
    t = t[torch.isfinite(t)].abs()
    return float(t.max()) if t.numel() else 0.0


# ---- types ----------------------------------------------------------------------------------------------------------


def promotion():
    for a, b in itertools.product(ARITHMETIC, repeat=2):
        c = torch.promote_types(TYPES[a], TYPES[b])
        if {a, b} == {"u8", "i8"}:
            c = torch.int32  # torch says i16, which Lazuli does not have
        lines.append(f"promote/{a}/{b} promote a={a} b={b} c={NAMES[c]}")
        if "bool" == a == b:
            continue  # what the sum of two truths is, the header leaves open
        x = ints(5, dtype=a, low=-3, high=6)
        y = ints(5, dtype=b, low=-3, high=6)
        case(f"promote/add/{a}/{b}", "add", [x, y], (d(x) + d(y)).to(c))


def casts():
    reals = np.array([
        0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 0.999, 1.001, 3.14159, 100.7, -100.7, 127.5, 128, -128.9, 255,
        255.9, 256, 300, -300, 447, 448, 463.9, 464, 465, 480, 1e-3, 2**-6, 2**-9, 2**-10, 2**-10 * 1.01, 2**-14,
        2**-24, 2**-25, 2**-25 * 1.01, 6e-8, 65504, 65519, 65520, 70000, 1e6, 2147483520, 2147483648, -2147483648, -3e9,
        1e10, 9.2e18, 9.3e18, -9.3e18, 1e20, -1e20, 1e-38, 1e-40, 1e-45, 3.3e38, 3.4e38, np.inf, -np.inf, np.nan,
        1.00390625, 1.01171875, 1.0078125, 1 + 2**-11, 1 + 3 * 2**-11, 2**24 + 1, 0.1, 1 / 3
    ])
    reals = reals.astype(np.float32)  # so that f64 to a 16-bit type rounds once, whatever way it goes
    whole = np.array([
        0, 1, -1, 2, 7, 100, 126, 127, 128, 129, -127, -128, -129, 254, 255, 256, 300, -300, 32767, 65504, 65520, 70000,
        2**24, 2**24 - 1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**40, -(2**40), 2**62, 2**63 - 1, -(2**63)
    ],
                     dtype=np.int64)
    limits = {"u8": (0, 255), "i8": (-128, 127), "i32": (-(2**31), 2**31 - 1), "i64": (-(2**63), 2**63 - 1)}

    def as_type(values, name):  # the stored input: the values in this type, however they got there
        if name in limits:
            low, high = limits[name]
            return torch.tensor(np.clip(whole, low, high)).to(TYPES[name])
        if name == "bool":
            return torch.tensor([True, False, True, True])
        return torch.tensor(reals).to(TYPES[name])

    for a, b in itertools.product(TYPES, repeat=2):
        x = as_type(reals, a)
        if b == "bool":
            want = x.to(torch.float64) != 0 if a != "i64" else x != 0
        elif b in limits:
            low, high = limits[b]
            if a in limits or a == "bool":
                want = x.to(TYPES[b])  # wraps
            else:
                v = x.to(torch.float64).numpy()
                whole_v = [0 if math.isnan(i) else low if i <= low else high if i >= high else int(i) for i in v]
                want = torch.tensor(np.array(whole_v, dtype=np.int64)).to(TYPES[b])
        elif b == "f8":
            want = x.to(torch.float32).to(TYPES[b])
        else:
            want = x.to(TYPES[b])
        case(f"cast/{a}/{b}", "cast", [x], want, rulp=1e-9, to=b)
    x = torch.tensor(rng.standard_normal(40) * np.exp(rng.uniform(-80, 80, 40)))
    case("cast/f64/f32/random", "cast", [x], x.to(torch.float32), rulp=1e-9, to="f32")
    every = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    case("cast/f8/f32/all", "cast", [every], every.to(torch.float32), rulp=1e-9, to="f32")
    case("cast/f8/bf16/all", "cast", [every], every.to(torch.bfloat16), rulp=1e-9, to="bf16")
    every = torch.arange(0, 65536, 23, dtype=torch.int32).to(torch.uint16).view(torch.float16)
    case("cast/f16/f32/many", "cast", [every], every.to(torch.float32), rulp=1e-9, to="f32")
    near = torch.tensor(rng.standard_normal(500) * np.exp(rng.uniform(-18, 12, 500))).to(torch.float32)
    for b in ("f16", "bf16", "f8"):
        case(f"cast/f32/{b}/random", "cast", [near], near.to(TYPES[b]), rulp=1e-9, to=b)


# ---- elementwise ----------------------------------------------------------------------------------------------------


def edge_values(dtype):
    special = [
        np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1e-40, -3e-39, 1.17549435e-38, 1, -1, 0.5, -0.5, 2, -2, 3,
        10, -10, 20, -20, 5.5, -5.5, 50, -50, 87, 88.5, 88.8, 89, -87, -88, -95, -104, 100, -100, 1e3, -1e3, 1e4,
        12345.678, 1e5, -1e5, 1e7, 1e10, 1e20, -1e30, 3.4e38, -3.4e38, math.pi, -math.pi, math.pi / 2, 2 * math.pi,
        100 * math.pi, 1e-3, -1e-3, 1e-5, 1e-7, -1e-10, 1e-20, 1.0000001, 0.9999999, 0.99, 1.01
    ]
    small = rng.standard_normal(50) * 2
    wide = rng.choice([-1, 1], 40) * np.exp(rng.uniform(-12, 8, 40))
    v = np.concatenate([special, small, wide]).astype(np.float32)
    return torch.tensor(v).to(TYPES[dtype])


ROOT = math.sqrt(0.5)
UNARY = {  # name: (function in f64, ulp for f32, abs for f32)
    "neg": (lambda x: -x, 0, 0), "abs": (torch.abs, 0, 0), "square": (torch.square, 0, 1e-45),
    "floor": (torch.floor, 0, 0), "exp": (torch.exp, 4, 1.2e-38), "log": (torch.log, 4, 1e-38),
    "sqrt": (torch.sqrt, 1, 0), "rsqrt": (torch.rsqrt, 4, 0), "sin": (torch.sin, 4, 1.5e-7), "cos": (torch.cos, 4,
                                                                                                     1.5e-7),
    "tanh": (torch.tanh, 6, 1e-38), "erf": (torch.special.erf, 6, 1e-38), "sigmoid": (torch.sigmoid, 6, 1.2e-38),
    "silu": (lambda x: torch.where(x == -math.inf, torch.full_like(x, math.nan), x * torch.sigmoid(x)), 8,
             5e-37), "gelu": (lambda x: 0.5 * x * torch.special.erfc(-x * ROOT), 8, 1e-6),
    "gelu_tanh": (lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), 8, 1e-6)
}


def unary():
    for name, (f, ulp, tiny) in UNARY.items():
        for t in ("f32", "f16", "bf16", "f64"):
            x = edge_values(t)
            if name in ("silu", "gelu", "gelu_tanh"):
                x = x[x.to(torch.float64) != -math.inf]  # -inf * 0: left open
            if name == "gelu_tanh":
                x = x[x.to(torch.float64).abs() < 1e12]  # x cubed leaves f32 beyond
            want = f(d(x)).to(TYPES[t])
            u, a = (ulp, tiny) if t in ("f32", "f64") else (1 if ulp else 0, max(tiny, 1e-7 if t == "f16" else tiny))
            if t == "f64":
                u = 2 * u  # f64 may use the C library, as we do here
                case(f"{name}/{t}", name, [x], want, u, 1e-12, rulp=4, rabs=1e-12)
            else:
                case(f"{name}/{t}", name, [x], want, u, a, rulp=1, rabs=1e-7 if name.startswith("gelu") else 2e-45)
        x = ints(24, low=-9, high=30)
        if name in ("neg", "abs", "square", "floor"):
            for t in ("i32", "i64", "i8"):
                x = ints(24, dtype=t, low=-11, high=12)
                case(f"{name}/{t}", name, [x], f(d(x)).to(TYPES[t]))
        else:
            for t in ("i32", "u8", "i64"):
                x = ints(24, dtype=t, low=-9, high=30)
                case(f"{name}/{t}", name, [x], f(d(x)).to(torch.float32), ulp, tiny, rulp=1, rabs=1e-7)
    for t in ARITHMETIC:
        x = torch.cat([some(12, dtype=t), ints(12, dtype=t, low=-1, high=2)])
        case(f"not/{t}", "not", [x], d(x) == 0)
    x = torch.tensor([math.nan, 0.0, -0.0, 1e-45, math.inf])
    case("not/special", "not", [x], torch.tensor([False, True, True, False, False]))


def binary():
    fs = {
        "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum,
        "minimum": torch.minimum, "equal": torch.eq, "not_equal": torch.ne, "less": torch.lt, "less_equal": torch.le,
        "greater": torch.gt, "greater_equal": torch.ge, "and": torch.logical_and, "or": torch.logical_or
    }
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-40, 3e38, -3e38, 0.1, 7.0, -2.5, 1e-3],
                       dtype=np.float32)
    a, b = (torch.tensor(m.reshape(-1)) for m in np.meshgrid(special, special, indexing="ij"))
    for name, f in fs.items():
        for t in ("f32", "f16", "bf16", "f64"):
            for tag, x, y in (("edge", a.to(TYPES[t]), b.to(TYPES[t])), ("random", rnd(6, 9, dtype=t), rnd(6,
                                                                                                           9,
                                                                                                           dtype=t))):
                want = f(d(x), d(y))
                if want.dtype != torch.bool:
                    want = want.to(TYPES[t])
                # Subnormal results may be rounded twice on their way through f64: 1 ulp
                case(f"{name}/{t}/{tag}",
                     name, [x, y],
                     want,
                     1 if t != "f32" and t != "f64" else 0,
                     2e-45,
                     rulp=1,
                     rabs=2e-45)
        for t in ("u8", "i8", "i32", "i64"):
            x, y = ints(4, 7, dtype=t), ints(4, 7, dtype=t)
            if t == "u8" and name == "sub":
                x = x + 9
            if name == "div":
                y[y == 0] = 3
            want = f(d(x), d(y))
            want = want if want.dtype == torch.bool else want.to(torch.float32 if name == "div" else TYPES[t])
            case(f"{name}/{t}", name, [x, y], want, 1 if name == "div" else 0)
        if name in ("equal", "not_equal", "and", "or"):
            x, y = ints(20, dtype="bool"), ints(20, dtype="bool")
            case(f"{name}/bool", name, [x, y], f(x, y))
    # Whole numbers beyond f32 and f64 must not go through floats.
    x = torch.tensor([2**53 + 1, 2**62 + 3, -(2**62) - 5, 2**31 + 7, 2**24 + 1])
    y = torch.tensor([1, 2, -3, 2**31, 2**24])
    for name in ("add", "sub", "maximum", "minimum", "less", "equal"):
        case(f"{name}/i64/large", name, [x, y], fs[name](x, y))
    case("equal/i64/near", "equal", [x, x + 1], torch.eq(x, x + 1))
    z = torch.tensor([2**24 + 1, 2**30 + 1, -(2**30) - 3, 123456789], dtype=torch.int32)
    case("add/i32/large", "add", [z, torch.ones_like(z)], z + 1)
    case("mul/i32/large", "mul", [
        torch.tensor([46340, -46341, 30011], dtype=torch.int32),
        torch.tensor([46339, 46339, 40009], dtype=torch.int32)
    ], torch.tensor([46340 * 46339, -46341 * 46339, 30011 * 40009], dtype=torch.int32))
    for name in ("equal", "less"):
        case(f"{name}/i32/large", name, [z, z + 1], fs[name](z, z + 1))

    for t in ("f32", "f16", "bf16", "f64"):
        x = torch.tensor(np.exp(rng.uniform(-3, 3, 60))).to(TYPES[t])
        y = rnd(60, dtype=t, scale=2)
        case(f"pow/{t}/random",
             "pow", [x, y],
             torch.pow(d(x), d(y)).to(TYPES[t]),
             16 if t == "f32" else 4 if t == "f64" else 1,
             rulp=1 if t != "f64" else 4)
        x = torch.tensor([0.0, -0.0, 1, -1, 2, -2, 0.5, -3, math.inf, -math.inf, math.nan, 4, 9, 1.5]).to(TYPES[t])
        for y in (0.0, 1.0, 2.0, 3.0, -1.0, 0.5, -2.0, math.inf, math.nan):
            if y == 0.5:
                continue  # pow(-inf, .5) = inf by C, fast ones take the root
            yy = torch.full_like(x, y)
            case(f"pow/{t}/to_{y:g}",
                 "pow", [x, yy],
                 torch.pow(d(x), d(yy)).to(TYPES[t]),
                 4 if t in ("f32", "f64") else 1,
                 rulp=1)


def broadcasting():
    shapes = [((3, 1), (1, 4)), ((2, 3, 4), (4,)), ((2, 3, 4), (3, 1)), ((5,), ()), ((), ()), ((1,), (7,)),
              ((2, 1, 3, 1), (5, 1, 6)), ((4, 1, 1, 1, 2), (3, 1, 2, 1)), ((0,), (1,)), ((3, 0), (1, 1)),
              ((2, 0, 3), (1, 3)), ((1, 0), (4, 1)), ((17, 33), (17, 1)), ((17, 33), (33,)),
              ((2, 2, 2, 2, 2, 2, 2, 2), (2, 1, 2, 1, 2, 1, 2, 1)),]
    for i, (s, r) in enumerate(shapes):
        x, y = rnd(*s), rnd(*r)
        case(f"broadcast/{i}/add", "add", [x, y], (d(x) + d(y)).float())
        case(f"broadcast/{i}/sub/swapped", "sub", [y, x], (d(y) - d(x)).float())
        case(f"broadcast/{i}/less", "less", [x, y], d(x) < d(y))
        c = ints(*np.broadcast_shapes(s, r), dtype="bool")
        case(f"broadcast/{i}/where", "where", [c, x, y], torch.where(c, x, y))
    for s, r in (((1, 3), (4, 3)), ((), (2, 3)), ((2, 1, 3), (5, 2, 4, 3)), ((3,), (0, 3))):
        x = rnd(*s)
        case(f"broadcast/to/{len(lines)}", "broadcast", [x], x.broadcast_to(r).clone(), dims=r)


def where_and_clip():
    for t in ARITHMETIC:
        c, x, y = ints(3, 5, dtype="bool"), some(3, 5, dtype=t), some(3, 5, dtype=t)
        case(f"where/{t}", "where", [c, x, y], torch.where(c, x, y))
    c, x, y = ints(4, 1, dtype="bool"), rnd(5), rnd(4, 1, dtype="bf16")
    case("where/mixed", "where", [c, x, y], torch.where(c, x, y.float()))
    c = torch.tensor([True, False, True])
    case("where/nan", "where", [c, torch.tensor([1.0, math.nan, 2.0]),
                                torch.tensor([math.nan, 5.0, math.nan])], torch.tensor([1.0, 5.0, 2.0]))
    for t in ("f32", "f16", "bf16", "f64"):
        x = edge_values(t)
        case(f"clip/{t}", "clip", [x], torch.clamp(x, -1.5, 2.25), low=-1.5, high=2.25)
    for t in ("i32", "i64", "i8"):
        x = ints(30, dtype=t)
        case(f"clip/{t}", "clip", [x], torch.clamp(x, -3, 4), low=-3, high=4)
    for op, f in (("add", torch.add), ("sub", torch.sub), ("mul", torch.mul), ("div", torch.div),
                  ("maximum", torch.maximum), ("minimum", torch.minimum), ("less", torch.lt),
                  ("greater_equal", torch.ge), ("equal", torch.eq), ("pow", torch.pow)):
        for t in ("f32", "f16", "bf16", "i32", "u8", "f64"):  # weak numbers
            x = some(11, dtype=t) if op != "pow" else ints(11, dtype=t, low=1, high=5)
            if op == "pow" and t in ("i32", "u8"):
                continue
            if op == "sub" and t == "u8":
                x = x + 2
            want = f(d(x), torch.tensor(2.0, dtype=torch.float64))
            if want.dtype != torch.bool:
                want = want.to(torch.float32 if op == "div" and t in ("i32", "u8") else TYPES[t])
            case(f"number/{op}/{t}", op, [x], want, 4 if op == "pow" else 1 if t in ("f16", "bf16") else 0, number=2.0)


# ---- reductions -----------------------------------------------------------------------------------------------------


def reduced(op, x, axes, keep):
    v = d(x)
    axes = list(axes)
    if op == "sum":
        return torch.sum(v, axes, keep)
    if op == "mean":
        return torch.mean(v, axes, keep)
    if op == "var":
        return torch.var(v, axes, correction=0, keepdim=keep)
    if op == "max":
        return torch.amax(v, axes, keep)
    if op == "min":
        return torch.amin(v, axes, keep)
    if op == "logsumexp":
        return torch.logsumexp(v, axes, keep)
    raise ValueError(op)


def reduce_case(tag, op, x, axes, keep, **kw):
    t = NAMES[val(x).dtype]
    floating = t in EPS
    out = TYPES[t] if floating or op in ("max", "min") else torch.int64 if op == "sum" else torch.float32
    want = reduced(op, x, axes, keep).to(out)
    exact = op in ("max", "min") or out == torch.int64
    scale = top(val(x)) * (4e-7 if t != "f64" else 1e-15) * math.sqrt(max(1, val(x).numel() / max(1, want.numel())))
    if op == "var":
        scale *= max(1.0, top(val(x)))
    if op == "logsumexp":
        scale = max(scale, 1e-6)
    case(f"{op}/{tag}",
         op, [x],
         want,
         0 if exact else 2 if t in ("f32", "f64") else 1,
         0 if exact else scale,
         rulp=1,
         rabs=scale if t == "f64" else 1e-20,
         axes=axes,
         keep=keep,
         **kw)


REDUCTIONS = ("sum", "mean", "var", "max", "min", "logsumexp")


def reductions():
    x = rnd(3, 5, 4, 7)
    views = {
        "plain": View(x), "permuted": View(x, "@p2,0,3,1"), "sliced": View(x, "@s1,1,5,2@s3,2,7,1"),
        "broadcast": View(rnd(3, 1, 1, 7), "@b3,5,4,7")
    }
    for tag, v in views.items():
        subsets = [s for n in range(1, 5) for s in itertools.combinations(range(4), n)]
        for i, axes in enumerate(subsets):
            for op in REDUCTIONS:
                if tag == "plain" or (i + len(op)) % 3 == 0:
                    shown = [a - 4 if (a + i) % 3 == 0 else a for a in axes]  # some counted from the end
                    reduce_case(f"{tag}/{''.join(map(str, axes))}", op, v, shown, i % 2 == 1)
        for axis in range(4):
            case(f"argmax/{tag}/{axis}",
                 "argmax", [v],
                 torch.argmax(v.t, axis, axis % 2 == 1),
                 axis=axis,
                 keep=axis % 2 == 1)
    for t in ("f16", "bf16", "f64", "i32", "i64", "u8", "i8", "bool"):
        v = some(6, 11, 3, dtype=t)
        for op in REDUCTIONS:
            if t == "bool" and op != "sum":
                continue
            for axes in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
                reduce_case(f"{t}/{''.join(map(str, axes))}", op, v, axes, False)
        if t != "bool":
            case(f"argmax/{t}", "argmax", [v], torch.argmax(v, 1), axis=1, keep=0)
    for n in (1, 2, 31, 64, 129, 1000):
        v = rnd(2, n)
        for op in REDUCTIONS:
            reduce_case(f"row{n}", op, v, (1,), False)
            reduce_case(f"column{n}", op, View(v, "@p1,0"), (0,), False)
    v = rnd(3000, scale=1) + 1000  # a mean far from zero: the variance must not cancel away
    reduce_case("offset", "var", v, (0,), False)
    big = torch.full((4099,), 1.0, dtype=torch.float16)
    reduce_case("f16/long", "sum", big, (0,), False)  # beyond 2048 a sum kept in f16 would stick
    reduce_case("f16/long", "mean", big, (0,), False)
    huge = torch.full((64,), 60000.0, dtype=torch.float16)
    reduce_case("f16/large", "mean", huge, (0,), False)  # the sum alone is beyond f16
    case("sum/i64/large", "sum", [torch.tensor([2**53, 1, 1, -5])], torch.tensor(2**53 - 3), axes=[0], keep=0)
    case("max/i64/large", "max", [torch.tensor([2**53, 2**53 + 1, 4])], torch.tensor(2**53 + 1), axes=[0], keep=0)
    nans = torch.tensor([[1.0, math.nan, 3.0], [math.inf, -math.inf, 0.0], [-math.inf, -math.inf, -math.inf],
                         [math.inf, 1.0, math.nan], [-0.0, 0.0, -0.0],])
    for op in REDUCTIONS:
        for t in ("f32", "f16", "bf16"):
            reduce_case(f"special/{t}", op, nans.to(TYPES[t]), (1,), False)
            reduce_case(f"special/{t}/down", op, nans.to(TYPES[t]), (0,), False)
    case("argmax/special", "argmax", [nans], torch.tensor([1, 0, 0, 2, 0]), axis=1, keep=0)
    ties = torch.tensor([[3, 7, 7, 1], [5, 5, 5, 5]], dtype=torch.int32)
    case("argmax/ties", "argmax", [ties], torch.tensor([1, 0]), axis=1, keep=0)
    case("argmax/ties/f32", "argmax", [ties.float()], torch.tensor([1, 0]), axis=1, keep=0)
    # Nothing to add up.
    for shape, axes in (((0,), (0,)), ((3, 0), (1,)), ((3, 0), (0,)), ((0, 4), (0,)), ((2, 0, 5), (0, 1)),
                        ((2, 0, 5), (2,)), ((2, 0, 5), (0, 1, 2))):
        v = torch.zeros(shape)
        case(f"sum/empty/{len(lines)}", "sum", [v], torch.sum(v, axes), axes=axes, keep=0)
        case(f"mean/empty/{len(lines)}", "mean", [v], torch.mean(v, axes), axes=axes, keep=0)
        case(f"var/empty/{len(lines)}", "var", [v], torch.var(v, axes, correction=0), axes=axes, keep=0)
        case(f"logsumexp/empty/{len(lines)}", "logsumexp", [v], torch.logsumexp(v, axes), axes=axes, keep=0)
    for op in ("max", "min"):
        case(f"{op}/empty", op, [torch.zeros(0, 4)], torch.zeros(0), axes=[1], keep=0)
    case("argmax/empty", "argmax", [torch.zeros(0, 4)], torch.zeros(0, dtype=torch.int64), axis=1, keep=0)
    case("sum/scalar", "sum", [torch.tensor(2.5)], torch.tensor(2.5), axes=[], keep=0)
    v = rnd(2, 3, 4)
    case("sum/all", "sum", [v], torch.sum(d(v)).float(), 1, 1e-6, axes=[], keep=0)
    case("max/all/keep", "max", [v], torch.amax(v, (0, 1, 2), True), axes=[], keep=1)

    for t in ("f32", "f16", "bf16", "f64"):
        for shape, axis in (((5, 7), 1), ((5, 7), 0), ((2, 3, 65), 2), ((2, 3, 4), 1), ((1, 1), 1), ((2, 300), -1)):
            v = rnd(*shape, dtype=t, scale=3)
            case(f"softmax/{t}/{len(lines)}",
                 "softmax", [v],
                 torch.softmax(d(v), axis).to(TYPES[t]),
                 8 if t in ("f32", "f64") else 1,
                 1e-9 if t != "f16" else 1e-7,
                 rulp=1 if t != "f64" else 8,
                 axis=axis)
    v = torch.tensor([[-math.inf, 0.0, 1.0], [-math.inf, -math.inf, -math.inf], [math.nan, 1.0, 2.0],
                      [1e30, 1.0, -1e30], [-math.inf, -math.inf, 5.0], [88.0, 89.0, 700.0], [-700.0, -701.0, -702.0],])
    case("softmax/special", "softmax", [v], torch.softmax(d(v), 1).float(), 8, 1.2e-38, rabs=2e-45, axis=1)
    v = View(rnd(6, 5, 9), "@p1,2,0@s2,0,6,2")
    case("softmax/strided", "softmax", [v], torch.softmax(d(v), 1).float(), 8, 1e-9, axis=1)
    for shape, axis in (((0, 3), 1), ((3, 0), 1), ((3, 0), 0)):
        case(f"softmax/empty/{len(lines)}", "softmax", [torch.zeros(shape)], torch.zeros(shape), axis=axis)


# ---- matrices -------------------------------------------------------------------------------------------------------


def tolerance(want, t, k):
    """Absolute tolerance of a sum of k products accumulated in f32 and stored as t."""
    return (top(want) * 2e-6 * max(1.0,
                                   math.sqrt(k) / 8) if t == "f32" else top(want) * 1e-14 if t == "f64" else top(want) *
            EPS[t] * 0.51)


def matmul_case(tag, a, b, out=None):
    t = out or NAMES[torch.promote_types(val(a).dtype, val(b).dtype)]
    want = torch.matmul(d(a), d(b)).to(TYPES[t])
    case(f"matmul/{tag}",
         "matmul", [a, b],
         want,
         1,
         tolerance(want, t,
                   val(a).shape[-1]),
         rulp=1,
         rabs=top(want) * 1e-7 if t == "f32" else 1e-14)


def matmuls():
    for m, k, n in ((1, 1, 1), (1, 7, 1), (3, 1, 5), (17, 33, 9), (48, 64, 40), (1, 40, 65), (65, 1, 3), (33, 100, 1),
                    (3, 257, 5), (16, 16, 16), (31, 15, 33)):
        matmul_case(f"f32/{m}x{k}x{n}", rnd(m, k), rnd(k, n))
    for s, r in (((2, 3, 4), (2, 4, 5)), ((3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 2)),
                 ((1, 3, 4), (6, 4, 2)), ((2, 3, 1, 8, 5), (3, 4, 5, 7))):
        matmul_case(f"batch/{len(lines)}", rnd(*s), rnd(*r))
    matmul_case("view/a", View(rnd(12, 9), "@p1,0"), rnd(12, 7))
    matmul_case("view/b", rnd(9, 12), View(rnd(7, 12), "@p1,0"))
    matmul_case("view/both", View(rnd(12, 9), "@p1,0"), View(rnd(7, 12), "@p1,0"))
    matmul_case("view/slice", View(rnd(20, 30), "@s0,1,18,2@s1,3,29,2"), View(rnd(13, 21), "@s1,2,20,3"))
    matmul_case("view/offset", View(rnd(20, 30), "@s1,1,30,1"), View(rnd(30, 9), "@s0,1,30,1"))
    matmul_case("view/heads", View(rnd(2, 6, 3, 8), "@p0,2,1,3"), View(rnd(2, 6, 3, 8), "@p0,2,3,1"))
    matmul_case("view/broadcast", View(rnd(1, 5), "@b4,5"), View(rnd(5, 1), "@b5,3"))
    kinds = ("f16", "bf16", "f32", "f64")
    for a, b in itertools.product(kinds, kinds):
        if (a, b) != ("f32", "f32"):
            matmul_case(f"{a}/{b}", rnd(9, 24, dtype=a), rnd(24, 17, dtype=b))
    for t in ("f16", "bf16", "f32"):
        matmul_case(f"{t}/f8", rnd(9, 24, dtype=t), rnd(24, 17, dtype="f8"), t)
        matmul_case(f"{t}/f8/transposed", rnd(9, 24, dtype=t), View(rnd(17, 24, dtype="f8"), "@p1,0"), t)
    for s, r in (((0, 3), (3, 4)), ((2, 0), (0, 4)), ((2, 3), (3, 0)), ((0, 2, 3), (3, 4)), ((2, 5, 0), (2, 0, 3))):
        matmul_case(f"empty/{len(lines)}", torch.zeros(s), torch.zeros(r))
    matmul_case("special", torch.tensor([[1.0, math.inf], [math.nan, 1.0], [1.0, 2.0]]),
                torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
    for t in ("f32", "f16", "bf16"):
        for with_bias in (False, True):
            for shape, n in (((7, 33), 20), ((2, 3, 16), 5), ((33,), 4), ((1, 24), 65), ((0, 8), 3)):
                x, w, b = rnd(*shape, dtype=t), rnd(n, shape[-1], dtype=t), rnd(n, dtype=t) if with_bias else None
                want = torch.matmul(d(x), d(w).T) + (d(b) if with_bias else 0)
                want = want.to(TYPES[t])
                a = tolerance(want, t, shape[-1])
                case(f"linear/{t}/{len(lines)}",
                     "linear", [x, w, b],
                     want,
                     1,
                     a * (2 if t != "f32" else 1),
                     rulp=1,
                     rabs=top(want) * EPS[t] * 1.01)
    x, w, b = rnd(6, 40, dtype="bf16"), rnd(12, 40, dtype="f8"), rnd(12, dtype="bf16")
    want = (torch.matmul(d(x), d(w).T) + d(b)).to(torch.bfloat16)
    case("linear/bf16/f8", "linear", [x, w, b], want, 1, top(want) * EPS["bf16"], rulp=1, rabs=top(want) * EPS["bf16"])
    for alpha, beta in ((0, 0), (0.5, 2.0), (-1.0, 0.25)):
        for cs in ((9, 5), (5,), (9, 1)):
            c, a, b = rnd(*cs), rnd(9, 14), rnd(14, 5)
            want = ((beta or 1) * d(c) + (alpha or 1) * (d(a) @ d(b))).float()
            case(f"addmm/{len(lines)}",
                 "addmm", [c, a, b],
                 want,
                 2,
                 4e-6 * max(top(want), 1),
                 rulp=1,
                 rabs=1e-6,
                 alpha=alpha,
                 beta=beta)


# ---- attention ------------------------------------------------------------------------------------------------------


def attention(q, k, v, scale, causal, mask):
    """Written out: scores, mask, softmax, values; a query with no key to look at gives zeros."""
    q, k, v = d(q), d(k), d(v)
    b, h, n, dim = q.shape
    g, m = k.shape[1], k.shape[2]
    k, v = k.repeat_interleave(h // g, 1), v.repeat_interleave(h // g, 1)
    s = q @ k.transpose(-1, -2) * (scale or 1 / math.sqrt(dim))
    if mask is not None:
        mask = val(mask)
        s = s.masked_fill(~mask.broadcast_to(s.shape), -math.inf) if mask.dtype == torch.bool else s + mask.double()
    if causal:
        i, j = torch.arange(n)[:, None], torch.arange(m)[None, :]
        s = s.masked_fill(j > i + (m - n), -math.inf)
    dead = (s == -math.inf).all(-1, keepdim=True)
    p = torch.softmax(s.masked_fill(dead, 0.0), -1)
    return (p @ v).masked_fill(dead, 0.0)


def sdpa_case(tag, q, k, v, scale=0, causal=False, mask=None):
    t = NAMES[val(q).dtype]
    want = attention(q, k, v, scale, causal, mask).to(TYPES[t])
    a = top(want) * 1e-14 if t == "f64" else 3e-6 * max(1.0, top(val(v))) if t == "f32" else EPS[t] * top(want) * 0.6
    ins = [q, k, v] + ([mask] if mask is not None else [])
    case(f"sdpa/{tag}", "sdpa", ins, want, 1, a, rulp=1, rabs=1e-7 if t == "f32" else a, scale=scale, causal=causal)


def sdpa():
    for dim in (1, 8, 64, 80, 128, 512):
        n, h = (3, 1) if dim > 100 else (7, 2)
        sdpa_case(f"dim{dim}", rnd(1, h, n, dim), rnd(1, h, n + 2, dim), rnd(1, h, n + 2, dim))
    sdpa_case("long", rnd(1, 1, 70, 4), rnd(1, 1, 150, 4), rnd(1, 1, 150, 4))
    sdpa_case("long/causal", rnd(1, 1, 130, 2), rnd(1, 1, 130, 2), rnd(1, 1, 130, 2), causal=True)
    sdpa_case("gqa", rnd(2, 6, 5, 16), rnd(2, 2, 7, 16), rnd(2, 2, 7, 16))
    sdpa_case("gqa/one", rnd(1, 4, 5, 8), rnd(1, 1, 5, 8), rnd(1, 1, 5, 8), causal=True)
    for n, m in ((6, 6), (3, 8), (8, 3), (1, 9), (40, 70)):
        sdpa_case(f"causal/{n}x{m}", rnd(1, 2, n, 8), rnd(1, 2, m, 8), rnd(1, 2, m, 8), causal=True)
    sdpa_case("scale", rnd(1, 2, 5, 8), rnd(1, 2, 6, 8), rnd(1, 2, 6, 8), scale=0.7)
    sdpa_case("sharp", rnd(1, 2, 5, 16, scale=30), rnd(1, 2, 6, 16, scale=30), rnd(1, 2, 6, 16))
    q, k, v = rnd(2, 3, 6, 8), rnd(2, 3, 10, 8), rnd(2, 3, 10, 8)
    for shape in ((2, 3, 6, 10), (2, 1, 6, 10), (1, 1, 6, 10), (6, 10), (3, 1, 10)):
        m = ints(*shape, dtype="bool")
        m[..., 0] = True
        sdpa_case(f"mask/bool/{len(lines)}", q, k, v, mask=m)
        sdpa_case(f"mask/float/{len(lines)}", q, k, v, mask=rnd(*shape))
    padding = torch.zeros(2, 1, 1, 10, dtype=torch.bool)
    padding[0, ..., :7] = True
    padding[1, ..., :3] = True
    sdpa_case("mask/padding", q, k, v, mask=padding)
    sdpa_case("mask/padding/causal", q, k, v, mask=padding, causal=True)
    dead = torch.ones(6, 10, dtype=torch.bool)
    dead[2], dead[5] = False, False
    sdpa_case("mask/dead", q, k, v, mask=dead)
    additive = rnd(6, 10)
    additive[1, 3:], additive[4] = -math.inf, -math.inf
    sdpa_case("mask/additive/dead", q, k, v, mask=additive)
    for t in ("f16", "bf16", "f64"):
        sdpa_case(f"{t}", rnd(1, 2, 7, 40, dtype=t), rnd(1, 1, 9, 40, dtype=t), rnd(1, 1, 9, 40, dtype=t))
        sdpa_case(f"{t}/causal",
                  rnd(1, 2, 7, 20, dtype=t),
                  rnd(1, 2, 7, 20, dtype=t),
                  rnd(1, 2, 7, 20, dtype=t),
                  causal=True)
    # As models call it: heads in the middle, seen through a permute; a slice of a longer cache.
    sdpa_case("view/heads", View(rnd(2, 5, 3, 8), "@p0,2,1,3"), View(rnd(2, 6, 3, 8), "@p0,2,1,3"),
              View(rnd(2, 6, 3, 8), "@p0,2,1,3"))
    sdpa_case("view/slice", View(rnd(1, 2, 5, 16), "@s3,1,15,1"), View(rnd(1, 2, 20, 14), "@s2,3,17,2"),
              View(rnd(1, 2, 20, 14), "@s2,3,17,2"))
    sdpa_case("empty/batch", rnd(0, 2, 3, 8), rnd(0, 2, 3, 8), rnd(0, 2, 3, 8))
    sdpa_case("empty/queries", rnd(1, 2, 0, 8), rnd(1, 2, 3, 8), rnd(1, 2, 3, 8))
    case("sdpa/empty/keys",
         "sdpa", [rnd(1, 2, 3, 8), rnd(1, 2, 0, 8), rnd(1, 2, 0, 8)],
         torch.zeros(1, 2, 3, 8),
         scale=0,
         causal=0)


# ---- norms, rope, convolution ---------------------------------------------------------------------------------------


def norms():
    eps = 1e-6
    for t in ("f32", "f16", "bf16", "f64"):
        loose = dict(ulp=4 if t in ("f32", "f64") else 1, rulp=1 if t != "f64" else 4)

        def tol(want, steps):  # absolute room for the roundings between unfused steps
            r = top(want) * (EPS[t] if t != "f64" else 1e-14)
            return dict(loose, abs=r * steps, rabs=r * steps)

        for shape in ((4, 33), (2, 2, 16), (7, 1), (2, 130)):
            c = shape[-1]
            x = rnd(*shape, dtype=t, scale=2)
            w, b = rnd(c, dtype=t), rnd(c, dtype=t)
            rms = d(x) / torch.sqrt(torch.mean(d(x)**2, -1, keepdim=True) + eps)
            want = rms.to(TYPES[t])
            case(f"rms_norm/{t}/{len(lines)}", "rms_norm", [x, None], want, **tol(want, 0.5), eps=eps)
            want = (rms * d(w)).to(TYPES[t])
            case(f"rms_norm/{t}/w{len(lines)}", "rms_norm", [x, w], want, **tol(want, 1.5), eps=eps)
            ln = F.layer_norm(d(x), (c,), None, None, eps)
            for ww, bb in ((None, None), (w, None), (w, b), (None, b)):
                want = (ln * (1 if ww is None else d(ww)) + (0 if bb is None else d(bb))).to(TYPES[t])
                case(f"layer_norm/{t}/{len(lines)}", "layer_norm", [x, ww, bb], want, **tol(want, 3), eps=eps)
            for ms in ((c,), shape[:1] + (1,) * (len(shape) - 2) + (c,)):
                scale, shift = rnd(*ms, dtype=t), rnd(*ms, dtype=t)
                want = (ln * (1 + d(scale)) + d(shift)).to(TYPES[t])
                case(f"modulated_norm/{t}/{len(lines)}",
                     "modulated_norm", [x, scale, shift],
                     want,
                     **tol(want, 4),
                     eps=eps)
        for shape, groups in (((2, 3, 5, 8), 4), ((1, 4, 4, 6), 1), ((3, 7, 6), 6), ((2, 32), 8), ((1, 2, 3, 2, 12),
                                                                                                   3)):
            c = shape[-1]
            x, w, b = rnd(*shape, dtype=t), rnd(c, dtype=t), rnd(c, dtype=t)
            first = d(x).movedim(-1, 1)
            for ww, bb in ((None, None), (w, b)):
                want = F.group_norm(first, groups, d(ww), d(bb), eps).movedim(1, -1).to(TYPES[t])
                case(f"group_norm/{t}/{len(lines)}",
                     "group_norm", [x, ww, bb],
                     want,
                     **tol(want, 3),
                     groups=groups,
                     eps=eps)
    x = View(rnd(5, 40, 6), "@p2,0,1@s2,3,38,2")
    want = F.layer_norm(d(x), (x.t.shape[-1],), None, None, 1e-5).float()
    case("layer_norm/strided", "layer_norm", [x, None, None], want, 4, 1e-6, rabs=1e-7, eps=1e-5)
    want = (d(x) / torch.sqrt(torch.mean(d(x)**2, -1, keepdim=True) + 1e-5)).float()
    case("rms_norm/strided", "rms_norm", [x, None], want, 4, 1e-6, rabs=1e-7, eps=1e-5)
    x = rnd(2, 300) + 500  # the variance must not cancel away
    want = F.layer_norm(d(x), (300,), None, None, 1e-6).float()
    case("layer_norm/offset", "layer_norm", [x, None, None], want, 4, 2e-4, rabs=1e-6, eps=1e-6)
    x = torch.zeros(2, 9)
    case("rms_norm/zeros", "rms_norm", [x, None], x, eps=1e-6)
    case("layer_norm/zeros", "layer_norm", [x, None, None], x, eps=1e-6)
    case("layer_norm/empty", "layer_norm", [torch.zeros(0, 9), None, None], torch.zeros(0, 9), eps=1e-6)
    x = torch.full((1, 64), 300.0, dtype=torch.float16)  # squares are beyond f16
    case("rms_norm/f16/large", "rms_norm", [x, None], torch.ones_like(x), 1, eps=1e-6)


def rope():
    for t in ("f32", "f16", "bf16"):
        for shape, table in (((2, 3, 5, 8), (5, 4)), ((7, 2), (7, 1)), ((2, 2, 5, 32), (5, 16)),
                             ((2, 3, 4, 12), (2, 1, 4, 6)), ((1, 2, 2, 128), (2, 64)), ((0, 3, 8), (3, 4))):
            x = rnd(*shape, dtype=t)
            angle = torch.tensor(rng.uniform(-50, 50, table))
            c, s = torch.cos(angle).to(TYPES[t]), torch.sin(angle).to(TYPES[t])
            for half in (False, True):
                dim = shape[-1]
                v = d(x)
                even, odd = (v[..., :dim // 2], v[..., dim // 2:]) if half else (v[..., 0::2], v[..., 1::2])
                a, b = even * d(c) - odd * d(s), even * d(s) + odd * d(c)
                want = (torch.cat([a, b], -1) if half else torch.stack([a, b], -1).flatten(-2)).to(TYPES[t])
                case(f"rope/{t}/{len(lines)}",
                     "rope", [x, c, s],
                     want,
                     2 if t == "f32" else 1,
                     3e-7 * top(val(x)),
                     rabs=1e-7,
                     half=half)
    v = View(rnd(2, 5, 3, 8), "@p0,2,1,3")
    angle = torch.tensor(rng.uniform(-3, 3, (5, 4)))
    c, s = torch.cos(angle).float(), torch.sin(angle).float()
    a, b = d(v)[..., 0::2] * d(c) - d(v)[..., 1::2] * d(s), d(v)[..., 0::2] * d(s) + d(v)[..., 1::2] * d(c)
    case("rope/strided", "rope", [v, c, s], torch.stack([a, b], -1).flatten(-2).float(), 2, 1e-6, rabs=1e-7, half=0)


def convolution():

    def conv(tag, x, w, b, stride=1, pads=(0, 0, 0, 0)):
        t = NAMES[val(x).dtype]
        top_, bottom, left, right = pads
        y = F.conv2d(F.pad(d(x).permute(0, 3, 1, 2), (left, right, top_, bottom)),
                     d(w).permute(0, 3, 1, 2), d(b), stride)
        want = y.permute(0, 2, 3, 1).contiguous().to(TYPES[t])
        a = tolerance(want, t, val(w)[0].numel()) if t != "f64" else 1e-12
        case(f"conv2d/{tag}",
             "conv2d", [x, w, b],
             want,
             1,
             a if t == "f32" else 2 * a,
             rulp=1,
             rabs=top(want) * EPS[t],
             stride=stride,
             pad=pads)

    for t in ("f32", "f16", "bf16", "f64"):
        conv(f"{t}/3x3", rnd(1, 6, 7, 3, dtype=t), rnd(5, 3, 3, 3, dtype=t), rnd(5, dtype=t), 1, (1, 1, 1, 1))
        conv(f"{t}/1x1", rnd(2, 4, 5, 6, dtype=t), rnd(3, 1, 1, 6, dtype=t), None)
        conv(f"{t}/down", rnd(1, 8, 9, 4, dtype=t), rnd(4, 3, 3, 4, dtype=t), rnd(4, dtype=t), 2, (0, 1, 0, 1))
    conv("f32/wide", rnd(1, 9, 11, 16), rnd(17, 3, 3, 16), rnd(17), 1, (1, 1, 1, 1))
    conv("f32/5x2", rnd(2, 9, 6, 3), rnd(4, 5, 2, 3), None, 1, (2, 0, 1, 3))
    conv("f32/stride3", rnd(1, 10, 10, 2), rnd(3, 2, 2, 2), rnd(3), 3, (0, 0, 1, 0))
    conv("f32/padding_only", rnd(1, 1, 1, 2), rnd(2, 3, 3, 2), None, 1, (2, 2, 2, 2))
    conv("f32/one_channel", rnd(1, 8, 8, 1), rnd(1, 3, 3, 1), rnd(1), 1, (1, 1, 1, 1))
    conv("f32/empty", rnd(0, 6, 7, 3), rnd(5, 3, 3, 3), None, 1, (1, 1, 1, 1))
    conv("f32/view", View(rnd(1, 3, 6, 7), "@p0,2,3,1"), View(rnd(5, 3, 3, 3), "@p0,2,3,1"), rnd(5), 1, (1, 1, 1, 1))
    for t in ("f32", "bf16", "u8"):
        x = some(2, 3, 4, 5, dtype=t)
        for f in (1, 2, 3):
            case(f"upsample/{t}/{f}", "upsample", [x], x.repeat_interleave(f, 1).repeat_interleave(f, 2), factor=f)


# ---- shapes ---------------------------------------------------------------------------------------------------------


def shapes():
    for t in TYPES:
        x = ints(4, 5, 6, dtype=t) if t not in ("f8",) else rnd(4, 5, 6, dtype="f8")
        y = ints(4, 2, 6, dtype=t) if t not in ("f8",) else rnd(4, 2, 6, dtype="f8")
        move = (lambda u: u.view(torch.uint8)) if t == "f8" else (lambda u: u)  # torch moves few f8 arrays itself
        back = (lambda u: u.contiguous().view(torch.float8_e4m3fn)) if t == "f8" else (lambda u: u)
        case(f"reshape/{t}", "reshape", [x], x.reshape(20, 6), dims=(20, 6))
        case(f"reshape/{t}/guess",
             "reshape", [View(x, "@p2,0,1")],
             back(move(x).permute(2, 0, 1).reshape(3, 40)),
             dims=(3, -1))
        case(f"permute/{t}", "permute", [x], back(move(x).permute(2, 0, 1)), axes=(2, 0, 1))
        case(f"transpose/{t}", "transpose", [x], back(move(x).transpose(-1, -2)))
        case(f"slice/{t}", "slice", [x], back(move(x)[:, 1:5:2]), axis=1, range=(1, 5, 2))
        case(f"concat/{t}", "concat", [x, y], back(torch.cat([move(x), move(y)], 1)), axis=1)
        case(f"contiguous/{t}", "contiguous", [View(x, "@p2,0,1@s1,1,4,2")], back(move(x).permute(2, 0, 1)[:, 1:4:2]))
        i = torch.tensor([3, 0, 3, 1])
        case(f"take/{t}", "take", [x, i], back(move(x)[i]), axis=0)
        g = ints(4, 5, 2, dtype="i64", low=0, high=6)
        case(f"gather/{t}", "gather", [x, g], back(torch.gather(move(x), 2, g)), axis=2)
        if t != "f8":
            case(f"pad/{t}",
                 "pad", [x],
                 F.pad(x, (1, 2, 0, 1, 3, 0), value=1),
                 before=(3, 0, 1),
                 after=(0, 1, 2),
                 value=1.0)

    x = rnd(7, 9)
    for axis, start, stop, step in ((0, 0, 7, 1), (0, 2, 5, 1), (1, 0, 9, 2), (1, 1, 9, 3), (0, -3, 7, 1),
                                    (0, 0, -1, 1), (1, -5, -2, 1), (0, 5, 2, 1), (0, 0, 100, 1), (1, -100, 4, 1),
                                    (0, 7, 9, 1), (-1, 3, 4, 1), (1, 8, 9, 5)):
        index = (slice(None),) * (axis % 2) + (slice(start, stop, step),)
        case(f"slice/range/{len(lines)}", "slice", [x], x[index].clone(), axis=axis, range=(start, stop, step))
    x = rnd(2, 3, 4)
    for to in ((24,), (-1,), (6, 4), (2, -1, 2), (1, 2, 1, 3, 4, 1), (4, 3, 2), (2, 3, 2, 2)):
        case(f"reshape/to/{len(lines)}", "reshape", [x], x.reshape(to), dims=to)
        p = View(x, "@p1,0,2")
        case(f"reshape/permuted/{len(lines)}", "reshape", [p], p.t.reshape(to), dims=to)
        s = View(rnd(2, 6, 4), "@s1,0,6,2")
        case(f"reshape/sliced/{len(lines)}", "reshape", [s], s.t.reshape(to), dims=to)
    x = rnd(1, 1)
    case("reshape/scalar", "reshape", [x], x.reshape(()), dims=())
    x = rnd(2, 3, 4)
    case("reshape/empty", "reshape", [torch.zeros(2, 0, 3)], torch.zeros(0, 7), dims=(0, 7))
    x = rnd(2, 3, 4, 5, 2)
    for axes in ((4, 3, 2, 1, 0), (0, 2, 1, 3, 4), (1, 0, -1, 2, 3)):
        case(f"permute/many/{len(lines)}", "permute", [x], x.permute(axes).clone(), axes=axes)
    x = rnd(6, 4, 2)
    for axis, parts in ((0, 1), (0, 2), (0, 3), (1, 4), (2, 2), (-1, 2)):
        case(f"split/{axis}/{parts}", "split", [x], [p.clone() for p in x.chunk(parts, axis)], axis=axis, parts=parts)
    for axis, parts in ((0, ((2, 3), (1, 3), (4, 3))), (1, ((2, 1), (2, 5))), (0, ((0, 3), (2, 3))),
                        (-1, ((2, 2, 3), (2, 2, 1), (2, 2, 0))), (0, ((3,),))):
        xs = [rnd(*p) for p in parts]
        case(f"concat/{len(lines)}", "concat", xs, torch.cat(xs, axis), axis=axis)
    xs = [rnd(3, 2), View(rnd(5, 3), "@p1,0"), View(rnd(3, 8), "@s1,1,8,3")]
    case("concat/views", "concat", xs, torch.cat([val(i) for i in xs], 1), axis=1)
    xs = [rnd(3), ints(2, dtype="i32"), rnd(2, dtype="bf16")]
    case("concat/mixed", "concat", xs, torch.cat([i.float() for i in xs]), axis=0)
    x = rnd(5, 4, 3)
    for axis, shape in ((0, (2,)), (1, (2, 3)), (2, ()), (-1, (7,)), (0, (0,)), (1, (2, 1, 2))):
        i = ints(*shape, dtype="i64", low=0, high=x.shape[axis])
        at = axis % 3
        want = torch.index_select(x, at, i.reshape(-1)).reshape(x.shape[:at] + tuple(shape) + x.shape[at + 1:])
        case(f"take/{len(lines)}", "take", [x, i], want, axis=axis)
        case(f"take/i32/{len(lines)}", "take", [x, i.int()], want, axis=axis)
        case(f"take/strided/{len(lines)}",
             "take", [View(x.permute(2, 1, 0).contiguous(), "@p2,1,0"), i],
             want,
             axis=axis)
    for axis in range(3):
        shape = [3, 2, 2]
        i = ints(*shape, dtype="i64", low=0, high=x.shape[axis])
        case(f"gather/{axis}", "gather", [x, i], torch.gather(x, axis, i), axis=axis)
    x = rnd(2, 3)
    for before, after, v in (((0, 0), (0, 0), 0.0), ((1, 2), (0, 3), 0.0), ((0, 1), (2, 0), -7.5), ((3, 0), (0, 0),
                                                                                                    math.inf)):
        case(f"pad/{len(lines)}",
             "pad", [x],
             F.pad(x, (before[1], after[1], before[0], after[0]), value=v),
             before=before,
             after=after,
             value=v)
    case("pad/empty", "pad", [torch.zeros(0, 2)], torch.full((2, 2), 3.0), before=(1, 0), after=(1, 0), value=3.0)
    v = View(rnd(4, 3), "@p1,0")
    case("pad/view", "pad", [v], F.pad(v.t, (1, 0), value=2.0), before=(0, 1), after=(0, 0), value=2.0)

    for t, start, stop, step in (("f32", 0, 5, 1), ("f32", 1, 2, 0.1), ("i32", 0, 10, 3), ("i64", 5, -4, -2),
                                 ("f32", 3, 3, 1), ("f16", 0, 20, 1.5), ("bf16", -2, 2, 0.5), ("f64", 0, 1, 0.3),
                                 ("u8", 0, 200, 7), ("f32", 10, 0, -2.5), ("f32", 0, 1000, 1), ("f32", 5, 0, 1),
                                 ("i64", 2**40, 2**40 + 3, 1)):
        n = max(0, math.ceil((stop - start) / step))
        want = torch.tensor([start + i * step for i in range(n)], dtype=torch.float64).to(TYPES[t])
        case(f"arange/{t}/{len(lines)}", "arange", [], want, 1, rulp=1, start=start, stop=stop, step=step, type=t)
    for t in ARITHMETIC:
        case(f"full/{t}", "full", [], torch.full((2, 3), 1, dtype=TYPES[t]), dims=(2, 3), type=t, value=1.0)
    case("full/f32/scalar", "full", [], torch.tensor(-2.5), dims=[], type="f32", value=-2.5)
    case("full/bf16/nan",
         "full", [],
         torch.full((3,), math.nan, dtype=torch.bfloat16),
         dims=(3,),
         type="bf16",
         value=math.nan)


def main():
    promotion()
    casts()
    unary()
    binary()
    broadcasting()
    where_and_clip()
    reductions()
    matmuls()
    sdpa()
    norms()
    rope()
    convolution()
    shapes()
    here = os.path.dirname(os.path.abspath(__file__))
    data = os.path.join(here, "..", "..", "tests", "data")
    os.makedirs(data, exist_ok=True)
    save_file(tensors, os.path.join(data, "ops.safetensors"))
    with open(os.path.join(data, "ops.txt"), "w") as f:
        f.write("# Made by tools/oracle/ops.py, which tells the format. Do not edit.\n")
        f.write("\n".join(lines) + "\n")
    names = [l.split()[0] for l in lines]
    assert len(names) == len(set(names)), [n for n in names if names.count(n) > 1][:5]
    megabytes = [os.path.getsize(os.path.join(data, name)) / 1e6 for name in ("ops.safetensors", "ops.txt")]
    print(f"{len(lines)} cases, {len(tensors)} tensors, {megabytes[0]:.2f} MB, {megabytes[1]:.2f} MB of text")


main()
