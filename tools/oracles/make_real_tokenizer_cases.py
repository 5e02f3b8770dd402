#!/usr/bin/env python3
"""A development check with published vocabularies: builds a tokenizer of each GGUF file of a folder with the
`tokenizers` library, copies tokenizer.json files, and records what the library makes of random strings and of texts, in
the form of tests/goldens. Nothing of it is kept in the repository.

Needs `pip install tokenizers gguf`. Usage:
  make_real_tokenizer_cases.py --out FOLDER [--cases 2000] [--gguf FOLDER] [--json FILE…] [--texts FILE…]
  TEMPER_GOLDENS=FOLDER build/release/tests/test_parity --gtest_filter='*TokenizerParity*'
"""
import argparse
import json
import pathlib
import random

import gguf
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from make_tokenizer_cases import LLAMA3, MARK, QWEN2, QWEN35, case, sample

CONTROL, USER_DEFINED = 3, 4
CODER = ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"]


def sequence(*patterns, digits=None):
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not patterns)
    first = [] if digits is None else [pre_tokenizers.Digits(digits)]
    return pre_tokenizers.Sequence([*first, *(pre_tokenizers.Split(Regex(p), "isolated") for p in patterns), level])


PRE_TOKENIZERS = {
    "falcon": pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")]),
    "starcoder": sequence(digits=True), "refact": sequence(digits=True), "command-r": sequence(digits=True),
    "llama-bpe": sequence(LLAMA3), "qwen2": sequence(QWEN2), "qwen35": sequence(QWEN35),
    "deepseek-coder": sequence(*CODER),
}
NORMALIZERS = {"gpt-neox": normalizers.NFC(), "mpt": normalizers.NFC(), "qwen2": normalizers.NFC(),
               "qwen35": normalizers.NFC(), "command-r": normalizers.NFC()}


def byte_level(name, tokens, merges):
    vocabulary = {token: i for i, token in enumerate(tokens)}  # with the added ones, which keep their ids so
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=name == "llama-bpe"))
    tokenizer.pre_tokenizer = PRE_TOKENIZERS.get(name, sequence())
    tokenizer.decoder = decoders.ByteLevel()
    if name in NORMALIZERS:
        tokenizer.normalizer = NORMALIZERS[name]
    return tokenizer


def over_characters(tokens, scores, merges):
    """SentencePiece's BPE: the merges are all pairs of pieces that make a piece, in the order of its score."""
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if not merges:
        for token in tokens:
            pairs = [(token[:i], token[i:]) for i in range(1, len(token))]
            pairs = [(a, b) for a, b in pairs if a in vocabulary and b in vocabulary]
            merges += sorted(pairs, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
        merges.sort(key=lambda pair: -scores[vocabulary["".join(pair)]])
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    return tokenizer


def of_gguf(path):
    fields = gguf.GGUFReader(path).fields
    read = lambda key: fields[f"tokenizer.ggml.{key}"].contents() if f"tokenizer.ggml.{key}" in fields else []
    name = path.stem.removeprefix("ggml-vocab-")
    tokens, kinds = read("tokens"), read("token_type")
    merges = [tuple(merge.split(" ")) for merge in read("merges")]
    if read("model") == "gpt2":
        tokenizer = byte_level(name, tokens, merges)
    elif read("model") == "llama":
        tokenizer = over_characters(tokens, read("scores"), merges)
    else:
        return None
    for token, kind in zip(tokens, kinds):
        if kind in (CONTROL, USER_DEFINED):
            added = AddedToken(token, special=kind == CONTROL, normalized=False)
            (tokenizer.add_special_tokens if kind == CONTROL else tokenizer.add_tokens)([added])
    ends = [(token, tokenizer.token_to_id(token)) for token, kind in zip(tokens, kinds) if kind == CONTROL]
    if ends:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[ends[0][0], "$A", ends[-1][0]], special_tokens=ends)
    return tokenizer


def texts_of(paths, rng):
    """Pieces of the files, of all sizes."""
    for path in paths:
        text = pathlib.Path(path).read_text(errors="replace")
        at = 0
        while at < len(text):
            size = int(2 ** rng.uniform(2, 12))
            yield text[at:at + size]
            at += size


def write(folder, tokenizer, count, paths):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    rng = random.Random(3)
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()] or ["<none>"]
    texts = [sample(rng, added) for _ in range(count)] + list(texts_of(paths, rng))
    cases = [case(tokenizer, text, rng) for text in texts]
    (folder / "cases.jsonl").write_text("".join(json.dumps(one) + "\n" for one in cases))
    print(f"{folder.name}: {len(texts)} texts, {sum(len(one['ids']) for one in cases)} tokens", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--gguf", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--json", nargs="*", default=[])
    parser.add_argument("--texts", nargs="*", default=[])
    args = parser.parse_args()
    for path in sorted(args.gguf.glob(f"*{args.only}*.gguf")) if args.gguf else []:
        tokenizer = of_gguf(path)
        if tokenizer:
            write(args.out / path.stem.replace("-", "_"), tokenizer, args.cases, args.texts)
    for i, path in enumerate(args.json):
        write(args.out / f"json_{i}", Tokenizer.from_file(path), args.cases, args.texts)


if __name__ == "__main__":
    main()
