# SPDX-License-Identifier: GPL-2.0-or-later
"""PyTorch over MPI by a process group of its own; each rank checks sums and a broadcast."""

import os

import torch
import torch.distributed as dist
from mpi4py import MPI

NUMBERS, TIMES = 1 << 18, 2
COMM = MPI.COMM_WORLD


class Ended(dist._Work):
    def wait(self, timeout=None):
        return True


class OverMpi(dist.ProcessGroup):
    def getBackendName(self):  # noqa: N802
        return "over-mpi"

    def allreduce(self, tensors, options):
        for each in tensors:
            COMM.Allreduce(MPI.IN_PLACE, each.numpy())
        return Ended()

    def broadcast(self, tensors, options):
        for each in tensors:
            COMM.Bcast(each.numpy(), options.rootRank)
        return Ended()

    def barrier(self, opts):
        COMM.Barrier()
        return Ended()


def made(store, rank, size, timeout):
    return OverMpi(rank, size)


rank, ranks = COMM.Get_rank(), COMM.Get_size()
os.environ |= {"MASTER_ADDR": "h1", "MASTER_PORT": "29500"}
dist.Backend.register_backend("over-mpi", made, devices=["cpu"])
dist.init_process_group("over-mpi", rank=rank, world_size=ranks)
for time in range(TIMES):
    numbers = torch.arange(NUMBERS) + rank + time
    dist.all_reduce(numbers)
    expected = (torch.arange(NUMBERS) + time) * ranks + ranks * (ranks - 1) // 2
    assert torch.equal(numbers, expected)
    dist.broadcast(numbers if rank == 1 else numbers.zero_(), src=1)
    assert torch.equal(numbers, expected)
dist.barrier()
if rank == 0:
    print(f"{ranks} processes, all right", flush=True)
