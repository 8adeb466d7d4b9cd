# SPDX-License-Identifier: GPL-2.0-or-later
"""What the wire stage writes in frames: the CE mark, and the cut of a trimmed packet."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab import _native
from tests.native import frames
from tests.native.frames import CONTROL, OPERATION, PARITY, REPORT, Frame, Lab, Operation

V4 = {"source_ip": 0x0A000001, "destination_ip": 0x0A000002}
V6 = {"source_ip": 0xFD53 << 112 | 1, "destination_ip": 0xFD53 << 112 | 2}
FAMILIES = pytest.mark.parametrize("ends", [V4, V6], ids=["ipv4", "ipv6"])

ETHERNET, CE = 14, 3
TRIM_DSCP = {False: 47, True: 43}  # by whether it was the last hop
HEADERS = {4: 14 + 20 + 8 + 12 + 8 + 40, 6: 14 + 40 + 8 + 12 + 8 + 40}


def version(frame: bytes) -> int:
    return frame[ETHERNET] >> 4


def traffic_class(frame: bytes) -> int:
    if version(frame) == 4:
        return frame[ETHERNET + 1]
    return struct.unpack_from("!I", frame, ETHERNET)[0] >> 20 & 0xFF


def ip_checksum(frame: bytes) -> int:
    """0 over an IPv4 header that holds its right checksum; IPv6 has none."""
    if version(frame) == 6:
        return 0
    total = sum(struct.unpack_from("!10H", frame, ETHERNET))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def data(ends, size=1000, **fields) -> bytes:
    lab = Lab(index=3, count=9, length=9000, message_id=5, attempt=2)
    return (
        Frame(**ends, lab=lab, payload=bytes(range(256)) * 4)
        .but(payload=(bytes(range(256)) * 16)[:size], **fields)
        .encode()
    )


@FAMILIES
@pytest.mark.parametrize("ecn", [1, 2, 3])
def test_a_mark_changes_the_ecn_field_alone(ends, ecn):
    frame = data(ends, ecn=ecn)
    marked = _native.mark_ce(frame)
    assert traffic_class(marked) == traffic_class(frame) | CE
    assert ip_checksum(marked) == 0
    before, after = (_native.decode_frame(each) for each in (frame, marked))
    name = "ip.dsfield" if version(frame) == 4 else "ipv6.tclass"
    assert after.pop(name) == before.pop(name) | 3
    assert after == before  # the ICRC is right, too
    masked = [index for index in range(len(frame)) if frame[index] != marked[index]]
    assert all(index < ETHERNET + 12 for index in masked)


@given(st.binary(min_size=20, max_size=20))
def test_the_checksum_stays_right_whatever_the_header(header):
    head = bytearray(b"\x45" + header[1:10] + b"\0\0" + header[12:])
    head[1] |= 1
    frame = bytes(12) + b"\x08\x00" + bytes(head)
    check = ip_checksum(frame)
    frame = frame[:24] + struct.pack("!H", check) + frame[26:]
    assert ip_checksum(_native.mark_ce(frame)) == 0


@FAMILIES
@pytest.mark.parametrize("size", [1, 3, 1000, 2048])
@pytest.mark.parametrize("last_hop", [False, True])
def test_a_trimmed_packet_is_its_headers_and_valid(ends, size, last_hop):
    frame = data(ends, size)
    trimmed = _native.trim_frame(frame, last_hop)
    before = _native.decode_frame(frame, striped=True)
    after = _native.decode_frame(trimmed, striped=True)
    assert len(trimmed) == HEADERS[version(frame)] + 4
    assert after.pop("payload") == b""
    assert len(before.pop("payload")) == size
    name = "ip.dsfield" if version(frame) == 4 else "ipv6.tclass"
    assert after.pop(name) == TRIM_DSCP[last_hop] << 2 | before.pop(name) & 3
    assert (after.pop("trimmed"), before.pop("trimmed")) == (True, False)
    assert after == before
    assert traffic_class(trimmed) == TRIM_DSCP[last_hop] << 2 | traffic_class(frame) & 3
    assert ip_checksum(trimmed) == 0
    assert frames.icrc(trimmed) == int.from_bytes(trimmed[-4:], "little")


OF_AN_OPERATION = {
    "version": 4,
    "lab_operation": Operation(verb=0x84, receive=5, connection=6, remote_address=7, rkey=8),
}


@FAMILIES
@pytest.mark.parametrize("kind", [0, PARITY])
@pytest.mark.parametrize("size", [1, 3, 1000, 2024])
@pytest.mark.parametrize("last_hop", [False, True])
def test_a_trimmed_packet_of_an_operation_still_says_where_it_goes(ends, kind, size, last_hop):
    frame = data(ends, size, kind=kind, **OF_AN_OPERATION)
    trimmed = _native.trim_frame(frame, last_hop)
    assert len(trimmed) == HEADERS[version(frame)] + OPERATION + 4
    before = _native.decode_frame(frame, striped=True)
    after = _native.decode_frame(trimmed, striped=True)
    name = "ip.dsfield" if version(frame) == 4 else "ipv6.tclass"
    assert after.pop(name) == TRIM_DSCP[last_hop] << 2 | before.pop(name) & 3
    assert (after.pop("payload"), len(before.pop("payload"))) == (b"", size)
    assert (after.pop("trimmed"), before.pop("trimmed")) == (True, False)
    assert after == before
    assert ip_checksum(trimmed) == 0
    assert frames.icrc(trimmed) == int.from_bytes(trimmed[-4:], "little")
    assert _native.trim_frame(trimmed) == trimmed


@FAMILIES
@pytest.mark.parametrize("size", [0, 4, 20, 24])
def test_a_packet_without_room_for_its_operation_is_left_alone(ends, size):
    frame = data(ends, size, version=4)
    assert _native.trim_frame(frame) == frame


@FAMILIES
@pytest.mark.parametrize("from_end", [1, 500, 1000 + 40 - 11])
def test_a_corrupted_packet_stays_corrupted_when_it_is_trimmed(ends, from_end):
    """In its ICRC, its data, or the header that trimming leaves."""
    frame = bytearray(data(ends, 1000))
    frame[-from_end] ^= 1
    trimmed = _native.trim_frame(bytes(frame))
    assert len(trimmed) == HEADERS[version(frame)] + 4
    assert _native.decode_frame(trimmed, striped=True) == "rx_wrong_icrc"


@FAMILIES
@pytest.mark.parametrize(
    "fields",
    [{"kind": CONTROL}, {"kind": REPORT}, {"version": 1}, {"opcode": 0x65}, {"size": 0},
     {"kind": 3}, {"lab": None}, {**OF_AN_OPERATION, "kind": CONTROL}, {"version": 5},
     {**OF_AN_OPERATION, "size": 0}],
)  # fmt: skip
def test_only_data_of_ours_is_trimmed(ends, fields):
    frame = data(ends, **fields)
    assert _native.trim_frame(frame) == frame


def test_frames_of_other_protocols_are_left_alone():
    whole = data(V4)
    for frame in (
        whole[:12] + b"\x08\x06" + whole[14:],  # ARP
        whole[:23] + b"\x06" + whole[24:],  # TCP
        whole[:20] + b"\x20\x00" + whole[22:],  # a fragment
        whole[:36] + b"\x12\xb8" + whole[38:],  # another UDP port
        whole[:30],
    ):
        assert _native.trim_frame(frame) == frame
