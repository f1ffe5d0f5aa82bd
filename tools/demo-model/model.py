"""The three networks of the demonstration model, with the parameter names and the arithmetic of Qwen3ForCausalLM,
Flux2Transformer2DModel and AutoencoderKLFlux2, so that what is trained here loads there. Nothing but PyTorch is needed.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

VAE = dict(
    block_out_channels=[32, 64, 96, 96],
    decoder_block_out_channels=[48, 64, 96, 96],
    layers_per_block=1,
    latent_channels=16,
    norm_num_groups=16,
)
TEXT = dict(
    hidden_size=256,
    intermediate_size=384,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    vocab_size=2560,
    rope_theta=10000.0,
)
TAPS = [1, 3]  # hidden states given to the transformer; the last layer is never run: its state would be normed
TRANSFORMER = dict(
    in_channels=64,
    num_layers=1,
    num_single_layers=6,
    attention_head_dim=64,
    num_attention_heads=5,
    joint_attention_dim=512,
    mlp_ratio=2.0,
    axes_dims_rope=[8, 24, 24, 8],
    rope_theta=2000,
    timestep_guidance_channels=256,
)
TEXT_LENGTH = 40
STEPS = 8

# Second edition: one more single block, longer captions, 4 steps. Its text encoder and autoencoder are those above.
SECOND = dict(TRANSFORMER, num_single_layers=7)
SECOND_LENGTH = 48
SECOND_STEPS = 4
SECOND_SHIFT = 3.0  # of its noise levels; the shift of klein, 7 at 256x256, would leave 0.7 of the noise to the last of 4 steps


class RMSNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight.float(), 1e-6)


def linear(fan_in: int, fan_out: int) -> nn.Linear:
    layer = nn.Linear(fan_in, fan_out, bias=False)
    nn.init.normal_(layer.weight, std=fan_in**-0.5)
    return layer


# ---------------------------------------------------------------------------------------------------------------------
# Text encoder


class TextLayer(nn.Module):
    def __init__(self, c: dict):
        super().__init__()
        width, head, q, kv = c["hidden_size"], c["head_dim"], c["num_attention_heads"], c["num_key_value_heads"]
        self.head = head
        self.self_attn = nn.ModuleDict(
            dict(
                q_proj=linear(width, q * head),
                k_proj=linear(width, kv * head),
                v_proj=linear(width, kv * head),
                o_proj=linear(q * head, width),
                q_norm=RMSNorm(head),
                k_norm=RMSNorm(head),
            )
        )
        self.mlp = nn.ModuleDict(
            dict(
                gate_proj=linear(width, c["intermediate_size"]),
                up_proj=linear(width, c["intermediate_size"]),
                down_proj=linear(c["intermediate_size"], width),
            )
        )
        self.input_layernorm = RMSNorm(width)
        self.post_attention_layernorm = RMSNorm(width)

    def forward(self, x, mask, cos, sin):
        def heads(y):
            return y.unflatten(-1, (-1, self.head)).transpose(1, 2)

        def rotate(y):
            a, b = y.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        a, y = self.self_attn, self.input_layernorm(x)
        q, k, v = heads(a["q_proj"](y)), heads(a["k_proj"](y)), heads(a["v_proj"](y))
        q, k = rotate(a["q_norm"](q)).to(v.dtype), rotate(a["k_norm"](k)).to(v.dtype)
        k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + a["o_proj"](y.transpose(1, 2).flatten(2))
        m, y = self.mlp, self.post_attention_layernorm(x)
        return x + m["down_proj"](F.silu(m["gate_proj"](y)) * m["up_proj"](y))


class TextEncoder(nn.Module):
    def __init__(self, c: dict = TEXT, taps: list = TAPS):
        super().__init__()
        self.c, self.taps = c, taps
        self.model = nn.ModuleDict(
            dict(
                embed_tokens=nn.Embedding(c["vocab_size"], c["hidden_size"]),
                layers=nn.ModuleList(TextLayer(c) for _ in range(c["num_hidden_layers"])),
                norm=RMSNorm(c["hidden_size"]),
            )
        )
        nn.init.normal_(self.model["embed_tokens"].weight, std=0.5)

    def forward(self, ids, lengths):
        """ids [B,T] padded on the right, lengths [B] -> [B,T,taps*width]. Pads are no keys but have rows."""
        at = torch.arange(ids.shape[1], device=ids.device)
        mask = (at[None, :] <= at[:, None])[None] & (at[None, None, :] < lengths[:, None, None])
        half = self.c["head_dim"] // 2
        speed = self.c["rope_theta"] ** (-torch.arange(half, device=ids.device).float() / half)
        angle = at.float()[:, None] * speed
        cos, sin = angle.cos(), angle.sin()
        x = self.model["embed_tokens"](ids)
        states = [x]
        for layer in self.model["layers"][: self.taps[-1]]:
            states.append(layer(states[-1], mask[:, None], cos, sin))
        return torch.cat([states[tap].float() for tap in self.taps], -1)


# ---------------------------------------------------------------------------------------------------------------------
# Transformer


def positions(height: int, width: int, text: int, device, references=()) -> torch.Tensor:
    """[text + height * width + tokens of the references, 4] of (T, H, W, L). Reference i, from 1, has T = 10 i."""
    ids = torch.zeros(text, 4, device=device)
    ids[:, 3] = torch.arange(text, device=device)
    parts = [ids]
    for i, (h, w) in enumerate([(height, width), *references]):
        grid = torch.zeros(h * w, 4, device=device)
        grid[:, 0] = 10 * i
        grid[:, 1] = torch.arange(h, device=device).repeat_interleave(w)
        grid[:, 2] = torch.arange(w, device=device).repeat(h)
        parts.append(grid)
    return torch.cat(parts)


def rope_tables(ids: torch.Tensor, axes: list, theta: float):
    angles = [
        ids[:, a, None] * theta ** (-torch.arange(0, n, 2, device=ids.device).float() / n) for a, n in enumerate(axes)
    ]
    angles = torch.cat(angles, -1)
    return angles.cos(), angles.sin()


def rotate_pairs(x, cos, sin):
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)


def modulate(x, shift, scale):
    return F.layer_norm(x.float(), (x.shape[-1],), eps=1e-6) * (1 + scale) + shift


def attend(q, k, v, rope):
    """[B,S,heads,d] each -> [B,S,heads*d]"""
    q, k = (rotate_pairs(t.transpose(1, 2), *rope).to(v.dtype) for t in (q, k))
    return F.scaled_dot_product_attention(q, k, v.transpose(1, 2)).transpose(1, 2).flatten(2)


class FeedForward(nn.Module):
    def __init__(self, width: int, inner: int):
        super().__init__()
        self.linear_in, self.linear_out = linear(width, 2 * inner), linear(inner, width)

    def forward(self, x):
        gate, up = self.linear_in(x).chunk(2, -1)
        return self.linear_out(F.silu(gate) * up)


class JointAttention(nn.Module):
    def __init__(self, width: int, head: int):
        super().__init__()
        self.head = head
        for name in ("to_q", "to_k", "to_v", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"):
            setattr(self, name, linear(width, width))
        for name in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
            setattr(self, name, RMSNorm(head))
        self.to_out = nn.ModuleList([linear(width, width)])

    def forward(self, x, y, rope):
        def heads(t):
            return t.unflatten(-1, (-1, self.head))

        q = torch.cat([self.norm_added_q(heads(self.add_q_proj(y))), self.norm_q(heads(self.to_q(x)))], 1)
        k = torch.cat([self.norm_added_k(heads(self.add_k_proj(y))), self.norm_k(heads(self.to_k(x)))], 1)
        v = torch.cat([heads(self.add_v_proj(y)), heads(self.to_v(x))], 1)
        a = attend(q, k, v, rope)
        return self.to_out[0](a[:, y.shape[1] :]), self.to_add_out(a[:, : y.shape[1]])


class DoubleBlock(nn.Module):
    def __init__(self, width: int, head: int, inner: int):
        super().__init__()
        self.attn = JointAttention(width, head)
        self.ff, self.ff_context = FeedForward(width, inner), FeedForward(width, inner)

    def forward(self, x, y, mx, my, rope):
        a, b = self.attn(modulate(x, mx[0], mx[1]), modulate(y, my[0], my[1]), rope)
        x, y = x + mx[2] * a, y + my[2] * b
        x = x + mx[5] * self.ff(modulate(x, mx[3], mx[4]))
        y = y + my[5] * self.ff_context(modulate(y, my[3], my[4]))
        return x, y


class SingleAttention(nn.Module):
    def __init__(self, width: int, head: int, inner: int):
        super().__init__()
        self.width, self.head, self.inner = width, head, inner
        self.to_qkv_mlp_proj = linear(width, 3 * width + 2 * inner)
        self.to_out = linear(width + inner, width)
        self.norm_q, self.norm_k = RMSNorm(head), RMSNorm(head)

    def forward(self, x, rope):
        w = self.width
        q, k, v, gate, up = self.to_qkv_mlp_proj(x).split([w, w, w, self.inner, self.inner], -1)
        q, k, v = (t.unflatten(-1, (-1, self.head)) for t in (q, k, v))
        a = attend(self.norm_q(q), self.norm_k(k), v, rope)
        return self.to_out(torch.cat([a, F.silu(gate) * up], -1))


class SingleBlock(nn.Module):
    def __init__(self, width: int, head: int, inner: int):
        super().__init__()
        self.attn = SingleAttention(width, head, inner)

    def forward(self, z, m, rope):
        return z + m[2] * self.attn(modulate(z, m[0], m[1]), rope)


class Modulation(nn.Module):
    def __init__(self, width: int, n: int):
        super().__init__()
        self.n, self.linear = n, nn.Linear(width, n * width, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, c):
        return self.linear(F.silu(c)).float()[:, None].chunk(self.n, -1)


class Transformer(nn.Module):
    def __init__(self, c: dict = TRANSFORMER):
        super().__init__()
        self.c = c
        head = c["attention_head_dim"]
        width, inner = head * c["num_attention_heads"], int(head * c["num_attention_heads"] * c["mlp_ratio"])
        self.x_embedder, self.context_embedder = (
            linear(c["in_channels"], width),
            linear(c["joint_attention_dim"], width),
        )
        embedder = nn.ModuleDict(
            dict(linear_1=linear(c["timestep_guidance_channels"], width), linear_2=linear(width, width))
        )
        self.time_guidance_embed = nn.ModuleDict(dict(timestep_embedder=embedder))
        self.double_stream_modulation_img = Modulation(width, 6)
        self.double_stream_modulation_txt = Modulation(width, 6)
        self.single_stream_modulation = Modulation(width, 3)
        self.transformer_blocks = nn.ModuleList(DoubleBlock(width, head, inner) for _ in range(c["num_layers"]))
        self.single_transformer_blocks = nn.ModuleList(
            SingleBlock(width, head, inner) for _ in range(c["num_single_layers"])
        )
        self.norm_out = Modulation(width, 2)
        self.proj_out = linear(width, c["in_channels"])
        nn.init.zeros_(self.proj_out.weight)

    def rope(self, text: int, grid, references, device):
        return rope_tables(positions(*grid, text, device, references), self.c["axes_dims_rope"], self.c["rope_theta"])

    def forward(self, x, t, text, grid=(16, 16), rope=None):
        """x [B,L+R,C]: the noisy tokens, then those of the references; t [B] in 0..1; text [B,T,features]; rope of `rope`, needed
        with references -> velocity [B,L+R,C], of which the first L rows count"""
        half = self.c["timestep_guidance_channels"] // 2
        speed = torch.exp(-math.log(10000) * torch.arange(half, device=x.device).float() / half)
        angle = 1000 * t.float()[:, None] * speed
        embedder = self.time_guidance_embed["timestep_embedder"]
        c = embedder["linear_2"](F.silu(embedder["linear_1"](torch.cat([angle.cos(), angle.sin()], -1)))).float()
        mx, my = self.double_stream_modulation_img(c), self.double_stream_modulation_txt(c)
        ms, (scale, shift) = self.single_stream_modulation(c), self.norm_out(c)
        rope = rope or self.rope(text.shape[1], grid, (), x.device)
        x, y = self.x_embedder(x), self.context_embedder(text)
        for block in self.transformer_blocks:
            x, y = block(x, y, mx, my, rope)
        z = torch.cat([y, x], 1)
        for block in self.single_transformer_blocks:
            z = block(z, ms, rope)
        return self.proj_out(modulate(z[:, y.shape[1] :], shift, scale)).float()


# ---------------------------------------------------------------------------------------------------------------------
# Autoencoder


class Resnet(nn.Module):
    def __init__(self, i: int, o: int, groups: int):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(groups, i, eps=1e-6), nn.Conv2d(i, o, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(groups, o, eps=1e-6), nn.Conv2d(o, o, 3, padding=1)
        if i != o:
            self.conv_shortcut = nn.Conv2d(i, o, 1)

    def forward(self, x):
        h = self.conv1(F.silu(self.norm1(x)))
        h = self.conv2(F.silu(self.norm2(h)))
        return (self.conv_shortcut(x) if hasattr(self, "conv_shortcut") else x) + h


class MidAttention(nn.Module):
    def __init__(self, width: int, groups: int):
        super().__init__()
        self.group_norm = nn.GroupNorm(groups, width, eps=1e-6)
        self.to_q, self.to_k, self.to_v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.to_out = nn.ModuleList([nn.Linear(width, width)])

    def forward(self, x):
        n = self.group_norm(x).flatten(2).transpose(1, 2)[:, None]
        a = F.scaled_dot_product_attention(self.to_q(n), self.to_k(n), self.to_v(n))
        return x + self.to_out[0](a[:, 0]).transpose(1, 2).reshape(x.shape)


class Mid(nn.Module):
    def __init__(self, width: int, groups: int):
        super().__init__()
        self.resnets = nn.ModuleList([Resnet(width, width, groups), Resnet(width, width, groups)])
        self.attentions = nn.ModuleList([MidAttention(width, groups)])

    def forward(self, x):
        return self.resnets[1](self.attentions[0](self.resnets[0](x)))


class Sampler(nn.Module):
    def __init__(self, width: int, stride: int):
        super().__init__()
        self.stride, self.conv = stride, nn.Conv2d(width, width, 3, stride, padding=2 - stride)

    def forward(self, x):
        return self.conv(F.pad(x, (0, 1, 0, 1)) if self.stride == 2 else F.interpolate(x, scale_factor=2))


class Level(nn.Module):
    def __init__(self, i: int, o: int, n: int, groups: int, sampler: str, last: bool):
        super().__init__()
        self.resnets = nn.ModuleList(Resnet(i if r == 0 else o, o, groups) for r in range(n))
        self.sampler = None if last else sampler
        if not last:
            setattr(self, sampler, nn.ModuleList([Sampler(o, 2 if sampler == "downsamplers" else 1)]))

    def forward(self, x):
        for resnet in self.resnets:
            x = resnet(x)
        return getattr(self, self.sampler)[0](x) if self.sampler else x


class Coder(nn.Module):
    """The encoder or the decoder."""

    def __init__(self, i: int, o: int, widths: list, n: int, groups: int, down: bool):
        super().__init__()
        order, last = (widths, len(widths) - 1) if down else (widths[::-1], len(widths) - 1)
        self.conv_in = nn.Conv2d(i, order[0], 3, padding=1)
        levels = nn.ModuleList(
            Level(order[max(k - 1, 0)], order[k], n, groups, "downsamplers" if down else "upsamplers", k == last)
            for k in range(len(order))
        )
        self.down = down
        setattr(self, "down_blocks" if down else "up_blocks", levels)
        self.mid_block = Mid(widths[-1], groups)
        self.conv_norm_out = nn.GroupNorm(groups, order[-1], eps=1e-6)
        self.conv_out = nn.Conv2d(order[-1], o, 3, padding=1)

    def forward(self, x):
        x = self.conv_in(x)
        if not self.down:
            x = self.mid_block(x)
        for level in self.down_blocks if self.down else self.up_blocks:
            x = level(x)
        if self.down:
            x = self.mid_block(x)
        return self.conv_out(F.silu(self.conv_norm_out(x)))


def patchify(z):
    """[B,C,2h,2w] -> [B,4C,h,w]"""
    return F.pixel_unshuffle(z, 2)


class Autoencoder(nn.Module):
    def __init__(self, c: dict = VAE):
        super().__init__()
        latent, n, groups = c["latent_channels"], c["layers_per_block"], c["norm_num_groups"]
        self.encoder = Coder(3, 2 * latent, c["block_out_channels"], n, groups, down=True)
        self.decoder = Coder(latent, 3, c["decoder_block_out_channels"], n + 1, groups, down=False)
        self.quant_conv = nn.Conv2d(2 * latent, 2 * latent, 1)
        self.post_quant_conv = nn.Conv2d(latent, latent, 1)
        self.bn = nn.BatchNorm2d(4 * latent, eps=1e-4, affine=False)

    def moments(self, image):
        return self.quant_conv(self.encoder(image)).float().chunk(2, 1)

    def decode(self, z):
        return self.decoder(self.post_quant_conv(z)).float()

    def to_tokens(self, mean):
        """Posterior means [B,C,32,32] -> normalised tokens [B,256,4C]"""
        m, v = self.bn.running_mean, self.bn.running_var
        return ((patchify(mean) - m[:, None, None]) / (v + 1e-4).sqrt()[:, None, None]).flatten(2).transpose(1, 2)

    def from_tokens(self, tokens, grid=(16, 16)):
        m, v = self.bn.running_mean, self.bn.running_var
        p = tokens.float().transpose(1, 2).unflatten(2, grid) * (v + 1e-4).sqrt()[:, None, None] + m[:, None, None]
        return F.pixel_shuffle(p, 2)


# ---------------------------------------------------------------------------------------------------------------------
# Sampling


def grow(state: dict, singles: int) -> dict:
    """Adds single blocks to the weights of a transformer: copies of the last one whose output is zero, so that nothing changes."""
    state = dict(state)
    have = 1 + max(int(k.split(".")[1]) for k in state if k.startswith("single_transformer_blocks."))
    for new in range(have, singles):
        for name in [k for k in state if k.startswith(f"single_transformer_blocks.{have - 1}.")]:
            to = name.replace(f".{have - 1}.", f".{new}.", 1)
            state[to] = torch.zeros_like(state[name]) if name.endswith("attn.to_out.weight") else state[name].clone()
    return state


def gflop(height: int, width: int, c: dict = TRANSFORMER, text: int = TEXT_LENGTH, references: int = 0) -> float:
    """of one pass of the transformer; sizes in pixels, references in tokens"""
    width_, tokens = c["attention_head_dim"] * c["num_attention_heads"], height * width // 256
    rows, blocks = text + tokens + references, c["num_layers"] + c["num_single_layers"]
    inner = c["mlp_ratio"] * width_
    linear = 2 * rows * blocks * (4 * width_**2 + 3 * width_ * inner) + 2 * width_ * (text * c["joint_attention_dim"] + 2 * tokens * c["in_channels"])
    return (linear + 4 * rows**2 * width_ * blocks) / 1e9


def sigmas(steps: int, tokens: int = 256) -> list:
    """klein's schedule"""
    m10, m200 = 8.73809524e-05 * tokens + 1.89833333, 0.00016927 * tokens + 0.45666666
    slope = (m200 - m10) / 190
    e = math.exp(slope * steps + m200 - 200 * slope)
    return [e / (e + 1 / (1 - i / steps) - 1) for i in range(steps)] + [0.0]


def second_sigmas(steps: int) -> list:
    """Noise levels of the second edition, for all sizes. Those of 4 steps are among those of 8."""
    return [SECOND_SHIFT * u / (1 + (SECOND_SHIFT - 1) * u) for u in (1 - i / steps for i in range(steps + 1))]


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


if __name__ == "__main__":
    for net in (TextEncoder(), Transformer(), Autoencoder()):
        print(type(net).__name__, count(net), f"{2 * count(net) / 1e6:.2f} MB")
    print("sigmas", [round(s, 4) for s in sigmas(STEPS)])
    second = Transformer(SECOND)
    print("second edition", count(second), f"{2 * count(second) / 1e6:.2f} MB")
    for h, w, refs in ((128, 128, 0), (256, 256, 0), (256, 256, 256), (512, 256, 0), (512, 512, 0)):
        decode = 31 * h * w / 65536
        step = gflop(h, w, SECOND, SECOND_LENGTH, refs)
        print(f"{w}x{h}, {refs} reference tokens: {step:.1f} GFLOP a step, {4 * step + decode:.0f} in 4 steps with decoding")
