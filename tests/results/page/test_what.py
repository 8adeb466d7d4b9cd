# SPDX-License-Identifier: GPL-2.0-or-later
"""The first sections of a page: what the rules of lab verify find in a run's capture."""

import json

import pytest

from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.experiment.reporter import Silent
from softroce_lab.inputs import yaml_source
from softroce_lab.results.page import what
from softroce_lab.results.recorded import Recorded

FILLED = """\
name: filled
topology:
  generator: {kind: star, hosts: 9, access: {rate: 100Gbit, delay: 1us, limit: 512KiB}}
workload: {kind: incast, bytes: 256KiB, to: h1}
transports: [srnic]
deadline: 1s
"""


@pytest.mark.parametrize(
    ("timer_ns", "verdict"), [(None, "rules, none fails"), (400_000, "FAILS: sr.only-holes")]
)
def test_what_lab_check_finds_is_a_cell_of_the_run(tmp_path, timer_ns, verdict):
    """A manifest that claims another timer makes the run's retransmissions a violation."""
    experiment = spec.of(yaml_source.parse(FILLED))
    wanted = Wanted(("*",), 128)
    found = experiment_run.run(experiment, Silent(), under=tmp_path, capture=wanted)
    manifest = found.directory / "manifest.json"
    if timer_ns is not None:
        document = json.loads(manifest.read_text())
        document["runs"][0]["timing"]["initial_rtt_ns"] = timer_ns // 10
        manifest.write_text(json.dumps(document))
    assert verdict in what.verdicts(Recorded(found.directory))
