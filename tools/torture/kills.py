#!/usr/bin/env python3
"""Kills runs of every recipe at random moments, again and again until they are done: of several ranks now the launcher, now one rank.
What is left has to have the bits of a run that nobody disturbed, and all processes have to be gone ten seconds after a kill.

  tools/torture/kills.py TEMPER [--kills 100] [--ranks 1,2,4] [--runs sft,asynchronous,adapters,quantized,preference,distill,grpo]
"""

import itertools
import signal
import time

import processes
import stand as s
import tables

OF_ONE_RUN = 12  # kills


def main():
    asked = tables.arguments(
        __doc__, ("--kills", 100, "in all"), ("--ranks", "1,2,4", "numbers of ranks"),
        ("--runs", "sft,asynchronous,adapters,quantized,preference,distill,grpo", "what is trained"))
    cases = [(run, int(ranks)) for run in tables.words(asked.runs) for ranks in tables.words(asked.ranks)]
    tasks = itertools.islice(itertools.cycle(cases), -(-asked.kills // OF_ONE_RUN))
    tables.work("kills: gone within ten seconds, and at last the bits of an undisturbed run", asked, tasks, torture)


def torture(stand, add, chance, task):
    run, ranks = task
    row = f"{run}, {ranks} ranks"
    expected, longest = stand.undisturbed(run, ranks)
    out = stand.output("killed")
    command = stand.command(run, out, ranks)
    for _ in range(OF_ONE_RUN):
        process = processes.start(command)
        time.sleep(chance.uniform(0, longest))
        others = [each for each in processes.with_word(out) if each != process.pid]
        victim = chance.choice(others) if others and chance.random() < 0.7 else process.pid
        processes.send(victim, signal.SIGKILL)
        code, said = processes.end_of(process, 20)
        left = processes.left_after(out)
        ended = code != processes.ENDLESS
        add(f"{row}: kills", ended and not left, f"of process {victim}: exit code {code}: {said[-300:]!r}; {left} are left")
    wrong = s.wrong_of_resuming(command, out, expected)
    add(f"{row}: bits", not wrong, wrong)


if __name__ == "__main__":
    main()
