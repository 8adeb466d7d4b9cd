# SPDX-License-Identifier: GPL-2.0-or-later
"""What policies did on the virtual clock stands beside what rules did to packets."""

import collections

import pytest

from softroce_lab.experiment import spec, virtual, workload_record
from softroce_lab.experiment.figure_table import RETRANSMITTED
from softroce_lab.inputs import yaml_source

LOSSY = """\
name: lossy
topology: {generator: {kind: star, hosts: 2, access: {rate: 100Gbit, delay: 1us}}}
transports: [csa_ud, ud_rto, irn]
workload: {kind: point-to-point, bytes: 1MiB, message: 256KiB}
faults: [{name: lossy, links: "h1->*", loss: random 2%}]
"""


def lossy():
    return spec.of(yaml_source.parse(LOSSY, "lossy.yaml"))


def events_of(number):
    experiment = lossy()
    found = virtual.run(
        experiment, experiment.transports[number], 1, lambda _: None, with_acts=True
    )
    return found, found.events


@pytest.mark.parametrize(("number", "receiver_states"), [(0, "ack"), (1, "sack")])
def test_what_a_policy_did_is_told(number, receiver_states):
    found, events = events_of(number)
    rows = list(zip(events["source"], events["event"], events["packets"], strict=True))
    retransmitted = sum(int(n) for _, event, n in rows if event.startswith("retransmit"))
    assert retransmitted == found.count(RETRANSMITTED) > 0
    drops = sum(link["injected_drops"] for link in found.links)
    met = collections.Counter((source, event) for source, event, _ in rows)
    assert met["injector", "drop"] == drops > 0
    assert any(host == "h1" and event.startswith("retransmit") for host, event in met)
    assert met["h2", receiver_states] > 0


def test_they_are_in_the_order_of_time_in_a_run_directory():
    found, _ = events_of(0)
    (part,) = workload_record.events(found)
    times = part["time_ns"].tolist()
    assert times == sorted(times)
    assert set(part["source"]) == {"injector", "h1", "h2"}
    assert set(part) == {"transport", "seed", *workload_record.EVENT_COLUMNS}
