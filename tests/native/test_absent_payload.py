# SPDX-License-Identifier: GPL-2.0-or-later
"""RNICs that carry no payload: requests need no memory, and all else happens as it does with."""

import errno

import numpy as np
import pytest

from softroce_lab import _native
from tests.native.connected import (
    CMP_SWAP,
    FETCH_ADD,
    RC,
    READ,
    SEND,
    SEND_IMM,
    SEND_INV,
    UC,
    WRITE,
    WRITE_IMM,
    Duo,
)

ETHERNET_IPV4_UDP = 14 + 20 + 8
BTH = 12
OPERATIONS = {RC: (SEND, SEND_IMM, WRITE, WRITE_IMM, READ), UC: (SEND, SEND_IMM, WRITE, WRITE_IMM)}


class Lengths:
    """A duo without payload, whose requests name no memory."""

    def __init__(self, **kwargs):
        self.duo = Duo(carries_payload=False, memory_bytes=1, **kwargs)

    def post(self, opcode, length, **values):
        nowhere = [_native.ScatterGather(0, length, 0)]
        return self.duo.sides[0].post_send(opcode, sources=nowhere, **values)

    def post_receive(self, length, wr_id=0):
        request = _native.ReceiveRequest()
        request.wr_id, request.targets = wr_id, [_native.ScatterGather(0, length, 0)]
        side = self.duo.sides[1]
        return side.endpoint.post_receives(side.number, [request])[0]


class Bytes:
    """The same with payload and memory."""

    def __init__(self, **kwargs):
        self.duo = Duo(**kwargs)

    def post(self, opcode, length, wr_id=0):
        to = self.duo.sides[1]
        return self.duo.sides[0].post_send(
            opcode, (0, length), wr_id=wr_id, remote_addr=to.address, rkey=to.key
        )

    def post_receive(self, length, wr_id=0):
        return self.duo.sides[1].post_receive((0, length), wr_id=wr_id)


def reported(completion):
    return (
        completion.wr_id,
        completion.status,
        completion.opcode,
        completion.byte_len,
        completion.completed_ns,
    )


def history(requests, kind, seed, **cable):
    """All that can be seen of a run but bytes, and what names them: RETH and ICRC."""
    duo = requests.duo
    duo.both(**cable)
    duo.pair.keep_sent()
    for n, length in enumerate(np.random.default_rng(seed).integers(0, 20_000, 40)):
        opcode = OPERATIONS[kind][n % len(OPERATIONS[kind])]
        assert requests.post_receive(20_000, wr_id=1000 + n) == 0
        assert requests.post(opcode, int(length), wr_id=n) == 0
    duo.run()
    frames = [
        (at, side, len(frame), frame[ETHERNET_IPV4_UDP : ETHERNET_IPV4_UDP + BTH])
        for at, side, frame in duo.pair.take_sent()
    ]
    counters = [side.endpoint.counters() for side in duo.sides]
    return frames, counters, [[reported(each) for each in side.completions] for side in duo.sides]


@pytest.mark.parametrize("kind", [RC, UC])
@pytest.mark.parametrize("seed", [0, 3])
def test_nothing_but_the_bytes_is_missing(kind, seed):
    cable = {
        "loss": (1 << 64) * seed // 50,
        "duplicate": (1 << 64) * seed // 100,
        "delay_ns": 10_000,
        "packet_time_ns": 100,
    }
    without, bytes_too = (
        history(requests(kind=kind, seed=seed), kind, seed, **cable)
        for requests in (Lengths, Bytes)
    )
    assert len(without[0]) > 40
    assert without == bytes_too


@pytest.mark.parametrize("opcode", [CMP_SWAP, FETCH_ADD, SEND_INV])
def test_what_is_about_memory_is_refused(opcode):
    assert Lengths().post(opcode, 8) == errno.EOPNOTSUPP
