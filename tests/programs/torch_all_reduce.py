# SPDX-License-Identifier: GPL-2.0-or-later
"""An all-reduce by PyTorch's Gloo, over TCP; each process checks the sum."""

import torch
import torch.distributed as dist

NUMBERS = 1 << 16

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
numbers = torch.arange(NUMBERS) + rank
dist.all_reduce(numbers)
assert torch.equal(numbers, torch.arange(NUMBERS) * ranks + ranks * (ranks - 1) // 2)
dist.barrier()
if rank == 0:
    print(f"{ranks} processes, sum right")
dist.destroy_process_group()
