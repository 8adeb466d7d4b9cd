# SPDX-License-Identifier: GPL-2.0-or-later
"""The one description of the lab's headers beside their definitions: C header, policies, engine."""

import pathlib
import re
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import UDP
from scapy.packet import Raw

from softroce_lab import _native
from softroce_lab.dissect import (
    BTH,
    DETH,
    ImmDt,
    LabHeader,
    LabOperation,
    PacketSet,
    ReceiverReport,
    SdrClearToSend,
    description,
    parse,
)
from softroce_lab.dissect.lab import CONTROLS
from softroce_lab.errors import ibv_wc_status
from softroce_lab.paths import XDP
from softroce_lab.structs import enumerators
from softroce_lab.transports import control, sdr
from tests import control_bodies
from tests.dissect import readers
from tests.dissect.test_roce import OVER_IP, forget
from tests.dissect.test_transports import check_message, packets_of
from tests.native import frames
from tests.transports.test_control import MESSAGES, SETS

BODIES = pathlib.Path(__file__).parents[2] / "native" / "transport" / "bodies.hpp"
FRAMING = BODIES.parents[1] / "engine" / "striped" / "uc_framing.hpp"
HEAD = OVER_IP["ipv4"] / UDP()
WIRE_H = (XDP / "lab_wire.h").read_text()
C_BITS = {"char": 8, "short": 16, "int": 32, "long long": 64}


def defined(name):
    """The number that xdp/lab_wire.h gives a name."""
    return int(re.search(rf"\b{name}\s*=?\s*(0x[0-9A-Fa-f]+|\d+)", WIRE_H)[1], 0)


# ---------------------------------------------------------------- struct lab_hdr


@pytest.mark.parametrize(
    ("struct_name", "record", "split"),
    [
        (
            "lab_hdr",
            description.HEADER,
            {
                "version_kind": ["version", "trimmed", "kind"],
                "code_count": ["code", "count"],
                "epoch_number": ["epoch", "number"],
            },
        ),
        (
            "lab_operation",
            description.OPERATION,
            {
                "verb_receive": ["solicited", "verb", "receive"],
                "connection": ["reserved", "connection"],
            },
        ),
    ],
)
def test_headers_are_the_c_structs(struct_name, record, split):
    body = re.search(rf"struct {struct_name} \{{(.*?)\}};", WIRE_H, re.DOTALL)[1]
    in_c = [(name, C_BITS[kind]) for kind, name in re.findall(r"unsigned ([\w ]+) (\w+);", body)]
    described = [(part.name, part.bits) for part in record.parts]
    bits = dict(described)
    assert [name for name, _ in described] == [
        part for name, _ in in_c for part in split.get(name, [name])
    ]
    assert [sum(bits[part] for part in split.get(name, [name])) for name, _ in in_c] == [
        size for _, size in in_c
    ]


def test_constants_are_those_of_the_c_header():
    assert defined("LAB_HDR_VERSION") == description.HEADER_VERSION
    assert description.HEADER_BYTES == defined("LAB_HDR_BYTES") == len(LabHeader())
    assert defined("LAB_UDP_SPORT_BASE") == description.SPORT_BASE
    assert {
        defined(f"LAB_KIND_{name.upper()}"): name for name in description.KINDS.values()
    } == description.KINDS
    assert defined("LAB_HDR_TRIMMED") == 8
    assert defined("LAB_TRIM_LAST_DSCP") == description.TRIM_LAST_DSCP
    assert defined("LAB_OPERATION_VERSION") == description.OPERATION_VERSION
    assert description.OPERATION_BYTES == defined("LAB_OPERATION_BYTES") == len(LabOperation())
    assert defined("LAB_VERB_SOLICITED") == 0x80
    assert defined("LAB_CLASS_RESULT") == description.RESULT
    assert {
        number: name.replace("_", " ").upper() for name, number in enumerators("lab_verb").items()
    } == {0: "NONE"} | description.VERBS


def test_names_of_values_are_those_of_the_policies():
    names = (
        "NACK",
        "ACK",
        "KEEPALIVE",
        "RNR",
        "REFUSE",
        "SACK",
        "CHUNKS",
        "CLEAR",
    )
    policies = {getattr(control, name): name.replace("_", " ") for name in names}
    assert set(policies) == set(control.MESSAGES)
    engines = {
        int(number): name.upper().replace("_", " ")
        for name, number in re.findall(r"^  (\w+) = (\d+),", BODIES.read_text(), re.MULTILINE)
    }
    assert policies | engines == description.TYPES
    assert {each.value: each.name for each in ibv_wc_status} == description.STATUSES
    assert (control._PLAIN, control._RUNS) == (description.PLAIN, description.RUNS)
    assert description.MOST_IN_SET == control.MOST_IN_SET


@pytest.mark.parametrize(
    "changes",
    [{"version": 2}, {"version": 4}, {"version": 0}, {"kind": 5}, {"kind": 7, "trimmed": 1}],
)
def test_what_our_engine_would_not_take_is_a_payload(changes):
    frame = frames.Frame(lab=frames.Lab(**changes), payload=b"12345678").encode()
    packet = parse(frame)
    assert LabHeader not in packet
    assert len(packet[Raw].load) == 48


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": description.CONTROL},
        {"kind": 5},
        {"version": 5},
        {"lab_operation": frames.Operation(verb=0)},
        {"lab_operation": frames.Operation(verb=0x89)},
        {"lab_operation": frames.Operation(reserved=1)},
        {"lab_operation": None},
    ],
)
def test_an_operation_that_our_engine_would_not_take_is_a_payload(changes):
    taken = frames.Frame(
        lab=frames.Lab(version=4), lab_operation=frames.Operation(), payload=b"12345678"
    )
    assert parse(taken.encode())[LabOperation].verb == 1
    packet = parse(taken.but(**changes).encode())
    assert LabHeader not in packet
    assert packet[Raw].load.endswith(b"12345678")


def test_a_header_on_another_path_s_port_is_a_payload():
    frame = frames.Frame(lab=frames.Lab(path=3), source_port=0xC004).encode()
    assert LabHeader not in parse(frame)
    assert parse(frames.Frame(lab=frames.Lab(path=3)).encode())[LabHeader].path == 3


def test_defaults_build_what_the_engine_takes():
    packet = OVER_IP["ipv4"] / UDP(sport=0xC083) / BTH(destqp=0x11) / DETH(srcqp=0x11) / LabHeader()
    reported = _native.decode_frame(bytes(packet / b"seven.."), True)
    assert (reported["path"], reported["count"], reported["length"]) == (0x83, 1, 7)
    for number, layer in CONTROLS.items():
        reported = _native.decode_frame(bytes(packet / layer()), True)
        assert (reported["kind"], reported["length"]) == (description.CONTROL, len(layer()))
        assert number >= description.PACKET_ACK or control.decode(reported["payload"])
        assert reported["payload"][0] == number
    reported = _native.decode_frame(bytes(packet / LabOperation(rkey=5) / b"seven.."), True)
    assert (reported["verb"], reported["rkey"], reported["length"]) == (1, 5, 7)
    reported = _native.decode_frame(bytes(packet / ReceiverReport()), True)
    assert (reported["kind"], reported["length"]) == (description.REPORT, 44)


# ---------------------------------------------------------------- bodies


@settings(max_examples=150)
@given(MESSAGES, st.sampled_from([216, 472, 2008]))
def test_control_messages_are_read_as_policies_read_them(message, room):
    body = control_bodies.encode(message, room)
    layer = CONTROLS[body[0]](body)
    check_message(layer, control.decode(body))
    assert bytes(forget(layer)) == body
    assert layer.mysummary().startswith(layer.name)


def test_reports_are_as_the_engine_writes_them():
    """native/engine/striped/report.hpp: the last word before the paths is two of 16 bits."""
    body = struct.pack(">7I2H", 1, 2, 3, 4, 5, 6, 7, 3, 2) + struct.pack(
        ">IQIQ", 6, 7, 8, 2**64 - 1
    )
    report = ReceiverReport(body)
    names = ("echo_stamp_ns", "echo_delay_ns", "credit_packets", "packets", "ce_packets",
             "lost_packets", "loss_bursts", "paths")  # fmt: skip
    assert [report.getfieldval(name) for name in names] == [1, 2, 3, 4, 5, 6, 7, 2]
    assert report.marked_paths == 3
    assert [(each.packets, each.bytes) for each in report.arrived] == [(6, 7), (8, 2**64 - 1)]
    assert bytes(forget(report)) == body


@given(st.binary(max_size=80))
def test_any_body_is_parsed_and_built_again(data):
    for kind in (description.CONTROL, description.REPORT):
        frame = frames.Frame(lab=frames.Lab(kind=kind), payload=data).encode()
        packet = parse(frame)
        assert bytes(packet) == frame
        assert isinstance(packet[LabHeader].payload.mysummary(), str | tuple)
        packet.show(dump=True)


# ---------------------------------------------------------------- interpretations


def test_the_immediate_is_that_of_the_engine():
    """native/engine/striped/uc_framing.hpp"""
    source = FRAMING.read_text()
    (text,) = re.findall(r"kSlotBits = (\d+), kOffsetBits = (\d+), kUserBits = (\d+);", source)
    parts = description.IMMEDIATE.parts
    assert [part.bits for part in parts] == list(map(int, text))
    assert [part.name for part in parts] == list(readers.IMMEDIATE_PARTS)


WORDS = st.integers(0, 2**32 - 1)


@given(WORDS)
def test_any_immediate_is_read_as_the_sdk_reads_it(value):
    layer = ImmDt(immdt=value)
    assert (layer.slot, layer.offset, layer.user) == sdr.parsed(value)


@given(WORDS, WORDS, st.integers(1, description.MOST_SLOT_BYTES))
def test_any_clear_to_send_is_read_as_the_sdk_reads_it(number, key, length):
    clear = sdr.Clear(number, key, length)
    packet = parse(bytes(HEAD / BTH(destqp=0x11) / Raw(clear.encode())))
    layer = packet[SdrClearToSend]
    assert sdr.Clear(layer.number, layer.key, layer.length) == clear
    assert bytes(forget(layer)) == clear.encode()


def test_what_can_be_no_clear_to_send_is_a_payload():
    assert description.SDR_CLEAR_BYTES == sdr.CLEAR_BYTES == len(SdrClearToSend())
    assert sdr.MOST_PACKETS * max(sdr._MTUS) == description.MOST_SLOT_BYTES
    for payload in (
        sdr.Clear(1, 2, 0).encode(),
        sdr.Clear(1, 2, description.MOST_SLOT_BYTES + 1).encode(),
        sdr.Clear(1, 2, 2**32 + 1).encode(),
        sdr.Clear(1, 2, 3).encode() + b"4",
        sdr.Clear(1, 2, 3).encode()[1:],
    ):
        for opcode in (None, 0x24):  # UC SEND Only
            assert parse(bytes(HEAD / BTH(opcode=opcode) / Raw(payload)))[Raw].load == payload
    fits = sdr.Clear(1, 2, 3).encode()
    assert parse(bytes(HEAD / BTH(opcode=0x24) / Raw(fits)))[Raw].load == fits


# ---------------------------------------------------------------- packet sets


@given(SETS, st.sampled_from([30, 200, 2000]))
def test_ranges_are_the_packets_of_the_set(packets, room):
    data = control_bodies.of_set(packets, room)
    found = PacketSet(data)
    decoded = control._decode_set(data)
    assert packets_of(found) == decoded.indices().astype(int).tolist()
