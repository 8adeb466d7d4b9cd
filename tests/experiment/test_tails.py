# SPDX-License-Identifier: GPL-2.0-or-later
"""`drop: {tail: 1}` with rc and with striped messages: the last packet of each message's data,
once, also where parity follows it. `only: parity` takes parity, and nothing else."""

import secrets

import pytest

from softroce_lab.experiment import real, spec
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.fabric import lab as fabric
from tests import patience

FILE = """\
name: {name}
topology: {{generator: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 2}}}}
transports:
  - {rc}
  - irn
  - csa_ud
  - {{name: csa_ud, label: csa_ud with parity, options: {{parity: 2, parity_budget: 1}}}}
  - {{name: sdr_ec, label: sdr_ec, framing: ud, options: {{k: 4, m: 2, chunk: 4KiB}}}}
workload: {{kind: point-to-point, from: h1, to: h3, bytes: 96KiB, message: {message}}}
faults: [{{name: tails, links: "{links}", drop: {drop}}}]
clock: {clock}
deadline: 20s
"""


TAILS, PARITY = "{tail: 1, iter: 1}", "{only: parity}"


def experiment(folder, *, links="h1->*", message="16KiB", clock="virtual", drop=TAILS):
    path = folder / "experiment.yaml"
    name = f"t{secrets.token_hex(3)}"
    rc = patience.RC if clock == "real" else "rc"
    path.write_text(
        FILE.format(name=name, links=links, message=message, clock=clock, rc=rc, drop=drop)
    )
    return spec.load(path)


def drops(run):
    return sum(link["injected_drops"] for link in run.links)


@pytest.mark.parametrize("message", ["16KiB", "512B"])  # of several packets, of one
@pytest.mark.parametrize("links", ["h1->*", "leaf1->spine*", "*->*"])
def test_each_message_loses_its_last_packet_once(tmp_path, links, message):
    wanted = experiment(tmp_path, links=links, message=message)
    for transport in wanted.transports:
        run = VirtualRun(wanted, transport, 1, lambda _: None).go()
        assert run.verdict == "passed", run.reasons
        assert drops(run) == len(run.messages)
        kinds = set(run.events["packet_kind"][run.events["event"] == "drop"])
        assert kinds == {"other" if transport.name == "rc" else "data"}


@pytest.mark.parametrize("links", ["h1->*", "leaf1->spine*"])
def test_parity_can_be_lost_alone(tmp_path, links):
    wanted = experiment(tmp_path, links=links, drop=PARITY)
    parity = {}
    for transport in wanted.transports:
        run = VirtualRun(wanted, transport, 1, lambda _: None).go()
        assert run.verdict == "passed", run.reasons
        assert set(run.events["packet_kind"][run.events["event"] == "drop"]) <= {"parity"}
        parity[transport.label] = drops(run)
        assert not len(run.repairs)  # nobody misses it
    # Of sdr_ec: 2 chunks of 2 packets for 4 of data, and 1 of 1 for the ninth packet.
    assert parity == {"rc": 0, "irn": 0, "csa_ud": 0, "csa_ud with parity": 6 * 2, "sdr_ec": 6 * 5}


@pytest.mark.parametrize("links", ["h1->*", "*->h3"])
def test_a_lab_drops_the_same_ones(tmp_path, links):
    wanted = experiment(tmp_path, links=links, clock="real")
    made = fabric.up(wanted.plan(1), ephemeral=True)
    try:
        for transport in wanted.transports:
            run = real.run(wanted, transport, 1, lambda _: None, made)
            assert run.verdict == "passed", run.reasons
            assert drops(run) == len(run.messages), transport.label
    finally:
        made.down()
