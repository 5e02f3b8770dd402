#!/usr/bin/env python3
"""Makes what both sides of compare.py begin from: a model of a known shape with random bfloat16 weights in Hugging
Face's format, an adapter of it in PEFT's (--lora RANK), and random tokens. On a GPU 8 billion weights take seconds."""
import argparse
import pathlib

from shapes import EXPERTS, PROJECTIONS, SHAPES, is_mixture


def random_model(shape, device):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    kind, sizes = SHAPES[shape]
    torch.manual_seed(1)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes), dtype=torch.bfloat16)


def save_adapter(model, folder, shape, rank):
    from peft import LoraConfig, get_peft_model

    present = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
    config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=[name for name in PROJECTIONS if name in present],
                        target_parameters=EXPERTS if is_mixture(shape) else None, task_type="CAUSAL_LM")
    get_peft_model(model, config, autocast_adapter_dtype=False).save_pretrained(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("folder", type=pathlib.Path, help="gets model/, adapter/ and tokens.int32")
    parser.add_argument("--tokens", type=int, required=True, help="how many")
    parser.add_argument("--lora", type=int, default=0, help="the adapter's rank")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    import torch

    args.folder.mkdir(parents=True, exist_ok=True)
    model = random_model(args.shape, args.device)
    model.save_pretrained(args.folder / "model", max_shard_size="4GB")
    if args.lora:
        save_adapter(model, args.folder / "adapter", args.shape, args.lora)
    ids = torch.randint(0, SHAPES[args.shape][1]["vocab_size"], (args.tokens,), dtype=torch.int32)
    (args.folder / "tokens.int32").write_bytes(ids.numpy().tobytes())


if __name__ == "__main__":
    main()
