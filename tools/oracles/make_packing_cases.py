#!/usr/bin/env python3
"""Records how nvidia-modelopt (0.47) packs INT4 weights for its folders, a matrix of W4A8_AWQ (INT4 in blocks, rounded again to
FP8) as it exports it with the values that it computes with, and what torch's observers and quantized tensors
give for integers with zero points, for small random tensors that are made up here.

  pip install nvidia-modelopt torch
  python3 tools/oracles/make_packing_cases.py tests/goldens/quantizers/packing.json"""
import json
import sys

import modelopt.torch.quantization as mtq
import torch
from modelopt.torch.export.quant_utils import (get_quantization_format, get_weight_block_size, get_weight_scaling_factor,
                                               get_weight_scaling_factor_2, pack_int4_in_uint8, to_quantized_weight)

BLOCK = 128


def bits(tensor):
    return tensor.float().contiguous().view(torch.int32).flatten().tolist()


def int4(seed, shape):
    w = torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.05
    amax = w.reshape(*shape[:-1], shape[-1] // BLOCK, BLOCK).abs().amax(-1)
    return {"shape": list(shape), "x": bits(w), "amax_shape": list(amax.shape), "amax": bits(amax),
            "packed": pack_int4_in_uint8(w, amax / 7, BLOCK).flatten().tolist()}


def held(tensor):
    data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), data.hex()]


def w4a8(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(2 * BLOCK, 6, bias=False))
    x = torch.randn(32, 2 * BLOCK) * (torch.arange(2 * BLOCK) % 7 + 1)
    mtq.quantize(model, mtq.W4A8_AWQ_BETA_CFG, lambda m: m(x))
    linear = model[0]
    before = linear.input_quantizer._pre_quant_scale.detach().flatten()
    scale, second = get_weight_scaling_factor(linear), get_weight_scaling_factor_2(linear).squeeze()
    with torch.no_grad():
        values = linear.weight_quantizer(linear.weight) * before
        codes = to_quantized_weight(linear.weight, scale, get_quantization_format(linear), second, get_weight_block_size(linear))
    return {"tensors": {"weight": held(codes), "weight_scale": held(scale), "weight_scale_2": held(second),
                        "pre_quant_scale": held(before)}, "values": held(values)}


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
         "w4a8_awq": w4a8(7),
         "zero_points": [with_zeros(3, 0.0), with_zeros(4, 0.02), with_zeros(5, -1.0), with_zeros(6, 1.0)]}
with open(sys.argv[1], "w") as file:
    json.dump(cases, file, separators=(",", ":"))
    file.write("\n")
