"""What every torture stands on: a folder with a tiny model, rows and configurations of all recipes, and how a command is run
and what is said of it."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

SFT = """model: {{path: {model}}}
data: {{train: {rows}/train.jsonl, max_length: 48}}
train: {{steps: 8, rows_per_step: 4, threads: 1, optimizer: {{lr: 1e-3}}}}
checkpoint: {{every_steps: 2, keep_last: 2}}
"""
PREFERENCE = """recipe: preference
model: {{path: {model}}}
data: {{train: {rows}/pairs.jsonl, max_length: 48}}
train: {{steps: 6, rows_per_step: 4, threads: 1, optimizer: {{lr: 1e-3}}}}
checkpoint: {{every_steps: 2}}
"""
DISTILL = """recipe: distill
distill: {{teacher: {model}}}
model: {{path: {model}}}
data: {{train: {rows}/train.jsonl, max_length: 48}}
train: {{steps: 6, rows_per_step: 4, threads: 1, optimizer: {{lr: 1e-3}}}}
checkpoint: {{every_steps: 2}}
"""
GRPO = """recipe: grpo
model: {{path: {model}}}
data: {{train: {rows}/prompts.jsonl, max_length: 48}}
grpo: {{group_size: 4, prompts_per_rollout: 4, max_new_tokens: 8, rewards: [{{type: length, target: 5}}]}}
train: {{steps: 4, threads: 1, optimizer: {{lr: 1e-3}}}}
checkpoint: {{every_steps: 2}}
"""


class Stand:
    """Files of one torture, under a folder that goes with it."""

    def __init__(self, temper, folder=None):
        self.temper = os.path.abspath(temper)
        base = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.folder = folder or tempfile.mkdtemp(prefix="temper_torture.", dir=base)
        self.goes = folder is None
        rows = os.path.join(self.folder, "rows")
        subprocess.run([sys.executable, os.path.join(ROOT, "examples/addition/prepare.py"), rows], check=True,
                       stdout=subprocess.DEVNULL)
        self.rows = rows
        self.model = os.path.join(self.folder, "model")
        self.run_plainly(["init", os.path.join(rows, "qwen3-tiny"), self.model])
        with open(os.path.join(rows, "train.jsonl")) as file:
            lines = [json.loads(line) for line, _ in zip(file, range(200))]
        with open(os.path.join(rows, "train.jsonl"), "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        with open(os.path.join(rows, "prompts.jsonl"), "w") as file:
            file.writelines(json.dumps({"messages": line["messages"][:-1]}) + "\n" for line in lines)
        with open(os.path.join(rows, "pairs.jsonl"), "w") as file:
            for line in lines:
                prompt, chosen = line["messages"][:-1], line["messages"][-1:]
                rejected = [{"role": "assistant", "content": "I do not know."}]
                file.write(json.dumps({"prompt": prompt, "chosen": chosen, "rejected": rejected}) + "\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.goes:
            shutil.rmtree(self.folder, ignore_errors=True)

    def run_plainly(self, arguments):
        done = subprocess.run([self.temper] + arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"temper {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr}")

    def configuration(self, name, text):
        path = os.path.join(self.folder, name + ".yaml")
        with open(path, "w") as file:
            file.write(text.format(model=self.model, rows=self.rows))
        return path

    def kinds(self):
        """Name, configuration and flags of what is trained."""
        adapters = ["--adapters", "[{name: a, rank: 4}, {name: b, rank: 2}]"]
        return {
            "sft": (self.configuration("sft", SFT), []),
            "asynchronous": (self.configuration("sft", SFT), ["--checkpoint.async", "true"]),
            "adapters": (self.configuration("sft", SFT), adapters),
            "quantized": (self.configuration("sft", SFT), ["--quantize.preset", "INT8"]),
            "preference": (self.configuration("preference", PREFERENCE), []),
            "distill": (self.configuration("distill", DISTILL), []),
            "grpo": (self.configuration("grpo", GRPO), []),
        }

    def output(self, name):
        return os.path.join(self.folder, "runs", name)

    def command(self, kind, output, ranks=1):
        config, flags = self.kinds()[kind]
        of_ranks = ["--ranks", str(ranks)] if ranks > 1 else []
        return [self.temper, "train", config, "--output", output] + flags + of_ranks

    def run(self, command, environment=None, seconds=120):
        """The exit code (below 0: the signal that ended it; 999: it did not end) and what it said on standard error."""
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True, errors="replace", env={**os.environ, **(environment or {})})
        try:
            _, said = process.communicate(timeout=seconds)
            return process.returncode, said
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
            return 999, said


    def undisturbed(self, kind, ranks=1):
        """The bits that such a run leaves, and the seconds that it takes."""
        whole = self.output(f"{kind}_{ranks}")
        start = time.monotonic()
        code, said = self.run(self.command(kind, whole, ranks))
        if code != 0:
            sys.exit(f"an undisturbed run of {kind} ended with {code}:\n{said}")
        return bits_of(whole), time.monotonic() - start


def bits_of(output):
    """Of what a run leaves: models, adapters and losses, by name."""
    found = {}
    for folder, _, names in os.walk(output):
        if "checkpoints" in folder or "/best" in folder:
            continue
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".safetensors"):
                with open(path, "rb") as file:
                    found[os.path.relpath(path, output)] = hashlib.sha256(file.read()).hexdigest()
            elif name == "metrics.jsonl":
                with open(path) as file:
                    lines = [json.loads(line) for line in file]
                found[os.path.relpath(path, output)] = [(line["step"], line.get("loss"), line.get("reward")) for line in lines]
    return found


def processes_of(folder):
    """Those whose command line names the folder."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read()
            with open(f"/proc/{name}/stat") as file:
                state = file.read().rsplit(") ", 1)[1][0]
        except OSError:
            continue
        if folder.encode() in words and int(name) != os.getpid() and state != "Z":
            found.append(int(name))
    return found


def wait_until_gone(folder, seconds=10):
    until = time.monotonic() + seconds
    while (left := processes_of(folder)) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def preload(stand, source):
    """The library of a C file beside this one."""
    library = os.path.join(stand.folder, os.path.splitext(source)[0] + ".so")
    if not os.path.exists(library):
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, os.path.join(HERE, source), "-ldl"], check=True)
    return library


class Table:
    """Counts what was right and keeps the first wrongs."""

    def __init__(self, title):
        self.title, self.rows, self.wrongs = title, {}, []

    def add(self, row, right, wrong=""):
        good, all_ = self.rows.get(row, (0, 0))
        self.rows[row] = (good + (1 if right else 0), all_ + 1)
        if not right:
            self.wrongs.append(f"{row}: {wrong}")
            print(f"WRONG {row}: {wrong}", flush=True)

    def end(self):
        print(f"\n{self.title}")
        for row, (good, all_) in self.rows.items():
            print(f"  {row:<40} {good:>6} of {all_}")
        return 1 if self.wrongs else 0


def kill_group(process, number=signal.SIGKILL):
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        pass


def chances(seed):
    return random.Random(seed)
