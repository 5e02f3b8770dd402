#!/usr/bin/env python3
"""Proves every division of a run between 2, 4 and 8 ranks with `temper verify-layout`.

Goes over all products of the degrees of the mesh's axes (with each shard_level and both methods of context ranks), for small
models of four kinds (dense, a mixture, a mixture with latent attention and a shared expert, a hybrid), trained
in full, by adapters with dropout, and by preferences. Prints for each kind the worst figures of its meshes, and
every mesh that is refused or differs. The exit code is 1 where one differs.

  tools/sweep_layouts.py build/release/temper [--ranks 2,4,8] [--updates 20] [--only dense,adapters] [--dtype bfloat16]
"""
import argparse
import itertools
import json
import math
import os
import re
import subprocess
import sys
import tempfile

COMMON = {
    "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 64,
    "max_position_embeddings": 256, "num_hidden_layers": 2, "rms_norm_eps": 1e-6, "vocab_size": 64,
    "attention_bias": False, "bos_token_id": None, "eos_token_id": None, "tie_word_embeddings": False,
}
ROUTED = {"moe_intermediate_size": 32, "num_experts_per_tok": 2, "norm_topk_prob": True}
MODELS = {
    "dense": COMMON | {
        "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 8, "rope_theta": 10000.0},
    "mixture": COMMON | ROUTED | {
        "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 8, "rope_theta": 10000.0, "num_experts": 8,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "router_aux_loss_coef": 0.02},
    "latent": COMMON | ROUTED | {
        "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "num_attention_heads": 8,
        "num_key_value_heads": 8, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 8, "n_shared_experts": 1, "n_group": 4,
        "topk_group": 2, "first_k_dense_replace": 1, "routed_scaling_factor": 1.5, "rope_theta": 10000.0,
        "scoring_func": "sigmoid", "topk_method": "noaux_tc"},
    "hybrid": COMMON | ROUTED | {
        "model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"], "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 8, "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
        "num_experts": 8, "decoder_sparse_step": 1, "mlp_only_layers": [], "router_aux_loss_coef": 0.02,
        "shared_expert_intermediate_size": 16, "layer_types": ["linear_attention", "full_attention"],
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_num_key_heads": 8,
        "linear_num_value_heads": 16, "linear_value_head_dim": 8},
}
LINEARS = {"name": "linears", "rank": 4, "dropout": 0.1}
EXPERTS = {"name": "experts", "rank": 3,
           "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.gate.weight"]}
WAYS = {
    "full": lambda model: [],
    "adapters": lambda model: ["--adapters", json.dumps([LINEARS] if model == "dense" else [LINEARS, EXPERTS])],
    "preferences": lambda model: ["--recipe", "preference", "--data.max_length", "64"],
}
METHODS = ["ulysses", "ring"]  # of context ranks
AXES = ["replicate", "shard", "context", "tensor", "expert"]  # of the mesh (src/weights/mesh.h)
FIGURES = ["first loss", "later losses", "gradient norms", "gradients"]


def meshes(ranks, experts):
    """All products of the degrees, with every level of sharding where there is something to share."""
    powers = [2**i for i in range(ranks.bit_length())]
    for degrees in itertools.product(powers, repeat=len(AXES)):
        mesh = dict(zip(AXES, degrees))
        if math.prod(degrees) != ranks or (mesh["expert"] > 1 and not experts):
            continue
        for level in (1, 2, 3) if mesh["shard"] * mesh["context"] * mesh["expert"] > 1 else (1,):
            for method in METHODS if mesh["context"] > 1 else (None,):
                yield mesh | {"shard_level": level} | ({"context_method": method} if method else {})


def verify(program, run, ranks, mesh, flags):
    command = [program, "verify-layout", run, "--ranks", str(ranks), *flags]
    for key, degree in mesh.items():
        command += [f"--parallel.{key}", str(degree)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False,
                          env=os.environ | {"OMP_NUM_THREADS": "1"})
    found = {}
    for name in FIGURES:
        match = re.search(rf"^{name} +([^\s,]+)", done.stdout + done.stderr, re.M)
        if match:
            found[name] = float(match[1])
    return done.returncode, found, done.stderr.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--updates", default="20")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--only", default="", help="kinds of models and ways of training, separated by commas")
    given = parser.parse_args()
    only = set(filter(None, given.only.split(",")))
    models = [name for name in MODELS if name in only] or list(MODELS)
    ways = [name for name in WAYS if name in only] or list(WAYS)
    differ = 0
    print(f"{'model':9}{'way':13}{'ranks':>5}{'meshes':>8}  " + "".join(f"{name:>16}" for name in FIGURES))
    with tempfile.TemporaryDirectory() as folder:
        for model, way, ranks in itertools.product(models, ways, map(int, given.ranks.split(","))):
            path = os.path.join(folder, model)
            os.makedirs(path, exist_ok=True)
            with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
                json.dump(MODELS[model], file)
            run = os.path.join(folder, "run.yaml")
            with open(run, "w", encoding="utf-8") as file:
                file.write(f"model: {{path: {path}}}\ndata: {{train: [{folder}/none.jsonl]}}\n")
            flags = ["--updates", given.updates, "--dtype", given.dtype, *WAYS[way](model)]
            worst, count, notes = dict.fromkeys(FIGURES, 0.0), 0, []
            for mesh in meshes(ranks, model != "dense"):
                code, found, error = verify(given.program, run, ranks, mesh, flags)
                count += 1
                for name, figure in found.items():
                    worst[name] = max(worst[name], figure)
                if code != 0:
                    differ += code != 2
                    notes.append(f"  {mesh}: {'refused' if code == 2 else 'differs'}: {error}")
            print(f"{model:9}{way:13}{ranks:5}{count:8}  "
                  + "".join(f"{worst[name]:16.1e}" for name in FIGURES), flush=True)
            print("\n".join(notes), end="\n" if notes else "", flush=True)
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
