#!/usr/bin/env python3
"""Writes tests/templates/cases.jsonl: what Jinja2 makes of our test templates.

The environment is set up as model libraries set it up for chat templates. Each line of the file holds one
template and, for each dialogue of tests/templates/dialogues.json, the text and the byte ranges of its generation
blocks, or the line of the error. A line of expressions.txt is tried with one dialogue only.
"""
import copy
import datetime
import json
import pathlib
import sys
import traceback

from jinja2 import TemplateSyntaxError, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests" / "templates" / "cases.jsonl"
TEMPLATES = ROOT / "tests" / "templates" / "sources"
FOR_EXPRESSIONS = 4  # the dialogue
LONGEST = 1500  # bytes of a text that is kept whole


class Generation(Extension):
    """Marks the text of generation blocks with two private characters."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("mark"), [], [], body).set_lineno(line)

    def mark(self, caller):
        return "\ue0f0" + caller() + "\ue0f1"


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise TemplateError(message)

    env.filters["tojson"] = tojson
    def strftime_now(format):
        return datetime.datetime.now().strftime(format)

    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def error_line(error):
    if isinstance(error, TemplateSyntaxError):
        return error.lineno
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == "<template>"]
    return frames[-1].lineno


def unmark(text):
    out, ranges, start = b"", [], 0
    for i, part in enumerate(text.replace("\ue0f1", "\ue0f0").split("\ue0f0")):
        if i % 2:
            ranges.append([len(out), len(out) + len(part.encode())])
        out += part.encode()
    return out.decode(), ranges


def render(source, values):
    try:
        text, generation = unmark(environment().from_string(source).render(**copy.deepcopy(values)))
        return {"text": text, **({"generation": generation} if generation else {})}
    except Exception as error:  # noqa: BLE001: whatever Python raises, the template must fail here
        return {"error_line": error_line(error)}


def shortened(result):
    """Long texts as their beginning, size and hash (FNV-1a)."""
    text = result.get("text", "")
    if len(text.encode()) <= LONGEST:
        return result
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return {**result, "text": text[:100], "bytes": len(text.encode()), "hash": f"{value:016x}"}


def main():
    dialogues = json.loads((OUT.parent / "dialogues.json").read_text())
    lines = []
    for path in sorted(TEMPLATES.glob("*.jinja")):
        source = path.read_bytes().decode()
        lines.append({"name": path.stem, "results": [shortened(render(source, values)) for values in dialogues]})
    # Expressions, one for each line, with one dialogue.
    for number, line in enumerate((TEMPLATES / "expressions.txt").read_text().splitlines(), 1):
        if line and not line.startswith("##"):
            source = line.replace("⏎", "\n")
            result = shortened(render(source, dialogues[FOR_EXPRESSIONS]))
            lines.append({"name": f"expressions.txt:{number}", "template": source, "results": [result]})
    OUT.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    print(f"{OUT}: {len(lines)} templates, {OUT.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
