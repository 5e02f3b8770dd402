#!/usr/bin/env python3
"""Writes the page of all keys and commands, from what the program prints.

Usage: make_configuration_page.py TEMPER > docs/configuration.md
       make_configuration_page.py TEMPER --check   fails with the first line of docs/configuration.md that differs

TEMPER is the built program. Keys come from `temper train --help all`, commands and their options from `temper --help`
and the `--help` of each command. `make check` runs the second form, so that no key is changed without its page."""
import argparse
import itertools
import pathlib
import re
import subprocess
import sys
import textwrap

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "configuration.md"
TOP = "Keys of the top level"  # the section of keys without a group
ADAPTER = "adapters[]"

INTRODUCTION = """\
# All keys and commands

This page is made from the program's help by `tools/make_configuration_page.py`, and `make check` fails where the two
differ. `temper train --help all` prints the same keys, `temper train --help KEY` one key or one group.
[first_lora.md](first_lora.md) and [training.md](training.md) show how the keys are used together.

- A key may be written in the YAML file, where each dot is a level, or as a flag: `train.optimizer.lr` is
  `train: {optimizer: {lr: 2e-5}}` or `--train.optimizer.lr 2e-5`. A flag replaces the value in the file.
- `NAME[]` means each element of a list of mappings. In a file that is an element with these keys; as a flag it is the
  element's number or name: `--adapters[0].rank 8`, `--data.train[law].weight 2`.
- A default of `null` means that the key is omitted; its meaning then says what happens.
- An unknown key is an error with the nearest name. Keys of other programs are answered with Temper's name for them
  ([coming_from.md](coming_from.md)).
- The groups `preference`, `grpo` and `distill` belong to the recipes of these names. With another recipe their keys are
  errors.
"""


class Key:
    def __init__(self, path, meaning, expects):
        self.path, self.meaning = path, meaning
        values, _, default = expects.partition("; default ")
        if values.endswith("; required"):
            values, default = values.removesuffix("; required"), "required"
        self.values, self.is_required = values.removesuffix("; each mapping has the keys"), default == "required"
        self.default = default
        self.has_elements = values.endswith("; each mapping has the keys")

    def group(self):
        return self.path.rpartition(".")[0]

    def name(self):
        return self.path.rpartition(".")[2]

    def same_but_for_its_name(self):
        return self.meaning, self.values, self.default


def printed_by(temper, *words):
    done = subprocess.run([temper, *words, "--help"] if words[-1:] != ("all",) else [temper, *words],
                          capture_output=True, encoding="utf-8")
    if done.returncode != 0:
        sys.exit(f"{temper} {' '.join(words)}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def read_keys(text):
    """The keys in the order of the help, and what it says about each group."""
    keys, groups = [], {}
    lines = iter(text.splitlines())
    for line in lines:
        if not line:
            continue
        if not line.startswith(" "):
            name, _, meaning = line.partition(": ")
            groups[name] = meaning
            continue
        meaning, expects = next(lines).strip(), next(lines).strip()
        if not expects.startswith("expects "):
            sys.exit(f"{line.strip()}: 'expects …' was expected in its third line, found: {expects}")
        keys.append(Key(line.strip().removeprefix("--"), meaning, expects.removeprefix("expects ")))
    return keys, groups


def cell(text):
    """Text of a table: what could be Markdown or HTML is printed as it is, and pages become links."""
    return re.sub(r"docs/(\w+\.md)", r"[\1](\1)", re.sub(r"([|*<>\\])", r"\\\1", text))


def code(text):
    return f"`{text}`" if text else ""


def link(group):
    anchor = re.sub(r"[^\w-]", "", group.lower().replace(" ", "-"))
    return f"keys [`{group}`](#{anchor})"


class Page:
    def __init__(self, keys, groups):
        self.groups = groups
        self.tables = {}  # the keys of each group, in the order of the help
        for key in keys:
            self.tables.setdefault(key.group(), []).append(key)

    def first_with_the_same_keys(self, group):
        """The group whose table also describes this one: of those with the same keys the least nested."""
        def shape(name):
            return [(key.name(), *key.same_but_for_its_name()) for key in self.tables[name]]

        alike = [name for name in self.tables if "." in name and shape(name) == shape(group)]
        return min(alike, key=lambda name: name.count("[]"), default=group)

    def row(self, alike):
        """One row of the table, for keys that differ in their names alone."""
        key = alike[0]
        names = code(key.path)
        if key.group() == "model.ops_implementation" and len(alike) > 1:
            names = f"{code(key.group() + '.FIELD')}, for each field of [kernels.md](kernels.md#kernels-of-this-build)"
        elif len(alike) > 1:
            names = code(f"{key.group()}.…") + ": " + ", ".join(code(other.name()) for other in alike)
        values = cell(key.values)
        if key.has_elements:
            values += f": {link(self.first_with_the_same_keys(key.path + '[]'))}"
        default = "required" if key.is_required else code(key.default) or "–"
        return f"| {names} | {values} | {default} | {cell(key.meaning)} |"

    def table(self, group):
        rows = ["| Key | Values | Default | Meaning |", "|---|---|---|---|"]
        for _, alike in itertools.groupby(self.tables[group], key=Key.same_but_for_its_name):
            rows.append(self.row(list(alike)))
        return rows

    def section(self, group, level):
        lines = ["#" * level + " " + (f"`{group}`" if group else TOP)]
        if group in self.groups:
            lines += textwrap.wrap(self.groups[group], 120)
        elif group.endswith("[]"):
            lines.append(f"Each element of the list `{group[:-2]}`.")
        return lines + [""] + self.table(group) + [""]

    def lines(self):
        def section_of(group):
            return re.split(r"[.\[]", group)[0]

        tops = list(dict.fromkeys(section_of(group) for group in self.tables))
        tops.remove("adapters")
        tops.insert(tops.index("train") + 1, "adapters")
        lines = []
        for top in tops:
            groups = [group for group in self.tables
                      if section_of(group) == top and self.first_with_the_same_keys(group) == group]
            for group in sorted(groups, key=lambda group: group != top):
                lines += self.section(group, 2 if group in (top, ADAPTER) else 3)
        return lines


def commands(temper, words=()):
    """The names of all commands, those of a group of commands behind it."""
    text = printed_by(temper, *words)
    _, _, listed = text.partition("\nSubcommands:\n")
    for name in re.findall(r"^  ([a-z][a-z-]*) ", listed, re.MULTILINE):
        yield (*words, name)
        yield from commands(temper, (*words, name))


def command_lines(temper):
    lines = ["## Commands", "What `temper COMMAND --help` prints.", ""]
    for words in commands(temper):
        text = printed_by(temper, *words)
        if "\nSubcommands:\n" not in text:
            lines += [f"### temper {' '.join(words)}", "```", *text.strip("\n").splitlines(), "```", ""]
    return lines


def page(temper):
    keys, groups = read_keys(printed_by(temper, "train", "--help", "all"))
    lines = [*INTRODUCTION.splitlines(), "", *Page(keys, groups).lines(), *command_lines(temper)]
    return "\n".join(line.rstrip() for line in lines).rstrip("\n") + "\n"


def first_difference(wanted, found):
    for number, (left, right) in enumerate(itertools.zip_longest(wanted.splitlines(), found.splitlines()), 1):
        if left != right:
            return f"docs/configuration.md:{number}\n  the page:    {right}\n  the program: {left}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("temper", help="the built program")
    parser.add_argument("--check", action="store_true", help="compare with docs/configuration.md")
    arguments = parser.parse_args()
    text = page(arguments.temper)
    if not arguments.check:
        sys.stdout.buffer.write(text.encode())
        return
    difference = first_difference(text, PAGE.read_text(encoding="utf-8") if PAGE.exists() else "")
    if difference:
        sys.exit(f"{difference}\nwrite it again: {sys.argv[0]} {arguments.temper} > docs/configuration.md")


if __name__ == "__main__":
    main()
