#!/usr/bin/env python3
"""Kills runs of every recipe at random moments, again and again until they are done: of several ranks now the launcher, now one rank.
Each has to end with exit code 4, killed, or with 0 where it was done, and all of its processes have to be gone ten seconds after the
signal. What is left at last has to have the bits of an undisturbed run. Signals to living processes count as kills, no others.

  tools/torture/kills.py TEMPER [--kills 100] [--ranks 1,2,4] [--runs sft,asynchronous,context,pipeline,interleaved,adapters,quantized,preference,distill,grpo]
"""

import itertools
import signal
import subprocess

import processes
import stand as s
import tables

OF_ONE_TASK = 12  # kills
MOST_RUNS = 100  # of a task, each of which was done before it could be killed
LONGEST = 10  # seconds


def main():
    asked = tables.arguments(
        __doc__, ("--kills", 100, "in all"), ("--ranks", "1,2,4", "numbers of ranks"),
        ("--runs", "sft,asynchronous,context,pipeline,interleaved,adapters,quantized,preference,distill,grpo", "what is trained"))
    cases = itertools.cycle((run, ranks) for run in tables.words(asked.runs) for ranks in map(int, tables.words(asked.ranks))
                            if ranks % s.RANKS_OF.get(run, 1) == 0)
    tasks = [(*next(cases), min(OF_ONE_TASK, asked.kills - done)) for done in range(0, asked.kills, OF_ONE_TASK)]
    tables.work(f"kills: gone within {LONGEST} s, and at last the bits of an undisturbed run", asked, tasks, torture)


def torture(stand, add, chance, task):
    run, ranks, kills = task
    row, (expected, longest) = f"{run}, {ranks} ranks", stand.undisturbed(run, ranks)
    for _ in range(MOST_RUNS):
        out = stand.output("killed")
        command = stand.command(run, out, ranks)
        while kills > 0 and killed(add, row, command, out, chance.uniform(0, longest), chance):
            kills -= 1
        wrong = s.wrong_of_resuming(command, out, expected)
        add(f"{row}: bits", not wrong, wrong)
        if kills == 0:
            return
    add(f"{row}: kills", False, f"{MOST_RUNS} runs were done before they could be killed {kills} times more")


def killed(add, row, command, out, moment, chance):
    """Whether one of its processes was; not if it ends before."""
    process = processes.start(command)
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        pass
    others = [each for each in processes.with_word(out) if each != process.pid]
    victim = chance.choice(others) if others and chance.random() < 0.7 else process
    struck = processes.send(victim, signal.SIGKILL)
    code, said, left = processes.all_ended(process, out, LONGEST)
    right = not left and code in ((0, 4, -signal.SIGKILL) if struck else (0,))
    if struck or not right:
        whom = "the launcher" if victim is process else f"process {victim}"
        add(f"{row}: kills", right, f"of {whom if struck else 'none'}: exit code {code}: {said[-300:]!r}; {left} are left")
    elif code == 0:
        add(f"{row}: was done before", tables.NOT_TRIED)
    return struck


if __name__ == "__main__":
    main()
