#!/usr/bin/env python3
"""Takes a GPU's memory away: before a run begins, all but some MiB, and while it works, all that is free. Each run ends with exit code 0
and the bits of an undisturbed one, or with 4 and a sentence about the GPU's memory; the same command then ends with these bits.
Where there is no GPU, nothing counts. Its memory is one, so that --jobs is 1.

  tools/torture/gpu_memory.py TEMPER [--sizes 20] [--moments 20] [--runs sft,grpo] [--device 0] [--seed 1]
"""

import os
import re
import select
import signal
import subprocess
import sys
import time

import processes
import stand as s
import tables

HOLDER = os.path.join(s.HERE, "hold_gpu.py")
LEAST, MOST = 16, 6000  # MiB that are left: from less than a context takes to more than a run does
SENTENCE = re.compile(r"memory", re.IGNORECASE)


def main():
    asked = tables.arguments(__doc__, ("--sizes", 20, "that are left, of each kind"), ("--moments", 20, "at which all is taken, of each kind"),
                             ("--runs", "sft,asynchronous,adapters,quantized,preference,grpo", "kinds"), ("--device", 0, "of CUDA"))
    asked.jobs = 1
    if subprocess.run([sys.executable, HOLDER, str(asked.device), "--look"], capture_output=True).returncode != 0:
        return print(f"a GPU's memory: skipped, there is no GPU {asked.device} of CUDA")
    kinds = tables.words(asked.runs)
    tasks = [(asked.device, kind, when) for kind in kinds for when, count in (("before", asked.sizes), ("during", asked.moments))
             for _ in range(count)]
    tables.work("a GPU's memory: done with the same bits, or ended with 4 and a sentence, of all", asked, tasks, torture)


def torture(stand, add, chance, task):
    device, kind, when = task
    row, early = f"{kind}, memory is taken {when} it", False
    expected, seconds = undisturbed(stand, kind, device)
    out = stand.output("short")
    command = on_gpu(stand, kind, out, device)
    left = int(LEAST * (MOST / LEAST) ** chance.random()) if when == "before" else 0
    holder = waiting_holder(device, left)
    if when == "before":
        take(holder)
        code, said = processes.run(command)
    else:
        process = processes.start(command)
        time.sleep(seconds * chance.random())
        early = process.poll() is not None  # before anything was taken
        take(holder)
        code, said = processes.end_of(process, 120)
    processes.send(holder, signal.SIGKILL)
    processes.end_of(holder, 30)
    if code == 0:
        wrong, how = s.difference_of(out, expected), "done"
    else:
        wrong = "" if code == 4 and SENTENCE.search(said) and "defect" not in said else f"exit code {code}: {said[-400:]!r}"
        how = "refused"
        wrong = wrong or s.wrong_of_resuming(command, out, expected)
    if early and not wrong:
        return add(f"{row}: done before that", tables.NOT_TRIED)
    add(f"{row}, {how}", not wrong, f"{left} MiB are left: {wrong}")


def on_gpu(stand, kind, output, device):
    return stand.command(kind, output, 1, "--device", f"cuda:{device}")


def undisturbed(stand, kind, device):
    """The bits of a run on the GPU, and the seconds that it takes."""

    def compute():
        whole = stand.output(f"{kind}_gpu")
        start = time.monotonic()
        code, said = processes.run(on_gpu(stand, kind, whole, device))
        if code != 0:
            raise RuntimeError(f"an undisturbed run of {kind} on the GPU ended with {code}:\n{said}")
        return s.bits_of(whole), time.monotonic() - start

    return stand.once(f"undisturbed.{kind}.gpu", compute)


def waiting_holder(device, left):
    """A process that is ready to take all of the GPU's memory but this number of MiB."""
    holder = processes.start([sys.executable, HOLDER, str(device), str(left)], stdout=subprocess.PIPE)
    hear(holder)
    return holder


def take(holder):
    """Lets it, and waits until it has."""
    processes.send(holder, signal.SIGUSR1)
    hear(holder)


def hear(holder):
    ready, _, _ = select.select([holder.stdout], [], [], 60)
    if not ready or not holder.stdout.readline():
        raise RuntimeError(f"the GPU's memory cannot be held: {processes.end_of(holder, 10)[1]}")


if __name__ == "__main__":
    main()
