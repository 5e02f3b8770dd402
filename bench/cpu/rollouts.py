#!/usr/bin/env python3
"""Greedy answers to 32 prompts of a chat model on the CPU: `temper batch` with 32 at once and one at a time, and
transformers' generate with all 32 in a batch. Checks that the tokens are the same and prints a table.

    make demo                                    # trains runs/addition/model
    python3 bench/cpu/rollouts.py [--model runs/addition/model] [--new 128] [--turns 5] [--threads 2]

transformers and PyTorch are needed for this comparison only. All three read a copy of the model without stop tokens, so
that every answer has --new tokens. The programs take turns, each in a process of its own; the table has the median turn of
each, by the clock and by processor time. transformers' times are those of generate() alone, after a first call that warms
it up; Temper's times by the clock are those of its answers, and its processor time is that of the whole process, with
loading."""
import argparse
import json
import os
import pathlib
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROWS = 32
TEMPER = "build/release/temper"


def without_stop_tokens(model, to):
    shutil.copytree(model, to)
    for name in ("config.json", "generation_config.json"):
        if (to / name).exists():
            config = json.loads((to / name).read_text())
            config["eos_token_id"] = None
            (to / name).write_text(json.dumps(config))


def temper(model, rows, args, batch, out):
    out.unlink(missing_ok=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [TEMPER, "batch", model, rows, "--out", out, "--batch", str(batch), "--greedy", "-n", str(args.new), "--threads",
         str(args.threads), "--dtype", "float32"], check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    answers = {answer["row"]: answer["ids"] for answer in map(json.loads, out.read_text().splitlines())}
    speed = float(re.search(r"tokens in ([\d.]+)s: (\d+) tokens/s", done.stderr).group(2))
    return {"wall": ROWS * args.new / speed,
            "processor": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            "ids": [answers[row] for row in range(ROWS)]}


def peer(args):
    """In a process of its own."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(args.threads)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="sdpa").eval()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    prompts = [tokenizer.apply_chat_template(json.loads(line)["prompt"], add_generation_prompt=True, return_dict=False)
               for line in args.peer.read_text().splitlines()]
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])

    def generate(new):
        return model.generate(ids, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=0)

    with torch.inference_mode():
        generate(4)
        wall, processor = time.time(), time.process_time()
        found = generate(args.new)
        wall, processor = time.time() - wall, time.process_time() - processor
    print(json.dumps({"wall": wall, "processor": processor, "ids": found[:, longest:].tolist()}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, default=pathlib.Path("runs/addition/model"))
    parser.add_argument("--rows", type=pathlib.Path, default=pathlib.Path("build/demo/eval.jsonl"), help="conversations")
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--peer", type=pathlib.Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer:
        return peer(args)
    turns = {"temper, 32 at once": [], "temper, one at a time": [], "transformers, 32 at once": []}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        without_stop_tokens(args.model, folder / "model")
        with (folder / "rows.jsonl").open("w") as rows:
            for line in args.rows.read_text().splitlines()[:ROWS]:
                rows.write(json.dumps({"prompt": json.loads(line)["messages"][:-1]}) + "\n")
        for _ in range(args.turns):
            for name, batch in (("temper, 32 at once", ROWS), ("temper, one at a time", 1)):
                turns[name].append(temper(folder / "model", folder / "rows.jsonl", args, batch, folder / "out.jsonl"))
            done = subprocess.run(
                [sys.executable, __file__, "--peer", folder / "rows.jsonl", "--model", folder / "model", "--new", str(args.new),
                 "--threads", str(args.threads)], check=True, capture_output=True, text=True)
            turns["transformers, 32 at once"].append(json.loads(done.stdout.splitlines()[-1]))
    first = turns["temper, 32 at once"][0]["ids"]
    for name, all_turns in turns.items():
        differing = sum(a != b for turn in all_turns for a, b in zip(turn["ids"], first))
        medians = {kind: statistics.median(turn[kind] for turn in all_turns) for kind in ("wall", "processor")}
        ours = {kind: statistics.median(turn[kind] for turn in turns["temper, 32 at once"]) for kind in medians}
        print(f"{name:26} {ROWS * args.new / medians['wall']:9.0f} tokens/s  {medians['processor']:7.2f} s of processor time  "
              f"{medians['wall'] / ours['wall']:6.2f}x the time  {medians['processor'] / ours['processor']:6.2f}x the processor time  "
              f"{differing} answers differ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
