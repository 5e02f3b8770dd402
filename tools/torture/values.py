#!/usr/bin/env python3
"""Writes NaN, infinities, 1e38 and subnormal numbers into one element of a tensor of a model, of an adapter, or of a checkpoint. What
reads it, training, evaluating, merging and answering, has to end with a sentence that names the tensor or says what is not finite, or
has to leave and print finite numbers alone.

  tools/torture/values.py TEMPER [--values 400] [--seed 1] [--jobs 1]
"""

import math
import os
import re
import shutil

import inputs
import processes
import safetensors
import tables

# Of a checkpoint bits are hashed: what is changed there counts as damage (damage.py).
VALUES = {"NaN": math.nan, "infinity": math.inf, "-infinity": -math.inf, "1e38": 1e38, "-1e38": -1e38, "1e-40": 1e-40}
SAYS = re.compile(r"\b(nan|inf|infinit\w*|finite|overflow\w*|too large)\b", re.IGNORECASE)
SEVERAL = ["train", "adapters", "eval", "batch", "bfloat16", "merge", "adapter"]


def main():
    asked = tables.arguments(__doc__, ("--values", 400, "in all"))
    names = list(VALUES)
    tasks = [(SEVERAL[number % len(SEVERAL)], names[number // len(SEVERAL) % len(names)]) for number in range(asked.values)]
    tables.work("values: named, or finite in all that is left, of all", asked, tasks, torture)


def torture(stand, add, chance, task):
    what, name = task
    place = stand.output("values")
    model, adapter = os.path.join(place, "model"), os.path.join(place, "adapter")
    shutil.copytree(stand.model, model)
    shutil.copytree(stand.once("adapter", lambda: inputs.trained_adapter(stand)), adapter)
    spoiled = os.path.join(*((adapter, "adapter_model.safetensors") if what in ("merge", "adapter") else (model, "model.safetensors")))
    tensor, at = safetensors.put(spoiled, VALUES[name], chance)
    out = os.path.join(place, "out")
    code, said, printed = processes.spoken(command_of(stand, what, model, adapter, out))
    said, printed = (text.replace(stand.folder, "") for text in (said, printed))  # the words may be part of its name
    wrong = ""
    if code not in (0, 2, 4) or "defect" in said:
        wrong = "it has to be 0, 2 or 4"
    elif code != 0 and not (SAYS.search(said) or tensor in said):
        wrong = "neither the tensor nor what it has is named"
    elif code == 0 and not SAYS.search(said):
        not_finite = [path for path in safetensors.files_of(out) if not safetensors.is_finite(path)]
        if not_finite or SAYS.search(printed) or (what in ("eval", "batch", "train") and name in ("NaN", "infinity", "-infinity")):
            wrong = f"nothing is said; not finite: {not_finite} {printed[-200:]!r}"
    add(f"{what}, {name}", not wrong, f"{tensor}[{at}]: exit code {code}: {said[-400:]!r}; {wrong}")


def command_of(stand, what, model, adapter, out):
    rows = os.path.join(stand.rows, "eval.jsonl")
    of_model = ["--model.path", model]
    train = stand.command("sft", out, 1, *of_model, "--train.steps", "3")
    adapted = ["--adapters", f"[{{name: a, from: {adapter}}}]"]
    return {
        "train": train,
        "adapters": [*train, "--adapters", "[{name: a, rank: 2}]"],
        "adapter": [*train, *adapted],
        "eval": [stand.temper, "eval", *of_model, "--data.eval", rows],
        "batch": [stand.temper, "batch", model, os.path.join(stand.rows, "prompts.jsonl"), "--out", f"{out}.jsonl", "-n", "4"],
        "merge": [stand.temper, "merge", adapter, out, "--base", model],
        "bfloat16": [*train, "--train.z_loss", "1e-4", "--model.dtype", "bfloat16"],
    }[what]


if __name__ == "__main__":
    main()
