#!/usr/bin/env python3
"""Do two builds compute the same, bit for bit? For a change that must not change numbers: build before and after it.

    tools/compare_builds.py BUILD_A BUILD_B [--only NAME]... [--list] [--device D] [--threads N] [--jobs N] [--keep FOLDER]

A build is a folder with `temper` and `tests/test_parity`. Both run every example, the parity cases, 20 steps of each
recipe and way to train, and generation, on the same small models with the same threads (tools/compare_builds_cases.py).
Compared are all digits of metrics.jsonl, rollouts.jsonl and summary.json except times and memory, all bytes of safetensors files
(weights, adapters, states, the reference's log-probabilities), and what is printed to standard output (generated text).
One line a case; the exit code is 1 when a case differs or fails. A minute or two on two free cores.

--only takes names and patterns (`sft/*`, `*lora*`). With --device cuda the builds run one after the other and share the
measured algorithms of matrix multiplications; examples that name their own device run where they say."""
import argparse
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

from compare_builds_cases import Inputs, all_cases

VARYING = re.compile(r"seconds|per_second|peak|mfu|memory|version|commit|started|finished")  # fields that differ from run to run
TIMES = re.compile(r"\(\d+ ms( total)?\)")
SHORTEST = 1e-45


class Build:
    def __init__(self, folder):
        self.programs = {"temper": folder / "temper", "test_parity": folder / "tests" / "test_parity"}
        for path in self.programs.values():
            if not path.is_file():
                sys.exit(f"compare_builds: {path} is not there; expected a build folder, as `make build` makes it")


class Runner:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache"), "OMP_WAIT_POLICY": "passive",
                                         "OMP_NUM_THREADS": str(args.threads)}

    def run(self, build, side, case):
        """Runs the case's commands in a folder of its own, which is returned, and what went wrong, or None."""
        place = self.folder / side / case.name.replace("/", "-")
        place.mkdir(parents=True)
        for i, command in enumerate(case.commands):
            with open(place / f"out-{i}.txt", "w") as out, open(place / f"err-{i}.txt", "w") as err:
                status = subprocess.run(self.completed(command, build, place, i, case), cwd=place, stdout=out, stderr=err,
                                        stdin=subprocess.DEVNULL, env=self.environment).returncode
            if status != 0:
                last = (place / f"err-{i}.txt").read_text().strip().splitlines() or ["no message"]
                return place, f"exit code {status} of command {i + 1}: {last[-1]}"
        return place, None

    def completed(self, command, build, place, number, case):
        command = list(command)
        for i, part in enumerate(command):
            if isinstance(part, dict):
                path = place / f"config-{number}.yaml"
                path.write_text(json.dumps(part, indent=1))
                command[i] = path.name
        given = [str(part) for part in command]
        if given[0] == "temper" and given[1] in ("train", "generate") and not case.on_cpu:
            given += [] if "--device" in given else ["--device", self.args.device]
        if given[:2] == ["temper", "train"]:
            given += [] if "--train.threads" in given else ["--train.threads", str(self.args.threads)]
        given[0] = str(build.programs.get(given[0], given[0]))
        return given

    def compare(self, builds, case):
        """What is different, or None."""
        sides = list(zip(builds, "AB"))
        if self.args.device == "cpu":
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                found = list(pool.map(lambda side: self.run(*side, case), sides))
        else:
            found = [self.run(*side, case) for side in sides]
        failures = [f"failed in {side}: {failure}" for side, (_, failure) in zip("AB", found) if failure]
        return "; ".join(failures) or difference_of_folders(*(place for place, _ in found))


def files_of(folder):
    """What is compared, by name below the folder."""
    names = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    return [name for name in names if name.suffix == ".safetensors" or name.name in ("metrics.jsonl", "rollouts.jsonl", "summary.json")
            or name.name.startswith("out-")]


def difference_of_folders(a, b):
    of_a, of_b = files_of(a), files_of(b)
    if of_a != of_b:
        return "files: only one build wrote " + ", ".join(map(str, sorted(set(of_a) ^ set(of_b))))
    if all(name.name.startswith("out-") for name in of_a) and not any((a / name).stat().st_size for name in of_a):
        return "neither build wrote anything"
    found = []
    for name in sorted(of_a, key=lambda name: name.suffix == ".safetensors"):  # numbers first, then bytes
        if difference := difference_of_files(a / name, b / name):
            found.append(f"{name}: {difference}")
    return "\n    ".join(found[:4] + ([f"and {len(found) - 4} files more"] if len(found) > 4 else [])) or None


def difference_of_files(a, b):
    if a.suffix == ".safetensors":
        return None if a.read_bytes() == b.read_bytes() else difference_of_tensors(a.read_bytes(), b.read_bytes())
    if a.suffix == ".jsonl":
        return difference_of_lines(*([json.loads(line) for line in path.read_text().splitlines()] for path in (a, b)))
    if a.suffix == ".json":
        return difference_of_lines(*([json.loads(path.read_text())] for path in (a, b)))
    lines = [TIMES.sub("", path.read_text(errors="surrogateescape")).splitlines() for path in (a, b)]
    if lines[0] == lines[1]:
        return None
    return next((f"line {i + 1} is {x!r} and {y!r}" for i, (x, y) in enumerate(zip(*lines)) if x != y),
                f"{len(lines[0])} and {len(lines[1])} lines")


def difference_of_lines(a, b):
    for i, (x, y) in enumerate(zip(a, b)):
        for key in {**x, **y}:
            if not VARYING.search(key) and x.get(key) != y.get(key):
                where = f"step {x['step']}" if "step" in x else f"line {i + 1}"
                return f"{where}: {key} is {x.get(key)} and {y.get(key)}"
    return None if len(a) == len(b) else f"{len(a)} and {len(b)} lines"


def tensors_of(content):
    start = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:start])
    metadata = header.pop("__metadata__", None)
    return metadata, {name: (tensor["dtype"], tensor["shape"],
                             content[start + tensor["data_offsets"][0]:start + tensor["data_offsets"][1]])
                      for name, tensor in header.items()}


def floats(dtype, content):
    if dtype == "BF16":
        values = struct.unpack(f"<{len(content) // 2}H", content)
        return struct.unpack(f"<{len(values)}f", struct.pack(f"<{len(values)}I", *(value << 16 for value in values)))
    return struct.unpack(f"<{len(content) // 4}f", content) if dtype == "F32" else tuple(content)


def difference_of_tensors(a, b):
    (metadata_a, of_a), (metadata_b, of_b) = tensors_of(a), tensors_of(b)
    if of_a.keys() != of_b.keys():
        return "only one has " + ", ".join(sorted(of_a.keys() ^ of_b.keys())[:4])
    different = [name for name in of_a if of_a[name] != of_b[name]]
    if not different:
        return "other metadata" if metadata_a != metadata_b else "the same tensors in another order"
    name = different[0]
    (dtype, shape, x), (other_dtype, other_shape, y) = of_a[name], of_b[name]
    if (dtype, shape) != (other_dtype, other_shape):
        return f"{name} is {dtype} {shape} and {other_dtype} {other_shape}"
    x, y = floats(dtype, x), floats(dtype, y)
    largest = max(abs(p - q) for p, q in zip(x, y)) / max(SHORTEST, *map(abs, x))
    return (f"{len(different)} of {len(of_a)} tensors differ, first {name} in {sum(p != q for p, q in zip(x, y))} of "
            f"{len(x)} elements, by {largest:.2g} of its largest")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", type=pathlib.Path, nargs=2, metavar="BUILD")
    parser.add_argument("--only", action="append", help="cases with this name, or that match this pattern")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2), help="cases at a time")
    parser.add_argument("--keep", type=pathlib.Path, help="a new folder that keeps what the cases wrote")
    args = parser.parse_args()
    builds = [Build(folder.resolve()) for folder in args.builds]
    if args.keep:
        args.keep.mkdir(parents=True)
    folder = args.keep.resolve() if args.keep else pathlib.Path(tempfile.mkdtemp(prefix="compare_builds."))
    try:
        return compare_all(args, builds, folder)
    finally:
        if not args.keep:
            shutil.rmtree(folder)


def compare_all(args, builds, folder):
    start = time.monotonic()
    inputs = Inputs(folder / "inputs")
    for name, seed in (("demo", 0), ("other", 1)):
        subprocess.run([builds[0].programs["temper"], "init", inputs.data / "qwen3-tiny", inputs.model(name), "--seed",
                        str(seed)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    cases = [case for case in all_cases(inputs)
             if not args.only or any(fnmatch.fnmatch(case.name, pattern) for pattern in args.only)]
    if not cases:
        sys.exit(f"compare_builds: no case is called {' or '.join(args.only)}; --list prints their names")
    if args.list:
        print("\n".join(case.name for case in cases))
        return 0
    runner, different = Runner(args, folder), 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs if args.device == "cpu" else 1) as pool:
        for case, found in zip(cases, pool.map(lambda case: runner.compare(builds, case), cases)):
            print(f"{case.name:32} {'equal' if found is None else 'DIFFERENT' + chr(10) + '    ' + found}", flush=True)
            different += found is not None
    print(f"{len(cases) - different} of {len(cases)} cases are equal ({time.monotonic() - start:.0f} s)")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
