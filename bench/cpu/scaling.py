#!/usr/bin/env python3
"""How the cost of training on a CPU grows: tokens/s against the length of rows, rows a step, layers and threads, as a
Markdown table and an SVG plot.

    make bench
    python3 bench/cpu/scaling.py [--dtype bfloat16] [--only layers] [--turns N] [--results FILE]
                                 [--plot docs/plots/cpu_scaling.svg]

A row has the best of all its turns, because what else a shared machine does can only slow one down; the peak of products
is measured with each. --results keeps them from one run to the next."""
import argparse
import itertools
import json
import math
import os
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
WIDTH, HEIGHT, MARGIN = 360, 240, 46
SWEEPS = {  # title, what grows: (length, rows, layers)
    "length": ("tokens a row (4,096 tokens a step, at least one row)",
               [(n, (n, max(1, 4096 // n), 8)) for n in (128, 512, 2048, 8192, 16384)]),
    "rows": ("rows of 512 a step", [(n, (512, n, 8)) for n in (1, 4, 16)]),
    "layers": ("layers (8 rows of 512)", [(n, (512, 8, n)) for n in (2, 4, 8, 16)]),
}


def measure(program, dtype, threads, length, rows, layers):
    command = [program, "small", "--dtype", dtype, "--threads", threads, "--length", length, "--rows", rows,
               "--layers", layers, "--steps", 0]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True,
                          env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    return json.loads(done.stdout)


class Results:
    """The best run of each command, kept in a file if there is one."""

    def __init__(self, file):
        self.file = file
        self.best = json.loads(file.read_text()) if file and file.exists() else {}

    def add(self, key, run):
        if key not in self.best or run["tokens_per_second"] > self.best[key]["tokens_per_second"]:
            self.best[key] = {name: run[name] for name in ("tokens_per_second", "of_peak", "memory_gib")}
        if self.file:
            self.file.write_text(json.dumps(self.best, indent=1) + "\n")


def panel(title, left, series):
    """One plot: tokens/s from 0 up, the other axis in powers of two. series: {threads: [(x, y)]}."""
    xs = [x for points in series.values() for x, _ in points]
    top = 1.1 * max(y for points in series.values() for _, y in points)
    low, high = math.log2(min(xs)), math.log2(max(xs))

    def at(x, y):
        return (left + MARGIN + (math.log2(x) - low) / (high - low) * (WIDTH - MARGIN - 20),
                HEIGHT - MARGIN - y / top * (HEIGHT - 2 * MARGIN))

    out = [f'<text x="{left + WIDTH / 2}" y="20" text-anchor="middle">{title}</text>',
           f'<path d="M{left + MARGIN},{MARGIN} V{HEIGHT - MARGIN} H{left + WIDTH - 20}" class="axis"/>']
    for x in sorted(set(xs)):
        out.append(f'<text x="{at(x, 0)[0]:.0f}" y="{HEIGHT - MARGIN + 16}" text-anchor="middle">{x}</text>')
    step = 10 ** math.floor(math.log10(top))
    step = step / 2 if top / step < 3 else step
    for i in range(int(top / step) + 1):
        y = at(min(xs), i * step)[1]
        out.append(f'<text x="{left + MARGIN - 6}" y="{y + 4:.0f}" text-anchor="end">{i * step:,.0f}</text>')
    for number, (threads, points) in enumerate(sorted(series.items())):
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in (at(*point) for point in points))
        out.append(f'<polyline points="{line}" class="line{number}"/>')
        a, b = at(*points[-1])
        out.append(f'<text x="{a - 4:.0f}" y="{b - 7:.0f}" text-anchor="end">{threads} '
                   f'thread{"s" if threads > 1 else ""}</text>')
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(HERE.parents[1] / "build/release/bench/temper_bench_train"))
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--only", nargs="+", default=list(SWEEPS), choices=list(SWEEPS), help="what to measure now")
    parser.add_argument("--turns", type=int, default=1, help="0: what --results has")
    parser.add_argument("--results", type=pathlib.Path, help="a JSON file")
    parser.add_argument("--plot", type=pathlib.Path, help="an SVG file")
    args = parser.parse_args()
    results = Results(args.results)
    for _ in range(args.turns):
        for name in args.only:
            for threads, (_, sizes) in itertools.product((1, 2), SWEEPS[name][1]):
                results.add(f"{args.dtype} {threads} {sizes}",
                            measure(args.program, args.dtype, threads, *sizes))
    print("| what grows | | threads | tokens/s | of the peak | GiB |\n|---|---|---|---|---|---|")
    drawing = []
    for index, (title, sweep) in enumerate(SWEEPS.values()):
        series = {}
        for threads, (x, sizes) in itertools.product((1, 2), sweep):
            run = results.best.get(f"{args.dtype} {threads} {sizes}")
            if run is None:
                continue
            series.setdefault(threads, []).append((x, run["tokens_per_second"]))
            print(f"| {title} | {x:,} | {threads} | {run['tokens_per_second']:,.0f} | {100 * run['of_peak']:.0f} % "
                  f"| {run['memory_gib']:.2f} |")
        if series:
            drawing += panel(title.split(" (")[0], index * WIDTH, series)
    if args.plot:
        args.plot.parent.mkdir(parents=True, exist_ok=True)
        style = ("text{font:11px sans-serif;fill:#444}.axis{stroke:#888;fill:none}"
                 "polyline{fill:none;stroke-width:2}.line0{stroke:#4a7fb5}.line1{stroke:#c2562d}")
        args.plot.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {3 * WIDTH} {HEIGHT}">'
                             f'<rect width="100%" height="100%" fill="white"/><style>{style}</style>\n'
                             + "\n".join(drawing) + "\n</svg>\n")


if __name__ == "__main__":
    main()
