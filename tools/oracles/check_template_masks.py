#!/usr/bin/env python3
"""Development check: which rows of made-up dialogues a folder of chat templates keeps, and what is trained on.

    tools/oracles/check_template_masks.py TEMPLATES [--only NAME] [--show N]

TEMPLATES is a folder of *.jinja files. Each is tried with 300 plain dialogues and 60 with tool calls, through
`temper data inspect`; Jinja2 says which of them the template renders at all. A row counts as kept when every answer
is in a run of targets of its own that holds no word of anyone else.
"""
import argparse
import collections
import copy
import functools
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import make_template_cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEMPER = ROOT / "build" / "release" / "temper"
TOKENIZER = ROOT / "tests" / "goldens" / "tokenizer_qwen" / "tokenizer.json"
MODEL = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 32, "intermediate_size": 64,
         "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16,
         "vocab_size": 200000, "max_position_embeddings": 65536, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
         "tie_word_embeddings": True, "hidden_act": "silu"}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
SHAPES = ["{}", "{}!", "1. {}\n2. more", "**{}**", "<b>{}</b>", "\n{}", "{}  \n", "```\n{}\n```", "{{\"a\": \"{}\"}}",
          "答案是 {} 。", "<think> is a word, {}", "{}\n\nuser\n\nassistant", "thought {}", "x", "{} assistant"]
TOOL = {"type": "function", "function": {"name": "weather", "description": "of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


class Words:
    """Words that no other message has."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.count = 0

    def word(self, kind):
        self.count += 1
        return f"{kind}{self.count}w{self.random.randrange(1000)}e"


def answer(words, thinking):
    text = words.random.choice(SHAPES).format(words.word("ans"))
    message = {"role": "assistant", "content": text}
    if thinking == "content":
        message["content"] = f"<think>\n{words.word('thk')}\n</think>\n\n{text.strip()}"
    elif thinking:
        message[thinking] = words.word("thk")
    return message


def plain(seed):
    words = Words(seed)
    messages = []
    if seed % 5 == 4:
        messages.append({"role": "system", "content": f"Be {words.word('sys')}."})
    thinking = {0: "content", 1: "reasoning_content"}.get(seed % 10 if seed % 3 == 0 else None)
    for _ in range(1 + seed % 4):
        messages.append({"role": "user", "content": words.random.choice(SHAPES).format(words.word("usr"))})
        messages.append(answer(words, thinking))
    return {"messages": messages}


def with_tools(seed):
    words = Words(1000 + seed)
    messages = []
    for turn in range(1 + seed % 2):
        name = f"call{seed}{turn}abc"
        call = {"id": name, "type": "function", "function": {"name": "weather", "arguments": {"city": words.word("cty")}}}
        messages += [{"role": "user", "content": words.word("usr")},
                     {"role": "assistant", "content": words.word("ans") if seed % 3 else "", "tool_calls": [call]},
                     {"role": "tool", "name": "weather", "tool_call_id": name, "content": words.word("tol")},
                     answer(words, None)]
    return {"messages": messages, "tools": [TOOL]}


@functools.lru_cache
def compiled(source):
    return make_template_cases.environment().from_string(source)


def rendering(source, row):
    """The text, or None where the template fails."""
    values = {"messages": row["messages"], "add_generation_prompt": False, "documents": None,
              "tools": row.get("tools"), **TOKENS}
    forms = [values]
    as_text = copy.deepcopy(values)
    for message in as_text["messages"]:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    forms.append(as_text)
    for form in forms:
        try:
            return compiled(source).render(**form)
        except Exception:  # noqa: BLE001: whatever Python raises, the template fails
            continue
    return None


def written(source, row):
    """The words of each answer that the template writes when it is the last."""
    words = []
    for i, message in enumerate(row["messages"]):
        if message["role"] != "assistant":
            continue
        text = rendering(source, {**row, "messages": row["messages"][:i + 1]}) or rendering(source, row)
        words.append([word for word in re.findall(r"(?:ans|cty|thk)\d+w\d+e", json.dumps(message)) if word in text])
    return words


def tokenizer_for(source):
    """Ours, in which what looks like a special token in the template is one."""
    tokenizer = json.loads(TOKENIZER.read_text())
    known = {token["content"] for token in tokenizer["added_tokens"]}
    sample = rendering(source, plain(3)) or rendering(source, {**plain(3), "tools": [TOOL]}) or ""
    found = set(re.findall(r"<\|[^<>|\s]+\|>|\[/?[A-Z_]+\]|<\w+_of_turn>|<｜[^｜]+｜>|<[\|]?turn[\|]?>|\[e~\[|\]~b\]|\]~!b\[", source + sample))
    found |= {*TOKENS.values()}
    for i, text in enumerate(sorted(found - known)):
        tokenizer["added_tokens"].append({"id": 150000 + i, "content": text, "special": True, "single_word": False,
                                          "lstrip": False, "rstrip": False, "normalized": False})
    return json.dumps(tokenizer)


def inspect(folder, rows):
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    done = subprocess.run([TEMPER, "data", "inspect", "--model.path", folder, "--data.train", f"[{path}]",
                           "--data.on_bad_row", "skip", "--data.max_length", "60000", "--rows", str(len(rows))],
                          capture_output=True, text=True)
    return done.stdout + done.stderr


def problem_of(answers, row, text):
    """What is wrong with the runs of targets that inspect shows, or nothing."""
    text = text.replace("|", "")
    runs = re.findall(r"\[\[(.*?)\]\]", text, re.S)
    foreign = re.findall(r"(?:usr|sys|tol)\d+w\d+e", json.dumps(row))
    if len(runs) != len(answers):
        return f"{len(runs)} runs of targets for {len(answers)} answers"
    for run, words in zip(runs, answers):
        if not all(word in run for word in words):
            return "an answer is not in its run"
        if any(word in run for word in foreign):
            return "a run holds another's words"
        if not re.search(r"(>|\]|\[)(\\n)*$|(\\n)+$", run.strip()):
            return f"a run has no end: {run[-20:]!r}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("templates", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--show", type=int, default=0, help="rows to print of each template")
    args = parser.parse_args()
    sets = {"plain": [plain(seed) for seed in range(300)], "tools": [with_tools(seed) for seed in range(60)]}
    whole = collections.Counter()
    for path in sorted(args.templates.glob("*.jinja")):
        if args.only not in path.name:
            continue
        source = path.read_text()
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "config.json").write_text(json.dumps(MODEL))
            (folder / "tokenizer.json").write_text(tokenizer_for(source))
            (folder / "tokenizer_config.json").write_text(json.dumps(TOKENS))
            (folder / "chat_template.jinja").write_text(source)
            line, problems = [], collections.Counter()
            for kind, rows in sets.items():
                good = [row for row in rows if rendering(source, row) is not None]
                if not good:
                    rows = [{**row, "tools": [TOOL]} for row in rows]
                    good = [row for row in rows if rendering(source, row) is not None]
                out = inspect(folder, rows)
                shown = re.split(r"^row \d+ \([^\n]*?rows\.jsonl:(\d+)\)", out, flags=re.M)
                report = {int(n): body for n, body in zip(shown[1::2], shown[2::2])}
                bad = 0
                for number, row in enumerate(rows, 1):
                    if row not in good:
                        continue
                    body = report.get(number, "missing: " + out[-300:])
                    problem = problem_of(written(source, row), row, body)
                    if problem:
                        bad += 1
                        said = re.sub(r"\d+", "N", body.strip().splitlines()[0]) if "[[" not in body else problem
                        problems[f"{kind}, {len(row['messages'])} messages: {said[:230]}"] += 1
                    if number <= args.show:
                        print(body)
                line.append(f"{kind} {len(good) - bad} of {len(good)}")
                whole[kind] += bad == 0
                whole[kind + " rendered by none"] += not good
        print(f"{path.name}: {', '.join(line)}", flush=True)
        for problem, count in problems.most_common(4):
            print(f"    {count} {problem}")
    print(dict(whole))


if __name__ == "__main__":
    sys.exit(main())
