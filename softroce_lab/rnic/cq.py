# SPDX-License-Identifier: GPL-2.0-or-later
"""Completion queues and what they hold."""

from __future__ import annotations

import dataclasses
import errno
from typing import TYPE_CHECKING, Self

from softroce_lab.errors import ibv_wc_status
from softroce_lab.rnic.base import Closable, table
from softroce_lab.rnic.device import Context
from softroce_lab.rnic.enums import IBV_WC_GRH, IBV_WC_RECV, ibv_wc_flags, ibv_wc_opcode
from softroce_lab.rnic.errors import PyverbsRDMAError

if TYPE_CHECKING:
    from softroce_lab._native import WorkCompletion


_NO_FLAGS = ibv_wc_flags(0)


@dataclasses.dataclass(slots=True)
class WC:
    """A work completion; the fields after `dlid_path_bits` are the lab's, of striped messages."""

    wr_id: int = 0
    status: ibv_wc_status = ibv_wc_status.IBV_WC_SUCCESS
    opcode: ibv_wc_opcode = ibv_wc_opcode.IBV_WC_SEND
    vendor_err: int = 0
    byte_len: int = 0
    qp_num: int = 0
    src_qp: int = 0
    imm_data: int = 0
    wc_flags: ibv_wc_flags = _NO_FLAGS
    pkey_index: int = 0
    slid: int = 0
    sl: int = 0
    dlid_path_bits: int = 0
    peer: int = 0  # index of the peer
    key: tuple[int, int, int] = (0, 0, 0)  # (operation, step, message)
    packets: int = 0
    resent: int = 0  # sender: packets sent again
    duplicates: int = 0  # receiver: packets that were there already
    posted_ns: int = 0
    first_ns: int = 0  # first packet sent or received
    completed_ns: int = 0  # of all completions

    @classmethod
    def of(cls, native: WorkCompletion) -> Self:
        """What the engine says, in verbs' types."""
        opcode = ibv_wc_opcode(native.opcode)
        datagram = opcode == IBV_WC_RECV and native.packets == 0
        return cls(
            wr_id=native.wr_id,
            status=ibv_wc_status(native.status),
            opcode=opcode,
            byte_len=native.byte_len,
            qp_num=native.qp_num,
            src_qp=native.src_qp,
            wc_flags=IBV_WC_GRH if datagram else _NO_FLAGS,
            peer=native.peer,
            key=native.key,
            packets=native.packets,
            resent=native.resent,
            duplicates=native.duplicates,
            posted_ns=native.posted_ns,
            first_ns=native.first_ns,
            completed_ns=native.completed_ns,
        )

    def __str__(self) -> str:
        rows = [
            ("WR ID", self.wr_id),
            ("status", self.status.name),
            ("opcode", self.opcode.name),
            ("byte length", self.byte_len),
            ("QP num", self.qp_num),
            ("source QP", self.src_qp),
            ("WC flags", self.wc_flags.name or "0"),
        ]
        if self.packets:
            rows += [
                ("key", self.key),
                ("packets", self.packets),
                ("resent", self.resent),
                ("duplicates", self.duplicates),
                ("completion ns", self.completed_ns - self.posted_ns),
            ]
        return table(rows)


class CQ(Closable):
    """A completion queue for any number of QPs.

    It holds what its QPs have outstanding and never overruns; `cqe` is what was asked for.
    """

    close_rank = 3

    def __init__(self, context: Context, cqe: int) -> None:
        if cqe < 1:
            raise PyverbsRDMAError("Failed to create a CQ", errno.EINVAL)
        self.cqe = cqe
        self.native = context.endpoint.create_cq()
        super().__init__(context)
        self.context = context

    def poll(self, num_entries: int = 1) -> tuple[int, list[WC]]:
        """(count, completions): at most `num_entries` of what has completed, without waiting."""
        completions = [WC.of(each) for each in self.native.poll_completions(num_entries)]
        return len(completions), completions

    def __str__(self) -> str:
        return "CQ\n" + table([("CQEs", self.cqe)])
