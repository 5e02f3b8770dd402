#!/usr/bin/env python3
"""Checks that PEFT makes of an adapter trained by Temper what Temper makes of it.

Usage: check_adapter_in_peft.py TEMPER BASE ADAPTER     needs torch, transformers and peft

Loads ADAPTER over BASE with PEFT, and what `TEMPER merge` wrote with transformers: logits agree to rounding, and the
merged weights are those of PEFT's merge_and_unload, bit for bit when BASE is float32.
"""
import subprocess
import sys
import tempfile

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto", attn_implementation="eager")


def main(temper, base, adapter):
    with tempfile.TemporaryDirectory() as folder:
        merged = folder + "/merged"
        subprocess.run([temper, "merge", adapter, merged, "--base", base], check=True)
        ours = load(merged)
    theirs = PeftModel.from_pretrained(load(base), adapter)
    torch.manual_seed(0)
    ids = torch.randint(0, ours.config.vocab_size, (2, 24))
    with torch.no_grad():
        found, expected = ours(input_ids=ids).logits, theirs(input_ids=ids).logits
        alone = load(base)(input_ids=ids).logits
    worst = ((found - expected).abs().max() / expected.abs().max()).item()
    change = ((alone - expected).abs().max() / expected.abs().max()).item()
    print(f"logits: relative difference {worst:.1e}; the adapter changes them by {change:.1e}")
    state = theirs.merge_and_unload().state_dict()
    different = [name for name, value in ours.state_dict().items() if not torch.equal(value, state[name])]
    print(f"merged weights: {len(state) - len(different)} of {len(state)} bit for bit the same")
    if worst > (2e-5 if found.dtype == torch.float32 else 2e-2) or change < 1e-3 or different:
        sys.exit("PEFT and Temper disagree" + (": " + ", ".join(different[:5]) if different else ""))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
