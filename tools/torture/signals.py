#!/usr/bin/env python3
"""Sends signals to runs at random moments, one or a storm of them: each has to end with exit code 3 with everything saved (0 where
it was done), within ten seconds, with no process left; the same command then ends with the bits of a run that nobody disturbed.

  tools/torture/signals.py TEMPER [--moments 60] [--ranks 1,4] [--runs sft,grpo] [--seed 1]
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time

import stand as s

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("temper")
    parser.add_argument("--moments", type=int, default=60, help="of each run and number of ranks")
    parser.add_argument("--ranks", default="1,4")
    parser.add_argument("--runs", default="sft,asynchronous,adapters,grpo")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    table = s.Table("signals: exit code 3 with everything saved, of all")
    chance = s.chances(arguments.seed)
    with s.Stand(arguments.temper) as stand:
        for ranks in map(int, arguments.ranks.split(",")):
            for run in arguments.runs.split(","):
                torture(stand, table, chance, run, ranks, arguments.moments)
    sys.exit(table.end())


def torture(stand, table, chance, run, ranks, moments):
    expected, longest = stand.undisturbed(run, ranks)
    for number in range(moments):
        storm = number % 2 == 1
        row = f"{run}, {ranks} ranks, {'storm' if storm else 'single'}"
        out = stand.output("signalled")
        shutil.rmtree(out, ignore_errors=True)
        process = subprocess.Popen(stand.command(run, out, ranks), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        moment = chance.uniform(0.05, longest)  # the loader needs the first of it: nothing of the program runs yet
        time.sleep(moment)
        sent = chance.choice(SIGNALS)
        s.kill_group(process, sent)
        while storm and process.poll() is None:
            time.sleep(chance.uniform(0.001, 0.05))
            s.kill_group(process, chance.choice(SIGNALS))
        try:
            _, said = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            for each in s.wait_until_gone(out, 3):
                os.kill(each, signal.SIGKILL)
            table.add(row, False, f"after {moment:.3f} s {sent.name}: it did not end")
            continue
        what = f"after {moment:.3f} s {sent.name}: exit code {process.returncode}: {said[-300:]!r}"
        if left := s.wait_until_gone(out):
            table.add(row, False, f"{what}: processes {left} are left")
            for each in left:
                os.kill(each, signal.SIGKILL)
            continue
        if process.returncode not in (0, 3):
            table.add(row, False, what)
            continue
        code, said = stand.run(stand.command(run, out, ranks))
        table.add(row, code == 0 and s.bits_of(out) == expected, f"{what}; then {code} {said[-300:]!r}")


if __name__ == "__main__":
    main()
