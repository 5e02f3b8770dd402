#!/usr/bin/env python3
"""Records the amax that nvidia-modelopt (0.47, on the CPU) finds by each calibration for tensors that are made up here and,
by the same arithmetic, in src/quant/amax_search_test.cpp. float32 numbers are written as the integers of their bits.

- `mse` of weights: its search over multiples of the largest magnitude; of NVFP4, which it fakes on GPUs alone, the same sum
  over its codes.
- `percentile`, `entropy` of inputs: its histograms over one batch; `percentile` of weights by channels: a histogram each.
- `mse` of inputs: 0.47 gives the number of bits to its fake quantizer as the bias, so the sum is written out here, with its
  fake quantizer and its histogram.

  pip install nvidia-modelopt torch scipy
  python3 tools/oracles/make_calibration_cases.py tests/goldens/quantizers/calibrations.json"""
import copy
import json
import sys

import modelopt.torch.quantization as mtq
import numpy as np
import torch
from modelopt.torch.quantization.calib.histogram import HistogramCalibrator, calibrate_weights
from modelopt.torch.quantization.calib.mse import MseCalibrator
from modelopt.torch.quantization.qtensor import NVFP4QTensor
from modelopt.torch.quantization.tensor_quant import FakeTensorQuantFunction, ScaledE4M3Function


def bits(tensor):
    return tensor.detach().float().contiguous().view(torch.int32).flatten().tolist()


def made_up(rows, columns, seed):
    """Sums of four uniform numbers, so that large ones are rare, and 1 in 97 four times as large: exact in float32."""
    i = torch.arange(rows * columns, dtype=torch.int64)
    total = torch.zeros(rows * columns, dtype=torch.int64)
    for k in range(4):
        x = (i * 2654435761 + seed * 7919 + k * 40503) % 2**32
        x = ((x ^ (x >> 15)) * 2246822519) % 2**32
        total += (x >> 16) - 32768
    return (total * (1 + 3 * (i % 97 == 0))).double().mul(2.0**-18).float().reshape(rows, columns)


def fake(fmt):
    if fmt == "fp8":
        return lambda x, amax: ScaledE4M3Function.apply(x, amax, None, 4, 3)
    return lambda x, amax: FakeTensorQuantFunction.apply(x, amax, None, int(fmt[3:]), False, False)


CONFIGS = {"int8": dict(num_bits=8, axis=0), "fp8": dict(num_bits=(4, 3), axis=None),
           "int4": dict(num_bits=4, block_sizes={-1: 32, "type": "static"})}


def linear(weight):
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight.data = weight.clone()
    return torch.nn.Sequential(layer)


def mse_of_weights(fmt, weight):
    config = {"quant_cfg": [{"quantizer_name": "*", "enable": False},
                            {"quantizer_name": "*weight_quantizer", "cfg": copy.deepcopy(CONFIGS[fmt])}],
              "algorithm": {"method": "mse", "start_multiplier": 0.25, "stop_multiplier": 4.0, "step_size": 0.1}}
    model = mtq.quantize(linear(weight), config, lambda m: m(torch.zeros(1, weight.shape[1])))
    return model[0].weight_quantizer.amax


def mse_of_nvfp4(weight):
    def decoded(x, amax):
        q, scale, double = NVFP4QTensor.quantize(x.clone(), 16, weights_scaling_factor_2=(amax / (6 * 448)).float())
        return q.dequantize(torch.float32, scale=scale, double_scale=double, block_sizes={-1: 16})
    calibrator = MseCalibrator(weight.abs().max(), None, 0.1, 0.25, 4.0, decoded)
    calibrator.collect(weight)
    return calibrator.compute_amax()


def histogram(x):
    calibrator = HistogramCalibrator(num_bits=8)
    calibrator.collect(x)
    return calibrator


def mse_of_inputs(fmt, x):
    calibrator = histogram(x)
    counts, edges = calibrator._calib_hist.double(), calibrator._calib_bin_edges
    centers = (edges[1:] + edges[:-1]) / 2
    function, sums = fake(fmt), []
    for i in range(128, len(centers)):
        sums.append((((function(centers, centers[i]) - centers).double() ** 2) * counts).sum().item())
    return centers[128 + int(np.argmin(sums))]


def percentile_of_weights(weight, percentile):
    config = {"quant_cfg": [{"quantizer_name": "*", "enable": False},
                            {"quantizer_name": "*weight_quantizer", "cfg": copy.deepcopy(CONFIGS["int8"])}], "algorithm": "max"}
    model = mtq.quantize(linear(weight), config, lambda m: m(torch.zeros(1, weight.shape[1])))
    calibrate_weights(model, "percentile", True, percentile)
    return model[0].weight_quantizer.amax


def main():
    weight, inputs = made_up(6, 256, 1), made_up(64, 250, 2)
    cases = [{"calibration": "mse", "format": f, "of": "weights", "amax": bits(mse_of_weights(f, weight))} for f in CONFIGS]
    cases.append({"calibration": "mse", "format": "nvfp4", "of": "weights", "amax": bits(mse_of_nvfp4(weight))})
    for percentile in (90.0, 99.0, 99.9, 99.99, 100.0):
        cases.append({"calibration": "percentile", "percentile": percentile, "of": "inputs",
                      "amax": bits(histogram(inputs).compute_amax("percentile", percentile=percentile))})
        cases.append({"calibration": "percentile", "percentile": percentile, "of": "weights",
                      "amax": bits(percentile_of_weights(weight, percentile))})
    for fmt in ("int8", "int6", "fp8"):
        cases.append({"calibration": "mse", "format": fmt, "of": "inputs", "amax": bits(mse_of_inputs(fmt, inputs))})
    cases.append({"calibration": "entropy", "format": "int8", "of": "inputs", "amax": bits(histogram(inputs).compute_amax("entropy"))})
    with open(sys.argv[1], "w") as file:
        file.write("[" + ",\n ".join(json.dumps(case) for case in cases) + "]\n")


main()
