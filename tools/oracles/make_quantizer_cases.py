#!/usr/bin/env python3
"""Records what nvidia-modelopt (0.47, its CPU code) computes for small tensors that are made up here: fake quantization, its
gradients, codes and scales. float32 numbers are written as the integers of their bits. Formats without CPU code there
(E5M2, the 6-bit formats) are casts by torch or are left to tests against double precision.

  pip install nvidia-modelopt torch
  python3 tools/oracles/make_quantizer_cases.py tests/goldens/quantizers/modelopt.json"""
import json
import sys

import torch
from modelopt.torch.quantization.qtensor import MXFP4QTensor, MXFP8QTensor, NVFP4QTensor
from modelopt.torch.quantization.tensor_quant import FakeTensorQuantFunction, ScaledE4M3Function

ROWS, COLUMNS = 4, 64


def bits(tensor):
    return tensor.detach().float().contiguous().view(torch.int32).flatten().tolist()


def normal(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, COLUMNS, generator=generator) * 0.05
    x[:, ::17] *= 20
    x[2] = 0
    x[3, 16:48] = 0
    return x


def edges():
    """Ties of E2M1, E4M3 and integers, their neighbours, both zeros; each row has another power of two."""
    ties = torch.tensor([0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75, 2.5, 3, 3.5, 4.5, 5, 6, 0.0, -0.0, 1.0625, 1.1875, 127.5 / 127])
    values = torch.cat([ties, torch.nextafter(ties, torch.tensor(9.0)), torch.nextafter(ties, torch.tensor(-9.0))])
    values = torch.cat([values, -values])[:COLUMNS]
    values[31], values[63] = 6, -6
    return values * torch.exp2(torch.arange(-2.0, ROWS - 2)).unsqueeze(1)


def extremes():
    x = normal(5) + 0.001
    for row, scale in enumerate([1e-40, 1e-30, 1e-6, 1e36]):
        x[row] = x[row] * scale
    return x


def grouped_amax(x, shape):
    rows, columns = x.shape[0] // shape[0], x.shape[1] // shape[1]
    return x.abs().view(shape[0], rows, shape[1], columns).amax(dim=(1, 3))


def spread(amax, x):
    rows, columns = x.shape[0] // amax.shape[0], x.shape[1] // amax.shape[1]
    return amax.repeat_interleave(rows, 0).repeat_interleave(columns, 1)


def faked(kind, fmt, x, amax, function):
    value, grad = x.clone().requires_grad_(), torch.randn(x.shape, generator=torch.Generator().manual_seed(9))
    y = function(value, spread(amax, x))
    y.backward(grad)
    assert torch.equal(value.grad, torch.where(value.grad != 0, grad, 0.0))
    return {"input": kind, "format": fmt, "amax_shape": list(amax.shape), "amax": bits(amax), "y": bits(y),
            "kept": "".join("01"[int(kept)] for kept in (value.grad != 0).flatten())}


def integers(num_bits, unsigned, narrow):
    return lambda x, amax: FakeTensorQuantFunction.apply(x, amax, None, num_bits, unsigned, narrow)


def e4m3(x, amax):
    return ScaledE4M3Function.apply(x, amax, None, 4, 3)


def cases_of(kind, x):
    for shape in ([1, 1], [ROWS, 1], [2, 2]):
        for share in (1.0, 0.6):
            amax = grouped_amax(x, shape) * share
            yield faked(kind, "int8", x, amax, integers(8, False, False))
            yield faked(kind, "int8_narrow", x, amax, integers(8, False, True))
            yield faked(kind, "int4", x, amax, integers(4, False, False))
            yield faked(kind, "fp8", x, amax, e4m3)
    amax = grouped_amax(x, [ROWS, 1])
    for num_bits in (2, 3, 5, 6, 7):
        yield faked(kind, f"int{num_bits}", x, amax, integers(num_bits, False, False))
    yield faked(kind + " magnitudes", "uint8", x.abs(), amax, integers(8, True, False))
    yield faked(kind + " magnitudes", "uint4", x.abs(), amax, integers(4, True, False))

    def blocks(fmt, amax, packed, scales, y):
        return {"input": kind, "format": fmt, "amax_shape": list(amax.shape), "amax": bits(amax),
                "codes": packed.view(torch.uint8).flatten().tolist(),
                "scales": scales.view(torch.uint8).flatten().tolist(), "y": bits(y)}

    whole = grouped_amax(x, [1, 1])
    q, scale, scale_2 = NVFP4QTensor.quantize(x.clone(), 16)
    yield blocks("nvfp4", whole, q._quantized_data, scale,
                 q.dequantize(torch.float32, scale=scale, double_scale=scale_2, block_sizes={-1: 16}))
    q, scale = MXFP8QTensor.quantize(x.clone())
    yield blocks("mxfp8", whole, q._quantized_data, scale, q.dequantize(torch.float32, scale=scale))
    q, scale = MXFP4QTensor.quantize(x.clone(), 32)
    yield blocks("mxfp4", whole, q._quantized_data, scale,
                 q.dequantize(torch.float32, scale=scale, block_sizes={-1: 32}))
    # Not by ModelOpt: torch's cast to E5M2.
    number = torch.where(whole <= 2**-24, torch.ones_like(whole), whole)
    factor = torch.tensor(57344.0) / number
    y = (x * factor).clamp(-57344, 57344).to(torch.float8_e5m2).float() * (1 / factor)
    yield {"input": kind, "format": "fp8_e5m2", "amax_shape": [1, 1], "amax": bits(whole), "y": bits(y)}


inputs = {"normal": normal(1), "edges": edges(), "extremes": extremes()}
cases = [case for kind, x in inputs.items() for case in cases_of(kind, x)]
with open(sys.argv[1], "w") as file:
    magnitudes = {f"{kind} magnitudes": bits(x.abs()) for kind, x in inputs.items()}
    values = {kind: bits(x) for kind, x in inputs.items()} | magnitudes
    json.dump({"shape": [ROWS, COLUMNS], "inputs": values, "cases": cases}, file, separators=(",", ":"))
    file.write("\n")
