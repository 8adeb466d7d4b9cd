# SPDX-License-Identifier: GPL-2.0-or-later
"""Frames from outside: each refused under its name, the memory untouched, and work goes on.

Every case is injected in the middle of a transfer: side 0 has sent a part of a message, side 1 has
placed it and waits for the rest. Afterwards the transfer and another one end with the right bytes.
"""

import dataclasses
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from softroce_lab.errors import ibv_wc_status
from softroce_lab.transports.control import (
    Ack,
    Keepalive,
    Nack,
    PacketSet,
    Refused,
    Rnr,
    Sack,
)
from tests import control_bodies
from tests.native import frames
from tests.native.frames import CONTROL, DATA, PARITY, RECOVERY_QP, REPORT, Frame, Lab, Operation
from tests.transports.pair_rig import ADDRESSES, MACS, QKEY, V6_ADDRESSES, PairRig

KEY, SMALL_KEY, UNPOSTED_KEY = (1, 2, 3), (1, 2, 4), (9, 9, 9)
PACKETS = 20
CHUNK = 2048 - frames.LAB
LENGTH = PACKETS * CHUNK - 7
SLOTS = 1024  # of messages; the id modulo this is the slot
ID = 0  # of the open message
UNKNOWN_ID = 777
U32 = 0xFFFFFFFF
FORGED = bytes(reversed(range(256))) * 8
DELAY_NS = 1_000_000


def begun(transport="csa_ud", addresses=ADDRESSES):
    """A rig with 8 of the 20 packets of a message sent, and placed; a small receive is posted."""
    rig = PairRig(transport, addresses=addresses, window_packets=8, arena_bytes=1 << 17)
    for cable in rig.cables:
        cable.delay_ns = DELAY_NS
    rig.transfer(KEY, LENGTH)
    rig.name = transport
    rig.small = rig.sides[1].receive(SMALL_KEY, 100)
    rig.step_until(rig.now_ns + DELAY_NS + DELAY_NS // 2)
    assert rig.counters(1)["rx_placed"] == 8
    return rig


@pytest.fixture
def rig():
    return begun()


def inject(rig, frame, to=1):
    """What the frame changes in the counters, apart from its being a valid packet at all."""
    side = rig.sides[to]
    before = rig.counters(to)
    memory = side.arena.copy()
    rig.pair.inject(to, frame if isinstance(frame, bytes) else frame.encode())
    side.step()
    assert np.array_equal(memory, side.arena), "a refused frame wrote memory"
    after = rig.counters(to)
    changed = {name: n - before[name] for name, n in after.items() if n > before[name]}
    return {name: n for name, n in changed.items() if name not in ("rx_data", "rx_control")}


def ends_well(rig):
    """The transfers that were under way, and a new one in each direction."""
    data = np.arange(100, dtype=np.uint8)
    rig.sides[0].send(SMALL_KEY, data)
    rig.sides[1].expect(rig.small, data)
    rig.transfer((5, 0, 0), 10_000)
    rig.transfer((5, 0, 0), 10_000, sender=1)
    rig.finish()
    rig.check()


def data_frame(**fields):
    """The second packet of the open message with other contents: valid, but for `fields`."""
    lab = Lab(
        path=3,
        operation=KEY[0],
        step=KEY[1],
        message=KEY[2],
        message_id=ID,
        index=10,
        count=PACKETS,
        length=LENGTH,
        stamp_ns=1_200_000,
    )
    frame = Frame(
        source_ip=ADDRESSES[0],
        destination_ip=ADDRESSES[1],
        source_mac=MACS[0],
        destination_mac=MACS[1],
        qkey=QKEY,
        lab=lab,
        payload=FORGED[:CHUNK],
    )
    return frame.but(**fields)


def ends(addresses):
    """Fields of a frame from side 0 to side 1."""
    return {"source_ip": addresses[0], "destination_ip": addresses[1]}


def recovery_frame(rig, kind, body, *, to=1, **fields):
    """A frame to the recovery QP: a control message or a report."""
    lab = Lab(kind=kind, length=len(body), stamp_ns=rig.now_ns % (1 << 32))
    frame = Frame(
        source_ip=ADDRESSES[1 - to],
        destination_ip=ADDRESSES[to],
        qkey=QKEY,
        source_qp=RECOVERY_QP,
        destination_qp=RECOVERY_QP,
        lab=lab,
        payload=body,
    )
    return frame.but(**fields)


# ---------------------------------------------------------------- one field wrong


def test_the_frame_that_all_cases_are_made_from_is_valid():
    rig = begun()
    before = rig.counters(1)["rx_placed"]
    rig.pair.inject(1, data_frame().encode())
    assert rig.counters(1)["rx_placed"] == before + 1


PACKET_FIELDS = {
    "rx_wrong_qkey": [{"qkey": QKEY ^ 1}, {"qkey": 0}, {"qkey": QKEY ^ 1 << 31}],
    "rx_unknown_qp": [{"destination_qp": qp} for qp in (0, 1, 0x10, 0x13, 0xFFFFFF)],
    "rx_wrong_pkey": [{"pkey": pkey} for pkey in (0, 0x8000, 0x7FFE, 0x1234)],
    "rx_bad_opcode": [{"opcode": opcode} for opcode in (0x00, 0x04, 0x24, 0x65, 0x80, 0xFF)]
    + [{"flags": version} for version in (1, 8, 15)],
    "rx_bad_payload": [{"opcode": opcode} for opcode in (0x0C, 0x11, 0x14, 0x81)],  # have none
    "rx_not_ours": [{"destination_ip": ADDRESSES[1] + 1}, {"destination_ip": 0xE0000001}],
    "rx_unknown_peer": [
        {"source_ip": ADDRESSES[0] + 7},
        {"source_ip": ADDRESSES[1]},
        {"source_qp": 0x10},
        {"source_qp": 0x13},
    ],
}
HEADER_FIELDS = {
    "rx_bad_header": [
        {"version": 0},
        {"version": 2},
        {"version": 4},
        {"version": 4, "lab_operation": Operation()},  # the engine carries no operations
        {"version": 15},
        {"kind": 3},
        {"kind": 5},
        {"kind": 7},
        {"path": 4, "source_port": frames.SPORT_BASE},
        {"source_port": 4791},
        {"lab": None, "payload": b"", "source_port": frames.SPORT_BASE},
        {"lab": None, "payload": b"\x20" + bytes(38), "source_port": frames.SPORT_BASE},
    ],
    "rx_bad_count": [{"count": count} for count in (0, 1, PACKETS - 1, PACKETS + 1, 2**24 - 1)]
    + [{"code": code} for code in (1, 255)]
    + [{"length": length} for length in (0, CHUNK, LENGTH + CHUNK, U32)],
    "rx_bad_index": [{"index": index} for index in (PACKETS, PACKETS + 1, 1 << 31, U32)],
    "rx_bad_length": [
        {"payload": b""},
        {"payload": FORGED[: CHUNK - 1]},
        {"payload": FORGED[: CHUNK + 1]},
        {"payload": FORGED[: CHUNK + 4]},
        {"index": PACKETS - 1},  # a whole chunk where the last, shorter one belongs
        {"index": PACKETS - 1, "payload": FORGED[: CHUNK - 8]},
    ],
    "rx_inconsistent": [
        {"operation": KEY[0] + 1},
        {"step": KEY[1] + 1},
        {"message": KEY[2] + 1},
        {"length": LENGTH + 1},
        {"length": LENGTH - 1},
        {"length": CHUNK, "count": 1, "index": 0},
        {"length": U32, "count": -(-U32 // CHUNK)},
    ],
    "rx_stale_generation": [{"message_id": ID - SLOTS & U32}, {"message_id": ID - 9 * SLOTS & U32}],
    "rx_slot_busy": [{"message_id": ID + SLOTS}, {"message_id": ID + 9 * SLOTS}],
    "rx_no_recv": [
        {"message_id": UNKNOWN_ID, "message": 99},
        {"message_id": UNKNOWN_ID},  # the receive of this key is another message's by now
    ],
    "rx_message_too_long": [
        {"message_id": UNKNOWN_ID, "message": SMALL_KEY[2]},
        {"message_id": UNKNOWN_ID, "message": SMALL_KEY[2], "length": 101, "count": 1, "index": 0,
         "payload": FORGED[:101]},
        {"message_id": UNKNOWN_ID, "message": SMALL_KEY[2], "length": U32,
         "count": -(-U32 // CHUNK)},
    ],
    "rx_duplicate": [{"index": 0}, {"index": 7}],  # with another payload than the first had
}  # fmt: skip
CASES = [
    (counter, fields)
    for counter, cases in (PACKET_FIELDS | HEADER_FIELDS).items()
    for fields in cases
]


@pytest.mark.parametrize("addresses", [ADDRESSES, V6_ADDRESSES], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize(("payload", "counter"), [(b"", "rx_trimmed"), (b"x", "rx_bad_length")])
def test_a_packet_that_a_queue_trimmed_brings_no_data(addresses, payload, counter):
    rig = begun(addresses=addresses)
    whole = data_frame(**ends(addresses))
    trimmed = whole.but(lab=dataclasses.replace(whole.lab, trimmed=1), payload=payload)
    assert inject(rig, trimmed) == {counter: 1}
    ends_well(rig)


@pytest.mark.parametrize("fields", HEADER_FIELDS["rx_inconsistent"])
def test_a_packet_that_contradicts_its_message_tells_nothing_of_the_peer(fields):
    rig = begun()
    endpoint, peer = rig.sides[1].endpoint, rig.sides[1].peer
    before = endpoint.peer_state(peer)
    lies = {"stamp_ns": 900_000_000, "srtt": 1, "rttvar": 1}
    frame = data_frame(**{"payload": FORGED[:CHUNK], **fields, **lies})
    assert inject(rig, frame) == {"rx_inconsistent": 1}
    after = endpoint.peer_state(peer)
    for name in ("last_received_ns", "newest_stamp_ns", "newest_stamp_at_ns", "remote_srtt_ns"):
        assert getattr(after, name) == getattr(before, name), name
    ends_well(rig)


@pytest.mark.parametrize("addresses", [ADDRESSES, V6_ADDRESSES], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("transport", ["csa_ud", "ud_rto"])
def test_one_wrong_field(transport, addresses):
    """All cases in one transfer, each several times."""
    rig = begun(transport, addresses)
    for counter, fields in CASES:
        for _ in range(3):
            frame = data_frame(**ends(addresses) | fields)
            assert inject(rig, frame) == {counter: 1}, (counter, fields)
    ends_well(rig)


PARITY_FIELDS = {
    "rx_bad_count": [{"code": code} for code in (0, PACKETS + 1, 65, 255)]
    + [{"count": PACKETS + 1}, {"length": LENGTH + CHUNK}],
    "rx_bad_index": [{"index": index} for index in (0, PACKETS - 1, PACKETS + 4, U32)]
    + [{"kind": DATA, "code": 0}],
    "rx_bad_length": [{"payload": FORGED[:size]} for size in (0, CHUNK - 4, CHUNK + 4)]
    + [{"code": 1}],  # the last packet, which is shorter
    "rx_inconsistent": [{"message": KEY[2] + 1}, {"length": LENGTH - 1}],
    "rx_stale_generation": [{"message_id": ID - SLOTS & U32}],
    "rx_slot_busy": [{"message_id": ID + SLOTS}],
    "rx_no_recv": [{"message_id": UNKNOWN_ID, "message": 99}],
    "rx_message_too_long": [{"message_id": UNKNOWN_ID, "message": SMALL_KEY[2]}],
}  # fmt: skip


@pytest.mark.parametrize("addresses", [ADDRESSES, V6_ADDRESSES], ids=["ipv4", "ipv6"])
def test_one_wrong_field_of_parity(addresses):
    """Of csa_ud. Without a row that is right, nothing is restored."""
    rig = begun(addresses=addresses)
    parity = {"kind": PARITY, "index": PACKETS, "code": PACKETS, **ends(addresses)}
    for counter, cases in PARITY_FIELDS.items():
        for fields in cases:
            assert inject(rig, data_frame(**parity | fields)) == {counter: 1}, (counter, fields)
    ends_well(rig)


def test_parity_of_a_transport_without_codes_is_refused():
    rig = begun("ud_rto")
    assert inject(rig, data_frame(kind=PARITY, index=PACKETS)) == {"rx_bad_index": 1}
    assert inject(rig, data_frame(kind=PARITY, index=PACKETS, code=PACKETS)) == {"rx_bad_count": 1}
    ends_well(rig)


def test_rows_of_parity_count_once_and_have_one_block():
    rig = begun()
    row = {"kind": PARITY, "index": PACKETS, "code": PACKETS}
    assert inject(rig, data_frame(**row)) == {}
    assert inject(rig, data_frame(**row)) == {"rx_late_parity": 1}
    other = row | {"index": PACKETS + 1, "code": PACKETS - 1}
    assert inject(rig, data_frame(**other)) == {"rx_inconsistent": 1}
    trimmed = data_frame(**row)
    trimmed = trimmed.but(lab=dataclasses.replace(trimmed.lab, trimmed=1), payload=b"")
    assert inject(rig, trimmed) == {"rx_trimmed": 1}


# ---------------------------------------------------------------- not a whole RoCE frame


def test_truncated_at_every_length(rig):
    frame = data_frame().encode()
    for length in range(len(frame)):
        assert inject(rig, frame[:length]) == {"rx_truncated": 1}, length
    ends_well(rig)


def test_wrong_icrc(rig):
    draw = random.Random(2)
    frame = data_frame().encode()
    for _ in range(100):
        bit = draw.randrange(frames.V4.lab_at * 8, len(frame) * 8)
        assert inject(rig, frames.flip(frame, bit)) == {"rx_wrong_icrc": 1}, bit
    ends_well(rig)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (12, b"\x86\xdd"),  # IPv6
        (12, b"\x08\x06"),  # ARP
        (frames.IP_AT, b"\x46"),  # IP options
        (frames.IP_AT, b"\x65"),
        (frames.IP_AT + 6, b"\x20\x00"),  # first fragment
        (frames.IP_AT + 6, b"\x00\x10"),  # a later one
        (frames.IP_AT + 9, b"\x06"),  # TCP
        (frames.V4.udp_at + 2, b"\x12\xb8"),  # port 4792
    ],
)
def test_not_roce(rig, at, value):
    frame = bytearray(data_frame().encode())
    frame[at : at + len(value)] = value
    assert inject(rig, frames.seal(bytes(frame))) == {"rx_not_roce": 1}
    ends_well(rig)


# ---------------------------------------------------------------- not right over IPv6


@pytest.fixture
def rig6():
    return begun(addresses=V6_ADDRESSES)


def v6_frame(**fields):
    return data_frame(**ends(V6_ADDRESSES) | fields)


def changed(frame, at, value):
    return frames.seal(frame[:at] + value + frame[at + len(value) :])


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (12, b"\x08\x00"),  # IPv4
        (frames.IP_AT, b"\x40"),  # version 4
        (frames.IP_AT, b"\x00"),
        (frames.IP_AT, b"\xf0"),
        (frames.IP_AT + 6, b"\x06"),  # TCP
        (frames.IP_AT + 6, b"\x00"),  # hop-by-hop options
        (frames.IP_AT + 6, b"\x2c"),  # fragment
        (frames.IP_AT + 6, b"\x1b"),  # an IBA transport header, as behind a GRH: RoCEv1
        (frames.IP_AT + 8, bytes(10) + b"\xff\xff"),  # mapped source
        (frames.IP_AT + 24, bytes(10) + b"\xff\xff"),  # mapped destination
        (frames.V6.udp_at + 2, b"\x12\xb8"),  # port 4792
    ],
)
def test_not_roce_over_ipv6(rig6, at, value):
    assert inject(rig6, changed(v6_frame().encode(), at, value)) == {"rx_not_roce": 1}
    ends_well(rig6)


OTHER_PREFIX = 0xFD536C61_62000001 << 64


@pytest.mark.parametrize("prefix", [0, OTHER_PREFIX, 0xFE80 << 112, 0x64FF9B << 96])
def test_a_foreign_prefix(rig6, prefix):
    """The same 32 bits behind another prefix are somebody else."""
    source, destination = (prefix | address for address in ADDRESSES)
    assert inject(rig6, v6_frame(source_ip=source)) == {"rx_unknown_peer": 1}
    assert inject(rig6, v6_frame(destination_ip=destination)) == {"rx_not_ours": 1}
    ends_well(rig6)


# ---------------------------------------------------------------- noise


def test_noise(rig):
    """Random bytes, alone and behind a right Ethernet header."""
    draw = random.Random(3)
    for _ in range(400):
        noise = draw.randbytes(draw.randrange(2100))
        head = draw.choice([b"", data_frame().encode()[:14], v6_frame().encode()[:14]])
        assert set(inject(rig, head + noise)) in ({"rx_truncated"}, {"rx_not_roce"})
    ends_well(rig)


# ---------------------------------------------------------------- forged reports


def report(echo_ns=0, delay_ns=0, credit=100, packets=10, ce=0, paths=8, cut=None):
    body = struct.pack(">8I", echo_ns & U32, delay_ns, credit, packets, ce, 0, 0, paths)
    return (body + bytes(12 * min(paths, 100)))[:cut]


BAD_REPORTS = {
    "empty": lambda now: b"",
    "cut": lambda now: report(now - 10**6, cut=31),
    "a path short": lambda now: report(now - 10**6, cut=-12),
    "a byte long": lambda now: report(now - 10**6) + b"\0",
    "no path": lambda now: report(now - 10**6, paths=0),
    "17 paths": lambda now: report(now - 10**6, paths=17),
    "2**32-1 paths": lambda now: report(now - 10**6, paths=U32),
    "of the future": lambda now: report(now + 1),
    "of the far future": lambda now: report(now + 2**31 - 1),
    "of the distant past": lambda now: report(now - 2 * 10**9),
    "held for longer than it took": lambda now: report(now - 10**6, delay_ns=10**6 + 1),
    "held for ever": lambda now: report(now - 10**6, delay_ns=U32),
    "of a stamp after the last sent": lambda now: report(now - 1),
}


@pytest.mark.parametrize("body", BAD_REPORTS.values(), ids=BAD_REPORTS)
def test_bad_report(rig, body):
    frame = recovery_frame(rig, REPORT, body(rig.now_ns), to=0)
    assert inject(rig, frame, to=0) == {"rx_bad_report": 1}
    ends_well(rig)


@pytest.mark.parametrize("credit", [0, U32])
def test_lies_about_credit_do_not_stop_or_drown_a_transfer(rig, credit):
    """What looks like a report is believed; the next true one, or the persist timer, corrects."""
    echo_ns = 0  # the first packets left at time 0
    frame = recovery_frame(rig, REPORT, report(echo_ns, credit=credit, packets=U32, ce=U32), to=0)
    assert "rx_report" in inject(rig, frame, to=0)
    ends_well(rig)


# ---------------------------------------------------------------- forged control messages


def missing(base, count):
    return PacketSet(base, np.ones(count, dtype=np.bool_))


def encoded(message):
    return control_bodies.encode(message, CHUNK)


_ID_KEY = struct.pack(">IHHI", ID, *KEY)
_NACK = Nack(0, ID + 1, (0,) * 16, ((ID, 0, 1),))  # from engine to engine
BAD_CONTROL = {
    "empty": b"",
    "no such type": b"\x00" + _ID_KEY,
    "no such type either": b"\x08" + _ID_KEY,
    "a NACK for the policy": encoded(_NACK),
    "an acknowledgement that ends in an id": b"\x03\x00\x00\x00",
    "too many acknowledgements": b"\x03" + bytes(4 * 257),
    "a message that is not out yet": encoded(Ack((ID,))),
    "a message that was never sent": encoded(Ack((UNKNOWN_ID,))),
    "a keepalive that ends in an id": b"\x04\x00\x00\x00",
    "too many keepalives": b"\x04" + _ID_KEY * 65,
    "an RNR cut short": encoded(Rnr(ID, KEY))[:-1],
    "an RNR too long": encoded(Rnr(ID, KEY)) + b"\0",
    "a refusal cut short": encoded(Refused(ID, KEY, True, 12))[:-1],
    "a refusal with success": encoded(Refused(ID, KEY, True, 0)),
    "a refusal with no such status": encoded(Refused(ID, KEY, True, 200)),
    "a SACK with runs too long": b"\x07" + _ID_KEY + struct.pack(">BII", 1, 0, 8) + b"\x09",
}
_BEYOND = missing(PACKETS - 1, 2)
_FAR_BEYOND = missing(U32 - 10, 1)
BAD_FOR = {
    ("ud_rto", "a SACK beyond the message"): Sack(ID, KEY, _BEYOND),
    ("ud_rto", "a SACK far beyond the message"): Sack(ID, KEY, _FAR_BEYOND),
    ("ud_rto", "a NACK"): _NACK,
}


@pytest.mark.parametrize("body", BAD_CONTROL.values(), ids=BAD_CONTROL)
def test_bad_control(rig, body):
    assert inject(rig, recovery_frame(rig, CONTROL, body, to=0), to=0) == {"rx_bad_control": 1}
    ends_well(rig)


@pytest.mark.parametrize(
    ("transport", "message"),
    [(transport, message) for (transport, _), message in BAD_FOR.items()],
    ids=[f"{transport}: {what}" for transport, what in BAD_FOR],
)
def test_control_that_contradicts_what_was_sent(transport, message):
    rig = begun(transport)
    frame = recovery_frame(rig, CONTROL, encoded(message), to=0)
    assert inject(rig, frame, to=0) == {"rx_bad_control": 1}
    ends_well(rig)


@pytest.mark.parametrize("to", [0, 1])
@pytest.mark.parametrize(
    "message",
    [
        Ack(()),
        Ack((UNKNOWN_ID, ID)),
        Keepalive(((UNKNOWN_ID, UNPOSTED_KEY),) * 64),
        Keepalive(((ID, KEY),) * 64),
        Rnr(UNKNOWN_ID, UNPOSTED_KEY),
        Rnr(ID, KEY),
        Refused(UNKNOWN_ID, UNPOSTED_KEY, True, int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR)),
        Refused(UNKNOWN_ID, UNPOSTED_KEY, False, int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR)),
        Refused(ID, UNPOSTED_KEY, True, int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR)),
        Sack(UNKNOWN_ID, UNPOSTED_KEY, missing(0, 20)),
        Sack(ID, KEY, missing(0, PACKETS)),
    ],
    ids=lambda each: (
        f"{type(each).__name__} {getattr(each, 'id', '')}"
        if not isinstance(each, int)
        else f"to {each}"
    ),
)
def test_well_formed_lies_cost_time_at_most(rig, to, message):
    for _ in range(3):
        inject(rig, recovery_frame(rig, CONTROL, encoded(message), to=to), to=to)
    ends_well(rig)


def test_random_control(rig):
    """Random bytes, and random changes to messages that are well-formed."""
    draw = random.Random(4)
    templates = [b"", *(encoded(message) for message in BAD_FOR.values()), *BAD_CONTROL.values()]
    for _ in range(300):
        body = bytearray(draw.choice(templates) or draw.randbytes(draw.randrange(60)))
        for _ in range(draw.randrange(4)):
            if body:
                body[draw.randrange(len(body))] = draw.randrange(256)
        if body[:1] == b"\x06":  # a refusal that names the message rightly is the end of it
            continue
        to = draw.randrange(2)
        inject(rig, recovery_frame(rig, CONTROL, bytes(body), to=to), to=to)
    ends_well(rig)


# ---------------------------------------------------------------- floods

FLOOD = 100_000
MIB = 1 << 20


def resident_bytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def flood(rig, distinct, *, to=(1,), count=FLOOD, step=True):
    """Inject frames over and over; returns by how much this process grew in the second half."""
    for number in range(count):
        if number == count // 2:
            before = resident_bytes()
        for side in to:
            rig.pair.inject(side, distinct[side][number % len(distinct[side])])
        if step and number % 500 == 0:
            rig.step(rig.now_ns + 50_000)
    return resident_bytes() - before


def test_a_flood_of_refused_frames_takes_no_memory():
    rig = begun()
    bad = [data_frame(**fields).encode() for _, fields in CASES]
    bad += [frame[: len(frame) // 2] for frame in bad]
    bad += [frames.flip(frame, 8 * len(frame) - 1) for frame in bad]
    assert flood(rig, {1: bad}) < 4 * MIB
    ends_well(rig)


def test_a_flood_of_control_messages():
    """To both sides, malformed ones and such as are answered."""
    rig = begun()
    messages = [
        Keepalive(((UNKNOWN_ID, UNPOSTED_KEY),)),
        Keepalive(()),
        Ack((UNKNOWN_ID,)),
        Rnr(UNKNOWN_ID, UNPOSTED_KEY),
        Refused(UNKNOWN_ID, UNPOSTED_KEY, False, 12),
    ]
    bodies = [encoded(each) for each in messages] + [b"\xff" * CHUNK] * 5
    distinct = {
        to: [recovery_frame(rig, CONTROL, body, to=to).encode() for body in bodies] for to in (0, 1)
    }
    assert flood(rig, distinct, to=(0, 1), count=FLOOD // 2) < 4 * MIB
    ends_well(rig)
