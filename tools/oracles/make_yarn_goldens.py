#!/usr/bin/env python3
"""Writes tests/goldens/yarn with transformers: DeepSeek-V3's attention at positions far apart, under YaRN.

Usage: make_yarn_goldens.py     needs torch and transformers; `make test` needs neither

YaRN has two corrections there: cosines and sines are scaled by the ratio of two factors, scores by the square of one of
them. What is wrong in either shows at late positions, and not at position 0. A case is a model of one layer with random
weights, as transformers saves it, and positions.safetensors next to it:
  input_ids, position_ids   one document whose tokens stand far apart, up to position 32767
  logits                    in float32; each token sees those before it
"""
import pathlib
import shutil

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, DeepseekV3Config

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "yarn"
CASES = {"equal": dict(mscale=1.0, mscale_all_dim=1.0), "unequal": dict(mscale=1.0, mscale_all_dim=0.4),
         "all_dim_alone": dict(mscale_all_dim=0.8), "mscale_alone": dict(mscale=0.7)}
POSITIONS = [0, 1, 3, 40, 41, 511, 4095, 4096, 8000, 16384, 16390, 24000, 32766, 32767]

SMALL = dict(vocab_size=24, hidden_size=16, intermediate_size=16, q_lora_rank=10, kv_lora_rank=12)
# The base of an adapter (make_adapter_goldens.py), which is saved in several files.
WIDER = {"unequal": dict(vocab_size=64, hidden_size=48, intermediate_size=128, q_lora_rank=24, kv_lora_rank=16)}


def make(name, rope):
    torch.manual_seed(13)
    config = DeepseekV3Config(
        **(SMALL | WIDER.get(name, {})), num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
        qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8, first_k_dense_replace=1, max_position_embeddings=32768,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
        rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, beta_fast=32.0, beta_slow=1.0,
                             original_max_position_embeddings=4096, **rope))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data = (torch.randn(parameter.shape) * parameter.shape[1] ** -0.5).bfloat16().float()
    folder = GOLDENS / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    ids = torch.randint(0, config.vocab_size, (1, len(POSITIONS)))
    positions = torch.tensor([POSITIONS])
    # An explicit mask: gaps between positions would otherwise be taken for ends of documents.
    mask = torch.full((len(POSITIONS), len(POSITIONS)), torch.finfo(torch.float32).min).triu(1)[None, None]
    with torch.no_grad():
        logits = model(input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False).logits
    save_file({"input_ids": ids, "position_ids": positions, "logits": logits.contiguous()},
              folder / "positions.safetensors")
    print(name, sum(file.stat().st_size for file in folder.iterdir()), "bytes")


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    for case, factors in CASES.items():
        make(case, factors)
