#!/usr/bin/env python3
"""Writes tests/goldens/adapters with PEFT: adapters of the small models there, and what PEFT makes of them.

Usage: make_adapter_goldens.py [CASE...]     needs torch, transformers and peft; `make test` needs none of them

A case is an adapter's folder as PEFT saves it, and golden.safetensors next to it:
  input_ids, labels  one batch; the loss is the mean over all labels that are not -100
  logits, loss       of the model with the adapter, in float32
  grad.KEY           of each trained tensor, by its name in the adapter's file
  merged.NAME        weights that merge_and_unload changed, of the first layer and outside of layers; of models whose files
                     are in float32
"""
import pathlib
import shutil
import sys

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens"
CASES = {
    # Of this family PEFT takes an MLP's names for those of experts.
    "deepseek_v3_attention": ("yarn/unequal", dict(r=4, lora_alpha=6, target_modules=[
        "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"])),
    "llama_all_linear": ("llama", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "llama_head": ("llama", dict(r=8, lora_alpha=4, target_modules=["v_proj", "embed_tokens", "lm_head"])),
    "qwen2_bias": ("qwen2", dict(r=6, lora_alpha=9, use_rslora=True, bias="lora_only",
                                 target_modules=["q_proj", "o_proj", "down_proj"],
                                 exclude_modules=["model.layers.0.mlp.down_proj"],
                                 rank_pattern={"o_proj": 48, r"^model\.layers\.1\..*down_proj": 3},
                                 alpha_pattern={"q_proj": 5})),
    "qwen2_all_biases": ("qwen2", dict(r=2, target_modules=["gate_proj"], bias="all")),
    "qwen3_whole": ("qwen3", dict(r=4, target_modules=r".*\.[02]\.(self_attn\.[kv]_proj|mlp\.up_proj)",
                                  modules_to_save=["input_layernorm", "q_norm", "norm", "o_proj"])),
    # Modules that are fused in files; norms with an offset, behind modules and of all heads; a divided head.
    "phi3_all_linear": ("phi3_trained", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "gemma3_norms": ("gemma3_text_trained", dict(r=2, target_modules=["down_proj", "embed_tokens"],
                                                 modules_to_save=["q_norm", "post_feedforward_layernorm", "norm"])),
    "olmo2_norms": ("olmo2_trained", dict(r=2, target_modules=["v_proj"],
                                          modules_to_save=["q_norm", "post_attention_layernorm"])),
    "granite_head": ("granite_trained", dict(r=2, target_modules=["k_proj", "lm_head"])),
}


def randomize(model):
    """Every trained tensor becomes something that changes the model."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            spread = 0.5 if "lora_A" in name else 0.1
            parameter.data += spread * torch.randn(parameter.shape) / parameter.shape[-1] ** 0.5


def batch(vocab):
    ids = torch.randint(0, vocab, (2, 13))
    labels = ids.clone()
    labels[0, :5] = -100
    return ids, labels


def gradients(model, keys):
    """By the names of the file: PEFT's own name of the adapter is left out."""
    found = {}
    for name, parameter in model.named_parameters():
        key = name.replace(".default", "").replace(".modules_to_save", "")
        if parameter.grad is not None and key in keys:
            found["grad." + key] = parameter.grad.clone()
    return found


def make(name, family, settings):
    torch.manual_seed(sum(map(ord, name)))
    folder = GOLDENS / "adapters" / name
    shutil.rmtree(folder, ignore_errors=True)
    base = AutoModelForCausalLM.from_pretrained(GOLDENS / family, dtype=torch.float32,
                                                attn_implementation="eager")
    before = {key: value.clone() for key, value in base.state_dict().items()}
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **settings))
    model.peft_config["default"].base_model_name_or_path = family
    randomize(model)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    keys = load_file(folder / "adapter_model.safetensors").keys()

    ids, labels = batch(base.config.vocab_size)
    out = model(input_ids=ids, labels=labels)
    out.loss.backward()
    golden = {"input_ids": ids, "labels": labels, "logits": out.logits.detach(), "loss": out.loss.detach().reshape(1)}
    golden |= gradients(model, keys)
    mergeable = not base.config.tie_word_embeddings or not any("embed" in key for key in keys)
    if mergeable and not family.endswith("_trained"):
        merged = model.merge_and_unload()
        for weight, value in merged.state_dict().items():
            shown = ".layers." not in weight or ".layers.0." in weight
            if shown and not torch.equal(value, before[weight]):
                golden["merged." + weight] = value.detach()
    save_file({key: value.contiguous().clone() for key, value in golden.items()}, folder / "golden.safetensors")
    print(f"{name}: {len(keys)} tensors, {sum(f.stat().st_size for f in folder.iterdir()) // 1024} KiB")


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        make(case, *CASES[case])
