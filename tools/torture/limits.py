#!/usr/bin/env python3
"""Runs within limits of the system: each ends with exit code 0 and the bits of a run without limits, or with 4 and the limit's name.

  tools/torture/limits.py TEMPER [--sizes 20] [--seed 1] [--jobs 1]
"""

import processes
import stand as s
import tables

RANGES = {"v": (200, 8000), "d": (20, 4000)}  # MiB


def main():
    asked = tables.arguments(__doc__, ("--sizes", 20, "of each limit"))
    tasks = [("n", number) for number in range(4, 4 + asked.sizes)] + [(option, 0) for option in RANGES for _ in range(asked.sizes)]
    tables.work("limits: done within them, or ended with 4 and their name, of all", asked, tasks, torture)


def torture(stand, add, chance, task):
    option, size = task
    expected, _ = stand.undisturbed("sft")
    name = f"ulimit -{option}"
    if option != "n":
        least, most = RANGES[option]
        size = int(least * (most / least) ** chance.random()) * 1024
    out = stand.output("limited")
    shell = ["bash", "-c", f'ulimit -{option} {size}; exec "$0" "$@"']
    code, said = processes.run(shell + stand.command("sft", out))
    # Of 127 the system could not even start the program.
    right = (code == 0 and not s.difference_of(out, expected)) or code == 127
    if option == "n":
        right = right or (code in (2, 4) and "defect" not in said)
    else:
        right = right or (code == 4 and name in said)
    add(name, right, f"{size}: exit code {code}: {said[-300:]!r}")


if __name__ == "__main__":
    main()
