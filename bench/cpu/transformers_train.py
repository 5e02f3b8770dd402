#!/usr/bin/env python3
"""Training on the CPU in transformers: a model folder, rows of tokens from a file, AdamW with clipping. Prints one line
of JSON. compare.py calls it."""
import json
import statistics
import sys
import time

import peer

START = time.time()


def main():
    parser = peer.arguments(__doc__, "step after step")
    parser.add_argument("--rows-per-step", type=int, required=True)
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    model, data = peer.load(args)
    import torch

    model.config.use_cache = False
    model.train()
    forward = torch.compile(model) if args.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0, fused=True)
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
        "memory_gib": peer.peak_gib(), "first_step_seconds": round(first, 2), "losses": losses}))


if __name__ == "__main__":
    sys.exit(main())
