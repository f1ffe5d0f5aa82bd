#!/usr/bin/env python3
"""Screenshots for docs/cli.md: runs lazuli on a pseudo-terminal, keeps what a terminal would show, and draws it.

    pip install pyte pillow && tools/screenshots.py        writes docs/screens/*.png; it wants DejaVu Sans Mono
"""

import os
import pathlib
import pty
import select
import shutil
import struct
import sys
import tempfile
import time
import fcntl
import termios

import pyte
from PIL import Image, ImageDraw, ImageFont

ROOT = pathlib.Path(__file__).resolve().parent.parent
FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSansMono.ttf"
CELL, SIZE = (10, 20), 16
PLAIN = {"default": "d0d0d0", "black": "000000", "red": "e05050", "green": "50c050", "brown": "d0b050", "blue": "6080f0",
         "magenta": "c060c0", "cyan": "50c0c0", "white": "f0f0f0"}


def colour(name, otherwise):
    return "#" + (otherwise if name == "default" else PLAIN.get(name, name))


def draw(screen, path):
    used = max((y for y in range(screen.lines) if screen.buffer[y] and screen.display[y].strip()), default=0) + 1
    image = Image.new("RGB", (screen.columns * CELL[0] + 16, used * CELL[1] + 16), "#181818")
    pen, font = ImageDraw.Draw(image), ImageFont.truetype(FONT, SIZE)
    for y in range(used):
        for x in range(screen.columns):
            cell = screen.buffer[y][x]
            front, back = colour(cell.fg, "d0d0d0"), colour(cell.bg, "181818")
            if cell.reverse:
                front, back = back, front
            left, top = 8 + x * CELL[0], 8 + y * CELL[1]
            pen.rectangle((left, top, left + CELL[0] - 1, top + CELL[1] - 1), fill=back)
            if cell.data.strip():
                pen.text((left, top), cell.data, font=font, fill=front)
    image.save(path, optimize=True)
    print(path.relative_to(ROOT))


def run(arguments, columns, lines, typed, folder, path, until=None):
    """typed: [(what to wait for, what to type then)]. until: a text at which the picture is taken; otherwise the end."""
    screen = pyte.Screen(columns, lines)
    stream = pyte.ByteStream(screen)
    child, master = pty.fork()
    if child == 0:
        os.chdir(folder)
        environment = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "HOME": folder, "LANG": "C.UTF-8", "PATH": os.environ["PATH"]}
        os.execve(arguments[0], arguments, environment)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    seen, begun = b"", time.time()
    while time.time() - begun < 60:
        if not select.select([master], [], [], 0.5)[0]:
            continue
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        stream.feed(data)
        seen += data
        if until and until in seen:
            break
        if typed and typed[0][0] in seen:
            seen = b""
            time.sleep(0.2)
            os.write(master, typed.pop(0)[1])
    draw(screen, path)
    try:
        os.kill(child, 9)  # it may be waiting for somebody to read
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):
        pass


def main():
    lazuli = str(ROOT / "build" / "lazuli")
    out = ROOT / "docs" / "screens"
    out.mkdir(parents=True, exist_ok=True)
    folder = tempfile.mkdtemp()
    (pathlib.Path(folder) / "prompts.txt").write_text("a fox in 3d style\na castle on a purple background\na cat in line style\n")
    run([lazuli, "a", "fox", "in", "3d", "style", "on", "a", "blue", "background", "-S", "1", "-s", "20", "--preview"], 80, 30, [],
        folder, out / "preview.png", until=b"step 14/20")
    run([lazuli], 64, 38, [(b"lazuli> ", b"/seed 7\r"), (b"lazuli> ", b"a fox in 3d style on a blue background\r"), (b"lazuli> ", b"/save fox.png\r"),
        (b"lazuli> ", b"a castle on a purple background\r"), (b"lazuli> ", b"/save castle.png\r"), (b"lazuli> ", b"/quit\r")], folder, out / "session.png")
    run([lazuli, "batch", "prompts.txt", "-s", "20", "-o", "{line}.png"], 80, 8, [], folder, out / "batch.png", until=b"3/3 denoise")
    shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
