"""What every torture stands on: a folder with a tiny model, rows and configurations of all recipes, what undisturbed runs leave,
and what is compared of them."""

import copy
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import processes
import recipes

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
RANKS_OF = {"context": 2, "pipeline": 2, "interleaved": 2}  # the number of ranks of these runs is a multiple


class Stand:
    """Files of one torture, under a folder that goes with it. Workers share all but the outputs of their runs."""

    def __init__(self, temper, folder=None):
        self.temper = os.path.abspath(temper)
        base = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.folder = folder or tempfile.mkdtemp(prefix="temper_torture.", dir=base)
        self.goes = folder is None
        self.runs = os.path.join(self.folder, "runs")
        self.rows = os.path.join(self.folder, "rows")
        try:
            self.make()
        except BaseException:  # an interruption, too
            self.__exit__()
            raise

    def make(self):
        subprocess.run([sys.executable, os.path.join(ROOT, "examples/addition/prepare.py"), self.rows], check=True,
                       stdout=subprocess.DEVNULL)
        self.model = os.path.join(self.folder, "model")
        self.plainly("init", os.path.join(self.rows, "qwen3-tiny"), self.model)
        self.shorten()
        staged = ["--parallel.pipeline", "2", "--parallel.replicate", "auto", "--train.micro_batch_tokens", "48"]
        interleaved = [*staged, "--parallel.pipeline_chunks", "2", "--model.path", self.deeper_model()]
        sft, adapters = self.configuration("sft", recipes.SFT), ["--adapters", "[{name: a, rank: 4}, {name: b, rank: 2}]"]
        # configuration and flags of what is trained, by name
        self.kinds = {
            "sft": (sft, []),
            "asynchronous": (sft, ["--checkpoint.async", "true"]),
            "context": (sft, ["--parallel.replicate", "auto", "--parallel.context", "2", "--parallel.shard_level", "2"]),
            "pipeline": (sft, staged),
            "interleaved": (sft, interleaved),
            "adapters": (sft, adapters),
            "quantized": (sft, ["--quantize.preset", "INT8"]),
            "preference": (self.configuration("preference", recipes.PREFERENCE), []),
            "distill": (self.configuration("distill", recipes.DISTILL), []),
            "grpo": (self.configuration("grpo", recipes.GRPO), []),
        }

    def deeper_model(self):
        """With a layer for each of two parts of two stages."""
        source, model = os.path.join(self.folder, "deeper"), os.path.join(self.folder, "deeper_model")
        shutil.copytree(os.path.join(self.rows, "qwen3-tiny"), source)
        path = os.path.join(source, "config.json")
        with open(path) as file:
            config = json.load(file)
        with open(path, "w") as file:
            json.dump(config | {"num_hidden_layers": 4}, file)
        self.plainly("init", source, model)
        return model

    def shorten(self):
        """A few rows of each form."""
        with open(os.path.join(self.rows, "train.jsonl")) as file:
            lines = [json.loads(line) for line, _ in zip(file, range(200))]
        with open(os.path.join(self.rows, "train.jsonl"), "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        with open(os.path.join(self.rows, "prompts.jsonl"), "w") as file:
            file.writelines(json.dumps({"messages": line["messages"][:-1]}) + "\n" for line in lines)
        with open(os.path.join(self.rows, "pairs.jsonl"), "w") as file:
            for line in lines:
                prompt, chosen = line["messages"][:-1], line["messages"][-1:]
                rejected = [{"role": "assistant", "content": "I do not know."}]
                file.write(json.dumps({"prompt": prompt, "chosen": chosen, "rejected": rejected}) + "\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.goes:
            shutil.rmtree(self.folder, ignore_errors=True)

    def of_worker(self, number):
        own = copy.copy(self)
        own.runs = os.path.join(self.folder, f"runs.{number}")
        return own

    def plainly(self, *arguments):
        """What has to succeed."""
        done = subprocess.run([self.temper, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"temper {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")

    def configuration(self, name, text):
        path = os.path.join(self.folder, name + ".yaml")
        with open(path, "w") as file:
            file.write(text.format(model=self.model, rows=self.rows))
        return path

    def output(self, name):
        """A folder that is not there."""
        path = os.path.join(self.runs, name)
        shutil.rmtree(path, ignore_errors=True)
        return path

    def command(self, kind, output, ranks=1, *more):
        config, flags = self.kinds[kind]
        of_ranks = ["--ranks", str(ranks)] if ranks > 1 else []
        return [self.temper, "train", config, "--output", output, *flags, *of_ranks, *more]

    def once(self, name, compute):
        """What compute() gives, of the first worker that asks; the others wait for it."""
        path = os.path.join(self.folder, f"once.{name}.json")
        with open(path + ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(path):
                found = compute()
                with open(path, "w") as file:
                    json.dump(found, file)
            with open(path) as file:
                return json.load(file)

    def undisturbed(self, kind, ranks=1):
        """The bits that such a run leaves, and the seconds that it takes."""

        def compute():
            whole = self.output(f"{kind}_{ranks}")
            start = time.monotonic()
            code, said = processes.run(self.command(kind, whole, ranks))
            if code != 0:
                processes.left_after(whole, 0)
                raise RuntimeError(f"an undisturbed run of {kind} ended with {code}:\n{said}")
            return bits_of(whole), time.monotonic() - start

        return self.once(f"undisturbed.{kind}.{ranks}", compute)

    def library(self, source):
        """Of a C file next to this one, to be loaded by LD_PRELOAD."""
        library = os.path.join(self.folder, os.path.splitext(source)[0] + ".so")
        self.once(source, lambda: subprocess.run(
            ["cc", "-shared", "-fPIC", "-O1", "-o", library, os.path.join(HERE, source), "-ldl", "-lpthread"], check=True).returncode)
        return library


def bits_of(output):
    """Of what a run leaves: models, adapters and losses, by name."""
    found = {}
    for folder, _, names in os.walk(output):
        inner = os.path.relpath(folder, output)
        if "checkpoints" in inner or inner.endswith("best"):
            continue
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".safetensors"):
                with open(path, "rb") as file:
                    found[os.path.relpath(path, output)] = hashlib.sha256(file.read()).hexdigest()
            elif name == "metrics.jsonl":
                with open(path) as file:
                    lines = [json.loads(line) for line in file]
                found[os.path.relpath(path, output)] = [[line["step"], line.get("loss"), line.get("reward")] for line in lines]
    return found


def difference_of(output, expected):
    """What a run left otherwise than expected; empty where the bits are the same."""
    try:
        found = bits_of(output)
    except ValueError as error:
        return f"its numbers cannot be read: {error}"
    different = sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))
    if not different:
        return ""
    lines = [f" (lines of {name}: {len(found.get(name, []))} of {len(expected.get(name, []))})"
             for name in different if name.endswith(".jsonl")]
    return f"other bits than those of an undisturbed run: {', '.join(different)}{''.join(lines)}"


def wrong_of_resuming(command, output, expected):
    """Of the same command without a disturbance; empty where it ends with the bits of an undisturbed run."""
    code, said = processes.run(command)
    if code == processes.ENDLESS:
        processes.left_after(output, 0)
    return f"the same command then ends with {code}: {said[-300:]!r}" if code != 0 else difference_of(output, expected)
