# SPDX-License-Identifier: GPL-2.0-or-later
"""A capture as lines of text; tests/cli/test_capture.py takes them from a real lab."""

from __future__ import annotations

import time

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether

from softroce_lab import _native
from softroce_lab.errors import UserError
from softroce_lab.telemetry import capture_file
from softroce_lab.telemetry.packet_lines import Lines, of_file
from tests.capture_builder import IF_NAME, IF_TSRESOL, Pcapng

WALL_NS = 1_700_000_000_123_456_789


def stream(*packets):
    """Two interfaces, packets (interface, frame, comment), statistics."""
    ng = Pcapng()
    names = (b"h1->s1", b"s1->h1")
    yield ng.section()
    yield from (ng.interface((IF_TSRESOL, b"\x09"), (IF_NAME, name)) for name in names)
    for interface, frame, comment in packets:
        comments = [comment] if comment else []
        yield ng.enhanced(WALL_NS, frame, *comments, interface=interface, length=2000)
    yield ng.statistics(0, 0, 0)


def lines(*packets):
    return list(Lines().of(b"".join(stream(*packets))))


CLOCK = f"{time.strftime('%H:%M:%S', time.localtime(WALL_NS // 10**9))}.{WALL_NS % 10**9}"


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_a_stream_in_pieces_of_any_length(size):
    ping = bytes(OTHERS[0][0])
    packets = [(1, ping, b""), (0, roce(0x04), b"dropped: gemodel bad, rule x"), (1, ping, b"")]
    data, taken = b"".join(stream(*packets)), Lines()
    found = [each for at in range(0, len(data), size) for each in taken.of(data[at : at + size])]
    reported = f"{CLOCK} s1->h1 10.0.0.1 > 10.0.0.2: ICMP, 2000 bytes"
    assert found[::2] == [reported, reported]
    assert found[1].startswith(f"{CLOCK} h1->s1 ")
    assert found[1].endswith(" psn 77, 2000 bytes  [dropped: gemodel bad, rule x]")
    assert found == lines(*packets)


def roce(opcode, payload=b"", **fields):
    names = {"udp.srcport": 0xC001}
    wanted = {"infiniband.bth.opcode": opcode, "infiniband.bth.destqp": 0x11,
              "infiniband.bth.psn": 77, "payload": payload}  # fmt: skip
    return _native.encode_frame(names | wanted | fields)


def words(frame):
    (line,) = lines((0, frame, b""))
    return line.removeprefix(f"{CLOCK} h1->s1 ").removesuffix(", 2000 bytes")


def text(frame):
    return words(frame).partition(": ")[2]


def test_roce():
    assert text(roce(0x04)) == "RC_SEND_ONLY sport 49153 qp 0x11 psn 77"
    nak = {"infiniband.aeth.syndrome": 0x60, "infiniband.aeth.msn": 5}
    assert text(roce(0x11, **nak)) == "RC_ACKNOWLEDGE sport 49153 qp 0x11 psn 77 NAK 0 msn 5"
    immediate = {"infiniband.immdt": 0xC00115}
    assert text(roce(0x0B, **immediate)).endswith("psn 77 immdt 0x00c00115")
    assert text(roce(0x2B, **immediate)).endswith(
        "psn 77 immdt 0x00c00115 (if of uc_immediate: slot 3 offset 17 user 5)"
    )
    rnr = {"infiniband.aeth.syndrome": 0x2C}
    assert text(roce(0x11, **rnr)).endswith("psn 77 RNR NAK 12 msn 0")


def test_striped_messages():
    lab = {"kind": 0, "message": 3, "index": 17, "count": 512, "path": 1}
    base = "UD_SEND_ONLY sport 49153 qp 0x11 psn 77"
    assert text(roce(0x64, **lab)) == f"{base} data 3 packet 17 of 512 path 1"
    more = lab | {"attempt": 2, "operation": 8, "step": 9, "trimmed": True}
    reported = f"{base} data 8.9.3 packet 17 of 512 path 1 attempt 2 trimmed"
    assert text(roce(0x64, **more)) == reported
    parity = more | {"kind": 4, "index": 513, "attempt": 0, "trimmed": False}
    assert text(roce(0x64, **parity)) == f"{base} parity 8.9.3 packet 513 of 512 path 1"
    control = lab | {"kind": 1, "message": 40}
    assert text(roce(0x64, **control)) == f"{base} control 40 path 1"
    assert text(roce(0x64)) == base


def test_operations():
    lab = {"kind": 0, "message": 7, "index": 3, "count": 68, "path": 1, "operation": 0x101,
           "step": 0x1F2, "verb": 1, "receive": 0, "connection": 5, "remote_address": 6,
           "rkey": 7, "argument": 0}  # fmt: skip
    base = "UD_SEND_ONLY sport 49153 qp 0x11 psn 77"
    assert text(roce(0x64, **lab)) == f"{base} WRITE 7 of QP 0x101f2 packet 3/68 path 1"
    result = lab | {"operation": 0x200, "verb": 0x86, "kind": 4, "attempt": 2, "trimmed": True}
    assert text(roce(0x64, **result)) == (
        f"{base} parity of result of READ 7 of QP 0x1f2 packet 3/68 path 1 attempt 2 trimmed"
    )
    invalidate = lab | {"verb": 5}
    assert text(roce(0x64, **invalidate)).startswith(f"{base} SEND WITH INVALIDATE 7 of QP")


OTHERS = [
    (Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / ICMP(), "10.0.0.1 > 10.0.0.2: ICMP"),
    (
        Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1, dport=2),
        "10.0.0.1 > 10.0.0.2: TCP 1 > 2",
    ),
    (
        Ether() / IPv6(src="fd00::1", dst="fd00::2") / UDP(sport=1, dport=2),
        "fd00::1 > fd00::2: UDP 1 > 2",
    ),
    (Ether() / IP(src="1.2.3.4", dst="5.6.7.8", proto=99), "1.2.3.4 > 5.6.7.8: protocol 99"),
    (Ether(dst="ff:ff:ff:ff:ff:ff") / ARP(), "EtherType 0x0806"),
]


@pytest.mark.parametrize(("frame", "reported"), OTHERS)
def test_other_frames(frame, reported):
    assert words(bytes(frame)) == reported


@pytest.mark.parametrize("size", range(0, 110, 3))
def test_frames_that_are_cut_off_are_lines_all_the_same(size):
    lab = {"kind": 0, "message": 3, "index": 17, "count": 512}
    output = words(roce(0x64, **lab)[:size])
    assert output == "cut off" or " > " in output
    assert (" qp 0x11 psn 77" in output) == (size >= 54)


def test_of_what_is_no_capture_the_rest_is_not_read(tmp_path, monkeypatch):
    path, seen = tmp_path / "large", []
    path.write_bytes(bytes(8 << 20))

    def pieces(path, whole=capture_file.pieces):
        for piece in whole(path):
            seen.append(len(piece))
            yield piece

    monkeypatch.setattr(capture_file, "pieces", pieces)
    with pytest.raises(UserError, match="is neither a pcap nor a pcapng file"):
        list(of_file(path, []))
    assert sum(seen) <= 2 << 20
