#!/usr/bin/env python3
"""Training on a GPU in transformers, as people run it: torch.compile, SDPA, grouped_mm for experts, fused AdamW,
bfloat16 parameters, gradients and moments; with --adapter PEFT's LoRA of a frozen model. Rows of tokens come from a
file of int32. Prints one line of JSON. compare.py calls it."""
import argparse
import json
import pathlib
import statistics
import sys
import time

START = time.time()


def load(args):
    """The model, and the parameters that learn."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(args.model)
    experts = {"experts_implementation": "grouped_mm"} if hasattr(config, "num_experts_per_tok") else {}
    model = AutoModelForCausalLM.from_pretrained(
        args.model, config=config, dtype=torch.bfloat16, attn_implementation="sdpa", **experts).to(args.device)
    model.config.use_cache = False
    if args.checkpointing == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if args.adapter:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, args.adapter, is_trainable=True,
                                          autocast_adapter_dtype=args.adapter_dtype == "float32")
    model.train()
    learning = [p for p in model.parameters() if p.requires_grad]
    dtypes = {str(p.dtype).removeprefix("torch.") for p in learning}
    if args.adapter and dtypes != {args.adapter_dtype}:
        raise SystemExit(f"the adapter is {dtypes}, not {args.adapter_dtype}")
    return model, learning


def steps_of(args):
    import torch

    ids = torch.frombuffer(bytearray(args.tokens.read_bytes()), dtype=torch.int32)
    per_step = args.rows * args.length
    for step in range(min(args.steps + args.warmup, len(ids) // per_step)):
        part = ids[step * per_step:(step + 1) * per_step]
        yield part.view(args.rows, args.length).to(args.device).long()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("tokens", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=10, help="timed, behind --warmup")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--adapter", type=pathlib.Path, help="PEFT's folder: train it, not the model")
    parser.add_argument("--adapter-dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--checkpointing", choices=["none", "full"], default="none")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    import torch

    model, learning = load(args)
    forward = model if args.eager else torch.compile(model)
    optimizer = torch.optim.AdamW(learning, lr=args.lr, weight_decay=0.0, fused=True)
    seconds, losses, norms, first = [], [], [], None
    for ids in steps_of(args):
        begin = time.time()
        loss = forward(input_ids=ids, labels=ids).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(learning, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        norms.append(norm.item())
        seconds.append(time.time() - begin)
        first = first or time.time() - START
    memory = torch.cuda.max_memory_reserved() / 2**30 if args.device.startswith("cuda") else 0
    print(json.dumps({
        "tokens_per_second": round(args.rows * args.length / statistics.median(seconds[args.warmup:])),
        "memory_gib": round(memory, 2), "first_step_seconds": round(first, 1),
        "losses": [round(loss, 5) for loss in losses], "grad_norms": [round(norm, 5) for norm in norms]}))


if __name__ == "__main__":
    sys.exit(main())
