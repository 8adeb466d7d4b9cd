# SPDX-License-Identifier: GPL-2.0-or-later
"""What each transport of ours sends, made in memory: frames in the order in which they leave."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator

import numpy as np

from softroce_lab import _native
from softroce_lab.dissect import description
from softroce_lab.programs.rdmacm import mad_port
from softroce_lab.programs.rdmacm.connection import Send
from softroce_lab.transports import control, registry, sdr
from softroce_lab.transports.defaults import DEFAULT_TIMING
from tests import control_bodies
from tests.native import frames
from tests.native.bare_verbs import UD, BareRnic, address_vector
from tests.native.connected import (
    CMP_SWAP,
    FETCH_ADD,
    RC,
    READ,
    SEND,
    SEND_IMM,
    SEND_INV,
    SIGNALED,
    SOLICITED,
    UC,
    WRITE,
    WRITE_IMM,
    Duo,
)
from tests.programs.rdmacm.cm_rig import PASSIVE, UDP, Wire, way
from tests.transports.pair_rig import (
    ADDRESSES,
    DATA,
    MACS,
    MILLISECOND_NS,
    V6_ADDRESSES,
    PairRig,
    noise,
    threshold,
)
from tests.transports.sabotage import lose
from tests.transports.sdr.test_sdk import LENGTH, Rig

CHUNK = 1024 - 40
PERCENT = 2**64 // 100
IMMEDIATE = 0x12345678


def sent(pair: _native.Pair) -> list[bytes]:
    """The frames that a pair has sent since it began to keep them, or since the last time."""
    return [frame for _, _, frame in pair.take_sent()]


# ---------------------------------------------------------------- striped messages


def striped(transport: str, *, ipv6: bool) -> list[bytes]:
    """Messages over loss, one that no receive waits for, one too long, one that cannot succeed."""
    return [
        *_lossy(transport, ipv6=ipv6),
        *_not_ready(transport),
        *_too_long(transport),
        *_hopeless(transport),
    ]


def _rig(transport: str, **options) -> PairRig:
    timing = dataclasses.replace(DEFAULT_TIMING, **options.pop("timing", {}))
    rig = PairRig(transport, timing=timing, path_mtu=1024, **options)
    rig.pair.keep_sent()
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = 100_000, 10_000
    return rig


def _lossy(transport: str, *, ipv6: bool, **options) -> list[bytes]:
    rig = _rig(transport, addresses=V6_ADDRESSES if ipv6 else ADDRESSES, seed=5, **options)
    for cable in rig.cables:
        cable.loss, cable.duplicate = threshold(0.1), threshold(0.05)
    for number, length in enumerate((1, 61, CHUNK, 40 * CHUNK - 7, 120 * CHUNK)):
        rig.transfer((7, number, 1), length, sender=number % 2)
    rig.finish()
    rig.check()
    return sent(rig.pair)


def over_uc(*, ipv6: bool) -> list[bytes]:
    """The same of the framing uc_immediate, where a send waits until its receive is posted."""
    return [
        *_lossy("sdr_sr", ipv6=ipv6, framing="uc_immediate"),
        *_not_ready("sdr_sr", framing="uc_immediate"),
    ]


def _not_ready(transport: str, **options) -> list[bytes]:
    rig = _rig(transport, timing={"rnr_retry": 7}, **options)
    data = noise(1, 4 * CHUNK)
    rig.sides[0].send((1, 2, 3), data)
    rig.step_until(DEFAULT_TIMING.t_max_ns + 5 * MILLISECOND_NS)
    rig.sides[1].expect(rig.sides[1].receive((1, 2, 3), data.size), data)
    rig.finish()
    rig.check()
    return sent(rig.pair)


def _too_long(transport: str) -> list[bytes]:
    rig = _rig(transport)
    rig.sides[1].receive((1, 2, 3), CHUNK)
    rig.sides[0].send((1, 2, 3), noise(1, 2 * CHUNK))
    rig.step_until(20 * MILLISECOND_NS)
    return sent(rig.pair)


def _hopeless(transport: str, **options) -> list[bytes]:
    rig = _rig(transport, timing={"most_attempts": 2}, **options)
    lose(rig, 0, kind=DATA)
    rig.transfer((1, 2, 3), 10 * CHUNK)
    rig.finish()
    return sent(rig.pair)


CONTROLS: tuple[control.Message, ...] = (
    control.Nack(0, 9, tuple(range(16)), ()),
    control.Nack(3, 2**32 - 1, (2**24 - 1,) * 16, ((1, 64, 2**64 - 1), (2, 0, 0)), 2**16 - 1),
    control.Nack(1, 9, (0,) * 16, ((1, 0, 6),), 2, ((15, 2**24 - 1), (0, 0))),
    control.Ack(()),
    control.Ack((1, 2**32 - 1, 3)),
    control.Keepalive(()),
    control.Keepalive(((1, (2, 3, 4)), (5, (6, 7, 8)))),
    control.Rnr(1, (2, 3, 4)),
    control.Rnr(1, (0x101, 3, 4), 12),
    control.Rnr(1, (0x101, 3, 4), 33),
    control.Refused(1, (2, 3, 4), by_receiver=True, status=9),
    control.Refused(1, (2, 3, 4), by_receiver=False, status=255),
    control.Sack(1, (2, 3, 4), control.PacketSet(2**32 - 9, np.arange(9) % 2 == 0)),
    control.Sack(1, (2, 3, 4), control.PacketSet(40, np.repeat(np.arange(40) % 2 == 0, 25))),
    control.Sack(1, (2, 3, 4), None),
    control.Chunks(1, (2, 3, 4), 32, control.PacketSet(3, np.arange(9) % 2 == 0)),
    control.Chunks(1, (2, 3, 4), 1, None),
    control.Clear(4, 16, 0x800040, 0x53445201, 1 << 29, ()),
    control.Clear(4, 16, 0x800040, 0x53445201, 1 << 29, ((1, (2, 3, 4), 5), (6, (7, 8, 9), 10))),
)


def controls() -> list[bytes]:
    """Each form of each control message, as a session may send it."""
    rig = _rig("csa_ud")
    bodies = [control_bodies.encode(message, CHUNK) for message in CONTROLS]
    bodies.append(struct.pack(">BIIIIBB", description.PACKET_TRIMMED, 1, 2, 3, 4, 5, 1))
    for body in bodies:
        rig.sides[0].endpoint.control(rig.sides[0].peer, body)
    rig.step_until(MILLISECOND_NS)
    left = [frame for _, side, frame in rig.pair.take_sent() if side == 0]
    return left[: len(bodies)]  # behind them it answers the other side


def hellos() -> list[bytes]:
    """Questions and answers of programs that agree on a transport, and of those that do not."""
    return [
        hello(version, answer, name)
        for version, answer in ((1, 0), (1, 1), (2, 255))
        for name in (b"rc", b"csa_ud", b"a_policy_with_24_letters")
    ]


def hello(version: int, answer: int, name: bytes) -> bytes:
    """One of them, as native/engine/rnic/greeter.hpp lays it out."""
    numbers = (version, answer, 2**63 + 1, 2**64 - 2, len(name))
    body = struct.pack(">BB3Q24s", *numbers, name)
    lab = frames.Lab(kind=description.CONTROL, message_id=3, length=len(body))
    return frames.Frame(
        lab=lab, destination_qp=frames.RECOVERY_QP, source_qp=frames.RECOVERY_QP, payload=body
    ).encode()


# ---------------------------------------------------------------- verbs


def connected(kind: int) -> list[bytes]:
    """Every operation of RC or UC, of one packet and of several, over a cable that loses some."""
    return _operations(Duo(kind, path_mtu=256, timeout=8), kind) + _refused(kind)


def _operations(duo: Duo, kind: int) -> list[bytes]:
    duo.pair.keep_sent()
    first, second = duo.sides
    sizes = (0, 3, 256, 700)
    for _ in range(3 * len(sizes)):
        second.post_receive((0, 1024))
    remote = {"remote_addr": second.address + 2048, "rkey": second.key}
    for size in sizes:
        first.post_send(SEND, (0, size), flags=SIGNALED | SOLICITED)
        first.post_send(SEND_IMM, (0, size), imm_data=IMMEDIATE)
        first.post_send(WRITE, (0, size), **remote)
        first.post_send(WRITE_IMM, (0, size), imm_data=IMMEDIATE, **remote)
    if kind == RC:
        _only_reliable(duo, remote)
    duo.run()
    quiet = sent(duo.pair)
    assert {each.status for side in duo.sides for each in side.completions} == {0}
    return quiet


def carried() -> list[bytes]:
    """Every operation of RC as striped messages, over a cable that loses some."""
    settings = registry.find("csa_ud").engine() | {"carries_operations": True}
    duo = Duo(RC, path_mtu=256, timeout=8, settings=settings)
    for here, there in (duo.sides, duo.sides[::-1]):
        here.endpoint.set_qkey(1)
        other = there.endpoint
        here.endpoint.connect(other.address, 0, other.data_qp, other.recovery_qp, 1)
    duo.both(loss=5 * PERCENT)
    return _operations(duo, RC)


def _only_reliable(duo: Duo, remote: dict[str, int]) -> None:
    first, second = duo.sides
    for size in (0, 5, 256, 600, 2000):
        first.post_send(READ, (4096, size), **remote)
    first.post_send(CMP_SWAP, (8192, 8), compare_add=2**64 - 1, swap=3, **remote)
    first.post_send(FETCH_ADD, (8192, 8), compare_add=2**63, **remote)
    for size in (8, 500):
        second.post_receive((0, 1024))
        key = second.endpoint.register_memory(second.address, 64, 1 | 2, 5)
        first.post_send(SEND_INV, (0, size), invalidate_rkey=key)


def _refused(kind: int) -> list[bytes]:
    """Packets lost, a receiver that is not ready, and a key that is wrong."""
    duo = Duo(kind, path_mtu=256, timeout=8, rnr_retry=1)
    duo.pair.keep_sent()
    duo.both(loss=5 * PERCENT)
    first, second = duo.sides
    remote = {"remote_addr": second.address, "rkey": second.key}
    for _ in range(4):
        first.post_send(WRITE, (0, 5000), **remote)
    duo.run()
    first.post_send(SEND, (0, 10))
    duo.run()
    return sent(duo.pair) + _wrong_key(kind)


def _wrong_key(kind: int) -> list[bytes]:
    duo = Duo(kind)
    duo.pair.keep_sent()
    first, second = duo.sides
    first.post_send(WRITE, (0, 10), remote_addr=second.address, rkey=second.key ^ 0xFF)
    duo.run()
    return sent(duo.pair)


def datagrams(*, ipv6: bool) -> list[bytes]:
    """SENDs over UD, with and without immediate data."""
    sender, peer = _sender(ipv6=ipv6)
    qp = sender.create_qp(UD)
    sender.to_rtr(qp, UD)
    sender.to_rts(qp, UD, psn=0xFFFFFE)
    return [
        frame
        for opcode in (SEND, SEND_IMM)
        for size in (0, 1, 2, 3, 64, 4096)
        for frame in _datagram(sender, qp, peer, opcode, bytes(range(256)) * 16, size)
    ]


def _sender(*, ipv6: bool) -> tuple[BareRnic, object]:
    ends = V6_ADDRESSES if ipv6 else ADDRESSES
    return BareRnic(ends[0], MACS[0]), address_vector(ends[1], MACS[1], traffic_class=2)


def _datagram(sender, qp, peer, opcode, data, size) -> list[bytes]:
    request = _native.SendRequest()
    request.opcode, request.send_flags, request.imm_data = opcode, SIGNALED, IMMEDIATE
    request.address, request.remote_qpn, request.remote_qkey = peer, 0x123456, 0x09ABCDEF
    sender.post_send(qp, request, data[:size])
    return sender.frames()


def of_sdk() -> list[bytes]:
    """Messages of the SDR SDK: data over UC, clears to send over RC. Two share a slot."""
    rig = Rig(slots=2)
    rig.pair.keep_sent()
    for number in range(3):
        receive = sdr.recv_post(rig.qps[1], rig.target, 0, LENGTH - number)
        sdr.send_post(rig.qps[0], rig.source, 0, LENGTH - number, immediate=IMMEDIATE)
        rig.run()
        sdr.recv_complete(receive)
    return sent(rig.pair)


# ---------------------------------------------------------------- connection management


def mads() -> list[tuple[str, bytes]]:
    """(kind, octets) of MADs as connections come about, fail and end."""
    return [(each.kind, each.octets) for wire in _conversations() for each in wire.sent]


def _conversations() -> Iterator[Wire]:
    wire = Wire()
    active, _ = wire.connected()
    wire.disconnect(active)
    wire.settle()
    wire.disconnect(wire.last(PASSIVE, "DISCONNECTED").id, PASSIVE)
    wire.settle()
    yield wire
    wire = Wire()
    wire.listen()
    wire.connect(private_data=b"please")
    wire.settle()
    wire.reject(wire.last(PASSIVE, "CONNECT_REQUEST").id, private_data=b"no")
    wire.settle()
    yield wire
    wire = Wire()
    wire.listen(space=UDP)
    wire.connect(space=UDP, private_data=b"who?")
    wire.settle()
    wire.accept(wire.last(PASSIVE, "CONNECT_REQUEST").id, qkey=5)
    wire.settle()
    yield wire


def management() -> list[bytes]:
    """The MADs in the frames of queue pair 1."""
    sends = [Send(way(each.side), each.octets) for wire in _conversations() for each in wire.sent]
    return [mad_port.frame_of(send, psn) for psn, send in enumerate(sends)]


ALL = {
    "csa_ud": lambda: striped("csa_ud", ipv6=False),
    "csa_ud over IPv6": lambda: striped("csa_ud", ipv6=True),
    "ud_rto": lambda: striped("ud_rto", ipv6=False),
    "irn": lambda: striped("irn", ipv6=False),
    "srnic": lambda: striped("srnic", ipv6=False),
    "rack_tlp": lambda: striped("rack_tlp", ipv6=False),
    "dcp": lambda: striped("dcp", ipv6=False),
    "ndp": lambda: striped("ndp", ipv6=False),
    "falcon": lambda: striped("falcon", ipv6=False),
    "uet_rud": lambda: striped("uet_rud", ipv6=False),
    "uet_rod": lambda: striped("uet_rod", ipv6=False),
    "mrc": lambda: striped("mrc", ipv6=False),
    "uccl": lambda: striped("uccl", ipv6=False),
    "sdr_sr": lambda: striped("sdr_sr", ipv6=False),
    "sdr_ec": lambda: striped("sdr_ec", ipv6=False),
    "sdr_auto": lambda: striped("sdr_auto", ipv6=False),
    "sdr_sr_nack": lambda: striped("sdr_sr_nack", ipv6=False),
    "sdr_sr over UC": lambda: over_uc(ipv6=False),
    "sdr_sr over UC and IPv6": lambda: over_uc(ipv6=True),
    "control messages": controls,
    "hellos": hellos,
    "SDR SDK": of_sdk,
    "RC": lambda: connected(RC),
    "RC over csa_ud": carried,
    "UC": lambda: connected(UC),
    "UD": lambda: datagrams(ipv6=False),
    "UD over IPv6": lambda: datagrams(ipv6=True),
    "CM": management,
}
