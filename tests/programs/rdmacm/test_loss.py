# SPDX-License-Identifier: GPL-2.0-or-later
"""Losses: of every MAD, of all of one kind, at random; always an end, and never two ends."""

import errno
import itertools
import random

import pytest

from softroce_lab.programs.rdmacm.connection import CmState, CmTiming, time_ns
from softroce_lab.programs.rdmacm.messages import RejectReason
from tests.programs.rdmacm.cm_rig import ACTIVE, PASSIVE, TCP, TIMING, UDP, Wire

RETRIES = TIMING.max_cm_retries
FAST = CmTiming(response_timeout=10, max_cm_retries=15, packet_life_time=8, mra_timeout=12)
REQ_WAIT_NS = 2 * time_ns(TIMING.packet_life_time) + time_ns(TIMING.response_timeout)
KINDS = ["REQ", "REP", "RTU", "DREQ", "DREP", "MRA"]


def first(kind, count=1):
    return lambda carried: carried.kind == kind and carried.number < count


def run(lost, timing=FAST, seed=1, space=TCP, copies=1):
    """Connect, disconnect, to the end of everything."""
    wire = Wire(seed, timing, lost, copies).willing()
    wire.listen(space=space)
    active = wire.connect(space=space)
    wire.reactions[PASSIVE, "ESTABLISHED"] = lambda _: wire.disconnect(active)
    wire.drive()
    return wire, active


def assert_whole(wire):
    for side in (ACTIVE, PASSIVE):
        names = wire.names(side)
        assert names.count("DISCONNECTED") == 1
        assert names[-1] == "TIMEWAIT_EXIT"
    assert wire.names(PASSIVE).count("ESTABLISHED") == 1
    assert wire.names(ACTIVE).count("CONNECT_RESPONSE") == 1
    assert [side.next_timeout_ns for side in wire.sides] == [None, None]


def test_lost_mads_are_made_good():
    for kind, count in itertools.product(KINDS, (1, RETRIES)):
        assert_whole(run(first(kind, count))[0])
    for kinds in itertools.combinations(KINDS, 2):
        wire, _ = run(lambda carried, kinds=kinds: carried.kind in kinds and carried.number == 0)
        assert_whole(wire)


@pytest.mark.parametrize("percent", [5, 30])
def test_random_loss_is_made_good(percent):
    for seed in range(10):
        stream = random.Random(1000 * percent + seed)
        wire, _ = run(lambda _, stream=stream: stream.random() * 100 < percent, seed=seed)
        assert_whole(wire)


def test_whatever_is_lost_there_is_an_end():
    for seed in range(10):
        stream = random.Random(seed)
        wire, active = run(lambda _, stream=stream: stream.random() < 0.9, seed=seed)
        assert [side.next_timeout_ns for side in wire.sides] == [None, None]
        last = wire.names(ACTIVE)[-1]
        state = wire.sides[ACTIVE].connection(active).state
        assert last in {"UNREACHABLE", "REJECTED", "TIMEWAIT_EXIT"} or state is CmState.ESTABLISHED


def test_every_mad_may_come_more_than_once():
    assert_whole(run(lambda _: False, copies=3)[0])


def test_a_request_that_is_never_heard():
    wire = Wire(lost=lambda carried: carried.kind == "REQ")
    wire.listen()
    active = wire.connect()
    wire.drive()
    assert [kind for _, kind in wire.kinds()] == (1 + RETRIES) * ["REQ"] + ["REJ"]
    unreachable = wire.last(ACTIVE, "UNREACHABLE")
    assert unreachable.status == -errno.ETIMEDOUT
    assert wire.now_ns == pytest.approx((1 + RETRIES) * REQ_WAIT_NS, abs=1e6)
    assert wire.sides[ACTIVE].connection(active).state is CmState.IDLE
    assert len({each.octets for each in wire.sent[:-1]}) == 1


def test_a_reply_that_is_never_heard():
    wire, _ = run(lambda carried: carried.kind == "REP")
    # The passive side gives up first, and is asked once more by a request that goes on.
    replies = [kind for _, kind in wire.kinds()].count("REP")
    assert 1 + RETRIES < replies < 2 * (1 + RETRIES)
    assert wire.names(PASSIVE)[1:3] == ["UNREACHABLE", "CONNECT_REQUEST"]
    assert wire.last(PASSIVE, "REJECTED").status == RejectReason.TIMEOUT
    assert wire.names(ACTIVE)[-1] == "UNREACHABLE"


def test_an_end_that_is_never_heard_is_an_end():
    wire, active = run(lambda carried: carried.kind == "DREQ")
    assert [kind for _, kind in wire.kinds()].count("DREQ") == 1 + RETRIES
    assert wire.last(ACTIVE, "DISCONNECTED").status == -errno.ETIMEDOUT
    assert wire.names(ACTIVE)[-1] == "TIMEWAIT_EXIT"
    assert wire.sides[ACTIVE].connection(active).state is CmState.IDLE


def test_a_user_who_never_answers_is_waited_for_within_bounds():
    wire = Wire(timing=FAST)
    wire.listen()
    wire.connect()
    wire.drive()
    # Delays are asked for again and again; then the active side takes its request back.
    assert wire.names(ACTIVE)[-1] == "UNREACHABLE"
    assert wire.last(PASSIVE, "REJECTED").status == RejectReason.TIMEOUT
    kinds = [kind for _, kind in wire.kinds()]
    assert kinds.count("REQ") == 1 + RETRIES
    assert kinds.count("MRA") == RETRIES


@pytest.mark.parametrize("kind", ["SIDR_REQ", "SIDR_REP"])
def test_a_datagram_service_is_asked_for_until_it_answers(kind):
    wire, _ = run(first(kind, RETRIES), space=UDP)
    assert wire.names(ACTIVE)[-1] == "ESTABLISHED"
    wire, _ = run(lambda carried: carried.kind == kind, timing=TIMING, space=UDP)
    assert wire.last(ACTIVE, "UNREACHABLE").status == -errno.ETIMEDOUT
    assert [kind for _, kind in wire.kinds()].count("SIDR_REQ") == 1 + RETRIES
    assert wire.now_ns == pytest.approx((1 + RETRIES) * time_ns(TIMING.response_timeout), abs=1e6)
