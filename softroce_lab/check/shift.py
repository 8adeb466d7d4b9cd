# SPDX-License-Identifier: GPL-2.0-or-later
"""Queue pairs with a backup on another NIC: exactly once over both of them.

The MOVE of an end names its two queue pairs, and counts the notifications that it has executed on
the one that it leaves. Up to the counted one all requests were executed there, as RC executes in
order. None of them may come again over the other NIC; and no atomic that may have been executed.
Requests differ by their first packets: operation, address, length, payload and immediate.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from softroce_lab._native import shift
from softroce_lab.check import opcodes
from softroce_lab.check.connections import unwrapped
from softroce_lab.check.evidence import Evidence
from softroce_lab.check.flows import Flow, flows
from softroce_lab.check.opcodes import Family
from softroce_lab.check.verdict import Rules, Suite, Tally
from softroce_lab.faults.opcodes import OPCODES
from softroce_lab.telemetry.packets import Has

RULES = Rules()

_CONTROL = OPCODES["RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE"]
_END_OF_TIME = 1 << 62


class _Move(NamedTuple):
    """An end has moved; `place` in time, `number` of the frame."""

    epoch: int
    received: int
    place: int
    number: int


@dataclasses.dataclass(frozen=True)
class _End:
    """Where requests to one end of a connection go, by path."""

    targets: tuple[tuple[bytes, int], tuple[bytes, int]]  # GID and queue pair
    moves: tuple[_Move, ...]


class _Request(NamedTuple):
    """A request by its first packet."""

    identity: tuple[int, ...]
    family: int
    notifies: bool
    number: int  # of the first frame
    place: int
    whole: bool  # its payload was captured, or it has none


@RULES.rule(
    "shift.once",
    "what the peer counted as executed is not sent again over the other NIC",
    "docs/explanation/shift.md, The trilemma",
)
@RULES.rule(
    "shift.atomic",
    "an atomic of which a packet has left is not sent again over the other NIC",
    "docs/explanation/shift.md, The trilemma",
)
@RULES.rule(
    "shift.count",
    "the count of executed notifications does not go back, and does not exceed those sent",
    "docs/explanation/shift.md, States",
)
def check(evidence: Evidence, once: Tally, atomic: Tally, count: Tally) -> None:
    for end in _ends(evidence):
        paths = [_requests(evidence, *target) for target in end.targets]
        before = _Move(0, 0, -1, 0)
        for at, move in enumerate(end.moves):
            later = [each.place for each in end.moves[at + 1 : at + 3]] + [_END_OF_TIME] * 2
            old = _between(paths[(move.epoch - 1) & 1], before.place, later[0])
            new = _between(paths[move.epoch & 1], move.place, later[1])
            if move.epoch == before.epoch + 1:
                _check_move((once, atomic, count), before, move, old, new)
            else:
                for tally in (once, atomic, count):
                    tally.doubts("the capture began after an earlier move, or missed one")
            before = move


# ---------------------------------------------------------------- who moved


def _ends(evidence: Evidence) -> list[_End]:
    """The ends whose MOVE messages were captured."""
    packets = evidence.packets
    size = packets["payload_bytes"] == shift.MESSAGE_BYTES
    rows = evidence.in_time[(evidence.is_roce & size & (packets["opcode"] == _CONTROL))[
        evidence.in_time
    ]]  # fmt: skip
    found: dict[tuple[bytes, int, bytes, int], dict[int, _Move]] = collections.defaultdict(dict)
    for row in rows.tolist():
        number = int(packets["number"][row])
        control = shift.read_message(evidence.capture.payload(number))
        if control is None or control[0].kind is not shift.Kind.MOVE:
            continue
        message, _, gid, default_qp, backup_qp = control
        end = (gid, default_qp, bytes(packets["source"][row]), backup_qp)
        place = int(evidence.place_in_time[row])
        found[end].setdefault(message.epoch, _Move(message.epoch, message.received, place, number))
    return [
        _End(((gid, qp), (other, twin)), tuple(moves[epoch] for epoch in sorted(moves)))
        for (gid, qp, other, twin), moves in found.items()
    ]


# ---------------------------------------------------------------- what was asked of it


def _requests(evidence: Evidence, gid: bytes, qp: int) -> list[_Request]:
    """All requests to a queue pair, in the order in which they were sent first."""
    found = [
        request
        for flow in flows(evidence)
        if (flow.destination, flow.qp, flow.service) == (gid, qp, opcodes.RC)
        for request in _of_flow(evidence, flow)
    ]
    return sorted(found, key=lambda each: each.place)


_COLUMNS = ("opcode", "remote_address", "dma_length", "payload_bytes", "payload_hash", "immediate",
            "swap_or_add", "compare", "has", "number")  # fmt: skip


def _of_flow(evidence: Evidence, flow: Flow) -> Iterator[_Request]:
    packets = evidence.packets
    rows = flow.sent[~opcodes.IS_RESPONSE[packets["opcode"][flow.sent]]]
    if not len(rows):
        return
    _, first = np.unique(unwrapped(packets["psn"][rows]), return_index=True)
    rows = rows[np.sort(first)]  # each PSN once: what follows is no retransmission
    begun: _Request | None = None
    places = evidence.place_in_time[rows].tolist()
    for place, values in zip(places, evidence.rows(rows, _COLUMNS), strict=True):
        opcode, address, length, payload, digest, immediate, swap, compare, has, number = values
        if opcodes.BEGINS[opcode]:
            if begun is not None:
                yield begun
            whole = payload == 0 or bool(has & Has.PAYLOAD_HASH)
            identity = (opcode, address, length, payload, digest, immediate, swap, compare)
            family = int(opcodes.FAMILY[opcode])
            begun = _Request(identity, family, False, number, place, whole)
        if begun is not None and opcodes.ENDS[opcode]:
            notifies = begun.family == Family.SEND or bool(opcodes.IMMEDIATE[opcode])
            done = begun._replace(notifies=notifies)
            begun = None
            if not _is_the_lab_s(done):
                yield done
    if begun is not None:
        yield begun


def _is_the_lab_s(request: _Request) -> bool:
    """A probe or a fence: a WRITE of nothing to nowhere."""
    _, address, length, *_ = request.identity
    return request.family == Family.WRITE and not request.notifies and address == length == 0


def _between(requests: Iterable[_Request], since: int, until: int) -> list[_Request]:
    return [each for each in requests if since < each.place < until]


# ---------------------------------------------------------------- whether it came again


def _check_move(
    tallies: tuple[Tally, Tally, Tally],
    before: _Move,
    move: _Move,
    old: Sequence[_Request],
    new: Sequence[_Request],
) -> None:
    once, atomic, count = tallies
    executed = move.received - before.received
    notifying = [at for at, each in enumerate(old) if each.notifies]
    if executed < 0:
        text = f"{before.received} notifications executed, then {move.received}"
        count.failed([before.number, move.number], text)
        return
    if executed > len(notifying):
        count.doubts("the capture does not have all requests of an epoch")
        return
    count.passed()
    done = notifying[executed - 1] + 1 if executed else 0
    if not all(each.whole for each in (*old, *new)):
        for tally in (once, atomic):
            tally.doubts("the snap length cut payloads off: requests look alike")
        return
    begins = _overlap(old, new)
    if begins is None:
        _pass(once, atomic, old)
    elif len({each.identity for each in old}) < len(old):
        for tally in (once, atomic):
            tally.doubts("the program sends the same several times")
    else:
        _check_again(once, atomic, old, new, begins, done)


def _overlap(old: Sequence[_Request], new: Sequence[_Request]) -> int | None:
    """From where on all of `old` is what `new` begins with; None: nothing is."""
    ours, theirs = ([each.identity for each in part] for part in (old, new))
    for begin in range(max(len(ours) - len(theirs), 0), len(ours)):
        # The first one alone decides nearly always: copies of the rest would take quadratic time.
        if ours[begin] == theirs[0] and ours[begin:] == theirs[: len(ours) - begin]:
            return begin
    return None


def _check_again(
    once: Tally,
    atomic: Tally,
    old: Sequence[_Request],
    new: Sequence[_Request],
    begins: int,
    done: int,
) -> None:
    """`old[begins:]` was sent again; the peer had executed `old[:done]`."""
    for at in range(begins, len(old)):
        again = [old[at].number, new[at - begins].number]
        if at < done:
            once.failed(again, "executed over one NIC, and sent again over the other")
        else:
            once.passed()
        if old[at].family == Family.ATOMIC:
            atomic.failed(again, "an atomic that may have been executed is sent again")
    _pass(once, atomic, old[:begins])


def _pass(once: Tally, atomic: Tally, requests: Iterable[_Request]) -> None:
    for each in requests:
        once.passed()
        if each.family == Family.ATOMIC:
            atomic.passed()


SUITE = Suite.of_evidence(RULES)
