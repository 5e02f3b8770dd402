#!/usr/bin/env python3
"""Long work: a run of many updates of a small model, a process that answers many times, and many syncs of weights to one. From the
second tenth of the work to the last one memory (VmRSS and VmData) has to grow by less than a MiB, and descriptors and threads not at all.

  tools/torture/soak.py TEMPER [--steps 20000] [--answers 1000000] [--syncs 1000] [--runs sft,asynchronous,grpo] [--jobs 1]
"""

import json
import os
import time

import processes
import tables
from receivers import Receiver

MOST_KIB = 1024
TINY = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 16}
FASTER = ["--train.rows_per_step", "1", "--checkpoint.every_steps", "500"]


def main():
    asked = tables.arguments(__doc__, ("--steps", 20000, "updates of each run; 0: no runs"), ("--answers", 1000000, "to a file of prompts"),
                             ("--syncs", 1000, "of weights"), ("--runs", "sft,asynchronous,grpo", "what is trained"))
    tasks = [(train, run, asked.steps if run != "grpo" else asked.steps // 10) for run in tables.words(asked.runs) if asked.steps]
    tasks += [(answer, "", asked.answers)] * (asked.answers > 0) + [(take, "", asked.syncs)] * (asked.syncs > 0)
    tables.work(f"soak: grown by less than {MOST_KIB} KiB, descriptors and threads as before", asked, tasks, torture)


def torture(stand, add, chance, task):
    of_kind, run, count = task
    of_kind(stand, add, run, count)


def tiny_model(stand):
    """The folder of a model as small as can be."""

    def compute():
        source, model = os.path.join(stand.rows, "qwen3-tiny"), os.path.join(stand.folder, "tiny")
        with open(os.path.join(source, "config.json")) as file:
            config = {**json.load(file), **TINY}
        with open(os.path.join(source, "config.json"), "w") as file:
            json.dump(config, file)
        stand.plainly("init", source, model)
        return model

    return stand.once("tiny", compute)


def compare(add, row, before, after):
    if not before or not after:
        return add(row, False, "it ended before it could be looked at")
    for name in ("VmRSS", "VmData"):
        grown = after[name] - before[name]
        add(f"{row}: {name}", grown < MOST_KIB, f"from {before[name]} to {after[name]} KiB")
    same = all(after[name] <= before[name] for name in ("descriptors", "Threads"))
    add(f"{row}: descriptors and threads", same, f"{before}, then {after}")
    print(f"{row}: {before}, then {after}", flush=True)


def look(kept, process):
    """Keeps the most memory, and the fewest descriptors and threads: some are there now and then."""
    for name, value in processes.status_of(process.pid).items():
        kept[name] = (max if name.startswith("Vm") else min)(kept.get(name, value), value)


def watch(add, row, process, done, count):
    """Looks at a process from 10 % to 20 % of what done() says of `count`, and from 89 % to 99 %."""
    before, after = {}, {}
    while process.poll() is None and (share := done() / count) < 0.99:
        try:
            if 0.1 <= share < 0.2:
                look(before, process)
            elif share >= 0.89:
                look(after, process)
        except (OSError, KeyError):  # it ends
            break
        time.sleep(0.01)
    compare(add, row, before, after)


def lines_of(path):
    """A function that says how many lines a growing file has."""
    state = {"at": 0, "lines": 0}

    def count():
        if os.path.exists(path):
            with open(path, "rb") as file:
                file.seek(state["at"])
                while part := file.read(1 << 20):
                    state["at"] += len(part)
                    state["lines"] += part.count(b"\n")
        return state["lines"]

    return count


def ended(add, row, process):
    code, said = processes.end_of(process, 600)
    add(f"{row}: ends", code == 0, f"exit code {code}: {said[-300:]!r}")


def train(stand, add, run, steps):
    out, row = stand.output(f"soak_{run}"), f"{run}, {steps} updates"
    command = stand.command(run, out, 1, "--model.path", tiny_model(stand), "--train.steps", str(steps), *FASTER)
    if run == "grpo":
        command = [word for word in command if word not in FASTER[:2]]
    process = processes.start(command)
    watch(add, row, process, lines_of(os.path.join(out, "metrics.jsonl")), steps)
    ended(add, row, process)


def answer(stand, add, _, answers):
    out, row = os.path.join(stand.runs, "soak_answers.jsonl"), f"{answers} answers"
    os.makedirs(stand.runs, exist_ok=True)
    rows = os.path.join(stand.rows, "prompts.jsonl")
    command = [stand.temper, "batch", tiny_model(stand), rows, "--out", out, "--samples", str(-(-answers // 200)), "-n", "2", "--threads",
               "1"]
    process = processes.start(command)
    watch(add, row, process, lines_of(out), -(-answers // 200) * 200)
    ended(add, row, process)
    if os.path.exists(out):
        os.remove(out)


def take(stand, add, _, syncs):
    with Receiver(stand, "soak") as receiver:
        before, after = {}, {}
        for number in range(syncs):
            wrong = receiver.wrong_of_sync()
            add(f"{syncs} syncs", not wrong, wrong)
            if wrong:
                return
            share = number / syncs
            if 0.1 <= share < 0.2 or share >= 0.89:
                look(before if share < 0.2 else after, receiver.process)
        compare(add, f"receiver of {syncs} syncs", before, after)


if __name__ == "__main__":
    main()
