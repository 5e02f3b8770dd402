#!/usr/bin/env python3
"""Lets one call fail, or all from one on, at many places of runs: an allocation, a thread, a descriptor, a write. Each run has to
end with exit code 4 and a sentence (2 where a file is the reason; 0 where nothing needed the call), never by a signal, and the same
command without the failure has to end with the bits of a run that nothing disturbed.

  tools/torture/failures.py TEMPER [--kinds memory,thread,descriptor,disk] [--runs sft,grpo] [--samples 40] [--seed 1] [--ranks 1]
"""

import argparse
import os
import shutil
import sys

import stand as s


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("temper")
    parser.add_argument("--kinds", default="memory,thread,descriptor,disk")
    parser.add_argument("--runs", default="sft,grpo,asynchronous")
    parser.add_argument("--samples", type=int, default=40, help="of each kind, run and manner")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=1)
    arguments = parser.parse_args()
    table = s.Table("failures: right of all")
    chance = s.chances(arguments.seed)
    with s.Stand(arguments.temper) as stand:
        library = s.preload(stand, "fail_at.c")
        for run in arguments.runs.split(","):
            expected, _ = stand.undisturbed(run, arguments.ranks)
            for kind in arguments.kinds.split(","):
                base = {"LD_PRELOAD": library, "FAIL_KIND": kind, "FAIL_BEHIND": run_file(stand, run)}
                if arguments.ranks > 1:
                    base["FAIL_RANK"] = str(arguments.ranks - 1)
                counted = os.path.join(stand.folder, "count")
                out = stand.output("counted")
                code, said = stand.run(stand.command(run, out, arguments.ranks), {**base, "COUNT_FILE": counted})
                shutil.rmtree(out)
                calls = int(open(counted).read())
                if calls == 0 and kind != "thread":  # runs of one thread start none
                    table.add(f"{run}, {kind}", False, "no call was counted")
                for manner in ("once", "lasting"):
                    row = f"{run}, {kind}, {manner}"
                    more = {"FAIL_LASTING": "1"} if manner == "lasting" else {}
                    for _ in range(min(arguments.samples, calls)):
                        at = chance.randint(1, calls)
                        command = stand.command(run, stand.output("tried"), arguments.ranks)
                        wrong = wrong_of(stand, command, {**base, **more, "FAIL_AT": str(at)}, expected)
                        table.add(row, not wrong, f"call {at}: {wrong}")
    sys.exit(table.end())


def run_file(stand, run):
    return os.path.basename(stand.kinds()[run][0])


def wrong_of(stand, command, environment, expected):
    """What is wrong of a run with a failure and of the same command without it; empty where nothing is."""
    out = stand.output("tried")
    shutil.rmtree(out, ignore_errors=True)
    code, said = stand.run(command, environment)
    if code not in (0, 2, 4) or "defect" in said or (code != 0 and not said.strip()):
        return f"exit code {code}: {said[-300:]!r}"
    if left := s.wait_until_gone(out):
        return f"processes {left} are left"
    code, said = stand.run(command)
    if code != 0:
        return f"the same command then ends with {code}: {said[-300:]!r}"
    return "" if s.bits_of(out) == expected else "other bits than those of an undisturbed run"


if __name__ == "__main__":
    main()
