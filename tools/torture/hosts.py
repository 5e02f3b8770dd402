#!/usr/bin/env python3
"""Runs on two hosts, which are namespaces of this machine (machines.py). They leave the bits of as many ranks on one host
  same:    undisturbed;
  slow:    with 20 ms more for each packet to or from one host, and one packet of a hundred lost;
  killed:  after all processes of one host were killed, also those of mpirun, and the same command was given again;
  silent:  after a host could not be reached any more, though it went on, and the same command was given again.
They are refused, with what to do,
  apart:   where one host has another disk in the place of the output folder;
  astray:  where each host has a network of its own with the same addresses, and Open MPI takes that.
A killed or silent host ends the run on both hosts: within 10 s, or within 10 s more than keepalive needs; where mpirun lives, it
says which host was lost. Prints why and does nothing where this machine allows no such namespaces.

  tools/torture/hosts.py TEMPER [--times 4] [--of_host 1,2] [--cases same,slow,apart,astray,killed,silent] [--seed 1] [--jobs 1]
"""

import os
import sys
import tempfile
import time

import machines
import processes
import stand as s
import tables

KEEP_ALIVE = (10, 5, 3)  # as docs/ranks.md has it: seconds of silence, seconds between probes, probes
LONGEST = 10  # seconds
SLOW = ("node2",)
LONG = ["--train.steps", "60", "--checkpoint.every_steps", "4"]


def main():
    asked = tables.arguments(__doc__, ("--times", 4, "of each case"), ("--of_host", "1,2", "ranks of each host"),
                             ("--cases", "same,slow,apart,astray,killed,silent", "what is tried"))
    machines.become_root()
    cases = tables.words(asked.cases)
    with tempfile.TemporaryDirectory() as folder:
        why = machines.why_none(folder, SLOW if "slow" in cases else ())
    if why:
        print(f"hosts: skipped: {why}")
        sys.exit(0)
    tasks = [(case, int(ranks)) for case in cases for _ in range(asked.times) for ranks in tables.words(asked.of_host)]
    tables.work("hosts: the bits of one host, and ended in time where a host is lost", asked, tasks, torture)


def torture(stand, add, chance, task):
    case, ranks = task
    stand.kinds["long"] = (stand.kinds["sft"][0], LONG)
    kind = "long" if case in ("killed", "silent") else "sft"
    expected, _ = stand.undisturbed(kind, 2 * ranks)
    out, row = stand.output("hosts"), f"{case}, {ranks} ranks on each of 2 hosts"
    with machines.Machines(stand.folder, SLOW if case == "slow" else ()) as hosts:
        command = hosts.mpirun(ranks, KEEP_ALIVE, *stand.command(kind, out))
        if case in ("apart", "astray"):
            return refused(stand, hosts, add, row, command, case)
        if case in ("killed", "silent"):
            lost(hosts, add, row, command, out, chance, case)
        code, said = processes.run(command, seconds=300)
        wrong = f"exit code {code}: {said[-600:]!r}" if code != 0 else s.difference_of(out, expected)
        add(f"{row}: bits", not wrong, wrong)
        add(f"{row}: alarms", "did not come" not in said and "is awaited" not in said, said[-600:])


def refused(stand, hosts, add, row, command, case):
    if case == "apart":
        os.makedirs(stand.runs, exist_ok=True)
        hosts.nodes[1].do("mount", "-t", "tmpfs", "tmpfs", stand.runs)
        expected, has = 2, "rank 0 (on node1) writes there: all machines must share the output folder"
    else:
        for node in hosts.nodes:  # as programs of containers leave it
            node.do("ip", "link", "add", "docker0", "type", "bridge")
            node.do("ip", "address", "add", "172.17.0.1/16", "dev", "docker0")
            node.do("ip", "link", "set", "docker0", "up")
        command = [word.replace("btl_tcp_if_include=eth0", "btl_tcp_if_include=docker0") for word in command]
        expected, has = 4, "s of the start; on several hosts, name the network interface that joins them"
    code, said = processes.run(command)
    left = hosts.left_after(LONGEST)
    add(f"{row}: refused", code == expected and has in said and not left, f"exit code {code}: {said[-1500:]!r}; {left} are left")


def lost(hosts, add, row, command, out, chance, case):
    """A host is, after a random step."""
    process, step = processes.start(command), chance.randrange(1, 50)
    while steps_of(out) < step and process.poll() is None:
        time.sleep(0.005)
    victim = chance.choice(hosts.nodes)
    struck, begin = process.poll() is None, time.monotonic()
    if case == "killed":
        victim.end_all()
    else:
        hosts.connect(victim, False)
    longest = LONGEST + (0 if case == "killed" else KEEP_ALIVE[0] + KEEP_ALIVE[1] * KEEP_ALIVE[2])
    code, said = processes.end_of(process, longest)
    left = hosts.left_after(max(0, longest - (time.monotonic() - begin)))
    took = time.monotonic() - begin
    if case == "silent":
        hosts.connect(victim, True)
    if not struck:
        return add(f"{row}: was done before", tables.NOT_TRIED)
    killed = case == "killed" and victim is hosts.nodes[0]  # mpirun, too, which says nothing then
    right = not left and code not in (0, processes.ENDLESS) and (killed or "node2" in said)
    add(f"{row}: ends", right, f"{victim.name} after step {step}: exit code {code} after {took:.1f} s: {said[-1500:]!r}; {left} are left")


def steps_of(out):
    try:
        with open(os.path.join(out, "metrics.jsonl"), "rb") as file:
            return file.read().count(b"\n")
    except OSError:
        return 0


if __name__ == "__main__":
    main()
