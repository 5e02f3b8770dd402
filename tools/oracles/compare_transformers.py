#!/usr/bin/env python3
"""Does transformers read a folder that Temper wrote, and answer the same? A development script (needs torch and
transformers): tools/oracles/compare_transformers.py build/release/temper MODEL_FOLDER QUESTIONS.jsonl [count]

Each question is asked greedily on both sides, through the chat template and without it; a line is printed for each
difference and the exit code is 1 if there is one."""
import json
import subprocess
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def temper_answer(program, folder, prompt, raw):
    command = [program, "generate", folder, "-p", prompt, "--greedy", "-n", "12", "--quiet"] + ["--raw"] * raw
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.rstrip("\n")


def transformers_answer(model, tokenizer, prompt, raw):
    if not raw:
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False,
                                               add_generation_prompt=True)
    ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=raw).input_ids
    with torch.no_grad():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12)
    return tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True).rstrip("\n")


def main():
    program, folder, questions = sys.argv[1:4]
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 20
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    problems = [f"{kind}: {sorted(names)}" for kind, names in info.items() if names]
    for line in list(open(questions, encoding="utf-8"))[:count]:
        prompt = json.loads(line)["messages"][0]["content"]
        for raw in (False, True):
            ours = temper_answer(program, folder, prompt, raw)
            theirs = transformers_answer(model, tokenizer, prompt, raw)
            if ours != theirs:
                problems.append(f"{prompt!r}{' raw' * raw}: temper {ours!r}, transformers {theirs!r}")
    print("\n".join(problems) or f"{count} questions answered alike, with and without the chat template")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
