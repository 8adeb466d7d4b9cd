# SPDX-License-Identifier: GPL-2.0-or-later
"""Nothing is held against hosts that keep the rules: Linux's rxe, and the lab's own RC and UC.

Wherever they are captured, whatever got lost, and whatever the capture itself lost, cut or took
twice."""

import dataclasses

import pytest

from softroce_lab.check.verdict import Outcome
from tests.check.line import Line, talk
from tests.check.plant import AT_REQUESTER, AT_RESPONDER, MS, S, Talk, Tape, check, failed
from tests.native.connected import SEND, UC, WRITE
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


def cut(tape, most):
    """As a snap length of `most` bytes does."""
    return Tape(
        dataclasses.replace(each, data=each.data[:most], length=len(each.data))
        for each in tape.frames
    )


# Where headers end: BTH 54, RETH 70, AtomicETH 82; and the usual lengths.
@pytest.mark.parametrize("most", [34, 50, 54, 60, 69, 81, 96])
@pytest.mark.parametrize("name", ["rxe_verbs_loss", "rxe_verbs_few_losses", "rxe_verbs_uc_ud"])
def test_no_snap_length_makes_a_violation(name, most, tmp_path):
    assert failed(cut(Tape.of(name), most).check(tmp_path)) == set()


@pytest.mark.parametrize("name", ALL)
def test_a_capture_that_has_every_frame_twice_is_undecided(name, tmp_path):
    tape = Tape.of(name)
    tape.frames = [each for each in tape.frames for _ in range(2)]
    assert failed(tape.check(tmp_path)) == set()


@pytest.mark.parametrize("name", ["rxe_verbs_loss", "rxe_ip6", "rxe_rc", "rxe_verbs_rc"])
@pytest.mark.parametrize("every", [37, 61])
def test_what_the_capture_missed_is_its_own_fault(name, every, tmp_path):
    tape = Tape.of(name)
    there = len(tape)
    del tape.frames[every // 2 :: every]
    tape.statistics[0] = (there, there - len(tape))
    assert failed(tape.check(tmp_path)) - {"integrity.unseen"} == {"integrity.missed"}


def test_without_times_nobody_waited_too_short(tmp_path):
    tape = Tape.of("rxe_verbs_nak")
    for frame in tape.frames:
        frame.time_ns = 0
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == set()
    assert "tells no times" in verdicts["rc.rnr-wait"].note


def test_a_clock_that_was_set_back_changes_no_order(tmp_path):
    tape = Tape.of("rxe_verbs_loss")
    for frame in tape.frames[len(tape) // 2 :]:
        frame.time_ns -= S
    assert failed(tape.check(tmp_path)) == set()


def test_a_host_whose_hop_limit_varies_is_one_place(tmp_path):
    tape = Tape.of("rxe_rc_pp")
    for number in range(1, len(tape), 4):
        tape.alter(number, ttl=60)
    assert failed(tape.check(tmp_path)) == set()


def test_two_runs_over_the_same_queue_pairs_are_two(tmp_path):
    tape = Tape.of("rxe_verbs_rc")
    span_ns = tape.frames[-1].time_ns - tape.frames[0].time_ns + S
    again = [dataclasses.replace(each, time_ns=each.time_ns + span_ns) for each in tape.frames]
    tape.frames += again[: len(again) * 3 // 4]  # else all would be there twice
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == set()
    assert verdicts["rc.msn-monotonic"].outcome is Outcome.PASS


def test_where_the_file_has_no_statistics_a_missing_answer_is_said_to_be_perhaps_its_own(tmp_path):
    tape = Tape.of("rxe_verbs_rc")
    first = tape.find(opcode=0x0E)[0]  # READ response Middle
    tape.delete(first)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) >= {"rc.results-complete"}
    assert "does not say whether" in verdicts["rc.results-complete"].note


@pytest.mark.parametrize("every", [2, 7])
@pytest.mark.parametrize("name", ["rxe_verbs_loss", "rxe_verbs_nak"])
def test_what_is_sent_again_with_another_hop_limit_is_at_the_same_place(name, every, tmp_path):
    tape = Tape.of(name)
    for number in tape.find(ttl=lambda limit: limit is not None)[::every]:
        tape.alter(number, ttl=60)
    assert failed(tape.check(tmp_path)) == set()


def test_two_places_that_are_mirrored_to_one_interface_are_two(tmp_path):
    tape = Tape.of("rxe_rc_pp")
    tape.frames = [dataclasses.replace(each) for each in tape.frames for _ in range(2)]
    for number in tape.find(ttl=lambda limit: limit is not None)[1::2]:
        tape.alter(number, ttl=tape.fields(number)["ttl"] - 1)
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == set()
    assert (
        verdicts["rc.ack-order"].checked
        == check(CAPTURES / "rxe_rc_pp.pcap")["rc.ack-order"].checked
    )


@pytest.mark.parametrize(
    ("name", "begin"),
    [("rxe_verbs_loss", 268), ("rxe_verbs_loss_new", 187), ("rxe_verbs_few_losses", 658)],
)
def test_what_was_sent_before_the_capture_began_is_not_missing(name, begin, tmp_path):
    """Of what is sent again something gets lost, and was acknowledged before."""
    tape = Tape.of(name)
    tape.delete(*range(1, begin + 1))
    verdicts = tape.check(tmp_path)
    assert failed(verdicts) == set()
    assert "the capture may begin behind it" in verdicts["integrity.unseen"].note


def test_what_is_missing_later_of_a_connection_begun_before_was_missed(tmp_path):
    talk = Talk()
    for psn in range(40):
        number = talk.ask(100 + psn)
        talk.ack(100 + psn, 501 + psn)
        talk.wait(10 * MS)
    talk.delete(number - 20)
    assert failed(talk.check(tmp_path)) == {"integrity.unseen"}


@pytest.mark.parametrize("name", ["rxe_ip6", "rxe_rc", "rxe_rc_pp"])
@pytest.mark.parametrize("every", [23, 50])
def test_a_host_is_not_convicted_of_what_a_capture_without_statistics_missed(name, every, tmp_path):
    tape = Tape.of(name)
    del tape.frames[every // 2 :: every]
    assert failed(tape.check(tmp_path)) <= {"integrity.unseen"}


LOSSES = {"none": 0.0, "some": 0.02, "many": 0.1}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(1, 3))
def test_nothing_fails_at_any_place(loss, seed, tmp_path):
    tapes = talk(Line(loss=LOSSES[loss], seed=seed))
    for place, tape in tapes.items():
        assert (place, failed(tape.check(tmp_path))) == (place, set())


@pytest.mark.parametrize(("place", "at"), [("h1", AT_REQUESTER), ("h2", AT_RESPONDER)])
def test_nothing_fails_where_the_place_is_known(place, at, tmp_path):
    tape = talk(Line(loss=0.1, seed=7))[place]
    verdicts = tape.check(tmp_path, at=at)
    assert failed(verdicts) == set()
    assert verdicts["rc.go-back-n"].checked > 10


def test_captures_of_the_lab_tell_where_they_were_taken(tmp_path):
    tapes = talk(Line(loss=0.1, seed=3))
    known, guessed = (tapes[place].check(tmp_path) for place in ("everywhere", "s1"))
    inconclusive = "inconclusive"
    assert (
        inconclusive in guessed["rc.psn-continuity"].note
        or "gaps" in guessed["rc.psn-continuity"].note
    )
    assert "gaps" not in known["rc.psn-continuity"].note
    assert known["rc.duplicate-acknowledged"].outcome is Outcome.PASS


def test_an_interface_that_missed_packets_is_not_trusted(tmp_path):
    tape = talk(Line(loss=0.1, seed=3))["everywhere"]
    tape.delete(*range(20, len(tape), 40))
    tape.statistics = dict.fromkeys(range(4), (1000, 25))
    verdicts = tape.check(tmp_path)
    assert verdicts["integrity.missed"].failures == 4
    assert verdicts["rc.psn-continuity"].outcome is Outcome.PASS


@pytest.mark.parametrize("seed", range(1, 2))
def test_uc_loses_and_goes_on(seed, tmp_path):
    line = Line(UC, loss=0.1, seed=seed)
    one, other = line.sides
    for number in range(30):
        other.post_receive((number * 2048, 2048))
        opcode = SEND if number % 2 else WRITE
        one.post_send(opcode, (0, 1100), remote_addr=other.address + number * 2048, rkey=other.key)
    line.run()
    tapes = line.tapes()
    for place, tape in tapes.items():
        assert (place, failed(tape.check(tmp_path))) == (place, set())
    assert tapes["h1"].check(tmp_path, at=AT_REQUESTER)["uc.psn-continuity"].checked == 150
