#!/usr/bin/env python3
"""What a build and its tests spend their time on: the slowest objects, and the slowest tests and programs.

    tools/slowest.py [BUILD-FOLDER] [--count N]

Of build/release unless another folder is named. Seconds passed as ninja and ctest noted them, so that they mean something
after a clean build (CCACHE_DISABLE=1) and a run of all tests on a machine that did nothing else."""
import argparse
import collections
import pathlib
import re


def objects(folder):
    """Seconds of each output of the last time that ninja made it."""
    seconds = {}
    for line in (folder / ".ninja_log").read_text().splitlines()[1:]:
        begin, end, _, output, _ = line.split("\t")
        seconds[output] = (int(end) - int(begin)) / 1000
    return seconds


def kind(output):
    if output.endswith(".cu.o"):
        return "device code"
    if output.endswith(".gch"):
        return "precompiled headers"
    if not output.endswith(".o"):
        return "linking and the rest"
    target = re.search(r"CMakeFiles/(\w+)\.dir/", output)[1]
    for start, name in (("test_", "tests"), ("temper_test", "tests"), ("temper_bench", "benchmarks")):
        if target.startswith(start):
            return name
    return "the library"


def tests(folder):
    """Seconds of each test of the last run."""
    log = folder / "Testing/Temporary/LastTest.log"
    if not log.is_file():
        return {}
    found, program = {}, None
    for line in log.read_text(errors="replace").splitlines():
        if start := re.match(r"\d+/\d+ Testing: (\w+)", line):
            program = start[1]
        elif end := re.match(r"\[ +(?:OK|FAILED) +\] (\S+?)(?:, where .*)? \((\d+) ms\)", line):
            found[f"{program}.{end[1]}"] = int(end[2]) / 1000
    return found


def show(title, seconds, group, count):
    groups = collections.defaultdict(list)
    for name, time in seconds.items():
        groups[group(name)].append(time)
    print(f"{title}: {sum(seconds.values()):.0f} s")
    for name, times in sorted(groups.items(), key=lambda entry: -sum(entry[1])):
        print(f"{sum(times):8.1f} s  {len(times):5}  {name}")
    for name, time in sorted(seconds.items(), key=lambda entry: -entry[1])[:count]:
        print(f"{time:8.1f} s  {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=pathlib.Path("build/release"))
    parser.add_argument("--count", type=int, default=20)
    arguments = parser.parse_args()
    show("the build", objects(arguments.folder), kind, arguments.count)
    show("tests", tests(arguments.folder), lambda name: name.split(".")[0], arguments.count)


if __name__ == "__main__":
    main()
