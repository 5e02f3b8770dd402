#!/usr/bin/env python3
"""Records small matrices as bitsandbytes (0.50, of folders that transformers saves), AutoGPTQ (0.7.1) and AutoAWQ (0.2.7) hold them in
files, and the values that these libraries make of them in float32. Bytes of tensors are written in hexadecimal. The last
two libraries need older versions of others, so only the files of their layers are loaded.

  pip install torch transformers accelerate bitsandbytes safetensors
  pip install --no-deps auto-gptq==0.7.1 autoawq==0.2.7.post3
  python3 tools/oracles/make_quantized_folder_cases.py tests/goldens/quantizers/folders.json"""
import importlib
import json
import os
import sys
import tempfile
import types

import bitsandbytes.functional as F
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Qwen3Config, Qwen3ForCausalLM


def held(tensor):
    data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), data.hex()]


def case(config, tensors, values):
    assert values.dtype == torch.float32
    return {"config": config, "shape": list(values.shape), "tensors": {n: held(t) for n, t in tensors.items()}, "values": held(values)}


# Of one matrix [24, 40], whose blocks run from row to row.
MODULE = "model.layers.0.mlp.up_proj."
BITSANDBYTES = {
    "nf4": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    "nf4 with double quantization": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True),
    "fp4 with double quantization, stored as bfloat16": dict(load_in_4bit=True, bnb_4bit_quant_type="fp4", bnb_4bit_use_double_quant=True,
                                                            bnb_4bit_quant_storage=torch.bfloat16),
    "int8": dict(load_in_8bit=True),
}


def four_bit_values(tensors):
    """Of the codes as a matrix with a row for each block: on the CPU, bitsandbytes 0.50 reads no other blocks correctly."""
    state = F.QuantState.from_dict({n.removeprefix("weight."): t for n, t in tensors.items() if n != "weight"}, torch.device("cpu"))
    rows, columns = state.shape
    state.shape, state.dtype = torch.Size([rows * columns // state.blocksize, state.blocksize]), torch.float32
    return F.dequantize_4bit(tensors["weight"].view(torch.uint8), state).reshape(rows, columns)


def bitsandbytes_cases(folder):
    config = Qwen3Config(hidden_size=40, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                         head_dim=8, vocab_size=8, tie_word_embeddings=True)
    torch.manual_seed(7)
    model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(os.path.join(folder, "plain"))
    for name, how in BITSANDBYTES.items():
        loaded = AutoModelForCausalLM.from_pretrained(os.path.join(folder, "plain"), quantization_config=BitsAndBytesConfig(**how),
                                                      dtype=torch.bfloat16, device_map="cpu")
        loaded.save_pretrained(os.path.join(folder, "quantized"))
        written = json.load(open(os.path.join(folder, "quantized", "config.json")))["quantization_config"]
        tensors = load_file(os.path.join(folder, "quantized", "model.safetensors"))
        tensors = {n.removeprefix(MODULE): t for n, t in tensors.items() if n.startswith(MODULE)}
        values = F.int8_vectorwise_dequant(tensors["weight"], tensors["SCB"]) if name == "int8" else four_bit_values(tensors)
        yield "bitsandbytes " + name, case(written, tensors, values)


def module_of(name):
    """A module of a package whose __init__ files are passed over."""
    parts = name.split(".")
    for i in range(1, len(parts)):
        package = types.ModuleType(".".join(parts[:i]))
        package.__path__ = [os.path.join(place, *parts[:i]) for place in sys.path]
        sys.modules[package.__name__] = package
    return importlib.import_module(name)


def grid(bits, rows, columns, groups, symmetric, seed):
    """A matrix on the grid of random scales and zeros, so that packing it rounds nothing."""
    random = torch.Generator().manual_seed(seed)
    scales = (torch.rand(rows, groups, generator=random) * 0.02 + 0.001).half().float()
    zeros = torch.full((rows, groups), float(2 ** (bits - 1))) if symmetric else \
        torch.randint(1, 2**bits, (rows, groups), generator=random).float()
    codes = torch.randint(0, 2**bits, (rows, columns), generator=random)
    return codes, scales, zeros


GPTQ = {  # bits, group_size, columns, more of the configuration
    "2 bits, symmetric": (2, 16, 32, dict(sym=True)),
    "3 bits": (3, 32, 64, dict(sym=False)),
    "4 bits": (4, 16, 32, dict(sym=False)),
    "4 bits, in the order of activations": (4, 16, 32, dict(sym=False, desc_act=True)),
    "4 bits, format gptq_v2": (4, 16, 32, dict(sym=False, checkpoint_format="gptq_v2")),
    "8 bits, one group": (8, -1, 32, dict(sym=False)),
}


def gptq_cases():
    linear = module_of("auto_gptq.nn_modules.qlinear.qlinear_cuda").QuantLinear
    rows = 32
    for i, (name, (bits, group_size, columns, more)) in enumerate(GPTQ.items()):
        width = columns if group_size == -1 else group_size
        codes, scales, zeros = grid(bits, rows, columns, columns // width, more["sym"], i)
        groups = torch.arange(columns) // width
        if more.get("desc_act"):
            groups = groups[torch.randperm(columns, generator=torch.Generator().manual_seed(i))]
        plain = torch.nn.Linear(columns, rows, bias=False)
        plain.weight.data = (codes - zeros[:, groups]) * scales[:, groups]
        packed = linear(bits, group_size, columns, rows, bias=False)
        packed.pack(plain, scales.clone(), zeros.clone(), g_idx=groups.int())
        packed.scales = packed.scales.float()
        values = packed(torch.eye(columns)).T
        assert torch.equal(values, plain.weight.data)
        tensors = {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales.half(), "g_idx": packed.g_idx.int()}
        if more.get("checkpoint_format") == "gptq_v2":  # each zero is one more than in "gptq"
            tensors["qzeros"] = packed.qzeros + 0x11111111
        yield "gptq " + name, case({"quant_method": "gptq", "bits": bits, "group_size": group_size, **more}, tensors, values)


def awq_cases():
    linear = module_of("awq.modules.linear.gemm").WQLinear_GEMM
    unpack = module_of("awq.utils.packing_utils").dequantize_gemm
    rows, columns, group = 32, 32, 16
    codes, scales, zeros = grid(4, rows, columns, columns // group, False, 9)
    groups = torch.arange(columns) // group
    plain = torch.nn.Linear(columns, rows, bias=False)
    plain.weight.data = (codes - zeros[:, groups]) * scales[:, groups]
    packed = linear.from_linear(plain, 4, group, scales=scales.T.contiguous(), zeros=zeros.T.contiguous())
    values = unpack(packed.qweight, packed.qzeros, packed.scales.float(), 4, group).T
    assert torch.equal(values, plain.weight.data)
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}
    yield "awq", case(config, {"qweight": packed.qweight, "qzeros": packed.qzeros, "scales": packed.scales}, values)


@torch.no_grad()
def main(path):
    with tempfile.TemporaryDirectory() as folder:
        cases = dict(bitsandbytes_cases(folder))
    cases.update(gptq_cases())
    cases.update(awq_cases())
    with open(path, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(f" {json.dumps(n)}: {json.dumps(c)}" for n, c in cases.items()) + "\n}\n")


main(sys.argv[1])
