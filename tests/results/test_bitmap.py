# SPDX-License-Identifier: GPL-2.0-or-later
"""Bitmaps of messages over time: what is missing is as recorded, and what is there only grows."""

import itertools

import numpy as np
import pytest

from softroce_lab.results import story
from softroce_lab.results.bitmap import ARRIVED, MISSING, MOST_CELLS, TO_COME, bitmaps
from softroce_lab.results.explained import Explained
from softroce_lab.results.incidents import What
from softroce_lab.results.recorded import Recorded


def slowest(ring_run, name, count=8):
    recorded = Recorded(ring_run)
    known = Explained.of(recorded, recorded.run(name))
    tales = [known.story(row) for row in story.worst(known.messages, count)]
    return recorded, known.messages.host, tales


def at_all_times(tale, *, in_order):
    times = sorted({*tale.times.values(), *(each.time_ns for each in tale.incidents)})
    return times, bitmaps(tale, times, in_order=in_order)


@pytest.mark.parametrize("name", ["csa_ud/1", "irn/1"])
def test_what_is_missing_is_in_the_table_of_repairs(ring_run, name):
    recorded, host, tales = slowest(ring_run, name)
    repairs = recorded.table("repairs", recorded.run(name))
    ends = [np.array([host(each) for each in repairs[end].tolist()]) for end in ("src", "dst")]
    found = 0
    for tale in tales:
        key = [int(part) for part in tale.name.rpartition(":")[2].split("/")]
        own = (repairs["operation"] == key[0]) & (repairs["step"] == key[1])
        own &= repairs["message"] == key[2]
        own &= (ends[0] == tale.source) & (ends[1] == tale.destination)
        dropped, arrived = repairs["dropped_ns"][own], repairs["arrived_ns"][own]
        index = repairs["index"][own]
        for time_ns, bitmap in zip(*at_all_times(tale, in_order=False), strict=True):
            lost = set(index[(dropped <= time_ns) & (time_ns < arrived)].tolist())
            assert bitmap.missing == len(lost)
            if tale.packets <= MOST_CELLS:
                assert {at for at, cell in enumerate(bitmap.cells) if cell == MISSING} == lost
            found += len(lost)
    assert found > 5


@pytest.mark.parametrize("name", ["csa_ud/1", "irn/1", "rc/1"])
def test_it_fills(ring_run, name):
    in_order = name.startswith("rc")
    for tale in slowest(ring_run, name)[-1]:
        times, found = at_all_times(tale, in_order=in_order)
        assert all(one.arrived <= two.arrived for one, two in itertools.pairwise(found))
        assert all(each.arrived + each.missing <= tale.packets for each in found)
        before = [each for time, each in zip(times, found, strict=True)
                  if time < tale.times["first_received_ns"]]  # fmt: skip
        after = [each for time, each in zip(times, found, strict=True)
                 if time >= tale.times["received_ns"]]  # fmt: skip
        assert {each.cells.strip(TO_COME + MISSING) for each in before} <= {""}
        assert [each.cells for each in after] == len(after) * [ARRIVED * len(found[0].cells)]
        assert [each.arrived for each in after] == len(after) * [tale.packets]


def test_behind_a_gap_a_receiver_in_order_keeps_nothing(ring_run):
    gaps = 0
    for tale in slowest(ring_run, "rc/1")[-1]:
        for bitmap in at_all_times(tale, in_order=True)[1]:
            assert ARRIVED not in bitmap.cells.partition(MISSING)[2]
            gaps += bitmap.missing
    assert gaps > 3


def test_many_packets_share_cells(ring_run):
    tale = slowest(ring_run, "irn/1", 1)[-1][0]
    large = story.dataclasses.replace(tale, packets=1000 * MOST_CELLS)
    lost = [each.time_ns for each in tale.incidents if each.what is What.DROP]
    (bitmap,) = bitmaps(large, lost[:1], in_order=False)
    assert len(bitmap.cells) == MOST_CELLS
    assert bitmap.cells[0] == MISSING


def test_a_message_that_never_arrived(ring_run):
    tale = slowest(ring_run, "irn/1", 1)[-1][0]
    never = story.dataclasses.replace(
        tale,
        times=tale.times | {"received_ns": -1, "completed_ns": -1},
        incidents=[each for each in tale.incidents if each.what is not What.ARRIVED],
    )
    (bitmap,) = bitmaps(never, [np.iinfo(np.int64).max - 1], in_order=False)
    assert bitmap.missing == len({e.first for e in never.incidents if e.what is What.DROP})
    assert bitmap.arrived + bitmap.missing <= tale.packets
