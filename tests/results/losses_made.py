# SPDX-License-Identifier: GPL-2.0-or-later
"""What RNICs of programs leave of losses, written as native/verbs/loss_log.hpp writes it."""

import ipaddress
from types import SimpleNamespace

import numpy as np

from softroce_lab.experiment.hosts import program_records
from softroce_lab.telemetry.program_losses import KINDS, LOSS

BEGUN_NS = 10**12
H1, H2 = (int(ipaddress.IPv4Address(f"10.0.0.{n}")) for n in (1, 2))
QPN, PEER_QPN = 0x123, 0x456
PID, RANK = 77, 3
HERE = {"qp": QPN, "remote_qp": PEER_QPN, "remote_low": 0xFFFF << 32 | H2}
THERE = {"qp": PEER_QPN, "remote_qp": QPN, "remote_low": 0xFFFF << 32 | H1}


def record(kind, at_us=0, **fields):
    """A record; times are microseconds since the run began."""
    found = np.zeros(1, LOSS)
    found["kind"] = KINDS.index(kind)
    found["at_ns"] = BEGUN_NS + at_us * 1000
    for name in ("posted", "sent"):
        if f"{name}_us" in fields:
            found[f"{name}_ns"] = BEGUN_NS + fields.pop(f"{name}_us") * 1000
    for name, value in fields.items():
        found[name] = value
    return found


def write(folder, host, records, process=f"{PID}.softroce0.ib_write_bw", more=b""):
    """A process's file."""
    data = np.concatenate(records).tobytes() if records else b""
    (folder / "losses" / host / process).write_bytes(data + more)


def ended(plan, tmp_path, records):
    """What `ProgramLosses` makes of the records of hosts."""
    losses = program_records.ProgramLosses(plan, list(records), tmp_path)
    for host, of_host in records.items():
        write(tmp_path, host, of_host)
    process = SimpleNamespace(snapshot=SimpleNamespace(pid=PID, rank=RANK))
    return losses.end(BEGUN_NS, {"h1": [process]})
