# SPDX-License-Identifier: GPL-2.0-or-later
"""What we write is read by Prometheus's own parser."""

import pytest

from softroce_lab.telemetry.openmetrics import Exposition

parser = pytest.importorskip("prometheus_client.openmetrics.parser")


def parsed(exposition):
    return list(parser.text_string_to_metric_families(exposition.text()))


def test_counters_and_gauges():
    exposition = Exposition()
    exposition.counter("a_frames", "frames", {"link": "a->b"}, 3)
    exposition.gauge("a_up", "whether it is", {}, 1)
    exposition.counter("a_frames", "frames", {"link": "b->a"}, 1 << 53)
    frames, up = parsed(exposition)
    assert (frames.name, frames.type, frames.documentation) == ("a_frames", "counter", "frames")
    assert [(s.name, s.labels, s.value) for s in frames.samples] == [
        ("a_frames_total", {"link": "a->b"}, 3),
        ("a_frames_total", {"link": "b->a"}, 1 << 53),
    ]
    assert (up.type, up.samples[0].labels, up.samples[0].value) == ("gauge", {}, 1)


def test_what_has_a_meaning_in_the_format_is_escaped():
    exposition = Exposition()
    odd = 'a "b" \\ c\nd'
    exposition.counter("x", odd, {"name": odd}, 1)
    (family,) = parsed(exposition)
    assert family.documentation == odd
    assert family.samples[0].labels == {"name": odd}


def test_nothing_is_a_document_too():
    assert Exposition().text() == "# EOF\n"
    assert parsed(Exposition()) == []
