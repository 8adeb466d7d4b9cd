# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations over the lab's transports keep their rules, and every planted fault is found."""

import random
import re
import struct

import pytest

from softroce_lab import _native
from softroce_lab.check.operations.suite import SUITE
from softroce_lab.check.verdict import Outcome
from softroce_lab.dissect import description
from softroce_lab.transports import registry
from tests.check.operations_tape import (
    ADD,
    AGAIN,
    COUNT,
    EMPTY,
    LAST,
    READ,
    REQUEST,
    RESULT,
    SEND,
    SHORT_READ,
    SWAP,
    WRITE,
    WRITE_IMM,
    record,
)
from tests.check.plant import failed, shown
from tests.check.striped_tape import BACK_DOWN, BACK_UP, DOWN, UP, first

RULES = {rule.name for rule in SUITE.rules}
TRANSPORTS = ("csa_ud", "irn")
LOSSES = (first(WRITE, 2), first(SEND, 1), first(ADD, 0), first(AGAIN + WRITE, 4))
BACK_LOSSES = (first(READ, 3), first(ADD, 0))
RESULTS = 8


def lossy(transport):
    return record(transport, LOSSES, back=BACK_LOSSES)


# ---------------------------------------------------------------- nothing is wrong


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_operations_keep_every_rule(transport, tmp_path):
    verdicts = lossy(transport).check(tmp_path)
    assert failed(verdicts) == set()
    occasions = {rule: verdicts[rule].checked for rule in RULES}
    assert occasions["op.number"] == COUNT + RESULTS + COUNT
    assert occasions["op.place"] == COUNT + RESULTS
    assert occasions["op.receive"] == 6
    assert occasions["op.reads"] == occasions["op.result_after"] == RESULTS
    assert occasions["op.result_once"] > RESULTS
    assert verdicts["op.refused"].outcome is Outcome.NOT_APPLICABLE


@pytest.mark.parametrize("transport", registry.transports(registry.Kind.SESSION))
def test_no_transport_breaks_a_rule(transport, tmp_path):
    verdicts = lossy(transport).check(tmp_path)
    assert failed(verdicts) == set()
    assert verdicts["op.result_after"].checked == RESULTS


@pytest.mark.parametrize("same_psn", [False, True])
def test_results_find_the_requests_of_several_queue_pairs(same_psn, tmp_path):
    verdicts = record("irn", pairs=3, same_psn=same_psn).check(tmp_path)
    assert failed(verdicts) == set()
    # All headers are alike but the keys: each queue pair has a region of its own.
    assert verdicts["op.result_after"].checked == 3 * RESULTS


@pytest.mark.parametrize("number", [WRITE, READ, SWAP, LAST])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_operation_that_is_refused_breaks_no_rule(transport, number, tmp_path):
    verdicts = record(transport, bad_key=number).check(tmp_path)
    assert failed(verdicts) == set()
    assert verdicts["op.refused"].outcome is Outcome.PASS


@pytest.mark.parametrize("links", [(UP,), (DOWN,), (BACK_UP,), (BACK_DOWN,), (UP, BACK_DOWN)])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_capture_of_some_links_shows_no_violation(transport, links, tmp_path):
    assert not failed(lossy(transport).only(*links).check(tmp_path)) & RULES


@pytest.mark.parametrize("begin", [2, 5, 20, 60, 100])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_capture_may_begin_between_operations(transport, begin, tmp_path):
    assert not failed(lossy(transport).since(begin).check(tmp_path)) & RULES


@pytest.mark.parametrize("snap", [94, 118, 126, 160, 256])
def test_no_snap_length_shows_a_violation(snap, tmp_path):
    assert not failed(lossy("irn").cut(snap).check(tmp_path)) & RULES


@pytest.mark.parametrize("every", [7, 31])
def test_what_the_capture_missed_shows_no_violation(every, tmp_path):
    tape = lossy("irn")
    there = len(tape)
    del tape.frames[every // 2 :: every]
    tape.statistics[0] = (there, there - len(tape))
    assert not failed(tape.check(tmp_path)) & RULES


def test_a_read_may_return_other_bytes_when_it_is_sent_again(tmp_path):
    """Its memory is read again, as by RC."""
    tape = lossy("irn")
    again = tape.of(RESULT, READ, index=3, attempt=1)
    assert again
    tape.change(again, payload=b"\x77" * 960)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == set()
    assert "memory was read again" in verdicts["once.bytes"].note


# ---------------------------------------------------------------- processes with their own Q_Keys

ASKER, ANSWERER, LATER = 0xA0000001, 0xB0000002, 0xC0000003


def hello(tape, number, qkey):
    """One as the sender of a frame sends it, on the same link and ahead of the frame."""
    body = struct.pack(">BB3Q24s", 1, 0, 5, 7 << 32 | qkey, 9, b"csa_ud")
    tape.copy(number, before=number)
    said = {
        name: value
        for name, value in tape.lab(number).items()
        if name not in ("verb", "receive", "connection", "remote_address", "rkey", "argument")
    }
    names = {"kind": description.CONTROL, "message": 0, "message_id": 3, "length": len(body)}
    names |= {"operation": 0, "step": 0, "index": 0, "count": 1, "attempt": 0}
    ends = {"infiniband.bth.destqp": 0x12, "infiniband.deth.srcqp": 0x12}
    ends |= {"infiniband.deth.q_key": description.HELLO_QKEY}
    tape.frame(number).data = bytes(_native.encode_frame(said | names | ends | {"payload": body}))


def with_qkeys(tape, asker=ASKER, answerer=ANSWERER, *, hellos=True):
    """What processes send, each of which has a Q_Key of its own."""
    for number in range(1, len(tape) + 1):
        qkey = answerer if tape.frame(number).interface in (UP, DOWN) else asker
        tape.alter(number, **{"infiniband.deth.q_key": qkey})
    if hellos:
        for link, qkey in ((BACK_DOWN, answerer), (BACK_UP, answerer), (DOWN, asker), (UP, asker)):
            at = next(n for n in range(1, len(tape) + 1) if tape.frame(n).interface == link)
            hello(tape, at, qkey)
    return tape


def occasions(verdicts):
    return {rule: verdicts[rule].checked for rule in RULES}


@pytest.mark.parametrize("hellos", [True, False])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_both_directions_between_processes_belong_together(transport, hellos, tmp_path):
    expected = lossy(transport).check(tmp_path)
    verdicts = with_qkeys(lossy(transport), hellos=hellos).check(tmp_path)
    assert failed(verdicts) == set()
    assert occasions(verdicts) == occasions(expected)
    assert verdicts["once.acknowledged"].checked == expected["once.acknowledged"].checked
    assert verdicts["ud.qkey"].outcome is Outcome.PASS


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_process_that_begins_anew_is_another(transport, tmp_path):
    """The same ids and numbers again a millisecond later, for the same process."""
    tape, later = with_qkeys(lossy(transport)), with_qkeys(lossy(transport), asker=LATER)
    by_ns = tape.frames[-1].time_ns - later.frames[0].time_ns + 10**6
    for frame in later.frames:
        frame.time_ns += by_ns
    expected = occasions(tape.check(tmp_path))
    tape.frames += later.frames
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == set()
    assert occasions(verdicts) == {rule: 2 * checked for rule, checked in expected.items()}


def test_processes_on_one_host_are_told_apart(tmp_path):
    """The numbers of their queue pairs differ; all else is alike."""
    tape, other = with_qkeys(lossy("irn")), with_qkeys(lossy("irn"), asker=LATER)
    for number in range(1, len(other) + 1):
        is_to = other.frame(number).interface in (UP, DOWN)
        name = "infiniband.deth.srcqp" if is_to else "infiniband.bth.destqp"
        other.alter(number, **{name: other.lab(number)[name] | 1 << 17})
    for frame in other.frames:
        frame.time_ns += 300
    expected = occasions(tape.check(tmp_path))
    tape.frames = sorted([*tape.frames, *other.frames], key=lambda frame: frame.time_ns)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) & RULES == set()
    assert occasions(verdicts) == {rule: 2 * checked for rule, checked in expected.items()}


# ---------------------------------------------------------------- planted faults

FAULTS = []


def fault(*rules, says, also=False, losses=(), back=(), **setup):
    """What violates these rules; it returns frames that show it. `also`: and others."""

    def register(plant):
        for transport in TRANSPORTS:
            made = {"losses": losses, "back": back} | setup
            name = f"{transport}-{plant.__name__}"
            case = pytest.param(transport, made, plant, set(rules), says, also, id=name)
            FAULTS.append(case)
        return plant

    return register


@pytest.mark.parametrize(("transport", "setup", "plant", "rules", "says", "also"), FAULTS)
def test_a_planted_fault_is_found(transport, setup, plant, rules, says, also, tmp_path):
    tape = record(transport, **setup)
    frames = plant(tape)
    verdicts = tape.check(tmp_path)
    found = failed(verdicts)
    assert rules <= found if also else rules == found, found
    (rule,) = (each for each in rules if each in RULES)
    assert shown(verdicts[rule]) & frames
    texts = [exhibit.text for exhibit in verdicts[rule].exhibits]
    assert any(re.search(says, text) for text in texts), texts


@fault("op.number", says=f"write {COUNT} of QP .* comes where operation {COUNT - 1} is due")
def a_number_that_is_left_out(tape):
    return tape.change(tape.of(REQUEST, COUNT - 1), message=COUNT)


@fault("op.number", says="comes where operation 0 is due", also=True)
def a_connection_that_begins_with_1(tape):
    tape.change(tape.of(REQUEST, 0), message=COUNT)
    return set(tape.of(REQUEST, 1))


@fault("op.number", says="is two messages")
def two_messages_of_one_number(tape):
    return tape.change(tape.of(REQUEST, COUNT - 1), message=COUNT - 2)


@fault("op.number", says="is of two operations")
def another_argument_in_one_packet(tape):
    return tape.change(tape.of(REQUEST, WRITE, index=3), argument=5)


@fault("op.number", says="is of two operations")
def another_connection_in_one_packet_of_a_result(tape):
    return tape.change(tape.of(RESULT, READ, index=2), connection=5)


@fault("op.number", says="is of two operations")
def a_solicited_event_in_one_packet(tape):
    return tape.change(tape.of(REQUEST, SEND, index=1), verb=0x83)


@fault("op.place", says="is for two places")
def another_address_in_one_packet(tape):
    (frame, *_) = numbers = tape.of(REQUEST, WRITE, index=1)
    return tape.change(numbers, remote_address=tape.lab(frame)["remote_address"] + 8)


@fault("op.place", says="is for two places")
def another_key_in_one_packet(tape):
    return tape.change(tape.of(REQUEST, WRITE, index=2), rkey=5)


@fault("op.place", says="is for two places", also=True)
def another_length_in_one_packet(tape):
    numbers = tape.of(REQUEST, WRITE, index=2)
    return tape.change(numbers, length=tape.lab(numbers[0])["length"] + 1)


@fault("op.receive", says="takes receive 2 where 1 is due")
def a_receive_that_is_left_out(tape):
    numbers = [
        frame
        for number in (WRITE_IMM, EMPTY, *(AGAIN + each for each in (SEND, WRITE_IMM, EMPTY)))
        for frame in tape.of(REQUEST, number)
    ]
    for frame in numbers:
        tape.alter(frame, receive=tape.lab(frame)["receive"] + 1)
    return set(numbers)


@fault("op.receive", says="takes receive 0 where 1 is due")
def two_operations_that_take_one_receive(tape):
    return tape.change(tape.of(REQUEST, WRITE_IMM), receive=0)


@fault("op.reads", says="says that 1 are outstanding, and 2 are")
def a_read_that_says_too_little(tape):
    return tape.change([*tape.of(REQUEST, ADD), *tape.of(RESULT, ADD)], receive=1)


@fault("op.reads", says="says that 4 are outstanding, and 5 are", also=True)
def a_read_that_begins_too_early(tape):
    """Before any result has come; the frames of the results go to the end."""
    results = [
        frame for number in (READ, ADD, SHORT_READ, SWAP) for frame in tape.of(RESULT, number)
    ]
    for frame in results:
        tape.frame(frame).time_ns += 10**9
    return set(tape.of(REQUEST, AGAIN + READ))


@fault("op.result_after", says="began when write 0 was not yet whole", also=True, losses=LOSSES)
def a_result_before_an_earlier_write_is_whole(tape):
    late = tape.of(REQUEST, WRITE, index=2, attempt=1, link=DOWN)
    assert late
    for frame in late:
        tape.frame(frame).time_ns += 10**9
    return set(late)


@fault("op.result_after", says="began when fetch add 3 never was whole", also=True)
def a_result_of_a_request_that_did_not_arrive(tape):
    tape.delete(*tape.of(REQUEST, ADD, link=DOWN))
    return set(tape.of(RESULT, ADD))


@fault("op.result_once", says="fetch add 3 of QP .* has two results", also=True)
def two_results(tape):
    numbers = tape.of(RESULT, ADD)
    return tape.repeat(numbers, message_id=tape.next_id(numbers))


@fault("op.result_once", says="write 8 of QP .* has a result", also=True)
def a_result_of_a_write(tape):
    return tape.change(tape.of(RESULT, SWAP), message=LAST)


@fault("op.result_once", says="the result of read 4 of QP .* is another's")
def a_result_with_the_verb_of_another(tape):
    return tape.change(tape.of(RESULT, SHORT_READ), verb=8)


@fault("op.result_once", says=f"a result of read {COUNT + 3} of QP .*, of no request")
def a_result_of_no_request(tape):
    return tape.change(tape.of(RESULT, AGAIN + READ), message=COUNT + 3)


@fault("op.result_once", says="of no request")
def a_result_of_no_connection(tape):
    return tape.change(tape.of(RESULT, AGAIN + READ), connection=5)


@fault("op.result_once", says="has 100 bytes where 200 are due")
def a_result_that_is_too_short(tape):
    numbers = [*tape.of(REQUEST, SHORT_READ), *tape.of(RESULT, SHORT_READ)]
    return tape.change(numbers, argument=200)


@fault("op.result_once", "once.bytes", says="a result, with other bytes", back=BACK_LOSSES)
def an_atomic_that_was_done_again(tape):
    again = tape.of(RESULT, ADD, attempt=1)
    assert again
    return tape.change(again, payload=b"\x77" * 8)


@fault(
    "op.refused",
    says=f"where operation {AGAIN + SHORT_READ} was refused before",
    also=True,
    bad_key=AGAIN + SHORT_READ,
)
def a_result_behind_a_refused_read(tape):
    numbers = tape.of(RESULT, SWAP)
    return tape.repeat(numbers, message_id=tape.next_id(numbers), message=AGAIN + SWAP)


@fault("op.refused", says="where operation 8 was refused before", also=True, bad_key=LAST)
def a_result_behind_a_refused_write(tape):
    numbers = tape.of(RESULT, READ)
    return tape.repeat(numbers, message_id=tape.next_id(numbers), message=AGAIN + READ)


# ---------------------------------------------------------------- anything

BITS = {
    "operation": 16, "step": 16, "message": 32, "message_id": 32, "index": 32, "length": 32,
    "receive": 24, "connection": 24, "remote_address": 64, "rkey": 32, "argument": 32,
    "infiniband.deth.q_key": 32, "infiniband.deth.srcqp": 24, "infiniband.bth.destqp": 24,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_headers_may_say_anything(seed, tmp_path):
    """Fields of some packets are others, large and small; frames are doubled, gone and moved."""
    draw = random.Random(seed)
    tape = record(draw.choice(TRANSPORTS), bad_key=draw.choice((None, SWAP, LAST)))
    for number in draw.sample(range(1, len(tape) + 1), 40):
        said = tape.lab(number)
        name = draw.choice([each for each in BITS if each in said])
        value = draw.choice((0, 1, said[name] + 1, draw.getrandbits(BITS[name])))
        tape.alter(number, **{name: value % (1 << BITS[name])})
    for _ in range(10):
        tape.copy(draw.randrange(1, len(tape)), before=draw.randrange(1, len(tape)))
        tape.move(draw.randrange(1, len(tape)), before=draw.randrange(1, len(tape)))
        tape.delete(draw.randrange(1, len(tape)))
    assert tape.check(tmp_path).keys() >= RULES
