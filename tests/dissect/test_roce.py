# SPDX-License-Identifier: GPL-2.0-or-later
"""The layers of RoCEv2: there and back for every opcode, built from defaults, cut, and wrong."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from softroce_lab import _native
from softroce_lab.dissect import (
    AETH,
    BTH,
    DETH,
    FETH,
    IETH,
    RDETH,
    RETH,
    XRCETH,
    AtomicAckETH,
    AtomicETH,
    CNPReserved,
    ImmDt,
    parse,
    syndrome,
)
from softroce_lab.dissect.opcodes import OPCODES
from softroce_lab.dissect.roce import EXTENSIONS, NOT_CAPTURED
from tests.dissect import readers, tshark
from tests.native import frames
from tests.native.opcodes import OPCODES as BY_HAND
from tests.native.opcodes import sealed_lengths

ALL = pytest.mark.parametrize("opcode", OPCODES.values(), ids=lambda each: each.name)
NOT_OURS = {0x1C, 0x1D} | set(range(0x40, 0x60)) | set(range(0xA0, 0xC0))
ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
OVER_IP = {
    "ipv4": ETHERNET / IP(src="10.0.0.1", dst="10.0.0.2"),
    "ipv6": ETHERNET / IPv6(src="fd00::1", dst="fd00::2"),
}
BOTH = pytest.mark.parametrize("ip", OVER_IP.values(), ids=OVER_IP)
SIZES = {
    "RDETH": 4, "DETH": 8, "XRCETH": 4, "RETH": 16, "AtomicETH": 28, "AETH": 4, "AtomicAckETH": 8,
    "ImmDt": 4, "IETH": 4, "FETH": 4, "CNPReserved": 16,
}  # fmt: skip


def layers_of(packet):
    while packet:
        yield packet
        packet = packet.payload


def forget(packet):
    """Nothing is left of what was parsed but the fields."""
    for layer in layers_of(packet):
        layer.raw_packet_cache = None
    return packet


@st.composite
def any_frames(draw, opcode):
    """Frames of this opcode with any bits in their headers, reserved ones included."""
    extensions = sum(SIZES[name] for name in opcode.headers)
    payload = draw(st.binary(max_size=70)) if opcode.payload else b""
    pad = draw(st.binary(min_size=-len(payload) % 4, max_size=-len(payload) % 4))
    bth = bytearray(draw(st.binary(min_size=12, max_size=12)))
    bth[0] = opcode.number
    bth[1] = bth[1] & 0xCF | len(pad) << 4
    rest = draw(st.binary(min_size=extensions, max_size=extensions))
    ipv6 = draw(st.booleans())
    empty = bytearray(bytes(OVER_IP["ipv6" if ipv6 else "ipv4"] / UDP(dport=4791, chksum=0)))
    whole = bytes(empty) + bytes(bth) + rest + payload + pad + bytes(4)
    return sealed_lengths(whole, ipv6=ipv6)


# ---------------------------------------------------------------- there and back


@ALL
@settings(max_examples=3)
@given(data=st.data())
def test_what_is_parsed_is_built_again(opcode, data):
    frame = data.draw(any_frames(opcode))
    packet = parse(frame)
    headers = tuple(type(each).__name__ for each in layers_of(packet[BTH].payload))
    assert headers[: len(opcode.headers)] == opcode.headers
    assert packet[BTH].icrc_is_right() is True
    assert bytes(packet) == frame
    assert bytes(forget(packet)) == frame


@settings(max_examples=40)
@given(data=st.data())
def test_what_is_cut_anywhere_is_built_again(data):
    opcode = data.draw(st.sampled_from(list(OPCODES.values())))
    frame = data.draw(any_frames(opcode))
    cut = frame[: data.draw(st.integers(0, len(frame) - 1))]
    packet = parse(cut)
    assert bytes(packet) == cut
    if BTH in packet:
        assert packet[BTH].icrc == NOT_CAPTURED
        assert packet[BTH].icrc_is_right() is None


# ---------------------------------------------------------------- opcodes


def test_opcodes_are_those_of_the_specification():
    assert set(OPCODES) - NOT_OURS == set(BY_HAND)
    for number, by_hand in BY_HAND.items():
        opcode = OPCODES[number]
        known = {"cnp": "cnpreserved"}
        assert opcode.name == by_hand.name
        assert opcode.payload == by_hand.payload
        assert [each.lower() for each in opcode.headers] == [
            known.get(each, each) for each in by_hand.extensions
        ]


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    """Wireshark's own names for values of InfiniBand's fields: (field, value) -> name."""
    reported = tshark.run(tmp_path_factory.mktemp("home"), "-G", "values").splitlines()
    lines = [line.split("\t") for line in reported if line.startswith("V\tinfiniband.")]
    return {(field, int(number, 0)): name for _, field, number, name in lines}


def test_opcodes_have_wireshark_s_names(values):
    names = {}
    for (field, number), name in values.items():
        if field == "infiniband.bth.opcode":
            service, _, operation = name.partition(" - ")
            short = service.partition("(")[2].rstrip(")")
            names[number] = f"{short} {operation}".casefold()
    shared = names.keys() & OPCODES.keys()
    assert len(shared) > 75
    assert {names[each] for each in shared} == {OPCODES[each].name.casefold() for each in shared}


@pytest.mark.parametrize("number", [0x15, 0x18, 0x2C, 0x66, 0x80, 0xC0, 0xFF])
def test_a_reserved_opcode_has_a_payload_alone(number):
    frame = bytes(OVER_IP["ipv4"] / UDP() / BTH(opcode=number) / Raw(b"1234"))
    packet = parse(frame)
    assert packet[BTH].kind() is None
    assert packet[Raw].load == b"1234"
    assert bytes(packet) == frame


IMPLIED = {
    "RC SEND Only": BTH() / Raw(b"x"),
    "RC SEND Only with Immediate": BTH() / ImmDt() / Raw(b"x"),
    "RC SEND Only with Invalidate": BTH() / IETH(),
    "RC RDMA WRITE Only": BTH() / RETH() / Raw(b"x"),
    "RC RDMA WRITE Only with Immediate": BTH() / RETH() / ImmDt(),
    "RC RDMA READ response Only": BTH() / AETH() / Raw(b"x"),
    "RC Acknowledge": BTH() / AETH(),
    "RC ATOMIC Acknowledge": BTH() / AETH() / AtomicAckETH(),
    "RC CmpSwap": BTH() / AtomicETH(),
    "RC FLUSH": BTH() / FETH() / RETH(),
    "UD SEND Only": BTH() / DETH() / Raw(b"x"),
    "UD SEND Only with Immediate": BTH() / DETH() / ImmDt(),
    "XRC SEND Only": BTH() / XRCETH() / Raw(b"x"),
    "RD SEND Only": BTH() / RDETH() / DETH() / Raw(b"x"),
    "CNP": BTH() / CNPReserved(),
}


@BOTH
@pytest.mark.parametrize(("name", "packet"), IMPLIED.items(), ids=IMPLIED)
def test_an_opcode_follows_from_the_headers(name, packet, ip):
    built = parse(bytes(ip / UDP() / packet))
    assert built[BTH].kind().name == name
    assert built[BTH].icrc_is_right() is True
    if built[BTH].opcode in BY_HAND:
        reported = _native.decode_frame(bytes(ip / UDP() / packet))
        readers.same(readers.by_scapy(built), reported, name)


def test_headers_that_no_opcode_has_are_refused():
    with pytest.raises(ValueError, match="BTH / AETH / RETH"):
        bytes(BTH() / AETH() / RETH())


@ALL
def test_defaults_build_a_packet_of_every_opcode(opcode):
    packet = OVER_IP["ipv4"] / UDP() / BTH(opcode=opcode.number)
    for name in opcode.headers:
        packet /= EXTENSIONS[name]()
    built = parse(bytes(packet))
    assert built[BTH].icrc_is_right() is True
    assert built[UDP].dport == 4791
    if opcode.number in BY_HAND:
        assert isinstance(_native.decode_frame(bytes(packet)), dict)


# ---------------------------------------------------------------- ICRC and padding


def test_routers_may_change_what_the_icrc_does_not_cover():
    packet = parse(frames.captured("rxe_rc")[0])
    packet[IP].ttl, packet[IP].tos, packet[IP].chksum = 3, 0xFF, 0
    packet[BTH].fecn = packet[BTH].becn = 1
    assert packet[BTH].icrc_is_right() is True
    packet[BTH].psn += 1
    assert packet[BTH].icrc_is_right() is False


@pytest.mark.parametrize("length", range(9))
def test_payloads_are_padded_to_whole_words(length):
    packet = parse(bytes(OVER_IP["ipv4"] / UDP() / BTH() / Raw(bytes(range(length)))))
    assert packet[BTH].padcnt == -length % 4
    assert packet[BTH].pad == bytes(-length % 4)
    assert (packet[Raw].load if length else b"") == bytes(range(length))


def test_vlan_tags_and_ip_options_are_stepped_over():
    inner = UDP() / BTH() / RETH(va=5) / Raw(b"abc")
    tagged = ETHERNET / Dot1Q(vlan=5) / Dot1Q(vlan=6) / OVER_IP["ipv4"][IP] / inner
    options = ETHERNET / IP(dst="10.0.0.2", src="10.0.0.1", options=[IPOption_Router_Alert()])
    for frame in (bytes(tagged), bytes(options / inner)):
        packet = parse(frame)
        assert packet[RETH].va == 5
        assert packet[BTH].icrc_is_right() is True
        assert bytes(forget(packet)) == frame


def test_ethernet_s_own_padding_is_no_payload():
    frame = bytes(OVER_IP["ipv4"] / UDP() / BTH())
    packet = parse(frame.ljust(60, b"\0"))
    assert packet[BTH].icrc_is_right() is True
    assert packet[BTH].payload.load == bytes(60 - len(frame))


def test_a_bth_alone_has_no_icrc_to_verify():
    packet = BTH(bytes(BTH(psn=5) / Raw(b"1234")))
    assert (packet.psn, packet.icrc, packet[Raw].load) == (5, 0, b"1234")
    assert packet.icrc_is_right() is None


# ---------------------------------------------------------------- the syndrome


def test_syndromes_are_as_wireshark_tells_them(values):
    """RNR timers and NAK codes by Wireshark's own tables."""
    for code in range(32):
        timer = values["infiniband.aeth.syndrome.timer", code]
        assert syndrome.rnr_timer_ns(code) == round(float(timer.removesuffix(" ms")) * 1_000_000)
        assert timer in syndrome.text(0x20 | code)
    for code, name in syndrome.NAK_CODES.items():
        assert values["infiniband.aeth.syndrome.error_code", code] == name
        assert syndrome.text(0x60 | code) == f"NAK, {name}"


def test_credits_are_those_of_the_specification():
    """IBA table 45: 0 to 4, then 1.5 and 2 times what came two before."""
    table = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
             1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, None]  # fmt: skip
    assert [syndrome.credits_of(code) for code in range(32)] == table
    assert syndrome.text(0x1F) == "ACK, credits unlimited"
    assert syndrome.text(5) == "ACK, 6 credits"
    assert syndrome.text(0x45) == "reserved"
    assert syndrome.text(0x7F) == "NAK, reserved code 31"
