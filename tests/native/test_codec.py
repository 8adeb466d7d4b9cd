# SPDX-License-Identifier: GPL-2.0-or-later
"""The codec beside three others: Linux's (captures), scapy's, and the tests' own."""

import dataclasses
import errno
import ipaddress
import itertools
import random
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from softroce_lab import _native
from softroce_lab.verbs.enums import IBV_SEND_SIGNALED, IBV_SEND_SOLICITED, IBV_WR_SEND
from tests.native import frames
from tests.native.bare_verbs import UD, BareRnic, address_vector
from tests.native.frames import Frame, Lab, Operation, captured
from tests.native.opcodes import IB, frame_of

ADDRESSES = (0x0A000001, 0x0A000002)
V6_ADDRESSES = (0xFD536C61_62000000_00000000_0A000001, 0xFD536C61_62000000_00000000_0A000002)
MACS = (0x020000000001, 0x020000000002)
ECN_CAPABLE = 2
V6_ENDS = dict(zip(("source_ip", "destination_ip"), V6_ADDRESSES, strict=True))
BOTH = pytest.mark.parametrize("ends", [{}, V6_ENDS], ids=["ipv4", "ipv6"])
VERSIONS = pytest.mark.parametrize("addresses", [ADDRESSES, V6_ADDRESSES], ids=["ipv4", "ipv6"])
PACKETS = {"rxe_rc": 307, "rxe_ud": 154, "rxe_rc_pp": 400, "rxe_ud_pp": 200, "rxe_uc": 60,
           "rxe_ip6": 168, "rxe_verbs_rc": 172, "rxe_verbs_nak": 77, "rxe_verbs_loss": 700,
           "rxe_verbs_nak_new": 88, "rxe_verbs_loss_new": 751, "rxe_verbs_uc_ud": 159,
           "rxe_verbs_few_losses": 1022}  # fmt: skip


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


@pytest.mark.parametrize("ours", [_native.crc32, _native.sliced_crc32], ids=["used", "sliced"])
@given(head=st.binary(max_size=70), tail=st.binary(max_size=300), skip=st.integers(0, 9))
def test_both_ways_of_counting_agree_with_zlib(ours, head, tail, skip):
    assert ours(memoryview(head)[skip:], tail) == zlib.crc32(head[skip:] + tail)


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


@pytest.mark.parametrize("name", PACKETS)
def test_every_packet_of_linux_is_rebuilt_from_its_fields(name):
    """Byte by byte, MAC addresses and IP identifiers too, by us and by the tests' own encoder."""
    for number, frame in enumerate(captured(name)):
        fields = _native.decode_frame(frame)
        assert _native.encode_frame(fields) == frame, f"packet {number + 1}"
        assert frame_of(fields) == frame, f"packet {number + 1}"


# ---------------------------------------------------------------- not whole


@BOTH
def test_a_frame_cut_anywhere_is_refused(ends):
    frame = Frame(**ends, lab=Lab(length=100), payload=bytes(100)).encode()
    for length in range(len(frame)):
        assert _native.decode_frame(frame[:length]) == "rx_truncated", length
    assert isinstance(_native.decode_frame(frame + bytes(10)), dict)  # Ethernet pads short frames


@BOTH
def test_a_transport_version_that_is_not_zero_is_refused(ends):
    assert _native.decode_frame(Frame(**ends, flags=1).encode()) == "rx_bad_opcode"


# ---------------------------------------------------------------- what we encode


class Sender:
    """An RNIC that sends one datagram at a time, as a frame."""

    def __init__(self, addresses=ADDRESSES, *, psn=0):
        self.rnic = BareRnic(addresses[0], MACS[0])
        self.qp = self.rnic.create_qp(UD)
        self.rnic.to_rtr(self.qp, UD)
        self.rnic.to_rts(self.qp, UD, psn=psn)
        self.peer = addresses[1]
        self.address = address_vector(addresses[1], MACS[1], traffic_class=ECN_CAPABLE)

    def frame(self, payload, *, qp=0x123456, qkey=0x09ABCDEF, solicited=False):
        request = _native.SendRequest()
        request.opcode = IBV_WR_SEND
        request.send_flags = IBV_SEND_SIGNALED | (IBV_SEND_SOLICITED if solicited else 0)
        request.address, request.remote_qpn, request.remote_qkey = self.address, qp, qkey
        self.rnic.post_send(self.qp, request, payload)
        (frame,) = self.rnic.frames()
        (done,) = self.rnic.completions()
        assert done.status == 0
        return frame


def scapy_frame(sender, payload, *, psn, qp=0x123456, qkey=0x09ABCDEF, solicited=False):
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
        / UDP(sport=frames.SPORT_BASE + sender.qp, dport=frames.ROCE_PORT, chksum=0)
        / BTH(opcode=0x64, solicited=int(solicited), padcount=pad, dqpn=qp, psn=psn)
        / Raw(deth + payload + bytes(pad))
    )


@pytest.mark.parametrize("length", [0, 1, 2, 3, 63, 1024, 4093])
@VERSIONS
def test_scapy_makes_the_same_frame(length, addresses):
    sender = Sender(addresses, psn=0xFFFFFF)
    payload = random.Random(length).randbytes(length)
    for psn in (0xFFFFFF, 0):  # it wraps
        assert sender.frame(payload) == scapy_frame(sender, payload, psn=psn)


def words_of_ip(frame):
    return np.frombuffer(frame[14:34], ">u2")


def test_the_ip_checksum_is_right_however_its_sum_carries():
    fields = _native.decode_frame(Sender((0xFFFEFFFE, 0xFFFD0000)).frame(b""))
    upper = sum(words_of_ip(_native.encode_frame(fields))[0::2].tolist())
    for carried, lower in itertools.product(range(3), range(0, 1 << 16, 31)):
        identifier = (0xFFFF - carried - upper) % 0x10000  # the upper halves are 0xFFFF with that
        frame = _native.encode_frame(fields | {"ip.id": identifier, "ip.dst": 0xFFFD0000 | lower})
        assert sum(words_of_ip(frame).tolist()) % 0xFFFF == 0, (identifier, lower)  # RFC 1071


def integers(bits):
    return st.integers(0, (1 << bits) - 1)


LABS = st.builds(
    Lab,
    kind=st.integers(0, 3),
    path=integers(8),
    attempt=integers(16),
    operation=integers(16),
    step=integers(16),
    message=integers(32),
    message_id=integers(32),
    index=integers(32),
    count=integers(24),
    code=integers(8),
    length=integers(32),
    stamp_ns=integers(32),
    epoch=integers(8),
    number=integers(24),
    srtt=integers(16),
    rttvar=integers(16),
    trimmed=integers(1),
)


@given(lab=LABS, payload=st.binary(max_size=40), ends=st.sampled_from([{}, V6_ENDS]))
def test_our_header_is_read(lab, payload, ends):
    frame = Frame(**ends, lab=lab, payload=payload, qkey=7)
    read = _native.decode_frame(frame.encode(), striped=True)
    for field in dataclasses.fields(lab):
        if field.name != "version":
            assert read[field.name] == getattr(lab, field.name), field.name
    assert read["payload"] == payload
    assert read[IB + "deth.q_key"] == 7
    assert _native.encode_frame(read) == frame.encode()


OPERATIONS = st.builds(
    Operation,
    verb=st.builds(int.__or__, st.integers(1, 8), st.sampled_from([0, 0x80])),
    receive=integers(24),
    connection=integers(24),
    remote_address=integers(64),
    rkey=integers(32),
    argument=integers(32),
)


def names_of(values):
    return [field.name for field in dataclasses.fields(values)]


@given(
    lab=LABS,
    kind=st.sampled_from([frames.DATA, frames.PARITY]),
    operation=OPERATIONS,
    payload=st.binary(max_size=40),
    ends=st.sampled_from([{}, V6_ENDS]),
)
def test_an_operation_is_read_and_written(lab, kind, operation, payload, ends):
    lab = dataclasses.replace(lab, kind=kind, version=4)
    frame = Frame(**ends, lab=lab, lab_operation=operation, payload=payload).encode()
    read = _native.decode_frame(frame, striped=True)
    for values, unseen in ((lab, "version"), (operation, "reserved")):
        for name in names_of(values):
            if name != unseen:
                assert read[name] == getattr(values, name), name
    assert read["payload"] == payload
    assert _native.encode_frame(read) == frame


def test_packets_without_an_operation_have_no_field_of_it():
    read = _native.decode_frame(Frame(lab=Lab(), payload=b"data").encode(), striped=True)
    assert read["verb"] == 0
    assert not read.keys() & set(names_of(Operation())) - {"verb"}


@pytest.mark.parametrize(
    "changes",
    [
        *({"kind": kind} for kind in range(8) if kind not in (frames.DATA, frames.PARITY)),
        *({"lab_operation": Operation(verb=verb)} for verb in (0, 9, 0x7F, 0x80, 0x89, 0xFF)),
        *({"lab_operation": Operation(reserved=bits)} for bits in (1, 0x80)),
        *({"version": version} for version in (0, 2, 5, 12)),
    ],
    ids=str,
)
def test_what_is_no_operation_is_a_payload(changes):
    frame = Frame(lab=Lab(version=4), lab_operation=Operation(), payload=b"data")
    assert "kind" in _native.decode_frame(frame.encode(), striped=True)
    refused = frame.but(**changes)
    read = _native.decode_frame(refused.encode(), striped=True)
    assert not {"kind", "verb"} & read.keys()
    headers = refused.lab.encode() + refused.lab_operation.encode()
    assert read["payload"] == headers + b"data"


@BOTH
def test_an_operation_needs_all_of_its_bytes(ends):
    """Of whole packets that end within the operation, and of frames that are cut there."""
    whole = Frame(**ends, lab=Lab(version=4), lab_operation=Operation())
    head = whole.lab.encode() + whole.lab_operation.encode()
    for size in range(1, len(head) + 1):
        frame = dataclasses.replace(whole, lab=None, lab_operation=None, source_port=0xC000,
                                    payload=head[:size]).encode()  # fmt: skip
        read = _native.decode_frame(frame, striped=True)
        assert ("kind" in read) == (size == len(head)), size
    for length in range(len(whole.encode())):
        assert _native.decode_frame(whole.encode()[:length], striped=True) == "rx_truncated"


@given(st.binary(min_size=frames.OPERATION, max_size=frames.OPERATION + 8))
def test_any_bytes_behind_the_header_are_an_operation_or_a_payload(data):
    frame = Frame(lab=Lab(version=4), payload=data).encode()
    read = _native.decode_frame(frame, striped=True)
    if 1 <= data[0] & 0x7F <= 8 and data[4] == 0:
        assert _native.encode_frame(read) == frame
    else:
        assert read["payload"] == Lab(version=4).encode() + data


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


@pytest.mark.parametrize("path_mtu", [256, 4096])
@pytest.mark.parametrize("length", [0, 4056, 20_000])
@VERSIONS
def test_striped_messages_are_framed_as_said(length, path_mtu, addresses):
    sent, data = striped_frames(addresses, length, path_mtu)
    chunk = path_mtu - frames.LAB
    count = max(1, -(-length // chunk))
    assert len(sent) == count
    paths = []
    for index, frame in enumerate(sent):
        path = _native.decode_frame(frame, striped=True)["path"]
        lab = Lab(path=path, operation=1, step=2, message=3, index=index, count=count,
                  length=length, stamp_ns=77, number=paths.count(path))  # fmt: skip
        paths.append(path)
        payload = data[index * chunk : (index + 1) * chunk]
        ends = dict(zip(("source_ip", "destination_ip"), addresses, strict=True))
        assert frame == Frame(**ends, psn=index, qkey=0x1234, lab=lab, payload=payload).encode()
    assert len(set(paths)) == min(4, count)


# ---------------------------------------------------------------- addresses as numbers


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
    with pytest.raises(OSError, match="Invalid") as refusal:
        sender.frame(b"")
    assert refusal.value.errno == errno.EINVAL
    with pytest.raises(OSError, match="not supported") as refusal:
        sender.rnic.endpoint.connect(foreign[1], 0, 0x11, 0x12, 0)
    assert refusal.value.errno == errno.EAFNOSUPPORT
