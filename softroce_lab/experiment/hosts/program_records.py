# SPDX-License-Identifier: GPL-2.0-or-later
"""What the RNICs of a run's programs counted, and what they did about losses.

An RNIC goes with its process. The library writes two files for each RNIC, to folders that
`lab exec` names: counters, those of queue pairs that were destroyed among them
(telemetry/counters_file.py), and losses (telemetry/program_losses.py). It writes them ten times a
second, when the process has destroyed its last queue pair, and when it ends. A process that was
killed, or that ends by _exit(2), leaves what it wrote before. A message is recorded if it was
outstanding while its queue pair repaired a loss, or if it failed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from softroce_lab.experiment.figure_table import RETRANSMITTED, data_packets, total
from softroce_lab.experiment.messages import NEVER_NS, NOT_DONE
from softroce_lab.experiment.recoveries import QueuePair, Recorded
from softroce_lab.plan.plan import Plan, Port
from softroce_lab.programs import execute
from softroce_lab.programs.device.device import gids
from softroce_lab.telemetry import counters, counters_file, program_losses
from softroce_lab.telemetry.counters_file import Snapshot
from softroce_lab.telemetry.program_losses import Losses
from softroce_lab.telemetry.recoveries import EVENTS, NO_LINK, RECOVERY

Columns: TypeAlias = dict[str, npt.NDArray[Any]]

_MOST_BYTES = 1 << 26  # of a file; any user of a host may leave one


class ProgramFiles:
    """Folders for what processes leave, one a host; their owner removes them."""

    kind: ClassVar[str]  # a key of execute.RECORD_KINDS

    def __init__(self, hosts: Sequence[str], folder: Path) -> None:
        """`folder`: has one of each kind."""
        self.environment = {execute.RECORDS: str(folder)}
        self._folders = {host: folder / self.kind / host for host in hosts}
        folder.chmod(0o711)  # for programs of all users
        for each in self._folders.values():
            each.mkdir(parents=True)
            each.chmod(0o1733)

    def _files(self) -> Iterator[tuple[str, int, str, bytes]]:
        """Yields host, process number, process name and file content for each RNIC."""
        for host, folder in self._folders.items():
            for path in sorted(folder.iterdir()):
                with contextlib.suppress(OSError, ValueError):
                    pid, _, program = path.name.split(".", 2)
                    yield host, int(pid), program, _read(path)


def _read(path: Path) -> bytes:
    """Without waiting for a writer, and without following a link. OSError."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        return file.read(_MOST_BYTES)


# --- Counters ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class OfProcess:
    """The last that is known of an RNIC."""

    program: str  # its process's name
    snapshot: Snapshot

    @property
    def has_rc(self) -> bool:
        return any(qp.type == "RC" for qp in self.snapshot.qps)

    @property
    def rc_packets(self) -> int:
        """RC packets that it sent. Counters do not tell UC from RC, so those of UC are left out."""
        of_uc = sum(qp.counts["tx_connected"] for qp in self.snapshot.qps if qp.type == "UC")
        return self.snapshot.counts["tx_connected"] - of_uc

    @property
    def message_packets(self) -> int:
        """Data packets of striped messages, sent and received."""
        return self.snapshot.counts["tx_data"] + self.snapshot.counts["rx_data"]

    def document(self) -> dict[str, Any]:
        return {"pid": self.snapshot.pid, **self._names, **self.snapshot.document()}

    @property
    def _names(self) -> dict[str, Any]:
        rank = {} if self.snapshot.rank is None else {"rank": self.snapshot.rank}
        return {"program": self.program, **rank}

    def brief(self) -> dict[str, Any]:
        counts = self.snapshot.counts
        return {
            "pid": self.snapshot.pid,
            **self._names,
            "queue_pairs": len(self.snapshot.qps),
            "packets_sent": data_packets(counts) + counts.get("tx_ud", 0),
            "retransmitted": total(counts, RETRANSMITTED),
        }


class ProgramCounters(ProgramFiles):
    kind = "counters"

    def end(self) -> dict[str, list[OfProcess]]:
        """Returns the counters of all RNICs by host, sorted by process number.

        To be called when all processes have ended.
        """
        found: dict[str, list[OfProcess]] = {}
        for host, _, program, data in self._files():
            with contextlib.suppress(ValueError):
                one = OfProcess(program, counters_file.parse(data))
                found.setdefault(host, []).append(one)
        return {host: sorted(of, key=lambda one: one.snapshot.pid) for host, of in found.items()}


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


# --- Losses --------------------------------------------------------------------------------------

OPCODES = (
    "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "SEND", "SEND_WITH_IMM", "RDMA_READ",
    "ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD", "", "", "SEND_WITH_INV",
)  # fmt: skip
"""enum ibv_wr_opcode."""
NO_RANK = -1
"""Of a process without one, or whose rank is not known."""
_EVENTS = {
    program_losses.RETRANSMIT: EVENTS.index("retransmit"),
    program_losses.TIMEOUT: EVENTS.index("timeout"),
    program_losses.NAK_SENT: EVENTS.index("nak_sent"),
    program_losses.NAK_RECEIVED: EVENTS.index("nak_received"),
}
_COLUMNS = {
    "source": object, "destination": object, "program": object, "opcode": object,
    "process": np.int64, "rank": np.int32, "qpn": np.uint32, "peer_qpn": np.uint32,
    "message": np.uint64, "bytes": np.uint64, "psn": np.uint32, "last_psn": np.uint32,
    "status": np.int16, "posted_ns": np.int64, "sent_ns": np.int64, "completed_ns": np.int64,
}  # fmt: skip


class ProgramLosses(ProgramFiles):
    kind = "losses"

    def __init__(self, plan: Plan, hosts: Sequence[str], folder: Path) -> None:
        super().__init__(hosts, folder)
        nodes = plan.hosts
        self._addresses = {node.name: _ipv4(node.ports[0]) for node in nodes}
        self._names = {_ipv4(port): node.name for node in nodes for port in node.ports}
        self._of_gid = {
            int(gid): _ipv4(port) for node in nodes for port in node.ports for gid in gids(port)
        }

    def end(
        self, begun_ns: int, processes: Mapping[str, Sequence[OfProcess]]
    ) -> tuple[Columns, Recorded, int]:
        """Columns of program_messages, what makes recovery.parquet, and how much is not recorded.

        `begun_ns`: of the run, CLOCK_MONOTONIC. `processes`: by host.
        """
        ranks = {
            one.snapshot.pid: one.snapshot.rank for found in processes.values() for one in found
        }
        rows: list[dict[str, Any]] = []
        records: list[Losses] = []
        pairs: dict[tuple[int, int], QueuePair] = {}
        left_out = 0
        for host, pid, program, data in self._files():
            found = program_losses.parse(data)
            here = self._addresses[host]
            left_out += int(found[found["kind"] == program_losses.LEFT_OUT]["number"].sum())
            rank = ranks.get(pid)
            process = {
                "source": host,
                "process": pid,
                "program": program,
                "rank": NO_RANK if rank is None else rank,
            }
            rows += [
                {**process, **self._row(each, begun_ns)}
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
