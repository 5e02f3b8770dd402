#!/usr/bin/env python3
"""Writes what the addition demo needs: a small Qwen3 without weights, its tokenizer and chat data.

Usage: prepare.py FOLDER
  FOLDER/qwen3-tiny   config.json, tokenizer.json, tokenizer_config.json, generation_config.json
  FOLDER/qwen3-moe-tiny   the same with experts (examples/moe)
  FOLDER/qwen3-hybrid-tiny   with the gated delta rule in two of three layers (examples/parallel)
  FOLDER/qwen3-narrow   the same with a tenth of the weights, none of which it can do without (examples/qat)
  FOLDER/train.jsonl  additions of two-digit numbers asked as chat messages
  FOLDER/eval.jsonl   additions that are not in the training data
  FOLDER/minus*.jsonl, FOLDER/larger*.jsonl   the same for two other questions, for adapters (examples/lora)
  FOLDER/both*.jsonl    additions answered with a number alone or, one in four, a sentence (examples/preference)
  FOLDER/pairs*.jsonl   additions with a chosen and a rejected way to answer (examples/preference)
  FOLDER/judged*.jsonl  the same answers, each with a label of its own
  FOLDER/says*.jsonl, FOLDER/sums*.jsonl   additions as prompts, with the sentence, or the sum, to compare answers with
                        (examples/grpo)
"""
import json
import pathlib
import random
import sys

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WORDS = ["What", "Ġis", "Ġ+", "user", "assistant"]  # one token each
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
           r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CHAT_TEMPLATE = ("{%- for message in messages %}\n"
                 "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}\n"
                 "{%- endfor %}\n"
                 "{%- if add_generation_prompt %}\n"
                 "{{- '<|im_start|>assistant\\n' }}\n"
                 "{%- endif %}\n")
HELD_OUT = 500


def byte_alphabet():
    """The printable character that stands for each byte in a byte-level vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in names:
            names[byte] = chr(256 + len(names) - len(printable))
    return [names[byte] for byte in range(256)]


def tokenizer():
    vocab = {name: index for index, name in enumerate(byte_alphabet())}
    merges = []
    for word in WORDS:
        for length in range(2, len(word) + 1):
            if word[:length] not in vocab:
                merges.append([word[:length - 1], word[length - 1]])
                vocab[word[:length]] = len(vocab)
    added = [{"id": len(vocab) + index, "content": token, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True} for index, token in enumerate(SPECIAL)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
            "post_processor": None, "decoder": byte_level,
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                      "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False,
                      "ignore_merges": False, "vocab": vocab, "merges": merges}}


def model_config(end_of_turn):
    return {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False,
            "attention_dropout": 0.0, "bos_token_id": None, "eos_token_id": end_of_turn, "dtype": "float32",
            "head_dim": 32, "hidden_act": "silu", "hidden_size": 128, "initializer_range": 0.05,
            "intermediate_size": 384, "max_position_embeddings": 512, "num_attention_heads": 4,
            "num_hidden_layers": 3, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
            "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
            "tie_word_embeddings": True, "use_cache": True, "vocab_size": 320}


def mixture_config(end_of_turn):
    """Eight experts in each layer, two for each token, with about as many weights for a token as the dense model."""
    return model_config(end_of_turn) | {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "decoder_sparse_step": 1,
        "mlp_only_layers": [], "moe_intermediate_size": 192, "norm_topk_prob": True, "num_experts": 8,
        "num_experts_per_tok": 2, "output_router_logits": True, "router_aux_loss_coef": 0.01}


def hybrid_config(end_of_turn):
    """Qwen3.5: two layers of the gated delta rule, one of attention."""
    return model_config(end_of_turn) | {
        "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text",
        "layer_types": ["linear_attention", "linear_attention", "full_attention"], "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 32, "linear_num_key_heads": 2, "linear_value_head_dim": 32, "linear_num_value_heads": 4,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.5}}


def narrow_config(end_of_turn):
    return model_config(end_of_turn) | {"hidden_size": 48, "intermediate_size": 96, "num_attention_heads": 2,
                                        "num_hidden_layers": 2, "num_key_value_heads": 1, "initializer_range": 0.06}


QUESTIONS = {"": lambda a, b: (f"What is {a} + {b}?", a + b),
             "minus_": lambda a, b: (f"What is {a} - {b}?", a - b),
             "larger_": lambda a, b: (f"Which is larger: {a} or {b}?", max(a, b))}


def row(question, answer):
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": str(answer)}]}


def answers(a, b):
    """The sentence is chosen over the number alone. It begins with the number, too, so that the sum has no part in
    the comparison: digits that both answers begin with cancel out."""
    ask = [{"role": "user", "content": f"What is {a} + {b}?"}]
    said = [[{"role": "assistant", "content": text}] for text in (f"{a + b} it is.", str(a + b))]
    return ask, *said


def chance(a, b):
    """A number from 0 to 1, the same in every run."""
    return random.Random(100 * a + b).random()


def pair_row(a, b):
    return dict(zip(("prompt", "chosen", "rejected"), answers(a, b)))


def both_row(a, b):
    """An answer of either kind; what a and b are says nothing about which."""
    ask, sentence, number = answers(a, b)
    return {"messages": ask + (sentence if chance(a, b) < 0.25 else number)}


def judged_row(a, b):
    ask, chosen, rejected = answers(a, b)
    good = chance(a, b) < 0.5
    return {"prompt": ask, "completion": chosen if good else rejected, "label": good}


def says_row(a, b):
    ask, sentence, _ = answers(a, b)
    return {"prompt": ask, "completion": sentence}


def sums_row(a, b):
    return {"prompt": answers(a, b)[0], "answer": str(a + b)}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main():
    folder = pathlib.Path(sys.argv[1])
    tokens = tokenizer()
    end_of_turn = next(token["id"] for token in tokens["added_tokens"] if token["content"] == "<|im_end|>")
    for name, config in (("qwen3-tiny", model_config), ("qwen3-moe-tiny", mixture_config),
                         ("qwen3-hybrid-tiny", hybrid_config), ("qwen3-narrow", narrow_config)):
        model = folder / name
        model.mkdir(parents=True, exist_ok=True)
        write_json(model / "tokenizer.json", tokens)
        write_json(model / "config.json", config(end_of_turn))
        write_json(model / "generation_config.json", {"eos_token_id": end_of_turn, "do_sample": False})
        write_json(model / "tokenizer_config.json",
                   {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>",
                    "pad_token": "<|endoftext|>", "chat_template": CHAT_TEMPLATE})
    pairs = [(a, b) for a in range(10, 100) for b in range(10, 100)]
    random.Random(0).shuffle(pairs)
    makers = {prefix: lambda a, b, ask=ask: row(*ask(a, b)) for prefix, ask in QUESTIONS.items()}
    makers |= {"both_": both_row, "pairs_": pair_row, "judged_": judged_row, "says_": says_row, "sums_": sums_row}
    for prefix, make in makers.items():
        for name, part in (("eval", pairs[:HELD_OUT]), ("train", pairs[HELD_OUT:])):
            lines = [json.dumps(make(a, b)) for a, b in part]
            (folder / f"{prefix}{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
