# SPDX-License-Identifier: GPL-2.0-or-later
"""`irn` and `srnic` keep the rules of selective repeat, and every planted fault is found."""

import dataclasses
import json
import struct

import pytest

from softroce_lab.check import suites
from softroce_lab.check.striped import controls as feedback
from softroce_lab.check.striped.suite import SUITE
from softroce_lab.check.verdict import Outcome
from softroce_lab.transports.defaults import EngineTiming, Timing, document
from tests.check.plant import MS, S, check, failed, shown
from tests.check.striped.test_messages import (
    LOSSES,
    LOST,
    MESSAGES,
    OF_CSA_UD,
    OF_RUNS,
    PACKETS,
    TAIL,
    _retransmitted,
    arrives_twice,
    arrives_with_other_bytes,
    completes_with_a_hole,
    counts_attempts_that_were_not,
    counts_no_attempt,
    every,
    is_never_repaired,
    is_retransmitted_with_other_bytes,
    ours,
    uses_an_id_that_is_live,
)
from tests.check.striped_tape import BACK_UP, DOWN, UP, first, record, second
from tests.transports.pair_rig import CONTROL

RULES = {rule.name for rule in SUITE.rules}
NATIVE = ("irn", "srnic")
NOT_THEIRS = OF_RUNS | OF_CSA_UD | {"sr.other-path", "recovery.detected"}
MIDDLE = (first(4, 5),)  # with many behind it that tell


def answers(tape, link=BACK_UP):
    """Numbers of the answers to packets, and what they say."""
    found = []
    for number in range(1, len(tape) + 1):
        fields = tape.lab(number)
        if tape.frame(number).interface == link and fields["kind"] == CONTROL:
            sent = feedback.parse_feedback(fields["payload"])
            if sent is not None:
                found.append((number, sent))
    return found


def in_run(folder, tape, transport, faults=(), timing=None):
    """Its verdicts in a run directory that tells transport, timers and faults."""
    run = {
        "run": f"{transport}/1", "transport": transport, "protocol": transport, "seed": 1,
        "clock": "virtual", "capture": {"file": "trace.pcapng"},
        "timing": timing or document(Timing(), EngineTiming()),
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps({"runs": [run], "faults": faults}))
    tape.write(folder / "trace.pcapng")
    return check(folder, of=suites.Format.LAB)


@pytest.mark.parametrize("transport", NATIVE)
@pytest.mark.parametrize("where", [in_run, None], ids=["in a run", "alone"])
def test_they_keep_every_rule(tmp_path, transport, where):
    tape = record(transport, LOSSES)
    verdicts = where(tmp_path, tape, transport) if where else tape.check(tmp_path)
    assert ours(verdicts, Outcome.PASS) == RULES - NOT_THEIRS
    assert not failed(verdicts)
    assert verdicts["sr.repaired"].checked == LOST
    assert verdicts["sr.only-holes"].checked >= LOST
    assert verdicts["once.whole"].checked == MESSAGES
    assert verdicts["once.told"].checked >= MESSAGES * PACKETS


def test_what_may_be_wrong_is_not_told_without_the_other_direction(tmp_path):
    verdicts = in_run(tmp_path, record("irn", LOSSES).only(UP, DOWN), "irn")
    assert not failed(verdicts)
    assert "was not captured" in verdicts["sr.only-holes"].note


# ---------------------------------------------------------------- planted faults


def retransmits_what_was_reported(tape):
    (sent,) = tape.data(message=4, index=5, link=UP)
    end = len(tape) + 1
    tape.copy(sent, before=end, time_ns=tape.frames[-1].time_ns + S)
    tape.alter(end, **_retransmitted(tape, sent))
    return {end}


def retransmits_without_a_sign(tape):
    """At once, and nothing behind it has been heard of."""
    (sent,) = tape.data(message=4, index=19, attempt=0, link=UP)
    tape.copy(sent, before=sent + 1)
    tape.alter(sent + 1, **_retransmitted(tape, sent))
    return {sent + 1}


def _carries(tape, number, body):
    for each in tape.everywhere(number):
        tape.alter(each, payload=body)


def calls_a_packet_there_that_is_lost(tape):
    """The first answer that stops at the hole goes past it."""
    number = next(number for number, sent in answers(tape) if sent.id == 4 and sent.cumulative == 5)
    body = bytearray(tape.lab(number)["payload"])
    struct.pack_into(">I", body, 5, 6)
    _carries(tape, number, bytes(body))
    return {number}


def names_a_packet_that_has_not_come(tape):
    """Of a NACK the one that it is for, of a SACK one bit more."""
    number, sent = next((n, sent) for n, sent in answers(tape) if sent.id == 4 and sent.packets)
    body = bytearray(tape.lab(number)["payload"])
    if feedback.IRN in sent.transports:
        struct.pack_into(">I", body, 13, 21)
    else:
        bits = struct.unpack_from(">Q", body, 17)[0]
        struct.pack_into(">Q", body, 17, bits | 1 << 21)
    _carries(tape, number, bytes(body))
    return {number}


def answers_what_was_never_sent(tape):
    number, _ = answers(tape)[-1]
    body = bytearray(tape.lab(number)["payload"])
    struct.pack_into(">I", body, 1, 77)
    _carries(tape, number, bytes(body))
    return {number}


def sends_the_second_attempt_first(tape):
    (sent,) = tape.data(message=4, index=5, attempt=0, link=UP)
    every(tape, sent, attempt=1)
    return {sent}


PLANTED = [
    (completes_with_a_hole, TAIL, {"once.whole", "once.told"}),
    (is_never_repaired, TAIL, {"sr.repaired"}),
    (retransmits_what_was_reported, TAIL, {"sr.only-holes"}),
    (retransmits_without_a_sign, TAIL, {"sr.only-holes"}),
    (calls_a_packet_there_that_is_lost, MIDDLE, {"once.told"}),
    (names_a_packet_that_has_not_come, MIDDLE, {"once.told"}),
    (answers_what_was_never_sent, TAIL, {"once.ack-known"}),
    (is_retransmitted_with_other_bytes, TAIL, {"once.bytes"}),
    (arrives_with_other_bytes, TAIL, {"once.bytes"}),
    (arrives_twice, TAIL, {"once.copies"}),
    (counts_no_attempt, TAIL, {"sr.attempts"}),
    (counts_attempts_that_were_not, TAIL, {"sr.attempts"}),
    (sends_the_second_attempt_first, MIDDLE, {"sr.attempts"}),
    (uses_an_id_that_is_live, TAIL, {"once.id"}),
]


@pytest.mark.parametrize("transport", NATIVE)
@pytest.mark.parametrize(
    ("plant", "losses", "rules"), [pytest.param(*each, id=each[0].__name__) for each in PLANTED]
)
def test_a_planted_fault_is_found(tmp_path, transport, plant, losses, rules):
    planted = record(transport, losses)
    assert not failed(in_run(tmp_path, planted, transport))
    frames = plant(planted)
    verdicts = in_run(tmp_path, planted, transport)
    assert rules <= failed(verdicts)
    if frames:
        assert frames <= set.union(*(shown(verdicts[rule]) for rule in rules))


def test_alone_a_retransmission_of_what_was_told_of_is_found_too(tmp_path):
    planted = record("irn", LOSSES)
    frames = retransmits_what_was_reported(planted)
    verdicts = planted.check(tmp_path)
    assert failed(verdicts) == {"sr.only-holes"}
    assert frames <= shown(verdicts["sr.only-holes"])


@pytest.mark.parametrize(
    ("fault", "link", "may_be_late"),
    [
        ("reorder 5% by 2s", "s1->h1", True),
        ("reorder 5% gap 5 by 2s only control", "s1->h1", True),
        ("delay 3s 2s", "s1->h1", True),
        ("delay 3s 500ms distribution normal reorder allow", "s1->h1", True),
        ("delay 3s 500ms", "s1->h1", False),
        ("delay 1us at 2s for 3s", "s1->h1", False),
        ("reorder 5%", "s1->h1", False),
        ("reorder 5% by 50us", "s1->h1", False),
        ("reorder 5% by 2s", "h1->s1", False),
    ],
)
def test_an_answer_may_be_as_late_as_the_link_behind_the_capture_makes_it(
    tmp_path, fault, link, may_be_late
):
    """The sender acts on it a second after it was seen there."""
    tape = record("irn", TAIL)
    retransmits_what_was_reported(tape)
    verdicts = in_run(tmp_path, tape, "irn", [{"rule": "x", "fault": fault, "links": [link]}])
    assert failed(verdicts) == (set() if may_be_late else {"sr.only-holes"})


def test_the_second_loss_of_a_packet_is_the_timers(tmp_path):
    """No gap tells of it: that is no violation, and neither is what the timer retransmits in
    vain.
    """
    for transport in NATIVE:
        tape = record(transport, (first(4, 5), second(4, 5)))
        verdicts = in_run(tmp_path, tape, transport)
        assert not failed(verdicts)
        assert verdicts["sr.repaired"].checked == 2


@pytest.mark.parametrize("transport", NATIVE)
@pytest.mark.parametrize(("open_ms", "may_follow"), [(158, True), (162, False)])
def test_of_a_run_without_rto_high_it_is_the_papers_share_of_its_round_trip(
    tmp_path, transport, open_ms, may_follow
):
    """Of 6 ms it is 80. What is lost may be sent again two of them later."""
    tape = record(transport, TAIL)
    answer, _ = answers(tape)[0]
    gone = tape.data(message=4, index=19, link=DOWN)[0]
    last = dataclasses.replace(tape.frame(answer), time_ns=tape.frame(gone).time_ns + open_ms * MS)
    tape.frames = [*tape.frames[:gone], last]
    verdict = in_run(tmp_path, tape, transport, timing={"initial_rtt_ns": 6 * MS})["sr.repaired"]
    assert verdict.outcome is (Outcome.INCONCLUSIVE if may_follow else Outcome.FAIL)
