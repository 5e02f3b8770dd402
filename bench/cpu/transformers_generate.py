#!/usr/bin/env python3
"""Generation on the CPU in transformers, one greedy sequence a prompt: a model folder, prompts from a file. Prints one
line of JSON. compare.py calls it."""
import argparse
import json
import pathlib
import resource
import statistics
import sys
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("prompts", help="int32 tokens, prompt after prompt")
    parser.add_argument("--prompt", type=int, required=True)
    parser.add_argument("--new", type=int, required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], required=True)
    parser.add_argument("--threads", type=int, required=True)
    args = parser.parse_args()
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(args.threads)
    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=getattr(torch, args.dtype), attn_implementation="sdpa").eval()
    prompts = torch.frombuffer(bytearray(pathlib.Path(args.prompts).read_bytes()), dtype=torch.int32).long()
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
        "resident_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3),
        "ids": out[0, args.prompt:].tolist()}))


if __name__ == "__main__":
    sys.exit(main())
