# SPDX-License-Identifier: GPL-2.0-or-later
"""Several workloads at the same time."""

import pytest

from softroce_lab.workloads.collectives.collective import Collective
from softroce_lab.workloads.flows import Incast, PointToPoint
from softroce_lab.workloads.jobs import Jobs
from softroce_lab.workloads.work import mismatches
from tests.workloads.legal_order import carry_out

SUM, SINK, PAIR = (
    Collective((4, 1, 0), 60, 8),
    Incast((2, 5, 6), 50, 20),
    PointToPoint((3, 7), 9, 4),
)


@pytest.mark.parametrize("order", range(2))
def test_each_job_s_bytes_arrive(order):
    work = Jobs({"sum": SUM, "sink": SINK, "pair": PAIR})
    buffers = carry_out(work, seed=4, order=order)
    assert set(buffers) == set(range(8)) == set(work.ranks)
    assert mismatches(work, list(buffers.items()), 4) == []


def test_a_job_is_what_it_is_alone():
    work = Jobs({"sum": SUM, "sink": SINK})
    parts = SUM.schedule(), SINK.schedule()
    assert work.schedule().of == parts[0].of | parts[1].of
    assert work.schedule().messages == [*parts[0].messages, *parts[1].messages]
    assert list(work.messages()) == work.schedule().messages
    assert len(work.schedule().messages) == work.message_count
    assert work.longest_message_bytes == 20
    assert [work.buffer_bytes_of(host) for host in (4, 2, 3)] == [60, 100, 0]
    assert len(work.initial(3, 1)) == len(work.expected(3, 1)) == 0


def test_a_host_takes_part_in_one_job():
    with pytest.raises(ValueError, match="one job"):
        Jobs({"a": SUM, "b": PointToPoint((0, 7), 9, 4)})
