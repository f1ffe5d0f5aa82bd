"""What the oracles of picture models share: a tokenizer, random weights, pictures, cases and how they are stored."""

import argparse
import json
import math
import pathlib
import urllib.parse

import torch
from diffusers.utils import logging as diffusers_logging
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Regex, processors
from transformers import Qwen2TokenizerFast
from transformers.utils import logging as transformers_logging

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data"

# ---------------------------------------------------------------------------------------------------------------------
# Tokenizer: Qwen's structure, some 340 merges learnt from these lines.

CORPUS = """
A cat holding a sign that says hello world. A red fox in the snow, photographed at dawn with a long lens.
An old lighthouse on a cliff above the sea, waves, gulls, oil painting with thick strokes of paint.
The user asks and the assistant answers. user assistant user assistant user assistant
Make the sky purple and put the hat of the first picture on the dog of the second picture.
It's a bowl of oranges; they're ripe, we've counted them: 1, 2, 3 and 42. I'll paint it, I'd say it isn't hard.
A small robot waters the flowers in a glass house while the rain is falling on the roof.
Portrait of a woman with silver hair, soft light, shallow depth of field, detailed skin texture.
un café crème, déjà vu, naïve, über, señor. 一只可爱的猫坐在窗边。 空に白い雲。 고양이 한 마리. Привет, мир.

two
lines

and    some    spaces   here
"""
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
BASE_TOKENS = 595
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MATCHED = ["<think>", "</think>"]  # as in Qwen3: added tokens that are not flagged special, but match all the same

CHAT_TEMPLATE = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""


def make_tokenizer(special=tuple(SPECIAL), matched=tuple(MATCHED)) -> Qwen2TokenizerFast:
    tok = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix=""))
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)])
    tok.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tok.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=BASE_TOKENS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tok.train_from_iterator([CORPUS], trainer)
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    tok.add_tokens([AddedToken(t, special=False, normalized=False) for t in matched])

    # Qwen's rule: ids 0..255 are the bytes in the order of their symbols, merge r gives id 256 + r.
    model = json.loads(tok.to_str())["model"]
    assert all(model["vocab"][s] == i for i, s in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet())))
    assert all(model["vocab"][a + b] == 256 + r for r, (a, b) in enumerate(model["merges"]))
    assert tok.token_to_id("<|endoftext|>") == BASE_TOKENS and len(model["vocab"]) == BASE_TOKENS

    # unk_token None, as in Qwen's tokenizer_config.json.
    fast = Qwen2TokenizerFast(tokenizer_object=tok, pad_token=SPECIAL[0], eos_token=SPECIAL[2], unk_token=None,
                              model_max_length=131072)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def save_tokenizer(tokenizer: Qwen2TokenizerFast, folder: pathlib.Path, with_merges: bool) -> None:
    """save_pretrained of transformers 5 writes no vocab.json and merges.txt; the real folders have them."""
    tokenizer.save_pretrained(folder)
    if not with_merges:
        return
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in model["merges"]))


# ---------------------------------------------------------------------------------------------------------------------
# Models

SHARP = ("q_norm", "k_norm", "norm_q", "norm_k", "norm_added")  # norms of q and k: attention that is not a mere mean


def randomise(module: torch.nn.Module, generator: torch.Generator, gains: dict[str, float]) -> None:
    """Random weights that keep activations near 1, so that every term of every equation is seen in the result. gains: for
    names with these parts, instead of 1."""
    for name, p in module.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if name.endswith("gamma") or (p.ndim == 1 and not name.endswith("bias")):  # weights of norms
            p.data = (1.5 if any(part in name for part in SHARP) else 1.0) + 0.2 * noise
        elif p.ndim > 1:
            gain = next((g for part, g in gains.items() if part in name), 1.0)
            p.data = gain * noise / math.sqrt(p[0].numel())  # 1/sqrt(fan in)
        else:
            p.data = 0.1 * noise
    # Patch channels that differ, so that a mix-up of their order shows.
    for name, b in module.named_buffers():
        if name == "bn.running_mean":
            b.copy_(0.1 * torch.randn(b.shape, generator=generator))
        if name == "bn.running_var":
            b.copy_(1 + 2 * torch.rand(b.shape, generator=generator))


def edit_json(path: pathlib.Path, **changes) -> None:
    """Sets keys of a JSON file; a value of None removes the key."""
    data = json.loads(path.read_text()) | changes
    data = {k: v for k, v in data.items() if k not in changes or changes[k] is not None}
    path.write_text(json.dumps(data, indent=2) + "\n")


def ready(pipe, dtype: torch.dtype):
    pipe.set_progress_bar_config(disable=True)
    for module in (pipe.text_encoder, pipe.transformer, pipe.vae):
        assert all(t.dtype == dtype for t in module.state_dict().values() if t.is_floating_point())
    return pipe


# ---------------------------------------------------------------------------------------------------------------------
# Cases

# Astral characters, ZWJ and variation selectors, e + combining acute and Hangul jamo (both composed by NFC), a mark
# that composes with nothing, right-to-left text, digits that are not ASCII.
UNICODE = "一只可爱的猫 🐈\u200d⬛ 👩🏽\u200d🎨 ❤\ufe0f cafe\u0301 \u1112\u1161\u11ab q\u0307 שלום ١٢٣ ½ naïve—ok"


def make_picture(width: int, height: int, index: int) -> Image.Image:
    """Smooth, different in all channels and directions, and without symmetry."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    waves = [torch.sin(0.11 * x + 0.05 * y * index), torch.cos(0.07 * x * index - 0.13 * y), torch.sin(0.002 * x * y)]
    pixels = torch.stack([128 + 120 * wave for wave in waves], dim=-1).round().to(torch.uint8)
    return Image.fromarray(pixels.numpy())


def make_pictures(folder: pathlib.Path, pictures: dict[str, tuple[int, int]]) -> None:
    for i, (name, size) in enumerate(pictures.items()):
        make_picture(*size, i + 1).save(folder / name)


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Relative L2 error."""
    got, want = got.double(), want.double()
    return ((got - want).norm() / want.norm().clamp_min(1e-30)).item()


def store(folder: pathlib.Path, c: dict, golden: dict, exact: dict, tokens: str) -> None:
    """Writes the tensors of a case. exact: the same in float64, to tell the rounding noise."""
    image, latents = golden["image"], golden["latents"]
    clipped = ((image <= 0) | (image >= 1)).float().mean()
    print(f"{c['name']:20} {tokens}  image {image.mean():.3f} +- {image.std():.3f} clipped {clipped:.3f}  "
          f"latents {latents.std():.2f}  f32 against f64: text {error(golden['text'], exact['text']):.1e} "
          f"latents {error(latents, exact['latents']):.1e} image {error(image, exact['image']):.1e}", flush=True)
    assert image.std() > 0.05
    save_file(golden, folder / "cases" / f"{c['name']}.safetensors")


class Seen(dict):
    """The first outputs of modules: seen.keep(module, "name", pick), where pick takes the part to be kept."""

    def __init__(self):
        super().__init__()
        self.hooks = []

    def keep(self, module: torch.nn.Module, name: str, pick=lambda out: out, call: int = 0) -> None:
        """call: of several calls the one to keep."""
        calls = []

        def hook(_, args, out):
            calls.append(None)
            if len(calls) == call + 1:
                self[name] = pick(out)

        self.hooks.append(module.register_forward_hook(hook))

    def end(self) -> dict[str, torch.Tensor]:
        for hook in self.hooks:
            hook.remove()
        return {k: v.detach().float().clone().contiguous() for k, v in self.items()}


def line(c: dict) -> str:
    fields = dict(c, references=",".join(c["references"]))
    for key in {"prompt", "negative"} & c.keys():
        fields[key] = urllib.parse.quote(c[key], safe="")
    return " ".join(f"{k}={v}" for k, v in fields.items()) + "\n"


def finish(folder: pathlib.Path, cases: list[dict], most: float) -> None:
    (folder / "cases.txt").write_text("".join(map(line, cases)))
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file() and f.resolve() == f.absolute())
    print(f"{folder}: {size} bytes")
    assert size < most


def check(folder: pathlib.Path, cases: list[dict], load_model, run) -> None:
    pipes = {name: load_model(name) for name in {c["model"]: None for c in cases}}
    for c in cases:
        want = load_file(folder / "cases" / f"{c['name']}.safetensors")
        got = run(pipes[c["model"]], c)
        assert got.keys() == want.keys()
        worst = max(error(got[k], want[k]) for k in want)
        print(f"{c['name']:20} largest relative error {worst:.1e}")
        assert worst < 1e-6


def main(description: str, write, verify) -> None:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the stored values with a new run")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for logging in (transformers_logging, diffusers_logging):
        logging.set_verbosity_error()
        logging.disable_progress_bar()
    # Without AVX2 torch.randn gives other numbers.
    assert torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"), "needs a CPU with AVX2"
    verify() if parser.parse_args().check else write()
