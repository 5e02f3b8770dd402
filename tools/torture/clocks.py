#!/usr/bin/env python3
"""Shifts the time of day while runs work, by seconds to centuries, forwards, backwards and to and fro: each has to end with exit code 0,
the bits of an undisturbed run and times that are none below 0 nor above what it took. Stops whole runs for a while, all processes of
them, as a machine that sleeps does: they have to go on and end with the same bits, and none may be called stopped or missing.

  tools/torture/clocks.py TEMPER [--shifts 60] [--sleeps 12] [--seconds 15] [--ranks 1,2] [--runs sft,grpo] [--seed 1] [--jobs 1]
"""

import json
import os
import signal
import time

import processes
import stand as s
import tables

YEAR = 365 * 24 * 3600
SHIFTS = [1, 59, 3600, YEAR, 30 * YEAR, 200 * YEAR]


def main():
    asked = tables.arguments(
        __doc__, ("--shifts", 60, "in all"), ("--sleeps", 12, "in all"), ("--seconds", 15.0, "of the longest sleep"),
        ("--ranks", "1,2", "numbers of ranks"), ("--runs", "sft,asynchronous,grpo", "what is trained"))
    cases = [(run, int(ranks), asked.seconds) for run in tables.words(asked.runs) for ranks in tables.words(asked.ranks)]
    tasks = [(shifted, cases[number % len(cases)]) for number in range(asked.shifts)]
    tasks += [(asleep, cases[number % len(cases)]) for number in range(asked.sleeps)]
    tables.work("clocks: the bits of an undisturbed run, of all", asked, tasks, torture)


def torture(stand, add, chance, task):
    of_kind, (run, ranks, seconds) = task
    out = stand.output("clocks")
    expected, _ = stand.undisturbed(run, ranks)
    begin = time.monotonic()
    code, said, row = of_kind(stand, chance, stand.command(run, out, ranks), out, seconds)
    took = time.monotonic() - begin
    wrong = "it has to be 0" if code != 0 else s.difference_of(out, expected) or wrong_times(out, took)
    left = processes.left_after(out)
    add(f"{run}, {ranks} ranks, {row}", not wrong and not left, f"exit code {code}: {said[-300:]!r}; {wrong}; {left} are left")


def shifted(stand, chance, command, out, _seconds):
    shift, manner = chance.choice(SHIFTS) * chance.choice([1, -1]), chance.choice(["once", "often", "swings"])
    if shift < -20 * YEAR:
        shift = -20 * YEAR  # before 1970 there is nothing
    environment = {"LD_PRELOAD": stand.library("shift_clock.c"), "CLOCK_SHIFT": str(shift), "CLOCK_AFTER": str(chance.randint(1, 200))}
    if manner != "once":
        environment["CLOCK_EVERY"] = str(chance.randint(5, 100))
        environment["CLOCK_SHIFT"] = str(shift if manner == "swings" else chance.choice([-1, 1]) * chance.randint(1, 10000))
    if manner == "swings":
        environment["CLOCK_SWINGS"] = "1"
    code, said = processes.run(command, environment)
    return code, said, f"shifted {manner}"


def asleep(stand, chance, command, out, seconds):
    process = processes.start(command)
    time.sleep(chance.uniform(0.05, 1.0))
    sleepers = {process.pid, *processes.descendants_of(process.pid)}
    for each in sleepers:
        processes.send(each, signal.SIGSTOP)
    time.sleep(chance.uniform(1, seconds))
    for each in sleepers:
        processes.send(each, signal.SIGCONT)
    code, said = processes.end_of(process, 120)
    return code, said, "asleep"


def wrong_times(out, took):
    """Of what a run says that it took; empty where all can be."""
    for folder, _, names in os.walk(out):
        for name in {"metrics.jsonl", "summary.json"} & set(names):
            with open(os.path.join(folder, name)) as file:
                objects = [json.loads(line) for line in file] if name.endswith("l") else [json.load(file)]
            for each in objects:
                for key, value in each.items():
                    if "seconds" in key and isinstance(value, (int, float)) and not 0 <= value <= took:
                        return f"{name} has {key}: {value}"
    return ""


if __name__ == "__main__":
    main()
