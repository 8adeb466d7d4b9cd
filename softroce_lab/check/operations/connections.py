# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations of a capture by connection: requests in one direction, their results in the other.

A *connection* here is one direction of a queue pair: what one requester asks of one responder. The
header of a request names the responder's queue pair and the requester's first PSN, that of a result
the requester's queue pair and the same PSN. No packet names both queue pairs. If several pairs of
queue pairs use one PSN, results belong to the requests that have the same headers.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from softroce_lab.check.evidence import Evidence, once
from softroce_lab.check.striped.losses import Understood, understood
from softroce_lab.check.striped.messages import NEVER, Places, Stream, Striped
from softroce_lab.structs import enumerators
from softroce_lab.telemetry.packets import Has

_CLASSES, _VERBS = enumerators("lab_operation_class"), enumerators("lab_verb")
REQUEST, RESULT = _CLASSES["request"], _CLASSES["result"]
READ, ATOMICS = _VERBS["read"], (_VERBS["compare_swap"], _VERBS["fetch_add"])
RETURNING = (READ, *ATOMICS)
"""Verbs of operations that have a result."""
TAKING_RECEIVES = tuple(
    _VERBS[name]
    for name in ("write_with_immediate", "send", "send_with_immediate", "send_with_invalidate")
)
_NAMES = {number: name.replace("_", " ") for name, number in _VERBS.items()}
_SOLICITED = 0x80
_HALF_OF_IDS = 1 << 31
_END = tuple[int, int, int]
"""Stream, queue pair that the message is for, first PSN of the requester."""


@dataclasses.dataclass(frozen=True, slots=True)
class Operation:
    """A message of an operation, with the header of its first packet."""

    index: int  # of Striped.messages
    number: int
    verb: int  # without the bit for a solicited event
    receive: int  # number of its receive; of a READ or an atomic, how many are outstanding
    remote_address: int
    rkey: int
    argument: int

    @property
    def name(self) -> str:
        return f"{_NAMES.get(self.verb, f'verb {self.verb}')} {self.number}"

    @property
    def identity(self) -> tuple[int, ...]:
        """What a request and its result have in common."""
        return (
            self.number, self.verb, self.receive, self.remote_address, self.rkey, self.argument,
        )  # fmt: skip


@dataclasses.dataclass(slots=True)
class Connection:
    """The requests of one requester to one responder, in the order of numbers, and the results."""

    stream: int
    qp: int  # the responder's
    psn: int
    requests: list[Operation]
    results: list[Operation] | None = None  # None: whose results they are is not known
    requester_qp: int | None = None  # None: no result tells it

    @property
    def name(self) -> str:
        return f"QP {self.qp:#x}"

    def by_number(self) -> dict[int, Operation]:
        """The request of each number, the first one if there are several."""
        return {each.number: each for each in reversed(self.requests)}


class Operations:
    """All operations of a capture."""

    def __init__(self, lab: Understood) -> None:
        self.lab, self.view = lab, lab.view
        self.connections: list[Connection] = []
        self.strays: list[Operation] = []  # results without a connection in the capture
        self.connection_of: dict[int, Connection] = {}  # by message, requests and results
        requests, results = self._by_end(REQUEST), self._by_end(RESULT)
        self._by_request: dict[_END, list[Connection]] = {}
        for end, operations in requests.items():
            lives = [Connection(*end, part) for part in _lives(operations)]
            self._by_request[end] = lives
            self.connections += lives
        self._give_results(results)
        for connection in self.connections:
            for operation in (*connection.requests, *(connection.results or ())):
                self.connection_of[operation.index] = connection

    # ---------------------------------------------------------------- finding

    def _by_end(self, wanted: int) -> dict[_END, list[Operation]]:
        """Messages of a class, by whom they are for, in the order in which they began."""
        view = self.view
        begins = view.messages["begin"]
        first = view.data[view.begins[begins]]
        messages = view.messages
        mine = view.column("has", first) & Has.OPERATION != 0
        which = np.flatnonzero(mine & (messages["operation"] >> 8 == wanted))
        of_operation = ("verb", "receive", "remote_address", "rkey", "argument", "connection")
        of_message = ("stream", "operation", "step", "message", "id")
        columns = [
            *(messages[name][which].tolist() for name in of_message),
            *(view.column(f"lab_{name}", first[which]).tolist() for name in of_operation),
        ]
        found: dict[_END, list[tuple[int, Operation]]] = collections.defaultdict(list)
        for index, *values in zip(which.tolist(), *columns, strict=True):
            stream, operation, step, number, id_, verb, *header, psn = values
            one = Operation(index, number, verb & ~_SOLICITED, *header)
            found[stream, (operation & 0xFF) << 16 | step, psn].append((id_, one))
        return {end: _in_order_of_ids(each) for end, each in found.items()}

    def _give_results(self, results: dict[_END, list[Operation]]) -> None:
        """Each result to the connection of its request."""
        requesters: dict[tuple[int, int], list[_END]] = collections.defaultdict(list)
        for end in results:
            back = self.view.streams[end[0]].back
            if back is not None:
                requesters[back, end[2]].append(end)
        asked: dict[tuple[int, int], list[_END]] = collections.defaultdict(list)
        for end in self._by_request:
            asked[end[0], end[2]].append(end)
        for (stream, psn), askers in asked.items():
            answers = requesters.pop((stream, psn), [])
            for asker, answer in _pairs(self._by_request, askers, results, answers):
                lives = self._by_request[asker]
                self._share_out(lives, results[answer] if answer else [])
                for life in lives:
                    life.requester_qp = answer[1] if answer else None
        for ends in requesters.values():
            self.strays += [one for end in ends for one in results[end]]

    def _share_out(self, lives: list[Connection], results: list[Operation]) -> None:
        """The results of a queue pair whose numbers begin anew to each life of it."""
        first_at = self.view.messages["first_at"]
        begun = [int(first_at[each.requests[0].index]) for each in lives]
        shares: list[list[Operation]] = [[] for _ in lives]
        for result in results:
            newest = int(np.searchsorted(begun, int(first_at[result.index]))) - 1
            shares[max(newest, 0)].append(result)
        for life, share in zip(lives, shares, strict=True):
            life.results = share

    # ---------------------------------------------------------------- for the rules

    def stream(self, connection: Connection) -> Stream:
        """The stream of the requests."""
        return self.view.streams[connection.stream]

    def answers(self, connection: Connection) -> Stream | None:
        """The stream of the results."""
        back = self.stream(connection).back
        return None if back is None else self.view.streams[back]

    def began_in_view(self, connection: Connection) -> bool:
        """Whether the capture has the connection from its first request on.

        The first message between two processes has the id 0.
        """
        return self.stream_began_in_view(connection.stream)

    def stream_began_in_view(self, stream: int) -> bool:
        """Whether the capture has the first message of a stream."""
        first = self.view.find_message(stream, 0)
        return first is not None and bool(self.view.messages["begun"][first])

    def began(self, operation: Operation) -> bool:
        """Whether a message began when the capture was running."""
        return bool(self.view.messages["begun"][operation.index])

    def first_at(self, operation: Operation) -> int:
        """The place where a message was first seen."""
        return int(self.view.messages["first_at"][operation.index])

    def frame(self, operation: Operation) -> list[int]:
        """The number of the frame with which a message was first seen."""
        return self.view.frames(self.first_at(operation))


def _in_order_of_ids(found: list[tuple[int, Operation]]) -> list[Operation]:
    """Messages begin in the order of their ids, which are modulo 2^32."""
    origin = found[0][0] - _HALF_OF_IDS
    return [one for _, one in sorted(found, key=lambda each: (each[0] - origin) % (1 << 32))]


def _lives(requests: list[Operation]) -> Iterator[list[Operation]]:
    """The uses of a queue pair one after the other: each begins with the number 0 again."""
    begins = [at for at, each in enumerate(requests) if each.number == 0 and at > 0]
    for begin, end in zip([0, *begins], [*begins, len(requests)], strict=True):
        yield sorted(requests[begin:end], key=lambda each: each.number)


def _pairs(
    lives: dict[_END, list[Connection]],
    askers: list[_END],
    results: dict[_END, list[Operation]],
    answers: list[_END],
) -> Iterator[tuple[_END, _END | None]]:
    """The results that belong to each queue pair's requests; of some pairs that is not known."""
    if len(askers) == 1 and len(answers) <= 1:
        yield askers[0], answers[0] if answers else None
        return
    asked = {
        end: {each.identity for life in lives[end] for each in life.requests} for end in askers
    }
    votes = collections.Counter(
        {
            (asker, answer): sum(each.identity in asked[asker] for each in results[answer])
            for asker in askers
            for answer in answers
        }
    )
    taken: set[_END] = set()
    for (asker, answer), count in votes.most_common():
        rivals = [votes[asker, each] for each in answers if each not in taken and each != answer]
        rivals += [votes[each, answer] for each in askers if each not in taken and each != asker]
        if count and not {asker, answer} & taken and count > max(rivals, default=0):
            taken |= {asker, answer}
            yield asker, answer
    if taken >= set(answers):  # the others have no results
        yield from ((asker, None) for asker in askers if asker not in taken)


@once
def operations(evidence: Evidence) -> Operations:
    """The operations of a capture, found once for all rules."""
    return Operations(understood(evidence))


def whole_at(view: Striped) -> Places:
    """Where each message was whole at its receiver's link, at the earliest; NEVER: it was not.

    Any packets suffice of a message with a code, as many as it has packets of data.
    """
    messages, of, arrived = view.messages, view.packet_message, view.packet_arrived_at
    counts = np.maximum(messages["count"].astype(np.int64), 1)
    here = (arrived != NEVER) & view.packet_counts
    order = np.lexsort((arrived, of))
    order = order[here[order]]
    begins = np.searchsorted(of[order], np.arange(len(messages)))
    have = np.bincount(of[order], minlength=len(messages))
    whole = np.full(len(messages), NEVER, dtype=np.int64)
    enough = have >= counts
    whole[enough] = arrived[order][begins[enough] + counts[enough] - 1]
    return _with_parity(view, whole, here)


def _with_parity(view: Striped, whole: Places, here: npt.NDArray[np.bool_]) -> Places:
    """The same, if parity of csa_ud restored what a message's last packets lacked."""
    messages, of, arrived = view.messages, view.packet_message, view.packet_arrived_at
    index = view.transmissions["index"][view.packet_begins]
    for number in np.flatnonzero(view.restored_at != NEVER).tolist():
        before = max(int(messages["count"][number]) - int(messages["block"][number]), 0)
        begin, end = np.searchsorted(of, [number, number + 1])
        mine = here[begin:end] & (index[begin:end] < before)
        if int(mine.sum()) == before:
            last_at = int(arrived[begin:end][mine].max(initial=0))
            at = max(int(view.restored_at[number]), last_at)
            whole[number] = min(int(whole[number]), at)
    return whole
