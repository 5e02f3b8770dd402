#!/usr/bin/env python3
"""Records small matrices as compressed-tensors (0.20) holds them in files, and the values that it reads from them again; of those
with zero points, what they are made of. Bytes of tensors are written in hexadecimal. It unpacks FP4 as bfloat16, to which it rounds values; here it is asked for float32.

  pip install compressed-tensors torch
  python3 tools/oracles/make_compressed_cases.py tests/goldens/quantizers/compressed.json"""
import json
import sys

import compressed_tensors.compressors.nvfp4.base as fp4
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams

ROWS, COLUMNS, GROUP, TILE = 12, 32, 16, [4, 16]
CASES = {
    "int4 in groups": ("pack-quantized", dict(num_bits=4, type="int", strategy="group", group_size=GROUP)),
    "int4 in groups with zero points": ("pack-quantized", dict(num_bits=4, type="int", symmetric=False, strategy="group", group_size=GROUP)),
    "int8 in groups, packed": ("pack-quantized", dict(num_bits=8, type="int", symmetric=False, strategy="group", group_size=GROUP)),
    "int4 by channel with zero points": ("pack-quantized", dict(num_bits=4, type="int", symmetric=False, strategy="channel")),
    "int8 by channel with zero points": ("int-quantized", dict(num_bits=8, type="int", symmetric=False, strategy="channel")),
    "int8 by channel": ("int-quantized", dict(num_bits=8, type="int", strategy="channel")),
    "fp8 by channel": ("float-quantized", dict(num_bits=8, type="float", strategy="channel")),
    "fp8 as a whole": ("float-quantized", dict(num_bits=8, type="float", strategy="tensor")),
    "fp8 in tiles": ("float-quantized", dict(num_bits=8, type="float", strategy="block", block_structure=TILE)),
    "nvfp4": ("nvfp4-pack-quantized", dict(num_bits=4, type="float", strategy="tensor_group", group_size=16, scale_dtype="torch.float8_e4m3fn")),
    "mxfp4": ("mxfp4-pack-quantized", dict(num_bits=4, type="float", strategy="group", group_size=32, scale_dtype="torch.uint8")),
    "mxfp8": ("mxfp8-quantized", dict(num_bits=8, type="float", strategy="group", group_size=32, scale_dtype="torch.uint8")),
}


def held(tensor):
    data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), data.hex()]


def in_float32(packed, rows, columns, unpack=fp4.unpack_fp4_from_uint8):
    return unpack(packed, rows, columns, torch.float32)


def bounds(weight, strategy, group):
    if "group" in strategy:
        parts = weight.reshape(ROWS, COLUMNS // group, group)
        return parts.amin(-1), parts.amax(-1)
    if strategy == "channel":
        return weight.amin(-1, keepdim=True), weight.amax(-1, keepdim=True)
    if strategy == "tensor":
        return weight.min().reshape(1), weight.max().reshape(1)
    parts = weight.reshape(ROWS // TILE[0], TILE[0], COLUMNS // TILE[1], TILE[1])
    return parts.amin((1, 3)), parts.amax((1, 3))


def main():
    weight = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(3)) + 0.3
    fp4.unpack_fp4_from_uint8 = in_float32
    cases = {}
    for name, (form, arguments) in CASES.items():
        scheme = QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**arguments))
        whole = 448 * 6 / weight.abs().max().reshape(1) if name == "nvfp4" else None
        scale, zero = calculate_qparams(*bounds(weight, arguments["strategy"], arguments.get("group_size")), scheme.weights, global_scale=whole)
        state = {"weight": weight.clone(), "weight_scale": scale, "weight_zero_point": zero}
        if whole is not None:
            state["weight_global_scale"] = whole
        compressor = BaseCompressor.get_value_from_registry(form)
        files = compressor.compress(state, scheme)
        values = compressor.decompress(dict(files), scheme)["weight"]
        config = {"quant_method": "compressed-tensors", "format": form,
                  "config_groups": {"group_0": {"targets": ["Linear"], "weights": arguments}}}
        cases[name] = {"config": config, "tensors": {n: held(t) for n, t in files.items()}, "values": held(values.float())}
        if not arguments.get("symmetric", True):
            cases[name]["weight"] = held(weight)
    with open(sys.argv[1], "w") as file:
        file.write("{\n" + ",\n".join(f" {json.dumps(n)}: {json.dumps(c)}" for n, c in cases.items()) + "\n}\n")


main()
