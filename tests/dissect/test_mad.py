# SPDX-License-Identifier: GPL-2.0-or-later
"""Messages of the connection manager: our layers beside the manager's own records, and tshark."""

import dataclasses
import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import UDP

from softroce_lab.dissect import BTH, DETH, MAD, CmReq, Payload, exhibit, mad, parse
from softroce_lab.programs.rdmacm import messages
from softroce_lab.programs.rdmacm.messages import Attribute, Mad, Path
from tests.dissect import transports, tshark
from tests.dissect.test_roce import OVER_IP, forget

KINDS = [Attribute(each) for each in mad.MESSAGES]
HEAD = OVER_IP["ipv4"] / UDP() / BTH(destqp=1) / DETH(srcqp=1, q_key=messages.GSI_QKEY)


def plain(value):
    """As a number or bytes, whichever reader told it."""
    if isinstance(value, str | ipaddress.IPv6Address):
        return int(ipaddress.ip_address(value))
    return value


def check_record(layer, record, prefix=""):
    """Every field of a record is told by the layer; a path's under its name."""
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if isinstance(value, Path):
            check_record(layer, value, f"{field.name}_")
        else:
            assert plain(layer.getfieldval(prefix + field.name)) == plain(value), field.name


@pytest.mark.parametrize("kind", KINDS, ids=lambda each: each.name)
@settings(max_examples=5)
@given(data=st.data())
def test_any_message_is_read_as_the_manager_reads_it(kind, data):
    octets = bytearray(data.draw(st.binary(min_size=256, max_size=256)))
    octets[:4] = 1, 7, 2, 3
    octets[16:18] = kind.to_bytes(2, "big")
    read = Mad.parse(bytes(octets))
    layer = MAD(bytes(octets))
    check_record(layer, read.header)
    check_record(layer.payload, read.message)
    assert type(layer.payload) is mad.MESSAGES[kind]
    assert layer.payload.name.startswith(f"{kind.name} - ")
    assert bytes(forget(layer)) == octets


def test_names_of_attributes_are_the_manager_s():
    names = MAD().get_field("attribute_id").i2s
    assert dict(names) == {each.value: each.name for each in Attribute}


def test_defaults_build_what_the_manager_takes():
    for kind, layer in mad.MESSAGES.items():
        frame = bytes(HEAD / MAD(tid=5) / layer())
        packet = parse(frame)
        octets = bytes(packet[MAD])
        assert len(octets) == mad.BYTES
        assert (Mad.parse(octets).message.ATTRIBUTE, Mad.parse(octets).header.tid) == (kind, 5)
        assert packet[BTH].icrc_is_right() is True


def test_wireshark_tells_the_same(tmp_path):
    """Which message, in which transaction, of which communications."""
    frames = transports.management()
    names = ("infiniband.mad.attributeid", "infiniband.mad.transactionid", "_ws.col.Info")
    reported = tshark.fields(tmp_path, tshark.write_pcap(tmp_path / "x.pcap", frames), names)
    kinds = set()
    for frame, line in zip(frames, reported, strict=True):
        layer = parse(frame)[MAD]
        assert int(line[names[0]][0], 0) == layer.attribute_id
        assert int(line[names[1]][0], 0) == layer.tid
        kinds.add(layer.attribute_id)
        assert f"CM {Attribute(layer.attribute_id).name} " in exhibit.summary(frame)
    assert {Attribute.REQ, Attribute.REP, Attribute.RTU, Attribute.REJ, Attribute.DREQ} <= kinds


def test_others_are_payloads():
    """Another class, another attribute, a message that is cut, another queue pair."""
    others = (MAD(mgmt_class=1, attribute_id=0x10), MAD(attribute_id=0x1B))
    for head in others:
        assert Payload in parse(bytes(HEAD / head / bytes(232)))
    assert Payload in parse(bytes(HEAD / MAD() / CmReq())[:250])
    elsewhere = HEAD.copy()
    elsewhere[BTH].destqp = 2
    assert MAD not in parse(bytes(elsewhere / MAD() / CmReq()))
