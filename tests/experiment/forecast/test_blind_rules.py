# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules that a transport's packets cannot be hit by are told, not passed over in silence."""

import pytest

from softroce_lab.experiment import spec
from softroce_lab.experiment.forecast import blind_rules
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.inputs import yaml_source

FILE = """\
name: blind
topology: {generator: {kind: star, hosts: 2, access: {rate: 100Gbit, delay: 1us}}}
transports: [rc, sdr_sr, csa_ud, {name: csa_ud, framing: uc_immediate}]
workload: {kind: point-to-point, bytes: 256KiB, message: 16KiB}
faults: [{name: rule, links: "*->*"}]
"""
STRIPED_UC = {"sdr_sr", "csa_ud+uc_immediate"}


@pytest.mark.parametrize(
    ("effect", "blind"),
    [
        ("drop: {tail: 1}", {"rc", *STRIPED_UC}),
        ("drop: {message: 1, packet: 1}", {"rc", *STRIPED_UC}),
        ("drop: {only: data, iter: 1}", {"rc", *STRIPED_UC}),
        ("loss: random 50%, only: data", {"rc", *STRIPED_UC}),
        ("loss: random 50%, only: [control, report]", {"rc"}),
        ("loss: random 50%, only: [data, other]", set()),
        ("loss: random 50%", set()),
        ("drop: {qpn: 1, psn: 2}", set()),
    ],
)
def test_what_is_said_is_what_happens(effect, blind):
    text = FILE.replace('"*->*"', f'"*->*", {effect}')
    experiment = spec.of(yaml_source.parse(text, "file.yaml"))
    notes = blind_rules.notes(experiment)
    assert {note.partition(":")[0] for note in notes} == blind
    assert all("cannot be hit by rule" in note for note in notes)
    unhurt = set()
    for transport in experiment.transports:
        run = VirtualRun(experiment, transport, 1, lambda _: None).go()
        if not sum(link["injected_drops"] for link in run.links):
            unhurt.add(transport.label)
    assert unhurt == blind
