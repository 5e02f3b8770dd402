#!/usr/bin/env python3
"""Shifts the time of day while runs work, by seconds to centuries, forwards, backwards and to and fro: each has to end with exit code 0,
the bits of an undisturbed run and times that are none below 0 nor above what it took. Stops whole runs for a while, all processes of
them, as a machine that sleeps does: they have to go on and end with the same bits, and none may be called stopped or missing.

Shifts begin at one of the questions for the time that such a run asks; those that begin at none, as questions depend on the machine, do
not count.

  tools/torture/clocks.py TEMPER [--shifts 60] [--sleeps 12] [--seconds 15] [--ranks 1,2] [--runs sft,grpo] [--seed 1] [--jobs 1]
"""

import json
import os
import signal
import time

import calls
import processes
import stand as s
import tables

YEAR = 365 * 24 * 3600
TRIES = 10
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
    code, said, row, happened = of_kind(stand, chance, (run, ranks, out, seconds))
    took = time.monotonic() - begin
    wrong = "it has to be 0" if code != 0 else s.difference_of(out, expected) or wrong_times(out, took)
    left = processes.left_after(out)
    right = not wrong and not left
    add(f"{run}, {ranks} ranks, {row}", tables.NOT_TRIED if right and not happened else right,
        f"exit code {code}: {said[-300:]!r}; {wrong}; {left} are left")


def shifted(stand, chance, case):
    """The exit code, what was said, how, and whether it happened."""
    run, ranks, out, _ = case
    preloaded, command = {"LD_PRELOAD": stand.library("shift_clock.c")}, stand.command(run, out, ranks)
    questions = calls.counted(stand, f"clocks.{run}.{ranks}", stand.command(run, stand.output("counted"), ranks), preloaded)
    mark = calls.Mark(stand)
    shift, manner = chance.choice(SHIFTS) * chance.choice([1, -1]), chance.choice(["once", "often", "swings"])
    if shift < -20 * YEAR:
        shift = -20 * YEAR  # before 1970 there is nothing
    environment = {**preloaded, "CLOCK_SHIFT": str(shift), "CLOCK_AFTER": str(chance.randint(1, questions)), "CLOCK_MARK": mark.path}
    if manner != "once":
        environment["CLOCK_EVERY"] = str(chance.randint(1, 1 + questions // 4))
        environment["CLOCK_SHIFT"] = str(shift if manner == "swings" else chance.choice([-1, 1]) * chance.randint(1, 10000))
    if manner == "swings":
        environment["CLOCK_SWINGS"] = "1"
    code, said = processes.run(command, environment)
    return code, said, f"shifted {manner}" + ("" if mark.is_there() else ": did not happen"), mark.is_there()


def asleep(stand, chance, case):
    run, ranks, out, seconds = case
    longest = stand.undisturbed(run, ranks)[1]
    for _ in range(TRIES):  # until it is not done before
        process = processes.start(stand.command(run, stand.output(os.path.basename(out)), ranks))
        time.sleep(chance.uniform(0.05, max(0.1, longest)))
        sleepers = [process, *processes.descendants_of(process.pid)]
        if slept := [processes.send(each, signal.SIGSTOP) for each in sleepers][0]:
            time.sleep(chance.uniform(1, seconds))
            break
        processes.end_of(process, 10)
    for each in sleepers:
        processes.send(each, signal.SIGCONT)
    code, said = processes.end_of(process, 120)
    return code, said, "asleep" if slept else "asleep: was done before", slept


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
