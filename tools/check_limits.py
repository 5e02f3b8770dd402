#!/usr/bin/env python3
"""Fails where code outgrows the limits of this house; `make check` runs it.

- files: below 400 lines; functions (C++, CUDA, Python): below 60 lines, with their signature
- functions: below 8 parameters
- classes: at most 250 lines, of their declaration and of their functions in all files of the folder, and 15 members of data; tests and
  structs without functions have no limit
- no bags: no file or folder is called utils, helpers, common or misc, alone or as a word of its name
- public headers (src/**/*.h): a member of a struct that is a Tensor or a Var says its shape, in brackets or in words with
  "shape", "scalar" or "laid out as", in the comment of its line or in one right above it; a number called time, timeout, memory,
  bandwidth, speed, latency, budget or usage says its unit in its name (timeout_seconds) or in such a comment
- what is known to be too large stands in tools/limits.toml with its size and the reason; it may shrink, not grow, and its
  entry goes with it

Private members and what stands inside functions are not asked for shapes. `--list` prints the largest that there
are."""
import argparse
import ast
import pathlib
import re
import subprocess
import sys
import tomllib

from cpp_outline import Outline

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMITS = {"file": 400, "function": 60, "parameters": 8, "class": 251, "members": 16}  # allowed is less
CPP, TEXT = {".h", ".cpp", ".cu", ".cuh", ".c"}, {".py", ".sh", ".cmake"}
BAGS = re.compile(r"(?:^|[_-])(utils?|helpers?|common|misc)(?:[_-]|$)")
TENSOR = re.compile(r"(?:const |mutable )*(?:std::(?:optional|vector|array|span)<(?:const )?)?(?:Tensor|Var)\b")
NUMBER = re.compile(r"(?:const )?(?:std::optional<)?(?:double|float|int|u?int\d+_t|size_t)>? ")
SHAPE = re.compile(r"\[|shape|scalar|laid out as", re.IGNORECASE)
WITH_UNIT = re.compile(r"(?:^|_)(?:time|timeout|memory|bandwidth|speed|latency|budget|usage)$")
UNIT = re.compile(r"bytes?|[MG]iB|seconds?|milliseconds|microseconds|\bm?s\b|per second|tokens|/ ?s\b")


class Finding:
    def __init__(self, where, line, kind, name, size, text):
        self.where, self.line, self.kind, self.name, self.size, self.text = where, line, kind, name, size, text

    def key(self):
        return self.where, self.kind, self.name


def comments_at(lines, member):
    """The comment of the member's lines, with what continues it below, and the one right above."""
    found = [line.split("//", 1)[1] for line in lines[member.first - 1:member.last] if "//" in line]
    for line in lines[member.last:] if found else []:
        if not line.strip().startswith("//"):
            break
        found.append(line)
    for line in reversed(lines[:member.first - 1]):
        if not line.strip().startswith("//"):
            break
        found.append(line)
    return " ".join(found)


def names_of(member):
    text = re.sub(r"\{[^}]*\}|\([^)]*\)|=[^,]*", "", member.text)
    return re.findall(r"(\w+)\s*(?:,|$)", text)


def check_member(where, lines, member):
    names = names_of(member)
    comment = comments_at(lines, member)
    if TENSOR.match(member.text) and not SHAPE.search(comment):
        yield Finding(where, member.first, "shape", names[0], 0,
                      f"{names[0]} is a tensor without a shape; say it behind the member: // [rows, hidden]")
    if NUMBER.match(member.text) and not UNIT.search(comment):
        for name in filter(WITH_UNIT.search, names):
            yield Finding(where, member.first, "unit", name, 0,
                          f"{name} has no unit; say it in its name or behind the member: // seconds")


def sizes_of_cpp(where, text, outline):
    for function in outline.functions:
        yield Finding(where, function.line, "function", function.name, function.lines, "lines")
        yield Finding(where, function.line, "parameters", function.name, function.parameters, "parameters")


class Classes:
    """What is added up over the files of a folder: a class is declared in one and has functions in others."""

    def __init__(self):
        self.types, self.lines, self.functions = {}, {}, []  # by path and name
        self.named, self.in_file = {}, {}

    def add(self, path, outline):
        if "_test" in path.name or path.parts[0] == "tests":
            return
        for each in outline.types:
            key = path, each.name
            if key not in self.types:  # of specializations the first one
                self.types[key], self.lines[key] = each, each.last - each.first + 1
                self.named.setdefault((path.parent, each.name), []).append(key)
            self.in_file.setdefault(path, []).append((each.last - each.first, each.first, each.last, key))
        self.functions += [(path, each) for each in outline.functions]

    def sizes(self):
        with_functions = set()
        for path, function in self.functions:
            for key in self.owners(path, function):
                with_functions.add(key)
                if "::" in function.name:
                    self.lines[key] += function.lines
        for key in with_functions:
            each, where = self.types[key], str(key[0])
            yield Finding(where, each.first, "class", each.name, self.lines[key], "lines in all its files")
            yield Finding(where, each.first, "members", each.name, each.members, "members")

    def owners(self, path, function):
        """The class that a function belongs to: it is named by it, or declared within it."""
        name = function.name.rpartition("::")[0]
        if name:
            # Types of one name in several files of a folder: that of this file, or of the header next to it.
            keys = self.named.get((path.parent, name), [])
            near = sorted(keys, key=lambda key: (key[0] != path, key[0].stem != path.stem, key[0].suffix != ".h"))
            yield from near[:1]
            return
        inside = [(size, key) for size, first, last, key in self.in_file.get(path, []) if first <= function.line <= last]
        if inside:
            yield min(inside, key=lambda each: each[0])[1]


def sizes_of_python(where, text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            count = sum(map(len, (node.args.posonlyargs, node.args.args, node.args.kwonlyargs)))
            yield Finding(where, node.lineno, "function", node.name, node.end_lineno - node.lineno + 1, "lines")
            yield Finding(where, node.lineno, "parameters", node.name, count, "parameters")


def sizes_and_others(path, classes):
    """Of one file: what has a size, and what is wrong whatever its size; its classes are added to those of all files."""
    where = str(path.relative_to(ROOT))
    others = [Finding(where, 1, "bag", part, 0, f"{bag[1]} says nothing of what is in it; name what it holds")
              for part in path.relative_to(ROOT).parts if (bag := BAGS.search(part.split(".")[0]))]
    text = path.read_text()
    lines = text.splitlines()
    sizes = [Finding(where, 1, "file", path.name, len(lines), "lines")]
    if path.suffix in CPP:
        outline = Outline(text)
        sizes += sizes_of_cpp(where, text, outline)
        classes.add(path.relative_to(ROOT), outline)
        if path.suffix == ".h" and where.startswith("src/"):
            others += [finding for member in outline.members if member.public
                       for finding in check_member(where, lines, member)]
    elif path.suffix == ".py":
        sizes += sizes_of_python(where, text)
    return sizes, others


def too_large(finding, known):
    limit = LIMITS[finding.kind]
    if finding.size < limit:
        return None
    entry = known.get(finding.key())
    if entry and finding.size <= entry["size"]:
        return None
    what = "the file" if finding.kind == "file" else finding.name
    more = f", tools/limits.toml knows {entry['size']}" if entry else ""
    return f"{what} has {finding.size} {finding.text}, expected fewer than {limit}{more}"


def problems_of(sizes, others, known):
    used = set()
    for finding in sizes:
        if finding.size >= LIMITS[finding.kind]:
            used.add(finding.key())
        if problem := too_large(finding, known):
            yield f"{finding.where}:{finding.line}: {problem}"
    for finding in others:
        used.add(finding.key())
        if finding.key() not in known:
            yield f"{finding.where}:{finding.line}: {finding.text}"
    for key in known.keys() - used:
        yield f"tools/limits.toml: {key[0]} has no {key[1]} '{key[2]}' that is too large any more; remove the entry"


def files():
    """Those of the repository; of an archive, or where there is no git, all but what builds and installs bring."""
    try:
        return subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                              check=True).stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):
        paths = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        return [str(path) for path in paths if not path.parts[0].startswith((".", "build")) and path.parts[0] != "runs"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    paths = [ROOT / name for name in files() if pathlib.Path(name).suffix in CPP | TEXT and (ROOT / name).is_file()]
    known = {(entry["file"], entry["kind"], entry["name"]): entry
             for entry in tomllib.loads((ROOT / "tools/limits.toml").read_text()).get("known", [])}
    classes = Classes()
    found = [sizes_and_others(path, classes) for path in paths]
    sizes = [size for file_sizes, _ in found for size in file_sizes] + list(classes.sizes())
    if args.list:
        for kind in LIMITS:
            for finding in sorted((size for size in sizes if size.kind == kind), key=lambda size: -size.size)[:20]:
                print(f"{finding.size:4} {finding.text:10} {finding.where}:{finding.line} {finding.name}")
        return 0
    problems = list(problems_of(sizes, [other for _, file_others in found for other in file_others], known))
    print("\n".join(problems) or f"limits: ok ({len(paths)} files, {len(known)} known to be too large)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
