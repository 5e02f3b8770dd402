#!/usr/bin/env python3
"""Trains a small tokenizer of every kind that Temper reads, on text made here, and records what the `tokenizers`
library makes of many texts: tests/goldens/tokenizer_NAME/{tokenizer.json,cases.jsonl}.

Needs `pip install tokenizers` (tried with 0.23). Each line of cases.jsonl has text, ids, decoded, ids_special (with
the post-processor's tokens), random_ids and random_decoded.

Usage: make_tokenizer_cases.py [--out tests/goldens] [--cases 300] [--only NAME]
"""
import argparse
import base64
import json
import pathlib
import random
import struct

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

MARK = "\u2581"
VOCABULARY, SMALL = 900, 600

GPT2 = None  # ByteLevel's own pattern
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
            r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]

# First and last code point of what words are made of, and how common they are.
SCRIPTS = [(0x61, 0x7A, 40), (0x41, 0x5A, 5), (0xC0, 0x17F, 4), (0x3B1, 0x3C9, 2), (0x430, 0x44F, 4), (0x5D0, 0x5EA, 1),
           (0x627, 0x64A, 2), (0x905, 0x94D, 2), (0xE01, 0xE4E, 1), (0x3041, 0x3096, 2), (0x30A1, 0x30FA, 1),
           (0x4E00, 0x4F00, 3), (0xAC00, 0xAD00, 2), (0x1F600, 0x1F64F, 1)]
ODD = ["\u0301", "\u0323", "e\u0301", "\u1100\u1161\u11a8", "\u212b", "\ufb01", "\u00a0", "\u200b", "\u200d", "\ufeff",
       "\u3000", "\u2028", "\x00", "\x01", "\x7f", "\x85", "\r\n", "\n\n", "\t", "  ", "    ", " \n ", MARK, MARK * 2,
       "\u0130", "\u03a3", "\u00bd", "\u0663", "\u2462", "\U0001F468\u200D\U0001F469\u200D\U0001F467", "\U0001F1E9\U0001F1EA",
       "\U00020000", "\U0010FFFF", "\uFFFD", "don't", "I'LL", "'\u017f", "12345678", "3.14", "a_b", "<0x41>", "<0xE2>",
       "<unk>", "</s>", "x=[1];", "//--", "\u3131\u314f", "\uff76\uff9e", "\u0e33", "\ufdfa", "http://a.b/c?d=e&f"]
WORDS = ("the of and to in is that it was for on are with as his they at be this from have or by one had not but what "
         "all were when we there can an your which their said if do will each about how up out them then she many some "
         "so these would other into has more her two like him see time could no make than first been its who now people "
         "my made over did down only way find use may water long little very after words called just where most know "
         "return self def class import print value index range while lambda yield \u043f\u0440\u0438\u0432\u0435\u0442 "
         "\u043c\u0438\u0440 \u4f60\u597d \u4e16\u754c \u3053\u3093\u306b\u3061\u306f na\u00efve caf\u00e9 stra\u00dfe").split()
ADDED = [AddedToken("<|special|>", special=True), AddedToken("<|left|>", lstrip=True, special=True, normalized=False),
         AddedToken("<|right|>", rstrip=True, normalized=False), AddedToken("Word", single_word=True, normalized=False),
         AddedToken("caf\u00e9X", normalized=True), AddedToken("two words", normalized=True),
         AddedToken("<|", normalized=False), AddedToken("[both]", lstrip=True, rstrip=True, normalized=True)]


def character(rng):
    first, last, _ = rng.choices(SCRIPTS, [weight for _, _, weight in SCRIPTS])[0]
    return chr(rng.randint(first, last))


def word(rng):
    kind = rng.random()
    if kind < 0.55:
        return rng.choice(WORDS)
    if kind < 0.65:
        return str(rng.randrange(10 ** rng.randint(1, 7)))
    if kind < 0.72:
        return rng.choice(".,;:!?-()[]{}\"'/\\@#$%&*+=<>|~^`_") * rng.randint(1, 3)
    return "".join(character(rng) for _ in range(rng.randint(1, 8)))


def plain(rng, words):
    out = ""
    for _ in range(words):
        out += rng.choices(["", " ", "\n", "  "], [3, 30, 2, 1])[0] + word(rng)
    return out.lstrip(" ") if rng.random() < 0.8 else out


def any_character(rng):
    while True:
        code = rng.choice([rng.randrange(0x80), rng.randrange(0x3000), rng.randrange(0x10000), rng.randrange(0x110000)])
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def sample(rng, added):
    """A text of a kind that finds differences."""
    kind = rng.random()
    if kind < 0.3:
        return plain(rng, rng.randint(0, 12))
    if kind < 0.4:
        return "".join(any_character(rng) for _ in range(rng.randint(1, 12)))
    if kind < 0.5:
        return " " * rng.randint(0, 5) + rng.choice(["", word(rng)]) + " " * rng.randint(0, 20)
    parts = []
    for _ in range(rng.randint(1, 9)):
        choice = rng.random()
        if choice < 0.35:
            parts.append(word(rng))
        elif choice < 0.55:
            parts.append(rng.choice(ODD))
        elif choice < 0.75:
            parts.append(rng.choice(added)[:rng.choice([99, 99, 99, 4])])
        elif choice < 0.8:
            parts.append(any_character(rng))
        else:
            parts.append(rng.choice([" ", " ", "  ", "\n"]))
    return "".join(parts)


def corpus():
    rng = random.Random(1)
    return [plain(rng, 40) for _ in range(1500)]


def trained_bpe(pre_tokenizer, vocabulary=VOCABULARY, **options):
    """Vocabulary and merges over characters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, show_progress=False, **options)
    tokenizer.train_from_iterator(corpus(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def byte_level(patterns, normalizer=None, prefix=False, ignore_merges=False):
    own = patterns is None
    level = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=own)
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated", False) for pattern in patterns or []]
    pre_tokenizer = pre_tokenizers.Sequence(splits + [level]) if splits else level
    vocabulary, merges = trained_bpe(pre_tokenizer, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=ignore_merges))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def with_bytes(vocabulary, merges, byte_tokens=True):
    """As SentencePiece lays a vocabulary out: <unk>, <s>, </s>, the bytes, the merged, the characters."""
    names = ["<unk>", "<s>", "</s>"]
    if byte_tokens:
        names += [f"<0x{byte:02X}>" for byte in range(256)]
    names += [name for name, _ in sorted(vocabulary.items(), key=lambda item: item[1]) if name not in names]
    return {name: i for i, name in enumerate(names)}, merges


def llama2(legacy, byte_tokens=True, scheme="first", fuse_unk=True):
    pieces, merges = with_bytes(*trained_bpe(pre_tokenizers.Metaspace(), limit_alphabet=120), byte_tokens)
    tokenizer = Tokenizer(models.BPE(pieces, merges, unk_token="<unk>", fuse_unk=fuse_unk, byte_fallback=byte_tokens))
    if legacy:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(MARK, prepend_scheme=scheme, split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    return tokenizer


def gemma():
    lines = pre_tokenizers.Split(Regex("(?<=\\S)(?=\\s)"), "isolated", False)
    spaced = pre_tokenizers.Sequence([lines, pre_tokenizers.Metaspace(MARK, prepend_scheme="never")])
    pieces, merges = with_bytes(*trained_bpe(spaced, limit_alphabet=150))
    tokenizer = Tokenizer(models.BPE(pieces, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", MARK)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous", False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def charsmap(replacements):
    """A SentencePiece table of replacements: a double-array trie and texts, each with a zero byte behind it."""
    texts, trie = b"", {}
    for key, text in sorted(replacements.items()):
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[None] = len(texts)
        texts += text.encode() + b"\0"
    units, used, bases = {0: 0}, {0}, set()

    def place(node, at):  # its children stand at base ^ label, its value at base
        base = 1
        while base in bases or any((base ^ (label or 0)) in used for label in node) or (base ^ at) >= 1 << 21:
            base += 1
        bases.add(base)  # else children would be taken for those of another node
        used.update(base ^ (label or 0) for label in node)
        units[at] |= (base ^ at) << 10
        if None in node:
            units[at] |= 1 << 8
            units[base] = node[None] | 1 << 31
        for label, child in node.items():
            if label is not None:
                units[base ^ label] = label
                place(child, base ^ label)

    place(trie, 0)
    array = [units.get(i, 0) for i in range((max(units) | 255) + 1)]  # any byte may follow
    blob = struct.pack(f"<{len(array)}I", *array)
    return base64.b64encode(struct.pack("<I", len(blob)) + blob + texts).decode()


def unigram(byte_tokens=False, normalizer=None, scheme="always", pre=(), **model_options):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    metaspace = pre_tokenizers.Metaspace(MARK, prepend_scheme=scheme)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*pre, metaspace]) if pre else metaspace
    trainer = trainers.UnigramTrainer(vocab_size=VOCABULARY + 600, unk_token="<unk>", show_progress=False,
                                      special_tokens=["<unk>", "<s>", "</s>"])
    tokenizer.train_from_iterator(["".join(c for c in text if ord(c) < 0x4E20) for text in corpus()], trainer)
    vocabulary = [(piece, round(score, 6)) for piece, score in json.loads(tokenizer.to_str())["model"]["vocab"]]
    if byte_tokens:  # fewer characters, so that the bytes are used
        vocabulary = [(piece, score) for piece, score in vocabulary if len(piece) > 1 or ord(piece) < 0x250 or piece == MARK]
        vocabulary[3:3] = [(f"<0x{byte:02X}>", 0.0) for byte in range(256)]
    tokenizer.model = models.Unigram(vocabulary, 0, byte_tokens)
    if byte_tokens:
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(MARK, prepend_scheme=scheme)])
    else:
        tokenizer.decoder = decoders.Metaspace(MARK, prepend_scheme=scheme)
    return tokenizer


def with_charsmap():
    table = {"\uff21": "A", "\uff22": "B", "\u3000": " ", "\u00a0": " ", "\ufb01": "fi", "\u2460": "1", "\u200b": "",
             "e\u0301": "\u00e9", "\u212b": "\u00c5", "\u00bd": "1/2", "\t": " ", "\n": " ", "\x01": "", "\ufdfa": "\u0635\u0644\u0649"}
    normalizer = json.dumps({"type": "Sequence", "normalizers": [
        {"type": "Precompiled", "precompiled_charsmap": charsmap(table)},
        {"type": "Strip", "strip_left": False, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": MARK}]})
    tokenizer = unigram()
    file = json.loads(tokenizer.to_str())
    file["normalizer"] = json.loads(normalizer)
    return Tokenizer.from_str(json.dumps(file))


def few_bytes(byte_tokens=False, **options):
    """Byte-level, with tokens for the most common bytes only."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    vocabulary, merges = trained_bpe(level, SMALL, limit_alphabet=90)
    if byte_tokens:  # the spellings of missing bytes, except a few
        vocabulary |= {f"<0x{byte:02X}>": len(vocabulary) + i for i, byte in enumerate([*range(0x80, 0xA0), 0xC4])}
    if "unk_token" in options:
        vocabulary |= {options["unk_token"]: len(vocabulary)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=byte_tokens, **options))
    tokenizer.pre_tokenizer = level
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def level_first(*later, before=(), prefix=False):
    """Behind ByteLevel pre-tokenizers see the characters that spell bytes."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=bool(before))
    pre_tokenizer = pre_tokenizers.Sequence([*before, level, *later])
    vocabulary, merges = trained_bpe(pre_tokenizer, SMALL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


MAKERS = {
    "gpt2": lambda: byte_level(GPT2),
    "gpt2_prefixed": lambda: byte_level(GPT2, prefix=True, normalizer=normalizers.Sequence([
        normalizers.NFKC(), normalizers.Lowercase()])),
    "qwen35": lambda: byte_level([QWEN35], normalizer=normalizers.NFC()),
    "o200k": lambda: byte_level([O200K], ignore_merges=True),
    "deepseek": lambda: byte_level(DEEPSEEK, normalizer=normalizers.Sequence([])),
    "llama2_legacy": lambda: llama2(legacy=True),
    "llama2": lambda: llama2(legacy=False),
    "bpe_unk": lambda: llama2(legacy=False, byte_tokens=False, scheme="always", fuse_unk=False),
    "gemma": gemma,
    "unigram": unigram,
    "unigram_bytes": lambda: unigram(byte_tokens=True, normalizer=normalizers.NFKC(), scheme="first"),
    "unigram_words": lambda: unigram(normalizer=normalizers.Sequence([normalizers.NFD(), normalizers.Strip()]),
                                     pre=[pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]),
    "unigram_charsmap": with_charsmap,
    "bytes_dropped": few_bytes,
    "bytes_dropped_whole": lambda: few_bytes(ignore_merges=True),
    "bytes_unk": lambda: few_bytes(unk_token="<none>"),
    "bytes_unk_fused": lambda: few_bytes(unk_token="<none>", fuse_unk=True),
    "bytes_fallback": lambda: few_bytes(byte_tokens=True),
    "falcon": lambda: level_first(pre_tokenizers.Digits(False), pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
                                  before=[pre_tokenizers.Punctuation("contiguous")]),
    "level_first": lambda: level_first(pre_tokenizers.Split("\u0120", "merged_with_next"), pre_tokenizers.Digits(True),
                                       pre_tokenizers.Punctuation("merged_with_previous"), prefix=True),
}

# Around the text; for all others a template.
FRAMES = {
    "bytes_dropped": lambda first, last: processors.RobertaProcessing(last, first, trim_offsets=True, add_prefix_space=False),
    "bytes_dropped_whole": lambda first, last: processors.ByteLevel(trim_offsets=True),
    "bytes_unk": lambda first, last: processors.BertProcessing(last, first),
    "falcon": lambda first, last: processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="$A:0 <s>:1 </s>:0 <s>", special_tokens=[first, last])]),
    "level_first": lambda first, last: processors.Sequence([processors.RobertaProcessing(last, first)]),
}


def template(first, last):
    return processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[first, last])


def finished(tokenizer, frame):
    """With added tokens of every kind, and tokens around the text."""
    tokenizer.add_tokens(ADDED)
    tokenizer.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    tokenizer.post_processor = frame(*((name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")))
    return tokenizer


def case(tokenizer, text, rng):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    byte_ids = [i for i in (tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in (0x41, 0xE2, 0x96, 0x81, 0xF0, 0x20)) if i]
    some = [rng.choice(byte_ids) if byte_ids and rng.random() < 0.4 else rng.randrange(tokenizer.get_vocab_size())
            for _ in range(rng.randint(0, 6))]
    return {"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
            "ids_special": tokenizer.encode(text).ids, "random_ids": some,
            "random_decoded": tokenizer.decode(some, skip_special_tokens=False)}


def write(folder, tokenizer, count):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False) + "\n")
    rng = random.Random(2)
    texts = ["", " ", "  ", "a", " a", MARK] + [token.content for token in ADDED]
    texts += [sample(rng, [token.content for token in ADDED]) for _ in range(count)]
    with open(folder / "cases.jsonl", "w") as lines:
        for text in texts:
            lines.write(json.dumps(case(tokenizer, text, rng)) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parents[2] / "tests" / "goldens")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--only")
    args = parser.parse_args()
    for name, make in MAKERS.items():
        if args.only in (None, name):
            write(args.out / f"tokenizer_{name}", finished(make(), FRAMES.get(name, template)), args.cases)
            print(name)


if __name__ == "__main__":
    main()
