#!/usr/bin/env python3
"""Training on the CPU in transformers: a model folder, rows of tokens from a file, AdamW with clipping. Prints one line
of JSON. compare.py calls it."""
import argparse
import json
import pathlib
import resource
import statistics
import sys
import time

START = time.time()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("rows", help="int32 tokens, step after step")
    parser.add_argument("--rows-per-step", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(args.threads)
    model = AutoModelForCausalLM.from_pretrained(
        args.model, dtype=getattr(torch, args.dtype), attn_implementation="sdpa", use_cache=False)
    model.train()
    forward = torch.compile(model) if args.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0, fused=True)
    data = torch.frombuffer(bytearray(pathlib.Path(args.rows).read_bytes()), dtype=torch.int32).long()
    seconds, losses, first = [], [], None
    for ids in data.view(-1, args.rows_per_step, args.length):
        begin = time.time()
        loss = forward(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(round(loss.item(), 5))
        first = first or time.time() - START
        seconds.append(time.time() - begin)
    usual = seconds[1:] if not args.compile else seconds[2:]
    print(json.dumps({
        "tokens_per_second": round(args.rows_per_step * args.length / statistics.median(usual), 1),
        "memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "first_step_seconds": round(first, 2), "losses": losses}))


if __name__ == "__main__":
    sys.exit(main())
