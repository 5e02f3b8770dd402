#!/usr/bin/env python3
"""Proves divisions of a run between 2, 4 and 8 ranks with `temper verify-layout`.

Goes over all products of pipeline stages (with one and two parts of the layers each, and each schedule) and the degrees of the
mesh's axes (with each shard_level and method of context ranks), for small models of six kinds (tools/layout_models.py), trained in full,
by adapters with dropout, by preferences and by rewards. Asks the program first which of these ways of training it refuses in
stages: their cases have one stage. --cover takes a few of these cases, always the same ones, in which any two values occur
together that can, with one stage and with several: degrees of two axes, a degree and a level, a method and a kind of model, a
kind of model and a way of training, and so on. Prints for each kind of model and way the worst figures, and every case that is refused or differs. The
exit code is 1 where there is one.

  tools/sweep_layouts.py build/release/temper [--cover] [--ranks 2,4,8] [--updates 20] [--only dense,adapters]
                         [--dtype bfloat16] [--jobs 2]
"""
import argparse
import concurrent.futures
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile

from layout_models import DENSE, MODELS, WAYS

METHODS = ["auto", "ulysses", "ring", "usp"]  # of context ranks; auto is another one for hybrids alone
AXES = ["replicate", "shard", "context", "tensor", "expert"]  # of the mesh (src/weights/mesh.h)
STAGES = [1, 2, 4]  # of a pipeline of meshes
SCHEDULES = [(1, "1f1b"), (1, "zb_h1"), (2, "interleaved")]  # with the parts of the layers on each stage
FIGURES = ["first loss", "later losses", "gradient norms", "gradients"]


def methods(context):
    """Groups of ranks that exchange heads (usp) need four ranks at least."""
    if context == 1:
        return [None]
    return [method for method in METHODS if method != "usp" or context >= 4]


def meshes(ranks, experts):
    """All products of the degrees, with every level of sharding where there is something to share."""
    powers = [2**i for i in range(ranks.bit_length())]
    for degrees in itertools.product(powers, repeat=len(AXES)):
        mesh = dict(zip(AXES, degrees))
        if math.prod(degrees) != ranks or (mesh["expert"] > 1 and not experts):
            continue
        for level in (1, 2, 3) if mesh["shard"] * mesh["context"] * mesh["expert"] > 1 else (1,):
            for method in methods(mesh["context"]):
                yield mesh | {"shard_level": level} | ({"context_method": method} if method else {})


def divisions(ranks, experts, staged):
    """Pipelines of meshes; of one stage alone unless `staged`."""
    for stages in STAGES if staged else STAGES[:1]:
        for mesh in meshes(ranks // stages, experts) if ranks % stages == 0 else ():
            for chunks, schedule in SCHEDULES if stages > 1 else [(1, "")]:
                yield {"pipeline": stages} | mesh | (
                    {"pipeline_chunks": chunks, "pipeline_schedule": schedule} if schedule else {})


def is_for(model, way, division):
    """Whether the program takes the choice, and it is not another one by another name."""
    if division.get("pipeline_schedule") == "zb_h1" and (way == "adapters" or division["shard_level"] == 3):
        return False
    return division.get("context_method") != "auto" or model == "hybrid"


def all_cases(models, ways, numbers, unstaged=()):
    """`unstaged`: (model, way) that are not for several stages."""
    return [{"model": model, "way": way} | division for model, way, ranks in itertools.product(models, ways, numbers)
            for division in divisions(ranks, model not in DENSE, (model, way) not in unstaged)
            if is_for(model, way, division)]


def pairs_of(case):
    """Any two of its values, with what they are values of, and whether it has several stages."""
    return [(case["pipeline"] > 1, *pair) for pair in itertools.combinations(sorted(case.items()), 2)]


def cover(cases):
    """Some of the cases, with all pairs of values that there are in all: one after the other that which has most new
    pairs, of few ranks first."""
    bits = {}
    masks = [sum(1 << bits.setdefault(pair, len(bits)) for pair in pairs_of(case)) for case in cases]
    order = sorted(range(len(cases)), key=lambda number: ranks_of(cases[number]))
    missing, chosen = (1 << len(bits)) - 1, []
    while missing:
        best = max(order, key=lambda number: (masks[number] & missing).bit_count())
        missing &= ~masks[best]
        chosen.append(best)
    return [cases[number] for number in sorted(chosen)]


def ranks_of(case):
    return math.prod(case[axis] for axis in ["pipeline", *AXES])


def verify(program, folder, case, flags):
    """The exit code, the figures and the error of a case."""
    command = [program, "verify-layout", os.path.join(folder, case["model"], "run.yaml"), "--ranks", str(ranks_of(case)),
               *flags, *WAYS[case["way"]](case["model"])]
    for key, value in case.items():
        if key not in ("model", "way"):
            command += [f"--parallel.{key}", str(value)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False,
                          env=os.environ | {"OMP_NUM_THREADS": "1"})
    found = {}
    for name in FIGURES:
        match = re.search(rf"^{name} +([^\s,]+)", done.stdout + done.stderr, re.M)
        if match:
            found[name] = float(match[1])
    return done.returncode, found, done.stderr.strip()


def refused_in_stages(program, folder, models, ways, workers):
    """Of (model, way) those that the program is not for with several stages, and why."""
    tried = list(itertools.product(models, ways))
    cases = [{"model": model, "way": way, "pipeline": 2} | dict.fromkeys(AXES, 1) for model, way in tried]
    found = workers.map(lambda case: verify(program, folder, case, ["--updates", "1"]), cases)
    return {pair: error for pair, (code, _, error) in zip(tried, found) if code == 2 and "[parallel.pipeline]" in error}


def write_models(folder, models):
    for model in models:
        path = os.path.join(folder, model)
        os.makedirs(path)
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
            json.dump(MODELS[model], file)
        with open(os.path.join(path, "run.yaml"), "w", encoding="utf-8") as file:
            file.write(f"model: {{path: {path}}}\ndata: {{train: [{folder}/none.jsonl]}}\n")


def report(cases, results):
    """Prints a line for the cases of each model and way as soon as they are known; how many were not as one rank is."""
    wrong = 0
    print(f"{'model':9}{'way':13}{'cases':>7}  " + "".join(f"{name:>16}" for name in FIGURES), flush=True)
    for (model, way), group in itertools.groupby(zip(cases, results), lambda each: (each[0]["model"], each[0]["way"])):
        worst, count, notes = dict.fromkeys(FIGURES, 0.0), 0, []
        for case, (code, found, error) in group:
            count += 1
            for name, figure in found.items():
                worst[name] = max(worst[name], figure)
            if code != 0:
                notes.append(f"  {case}: {'refused' if code == 2 else 'differs'}: {error}")
        wrong += len(notes)
        print(f"{model:9}{way:13}{count:7}  " + "".join(f"{worst[name]:16.1e}" for name in FIGURES), flush=True)
        print("\n".join(notes), end="\n" if notes else "", flush=True)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--cover", action="store_true", help="few cases with all pairs of values")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--updates", default="20")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--only", default="", help="kinds of models and ways of training, separated by commas")
    parser.add_argument("--jobs", type=int, default=1, help="cases at the same time")
    given = parser.parse_args()
    only = set(filter(None, given.only.split(",")))
    if unknown := only - {*MODELS, *WAYS}:
        parser.error(f"--only has {', '.join(sorted(unknown))}; expected of {', '.join([*MODELS, *WAYS])}")
    models = [name for name in MODELS if name in only] or list(MODELS)
    ways = [name for name in WAYS if name in only] or list(WAYS)
    flags = ["--updates", given.updates, "--dtype", given.dtype]
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(given.jobs) as workers:
        write_models(folder, models)
        refused = refused_in_stages(given.program, folder, models, ways, workers)
        for (model, way), reason in refused.items():
            print(f"not in stages: {model}, {way}: {reason}", flush=True)
        cases = all_cases(models, ways, list(map(int, given.ranks.split(","))), refused)
        cases = cover(cases) if given.cover else cases
        wrong = report(cases, workers.map(lambda case: verify(given.program, folder, case, flags), cases))
    print(f"{len(cases)} cases, {wrong} of them refused or other than one rank")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
