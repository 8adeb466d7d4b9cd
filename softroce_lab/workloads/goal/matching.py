# SPDX-License-Identifier: GPL-2.0-or-later
"""Which receive takes which send: the n-th of a source, a destination and a tag the n-th."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from softroce_lab.errors import UserError
from softroce_lab.workloads.goal.program import Act, Operation, Program

_Name: TypeAlias = tuple[int, int, int]  # source, destination, tag


class Pair(NamedTuple):
    """A message: the two ranks, and the operations by their index there."""

    source: int
    send: int
    destination: int
    receive: int


def pairs(program: Program) -> list[Pair]:
    """All messages; those between two ranks in the order of their sends. UserError."""
    waiting = _receives(program)
    found = []
    for source, operations in enumerate(program.ranks):
        for index, send in enumerate(operations):
            if send.act is not Act.SEND:
                continue
            left = waiting.get((source, send.peer, send.tag))
            if left is None or (receive := next(left, None)) is None:
                what = f"a send without a receive: rank {send.peer} has none for it"
                hint = f"recv {send.amount}b from {source} tag {send.tag} in rank {send.peer}"
                raise program.error(send, what, hint)
            _check_size(program, send, program.ranks[send.peer][receive])
            found.append(Pair(source, index, send.peer, receive))
    for (source, destination, tag), left in waiting.items():
        for index in left:
            expected = program.ranks[destination][index]
            what = f"a receive without a send: rank {source} has none for it"
            hint = f"send {expected.amount}b to {destination} tag {tag} in rank {source}"
            raise program.error(expected, what, hint)
    if not found:
        raise UserError("no rank sends anything", file=program.file)
    return found


def _receives(program: Program) -> dict[_Name, Iterator[int]]:
    found: dict[_Name, list[int]] = {}
    for rank, operations in enumerate(program.ranks):
        for index, each in enumerate(operations):
            if each.act is Act.RECEIVE:
                found.setdefault((each.peer, rank, each.tag), []).append(index)
    return {name: iter(indices) for name, indices in found.items()}


def _check_size(program: Program, send: Operation, receive: Operation) -> None:
    if send.amount != receive.amount:
        what = f"{receive.amount} bytes, and the send in line {send.line} has {send.amount}"
        raise program.error(receive, what)
