#!/usr/bin/env python3
"""Runs within limits of the system: few addresses (ulimit -v), little memory (ulimit -d, and a control group where one can be made), few
descriptors (ulimit -n). Each ends with exit code 0 and the bits of a run without limits, or with 4 and the limit's name; of
few descriptors with 2 or 4 and a sentence. In a group the system may kill it, if it counts that as a kill for want of memory. What
cannot be started within a limit does not count.

  tools/torture/limits.py TEMPER [--sizes 20] [--seed 1] [--jobs 1]
"""

import os
import signal

import groups
import processes
import stand as s
import tables

RANGES = {"v": (200, 8000), "d": (20, 4000), "group": (8, 1024)}  # MiB
NOT_STARTED = 127  # of the shell and of the loader


def main():
    asked = tables.arguments(__doc__, ("--sizes", 20, "of each limit"))
    tasks = [("n", number) for number in range(4, 4 + asked.sizes)] + [(option, 0) for option in RANGES for _ in range(asked.sizes)]
    tables.work("limits: done within them, or ended with 4 and their name, of all", asked, tasks, torture)


def torture(stand, add, chance, task):
    option, size = task
    expected, _ = stand.undisturbed("sft")
    if option != "n":
        least, most = RANGES[option]
        size = int(least * (most / least) ** chance.random()) * 1024
    out = stand.output("limited")
    if option == "group":
        return in_group(stand, add, size, expected)
    name = f"ulimit -{option}"
    shell = ["bash", "-c", f'ulimit -{option} {size}; exec "$0" "$@"']
    code, said = processes.run(shell + stand.command("sft", out))
    if code == NOT_STARTED and said.strip():
        return add(f"{name}: could not be started", tables.NOT_TRIED)
    right = code == 0 and not s.difference_of(out, expected)
    if option == "n":
        right = right or (code in (2, 4) and said.strip() and "defect" not in said)
    else:
        right = right or (code == 4 and name in said)
    add(name, right, f"{size}: exit code {code}: {said[-300:]!r}")


def in_group(stand, add, size, expected):
    name, out = f"temper_torture.{os.getpid()}", stand.output("limited")
    if (group := groups.new_group(name)) is None:
        return add("control group: skipped, none can be made here", tables.NOT_TRIED)
    with group:
        group.set(size * 1024)
        code, said = processes.run(group.inside(stand.command("sft", out)))
        killed = group.killed()
    if code == 0:
        how, wrong = "done", s.difference_of(out, expected)
    elif code == -signal.SIGKILL:
        how, wrong = "killed by the system", "" if killed else "the system did not count it"
    else:
        how, wrong = "refused", "" if code == 4 and name in said else "it has to be 4, with the group's name"
    add(f"control group, {how}", not wrong, f"{size} KiB: exit code {code}, {killed} killed: {said[-300:]!r}; {wrong}")


if __name__ == "__main__":
    main()
