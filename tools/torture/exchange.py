#!/usr/bin/env python3
"""Kills or stops who sends weights, between any two of its messages: a sender, and one of two ranks of a run. The next sync has to
succeed within five seconds, and the run, started again, has to end with the bits of an undisturbed one. Kills receivers, too: their
senders have to end with exit code 4 and a sentence, and the next receiver at the same socket has to take weights. Where the signal did
not come to be, since the end was nearer, nothing counts.

  tools/torture/exchange.py TEMPER [--syncs 500] [--runs 40] [--receivers 40] [--seed 1] [--jobs 1]
"""

import signal
import time

import calls
import processes
import stand as s
import tables
from receivers import LONGEST, Receiver

OF_ONE_RECEIVER = 20  # syncs
HOW = [signal.SIGKILL, signal.SIGSTOP]
NOT_REACHED = ": the message was not reached"


def main():
    asked = tables.arguments(__doc__, ("--syncs", 500, "with a sender that is killed or stopped"),
                             ("--runs", 40, "runs of two ranks, one of which is"), ("--receivers", 40, "receivers that are killed"))
    tasks = [(kill_rank, 1)] * asked.runs + [(kill_receiver, 1)] * asked.receivers
    tasks += [(kill_senders, min(OF_ONE_RECEIVER, asked.syncs - done)) for done in range(0, asked.syncs, OF_ONE_RECEIVER)]
    tables.work(f"exchange: the next sync within {LONGEST} s, of all", asked, tasks, torture)


def torture(stand, add, chance, task):
    of_kind, count = task
    of_kind(stand, add, chance, count)


def at_message(stand, **more):
    return calls.environment_of(stand, "message", **more)


def kill_senders(stand, add, chance, syncs):
    small = ["--chunk-mib", "1"]
    with Receiver(stand) as receiver:
        count = calls.counted(stand, "send", receiver.command(*small), at_message(stand))
        before = processes.status_of(receiver.process.pid) if not receiver.wrong_of_sync() else {}
        for _ in range(syncs):
            at, number, mark = chance.randint(1, count), chance.choice(HOW), calls.Mark(stand)
            victim = processes.start(receiver.command(*small), at_message(stand, at=at, signal=number, mark=mark.path))
            until = time.monotonic() + 10
            while victim.poll() is None and processes.state_of(victim.pid) != "T" and time.monotonic() < until:
                time.sleep(0.005)
            wrong = receiver.wrong_of_sync()
            struck = mark.is_there()
            add(f"sender, {number.name}{'' if struck else NOT_REACHED}", not wrong if struck or wrong else tables.NOT_TRIED,
                f"at message {at} of {count}: {wrong}")
            processes.send(victim, signal.SIGKILL)
            processes.end_of(victim, 10)
        wrong = receiver.wrong_of_sync()
        after = processes.status_of(receiver.process.pid)
        more = [name for name in ("descriptors", "Threads") if after[name] > before.get(name, 0)]
        add("descriptors and threads of receivers", not wrong and not more, f"{before}, then {after}; {wrong}")
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
        one = {"rank": rank, "behind": "sft.yaml"}
        count = calls.counted(stand, f"rank{rank}", command, at_message(stand, **one))
        at, mark = chance.randint(1, count), calls.Mark(stand)
        out = stand.output("sends")
        process = processes.start(command, at_message(stand, at=at, signal=number, mark=mark.path, **one))
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            if any(processes.state_of(each) == "T" for each in processes.with_word(out)):
                break
            time.sleep(0.01)
        wrong = receiver.wrong_of_sync()
        code, said = processes.end_of(process, 40)
        left = processes.left_after(out)
        struck = mark.is_there()
        right = not wrong and not left and code == (4 if struck else 0)
        add(row if struck else f"{row}{NOT_REACHED}", tables.NOT_TRIED if right and not struck else right,
            f"at message {at} of {count}: {wrong}; {code}: {said[-300:]!r}, {left} are left")
        wrong = s.wrong_of_resuming(command, out, expected)
        add(f"{row}: the run resumes", not wrong, wrong)


def kill_receiver(stand, add, chance, _receivers):
    receiver = Receiver(stand)
    receiver.start()
    number = chance.choice(HOW)
    sender = processes.start(receiver.command("--chunk-mib", "1", "--deadline", "3"))
    time.sleep(chance.uniform(0.02, 0.25))
    done = sender.poll() is not None
    processes.send(receiver.process, number)
    begin = time.monotonic()
    code, said = processes.end_of(sender, 20)
    took = time.monotonic() - begin
    receiver.end(signal.SIGKILL)
    right = took < 10 and (code == 0 or (code in (2, 4) and "[" in said))
    add(f"receiver, {number.name}: the sender{' was done before' if done else ''}", tables.NOT_TRIED if right and done else right,
        f"exit code {code} after {took:.1f} s: {said[-300:]!r}")
    with receiver:
        wrong = receiver.wrong_of_sync()
        add("receiver at the socket of one that was killed", not wrong, wrong)


if __name__ == "__main__":
    main()
