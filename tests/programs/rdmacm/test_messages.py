# SPDX-License-Identifier: GPL-2.0-or-later
"""The MADs beside Linux's: every one that rxe's captures hold is read rightly and rebuilt."""

import functools
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest
from scapy.utils import RawPcapReader

from softroce_lab.programs.rdmacm.layout import LayoutError
from softroce_lab.programs.rdmacm.messages import (
    MAD_BYTES,
    MESSAGES,
    Attribute,
    Drep,
    Dreq,
    Mad,
    MadHeader,
    Rep,
    Req,
    Rtu,
    SidrRep,
    SidrReq,
)
from softroce_lab.programs.rdmacm.service import IpHeader

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
_UDP_AT, _BTH_AT, _MAD_AT, _ICRC_BYTES = 34, 42, 62, 4
_DETH_QKEY = slice(54, 58)


@functools.cache
def captured(name):
    """MADs of a capture in their order: datagrams over IPv4 to QP 1."""
    with RawPcapReader(str(CAPTURES / f"{name}.pcap")) as reader:
        frames = [bytes(data) for data, _ in reader]
    to_gsi = [f for f in frames if f[36:38] == b"\x12\xb7" and f[_BTH_AT + 5 :][:3] == b"\0\0\1"]
    assert all(frame[_DETH_QKEY].hex() == "80010000" for frame in to_gsi)
    return [frame[_MAD_AT:-_ICRC_BYTES] for frame in to_gsi]


def all_captured():
    return [*captured("rxe_rc"), *captured("rxe_ud")]


def test_the_captures_hold_what_they_are_known_to_hold():
    kinds = [Mad.parse(octets).message.ATTRIBUTE.name for octets in all_captured()]
    assert kinds == ["REQ", "REP", "RTU", "DREQ", "DREP", *2 * ["SIDR_REQ"], *2 * ["SIDR_REP"]]


@pytest.mark.parametrize("number", range(9))
def test_every_mad_of_linux_is_rebuilt_byte_by_byte(number):
    octets = all_captured()[number]
    assert Mad.parse(octets).build() == octets


def message(number):
    return Mad.parse(all_captured()[number]).message


def test_a_req_of_linux():
    req = message(0)
    assert isinstance(req, Req)
    assert (req.service_id, req.local_qpn, req.starting_psn) == (0x01061C06, 0x2C, 0xEC2AD6)
    assert (req.responder_resources, req.initiator_depth) == (1, 1)
    assert (req.remote_cm_response_timeout, req.local_cm_response_timeout) == (20, 20)
    assert (req.retry_count, req.rnr_retry_count, req.max_cm_retries) == (7, 7, 15)
    assert (req.partition_key, req.path_mtu, req.local_ca_guid) == (0xFFFF, 3, 0x505400FFFE770011)
    path = req.primary
    assert (path.local_lid, path.remote_lid, path.hop_limit) == (0xFFFF, 0xFFFF, 64)
    assert path.local_gid == IPv6Address("::ffff:10.77.0.11")
    assert path.remote_gid == IPv6Address("::ffff:10.77.0.10")
    assert (path.flow_label, path.local_ack_timeout, path.subnet_local) == (0x88E07, 19, 0)


def test_the_ip_header_of_a_req_of_linux():
    header = IpHeader.parse(message(0).private_data)
    ends = (IPv4Address("10.77.0.11"), IPv4Address("10.77.0.10"))
    assert header == IpHeader(51679, *ends)
    assert message(0).private_data == header.build().ljust(92, b"\0")


def test_a_rep_of_linux():
    req, rep = message(0), message(1)
    assert isinstance(rep, Rep)
    assert rep.remote_comm_id == req.local_comm_id
    assert (rep.local_qpn, rep.starting_psn) == (0x2C, 0xE835EE)
    assert (rep.responder_resources, rep.initiator_depth, rep.target_ack_delay) == (1, 1, 15)
    assert (rep.rnr_retry_count, rep.srq, rep.flow_control) == (7, 0, 0)
    assert rep.local_ca_guid == 0x505400FFFE770010


def test_the_other_messages_of_linux():
    rep, rtu, dreq, drep = (message(n) for n in (1, 2, 3, 4))
    assert isinstance(rtu, Rtu)
    assert isinstance(dreq, Dreq)
    assert isinstance(drep, Drep)
    active, passive = rep.remote_comm_id, rep.local_comm_id
    assert (rtu.local_comm_id, rtu.remote_comm_id) == (active, passive)
    assert (dreq.local_comm_id, dreq.remote_comm_id) == (active, passive)
    assert (drep.local_comm_id, drep.remote_comm_id) == (passive, active)
    assert dreq.remote_qpn == rep.local_qpn


def test_a_service_id_resolution_of_linux():
    asked, answered = message(5), message(7)
    assert isinstance(asked, SidrReq)
    assert isinstance(answered, SidrRep)
    assert asked.service_id == answered.service_id == 0x01111C06
    assert answered.request_id == asked.request_id
    assert (answered.status, answered.qpn, answered.qkey) == (0, 20, 0x01234567)
    assert IpHeader.parse(asked.private_data).port == 44967


@pytest.mark.parametrize("attribute", list(Attribute), ids=lambda each: each.name)
def test_every_message_has_a_mad(attribute):
    mad = Mad.of(7, MESSAGES[attribute]())
    assert len(mad.build()) == MAD_BYTES
    assert Mad.parse(mad.build()) == mad


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"base_version": 2}, "base version"),
        ({"mgmt_class": 3}, "class"),
        ({"class_version": 1}, "class version"),
        ({"method": 0x83}, "method"),
        ({"attribute_id": 0x0F}, "0xf is no CM message"),
        ({"attribute_id": 0x1B}, "0x1b is no CM message"),
    ],
)
def test_other_mads_are_not_the_cms(change, why):
    header = MadHeader(**{"attribute_id": Attribute.RTU, **change})
    with pytest.raises(LayoutError, match=why):
        Mad.parse(header.build() + bytes(232))


@pytest.mark.parametrize("size", [0, 255, 257])
def test_a_mad_has_256_bytes(size):
    with pytest.raises(LayoutError, match=f"{size} bytes, a MAD has 256"):
        Mad.parse(bytes(size))
