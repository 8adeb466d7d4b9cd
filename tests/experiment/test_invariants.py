# SPDX-License-Identifier: GPL-2.0-or-later
"""Every packet is somewhere, at every node, whatever happens to it, at any moment."""

import pytest

from softroce_lab.experiment import invariants, spec
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.topology import yaml_source

FILE = """\
name: books
topology:
  generator:
    kind: leaf-spine
    leaves: 2
    spines: 2
    hosts_per_leaf: 2
    access: {rate: 100Gbit limit 64, delay: 1us 500ns reorder allow}
    core: {rate: 25Gbit limit 16 ecn 4, delay: 1us}
lb: spray
transports: [csa_ud, rc, irn]
workload: {kind: all-to-all, bytes: 64KiB, message: 16KiB}
deadline: 40us
"""
FAULTS = {
    "none": None,
    "random": "loss: random 5%",
    "gemodel": "loss: gemodel 1% 25%",
    "burst": "loss: burst 1% 5",
    "periodic": "loss: periodic 20 2",
    "blackout": "loss: blackout, at: 10us, for: 15us",
    "named": "drop: {message: 0, packet: 1, iter: 1}",
    "tail": "drop: {tail: 1, iter: 1}",
    "corrupt": "corrupt: 5%",
    "duplicate": "duplicate: 20%",
    "reorder": "reorder: 10% by 5us",
    "flap": "down: true, at: 5us, for: 10us, every: 25us",
    "death": "down: true, at: 10us",
}


def cut_short(transport, *changes):
    source = yaml_source.parse(FILE, "file.yaml")
    overrides = [spec.parse_override(each) for each in changes]
    experiment = spec.of(spec.with_overrides(source, overrides))
    chosen = next(each for each in experiment.transports if each.name == transport)
    made = VirtualRun(experiment, chosen, 1, lambda _: None)
    return made, made.go()


QUIET = ("blackout", "periodic")  # RC waits for its timer then


@pytest.mark.parametrize(
    ("queue", "rnic"), [("limit 16 ecn 4", "lru-512"), ("limit 8 trim", "ideal")]
)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("transport", ["csa_ud", "rc"])
def test_packets_are_accounted_for_in_the_middle_of_a_run(transport, fault, queue, rnic):
    links = "leaf1<->spine1" if fault in ("flap", "death") else "*<->*"
    rule = f'[{{name: x, links: "{links}", {FAULTS[fault]}}}]' if FAULTS[fault] else "[]"
    core = f"topology.generator.core={{rate: 25Gbit {queue}, delay: 1us}}"
    made, run = cut_short(transport, f"faults={rule}", core, f"rnic={rnic}")
    assert "deadline" in run.problems[0]
    assert made.fabric.native.in_flight > 0 or fault in QUIET
    assert books(made) == []


def books(made):
    fabric = made.fabric
    checks = (invariants._links, invariants._switches, invariants._ports)
    return [broken for check in checks for broken in check(fabric)]


def test_a_packet_that_an_rnic_still_processes_is_not_sent_yet():
    held = []
    for moment in range(15, 30):
        made, _ = cut_short("irn", "rnic=lru-512", f"deadline={moment}us")
        held += [totals["held"] for _, totals in made.fabric.port_totals()]
        assert books(made) == []
    assert any(held)
