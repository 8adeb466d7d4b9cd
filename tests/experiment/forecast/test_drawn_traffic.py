# SPDX-License-Identifier: GPL-2.0-or-later
"""Open-loop traffic that is not as asked for, by the draw: a note, with its place."""

import pytest

from softroce_lab.experiment import spec
from softroce_lab.experiment.forecast import notes as forecast
from softroce_lab.inputs import yaml_source

FILE = """\
name: short
topology: {{generator: {{kind: star, hosts: 16, access: {{rate: 100Gbit, delay: 1us}}}}}}
transports: [rc]
workload:
  {workload}
"""
WEB = "kind: open-loop, load: 80%, sizes: web-search"  # 10 MB a ms; the largest flow has 30 MB


def notes(workload):
    return forecast.traffic_notes(
        spec.of(yaml_source.parse(FILE.format(workload=workload), "short.yaml"))
    )


def rare(workload):
    return [note for note in notes(workload) if "large flows are too rare" in note]


def test_what_a_host_cannot_send_has_a_place():
    (note,) = rare(f"{{{WEB}, duration: 5ms}}")
    assert note == (
        "short.yaml:5:61: in 5 ms a host sends about 47.7 MiB, the largest flow has 28.6 MiB: "
        "large flows are too rare (6 ms or more, or smaller sizes)"
    )


def test_each_job_has_its_own():
    jobs = (
        "{kind: jobs, jobs: [{name: a, workload: {kind: permutation, bytes: 64KiB, "
        "hosts: [h1, h2]}}, {name: b, workload: {" + WEB + ", duration: 4ms, "
        "hosts: [h3, h4, h5, h6, h7, h8, h9, h10, h11, h12, h13, h14]}}]}"
    )
    (note,) = rare(jobs)
    assert note.startswith("short.yaml:5:")
    assert "in 4 ms a host sends about 38.1 MiB" in note


SMALL = "kind: open-loop, load: 30%, sizes: [1kB, 2kB]"


def test_the_load_of_figures_is_told_where_it_is_another():
    """Two hosts with some 15 flows each: no draw has the load both of all and of the later ones."""
    few = "kind: open-loop, load: 10%, sizes: web-search, duration: 20ms, hosts: 2"
    (note,) = [note for note in notes(f"{{{few}}}") if "after the warm-up" in note]
    assert note.startswith("short.yaml:5:27: flows that arrive after the warm-up have a load of ")
    assert "figures are of these" in note
    assert notes(f"{{{WEB}, duration: 6ms}}") == []
    assert notes(f"{{{SMALL}, duration: 5ms}}") == []


@pytest.mark.parametrize(("share", "noted"), [("0.001%", "0 % of the load"), ("20%", None)])
def test_a_share_of_incasts_that_was_not_drawn_is_told(share, noted):
    found = notes(f"{{{SMALL}, duration: 5ms, incast: {{degree: 4, share: {share}}}}}")
    shares = [note for note in found if "incasts have" in note]
    assert len(shares) == (noted is not None)
    assert all(noted in note and note.startswith("short.yaml:5:") for note in shares)
