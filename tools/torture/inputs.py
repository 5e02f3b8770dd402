#!/usr/bin/env python3
"""Spoils inputs: rows of data, a model's JSON and weights, its tokenizer, configurations, adapters, prompts, and files of a run that
resumes. Each command has to end with exit code 0, or with 2 and a sentence that names the file or its folder; never by a signal, never
with 1, within 30 seconds and 2 GB.

  tools/torture/inputs.py TEMPER [--inputs 2000] [--seed 1] [--jobs 1]
"""

import os
import shutil

import processes
import spoiled
import tables

LONGEST, MOST_KIB = 30, 2 << 20
TRAIN = ["--train.steps", "1", "--checkpoint.every_steps", "1"]
MODEL = ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors"]
TARGETS = [*[("model", name) for name in MODEL], ("rows", "train.jsonl"), ("yaml", "run.yaml"), ("prompts", "prompts.jsonl"),
           ("adapter", "adapter_config.json"), ("adapter", "adapter_model.safetensors"), ("run", "metrics.jsonl"),
           ("run", "config.yaml"), ("run", "kernels.json"), ("run", "console.log")]


def main():
    asked = tables.arguments(__doc__, ("--inputs", 2000, "in all"))
    tasks = [TARGETS[number % len(TARGETS)] for number in range(asked.inputs)]
    tables.work("inputs: exit code 0, or 2 and a sentence that names the file, of all", asked, tasks, torture)


def torture(stand, add, chance, task):
    kind, name = task
    place = stand.output("inputs")
    path, command = KINDS[kind](stand, place, name)
    manner = chance.choice(["bytes", "bytes", "value", "instead"])
    if manner == "value" and not name.endswith(".json"):
        manner = "bytes"
    how = {"bytes": spoiled.spoil_bytes, "value": spoiled.spoil_value, "instead": spoiled.replace}[manner](path, chance)
    code, said, used = processes.measured(command, LONGEST)
    is_gone = not os.path.exists(path)  # then it may be what the file would have said that is missing
    named = name in said or os.path.dirname(path) in said or (is_gone and said.strip())
    wrong = ""
    if code not in (0, 2) or "defect" in said:
        wrong = "it has to be 0 or 2"
    elif code == 2 and not named:
        wrong = "the file is not named"
    elif used > MOST_KIB:
        wrong = f"it took {used >> 10} MiB"
    add(f"{kind}, {name}, {manner}", not wrong, f"{how}: exit code {code}: {said[-400:]!r}; {wrong}")


def of_model(stand, place, name):
    model = os.path.join(place, "model")
    shutil.copytree(stand.model, model)
    return os.path.join(model, name), stand.command("sft", os.path.join(place, "run"), 1, "--model.path", model, *TRAIN)


def of_rows(stand, place, name):
    os.makedirs(place)
    rows = os.path.join(place, name)
    shutil.copyfile(os.path.join(stand.rows, name), rows)
    return rows, stand.command("sft", os.path.join(place, "run"), 1, "--data.train", rows, *TRAIN)


def of_yaml(stand, place, name):
    os.makedirs(place)
    yaml = os.path.join(place, name)
    shutil.copyfile(stand.kinds["sft"][0], yaml)
    return yaml, [stand.temper, "train", yaml, "--output", os.path.join(place, "run"), *TRAIN]


def of_prompts(stand, place, name):
    os.makedirs(place)
    rows = os.path.join(place, name)
    with open(os.path.join(stand.rows, name)) as all_rows, open(rows, "w") as some:
        some.writelines(line for line, _ in zip(all_rows, range(5)))
    return rows, [stand.temper, "batch", stand.model, rows, "--out", os.path.join(place, "answers.jsonl"), "-n", "4", "--threads", "1"]


def trained_adapter(stand):
    out = os.path.join(stand.folder, "adapter_run")
    stand.plainly(*stand.command("sft", out, 1, "--adapters", "[{name: a, rank: 2}]", *TRAIN)[1:])
    return next(folder for folder, _, names in os.walk(out) if "adapter_config.json" in names)


def of_adapter(stand, place, name):
    adapter = os.path.join(place, "adapter")
    shutil.copytree(stand.once("adapter", lambda: trained_adapter(stand)), adapter)
    command = stand.command("sft", os.path.join(place, "run"), 1, "--adapters", f"[{{name: a, from: {adapter}}}]", *TRAIN)
    return os.path.join(adapter, name), command


def of_run(stand, place, name):
    def train():
        out = os.path.join(stand.folder, "run")
        stand.plainly(*stand.command("sft", out, 1, *TRAIN)[1:])
        return out

    run = os.path.join(place, "run")
    shutil.copytree(stand.once("run", train), run)
    return os.path.join(run, name), stand.command("sft", run, 1, *TRAIN[2:], "--train.steps", "2")


KINDS = {"model": of_model, "rows": of_rows, "yaml": of_yaml, "prompts": of_prompts, "adapter": of_adapter, "run": of_run}


if __name__ == "__main__":
    main()
