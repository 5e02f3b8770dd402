"""How inputs are spoiled: bytes of a file, values of JSON, and what stands where a file is expected."""

import json
import os

HUGE = [10**30, -(10**30), 2**63, 2**31, -1, 0, 1e308, 1e-320, 10**400]
ODD = [None, True, "", "x" * 100000, "\u0000", "\ud800", [], {}, [[]], "../../../etc/passwd", *HUGE]


def flipped(content, chance):
    for _ in range(chance.choice([1, 1, 2, 5, 50])):
        at = chance.randrange(len(content))
        content[at] ^= 1 << chance.randrange(8)


def cut(content, chance):
    del content[chance.randrange(len(content)) :]


def inserted(content, chance):
    at = chance.randrange(len(content))
    content[at:at] = chance.randbytes(chance.choice([1, 8, 1000]))


def no_text(content, chance):
    at = chance.randrange(len(content))
    content[at:at] = chance.choice([b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x00", b"\xef\xbb\xbf", b"\x1b[2J"])


def nested(content, chance):
    at, depth = chance.randrange(len(content)), chance.choice([100, 10000, 1000000])
    content[at:at] = chance.choice([b"[", b'{"a":', b"- ", b"{a: ", b"&a [*a, "]) * depth


def repeated(content, chance):
    begin = chance.randrange(len(content))
    part = bytes(content[begin : begin + chance.randint(1, 2000)])
    content[begin:begin] = part * chance.choice([1, 10, 1000])


def number(content, chance):
    """Where a digit was, more than any type holds."""
    digits = [at for at, byte in enumerate(content) if 48 <= byte < 58]
    if digits:
        at = chance.choice(digits)
        content[at : at + 1] = str(chance.choice(HUGE)).encode()


def emptied(content, chance):
    content.clear()


BYTES = [flipped, cut, inserted, no_text, nested, repeated, number, emptied]


def spoil_bytes(path, chance):
    """Says how."""
    how = chance.choice(BYTES)
    with open(path, "rb") as file:
        content = bytearray(file.read())
    how(content, chance)
    with open(path, "wb") as file:
        file.write(content)
    return how.__name__


def spoil_value(path, chance):
    """Of JSON: one value becomes another one, or a key another one."""
    with open(path, "rb") as file:
        value = json.loads(file.read())
    places = []

    def find(inside):
        for key in list(inside) if isinstance(inside, dict) else range(len(inside)):
            places.append((inside, key))
            if isinstance(inside[key], (dict, list)):
                find(inside[key])

    find(value)
    inside, key = chance.choice(places)
    inside[key] = odd = chance.choice(ODD)
    with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
        json.dump(value, file, ensure_ascii=chance.random() < 0.5)
    return f"{key}: {str(odd)[:40]!r}"


def fifo(path):
    os.mkfifo(path)


def folder(path):
    os.makedirs(path)


def link_to(target):
    return lambda path: os.symlink(target, path)


INSTEAD = {"fifo": fifo, "folder": folder, "/dev/zero": link_to("/dev/zero"), "/dev/random": link_to("/dev/random"),
           "/dev/null": link_to("/dev/null"), "/dev/tty": link_to("/dev/tty"), "a link to itself": lambda path: os.symlink(path, path),
           "nothing": lambda path: None}


def replace(path, chance):
    os.remove(path)
    how = chance.choice(list(INSTEAD))
    INSTEAD[how](path)
    return how
