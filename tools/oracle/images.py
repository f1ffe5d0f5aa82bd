"""Writes tests/data/images for tests/test_image.c: small pictures of every kind, and golden.json with the RGB pixels they
should be read as, the RGBA pixels of those with transparency, or a part of the error; and resize-WxH.png, which is resize.png
resized by Pillow, and resize-alpha-WxH.png, which is resize-alpha.png.

PNGs are written here by hand, because Pillow writes few of their kinds; what they show is then known without a reader. JPEG
and WebP are Pillow's, and so are their pixels.

    python tools/oracle/images.py
"""

import io
import json
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "images"
W, H = 7, 5
SIZES = [(1, 1), (5, 3), (10, 40), (37, 10), (64, 23), (74, 46), (13, 7), (50, 50), (3, 90), (64, 10)]
ALPHA_SIZES = [(20, 14), (50, 40), (5, 30), (37, 29)]  # of 37 x 23; all Pillows begin with the width
GREY, RGB, PALETTE, GREY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6
ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]  # x, y, dx, dy

random = np.random.default_rng(1)
golden = []


def keep(file, rgb, tolerance=0, alpha=None):
    """rgb: as it is stored; alpha: None, or [h, w]"""
    entry = {"file": file, "width": rgb.shape[1], "height": rgb.shape[0], "tolerance": tolerance}
    if alpha is not None and (alpha < 255).any():
        entry["rgba"] = np.asarray(np.dstack([rgb, alpha]), np.uint8).tobytes().hex()
        rgb = over_white(rgb, alpha)
    entry["rgb"] = np.asarray(rgb, np.uint8).tobytes().hex()
    golden.append(entry)


def keep_error(file, data, error):
    (DATA / file).write_bytes(data)
    golden.append({"file": file, "error": error})


def over_white(rgb, alpha):
    rgb, alpha = rgb.astype(np.int64), alpha.astype(np.int64)[..., None]
    return np.round((rgb * alpha + 255 * (255 - alpha)) / 255)


# ---- PNG --------------------------------------------------------------------------------------------------------------


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def packed(samples, depth):
    """The rows of one pass: a filter byte (none), then the samples, each of depth bits."""
    out = b""
    for row in samples.reshape(samples.shape[0], -1):
        if depth == 16:
            out += b"\0" + row.astype(">u2").tobytes()
        else:
            bits = "".join(format(int(v), f"0{depth}b") for v in row)
            bits += "0" * (-len(bits) % 8)
            out += b"\0" + bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
    return out


def png(samples, depth, colour, interlaced=False, before=b"", size=None):
    passes = ADAM7 if interlaced else [(0, 0, 1, 1)]
    parts = [samples[y::dy, x::dx] for x, y, dx, dy in passes]
    data = b"".join(packed(part, depth) for part in parts if part.size)
    width, height = size or (samples.shape[1], samples.shape[0])
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b"")


def to_8_bits(samples, depth):
    return np.round(samples.astype(np.float64) * 255 / (2**depth - 1))


def png_kinds():
    """name, samples [h, w, channels], depth, colour type, chunks before the data, rgb, alpha"""
    for depth in (1, 2, 4, 8, 16):
        grey = random.integers(0, 2**depth, (H, W, 1))
        rgb = np.repeat(to_8_bits(grey, depth), 3, 2)
        yield f"grey-{depth}", grey, depth, GREY, b"", rgb, None
        clear = grey[0, 0, 0]
        alpha = np.where(grey[..., 0] == clear, 0, 255)
        yield f"grey-{depth}-trns", grey, depth, GREY, chunk(b"tRNS", struct.pack(">H", clear)), rgb, alpha
    for depth in (1, 2, 4, 8):
        colours = random.integers(0, 256, (min(2**depth, 40), 3))
        alphas = random.integers(0, 256, len(colours) - 1)
        index = random.integers(0, len(colours), (H, W, 1))
        rgb = colours[index[..., 0]]
        palette = chunk(b"PLTE", bytes(colours.astype(np.uint8).tobytes()))
        yield f"palette-{depth}", index, depth, PALETTE, palette, rgb, None
        trns = chunk(b"tRNS", bytes(alphas.astype(np.uint8)))
        yield f"palette-{depth}-trns", index, depth, PALETTE, palette + trns, rgb, np.append(alphas, 255)[index[..., 0]]
    for depth in (8, 16):
        samples = random.integers(0, 2**depth, (H, W, 4))
        samples[0, :2, 3] = 0, 2**depth - 1
        eight = to_8_bits(samples, depth)
        yield f"rgb-{depth}", samples[..., :3], depth, RGB, b"", eight[..., :3], None
        trns = chunk(b"tRNS", struct.pack(">HHH", *samples[2, 3, :3]))
        alpha = np.where((samples[..., :3] == samples[2, 3, :3]).all(2), 0, 255)
        yield f"rgb-{depth}-trns", samples[..., :3], depth, RGB, trns, eight[..., :3], alpha
        yield f"rgba-{depth}", samples, depth, RGB_ALPHA, b"", eight[..., :3], eight[..., 3]
        grey = np.repeat(eight[..., :1], 3, 2)
        yield f"grey-alpha-{depth}", samples[..., [0, 3]], depth, GREY_ALPHA, b"", grey, eight[..., 3]


def write_pngs():
    for name, samples, depth, colour, before, rgb, alpha in png_kinds():
        for interlaced in (False, True):
            file = name + ("-interlaced" if interlaced else "") + ".png"
            data = png(samples, depth, colour, interlaced, before)
            (DATA / file).write_bytes(data)
            Image.open(io.BytesIO(data)).load()  # Pillow finds nothing wrong with it
            keep(file, rgb, alpha=alpha)
    one = np.zeros((1, 1, 3), int)
    keep_error("wide.png", png(one, 8, RGB, size=(65536, 1)), "65536 x 1 pixels; the most is")
    keep_error("large.png", png(one, 8, RGB, size=(40000, 40000)), "damaged: it is too short for its size")
    keep_error("short.png", png(one, 8, RGB, size=(4, 4)), "damaged")
    keep_error("twice.png", png(one, 8, RGB).replace(b"IDAT", b"IDAX"), "damaged")


# ---- JPEG, WebP -------------------------------------------------------------------------------------------------------


def smooth(width, height, channels):
    x, y = np.meshgrid(np.linspace(0, 3, width), np.linspace(0, 2, height))
    return np.stack([127 + 120 * np.sin(x + c + (y if c % 2 else -2 * y)) for c in range(channels)], 2).astype(np.uint8)


def exif(orientation, order):
    header = (b"MM\0*" if order == ">" else b"II*\0") + struct.pack(order + "I", 8)
    entries = struct.pack(order + "HHIHH", 0x011A, 3, 1, 72, 0) + struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    return b"Exif\0\0" + header + struct.pack(order + "H", 2) + entries + struct.pack(order + "I", 0)


def keep_pillow(file, image, tolerance, **options):
    image.save(DATA / file, **options)
    read = ImageOps.exif_transpose(Image.open(DATA / file))
    if read.mode == "RGBA":
        pixels = np.asarray(read)
        keep(file, pixels[..., :3], tolerance, pixels[..., 3])
    else:
        keep(file, np.asarray(read.convert("RGB")), tolerance)


def write_jpegs():
    # Decoders may differ by a level or two; ours is the same library.
    colour = Image.fromarray(smooth(11, 9, 3))
    keep_pillow("444.jpg", colour, 2, quality=90, subsampling=0)
    keep_pillow("420.jpg", colour, 2, quality=90, subsampling=2)
    keep_pillow("progressive.jpg", colour, 2, quality=90, subsampling=2, progressive=True)
    keep_pillow("grey.jpg", Image.fromarray(smooth(11, 9, 1)[..., 0]), 2, quality=90)
    keep_pillow("cmyk.jpg", Image.fromarray(smooth(11, 9, 4), "CMYK"), 2, quality=90)
    for orientation in range(1, 9):
        keep_pillow(f"turned-{orientation}.jpg", colour, 2, quality=90, exif=exif(orientation, "><"[orientation % 2]))
    keep_pillow("turned-wrong.jpg", colour, 2, quality=90, exif=exif(9, "<"))
    data = (DATA / "444.jpg").read_bytes()
    frame = data.index(b"\xff\xc0")
    large = data[: frame + 5] + struct.pack(">HH", 20000, 30000) + data[frame + 9 :]
    keep_error("large.jpg", large, "damaged: it is too short for its size")


def write_webps():
    keep_pillow("lossless.webp", Image.fromarray(smooth(11, 9, 3)), 0, lossless=True)
    keep_pillow("alpha.webp", Image.fromarray(smooth(11, 9, 4)), 0, lossless=True)
    keep_pillow("lossy.webp", Image.fromarray(smooth(11, 9, 3)), 2, quality=90)
    keep_pillow("lossy-alpha.webp", Image.fromarray(smooth(11, 9, 4)), 2, quality=90)
    frames = [Image.fromarray(smooth(4, 4, 3)), Image.fromarray(255 - smooth(4, 4, 3))]
    out = io.BytesIO()
    frames[0].save(out, "WEBP", save_all=True, append_images=frames[1:], duration=100)
    keep_error("moving.webp", out.getvalue(), "is an animation")


def write_others():
    out = io.BytesIO()
    Image.fromarray(smooth(4, 4, 3)).save(out, "GIF")
    keep_error("picture.gif", out.getvalue(), "is neither a PNG nor a JPEG nor a WebP picture")
    keep_error("empty.png", b"", "is neither a PNG nor a JPEG nor a WebP picture")


def write_resized():
    noise = random.integers(0, 256, (23, 37, 3)).astype(np.uint8)
    noise[:, 20:] = np.where(random.integers(0, 2, (23, 17, 1)), 255, 0)  # hard edges overshoot the most
    image = Image.fromarray(noise)
    image.save(DATA / "resize.png", optimize=True)
    for width, height in SIZES:
        # In two steps, because Pillow 13 begins with the height when that shrinks far more than the width. Older ones begin
        # with the width always, and so do we.
        wide = image.resize((width, image.height), Image.Resampling.LANCZOS)
        wide.resize((width, height), Image.Resampling.LANCZOS).save(DATA / f"resize-{width}x{height}.png", optimize=True)
    alpha = np.clip(random.integers(-80, 336, (23, 37, 1)), 0, 255).astype(np.uint8)  # many are 0 or 255
    image = Image.fromarray(np.dstack([noise, alpha]))
    image.save(DATA / "resize-alpha.png", optimize=True)
    for width, height in ALPHA_SIZES:
        resized = image.resize((width, height), Image.Resampling.LANCZOS)
        resized.save(DATA / f"resize-alpha-{width}x{height}.png", optimize=True)


def main():
    DATA.mkdir(parents=True, exist_ok=True)
    for write in (write_pngs, write_jpegs, write_webps, write_others, write_resized):
        write()
    lines = ",\n".join(json.dumps(entry) for entry in golden)
    (DATA / "golden.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(golden)} pictures, {len(SIZES)} sizes")


if __name__ == "__main__":
    main()
