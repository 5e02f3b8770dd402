#!/usr/bin/env python3
"""Takes the text out of recorded cases of models that also read pictures, for tests/goldens/pictures.

Usage: take_text_goldens.py RECORDED CASE...     needs ml_dtypes, numpy and safetensors; `make test` needs neither
       take_text_goldens.py --wrapped

RECORDED/CASE is a published-like folder of a tiny random model with what transformers made of it: golden.json,
golden.safetensors, and text_only.safetensors where the folder was also trained on text alone. A case of the project is that
folder's config.json and model.safetensors, and golden.safetensors:
  row.I.input_ids, .labels     of text alone, one row each; the loss is the mean over all labels that are not -100
  row.I.logits_at, .logits     places (all where there are none) and what transformers gives there
  prompt, greedy               a prompt, and it with its continuation
  loss, grad.NAME              of the folder trained on the first rows, and in the metadata `train`, which says how many
                               these are, with the losses and norms of the updates

--wrapped makes the cases of families that no recorded case has, of trained cases of their text alone (make_model_goldens):
the same weights under the published names, together with tensors that represent a tower.
"""
import json
import pathlib
import re
import shutil
import sys

import ml_dtypes  # noqa: F401, which numpy knows bfloat16 by
import numpy
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

GOLDENS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "goldens" / "pictures"
TEXT_ROW = 2  # of the rows with pictures and films


def take(recorded, name):
    folder, out = recorded / name, GOLDENS / name
    out.mkdir(parents=True, exist_ok=True)
    golden = json.loads((folder / "golden.json").read_text())
    for file in ("config.json", "model.safetensors"):
        shutil.copyfile(folder / file, out / file)
        (out / file).chmod(0o644)
    tensors, metadata = {}, {}
    if golden["text_only"]:
        tensors = load_file(folder / "text_only.safetensors")
        text = golden["text_only"]
        count = len([key for key in tensors if key.endswith(".input_ids")])
        metadata["train"] = json.dumps(golden["train"] | {"rows": count, "decay_all": False} |
                                       {key: text[key] for key in ("losses", "grad_norms")})
    rows = load_file(folder / "golden.safetensors")
    own = f"row.{len([name for name in tensors if name.endswith('.input_ids')])}."
    for key in ("input_ids", "labels", "logits_at", "logits"):
        tensors[own + key] = rows[f"row.{TEXT_ROW}.{key}"]
    tensors["greedy"] = rows[f"row.{TEXT_ROW}.greedy"]
    tensors["prompt"] = rows[f"row.{TEXT_ROW}.input_ids"][:golden["prompt_lengths"][TEXT_ROW]]
    save_file({key: tensors[key].copy() for key in sorted(tensors)}, out / "golden.safetensors", metadata=metadata)


def with_stacked_experts(weights):
    """The experts' matrices as Qwen3-VL's mixtures have them: one tensor of all transposes."""
    experts = {}
    for key in [key for key in weights if ".mlp.experts." in key]:
        layer, expert, what = re.fullmatch(r"(.*\.mlp\.experts)\.(\d+)\.(\w+)\.weight", key).groups()
        experts.setdefault(layer, {}).setdefault(what, {})[int(expert)] = weights.pop(key).T
    for layer, parts in experts.items():
        stacked = {what: numpy.stack([of[i] for i in range(len(of))]) for what, of in parts.items()}
        weights[layer + ".gate_up_proj"] = numpy.concatenate([stacked["gate_proj"], stacked["up_proj"]], axis=2)
        weights[layer + ".down_proj"] = stacked["down_proj"]


def wrap(name, architecture, text_case, text, head, folder_name=None, sections=None):
    """`text` and `head`: how the published files begin the names of the text; `sections`: of its rotary embedding."""
    folder, out = GOLDENS.parent / text_case, GOLDENS / (folder_name or name)
    out.mkdir(parents=True, exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    del config["architectures"]
    if sections:
        config["model_type"] = name + "_text"
        config["rope_parameters"] |= {"mrope_section": sections}
        if name.startswith("qwen3"):
            config["rope_parameters"] |= {"mrope_interleaved": True}
    (out / "config.json").write_text(json.dumps(
        {"architectures": [architecture], "model_type": name, "tie_word_embeddings": config["tie_word_embeddings"],
         "vision_config": {"depth": 1}, "text_config": config}, indent=1) + "\n")

    def renamed(key):
        if key.startswith("model."):
            return text + key.removeprefix("model.")
        return head + key.removeprefix("lm_head.") if key.startswith("lm_head.") else key

    made_up = numpy.random.default_rng(5)
    tower = {"model.language_model.": "model.visual.", "model.": "visual."}.get(text, "vision_tower.")
    weights = {renamed(key): value for key, value in load_file(folder / "model.safetensors").items()}
    weights |= {tower + "patch_embed.proj.weight": made_up.standard_normal((6, 3, 2, 2)).astype(numpy.float16),
                tower + "blocks.0.attn.qkv.weight": made_up.standard_normal((18, 6)).astype(numpy.float32),
                tower + "position_ids": numpy.arange(5)}
    if name == "qwen3_vl_moe":
        with_stacked_experts(weights)
    save_file({key: numpy.ascontiguousarray(value) for key, value in weights.items()}, out / "model.safetensors",
              metadata={"format": "pt"})
    golden = load_file(folder / "golden.safetensors")
    with safe_open(folder / "golden.safetensors", "numpy") as file:
        settings = json.loads((file.metadata() or {}).get("adamw", "{}"))
    train = {"lr": settings.get("lr", 1e-3), "betas": [settings.get("beta1", 0.9), settings.get("beta2", 0.95)],
             "eps": settings.get("eps", 1e-8), "weight_decay": settings.get("weight_decay", 0.1),
             "max_grad_norm": settings.get("max_grad_norm", 1), "decay_all": settings.get("decay_all", True),
             "rows": len(golden["input_ids"]),
             "losses": golden["adamw.losses"].tolist(), "grad_norms": golden["adamw.grad_norms"].tolist()}
    tensors = {"grad." + renamed(key.removeprefix("grad.")): value
               for key, value in golden.items() if key.startswith("grad.")}
    tensors["loss"] = golden["loss"]
    width = golden["input_ids"].shape[1]
    for i, (ids, labels) in enumerate(zip(golden["input_ids"], golden["labels"])):
        tensors |= {f"row.{i}.input_ids": ids, f"row.{i}.labels": labels,
                    f"row.{i}.logits": golden["logits"].reshape(-1, width, golden["logits"].shape[-1])[i]}
    greedy, first = golden["greedy"].reshape(-1), golden["input_ids"][0]
    same = next((i for i in range(min(len(greedy), width)) if greedy[i] != first[i]), min(len(greedy), width))
    tensors |= {"greedy": greedy, "prompt": first[:same]}
    save_file({key: numpy.ascontiguousarray(tensors[key]) for key in sorted(tensors)}, out / "golden.safetensors",
              metadata={"train": json.dumps(train)})


if sys.argv[1] == "--wrapped":
    wrap("mistral3", "Mistral3ForConditionalGeneration", "mistral_trained", "language_model.model.",
         "language_model.lm_head.")
    wrap("qwen2_vl", "Qwen2VLForConditionalGeneration", "qwen2_trained", "model.", "lm_head.", "qwen2_vl_trained", [2, 3, 3])
    wrap("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", "qwen2_trained", "model.", "lm_head.", "qwen2_5_vl_trained",
         [2, 3, 3])
    wrap("qwen3_vl", "Qwen3VLForConditionalGeneration", "qwen3_trained", "model.language_model.", "lm_head.",
         "qwen3_vl_trained", [12, 10, 10])
    wrap("qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", "qwen3_moe_trained", "model.language_model.", "lm_head.",
         "qwen3_vl_moe_trained", [4, 2, 2])
    wrap("qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe_text_trained", "model.language_model.", "lm_head.")
else:
    for case in sys.argv[2:]:
        take(pathlib.Path(sys.argv[1]), case)
