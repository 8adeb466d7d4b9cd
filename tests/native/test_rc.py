# SPDX-License-Identifier: GPL-2.0-or-later
"""Reliable connection: every operation, size and path MTU, with loss of all kinds."""

import itertools

import numpy as np
import pytest

from softroce_lab import _native
from tests.native.bare_verbs import BareRnic, address_vector
from tests.native.connected import (
    ADDRESSES,
    ALL_ACCESS,
    CMP_SWAP,
    ERR,
    FETCH_ADD,
    RC,
    READ,
    RTS,
    SEND,
    SEND_IMM,
    WRITE,
    WRITE_IMM,
    Duo,
)

MTUS = (256, 1024, 4096)
MESSAGES = {
    SEND: "SEND",
    SEND_IMM: "SEND_IMM",
    WRITE: "WRITE",
    WRITE_IMM: "WRITE_IMM",
    READ: "READ",
}
SUCCESS = 0
RECV, RECV_RDMA_WITH_IMM = 128, 129
SEND_ONLY, ACKNOWLEDGE = 4, 17  # opcodes of RC


def sizes(mtu):
    return (0, 1, mtu - 1, mtu, mtu + 1, 65536)


def exchange(duo, opcode, size, rng, at=0, to=100_000):
    """One message from side 0's memory to side 1's, or back by READ; checks bytes and ends."""
    a, b = duo.sides
    source, target = (b, a) if opcode == READ else (a, b)
    data = rng.integers(0, 256, size, np.uint8)
    source.memory[at : at + size] = data
    target.memory[to - 1 : to + size + 1] = 0xEE
    if opcode in (SEND, SEND_IMM, WRITE_IMM):
        assert b.post_receive((to, size), wr_id=9) == 0
    local = to if opcode == READ else at
    remote = b.address + (at if opcode == READ else to)
    assert a.post_send(opcode, (local, size), wr_id=7, remote_addr=remote, rkey=b.key,
                       imm_data=0x12345678) == 0  # fmt: skip
    duo.run()
    assert [(each.wr_id, each.status, each.byte_len) for each in a.completions] == [
        (7, SUCCESS, size)
    ]
    assert (target.memory[to : to + size] == data).all()
    assert target.memory[to - 1] == target.memory[to + size] == 0xEE
    ends = [(c.wr_id, c.status, c.byte_len, c.opcode, c.flags & 2) for c in b.completions]
    expected = {
        SEND: [(9, SUCCESS, size, RECV, 0)],
        SEND_IMM: [(9, SUCCESS, size, RECV, 2)],
        WRITE_IMM: [(9, SUCCESS, size, RECV_RDMA_WITH_IMM, 2)],
    }
    assert ends == expected.get(opcode, [])
    assert all(c.immediate == 0x12345678 for c in b.completions if c.flags & 2)
    a.completions, b.completions = [], []


@pytest.mark.parametrize("mtu", MTUS)
@pytest.mark.parametrize("opcode", MESSAGES, ids=MESSAGES.get)
def test_messages_of_all_sizes_arrive(opcode, mtu):
    duo = Duo(path_mtu=mtu)
    rng = np.random.default_rng(mtu)
    for size in sizes(mtu):
        exchange(duo, opcode, size, rng)
    assert all(duo.pair.side(which).counters()["out_of_sequence"] == 0 for which in range(2))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("opcode", MESSAGES, ids=MESSAGES.get)
@pytest.mark.parametrize("loss", [0.01, 0.2])
def test_messages_arrive_over_a_lossy_cable(opcode, loss, seed):
    mtu = MTUS[seed % len(MTUS)]
    duo = Duo(path_mtu=mtu, seed=seed)
    rate = int(loss * 2**64)
    duo.both(loss=rate, duplicate=rate, corrupt=rate // 4, delay_ns=5_000,
             jitter_ns=(0, 20_000)[seed % 2])  # fmt: skip
    rng = np.random.default_rng(seed)
    for size in sizes(mtu):
        exchange(duo, opcode, size, rng)
    assert [side.state for side in duo.sides] == [RTS, RTS]


@pytest.mark.parametrize("seed", range(2))
def test_atomics_happen_exactly_once(seed):
    duo = Duo(seed=seed)
    a, b = duo.sides
    loss = int(0.1 * 2**64)
    duo.both(loss=loss, duplicate=loss, delay_ns=5_000)
    word = b.memory[64:72].view(np.uint64)
    word[0] = 5
    for n in range(100):
        assert a.post_send(FETCH_ADD, (8 * n, 8), wr_id=n, remote_addr=b.address + 64, rkey=b.key,
                           compare_add=3) == 0  # fmt: skip
    duo.run()
    assert [each.status for each in a.completions] == [SUCCESS] * 100
    assert list(a.memory[:800].view(np.uint64)) == [5 + 3 * n for n in range(100)]
    assert word[0] == 305
    a.completions = []
    for n, (compare, swap) in enumerate([(305, 7), (1, 9), (7, 2**64 - 1)]):
        assert a.post_send(CMP_SWAP, (8 * n, 8), remote_addr=b.address + 64, rkey=b.key,
                           compare_add=compare, swap=swap) == 0  # fmt: skip
    duo.run()
    assert list(a.memory[:24].view(np.uint64)) == [305, 7, 7]
    assert word[0] == 2**64 - 1


@pytest.mark.parametrize("seed", range(2))
def test_many_requests_of_both_sides_end_in_their_order(seed):
    """All operations mixed, both ways at once, more than fit the window, with every rate."""
    duo = Duo(seed=seed, path_mtu=256, memory_bytes=1 << 21)
    rate = int(0.03 * 2**64)
    duo.both(loss=rate, duplicate=rate, delay_ns=3_000, jitter_ns=10_000 * (seed % 2))
    rng = np.random.default_rng(seed)
    count, room = 60, 4096
    plans = []
    for me, peer in itertools.permutations(duo.sides, 2):
        opcodes = rng.choice([SEND, SEND_IMM, WRITE, WRITE_IMM, READ], count)
        lengths = rng.integers(0, room, count)
        me.memory[: count * room] = rng.integers(0, 256, count * room, np.uint8)
        plans.append((me, peer, opcodes, lengths))
    for me, peer, opcodes, lengths in plans:
        for n, (opcode, length) in enumerate(zip(opcodes, lengths, strict=True)):
            if opcode in (SEND, SEND_IMM, WRITE_IMM):
                assert peer.post_receive(((count + n) * room, room), wr_id=1000 + n) == 0
            there = n if opcode == READ else count + n
            here = count * 2 + n if opcode == READ else n
            remote = {"remote_addr": peer.address + there * room, "rkey": peer.key}
            assert me.post_send(int(opcode), (here * room, int(length)), wr_id=n, **remote) == 0
    duo.run()
    for me, peer, opcodes, lengths in plans:
        sends = [c for c in me.completions if c.opcode < RECV]
        assert [(c.wr_id, c.status) for c in sends] == [(n, SUCCESS) for n in range(count)]
        for n, (opcode, length) in enumerate(zip(opcodes, lengths, strict=True)):
            there = n if opcode == READ else count + n
            here = count * 2 + n if opcode == READ else n
            assert (me.memory[here * room : here * room + length]
                    == peer.memory[there * room : there * room + length]).all()  # fmt: skip
        received = [c.wr_id - 1000 for c in peer.completions if c.opcode >= RECV]
        assert received == [n for n, o in enumerate(opcodes) if o in (SEND, SEND_IMM, WRITE_IMM)]


def connected():
    """Two RNICs with a connection, and their numbers of it."""
    ends = [BareRnic(address, mac) for mac, address in enumerate(ADDRESSES, start=1)]
    numbers = [end.create_qp(RC) for end in ends]
    for which, end in enumerate(ends):
        to = address_vector(ADDRESSES[1 - which], 2 - which)
        end.to_rtr(numbers[which], RC, address=to, peer_qp=numbers[1 - which])
        end.to_rts(numbers[which], RC)
    return ends, numbers


def test_a_send_that_cannot_be_read_spoils_no_other_packet():
    """An acknowledgement that leaves in its place is an acknowledgement."""
    (a, b), numbers = connected()
    b.post_receive(numbers[1], 100)
    request = _native.SendRequest()
    request.opcode = SEND
    a.post_send(numbers[0], request, b"a message")
    (frame,) = a.frames()
    b.endpoint.handle_frame(frame, 0)
    b.post_send(numbers[1], request, b"another, which the failure waits for")
    request.sources = [_native.ScatterGather(0x1000, 500, 12345)]
    assert b.endpoint.post_sends(numbers[1], [request])[0] == 0
    sent = {each["infiniband.bth.opcode"]: each for each in map(_native.decode_frame, b.frames())}
    assert sent.keys() == {SEND_ONLY, ACKNOWLEDGE}
    assert sent[ACKNOWLEDGE]["payload"] == b""
    assert b.endpoint.query_qp(numbers[1])[0].qp_state == RTS


def test_somebody_elses_address_is_not_of_the_connection():
    """Whoever guesses numbers and keys must sit in the peer's place, too (IBA 9.6.1.5)."""
    ends = [BareRnic(address, mac) for mac, address in enumerate(ADDRESSES, start=1)]
    numbers = [end.create_qp(RC) for end in ends]
    for which, end in enumerate(ends):
        stranger = 0x0A000009 if which else ADDRESSES[1]
        end.to_rtr(numbers[which], RC, address=address_vector(stranger, 9), peer_qp=numbers[0])
        end.to_rts(numbers[which], RC)
    a, b = ends
    assert not (before := b.post_receive(numbers[1], 100)).any()
    request = _native.SendRequest()
    request.opcode, request.send_flags = SEND, 2
    a.post_send(numbers[0], request, b"a message")
    assert b.answers(a.frames()[0]) == []
    assert b.counters()["rx_unknown_peer"] == 1
    assert not before.any()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("opcode", [READ, FETCH_ADD])
def test_answers_said_again_stand_in_nobodys_way(opcode, seed):
    """Requests that were overtaken by their repetition, with a single resource at the responder."""
    duo = Duo(seed=seed, timeout=6, max_rd_atomic=1, max_dest_rd_atomic=1)
    a, b = duo.sides
    duo.both(loss=int(0.02 * 2**64), delay_ns=200_000, jitter_ns=50_000)
    size = 8 if opcode == FETCH_ADD else 65536
    for n in range(60):
        remote = {"remote_addr": b.address, "rkey": b.key, "compare_add": 1}
        assert a.post_send(opcode, (0, size), wr_id=n, **remote) == 0
    duo.run()
    assert [(done.wr_id, done.status) for done in a.completions] == [(n, 0) for n in range(60)]
    assert [side.state for side in duo.sides] == [RTS, RTS]
    assert duo.pair.side(1).counters()["duplicate_request"] > 0


@pytest.mark.parametrize("result", [READ, FETCH_ADD])
def test_no_duplicate_is_acknowledged_by_the_psn_of_a_result(result):
    """rdma_rxe takes such an acknowledgement for the result itself, and reads stale memory."""
    (a, b), (one, _) = connected()
    memory, key = b.register(64, ALL_ACCESS)
    frames = []
    for opcode in (WRITE, result):
        request = _native.SendRequest()
        request.opcode, request.rkey, request.remote_addr = opcode, key, memory.ctypes.data
        a.post_send(one, request, bytes(8))
        frames += a.frames()
    answers = [b.answers(frame) for frame in (*frames, frames[0], frames[0])]
    assert [len(each) for each in answers] == [1, 1, 0, 1]  # at first it is left to the result
    output = [_native.decode_frame(each[0]) for each in answers if each]
    written, answered, again = (each["infiniband.bth.psn"] for each in output)
    assert answered == written + 1
    assert again == written
    assert output[2]["infiniband.aeth.msn"] == output[1]["infiniband.aeth.msn"]  # C9-148


@pytest.mark.parametrize("result", [READ, FETCH_ADD])
def test_a_duplicate_before_a_result_is_left_to_it_while_the_requester_reaches_it(result):
    """rdma_rxe forgets a response in progress when an acknowledgement follows its First."""
    (a, b), (one, _) = connected()
    memory, key = b.register(64, ALL_ACCESS)
    frames = []
    for opcode in (WRITE, WRITE, result):
        request = _native.SendRequest()
        request.opcode, request.rkey, request.remote_addr = opcode, key, memory.ctypes.data
        a.post_send(one, request, bytes(8))
        frames += a.frames()
    assert [len(b.answers(frame)) for frame in frames] == [1, 1, 1]
    for _ in range(3):  # each round ends with the result again
        assert [len(b.answers(frame)) for frame in frames] == [0, 0, 1]
    # The second WRITE is lost, then the result: the requester returned without having reached it.
    assert [len(b.answers(frames[0])) for _ in range(2)] == [0, 1]


def read_and_its_duplicate(**changes):
    """A READ of two and a half packets, and what answers a duplicate of it with these fields."""
    mtu = 1024  # of `connected`
    (a, b), (one, _) = connected()
    memory, key = b.register(bytes(range(256)) * 16, ALL_ACCESS)
    _, other_key = b.register(64, ALL_ACCESS)
    request = _native.SendRequest()
    request.opcode, request.rkey, request.remote_addr = READ, key, memory.ctypes.data
    a.post_send(one, request, bytes(2 * mtu + 500))
    (frame,) = a.frames()
    assert len(b.answers(frame)) == 3
    reported = dict(_native.decode_frame(frame))
    changes = {name: other_key if value == "other" else value for name, value in changes.items()}
    skipped = changes.pop("skipped", 0)
    reported["infiniband.bth.psn"] += skipped
    reported["infiniband.reth.va"] += skipped * mtu
    reported["infiniband.reth.dmalen"] -= skipped * mtu
    for name, value in changes.items():
        field = f"infiniband.reth.{name}"
        reported[field] = value if name == "r_key" else reported[field] + value
    return len(b.answers(bytes(_native.encode_frame(reported))))


@pytest.mark.parametrize(("skipped", "packets"), [(0, 3), (1, 2), (2, 1)])
def test_a_duplicate_read_of_the_rest_is_answered(skipped, packets):
    assert read_and_its_duplicate(skipped=skipped) == packets
    assert read_and_its_duplicate(skipped=skipped, dmalen=-1) == packets


@pytest.mark.parametrize("skipped", [0, 1, 2])
@pytest.mark.parametrize("change", [{"r_key": "other"}, {"dmalen": 1}, {"va": 1}, {"va": -1}])
def test_a_duplicate_read_of_anything_else_is_not_answered(skipped, change):
    """IBA 9.7.5.1.3: it asks for a part of what the first one asked for, with its R_Key."""
    assert read_and_its_duplicate(skipped=skipped, **change) == 0


def test_every_queue_pair_of_an_overrun_queue_is_in_error():
    (_, b), (one, other) = connected()
    small = b.endpoint.create_cq(1)
    cap = (8, 8, 1, 1, 0)
    both = [b.endpoint.create_qp(RC, small, small, 0, cap, 0, True)[1] for _ in range(2)]
    for number in both:
        to = address_vector(ADDRESSES[0], 1)
        b.to_rtr(number, RC, address=to, peer_qp=one)
        b.to_rts(number, RC)
        for _ in range(2):
            b.post_receive(number, 8)
    attr = _native.QpAttr()
    attr.qp_state = ERR
    assert b.endpoint.modify_qp(both[0], attr, 1) == 0  # flushes two: one too many
    assert small.overrun
    request = _native.ReceiveRequest()
    assert b.endpoint.modify_qp(both[1], attr, 1) == 0
    assert [b.endpoint.query_qp(number)[0].qp_state for number in both] == [ERR, ERR]
    assert b.endpoint.post_receives(other, [request])[0] == 0
