# SPDX-License-Identifier: GPL-2.0-or-later
"""The MADs beside Linux's: every one that rxe's captures hold is read rightly and rebuilt."""

import functools
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.utils import RawPcapReader

from softroce_lab.programs.rdmacm import messages
from softroce_lab.programs.rdmacm.messages import (
    MAD_BYTES,
    MESSAGES,
    Attribute,
    IpHeader,
    LayoutError,
    Mad,
    MadHeader,
    Req,
    address_of,
    gid_of,
)  # fmt: skip
from softroce_lab.programs.rdmacm.messages import (
    Path as IbPath,
)

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


def test_every_mad_of_linux_is_rebuilt_byte_by_byte():
    octets = [*captured("rxe_rc"), *captured("rxe_ud")]
    mads = [Mad.parse(each) for each in octets]
    kinds = [each.message.ATTRIBUTE.name for each in mads]
    assert kinds == ["REQ", "REP", "RTU", "DREQ", "DREP", *2 * ["SIDR_REQ"], *2 * ["SIDR_REP"]]
    assert [each.build() for each in mads] == octets


def test_fields_of_linuxs_messages():
    req, rep, _, dreq, drep = (Mad.parse(octets).message for octets in captured("rxe_rc"))
    assert (req.service_id, req.local_qpn, req.starting_psn) == (0x01061C06, 0x2C, 0xEC2AD6)
    assert (req.responder_resources, req.initiator_depth) == (1, 1)
    assert (req.remote_cm_response_timeout, req.local_cm_response_timeout) == (20, 20)
    assert (req.retry_count, req.rnr_retry_count, req.max_cm_retries) == (7, 7, 15)
    assert (req.partition_key, req.path_mtu, req.local_ca_guid) == (0xFFFF, 3, 0x505400FFFE770011)
    path = req.primary
    assert (path.local_lid, path.remote_lid, path.hop_limit) == (0xFFFF, 0xFFFF, 64)
    assert path.local_gid == IPv6Address("::ffff:10.77.0.11")
    assert (path.flow_label, path.local_ack_timeout, path.subnet_local) == (0x88E07, 19, 0)
    ends = IPv4Address("10.77.0.11"), IPv4Address("10.77.0.10")
    assert IpHeader.parse(req.private_data) == IpHeader(51679, *ends)
    assert (rep.local_qpn, rep.starting_psn, rep.target_ack_delay) == (0x2C, 0xE835EE, 15)
    assert (rep.rnr_retry_count, rep.srq, rep.flow_control) == (7, 0, 0)
    assert (drep.local_comm_id, dreq.local_comm_id) == (rep.local_comm_id, req.local_comm_id)
    asked, _, answered, _ = (Mad.parse(octets).message for octets in captured("rxe_ud"))
    assert (asked.service_id, answered.request_id) == (0x01111C06, asked.request_id)
    assert (answered.status, answered.qpn, answered.qkey) == (0, 20, 0x01234567)


@pytest.mark.parametrize(
    "kind",
    [MadHeader, IbPath, messages._Header, *MESSAGES.values()],
    ids=lambda kind: kind.__name__,
)
@given(data=st.data())
def test_parsed_octets_are_rebuilt_but_for_reserved_bits(kind, data):
    octets = data.draw(st.binary(min_size=kind.SIZE_BYTES, max_size=kind.SIZE_BYTES))
    kept = bytes(a & b for a, b in zip(octets, kind.defined(), strict=True))
    record = kind.parse(octets)
    assert record.build() == kept
    assert kind.parse(kept) == record


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"local_qpn": 1 << 24}, "local_qpn: 0x1000000 does not fit 24 bits"),
        ({"srq": -1}, "srq: -0x1 does not fit 1 bits"),
        ({"private_data": bytes(93)}, "private_data: 93 bytes, 92 fit"),
    ],
)
def test_values_that_do_not_fit_are_refused(values, why):
    with pytest.raises(LayoutError, match=why):
        Req(**values).build()


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
    with pytest.raises(LayoutError, match=f"257 bytes, a MAD has {MAD_BYTES}"):
        Mad.parse(bytes(257))


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        (b"\x01\x40" + bytes(34), "is no IP CM header"),
        (b"\x00\x50" + bytes(34), "is no IP CM header"),
        (b"\x00\x40\x00\x00\x01" + bytes(31), "longer than 32 bits"),
        (bytes(35), "35 bytes"),
    ],
)
def test_private_data_without_addresses_is_refused(octets, why):
    with pytest.raises(LayoutError, match=why):
        IpHeader.parse(octets)


@given(st.ip_addresses())
def test_a_gid_stands_for_an_address(address):
    mapped = isinstance(address, IPv6Address) and address.ipv4_mapped
    assert address_of(gid_of(address)) == (mapped or address)
    header = IpHeader(7, address, address)
    assert IpHeader.parse(header.build() + b"user data") == header
