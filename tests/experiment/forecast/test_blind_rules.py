# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules that a transport's packets cannot be hit by are told, not passed over in silence."""

import json

import pytest

from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.forecast import notes as forecast
from softroce_lab.experiment.reporter import Silent
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
EVERYONE = {"rc", "csa_ud", *STRIPED_UC}


@pytest.mark.parametrize(
    ("effect", "blind"),
    [
        ("drop: {tail: 1}", STRIPED_UC),
        ("drop: {tail: 1, iter: [1, 3]}", STRIPED_UC),
        ("drop: [{tail: 1, iter: 1}, {tail: 1, iter: 2}]", {"rc", *STRIPED_UC}),
        ("drop: {tail: 2, iter: 1}", {"rc", *STRIPED_UC}),
        ("drop: {tail: 1, only: data}", {"rc", *STRIPED_UC}),
        ("drop: {tail: 1, only: other}", {"csa_ud", *STRIPED_UC}),
        ("drop: {tail: 1, opcode: RC_SEND_LAST_WITH_IMMEDIATE}", {"csa_ud", *STRIPED_UC}),
        ("drop: {opcode: UD_SEND_ONLY, only: data}", {"rc", *STRIPED_UC}),
        ("loss: random 50%, only: other", {"csa_ud"}),
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
    whole, left_out = forecast.compared(experiment)
    notes = [note.replace(" left out", "") for note in forecast.blind_notes(experiment)]
    assert {note.partition(":")[0] for note in notes if "iter: 1" not in note} == blind
    assert {each.transport for each in left_out} == (set() if blind == EVERYONE else blind)
    assert {each.label for each in whole.transports} == (EVERYONE - blind or EVERYONE)
    unhurt = set()
    for transport in experiment.transports:
        run = VirtualRun(experiment, transport, 1, lambda _: None).go()
        if not sum(link["injected_drops"] for link in run.links):
            unhurt.add(transport.label)
    assert unhurt == (blind if effect.count("{tail") < 2 else STRIPED_UC)  # one entry hits rc


TAILS, INDEX = "write iter: 1 to compare", "hit other packets of each transport"


@pytest.mark.parametrize(
    ("effect", "transports", "said"),
    [
        ("drop: {tail: 1}", "[rc, csa_ud]", TAILS),
        ("drop: {tail: 1, iter: 1}", "[rc, csa_ud]", None),
        ("drop: {tail: 1}", "[irn, csa_ud]", None),
        ("drop: {tail: 1}", "[rc, irn]", TAILS),
        ("drop: {tail: 1, only: data}", "[rc, csa_ud]", None),  # rc is left out
        ("loss: gemodel 1% 10%", "[irn, csa_ud]", INDEX),
        ("loss: periodic 50 1", "[irn, csa_ud]", INDEX),
        ("loss: random 1%", "[irn, csa_ud]", None),  # by identity: the same packets
        ("loss: blackout", "[irn, csa_ud]", None),  # all of them
        ("loss: gemodel 1% 10%", "[csa_ud]", None),
    ],
)
def test_what_hits_some_transports_otherwise_is_told(effect, transports, said):
    text = FILE.replace('"*->*"', f'"*->*", {effect}').replace(
        "[rc, sdr_sr, csa_ud, {name: csa_ud, framing: uc_immediate}]", transports
    )
    notes = forecast.blind_notes(spec.of(yaml_source.parse(text, "file.yaml")))
    for each in (TAILS, INDEX):
        assert any(each in note for note in notes) == (each == said)


def test_who_cannot_be_hit_is_left_out_if_others_can(tmp_path):
    text = FILE.replace('"*->*"', '"h1->*", drop: {message: 1, packet: 1, iter: 1}')
    experiment = spec.of(yaml_source.parse(text, "file.yaml"))
    found = experiment_run.run(experiment, Silent(), under=tmp_path)
    assert [run.transport for run in found.runs] == ["csa_ud"]
    assert found.passed
    document = found.document()
    assert [each["transport"] for each in document["left_out"]] == ["rc", *sorted(STRIPED_UC)[::-1]]
    assert document["left_out"][0]["rules"] == {"rule": ["h1->s1"]}
    assert "rc left out: rule 'rule' of link h1->s1 cannot hit its packets" in found.notes
    manifest = json.loads((found.directory / "manifest.json").read_text())
    assert manifest["left_out"] == document["left_out"]


def test_parity_that_no_switch_can_tell_is_told():
    """Others send none, or none just now."""
    transports = "[irn, {name: csa_ud, options: {parity: 0}}, {name: sdr_ec, framing: ud}, sdr_ec]"
    text = FILE.replace('"*->*"', '"*->*", drop: {only: parity}')
    text = text.replace("[rc, sdr_sr, csa_ud, {name: csa_ud, framing: uc_immediate}]", transports)
    whole, left_out = forecast.compared(spec.of(yaml_source.parse(text, "file.yaml")))
    assert [each.transport for each in left_out] == ["sdr_ec"]
    assert len(whole.transports) == 3
