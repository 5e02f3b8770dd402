#!/usr/bin/env python3
"""Sends signals to runs at random moments, one or a storm of them. Each has to end within ten seconds of the first one, with no process
left: with exit code 3 and its last update saved, or with 0 where it was done within two seconds. The same command then ends with the
bits of an undisturbed run. Runs that end before the first signal do not count.

  tools/torture/signals.py TEMPER [--moments 60] [--ranks 1,4] [--runs sft,grpo] [--seed 1] [--jobs 1]
"""

import json
import os
import signal
import subprocess
import time

import processes
import stand as s
import tables

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1]
LONGEST, DONE = 10, 2  # seconds from the first signal: until all has ended, and until a run ends that is done


def main():
    asked = tables.arguments(
        __doc__, ("--moments", 60, "of each run and number of ranks"), ("--ranks", "1,4", "numbers of ranks"),
        ("--runs", "sft,asynchronous,adapters,grpo", "what is trained"))
    tasks = [(run, int(ranks), number % 2 == 1) for ranks in tables.words(asked.ranks) for run in tables.words(asked.runs)
             for number in range(asked.moments)]
    tables.work("signals: exit code 3 with the last update saved, of all", asked, tasks, torture)


def torture(stand, add, chance, task):
    run, ranks, storm = task
    expected, longest = stand.undisturbed(run, ranks)
    out, row = stand.output("signalled"), f"{run}, {ranks} ranks"
    command = stand.command(run, out, ranks)
    process = processes.start(command)
    moment = chance.uniform(0.05, longest)  # the loader needs the first of it: nothing of the program runs yet
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        pass
    sent, begin = chance.choice(SIGNALS), time.monotonic()
    struck = processes.send(process, sent)
    while storm and process.poll() is None and time.monotonic() < begin + LONGEST:
        time.sleep(chance.uniform(0.001, 0.05))
        processes.send(process, chance.choice(SIGNALS))
    code, said = processes.end_of(process, max(0.1, begin + LONGEST - time.monotonic()))
    took = time.monotonic() - begin
    wrong = wrong_of(code, took, processes.left_after(out, LONGEST - took), out) or s.wrong_of_resuming(command, out, expected)
    if not struck and code == 0 and not wrong:
        return add(f"{row}: was done before", tables.NOT_TRIED)
    add(f"{row}, {'storm' if storm else 'single'}", struck and not wrong,
        f"after {moment:.3f} s {sent.name if struck else 'no signal'}: exit code {code} after {took:.1f} s: {said[-300:]!r}; {wrong}")


def wrong_of(code, took, left, out):
    if left:
        return f"processes {left} are left"
    if code == 0:
        return f"it is 0, but {took:.1f} s after the signal" if took > DONE else ""
    return unsaved(out) if code == 3 else "it has to be 0 or 3"


def unsaved(out):
    """Of the run's folders, which of them have other last updates in their metrics than in their newest checkpoints."""
    for folder, _, names in os.walk(out):
        if "metrics.jsonl" not in names:
            continue
        with open(os.path.join(folder, "metrics.jsonl")) as file:
            done = max((json.loads(line)["step"] for line in file), default=0)
        saved = os.path.join(folder, "checkpoints")
        steps = [int(name.removeprefix("step-")) for name in os.listdir(saved) if name.startswith("step-")] if os.path.isdir(saved) else []
        if done != max(steps, default=0):
            return f"{folder} has {done} updates, of which {max(steps, default=0)} are saved"
    return ""


if __name__ == "__main__":
    main()
