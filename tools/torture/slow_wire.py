"""A wire between two networks that keeps each packet for a while and loses some: tap NAME in this process's network, and tap eth0 in
that of another process. Not every system has netem. Started by machines.py, which ends it; says `wired` when both ends are there.

  slow_wire.py NAME PROCESS DELAY LOSS    (seconds, and a share of the packets)
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
CLONE_NEWNET = 0x40000000


def main():
    name, process, delay, loss = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    with open("/proc/self/ns/net") as own, open(f"/proc/{process}/ns/net") as other:
        ends = [tap(name)]
        enter(other)
        ends.append(tap("eth0"))
        enter(own)  # with which this process ends
    print("wired", flush=True)
    relay(ends, delay, loss)


def enter(network):
    if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def tap(name):
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return end


def relay(ends, delay, loss):
    chance, on_their_way, number = random.Random(1), [], 0
    while True:
        wait = max(0, on_their_way[0][0] - time.monotonic()) if on_their_way else None
        for end in select.select(ends, [], [], wait)[0]:
            packet, number = os.read(end, 65536), number + 1
            if chance.random() >= loss:
                heapq.heappush(on_their_way, (time.monotonic() + delay, number, ends[1 - ends.index(end)], packet))
        while on_their_way and on_their_way[0][0] <= time.monotonic():
            _, _, to, packet = heapq.heappop(on_their_way)
            try:
                os.write(to, packet)
            except OSError:  # the other end is down: lost
                pass


if __name__ == "__main__":
    main()
