# SPDX-License-Identifier: GPL-2.0-or-later
"""Queues, packets in flight and windows over time: samples beside what is known otherwise."""

import numpy as np
import pytest

from softroce_lab.results.recorded import Recorded
from softroce_lab.sim import samples
from tests.results.made import run

INCAST = "workload={kind: incast, bytes: 256KiB, message: 64KiB}"
STAR = "topology={generator: {kind: star, hosts: 5, access: {rate: 10Gbit limit 4MiB, delay: 1us}}}"
TRANSPORTS = ("csa_ud", "irn", "srnic", "rc", "oracle")


@pytest.fixture(scope="module")
def incast(tmp_path_factory):
    folder = tmp_path_factory.mktemp("incast")
    return Recorded(run("incast", folder, INCAST, STAR, "seeds=1", "faults=[]",
                        transports=TRANSPORTS))  # fmt: skip


def of(recorded, name, figure):
    """By link or host: times and values."""
    found = recorded.table("samples", recorded.run(name))
    rows = found["figure"] == figure
    return {
        at: tuple(found[key][rows & (found["at"] == at)] for key in ("time_ns", "value"))
        for at in dict.fromkeys(found["at"][rows].tolist())
    }


@pytest.mark.parametrize("name", [f"{each}/1" for each in TRANSPORTS])
def test_the_longest_queue_is_nearly_seen(incast, name):
    """It is that of the receiver's link; between two samples it may have been longer."""
    queues = of(incast, name, samples.QUEUE)
    most = {link["name"]: link["wire"]["most_waiting_bytes"] for link in incast.links[name]}
    longest = max(most, key=most.get)
    assert most[longest] > 50_000
    for link, (_, values) in queues.items():
        assert values.max() <= most[link]
    assert queues[longest][1].max() >= 0.8 * most[longest]
    assert {link for link, bytes_ in most.items() if bytes_ > 50_000} <= queues.keys()


@pytest.mark.parametrize("name", [f"{each}/1" for each in TRANSPORTS])
def test_no_more_is_in_flight_than_the_window_allows(incast, name):
    flying, windows = (of(incast, name, each) for each in (samples.IN_FLIGHT, samples.WINDOW))
    senders = set(incast.table("messages", incast.run(name))["source"].tolist())
    assert flying.keys() == windows.keys() >= senders
    for host in senders:
        assert 0 < flying[host][1].max() <= windows[host][1].max()


def test_a_long_run_has_as_many_with_a_longer_interval(tmp_path):
    """Four times the bytes: there are between half of the most samples and all, as before."""
    counts = []
    for size in ("1MiB", "4MiB"):
        long = Recorded(run("incast", tmp_path / size, STAR, "seeds=1", "faults=[]",
                            f"workload={{kind: incast, bytes: {size}, message: {size}}}",
                            transports=("irn",)))  # fmt: skip
        found = long.table("samples", long.run("irn/1"))
        times = np.unique(found["time_ns"])
        counts.append((len(times), np.median(np.diff(times))))
    (few, short), (many, wide) = counts
    assert 400 <= few <= 1024
    assert 400 <= many <= 1024
    assert wide > 2 * short


def test_rows_are_changes_and_hosts_are_their_ports_together():
    times = np.array([1_000, 2_000, 3_000]) * 1000
    #                  a  b  h1:p1  h1:p2  h2
    values = np.array([[0, 5, 1, 9, 2, 9, 0, 0],
                       [7, 5, 2, 9, 1, 9, 0, 0],
                       [7, 0, 0, 0, 0, 0, 4, 8]], np.uint32)  # fmt: skip
    found = samples.columns(times, values, ["a", "b"], ["h1", "h1", "h2"])
    assert list(zip(*(found[name].tolist() for name in found), strict=True)) == [
        (1_000, "queue_bytes", "b", 5),
        (1_000, "in_flight_packets", "h1", 3),
        (1_000, "window_packets", "h1", 18),
        (2_000, "queue_bytes", "a", 7),
        (3_000, "queue_bytes", "b", 0),
        (3_000, "in_flight_packets", "h1", 0),
        (3_000, "in_flight_packets", "h2", 4),
        (3_000, "window_packets", "h1", 0),
        (3_000, "window_packets", "h2", 8),
    ]
