# SPDX-License-Identifier: GPL-2.0-or-later
"""Captures with faults and without: each fault is found, with its packets, and nothing else is.

A function makes a capture; its decorator says which rules it violates. What the function returns
besides are the frames that prove it to the first of these rules.
"""

import pytest

from softroce_lab.check.verdict import Outcome
from tests.check.plant import (
    AT_REQUESTER,
    AT_RESPONDER,
    MS,
    NAK_SEQUENCE,
    READ,
    REQUESTER,
    RNR_NAK,
    SEND_FIRST,
    SEND_LAST,
    SEND_MIDDLE,
    WRITE_ONLY,
    S,
    Talk,
    Tape,
    failed,
    shown,
)

MTU = 256
FULL = bytes(MTU)
LOSS, NAKS, RC, UC, UD, BOTH = (
    "rxe_verbs_loss", "rxe_verbs_nak", "rxe_verbs_rc", "rxe_uc", "rxe_ud_pp", "rxe_verbs_uc_ud",
)  # fmt: skip
WRITE_FIRST, FETCH_ADD, ATOMIC_ACKNOWLEDGE = 6, 20, 18
READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY = 13, 14, 15, 16
UC_MIDDLE, UC_LAST, UC_WRITE_FIRST = 0x21, 0x22, 0x26
NAK_ACCESS, QP1_QKEY = 0x62, 0x80010000
PSN = 5_000_000

CASES = []


def case(*rules, also=False, **wanted):
    """`also`: other rules may be violated, and other frames be shown, too.

    Of `wanted`, `says` has texts of verdicts, by rule; `decided` how often rules were decided;
    `arguments` those of the function; the rest are options of the check.
    """

    def register(make):
        name = "-".join(map(str, (make.__name__, *wanted.get("arguments", ()))))
        CASES.append(pytest.param(make, rules, also, dict(wanted), id=name))
        return make

    return register


@pytest.mark.parametrize(("make", "rules", "also", "options"), CASES)
def test_what_is_planted_is_found(make, rules, also, options, tmp_path):
    says, decided = options.pop("says", {}), options.pop("decided", {})
    made = make(*options.pop("arguments", ()))
    tape, frames = made if isinstance(made, tuple) else (made, None)
    verdicts = tape.check(tmp_path, **options)
    assert set(rules) <= failed(verdicts) if also else failed(verdicts) == set(rules)
    if frames and rules:
        found = shown(verdicts[rules[0]])
        assert frames <= found if also else frames == found
    for rule, text in says.items():
        output = [verdicts[rule].note, *(each.text for each in verdicts[rule].exhibits)]
        assert any(text in each for each in output), output
    assert {rule: verdicts[rule].checked for rule in decided} == decided


def plain(count=6, first=100):
    """Each request is acknowledged."""
    talk = Talk()
    for number in range(count):
        talk.ask(first + number)
        talk.ack(first + number, number + 1)
    return talk


def first_of(name, opcode):
    """A recorded capture, and its first frame of an opcode."""
    tape = Tape.of(name)
    return tape, tape.find(opcode=opcode)[0]


# ---------------------------------------------------------------- what is requested


@case("rc.psn-continuity")
def a_skipped_psn_is_told_from_a_missed_one_by_the_msn():
    talk = plain()
    for number in range(7, len(talk) + 1):  # the fourth message on
        talk.alter(number, psn=talk.fields(number)["psn"] + 1)
    return talk, {5, 7}


@case("integrity.unseen", says={"integrity.unseen": "PSN 103"})
def a_request_that_the_capture_missed():
    talk = plain()
    talk.delete(7)
    return talk


@case(says={"rc.psn-continuity": "inconclusive"})
def a_psn_that_was_never_acknowledged_may_have_been_lost():
    talk = Talk()
    for psn in (1, 2, 4, 5):
        talk.ask(psn)
    return talk


@case("rc.psn-continuity", at=AT_REQUESTER)
def a_gap_at_the_requester():
    talk = Talk()
    for psn in (1, 2, 4):
        talk.ask(psn)
    talk.ack(2, 2)
    return talk, {3}


@case("integrity.unseen")
def a_first_packet_that_was_missed_was_not_skipped():
    """Its Last is there, so that the message was, whatever the MSNs say."""
    talk = plain(1)
    missed = talk.ask(101, SEND_FIRST, FULL)
    talk.ask(102, SEND_LAST)
    talk.ack(102, 2)
    talk.delete(missed)
    return talk


@case("rc.psn-continuity", "integrity.unseen")
def a_psn_of_a_read_is_used_again_whatever_the_capture_missed():
    talk = plain(1, first=9)
    missed = talk.ask(10)
    talk.ask(11, SEND_FIRST, FULL)
    talk.ask(12, SEND_LAST)
    talk.ack(12, 3)
    read = talk.ask(13, READ, b"", dmalen=3 * MTU)
    other = talk.ask(14)
    talk.delete(missed)
    return talk, {read - 1, other - 1}


@case("rc.opcode-sequence", "rc.msn-right", also=True)
def a_wrong_order_of_opcodes():
    tape, middle = first_of(RC, SEND_MIDDLE)
    tape.alter(middle, opcode=SEND_LAST)
    return tape, {middle}


@case("rc.length")
def a_middle_packet_that_is_not_full():
    tape, middle = first_of(RC, SEND_MIDDLE)
    tape.alter(middle, payload=bytes(100))
    return tape, {middle}


@case("rc.length", also=True)
def a_write_that_is_shorter_than_its_reth_says():
    tape, first = first_of(RC, WRITE_FIRST)
    tape.alter(first, dmalen=tape.fields(first)["dmalen"] + 4)
    return tape, {first}


@case("rc.retransmit-same", says={"rc.retransmit-same": "payload"})
def another_payload_when_it_is_sent_again():
    talk = Talk()
    numbers = {talk.ask(100, payload=payload) for payload in (b"then", b"next")}
    talk.ack(100, 1)
    return talk, numbers


@case(says={"rc.retransmit-same": "overwritten"})
def a_payload_may_change_once_the_responder_has_it():
    """As where a ring collective receives into memory whose acknowledgement was lost."""
    talk = Talk()
    for payload in (b"then", b"next"):
        talk.ask(100, payload=payload)
        talk.ack(100, 1)
    return talk


@case("rc.retransmit-same", says={"rc.retransmit-same": "remote address"})
def a_read_requested_again_at_another_address():
    tape = Tape.of(LOSS)
    psns = [tape.fields(number)["psn"] for number in tape.find(opcode=READ)]
    twice = next(n for n in tape.find(opcode=READ) if psns.count(tape.fields(n)["psn"]) > 1)
    tape.alter(twice, va=tape.fields(twice)["va"] + 8)
    return tape


# ---------------------------------------------------------------- retransmissions


@case("rc.go-back-n", also=True, arguments=(4, 0), at=AT_REQUESTER)
@case("rc.go-back-n", also=True, arguments=(1, 200), at=AT_REQUESTER)
@case(arguments=(3, 0), at=AT_REQUESTER)
@case(arguments=(1, 200), says={"rc.go-back-n": "inconclusive"})
@case(arguments=(4, 200), says={"rc.go-back-n": "inconclusive"})
def sending_again_from(resume, known_ms):
    """PSN 3 gets lost: behind the gap, or what was acknowledged long ago, is wrong."""
    talk = Talk()
    for psn in range(6):
        talk.ask(psn)
    talk.ack(1, 2)
    talk.wait(known_ms * MS)
    nak = talk.ack(3, 3, syndrome=NAK_SEQUENCE)
    again = talk.ask(resume)
    for psn in range(resume + 1, 6):
        talk.ask(psn)
    talk.ack(5, 6)
    return talk, {nak, again}


@case("rc.go-back-n", also=True, at=AT_REQUESTER)
def sending_only_the_missing_packet_again():
    talk = Talk()
    for psn in range(6):
        talk.ask(psn)
    nak = talk.ack(3, 3, syndrome=NAK_SEQUENCE)
    talk.ask(3)
    jumps = talk.ask(6)
    talk.ack(6, 7)
    return talk, {nak, jumps}


@case("rc.retry-limit", arguments=(9,))
@case("rc.retry-limit", arguments=(4,), retry_count=2)
@case(arguments=(8,))
@case(arguments=(3,), retry_count=2)
@case(arguments=(1,), retry_count=0)
def insisting(times):
    talk = Talk()
    talk.ask(1)
    talk.ack(1, 1)
    for _ in range(times):
        talk.ask(2)
        talk.wait(200 * MS)
    return talk


@case("rc.rnr-wait", says={"rc.rnr-wait": "10 us"})
def an_rnr_timer_that_is_not_waited_for():
    tape = Tape.of(NAKS)
    refusal = tape.find(syndrome=RNR_NAK | 1)[0]
    psn = tape.fields(refusal)["psn"]
    again = next(n for n in tape.find(psn=psn, opcode=SEND_FIRST) if n > refusal)
    for number in range(refusal + 1, again + 1):
        tape.frame(number).time_ns = tape.frame(refusal).time_ns + 5_000
    return tape, {refusal, again}


@case("rc.credits", arguments=(2, 200))
@case("rc.credits", arguments=(2, 0), at=AT_REQUESTER)
@case("rc.credits", arguments=(2, 100))
@case(arguments=(2, 99), decided={"rc.credits": 0})
@case(arguments=(5, 200), decided={"rc.credits": 5})
def lending(limit_code, known_ms):
    """Two or six credits, and five messages: the requester must have heard of the credits."""
    talk = Talk()
    talk.ask(1)
    given = talk.ack(1, 1, syndrome=limit_code)
    talk.wait(known_ms * MS)
    asked = [talk.ask(psn) for psn in range(2, 7)]
    return talk, {given, *asked[2:]}


@case(decided={"rc.credits": 3})
def one_message_beyond_the_credits_may_go_alone():
    talk = Talk()
    for psn in range(1, 5):
        talk.wait(200 * MS)
        talk.ask(psn)
        talk.ack(psn, psn, syndrome=0)
    return talk


# ---------------------------------------------------------------- what is answered


@case("rc.nak-once-per-gap")
def two_naks_for_one_gap():
    tape = Tape.of(LOSS)
    nak = tape.find(syndrome=NAK_SEQUENCE)[0]
    tape.copy(nak, before=nak + 2)
    return tape, {nak, nak + 2}


@case("rc.nak-for-gap", arguments=(200,), at=AT_RESPONDER)
@case(arguments=(50,), at=AT_RESPONDER, says={"rc.nak-for-gap": "inconclusive"})
def a_gap_without_a_nak(at_ms):
    talk = plain(1, first=0)
    early = [talk.ask(psn) for psn in (2, 3)]
    talk.wait(at_ms * MS)
    again = [talk.ask(psn) for psn in (1, 2, 3)]
    talk.ack(3, 4)
    return talk, {early[0], again[0]}


@case("rc.nak-names-gap")
def a_nak_without_a_gap():
    talk = plain()
    talk.ask(106)
    return talk, {talk.ack(106, 6, syndrome=NAK_SEQUENCE)}


@case("rc.nak-names-gap", at=AT_RESPONDER)
@case()
def a_nak_of_what_has_come():
    """Unless the capture is of the responder's link, it may have been lost."""
    talk = Talk()
    for psn in range(4):
        talk.ask(psn)
    talk.ack(1, 2)
    talk.wait(200 * MS)
    return talk, {3, talk.ack(2, 2, syndrome=NAK_SEQUENCE)}


@case("rc.nak-names-gap", arguments=(3,), at=AT_RESPONDER)
@case(arguments=(2,), at=AT_RESPONDER)
def a_nak_of_the_second_gap(named):
    """PSNs 2 and 3 are missing, and all that leaves and reaches the responder is there."""
    talk = plain(2, first=0)
    early = talk.ask(4)
    nak = talk.ack(named, named, syndrome=NAK_SEQUENCE)
    for psn in (2, 3, 4):
        talk.ask(psn)
    talk.ack(4, 5)
    return talk, {early, nak}


@case("rc.ack-order", also=True, at=AT_RESPONDER)
@case(also=True, at=AT_REQUESTER, says={"rc.ack-order": "may have reordered"})
def acknowledgements_in_reverse():
    talk = Talk()
    talk.ask(1)
    talk.ask(2)
    talk.ack(2, 2)
    talk.ack(1, 1)
    return talk


@case("rc.ack-order", "rc.msn-right", also=True)
def an_acknowledgement_that_goes_back():
    talk = plain()
    return talk, {talk.ack(101, 6)}


@case(arguments=(99, 4))
@case(arguments=(101, 4, 3))
@case("rc.ack-order", "rc.msn-right", arguments=(98, 4))
@case("rc.msn-right", arguments=(99, 5))
@case("rc.msn-monotonic", arguments=(99, 3))
def a_duplicate_behind_reads(acknowledged, msn, times=1):
    """Two SENDs, two READs, and the second SEND again: with the results behind it or without."""
    talk = plain(2, first=98)
    for psn in (100, 101):
        talk.ask(psn, READ, b"", dmalen=64)
        talk.ack(psn, psn - 97, opcode=READ_ONLY, payload=bytes(64))
    for _ in range(times):
        talk.wait(200 * MS)
        talk.ask(99)
        talk.ack(acknowledged, msn)
    return talk


@case("integrity.unseen")
def duplicates_prove_no_hole_to_be_empty():
    """The capture misses a message; the MSNs tell that it was there."""
    talk = a_duplicate_behind_reads(99, 4, times=3)
    for psn in (103, 104):
        talk.ask(psn)
        talk.ack(psn, psn - 97)
    return talk


@case("rc.ack-order", also=True)
def a_nak_goes_back_over_reads():
    talk = a_duplicate_behind_reads(99, 4)
    talk.ask(103)
    naks = {talk.ack(102, 4, syndrome=NAK_SEQUENCE)}
    talk.ask(104)
    return talk, naks | {talk.ack(100, 4, syndrome=NAK_SEQUENCE)}


@case("rc.msn-right")
def a_nak_of_a_read_that_counts_it():
    talk = plain(3, first=96)
    talk.ask(99, READ, b"", dmalen=64)  # lost behind the capture
    talk.ask(100)
    nak = talk.ack(99, 4, syndrome=NAK_SEQUENCE)  # of 3 messages
    talk.wait(MS)
    talk.ask(99, READ, b"", dmalen=64)
    talk.ack(99, 4, opcode=READ_ONLY, payload=bytes(64))
    talk.ask(100)
    talk.ack(100, 5)
    return talk, {nak}


@case("rc.ack-of-sent", also=True)
def an_acknowledgement_of_what_was_not_sent_yet():
    talk = plain()
    talk.alter(4, psn=103, msn=4)
    return talk, {4, 5}


@case("rc.msn-monotonic", "rc.msn-right", says={"rc.msn-right": "where 4 is due"})
def an_msn_that_goes_back():
    talk = plain()
    talk.alter(8, msn=2)
    return talk, {6, 8}


@case("rc.duplicate-acknowledged", arguments=(False,), at=AT_RESPONDER)
@case(arguments=(True,), at=AT_RESPONDER)
def a_duplicate(answered):
    talk = plain()
    talk.wait(200 * MS)
    first = talk.ask(105)
    if answered:
        talk.ack(105, 6)
    talk.wait(200 * MS)
    talk.ask(105)
    talk.ack(105, 6)
    return talk, {first}


@case("rc.duplicate-acknowledged", arguments=(2,), at=AT_RESPONDER)
@case(arguments=(1,), at=AT_RESPONDER)
def a_duplicate_before_a_read_is_left_to_its_result_once(returns):
    """The READ behind it is retransmitted, too; a requester that returns without it is not."""
    talk = a_duplicate_behind_reads(99, 4, times=0)
    for _ in range(returns):
        talk.wait(200 * MS)
        last_left = talk.ask(99)
    talk.wait(200 * MS)
    talk.ask(99)
    talk.ack(99, 4)
    return talk, {last_left}


@case("rc.in-order")
def what_came_too_early_is_accepted():
    talk = plain(1, first=1)
    early, *_ = [talk.ask(psn) for psn in (3, 4, 2)]
    accepted = talk.ack(4, 4)
    talk.ask(5)
    talk.ack(5, 5)
    return talk, {early, accepted}


@case("rc.error-is-final", also=True)
def an_acknowledgement_after_a_fatal_nak():
    tape = Tape.of(NAKS)
    fatal = tape.find(syndrome=NAK_ACCESS)[0]
    tape.copy(fatal, before=fatal + 1)
    tape.alter(fatal + 1, syndrome=0x1F)
    return tape, {fatal, fatal + 1}


# ---------------------------------------------------------------- results


@case("rc.read-response", "rc.results-complete")
def a_response_that_is_missing():
    tape, middle = first_of(RC, READ_MIDDLE)
    tape.delete(middle)
    return tape


@case("rc.read-response", "rc.results-complete", also=True)
def a_response_of_a_wrong_psn():
    tape, middle = first_of(RC, READ_MIDDLE)
    tape.alter(middle, psn=tape.fields(middle)["psn"] + 1)
    return tape, {middle}


@case("rc.read-response", also=True)
def a_response_of_a_wrong_opcode():
    tape, middle = first_of(RC, READ_MIDDLE)
    tape.alter(middle, opcode=READ_FIRST, syndrome=0x1F, msn=tape.fields(middle - 1)["msn"])
    return tape, {middle}


@case("rc.read-response", says={"rc.read-response": "8 bytes"})
def a_response_that_is_too_short():
    tape, middle = first_of(RC, READ_MIDDLE)
    tape.alter(middle, payload=bytes(8))
    return tape


@case("rc.result-kind", also=True)
def a_read_that_is_answered_as_an_atomic():
    tape, only = first_of(RC, READ_ONLY)
    tape.alter(only, opcode=ATOMIC_ACKNOWLEDGE, origremdt=0, payload=b"")
    return tape, {only}


@case("rc.atomic-once")
def an_atomic_that_was_done_twice():
    talk = Talk()
    for value in (7, 12):
        talk.ask(1, FETCH_ADD, b"", swapdt=5)
        talk.wait(MS)
        talk.ack(1, 1, opcode=ATOMIC_ACKNOWLEDGE, origremdt=value)
    return talk, {2, 4}


@case("rc.msn-right", arguments=(1,))
@case("rc.msn-right", arguments=(3,))
@case(arguments=(2,))
def the_msn_of_a_read_response(msn):
    talk = begun()
    talk.ask(12, READ, b"", dmalen=4)
    answer = talk.ack(12, msn, opcode=READ_ONLY, payload=b"word")
    return talk, {answer}


@case()
def a_read_response_sent_again_counts_what_came_since():
    talk, _ = the_msn_of_a_read_response(2)
    talk.ask(13)
    talk.ack(13, 3)
    talk.wait(MS)
    talk.ask(12, READ, b"", dmalen=4)
    talk.ack(12, 3, opcode=READ_ONLY, payload=b"word")
    return talk


@case("integrity.unseen", arguments=(True,))
@case(arguments=(False,))
def a_request_that_was_missed_is_not_held_against_its_result(is_missed):
    """Requested again in the capture, an atomic seems to be answered before it was sent."""
    talk = begun()
    missed = talk.ask(12, FETCH_ADD, b"", swapdt=1)
    answer = talk.ack(12, 2, opcode=ATOMIC_ACKNOWLEDGE)
    talk.wait(MS)
    talk.ask(12, FETCH_ADD, b"", swapdt=1)
    talk.ack(12, 2, opcode=ATOMIC_ACKNOWLEDGE)
    if is_missed:
        talk.delete(missed)
    return talk, {answer - 1}


# ---------------------------------------------------------------- proven, whatever was missed


def begun():
    """A connection whose path MTU First packets tell."""
    talk = Talk()
    talk.ask(10, SEND_FIRST, FULL)
    talk.ask(11, SEND_LAST)
    talk.ack(11, 1)
    return talk


def incomplete(talk):
    """Its statistics admit missed packets: `integrity.missed` is violated."""
    talk.statistics = {0: (len(talk) + 5, 5)}
    return talk


@case("rc.nak-once-per-gap", "integrity.missed", also=True, arguments=(WRITE_ONLY,))
@case("integrity.missed", arguments=(4,))
def a_second_nak(opcode):
    """Of a WRITE; that of a SEND may follow an RNR NAK that was missed."""
    talk, naks = begun(), set()
    for _ in range(2):
        talk.ask(13, opcode, **({"dmalen": 4} if opcode == WRITE_ONLY else {}))
        naks.add(talk.ack(12, 1, NAK_SEQUENCE))
    talk.wait(MS)
    talk.ask(12, opcode, **({"dmalen": 4} if opcode == WRITE_ONLY else {}))
    talk.ack(12, 2)
    return incomplete(talk), naks if opcode == WRITE_ONLY else None


@case("rc.read-response", "integrity.missed", also=True, arguments=(READ_FIRST, 12))
@case("rc.read-response", "integrity.missed", also=True, arguments=(READ_LAST, 13))
def a_read_response_that_is_cut_short(opcode, psn):
    talk = begun()
    talk.ask(12, READ, b"", dmalen=MTU + 100)
    cut = talk.ack(psn, 2, opcode=opcode, payload=bytes(40))
    return incomplete(talk), {cut}


@case("rc.error-is-final", "integrity.missed", also=True)
def an_acknowledgement_behind_a_fatal_nak():
    talk = begun()
    talk.ask(12, WRITE_ONLY, dmalen=4)
    fatal = talk.ack(12, 1, NAK_ACCESS)
    talk.ask(13, WRITE_ONLY, dmalen=4)
    return incomplete(talk), {fatal, talk.ack(13, 3)}


@case("rc.syndrome", also=True, arguments=(0x40,))
@case("rc.syndrome", also=True, arguments=(0x65,))
@case("rc.syndrome", also=True, arguments=(0x80,))
@case("rc.syndrome", also=True, arguments=(0xFF,))
@case("rc.syndrome", also=True, arguments=(NAK_SEQUENCE, READ_ONLY))
def a_syndrome_that_may_not_be(syndrome, opcode=17):
    talk = begun()
    talk.ask(12, *(() if opcode == 17 else (READ, b"")), **({} if opcode == 17 else {"dmalen": 4}))
    payload = b"" if opcode == 17 else b"word"
    return incomplete(talk), {talk.ack(12, 2, syndrome, opcode, payload)}


@pytest.mark.parametrize("syndrome", [0x00, 0x1F, 0x20, 0x3F, 0x60, 0x61, 0x62, 0x63])
def test_a_defined_syndrome_is_fine(syndrome, tmp_path):
    talk = begun()
    talk.ask(12)
    talk.ack(12, 2, syndrome)
    assert "rc.syndrome" not in failed(talk.check(tmp_path))


@case("rc.pkey", "integrity.missed", arguments=(1,))
@case("rc.pkey", "integrity.missed", arguments=(3,))
def a_pkey_that_changes_in_one_packet(number):
    talk = begun()
    for psn in range(12, 15):
        talk.ask(psn)
        talk.ack(psn, psn - 10)
    talk.alter(number, **{"infiniband.bth.p_key": 0x8123})
    return incomplete(talk), {number}


@case("icrc.right", says={"icrc.right": "0x12345678"})
def a_wrong_icrc():
    talk = plain()
    talk.alter(2, icrc=0x12345678)
    return talk, {2}


@case("rc.in-order", "icrc.right")
def what_has_a_wrong_icrc_is_accepted():
    talk = plain()
    talk.alter(5, icrc=0)
    return talk, {5}


# ---------------------------------------------------------------- one connection after another


def converse(tape, psn):
    """Five messages, acknowledged one by one."""
    for number in range(5):
        at = (psn + number) % (1 << 24)
        tape.ask(at)
        tape.ack(at, number + 1)
    tape.wait(S)
    return tape


@case(arguments=(2_000_000, 5_500_000), decided={"rc.msn-right": 15})
@case(arguments=(16_000_000, 5_500_000), decided={"rc.msn-right": 15})
@case(arguments=(PSN + 2,), decided={"rc.msn-right": 10})
def a_connection_that_follows_another_is_not_judged_by_it(*psns):
    tape = converse(Talk(), PSN)
    for psn in psns:
        converse(tape, psn)
    return tape


@case(decided={"rc.error-is-final": 2})
def a_connection_of_as_many_messages_follows_another():
    tape = Talk()
    for size in (4, 8):  # one that is taken, and one that ends the connection
        tape.ask(PSN, payload=bytes(size))
        tape.ack(PSN, 1)
        tape.ask(PSN + 1)
        tape.ack(PSN + 1, 1, syndrome=NAK_ACCESS)
        tape.wait(S)
    return converse(tape, PSN)


@case("rc.msn-monotonic", also=True, arguments=(PSN, 3, 5))
@case("rc.msn-monotonic", also=True, arguments=(PSN + 3, 4, 4))
def a_retransmission_from_far_back_is_no_new_connection(psn, before, behind):
    tape = converse(Talk(), PSN)
    tape.ack(PSN + 4, before)
    tape.ask(psn)
    tape.ack(PSN + 4, behind)
    return tape


@case("rc.retransmit-same")
def a_first_message_sent_again_with_other_data_is_no_new_connection():
    tape = Talk()
    tape.ask(PSN)
    tape.wait(S)
    tape.ask(PSN, payload=b"else")
    tape.ack(PSN, 1)
    return tape


# ---------------------------------------------------------------- UC and UD


def at_source(tape, number):
    """Where the host is that sent this packet."""
    return (bytes(10) + b"\xff\xff" + tape.fields(number)["source"].to_bytes(4, "big"),)


@pytest.mark.parametrize("name", [UC, UD])
def test_a_psn_that_is_skipped(name, tmp_path):
    tape = Tape.of(name)
    mine = tape.find(source=tape.fields(5)["source"], opcode=UC_MIDDLE if name == UC else 0x64)
    at = at_source(tape, mine[4])
    assert failed(tape.check(tmp_path, at=at)) == set()
    tape.delete(mine[4])
    rule = f"{'uc' if name == UC else 'ud'}.psn-continuity"
    assert failed(tape.check(tmp_path, at=at)) == {rule}
    assert tape.frames[0].data[26:30] != REQUESTER.to_bytes(4, "big")
    verdicts = tape.check(tmp_path, at=AT_REQUESTER)  # another host: it may have been lost
    assert failed(verdicts) == set()
    assert verdicts[rule].outcome is Outcome.PASS
    assert "1 inconclusive" in verdicts[rule].note


@case("uc.once", arguments=(None,))
@case(arguments=("duplicated: duplicate 1%, rule twice",))
def a_uc_packet_that_is_there_twice(comment):
    """Sent again, or copied by the injector."""
    tape, middle = first_of(UC, UC_MIDDLE)
    tape.frame(middle).comment = comment
    tape.copy(middle, before=middle + 2)
    return tape, {middle, middle + 2}


@case("uc.opcode-sequence", also=True)
def a_wrong_order_of_opcodes_of_uc():
    tape, middle = first_of(UC, UC_MIDDLE)
    tape.alter(middle, opcode=UC_LAST)
    return tape, {middle}


@case("uc.length")
def a_middle_packet_of_uc_that_is_not_full():
    tape, middle = first_of(UC, UC_MIDDLE)
    tape.alter(middle, payload=bytes(64))
    return tape, {middle}


@case("uc.length", says={"uc.length": "2000 bytes"})
def a_write_of_uc_that_is_shorter_than_its_reth_says():
    tape, first = first_of(BOTH, UC_WRITE_FIRST)
    tape.alter(first, dmalen=2000)
    return tape


@case("uc.no-answers", also=True)
def an_acknowledgement_to_uc():
    tape, middle = first_of(UC, UC_MIDDLE)
    tape.copy(middle, before=middle + 1)
    tape.alter(middle + 1, opcode=17, payload=b"", syndrome=0x1F, msn=1)
    return tape, {middle + 1}


@case("ud.qkey")
def a_wrong_qkey():
    tape = Tape.of(UD)
    tape.alter(7, q_key=0x22222222)
    return tape, {7}


@case("ud.qkey", decided={"ud.qkey": 4})
def the_qkey_of_qp_1_is_known():
    tape = Tape.of("rxe_ud")
    mads = [frame for n, frame in enumerate(tape.frames, 1) if tape.fields(n).get("qp") == 1]
    tape.frames = mads
    for number in range(1, len(tape) + 1):
        assert tape.fields(number)["q_key"] == QP1_QKEY
        tape.alter(number, q_key=0x11111111)
    return tape


@case("ud.length", path_mtu=512)
def a_datagram_longer_than_the_path_mtu():
    return Tape.of(UD)


@case("ud.source-qp")
def a_datagram_from_nobody():
    tape = Tape.of(UD)
    tape.alter(9, srcqp=0)
    return tape, {9}


@case("ud.psn-continuity", also=True)
def one_psn_for_two_datagrams():
    tape = Tape.of(UD)
    one, other = tape.find(source=tape.fields(5)["source"])[2:4]
    tape.alter(other, psn=tape.fields(one)["psn"], payload=b"another")
    return tape, {one, other}
