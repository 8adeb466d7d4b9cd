# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults planted in captures of reliable connections: each is found, with the packets."""

import pytest

from softroce_lab.check.verdict import Outcome
from tests.check.plant import (
    AT_REQUESTER,
    AT_RESPONDER,
    MS,
    NAK_SEQUENCE,
    READ,
    RNR_NAK,
    SEND_FIRST,
    SEND_LAST,
    SEND_MIDDLE,
    Talk,
    Tape,
    failed,
    shown,
)

MTU = 256
FULL = bytes(MTU)
LOSS, NAKS, RC = "rxe_verbs_loss", "rxe_verbs_nak", "rxe_verbs_rc"
ATOMIC_ACKNOWLEDGE, READ_FIRST, READ_MIDDLE, READ_ONLY = 18, 13, 14, 16
WRITE_FIRST = 6
NAK_ACCESS = 0x62


def plain(count=6, first=100):
    """A talk without faults: each request is acknowledged."""
    talk = Talk()
    for number in range(count):
        talk.ask(first + number)
        talk.ack(first + number, number + 1)
    return talk


def test_a_plain_talk_is_fine(tmp_path):
    assert failed(plain().check(tmp_path)) == set()


# ---------------------------------------------------------------- what is asked


def test_a_psn_that_is_skipped_is_told_from_one_that_was_missed_by_the_msn(tmp_path):
    talk = plain()
    for number in range(7, len(talk) + 1):  # the fourth message on
        talk.alter(number, psn=talk.fields(number)["psn"] + 1)
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == {"rc.psn-continuity"}
    assert shown(verdicts["rc.psn-continuity"]) == {5, 7}


def test_a_request_that_the_capture_missed_is_its_own_fault(tmp_path):
    talk = plain()
    talk.delete(7)
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == {"integrity.unseen"}
    assert "PSN 103" in verdicts["integrity.unseen"].exhibits[0].text


def test_a_psn_that_was_never_acknowledged_may_have_been_lost(tmp_path):
    talk = Talk()
    for psn in (1, 2, 4, 5):
        talk.ask(psn)
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == set()
    assert "inconclusive" in verdicts["rc.psn-continuity"].note


def test_at_the_requester_a_gap_is_a_fault(tmp_path):
    talk = Talk()
    for psn in (1, 2, 4):
        talk.ask(psn)
    talk.ack(2, 2)
    verdicts = talk.check(tmp_path, at=AT_REQUESTER)
    assert failed(verdicts) == {"rc.psn-continuity"}
    assert shown(verdicts["rc.psn-continuity"]) == {3}


def test_the_psns_of_a_read_are_nobody_elses(tmp_path):
    tape = Tape.of(RC)
    read = next(n for n in tape.find(opcode=READ) if tape.fields(n)["dmalen"] > 2 * MTU)
    psn = tape.fields(read)["psn"]
    after = next(n for n in range(read + 1, len(tape)) if tape.fields(n)["opcode"] in (4, 5, 0))
    tape.alter(after, psn=psn + 1)
    verdicts = tape.check(tmp_path)
    assert "rc.psn-continuity" in failed(verdicts)
    assert {read, after} <= shown(verdicts["rc.psn-continuity"])


def test_a_wrong_order_of_opcodes(tmp_path):
    tape = Tape.of(RC)
    middle = tape.find(opcode=SEND_MIDDLE)[0]
    tape.alter(middle, opcode=SEND_LAST)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"rc.opcode-sequence", "rc.msn-right"}
    assert middle in shown(verdicts["rc.opcode-sequence"])


def test_a_middle_packet_that_is_not_full(tmp_path):
    tape = Tape.of(RC)
    middle = tape.find(opcode=SEND_MIDDLE)[0]
    tape.alter(middle, payload=bytes(100))
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"rc.length"}
    assert shown(verdicts["rc.length"]) == {middle}


def test_a_write_that_is_shorter_than_its_reth_says(tmp_path):
    tape = Tape.of(RC)
    first = tape.find(opcode=WRITE_FIRST)[0]
    tape.alter(first, dmalen=tape.fields(first)["dmalen"] + 4)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"rc.length"}
    assert first in shown(verdicts["rc.length"])


def retransmitted(tape):
    """A request with a payload, and its number when it is sent again."""
    seen = {}
    for number in range(1, len(tape) + 1):
        fields = tape.fields(number)
        if fields["opcode"] in (SEND_MIDDLE, 7):
            key = fields["psn"], fields["opcode"]
            if key in seen:
                return seen[key], number
            seen[key] = number
    raise AssertionError("nothing was sent again")


def test_another_payload_when_it_is_sent_again(tmp_path):
    tape = Tape.of(LOSS)
    first, again = retransmitted(tape)
    tape.alter(again, payload=bytes(len(tape.fields(again)["payload"])))
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"rc.retransmit-same"}
    assert {first, again} <= shown(verdicts["rc.retransmit-same"])
    assert "payload" in verdicts["rc.retransmit-same"].exhibits[0].text


def test_at_the_requester_acknowledgements_may_have_been_reordered(tmp_path):
    talk = Talk()
    talk.ask(1)
    talk.ask(2)
    late = talk.ack(2, 2), talk.ack(1, 1)
    verdicts = talk.check(tmp_path, at=AT_RESPONDER)
    assert "rc.ack-order" in failed(verdicts)
    assert set(late) <= shown(verdicts["rc.ack-order"])
    verdicts = talk.check(tmp_path, at=AT_REQUESTER)
    assert "rc.ack-order" not in failed(verdicts)
    assert "may have reordered" in verdicts["rc.ack-order"].note


def test_a_payload_may_change_once_the_responder_has_it(tmp_path):
    """As where a ring collective receives into memory whose acknowledgement was lost."""
    talk = Talk()
    talk.ask(100, payload=b"then")
    talk.ack(100, 1)
    talk.ask(100, payload=b"next")
    talk.ack(100, 1)
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == set()
    assert "overwritten" in verdicts["rc.retransmit-same"].note
    talk = Talk()
    talk.ask(100, payload=b"then")
    again = talk.ask(100, payload=b"next")
    talk.ack(100, 1)
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == {"rc.retransmit-same"}
    assert again in shown(verdicts["rc.retransmit-same"])


def test_a_read_asked_for_again_at_another_address(tmp_path):
    tape = Tape.of(LOSS)
    reads = tape.find(opcode=READ)
    twice = next(
        n for n in reads if [tape.fields(m)["psn"] for m in reads].count(tape.fields(n)["psn"]) > 1
    )
    tape.alter(twice, va=tape.fields(twice)["va"] + 8)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"rc.retransmit-same"}
    assert "remote address" in verdicts["rc.retransmit-same"].exhibits[0].text


# ---------------------------------------------------------------- retransmitting


def gap(resume, *, known_ms=0):
    """PSN 3 gets lost; the requester resumes at `resume`. Taken at the requester."""
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
    return talk, nak, again


def test_going_back_to_the_gap_is_right(tmp_path):
    talk, _, _ = gap(3)
    verdicts = talk.check(tmp_path, at=AT_REQUESTER)
    assert verdicts["rc.go-back-n"].outcome is Outcome.PASS
    assert "rc.go-back-n" not in failed(verdicts)


def test_sending_again_from_behind_the_gap(tmp_path):
    talk, nak, again = gap(4)
    verdicts = talk.check(tmp_path, at=AT_REQUESTER)
    assert "rc.go-back-n" in failed(verdicts)
    assert shown(verdicts["rc.go-back-n"]) == {nak, again}


def test_sending_again_what_was_acknowledged_long_ago(tmp_path):
    talk, nak, again = gap(1, known_ms=200)
    verdicts = talk.check(tmp_path, at=AT_REQUESTER)
    assert "rc.go-back-n" in failed(verdicts)
    assert shown(verdicts["rc.go-back-n"]) == {nak, again}


@pytest.mark.parametrize("resume", [1, 4])
def test_elsewhere_a_wrong_place_cannot_be_told_from_a_loss(resume, tmp_path):
    talk, _, _ = gap(resume, known_ms=200)
    assert talk.check(tmp_path)["rc.go-back-n"].outcome is Outcome.INCONCLUSIVE


def test_sending_only_the_missing_packet_again_is_not_go_back_n(tmp_path):
    talk = Talk()
    for psn in range(6):
        talk.ask(psn)
    nak = talk.ack(3, 3, syndrome=NAK_SEQUENCE)
    talk.ask(3)
    jumps = talk.ask(6)
    talk.ack(6, 7)
    verdicts = talk.check(tmp_path, at=AT_REQUESTER)
    assert {nak, jumps} == shown(verdicts["rc.go-back-n"])


def insist(times):
    talk = Talk()
    talk.ask(1)
    talk.ack(1, 1)
    numbers = []
    for _ in range(times):
        numbers.append(talk.ask(2))
        talk.wait(200 * MS)
    return talk, numbers


def test_more_retries_than_the_retry_count(tmp_path):
    talk, numbers = insist(9)
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == {"rc.retry-limit"}
    assert shown(verdicts["rc.retry-limit"]) == set(numbers[1:])


@pytest.mark.parametrize(("times", "count"), [(8, 7), (3, 2), (1, 0)])
def test_as_many_retries_as_the_retry_count_are_fine(times, count, tmp_path):
    talk, _ = insist(times)
    assert "rc.retry-limit" not in failed(talk.check(tmp_path, retry_count=count))


def test_one_retry_more_than_a_small_retry_count(tmp_path):
    talk, _ = insist(4)
    assert failed(talk.check(tmp_path, retry_count=2)) == {"rc.retry-limit"}


def test_an_rnr_timer_that_is_not_waited_for(tmp_path):
    tape = Tape.of(NAKS)
    refusal = tape.find(syndrome=RNR_NAK | 1)[0]
    psn = tape.fields(refusal)["psn"]
    again = next(n for n in tape.find(psn=psn, opcode=SEND_FIRST) if n > refusal)
    for number in range(refusal + 1, again + 1):
        tape.frame(number).time_ns = tape.frame(refusal).time_ns + 5_000
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"rc.rnr-wait"}
    assert shown(verdicts["rc.rnr-wait"]) == {refusal, again}
    assert "10 us" in verdicts["rc.rnr-wait"].exhibits[0].text


# ---------------------------------------------------------------- what is answered


def test_two_naks_for_one_gap(tmp_path):
    tape = Tape.of(LOSS)
    nak = tape.find(syndrome=NAK_SEQUENCE)[0]
    tape.copy(nak, before=nak + 2)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"rc.nak-once-per-gap"}
    assert shown(verdicts["rc.nak-once-per-gap"]) == {nak, nak + 2}


@pytest.mark.parametrize("at_ms", [50, 200])
def test_a_gap_that_nobody_is_told_of(at_ms, tmp_path):
    talk = Talk()
    talk.ask(0)
    talk.ack(0, 1)
    early = [talk.ask(psn) for psn in (2, 3)]
    talk.wait(at_ms * MS)
    again = [talk.ask(psn) for psn in (1, 2, 3)]
    talk.ack(3, 4)
    verdicts = talk.check(tmp_path, at=AT_RESPONDER)
    if at_ms == 50:
        assert failed(verdicts) == set()
        assert verdicts["rc.nak-for-gap"].outcome is Outcome.INCONCLUSIVE
    else:
        assert failed(verdicts) == {"rc.nak-for-gap"}
        assert shown(verdicts["rc.nak-for-gap"]) == {early[0], again[0]}


def test_a_nak_without_a_gap(tmp_path):
    talk = plain()
    talk.ask(106)
    nak = talk.ack(106, 6, syndrome=NAK_SEQUENCE)
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == {"rc.nak-names-gap"}
    assert shown(verdicts["rc.nak-names-gap"]) == {nak}


def test_a_nak_of_what_has_come(tmp_path):
    talk = Talk()
    for psn in range(4):
        talk.ask(psn)
    talk.ack(1, 2)
    talk.wait(200 * MS)
    nak = talk.ack(2, 2, syndrome=NAK_SEQUENCE)
    verdicts = talk.check(tmp_path, at=AT_RESPONDER)
    assert failed(verdicts) == {"rc.nak-names-gap"}
    assert shown(verdicts["rc.nak-names-gap"]) == {3, nak}
    assert failed(talk.check(tmp_path)) == set()  # it may have been lost


def test_an_acknowledgement_that_goes_back(tmp_path):
    talk = plain()
    back = talk.ack(101, 6)
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == {"rc.ack-order", "rc.msn-right"}
    assert back in shown(verdicts["rc.ack-order"])


def behind_a_read(acknowledged, msn, times=1):
    """Two SENDs, two READs, and the second SEND again, which is acknowledged so."""
    talk = Talk()
    talk.ask(98)
    talk.ack(98, 1)
    talk.ask(99)
    talk.ack(99, 2)
    talk.ask(100, READ, payload=b"", dmalen=64)
    talk.ack(100, 3, opcode=READ_ONLY, payload=bytes(64))
    talk.ask(101, READ, payload=b"", dmalen=64)
    talk.ack(101, 4, opcode=READ_ONLY, payload=bytes(64))
    for _ in range(times):
        talk.wait(200 * MS)
        talk.ask(99)
        talk.ack(acknowledged, msn)
    return talk


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("acknowledged", [99, 101])
def test_a_duplicate_is_acknowledged_without_the_results_behind_it_or_with_them(
    tmp_path, acknowledged, times
):
    assert failed(behind_a_read(acknowledged, 4, times).check(tmp_path)) == set()


def test_duplicates_prove_no_hole_to_be_empty(tmp_path):
    """The capture misses a message; the MSNs tell that it was there."""
    talk = behind_a_read(99, 4, times=3)
    for psn in (103, 104):
        talk.ask(psn)
        talk.ack(psn, psn - 97)
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == {"integrity.unseen"}


@pytest.mark.parametrize(("acknowledged", "msn", "rules"), [
    (98, 4, {"rc.ack-order", "rc.msn-right"}),
    (99, 5, {"rc.msn-right"}),
    (99, 3, {"rc.msn-monotonic"}),
])  # fmt: skip
def test_a_duplicate_is_acknowledged_by_less_or_counts_more(tmp_path, acknowledged, msn, rules):
    assert failed(behind_a_read(acknowledged, msn).check(tmp_path)) == rules


def test_a_nak_goes_back_over_reads(tmp_path):
    talk = behind_a_read(99, 4)
    talk.ask(103)
    naks = [talk.ack(102, 4, syndrome=NAK_SEQUENCE)]
    talk.ask(104)
    naks.append(talk.ack(100, 4, syndrome=NAK_SEQUENCE))
    verdicts = talk.check(tmp_path)
    assert "rc.ack-order" in failed(verdicts)
    assert set(naks) <= shown(verdicts["rc.ack-order"])


def test_a_nak_of_a_read_that_counts_it(tmp_path):
    talk = plain(count=3, first=96)
    talk.ask(99, READ, payload=b"", dmalen=64)  # lost behind the capture
    talk.ask(100)
    nak = talk.ack(99, 4, syndrome=NAK_SEQUENCE)  # of 3 messages
    talk.wait(MS)
    talk.ask(99, READ, payload=b"", dmalen=64)
    talk.ack(99, 4, opcode=READ_ONLY, payload=bytes(64))
    talk.ask(100)
    talk.ack(100, 5)
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == {"rc.msn-right"}
    assert shown(verdicts["rc.msn-right"]) == {nak}


def test_an_acknowledgement_of_what_was_not_sent_yet(tmp_path):
    talk = plain()
    talk.alter(4, psn=103, msn=4)
    verdicts = talk.check(tmp_path)
    assert "rc.ack-of-sent" in failed(verdicts)
    assert shown(verdicts["rc.ack-of-sent"]) == {4, 5}


def test_an_msn_that_goes_back(tmp_path):
    talk = plain()
    talk.alter(8, msn=2)
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == {"rc.msn-monotonic", "rc.msn-right"}
    assert shown(verdicts["rc.msn-monotonic"]) == {6, 8}
    assert "where 4 is due" in verdicts["rc.msn-right"].exhibits[0].text


def repeated(answered):
    talk = plain()
    talk.wait(200 * MS)
    first = talk.ask(105)
    if answered:
        talk.ack(105, 6)
    talk.wait(200 * MS)
    talk.ask(105)
    talk.ack(105, 6)
    return talk, first


def test_a_duplicate_that_is_not_acknowledged_again(tmp_path):
    talk, first = repeated(answered=False)
    verdicts = talk.check(tmp_path, at=AT_RESPONDER)
    assert failed(verdicts) == {"rc.duplicate-acknowledged"}
    assert shown(verdicts["rc.duplicate-acknowledged"]) == {first}


@pytest.mark.parametrize("returns", [1, 2])
def test_a_duplicate_before_a_read_is_left_to_its_result_once(returns, tmp_path):
    """The READ behind it is retransmitted, too; a requester that returns without it is not."""
    talk = behind_a_read(99, 4, times=0)
    for _ in range(returns):
        talk.wait(200 * MS)
        last_left = talk.ask(99)
    talk.wait(200 * MS)
    talk.ask(99)
    talk.ack(99, 4)
    verdicts = talk.check(tmp_path, at=AT_RESPONDER)
    if returns == 1:
        assert failed(verdicts) == set()
    else:
        assert failed(verdicts) == {"rc.duplicate-acknowledged"}
        assert shown(verdicts["rc.duplicate-acknowledged"]) == {last_left}


@pytest.mark.parametrize(("named", "rules"), [(3, {"rc.nak-names-gap"}), (2, set())])
def test_a_nak_that_names_another_gap_than_the_first(named, rules, tmp_path):
    """PSNs 2 and 3 are missing, and all that leaves and reaches the responder is there."""
    talk = plain(count=2, first=0)
    early = talk.ask(4)
    nak = talk.ack(named, named, syndrome=NAK_SEQUENCE)
    for psn in (2, 3, 4):
        talk.ask(psn)
    talk.ack(4, 5)
    verdicts = talk.check(tmp_path, at=AT_RESPONDER)
    assert failed(verdicts) == rules
    assert shown(verdicts["rc.nak-names-gap"]) == ({early, nak} if rules else set())


def test_a_duplicate_that_is_acknowledged_again(tmp_path):
    talk, _ = repeated(answered=True)
    assert failed(talk.check(tmp_path, at=AT_RESPONDER)) == set()


def test_what_came_too_early_is_not_accepted(tmp_path):
    talk = Talk()
    talk.ask(1)
    talk.ack(1, 1)
    for psn in (3, 4, 2):
        early = talk.ask(psn)
    accepted = talk.ack(4, 4)
    talk.ask(5)
    talk.ack(5, 5)
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == {"rc.in-order"}
    assert shown(verdicts["rc.in-order"]) == {early - 2, accepted}


def test_an_acknowledgement_after_a_fatal_nak(tmp_path):
    tape = Tape.of(NAKS)
    fatal = tape.find(syndrome=NAK_ACCESS)[0]
    tape.copy(fatal, before=fatal + 1)
    tape.alter(fatal + 1, syndrome=0x1F)
    verdicts = tape.check(tmp_path)
    assert "rc.error-is-final" in failed(verdicts)
    assert shown(verdicts["rc.error-is-final"]) == {fatal, fatal + 1}


# ---------------------------------------------------------------- results


def test_a_response_that_is_missing(tmp_path):
    tape = Tape.of(RC)
    middle = tape.find(opcode=READ_MIDDLE)[0]
    psn = tape.fields(middle)["psn"]
    tape.delete(middle)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"rc.read-response", "rc.results-complete"}
    assert f"PSN {psn}" in verdicts["rc.results-complete"].exhibits[0].text


def test_a_response_of_a_wrong_psn(tmp_path):
    tape = Tape.of(RC)
    middle = tape.find(opcode=READ_MIDDLE)[0]
    tape.alter(middle, psn=tape.fields(middle)["psn"] + 1)
    verdicts = tape.check(tmp_path)
    assert {"rc.read-response", "rc.results-complete"} <= failed(verdicts)
    assert middle in shown(verdicts["rc.read-response"])


def test_a_response_of_a_wrong_opcode(tmp_path):
    tape = Tape.of(RC)
    middle = tape.find(opcode=READ_MIDDLE)[0]
    tape.alter(middle, opcode=READ_FIRST, syndrome=0x1F, msn=tape.fields(middle - 1)["msn"])
    verdicts = tape.check(tmp_path)
    assert "rc.read-response" in failed(verdicts)
    assert middle in shown(verdicts["rc.read-response"])


def test_a_response_that_is_too_short(tmp_path):
    tape = Tape.of(RC)
    middle = tape.find(opcode=READ_MIDDLE)[0]
    tape.alter(middle, payload=bytes(8))
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"rc.read-response"}
    assert "8 bytes" in verdicts["rc.read-response"].exhibits[0].text


def test_a_read_that_is_answered_as_an_atomic(tmp_path):
    tape = Tape.of(RC)
    only = tape.find(opcode=16)[0]
    tape.alter(only, opcode=ATOMIC_ACKNOWLEDGE, origremdt=0, payload=b"")
    verdicts = tape.check(tmp_path)
    assert "rc.result-kind" in failed(verdicts)
    assert only in shown(verdicts["rc.result-kind"])


def test_an_atomic_that_was_done_twice(tmp_path):
    tape = Tape.of(LOSS)
    by_psn = {}
    for number in tape.find(opcode=ATOMIC_ACKNOWLEDGE):
        by_psn.setdefault(tape.fields(number)["psn"], []).append(number)
    first, again, *_ = next(numbers for numbers in by_psn.values() if len(numbers) == 2)
    tape.alter(again, origremdt=tape.fields(again)["origremdt"] + 5)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"rc.atomic-once"}
    assert shown(verdicts["rc.atomic-once"]) == {first, again}


# ---------------------------------------------------------------- ICRC


def test_a_wrong_icrc(tmp_path):
    talk = plain()
    talk.alter(2, icrc=0x12345678)
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == {"icrc.right"}
    assert shown(verdicts["icrc.right"]) == {2}
    assert "0x12345678" in verdicts["icrc.right"].exhibits[0].text


def test_what_has_a_wrong_icrc_is_not_accepted(tmp_path):
    talk = plain()
    talk.alter(5, icrc=0)
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == {"icrc.right", "rc.in-order"}
    assert shown(verdicts["rc.in-order"]) == {5}


def test_a_first_packet_that_the_capture_missed_was_not_skipped(tmp_path):
    """Its Last is there, so that the message was, whatever the MSNs say."""
    talk = Talk()
    talk.ask(10)
    talk.ack(10, 1)
    missed = talk.ask(11, SEND_FIRST, bytes(256))
    talk.ask(12, SEND_LAST)
    talk.ack(12, 2)
    talk.delete(missed)
    assert failed(talk.check(tmp_path)) == {"integrity.unseen"}


def test_the_psns_of_a_read_are_nobody_elses_whatever_the_capture_missed(tmp_path):
    talk = Talk()
    talk.ask(9)
    talk.ack(9, 1)
    missed = talk.ask(10)
    talk.ask(11, SEND_FIRST, FULL)
    talk.ask(12, SEND_LAST)
    talk.ack(12, 3)
    read = talk.ask(13, READ, b"", dmalen=3 * MTU)
    other = talk.ask(14)
    talk.delete(missed)
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == {"integrity.unseen", "rc.psn-continuity"}
    assert shown(verdicts["rc.psn-continuity"]) == {read - 1, other - 1}
