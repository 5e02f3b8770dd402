#!/usr/bin/env python3
"""Writes the tables of Unicode 16 that patterns of tokenizers need, as the `tokenizers` library (0.23) has them:

src/tokenizers/unicode/unicode_classes.cpp    the class of every character, for the hand-made splitters
src/tokenizers/unicode/later_characters.cpp   by property, the characters that Unicode 15 and 16 added, which PCRE2 may
    not know

Run it with Python 3.11, whose own tables are those of Unicode 14, behind
`pip install unicodedata2==16.0.0 regex==2025.7.34` (both have Unicode 16); then `tools/format.sh`.
"""
import pathlib
import unicodedata

import regex
import unicodedata2

OUT = pathlib.Path(__file__).resolve().parents[2] / "src" / "tokenizers" / "unicode"
CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CLASSES = {"Lu": "kUpper", "Lt": "kUpper", "Ll": "kLower", "Lm": "kCaseless", "Lo": "kCaseless", "M": "kMark",
           "N": "kNumber", "P": "kSymbol", "S": "kSymbol"}
FLAGS = {"": 0, "kUpper": 1, "kLower": 2, "kCaseless": 4, "kMark": 8, "kNumber": 16, "kSymbol": 32, "kSpace": 64}
DERIVED = ["Alphabetic", "Uppercase", "Lowercase", "Ideographic", "Emoji", "Extended_Pictographic"]
SCRIPTS = ["Arabic", "Cyrillic", "Devanagari", "Egyptian_Hieroglyphs", "Greek", "Han", "Hangul", "Hebrew", "Hiragana",
           "Inherited", "Common", "Kannada", "Katakana", "Lao", "Latin", "Thai"]
# Characters of Unicode 14 that got a property later.
CHANGED = {"Alphabetic": [*range(0x363, 0x370), 0xC04, 0xF82, 0xF83, *range(0x1DD3, 0x1DE7), 0x11080, 0x11081],
           "Lowercase": [0x10FC, 0xA7F2, 0xA7F3, 0xA7F4, 0xAB69]}
NOTE = "// Written by tools/oracles/make_unicode_tables.py from the Unicode Character Database 16.\n"


def class_of(c):
    if regex.match(r"\p{White_Space}", chr(c)):
        return "kSpace"
    category = unicodedata2.category(chr(c))
    return CLASSES.get(category, CLASSES.get(category[0], ""))


def ranges(characters):
    """Neighbours as [first, last]."""
    out = []
    for c in characters:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def items(characters):
    return "".join(f"\\x{{{a:X}}}" + (f"-\\x{{{b:X}}}" if b > a else "") for a, b in ranges(characters))


def quoted(text, width=100):
    """As raw strings of a line each."""
    parts, line = [], ""
    for item in text.replace("\\x", " \\x").replace("- ", "-").split():
        if len(line) + len(item) > width:
            parts.append(line)
            line = ""
        line += item
    return "\n".join(f'R"({part})"' for part in [*parts, line])


def write_classes():
    runs, before = [], None
    for c in range(0x110000):
        now = "" if 0xD800 <= c < 0xE000 else class_of(c)
        if now != before:
            runs.append(f"0x{c << 8 | FLAGS[now]:X}")
        before = now
    (OUT / "unicode_classes.cpp").write_text(f"""{NOTE}#include "tokenizers/unicode/unicode_classes.h"

namespace temper::tokenizers {{
namespace {{

constexpr uint32_t kRuns[] = {{{", ".join(runs)}}};

}}  // namespace

std::span<const uint32_t> unicode_class_runs() {{ return kRuns; }}

}}  // namespace temper::tokenizers
""")


def write_later():
    later = [c for c in CHARACTERS if unicodedata.category(chr(c)) == "Cn" != unicodedata2.category(chr(c))]
    entries = []

    def add(name, characters):
        if characters:
            entries.append(f'{{"{name}", {quoted(items(characters))}}}')

    categories = sorted({unicodedata2.category(chr(c)) for c in later})
    for name in sorted({*categories, *(category[0] for category in categories)} - {"C"}):
        add(name, [c for c in later if unicodedata2.category(chr(c)).startswith(name)])
    for name in DERIVED:
        add(name, sorted([c for c in later if regex.match(rf"\p{{{name}}}", chr(c))] + CHANGED.get(name, [])))
    for name in SCRIPTS:
        add(f"sc:{name}", [c for c in later if regex.match(rf"\p{{Script={name}}}", chr(c))])
    assigned = quoted(items(later))
    (OUT / "later_characters.cpp").write_text(f"""{NOTE}#include "tokenizers/unicode/later_characters.h"

#include <utility>

namespace temper::tokenizers {{
namespace {{

constexpr std::pair<std::string_view, std::string_view> kLater[] = {{
{",".join(entries)}}};

constexpr std::string_view kAssigned = {assigned};

}}  // namespace

std::string_view later_characters(std::string_view property) {{
  for (const auto& [name, items] : kLater)
    if (name == property) return items;
  return "";
}}

std::string_view later_assigned() {{ return kAssigned; }}

}}  // namespace temper::tokenizers
""")


def main():
    versions = unicodedata.unidata_version, unicodedata2.unidata_version
    if versions != ("14.0.0", "16.0.0"):
        raise SystemExit(f"found tables of Unicode {versions}, expected 14.0.0 of Python and 16.0.0 of unicodedata2")
    write_classes()
    write_later()


if __name__ == "__main__":
    main()
