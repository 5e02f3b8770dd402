#!/usr/bin/env python3
"""Which device code has changed since all of it was last compiled in full, for both architectures of GPUs.

    tools/device_code.py                  names the changed files
    tools/device_code.py --objects BUILD  their objects of full code in a build folder, to give to cmake --build --target
    tools/device_code.py --record         says that all of it was compiled now: tools/nightly.sh does, after it has

A file has changed when its text, or that of a header with device code that it includes, itself or through others, is not
the one that tools/device_code.txt has a hash of, or when another nvcc is installed. (Other headers, and all of it that the
front end can check, are compiled in every build.)"""
import argparse
import functools
import hashlib
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORD = ROOT / "tools/device_code.txt"
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
DEVICE = re.compile(r"__(?:device|global|shared|host)__|\basm\b|__CUDA_ARCH__")
# The objects of optimized code: see CMakeLists.txt.
FULL = r"^build (\S*/temper_(?:ampere|device_code_in_full\w*)\.dir/\S*?{}\.o)[ :]"


@functools.cache
def included(path):
    """The files that a file includes by name, of those that are ours."""
    names = INCLUDE.findall(path.read_text())
    places = [path.parent, ROOT / "src", ROOT / "include", ROOT]
    found = (next((place / name for place in places if (place / name).is_file()), None) for name in names)
    return [file.resolve() for file in found if file is not None]


def digest(source):
    """Of a file and the device code that it includes."""
    files, left = set(), [source]
    while left:
        file = left.pop()
        if file not in files:
            files.add(file)
            left.extend(included(file))
    both = hashlib.sha256()
    for file in sorted(file for file in files if file == source or DEVICE.search(file.read_text())):
        both.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return both.hexdigest()[:24]


def compiler():
    try:
        text = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "none"
    return re.search(r"V[\d.]+", text)[0]


def here():
    """A line for each file, behind the compiler's."""
    sources = sorted((ROOT / "src").rglob("*.cu"))
    return [f"nvcc {compiler()}"] + [f"{digest(source)} {source.relative_to(ROOT)}" for source in sources]


def changed():
    lines = here()
    recorded = RECORD.read_text().splitlines() if RECORD.is_file() else []
    known = set(recorded) if recorded[:1] == lines[:1] else set()
    return [line.split()[1] for line in lines[1:] if line not in known]


def objects(build):
    rules = (build / "build.ninja").read_text()
    found = {file: re.findall(FULL.format(re.escape(file)), rules, re.M) for file in changed()}
    # A build that does not optimize device code itself has such an object of every file.
    without = [file for file, names in found.items() if not any("_in_full" in name for name in names)]
    if "/temper_device_code_in_full" in rules and without:
        sys.exit(f"no target of {build} compiles in full: {', '.join(without)}; temper_device_code_in_full in "
                 "CMakeLists.txt must name all device code")
    return [name for names in found.values() for name in names]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=pathlib.Path, metavar="BUILD")
    parser.add_argument("--record", action="store_true")
    arguments = parser.parse_args()
    if arguments.record:
        RECORD.write_text("\n".join(here()) + "\n")
    else:
        for name in objects(arguments.objects) if arguments.objects else changed():
            print(name)


if __name__ == "__main__":
    main()
