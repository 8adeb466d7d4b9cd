# SPDX-License-Identifier: GPL-2.0-or-later
"""Moves bytes by Mooncake's transfer engine, over all RDMA devices of the host or those of DEVICES.

serve FOLDER BYTES   has a buffer; writes the name of its session and the address to FOLDER/peer
move FOLDER BYTES    writes to it, reads it back and checks
repeat FOLDER BYTES  does that until FOLDER/end is there, and prints the status of each transfer
"""

import os
import socket
import sys
import time
from pathlib import Path

import numpy as np
from mooncake.engine import TransferEngine

WAIT_S = 100


def engine():
    made = TransferEngine()
    found = ",".join(sorted(os.listdir("/sys/class/infiniband")))
    devices = os.environ.get("DEVICES", found)
    status = made.initialize(socket.gethostbyname(socket.gethostname()), "P2PHANDSHAKE", "rdma",
                             devices)  # fmt: skip
    assert status == 0, status
    return made


def registered(made, size):
    buffer = np.zeros(size, np.uint8)
    assert made.register_memory(buffer.ctypes.data, size) == 0
    return buffer


def until(happened):
    end_s = time.monotonic() + WAIT_S
    while not happened():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def serve(folder, size):
    made = engine()
    host = socket.gethostbyname(socket.gethostname())
    buffer = registered(made, size)
    new = folder / "new"
    new.write_text(f"{host}:{made.get_rpc_port()} {buffer.ctypes.data}")
    new.rename(folder / "peer")
    until((folder / "done").exists)


def both_ways(folder, size):
    """Transfers one after the other: the status of each; 0: it ended well and is right."""
    made = engine()
    until((folder / "peer").exists)
    peer, address = (folder / "peer").read_text().split()
    mine, back = registered(made, size), registered(made, size)
    random = np.random.default_rng(1)
    while True:
        mine[:] = random.integers(0, 256, size, np.uint8)
        status = made.transfer_sync_write(peer, mine.ctypes.data, int(address), size)
        yield status
        if status == 0:
            status = made.transfer_sync_read(peer, back.ctypes.data, int(address), size)
            assert status != 0 or (mine == back).all()
            yield status


def move(folder, size):
    statuses = both_ways(folder, size)
    assert (next(statuses), next(statuses)) == (0, 0)
    print(f"{size} bytes there and back", flush=True)
    (folder / "done").touch()


def repeat(folder, size):
    for status in both_ways(folder, size):
        print(f"status {status}", flush=True)
        if (folder / "end").exists():
            break
    (folder / "done").touch()


if __name__ == "__main__":
    role, *words = sys.argv[1:]
    {"serve": serve, "move": move, "repeat": repeat}[role](Path(words[0]), int(words[1]))
    os._exit(0)
