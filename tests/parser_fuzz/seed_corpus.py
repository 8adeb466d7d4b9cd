# SPDX-License-Identifier: GPL-2.0-or-later
"""Inputs to begin fuzzing with, made from what the checkout holds; their names are words."""

from __future__ import annotations

import json
import struct
from pathlib import Path

from scapy.utils import RawPcapReader

from softroce_lab import _native, paths, topology
from softroce_lab.dissect.description import (
    PACKET_ACK,
    PACKET_NACK,
    PACKET_PULL,
    PACKET_SACK,
    PACKET_TRIMMED,
)
from softroce_lab.fabric.ledger import planfile
from softroce_lab.telemetry.drops import DROP
from softroce_lab.transports import control
from tests import control_bodies
from tests.capture_builder import IF_NAME, IF_TSRESOL, Pcap, Pcapng
from tests.native.frames import Frame, Lab, Operation
from tests.programs.rdmacm.test_messages import captured
from tests.transports.pair_rig import CONTROL, PairRig, threshold
from tests.workloads.goal.texts import CROSSED, GRAMMAR, binomial_tree

_CAPTURES = Path(__file__).parents[1] / "captures"
_MOST_FRAME_BYTES = 400
COLUMNS = {
    "write_bw": (
        " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
        " 64         5000             2.00               1.50   \t\t   0.012345\n"
    ),
    "send_lat": (
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]"
        "    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n"
        " 64      1000          5.10           60.25        5.50     \t       6.00        "
        "\t1.25   \t\t9.75    \t\t60.25  \n"
    ),
}
"""What perftest 4.5 prints."""


def yaml_files(folder: Path) -> dict[str, bytes]:
    """Of the checkout."""
    return {path.stem: path.read_bytes() for path in sorted(folder.glob("*.yaml"))}


def live_words() -> dict[str, bytes]:
    """Such as docs/howto/fabric.md has them."""
    lines = [
        "leaf1->spine1 loss 1%",
        "'leaf*<->spine*' loss gemodel 1% 25% 50% 0.1% delay 10ms 2ms distribution normal",
        "* rate 200Mbit limit 100 ecn 30 trim",
        "h1:eth1 drop tail 1 iter 1 drop message 3 packet 0-2 iter 1,2",
        "spine1 reorder 1% gap 5 by 100us duplicate 0.5% corrupt 1e-3%",
        "leaf1<->* loss burst 1% 8 only data,control",
        "leaf2->spine2 loss periodic 100 3 5 opcode SEND_ONLY",
        "h2 down",
        "h2 up",
        "leaf1->h1 delay 10ms jitter 2ms reorder allow rate 1Gbit limit 64KiB",
    ]
    return {f"line-{n}": line.replace("'", "").encode() for n, line in enumerate(lines)}


def goal_files() -> dict[str, bytes]:
    """The ready ones, a program with all of the grammar, and one whose order must be changed."""
    written = {path.stem: path.read_bytes() for path in sorted(paths.WORKLOADS.glob("*.goal"))}
    texts = {"all": GRAMMAR, "crossed": CROSSED, "tree": binomial_tree(8)}
    return written | {name: text.encode() for name, text in texts.items()}


def _control_bodies() -> dict[str, bytes]:
    """What the policies say to each other on a cable that loses a fifth."""
    return {
        name: _reported(name, number) for number, name in enumerate(("csa_ud", "ud_rto", "sdr_sr"))
    }


def _reported(name: str, number: int) -> bytes:
    rig = PairRig(name, path_mtu=1024)
    rig.pair.keep_sent()
    for cable in rig.cables:
        cable.loss = threshold(0.2)
    for n in range(3):
        rig.transfer((1, 0, n), 30_000, sender=n % 2)
    rig.finish()
    sent = [(side, _native.decode_frame(frame, True)) for _, side, frame in rig.pair.take_sent()]
    found = [_framed(side, each["payload"][: each["length"]]) for side, each in sent
             if each["kind"] == CONTROL and each["payload"][0] != control.NACK]  # fmt: skip
    bodies = [
        control.Refused(0, (1, 0, 0), by_receiver=True, status=9),
        control.Rnr(0, (1, 0, 2)),
        control.Keepalive(((1, (1, 0, 1)),)),
    ]
    asked = [_framed(1, control_bodies.encode(each, 256)) for each in bodies]
    return b"".join([bytes([number]), *found[:17], *asked])


def _framed(side: int, body: bytes) -> bytes:
    return struct.pack(">H", (1 - side) << 15 | 1 << 14 | len(body)) + body


def mads() -> dict[str, bytes]:
    """What Linux's connection manager sent."""
    return {
        f"{name}-{choice}": b"".join(bytes([choice << 1]) + mad for mad in captured(name))
        for name in ("rxe_rc", "rxe_ud")
        for choice in range(3)
    }


def results() -> dict[str, bytes]:
    """What a monitor, a program of perftest, and a lab write."""
    drop = struct.pack("=QII", 5, 1, 2).ljust(DROP.itemsize, b"\1")
    counts = {"received": 9, "emulator_drops": 1, "injected_drops": 0, "wire": None}
    links = {"runs": {"csa_ud": [{"directed_link": 0, "name": "h1->leaf1", "sent": 10, **counts}]}}
    host = {
        "decision_lateness_ns": {"p50": 1, "p99": 2, "p100": 3},
        "timer_lateness_log2_ns": [0, 1, 2],
        "turn_length_log2_ns": [0, 1, 2],
    }
    ran = {
        "transport": "csa_ud", "processes": {"h1": host}, "emulator_drops": 0,
        "counters": {"h2": {"rx_duplicate": 0, "rx_no_recv": 0}},
    }  # fmt: skip
    same = {"verified": True, "sha256": {"sent": "ab", "received": "ab"}}
    manifest = {
        "source": "h1", "destination": "h2", "faults": [{"fault": "loss random 1%"}],
        "runs": [ran | same, ran | same],
    }  # fmt: skip
    seeds = {
        "drops": b"\0" + struct.pack("=8sII", b"LABDROP3", 16, DROP.itemsize) + 3 * drop,
        "run": b"\1" + json.dumps(manifest).encode() + b"\0" + json.dumps(links).encode(),
        "counters": b"\4" + _native.statistics(PairRig("csa_ud").sides[0].endpoint),
        "plan": b"\3" + planfile._text(topology.load("two-hosts")).encode(),
    }
    for number, (name, text) in enumerate(COLUMNS.items()):
        seeds[name] = bytes([2, number]) + text.encode()
    return seeds


def frames() -> dict[str, bytes]:
    """One frame of each opcode and IP version that Linux sent, the shortest."""
    kept: dict[str, bytes] = {}
    for path in sorted(_CAPTURES.glob("*.pcap")):
        with RawPcapReader(str(path)) as reader:
            for data, _ in reader:
                at = 62 if data[12:14] == b"\x86\xdd" else 42
                if data[at - 6 : at - 4] != b"\x12\xb7" or len(data) > _MOST_FRAME_BYTES:
                    continue
                name = f"ipv{4 if at == 42 else 6}-opcode-{data[at]:02x}"
                kept[name] = min(kept.get(name, bytes(data)), bytes(data), key=len)
    return kept


def lab_frames() -> dict[str, bytes]:
    """Frames with the lab's headers, of both versions."""
    operation = Operation(verb=0x84, receive=1, connection=2, remote_address=3, rkey=4, argument=5)
    of_version = {
        "message": Frame(lab=Lab(length=9), payload=b"some data"),
        "operation": Frame(lab=Lab(version=4), lab_operation=operation, payload=b"some data"),
        "operation-trimmed": Frame(lab=Lab(version=4, trimmed=1), lab_operation=operation),
    }
    made = {f"ipv4-{name}": frame.encode() for name, frame in of_version.items()}
    ends = {"source_ip": 0xFD << 120 | 1, "destination_ip": 0xFD << 120 | 2}
    return made | {f"ipv6-{name}": each.but(**ends).encode() for name, each in of_version.items()}


def datagrams() -> dict[str, bytes]:
    """A message that arrives whole, one with a hole and a report, and control messages."""
    report = struct.pack(">8I", 1, 2, 64, 100, 3, 1, 1, 8) + 8 * struct.pack(">IQ", 12, 3000)
    sack = control_bodies.encode(control.Sack(1, (1, 0, 1), None), 256)
    return {
        "whole": b"".join(map(_datagram, range(_PACKETS))),
        "hole": b"".join(_datagram(n) for n in range(_PACKETS) if n != 3),
        "trimmed": b"".join(_datagram(n, trimmed=1) for n in range(4)),
        "parity": b"".join(_datagram(n) for n in range(_PACKETS) if n not in (3, _PACKETS - 1))
        + _parity(0)
        + _parity(1),
        "parity-first": _parity(0)
        + _parity(3)
        + _parity(4)
        + _parity(0, code=3)
        + b"".join(_datagram(n) for n in range(_PACKETS))
        + _parity(1),
        "report": b"".join(_reported_to(1 | n << 2, _header(2) + report) for n in range(4)),
        "control": b"".join(_reported_to(1 | 4, _header(1) + sack) for _ in range(3)),
        "uc": b"".join(_write(index) for index in range(16)),
        "uc-late": b"".join(_write(index % 16, slot=index // 16) for index in range(48))
        + _write(3, generation=3)
        + _write(3),
        "uc-clear": _cleared() + _reported_to(0x11, _header(2) + report + 8 * b"\0\0\0\1"),
        "retransmit": _reported_to(0x20, struct.pack(">5I", 0, 1, 5, 18, 40))
        + _reported_to(0x34, b""),
    } | _operations()


_CHUNK, _MESSAGE = 256 - 40, 4000  # as in native/fuzz/datagrams.cpp
_PACKETS = -(-_MESSAGE // _CHUNK)


def _header(kind: int, index: int = 0, trimmed: int = 0, code: int = 0) -> bytes:
    """`struct lab_hdr` (xdp/lab_wire.h)."""
    name = (1, 0, 1, 1, index, code << 24 | _PACKETS, _MESSAGE, 5000, index // 4, 1000, 100)
    return struct.pack(">BBHHH7I2H", 3 << 4 | trimmed << 3 | kind, index % 4, 0, *name)


def _datagram(index: int, trimmed: int = 0) -> bytes:
    data = bytes(min(_CHUNK, _MESSAGE - index * _CHUNK))
    return _reported_to(0x14 if index % 4 == 0 else 0, _header(0, index, trimmed) + data)


def _parity(row: int, code: int = _PACKETS) -> bytes:
    """Parity of csa_ud."""
    index = _PACKETS + row
    return _reported_to(0x14, _header(4, index, code=code) + bytes(_CHUNK))


_WRITE, _SEND, _SEND_INVALIDATE, _READ, _FETCH_ADD = 1, 3, 5, 6, 8  # enum lab_verb
_OPERATION_CHUNK = 256 - 40 - 24
_REGION = {"address": 0x1000, "key": 0x700}  # as in native/fuzz/datagrams.cpp
_QP = 0x13


def _operations() -> dict[str, bytes]:
    """Operations of a reliable connection, as its peer sends them."""
    write = _operation(_WRITE, **_REGION)
    hole = _operation(_WRITE, skipped=(3, 20), **_REGION)
    packets = {
        "write": write + write,
        "write-hole": hole + _operation(_WRITE, 1, trimmed=1, **_REGION),
        "write-wrong-key": _operation(_WRITE, **_REGION | {"key": 0x701}) + write,
        "write-beyond": _operation(_WRITE, **_REGION | {"address": 0x1001}),
        "send": _operation(_SEND | 0x80) + _operation(_SEND, 1, receive=1),
        "send-invalidate": _operation(_SEND_INVALIDATE, length=9, argument=_REGION["key"]) + write,
        "read": _operation(_READ, length=0, receive=1, argument=4000, **_REGION),
        "add": _operation(_FETCH_ADD, length=16, receive=1, **_REGION),
        "result": _operation(_READ, kind=2),
        "result-short": _operation(_READ, kind=2, length=3000),
        "stale": _operation(_WRITE, connection=7, **_REGION) + write,
    }
    chosen = {name: _reported_to(0x60, b"") + each for name, each in packets.items()}
    return {f"operation-{name}": each for name, each in chosen.items()} | {"unwanted": write}


def _operation(
    verb: int,
    number: int = 0,
    *,
    kind: int = 1,
    length: int = _MESSAGE,
    skipped: tuple[int, ...] = (),
    trimmed: int = 0,
    receive: int = 0,
    connection: int = 0,
    address: int = 0,
    key: int = 0,
    argument: int = 0,
) -> bytes:
    """All packets of an operation's message. `kind`: 1 a request, 2 a result."""
    count = max(1, -(-length // _OPERATION_CHUNK))
    behind = struct.pack(">IIQII", verb << 24 | receive, connection, address, key, argument)
    found = b""
    for index in range(count):
        name = (kind << 8, _QP, number, number, index, count, length, 5000, 100 * number + index)
        header = struct.pack(">BBHHH7I2H", 4 << 4 | trimmed << 3, 0, 0, *name, 1000, 100)
        size = 0 if trimmed else min(_OPERATION_CHUNK, length - index * _OPERATION_CHUNK)
        if index not in skipped:
            found += _reported_to(0, header + behind + bytes(size))
    return found


def _write(index: int, slot: int = 0, generation: int = 0) -> bytes:
    """A UC WRITE of message `slot`, which is its number in the step, too."""
    user = slot >> index % 8 * 4 & 0xF
    immediate = slot << 22 | index << 4 | user
    data = bytes(min(256, _MESSAGE - index * 256))
    return _reported_to(
        0xC0, struct.pack(">BIB", generation * 16 + index % 16, immediate, 0) + data
    )


def _cleared() -> bytes:
    """The peer clears what the endpoint has to send."""
    receives = tuple((n, (1, 0, n), _MESSAGE) for n in range(3))
    body = control_bodies.encode(
        control.Clear(4, 16, 0x800000, 0x53445200, 256 << 18, receives), 216
    )
    name = (1, 1, 0, 1, len(body), 5000, 0, 1000, 100)  # message_id 1: for the engine
    return _reported_to(0x91, struct.pack(">BBHHH7I2H", 3 << 4 | 1, 0, 0, 0, 0, *name) + body)


def _reported_to(how: int, body: bytes) -> bytes:
    return struct.pack(">BH", how, len(body)) + body


def networks() -> dict[str, bytes]:
    """Inputs with losses of two messages, with payload and without."""
    bodies = {
        "ack": struct.pack(">BIII", PACKET_ACK, 0, 3, 0),
        "nack": struct.pack(">BIIII", PACKET_NACK, 0, 1, 0, 5),
        "sack": struct.pack(">BIIIIQ", PACKET_SACK, 0, 1, 0, 0, 0b110100),
        "trimmed": struct.pack(">BIIIIBB", PACKET_TRIMMED, 0, 1, 0, 5, 0, 1),
        "pull": struct.pack(">BI", PACKET_PULL, 3),
        "rnr": control_bodies.encode(control.Rnr(0, (1, 0, 0)), 256),
        "refused": control_bodies.encode(
            control.Refused(0, (1, 0, 0), by_receiver=True, status=9), 256
        ),
        "acknowledged": control_bodies.encode(control.Ack((0,)), 256),
    }
    there, back, later = bytes([8]), bytes([0]), bytes([5, 27])  # deliver; 0.13 ms go by
    changed = (bytes([12, field]) + struct.pack(">I", value) + back
               for field in range(13) for value in (0, 7, 1 << 31))  # fmt: skip
    deeds = {
        "whole": (there + back) * 100,
        "lossy": (3 * there + back + bytes([9, 3, 11, 10, 1]) + later) * 25,
        "tail": (there + back) * 148 + bytes([9, 9]) + there * 8 + later,  # of 2 x 75 packets
        "silent": (bytes([9, 9, 1]) + bytes([5, 32])) * 40,
        "changed": b"".join(changed),
        "posted": bytes([6, 2, 14, 2]) + (there + back) * 40 + bytes([6, 3]) + later + there * 40,
    } | {
        name: 3 * there + b"".join(bytes([kind, len(body)]) + body for kind in (7, 15)) + later
        for name, body in bodies.items()
    }
    return {
        f"{transport}-{payload}-{name}": bytes([how | setup]) + deed
        for how, transport in (
            (0, "irn"),
            (1, "srnic"),
            (0x20, "csa_ud"),
            (0x21, "rack_tlp"),
            (0x40, "falcon"),
            (0x41, "mrc"),
            (0x60, "uet_rud"),
            (0x61, "uet_rod"),
            (0x80, "dcp"),
            (0x81, "ndp"),
            (0xA0, "uccl"),
        )
        for setup, payload in ((0x18, "bytes"), (0x1E, "lengths"))
        for name, deed in deeds.items()
    }


def _cut_short(frames_: list[bytes]) -> bytes:
    """A pcap file of frames that a snap length cut, each at another byte."""
    pcap = Pcap()
    kept = ((each[: len(each) - 20 - 9 * n], each) for n, each in enumerate(frames_))
    return pcap.header() + b"".join(pcap.packet(0, cut, len(each)) for cut, each in kept)


def captures() -> dict[str, bytes]:
    """Each format that is read, with some of the frames that Linux sent."""
    some = [*frames().values()][:6]
    vlan = [frame[:12] + b"\x81\0\0\5" + frame[12:] for frame in some[:2]]
    return {
        "pcap-us": Pcap(nanoseconds=False).file(some),
        "pcap-lab": Pcap().file([*lab_frames().values()]),
        "pcap-lab-cut": _cut_short([*lab_frames().values()]),
        "pcap-ns-other-order": Pcap(">").file(some),
        "pcap-raw": Pcap(link_type=101).file([frame[14:] for frame in some]),
        "pcap-cooked": Pcap(link_type=113).file([bytes(14) + frame[12:] for frame in some]),
        "pcap-cooked-2": Pcap(link_type=276).file(
            [frame[12:14] + bytes(18) + frame[14:] for frame in some]
        ),
        "pcap-vlan": Pcap(nanoseconds=False).file(vlan),
        "pcapng": _pcapng(some[:4], "<"),
        "pcapng-packet-without-row": _contradiction(_pcapng(some[:2], "<")),
        "pcapng-other-order": _pcapng(some[4:], ">"),
        "pcapng-two-sections": _pcapng(some[:1], "<") + _pcapng(some[1:2], ">"),
    }


def _contradiction(data: bytes) -> bytes:
    """Of the last packet more is captured than its block holds."""
    at = data.rindex(struct.pack("<I", 6)) + 20
    return data[:at] + struct.pack("<I", 60_000) + data[at + 4 :]


def conversations() -> dict[str, bytes]:
    """Frames that belong together: Linux's with losses, and two policies' on a bad cable."""
    some = {}
    for name in ("rxe_verbs_nak", "rxe_verbs_loss", "rxe_ud"):
        with RawPcapReader(str(_CAPTURES / f"{name}.pcap")) as reader:
            short = [bytes(data) for data, _ in reader if len(data) <= 200]
        some[name] = Pcap().file(short[:60])
    for name in ("csa_ud", "ud_rto"):
        some[name] = Pcap().file(_output(name))
    return some


def _output(name: str) -> list[bytes]:
    rig = PairRig(name, path_mtu=256)
    rig.pair.keep_sent()
    for cable in rig.cables:
        cable.loss = threshold(0.2)
    for n in range(3):
        rig.transfer((1, 0, n), 1500, sender=n % 2)
    rig.finish()
    return [frame for _, _, frame in rig.pair.take_sent()]


def _pcapng(some: list[bytes], order: str) -> bytes:
    """Two interfaces, comments, a simple packet, statistics, and a block that nobody knows."""
    ng = Pcapng(order)
    out = ng.section()
    for name, resolution in ((b"h1->leaf1", 9), (b"leaf1->h1", 0x8A)):
        out += ng.interface((IF_NAME, name), (IF_TSRESOL, bytes([resolution])), snap=128)
    for number, frame in enumerate(some):
        out += ng.enhanced(77, frame, b"dropped: rule x", interface=number % 2)
    out += ng.simple(some[0][:128], length=len(some[0])) + ng.block(0x0BAD, b"whatever")
    return out + ng.statistics(0, received=9, dropped=1)


MAKERS = {
    "topology": lambda: yaml_files(paths.TOPOLOGIES),
    "faults": lambda: yaml_files(paths.FAULTS),
    "live": live_words,
    "goal": goal_files,
    "control": _control_bodies,
    "cm": mads,
    "results": results,
    "codec": lambda: frames() | lab_frames(),
    "datagrams": datagrams,
    "packet-transports": networks,
    "capture-reader": captures,
    "captures": lambda: captures() | conversations(),
}
