#!/usr/bin/env python3
"""Generation on the CPU in transformers, one greedy sequence a prompt: a model folder, prompts from a file. Prints one
line of JSON. compare.py calls it."""
import json
import statistics
import sys
import time

import peer


def main():
    parser = peer.arguments(__doc__, "int32 tokens, prompt after prompt")
    parser.add_argument("--prompt", type=int, required=True)
    parser.add_argument("--new", type=int, required=True)
    parser.add_argument("--runs", type=int, required=True)
    args = parser.parse_args()
    model, prompts = peer.load(args), peer.tokens(args)
    import torch

    model.eval()
    speeds, prefills = [], []

    def generate(ids, count):
        begin = time.time()
        out = model.generate(ids, max_new_tokens=count, min_new_tokens=count, do_sample=False)
        return time.time() - begin, out

    with torch.inference_mode():
        for run, ids in enumerate(prompts.view(-1, 1, args.prompt)[:args.runs + 1]):
            prefill, _ = generate(ids, 1)
            both, out = generate(ids, args.new)
            if run > 0:  # the first warms up
                prefills.append(prefill)
                speeds.append((args.new - 1) / (both - prefill))
    print(json.dumps({
        "tokens_per_second": round(statistics.median(speeds), 2), "prefill_ms": round(1e3 * statistics.median(prefills), 1),
        "resident_gib": peer.peak_gib(),
        "ids": out[0, args.prompt:].tolist()}))


if __name__ == "__main__":
    sys.exit(main())
