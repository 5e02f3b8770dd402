#!/usr/bin/env python3
"""Kills or stops who sends weights, between any two of its messages: a sender, and one of two ranks of a run. The next sync has to
succeed within five seconds, and the run, started again, has to end with the bits of an undisturbed one. Kills receivers, too: their
senders have to end with exit code 4 and a sentence, and the next receiver at the same socket has to take weights.

  tools/torture/exchange.py TEMPER [--syncs 500] [--runs 40] [--receivers 40] [--seed 1] [--jobs 1]
"""

import os
import signal
import time

import processes
import stand as s
import tables
from receivers import LONGEST, Receiver

OF_ONE_RECEIVER = 20  # syncs
HOW = [signal.SIGKILL, signal.SIGSTOP]


def main():
    asked = tables.arguments(__doc__, ("--syncs", 500, "with a sender that is killed or stopped"),
                             ("--runs", 40, "runs of two ranks, one of which is"), ("--receivers", 40, "receivers that are killed"))
    tasks = [(kill_rank, 1)] * asked.runs + [(kill_receiver, 1)] * asked.receivers
    tasks += [(kill_senders, min(OF_ONE_RECEIVER, asked.syncs - done)) for done in range(0, asked.syncs, OF_ONE_RECEIVER)]
    tables.work(f"exchange: the next sync within {LONGEST} s, of all", asked, tasks, torture)


def torture(stand, add, chance, task):
    of_kind, count = task
    of_kind(stand, add, chance, count)


def at_message(stand, at, number):
    return {"LD_PRELOAD": stand.library("fail_at.c"), "FAIL_KIND": "message", "FAIL_AT": str(at), "FAIL_SIGNAL": str(int(number))}


def messages_of(stand, name, command, more):
    """How many such a sender sends and receives."""

    def compute():
        counted = os.path.join(stand.folder, f"messages.{name}")
        code, said = processes.run(command, {**at_message(stand, 0, 0), **more, "COUNT_FILE": counted})
        if code != 0:
            raise RuntimeError(f"a sender whose messages are counted ended with {code}:\n{said}")
        with open(counted) as file:
            return int(file.read())

    return stand.once(f"messages.{name}", compute)


def kill_senders(stand, add, chance, syncs):
    small = ["--chunk-mib", "1"]
    with Receiver(stand) as receiver:
        count = messages_of(stand, "send", receiver.command(*small), {})
        before = processes.status_of(receiver.process.pid) if not receiver.wrong_of_sync() else {}
        for _ in range(syncs):
            at, number = chance.randint(1, count), chance.choice(HOW)
            victim = processes.start(receiver.command(*small), at_message(stand, at, number))
            until = time.monotonic() + 10
            while victim.poll() is None and processes.state_of(victim.pid) != "T" and time.monotonic() < until:
                time.sleep(0.005)
            wrong = receiver.wrong_of_sync()
            add(f"sender, {number.name}", not wrong, f"at message {at} of {count}: {wrong}")
            processes.send(victim.pid, signal.SIGKILL)
            processes.end_of(victim, 10)
        wrong = receiver.wrong_of_sync()
        after = processes.status_of(receiver.process.pid)
        same = [name for name in ("descriptors", "Threads") if after[name] != before.get(name)]
        add("descriptors and threads of receivers", not wrong and not same, f"{before}, then {after}; {wrong}")
        code = receiver.end()
        add("receivers end as they are asked to", code == 3, f"exit code {code}")


def kill_rank(stand, add, chance, _runs):
    rank, number = chance.randrange(2), chance.choice(HOW)
    row = f"rank {rank} of 2, {number.name}"
    expected, _ = stand.undisturbed("sft", 2)
    out = stand.output("sends")
    with Receiver(stand) as receiver:
        receiver.version = 1000
        command = stand.command("sft", out, 2, "--exchange.to", receiver.socket, "--exchange.chunk_mib", "1")
        one = {"FAIL_RANK": str(rank), "FAIL_BEHIND": "sft.yaml"}
        count = messages_of(stand, f"rank{rank}", command, one)
        at = chance.randint(1, count)
        out = stand.output("sends")
        process = processes.start(command, {**at_message(stand, at, number), **one})
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            if any(processes.state_of(each) == "T" for each in processes.with_word(out)):
                break
            time.sleep(0.01)
        wrong = receiver.wrong_of_sync()
        code, said = processes.end_of(process, 40)
        left = processes.left_after(out)
        add(row, not wrong and not left and code == 4, f"at message {at} of {count}: {wrong}; {code}: {said[-300:]!r}, {left} are left")
        wrong = s.wrong_of_resuming(command, out, expected)
        add(f"{row}: the run resumes", not wrong, wrong)


def kill_receiver(stand, add, chance, _receivers):
    receiver = Receiver(stand)
    receiver.start()
    number = chance.choice(HOW)
    sender = processes.start(receiver.command("--chunk-mib", "1", "--deadline", "3"))
    time.sleep(chance.uniform(0.02, 0.25))
    processes.send(receiver.process.pid, number)
    begin = time.monotonic()
    code, said = processes.end_of(sender, 20)
    took = time.monotonic() - begin
    receiver.end(signal.SIGKILL)
    right = took < 10 and (code == 0 or (code in (2, 4) and "[" in said))
    add(f"receiver, {number.name}: the sender", right, f"exit code {code} after {took:.1f} s: {said[-300:]!r}")
    with receiver:
        wrong = receiver.wrong_of_sync()
        add("receiver at the socket of one that was killed", not wrong, wrong)


if __name__ == "__main__":
    main()
