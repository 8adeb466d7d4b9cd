# SPDX-License-Identifier: GPL-2.0-or-later
"""Linux's own rxe keeps the rules, with losses and without; what it does otherwise is said."""

import pytest

from softroce_lab.check.verdict import Outcome
from tests.check.plant import Tape, check, failed
from tests.native.frames import CAPTURES

ALL = sorted(path.stem for path in CAPTURES.glob("*.pcap"))
LOSSY = ("rxe_verbs_loss", "rxe_verbs_loss_new", "rxe_verbs_few_losses")


@pytest.mark.parametrize("name", ALL)
def test_rxe_violates_nothing(name):
    verdicts = check(CAPTURES / f"{name}.pcap")
    assert failed(verdicts) == set()
    assert verdicts["icrc.right"].outcome is Outcome.PASS


@pytest.mark.parametrize("name", LOSSY)
def test_losses_give_occasions_for_the_rules_of_recovery(name):
    verdicts = check(CAPTURES / f"{name}.pcap")
    occasions = {rule: each.checked for rule, each in verdicts.items()}
    assert occasions["rc.nak-once-per-gap"] >= 6
    assert occasions["rc.duplicate-acknowledged"] >= 10
    assert occasions["rc.go-back-n"] >= 9
    assert occasions["rc.retransmit-same"] >= 140
    assert occasions["rc.atomic-once"] >= 16


def test_what_a_capture_at_the_responder_cannot_tell_is_undecided():
    verdicts = check(CAPTURES / "rxe_verbs_loss.pcap")
    assert "may have been lost before the capture" in verdicts["rc.go-back-n"].note
    assert verdicts["integrity.missed"].outcome is Outcome.INCONCLUSIVE


def test_refusals_are_waited_for_and_errors_are_final():
    verdicts = check(CAPTURES / "rxe_verbs_nak.pcap")
    assert verdicts["rc.rnr-wait"].checked == 3
    assert verdicts["rc.error-is-final"].checked == 7
    assert "Linux says so" in verdicts["rc.nak-names-gap"].note


def test_uc_and_ud_have_no_occasion_for_the_rules_of_rc():
    verdicts = check(CAPTURES / "rxe_verbs_uc_ud.pcap")
    assert verdicts["uc.once"].checked > 100
    assert verdicts["ud.qkey"].checked == 7
    assert verdicts["rc.length"].outcome is Outcome.NOT_APPLICABLE


def test_queue_pairs_are_paired_by_the_messages_of_the_connection_manager():
    verdicts = check(CAPTURES / "rxe_rc.pcap")
    assert not any("counterpart" in each.note for each in verdicts.values())


@pytest.mark.parametrize("begin", [2, 40, 111])
def test_a_capture_may_begin_in_mid_connection(begin, tmp_path):
    tape = Tape.of("rxe_verbs_loss")
    tape.delete(*range(1, begin))
    assert failed(tape.check(tmp_path)) == set()


def test_requests_alone_are_checked_as_far_as_they_go(tmp_path):
    tape = Tape.of("rxe_verbs_loss")
    tape.delete(*tape.find(syndrome=lambda value: value is not None))
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == set()
    assert verdicts["rc.retransmit-same"].checked > 200
    assert "no counterpart" in verdicts["rc.ack-order"].note
