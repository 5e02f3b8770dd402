#!/usr/bin/env python3
"""Names as CONTRIBUTING.md has them, by clang-tidy (.clang-tidy): CamelCase types, snake_case functions and variables,
member_, kConstant.

    tools/check_names.py [--build build/release] [--since REVISION | --all] [--jobs N]

clang-tidy reads a file with all that it includes, seconds each. So only files that differ from --since are read: by
default from where this branch left origin/main or, without one, main; on main itself from the commit before the last. Of a
changed header one file that includes it is read. --all reads every file: five minutes on two free cores. Neighbouring files
are read together, as the build compiles them. What passed is remembered in BUILD/names and not read again until it, a
header of it or .clang-tidy changes. Files of CUDA are not read: clang-tidy of Debian 12 does not know this CUDA."""
import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
# clang refuses some code that GCC compiles; names are found nevertheless, unless a header is not.
PROBLEM = re.compile(r"^(/\S+?):(\d+):\d+: (?:error|warning): (.*?) \[readability-identifier-naming[\w,.-]*\]$", re.MULTILINE)
MISSING = re.compile(r"'[^']+' file not found")


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)


@functools.lru_cache(None)
def content(path):
    return path.read_text(errors="replace") if path.is_file() else None


@functools.lru_cache(None)
def included(path):
    """Files of this repository and of the build that `path` includes, directly."""
    found = []
    for name in INCLUDE.findall(content(path) or ""):
        places = [pathlib.Path(name)] if name[0] == "/" else [path.parent / name, ROOT / "src" / name, ROOT / name]
        found += [place.resolve() for place in places if content(place) is not None][:1]
    return found


@functools.lru_cache(None)
def closure(path):
    """`path` and all that it includes."""
    found, left = {path}, [path]
    while left:
        for other in included(left.pop()):
            if other not in found:
                found.add(other)
                left.append(other)
    return frozenset(found)


class Unit:
    """What the compiler is given once: a file, or several neighbours."""

    def __init__(self, entry):
        self.path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        self.files = closure(self.path)
        flags, self.header = [], None
        words = iter(shlex.split(entry["command"])[1:])
        for word in words:
            if word == "-include":  # the precompiled header, which is GCC's; clang reads its text
                self.header = next(words)
            elif word == "-isystem":
                flags += [word, next(words)]
            elif word[:2] in ("-I", "-D") or word.startswith(("-std", "-isystem")):  # -isystem with its folder behind it
                flags.append(word)
        self.flags = flags

    def key(self):
        texts = [content(path) for path in sorted(self.files)] + [" ".join(self.flags), content(ROOT / ".clang-tidy")]
        return hashlib.sha256("\0".join(texts).encode(errors="replace")).hexdigest()

    def problems(self, folder):
        flags = self.flags
        if self.header and content(pathlib.Path(self.header)) is not None:
            text = folder / f"{hashlib.sha256(self.header.encode()).hexdigest()[:12]}.h"
            text.write_text(content(pathlib.Path(self.header)))
            flags = flags + ["-include", str(text)]
        done = subprocess.run(["clang-tidy", "--quiet", str(self.path), "--", *flags], cwd=ROOT, capture_output=True,
                              text=True)
        if missing := MISSING.search(done.stdout):
            return {(str(self.path), 1, missing[0])}
        return {(name, int(line), message) for name, line, message in PROBLEM.findall(done.stdout)}


def changed_files(since):
    if since is None:
        for name in ("origin/main", "main"):
            base = git("merge-base", "HEAD", name)
            if base.returncode == 0:
                since = base.stdout.strip()
                if since == git("rev-parse", "HEAD").stdout.strip():  # on main itself: its last commit counts
                    since = "HEAD~1"
                break
        else:
            sys.exit("check_names: neither origin/main nor main is a branch here; say --since REVISION or --all")
    names = git("diff", "--name-only", since, "--")
    if names.returncode != 0:
        sys.exit(f"check_names: {names.stderr.strip()}")
    names = names.stdout + git("ls-files", "--others", "--exclude-standard").stdout
    return {(ROOT / name).resolve() for name in names.split() if name.endswith((".cpp", ".h"))}


def chosen(units, changed):
    """Units that read every changed file, few of them."""
    left = {path for path in changed if any(path in unit.files for unit in units)}
    found = []
    while left:
        unit = max(units, key=lambda unit: (len(left & unit.files), -len(unit.files)))
        found.append(unit)
        left -= unit.files
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--since", metavar="REVISION")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()
    commands = args.build / "compile_commands.json"
    if not commands.is_file():
        sys.exit(f"check_names: {commands} is not there; run `make build` first")
    units = [Unit(entry) for entry in json.loads(commands.read_text()) if entry["file"].endswith((".cpp", ".cxx"))]
    wanted = units if args.all else chosen(units, changed_files(args.since))
    folder = args.build / "names"
    folder.mkdir(exist_ok=True)
    keys = {unit: unit.key() for unit in wanted}
    unknown = [unit for unit in wanted if not (folder / keys[unit]).exists()]
    problems = set()
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for unit, found in zip(unknown, pool.map(lambda unit: unit.problems(folder), unknown)):
            problems |= found
            if not found:
                (folder / keys[unit]).touch()
    for name, line, message in sorted(problems):
        print(f"{os.path.relpath(name, ROOT)}:{line}: {message}")
    if not problems:
        print(f"names: ok ({len(wanted)} of {len(units)} compiled files, {len(unknown)} of them read now)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
