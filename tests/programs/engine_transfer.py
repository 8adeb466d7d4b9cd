# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes bytes to a peer by a transfer engine, reads them back and checks.

    nixl-cu12|dlslime serve|move FOLDER BYTES

The two sides tell each other by files of the folder which memory they have.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

WAIT_S = 30


def exchanged(folder, role, own):
    """The other side's words for these."""
    other = {"serve": "move", "move": "serve"}[role]
    new = folder / f"{role}.new"
    new.write_bytes(own)
    new.rename(folder / role)
    until((folder / other).exists)
    return (folder / other).read_bytes()


def until(happened):
    end_s = time.monotonic() + WAIT_S
    while not happened():
        assert time.monotonic() < end_s
        time.sleep(0.01)


class Nixl:
    def __init__(self, folder, role, memory):
        from nixl_cu12._api import nixl_agent, nixl_agent_config

        self.agent = nixl_agent(role, nixl_agent_config(backends=["UCX"]))
        self.region = (memory.ctypes.data, memory.nbytes, 0)
        self.agent.register_memory([(*self.region, "")], "DRAM")
        own = json.dumps([self.region, self.agent.get_agent_metadata().hex()])
        self.there, metadata = json.loads(exchanged(folder, role, own.encode()))
        self.peer = self.agent.add_remote_agent(bytes.fromhex(metadata))

    def transfer(self, verb, length, here, there):
        """Between these offsets."""
        own = [(self.region[0] + here, length, 0)]
        other = [(self.there[0] + there, length, 0)]
        local, remote = (self.agent.get_xfer_descs(each, "DRAM") for each in (own, other))
        handle = self.agent.initialize_xfer(verb.upper(), local, remote, self.peer)
        assert self.agent.transfer(handle) != "ERR"
        until(lambda: self.agent.check_xfer_state(handle) == "DONE")
        self.agent.release_xfer_handle(handle)


class DlSlime:
    def __init__(self, folder, role, memory):
        from dlslime import RDMAEndpoint

        self.endpoint = RDMAEndpoint("softroce0", 1, "RoCE")
        self.here = self.endpoint.register_memory_region(
            "memory", memory.ctypes.data, 0, memory.nbytes
        )
        own = [self.endpoint.endpoint_info(), self.endpoint.mr_info()]
        peer, regions = json.loads(exchanged(folder, role, json.dumps(own).encode()))
        self.there = self.endpoint.register_remote_memory_region("memory", regions["memory"])
        self.endpoint.connect(peer)

    def transfer(self, verb, length, here, there):
        """Between these offsets."""
        future = getattr(self.endpoint, verb)([(self.here, self.there, there, here, length)])
        assert future.wait() == 0


def main(engine, role, folder, size):
    half = size // 2
    memory = np.zeros(size, np.uint8)
    by = {"nixl-cu12": Nixl, "dlslime": DlSlime}[engine](folder, role, memory)
    if role == "serve":
        until((folder / "done").exists)
        return
    memory[:half] = np.random.default_rng(1).integers(0, 256, half, np.uint8)
    by.transfer("write", half, 0, half)
    by.transfer("read", half, half, half)
    assert (memory[half:] == memory[:half]).all()
    print(f"{half} bytes there and back", flush=True)
    (folder / "done").touch()


if __name__ == "__main__":
    main(*sys.argv[1:3], Path(sys.argv[3]), int(sys.argv[4]))
    os._exit(0)
