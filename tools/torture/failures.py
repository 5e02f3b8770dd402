#!/usr/bin/env python3
"""Lets one call fail, or all from one on, at many places of runs: an allocation, a thread, a descriptor, a write. Each run has to
end with exit code 4 and a sentence (2 where a file is the reason; 0 where nothing needed the call), never by a signal, and the same
command without the failure has to end with the bits of a run that nothing disturbed. Of several ranks the calls of one fail, of each
in turn. Runs that never make the call do not count. With --every all calls are tried, or every N-th, instead of samples; with
--stacks N the first call from each stack of N callers: every place that makes such a call, by every way that leads there.

  tools/torture/failures.py TEMPER [--kinds memory,thread,descriptor,disk] [--runs sft,grpo] [--samples 40] [--seed 1] [--ranks 1]
  tools/torture/failures.py TEMPER --kinds disk --every 1 --errors EIO,ENOSPC [--ranks 2]
  tools/torture/failures.py TEMPER --kinds memory --stacks 12 --manners once
"""

import errno
import os

import calls
import processes
import stand as s
import tables


def main():
    asked = tables.arguments(
        __doc__, ("--kinds", "memory,thread,descriptor,disk", "what fails; also message"),
        ("--runs", "sft,grpo,asynchronous", "what is trained"), ("--samples", 40, "of each kind, run and manner"),
        ("--every", 0, "N: every N-th call instead of samples"),
        ("--stacks", 0, "N: the first calls from stacks of N callers instead of samples"), ("--ranks", 1, "number of ranks"),
        ("--manners", "once,lasting", "of failing"), ("--errors", "", "what calls say, as EIO; what is usual for the kind"))
    errors = tables.words(asked.errors) or [""]
    cases = [(run, kind, rank, asked.ranks, manner, error) for run in tables.words(asked.runs) for kind in tables.words(asked.kinds)
             for rank in range(asked.ranks) for manner in tables.words(asked.manners) for error in errors]

    def tasks(stand):
        for case in cases:
            count = calls_of(stand, calls.counted, *case[:4])
            places = range(1, count + 1) if asked.every else [0] * min(asked.samples, count)
            if asked.stacks:
                places = calls_of(stand, calls.first_from_each_stack, *case[:4], asked.stacks)
            places = places[::max(1, asked.every)]
            yield from ((case, count, at) for at in places)
            if count == 0 and case[1] != "thread":  # runs of one thread start none
                yield case, count, 0

    tables.work("failures: right of all", asked, tasks, torture)


def environment_of(stand, run, kind, rank, ranks, **more):
    one = {"rank": rank} if ranks > 1 else {}
    return calls.environment_of(stand, kind, behind=os.path.basename(stand.kinds[run][0]), **one, **more)


def calls_of(stand, count, run, kind, rank, ranks, *more):
    command = stand.command(run, stand.output("counted"), ranks)
    return count(stand, f"{run}.{kind}.{rank}.{ranks}", command, environment_of(stand, run, kind, rank, ranks), *more)


def torture(stand, add, chance, task):
    (run, kind, rank, ranks, manner, error), count, at = task
    row = ", ".join(filter(None, (run, kind, error, manner))) + (f", rank {rank} of {ranks}" if ranks > 1 else "")
    if count == 0:
        return add(row, False, "no call was counted")
    more, mark = {"at": at or chance.randint(1, count)}, calls.Mark(stand)
    if manner == "lasting":
        more["lasting"] = 1
    if error:
        more["errno"] = getattr(errno, error)
    environment = environment_of(stand, run, kind, rank, ranks, mark=mark.path, **more)
    out = stand.output("tried")
    wrong = wrong_of(stand.command(run, out, ranks), out, environment, stand.undisturbed(run, ranks)[0])
    if mark.is_there() or wrong:
        return add(row, not wrong, f"call {more['at']} of {count}: {wrong}")
    add(f"{row}: not reached", tables.NOT_TRIED)


def wrong_of(command, out, environment, expected):
    """What is wrong of a run with a failure and of the same command without it; empty where nothing is."""
    code, said = processes.run(command, environment)
    if left := processes.left_after(out):
        return f"processes {left} are left"
    if code not in (0, 2, 4) or "defect" in said or (code != 0 and not said.strip()):
        return f"exit code {code}: {said[-300:]!r}"
    return s.wrong_of_resuming(command, out, expected)


if __name__ == "__main__":
    main()
