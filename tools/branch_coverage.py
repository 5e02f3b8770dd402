#!/usr/bin/env python3
"""How many branches of rooms their tests take: of a build with preset `coverage` whose tests have run.

  cmake --preset coverage && cmake --build build/coverage --target test_config test_exchange
  build/coverage/test_config && build/coverage/test_exchange
  tools/branch_coverage.py build/coverage config exchange [--least 95] [--lines]

Branches that only an exception takes, which the compiler adds behind every call, do not count. Templates and files that several
objects contain count once, with what any of them took. Prints a line for each room and for the files with the most
branches that are not taken, with --lines also their lines; the exit code is 1 if a room has less than --least percent.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def read(batch):
    """Of each file and line: counts of its branches, added up over the objects."""
    found = collections.defaultdict(dict)
    said = subprocess.run(["gcov", "--json-format", "--branch-probabilities", "--stdout", *batch], capture_output=True, text=True)
    if said.returncode != 0:
        raise RuntimeError(f"gcov ended with {said.returncode}:\n{said.stderr}")
    for line in said.stdout.splitlines():
        data = json.loads(line)
        for file in data["files"]:
            name = os.path.relpath(os.path.join(data["current_working_directory"], file["file"]), ROOT)
            if not name.startswith("src/"):
                continue
            for each in file["lines"]:
                add(found[name], each["line_number"], [branch["count"] for branch in each["branches"] if not branch["throw"]])
    return found


def add(lines, number, counts):
    """Instances of a template may have other branches in a line: each number of them is one of its own."""
    if not counts:
        return
    key = number, len(counts)
    before = lines.get(key, [0] * len(counts))
    lines[key] = [a + b for a, b in zip(before, counts)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("rooms", nargs="+")
    parser.add_argument("--least", type=float, default=0, help="percent of each room")
    parser.add_argument("--files", type=int, default=20, help="so many are listed")
    parser.add_argument("--lines", action="store_true", help="lists the lines, too")
    asked = parser.parse_args()
    data = [str(path) for path in pathlib.Path(asked.build).resolve().rglob("*.gcda")]
    if not data:
        sys.exit(f"{asked.build} has no counts (*.gcda): build with preset coverage, and run tests")
    try:
        merged = read_all(data)
    except RuntimeError as error:
        sys.exit(str(error))
    files = {name: lines for name, lines in merged.items()
             if name.split("/")[1] in asked.rooms and "_test" not in os.path.basename(name)}
    short = tell(files, asked)
    sys.exit(1 if short else 0)


def read_all(data):
    merged = collections.defaultdict(dict)
    with concurrent.futures.ProcessPoolExecutor() as workers:
        for found in workers.map(read, [data[at:at + 16] for at in range(0, len(data), 16)]):
            for name, lines in found.items():
                for (number, _), counts in lines.items():
                    add(merged[name], number, counts)
    return merged


def tell(files, asked):
    """The rooms that have less than is asked."""
    short = []
    for room in asked.rooms:
        counts = [count for name, lines in files.items() if name.split("/")[1] == room for each in lines.values() for count in each]
        taken = sum(count > 0 for count in counts)
        percent = 100 * taken / max(1, len(counts))
        if percent < asked.least:
            short.append(room)
        print(f"{room:<16} {taken:>6} of {len(counts):>6} branches {percent:6.1f} %")
    left = {name: sorted(number for (number, _), counts in lines.items() for count in counts if count == 0)
            for name, lines in files.items()}
    for name, lines in sorted(left.items(), key=lambda item: -len(item[1]))[:asked.files]:
        all_of = sum(len(counts) for counts in files[name].values())
        where = f": {', '.join(map(str, dict.fromkeys(lines)))}" if asked.lines else ""
        print(f"  {len(lines):>5} of {all_of:>5} not taken  {name}{where}")
    return short


if __name__ == "__main__":
    main()
