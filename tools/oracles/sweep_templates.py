#!/usr/bin/env python3
"""Development check: what rows say and chat templates leave out must be reported.

    tools/oracles/sweep_templates.py TEMPLATES [--only NAME] [--dialogues 300]

TEMPLATES is a folder of *.jinja files. Each is tried through `temper data inspect` with made-up dialogues: as they are, with
null fields, with calls of tools, with two system messages, with a developer's message, and with names. Every word of a row
and of its tools must be in the row's text, or what is printed of the row must name its field, or the row must be refused.
Rows with null fields must print what rows without them do, and the word None must be in no text. Prints a line for each
template and the sums; the exit code is 1 if anything was lost in silence.
"""
import argparse
import collections
import copy
import json
import pathlib
import re
import sys
import tempfile

import check_template_masks as masks

NULLS = {"name": None, "reasoning_content": None, "tool_calls": None, "tool_call_id": None, "function_call": None}


def with_nulls(seed):
    row = copy.deepcopy(masks.plain(seed))
    for message in row["messages"]:
        message.update({name: value for name, value in NULLS.items() if name not in message})
    return {**row, "tools": None, "documents": None, "chat_template_kwargs": {"mood": None}}


def with_two_systems(seed):
    words, row = masks.Words(2000 + seed), masks.plain(seed)
    first = [] if row["messages"][0]["role"] == "system" else [{"role": "system", "content": words.word("sys")}]
    second = [{"role": "system", "content": words.word("sys")}]
    place = 1 if seed % 2 else len(first) + len(row["messages"]) - 2
    messages = first + row["messages"]
    return {"messages": messages[:place] + second + messages[place:]}


def with_developer(seed):
    row = masks.plain(seed)
    messages = [message for message in row["messages"] if message["role"] != "system"]
    return {"messages": [{"role": "developer", "content": masks.Words(3000 + seed).word("sys")}] + messages}


def with_names(seed):
    words, row = masks.Words(4000 + seed), masks.plain(seed)
    return {"messages": [{**message, "name": words.word("nam")} if message["role"] == "user" else message
                         for message in row["messages"]]}


def with_calls(seed):
    """Tools of which one is called, each with words of its own."""
    words, row = masks.Words(5000 + seed), masks.with_tools(seed)
    called, other = copy.deepcopy(masks.TOOL), copy.deepcopy(masks.TOOL)
    called["function"]["description"] = f"of a city, {words.word('dsc')}"
    other["function"].update(name=words.word("fun"), description=words.word("dsc"))
    return {**row, "tools": [called, other] if seed % 2 else [called]}


KINDS = {"plain": masks.plain, "nulls": with_nulls, "calls": with_calls, "two systems": with_two_systems,
         "developer": with_developer, "names": with_names}
REPORTS = {"thk": "reasoning of role", "cty": "tool_calls of role", "nam": "messages[].name"}
WORD = r"(?:usr|ans|sys|tol|cty|thk|nam|fun|dsc)\d+w\d+e"
TOOLS_TOLD = r"leaves out (?:a part of )?tools\b|unused[^\n]*\btools\b"


def silent_losses(row, body):
    """Words of the row that are neither in what is printed of it nor in a field that this names."""
    text = re.sub(r"[|\[\]]", "", body)
    for message in row["messages"]:
        for word in re.findall(WORD, json.dumps(message)):
            report = REPORTS.get(word[:3], f"content of role '{message['role']}'")
            unread = word[:3] == "thk" and re.search(r"unused fields: [^\n]*messages\[\]\.reasoning", body)
            if word not in text and report not in body and not unread:
                yield f"{word[:3]} of {message['role']}"
    for word in re.findall(WORD, json.dumps(row.get("tools"))):
        if word not in text and not re.search(TOOLS_TOLD, body):
            yield f"{word[:3]} of tools"


def reports_of(folder, rows):
    """What is printed of each row."""
    parts = re.split(r"^row \d+ \([^\n]*?rows\.jsonl:(\d+)\)", masks.inspect(folder, rows), flags=re.M)
    found = {int(number): body for number, body in zip(parts[1::2], parts[2::2])}
    last = parts[-1].split("\n\n")[0]  # without the summary
    return [last if number == len(rows) else found.get(number, "missing") for number in range(1, len(rows) + 1)]


def try_template(source, dialogues):
    """Counts of rows by kind and outcome."""
    counts, silent = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "config.json").write_text(json.dumps(masks.MODEL))
        (folder / "tokenizer.json").write_text(masks.tokenizer_for(source))
        (folder / "tokenizer_config.json").write_text(json.dumps(masks.TOKENS))
        (folder / "chat_template.jinja").write_text(source)
        rows = [(kind, make(seed)) for kind, make in KINDS.items() for seed in range(dialogues)]
        bodies = reports_of(folder, [row for _, row in rows])
    for place, ((kind, row), body) in enumerate(zip(rows, bodies)):
        refused = re.match(r"\s*bad: ", body) is not None
        lost = [] if refused else list(silent_losses(row, body))
        if body == "missing":
            lost = ["the row"]
        if kind == "nulls" and not refused and body != bodies[place - dialogues]:
            lost.append("a difference by null fields")
        if not refused and re.search(r"\bNone\b", re.sub(r"[|\[\]]", "", body)) and "writes the word None" not in body:
            lost.append("the word None")
        counts["refused" if refused else "reported" if "leaves out" in body or "unused fields: " in body else "whole"] += 1
        for loss in set(lost):
            silent[f"{kind}: {loss}"] += 1
    return counts, silent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("templates", type=pathlib.Path)
    parser.add_argument("--only", default="", help="templates whose names contain it")
    parser.add_argument("--dialogues", type=int, default=300, help="of each kind")
    args = parser.parse_args()
    whole, lost, templates = collections.Counter(), collections.Counter(), 0
    for path in sorted(args.templates.glob("*.jinja")):
        if args.only not in path.name:
            continue
        templates += 1
        counts, silent = try_template(path.read_text(), args.dialogues)
        print(f"{path.name}: {dict(counts)}", flush=True)
        for loss, count in silent.most_common():
            print(f"    lost in silence, {count} rows: {loss}")
        whole += counts
        lost += silent
    print(f"{templates} templates: {dict(whole)}, lost in silence: {dict(lost) or 'nothing'}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
