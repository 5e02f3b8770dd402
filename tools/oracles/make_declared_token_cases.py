#!/usr/bin/env python3
"""Records the ids that transformers gives where other files than tokenizer.json declare tokens:
tests/goldens/declared_tokens/declarations.jsonl, for the tokenizer.json of that folder.

Each case has the other files of a folder, texts with their ids, and the ids of special tokens.

Needs `pip install transformers` (tried with 5.24), no torch. Usage: make_declared_token_cases.py [tests/goldens]
"""
import json
import pathlib
import shutil
import sys
import tempfile

from transformers import AutoTokenizer

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/goldens") / "declared_tokens"
TEXTS = ["<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nok<|im_end|>\n", "x <|endoftext|> y", "a user used user",
         "<|tool|> <|im_end|>", "a <|im_end|> b"]
CONFIG, NAMES, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"


def token(content, **flags):
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {"content": content, **plain, **flags}


def decoder(**more):
    tokens = {"280": token("<|endoftext|>"), "281": token("<|im_start|>"), "282": token("<|im_end|>"), **more}
    return {"added_tokens_decoder": tokens}


def cases():
    start_and_end = {"<|im_start|>": 281, "<|im_end|>": 282}
    yield {CONFIG: decoder()}
    yield {CONFIG: {"eos_token": "<|im_end|>", **decoder()}}
    yield {CONFIG: decoder(**{"280": token("<|endoftext|>", lstrip=True, rstrip=True)})}
    yield {CONFIG: decoder(**{"281": token("<|im_start|>", special=False, normalized=True)})}
    yield {CONFIG: decoder(**{"270": token("user")})}
    yield {CONFIG: {}, ADDED: start_and_end}
    yield {CONFIG: {"eos_token": "<|im_end|>"}, ADDED: start_and_end}
    yield {CONFIG: {}, ADDED: start_and_end, NAMES: {"eos_token": "<|im_end|>"}}
    yield {CONFIG: {"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>", "<|tool|>"]}}
    yield {CONFIG: {}, NAMES: {"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"]}}
    yield {CONFIG: {}, NAMES: {"eos_token": {**token("<|im_end|>", lstrip=True), "special": True}}}
    yield {CONFIG: {"pad_token": "user", "additional_special_tokens": ["use"]}}
    yield {CONFIG: {"extra_special_tokens": ["<|tool|>"], **decoder()}}
    yield {CONFIG: {"extra_special_tokens": {"tool_token": "<|tool|>"}, **decoder()}}
    yield {CONFIG: {"tool_token": "<|tool|>", "bos_token": None, **decoder()}}
    yield {CONFIG: decoder(), NAMES: {"additional_special_tokens": ["<|tool|>"]}}


with open(FOLDER / "declarations.jsonl", "w", encoding="utf-8") as out:
    for files in cases():
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(FOLDER / "tokenizer.json", folder)
            files[CONFIG] = {"tokenizer_class": "PreTrainedTokenizerFast", **files[CONFIG]}
            for name, content in files.items():
                (pathlib.Path(folder) / name).write_text(json.dumps(content))
            tokenizer = AutoTokenizer.from_pretrained(folder)
        special = sorted(i for i, t in tokenizer.added_tokens_decoder.items() if t.special)
        ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in TEXTS]
        out.write(json.dumps({"files": files, "texts": TEXTS, "ids": ids, "special": special}) + "\n")
