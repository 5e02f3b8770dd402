#!/usr/bin/env python3
"""Misspells every key of a run's configuration, in the file and as a flag: one letter is changed, missing, twice or at its neighbour's
place. Each has to end with exit code 2 and a sentence that has the wrong key and proposes the right one. Gives every key values of
other types and sizes, too: each has to end with 0, with 2 or with 4 (what asks for more than the machine has) and a sentence.

  tools/torture/keys.py TEMPER [--letters 1] [--values 1] [--seed 1] [--jobs 1]
"""

import json
import os
import re

import processes
import tables

SHORT = 3  # letters, below which a proposal cannot be asked for
LONGEST = 60  # seconds
VALUES = ["text", "", -1, 0, 1e-300, 10**9, 10**30, -(10**30), "1e999", "-.inf", ".nan", "true", "null", "[]", "{}", "[[1]]", "{a: {b: 1}}",
          "[1, text, {}]", '"' + "x" * 100000 + '"', '"\\0"', '"\\e[2J"', "/dev/zero", "!!binary aGk=", "*a", "0x7fffffffffffffff", "1_000"]
RECIPES = {"grpo": "grpo", "preference": "preference", "distill": "distill"}


def main():
    asked = tables.arguments(__doc__, ("--letters", 1, "misspellings of each key, in the file and as a flag"),
                             ("--values", 1, "of each key; 0: none"))

    def tasks(stand):
        keys = keys_of(stand)
        siblings = {key.rpartition(".")[2] for key in keys}
        yield from ((misspell, key, way, siblings) for key in keys for _ in range(asked.letters) for way in ("file", "flag"))
        yield from ((misvalue, key, way, siblings) for key in keys for _ in range(asked.values) for way in ("file", "flag"))

    tables.work("keys: exit code 2 and a sentence that proposes the key, of all; values: a sentence", asked, tasks, torture)


def torture(stand, add, chance, task):
    of_kind, *rest = task
    of_kind(stand, add, chance, *rest)


def keys_of(stand):
    """All, as adapters[].rank."""
    code, _, said = processes.spoken([stand.temper, "train", "--help", "all"])
    found = re.findall(r"^  (?:--)?([a-z][\w.\[\]]*)$", said, re.MULTILINE)
    if code != 0 or len(found) < 100:
        raise RuntimeError(f"--help all ended with {code} and has {len(found)} keys")
    return found


def misspelt(word, chance, others):
    while True:
        at, letter = chance.randrange(len(word)), chance.choice("abcdefghijklmnopqrstuvwxyz")
        made = chance.choice([word[:at] + letter + word[at + 1 :], word[:at] + word[at + 1 :], word[:at] + word[at] + word[at:],
                              word[:at] + word[at + 1 : at + 2] + word[at] + word[at + 2 :], word[:at] + letter + word[at:]])
        if made and made not in others and re.fullmatch("[a-z_]\\w*", made):
            return made


def is_one_edit(one, other):
    while one and other and one[0] == other[0]:
        one, other = one[1:], other[1:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    return max(len(one), len(other)) <= 1 or (len(one) == 2 and one == other[::-1])


# What an element of a list has to have.
NEEDED = {"adapters": ("name", "a"), "train": ("path", "rows.jsonl"), "eval": ("path", "rows.jsonl"), "rewards": ("type", "length"),
          "patterns": ("modules", "q_proj"), "rules": ("modules", "layers.0.*")}


def written(key, value):
    """The key as YAML, nested as it is, lists with one element, which has also what it has to have."""
    word, _, rest = key.partition(".")
    inner = written(rest, value) if rest else f"{value}"
    name = word.removesuffix("[]")
    if not word.endswith("[]"):
        return f"{{{name}: {inner}}}"
    needed, given = NEEDED[name]
    more = "" if rest.split(".")[0] == needed else f"{needed}: {given}, "
    return f"{{{name}: [{{{more}{inner[1:-1]}}}]}}"


def command_of(stand, key, value, way):
    """Of a dry run that has also this key."""
    out = stand.output("keys")
    os.makedirs(out)
    path, content, flags = os.path.join(out, "run.yaml"), "{}", []
    if way == "file":
        content = written(key, value)
    else:
        flags = [f"--{key.replace('[]', '[0]')}", str(value)]
        lists, has_list, _ = key.rpartition("[]")
        if has_list:  # a flag can set a key of an element that is there
            needed, given = NEEDED[lists.rpartition(".")[2]]
            content = written(f"{lists}[].{needed}", given)
    with open(path, "w", encoding="utf-8") as file:
        file.write(content + "\n")
    recipe = RECIPES.get(key.split(".")[0], "sft")
    data = {"grpo": "prompts", "preference": "pairs"}.get(recipe, "train")
    given = {"--recipe": recipe, "--model.path": stand.model, "--output": os.path.join(out, "run"), "--train.steps": "2",
             "--data.train": os.path.join(stand.rows, f"{data}.jsonl")}
    if recipe == "distill":
        given["--distill.teacher"] = stand.model
    if recipe == "grpo" and not key.startswith("grpo.rewards"):
        given["--grpo.rewards"] = "[{type: length, target: 5}]"
    own = key.split("[")[0]
    flags += [word for name, text in given.items() if name != f"--{own}" for word in (name, text)]
    return [stand.temper, "train", path, "--dry-run", *flags]


def misspell(stand, add, chance, key, way, siblings):
    before, dot, last = key.rpartition(".")
    wrong_word = misspelt(last.removesuffix("[]"), chance, siblings)
    code, said = processes.run(command_of(stand, before + dot + wrong_word, 1, way), seconds=LONGEST)
    right = code == 2 and wrong_word in said
    row = f"misspelt, {'in the file' if way == 'file' else 'as a flag'}"
    add(row, right, f"{key} as {wrong_word}: exit code {code}: {said[-300:]!r}")
    if right and len(last) > SHORT:
        proposed = re.findall(r"\w+", re.sub(rf"\b{re.escape(wrong_word)}\b", "", said))
        near = [each for each in proposed if each == last or (each in siblings and is_one_edit(each, wrong_word))]
        add(f"{row}, proposed", near, f"{key} as {wrong_word}: {said[-300:]!r}")


def misvalue(stand, add, chance, key, way, _):
    value = chance.choice(VALUES)
    if way == "flag" and "\0" in str(value):
        return
    code, said = processes.run(command_of(stand, key, value, way), seconds=LONGEST)
    right = code in (0, 2, 4) and "defect" not in said and (code == 0 or said.strip()) and "\x1b" not in said
    add(f"values, {'in the file' if way == 'file' else 'as a flag'}", right,
        f"{key}: {json.dumps(value)[:40]}: exit code {code}: {said[-300:]!r}")


if __name__ == "__main__":
    main()
