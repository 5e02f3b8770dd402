#!/usr/bin/env python3
"""Kills a random rank of a run at random moments, resumes it each time, and compares what it learns with an undisturbed run.

  tools/kill_ranks.py TEMPER RUN.yaml FOLDER --ranks 4 --moments 50 [-- flags of temper train]

Prints how long the ranks lived after each kill; the exit code is 1 where a rank lived longer than ten seconds or the models
differ. FOLDER must not exist.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time


def ranks_of(folder):
    """The processes that train into the folder, without their launchers."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{name}/environ", "rb") as file:
                launched = b"OMPI_COMM_WORLD_RANK=" in file.read()
        except OSError:
            continue
        if launched and folder.encode() in words and b"train" in words:
            found.append(int(name))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("temper")
    parser.add_argument("run")
    parser.add_argument("folder")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=2, help="the latest moment of a kill")
    parser.add_argument("--seed", type=int, default=1)
    arguments, flags = parser.parse_known_args()
    flags = [flag for flag in flags if flag != "--"]
    os.makedirs(arguments.folder)
    undisturbed, killed = (os.path.join(arguments.folder, name) for name in ("undisturbed", "killed"))

    def start(output):
        command = [arguments.temper, "train", arguments.run, "--ranks", str(arguments.ranks), "--output", output]
        return subprocess.Popen(command + flags, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    if start(undisturbed).wait() != 0:
        sys.exit("the undisturbed run failed")
    chance = random.Random(arguments.seed)
    lived = []
    while len(lived) < arguments.moments:
        launcher = start(killed)
        time.sleep(chance.uniform(0, arguments.seconds))
        while not (ranks := ranks_of(killed)) and launcher.poll() is None:
            time.sleep(0.01)
        if launcher.poll() is not None:
            sys.exit(f"the run ended before kill {len(lived) + 1}: give it more steps")
        os.kill(chance.choice(ranks), signal.SIGKILL)
        begin = time.time()
        while ranks_of(killed) and time.time() < begin + 30:
            time.sleep(0.01)
        lived.append(time.time() - begin)
        launcher.wait()
    if start(killed).wait() != 0:
        sys.exit("the run cannot be resumed")
    models = [open(os.path.join(folder, "model", "model.safetensors"), "rb").read() for folder in (undisturbed, killed)]
    same = models[0] == models[1]
    lived.sort()
    print(
        f"{len(lived)} kills: ranks lived {lived[len(lived) // 2]:.2f} s (median), {lived[-1]:.2f} s at most; "
        f"the models {'are the same bits' if same else 'differ'}"
    )
    sys.exit(0 if same and lived[-1] < 10 else 1)


if __name__ == "__main__":
    main()
