# SPDX-License-Identifier: GPL-2.0-or-later
"""many_qps.py COUNT ROUNDS: so many connections made, used and destroyed, so often.

Prints [[seconds, resident bytes at most, resident bytes afterwards], ...].
"""

import json
import os
import sys
import time

import numpy as np

from softroce_lab import _native
from tests.native.connected import (
    ADDRESSES,
    DOMAIN,
    INIT,
    MASK_INIT,
    MASK_RTR,
    MASK_RTS,
    RC,
    RTR,
    RTS,
    SEND,
    SIGNALED,
)

count, rounds = map(int, sys.argv[1:])
BYTES = 64


def resident():
    """Bytes of memory that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def config(address):
    made = _native.MessageConfig()
    made.address, made.path_mtu = address, 4096
    return made


pair = _native.Pair(*map(config, ADDRESSES), 1)
ends = [pair.side(which) for which in range(2)]
memory = [np.zeros(count * BYTES, np.uint8) for _ in ends]
keys = [
    end.register_memory(int(m.ctypes.data), m.nbytes, 1, DOMAIN)
    for end, m in zip(ends, memory, strict=True)
]
queues = [end.create_cq(2 * count) for end in ends]


def attributes(to):
    attr = _native.QpAttr()
    attr.address = _native.AddressVector()
    address = attr.address
    address.destination = ADDRESSES[to]
    attr.address = address
    attr.port_num, attr.path_mtu_bytes, attr.timeout, attr.retry_cnt = 1, 1024, 14, 7
    return attr


def create(which):
    cq = queues[which]
    made = [
        ends[which].create_qp(RC, cq, cq, 0, (4, 4, 1, 1, 0), DOMAIN, False) for _ in range(count)
    ]
    assert not any(error for error, _, _ in made)
    return [number for _, number, _ in made]


def connect(which, mine, theirs):
    attr, end = attributes(1 - which), ends[which]
    for number, peer in zip(mine, theirs, strict=True):
        attr.dest_qp_num = peer
        for state, mask in ((INIT, MASK_INIT), (RTR, MASK_RTR[RC]), (RTS, MASK_RTS[RC])):
            attr.qp_state = state
            assert end.modify_qp(number, attr, mask) == 0


def element(which, n):
    return [_native.ScatterGather(int(memory[which].ctypes.data) + n * BYTES, BYTES, keys[which])]


def use(numbers):
    memory[0][:] = np.random.default_rng(1).integers(0, 256, count * BYTES, np.uint8)
    memory[1][:] = 0
    for n in range(count):
        receive, send = _native.ReceiveRequest(), _native.SendRequest()
        receive.targets, send.sources = element(1, n), element(0, n)
        send.opcode, send.send_flags, send.wr_id = SEND, SIGNALED, n
        assert ends[1].post_receives(numbers[1][n], [receive])[0] == 0
        assert ends[0].post_sends(numbers[0][n], [send])[0] == 0
    while pair.run(pair.now_ns + 1_000_000_000):
        pass
    done = [queue.poll_completions(2 * count) for queue in queues]
    assert all(len(each) == count and not any(c.status for c in each) for each in done)
    assert (memory[0] == memory[1]).all()


def turn():
    began = time.perf_counter()
    numbers = [create(which) for which in range(2)]
    for which in range(2):
        connect(which, numbers[which], numbers[1 - which])
    use(numbers)
    seconds = time.perf_counter() - began
    most = resident()
    for end, mine in zip(ends, numbers, strict=True):
        assert not any(end.destroy_qp(number) for number in mine)
    assert ends[0].destroy_qp(numbers[0][0]) != 0
    return seconds, most, resident()


print(json.dumps([turn() for _ in range(rounds)]))
