# SPDX-License-Identifier: GPL-2.0-or-later
"""Packets whose payload was cut off, at transports without a rule for them and at users' policies.

tests/native/test_new_transport.py has a transport with a rule.
"""

import struct

import pytest

from softroce_lab import _native
from softroce_lab.dissect.description import PACKET_TRIMMED
from softroce_lab.transports.policy import MessagePolicy
from tests.native.by_hand import ByHand, Sent
from tests.native.frames import CONTROL
from tests.native.test_refusals import (
    ID,
    KEY,
    SLOTS,
    SMALL_KEY,
    begun,
    data_frame,
    ends_well,
    inject,
    recovery_frame,
)

HERE, MISSING = 3, 11


def trimmed(frame, last_hop=False):
    return _native.trim_frame(frame.encode(), last_hop)


@pytest.mark.parametrize("transport", ["irn", "srnic", "rack_tlp"])
def test_a_transport_without_a_rule_ignores_trimmed_packets(transport):
    talk = ByHand.begun(transport, 6)
    out = talk.data_out()
    cut = Sent(_native.trim_frame(out[0].frame), {})
    assert talk.deliver(talk.receiver, cut) == []
    assert talk.receiver.counters()["rx_trimmed"] == 1


@pytest.mark.parametrize("transport", ["irn", "srnic", "rack_tlp"])
def test_a_transport_without_a_rule_refuses_to_hear_of_trimming(transport):
    rig = begun(transport)
    stamp = rig.now_ns % (1 << 32)
    body = struct.pack(">BIIIIBB", PACKET_TRIMMED, ID, 0, stamp, 5, 0, 0)
    assert inject(rig, recovery_frame(rig, CONTROL, body, to=0), to=0) == {"rx_bad_control": 1}
    ends_well(rig)


class Listener(MessagePolicy):
    """Writes down what is cut."""

    name = "listener"

    def __init__(self, view, timing, options=None):
        super().__init__(view, timing, options)
        self.cut = []

    def on_trimmed(self, receive, packet, last_hop, now_ns):
        self.cut.append((receive.key, receive.id, packet, last_hop))
        return ()


CUTS = {
    "missing": ({"index": MISSING}, False, [(KEY, ID, MISSING, False)]),
    "missing, cut at the last hop": ({"index": MISSING}, True, [(KEY, ID, MISSING, True)]),
    "a retransmission": ({"index": MISSING, "attempt": 2}, False, [(KEY, ID, MISSING, False)]),
    "here already": ({"index": HERE}, False, []),
    "of another message in the slot": ({"index": MISSING, "message": 77}, False, []),
    "of a message that has not begun": (
        {"message": 4, "message_id": ID + 1, "index": 0, "count": 1, "length": 100},
        False,
        [((1, 2, 4), None, 0, False)],
    ),
    "without a receive": (
        {"message": 99, "message_id": ID + 1, "index": 0, "count": 1, "length": 100}, False, [],
    ),
    "of a message longer than its receive": (
        {"message": 4, "message_id": ID + 1, "index": 0, "count": 1, "length": 101}, False, [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "last_hop", "cut"), CUTS.values(), ids=CUTS)
def test_a_policy_hears_of_each_cut_of_a_packet_that_it_lacks(fields, last_hop, cut):
    rig = begun(Listener)
    side = rig.sides[1]
    payload = b"\1" * fields.get("length", 2008)
    assert inject(rig, trimmed(data_frame(**fields, payload=payload), last_hop)) == {
        "rx_trimmed": 1
    }
    side.step()
    assert side.policy.cut == cut


def test_a_cut_of_an_earlier_use_of_the_slot_tells_nothing():
    """Although a receive of its key is posted."""
    rig = begun(Listener)
    ends_well(rig)
    rig.sides[1].receive(SMALL_KEY, 100)
    fields = {"message": 4, "message_id": ID - SLOTS & 0xFFFFFFFF, "index": 0, "count": 1}
    late = data_frame(**fields, length=100, payload=b"\1" * 100)
    assert inject(rig, trimmed(late)) == {"rx_trimmed": 1}
    rig.sides[1].step()
    assert rig.sides[1].policy.cut == []
