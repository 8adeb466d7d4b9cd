# SPDX-License-Identifier: GPL-2.0-or-later
"""Stories of messages of unmodified programs: what the RNICs of their processes recorded.

A message is a work request of an RC queue pair. It is recorded if it was outstanding while its
queue pair repaired a loss, or if it failed (program_messages.parquet). Packets name no message:
their queue pair, their PSN and their time tell which one. The cut of a message's time is the
project's.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from softroce_lab import units
from softroce_lab.errors import UserError, ibv_wc_status
from softroce_lab.experiment.hosts.program_records import NO_RANK
from softroce_lab.experiment.hosts.program_words import UNSEEN, process_name
from softroce_lab.results import fabric, story
from softroce_lab.results.incidents import NO_MESSAGE, PSNS, Incident, What, rows_of
from softroce_lab.results.recorded import Columns, Recorded, Run, name_of
from softroce_lab.results.story import Part, Story

TABLE = "program_messages"
_RESULTS = ("RDMA_READ", "ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD")
_SUCCESS = int(ibv_wc_status.IBV_WC_SUCCESS)

_Ends = tuple[str, str, int]  # sender, receiver, and its queue pair


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramStory(Story):
    """Of a work request."""

    program: str = ""
    process: int = 0
    rank: int | None = None  # None: it has none, or it is not known
    opcode: str = ""
    qpn: int = 0
    peer_qpn: int = 0
    psns: tuple[int, int] | None = None  # None: not all of its packets ever left
    held_ns: int | None = None  # since all earlier messages of its queue pair were over
    lost_meanwhile: int = 0  # transmissions of other messages of its queue pair

    def document(self) -> dict[str, Any]:
        psn, last_psn = self.psns or (None, None)
        return {
            **Story.document(self),
            "program": self.program,
            "process": self.process,
            "rank": self.rank,
            "opcode": self.opcode,
            "qpn": self.qpn,
            "peer_qpn": self.peer_qpn,
            "psn": psn,
            "last_psn": last_psn,
            "held_ns": self.held_ns,
            "lost_meanwhile": self.lost_meanwhile,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class QueuePairLosses:
    """What a queue pair lost of its own messages, as far as they are recorded."""

    run: str
    source: str
    destination: str
    program: str
    process: int
    rank: int | None
    qpn: int
    peer_qpn: int
    messages: int  # recorded
    lost: int  # transmissions
    sent_again: int
    failed: int  # messages

    def document(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @property
    def name(self) -> str:
        """Program, process, and queue pairs."""
        who = process_name(self.process, self.rank)
        ends = f"{self.source}->{self.destination}"
        return f"{self.program} ({who}), {ends}, queue pair {self.qpn:#x} to {self.peer_qpn:#x}"


class _Connection:
    """One direction of a queue pair: which message a PSN is of at a time."""

    def __init__(self, table: Columns, rows: Sequence[int]) -> None:
        """`rows`: in the order of posts, which is that of completions."""
        self._rows = rows
        self._posted = [int(table["posted_ns"][row]) for row in rows]
        ends = table["completed_ns"]
        never = np.iinfo(np.int64).max
        self._ended = [int(ends[row]) if ends[row] >= 0 else never for row in rows]
        self._first = [int(table["psn"][row]) for row in rows]
        self._packets = [_packets(table, row) for row in rows]

    def outstanding(self, time_ns: int) -> range:
        """Of the rows."""
        return range(
            bisect.bisect_left(self._ended, time_ns), bisect.bisect_right(self._posted, time_ns)
        )

    def find(self, psn: int, time_ns: int) -> tuple[int, int]:
        """Row and packet; (NO_MESSAGE, 0)."""
        for at in self.outstanding(time_ns):
            packet = (psn - self._first[at]) % PSNS
            if packet < self._packets[at]:
                return self._rows[at], packet
        return NO_MESSAGE, 0

    def spans(self, psn: int, last_psn: int, time_ns: int) -> Iterator[tuple[int, int, int]]:
        """The messages of a range of PSNs: row, and its packets from and to in each."""
        length = (last_psn - psn) % PSNS + 1
        for at in self.outstanding(time_ns):
            packets = self._packets[at]
            ahead = (self._first[at] - psn + PSNS // 2) % PSNS - PSNS // 2
            first, last = max(0, -ahead), min(packets, length - ahead) - 1
            if first <= last:
                yield self._rows[at], first, last


def _rank(table: Columns, row: int) -> int | None:
    """Older tables have none."""
    rank = int(table["rank"][row]) if "rank" in table else NO_RANK
    return None if rank == NO_RANK else rank


def _packets(table: Columns, row: int) -> int:
    """0: not all of them ever left."""
    if table["sent_ns"][row] < 0:
        return 0
    return (int(table["last_psn"][row]) - int(table["psn"][row])) % PSNS + 1


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramRun:
    """A run of programs, with all that is known of its messages."""

    name: str
    table: Columns
    of_message: Mapping[int, Sequence[Incident]]  # by row, in the order of time
    losses: Mapping[tuple[str, int], Sequence[int]]  # times, by host and queue pair, sorted
    lost: int  # packets of the run that rules took
    not_recorded: int

    @classmethod
    def of(cls, recorded: Recorded, run: Run) -> ProgramRun:
        """UserError if a table is missing."""
        if "demo" in recorded.manifest:
            what = f"{name_of(run)} has no messages: {UNSEEN}"
            raise UserError(what, hint="lab results show has its changes of state")
        if not recorded.has(TABLE) or not recorded.has("recovery"):
            what = f"{name_of(run)}: what its programs' RNICs did about losses was not recorded"
            raise UserError(what, hint="this version of lab run records it: run it anew")
        table = recorded.table(TABLE, run)
        events = recorded.table("events", run)
        hosts = fabric.addresses(recorded)
        found = _incidents(table, hosts, events, recorded.table("recovery", run))
        of_message: dict[int, list[Incident]] = {}
        for each in sorted(found, key=lambda incident: incident.time_ns):
            if each.message != NO_MESSAGE:
                of_message.setdefault(each.message, []).append(each)
        drops = (events["source"] == "injector") & (events["event"] == "drop")
        missed = int(run.get("recoveries_not_recorded") or 0)
        losses = _losses(table, of_message)
        return cls(name_of(run), table, of_message, losses, int(drops.sum()), missed)

    def story(self, row: int) -> ProgramStory:
        """Of the message in this row."""
        of = self.table
        found = self.of_message.get(row, ())
        status, packets = int(of["status"][row]), _packets(of, row)
        posted_ns, completed_ns = int(of["posted_ns"][row]), int(of["completed_ns"][row])
        decided = [each for each in found if each.what is What.DECISION]
        drops = sum(each.what is What.DROP and each.kind in story.DATA for each in found)
        delivered = status == _SUCCESS
        first_ns = self._first_ns(row)
        unknown = ("first_sent_ns", "first_received_ns", "received_ns")
        return ProgramStory(
            run=self.name,
            name=self._message(row),
            row=row,
            source=str(of["source"][row]),
            destination=str(of["destination"][row]),
            size_bytes=int(of["bytes"][row]),
            packets=packets,
            status=story.ended(status),
            times={
                "posted_ns": posted_ns,
                **dict.fromkeys(unknown, -1),
                "completed_ns": completed_ns,
            },
            incidents=list(found),
            sent_again=sum(each.last - each.first + 1 for each in decided),
            last_packet=None,
            parts=list(_parts(posted_ns, first_ns, completed_ns, found)) if delivered else [],
            program=str(of["program"][row]),
            process=int(of["process"][row]),
            rank=_rank(of, row),
            opcode=str(of["opcode"][row]),
            qpn=int(of["qpn"][row]),
            peer_qpn=int(of["peer_qpn"][row]),
            psns=(int(of["psn"][row]), int(of["last_psn"][row])) if packets else None,
            held_ns=completed_ns - first_ns if delivered else None,
            lost_meanwhile=self._lost_between(row, posted_ns, completed_ns) - drops,
        )

    def _first_ns(self, row: int) -> int:
        """From when on it was the oldest of its queue pair, whose messages end in order."""
        of = self.table
        before = (of["source"] == of["source"][row]) & (of["qpn"] == of["qpn"][row])
        before &= (of["process"] == of["process"][row]) & (of["message"] < of["message"][row])
        ended_ns = of["completed_ns"][before]
        return max(int(of["posted_ns"][row]), int(ended_ns.max(initial=0)))

    def _lost_between(self, row: int, begin_ns: int, end_ns: int) -> int:
        """Transmissions of its queue pair."""
        times = self.losses.get((str(self.table["source"][row]), int(self.table["qpn"][row])), ())
        until = bisect.bisect_right(times, end_ns) if end_ns >= 0 else len(times)
        return until - bisect.bisect_left(times, begin_ns)

    def _message(self, row: int) -> str:
        """`h1->h2:4660/17`: ends, queue pair, how many messages it had before."""
        of = self.table
        ends = f"{of['source'][row]}->{of['destination'][row]}"
        return f"{ends}:{of['qpn'][row]}/{of['message'][row]}"

    def by_queue_pair(self) -> list[QueuePairLosses]:
        """Those with a recorded message, the one that lost most first."""
        of = self.table
        rows: dict[tuple[Any, ...], list[int]] = {}
        names = ("source", "destination", "program", "process", "qpn", "peer_qpn")
        for row, key in enumerate(rows_of(of, *names)):
            rows.setdefault(key, []).append(row)
        found = []
        for (source, destination, program, process, qpn, peer_qpn), mine in rows.items():
            incidents = [each for row in mine for each in self.of_message.get(row, ())]
            decided = [each for each in incidents if each.what is What.DECISION]
            found.append(QueuePairLosses(
                self.name, source, destination, program, process, _rank(of, mine[0]), qpn,
                peer_qpn, messages=len(mine),
                lost=sum(each.what is What.DROP for each in incidents),
                sent_again=sum(each.last - each.first + 1 for each in decided),
                failed=int((of["status"][mine] != _SUCCESS).sum()),
            ))  # fmt: skip
        return sorted(found, key=lambda each: -each.lost)

    def worst(self, count: int) -> list[int]:
        """The rows of messages that held up their queue pairs longest; those that failed first."""
        of = self.table
        held = np.array([of["completed_ns"][row] - self._first_ns(row) for row in range(len(self))])
        held[of["status"] != _SUCCESS] = np.iinfo(np.int64).max
        return [int(row) for row in np.argsort(-held, kind="stable")[:count]]

    def __len__(self) -> int:
        return len(self.table["bytes"])

    def named(self, text: str, where: str) -> int:
        """The row of `h1->h2:4660/17`. UserError. `where`: the run, as a command line names it."""
        ends, _, key = text.rpartition(":")
        rows = [
            row
            for row in range(len(self))
            if self._message(row) == text or (not ends and self._message(row).endswith(f":{key}"))
        ]
        if len(rows) == 1:
            return rows[0]
        hint = f"lab results explain {where} --worst 5 names some: SOURCE->DESTINATION:QPN/NUMBER"
        raise UserError(f"no message {text!r} is recorded of {self.name}", hint=hint)

    def loss_words(self) -> str:
        """How much was lost, and of how many messages the run knows."""
        lost = units.format_count(self.lost, "packet")
        recorded = units.format_count(len(self), "message")
        failed = int((self.table["status"] != _SUCCESS).sum())
        found = (
            f"In all of {self.name}: {lost} lost, ACKs and NAKs among them; {recorded} outstanding "
            f"while a loss was repaired, or failed, of which {failed:,} failed."
        )
        if self.not_recorded:
            found += f" Records that had no room: {self.not_recorded:,}."
        return found


def _incidents(
    table: Columns, hosts: Mapping[str, str], events: Columns, recoveries: Columns
) -> Iterator[Incident]:
    """What rules took, then what queue pairs did about it; of some packets no message is known."""
    rows: dict[_Ends, list[int]] = {}
    backward: dict[_Ends, _Ends] = {}
    names: tuple[str, ...] = ("source", "destination", "qpn", "peer_qpn")
    for row, (source, destination, qpn, peer_qpn) in enumerate(rows_of(table, *names)):
        ends = source, destination, peer_qpn
        rows.setdefault(ends, []).append(row)
        backward[destination, source, qpn] = ends
    connections = {ends: _Connection(table, of) for ends, of in rows.items()}
    nothing = _Connection(table, ())
    names = ("time_ns", "source", "event", "link", "rule", "src", "dst", "qpn", "psn")
    for time_ns, source, event, link, rule, src, dst, qpn, psn in rows_of(events, *names):
        if source != "injector" or event != "drop":
            continue
        ends, kind = (hosts.get(src, src), hosts.get(dst, dst), qpn), "other"
        row, packet = connections.get(ends, nothing).find(psn, time_ns)
        if row == NO_MESSAGE:
            there = backward.get(ends, ends)
            row, packet = connections.get(there, nothing).find(psn, time_ns)
            kind = "response" if row >= 0 and table["opcode"][row] in _RESULTS else "control"
        yield Incident(time_ns, What.DROP, row, packet, packet, 0, link, rule, kind)
    names = ("time_ns", "host", "event", "reason", "src", "dst", "qpn", "psn", "last_psn")
    for time_ns, host, event, reason, src, dst, qpn, psn, last_psn in rows_of(recoveries, *names):
        connection = connections.get((hosts.get(src, src), hosts.get(dst, dst), qpn), nothing)
        if event == "retransmit":
            for row, first, last in connection.spans(psn, last_psn, time_ns):
                yield Incident(time_ns, What.DECISION, row, first, last, 0, host, reason, "")
            continue
        row, packet = connection.find(psn, time_ns)
        what = What.TIMEOUT if event == "timeout" else What.CONTROL
        why = {"nak_sent": "nak"}.get(event, event)
        yield Incident(time_ns, what, row, packet, packet, 0, host, why, "")


def _losses(
    table: Columns, of_message: Mapping[int, Sequence[Incident]]
) -> dict[tuple[str, int], list[int]]:
    """When transmissions with data were lost, by host and queue pair."""
    found: dict[tuple[str, int], list[int]] = {}
    for row, incidents in of_message.items():
        ends = str(table["source"][row]), int(table["qpn"][row])
        lost = [each.time_ns for each in incidents if _is_loss(each)]
        found.setdefault(ends, []).extend(lost)
    return {ends: sorted(times) for ends, times in found.items()}


def _is_loss(incident: Incident) -> bool:
    return incident.what is What.DROP and incident.kind in story.DATA


def _parts(
    posted_ns: int, first_ns: int, completed_ns: int, found: Sequence[Incident]
) -> Iterator[Part]:
    """Consecutive, from the post to the completion. `first_ns`: the messages before are over."""
    cuts: list[tuple[str, int]] = []
    lost = decided = False
    for each in found:
        if _is_loss(each) and (not lost or decided):
            cuts.append(("retransmission, lost again" if lost else "until the loss", each.time_ns))
            lost, decided = True, False
        elif each.what is What.DECISION and lost and not decided:
            cuts.append((f"until it was to be sent again ({each.why})", each.time_ns))
            decided = True
    waited_ns = min([first_ns, *(at for _, at in cuts)])
    ends = [("behind earlier messages", waited_ns), *cuts]
    ends.append(("until its acknowledgement" if lost else "rest of the transfer", completed_ns))
    begin = posted_ns
    for title, at in ends:
        end = min(at, completed_ns)
        if end > begin:
            yield Part(title, begin, end)
            begin = end


def queue_pair_words(pairs: Sequence[QueuePairLosses], most: int = 8) -> list[str]:
    """A line for each queue pair that lost something, at most so many."""
    lossy = [each for each in pairs if each.lost or each.failed]
    lines = [
        f"{each.name}: {units.format_count(each.lost, 'transmission')} lost, "
        f"{each.sent_again:,} to be sent again, {each.failed:,} of "
        f"{units.format_count(each.messages, 'recorded message')} failed."
        for each in lossy[:most]
    ]
    rest = [f"{units.format_count(len(lossy) - most, 'queue pair')} more."]
    return lines + (rest if len(lossy) > most else [])


def words(tale: ProgramStory) -> list[str]:
    """The story in sentences."""
    size = units.format_bytes(tale.size_bytes)
    of = f" in {units.format_count(tale.packets, 'packet')}" if tale.packets else ""
    taken = tale.taken_ns
    end = tale.status if taken is None else f"took {units.format_duration(taken)}"
    psns = "not all of its packets ever left"
    if tale.psns is not None:
        first, last = tale.psns
        psns = f"PSN {first}" if first == last else f"PSNs {first} to {last}"
    lost = units.format_count(tale.count(What.DROP), "transmission")
    lines = [
        f"{tale.run}: {tale.opcode} {tale.name}, {size}{of}, {end}.",
        f"{tale.program} ({process_name(tale.process, tale.rank)}), "
        f"queue pair {tale.qpn:#x} to {tale.peer_qpn:#x}, {psns}.",
        f"{lost} lost, {tale.sent_again:,} to be sent again. Of other messages of the queue pair "
        f"{tale.lost_meanwhile:,} were lost meanwhile.",
    ]
    return lines + (story.parts_words(tale) if taken else [])
