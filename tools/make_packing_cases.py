#!/usr/bin/env python3
"""Records how nvidia-modelopt (0.47) packs INT4 weights for its folders, and what torch's observers and quantized tensors
give for integers with zero points, for small random tensors that are made up here.

  pip install nvidia-modelopt torch
  python3 tools/make_packing_cases.py tests/goldens/quantizers/packing.json"""
import json
import sys

import torch
from modelopt.torch.export.quant_utils import pack_int4_in_uint8

BLOCK = 128


def bits(tensor):
    return tensor.float().contiguous().view(torch.int32).flatten().tolist()


def int4(seed, shape):
    w = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.05
    amax = w.reshape(*shape[:-1], shape[-1] // BLOCK, BLOCK).abs().amax(-1)
    return {"shape": list(shape), "x": bits(w), "amax_shape": list(amax.shape), "amax": bits(amax),
            "packed": pack_int4_in_uint8(w, amax / 7, BLOCK).flatten().tolist()}


def with_zeros(seed, shift):
    x = torch.randn([4, 32], generator=torch.Generator().manual_seed(seed)) * 0.05 + shift
    observer = torch.ao.quantization.PerChannelMinMaxObserver(
        ch_axis=0, dtype=torch.quint8, qscheme=torch.per_channel_affine)
    observer(x)
    scales, zeros = observer.calculate_qparams()
    q = torch.quantize_per_channel(x, scales, zeros, 0, torch.quint8)
    return {"shape": list(x.shape), "x": bits(x), "steps": bits(scales), "zeros": zeros.tolist(),
            "codes": q.int_repr().flatten().tolist(), "y": bits(q.dequantize())}


cases = {"int4": [int4(1, (4, 2 * BLOCK)), int4(2, (2, 4, BLOCK))],
         "zero_points": [with_zeros(3, 0.0), with_zeros(4, 0.02), with_zeros(5, -1.0), with_zeros(6, 1.0)]}
with open(sys.argv[1], "w") as file:
    json.dump(cases, file, separators=(",", ":"))
    file.write("\n")
