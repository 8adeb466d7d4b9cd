# SPDX-License-Identifier: GPL-2.0-or-later
"""The story of a message whose last packet was lost, in words and as a ladder."""

import pytest

from softroce_lab.errors import UserError
from softroce_lab.results import ladder, story
from softroce_lab.results.explained import Explained
from softroce_lab.results.incidents import Incident, What
from softroce_lab.results.recorded import Recorded
from tests.results.made import run


@pytest.fixture(scope="module")
def tail(tmp_path_factory):
    """One message of three packets; the third is dropped once."""
    return Recorded(
        run(
            "point-to-point",
            tmp_path_factory.mktemp("tail"),
            "workload={kind: point-to-point, bytes: 6000B, from: h1, to: h2}",
            "topology={generator: {kind: star, hosts: 2, access: {rate: 10Gbit, delay: 1us}}}",
            "faults=[{name: last, links: 'h1->s1', drop: tail 1 iter 1}]",
            transports=("irn", "rc", "csa_ud", "oracle"),
        )
    )


def tale(tail, name):
    known = Explained.of(tail, tail.run(name))
    return known, known.story(0)


def test_irn_waits_for_its_timer(tail):
    known, one = tale(tail, "irn/1")
    parts = {part.title: part.length_ns for part in one.parts}
    assert one.last_packet == 2
    detection = parts["until the loss was detected (timeout)"]
    assert detection > one.taken_ns / 2
    assert one.taken_ns == sum(parts.values())
    lines = "\n".join(story.words(one, known.bound_ns(one)))
    assert "h1 decided to retransmit it, because of timeout" in lines
    assert "dropped on h1->s1 by last" in lines
    assert "Under oracle it took" in lines
    assert known.bound_ns(one) < one.taken_ns


def test_rc_goes_back_for_it(tail):
    _, one = tale(tail, "rc/1")
    text = "\n".join(ladder.lines(one))
    assert "X           |  dropped on h1->s1: last" in text
    assert "h1 decides to retransmit" in text
    assert ": timeout" in text
    assert text.splitlines()[1].split()[0] == "0.000"
    drawn = [line[15:45] for line in text.splitlines()[1:]]
    assert all(each.startswith("|") and each.endswith("|") and len(each) == 30 for each in drawn)


def test_a_probe_of_csa_ud_shows_it(tail):
    _, one = tale(tail, "csa_ud/1")
    titles = [part.title for part in one.parts]
    assert "until the loss was detected (probe)" in titles
    assert any(
        "h1 decides to retransmit" in line and ": probe" in line for line in ladder.lines(one)
    )


def made(*incidents):
    """A message of h1 that was posted 1 us into the run, and what befell its packets."""
    times = {"posted_ns": 1000, "first_sent_ns": 1000, "received_ns": 9000, "completed_ns": 9500}
    return story.Story(
        run="rc/1", name="h1->h2:0/0/0", row=0, source="h1", destination="h2", size_bytes=20_000,
        packets=10, status="delivered", times=times, incidents=list(incidents), sent_again=0,
        last_packet=None, parts=[],
    )  # fmt: skip


def befell(time_ns, what, first, last, **more):
    fields = {"message": 0, "attempt": 0, "where": "h1", "why": "timer", "kind": "data"} | more
    return Incident(time_ns=time_ns, what=what, first=first, last=last, **fields)


def test_a_decision_about_some_packets_of_a_range_says_how_many():
    some = made(befell(3000, What.DECISION, 2, 8, packets=3))
    assert ladder.rungs(some)[2].note == "h1 decides to retransmit 3 of 2 to 8: timer"
    every = made(befell(3000, What.DECISION, 2, 8, packets=7))
    assert ladder.rungs(every)[2].note == "h1 decides to retransmit 2 to 8: timer"


def test_packets_in_a_row_are_there_with_the_last_of_them():
    one = made(*(befell(3000 + 1000 * each, What.ARRIVED, each, each) for each in range(3)))
    assert ladder.rungs(one)[2][::3] == (5000, "0 to 2 are at h1")


def test_packets_in_a_row_leave_with_the_first_of_them():
    one = made(*(befell(3000 + each, What.SENT_AGAIN, each, each) for each in range(3)))
    assert ladder.rungs(one)[2][::2] == (3000, "0 to 2")


def test_times_in_words_count_from_the_post():
    one = made(befell(3000, What.DROP, 1, 1, where="h1->s1"), befell(4500, What.SENT_AGAIN, 1, 1))
    assert story.packet_words(one, 1) == [
        "2 us: dropped on h1->s1 by timer", "3.5 us, 1.5 us later: left h1 again",
    ]  # fmt: skip


def test_messages_by_name(tail):
    known, _ = tale(tail, "irn/1")
    assert story.named(known.messages, "h1->h2:0/0/0") == 0
    assert story.named(known.messages, "0/0/0") == 0
    with pytest.raises(UserError, match="names no message"):
        story.named(known.messages, "h1-h2")
    with pytest.raises(UserError, match="there is no message '0/0/7'"):
        story.named(known.messages, "0/0/7")


def test_one_key_of_several_messages_is_ambiguous(ring_run):
    recorded = Recorded(ring_run)
    known = Explained.of(recorded, recorded.run("irn/1"))
    with pytest.raises(UserError, match="4 messages are called 0/1/0"):
        story.named(known.messages, "0/1/0")
    rows = story.worst(known.messages, 3)
    taken = story.completion_ns(known.messages)
    assert sorted(taken, reverse=True)[:3] == [taken[row] for row in rows]


@pytest.mark.parametrize(
    ("attempt", "words"),
    [(0, "1st"), (1, "2nd"), (2, "3rd"), (3, "4th"), (4, "5th"), (10, "11th"), (20, "21st"),
     (21, "22nd"), (22, "23rd"), (110, "111th"), (111, "112th")],
)  # fmt: skip
def test_transmissions_are_counted_from_one(attempt, words):
    """As a packet's attempts, which count from 0."""
    assert story.ordinal(attempt) == words


def test_a_message_that_failed_says_how(tmp_path):
    made = Recorded(
        run(
            "point-to-point",
            tmp_path,
            "workload={kind: point-to-point, bytes: 6000B, from: h1, to: h2}",
            "topology={generator: {kind: star, hosts: 2, access: {rate: 10Gbit, delay: 1us}}}",
            "faults=[{name: all, links: 'h1->s1', loss: random 100%}]",
            "blackout=1ms",
            transports=("irn", "rc"),
        )
    )
    for name in ("irn/1", "rc/1"):
        _, one = tale(made, name)
        assert one.status == "IBV_WC_RETRY_EXC_ERR"
        assert one.taken_ns is None
        assert one.parts == []
        assert "IBV_WC_RETRY_EXC_ERR" in story.words(one)[0]
        assert list(ladder.lines(one))


def test_of_a_run_that_ended_early_a_posted_message_is_told_first(tmp_path):
    """The ring stops where h1 is cut off: what was never posted waits for what was lost."""
    cut = Recorded(
        run(
            "ring-all-reduce",
            tmp_path,
            "topology={generator: {kind: star, hosts: 4, access: {rate: 10Gbit, delay: 1us}}}",
            "faults=[{name: cut, links: 'h1->s1', loss: blackout}]",
            "deadline=5ms",
            "seeds=[1]",
            transports=("irn",),
        )
    )
    known = Explained.of(cut, cut.run("irn/1"))
    first, *_, last = (known.story(row) for row in story.worst(known.messages, len(known.messages)))
    assert first.times["posted_ns"] >= 0
    assert last.times["posted_ns"] < 0
    words = story.words(last)
    assert "It was never posted: what it waited for did not happen." in words
    assert "None of its packets was lost." not in words
