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
        ("drop: iter 1", "3:7: drop does not say which packets"),
        ("drop: []", "3:7: expected at least 1 entry, found 0"),
        ("drop: all", "3:7: unexpected 'all'"),
        ("drop: {packet: 5}", "3:8: 'packet' needs the 'message' that it is of"),
        ("drop: {psn: 5}", "3:8: 'psn' needs the 'qpn' that it is of"),
        ("drop: {tail: 1, absolute: true}", "3:17: 'absolute' needs a 'qpn'"),
        ("drop: {message: 1, packet: 5, qpn: 1}", "3:31: 'qpn' does not go with message and"),
        ("drop: {qpn: 1, psn: 5, tail: 1}", "3:24: 'tail' does not go with qpn and psn"),
        ("drop: {qpn: 0, psn: 5}", "3:8: qpn 0 can match nothing"),
        ("drop: {qpn: 0}", "3:8: qpn 0 can match nothing"),
        ("drop: {qpn: 1, psn: 0-3}", "3:16: psn 0 can match nothing"),
        ("drop: {qpn: 1, psn: 16777216}", "3:21: psn 16777216 can match nothing"),
        ("drop: {qpn: 16777216}", "3:13: qpn 16777216 can match nothing"),
        ("drop: {message: 4294967296}", "3:17: message 4294967296 can match nothing"),
        ("drop: {message: 1, packet: 4294967296}", "3:28: packet 4294967296 can match nothing"),
        ("drop: {tail: 0}", "3:14: tail 0 can match nothing"),
        ("drop: {tail: 1, iter: 0}", "3:23: iter 0 can match nothing\n  hint: 1 to 64"),
        ("drop: {tail: 1, iter: 65}", "3:23: iter 65 can match nothing"),
        ("drop: {opcode: RC_SEND}", "3:16: unknown opcode 'RC_SEND'"),
        ("drop: {opcode: 256}", "3:16: opcode 256 can match nothing"),
        ("drop: {only: some}", "3:14: unknown packets 'some'"),
        ("drop: {only: []}", "3:14: an empty list can match nothing"),
        ("drop: {tail: 1, only: control}", "3:8: 'tail' can match nothing: only control packets"),
        ("drop: {tail: 1, only: probe}", "3:8: 'tail' can match nothing: only probe packets"),
        ("drop: {tail: 2, only: other}", "3:8: 'tail' can match nothing: only other packets"),
        ("drop: {tail: 1, iter: 2, only: other}", "3:8: 'tail' can match nothing: only other"),
        ("drop: {opcode: 0, tail: 1}", "3:8: 'opcode' can match nothing beside 'tail'"),
        ("drop: {opcode: 4, tail: 2}", "3:8: 'opcode' can match nothing beside 'tail'"),
        ("drop: {opcode: 0x64, tail: 1, only: other}", "3:8: 'opcode' can match nothing beside"),
        ("drop: {opcode: 4, message: 1}", "3:8: 'opcode' can match nothing beside 'message'"),
        ("drop: {opcode: 4, only: data}", "3:8: 'opcode' can match nothing beside 'only'"),
        ("drop: [tail 1, {qpn: 0}]", "3:17: qpn 0 can match nothing"),
    ],
)
def test_every_mistake_is_pointed_at(text: str, error: str) -> None:
    with pytest.raises(UserError) as caught:
        read(text)
    assert str(caught.value).startswith(f"x.yaml:{error}")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("drop: message 1 packet 4294967295", True),
        ("drop: qpn 16777215 psn 16777215", True),
        ("drop: qpn 0 psn 0 absolute", True),
        ("drop: message 4294967295", False),
        ("drop: tail 1 iter 64", False),
        ("drop: tail 1 only other", False),
        ("drop: iter 1 only probe", False),
        ("drop: iter 1 opcode ud_send_only only probe", False),
        ("drop: tail 1 iter 1-3 opcode rc_send_only", False),
        ("drop: tail 1 opcode ud_send_only only data", False),
        ("drop: opcode 0xff", False),
        ("drop: opcode 4 only other", False),
        ("drop: opcode ud_send_only only data", False),
    ],
)
def test_the_ends_of_the_ranges(text: str, named: bool) -> None:
    (event,) = read(text).drop or ()
    assert event.named is named


def test_numbers_as_perftest_prints_them() -> None:
    (event,) = read("drop: qpn 0x100a psn 0x7-0x9,12 absolute true").drop or ()
    assert (event.qpn, event.psn, event.absolute) == (0x100A, (7, 8, 9, 12), True)
    with pytest.raises(UserError, match="qpn '0x10g' is not a whole number"):
        read("drop: qpn 0x10g")
    with pytest.raises(UserError, match="unexpected 'true'"):
        read("drop: qpn 5 true")
