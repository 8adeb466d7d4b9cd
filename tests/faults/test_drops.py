# SPDX-License-Identifier: GPL-2.0-or-later
"""Which packets a drop names, and which it can never name."""

import pytest

from softroce_lab.errors import UserError
from softroce_lab.faults.model import FaultRule
from softroce_lab.inputs.validation import validate
from softroce_lab.inputs.yaml_source import parse


def read(drop: str) -> FaultRule:
    return validate(FaultRule, parse(f"name: x\nlinks: a->b\n{drop}\n", "x.yaml"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("drop: {}", "3:7: drop does not say which packets"),
        ("drop: []", "3:7: expected at least 1 entry, found 0"),
        ("drop: all", "3:7: unexpected 'all'"),
        ("drop: {packet: 5}", "3:8: 'packet' needs the 'message' that it is of"),
        ("drop: {tail: 1, absolute: true}", "3:17: 'absolute' needs a 'qpn'"),
        ("drop: {message: 1, packet: 5, qpn: 1}", "3:31: 'qpn' does not go with message and"),
        ("drop: {qpn: 0}", "3:8: qpn 0 can match nothing"),
        ("drop: {qpn: 1, psn: 16777216}", "3:21: psn 16777216 can match nothing"),
        ("drop: {message: 4294967296}", "3:17: message 4294967296 can match nothing"),
        ("drop: {tail: 0}", "3:14: tail 0 can match nothing"),
        ("drop: {tail: 1, iter: 0}", "3:23: iter 0 can match nothing\n  hint: 1 to 64"),
        ("drop: {opcode: RC_SEND}", "3:16: unknown opcode 'RC_SEND'"),
        ("drop: {opcode: 256}", "3:16: opcode 256 can match nothing"),
        ("drop: {only: []}", "3:14: an empty list can match nothing"),
        ("drop: {tail: 1, only: control}", "3:8: 'tail' can match nothing: only control packets"),
        ("drop: {tail: 1, only: parity}", "3:8: 'tail' can match nothing: only parity packets"),
        (
            "drop: {only: [parity], message: 1, tail: 1}",
            "3:24: 'message' can match nothing: only p",
        ),
        ("drop: {tail: 2, only: other}", "3:8: 'tail' can match nothing: only other packets"),
        ("drop: {opcode: 0, tail: 1}", "3:8: 'opcode' can match nothing beside 'tail'"),
        ("drop: {opcode: 4, message: 1}", "3:8: 'opcode' can match nothing beside 'message'"),
    ],
)
def test_every_mistake_is_pointed_at(text: str, error: str) -> None:
    with pytest.raises(UserError) as caught:
        read(text)
    assert str(caught.value).startswith(f"x.yaml:{error}")


def test_numbers_as_perftest_prints_them() -> None:
    (event,) = read("drop: qpn 0x100a psn 0x7-0x9,12 absolute true").drop or ()
    assert (event.qpn, event.psn, event.absolute) == (0x100A, (7, 8, 9, 12), True)
    with pytest.raises(UserError, match="qpn '0x10g' is not a whole number"):
        read("drop: qpn 0x10g")
    with pytest.raises(UserError, match="unexpected 'true'"):
        read("drop: qpn 5 true")


@pytest.mark.parametrize("more", ["", ", message: 3", ", iter: 1", ", message: 3, iter: [1, 2]"])
def test_parity_is_a_kind_of_its_own(more: str) -> None:
    (event,) = read(f"drop: {{only: parity{more}}}").drop or ()
    assert event.only == ("parity",)
