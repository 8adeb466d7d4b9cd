# SPDX-License-Identifier: GPL-2.0-or-later
"""Two connected queue pairs on an imagined cable: what the tests of RC and UC run on."""

import numpy as np

from softroce_lab import _native

RC, UC = 2, 3
INIT, RTR, RTS, SQD, SQE, ERR = 1, 2, 3, 4, 5, 6
WRITE, WRITE_IMM, SEND, SEND_IMM, READ, CMP_SWAP, FETCH_ADD, SEND_INV = 0, 1, 2, 3, 4, 5, 6, 9
FENCE, SIGNALED, SOLICITED, INLINE = 1, 2, 4, 8
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC = 1, 2, 4, 8
ALL_ACCESS = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
MASK_INIT = 1 | 1 << 3 | 1 << 4 | 1 << 5
MASK_RTR = {UC: 1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 20}
MASK_RTR[RC] = MASK_RTR[UC] | 1 << 15 | 1 << 17
MASK_RTS = {UC: 1 | 1 << 16, RC: 1 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 13 | 1 << 16}
ADDRESSES = (0x0A000001, 0x0A000002)
DOMAIN = 5
GUARD = 0x5A
GUARD_BYTES = 4096


class Side:
    """An RNIC with one connected queue pair and one region of memory between guards."""

    def __init__(self, endpoint, kind, memory_bytes, access, cap):
        self.endpoint = endpoint
        self.kind = kind
        self.cq = endpoint.create_cq(1 << 16)
        error, self.number, _ = endpoint.create_qp(kind, self.cq, self.cq, 0, cap, DOMAIN, False)
        assert error == 0
        self.array = np.full(memory_bytes + 2 * GUARD_BYTES, GUARD, np.uint8)
        self.memory = self.array[GUARD_BYTES:-GUARD_BYTES]
        self.address = int(self.memory.ctypes.data)
        self.key = endpoint.register_memory(self.address, memory_bytes, access, DOMAIN)
        self.completions = []

    def modify(self, mask, **values):
        attr = _native.QpAttr()
        for name, value in values.items():
            setattr(attr, name, value)
        return self.endpoint.modify_qp(self.number, attr, mask)

    def connect(self, peer, psn, peer_psn, path_mtu, access=ALL_ACCESS, **retries):
        assert self.modify(MASK_INIT, qp_state=INIT, qp_access_flags=access, port_num=1) == 0
        to = _native.AddressVector()
        to.destination = ADDRESSES[1 - ADDRESSES.index(self.endpoint.address)]
        known = {"timeout": 10, "retry_cnt": 7, "rnr_retry": 7, "min_rnr_timer": 1,
                 "max_rd_atomic": 4, "max_dest_rd_atomic": 4} | retries  # fmt: skip
        values = known | {"path_mtu_bytes": path_mtu, "rq_psn": peer_psn, "sq_psn": psn,
                          "dest_qp_num": peer.number, "address": to}  # fmt: skip
        assert self.modify(MASK_RTR[self.kind], qp_state=RTR, **values) == 0
        assert self.modify(MASK_RTS[self.kind], qp_state=RTS, **values) == 0

    def elements(self, *pieces):
        return [_native.ScatterGather(self.address + at, n, self.key) for at, n in pieces]

    def post_receive(self, *pieces, wr_id=0):
        request = _native.ReceiveRequest()
        request.wr_id = wr_id
        request.targets = self.elements(*pieces)
        return self.endpoint.post_receives(self.number, [request])[0]

    def post_send(self, opcode, *pieces, flags=SIGNALED, **values):
        request = _native.SendRequest()
        request.opcode = opcode
        request.send_flags = flags
        request.sources = self.elements(*pieces)
        for name, value in values.items():
            setattr(request, name, value)
        return self.endpoint.post_sends(self.number, [request])[0]

    def poll(self):
        self.completions += self.cq.poll_completions(1 << 16)
        return self.completions

    @property
    def state(self):
        attr, _, _ = self.endpoint.query_qp(self.number)
        return attr.qp_state

    def guards_stand(self):
        guards = np.concatenate((self.array[:GUARD_BYTES], self.array[-GUARD_BYTES:]))
        return bool((guards == GUARD).all())


class Duo:
    """A pair whose sides are connected; `run` moves the clock until nothing is left to happen."""

    def __init__(self, kind=RC, path_mtu=1024, seed=1, memory_bytes=1 << 20, access=ALL_ACCESS,
                 cap=(256, 256, 4, 4, 256), carries_payload=True, settings=None,
                 **retries):  # fmt: skip
        configs = []
        for address in ADDRESSES:
            config = _native.MessageConfig()
            config.address = address
            config.path_mtu = 4096
            config.carries_payload = carries_payload
            for name, value in (settings or {}).items():
                setattr(config, name, value)
            configs.append(config)
        self.pair = _native.Pair(*configs, seed)
        self.sides = [
            Side(self.pair.side(which), kind, memory_bytes, access, cap) for which in range(2)
        ]
        psns = [0xFFFFF0 + seed % 32, seed * 7919 % (1 << 24)]
        for which, side in enumerate(self.sides):
            psn, peer_psn = psns[which] & 0xFFFFFF, psns[1 - which] & 0xFFFFFF
            side.connect(self.sides[1 - which], psn, peer_psn, path_mtu, **retries)

    def both(self, **values):
        for which in range(2):
            cable = self.pair.cable(which)
            for name, value in values.items():
                setattr(cable, name, value)

    def run(self, for_ns=20_000_000_000):
        until = self.pair.now_ns + for_ns
        while self.pair.run(until):
            pass
        for side in self.sides:
            side.poll()
            assert side.guards_stand()
