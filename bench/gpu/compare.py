#!/usr/bin/env python3
"""Temper compared with transformers (and PEFT) on one GPU, in one run: the same weights, tokens, optimizer and steps, rows of
4,096 random tokens, bfloat16. Checks that losses and gradient norms agree and prints one row of a table per case, as
soon as it is there.

    make bench                                   # builds build/release/bench/temper_bench_train
    python3 bench/gpu/compare.py [--cases qwen3-0.6b qwen3-8b-lora-bfloat16 ...] [--temper FILE] [--folder WORK]

transformers, peft and a PyTorch for CUDA are needed for this comparison only. The two take turns, each in a process of
its own; tokens/s are medians over a process's steps, then over the turns. A program that fails or takes longer than
--timeout is named in its row and the others go on. The exit code is 1 when losses or norms differ by more than is
allowed, or Temper failed."""
import argparse
import dataclasses
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROWS = {"qwen3-0.6b": 4, "qwen3-1.7b": 4, "qwen3-8b": 2, "small": 2, "qwen3-30b-a3b-12": 2, "moonlight-12": 2,
        "small-mixture": 2, "small-latent": 2, "qwen3-next-4": 2, "qwen3.5-2b": 2, "small-hybrid": 2}
MIXTURES = {"qwen3-30b-a3b-12", "moonlight-12", "small-mixture", "small-latent", "qwen3-next-4", "small-hybrid"}
WARMUP = 2  # steps that are not timed; their losses count


@dataclasses.dataclass(frozen=True)
class Case:
    shape: str
    peer_checkpointing: str  # none or full
    temper_checkpointing: str
    adapter_dtype: str = ""  # of PEFT's adapter; "": all weights are trained
    what: str = ""


def make_cases():
    cases = {}
    for shape in ROWS:
        cases[shape] = Case(shape, "none", "selective", what="each its default")
        cases[f"{shape}-none"] = Case(shape, "none", "none", what="no checkpointing in both")
        cases[f"{shape}-full"] = Case(shape, "full", "full", what="full checkpointing in both")
        for dtype, what in (("float32", "PEFT's default"), ("bfloat16", "bfloat16 adapter: the fair one")):
            lora = f"{shape}-lora-{dtype}"
            cases[lora] = Case(shape, "none", "none", dtype, what)
            cases[f"{lora}-full"] = Case(shape, "full", "full", dtype, f"{what}, full checkpointing in both")
    return cases


CASES = make_cases()
DEFAULT = [name for shape in ("qwen3-0.6b", "qwen3-8b")
           for name in (shape, f"{shape}-full", f"{shape}-lora-float32", f"{shape}-lora-bfloat16")]
# Relative, in the first steps; products in bfloat16 round by 2^-9, which a mean over thousands of tokens evens out, and
# the peer rounds norms to bfloat16. On a CPU both differ by a third of this; attention that is left out moves the loss
# by 4e-3, a learning rate ten times as large the loss by 1e-3 and the norm by 10 % within a step. Weights without
# float32 copies are rounded stochastically here and to nearest there, where small updates are lost: later losses may
# differ four times as much, and later norms, of weights that have parted, are not compared.
MOST_APART = {"losses": 5e-4, "grad_norms": 1e-2}
FIRST_STEPS, LATER = 4, {"losses": 4, "grad_norms": float("inf")}
HEAD = ["case", "what", "rows", "peer tokens/s", "GiB", "first step s", "Temper tokens/s", "TFLOP/s", "of its products",
        "GiB", "first step s", "speed", "memory", "losses apart", "first norms apart"]


class Failure(Exception):
    """A program without figures, and why."""


def run(command, timeout):
    """The JSON line that a program prints last."""
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        raise Failure(f"no figures within {timeout:.0f} s") from error
    except OSError as error:
        raise Failure(str(error)) from error
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    sys.stderr.write(done.stderr[-2000:])
    if "OutOfMemoryError" in done.stderr or done.returncode == 4:
        raise Failure("out of memory")
    last = done.stderr.strip().splitlines() or ["nothing said"]
    raise Failure(f"exit code {done.returncode}: {last[-1][:120]}")


class Programs:
    """Runs programs within the time there is, each command once a turn; cases that share one share its figures."""

    def __init__(self, args):
        self.args = args
        self.begun = time.monotonic()
        self.known = {}

    def figures(self, command):
        """All turns' results; a Failure is kept as well."""
        key = tuple(map(str, command))
        if key not in self.known:
            self.known[key] = self.measure(command, self.args.turns)
        found = self.known[key]
        if isinstance(found, Failure):
            raise found
        return found

    def measure(self, command, turns=1):
        try:
            return [run(command, self.time_left()) for _ in range(turns)]
        except Failure as failure:
            return failure

    def time_left(self):
        left = self.args.minutes * 60 - (time.monotonic() - self.begun)
        if left < 10:
            raise Failure("left out: the time is spent")
        return min(self.args.timeout, left)


def folder_of(programs, shape):
    """The folder with the model, adapter and tokens of a shape; made when it is not there."""
    args = programs.args
    folder = args.folder / shape
    tokens = ROWS[shape] * args.length * (args.steps + WARMUP)
    if not (folder / "tokens.int32").exists():
        made = programs.measure([sys.executable, HERE / "make_model.py", shape, folder, "--tokens", tokens, "--lora",
                                 args.rank, "--device", args.peer_device])
        if not (folder / "tokens.int32").exists():
            raise Failure(f"no model: {made}")
    return folder


def peer_command(args, case, folder):
    command = [sys.executable, HERE / "transformers_train.py", folder / "model", folder / "tokens.int32", "--rows",
               ROWS[case.shape], "--length", args.length, "--steps", args.steps, "--warmup", WARMUP, "--lr", args.lr,
               "--checkpointing", case.peer_checkpointing, "--device", args.peer_device]
    if case.adapter_dtype:
        command += ["--adapter", folder / "adapter", "--adapter-dtype", case.adapter_dtype]
    return command + (["--eager"] if args.eager else [])


def temper_command(args, case, folder):
    command = [args.temper, folder / "model", "--tokens", folder / "tokens.int32", "--rows", ROWS[case.shape],
               "--length", args.length, "--lr", args.lr, "--checkpointing", case.temper_checkpointing, "--device",
               args.device]
    if args.attention:
        command += ["--attention", args.attention]
    return command + (["--adapter", folder / "adapter", "--float32-state"] if case.adapter_dtype else [])


def apart(ours, theirs, later):
    """The largest relative difference, of later steps the `later`-th part; not a number counts as all of it, and so does
    a step too few."""
    if len(ours) != len(theirs) or not ours:
        return float("inf")
    differences = [abs(a - b) / abs(b) / (1 if step < FIRST_STEPS else later) if b else float("inf")
                   for step, (a, b) in enumerate(zip(ours, theirs))]
    return float("inf") if any(d != d for d in differences) else max(differences)


def agreement(key, ours, theirs):
    """What a cell says of two programs' losses or norms, and whether they agree."""
    difference = apart(ours[0][key], theirs[0][key], LATER[key])
    agree = difference <= MOST_APART[key]
    return f"{difference:.0e}" if agree else f"**{difference:.0e}: more than {MOST_APART[key]:.0e}**", agree


def middle(runs, key):
    return statistics.median(result[key] for result in runs)


def cells(theirs, ours):
    """The row's figures and whether the programs agree; a Failure in the place of results leaves its cells empty."""
    no_peer, no_temper = isinstance(theirs, Failure), isinstance(ours, Failure)
    row = [str(theirs), "", ""] if no_peer else [f"{middle(theirs, 'tokens_per_second'):,.0f}",
                                                 f"{middle(theirs, 'memory_gib'):.1f}",
                                                 f"{middle(theirs, 'first_step_seconds'):.1f}"]
    row += [str(ours), "", "", "", ""] if no_temper else [
        f"{middle(ours, 'tokens_per_second'):,.0f}", f"{middle(ours, 'tflops'):.0f}",
        f"{100 * middle(ours, 'of_peak'):.0f} %", f"{middle(ours, 'memory_gib'):.1f}",
        f"{middle(ours, 'first_step_seconds'):.1f}"]
    if no_peer or no_temper:
        return [*row, "", "", "", ""], not no_temper
    losses, losses_agree = agreement("losses", ours, theirs)
    norms, norms_agree = agreement("grad_norms", ours, theirs)
    memory = f"{middle(ours, 'memory_gib') / middle(theirs, 'memory_gib'):.2f}x" if theirs[0]["memory_gib"] else ""
    return [*row, f"{middle(ours, 'tokens_per_second') / middle(theirs, 'tokens_per_second'):.2f}x", memory, losses,
            norms], losses_agree and norms_agree


def balanced_row(name, case, ours):
    """Of Temper alone, whose tokens take their experts in turn: the speed that routers leave."""
    row, _ = cells(Failure("experts in turn"), ours)
    return "| " + " | ".join([f"{name} balanced", case.what, str(ROWS[case.shape]), *row]) + " |"


def outcome(programs, make_command):
    try:
        return programs.figures(make_command())
    except Failure as failure:
        return failure


def compare(programs, name):
    """Prints the row of a case; whether its programs agree."""
    args, case = programs.args, CASES[name]
    results = []
    for command in (peer_command, temper_command):
        results.append(outcome(programs, lambda: command(args, case, folder_of(programs, case.shape))))
    row, agree = cells(*results)
    print("| " + " | ".join([name, case.what, str(ROWS[case.shape]), *row]) + " |", flush=True)
    if args.balanced and case.shape in MIXTURES:
        ours = outcome(programs, lambda: [*temper_command(args, case, folder_of(programs, case.shape)), "--balanced"])
        print(balanced_row(name, case, ours), flush=True)
        agree = agree and not isinstance(ours, Failure)
    if args.results:
        peer, temper = (str(found) if isinstance(found, Failure) else found for found in results)
        with args.results.open("a") as file:
            file.write(json.dumps({"case": name, "agree": agree, "peer": peer, "temper": temper}) + "\n")
    return agree


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--temper", default=str(HERE.parents[1] / "build/release/bench/temper_bench_train"))
    parser.add_argument("--cases", nargs="+", default=DEFAULT, choices=list(CASES), metavar="CASE",
                        help="of: " + ", ".join(CASES))
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10, help=f"timed, behind {WARMUP} others")
    parser.add_argument("--length", type=int, default=4096, help="of rows")
    parser.add_argument("--rank", type=int, default=16, help="of adapters of all projections")
    parser.add_argument("--lr", type=float, default=1e-4, help="large enough that losses show what an update does")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one program")
    parser.add_argument("--minutes", type=float, default=60, help="for all of it: what would begin later is left out")
    parser.add_argument("--folder", type=pathlib.Path, help="keeps models and tokens there for another run")
    parser.add_argument("--results", type=pathlib.Path, help="gets a line of JSON per case with all figures")
    parser.add_argument("--attention", default="", help="Temper's attn_implementation")
    parser.add_argument("--balanced", action="store_true",
                        help="mixtures once more in Temper alone, with tokens that take their experts in turn")
    parser.add_argument("--eager", action="store_true", help="the peer without torch.compile")
    parser.add_argument("--device", default="cuda", help="Temper's")
    parser.add_argument("--peer-device", default="cuda", help="PyTorch's name of the same")
    return parser.parse_args(arguments)


def main(arguments=None):
    args = parse(arguments)
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        args.folder = args.folder or pathlib.Path(temporary)
        programs = Programs(args)
        agree = [compare(programs, name) for name in args.cases]
    return 0 if all(agree) else 1


if __name__ == "__main__":
    sys.exit(main())
