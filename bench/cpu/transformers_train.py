#!/usr/bin/env python3
"""Training on the CPU in transformers: a model folder, rows of tokens or documents from a file, AdamW with clipping.
Prints one line of JSON. compare.py calls it."""
import json
import statistics
import sys
import time

import peer

START = time.time()


def rows(args):
    """Steps of rows without padding."""
    for ids in peer.tokens(args).view(-1, args.rows_per_step, args.length):
        yield {"input_ids": ids, "labels": ids}


def documents(args):
    """Steps of documents, padded to the longest of each by the usual collator."""
    from transformers import AutoTokenizer, DataCollatorForSeq2Seq

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.convert_ids_to_tokens(0)
    collate = DataCollatorForSeq2Seq(tokenizer, return_tensors="pt")
    for line in args.tokens.read_text().splitlines():
        step = json.loads(line)
        # A label is its own token's; a target is the token after.
        yield collate([{"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [-100, *targets[:-1]]}
                       for ids, targets in zip(step["ids"], step["targets"])])


def real_tokens(batch):
    return int(batch["attention_mask"].sum()) if "attention_mask" in batch else batch["input_ids"].numel()


def main():
    parser = peer.arguments(__doc__, "int32 tokens, step after step, or --documents")
    parser.add_argument("--documents", action="store_true", help="the file has a JSON line of documents for each step")
    parser.add_argument("--rows-per-step", type=int)
    parser.add_argument("--length", type=int)
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    model = peer.load(args)
    import torch

    batches = list((documents if args.documents else rows)(args))
    model.config.use_cache = False
    model.train()
    forward = torch.compile(model) if args.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0, fused=True)
    speeds, losses, first = [], [], None
    for batch in batches:
        begin = time.time()
        loss = forward(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(round(loss.item(), 5))
        first = first or time.time() - START
        speeds.append(real_tokens(batch) / (time.time() - begin))
    usual = speeds[1:] if not args.compile else speeds[2:]
    print(json.dumps({
        "tokens_per_second": round(statistics.median(usual), 1),
        "memory_gib": peer.peak_gib(), "first_step_seconds": round(first, 2), "losses": losses}))


if __name__ == "__main__":
    sys.exit(main())
