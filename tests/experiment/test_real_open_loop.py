# SPDX-License-Identifier: GPL-2.0-or-later
"""Open-loop traffic on the real clock, at a rate that any machine carries."""

import secrets

import pytest

from softroce_lab.experiment import real, spec
from softroce_lab.fabric import lab as fabric
from softroce_lab.inputs import yaml_source

STAR = """
name: {name}
topology: {{generator: {{kind: star, hosts: 4, access: {{rate: 100Mbit, delay: 100us}}}}}}
transports: [csa_ud]
lb: flow
workload: {{kind: open-loop, load: 30%, sizes: ali-storage, duration: 400ms,
  incast: {{degree: 3, share: 10%, bytes: 10kB}}}}
clock: real
"""


@pytest.fixture(scope="module")
def lab():
    wanted = spec.of(yaml_source.parse(STAR.format(name=f"t{secrets.token_hex(3)}")))
    made = fabric.up(wanted.plan(1), ephemeral=True)
    yield wanted, made
    made.down()


def test_flows_arrive_whole_and_at_their_times(lab):
    wanted, made = lab
    found = real.run(wanted, wanted.transports[0], 1, lambda _: None, made)
    assert found.verdict == "passed", found.reasons
    assert found.verified is True
    work, summary = wanted.workload(1), found.summary()
    assert found.messages["bytes"].tolist() == work.flows["bytes"].tolist()
    assert (found.messages["posted_ns"] >= work.flows["at_ns"]).all()
    assert summary["offered_load"] == pytest.approx(0.3, rel=0.01)
    assert summary["measured"] == work.warm.sum() > 50
    assert 1.0 <= summary["slowdown_p50"] <= summary["slowdown_p99"]
    assert sum(each["n"] for each in summary["slowdown"]) == summary["measured"]
