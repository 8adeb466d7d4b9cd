# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's own transports: they keep their rules, and every fault that is planted is found."""

import dataclasses
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from softroce_lab.check import suites
from softroce_lab.check.evidence import Options
from softroce_lab.check.striped import recovery_time
from softroce_lab.check.striped.suite import SUITE, figures
from softroce_lab.check.verdict import Outcome
from softroce_lab.transports.control import Ack, Nack, Sack
from tests.check.plant import MS, S, Tape, check, failed, shown
from tests.check.striped_tape import (
    BACK_DOWN,
    BACK_UP,
    DOWN,
    UP,
    StripedTape,
    first,
    record,
    second,
)
from tests.transports import schedule
from tests.transports.pair_rig import CONTROL, PairRig

RULES = {rule.name for rule in SUITE.rules}
MESSAGES, PACKETS = 6, 20
LOSSES = (
    first(1, 3),  # one in the middle,
    second(1, 3),  # and its retransmission;
    first(2, 17, 19),  # a tail of three,
    first(3, 0, 19),  # a message lost whole,
    first(4, 19),  # and a tail of one
)
LOST = 1 + 1 + 3 + 20 + 1
TAIL = (first(4, 19),)
OF_RUNS = {"once.counted", "once.verified", "once.ended-well"}
OF_NATIVE = {"once.told"}  # of irn and srnic: test_feedback.py
OF_CSA_UD = {"csa.nack", "csa.retransmit", "csa.asked", "csa.complete", "csa.control-share"}
OF_CSA_UD |= {"csa.numbers", "csa.probes", "csa.settled"}


def csa_ud(losses=LOSSES, **more):
    return record("csa_ud", losses, **more)


def ud_rto(losses=LOSSES, **more):
    return record("ud_rto", losses, **more)


def ours(verdicts, outcome):
    return {rule for rule in RULES if verdicts[rule].outcome is outcome}


def later(tape, since, by_ns):
    """Everything from a frame on happens so much later."""
    for frame in tape.frames[since - 1 :]:
        frame.time_ns += by_ns


def every(tape, number, **fields):
    """Other fields in all sightings of a packet; their numbers."""
    found = tape.everywhere(number)
    for each in found:
        tape.alter(each, **fields)
    return found


# ---------------------------------------------------------------- nothing is wrong


def test_csa_ud_keeps_every_rule(tmp_path):
    verdicts = csa_ud().check(tmp_path)
    assert ours(verdicts, Outcome.PASS) == RULES - OF_RUNS - OF_NATIVE - {
        "csa.probes"
    }  # no silence
    assert verdicts["csa.nack"].checked == verdicts["csa.retransmit"].checked == LOST
    assert verdicts["csa.asked"].checked == verdicts["sr.other-path"].checked == LOST
    assert verdicts["once.whole"].checked == verdicts["csa.complete"].checked == MESSAGES
    assert verdicts["once.copies"].checked == MESSAGES * PACKETS


def test_ud_rto_keeps_every_rule(tmp_path):
    verdicts = ud_rto().check(tmp_path)
    assert ours(verdicts, Outcome.PASS) == RULES - OF_RUNS - OF_NATIVE - OF_CSA_UD
    assert verdicts["sr.repaired"].checked == LOST
    assert verdicts["once.whole"].checked == MESSAGES


@pytest.mark.parametrize("transport", ["csa_ud", "ud_rto"])
def test_nothing_lost_leaves_nothing_to_recover(tmp_path, transport):
    verdicts = record(transport).check(tmp_path)
    assert not failed(verdicts)
    assert verdicts["sr.repaired"].outcome is Outcome.NOT_APPLICABLE
    assert verdicts["once.whole"].checked == MESSAGES


def test_what_a_timer_retransmits_in_vain_is_counted_and_no_violation(tmp_path):
    """Bitmaps are lost, so the sender believes that all packets are."""
    early = [{"kind": CONTROL, "message": sequence} for sequence in range(6)]
    tape = ud_rto([first(0, 3)], messages=1, back=early)
    verdict = tape.check(tmp_path)["sr.only-holes"]
    assert verdict.outcome is Outcome.PASS
    assert verdict.checked >= PACKETS  # once or more often, until a bitmap is heard
    assert (
        verdict.note == f"ud_rto's timer retransmitted {verdict.checked - 1} that were on their way"
    )


@pytest.mark.parametrize("seeds", [range(n, n + 10) for n in range(0, 60, 10)], ids=str)
def test_no_schedule_of_fault_looks_like_a_violation(tmp_path, monkeypatch, seeds):
    """Losses, copies, reordering and late receives, as one sees them at the senders' links."""
    monkeypatch.setattr(schedule, "PairRig", KeepingRig)
    for seed in seeds:
        tape = StripedTape.of_sent(schedule.run(seed).pair.take_sent())
        verdicts = tape.check(tmp_path)
        assert not failed(verdicts) & RULES, f"seed {seed}"
        assert verdicts["once.whole"].outcome is Outcome.PASS


class KeepingRig(PairRig):
    """A rig whose frames are kept."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.pair.keep_sent()


# ---------------------------------------------------------------- two copies


LOST_EIGHT_TIMES = first(1, 3) | {"attempt_last": 7}


def attempts(tape, message, index):
    sent = tape.data(message=message, index=index, link=UP)
    return [tape.lab(number)["attempt"] for number in sent]


def test_two_copies_of_what_was_lost_eight_times_need_one_nack(tmp_path):
    """Losses may be in step with what a round of recovery sends."""
    tape = csa_ud([LOST_EIGHT_TIMES], messages=2)
    assert attempts(tape, 1, 3) == list(range(10))
    verdicts = tape.check(tmp_path)
    assert ours(verdicts, Outcome.FAIL) == set()
    assert verdicts["csa.asked"].checked == 9


def test_a_third_copy_needs_a_nack(tmp_path):
    tape = csa_ud([LOST_EIGHT_TIMES], messages=2)
    sent = tape.data(message=1, index=3, attempt=9, link=UP)[0]
    tape.copy(sent, before=sent + 1)
    tape.alter(sent + 1, **_retransmitted(tape, sent, attempt=10))
    verdicts = tape.check(tmp_path)
    assert "csa.asked" in failed(verdicts)
    assert sent + 1 in shown(verdicts["csa.asked"])


# ---------------------------------------------------------------- planted faults


def completes_with_a_hole(tape):
    """The retransmit does not reach the receiver."""
    retransmit = tape.data(message=4, index=19, attempt=1, link=DOWN)
    tape.delete(*retransmit)
    return set()


def is_never_repaired(tape):
    tape.delete(*tape.data(message=4, index=19, attempt=1))
    return set(tape.data(message=4, index=19, attempt=0, link=DOWN))


def is_retransmitted_though_nobody_asked(tape):
    (sent,) = tape.data(message=1, index=5, link=UP)
    end = len(tape) + 1
    tape.copy(sent, before=end)
    tape.alter(end, **_retransmitted(tape, sent))
    return {end}


def _retransmitted(tape, sent, attempt=1):
    fields = tape.lab(sent)
    last = max(tape.lab(n)["infiniband.bth.psn"] for n in range(1, len(tape) + 1))
    path = (fields["path"] + 1) % 8
    return {
        "attempt": attempt, "infiniband.bth.psn": last + 1, "path": path,
        "udp.srcport": 0xC000 + path,
    }  # fmt: skip


def is_retransmitted_twice_for_one_look(tape):
    (sent,) = tape.data(message=4, index=19, attempt=1, link=UP)
    tape.copy(sent, before=sent + 1)
    tape.alter(sent + 1, **_retransmitted(tape, sent, attempt=2))
    return {sent + 1}


def is_retransmitted_for_a_nack_from_before(tape):
    """One that arrives behind the first retransmission, but left before it."""
    (again,) = tape.data(message=4, index=19, attempt=1, link=UP)
    late = [tape.frame(n) for n in nacks_of(tape, 4, BACK_DOWN) if n < again]
    sent = tape.frame(again)
    tape.frames = [each for each in tape.frames if all(each is not one for one in late)]
    place = next(n for n, each in enumerate(tape.frames, 1) if each is sent)
    for frame in late:
        frame.time_ns = sent.time_ns
    tape.frames[place:place] = late
    end = place + len(late) + 1
    tape.copy(place, before=end)
    tape.alter(end, **_retransmitted(tape, place, attempt=2))
    return {end}


def is_retransmitted_on_the_path_that_lost_it(tape):
    (sent,) = tape.data(message=4, index=19, attempt=0, link=UP)
    (again,) = tape.data(message=4, index=19, attempt=1, link=UP)
    fields = tape.lab(sent)
    every(tape, again, **{name: fields[name] for name in ("path", "udp.srcport")})
    return {sent, again}


def is_retransmitted_with_other_bytes(tape):
    (again,) = tape.data(message=4, index=19, attempt=1, link=UP)
    payload = tape.lab(again)["payload"]
    every(tape, again, payload=bytes([payload[0] ^ 1]) + payload[1:])
    return set(tape.data(message=4, index=19, attempt=0, link=DOWN)) | {again}


def arrives_with_other_bytes(tape):
    (there,) = tape.data(message=0, index=7, link=DOWN)
    tape.alter(there, payload=tape.lab(there)["payload"][::-1])
    return {there}


def counts_no_attempt(tape):
    (again,) = tape.data(message=4, index=19, attempt=1, link=UP)
    every(tape, again, attempt=0)
    return {again}


def counts_attempts_that_were_not(tape):
    (again,) = tape.data(message=4, index=19, attempt=1, link=UP)
    every(tape, again, attempt=3)
    return {again}


def sends_the_second_attempt_first(tape):
    (sent,) = tape.data(message=4, index=19, attempt=0, link=UP)
    (again,) = tape.data(message=4, index=19, attempt=1, link=UP)
    a, b = tape.frame(sent), tape.frame(again)
    a.data, b.data = b.data, a.data
    return {sent}


def arrives_twice(tape):
    (there,) = tape.data(message=0, index=7, link=DOWN)
    tape.copy(there, before=there + 1)
    return {there, there + 1}


def acknowledges_what_was_never_sent(tape):
    number, ack = tape.sent(Ack)[-1]
    for each in tape.everywhere(number):
        tape.say(each, Ack((*ack.ids, 77)))
    return {number}


def acknowledges_before_it_is_sent(tape):
    (number, ack) = tape.sent(Ack)[0]
    begins = tape.data(message=5, link=UP)[0]
    for each in tape.everywhere(number):
        tape.say(each, Ack((*ack.ids, 5)))
    for frame in tape.frames[begins - 1 :]:
        if frame.interface in (UP, DOWN):
            frame.time_ns += 100 * MS
    return {number}


def uses_an_id_that_is_live(tape):
    for sent in tape.data(message=5, index=2):
        tape.alter(sent, message_id=4)
    return set(tape.data(message=5, index=2))


def nacks_of(tape, message, link=BACK_UP):
    """Those that say what a message lacks, or that it has not begun; ids are those of messages."""
    nacks = tape.sent(Nack, link)
    return [
        number
        for number, nack in nacks
        if nack.end <= message or message in {id_ for id_, _, _ in nack.words}
    ]


def asks_too_late(tape):
    looks = nacks_of(tape, 4)
    later(tape, looks[0], S)
    return set(tape.data(message=4, index=19, attempt=0, link=DOWN)) | {looks[0]}


def never_asks(tape):
    looks = [number for number, _ in tape.sent(Nack)]
    tape.delete(*{each for number in looks for each in tape.everywhere(number)})
    return set(tape.data(message=4, index=19, attempt=0, link=DOWN))


def answers_too_late(tape):
    (again,) = tape.data(message=4, index=19, attempt=1, link=UP)
    later(tape, again, S)
    return {again}


def talks(tape, times):
    number, _ = tape.sent(Nack)[0]
    for count in range(times):
        tape.copy(number, before=number + 1)
        tape.alter(number + 1, message=1 << 20 | count, **{"infiniband.bth.psn": 1 << 20 | count})
    return set()


def talks_more_than_it_may(tape):
    return talks(tape, times=1000)


def retransmits_what_the_bitmap_has(tape):
    """A long time after the bitmap that says so was heard."""
    (sent,) = tape.data(message=4, index=5, link=UP)
    lacking = [m for _, m in tape.sent(Sack, BACK_DOWN) if m.id == 4]
    assert lacking
    assert all(5 not in bitmap.missing.indices() for bitmap in lacking)
    end = len(tape) + 1
    tape.copy(sent, before=end, time_ns=tape.frames[-1].time_ns + S)
    tape.alter(end, **_retransmitted(tape, sent))
    return {end}


def hides_a_hole_behind_the_end(tape):
    """As many packets as the message has, but one is of an index that it does not have."""
    (sent,) = tape.data(message=2, index=19, attempt=0, link=UP)
    every(tape, sent, index=25)
    return {sent}


def is_longer_than_the_others(tape):
    (sent,) = tape.data(message=2, index=7, attempt=0, link=UP)
    every(tape, sent, payload=tape.lab(sent)["payload"] + b"12345678")
    return {sent}


def ends_later_than_its_message(tape):
    (sent,) = tape.data(message=2, index=19, attempt=0, link=UP)
    every(tape, sent, payload=tape.lab(sent)["payload"] + b"1234")
    return {sent}


def is_never_acknowledged(tape):
    """Though the receiver lives on: it says more a second later."""
    for number, ack in tape.sent(Ack):
        if 2 in ack.ids:
            left = tuple(each for each in ack.ids if each != 2)
            for each in tape.everywhere(number):
                tape.say(each, Ack(left or (0,)))
    later(tape, tape.sent(Ack)[-1][0], S)


PLANTED = [
    (csa_ud, is_never_acknowledged, {"once.acknowledged"}),
    (ud_rto, is_never_acknowledged, {"once.acknowledged"}),
    (csa_ud, hides_a_hole_behind_the_end, {"once.whole", "csa.complete", "once.length"}),
    (ud_rto, hides_a_hole_behind_the_end, {"once.whole", "once.length"}),
    (csa_ud, is_longer_than_the_others, {"once.length"}),
    (ud_rto, ends_later_than_its_message, {"once.length"}),
    (csa_ud, completes_with_a_hole, {"once.whole", "csa.complete"}),
    (ud_rto, completes_with_a_hole, {"once.whole"}),
    (csa_ud, is_never_repaired, {"sr.repaired", "csa.retransmit"}),
    (ud_rto, is_never_repaired, {"sr.repaired"}),
    (csa_ud, is_retransmitted_though_nobody_asked, {"csa.asked", "sr.only-holes"}),
    (ud_rto, retransmits_what_the_bitmap_has, {"sr.only-holes"}),
    (csa_ud, is_retransmitted_twice_for_one_look, {"csa.asked"}),
    (csa_ud, is_retransmitted_for_a_nack_from_before, {"csa.asked"}),
    (csa_ud, is_retransmitted_on_the_path_that_lost_it, {"sr.other-path"}),
    (ud_rto, is_retransmitted_on_the_path_that_lost_it, {"sr.other-path"}),
    (csa_ud, is_retransmitted_with_other_bytes, {"once.bytes"}),
    (ud_rto, is_retransmitted_with_other_bytes, {"once.bytes"}),
    (csa_ud, arrives_with_other_bytes, {"once.bytes"}),
    (csa_ud, counts_no_attempt, {"sr.attempts"}),
    (csa_ud, counts_attempts_that_were_not, {"sr.attempts"}),
    (ud_rto, sends_the_second_attempt_first, {"sr.attempts"}),
    (csa_ud, arrives_twice, {"once.copies"}),
    (csa_ud, acknowledges_what_was_never_sent, {"once.ack-known"}),
    (ud_rto, acknowledges_before_it_is_sent, {"once.ack-known"}),
    (csa_ud, uses_an_id_that_is_live, {"once.id"}),
    (csa_ud, asks_too_late, {"csa.nack"}),
    (csa_ud, never_asks, {"csa.nack", "csa.asked"}),
    (csa_ud, answers_too_late, {"csa.retransmit"}),
    (csa_ud, talks_more_than_it_may, {"csa.control-share"}),
]


@pytest.mark.parametrize(
    ("tape", "plant", "rules"),
    [pytest.param(*each, id=f"{each[0].__name__}-{each[1].__name__}") for each in PLANTED],
)
def test_a_planted_fault_is_found(tmp_path, tape, plant, rules):
    planted = tape(TAIL)
    frames = plant(planted)
    verdicts = planted.check(tmp_path)
    assert rules <= failed(verdicts)
    for rule in rules:
        assert verdicts[rule].failures > 0
    if frames:
        assert frames <= set.union(*(shown(verdicts[rule]) for rule in rules))


@pytest.mark.parametrize("packets", [PACKETS, 10 * PACKETS])
def test_control_messages_may_take_their_share_and_not_one_more(tmp_path, packets):
    """The bound of control messages, of six messages that are over before T_min."""
    tape = csa_ud(TAIL, packets=packets)
    used, data, *_ = re.findall(r"\d+", tape.check(tmp_path)["csa.control-share"].note)
    allowed = 4096 + 0.05 * int(data) + (512 + 1536) * MESSAGES + 1536 * len(TAIL) + 512
    number, _ = tape.sent(Nack)[0]
    more = int((allowed - int(used)) / len(tape.frame(number).data))
    for times, outcome in ((more, Outcome.PASS), (more + 1, Outcome.FAIL)):
        tape = csa_ud(TAIL, packets=packets)
        talks(tape, times)
        assert tape.check(tmp_path)["csa.control-share"].outcome is outcome


# ---------------------------------------------------------------- what a capture cannot tell


def test_the_receivers_link_alone_tells_what_arrived_and_what_was_asked(tmp_path):
    verdicts = csa_ud().only(DOWN, BACK_UP).check(tmp_path)
    assert not failed(verdicts)
    assert verdicts["once.whole"].checked == MESSAGES
    assert verdicts["csa.nack"].checked == verdicts["csa.asked"].checked == LOST


def test_a_message_that_was_lost_before_the_capture_still_needs_looks(tmp_path):
    tape = record("csa_ud", [first(message=3, index=0, last=PACKETS - 1)])
    tape.frames = [frame for frame in tape.frames if frame.comment is None]  # none came so far
    tape = tape.only(DOWN, BACK_UP)
    assert not failed(tape.check(tmp_path))
    tape.delete(*nacks_of(tape, 3, link=1))
    assert {"csa.asked", "sr.only-holes"} <= failed(tape.check(tmp_path))


def test_one_direction_tells_nothing_of_requests(tmp_path):
    verdicts = csa_ud().only(UP, DOWN).check(tmp_path)
    assert not failed(verdicts)
    for rule in ("csa.nack", "csa.asked", "csa.control-share"):
        assert verdicts[rule].outcome is Outcome.INCONCLUSIVE
        assert "other direction was not captured" in verdicts[rule].note


def test_a_hole_is_found_at_the_receivers_link_alone(tmp_path):
    tape = csa_ud(TAIL)
    completes_with_a_hole(tape)
    alone = tape.only(DOWN, BACK_UP)
    assert "once.whole" in failed(alone.check(tmp_path))


def test_the_senders_link_alone_knows_of_no_arrivals(tmp_path):
    verdicts = csa_ud().only(UP, BACK_DOWN).check(tmp_path)
    assert not failed(verdicts)
    assert verdicts["once.copies"].outcome is Outcome.INCONCLUSIVE
    assert verdicts["csa.asked"].checked == LOST


@pytest.mark.parametrize("transport", ["csa_ud", "ud_rto"])
@pytest.mark.parametrize("begins", [40, 100, 160, 240])
def test_a_capture_that_begins_in_mid_message_blames_nobody(tmp_path, transport, begins):
    verdicts = record(transport, LOSSES).since(begins).check(tmp_path)
    assert not failed(verdicts) & RULES


def test_it_is_said_that_a_message_began_before_the_capture(tmp_path):
    verdicts = csa_ud().since(40).check(tmp_path)
    assert "the message began before the capture" in verdicts["once.whole"].note


@pytest.mark.parametrize("transport", ["csa_ud", "ud_rto"])
@pytest.mark.parametrize("frames", [60, 130, 200, 270])
def test_a_capture_that_ends_in_mid_message_blames_nobody(tmp_path, transport, frames):
    tape = record(transport, LOSSES)
    del tape.frames[frames:]
    assert not failed(tape.check(tmp_path)) & RULES


def test_a_snap_length_without_data_tells_nothing_of_bytes(tmp_path):
    verdicts = csa_ud().cut(128).check(tmp_path)
    assert verdicts["once.bytes"].outcome is Outcome.INCONCLUSIVE
    assert "snap length" in verdicts["once.bytes"].note
    assert verdicts["once.whole"].outcome is Outcome.PASS


def test_a_snap_length_that_cuts_looks_leaves_requests_open(tmp_path):
    verdicts = csa_ud(TAIL).cut(128).check(tmp_path)
    assert verdicts["csa.asked"].outcome is Outcome.INCONCLUSIVE
    assert "snap length cut" in verdicts["csa.asked"].note


def test_a_capture_that_missed_packets_blames_nobody(tmp_path):
    tape = csa_ud()
    tape.delete(*tape.data(message=4, index=19, attempt=1), *tape.data(message=0, link=DOWN)[:5])
    tape.statistics = dict.fromkeys(range(4), (100, 0)) | {DOWN: (100, 7)}
    verdicts = tape.check(tmp_path)
    assert not failed(verdicts) & RULES
    assert "the capture missed 7 packets" in verdicts["once.whole"].note


def test_a_capture_of_others_has_nothing_of_ours(tmp_path):
    tape = Tape.of("rxe_rc")
    verdicts = tape.check(tmp_path, of=suites.Format.AUTO)
    assert not RULES & {rule for rule, each in verdicts.items() if each.checked}
    assert figures(suites.evidence_of(tmp_path / "planted.pcapng", Options())) == {}


# ---------------------------------------------------------------- run directories


def in_run(folder, tape, **changed):
    """The tape's verdicts in a run directory whose manifest says this of the run."""
    digest = "5" * 64
    end = {"counters": {"rx_duplicate": 0}}
    run = {
        "transport": "csa_ud", "verified": True, "emulator_drops": 0,
        "sha256": {"sent": digest, "received": digest}, "sender": end, "receiver": end,
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps({"runs": [run | changed]}))
    tape.write(folder / "trace.pcapng")
    status = pa.array([changed.get("status", 0)] * MESSAGES, pa.int32())
    pq.write_table(pa.table({"status": status}), folder / "messages.parquet")
    return check(folder, of=suites.Format.LAB)


def test_a_run_directory_says_what_was_counted_and_verified(tmp_path):
    verdicts = in_run(tmp_path, csa_ud())
    assert not failed(verdicts) & RULES
    assert verdicts["once.counted"].checked == 1
    assert verdicts["once.verified"].checked == 1
    assert verdicts["once.ended-well"].checked == MESSAGES


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"receiver": {"counters": {"rx_duplicate": 3}}}, "once.counted"),
        ({"sha256": {"sent": "1" * 64, "received": "2" * 64}}, "once.verified"),
        ({"verified": False}, "once.verified"),
        ({"status": 12}, "once.ended-well"),
    ],
)
def test_a_run_directory_that_says_otherwise_is_found(tmp_path, changed, rule):
    assert failed(in_run(tmp_path, csa_ud(), **changed)) & RULES == {rule}


# ---------------------------------------------------------------- how long it took


def test_recovery_times_are_those_of_the_capture(tmp_path):
    """Of the one lost packet: its drop, the NACK that names it, the retransmission, its arrival."""
    tape = csa_ud(TAIL)
    (gone,) = tape.data(message=4, index=19, attempt=0, link=DOWN)
    look = nacks_of(tape, 4)[0]
    (retransmitted,) = tape.data(message=4, index=19, attempt=1, link=UP)
    (there,) = tape.data(message=4, index=19, attempt=1, link=DOWN)
    begin = tape.frame(gone).time_ns
    evidence = suites.evidence_of(tape.write(tmp_path / "tape.pcapng"), Options())
    times = figures(evidence)["csa_ud"]
    for step, number in (("detected", look), ("retransmitted", retransmitted), ("repaired", there)):
        took_ns = tape.frame(number).time_ns - begin
        assert times[step] == {
            "count": 1, "p50_ns": took_ns, "p99_ns": took_ns, "max_ns": took_ns,
        }  # fmt: skip


def test_percentiles_are_values_that_occurred():
    times = recovery_time.Distribution.of(np.array([5, 1, 3]))
    assert times == recovery_time.Distribution(count=3, p50_ns=3, p99_ns=5, max_ns=5)


@pytest.mark.parametrize("transport", [csa_ud, ud_rto])
def test_runs_with_the_same_ids_are_parted_by_a_silence(transport, tmp_path):
    tape = transport()
    once = tape.check(tmp_path)
    span_ns = tape.frames[-1].time_ns - tape.frames[0].time_ns + S
    tape.frames += [
        dataclasses.replace(each, time_ns=each.time_ns + span_ns) for each in tape.frames
    ]
    twice = tape.check(tmp_path)
    assert not failed(twice) & RULES
    assert twice["once.whole"].checked == 2 * once["once.whole"].checked
