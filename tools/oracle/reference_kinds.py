"""Writes tests/data/flux2/kinds: one small picture as PNGs of several kinds, to be used as reference pictures.

    python tools/oracle/reference_kinds.py
"""

import pathlib
import struct
import zlib

import numpy as np
from PIL import Image

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "flux2" / "kinds"
OUT.mkdir(exist_ok=True)
y, x = np.mgrid[0:32, 0:48]
grey = (127.5 + 60 * np.sin(x / 5) + 60 * np.cos(y / 4)).astype(np.uint8)
colour = np.stack([grey, 255 - grey, (x * 5 + y) % 256], -1).astype(np.uint8)



def interlaced(rgb):
    """Pillow reads Adam7 but does not write it: seven passes over ever finer grids."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]  # x, y, dx, dy
    rows = b"".join(b"\0" + row.tobytes() for left, top, dx, dy in passes for row in rgb[top::dy, left::dx])
    header = struct.pack(">IIBBBBB", rgb.shape[1], rgb.shape[0], 8, 2, 0, 0, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


(OUT / "interlaced.png").write_bytes(interlaced(colour))
assert (np.asarray(Image.open(OUT / "interlaced.png")) == colour).all()
Image.fromarray(colour).save(OUT / "rgb.png")
Image.fromarray(grey).save(OUT / "grey.png")
Image.fromarray(grey.astype(np.uint16) * 257).save(OUT / "grey16.png")
Image.fromarray(colour).quantize(16).save(OUT / "palette.png")
Image.fromarray(np.dstack([colour, grey])).save(OUT / "alpha.png")
whole = (OUT / "rgb.png").read_bytes()
(OUT / "corrupt.png").write_bytes(whole[: len(whole) // 2] + bytes(64) + whole[len(whole) // 2 + 64 :])
