# SPDX-License-Identifier: GPL-2.0-or-later
"""Workloads with real bytes on an imagined cable: what hosts have in the end is what they must."""

import weakref

import pytest

from softroce_lab.errors import RunError, ibv_wc_status
from softroce_lab.experiment.messages import NOT_DONE, open_ends, table
from softroce_lab.transports import registry
from softroce_lab.workloads.collectives.collective import Collective
from softroce_lab.workloads.flows import AllToAll, Incast, PointToPoint
from softroce_lab.workloads.message import FLOAT32, INT32
from softroce_lab.workloads.operations import Operations, Timeline
from tests.experiment.hosts.cable import Drivers
from tests.transports.pair_rig import SECOND_NS

HOSTS = (4, 2)  # the first rank lives on host 4
SEED = 11
DEAD = int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR)


def drivers(workload, transport="csa_ud", loss=0.0):
    return Drivers(transport, workload, HOSTS, seed=SEED, loss=loss)


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


@pytest.mark.parametrize(
    ("name", "transport"),
    [
        *(("again and again", transport) for transport in registry.transports()),
        *((name, transport) for name in WORKLOADS for transport in ("csa_ud", "rc")),
    ],
)
def test_every_byte_is_right(name, transport):
    run = drivers(WORKLOADS[name], transport, loss=0.01)
    run.run()
    for driver in run.both:
        assert driver.finished
        assert not driver.failed
        assert (driver.wrong(), driver.left) == ([], 0)
    assert sum(driver.done_bytes for driver in run.both) == 2 * sum(
        message.length_bytes for message in WORKLOADS[name].messages()
    )


def test_a_wrong_byte_is_found():
    run = drivers(WORKLOADS["all-reduce"])
    run.run()
    run.memories[1].memory[5] ^= 1
    assert run.both[0].wrong() == []
    assert run.both[1].wrong() == ["host 2: 1 bytes are wrong, the first at 5"]


def test_a_dead_peer_is_the_end_of_the_work():
    run = drivers(WORKLOADS["all-to-all"])
    for which in (0, 1):
        run.cable.pair.cable(which).down = True
    run.run()
    for driver, peer in zip(run.both, reversed(HOSTS), strict=True):
        assert driver.failed
        assert set(driver.failed_peers) == {peer}
        assert driver.wrong() is None  # nothing is said of what did not arrive


def test_the_memory_of_a_host_is_freed_with_it_at_once():
    """A host that held itself would keep its bytes until the garbage collector comes."""
    run = drivers(WORKLOADS["all-reduce"])
    run.run()
    memory = weakref.ref(run.memories[0])
    del run
    assert memory() is None


def test_rc_says_when_sends_and_receives_do_not_meet():
    run = drivers(WORKLOADS["point-to-point"], "rc")
    sender, receiver = run.both
    receiver.prepare()
    messages = list(WORKLOADS["point-to-point"].messages())
    for number in (1, 0):
        sender.send(number, messages[number])
    run.cable.pair.run(SECOND_NS)
    with pytest.raises(RunError, match=r"host 4 sent another message than \(0, 0, 0\)"):
        receiver.serve()


def test_the_ends_of_a_message_are_a_row():
    """Each host knows one end. What failed is not said of the one that came after it."""
    workload = PointToPoint(HOSTS, 3_000, 1_000)
    schedule, success, flushed = workload.schedule(), 0, 5
    found = {host: open_ends(3) for host in HOSTS}
    sent, received = found.values()
    sent[0] = (success, 2, 1, 0, 10, 11, 30)
    received[0] = (success, 2, 0, 3, 5, 15, 20)
    sent[1] = (flushed, 2, 0, 0, 12, 13, 31)
    received[1] = (DEAD, 0, 0, 4, 5, 16, 32)
    rows = table(schedule, found)
    names = ("packets", "retransmitted", "duplicates", "status", "posted_ns", "first_sent_ns",
             "first_received_ns", "received_ns", "completed_ns")  # fmt: skip
    assert rows[["source", "destination", "bytes"]].tolist() == 3 * [(*HOSTS, 1_000)]
    assert [tuple(row) for row in rows[list(names)]] == [
        (2, 1, 3, success, 10, 11, 15, 20, 30),
        (2, 0, 4, DEAD, 12, 13, -1, -1, 31),
        (0, 0, 0, NOT_DONE, -1, -1, -1, -1, -1),
    ]
