# SPDX-License-Identifier: GPL-2.0-or-later
"""Work requests."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence

from softroce_lab.rnic.addr import AH
from softroce_lab.rnic.base import table
from softroce_lab.rnic.enums import IBV_SEND_SIGNALED, IBV_WR_SEND, ibv_send_flags, ibv_wr_opcode
from softroce_lab.rnic.errors import PyverbsUserError


@dataclasses.dataclass
class SGE:
    """A scatter-gather element: `length` bytes at `addr`, which lie in the region of `lkey`."""

    addr: int
    length: int
    lkey: int

    def read(self, length: int, offset: int) -> bytes:
        """`length` bytes from `offset` on, whatever memory they are in."""
        return ctypes.string_at(self.addr + offset, length)

    def __str__(self) -> str:
        return table(
            [("Address", hex(self.addr)), ("Length", self.length), ("Key", hex(self.lkey))]
        )


class RecvWR:
    """A receive work request."""

    def __init__(
        self,
        wr_id: int = 0,
        num_sge: int = 0,
        sg: Sequence[SGE] | None = None,
        next_wr: RecvWR | None = None,
    ) -> None:
        self.wr_id = wr_id
        self.sg_list = _elements(num_sge, sg)
        self.next_wr = next_wr

    @property
    def num_sge(self) -> int:
        """How many elements there are."""
        return len(self.sg_list)

    def __str__(self) -> str:
        return table([("WR ID", self.wr_id), ("Num SGE", self.num_sge)])


class SendWR:
    """A send work request; `set_wr_ud` says where to."""

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
        self.wr_id = wr_id
        self.opcode = ibv_wr_opcode(opcode)
        self.imm_data = imm_data
        self.sg_list = _elements(num_sge, sg)
        self.send_flags = ibv_send_flags(send_flags)
        self.next_wr = next_wr
        self.ah: AH | None = None
        self.rqpn = 0
        self.rqkey = 0

    @property
    def num_sge(self) -> int:
        """How many elements there are."""
        return len(self.sg_list)

    def set_wr_ud(self, ah: AH, rqpn: int, rqkey: int) -> None:
        """Send a datagram to QP number `rqpn` at `ah`, which demands the Q_Key `rqkey`."""
        self.ah = ah
        self.rqpn = rqpn
        self.rqkey = rqkey

    def __str__(self) -> str:
        return table(
            [
                ("WR ID", self.wr_id),
                ("Num SGE", self.num_sge),
                ("Opcode", self.opcode.name),
                ("Send flags", self.send_flags.name or "0"),
            ]
        )


def _elements(num_sge: int, sg: Sequence[SGE] | None) -> list[SGE]:
    if num_sge < 1 or sg is None or len(sg) < num_sge:
        raise PyverbsUserError("A WR needs at least one SGE, and as many as num_sge says")
    return list(sg[:num_sge])
