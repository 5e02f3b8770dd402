"""Reinforcement learning with rollouts on the GPUs that train (recipe grpo), as runs of the program: how memory, the time
of each synchronization and the gap between the log-probabilities of rollouts and of training change from the first update
to the last one, with the run stopped in the middle and resumed.

    python3 bench/gpu/colocated.py build/release/temper MODEL DATA --steps 1,100,500 [--ranks 2] [--device cuda]
        [--set KEY=VALUE …]

MODEL is a folder in Hugging Face's format, DATA a file of rows with chat messages. The reward is the length of the answers,
so that any model learns something. Keys of the run are given by --set, as in parallel.tensor=2 or
grpo.engine.parallel.tensor=1. Prints a table with a line for each number of steps; the exit code is 1 where a run failed.
"""
import argparse
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time


def configuration(options, output, steps):
    lines = [
        "recipe: grpo", f"output: {output}", f"model: {{path: {options.model}, dtype: bfloat16}}",
        f"device: {options.device}", f"data: {{train: [{options.data}], max_length: {options.max_length}}}",
        f"grpo: {{rewards: [{{type: length, target: {options.answer // 2}}}], group_size: {options.group}, "
        f"prompts_per_rollout: {options.prompts}, sampling: {{max_new_tokens: {options.answer}}}}}",
        f"train: {{steps: {steps}, optimizer: {{lr: 1e-6}}, schedule: {{type: constant}}}}",
        "checkpoint: {every_steps: 0}"]
    return "\n".join(lines) + "\n"


def metrics(output):
    file = output / "metrics.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def run(options, folder, steps):
    """Trains, stopped once in the middle where there is one. Returns the metrics of all updates and the seconds."""
    output = folder / f"steps_{steps}"
    file = folder / f"steps_{steps}.yaml"
    file.write_text(configuration(options, output, steps))
    command = [options.program, "train", str(file), "--ranks", str(options.ranks)]
    for setting in options.set:
        key, value = setting.split("=", 1)
        command += [f"--{key}", value]
    start = time.monotonic()
    log = open(folder / f"steps_{steps}.log", "w")
    process = subprocess.Popen(command, stdout=log, stderr=log)
    stopped_at = None
    while process.poll() is None:
        time.sleep(0.2)
        if stopped_at is None and steps > 1 and len(metrics(output)) >= steps // 2:
            stopped_at = len(metrics(output))
            process.send_signal(signal.SIGTERM)
    if process.returncode == 3:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        process.wait()
    else:
        stopped_at = None  # it had ended before the signal came
    log.close()
    if process.returncode != 0:
        print((folder / f"steps_{steps}.log").read_text()[-3000:], file=sys.stderr)
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return metrics(output), time.monotonic() - start, stopped_at


def mib(value):
    return f"{value / 2**20:,.0f}"


def report(steps, lines, seconds, stopped_at):
    def column(key):
        return [line[key] for line in lines if key in line]

    # Pools have their final size after some updates: growth is that of the second half over the first.
    def memory(key):
        values = column(key)
        half = max(1, len(values) // 2)
        return f"{mib(values[0])} / {mib(max(values[:half]))} / {mib(max(values[half:] or values))}"

    syncs = column("sync_seconds")
    gaps = column("log_prob_gap")
    print(f"| {steps} | {len(lines)} | {stopped_at or '-'} | {seconds:,.0f} | {memory('rollout_peak_memory_bytes')} | "
          f"{memory('update_peak_memory_bytes')} | {statistics.median(syncs) * 1e3:.2f} / {max(syncs) * 1e3:.2f} | "
          f"{gaps[0]:.2e} / {statistics.median(gaps):.2e} / {max(gaps):.2e} | "
          f"{max(column('log_prob_gap_largest')):.2e} | {lines[0]['reward']:.3f} / {lines[-1]['reward']:.3f} | "
          f"{statistics.median(column('rollout_tokens_per_second')):,.0f} | "
          f"{statistics.median(column('update_tokens_per_second')):,.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--steps", default="1,100,500")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--group", type=int, default=8, help="answers to a prompt")
    parser.add_argument("--prompts", type=int, default=8, help="in a rollout")
    parser.add_argument("--answer", type=int, default=32, help="tokens of an answer, at most")
    parser.add_argument("--max-length", type=int, default=128)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    print("| steps | updates | stopped after | seconds | MiB in rollouts: first / first half / second half | "
          "MiB in updates | sync, ms: median / most | gap: first / median / most | largest of a token | "
          "reward: first / last | rollout tokens/s | update tokens/s |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for steps in map(int, options.steps.split(",")):
            report(steps, *run(options, pathlib.Path(folder), steps))


if __name__ == "__main__":
    main()
