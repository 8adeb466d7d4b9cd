# SPDX-License-Identifier: GPL-2.0-or-later
"""Work requests. They are what the engine takes, so that a post asks Python for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, TypeVar

from softroce_lab._native import ReceiveRequest, ScatterGather, SendRequest, read_memory
from softroce_lab.verbs.addr import AH
from softroce_lab.verbs.base import ask, expect, expect_unsigned, named, table
from softroce_lab.verbs.enums import (
    IBV_SEND_SIGNALED,
    IBV_WR_BIND_MW,
    IBV_WR_LOCAL_INV,
    IBV_WR_SEND,
    IBV_WR_SEND_WITH_INV,
    ibv_send_flags,
    ibv_wr_opcode,
)
from softroce_lab.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError

_WITHOUT_ELEMENTS = {IBV_WR_LOCAL_INV, IBV_WR_BIND_MW, IBV_WR_SEND_WITH_INV}


class SGE(ScatterGather):  # type: ignore[misc]
    """A scatter-gather element: `length` bytes at `addr`, which lie in the region of `lkey`."""

    def read(self, length: int, offset: int) -> bytes:
        """`length` bytes from `offset` on, whatever memory they are in; EFAULT, if in none."""
        expect("offset", offset, int)
        address = expect_unsigned("addr", self.addr + offset, 64)
        return bytes(ask("Failed to read", read_memory, address, _size(length)))

    def __str__(self) -> str:
        return table(
            [("Address", hex(self.addr)), ("Length", self.length), ("Key", hex(self.lkey))]
        )


class RecvWR(ReceiveRequest):  # type: ignore[misc]
    """A receive work request; `next_wr` is posted with it."""

    def __init__(
        self,
        wr_id: int = 0,
        num_sge: int = 0,
        sg: Sequence[SGE] | None = None,
        next_wr: RecvWR | None = None,
    ) -> None:
        super().__init__()
        self.wr_id = wr_id
        self.targets = _elements(num_sge, sg)
        self.next_wr = next_wr

    @property
    def sg_list(self) -> list[ScatterGather]:
        """Where what comes goes."""
        return list(self.targets)

    @sg_list.setter
    def sg_list(self, elements: SGE | Sequence[SGE]) -> None:
        self.targets = _list_of(elements)

    @property
    def num_sge(self) -> int:
        """How many elements there are."""
        return len(self.targets)

    def __str__(self) -> str:
        return table([("WR ID", self.wr_id), ("Num SGE", self.num_sge)])


class SendWR(SendRequest):  # type: ignore[misc]
    """A send work request; `set_wr_ud`, `set_wr_rdma` and `set_wr_atomic` say where to.

    As in C, `imm_data` is in network byte order (`socket.htonl`); of IBV_WR_SEND_WITH_INV it is
    the key to invalidate.
    """

    imm_data: int = SendRequest.imm_data_or_invalidated_rkey

    def __init__(
        self,
        wr_id: int = 0,
        opcode: int = IBV_WR_SEND,
        num_sge: int = 0,
        imm_data: int = 0,
        sg: Sequence[SGE] | None = None,
        send_flags: int = IBV_SEND_SIGNALED,
        next_wr: SendWR | None = None,
    ) -> None:
        super().__init__()
        self.wr_id = wr_id
        self.opcode = opcode
        if num_sge or opcode not in _WITHOUT_ELEMENTS:
            self.sources = _elements(num_sge, sg)
        if imm_data:
            self.imm_data = imm_data
        self.send_flags = send_flags
        self.next_wr = next_wr
        self.ah: AH | None = None

    @property
    def sg_list(self) -> list[ScatterGather]:
        """What is sent; of a READ or an atomic, where its result goes."""
        return list(self.sources)

    @sg_list.setter
    def sg_list(self, elements: SGE | Sequence[SGE]) -> None:
        self.sources = _list_of(elements)

    @property
    def num_sge(self) -> int:
        """How many elements there are."""
        return len(self.sources)

    def set_wr_ud(self, ah: AH, rqpn: int, rqkey: int) -> None:
        """Send a datagram to QP number `rqpn` at `ah`, which demands the Q_Key `rqkey`."""
        expect("ah", ah, AH)
        self.ah = ah
        self.address = ah.vector
        self.remote_qpn = rqpn
        self.remote_qkey = rqkey

    def set_wr_rdma(self, rkey: int, addr: int) -> None:
        """WRITE to or READ from address `addr` of the peer's region `rkey`."""
        self.rkey = rkey
        self.remote_addr = addr

    def set_wr_atomic(self, rkey: int, addr: int, compare_add: int, swap: int = 0) -> None:
        """Operate on the eight bytes at `addr`: add `compare_add`, or swap if they equal it."""
        self.set_wr_rdma(rkey, addr)
        self.compare_add = compare_add
        self.swap = swap

    def __str__(self) -> str:
        return table(
            [
                ("WR ID", self.wr_id),
                ("Num SGE", self.num_sge),
                ("Opcode", named(ibv_wr_opcode, self.opcode)),
                ("Send flags", named(ibv_send_flags, self.send_flags)),
                ("Imm Data", self.imm_data),
            ]
        )


def _list_of(elements: SGE | Sequence[SGE]) -> list[SGE]:
    return [elements] if isinstance(elements, SGE) else list(elements)


def _elements(num_sge: int, sg: Sequence[SGE] | None) -> list[SGE]:
    expect("num_sge", num_sge, int)
    if num_sge < 1 or sg is None or len(sg) < num_sge:
        raise PyverbsUserError("A WR needs at least one SGE, and as many as num_sge says")
    return list(sg[:num_sge])


def _size(length: int) -> int:
    if expect_unsigned("length", length, 64) >> 48:
        raise PyverbsUserError(f"{length} bytes are more than there can be")
    return length


# ---------------------------------------------------------------- chains of requests

Request = TypeVar("Request", SendWR, RecvWR)

MOST_REQUESTS = 1 << 16
"""Longer than any queue: what stands behind is refused anyway, even if the chain is a ring."""


def chain_of(wr: Request, kind: type[Request], bad_wr: Request | None) -> list[Request]:
    """A request and all that follow it."""
    if bad_wr is not None:
        expect("bad_wr", bad_wr, kind)
    expect("wr", wr, kind)
    chain = [wr]
    while (following := chain[-1].next_wr) is not None and len(chain) < MOST_REQUESTS:
        expect("next_wr", following, kind)
        chain.append(following)
    return chain


def refuse(
    failure: str,
    rc: int,
    wr: SendWR | RecvWR,
    bad_wr: SendWR | RecvWR | None,
    why: str | None = None,
) -> NoReturn:
    """Raise the error, and copy the request that was refused to `bad_wr`."""
    if bad_wr is not None:
        bad_wr.assign(wr)
        bad_wr.__dict__.update(wr.__dict__)
    raise PyverbsRDMAError(failure, rc, hint=why)
