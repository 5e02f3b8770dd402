#!/usr/bin/env python3
"""Cuts the power of runs: all that a run writes is recorded and replayed up to random places; of what was not synced by then contents are
lost, cut or zero, and names of files missing or old. The same command, which resumes from what is left, has to end with the bits of an
undisturbed run, or with an error that names the damaged file.

  tools/torture/powercuts.py TEMPER [--cuts 200] [--runs sft,asynchronous,adapters,preference,grpo] [--ranks 1] [--seed 1] [--jobs 1]
"""

import filecmp
import os

import disk_log
import processes
import stand as s
import tables


def main():
    asked = tables.arguments(__doc__, ("--cuts", 200, "of each run"), ("--ranks", 1, "number of ranks"),
                             ("--runs", "sft,asynchronous,adapters,preference,grpo", "what is trained"))
    tasks = [(run, asked.ranks, cut) for cut in range(-1, asked.cuts) for run in tables.words(asked.runs)]
    tables.work("powercuts: the bits of an undisturbed run, or an error that names the file, of all", asked, tasks, torture)


def torture(stand, add, chance, task):
    run, ranks, cut = task
    row = f"{run}, {ranks} ranks"
    expected, _ = stand.undisturbed(run, ranks)
    log, root = stand.once(f"log.{run}.{ranks}", lambda: record(stand, run, ranks))
    entries, data = disk_log.entries_of(log)
    disk = disk_log.Disk(root, data)
    at = len(entries) if cut < 0 else chance.randint(1, len(entries))
    for entry in entries[:at]:
        disk.apply(entry)
    out = stand.output("cut")
    if cut < 0:  # what was recorded is all that was written
        disk.write(out)
        different = difference_of(root, out)
        return add(f"{row}: the log is complete", not different, different)
    disk.write(out, chance)
    code, said = processes.run(stand.command(run, out, ranks))
    if code == 0:
        wrong = s.difference_of(out, expected)
    else:
        wrong = "" if code in (2, 4) and out in said else "an error has to name a file"
    how = "resumed" if code == 0 else "refused"
    add(f"{row}, {how}", not wrong, f"after {at} of {len(entries)} calls: exit code {code}: {said[-400:]!r}; {wrong}")


def record(stand, run, ranks):
    """A log and the folder that it is of."""
    log, root = os.path.join(stand.folder, f"log.{run}.{ranks}"), os.path.join(stand.folder, f"recorded.{run}.{ranks}")
    environment = {"LD_PRELOAD": stand.library("record.c"), "RECORD_ROOT": root, "RECORD_TO": log}
    code, said = processes.run(stand.command(run, root, ranks), environment)
    if code != 0:
        raise RuntimeError(f"a recorded run ended with {code}:\n{said}")
    return log, root


def difference_of(one, other):
    """Names of what differs between two folders; empty where nothing does."""
    compared = filecmp.dircmp(one, other, ignore=[])
    different = compared.left_only + compared.right_only + compared.common_funny
    _, unlike, failed = filecmp.cmpfiles(one, other, compared.common_files, shallow=False)
    for name in compared.common_dirs:
        if inner := difference_of(os.path.join(one, name), os.path.join(other, name)):
            different.append(f"{name}/ {inner}")
    return " ".join(different + unlike + failed)


if __name__ == "__main__":
    main()
