#!/usr/bin/env python3
"""ctest ... | tools/tell_skipped.py BUILD-FOLDER

Passes the output of ctest on, and before its summary says how many tests ran, how many of them were skipped and why: an entry
of ctest is a suite, of which some tests may have been skipped."""
import collections
import pathlib
import re
import sys

SUMMARY = re.compile(r"^\d+% tests passed")
RAN = re.compile(r"^\[==========\] (\d+) tests? from .* ran\.", re.M)
# The reason stands between the place and the line that says so.
SKIPPED = re.compile(r"^\S+:\d+: Skipped\n((?:(?!\S+:\d+: Skipped$).*\n)*?)\[  SKIPPED \] (\S+?)(?:,| \()", re.M)


def lines_of(folder):
    """The lines about one run. Its log may still have ctest's temporary name."""
    logs = [folder / "Testing/Temporary" / name for name in ("LastTest.log.tmp", "LastTest.log")]
    text = next((log.read_text(errors="replace") for log in logs if log.is_file()), "")
    reasons = collections.defaultdict(list)
    for reason, name in SKIPPED.findall(text):
        reasons[reason.strip()].append(name)
    count = sum(map(len, reasons.values()))
    yield f"{sum(map(int, RAN.findall(text)))} tests, {count} of them skipped{':' if count else ''}"
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        suites = collections.Counter(name.split(".")[0] for name in names)
        where = ", ".join(f"{suite} ({number})" for suite, number in sorted(suites.items()))
        yield f"  {len(names)}: {reason}\n      {where}"


def main():
    for line in sys.stdin:
        if SUMMARY.match(line):
            print(*lines_of(pathlib.Path(sys.argv[1])), sep="\n", end="\n\n")
        print(line, end="", flush=True)


if __name__ == "__main__":
    main()
