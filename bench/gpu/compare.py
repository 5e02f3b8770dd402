#!/usr/bin/env python3
"""Temper beside transformers on one GPU, in one run: the same shapes, rows of 4,096 random tokens, bfloat16
parameters, gradients and moments, AdamW with clipping. Prints one table.

    make bench                                   # builds build/release/bench/temper_bench_train
    python3 bench/gpu/compare.py [--temper FILE] [--shapes qwen3-0.6b qwen3-1.7b qwen3-8b]

transformers and a CUDA-enabled PyTorch are needed for this comparison only. The two take turns, each in a process of
its own; tokens/s are medians over a process's steps, then over the turns."""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROWS = {"qwen3-0.6b": 4, "qwen3-1.7b": 4, "qwen3-8b": 2}


def measure(command):
    done = subprocess.run(command, capture_output=True, text=True)
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    sys.stderr.write(done.stderr[-2000:])
    raise SystemExit(f"no figures from: {' '.join(map(str, command))}")


def middle(runs, key):
    return statistics.median(run[key] for run in runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--temper", default=str(HERE.parents[1] / "build/release/bench/temper_bench_train"))
    parser.add_argument("--shapes", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--attention", default="", help="Temper's attn_implementation")
    parser.add_argument("--checkpointing", default="selective", choices=["none", "selective", "full"])
    parser.add_argument("--lora", type=int, default=0, help="rank: train an adapter of all projections (needs peft)")
    args = parser.parse_args()
    print("| model | rows | transformers tokens/s | GiB | first step s | Temper tokens/s | TFLOP/s | GiB | first step s "
          "| speed | memory |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for shape in args.shapes:
        common = [shape, "--rows", str(ROWS[shape]), "--steps", str(args.steps)]
        temper_options = ["--device", "cuda", "--length", "4096", "--checkpointing", args.checkpointing]
        if args.attention:
            temper_options += ["--attention", args.attention]
        their_options = []
        if args.lora:
            their_options = ["--lora", str(args.lora)]
            temper_options += ["--adapters", "1", "--rank", str(args.lora), "--float32-state"]
        theirs, ours = [], []
        for _ in range(args.turns):
            theirs.append(measure([sys.executable, HERE / "transformers_train.py", *common, *their_options]))
            ours.append(measure([args.temper, *common, *temper_options]))
        speed = middle(ours, "tokens_per_second") / middle(theirs, "tokens_per_second")
        memory = middle(ours, "memory_gib") / middle(theirs, "memory_gib")
        print(f"| {shape} | {ROWS[shape]} | {middle(theirs, 'tokens_per_second'):,.0f} "
              f"| {middle(theirs, 'memory_gib'):.1f} | {middle(theirs, 'first_step_seconds'):.1f} "
              f"| {middle(ours, 'tokens_per_second'):,.0f} | {middle(ours, 'tflops'):.0f} "
              f"| {middle(ours, 'memory_gib'):.1f} | {middle(ours, 'first_step_seconds'):.1f} "
              f"| {speed:.2f}x | {memory:.2f}x |", flush=True)


if __name__ == "__main__":
    main()
