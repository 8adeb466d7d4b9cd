# SPDX-License-Identifier: GPL-2.0-or-later
"""Packets whose payload was cut off: what transports with a rule for them have in common, and
those without one, and users' policies.
"""

import struct

import pytest

from softroce_lab import _native
from softroce_lab.dissect.description import PACKET_TRIMMED
from softroce_lab.transports.control import Sack
from softroce_lab.transports.policy import MessagePolicy
from tests.control_bodies import encode
from tests.native.by_hand import BASE_RTT_NS, CHUNK, ByHand, Sent, fast_timing
from tests.native.by_hand import KEY as KEY_BY_HAND
from tests.native.frames import CONTROL
from tests.native.rule_rows import Talk, options
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


WITH_A_RULE = ["dcp", "mrc", "ndp", "uet_rod", "uet_rud"]
WINDOW = 8
LAST = WINDOW - 1


def full_window(transport, **settings):
    """A sender that may not send the rest of its message yet; each packet is acknowledged."""
    chosen = options(transport)
    if "acknowledged_bytes" in chosen["options"]:
        chosen["options"]["acknowledged_bytes"] = 0
    talk = Talk(transport, 24, window_packets=WINDOW, **chosen, **settings)
    assert sorted(talk.latest) == list(range(WINDOW))
    return talk


@pytest.mark.parametrize("transport", WITH_A_RULE)
def test_a_trimmed_packet_makes_room_for_one(transport):
    """Its header overtook the packets before it: these are still in flight."""
    assert full_window(transport).trim(LAST, last_hop=False) == [LAST]


@pytest.mark.parametrize("transport", ["dcp", "mrc", "uet_rud"])
def test_an_acknowledgement_makes_no_second_room_for_a_trimmed_packet(transport):
    """Of six packets up to the acknowledged one, five were in flight."""
    talk = full_window(transport)
    assert talk.trim(4, last_hop=False) == [4]
    assert talk.arrive(5) == [8, 9, 10, 11, 12]


@pytest.mark.parametrize("transport", WITH_A_RULE)
def test_a_retransmission_leaves_when_the_window_permits(transport):
    """The trimmed packet makes the window of NSCC smaller."""
    talk = full_window(transport, congestion_control="nscc")
    assert talk.trim(LAST, last_hop=False) == []
    assert talk.arrive(0) == [LAST]


@pytest.mark.parametrize("transport", WITH_A_RULE)
def test_a_packet_that_arrives_trimmed_is_not_given_up(transport):
    """The attempts in a row are limited that nothing is heard of."""
    timing = fast_timing()
    timing.most_attempts = 3
    talk = Talk(transport, 1, timing=timing)
    for _ in range(20):
        assert talk.trim(0, last_hop=False) == [0]
    talk.arrive(0)
    assert talk.statuses() == ([0], [0])


def test_what_arrived_trimmed_does_not_count_when_csa_ud_sends_all_again():
    """The receiver, of which no NACK has come for long, says that nothing has begun."""
    timing = fast_timing()
    timing.most_attempts = 3
    talk = Talk("csa_ud", 1, timing=timing, path_probes=True, **options("csa_ud"))
    for _ in range(20):
        assert talk.trim(0, last_hop=False) == [0]
    talk.now_ns += 10 * BASE_RTT_NS
    talk.receiver.control(0, encode(Sack(0, KEY_BY_HAND, None), CHUNK))
    again = talk.deliver(talk.sender, *talk.out(talk.receiver))
    assert [each.reported["index"] for each in again if each.is_data] == [0]
    assert talk.statuses() == ([], [])


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


def test_a_sender_refuses_to_hear_that_what_it_has_not_sent_yet_was_trimmed():
    rig = begun("mrc")
    stamp = (rig.now_ns + 1_000_000) % (1 << 32)
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
