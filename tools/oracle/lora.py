#!/usr/bin/env python3
"""Golden values for LoRA files: what each does to the weights of a model, by NumPy, and to pictures, by diffusers.

    python3 tools/oracle/lora.py           writes tests/data/lora (needs requirements.txt)

merges.safetensors holds, for each of the tables below, `base/TABLE/NAME` (weights under the engine's names),
`file/TABLE/CASE` (a LoRA file, its bytes) and `want/TABLE/CASE/NAME`: x W'^T in float64 rounded to float32 for the two rows
x of probe(), where W' is the changed weight. A weight that a case does not change has no entry.

pictures.txt lists pictures that diffusers painted with load_lora_weights (PEFT), with the models of tests/data/flux2 and
tests/data/qwen; their LoRA files and their latents lie beside it.
"""

import json
import math
import pathlib

import numpy as np
import torch
from safetensors.numpy import save
from safetensors.torch import save_file

import common
import flux2
import flux3
import qwen
import zimage

DATA = common.TESTS / "lora"
D, M, R = 8, 12, 2  # width, feed-forward width, rank
random = np.random.default_rng(17)


def probe(n: int) -> np.ndarray:
    """Numbers that C makes, too."""
    return np.array([[math.sin(1 + 0.7 * i + 2.1 * row) for i in range(n)] for row in range(2)])


def noise(*shape, scale=1.0) -> np.ndarray:
    return scale * random.standard_normal(shape)


# ---------------------------------------------------------------------------------------------------------------------
# Models: engine's names and shapes

DOUBLE, SINGLE = "transformer_blocks.0.", "single_transformer_blocks.0.attn."
TABLES = {
    "klein": {"x_embedder": (D, 6), "double_stream_modulation_img.linear": (6 * D, D), "norm_out.linear": (2 * D, D),
              "proj_out": (6, D), DOUBLE + "attn.to_q": (D, D), DOUBLE + "attn.to_k": (D, D),
              DOUBLE + "attn.to_v": (D, D), DOUBLE + "attn.to_out.0": (D, D), DOUBLE + "attn.add_q_proj": (D, D),
              DOUBLE + "attn.add_k_proj": (D, D), DOUBLE + "attn.add_v_proj": (D, D),
              DOUBLE + "attn.to_add_out": (D, D), DOUBLE + "attn.norm_q": (4,), DOUBLE + "ff.linear_in": (2 * M, D),
              DOUBLE + "ff.linear_out": (D, M), DOUBLE + "ff_context.linear_in": (2 * M, D),
              SINGLE + "to_qkv_mlp_proj": (3 * D + 2 * M, D), SINGLE + "to_out": (D, D + M)},
    "qwen": {"txt_norm": (D,), "img_in": (D, 6), "transformer_blocks.0.img_mod.1": (6 * D, D),
             DOUBLE + "attn.to_q": (D, D), DOUBLE + "attn.to_k": (D, D), DOUBLE + "attn.to_v": (D, D),
             DOUBLE + "attn.to_out.0": (D, D), DOUBLE + "img_mlp.net.0.proj": (4 * D, D),
             DOUBLE + "img_mlp.net.2": (D, 4 * D)},
    "zimage": {"cap_embedder.1": (D, 4), "all_x_embedder.2-1": (D, 4), "all_final_layer.2-1.linear": (4, D),
               "layers.0.attention.to_q": (D, D), "layers.0.attention.to_k": (D, D), "layers.0.attention.to_v": (D, D),
               "layers.0.attention.to_out.0": (D, D), "layers.0.feed_forward.w1": (M, D)},
    "text": {"model.embed_tokens": (5, D), "model.layers.0.self_attn.q_proj": (2 * D, D),
             "model.layers.0.self_attn.k_proj": (D, D), "model.layers.0.self_attn.v_proj": (D, D),
             "model.layers.0.mlp.gate_proj": (M, D), "model.layers.0.mlp.up_proj": (M, D)},
}
BASE = {table: {name: noise(*shape, scale=0.5).astype(np.float32).astype(np.float64) for name, shape in rows.items()}
        for table, rows in TABLES.items()}

# What a module of a file stands for: [(target, rows of the target, rows of the module)], and its number of rows.
def rows_of(table: str, *targets: str):
    at, places = 0, []
    for t in targets:
        n = TABLES[table][t][0]
        places.append((t, np.arange(n), np.arange(at, at + n)))
        at += n
    return places, at


def part(first: int, n: int):
    return [(SINGLE + "to_qkv_mlp_proj", np.arange(first, first + n), np.arange(n))], n


def swapped(target: str):
    n = TABLES["klein"][target][0]
    return [(target, np.arange(n), np.roll(np.arange(n), -(n // 2)))], n


ATTN = DOUBLE + "attn."
ORIGINAL = {  # Black Forest Labs' names: fused, swapped, plain
    "img_in": rows_of("klein", "x_embedder"),
    "double_stream_modulation_img.lin": rows_of("klein", "double_stream_modulation_img.linear"),
    "final_layer.adaLN_modulation.1": swapped("norm_out.linear"),
    "double_blocks.0.img_attn.qkv": rows_of("klein", ATTN + "to_q", ATTN + "to_k", ATTN + "to_v"),
    "double_blocks.0.txt_attn.qkv": rows_of("klein", ATTN + "add_q_proj", ATTN + "add_k_proj", ATTN + "add_v_proj"),
    "double_blocks.0.img_attn.proj": rows_of("klein", ATTN + "to_out.0"),
    "double_blocks.0.img_mlp.0": rows_of("klein", DOUBLE + "ff.linear_in"),
    "single_blocks.0.linear1": rows_of("klein", SINGLE + "to_qkv_mlp_proj"),
    "single_blocks.0.linear2": rows_of("klein", SINGLE + "to_out"),
}
OWN = {name: rows_of("klein", name) for name in
       ("norm_out.linear", ATTN + "to_q", ATTN + "to_v", ATTN + "add_k_proj", DOUBLE + "ff_context.linear_in",
        SINGLE + "to_qkv_mlp_proj", SINGLE + "to_out")}
SPLIT = {"single_transformer_blocks.0.attn.to_q": part(0, D), "single_transformer_blocks.0.attn.to_k": part(D, D),
         "single_transformer_blocks.0.proj_mlp": part(3 * D, 2 * M), ATTN + "to_q": rows_of("klein", ATTN + "to_q")}
MFLUX = {ATTN + "to_out": rows_of("klein", ATTN + "to_out.0")}
QWEN = {name: rows_of("qwen", name) for name in (ATTN + "to_q", ATTN + "to_out.0", DOUBLE + "img_mlp.net.0.proj",
                                                 DOUBLE + "img_mlp.net.2", DOUBLE + "img_mod.1")}
ZIMAGE = {"layers.0.attention.to_q": rows_of("zimage", "layers.0.attention.to_q"),
          "layers.0.attention.to_k": rows_of("zimage", "layers.0.attention.to_k"),
          "layers.0.feed_forward.w1": rows_of("zimage", "layers.0.feed_forward.w1")}
ZQKV = rows_of("zimage", *(f"layers.0.attention.to_{x}" for x in "qkv"))
ZFUSED = {"layers.0.attention.qkv": ZQKV, "layers.0.attention.out": rows_of("zimage", "layers.0.attention.to_out.0"),
          "final_layer.linear": rows_of("zimage", "all_final_layer.2-1.linear"),
          "x_embedder": rows_of("zimage", "all_x_embedder.2-1")}
TEXT = {"layers.0.self_attn.q_proj": rows_of("text", "model.layers.0.self_attn.q_proj"),
        "layers.0.mlp.up_proj": rows_of("text", "model.layers.0.mlp.up_proj")}
TEXT_FUSED = {"layers.0.self_attn.qkv_proj": rows_of("text", *(f"model.layers.0.self_attn.{x}_proj" for x in "qkv")),
              "layers.0.mlp.gate_up_proj": rows_of("text", "model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj")}


# ---------------------------------------------------------------------------------------------------------------------
# Kinds: tensors of a module (roles) and its matrix, without alpha

def divisor(n: int) -> int:
    return next(f for f in (4, 3, 2, 1) if n % f == 0)


def lora(out: int, n: int, number: type, alpha: bool, w: np.ndarray):
    a, b = noise(R, n).astype(number), noise(out, R, scale=0.3).astype(number)
    k = 3.0 / R if alpha else 1.0
    roles = {"down": a, "up": b} | ({"alpha": np.array(3.0, number)} if alpha else {})
    return roles, k * b.astype(np.float64) @ a.astype(np.float64)


def loha(out: int, n: int, number: type, alpha: bool, w: np.ndarray):
    t = [noise(*s, scale=0.6).astype(number) for s in ((out, R), (R, n), (out, R), (R, n))]
    k = 3.0 / R if alpha else 1.0
    roles = dict(zip(("hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b"), t))
    f = [x.astype(np.float64) for x in t]
    return roles | ({"alpha": np.array(3.0, number)} if alpha else {}), k * (f[0] @ f[1]) * (f[2] @ f[3])


def lokr(out: int, n: int, number: type, alpha: bool, w: np.ndarray):
    """With alpha: the second factor is a product, whose rank counts. Without: both are whole, and alpha is nonsense."""
    a, b = divisor(out), divisor(n)
    w1 = noise(a, b).astype(number)
    if alpha:
        w2a, w2b = noise(out // a, R, scale=0.4).astype(number), noise(R, n // b).astype(number)
        w2 = w2a.astype(np.float64) @ w2b.astype(np.float64)
        return ({"lokr_w1": w1, "lokr_w2_a": w2a, "lokr_w2_b": w2b, "alpha": np.array(3.0, number)},
                3.0 / R * np.kron(w1.astype(np.float64), w2))
    w2 = noise(out // a, n // b, scale=0.3).astype(number)
    with np.errstate(over="ignore"):
        huge = np.array(1e10, number)  # as ai-toolkit writes it; inf in float16
    return {"lokr_w1": w1, "lokr_w2": w2, "alpha": huge}, np.kron(w1.astype(np.float64), w2.astype(np.float64))


def dora(kind):
    def make(out: int, n: int, number: type, alpha: bool, w: np.ndarray):
        roles, delta = kind(out, n, number, alpha, w)
        m = (0.5 + np.abs(noise(out, 1))).astype(number)
        v = w + delta
        return roles | {"magnitude": m}, m.astype(np.float64) * v / np.linalg.norm(v, axis=1, keepdims=True) - w
    return make


def dora_columns(out: int, n: int, number: type, alpha: bool, w: np.ndarray):
    roles, delta = lora(out, n, number, alpha, w)
    m = (0.5 + np.abs(noise(1, n))).astype(number)
    v = w + delta
    return roles | {"magnitude": m}, m.astype(np.float64) * v / np.linalg.norm(v, axis=0, keepdims=True) - w


KINDS = {"lora": lora, "loha": loha, "lokr": lokr, "dora": dora(lora), "dora_loha": dora(loha), "dora_lokr": dora(lokr)}

# ---------------------------------------------------------------------------------------------------------------------
# Namings: how a key is made of a module's name and a role

PEFT = {"down": ".lora_A.weight", "up": ".lora_B.weight", "magnitude": ".lora_magnitude_vector"}
RAW = {"down": ".lora_A.default.weight", "up": ".lora_B.default.weight",
       "magnitude": ".lora_magnitude_vector.default.weight"}
SHORT = {"down": ".lora_A", "up": ".lora_B", "magnitude": ".dora_scale"}
KOHYA = {"down": ".lora_down.weight", "up": ".lora_up.weight", "magnitude": ".dora_scale"}
OLD = {"down": ".lora.down.weight", "up": ".lora.up.weight", "magnitude": ".dora_scale"}
OLDER = {"down": "_lora.down.weight", "up": "_lora.up.weight", "magnitude": ".dora_scale"}
LAYER = {"down": ".lora_linear_layer.down.weight", "up": ".lora_linear_layer.up.weight", "magnitude": ".dora_scale"}


def naming(prefix: str, suffixes: dict, flat=False, change=lambda name: name):
    def key(module: str, role: str) -> str:
        name = module.replace(".", "_") if flat else change(module)
        return prefix + name + suffixes.get(role, "." + role)
    return key


NAMINGS = {  # table, modules, key
    "diffusers": ("klein", OWN, naming("transformer.", PEFT)),
    "aitoolkit": ("klein", ORIGINAL, naming("diffusion_model.", PEFT)),
    "musubi_other": ("klein", ORIGINAL, naming("diffusion_model.", PEFT, change=lambda n: n.replace("attn.", "attn_"))),
    "kohya": ("klein", ORIGINAL, naming("lora_unet_", KOHYA, flat=True)),
    "fal": ("klein", ORIGINAL, naming("base_model.model.", PEFT)),
    "bare": ("klein", ORIGINAL, naming("", RAW)),
    "combined": ("klein", ORIGINAL, naming("base_model.model.transformer.diffusion_model.", SHORT)),
    "simpletuner": ("klein", OWN, naming("lycoris_", KOHYA, flat=True)),
    "onetrainer": ("klein", OWN, naming("lora_transformer_", KOHYA, flat=True)),
    "torn": ("klein", {k: v for k, v in OWN.items() if k.startswith("transformer_blocks")},
             naming("", OLD, change=lambda n: n.replace("transformer_blocks", "sformer_blocks"))),
    "split": ("klein", SPLIT, naming("transformer.", PEFT)),
    "mflux": ("klein", MFLUX, naming("", OLDER)),
    "lightx2v": ("qwen", QWEN, naming("", KOHYA)),
    "qwen_diffusers": ("qwen", QWEN, naming("transformer.", PEFT)),
    "qwen_musubi": ("qwen", QWEN, naming("lora_unet_", KOHYA, flat=True)),
    "qwen_comfy": ("qwen", QWEN, naming("model.diffusion_model.", KOHYA)),
    "z_aitoolkit": ("zimage", ZIMAGE, naming("diffusion_model.", PEFT)),
    "z_kohya": ("zimage", ZIMAGE, naming("lora_unet__", KOHYA, flat=True)),
    "z_fused": ("zimage", ZFUSED, naming("lora_unet_", KOHYA, flat=True)),
    "z_anime": ("zimage", ZIMAGE, naming("", OLD, change=lambda n: n.replace("to_", "to."))),
    "te_diffusers": ("text", TEXT, naming("text_encoder.model.", LAYER)),
    "te_kohya": ("text", TEXT, naming("lora_te_", KOHYA, flat=True)),
    "te_kohya1": ("text", TEXT, naming("lora_te1_model_", KOHYA, flat=True)),
    "te_comfy": ("text", TEXT_FUSED, naming("text_encoders.qwen3_4b.transformer.model.", KOHYA)),
}

archive: dict[str, np.ndarray] = {}
lines: list[str] = []


def keep(table: str, case: str, tensors: dict, changed: dict, options="", metadata=None) -> None:
    archive[f"file/{table}/{case}"] = np.frombuffer(save(tensors, metadata), np.uint8)
    for target, w in changed.items():
        x = probe(w.shape[1]) if w.ndim == 2 else None
        archive[f"want/{table}/{case}/{target}"] = (x @ w.T if w.ndim == 2 else w).astype(np.float32)
    lines.append(f"{table} {case}{' ' + options if options else ''}\n")


def make_file(table: str, modules: dict, key, kind, number, alpha: bool, strength: float, changed: dict) -> dict:
    """The tensors of a file; changed gets what it adds, in the order of calls."""
    tensors = {}
    for module, (places, rows) in modules.items():
        width = TABLES[table][places[0][0]][1]
        w = np.zeros((rows, width))
        for target, to, of in places:
            w[of] = BASE[table][target][to]
        roles, delta = kind(rows, width, number, alpha, w)
        if "magnitude" in roles and ".lora_magnitude" in key("", "magnitude"):
            roles["magnitude"] = roles["magnitude"].reshape(-1)  # PEFT
        tensors |= {key(module, role): t for role, t in roles.items()}
        for target, to, of in places:
            changed.setdefault(target, BASE[table][target].copy())[to] += strength * delta[of]
    return tensors


def merges() -> None:
    for table, rows in BASE.items():
        archive.update({f"base/{table}/{name}.weight": w.astype(np.float32) for name, w in rows.items()})
    numbers = [np.float32, np.float16]
    for i, (name, (table, modules, key)) in enumerate(NAMINGS.items()):
        for k, (kind_name, kind) in enumerate(KINDS.items()):
            if kind_name.startswith("dora_") and name not in ("diffusers", "kohya", "lightx2v"):
                continue
            for alpha in (False, True):
                changed: dict = {}
                tensors = make_file(table, modules, key, kind, numbers[(i + k) % 2], alpha, 0.75, changed)
                keep(table, f"{name}-{kind_name}-{'alpha' if alpha else 'none'}", tensors, changed, "weight=0.75")

    # Columns that get lengths, only where the matrix is whole.
    changed = {}
    keep("klein", "columns", make_file("klein", OWN, NAMINGS["kohya"][2], dora_columns, np.float32, True, 1.0, changed),
         changed)

    # Whole differences: of a matrix, fused matrix, norm and bias; a matrix that is replaced.
    qkv = "diffusion_model.double_blocks.0.img_attn.qkv"
    d, b, norm, whole = noise(3 * D, D), noise(3 * D), noise(4), noise(D, M)
    changed = {ATTN + f"to_{x}": BASE["klein"][ATTN + f"to_{x}"] + 0.5 * d[i * D:(i + 1) * D] for i, x in enumerate("qkv")}
    changed[ATTN + "norm_q"] = BASE["klein"][ATTN + "norm_q"] + 0.5 * norm
    changed[DOUBLE + "ff.linear_out"] = whole
    keep("klein", "differences",
         {f"{qkv}.diff": d.astype(np.float32), "diffusion_model.double_blocks.0.img_attn.norm.query_norm.w_norm":
          norm.astype(np.float32), "diffusion_model.double_blocks.0.img_mlp.2.set_weight": whole.astype(np.float32)},
         changed, "weight=0.5")
    tensors = {f"{qkv}.diff_b": b.astype(np.float32), "transformer.proj_out.lora_A.weight": noise(R, D).astype(np.float32),
               "transformer.proj_out.lora_B.weight": noise(6, R).astype(np.float32),
               "transformer.proj_out.lora_B.bias": noise(6).astype(np.float32)}
    keep("klein", "biases", tensors, {}, "weight=0.5")
    for i, x in enumerate("qkv"):
        archive[f"want/klein/biases/{ATTN}to_{x}"] = \
            (probe(D) @ BASE["klein"][ATTN + f"to_{x}"].T + 0.5 * b[i * D:(i + 1) * D]).astype(np.float32)
    t = {k.rsplit("lora_", 1)[-1]: v.astype(np.float64) for k, v in tensors.items()}
    archive["want/klein/biases/proj_out"] = (probe(D) @ (BASE["klein"]["proj_out"] + 0.5 * t["B.weight"] @ t["A.weight"]).T
                                             + 0.5 * t["B.bias"]).astype(np.float32)

    # Alpha from PEFT's configuration, with patterns, and by the root of the rank.
    key = NAMINGS["diffusers"][2]
    for case, more, factor in (("config", {}, {"": 5 / R, "to_out": 7 / R}), ("rslora", {"transformer.use_rslora": True},
                                                                             {"": 5 / R**.5, "to_out": 7 / R**.5})):
        config = {"transformer.r": R, "transformer.lora_alpha": 5, "transformer.alpha_pattern": {"attn.to_out": 7}} | more
        changed = {}
        tensors = make_file("klein", OWN, key, lora, np.float32, False, 1.0, changed)
        for target, w in changed.items():
            base = BASE["klein"][target]
            changed[target] = base + factor["to_out" if target.endswith("attn.to_out") else ""] * (w - base)
        keep("klein", case, tensors, changed, metadata={"lora_adapter_metadata": json.dumps(config)})

    # Both forms in one file: the parts count.
    changed = {}
    tensors = make_file("zimage", ZIMAGE, NAMINGS["z_anime"][2], lora, np.float32, True, 1.0, changed)
    tensors |= make_file("zimage", {"layers.0.attention.qkv": ZQKV}, naming("", OLD), lora, np.float32, True, 1.0, {})
    keep("zimage", "both", tensors, changed)

    # Block-diagonal up, as a converter to ComfyUI writes: nothing is cut in thirds (trap 6).
    a, up, changed = noise(3 * R, D), np.zeros((3 * D, 3 * R)), {}
    for i, x in enumerate("qkv"):
        up[i * D:(i + 1) * D, i * R:(i + 1) * R] = noise(D, R)
        changed[f"layers.0.attention.to_{x}"] = (BASE["zimage"][f"layers.0.attention.to_{x}"]
                                                 + 3.0 / (3 * R) * up[i * D:(i + 1) * D] @ a)
    keep("zimage", "block_diagonal",
         {"diffusion_model.layers.0.attention.qkv.lora_A.weight": a.astype(np.float32),
          "diffusion_model.layers.0.attention.qkv.lora_B.weight": up.astype(np.float32),
          "diffusion_model.layers.0.attention.qkv.alpha": np.array([3.0], np.float32)}, changed)

    # Conv-shaped, ranks that differ, alpha as an integer of one axis, bfloat16 by torch.
    a, b, changed = noise(R, D, 1, 1).astype(np.float32), noise(D, R, 1, 1).astype(np.float32), {}
    changed[ATTN + "to_q"] = BASE["qwen"][ATTN + "to_q"] + 4 / R * (b[:, :, 0, 0].astype(np.float64) @ a[:, :, 0, 0])
    a5, b5 = noise(5, D).astype(np.float32), noise(D, 5).astype(np.float32)
    changed[ATTN + "to_k"] = BASE["qwen"][ATTN + "to_k"] + b5.astype(np.float64) @ a5
    keep("qwen", "shapes", {"transformer_blocks.0.attn.to_q.lora_down.weight": a,
                            "transformer_blocks.0.attn.to_q.lora_up.weight": b,
                            "transformer_blocks.0.attn.to_q.alpha": np.array([4], np.int64),
                            "transformer_blocks.0.attn.to_k.lora_down.weight": a5,
                            "transformer_blocks.0.attn.to_k.lora_up.weight": b5}, changed)

    # Several files at once: the sum; DoRA of each counts from the base.
    for names, table in ((("kohya-lora-alpha", "diffusers-dora-none", "split-lora-none", "aitoolkit-lokr-alpha"), "klein"),
                         (("lightx2v-loha-none", "qwen_musubi-lora-alpha"), "qwen")):
        case = "+".join(names)
        targets = {k.rsplit("/", 1)[1] for k in archive for n in names if k.startswith(f"want/{table}/{n}/")}
        for target in targets:
            x = probe(TABLES[table][target][1])
            base = x @ BASE[table][target].T
            total = base + sum(archive[f"want/{table}/{n}/{target}"].astype(np.float64) - base for n in names
                               if f"want/{table}/{n}/{target}" in archive)
            archive[f"want/{table}/{case}/{target}"] = total.astype(np.float32)
        lines.append(f"{table} {case} weight=0.75\n")


# ---------------------------------------------------------------------------------------------------------------------
# Pictures by diffusers

def random_lora(modules: dict, rank: int, generator, prefix: str, suffix=("lora_A.weight", "lora_B.weight"), alpha=None,
                flat=False) -> dict:
    """modules: name -> (out, in)"""
    tensors = {}
    for name, (out, n) in modules.items():
        stem = prefix + (name.replace(".", "_") if flat else name)
        tensors[f"{stem}.{suffix[0]}"] = torch.randn(rank, n, generator=generator) / math.sqrt(n)
        tensors[f"{stem}.{suffix[1]}"] = torch.randn(out, rank, generator=generator) / math.sqrt(rank)
        if alpha is not None:
            tensors[f"{stem}.alpha"] = torch.tensor(float(alpha))
    return tensors


def linears(model, *ends: str) -> dict:
    return {n: tuple(m.weight.shape) for n, m in model.named_modules()
            if isinstance(m, torch.nn.Linear) and any(n.endswith(e) for e in ends)}


def paint(pipe, oracle, c: dict, loras: list[tuple[str, float]]) -> None:
    adapters = []
    for i, (file, weight) in enumerate(loras):
        pipe.load_lora_weights(DATA, weight_name=file, adapter_name=f"a{i}")
        adapters.append(f"a{i}")
    pipe.set_adapters(adapters, [weight for _, weight in loras])
    golden = oracle.run(pipe, c)
    pipe.unload_lora_weights()
    save_file({"latents": golden["latents"].contiguous(), "image": golden["image"].contiguous()},
              DATA / f"{c['name']}.golden.safetensors")
    base = oracle.run(pipe, c)
    print(f"{c['name']:20} the LoRAs change the latents by {common.error(golden['latents'], base['latents']):.2f}")
    assert common.error(golden["latents"], base["latents"]) > 0.05
    fields = dict(c, loras=",".join(f"{f}={w}" for f, w in loras), data=oracle.DATA.name)
    with open(DATA / "pictures.txt", "a") as f:
        f.write(common.line(fields))


def pictures() -> None:
    (DATA / "pictures.txt").write_text("")
    generator = torch.Generator("cpu").manual_seed(3)
    pipe = flux2.load_model("B")
    all_of = linears(pipe.transformer, "to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "to_add_out", "linear_in",
                     "linear_out", "to_qkv_mlp_proj", "attn.to_out", "norm_out.linear", "x_embedder",
                     "double_stream_modulation_img.linear")
    save_file(random_lora(all_of, 4, generator, "transformer."), DATA / "klein-peft.safetensors",
              {"lora_adapter_metadata": json.dumps({"transformer.r": 4, "transformer.lora_alpha": 2,
                                                    "transformer.target_modules": sorted(all_of)})})
    few = linears(pipe.transformer, "to_qkv_mlp_proj", "add_v_proj", "ff_context.linear_out")
    save_file(random_lora(few, 3, generator, "transformer."), DATA / "klein-few.safetensors")
    width = pipe.transformer.config.num_attention_heads * pipe.transformer.config.attention_head_dim
    original = {"double_blocks.0.img_attn.qkv": (3 * width, width), "double_blocks.0.txt_attn.qkv": (3 * width, width),
                "double_blocks.0.img_attn.proj": (width, width), "single_blocks.1.linear1": (9 * width, width)}
    save_file(random_lora(original, 4, generator, "diffusion_model."), DATA / "klein-original.safetensors")
    # PEFT's DoRA, saved by diffusers itself.
    from peft import LoraConfig
    pipe.transformer.add_adapter(LoraConfig(r=2, lora_alpha=3, use_dora=True, init_lora_weights=False,
                                            target_modules=["to_q", "to_qkv_mlp_proj", "linear_out"]), "dora")
    for name, p in pipe.transformer.named_parameters():
        if "lora_" in name:
            p.data = (1 + torch.rand(p.shape, generator=generator) if "magnitude" in name
                      else 0.3 * torch.randn(p.shape, generator=generator))
    from diffusers.utils import convert_state_dict_to_diffusers  # noqa: F401
    from peft.utils import get_peft_model_state_dict
    state = get_peft_model_state_dict(pipe.transformer, adapter_name="dora")
    save_file({f"transformer.{k}": v.detach().contiguous() for k, v in state.items()}, DATA / "klein-dora.safetensors",
              {"lora_adapter_metadata": json.dumps({"transformer.r": 2, "transformer.lora_alpha": 3,
                                                    "transformer.use_dora": True, "transformer.init_lora_weights": False,
                                                    "transformer.target_modules": ["to_q", "to_qkv_mlp_proj", "linear_out"]})})
    pipe = flux2.load_model("B")
    b = flux2.case("", "B", "a red fox in the snow", width=48, height=32, steps=3, seed=5)
    paint(pipe, flux2, dict(b, name="klein_peft"), [("klein-peft.safetensors", 1.0)])
    paint(pipe, flux2, dict(b, name="klein_original"), [("klein-original.safetensors", 0.7)])
    paint(pipe, flux2, dict(b, name="klein_several"), [("klein-peft.safetensors", 0.5), ("klein-few.safetensors", -0.8)])
    paint(flux2.load_model("B"), flux2, dict(b, name="klein_dora"), [("klein-dora.safetensors", 1.0)])

    pipe = qwen.load_model("Q")
    ends = ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out", "net.0.proj",
            "net.2")
    twelve = linears(pipe.transformer, *ends)
    assert len(twelve) == 12 * 2
    tensors = random_lora(twelve, 64, generator, "", ("lora_down.weight", "lora_up.weight"), alpha=8)
    save_file({k: v.to(torch.bfloat16).contiguous() for k, v in tensors.items()},
              DATA / "Qwen-Image-Lightning-4steps-V1.0-bf16.safetensors")
    modulation = linears(pipe.transformer, "to_q", "img_mod.1", "txt_mod.1", "norm_out.linear", "img_in", "linear_1")
    save_file(random_lora(modulation, 4, generator, "lora_unet_", ("lora_down.weight", "lora_up.weight"), alpha=6,
                          flat=True), DATA / "qwen-musubi.safetensors")
    save_file(random_lora(modulation, 4, generator, "transformer."), DATA / "qwen-peft.safetensors")
    q = next(c for c in qwen.CASES if c["name"] == "q_plain")
    q = dict(q, width=48, height=32, steps=3, prompt="a red fox in the snow", seed=6)
    paint(qwen.load_model("Q"), qwen, dict(q, name="qwen_peft"), [("qwen-peft.safetensors", 0.8)])
    lightning = qwen.load_model("L")
    paint(lightning, qwen, dict(q, model="L", name="qwen_lightning", steps=4, guidance=1.0),
          [("Qwen-Image-Lightning-4steps-V1.0-bf16.safetensors", 1.0)])
    try:
        paint(qwen.load_model("Q"), qwen, dict(q, name="qwen_musubi"), [("qwen-musubi.safetensors", 0.9)])
    except (ValueError, KeyError) as error:
        print("diffusers cannot read qwen-musubi:", error)
    z_pictures()
    flux3_pictures()


def flux3_pictures() -> None:
    """FLUX.3: all matrices of the blocks in the names of diffusers, and some in those of its makers."""
    generator = torch.Generator("cpu").manual_seed(5)
    pipe = flux3.load_model("D")
    all_of = linears(pipe.transformer, "to_q", "to_k", "to_v", "to_out.0", "linear_in", "linear_out")
    save_file(random_lora(all_of, 2, generator, "transformer."), DATA / "f3-peft.safetensors")
    few = linears(pipe.transformer, "0.attn.to_k", "1.attn.to_out.0", "0.ff.linear_in", "1.ff.linear_out")
    few = {flux3.original_names(name): shape for name, shape in few.items()}
    save_file(random_lora(few, 2, generator, "diffusion_model."), DATA / "f3-original.safetensors")
    c = flux3.case("", "D", "a red fox in the snow", seed=6)
    paint(pipe, flux3, dict(c, name="f3_peft"), [("f3-peft.safetensors", 0.8)])
    paint(pipe, flux3, dict(c, name="f3_original"), [("f3-original.safetensors", 1.0)])


def z_pictures() -> None:
    """Z-Image: all matrices of the blocks and what modulates them, and some in the names of kohya."""
    generator = torch.Generator("cpu").manual_seed(4)
    pipe = zimage.load_model("T")
    all_of = linears(pipe.transformer, "to_q", "to_k", "to_v", "to_out.0", "w1", "w2", "w3", "adaLN_modulation.0",
                     "cap_embedder.1", "2-1.linear")
    save_file(random_lora(all_of, 2, generator, "transformer."), DATA / "z-peft.safetensors")
    few = {k: v for k, v in linears(pipe.transformer, "to_k", "to_out.0", "w2", "adaLN_modulation.0").items()
           if k.split(".")[1] == "0"}
    save_file(random_lora(few, 2, generator, "lora_unet_", ("lora_down.weight", "lora_up.weight"), alpha=6, flat=True),
              DATA / "z-kohya.safetensors")
    z = zimage.case("", "T", "a red fox in the snow", width=48, height=32, steps=3, seed=6)
    paint(pipe, zimage, dict(z, name="z_peft"), [("z-peft.safetensors", 0.8)])
    paint(pipe, zimage, dict(z, name="z_kohya"), [("z-kohya.safetensors", 1.0)])


def write() -> None:
    DATA.mkdir(exist_ok=True)
    merges()
    (DATA / "merges.safetensors").write_bytes(save(archive))
    (DATA / "merges.txt").write_text("".join(lines))
    pictures()
    print(sum(f.stat().st_size for f in DATA.iterdir()), "bytes", len(lines), "merges")


if __name__ == "__main__":
    common.main(__doc__, write, write)
