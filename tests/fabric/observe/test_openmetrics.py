# SPDX-License-Identifier: GPL-2.0-or-later
"""What we write is read by Prometheus's own parser."""

import collections
import dataclasses

import pytest
from prometheus_client.openmetrics import parser

from softroce_lab import topology
from softroce_lab.fabric.observe import openmetrics
from softroce_lab.fabric.observe.stats import Stats
from softroce_lab.telemetry.counters_file import Published, Snapshot


def parsed(now):
    return {f.name: f for f in parser.text_string_to_metric_families(openmetrics.text(now))}


@pytest.fixture
def nothing():
    """The counters of a lab that was asked for none."""
    return Stats(topology.load("two-hosts", name="t"), 0, {}, {}, [], {}, [])


def test_counters_have_the_labels_of_what_they_count(nothing):
    links = {"h1->s1": {"frames": 3}, "s1->h2": {"frames": 1 << 53}}
    now = dataclasses.replace(nothing, ports={"h1:eth1": {"port_xmit_data": 7}}, links=links)
    found = parsed(now)
    assert list(found) == ["softroce_port_xmit_data", "softroce_link_frames"]
    assert {family.type for family in found.values()} == {"counter"}
    assert "octets" in found["softroce_port_xmit_data"].documentation
    frames = found["softroce_link_frames"].samples
    assert [(s.name, s.labels, s.value) for s in frames] == [
        ("softroce_link_frames_total", {"lab": "t", "link": "h1->s1"}, 3),
        ("softroce_link_frames_total", {"lab": "t", "link": "s1->h2"}, 1 << 53),
    ]


def test_the_counters_of_a_process_end_with_it(nothing):
    snapshot = Snapshot(1, 1, 0, collections.defaultdict(int, odd_counts=2), ())
    alive, dead = (Published(f"h{1 + dead}:eth1", snapshot, not dead) for dead in (False, True))
    found = parsed(dataclasses.replace(nothing, published=[alive, dead]))
    (counted,) = found["softroce_rnic_odd_counts"].samples
    assert (counted.labels["host"], counted.value) == ("h1", 2)
    up = found["softroce_rnic_up"]
    assert up.type == "gauge"
    assert [(s.name, s.labels["port"], s.value) for s in up.samples] == [
        ("softroce_rnic_up", "h1:eth1", 1),
        ("softroce_rnic_up", "h2:eth1", 0),
    ]
