# SPDX-License-Identifier: GPL-2.0-or-later
"""A ring all-reduce of csa_ud on the real clock is right to the last byte, whatever is lost."""

import os

import pytest

from softroce_lab.experiment import run, spec
from softroce_lab.experiment.reporter import Silent
from softroce_lab.inputs import yaml_source

RING = """
name: ring
topology:
  generator:
    {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 4, access: {wire}, core: {wire}}}
transports: [csa_ud]
workload: {{kind: ring-all-reduce, bytes: {size}, message: 1MiB}}
payload: verify
faults: [{{name: loss, links: "leaf*<->spine*", loss: random 1%}}]
seeds: {seeds}
clock: real
deadline: 120s
"""
WIRE = "{rate: 400Mbit, delay: 2ms}"
HOSTS, STEPS = 8, 14


@pytest.mark.full("real-ring")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_ring_all_reduce_is_right(full, tmp_path):
    """A ring of 8 hosts on the real clock, 1 % loss, every byte; in full 64 MiB and 100 runs."""
    size, seeds = ("64MiB", 100) if full else ("8MiB", 1)
    text = RING.format(wire=WIRE, size=size, seeds=seeds)
    outcome = run.run(spec.of(yaml_source.parse(text, "ring.yaml")), Silent(), under=tmp_path)
    rows = [each.summary() for each in outcome.runs]
    print(f"{len(rows)} runs, {sum(row['retransmitted'] for row in rows)} packets retransmitted")
    assert len(rows) == seeds
    assert [each.reasons for each in outcome.runs] == [[]] * seeds
    assert [row["verified"] for row in rows] == [True] * seeds
    assert all(row["retransmitted"] > 0 for row in rows)
    messages = HOSTS * STEPS * (8 if full else 1)
    assert {row["messages"] for row in rows} == {messages}
