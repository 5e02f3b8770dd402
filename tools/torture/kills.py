#!/usr/bin/env python3
"""Kills runs of every recipe at random moments, again and again until they are done: of several ranks now the launcher, now one rank.
What is left has to have the bits of a run that nobody disturbed, and all processes have to be gone ten seconds after a kill.

  tools/torture/kills.py TEMPER [--kills 100] [--ranks 1,2,4] [--runs sft,asynchronous,adapters,quantized,preference,distill,grpo]
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time

import stand as s


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("temper")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--runs", default="sft,asynchronous,adapters,quantized,preference,distill,grpo")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    table = s.Table("kills: gone within ten seconds, and at last the bits of an undisturbed run")
    chance = s.chances(arguments.seed)
    cases = [(run, int(ranks)) for run in arguments.runs.split(",") for ranks in arguments.ranks.split(",")]
    with s.Stand(arguments.temper) as stand:
        known = {}
        done = 0
        while done < arguments.kills:
            for run, ranks in cases:
                done += torture(stand, table, chance, run, ranks, known)
                if done >= arguments.kills:
                    break
    sys.exit(table.end())


def torture(stand, table, chance, run, ranks, known):
    """The number of kills until the run was done."""
    row = f"{run}, {ranks} ranks"
    if (run, ranks) not in known:
        known[run, ranks] = stand.undisturbed(run, ranks)
    expected, longest = known[run, ranks]
    out = stand.output("killed")
    shutil.rmtree(out, ignore_errors=True)
    kills = 0
    for _ in range(12):
        process = subprocess.Popen(stand.command(run, out, ranks), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0, longest))
        others = [each for each in s.processes_of(out) if each != process.pid]
        victim = chance.choice(others) if others and chance.random() < 0.7 else process.pid
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            pass
        kills += 1
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            table.add(row, False, f"the launcher did not end within 20 s of the kill of process {victim}")
        if left := s.wait_until_gone(out):
            table.add(row, False, f"processes {left} lived longer than ten seconds")
            for each in left:
                os.kill(each, signal.SIGKILL)
    code, said = stand.run(stand.command(run, out, ranks))
    table.add(row, code == 0 and s.bits_of(out) == expected, f"then exit code {code}: {said[-300:]!r}, or other bits")
    return kills


if __name__ == "__main__":
    main()
