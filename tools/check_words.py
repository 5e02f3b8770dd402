#!/usr/bin/env python3
"""Fails where documents, code or messages use words that a reader of this field would not, or that have several readings; `make check`
and `make test` run it.

tools/words.toml lists them, each with what to write instead. Documents (README, CHANGELOG, CONTRIBUTING, docs, READMEs of folders) have
none, except where a line is made from the program's help (docs/configuration.md) or quotes it in backquotes. Code still has some: `code`
is how many lines of src and include do, which may shrink, not grow. `--lines` prints the lines, `--record` writes the numbers of today."""
import argparse
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORDS = ROOT / "tools/words.toml"
MADE = {"docs/configuration.md"}
QUOTED = re.compile(r"`[^`]*`")


def lines_of(patterns):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\n"):
        path = ROOT / name
        if path.is_file() and name not in MADE:
            in_code = False
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                in_code ^= line.lstrip().startswith("```") and path.suffix == ".md"
                if not in_code:
                    yield name, number, line


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", action="store_true")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    text = WORDS.read_text(encoding="utf-8")
    words = tomllib.loads(text)["words"]
    documents = [(*place, QUOTED.sub("", line)) for *place, line in lines_of(["*.md"])]
    code = list(lines_of(["src/*.h", "src/*.cpp", "src/*.cu", "include/*.h"]))
    problems = 0
    for word, entry in words.items():
        pattern = re.compile(rf"(?<![\w-]){word}\b", re.IGNORECASE)
        for name, line, found in documents:
            if pattern.search(found):
                problems += 1
                print(f"{name}:{line}: '{word}': write {entry['instead']}")
        places = [(name, line, found) for name, line, found in code if pattern.search(found)]
        if asked.lines:
            for name, line, found in places:
                print(f"{name}:{line}: {found.strip()}")
        if asked.record:
            text = re.sub(rf'(^"?{re.escape(word)}"? = .*\bcode = )\d+', rf"\g<1>{len(places)}", text, flags=re.MULTILINE)
        elif len(places) > entry["code"]:
            problems += 1
            print(f"code has '{word}' in {len(places)} lines, tools/words.toml allows {entry['code']}: write {entry['instead']}")
    if asked.record:
        WORDS.write_text(text, encoding="utf-8")
    if not problems:
        print(f"words: ok ({len(words)} words; {sum(entry['code'] for entry in words.values())} lines of code may still have some)")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
