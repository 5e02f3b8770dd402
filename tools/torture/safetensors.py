"""Reads and changes files of tensors."""

import array
import json
import os
import struct


def header_of(file):
    """Of an open file: what it says of its tensors, and where the first one begins."""
    length = struct.unpack("<Q", file.read(8))[0]
    return json.loads(file.read(length)), 8 + length


def put(path, value, chance):
    """Into one element of one float32 tensor, whose name and place it gives."""
    with open(path, "r+b") as file:
        header, begin = header_of(file)
        tensors = sorted(name for name, each in header.items() if name != "__metadata__" and each["dtype"] == "F32")
        name = chance.choice(tensors)
        first, last = header[name]["data_offsets"]
        at = chance.randrange((last - first) // 4)
        file.seek(begin + first + 4 * at)
        file.write(struct.pack("<f", value))
    return name, at


def files_of(folder):
    return [os.path.join(inner, name) for inner, _, names in os.walk(folder) for name in names if name.endswith(".safetensors")]


def is_finite(path):
    """Whether all numbers of a file of float32 and bfloat16 tensors are: of neither all bits of the exponent are set."""
    with open(path, "rb") as file:
        header, begin = header_of(file)
        for name, each in header.items():
            if name == "__metadata__" or each["dtype"] not in ("F32", "BF16"):
                continue
            first, last = each["data_offsets"]
            file.seek(begin + first)
            halves = array.array("H", file.read(last - first))
            if any(word & 0x7F80 == 0x7F80 for word in (halves[1::2] if each["dtype"] == "F32" else halves)):
                return False
    return True
