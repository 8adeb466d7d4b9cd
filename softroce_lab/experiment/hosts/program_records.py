# SPDX-License-Identifier: GPL-2.0-or-later
"""What the RNICs of a run's programs counted, and what they did about losses.

An RNIC goes with its process. The library writes two files to folders that the environment names:
its last counters, those of queue pairs that were destroyed among them, and its losses
(telemetry/program_losses.py). Of a process that was killed there are the counters that it had
published (telemetry/counters_file.py) when somebody looked last. A message is recorded if it was
outstanding while its queue pair repaired a loss, or if it failed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.errors import RunError
from softroce_lab.experiment.figure_table import RETRANSMITTED, data_packets, total
from softroce_lab.experiment.messages import NEVER_NS, NOT_DONE
from softroce_lab.experiment.recoveries import QueuePair, Recorded
from softroce_lab.fabric.lab import Lab
from softroce_lab.fabric.observe import counters_files
from softroce_lab.fabric.observe.view import View
from softroce_lab.plan.plan import Plan, Port
from softroce_lab.programs.device.device import gids
from softroce_lab.telemetry import counters, counters_file, program_losses
from softroce_lab.telemetry.counters_file import Published, Snapshot
from softroce_lab.telemetry.program_losses import Losses
from softroce_lab.telemetry.recoveries import EVENTS, NO_LINK, RECOVERY

Columns: TypeAlias = dict[str, npt.NDArray[Any]]

_LOOKS_S = 0.2  # as often as it is worth it: processes publish ten times a second


class ProgramFiles:
    """Folders for what processes leave, one a host; their owner removes them."""

    variable: ClassVar[str]  # of the environment (native/verbs/settings.cpp)

    def __init__(self, hosts: Sequence[str], folder: Path) -> None:
        self._folders = {host: folder / host for host in hosts}
        for each in self._folders.values():
            each.mkdir(parents=True)

    def environment(self, host: str) -> dict[str, str]:
        return {self.variable: str(self._folders[host])}

    def _files(self) -> Iterator[tuple[str, int, str, Path]]:
        """Of each process: host, number, name, file."""
        for host, folder in self._folders.items():
            for path in sorted(folder.iterdir()):
                pid, _, program = path.name.partition(".")
                with contextlib.suppress(OSError, ValueError):
                    yield host, int(pid), program, path


# --- Counters ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class OfProcess:
    """The last that is known of an RNIC."""

    program: str  # its process's name
    snapshot: Snapshot

    def document(self) -> dict[str, Any]:
        return {"pid": self.snapshot.pid, "program": self.program, **self.snapshot.document()}

    def brief(self) -> dict[str, Any]:
        counts = self.snapshot.counts
        return {
            "pid": self.snapshot.pid,
            "program": self.program,
            "queue_pairs": len(self.snapshot.qps),
            "packets_sent": data_packets(counts) + counts.get("tx_ud", 0),
            "retransmitted": total(counts, RETRANSMITTED),
        }


class ProgramCounters(ProgramFiles):
    variable = "SOFTROCE_COUNTERS"

    def __init__(self, lab: Lab | View, hosts: Sequence[str], folder: Path) -> None:
        super().__init__(hosts, folder)
        self._lab = lab
        self._looked_s = 0.0
        self._known: dict[str, dict[int, OfProcess]] = {host: {} for host in hosts}
        # A process that was killed leaves its counters until another opens the port.
        self._before = {each.snapshot.pid for host in hosts for each in self._published(host)}

    def look(self, *, now: bool = False) -> None:
        """See what is published, unless that was done a moment ago."""
        if not now and time.monotonic() - self._looked_s < _LOOKS_S:
            return
        self._looked_s = time.monotonic()
        for host, known in self._known.items():
            for published in self._published(host):
                if (pid := published.snapshot.pid) not in self._before:
                    name = known[pid].program if pid in known else _name_of(pid)
                    known[pid] = OfProcess(name, published.snapshot)

    def _published(self, host: str) -> list[Published]:
        port = self._lab.plan.node(host).ports[0]
        with contextlib.suppress(RunError, OSError):
            return [p for p in counters_files.of_port(self._lab.directory, port) if p.snapshot.pid]
        return []

    def end(self) -> dict[str, list[OfProcess]]:
        """Of all processes, by host, in the order of their numbers; all have ended."""
        self.look(now=True)
        for host, _, name, path in self._files():
            with contextlib.suppress(OSError, ValueError):
                snapshot = counters_file.parse(path.read_bytes())
                self._known[host][snapshot.pid] = OfProcess(name, snapshot)
        return {
            host: [known[pid] for pid in sorted(known)]
            for host, known in self._known.items()
            if known
        }


def stats(processes: Sequence[OfProcess]) -> dict[str, Any]:
    """Of a host, for stats.json: sums of all its processes, and each of them."""
    sums: Counter[str] = Counter()
    for each in processes:
        sums.update(each.snapshot.counts)
    counts = dict(sums)
    return {
        "counters": counters.of_process_port(counts),
        "hw_counters": counters.of_port(counts),
        "engine": counts,
        "processes": [each.document() for each in processes],
    }


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8").strip()
    except OSError:
        return ""


# --- Losses --------------------------------------------------------------------------------------

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
_COLUMNS = {
    "source": object, "destination": object, "program": object, "opcode": object,
    "process": np.int64, "qpn": np.uint32, "peer_qpn": np.uint32, "message": np.uint64,
    "bytes": np.uint64, "psn": np.uint32, "last_psn": np.uint32, "status": np.int16,
    "posted_ns": np.int64, "sent_ns": np.int64, "completed_ns": np.int64,
}  # fmt: skip


class ProgramLosses(ProgramFiles):
    variable = "SOFTROCE_LOSSES"

    def __init__(self, plan: Plan, hosts: Sequence[str], folder: Path) -> None:
        super().__init__(hosts, folder)
        nodes = plan.hosts
        self._addresses = {node.name: _ipv4(node.ports[0]) for node in nodes}
        self._names = {_ipv4(port): node.name for node in nodes for port in node.ports}
        self._of_gid = {
            int(gid): _ipv4(port) for node in nodes for port in node.ports for gid in gids(port)
        }

    def end(self, begun_ns: int) -> tuple[Columns, Recorded, int]:
        """Columns of program_messages, what makes recovery.parquet, and how much is not recorded.

        `begun_ns`: of the run, CLOCK_MONOTONIC.
        """
        rows: list[dict[str, Any]] = []
        records: list[Losses] = []
        pairs: dict[tuple[int, int], QueuePair] = {}
        left_out = 0
        for host, pid, program, path in self._files():
            try:
                found = program_losses.read(path)
            except (OSError, ValueError):
                continue
            here = self._addresses[host]
            left_out += int(found[found["kind"] == program_losses.LEFT_OUT]["number"].sum())
            rows += [
                {"source": host, "process": pid, "program": program, **self._row(each, begun_ns)}
                for each in found[found["kind"] == program_losses.MESSAGE]
            ]
            acts = found[np.isin(found["kind"], list(_EVENTS))]
            records.append(_recoveries(acts, here, begun_ns))
            for each in np.unique(found[["qp", "remote_qp", "remote_high", "remote_low"]]):
                if (there := self._of_gid.get(_number(each))) is not None:  # both directions
                    qpn, peer_qpn = int(each["qp"]), int(each["remote_qp"])
                    pairs[here, qpn] = QueuePair(here, there, qpn, peer_qpn, 0)
                    pairs.setdefault((there, peer_qpn), QueuePair(there, here, peer_qpn, qpn, 0))
        joined = np.concatenate([np.zeros(0, RECOVERY), *records])
        joined = joined[np.argsort(joined["time_ns"], kind="stable")]
        recorded = Recorded(joined, self._names, (), list(pairs.values()))
        rows.sort(key=lambda row: int(row["posted_ns"]))
        columns = {
            name: np.array([row[name] for row in rows], dtype=dtype)
            for name, dtype in _COLUMNS.items()
        }
        return columns, recorded, left_out

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
    return int(record["remote_high"]) << 64 | int(record["remote_low"])
