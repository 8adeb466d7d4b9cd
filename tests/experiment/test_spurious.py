# SPDX-License-Identifier: GPL-2.0-or-later
"""What overtakes others on the way is not taken for lost by csa_ud, or hardly ever."""

import json

import pytest

from softroce_lab.experiment import spec
from softroce_lab.experiment import virtual as virtual_clock
from softroce_lab.inputs import yaml_source

MOST = 0.03  # of the packets
LINKS = {"rate": "100Gbit", "delay": "1us"}
RULE = {"name": "late", "links": "*->*", "reorder": "5%"}


@pytest.mark.parametrize("switches", [{"lb": "spray"}, {"lb": "adaptive"}, {"faults": [RULE]}])
def test_overtaken_packets_are_hardly_ever_taken_for_lost(switches):
    """Nothing is lost, so each retransmission is spurious."""
    fabric = {"kind": "fat-tree", "k": 4, "access": LINKS, "core": LINKS}
    of = {
        "name": "overtaken", "topology": {"generator": fabric}, "transports": ["csa_ud"],
        "workload": {"kind": "permutation", "bytes": "1MiB", "message": "64KiB"}, **switches,
    }  # fmt: skip
    experiment = spec.of(yaml_source.parse(json.dumps(of)))
    row = virtual_clock.run(experiment, experiment.transports[0], 1, lambda _: None).summary()
    assert row["verdict"] == "passed"
    assert row["queue_drops"] == row["injected_drops"] == 0
    assert 0 < row["spurious_retransmissions"] < MOST * row["packets_sent"]
