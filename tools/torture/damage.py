#!/usr/bin/env python3
"""Damages checkpoints at random places: a bit, a byte, zeros, blocks that change places, a file that is cut, longer, gone, empty, there
twice, or of another update. A run that resumes has to end with the bits of an undisturbed run (from an older checkpoint, or where
no damaged part is read) or with exit code 2 and a sentence that names the file; never with others. Each damage changes something.

  tools/torture/damage.py TEMPER [--damages 10000] [--runs sft,adapters,preference,grpo] [--ranks 1] [--seed 1] [--jobs 1]
"""

import os
import shutil

import processes
import stand as s
import tables

BLOCK = 4096
KEEP = ["--checkpoint.keep_last", "4"]


def main():
    asked = tables.arguments(__doc__, ("--damages", 10000, "in all"), ("--ranks", 1, "number of ranks that write checkpoints"),
                             ("--runs", "sft,adapters,preference,grpo", "what is trained"))
    runs = tables.words(asked.runs)
    tasks = [(runs[number % len(runs)], asked.ranks) for number in range(asked.damages)]
    tables.work("damage: the bits of an undisturbed run, or exit code 2 and the file's name, of all", asked, tasks, torture)


def torture(stand, add, chance, task):
    run, ranks = task
    half, expected = stand.once(f"half.{run}.{ranks}", lambda: half_way(stand, run, ranks))
    out = stand.output("damaged")
    shutil.copytree(half, out)
    checkpoints = os.path.join(out, "checkpoints") if os.path.isdir(os.path.join(out, "checkpoints")) else out
    files = sorted(os.path.join(folder, name) for folder, _, names in os.walk(checkpoints) for name in names
                   if "checkpoints" in folder)
    path, manner, where = damaged(files, chance)
    code, said = processes.run(stand.command(run, out, ranks, *KEEP))
    if code == 0:
        wrong = s.difference_of(out, expected)
    else:
        wrong = "" if code == 2 and os.path.basename(path) in said else "it has to be 2, with the file's name"
    add(f"{run}, {manner}, {'resumed' if code == 0 else 'refused'}", not wrong,
        f"{os.path.relpath(path, out)} {where}: exit code {code}: {said[-300:]!r}; {wrong}")


def damaged(files, chance):
    """Which file, in which manner, and where. What changes nothing, such as zeros among zeros, is chosen again."""
    while True:
        path, manner = chance.choice(files), chance.choice(list(DAMAGES))
        before = state_of(path)
        where = DAMAGES[manner](path, files, chance)
        if state_of(path) != before:
            return path, manner, where


def state_of(path):
    """Its bytes, if it exists, and the names in its folder."""
    content = None
    if os.path.exists(path):
        with open(path, "rb") as file:
            content = file.read()
    return content, sorted(os.listdir(os.path.dirname(path)))


def half_way(stand, run, ranks):
    """The folder of a run that was killed behind its last checkpoint but one, and the bits that it has to leave."""
    half = os.path.join(stand.folder, f"half.{run}.{ranks}")
    code, said = processes.run(stand.command(run, half, ranks, *KEEP))
    if code != 0:
        raise RuntimeError(f"a run that is to be damaged ended with {code}:\n{said}")
    expected = s.bits_of(half)
    for folder, inner, _ in os.walk(half):
        if os.path.basename(folder) == "checkpoints":
            shutil.rmtree(os.path.join(folder, max(inner)))
            inner.clear()
        elif "model" in inner:
            shutil.rmtree(os.path.join(folder, "model"))
            inner.remove("model")
    return half, expected


def changed(change):
    """A damage of a file's bytes, where it has some; it says where."""

    def damage(path, files, chance):
        with open(path, "rb") as file:
            content = bytearray(file.read())
        where = change(content, chance) if content else "empty"
        with open(path, "wb") as file:
            file.write(content)
        return where

    return damage


def place_in(content, chance):
    """Anywhere, but half of the time near the beginning, where what describes the rest lies."""
    return chance.randrange(min(len(content), 2048) if chance.random() < 0.5 else len(content))


def flip(content, chance):
    at, bit = place_in(content, chance), chance.randrange(8)
    content[at] ^= 1 << bit
    return f"at {at}, bit {bit}"


def replace(content, chance):
    at = place_in(content, chance)
    content[at] = (content[at] + chance.randrange(1, 256)) % 256
    return f"at {at}"


def zero(content, chance):
    at = place_in(content, chance) // BLOCK * BLOCK
    content[at : at + BLOCK] = bytes(len(content[at : at + BLOCK]))
    return f"at {at}"


def swap(content, chance):
    size = min(BLOCK, max(1, len(content) // 4))
    one, other = sorted(chance.randrange(len(content) // size) * size for _ in range(2))
    if one != other:
        content[one : one + size], content[other : other + size] = content[other : other + size], content[one : one + size]
    return f"at {one} and {other}"


def cut(content, chance):
    at = place_in(content, chance)
    del content[at:]
    return f"at {at}"


def lengthen(content, chance):
    content += chance.randbytes(chance.choice([1, 7, 512, BLOCK]))
    return "at its end"


def remove(path, files, chance):
    os.remove(path)
    return "gone"


def duplicate(path, files, chance):
    copy = f"{path}.{chance.choice(['copy', 'safetensors', 'json'])}"
    shutil.copyfile(path, copy)
    return f"also {os.path.basename(copy)}"


def exchange(path, files, chance):
    other = chance.choice(files)
    if other != path:
        shutil.copyfile(other, path)
    return f"has the bytes of {'/'.join(other.split('/')[-2:])}"


def older(path, files, chance):
    alike = [each for each in files if os.path.basename(each) == os.path.basename(path) and each != path]
    if alike:
        shutil.copyfile(alike[0], path)
    return "is of another update"


DAMAGES = {"bit": changed(flip), "byte": changed(replace), "zeros": changed(zero), "swapped": changed(swap), "cut": changed(cut),
           "longer": changed(lengthen), "removed": remove, "twice": duplicate, "of another file": exchange, "of another update": older}


if __name__ == "__main__":
    main()
