# SPDX-License-Identifier: GPL-2.0-or-later
"""Every packet that any transport of ours sends: tshark, our layers and our codec tell the same."""

import dataclasses
from collections import Counter

import pytest

from softroce_lab.dissect import (
    AETH,
    BTH,
    RETH,
    Hello,
    ImmDt,
    LabHeader,
    LabOperation,
    PacketSet,
    ReceiverReport,
    SdrClearToSend,
    description,
    syndrome,
)
from softroce_lab.dissect.lab import CONTROLS, Body, Clear, text_of
from softroce_lab.transports import control, registry, sdr
from tests.dissect import readers, transports
from tests.native.opcodes import OPCODES
from tests.transports.sdr.test_sdk import LENGTH, MTU

TELLS = {"csa_ud": {description.NACK}, "ud_rto": {description.SACK}}
ACKNOWLEDGES_PACKETS = {
    "irn": description.PACKET_NACK,
    "srnic": description.PACKET_SACK,
    "rack_tlp": description.PACKET_SACK,
    "falcon": description.PACKET_SACK,
    "dcp": description.PACKET_ACK,
    "ndp": description.PACKET_SACK,
    "uet_rud": description.PACKET_SACK,
    "uet_rod": description.PACKET_NACK,
    "mrc": description.PACKET_SACK,
    "uccl": description.PACKET_SACK,
}
TELLS |= {
    name: {description.SACK, description.PACKET_ACK, gap}
    for name, gap in ACKNOWLEDGES_PACKETS.items()
}
TELLS["ndp"] |= {description.PACKET_PULL}
OF_PACKETS = {
    description.PACKET_ACK, description.PACKET_NACK, description.PACKET_SACK,
    description.PACKET_TRIMMED, description.PACKET_PULL,
}  # fmt: skip
SENT_BY_NONE = {0x81}  # CNP: known to the codec, and sent by nothing yet


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """What each transport sends, as layers, after all readers have told the same of it."""
    homes = {name: tmp_path_factory.mktemp("home") for name in transports.ALL}
    return {
        name: readers.check_all(frames(), homes[name]) for name, frames in transports.ALL.items()
    }


def test_all_readers_tell_the_same_of_all_that_we_send(reported):
    assert set(registry.transports(registry.Kind.SESSION)) <= set(reported)
    assert all(len(packets) > 5 for packets in reported.values())
    seen = {packet[BTH].opcode for packets in reported.values() for packet in packets}
    assert seen == set(OPCODES) - SENT_BY_NONE


def test_all_kinds_of_striped_packets_are_among_them(reported):
    for name in registry.transports(registry.Kind.SESSION):
        bodies = Counter(type(packet[LabHeader].payload) for packet in reported[name])
        shows = TELLS.get(name, {description.CHUNKS})
        of_some = {description.CLEAR, description.CHUNKS, *OF_PACKETS}.union(*TELLS.values())
        if name in ACKNOWLEDGES_PACKETS:
            of_some |= {description.ACK, description.KEEPALIVE}
        wanted = {CONTROLS[each] for each in (CONTROLS.keys() - of_some) | shows}
        assert wanted | {ReceiverReport} <= set(bodies), bodies
        assert any(packet[LabHeader].attempt for packet in reported[name])
        kinds = {packet[LabHeader].kind for packet in reported[name]}
        assert (description.PATH_PROBE in kinds) == (name == "csa_ud")
        assert (description.PARITY in kinds) == (name in ("csa_ud", "sdr_auto", "sdr_ec")), name


def test_what_operations_say_of_themselves_is_told(reported):
    packets = [each for each in reported["RC over csa_ud"] if LabOperation in each]
    assert {each[LabOperation].verb for each in packets} == set(description.VERBS)
    assert {each[LabOperation].solicited for each in packets} == {0, 1}
    assert any(each[LabHeader].attempt for each in packets)
    results = [each for each in packets if each[LabHeader].operation >> 8 == description.RESULT]
    assert {description.VERBS[each[LabOperation].verb] for each in results} == {
        "READ", "COMPARE SWAP", "FETCH ADD",
    }  # fmt: skip


def test_hellos_are_told(reported):
    layers = [packet[Hello] for packet in reported["hellos"]]
    assert [text_of(each.transport) for each in layers][:3] == [
        "rc", "csa_ud", "a_policy_with_24_letters",
    ]  # fmt: skip
    assert [(each.version, each.answer) for each in layers][::3] == [(1, 0), (1, 1), (2, 1)]
    assert {each.nonce for each in layers} == {2**63 + 1}
    assert {each.incarnation for each in layers} == {2**64 - 2}
    assert [each.digest for each in layers][:3] == [2, 6, 24]


def test_what_uc_frames_carry_is_told(reported):
    """UC WRITE ONLY with immediate; slot, packet and address agree."""
    for name in ("sdr_sr over UC", "sdr_sr over UC and IPv6"):
        data = [packet for packet in reported[name] if RETH in packet]
        assert len(data) > 200
        for packet in data:
            slot, offset = packet[ImmDt].slot, packet[ImmDt].offset
            assert packet[BTH].opcode == 0x2B
            assert packet[RETH].va == (slot << 18 | offset) * 1024
            assert packet[RETH].dmalen == len(readers.payload_of(packet))
        assert {packet[ImmDt].user for packet in data} > {0}
        clears = [packet[Clear] for packet in reported[name] if Clear in packet]
        assert {each.root_key for each in clears} >= {packet[RETH].r_key for packet in data}


def test_what_the_sdk_s_packets_carry_is_told(reported):
    """What was posted: three receives in two slots, all with one immediate."""
    clears = [packet[SdrClearToSend] for packet in reported["SDR SDK"] if SdrClearToSend in packet]
    assert [(each.number, each.length) for each in clears] == [
        (number, LENGTH - number) for number in range(3)
    ]
    of_key = {each.key: each.number for each in clears}
    assert len(of_key) == 3
    data = [packet for packet in reported["SDR SDK"] if ImmDt in packet]
    for packet in data:
        layer = packet[ImmDt]
        assert layer.slot == of_key[packet[RETH].r_key] % 2
        assert packet[RETH].va == layer.offset * MTU
        assert layer.user == transports.IMMEDIATE >> 4 * (layer.offset % 8) & 15
        assert layer.immdt == sdr.immediate(layer.slot, layer.offset, transports.IMMEDIATE)
    assert {packet[ImmDt].offset for packet in data} == set(range(-(-LENGTH // MTU)))


def test_all_kinds_of_acknowledgements_are_among_them(reported):
    syndromes = {packet[AETH].syndrome for packet in reported["RC"] if AETH in packet}
    assert {syndrome.kind(each) for each in syndromes} == {
        syndrome.ACK, syndrome.RNR_NAK, syndrome.NAK,
    }  # fmt: skip
    codes = {syndrome.value(each) for each in syndromes if syndrome.kind(each) == syndrome.NAK}
    assert codes == {0, 2}  # out of sequence, remote access


def test_control_messages_say_what_was_meant(reported):
    """Our layers beside the decoder of the policies."""
    *bodies, cut = (packet[LabHeader].payload for packet in reported["control messages"])
    assert (cut.id, cut.cumulative, cut.echo_stamp_ns) == (1, 2, 3)
    assert (cut.packet, cut.path, cut.at_last_hop) == (4, 5, 1)
    assert len(bodies) == len(transports.CONTROLS)
    for body, meant in zip(bodies, transports.CONTROLS, strict=True):
        assert isinstance(body, Body)
        decoded = control.decode(bytes(body))
        check_message(body, decoded)
        assert type(decoded) is type(meant)


def check_message(body, decoded):
    """The layer's fields are those of the decoded message."""
    output = {field.name: getattr(decoded, field.name) for field in dataclasses.fields(decoded)}
    missing = output.pop("missing", None)
    assert [packets_of(each) for each in getattr(body, "missing", [])] == (
        [] if missing is None else [missing.indices().tolist()]
    )
    key = output.pop("key", None)
    assert key is None or (body.operation, body.step, body.message) == key
    if isinstance(decoded, control.Nack):
        assert body.timer << 1 | body.probe == output.pop("flags") & 3
        assert tuple(body.getfieldval(f"settled_{n}") for n in range(16)) == output.pop("settled")
        assert tuple((each.id, each.base, each.bits) for each in body.words) == output.pop("words")
        packets = tuple((each.path, each.number) for each in body.trimmed_packets)
        assert packets == output.pop("trimmed")
    for name, value in output.items():
        assert values_of(body, name) == (value or 0 if not isinstance(value, tuple) else value)


def values_of(body, name):
    if name == "why":
        return sum(each.code for each in body.why)
    if name == "ids":
        return tuple(each.id for each in body.messages)
    if name == "messages":
        return tuple((each.id, (each.operation, each.step, each.message)) for each in body.messages)
    if name == "receives":
        return tuple(
            (each.id, (each.operation, each.step, each.message), each.length)
            for each in body.receives
        )
    return body.getfieldval(name)


def packets_of(packet_set):
    assert isinstance(packet_set, PacketSet)
    ranges = packet_set.ranges()
    return [each % 2**32 for first, last in ranges for each in range(first, last + 1)]
