# SPDX-License-Identifier: GPL-2.0-or-later
"""What requesters say of their operations: numbers, places, receives, outstanding READs."""

from __future__ import annotations

import itertools

import numpy as np

from softroce_lab.check.operations.connections import (
    RETURNING,
    TAKING_RECEIVES,
    Connection,
    Operation,
    Operations,
    whole_at,
)
from softroce_lab.check.operations.refusals import Refusals
from softroce_lab.check.striped.messages import NEVER, Stream, Striped
from softroce_lab.check.verdict import Rules, Tally
from softroce_lab.telemetry.packets import Has

WIRE = "docs/reference/wire-format.md"
_RECEIVES = 1 << 24
RULES = Rules()


@RULES.rule(
    "op.number",
    "the operations of a connection are numbered from 0 without a hole, and all packets of a "
    "message say the same of its operation",
    WIRE,
)
def _numbers(of: Operations, tally: Tally) -> None:
    names = ("operation", "step", "message", "verb", "receive", "connection", "argument")
    _check_same(of.view, names, "is of two operations", tally)
    for connection in of.connections:
        doubt = what_was_sent_is_doubtful(of.view, of.stream(connection))
        due = 0 if of.began_in_view(connection) else connection.requests[0].number
        for before, request in itertools.pairwise([None, *connection.requests]):
            if request is None:
                continue
            if request.number == due:
                tally.passed()
            elif request.number > due and (doubt or not of.began(before or request)):
                tally.doubts(doubt or "operations began before the capture")
            else:
                _show_hole(of, connection, before, request, due, tally)
            due = request.number + 1


def _show_hole(
    of: Operations,
    connection: Connection,
    before: Operation | None,
    request: Operation,
    due: int,
    tally: Tally,
) -> None:
    frames = [] if before is None else of.frame(before)
    is_again = before is not None and request.number == before.number
    text = f"{request.name} of {connection.name} "
    text += "is two messages" if is_again else f"comes where operation {due} is due"
    tally.failed([*frames, *of.frame(request)], text)


@RULES.rule(
    "op.place",
    "address, key and length are the same in all packets of a message",
    "Mittal et al., SIGCOMM 2018, section 5; " + WIRE,
)
def _places(of: Operations, tally: Tally) -> None:
    _check_same(of.view, ("remote_address", "rkey", "length"), "is for two places", tally)


def _check_same(view: Striped, names: tuple[str, ...], what: str, tally: Tally) -> None:
    """These columns of the header have one value in all packets of each operation's messages."""
    message_of = np.repeat(view.transmissions["message"], view.sightings)
    is_operation = view.column("has", view.data) & Has.OPERATION != 0
    differs = np.zeros(len(view.data), dtype=np.bool_)
    firsts = view.begins[view.messages["begin"]] if len(view.messages) else view.begins[:0]
    for name in names:
        values = view.column(f"lab_{name}", view.data)
        differs |= values != values[firsts][message_of]
    differs &= is_operation
    bad = np.unique(message_of[differs])
    tally.passed(len(np.unique(message_of[is_operation])) - len(bad))
    for number in bad.tolist():
        other = np.flatnonzero(differs & (message_of == number))[0]
        pair = view.places[view.data[[firsts[number], other]]]
        tally.failed(view.frames(*pair), f"message id {view.messages['id'][number]} {what}")


@RULES.rule(
    "op.receive",
    "the operations of a connection that take receives count them, in the order of their numbers",
    "Mittal et al., SIGCOMM 2018, section 5; " + WIRE,
)
def _receives(of: Operations, tally: Tally) -> None:
    for connection in of.connections:
        doubt = what_was_sent_is_doubtful(of.view, of.stream(connection))
        due = 0 if of.began_in_view(connection) else None
        before = connection.requests[0]
        for request in connection.requests:
            if request.number > before.number + 1 and (doubt or not of.began(before)):
                due = None  # those between may have taken receives
            before = request
            if request.verb not in TAKING_RECEIVES:
                continue
            if due is None:
                tally.doubts(doubt or "the capture began later than the connection")
            elif request.receive == due:
                tally.passed()
            else:
                tally.failed(
                    of.frame(request),
                    f"{request.name} of {connection.name} takes receive {request.receive} where "
                    f"{due} is due",
                )
            due = (request.receive + 1) % _RECEIVES


@RULES.rule(
    "op.reads",
    "no more READs and atomics of a connection are outstanding than the request says",
    "IBA 9.7.3; " + WIRE,
)
def _outstanding(of: Operations, tally: Tally) -> None:
    """A request says how many when it begins. Until its first packet leaves, only fewer remain.

    One is outstanding until its result is whole at the requester, or is refused.
    """
    whole = whole_at(of.view)
    refusals = Refusals(of)
    for connection in of.connections:
        # The result of one that began before the capture may have come before it.
        asked = [each for each in connection.requests if of.began(each)]
        reads = [each for each in asked if each.verb in RETURNING]
        answers = of.answers(connection)
        doubt = what_arrived_is_doubtful(of.view, answers)
        if reads and connection.results is None:
            doubt = "which queue pair gets the results is not known"
        if refusals.may_be_of(connection):
            doubt = "which connection a refused operation is of was not captured"
        if doubt:
            tally.doubts(doubt, len(reads))
            continue
        came = {each.number: int(whole[each.index]) for each in reversed(connection.results or [])}
        outstanding: list[tuple[Operation, int]] = []
        for request in reads:
            at = of.first_at(request)
            outstanding = [each for each in outstanding if each[1] > at]
            ends = came.get(request.number, NEVER), refusals.at(connection, request.number)
            outstanding.append((request, min(ends)))
            if len(outstanding) <= request.receive:
                tally.passed()
            else:
                frames = [frame for each, _ in outstanding for frame in of.frame(each)]
                tally.failed(
                    frames,
                    f"{request.name} of {connection.name} says that {request.receive} are "
                    f"outstanding, and {len(outstanding)} are",
                )


# ---------------------------------------------------------------- what a capture does not show


def what_was_sent_is_doubtful(view: Striped, stream: Stream) -> str | None:
    """Why a message of a stream that was not seen may have been sent."""
    if not stream.leaves:
        return "the sender's link was not captured"
    return _missed(view)


def what_arrived_is_doubtful(view: Striped, stream: Stream | None) -> str | None:
    """Why a packet of a stream that was not seen to arrive may have arrived."""
    if stream is None or not stream.arrives:
        return "the receiver's link was not captured"
    return _missed(view)


def _missed(view: Striped) -> str | None:
    return f"the capture missed {view.missed} packets" if view.missed else None
