#!/usr/bin/env python3
"""Writes tests/templates/cases.jsonl: what Jinja2 makes of our test templates.

The environment is set up as model libraries set it up for chat templates. The first line of the file holds
the dialogues (the values), each other line one template and, for each dialogue that it is tried with, the
text and the byte ranges of its generation blocks, or the line of the error.
"""
import json
import pathlib
import sys
import traceback

from jinja2 import TemplateSyntaxError, nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests" / "templates" / "cases.jsonl"
TEMPLATES = ROOT / "tests" / "templates" / "sources"


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
    env.globals["raise_exception"] = raise_exception
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
        text, generation = unmark(environment().from_string(source).render(**values))
        return {"text": text, **({"generation": generation} if generation else {})}
    except Exception as error:  # noqa: BLE001: whatever Python raises, the template must fail here
        return {"error_line": error_line(error)}


TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather at a place – \"now\"", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "Größe <b>Köln</b>"},
                                         "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": None}},
        "required": ["city"]}}},
    {"type": "function", "function": {"name": "add", "parameters": {
        "type": "object", "properties": {"items": {"type": "array", "items": {"type": "number"}}}, "additionalProperties": False}}},
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
DIALOGUES = [
    {"messages": [{"role": "user", "content": "Hi there!"}], "add_generation_prompt": True, **TOKENS},
    {"messages": [{"role": "system", "content": "  You are terse.\n"}, {"role": "user", "content": "What is 2+2?\n"},
                  {"role": "assistant", "content": "<think>\nEasy.\n</think>\n\nIt is 4."}, {"role": "user", "content": "And 3*3?"},
                  {"role": "assistant", "content": "9", "reasoning_content": "three threes\n"}],
     "add_generation_prompt": False, "enable_thinking": False, **TOKENS},
    {"messages": [{"role": "user", "content": "Weather in Köln & Paris?"},
                  {"role": "assistant", "content": "", "tool_calls": [
                      {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln", "unit": "celsius"}}},
                      {"id": "c2", "type": "function", "function": {"name": "add", "arguments": "{\"items\": [1, 2.5]}"}}]},
                  {"role": "tool", "content": "{\"t\": 21.5}", "tool_call_id": "c1"}, {"role": "tool", "content": "3.5"},
                  {"role": "assistant", "content": "21.5 °C 🌤"}, {"role": "user", "content": "Thanks"}],
     "tools": TOOLS, "add_generation_prompt": True, "enable_thinking": True, **TOKENS},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": "image", "url": "a.png"},
                                               {"type": "text", "text": " 'quoted' \"both\"\t\\ "}]},
                  {"role": "assistant", "content": None, "tool_calls": [
                      {"function": {"name": "add", "arguments": {"items": [1, 2, [3, {"deep": True, "n": None}]], "x": 1e-7, "y": 1e22}}}]}],
     "tools": None, "add_generation_prompt": False, "n": 7, "f": 2.5, "names": ["Zoë", "adam", "Bob", "bob"], **TOKENS},
    {"messages": [], "add_generation_prompt": True, "text": "  ÀÉ ß ǅ straße x-ray it's \u2028 e\u0301\n\nline two\r\nthree  ",
     "numbers": [3, -1, 2, 2, 10], "table": {"b": 2, "a": [1, {"k": "v"}], "C": None, "items": "own"}, "zero": 0, "empty": "",
     "rows": [{"k": "x", "v": 1, "sub": {"n": 3}}, {"k": "Y", "v": 2, "sub": {"n": 1}}, {"k": "x", "v": 3}], **TOKENS},
]
CHATS = [0, 1, 2, 3]


def main():
    lines = [{"dialogues": DIALOGUES}]
    for path in sorted(TEMPLATES.glob("*.jinja")):
        source = path.read_text()
        for_values = path.name.startswith("values_")
        results = [{"dialogue": i, **render(source, DIALOGUES[i])} for i in ([4, 3] if for_values else CHATS)]
        lines.append({"name": path.stem, "results": results})
    # Expressions, one for each line, all with the last dialogue.
    for number, line in enumerate((TEMPLATES / "expressions.txt").read_text().splitlines(), 1):
        if line and not line.startswith("##"):
            line = line.replace("⏎", "\n")
            lines.append({"name": f"expressions.txt:{number}", "template": line, "results": [{"dialogue": 4, **render(line, DIALOGUES[4])}]})
    OUT.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    print(f"{OUT}: {len(lines) - 1} templates, {OUT.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
