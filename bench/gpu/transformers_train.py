#!/usr/bin/env python3
"""Training speed of a known shape in transformers, as people run it: torch.compile, SDPA, fused AdamW, bfloat16
parameters, gradients and moments, random weights, rows of random tokens. Prints one line of JSON."""
import argparse
import json
import statistics
import sys
import time

START = time.time()
SHAPES = {  # vocabulary, hidden, inner, layers, heads, KV heads, head_dim, tied
    "qwen3-0.6b": (151936, 1024, 3072, 28, 16, 8, 128, True),
    "qwen3-1.7b": (151936, 2048, 6144, 28, 16, 8, 128, True),
    "qwen3-8b": (151936, 4096, 12288, 36, 32, 8, 128, False),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lora", type=int, default=0, help="rank of an adapter on all seven projections (needs peft)")
    args = parser.parse_args()
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    vocab, hidden, inner, layers, heads, kv_heads, head_dim, tied = SHAPES[args.shape]
    config = Qwen3Config(
        vocab_size=vocab, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim, tie_word_embeddings=tied,
        max_position_embeddings=4096, attn_implementation="sdpa", use_cache=False)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Qwen3ForCausalLM(config)
    if args.lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=args.lora, lora_alpha=2 * args.lora, target_modules=[
            "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]))
    model.train()
    learning = [p for p in model.parameters() if p.requires_grad]
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(learning, lr=1e-5, fused=True)
    seconds = []
    first = None
    for step in range(args.steps + 2):
        begin = time.time()
        ids = torch.randint(0, vocab, (args.rows, args.length), device="cuda")
        loss = compiled(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learning, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        if first is None:
            first = time.time() - START
        if step >= 2:
            seconds.append(time.time() - begin)
    tokens = args.rows * args.length
    print(json.dumps({
        "shape": args.shape, "tokens_per_second": round(tokens / statistics.median(seconds)),
        "memory_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2), "first_step_seconds": round(first, 1),
        "loss": round(value, 4)}))


if __name__ == "__main__":
    sys.exit(main())
