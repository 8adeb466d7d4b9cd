# SPDX-License-Identifier: GPL-2.0-or-later
"""Connections of one queue pair number after the other, as programs that begin anew have them."""

import dataclasses

import pytest

from softroce_lab import _native
from tests.check.line import LINKS
from tests.check.plant import US, Talk, failed

PSNS = 1 << 24


def conversation(tape, psn):
    """Five messages, acknowledged one by one."""
    for number in range(5):
        at = (psn + number) % PSNS
        tape.ask(at)
        tape.ack(at, number + 1)
    tape.wait(1_000_000 * US)


def at_both_ends(tape):
    """Every frame on both links of its way, as captures of the lab have it."""
    both = []
    for frame in tape.frames:
        fields = dict(_native.decode_frame(frame.data))
        first = 0 if fields["infiniband.bth.destqp"] == 0x22 else 2
        behind = bytes(_native.encode_frame(fields | {"ip.ttl": fields["ip.ttl"] - 1}))
        both.append(dataclasses.replace(frame, interface=first))
        both.append(dataclasses.replace(
            frame, interface=first + 1, data=behind, time_ns=frame.time_ns + US))  # fmt: skip
    tape.frames, tape.interfaces = both, LINKS


@pytest.mark.parametrize("everywhere", [False, True], ids=["one-place", "both-ends"])
@pytest.mark.parametrize("second", [2_000_000, 4_000_000, 7_000_000, 16_000_000])
def test_a_connection_that_follows_another_is_not_judged_by_it(everywhere, second, tmp_path):
    tape = Talk()
    for psn in (5_000_000, second, 5_500_000):
        conversation(tape, psn)
    if everywhere:
        at_both_ends(tape)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == set()
    assert verdicts["rc.psn-continuity"].checked >= 12
    assert verdicts["rc.msn-right"].checked >= 12


def test_a_retransmission_from_too_far_back_is_no_new_connection(tmp_path):
    tape = Talk()
    conversation(tape, 5_000_000)
    tape.ack(5_000_004, 3)
    tape.ask(5_000_000)
    tape.ack(5_000_004, 5)
    assert "rc.msn-monotonic" in failed(tape.check(tmp_path))


def refused(tape, psn, size):
    """A message that is taken, and one that ends the connection."""
    tape.ask(psn, payload=bytes(size))
    tape.ack(psn, 1)
    tape.ask(psn + 1)
    tape.ack(psn + 1, 1, syndrome=0x62)
    tape.wait(1_000_000 * US)


def test_a_connection_of_as_many_messages_follows_another(tmp_path):
    tape = Talk()
    for size in (4, 8):
        refused(tape, 5_000_000, size)
    conversation(tape, 5_000_000)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == set()
    assert verdicts["rc.error-is-final"].checked == 2


def test_a_connection_that_begins_in_the_midst_of_the_last_ones_psns(tmp_path):
    tape = Talk()
    conversation(tape, 5_000_000)
    conversation(tape, 5_000_002)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == set()
    assert verdicts["rc.msn-right"].checked == 10


def test_a_first_message_sent_again_with_other_data_is_no_new_connection(tmp_path):
    tape = Talk()
    tape.ask(5_000_000)
    tape.wait(1_000_000 * US)
    tape.ask(5_000_000, payload=b"else")
    tape.ack(5_000_000, 1)
    assert failed(tape.check(tmp_path)) == {"rc.retransmit-same"}


def test_a_late_duplicate_answered_with_an_old_msn_is_no_new_connection(tmp_path):
    tape = Talk()
    conversation(tape, 5_000_000)
    tape.ask(5_000_003)
    tape.ack(5_000_004, 4)
    assert "rc.msn-monotonic" in failed(tape.check(tmp_path))
