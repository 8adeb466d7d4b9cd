# SPDX-License-Identifier: GPL-2.0-or-later
"""Moves bytes by Mooncake's transfer engine: `serve FOLDER`, or `move FOLDER BYTES`, which checks.

The server writes the name of its session and the address of its buffer into FOLDER/peer.
"""

import os
import socket
import sys
import time
from pathlib import Path

import numpy as np
from mooncake.engine import TransferEngine

WAIT_S = 30


def engine():
    made = TransferEngine()
    status = made.initialize(socket.gethostbyname(socket.gethostname()), "P2PHANDSHAKE", "rdma",
                             "softroce0")  # fmt: skip
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


def move(folder, size):
    made = engine()
    until((folder / "peer").exists)
    peer, address = (folder / "peer").read_text().split()
    mine, back = registered(made, size), registered(made, size)
    mine[:] = np.random.default_rng(1).integers(0, 256, size, np.uint8)
    assert made.transfer_sync_write(peer, mine.ctypes.data, int(address), size) == 0
    assert made.transfer_sync_read(peer, back.ctypes.data, int(address), size) == 0
    assert (mine == back).all()
    print(f"{size} bytes there and back", flush=True)
    (folder / "done").touch()


if __name__ == "__main__":
    {"serve": serve, "move": move}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
    os._exit(0)
