#!/usr/bin/env python3
"""Sends signals to runs at random moments, one or a storm of them: each has to end with exit code 3 with everything saved (0 where
it was done), within ten seconds, with no process left; the same command then ends with the bits of a run that nobody disturbed.

  tools/torture/signals.py TEMPER [--moments 60] [--ranks 1,4] [--runs sft,grpo] [--seed 1] [--jobs 1]
"""

import signal
import time

import processes
import stand as s
import tables

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1]


def main():
    asked = tables.arguments(
        __doc__, ("--moments", 60, "of each run and number of ranks"), ("--ranks", "1,4", "numbers of ranks"),
        ("--runs", "sft,asynchronous,adapters,grpo", "what is trained"))
    tasks = [(run, int(ranks), number % 2 == 1) for ranks in tables.words(asked.ranks) for run in tables.words(asked.runs)
             for number in range(asked.moments)]
    tables.work("signals: exit code 3 with everything saved, of all", asked, tasks, torture)


def torture(stand, add, chance, task):
    run, ranks, storm = task
    expected, longest = stand.undisturbed(run, ranks)
    out = stand.output("signalled")
    command = stand.command(run, out, ranks)
    process = processes.start(command)
    moment = chance.uniform(0.05, longest)  # the loader needs the first of it: nothing of the program runs yet
    time.sleep(moment)
    sent = chance.choice(SIGNALS)
    processes.send(process.pid, sent)
    while storm and process.poll() is None:
        time.sleep(chance.uniform(0.001, 0.05))
        processes.send(process.pid, chance.choice(SIGNALS))
    code, said = processes.end_of(process, 20)
    wrong = ""
    if left := processes.left_after(out):
        wrong = f"processes {left} are left"
    elif code not in (0, 3):
        wrong = "it has to be 0 or 3"
    else:
        wrong = s.wrong_of_resuming(command, out, expected)
    add(f"{run}, {ranks} ranks, {'storm' if storm else 'single'}", not wrong,
        f"after {moment:.3f} s {sent.name}: exit code {code}: {said[-300:]!r}; {wrong}")


if __name__ == "__main__":
    main()
