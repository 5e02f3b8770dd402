#!/usr/bin/env python3
"""How many branches of rooms their tests take: of a build with preset `coverage` whose tests have run.

  cmake --preset coverage && cmake --build build/coverage --target test_config test_exchange
  build/coverage/test_config && build/coverage/test_exchange
  tools/branch_coverage.py build/coverage config exchange [--least 95] [--lines]

Branches that only an exception takes, which the compiler adds behind every call, do not count, nor do those of the code that
it adds to take apart what was being built then. Templates and files that several
objects contain count once, with what any of them took. Prints a line for each room and for the files with the most
branches that are not taken, with --lines also their lines; the exit code is 1 if a room has less than --least percent.
"""

import argparse
import collections
import concurrent.futures
import functools
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


# What gcov's --all-blocks writes: of a file, of a line, of a block of it (by $$$$$ if only an exception leads there and none
# did), and of the branches that its last block ends with.
SOURCE = re.compile(r" *-: *0:Source:(.*)")
LINE = re.compile(r" *[^:]+: *([1-9][0-9]*):")
BLOCK = re.compile(r" *([^:]+): *[0-9]+-block")
BRANCH = re.compile(r"branch +[0-9]+ (?:taken|never executed)")


def gcov(build, data, *options):
    said = subprocess.run(["gcov", "--branch-probabilities", "--stdout", *options, data], capture_output=True, text=True,
                          errors="replace", cwd=build)
    if said.returncode != 0:
        raise RuntimeError(f"gcov ended with {said.returncode}:\n{said.stderr}")
    return said.stdout.splitlines()


def ours(build, name):
    """The path in the repository; None for other files."""
    path = os.path.relpath(os.path.normpath(os.path.join(build, name)), ROOT)
    return path if path.startswith("src/") else None


def behind_exceptions(build, data):
    """Of each file and line: whether each of its branches is in code that only an exception reaches, and none did."""
    found, name, lines, exceptional = collections.defaultdict(dict), None, {}, False
    for text in gcov(build, data, "--all-blocks"):
        if BRANCH.match(text):
            lines.append(exceptional)
        elif block := BLOCK.match(text):
            exceptional = block[1] == "$$$$$"
        elif source := SOURCE.match(text):
            name, lines = ours(build, source[1]), []
        elif line := LINE.match(text):
            lines, exceptional = [], False
            found[name][int(line[1])] = lines
    return found


def read(build, data):
    """Of each file and line: counts of its branches in one object; None for what does not count."""
    left_out, found = behind_exceptions(build, data), collections.defaultdict(dict)
    for text in gcov(build, data, "--json-format"):
        for file in json.loads(text)["files"]:
            if not (name := ours(build, file["file"])):
                continue
            for each in file["lines"]:
                branches, marks = each["branches"], left_out[name].get(each["line_number"], [])
                if len(marks) != len(branches):  # several instances of a template: the text has each of them
                    marks = [False] * len(branches)
                add(found[name], each["line_number"],
                    [None if branch["throw"] or mark else branch["count"] for branch, mark in zip(branches, marks)])
    return found


def add(lines, number, counts):
    """Instances of a template may have other branches in a line: each number of them is one of its own."""
    if not counts:
        return
    key = number, len(counts)
    before = lines.get(key, [None] * len(counts))
    lines[key] = [a if b is None else (a or 0) + b for a, b in zip(before, counts)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("rooms", nargs="+")
    parser.add_argument("--least", type=float, default=0, help="percent of each room")
    parser.add_argument("--files", type=int, default=20, help="number of files listed")
    parser.add_argument("--lines", action="store_true", help="lists the lines, too")
    asked = parser.parse_args()
    build = pathlib.Path(asked.build).resolve()
    data = [str(path) for path in build.rglob("*.gcda")]
    if not data:
        sys.exit(f"{asked.build} has no counts (*.gcda): build with preset coverage, and run tests")
    try:
        merged = read_all(build, data)
    except RuntimeError as error:
        sys.exit(str(error))
    files = {name: lines for name, lines in merged.items()
             if name.split("/")[1] in asked.rooms and "_test" not in os.path.basename(name)}
    short = tell(files, asked)
    sys.exit(1 if short else 0)


def read_all(build, data):
    merged = collections.defaultdict(dict)
    with concurrent.futures.ProcessPoolExecutor() as workers:
        for found in workers.map(functools.partial(read, build), data, chunksize=8):
            for name, lines in found.items():
                for (number, _), counts in lines.items():
                    add(merged[name], number, counts)
    return merged


def tell(files, asked):
    """The rooms that have less than is asked."""
    short = []
    for room in asked.rooms:
        counts = [count for name, lines in files.items() if name.split("/")[1] == room for each in lines.values() for count in each
                  if count is not None]
        taken = sum(count > 0 for count in counts)
        percent = 100 * taken / max(1, len(counts))
        if percent < asked.least:
            short.append(room)
        print(f"{room:<16} {taken:>6} of {len(counts):>6} branches {percent:6.1f} %")
    left = {name: sorted(number for (number, _), counts in lines.items() for count in counts if count == 0)
            for name, lines in files.items()}
    for name, lines in sorted(left.items(), key=lambda item: -len(item[1]))[:asked.files]:
        all_of = sum(count is not None for counts in files[name].values() for count in counts)
        where = f": {', '.join(map(str, dict.fromkeys(lines)))}" if asked.lines else ""
        print(f"  {len(lines):>5} of {all_of:>5} not taken  {name}{where}")
    return short


if __name__ == "__main__":
    main()
