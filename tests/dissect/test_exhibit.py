# SPDX-License-Identifier: GPL-2.0-or-later
"""Packets as text, whatever they are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether

from softroce_lab.dissect import (
    AETH,
    BTH,
    DETH,
    RETH,
    ImmDt,
    LabHeader,
    LabOperation,
    PacketSet,
    ReceiverReport,
    Sack,
    SdrClearToSend,
    cnp,
    exhibit,
)

HEAD = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
V4 = HEAD / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=0xC003)
V6 = HEAD / IPv6(src="fd00::1", dst="fd00::2") / UDP(sport=0xC003)
STRIPED = V4 / BTH(destqp=0x12, psn=9) / DETH(q_key=1, srcqp=0x12)
ENDS = "10.0.0.1:49155 > 10.0.0.2: "

LINES = {
    ENDS + "RC RDMA WRITE Only qp 0x11 psn 5 ack-req, va 0x1000 r_key 0x7 dmalen 3, 3 bytes": V4
    / BTH(destqp=0x11, psn=5, a=1)
    / RETH(va=0x1000, r_key=7, dmalen=3)
    / b"abc",
    "fd00::1:49155 > fd00::2: RC Acknowledge qp 0x0 psn 0, NAK, PSN Sequence Error msn 4": V6
    / BTH()
    / AETH(syndrome=0x60, msn=4),
    ENDS + "CNP qp 0x5 psn 0": V4 / cnp(5),
    ENDS + "UC RDMA WRITE Only with Immediate qp 0x800001 psn 0, va 0x0 r_key 0x7 dmalen 3 "
    "immdt 0xc00115 (if of uc_immediate: slot 3 offset 17 user 5), 3 bytes": V4
    / BTH(opcode=0x2B, destqp=0x800001)
    / RETH(r_key=7, dmalen=3)
    / ImmDt(immdt=0xC00115)
    / b"abc",
    ENDS + "RC RDMA WRITE Only with Immediate qp 0x0 psn 0, va 0x0 r_key 0x0 dmalen 0 "
    "immdt 0xc00115": V4 / BTH() / RETH() / ImmDt(immdt=0xC00115),
    ENDS + "RC SEND Only qp 0x12 psn 0, 16 bytes (if of the SDR SDK: SDR clear to send "
    "number 4 key 9 length 5000)": V4
    / BTH(destqp=0x12)
    / SdrClearToSend(number=4, key=9, length=5000),
    ENDS + "UD SEND Only qp 0x12 psn 9, data 1.2.3 id 4 packet 5/6 attempt 1": STRIPED
    / LabHeader(
        operation=1, step=2, message=3, message_id=4, index=5, count=6, attempt=1, length=9
    )
    / b"data",
    ENDS + "UD SEND Only qp 0x12 psn 9, parity 1.2.3 id 4 packet 7/6": STRIPED
    / LabHeader(kind=4, operation=1, step=2, message=3, message_id=4, index=7, count=6, code=6)
    / b"parity",
    ENDS + "UD SEND Only qp 0x12 psn 9, WRITE 7 of QP 0x101f2 id 4 packet 3/68 attempt 1": STRIPED
    / LabHeader(operation=0x101, step=0x1F2, message=7, message_id=4, index=3, count=68, attempt=1)
    / LabOperation(remote_address=1 << 40, rkey=5)
    / b"data",
    ENDS + "UD SEND Only qp 0x12 psn 9, parity of result of READ 7 of QP 0x1f2 id 4 packet 69/68"
    : STRIPED
    / LabHeader(kind=4, operation=0x200, step=0x1F2, message=7, message_id=4, index=69, count=68)
    / LabOperation(verb=6)
    / b"parity",
    ENDS + "UD SEND Only qp 0x12 psn 9, control 7, SACK id 4 operation 1 step 2 message 3 "
    "missing [3, 5-6]": STRIPED
    / LabHeader(message=7)
    / Sack(id=4, operation=1, step=2, message=3, missing=[PacketSet.of([3, 5, 6])]),
    ENDS + "UD SEND Only qp 0x12 psn 9, probe 5": STRIPED / LabHeader(kind=3, message=5),
    ENDS + "UD SEND Only qp 0x12 psn 9, report 0, receiver report echo_stamp_ns 0 "
    "echo_delay_ns 0 credit_packets 8 packets 0 ce_packets 0 lost_packets 0 loss_bursts 0 "
    "marked_paths 0 paths 1 "
    "arrived [0.0]": STRIPED
    / LabHeader()
    / ReceiverReport(credit_packets=8),
}  # fmt: skip


@pytest.mark.parametrize(("line", "packet"), LINES.items(), ids=range(len(LINES)))
def test_a_packet_in_one_line(line, packet):
    assert exhibit.summary(bytes(packet)) == line


def test_what_is_wrong_is_said_in_the_line():
    frame = bytes(V4 / BTH() / b"abcd")
    assert exhibit.summary(frame[:-1] + bytes([frame[-1] ^ 1])).endswith(", 4 bytes, wrong ICRC")
    assert exhibit.summary(frame[:-2]).endswith(", snapped")


def test_strangers_are_named():
    assert "ARP" in exhibit.summary(bytes(HEAD / ARP()))
    assert "TCP" in exhibit.summary(bytes(HEAD / IP(dst="10.0.0.2") / TCP()))
    assert exhibit.summary(b"") == exhibit.summary(b"\x01") == "Raw"


def test_every_field_is_shown():
    text = exhibit.show(bytes(STRIPED / LabHeader(message_id=77) / bytes(2000)))
    for line in ("Ethernet", "sport     = 49155", "srcqp     = 0x000012", "message_id= 77"):
        assert line in text
    uc = V4 / BTH(opcode=0x2B) / RETH() / ImmDt(immdt=0xC00115)
    meant = "0xc00115 [if of uc_immediate: slot 3 offset 17 user 5]"
    assert meant in exhibit.show(bytes(uc))
    assert "if of" not in exhibit.show(bytes(V4 / BTH() / RETH() / ImmDt(immdt=0xC00115)))
    assert max(map(len, text.splitlines())) < 160
    assert "2000 bytes: 00 00" in text
    assert "[right]" in text


@given(st.binary(max_size=120))
def test_anything_behind_udp_can_be_shown(data):
    frame = bytes(HEAD / IP(dst="10.0.0.2") / UDP(dport=4791) / data)
    assert isinstance(exhibit.show(frame), str)
    assert "\n" not in exhibit.summary(frame)
