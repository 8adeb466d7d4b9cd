# SPDX-License-Identifier: GPL-2.0-or-later
"""Every opcode, each with its headers: there and back, cut anywhere, and with any bit wrong."""

import ctypes
import mmap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab import _native
from tests.native import frames
from tests.native.opcodes import IB, OPCODES, frame_of, least_bytes, one_packet, sealed_lengths

ALL = pytest.mark.parametrize("opcode", OPCODES.values(), ids=lambda each: each.name)
UNKNOWN = [number for number in range(256) if number not in OPCODES]
PROTECTED_NONE = 0


def integers(bits):
    return st.integers(0, (1 << bits) - 1)


def address6():
    return st.integers(1 << 49, (1 << 128) - 1)  # no mapped one


IPV4 = {
    "ip.src": integers(32),
    "ip.dst": integers(32),
    "ip.dsfield": integers(8),
    "ip.id": integers(16),
    "ip.ttl": integers(8),
}
IPV6 = {
    "ipv6.src": address6(),
    "ipv6.dst": address6(),
    "ipv6.tclass": integers(8),
    "ipv6.flow": integers(20),
    "ipv6.hlim": integers(8),
}
BTH = {
    "bth.se": st.booleans(),
    "bth.m": st.booleans(),
    "bth.p_key": integers(16),
    "bth.reserved8": integers(8),
    "bth.destqp": integers(24),
    "bth.a": st.booleans(),
    "bth.psn": integers(24),
}


def packets(opcode, ip, most_payload_bytes=70):
    """All fields of a packet, any values."""
    return st.fixed_dictionaries(
        {
            "eth.dst": integers(48),
            "eth.src": integers(48),
            **ip,
            "udp.srcport": integers(16),
            IB + "bth.opcode": st.just(opcode.number),
            **{IB + name: values for name, values in BTH.items()},
            **{name: integers(8 * size) for name, size in opcode.fields if name},
            "payload": st.binary(max_size=most_payload_bytes if opcode.payload else 0),
        }
    )


# ---------------------------------------------------------------- there and back


@ALL
@given(data=st.data())
def test_fields_and_frames_say_the_same(opcode, data):
    fields = data.draw(st.one_of(packets(opcode, IPV4), packets(opcode, IPV6)))
    frame = frame_of(fields)
    assert _native.encode_frame(fields) == frame
    assert _native.decode_frame(frame) == fields
    assert _native.icrc(frame) == frames.icrc(frame) == int.from_bytes(frame[-4:], "little")


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({IB + "bth.psn": 1 << 24}, "infiniband.bth.psn has 24 bits"),
        ({IB + "bth.psn": -1}, "infiniband.bth.psn is not what belongs there"),
        ({IB + "bth.se": 2}, "infiniband.bth.se has 1 bits"),
        ({"ipv6.flow": 1 << 20, "ipv6.dst": 1 << 100}, "ipv6.flow has 20 bits"),
        ({"eth.src": 1 << 48}, "eth.src has 48 bits"),
        ({"eth.dst": "02:00:00:00:00:01"}, "eth.dst is not what belongs there"),
        ({"payload": "text"}, "payload is not what belongs there"),
        ({"payload": bytes(4097)}, "longer than any path MTU"),
        ({"ip.src": 1 << 100}, "ip.src is an address of the other IP version"),
        ({"ipv6.src": 5}, "ipv6.src is an address of the other IP version"),
        ({"ip.dst": 1, "ipv6.dst": 1 << 100}, "has no ip.dst"),
        ({IB + "reth.va": 0}, "has no infiniband.reth.va"),
        ({"psn": 0}, "has no psn"),
        ({IB + "bth.opcode": 0x15}, "no such opcode"),
        ({IB + "bth.opcode": 0x11, "payload": b"x"}, "carry no payload"),
    ],
)
def test_what_is_no_packet(fields, what):
    with pytest.raises(ValueError, match=what):
        _native.encode_frame(fields)


# ---------------------------------------------------------------- what no sender sends


@pytest.mark.parametrize("number", UNKNOWN)
def test_an_unknown_opcode_is_refused(number):
    frame = bytearray(frame_of(one_packet(OPCODES[0x04], bytes(100))))
    frame[frames.V4.bth_at] = number
    assert _native.decode_frame(frames.seal(bytes(frame))) == "rx_bad_opcode"


@ALL
def test_a_payload_where_there_is_none(opcode):
    frame = frame_of(one_packet(opcode, bytes(4) if opcode.payload else b""))
    longer = sealed_lengths(frame[: -frames.ICRC] + bytes(8), ipv6=False)
    decoded = _native.decode_frame(longer)
    if opcode.payload:
        assert decoded["payload"] == bytes(8)
    else:
        assert decoded == "rx_bad_payload"


# ---------------------------------------------------------------- cut anywhere


@pytest.fixture(scope="module")
def at_the_edge():
    """Places bytes right before memory that nobody may read: a reader that goes on is killed."""
    area = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None, use_errno=True)
    edge = address + mmap.PAGESIZE
    assert libc.mprotect(ctypes.c_void_p(edge), mmap.PAGESIZE, PROTECTED_NONE) == 0
    assert f"{edge:x}-{edge + mmap.PAGESIZE:x} ---" in Path("/proc/self/maps").read_text()

    def place(data):
        begin = mmap.PAGESIZE - len(data)
        area[begin : mmap.PAGESIZE] = data
        return memoryview(area)[begin : mmap.PAGESIZE]

    return place


def refusal_of_cut(opcode, body, pad):
    """Under which name a frame with so many bytes between BTH and ICRC is refused, if it is."""
    if body < opcode.extension_bytes + pad:
        return "rx_truncated"
    no_payload = body != opcode.extension_bytes and not opcode.payload
    return "rx_bad_payload" if body % 4 or no_payload else None


@ALL
@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_cut_anywhere_and_sealed_again(opcode, ipv6, at_the_edge):
    """IP, UDP and ICRC agree with the frame, but it is too short for its opcode."""
    fields = one_packet(opcode, ipv6=ipv6)
    frame = frame_of(fields)
    least, pad = least_bytes(ipv6=ipv6), -len(fields["payload"]) % 4
    for length in range(least, len(frame)):
        short = at_the_edge(sealed_lengths(frame[:length], ipv6=ipv6))
        decoded = _native.decode_frame(short)
        refusal = refusal_of_cut(opcode, length - least, pad)
        if refusal is None:
            payload = length - least - opcode.extension_bytes - pad
            assert decoded == fields | {"payload": fields["payload"][:payload]}, length
        else:
            assert decoded == refusal, length


# ---------------------------------------------------------------- every bit


VARIANT_FIELDS = {  # what routers and links may change, and the ICRC does not cover
    "eth.dst", "eth.src", "ip.dsfield", "ip.ttl", "ipv6.tclass", "ipv6.flow", "ipv6.hlim",
    IB + "bth.reserved8",
}  # fmt: skip


def refusal_of_bit(frame, bit):
    """Under which name a frame with this bit flipped is refused; None: it is taken."""
    byte, mask = bit // 8, 1 << bit % 8
    at, layout = frames.IP_AT, frames.layout(frame)
    udp_at = layout.udp_at
    if byte < 12 or layout.variant.get(byte, 0) & mask:
        return None  # the MAC addresses are the link's, the rest the routers'
    if layout is frames.V4:
        decides_roce = {at: 0xFF, at + 6: 0x3F, at + 7: 0xFF, at + 9: 0xFF}  # fragments: 6, 7
        length = {at + 2, at + 3}
    else:
        decides_roce = {at: 0xF0, at + 6: 0xFF}
        length = {at + 4, at + 5}
    decides_roce |= dict.fromkeys((12, 13, udp_at + 2, udp_at + 3), 0xFF)
    if decides_roce.get(byte, 0) & mask:
        return "rx_not_roce"
    if byte in length | {udp_at + 4, udp_at + 5}:
        return "rx_truncated"
    return "rx_wrong_icrc"


def check_every_bit(frame):
    whole = _native.decode_frame(frame)
    assert isinstance(whole, dict)
    for bit in range(len(frame) * 8):
        reported = _native.decode_frame(frames.flip(frame, bit))
        refusal = refusal_of_bit(frame, bit)
        if refusal is None:
            assert {name for name in whole if whole[name] != reported[name]} <= VARIANT_FIELDS, bit
        else:
            assert reported == refusal, (bit // 8, bit % 8)


@ALL
@pytest.mark.parametrize("ipv6", [False, True], ids=["ipv4", "ipv6"])
def test_each_bit_is_covered_or_may_change(opcode, ipv6):
    check_every_bit(frame_of(one_packet(opcode, ipv6=ipv6)))
