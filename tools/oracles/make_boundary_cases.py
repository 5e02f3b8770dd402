#!/usr/bin/env python3
"""Records what transformers makes of prompts and of the answers behind them: tests/goldens/prompt_boundary/prompts.jsonl.

Each case has a row and `texts`, one for each answer that is trained on: the ids of its prompt, as a model is asked
with, and those of the answer with its end. `chat` says whether the model has the chat template of the folder's
tokenizer_config.json. In the folder's tokenizer " positive" and two line ends are one token each.

Needs `pip install transformers jinja2` (tried with 5.24), no torch. Usage: make_boundary_cases.py [tests/goldens]
"""
import json
import pathlib
import sys

from transformers import AutoTokenizer

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/goldens") / "prompt_boundary"
END = "<|im_end|>"
tokenizer = AutoTokenizer.from_pretrained(FOLDER)


def ids_of(text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def turn(role, content):
    return {"role": role, "content": content}


def text_case(asked, /, *answers, **row):
    texts = [{"prompt": ids_of(asked), "answer": ids_of(answer) + ids_of(END)} for answer in answers]
    return {"chat": False, "row": row, "texts": texts}


def chat_case(row, *answers):
    """Each answer is a list of messages whose last one is trained on."""
    texts = []
    for messages in answers:
        prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
        texts.append({"prompt": ids_of(prompt), "answer": ids_of(messages[-1]["content"] + END)})
    return {"chat": True, "row": row, "texts": texts}


def pair_case(prompt, answer, **more):
    return text_case(prompt, answer, prompt=prompt, completion=answer, **more)


def cases():
    yield pair_case("Label: ", "positive")
    yield pair_case("Label: ", " positive")
    yield pair_case("Label:", " positive")
    yield pair_case("Q\n", "\n4")
    yield pair_case("Q\n", "\n\n4")
    yield pair_case("wh", "ere")
    yield pair_case("caf", "e\u0301 e\u0301")
    yield pair_case("cafe", "\u0301")
    yield pair_case("<|im_", "end|>")
    yield pair_case("Label: ", "positive", label=True)
    yield text_case("Q\n\n\n", "\nblue", instruction="Q\n", output="\nblue")
    yield text_case("Q\n\n\n", "\nuser", text="Q\n", label="\nuser")
    yield text_case("Label: ", "positive", "use", prompt="Label: ", chosen="positive", rejected="use")
    yield text_case("Label:", "\n\nblue", "\n\nuser", chosen="Label:\n\nblue", rejected="Label:\n\nuser")
    ask, blue = turn("user", "a"), turn("assistant", "\nblue")
    again, red = turn("user", "positive"), turn("assistant", "\n\nuser")
    two = [ask, blue, again, red]
    yield chat_case({"messages": [ask, blue]}, [ask, blue])
    yield chat_case({"messages": two}, two[:2], two)
    mixed = [ask, turn("assistant", "blue"), again, red]
    yield chat_case({"messages": mixed}, mixed[:2], mixed)
    mixed = [ask, blue, again, turn("assistant", "blue")]
    yield chat_case({"messages": mixed}, mixed[:2], mixed)
    yield chat_case({"prompt": two[:3], "completion": two[3:]}, two)
    yield chat_case({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "\nblue"}]}, [ask, blue])
    yield chat_case({"instruction": "a", "output": "\nblue"}, [ask, blue])
    yield chat_case({"text": "a", "label": "\nblue"}, [ask, blue])
    yield chat_case({"prompt": [ask], "chosen": [blue], "rejected": [turn("assistant", "blue")]}, [ask, blue],
                    [ask, turn("assistant", "blue")])


with open(FOLDER / "prompts.jsonl", "w", encoding="utf-8") as out:
    for case in cases():
        out.write(json.dumps(case) + "\n")
