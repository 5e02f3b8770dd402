#!/usr/bin/env python3
"""Shows that parity fails when something is missing: breaks one thing at a time in a copy of the sources and runs test_parity.

Usage: mutants.py [NAME...]     all of them without names; --list prints them

The copy and its build (for the CPU, each file compiled alone, so that one change costs one file) are in build/mutants.
Each mutant replaces texts that occur exactly once. It is found when, for each of its patterns of test names, a test that
matches fails; build/mutants/logs has what they say. Printed are how many tests of each suite failed, of which models and
with which kernels. Ends with 1 when a mutant survives, or when the sources as they are fail.
"""
import fnmatch
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

from mutants_list import MUTANTS

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "mutants"
TREE, BUILD = FOLDER / "tree", FOLDER / "build"
COPIED = ["CMakeLists.txt", "cmake", "include", "src", "tests"]
# On trained weights, and of the golden with experts; adapters, tokenizers and GPUs have no part in it.
FILTER = "*Parity.*_trained_*:*ModelParity.*/deepseek_v3_*-*_cuda"
TIMEOUT = 300  # seconds that the tests may run: a mutant may never end


def copy_sources():
    """Files that did not change keep their times, so that only what changed is compiled."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *COPIED], cwd=ROOT, check=True,
                            capture_output=True, text=True).stdout.split("\n")
    wanted = {name for name in listed if name and (ROOT / name).is_file()}
    for name in wanted:
        source, target = ROOT / name, TREE / name
        content = source.read_bytes()
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            shutil.copymode(source, target)
    for path in TREE.rglob("*"):
        if path.is_file() and str(path.relative_to(TREE)) not in wanted:
            path.unlink()


def run(command, log):
    environment = dict(os.environ, CCACHE_BASEDIR=str(FOLDER), CCACHE_NOHASHDIR="1")
    with open(FOLDER / log, "w") as out:
        return subprocess.run(command, cwd=FOLDER, env=environment, stdout=out, stderr=subprocess.STDOUT).returncode


def configure():
    (FOLDER / "logs").mkdir(parents=True, exist_ok=True)
    code = run(["cmake", "-S", TREE, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DTEMPER_UNITY=OFF",
                "-DTEMPER_WERROR=OFF", "-DCMAKE_CUDA_COMPILER="], "configure.log")
    if code != 0:
        sys.exit(f"cmake fails: {FOLDER / 'configure.log'}")


def build():
    jobs = os.environ.get("JOBS", str(os.cpu_count()))
    return run(["cmake", "--build", BUILD, "-j", jobs, "--target", "test_parity"], "build.log") == 0


def failing_tests(name):
    """Names of the tests that fail, one that ends the program among them; and how many ran. `name` is the log's."""
    environment = dict(os.environ)
    environment.pop("TEMPER_GOLDENS", None)
    done = subprocess.Popen([BUILD / "tests" / "test_parity", f"--gtest_filter={FILTER}"], cwd=FOLDER, env=environment,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace",
                            start_new_session=True)
    try:
        text, _ = done.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(done.pid, signal.SIGKILL)
        text, _ = done.communicate()
    (FOLDER / "logs" / f"{name}.log").write_text(text)
    begun = re.findall(r"^\[ RUN      \] (\S+)", text, re.M)
    passed = set(re.findall(r"^\[       OK \] (\S+)", text, re.M)) | set(re.findall(r"^\[  SKIPPED \] (\S+)", text, re.M))
    return [name for name in begun if name not in passed], len(begun)


def apply(mutant):
    """The files that it changes, with their contents before."""
    before = {}
    for file, old, new in mutant["edits"]:
        path = TREE / file
        text = path.read_text()
        before.setdefault(path, text)
        if text.count(old) != 1:
            restore(before)
            sys.exit(f"{mutant['name']}: {file} has {text.count(old)} times, not once:\n{old}")
        path.write_text(text.replace(old, new))
    return before


def restore(before):
    for path, text in before.items():
        path.write_text(text)


def summary(names):
    """How many tests of each suite, of which models and with which kernels."""
    parts = [re.fullmatch(r"Goldens/(\w+)Parity\.\w+/(\w+?)(?:_trained)?_(eager|fast)", name).groups() for name in names]
    if not parts:
        return "none"
    suites, models, kernels = ([part[i] for part in parts] for i in range(3))
    counts = ", ".join(f"{suite} {suites.count(suite)}" for suite in sorted(set(suites)))
    return f"{counts}; {', '.join(sorted(set(models)))}; {', '.join(sorted(set(kernels)))}"


def examine(mutant):
    """Whether it is found, and what to say of it."""
    before = apply(mutant)
    try:
        if not build():
            return False, f"does not compile: {FOLDER / 'build.log'}"
        failed, _ = failing_tests(mutant["name"])
    finally:
        restore(before)
    silent = [pattern for pattern in mutant["found_by"] if not fnmatch.filter(failed, pattern)]
    if silent:
        return False, f"not found by {', '.join(silent)} (failing: {summary(failed)})"
    return True, summary(failed)


def main():
    names = [mutant["name"] for mutant in MUTANTS]
    chosen = sys.argv[1:]
    if chosen == ["--list"]:
        return print("\n".join(names))
    unknown = [name for name in chosen if name not in names]
    if unknown:
        sys.exit(f"no mutant has the name {unknown[0]}; --list prints them")
    start = time.monotonic()
    copy_sources()
    configure()
    if not build():
        sys.exit(f"the sources as they are do not compile: {FOLDER / 'build.log'}")
    failed, count = failing_tests("as it is")
    if failed or count == 0:
        sys.exit(f"the sources as they are: {count} tests run, failing: {summary(failed)}")
    print(f"{count} tests pass on the sources as they are ({time.monotonic() - start:.0f} s)\n", flush=True)
    survivors = []
    for mutant in MUTANTS:
        if chosen and mutant["name"] not in chosen:
            continue
        begin = time.monotonic()
        found, told = examine(mutant)
        if not found:
            survivors.append(mutant["name"])
        print(f"{'found' if found else 'SURVIVES':9}{mutant['name']:52}{time.monotonic() - begin:4.0f} s  {told}", flush=True)
    print(f"\n{len(survivors)} survive ({time.monotonic() - start:.0f} s)")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
