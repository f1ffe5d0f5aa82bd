"""What settings cost in quality: makes the same pictures with many settings, and measures each.

    python tools/quality.py run OUT --axis sampler=euler,heun --axis steps=4,8 --prompts 60 --judge judge.safetensors
    python tools/quality.py table OUT --by sampler --over steps --value psnr       # a table for a page, with errors
    python tools/quality.py table OUT --by schedule --over sampler,steps           # a column for each pair
    python tools/quality.py rows OUT --where steps=4,8 --against steps=8           # a row for each setting
    python tools/quality.py plot OUT TO.svg --by sampler --value psnr              # against passes through the model
    python tools/quality.py sheet OUT TO.jpg --by sampler --over steps --prompt 0  # to look at

An axis is a key of `lazuli batch` (sampler, schedule, steps, precision, guidance, ...) with values for it. A run makes
the pictures of all combinations, with the first N of the 500 prompts in tools/demo-model/prompts.jsonl, each with its
own seed. One process of `lazuli batch` makes them, and a picture that exists is not made again, so a run can be
interrupted, repeated and extended. Measures are kept in OUT/measures.jsonl:

    psnr, ssim    of the picture against that of the reference settings (default: 200 steps of Euler) with the same seed
    own           psnr against the model's own settings (its default steps, sampler and schedule)
    right, sure   does the judge name the right thing, and how probable does it find that thing?
    ground        does the background have the right colour?

The judge is trained by tools/demo-model/judge.py. Without one, right and sure are not measured. An error is the
standard error of the mean over prompts. Differences (--against) are of the same prompts and seeds, so their errors are
those of the mean of the differences.
"""

import argparse
import itertools
import json
import math
import pathlib
import subprocess
import sys

import numpy as np
from PIL import Image, ImageDraw

HERE = pathlib.Path(__file__).resolve().parent
VALUES = {  # name: (title, digits, factor)
    "psnr": ("PSNR, dB", 1, 1),
    "own": ("PSNR against the model's own settings, dB", 1, 1),
    "ssim": ("SSIM", 3, 1),
    "right": ("right, %", 1, 100),
    "sure": ("probability of the right thing, %", 1, 100),
    "ground": ("background, %", 1, 100),
}
EQUAL = 100.0  # dB, of equal pictures
TWO_PASSES = ("heun", "res_2s")  # two in each step but the last


# ---------------------------------------------------------------------------------------------------------------------
# Settings: a dictionary of the keys of a batch, and its name, "sampler=heun steps=4"


def read_settings(texts: list) -> list:
    """["sampler=euler,heun", "steps=4"] -> all combinations"""
    axes = [(t.split("=")[0], t.split("=", 1)[1].split(",")) for t in texts]
    return [dict(zip([k for k, _ in axes], values)) for values in itertools.product(*(v for _, v in axes))]


def name_of(settings: dict) -> str:
    return " ".join(f"{k}={settings[k]}" for k in sorted(settings)) or "own"


def settings_of(name: str) -> dict:
    return {} if name == "own" else dict(part.split("=") for part in name.split(" "))


def typed(settings: dict) -> dict:
    """with numbers as numbers, for a line of a batch"""
    to = {}
    for key, value in settings.items():
        try:
            to[key] = int(value)
        except ValueError:
            try:
                to[key] = float(value)
            except ValueError:
                to[key] = value
    return to


def passes(settings: dict, own_steps: int) -> int:
    steps = int(settings.get("steps", own_steps))
    return 2 * steps - 1 if settings.get("sampler") in TWO_PASSES else steps


# ---------------------------------------------------------------------------------------------------------------------
# Measures


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    error = np.mean((a.astype(np.float64) - b.astype(np.float64)) ** 2)
    return EQUAL if error == 0 else 10 * math.log10(255**2 / error)


def ssim(a: np.ndarray, b: np.ndarray) -> float:
    """of the luma, with a Gaussian window of 11 and sigma 1.5 (Wang et al., 2004)"""
    def window(n):  # [n - 10, n]: a row for each place of the window
        weights = np.exp(-((np.arange(n)[None] - np.arange(n - 10)[:, None] - 5.0) ** 2) / (2 * 1.5**2))
        weights[np.abs(np.arange(n)[None] - np.arange(n - 10)[:, None] - 5) > 5] = 0
        return weights / weights.sum(1, keepdims=True)

    x, y = (p.astype(np.float64) @ [0.299, 0.587, 0.114] for p in (a, b))
    down, across = window(x.shape[0]), window(x.shape[1]).T

    def blur(x):
        return down @ x @ across

    mx, my = blur(x), blur(y)
    vx, vy, cov = blur(x * x) - mx * mx, blur(y * y) - my * my, blur(x * y) - mx * my
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    return float(np.mean((2 * mx * my + c1) * (2 * cov + c2) / ((mx * mx + my * my + c1) * (vx + vy + c2))))


class Measure:
    """the judge may be None"""

    def __init__(self, judge: str | None):
        sys.path.insert(0, str(HERE / "demo-model"))
        import judge as judging  # needs torch

        self.judging = judging
        self.judge = judging.load(judge)[0] if judge else None

    def __call__(self, picture: np.ndarray, references: dict, line: dict) -> dict:
        to = dict(ground=self.judging.has_ground(picture, line["ground"]))
        if "psnr" in references:
            to["psnr"], to["ssim"] = psnr(picture, references["psnr"]), ssim(picture, references["psnr"])
        if "own" in references:
            to["own"] = psnr(picture, references["own"])
        if self.judge:
            said = self.judging.name(self.judge, picture[None].copy())[0].softmax(0)
            to["right"], to["sure"] = int(said.argmax()) == line["thing"], float(said[line["thing"]])
        return to


# ---------------------------------------------------------------------------------------------------------------------
# Running


def picture_path(out: pathlib.Path, settings: dict, seed: int) -> pathlib.Path:
    return out / name_of(settings).replace(" ", "_") / f"{seed}.png"


def read_picture(path: pathlib.Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))


def read_prompts(n: int) -> list:
    return [json.loads(line) for line in (HERE / "demo-model/prompts.jsonl").read_text().splitlines()[:n]]


def make(out: pathlib.Path, rows: list, lines: list, arguments):
    """Makes the pictures. The lines of a prompt follow each other, so that a short run has whole prompts. Lines that
    need another model or precision are apart, since the model is opened again for them."""
    orders = []
    for settings in rows:
        (out / name_of(settings).replace(" ", "_")).mkdir(parents=True, exist_ok=True)
    for line, settings in itertools.product(lines, rows):
        path = picture_path(out, settings, line["seed"])
        if not path.exists():
            order = dict(prompt=line["prompt"], seed=line["seed"], output=str(path.resolve()), **typed(settings))
            orders.append((str(settings.get("model")), str(settings.get("precision")), order))
    orders.sort(key=lambda o: o[:2])
    print(f"{len(orders)} of {len(lines) * len(rows)} pictures to make", flush=True)
    if not orders:
        return
    (out / "list.jsonl").write_text("".join(json.dumps(order) + "\n" for _, _, order in orders))
    command = [arguments.lazuli, "batch", str(out / "list.jsonl"), "-m", arguments.model, "-q", *arguments.option]
    subprocess.run(command, check=True)


def run(arguments):
    out, lines = arguments.out, read_prompts(arguments.prompts)
    rows = read_settings(arguments.axis)
    reference = {} if arguments.reference == "own" else read_settings(arguments.reference.split())[0]
    rows = ([{}] if reference == {} else [reference, {}]) + [r for r in rows if r not in ({}, reference)]
    make(out, rows, lines, arguments)
    kept, file = read_measures(out), out / "measures.jsonl"
    measure = Measure(arguments.judge)
    wanted = {"psnr", "ssim", "own", "ground"} | ({"right", "sure"} if arguments.judge else set())
    with file.open("a") as to:
        for line in lines:
            seed = line["seed"]
            against = dict(
                psnr=read_picture(picture_path(out, reference, seed)), own=read_picture(picture_path(out, {}, seed))
            )
            for settings in rows:
                done = kept.setdefault(name_of(settings), {}).setdefault(seed, {})
                if wanted <= done.keys():
                    continue
                done.update(measure(read_picture(picture_path(out, settings, seed)), against, line))
                to.write(json.dumps(dict(settings=name_of(settings), seed=seed, **done)) + "\n")


def read_measures(out: pathlib.Path) -> dict:
    """-> name of the settings -> seed -> measures; later lines come after earlier ones"""
    kept = {}
    if (out / "measures.jsonl").exists():
        for line in (out / "measures.jsonl").read_text().splitlines():
            m = json.loads(line)
            kept.setdefault(m.pop("settings"), {})[m.pop("seed")] = m
    return kept


# ---------------------------------------------------------------------------------------------------------------------
# Tables


def mean(values: list) -> tuple:
    """-> the mean and its standard error. For yes and no, the error is that of a share with one more of each, and for
    their differences that with one more difference, so that it is never 0."""
    v, n = np.array(values, float), len(values)
    if all(isinstance(x, bool) for x in values):
        share = (v.sum() + 1) / (n + 2)
        return v.mean(), math.sqrt(share * (1 - share) / n)
    if all(isinstance(x, int) for x in values):
        return v.mean(), math.sqrt(np.abs(v).sum() + 1 - v.sum() ** 2 / n) / n
    return v.mean(), v.std(ddof=1) / math.sqrt(n) if n > 1 else math.nan


def show(value: str, number: float, error: float, sign: str = "") -> str:
    _, digits, factor = VALUES[value]
    return f"{number * factor:{sign}.{digits}f} ± {error * factor:.{digits}f}"


def matches(settings: dict, where: list) -> bool:
    return all(settings.get(k) in v.split(",") for k, v in (w.split("=") for w in where))


def chosen(arguments) -> dict:
    """the settings that --where names, and that have no other keys than --where, --by and --over: name -> measures"""
    keys = {w.split("=")[0] for w in arguments.where} | {arguments.by, *arguments.over.split(",")}
    kept = read_measures(arguments.out)
    return {
        n: m
        for n, m in kept.items()
        if n != "own" and matches(settings_of(n), arguments.where) and settings_of(n).keys() == keys
    }


def distinct(rows: dict, key: str) -> list:
    """in the order in which the settings were run; numbers by size"""
    found = list(dict.fromkeys(settings_of(n)[key] for n in rows))
    return sorted(found, key=float) if all(f.replace(".", "").isdigit() for f in found) else found


def columns_of(rows: dict, arguments) -> list:
    """-> the values of all keys of --over, for each column"""
    return list(itertools.product(*(distinct(rows, key) for key in arguments.over.split(","))))


def find(rows: dict, arguments, kind: str, column: tuple):
    where = [f"{arguments.by}={kind}", *(f"{k}={v}" for k, v in zip(arguments.over.split(","), column))]
    return next((n for n in rows if matches(settings_of(n), where)), None)


def number_of(measures: dict, value: str):
    return [m[value] for _, m in sorted(measures.items()) if value in m]


def table(arguments):
    rows, value = chosen(arguments), arguments.value
    columns = columns_of(rows, arguments)
    print(f"| {arguments.by} | " + " | ".join(map(", ".join, columns)) + " |\n|---|" + "---:|" * len(columns))
    for kind in distinct(rows, arguments.by):
        cells = []
        for column in columns:
            found = find(rows, arguments, kind, column)
            values = number_of(rows[found], value) if found else []
            cells.append(show(value, *mean(values)) if values else "")
        print(f"| `{kind}` | " + " | ".join(cells) + " |")
    print(f"\n{VALUES[value][0]}; N = {sorted({len(number_of(m, value)) for m in rows.values()})}")


def list_rows(arguments):
    kept = read_measures(arguments.out)
    base = kept[name_of(read_settings(arguments.against.split())[0])] if arguments.against else None
    values = [v for v in VALUES if any(v in m for ms in kept.values() for m in ms.values())]
    print("| settings | passes | N | " + " | ".join(VALUES[v][0] for v in values) + " |")
    print("|---|---:|---:|" + "---:|" * len(values))
    for n, measures in kept.items():
        if not matches(settings_of(n), arguments.where):
            continue
        cells = []
        for v in values:
            if base is None:
                cells.append(show(v, *mean(number_of(measures, v))))
            else:
                both = [s for s in measures if s in base and v in measures[s] and v in base[s]]
                cells.append(show(v, *mean([measures[s][v] - base[s][v] for s in both]), sign="+") if both else "")
        print(f"| {n} | {passes(settings_of(n), arguments.own_steps)} | {len(measures)} | " + " | ".join(cells) + " |")


# ---------------------------------------------------------------------------------------------------------------------
# Plots: SVG, readable on white and on black

COLOURS = ["#3b82f6", "#ef4444", "#22a06b", "#d97706", "#a855f7", "#0ea5b7", "#db2777", "#84803a"]
COLOURS += ["#64748b", "#b45309", "#6d28d9"]
MARKS = [m * 10**e for e in range(-4, 4) for m in (1, 1.5, 2, 3, 4, 6, 8)]  # of the horizontal axis
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 380, 58, 118, 16, 46


def ticks(low: float, high: float) -> list:
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step *= next(k for k in (1, 2, 5, 10) if (high - low) / (k * step) <= 6)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def spread(places: list, gap: float, low: float) -> list:
    """moves labels apart, as little as needed, and none above low"""
    order, to = sorted(range(len(places)), key=lambda i: places[i]), list(places)
    for _ in range(100):
        for a, b in zip(order, order[1:]):
            short = gap - (to[b] - to[a])
            if short > 0:
                to[a] -= short / 2
                to[b] += short / 2
        to = [max(t, low) for t in to]
    return to


def draw_plot(series: dict, value: str, across: str) -> str:
    """series: name -> [(x, mean, error)]; x on a logarithmic axis"""
    title, _, factor = VALUES[value]
    points = [p for line in series.values() for p in line]
    xs = sorted({x for x, _, _ in points})
    low = min((m - e) * factor for _, m, e in points)
    high = max((m + e) * factor for _, m, e in points)
    low, high = low - 0.03 * (high - low), high + 0.03 * (high - low)

    def at_x(x):
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(x / xs[0]) / math.log(xs[-1] / xs[0])

    def at_y(y):
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y - low) / (high - low)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="12">',
        "<style>text{fill:#666}.g{stroke:#8884;fill:none}.e{stroke-width:1;opacity:.55}.l{fill:none;stroke-width:1.8}"
        "@media(prefers-color-scheme:dark){text{fill:#ccc}}</style>",
        f"<title>{title} against {across}</title>",
    ]
    for y in ticks(low, high):
        out.append(f'<path class="g" d="M{LEFT} {at_y(y):.1f}H{WIDTH - RIGHT}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at_y(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in [x for x in MARKS if xs[0] <= x <= xs[-1]]:
        out.append(f'<path class="g" d="M{at_x(x):.1f} {HEIGHT - BOTTOM}v5"/>')
        out.append(f'<text x="{at_x(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">{across}</text>')
    out.append(f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">{title}</text>')
    ends = spread([at_y(line[-1][1] * factor) for line in series.values()], 14, TOP)
    for (name, line), colour, end in zip(series.items(), itertools.cycle(COLOURS), ends):
        bars = "".join(
            f"M{at_x(x):.1f} {at_y((m - e) * factor):.1f}V{at_y((m + e) * factor):.1f}" for x, m, e in line if e == e
        )
        path = "L".join(f"{at_x(x):.1f} {at_y(m * factor):.1f}" for x, m, _ in line)
        out.append(f'<path class="e" stroke="{colour}" d="{bars}"/><path class="l" stroke="{colour}" d="M{path}"/>')
        x, m, _ = line[-1]
        out.append(
            f'<path class="e" stroke="{colour}" fill="none" '
            f'd="M{at_x(x):.1f} {at_y(m * factor):.1f}L{WIDTH - RIGHT + 10} {end:.1f}"/>'
            f'<text x="{WIDTH - RIGHT + 13}" y="{end + 4:.1f}" style="fill:{colour}">{name}</text>'
        )
    return "\n".join(out) + "\n</svg>\n"


def plot(arguments):
    rows, series = chosen(arguments), {}
    for n, measures in rows.items():
        settings, values = settings_of(n), number_of(measures, arguments.value)
        x = passes(settings, arguments.own_steps) if arguments.over == "steps" else float(settings[arguments.over])
        if values:
            series.setdefault(settings[arguments.by], []).append((x, *mean(values)))
    across = "passes through the model" if arguments.over == "steps" else arguments.over
    arguments.to.write_text(draw_plot({k: sorted(v) for k, v in series.items()}, arguments.value, across))


def sheet(arguments):
    """a picture for each --by (rows) and --over (columns), with labels"""
    rows, line, side, left, top = chosen(arguments), read_prompts(500)[arguments.prompt], arguments.side, 96, 18
    kinds, columns = distinct(rows, arguments.by), columns_of(rows, arguments)
    page = Image.new("RGB", (left + len(columns) * side, top + len(kinds) * side), "white")
    draw = ImageDraw.Draw(page)
    for x, column in enumerate(columns):
        draw.text((left + x * side + 4, 3), f"{arguments.over} {', '.join(column)}", "black")
        for y, kind in enumerate(kinds):
            draw.text((4, top + y * side + side // 2 - 6), kind, "black")
            found = find(rows, arguments, kind, column)
            path = picture_path(arguments.out, settings_of(found), line["seed"]) if found else None
            if path and path.exists():
                small = Image.open(path).convert("RGB").resize((side - 2, side - 2), Image.LANCZOS)
                page.paste(small, (left + x * side, top + y * side))
    page.save(arguments.to, quality=85, optimize=True)
    print(line["prompt"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    make_, table_, rows_, plot_, sheet_ = (commands.add_parser(c) for c in ("run", "table", "rows", "plot", "sheet"))
    for command in (make_, table_, rows_, plot_, sheet_):
        command.add_argument("out", type=pathlib.Path)
        command.add_argument("--own-steps", type=int, default=8, help="the model's default, for counting passes")
    make_.add_argument("--axis", action="append", default=[], help="KEY=VALUE[,VALUE...]")
    make_.add_argument("--reference", default="sampler=euler steps=200", help="or own: the model's own settings")
    make_.add_argument("--prompts", type=int, default=20)
    make_.add_argument("--judge", help="a file by tools/demo-model/judge.py")
    make_.add_argument("--model", default="models/demo")
    make_.add_argument("--lazuli", default="build/lazuli")
    make_.add_argument("--option", action="append", default=[], help="a further argument of lazuli batch")
    rows_.add_argument("--against", help="settings to subtract, prompt by prompt")
    for command in (plot_, sheet_):
        command.add_argument("to", type=pathlib.Path)
    for command in (table_, rows_, plot_, sheet_):
        command.add_argument("--where", action="append", default=[], help="KEY=VALUE[,VALUE...]")
    for command in (table_, plot_, sheet_):
        command.add_argument("--by", default="sampler")
        command.add_argument("--over", default="steps")
    for command in (table_, plot_):
        command.add_argument("--value", choices=VALUES, default="psnr")
    sheet_.add_argument("--prompt", type=int, default=0)
    sheet_.add_argument("--side", type=int, default=96)
    arguments = parser.parse_args()
    dict(run=run, table=table, rows=list_rows, plot=plot, sheet=sheet)[arguments.command](arguments)


if __name__ == "__main__":
    main()
