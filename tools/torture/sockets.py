#!/usr/bin/env python3
"""Attacks the socket of a process that takes weights: garbage, half messages, lengths without end, descriptors, deep nesting, wrong
orders of messages, 500 idle connections and 10 that send a byte now and then. Honest senders at the same time have to succeed within five
seconds each; the receiver must not end, and afterwards has the descriptors and threads that it had before.

  tools/torture/sockets.py TEMPER [--attacks 400] [--idle 500] [--slow 10] [--syncs 20] [--seed 1] [--jobs 1]
"""

import json
import os
import socket
import struct
import threading
import time

import processes
import tables
from receivers import LONGEST, Receiver

WORDS = ["hello", "begin", "update", "finish", "abort", "hash", ""]


def main():
    asked = tables.arguments(__doc__, ("--attacks", 400, "single ones"), ("--idle", 500, "idle connections"),
                             ("--slow", 10, "slow connections"), ("--syncs", 20, "honest ones together with idle and slow connections"))
    tasks = [(crowd, asked), *[(attacks, min(50, asked.attacks - done)) for done in range(0, asked.attacks, 50)]]
    tables.work(f"sockets: honest syncs within {LONGEST} s, the receiver unmoved, of all", asked, tasks, torture)


def torture(stand, add, chance, task):
    of_kind, what = task
    with Receiver(stand) as receiver:
        wrong = receiver.wrong_of_sync()
        before = processes.status_of(receiver.process.pid)
        add("first sync", not wrong, wrong)
        of_kind(receiver, add, chance, what)
        until = time.monotonic() + 5
        while (after := processes.status_of(receiver.process.pid))["descriptors"] != before["descriptors"] and time.monotonic() < until:
            time.sleep(0.1)
        same = all(after[name] == before[name] for name in ("descriptors", "Threads"))
        grown = after["VmRSS"] - before["VmRSS"]
        add("descriptors and threads", same, f"{before}, then {after}")
        add("memory grew by less than 16 MiB", grown < 16 << 10, f"by {grown} KiB")
        code = receiver.end()
        add("receivers end as they are asked to", code == 3, f"exit code {code}: {receiver.said()[-300:]!r}")


def crowd(receiver, add, chance, asked):
    """Many connections that nothing comes from, and some that a byte comes from now and then."""
    idle = [connected(receiver) for _ in range(asked.idle)]
    slow, ends = [connected(receiver) for _ in range(asked.slow)], threading.Event()

    def drip():
        message = framed(json.dumps({"type": "hello", "protocol": 1, "filler": "x" * 5000}).encode())
        for byte in message:
            for each in slow:
                tried(lambda each=each, byte=byte: each.send(bytes([byte])))
            if ends.wait(0.2):
                return

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        for _ in range(asked.syncs):
            wrong = receiver.wrong_of_sync()
            add(f"honest with {asked.idle} idle and {asked.slow} slow connections", not wrong, wrong)
    finally:
        ends.set()
        dripping.join()
        for each in idle + slow:
            each.close()


def attacks(receiver, add, chance, count):
    for number in range(count):
        name = chance.choice(list(ATTACKS))
        one = connected(receiver)
        tried(lambda: ATTACKS[name](one, chance))
        if chance.random() < 0.5:  # is heard, or has to be
            one.settimeout(0.2)
            tried(lambda: one.recv(65536))
        if number % 10 == 9:
            wrong = receiver.wrong_of_sync()
            add("honest after ten attacks", not wrong, f"the last was {name}: {wrong}")
        alive = receiver.process.poll() is None
        add(name, alive, f"the receiver ended: {receiver.said()[-300:]!r}")
        one.close()
        if not alive:
            return


def connected(receiver):
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    one.settimeout(5)
    one.connect(receiver.socket)
    return one


def tried(do):
    try:
        do()
    except OSError:
        pass  # the receiver has closed it, as it may


def framed(text):
    return struct.pack("=I", len(text)) + text


def message_of(chance):
    """Of the right form, with keys and values at random."""
    values = [None, -1, 0, 2**63, 1e308, "", "x" * chance.randrange(2000), [], {}, [[]] * 10, True]
    keys = ["protocol", "boot", "memory", "memory_of", "model", "version", "names", "rank", "ranks", "chunk_bytes", "bytes", "hash",
            "pieces", "adapter"]
    chosen = {key: chance.choice(values) for key in chance.sample(keys, chance.randrange(len(keys)))}
    return framed(json.dumps({"type": chance.choice(WORDS), **chosen}).encode())


def with_files(one, chance):
    made = [os.memfd_create("attack") for _ in range(chance.randint(1, 5))]
    try:
        for _ in range(chance.randint(1, 4)):
            socket.send_fds(one, [framed(b'{"type":"hello"}')], made)
    finally:
        for each in made:
            os.close(each)


def several(one, chance):
    for _ in range(chance.randint(1, 20)):
        one.sendall(message_of(chance))


ATTACKS = {
    "garbage": lambda one, chance: one.sendall(chance.randbytes(chance.randrange(1, 100000))),
    "half a length": lambda one, chance: one.sendall(b"\x10"),
    "half a message": lambda one, chance: one.sendall(message_of(chance)[:-1]),
    "a length without end": lambda one, chance: one.sendall(struct.pack("=I", chance.choice([2**32 - 1, 2**31, 2**28])) + b"{"),
    "no object": lambda one, chance: one.sendall(framed(chance.choice([b"[]", b"1", b"null", b'"hello"', b"", b"\xff\xfe"]))),
    "deep nesting": lambda one, chance: one.sendall(framed(b"[" * 200000)),
    "keys at random": lambda one, chance: several(one, chance),
    "descriptors": with_files,
    "nothing": lambda one, chance: None,
}


if __name__ == "__main__":
    main()
