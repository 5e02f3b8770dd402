#!/usr/bin/env python3
"""Measures what temper_bench_collectives does with NCCL as PyTorch calls it: mpirun --bind-to none -n N python3
collectives_torch.py. Medians of 9 rows of 12 calls, on the slowest rank."""
import os
import statistics

import torch
import torch.distributed as dist

WIDTH, IN_ROW, ROWS = 2048, 12, 9


def seconds(run):
    for _ in range(3):
        run()
    times = []
    for _ in range(ROWS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(IN_ROW):
            run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / IN_ROW)
    slowest = torch.tensor(statistics.median(times), device="cuda")
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item() * 1e-3


def main():
    rank, ranks = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    torch.cuda.set_device(rank)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29531")
    dist.init_process_group("nccl", rank=rank, world_size=ranks, device_id=torch.device("cuda", rank))
    if rank == 0:
        print("| collective | rows | MiB leave | us | GB/s |\n|---|---|---|---|---|")
    for tokens in (1024, 4096, 16384, 65536):
        rows = torch.randn(tokens, WIDTH, device="cuda", dtype=torch.bfloat16)
        out = torch.empty_like(rows)
        mine = rows[: tokens // ranks].clone()
        left = rows.numel() // ranks * 2 * (ranks - 1)
        for name, scale, run in (
                ("all_to_all", 1, lambda: dist.all_to_all_single(out, rows)),
                ("all_gather", 1, lambda: dist.all_gather_into_tensor(out, mine)),
                ("reduce_scatter", 1, lambda: dist.reduce_scatter_tensor(mine, rows)),
                ("all_reduce", 2, lambda: dist.all_reduce(rows))):
            time = seconds(run)
            if rank == 0:
                print(f"| {name:14} | {tokens:6} | {scale * left / 2**20:8.1f} | {time * 1e6:9.1f} | "
                      f"{scale * left * 1e-9 / time:6.1f} |")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
