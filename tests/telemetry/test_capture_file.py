# SPDX-License-Identifier: GPL-2.0-or-later
"""Captures of every kind, whole and broken, beside scapy's readers and frames made by hand."""

import dataclasses
import ipaddress
import itertools
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scapy.utils import RawPcapNgReader, RawPcapReader

from softroce_lab import _native
from softroce_lab.errors import UserError
from softroce_lab.telemetry import capture_file
from softroce_lab.telemetry.capture_file import Interface
from softroce_lab.telemetry.packets import PACKET, Has, Kind
from tests import capture_builder
from tests.capture_builder import IF_NAME, IF_TSOFFSET, IF_TSRESOL, Pcap, Pcapng
from tests.native.frames import CAPTURES, CONTROL, PARITY, Frame, Lab, Operation, flip
from tests.native.opcodes import IB, OPCODES, frame_of, one_packet

ROOT = Path(__file__).parents[2]
ALL = pytest.mark.parametrize("opcode", OPCODES.values(), ids=lambda each: each.name)
ORDERS = pytest.mark.parametrize("order", ["<", ">"], ids=["little", "big"])
NAMES = ("rxe_verbs_loss_new", "rxe_verbs_uc_ud", "rxe_ip6", "rxe_ud")

LAB = Lab(kind=CONTROL, path=3, attempt=1, operation=4, step=5, message=6, message_id=7, index=8,
          count=9, length=10, stamp_ns=11, epoch=12, number=13, srtt=14, rttvar=15)  # fmt: skip
OURS = Frame(lab=LAB, payload=b"some data").encode()
PLAIN = Frame(payload=b"other").encode()
ARP = bytes(12) + b"\x08\x06" + bytes(28)


@pytest.fixture
def read(tmp_path):
    """Reads a file of these bytes."""

    def read_bytes(content):
        path = tmp_path / "capture"
        path.write_bytes(content)
        return capture_file.read(path)

    return read_bytes


def one(capture):
    """The only row."""
    (row,) = capture.packets
    return row


def output(capture):
    """Each note without the place in the file: (what, count, first)."""
    return [(note.what.partition(" (at byte")[0], note.count, note.first) for note in capture.notes]


def kinds(capture):
    return [Kind(kind) for kind in capture.packets["kind"]]


def gid(address):
    return int(
        ipaddress.ip_address(
            address if address >> 32 else f"::ffff:{address >> 16:x}:{address & 0xFFFF:x}"
        )
    )


# ---------------------------------------------------------------- rows


HEADER_FIELDS = {  # of a row -> Wireshark's
    "traffic_class": ("ip.dsfield", "ipv6.tclass"),
    "hop_limit": ("ip.ttl", "ipv6.hlim"),
    "source_port": ("udp.srcport",),
    "opcode": (IB + "bth.opcode",),
    "pkey": (IB + "bth.p_key",),
    "destination_qp": (IB + "bth.destqp",),
    "psn": (IB + "bth.psn",),
    "qkey": (IB + "deth.q_key",),
    "source_qp": (IB + "deth.srcqp",),
    "rkey": (IB + "reth.r_key", IB + "atomiceth.r_key", IB + "ieth"),
    "remote_address": (IB + "reth.va", IB + "atomiceth.va"),
    "dma_length": (IB + "reth.dmalen",),
    "swap_or_add": (IB + "atomiceth.swapdt",),
    "compare": (IB + "atomiceth.cmpdt",),
    "syndrome": (IB + "aeth.syndrome",),
    "msn": (IB + "aeth.msn",),
    "original": (IB + "atomicacketh.origremdt",),
    "immediate": (IB + "immdt",),
}
HAS_OF_EXTENSION = {
    "deth": Has.DETH,
    "reth": Has.RETH,
    "atomiceth": Has.ATOMIC_ETH,
    "aeth": Has.AETH,
    "atomicacketh": Has.ATOMIC_ACK,
    "immdt": Has.IMMEDIATE,
    "ieth": Has.IETH,
    "cnp": Has(0),
}
ALWAYS = Has.WHOLE | Has.ICRC_CHECKED | Has.ICRC_GOOD | Has.PAYLOAD_HASH | Has.STAMPED


@ALL
def test_a_row_has_every_field_of_every_opcode(read, opcode):
    ipv6 = opcode.number % 2 == 1
    fields = one_packet(opcode, ipv6=ipv6)
    frame = frame_of(fields)
    row = one(read(Pcap().file([frame], begin_ns=5)))
    assert (row["kind"], row["number"], row["time_ns"], row["interface"]) == (Kind.ROCE, 1, 5, 0)
    assert (row["captured"], row["length"], row["comment"]) == (len(frame), len(frame), -1)
    for name, theirs in HEADER_FIELDS.items():
        assert row[name] == next((fields[each] for each in theirs if each in fields), 0), name
    extensions = (HAS_OF_EXTENSION[name] for name in opcode.extensions)
    has = ALWAYS | (Has.IPV6 if ipv6 else Has(0))
    for extension in extensions:
        has |= extension
    assert Has(int(row["has"])) == has
    assert row["bth_flags"] == 31  # one_packet sets them all
    ends = ("ipv6.src", "ipv6.dst") if ipv6 else ("ip.src", "ip.dst")
    for name, end in zip(("source", "destination"), ends, strict=True):
        assert int.from_bytes(bytes(row[name])) == gid(fields[end])
    assert row["icrc"] == int.from_bytes(frame[-4:], "little")


@ALL
def test_the_payload_is_found(read, opcode):
    for length in (0, 1, 2, 3, 4, 33, 1024) if opcode.payload else (0,):
        payload = bytes(range(256)) * 4
        frame = frame_of(one_packet(opcode, payload[:length]))
        capture = read(Pcap().file([frame]))
        row = one(capture)
        pad = -length % 4
        assert (row["payload_bytes"], row["pad"]) == (length, pad)
        assert row["payload_at"] == len(frame) - 4 - pad - length
        assert capture.payload(1) == payload[:length]
        assert row["payload_hash"] == _native.xxh64(payload[:length])
        assert capture.frame(1) == frame


def test_the_header_of_the_lab(read):
    capture = read(Pcap().file([OURS]))
    row = one(capture)
    assert Has(int(row["has"])) & (Has.LAB | Has.TRIMMED) == Has.LAB
    for field in ("kind", "path", "attempt", "operation", "step", "message", "message_id", "index",
                  "count", "length", "stamp_ns", "epoch", "number"):  # fmt: skip
        assert row[f"lab_{field}"] == getattr(LAB, field), field
    assert (row["lab_srtt_ns"], row["lab_rttvar_ns"]) == (14, 15)
    assert (row["payload_bytes"], row["pad"], capture.payload(1)) == (9, 3, b"some data")
    assert row["payload_hash"] == _native.xxh64(b"some data")


OPERATION = Operation(verb=0x84, receive=2**24 - 1, connection=3, remote_address=2**64 - 5,
                      rkey=6, argument=7)  # fmt: skip
OF_AN_OPERATION = Frame(
    lab=dataclasses.replace(LAB, version=4, kind=PARITY),
    lab_operation=OPERATION,
    payload=b"some data",
)


def test_an_operation(read):
    capture = read(Pcap().file([OF_AN_OPERATION.encode(), OURS, PLAIN]))
    row, message, plain = capture.packets
    assert Has(int(row["has"])) & (Has.LAB | Has.OPERATION) == Has.LAB | Has.OPERATION
    for field in ("verb", "receive", "connection", "remote_address", "rkey", "argument"):
        assert row[f"lab_{field}"] == getattr(OPERATION, field), field
        assert message[f"lab_{field}"] == plain[f"lab_{field}"] == 0, field
    for field in ("message", "index", "number", "epoch"):
        assert row[f"lab_{field}"] == getattr(LAB, field), field
    assert (row["remote_address"], row["rkey"], row["immediate"]) == (0, 0, 0)
    assert not (message["has"] | plain["has"]) & Has.OPERATION
    assert (row["payload_bytes"], row["pad"], capture.payload(1)) == (9, 3, b"some data")
    assert row["payload_hash"] == _native.xxh64(b"some data")


def test_a_trimmed_packet_of_an_operation(read):
    trimmed = OF_AN_OPERATION.but(trimmed=1, payload=b"", kind=0)
    row = one(read(Pcap().file([trimmed.encode()])))
    assert Has(int(row["has"])) & Has.TRIMMED
    assert (row["lab_remote_address"], row["payload_bytes"]) == (2**64 - 5, 0)


@pytest.mark.parametrize("captured", range(62, 62 + 40 + 24 + 12))
def test_an_operation_that_the_snap_length_cut(read, captured):
    """Of a header that does not reach to its end nothing is told, but that it was cut."""
    frame, pcap = OF_AN_OPERATION.encode(), Pcap()
    row = one(read(pcap.header() + pcap.packet(0, frame[:captured], len(frame))))
    is_there = captured >= 62 + 40 + 24
    assert bool(row["has"] & Has.OPERATION) == bool(row["has"] & Has.LAB) == is_there
    is_known_as_ours = captured >= 62 + 2
    assert row["kind"] == (Kind.ROCE if is_there or not is_known_as_ours else Kind.SHORT)


@pytest.mark.parametrize(
    "frame",
    [
        Frame(lab=Lab(version=1), payload=b"x"),
        Frame(lab=Lab(version=4), payload=bytes(23)),
        Frame(lab=Lab(version=4), payload=bytes(24)),
        Frame(lab=Lab(version=4, kind=CONTROL), payload=OPERATION.encode()),
        Frame(lab=Lab(kind=5)),
        Frame(lab=Lab(path=3), source_port=0xC004),
        Frame(payload=b"\x20" + bytes(38)),
    ],
    ids=["version", "operation cut", "no verb", "control", "kind", "path", "short"],
)
def test_payloads_that_only_look_like_the_header_of_the_lab(read, frame):
    encoded = frame.encode()
    capture = read(Pcap().file([encoded]))
    row = one(capture)
    assert row["kind"] == Kind.ROCE
    assert not row["has"] & Has.LAB
    assert row["payload_at"] == 62
    assert capture.payload(1) == (frame.lab.encode() if frame.lab else b"") + frame.payload


def test_a_trimmed_packet(read):
    row = one(read(Pcap().file([Frame(lab=Lab(trimmed=1, length=5000)).encode()])))
    assert row["has"] & Has.TRIMMED
    assert row["payload_bytes"] == 0


@pytest.mark.parametrize("name", NAMES)
def test_captures_of_linux_beside_scapy_and_the_codec(name):
    capture = capture_file.read(CAPTURES / f"{name}.pcap")
    with RawPcapReader(str(CAPTURES / f"{name}.pcap")) as reader:
        theirs = list(reader)
    assert capture.notes == ()
    assert len(capture.packets) == len(theirs)
    for row, (frame, meta) in zip(capture.packets, theirs, strict=True):
        assert Has(int(row["has"])) & ALWAYS == ALWAYS
        assert row["time_ns"] == meta.sec * 10**9 + meta.usec * 1000
        assert (row["captured"], row["length"]) == (len(frame), meta.wirelen)
        assert capture.frame(int(row["number"])) == frame
        fields = _native.decode_frame(frame)
        assert capture.payload(int(row["number"])) == fields["payload"]
        for mine, names in HEADER_FIELDS.items():
            assert row[mine] == next((fields[each] for each in names if each in fields), 0)


# ---------------------------------------------------------------- what is no good RoCEv2


def test_a_wrong_icrc(read):
    capture = read(Pcap().file([flip(PLAIN, 8 * len(PLAIN) - 1), PLAIN, flip(PLAIN, 8 * 63)]))
    assert kinds(capture) == [Kind.ROCE] * 3
    good = capture.packets["has"] & (Has.ICRC_CHECKED | Has.ICRC_GOOD)
    assert good.tolist() == [Has.ICRC_CHECKED, Has.ICRC_CHECKED | Has.ICRC_GOOD, Has.ICRC_CHECKED]


@pytest.mark.parametrize(
    ("frame", "refusal"),
    [
        (Frame(opcode=0x63), "no such opcode or transport version"),
        (Frame(flags=1), "no such opcode or transport version"),
        (Frame(opcode=0x11, payload=bytes(4)), "a payload that the opcode does not have"),
        (Frame(opcode=0x13), "lengths that contradict each other"),
    ],
    ids=["opcode", "version", "payload", "length"],
)  # fmt: skip
def test_malformed_packets_keep_what_can_be_read(read, frame, refusal):
    capture = read(Pcap().file([PLAIN, frame.but(psn=77).encode(), PLAIN]))
    assert kinds(capture) == [Kind.ROCE, Kind.MALFORMED, Kind.ROCE]
    row = capture.packets[1]
    assert capture.refusals[row["refusal"]].startswith(refusal)
    assert (row["psn"], row["opcode"]) == (77, frame.opcode)
    assert row["has"] & Has.ICRC_GOOD
    assert output(capture) == [("malformed RoCEv2 packets", 1, 2)]
    assert capture.payload(2) == b""


def test_padding_of_a_frame_is_not_of_the_packet(read):
    row = one(read(Pcap().file([PLAIN + bytes(9)])))
    assert (row["kind"], row["payload_bytes"]) == (Kind.ROCE, 5)
    assert row["has"] & Has.ICRC_GOOD


FRAGMENT = PLAIN[:20] + b"\x20\x00" + PLAIN[22:]
V6 = frame_of(one_packet(OPCODES[0x04], ipv6=True))
OTHER_PORT = PLAIN[:36] + b"\x12\xb8" + PLAIN[38:]
OTHERS = {
    "arp": (ARP, "frames that are not RoCEv2"),
    "another port": (OTHER_PORT, "frames that are not RoCEv2"),
    "a runt": (b"\xff" * 9, "frames that are not RoCEv2"),
    "empty": (b"", "frames that are not RoCEv2"),
    "tcp": (PLAIN[:23] + b"\x06" + PLAIN[24:], "frames that are not RoCEv2"),
    "options": (PLAIN[:14] + b"\x46" + PLAIN[15:], "frames that are not RoCEv2"),
    "IPv6 by its type": (PLAIN[:12] + b"\x86\xdd" + PLAIN[14:], "frames that are not RoCEv2"),
    "a fragment": (FRAGMENT, "fragments of IP packets, which are not put together"),
    "an IPv6 fragment": (
        V6[:20] + b"\x2c" + V6[21:],
        "fragments of IP packets, which are not put together",
    ),
    "RoCEv1": (ARP[:12] + b"\x89\x15" + bytes(60), "frames of RoCEv1, which is not read"),
}


@pytest.mark.parametrize("frame", [frame for frame, _ in OTHERS.values()], ids=OTHERS)
def test_other_frames_are_counted(read, frame):
    capture = read(Pcap().file([PLAIN, frame, frame]))
    assert kinds(capture) == [Kind.ROCE, Kind.OTHER, Kind.OTHER]
    assert output(capture) == [(dict(OTHERS.values())[frame], 2, 2)]
    assert capture.payload(2) == b""
    assert capture.frame(2) == frame


# ---------------------------------------------------------------- snap lengths


@ALL
def test_every_snap_length(read, opcode):
    ipv6 = opcode.number % 2 == 0
    fields = one_packet(opcode, bytes(100) if opcode.payload else b"", ipv6=ipv6)
    frame = frame_of(fields)
    pcap = Pcap()
    cuts = range(len(frame) + 1)
    packets = b"".join(pcap.packet(0, frame[:cut], len(frame)) for cut in cuts)
    capture = read(pcap.header() + packets)
    ports = 14 + (40 if ipv6 else 20) + 8
    headers = ports + 12 + opcode.extension_bytes
    expected = [Kind.OTHER] * ports + [Kind.SHORT] * (headers - ports)
    assert kinds(capture) == expected + [Kind.ROCE] * (len(frame) + 1 - headers)
    for row, cut in zip(capture.packets, cuts, strict=True):
        has = Has(int(row["has"]))
        assert (Has.WHOLE in has, Has.ICRC_GOOD in has) == (cut == len(frame),) * 2
        # The base header tells these, whatever else was cut off.
        read_base = cut >= ports + 12
        assert row["psn"] == (fields[IB + "bth.psn"] if read_base else 0)
        if row["kind"] == Kind.ROCE:
            assert row["payload_bytes"] == (100 if opcode.payload else 0)
            assert len(capture.payload(int(row["number"]))) == min(
                row["payload_bytes"], cut - headers
            )
            assert (Has.PAYLOAD_HASH in has) == (cut - headers >= row["payload_bytes"])
    cut_early, cut_headers, cut_payload = capture.notes
    assert "too little was captured" in cut_early.what
    assert (cut_early.count, cut_early.first) == (ports, 1)
    assert "without all of their headers" in cut_headers.what
    assert (cut_headers.count, cut_headers.first) == (headers - ports, ports + 1)
    assert "not captured to their end" in cut_payload.what
    assert (cut_payload.count, cut_payload.first) == (len(frame) - headers, headers + 1)


def test_a_cut_header_of_the_lab_is_a_header_cut_off(read):
    pcap = Pcap()
    cuts = {62: Kind.ROCE, 63: Kind.ROCE, 64: Kind.SHORT, 101: Kind.SHORT, 102: Kind.ROCE}
    packets = (pcap.packet(0, OURS[:cut], len(OURS)) for cut in cuts)
    capture = read(pcap.header() + b"".join(packets))
    assert kinds(capture) == list(cuts.values())
    assert [bool(has & Has.LAB) for has in capture.packets["has"]] == [False] * 4 + [True]


def test_more_captured_than_there_was(read):
    pcap = Pcap()
    capture = read(pcap.header() + pcap.packet(0, PLAIN, 60))
    assert (one(capture)["kind"], one(capture)["length"]) == (Kind.ROCE, len(PLAIN))
    assert output(capture) == [("packets with more bytes captured than they had", 1, 1)]


# ---------------------------------------------------------------- link layers

IP = PLAIN[14:]
TYPE = b"\x08\x00"
LINKS = {
    "vlan": (1, PLAIN[:12] + b"\x81\x00\x00\x05" + TYPE),
    "qinq": (1, PLAIN[:12] + b"\x88\xa8\x00\x05\x81\x00\x00\x06" + TYPE),
    "old qinq": (1, PLAIN[:12] + b"\x91\x00\x00\x05\x81\x00\x00\x06" + TYPE),
    "null": (0, b"\x02\x00\x00\x00"),
    "loop": (108, b"\x00\x00\x00\x02"),
    "raw": (101, b""),
    "raw of bsd": (12, b""),
    "raw of openbsd": (14, b""),
    "ipv4": (228, b""),
    "cooked": (113, bytes(14) + TYPE),
    "cooked vlan": (113, bytes(14) + b"\x81\x00\x00\x05" + TYPE),
    "cooked 2": (276, TYPE + bytes(18)),
}


@pytest.mark.parametrize(("link_type", "link"), LINKS.values(), ids=LINKS)
def test_link_layers(read, link_type, link):
    capture = read(Pcap(link_type=link_type).file([link + IP]))
    row = one(capture)
    assert (row["kind"], row["psn"], row["opcode"]) == (Kind.ROCE, 0, 0x64)
    assert row["has"] & Has.ICRC_GOOD
    tagged = any(tag in link for tag in (b"\x81\x00", b"\x88\xa8"))
    assert bool(row["has"] & Has.VLAN) == tagged
    vlan = [("frames with VLAN tags, which were stepped over", 1, 1)]
    assert output(capture) == (vlan if tagged else [])
    assert (capture.payload(1), capture.frame(1)) == (b"other", link + IP)


def test_a_link_type_that_is_not_read(read):
    capture = read(Pcap(link_type=147).file([PLAIN, PLAIN]))
    assert kinds(capture) == [Kind.OTHER] * 2
    what = "packets of an interface whose link type is not read"
    assert output(capture) == [(what, 2, 1)]
    assert capture.interfaces[0].link_type == 147


def test_a_link_type_with_a_frame_check_sequence(read):
    capture = read(Pcap(link_type=2 << 28 | 1 << 26 | 1).file([PLAIN + b"\1\2\3\4"]))
    assert kinds(capture) == [Kind.ROCE]
    assert one(capture)["has"] & Has.ICRC_GOOD


# ---------------------------------------------------------------- pcap


@ORDERS
@pytest.mark.parametrize("nanoseconds", [False, True], ids=["us", "ns"])
def test_pcap_in_all_its_variants(read, tmp_path, order, nanoseconds):
    pcap = Pcap(order, nanoseconds, snap=65535)
    capture = read(pcap.file([PLAIN, OURS], begin_ns=4_000_000_000_123_456_000))
    assert capture.interfaces == (Interface(None, 1, 65535, None, None),)
    assert capture.packets["time_ns"].tolist() == [
        4_000_000_000_123_456_000,
        4_000_000_000_123_457_000,
    ]
    assert (capture.frame(1), capture.frame(2)) == (PLAIN, OURS)
    with RawPcapReader(str(capture.path)) as reader:
        assert [frame for frame, _ in reader] == [PLAIN, OURS]


def test_a_pcap_record_that_cannot_be(read):
    pcap = Pcap()
    broken = pcap.packet(0, b"")[:8] + struct.pack("<II", 0x7FFFFFFF, 60)
    capture = read(pcap.file([PLAIN]) + broken + pcap.packet(0, PLAIN))
    assert kinds(capture) == [Kind.ROCE]
    (note,) = capture.notes
    at = 24 + 16 + len(PLAIN)
    assert note.what.endswith(f"the rest of the file was not read (at byte {at})")
    assert (note.count, note.first) == (1, 1)


# ---------------------------------------------------------------- pcapng


def big_file(order):
    """All that is read of a section, and some that is not."""
    ng = Pcapng(order)
    return b"".join(
        (
            ng.section(),
            ng.interface((IF_NAME, b"leaf1->spine1"), (IF_TSRESOL, b"\x09"), snap=128),
            ng.block(capture_builder.NAMES, b"\0\0\0\0"),
            ng.enhanced(1_000_000_000_000_000_001, PLAIN, b"dropped: gemodel bad, rule x"),
            ng.interface((IF_NAME, "sp\u00efne".encode()), link_type=101),
            ng.enhanced(1_000_000_000_000_002, IP, interface=1),
            ng.block(0x1234, b"whatever"),
            ng.simple(PLAIN),
            ng.obsolete(1_000_000_000_000_000_003, OURS),
            ng.enhanced(1_000_000_000_000_000_004, PLAIN[:70], b"one", b"two", length=len(PLAIN)),
            ng.statistics(0, received=50, dropped=3),
        )
    )


@ORDERS
def test_pcapng_with_everything(read, order):
    capture = read(big_file(order))
    assert capture.interfaces == (
        Interface("leaf1->spine1", 1, 128, 50, 3),
        Interface("sp\u00efne", 101, 0, None, None),
    )
    assert kinds(capture) == [Kind.ROCE] * 5
    assert capture.packets["number"].tolist() == [1, 2, 3, 4, 5]
    assert capture.packets["interface"].tolist() == [0, 1, 0, 0, 0]
    begin = 10**18
    assert capture.packets["time_ns"].tolist() == [begin + 1, begin + 2000, 0, begin + 3, begin + 4]
    stamped = (capture.packets["has"] & Has.STAMPED).astype(bool)
    assert stamped.tolist() == [True, True, False, True, True]
    comments = [None if i < 0 else capture.comments[i] for i in capture.packets["comment"]]
    assert comments == ["dropped: gemodel bad, rule x", None, None, None, "one\ntwo"]
    assert [capture.frame(n) for n in range(1, 6)] == [PLAIN, IP, PLAIN, OURS, PLAIN[:70]]
    assert output(capture) == [
        ("blocks of unknown kind, left out", 1, 2),
        ("packets without a time", 1, 3),
        ("RoCEv2 packets that were not captured to their end: their ICRC cannot be checked", 1, 5),
    ]


def test_the_hand_made_pcapng_is_one_for_scapy_too(tmp_path):
    for order in "<>":
        path = tmp_path / "capture.pcapng"
        path.write_bytes(big_file(order))
        with RawPcapNgReader(str(path)) as reader:
            theirs = [(bytes(frame), meta) for frame, meta in reader]
        assert [frame for frame, _ in theirs] == [PLAIN, IP, PLAIN, OURS, PLAIN[:70]]
        assert theirs[0][1].tshigh << 32 | theirs[0][1].tslow == 10**18 + 1
        assert theirs[0][1].ifname == b"leaf1->spine1"


def test_sections_of_either_byte_order_have_interfaces_of_their_own(read):
    little, big = big_file("<"), big_file(">")
    capture = read(little + big)
    assert len(capture.interfaces) == 4
    assert capture.packets["interface"].tolist() == [0, 1, 0, 0, 0, 2, 3, 2, 2, 2]
    assert [capture.frame(n) for n in range(1, 6)] == [capture.frame(n) for n in range(6, 11)]
    assert len(capture.comments) == 2


RESOLUTIONS = {  # if_tsresol, ticks -> nanoseconds
    (6, 1_700_000_000_123_456): 1_700_000_000_123_456_000,
    (0, 1_700_000_000): 1_700_000_000_000_000_000,
    (3, 5): 5_000_000,
    (12, 1_700_000_000_000_000_000): 1_700_000_000_000_000,
    (127, 2**64 - 1): 0,
    (0x80, 3): 3_000_000_000,
    (0x80 | 32, 3 << 31): 1_500_000_000,
    (0x80 | 64, 2**63): 500_000_000,
    (0x80 | 127, 2**64 - 1): 0,
}


@pytest.mark.parametrize(("resolution", "ticks"), RESOLUTIONS)
@pytest.mark.parametrize("offset_s", [0, 100])
def test_resolutions_and_offsets_of_time(read, resolution, ticks, offset_s):
    ng = Pcapng()
    options = (IF_TSRESOL, bytes((resolution,))), (IF_TSOFFSET, struct.pack("<q", offset_s))
    row = one(read(ng.section() + ng.interface(*options) + ng.enhanced(ticks, PLAIN)))
    assert row["time_ns"] == RESOLUTIONS[resolution, ticks] + offset_s * 10**9
    assert row["has"] & Has.STAMPED


@pytest.mark.parametrize(("ticks", "offset_s"), [(1, -1), (2**64 - 1, 0), (0, 2**63 - 1)])
def test_times_that_do_not_fit(read, ticks, offset_s):
    ng = Pcapng()
    offset = (IF_TSOFFSET, struct.pack("<q", offset_s))
    capture = read(ng.section() + ng.interface(offset) + ng.enhanced(ticks, PLAIN))
    assert not one(capture)["has"] & Has.STAMPED
    assert output(capture) == [
        ("packets with a time beyond 64 bits of nanoseconds since 1970", 1, 1)
    ]


def test_time_that_goes_back_on_an_interface(read):
    ng = Pcapng()
    capture = read(
        ng.file(ng.interface(), ng.enhanced(9, PLAIN), ng.enhanced(0, PLAIN, interface=1),
                ng.enhanced(8, PLAIN), ng.enhanced(9, PLAIN))
    )  # fmt: skip
    what = "packets with a time before that of the packet ahead of them on their interface"
    assert output(capture) == [(what, 1, 3)]


def test_a_simple_packet_is_cut_at_the_snap_length(read):
    ng = Pcapng()
    simple = ng.simple(OURS[:70], length=len(OURS))
    row = one(read(ng.section() + ng.interface(snap=70) + simple))
    assert (row["captured"], row["length"]) == (70, len(OURS))


LEFT_OUT = {
    "no such interface": (Pcapng().enhanced(0, PLAIN, interface=1), "packets of interfaces that"),
    "more than the block": (
        Pcapng().block(6, struct.pack("<IIIII", 0, 0, 0, 400, 400) + PLAIN),
        "blocks that contradict themselves",
    ),
    "other trailer": (Pcapng().enhanced(0, PLAIN)[:-4] + b"\x10\0\0\0", "blocks that contradict"),
    "short": (Pcapng().block(6, bytes(16)), "blocks that contradict themselves"),
    "huge": (
        struct.pack("<II", 6, (17 << 20) + 12) + bytes((17 << 20) + 4),
        "blocks of more than 16 MiB",
    ),
}


@pytest.mark.parametrize(("block", "what"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_packets_that_are_left_out_still_have_a_number(read, block, what):
    ng = Pcapng()
    capture = read(ng.file(ng.enhanced(0, PLAIN), block, ng.enhanced(0, OURS)))
    assert capture.packets["number"].tolist() == [1, 3]
    assert (capture.frame(1), capture.frame(3)) == (PLAIN, OURS)
    (note,) = capture.notes
    assert note.what.startswith(what)
    assert (note.count, note.first) == (1, 2)
    with pytest.raises(KeyError):
        capture.frame(2)
    with pytest.raises(KeyError):
        capture.payload(4)


@pytest.mark.parametrize(
    ("tail", "what"),
    [
        (struct.pack("<II", 6, 33), "what follows is neither packet nor block"),
        (struct.pack("<II", 99, 8), "what follows is neither packet nor block"),
        (struct.pack("<IIIHHq", 0x0A0D0D0A, 28, 0x1A2B3C4D, 2, 0, -1), "a section of unknown"),
        (struct.pack("<IIIHHq", 0x0A0D0D0A, 28, 0x55555555, 1, 0, -1), "a section of unknown"),
    ],
    ids=["uneven", "tiny", "version", "byte order"],
)
def test_where_a_pcapng_cannot_be_read_on(read, tail, what):
    ng = Pcapng()
    capture = read(ng.file(ng.enhanced(0, PLAIN)) + tail + bytes(20) + ng.enhanced(0, PLAIN))
    assert kinds(capture) == [Kind.ROCE]
    (note,) = capture.notes
    assert note.what.startswith(what)


def test_text_that_is_not_utf_8(read):
    ng = Pcapng()
    content = ng.section() + ng.interface((IF_NAME, b"\xff")) + ng.enhanced(0, PLAIN, b"\xfe!")
    capture = read(content)
    assert (capture.interfaces[0].name, capture.comments) == ("\ufffd", ("\ufffd!",))


def test_rows_may_be_taken_while_the_file_is_fed():
    reader = _native.CaptureReader()
    content = big_file("<")
    pieces = [content[at : at + 100] for at in range(0, len(content), 100)]
    numbers = []
    for piece in pieces:
        reader.feed(piece)
        numbers.append(reader.take_packets().view(PACKET).reshape(-1)["number"].tolist())
    reader.finish()
    assert list(itertools.chain(*numbers)) == [1, 2, 3, 4, 5]
    assert max(map(len, numbers)) < 5


# ---------------------------------------------------------------- files cut off, or none at all


def test_a_pcap_that_ends_anywhere(read):
    content = Pcap().file([PLAIN, OURS])
    first, second = 24 + 16 + len(PLAIN), len(content)
    for cut in range(24, len(content) + 1):
        capture = read(content[:cut])
        assert len(capture.packets) == (cut >= first) + (cut >= second)
        whole = cut in {24, first, second}
        assert ["the file ends in the middle" in note.what for note in capture.notes] == (
            [] if whole else [True]
        )


def test_a_pcapng_that_ends_anywhere(read):
    content = big_file(">")
    whole = read(content).packets
    for cut in range(28, len(content), 3):
        capture = read(content[:cut])
        assert np.array_equal(capture.packets, whole[: len(capture.packets)])
    assert "the file ends in the middle" in read(content[:-1]).notes[0].what


NO_CAPTURES = {
    "empty": (b"", "ends before the header of a capture"),
    "half a header": (Pcap().header()[:23], "ends before the header of a capture"),
    "text": (b"No capture, but a text that is long enough.", "is neither a pcap nor a pcapng file"),
    "gzip": (b"\x1f\x8b\x08\0" + bytes(40), "is compressed\n  hint: run gunzip on it first"),
    "pcapng of version 2": (
        struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 2, 0, -1, 28),
        "is a pcapng file of unknown version or byte order",
    ),
}


@pytest.mark.parametrize(("content", "why"), NO_CAPTURES.values(), ids=NO_CAPTURES)
def test_what_is_no_capture(read, tmp_path, content, why):
    with pytest.raises(UserError) as refused:
        read(content)
    assert str(refused.value).startswith(f"{tmp_path / 'capture'}: {why}")


def test_what_cannot_be_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name, why in {
        "missing": "cannot be read: No such file or directory",
        ".": "is a directory",
        "pipe": "is no regular file",
    }.items():
        with pytest.raises(UserError, match=why):
            capture_file.read(tmp_path / name)


def test_of_a_directory_its_captures_are_named(tmp_path):
    with pytest.raises(UserError) as refused:
        capture_file.read(tmp_path)
    assert refused.value.hint == "name a capture; there is none in it"
    for name in ("trace-rc-1.pcapng", "trace-irn-1.pcapng", "messages.parquet"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(UserError) as refused:
        capture_file.read(tmp_path)
    names = [f"{tmp_path}/trace-{each}-1.pcapng" for each in ("irn", "rc")]
    assert refused.value.hint == f"name a capture of it: {', '.join(names)}"


def test_a_file_that_changes_after_it_was_read(read):
    capture = read(Pcap().file([PLAIN, OURS]))
    capture.path.write_bytes(capture.path.read_bytes()[:-1])
    assert capture.frame(1) == PLAIN
    with pytest.raises(UserError, match="has become shorter"):
        capture.frame(2)
    capture.path.unlink()
    with pytest.raises(UserError, match="No such file"):
        capture.payload(1)


# ---------------------------------------------------------------- the hash, and many packets


def test_the_hash_is_xxh64():
    """Values of its reference implementation."""
    counted = bytes(range(256))
    known = {
        b"": 0xEF46DB3751D8E999, b"abc": 0x44BC2CF5AD770999, counted[:33]: 0xC535D1ACAFB8EAD,
        counted[:47]: 0xD9883A03E7BFBB8, counted: 0x1FACBE8406CD904B,
    }  # fmt: skip
    assert {data: _native.xxh64(data) for data in known} == known


MEASURE = """
import sys
from pathlib import Path
from softroce_lab.telemetry import capture_file
def peak_kib():  # ru_maxrss would begin with that of whoever started this program
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
before = peak_kib()
capture = capture_file.read(Path(sys.argv[1]))
print(len(capture.packets), peak_kib() - before)
"""


def test_many_packets_fit_in_their_rows_and_little_more(tmp_path):
    path = tmp_path / "many.pcap"
    pcap = Pcap()
    with path.open("wb") as file:
        file.write(pcap.header())
        for _ in range(200):
            file.write(pcap.packet(0, PLAIN) * 1000)
    command = [sys.executable, "-c", MEASURE, str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    packets, kibibytes = map(int, result.stdout.split())
    assert packets == 200_000
    assert kibibytes < 60 << 10  # 232 bytes a row
