# SPDX-License-Identifier: GPL-2.0-or-later
"""All-to-all with a bounded number of peers at a time."""

import pytest

from softroce_lab.workloads.collectives.exchange import Exchange
from softroce_lab.workloads.work import mismatches
from tests.workloads.legal_order import carry_out
from tests.workloads.recorder import recorders


@pytest.mark.parametrize("peers", [1, 2, 5])
@pytest.mark.parametrize("order", range(5))
def test_all_bytes_arrive(peers, order):
    workload = Exchange((5, 3, 1, 0), 100, 30, peers=peers)
    buffers = carry_out(workload, seed=2, order=order)
    assert mismatches(workload, list(buffers.items()), 2) == []


@pytest.mark.parametrize("peers", [1, 3])
def test_a_rank_begins_with_so_many_peers(peers):
    hosts = recorders(Exchange(tuple(range(8)), 10, 10, peers=peers))
    for index, host in hosts.items():
        begun = {message.destination for message in host.begin()["send"]}
        assert begun == {(index + distance) % 8 for distance in range(1, peers + 1)}


def test_a_step_is_over_when_it_is_sent_and_received():
    host = recorders(Exchange((0, 1, 2), 10, 10))[0]
    assert [each.destination for each in host.begin()["send"]] == [1]
    assert host.sent(1, (0, 0, 0))["send"] == []
    assert [each.destination for each in host.received(2, (0, 0, 0))["send"]] == [2]
