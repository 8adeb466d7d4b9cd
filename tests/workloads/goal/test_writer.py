# SPDX-License-Identifier: GPL-2.0-or-later
"""Workloads written as GOAL and read again."""

import pytest

from softroce_lab.workloads.collectives.collective import ALGORITHMS, Collective
from softroce_lab.workloads.collectives.exchange import Exchange
from softroce_lab.workloads.flows import AllToAll, Incast, Permutation, PointToPoint, Scatter
from softroce_lab.workloads.goal import writer
from softroce_lab.workloads.message import FLOAT32
from softroce_lab.workloads.operations import Operations, Timeline
from softroce_lab.workloads.schedule import Compute
from tests.workloads.goal.texts import of, output

HOSTS = tuple(range(4))
ONCE = [
    *(kind(HOSTS, 1000, 300) for kind in (PointToPoint, Permutation, Incast, Scatter, AllToAll)),
    Exchange(HOSTS, 1000, 300, peers=2),
    *(
        Collective(HOSTS, 1600, 200, FLOAT32, operation, algorithm)
        for operation, algorithms in ALGORITHMS.items()
        for algorithm in algorithms
    ),
]


def again(workload):
    return of("\n".join(writer.lines(workload, ["about", "it"])))


@pytest.mark.parametrize("once", ONCE, ids=lambda once: once.name)
@pytest.mark.parametrize("times", [1, 3])
def test_what_is_read_is_what_was_written(once, times):
    workload = Operations(once, times)
    assert output(again(workload)) == output(workload)


def test_what_waits_for_a_time_requires_a_clock():
    """Two operations of an incast: the second one not before 1 us, and both with a skew."""
    workload = Operations(Incast(HOSTS, 10, 10), 2, Timeline(1000, skew_ns=300, seed=1))
    for host in (1, 2, 3):
        first, second = (each.at_ns for each in workload.schedule().of[host])
        vertices = again(workload).schedule().of[host]
        assert vertices[2:] == [
            Compute(first, cpu=1), Compute(second - first, requires=(2,), cpu=1)
        ]  # fmt: skip
        assert [each.requires for each in vertices[:2]] == [(2,), (3,)]
