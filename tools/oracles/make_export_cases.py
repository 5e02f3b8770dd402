#!/usr/bin/env python3
"""Records what nvidia-modelopt (0.47, on the CPU) exports for a small Qwen3 and Qwen3-MoE whose weights are made up here and,
by the same arithmetic, in src/models/export_golden_test.cpp: of each tensor its dtype, its shape and a hash of its bytes
(of fewer than 33 bytes themselves), and both configurations.

  pip install nvidia-modelopt transformers accelerate torch xxhash
  python3 tools/oracles/make_export_cases.py tests/goldens/quantizers/exported.json"""
import copy
import json
import sys
import tempfile

import modelopt.torch.export.unified_export_hf as unified_export
import modelopt.torch.quantization as mtq
import torch
import xxhash
from modelopt.torch.export import export_hf_checkpoint
from modelopt.torch.quantization.model_calib import apply_pre_quant_scale_and_smooth
from safetensors import safe_open
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3MoeConfig

SIZES = dict(vocab_size=16, hidden_size=128, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
             max_position_embeddings=64, tie_word_embeddings=False)
INPUTS = {"q_proj": 2.75, "k_proj": 2.75, "v_proj": 2.75, "o_proj": 1.3, "gate_proj": 5.1, "up_proj": 5.1, "gate_up_proj": 5.1,
          "down_proj": 0.7}


def mixed():
    config = copy.deepcopy(mtq.NVFP4_DEFAULT_CFG)
    fp8 = {"num_bits": (4, 3), "axis": None}
    config["quant_cfg"] += [{"quantizer_name": "*down_proj.weight_quantizer", "cfg": fp8},
                            {"quantizer_name": "*down_proj.input_quantizer", "cfg": fp8}]
    return config


# Factors of the columns of inputs, by which parts of one weight here are divided alike.
SCALED = {"q_proj": 1, "k_proj": 1, "v_proj": 1, "o_proj": 2, "gate_proj": 3, "up_proj": 3, "down_proj": 4}

# The name here, its configuration there, and whether it is for experts.
CASES = [("FP8_DEFAULT", mtq.FP8_DEFAULT_CFG, True), ("FP8_PER_CHANNEL_PER_TOKEN", mtq.FP8_PER_CHANNEL_PER_TOKEN_CFG, True),
         ("FP8_2D_BLOCKWISE_WEIGHT_ONLY", mtq.FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG, True),
         ("INT8_DEFAULT", mtq.INT8_DEFAULT_CFG, True), ("INT8_WEIGHT_ONLY", mtq.INT8_WEIGHT_ONLY_CFG, True),
         ("INT4_BLOCKWISE_WEIGHT_ONLY", mtq.INT4_BLOCKWISE_WEIGHT_ONLY_CFG, True), ("NVFP4_DEFAULT", mtq.NVFP4_DEFAULT_CFG, True),
         ("W4A16_NVFP4", mtq.W4A16_NVFP4_CFG, True), ("MXFP8_DEFAULT", mtq.MXFP8_DEFAULT_CFG, True),
         ("MXFP4_DEFAULT", mtq.MXFP4_DEFAULT_CFG, False), ("W4A8_MXFP4_FP8", mtq.W4A8_MXFP4_FP8_CFG, False),
         ("mixed", mixed(), False), ("INT8_SMOOTHQUANT", mtq.INT8_DEFAULT_CFG, False),
         ("INT4_AWQ", mtq.INT4_BLOCKWISE_WEIGHT_ONLY_CFG, False), ("NVFP4_AWQ_LITE", mtq.NVFP4_DEFAULT_CFG, False),
         # (Of stacked experts modelopt 0.47 exports no weights that are quantized twice.)
         ("W4A8_AWQ_BETA", {**mtq.W4A8_AWQ_BETA_CFG, "algorithm": "max"}, False)]


def made_up(name, shape):
    """Odd numbers of up to 20 bits, exact in float32 and never in the middle of two codes of a few bits; each row of five has
    another size."""
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 % 2**32
    i = torch.arange(shape.numel(), dtype=torch.int64)
    x = (i * 2654435761 + seed) % 2**32
    x = ((x ^ (x >> 15)) * 2246822519) % 2**32
    x = ((x >> 16 | 1) - 32768).double() * (1 + 2 * (i // shape[-1] % 5)).double()
    return (x * 2.0**-20).float().reshape(shape)


def build(experts):
    if experts:
        config = Qwen3MoeConfig(intermediate_size=128, moe_intermediate_size=128, num_experts=3, num_experts_per_tok=2, **SIZES)
    else:
        config = Qwen3Config(intermediate_size=256, **SIZES)
    config.architectures = ["Qwen3MoeForCausalLM" if experts else "Qwen3ForCausalLM"]
    model = AutoModelForCausalLM.from_config(config).float().eval()
    state = model.state_dict()
    for name, value in state.items():
        # transformers holds experts stacked: files have them one by one.
        if name.endswith("experts.gate_up_proj") or name.endswith("experts.down_proj"):
            base = name.rsplit(".", 1)[0]
            parts = ["gate_proj", "up_proj"] if name.endswith("gate_up_proj") else ["down_proj"]
            rows = value.shape[1] // len(parts)
            for e in range(value.shape[0]):
                for p, part in enumerate(parts):
                    value[e, p * rows:(p + 1) * rows] = made_up(f"{base}.{e}.{part}.weight", torch.Size([rows, value.shape[2]]))
        else:
            value.copy_(made_up(name, value.shape))
    return model


def share_amax(model):
    """q, k, v and gate, up are one weight here: FP8 matrices that are scaled as a whole have the same amax."""
    found = {}
    for name, module in model.named_modules():
        quantizer = getattr(module, "weight_quantizer", None)
        if quantizer is None or isinstance(quantizer, mtq.nn.SequentialQuantizer) or not quantizer.is_enabled:
            continue  # of those that quantize twice the export itself shares amax
        if quantizer.num_bits != (4, 3) or quantizer.amax is None:
            continue
        parts = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gate_up", "up_proj": "gate_up"}
        parent, _, last = name.rpartition(".")
        if quantizer.amax.numel() == 1 and not quantizer.block_sizes and last in parts:
            found.setdefault((parent, parts[last]), []).append(quantizer)
    for group in found.values():
        largest = max(each.amax.item() for each in group)
        for each in group:
            each._amax.fill_(largest)


def made_up_scales(group, columns):
    """Odd sixteenths from 1 / 16 to 29 / 16: sums of a few of them, and a third of those, are exact; and what is divided by them is
    not in the middle of two codes."""
    i = torch.arange(columns, dtype=torch.int64)
    return (((i * 40503 + group * 977) % 15 * 2 + 1).double() / 16).float()


def scale_columns(model):
    """As calibrations by SmoothQuant and AWQ end, with other numbers."""
    for name, module in model.named_modules():
        group = SCALED.get(name.rpartition(".")[2])
        if group is None or not getattr(module, "weight_quantizer", None):
            continue
        if module.input_quantizer.is_enabled:
            module.input_quantizer._amax_for_smoothing = torch.ones(module.weight.shape[1])
        apply_pre_quant_scale_and_smooth(module, made_up_scales(group, module.weight.shape[1]))


def leave_in_place(model):
    """Factors of down_proj stay with it: up_proj's rows are not multiplied by them, which would give them other codes."""


def no_experts(module, model_type):
    """modelopt 0.47 averages factors of columns over a list of experts. Stacked ones are no list, and it gives them none."""
    return []


def halve_shapes(model):
    """Of stacked experts modelopt 0.47 cuts amax of gate_up in two, but not the shape of blocks that it remembers."""
    for name, module in model.named_modules():
        if "gate_up_proj_weight_quantizers." in name and hasattr(module, "_amax_shape_for_export"):
            rows, blocks = module._amax_shape_for_export
            module._amax_shape_for_export = (rows // 2, blocks)


def module_of(name):
    """q_proj of self_attn.q_proj.input_quantizer, and gate_up_proj of experts.gate_up_proj_input_quantizer, which all experts
    of a layer share there."""
    parent, _, last = name.rpartition(".")
    return last.removesuffix("_input_quantizer") if last != "input_quantizer" else parent.rpartition(".")[2]


def exported(case, config, experts):
    model = build(experts)
    ids = torch.arange(16).reshape(1, 16)
    model = mtq.quantize(model, copy.deepcopy(config), lambda m: m(ids))
    if "SMOOTHQUANT" in case or "AWQ" in case:
        with torch.no_grad():
            scale_columns(model)
    for name, module in model.named_modules():
        if name.endswith("input_quantizer") and module.is_enabled and getattr(module, "_amax", None) is not None:
            module._amax.fill_(INPUTS[module_of(name)])
    share_amax(model)
    halve_shapes(model)
    with tempfile.TemporaryDirectory() as folder:
        export_hf_checkpoint(model, export_dir=folder)
        tensors = {}
        with safe_open(folder + "/model.safetensors", "pt") as file:
            for name in sorted(file.keys()):
                tensor = file.get_tensor(name)
                data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
                tensors[name] = [str(tensor.dtype).removeprefix("torch."), list(tensor.shape),
                                 data.hex() if len(data) < 33 or (tensor.dtype == torch.float32 and "float8" in str(
                                     file.get_tensor(name.replace("weight_scale", "weight")).dtype)) else xxhash.xxh3_128_hexdigest(data)]
        files = [json.load(open(f"{folder}/{name}")) for name in ("hf_quant_config.json", "config.json")]
    plain = {"lm_head.weight", "model.embed_tokens.weight"}
    return {"tensors": {n: t for n, t in tensors.items() if ("norm" not in n or "AWQ" in case) and n not in plain},
            "hf_quant_config": files[0]["quantization"], "quantization_config": files[1]["quantization_config"]}


def main():
    unified_export.fuse_prequant_to_linear = leave_in_place
    unified_export.get_experts_list = no_experts
    cases = {}
    for name, config, experts in CASES:
        cases[f"qwen3 {name}"] = exported(name, config, False)
        if experts:
            cases[f"qwen3_moe {name}"] = exported(name, config, True)
    lines = [f' {json.dumps(name)}: {json.dumps(case)}' for name, case in cases.items()]
    with open(sys.argv[1], "w") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


main()
