# SPDX-License-Identifier: GPL-2.0-or-later
"""What the RNICs of a run's programs did about losses: program_messages and recovery.parquet.

Each process leaves a file (telemetry/program_losses.py) in its host's folder, whose name the
environment has. A message is recorded if it was outstanding while its queue pair repaired a loss,
or if it failed.
"""

from __future__ import annotations

import contextlib
import ipaddress
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.experiment.messages import NEVER_NS, NOT_DONE
from softroce_lab.experiment.recoveries import QueuePair, Recorded
from softroce_lab.plan.plan import Plan, Port
from softroce_lab.programs.device.device import gids
from softroce_lab.telemetry import program_losses
from softroce_lab.telemetry.program_losses import Losses
from softroce_lab.telemetry.recoveries import EVENTS, NO_LINK, RECOVERY

Columns: TypeAlias = dict[str, npt.NDArray[Any]]

FOLDER_VARIABLE = "SOFTROCE_LOSSES"  # native/verbs/settings.cpp
OPCODES = (
    "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM", "RDMA_READ",
    "ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD", "", "", "SEND_WITH_INV",
)  # fmt: skip
"""enum ibv_wr_opcode."""
_EVENTS = {
    program_losses.RETRANSMIT: EVENTS.index("retransmit"),
    program_losses.TIMEOUT: EVENTS.index("timeout"),
    program_losses.NAK_SENT: EVENTS.index("nak_sent"),
    program_losses.NAK_RECEIVED: EVENTS.index("nak_received"),
}
_TYPES = {
    "process": np.int64, "qpn": np.uint32, "peer_qpn": np.uint32, "message": np.uint64,
    "bytes": np.uint64, "psn": np.uint32, "last_psn": np.uint32, "status": np.int16,
    "posted_ns": np.int64, "sent_ns": np.int64, "completed_ns": np.int64,
}  # fmt: skip
_WORDS = ("source", "destination", "program", "opcode")


class ProgramLosses:
    """Of the hosts that take part in a run."""

    def __init__(self, plan: Plan, hosts: Sequence[str], folder: Path) -> None:
        """`folder`: empty, for what processes leave; its owner removes it."""
        self._folders = {host: folder / host for host in hosts}
        for each in self._folders.values():
            each.mkdir()
        nodes = plan.hosts
        self._addresses = {node.name: _ipv4(node.ports[0]) for node in nodes}
        self._names = {_ipv4(port): node.name for node in nodes for port in node.ports}
        self._of_gid = {
            int(gid): _ipv4(port) for node in nodes for port in node.ports for gid in gids(port)
        }

    def environment(self, host: str) -> dict[str, str]:
        """For the commands of a host."""
        return {FOLDER_VARIABLE: str(self._folders[host])}

    def end(self, begun_ns: int) -> tuple[Columns, Recorded, int]:
        """Columns of program_messages, what makes recovery.parquet, and how much is not recorded.

        `begun_ns`: of the run, CLOCK_MONOTONIC.
        """
        rows: list[dict[str, Any]] = []
        records: list[Losses] = []
        pairs: dict[tuple[int, int], QueuePair] = {}
        left_out = 0
        for host, pid, program, found in self._files():
            here = self._addresses[host]
            of_file = found[found["kind"] == program_losses.LEFT_OUT]
            left_out += int(of_file["number"].sum())
            messages = found[found["kind"] == program_losses.MESSAGE]
            rows += [
                {"source": host, "process": pid, "program": program, **self._row(each, begun_ns)}
                for each in messages
            ]
            acts = found[np.isin(found["kind"], list(_EVENTS))]
            records.append(_recoveries(acts, here, begun_ns))
            for each in np.unique(found[["qp", "remote_qp", "remote_high", "remote_low"]]):
                peer = self._of_gid.get(_number(each))
                if peer is not None:
                    self._add_pairs(pairs, here, int(each["qp"]), peer, int(each["remote_qp"]))
        joined = np.concatenate([np.zeros(0, RECOVERY), *records])
        joined = joined[np.argsort(joined["time_ns"], kind="stable")]
        recorded = Recorded(joined, self._names, (), list(pairs.values()))
        return _table(rows), recorded, left_out

    def _files(self) -> Iterator[tuple[str, int, str, Losses]]:
        """Of each process: host, number, name, records."""
        for host, folder in self._folders.items():
            for path in sorted(folder.iterdir()):
                pid, _, program = path.name.partition(".")
                with contextlib.suppress(OSError, ValueError):
                    yield host, int(pid), program, program_losses.read(path)

    def _row(self, record: np.void, begun_ns: int) -> dict[str, Any]:
        peer = self._of_gid.get(_number(record), 0)
        finished = record["code"] != program_losses.UNFINISHED
        opcode = int(record["opcode"])
        return {
            "destination": self._names.get(peer, ""),
            "qpn": record["qp"],
            "peer_qpn": record["remote_qp"],
            "message": record["number"],
            "opcode": OPCODES[opcode] if opcode < len(OPCODES) else "",
            "bytes": record["bytes"],
            "psn": record["psn"],
            "last_psn": record["last_psn"],
            "status": record["code"] if finished else NOT_DONE,
            "posted_ns": record["posted_ns"] - begun_ns,
            "sent_ns": record["sent_ns"] - begun_ns if record["sent_ns"] else NEVER_NS,
            "completed_ns": record["at_ns"] - begun_ns if finished else NEVER_NS,
        }

    @staticmethod
    def _add_pairs(
        pairs: dict[tuple[int, int], QueuePair], here: int, qpn: int, there: int, peer_qpn: int
    ) -> None:
        """Both directions of a connection."""
        pairs[here, qpn] = QueuePair(here, there, qpn, peer_qpn, 0)
        pairs.setdefault((there, peer_qpn), QueuePair(there, here, peer_qpn, qpn, 0))


def _recoveries(acts: Losses, host: int, begun_ns: int) -> Losses:
    found = np.zeros(len(acts), RECOVERY)
    found["time_ns"] = acts["at_ns"] - begun_ns
    found["host"], found["qpn"], found["link"] = host, acts["qp"], NO_LINK
    found["psn"], found["last_psn"] = acts["psn"], acts["last_psn"]
    found["event"] = [_EVENTS[kind] for kind in acts["kind"].tolist()]
    found["reason"] = np.where(acts["kind"] == program_losses.RETRANSMIT, acts["code"], 0)
    return found


def _ipv4(port: Port) -> int:
    return int(ipaddress.IPv4Address(str(port.address)))


def _number(record: np.void) -> int:
    """The GID of the peer."""
    return int(record["remote_high"]) << 64 | int(record["remote_low"])


def _table(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """In the order of posts."""
    rows = sorted(rows, key=lambda row: int(row["posted_ns"]))
    words = {name: np.array([row[name] for row in rows], dtype=object) for name in _WORDS}
    numbers = {
        name: np.array([row[name] for row in rows], dtype=dtype) for name, dtype in _TYPES.items()
    }
    return words | numbers


@contextlib.contextmanager
def of_run(plan: Plan, hosts: Sequence[str]) -> Iterator[ProgramLosses]:
    """The folder lasts as long as this."""
    with tempfile.TemporaryDirectory(prefix="softroce_lab-losses-") as folder:
        yield ProgramLosses(plan, hosts, Path(folder))
