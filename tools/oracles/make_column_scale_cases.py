#!/usr/bin/env python3
"""Records the factors of columns that nvidia-modelopt (0.47, on the CPU) finds by SmoothQuant and AWQ lite for a linear whose
weights and inputs are made up here and, by the same arithmetic, in src/calibration/column_scales_test.cpp; of AWQ the error by
each alpha, too, and of AWQ clip the amax. float32 numbers are written as the integers of their bits.

  pip install nvidia-modelopt torch
  python3 tools/oracles/make_column_scale_cases.py tests/goldens/quantizers/column_scales.json"""
import copy
import json
import sys

import modelopt.torch.quantization as mtq
import torch

ROWS, COLUMNS, TOKENS = 24, 64, 40
INT8 = {"*weight_quantizer": {"num_bits": 8, "axis": 0}, "*input_quantizer": {"num_bits": 8, "axis": None}}
INT4 = {"*weight_quantizer": {"num_bits": 4, "block_sizes": {-1: 16, "type": "static"}}}
FP8 = {"num_bits": (4, 3), "axis": None}
INT4_THEN_FP8 = {"*weight_quantizer": [INT4["*weight_quantizer"], FP8], "*input_quantizer": FP8}


def bits(tensor):
    return tensor.detach().float().contiguous().view(torch.int32).flatten().tolist()


def made_up(rows, seed):
    """Sums of four uniform numbers, times 1 to 8 by column: exact in float32."""
    i = torch.arange(rows * COLUMNS, dtype=torch.int64)
    total = torch.zeros(rows * COLUMNS, dtype=torch.int64)
    for k in range(4):
        x = (i * 2654435761 + seed * 7919 + k * 40503) % 2**32
        x = ((x ^ (x >> 15)) * 2246822519) % 2**32
        total += (x >> 16) - 32768
    return (total * (1 + (i % COLUMNS * (seed + 3)) % 8)).double().mul(2.0**-19).float().reshape(rows, COLUMNS)


def quantized(quantizers, algorithm):
    layer = torch.nn.Linear(COLUMNS, ROWS, bias=False)
    layer.weight.data = made_up(ROWS, 1)
    config = {"quant_cfg": [{"quantizer_name": "*", "enable": False}] +
              [{"quantizer_name": name, "cfg": copy.deepcopy(how)} for name, how in quantizers.items()], "algorithm": algorithm}
    return mtq.quantize(torch.nn.Sequential(layer), config, lambda model: model(made_up(TOKENS, 2)))[0]


def main():
    cases = []
    for alpha in (1.0, 0.5, 0.25):
        layer = quantized(INT8, {"method": "smoothquant", "alpha": alpha})
        cases.append({"calibration": "smoothquant", "alpha": alpha, "pre_quant_scale": bits(layer.input_quantizer.pre_quant_scale),
                      "input_amax": bits(layer.input_quantizer.amax), "weight_amax": bits(layer.weight_quantizer.amax)})
    layer = quantized(INT4, {"method": "awq_lite", "alpha_step": 0.1, "debug": True})
    cases.append({"calibration": "awq_lite", "alpha": layer.awq_lite.best_alpha,
                  "losses": list(layer.awq_lite.loss.values()), "pre_quant_scale": bits(layer.input_quantizer.pre_quant_scale),
                  "weight_amax": bits(layer.weight_quantizer.amax)})
    layer = quantized(INT4_THEN_FP8, {"method": "awq_lite", "alpha_step": 0.1, "debug": True})
    cases.append({"calibration": "awq_lite of weights that are rounded twice", "alpha": layer.awq_lite.best_alpha,
                  "pre_quant_scale": bits(layer.input_quantizer.pre_quant_scale), "input_amax": bits(layer.input_quantizer.amax),
                  "weight_amax": bits(layer.weight_quantizer[0].amax), "second_amax": bits(layer.weight_quantizer[1].amax)})
    layer = quantized(INT4, {"method": "awq_clip"})
    cases.append({"calibration": "awq_clip", "weight_amax": bits(layer.weight_quantizer.amax)})
    with open(sys.argv[1], "w") as file:
        file.write("[" + ",\n ".join(json.dumps(case) for case in cases) + "]\n")


main()
