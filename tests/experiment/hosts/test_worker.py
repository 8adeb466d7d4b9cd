# SPDX-License-Identifier: GPL-2.0-or-later
"""Workloads with real bytes on an imagined cable: what hosts have in the end is what they must."""

import pytest

from softroce_lab.errors import RunError, ibv_wc_status
from softroce_lab.experiment.hosts import buffers
from softroce_lab.experiment.hosts.messenger import Done
from softroce_lab.experiment.hosts.settings import WorkloadSettings, packed
from softroce_lab.experiment.hosts.worker import Worker
from softroce_lab.recovery import registry
from softroce_lab.workloads.collectives.collective import Collective
from softroce_lab.workloads.flows import AllToAll, Incast, PointToPoint
from softroce_lab.workloads.message import FLOAT32, INT32
from softroce_lab.workloads.operations import Operations, Timeline
from softroce_lab.workloads.work import final_digests
from tests.experiment.hosts.cable import Cable
from tests.recovery.pair_rig import SECOND_NS, threshold

HOSTS = (4, 2)  # the first rank lives on host 4
SEED = 11


def workers(workload, depth=2):
    text = packed(workload)
    return [Worker(WorkloadSettings(host, text, SEED, depth)) for host in HOSTS]


def cable_of(both, transport="csa_ud", loss=0.0):
    cable = Cable(transport, [worker.memory for worker in both], hosts=HOSTS)
    for which in (0, 1):
        cable.pair.cable(which).loss = threshold(loss)
    return cable


def run(both, cable):
    for worker, end in zip(both, cable.messengers, strict=True):
        worker.prepare(end)
    for worker in both:
        worker.begin(cable.pair.now_ns)
    cable.drive(both, 10 * SECOND_NS)


WORKLOADS = {
    "point-to-point": PointToPoint(HOSTS, 100_001, 30_000),
    "incast": Incast(HOSTS, 50_000, 7_000),
    "all-to-all": AllToAll(HOSTS, 70_000, 70_000),
    "all-reduce": Collective(HOSTS, 100_000, 16_384, FLOAT32),
    "all-reduce of odd elements": Collective(HOSTS, 4 * 999, 400, INT32),
    "nothing": PointToPoint(HOSTS, 0, 1000),
    "again and again": Operations(Collective(HOSTS, 40_000, 8_192, FLOAT32), 3),
    "in its time": Operations(PointToPoint(HOSTS, 9_000, 4_000), 3, Timeline(20_000_000)),
}


@pytest.mark.parametrize("transport", registry.transports())
@pytest.mark.parametrize("name", WORKLOADS)
def test_every_byte_is_right(name, transport):
    both = workers(WORKLOADS[name])
    run(both, cable_of(both, transport, loss=0.01))
    for worker in both:
        result = worker.result()
        assert worker.finished
        assert not worker.failed
        assert (result["wrong"], result["left"]) == ([], 0)
    assert sum(worker.result()["bytes"] for worker in both) == 2 * sum(
        message.length_bytes for message in WORKLOADS[name].messages()
    )


def test_a_wrong_byte_is_found():
    both = workers(WORKLOADS["all-reduce"])
    run(both, cable_of(both))
    both[1].memory[5] ^= 1
    assert both[0].result()["wrong"] == []
    assert both[1].result()["wrong"] == ["host 2: 1 bytes are wrong, the first at 5"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_digest_of_the_right_bytes_finds_the_same(name, monkeypatch):
    """Only a host whose digest differs makes the right bytes itself."""
    workload = WORKLOADS[name]
    right = final_digests(workload, SEED)
    both = workers(workload)
    run(both, cable_of(both))
    if workload.expected(HOSTS[1], SEED).size:
        both[1].memory[0] ^= 1
        [line] = both[1].result(right[HOSTS[1]])["wrong"]
        assert line == "host 2: 1 bytes are wrong, the first at 0"
    monkeypatch.setattr(buffers, "mismatches", None)
    assert both[0].result(right[HOSTS[0]])["wrong"] == []


def test_operations_wait_for_their_times():
    both = workers(WORKLOADS["in its time"])
    cable = cable_of(both)
    run(both, cable)
    assert 40_000_000 <= cable.pair.now_ns < 60_000_000


def test_a_dead_peer_is_the_end_of_the_work():
    both = workers(WORKLOADS["all-to-all"])
    cable = cable_of(both)
    for which in (0, 1):
        cable.pair.cable(which).down = True
    run(both, cable)
    for worker in both:
        assert worker.failed
        assert worker.result()["wrong"] is None  # nothing is said of what did not arrive


def test_a_message_of_another_length_is_refused():
    both = workers(WORKLOADS["point-to-point"])
    receiver = both[1]
    with pytest.raises(RunError, match="29999 bytes long"):
        receiver.complete(
            Done("receive", HOSTS[0], (0, 0, 0), int(ibv_wc_status.IBV_WC_SUCCESS),
                 29_999, 15, 0, 0, 0, 0, 0)
        )  # fmt: skip
