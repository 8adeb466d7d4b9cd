# SPDX-License-Identifier: GPL-2.0-or-later
"""Every fault that XDP decides, with real frames: golden against the user-space build."""

from __future__ import annotations

import ipaddress
import socket
import struct
import time

import pytest

from softroce_lab import _native
from softroce_lab.fabric.bpf.layout import LinkState
from softroce_lab.faults.layout import link_rules
from softroce_lab.plan.effects import (
    CERTAIN,
    Blackout,
    Burst,
    Corrupt,
    Cut,
    Delay,
    Down,
    Drop,
    Duplicate,
    Effect,
    Fault,
    FaultKey,
    Filter,
    Gemodel,
    NamedDrop,
    Periodic,
    RandomLoss,
    Window,
)
from softroce_lab.plan.plan import IPV6_PREFIX
from softroce_lab.structs import Struct, enumerators
from tests.fabric.xdp_rig import Rig, directed_links, lab_header, listening, number, roce
from tests.xdp.packets import packet as native_packet

STREAM = 0x0123456789ABCDEF
PERCENT = 2**64 // 100
EVERYTHING, ALWAYS = Filter(), Window()
HEADERS = 14 + 20 + 8 + 12 + 8  # Ethernet to DETH
MESSAGE_PACKETS, PARITY_PACKETS = 8, 2
DATA, PARITY = 0, 4
WRITE = enumerators("lab_verb")["write"]


def downlink(rig: Rig) -> int:
    """The directed link from the switch to the receiver."""
    return next(n for n, near, far in directed_links(rig.plan.links) if far.node == "h2")


def fault(
    rig: Rig,
    effect: Effect,
    *,
    key: FaultKey = "identity",
    rule_id: int = 3,
    wanted: Filter = EVERYTHING,
    window: Window = ALWAYS,
) -> Fault:
    return Fault("r", rule_id, downlink(rig), key, STREAM + rule_id, effect, wanted, window)


def place(n: int) -> dict[str, int]:
    """What packet n is: messages have eight packets of data, and two of parity behind them."""
    message, index = divmod(n, MESSAGE_PACKETS + PARITY_PACKETS)
    return {"kind": DATA if index < MESSAGE_PACKETS else PARITY, "message": message, "index": index}


def data(rig: Rig, n: int, attempt: int = 0, verb: int = 0) -> bytes:
    """Packet n of them, from h1 to h2. With a verb, the messages are those of operations."""
    header = lab_header(
        **place(n), attempt=attempt, count=MESSAGE_PACKETS, code=MESSAGE_PACKETS, verb=verb
    )
    return roce(rig.address("h1"), rig.address("h2"), psn=n, lab=header)


def send(rig: Rig, frames: list[bytes]) -> list[bytes]:
    """What arrives at h2 of the frames that h1 sends."""
    with listening(rig, "h2"):
        arrived = rig.carry("h1", "h2", frames)
    return [frame for frame in arrived if len(frame) > HEADERS]


def positions(frames: list[bytes]) -> set[int]:
    """The positions of `data` packets, by their PSN."""
    return {struct.unpack_from("!I", frame, 14 + 20 + 8 + 8)[0] for frame in frames}


def packet(rig: Rig, n: int, attempt: int = 0) -> bytes:
    return native_packet(
        src=number(rig.address("h1")),
        dst=number(rig.address("h2")),
        **place(n),
        attempt=attempt,
        tail=(MESSAGE_PACKETS - place(n)["index"]) % 2**32,
        opcode=0x64,
        qpn=17,
        psn=n,
    )


def survivors(rig: Rig, faults: list[Fault], count: int, attempt: int = 0) -> set[int]:
    """The positions that the user-space build lets through."""
    link = _native.LinkFaults(link_rules(faults).value)
    return {n for n in range(count) if not link.decide(packet(rig, n, attempt)).effects & 1}


MODELS: dict[str, tuple[Effect, FaultKey, Filter]] = {
    "random": (RandomLoss(30 * PERCENT), "identity", Filter()),
    "random index": (RandomLoss(30 * PERCENT), "index", Filter()),
    "gemodel": (Gemodel(5 * PERCENT, 30 * PERCENT, 90 * PERCENT, PERCENT), "index", Filter()),
    "simple gilbert": (Gemodel(5 * PERCENT, 25 * PERCENT, CERTAIN, 0), "index", Filter()),
    "burst": (Burst(3 * PERCENT, 7), "index", Filter()),
    "periodic": (Periodic(10, 3, 4), "index", Filter()),
    "blackout": (Blackout(), "identity", Filter()),
    "down": (Down(), "identity", Filter()),
    "tails": (Drop(), "identity", Filter(tail=2)),
    "one message": (Drop(), "identity", Filter(message=4)),
    "data only": (Drop(), "identity", Filter(kinds=("data",))),
    "parity only": (Drop(), "identity", Filter(kinds=("parity",))),
    "control only": (Drop(), "identity", Filter(kinds=("control", "report"))),
    "opcode": (Drop(), "identity", Filter(opcode=0x64)),
    "another opcode": (Drop(), "identity", Filter(opcode=0x04)),
    "absolute QP": (Drop(), "identity", Filter(qpn=17, absolute=True)),
    "another QP": (Drop(), "identity", Filter(qpn=18, absolute=True)),
    "second attempts": (Drop(), "identity", Filter(iters=(2, 3))),
    "filtered loss": (RandomLoss(50 * PERCENT), "identity", Filter(tail=1, kinds=("data",))),
}


@pytest.mark.parametrize("verb", [0, WRITE], ids=["message", "operation"])
@pytest.mark.parametrize("name", MODELS)
def test_both_builds_lose_the_same_packets(rig, name, verb):
    effect, key, wanted = MODELS[name]
    faults = [fault(rig, effect, key=key, wanted=wanted)]
    rig.xdp.set_faults(faults)
    expected = survivors(rig, faults, 160)
    assert positions(send(rig, [data(rig, n, verb=verb) for n in range(160)])) == expected
    (hits,) = rig.xdp.hits()[downlink(rig)]
    assert hits.hits == 160 - len(expected)
    assert rig.total("injected_tx") == 160 - len(expected)
    assert rig.total("link_down") == (160 if name == "down" else 0)


def test_rules_meet_a_packet_in_their_order(rig):
    """Each counts only what the ones before it let through."""
    faults = [
        fault(rig, Drop(), rule_id=1, wanted=Filter(tail=4)),
        fault(rig, Periodic(2, 1, 0), rule_id=2, key="index"),
        fault(rig, RandomLoss(50 * PERCENT), rule_id=3),
    ]
    rig.xdp.set_faults(faults)
    assert positions(send(rig, [data(rig, n) for n in range(400)])) == survivors(rig, faults, 400)
    seen = {hits.rule_id: hits.seen for hits in rig.xdp.hits()[downlink(rig)]}
    assert seen == {1: 160, 2: 240, 3: 120}  # a Drop passes by what its filter lets through


def test_changes_of_a_link_are_told_apart():
    """Also two in a row, which use the slot that was used before."""
    states = [LinkState.unpack(bytes(Struct("lab_link").size))]
    for _ in range(3):
        states.append(LinkState.unpack(states[-1].flipped(has_rules=True, shaped=False)))
    assert [state.slot for state in states] == [0, 1, 0, 1]
    assert len({state.armed for state in states}) == 4


# --- Named packets ---------------------------------------------------------------------------


def named(rig: Rig, *, rule_id: int = 0, **name: object) -> Fault:
    blank = {"message": None, "packet": None, "qpn": None, "psn": None, "absolute": False}
    return fault(rig, NamedDrop(**{**blank, "iters": (), **name}), rule_id=rule_id)


@pytest.mark.parametrize("verb", [0, WRITE], ids=["message", "operation"])
def test_a_packet_is_dropped_by_its_name_on_the_transmission_that_was_named(rig, verb):
    faults = [
        named(rig, rule_id=5, message=2, packet=3, iters=(1, 3)),
        named(rig, rule_id=6, message=2, packet=MESSAGE_PACKETS),  # that is parity, without a name
    ]
    rig.xdp.set_faults(faults)
    arrived = [len(send(rig, [data(rig, 23, attempt, verb)])) for attempt in range(4)]
    assert arrived == [0, 1, 0, 1]
    assert len(send(rig, [data(rig, n, verb=verb) for n in range(50) if n != 23])) == 49
    hits = {each.rule_id: each.hits for each in rig.xdp.hits()[downlink(rig)]}
    assert hits == {5: 2, 6: 0}


def test_a_packet_without_an_attempt_is_counted_by_the_switch(rig):
    """RC and UC send the same PSN again, and nothing in the packet says how often."""
    rig.xdp.set_faults([named(rig, qpn=17, psn=1001, absolute=True, iters=(2,))])
    frame = roce(rig.address("h1"), rig.address("h2"), psn=1001, qpn=17)
    assert [len(send(rig, [frame])) for _ in range(4)] == [1, 0, 1, 1]


def test_relative_numbers_follow_the_order_of_first_use(rig):
    """Lumina's: QP 1 is the first that the sender spoke to, PSN 1 the first it sent there."""
    rig.xdp.set_faults([named(rig, qpn=2, psn=3), named(rig, rule_id=1, qpn=1, psn=1)])
    src, dst = rig.address("h1"), rig.address("h2")
    frames = [roce(src, dst, qpn=70, psn=500 + n) for n in range(4)]
    frames += [roce(src, dst, qpn=60, psn=0xFFFFFF if n == 0 else n - 1) for n in range(4)]
    assert positions(send(rig, frames)) == {501, 502, 503, 0xFFFFFF, 0, 2}


def test_a_link_that_is_down_takes_named_packets_too(rig):
    """Down goes first: what is lost to it does not count as a transmission of the name's."""
    window = Window(begin_ns=10**15, length_ns=10**9)
    down = fault(rig, Down(), rule_id=1, window=window)
    rig.xdp.set_faults([down, named(rig, rule_id=2, qpn=17, psn=5, absolute=True, iters=(1,))])
    frame = roce(rig.address("h1"), rig.address("h2"), psn=5, qpn=17)
    rig.xdp.restart(time.monotonic_ns() - 10**15 - 10**8)
    assert send(rig, [frame] * 3) == []
    assert rig.total("link_down") == 3
    assert {each.rule_id: each.hits for each in rig.xdp.hits()[downlink(rig)]} == {1: 3, 2: 0}
    rig.xdp.restart(time.monotonic_ns() - 10**15 - 2 * 10**9)
    assert len(send(rig, [frame] * 3)) == 2
    assert {each.rule_id: each.hits for each in rig.xdp.hits()[downlink(rig)]} == {1: 0, 2: 1}


# --- Tails of RC messages --------------------------------------------------------------------

FIRST, MIDDLE, LAST, WRITE_ONLY, READ_LAST, ACK = 0x00, 0x01, 0x02, 0x0A, 0x0F, 0x11
UC_LAST = 0x22
TOP = 2**24 - 1
CONVERSATION = [  # opcode, PSN, queue pair, whether the tail rule takes it
    (FIRST, TOP - 2, 17, False),
    (MIDDLE, TOP - 1, 17, False),
    (LAST, TOP, 17, True),
    (WRITE_ONLY, 0, 17, True),
    (LAST, 5, 18, True),
    (ACK, 900, 17, False),  # in the other direction's numbers
    (READ_LAST, 901, 17, False),
    (UC_LAST, 5, 19, False),
    (MIDDLE, TOP - 1, 17, False),  # goes back
    (LAST, TOP, 17, False),
    (WRITE_ONLY, 0, 17, False),
    (WRITE_ONLY, 1, 17, True),
    (WRITE_ONLY, 1, 17, False),
    (LAST, 4, 18, False),
    (LAST, 6 + 2**23, 18, False),  # more than half of the numbers ahead is behind
    (LAST, 5 + 2**23, 18, True),
]


def rc_frames(rig: Rig) -> list[bytes]:
    ends = rig.address("h1"), rig.address("h2")
    return [
        roce(*ends, opcode=opcode, psn=psn, qpn=qpn, size=200 + n)
        for n, (opcode, psn, qpn, _) in enumerate(CONVERSATION)
    ]


def which(frames: list[bytes]) -> set[int]:
    """Positions in the conversation, by the packets' lengths."""
    return {
        struct.unpack_from("!H", frame, 16)[0] - (20 + 8 + 12 + 8 + 4) - 200 for frame in frames
    }


def tails_by_user_space() -> set[int]:
    newest: dict[int, int] = {}
    found = set()
    for n, (opcode, psn, qpn, _) in enumerate(CONVERSATION):
        taken, newest[qpn] = _native.tail_is_new(newest.get(qpn, 0), opcode, psn)
        if taken:
            found.add(n)
    return found


@pytest.mark.parametrize("iters", [(), (1,), (1, 3)])
def test_both_builds_find_the_tails_of_rc_messages_on_their_first_transmission(rig, iters):
    rig.xdp.set_faults([fault(rig, Drop(), wanted=Filter(tail=1, iters=iters))])
    taken = {n for n, row in enumerate(CONVERSATION) if row[3]}
    assert tails_by_user_space() == taken
    assert which(send(rig, rc_frames(rig))) == set(range(len(CONVERSATION))) - taken
    rig.xdp.restart(time.monotonic_ns())  # a run of its own: no number was sent before
    assert which(send(rig, rc_frames(rig))) == set(range(len(CONVERSATION))) - taken


# --- Time ------------------------------------------------------------------------------------


def test_a_rule_acts_in_its_window_alone(rig):
    window = Window(begin_ns=10**15, length_ns=10**9)
    rig.xdp.set_faults([fault(rig, Blackout(), window=window)])
    frames = [data(rig, n) for n in range(5)]
    assert len(send(rig, frames)) == 5
    rig.xdp.restart(time.monotonic_ns() - 10**15 - 10**8)
    assert len(send(rig, frames)) == 0
    rig.xdp.restart(time.monotonic_ns() - 10**15 - 2 * 10**9)
    assert len(send(rig, frames)) == 5


# --- Corruption ------------------------------------------------------------------------------


def differing_bits(left: bytes, right: bytes) -> list[int]:
    return [
        8 * at + bit
        for at, (a, b) in enumerate(zip(left, right, strict=True))
        for bit in range(8)
        if (a ^ b) >> bit & 1
    ]


def test_corruption_flips_one_bit_that_the_icrc_covers(rig):
    rig.xdp.set_faults([fault(rig, Corrupt(CERTAIN))])
    frames = [data(rig, n) for n in range(200)]
    behind_macs, behind_bth = 14 + 12, 14 + 20 + 8 + 12
    flipped = set()
    for sent, got in zip(frames, send(rig, frames), strict=True):
        bits = [bit for bit in differing_bits(sent, got) if bit >= 8 * behind_macs]
        assert len(bits) == 1
        assert bits[0] >= 8 * behind_bth
        flipped.add(bits[0])
    assert len(flipped) > 100
    assert rig.total("corrupted") == 200


# --- The wire stage --------------------------------------------------------------------------


@pytest.mark.parametrize("effect", [Delay(0, 0, "uniform", True), Duplicate(0), Cut(0)])
def test_frames_of_a_shaped_link_are_counted_when_no_wire_stage_listens(rig, effect):
    rig.xdp.set_faults([fault(rig, effect)])
    assert send(rig, [data(rig, n) for n in range(7)]) == []
    assert rig.total("wire_gone") == 7
    rig.xdp.clear_faults()
    assert len(send(rig, [data(rig, n) for n in range(7)])) == 7


# --- IPv6 ------------------------------------------------------------------------------------


def over_ipv6(rig: Rig, frame: bytes, **header: int) -> bytes:
    """The same packet behind an IPv6 header."""
    src, dst = (
        IPV6_PREFIX[int(ipaddress.IPv4Address(rig.address(host)))].packed for host in ("h1", "h2")
    )
    payload = frame[34:]
    fields = {"version": 6, "length": len(payload), "next": 17, "hops": 64} | header
    head = struct.pack(
        "!IHBB", fields["version"] << 28, fields["length"], fields["next"], fields["hops"]
    )
    return frame[:12] + b"\x86\xdd" + head + src + dst + payload


def test_a_packet_has_one_fate_over_ipv4_and_ipv6(rig):
    faults = [fault(rig, RandomLoss(30 * PERCENT))]
    rig.xdp.set_faults(faults)
    arrived = send(rig, [over_ipv6(rig, data(rig, n)) for n in range(300)])
    psns = {struct.unpack_from("!I", frame, 14 + 40 + 8 + 8)[0] for frame in arrived}
    assert psns == survivors(rig, faults, 300)
    assert {frame[21] for frame in arrived} == {63}  # one hop less


def solicitation(rig: Rig, target: str, source: str) -> bytes:
    mac = bytes.fromhex(rig.plan.node("h1").ports[0].mac.replace(":", ""))
    own, asked = (socket.inet_pton(socket.AF_INET6, text) for text in (source, target))
    group = socket.inet_pton(socket.AF_INET6, "ff02::1:ff00:0")[:13] + asked[13:]
    icmp = struct.pack("!BBHI", 135, 0, 0, 0) + asked + b"\x01\x01" + mac
    head = struct.pack("!IHBB", 6 << 28, len(icmp), 58, 255) + own + group
    return b"\x33\x33" + group[12:] + mac + b"\x86\xdd" + head + icmp


def internet_sum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def test_the_gateway_answers_neighbour_solicitations(rig):
    own = IPV6_PREFIX[int(ipaddress.IPv4Address(rig.address("h1")))]
    with rig.tap("h1") as tap:
        tap.send(solicitation(rig, "fe80::1", str(own)))
        rig.settle()
        (answer,) = (frame for frame in tap.received() if frame[12:14] == b"\x86\xdd")
    gateway = next(far.mac for _, near, far in directed_links(rig.plan.links) if near.node == "h1")
    assert answer[6:12] == bytes.fromhex(gateway.replace(":", ""))
    assert answer[54] == 136
    assert answer[22:38] == socket.inet_pton(socket.AF_INET6, "fe80::1")
    assert answer[38:54] == own.packed
    assert answer[62:78] == answer[22:38]
    assert answer[80:86] == answer[6:12]
    pseudo = answer[22:54] + struct.pack("!II", len(answer) - 54, 58)
    assert internet_sum(pseudo + answer[54:]) == 0xFFFF
