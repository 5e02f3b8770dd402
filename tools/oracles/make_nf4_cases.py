#!/usr/bin/env python3
"""Records how bitsandbytes (0.50, on the CPU) keeps small matrices in NF4 with double quantization, for random numbers that
are made up here, and its two tables of values. Codes of magnitudes are those of the library's implementation for all devices: the one for
processors looks them up in a coarse table, which may give a neighbour of the nearest.

  pip install bitsandbytes torch
  python3 tools/oracles/make_nf4_cases.py tests/goldens/quantizers/nf4.json"""
import json
import sys

import bitsandbytes.functional as F
import torch


def bits(tensor):
    return tensor.float().contiguous().view(torch.int32).flatten().tolist()


def nearest(values, numbers):
    for_all = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
    return torch.ops.bitsandbytes.quantize_blockwise.default.redispatch(for_all, values, numbers, 256)


def case(name, w):
    packed, state = F.quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=True)
    plain, single = F.quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=False)
    assert torch.equal(packed, plain)
    codes, scales = nearest(single.absmax - state.offset, state.state2.code)
    assert torch.equal(scales, state.state2.absmax)
    assert (codes.int() - state.absmax.int()).abs().max() <= 1
    made = {"name": name, "shape": list(w.shape), "codes": packed.flatten().tolist(), "absmax": bits(single.absmax),
            "scale_codes": codes.flatten().tolist(), "scales": bits(state.state2.absmax),
            "offset": bits(state.offset.reshape(1))[0]}
    if w.numel() > 4096:  # in 4096ths, to keep the file small
        return made | {"x_4096ths": (w * 4096).int().flatten().tolist()}
    return made | {"x": bits(w), "decoded": bits(F.dequantize_4bit(packed, state)),
                   "decoded_bfloat16": bits(F.dequantize_4bit(packed, bfloat16(state)))}


def bfloat16(state):
    state.dtype = torch.bfloat16
    return state


def main(path):
    normal = lambda seed, *shape: torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.02
    table = F.get_4bit_type("nf4", device="cpu")
    ties = torch.cat([(table[1:] + table[:-1]) / 2, table, -table])
    edges = torch.cat([ties[:47], torch.ones(1), torch.zeros(64), -normal(5, 64) * 1e-30, normal(6, 16), torch.full([64 - 16], 1e-6)])
    cases = [case("rows of whole blocks", normal(1, 6, 128)), case("blocks that span rows", normal(2, 8, 40)),
             case("more than 256 blocks", (normal(3, 33, 512) * 2048 * torch.exp(normal(4, 33, 1) * 50)).round() / 4096),
             case("edges", edges.reshape(2, -1))]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"table": bits(table), "dynamic_map": bits(F.create_dynamic_map()), "cases": cases}, file)
        file.write("\n")


main(sys.argv[1])
