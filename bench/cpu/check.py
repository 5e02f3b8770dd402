#!/usr/bin/env python3
"""The demo's training as a user gets it, with all defaults, compared with what this processor's registers can multiply: fails
below half of that.

    make bench-check

A step's `mfu` (metrics.jsonl) is its floating-point operations per second as a part of the peak that the
program measures in the same run, of multiply-adds in registers. The median of a run's settled steps counts, and the best
of three runs, since what else a machine does only slows one down.
The demo's model is small (hidden size 128): what this guards against is a step that runs on one core or waits."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
WARM_UP = 10  # steps


def fractions(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["mfu"] for line in lines if "mfu" in line and line["step"] > WARM_UP]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("temper", type=pathlib.Path)
    parser.add_argument("--least", type=float, default=0.5, help="the part of the peak below which this fails")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    temper = args.temper.resolve()
    found = []
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        demo = work / "build/demo"  # where the demo's run.yaml expects it
        subprocess.run([sys.executable, ROOT / "examples/addition/prepare.py", demo], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run([temper, "init", demo / "qwen3-tiny", demo / "model"], check=True, stdout=subprocess.DEVNULL)
        for i in range(args.runs):
            run = work / f"run-{i}"
            subprocess.run([temper, "train", ROOT / "examples/addition/run.yaml", "--output", run, "--train.steps",
                            str(args.steps), "--eval.every_steps", "0", "--eval.exact_match", "0"],
                           check=True, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            found.append(statistics.median(fractions(run)))
            print(f"run {i + 1}: {100 * found[-1]:.0f} % of the processor's peak", flush=True)
    if max(found) < args.least:
        raise SystemExit(f"the demo's step reaches {100 * max(found):.0f} % of the processor's peak, expected at least "
                         f"{100 * args.least:.0f} %: something holds it up (cores, threads, kernels: temper doctor --peak; "
                         "or other programs)")


if __name__ == "__main__":
    main()
