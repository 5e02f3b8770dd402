#!/usr/bin/env python3
"""The same files through temper_bench_tokenizer and the `tokenizers` library: speed, ratio, and whether the ids are equal.
   tokenizers_compare.py temper_bench_tokenizer TOKENIZER_FOLDER FILE...      needs: pip install tokenizers
Documents are those of bench/tokenizer.cpp, and so is the measure, CPU time; the library's threads are taken as busy alike."""
import json
import os
import subprocess
import sys
import tempfile
import time

REPEATS = 3
THREADS = 2
DOCUMENT = 16 << 10


def documents_of(text):
    documents = []
    while text:
        line_end = text.find(b"\n", DOCUMENT)
        size = len(text) if line_end < 0 else line_end + 1
        documents.append(text[:size].decode())
        text = text[size:]
    return documents


def best_seconds(clock, work):
    seconds = []
    for _ in range(REPEATS):
        start = clock()
        work()
        seconds.append(clock() - start)
    return min(seconds)


def measure_library(folder, path, ids_path):
    from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    documents = documents_of(open(path, "rb").read())
    megabytes = os.path.getsize(path) / 1e6
    single = best_seconds(time.thread_time, lambda: [
        tokenizer.encode(text, add_special_tokens=False) for text in documents])
    batch = best_seconds(time.process_time, lambda: tokenizer.encode_batch(documents, add_special_tokens=False))
    ids = [i for text in documents for i in tokenizer.encode(text, add_special_tokens=False).ids]
    equal = ids == [int(line) for line in open(ids_path)]
    return megabytes / single, THREADS * megabytes / batch, equal


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    program, folder, files = sys.argv[1], sys.argv[2], sys.argv[3:]
    os.environ.update(TOKENIZERS_PARALLELISM="true", RAYON_NUM_THREADS=str(THREADS))
    wrong = 0
    with tempfile.TemporaryDirectory() as out:
        printed = subprocess.run([program, folder, *files, "--threads", str(THREADS), "--ids", out], check=True, capture_output=True, text=True)
        rows = [json.loads(line) for line in printed.stdout.splitlines()]
        for path in files:
            name = os.path.basename(path)
            single, batch, equal = measure_library(folder, path, os.path.join(out, name + ".ids"))
            wrong += not equal
            for row in (row for row in rows if row.get("file") == name):
                peer = single if row["threads"] == 1 else batch
                print(f"{name:16} {row['threads']} threads  encode {row['encode_mb_s']:6.1f} MB/s"
                      f"  with offsets {row['offsets_mb_s']:6.1f}  decode {row['decode_mb_s']:6.1f}"
                      f"  tokenizers {peer:5.1f} MB/s  ratio {row['encode_mb_s'] / peer:5.1f}x"
                      f"  ids {'equal' if equal else 'DIFFER'}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
