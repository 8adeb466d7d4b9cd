# SPDX-License-Identifier: GPL-2.0-or-later
"""Transports that number packets by connection, on the real clock: right bytes, no violation."""

import os

import pyarrow.parquet as pq
import pytest

from softroce_lab.check import suites
from softroce_lab.check.verdict import Outcome
from softroce_lab.experiment import run, spec
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.experiment.reporter import Silent
from softroce_lab.inputs import yaml_source
from tests.check.plant import check, failed

INCAST = """\
name: incast
clock: real
topology:
  generator: {{kind: star, hosts: 4, access: {{rate: 100Mbit limit 4 trim, delay: 200us}}}}
workload: {{kind: incast, to: h1, bytes: 128KiB, message: 32KiB, repeat: 2}}
faults: [{{name: loss, links: "*->s1", loss: random 1%, cut: 2%}}]
payload: verify
deadline: 30s
transports: [{transport}]
"""
TRANSPORTS = [
    "falcon",
    "uet_rud",
    "{name: uet_rud, options: {sleek: true}}",
    "uet_rod",
    "mrc",
    "dcp",
    "ndp",
    "uccl",
]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_real_packets_keep_every_rule(tmp_path, transport):
    """Four hosts, 1 % loss, a rule that cuts, and a queue that trims."""
    experiment = spec.of(yaml_source.parse(INCAST.format(transport=transport)))
    outcome = run.run(experiment, Silent(), under=tmp_path, capture=Wanted(("*",), 256))
    (row,) = (each.summary() for each in outcome.runs)
    assert outcome.passed
    assert row["verified"] is True
    assert min(row["injected_drops"], row["trimmed"], row["retransmitted"]) > 0
    events = pq.read_table(outcome.directory / "events.parquet").column("event").to_pylist()
    assert row["trimmed"] > events.count("cut") > 0
    verdicts = check(outcome.directory, of=suites.Format.AUTO)
    assert failed(verdicts) == set()
    assert verdicts["sr.only-holes"].outcome == Outcome.PASS
