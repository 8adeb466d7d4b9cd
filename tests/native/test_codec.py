# SPDX-License-Identifier: GPL-2.0-or-later
"""The codec beside three others: Linux's (captures), scapy's, and the tests' own."""

import dataclasses
import errno
import ipaddress
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import RawPcapReader

from softroce_lab import _native
from softroce_lab.rnic.enums import IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS
from tests.native import frames
from tests.native.frames import Frame, Lab

ADDRESSES = (0x0A000001, 0x0A000002)
V6_ADDRESSES = (0xFD536C61_62000000_00000000_0A000001, 0xFD536C61_62000000_00000000_0A000002)
MACS = (0x020000000001, 0x020000000002)
V6_ENDS = dict(zip(("source_ip", "destination_ip"), V6_ADDRESSES, strict=True))
BOTH = pytest.mark.parametrize("ends", [{}, V6_ENDS], ids=["ipv4", "ipv6"])
VERSIONS = pytest.mark.parametrize("addresses", [ADDRESSES, V6_ADDRESSES], ids=["ipv4", "ipv6"])
PACKETS = {"rxe_rc": 307, "rxe_ud": 154, "rxe_rc_pp": 400, "rxe_ud_pp": 200, "rxe_uc": 60,
           "rxe_ip6": 168}  # fmt: skip
UD_SEND_ONLY_WITH_IMMEDIATE = 0x65


def captured(name):
    with RawPcapReader(str(frames.CAPTURES / f"{name}.pcap")) as reader:
        return [bytes(data) for data, _ in reader]


@pytest.fixture(scope="module")
def linux():
    """Every frame of every capture."""
    return [frame for name in PACKETS for frame in captured(name)]


def icrc_of(frame):
    return int.from_bytes(frame[-4:], "little")


def opcode_of(frame):
    return frame[frames.layout(frame).bth_at]


# ---------------------------------------------------------------- frames of Linux


@pytest.mark.parametrize("name", PACKETS)
def test_linux_and_we_agree_on_the_icrc(name):
    frames_ = captured(name)
    assert len(frames_) == PACKETS[name]
    for number, frame in enumerate(frames_):
        assert _native.icrc(frame) == icrc_of(frame), f"packet {number + 1}"
        assert frames.icrc(frame) == icrc_of(frame), f"packet {number + 1}"


def test_datagrams_of_linux_are_read(linux):
    datagrams = [frame for frame in linux if opcode_of(frame) == frames.UD_SEND_ONLY]
    assert len(datagrams) > 380
    for frame in datagrams:
        fields = _native.decode_frame(frame)
        bth = Ether(frame)[BTH]
        version, ip = ("ipv6", IPv6) if IPv6 in Ether(frame) else ("ip", IP)
        ip = Ether(frame)[ip]
        assert fields["infiniband.bth.opcode"] == bth.opcode
        assert fields["infiniband.bth.p_key"] == bth.pkey
        assert fields["infiniband.bth.destqp"] == bth.dqpn
        assert fields["infiniband.bth.psn"] == bth.psn
        assert fields["udp.srcport"] == Ether(frame)[UDP].sport
        assert fields[f"{version}.src"] == int(ipaddress.ip_address(ip.src))
        assert fields[f"{version}.dst"] == int(ipaddress.ip_address(ip.dst))
        body = bytes(bth.payload)  # DETH, data, padding; scapy has taken the ICRC
        assert fields["infiniband.deth.q_key"].to_bytes(4, "big") == body[:4]
        assert fields["infiniband.deth.srcqp"].to_bytes(3, "big") == body[5:8]
        assert fields["payload"] == body[8 : len(body) - bth.padcount]


@pytest.mark.parametrize("name", ["rxe_rc", "rxe_rc_pp", "rxe_uc", "rxe_ip6"])
def test_other_services_are_refused_by_their_opcode(name):
    for frame in captured(name):
        if opcode_of(frame) >> 5 != frames.UD_SEND_ONLY >> 5:
            assert _native.decode_frame(frame) == "rx_bad_opcode"


def test_one_flipped_bit_of_a_linux_frame_is_noticed(linux):
    draw = random.Random(1)
    for frame in linux:
        for _ in range(4):
            bit = draw.randrange(frames.IP_AT * 8, len(frame) * 8)
            changed = frames.flip(frame, bit)
            covered = not frames.layout(frame).variant.get(bit // 8, 0) >> bit % 8 & 1
            assert (_native.icrc(changed) != icrc_of(changed)) == covered, (frame, bit)


# ---------------------------------------------------------------- every bit of a frame


def refusal_of_bit(frame, bit):
    """Under which name a frame with this bit flipped is refused; None: it is taken as it was."""
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


@pytest.mark.parametrize(
    "frame",
    [
        Frame(payload=b"seven..").encode(),
        Frame().encode(),
        Frame(lab=Lab(length=61), payload=bytes(range(61))).encode(),
        captured("rxe_ud_pp")[0],
        captured("rxe_ip6")[0],
        Frame(**V6_ENDS, payload=b"seven..").encode(),
        Frame(**V6_ENDS).encode(),
        Frame(**V6_ENDS, lab=Lab(length=61), payload=bytes(range(61))).encode(),
    ],
    ids=["padded", "empty", "striped", "linux", "linux6", "padded6", "empty6", "striped6"],
)
def test_each_bit_is_covered_or_may_change(frame):
    whole = _native.decode_frame(frame)
    assert isinstance(whole, dict)
    for bit in range(len(frame) * 8):
        told = _native.decode_frame(frames.flip(frame, bit))
        expected = refusal_of_bit(frame, bit)
        assert told == (whole if expected is None else expected), (bit // 8, bit % 8)


@BOTH
def test_a_frame_cut_anywhere_is_refused(ends):
    frame = Frame(**ends, lab=Lab(length=100), payload=bytes(100)).encode()
    for length in range(len(frame)):
        assert _native.decode_frame(frame[:length]) == "rx_truncated", length
    assert isinstance(_native.decode_frame(frame + bytes(10)), dict)  # Ethernet pads short frames


@BOTH
def test_a_padding_longer_than_the_payload_is_refused(ends):
    frame = bytearray(Frame(**ends).encode())
    frame[frames.layout(frame).bth_at + 1] |= 3 << 4
    assert _native.decode_frame(frames.seal(bytes(frame))) == "rx_truncated"


@BOTH
def test_a_transport_version_that_is_not_zero_is_refused(ends):
    assert _native.decode_frame(Frame(**ends, flags=1).encode()) == "rx_bad_opcode"


def test_icrc_of_a_frame_without_headers_is_an_error():
    for frame in (bytes(57), Frame(**V6_ENDS).encode()[:77], b""):
        with pytest.raises(ValueError, match="too short"):
            _native.icrc(frame)


# ---------------------------------------------------------------- what we encode


class Sender:
    """An RNIC that sends one datagram at a time, as a frame."""

    def __init__(self, addresses=ADDRESSES, *, psn=0, path_mtu=4096):
        self.peer = addresses[1]
        config = _native.MessageConfig()
        config.address = addresses[0]
        config.path_mtu = path_mtu
        self.endpoint = _native.FrameEndpoint(config, MACS[0])
        self.cq = self.endpoint.create_cq()
        self.qp = self.endpoint.create_ud_qp(self.cq, self.cq, 1, 1, 0)
        for state in (IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS):
            assert self.endpoint.modify_ud_qp(self.qp, int(state), 0, psn) == 0
        self.memory = np.zeros(4096, np.uint8)
        self.key = self.endpoint.register_memory(self.memory.ctypes.data, 4096, 0)

    def frame(self, payload, *, qp=0x123456, qkey=0x89ABCDEF, solicited=False):
        self.memory[: len(payload)] = np.frombuffer(payload, np.uint8)
        address = self.memory.ctypes.data
        rc = self.endpoint.post_ud_send(
            self.qp, 1, address, len(payload), self.key, self.peer, MACS[1], qp, qkey,
            True, solicited,
        )  # fmt: skip
        assert rc == 0
        frame = self.endpoint.poll_frame(0)
        assert self.cq.poll_completions()[0].status == 0
        return frame


def scapy_frame(sender, payload, *, psn, qp=0x123456, qkey=0x89ABCDEF, solicited=False):
    pad = -len(payload) % 4
    if sender.peer >> 32:
        source, destination = (str(ipaddress.ip_address(each)) for each in V6_ADDRESSES)
        ip = IPv6(src=source, dst=destination, tc=2, fl=0, hlim=64)
    else:
        ip = IP(src="10.0.0.1", dst="10.0.0.2", tos=2, id=0, flags="DF", ttl=64)
    deth = qkey.to_bytes(4, "big") + sender.qp.to_bytes(4, "big")
    return bytes(
        Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
        / ip
        / UDP(sport=frames.SPORT_BASE, dport=frames.ROCE_PORT, chksum=0)
        / BTH(opcode=0x64, solicited=int(solicited), padcount=pad, dqpn=qp, psn=psn)
        / Raw(deth + payload + bytes(pad))
    )


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 63, 64, 255, 1000, 1024, 2048, 4093, 4096])
@VERSIONS
def test_scapy_makes_the_same_frame(length, addresses):
    sender = Sender(addresses, psn=0xFFFFFF)
    payload = random.Random(length).randbytes(length)
    for psn in (0xFFFFFF, 0):  # it wraps
        assert sender.frame(payload) == scapy_frame(sender, payload, psn=psn)


@VERSIONS
def test_scapy_makes_the_same_solicited_frame(addresses):
    sender = Sender(addresses)
    frame = sender.frame(b"now", solicited=True)
    assert frame == scapy_frame(sender, b"now", psn=0, solicited=True)


def pairs(bits):
    """Two addresses of one IP version; no mapped ones."""
    least = 1 << 49 if bits > 32 else 0
    address = st.integers(least, (1 << bits) - 1)
    return st.tuples(address, address)


@given(
    payload=st.binary(max_size=300),
    qp=st.integers(0, (1 << 24) - 1),
    qkey=st.integers(0, (1 << 32) - 1),
    addresses=st.one_of(pairs(32), pairs(128)),
)
def test_what_is_encoded_is_decoded(payload, qp, qkey, addresses):
    sender = Sender(addresses, psn=5)
    frame = sender.frame(payload, qp=qp, qkey=qkey)
    assert _native.icrc(frame) == frames.icrc(frame) == icrc_of(frame)
    name = "ipv6" if addresses[0] >> 32 else "ip"
    assert _native.decode_frame(frame) == {
        f"{name}.src": addresses[0],
        f"{name}.dst": addresses[1],
        "udp.srcport": frames.SPORT_BASE,
        "infiniband.bth.opcode": frames.UD_SEND_ONLY,
        "infiniband.bth.p_key": 0xFFFF,
        "infiniband.bth.destqp": qp,
        "infiniband.bth.psn": 5,
        "infiniband.deth.q_key": qkey,
        "infiniband.deth.srcqp": sender.qp,
        "payload": payload,
    }


def integers(bits):
    return st.integers(0, (1 << bits) - 1)


LABS = st.builds(
    Lab,
    kind=st.integers(0, 2),
    path=integers(8),
    attempt=integers(8),
    operation=integers(16),
    step=integers(16),
    message=integers(32),
    message_id=integers(32),
    index=integers(32),
    count=integers(32),
    length=integers(32),
    stamp_ns=integers(32),
)


@given(lab=LABS, payload=st.binary(max_size=40), ends=st.sampled_from([{}, V6_ENDS]))
def test_our_header_is_read(lab, payload, ends):
    frame = Frame(**ends, lab=lab, payload=payload, qkey=7)
    read = _native.decode_frame(frame.encode(), striped=True)
    for field in dataclasses.fields(lab):
        if field.name in read:
            assert read[field.name] == getattr(lab, field.name), field.name
    assert read["kind"] == lab.kind
    assert read["payload"] == payload
    assert read["infiniband.deth.q_key"] == 7


def striped_frames(addresses, length, path_mtu):
    """The frames of one message, as an RNIC sends them."""
    config = _native.MessageConfig()
    config.address, config.path_mtu, config.paths = addresses[0], path_mtu, 4
    endpoint = _native.FrameEndpoint(config, MACS[0])
    memory = np.random.default_rng(1).integers(0, 256, max(length, 1), np.uint8)
    key = endpoint.register_memory(memory.ctypes.data, memory.nbytes, 0)
    peer = endpoint.connect(addresses[1], MACS[1], 0x11, 0x12, 0x1234)
    endpoint.post_send(peer, (1, 2, 3), key, 0, length, 0)
    polled = iter(lambda: endpoint.poll_frame(77), None)
    return list(polled), memory[:length].tobytes()


@pytest.mark.parametrize("path_mtu", [256, 1024, 2048, 4096])
@pytest.mark.parametrize("length", [0, 1, 4055, 4056, 4057, 20_000])
@VERSIONS
def test_striped_messages_are_framed_as_said(length, path_mtu, addresses):
    sent, data = striped_frames(addresses, length, path_mtu)
    chunk = path_mtu - frames.LAB
    count = max(1, -(-length // chunk))
    assert len(sent) == count
    paths = set()
    for index, frame in enumerate(sent):
        path = _native.decode_frame(frame, striped=True)["path"]
        paths.add(path)
        lab = Lab(path=path, operation=1, step=2, message=3, index=index, count=count,
                  length=length, stamp_ns=77)  # fmt: skip
        payload = data[index * chunk : (index + 1) * chunk]
        ends = dict(zip(("source_ip", "destination_ip"), addresses, strict=True))
        assert frame == Frame(**ends, psn=index, qkey=0x1234, lab=lab, payload=payload).encode()
    assert len(paths) == min(4, count)


# ---------------------------------------------------------------- addresses as numbers


@given(st.one_of(integers(32), st.integers(1 << 49, (1 << 128) - 1)))
def test_addresses_are_numbers_as_python_has_them(number):
    config = _native.MessageConfig()
    config.address = number
    assert config.address == number
    assert ipaddress.ip_address(config.address) == ipaddress.ip_address(number)


def test_a_mapped_address_is_the_ipv4_address():
    config = _native.MessageConfig()
    config.address = int(ipaddress.ip_address("::ffff:10.0.0.1"))
    assert config.address == 0x0A000001


@pytest.mark.parametrize("number", [-1, 1 << 128, "10.0.0.1", 1.0, None])
def test_what_is_no_address(number):
    config = _native.MessageConfig()
    with pytest.raises(TypeError):
        config.address = number


@pytest.mark.parametrize("which", [0, 1])
def test_one_ip_version_on_a_port(which):
    """A port of one version reaches no address of the other one."""
    own, foreign = (ADDRESSES, V6_ADDRESSES) if which else (V6_ADDRESSES, ADDRESSES)
    sender = Sender((own[0], foreign[1]))
    rc = sender.endpoint.post_ud_send(sender.qp, 1, 0, 0, 0, foreign[1], 0, 0x11, 0, True, False)
    assert rc == errno.EINVAL
    with pytest.raises(OSError, match="not supported") as refusal:
        sender.endpoint.connect(foreign[1], 0, 0x11, 0x12, 0)
    assert refusal.value.errno == errno.EAFNOSUPPORT
