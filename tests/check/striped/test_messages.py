# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's own transports keep their rules, and every fault that is planted is found."""

import dataclasses
import json
import re
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from softroce_lab.check import suites
from softroce_lab.check.evidence import Options
from softroce_lab.check.striped import controls as feedback
from softroce_lab.check.striped.suite import SUITE, figures
from softroce_lab.check.verdict import Outcome
from softroce_lab.dissect.description import PACKET_PULL, PACKET_TRIMMED
from softroce_lab.transports import registry
from softroce_lab.transports.control import Ack, Nack, Sack
from softroce_lab.transports.defaults import EngineTiming, Timing, document
from tests.check.plant import MS, US, S, Tape, check, failed, shown
from tests.check.striped_tape import (
    BACK_DOWN,
    BACK_UP,
    DOWN,
    PATH_MTU,
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
MIDDLE = (first(4, 5),)  # with many behind it that tell
NATIVE = ("irn", "srnic", "mrc", "dcp", "ndp", "uccl")
OF_RUNS = {"once.counted", "once.verified", "once.ended-well"}
OF_NDP = {"once.pulled", "sr.pulled", "sr.pull-rate"}
OF_WINDOWED, OF_SLEEK = {"sr.window"}, {"sr.probes"}
OF_NATIVE = {"once.told"} | OF_NDP | OF_WINDOWED | OF_SLEEK
EACH = {"mrc": {"acknowledged_bytes": 0}}  # its receiver answers each packet
OF_CSA_UD = {"csa.nack", "csa.retransmit", "csa.asked", "csa.complete", "csa.control-share"}
OF_CSA_UD |= {"csa.numbers", "csa.probes", "csa.settled"}
OF_PARITY = {rule for rule in RULES if rule.startswith("parity.")}


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
    assert ours(verdicts, Outcome.PASS) == RULES - OF_RUNS - OF_NATIVE - OF_PARITY - {
        "csa.probes"
    }  # no silence
    assert verdicts["csa.nack"].checked == verdicts["csa.retransmit"].checked == LOST
    assert verdicts["csa.asked"].checked == verdicts["sr.other-path"].checked == LOST
    assert verdicts["once.whole"].checked == verdicts["csa.complete"].checked == MESSAGES
    assert verdicts["once.copies"].checked == MESSAGES * PACKETS


def test_ud_rto_keeps_every_rule(tmp_path):
    verdicts = ud_rto().check(tmp_path)
    assert ours(verdicts, Outcome.PASS) == RULES - OF_RUNS - OF_NATIVE - OF_CSA_UD - OF_PARITY
    assert verdicts["sr.repaired"].checked == LOST
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


@pytest.mark.parametrize("seeds", [range(8), range(8, 16)], ids=str)
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

FAULTS = []


def fault(*rules, of, losses=TAIL):
    """What violates these rules over each of these transports; it returns frames that show it."""

    def register(plant):
        for transport in of.split():
            name = f"{transport}-{plant.__name__}"
            FAULTS.append(pytest.param(transport, plant, losses, set(rules), id=name))
        return plant

    return register


@fault("once.whole", "csa.complete", of="csa_ud")
@fault("once.whole", of="ud_rto")
@fault("once.whole", "once.told", of="irn srnic")
def completes_with_a_hole(tape):
    """The retransmit does not reach the receiver."""
    retransmit = tape.data(message=4, index=19, attempt=1, link=DOWN)
    tape.delete(*retransmit)
    return set()


@fault("sr.repaired", "csa.retransmit", of="csa_ud")
@fault("sr.repaired", of="ud_rto irn srnic")
def is_never_repaired(tape):
    tape.delete(*tape.data(message=4, index=19, attempt=1))
    return set(tape.data(message=4, index=19, attempt=0, link=DOWN))


@fault("csa.asked", "sr.only-holes", of="csa_ud")
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


@fault("csa.asked", of="csa_ud")
def is_retransmitted_twice_for_one_look(tape):
    (sent,) = tape.data(message=4, index=19, attempt=1, link=UP)
    tape.copy(sent, before=sent + 1)
    tape.alter(sent + 1, **_retransmitted(tape, sent, attempt=2))
    return {sent + 1}


@fault("csa.asked", of="csa_ud")
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


@fault("sr.other-path", of="csa_ud ud_rto")
def is_retransmitted_on_the_path_that_lost_it(tape):
    (sent,) = tape.data(message=4, index=19, attempt=0, link=UP)
    (again,) = tape.data(message=4, index=19, attempt=1, link=UP)
    fields = tape.lab(sent)
    every(tape, again, **{name: fields[name] for name in ("path", "udp.srcport")})
    return {sent, again}


@fault("once.bytes", of="csa_ud ud_rto irn srnic")
def is_retransmitted_with_other_bytes(tape):
    (again,) = tape.data(message=4, index=19, attempt=1, link=UP)
    payload = tape.lab(again)["payload"]
    every(tape, again, payload=bytes([payload[0] ^ 1]) + payload[1:])
    return set(tape.data(message=4, index=19, attempt=0, link=DOWN)) | {again}


@fault("once.bytes", of="csa_ud irn srnic")
def arrives_with_other_bytes(tape):
    (there,) = tape.data(message=0, index=7, link=DOWN)
    tape.alter(there, payload=tape.lab(there)["payload"][::-1])
    return {there}


@fault("sr.attempts", of="csa_ud irn srnic")
def counts_no_attempt(tape):
    (again,) = tape.data(message=4, index=19, attempt=1, link=UP)
    every(tape, again, attempt=0)
    return {again}


@fault("sr.attempts", of="csa_ud irn srnic")
def counts_attempts_that_were_not(tape):
    (again,) = tape.data(message=4, index=19, attempt=1, link=UP)
    every(tape, again, attempt=3)
    return {again}


@fault("sr.attempts", of="ud_rto")
def sends_the_second_attempt_first(tape):
    (sent,) = tape.data(message=4, index=19, attempt=0, link=UP)
    (again,) = tape.data(message=4, index=19, attempt=1, link=UP)
    a, b = tape.frame(sent), tape.frame(again)
    a.data, b.data = b.data, a.data
    return {sent}


@fault("once.copies", of="csa_ud irn srnic")
def arrives_twice(tape):
    (there,) = tape.data(message=0, index=7, link=DOWN)
    tape.copy(there, before=there + 1)
    return {there, there + 1}


@fault("once.ack-known", of="csa_ud")
def acknowledges_what_was_never_sent(tape):
    number, ack = tape.sent(Ack)[-1]
    for each in tape.everywhere(number):
        tape.say(each, Ack((*ack.ids, 77)))
    return {number}


@fault("once.ack-known", of="ud_rto")
def acknowledges_before_it_is_sent(tape):
    (number, ack) = tape.sent(Ack)[0]
    begins = tape.data(message=5, link=UP)[0]
    for each in tape.everywhere(number):
        tape.say(each, Ack((*ack.ids, 5)))
    for frame in tape.frames[begins - 1 :]:
        if frame.interface in (UP, DOWN):
            frame.time_ns += 100 * MS
    return {number}


@fault("once.id", of="csa_ud irn srnic")
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


@fault("csa.nack", of="csa_ud")
def asks_too_late(tape):
    looks = nacks_of(tape, 4)
    later(tape, looks[0], S)
    return set(tape.data(message=4, index=19, attempt=0, link=DOWN)) | {looks[0]}


@fault("csa.nack", "csa.asked", of="csa_ud")
def never_asks(tape):
    looks = [number for number, _ in tape.sent(Nack)]
    tape.delete(*{each for number in looks for each in tape.everywhere(number)})
    return set(tape.data(message=4, index=19, attempt=0, link=DOWN))


@fault("csa.retransmit", of="csa_ud")
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


@fault("csa.control-share", of="csa_ud")
def talks_more_than_it_may(tape):
    return talks(tape, times=1000)


@fault("sr.only-holes", of="ud_rto")
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


@fault("once.whole", "csa.complete", "once.length", of="csa_ud")
@fault("once.whole", "once.length", of="ud_rto")
def hides_a_hole_behind_the_end(tape):
    """As many packets as the message has, but one is of an index that it does not have."""
    (sent,) = tape.data(message=2, index=19, attempt=0, link=UP)
    every(tape, sent, index=25)
    return {sent}


@fault("once.length", of="csa_ud")
def is_longer_than_the_others(tape):
    (sent,) = tape.data(message=2, index=7, attempt=0, link=UP)
    every(tape, sent, payload=tape.lab(sent)["payload"] + b"12345678")
    return {sent}


@fault("once.acknowledged", of="csa_ud ud_rto")
def is_never_acknowledged(tape):
    """Though the receiver lives on: it says more a second later."""
    for number, ack in tape.sent(Ack):
        if 2 in ack.ids:
            left = tuple(each for each in ack.ids if each != 2)
            for each in tape.everywhere(number):
                tape.say(each, Ack(left or (0,)))
    later(tape, tape.sent(Ack)[-1][0], S)


def answers(tape, link=BACK_UP):
    """Numbers of the answers to packets, and what they say."""
    found = []
    for number in range(1, len(tape) + 1):
        fields = tape.lab(number)
        if tape.frame(number).interface == link and fields["kind"] == CONTROL:
            sent = feedback.parse_feedback(fields["payload"])
            if isinstance(sent, feedback.Feedback):
                found.append((number, sent))
    return found


@fault("sr.only-holes", of="irn srnic mrc dcp ndp uccl")
def retransmits_what_was_reported(tape):
    (sent,) = tape.data(message=4, index=5, link=UP)
    end = len(tape) + 1
    tape.copy(sent, before=end, time_ns=tape.frames[-1].time_ns + S)
    tape.alter(end, **_retransmitted(tape, sent))
    return {end}


@fault("sr.only-holes", of="irn srnic mrc dcp ndp uccl")
def retransmits_without_a_sign(tape):
    """At once, and nothing behind it has been heard of."""
    (sent,) = tape.data(message=4, index=19, attempt=0, link=UP)
    tape.copy(sent, before=sent + 1)
    tape.alter(sent + 1, **_retransmitted(tape, sent))
    return {sent + 1}


def _carries(tape, number, body):
    for each in tape.everywhere(number):
        tape.alter(each, payload=body)


def _says_trimmed(tape, number, packet):
    """Another body in an answer."""
    body = bytearray(tape.lab(number)["payload"])
    body[0] = PACKET_TRIMMED
    body += struct.pack(">IBB", packet, 0, 0)
    for each in tape.everywhere(number):
        tape.alter(each, payload=bytes(body), length=len(body))


@fault("once.pulled", of="ndp")
def pulls_more_than_arrived(tape):
    number = next(
        n for n in range(1, len(tape) + 1)
        if tape.frame(n).interface == BACK_UP and tape.lab(n)["kind"] == CONTROL
        and tape.lab(n)["payload"][0] == PACKET_PULL
    )  # fmt: skip
    (pulls,) = struct.unpack_from(">I", tape.lab(number)["payload"], 1)
    _carries(tape, number, struct.pack(">BI", PACKET_PULL, pulls + MESSAGES * PACKETS))
    return {number}


@fault("once.told", of="mrc dcp ndp")
def calls_a_packet_trimmed_that_was_not(tape):
    number = next(number for number, sent in answers(tape) if sent.id == 4)
    _says_trimmed(tape, number, 18)
    return {number}


@fault("sr.only-holes", of="mrc dcp ndp", losses=MIDDLE)
def retransmits_twice_for_one_trimming(tape):
    """The answer to packet 6 becomes one that names packet 5, before all is sent."""
    (sent,) = tape.data(message=4, index=5, attempt=0, link=UP)
    number = [n for n, told in answers(tape, BACK_DOWN) if told.id == 4 and told.cumulative == 5]
    _says_trimmed(tape, number[0], 5)
    for attempt in (1, 2):
        tape.copy(sent, before=number[0] + attempt, time_ns=tape.frame(number[0]).time_ns + attempt)
        tape.alter(number[0] + attempt, **_retransmitted(tape, sent, attempt))
    return {number[0] + 2}


@fault("once.told", of="irn srnic mrc dcp ndp uccl", losses=MIDDLE)
def calls_a_packet_there_that_is_lost(tape):
    """The first answer that stops at the hole goes past it."""
    number = next(number for number, sent in answers(tape) if sent.id == 4 and sent.cumulative == 5)
    body = bytearray(tape.lab(number)["payload"])
    struct.pack_into(">I", body, 5, 6)
    _carries(tape, number, bytes(body))
    return {number}


@fault("once.told", of="irn srnic", losses=MIDDLE)
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


@fault("once.ack-known", of="irn srnic mrc dcp ndp uccl")
def answers_what_was_never_sent(tape):
    number, _ = answers(tape)[-1]
    body = bytearray(tape.lab(number)["payload"])
    struct.pack_into(">I", body, 1, 77)
    _carries(tape, number, bytes(body))
    return {number}


@fault("sr.attempts", of="irn srnic mrc dcp ndp uccl", losses=MIDDLE)
def gives_the_first_attempt_another_number(tape):
    (sent,) = tape.data(message=4, index=5, attempt=0, link=UP)
    every(tape, sent, attempt=1)
    return {sent}


@pytest.mark.parametrize(("transport", "plant", "losses", "rules"), FAULTS)
def test_a_planted_fault_is_found(tmp_path, transport, plant, losses, rules):
    def verdicts_on(tape):
        if transport in NATIVE:  # whose timers a run tells
            return in_run_of(tmp_path, tape, transport)
        return tape.check(tmp_path)

    planted = record(transport, losses, **EACH.get(transport, {}))
    frames = plant(planted)
    verdicts = verdicts_on(planted)
    assert rules <= failed(verdicts)
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


def test_the_senders_link_alone_knows_of_no_arrivals(tmp_path):
    verdicts = csa_ud().only(UP, BACK_DOWN).check(tmp_path)
    assert not failed(verdicts)
    assert verdicts["once.copies"].outcome is Outcome.INCONCLUSIVE
    assert verdicts["csa.asked"].checked == LOST


@pytest.mark.parametrize("transport", ["csa_ud", "ud_rto"])
@pytest.mark.parametrize("begins", [40, 160])
def test_a_capture_that_begins_in_mid_message_blames_nobody(tmp_path, transport, begins):
    verdicts = record(transport, LOSSES).since(begins).check(tmp_path)
    assert not failed(verdicts) & RULES


@pytest.mark.parametrize("transport", ["csa_ud", "ud_rto"])
@pytest.mark.parametrize("frames", [60, 200])
def test_a_capture_that_ends_in_mid_message_blames_nobody(tmp_path, transport, frames):
    tape = record(transport, LOSSES)
    del tape.frames[frames:]
    assert not failed(tape.check(tmp_path)) & RULES


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
    run = {
        "transport": "csa_ud", "verified": True, "emulator_drops": 0,
        "sha256": {"sent": digest, "received": digest},
        "capture": {"file": "trace.pcapng"}, "counters": {"h2": {"rx_duplicate": 0}},
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
        ({"counters": {"h2": {"rx_duplicate": 3}}}, "once.counted"),
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


# ---------------------------------------------------------------- feedback of receivers

NOT_THEIRS = OF_RUNS | OF_CSA_UD | OF_PARITY | {"sr.other-path", "recovery.detected"}


def in_run_of(folder, tape, transport, faults=(), timing=None, options=None, **more):
    """Its verdicts in a run directory that tells transport, timers, options and faults."""
    run = {
        "run": f"{transport}/1", "transport": transport, "protocol": transport, "seed": 1,
        "clock": "virtual", "capture": {"file": "trace.pcapng"},
        "timing": timing or document(Timing(), EngineTiming()),
        "options": registry.find(transport).engine({})["options"] | (options or {}),
        "path_mtu": PATH_MTU, "window_packets": 1024, "line_rate_bps": 100_000_000_000,
    }  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps({"runs": [run | more], "faults": faults}))
    tape.write(folder / "trace.pcapng")
    return check(folder, of=suites.Format.LAB)


@pytest.mark.parametrize("transport", NATIVE)
@pytest.mark.parametrize("where", [in_run_of, None], ids=["in a run", "alone"])
def test_they_keep_every_rule(tmp_path, transport, where):
    tape = record(transport, LOSSES, **EACH.get(transport, {}))
    verdicts = where(tmp_path, tape, transport) if where else tape.check(tmp_path)
    is_windowed = where and transport in ("mrc", "uccl")  # no run: their answers are srnic's
    of_others = NOT_THEIRS | OF_SLEEK | (set() if is_windowed else OF_WINDOWED)
    if transport != "ndp":
        of_others |= OF_NDP
    elif not where:
        of_others |= OF_NDP - {"once.pulled"}
    assert ours(verdicts, Outcome.PASS) == RULES - of_others
    assert not failed(verdicts)
    assert verdicts["sr.repaired"].checked == LOST
    assert verdicts["sr.only-holes"].checked >= LOST
    assert verdicts["once.whole"].checked == MESSAGES
    assert verdicts["once.told"].checked >= MESSAGES * PACKETS


def test_a_message_that_starts_again_too_early_is_found(tmp_path):
    timing = {**document(Timing(), EngineTiming()), "fixed_rto_ns": 20 * MS}
    verdicts = in_run_of(tmp_path, record("dcp", MIDDLE), "dcp", timing=timing)
    assert failed(verdicts) == {"sr.only-holes"}


def test_packets_beyond_the_window_are_found(tmp_path):
    """The tape has a window of 256, the run directory one of 128."""
    tape = record("mrc", [LOST_EIGHT_TIMES], packets=150, mpr=2)
    assert failed(in_run_of(tmp_path, tape, "mrc", options={"mpr": 1})) == {"sr.window"}
    assert not failed(in_run_of(tmp_path, tape, "mrc", options={"mpr": 2}))


def test_the_run_tells_the_timeout_of_its_transport(tmp_path):
    """The tape's message starts again after 8 ms."""
    for option_ms, outcome in ((8, Outcome.PASS), (9, Outcome.FAIL)):
        options = {"restart_timeout": option_ms * MS}
        verdicts = in_run_of(tmp_path, record("dcp", MIDDLE), "dcp", options=options)
        assert verdicts["sr.only-holes"].outcome is outcome


@pytest.mark.parametrize(("octave", "may_be_late"), [(18, False), (19, True)])
def test_a_packet_passes_its_link_up_to_two_turns_after_its_timer_started(
    tmp_path, octave, may_be_late
):
    """The tape's timeout is 1 ms shorter than the run's. A turn took up to 0.5 or 1.0 ms."""
    hosts = {"h1": {"turn_length_log2_ns": [0] * octave + [1]}, "h2": {}}
    tape, options = record("dcp", MIDDLE), {"restart_timeout": 9 * MS + 100 * US}
    verdicts = in_run_of(tmp_path, tape, "dcp", options=options, processes=hosts)
    assert failed(verdicts) == (set() if may_be_late else {"sr.only-holes"})


def test_what_may_be_wrong_is_not_told_without_the_other_direction(tmp_path):
    verdicts = in_run_of(tmp_path, record("irn", LOSSES).only(UP, DOWN), "irn")
    assert not failed(verdicts)
    assert "was not captured" in verdicts["sr.only-holes"].note


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
    verdicts = in_run_of(tmp_path, tape, "irn", [{"rule": "x", "fault": fault, "links": [link]}])
    assert failed(verdicts) == (set() if may_be_late else {"sr.only-holes"})


def test_the_second_loss_of_a_packet_is_the_timers(tmp_path):
    """No gap tells of it: that is no violation, and neither is what the timer retransmits in
    vain.
    """
    for transport in NATIVE:
        tape = record(transport, (first(4, 5), second(4, 5)))
        verdicts = in_run_of(tmp_path, tape, transport)
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
    verdict = in_run_of(tmp_path, tape, transport, timing={"initial_rtt_ns": 6 * MS})["sr.repaired"]
    assert verdict.outcome is (Outcome.INCONCLUSIVE if may_follow else Outcome.FAIL)


# ---------------------------------------------------------------- long ways and round trips


@pytest.mark.parametrize(("way_ms", "lost"), [(1, False), (99, False), (101, True)])
@pytest.mark.parametrize("transport", ["csa_ud", "irn"])
def test_packets_may_be_on_their_way_when_the_capture_ends(tmp_path, transport, way_ms, lost):
    """The last message has left its sender, and then one answer to the first one is heard."""
    tape = record(transport)
    answer = next(frame for frame in tape.frames if frame.interface == BACK_UP)
    (gone,) = tape.data(message=5, index=PACKETS - 1, link=UP)
    end_ns = tape.frame(gone).time_ns + way_ms * MS
    del tape.frames[gone:]
    tape.delete(*tape.data(message=5, link=DOWN))
    tape.frames.append(dataclasses.replace(answer, time_ns=end_ns))
    verdict = tape.check(tmp_path)["sr.repaired"]
    assert verdict.outcome is (Outcome.INCONCLUSIVE if lost else Outcome.NOT_APPLICABLE)


@pytest.mark.parametrize(("srtt_ms", "known"), [(10, True), (11, False)])
def test_timers_are_not_known_where_four_round_trips_are_longer_than_t_max(
    tmp_path, srtt_ms, known
):
    """A NACK is a second late; the timers of a slow network may allow that."""
    tape = csa_ud(TAIL)
    exponent = 13  # xdp/lab_wire.h: above a mantissa of 11 bits
    for number in range(1, len(tape) + 1):
        tape.alter(number, srtt=exponent << 11 | srtt_ms * MS >> exponent)
    later(tape, nacks_of(tape, 4)[0], S)
    verdicts = tape.check(tmp_path)
    if known:
        assert "csa.nack" in failed(verdicts)
    else:
        assert verdicts["csa.nack"].outcome is Outcome.INCONCLUSIVE
        assert "such long round trips" in verdicts["csa.nack"].note
