#!/usr/bin/env python3
"""Runs within limits of the system: each ends with exit code 0 and the bits of a run without limits, or with 4 and the limit's name.

  tools/torture/limits.py TEMPER [--sizes 20] [--seed 1]
"""

import argparse
import os
import shutil
import sys

import stand as s


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("temper")
    parser.add_argument("--sizes", type=int, default=20, help="of each limit")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    table = s.Table("limits: done within them, or ended with 4 and their name, of all")
    chance = s.chances(arguments.seed)
    with s.Stand(arguments.temper) as stand:
        expected, _ = stand.undisturbed("sft")
        for option, least, most, name in (("v", 200, 8000, "ulimit -v"), ("d", 20, 4000, "ulimit -d")):
            for _ in range(arguments.sizes):
                mib = int(least * (most / least) ** chance.random())
                out = stand.output("limited")
                shutil.rmtree(out, ignore_errors=True)
                shell = ["bash", "-c", f'ulimit -{option} {mib * 1024}; exec "$0" "$@"']
                code, said = stand.run(shell + stand.command("sft", out))
                right = (code == 0 and s.bits_of(out) == expected) or (code == 4 and name in said) or code == 127
                table.add(f"{name}", right, f"{mib} MiB: exit code {code}: {said[-300:]!r}")
        for descriptors in range(4, 4 + arguments.sizes):
            out = stand.output("limited")
            shutil.rmtree(out, ignore_errors=True)
            code, said = stand.run(["bash", "-c", f'ulimit -n {descriptors}; exec "$0" "$@"'] + stand.command("sft", out))
            right = (code == 0 and s.bits_of(out) == expected) or (code in (2, 4) and "defect" not in said) or code == 127
            table.add("ulimit -n", right, f"{descriptors}: exit code {code}: {said[-300:]!r}")
    sys.exit(table.end())


if __name__ == "__main__":
    main()
