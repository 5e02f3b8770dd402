#!/usr/bin/env python3
"""Checks that transformers makes of quantized folders what Temper makes of them: log-probabilities of the same tokens, in float32.

Usage: check_exported_folders.py TEMPER FOLDER...     needs torch, transformers, accelerate, compressed-tensors

FOLDERs are what `temper export --form compressed-tensors` wrote, or any that both read on a CPU (bitsandbytes, fp8). Temper
samples some tokens with `temper batch` and says their log-probabilities, transformers computes them again from
the dequantized weights. Neither rounds inputs. Loaded as it is, the folder must have every tensor that its configuration asks for, and no other. compressed-tensors unpacks FP4 as bfloat16, to which it then rounds the weights; it is
asked for float32 here. Folders in the form of modelopt are read by vLLM, TensorRT-LLM and SGLang, not by transformers."""
import json
import os
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, CompressedTensorsConfig, FineGrainedFP8Config

TOLERANCE = 1e-5
PROMPTS = ["1 + 1 =", "The", "What is 47 - 38?", "abc"]


def fp4_in_float32():
    import compressed_tensors.compressors.nvfp4.base as fp4
    unpack = fp4.unpack_fp4_from_uint8
    fp4.unpack_fp4_from_uint8 = lambda packed, rows, columns: unpack(packed, rows, columns, torch.float32)


def how_to_load(folder, plain):
    """The arguments of from_pretrained; `plain`: so that the model has plain weights, and scales of inputs have no place."""
    if not plain:
        return {}
    method = json.load(open(os.path.join(folder, "config.json"), encoding="utf-8"))["quantization_config"]["quant_method"]
    if method == "compressed-tensors":
        return {"quantization_config": CompressedTensorsConfig(dequantize=True)}
    if method == "fp8":
        return {"quantization_config": FineGrainedFP8Config(dequantize=True)}
    return {}


def load(folder, plain):
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                       output_loading_info=True, **how_to_load(folder, plain))
    if plain and getattr(model, "is_loaded_in_4bit", False) or getattr(model, "is_loaded_in_8bit", False):
        model = model.dequantize()
    of_inputs = ("input_scale", "input_zero_point", "input_global_scale") if plain else ()
    problems = {kind: sorted(str(n) for n in names if not str(n).endswith(of_inputs)) for kind, names in info.items() if names}
    return model.eval(), {kind: names for kind, names in problems.items() if names}


def answers_of(temper, folder, work):
    rows, out = os.path.join(work, "rows.jsonl"), os.path.join(work, "answers.jsonl")
    with open(rows, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS)
    subprocess.run([temper, "batch", folder, rows, "--out", out, "--samples", "4", "-t", "2", "-n", "24", "--dtype", "float32"],
                   check=True, capture_output=True)
    return [json.loads(line) for line in open(out, encoding="utf-8")]


@torch.no_grad()
def worst_difference(model, tokenizer, answers):
    worst, count = 0.0, 0
    for answer in answers:
        prompt = tokenizer(answer["input"]["prompt"]).input_ids
        logits = model(input_ids=torch.tensor([prompt + answer["ids"]])).logits[0].double()
        theirs = torch.log_softmax(logits, -1)[len(prompt) - 1:-1].gather(1, torch.tensor(answer["ids"])[:, None])[:, 0]
        worst = max(worst, (theirs - torch.tensor(answer["log_probs"], dtype=torch.float64)).abs().max().item())
        count += len(answer["ids"])
    return worst, count


def main(temper, folders):
    fp4_in_float32()
    failed = False
    for folder in folders:
        with tempfile.TemporaryDirectory() as work:
            answers = answers_of(temper, folder, work)
        _, problems = load(folder, plain=False)
        model, more = load(folder, plain=True)
        problems.update(more)
        worst, count = worst_difference(model, AutoTokenizer.from_pretrained(folder), answers)
        right = worst <= TOLERANCE and not problems and count > 0
        failed = failed or not right
        print(f"{folder}: {'ok' if right else 'WRONG'}, {count} tokens, log-probabilities differ by {worst:.1e} at most {problems or ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
