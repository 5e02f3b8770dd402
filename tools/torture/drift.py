#!/usr/bin/env python3
"""Lets replicas drift: while two ranks train, one bit of a weight of one of them is changed in its memory. The run has to end before one
of its next checkpoints (of large tensors some elements are compared each time) with a sentence that names the tensor and the ranks.

  tools/torture/drift.py TEMPER [--changes 20] [--seed 1] [--jobs 1]
"""

import os
import re
import signal
import time

import processes
import tables
from safetensors import header_of

# Weights that no update changes, so that what the file has is found in memory.
STEADY = ["--train.optimizer.lr", "1e-30", "--train.steps", "1000000", "--checkpoint.every_steps", "10"]
PATTERN = 64  # bytes that are looked for
FEW_ADDRESSES = 3000000  # KiB, so that they can be looked through
LONGEST = 60  # seconds until the change is found


def main():
    asked = tables.arguments(__doc__, ("--changes", 20, "in all"))
    tables.work("drift: named before anything is saved, of all", asked, [2] * asked.changes, torture)


def torture(stand, add, chance, ranks):
    out = stand.output("drifts")
    process = processes.start(["bash", "-c", f'ulimit -v {FEW_ADDRESSES}; exec "$0" "$@"', *stand.command("sft", out, ranks, *STEADY)])
    until = time.monotonic() + 60
    while not checkpoints_of(out) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    rank = chance.randrange(ranks)
    of_rank = [each for each in processes.descendants_of(process.pid) if processes.rank_of(each) == rank]
    tensor, pattern, places = "", b"", []
    for _ in range(20):  # what is not as in the file, such as what is joined with others by columns, is not found
        tensor, pattern = some_of(os.path.join(stand.model, "model.safetensors"), chance)
        if of_rank and (places := places_of(of_rank[0], pattern)):
            break
    if not places:
        processes.send(process, signal.SIGKILL)
        code, said = processes.end_of(process, 20)
        processes.left_after(out, 5)
        return add("weights are found", False, f"exit code {code}: {said[-300:]!r}")
    bit = chance.randrange(20)  # of the fraction
    with open(f"/proc/{of_rank[0]}/mem", "r+b", buffering=0) as memory:
        for place in places:
            memory.seek(place)
            number = int.from_bytes(pattern[:4], "little") ^ (1 << bit)
            memory.write(number.to_bytes(4, "little"))
    code, said = processes.end_of(process, LONGEST)
    left = processes.left_after(out, 10)
    right = code == 1 and re.search(r"ranks 0 and 1 hold other bits of '[\w.]+'", said) and not left
    add("changes are named", right, f"{tensor}, bit {bit} of rank {rank}: exit code {code}: {said[-400:]!r}; {left} are left")


def checkpoints_of(out):
    folder = os.path.join(out, "checkpoints")
    return {name for name in os.listdir(folder) if name.startswith("step-")} if os.path.isdir(folder) else set()


def some_of(path, chance):
    """A tensor's name, and bytes somewhere in it."""
    with open(path, "rb") as file:
        header, begin = header_of(file)
        name = chance.choice(sorted(name for name in header if name.endswith("proj.weight") or "embed" in name))
        first, last = header[name]["data_offsets"]
        at = chance.randrange((last - first) // PATTERN) * PATTERN
        file.seek(begin + first + at)
        return name, file.read(PATTERN)


def places_of(process, pattern):
    """Where a process has these bytes in memory that is its own."""
    found = []
    with open(f"/proc/{process}/maps") as maps, open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
        for line in maps:
            words = line.split()
            begin, end = (int(each, 16) for each in words[0].split("-"))
            if not words[1].startswith("rw") or (len(words) > 5 and words[5].startswith("/")):
                continue
            found += [begin + at for at in found_in(memory, begin, end, pattern)]
    return found


def found_in(memory, begin, end, pattern):
    """Where, from the beginning of a region."""
    size = 1 << 20
    for start in range(begin, end, size):
        try:
            memory.seek(start)
            part = memory.read(min(size, end - start))
        except (OSError, ValueError, OverflowError):
            return
        at = part.find(pattern)
        while at >= 0:
            yield start - begin + at
            at = part.find(pattern, at + 1)


if __name__ == "__main__":
    main()
