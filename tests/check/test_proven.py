# SPDX-License-Identifier: GPL-2.0-or-later
"""What the packets present prove is found in captures that missed others, too."""

import pytest

from tests.check.plant import MS, NAK_SEQUENCE, READ, SEND_FIRST, SEND_LAST, Talk, failed, shown

MTU = 256
FULL = bytes(MTU)
NAK_ACCESS = 0x62
READ_FIRST, READ_LAST, READ_ONLY, FETCH_ADD, ATOMIC_ACKNOWLEDGE, WRITE_ONLY = 13, 15, 16, 20, 18, 10


def incomplete(talk):
    """Its statistics admit missed packets."""
    talk.statistics = {0: (len(talk) + 5, 5)}
    return talk


def begun():
    """A connection whose path MTU First packets tell."""
    talk = incomplete(Talk())
    talk.ask(10, SEND_FIRST, FULL)
    talk.ask(11, SEND_LAST)
    talk.ack(11, 1)
    return talk


def found(talk, tmp_path):
    """The verdicts, and the rules that are violated but for those of the capture."""
    verdicts = incomplete(talk).check(tmp_path)
    return verdicts, failed(verdicts) - {"integrity.missed", "integrity.unseen"}


def test_a_second_nak_of_a_write_that_needs_no_receive(tmp_path):
    talk = begun()
    talk.ask(13, WRITE_ONLY, dmalen=4)
    first = talk.ack(12, 1, NAK_SEQUENCE)
    talk.ask(13, WRITE_ONLY, dmalen=4)
    again = talk.ack(12, 1, NAK_SEQUENCE)
    talk.wait(MS)
    talk.ask(12, WRITE_ONLY, dmalen=4)
    talk.ack(12, 2)
    verdicts, rules = found(talk, tmp_path)
    assert rules == {"rc.nak-once-per-gap"}
    assert shown(verdicts["rc.nak-once-per-gap"]) == {first, again}


def test_a_second_nak_of_a_send_may_stand_behind_an_rnr_nak_that_was_missed(tmp_path):
    talk = begun()
    for _ in range(2):
        talk.ask(13)
        talk.ack(12, 1, NAK_SEQUENCE)
    talk.ask(12)
    talk.ack(12, 2)
    assert found(talk, tmp_path)[1] == set()


@pytest.mark.parametrize(("opcode", "psn"), [(READ_FIRST, 12), (READ_LAST, 13)])
def test_a_read_response_that_is_cut_short(opcode, psn, tmp_path):
    talk = begun()
    talk.ask(12, READ, b"", dmalen=MTU + 100)
    cut = talk.ack(psn, 2, opcode=opcode, payload=bytes(40))
    verdicts, rules = found(talk, tmp_path)
    assert rules == {"rc.read-response"}
    assert shown(verdicts["rc.read-response"]) == {cut}


def test_an_acknowledgement_behind_a_fatal_nak(tmp_path):
    talk = begun()
    talk.ask(12, WRITE_ONLY, dmalen=4)
    fatal = talk.ack(12, 1, NAK_ACCESS)
    talk.ask(13, WRITE_ONLY, dmalen=4)
    after = talk.ack(13, 3)
    verdicts, rules = found(talk, tmp_path)
    assert rules == {"rc.error-is-final"}
    assert shown(verdicts["rc.error-is-final"]) == {fatal, after}


@pytest.mark.parametrize("syndrome", [0x40, 0x5F, 0x65, 0x7F, 0x80, 0x9F, 0xFF])
def test_a_reserved_syndrome_or_nak_code(syndrome, tmp_path):
    talk = begun()
    talk.ask(12)
    odd = talk.ack(12, 2, syndrome)
    verdicts, rules = found(talk, tmp_path)
    assert "rc.syndrome" in rules
    assert shown(verdicts["rc.syndrome"]) == {odd}


@pytest.mark.parametrize("syndrome", [0x00, 0x1F, 0x20, 0x3F, 0x60, 0x61, 0x62, 0x63])
def test_a_defined_syndrome_is_fine(syndrome, tmp_path):
    talk = begun()
    talk.ask(12)
    talk.ack(12, 2, syndrome)
    verdicts, _ = found(talk, tmp_path)
    assert "rc.syndrome" not in failed(verdicts)


def test_a_result_that_is_no_ack(tmp_path):
    talk = begun()
    talk.ask(12, READ, b"", dmalen=4)
    odd = talk.ack(12, 2, NAK_SEQUENCE, READ_ONLY, b"word")
    verdicts, rules = found(talk, tmp_path)
    assert "rc.syndrome" in rules
    assert shown(verdicts["rc.syndrome"]) == {odd}


@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_pkey_that_changes_in_one_packet(number, tmp_path):
    talk = begun()
    for psn in range(12, 15):
        talk.ask(psn)
        talk.ack(psn, psn - 10)
    talk.alter(number, **{"infiniband.bth.p_key": 0x8123})
    verdicts, rules = found(talk, tmp_path)
    assert rules == {"rc.pkey"}
    assert shown(verdicts["rc.pkey"]) == {number}


def test_a_request_that_was_missed_is_not_held_against_its_result(tmp_path):
    """Asked for again in the capture, an atomic seems to be answered before it was sent."""
    talk = begun()
    missed = talk.ask(12, FETCH_ADD, b"", swapdt=1)
    answer = talk.ack(12, 2, opcode=ATOMIC_ACKNOWLEDGE)
    talk.wait(MS)
    talk.ask(12, FETCH_ADD, b"", swapdt=1)
    talk.ack(12, 2, opcode=ATOMIC_ACKNOWLEDGE)
    talk.statistics = {}
    assert failed(talk.check(tmp_path)) == set()
    talk.delete(missed)
    verdicts = talk.check(tmp_path)
    assert failed(verdicts) == {"integrity.unseen"}
    assert shown(verdicts["integrity.unseen"]) == {answer - 1}


@pytest.mark.parametrize(("msn", "wrong"), [(2, False), (1, True), (3, True), (7, True)])
def test_the_msn_of_a_read_response(msn, wrong, tmp_path):
    talk = begun()
    talk.statistics = {}
    talk.ask(12, READ, b"", dmalen=4)
    answer = talk.ack(12, msn, opcode=READ_ONLY, payload=b"word")
    verdicts = talk.check(tmp_path)
    assert ("rc.msn-right" in failed(verdicts)) is wrong
    assert shown(verdicts["rc.msn-right"]) == ({answer} if wrong else set())


def test_a_read_response_sent_again_counts_what_came_since(tmp_path):
    talk = begun()
    talk.statistics = {}
    talk.ask(12, READ, b"", dmalen=4)
    talk.ack(12, 2, opcode=READ_ONLY, payload=b"word")
    talk.ask(13)
    talk.ack(13, 3)
    talk.wait(MS)
    talk.ask(12, READ, b"", dmalen=4)
    talk.ack(12, 3, opcode=READ_ONLY, payload=b"word")
    assert failed(talk.check(tmp_path)) == set()
