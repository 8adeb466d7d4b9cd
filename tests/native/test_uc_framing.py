# SPDX-License-Identifier: GPL-2.0-or-later
"""Frames of the framing uc_immediate: what is on the wire, what is refused, and as what."""

import dataclasses
import struct

import pytest

from softroce_lab.transports.control import Clear
from tests import control_bodies
from tests.native import frames
from tests.transports.pair_rig import (
    ADDRESSES,
    MILLISECOND_NS,
    QKEY,
    SECOND_NS,
    V6_ADDRESSES,
    PairRig,
    noise,
)

MTU = 256
SLOTS = 4
ID = 64 * SLOTS + 1  # slot 1, generation 0: the 65th use
PACKETS = 40
LENGTH = PACKETS * MTU - 7
KEY = (1, 2, 0x87654321)
NEXT_KEY = (1, 2, 4)
FIRST_QP, ROOT_KEY, SLOT_BYTES = 0x800000, 0x53445200, MTU << 18
UC_WRITE_ONLY_IMMEDIATE, UC_WRITE_ONLY = 0x2B, 0x2A
FORGED = bytes(range(256))
U32 = (1 << 32) - 1


@dataclasses.dataclass(frozen=True)
class Write:
    """A UC RDMA WRITE ONLY with immediate, right but for what is changed."""

    index: int = 5
    slot: int = ID % SLOTS
    generation: int = 0
    path: int = 3
    user: int | None = None  # fragment; None: the right one
    address: int | None = None
    root_key: int = ROOT_KEY
    dma_length: int | None = None
    payload: bytes = FORGED
    source_port: int | None = None
    opcode: int = UC_WRITE_ONLY_IMMEDIATE
    qp: int | None = None
    pkey: int = 0xFFFF
    source: int = 0  # index of ADDRESSES
    psn: int = 1000

    def encode(self, addresses=ADDRESSES) -> bytes:
        user = KEY[2] >> self.index % 8 * 4 & 0xF if self.user is None else self.user
        address = (
            self.slot * SLOT_BYTES + self.index * MTU if self.address is None else self.address
        )
        length = len(self.payload) if self.dma_length is None else self.dma_length
        qp = FIRST_QP + self.generation * 16 + self.path if self.qp is None else self.qp
        reth = struct.pack(">QII", address, self.root_key, length)
        immediate = struct.pack(">I", self.slot << 22 | self.index << 4 | user)
        frame = frames.Frame(
            source_ip=addresses[self.source],
            destination_ip=addresses[1],
            source_port=0xC000 + self.path if self.source_port is None else self.source_port,
            opcode=self.opcode,
            pkey=self.pkey,
            destination_qp=qp,
            psn=self.psn,
            lab=None,
            payload=reth + immediate + self.payload,
        )
        return without_deth(frame.encode())


def without_deth(frame: bytes) -> bytes:
    """The frame less the DETH that the maker of UD frames puts in."""
    layout = frames.layout(frame)
    at = layout.bth_at + frames.BTH
    shorter = bytearray(frame[:at] + frame[at + frames.DETH :])
    for where in (layout.udp_at + 4, frames.IP_AT + (2 if layout is frames.V4 else 4)):
        value = int.from_bytes(shorter[where : where + 2], "big") - frames.DETH
        shorter[where : where + 2] = value.to_bytes(2, "big")
    return frames.seal(bytes(shorter))


def begun(addresses=ADDRESSES):
    """A transfer of which the first packets have arrived, a receive that waits, and idle slots."""
    rig = PairRig(
        "sdr_sr",
        addresses=addresses,
        framing="uc_immediate",
        path_mtu=MTU,
        message_slots=SLOTS,
        first_message_id=ID,
    )
    for cable in rig.cables:
        cable.delay_ns, cable.packet_time_ns = 100_000, 10_000
    rig.transfer(KEY, LENGTH)
    rig.sides[1].receive(NEXT_KEY, LENGTH)
    while rig.counters(1)["rx_placed"] < 3:
        rig.step_until(rig.now_ns + 10_000)
    return rig


def inject(rig, frame, to=1):
    """The counters that a frame changes."""
    before = rig.counters(to)
    rig.pair.inject(to, frame)
    return {
        name: now - before[name] for name, now in rig.counters(to).items() if now != before[name]
    }


def ends_well(rig):
    """The transfer goes on as if nothing had happened."""
    data = noise(9, LENGTH)
    rig.sides[1].expect(rig.sides[1].posted[-1], data)
    rig.sides[0].send(NEXT_KEY, data)
    rig.finish(SECOND_NS)
    rig.check()


# ---------------------------------------------------------------- right


def test_frames_are_as_another_encoder_makes_them():
    """Each packet of a message, at its address, with its fragment of the user's immediate."""
    rig = PairRig("sdr_sr", framing="uc_immediate", path_mtu=MTU, message_slots=SLOTS, paths=3)
    for cable in rig.cables:
        cable.delay_ns = 1_000
    rig.pair.keep_sent()
    for number in range(7):
        rig.transfer((1, 2, number), 0)
        rig.finish(SECOND_NS)
    send = rig.transfer(KEY, LENGTH)  # id 7: slot 3, generation 1
    rig.finish(SECOND_NS)
    data = rig.sides[0].arena[send.offset :][:LENGTH].tobytes()
    bth = frames.V4.bth_at
    sent = [f for _, side, f in rig.pair.take_sent() if side == 0 and f[bth] == 0x2B][7:]
    assert len(sent) == PACKETS
    psns: dict[int, int] = {}
    for index, frame in enumerate(sent):
        qp = int.from_bytes(frame[bth + 5 : bth + 8], "big")
        psn = int.from_bytes(frame[bth + 9 : bth + 12], "big")
        path = qp - FIRST_QP - 16
        payload = data[index * MTU :][:MTU]
        made = Write(index, 3, 1, path, payload=payload, psn=psn).encode()
        udp = frames.V4.udp_at
        assert frame[udp:] == frames.seal(frame[:udp] + made[udp:])[udp:]
        assert psn == psns.get(path, psn - 1) + 1
        psns[path] = psn
    assert sorted(psns) == [0, 1, 2]


CASES = {
    "rx_bad_opcode": [{"opcode": UC_WRITE_ONLY, "payload": FORGED}, {"opcode": 0x64},
                      {"opcode": 0x0B}],
    "rx_unknown_qp": [{"qp": FIRST_QP + 1024}, {"qp": 0xFFFFFE}, {"qp": FIRST_QP - 1}, {"qp": 2}],
    "rx_wrong_pkey": [{"pkey": 0x1234}],
    "rx_unknown_peer": [{"source": 1}],
    "rx_bad_header": [{"source_port": 0xC002}, {"source_port": 4791}, {"path": 2, "qp": FIRST_QP},
                      {"slot": SLOTS}, {"slot": 1023}],
    "rx_wrong_root_key": [{"root_key": ROOT_KEY + 1}, {"root_key": 0}],
    "rx_wrong_address": [{"address": 0}, {"address": SLOT_BYTES + 5 * MTU + 1},
                         {"address": SLOT_BYTES + 6 * MTU}, {"address": 2**64 - 1},
                         {"address": 2 * SLOT_BYTES + 5 * MTU}],
    "rx_bad_length": [{"dma_length": MTU - 1}, {"dma_length": U32}, {"payload": b""},
                      {"payload": FORGED[:-1]}, {"payload": FORGED + b"1234"},
                      {"index": PACKETS - 1}],
    "rx_bad_index": [{"index": PACKETS}, {"index": (1 << 18) - 1}],
    "rx_inconsistent": [{"user": KEY[2] >> 5 * 4 & 0xF ^ 1}],
    "rx_stale_generation": [{"generation": 1}, {"generation": 63}],
    "rx_no_recv": [{"slot": 3}, {"slot": 0}],
    "rx_duplicate": [{"index": 0}, {"index": 1}],
}  # fmt: skip


@pytest.mark.parametrize("addresses", [ADDRESSES, V6_ADDRESSES], ids=["ipv4", "ipv6"])
def test_one_wrong_field(addresses):
    """All cases in one transfer; then the right frame is taken."""
    rig = begun(addresses)
    for counter, cases in CASES.items():
        for fields in cases:
            changed = inject(rig, Write(**fields).encode(addresses))
            changed.pop("rx_data", None)  # of a duplicate
            assert changed == {counter: 1}, fields
    ends_well(rig)
    rig = begun(addresses)
    taken = inject(rig, Write(index=30).encode(addresses))
    assert taken == {"rx_data": 1, "rx_placed": 1}


# ---------------------------------------------------------------- clearances

CLEAR = Clear(64, 16, FIRST_QP, ROOT_KEY, SLOT_BYTES, ((ID + 1, NEXT_KEY, LENGTH),))


def recovery_frame(rig, body, **fields):
    """A control message or a report, from side 1 to side 0."""
    lab = frames.Lab(length=len(body), stamp_ns=rig.now_ns % (1 << 32), **fields)
    return frames.Frame(
        source_ip=ADDRESSES[1],
        destination_ip=ADDRESSES[0],
        qkey=QKEY,
        source_qp=frames.RECOVERY_QP,
        destination_qp=frames.RECOVERY_QP,
        lab=lab,
        payload=body,
    ).encode()


def clear(rig, **changes):
    """The counters that a clearance changes."""
    body = control_bodies.encode(dataclasses.replace(CLEAR, **changes), 216)
    frame = recovery_frame(rig, body, kind=frames.CONTROL, message_id=1)
    return inject(rig, frame, to=0)


def test_a_clearance_is_for_these_channels_and_whole():
    rig = begun()
    for receives in (CLEAR.receives, ((ID, KEY, 1), (ID - 9, KEY, 1))):  # heard before, or over
        assert clear(rig, receives=receives) == {"rx_clear": 1}
    for changes in (
        {"generations": 4},
        {"paths": 8},
        {"slot_bytes": SLOT_BYTES + 1},
        {"first_qp": 0xFFFFFF},
        {"first_qp": FIRST_QP + 1024},  # not what was said before
        {"root_key": 1},
    ):
        assert clear(rig, **changes) == {"rx_bad_clear": 1}, changes
    for bytes_ in (0, 1, 19, 21, 35):
        body = control_bodies.encode(CLEAR, 216)[:bytes_]
        frame = recovery_frame(rig, body, kind=frames.CONTROL, message_id=1)
        assert inject(rig, frame, to=0) == {"rx_bad_clear": 1}, bytes_
    ends_well(rig)


@pytest.mark.parametrize("newest", [0, 1 << 22, U32 - 1, 63 << 22 | 7])
@pytest.mark.parametrize("last_path", [0, 15, 16, U32])
def test_a_report_that_names_what_was_not_sent_is_of_no_effect(newest, last_path):
    rig = begun()
    paths = 8
    body = struct.pack(">8I", last_path, 0, 100, 3, 0, 0, 0, paths) + bytes(12 * paths)
    body += struct.pack(f">{paths}I", *[newest] * paths)
    name = "rx_report" if last_path < 16 else "rx_bad_report"
    assert inject(rig, recovery_frame(rig, body, kind=frames.REPORT), to=0) == {name: 1}
    rig.step_until(rig.now_ns + MILLISECOND_NS)
    ends_well(rig)
