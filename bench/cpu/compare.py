#!/usr/bin/env python3
"""Temper compared with transformers on one CPU, in one run: the same weights, tokens, optimizer and steps. Checks that the
losses agree and prints a table.

    make bench                                   # builds build/release/bench/temper_bench_train
    python3 bench/cpu/compare.py [--cases small-float32 ...] [--turns N] [--folder WORK] [--isa avx2]

transformers, PyTorch and numpy are needed for this comparison only. The programs take turns, each in a process of its
own: transformers eager, transformers with torch.compile (both with its default for experts, grouped_mm), for mixtures
transformers with a loop over the experts, Temper. Hybrids of attention and the gated delta rule run there without
torch.compile, which unrolls the loop over chunks for minutes. A turn's speed is the median of its steps; the table has
the best turn of each, because what else a shared machine does can only slow a turn down, and, as the ratio of
medians, what the turns had in the middle. Memory is the most that was resident; parameters, gradients and moments have
the dtype of the case in both."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# vocabulary, hidden, inner, layers, heads, KV heads, head_dim
SHAPES = {
    "small": (32000, 512, 1536, 8, 8, 4, 64),
    "qwen3-0.6b": (151936, 1024, 3072, 28, 16, 8, 128),
    "demo": (512, 128, 384, 4, 4, 2, 32),
    "mixture": (32000, 512, 384, 6, 8, 4, 64),
    "fine-mixture": (8192, 512, 192, 6, 8, 4, 64),
    "demo-mixture": (512, 128, 192, 4, 4, 2, 32),
}
EXPERTS = {"mixture": (16, 4), "fine-mixture": (64, 8), "demo-mixture": (8, 2)}  # how many, of the inner size, and how many a token gets
# Those of bench/gpu/shapes.py: three layers of the gated delta rule to one of attention.
HYBRIDS = {"hybrid": "small-hybrid", "dense-hybrid": "small-dense-hybrid",
           "demo-hybrid": "demo-hybrid"}
# shape, dtype, rows, length, steps, learning rate
TRAINING = {
    "small-float32": ("small", "float32", 8, 512, 6, 1e-4),
    "small-bfloat16": ("small", "bfloat16", 8, 512, 6, 1e-4),
    "qwen3-0.6b-bfloat16": ("qwen3-0.6b", "bfloat16", 2, 512, 5, 1e-5),
    "mixture-float32": ("mixture", "float32", 8, 512, 6, 1e-4),
    "mixture-bfloat16": ("mixture", "bfloat16", 8, 512, 6, 1e-4),
    "fine-mixture-float32": ("fine-mixture", "float32", 8, 512, 6, 1e-4),
    "fine-mixture-bfloat16": ("fine-mixture", "bfloat16", 8, 512, 6, 1e-4),
    "demo-mixture-float32": ("demo-mixture", "float32", 32, 64, 30, 1e-4),
    "demo-mixture-bfloat16": ("demo-mixture", "bfloat16", 32, 64, 30, 1e-4),
    "hybrid-float32": ("hybrid", "float32", 8, 512, 5, 1e-4),
    "hybrid-bfloat16": ("hybrid", "bfloat16", 8, 512, 5, 1e-4),
    "dense-hybrid-float32": ("dense-hybrid", "float32", 8, 512, 5, 1e-4),
    "dense-hybrid-bfloat16": ("dense-hybrid", "bfloat16", 8, 512, 5, 1e-4),
    "demo-hybrid-float32": ("demo-hybrid", "float32", 8, 512, 8, 1e-4),
    "demo-hybrid-bfloat16": ("demo-hybrid", "bfloat16", 8, 512, 8, 1e-4),
    "demo-float32": ("demo", "float32", 32, 64, 60, 1e-3),
}
# dtype, rows, length of packed rows, steps, learning rate
DOCUMENTS = {"demo-documents": ("float32", 8, 512, 40, 1e-4)}
GENERATION = {"generate-qwen3-0.6b-bfloat16": ("qwen3-0.6b", "bfloat16", 256, 256)}
MOST_APART = {"float32": 1e-4, "bfloat16": 5e-3}  # of losses, relative


def make_folder(folder, shape):
    """A random model in Hugging Face's format, and its tokens."""
    if (folder / "tokens.int32").exists():
        return
    if shape in HYBRIDS:
        subprocess.run([sys.executable, HERE.parent / "gpu" / "make_model.py", HYBRIDS[shape], folder, "--tokens",
                        str(1 << 17), "--device", "cpu"], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        for file in (folder / "model").iterdir():
            file.rename(folder / file.name)
        return
    code = """if True:
        import sys, numpy, torch
        from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
        folder, vocab, hidden, inner, layers, heads, kv_heads, head_dim = sys.argv[1], *map(int, sys.argv[2:9])
        torch.manual_seed(1)
        sizes = dict(vocab_size=vocab, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers,
                     num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim, rope_theta=1e6,
                     max_position_embeddings=4096, tie_word_embeddings=True)
        if sys.argv[9:]:
            experts, top_k = map(int, sys.argv[9:])
            model = Qwen3MoeForCausalLM(Qwen3MoeConfig(num_experts=experts, num_experts_per_tok=top_k,
                                                       moe_intermediate_size=inner, norm_topk_prob=True, **sizes))
        else:
            model = Qwen3ForCausalLM(Qwen3Config(**sizes))
        model.to(torch.bfloat16).save_pretrained(folder)
        tokens = numpy.random.default_rng(1).integers(0, vocab, 1 << 17, dtype=numpy.int32)
        tokens.tofile(folder + "/tokens.int32")"""
    sizes = map(str, SHAPES[shape] + EXPERTS.get(shape, ()))
    subprocess.run([sys.executable, "-c", code, str(folder), *sizes], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# What limits both programs to a processor with less: oneDNN (in both) and Temper's own kernels, PyTorch's kernels, MKL.
LIMITS = {"avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}}


def measure(command, threads):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    sys.stderr.write(done.stderr[-2000:])
    raise SystemExit(f"no figures from: {' '.join(map(str, command))}")


def speeds(runs):
    return [run["tokens_per_second"] for run in runs]


def take_turns(programs, turns, threads):
    """{name: its results}, the programs one after the other in each turn."""
    results = {name: [] for name in programs}
    for _ in range(turns):
        for name, command in programs.items():
            results[name].append(measure(command, threads))
    return results


def apart(ours, theirs):
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))


def report(case, results, memory, agreement):
    peers = {name: runs for name, runs in results.items() if name != "temper"}
    best = max(peers, key=lambda name: max(speeds(peers[name])))
    ours, theirs = results["temper"], peers[best]
    ratio = max(speeds(ours)) / max(speeds(theirs))
    middle = statistics.median(speeds(ours)) / statistics.median(speeds(theirs))
    fraction = max(run["of_peak"] for run in ours)
    mine, its = ours[0][memory], theirs[0][memory]
    print(f"| {case} | {best} | {max(speeds(theirs)):,.1f} | {its:.2f} | {max(speeds(ours)):,.1f} "
          f"| {mine:.2f} | {ratio:.2f}x | {middle:.2f}x | {mine / its:.2f}x "
          f"| {100 * fraction:.0f} % | {agreement} |", flush=True)


def train(case, args, folder):
    shape, dtype, rows, length, steps, lr = TRAINING[case]
    make_folder(folder / shape, shape)
    tokens = folder / f"{case}.int32"
    tokens.write_bytes((folder / shape / "tokens.int32").read_bytes()[:4 * rows * length * steps])
    theirs = [sys.executable, HERE / "transformers_train.py", folder / shape, tokens, "--rows-per-step", rows,
              "--length", length, "--lr", lr, "--dtype", dtype, "--threads", args.threads]
    ours = [args.bench / "temper_bench_train", folder / shape, "--tokens", tokens, "--rows", rows, "--length",
            length, "--lr", lr, "--dtype", dtype, "--threads", args.threads, "--checkpointing", args.checkpointing]
    ways = {"loops": ["--experts", "eager"]} if shape in EXPERTS else {}
    compare_training(case, args, dtype, ours, theirs, ways, compiles=shape not in HYBRIDS)
    if args.balanced and shape in EXPERTS:
        runs = [measure([*ours, "--balanced"], args.threads) for _ in range(args.turns)]
        print(f"| {case} balanced | | | | {max(speeds(runs)):,.1f} | {runs[0]['memory_gib']:.2f} | | | "
              f"| {100 * max(run['of_peak'] for run in runs):.0f} % | tokens take their experts in turn |", flush=True)


def compare_training(case, args, dtype, ours, theirs, ways=None, compiles=True):
    """`ways`: more of the peer's, by name, with their arguments."""
    ways = {"eager": [], **({"compile": ["--compile"]} if compiles else {}), **(ways or {})}
    peers = {name: [*theirs, *more] for name, more in ways.items()}
    results = take_turns({**peers, "temper": ours}, args.turns, args.threads)
    difference = apart(results["temper"][0]["losses"], results["eager"][0]["losses"])
    if difference > MOST_APART[dtype]:
        raise SystemExit(f"{case}: the losses differ by {difference:.1e}")
    report(case, results, "memory_gib", f"losses within {difference:.0e}")


def train_documents(case, args, folder):
    """The demo's own dialogues: packed here, padded to the longest there. Tokens are those of the documents."""
    dtype, rows, length, steps, lr = DOCUMENTS[case]
    root, demo, documents = HERE.parents[1], folder / "addition", folder / f"{case}.jsonl"
    if not (demo / "model").exists():
        for command in ([sys.executable, root / "examples/addition/prepare.py", demo],
                        [args.bench.parent / "temper", "init", demo / "qwen3-tiny", demo / "model"]):
            subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    ours = [args.bench / "temper_bench_train", demo / "model", "--data", demo / "train.jsonl", "--rows", rows,
            "--length", length, "--steps", steps, "--lr", lr, "--dtype", dtype, "--threads", args.threads,
            "--checkpointing", args.checkpointing]
    measure([*ours, "--write-documents", documents], args.threads)
    theirs = [sys.executable, HERE / "transformers_train.py", demo / "model", documents, "--documents", "--lr", lr,
              "--dtype", dtype, "--threads", args.threads]
    compare_training(case, args, dtype, ours, theirs)


def generate(case, args, folder):
    shape, dtype, prompt, new = GENERATION[case]
    make_folder(folder / shape, shape)
    common = ["--prompt", prompt, "--new", new, "--runs", 2, "--dtype", dtype, "--threads", args.threads]
    prompts = folder / shape / "tokens.int32"
    results = take_turns({
        "eager": [sys.executable, HERE / "transformers_generate.py", folder / shape, prompts, *common],
        "temper": [args.bench / "temper_bench_decode", folder / shape, "--tokens", prompts, *common]},
        args.turns, args.threads)
    ours, theirs = results["temper"][0]["ids"], results["eager"][0]["ids"]
    same = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), len(ours))
    report(case, results, "resident_gib", f"first {same} tokens equal")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = {train: TRAINING, train_documents: DOCUMENTS, generate: GENERATION}
    cases = [case for kind in kinds.values() for case in kind]
    parser.add_argument("--cases", nargs="+", default=cases, choices=cases)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--isa", choices=LIMITS, help="both programs as on a processor with no more than this")
    parser.add_argument("--balanced", action="store_true",
                        help="mixtures once more in Temper alone, with tokens that take their experts in turn")
    parser.add_argument("--checkpointing", default="none", choices=["none", "selective", "full"])
    parser.add_argument("--bench", type=pathlib.Path, default=HERE.parents[1] / "build/release/bench",
                        help="folder of Temper's benchmarks")
    parser.add_argument("--folder", type=pathlib.Path, help="keeps models and tokens there for another run")
    args = parser.parse_args()
    os.environ.update(LIMITS.get(args.isa, {}))
    print("| case | peer's best | its tokens/s | GiB | Temper tokens/s | GiB | speed | of medians | memory | of the peak "
          "| agreement |\n|---|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for case in args.cases:
            next(run for run, kind in kinds.items() if case in kind)(case, args, folder)


if __name__ == "__main__":
    main()
