"""What the scripts that run the peer share: a model folder in transformers on the CPU."""
import argparse
import pathlib
import resource


def arguments(description, tokens):
    """A parser of what every script takes; `tokens` says what the file of tokens holds."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("tokens", type=pathlib.Path, help=tokens)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--experts", default="", help="experts_implementation of a mixture; omitted: the default")
    return parser


def load(args):
    """The model."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(args.threads)
    return AutoModelForCausalLM.from_pretrained(
        args.model, dtype=getattr(torch, args.dtype), attn_implementation="sdpa",
        **({"experts_implementation": args.experts} if args.experts else {}))


def tokens(args):
    """The int32 tokens of the file."""
    import torch

    return torch.frombuffer(bytearray(args.tokens.read_bytes()), dtype=torch.int32).long()


def peak_gib():
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3)
