#!/usr/bin/env python3
"""Disturbs runs that learn from rewards: kills or stops the run, a rank, a reward program or its guard at random moments, and lets
reward programs die, hang, close their output, print garbage, unknown ids, NaN or lines without end at random answers. A run that was
killed has to leave no process and then the bits of an undisturbed one; one whose programs fail has to end with 0 or 4 and a sentence,
and the same command with programs that judge has to end with 0.

  tools/torture/rollouts.py TEMPER [--kills 60] [--programs 60] [--ranks 1,2] [--seed 1] [--jobs 1]
"""

import os
import signal
import sys
import time

import processes
import stand as s
import tables

# Fails in the way, at the share of answers and with the seed that the file says which it gets; judges where there is none. Each judge that
# starts has a number, and chances of its own.
JUDGE = '''import json, os, random, subprocess, sys, time
fails, share, seed = open(sys.argv[1]).read().split() if os.path.exists(sys.argv[1]) else ("judge", 0, 0)
counted = os.open(sys.argv[1] + ".starts", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(counted, b".")
chance = random.Random(f"{seed}/{os.lseek(counted, 0, os.SEEK_CUR)}")
for line in sys.stdin:
    asked = json.loads(line)
    way = fails if chance.random() < float(share) else "judge"
    if way == "die":
        os._exit(chance.choice([0, 1, 134]))
    if way == "hang":
        time.sleep(1000)
    if way == "close":
        os.close(1)
        time.sleep(1000)
    if way == "child":
        subprocess.Popen([sys.argv[1], "1000"], executable="/bin/sleep", start_new_session=True)
    if way == "garbage":
        sys.stdout.buffer.write(os.urandom(chance.choice([1, 100, 100000])) + b"\\n")
    elif way == "half":
        sys.stdout.write('{"id": ')
        sys.stdout.flush()
        os._exit(0)
    elif way == "endless":
        sys.stdout.write("x" * 10000000)
    elif way == "unknown":
        print(json.dumps({"id": asked["id"] + 1000000, "reward": 1}))
    elif way == "twice":
        print(json.dumps({"id": asked["id"], "reward": len(asked["text"]) % 7 / 7}))
    elif way == "nan":
        print('{"id": %d, "reward": NaN}' % asked["id"])
        sys.stdout.flush()
        continue
    sys.stdout.flush()
    print(json.dumps({"id": asked["id"], "reward": len(asked["text"]) % 7 / 7}), flush=True)
'''
WAYS = ["die", "hang", "close", "child", "garbage", "half", "endless", "unknown", "twice", "nan"]
SLEEPS = ["--grpo.engine.sleep", "[optimizer, gradients]"]
TENSOR = ["--grpo.engine.parallel.tensor", "2"]


def main():
    asked = tables.arguments(__doc__, ("--kills", 60, "of each number of ranks"), ("--programs", 60, "runs whose programs fail"),
                             ("--ranks", "1,2", "numbers of ranks"))
    tasks = [(killed, int(ranks)) for ranks in tables.words(asked.ranks) for _ in range(asked.kills)]
    tasks += [(failing, WAYS[number % len(WAYS)]) for number in range(asked.programs)]
    tables.work("rollouts: no process left, and at last the bits of an undisturbed run, of all", asked, tasks, torture)


def torture(stand, add, chance, task):
    of_kind, what = task
    of_kind(stand, add, chance, what)


def command_of(stand, out, ranks, *more):
    """The reward is a program that looks for its way to fail in a file next to the output."""
    path = os.path.join(stand.folder, "judge.py")

    def write():
        with open(path, "w") as file:
            return file.write(JUDGE)

    stand.once("judge", write)
    rewards = f"[{{type: program, command: [{sys.executable}, {path}, {out}.ways], processes: 2, timeout: 8}}]"
    return stand.command("grpo", out, ranks, "--grpo.rewards", rewards, *SLEEPS, *(TENSOR if ranks > 1 else []), *more)


def undisturbed_by(stand, ranks):
    def compute():
        whole, begin = stand.output("undisturbed_grpo"), time.monotonic()
        code, said = processes.run(command_of(stand, whole, ranks))
        if code != 0:
            raise RuntimeError(f"an undisturbed run ended with {code}:\n{said}")
        return s.bits_of(whole), time.monotonic() - begin

    return stand.once(f"undisturbed.rewards.{ranks}", compute)


def killed(stand, add, chance, ranks):
    expected, longest = undisturbed_by(stand, ranks)
    out = stand.output("killed_grpo")
    command = command_of(stand, out, ranks)
    process, begin = processes.start(command), time.monotonic()
    time.sleep(chance.uniform(0, longest))
    of_run = processes.descendants_of(process.pid)
    whom = chance.choice(["run", "any", "program"])
    programs = [each for each in of_run if "judge.py" in (words := processes.words_of(each)) and "--output" not in words]
    victim = chance.choice(programs) if whom == "program" and programs else process.pid if whom == "run" else chance.choice(
        of_run or [process.pid])
    number = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP]) if victim != process.pid else signal.SIGKILL
    what = f"{processes.words_of(victim)!r} after {time.monotonic() - begin:.2f} s"
    struck = processes.send(process if victim == process.pid else victim, number)
    code, said = processes.end_of(process, 60)
    left = [each for each in of_run if not gone(each)]
    wrong = f"processes {left} are left" if left else ""
    if code not in (0, 2, 4, -signal.SIGKILL) or (code == 2 and "reward program" not in said):
        wrong = wrong or "it has to be 0, 4 or killed, or 2 for a program that was"
    if code == processes.ENDLESS:
        processes.left_after(out, 0)
    wrong = wrong or s.wrong_of_resuming(command, out, expected)
    add(f"{ranks} ranks, {whom}, {number.name}" if struck else f"{ranks} ranks: {whom} was done before",
        not wrong if struck or wrong else tables.NOT_TRIED, f"{what}: exit code {code}: {said[-300:]!r}; {wrong}")


def gone(process, seconds=10):
    until = time.monotonic() + seconds
    while process.lives() and time.monotonic() < until:
        time.sleep(0.05)
    return not processes.send(process, signal.SIGKILL)


def failing(stand, add, chance, way):
    """An answer that cannot be judged ends the run, or is left out."""
    out, share, stops = stand.output("judged"), chance.choice([0.1, 0.5]), chance.random() < 0.5
    command = command_of(stand, out, 1, "--grpo.filter.on_reward_error", "stop" if stops else "drop")
    os.makedirs(stand.runs, exist_ok=True)
    with open(f"{out}.ways", "w") as file:
        file.write(f"{way} {share} {chance.random()}")
    if os.path.exists(f"{out}.ways.starts"):
        os.remove(f"{out}.ways.starts")
    code, said = processes.run(command)
    left = processes.left_after(f"{out}.ways", 5)
    right = (code == 0 or (code in (2, 4) and "reward program" in said)) and "defect" not in said and not left
    add(f"programs, {way}", right, f"at {share}: exit code {code}: {said[-300:]!r}; {left} are left")
    os.remove(f"{out}.ways")
    code, said = processes.run(command)
    wrong = s.difference_of(out, undisturbed_by(stand, 1)[0]) if stops else ""
    add("programs that judge afterwards", code == 0 and not wrong, f"{way}: exit code {code}: {said[-300:]!r}; {wrong}")


if __name__ == "__main__":
    main()
