#!/usr/bin/env python3
"""Shows how a run spread tokens over its experts.

Usage: loads.py RUN     reads RUN/metrics.jsonl
"""
import json
import pathlib
import sys


def main():
    path = pathlib.Path(sys.argv[1]) / "metrics.jsonl"
    steps = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    steps = [step for step in steps if "expert_load" in step]
    if not steps:
        sys.exit(f"{path}: no step of a mixture of experts")
    print("largest load of an expert over the mean | entropy of the router | experts without a token, by layer")
    for step in steps[::max(1, len(steps) // 10)] + steps[-1:]:
        loads = "  ".join(f"{load:5.2f}" for load in step["expert_load"])
        entropies = "  ".join(f"{entropy:4.2f}" for entropy in step["router_entropy"])
        idle = "  ".join(str(count) for count in step["idle_experts"])
        print(f"step {step['step']:5}  loss {step['loss']:.3f}  {loads} | {entropies} | {idle}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
