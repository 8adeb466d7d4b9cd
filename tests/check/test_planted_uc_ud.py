# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults planted in captures of unreliable services: each is found, with the packets."""

from softroce_lab.check.verdict import Outcome
from tests.check.plant import AT_REQUESTER, REQUESTER, Tape, failed, shown

UC, UD, BOTH = "rxe_uc", "rxe_ud_pp", "rxe_verbs_uc_ud"
UC_MIDDLE, UC_LAST, UC_WRITE_FIRST, UC_WRITE_LAST = 0x21, 0x22, 0x26, 0x28
UD_SEND = 0x64
QP1_QKEY = 0x80010000
GSI = 1


def at_source(tape, number):
    """Options for a capture at the host that sent this packet."""
    return {"at": (bytes(10) + b"\xff\xff" + tape.fields(number)["source"].to_bytes(4, "big"),)}


def test_a_psn_that_uc_skips(tmp_path):
    tape = Tape.of(UC)
    middle = tape.find(opcode=UC_MIDDLE)[3]
    options = at_source(tape, middle)
    assert failed(tape.check(tmp_path, **options)) == set()
    tape.delete(middle)
    verdicts = tape.check(tmp_path, **options)
    assert failed(verdicts) == {"uc.psn-continuity"}
    assert len(shown(verdicts["uc.psn-continuity"])) == 1
    assert failed(tape.check(tmp_path)) == set()  # elsewhere it may have been lost


def test_uc_sends_nothing_again(tmp_path):
    tape = Tape.of(UC)
    middle = tape.find(opcode=UC_MIDDLE)[0]
    tape.copy(middle, before=middle + 2)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"uc.once"}
    assert shown(verdicts["uc.once"]) == {middle, middle + 2}


def test_a_copy_that_the_injector_made_is_not_the_senders(tmp_path):
    tape = Tape.of(UC)
    middle = tape.find(opcode=UC_MIDDLE)[0]
    tape.frame(middle).comment = "duplicated: duplicate 1%, rule twice"
    tape.copy(middle, before=middle + 2)
    assert failed(tape.check(tmp_path)) == set()


def test_a_wrong_order_of_opcodes(tmp_path):
    tape = Tape.of(UC)
    middle = tape.find(opcode=UC_MIDDLE)[0]
    tape.alter(middle, opcode=UC_LAST)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"uc.opcode-sequence"}
    assert middle in shown(verdicts["uc.opcode-sequence"])


def test_a_middle_packet_that_is_not_full(tmp_path):
    tape = Tape.of(UC)
    middle = tape.find(opcode=UC_MIDDLE)[0]
    tape.alter(middle, payload=bytes(64))
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"uc.length"}
    assert shown(verdicts["uc.length"]) == {middle}


def test_a_write_that_is_shorter_than_its_reth_says(tmp_path):
    tape = Tape.of(BOTH)
    first = tape.find(opcode=UC_WRITE_FIRST)[0]
    tape.alter(first, dmalen=2000)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"uc.length"}
    assert "2000 bytes" in verdicts["uc.length"].exhibits[0].text


def test_an_acknowledgement_to_uc(tmp_path):
    tape = Tape.of(UC)
    middle = tape.find(opcode=UC_MIDDLE)[0]
    tape.copy(middle, before=middle + 1)
    tape.alter(middle + 1, opcode=17, payload=b"", syndrome=0x1F, msn=1)
    verdicts = tape.check(tmp_path)
    assert "uc.no-answers" in failed(verdicts)
    assert middle + 1 in shown(verdicts["uc.no-answers"])


def test_a_wrong_qkey(tmp_path):
    tape = Tape.of(UD)
    tape.alter(7, q_key=0x22222222)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"ud.qkey"}
    assert shown(verdicts["ud.qkey"]) == {7}


def test_the_qkey_of_qp_1_is_known(tmp_path):
    tape = Tape.of("rxe_ud")
    for number in tape.find(qp=GSI):
        assert tape.fields(number)["q_key"] == QP1_QKEY
        tape.alter(number, q_key=0x11111111)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"ud.qkey"}
    assert verdicts["ud.qkey"].failures == 4


def test_a_datagram_longer_than_the_path_mtu(tmp_path):
    tape = Tape.of(UD)
    size = len(tape.fields(5)["payload"])
    verdicts = tape.check(tmp_path, path_mtu=512)
    assert size > 512
    assert failed(verdicts) == {"ud.length"}


def test_a_datagram_from_nobody(tmp_path):
    tape = Tape.of(UD)
    tape.alter(9, srcqp=0)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"ud.source-qp"}
    assert shown(verdicts["ud.source-qp"]) == {9}


def test_one_psn_for_two_datagrams(tmp_path):
    tape = Tape.of(UD)
    mine = tape.find(source=tape.fields(5)["source"])
    one, other = mine[2], mine[3]
    tape.alter(other, psn=tape.fields(one)["psn"], payload=b"another")
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == {"ud.psn-continuity"}
    assert {one, other} <= shown(verdicts["ud.psn-continuity"])


def test_a_psn_that_ud_skips(tmp_path):
    tape = Tape.of(UD)
    gone = tape.find(source=tape.fields(5)["source"])[4]
    options = at_source(tape, gone)
    tape.delete(gone)
    assert failed(tape.check(tmp_path, **options)) == {"ud.psn-continuity"}
    verdicts = tape.check(tmp_path, at=AT_REQUESTER)  # another host
    assert tape.fields(5)["source"] != REQUESTER
    assert failed(verdicts) == set()
    assert verdicts["ud.psn-continuity"].outcome is Outcome.PASS
    assert "1 inconclusive" in verdicts["ud.psn-continuity"].note
