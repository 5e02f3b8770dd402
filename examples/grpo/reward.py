#!/usr/bin/env python3
"""A reward for maths answers, as a program (docs/rewards.md): 1 for the right number, 0.1 for a wrong one in a box.

Reads one JSON object a line from standard input and writes one a line to standard output. The right answer is the row's
field "answer"; the model's is what stands in its last \\boxed{...}, or else its last number. Messages for people go
to standard error: what else is on standard output would be taken for an answer.
"""
import json
import re
import sys
from fractions import Fraction

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:/\d+)?")


def as_number(text):
    """The last number of the text, exactly; None where it has none."""
    found = NUMBER.findall(text.replace("\u2212", "-"))
    try:
        top, _, bottom = found[-1].replace(",", "").partition("/")
        return Fraction(top) / Fraction(bottom or 1)
    except (IndexError, ZeroDivisionError):
        return None


def reward_of(text, right):
    box = text.rpartition("\\boxed{")
    boxed = box[1] != ""
    number = as_number(box[2].split("}")[0] if boxed else text)
    if number is not None and number == right:
        return 1.0
    return 0.1 if boxed else 0.0


def judge(asked):
    right = as_number(str(asked["row"].get("answer", "")))
    if right is None:
        return {"id": asked["id"], "error": "the row's field 'answer' has no number"}
    return {"id": asked["id"], "reward": reward_of(asked["text"], right)}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(judge(json.loads(line))), flush=True)
