#!/usr/bin/env python3
r"""Converts between a corpus of the fuzz targets, one text file with an input on each line, and the folder of files that
libFuzzer works on.

  fuzz_corpus.py unpack CORPUS.txt FOLDER     writes each input to a file of its own
  fuzz_corpus.py pack FOLDER CORPUS.txt       writes the corpus again from the files of the folder
  fuzz_corpus.py add CORPUS.txt INPUT...      adds the files' contents to the corpus

On a line, printable characters stand for themselves; \\ is a backslash, \n \r \t are as in C, and \xHH is any byte (at the
end of a line also a space, which editors would remove). Lines are sorted and none comes twice."""
import hashlib
import pathlib
import re
import sys

SHORT = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
LONG = {short[1]: char.encode() for char, short in SHORT.items()}


def line_of(data):
    # surrogateescape keeps bytes that are no UTF-8 as single characters, which are not printable.
    def written(char):
        if char in SHORT or char.isprintable():
            return SHORT.get(char, char)
        return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))

    line = "".join(map(written, data.decode("utf-8", "surrogateescape")))
    return line[:-1] + "\\x20" if line.endswith(" ") else line


def data_of(line):
    escape = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.?))")
    return escape.sub(lambda m: bytes.fromhex(m[1].decode()) if m[1] else LONG[m[2].decode()], line.encode())


def read(corpus):
    inputs = set()
    text = corpus.read_text("utf-8") if corpus.exists() else ""
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else [], 1):
        try:
            inputs.add(data_of(line))
        except KeyError:
            sys.exit(f"{corpus}:{number}: a backslash stands before \\, n, r, t or x and two hexadecimal digits")
    return inputs


def write(corpus, inputs):
    lines = {line_of(data): data for data in inputs}
    wrong = [line for line, data in lines.items() if data_of(line) != data]
    if wrong:
        sys.exit(f"{corpus}: does not come back as it was: {wrong[0]}")
    corpus.write_text("".join(f"{line}\n" for line in sorted(lines)), "utf-8")


def main():
    command, *rest = sys.argv[1:] or [""]
    paths = [pathlib.Path(path) for path in rest]
    if command == "unpack" and len(paths) == 2:
        paths[1].mkdir(parents=True, exist_ok=True)
        for data in read(paths[0]):
            (paths[1] / hashlib.sha1(data).hexdigest()).write_bytes(data)
    elif command == "pack" and len(paths) == 2:
        write(paths[1], [path.read_bytes() for path in paths[0].iterdir()])
    elif command == "add" and len(paths) >= 2:
        write(paths[0], read(paths[0]) | {path.read_bytes() for path in paths[1:]})
    else:
        sys.exit(__doc__)


main()
