#!/usr/bin/env python3
"""Kills or stops a random rank, or the launcher of MPI, within the first second of runs of several ranks. Each has to end within 30 s
with exit code 4 and a sentence that names the rank, as lost, stopped or not come (mpirun is named by its signal), with no process left;
0 where all was done. The same command then ends with the bits of an undisturbed run. Runs that were done before there was a victim do
not count.

  tools/torture/starts.py TEMPER [--moments 300] [--ranks 2,4] [--runs sft] [--seed 1] [--jobs 1]
"""

import re
import signal
import time

import processes
import stand as s
import tables

LONGEST = 30  # seconds
NAMED = re.compile(r"rank \d+ \(process \d+\)|rank \d+, which has not come|a rank was ended by signal|mpirun")


def main():
    asked = tables.arguments(__doc__, ("--moments", 300, "in all"), ("--ranks", "2,4", "numbers of ranks"),
                             ("--runs", "sft", "what is trained"), ("--seconds", 1.0, "the latest moment"))
    cases = [(run, int(ranks), number, asked.seconds) for number in (signal.SIGKILL, signal.SIGSTOP)
             for run in tables.words(asked.runs) for ranks in tables.words(asked.ranks)]
    tasks = [cases[number % len(cases)] for number in range(asked.moments)]
    tables.work(f"starts: ended within {LONGEST} s with the rank named, and then the bits of an undisturbed run", asked, tasks, torture)


def torture(stand, add, chance, task):
    run, ranks, number, longest = task
    expected, _ = stand.undisturbed(run, ranks)
    out = stand.output("started")
    command = stand.command(run, out, ranks)
    process = processes.start(command)
    begin = time.monotonic()
    time.sleep(chance.uniform(0, longest))
    while not (victims := [each for each in processes.with_word(out) if each != process.pid]) and process.poll() is None:
        time.sleep(0.005)
    victims.sort(key=lambda each: (processes.rank_of(each) is not None, processes.rank_of(each) or 0, each))
    victim = chance.choice(victims) if victims else 0
    rank = processes.rank_of(victim) if victim else None
    moment = time.monotonic() - begin
    struck = victim and processes.send(victim, number)
    code, said = processes.end_of(process, LONGEST + 35)
    took = time.monotonic() - begin - moment
    left = processes.left_after(out)
    wrong = wrong_of(code, said, took, left, rank) or s.wrong_of_resuming(command, out, expected)
    whom = "mpirun" if rank is None else "a rank"
    row = f"{run}, {ranks} ranks, {whom}, {signal.Signals(number).name}" if struck else f"{run}, {ranks} ranks: was done before"
    add(row, tables.NOT_TRIED if not struck and not wrong and code == 0 else struck and not wrong,
        f"process {victim}, rank {rank}, after {moment:.3f} s: exit code {code} after {took:.1f} s: {said[-300:]!r}; {wrong}")


def wrong_of(code, said, took, left, rank):
    if left:
        return f"processes {left} are left"
    if took > LONGEST:
        return f"it took {took:.1f} s"
    if code == 0:
        return ""
    if code != 4:
        return "it has to be 4"
    named = NAMED.search(said)
    if not named or (rank is not None and "rank" not in said):
        return "no rank is named"
    return ""


if __name__ == "__main__":
    main()
