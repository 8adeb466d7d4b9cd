# SPDX-License-Identifier: GPL-2.0-or-later
"""Service id resolution."""

import pytest

from softroce_lab.programs.rdmacm.messages import SidrStatus
from softroce_lab.programs.rdmacm.service import gid_of
from tests.programs.rdmacm.cm_rig import ACTIVE, ADDRESSES, MALLORY, PASSIVE, QPNS, TCP, UDP, Wire


def test_a_datagram_queue_pair_is_found(wire):
    wire.listen(space=UDP)
    wire.connect(space=UDP, private_data=b"who?")
    wire.settle()
    request = wire.last(PASSIVE, "CONNECT_REQUEST")
    assert request.ud.private_data == b"who?".ljust(180, b"\0")
    wire.accept(request.id, qkey=0x01234567, private_data=b"me")
    wire.settle()
    found = wire.last(ACTIVE, "ESTABLISHED").ud
    assert (found.qp_num, found.qkey, found.gid) == (
        QPNS[PASSIVE],
        0x01234567,
        gid_of(ADDRESSES[PASSIVE]),
    )
    assert found.private_data == b"me".ljust(136, b"\0")
    assert wire.kinds() == [("active", "SIDR_REQ"), ("passive", "SIDR_REP")]
    assert [side.next_timeout_ns for side in wire.sides] == [None, None]


def test_a_datagram_service_that_nobody_has(wire):
    wire.listen(space=TCP)
    wire.connect(space=UDP)
    wire.settle()
    unreachable = wire.last(ACTIVE, "UNREACHABLE")
    assert unreachable.status == SidrStatus.UNSUPPORTED


@pytest.mark.parametrize("how", ["reject", "destroy", "destroy listener"])
def test_a_datagram_service_is_refused(wire, how):
    listener = wire.listen(space=UDP)
    wire.connect(space=UDP)
    wire.settle()
    request = wire.last(PASSIVE, "CONNECT_REQUEST")
    if how == "reject":
        wire.reject(request.id, private_data=b"no")
    else:
        wire.destroy(request.id if how == "destroy" else listener, PASSIVE)
    wire.settle()
    assert wire.last(ACTIVE, "UNREACHABLE").status == SidrStatus.REJECT


def test_a_repeated_question_is_asked_of_the_user_once(wire):
    wire.listen(space=UDP)
    wire.connect(space=UDP)
    wire.settle()
    wire.deliver(PASSIVE, wire.sent[0].octets)
    assert wire.names(PASSIVE) == ["CONNECT_REQUEST"]


def test_an_answered_question_can_be_asked_again():
    wire = Wire(lost=lambda carried: carried.kind == "SIDR_REP" and carried.number == 0)
    wire.reactions[PASSIVE, "CONNECT_REQUEST"] = lambda event: wire.accept(event.id)
    wire.listen(space=UDP)
    wire.connect(space=UDP)
    wire.drive()
    assert wire.names(ACTIVE)[-1] == "ESTABLISHED"
    assert wire.names(PASSIVE) == ["CONNECT_REQUEST", "CONNECT_REQUEST"]


def test_an_answer_of_a_stranger_is_not_heard(wire):
    wire.listen(space=UDP)
    wire.connect(space=UDP)
    wire.settle()
    wire.accept(wire.last(PASSIVE, "CONNECT_REQUEST").id)
    rep = wire.sent[-1].octets
    wire.deliver(ACTIVE, rep, MALLORY)
    assert wire.names(ACTIVE)[-1] == "ROUTE_RESOLVED"
    wire.settle()
    wire.deliver(ACTIVE, rep)
    assert wire.names(ACTIVE).count("ESTABLISHED") == 1
