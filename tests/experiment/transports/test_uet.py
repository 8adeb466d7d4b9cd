# SPDX-License-Identifier: GPL-2.0-or-later
"""`uet_rud` and `uet_rod` retransmit for the reasons that Ultra Ethernet has, on whole fabrics."""

import collections

import pytest

from softroce_lab.experiment import spec, virtual
from softroce_lab.inputs import yaml_source

LINE = """\
topology: {generator: {kind: star, hosts: 2, access: {rate: 100Gbit, delay: 1us}}}
workload: {kind: point-to-point, bytes: 8MiB, message: 256KiB}
"""
LOSS = 'faults: [{name: loss, links: "h1->s1", loss: random 1%, only: data}]\n'
REORDERING = 'faults: [{name: late, links: "h1->s1", reorder: 5% by 20us, only: data}]\n'
COLUMNS = ("event", "reason", "packets")
SLEEK = "{name: uet_rud, options: {sleek: true}}"


def reasons_of(text, transport):
    """Retransmitted packets by reason, and the run."""
    source = yaml_source.parse(f"name: x\n{text}transports: [{transport}]\n", "x.yaml")
    experiment = spec.of(source)
    run = virtual.run(experiment, experiment.transports[0], 1, lambda _: None, with_acts=True)
    assert run.reasons == []
    packets = collections.Counter()
    for acts in run.recoveries:
        for event, reason, number in zip(*map(acts.get, COLUMNS), strict=True):
            if event == "retransmit":
                packets[reason] += int(number)
    return packets, run.summary()


@pytest.mark.parametrize(
    ("transport", "reasons"),
    [("uet_rud", {"timeout"}), (SLEEK, {"nak"}), ("uet_rod", {"nak"})],
)
def test_a_loss_is_repaired_for_the_transports_own_reasons(transport, reasons):
    packets, figures = reasons_of(LINE + LOSS, transport)
    assert set(packets) == reasons
    assert figures["injected_drops"] > 10
    if "rod" not in transport:
        assert figures["retransmitted"] == figures["injected_drops"]


def test_unordered_delivery_retransmits_nothing_that_was_overtaken():
    packets, _ = reasons_of(LINE + REORDERING, "uet_rud")
    assert packets == {}


def test_ordered_delivery_retransmits_what_was_overtaken():
    packets, _ = reasons_of(LINE + REORDERING, "uet_rod")
    assert set(packets) == {"nak"}
