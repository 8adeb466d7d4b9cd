# SPDX-License-Identifier: GPL-2.0-or-later
"""Why a packet was retransmitted, as the record of a run has it, whatever found the loss."""

import pytest

from softroce_lab.telemetry.recoveries import EVENTS, REASONS
from tests.sim.rig import Rig, line

KEY = (0, 1, 0)
BASE_RTT_NS = 10_000
LENGTH_BYTES = 8 * 4096
LATE_NS = 2_000_000


def recoveries(transport, drop=None, late_ns=0):
    """The log of recovery of one message, and the addresses of its two hosts.

    The message has eight packets. `drop`: the packet that is lost. `late_ns`: the receive is posted
    so long after the send; 0: before it.
    """
    faults = [] if drop is None else [{"name": "lose", "links": "h1->s1", "drop": drop}]
    rig = Rig(line(1, faults=faults), transport, BASE_RTT_NS)
    rig.fabric.native.record_recoveries()
    rig.connect((0, 1))
    if not late_ns:
        rig.receive(0, 1, KEY, LENGTH_BYTES)
    rig.send(0, 1, KEY, LENGTH_BYTES)
    if late_ns:
        rig.run(late_ns)
        rig.receive(0, 1, KEY, LENGTH_BYTES)
    assert rig.run()
    return rig.fabric.take_recoveries(), [int(end.address) for end in rig.fabric.endpoints[:2]]


def reasons(transport, drop=None, late_ns=0):
    """The reasons of all decisions to retransmit."""
    made, _ = recoveries(transport, drop, late_ns)
    made = made[made["event"] == EVENTS.index("retransmit")]
    return {REASONS[each] for each in made["reason"].tolist()}


@pytest.mark.parametrize(
    ("transport", "gap"),
    [("irn", "nak"), ("srnic", "nak"), ("rack_tlp", "nak"), ("falcon", "nak"), ("rc", "nak"),
     ("dcp", "timeout"), ("mrc", "timeout"), ("uccl", "timeout"), ("ud_rto", "policy"),
     ("csa_ud", "policy"), ("oracle", "informed")],
)  # fmt: skip
def test_a_packet_that_others_overtook(transport, gap):
    of_rc = {"qpn": 1, "psn": 3, "iter": 1}
    drop = of_rc if transport == "rc" else {"message": 0, "packet": 3, "iter": 1}
    assert reasons(transport) == set()
    assert reasons(transport, drop) == {gap}


@pytest.mark.parametrize(
    "transport", ["irn", "srnic", "rack_tlp", "falcon", "dcp", "mrc", "uccl", "rc"]
)
def test_a_receiver_that_was_not_ready(transport):
    assert "rnr_nak" in reasons(transport, late_ns=LATE_NS)


@pytest.mark.parametrize(("event", "at"), [("nack_sent", 1), ("nack_received", 0)])
def test_a_nack_tells_of_packets_from_the_sender_to_the_receiver(event, at):
    made, hosts = recoveries("csa_ud", {"message": 0, "packet": 3, "iter": 1})
    found = made[made["event"] == EVENTS.index(event)][["source", "destination", "host"]]
    assert {each.item() for each in found} == {(*hosts, hosts[at])}
