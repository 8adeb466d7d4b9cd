# SPDX-License-Identifier: GPL-2.0-or-later
"""The story of a message: in words, as a ladder, and as the bitmap of its receiver."""

import dataclasses
import itertools

import numpy as np
import pytest

from softroce_lab.errors import UserError
from softroce_lab.results import ladder, story
from softroce_lab.results.bitmap import ARRIVED, MISSING, MOST_CELLS, TO_COME, bitmaps
from softroce_lab.results.incidents import Incident, What
from softroce_lab.results.recorded import Recorded
from softroce_lab.results.story import Explained
from tests.results.made import run

STAR = "topology={generator: {kind: star, hosts: 2, access: {rate: 10Gbit, delay: 1us}}}"
SIZE = "workload={kind: point-to-point, bytes: 6000B, from: h1, to: h2}"


@pytest.fixture(scope="module")
def tail(tmp_path_factory):
    """One message of three packets; the third is dropped once."""
    loss = "faults=[{name: last, links: 'h1->s1', drop: tail 1 iter 1}]"
    transports = ("irn", "rc", "csa_ud", "oracle")
    folder = tmp_path_factory.mktemp("tail")
    return Recorded(run("point-to-point", folder, SIZE, STAR, loss, transports=transports))


def tale(recorded, name):
    known = Explained.of(recorded, recorded.run(name))
    return known, known.story(0)


def test_each_transport_repairs_a_lost_tail_in_its_way(tail):
    known, one = tale(tail, "irn/1")
    parts = {part.title: part.length_ns for part in one.parts}
    assert one.last_packet == 2
    assert parts["until the loss was detected (timeout)"] > one.taken_ns / 2
    assert one.taken_ns == sum(parts.values())
    text = "\n".join(story.words(one, known.bound_ns(one)))
    assert "h1 decided to retransmit it, because of timeout" in text
    assert "dropped on h1->s1 by last" in text
    assert "Under oracle it took" in text
    assert known.bound_ns(one) < one.taken_ns
    _, one = tale(tail, "rc/1")
    text = "\n".join(ladder.lines(one))
    assert "X           |  dropped on h1->s1: last" in text
    assert "h1 decides to retransmit" in text
    assert ": timeout" in text
    assert text.splitlines()[1].split()[0] == "0.000"
    drawn = [line[15:45] for line in text.splitlines()[1:]]
    assert all(each.startswith("|") and each.endswith("|") and len(each) == 30 for each in drawn)
    _, one = tale(tail, "csa_ud/1")
    assert "until the loss was detected (probe)" in [part.title for part in one.parts]


def befell(time_ns, what, first, last, **more):
    fields = {"message": 0, "attempt": 0, "where": "h1", "why": "timer", "kind": "data"} | more
    return Incident(time_ns=time_ns, what=what, first=first, last=last, **fields)


def made(*incidents):
    """A message of h1 that was posted 1 us into the run, and what befell its packets."""
    times = {"posted_ns": 1000, "first_sent_ns": 1000, "received_ns": 9000, "completed_ns": 9500}
    return story.Story(
        run="rc/1", name="h1->h2:0/0/0", row=0, source="h1", destination="h2", size_bytes=20_000,
        packets=10, status="delivered", times=times, incidents=list(incidents), sent_again=0,
        last_packet=None, parts=[],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("incidents", "rung"),
    [
        ([befell(3000, What.DECISION, 2, 8, packets=3)],
         (3000, "", "", "h1 decides to retransmit 3 of 2 to 8: timer")),
        ([befell(3000, What.DECISION, 2, 8, packets=7)],
         (3000, "", "", "h1 decides to retransmit 2 to 8: timer")),
        # Packets in a row are there with the last of them, and leave with the first.
        ([befell(3000 + 1000 * at, What.ARRIVED, at, at) for at in range(3)],
         (5000, "", "", "0 to 2 are at h1")),
        ([befell(3000 + at, What.SENT_AGAIN, at, at) for at in range(3)],
         (3000, ">", "0 to 2", "sent again")),
    ],
)  # fmt: skip
def test_rungs(incidents, rung):
    assert ladder.rungs(made(*incidents))[2] == rung


def test_times_in_words_count_from_the_post():
    one = made(befell(3000, What.DROP, 1, 1, where="h1->s1"), befell(4500, What.SENT_AGAIN, 1, 1))
    assert story.packet_words(one, 1) == [
        "2 us: dropped on h1->s1 by timer", "3.5 us, 1.5 us later: left h1 again",
    ]  # fmt: skip


def test_messages_by_name(tail, ring_run):
    known, _ = tale(tail, "irn/1")
    assert story.named(known.messages, "h1->h2:0/0/0") == 0
    assert story.named(known.messages, "0/0/0") == 0
    for wrong, words in (("h1-h2", "names no message"), ("0/0/7", "there is no message '0/0/7'")):
        with pytest.raises(UserError, match=words):
            story.named(known.messages, wrong)
    known, _ = tale(Recorded(ring_run), "irn/1")
    with pytest.raises(UserError, match="4 messages are called 0/1/0"):
        story.named(known.messages, "0/1/0")
    taken = story.completion_ns(known.messages)
    worst = [taken[row] for row in story.worst(known.messages, 3)]
    assert sorted(taken, reverse=True)[:3] == worst


def test_transmissions_are_counted_from_one():
    """As a packet's attempts, which count from 0."""
    attempts = (0, 1, 2, 3, 10, 20, 21, 22, 110, 111)
    words = ["1st", "2nd", "3rd", "4th", "11th", "21st", "22nd", "23rd", "111th", "112th"]
    assert [story.ordinal(each) for each in attempts] == words


def test_messages_that_were_not_delivered_say_how(tmp_path):
    loss = "faults=[{name: all, links: 'h1->s1', loss: random 100%}]"
    lost = Recorded(run("point-to-point", tmp_path / "lost", SIZE, STAR, loss, "blackout=1ms",
                        transports=("irn", "rc")))  # fmt: skip
    for name in ("irn/1", "rc/1"):
        _, one = tale(lost, name)
        assert (one.status, one.taken_ns, one.parts) == ("IBV_WC_RETRY_EXC_ERR", None, [])
        assert "IBV_WC_RETRY_EXC_ERR" in story.words(one)[0]
        assert list(ladder.lines(one))
    # The ring stops where h1 is cut off: what was never posted waits for what was lost.
    cut = Recorded(run(
        "ring-all-reduce", tmp_path / "cut", STAR.replace("hosts: 2", "hosts: 4"), "seeds=[1]",
        "faults=[{name: cut, links: 'h1->s1', loss: blackout}]", "deadline=5ms",
        transports=("irn",),
    ))  # fmt: skip
    known = Explained.of(cut, cut.run("irn/1"))
    first, *_, last = (known.story(row) for row in story.worst(known.messages, len(known.messages)))
    assert first.times["posted_ns"] >= 0 > last.times["posted_ns"]
    words = story.words(last)
    assert "It was never posted: what it waited for did not happen." in words
    assert "None of its packets was lost." not in words


# --- Bitmaps -------------------------------------------------------------------------------------


def slowest(ring_run, name, count=8):
    recorded = Recorded(ring_run)
    known = Explained.of(recorded, recorded.run(name))
    tales = [known.story(row) for row in story.worst(known.messages, count)]
    return recorded, known.messages.host, tales


def at_all_times(one, *, in_order):
    times = sorted({*one.times.values(), *(each.time_ns for each in one.incidents)})
    return times, bitmaps(one, times, in_order=in_order)


@pytest.mark.parametrize("name", ["csa_ud/1", "irn/1"])
def test_what_is_missing_is_in_the_table_of_repairs(ring_run, name):
    recorded, host, tales = slowest(ring_run, name)
    repairs = recorded.table("repairs", recorded.run(name))
    ends = [np.array([host(each) for each in repairs[end].tolist()]) for end in ("src", "dst")]
    found = 0
    for one in tales:
        key = [int(part) for part in one.name.rpartition(":")[2].split("/")]
        own = (repairs["operation"] == key[0]) & (repairs["step"] == key[1])
        own &= repairs["message"] == key[2]
        own &= (ends[0] == one.source) & (ends[1] == one.destination)
        dropped, arrived = repairs["dropped_ns"][own], repairs["arrived_ns"][own]
        index = repairs["index"][own]
        for time_ns, bitmap in zip(*at_all_times(one, in_order=False), strict=True):
            lost = set(index[(dropped <= time_ns) & (time_ns < arrived)].tolist())
            assert bitmap.missing == len(lost)
            if one.packets <= MOST_CELLS:
                assert {at for at, cell in enumerate(bitmap.cells) if cell == MISSING} == lost
            found += len(lost)
    assert found > 5


@pytest.mark.parametrize("name", ["csa_ud/1", "irn/1", "rc/1"])
def test_it_fills(ring_run, name):
    """In order, a receiver keeps nothing behind a gap."""
    in_order, gaps = name.startswith("rc"), 0
    for one in slowest(ring_run, name)[-1]:
        times, found = at_all_times(one, in_order=in_order)
        assert all(one.arrived <= two.arrived for one, two in itertools.pairwise(found))
        for time_ns, each in zip(times, found, strict=True):
            assert each.arrived + each.missing <= one.packets
            if time_ns < one.times["first_received_ns"]:
                assert not each.cells.strip(TO_COME + MISSING)
            if time_ns >= one.times["received_ns"]:
                assert (each.cells.strip(ARRIVED), each.arrived) == ("", one.packets)
            if in_order:
                assert ARRIVED not in each.cells.partition(MISSING)[2]
            gaps += each.missing
    assert gaps > 3


def test_a_message_that_never_arrived(ring_run):
    one = slowest(ring_run, "irn/1", 1)[-1][0]
    never = dataclasses.replace(
        one,
        times=one.times | {"received_ns": -1, "completed_ns": -1},
        incidents=[each for each in one.incidents if each.what is not What.ARRIVED],
    )
    (bitmap,) = bitmaps(never, [np.iinfo(np.int64).max - 1], in_order=False)
    assert bitmap.missing == len({e.first for e in never.incidents if e.what is What.DROP})
    assert bitmap.arrived + bitmap.missing <= one.packets
