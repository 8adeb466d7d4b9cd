# SPDX-License-Identifier: GPL-2.0-or-later
"""Over a long haul without loss every transport fills 90 % of the link."""

import pytest

from softroce_lab import units
from softroce_lab.experiment import virtual
from softroce_lab.transports import registry
from tests.experiment.kinds.examples import of

TWO_SITES = """\
name: two-sites
topology:
  generator:
    kind: two-sites
    leaves: 1
    spines: 1
    hosts_per_leaf: 1
    access: {{rate: {rate}, delay: 1us, limit: 256MiB}}
    core: {{rate: {rate}, delay: 1us, limit: 256MiB}}
    long_haul: {{rate: {rate}, delay: {delay}, limit: 256MiB}}
transports: [{transport}]
workload: {{kind: point-to-point, bytes: {size}, message: {message}}}
depth: 32
deadline: 20s
"""
# Each carries some thirty round trips of data: the first and the last cannot be full.
SHORT = {"rate": "10Gbit", "delay": "500us", "size": "32MiB", "message": "512KiB"}  # RTT 1 ms
FULL = {"rate": "10Gbit", "delay": "12500us", "size": "1GiB", "message": "8MiB"}  # RTT 25 ms


@pytest.mark.full("long-haul-rate")
@pytest.mark.parametrize("transport", registry.transports())
def test_it_fills_the_link(transport, full):
    """Of 1 ms; in full of 25 ms. Parity is what a code is for: it counts as data."""
    setting = FULL if full else SHORT
    experiment = of(TWO_SITES.format(transport=transport, **setting))
    run = virtual.run(experiment, experiment.transports[0], 1, lambda _: None)
    assert run.reasons == []
    assert run.summary()["retransmitted"] == 0
    most_bytes = max(link["bytes"] for link in run.links)
    rate_bps = units.parse_rate_bps(setting["rate"])
    share = most_bytes * 8e9 / run.makespan_ns / rate_bps
    print(f"{transport} fills {share:.3f} of the link")
    assert share >= 0.9
