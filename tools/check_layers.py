#!/usr/bin/env python3
"""Fails when a file includes a folder on its own floor or above, a later stage of its own folder or a sibling room (see
layers.toml), when a test writes where another one may write, and when two files define a type of one full name: the
linker would keep the functions of one of them for both."""
import pathlib
import re
import sys
import tomllib

root = pathlib.Path(__file__).resolve().parent.parent
plan = tomllib.loads((root / "tools/layers.toml").read_text())
floor_of = {folder: number for number, folders in enumerate(plan["floors"]) for folder in folders}
kinds = set(plan["kinds"])
shared = plan["shared"]
stages = plan["stages"]
suffixes = {".h", ".cpp", ".cu", ".cuh"}


def room_of(parts):
    """The room or stage that a path inside a folder belongs to; None for the folder's own files."""
    return parts[1] if len(parts) > 2 else None


def may_include(kind, room, target):
    """Whether a file of this room, shared folder, stage or, with None, of the folder itself may include that one."""
    if kind not in kinds:
        order = [None if stage == "." else stage for stage in stages.get(kind, [])]
        order += [None] * (None not in order)
        return target in order[:order.index(room) + 1]
    below = shared.get(kind, [])
    if target in (None, room):
        return True
    if room in below:
        below = below[:below.index(room)]
    return room is not None and target in below


def check(path):
    parts = path.relative_to(root / "src").parts
    folder = parts[0]
    where = path.relative_to(root)
    if folder not in floor_of:
        yield f"{where}: src/{folder} has no floor in tools/layers.toml"
        return
    if folder not in kinds and room_of(parts) not in [None, *stages.get(folder, [])]:
        yield f"{where}: src/{folder}/{room_of(parts)} is no stage of src/{folder} in tools/layers.toml"
        return
    for line, text in enumerate(path.read_text().splitlines(), 1):
        if "testing::TempDir" in text:
            yield f"{where}:{line}: tests run side by side and share that folder; use TemporaryDirectory"
        include = re.match(r'\s*#\s*include "([a-z_0-9]+)/(.+)"', text)
        if not include or include[1] not in floor_of:
            continue
        target = include[1]
        if target != folder and floor_of[target] >= floor_of[folder]:
            yield f"{where}:{line}: {folder} may not include {target} (same floor or above)"
        target_room = room_of((target, *include[2].split("/")))
        of_stages = folder not in kinds and re.search(r"_test(_support)?$", path.stem)  # tests may use all stages of theirs
        if target == folder and not of_stages and not may_include(folder, room_of(parts), target_room):
            included = target_room or include[2]
            yield f"{where}:{line}: {folder}/{room_of(parts) or ''} may not include {folder}/{included}"


def types_of(path):
    """Full names of the types that a file defines outside unnamed namespaces, with their lines."""
    spaces = []
    for line, text in enumerate(path.read_text().splitlines(), 1):
        if opened := re.match(r"namespace ?([\w:]*) ?\{$", text):
            spaces.append(opened[1])
        elif re.match(r"\}  // namespace", text):
            spaces.pop()
        elif (defined := re.match(r"(?:struct|class|enum class|union) (\w+)(?: final)?(?: :[^:].*)? \{", text)) and "" not in spaces:
            yield "::".join([*spaces, defined[1]]), line


def check_names(paths):
    first = {}
    for path in paths:
        for name, line in types_of(path):
            where = f"{path.relative_to(root)}:{line}"
            if name in first:
                yield f"{where}: {name} is also a type of {first[name]}"
            first.setdefault(name, where)


files = [p for p in sorted((root / "src").rglob("*")) if p.suffix in suffixes and p.parent.name != "src"]
errors = [error for path in files for error in check(path)] + list(check_names(files))
print("\n".join(errors) or f"layers: ok ({len(files)} files, {len(floor_of)} folders)")
sys.exit(bool(errors))
