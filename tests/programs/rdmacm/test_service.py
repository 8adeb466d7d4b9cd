# SPDX-License-Identifier: GPL-2.0-or-later
"""RDMA IP CM service: service ids and the header in private data."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.programs.rdmacm.layout import LayoutError
from softroce_lab.programs.rdmacm.service import (
    IpHeader,
    address_of,
    gid_of,
    rdma_port_space,
    service_id,
)

addresses = st.one_of(
    st.tuples(st.ip_addresses(v=4), st.ip_addresses(v=4)),
    st.tuples(st.ip_addresses(v=6), st.ip_addresses(v=6)),
)


@pytest.mark.parametrize(
    ("space", "made"),
    [("TCP", 0x01061C06), ("UDP", 0x01111C06), ("IB", 0x013F1C06), ("IPOIB", 0x00021C06)],
)
def test_a_service_id_is_the_port_space_and_the_port(space, made):
    assert service_id(rdma_port_space[f"RDMA_PS_{space}"], 7174) == made


@given(port=st.integers(0, 0xFFFF), ends=addresses)
def test_build_and_parse_are_inverses(port, ends):
    header = IpHeader(port, *ends)
    assert IpHeader.parse(header.build() + b"user data") == header


@pytest.mark.parametrize("head", [b"\x01\x40", b"\x00\x50", b"\x00\x00"])
def test_other_versions_are_refused(head):
    with pytest.raises(LayoutError, match="is no IP CM header"):
        IpHeader.parse(head + bytes(34))


def test_a_long_ipv4_address_is_refused():
    with pytest.raises(LayoutError, match="longer than 32 bits"):
        IpHeader.parse(b"\x00\x40\x00\x00" + b"\x01" + bytes(31))


def test_data_that_is_too_short_is_refused():
    with pytest.raises(LayoutError):
        IpHeader.parse(bytes(35))


@given(st.ip_addresses())
def test_a_gid_stands_for_an_address(address):
    mapped = isinstance(address, IPv6Address) and address.ipv4_mapped
    assert address_of(gid_of(address)) == (mapped or address)


def test_an_ipv4_address_is_mapped():
    assert gid_of(IPv4Address("10.77.0.11")) == IPv6Address("::ffff:10.77.0.11")
