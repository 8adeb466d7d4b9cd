# SPDX-License-Identifier: GPL-2.0-or-later
"""Queue pair 1 on the kernel's sockets: what it reads of Linux's frames, and what it sends."""

import os
import select
import socket
import subprocess
from ipaddress import IPv4Address, IPv6Address

import pytest
from scapy.utils import RawPcapReader

from softroce_lab import _native
from softroce_lab.fabric.net import links, netns
from softroce_lab.programs.rdmacm import mad_port
from softroce_lab.programs.rdmacm.connection import Send, Way
from softroce_lab.programs.rdmacm.mad_port import ROCE_UDP_PORT, MadPort
from softroce_lab.programs.rdmacm.messages import gid_of
from tests.programs.rdmacm.test_messages import CAPTURES

MAD = bytes(range(256))
RECORDED = [
    bytes(data)
    for name in ("rxe_rc", "rxe_ud")
    for data, _ in RawPcapReader(str(CAPTURES / f"{name}.pcap"))
    if _native.decode_frame(bytes(data))["infiniband.bth.destqp"] == 1
]
CHOSEN_BY_LINUX = {"eth.src", "eth.dst", "ip.id", "udp.srcport", "infiniband.bth.a"}
OWN = {4: IPv4Address("127.0.0.1"), 6: IPv6Address("fd00::1")}


def fields_of(frame):
    return {k: v for k, v in _native.decode_frame(frame).items() if k not in CHOSEN_BY_LINUX}


def test_linuxs_mads_are_read_and_sent_alike():
    assert len(RECORDED) == 9
    for frame in RECORDED:
        way, mad = mad_port.mad_in(frame)
        assert {way.local, way.peer} == {gid_of(IPv4Address(f"10.77.0.{n}")) for n in (10, 11)}
        psn = _native.decode_frame(frame)["infiniband.bth.psn"]
        ours = mad_port.frame_of(Send(Way(way.peer, way.local), mad), psn)
        assert fields_of(ours) == fields_of(frame)


def test_what_is_damaged_or_for_another_queue_pair_is_not_read():
    frame = RECORDED[0]
    for at in range(42, len(frame)):
        damaged = bytearray(frame)
        damaged[at] ^= 1
        resv8a = at == 46  # may be changed on the way
        assert (mad_port.mad_in(bytes(damaged)) is None) != resv8a, at
    own = _native.decode_frame(frame)
    for name, value in (("infiniband.bth.destqp", 2), ("infiniband.deth.q_key", 1)):
        assert mad_port.mad_in(_native.encode_frame(own | {name: value})) is None
    assert mad_port.mad_in(b"") is None


@pytest.fixture
def alone():
    """The test's thread is in a network namespace of its own, whose loopback is up."""
    fd = netns.create()
    with netns.entered(fd):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            links.raise_flags(control, "lo", links.IFF_UP)
        subprocess.run(["ip", "address", "add", str(OWN[6]), "dev", "lo"], check=True)
        yield
    os.close(fd)


def received(port):
    """What has come so far, within a moment."""
    ready, _, _ = select.select(port.receivers, [], [], 0.2)
    return [each for receiver in ready for each in port.receive(receiver)]


@pytest.mark.parametrize("version", [4, 6])
def test_the_kernel_sends_what_the_icrc_covers(alone, version):
    port = MadPort()
    gid = gid_of(OWN[version])
    way = Way(gid, gid)
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    for psn in range(2):
        port.send(Send(way, MAD))
        frame, _ = wire.recv(2048), wire.recv(2048)  # as it leaves, and as it comes
        fields = _native.decode_frame(frame)
        assert fields["infiniband.bth.psn"] == psn
        assert fields.get("ip.id", 0) == 0
        assert frame[40 if version == 4 else 60 :][:2] == b"\0\0"  # no UDP checksum
        assert received(port) == [(way, MAD)]
    wire.close()
    port.close()


def test_other_frames_of_roce_are_thrown_away_in_silence(alone):
    """Without an ICMP error, which the second send would raise."""
    port = MadPort()
    stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stranger.connect((str(OWN[4]), ROCE_UDP_PORT))
    for _ in range(2):
        stranger.send(bytes(300))
        assert received(port) == []
    stranger.close()
    port.close()
