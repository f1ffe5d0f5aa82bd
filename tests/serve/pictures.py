"""pictures.py: pictures and requests for the tests of the server, without further packages."""
import functools
import struct
import subprocess
import zlib

from server import Place, check

SMALL = {"prompt": "a fox", "size": "64x64", "num_inference_steps": 1, "seed": 7}
LONG = {"prompt": "a fox", "size": "512x512", "num_inference_steps": 200, "seed": 7}


@functools.cache
def fox():
    """The file that the command line makes with the settings of SMALL."""
    path = f"{Place.work}/fox.png"
    subprocess.run([Place.lazuli, "a fox", "-S", "7", "-W", "64", "-H", "64", "-s", "1", "-q", "-o", path], check=True)
    with open(path, "rb") as file:
        return file.read()


def png_pixels(data):
    """Width, height and unfiltered rows of a PNG in RGB."""
    check(data[:8] == b"\x89PNG\r\n\x1a\n", "it is a PNG")
    at, packed, width, height = 8, b"", 0, 0
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height = struct.unpack(">II", body[:8])
        if kind == b"IDAT":
            packed += body
        at += 12 + size
    return width, height, zlib.crc32(zlib.decompress(packed))


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width, height, colour):
    """A PNG in RGB."""
    rows = b"".join(b"\0" + b"".join(bytes(colour(x, y)) for x in range(width)) for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def rgb(data):
    """The rows of a PNG in RGB."""
    at, packed, width, height = 8, b"", 0, 0
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, height = struct.unpack(">II", data[at + 8:at + 16])
        if kind == b"IDAT":
            packed += data[at + 8:at + 8 + size]
        at += 12 + size
    raw, rows, above = zlib.decompress(packed), [], bytearray(3 * width)
    for y in range(height):
        kind, row = raw[y * (3 * width + 1)], bytearray(raw[y * (3 * width + 1) + 1:(y + 1) * (3 * width + 1)])
        for i in range(3 * width):
            a, b, c = row[i - 3] if i > 2 else 0, above[i], above[i - 3] if i > 2 else 0
            near = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            row[i] = (row[i] + [0, a, b, (a + b) // 2, near][kind]) & 255
        rows.append(bytes(row))
        above = row
    return rows


def form(fields, files):
    """The body of a form, and its Content-Type."""
    out = b""
    for name, text in fields.items():
        out += f'--xyz\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'.encode()
    for name, data in files:
        out += f'--xyz\r\nContent-Disposition: form-data; name="{name}"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'.encode()
        out += data + b"\r\n"
    return out + b"--xyz--\r\n", "multipart/form-data; boundary=xyz"
