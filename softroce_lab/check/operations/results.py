# SPDX-License-Identifier: GPL-2.0-or-later
"""What responders return: results of READs and atomics, and refusals."""

from __future__ import annotations

import numpy as np

from softroce_lab.check.operations.connections import (
    ATOMICS,
    READ,
    RESULT,
    RETURNING,
    Connection,
    Operation,
    Operations,
    whole_at,
)
from softroce_lab.check.operations.refusals import Refusals
from softroce_lab.check.operations.requests import WIRE, what_arrived_is_doubtful
from softroce_lab.check.striped.controls import ControlMessage
from softroce_lab.check.striped.messages import NEVER
from softroce_lab.check.verdict import Rules, Tally
from softroce_lab.telemetry.packets import Has
from softroce_lab.transports.control import Refused

_ATOMIC_BYTES = 8
_UNKNOWN = "which queue pair gets the results is not known"
RULES = Rules()


@RULES.rule(
    "op.result_after",
    "a result begins when all packets of its request, and of all requests before, are at the "
    "responder",
    "IBA 9.5; " + WIRE,
)
def _after(of: Operations, tally: Tally) -> None:
    whole = whole_at(of.view)
    begun = of.view.messages["begun"]
    for connection in of.connections:
        results = connection.results
        if results is None:
            tally.doubts(_UNKNOWN)
        if not results:
            continue
        if doubt := what_arrived_is_doubtful(of.view, of.stream(connection)):
            tally.doubts(doubt, len(results))
            continue
        numbers = np.array([each.number for each in connection.requests])
        indices = np.array([each.index for each in connection.requests])
        # A request of which the capture lacks the first packets proves nothing.
        whole_here = np.where(begun[indices], whole[indices], 0)
        latest = np.maximum.accumulate(whole_here)
        all_begun = np.logical_and.accumulate(begun[indices])
        for result in results:
            at = int(np.searchsorted(numbers, result.number, side="right")) - 1
            if at < 0 or not all_begun[at]:
                tally.doubts("a request began before the capture")
            elif latest[at] < of.first_at(result):
                tally.passed()
            else:
                late = connection.requests[int(np.argmax(whole_here[: at + 1]))]
                place = int(whole_here[: at + 1].max())
                what = "never was" if place == NEVER else "was not yet"
                tally.failed(
                    [*of.frame(result), *of.view.frames(place)],
                    f"the result of {result.name} of {connection.name} began when {late.name} "
                    f"{what} whole at the responder",
                )


@RULES.rule(
    "op.result_once",
    "a READ or an atomic has one result, of the length that the request asks for; copies of a "
    "result's packets, and retransmissions of an atomic's result, have the same bytes",
    "IBA 9.7.5.1.3, C9-106; " + WIRE,
)
def _once(of: Operations, tally: Tally) -> None:
    refused = {
        message for message, sent in of.lab.controls.refused.items() if _is_of_result(sent)
    }  # fmt: skip
    for connection in of.connections:
        if connection.results is None:
            tally.doubts(_UNKNOWN)
            continue
        requests = connection.by_number()
        results: dict[int, Operation] = {}
        for result in connection.results:
            _check_result(of, connection, result, requests.get(result.number), refused, tally)
            first = results.setdefault(result.number, result)
            if first is not result:
                tally.failed(
                    [*of.frame(first), *of.frame(result)],
                    f"{result.name} of {connection.name} has two results",
                )
    for stray in of.strays:
        back = of.view.streams[int(of.view.messages["stream"][stray.index])].back
        if back is not None and of.stream_began_in_view(back) and not of.view.missed:
            tally.failed(of.frame(stray), f"a result of {stray.name}, of no request")
        else:
            tally.doubts("the request may not have been captured")
    _check_bytes(of, tally)


def _check_result(
    of: Operations,
    connection: Connection,
    result: Operation,
    request: Operation | None,
    refused: set[int],
    tally: Tally,
) -> None:
    """Against its request."""
    if request is None:
        if of.began_in_view(connection) and not of.view.missed and of.stream(connection).whole:
            tally.failed(
                of.frame(result), f"a result of {result.name} of {connection.name}, of no request"
            )
        else:
            tally.doubts("the request may not have been captured")
        return
    length = int(of.view.messages["length"][result.index])
    due = request.argument if request.verb == READ else _ATOMIC_BYTES
    frames = [*of.frame(request), *of.frame(result)]
    if request.verb not in RETURNING:
        tally.failed(frames, f"{request.name} of {connection.name} has a result")
    elif result.identity != request.identity:
        tally.failed(frames, f"the result of {request.name} of {connection.name} is another's")
    elif length != due and result.index not in refused:
        tally.failed(
            frames,
            f"the result of {request.name} of {connection.name} has {length} bytes where {due} "
            "are due",
        )
    else:
        tally.passed()


def _check_bytes(of: Operations, tally: Tally) -> None:
    """A READ reads memory again for a retransmission, as RC does; an atomic's result is kept."""
    view = of.view
    is_result = np.zeros(len(view.messages), dtype=np.bool_)
    is_atomic = np.zeros(len(view.messages), dtype=np.bool_)
    for connection in of.connections:
        for result in connection.results or ():
            is_result[result.index] = True
            is_atomic[result.index] = result.verb in ATOMICS
    has = view.column("has", view.data)
    message_of = np.repeat(view.transmissions["message"], view.sightings)
    hashed = (has & Has.PAYLOAD_HASH != 0) & (has & Has.TRIMMED == 0)
    which = np.flatnonzero(is_result[message_of] & hashed)
    packet = np.repeat(view.packet_of, view.sightings)[which]
    sending = np.repeat(np.arange(len(view.begins)), view.sightings)[which]
    hashes = view.column("payload_hash", view.data[which])
    same = (packet[1:] == packet[:-1]) & (
        is_atomic[message_of[which[1:]]] | (sending[1:] == sending[:-1])
    )
    differs = same & (hashes[1:] != hashes[:-1])
    tally.passed(int((same & ~differs).sum()))
    for at in np.flatnonzero(differs).tolist():
        pair = view.places[view.data[which[[at, at + 1]]]]
        one = view.transmissions[view.packet_begins[packet[at]]]
        tally.failed(view.frames(*pair), f"{view.name(one)}, a result, with other bytes")


@RULES.rule(
    "op.refused",
    "when a responder has refused an operation, no result of an operation behind it begins",
    "IBA 9.9.3; " + WIRE,
)
def _refused(of: Operations, tally: Tally) -> None:
    refusals = Refusals(of)
    tally.doubts("which connection a refused operation is of was not captured", refusals.unclear)
    for connection, number, sent in refusals:
        if connection.results is None:
            tally.doubts(_UNKNOWN)
            continue
        numbers = np.array([each.number for each in connection.results], dtype=np.int64)
        indices = np.array([each.index for each in connection.results], dtype=np.int64)
        late = (numbers > number) & (of.view.messages["first_at"][indices] > sent.at)
        if not late.any():
            tally.passed()
        for at in np.flatnonzero(late).tolist():
            result = connection.results[at]
            tally.failed(
                [of.view.frame(sent.at), *of.frame(result)],
                f"a result of {result.name} of {connection.name}, where operation {number} was "
                "refused before",
            )


def _is_of_result(sent: ControlMessage) -> bool:
    return isinstance(sent.body, Refused) and sent.body.key[0] >> 8 == RESULT
