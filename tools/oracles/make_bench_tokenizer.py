#!/usr/bin/env python3
"""Trains a byte-level BPE on text files, so that speed is measured with a vocabulary of the usual size.
   make_bench_tokenizer.py qwen2|llama3 VOCABULARY_SIZE OUT_FOLDER FILE...      needs: pip install tokenizers"""
import os
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

DIGITS = {"qwen2": r"\p{N}", "llama3": r"\p{N}{1,3}"}
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS"
           r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LISTED = ["<think>", "</think>", "<tool_call>", "</tool_call>"]


def main():
    if len(sys.argv) < 5 or sys.argv[1] not in DIGITS:
        sys.exit(__doc__)
    kind, size, folder, files = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    tokenizer = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    if kind == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN.replace("DIGITS", DIGITS[kind])), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train(files, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in LISTED])
    os.makedirs(folder, exist_ok=True)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    print(f"{folder}: {tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
