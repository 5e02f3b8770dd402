#!/usr/bin/env python3
"""Shows that tests fail when something is missing: breaks one thing at a time in a copy of the sources and runs the tests
that have to notice.

Usage: mutants.py [NAME...]     names of mutants, or of test programs (test_rollout) for all of theirs; all of them without
                                names; --list prints them, --check only looks whether what they replace is there

The mutants of the model and its step are those of tools/mutants_list.py, which test_parity has to find; those of other rooms
are in tools/mutants_of_rooms.py, each with its test program. The copy and its build (for the CPU, each file compiled alone, so
that one change costs one file) are in build/mutants. Each mutant replaces texts that occur exactly once. It is found when,
for each of its patterns of test names, a test that matches fails; build/mutants/logs has what they say. Printed are how many
tests of each suite failed, and of parity of which models and with which kernels. Ends with 1 when a mutant survives, or when
the sources as they are fail.
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

import mutants_list
import mutants_of_rooms

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "mutants"
TREE, BUILD = FOLDER / "tree", FOLDER / "build"
COPIED = ["CMakeLists.txt", "cmake", "examples", "include", "src", "tests"]
PARITY = "test_parity"
# On trained weights, of the golden with experts, and of pictures; adapters, tokenizers and GPUs have no part in it.
PARITY_FILTER = "*Parity.*_trained_*:*ModelParity.*/deepseek_v3_*:PictureParity.*-*_cuda"
MUTANTS = [dict(mutant, program=PARITY) for mutant in mutants_list.MUTANTS] + mutants_of_rooms.MUTANTS
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


def build(programs):
    jobs = os.environ.get("JOBS", str(os.cpu_count()))
    return run(["cmake", "--build", BUILD, "-j", jobs, "--target", *programs], "build.log") == 0


def filter_of(mutants):
    """Of mutants of one program: the tests that have to find them."""
    if mutants[0]["program"] == PARITY:
        return PARITY_FILTER
    return ":".join(sorted({pattern for mutant in mutants for pattern in mutant["found_by"]}))


def failing_tests(program, tests, name):
    """Names of the tests that fail, one that ends the program among them; and how many ran. `name` is the log's."""
    environment = dict(os.environ)
    environment.pop("TEMPER_GOLDENS", None)
    path = next(path for path in (BUILD / program, BUILD / "tests" / program) if path.is_file())
    done = subprocess.Popen([path, f"--gtest_filter={tests}"], cwd=FOLDER, env=environment, stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, errors="replace", start_new_session=True)
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
    """How many tests of each suite, and of parity of which models and with which kernels."""
    parts = [re.fullmatch(r"Goldens/(\w+)Parity\.\w+/(\w+?)(?:_trained)?_(eager|fast)", name) for name in names]
    if not names:
        return "none"
    suites = [part.group(1) if part else name.split(".")[0] for name, part in zip(names, parts)]
    counts = ", ".join(f"{suite} {suites.count(suite)}" for suite in sorted(set(suites)))
    if not all(parts):
        return counts
    models, kernels = (sorted({part.group(i) for part in parts}) for i in (2, 3))
    return f"{counts}; {', '.join(models)}; {', '.join(kernels)}"


def examine(mutant):
    """Whether it is found, and what to say of it."""
    before = apply(mutant)
    try:
        if not build([mutant["program"]]):
            return False, f"does not compile: {FOLDER / 'build.log'}"
        failed, _ = failing_tests(mutant["program"], filter_of([mutant]), mutant["name"])
    finally:
        restore(before)
    silent = [pattern for pattern in mutant["found_by"] if not fnmatch.filter(failed, pattern)]
    if silent:
        return False, f"not found by {', '.join(silent)} (failing: {summary(failed)})"
    return True, summary(failed)


def chosen_mutants(names):
    unknown = [name for name in names if not any(name in (mutant["name"], mutant["program"]) for mutant in MUTANTS)]
    if unknown:
        sys.exit(f"no mutant and no test program has the name {unknown[0]}; --list prints them")
    return [mutant for mutant in MUTANTS if not names or mutant["name"] in names or mutant["program"] in names]


def check_unbroken(mutants):
    """The tests pass on the sources as they are."""
    start = time.monotonic()
    programs = {mutant["program"]: [] for mutant in mutants}
    for mutant in mutants:
        programs[mutant["program"]].append(mutant)
    if not build(programs):
        sys.exit(f"the sources as they are do not compile: {FOLDER / 'build.log'}")
    for program, own in programs.items():
        failed, count = failing_tests(program, filter_of(own), f"{program} as it is")
        if failed or count == 0:
            sys.exit(f"the sources as they are: {program} runs {count} tests, failing: {', '.join(failed)}")
        print(f"{program}: {count} tests pass on the sources as they are ({time.monotonic() - start:.0f} s)", flush=True)


def check_texts():
    """Code moves on, and mutants with it."""
    for mutant in MUTANTS:
        for file, old, _ in mutant["edits"]:
            path = ROOT / file
            count = path.read_text().count(old) if path.is_file() else 0
            if count != 1:
                sys.exit(f"tools/mutants.py, '{mutant['name']}': {file} has {count} times, not once:\n{old}")


def main():
    if sys.argv[1:] == ["--check"]:
        return check_texts()
    if sys.argv[1:] == ["--list"]:
        return print("\n".join(f"{mutant['program']:18}{mutant['name']}" for mutant in MUTANTS))
    mutants = chosen_mutants(sys.argv[1:])
    start = time.monotonic()
    copy_sources()
    configure()
    check_unbroken(mutants)
    survivors = 0
    for mutant in mutants:
        begin = time.monotonic()
        found, report = examine(mutant)
        survivors += not found
        print(f"{'found' if found else 'SURVIVES':9}{mutant['name']:64}{time.monotonic() - begin:4.0f} s  {report}", flush=True)
    print(f"\n{survivors} survive ({time.monotonic() - start:.0f} s)")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
