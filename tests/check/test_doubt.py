# SPDX-License-Identifier: GPL-2.0-or-later
"""What the capture itself lost, cut or took twice is not held against the hosts."""

import dataclasses

import pytest

from softroce_lab.check.verdict import Outcome
from tests.check.plant import MS, S, Talk, Tape, check, failed
from tests.native.frames import CAPTURES

ALL = sorted(path.stem for path in CAPTURES.glob("*.pcap"))


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


def test_reads_asked_for_again_need_a_known_path_mtu(tmp_path):
    tape = Tape.of("rxe_rc")
    first = tape.frame(1).data[26:30]
    for source in (first, tape.frame(1).data[30:34]):
        one_way = Tape(each for each in tape.frames if each.data[26:30] == source)
        assert failed(one_way.check(tmp_path)) == set()


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
